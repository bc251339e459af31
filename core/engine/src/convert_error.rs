//! Why messages cannot be converted, and what becomes of their calls.

use crate::call::Direction;
use crate::limits::{LINEAR_GROWTH, MESSAGE_BYTES, RECEIVE_HEAP};
use trunkline_call::{Execution, Fault};

/// Why a message could not be converted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConvertError {
    /// No room in the receive heap now; there may be later.
    NoRoom { heap_bytes: u64, wanted: u32 },
    /// Larger than messages may be.
    TooLarge { limit: u64 },
    /// Larger in linear form than so short a message may become.
    GrowsTooMuch { limit: u64 },
    /// Larger than the receive heap, which is empty if nobody is there to receive any more.
    TooLargeForHeap { heap_bytes: u64 },
    /// Not a valid message of its type.
    Malformed(String),
}

/// Why a message that cannot be converted ends its call.
pub(crate) fn conversion_fault(error: ConvertError, direction: Direction) -> Fault {
    match (error, direction) {
        (ConvertError::Malformed(why), Direction::Request) => Fault::MalformedRequest { why },
        (ConvertError::Malformed(why), Direction::Response) => Fault::MalformedResponse { why },
        (ConvertError::TooLarge { limit }, _) => Fault::Limit { name: MESSAGE_BYTES, limit },
        (ConvertError::GrowsTooMuch { limit }, _) => Fault::Limit { name: LINEAR_GROWTH, limit },
        (ConvertError::TooLargeForHeap { heap_bytes: 0 }, _) => {
            Fault::HandlerGone { executed: Execution::Unknown }
        }
        (ConvertError::TooLargeForHeap { heap_bytes } | ConvertError::NoRoom { heap_bytes, .. }, _) => {
            Fault::Limit { name: RECEIVE_HEAP, limit: heap_bytes }
        }
    }
}

/// Longer than any length says.
pub(crate) fn too_large() -> ConvertError {
    ConvertError::TooLarge { limit: u64::from(u32::MAX) }
}

/// Why messages of a call cannot be converted for this end: its other end never said of which types they are.
pub(crate) fn untyped() -> Fault {
    Fault::SchemaMismatch { why: "the types of the call's messages are not known here".into() }
}
