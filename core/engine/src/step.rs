//! The step: what follows from an event, until nothing follows any more; and what time brings.

use crate::due::Due;
use crate::engine::{Engine, Turn};
use crate::served_later::settle_unserved;
use trunkline_call::Instant;

/// Timers that fire in one go: calls nested in one another share their deadline, and applications choose how many there
/// are. A deadline takes about a microsecond.
const TIMERS_PER_STEP_MAX: usize = 256;

impl Engine {
    /// Does what is due at `turn.now`. If that is very much, some of it is left for the next time, which
    /// [`Engine::next_timeout`] then wants at once.
    pub fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.discard_abandoned(turn);
        for _ in 0..TIMERS_PER_STEP_MAX {
            let Some(due) = self.timers.due(turn.now) else { break };
            match due {
                Due::Deadline(call) => self.expire(turn, call),
                Due::Queued(call) => self.queued_due(turn, call),
                Due::Attempt(call) => self.attempt_due(turn, call),
                Due::Held(call, direction) => self.unblock(turn, call, direction),
                Due::Paced(call, direction) => self.paced_due(turn, call, direction),
                Due::Peer(peer) => self.peer_timeout(turn, peer),
                Due::Remote(remote) => self.wake_remote(turn, remote),
                Due::Offers => self.shards.telling.go_on(),
                Due::Awaited => self.settle_awaited(turn),
                Due::Assemblies(peer) => self.look_at_assemblies(turn, peer),
                Due::Sweep(peer) => self.sweep_grpc(turn, peer),
            }
        }
        self.r2p2_timeout(turn);
        self.unpack_on(turn);
        self.go_on(turn);
    }

    /// Does what the last change allows: others may have room now, or wait for an answer nobody else gives.
    #[inline]
    pub(crate) fn go_on(&mut self, turn: &mut Turn<'_>) {
        // Asked after everything that happens; nearly always, nobody waits.
        if self.has_more_to_do() {
            self.do_what_follows(turn);
        }
    }

    /// Whether any owner has something that the last change may have set going.
    #[inline]
    fn has_more_to_do(&self) -> bool {
        !self.nested.is_empty()
            || self.admission.may_serve_queues()
            || self.grpc.has_touched()
            || self.r2p2.is_waited_for()
            || self.workers.may_be_stirred()
            || self.announcers.are_waiting()
            || self.unserved.has_ready()
            || self.has_more_for_shards()
    }

    #[inline(never)]
    fn do_what_follows(&mut self, turn: &mut Turn<'_>) {
        self.end_nested(turn);
        self.answer_next();
        self.serve_queues(turn);
        self.settle_grpc(turn);
        self.settle_r2p2(turn);
        self.settle_workers(turn);
        settle_unserved(self, turn);
        self.settle_shards(turn);
    }

    /// When [`Engine::handle_timeout`] is wanted next.
    pub fn next_timeout(&mut self) -> Option<Instant> {
        let r2p2 = self.r2p2.next_timeout();
        let nested = (!self.nested.is_empty() || self.announcers.are_waiting()).then(Instant::default);
        let unserved = self.unserved.has_ready().then(Instant::default);
        let shards = self.shards.has_parked().then(Instant::default);
        let unpacking = self.grpc.has_to_unpack().then(Instant::default);
        self.timers
            .next_due()
            .into_iter()
            .chain(r2p2)
            .chain(nested)
            .chain(unserved)
            .chain(shards)
            .chain(unpacking)
            .min()
    }
}
