//! Which calls of two fleets are compared: of one method the same side's in both.
//!
//! A call that was made has all its time, one that was served the server's part of it. What a method's calls are in one
//! recording depends on which hosts were recorded; held against each other, the two would differ by a network.

use crate::fleet::{Fleet, FleetCall, heavier_side, is_good, is_whole};
use std::collections::BTreeMap;
use trunkline_telemetry::Side;
use trunkline_telemetry::render::count;

/// Methods that are named one by one.
const NAMED_MAX: usize = 5;

/// The side of each method's calls that both fleets have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommonSides {
    sides: BTreeMap<String, Side>,
    /// Methods of which one fleet has calls that were made, and the other such as were served.
    apart: Vec<String>,
    /// Methods that one fleet alone has: the first, and the second.
    alone: [Vec<String>; 2],
}

impl CommonSides {
    /// Of methods whose path contains this.
    pub fn of(before: &Fleet, after: &Fleet, method: &str) -> Self {
        let mut weights: BTreeMap<&str, [Option<[f64; 2]>; 2]> = BTreeMap::new();
        for (place, fleet) in [before, after].into_iter().enumerate() {
            let sides = fleet.side_weights(|call| is_good(call) && is_whole(call));
            for (name, sides) in fleet.methods.iter().zip(sides) {
                if name.contains(method) && sides != [0.0; 2] {
                    weights.entry(name).or_default()[place] = Some(sides);
                }
            }
        }
        let mut common = Self::default();
        for (name, found) in weights {
            let sides: [f64; 2] = match found {
                [Some(one), Some(other)] => std::array::from_fn(|side| one[side].min(other[side])),
                [one, _] => {
                    common.alone[usize::from(one.is_none())].push(name.to_owned());
                    continue;
                }
            };
            match sides == [0.0; 2] {
                true => common.apart.push(name.to_owned()),
                false => drop(common.sides.insert(name.to_owned(), heavier_side(sides))),
            }
        }
        common
    }

    /// The calls of one of them that ended well, and in which every component there is was measured.
    pub fn calls<'a>(&self, fleet: &'a Fleet) -> Vec<&'a FleetCall> {
        let sides: Vec<Option<Side>> =
            fleet.methods.iter().map(|name| self.sides.get(name).copied()).collect();
        let is_looked_at = |call: &&FleetCall| sides[call.method as usize] == Some(call.row.side);
        fleet.each_once().filter(is_looked_at).filter(|call| is_good(call) && is_whole(call)).collect()
    }

    /// What is compared, in words.
    pub fn words(&self) -> String {
        let methods = |side: Side| self.sides.values().filter(|other| **other == side).count();
        let compared = match (methods(Side::Made), methods(Side::Served)) {
            (_, 0) => "whole calls, as hosts made them".to_owned(),
            (0, _) => "the server's part of calls".to_owned(),
            (made, served) => {
                let (made, served) = (count(made as u64, "method"), count(served as u64, "other"));
                format!("whole calls of {made}, the server's part of calls of {served}")
            }
        };
        let [first, second] = &self.alone;
        let left_out = [
            (&self.apart, "one recording has whole calls and the other the server's part"),
            (first, "only the first recording has calls of them"),
            (second, "only the second recording has calls of them"),
        ];
        let left_out = left_out.into_iter().filter(|(methods, _)| !methods.is_empty());
        let left_out =
            left_out.map(|(methods, why)| format!("; left out, because {why}: {}", named(methods)));
        std::iter::once(compared).chain(left_out).collect()
    }

    /// Whether there is a method of which both fleets have calls that can be compared.
    ///
    /// # Errors
    /// There is none: what each has instead.
    pub fn check(&self) -> Result<(), String> {
        let Self { sides, apart, alone: [first, second] } = self;
        if !sides.is_empty() || [apart, first, second].iter().all(|methods| methods.is_empty()) {
            return Ok(());
        }
        let of = |methods: &[String]| if methods.is_empty() { "none".into() } else { named(methods) };
        Err(format!(
            "no method has calls in both recordings that can be compared: only the first has {}; only the second has \
             {}; whole calls in one and the server's part in the other: {}",
            of(first),
            of(second),
            of(apart)
        ))
    }
}

/// The first of them, and how many there are beside.
fn named(methods: &[String]) -> String {
    let rest = match methods.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    methods.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ") + &rest
}

#[cfg(test)]
mod tests {
    //! Shows that whole calls are never held against the server's part of calls.
    use super::*;
    use crate::block::RecordBlock;
    use crate::block::tests::block;
    use trunkline_telemetry::Coverage;

    /// So many calls of a method, as the caller's host has them or as the server's has.
    fn calls(method: &str, side: Side, count: u64) -> RecordBlock {
        let mut one = block(if side == Side::Made { "a" } else { "b" }, count);
        one.head.methods.iter_mut().for_each(|(_, name)| method.clone_into(name));
        for call in &mut one.rows {
            call.row.side = side;
            call.row.components.ns = [10, 10, 500, 10, 100, 10, 500, 10, 10];
            if side == Side::Served {
                call.row.components.coverage = Coverage::ServerOnly;
                call.row.components.ns = [0, 10, 0, 10, 100, 10, 0, 10, 0];
            }
        }
        one
    }

    fn fleet(blocks: impl IntoIterator<Item = RecordBlock>) -> Fleet {
        let mut fleet = Fleet::default();
        blocks.into_iter().for_each(|block| fleet.add(block));
        fleet
    }

    #[test]
    fn one_side_is_compared_in_both() {
        use Side::{Made, Served};
        // Before, most calls of the second method were made by the host that is recorded; after, other hosts call more.
        let before =
            fleet([calls("/s.S/A", Made, 50), calls("/s.S/B", Made, 50), calls("/s.S/B", Served, 30)]);
        let after =
            fleet([calls("/s.S/A", Made, 50), calls("/s.S/B", Made, 10), calls("/s.S/B", Served, 90)]);
        let common = CommonSides::of(&before, &after, "");
        let told = |fleet: &Fleet, method: &str| {
            let of = |call: &&&FleetCall| fleet.name(call.method) == method;
            let calls = common.calls(fleet);
            let sides: Vec<Side> = calls.iter().filter(of).map(|call| call.row.side).collect();
            (sides.len(), sides.iter().all(|side| *side == Served))
        };
        assert_eq!([told(&before, "/s.S/B"), told(&after, "/s.S/B")], [(30, true), (90, true)]);
        assert_eq!([told(&before, "/s.S/A"), told(&after, "/s.S/A")], [(50, false); 2]);
        assert_eq!(common.words(), "whole calls of 1 method, the server's part of calls of 1 other");
        assert_eq!(CommonSides::of(&before, &after, "S/B").words(), "the server's part of calls");
    }

    #[test]
    fn what_has_no_side_in_common_is_left_out_and_named() {
        let made = fleet([calls("/s.S/A", Side::Made, 50), calls("/s.S/Old", Side::Made, 5)]);
        let served = fleet([calls("/s.S/A", Side::Served, 50)]);
        let common = CommonSides::of(&made, &served, "");
        assert_eq!([common.calls(&made).len(), common.calls(&served).len()], [0, 0]);
        let words = common.words();
        assert!(
            words.contains("the server's part: /s.S/A; left out") && words.ends_with("of them: /s.S/Old"),
            "{words}"
        );
        assert!(common.check().is_err());
    }

    /// The mix of methods is no difference of any of them.
    #[test]
    fn methods_of_one_recording_alone_are_left_out_and_named() {
        let of = |other: &str| fleet([calls(other, Side::Made, 50), calls("/s.S/Same", Side::Made, 20)]);
        let (before, after) = (of("/s.S/Old"), of("/s.S/New"));
        let common = CommonSides::of(&before, &after, "");
        assert_eq!([common.calls(&before).len(), common.calls(&after).len()], [20, 20]);
        let words = common.words();
        assert!(words.contains("first recording has calls of them: /s.S/Old"), "{words}");
        assert!(words.contains("second recording has calls of them: /s.S/New"), "{words}");
        assert_eq!(common.check(), Ok(()));
        let refused = CommonSides::of(&before, &after, "/s.S/O").check().unwrap_err();
        assert!(refused.contains("only the first has /s.S/Old; only the second has none"), "{refused}");
    }
}
