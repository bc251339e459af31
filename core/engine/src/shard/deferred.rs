//! Calls that have come for a session on its way to another shard: they wait until it has arrived.

use super::crossing::{Crossing, ShardIndex, ShardOpening, ShardSaid};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Their openings, by the shards they come from. As many as those have calls.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Deferred(Vec<(ShardIndex, Crossing)>);

impl Deferred {
    /// Keeps one.
    pub fn push(&mut self, from: ShardIndex, opening: Box<ShardOpening>) {
        self.0.push((from, Crossing(ShardSaid::Open(opening))));
    }

    /// The opening of a call that is not to begin any more, if it waits here.
    pub fn withdraw(&mut self, from: ShardIndex, number: u64) -> Option<Box<ShardOpening>> {
        let is_it = |crossing: &Crossing| matches!(&crossing.0, ShardSaid::Open(one) if one.call == number);
        let at = self.0.iter().position(|(shard, crossing)| *shard == from && is_it(crossing))?;
        match self.0.remove(at).1.0 {
            ShardSaid::Open(opening) => Some(opening),
            _ => None,
        }
    }

    /// All of them go on, in the order in which they came, and before what was said of them since.
    pub fn go_on(&mut self, inbox: &mut VecDeque<(ShardIndex, Crossing)>) {
        std::mem::take(&mut self.0).into_iter().rev().for_each(|one| inbox.push_front(one));
    }

    /// What waits.
    pub fn iter(&self) -> impl Iterator<Item = &Crossing> {
        self.0.iter().map(|(_, crossing)| crossing)
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Crossing> {
        self.0.iter_mut().map(|(_, crossing)| crossing)
    }
}

#[cfg(test)]
mod tests {
    //! Shows in which order calls go on that have waited.
    use super::*;

    #[test]
    fn openings_come_before_what_was_said_of_them() {
        let opening = |call| Box::new(ShardOpening { call, ..ShardOpening::default() });
        let from = ShardIndex(1);
        let mut deferred = Deferred::default();
        (1..=2).for_each(|call| deferred.push(from, opening(call)));
        let mut inbox = VecDeque::from([(from, Crossing(ShardSaid::HalfClose { call: 1 }))]);
        deferred.go_on(&mut inbox);
        let said = inbox.iter().map(|(_, crossing)| match &crossing.0 {
            ShardSaid::Open(opening) => (true, opening.call),
            ShardSaid::HalfClose { call } => (false, *call),
            other => panic!("{other:?}"),
        });
        assert_eq!(said.collect::<Vec<_>>(), [(true, 1), (true, 2), (false, 1)]);
        assert!(deferred.iter().next().is_none());
    }
}
