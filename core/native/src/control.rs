//! Frames without a message: of a stream, and of the connection.

use crate::caller::{self, CALLER_BYTES_MAX, CALLER_BYTES_MIN, CALLERS_MAX};
use crate::connection::{Connection, Step};
use crate::event::Event;
use crate::frame_type::FrameType;
use crate::head::Blocks;
use crate::methods::Fingerprints;
use crate::outgoing::WINDOW_SUM_MAX;
use crate::stream::{State, Stream};
use crate::wire::{Header, check_limit, field, out_of_place};
use crate::{CallerNumber, Limits, MethodIndex, Notice, ProtocolError, StreamId};
use trunkline_call::{Code, Execution};

/// Longest method path in a SCHEMA frame. gRPC's header limit is the practical bound elsewhere; 1 KiB names anything.
pub(crate) const PATH_BYTES_MAX: u32 = 1024;

/// Longest reason in a CLOSE frame.
pub(crate) const REASON_BYTES_MAX: u32 = 1024;

/// The reason of a PING that asks for more: new calls on another connection, please.
pub(crate) const PING_REDIAL: u16 = 1;

const SCHEMA_FIXED_BYTES: u32 = 16;
const SCHEMA_ACK_BYTES: u32 = 20;
const BLOCKS_FIXED_BYTES: u32 = 8 + 64 + 4 + 4;

impl Connection {
    /// The length a frame without a message may have, before any of it is waited for.
    pub(crate) fn check_length(&self, header: &Header) -> Result<(), ProtocolError> {
        use FrameType::{Caller, Cancel, Close, Error, GoAway, HalfClose, Headers, Ping, Pong, Schema};
        use FrameType::{SchemaAck, VoidResult, Window};
        let (min, max) = match header.frame {
            HalfClose | Cancel => (0, 0),
            Window | GoAway => (4, 4),
            Ping | Pong => (8, 8),
            Schema => (SCHEMA_FIXED_BYTES + 1, SCHEMA_FIXED_BYTES + PATH_BYTES_MAX),
            SchemaAck => (SCHEMA_ACK_BYTES, SCHEMA_ACK_BYTES),
            Close => (0, REASON_BYTES_MAX),
            Caller => (CALLER_BYTES_MIN, CALLER_BYTES_MAX),
            VoidResult | Error | Headers => (0, BLOCKS_FIXED_BYTES + self.limits.metadata_bytes_max),
            _ => return Err(out_of_place(header, "HELLO comes once")),
        };
        if header.length < min {
            return Err(field(header, "length", header.length.into(), "long enough for its type"));
        }
        check_limit(header, "length", header.length, max)
    }

    /// Takes a whole frame of a stream that carries no message.
    pub(crate) fn handle_stream_frame<'a>(
        &mut self,
        header: &Header,
        body: &'a [u8],
    ) -> Result<Step<'a>, ProtocolError> {
        let metadata_max = self.limits.metadata_bytes_max;
        let blocks = Blocks::parse(header, body, metadata_max, false)?.unwrap_or_default();
        if blocks.bytes != header.length {
            return Err(field(header, "length", header.length.into(), "that of its blocks: it has no body"));
        }
        let Some(stream) = self.known_stream(header)? else {
            return Ok(self.handle_late(header));
        };
        let (id, tag, is_made) = (stream.id, stream.tag, stream.is_made());
        if is_made == matches!(header.frame, FrameType::HalfClose | FrameType::Cancel) {
            return Err(out_of_place(header, "it is the other side's to say"));
        }
        let in_parts = stream.partial.is_some();
        match header.frame {
            FrameType::Cancel | FrameType::Error => {}
            _ if in_parts => return Err(out_of_place(header, "the message before it is not complete")),
            FrameType::HalfClose if stream.state == State::Received => {
                return Err(out_of_place(header, "its side of the stream is complete"));
            }
            FrameType::HalfClose => stream.state = State::Received,
            _ => {}
        }
        if matches!(header.frame, FrameType::Cancel | FrameType::Error | FrameType::VoidResult) {
            self.forget(id);
        }
        Ok(Step::Event(stream_event(header, &blocks, id, tag)))
    }

    /// A frame for a stream that is gone, or going: only a CANCEL still matters, to an outcome nobody waits for any
    /// more.
    fn handle_late<'a>(&mut self, header: &Header) -> Step<'a> {
        self.ignored_frames += 1;
        if header.frame == FrameType::Cancel {
            self.forget(StreamId(header.stream));
        }
        Step::Quiet
    }

    /// Takes a whole frame of the connection.
    pub(crate) fn handle_connection_frame<'a>(
        &mut self,
        header: &Header,
        body: &'a [u8],
    ) -> Result<Step<'a>, ProtocolError> {
        if header.stream != 0 && header.frame != FrameType::Window {
            return Err(field(header, "stream", header.stream.into(), "0: the frame is the connection's"));
        }
        let mut read = Fields(body);
        match header.frame {
            FrameType::Window => self.on_window(header, read.u32()).map(|()| Step::Quiet),
            FrameType::Ping => {
                self.control(FrameType::Pong, 0, 0, body);
                Ok(if header.code == PING_REDIAL { Step::Event(Event::Redial) } else { Step::Quiet })
            }
            FrameType::Pong => Ok(Step::Event(Event::Pong { payload: read.u64() })),
            FrameType::Schema => self.on_schema(header, read),
            FrameType::SchemaAck => self.on_schema_ack(header, read),
            FrameType::Caller => self.on_caller(header, body),
            FrameType::GoAway => self.on_go_away(header, read.u32()),
            _ => {
                self.ending.closed = true;
                self.failed = Some(ProtocolError::Closed);
                Ok(Step::Event(Event::Closed { code: Code::from_number(header.code), why: text(body) }))
            }
        }
    }

    fn on_window(&mut self, header: &Header, bytes: u32) -> Result<(), ProtocolError> {
        if bytes == 0 || bytes > Limits::WINDOW_BYTES_MAX {
            return Err(field(header, "grant", bytes.into(), "1 to 2^31 - 1"));
        }
        if header.stream == 0 {
            return check_window(header, self.outgoing.grant_connection(bytes));
        }
        self.known_stream(header)?;
        // A stream that is finishing still waits for its window, so look past `known_stream`'s answer.
        let Some(stream) = self.streams.find_mut(StreamId(header.stream)) else { return Ok(()) };
        stream.send_window += u64::from(bytes);
        check_window(header, stream.send_window)?;
        self.outgoing.unblock(stream);
        Ok(())
    }

    fn on_schema<'a>(&mut self, header: &Header, mut read: Fields<'a>) -> Result<Step<'a>, ProtocolError> {
        let next = self.methods_taken.len();
        if usize::from(header.code) != next {
            return Err(field(header, "method index", header.code.into(), "the next one: they count from 0"));
        }
        if next as u32 >= self.limits.methods_max {
            return check_limit(header, "methods", next as u32 + 1, self.limits.methods_max)
                .map(|()| Step::Quiet);
        }
        let fingerprints = read.fingerprints();
        let Ok(path) = std::str::from_utf8(read.0) else {
            return Err(out_of_place(header, "the method's path is not UTF-8"));
        };
        let method = self.methods_taken.announce(fingerprints);
        let Fingerprints { request, response } = fingerprints;
        let event =
            Event::Schema { method, path, request_fingerprint: request, response_fingerprint: response };
        Ok(Step::Event(event))
    }

    fn on_caller<'a>(&mut self, header: &Header, body: &[u8]) -> Result<Step<'a>, ProtocolError> {
        if !self.names_callers() {
            return Err(out_of_place(header, "callers were not offered by both sides"));
        }
        let next = self.callers_taken + 1;
        check_limit(header, "caller number", header.code.into(), CALLERS_MAX.into())?;
        if !(1..=next).contains(&header.code) {
            let rule = "one that was named before, or the next one: they count from 1";
            return Err(field(header, "caller number", header.code.into(), rule));
        }
        let caller = caller::decode(header, body)?;
        self.callers_taken = self.callers_taken.max(header.code);
        Ok(Step::Event(Event::Caller { number: CallerNumber(header.code), caller }))
    }

    fn on_schema_ack<'a>(
        &mut self,
        header: &Header,
        mut read: Fields<'a>,
    ) -> Result<Step<'a>, ProtocolError> {
        let method = MethodIndex(header.code);
        let fingerprints = read.fingerprints();
        let found = match read.u32() {
            0 => false,
            1 => true,
            other => return Err(field(header, "found", other.into(), "0 or 1")),
        };
        if self.methods_made.answer(method, found, fingerprints).is_none() {
            return Err(field(header, "method index", header.code.into(), "one announced by SCHEMA"));
        }
        let Fingerprints { request, response } = fingerprints;
        Ok(Step::Event(Event::SchemaAnswer {
            method,
            found,
            request_fingerprint: request,
            response_fingerprint: response,
        }))
    }

    /// Calls opened here that the peer did not take end now: it promises it never will.
    fn on_go_away<'a>(&mut self, header: &Header, newest: u32) -> Result<Step<'a>, ProtocolError> {
        let Some(newest) = self.ordinal_of(newest) else {
            return Err(field(header, "last stream", newest.into(), "one that was opened, or 0"));
        };
        self.ending.heard = true;
        let not_taken = |stream: &&Stream| stream.is_made() && newest.is_none_or(|n| stream.ordinal > n);
        let refused: Vec<StreamId> = self.streams.iter().filter(not_taken).map(|stream| stream.id).collect();
        for stream in refused {
            let tag = self.streams.find(stream).map_or(0, |found| found.tag);
            self.forget(stream);
            self.notices.push_back(Notice::Ended { stream, tag, execution: Execution::NotExecuted });
        }
        Ok(Step::Event(Event::GoAway { code: Code::from_number(header.code) }))
    }
}

/// Reads fixed fields of a body whose length has been checked; past its end they are zero.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let Some((value, rest)) = self.0.split_first_chunk::<N>() else { return [0; N] };
        self.0 = rest;
        *value
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    fn fingerprints(&mut self) -> Fingerprints {
        Fingerprints { request: self.u64(), response: self.u64() }
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

fn check_window(header: &Header, window: u64) -> Result<(), ProtocolError> {
    if window > WINDOW_SUM_MAX {
        return Err(field(header, "window after the grant", window, "at most 2^32"));
    }
    Ok(())
}

/// The text of a reason, as far as it is text.
fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}
