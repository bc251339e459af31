//! Functions and files stay of a size to be read, and what was too long only gets shorter.

use crate::{Finding, Tree};
use std::collections::BTreeMap;
use toml::Table;

const RULE: &str = "size";

/// Longest function, from `fn` to its closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Longest file, tests not counted.
pub const FILE_LINES_MAX: usize = 600;
/// Where what is longer is listed.
pub const RATCHET: &str = "tools/xtask/ratchet.toml";

/// Lengths of what is too long, by place: a path, or `path::function`.
type Lengths = BTreeMap<String, (usize, usize)>;

/// Holds what is too long to its entry in the ratchet.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let ratchet = ratchet(tree);
    let mut findings = Vec::new();
    for (kind, max, found) in too_long(tree) {
        let listed = ratchet.get(kind).and_then(|table| table.as_table());
        let allowed = |place: &str| {
            listed.and_then(|table| table.get(place)?.as_integer()).and_then(|n| usize::try_from(n).ok())
        };
        for (place, (line, lines)) in &found {
            findings.extend(judge(place, *line, *lines, max, allowed(place)));
        }
        let gone = listed.into_iter().flat_map(Table::keys).filter(|place| !found.contains_key(*place));
        findings.extend(gone.map(|place| {
            entry(
                place,
                format!("{place} is no longer too long"),
                "take the entry out (cargo xtask tidy --update does)".into(),
            )
        }));
    }
    findings
}

/// The ratchet with every entry lowered to what the code is now and what is short enough taken out; `None` if nothing
/// changes. Entries are never raised or added. Comments above entries stay.
pub fn lowered(tree: &Tree) -> Option<String> {
    let text = tree.manifests.get(RATCHET)?;
    let now: Lengths = too_long(tree).into_iter().flat_map(|(_, _, found)| found).collect();
    let mut out = String::new();
    for line in text.lines() {
        let entry = line
            .split_once('=')
            .map(|(place, n)| (place.trim().trim_matches('"').to_owned(), n.trim().parse::<usize>()));
        match entry {
            Some((place, Ok(allowed))) => {
                if let Some((_, lines)) = now.get(&place) {
                    out.push_str(&format!("\"{place}\" = {}\n", allowed.min(*lines)));
                }
            }
            _ => out.push_str(&format!("{line}\n")),
        }
    }
    (out != *text).then_some(out)
}

fn judge(place: &str, line: usize, lines: usize, max: usize, allowed: Option<usize>) -> Option<Finding> {
    let path = place.split("::").next().unwrap_or(place).to_owned();
    let found =
        |what, instead| Some(Finding { path: path.clone(), line: line + 1, rule: RULE, what, instead });
    match allowed {
        None => found(
            format!("{place} has {lines} lines, more than {max}"),
            "cut it where the parent decides and a part computes".into(),
        ),
        Some(allowed) if lines > allowed => found(
            format!("{place} grew from {allowed} to {lines} lines"),
            "it may only shrink: cut it".into(),
        ),
        Some(allowed) if lines < allowed => {
            let what = format!("{place} shrank from {allowed} to {lines} lines");
            Some(entry(place, what, format!("lower the ratchet to {lines} (cargo xtask tidy --update does)")))
        }
        Some(_) => None,
    }
}

fn entry(place: &str, what: String, instead: String) -> Finding {
    let _ = place;
    Finding { path: RATCHET.into(), line: 0, rule: RULE, what, instead }
}

fn ratchet(tree: &Tree) -> Table {
    tree.manifests.get(RATCHET).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// What is too long now, per kind: (name of its table in the ratchet, limit, lengths).
fn too_long(tree: &Tree) -> [(&'static str, usize, Lengths); 2] {
    let (mut functions, mut files) = (Lengths::new(), Lengths::new());
    for (path, source) in &tree.sources {
        let lines = source.is_test.iter().filter(|test| !**test).count();
        if lines > FILE_LINES_MAX {
            files.insert(path.clone(), (0, lines));
        }
        for function in source.functions.iter().filter(|function| !source.is_test[function.first]) {
            let lines = function.last - function.first + 1;
            if lines > FUNCTION_LINES_MAX {
                let place = format!("{path}::{}", function.name);
                let longest = functions.entry(place).or_insert((function.first, lines));
                *longest = (*longest).max((function.first, lines));
            }
        }
    }
    [("functions", FUNCTION_LINES_MAX, functions), ("files", FILE_LINES_MAX, files)]
}

#[cfg(test)]
mod tests {
    //! Shows that entries only shrink, and that the update lowers and never raises.
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    fn tree(source: &str, ratchet: &str) -> Tree {
        Tree::of([("core/a/src/x.rs", source), (RATCHET, ratchet)])
    }

    fn entry_of(lines: usize) -> String {
        format!("# why\n[functions]\n\"core/a/src/x.rs::f\" = {lines}\n")
    }

    #[test]
    fn long_functions_fail_unless_listed_at_their_length() {
        assert_eq!(check(&tree(&function(70), "")), []);
        assert_eq!(check(&tree(&function(71), "")).len(), 1);
        assert_eq!(check(&tree(&function(71), &entry_of(71))), []);
        assert!(check(&tree(&function(72), &entry_of(71)))[0].what.contains("grew"));
        assert!(check(&tree(&function(71), &entry_of(80)))[0].instead.starts_with("lower the ratchet to 71"));
        assert!(check(&tree(&function(70), &entry_of(80)))[0].what.contains("no longer"));
    }

    #[test]
    fn long_files_fail_without_their_tests() {
        let body = "fn g() {}\n".repeat(600);
        assert_eq!(check(&tree(&format!("{body}#[cfg(test)]\nmod tests {{\n{body}}}\n"), "")), []);
        assert_eq!(check(&tree(&format!("{body}fn h() {{}}\n"), "")).len(), 1);
    }

    #[test]
    fn the_update_lowers_and_never_raises() {
        assert_eq!(lowered(&tree(&function(75), &entry_of(90))), Some(entry_of(75)));
        assert_eq!(lowered(&tree(&function(95), &entry_of(90))), None);
        assert_eq!(lowered(&tree(&function(9), &entry_of(90))), Some("# why\n[functions]\n".into()));
    }
}
