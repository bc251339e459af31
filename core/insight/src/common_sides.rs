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
}

impl CommonSides {
    /// Of methods whose path contains this. A method that only one has keeps the side it has there.
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
            let sides = match found {
                [Some(one), Some(other)] => std::array::from_fn(|side| one[side].min(other[side])),
                [one, other] => one.or(other).unwrap_or_default(),
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
        let rest = match self.apart.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        let named = self.apart.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        match self.apart.is_empty() {
            true => compared,
            false => format!(
                "{compared}; left out, because one recording has whole calls and the other the server's part: \
                 {named}{rest}"
            ),
        }
    }
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
        assert_eq!([common.calls(&made).len(), common.calls(&served).len()], [5, 0]);
        assert!(common.words().ends_with("the server's part: /s.S/A"), "{}", common.words());
    }
}
