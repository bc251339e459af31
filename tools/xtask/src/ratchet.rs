//! What a rule tolerates where it was broken before it came: listed with its amount, and only ever less.

use crate::{Finding, Tree};
use std::collections::BTreeMap;
use toml::Table;

/// Where it is listed: a table for each measure.
pub const PATH: &str = "tools/xtask/ratchet.toml";

/// Something that is counted and has a maximum.
#[derive(Debug)]
pub struct Measure {
    /// The name of its table.
    pub table: &'static str,
    /// The rule it belongs to.
    pub rule: &'static str,
    /// What is counted: `lines`.
    pub unit: &'static str,
    /// The most there may be without an entry.
    pub max: usize,
    /// What to do instead.
    pub instead: &'static str,
    /// What is beyond the maximum now.
    pub found: BTreeMap<String, Found>,
}

/// One place beyond the maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where a reader looks first.
    pub path: String,
    /// From 0.
    pub line: usize,
    /// How much it is.
    pub amount: usize,
}

impl Measure {
    /// Holds what was found to its entries.
    pub fn check(&self, tree: &Tree) -> Vec<Finding> {
        let ratchet = read(tree);
        let listed = ratchet.get(self.table).and_then(|table| table.as_table());
        let allowed = |place: &str| {
            listed.and_then(|table| table.get(place)?.as_integer()).and_then(|n| usize::try_from(n).ok())
        };
        let mut findings: Vec<_> =
            self.found.iter().filter_map(|(place, found)| self.judge(place, found, allowed(place))).collect();
        let gone = listed.into_iter().flat_map(Table::keys).filter(|place| !self.found.contains_key(*place));
        findings.extend(gone.map(|place| {
            self.entry(
                format!("{place} needs no entry any more"),
                "take it out (cargo xtask tidy --update does)".into(),
            )
        }));
        findings
    }

    fn judge(&self, place: &str, found: &Found, allowed: Option<usize>) -> Option<Finding> {
        let (amount, unit) = (found.amount, self.unit);
        let broken = |what, instead: &str| {
            let (path, line) = (found.path.clone(), found.line + 1);
            Some(Finding { path, line, rule: self.rule, what, instead: instead.into() })
        };
        match allowed {
            None => broken(format!("{place} has {amount} {unit}, more than {}", self.max), self.instead),
            Some(allowed) if amount > allowed => {
                broken(format!("{place} grew from {allowed} to {amount} {unit}"), "it may only shrink")
            }
            Some(allowed) if amount < allowed => {
                let what = format!("{place} shrank from {allowed} to {amount} {unit}");
                let instead = format!("lower the ratchet to {amount} (cargo xtask tidy --update does)");
                Some(self.entry(what, instead))
            }
            Some(_) => None,
        }
    }

    fn entry(&self, what: String, instead: String) -> Finding {
        Finding { path: PATH.into(), line: 0, rule: self.rule, what, instead }
    }
}

/// The ratchet with every entry lowered to what the code is now, and without those that are not needed; `None` if
/// nothing changes. Entries are never raised or added. Comments above entries stay.
pub fn lowered(tree: &Tree, measures: &[Measure]) -> Option<String> {
    let text = tree.manifests.get(PATH)?;
    let (mut out, mut table) = (String::new(), "");
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = name;
        }
        let entry = line.split_once('=').filter(|_| !line.starts_with('#'));
        let entry = entry.map(|(place, n)| (place.trim().trim_matches('"'), n.trim().parse::<usize>()));
        match entry {
            Some((place, Ok(allowed))) => {
                let measure = measures.iter().find(|measure| measure.table == table);
                if let Some(found) = measure.and_then(|measure| measure.found.get(place)) {
                    out.push_str(&format!("\"{place}\" = {}\n", allowed.min(found.amount)));
                }
            }
            _ => out.push_str(&format!("{line}\n")),
        }
    }
    (out != *text).then_some(out)
}

fn read(tree: &Tree) -> Table {
    tree.manifests.get(PATH).and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    //! Shows that entries only shrink, and that the update lowers and never raises.
    use super::*;

    fn measure(amount: Option<usize>) -> Measure {
        let found = amount.map(|amount| ("x".to_owned(), Found { path: "x.rs".into(), line: 4, amount }));
        let (rule, unit, instead) = ("size", "lines", "cut it");
        Measure { table: "files", rule, unit, max: 70, instead, found: found.into_iter().collect() }
    }

    fn tree(entry: Option<usize>) -> Tree {
        let entry = entry.map_or(String::new(), |amount| format!("\"x\" = {amount}\n"));
        Tree::of([(PATH, format!("# why = 3\n[other]\n[files]\n{entry}"))])
    }

    #[test]
    fn what_is_beyond_the_maximum_fails_unless_listed_with_its_amount() {
        for (amount, entry, said) in [
            (None, None, None),
            (Some(71), None, Some("x has 71 lines, more than 70")),
            (Some(71), Some(71), None),
            (Some(72), Some(71), Some("x grew from 71 to 72 lines")),
            (Some(71), Some(80), Some("x shrank from 80 to 71 lines")),
            (None, Some(80), Some("x needs no entry any more")),
        ] {
            let findings = measure(amount).check(&tree(entry));
            assert_eq!(findings.first().map(|finding| finding.what.as_str()), said, "{amount:?} {entry:?}");
        }
    }

    #[test]
    fn the_update_lowers_and_never_raises() {
        let after = |amount, entry| lowered(&tree(Some(entry)), &[measure(amount)]);
        assert_eq!(after(Some(75), 90).as_deref(), Some("# why = 3\n[other]\n[files]\n\"x\" = 75\n"));
        assert_eq!(after(Some(95), 90), None);
        assert_eq!(after(None, 90).as_deref(), Some("# why = 3\n[other]\n[files]\n"));
    }
}
