//! From bytes to events: which frame, whose is it, and what does that mean for the others?

use crate::connection::{Connection, Step};
use crate::event::{Arriving, Event, Incoming, IncomingCall};
use crate::frame::{Arrival, PING_REDIAL, Then, UnsealedFrame};
use crate::frame_type::{FrameType, flag};
use crate::head::Blocks;
use crate::input::Input;
use crate::stream::{State, Stream};
use crate::wire::{FixedFields, HEADER_BYTES, Header, check_window, field, out_of_place};
use crate::{CallerNumber, Features, Limits, MethodIndex, Notice, ProtocolError, StreamId};
use trunkline_call::{Code, Execution};

impl Connection {
    // LIFE: 12
    /// Takes one frame, or the head of one with a long body.
    pub(crate) fn handle_frame<'a>(&mut self, input: &mut Input<'a>) -> Result<Step<'a>, ProtocolError> {
        let Some(bytes) = input.bytes().first_chunk::<HEADER_BYTES>() else {
            return Header::check_beginning(input.bytes()).map(|()| Step::More);
        };
        let header = Header::decode(bytes)?;
        if self.handshake.is_awaited() {
            return self.handle_hello(input, &header);
        }
        let framed = UnsealedFrame::unseal(header, input.bytes(), self.has_checksums())?;
        let Some(framed) = framed else { return Ok(Step::More) };
        if framed.header.frame.carries_message() {
            return self.handle_message_frame(input, framed);
        }
        let header = framed.header;
        let Some((body, frame_bytes)) = framed.whole(self.limits.metadata_bytes_max)? else {
            return Ok(Step::More);
        };
        input.take(frame_bytes);
        if header.frame.is_of_stream() {
            self.handle_stream_frame(&header, body)
        } else {
            self.handle_connection_frame(&header, body)
        }
    }

    /// Takes bytes of a message whose head has been told of.
    pub(crate) fn handle_body<'a>(
        &mut self,
        input: &mut Input<'a>,
        id: StreamId,
        left: u32,
    ) -> Result<Step<'a>, ProtocolError> {
        if self.streams.find(id).is_none_or(|stream| stream.partial.is_none()) {
            self.reader.skip(left);
            return Ok(Step::Quiet);
        }
        let bytes = self.reader.take(input, left)?;
        if bytes.is_empty() {
            return Ok(Step::More);
        }
        Ok(match self.advance_body(id, bytes.len() as u32) {
            Some((tag, offset, last)) => Step::Event(Event::Chunk { stream: id, tag, offset, bytes, last }),
            None => Step::Quiet,
        })
    }

    /// Drops bytes nobody wants, and gives their window back.
    pub(crate) fn handle_skip<'a>(
        &mut self,
        input: &mut Input<'a>,
        left: u32,
    ) -> Result<Step<'a>, ProtocolError> {
        let skipped = self.reader.take(input, left)?.len() as u32;
        self.give_back(skipped);
        self.reader.advance(skipped);
        Ok(if skipped == left || skipped > 0 { Step::Quiet } else { Step::More })
    }

    /// Counts `count` bytes of a cut message as arrived: tag, offset of the first, and whether the message is complete.
    pub(crate) fn advance_body(&mut self, id: StreamId, count: u32) -> Option<(u64, u32, bool)> {
        self.give_back(count);
        self.reader.advance(count);
        let stream = self.streams.find_mut(id)?;
        let tag = stream.tag;
        let (offset, then) = stream.receive(count)?;
        if let Some(then) = then {
            match then {
                Then::More => {}
                Then::End => stream.end_request(),
                Then::Outcome => self.forget(id),
            }
        }
        Some((tag, offset, then.is_some()))
    }

    /// Takes a stream out, with everything that waits on it.
    pub(crate) fn forget(&mut self, id: StreamId) {
        let Some(stream) = self.streams.find_mut(id) else { return };
        if !stream.queue.is_empty() {
            self.outgoing.purge(stream);
        }
        self.streams.discard(id);
    }

    fn handle_hello<'a>(
        &mut self,
        input: &mut Input<'a>,
        header: &Header,
    ) -> Result<Step<'a>, ProtocolError> {
        let Some(peer) = self.handshake.handle_hello(header, input)? else { return Ok(Step::More) };
        let segment_bytes = self.config.segment_bytes.min(peer.limits.segment_bytes_max);
        let seals = peer.features.contains(Features::CHECKSUM);
        self.outgoing.establish(peer.limits.connection_window_bytes, segment_bytes, seals);
        Ok(Step::Event(Event::Established))
    }

    fn handle_message_frame<'a>(
        &mut self,
        input: &mut Input<'a>,
        framed: UnsealedFrame<'a>,
    ) -> Result<Step<'a>, ProtocolError> {
        let whole_bytes_max = self.config.placement_bytes_min;
        let arrival = framed.arrival(&self.limits, whole_bytes_max, self.names_callers())?;
        let Some(arrival) = arrival else { return Ok(Step::More) };
        let is_wanted = self.admit(&arrival)?;
        self.window.charge(&arrival)?;
        self.reader.take_head(input, &arrival, is_wanted);
        if !is_wanted {
            self.give_back(arrival.header.frame.cost_bytes());
            return Ok(Step::Quiet);
        }
        if arrival.header.frame == FrameType::Call {
            self.open_taken(&arrival.header);
        }
        self.begin_message(input, &arrival)
    }

    /// Whether the frame may come on its stream: an error if never, `false` if the stream is gone.
    fn admit(&mut self, arrival: &Arrival<'_>) -> Result<bool, ProtocolError> {
        let header = &arrival.header;
        if header.frame == FrameType::Call {
            return self.admit_call(header, arrival.blocks.caller);
        }
        let Some(stream) = self.streams.find_for(header)? else { return Ok(false) };
        stream.check_arrival(arrival)?;
        let (method, is_made) = (stream.method, stream.is_made());
        if header.frame != FrameType::Segment {
            self.check_agreed(header, method, is_made)?;
        }
        Ok(true)
    }

    /// A new stream: its id, its method. `false` if it is not taken (too many, or leaving).
    fn admit_call(&mut self, header: &Header, caller: u32) -> Result<bool, ProtocolError> {
        self.streams.ids.check_new(header)?;
        // Ids that have come round may be those of streams that are open since.
        if self.streams.find(StreamId(header.stream)).is_some() {
            return Err(out_of_place(header, "the stream is still open"));
        }
        if self.taken.methods.find(header.code).is_none() {
            return Err(field(header, "method index", header.code.into(), "one announced by SCHEMA"));
        }
        if caller > self.taken.callers.into() {
            return Err(field(header, "caller number", caller.into(), "0, or one named by CALLER"));
        }
        if header.has(flag::MESSAGE) {
            self.check_agreed(header, header.code, false)?;
        }
        self.streams.ids.newest_taken = header.stream;
        if self.ending.has_said_go_away() {
            return Ok(false);
        }
        if self.streams.taken() >= self.limits.streams_max {
            let code = Code::ResourceExhausted.number() | (Execution::NotExecuted as u16) << 8;
            self.outgoing.control(FrameType::Error, code, header.stream, &[]);
            return Ok(false);
        }
        Ok(true)
    }

    /// A linear body needs an agreement on the type's fingerprint.
    fn check_agreed(&self, header: &Header, method: u16, is_response: bool) -> Result<(), ProtocolError> {
        if header.has(flag::PROTOBUF) {
            return Ok(());
        }
        let agreed = if is_response { self.made.agreed(method).1 } else { self.taken.agreed(method).0 };
        if agreed { Ok(()) } else { Err(out_of_place(header, "linear body without agreed fingerprints")) }
    }

    fn open_taken(&mut self, header: &Header) {
        let send_window = self.peer().map_or(0, |peer| peer.limits.stream_window_bytes);
        let receive_window = self.limits.stream_window_bytes;
        let id = StreamId(header.stream);
        self.streams.insert(Stream::new(id, State::Receiving, header.code, send_window, receive_window));
    }

    /// Brings the stream's state up to a message frame, takes its body if it is to be handed up whole, and tells of it.
    fn begin_message<'a>(
        &mut self,
        input: &mut Input<'a>,
        arrival: &Arrival<'a>,
    ) -> Result<Step<'a>, ProtocolError> {
        let id = StreamId(arrival.header.stream);
        let Some(stream) = self.streams.find_mut(id) else { return Ok(Step::Quiet) };
        stream.charge(arrival)?;
        let tag = stream.tag;
        if arrival.header.frame == FrameType::Segment {
            self.reader.expect_body(id, arrival.body_bytes);
            return Ok(Step::Quiet);
        }
        let message = arrival.has_message().then(|| incoming(input, arrival));
        let (then, cost_bytes) = (arrival.then(), arrival.header.frame.cost_bytes());
        if let Some(Arriving::Cut { total }) = message.map(|message| message.body) {
            stream.begin_parts(total, then);
            if then == Then::Outcome {
                self.outgoing.purge(stream);
            }
            if arrival.body_bytes > 0 {
                self.reader.expect_body(id, arrival.body_bytes);
            }
            self.give_back(cost_bytes);
        } else {
            if then == Then::End {
                stream.end_request();
            }
            self.give_back(arrival.body_bytes + cost_bytes);
            if then == Then::Outcome {
                self.forget(id);
            }
        }
        Ok(Step::Event(message_event(arrival, message, tag)))
    }

    /// Takes a whole frame of a stream that carries no message.
    fn handle_stream_frame<'a>(
        &mut self,
        header: &Header,
        body: &'a [u8],
    ) -> Result<Step<'a>, ProtocolError> {
        let metadata_max = self.limits.metadata_bytes_max;
        let blocks = Blocks::parse(header, body, metadata_max, false)?.unwrap_or_default();
        if blocks.bytes != header.length {
            return Err(field(header, "length", header.length.into(), "that of its blocks: it has no body"));
        }
        let Some(stream) = self.streams.find_for(header)? else {
            return Ok(self.handle_late(header));
        };
        stream.handle_bare(header)?;
        let (id, tag) = (stream.id, stream.tag);
        if matches!(header.frame, FrameType::Cancel | FrameType::Error | FrameType::VoidResult) {
            self.forget(id);
        }
        Ok(Step::Event(stream_event(header, &blocks, id, tag)))
    }

    /// A frame for a stream that is gone, or going: only a CANCEL still matters, to an outcome nobody waits for any
    /// more.
    fn handle_late<'a>(&mut self, header: &Header) -> Step<'a> {
        self.reader.ignored_frames += 1;
        if header.frame == FrameType::Cancel {
            self.forget(StreamId(header.stream));
        }
        Step::Quiet
    }

    /// Takes a whole frame of the connection.
    fn handle_connection_frame<'a>(
        &mut self,
        header: &Header,
        body: &'a [u8],
    ) -> Result<Step<'a>, ProtocolError> {
        if header.stream != 0 && header.frame != FrameType::Window {
            return Err(field(header, "stream", header.stream.into(), "0: the frame is the connection's"));
        }
        let mut read = FixedFields(body);
        let event = match header.frame {
            FrameType::Window => return self.on_window(header, read.u32()).map(|()| Step::Quiet),
            FrameType::Ping => {
                self.outgoing.control(FrameType::Pong, 0, 0, body);
                return Ok(if header.code == PING_REDIAL { Step::Event(Event::Redial) } else { Step::Quiet });
            }
            FrameType::Pong => Event::Pong { payload: read.u64() },
            FrameType::Schema => self.taken.handle_schema(header, body, self.limits.methods_max)?,
            FrameType::SchemaAck => self.made.handle_answer(header, body)?,
            FrameType::Caller if !self.names_callers() => {
                return Err(out_of_place(header, "callers were not offered by both sides"));
            }
            FrameType::Caller => self.taken.handle_caller(header, body)?,
            FrameType::GoAway => self.on_go_away(header, read.u32())?,
            _ => {
                self.ending.heard_close();
                Event::Closed { code: Code::from_number(header.code), why: text(body) }
            }
        };
        Ok(Step::Event(event))
    }

    fn on_window(&mut self, header: &Header, bytes: u32) -> Result<(), ProtocolError> {
        if bytes == 0 || bytes > Limits::WINDOW_BYTES_MAX {
            return Err(field(header, "grant", bytes.into(), "1 to 2^31 - 1"));
        }
        if header.stream == 0 {
            return check_window(header, self.outgoing.grant_connection(bytes));
        }
        self.streams.ids.check_opened(header)?;
        // A stream that is finishing still waits for its window.
        let Some(stream) = self.streams.find_mut(StreamId(header.stream)) else { return Ok(()) };
        stream.handle_window(header, bytes)?;
        self.outgoing.unblock(stream);
        Ok(())
    }

    /// Calls opened here that the peer did not take end now: it promises it never will.
    fn on_go_away(&mut self, header: &Header, newest: u32) -> Result<Event<'static>, ProtocolError> {
        let Some(newest) = self.streams.ids.ordinal_of(newest) else {
            return Err(field(header, "last stream", newest.into(), "one that was opened, or 0"));
        };
        self.ending.heard_go_away();
        for (stream, tag) in self.streams.not_taken(newest) {
            self.forget(stream);
            self.outgoing.notify(Notice::Ended { stream, tag, execution: Execution::NotExecuted });
        }
        Ok(Event::GoAway { code: Code::from_number(header.code) })
    }

    /// Gives bytes back to the connection's window, and tells the peer when they are worth a frame.
    fn give_back(&mut self, bytes: u32) {
        if let Some(told) = self.window.give_back(bytes, self.limits.connection_window_bytes) {
            self.outgoing.control(FrameType::Window, 0, 0, &told.to_le_bytes());
        }
    }
}

/// The message of a frame, whose body is taken if it is to be handed up whole.
fn incoming<'a>(input: &mut Input<'a>, arrival: &Arrival<'a>) -> Incoming<'a> {
    let total = arrival.blocks.total.unwrap_or(arrival.body_bytes);
    let body = if arrival.is_whole {
        Arriving::Whole(input.take(arrival.body_bytes as usize))
    } else {
        Arriving::Cut { total }
    };
    Incoming { encoding: arrival.encoding(), body }
}

fn message_event<'a>(arrival: &Arrival<'a>, message: Option<Incoming<'a>>, tag: u64) -> Event<'a> {
    let (header, blocks) = (&arrival.header, &arrival.blocks);
    let stream = StreamId(header.stream);
    let end = header.has(flag::END);
    match (header.frame, message) {
        (FrameType::Call, message) => Event::Call(IncomingCall {
            stream,
            method: MethodIndex(header.code),
            caller: (blocks.caller != 0).then_some(CallerNumber(blocks.caller as u16)),
            deadline_remaining_ns: blocks.deadline_remaining_ns,
            stamps_wanted: header.has(flag::STAMPS),
            metadata: blocks.metadata,
            message,
            end,
        }),
        (FrameType::Message, Some(message)) => Event::Message { stream, tag, message, end },
        (_, message) => {
            let (metadata, trailer) = (blocks.metadata, blocks.trailer);
            Event::Result { stream, tag, message, metadata, trailer }
        }
    }
}

fn stream_event<'a>(header: &Header, blocks: &Blocks<'a>, stream: StreamId, tag: u64) -> Event<'a> {
    let (metadata, trailer) = (blocks.metadata, blocks.trailer);
    let code = Code::from_number(header.code);
    match header.frame {
        FrameType::HalfClose => Event::HalfClose { stream, tag },
        FrameType::Cancel => Event::Cancelled { stream, tag, code },
        FrameType::Headers => Event::Headers { stream, tag, metadata },
        FrameType::VoidResult => Event::Result { stream, tag, message: None, metadata, trailer },
        _ => {
            let [code, execution] = header.code.to_le_bytes();
            let (code, execution) = (Code::from_number(code.into()), Execution::from_number(execution));
            Event::Error { stream, tag, code, execution, metadata, trailer }
        }
    }
}

/// The text of a reason, as far as it is text.
fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}
