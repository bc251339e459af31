//! Calls that have come for a session on its way to another shard: they wait until it has arrived.

use super::crossing::{Crossing, ShardIndex, ShardOpening, ShardSaid};
use serde::{Deserialize, Serialize};

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

    /// All of them, in the order in which they came.
    pub fn take(&mut self) -> Vec<(ShardIndex, Crossing)> {
        std::mem::take(&mut self.0)
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
