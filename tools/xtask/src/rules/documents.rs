//! What a document points to exists, and the map shows every package.

use crate::packages::{Layer, Package};
use crate::{Finding, Tree};

const RULE: &str = "documents";
const MAP: &str = "ARCHITECTURE.md";
/// A change log speaks of what was.
const HISTORY: &str = "CHANGELOG.md";
/// What pages the site has.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Where a path in `code` style is taken for a path of the project.
const FOLDERS: [&str; 8] = ["core/", "host/", "run/", "tools/", "bindings/", "docs/", "examples/", "fuzz/"];

/// Checks links, paths in `code` style, and the map.
pub fn check(tree: &Tree, packages: &[Package<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.documents {
        for (line, prose) in prose(text) {
            for target in links(&prose) {
                findings
                    .extend(follow(tree, path, target).map(|(what, instead)| at(path, line, what, instead)));
            }
            if path.as_str() == HISTORY {
                continue;
            }
            let missing = code_spans(&prose).filter(|name| !exists(tree, name));
            findings.extend(
                missing.map(|name| at(path, line, format!("`{name}` does not exist"), "name what does")),
            );
        }
    }
    findings.extend(map(tree, packages));
    findings.extend(unlisted(tree));
    findings
}

/// Pages that the site's table of contents lacks.
fn unlisted(tree: &Tree) -> Vec<Finding> {
    let Some(summary) = tree.documents.get(SUMMARY) else { return Vec::new() };
    let pages = tree.documents.keys().filter(|path| path.starts_with("docs/") && path.as_str() != SUMMARY);
    let lacking = pages.filter(|path| !summary.contains(&format!("]({})", &path["docs/".len()..])));
    let finding =
        |path: &String| at(SUMMARY, 0, format!("{path} is not in the site"), "add it to the contents");
    lacking.map(finding).collect()
}

/// A package is on the map if its path, or the end of it in a tree drawing (`  call/`), stands there.
fn map(tree: &Tree, packages: &[Package<'_>]) -> Vec<Finding> {
    let Some(text) = tree.documents.get(MAP) else {
        return vec![at(MAP, 0, "the map is missing".into(), "write it")];
    };
    let shown = |package: &Package<'_>| {
        let (_, name) = package.folder.rsplit_once('/').unwrap_or(("", package.folder));
        text.contains(package.folder)
            || text.lines().any(|line| line.trim_start().starts_with(&format!("{name}/")))
    };
    let missing = packages.iter().filter(|package| package.layer < Layer::Top && !shown(package));
    missing
        .map(|package| {
            at(MAP, 0, format!("{} is not on the map", package.folder), "add it, with its purpose in a line")
        })
        .collect()
}

/// What is wrong with a link's target, if it is one of ours.
fn follow(tree: &Tree, document: &str, target: &str) -> Option<(String, &'static str)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { Some(document.to_owned()) } else { resolve(document, file) };
    let Some(path) = path.filter(|path| path.is_empty() || tree.paths.contains(path)) else {
        return Some((
            format!("link to {target}, which is not there"),
            "link to a file of the project, relative to the document",
        ));
    };
    let text = tree.documents.get(&path).filter(|_| !anchor.is_empty())?;
    let known = text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == anchor);
    (!known).then(|| {
        (format!("link to {target}: no such heading"), "use the heading's words, lower case, joined by -")
    })
}

/// The path a relative link leads to; `None` if it leaves the project.
pub fn resolve(document: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// A heading as forges turn it into an anchor.
pub fn slug(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Lines outside fenced code: (line from 1, text).
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fenced && !fence {
            lines.push((at + 1, line.to_owned()));
        }
    }
    lines
}

/// Targets of `[text](target)` and `[name]: target`, outside `code` style.
fn links(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in
        line.match_indices("](").filter(|(at, _)| line[..*at].matches('`').count().is_multiple_of(2))
    {
        let target = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
        found.push(target);
    }
    if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
        found.push(target.split(' ').next().unwrap_or_default());
    }
    found
}

fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether what looks like a path of the project is one: whole, or, of a Rust file, its end (`sessions/room.rs`, or
/// `engine/pass.rs` with the `src` left out). A `build.rs` is the reader's own.
fn exists(tree: &Tree, name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'));
    if !plain {
        return true;
    }
    if FOLDERS.iter().any(|folder| name.starts_with(folder)) {
        return tree.paths.contains(name.trim_end_matches('/'));
    }
    let ends = |path: &String| {
        let (end, path) = (format!("/{name}"), format!("/{path}"));
        path.ends_with(&end) || path.replace("/src/", "/").ends_with(&end)
    };
    !name.ends_with(".rs") || name == "build.rs" || tree.sources.keys().any(ends)
}

fn at(path: &str, line: usize, what: String, instead: &str) -> Finding {
    Finding { path: path.to_owned(), line, rule: RULE, what, instead: instead.to_owned() }
}

#[cfg(test)]
mod tests {
    //! Shows which links and paths pass, and that every package must be on the map.
    use super::*;

    fn found(document: &str) -> Vec<String> {
        let manifest = "[package]\nname = \"a\"\n";
        let tree = Tree::of([
            ("core/a/Cargo.toml", manifest),
            ("ARCHITECTURE.md", "# The map\n## A call's life\ncore/\n  a/  purpose\n"),
            ("core/a/src/x.rs", ""),
            ("docs/x.md", document),
        ]);
        let findings = check(&tree, &Package::all(&tree));
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn links_lead_somewhere() {
        assert_eq!(
            found("[a](../ARCHITECTURE.md#a-calls-life) [b](https://example.org/x) [c](x.md) [d](..)\n"),
            [""; 0]
        );
        assert_eq!(
            found("[a](y.md)\n[b](../../outside)\n[c](../ARCHITECTURE.md#nowhere)\n\n[d]: z.md\n").len(),
            4
        );
        assert_eq!(found("```\n[a](y.md)\n```\n`[b](y.md)`\n"), [""; 0]);
    }

    #[test]
    fn paths_in_code_style_exist() {
        assert_eq!(
            found("`core/a/Cargo.toml`, `core/a/`, `core/<package>/src`, `tools/*`, `elsewhere/x`\n"),
            [""; 0]
        );
        assert_eq!(found("`core/b/src/lib.rs`\n"), ["`core/b/src/lib.rs` does not exist"]);
        assert_eq!(found("`x.rs`, `src/x.rs`, `a/x.rs`, `build.rs`, `y.rs`\n"), ["`y.rs` does not exist"]);
    }

    #[test]
    fn every_page_is_in_the_site() {
        let tree = Tree::of([("docs/SUMMARY.md", "- [A](a.md)\n"), ("docs/a.md", ""), ("docs/b/c.md", "")]);
        assert_eq!(unlisted(&tree).len(), 1);
        assert_eq!(unlisted(&tree)[0].what, "docs/b/c.md is not in the site");
    }

    #[test]
    fn every_room_is_on_the_map() {
        let tree = Tree::of([
            ("core/b/Cargo.toml", "[package]\nname = \"b\"\n"),
            ("ARCHITECTURE.md", "core/\n  a/\n"),
        ]);
        assert_eq!(check(&tree, &Package::all(&tree))[0].what, "core/b is not on the map");
    }
}
