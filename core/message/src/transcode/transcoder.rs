//! The public face: which messages there are, how they are bounded, and what surrounds the root block.

use std::sync::Arc;

use trunkline_schema::{MessageIndex, Schema};

use super::emit::{self, EmitTables, HEADROOM_BYTES};
use super::encoded::Encoded;
use super::error::{DecodeError, DecodeErrorKind, EncodeError};
use super::limits::{DecodeLimits, LINEAR_BYTES_MAX, WIRE_BYTES_MAX};
use super::parse::{self, ParseTables};
use crate::{CheckError, CheckErrorKind, DEPTH_MAX, Extent, HEADER_BYTES, Header, LimitError};

/// The longest output and the room it is written with.
const OUTPUT_BYTES_MAX: usize = WIRE_BYTES_MAX + HEADROOM_BYTES;

/// Turns messages of one schema from protobuf to linear and back. Immutable; share it by `Arc`.
#[derive(Debug)]
pub struct Transcoder {
    parse: ParseTables,
    emit: EmitTables,
    schema: Arc<Schema>,
}

impl Transcoder {
    /// Builds the tables for every message of `schema`: some microseconds per message.
    pub fn new(schema: Arc<Schema>) -> Self {
        Transcoder { parse: ParseTables::new(&schema), emit: EmitTables::new(schema.clone()), schema }
    }

    /// The schema the tables were built from.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Reads `wire`, a protobuf message of type `root`, into `out` as a linear message; returns its length in bytes.
    ///
    /// The capacity of `out` is used as it is and grown when it does not suffice; what it held is lost.
    ///
    /// # Errors
    /// [`DecodeError`], which says what is wrong, at which byte and in which field. [`DecodeError::is_limit`] tells
    /// exhausted limits from bad bytes.
    pub fn decode(
        &self,
        root: MessageIndex,
        wire: &[u8],
        out: &mut impl Extent,
        limits: &DecodeLimits,
    ) -> Result<usize, DecodeError> {
        let failed = |kind| DecodeError { kind, offset: 0, message: root, field: 0 };
        let Some(block_bytes) = self.parse.block_bytes(root.0 as usize) else {
            return Err(failed(DecodeErrorKind::NoSuchMessage));
        };
        let bytes_max = limits.wire_bytes_max.min(WIRE_BYTES_MAX);
        if wire.len() > bytes_max {
            return Err(failed(DecodeErrorKind::WireBytes { bytes: wire.len(), bytes_max }));
        }
        let (linear_bytes_max, is_growth) = limits.linear_bytes(wire.len());
        let mut wanted = first_guess_bytes(block_bytes, wire.len());
        loop {
            wanted = wanted.min(linear_bytes_max);
            if out.bytes().len() < wanted {
                out.grow(wanted).map_err(|limit| failed(DecodeErrorKind::Limit(limit)))?;
            }
            let buffer = out.bytes_mut();
            let usable = buffer.len().min(linear_bytes_max);
            let buffer = buffer.get_mut(..usable).unwrap_or_default();
            let depth_max = limits.depth_max.min(DEPTH_MAX);
            match parse::parse(&self.parse, root.0 as usize, wire, buffer, HEADER_BYTES as u32, depth_max) {
                parse::Outcome::Done(len) => {
                    let fingerprint = self.schema.fingerprint(root);
                    Header { total_bytes: len, fingerprint }.write(buffer);
                    return Ok(len as usize);
                }
                parse::Outcome::Full if usable < linear_bytes_max => wanted = usable.saturating_mul(2),
                parse::Outcome::Full if is_growth => {
                    return Err(failed(DecodeErrorKind::Growth { bytes: wire.len(), linear_bytes_max }));
                }
                parse::Outcome::Full => {
                    let limit = LimitError { wanted_bytes: usable + 1, limit_bytes: linear_bytes_max };
                    return Err(failed(DecodeErrorKind::Limit(limit)));
                }
                parse::Outcome::Fault { kind, at, tag, message } => {
                    let message = MessageIndex(message);
                    return Err(DecodeError { kind, offset: at as usize, message, field: tag >> 3 });
                }
            }
        }
    }

    /// Checks `extent`, a linear message of type `root` that need not be trusted, and writes it to `out` as protobuf.
    ///
    /// The check is the one of [`check`](crate::check()), done on the way; only the memory's own alignment is not asked
    /// for.
    ///
    /// # Errors
    /// [`EncodeError`], which says what is wrong, where and in which field; [`EncodeError::Full`] if it is longer than
    /// [`Encoded::within`] allows.
    pub fn encode_into<'o>(
        &self,
        root: MessageIndex,
        extent: &[u8],
        out: &'o mut Encoded,
    ) -> Result<&'o [u8], EncodeError> {
        let extent = self.stated_extent(root, extent)?;
        let room_max = out.room_max();
        let mut wanted = room_for(extent.len());
        loop {
            out.reserve(wanted.min(room_max));
            let buffer = out.buffer_mut();
            // What it is longer than it may be, is left alone.
            let beyond = buffer.len().saturating_sub(room_max);
            let usable = buffer.len() - beyond;
            match self.emit(root, extent, buffer.get_mut(beyond..).unwrap_or_default()) {
                Err(EncodeError::Full { .. }) if usable < room_max => wanted = 2 * usable,
                Err(error) => return Err(error),
                // It lies in a part of the room it was written with.
                Ok(start) if usable - start > out.bytes_max() => {
                    return Err(EncodeError::Full { bytes_max: out.bytes_max() });
                }
                Ok(start) => {
                    out.set_start(beyond + start);
                    return Ok(out.bytes());
                }
            }
        }
    }

    /// Like [`encode_into`](Self::encode_into), replacing the content of a vector. Moves the bytes once more.
    ///
    /// # Errors
    /// As `encode_into`.
    pub fn encode(&self, root: MessageIndex, extent: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut encoded = Encoded::over(std::mem::take(out));
        let done = self.encode_into(root, extent, &mut encoded).map(|_| ());
        *out = encoded.into_vec();
        done
    }

    /// Like [`encode_into`](Self::encode_into), to the end of the caller's buffer: the message is `buffer[start..]` for
    /// the `start` that is returned.
    ///
    /// # Errors
    /// As `encode_into`; [`EncodeError::Full`] if the message and [`HEADROOM_BYTES`] do not fit.
    pub fn encode_backwards(
        &self,
        root: MessageIndex,
        extent: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, EncodeError> {
        let extent = self.stated_extent(root, extent)?;
        self.emit(root, extent, buffer)
    }

    fn emit(&self, root: MessageIndex, extent: &[u8], buffer: &mut [u8]) -> Result<usize, EncodeError> {
        let bytes_max = buffer.len().saturating_sub(HEADROOM_BYTES);
        match emit::emit(&self.emit, root.0 as usize, extent, buffer) {
            emit::Outcome::Done(start) => Ok(start),
            emit::Outcome::Full => Err(EncodeError::Full { bytes_max }),
            emit::Outcome::Fault { kind, at, message, field } => {
                Err(CheckError { kind, offset: at, message: MessageIndex(message), field }.into())
            }
        }
    }

    /// The part of `extent` that is the message, by its header.
    fn stated_extent<'e>(&self, root: MessageIndex, extent: &'e [u8]) -> Result<&'e [u8], CheckError> {
        let refuse = |kind| CheckError { kind, offset: 0, message: root, field: 0 };
        if self.schema.messages().get(root.0 as usize).is_none() {
            return Err(refuse(CheckErrorKind::NoSuchMessage));
        }
        let header = Header::read(extent).map_err(|e| refuse(e.into()))?;
        if header.fingerprint != self.schema.fingerprint(root) {
            return Err(refuse(CheckErrorKind::Fingerprint(header.fingerprint)));
        }
        let stated = extent.get(..header.total_bytes as usize).filter(|e| e.len() <= LINEAR_BYTES_MAX);
        stated.ok_or_else(|| refuse(CheckErrorKind::Length(header.total_bytes)))
    }
}

/// What a buffer should have for the protobuf of a linear message of so many bytes: most fit.
pub fn room_for(extent_bytes: usize) -> usize {
    (extent_bytes + extent_bytes / 4 + HEADROOM_BYTES).min(OUTPUT_BYTES_MAX)
}

/// Capacity to begin with: small messages grow by several times, large ones are mostly their strings. A guess too low
/// costs a second attempt.
fn first_guess_bytes(block_bytes: u32, wire_bytes: usize) -> usize {
    HEADER_BYTES + block_bytes as usize + wire_bytes + wire_bytes.clamp(128, 4096)
}
