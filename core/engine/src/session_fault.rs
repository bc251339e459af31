//! How an application breaks the ABI.

use trunkline_call::entry::{EntryError, Span};
use trunkline_call::{CallId, RouteIndex};

/// How an application broke the ABI. The host detaches the session and tells it why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionFault {
    /// Not an entry of this version.
    #[error("submission entry is malformed: {0:?}")]
    Entry(EntryError),
    /// A route that no `Bind` gave out.
    #[error("route {} was never bound", .0.0)]
    UnknownRoute(RouteIndex),
    /// A call id that is in flight, or has the daemon's bit set.
    #[error("call id {0:?} is in use or reserved")]
    CallIdInUse(CallId),
    /// A range that is not in the send heap, or larger than its kind allows.
    #[error("range {}+{} is not a valid block of the send heap", .0.offset, .0.len)]
    OutsideHeap(Span),
    /// A release of something that is not a block of the receive heap.
    #[error("release of {}+{}: not a block of the receive heap", .0.offset, .0.len)]
    NotABlock(Span),
    /// A message on a stream that has no credit left.
    #[error("message on call {0:?} beyond the stream's window")]
    OverWindow(CallId),
    /// More calls than it may have, and as many again that were refused and that it has not released.
    #[error(
        "{0} calls in flight (limits.calls_made_per_session), and as many refused whose ends it does not take"
    )]
    TooManyCalls(usize),
    /// The session is gone already.
    #[error("session is gone")]
    Gone,
}
