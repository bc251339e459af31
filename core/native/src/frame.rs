//! A received frame, taken apart and held against what was agreed on, before anybody is asked what it means.
//!
//! Nothing here has a state: bytes go in, and a value comes out, or that more bytes have to come, or what is wrong.

use crate::caller::{CALLER_BYTES_MAX, CALLER_BYTES_MIN};
use crate::checksum::Check;
use crate::frame_type::{FrameType, flag};
use crate::head::Blocks;
use crate::wire::{HEADER_BYTES, Header, U32_BYTES, check_limit, field, out_of_place};
use crate::{Config, Limits, ProtocolError};
use trunkline_call::Encoding;

/// Longest method path in a SCHEMA frame. gRPC's header limit is the practical bound elsewhere; 1 KiB names anything.
pub(crate) const PATH_BYTES_MAX: u32 = 1024;

/// Longest reason in a CLOSE frame.
pub(crate) const REASON_BYTES_MAX: u32 = 1024;

/// The reason of a PING that asks for more: new calls on another connection, please.
pub(crate) const PING_REDIAL: u16 = 1;

const SCHEMA_FIXED_BYTES: u32 = 16;
const SCHEMA_ACK_BYTES: u32 = 20;
const BLOCKS_FIXED_BYTES: u32 = 8 + 64 + 4 + 4;

/// A frame without its CHECKSUM block.
pub(crate) struct UnsealedFrame<'a> {
    /// The header, as if the block were not there.
    pub header: Header,
    /// What has arrived behind header and block.
    behind: &'a [u8],
    head_bytes: usize,
    /// What the block says, if there was one.
    check: Option<Check>,
}

/// A frame that carries (a part of) a message, its head read and checked.
pub(crate) struct Arrival<'a> {
    pub header: Header,
    pub blocks: Blocks<'a>,
    /// Message bytes in this frame.
    pub body_bytes: u32,
    /// Whether they are the whole message and short enough to be handed up in one piece.
    pub is_whole: bool,
    /// Bytes before those of the message.
    pub head_bytes: usize,
    /// What has to be held against the rest of the frame: nothing if that is here already, and right.
    pub check: Option<Check>,
}

/// What the last byte of a message means for its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Then {
    More,
    End,
    Outcome,
}

impl<'a> UnsealedFrame<'a> {
    /// Takes the CHECKSUM block off a frame; `None` if it has not come. Where both sides offered checksums, only a
    /// CLOSE may be without: it can be written before the peer's HELLO is read.
    #[inline]
    pub fn unseal(
        header: Header,
        arrived: &'a [u8],
        are_agreed: bool,
    ) -> Result<Option<Self>, ProtocolError> {
        let behind = arrived.get(HEADER_BYTES..).unwrap_or_default();
        match (header.has(flag::CHECKSUM), are_agreed) {
            (false, true) if header.frame != FrameType::Close => {
                return Err(out_of_place(&header, "frames have checksums on this connection"));
            }
            (false, _) => return Ok(Some(Self { header, behind, head_bytes: HEADER_BYTES, check: None })),
            (true, false) => return Err(out_of_place(&header, "checksums were not offered by both sides")),
            (true, true) => {}
        }
        let Some(length) = header.length.checked_sub(U32_BYTES as u32) else {
            return Err(field(&header, "length", header.length.into(), "at least 4 with a checksum"));
        };
        let Some((found, behind)) = behind.split_first_chunk::<U32_BYTES>() else { return Ok(None) };
        let check = Some(Check::new(header, *found));
        let head_bytes = HEADER_BYTES + U32_BYTES;
        Ok(Some(Self { header: Header { length, ..header }, behind, head_bytes, check }))
    }

    /// The body of a frame without a message, and the bytes the frame takes; `None` if more has to come.
    #[inline]
    pub fn whole(self, metadata_max: u32) -> Result<Option<(&'a [u8], usize)>, ProtocolError> {
        check_length(&self.header, metadata_max)?;
        let Some(body) = self.behind.get(..self.header.length as usize) else { return Ok(None) };
        judge(self.check, body)?;
        Ok(Some((body, self.head_bytes + body.len())))
    }

    /// The head of a frame with a message; `None` if more has to come. Messages of up to `whole_bytes_max` have to be
    /// here.
    #[inline]
    pub fn arrival(
        self,
        limits: &Limits,
        whole_bytes_max: u32,
        names_callers: bool,
    ) -> Result<Option<Arrival<'a>>, ProtocolError> {
        let Self { header, behind, head_bytes, mut check } = self;
        let Some(blocks) = Blocks::parse(&header, behind, limits.metadata_bytes_max, names_callers)? else {
            return Ok(None);
        };
        let body_bytes = header.length - blocks.bytes;
        check_message(&header, &blocks, body_bytes, limits)?;
        let is_short = body_bytes <= whole_bytes_max.min(Config::PLACEMENT_BYTES_MAX);
        let is_whole = blocks.total.is_none() && header.frame != FrameType::Segment && is_short;
        // What is here in one piece is judged before anything is done with it; a long body at its end.
        let in_hand = if is_whole { header.length } else { blocks.bytes };
        let Some(in_hand) = behind.get(..in_hand as usize) else { return Ok(None) };
        if in_hand.len() == header.length as usize {
            judge(check.take(), in_hand)?;
        } else if let Some(check) = &mut check {
            check.update(in_hand);
        }
        let head_bytes = head_bytes + blocks.bytes as usize;
        Ok(Some(Arrival { header, blocks, body_bytes, is_whole, head_bytes, check }))
    }
}

impl Arrival<'_> {
    /// What the frame costs the windows it is under.
    pub fn cost_bytes(&self) -> u64 {
        u64::from(self.body_bytes) + u64::from(self.header.frame.cost_bytes())
    }

    /// Whether a message begins with it, or is in it.
    pub fn has_message(&self) -> bool {
        has_message(&self.header)
    }

    /// What the last byte of its message means for the stream.
    pub fn then(&self) -> Then {
        match self.header.frame {
            FrameType::Result => Then::Outcome,
            _ if self.header.has(flag::END) => Then::End,
            _ => Then::More,
        }
    }

    pub fn encoding(&self) -> Encoding {
        if self.header.has(flag::PROTOBUF) { Encoding::Protobuf } else { Encoding::Linear }
    }
}

fn has_message(header: &Header) -> bool {
    header.frame != FrameType::Call || header.has(flag::MESSAGE)
}

/// Lengths of a message frame, before anything is looked up.
fn check_message(
    header: &Header,
    blocks: &Blocks<'_>,
    body_bytes: u32,
    limits: &Limits,
) -> Result<(), ProtocolError> {
    let frame = header.frame;
    check_limit(header, "body length", body_bytes, limits.segment_bytes_max)?;
    check_limit(header, "message length", blocks.total.unwrap_or(body_bytes), limits.message_bytes_max)?;
    if blocks.total.is_some() && body_bytes > 0 {
        return Err(field(header, "body length", body_bytes.into(), "0 beside TOTAL"));
    }
    if blocks.total == Some(0) {
        return Err(field(header, "TOTAL", 0, "at least 1"));
    }
    if frame == FrameType::Segment && body_bytes == 0 {
        return Err(field(header, "length", 0, "at least 1"));
    }
    if !has_message(header) && (body_bytes > 0 || blocks.total.is_some()) {
        return Err(field(header, "body length", body_bytes.into(), "0 without MESSAGE, and no TOTAL"));
    }
    Ok(())
}

/// The length a frame without a message may have, before any of it is waited for.
fn check_length(header: &Header, metadata_max: u32) -> Result<(), ProtocolError> {
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
        VoidResult | Error | Headers => (0, BLOCKS_FIXED_BYTES + metadata_max),
        _ => return Err(out_of_place(header, "HELLO comes once")),
    };
    if header.length < min {
        return Err(field(header, "length", header.length.into(), "long enough for its type"));
    }
    check_limit(header, "length", header.length, max)
}

/// Judges the checksum of a frame that is here in one piece.
fn judge(check: Option<Check>, behind: &[u8]) -> Result<(), ProtocolError> {
    let Some(mut check) = check else { return Ok(()) };
    check.update(behind);
    check.finish()
}
