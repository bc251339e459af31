//! Handing items to a peer: as frames of a connection.

use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::convert::{WireBody, for_wire};
use crate::convert_error::{ConvertError, conversion_fault, untyped};
use crate::ends::{Blocker, ClientSide, EndOfCall, ItemWay, Opens, PeerStream, Refusal, ServerSide};
use crate::engine::{Engine, Turn};
use crate::limits::{METHODS_LEARNED, METHODS_UNPROVEN};
use crate::peer::{Announced, Lent};
use crate::records::record_served;
use crate::registry::{Form, MethodKey, MethodTypes};
use crate::source::source_of;
use crate::table::Key;
use crate::unproven::Whose;
use crate::vouching::Maker;
use crate::{CallKey, PeerKey};
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Fault, Instant, Status, VouchedCaller};
use trunkline_native::{
    Body as FrameBody, CallerNumber, Connection, Failure, MethodIndex, NewCall, Outcome, Payload, Refused,
    SharedRange, StreamId,
};

/// A connection that has few numbers of methods left is replaced no more often than this.
const RENEW_NS: u64 = 30_000_000_000;

impl Opens for PeerKey {
    // LIFE: 10 | framed and queued at the connection, linear or protobuf, copied or lent | lane, window, stream (d3)
    // |
    /// Opens a call at a peer.
    fn open(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        key: CallKey,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let peer = *self;
        let Item::Open { metadata, end, .. } = &*opening else {
            return Err(Refusal::Fault(Fault::HandlerProtocol { why: "a call must start with its opening" }));
        };
        let announced = match engine.announce(turn.now, key, peer) {
            Ok(announced) => announced,
            Err(unsent) => return Err(engine.refusal_of(unsent, peer, Direction::Request)),
        };
        let deadline = engine.calls.find(key).map_or(Deadline::NONE, |call| call.deadline);
        let call = NewCall {
            tag: key.to_bits(),
            method: announced.index,
            caller: engine.name_caller(key, peer),
            deadline,
            stamps: true,
            metadata,
            end: *end,
        };
        let sent = engine.send(
            turn,
            key,
            Direction::Request,
            peer,
            announced.agreed,
            opening.body(),
            |connection, now, message| connection.open_call(now, &call, message),
        );
        match sent {
            Ok(stream) => {
                engine.opened(turn, key, peer, stream);
                Ok(())
            }
            Err(unsent) => Err(engine.refusal_of(unsent, peer, Direction::Request)),
        }
    }
}

impl EndOfCall for PeerStream {
    // LIFE: 18 | response framed with the server's stamps and queued, then written as at 11 | trailer; when it is
    // written (k14) | 8 response processing + stack, B's part
    /// Sends a later item of a call along the stream it has at a peer.
    fn deliver(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let (ItemWay { key, direction }, &Self { peer, stream }) = (way, self);
        if item.is_packed() {
            return engine
                .hand_over_unpacked(direction, item, |engine, plain| self.deliver(engine, turn, way, plain));
        }
        let agreed = engine.agreed(key, direction, peer, stream);
        let trailer = matches!(item, Item::Finish { .. }).then(|| engine.trailer(turn, key));
        let sent =
            engine.send(turn, key, direction, peer, agreed, item.body(), |connection, now, message| {
                match &*item {
                    Item::Message { end, .. } => match message {
                        Some(message) => connection.send_message(now, stream, message, *end),
                        None => Ok(()),
                    },
                    Item::HalfClose => connection.half_close(now, stream),
                    Item::Headers { metadata } => connection.send_headers(now, stream, metadata),
                    Item::Finish { code: Code::Ok, metadata, .. } => {
                        let outcome = Outcome { trailer: trailer.as_ref(), metadata };
                        connection.send_result(now, stream, &outcome, message)
                    }
                    Item::Finish { code, execution, metadata, .. } => {
                        let (code, execution) = (*code, *execution);
                        connection.send_error(
                            now,
                            stream,
                            &Failure { code, execution, metadata, trailer: trailer.as_ref() },
                        )
                    }
                    Item::Open { .. } => Err(Refused::OutOfPlace),
                }
            });
        match sent {
            Ok(()) => {
                if let Item::Finish { code, .. } = item {
                    record_served(engine, key, *code, turn.now);
                    engine.forget(key);
                }
                Ok(())
            }
            // Its answer is here, or on its way in: what of the request comes after it is nobody's business.
            Err(Unsent::Refused(Refused::NoStream | Refused::Answered))
                if direction == Direction::Request =>
            {
                engine.drop_unwanted(key, direction, item);
                Ok(())
            }
            Err(unsent) => Err(engine.refusal_of(unsent, peer, direction)),
        }
    }

    fn credit(&self, engine: &mut Engine, _key: CallKey, bytes: u32, _over: bool) {
        if let Some(found) = engine.peers.find_mut(self.peer) {
            found.connection.grant(self.stream, bytes);
        }
        engine.transmit(self.peer);
    }

    /// What still arrives on the stream is nobody's.
    fn release(&self, engine: &mut Engine, _key: CallKey) {
        engine.abandon_assembly(self.peer, self.stream);
    }
}

impl ClientSide for PeerStream {
    /// What waits on its stream is given up.
    fn finish(&self, engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, finish: &mut Item<'_>) {
        let &Self { peer, stream } = self;
        if let Item::Finish { code, execution, metadata, .. } = &finish
            && let Some(found) = engine.peers.find_mut(peer)
        {
            let failure = Failure { code: *code, execution: *execution, metadata, trailer: None };
            let _ = found.connection.abort(turn.now, stream, &failure);
            engine.transmit(peer);
            record_served(engine, key, *code, turn.now);
        }
        engine.forget(key);
    }
}

impl ServerSide for PeerStream {
    fn cancel(&self, engine: &mut Engine, turn: &mut Turn<'_>, _key: CallKey, code: Code) {
        let &Self { peer, stream } = self;
        if let Some(found) = engine.peers.find_mut(peer) {
            let _ = found.connection.cancel(turn.now, stream, code);
        }
        engine.transmit(peer);
    }
}

impl Engine {
    /// Refuses a stream a peer opened, before it became a call.
    pub(crate) fn refuse_stream(
        &mut self,
        turn: &mut Turn<'_>,
        peer: PeerKey,
        stream: StreamId,
        status: &Status,
    ) {
        let trunkline_grpc::Outcome { code, execution, metadata } =
            trunkline_grpc::Outcome::of(&self.said_here(status));
        if let Some(found) = self.peers.find_mut(peer) {
            let failure = Failure { code, execution, metadata: &metadata, trailer: None };
            let _ = found.connection.abort(turn.now, stream, &failure);
        }
        self.transmit(peer);
    }

    /// A connection no longer reads a send-heap range: its block goes back, and the sender may send as much again.
    pub(crate) fn body_done(&mut self, token: u64) {
        let Some(lent) = self.lent.remove(Key::from_bits(token)) else { return };
        self.give_back(lent.session, lent.block);
        self.credit_sender(lent.call, lent.direction, lent.window_bytes);
        if let Some(session) = self.sessions.find_mut(lent.session) {
            session.lent =
                self.invariants.left(session.lent.checked_sub(1), "a block is lent before it comes back");
        }
        self.retire_if_unlent(lent.session);
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

    /// Converts a body, lends or copies it to the connection, and runs the command that queues the frame.
    #[allow(
        clippy::too_many_arguments,
        reason = "one path for every frame; the alternative is the same body five times"
    )]
    fn send<T>(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        peer_key: PeerKey,
        agreed: bool,
        body: Option<&Body<'_>>,
        command: impl FnOnce(&mut Connection, trunkline_call::Instant, Option<Payload<'_>>) -> Result<T, Refused>,
    ) -> Result<T, Unsent> {
        let Some(peer) = self.peers.find_mut(peer_key) else {
            return Err(Unsent::Fault(self.connection_gone(key)));
        };
        let Some(body) = body else {
            let done = command(&mut peer.connection, turn.now, None).map_err(Unsent::Refused)?;
            self.transmit(peer_key);
            return Ok(done);
        };
        let Self { calls, scratch, limits, .. } = self;
        let call = calls.find(key).ok_or(Unsent::Fault(Fault::Ended))?;
        let types = call.types_sent(direction).ok_or_else(|| Unsent::Fault(untyped()))?;
        // What has a checksum must not change any more: it is copied.
        let inline_max = if peer.connection.has_checksums() { u32::MAX } else { limits.inline_body_bytes };
        let (wire, encoding) = for_wire(turn.heaps, scratch, types.of(direction), agreed, inline_max, body)
            .map_err(Unsent::Convert)?;
        let (frame, token) = match wire {
            WireBody::Inline(bytes) => (FrameBody::Inline(bytes), None),
            WireBody::Shared { session, payload, span } => {
                let (block, window_bytes) = (payload.span, payload.window_bytes());
                let lent = Lent { session, span, block, window_bytes, call: key, direction };
                let token = self.lent.insert(lent);
                let range = SharedRange { token: token.to_bits(), offset: 0, len: span.len };
                (FrameBody::Shared(range), Some(token))
            }
        };
        let sent = command(&mut peer.connection, turn.now, Some(Payload { encoding, body: frame }));
        match (&sent, token) {
            (Ok(_), Some(_)) => self.note_lent(body),
            (Ok(_), None) => self.note_copied(key, direction, body),
            (Err(_), Some(token)) => drop(self.lent.remove(token)),
            (Err(_), None) => {}
        }
        if sent.is_ok()
            && let Some(call) = self.calls.find_mut(key)
        {
            call.half(direction).count(body.len());
        }
        self.transmit(peer_key);
        sent.map_err(Unsent::Refused)
    }

    fn note_lent(&mut self, body: &Body<'_>) {
        if let Body::Lent { session, .. } = body
            && let Some(session) = self.sessions.find_mut(*session)
        {
            session.lent += 1;
        }
    }

    fn note_copied(&mut self, key: CallKey, direction: Direction, body: &Body<'_>) {
        if let Some((session, payload)) = body.lent() {
            self.give_back(session, payload.span);
            self.credit_sender(key, direction, payload.window_bytes());
        } else if let Body::Wire { charged, .. } = body {
            self.credit_sender(key, direction, *charged);
        } else if let Body::Crossed(crossed) = body {
            self.credit_sender(key, direction, crossed.charged);
            self.shards.used(crossed);
        }
    }

    fn opened(&mut self, turn: &Turn<'_>, key: CallKey, peer: PeerKey, stream: StreamId) {
        let telemetry = self.peers.find(peer).map(|peer| peer.telemetry);
        if let Some(call) = self.calls.find_mut(key) {
            call.server = ServerEnd::Peer { peer, stream };
            call.handed_over = true;
            call.peer_index = telemetry.unwrap_or(call.peer_index);
            call.client_stamps.d3 = turn.now;
        }
    }

    /// The number of the call's method on this connection, announced now if it is new there.
    fn announce(&mut self, now: Instant, key: CallKey, peer_key: PeerKey) -> Result<Announced, Unsent> {
        let Self { calls, peers, .. } = self;
        let call = calls.find(key).ok_or(Unsent::Fault(Fault::Ended))?;
        let types = call.types_sent(Direction::Request).ok_or_else(|| Unsent::Fault(untyped()))?;
        let fingerprints = [types.input.fingerprint(), types.output.fingerprint()];
        if call.path.is_some() {
            // Its method stands for others, too, and has no number that would mean this one.
            let limit = self.limits.methods_learned_per_service as u64;
            return Err(Unsent::Fault(Fault::Limit { name: METHODS_LEARNED, limit }));
        }
        let method = (call.method, fingerprints);
        let Some(peer) = peers.find(peer_key) else {
            return Err(Unsent::Fault(self.connection_gone(key)));
        };
        if let Some(index) = peer.announced.get(&method).copied() {
            return Ok(Announced { index, agreed: peer.takes_linear(index, fingerprints[0]) });
        }
        let path = Arc::clone(&types.path);
        let index = self.announce_new(now, key, peer_key, method, &path)?;
        Ok(Announced { index, agreed: false })
    }

    /// Announces a method that is new on a connection. Who makes calls of what is not there has half of the numbers.
    #[cold]
    fn announce_new(
        &mut self,
        now: Instant,
        key: CallKey,
        peer_key: PeerKey,
        method: (MethodKey, [u64; 2]),
        path: &str,
    ) -> Result<MethodIndex, Unsent> {
        self.renew_in_time(now, peer_key);
        let whose = Whose { client: (&*source_of(self, key)).into(), service: Box::default() };
        let Some(peer) = self.peers.find_mut(peer_key) else {
            return Err(Unsent::Fault(self.connection_gone(key)));
        };
        let (_, max) = peer.connection.methods_announced();
        // An answer takes a while: who has many methods and calls them all at once is to be told apart from others.
        if !peer.unproven.has_room(&whose, 2 * max) {
            return Err(Unsent::Fault(Fault::Limit { name: METHODS_UNPROVEN, limit: max as u64 / 2 }));
        }
        let [request, response] = method.1;
        let index = peer.connection.announce_schema(path, request, response).map_err(Unsent::Refused)?;
        peer.announced.insert(method, index);
        peer.unproven.bring(method.0, whose);
        Ok(index)
    }

    /// Numbers of methods are never given back: where a quarter is left another connection is dialled, which takes this
    /// one's place and begins anew. If it does not come about, it is tried again.
    fn renew_in_time(&mut self, now: Instant, key: PeerKey) {
        let Some(peer) = self.peers.find_mut(key) else { return };
        let (announced, max) = peer.connection.methods_announced();
        if announced < max - max / 4 || now < peer.renews_at {
            return;
        }
        peer.is_asked_to_redial = false;
        self.redial(now, key);
        if let Some(peer) = self.peers.find_mut(key).filter(|peer| peer.is_asked_to_redial) {
            peer.renews_at = now.plus_ns(RENEW_NS);
        }
    }

    /// The number of whoever makes a call, named now if that is new on this connection. Only the operator's own hosts
    /// are told.
    fn name_caller(&mut self, key: CallKey, peer: PeerKey) -> Option<CallerNumber> {
        let Self { peers, calls, sessions, grpc, .. } = self;
        let peer = peers.find_mut(peer).filter(|peer| peer.is_host && peer.connection.names_callers())?;
        let call = calls.find(key)?;
        let client = match &call.client {
            ClientEnd::Attempt { call, .. } => &calls.find(*call)?.client,
            client => client,
        };
        match client {
            ClientEnd::Session { session, .. } => {
                let maker = sessions.find(*session)?;
                let named = Maker::Session(*session, maker.caller_revision);
                peer.callers_said.number(named, &mut peer.connection, || Some(Arc::clone(&maker.caller)))
            }
            ClientEnd::Grpc { peer: client, .. } => {
                let named = Maker::Grpc(*client);
                peer.callers_said.number(named, &mut peer.connection, || {
                    let identity = grpc.find(*client)?.identity.proven().into();
                    Some(Arc::new(VouchedCaller { identity, ..VouchedCaller::default() }.within_bounds()))
                })
            }
            // Nobody makes a copy, and what came from elsewhere is not vouched for here.
            ClientEnd::Attempt { .. }
            | ClientEnd::Mirror { .. }
            | ClientEnd::Peer { .. }
            | ClientEnd::R2p2 { .. }
            | ClientEnd::Shard { .. } => None,
        }
    }

    /// Whether linear messages may pass in this direction of a call.
    fn agreed(&self, key: CallKey, direction: Direction, peer: PeerKey, stream: StreamId) -> bool {
        let (Some(call), Some(peer)) = (self.calls.find(key), self.peers.find(peer)) else { return false };
        match direction {
            Direction::Request => {
                let Some(types) = call.sender_types(Direction::Request) else { return false };
                let fingerprints = [types.input.fingerprint(), types.output.fingerprint()];
                let index = peer.announced.get(&(call.method, fingerprints));
                index.is_some_and(|index| peer.takes_linear(*index, fingerprints[0]))
            }
            Direction::Response => {
                let output = call.sender_types(Direction::Response).map(|types| types.output.fingerprint());
                // The peer was told when it announced the method; a server that came later has not been spoken of.
                let same = output.is_some() && call.offered.map(|[_, response]| response) == output;
                same && peer.connection.agreed_on(stream)
            }
        }
    }

    /// The server's stamps. The connection says in them when they leave.
    fn trailer(&mut self, turn: &Turn<'_>, key: CallKey) -> trunkline_native::Trailer {
        let Some(call) = self.calls.find_mut(key) else { return [0; trunkline_call::SERVER_TRAILER_BYTES] };
        call.server_stamps.k14 = turn.now;
        trunkline_telemetry::settle(&call.server_stamps).encode()
    }

    /// What it means for an item that its frame was not queued.
    fn refusal_of(&self, unsent: Unsent, peer: PeerKey, direction: Direction) -> Refusal {
        match unsent {
            Unsent::Refused(refused) => self.refusal(refused, peer),
            Unsent::Fault(fault) => Refusal::Fault(fault),
            Unsent::Convert(error) => Refusal::Fault(conversion_fault(error, direction)),
        }
    }

    /// The connection a call was to go on is not there any more.
    pub(crate) fn connection_gone(&self, key: CallKey) -> Fault {
        let Some(call) = self.calls.find(key) else { return Fault::Ended };
        let remote = call.placed.and_then(|placed| self.remotes.find(placed.endpoint));
        let endpoint = remote.map_or_else(|| "its endpoint".to_owned(), |remote| remote.endpoint.to_string());
        Fault::ConnectionLost { endpoint, executed: call.execution() }
    }

    /// What a refused command means for its item.
    fn refusal(&self, refused: Refused, peer: PeerKey) -> Refusal {
        let limit = |name, limit: u32| Refusal::Fault(Fault::Limit { name, limit: limit.into() });
        match refused {
            Refused::QueueFull { .. } | Refused::Streams { .. } => Refusal::Blocked(Blocker::Peer(peer)),
            Refused::StreamQueueFull { .. } => Refusal::Blocked(Blocker::Stream),
            Refused::MessageTooLarge { limit: most } => {
                limit("bytes of a message (limits.message_bytes of the daemon at the other end)", most)
            }
            Refused::MetadataTooLarge { limit: most } => {
                limit("bytes of metadata (fixed, by the daemon at the other end)", most)
            }
            Refused::Methods { limit: most } => limit("methods of one connection (fixed)", most),
            other => {
                let endpoint = self.peers.find(peer).map_or_else(String::new, |peer| peer.label.clone());
                Refusal::Fault(Fault::Unreachable { endpoint, why: other.to_string() })
            }
        }
    }
}

/// Why a frame was not queued.
enum Unsent {
    Refused(Refused),
    Convert(ConvertError),
    Fault(Fault),
}

impl Call {
    /// The types of the session that sends in this direction, or of a call that is forwarded.
    pub fn sender_types(&self, direction: Direction) -> Option<Arc<MethodTypes>> {
        self.types_sent(direction).cloned()
    }

    pub fn types_sent(&self, direction: Direction) -> Option<&Arc<MethodTypes>> {
        match direction {
            Direction::Request => match &self.client {
                ClientEnd::Session { types, .. }
                | ClientEnd::Attempt { types, .. }
                | ClientEnd::Mirror { types, .. } => Some(types),
                ClientEnd::Grpc { types, .. } | ClientEnd::Shard { types, .. } => types.as_ref(),
                ClientEnd::Peer { .. } | ClientEnd::R2p2 { .. } => None,
            },
            Direction::Response => match &self.server {
                ServerEnd::Session { types, .. } | ServerEnd::Shard { types, .. } => Some(types),
                ServerEnd::Nobody
                | ServerEnd::Cluster { .. }
                | ServerEnd::Attempts
                | ServerEnd::Peer { .. }
                | ServerEnd::Grpc { .. }
                | ServerEnd::R2p2 { .. } => None,
            },
        }
    }

    /// The form of the messages the end has that sends in this direction, as far as it is known with the call; linear
    /// ones of a peer have the type this host told it of.
    pub fn form_sent(&self, direction: Direction) -> Option<&Form> {
        let types = match (direction, &self.client) {
            (Direction::Request, ClientEnd::Peer { .. } | ClientEnd::R2p2 { .. }) => self.agreed.as_ref(),
            // What it is follows from the gateway's settings.
            (Direction::Request, ClientEnd::Grpc { .. }) => None,
            _ => self.types_sent(direction),
        };
        types.map(|types| types.of(direction))
    }

    /// Whether messages stream in this direction.
    pub fn streams(&self, direction: Direction) -> bool {
        let types = self.types_sent(direction).or_else(|| self.types_sent(direction.opposite()));
        types.is_some_and(|types| match direction {
            Direction::Request => types.pattern.client_streams(),
            Direction::Response => types.pattern.server_streams(),
        })
    }

    /// Those of the end the direction leads to.
    pub fn receiver_types(&self, direction: Direction) -> Option<Arc<MethodTypes>> {
        self.sender_types(direction.opposite())
    }
}

impl MethodTypes {
    /// The form of messages in this direction.
    pub fn of(&self, direction: Direction) -> &Form {
        match direction {
            Direction::Request => &self.input,
            Direction::Response => &self.output,
        }
    }
}
