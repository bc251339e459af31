//! Calls that wait for their turn, and those that must not wait any longer.
//!
//! A queue that does not empty is no buffer but a delay for everybody. So, as Facebook's servers do (Maurer, "Fail at
//! Scale", ACM Queue 13(8), 2015, after Nichols and Jacobson's CoDel, 2012): while some call has found room at once
//! within the last interval, calls may wait that long, and the oldest goes first. Once none has, they may wait no
//! longer than the target, and the newest goes first: the oldest is the one whose caller has most likely given up.
//! (That the queue is empty says nothing by itself: shedding empties it, too.)

use std::collections::VecDeque;
use trunkline_call::Instant;

/// Bounds of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct QueueSettings {
    /// Calls under way at once; more wait.
    pub calls_max: u32,
    /// Calls that wait at once; more are refused.
    pub waiting_max: u32,
    /// Time a call may wait while none finds room at once.
    pub target_ns: u64,
    /// Time it may wait otherwise, and the time without room that makes the difference.
    pub interval_ns: u64,
}

/// The calls that wait.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Queue {
    pub settings: QueueSettings,
    /// Urgent ones, and the others; oldest first.
    classes: [VecDeque<Waiting>; 2],
    /// When a call last found room at once.
    idle_at: Instant,
    /// Urgent ones served in a row while others waited.
    in_a_row: u32,
}

#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Waiting {
    token: u64,
    since: Instant,
}

/// What becomes of a call that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Served(u64),
    Shed(u64),
}

/// Urgent calls served before one of the others is, if any wait: they are late then, but never starve.
const IN_A_ROW_MAX: u32 = 16;

impl Queue {
    /// Whether one more may wait, beside so many on other shards.
    pub fn has_room(&self, elsewhere: usize) -> bool {
        self.len().saturating_add(elsewhere) < self.settings.waiting_max as usize
    }

    /// A call found room without waiting.
    pub fn note_idle(&mut self, now: Instant) {
        self.idle_at = now;
    }

    /// A call waits from now on.
    pub fn push(&mut self, now: Instant, token: u64, urgent: bool) {
        self.classes[usize::from(!urgent)].push_back(Waiting { token, since: now });
    }

    /// Until when each call that waits may do so, by its token.
    pub fn ends(&self) -> impl Iterator<Item = (u64, Instant)> {
        let limit = self.settings.interval_ns.saturating_add(1);
        self.classes.iter().flatten().map(move |waiting| (waiting.token, waiting.since.plus_ns(limit)))
    }

    /// The next call, for which there is room now, or one that must go.
    pub fn pop(&mut self, now: Instant) -> Option<Turn> {
        let overloaded = self.is_overloaded(now);
        let limit = if overloaded { self.settings.target_ns } else { self.settings.interval_ns };
        for class in &mut self.classes {
            if class.front().is_some_and(|oldest| now.since_ns(oldest.since) > limit) {
                return class.pop_front().map(|late| Turn::Shed(late.token));
            }
        }
        let [urgent, others] = &mut self.classes;
        let skips = self.in_a_row >= IN_A_ROW_MAX && !others.is_empty();
        let takes_urgent = !urgent.is_empty() && !skips;
        self.in_a_row = if takes_urgent && !others.is_empty() { self.in_a_row + 1 } else { 0 };
        let class = if takes_urgent { urgent } else { others };
        let next = if overloaded { class.pop_back() } else { class.pop_front() };
        next.map(|next| Turn::Served(next.token))
    }

    /// A call waits no longer. Whether it did.
    pub fn remove(&mut self, token: u64) -> bool {
        let before = self.len();
        self.classes.iter_mut().for_each(|class| class.retain(|waiting| waiting.token != token));
        self.len() < before
    }

    pub fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }

    fn is_overloaded(&self, now: Instant) -> bool {
        now.since_ns(self.idle_at) > self.settings.interval_ns
    }
}
