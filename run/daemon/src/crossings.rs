//! Queues between the shards of a daemon: one for each ordered pair, bounded, with one that fills it and one that
//! empties it.
//!
//! A shard looks at what came for it every turn, so whoever fills a queue wakes nobody, unless the other shard is about
//! to sleep or does ([`WakeFlag`]). What does not fit waits in the engine, and what does not fit there in its calls.

use crate::waker::Waker;
use rtrb::RingBuffer;
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_engine::{
    CrossingBatch, Engine, ShardIndex, Turn, handle_crossings, has_crossings, next_crossings, park_crossing,
};
use trunkline_shm::{WakeFlag, monotonic_ns};

/// Batches one queue takes, and about how many items each: under a mebibyte, messages apart. Batches are as large only
/// where the other shard does not keep up.
const QUEUE_BATCHES: usize = 32;
const BATCH_ITEMS: usize = 256;
/// Items after which a turn takes no further batch from a shard.
const TURN_ITEMS: usize = 256;

/// One shard's ends of the queues.
#[derive(Default)]
pub(crate) struct Crossings {
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    /// Whether this shard sleeps.
    flag: Arc<WakeFlag>,
}

struct Outgoing {
    to: ShardIndex,
    queue: rtrb::Producer<CrossingBatch>,
    flag: Arc<WakeFlag>,
    waker: Arc<Waker>,
}

struct Incoming {
    from: ShardIndex,
    queue: rtrb::Consumer<CrossingBatch>,
}

impl Crossings {
    /// The ends for each of several shards, which these wake.
    pub fn between(wakers: &[Arc<Waker>]) -> Vec<Self> {
        let mut ends: Vec<Self> = wakers.iter().map(|_| Self::default()).collect();
        for from in 0..ends.len() {
            for to in (0..ends.len()).filter(|to| *to != from) {
                let (producer, consumer) = RingBuffer::new(QUEUE_BATCHES);
                let (flag, waker) = (Arc::clone(&ends[to].flag), Arc::clone(&wakers[to]));
                let index = |shard: usize| ShardIndex(shard as u16);
                ends[from].outgoing.push(Outgoing { to: index(to), queue: producer, flag, waker });
                ends[to].incoming.push(Incoming { from: index(from), queue: consumer });
            }
        }
        ends
    }

    /// Does what the other shards have said, as much as a turn is given. Whether there was any.
    pub fn take(&mut self, engine: &mut Engine, turn: &mut Turn<'_>) -> bool {
        let mut worked = false;
        for Incoming { from, queue } in &mut self.incoming {
            let mut handled = 0;
            while handled < TURN_ITEMS
                && let Ok(batch) = queue.pop()
            {
                worked = true;
                handled += batch.len();
                handle_crossings(engine, turn, *from, batch, &mut || Instant(monotonic_ns()));
            }
        }
        worked
    }

    /// Keeps what the other shards have said in the engine, for whoever goes on with it.
    pub fn park(&mut self, engine: &mut Engine) {
        for Incoming { from, queue } in &mut self.incoming {
            while let Ok(batch) = queue.pop() {
                batch.into_iter().for_each(|crossing| park_crossing(engine, *from, crossing));
            }
        }
    }

    /// Sends what there is for the other shards, and wakes those that sleep.
    pub fn send(&mut self, engine: &mut Engine, turn: &mut Turn<'_>) {
        for Outgoing { to, queue, flag, waker } in &mut self.outgoing {
            let mut sent = false;
            // A shard that has ended says nothing any more, and hears nothing: what is for it goes nowhere.
            while !queue.is_full() || queue.is_abandoned() {
                let Some(batch) = next_crossings(engine, turn, *to, BATCH_ITEMS) else { break };
                let _ = queue.push(batch);
                sent = true;
            }
            if sent && flag.must_ring() {
                waker.wake();
            }
        }
    }

    /// Whether there are other shards.
    pub fn are_several(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Whether something is left that a queue had no room for, or that came of what was sent.
    pub fn has_more(&self, engine: &Engine) -> bool {
        self.outgoing.iter().any(|outgoing| has_crossings(engine, outgoing.to))
    }

    /// The shard is about to sleep. `false`: something has come, and it is not to.
    pub fn arm(&self) -> bool {
        if self.incoming.is_empty() {
            return true;
        }
        self.flag.arm();
        let rests = self.incoming.iter().all(|incoming| incoming.queue.is_empty());
        if !rests {
            self.flag.disarm();
        }
        rests
    }

    /// It is awake.
    pub fn disarm(&self) {
        if !self.incoming.is_empty() {
            self.flag.disarm();
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows who is woken, and that a full queue holds up nobody but what it is full of.
    use super::*;
    use trunkline_engine::{Heaps, Limits, SessionKey, join_shards};

    /// No session, no heap.
    struct NoHeaps;

    impl Heaps for NoHeaps {
        fn allocate(&mut self, _: SessionKey, _: u32) -> Option<u32> {
            None
        }
        fn receive_capacity(&self, _: SessionKey) -> u32 {
            0
        }
        fn discard(&mut self, _: SessionKey, _: u32) {}
        fn publish(&mut self, _: SessionKey, _: trunkline_call::entry::Span) {}
        fn release(&mut self, _: SessionKey, _: u32) -> Option<u32> {
            None
        }
        fn receive_block(&mut self, _: SessionKey, _: trunkline_call::entry::Span) -> &mut [u8] {
            &mut []
        }
        fn send_heap_contains(&self, _: SessionKey, _: trunkline_call::entry::Span) -> bool {
            false
        }
        fn seal(&self, _: SessionKey, _: trunkline_call::entry::Span, _: &mut Vec<u8>) -> bool {
            false
        }
        fn seal_into(&self, _: SessionKey, _: trunkline_call::entry::Span, _: &mut [u8]) -> bool {
            false
        }
        fn copy_across(
            &mut self,
            _: SessionKey,
            _: trunkline_call::entry::Span,
            _: SessionKey,
            _: u32,
        ) -> bool {
            false
        }
    }

    #[test]
    fn who_sleeps_is_woken_once_and_does_not_sleep_beside_what_has_come() {
        let wakers = [0, 1, 2].map(|_| Arc::new(Waker::new().unwrap()));
        let mut ends = Crossings::between(&wakers);
        let mut engines = [0, 1, 2].map(|index| {
            let mut engine = Engine::new(Limits::default(), "host", 1);
            join_shards(&mut engine, ShardIndex(index), 3);
            engine
        });
        let woken = |shard: usize| rustix::io::read(&*wakers[shard], &mut [0u8; 8]).is_ok();
        let mut turn = Turn { now: Instant(1), heaps: &mut NoHeaps };
        assert!(ends[1].arm(), "nothing has come");
        // Each tells the others what it serves, once.
        ends[0].send(&mut engines[0], &mut turn);
        ends[2].send(&mut engines[2], &mut turn);
        assert!(woken(1), "it slept");
        assert!(!woken(0) && !woken(2), "they look by themselves");
        assert!(!ends[1].arm(), "something has come");
        assert!(ends[1].take(&mut engines[1], &mut turn));
        assert!(!ends[1].take(&mut engines[1], &mut turn));
        assert!(ends[1].arm());
        ends[0].send(&mut engines[0], &mut turn);
        assert!(!ends[0].has_more(&engines[0]) && !woken(1), "there is nothing to say");
    }
}
