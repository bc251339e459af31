//! What is to be submitted, and why it was not.

use super::queues::Resource;
use trunkline_call::entry::{MessageCompression, Payload, Span, Submission};
use trunkline_call::{CallId, Deadline, Encoding, Instant};
use trunkline_shm::Block;

/// Names a service called through one target, in every session of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BindingId(pub(crate) u64);

/// A call ready to be submitted.
#[derive(Debug)]
pub(crate) struct Order {
    /// Service and target.
    pub(crate) binding: BindingId,
    /// Which of the service's methods.
    pub(crate) method: usize,
    pub(crate) payload: Option<Written>,
    pub(crate) metadata: Option<Written>,
    /// The request side is complete.
    pub(crate) end: bool,
    /// It waits for a connection instead of failing when there is none.
    pub(crate) wait_for_ready: bool,
    pub(crate) deadline: Deadline,
    /// Stub entered.
    pub(crate) a0: Instant,
    /// Now: when this is submitted, if it is.
    pub(crate) a1: Instant,
    /// Since when it has waited, complete, to be submitted.
    pub(crate) queued: Option<Instant>,
    /// The delivered call whose handler makes this one, or zero.
    pub(crate) parent: CallId,
}

/// A block of the send heap with something in it.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) block: Block,
    pub(crate) len: u32,
    /// How the message in it is written; of no meaning for metadata.
    pub(crate) encoding: Encoding,
    /// It is not to be compressed towards a gRPC peer, whatever its call says.
    pub(crate) plain: bool,
}

/// Why something was not submitted. What was to be submitted is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Wait for this and try again.
    Full(Resource),
    /// Wait for the receiver of this stream and try again.
    Credit,
    /// The call has ended; the receiving side says how.
    Ended,
    /// The session takes no new calls: it is over, or the daemon is leaving.
    Closed,
    /// The service was not bound to this session.
    Unbound,
}

impl Written {
    /// Hands the block over: from here on it is to be in an entry. With nothing in it, it stays here.
    pub(crate) fn lend(self) -> Span {
        if self.len == 0 {
            return Span::default();
        }
        let span = self.block.lend(self.len);
        Span { offset: span.offset, len: span.len }
    }

    /// Hands a message over.
    pub(crate) fn into_payload(self) -> Payload {
        let (encoding, plain) = (self.encoding, self.plain);
        let compression = if plain { MessageCompression::Plain } else { MessageCompression::Unsaid };
        Payload { span: self.lend(), encoding, compression }
    }
}

/// The entry that returns one receive block.
pub(crate) fn returned(call: CallId, block: Span) -> Submission {
    Submission::Release { call, block, metadata: Span::default(), a18: Instant(0) }
}
