//! What travels along an opaque call.

use crate::session::Received;
use std::fmt;
use trunkline_call::{Code, Execution, Metadata, Status};

/// A message in the receive heap: protobuf, returned to the daemon when dropped.
///
/// Holding on to many large messages holds on to the receive heap.
pub struct Message(pub(crate) Received);

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
