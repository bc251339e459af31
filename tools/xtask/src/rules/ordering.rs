//! In the lock-free packages, an ordering other than `Relaxed` names its partner.

use crate::source::words;
use crate::{Finding, Tree};

/// Packages whose threads meet in memory without a lock.
const PACKAGES: [&str; 2] = ["host/shm/src/", "core/share/src/"];
const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

/// Looks for orderings in code that is not a test or an import.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in
        tree.sources.iter().filter(|(path, _)| PACKAGES.iter().any(|package| path.starts_with(package)))
    {
        for (line, code) in source.code_lines() {
            let named = ORDERINGS
                .iter()
                .find(|ordering| words(code, ordering).any(|at| code[..at].ends_with("Ordering::")));
            if let Some(ordering) = named.filter(|_| !source.has_comment_above(line, "SYNC:")) {
                findings.push(Finding {
                    path: path.clone(),
                    line: line + 1,
                    rule: "ordering",
                    what: format!("{ordering} without its partner"),
                    instead: "write `// SYNC: pairs with <the other side>` right above the statement".into(),
                });
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    //! Shows where a partner must be named.
    use super::*;

    #[test]
    fn an_ordering_names_its_partner() {
        let found = |text: &str| check(&Tree::of([("host/shm/src/x.rs", text)])).len();
        assert_eq!(found("fn f() {\n    x.store(1, Ordering::Release);\n}\n"), 1);
        assert_eq!(
            found(
                "fn f() {\n    // SYNC: pairs with the load in g\n    x\n        .store(1, Ordering::Release);\n}\n"
            ),
            0
        );
        assert_eq!(found("x.store(1, Ordering::Relaxed);\nuse Entry::Release;\n"), 0);
        assert_eq!(found("#[cfg(test)]\nmod tests { fn f() { x.load(Ordering::SeqCst) } }\n"), 0);
    }
}
