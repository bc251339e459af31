//! Bodies of gRPC streams: bytes to messages, messages to items, and the window they take.
//!
//! A message is passed on when it is complete. One that streams keeps its part of the stream's window until the
//! application has released it, so a slow application slows the sender; what waits in the daemon is within that window.
//! The one message of a direction that does not stream is held until the direction has ended, because only then it is
//! known to be the only one.

use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::engine::{Engine, Turn};
use crate::grpc_stream::{Ending, GrpcStream};
use crate::held::HeldFull;
use crate::limits::ARRIVING;
use crate::packing::{Arrived, Packing};
use crate::{CallKey, GrpcKey};
use bytes::Bytes;
use std::borrow::Cow;
use trunkline_call::{Code, Encoding, Execution, Fault, Instant};
use trunkline_grpc::compress::Encoding as Compression;
use trunkline_grpc::framing::{Framed, FramingFault};
use trunkline_grpc::{Command, Outcome, StreamTag, request, response};

/// Messages of one stream that may wait as items; the rest waits as bytes. An empty message takes five bytes of the
/// window and a hundred as an item.
const MESSAGES_WAITING_MAX: usize = 16;

impl Engine {
    // LIFE: 13 gRPC
    /// Body bytes arrived.
    pub(crate) fn handle_data(
        &mut self,
        turn: &mut Turn<'_>,
        peer: GrpcKey,
        tag: StreamTag,
        bytes: Bytes,
        end: bool,
    ) {
        let count = bytes.len();
        let stream = self.grpc_stream(peer, tag);
        let Some(stream) = stream.filter(|stream| stream.call.is_some() && !stream.incoming.over) else {
            return self.release_bytes(peer, tag, count);
        };
        stream.incoming.push(bytes);
        if end {
            stream.incoming.end(Ending::Body);
        }
        self.note_held(peer, count as isize);
        self.read_on(turn, peer, tag, end);
    }

    /// A direction ended: what of it waits goes first.
    pub(crate) fn handle_ending(
        &mut self,
        turn: &mut Turn<'_>,
        peer: GrpcKey,
        tag: StreamTag,
        ending: Ending,
    ) {
        self.commit(peer, tag);
        let Some(stream) = self.grpc_stream(peer, tag) else { return };
        if stream.call.is_some() && !stream.incoming.over {
            stream.incoming.end(ending);
            self.read_on(turn, peer, tag, true);
        }
    }

    /// Passes on what came. With its end, an answer makes what is left of its request nobody's business.
    fn read_on(&mut self, turn: &mut Turn<'_>, peer: GrpcKey, tag: StreamTag, end: bool) {
        let answered = if end { self.stop_asking(peer, tag) } else { None };
        self.pump(turn, peer, tag);
        if let Some(call) = answered {
            self.unblock(turn, call, Direction::Request);
        }
    }

    /// Passes on every message that is complete, as long as the application keeps up, and then the end.
    pub(crate) fn pump(&mut self, turn: &mut Turn<'_>, peer: GrpcKey, tag: StreamTag) {
        loop {
            let Some(key) = self.grpc_stream(peer, tag).and_then(|stream| stream.call) else { return };
            let Some(direction) = self.incoming_half(key, peer, tag) else { return };
            if self
                .calls
                .find_mut(key)
                .is_none_or(|call| call.half(direction).backlog.len() >= MESSAGES_WAITING_MAX)
            {
                return;
            }
            if self.unpacks_later(key, peer, tag) {
                return;
            }
            match self.next_message(peer, tag, key, direction) {
                Ok(Some((message, charged))) => {
                    if !self.take_message(turn, peer, tag, key, direction, message, charged) {
                        return self.end_malformed(turn, key, direction, of_cardinality(2, direction));
                    }
                }
                Ok(None) => break self.drained(turn, peer, tag, key, direction),
                Err(fault) => return self.end_malformed(turn, key, direction, of_framing(&fault, direction)),
            }
        }
    }

    /// Whether a stream has to wait with its next message, which then goes on in the next turn.
    fn unpacks_later(&mut self, key: CallKey, peer: GrpcKey, tag: StreamTag) -> bool {
        if !self.unpacking.is_spent() {
            return false;
        }
        let Some(found) = self.grpc_peers.find_mut(peer) else { return false };
        let Some(stream) = found.streams.get_mut(&tag) else { return false };
        let is_packed = stream.incoming.encoding != Compression::Identity && stream.incoming.has_bytes();
        if !is_packed || stream.call != Some(key) {
            return false;
        }
        if !std::mem::replace(&mut stream.incoming.unpacks_later, true) {
            if found.unpacks.is_empty() {
                self.unpacking.wait(peer);
            }
            found.unpacks.push_back(tag);
        }
        true
    }

    /// The others have had their turn: who waited goes on.
    pub(crate) fn unpack_on(&mut self, turn: &mut Turn<'_>) {
        if !self.unpacking.is_waited_for() {
            return;
        }
        self.unpacking.begin_turn();
        while let Some(peer) = self.unpacking.poll_waiting() {
            let Some(found) = self.grpc_peers.find_mut(peer) else { continue };
            let Some(tag) = found.unpacks.pop_front() else { continue };
            if !found.unpacks.is_empty() {
                self.unpacking.wait(peer);
            }
            if let Some(stream) = found.streams.get_mut(&tag) {
                stream.incoming.unpacks_later = false;
                self.pump(turn, peer, tag);
            }
        }
    }

    /// The direction one of a call's gRPC streams brings.
    fn incoming_half(&self, key: CallKey, peer: GrpcKey, tag: StreamTag) -> Option<Direction> {
        let comes = self.calls.find(key)?.comes_by(peer, tag);
        Some(if comes { Direction::Request } else { Direction::Response })
    }

    /// The next complete message.
    fn next_message(
        &mut self,
        peer: GrpcKey,
        tag: StreamTag,
        key: CallKey,
        direction: Direction,
    ) -> Result<Option<(Arrived, u32)>, FramingFault> {
        let Self { grpc_peers, scratch, .. } = self;
        let stream = grpc_peers.find_mut(peer).and_then(|peer| peer.streams.get_mut(&tag));
        let Some(stream) = stream else { return Ok(None) };
        let before = stream.incoming.held();
        let Some((framed, charged)) = stream.incoming.next(&scratch.long)? else { return Ok(None) };
        let encoding = stream.incoming.encoding;
        let after = stream.incoming.held();
        self.note_held(peer, after as isize - before as isize);
        Ok(Some((self.unpack_unless_it_passes(key, direction, framed, encoding)?, charged)))
    }

    /// A message of a gRPC stream in this encoding: as it came if it goes on so, else unpacked.
    fn unpack_unless_it_passes(
        &self,
        key: CallKey,
        direction: Direction,
        framed: Framed,
        encoding: Compression,
    ) -> Result<Arrived, FramingFault> {
        let Framed { compressed, bytes, .. } = framed;
        let packing = Packing { encoding, compressed };
        if encoding != Compression::Identity && self.passes_packed(key, direction, encoding) {
            return Ok(Arrived { bytes, compressed, packing: Some(packing) });
        }
        if !compressed {
            return Ok(Arrived { bytes, compressed, packing: None });
        }
        let bytes_max = self.limits.grpc_bytes_max() as usize;
        let plain = packing.unpack(&bytes, bytes_max);
        self.unpacking.charge(plain.as_ref().map_or(bytes_max, Vec::len));
        Ok(Arrived { bytes: plain?.into(), compressed, packing: None })
    }

    fn passes_packed(&self, key: CallKey, direction: Direction, encoding: Compression) -> bool {
        let Some(call) = self.calls.find(key).filter(|call| call.is_forwarded()) else { return false };
        match direction {
            // Where it goes may not be known yet.
            Direction::Request => {
                let is_read = call.policies.as_ref().is_some_and(|policies| policies.reads_messages());
                let speaks_grpc = !matches!(call.server, ServerEnd::Peer { .. } | ServerEnd::R2p2 { .. });
                speaks_grpc && call.request_encoding == Some(encoding) && !is_read
            }
            Direction::Response => match call.client {
                ClientEnd::Grpc { peer, stream, .. } => self
                    .grpc_peers
                    .find(peer)
                    .and_then(|peer| peer.streams.get(&stream))
                    .is_some_and(|stream| stream.outgoing.encoding == encoding),
                _ => false,
            },
        }
    }

    /// Passes a message on, or keeps it as the only one of its direction. `false` if it is not the only one.
    #[allow(clippy::too_many_arguments, reason = "a message and where it is, from one caller")]
    fn take_message(
        &mut self,
        turn: &mut Turn<'_>,
        peer: GrpcKey,
        tag: StreamTag,
        key: CallKey,
        direction: Direction,
        message: Arrived,
        charged: u32,
    ) -> bool {
        let Some(stream) = self.grpc_stream(peer, tag) else { return true };
        if stream.incoming.streams {
            // An answer ends with its status.
            let end = direction == Direction::Request && stream.incoming.take_end();
            self.note_complete(turn, key, direction);
            let mut item = Item::Message { body: body_of(&message, charged), end };
            self.pass(turn, key, direction, &mut item);
            return true;
        }
        if stream.incoming.message.is_some() {
            return false;
        }
        let held = message.bytes.len() as isize;
        stream.incoming.message = Some(message);
        self.note_held(peer, held);
        true
    }

    /// Nothing complete is left: the sender gets back what cannot wait, and an end that was told takes effect.
    fn drained(
        &mut self,
        turn: &mut Turn<'_>,
        peer: GrpcKey,
        tag: StreamTag,
        key: CallKey,
        direction: Direction,
    ) {
        let window = self.limits.stream_window_bytes as usize;
        let Some(stream) = self.grpc_stream(peer, tag) else { return };
        let ended = stream.incoming.ended.is_some();
        let ahead = stream.incoming.release_ahead(window);
        self.release_bytes(peer, tag, ahead);
        if ended {
            return self.end_incoming(turn, peer, tag, key, direction);
        }
        if let Err(fault) = self.may_hold_unfinished(turn.now, peer, tag) {
            self.fail(turn, key, fault);
        }
    }

    /// Whether what has come of a message that is not complete, or before it, may be held until it is. It is looked at
    /// again in a while, whether more has come.
    pub(crate) fn may_hold_unfinished(
        &mut self,
        now: Instant,
        peer: GrpcKey,
        tag: StreamTag,
    ) -> Result<(), Fault> {
        let Self { grpc_peers, held, limits, .. } = self;
        let Some(found) = grpc_peers.find_mut(peer) else { return Ok(()) };
        if found.arriving_bytes > limits.assembling_bytes_per_peer {
            return Err(Fault::Limit { name: ARRIVING, limit: limits.assembling_bytes_per_peer as u64 });
        }
        found.book(held).map_err(HeldFull::fault)?;
        let is_unfinished =
            found.streams.get_mut(&tag).is_some_and(|stream| stream.incoming.note_unfinished(now));
        if let Some(stall_ns) = limits.message_stall_ns().filter(|_| is_unfinished) {
            self.sweep_by(peer, now.plus_ns(stall_ns));
        }
        Ok(())
    }

    fn end_incoming(
        &mut self,
        turn: &mut Turn<'_>,
        peer: GrpcKey,
        tag: StreamTag,
        key: CallKey,
        direction: Direction,
    ) {
        let Some(stream) = self.grpc_stream(peer, tag) else { return };
        let ended = end_of(stream, direction);
        let held = stream.incoming.held();
        let streams = stream.incoming.streams;
        let message = stream.incoming.message.take();
        let opening = stream.incoming.opening.take();
        let left = stream.incoming.held();
        self.note_held(peer, left as isize - held as isize);
        self.note_complete(turn, key, direction);
        let body = message.as_ref().map(|message| body_of(message, 0));
        match (ended, direction) {
            (Err(outcome), _) => self.end_malformed(turn, key, direction, outcome),
            (Ok(_), Direction::Request) if streams => {
                self.pass(turn, key, Direction::Request, &mut Item::HalfClose)
            }
            (Ok(_), Direction::Request) => {
                let Some(metadata) = opening.map(Cow::Owned) else { return };
                let target = self.target_from_grpc(key);
                self.start(turn, key, target, &mut Item::Open { metadata, body, end: true });
            }
            (Ok(outcome), Direction::Response) => {
                let Outcome { code, execution, metadata } = outcome;
                let body = body.filter(|_| code == Code::Ok);
                let mut item = Item::Finish { code, execution, body, metadata };
                self.finish_from_grpc(turn, key, &mut item);
            }
        }
    }

    /// Ends a call whose body is not well formed. What a request's handler has seen of the call is known here.
    fn end_malformed(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        outcome: Outcome<'static>,
    ) {
        let known = self.calls.find(key).filter(|_| direction == Direction::Request).map(Call::execution);
        self.end_as(turn, key, &Outcome { execution: known.unwrap_or(outcome.execution), ..outcome });
    }

    /// A message is complete: from here on time is stack.
    fn note_complete(&mut self, turn: &Turn<'_>, key: CallKey, direction: Direction) {
        let arrived = self.arrived;
        let Some(call) = self.calls.find_mut(key) else { return };
        if direction == Direction::Request && !call.handed_over {
            call.server_stamps.k7 = arrived;
            call.server_stamps.d8 = turn.now;
        }
    }

    /// The sender may send so many bytes more.
    pub(crate) fn release_bytes(&mut self, peer: GrpcKey, tag: StreamTag, bytes: usize) {
        if bytes > 0 {
            self.http(peer, Command::Release { stream: tag, bytes });
        }
    }

    /// What waited as items has gone on: what waits as bytes may follow.
    pub(crate) fn pump_call(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction) {
        let Some(call) = self.calls.find(key) else { return };
        match (direction, &call.client, &call.server) {
            (Direction::Request, ClientEnd::Grpc { peer, stream, .. }, _)
            | (Direction::Response, _, ServerEnd::Grpc { peer, stream }) => {
                let (peer, stream) = (*peer, *stream);
                self.pump(turn, peer, stream);
            }
            _ => {}
        }
    }

    /// The application is through with a message that took so much of the window.
    pub(crate) fn grant_grpc(&mut self, peer: GrpcKey, tag: StreamTag, bytes: u32) {
        let Some(stream) = self.grpc_stream(peer, tag) else { return };
        let bytes = (bytes as usize).min(stream.incoming.unreleased);
        stream.incoming.unreleased -= bytes;
        self.release_bytes(peer, tag, bytes);
    }

    pub(crate) fn note_held(&mut self, peer: GrpcKey, change: isize) {
        if let Some(peer) = self.grpc_peers.find_mut(peer) {
            peer.arriving_bytes = peer.arriving_bytes.saturating_add_signed(change);
            if change < 0 {
                peer.settle(&mut self.held);
            }
        }
    }
}

/// A message for the road.
fn body_of(message: &Arrived, charged: u32) -> Body<'_> {
    let bytes = Cow::Borrowed(&*message.bytes);
    match message.packing {
        Some(packing) => Body::Packed { bytes, packing, charged },
        None => Body::Wire { bytes, encoding: Encoding::Protobuf, charged, compressed: message.compressed },
    }
}

/// What the end of a direction means: its outcome (OK for a request), or what was wrong with it.
fn end_of(stream: &mut GrpcStream, direction: Direction) -> Result<Outcome<'static>, Outcome<'static>> {
    let outcome = match (stream.incoming.ended.take(), direction) {
        (_, Direction::Request) | (None, _) => {
            Outcome { code: Code::Ok, execution: Execution::Executed, metadata: Cow::Borrowed(&[]) }
        }
        (Some(Ending::Outcome(outcome)), Direction::Response) => outcome,
        (Some(Ending::Body), Direction::Response) => response::of_missing_trailers(),
    };
    if outcome.code != Code::Ok {
        return Ok(outcome);
    }
    stream.incoming.finish().map_err(|fault| of_framing(&fault, direction))?;
    if !stream.incoming.streams && stream.incoming.message.is_none() {
        return Err(of_cardinality(0, direction));
    }
    Ok(outcome)
}

fn of_framing(fault: &FramingFault, direction: Direction) -> Outcome<'static> {
    match direction {
        Direction::Request => request::of_framing(fault),
        Direction::Response => response::of_framing(fault),
    }
}

fn of_cardinality(messages: usize, direction: Direction) -> Outcome<'static> {
    match direction {
        Direction::Request => request::of_cardinality(messages),
        Direction::Response => response::of_cardinality(messages),
    }
}
