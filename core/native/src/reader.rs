//! What the bytes to come are: a frame, a part of a message, or something nobody wants any more.

use crate::ProtocolError;
use crate::StreamId;
use crate::checksum::Check;
use crate::frame::Arrival;
use crate::input::{INPUT_BYTES_MIN, Input};
use crate::stream::Partial;

/// The next bytes of the socket belong to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Whose.
    pub stream: StreamId,
    /// The owner's name for the stream.
    pub tag: u64,
    /// Where in the message the first of them belongs.
    pub offset: u32,
    /// How many; behind them the next frame begins.
    pub bytes: u32,
}

/// What the bytes to come are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Reading {
    /// A frame.
    Frame,
    /// Bytes of a message.
    Body { stream: StreamId, left: u32 },
    /// Bytes nobody wants any more.
    Skip { left: u32 },
}

/// How far the stream of bytes has been read.
#[derive(Debug)]
pub(crate) struct FrameReader {
    pub reading: Reading,
    /// The checksum of the frame whose body is being read or skipped.
    pub check: Option<Check>,
    /// The beginning of a frame whose rest has not come.
    pub carry: Vec<u8>,
    /// Frames for streams that are gone.
    pub ignored_frames: u64,
}

/// What a connection keeps for the next cut frame: most are short, and thousands of connections are idle.
const CARRY_KEEP_BYTES: usize = 1024;

impl FrameReader {
    pub fn new() -> Self {
        Self { reading: Reading::Frame, check: None, carry: Vec::new(), ignored_frames: 0 }
    }

    /// Puts the beginning of a cut frame to the front of the read buffer and returns its length.
    pub fn resume(&mut self, buffer: &mut [u8]) -> usize {
        assert!(buffer.len() >= INPUT_BYTES_MIN, "read buffer is shorter than a frame's longest head");
        let count = self.carry.len();
        buffer[..count].copy_from_slice(&self.carry);
        self.carry.clear();
        self.carry.shrink_to(CARRY_KEEP_BYTES);
        count
    }

    /// Keeps what is left of the input until the rest of its frame comes.
    pub fn keep(&mut self, input: &mut Input<'_>) {
        self.carry.extend_from_slice(input.take(usize::MAX));
    }

    /// Takes the head of a message frame; its body is skipped unless somebody wants it.
    pub fn take_head(&mut self, input: &mut Input<'_>, arrival: &Arrival<'_>, is_wanted: bool) {
        input.take(arrival.head_bytes);
        self.check = arrival.check;
        if !is_wanted {
            self.ignored_frames += 1;
            self.reading = Reading::Skip { left: arrival.body_bytes };
        }
    }

    /// The bytes to come are the stream's.
    pub fn expect_body(&mut self, stream: StreamId, left: u32) {
        self.reading = Reading::Body { stream, left };
    }

    /// Nobody wants the bytes to come any more.
    pub fn skip(&mut self, left: u32) {
        self.reading = Reading::Skip { left };
    }

    /// Takes what is here of the `left` bytes to come.
    pub fn take<'a>(&mut self, input: &mut Input<'a>, left: u32) -> Result<&'a [u8], ProtocolError> {
        let bytes = input.take(left as usize);
        if let Some(check) = &mut self.check {
            check.update(bytes);
            if bytes.len() == left as usize {
                self.check.take().map_or(Ok(()), Check::finish)?;
            }
        }
        Ok(bytes)
    }

    /// `count` of the bytes to come have come.
    pub fn advance(&mut self, count: u32) {
        self.reading = match self.reading {
            Reading::Body { stream, left } if left > count => Reading::Body { stream, left: left - count },
            Reading::Skip { left } if left > count => Reading::Skip { left: left - count },
            _ => Reading::Frame,
        };
    }

    /// The body to come that the host may read itself. A checksum has to see the bytes, so they come through the read
    /// buffer then.
    pub fn wanted(&self) -> Option<(StreamId, u32)> {
        match self.reading {
            Reading::Body { stream, left } if self.check.is_none() => Some((stream, left)),
            _ => None,
        }
    }

    /// Whether a cut frame is one, and what is to come of a message no more than what is missing, by the stream of the
    /// body to come.
    pub fn audit(&self, partial: impl FnOnce(StreamId) -> Option<Partial>) -> Option<&'static str> {
        if self.carry.len() >= INPUT_BYTES_MIN {
            return Some("cut frame");
        }
        let Reading::Body { stream, left } = self.reading else { return None };
        // All that is to hold is asked at once: here it may be that more was received than there is.
        let rest = |partial: Partial| partial.total.checked_sub(partial.received);
        let is_sound = partial(stream).is_none_or(|partial| rest(partial).is_some_and(|rest| left <= rest));
        (!is_sound).then_some("message under way")
    }
}
