//! What another daemon says, turned into items.

use crate::assembly::Shape;
use crate::call::{Body, ClientEnd, Direction, Item, ServerEnd};
use crate::engine::{Engine, Turn};
use crate::peer::{Offered, Peer, claim_of, reported_name};
use crate::registry::{Called, MethodKey, MethodTypes, service_of};
use crate::served_later::unserved_here;
use crate::target::Target;
use crate::{CallKey, PeerFault, PeerKey};
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Execution, Fault, ServerStamps};
use trunkline_native::{Arriving, Event, Incoming, IncomingCall, MethodIndex, Notice, StreamId, Trailer};

/// Methods whose announcers are told at once when it has changed who serves them.
const ANSWERED_AT_ONCE: usize = 8;

impl Engine {
    /// Does what the peer said.
    pub(crate) fn handle_event(&mut self, turn: &mut Turn<'_>, peer: PeerKey, event: Event<'_>) {
        match event {
            Event::Established => self.handle_established(turn, peer),
            Event::Call(call) => self.handle_call(turn, peer, call),
            Event::Message { stream, tag, message, end } => {
                let key = CallKey::from_bits(tag);
                let direction = self.incoming_direction(key, peer, stream);
                self.note_there(peer, key, direction);
                self.handle_message(turn, peer, stream, key, direction, message, Shape::Message { end });
            }
            Event::Headers { tag, metadata, .. } => {
                let mut item = Item::Headers { metadata: Cow::Borrowed(metadata) };
                self.pass(turn, CallKey::from_bits(tag), Direction::Response, &mut item);
            }
            Event::Result { stream, tag, message, metadata, trailer } => {
                let key = CallKey::from_bits(tag);
                self.note_response(turn, key, trailer);
                self.note_there(peer, key, Direction::Response);
                self.handle_result(turn, peer, stream, key, message, metadata);
            }
            Event::Error { tag, code, execution, metadata, trailer, .. } => {
                let key = CallKey::from_bits(tag);
                self.note_response(turn, key, trailer);
                if trailer.is_some() && ![Code::Unimplemented, Code::Unavailable].contains(&code) {
                    self.note_there(peer, key, Direction::Response);
                }
                self.handle_error(turn, key, code, execution, metadata);
            }
            Event::HalfClose { tag, .. } => {
                self.pass(turn, CallKey::from_bits(tag), Direction::Request, &mut Item::HalfClose);
            }
            Event::Cancelled { tag, code, .. } => self.handle_cancelled(turn, CallKey::from_bits(tag), code),
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
            Event::Redial => self.redial(turn.now, peer),
            Event::GoAway { .. } => self.handle_go_away(turn, peer, "peer is draining"),
            Event::Closed { code, why } => {
                if let Some(peer) = self.peers.find_mut(peer) {
                    // Its checksums say so: it has read what was not written here.
                    peer.is_corrupted = code == Code::DataLoss && peer.connection.has_checksums();
                }
                self.lose_peer(turn, peer, &format!("peer closed: {code}: {why}"), false);
            }
        }
    }

    /// Does what follows from what was sent.
    pub(crate) fn handle_notice(&mut self, turn: &mut Turn<'_>, peer: PeerKey, notice: Notice) {
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

    fn handle_established(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        let own_clock = self.native.small.clock_id;
        let others =
            self.peers.iter().filter(|(other, _)| *other != key).filter_map(|(_, other)| claim_of(other));
        let Some(claim) = self.peers.find(key).and_then(claim_of) else { return };
        let name = reported_name(claim, others);
        let number = self.telemetry.peer(&name, claim.clock_id == own_clock);
        let Some(peer) = self.peers.find_mut(key) else { return };
        self.host_numbers.leave(std::mem::replace(&mut peer.telemetry, number));
        self.host_numbers.join(number);
        if let Some((remote, lane)) = peer.lane {
            self.lane_open(turn, remote, lane, key);
        }
    }

    // LIFE: 13 | begins on host B, with stations 4 to 7 there; a large message is put together first, in the receive
    // heap it is meant for | complete (d8) |
    fn handle_call(&mut self, turn: &mut Turn<'_>, peer: PeerKey, incoming: IncomingCall<'_>) {
        let stream = incoming.stream;
        let offered = self.peers.find(peer).and_then(|peer| peer.offered.get(&incoming.method)).cloned();
        if let Some((found, offered)) = self.peers.find(peer).zip(offered.as_ref())
            && let Err(status) = found.may_call(&self.peer_rules, service_of(&offered.path))
        {
            return self.refuse_stream(turn, peer, stream, &status);
        }
        if let Some(found) = self.peers.find_mut(peer)
            && let Err(full) = found.hold(&mut self.held, 0)
        {
            return self.refuse_stream(turn, peer, stream, &full.status());
        }
        let called = offered.as_ref().and_then(|offered| match offered.method {
            Some(method) => Some(Called { method, path: None }),
            None => self.method_called(&offered.path),
        });
        let Some(Called { method, path }) = called else {
            let path: String = offered.map_or_else(String::new, |offered| offered.path.to_string());
            let service = service_of(&path).to_owned();
            let fault = if self.serves_service(&service) {
                Fault::NoMethod { path }
            } else {
                unserved_here(self, &path).unwrap_or(Fault::NoRoute { what: service })
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
        match incoming.message {
            Some(message) => self.handle_message(turn, peer, stream, key, Direction::Request, message, shape),
            None => self.start(turn, key, Target::Here, &mut shape.into_item(None)),
        }
    }

    /// A message, or the beginning of one: small ones go on at once, large ones are put together where they will lie.
    #[allow(
        clippy::too_many_arguments,
        reason = "one caller per shape; a struct would only rename the fields"
    )]
    fn handle_message(
        &mut self,
        turn: &mut Turn<'_>,
        peer: PeerKey,
        stream: StreamId,
        key: CallKey,
        direction: Direction,
        message: Incoming<'_>,
        shape: Shape,
    ) {
        match message.body {
            Arriving::Whole(bytes) => {
                let charged = bytes.len() as u32 + shape.own_cost();
                let body = Body::Wire {
                    bytes: Cow::Borrowed(bytes),
                    encoding: message.encoding,
                    charged,
                    compressed: false,
                };
                self.pass_shape(turn, key, direction, shape, Some(body));
            }
            Arriving::Cut { total } => {
                self.begin_assembly(turn, peer, stream, key, direction, message.encoding, total, shape);
            }
        }
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

    // LIFE: 19 | read as at 12, and matched to the call | (k15, d16) | 7 response wire
    fn handle_result(
        &mut self,
        turn: &mut Turn<'_>,
        peer: PeerKey,
        stream: StreamId,
        key: CallKey,
        message: Option<Incoming<'_>>,
        metadata: &[u8],
    ) {
        let shape = Shape::Finish { metadata: metadata.to_vec() };
        match message {
            Some(message) => {
                self.handle_message(turn, peer, stream, key, Direction::Response, message, shape)
            }
            None => self.pass_shape(turn, key, Direction::Response, shape, None),
        }
    }

    fn handle_error(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        code: Code,
        execution: Execution,
        metadata: &[u8],
    ) {
        let metadata = Cow::Borrowed(metadata);
        let mut item = Item::Finish { code, execution, body: None, metadata };
        self.pass(turn, key, Direction::Response, &mut item);
    }

    fn handle_cancelled(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        self.cancel_as(turn, key, code);
    }

    /// The response begins to arrive: from here on time is response stack, and the server's part is known.
    fn note_response(&mut self, turn: &Turn<'_>, key: CallKey, trailer: Option<&Trailer>) {
        let arrived = self.arrived;
        let Some(call) = self.calls.find_mut(key) else { return };
        call.client_stamps.k15 = arrived;
        call.client_stamps.d16 = turn.now;
        if let Some(trailer) = trailer {
            call.server_stamps = ServerStamps::decode(trailer);
            call.server_measured = true;
        }
    }

    /// Something of an answer has come: the peer has the method of the call.
    #[inline]
    fn note_there(&mut self, peer: PeerKey, key: CallKey, direction: Direction) {
        let Self { peers, calls, .. } = self;
        if direction == Direction::Response
            && let Some(peer) = peers.find_mut(peer)
            && let Some(call) = calls.find(key)
        {
            peer.unproven.answered(call.method);
        }
    }

    fn incoming_direction(&self, key: CallKey, peer: PeerKey, stream: StreamId) -> Direction {
        match self.calls.find(key).map(|call| &call.client) {
            Some(ClientEnd::Peer { peer: p, stream: s }) if *p == peer && *s == stream => Direction::Request,
            _ => Direction::Response,
        }
    }

    fn handle_schema(&mut self, peer: PeerKey, index: MethodIndex, path: &str, fingerprints: [u64; 2]) {
        let answer = self.answer_to(path);
        let offered =
            Offered { path: path.into(), method: answer.0, fingerprints, answered: None, agreed: None };
        if let Some(found) = self.peers.find_mut(peer) {
            let (path, before) = (Arc::clone(&offered.path), found.offered.get(&index));
            let before = before.map(|before| Arc::clone(&before.path));
            if let Err(full) = found.take_offer(&mut self.held, index, offered) {
                let status = full.fault().status();
                let why = format!("method {} announced: {}", index.0, status.message());
                found.connection.close(status.code(), &why);
                found.closed_for = Some(PeerFault(why));
                return;
            }
            before.into_iter().for_each(|before| self.announcers.leave(&before, peer, index));
            self.announcers.enter(&path, peer, index);
        }
        self.answer(peer, index, answer);
    }

    /// It has changed who serves these: peers that announced a method of one are told what holds now. A method
    /// announced before its server came would otherwise stay on protobuf as long as the connection lives.
    ///
    /// Some at once, and the rest one after the other: peers may have announced many, and who serves what may change
    /// often.
    pub(crate) fn answer_again(&mut self, services: &[impl AsRef<str>]) {
        services.iter().for_each(|service| self.announcers.changed(service.as_ref()));
        (0..ANSWERED_AT_ONCE).for_each(|_| self.answer_next());
    }

    /// All peers are told what holds now of all they have announced.
    pub(crate) fn answer_all_again(&mut self) {
        self.announcers.all_changed();
        self.answer_again(&[""; 0]);
    }

    /// Those who have announced the next method are told what holds now.
    pub(crate) fn answer_next(&mut self) {
        let Some((path, announcers)) = self.announcers.next() else { return };
        let answer = self.answer_to(&path);
        for (peer, index) in announcers {
            self.answer(peer, index, answer.clone());
            self.transmit(peer);
        }
    }

    /// A peer has gone, with what it has announced.
    pub(crate) fn announces_no_more(&mut self, key: PeerKey, peer: &Peer) {
        for (index, offered) in &peer.offered {
            self.announcers.leave(&offered.path, key, *index);
        }
    }

    /// The method at a path a peer announced, and the types to answer with.
    fn answer_to(&self, path: &str) -> (Option<MethodKey>, Option<Arc<MethodTypes>>) {
        let method = self.registry.key_of(path);
        (method, self.served_types(method))
    }

    fn answer(
        &mut self,
        peer: PeerKey,
        index: MethodIndex,
        (method, types): (Option<MethodKey>, Option<Arc<MethodTypes>>),
    ) {
        let fingerprints =
            types.as_ref().map_or([0; 2], |types| [types.input.fingerprint(), types.output.fingerprint()]);
        let Some(peer) = self.peers.find_mut(peer) else { return };
        let Some(offered) = peer.offered.get_mut(&index) else { return };
        offered.method = method;
        // Those it holds are kept when they are gone here: what it sends by them can still be read.
        offered.agreed = types
            .filter(|types| types.input.fingerprint() == offered.fingerprints[0])
            .or(offered.agreed.take());
        // What was said last holds until it changes.
        if offered.answered.replace(fingerprints) != Some(fingerprints) {
            let [request, response] = fingerprints;
            let _ = peer.connection.answer_schema(index, request != 0, request, response);
        }
    }

    /// What the sessions serving a method have, if they have all the same.
    fn served_types(&self, method: Option<MethodKey>) -> Option<Arc<MethodTypes>> {
        let of = |types: &MethodTypes| [types.input.fingerprint(), types.output.fingerprint()];
        let method = method?;
        let here = self.registry.servers(method).iter().map(|server| &server.types);
        let mut all = here.chain(self.shards.types(method, self.registry.path(method)));
        let first = all.next()?;
        all.all(|types| of(types) == of(first)).then(|| Arc::clone(first))
    }

    fn handle_go_away(&mut self, turn: &mut Turn<'_>, key: PeerKey, why: &str) {
        let Some(lane) = self.peers.find(key).and_then(|peer| peer.lane) else { return };
        self.lane_lost(turn, lane.0, lane.1, key, why, false);
    }

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

    /// The instant matters to nobody else: a connection's timers are kept in the engine's table.
    pub(crate) fn peer_timeout(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        let Some(peer) = self.peers.find_mut(key) else { return };
        peer.timer_at = None;
        let outcome = peer.connection.handle_timeout(turn.now);
        if let Err(error) = outcome {
            self.peer_lost(turn, key, &error.to_string());
        } else {
            self.settle_peer(turn, key);
        }
    }
}
