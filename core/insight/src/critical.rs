//! Whole trees, and what of their completion time each call accounts for.

use crate::fleet::Fleet;
use crate::trees::{TreePlace, Trees};
use std::collections::BTreeMap;
use trunkline_telemetry::Side;

/// A tree whose first call was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeTree {
    /// Its calls: each behind the one above it, those beside each other in the order of their begin.
    pub calls: Vec<TreeCall>,
}

/// A call of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeCall {
    /// Its number in [`Fleet::traces`].
    pub trace: u32,
    /// Calls above it.
    pub depth: u16,
    /// When it was.
    pub placed: TreePlace,
    /// The part of the tree's completion time in which nothing below it was waited for. The sum over all calls is the
    /// tree's completion time.
    pub critical_ns: u64,
}

impl WholeTree {
    /// All trees of these calls, slowest first.
    pub fn all(fleet: &Fleet) -> Vec<Self> {
        let trees = Trees::of(fleet);
        let placed = trees.placed(fleet);
        let is_made = |number: usize| {
            let call = fleet.traces[number].call;
            fleet.calls[call as usize].row.side == Side::Made
        };
        let mut below: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut tops = Vec::new();
        for number in (0..placed.len()).filter(|number| is_made(*number)) {
            match (trees.ancestors(number), made_above(&trees, number, is_made)) {
                (Some(0), _) => tops.push(number),
                (Some(_), Some(above)) => below.entry(above).or_default().push(number),
                _ => {}
            }
        }
        below.values_mut().for_each(|calls| calls.sort_by_key(|number| placed[*number].began_ns));
        let mut all: Vec<Self> = tops.into_iter().map(|top| Self::of(top, &placed, &below)).collect();
        all.sort_by_key(|tree| std::cmp::Reverse(tree.total_ns()));
        all
    }

    /// Completion time of its first call.
    pub fn total_ns(&self) -> u64 {
        self.calls.first().map_or(0, |top| ns(top.placed.began_ns, top.placed.ended_ns))
    }

    fn of(top: usize, placed: &[TreePlace], below: &BTreeMap<usize, Vec<usize>>) -> Self {
        let critical = critical_path(top, placed, below);
        let (mut calls, mut rest) = (Vec::new(), vec![(top, 0_u16)]);
        while let Some((number, depth)) = rest.pop() {
            let critical_ns = critical.get(&number).copied().unwrap_or(0);
            calls.push(TreeCall { trace: number as u32, depth, placed: placed[number], critical_ns });
            let inner = below.get(&number).map(Vec::as_slice).unwrap_or_default();
            rest.extend(inner.iter().rev().map(|inner| (*inner, depth.saturating_add(1))));
        }
        Self { calls }
    }
}

/// The made call whose handler makes this one: behind it are at most an attempt and what its host recorded.
fn made_above(trees: &Trees, number: usize, is_made: impl Fn(usize) -> bool) -> Option<usize> {
    const BETWEEN_MAX: usize = 3;
    let above = std::iter::successors(trees.above(number), |above| trees.above(*above));
    above.take(BETWEEN_MAX).find(|above| is_made(*above))
}

/// Backwards from the end: the call below that ended last was waited for until then, and so on.
fn critical_path(
    top: usize,
    placed: &[TreePlace],
    below: &BTreeMap<usize, Vec<usize>>,
) -> BTreeMap<usize, u64> {
    let mut critical: BTreeMap<usize, u64> = BTreeMap::new();
    let mut windows = vec![(top, placed[top].began_ns, placed[top].ended_ns)];
    while let Some((number, from, to)) = windows.pop() {
        let mut inner = below.get(&number).cloned().unwrap_or_default();
        inner.sort_by_key(|inner| std::cmp::Reverse(placed[*inner].ended_ns));
        let (mut at, mut own_ns) = (to, 0);
        for inner in inner {
            // Clocks are known to within a bound only: what sticks out is cut off.
            let (began, ended) = (placed[inner].began_ns.max(from), placed[inner].ended_ns.min(to));
            if began < ended && ended <= at {
                own_ns += ns(ended, at);
                windows.push((inner, began, ended));
                at = began;
            }
        }
        *critical.entry(number).or_default() += own_ns + ns(from, at);
    }
    critical
}

fn ns(from: i64, to: i64) -> u64 {
    u64::try_from(to.saturating_sub(from)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    //! Shows a tree and its critical path by hand.
    use super::*;
    use crate::trees::tests::{host, ids, tree};
    use trunkline_telemetry::CallTrace;

    #[test]
    fn each_call_accounts_for_what_was_not_waited_for_below_it() {
        let all = WholeTree::all(&tree());
        let [tree] = &all[..] else { panic!("{all:?}") };
        let calls: Vec<_> =
            tree.calls.iter().map(|call| (call.trace, call.depth, call.critical_ns)).collect();
        // 1000…2000, below it 1300…1500 (in which 1400…1450) and 1600…1700.
        assert_eq!(calls, [(0, 0, 700), (3, 1, 150), (1, 2, 50), (4, 1, 100)]);
        assert_eq!(tree.total_ns(), 1_000);
    }

    #[test]
    fn of_two_at_once_the_one_that_ends_last_is_waited_for() {
        let made =
            |span: u64, above: u64, from: u64, to: u64| (Side::Made, ids(above, span, span, above), from, to);
        let mut fleet = Fleet::default();
        fleet.add(host(
            "a",
            &[made(1, 0, 0, 100), made(2, 1, 10, 60), made(3, 1, 20, 90), made(4, 1, 95, 180)],
        ));
        let all = WholeTree::all(&fleet);
        let calls: Vec<_> = all[0].calls.iter().map(|call| (call.trace, call.critical_ns)).collect();
        // The last sticks out of its parent, and ends with it.
        assert_eq!(calls, [(0, 100 - 5 - 70), (1, 0), (2, 70), (3, 5)]);
        let lost = CallTrace { above: 9, ..ids(9, 5, 6, 9) };
        fleet.add(host("b", &[(Side::Made, lost, 0, 10)]));
        assert_eq!(WholeTree::all(&fleet).len(), 1, "the tree of a call that is not there is not whole");
    }
}
