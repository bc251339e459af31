//! Functions and files stay of a size to be read. Marks of a call's life do not count: they are where others put them.

use crate::ratchet::{Found, Measure};
use crate::{Tree, life};
use std::collections::BTreeMap;

const RULE: &str = "size";

/// Longest function, from `fn` to its closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Longest file, tests not counted.
pub const FILE_LINES_MAX: usize = 600;

/// What is too long now: functions by `path::name`, and files.
pub fn measures(tree: &Tree) -> [Measure; 2] {
    let (mut functions, mut files) = (BTreeMap::new(), BTreeMap::new());
    for (path, source) in &tree.sources {
        let found = |line, amount| Found { path: path.clone(), line, amount };
        let counted =
            |(line, is_test): &(&String, &bool)| !**is_test && !line.trim_start().starts_with(life::MARK);
        let lines = source.lines.iter().zip(&source.is_test).filter(counted).count();
        if lines > FILE_LINES_MAX {
            files.insert(path.clone(), found(0, lines));
        }
        for function in source.functions.iter().filter(|function| !source.is_test[function.first]) {
            let lines = function.last - function.first + 1;
            if lines > FUNCTION_LINES_MAX {
                let longest = functions.entry(format!("{path}::{}", function.name));
                let longest = longest.or_insert_with(|| found(function.first, lines));
                if lines > longest.amount {
                    *longest = found(function.first, lines);
                }
            }
        }
    }
    let measure = |table, max, found| Measure {
        table,
        rule: RULE,
        unit: "lines",
        max,
        instead: "cut it where the parent decides and a part computes",
        found,
    };
    [measure("functions", FUNCTION_LINES_MAX, functions), measure("files", FILE_LINES_MAX, files)]
}

#[cfg(test)]
mod tests {
    //! Shows what is too long.
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    fn found(source: &str) -> Vec<(String, usize)> {
        let tree = Tree::of([("core/a/src/x.rs", source)]);
        let found = measures(&tree).into_iter().flat_map(|measure| measure.found);
        found.map(|(place, found)| (place, found.amount)).collect()
    }

    #[test]
    fn long_functions_are_found() {
        assert_eq!(found(&function(70)), []);
        assert_eq!(found(&function(71)), [("core/a/src/x.rs::f".to_owned(), 71)]);
        assert_eq!(found(&(function(71) + &function(90))), [("core/a/src/x.rs::f".to_owned(), 90)]);
    }

    #[test]
    fn long_files_are_found_without_their_tests() {
        let body = "fn g() {}\n".repeat(600);
        assert_eq!(found(&format!("{body}#[cfg(test)]\nmod tests {{\n{body}}}\n")), []);
        assert_eq!(found(&format!("{body}// LIFE: 1\n")), []);
        assert_eq!(found(&format!("{body}fn h() {{}}\n")), [("core/a/src/x.rs".to_owned(), 601)]);
    }
}
