//! Large messages on their way in, put together where they will lie.

use crate::item::{Body, Direction, Item};
use crate::{CallKey, Heaps, SessionKey};
use std::borrow::Cow;
use trunkline_call::entry::Span;
use trunkline_call::{Code, Encoding, Execution};
use trunkline_native::MESSAGE_COST_BYTES;

/// One large message that is arriving.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Assembly {
    pub call: CallKey,
    pub direction: Direction,
    pub encoding: Encoding,
    pub(crate) total: u32,
    pub place: AssemblyPlace,
    pub shape: Shape,
    /// Bytes of the sender's window that were given back before they were consumed.
    pub(crate) ahead: u32,
    /// So much of it had come when bytes came last, and when somebody looked last whether it goes on.
    #[serde(default)]
    pub came: u32,
    #[serde(default)]
    pub looked: Option<u32>,
    /// What it is counted with in the bytes that arrive in a session's receive heap.
    #[serde(skip)]
    pub counted: u32,
}

/// Less than this of an unfinished message in the time it has is nothing.
const PROGRESS_BYTES: u32 = 1 << 10;

/// Where its bytes go.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum AssemblyPlace {
    /// A block of the receive heap it is meant for; the socket is read straight into it.
    Heap { session: SessionKey, block: Span, header_bytes: u32 },
    /// The daemon's own memory, because the heap was full or the bytes need converting. Grows as bytes come, never
    /// ahead on the peer's word.
    Private(#[serde(with = "serde_bytes")] Vec<u8>),
}

/// What the message is part of.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Shape {
    Open {
        #[serde(with = "serde_bytes")]
        metadata: Vec<u8>,
        end: bool,
    },
    Message {
        end: bool,
    },
    Finish {
        #[serde(with = "serde_bytes")]
        metadata: Vec<u8>,
    },
}

impl Shape {
    /// What the frame took of its sender's window beside the message's bytes.
    pub fn own_cost(&self) -> u32 {
        if matches!(self, Self::Message { .. }) { MESSAGE_COST_BYTES } else { 0 }
    }

    pub fn into_item(self, body: Option<Body<'_>>) -> Item<'_> {
        match (self, body) {
            (Self::Open { metadata, end }, body) => Item::Open { metadata: Cow::Owned(metadata), body, end },
            (Self::Message { end }, Some(body)) => Item::Message { body, end },
            (Self::Message { .. }, None) => Item::HalfClose,
            (Self::Finish { metadata }, body) => {
                let metadata = Cow::Owned(metadata);
                Item::Finish { code: Code::Ok, execution: Execution::Executed, body, metadata }
            }
        }
    }
}

impl AssemblyPlace {
    /// A block of a session's receive heap, if that has one; else the daemon's own memory.
    pub fn for_message(heaps: &mut dyn Heaps, session: SessionKey, header_bytes: u32, total: u32) -> Self {
        let Some(len) = total.checked_add(header_bytes) else { return Self::Private(Vec::new()) };
        match heaps.allocate(session, len.max(1)) {
            Some(offset) => {
                heaps.wrote(session, offset, 0);
                Self::Heap { session, block: Span { offset, len }, header_bytes }
            }
            None => Self::Private(Vec::new()),
        }
    }

    /// The session in whose receive heap it takes so many bytes of what the usual messages share, if it does.
    pub fn usual_bytes(&self, heaps: &dyn Heaps) -> Option<(SessionKey, u32)> {
        match self {
            Self::Heap { session, block, .. } if is_usual(heaps, *session, block.len) => {
                Some((*session, block.len))
            }
            _ => None,
        }
    }
}

/// Whether a block of so many bytes takes of what the usual messages of a receive heap share. Larger ones lie beyond.
pub(crate) fn is_usual(heaps: &dyn Heaps, session: SessionKey, bytes: u32) -> bool {
    let usual = heaps.receive_usual(session);
    bytes <= usual / 2 || usual == heaps.receive_capacity(session)
}

impl Assembly {
    /// A message of which nothing has come yet.
    pub fn new(
        call: CallKey,
        direction: Direction,
        encoding: Encoding,
        total: u32,
        place: AssemblyPlace,
        shape: Shape,
    ) -> Self {
        Self { call, direction, encoding, total, place, shape, ahead: 0, came: 0, looked: None, counted: 0 }
    }

    /// The whole message, as the item that takes it on has it.
    pub fn into_body(self) -> (Shape, Body<'static>) {
        let charged = (self.total + self.shape.own_cost()).saturating_sub(self.ahead);
        let encoding = self.encoding;
        let body = match self.place {
            AssemblyPlace::Heap { session, block, .. } => Body::Placed { session, block, encoding, charged },
            AssemblyPlace::Private(bytes) => {
                Body::Wire { bytes: Cow::Owned(bytes), encoding, charged, compressed: false }
            }
        };
        (self.shape, body)
    }

    /// The receive block it fills, if it has one.
    pub fn block(&self) -> Option<(SessionKey, u32)> {
        match &self.place {
            AssemblyPlace::Heap { session, block, .. } => Some((*session, block.offset)),
            AssemblyPlace::Private(_) => None,
        }
    }

    /// Looks whether the message goes on. `true`: hardly anything of it has come since the last look.
    pub fn has_stalled(&mut self) -> bool {
        let before = self.looked.replace(self.came);
        before.is_some_and(|before| self.came.saturating_sub(before) < PROGRESS_BYTES)
    }

    /// Bytes of the daemon's own memory it may take.
    pub fn private_bytes(&self) -> usize {
        if matches!(self.place, AssemblyPlace::Private(_)) { self.total as usize } else { 0 }
    }

    /// How many of those have not come.
    pub fn missing_bytes(&self) -> usize {
        match &self.place {
            AssemblyPlace::Private(bytes) => (self.total as usize).saturating_sub(bytes.len()),
            AssemblyPlace::Heap { .. } => 0,
        }
    }

    /// How many of those come with what ends so far from the beginning.
    pub fn coming_bytes(&self, end: usize) -> usize {
        match &self.place {
            AssemblyPlace::Private(bytes) if end <= self.total as usize => end.saturating_sub(bytes.len()),
            _ => 0,
        }
    }

    /// Its block has another name.
    pub fn rename(&mut self, heaps: &dyn Heaps) {
        if let AssemblyPlace::Heap { session, block, .. } = &mut self.place {
            block.offset = heaps.renamed(*session, block.offset);
        }
    }

    /// The bytes `offset..offset + len` of the message, if they are within what was announced.
    pub fn room<'a>(&'a mut self, heaps: &'a mut dyn Heaps, offset: u32, len: usize) -> Option<&'a mut [u8]> {
        let end = (offset as usize).checked_add(len).filter(|end| *end <= self.total as usize)?;
        self.came = self.came.max(offset);
        match &mut self.place {
            AssemblyPlace::Heap { session, block, header_bytes } => {
                let header = *header_bytes as usize;
                heaps.wrote(*session, block.offset, (header + end) as u32);
                let bytes = heaps.receive_block(*session, *block);
                bytes.get_mut(header + offset as usize..header + end)
            }
            AssemblyPlace::Private(bytes) => {
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes.get_mut(offset as usize..end)
            }
        }
    }
}
