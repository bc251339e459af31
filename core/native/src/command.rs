//! What the owner tells a connection to do. A refused command leaves nothing behind.

use crate::body::Payload;
use crate::caller::{self, CALLERS_MAX};
use crate::connection::Connection;
use crate::event::Trailer;
use crate::frame::{PATH_BYTES_MAX, PING_REDIAL, REASON_BYTES_MAX};
use crate::frame_type::{FrameType, flag};
use crate::head::Head;
use crate::hello::Peer;
use crate::methods::Fingerprints;
use crate::stream::{State, Stream};
use crate::{Body, CallerNumber, Features, MethodIndex, Refused, StreamId};
use std::borrow::Cow;
use trunkline_call::{Code, Deadline, Encoding, Execution, Instant, VouchedCaller};

/// A call to open.
#[derive(Clone, Copy, Debug)]
pub struct NewCall<'a> {
    /// The owner's name for it, returned with every event.
    pub tag: u64,
    /// Which method.
    pub method: MethodIndex,
    /// Who makes it, if that was named; of no meaning where callers are not.
    pub caller: Option<CallerNumber>,
    /// When it must have ended. Travels as the time left when the frame is written.
    pub deadline: Deadline,
    /// Whether to ask for the server's stamps.
    pub stamps: bool,
    /// Encoded metadata, or nothing.
    pub metadata: &'a [u8],
    /// Whether the request side is complete with the first message.
    pub end: bool,
}

/// How a call ended well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome<'a> {
    /// The server's stamps, if the caller asked for them.
    pub trailer: Option<&'a Trailer>,
    /// Encoded trailing metadata, or nothing.
    pub metadata: &'a [u8],
}

/// How a call ended otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// The status.
    pub code: Code,
    /// Whether the handler may have run.
    pub execution: Execution,
    /// Message, details and trailing metadata, encoded.
    pub metadata: &'a [u8],
    /// The server's stamps, if the caller asked for them.
    pub trailer: Option<&'a Trailer>,
}

impl Connection {
    // LIFE: 10
    /// Opens a stream, perhaps with its first message.
    ///
    /// # Errors
    /// [`Refused`]; a shared body stays with the caller. [`Connection::may_open`] asks beforehand.
    pub fn open_call(
        &mut self,
        now: Instant,
        call: &NewCall<'_>,
        message: Option<Payload<'_>>,
    ) -> Result<StreamId, Refused> {
        self.outgoing.check_room(self.config.queue_bytes_max)?;
        let peer = self.may_open()?;
        let (send_window, metadata_max) = (peer.limits.stream_window_bytes, peer.limits.metadata_bytes_max);
        let method = *self.made.methods.find(call.method.0).ok_or(Refused::UnknownMethod)?;
        let names_callers = peer.features.contains(Features::CALLERS);
        check_metadata(call.metadata, metadata_max)?;
        if call.caller.is_some_and(|caller| names_callers && !self.made.knows(caller)) {
            return Err(Refused::OutOfPlace);
        }
        if let Some(message) = &message {
            self.check_message_out(message, method.linear_request)?;
        }
        let state = if call.end { State::Sent } else { State::Sending };
        let receive_window = self.limits.stream_window_bytes;
        let stream = self.streams.open(state, call.method.0, send_window, receive_window);
        stream.tag = call.tag;
        let id = stream.id;
        let mut head = Head::new(FrameType::Call, id.0);
        head.code = call.method.0;
        head.caller = names_callers.then(|| call.caller.map_or(0, |caller| caller.0.into()));
        head.deadline = call.deadline;
        head.metadata = Cow::Borrowed(call.metadata);
        head.flags = if call.end { flag::END } else { 0 } | if call.stamps { flag::STAMPS } else { 0 };
        if let Some(message) = &message {
            head.flags |= flag::MESSAGE | encoding_flag(message.encoding);
        }
        self.outgoing.dispatch(now, stream, head, message.map(|message| message.body));
        Ok(id)
    }

    /// Sends a message of an open stream: a request, or a response that is not the outcome. With `end` (requests only),
    /// this side is complete.
    ///
    /// # Errors
    /// [`Refused`]; a shared body stays with the caller. [`Connection::may_send`] asks beforehand.
    pub fn send_message(
        &mut self,
        now: Instant,
        stream: StreamId,
        message: Payload<'_>,
        end: bool,
    ) -> Result<(), Refused> {
        self.may_send(stream)?;
        self.check_stream_message(stream, &message)?;
        let found = self.streams.find_mut(stream).ok_or(Refused::NoStream)?;
        let mut head = Head::new(FrameType::Message, stream.0);
        head.flags = encoding_flag(message.encoding);
        if end {
            found.complete_request()?;
            head.flags |= flag::END;
        }
        self.outgoing.dispatch(now, found, head, Some(message.body));
        Ok(())
    }

    /// Sends response metadata; before any response message.
    ///
    /// # Errors
    /// [`Refused`] if the stream is gone or is not the peer's call, or the metadata is too long.
    pub fn send_headers(&mut self, now: Instant, stream: StreamId, metadata: &[u8]) -> Result<(), Refused> {
        check_metadata(metadata, self.established()?.limits.metadata_bytes_max)?;
        let found = served(self.streams.find_mut(stream))?;
        let mut head = Head::new(FrameType::Headers, stream.0);
        head.metadata = Cow::Borrowed(metadata);
        self.outgoing.dispatch(now, found, head, None);
        Ok(())
    }

    // LIFE: 18
    /// Ends a call well, behind everything sent on it. The stream is gone for the caller of this.
    ///
    /// # Errors
    /// [`Refused`]; a shared body stays with the caller and the stream stays open.
    pub fn send_result(
        &mut self,
        now: Instant,
        stream: StreamId,
        outcome: &Outcome<'_>,
        message: Option<Payload<'_>>,
    ) -> Result<(), Refused> {
        check_metadata(outcome.metadata, self.established()?.limits.metadata_bytes_max)?;
        if let Some(message) = &message {
            self.may_send(stream)?;
            self.check_stream_message(stream, message)?;
        }
        let found = served(self.streams.find_mut(stream))?;
        let frame = if message.is_some() { FrameType::Result } else { FrameType::VoidResult };
        let mut head = Head::new(frame, stream.0);
        head.flags = message.as_ref().map_or(0, |message| encoding_flag(message.encoding));
        head.metadata = Cow::Borrowed(outcome.metadata);
        head.trailer = outcome.trailer.copied();
        self.outgoing.dispatch(now, found, head, message.map(|message| message.body));
        self.finish(stream);
        Ok(())
    }

    /// Ends a call otherwise, behind everything sent on it.
    ///
    /// # Errors
    /// [`Refused`] if the stream is gone or is not the peer's call, or the metadata is too long.
    pub fn send_error(
        &mut self,
        now: Instant,
        stream: StreamId,
        failure: &Failure<'_>,
    ) -> Result<(), Refused> {
        check_metadata(failure.metadata, self.established()?.limits.metadata_bytes_max)?;
        let found = served(self.streams.find_mut(stream))?;
        self.outgoing.dispatch(now, found, error_head(stream, failure), None);
        self.finish(stream);
        Ok(())
    }

    /// Ends a call otherwise, at once: what waits on it is given up, a message that is under way breaks off.
    ///
    /// # Errors
    /// [`Refused`] if the stream is gone or is not the peer's call, or the metadata is too long.
    pub fn abort(&mut self, now: Instant, stream: StreamId, failure: &Failure<'_>) -> Result<(), Refused> {
        check_metadata(failure.metadata, self.established()?.limits.metadata_bytes_max)?;
        let found = served(self.streams.find_mut(stream))?;
        self.outgoing.dispatch_last(now, found, &error_head(stream, failure));
        self.forget(stream);
        Ok(())
    }

    /// No more request messages.
    ///
    /// # Errors
    /// [`Refused`] if the stream is gone, its answer has begun to end it, or its request side is complete.
    pub fn half_close(&mut self, now: Instant, stream: StreamId) -> Result<(), Refused> {
        let found = self.streams.find_mut(stream).ok_or(Refused::NoStream)?;
        if found.is_answered() {
            return Err(Refused::Answered);
        }
        found.complete_request()?;
        self.outgoing.dispatch(now, found, Head::new(FrameType::HalfClose, stream.0), None);
        Ok(())
    }

    /// Gives a call up. The stream is gone; nothing more is told of it. Returns what is known: *not executed* if its
    /// first message had not left this connection's queues for the socket's.
    ///
    /// # Errors
    /// [`Refused`] if the stream is gone or was not opened here.
    pub fn cancel(&mut self, now: Instant, stream: StreamId, code: Code) -> Result<Execution, Refused> {
        let found = self.streams.find_mut(stream).ok_or(Refused::NoStream)?;
        if !found.is_made() {
            return Err(Refused::OutOfPlace);
        }
        let is_unsent = found.is_unsent();
        let mut head = Head::new(FrameType::Cancel, stream.0);
        head.code = code.number();
        self.outgoing.dispatch_last(now, found, &head);
        self.forget(stream);
        Ok(if is_unsent { Execution::NotExecuted } else { Execution::Unknown })
    }

    /// Whether a call's first message has not left this connection's queues for the socket's: the peer has not begun
    /// it, and never will if it is [given up](Connection::cancel) now.
    pub fn is_unsent(&self, stream: StreamId) -> bool {
        self.streams.find(stream).is_some_and(Stream::is_unsent)
    }

    /// Sets the owner's name for a stream the peer opened.
    pub fn set_tag(&mut self, stream: StreamId, tag: u64) {
        if let Some(found) = self.streams.find_mut(stream) {
            found.tag = tag;
        }
    }

    /// Whether a call could be opened now.
    ///
    /// # Errors
    /// Why not.
    pub fn may_open(&self) -> Result<&Peer, Refused> {
        let peer = self.established()?;
        if self.is_draining() {
            return Err(Refused::Draining);
        }
        if self.streams.made() >= peer.limits.streams_max {
            return Err(Refused::Streams { limit: peer.limits.streams_max });
        }
        Ok(peer)
    }

    /// Whether a message could be sent on a stream now. If not for a full queue, a notice will say when.
    ///
    /// # Errors
    /// Why not.
    pub fn may_send(&mut self, stream: StreamId) -> Result<(), Refused> {
        self.outgoing.check_room(self.config.queue_bytes_max)?;
        let found = self.streams.find_mut(stream).ok_or(Refused::NoStream)?;
        found.may_send(self.config.stream_queue_bytes_max)
    }

    /// Lets the peer send `bytes` more on a stream: what the application has consumed.
    ///
    /// A message costs its bytes, and [`crate::MESSAGE_COST_BYTES`] more if it is not the call's first or the result.
    /// Small grants are collected: the peer is told when they are a quarter of the initial window. On a stream that is
    /// gone, or whose peer has sent all it will, this does nothing.
    pub fn grant(&mut self, stream: StreamId, bytes: u32) {
        let threshold = (self.limits.stream_window_bytes / 4).max(1);
        let told = self.streams.find_mut(stream).and_then(|found| found.grant(bytes, threshold));
        if let Some(told) = told {
            self.outgoing.control(FrameType::Window, 0, stream.0, &told.to_le_bytes());
        }
    }

    /// Lets the peer finish a long message of which at most `bytes` have yet to come, however little it may send: what
    /// is missing is granted and told at once, for nothing is consumed before the message is complete.
    ///
    /// Returns how much was granted ahead. It is not to be granted again when the message has been consumed; else long
    /// messages would be under no flow control at all.
    #[must_use]
    pub fn make_room(&mut self, stream: StreamId, bytes: u32) -> u32 {
        let room = self.streams.find_mut(stream).and_then(|found| found.make_room(bytes));
        let Some((told, ahead)) = room else { return 0 };
        self.outgoing.control(FrameType::Window, 0, stream.0, &told.to_le_bytes());
        ahead
    }

    /// Names a method, before its first call. Fingerprint zero: this side knows only protobuf.
    ///
    /// # Errors
    /// [`Refused`] if the peer takes no more methods, or the path is longer than 1 KiB or empty.
    pub fn announce_schema(
        &mut self,
        path: &str,
        request_fingerprint: u64,
        response_fingerprint: u64,
    ) -> Result<MethodIndex, Refused> {
        if path.is_empty() || path.len() > PATH_BYTES_MAX as usize {
            return Err(Refused::PathLength { limit: PATH_BYTES_MAX });
        }
        let methods_max = self.established()?.limits.methods_max;
        let fingerprints = Fingerprints { request: request_fingerprint, response: response_fingerprint };
        let method = self.made.announce(fingerprints, methods_max)?;
        let mut body = Vec::with_capacity(16 + path.len());
        body.extend(request_fingerprint.to_le_bytes());
        body.extend(response_fingerprint.to_le_bytes());
        body.extend(path.as_bytes());
        self.outgoing.control(FrameType::Schema, method.0, 0, &body);
        Ok(method)
    }

    /// Says what this side has for a method the peer announced; again whenever that changes.
    ///
    /// # Errors
    /// [`Refused::UnknownMethod`] if the peer did not announce it.
    pub fn answer_schema(
        &mut self,
        method: MethodIndex,
        found: bool,
        request_fingerprint: u64,
        response_fingerprint: u64,
    ) -> Result<(), Refused> {
        let fingerprints = Fingerprints { request: request_fingerprint, response: response_fingerprint };
        self.taken.methods.answer(method, found, fingerprints).ok_or(Refused::UnknownMethod)?;
        let mut body = [0; 20];
        body[..8].copy_from_slice(&request_fingerprint.to_le_bytes());
        body[8..16].copy_from_slice(&response_fingerprint.to_le_bytes());
        body[16] = found.into();
        self.outgoing.control(FrameType::SchemaAck, method.0, 0, &body);
        Ok(())
    }

    /// Callers one side may have named at once.
    pub const CALLERS_MAX: u16 = CALLERS_MAX;

    /// Names somebody who makes calls here, for the calls that follow. Numbers count from 1 to
    /// [`Connection::CALLERS_MAX`]; `instead_of` gives one that is in use to somebody else: calls opened before keep
    /// who they had, because all of it goes one way in order.
    ///
    /// # Errors
    /// [`Refused`] if callers are not named on this connection, all numbers are in use, or `instead_of` is not.
    pub fn announce_caller(
        &mut self,
        caller: &VouchedCaller,
        instead_of: Option<CallerNumber>,
    ) -> Result<CallerNumber, Refused> {
        if !self.established()?.features.contains(Features::CALLERS) {
            return Err(Refused::OutOfPlace);
        }
        let number = self.made.name_caller(instead_of)?;
        let body = caller::encode(&caller.clone().within_bounds());
        self.outgoing.control(FrameType::Caller, number.0, 0, &body);
        Ok(number)
    }

    /// Asks for a [`crate::Event::Pong`] with the same payload. Before the peer's HELLO this does nothing.
    pub fn ping(&mut self, payload: u64) {
        if self.peer().is_some() {
            self.outgoing.control(FrameType::Ping, 0, 0, &payload.to_le_bytes());
        }
    }

    /// Asks the peer to open its calls on another connection from now on; those of this one go on, and more are taken.
    /// A peer of an older version answers as to any PING and does nothing. Before its HELLO this does nothing.
    pub fn ask_to_redial(&mut self) {
        if self.peer().is_some() {
            self.outgoing.control(FrameType::Ping, PING_REDIAL, 0, &[0; 8]);
        }
    }

    /// Takes no new calls; open ones may end within the drain time. Says so once, or, before the peer's HELLO, not at
    /// all: there is nothing to drain then, close.
    pub fn go_away(&mut self, now: Instant, code: Code) {
        let newest = self.streams.ids.newest_taken;
        let is_new = self.ending.leave(newest, now.plus_ns(self.config.drain_timeout_ns));
        if is_new && self.peer().is_some() {
            self.outgoing.control(FrameType::GoAway, code.number(), 0, &newest.to_le_bytes());
        }
    }

    /// Says why the connection ends. Nothing may follow: flush what is queued, then close the socket.
    pub fn close(&mut self, code: Code, why: &str) {
        if self.ending.close() {
            let why = &why[..why.floor_char_boundary(REASON_BYTES_MAX as usize)];
            self.outgoing.control(FrameType::Close, code.number(), 0, why.as_bytes());
        }
    }

    /// Methods this side has announced, and how many the peer takes: none before its HELLO. No number is given back.
    pub fn methods_announced(&self) -> (usize, usize) {
        let max = self.peer().map_or(0, |peer| peer.limits.methods_max);
        (self.made.methods.len(), max as usize)
    }

    /// Whether both sides agreed on the fingerprints of a method announced here: linear (request, response).
    pub fn agreed(&self, method: MethodIndex) -> (bool, bool) {
        self.made.agreed(method.0)
    }

    /// Whether a message on this stream may go out linear: the ends agreed on the fingerprint of its type.
    pub fn agreed_on(&self, stream: StreamId) -> bool {
        self.streams.find(stream).is_some_and(|found| self.is_agreed(found))
    }

    /// The serving side has said its last: the stream goes when what waits on it has gone.
    fn finish(&mut self, stream: StreamId) {
        let waits = self.streams.find_mut(stream).is_some_and(Stream::finish);
        if !waits {
            self.streams.discard(stream);
        }
    }

    fn established(&self) -> Result<&Peer, Refused> {
        if self.ending.is_closed() {
            return Err(Refused::Draining);
        }
        self.handshake.established()
    }

    fn check_stream_message(&self, stream: StreamId, message: &Payload<'_>) -> Result<(), Refused> {
        let found = self.streams.find(stream).ok_or(Refused::NoStream)?;
        self.check_message_out(message, self.is_agreed(found))
    }

    fn is_agreed(&self, stream: &Stream) -> bool {
        let method = stream.method;
        if stream.is_made() { self.made.agreed(method).0 } else { self.taken.agreed(method).1 }
    }

    fn check_message_out(&self, message: &Payload<'_>, is_agreed: bool) -> Result<(), Refused> {
        let peer = self.established()?;
        let limit = peer.limits.message_bytes_max;
        if message.body.len() > limit {
            return Err(Refused::MessageTooLarge { limit });
        }
        if message.encoding == Encoding::Linear && !is_agreed {
            return Err(Refused::NotAgreed);
        }
        if peer.features.contains(Features::CHECKSUM) && matches!(message.body, Body::Shared(_)) {
            return Err(Refused::SharedBody);
        }
        Ok(())
    }
}

fn served(stream: Option<&mut Stream>) -> Result<&mut Stream, Refused> {
    let stream = stream.ok_or(Refused::NoStream)?;
    stream.serves()?;
    Ok(stream)
}

fn check_metadata(metadata: &[u8], limit: u32) -> Result<(), Refused> {
    if metadata.len() > limit as usize { Err(Refused::MetadataTooLarge { limit }) } else { Ok(()) }
}

fn encoding_flag(encoding: Encoding) -> u8 {
    match encoding {
        Encoding::Linear => 0,
        Encoding::Protobuf => flag::PROTOBUF,
    }
}

fn error_head<'a>(stream: StreamId, failure: &Failure<'a>) -> Head<'a> {
    let mut head = Head::new(FrameType::Error, stream.0);
    head.code = failure.code.number() | (failure.execution as u16) << 8;
    head.metadata = Cow::Borrowed(failure.metadata);
    head.trailer = failure.trailer.copied();
    head
}
