//! What is sent to peers: heads, messages and trailers of streams; and what waits to leave.

use super::ends::{GrpcEnds, HeldAccounts};
use super::frame::{FramedMessage, behind_prefix, framed, long_frame};
use super::replay::Replay;
use super::stream::{GrpcStream, WebStream};
use crate::call::Call;
use crate::convert::{Scratch, WireBody, for_wire};
use crate::convert_error::{conversion_fault, untyped};
use crate::due::Due;
use crate::heaps::Heaps;
use crate::held::HeldBudget;
use crate::item::{Body, Direction, Item};
use crate::limits::GRPC_MESSAGE_BYTES;
use crate::packing::Packing;
use crate::{CallKey, GrpcKey};
use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use std::borrow::Cow;
use trunkline_call::entry::MessageCompression;
use trunkline_call::{Code, Deadline, Encoding as MessageEncoding, Execution, Fault, Pattern, TimerTable};
use trunkline_grpc::compress::{Accepts, Encoding};
use trunkline_grpc::framing::FramingFault;
use trunkline_grpc::request::{self, Outgoing};
use trunkline_grpc::{Command, Outcome, Reason, StreamTag, response};
use trunkline_telemetry::PeerIndex;

/// What a connection counts is the sum of what its streams do.
const QUEUED_AGREES: &str = "a gRPC connection has queued at least what one of its streams has";
const ARRIVING_AGREES: &str = "a gRPC connection holds at least what arrives on one of its streams";
const REPLAY_AGREES: &str = "a gRPC connection keeps at least what one of its streams would send again";

/// Whose queue is full.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FullQueue {
    /// The stream's.
    Stream,
    /// The connection's.
    Connection,
}

/// What a stream is opened with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamOpening<'a> {
    pub call: CallKey,
    pub pattern: Pattern,
    pub path: &'a PathAndQuery,
    /// What its endpoint's name is in requests, if that is not the connection's.
    pub authority: Option<&'a Authority>,
    pub timeout_ns: Option<u64>,
    pub metadata: &'a [u8],
    pub encoding: Encoding,
    pub accepts: Accepts,
    /// Nothing follows.
    pub end: bool,
}

/// What follows from bytes that have left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentOn {
    pub call: CallKey,
    pub direction: Direction,
    /// What the sender of this direction may send more.
    pub credit: u32,
    /// Whether another message fits the stream's window.
    pub has_room: bool,
}

impl GrpcEnds {
    /// Bytes given to the connection have left.
    pub fn handle_sent(
        &mut self,
        accounts: &mut HeldAccounts<'_>,
        at: WebStream,
        bytes: usize,
    ) -> Option<SentOn> {
        let found = self.peers.find_mut(at.peer)?;
        let stream = found.streams.get_mut(&at.tag)?;
        let bytes = (bytes as u64).min(stream.outgoing.queued_bytes);
        let credit = stream.outgoing.sent(bytes);
        found.queued_bytes = accounts.invariants.left(found.queued_bytes.checked_sub(bytes), QUEUED_AGREES);
        let (call, left) = (stream.call, stream.outgoing.queued_bytes);
        found.settle(accounts.held);
        let direction = if found.remote.is_some() { Direction::Request } else { Direction::Response };
        self.touch(at.peer);
        let has_room = left < u64::from(self.limits.stream_window_bytes);
        match call {
            Some(call) => Some(SentOn { call, direction, credit, has_room }),
            None => {
                if left == 0 {
                    self.remove_stream(accounts, at);
                }
                None
            }
        }
    }

    // LIFE: 10 gRPC
    /// Opens a stream, with its head sent. Its name, and its host's number in reports; `None` if the connection is
    /// gone.
    pub fn open(&mut self, key: GrpcKey, opening: StreamOpening<'_>) -> Option<(StreamTag, PeerIndex)> {
        let StreamOpening { call, pattern, encoding, accepts, end, .. } = opening;
        let found = self.peers.find_mut(key)?;
        let tag = Self::next_tag(found);
        let mut stream = GrpcStream::made(call, pattern, encoding, self.limits.grpc_bytes_max());
        stream.outgoing.ended = end;
        let telemetry = found.telemetry;
        let head = request::head(&Outgoing {
            authority: opening.authority.unwrap_or(&found.authority),
            path: opening.path,
            timeout_ns: opening.timeout_ns,
            metadata: opening.metadata,
            encoding,
            accepts,
            scheme: if found.identity.encrypted { &Scheme::HTTPS } else { &Scheme::HTTP },
            user_agent: &self.settings.user_agent,
        });
        found.streams.insert(tag, Box::new(stream));
        self.command(key, Command::Request { stream: tag, head: Box::new(head), end });
        Some((tag, telemetry))
    }

    /// Gives a message to the connection, whose sender gets so much back once it has left.
    pub fn send(&mut self, at: WebStream, bytes: Bytes, credit: u32, end: bool) {
        let (call_max, peer_max) =
            (self.limits.grpc_replay_bytes_per_call, self.limits.grpc_replay_bytes_per_peer);
        let Some(found) = self.peers.find_mut(at.peer) else { return };
        let Some(stream) = found.streams.get_mut(&at.tag) else { return };
        if let Some(replay) = &mut stream.replay {
            if replay.bytes + bytes.len() > call_max || found.replay_bytes + bytes.len() > peer_max {
                // A request that grows too large is not kept any more.
                found.replay_bytes -= replay.bytes;
                stream.replay = None;
            } else {
                replay.bytes += bytes.len();
                replay.frames.push(bytes.clone());
                found.replay_bytes += bytes.len();
            }
        }
        stream.outgoing.queue(bytes.len(), credit);
        stream.outgoing.ended |= end;
        found.queued_bytes += bytes.len() as u64;
        self.command(at.peer, Command::Data { stream: at.tag, bytes, end });
    }

    /// Nothing more is sent along a stream.
    pub fn half_close(&mut self, at: WebStream) {
        let Some(stream) = self.stream_mut(at) else { return };
        if !std::mem::replace(&mut stream.outgoing.ended, true) {
            self.command(at.peer, Command::Data { stream: at.tag, bytes: Bytes::new(), end: true });
        }
    }

    /// The head of a response, once.
    pub fn answer_head(&mut self, at: WebStream, direction: Direction, metadata: &[u8]) {
        let Some(stream) = self.stream_mut(at) else { return };
        if direction == Direction::Request || std::mem::replace(&mut stream.outgoing.headed, true) {
            return;
        }
        // The application knows best whether its messages shrink; what the client cannot read is not sent.
        if let Some(said) = Encoding::asked(metadata) {
            stream.outgoing.encoding = stream.outgoing.accepts.or_identity(said);
        }
        let head = Box::new(response::head(metadata, stream.outgoing.encoding, stream.outgoing.reads));
        self.command(at.peer, Command::Response { stream: at.tag, head, end: false });
    }

    // LIFE: 18 gRPC
    /// The end of a response: trailers, or a head that says it all.
    pub fn finish_stream(&mut self, at: WebStream, outcome: &Outcome<'_>) {
        let Some(stream) = self.stream_mut(at) else { return };
        if std::mem::replace(&mut stream.outgoing.ended, true) {
            return;
        }
        let outcome = &of_all_attempts(outcome, stream.is_repeated);
        let command = if stream.outgoing.headed || outcome.code == Code::Ok {
            self.answer_head(at, Direction::Response, &[]);
            Command::Trailers { stream: at.tag, trailers: response::trailers(outcome) }
        } else {
            let head = match stream.outgoing.reads {
                Accepts::ALL => response::trailers_only(outcome),
                accepts => response::refused_encoding(outcome, accepts),
            };
            Command::Response { stream: at.tag, head: Box::new(head), end: true }
        };
        self.command(at.peer, command);
    }

    /// Answers a request that never becomes a call.
    pub fn refuse(&mut self, at: WebStream, outcome: &Outcome<'_>) {
        let head = Box::new(response::trailers_only(outcome));
        self.command(at.peer, Command::Response { stream: at.tag, head, end: true });
    }

    /// Ends a response whose queued bytes nobody wants any more: they are dropped, and the outcome is next.
    pub fn cut_off(&mut self, accounts: &mut HeldAccounts<'_>, at: WebStream, outcome: &Outcome<'_>) {
        let Some(found) = self.peers.find_mut(at.peer) else { return };
        let Some(stream) = found.streams.get_mut(&at.tag) else { return };
        if stream.outgoing.queued_bytes == 0 {
            return self.finish_stream(at, outcome);
        }
        let outcome = &of_all_attempts(outcome, stream.is_repeated);
        let (bytes, _) = stream.outgoing.give_up();
        stream.outgoing.ended = true;
        found.queued_bytes = accounts.invariants.left(found.queued_bytes.checked_sub(bytes), QUEUED_AGREES);
        found.settle(accounts.held);
        self.touch(at.peer);
        self.command(at.peer, Command::CutOff { stream: at.tag, trailers: response::trailers(outcome) });
    }

    /// The answer to a request has ended: the connection drops what of the request has not left and takes no more of
    /// it, without a word for each byte. The call, if there still is one, and what its maker may send more.
    pub fn stop_asking(&mut self, accounts: &mut HeldAccounts<'_>, at: WebStream) -> Option<(CallKey, u32)> {
        let found = self.peers.find_mut(at.peer).filter(|found| found.remote.is_some())?;
        let stream = found.streams.get_mut(&at.tag)?;
        let (bytes, credit) = stream.outgoing.give_up();
        found.queued_bytes = accounts.invariants.left(found.queued_bytes.checked_sub(bytes), QUEUED_AGREES);
        let call = stream.call;
        found.settle(accounts.held);
        self.touch(at.peer);
        call.map(|call| (call, credit))
    }

    /// What of an answer has not left leaves before its call's deadline, or not at all.
    pub fn want_until(&mut self, timers: &mut TimerTable<Due>, at: WebStream, deadline: Deadline) {
        let Some(until) = deadline.instant() else { return };
        if let Some(stream) = self.stream_mut(at).filter(|stream| stream.outgoing.queued_bytes > 0) {
            stream.deadline = deadline;
            self.sweep_by(timers, at.peer, until);
        }
    }

    /// The call of a stream is over. A stream whose bytes have all left is gone with it.
    pub fn end_call(&mut self, accounts: &mut HeldAccounts<'_>, at: WebStream) {
        let Some(found) = self.peers.find_mut(at.peer) else { return };
        let Some(stream) = found.streams.get_mut(&at.tag) else { return };
        let (unreleased, held) = (std::mem::take(&mut stream.incoming.unreleased), stream.incoming.held());
        let made = found.remote.is_some();
        let answered = made && stream.incoming.over && !stream.incoming.goes_on_unheard;
        let over = stream.outgoing.ended && (!made || answered);
        let is_empty = stream.outgoing.queued_bytes == 0;
        stream.call = None;
        stream.incoming.discard();
        found.window.give_back(unreleased, self.settings.connection_window_bytes);
        found.arriving_bytes =
            accounts.invariants.left(found.arriving_bytes.checked_sub(held), ARRIVING_AGREES);
        found.settle(accounts.held);
        self.release_bytes(at, unreleased);
        if !over {
            let reason = if answered { Reason::NO_ERROR } else { Reason::CANCEL };
            if self.drop_stream(accounts, at).is_some() {
                self.command(at.peer, Command::Reset { stream: at.tag, reason });
            }
        } else if is_empty {
            self.remove_stream(accounts, at);
        }
    }

    /// Takes a stream out, and its sender gets back what it has taken of the window.
    pub fn drop_stream(&mut self, accounts: &mut HeldAccounts<'_>, at: WebStream) -> Option<Box<GrpcStream>> {
        let stream = self.remove_stream(accounts, at)?;
        self.release_bytes(at, stream.incoming.unreleased);
        Some(stream)
    }

    /// Takes a stream out of all books.
    pub fn remove_stream(
        &mut self,
        accounts: &mut HeldAccounts<'_>,
        at: WebStream,
    ) -> Option<Box<GrpcStream>> {
        let HeldAccounts { held, invariants } = accounts;
        let peer = self.peers.find_mut(at.peer)?;
        let stream = peer.streams.remove(&at.tag)?;
        peer.window.give_back(stream.incoming.unreleased, self.settings.connection_window_bytes);
        let queued_bytes = peer.queued_bytes.checked_sub(stream.outgoing.queued_bytes);
        peer.queued_bytes = invariants.left(queued_bytes, QUEUED_AGREES);
        let arriving_bytes = peer.arriving_bytes.checked_sub(stream.incoming.held());
        peer.arriving_bytes = invariants.left(arriving_bytes, ARRIVING_AGREES);
        let replay_bytes = stream.replay.as_ref().map_or(0, |replay| replay.bytes);
        peer.replay_bytes = invariants.left(peer.replay_bytes.checked_sub(replay_bytes), REPLAY_AGREES);
        peer.settle(held);
        self.touch(at.peer);
        Some(stream)
    }

    /// Whether a connection takes a new message, for this stream of it.
    ///
    /// # Errors
    /// What it has to wait for.
    pub fn room(
        &mut self,
        held: &mut HeldBudget,
        key: GrpcKey,
        tag: Option<StreamTag>,
    ) -> Result<(), FullQueue> {
        let Some(peer) = self.peers.find(key) else { return Ok(()) };
        let queued =
            tag.and_then(|tag| peer.streams.get(&tag)).map_or(0, |stream| stream.outgoing.queued_bytes);
        if queued >= u64::from(self.limits.stream_window_bytes) {
            return Err(FullQueue::Stream);
        }
        if self.has_room(held, key) { Ok(()) } else { Err(FullQueue::Connection) }
    }

    /// Keeps the head of a request, to send it again if the server has not seen it.
    pub fn keep(&mut self, at: WebStream, metadata: &[u8]) {
        let call_max = self.limits.grpc_replay_bytes_per_call;
        let peer_max = self.limits.grpc_replay_bytes_per_peer;
        let Some(peer) = self.peers.find_mut(at.peer) else { return };
        let bytes = metadata.len();
        let Some(stream) = peer.streams.get_mut(&at.tag) else { return };
        if bytes <= call_max && peer.replay_bytes + bytes <= peer_max {
            peer.replay_bytes += bytes;
            stream.replay = Some(Replay { metadata: metadata.to_vec(), bytes, frames: Vec::new() });
        }
    }

    /// The server has the request: it is never sent again.
    pub(super) fn commit(&mut self, at: WebStream) {
        let Some(peer) = self.peers.find_mut(at.peer) else { return };
        let replay = peer.streams.get_mut(&at.tag).and_then(|stream| stream.replay.take());
        peer.replay_bytes -= replay.map_or(0, |replay| replay.bytes);
    }

    /// How a call's messages to a gRPC server are compressed: as a policy says, else its maker, else the host. What a
    /// client of the gateway has compressed in a way the server has refused is sent unpacked.
    pub fn request_encoding(&self, key: GrpcKey, call: &Call, metadata: &[u8]) -> Encoding {
        match (call.request_encoding, self.peers.find(key)) {
            (Some(kept), Some(peer)) if call.keeps_encoding => peer.accepts.or_identity(kept),
            (Some(said), _) => said,
            // What a gRPC client has said of it is read, and no metadata any more.
            (None, _) if call.is_forwarded() => self.settings.request_encoding,
            (None, _) => self.settings.asking_encoding(metadata),
        }
    }

    /// A body as protobuf, behind its prefix: as it came, if it came in this encoding, and compressed if its sender has
    /// not forbidden it.
    ///
    /// # Errors
    /// What ends its call.
    pub fn frame(
        &self,
        heaps: &dyn Heaps,
        scratch: &mut Scratch,
        call: &Call,
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
        // The answer to a call that is forwarded has no sender whose types are known here.
        let types = call.types_sent(direction).or_else(|| call.types_sent(direction.opposite()));
        let sent = types.ok_or_else(untyped)?.of(direction);
        if encoding == Encoding::Identity
            && let Some(long) = long_frame(heaps, scratch, sent, body)
        {
            return long.map_err(|error| conversion_fault(error, direction));
        }
        match for_wire(heaps, scratch, sent, false, u32::MAX, body) {
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

    /// A packed item for an end that does not speak gRPC: unpacked. If it has to wait, it does so as it came.
    ///
    /// # Errors
    /// What ends its call.
    pub fn unpacked<'i>(&self, direction: Direction, item: &'i Item<'_>) -> Result<Item<'i>, Fault> {
        let plain = |body: &Body<'_>| {
            let (bytes, compressed) = match body.packed() {
                Some((packing, bytes)) => (self.unpack(direction, packing, bytes)?, packing.compressed),
                None => (Vec::new(), false),
            };
            let (bytes, charged) = (Cow::Owned(bytes), body.window_cost());
            Ok(Body::Wire { bytes, encoding: MessageEncoding::Protobuf, charged, compressed })
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

    /// A packed message itself.
    ///
    /// # Errors
    /// What ends its call.
    pub fn unpack(&self, direction: Direction, packing: Packing, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        self.unpack_counted(packing, bytes).map_err(|fault| match (fault, direction) {
            (FramingFault::Inflated { .. }, _) => {
                Fault::Limit { name: GRPC_MESSAGE_BYTES, limit: self.limits.grpc_bytes_max().into() }
            }
            (fault, Direction::Request) => Fault::MalformedRequest { why: fault.to_string() },
            (fault, Direction::Response) => Fault::MalformedResponse { why: fault.to_string() },
        })
    }
}

/// The end of a call as its client is told it: that this attempt was not executed says nothing of those that others
/// have made before it.
pub(super) fn of_all_attempts<'a>(outcome: &'a Outcome<'_>, is_repeated: bool) -> Outcome<'a> {
    let execution = match outcome.execution {
        Execution::NotExecuted if is_repeated => Execution::Unknown,
        other => other,
    };
    Outcome { code: outcome.code, execution, metadata: Cow::Borrowed(&outcome.metadata) }
}
