//! The step: what follows from an event, until nothing follows any more; and what time brings.

use crate::assembly::Shape;
use crate::call::{Body, ClientEnd, Direction, ServerEnd};
use crate::due::Due;
use crate::ends::EndOfCall;
use crate::engine::{Engine, Turn};
use crate::served_later::settle_unserved;
use crate::target::Target;
use crate::{CallKey, PeerKey};
use trunkline_call::Instant;

/// Timers that fire in one go: calls nested in one another share their deadline, and applications choose how many there
/// are. A deadline takes about a microsecond.
const TIMERS_PER_STEP_MAX: usize = 256;

impl Engine {
    /// Does what is due at `turn.now`. If that is very much, some of it is left for the next time, which
    /// [`Engine::next_timeout`] then wants at once.
    pub fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.sessions.discard_abandoned(turn.heaps);
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

    /// Sends a complete message on its way: the opening of a call finds its server first.
    pub(crate) fn pass_shape(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        shape: Shape,
        body: Option<Body<'_>>,
    ) {
        let opens = matches!(shape, Shape::Open { .. });
        let mut item = shape.into_item(body);
        let unsettled = self.calls.find(key).is_some_and(|call| matches!(call.server, ServerEnd::Nobody));
        if opens && unsettled {
            self.start(turn, key, Target::Here, &mut item);
        } else if opens {
            self.admit_opening(turn, key, &mut item);
        } else {
            self.pass(turn, key, direction, &mut item);
        }
    }

    /// Whoever sends in this direction may send so many bytes more, if the direction is a stream.
    pub(crate) fn credit_sender(&mut self, key: CallKey, direction: Direction, bytes: u32) {
        if bytes == 0 {
            return;
        }
        let Some(call) = self.calls.find_mut(key).filter(|call| call.streams(direction)) else { return };
        let from_session = match direction {
            Direction::Request => matches!(call.client, ClientEnd::Session { .. }),
            Direction::Response => matches!(call.server, ServerEnd::Session { .. }),
        };
        let half = call.half(direction);
        // Others are counted where their connection is.
        half.charged -= if from_session { i64::from(bytes) } else { 0 };
        let over = half.ended;
        match direction {
            Direction::Request => call.client.clone().credit(self, key, bytes, over),
            Direction::Response => call.server.clone().credit(self, key, bytes, over),
        }
    }

    /// There is room on a connection: calls that wait for it go on, in order, until one has to wait again.
    pub(crate) fn unblock_peer(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        while let Some((call, direction)) = self.peers.find_mut(key).and_then(|peer| peer.blocked.pop_front())
        {
            self.unblock(turn, call, direction);
            let Some(peer) = self.peers.find_mut(key) else { return };
            if peer.blocked.back() == Some(&(call, direction)) {
                peer.blocked.rotate_right(1);
                return;
            }
        }
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
            || self.peers.announcers.are_waiting()
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
        let nested = (!self.nested.is_empty() || self.peers.announcers.are_waiting()).then(Instant::default);
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
