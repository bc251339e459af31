//! A package's `lib.rs` is an essay and a table of contents; every other file says what it is.

use crate::packages::{Layer, Package};
use crate::source::Source;
use crate::{Finding, Tree};

const RULE: &str = "essay";

/// Lines of `//!` a `lib.rs` opens with at least: what the package does, what it does not know, the way of the data,
/// its invariants, its limits cannot be said in fewer.
pub const LINES_MIN: usize = 12;

/// Checks `lib.rs` of every package, and the first line of every other source.
pub fn check(tree: &Tree, packages: &[Package<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages.iter().filter(|package| package.layer < Layer::Top) {
        let path = package.path("src/lib.rs");
        let Some(source) = tree.sources.get(&path) else { continue };
        let lines = opening(source);
        if lines < LINES_MIN {
            findings.push(Finding {
                path: path.clone(),
                line: 1,
                rule: RULE,
                what: format!("the package's essay has {lines} lines"),
                instead: format!(
                    "say in {LINES_MIN} or more what it does and does not know, the way of the data, invariants, limits"
                ),
            });
        }
        findings.extend(logic(&path, source));
        let src = package.path("src/");
        let silent =
            tree.sources.iter().filter(|(path, source)| path.starts_with(&src) && opening(source) == 0);
        findings.extend(silent.filter(|(other, _)| **other != path).map(|(path, _)| Finding {
            path: path.clone(),
            line: 1,
            rule: RULE,
            what: "the file does not say what it is".into(),
            instead: "open with a `//!` line".into(),
        }));
    }
    findings
}

/// The first function body in a `lib.rs`.
fn logic(path: &str, source: &Source) -> Option<Finding> {
    let function = source.functions.iter().find(|function| !source.is_test[function.first])?;
    Some(Finding {
        path: path.to_owned(),
        line: function.first + 1,
        rule: RULE,
        what: format!("lib.rs holds logic: fn {}", function.name),
        instead: "move it to a file named after what it does; lib.rs has `mod` and `pub use`".into(),
    })
}

/// Lines of `//!` a file opens with.
fn opening(source: &Source) -> usize {
    source.lines.iter().take_while(|line| line.trim_start().starts_with("//!")).count()
}

#[cfg(test)]
mod tests {
    //! Shows what an essay must be.
    use super::*;

    fn found(lib: &str, other: &str) -> usize {
        let manifest = "[package]\nname = \"a\"\n";
        let tree = Tree::of([
            ("core/a/Cargo.toml", manifest),
            ("core/a/src/lib.rs", lib),
            ("core/a/src/x.rs", other),
        ]);
        check(&tree, &Package::all(&tree)).len()
    }

    #[test]
    fn twelve_lines_and_no_logic() {
        let essay = "//! word\n".repeat(LINES_MIN);
        assert_eq!(found(&format!("{essay}mod x;\n"), "//! What it is.\n"), 0);
        assert_eq!(found(&essay[9..], "//! What it is.\n"), 1);
        assert_eq!(found(&format!("{essay}pub fn f() {{}}\n"), "//! What it is.\n"), 1);
        assert_eq!(found(&essay, "fn f() {}\n"), 1);
    }
}
