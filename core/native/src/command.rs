//! What the owner tells a connection to do. A refused command leaves nothing behind.

use crate::body::Payload;
use crate::connection::Connection;
use crate::event::Trailer;
use crate::frame_type::{FrameType, flag};
use crate::head::Head;
use crate::hello::Peer;
use crate::stream::{CallEnd, State, Stream};
use crate::{Body, CallerNumber, Features, MethodIndex, Refused, Side, StreamId};
use std::borrow::Cow;
use trunkline_call::{Code, Deadline, Encoding, Execution, Instant};

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
        self.check_queue()?;
        let peer = self.may_open()?;
        let (send_window, metadata_max) = (peer.limits.stream_window_bytes, peer.limits.metadata_bytes_max);
        let method = *self.methods_made.find(call.method.0).ok_or(Refused::UnknownMethod)?;
        let names_callers = peer.features.contains(Features::CALLERS);
        check_metadata(call.metadata, metadata_max)?;
        if call.caller.is_some_and(|caller| names_callers && caller.0 > self.callers_made) {
            return Err(Refused::OutOfPlace);
        }
        if let Some(message) = &message {
            self.check_message_out(message, method.linear_request)?;
        }
        let (id, ordinal) = self.next_stream();
        let state = if call.end { State::Sent } else { State::Sending };
        let receive_window = self.limits.stream_window_bytes;
        let mut stream = Stream::new(id, state, call.method.0, send_window, receive_window);
        (stream.tag, stream.ordinal) = (call.tag, ordinal);
        let stream = self.streams.insert(stream);
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
            if found.state != State::Sending {
                return Err(Refused::OutOfPlace);
            }
            found.state = State::Sent;
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
        self.outgoing.dispatch_last(now, found, &error_head(stream, failure), &mut self.notices);
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
        if found.state != State::Sending {
            return Err(Refused::OutOfPlace);
        }
        found.state = State::Sent;
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
        let is_whole = found.call_end != CallEnd::Waiting || found.is_answered();
        let mut head = Head::new(FrameType::Cancel, stream.0);
        head.code = code.number();
        self.outgoing.dispatch_last(now, found, &head, &mut self.notices);
        self.forget(stream);
        Ok(if is_whole { Execution::Unknown } else { Execution::NotExecuted })
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
        if self.streams.count(self.side == Side::Initiator) >= peer.limits.streams_max {
            return Err(Refused::Streams { limit: peer.limits.streams_max });
        }
        Ok(peer)
    }

    /// Whether a message could be sent on a stream now. If not for a full queue, a notice will say when.
    ///
    /// # Errors
    /// Why not.
    pub fn may_send(&mut self, stream: StreamId) -> Result<(), Refused> {
        self.check_queue()?;
        let limit = self.config.stream_queue_bytes_max;
        let found = self.streams.find_mut(stream).ok_or(Refused::NoStream)?;
        if found.is_answered() {
            return Err(Refused::Answered);
        }
        if matches!(found.state, State::Sent | State::Finishing) {
            return Err(Refused::OutOfPlace);
        }
        if found.queued_bytes >= limit {
            found.refused = true;
            return Err(Refused::StreamQueueFull { limit });
        }
        Ok(())
    }

    /// The serving side has said its last: the stream goes when what waits on it has gone.
    fn finish(&mut self, stream: StreamId) {
        let Some(found) = self.streams.find_mut(stream) else { return };
        if found.queue.is_empty() {
            self.forget(stream);
        } else {
            found.state = State::Finishing;
            found.partial = None;
        }
    }

    pub(crate) fn established(&self) -> Result<&Peer, Refused> {
        if self.ending.closed {
            return Err(Refused::Draining);
        }
        self.peer.as_ref().ok_or(Refused::NotEstablished)
    }

    fn check_queue(&mut self) -> Result<(), Refused> {
        let limit = self.config.queue_bytes_max;
        if self.send_queue_bytes() < limit {
            return Ok(());
        }
        self.queue_refused = true;
        Err(Refused::QueueFull { limit })
    }

    fn check_stream_message(&self, stream: StreamId, message: &Payload<'_>) -> Result<(), Refused> {
        self.streams.find(stream).ok_or(Refused::NoStream)?;
        self.check_message_out(message, self.agreed_on(stream))
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
    match stream.state {
        State::Receiving | State::Received => Ok(stream),
        State::Sending | State::Sent | State::Finishing => Err(Refused::OutOfPlace),
    }
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
