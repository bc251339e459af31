//! Trees of calls: which call was made by the handler of which, over the hosts that were recorded.
//!
//! A call that two hosts recorded is there twice, made and served, and with retries once more for each attempt. The ids
//! of its spans say which belong together: what the caller's host names as parent is what the server's host has as
//! such.

use crate::fleet::{Fleet, FleetCall, FleetTrace};
use std::collections::HashMap;
use trunkline_telemetry::{Component, Coverage, RecordedTrace, Side};

/// The calls of traces, by their numbers in [`Fleet::traces`].
#[derive(Clone, Debug, Default)]
pub struct Trees {
    /// The record above each: of a call made, that of the call its handler serves; of one served or of an attempt, the
    /// call made.
    above: Vec<Option<u32>>,
    /// Calls above each; `None` if not all of them were recorded.
    ancestors: Vec<Option<u16>>,
}

/// When a call was, on the clock of the host that made the first call of its tree, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreePlace {
    /// When it began.
    pub began_ns: i64,
    /// When it ended.
    pub ended_ns: i64,
    /// What was added to its host's clock.
    pub shift_ns: i64,
    /// The first record of its tree.
    pub top: u32,
}

impl TreePlace {
    /// The block whose host's clock this is.
    pub fn block(&self, fleet: &Fleet) -> u32 {
        let call = fleet.traces.get(self.top as usize).map(|top| &fleet.calls[top.call as usize]);
        call.map_or(0, |call| call.block)
    }
}

/// Counts the calls above each call of a trace, where all of them were recorded.
pub fn count_ancestors(fleet: &mut Fleet) {
    let trees = Trees::of(fleet);
    for (number, own) in fleet.traces.iter().enumerate() {
        if let Some(ancestors) = trees.ancestors(number) {
            fleet.calls[own.call as usize].ancestors = Some(ancestors);
        }
    }
}

impl Trees {
    /// The trees of these calls. Ids may be anything: a call that is above itself is in no tree.
    pub fn of(fleet: &Fleet) -> Self {
        let mut spans: HashMap<(u128, u64), u32> = HashMap::with_capacity(2 * fleet.traces.len());
        for (number, own) in fleet.traces.iter().enumerate() {
            let ids = own.trace.ids;
            let named = match side(fleet, own) {
                Side::Made => [ids.span, ids.attempt],
                Side::Served => [ids.span, 0],
                Side::Attempt => [0, ids.attempt],
            };
            for id in named.into_iter().filter(|id| *id != 0) {
                spans.entry((ids.trace, id)).or_insert(number as u32);
            }
        }
        let above = fleet.traces.iter().map(|own| {
            let ids = own.trace.ids;
            let wanted = match side(fleet, own) {
                Side::Attempt => ids.span,
                Side::Made if ids.above != 0 => ids.above,
                _ => ids.parent,
            };
            spans.get(&(ids.trace, wanted)).copied()
        });
        let mut trees = Self { above: above.collect(), ancestors: vec![None; fleet.traces.len()] };
        trees.count(fleet);
        trees
    }

    /// The record above this one.
    pub fn above(&self, number: usize) -> Option<usize> {
        self.above.get(number).copied().flatten().map(|above| above as usize)
    }

    /// How many calls are above this one; `None` if not all of them were recorded.
    pub fn ancestors(&self, number: usize) -> Option<u16> {
        self.ancestors.get(number).copied().flatten()
    }

    /// When each was, on one clock for each tree. Where a call's own stamps do not say, its host's clock is taken for
    /// that of the host above.
    pub fn placed(&self, fleet: &Fleet) -> Vec<TreePlace> {
        let mut placed: Vec<Option<TreePlace>> = vec![None; self.above.len()];
        self.downwards(|number, above| {
            let own = &fleet.traces[number];
            let call = &fleet.calls[own.call as usize];
            let over = above.and_then(|above| placed[above]);
            let shift_ns = match (above, over) {
                (Some(above), Some(over)) => shift_below(fleet, &fleet.traces[above], own, over),
                _ => 0,
            };
            let top = over.map_or(number as u32, |over| over.top);
            let began_ns = (began_ns(call, &own.trace) as i64).saturating_add(shift_ns);
            let total_ns = call.row.components.total_ns() as i64;
            let ended_ns = began_ns.saturating_add(total_ns);
            placed[number] = Some(TreePlace { began_ns, ended_ns, shift_ns, top });
        });
        let nowhere = |number| TreePlace { began_ns: 0, ended_ns: 0, shift_ns: 0, top: number };
        placed.into_iter().zip(0..).map(|(one, number)| one.unwrap_or(nowhere(number))).collect()
    }

    /// Counts upwards from each, once.
    fn count(&mut self, fleet: &Fleet) {
        let mut ancestors: Vec<Option<u16>> = vec![None; self.above.len()];
        self.downwards(|number, above| {
            let own = &fleet.traces[number];
            let is_made = side(fleet, own) == Side::Made;
            ancestors[number] = match above {
                Some(above) => ancestors[above].and_then(|count| count.checked_add(u16::from(is_made))),
                // Nobody's handler made it.
                None => (is_made && own.trace.ids.above == 0).then_some(0),
            };
        });
        self.ancestors = ancestors;
    }

    /// Visits every record behind the one above it, once; those that are above themselves never.
    fn downwards(&self, mut visit: impl FnMut(usize, Option<usize>)) {
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            No,
            OnTheWay,
            Visited,
            InACircle,
        }
        let mut seen = vec![Seen::No; self.above.len()];
        let mut way = Vec::new();
        for from in 0..self.above.len() {
            let mut next = Some(from);
            while let Some(number) = next.filter(|number| seen[*number] == Seen::No) {
                seen[number] = Seen::OnTheWay;
                way.push(number);
                next = self.above(number);
            }
            let is_sound = next.is_none_or(|number| seen[number] == Seen::Visited);
            while let Some(number) = way.pop() {
                seen[number] = if is_sound { Seen::Visited } else { Seen::InACircle };
                if is_sound {
                    visit(number, self.above(number));
                }
            }
        }
    }
}

fn side(fleet: &Fleet, own: &FleetTrace) -> Side {
    fleet.calls[own.call as usize].row.side
}

/// When a call began, on its host's clock.
fn began_ns(call: &FleetCall, trace: &RecordedTrace) -> u64 {
    let first = match call.row.side {
        Side::Made => trace.client.a0,
        Side::Served => trace.server.k7,
        Side::Attempt => trace.client.d2,
    };
    match first.0 {
        0 => call.row.at.0.saturating_sub(call.row.components.total_ns()),
        taken => taken,
    }
}

/// What is to be added to the clock of a record's host.
fn shift_below(fleet: &Fleet, above: &FleetTrace, own: &FleetTrace, over: TreePlace) -> i64 {
    let shift_ns = over.shift_ns;
    let row = &fleet.calls[above.call as usize].row;
    let is_other_host = side(fleet, own) == Side::Served && row.components.coverage == Coverage::Whole;
    let (sent, k7) = (above.trace.client, own.trace.server.k7.0);
    let k6 = if sent.k6.0 == 0 { sent.d4.0 } else { sent.k6.0 };
    if !is_other_host || k6 == 0 || k7 == 0 {
        return shift_ns;
    }
    // The request was there a wire after it left.
    let arrived = i128::from(k6) + i128::from(row.components[Component::RequestWire]);
    i64::try_from(arrived - i128::from(k7)).map_or(shift_ns, |own_ns| own_ns.saturating_add(shift_ns))
}

#[cfg(test)]
pub(crate) mod tests {
    //! Shows a tree over two hosts: who is above whom, and when each was on one clock; and that ids may be anything.
    use super::*;
    use crate::block::RecordBlock;
    use crate::block::tests::block;
    use proptest::prelude::*;
    use trunkline_call::{ClientStamps, Instant, ServerStamps};
    use trunkline_telemetry::CallTrace;

    const TRACE: u128 = 7;
    /// The clock of host b is so far ahead.
    const THETA: u64 = 1_000_000;

    /// The block of a host whose calls are these: side, ids, begin and end on its clock.
    pub(crate) fn host(name: &str, calls: &[(Side, CallTrace, u64, u64)]) -> RecordBlock {
        let mut one = block(name, calls.len() as u64);
        one.head.ended_ns = u64::MAX;
        for (place, (side, ids, began, ended)) in calls.iter().enumerate() {
            one.rows[place].ancestors = None;
            let row = &mut one.rows[place].row;
            (row.side, row.at) = (*side, Instant(*ended));
            row.components.coverage =
                if *side == Side::Served { Coverage::ServerOnly } else { Coverage::Whole };
            row.components.ns = [0; 9];
            // A wire of 10 each way, and the rest is the application's.
            let total = ended - began;
            let wires = if *side == Side::Served || total < 20 { 0 } else { 10 };
            row.components.ns[2] = wires;
            row.components.ns[6] = wires;
            row.components.ns[4] = total - 2 * wires;
            let sent = Instant(*began);
            let client = ClientStamps { a0: sent, d2: sent, d4: sent, k6: sent, ..ClientStamps::default() };
            let server = ServerStamps { k7: sent, ..ServerStamps::default() };
            let trace = match side {
                Side::Served => RecordedTrace { server, ..RecordedTrace::default() },
                _ => RecordedTrace { client, ..RecordedTrace::default() },
            };
            one.traces.push((place as u32, RecordedTrace { ids: *ids, weight: 4.0, ..trace }));
        }
        one
    }

    pub(crate) fn ids(parent: u64, span: u64, attempt: u64, above: u64) -> CallTrace {
        CallTrace { trace: TRACE, parent, span, attempt, above, ..CallTrace::default() }
    }

    /// a calls b, whose handler makes two calls within its host, one of which makes one more.
    pub(crate) fn tree() -> Fleet {
        let mut fleet = Fleet::default();
        fleet.add(host("a", &[(Side::Made, ids(99, 1, 2, 0), 1_000, 2_000)]));
        let at = |ns: u64| THETA + ns;
        fleet.add(host(
            "b",
            &[
                (Side::Made, ids(4, 7, 8, 4), at(1_400), at(1_450)),
                (Side::Served, ids(2, 3, 0, 0), at(1_010), at(1_990)),
                // The application traces itself: its span 50 is between.
                (Side::Made, ids(50, 4, 4, 3), at(1_300), at(1_500)),
                (Side::Made, ids(3, 5, 6, 3), at(1_600), at(1_700)),
                // Nobody recorded who made this one.
                (Side::Served, ids(77, 9, 0, 0), at(0), at(1)),
            ],
        ));
        fleet
    }

    #[test]
    fn calls_are_below_those_whose_handlers_made_them() {
        let fleet = tree();
        let trees = Trees::of(&fleet);
        let above: Vec<_> = (0..6).map(|number| trees.above(number)).collect();
        assert_eq!(above, [None, Some(3), Some(0), Some(2), Some(2), None]);
        let ancestors: Vec<_> = (0..6).map(|number| trees.ancestors(number)).collect();
        assert_eq!(ancestors, [Some(0), Some(2), Some(0), Some(1), Some(1), None]);
        let placed = trees.placed(&fleet);
        let times: Vec<_> = placed.iter().map(|one| (one.began_ns, one.ended_ns)).collect();
        let expected = [(1_000, 2_000), (1_400, 1_450), (1_010, 1_990), (1_300, 1_500), (1_600, 1_700)];
        assert_eq!(times[..5], expected, "on the clock of a");
        let mut linked = tree();
        count_ancestors(&mut linked);
        assert_eq!(linked.calls[1].ancestors, Some(2));
        assert_eq!((linked.tree_weight(&linked.calls[1]), linked.calls[5].ancestors), (4.0, None));
    }

    #[test]
    fn attempts_are_below_their_call() {
        let mut fleet = Fleet::default();
        let attempts = [
            (Side::Attempt, ids(0, 1, 11, 0), 10, 20),
            (Side::Made, ids(0, 1, 0, 0), 10, 90),
            (Side::Attempt, ids(0, 1, 12, 0), 30, 80),
        ];
        fleet.add(host("a", &attempts));
        fleet.add(host("b", &[(Side::Served, ids(12, 3, 0, 0), 40, 70)]));
        let trees = Trees::of(&fleet);
        let above: Vec<_> = (0..4).map(|number| trees.above(number)).collect();
        assert_eq!(above, [Some(1), None, Some(1), Some(2)]);
        assert!((0..4).all(|number| trees.ancestors(number) == Some(0)));
    }

    proptest! {
        #[test]
        fn ids_may_be_anything(
            calls in prop::collection::vec((0..3_usize, 0..6_u64, 1..6_u64, 0..6_u64, 0..6_u64), 1..40),
        ) {
            let calls: Vec<_> = calls
                .iter()
                .map(|(side, parent, span, attempt, above)| {
                    (Side::ALL[*side], ids(*parent, *span, *attempt, *above), 10, 50)
                })
                .collect();
            let mut fleet = Fleet::default();
            fleet.add(host("a", &calls));
            let trees = Trees::of(&fleet);
            prop_assert_eq!(trees.placed(&fleet).len(), calls.len());
            for number in 0..calls.len() {
                if let Some(ancestors) = trees.ancestors(number) {
                    prop_assert!(usize::from(ancestors) < calls.len());
                }
            }
        }
    }
}
