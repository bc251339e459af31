//! One call on one connection.

use crate::StreamId;
use crate::body::Store;
use crate::frame_type::FrameType;
use crate::head::Head;
use std::collections::VecDeque;
use trunkline_call::Execution;

/// Where a stream stands. The diagram is the whole truth; a command or frame not on it is refused.
///
/// ```text
/// opened here:   Sending ──END sent──▶ Sent ─┐
///                   └────────────────────────┴─▶ RESULT, VOID-RESULT, ERROR come, or CANCEL goes ─▶ gone
///
/// opened there:  Receiving ──END comes──▶ Received ─┐
///                   ├───────────────────────────────┴─▶ outcome sent ─▶ Finishing ──all handed over──▶ gone
///                   └─▶ CANCEL comes ─▶ gone                 (gone at once if nothing of the stream waits)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum State {
    /// Opened here; request messages may follow.
    Sending,
    /// Opened here; the request is complete.
    Sent,
    /// Opened by the peer; request messages may come.
    Receiving,
    /// Opened by the peer; the request is complete.
    Received,
    /// Opened by the peer; the outcome is queued behind what waits.
    Finishing,
}

/// A stream's whole state.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Stream {
    pub id: StreamId,
    /// The owner's name for it.
    pub tag: u64,
    /// Opened here: the how-manieth. Stream ids wrap, this does not.
    pub ordinal: u64,
    pub state: State,
    /// The method, of the caller's announcements.
    pub method: u16,
    /// Message bytes this side may send.
    pub send_window: u64,
    /// Message bytes the peer may send.
    pub receive_window: u64,
    /// Granted by the owner and not yet told to the peer.
    pub ungranted: u32,
    /// The message that is arriving in parts.
    pub partial: Option<Partial>,
    /// What waits for order or window, oldest first.
    pub queue: VecDeque<Pending>,
    /// Message bytes in `queue`.
    pub queued_bytes: u64,
    /// Whether the scheduler knows this stream.
    pub turn: Turn,
    /// Units in the bulk lane that have not left.
    pub units: u32,
    /// A command was refused for a full queue: tell when there is room.
    pub refused: bool,
    /// Where the CALL and its first message end.
    pub call_end: CallEnd,
}

/// A message arriving in parts.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Partial {
    pub total: u32,
    pub received: u32,
    /// What its last byte means.
    pub then: Then,
}

/// What the last byte of a message means for its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Then {
    More,
    End,
    Outcome,
}

/// Whether a stream is in the scheduler's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Turn {
    /// Nothing waits.
    Idle,
    /// In the ring.
    Ready,
    /// Waits for a WINDOW frame.
    Blocked,
}

/// Where in the outgoing bytes the CALL with its whole first message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum CallEnd {
    /// Some of it is not in a lane yet.
    Waiting,
    /// At this position of the prompt lane.
    Prompt(u64),
    /// At this position of the bulk lane.
    Bulk(u64),
}

/// What waits on a stream.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Pending {
    /// A whole frame; with `total`, the head of a message whose segments are next in the queue.
    Frame { head: Head<'static>, total: Option<u32>, body: Store },
    /// The rest of a cut message from `offset` on.
    Segments { body: Store, offset: u32, of_call: bool },
}

/// What every MESSAGE costs its windows beside its bytes, so that a flood of empty messages is bounded too. Calls are
/// bounded by the limit on streams, outcomes by one per stream: they cost their bytes alone.
pub const MESSAGE_COST_BYTES: u32 = 64;

impl Stream {
    pub fn new(id: StreamId, state: State, method: u16, send_window: u32, receive_window: u32) -> Self {
        Self {
            id,
            tag: 0,
            ordinal: 0,
            state,
            method,
            send_window: send_window.into(),
            receive_window: receive_window.into(),
            ungranted: 0,
            partial: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            turn: Turn::Idle,
            units: 0,
            refused: false,
            call_end: CallEnd::Waiting,
        }
    }

    /// Whether a frame may go into the prompt lane without overtaking this stream's own.
    pub fn is_clear(&self) -> bool {
        self.queue.is_empty() && self.units == 0
    }

    /// Whether the peer has begun to say how the call ended: nothing more of the request is wanted.
    pub fn is_answered(&self) -> bool {
        self.partial.is_some_and(|partial| partial.then == Then::Outcome)
    }

    /// Whether this side opened it.
    pub fn is_made(&self) -> bool {
        matches!(self.state, State::Sending | State::Sent)
    }

    /// What may be said of a call opened here whose connection is lost, by the positions both lanes have reached.
    pub fn execution(&self, prompt_taken: u64, bulk_taken: u64) -> Execution {
        let handed = match self.call_end {
            CallEnd::Waiting => false,
            CallEnd::Prompt(end) => end <= prompt_taken,
            CallEnd::Bulk(end) => end <= bulk_taken,
        };
        // An answer to a request that has not left in whole has taken the rest out of the queue.
        if handed || self.is_answered() { Execution::Unknown } else { Execution::NotExecuted }
    }
}

impl Pending {
    pub fn body(&self) -> &Store {
        match self {
            Self::Frame { body, .. } | Self::Segments { body, .. } => body,
        }
    }

    /// [`Pending::bytes`], unless it cannot be.
    pub fn checked_bytes(&self) -> Option<u64> {
        let (len, offset) = match self {
            Self::Frame { body, .. } => (body.len(), 0),
            Self::Segments { body, offset, .. } => (body.len(), *offset),
        };
        len.checked_sub(offset).map(u64::from)
    }

    /// Message bytes still to be sent from here.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Frame { body, .. } => body.len().into(),
            Self::Segments { body, offset, .. } => u64::from(body.len()) - u64::from(*offset),
        }
    }
}

/// What a message frame costs its windows beside the bytes in it.
pub(crate) fn cost_bytes(frame: FrameType) -> u32 {
    if frame == FrameType::Message { MESSAGE_COST_BYTES } else { 0 }
}
