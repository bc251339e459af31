//! From bytes to events: which frame, which stream, may it come now?

use crate::checksum::Check;
use crate::connection::{Connection, Reading, Step};
use crate::event::{Arriving, Event, Incoming, IncomingCall};
use crate::frame_type::{FrameType, flag};
use crate::head::Blocks;
use crate::hello::AwaitHello;
use crate::input::Input;
use crate::stream::{Partial, State, Stream, Then, cost_bytes};
use crate::wire::{HEADER_BYTES, Header, U32_BYTES, check_limit, field, out_of_place};
use crate::{CallerNumber, Config, Features, MethodIndex, ProtocolError, Side, StreamId};
use trunkline_call::{Code, Encoding, Execution};

/// A frame that carries (a part of) a message, its head read and checked.
#[derive(Clone, Copy)]
pub(crate) struct Arrival<'a> {
    pub header: Header,
    blocks: Blocks<'a>,
    /// Message bytes in this frame.
    pub body_bytes: u32,
    /// Whether they are the whole message and short enough to be handed up in one piece.
    is_whole: bool,
}

/// A frame without its CHECKSUM block.
struct Framed<'a> {
    /// The header, as if the block were not there.
    header: Header,
    /// What has arrived behind header and block.
    behind: &'a [u8],
    head_bytes: usize,
    /// What the block says, if there was one.
    check: Option<Check>,
}

impl Connection {
    // LIFE: 12
    /// Takes one frame, or the head of one with a long body.
    pub(crate) fn handle_frame<'a>(&mut self, input: &mut Input<'a>) -> Result<Step<'a>, ProtocolError> {
        let Some(bytes) = input.bytes().first_chunk::<HEADER_BYTES>() else {
            return Header::check_beginning(input.bytes()).map(|()| Step::More);
        };
        let header = Header::decode(bytes)?;
        if self.hello.is_some() {
            return self.handle_hello(input, &header);
        }
        let Some(framed) = self.unseal(header, input.bytes())? else { return Ok(Step::More) };
        if framed.header.frame.carries_message() {
            return self.handle_message_frame(input, framed);
        }
        let Framed { header, behind, head_bytes, check } = framed;
        self.check_length(&header)?;
        let Some(body) = behind.get(..header.length as usize) else { return Ok(Step::More) };
        judge(check, body)?;
        input.take(head_bytes + body.len());
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
            self.reading = Reading::Skip { left };
            return Ok(Step::Quiet);
        }
        let bytes = input.take(left as usize);
        if bytes.is_empty() {
            return Ok(Step::More);
        }
        self.check_bytes(bytes, left)?;
        Ok(match self.advance_body(id, left, bytes.len() as u32) {
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
        let bytes = input.take(left as usize);
        self.check_bytes(bytes, left)?;
        let skipped = bytes.len() as u32;
        self.give_back(skipped);
        self.reading = if skipped == left { Reading::Frame } else { Reading::Skip { left: left - skipped } };
        Ok(if skipped == left || skipped > 0 { Step::Quiet } else { Step::More })
    }

    /// Takes bytes into the checksum of the frame under way, of which `left` were still to come.
    fn check_bytes(&mut self, bytes: &[u8], left: u32) -> Result<(), ProtocolError> {
        let Some(check) = &mut self.check else { return Ok(()) };
        check.update(bytes);
        if bytes.len() < left as usize {
            return Ok(());
        }
        self.check.take().map_or(Ok(()), Check::finish)
    }

    /// Takes the CHECKSUM block off a frame; `None` if it has not come. Where both sides offered checksums, only a
    /// CLOSE may be without: it can be written before the peer's HELLO is read.
    fn unseal<'a>(&self, header: Header, arrived: &'a [u8]) -> Result<Option<Framed<'a>>, ProtocolError> {
        let behind = arrived.get(HEADER_BYTES..).unwrap_or_default();
        let are_agreed = self.peer.as_ref().is_some_and(|peer| peer.features.contains(Features::CHECKSUM));
        match (header.has(flag::CHECKSUM), are_agreed) {
            (false, true) if header.frame != FrameType::Close => {
                return Err(out_of_place(&header, "frames have checksums on this connection"));
            }
            (false, _) => return Ok(Some(Framed { header, behind, head_bytes: HEADER_BYTES, check: None })),
            (true, false) => return Err(out_of_place(&header, "checksums were not offered by both sides")),
            (true, true) => {}
        }
        let Some(length) = header.length.checked_sub(U32_BYTES as u32) else {
            return Err(field(&header, "length", header.length.into(), "at least 4 with a checksum"));
        };
        let Some((found, behind)) = behind.split_first_chunk::<U32_BYTES>() else { return Ok(None) };
        let check = Some(Check::new(header, *found));
        let head_bytes = HEADER_BYTES + U32_BYTES;
        Ok(Some(Framed { header: Header { length, ..header }, behind, head_bytes, check }))
    }

    /// Counts `count` bytes of a cut message as arrived: tag, offset of the first, and whether the message is complete.
    pub(crate) fn advance_body(&mut self, id: StreamId, left: u32, count: u32) -> Option<(u64, u32, bool)> {
        self.give_back(count);
        self.reading =
            if count == left { Reading::Frame } else { Reading::Body { stream: id, left: left - count } };
        let stream = self.streams.find_mut(id)?;
        let partial = stream.partial.as_mut()?;
        let offset = partial.received;
        partial.received += count;
        let (tag, then, last) = (stream.tag, partial.then, partial.received == partial.total);
        if last {
            stream.partial = None;
            self.finish_message(id, then);
        }
        Some((tag, offset, last))
    }

    /// What a complete message means for its stream.
    fn finish_message(&mut self, id: StreamId, then: Then) {
        match then {
            Then::More => {}
            Then::End => {
                if let Some(stream) = self.streams.find_mut(id)
                    && stream.state == State::Receiving
                {
                    stream.state = State::Received;
                }
            }
            Then::Outcome => self.forget(id),
        }
    }

    /// Takes a stream out, with everything that waits on it.
    pub(crate) fn forget(&mut self, id: StreamId) {
        let Some(stream) = self.streams.find_mut(id) else { return };
        if !stream.queue.is_empty() {
            self.outgoing.purge(stream, &mut self.notices);
        }
        self.streams.discard(id);
    }

    fn handle_hello<'a>(
        &mut self,
        input: &mut Input<'a>,
        header: &Header,
    ) -> Result<Step<'a>, ProtocolError> {
        let body_bytes = AwaitHello::body_bytes(header)?;
        if input.len() < HEADER_BYTES + body_bytes {
            return Ok(Step::More);
        }
        input.take(HEADER_BYTES);
        let Some(hello) = self.hello.take() else { return Ok(Step::Quiet) };
        let peer = hello.handle(input.take(body_bytes))?;
        let segment_bytes = self.config.segment_bytes.min(peer.limits.segment_bytes_max);
        let seals = peer.features.contains(Features::CHECKSUM);
        self.outgoing.establish(peer.limits.connection_window_bytes, segment_bytes, seals);
        self.peer = Some(peer);
        Ok(Step::Event(Event::Established))
    }

    fn handle_message_frame<'a>(
        &mut self,
        input: &mut Input<'a>,
        framed: Framed<'a>,
    ) -> Result<Step<'a>, ProtocolError> {
        let Framed { header, behind, head_bytes, mut check } = framed;
        let metadata_max = self.limits.metadata_bytes_max;
        let Some(blocks) = Blocks::parse(&header, behind, metadata_max, self.names_callers())? else {
            return Ok(Step::More);
        };
        let arrival = self.check_message(header, blocks)?;
        // What is here in one piece is judged before anything is done with it; a long body at its end.
        let in_hand = if arrival.is_whole { header.length } else { blocks.bytes };
        let Some(in_hand) = behind.get(..in_hand as usize) else { return Ok(Step::More) };
        if in_hand.len() == header.length as usize {
            judge(check.take(), in_hand)?;
        } else if let Some(check) = &mut check {
            check.update(in_hand);
        }
        let is_wanted = self.admit(&arrival)?;
        self.charge_connection(&arrival)?;
        input.take(head_bytes + blocks.bytes as usize);
        self.check = check;
        if !is_wanted {
            self.ignored_frames += 1;
            self.give_back(cost_bytes(header.frame));
            self.reading = Reading::Skip { left: arrival.body_bytes };
            return Ok(Step::Quiet);
        }
        if header.frame == FrameType::Call {
            self.open_taken(&header);
        }
        self.charge_stream(&arrival)?;
        Ok(self.begin_message(input, &arrival))
    }

    /// Lengths of a message frame, before anything is looked up.
    fn check_message<'a>(&self, header: Header, blocks: Blocks<'a>) -> Result<Arrival<'a>, ProtocolError> {
        let limits = &self.limits;
        let body_bytes = header.length - blocks.bytes;
        let frame = header.frame;
        check_limit(&header, "body length", body_bytes, limits.segment_bytes_max)?;
        check_limit(&header, "message length", blocks.total.unwrap_or(body_bytes), limits.message_bytes_max)?;
        if blocks.total.is_some() && body_bytes > 0 {
            return Err(field(&header, "body length", body_bytes.into(), "0 beside TOTAL"));
        }
        if blocks.total == Some(0) {
            return Err(field(&header, "TOTAL", 0, "at least 1"));
        }
        if frame == FrameType::Segment && body_bytes == 0 {
            return Err(field(&header, "length", 0, "at least 1"));
        }
        let has_message = frame != FrameType::Call || header.has(flag::MESSAGE);
        if !has_message && (body_bytes > 0 || blocks.total.is_some()) {
            return Err(field(&header, "body length", body_bytes.into(), "0 without MESSAGE, and no TOTAL"));
        }
        let is_short = body_bytes <= self.config.placement_bytes_min.min(Config::PLACEMENT_BYTES_MAX);
        let is_whole = blocks.total.is_none() && frame != FrameType::Segment && is_short;
        Ok(Arrival { header, blocks, body_bytes, is_whole })
    }

    /// Whether the frame may come on its stream: an error if never, `false` if the stream is gone.
    fn admit(&mut self, arrival: &Arrival<'_>) -> Result<bool, ProtocolError> {
        let header = &arrival.header;
        if header.frame == FrameType::Call {
            return self.admit_call(header, arrival.blocks.caller);
        }
        let Some(stream) = self.known_stream(header)? else { return Ok(false) };
        if header.frame == FrameType::Segment {
            let Some(partial) = stream.partial else {
                return Err(out_of_place(header, "no message is in parts"));
            };
            let left = partial.total - partial.received;
            return if arrival.body_bytes > left {
                Err(field(header, "length", arrival.body_bytes.into(), "within the message's TOTAL"))
            } else {
                Ok(true)
            };
        }
        if stream.partial.is_some() {
            return Err(out_of_place(header, "the message before it is not complete"));
        }
        let (is_result, is_made) = (header.frame == FrameType::Result, stream.is_made());
        let method = stream.method;
        match stream.state {
            State::Received => return Err(out_of_place(header, "its side of the stream is complete")),
            _ if is_result && !is_made => {
                return Err(out_of_place(header, "only the serving side ends a call"));
            }
            _ if is_made && header.has(flag::END) => {
                return Err(out_of_place(header, "a response ends by its outcome"));
            }
            _ => {}
        }
        self.check_agreed(header, method, is_made)?;
        Ok(true)
    }

    /// A new stream: its id, its method. `false` if it is not taken (too many, or leaving).
    fn admit_call(&mut self, header: &Header, caller: u32) -> Result<bool, ProtocolError> {
        if !self.is_peers(header.stream) {
            return Err(out_of_place(header, "the id's parity is this side's"));
        }
        let ahead = header.stream.wrapping_sub(self.newest_taken);
        if header.stream == 0 || ahead == 0 || ahead > i32::MAX as u32 {
            return Err(out_of_place(header, "ids of new streams must rise"));
        }
        if self.methods_taken.find(header.code).is_none() {
            return Err(field(header, "method index", header.code.into(), "one announced by SCHEMA"));
        }
        if caller > self.callers_taken.into() {
            return Err(field(header, "caller number", caller.into(), "0, or one named by CALLER"));
        }
        if header.has(flag::MESSAGE) {
            self.check_agreed(header, header.code, false)?;
        }
        self.newest_taken = header.stream;
        if self.ending.said.is_some() {
            return Ok(false);
        }
        if self.streams.count(self.side == Side::Acceptor) >= self.limits.streams_max {
            self.refuse_call(header.stream);
            return Ok(false);
        }
        Ok(true)
    }

    /// A linear body needs an agreement on the type's fingerprint.
    fn check_agreed(&self, header: &Header, method: u16, is_response: bool) -> Result<(), ProtocolError> {
        if header.has(flag::PROTOBUF) {
            return Ok(());
        }
        let agreed = if is_response {
            self.methods_made.find(method).is_some_and(|m| m.linear_response)
        } else {
            self.methods_taken.find(method).is_some_and(|m| m.linear_request)
        };
        if agreed { Ok(()) } else { Err(out_of_place(header, "linear body without agreed fingerprints")) }
    }

    /// Tells an event for a message frame, and takes its body if it is to be handed up whole.
    fn begin_message<'a>(&mut self, input: &mut Input<'a>, arrival: &Arrival<'a>) -> Step<'a> {
        let Arrival { header, blocks, body_bytes, .. } = *arrival;
        let id = StreamId(header.stream);
        if header.frame == FrameType::Segment {
            self.reading = Reading::Body { stream: id, left: body_bytes };
            return Step::Quiet;
        }
        let has_message = header.frame != FrameType::Call || header.has(flag::MESSAGE);
        let message = has_message.then(|| self.begin_body(input, arrival));
        let tag = self.streams.find(id).map_or(0, |stream| stream.tag);
        let end = header.has(flag::END);
        let event = match (header.frame, message) {
            (FrameType::Call, message) => Event::Call(IncomingCall {
                stream: id,
                method: MethodIndex(header.code),
                caller: (blocks.caller != 0).then_some(CallerNumber(blocks.caller as u16)),
                deadline_remaining_ns: blocks.deadline_remaining_ns,
                stamps_wanted: header.has(flag::STAMPS),
                metadata: blocks.metadata,
                message,
                end,
            }),
            (FrameType::Message, Some(message)) => Event::Message { stream: id, tag, message, end },
            (_, message) => {
                let (metadata, trailer) = (blocks.metadata, blocks.trailer);
                Event::Result { stream: id, tag, message, metadata, trailer }
            }
        };
        self.settle_message(arrival, message);
        Step::Event(event)
    }

    fn begin_body<'a>(&mut self, input: &mut Input<'a>, arrival: &Arrival<'a>) -> Incoming<'a> {
        let is_protobuf = arrival.header.has(flag::PROTOBUF);
        let encoding = if is_protobuf { Encoding::Protobuf } else { Encoding::Linear };
        let total = arrival.blocks.total.unwrap_or(arrival.body_bytes);
        let body = if arrival.is_whole {
            Arriving::Whole(input.take(arrival.body_bytes as usize))
        } else {
            Arriving::Cut { total }
        };
        Incoming { encoding, body }
    }

    /// Brings the stream's state up to what the event said.
    fn settle_message(&mut self, arrival: &Arrival<'_>, message: Option<Incoming<'_>>) {
        let Arrival { header, body_bytes, .. } = *arrival;
        let id = StreamId(header.stream);
        let then = match header.frame {
            FrameType::Result => Then::Outcome,
            _ if header.has(flag::END) => Then::End,
            _ => Then::More,
        };
        let Some(Arriving::Cut { total }) = message.map(|message| message.body) else {
            self.give_back(body_bytes + cost_bytes(header.frame));
            return self.finish_message(id, then);
        };
        self.give_back(cost_bytes(header.frame));
        let Some(stream) = self.streams.find_mut(id) else { return };
        stream.partial = Some(Partial { total, received: 0, then });
        if then == Then::Outcome {
            stream.state = State::Sent;
            self.outgoing.purge(stream, &mut self.notices);
        }
        if body_bytes > 0 {
            self.reading = Reading::Body { stream: id, left: body_bytes };
        }
    }

    fn open_taken(&mut self, header: &Header) {
        let send_window = self.peer.as_ref().map_or(0, |peer| peer.limits.stream_window_bytes);
        let receive_window = self.limits.stream_window_bytes;
        let id = StreamId(header.stream);
        self.streams.insert(Stream::new(id, State::Receiving, header.code, send_window, receive_window));
    }

    fn refuse_call(&mut self, stream: u32) {
        let code = Code::ResourceExhausted.number() | (Execution::NotExecuted as u16) << 8;
        self.control(FrameType::Error, code, stream, &[]);
    }

    /// The stream a frame is for: `None` if it is gone.
    pub(crate) fn known_stream(&mut self, header: &Header) -> Result<Option<&mut Stream>, ProtocolError> {
        let id = header.stream;
        let newest = if self.is_peers(id) { self.newest_taken } else { self.newest_made() };
        let behind = newest.wrapping_sub(id);
        if id == 0 || newest == 0 || behind > i32::MAX as u32 {
            return Err(out_of_place(header, "the stream was never opened"));
        }
        Ok(self.streams.find_mut(StreamId(id)).filter(|stream| stream.state != State::Finishing))
    }

    fn is_peers(&self, stream: u32) -> bool {
        (stream % 2 == 1) == (self.side == Side::Acceptor)
    }
}

/// Judges the checksum of a frame that is here in one piece.
fn judge(check: Option<Check>, behind: &[u8]) -> Result<(), ProtocolError> {
    let Some(mut check) = check else { return Ok(()) };
    check.update(behind);
    check.finish()
}
