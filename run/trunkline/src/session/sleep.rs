//! Who drains the completion ring when nobody does, and what a thread does before and after it sleeps.

use super::books::Books;
use super::effects::Effects;
use super::queues::Resource;
use crate::kick::Kick;
use std::sync::Arc;
use trunkline_call::Instant;

/// How often a thread that waits for space in the ring looks: the daemon does not tell when it takes entries, and a
/// full ring of 512 takes it some 50 µs.
const RING_RETRY_NS: u64 = 100_000;

/// How often deadlines are compared with the clock (the daemon enforces them; this is for a daemon that hangs), and
/// resources that are there with those who wait for them: whoever was woken may be a task that nobody polls any more.
const SWEEP_NS: u64 = 50_000_000;

/// Who is to drain the ring next.
#[derive(Debug)]
pub(super) enum Driver {
    /// This thread, which waits for its kick; it is no longer in the books.
    Follower(Arc<Kick>),
    /// The listener, when the doorbell rings.
    Listener,
    /// Nobody waits.
    Nobody,
}

impl Books {
    /// Who is to drain the ring when nobody does: a follower if there is one, since it cannot go on otherwise.
    pub(super) fn next_driver(&mut self) -> Driver {
        match self.sleepers.next_leader() {
            Some(kick) => Driver::Follower(kick),
            None if self.needs_listener() => Driver::Listener,
            None => Driver::Nobody,
        }
    }

    /// What the leader has to know and do that is about to sleep, and that `kick` wakes: how long it may.
    pub(super) fn before_leader_sleeps(&mut self, kick: &Arc<Kick>, effects: &mut Effects) -> Option<u64> {
        let timeout_ns = self.before_sleep(effects);
        self.sleepers.leader_sleeps(Arc::clone(kick), timeout_ns);
        timeout_ns
    }

    /// As [`Books::before_leader_sleeps`], for the listener.
    pub(super) fn before_listener_sleeps(&mut self, effects: &mut Effects) -> Option<u64> {
        let timeout_ns = self.before_sleep(effects);
        self.sleepers.listener_sleeps(timeout_ns);
        timeout_ns
    }

    /// A thread is about to follow. How long it may sleep before it calls [`Books::oversleeper`].
    pub(super) fn before_follower_sleeps(&mut self, kick: &Arc<Kick>) -> Option<u64> {
        let due_ns = self.due_ns();
        self.sleepers.follow(Arc::clone(kick), due_ns)
    }

    /// The leader, if it sleeps and does not know that something has to be tried again or compared with the clock.
    pub(super) fn oversleeper(&mut self) -> Option<Arc<Kick>> {
        let due_ns = self.due_ns();
        self.sleepers.oversleeper(due_ns)
    }

    /// Whether something has to be tried again or compared with the clock, and the listener sleeps without knowing.
    pub(super) fn must_wake_listener(&self) -> bool {
        self.sleepers.listener_oversleeps(self.due_ns())
    }

    /// Whether nobody but the listener can be relied on to drain the ring and to empty the backlog.
    pub(super) fn needs_listener(&self) -> bool {
        self.calls.foreign() > 0
            || self.queues.foreign() > 0
            || self.outbox.has_backlog()
            || self.cancelled_at.is_some()
    }

    /// The last cancellation, if the daemon has taken it: whatever it says of those calls is in the ring by now.
    pub(super) fn cancellations_taken(&mut self) -> Option<u32> {
        let at = self.cancelled_at?;
        self.outbox.taken().is_none_or(|taken| taken.wrapping_sub(at) as i32 >= 0).then_some(at)
    }

    /// The ring was empty after the daemon had taken this cancellation. There may be a later one by now.
    pub(super) fn cancellations_are_over(&mut self, at: u32) {
        self.cancelled_at = self.cancelled_at.filter(|last| *last != at);
    }

    /// From now on nobody is awake who would say loudly, before sleeping, what was said quietly.
    pub(super) fn leave_to_sleeper(&mut self, effects: &mut Effects) {
        self.outbox.leave_to_sleeper(effects);
    }

    /// What the thread that has drained does before it lets go of the books.
    pub(super) fn after_drain(&mut self, effects: &mut Effects) {
        self.outbox.flush(effects);
        self.serve_ring_space(effects);
    }

    /// What a thread does that woke up without an entry: the ring may have space again, somebody woken for a resource
    /// may not have taken it, a deadline may have passed.
    pub(super) fn after_sleep(&mut self, now: Instant, effects: &mut Effects) {
        self.outbox.flush(effects);
        self.serve_ring_space(effects);
        if self.calls.has_space() {
            self.made_available(Resource::Calls, effects);
        }
        self.made_available(Resource::Heap, effects);
        for late in self.calls.expire(now, effects) {
            self.cancel(late, effects);
        }
    }

    /// What a thread that is about to sleep has to know and do.
    fn before_sleep(&mut self, effects: &mut Effects) -> Option<u64> {
        self.outbox.flush(effects);
        self.leave_to_sleeper(effects);
        self.due_ns()
    }

    /// How soon somebody has to look at what nobody rings for: space in the submission ring, deadlines, turns not
    /// taken.
    fn due_ns(&self) -> Option<u64> {
        if self.outbox.has_backlog() || self.queues.is_awaited(Resource::Ring) {
            return Some(RING_RETRY_NS);
        }
        let turns = self.queues.is_awaited(Resource::Heap) || self.queues.is_awaited(Resource::Calls);
        let unheard = self.calls.has_deadlines() || self.cancelled_at.is_some();
        (turns || unheard).then_some(SWEEP_NS)
    }

    /// Lets the first who waits for space in the submission ring try again, if there is some.
    fn serve_ring_space(&mut self, effects: &mut Effects) {
        if self.queues.is_awaited(Resource::Ring) && self.outbox.has_space(effects) {
            self.made_available(Resource::Ring, effects);
        }
    }
}
