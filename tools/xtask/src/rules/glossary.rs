//! `docs/glossary.md` says where each of our words comes from, in their order, and has none that the code does not use.

use crate::{Finding, Tree};

const RULE: &str = "glossary";
const PAGE: &str = "docs/glossary.md";

/// A row: its line from 1, the word, its source.
struct Row<'a> {
    line: usize,
    word: &'a str,
    source: &'a str,
}

/// Checks every row of the page's table.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.documents.get(PAGE) else { return Vec::new() };
    let rows = rows(page);
    let at = |line, what: String, instead: &str| Finding {
        path: PAGE.into(),
        line,
        rule: RULE,
        what,
        instead: instead.into(),
    };
    let mut findings = Vec::new();
    for pair in rows.windows(2).filter(|pair| pair[0].word.to_lowercase() > pair[1].word.to_lowercase()) {
        let what = format!("{:?} behind {:?}", pair[1].word, pair[0].word);
        findings.push(at(pair[1].line, what, "put the rows in the order of their words"));
    }
    for row in rows.iter().filter(|row| row.source.is_empty()) {
        let what = format!("{:?} has no source", row.word);
        findings.push(at(row.line, what, "name the RFC, the paper, the gRFC or the system it is from"));
    }
    for (line, word) in unused(tree, &rows) {
        let what = format!("nothing in the code is called {word:?}");
        findings.push(at(line, what, "take it out, or call it that in the code"));
    }
    findings
}

fn rows(page: &str) -> Vec<Row<'_>> {
    let lines = page.lines().enumerate().filter(|(_, line)| line.starts_with("| "));
    let rows = lines.filter_map(|(at, line)| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        Some(Row { line: at + 1, word: cells.next()?, source: cells.nth(1)? })
    });
    // The first is the table's head.
    rows.skip(1).collect()
}

/// Words that no line outside tests has.
fn unused<'a>(tree: &Tree, rows: &[Row<'a>]) -> Vec<(usize, &'a str)> {
    let words = rows.iter().flat_map(|row| row.word.split(", ").map(|word| (row.line, word)));
    // `JBSQ(n)` is called JBSQ.
    let named = |word: &str| tokens(word.split('(').next().unwrap_or_default());
    let mut unused: Vec<_> = words.map(|(line, word)| (line, word, named(word))).collect();
    for source in
        tree.sources.iter().filter(|(path, _)| !path.starts_with("tools/xtask/")).map(|(_, source)| source)
    {
        for (line, _) in source.lines.iter().zip(&source.is_test).filter(|(_, is_test)| !**is_test) {
            unused.retain(|(_, _, word)| !uses(line, word));
        }
    }
    unused.into_iter().map(|(line, word, _)| (line, word)).collect()
}

/// Whether a line has the word, as written or in a name: `hand-over`, `HandOver`, `handover`, `hand_overs`.
fn uses(line: &str, word: &[String]) -> bool {
    let begins = |first: &String| line.to_lowercase().contains(first.get(..3).unwrap_or(first));
    if !word.first().is_some_and(begins) {
        return false;
    }
    let (line, word) = (tokens(line), word.concat());
    (0..line.len()).any(|begin| {
        let mut joined = String::new();
        line[begin..].iter().take(3).any(|token| {
            joined += token;
            joined == word || joined.strip_suffix('s') == Some(&word)
        })
    })
}

/// Words of a text or a name, in lower case.
fn tokens(text: &str) -> Vec<String> {
    let (mut tokens, mut was_lower) = (vec![String::new()], false);
    for c in text.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() && was_lower {
            tokens.push(String::new());
        }
        if let Some(last) = tokens.last_mut().filter(|_| c.is_alphanumeric()) {
            last.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
    }
    tokens.retain(|token| !token.is_empty());
    tokens
}

#[cfg(test)]
mod tests {
    //! Shows what a row must have.
    use super::*;

    fn found(rows: &str) -> Vec<String> {
        let page = format!("# Glossary\n\n| word | meaning | source |\n|---|---|---|\n{rows}");
        let code = "/// Waits for a hand-over.\nstruct AllegedMemory;\nfn returns() {}\n\
                    #[cfg(test)]\nmod tests {\n    // turns\n}\n";
        let findings = check(&Tree::of([(PAGE, page.as_str()), ("core/x/src/a.rs", code)]));
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_word_has_a_source_and_is_used() {
        assert_eq!(
            found("| alleged memory, handover | x | `USlice` of hubris |\n| wait(n) | y | RFC 1 |\n"),
            [""; 0]
        );
        assert_eq!(found("| wait | y | |\n"), ["\"wait\" has no source"]);
        assert_eq!(found("| turn | y | RFC 1 |\n"), ["nothing in the code is called \"turn\""]);
        assert_eq!(
            found("| wait | y | RFC 1 |\n| Handover | y | RFC 1 |\n"),
            ["\"Handover\" behind \"wait\""]
        );
    }
}
