//! `core/` has no clock, socket, file, thread or randomness of its own.

use crate::packages::{Layer, Package};
use crate::source::{Source, words};
use crate::{Finding, Tree};

const RULE: &str = "purity";

/// What may not be named, and what to do instead.
const WORLD: [(&str, &str); 8] = [
    ("std::time::Instant", "take `now: trunkline_call::Instant` as an argument"),
    ("std::time::SystemTime", "take the time as an argument"),
    ("std::net", "take bytes in `handle_*` and give bytes from `poll_*`"),
    ("std::fs", "take the file's bytes as an argument"),
    ("std::thread", "leave threads to run/"),
    ("std::process", "leave processes to run/"),
    ("std::env", "take the setting as an argument"),
    ("rand", "take a seed or a number as an argument"),
];

/// Crates that bring the world in.
const WORLDLY: [&str; 8] = ["getrandom", "libc", "mio", "nix", "rand", "rustix", "socket2", "tokio"];

/// Tests are exempt.
pub fn check(tree: &Tree, packages: &[Package<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.sources.iter().filter(|(path, _)| path.starts_with("core/")) {
        for (line, name) in std_paths(source) {
            if let Some((world, instead)) = WORLD.iter().find(|(world, _)| is_within(&name, world)) {
                let what = format!("core/ names {world}");
                findings.push(Finding {
                    path: path.clone(),
                    line: line + 1,
                    rule: RULE,
                    what,
                    instead: (*instead).into(),
                });
            }
        }
    }
    for package in packages.iter().filter(|package| package.layer == Layer::Core) {
        for dependency in package.dependencies().iter().filter(|name| WORLDLY.contains(&name.as_str())) {
            findings.push(Finding {
                path: package.path("Cargo.toml"),
                line: package.line_of(dependency),
                rule: RULE,
                what: format!("core/ depends on {dependency}, which touches the world"),
                instead: "move what needs it to host/".into(),
            });
        }
    }
    findings
}

fn is_within(name: &str, world: &str) -> bool {
    name.strip_prefix(world).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Every path of the standard library and of `rand` that is named: (line from 0, full path). Import trees are spread
/// out.
fn std_paths(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, code) in source.code_lines() {
        for root in ["std", "rand"] {
            for at in words(code, root).filter(|at| code[at + root.len()..].starts_with("::")) {
                let tree = tree_from(source, line, at);
                spread(&tree, "", &mut |path| found.push((line, path)));
            }
        }
    }
    found
}

/// The path or import tree that starts at `at`, over as many lines as it has.
fn tree_from(source: &Source, line: usize, at: usize) -> String {
    let mut tree = String::new();
    let mut depth = 0;
    let first = source.code[line][at..].chars();
    let more = source.code[line + 1..].iter().flat_map(|code| code.chars());
    for c in first.chain(more).filter(|c| !c.is_whitespace()) {
        match c {
            '{' if tree.ends_with("::") => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '*' if depth > 0 => {}
            _ if c == ':' || c == '_' || c.is_alphanumeric() => {}
            _ => return tree,
        }
        tree.push(c);
    }
    tree
}

/// Calls `each` with every path in an import tree: `a::{b, c::d}` gives `a::b` and `a::c::d`.
fn spread(tree: &str, prefix: &str, each: &mut dyn FnMut(String)) {
    let Some((head, group)) = tree.split_once('{') else {
        return each(format!("{prefix}{tree}"));
    };
    let prefix = format!("{prefix}{head}");
    let inner = group.strip_suffix('}').unwrap_or(group);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                spread(&inner[start..at], &prefix, each);
                start = at + 1;
            }
            _ => {}
        }
    }
    spread(&inner[start..], &prefix, each);
}

#[cfg(test)]
mod tests {
    //! Shows which names are found, however they are imported.
    use super::*;

    fn found(text: &str) -> usize {
        let tree = Tree::of([("core/a/src/x.rs", text)]);
        check(&tree, &[]).len()
    }

    #[test]
    fn the_world_is_found_however_it_is_named() {
        assert_eq!(found("use std::fs;\n"), 1);
        assert_eq!(found("fn f() { std::fs::read(x) }\n"), 1);
        assert_eq!(found("use std::{\n    fmt,\n    time::{Duration, Instant},\n};\n"), 1);
        assert_eq!(found("use std::{net::{IpAddr, TcpStream}, thread, collections::*};\n"), 3);
        assert_eq!(found("let x = rand::random();\n"), 1);
    }

    #[test]
    fn what_is_pure_or_a_test_passes() {
        assert_eq!(found("use std::time::Duration;\nuse std::{fmt, collections::{BTreeMap, HashMap}};\n"), 0);
        assert_eq!(found("// std::fs\nlet s = \"std::fs\";\n"), 0);
        assert_eq!(found("#[cfg(test)]\nmod tests { use std::fs; }\n"), 0);
        assert_eq!(
            found("use crate::rand::x;\nlet brand = 1;\n"),
            1,
            "a path that ends in rand:: is read as rand"
        );
    }

    #[test]
    fn worldly_crates_stay_out() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nserde = \"1\"\ntokio = \"1\"\n";
        let tree = Tree::of([("core/a/Cargo.toml", manifest)]);
        let findings = check(&tree, &Package::all(&tree));
        assert_eq!((findings.len(), findings[0].line), (1, 5));
    }
}
