//! The one road every item takes: in order, or held until it can go.

use crate::call::{Body, Call, Direction, Item};
use crate::due::Due;
use crate::ends::{Blocker, ItemWay, Refusal, deliver_to_client, deliver_to_server};
use crate::engine::{Engine, Turn};
use crate::gather::{gather, is_whole, split};
use crate::held::HeldFull;
use crate::limits::{ANSWERS, ARRIVING, CROSSING};
use crate::sampled::{sample_answer, sample_request};
use crate::source::source_of;
use crate::{CallKey, PeerKey, SessionKey};
use std::borrow::Cow;
use trunkline_call::{Encoding, Fault, Instant};

impl Engine {
    /// Sends an item along its call, once the policies that look at it have.
    pub(crate) fn pass(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        item: &mut Item<'_>,
    ) {
        let Some(call) = self.calls.find_mut(key) else { return self.drop_item(item) };
        call.note_step(&mut self.steps, turn.now, direction, item);
        if direction == Direction::Request && call.has_begun_in_parts() {
            return self.add_part(turn, key, item);
        }
        if call.is_inspected(direction, item) {
            return self.admit_message(turn, key, item);
        }
        // Nearly every answer.
        if self.plant.response_hold_ns == 0 && call.ends_as_it_comes(item) {
            call.response.ended = true;
            sample_answer(self, turn, key, item);
            let way = ItemWay { key, direction };
            if let Err(refusal) = deliver_to_client(self, turn, way, item) {
                self.refused(turn, way, item, refusal);
            }
            return;
        }
        self.pass_on(turn, key, direction, item);
    }

    /// Sends an item along its call. It is handed over now, or waits behind those that wait already.
    pub(crate) fn pass_on(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        item: &mut Item<'_>,
    ) {
        let Some(call) = self.calls.find_mut(key) else { return self.drop_item(item) };
        if call.half(direction).ended {
            return self.drop_item(item);
        }
        let limit = call.message_bytes_max[direction as usize];
        if item.body().is_some_and(|body| body.len() > limit) {
            self.drop_item(item);
            let name = "bytes of a message (maxRequestMessageBytes or maxResponseMessageBytes of the service config)";
            return self.fail(turn, key, Fault::Limit { name, limit: limit.into() });
        }
        let half = call.half(direction);
        if matches!(item, Item::Headers { .. }) && std::mem::replace(&mut half.introduced, true) {
            return self.drop_item(item); // a sender that repeats itself must not fill the line
        }
        half.ended = ends(item);
        let reshapes = call.reshapes(direction, item);
        if let Item::Finish { code, metadata, .. } = &*item
            && call.placed.is_some()
        {
            self.tell_balancer(turn.now, key, Some(*code), metadata);
        }
        if reshapes.unwrap_or_else(|| self.joins_by_r2p2(key, direction)) {
            return self.pass_reshaped(turn, key, direction, item);
        }
        self.advance(turn, key, direction, item);
    }

    /// Whether this direction leads over R2P2, which expects items in another shape than they may come in.
    fn joins_by_r2p2(&self, key: CallKey, direction: Direction) -> bool {
        let by_r2p2 = |cluster| self.is_reached_by_r2p2(cluster);
        self.calls.find(key).is_some_and(|call| call.leads_over_r2p2(direction, by_r2p2))
    }

    #[inline(never)]
    fn pass_reshaped(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        item: &mut Item<'_>,
    ) {
        let Some(call) = self.calls.find(key) else { return self.drop_item(item) };
        let is_all = call.half_of(direction).gathered.is_none() && is_whole(item);
        let one_message = call.has_one_message(direction).unwrap_or(true);
        let shaped = match one_message {
            true if is_all => Ok([Some(item.take()), None]),
            true => self.join(key, direction, item.take()),
            false => Ok(split(item.take())),
        };
        match shaped {
            Ok(shaped) => {
                for mut item in shaped.into_iter().flatten() {
                    self.advance(turn, key, direction, &mut item);
                }
            }
            Err(fault) => self.fail(turn, key, fault),
        }
    }

    /// Joins an item with what is kept of its direction: what goes on, if it is whole.
    ///
    /// # Errors
    /// What ends the call.
    pub(crate) fn join<'a>(
        &mut self,
        key: CallKey,
        direction: Direction,
        item: Item<'a>,
    ) -> Result<[Option<Item<'a>>; 2], Fault> {
        let gathered = gather(direction, self.take_gathered(key, direction), item);
        for mut item in gathered.dropped.into_iter().flatten() {
            self.drop_item(&mut item);
        }
        if let Some(kept) = gathered.kept {
            self.keep_gathered(key, direction, kept)?;
        }
        gathered.fault.map_or(Ok(gathered.goes), Err)
    }

    /// Keeps an item until the rest has come, charged to the connection it came from.
    fn keep_gathered(&mut self, key: CallKey, direction: Direction, mut item: Item<'_>) -> Result<(), Fault> {
        let (limit, bytes) = (self.limits.assembling_bytes_per_peer, item.parked_bytes());
        let Self { calls, peers, grpc, held, .. } = self;
        let Some(call) = calls.find_mut(key) else {
            self.drop_item(&mut item);
            return Ok(());
        };
        let native = call.native_sender(direction).and_then(|peer| peers.find_mut(peer));
        let charged = match (native, call.grpc_sender(direction), item.body()) {
            (Some(peer), ..) if peer.assembling_bytes + bytes > limit => {
                Err(Fault::Limit { name: ARRIVING, limit: limit as u64 })
            }
            (Some(peer), ..) => peer.hold(held, bytes),
            // Without what still takes of the stream's window, and what is counted with its stream.
            (None, Some(at), Some(body)) => grpc.hold(at.peer, body.uncharged_bytes()),
            _ => Ok(()),
        };
        match charged {
            Ok(()) => call.half(direction).gathered = Some(Box::new(item.into_owned())),
            Err(_) => self.drop_item(&mut item),
        }
        charged
    }

    /// What is kept of a direction; nobody is charged with it any more.
    pub(crate) fn take_gathered(&mut self, key: CallKey, direction: Direction) -> Option<Item<'static>> {
        let call = self.calls.find_mut(key)?;
        let kept = call.half(direction).gathered.take()?;
        let (native, web) = (call.native_sender(direction), call.grpc_sender(direction));
        match (native, web, kept.body()) {
            (Some(peer), ..) => self.holds_less(peer, kept.parked_bytes()),
            (None, Some(at), Some(body)) => self.grpc.hold_less(at.peer, body.uncharged_bytes()),
            _ => {}
        }
        Some(*kept)
    }

    // LIFE: 8 | handed to its server end, or held until that takes it: credit, room, pacing | |
    fn advance(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction, item: &mut Item<'_>) {
        if direction == Direction::Request {
            sample_request(self, turn, key, item);
        }
        let Some(call) = self.calls.find_mut(key) else { return self.drop_item(item) };
        let half = call.half(direction);
        if !half.backlog.is_empty() {
            return self.hold(turn, key, direction, item);
        }
        if call.policies.as_ref().is_some_and(|policies| policies.queued.is_some()) {
            return self.hold(turn, key, direction, item);
        }
        let held = call.policies.as_mut().and_then(|policies| policies.held_until.take());
        if let Some(until) = self.plant.hold_until(turn.now, item).max(held) {
            self.timers.insert(until, Due::Held(key, direction));
            return self.hold(turn, key, direction, item);
        }
        let is_classed = call.policies.as_ref().is_some_and(|policies| policies.class.is_some());
        if is_classed && self.paces(turn.now, key, direction, item) {
            return self.hold(turn, key, direction, item);
        }
        self.hand_over(turn, key, direction, item);
    }

    /// Goes on with what waits in one direction of a call.
    pub(crate) fn unblock(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction) {
        loop {
            let Some(call) = self.calls.find_mut(key) else { return };
            let half = call.half(direction);
            if half.paced_until.is_some_and(|until| self.admission.look_again(turn.now, until).is_some()) {
                return; // its timer comes
            }
            let Some(mut item) = half.backlog.pop_front() else {
                // What waited as items has gone on: what waits as bytes may follow.
                if let Some(stream) = call.grpc_sender(direction) {
                    self.pump(turn, stream);
                }
                return;
            };
            let had_its_turn = half.paced_until.take().is_some();
            let waited = half.waiting_since.take().map_or(0, |since| turn.now.since_ns(since));
            call.note_wait(direction, waited);
            self.unaccount(key, direction, &item);
            if !had_its_turn && self.paces(turn.now, key, direction, &item) {
                return self.hold_first(turn, key, direction, &mut item);
            }
            if !self.hand_over(turn, key, direction, &mut item) {
                return;
            }
        }
    }

    /// Whether the item has to wait for its turn. It then has a timer, and is to go to the head of its line.
    fn paces(&mut self, now: Instant, key: CallKey, direction: Direction, item: &Item<'_>) -> bool {
        let Some(call) = self.calls.find_mut(key) else { return false };
        let Some(class) = call.policies.as_ref().and_then(|policies| policies.class) else { return false };
        let Some(paced) = self.admission.pace(now, class, item.body().map(Body::len)) else { return false };
        call.half(direction).paced_until = Some(paced.until);
        self.timers.insert(paced.look_at, Due::Paced(key, direction));
        true
    }

    /// The timer of a paced item.
    pub(crate) fn paced_due(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction) {
        let Some(call) = self.calls.find(key) else { return };
        let until = call.half_of(direction).paced_until;
        match until.and_then(|until| self.admission.look_again(turn.now, until)) {
            Some(at) => drop(self.timers.insert(at, Due::Paced(key, direction))),
            None => self.unblock(turn, key, direction),
        }
    }

    /// Hands over to the end the direction leads to. `false` if the item waits now or the call has ended.
    #[inline(never)]
    pub(crate) fn hand_over(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        item: &mut Item<'_>,
    ) -> bool {
        let handed = self.try_hand_over(turn, ItemWay { key, direction }, item);
        handed.map_err(|refusal| self.refused(turn, ItemWay { key, direction }, item, refusal)).is_ok()
    }

    /// An end would not have an item: it waits now, or the call has ended.
    #[inline(never)]
    pub(crate) fn refused(&mut self, turn: &mut Turn<'_>, way: ItemWay, item: &mut Item<'_>, why: Refusal) {
        let ItemWay { key, direction } = way;
        match why {
            Refusal::Blocked(blocker) => {
                self.line_up(key, direction, blocker);
                self.hold_first(turn, key, direction, item);
            }
            Refusal::Fault(fault) => {
                self.drop_item(item);
                self.fail(turn, key, fault);
            }
        }
    }

    /// Hands over to the end the direction leads to.
    ///
    /// # Errors
    /// What the item has to wait for, or what ends the call.
    #[inline(always)]
    pub(crate) fn try_hand_over(
        &mut self,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        if way.direction == Direction::Request {
            return deliver_to_server(self, turn, way, item);
        }
        sample_answer(self, turn, way.key, item);
        deliver_to_client(self, turn, way, item)
    }

    /// Joins the line of what blocks; whoever unblocks serves the line in order.
    fn line_up(&mut self, key: CallKey, direction: Direction, blocker: Blocker) {
        match blocker {
            Blocker::Session(session) => {
                self.park(key, direction, session, |session| &mut session.parked.room);
            }
            Blocker::Opening(session) => {
                self.park(key, direction, session, |session| &mut session.parked.openings);
            }
            Blocker::Streams(session) => {
                self.park(key, direction, session, |session| &mut session.parked_streams);
            }
            Blocker::Peer(peer) => {
                if let Some(peer) = self.peers.find_mut(peer) {
                    peer.blocked.push_back((key, direction));
                }
            }
            Blocker::Grpc(peer) => self.grpc.line_up(peer, key, direction),
            Blocker::R2p2 => self.r2p2.blocked.push_back(key),
            Blocker::Share | Blocker::Stream => {}
            Blocker::Remote(remote) => {
                let source = source_of(self, key);
                self.remotes.line_up(remote, key, source);
            }
            Blocker::Shard(line) => self.shards.line_up(line, key, direction == Direction::Response),
        }
    }

    fn hold(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction, item: &mut Item<'_>) {
        if let Err(fault) = self.account(key, direction, item) {
            self.drop_item(item);
            return self.fail(turn, key, fault);
        }
        if let Some(call) = self.calls.find_mut(key) {
            let half = call.half(direction);
            half.waiting_since.get_or_insert(turn.now);
            half.backlog.push_back(item.take().into_owned());
        }
    }

    fn hold_first(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction, item: &mut Item<'_>) {
        if let Err(fault) = self.account(key, direction, item) {
            self.drop_item(item);
            return self.fail(turn, key, fault);
        }
        if let Some(call) = self.calls.find_mut(key) {
            let half = call.half(direction);
            half.paced_until.get_or_insert(turn.now);
            half.waiting_since.get_or_insert(turn.now);
            half.backlog.push_front(item.take().into_owned());
        }
    }

    /// Counts the bytes a waiting item makes the daemon hold against the session it waits for. A large message was let
    /// in as such, against its connection: more than one window of a stream fits nowhere else. A large request stays
    /// there. A large answer is its caller's from now on, who does not read: others have answers from there, too.
    fn account(&mut self, key: CallKey, direction: Direction, item: &Item<'_>) -> Result<(), Fault> {
        let bytes = item.parked_bytes();
        if self.is_large(bytes)
            && let Some(peer) = self.calls.find(key).and_then(|call| call.native_sender(direction))
        {
            if let Some(session) =
                self.destination(key, direction).filter(|_| direction == Direction::Response)
            {
                return self.account_answer(key, session, bytes);
            }
            let Some(found) = self.peers.find_mut(peer) else { return Ok(()) };
            found.assembling_bytes += bytes;
            if let Some(call) = self.calls.find_mut(key) {
                call.half(direction).large_of = Some(peer);
            }
            return Ok(());
        }
        let Some(session) = self.destination(key, direction) else {
            return self.account_forwarded(key, direction, item);
        };
        let (limit, more) = (self.limits.parked_bytes_per_session as u64, bytes as u64);
        let Some(found) = self.sessions.find(session).filter(|_| bytes > 0) else { return Ok(()) };
        // Known only where somebody may have too much.
        let source = (!found.parked_bytes.is_anybodys(more, limit)).then(|| source_of(self, key));
        let source = || source.clone().unwrap_or_default();
        if !found.parked_bytes.has_room(more, limit, source) {
            return Err(Fault::Limit {
                name: "bytes waiting for a full receive heap (limits.parked_bytes_per_session)",
                limit,
            });
        }
        let Some(session) = self.sessions.find_mut(session) else { return Ok(()) };
        let held_bytes = session.held_bytes() + more;
        self.held.book(&mut session.holding, held_bytes).map_err(HeldFull::fault)?;
        session.parked_bytes.take(key, more, limit, source);
        Ok(())
    }

    /// A large answer waits for its caller to read others.
    fn account_answer(&mut self, key: CallKey, session: SessionKey, bytes: usize) -> Result<(), Fault> {
        let limit = self.limits.assembling_bytes_per_peer;
        let Some(session) = self.sessions.find_mut(session) else { return Ok(()) };
        let answer_bytes = session.answer_bytes + bytes;
        if answer_bytes > limit {
            return Err(Fault::Limit { name: ANSWERS, limit: limit as u64 });
        }
        let held_bytes = session.held_bytes() + bytes as u64;
        self.held.book(&mut session.holding, held_bytes).map_err(HeldFull::fault)?;
        session.answer_bytes = answer_bytes;
        if let Some(call) = self.calls.find_mut(key) {
            call.response.large_waits = true;
        }
        Ok(())
    }

    /// One end of a call becomes another: what waits for it is counted where it waits from now on.
    pub(crate) fn change_end(&mut self, key: CallKey, direction: Direction, change: impl FnOnce(&mut Call)) {
        let Some(call) = self.calls.find_mut(key) else { return };
        let mut waiting = std::mem::take(&mut call.half(direction).backlog);
        waiting.iter().for_each(|item| self.unaccount(key, direction, item));
        if let Some(call) = self.calls.find_mut(key) {
            call.half(direction).large_waits = false;
            change(call);
            // What was gathered for the one it was before.
            waiting.append(&mut call.half(direction).backlog);
        }
        for item in &waiting {
            // Whoever changes it has seen that there is room.
            let _ = self.account(key, direction, item);
        }
        if let Some(call) = self.calls.find_mut(key) {
            call.half(direction).backlog = waiting;
        }
    }

    /// So many bytes of large messages are not held for a connection any more.
    fn holds_less(&mut self, peer: PeerKey, bytes: usize) {
        if let Some(peer) = self.peers.find_mut(peer) {
            peer.assembling_bytes = peer.assembling_bytes.saturating_sub(bytes);
            let held_bytes = peer.held_bytes();
            self.held.settle(&mut peer.holding, held_bytes);
        }
    }

    /// Whether a message of a peer was let in as a large one.
    pub(crate) fn is_large(&self, bytes: usize) -> bool {
        bytes > self.limits.stream_window_bytes as usize
    }

    pub(crate) fn unaccount(&mut self, key: CallKey, direction: Direction, item: &Item<'_>) {
        let bytes = item.parked_bytes();
        if self.is_large(bytes)
            && let Some(peer) = self.calls.find(key).and_then(|call| call.half_of(direction).large_of)
        {
            return self.holds_less(peer, bytes);
        }
        let destination = self.destination(key, direction);
        let is_large = self.is_large(bytes);
        let is_waiting_answer = self.calls.find(key).is_some_and(|call| call.half_of(direction).large_waits);
        if destination.is_none() {
            self.unaccount_forwarded(key, direction, item);
        }
        if let Some(session) = destination.and_then(|session| self.sessions.find_mut(session)) {
            const COUNTED: &str = "a session's items wait counted";
            if is_large && is_waiting_answer {
                let left = session.answer_bytes.checked_sub(bytes);
                session.answer_bytes = self.invariants.left(left, COUNTED);
            } else {
                self.invariants.left(session.parked_bytes.used().checked_sub(bytes as u64), COUNTED);
                session.parked_bytes.give_back(key, bytes as u64);
            }
            let held_bytes = session.held_bytes();
            self.held.settle(&mut session.holding, held_bytes);
        }
    }

    /// Between two connections: what a waiting message does not take of its sender's window is counted with what else
    /// that connection makes the daemon hold.
    fn account_forwarded(
        &mut self,
        key: CallKey,
        direction: Direction,
        item: &Item<'_>,
    ) -> Result<(), Fault> {
        if self.is_to_cross(key, direction) {
            let (bytes, limit) = (item.parked_bytes(), self.limits.parked_bytes_per_session);
            let fits = self.shards.park(bytes, limit);
            return if fits { Ok(()) } else { Err(Fault::Limit { name: CROSSING, limit: limit as u64 }) };
        }
        let bytes = item.body().map_or(0, Body::uncharged_bytes);
        match self.calls.find(key).and_then(|call| call.forwarded_from(direction)) {
            Some(peer) => self.grpc.hold(peer, bytes),
            None => Ok(()),
        }
    }

    fn unaccount_forwarded(&mut self, key: CallKey, direction: Direction, item: &Item<'_>) {
        if self.is_to_cross(key, direction) {
            return self.shards.unpark(item.parked_bytes());
        }
        let bytes = item.body().map_or(0, Body::uncharged_bytes);
        if let Some(peer) = self.calls.find(key).and_then(|call| call.forwarded_from(direction)) {
            self.grpc.hold_less(peer, bytes);
        }
    }

    /// Whether the items of a direction go to another shard.
    fn is_to_cross(&self, key: CallKey, direction: Direction) -> bool {
        self.calls.find(key).is_some_and(|call| call.crosses(direction))
    }

    /// The session a direction of a call leads to, if it leads to one.
    fn destination(&self, key: CallKey, direction: Direction) -> Option<SessionKey> {
        self.calls.find(key)?.receiver(direction)
    }

    /// Throws an item away whose receiver has ended the call: its sender may go on as if it had been taken, for the end
    /// is on its way to it.
    pub(crate) fn drop_unwanted(&mut self, key: CallKey, direction: Direction, item: &mut Item<'_>) {
        let bytes = item.body().map_or(0, Body::window_cost);
        self.drop_item(item);
        self.credit_sender(key, direction, bytes);
    }

    /// A body was used: its send block goes back to its session, and who pays for one that has crossed may send more.
    pub(crate) fn used(&mut self, body: &Body<'_>) {
        if let Some((session, payload)) = body.lent() {
            self.sessions.give_back(session, payload.span);
        } else if let Body::Crossed(crossed) = body {
            self.shards.used(crossed);
        }
    }

    /// Throws an item away: its send block goes back to its session, its receive block to the heap. Nothing is left of
    /// it, so that it is thrown away once.
    pub(crate) fn drop_item(&mut self, item: &mut Item<'_>) {
        match item.take().body() {
            Some(&(Body::Lent { session, payload } | Body::Sealed { session, payload, .. })) => {
                self.sessions.give_back(session, payload.span);
            }
            Some(&Body::Placed { session, block, .. }) => self.sessions.abandon([(session, block.offset)]),
            Some(Body::Crossed(crossed)) => self.shards.used(crossed),
            Some(Body::Wire { .. } | Body::Packed { .. } | Body::Kept(_)) | None => {}
        }
    }

    /// Hands a packed item to an end that does not speak gRPC: unpacked. If it has to wait, it does so as it came.
    pub(crate) fn hand_over_unpacked(
        &mut self,
        direction: Direction,
        item: &Item<'_>,
        hand_over: impl FnOnce(&mut Self, &mut Item<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut plain = self.unpacked(direction, item).map_err(Refusal::Fault)?;
        hand_over(self, &mut plain)
    }

    fn unpacked<'i>(&self, direction: Direction, item: &'i Item<'_>) -> Result<Item<'i>, Fault> {
        let plain = |body: &Body<'_>| {
            let (bytes, compressed) = match body.packed() {
                Some((packing, bytes)) => (self.grpc.unpack(direction, packing, bytes)?, packing.compressed),
                None => (Vec::new(), false),
            };
            let (bytes, charged) = (Cow::Owned(bytes), body.window_cost());
            Ok(Body::Wire { bytes, encoding: Encoding::Protobuf, charged, compressed })
        };
        Ok(match item {
            Item::Open { metadata, body, end } => {
                let body = body.as_ref().map(plain).transpose()?;
                Item::Open { metadata: Cow::Borrowed(metadata), body, end: *end }
            }
            Item::Message { body, end } => Item::Message { body: plain(body)?, end: *end },
            Item::HalfClose => Item::HalfClose,
            Item::Headers { metadata } => Item::Headers { metadata: Cow::Borrowed(metadata) },
            Item::Finish { code, execution, body, metadata } => Item::Finish {
                code: *code,
                execution: *execution,
                body: body.as_ref().map(plain).transpose()?,
                metadata: Cow::Borrowed(metadata),
            },
        })
    }
}

/// Whether this is the last item of its direction.
fn ends(item: &Item<'_>) -> bool {
    match item {
        Item::Open { end, .. } | Item::Message { end, .. } => *end,
        Item::HalfClose | Item::Finish { .. } => true,
        Item::Headers { .. } => false,
    }
}

impl crate::Plant {
    fn hold_until(self, now: Instant, item: &Item<'_>) -> Option<Instant> {
        let ns = match item {
            Item::Open { .. } => self.request_hold_ns,
            Item::Finish { .. } => self.response_hold_ns,
            _ => 0,
        };
        (ns > 0).then(|| now.plus_ns(ns))
    }
}
