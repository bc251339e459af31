//! Protobuf to linear messages, in the heaps of those who receive them.

use crate::SessionKey;
use crate::convert_error::{ConvertError, too_large};
use crate::heaps::Heaps;
use crate::registry::MessageType;
use trunkline_call::entry::Span;
use trunkline_message::transcode::{DecodeError, DecodeErrorKind, DecodeLimits};
use trunkline_message::{AlignedBuf, Extent, LimitError};
use trunkline_telemetry::{TaxStage, tax_stage};

/// From here on protobuf is decoded where it is received: to copy a short message costs less than the room that its
/// block has beside it.
const DECODED_IN_PLACE_BYTES: usize = 64 << 10;
/// The part of such a message's length that its block has more.
const DECODED_SURPLUS: usize = 8;

/// Decodes into a fresh block of a receive heap. A message that is longer than the whole heap is given up as soon as it
/// is: who sends little has nobody write what nobody takes.
pub(crate) fn decode_into_heap(
    heaps: &mut dyn Heaps,
    limits: &DecodeLimits,
    extent: &mut AlignedBuf,
    to: SessionKey,
    wanted: &MessageType,
    wire: &[u8],
) -> Result<Span, ConvertError> {
    let _serialization = tax_stage(TaxStage::Serialization);
    let heap_bytes = heaps.receive_capacity(to);
    let linear_bytes_max = limits.linear_bytes_max.min(heap_bytes as usize);
    let limits = &DecodeLimits { linear_bytes_max, ..*limits };
    if wire.len() >= DECODED_IN_PLACE_BYTES
        && let Some(placed) = decode_in_place(heaps, limits, to, wanted, wire)
    {
        return placed;
    }
    let decoded = wanted.schema.transcoder.decode(wanted.index, wire, extent, limits);
    let len = decoded.map_err(|error| decode_failed_for(heap_bytes, wanted, &error))?;
    let len = u32::try_from(len).map_err(|_| too_large())?;
    let block = Span { offset: allocate(heaps, to, len)?, len };
    let whole = extent.bytes().get(..len as usize).unwrap_or_default();
    heaps.receive_block(to, block).copy_from_slice(whole);
    Ok(block)
}

/// The same without the copy, into a block that such a message mostly fits. `None` if there is no such block, or it
/// does not.
fn decode_in_place(
    heaps: &mut dyn Heaps,
    limits: &DecodeLimits,
    to: SessionKey,
    wanted: &MessageType,
    wire: &[u8],
) -> Option<Result<Span, ConvertError>> {
    let bytes = u32::try_from(wire.len() + wire.len() / DECODED_SURPLUS).ok()?;
    let offset = heaps.allocate(to, bytes)?;
    let mut block = BlockExtent(heaps.receive_block(to, Span { offset, len: bytes }));
    let decoded = wanted.schema.transcoder.decode(wanted.index, wire, &mut block, limits);
    match decoded {
        Ok(len) => Some(Ok(Span { offset, len: len as u32 })),
        Err(error) => {
            heaps.discard(to, offset);
            // Of a block that was too small nothing is known yet.
            (!error.is_limit()).then(|| Err(decode_failed(wanted, &error)))
        }
    }
}

/// A block of a receive heap: as long as it is.
struct BlockExtent<'a>(&'a mut [u8]);

impl Extent for BlockExtent<'_> {
    fn bytes(&self) -> &[u8] {
        self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0
    }

    fn grow(&mut self, min_len: usize) -> Result<(), LimitError> {
        Err(LimitError { wanted_bytes: min_len, limit_bytes: self.0.len() })
    }
}

pub(crate) fn decode_failed(wanted: &MessageType, error: &DecodeError) -> ConvertError {
    match error.kind {
        DecodeErrorKind::Limit(limit) => ConvertError::TooLarge { limit: limit.limit_bytes as u64 },
        DecodeErrorKind::WireBytes { bytes_max, .. } => ConvertError::TooLarge { limit: bytes_max as u64 },
        DecodeErrorKind::Growth { linear_bytes_max, .. } => {
            ConvertError::GrowsTooMuch { limit: linear_bytes_max as u64 }
        }
        _ => ConvertError::Malformed(error.describe(&wanted.schema.schema)),
    }
}

/// The same, where a message was given up because it is longer than the heap it is for.
fn decode_failed_for(heap_bytes: u32, wanted: &MessageType, error: &DecodeError) -> ConvertError {
    match error.kind {
        DecodeErrorKind::Limit(limit) if limit.limit_bytes == heap_bytes as usize => {
            ConvertError::TooLargeForHeap { heap_bytes: heap_bytes.into() }
        }
        _ => decode_failed(wanted, error),
    }
}

/// A block of a receive heap. An empty message has one, too.
pub(crate) fn allocate(heaps: &mut dyn Heaps, to: SessionKey, len: u32) -> Result<u32, ConvertError> {
    let capacity = heaps.receive_capacity(to);
    if len > capacity {
        return Err(ConvertError::TooLargeForHeap { heap_bytes: capacity.into() });
    }
    heaps.allocate(to, len.max(1)).ok_or(ConvertError::NoRoom { heap_bytes: capacity.into(), wanted: len })
}
