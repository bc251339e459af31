//! What stands between the header and the body: the optional fixed blocks, written and read.
//!
//! Order on the wire: CHECKSUM and CALLER (each if negotiated), DEADLINE, STAMPS, METADATA, TOTAL, then the body.

use crate::frame_type::{FrameType, flag};
use crate::wire::{DEADLINE_BYTES, HEADER_BYTES, Header, U32_BYTES};
use crate::{ProtocolError, Trailer};
use std::borrow::Cow;
use trunkline_call::{Deadline, Instant, SERVER_TRAILER_BYTES};

/// Everything of a frame to be sent except its body.
///
/// The deadline stays an instant until the frame is written, so that time spent waiting for a window is not given
/// twice.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Head<'a> {
    pub frame: FrameType,
    /// END, PROTOBUF, MESSAGE, and on CALL also STAMPS; those that announce blocks are set by what is there.
    pub flags: u8,
    pub code: u16,
    pub stream: u32,
    /// On a CALL where both sides offered callers: the number of who makes it, zero for nobody who was named.
    #[serde(default)]
    pub caller: Option<u32>,
    pub deadline: Deadline,
    #[serde(with = "trunkline_call::octets::trailer")]
    pub trailer: Option<Trailer>,
    #[serde(with = "trunkline_call::octets")]
    pub metadata: Cow<'a, [u8]>,
}

impl<'a> Head<'a> {
    /// Where the stamps begin in a frame that has some, without checksum: only a CALL has a deadline before them.
    pub const TRAILER_AT: usize = HEADER_BYTES;

    pub fn new(frame: FrameType, stream: u32) -> Self {
        Self {
            frame,
            flags: 0,
            code: 0,
            stream,
            caller: None,
            deadline: Deadline::NONE,
            trailer: None,
            metadata: Cow::Borrowed(&[]),
        }
    }

    /// Appends header and blocks of a frame that carries `body_bytes` of a message; `total` if that is not all of it.
    pub fn encode(&self, now: Instant, total: Option<u32>, body_bytes: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let mut flags = self.flags;
        if let Some(caller) = self.caller {
            out.extend_from_slice(&caller.to_le_bytes());
        }
        if let Some(remaining_ns) = self.deadline.remaining_ns(now) {
            flags |= flag::DEADLINE;
            out.extend_from_slice(&remaining_ns.to_le_bytes());
        }
        if let Some(trailer) = &self.trailer {
            flags |= flag::STAMPS;
            out.extend_from_slice(trailer);
        }
        if !self.metadata.is_empty() {
            flags |= flag::METADATA;
            out.extend_from_slice(&(self.metadata.len() as u32).to_le_bytes());
            out.extend_from_slice(&self.metadata);
        }
        if let Some(total) = total {
            flags |= flag::TOTAL;
            out.extend_from_slice(&total.to_le_bytes());
        }
        let blocks_bytes = (out.len() - start - HEADER_BYTES) as u32;
        let length = blocks_bytes + body_bytes;
        let header = Header { frame: self.frame, flags, code: self.code, stream: self.stream, length };
        out[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
    }

    /// The same head, owning its metadata: for frames that wait.
    pub fn into_owned(self) -> Head<'static> {
        Head { metadata: Cow::Owned(self.metadata.into_owned()), ..self }
    }
}

/// The blocks of a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks<'a> {
    /// Zero where callers are not named.
    pub caller: u32,
    pub deadline_remaining_ns: Option<u64>,
    pub trailer: Option<&'a Trailer>,
    pub metadata: &'a [u8],
    pub total: Option<u32>,
    /// Length of all blocks together.
    pub bytes: u32,
}

impl<'a> Blocks<'a> {
    /// Reads the blocks from what has arrived behind the header; `None` if more has to come first.
    ///
    /// # Errors
    /// [`ProtocolError`] if the blocks do not fit the frame's length or the metadata exceeds `metadata_bytes_max`.
    pub fn parse(
        header: &Header,
        arrived: &'a [u8],
        metadata_bytes_max: u32,
        names_callers: bool,
    ) -> Result<Option<Self>, ProtocolError> {
        let mut blocks = Self::default();
        let mut cursor = Cursor { rest: arrived, left: header.length, header };
        if names_callers && header.frame == FrameType::Call {
            let Some(bytes) = cursor.array::<U32_BYTES>("CALLER")? else { return Ok(None) };
            blocks.caller = u32::from_le_bytes(*bytes);
        }
        let Some(()) = blocks.fill(&mut cursor, metadata_bytes_max)? else { return Ok(None) };
        blocks.bytes = header.length - cursor.left;
        Ok(Some(blocks))
    }

    fn fill(&mut self, cursor: &mut Cursor<'a, '_>, metadata_max: u32) -> Result<Option<()>, ProtocolError> {
        let header = cursor.header;
        if header.has(flag::DEADLINE) {
            let Some(bytes) = cursor.array::<DEADLINE_BYTES>("DEADLINE")? else { return Ok(None) };
            self.deadline_remaining_ns = Some(u64::from_le_bytes(*bytes));
        }
        if header.has(flag::STAMPS) && header.frame != FrameType::Call {
            let Some(bytes) = cursor.array::<SERVER_TRAILER_BYTES>("STAMPS")? else { return Ok(None) };
            self.trailer = Some(bytes);
        }
        if header.has(flag::METADATA) {
            let Some(bytes) = cursor.metadata(metadata_max)? else { return Ok(None) };
            self.metadata = bytes;
        }
        if header.has(flag::TOTAL) {
            let Some(bytes) = cursor.array::<U32_BYTES>("TOTAL")? else { return Ok(None) };
            self.total = Some(u32::from_le_bytes(*bytes));
        }
        Ok(Some(()))
    }
}

/// Walks the arrived bytes and the frame's length together: running out of the first means *wait*, of the second
/// *error*.
struct Cursor<'a, 'h> {
    rest: &'a [u8],
    left: u32,
    header: &'h Header,
}

impl<'a> Cursor<'a, '_> {
    fn take(&mut self, count: u32, block: &'static str) -> Result<Option<&'a [u8]>, ProtocolError> {
        let Some(left) = self.left.checked_sub(count) else {
            return Err(ProtocolError::Field {
                frame: self.header.frame,
                stream: self.header.stream,
                field: "length",
                value: self.header.length.into(),
                rule: block_rule(block),
            });
        };
        let Some((bytes, rest)) = self.rest.split_at_checked(count as usize) else { return Ok(None) };
        self.rest = rest;
        self.left = left;
        Ok(Some(bytes))
    }

    fn array<const N: usize>(&mut self, block: &'static str) -> Result<Option<&'a [u8; N]>, ProtocolError> {
        Ok(self.take(N as u32, block)?.and_then(<[u8]>::first_chunk::<N>))
    }

    fn metadata(&mut self, limit: u32) -> Result<Option<&'a [u8]>, ProtocolError> {
        let Some(count) = self.array::<U32_BYTES>("METADATA")? else { return Ok(None) };
        let count = u32::from_le_bytes(*count);
        if count > limit {
            return Err(ProtocolError::Limit {
                frame: self.header.frame,
                stream: self.header.stream,
                field: "metadata length",
                value: count.into(),
                limit: limit.into(),
            });
        }
        self.take(count, "METADATA")
    }
}

fn block_rule(block: &str) -> &'static str {
    match block {
        "CALLER" => "at least enough for the CALLER block both sides agreed on",
        "DEADLINE" => "at least enough for the DEADLINE block its flags announce",
        "STAMPS" => "at least enough for the STAMPS block its flags announce",
        "METADATA" => "at least enough for the METADATA block its flags announce",
        _ => "at least enough for the TOTAL block its flags announce",
    }
}

#[cfg(test)]
mod tests {
    //! Shows that what is written is read back, at every cut, and that lengths that lie are refused.
    use super::*;

    fn written(head: &Head<'_>, total: Option<u32>) -> (Header, Vec<u8>) {
        let mut out = Vec::new();
        head.encode(Instant(100), total, 0, &mut out);
        let header = Header::decode(out.first_chunk().unwrap()).unwrap();
        (header, out.split_off(HEADER_BYTES))
    }

    fn full() -> Head<'static> {
        let mut head = Head::new(FrameType::Call, 1);
        head.caller = Some(7);
        head.deadline = Deadline::at(Instant(350));
        head.metadata = Cow::Borrowed(b"meta");
        head
    }

    #[test]
    fn blocks_round_trip_at_every_cut() {
        let (header, bytes) = written(&full(), Some(99));
        for cut in 0..bytes.len() {
            assert_eq!(Blocks::parse(&header, &bytes[..cut], 100, true), Ok(None), "cut at {cut}");
        }
        let blocks = Blocks::parse(&header, &bytes, 100, true).unwrap().unwrap();
        assert_eq!(blocks.deadline_remaining_ns, Some(250));
        assert_eq!((blocks.metadata, blocks.total, blocks.caller), (&b"meta"[..], Some(99), 7));
        assert_eq!(blocks.bytes as usize, bytes.len());
    }

    #[test]
    fn a_unary_call_without_metadata_has_24_bytes_of_header() {
        let mut head = full();
        head.caller = None;
        head.metadata = Cow::Borrowed(&[]);
        head.flags = flag::STAMPS | flag::MESSAGE | flag::END;
        let mut out = Vec::new();
        head.encode(Instant(0), None, 64, &mut out);
        assert_eq!(out.len(), 24);
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let (mut header, bytes) = written(&full(), None);
        header.length = 11;
        let error = Blocks::parse(&header, &bytes, 100, true).unwrap_err();
        assert!(error.to_string().contains("CALL frame on stream 1: length is 11"), "{error}");
        let (header, bytes) = written(&full(), None);
        let error = Blocks::parse(&header, &bytes, 3, true).unwrap_err();
        assert_eq!(error.to_string(), "CALL frame on stream 1: metadata length is 4, limit 3");
    }
}
