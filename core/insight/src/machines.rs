//! What a machine's processors did counts once, however many of its daemons were recorded meanwhile.

use crate::block::BlockHead;
use std::collections::BTreeMap;

/// Of each block, the part of its time in which no other one tells of the same processors: the first to begin has it.
/// `whose` they are is not known of every block; such a one has all of its time.
pub fn own_parts<'b, K: Ord>(heads: &'b [BlockHead], whose: impl Fn(&'b BlockHead) -> Option<K>) -> Vec<f64> {
    let mut found: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (block, head) in heads.iter().enumerate() {
        if let Some(key) = whose(head) {
            found.entry(key).or_default().push(block);
        }
    }
    let mut parts = vec![1.0; heads.len()];
    for mut blocks in found.into_values() {
        blocks.sort_by_key(|block| time(&heads[*block]));
        let mut told = 0;
        for block in blocks {
            let (began, ended) = time(&heads[block]);
            let own = ended.saturating_sub(told.max(began));
            parts[block] = if ended > began { own as f64 / (ended - began) as f64 } else { 0.0 };
            told = told.max(ended);
        }
    }
    parts
}

/// Which machine's the processors of a block are, if it says so.
pub fn machine(head: &BlockHead) -> Option<&str> {
    Some(head.boot_id.as_str()).filter(|id| !id.is_empty())
}

/// Beginning and end of a block on the wall clock, in nanoseconds: machines' monotonic clocks differ between time
/// namespaces.
fn time(head: &BlockHead) -> (u128, u128) {
    let began = u128::from(head.began_unix_ms) * 1_000_000 + u128::from(head.began_unix_ns);
    (began, began + u128::from(head.ended_ns.saturating_sub(head.began_ns)))
}

#[cfg(test)]
mod tests {
    //! Shows which block tells of which time.
    use super::*;

    #[test]
    fn a_time_is_told_of_once_for_each_machine() {
        let head = |machine: &str, began_ms: u64, ms: u64| BlockHead {
            boot_id: machine.into(),
            began_unix_ms: began_ms,
            ended_ns: ms * 1_000_000,
            ..BlockHead::default()
        };
        // Two daemons of a machine whose blocks begin at other times, one of another, and one that does not say.
        let heads = [
            head("a", 1_000, 100),
            head("a", 1_100, 100),
            head("a", 1_050, 100),
            head("a", 1_150, 100),
            head("a", 1_060, 20),
            head("b", 1_000, 100),
            head("", 1_000, 100),
            head("", 1_000, 100),
        ];
        let parts = own_parts(&heads, machine);
        assert_eq!(parts, [1.0, 0.5, 0.5, 0.5, 0.0, 1.0, 1.0, 1.0]);
        let all_ms: f64 =
            heads.iter().zip(&parts).take(5).map(|(head, part)| part * head.ended_ns as f64).sum();
        assert_eq!(all_ms, 250e6);
    }
}
