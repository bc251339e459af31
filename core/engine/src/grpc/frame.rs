//! Messages as they leave to gRPC peers: protobuf behind a prefix of five bytes.

use crate::SessionKey;
use crate::call::Body;
use crate::convert::{Scratch, encode, outside, seal};
use crate::convert_error::ConvertError;
use crate::heaps::Heaps;
use crate::registry::Form;
use bytes::{BufMut, Bytes, BytesMut};
use trunkline_call::Encoding as MessageEncoding;
use trunkline_call::entry::Span;
use trunkline_grpc::buffers::{LONG_BYTES, LongBuffers};
use trunkline_grpc::compress::{Encoding, compress};
use trunkline_grpc::framing::{PREFIX_BYTES, prefix};
use trunkline_message::transcode::{Encoded, room_for};
use trunkline_telemetry::{TaxStage, tax_stage};

/// Below this a message is sent as it is: a compressor's header alone has 10 to 20 bytes.
const COMPRESSED_BYTES_MIN: usize = 128;

/// A message as it leaves.
pub(crate) struct FramedMessage {
    pub bytes: Bytes,
    /// Without prefix, and without compression unless it came so and nobody looked.
    pub message_bytes: u32,
}

/// Prefix and message, compressed if that is worth it.
pub(crate) fn framed(message: &[u8], encoding: Encoding) -> Bytes {
    if encoding != Encoding::Identity && message.len() >= COMPRESSED_BYTES_MIN {
        let mut out = vec![0; PREFIX_BYTES];
        let compression = tax_stage(TaxStage::Compression);
        let done = compress(encoding, message, &mut out).is_ok();
        drop(compression);
        let len = out.len() - PREFIX_BYTES;
        if done && len < message.len() {
            out[..PREFIX_BYTES].copy_from_slice(&prefix(len as u32, true));
            return out.into();
        }
    }
    behind_prefix(message, false)
}

pub(crate) fn behind_prefix(message: &[u8], compressed: bool) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    out.put_slice(&prefix(message.len() as u32, compressed));
    out.put_slice(message);
    out.freeze()
}

/// A long message of a session, copied or encoded into the buffer it leaves from. `None` for others.
pub(crate) fn long_frame(
    heaps: &dyn Heaps,
    scratch: &mut Scratch,
    sent: &Form,
    body: &Body<'_>,
) -> Option<Result<FramedMessage, ConvertError>> {
    match body {
        Body::Lent { session, payload } if payload.span.len as usize >= LONG_BYTES => {
            Some(match payload.encoding {
                MessageEncoding::Protobuf => copied(heaps, &scratch.long, *session, payload.span),
                MessageEncoding::Linear => encoded(heaps, scratch, sent, *session, payload.span),
            })
        }
        _ => None,
    }
}

fn copied(
    heaps: &dyn Heaps,
    buffers: &LongBuffers,
    session: SessionKey,
    span: Span,
) -> Result<FramedMessage, ConvertError> {
    if !heaps.send_heap_contains(session, span) {
        return Err(outside());
    }
    let bytes = PREFIX_BYTES + span.len as usize;
    let mut buffer = buffers.take(bytes);
    buffer.bytes.resize(bytes, 0);
    let (before, message) = buffer.bytes.split_at_mut(PREFIX_BYTES);
    before.copy_from_slice(&prefix(span.len, false));
    if !heaps.seal_into(session, span, message) {
        return Err(outside());
    }
    Ok(FramedMessage { bytes: buffers.share(buffer, 0), message_bytes: span.len })
}

fn encoded(
    heaps: &dyn Heaps,
    scratch: &mut Scratch,
    sent: &Form,
    session: SessionKey,
    span: Span,
) -> Result<FramedMessage, ConvertError> {
    seal(heaps, session, span, &mut scratch.sealed)?;
    let mut buffer = scratch.long.take(room_for(scratch.sealed.len()));
    let mut room = std::mem::take(&mut buffer.bytes);
    room.resize(room.capacity(), 0);
    let mut wire = Encoded::over(room).within(scratch.limits.linear_bytes_max);
    let message_bytes = encode(Some(sent), &scratch.sealed, &mut wire)?.len() as u32;
    scratch.trim();
    let (mut written, start) = wire.into_parts();
    let Some(from) = start.checked_sub(PREFIX_BYTES) else {
        return Ok(FramedMessage { bytes: behind_prefix(&written[start..], false), message_bytes });
    };
    written[from..start].copy_from_slice(&prefix(message_bytes, false));
    buffer.bytes = written;
    Ok(FramedMessage { bytes: scratch.long.share(buffer, from), message_bytes })
}
