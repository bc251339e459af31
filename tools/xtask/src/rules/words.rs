//! Words of pictures do not stand where the field has a word of its own: in documents, in what programs say, in help.

use crate::Tree;
use crate::packages::{Layer, Package};
use crate::ratchet::{Found, Measure};
use crate::source::Source;
use std::collections::BTreeMap;

const RULE: &str = "words";

/// The words, as they begin, and what the field says. Those behind `=` are looked for as they are: `room` for a message
/// is plain English.
const PICTURES: [(&str, &str); 19] = [
    ("police", "policies, admission"),
    ("policing", "policies, admission"),
    ("exhibit", "inspected message"),
    ("farewell", "lingering close, GOAWAY"),
    ("=parting", "shutdown"),
    ("stranger", "unidentified peer, unknown user"),
    ("visitor", "pending connection"),
    ("vigil", "keepalive"),
    ("=sober", "plain"),
    ("keepsake", "kept item"),
    ("keeper", "background thread; who keeps it"),
    ("=seat", "lock, slot"),
    ("hurdle", "reason"),
    ("=era", "epoch"),
    ("labour", "work"),
    ("road", "path, queue, connection"),
    ("rooms", "crates, layers"),
    ("=floor", "layer, minimum"),
    ("house", "project, host"),
];

/// What is made from data.
const FOREIGN: [&str; 1] = ["docs/measured/"];

/// How many there are, by file.
pub fn measure(tree: &Tree, packages: &[Package<'_>]) -> Measure {
    let mut found = BTreeMap::new();
    let mut note = |path: &str, lines: Vec<usize>| {
        if let Some(line) = lines.first() {
            found.insert(path.to_owned(), Found { path: path.to_owned(), line: *line, amount: lines.len() });
        }
    };
    let documents = tree.documents.iter().filter(|(path, _)| !FOREIGN.iter().any(|at| path.starts_with(at)));
    documents.for_each(|(path, text)| note(path, of_document(text)));
    // This program says the words, to say that they are not to be said.
    let speaks = |package: &&Package<'_>| package.layer < Layer::Top && package.folder != "tools/xtask";
    for package in packages.iter().filter(speaks) {
        let src = package.path("src/");
        let sources = tree.sources.iter().filter(|(path, _)| path.starts_with(&src));
        sources.for_each(|(path, source)| note(path, of_source(path, source)));
    }
    let instead = "the field's word, which tools/xtask/src/rules/words.rs has beside it";
    Measure { table: "words", rule: RULE, unit: "words of pictures", max: 0, instead, found }
}

/// Lines of a document with such a word, from 0, each as often as it has one; code and targets of links are others'.
fn of_document(text: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let prose: Vec<&str> = line.split('`').step_by(2).collect();
            let prose = without_targets(&prose.join(" "));
            found.extend(std::iter::repeat_n(at, pictures(&prose)));
        }
    }
    found
}

/// Lines of a program's texts with such a word; in `tools/cli`, comments for users are help.
fn of_source(path: &str, source: &Source) -> Vec<usize> {
    let is_help = path.starts_with("tools/cli/");
    let mut found = Vec::new();
    for (at, (line, code)) in source.lines.iter().zip(&source.code).enumerate() {
        if source.is_test[at] {
            continue;
        }
        let text = match line.trim_start() {
            help if help.starts_with("///") && is_help => help.to_owned(),
            comment if comment.starts_with("//") => continue,
            // What a format calls a thing.
            name if name.starts_with("#[serde(") => continue,
            _ => literals(line, code),
        };
        found.extend(std::iter::repeat_n(at, pictures(&text)));
    }
    found
}

/// What a line says in strings: what is not code, up to a comment behind it.
fn literals(line: &str, code: &str) -> String {
    let text: String = line
        .chars()
        .zip(code.chars().chain(std::iter::repeat(' ')))
        .map(|(said, code)| if code == ' ' { said } else { ' ' })
        .collect();
    text.split(" // ").next().unwrap_or_default().to_owned()
}

/// `[text](target)` is `[text]`.
fn without_targets(line: &str) -> String {
    let mut pieces = line.split("](");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        out += "] ";
        out += piece.split_once(')').map_or("", |(_, after)| after);
    }
    out
}

fn pictures(text: &str) -> usize {
    let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    words.filter(|word| is_picture(&word.to_lowercase())).count()
}

fn is_picture(word: &str) -> bool {
    PICTURES.iter().any(|(picture, _)| match picture.strip_prefix('=') {
        Some(whole) => word.strip_suffix('s').unwrap_or(word) == whole,
        None => word.starts_with(picture),
    })
}

#[cfg(test)]
mod tests {
    //! Shows what is found where, and what is not.
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(String, usize)> {
        let manifests = ["core/x", "tools/cli"]
            .map(|at| (format!("{at}/Cargo.toml"), "[package]\nname = \"x\"\n".into()));
        let tree = Tree::of(manifests.into_iter().chain([(path.to_owned(), text.to_owned())]));
        let measure = measure(&tree, &Package::all(&tree));
        measure.found.into_values().map(|found| (found.path, found.amount)).collect()
    }

    #[test]
    fn documents_are_read_without_their_code() {
        let text =
            "Strangers and rooms.\n`police.rs` and [here](farewell.md), room for one.\n```\nvigil\n```\n";
        assert_eq!(found("docs/a.md", text), [("docs/a.md".to_owned(), 2)]);
        assert_eq!(found("docs/measured/a.md", text), []);
        assert_eq!(
            found("README.md", "Several operations, broadly sobering, in one season; a parties' part.\n"),
            []
        );
    }

    #[test]
    fn programs_are_read_for_what_they_say() {
        let text = "// a visitor\nfn seat() {\n    say(\"no road\", seat); // a road\n}\n\
                    #[cfg(test)]\nmod tests {\n    const A: &str = \"keeper\";\n}\n";
        assert_eq!(found("core/x/src/a.rs", text), [("core/x/src/a.rs".to_owned(), 1)]);
        assert_eq!(found("core/x/src/a.rs", "/// A keeper.\nfn f() {}\n"), []);
        assert_eq!(found("core/x/src/a.rs", "#[serde(rename = \"policed\")]\n"), []);
        assert_eq!(found("tools/cli/src/a.rs", "/// A keeper.\nfn f() {}\n").len(), 1);
    }
}
