//! Connections to other daemons and the calls on them: what the host brings of bytes, and what they mean.

use super::{Piece, SentCall};
use crate::assembly::{Assembly, Shape};
use crate::attempts::response_begun;
use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::due::Due;
use crate::ends::ItemWay;
use crate::engine::{Engine, Turn};
use crate::gateway_client::CallRights;
use crate::limits::STALLED;
use crate::mirrors::discard_long_answer;
use crate::peer::Offered;
use crate::registry::{Called, service_of};
use crate::remote::LaneIndex;
use crate::target::Target;
use crate::{CallKey, Heaps, PeerFault, PeerIdentity, PeerKey};
use std::borrow::Cow;
use trunkline_call::{Code, Deadline, Encoding, Execution, Fault, Instant, Status};
use trunkline_native::{
    Arriving, Event, Failure, Incoming, IncomingCall, Input, MethodIndex, Notice, StreamId, Trailer,
};

impl Engine {
    /// Takes in a connection somebody made to us. `label` is its address, for operators.
    pub fn accept_peer(&mut self, now: Instant, label: String) -> PeerKey {
        self.peers.insert(now, label, None)
    }

    /// A connection has its socket: the other end is asked from now on.
    pub fn peer_connected(&mut self, now: Instant, key: PeerKey) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.connection.connected(now);
        }
    }

    /// Says who the other end of a connection has proved to be, by its certificate or the kernel's word.
    pub fn peer_identified(&mut self, key: PeerKey, identity: PeerIdentity) {
        self.peers.identified(key, identity);
    }

    /// Says what the other end of a connection may call as a user of this host. One of the operator's daemons calls for
    /// others, whose rights it has looked at itself.
    pub fn peer_has_rights(&mut self, key: PeerKey, rights: CallRights) {
        self.peers.has_rights(key, rights);
    }

    /// Whether a connection has said its hello.
    pub fn has_greeted(&self, key: PeerKey) -> bool {
        self.peers.find(key).is_some_and(|peer| peer.connection.peer().is_some())
    }

    /// Whether a connection was made by this side.
    pub fn was_dialled(&self, key: PeerKey) -> bool {
        self.peers.find(key).is_some_and(|peer| peer.lane.is_some())
    }

    /// Bytes of a connection, known to be there since `arrived` (before they were read, so that reading counts as stack
    /// and not as wire). The read buffer begins with what [`Engine::resume`] put there.
    ///
    /// # Errors
    /// [`PeerFault`] if the peer broke the protocol. The host transmits what is still queued (the reason, for the
    /// peer), closes the socket and calls [`Engine::peer_lost`].
    pub fn handle_input(
        &mut self,
        turn: &mut Turn<'_>,
        key: PeerKey,
        arrived: Instant,
        bytes: &[u8],
    ) -> Result<(), PeerFault> {
        self.arrived = arrived;
        self.sessions.discard_abandoned(turn.heaps);
        let mut input = Input::new(bytes);
        loop {
            let Some(peer) = self.peers.find_mut(key) else { return Ok(()) };
            match peer.connection.handle_bytes(turn.now, &mut input) {
                Ok(Some(event)) => self.handle_event(turn, key, event),
                Ok(None) => break,
                Err(error) => {
                    peer.is_corrupted = error.is_corruption();
                    let closed_for = peer.closed_for.take();
                    self.peers.transmit(key);
                    return Err(closed_for.unwrap_or_else(|| PeerFault(error.to_string())));
                }
            }
        }
        self.settle_peer(turn, key);
        Ok(())
    }

    /// Puts the beginning of a cut frame to the front of the read buffer: the host reads behind it.
    pub fn resume(&mut self, key: PeerKey, buffer: &mut [u8]) -> usize {
        self.peers.find_mut(key).map_or(0, |peer| peer.connection.resume(buffer))
    }

    /// The memory the next bytes of the socket belong in, if they are the body of a large message: the host may read
    /// straight into it and report with [`Engine::placed`].
    pub fn wanted<'a>(&'a mut self, heaps: &'a mut dyn Heaps, key: PeerKey) -> Option<&'a mut [u8]> {
        self.peers.wanted(&mut self.held, heaps, key)
    }

    /// So many bytes, known to be there since `arrived`, were read into the memory [`Engine::wanted`] named.
    pub fn placed(&mut self, turn: &mut Turn<'_>, key: PeerKey, arrived: Instant, bytes: usize) {
        self.arrived = arrived;
        let Some(peer) = self.peers.find_mut(key) else { return };
        if let Some(event) = peer.connection.placed(turn.now, bytes as u32) {
            self.handle_event(turn, key, event);
        }
        self.settle_peer(turn, key);
    }

    /// Whether a connection is for large messages only.
    pub fn is_bulk(&self, key: PeerKey) -> bool {
        let lane = self.peers.find(key).and_then(|peer| peer.lane);
        matches!(lane, Some((_, LaneIndex::Bulk)))
    }

    /// Puts a connection in line for the host to transmit.
    pub fn transmit(&mut self, key: PeerKey) {
        self.peers.transmit(key);
    }

    /// A connection with bytes to write.
    pub fn poll_transmitting(&mut self) -> Option<PeerKey> {
        self.peers.poll_transmitting()
    }

    /// What to write next, in order: about `bytes_max`.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        key: PeerKey,
        bytes_max: usize,
    ) -> impl Iterator<Item = Piece<'_>> {
        self.peers.poll_transmit(now, key, bytes_max)
    }

    /// The socket took so many of those bytes. The call whose request ended with the last of them, if one did.
    pub fn transmitted(&mut self, turn: &mut Turn<'_>, key: PeerKey, bytes: usize) -> Option<SentCall> {
        let mut last = None;
        if let Some(peer) = self.peers.find_mut(key) {
            peer.connection.transmitted(bytes);
            while let Some(sent) = peer.connection.poll_sent() {
                let key = CallKey::from_bits(sent.tag);
                if let Some(call) = self.calls.find_mut(key) {
                    call.client_stamps.d4 = sent.at;
                }
                last = sent.is_last.then_some(SentCall(key));
            }
        }
        self.settle_peer(turn, key);
        last
    }

    /// The kernel says when the last byte of a call's request left this host.
    pub fn note_sent(&mut self, call: SentCall, at: Instant) {
        if let Some(call) = self.calls.find_mut(call.0)
            && matches!(call.server, ServerEnd::Peer { .. })
        {
            call.client_stamps.k6 = at;
        }
    }

    /// The connection is over: its calls end, those that never left as *not executed*.
    pub fn peer_lost(&mut self, turn: &mut Turn<'_>, key: PeerKey, why: &str) {
        self.lose_peer(turn, key, why, true);
    }

    /// The same; `silent`: whoever was reached has not shown that it speaks the native protocol.
    pub(crate) fn lose_peer(&mut self, turn: &mut Turn<'_>, key: PeerKey, why: &str, silent: bool) {
        let Some(peer) = self.peers.find_mut(key) else { return };
        peer.connection.lost();
        let lane = peer.lane;
        self.take_notices(turn, key);
        let Some(mut peer) = self.peers.remove(key) else { return };
        for (_, assembly) in peer.assemblies.drain() {
            self.arrives_no_more(&assembly);
            self.sessions.abandon(assembly.block());
        }
        self.held.leave(std::mem::take(&mut peer.holding));
        // A call that waited to be opened there has sent nothing: it goes elsewhere, by another connection.
        let is_unsent = |call: &Call| !call.handed_over && !matches!(call.server, ServerEnd::Peer { .. });
        let (unsent, begun) =
            std::mem::take(&mut peer.blocked).into_iter().partition::<Vec<_>, _>(|(call, direction)| {
                *direction == Direction::Request && self.calls.find(*call).is_some_and(is_unsent)
            });
        for (call, _) in begun {
            let executed = self.calls.find(call).map_or(Execution::Unknown, Call::execution);
            self.fail(turn, call, peer.lost_with(executed));
        }
        self.sessions.discard_abandoned(turn.heaps);
        if let Some((remote, lane)) = lane {
            self.lane_lost(turn, (remote, lane, key), why, silent);
        }
        for (call, direction) in unsent {
            self.unblock(turn, call, direction);
        }
        self.note_host_left(turn.now, peer.telemetry);
        self.go_on(turn);
    }

    /// After every change of a connection: what it noticed, what it wants to send, when it wants the clock.
    pub(crate) fn settle_peer(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        self.take_notices(turn, key);
        self.serve_queues(turn);
        let Some(peer) = self.peers.find_mut(key) else { return };
        if !peer.blocked.is_empty() && peer.connection.may_open().is_ok() {
            self.unblock_peer(turn, key);
        }
        if let Some(at) = self.peers.settle(&mut self.held, turn.now, key) {
            self.timers.insert(at, Due::Peer(key));
        }
    }

    /// The instant matters to nobody else: a connection's timers are kept in the engine's table.
    pub(crate) fn peer_timeout(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        let Some(peer) = self.peers.find_mut(key) else { return };
        peer.timer_at = None;
        match peer.connection.handle_timeout(turn.now) {
            Err(error) => self.peer_lost(turn, key, &error.to_string()),
            Ok(()) => self.settle_peer(turn, key),
        }
    }

    /// What became of what was sent.
    fn take_notices(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        while let Some(notice) = self.peers.find_mut(key).and_then(|peer| peer.connection.poll_notice()) {
            self.handle_notice(turn, key, notice);
        }
    }

    /// Does what follows from what was sent.
    fn handle_notice(&mut self, turn: &mut Turn<'_>, peer: PeerKey, notice: Notice) {
        match notice {
            Notice::BodyDone { token } => self.body_done(token),
            Notice::Writable => self.unblock_peer(turn, peer),
            Notice::StreamWritable { tag, .. } => {
                let key = CallKey::from_bits(tag);
                let direction = match self.calls.find(key).map(|call| &call.server) {
                    Some(ServerEnd::Peer { .. }) => Direction::Request,
                    _ => Direction::Response,
                };
                self.unblock(turn, key, direction);
            }
            Notice::Ended { tag, execution, .. } => {
                let lost = || Fault::ConnectionLost { endpoint: String::new(), executed: execution };
                let fault = self.peers.find(peer).map_or_else(lost, |peer| peer.lost_with(execution));
                self.fail(turn, CallKey::from_bits(tag), fault);
            }
            Notice::Orphaned { tag, .. } => self.cancel(turn, CallKey::from_bits(tag)),
        }
    }

    /// A connection no longer reads a send-heap range: its block goes back, and the sender may send as much again.
    fn body_done(&mut self, token: u64) {
        let Some(lent) = self.peers.body_done(token) else { return };
        self.sessions.give_back(lent.session, lent.block);
        self.credit_sender(lent.call, lent.direction, lent.window_bytes);
        if let Some(session) = self.sessions.find_mut(lent.session) {
            session.lent_no_more(&mut self.invariants);
        }
        self.sessions.retire_if_unlent(&mut self.held, lent.session);
    }

    /// Does what the peer said.
    fn handle_event(&mut self, turn: &mut Turn<'_>, peer: PeerKey, event: Event<'_>) {
        match event {
            Event::Established => self.handle_established(turn, peer),
            Event::Call(call) => self.handle_call(turn, peer, call),
            Event::Message { stream, tag, message, end } => {
                let way = self.incoming_way(CallKey::from_bits(tag), peer, stream);
                self.handle_message(turn, peer, stream, way, message, Shape::Message { end });
            }
            Event::Headers { tag, metadata, .. } => {
                let mut item = Item::Headers { metadata: Cow::Borrowed(metadata) };
                self.pass(turn, CallKey::from_bits(tag), Direction::Response, &mut item);
            }
            Event::Result { stream, tag, message, metadata, trailer } => {
                self.handle_result(turn, peer, stream, CallKey::from_bits(tag), message, metadata, trailer);
            }
            Event::Error { tag, code, execution, metadata, trailer, .. } => {
                let key = CallKey::from_bits(tag);
                let is_there = trailer.is_some() && ![Code::Unimplemented, Code::Unavailable].contains(&code);
                self.note_answer(turn.now, peer, key, trailer, is_there);
                let metadata = Cow::Borrowed(metadata);
                let mut item = Item::Finish { code, execution, body: None, metadata };
                self.pass(turn, key, Direction::Response, &mut item);
            }
            Event::HalfClose { tag, .. } => {
                self.pass(turn, CallKey::from_bits(tag), Direction::Request, &mut Item::HalfClose);
            }
            Event::Cancelled { tag, code, .. } => self.cancel_as(turn, CallKey::from_bits(tag), code),
            Event::Chunk { stream, offset, bytes, last, .. } => {
                self.handle_chunk(turn, peer, stream, offset, bytes, last);
            }
            Event::Schema { method, path, request_fingerprint, response_fingerprint } => {
                self.handle_schema(peer, method, path, [request_fingerprint, response_fingerprint]);
            }
            Event::SchemaAnswer { method, request_fingerprint, .. } => {
                if let Some(peer) = self.peers.find_mut(peer) {
                    peer.answers.insert(method, request_fingerprint);
                }
            }
            Event::Caller { number, caller } => {
                // Nothing is kept of what is not believed.
                if let Some(peer) = self.peers.find_mut(peer).filter(|peer| peer.is_host) {
                    peer.callers_heard.hear(number, caller);
                }
            }
            Event::Pong { .. } => {}
            Event::Redial => self.reach().redial(turn.now, peer),
            Event::GoAway { .. } => {
                let Some((remote, lane)) = self.peers.find(peer).and_then(|peer| peer.lane) else { return };
                self.lane_lost(turn, (remote, lane, peer), "peer is draining", false);
            }
            Event::Closed { code, why } => {
                if let Some(peer) = self.peers.find_mut(peer) {
                    // Its checksums say so: it has read what was not written here.
                    peer.is_corrupted = code == Code::DataLoss && peer.connection.has_checksums();
                }
                self.lose_peer(turn, peer, &format!("peer closed: {code}: {why}"), false);
            }
        }
    }

    fn handle_established(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        let Some((name, has_same_clock)) = self.peers.reported_as(key) else { return };
        let number = self.telemetry.peer(&name, has_same_clock);
        let Some(peer) = self.peers.find_mut(key) else { return };
        self.host_numbers.leave(std::mem::replace(&mut peer.telemetry, number));
        self.host_numbers.join(number);
        if let Some((remote, lane)) = peer.lane
            && self.reach().lane_open(remote, lane, key)
        {
            self.line_goes_on(turn, remote);
        }
    }

    fn handle_schema(&mut self, peer: PeerKey, index: MethodIndex, path: &str, fingerprints: [u64; 2]) {
        let answer = self.answer_to(path);
        let offered =
            Offered { path: path.into(), method: answer.0, fingerprints, answered: None, agreed: None };
        if self.peers.take_offer(&mut self.held, peer, index, offered) {
            self.peers.answer(peer, index, answer);
        }
    }

    // LIFE: 13 | begins on host B, with stations 4 to 7 there; a large message is put together first, in the receive
    // heap it is meant for | complete (d8) |
    fn handle_call(&mut self, turn: &mut Turn<'_>, peer: PeerKey, incoming: IncomingCall<'_>) {
        let stream = incoming.stream;
        let Some(found) = self.peers.find_mut(peer) else { return };
        let offered = found.offered.get(&incoming.method).cloned();
        if let Some(offered) = &offered
            && let Err(status) = found.may_call(&self.peer_rules, service_of(&offered.path))
        {
            return self.refuse_stream(turn, peer, stream, &status);
        }
        if let Err(full) = found.hold(&mut self.held, 0) {
            return self.refuse_stream(turn, peer, stream, &full.status());
        }
        let called = offered.as_ref().and_then(|offered| match offered.method {
            Some(method) => Some(Called { method, path: None }),
            None => self.paths().called(&offered.path),
        });
        let Some(Called { method, path }) = called else {
            let path: String = offered.map_or_else(String::new, |offered| offered.path.to_string());
            let service = service_of(&path).to_owned();
            let fault = if self.routing().serves_service(&service) {
                Fault::NoMethod { path }
            } else {
                self.paths().unserved(&path).unwrap_or(Fault::NoRoute { what: service })
            };
            return self.refuse_stream(turn, peer, stream, &fault.status());
        };
        let deadline =
            incoming.deadline_remaining_ns.map_or(Deadline::NONE, |ns| Deadline::at(turn.now.plus_ns(ns)));
        let Self { peers, calls, arrived, .. } = self;
        let (key, call) = calls.renew();
        call.begin(method, ClientEnd::Peer { peer, stream }, deadline);
        (call.server_stamps.k7, call.server_stamps.d8) = (*arrived, turn.now);
        call.path = path;
        if let Some(offered) = offered {
            (call.offered, call.agreed) = (Some(offered.fingerprints), offered.agreed);
        }
        if let Some(peer) = peers.find_mut(peer) {
            peer.connection.set_tag(stream, key.to_bits());
            if let Some(number) = incoming.caller.filter(|_| peer.is_host) {
                call.caller = peer.callers_heard.find(number).cloned();
            }
        }
        let shape = Shape::Open { metadata: incoming.metadata.to_vec(), end: incoming.end };
        let way = ItemWay { key, direction: Direction::Request };
        match incoming.message {
            Some(message) => self.handle_message(turn, peer, stream, way, message, shape),
            None => self.start(turn, key, Target::Here, &mut shape.into_item(None)),
        }
    }

    /// Refuses a stream a peer opened, before it became a call.
    fn refuse_stream(&mut self, turn: &mut Turn<'_>, peer: PeerKey, stream: StreamId, status: &Status) {
        let trunkline_grpc::Outcome { code, execution, metadata } =
            trunkline_grpc::Outcome::of(&self.peers.said_here(status));
        if let Some(found) = self.peers.find_mut(peer) {
            let failure = Failure { code, execution, metadata: &metadata, trailer: None };
            let _ = found.connection.abort(turn.now, stream, &failure);
        }
        self.peers.transmit(peer);
    }

    // LIFE: 19 | read as at 12, and matched to the call | (k15, d16) | 7 response wire
    #[allow(clippy::too_many_arguments, reason = "the fields of one event, from one caller")]
    fn handle_result(
        &mut self,
        turn: &mut Turn<'_>,
        peer: PeerKey,
        stream: StreamId,
        key: CallKey,
        message: Option<Incoming<'_>>,
        metadata: &[u8],
        trailer: Option<&Trailer>,
    ) {
        self.note_answer(turn.now, peer, key, trailer, true);
        let shape = Shape::Finish { metadata: metadata.to_vec() };
        let way = ItemWay { key, direction: Direction::Response };
        match message {
            Some(message) => self.handle_message(turn, peer, stream, way, message, shape),
            None => self.pass_shape(turn, key, Direction::Response, shape, None),
        }
    }

    /// The answer to a call begins to arrive. It `is_there`: the peer has the method.
    fn note_answer(
        &mut self,
        now: Instant,
        peer: PeerKey,
        key: CallKey,
        trailer: Option<&Trailer>,
        is_there: bool,
    ) {
        let Some(call) = self.calls.find_mut(key) else { return };
        call.answer_begins(self.arrived, now, trailer);
        if is_there {
            self.peers.answered(peer, call.method);
        }
    }

    /// The way of a message on a stream: a call's caller says requests there, its server responses, by which it shows
    /// that it has the method.
    fn incoming_way(&mut self, key: CallKey, of: PeerKey, on: StreamId) -> ItemWay {
        let Some(call) = self.calls.find(key) else { return ItemWay { key, direction: Direction::Response } };
        match call.client {
            ClientEnd::Peer { peer, stream } if peer == of && stream == on => {
                ItemWay { key, direction: Direction::Request }
            }
            _ => {
                self.peers.answered(of, call.method);
                ItemWay { key, direction: Direction::Response }
            }
        }
    }

    /// A message, or the beginning of one: small ones go on at once, large ones are put together where they will lie.
    fn handle_message(
        &mut self,
        turn: &mut Turn<'_>,
        peer: PeerKey,
        stream: StreamId,
        way: ItemWay,
        message: Incoming<'_>,
        shape: Shape,
    ) {
        let encoding = message.encoding;
        match message.body {
            Arriving::Whole(bytes) => {
                let charged = bytes.len() as u32 + shape.own_cost();
                let bytes = Cow::Borrowed(bytes);
                let body = Body::Wire { bytes, encoding, charged, compressed: false };
                self.pass_shape(turn, way.key, way.direction, shape, Some(body));
            }
            Arriving::Cut { total } => {
                if let Err(fault) = self.begin_assembly(turn, (peer, stream), way, encoding, total, shape) {
                    self.fail(turn, way.key, fault);
                }
            }
        }
    }

    // LIFE: 13
    /// Finds room for a message of which the peer says it has `total` bytes.
    ///
    /// # Errors
    /// What ends its call.
    fn begin_assembly(
        &mut self,
        turn: &mut Turn<'_>,
        on: (PeerKey, StreamId),
        way: ItemWay,
        encoding: Encoding,
        total: u32,
        shape: Shape,
    ) -> Result<(), Fault> {
        let ItemWay { key, direction } = way;
        if direction == Direction::Response {
            if discard_long_answer(self, turn, key) {
                return Ok(());
            }
            response_begun(self, turn, key);
        }
        match &shape {
            Shape::Open { metadata, .. } => self.settle(turn, key, Target::Here, metadata, total)?,
            _ => self.limits.check_message(total)?,
        }
        let place = self.place_for(turn, way, encoding, total, &shape);
        let counted = place.usual_bytes(turn.heaps);
        let assembly = Assembly::new(key, direction, encoding, total, place, shape);
        let bytes_max = self.limits.assembling_bytes_per_peer;
        if !self.peers.begin_assembly(&mut self.held, bytes_max, on, assembly)? {
            return Ok(());
        }
        if let Some((session, bytes)) = counted
            && let Some(session) = self.sessions.find_mut(session)
        {
            self.peers.count_arriving(on, session.arrives(bytes));
        }
        self.look_at_assemblies_in_time(turn.now, on.0);
        self.peers.transmit(on.0);
        Ok(())
    }

    /// Bytes of a message that is arriving; empty when the host has read them into place itself.
    fn handle_chunk(
        &mut self,
        turn: &mut Turn<'_>,
        peer: PeerKey,
        stream: StreamId,
        offset: u32,
        bytes: &[u8],
        last: bool,
    ) {
        let Self { peers, held, .. } = self;
        let done = match peers.take_chunk(held, turn.heaps, (peer, stream), offset, bytes, last) {
            Ok(Some(done)) => done,
            Ok(None) => return,
            Err((call, fault)) => return self.fail(turn, call, fault),
        };
        self.arrives_no_more(&done);
        let (key, direction) = (done.call, done.direction);
        let (shape, body) = done.into_body();
        if let Some(call) = self.calls.find_mut(key) {
            call.message_is_whole(direction, self.arrived, turn.now);
        }
        self.pass_shape(turn, key, direction, shape, Some(body));
    }

    /// Gives up a message that is arriving: its call is gone.
    pub(crate) fn abandon_assembly(&mut self, peer: PeerKey, stream: StreamId) {
        let Some(assembly) = self.peers.take_assembly(peer, stream) else { return };
        self.arrives_no_more(&assembly);
        self.sessions.abandon(assembly.block());
    }

    /// What it takes of its session's receive heap is not counted as arriving any more.
    fn arrives_no_more(&mut self, assembly: &Assembly) {
        if let Some((session, _)) = assembly.block()
            && let Some(session) = self.sessions.find_mut(session)
        {
            session.arrives_no_more(&mut self.invariants, assembly.counted);
        }
    }

    /// Has somebody look in a while whether the large messages of a connection go on.
    pub(crate) fn look_at_assemblies_in_time(&mut self, now: Instant, key: PeerKey) {
        let Some(stall_ns) = self.limits.message_stall_ns() else { return };
        if self.peers.is_to_be_looked_at(key) {
            self.timers.insert(now.plus_ns(stall_ns), Due::Assemblies(key));
        }
    }

    /// Ends calls whose large messages do not go on, and looks again later while there are any.
    pub(crate) fn look_at_assemblies(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        let stalled = self.peers.stalled(key);
        let limit = self.limits.message_stall_s.into();
        self.look_at_assemblies_in_time(turn.now, key);
        for call in stalled {
            self.fail(turn, call, Fault::Limit { name: STALLED, limit });
        }
        self.sessions.discard_abandoned(turn.heaps);
    }
}
