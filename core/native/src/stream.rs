//! One call on one connection.

use crate::body::Store;
use crate::frame::{Arrival, Then};
use crate::frame_type::{FrameType, flag};
use crate::head::Head;
use crate::window::overrun;
use crate::wire::{Header, WINDOW_SUM_MAX, check_window, field, out_of_place};
use crate::{Limits, Notice, ProtocolError, Refused, StreamId};
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

    /// Whether a message frame may come on it now.
    pub fn check_arrival(&self, arrival: &Arrival<'_>) -> Result<(), ProtocolError> {
        let header = &arrival.header;
        if header.frame == FrameType::Segment {
            let Some(partial) = self.partial else {
                return Err(out_of_place(header, "no message is in parts"));
            };
            if arrival.body_bytes > partial.total - partial.received {
                return Err(field(header, "length", arrival.body_bytes.into(), "within the message's TOTAL"));
            }
            return Ok(());
        }
        if self.partial.is_some() {
            return Err(out_of_place(header, "the message before it is not complete"));
        }
        if self.state == State::Received {
            return Err(out_of_place(header, "its side of the stream is complete"));
        }
        let (is_result, is_made) = (header.frame == FrameType::Result, self.is_made());
        if is_result && !is_made {
            return Err(out_of_place(header, "only the serving side ends a call"));
        }
        if is_made && header.has(flag::END) {
            return Err(out_of_place(header, "a response ends by its outcome"));
        }
        Ok(())
    }

    /// Takes a frame without a message: whether it may come now, and what it means for the request side.
    pub fn handle_bare(&mut self, header: &Header) -> Result<(), ProtocolError> {
        if self.is_made() == matches!(header.frame, FrameType::HalfClose | FrameType::Cancel) {
            return Err(out_of_place(header, "it is the other side's to say"));
        }
        match header.frame {
            FrameType::Cancel | FrameType::Error => {}
            _ if self.partial.is_some() => {
                return Err(out_of_place(header, "the message before it is not complete"));
            }
            FrameType::HalfClose if self.state == State::Received => {
                return Err(out_of_place(header, "its side of the stream is complete"));
            }
            FrameType::HalfClose => self.state = State::Received,
            _ => {}
        }
        Ok(())
    }

    /// Takes a message frame's bytes off the peer's window.
    pub fn charge(&mut self, arrival: &Arrival<'_>) -> Result<(), ProtocolError> {
        let left = self.receive_window;
        let after = left.checked_sub(arrival.cost_bytes());
        self.receive_window =
            after.ok_or_else(|| overrun(arrival, "cost against the stream's window", left))?;
        Ok(())
    }

    /// A message begins that arrives in parts.
    pub fn begin_parts(&mut self, total: u32, then: Then) {
        self.partial = Some(Partial { total, received: 0, then });
        if then == Then::Outcome {
            self.state = State::Sent;
        }
    }

    /// Counts bytes of the message in parts as arrived: the offset of the first, and what the last byte means, if it
    /// has come. `None`: no message is in parts.
    pub fn receive(&mut self, count: u32) -> Option<(u32, Option<Then>)> {
        let partial = self.partial.as_mut()?;
        let offset = partial.received;
        partial.received += count;
        let then = (partial.received == partial.total).then_some(partial.then);
        if then.is_some() {
            self.partial = None;
        }
        Some((offset, then))
    }

    /// The peer's side is complete.
    pub fn end_request(&mut self) {
        if self.state == State::Receiving {
            self.state = State::Received;
        }
    }

    /// The peer lets this side send more.
    pub fn handle_window(&mut self, header: &Header, bytes: u32) -> Result<(), ProtocolError> {
        self.send_window += u64::from(bytes);
        check_window(header, self.send_window)
    }

    /// The peer may send `bytes` more. Returns what it is to be told, if that is worth a frame.
    #[must_use]
    pub fn grant(&mut self, bytes: u32, threshold: u32) -> Option<u32> {
        if matches!(self.state, State::Received | State::Finishing) {
            return None;
        }
        let room = WINDOW_SUM_MAX - self.receive_window - u64::from(self.ungranted);
        self.ungranted += (u64::from(bytes).min(room) as u32).min(Limits::WINDOW_BYTES_MAX - self.ungranted);
        if self.ungranted < threshold {
            return None;
        }
        let told = std::mem::take(&mut self.ungranted);
        self.receive_window += u64::from(told);
        Some(told)
    }

    /// The peer may finish a message of which at most `bytes` have yet to come. Returns what it is to be told for that,
    /// and what of it was granted ahead.
    pub fn make_room(&mut self, bytes: u32) -> Option<(u32, u32)> {
        let bytes = bytes.min(Limits::WINDOW_BYTES_MAX);
        let missing = u64::from(bytes).saturating_sub(self.receive_window) as u32;
        if missing == 0 || matches!(self.state, State::Received | State::Finishing) {
            return None;
        }
        let ahead = missing.saturating_sub(self.ungranted);
        let told = ahead + std::mem::take(&mut self.ungranted);
        self.receive_window += u64::from(told);
        Some((told, ahead))
    }

    /// Whether a message may be sent. If not for a full queue, it is to be told when there is room.
    pub fn may_send(&mut self, queue_bytes_max: u64) -> Result<(), Refused> {
        if self.is_answered() {
            return Err(Refused::Answered);
        }
        if matches!(self.state, State::Sent | State::Finishing) {
            return Err(Refused::OutOfPlace);
        }
        if self.queued_bytes >= queue_bytes_max {
            self.refused = true;
            return Err(Refused::StreamQueueFull { limit: queue_bytes_max });
        }
        Ok(())
    }

    /// Nothing more of the request is sent.
    pub fn complete_request(&mut self) -> Result<(), Refused> {
        if self.state != State::Sending {
            return Err(Refused::OutOfPlace);
        }
        self.state = State::Sent;
        Ok(())
    }

    /// The serving side has said its last. Whether something of the stream still waits.
    pub fn finish(&mut self) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        self.state = State::Finishing;
        self.partial = None;
        true
    }

    /// Whether the serving side may say something on it.
    pub fn serves(&self) -> Result<(), Refused> {
        match self.state {
            State::Receiving | State::Received => Ok(()),
            State::Sending | State::Sent | State::Finishing => Err(Refused::OutOfPlace),
        }
    }

    /// What is told of it when the socket is gone, by the positions both lanes have reached.
    pub fn ended(&self, prompt_taken: u64, bulk_taken: u64) -> Option<Notice> {
        let (stream, tag) = (self.id, self.tag);
        match self.state {
            State::Sending | State::Sent => {
                let execution = self.execution(prompt_taken, bulk_taken);
                Some(Notice::Ended { stream, tag, execution })
            }
            State::Receiving | State::Received => Some(Notice::Orphaned { stream, tag }),
            State::Finishing => None,
        }
    }

    /// Whether it is one a connection can have.
    pub fn is_sound(&self) -> bool {
        self.id.0 != 0
            && self.send_window <= WINDOW_SUM_MAX
            && self.receive_window <= WINDOW_SUM_MAX
            && self.ungranted <= u32::MAX / 2
            && self.partial.is_none_or(|partial| partial.received <= partial.total)
    }

    /// Whether a frame may go into the prompt lane without overtaking this stream's own.
    pub fn is_clear(&self) -> bool {
        self.queue.is_empty() && self.units == 0
    }

    /// Whether the peer has begun to say how the call ended: nothing more of the request is wanted.
    pub fn is_answered(&self) -> bool {
        self.partial.is_some_and(|partial| partial.then == Then::Outcome)
    }

    /// Whether this side opened it, and some of its first message is not in a lane yet.
    pub fn is_unsent(&self) -> bool {
        self.is_made() && self.call_end == CallEnd::Waiting && !self.is_answered()
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
