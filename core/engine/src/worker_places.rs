//! Places at workers and in the queues before them, given back for a call that somebody has at hand.

use crate::CallKey;
use crate::call::Call;
use crate::registry::Registry;
use crate::shard::{ShardLinks, return_kept};
use crate::unserved::UnservedCalls;
use crate::workers::Workers;

/// Those who keep places for calls.
pub(crate) struct WorkerPlaces<'e> {
    pub workers: &'e mut Workers,
    pub unserved: &'e mut UnservedCalls,
    pub shards: &'e mut ShardLinks,
    pub registry: &'e Registry,
}

impl WorkerPlaces<'_> {
    /// A call takes no place at its worker any more, for whatever reason.
    pub fn give_back(&mut self, key: CallKey, call: &mut Call) {
        return_kept(self.shards, self.registry, call);
        if let Some(place) = call.place.take() {
            self.workers.give_back(place, key);
        }
    }

    /// A call that waited for a worker, or for somebody who serves it, is over.
    pub fn stop_waiting(&mut self, key: CallKey, call: &mut Call) {
        let Some(queued) = call.queued.take() else { return };
        self.workers.stop_waiting(&queued, key);
        if queued.at.is_none() {
            self.unserved.leave(key);
        }
        if queued.is_judged {
            self.shards.take_up_aside(key);
        }
    }

    /// Neither any more: the server end of a call is through with it, and has room for another.
    pub fn leave(&mut self, key: CallKey, call: &mut Call) {
        self.give_back(key, call);
        self.stop_waiting(key, call);
    }
}
