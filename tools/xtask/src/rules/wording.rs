//! What no file of ours says: unfinished business, tests that do not run, lines no screen holds.

use crate::{Finding, Tree};

const RULE: &str = "wording";

/// Longest line, in characters.
pub const LINE_CHARS_MAX: usize = 120;

const FORBIDDEN: [(&str, &str); 4] = [
    ("todo!", "finish it, or leave the branch out and say so in the document"),
    ("unimplemented!", "return a typed error, or leave it out"),
    ("dbg!", "take it out"),
    ("#[ignore", "make the test fast and sure enough to run, or take it out"),
];

/// Checks every Rust file, tests too.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in &tree.sources {
        for (at, (line, code)) in source.lines.iter().zip(&source.code).enumerate() {
            let mut found = |what: String, instead: &str| {
                findings.push(Finding {
                    path: path.clone(),
                    line: at + 1,
                    rule: RULE,
                    what,
                    instead: instead.into(),
                });
            };
            for (word, instead) in FORBIDDEN.iter().filter(|(word, _)| says(code, word)) {
                found(format!("`{word}`"), instead);
            }
            let width = line.chars().count();
            if width > LINE_CHARS_MAX {
                found(format!("line of {width} characters"), "break it at 120 or before");
            }
        }
    }
    findings
}

fn says(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    //! Shows what is found, and that words in comments and strings are not.
    use super::*;

    #[test]
    fn unfinished_business_is_found() {
        let found = |text: &str| check(&Tree::of([("core/a/src/x.rs", text)])).len();
        assert_eq!(
            found(
                "fn f() { todo!() }\n#[test]\n#[ignore = \"slow\"]\nfn g() { dbg!(1); unimplemented!() }\n"
            ),
            4
        );
        assert_eq!(found("// todo! later\nlet s = \"dbg!\";\nmy_todo!();\n"), 0);
        assert_eq!(found(&"x".repeat(121)), 1);
        assert_eq!(found(&"é".repeat(120)), 0);
    }
}
