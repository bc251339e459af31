//! The book's sources: the pages of `docs/`, and those of the root folder that it has, with links for a site.

use crate::Tree;
use crate::rules::documents::resolve;
use std::io;
use std::path::Path;

/// Pages of the root folder that are part of the book.
const ROOT_PAGES: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// Writes them to `folder`, with the book's configuration.
pub fn write(root: &Path, tree: &Tree, folder: &Path) -> io::Result<()> {
    let sources = folder.join("src");
    if sources.exists() {
        std::fs::remove_dir_all(&sources)?;
    }
    let settings = std::fs::read_to_string(root.join("book.toml"))?;
    let settings = settings.replace("src = \"docs\"", "src = \"src\"");
    std::fs::create_dir_all(&sources)?;
    std::fs::write(folder.join("book.toml"), settings.replace("target/docs/book", "book"))?;
    for path in &tree.paths {
        let Some(name) = place(path) else { continue };
        let (from, to) = (root.join(path), sources.join(&name));
        if from.is_dir() {
            std::fs::create_dir_all(to)?;
        } else if let Some(text) = tree.documents.get(path) {
            if let Some(parent) = to.parent() {
                std::fs::create_dir_all(parent)?;
            }
            let is_summary = name == "SUMMARY.md";
            std::fs::write(
                to,
                if is_summary {
                    text.replace("README.md)", "index.md)").replace("(../", "(")
                } else {
                    linked(path, &name, text)
                },
            )?;
        } else {
            std::fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// Where a file of the repository lies in the book.
fn place(path: &str) -> Option<String> {
    if ROOT_PAGES.contains(&path) {
        return Some(path.to_owned());
    }
    path.strip_prefix("docs/").map(indexed)
}

/// mdBook has a folder's page as its index, and does not follow links to it by the other name.
fn indexed(path: &str) -> String {
    path.strip_suffix("README.md").map_or_else(|| path.to_owned(), |folder| format!("{folder}index.md"))
}

/// The text with its links as the book has them: a link to what the book does not have is its words alone.
fn linked(path: &str, name: &str, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut fenced = false;
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fenced || fence { out += line } else { out += &line_linked(path, name, line) }
    }
    out
}

fn line_linked(path: &str, name: &str, line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, words, target, after)) = next_link(rest) {
        out += before;
        let (file, anchor) =
            target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
        let is_ours = !target.contains("://") && !file.is_empty();
        let led = if is_ours { resolve(path, file).and_then(|at| place(&at)) } else { Some(String::new()) };
        match led {
            Some(_) if !is_ours => out += &format!("[{words}]({target})"),
            Some(to) => {
                let up = "../".repeat(name.matches('/').count());
                let anchor = anchor.map_or_else(String::new, |anchor| format!("#{anchor}"));
                out += &format!("[{words}]({up}{to}{anchor})");
            }
            None => out += words,
        }
        rest = after;
    }
    out + rest
}

/// The first link of a line outside `code`: what is before it, its words, where it leads, what is behind it.
fn next_link(line: &str) -> Option<(&str, &str, &str, &str)> {
    let mut from = 0;
    loop {
        let middle = from + line[from..].find("](")?;
        let end = middle + line[middle..].find(')')?;
        let begin = opening(&line[..middle]);
        match begin {
            Some(begin) if line[..begin].matches('`').count().is_multiple_of(2) => {
                return Some((
                    &line[..begin],
                    &line[begin + 1..middle],
                    &line[middle + 2..end],
                    &line[end + 1..],
                ));
            }
            _ => from = middle + 2,
        }
    }
}

/// The bracket that belongs to one at the end of the text.
fn opening(text: &str) -> Option<usize> {
    let mut open = 0;
    for (at, c) in text.char_indices().rev() {
        match c {
            ']' => open += 1,
            '[' if open == 0 => return Some(at),
            '[' => open -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    //! Links within the book are kept, those to sources become words, code stays as it is.
    use super::*;

    #[test]
    fn links_lead_within_the_book() {
        let of = |line: &str| line_linked("docs/measured/history/x.md", "measured/history/x.md", line);
        assert_eq!(of("[a](../all.md#b), [c](../../../core/x.rs)."), "[a](../../measured/all.md#b), c.");
        assert_eq!(
            of("[`x[0]`](../../../ARCHITECTURE.md) `[a](b)`"),
            "[`x[0]`](../../ARCHITECTURE.md) `[a](b)`"
        );
        assert_eq!(of("[a](https://x.org/y) [b](#c)\n"), "[a](https://x.org/y) [b](#c)\n");
        let root = |line: &str| line_linked("ARCHITECTURE.md", "ARCHITECTURE.md", line);
        assert_eq!(root("[a](docs/grpc.md#x) [b](run/x.rs)"), "[a](grpc.md#x) b");
        assert_eq!(root("[a](docs/measured/README.md)"), "[a](measured/index.md)");
        assert_eq!(linked("docs/a.md", "a.md", "```\n[a](../x.rs)\n```\n"), "```\n[a](../x.rs)\n```\n");
    }
}
