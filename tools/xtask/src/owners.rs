//! Whose the instructions of a run are: callgrind's output, summed up by the module a function is of.

use std::collections::{BTreeMap, HashMap};

/// Instructions by owner: a module of the workspace, a crate from elsewhere, or the C library. What was inlined counts
/// with the function it became a part of.
pub fn shares(callgrind: &str) -> BTreeMap<String, u64> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut shares: BTreeMap<String, u64> = BTreeMap::new();
    let (mut owner, mut is_call) = (String::new(), false);
    for line in callgrind.lines() {
        let named = line.strip_prefix("fn=").map(|name| (name, true));
        if let Some((name, is_own)) = named.or_else(|| Some((line.strip_prefix("cfn=")?, false))) {
            // A name is written once, behind a number that stands for it from then on.
            let (number, name) = name.split_once(' ').unwrap_or((name, ""));
            if !name.is_empty() {
                names.insert(number, name);
            }
            if is_own {
                owner = owner_of(names.get(number).copied().unwrap_or_default());
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some(count) = cost(line) {
            // What follows a call is the callee's.
            if !std::mem::take(&mut is_call) {
                *shares.entry(owner.clone()).or_default() += count;
            }
        }
    }
    shares
}

/// The instructions of a line of costs: a position, which may be relative, and a number.
fn cost(line: &str) -> Option<u64> {
    let (position, count) = line.split_once(' ')?;
    let is_position = position.trim_start_matches(['+', '-', '*']).chars().all(|c| c.is_ascii_digit());
    if is_position { count.parse().ok() } else { None }
}

fn owner_of(function: &str) -> String {
    let path = function.trim_start_matches(['<', '&', '[']).trim_start_matches("dyn ");
    let mut parts = path.split("::").map(|part| part.split(['<', ' ', '>']).next().unwrap_or_default());
    let (Some(first), Some(second)) = (parts.next(), parts.next()) else { return "C library".to_owned() };
    let is_module = second.starts_with(|c: char| c.is_ascii_lowercase()) && parts.next().is_some();
    if first.starts_with("trunkline") && is_module { format!("{first}::{second}") } else { first.to_owned() }
}

#[cfg(test)]
mod tests {
    //! Shows whose instructions are whose.
    use super::*;

    #[test]
    fn what_a_function_takes_is_its_modules_and_what_it_calls_is_not() {
        let said = "events: Ir\nsummary: 99\n\nfl=(1) pass.rs\nfn=(1) trunkline_engine::pass::<impl Engine>::pass_on\n\
                    16 400\n+3 2\ncfn=(2) <trunkline_engine::table::Table<T> as X>::find\ncalls=1 7 \n+1 50\n* 3\n\
                    fn=(2)\n7 50\nfn=(3) malloc\n1 9\nfn=(4) core::ptr::drop_in_place<trunkline_engine::call::Call>\n\
                    1 1\nfn=(1)\n20 5\n";
        let shares: Vec<_> = shares(said).into_iter().collect();
        let expected =
            [("C library", 9), ("core", 1), ("trunkline_engine::pass", 410), ("trunkline_engine::table", 50)];
        assert_eq!(shares, expected.map(|(owner, count)| (owner.to_owned(), count)));
    }
}
