//! Messages made private and checked, for policies to look at.
//!
//! What lies in a send heap may change while it is read. So a policy never looks there: the message is copied out once,
//! the copy is checked and looked at, and the copy is what is sent.

use crate::call::{Body, Item};
use crate::convert::{check_placed, encode_failed};
use crate::convert_error::ConvertError;
use crate::decode::decode_failed;
use crate::registry::MessageType;
use crate::{Heaps, SessionKey};
use std::borrow::Cow;
use trunkline_call::Encoding;
use trunkline_call::entry::{Payload, Span};
use trunkline_message::transcode::{DecodeLimits, Encoded};
use trunkline_message::{AlignedBuf, CheckError, Extent, HEADER_BYTES, Header, View, check};

/// Buffers for one message at a time, reused.
#[derive(Debug, Default)]
pub(crate) struct Inspection {
    /// The message as a linear extent.
    extent: AlignedBuf,
    extent_bytes: usize,
    /// The bytes it came as, if they were protobuf.
    wire: Vec<u8>,
    /// The message as another type has it.
    translated: AlignedBuf,
    encoded: Encoded,
    /// What the largest of them has been made for.
    largest_bytes: usize,
}

/// Where a checked message is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Inspected {
    /// In [`Inspection`].
    Private,
    /// In a receive block that is not published, which only the daemon writes.
    Placed(SessionKey, Span),
}

/// Buffers that grew beyond this for one large message are given back to the allocator afterwards.
const KEPT_BYTES: usize = 1 << 20;

impl Inspection {
    // LIFE: 7
    /// Brings a body into a form nobody else can change, as a checked message of type `of`.
    pub fn inspect(
        &mut self,
        heaps: &mut dyn Heaps,
        limits: &DecodeLimits,
        of: &MessageType,
        body: &Body<'_>,
    ) -> Result<Inspected, ConvertError> {
        match body {
            Body::Placed { session, block, encoding: Encoding::Linear, .. } => {
                check_placed(heaps, *session, of, *block)?;
                return Ok(Inspected::Placed(*session, *block));
            }
            Body::Placed { session, block, .. } => {
                return self.decode(limits, of, Some(heaps.receive_block(*session, *block)));
            }
            Body::Lent { session, payload } if payload.encoding == Encoding::Linear => {
                let sealed = heaps.seal_into(*session, payload.span, self.room(payload.span.len as usize)?);
                if !sealed {
                    return Err(ConvertError::Malformed("message lies outside the send heap".into()));
                }
            }
            Body::Lent { session, payload } => {
                self.wire.clear();
                self.note_bytes(payload.span.len as usize);
                if !heaps.seal(*session, payload.span, &mut self.wire) {
                    return Err(ConvertError::Malformed("message lies outside the send heap".into()));
                }
                return self.decode(limits, of, None);
            }
            Body::Sealed { payload, bytes, .. } if payload.encoding == Encoding::Linear => {
                self.room(bytes.len())?.copy_from_slice(bytes);
            }
            Body::Wire { bytes, encoding: Encoding::Linear, .. } => {
                let total_bytes = (HEADER_BYTES + bytes.len()) as u32;
                let room = self.room(total_bytes as usize)?;
                Header { total_bytes, fingerprint: of.fingerprint }.write(room);
                if let Some(message) = room.get_mut(HEADER_BYTES..) {
                    message.copy_from_slice(bytes);
                }
            }
            // What policies look at is unpacked when it comes.
            Body::Packed { .. } => return Err(packed()),
            Body::Kept(kept) if kept.packing.is_some() => return Err(packed()),
            Body::Kept(kept) if kept.encoding == Encoding::Linear => {
                self.room(kept.bytes.len())?.copy_from_slice(&kept.bytes);
            }
            Body::Kept(kept) => return self.decode(limits, of, Some(&kept.bytes)),
            Body::Crossed(crossed) if crossed.encoding == Encoding::Linear => {
                self.room(crossed.bytes.len())?.copy_from_slice(&crossed.bytes);
            }
            Body::Crossed(crossed) => return self.decode(limits, of, Some(&crossed.bytes)),
            Body::Sealed { bytes, .. } | Body::Wire { bytes, .. } => {
                return self.decode(limits, of, Some(bytes));
            }
        }
        let checked = check(&of.schema.schema, of.index, self.private());
        let named = |error: CheckError| ConvertError::Malformed(error.describe(&of.schema.schema));
        checked.map(|_| Inspected::Private).map_err(named)
    }

    /// The message that was inspected.
    pub fn view<'v>(&'v self, heaps: &'v mut dyn Heaps, inspected: Inspected) -> View<'v> {
        View::root(self.bytes(heaps, inspected))
    }

    /// The message of `body`, which was inspected, as its receiver will have it: made of the same bytes by its type.
    /// Nothing of it goes by the sender's type that delivery does not bring by that way, too: what is lost there the
    /// sender can choose.
    pub fn as_received(
        &mut self,
        heaps: &mut dyn Heaps,
        limits: &DecodeLimits,
        (inspected, body): (Inspected, &Body<'_>),
        from: &MessageType,
        to: &MessageType,
    ) -> Result<View<'_>, ConvertError> {
        let Self { extent, extent_bytes, wire: sealed, translated, encoded, largest_bytes } = self;
        let mut limits = *limits;
        let wire = match (body, body.private(), inspected) {
            (_, Some((Encoding::Protobuf, bytes)), _) => bytes,
            (Body::Wire { bytes, encoding: Encoding::Protobuf, .. }, ..) => bytes.as_ref(),
            (Body::Lent { payload, .. }, ..) if payload.encoding == Encoding::Protobuf => sealed,
            (Body::Placed { session, block, encoding: Encoding::Protobuf, .. }, ..) => {
                &*heaps.receive_block(*session, *block)
            }
            (.., inspected) => {
                let linear = match inspected {
                    Inspected::Private => extent.bytes().get(..*extent_bytes).unwrap_or_default(),
                    Inspected::Placed(session, block) => &*heaps.receive_block(session, block),
                };
                limits = limits.of_linear(linear.len());
                *encoded = std::mem::take(encoded).within(limits.linear_bytes_max);
                let wire = from.schema.transcoder.encode_into(from.index, linear, encoded);
                // What could not be encoded has taken memory, too.
                *largest_bytes = (*largest_bytes).max(wire.as_ref().map_or(usize::MAX, |wire| wire.len()));
                wire.map_err(|error| encode_failed(from, error))?
            }
        };
        let done = to.schema.transcoder.decode(to.index, wire, translated, &limits);
        *largest_bytes = (*largest_bytes).max(translated.bytes().len());
        let len = done.map_err(|error| decode_failed(to, &error))?;
        let translated: &AlignedBuf = translated;
        Ok(View::root(translated.bytes().get(..len).unwrap_or_default()))
    }

    /// Replaces the item's message, which was inspected, by the copy that was looked at.
    pub fn seal<'i>(&'i self, item: &mut Item<'i>) {
        let (Item::Open { body: Some(body), .. } | Item::Message { body, .. }) = item else { return };
        if let Body::Lent { session, payload } = *body {
            *body = self.sealed(session, payload);
        }
    }

    /// The copy that was looked at, in the place of the message that was lent.
    pub fn sealed(&self, session: SessionKey, payload: Payload) -> Body<'_> {
        let linear = payload.encoding == Encoding::Linear;
        let bytes = if linear { self.private() } else { &self.wire };
        Body::Sealed { session, payload, bytes: Cow::Borrowed(bytes) }
    }

    /// Gives large buffers back.
    #[inline]
    pub fn trim(&mut self) {
        if self.largest_bytes > KEPT_BYTES {
            self.give_back();
        }
    }

    #[cold]
    fn give_back(&mut self) {
        *self = Self::default();
    }

    /// A buffer is made for so much.
    #[inline]
    fn note_bytes(&mut self, bytes: usize) {
        self.largest_bytes = self.largest_bytes.max(bytes);
    }

    fn bytes<'v>(&'v self, heaps: &'v mut dyn Heaps, inspected: Inspected) -> &'v [u8] {
        match inspected {
            Inspected::Private => self.private(),
            Inspected::Placed(session, block) => heaps.receive_block(session, block),
        }
    }

    fn private(&self) -> &[u8] {
        self.extent.bytes().get(..self.extent_bytes).unwrap_or_default()
    }

    fn room(&mut self, bytes: usize) -> Result<&mut [u8], ConvertError> {
        let too_large =
            |error: trunkline_message::LimitError| ConvertError::TooLarge { limit: error.limit_bytes as u64 };
        self.note_bytes(bytes);
        self.extent.grow(bytes).map_err(too_large)?;
        self.extent_bytes = bytes;
        Ok(self.extent.bytes_mut().get_mut(..bytes).unwrap_or_default())
    }

    /// Decodes protobuf: `wire`, or what was sealed.
    fn decode(
        &mut self,
        limits: &DecodeLimits,
        of: &MessageType,
        wire: Option<&[u8]>,
    ) -> Result<Inspected, ConvertError> {
        let wire = wire.unwrap_or(&self.wire);
        let decoded = of.schema.transcoder.decode(of.index, wire, &mut self.extent, limits);
        self.largest_bytes = self.largest_bytes.max(self.extent.bytes().len());
        self.extent_bytes = decoded.map_err(|error| decode_failed(of, &error))?;
        Ok(Inspected::Private)
    }
}

fn packed() -> ConvertError {
    ConvertError::Malformed("a packed message cannot be looked at".into())
}
