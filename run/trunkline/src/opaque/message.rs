//! What travels along an opaque call.

use super::types::Space;
use crate::message::Raw;
use crate::session::Received;
use bytes::Bytes;
use std::fmt;
use trunkline_call::{Code, Encoding, Execution, Metadata, Status};

/// A message to be sent: bytes in the encoding of the call, or what was built in a [`Space`].
#[derive(Debug)]
pub struct OpaqueBody {
    kind: Kind,
    plain: bool,
}

#[derive(Debug)]
enum Kind {
    Bytes(Bytes),
    Built(Space, usize),
}

impl OpaqueBody {
    /// The first `len` bytes of what was built in `space`. Nothing is copied where they lie in the heap they are sent
    /// from.
    pub fn built(space: Space, len: usize) -> Self {
        Self { kind: Kind::Built(space, len), plain: false }
    }

    /// The same, not to be compressed towards a gRPC peer, whatever its call says.
    pub fn uncompressed(self) -> Self {
        Self { plain: true, ..self }
    }

    /// On a call whose bytes are in this encoding. What was built is linear, whatever the call's is.
    pub(crate) fn into_raw(self, encoding: Encoding) -> Raw {
        let raw = match self.kind {
            Kind::Bytes(bytes) => Raw::local(bytes, encoding),
            Kind::Built(space, len) => Raw::built(space.into_extent(), len),
        };
        if self.plain { raw.uncompressed() } else { raw }
    }
}

impl From<Bytes> for OpaqueBody {
    fn from(bytes: Bytes) -> Self {
        Self { kind: Kind::Bytes(bytes), plain: false }
    }
}

impl From<Vec<u8>> for OpaqueBody {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<&'static str> for OpaqueBody {
    fn from(text: &'static str) -> Self {
        text.as_bytes().into()
    }
}

impl From<&'static [u8]> for OpaqueBody {
    fn from(bytes: &'static [u8]) -> Self {
        Bytes::from_static(bytes).into()
    }
}

/// A message in the receive heap: protobuf, or linear where types were said; returned to the daemon when dropped.
///
/// Holding on to many large messages holds on to the receive heap.
pub struct Message(pub(crate) Received);

impl Message {
    /// Whether it came compressed from a gRPC peer. What comes from this host, or from another's daemon, does not.
    pub fn was_compressed(&self) -> bool {
        self.0.was_compressed()
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("len_bytes", &self.0.bytes().len()).finish_non_exhaustive()
    }
}

/// How a call ended, in gRPC's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status.
    pub code: Code,
    /// Trailing metadata, with the status's message (percent-encoded) and details under gRPC's own keys.
    pub trailers: Metadata,
    /// Whether the handler may have run.
    pub execution: Execution,
}

impl From<&Status> for Outcome {
    /// A message or details too large for metadata are left out; the code is what counts.
    fn from(status: &Status) -> Self {
        let mut trailers = Metadata::new();
        let _ = status.put_into(&mut trailers);
        Self { code: status.code(), trailers, execution: status.execution() }
    }
}
