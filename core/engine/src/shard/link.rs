//! The way between two shards, as one of them keeps it.

use super::batch::CrossingBatch;
use super::by_slot::BySlot;
use super::crossing::{Crossing, Payer, ShardFinish, ShardOpening, ShardSaid};
use super::spares::Spares;
use crate::CallKey;
use crate::call_line::CallLine;
use crate::registry::MethodKey;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::KeyedMap;

/// The way to one other shard, and from it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ShardLink {
    pub outbox: VecDeque<Crossing>,
    /// What came from there last, read and empty: memory for the next outbox.
    #[serde(skip)]
    pub next_outbox: Vec<Crossing>,
    /// Bytes of its senders that were used here, to be said.
    pub taken: Vec<(Payer, u64)>,
    /// What was said of that last, empty: memory for the next.
    #[serde(skip)]
    pub next_taken: Vec<(Payer, u64)>,
    /// The path of the call that came from there last, and its method here: mostly the next has the same.
    #[serde(skip)]
    pub called: Option<(Arc<str>, MethodKey)>,
    /// Calls with an item that waits for room among those that go there; `true` for a response.
    pub blocked: CallLine<(CallKey, bool)>,
    /// Its calls that are served here, by the number they have there.
    pub served: BySlot<CallKey>,
    /// Calls made here that are at work there.
    pub made: usize,
    /// Those of them that have another number there than their own: their session has come from there.
    #[serde(default)]
    pub brought: KeyedMap<u64, CallKey>,
    /// The same, the other way round.
    #[serde(default)]
    pub numbers: KeyedMap<CallKey, u64>,
    /// Sessions on their way there: before they have arrived, nothing follows but what goes ahead of calls.
    #[serde(default)]
    pub moving: u32,
    /// Boxes that came from there and are empty.
    #[serde(skip)]
    pub spent: Spares<ShardOpening, ShardFinish>,
    /// They are to go back.
    #[serde(skip)]
    pub returns: bool,
}

impl ShardLink {
    /// Whether no call goes this way.
    pub fn is_idle(&self) -> bool {
        self.blocked.is_empty() && self.served.is_empty() && self.made == 0
    }

    /// So many bytes of a sender were used.
    pub fn note_taken(&mut self, payer: Payer, bytes: u64) {
        match self.taken.iter_mut().find(|(of, _)| *of == payer) {
            Some((_, taken)) => *taken = taken.saturating_add(bytes),
            None => self.taken.push((payer, bytes)),
        }
    }

    fn has_what_is_over(&self) -> bool {
        !self.taken.is_empty() || self.returns
    }

    /// What was used here, and boxes that are empty, go with what else is said.
    fn say_what_is_over(&mut self, said: &mut Vec<Crossing>) {
        if !self.taken.is_empty() {
            let next = std::mem::take(&mut self.next_taken);
            said.push(Crossing(ShardSaid::Taken(std::mem::replace(&mut self.taken, next))));
        }
        if std::mem::take(&mut self.returns) {
            said.push(Crossing(ShardSaid::Spares(Box::new(std::mem::take(&mut self.spent)))));
        }
    }

    /// How much of the outbox goes ahead of calls: what stands in front.
    pub fn ahead(&self) -> usize {
        self.outbox.iter().take_while(|crossing| crossing.goes_ahead()).count()
    }

    /// What goes there next, at most so much, and with it what is over if nothing else is left. What it takes does not
    /// grow with what stays.
    #[inline]
    pub fn next_batch(&mut self, most: usize) -> Option<CrossingBatch> {
        let waits = self.moving > 0;
        let ready = if waits { self.ahead() } else { self.outbox.len() };
        let says_what_is_over = !waits && ready < most && self.has_what_is_over();
        if ready == 0 && !says_what_is_over {
            return None;
        }
        let mut next = std::mem::take(&mut self.next_outbox);
        if ready == self.outbox.len() && ready <= most {
            next = Vec::from(std::mem::replace(&mut self.outbox, VecDeque::from(next)));
        } else {
            next.extend(self.outbox.drain(..ready.min(most)));
        }
        if says_what_is_over {
            self.say_what_is_over(&mut next);
        }
        Some(CrossingBatch(next))
    }
}

#[cfg(test)]
mod tests {
    //! Shows what goes together, and that nothing is lost or goes before its turn.
    use super::*;
    use crate::shard::ShardIndex;
    use crate::shard::crossing::Offers;

    fn half_close(call: u64) -> Crossing {
        Crossing(ShardSaid::HalfClose { call })
    }

    /// The calls a batch is of; 0 is none.
    fn calls(batch: Option<CrossingBatch>) -> Vec<u64> {
        let call = |crossing: Crossing| match crossing.0 {
            ShardSaid::HalfClose { call } => call,
            _ => 0,
        };
        batch.into_iter().flatten().map(call).collect()
    }

    #[test]
    fn batches_are_no_larger_than_they_may_be_and_in_order() {
        let mut link = ShardLink { outbox: (1..=10).map(half_close).collect(), ..ShardLink::default() };
        link.taken.push((Payer::R2p2, 7));
        assert_eq!(calls(link.next_batch(4)), [1, 2, 3, 4]);
        link.outbox.push_back(half_close(11));
        assert_eq!(calls(link.next_batch(4)), [5, 6, 7, 8]);
        assert_eq!(calls(link.next_batch(4)), [9, 10, 11, 0], "and what was used, which comes last");
        assert!(link.next_batch(4).is_none());
    }

    #[test]
    fn before_a_session_has_arrived_only_that_goes_which_goes_ahead() {
        let mut link = ShardLink { moving: 1, ..ShardLink::default() };
        link.outbox
            .push_back(Crossing(ShardSaid::Moved { to: ShardIndex(1), offers: Arc::new(Offers::default()) }));
        link.outbox.extend([half_close(1), half_close(2)]);
        link.taken.push((Payer::R2p2, 7));
        assert_eq!(calls(link.next_batch(64)), [0]);
        assert!(link.next_batch(64).is_none());
        link.moving = 0;
        assert_eq!(calls(link.next_batch(64)), [1, 2, 0]);
    }

    #[test]
    fn what_came_is_memory_for_what_goes() {
        let mut link = ShardLink { next_outbox: Vec::with_capacity(32), ..ShardLink::default() };
        link.outbox.push_back(half_close(1));
        assert_eq!(calls(link.next_batch(64)), [1]);
        assert!(link.outbox.capacity() >= 32 && link.next_outbox.capacity() == 0);
    }
}
