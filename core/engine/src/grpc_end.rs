//! Handing items to a gRPC peer: as heads, messages and trailers of a stream.

use crate::call::{Body, Call, ClientEnd, Direction, Item};
use crate::convert::{WireBody, for_wire};
use crate::convert_error::conversion_fault;
use crate::due::Due;
use crate::ends::{Blocker, ClientSide, EndOfCall, ItemWay, Opens, Refusal, ServerSide, WebStream};
use crate::engine::{Engine, Turn};
use crate::grpc_frame::{FramedMessage, behind_prefix, framed, long_frame};
use crate::grpc_stream::GrpcStream;
use crate::limits::{STALLED, UNSENT};
use crate::peer_end::untyped;
use crate::records::record_served;
use crate::{CallKey, GrpcKey};
use bytes::Bytes;
use http::uri::Scheme;
use std::borrow::Cow;
use trunkline_call::entry::MessageCompression;
use trunkline_call::{Code, Deadline, Encoding as MessageEncoding, Execution, Fault, Instant};
use trunkline_grpc::compress::{Accepts, Encoding};
use trunkline_grpc::request::{self, Outgoing};
use trunkline_grpc::{Command, Outcome, Reason, StreamTag, response};

/// What a connection counts is the sum of what its streams do.
const QUEUED_AGREES: &str = "a gRPC connection has queued at least what one of its streams has";
const ARRIVING_AGREES: &str = "a gRPC connection holds at least what arrives on one of its streams";
const REPLAY_AGREES: &str = "a gRPC connection keeps at least what one of its streams would send again";
/// A connection's streams are not looked at more often than this.
const SWEEP_NS_MIN: u64 = 50_000_000;

impl Opens for GrpcKey {
    /// Opens a call at a gRPC server.
    fn open(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        key: CallKey,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let peer = *self;
        let Item::Open { metadata, body, end } = &*opening else {
            return Err(Refusal::Fault(Fault::HandlerProtocol { why: "a call must start with its opening" }));
        };
        if let Some(blocker) = engine.http_room(peer, None) {
            return Err(Refusal::Blocked(blocker));
        }
        let (metadata, end) = (metadata.to_vec(), *end);
        let encoding = engine.request_encoding(key, peer, &metadata);
        let message = body.as_ref().map(|body| engine.frame(turn, key, Direction::Request, encoding, body));
        let message = message.transpose().map_err(Refusal::Fault)?;
        let opened = engine.open_stream(turn, key, peer, &metadata, end && message.is_none());
        let tag = opened.map_err(Refusal::Fault)?;
        // An attempt's request is kept with its call.
        if !engine.is_attempt(key) {
            engine.keep(peer, tag, metadata);
        }
        if let Some(message) = message {
            engine.send_message(key, Direction::Request, peer, tag, message, end, opening.body());
        }
        Ok(())
    }
}

impl EndOfCall for WebStream {
    /// Sends a later item of a call along the stream it has at a gRPC peer.
    fn deliver(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let (ItemWay { key, direction }, &Self { peer, tag }) = (way, self);
        let stream = engine.grpc_stream(peer, tag);
        let is_heard = |stream: &&mut GrpcStream| direction == Direction::Response || !stream.incoming.over;
        let Some(stream) = stream.filter(is_heard) else {
            engine.drop_unwanted(key, direction, item);
            return Ok(());
        };
        let encoding = stream.outgoing.encoding;
        if let Some(blocker) = engine.http_room(peer, Some(tag)) {
            return Err(Refusal::Blocked(blocker));
        }
        let message = item.body().map(|body| engine.frame(turn, key, direction, encoding, body));
        let message = message.transpose().map_err(Refusal::Fault)?;
        if direction == Direction::Response && message.is_some() {
            engine.note_answered(key);
        }
        match &*item {
            Item::Message { end, .. } => {
                engine.answer_head(peer, tag, direction, &[]);
                if let Some(message) = message {
                    engine.send_message(key, direction, peer, tag, message, *end, item.body());
                }
            }
            Item::HalfClose => engine.half_close(peer, tag),
            Item::Headers { metadata } => engine.answer_head(peer, tag, direction, metadata),
            Item::Finish { code, execution, metadata, .. } => {
                if *code == Code::Ok && message.is_none() && engine.lacks_message(key, direction) {
                    let why = "the method returns one message and the handler returned none";
                    return Err(Refusal::Fault(Fault::HandlerProtocol { why }));
                }
                if let Some(message) = message {
                    engine.answer_head(peer, tag, direction, &[]);
                    engine.send_message(key, direction, peer, tag, message, false, item.body());
                }
                let outcome =
                    Outcome { code: *code, execution: *execution, metadata: Cow::Borrowed(metadata) };
                engine.finish_stream(peer, tag, &outcome);
                engine.served_grpc(turn.now, key, peer, tag, *code);
            }
            Item::Open { .. } => {
                return Err(Refusal::Fault(Fault::HandlerProtocol { why: "a call opens once" }));
            }
        }
        Ok(())
    }

    fn credit(&self, engine: &mut Engine, _key: CallKey, bytes: u32, _over: bool) {
        engine.grant_grpc(self.peer, self.tag, bytes);
    }

    /// The call of a stream is over. A stream whose bytes have all left is gone with it.
    fn release(&self, engine: &mut Engine, _key: CallKey) {
        let &Self { peer, tag } = self;
        let Some(found) = engine.grpc_peers.find_mut(peer) else { return };
        let Some(stream) = found.streams.get_mut(&tag) else { return };
        let (unreleased, held) = (std::mem::take(&mut stream.incoming.unreleased), stream.incoming.held());
        let made = found.remote.is_some();
        let over = stream.outgoing.ended && (!made || stream.incoming.over);
        let answered = made && stream.incoming.over;
        stream.call = None;
        stream.incoming.discard();
        found.arriving_bytes =
            engine.invariants.left(found.arriving_bytes.checked_sub(held), ARRIVING_AGREES);
        found.settle(&mut engine.held);
        engine.release_bytes(peer, tag, unreleased);
        if !over {
            engine.reset(peer, tag, if answered { Reason::NO_ERROR } else { Reason::CANCEL });
        } else if engine.grpc_stream(peer, tag).is_some_and(|stream| stream.outgoing.queued_bytes == 0) {
            engine.remove_grpc_stream(peer, tag);
        }
    }
}

impl ClientSide for WebStream {
    fn finish(&self, engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, finish: &mut Item<'_>) {
        let &Self { peer, tag } = self;
        if let Item::Finish { code, execution, metadata, .. } = &finish {
            let outcome = Outcome { code: *code, execution: *execution, metadata: Cow::Borrowed(metadata) };
            match code {
                // What waits for the client to read comes too late.
                Code::DeadlineExceeded => engine.cut_stream_off(peer, tag, &outcome),
                _ => engine.finish_stream(peer, tag, &outcome),
            }
            engine.served_grpc(turn.now, key, peer, tag, *code);
        }
    }
}

impl ServerSide for WebStream {
    /// Its stream is reset when the call leaves it.
    fn cancel(&self, _engine: &mut Engine, _turn: &mut Turn<'_>, _key: CallKey, _code: Code) {}
}

impl Engine {
    /// A call of a client is served; what of its answer has not left leaves before its deadline, or not at all.
    fn served_grpc(&mut self, now: Instant, key: CallKey, peer: GrpcKey, tag: StreamTag, code: Code) {
        let Some(call) = self.calls.find_mut(key) else { return };
        call.server_stamps.k14 = now;
        if let Some(at) = call.deadline.instant() {
            let deadline = call.deadline;
            let stream = self.grpc_stream(peer, tag).filter(|stream| stream.outgoing.queued_bytes > 0);
            if let Some(stream) = stream {
                stream.deadline = deadline;
                self.sweep_by(peer, at);
            }
        }
        record_served(self, key, code, now);
        self.forget(key);
    }

    /// The answer to a request has ended: the connection drops what of the request has not left and takes no more of
    /// it, without a word for each byte. The call, if there still is one.
    pub(crate) fn stop_asking(&mut self, peer: GrpcKey, tag: StreamTag) -> Option<CallKey> {
        let found = self.grpc_peers.find_mut(peer).filter(|found| found.remote.is_some())?;
        let stream = found.streams.get_mut(&tag)?;
        let (bytes, credit) = stream.outgoing.give_up();
        found.queued_bytes = self.invariants.left(found.queued_bytes.checked_sub(bytes), QUEUED_AGREES);
        let call = stream.call;
        found.settle(&mut self.held);
        self.touch(peer);
        if let Some(key) = call {
            self.credit_sender(key, Direction::Request, credit);
        }
        call
    }

    /// Ends a stream at once.
    fn reset(&mut self, peer: GrpcKey, tag: StreamTag, reason: Reason) {
        if let Some(stream) = self.remove_grpc_stream(peer, tag) {
            self.release_bytes(peer, tag, stream.incoming.unreleased);
            self.http(peer, Command::Reset { stream: tag, reason });
        }
    }

    /// Takes a stream out of all books.
    pub(crate) fn remove_grpc_stream(&mut self, key: GrpcKey, tag: StreamTag) -> Option<Box<GrpcStream>> {
        let peer = self.grpc_peers.find_mut(key)?;
        let stream = peer.streams.remove(&tag)?;
        let queued_bytes = peer.queued_bytes.checked_sub(stream.outgoing.queued_bytes);
        peer.queued_bytes = self.invariants.left(queued_bytes, QUEUED_AGREES);
        let arriving_bytes = peer.arriving_bytes.checked_sub(stream.incoming.held());
        peer.arriving_bytes = self.invariants.left(arriving_bytes, ARRIVING_AGREES);
        let replay_bytes = stream.replay.as_ref().map_or(0, |replay| replay.bytes);
        peer.replay_bytes = self.invariants.left(peer.replay_bytes.checked_sub(replay_bytes), REPLAY_AGREES);
        peer.settle(&mut self.held);
        self.touch(key);
        Some(stream)
    }

    /// Bytes given to the connection have left.
    pub(crate) fn handle_sent(&mut self, turn: &mut Turn<'_>, peer: GrpcKey, tag: StreamTag, bytes: usize) {
        let window = u64::from(self.limits.stream_window_bytes);
        let Some(found) = self.grpc_peers.find_mut(peer) else { return };
        let Some(stream) = found.streams.get_mut(&tag) else { return };
        let bytes = (bytes as u64).min(stream.outgoing.queued_bytes);
        let credit = stream.outgoing.sent(bytes);
        found.queued_bytes = self.invariants.left(found.queued_bytes.checked_sub(bytes), QUEUED_AGREES);
        let (call, left) = (stream.call, stream.outgoing.queued_bytes);
        found.settle(&mut self.held);
        let direction = if found.remote.is_some() { Direction::Request } else { Direction::Response };
        self.touch(peer);
        match call {
            None if left == 0 => drop(self.remove_grpc_stream(peer, tag)),
            None => {}
            Some(key) => {
                self.credit_sender(key, direction, credit);
                if left < window {
                    self.unblock(turn, key, direction);
                }
            }
        }
    }

    /// A request made here is at the socket.
    pub(crate) fn handle_written(&mut self, peer: GrpcKey, tag: StreamTag, at: Instant) {
        let call = self.grpc_stream(peer, tag).and_then(|stream| stream.call);
        if let Some(call) = call.and_then(|key| self.calls.find_mut(key)) {
            call.client_stamps.d4 = at;
        }
    }

    /// What a new message for this connection, or this stream of it, has to wait for.
    fn http_room(&mut self, key: GrpcKey, tag: Option<StreamTag>) -> Option<Blocker> {
        let peer = self.grpc_peers.find(key)?;
        let queued =
            tag.and_then(|tag| peer.streams.get(&tag)).map_or(0, |stream| stream.outgoing.queued_bytes);
        if queued >= u64::from(self.limits.stream_window_bytes) {
            return Some(Blocker::Stream);
        }
        (!self.grpc_has_room(key)).then_some(Blocker::Grpc(key))
    }

    /// A body as protobuf, behind its prefix: as it came, if it came in this encoding, and compressed if its sender has
    /// not forbidden it.
    fn frame(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        encoding: Encoding,
        body: &Body<'_>,
    ) -> Result<FramedMessage, Fault> {
        if let Some((packing, bytes)) = body.packed() {
            let message_bytes = bytes.len() as u32;
            if packing.encoding == encoding {
                return Ok(FramedMessage { bytes: behind_prefix(bytes, packing.compressed), message_bytes });
            }
            let plain = self.unpack(direction, packing, bytes)?;
            return Ok(FramedMessage { bytes: framed(&plain, encoding), message_bytes: plain.len() as u32 });
        }
        let encoding = match body.compression() {
            MessageCompression::Plain => Encoding::Identity,
            MessageCompression::Unsaid | MessageCompression::Compressed => encoding,
        };
        let call = self.calls.find(key).ok_or(Fault::Ended)?;
        // The answer to a call that is forwarded has no sender whose types are known here.
        let types = call.sender_types(direction).or_else(|| call.receiver_types(direction));
        let types = types.ok_or_else(untyped)?;
        let sent = types.of(direction);
        if encoding == Encoding::Identity
            && let Some(long) = long_frame(turn.heaps, &mut self.scratch, sent, body)
        {
            return long.map_err(|error| conversion_fault(error, direction));
        }
        match for_wire(turn.heaps, &mut self.scratch, sent, false, u32::MAX, body) {
            Ok((WireBody::Inline(_), MessageEncoding::Linear)) => Err(untyped()),
            Ok((WireBody::Inline(message), MessageEncoding::Protobuf)) => {
                Ok(FramedMessage { bytes: framed(message, encoding), message_bytes: message.len() as u32 })
            }
            Ok((WireBody::Shared { .. }, _)) => {
                Err(Fault::HandlerProtocol { why: "a message too long to copy" })
            }
            Err(error) => Err(conversion_fault(error, direction)),
        }
    }

    /// Gives a message to the connection; its block goes back to its session.
    #[allow(clippy::too_many_arguments, reason = "a message and where it goes, from three callers")]
    fn send_message(
        &mut self,
        key: CallKey,
        direction: Direction,
        peer: GrpcKey,
        tag: StreamTag,
        frame: FramedMessage,
        end: bool,
        body: Option<&Body<'_>>,
    ) {
        if let Some(body) = body {
            self.used(body);
        }
        let credit = body.map_or(0, Body::window_cost);
        if let Some(call) = self.calls.find_mut(key) {
            call.half(direction).count(frame.message_bytes);
        }
        let bytes = frame.bytes;
        self.keep_message(peer, tag, &bytes);
        let Some(found) = self.grpc_peers.find_mut(peer) else { return };
        let Some(stream) = found.streams.get_mut(&tag) else { return };
        stream.outgoing.queue(bytes.len(), credit);
        stream.outgoing.ended |= end;
        found.queued_bytes += bytes.len() as u64;
        self.http(peer, Command::Data { stream: tag, bytes, end });
    }

    fn half_close(&mut self, peer: GrpcKey, tag: StreamTag) {
        let Some(stream) = self.grpc_stream(peer, tag) else { return };
        if !std::mem::replace(&mut stream.outgoing.ended, true) {
            self.http(peer, Command::Data { stream: tag, bytes: Bytes::new(), end: true });
        }
    }

    /// The head of a response, once.
    fn answer_head(&mut self, peer: GrpcKey, tag: StreamTag, direction: Direction, metadata: &[u8]) {
        let Some(stream) = self.grpc_stream(peer, tag) else { return };
        if direction == Direction::Request || std::mem::replace(&mut stream.outgoing.headed, true) {
            return;
        }
        // The application knows best whether its messages shrink; what the client cannot read is not sent.
        if let Some(said) = Encoding::asked(metadata) {
            stream.outgoing.encoding = stream.outgoing.accepts.or_identity(said);
        }
        let head = Box::new(response::head(metadata, stream.outgoing.encoding, stream.outgoing.reads));
        self.http(peer, Command::Response { stream: tag, head, end: false });
    }

    // LIFE: 18 gRPC
    /// The end of a response: trailers, or a head that says it all.
    fn finish_stream(&mut self, peer: GrpcKey, tag: StreamTag, outcome: &Outcome<'_>) {
        let Some(stream) = self.grpc_stream(peer, tag) else { return };
        if std::mem::replace(&mut stream.outgoing.ended, true) {
            return;
        }
        let command = if stream.outgoing.headed || outcome.code == Code::Ok {
            self.answer_head(peer, tag, Direction::Response, &[]);
            Command::Trailers { stream: tag, trailers: response::trailers(outcome) }
        } else {
            let head = match stream.outgoing.reads {
                Accepts::ALL => response::trailers_only(outcome),
                accepts => response::refused_encoding(outcome, accepts),
            };
            Command::Response { stream: tag, head: Box::new(head), end: true }
        };
        self.http(peer, command);
    }

    /// Ends a response whose queued bytes nobody wants any more: they are dropped, and the outcome is next.
    fn cut_stream_off(&mut self, peer: GrpcKey, tag: StreamTag, outcome: &Outcome<'_>) {
        let Some(found) = self.grpc_peers.find_mut(peer) else { return };
        let Some(stream) = found.streams.get_mut(&tag) else { return };
        if stream.outgoing.queued_bytes == 0 {
            return self.finish_stream(peer, tag, outcome);
        }
        let (bytes, _) = stream.outgoing.give_up();
        stream.outgoing.ended = true;
        found.queued_bytes = self.invariants.left(found.queued_bytes.checked_sub(bytes), QUEUED_AGREES);
        found.settle(&mut self.held);
        self.touch(peer);
        self.http(peer, Command::CutOff { stream: tag, trailers: response::trailers(outcome) });
    }

    /// The streams of a connection are looked at then, at the latest.
    pub(crate) fn sweep_by(&mut self, key: GrpcKey, at: Instant) {
        let Some(peer) = self.grpc_peers.find_mut(key) else { return };
        if peer.sweep.is_some_and(|(set, _)| set <= at) {
            return;
        }
        let timer = self.timers.insert(at, Due::Sweep(key));
        if let Some((_, before)) = peer.sweep.replace((at, timer)) {
            self.timers.cancel(before);
        }
    }

    /// Ends calls whose messages do not go on, and drops answers whose deadlines have passed before they left.
    pub(crate) fn sweep_grpc(&mut self, turn: &mut Turn<'_>, key: GrpcKey) {
        let (window, now) = (self.limits.stream_window_bytes as usize, turn.now);
        let Some(peer) = self.grpc_peers.find_mut(key) else { return };
        peer.sweep = None;
        let takes_more = peer.streams.values().map(|stream| stream.incoming.unreleased).sum::<usize>()
            < self.grpc.connection_window_bytes as usize / 2;
        let stall_ns = self.limits.message_stall_ns();
        let (mut stalled, mut late, mut next) = (Vec::new(), Vec::new(), None::<Instant>);
        for (tag, stream) in &mut peer.streams {
            let mut again = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
            if let Some(call) = stream.call {
                match stall_ns.filter(|_| stream.incoming.is_unfinished()) {
                    Some(stall_ns) if stream.incoming.has_stalled(now, stall_ns, window, takes_more) => {
                        stalled.push(call);
                    }
                    // Not often for each of many streams: it may be noticed a quarter of that time late.
                    Some(stall_ns) => {
                        again(stream.incoming.stalls_at(now, stall_ns).max(now.plus_ns(stall_ns / 4)));
                    }
                    None => {}
                }
            } else if stream.deadline.has_passed(now) {
                late.push(*tag);
            } else if let Some(at) = stream.deadline.instant() {
                again(at.max(now.plus_ns(SWEEP_NS_MIN)));
            }
        }
        if let Some(at) = next {
            self.sweep_by(key, at);
        }
        for call in stalled {
            let limit = self.limits.message_stall_s.into();
            self.fail(turn, call, Fault::Limit { name: STALLED, limit });
        }
        if late.is_empty() {
            return;
        }
        let status = Fault::DeadlinePassed { executed: Execution::Executed }.status();
        let outcome = Outcome::of(&self.said_here(&status));
        for tag in late {
            *self.limits_met.entry(UNSENT).or_default() += 1;
            self.cut_stream_off(key, tag, &outcome);
            self.remove_grpc_stream(key, tag);
        }
    }

    // LIFE: 10 gRPC
    /// A stream of our own for a call, with its head sent.
    fn open_stream(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        peer: GrpcKey,
        metadata: &[u8],
        end: bool,
    ) -> Result<StreamTag, Fault> {
        let call = self.calls.find(key).ok_or(Fault::Ended)?;
        let own = call.path.as_deref().map(request::path);
        let path = own.as_ref().map_or_else(|| self.registry.http_path(call.method), Option::as_ref);
        let path = path.ok_or_else(|| {
            let path = call.path.as_deref().unwrap_or(self.registry.path(call.method));
            Fault::MalformedRequest { why: format!("{path:?} is no path that HTTP carries") }
        })?;
        let timeout_ns = deadline_left_ns(call.deadline, turn);
        let pattern = call.sender_types(Direction::Request).ok_or_else(untyped)?.pattern;
        let sends = self.request_encoding(key, peer, metadata);
        let accepts = call.accepts;
        let named = call.placed.and_then(|placed| self.clusters.authority_at(&self.remotes, placed)).cloned();
        let Some(found) = self.grpc_peers.find_mut(peer) else { return Err(self.connection_gone(key)) };
        found.tags_used += 1;
        let tag = StreamTag(StreamTag::OWN | found.tags_used);
        let mut stream = GrpcStream::made(key, pattern, sends, self.limits.grpc_bytes_max());
        stream.outgoing.ended = end;
        let telemetry = found.telemetry;
        let head = request::head(&Outgoing {
            authority: named.as_ref().unwrap_or(&found.authority),
            path,
            timeout_ns,
            metadata,
            encoding: sends,
            accepts,
            scheme: if found.identity.encrypted { &Scheme::HTTPS } else { &Scheme::HTTP },
            user_agent: &self.grpc.user_agent,
        });
        found.streams.insert(tag, Box::new(stream));
        self.http(peer, Command::Request { stream: tag, head: Box::new(head), end });
        if let Some(call) = self.calls.find_mut(key) {
            call.server = crate::call::ServerEnd::Grpc { peer, stream: tag };
            call.handed_over = true;
            call.peer_index = telemetry;
            // It is not at the socket yet, and what another stream had is not this one's.
            (call.client_stamps.d3, call.client_stamps.d4) = (turn.now, Instant::default());
        }
        Ok(tag)
    }

    /// How a call's messages to a gRPC server are compressed: as a policy says, else its maker, else the host. What a
    /// client of the gateway has compressed in a way the server has refused is sent unpacked.
    fn request_encoding(&self, key: CallKey, peer: GrpcKey, metadata: &[u8]) -> Encoding {
        let Some(call) = self.calls.find(key) else { return Encoding::Identity };
        match (call.request_encoding, self.grpc_peers.find(peer)) {
            (Some(kept), Some(peer)) if call.keeps_encoding => peer.accepts.or_identity(kept),
            (Some(said), _) => said,
            // What a gRPC client has said of it is read, and no metadata any more.
            (None, _) if call.is_forwarded() => self.grpc.request_encoding,
            (None, _) => self.grpc.asking_encoding(metadata),
        }
    }

    /// Whether the engine makes it itself, from a request it keeps, or does not want to make it twice.
    pub(crate) fn is_attempt(&self, key: CallKey) -> bool {
        let made = |call: &Call| matches!(call.client, ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. });
        self.calls.find(key).is_some_and(made)
    }

    /// Whether the one message of a method is not there. One that does not know the method sends it ahead of its end.
    fn lacks_message(&self, key: CallKey, direction: Direction) -> bool {
        let call = self.calls.find(key);
        call.is_some_and(|call| !call.streams(direction) && call.half_of(direction).messages == 0)
    }
}

/// What is left of a deadline; at least 1 ns, for it has not passed here yet.
fn deadline_left_ns(deadline: Deadline, turn: &Turn<'_>) -> Option<u64> {
    deadline.instant().map(|at| at.since_ns(turn.now).max(1))
}
