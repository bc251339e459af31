//! What a session remembers of one call, made or delivered.

use std::collections::VecDeque;
use std::task::Waker;
use trunkline_call::entry::{Finish, Payload, Span};
use trunkline_call::{Code, Metadata, Step};

/// A call between its first entry and the moment nobody here asks for it any more.
#[derive(Debug)]
pub(crate) struct CallState {
    /// Messages that arrived and were not taken. Bounded by the stream window, which the daemon enforces: their blocks
    /// are what the window counts.
    pub(crate) incoming: VecDeque<Payload>,
    /// No message follows those in `incoming`.
    pub(crate) incoming_ended: bool,
    /// Response headers that arrived and were not taken.
    pub(crate) headers: Option<Span>,
    /// What the handler of a delivered call wants sent with its end.
    pub(crate) trailers: Metadata,
    /// How it ended, once it has.
    pub(crate) end: Option<End>,
    /// Bytes that may still be sent on this stream; one message may take it below zero.
    pub(crate) credit_bytes: i64,
    /// It may send by its window, and waits for other streams to be read.
    pub(crate) waits_for_share: bool,
    /// Who waits for something to arrive.
    pub(crate) receiver: Parked,
    /// Who waits for credit.
    pub(crate) sender: Parked,
    /// Who wants to know when the call ends (a delivered one: when it is no longer wanted), besides those who send and
    /// receive.
    pub(crate) watcher: Parked,
    /// Number of the call's first entry among all entries of the session: tells whether the daemon has taken it.
    pub(crate) sequence: u32,
    /// What went along it last.
    pub(crate) last_step: Option<Step>,
    /// Calls made by this call's handler.
    pub(crate) children: u32,
    /// Nobody reads what arrives: its blocks are returned at once.
    pub(crate) discards: bool,
}

/// How a call ended, as far as this side learned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// A call we made was answered.
    Finished(Finish),
    /// A call delivered to us is no longer wanted.
    Cancelled(Code),
    /// The session ended first. For a call we made: whether the daemon may have taken its first entry.
    SessionLost {
        /// Whether it may have run.
        taken: bool,
    },
    /// The deadline passed and the daemon did not say so in time.
    Overdue,
}

/// Who ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// The daemon, by its word or by closing the control socket: it reads the ring no more.
    Daemon,
    /// This side: until the daemon sees the socket closed, it takes what lies in the ring.
    Us,
}

/// A task that waits for a call, if one does.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    waker: Option<Waker>,
    /// The task is polled by a thread that does not drain this session: somebody else must.
    foreign: bool,
}

/// Who asks, and whether its thread drains this session itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) waker: &'a Waker,
    pub(crate) foreign: bool,
}

impl CallState {
    pub(crate) fn new(window_bytes: u32, sequence: u32) -> Self {
        Self {
            incoming: VecDeque::new(),
            incoming_ended: false,
            headers: None,
            trailers: Metadata::new(),
            end: None,
            credit_bytes: window_bytes.into(),
            waits_for_share: false,
            receiver: Parked::default(),
            sender: Parked::default(),
            watcher: Parked::default(),
            sequence,
            last_step: None,
            children: 0,
            discards: false,
        }
    }
}

impl CallState {
    /// What has been sent of a stream with this window and not been taken.
    #[inline]
    pub(crate) fn under_way_bytes(&self, window_bytes: u32) -> u64 {
        (i64::from(window_bytes) - self.credit_bytes).max(0) as u64
    }
}

impl Parked {
    /// Waits, instead of whoever waited before. `foreign` counts the foreign waiters of the session.
    pub(crate) fn park(&mut self, asker: Asker<'_>, foreign: &mut u32) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(asker.waker),
            none => *none = Some(asker.waker.clone()),
        }
        *foreign = *foreign + u32::from(asker.foreign) - u32::from(self.foreign);
        self.foreign = asker.foreign;
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.waker.is_some()
    }

    /// Takes the waiter out, to be woken or because it no longer waits.
    pub(crate) fn unpark(&mut self, foreign: &mut u32) -> Option<Waker> {
        *foreign -= u32::from(std::mem::take(&mut self.foreign));
        self.waker.take()
    }
}
