//! What is sent as a message, and what leaves for the socket.

use trunkline_call::Encoding;

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload<'a> {
    /// How it is written. Linear extents go without their 24-byte header.
    pub encoding: Encoding,
    /// Its bytes.
    pub body: Body<'a>,
}

/// Where the bytes of a message are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Here; they are copied into the connection's buffer, so that many leave in one write. For small ones.
    Inline(&'a [u8]),
    /// Here; the connection keeps them until they are sent.
    Owned(Vec<u8>),
    /// In memory only the host can gather from (an application's send heap). [`crate::Notice::BodyDone`] gives it back.
    Shared(SharedRange),
}

/// A range of memory the host knows by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SharedRange {
    /// The host's name for this body; no other body on its way through the connection has the same.
    pub token: u64,
    /// Where the range begins, in bytes.
    pub offset: u32,
    /// Its length in bytes.
    pub len: u32,
}

/// A piece of what to write to the socket next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// The connection's own bytes.
    Bytes(&'a [u8]),
    /// The host's.
    Shared(SharedRange),
}

/// A body that waits for its turn.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) enum Store {
    #[default]
    Nothing,
    Owned(#[serde(with = "serde_bytes")] Vec<u8>),
    Shared(SharedRange),
}

impl Body<'_> {
    /// Length in bytes; a length past 4 GiB reads as the largest, which every limit refuses.
    pub fn len(&self) -> u32 {
        match self {
            Self::Inline(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Self::Owned(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Self::Shared(range) => range.len,
        }
    }

    /// Whether there are no bytes. An empty message is a message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn into_store(self) -> Store {
        match self {
            Self::Inline(bytes) => Store::Owned(bytes.to_vec()),
            Self::Owned(bytes) => Store::Owned(bytes),
            Self::Shared(range) => Store::Shared(range),
        }
    }
}

impl Store {
    pub fn len(&self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Owned(bytes) => bytes.len() as u32,
            Self::Shared(range) => range.len,
        }
    }

    /// The token to give back, if the bytes are the host's.
    pub fn token(&self) -> Option<u64> {
        match self {
            Self::Shared(range) => Some(range.token),
            Self::Nothing | Self::Owned(_) => None,
        }
    }
}

impl Chunk<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Shared(range) => range.len as usize,
        }
    }

    /// Never true of a chunk `poll_transmit` returns.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
