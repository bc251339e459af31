//! Messages from the form they arrive in to the form the next end needs.
//!
//! | from \ to | typed session (linear) | opaque session (protobuf) | peer, fingerprints agree | peer, otherwise |
//! |---|---|---|---|---|
//! | session, same fingerprint | copy heap to heap, check | — | bytes as they are, headerless | protobuf |
//! | session, other fingerprint | protobuf in between | encode | — | protobuf |
//! | peer, linear, same fingerprint | header, copy, check | — | | |
//! | peer, linear, other fingerprint | protobuf in between | encode | | |
//! | peer, placed | header, check in place | in place | | |
//! | protobuf | decode | copy, as it is | — | as it is |
//!
//! A sealed, kept or crossed body takes the rows of the session it came from, read from the private copy.
//!
//! Nothing reaches a typed application unchecked: every path into its receive heap ends in [`check`] or in the decoder,
//! which writes only well-formed extents. What an opaque application gets is protobuf that nobody here has read, and it
//! sends nothing else: a linear message from it would have a type nobody knows.

use crate::SessionKey;
use crate::call::Body;
use crate::convert_error::{ConvertError, too_large};
use crate::decode::{allocate, decode_into_heap};
use crate::heaps::Heaps;
use crate::limits::Limits;
use crate::registry::{Form, MessageType};
use trunkline_call::Encoding;
use trunkline_call::entry::{MessageCompression, Payload, Span};
use trunkline_grpc::buffers::LongBuffers;
use trunkline_message::transcode::{DecodeLimits, EncodeError, Encoded, room_for};
use trunkline_message::{AlignedBuf, Extent, HEADER_BYTES, Header, check};
use trunkline_telemetry::{TaxStage, tax_stage};

/// Buffers reused by every conversion of a shard, so that the steady state allocates nothing.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub sealed: Vec<u8>,
    wire: Encoded,
    extent: AlignedBuf,
    /// Where long messages of gRPC peers are put together.
    pub long: LongBuffers,
    pub limits: DecodeLimits,
}

/// Scratch that grew beyond this for one large message is given back to the allocator afterwards.
const SCRATCH_KEPT_BYTES: usize = 1 << 20;

/// A body ready for a connection.
pub(crate) enum WireBody<'a> {
    /// Copied into the connection's buffer.
    Inline(&'a [u8]),
    /// Gathered by the kernel from the sender's heap: this part of a message there.
    Shared { session: SessionKey, payload: Payload, span: Span },
}

// LIFE: 14
/// Writes `body` into a fresh block of `to`'s receive heap, in the form it wants.
///
/// `sent` is the sender's form; `None` for a peer, whose linear bodies were agreed to have `wanted`'s fingerprint.
#[inline]
pub(crate) fn place(
    heaps: &mut dyn Heaps,
    scratch: &mut Scratch,
    to: SessionKey,
    wanted: &Form,
    sent: Option<&Form>,
    body: &Body<'_>,
) -> Result<Payload, ConvertError> {
    // What its sender wants of a gRPC peer's messages is none of the receiver's business.
    let compression = MessageCompression::came(body.compression() == MessageCompression::Compressed);
    let placed = match wanted {
        Form::Typed(wanted) => place_linear(heaps, scratch, to, wanted, sent, body)
            .map(|span| Payload { compression, ..Payload::new(span, Encoding::Linear) }),
        Form::Opaque => place_protobuf(heaps, scratch, to, sent, body)
            .map(|span| Payload { compression, ..Payload::new(span, Encoding::Protobuf) }),
    };
    scratch.trim();
    placed
}

/// A checked extent of type `wanted`.
#[inline]
fn place_linear(
    heaps: &mut dyn Heaps,
    scratch: &mut Scratch,
    to: SessionKey,
    wanted: &MessageType,
    sent: Option<&Form>,
    body: &Body<'_>,
) -> Result<Span, ConvertError> {
    if let Some((encoding, bytes)) = body.private() {
        return place_private(heaps, scratch, to, wanted, sent, encoding, bytes);
    }
    match body {
        // Not ours to discard: the item keeps its block until it is dropped.
        Body::Placed { block, encoding: Encoding::Linear, .. } => finish_placed(heaps, to, wanted, *block),
        Body::Placed { .. } => Err(misplaced()),
        Body::Lent { session, payload } => match (payload.encoding, sent) {
            (Encoding::Linear, Some(Form::Typed(sent))) if sent.fingerprint == wanted.fingerprint => {
                copy_checked(heaps, *session, payload.span, to, wanted)
            }
            (Encoding::Linear, sent) => {
                seal(heaps, *session, payload.span, &mut scratch.sealed)?;
                let limits = scratch.limits.of_linear(scratch.sealed.len());
                let wire = encode(sent, &scratch.sealed, &mut scratch.wire)?;
                decode_into_heap(heaps, &limits, &mut scratch.extent, to, wanted, wire)
            }
            (Encoding::Protobuf, _) => {
                seal(heaps, *session, payload.span, &mut scratch.sealed)?;
                decode_into_heap(heaps, &scratch.limits, &mut scratch.extent, to, wanted, &scratch.sealed)
            }
        },
        Body::Sealed { .. } | Body::Kept(_) | Body::Packed { .. } | Body::Crossed(_) => Err(misplaced()),
        Body::Wire { bytes, encoding: Encoding::Linear, .. } => match sent {
            Some(Form::Typed(other)) if other.fingerprint != wanted.fingerprint => {
                let limits = scratch.limits.of_linear(bytes.len());
                let wire = encode_headerless(other, bytes, &mut scratch.sealed, &mut scratch.wire)?;
                decode_into_heap(heaps, &limits, &mut scratch.extent, to, wanted, wire)
            }
            // Agreed by types that nobody here knows any more.
            Some(Form::Opaque) => Err(untyped()),
            _ => write_headerless(heaps, to, wanted, bytes),
        },
        Body::Wire { bytes, encoding: Encoding::Protobuf, .. } => {
            decode_into_heap(heaps, &scratch.limits, &mut scratch.extent, to, wanted, bytes)
        }
    }
}

/// The same of a private copy of a session's message.
#[inline(always)]
fn place_private(
    heaps: &mut dyn Heaps,
    scratch: &mut Scratch,
    to: SessionKey,
    wanted: &MessageType,
    sent: Option<&Form>,
    encoding: Encoding,
    bytes: &[u8],
) -> Result<Span, ConvertError> {
    match (encoding, sent) {
        (Encoding::Linear, Some(Form::Typed(sent))) if sent.fingerprint == wanted.fingerprint => {
            write_headerless(heaps, to, wanted, bytes.get(HEADER_BYTES..).unwrap_or_default())
        }
        (Encoding::Linear, sent) => {
            let limits = scratch.limits.of_linear(bytes.len());
            let wire = encode(sent, bytes, &mut scratch.wire)?;
            decode_into_heap(heaps, &limits, &mut scratch.extent, to, wanted, wire)
        }
        (Encoding::Protobuf, _) => {
            decode_into_heap(heaps, &scratch.limits, &mut scratch.extent, to, wanted, bytes)
        }
    }
}

/// Protobuf for an application that alone knows its type.
fn place_protobuf(
    heaps: &mut dyn Heaps,
    scratch: &mut Scratch,
    to: SessionKey,
    sent: Option<&Form>,
    body: &Body<'_>,
) -> Result<Span, ConvertError> {
    match body {
        Body::Placed { block, encoding: Encoding::Protobuf, .. } => Ok(*block),
        Body::Placed { .. } => Err(misplaced()),
        Body::Lent { session, payload } if payload.encoding == Encoding::Protobuf => {
            copy_unread(heaps, *session, payload.span, to)
        }
        Body::Lent { session, payload } => {
            seal(heaps, *session, payload.span, &mut scratch.sealed)?;
            write(heaps, to, encode(sent, &scratch.sealed, &mut scratch.wire)?)
        }
        Body::Sealed { .. } | Body::Kept(_) | Body::Crossed(_) => match body.private() {
            Some((Encoding::Protobuf, bytes)) => write(heaps, to, bytes),
            Some((Encoding::Linear, bytes)) => write(heaps, to, encode(sent, bytes, &mut scratch.wire)?),
            None => Err(misplaced()),
        },
        Body::Packed { .. } => Err(misplaced()),
        Body::Wire { bytes, encoding: Encoding::Protobuf, .. } => write(heaps, to, bytes),
        Body::Wire { bytes, .. } => match sent {
            Some(Form::Typed(of)) => {
                write(heaps, to, encode_headerless(of, bytes, &mut scratch.sealed, &mut scratch.wire)?)
            }
            _ => Err(untyped()),
        },
    }
}

// LIFE: 10
/// Readies `body` of type `sent` for a connection. `agreed`: the peer holds the same fingerprint.
pub(crate) fn for_wire<'a>(
    heaps: &dyn Heaps,
    scratch: &'a mut Scratch,
    sent: &Form,
    agreed: bool,
    inline_max: u32,
    body: &'a Body<'_>,
) -> Result<(WireBody<'a>, Encoding), ConvertError> {
    scratch.trim();
    if let Some((encoding, bytes)) = body.private() {
        return private_for_wire(scratch, sent, agreed, encoding, bytes);
    }
    let (session, payload) = match body {
        Body::Lent { session, payload } => (*session, *payload),
        Body::Wire { bytes, encoding, .. } => return Ok((WireBody::Inline(bytes), *encoding)),
        Body::Placed { .. }
        | Body::Sealed { .. }
        | Body::Kept(_)
        | Body::Packed { .. }
        | Body::Crossed(_) => {
            return Err(ConvertError::Malformed("a placed or packed body cannot leave so".into()));
        }
    };
    let header = if payload.encoding == Encoding::Linear { HEADER_BYTES as u32 } else { 0 };
    if payload.span.len < header {
        return Err(ConvertError::Malformed("message is shorter than its header".into()));
    }
    if payload.encoding == Encoding::Linear && (!agreed || sent.is_opaque()) {
        seal(heaps, session, payload.span, &mut scratch.sealed)?;
        let wire = encode(Some(sent), &scratch.sealed, &mut scratch.wire)?;
        return Ok((WireBody::Inline(wire), Encoding::Protobuf));
    }
    let span = Span { offset: payload.span.offset + header, len: payload.span.len - header };
    if span.len > inline_max {
        return Ok((WireBody::Shared { session, payload, span }, payload.encoding));
    }
    seal(heaps, session, span, &mut scratch.sealed)?;
    Ok((WireBody::Inline(&scratch.sealed), payload.encoding))
}

/// Protobuf of a linear message that was sent headerless, and could not be read there.
pub(crate) fn reencode<'s>(
    scratch: &'s mut Scratch,
    sent: &MessageType,
    body: &[u8],
) -> Result<&'s [u8], ConvertError> {
    scratch.trim();
    encode_headerless(sent, body, &mut scratch.sealed, &mut scratch.wire)
}

/// Writes a private copy of a body, whose linear form has its header, over what a buffer holds. How it is encoded.
#[inline]
pub(crate) fn private(
    heaps: &dyn Heaps,
    sent: Option<&Form>,
    body: &Body<'_>,
    into: &mut Vec<u8>,
) -> Result<Encoding, ConvertError> {
    // Nearly always.
    if let Body::Lent { session, payload } = body {
        seal(heaps, *session, payload.span, into)?;
        return Ok(payload.encoding);
    }
    into.clear();
    if let Some((encoding, bytes)) = body.private() {
        into.extend_from_slice(bytes);
        return Ok(encoding);
    }
    match body {
        Body::Wire { bytes, encoding: Encoding::Protobuf, .. } => {
            into.extend_from_slice(bytes);
            Ok(Encoding::Protobuf)
        }
        Body::Wire { bytes, .. } => {
            let Some(Form::Typed(of)) = sent else { return Err(untyped()) };
            extend_headerless(into, of, bytes)?;
            Ok(Encoding::Linear)
        }
        _ => Err(misplaced()),
    }
}

/// A private copy leaves as a copy, however long it is: its sender may have written over the original.
fn private_for_wire<'a>(
    scratch: &'a mut Scratch,
    sent: &Form,
    agreed: bool,
    encoding: Encoding,
    bytes: &'a [u8],
) -> Result<(WireBody<'a>, Encoding), ConvertError> {
    match encoding {
        Encoding::Linear if agreed && !sent.is_opaque() => {
            let message = bytes.get(HEADER_BYTES..).unwrap_or_default();
            Ok((WireBody::Inline(message), Encoding::Linear))
        }
        Encoding::Linear => {
            Ok((WireBody::Inline(encode(Some(sent), bytes, &mut scratch.wire)?), Encoding::Protobuf))
        }
        encoding => Ok((WireBody::Inline(bytes), encoding)),
    }
}

impl Scratch {
    /// Buffers for messages that keep to these limits.
    pub fn new(limits: &Limits) -> Self {
        let (linear_bytes_max, growth_max) = (limits.message_bytes as usize, limits.linear_growth);
        let limits = DecodeLimits { linear_bytes_max, growth_max, ..DecodeLimits::default() };
        Self {
            sealed: Vec::new(),
            wire: Encoded::new().within(limits.linear_bytes_max),
            extent: AlignedBuf::new(),
            long: LongBuffers::default(),
            limits,
        }
    }

    /// Gives back what grew for a large message, whatever became of it: one that could not be encoded leaves no bytes.
    pub fn trim(&mut self) {
        if self.sealed.capacity() > SCRATCH_KEPT_BYTES {
            self.sealed = Vec::new();
        }
        if self.wire.capacity_bytes() > room_for(SCRATCH_KEPT_BYTES) {
            self.wire = Encoded::new().within(self.limits.linear_bytes_max);
        }
        if self.extent.bytes().len() > SCRATCH_KEPT_BYTES {
            self.extent = AlignedBuf::new();
        }
    }
}

/// Puts a private copy in the place of what a buffer held, which is written over and not emptied before.
#[inline(always)]
pub(crate) fn seal(
    heaps: &dyn Heaps,
    session: SessionKey,
    span: Span,
    out: &mut Vec<u8>,
) -> Result<(), ConvertError> {
    if !heaps.send_heap_contains(session, span) {
        return Err(outside());
    }
    // Mostly it held as much.
    if out.len() != span.len as usize {
        out.resize(span.len as usize, 0);
    }
    if heaps.seal_into(session, span, out) { Ok(()) } else { Err(outside()) }
}

pub(crate) fn outside() -> ConvertError {
    ConvertError::Malformed("message lies outside the send heap".into())
}

fn misplaced() -> ConvertError {
    ConvertError::Malformed("message was placed in another form than its receiver's".into())
}

fn untyped() -> ConvertError {
    ConvertError::Malformed("linear message of a method that was bound without a descriptor set".into())
}

pub(crate) fn encode<'w>(
    sent: Option<&Form>,
    extent: &[u8],
    wire: &'w mut Encoded,
) -> Result<&'w [u8], ConvertError> {
    let Some(Form::Typed(sent)) = sent else { return Err(untyped()) };
    let _serialization = tax_stage(TaxStage::Serialization);
    let done = sent.schema.transcoder.encode_into(sent.index, extent, wire);
    done.map_err(|error| encode_failed(sent, error))
}

/// Protobuf of what a peer sent as an extent without its header.
fn encode_headerless<'w>(
    sent: &MessageType,
    body: &[u8],
    extent: &mut Vec<u8>,
    wire: &'w mut Encoded,
) -> Result<&'w [u8], ConvertError> {
    let _serialization = tax_stage(TaxStage::Serialization);
    extent.clear();
    extend_headerless(extent, sent, body)?;
    let done = sent.schema.transcoder.encode_into(sent.index, extent, wire);
    done.map_err(|error| encode_failed(sent, error))
}

/// Puts the header that no peer sends before an extent, into an empty buffer.
fn extend_headerless(extent: &mut Vec<u8>, of: &MessageType, body: &[u8]) -> Result<(), ConvertError> {
    let total_bytes = u32::try_from(HEADER_BYTES + body.len()).map_err(|_| too_large())?;
    extent.resize(HEADER_BYTES, 0);
    extent.extend_from_slice(body);
    Header { total_bytes, fingerprint: of.fingerprint }.write(extent);
    Ok(())
}

/// Same host, both opaque: one copy, and nobody reads it.
fn copy_unread(
    heaps: &mut dyn Heaps,
    from: SessionKey,
    span: Span,
    to: SessionKey,
) -> Result<Span, ConvertError> {
    let block = Span { offset: allocate(heaps, to, span.len)?, len: span.len };
    if heaps.copy_across(from, span, to, block.offset) {
        return Ok(block);
    }
    heaps.discard(to, block.offset);
    Err(outside())
}

/// Bytes as they are. An empty message has a block too: its return is what counts for the sender's window.
fn write(heaps: &mut dyn Heaps, to: SessionKey, bytes: &[u8]) -> Result<Span, ConvertError> {
    let len = u32::try_from(bytes.len()).map_err(|_| too_large())?;
    let block = Span { offset: allocate(heaps, to, len)?, len };
    let _copies = tax_stage(TaxStage::Copies);
    heaps.receive_block(to, block).copy_from_slice(bytes);
    Ok(block)
}

/// Same host, same type: one copy, then the check on the copy the sender can no longer touch.
fn copy_checked(
    heaps: &mut dyn Heaps,
    from: SessionKey,
    span: Span,
    to: SessionKey,
    wanted: &MessageType,
) -> Result<Span, ConvertError> {
    let block = Span { offset: allocate(heaps, to, span.len)?, len: span.len };
    if !heaps.copy_across(from, span, to, block.offset) {
        heaps.discard(to, block.offset);
        return Err(outside());
    }
    let placed = checked(heaps, to, wanted, block);
    discard_unless_good(heaps, to, block, placed)
}

fn write_headerless(
    heaps: &mut dyn Heaps,
    to: SessionKey,
    wanted: &MessageType,
    bytes: &[u8],
) -> Result<Span, ConvertError> {
    let len = u32::try_from(HEADER_BYTES + bytes.len()).map_err(|_| too_large())?;
    let block = Span { offset: allocate(heaps, to, len)?, len };
    let placed = heaps.receive_block(to, block);
    if let Some((_, body)) = placed.split_at_mut_checked(HEADER_BYTES) {
        let _copies = tax_stage(TaxStage::Copies);
        body.copy_from_slice(bytes);
    }
    Header { total_bytes: len, fingerprint: wanted.fingerprint }.write(placed);
    let placed = checked(heaps, to, wanted, block);
    discard_unless_good(heaps, to, block, placed)
}

/// Gives a block back that was allocated here and turned out to hold no message.
fn discard_unless_good(
    heaps: &mut dyn Heaps,
    to: SessionKey,
    block: Span,
    placed: Result<Span, ConvertError>,
) -> Result<Span, ConvertError> {
    if placed.is_err() {
        heaps.discard(to, block.offset);
    }
    placed
}

/// Checks a message that was put together in a block of the receive heap, before it is handed over.
pub(crate) fn check_placed(
    heaps: &mut dyn Heaps,
    to: SessionKey,
    wanted: &MessageType,
    block: Span,
) -> Result<(), ConvertError> {
    finish_placed(heaps, to, wanted, block).map(drop)
}

/// The block's body is there; write the header the wire leaves out, and check.
fn finish_placed(
    heaps: &mut dyn Heaps,
    to: SessionKey,
    wanted: &MessageType,
    block: Span,
) -> Result<Span, ConvertError> {
    let bytes = heaps.receive_block(to, block);
    Header { total_bytes: block.len, fingerprint: wanted.fingerprint }.write(bytes);
    checked(heaps, to, wanted, block)
}

fn checked(
    heaps: &mut dyn Heaps,
    to: SessionKey,
    wanted: &MessageType,
    block: Span,
) -> Result<Span, ConvertError> {
    let _serialization = tax_stage(TaxStage::Serialization);
    match check(&wanted.schema.schema, wanted.index, &*heaps.receive_block(to, block)) {
        Ok(_) => Ok(block),
        Err(error) => Err(ConvertError::Malformed(error.describe(&wanted.schema.schema))),
    }
}

pub(crate) fn encode_failed(sent: &MessageType, error: EncodeError) -> ConvertError {
    match error {
        EncodeError::Invalid(error) => ConvertError::Malformed(error.describe(&sent.schema.schema)),
        EncodeError::Full { bytes_max } => ConvertError::TooLarge { limit: bytes_max as u64 },
    }
}
