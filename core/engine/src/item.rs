//! What travels along a call: items, and the bodies of messages in them.

use crate::heaps::Heaps;
use crate::packing::Packing;
use crate::shard::CrossedBody;
use crate::{CallKey, SessionKey};
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::entry::{MessageCompression, Payload, Span};
use trunkline_call::{Code, Encoding, Execution};
use trunkline_message::HEADER_BYTES;

/// The two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub(crate) enum Direction {
    Request,
    Response,
}

impl Direction {
    pub fn opposite(self) -> Self {
        match self {
            Self::Request => Self::Response,
            Self::Response => Self::Request,
        }
    }
}

/// The way of an item: along a call, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemWay {
    pub key: CallKey,
    pub direction: Direction,
}

/// One thing that travels along a call.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Item<'a> {
    /// The start (request only).
    Open {
        #[serde(with = "trunkline_call::octets")]
        metadata: Cow<'a, [u8]>,
        body: Option<Body<'a>>,
        end: bool,
    },
    /// A message of a stream.
    Message { body: Body<'a>, end: bool },
    /// No more messages (request only; a response ends with `Finish`).
    HalfClose,
    /// Response headers.
    Headers {
        #[serde(with = "trunkline_call::octets")]
        metadata: Cow<'a, [u8]>,
    },
    /// The end (response only).
    Finish {
        code: Code,
        execution: Execution,
        body: Option<Body<'a>>,
        #[serde(with = "trunkline_call::octets")]
        metadata: Cow<'a, [u8]>,
    },
}

/// The bytes of a message, wherever they lie. Which it is is a byte of its own: it is asked all along a call's way.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub(crate) enum Body<'a> {
    /// In the sending session's send heap; goes back to it once used.
    Lent { session: SessionKey, payload: Payload },
    /// A private copy of the same, which policies have looked at. The block goes back when the copy has been used, so
    /// that whoever sends pays for copies that wait.
    Sealed {
        session: SessionKey,
        payload: Payload,
        #[serde(with = "trunkline_call::octets")]
        bytes: Cow<'a, [u8]>,
    },
    /// A private copy that attempts share; its block has gone back.
    Kept(KeptBody),
    /// As a peer sent them: headerless linear, or protobuf. `charged` is what they still take of the sender's window.
    Wire {
        #[serde(with = "trunkline_call::octets")]
        bytes: Cow<'a, [u8]>,
        encoding: Encoding,
        charged: u32,
        /// A gRPC peer sent it compressed.
        #[serde(default)]
        compressed: bool,
    },
    /// Whole in a receive block of the destination session, as `encoding` says; the header of a linear one is still to
    /// be written. `charged` as above.
    Placed { session: SessionKey, block: Span, encoding: Encoding, charged: u32 },
    /// Protobuf as a gRPC peer sent it, to go on to another without being unpacked (`packing.rs`). `charged` as above.
    Packed {
        #[serde(with = "trunkline_call::octets")]
        bytes: Cow<'a, [u8]>,
        packing: Packing,
        charged: u32,
    },
    /// A private copy from another shard. Its sender pays for it there until it is used here.
    Crossed(Box<CrossedBody>),
}

impl Body<'_> {
    /// Bytes as the sender counts them against its window.
    pub fn len(&self) -> u32 {
        match self {
            Self::Lent { payload, .. } | Self::Sealed { payload, .. } => payload.span.len,
            Self::Kept(kept) => kept.bytes.len() as u32,
            Self::Wire { bytes, .. } | Self::Packed { bytes, .. } => bytes.len() as u32,
            Self::Placed { block, .. } => block.len,
            Self::Crossed(crossed) => crossed.bytes.len() as u32,
        }
    }

    /// How a gRPC peer has packed it, and the bytes, if it is packed.
    pub fn packed(&self) -> Option<(Packing, &[u8])> {
        match self {
            Self::Packed { bytes, packing, .. } => Some((*packing, bytes)),
            Self::Kept(kept) => kept.packing.map(|packing| (packing, &*kept.bytes)),
            _ => None,
        }
    }

    /// What its sender has said of its compression, or how it came from a gRPC peer.
    pub fn compression(&self) -> MessageCompression {
        match self {
            Self::Lent { payload, .. } | Self::Sealed { payload, .. } => payload.compression,
            Self::Kept(kept) => kept.compression,
            Self::Crossed(crossed) => crossed.compression,
            Self::Wire { compressed, .. } => MessageCompression::came(*compressed),
            Self::Packed { packing, .. } => MessageCompression::came(packing.compressed),
            Self::Placed { .. } => MessageCompression::Unsaid,
        }
    }

    /// A private copy of a session's message, and how it is encoded.
    pub fn private(&self) -> Option<(Encoding, &[u8])> {
        match self {
            Self::Sealed { payload, bytes, .. } => Some((payload.encoding, bytes)),
            Self::Kept(kept) if kept.packing.is_none() => Some((kept.encoding, &kept.bytes)),
            Self::Crossed(crossed) => Some((crossed.encoding, &crossed.bytes)),
            _ => None,
        }
    }

    /// A private copy that may be sent several times; `None` if the message lies outside its heap, or cannot be sent
    /// again.
    pub fn kept(&self, heaps: &dyn Heaps) -> Option<KeptBody> {
        let (bytes, encoding, packing): (Arc<[u8]>, _, _) = match self {
            Self::Lent { session, payload } => {
                let mut bytes = Vec::with_capacity(payload.span.len as usize);
                let sealed = heaps.seal(*session, payload.span, &mut bytes);
                (sealed.then_some(bytes)?.into(), payload.encoding, None)
            }
            Self::Sealed { payload, bytes, .. } => ((**bytes).into(), payload.encoding, None),
            Self::Kept(kept) => return Some(kept.clone()),
            Self::Crossed(crossed) => ((*crossed.bytes).into(), crossed.encoding, None),
            Self::Wire { bytes, encoding: Encoding::Protobuf, .. } => {
                ((**bytes).into(), Encoding::Protobuf, None)
            }
            Self::Packed { bytes, packing, .. } => ((**bytes).into(), Encoding::Protobuf, Some(*packing)),
            // Without its header, and of a type only its peer has told.
            Self::Wire { .. } | Self::Placed { .. } => return None,
        };
        Some(KeptBody { bytes, encoding, packing, compression: self.compression() })
    }

    /// Bytes a linear body has before it that no peer sends.
    pub fn header_bytes(encoding: Encoding) -> u32 {
        match encoding {
            Encoding::Linear => HEADER_BYTES as u32,
            Encoding::Protobuf => 0,
        }
    }

    /// What the message took from its sender's window and is to be given back once the receiver has released it: less
    /// what a long message that is larger than the window was given to arrive at all.
    pub fn window_cost(&self) -> u32 {
        match self {
            Self::Lent { payload, .. } | Self::Sealed { payload, .. } => payload.window_bytes(),
            // Given back when it was kept.
            Self::Kept(_) => 0,
            Self::Wire { charged, .. } | Self::Placed { charged, .. } | Self::Packed { charged, .. } => {
                *charged
            }
            Self::Crossed(crossed) => crossed.charged,
        }
    }

    /// The same; nothing is to be given back later, except of what lies in its sender's heap, which says so itself.
    pub fn take_window_cost(&mut self) -> u32 {
        match self {
            Self::Wire { charged, .. } | Self::Placed { charged, .. } | Self::Packed { charged, .. } => {
                std::mem::take(charged)
            }
            Self::Crossed(crossed) => std::mem::take(&mut crossed.charged),
            Self::Lent { .. } | Self::Sealed { .. } | Self::Kept(_) => self.window_cost(),
        }
    }

    /// Those of [`Body::parked_bytes`] that take nothing of the sender's window.
    pub fn uncharged_bytes(&self) -> usize {
        self.parked_bytes().saturating_sub(self.window_cost() as usize)
    }

    /// Bytes the daemon itself holds for this body while it waits.
    pub fn parked_bytes(&self) -> usize {
        match self {
            Self::Wire { bytes, .. } | Self::Packed { bytes, .. } => bytes.len(),
            // Kept: bounded where it is kept. Crossed: where it comes from. Sealed: bounded by the sender's heap, which
            // holds the original meanwhile.
            Self::Lent { .. }
            | Self::Sealed { .. }
            | Self::Placed { .. }
            | Self::Kept(_)
            | Self::Crossed(_) => 0,
        }
    }

    /// The send block that is to be given back once the body is used.
    pub fn lent(&self) -> Option<(SessionKey, Payload)> {
        match self {
            Self::Lent { session, payload } | Self::Sealed { session, payload, .. } => {
                Some((*session, *payload))
            }
            Self::Kept(_)
            | Self::Wire { .. }
            | Self::Placed { .. }
            | Self::Packed { .. }
            | Self::Crossed(_) => None,
        }
    }

    fn into_owned(self) -> Body<'static> {
        match self {
            Self::Lent { session, payload } => Body::Lent { session, payload },
            Self::Sealed { session, payload, bytes } => {
                Body::Sealed { session, payload, bytes: Cow::Owned(bytes.into_owned()) }
            }
            Self::Kept(kept) => Body::Kept(kept),
            Self::Crossed(crossed) => Body::Crossed(crossed),
            Self::Wire { bytes, encoding, charged, compressed } => {
                Body::Wire { bytes: Cow::Owned(bytes.into_owned()), encoding, charged, compressed }
            }
            Self::Placed { session, block, encoding, charged } => {
                Body::Placed { session, block, encoding, charged }
            }
            Self::Packed { bytes, packing, charged } => {
                Body::Packed { bytes: Cow::Owned(bytes.into_owned()), packing, charged }
            }
        }
    }
}

impl<'a> Item<'a> {
    /// Takes it out of the hands of whoever lent it. What is left there says nothing.
    #[inline]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::HalfClose)
    }

    /// Whether it has no memory of its own.
    #[inline(always)]
    pub fn holds_nothing(&self) -> bool {
        let (Self::Open { metadata, body, .. } | Self::Finish { metadata, body, .. }) = self else {
            return matches!(self, Self::HalfClose);
        };
        let own = |bytes: &Cow<'a, [u8]>| if let Cow::Owned(own) = bytes { own.capacity() } else { 0 };
        let holds_no_body = match body {
            None | Some(Body::Lent { .. } | Body::Placed { .. }) => true,
            Some(Body::Wire { bytes, .. }) => own(bytes) == 0,
            Some(_) => false,
        };
        holds_no_body && own(metadata) == 0
    }

    /// The message in it, if any.
    pub fn body(&self) -> Option<&Body<'a>> {
        match self {
            Self::Open { body, .. } | Self::Finish { body, .. } => body.as_ref(),
            Self::Message { body, .. } => Some(body),
            Self::HalfClose | Self::Headers { .. } => None,
        }
    }

    /// Bytes the daemon itself holds for it while it waits: what its body makes it hold, and its metadata.
    pub fn parked_bytes(&self) -> usize {
        self.metadata_bytes() + self.body().map_or(0, Body::parked_bytes)
    }

    fn metadata_bytes(&self) -> usize {
        match self {
            Self::Open { metadata, .. } | Self::Finish { metadata, .. } | Self::Headers { metadata } => {
                metadata.len()
            }
            Self::Message { .. } | Self::HalfClose => 0,
        }
    }

    /// Whether the message in it is packed.
    pub fn is_packed(&self) -> bool {
        self.body().is_some_and(|body| body.packed().is_some())
    }

    /// What keeping it for another attempt costs: an empty message has a place in the lists, too.
    pub fn kept_bytes(&self) -> usize {
        const PLACE_BYTES: usize = 128;
        PLACE_BYTES + self.body().map_or(0, |body| body.len() as usize)
    }

    /// The same, to be changed.
    #[inline]
    pub fn body_mut(&mut self) -> Option<&mut Body<'a>> {
        match self {
            Self::Open { body, .. } | Self::Finish { body, .. } => body.as_mut(),
            Self::Message { body, .. } => Some(body),
            Self::HalfClose | Self::Headers { .. } => None,
        }
    }

    /// Takes out the private copy from another shard that its message is, if it is one: an empty message is left.
    #[inline]
    pub fn take_crossed(&mut self) -> Option<Box<CrossedBody>> {
        let body = self.body_mut().filter(|body| matches!(body, Body::Crossed(_)))?;
        let (bytes, encoding) = (Cow::Borrowed(&[][..]), Encoding::Protobuf);
        match std::mem::replace(body, Body::Wire { bytes, encoding, charged: 0, compressed: false }) {
            Body::Crossed(crossed) => Some(crossed),
            _ => None,
        }
    }

    /// The same item, independent of the buffer it was read from.
    pub fn into_owned(self) -> Item<'static> {
        let own = |bytes: Cow<'a, [u8]>| Cow::Owned(bytes.into_owned());
        match self {
            Self::Open { metadata, body, end } => {
                Item::Open { metadata: own(metadata), body: body.map(Body::into_owned), end }
            }
            Self::Message { body, end } => Item::Message { body: body.into_owned(), end },
            Self::HalfClose => Item::HalfClose,
            Self::Headers { metadata } => Item::Headers { metadata: own(metadata) },
            Self::Finish { code, execution, body, metadata } => {
                Item::Finish { code, execution, body: body.map(Body::into_owned), metadata: own(metadata) }
            }
        }
    }

    /// A finish without its message, to be handed over again if there is no room.
    pub fn without_body(&self) -> Item<'static> {
        match self {
            Item::Finish { code, execution, metadata, .. } => {
                let metadata = Cow::Owned(metadata.to_vec());
                Item::Finish { code: *code, execution: *execution, body: None, metadata }
            }
            _ => Item::HalfClose,
        }
    }

    /// A finish of code alone.
    pub fn without_words(&self) -> Item<'static> {
        match self {
            Item::Finish { code, execution, .. } => {
                Item::Finish { code: *code, execution: *execution, body: None, metadata: Cow::Borrowed(&[]) }
            }
            _ => Item::HalfClose,
        }
    }
}

/// A message, private, shared by all attempts.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct KeptBody {
    #[serde(with = "trunkline_call::octets")]
    pub bytes: Arc<[u8]>,
    pub encoding: Encoding,
    /// A gRPC peer has packed it.
    #[serde(default)]
    pub packing: Option<Packing>,
    /// As of [`Body::compression`].
    #[serde(default)]
    pub compression: MessageCompression,
}
