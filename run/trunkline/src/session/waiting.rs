//! Who drains the completion ring, and how a thread waits (leader and followers).
//!
//! A thread that waits for a call takes the *completions*, if they are free: it becomes the leader. It drains the ring,
//! books completions for everybody, wakes those who wait elsewhere, and between looks waits as the shared policy says:
//! look, yield, sleep on the doorbell. The others are followers: each sleeps on its own kick. When the leader has what
//! it wanted it hands over: to one follower, or, if tasks of other executors wait, to the listener (the reactor of the
//! hub): it leaves the ring armed, so that the next completion rings the doorbell the listener watches.
//!
//! # Why no wake-up is lost
//! * A follower enters its name in the books and then tries the completions again. A leader frees them and then looks
//!   into the books. Whoever comes second sees the other: either the follower gets them or the leader finds the name.
//! * The same holds for a foreign waiter, who is counted in the books before [`Session::hand_over`] tries them, and for
//!   the listener, who clears `attended`, looks into the books and then tries them. The lock of the books is what
//!   orders them all: a failed `try_lock` alone orders nothing. They are therefore left to the listener, armed, under
//!   that lock: a listener that answers a ring and finds them taken goes back to sleep, trusting their holder.
//! * A thread that followed hands over when it leaves, whatever became of its own call, because it may have been the
//!   follower that was chosen.
//! * What nobody rings for (space in the submission ring, a deadline a daemon that hangs does not enforce) is looked at
//!   by whoever sleeps with a limit: [`Sleepers`](trunkline_shm::Sleepers) decides who that is, and is modelled.
//! * What is published quietly (see [`super::Books::release`]) is rung for by whoever goes to sleep next, under the
//!   lock of the books, and from then until somebody drains nothing is published quietly.
//! * A listener is woken by each ring, not by what lies in the doorbell, which it may have to leave to who holds the
//!   completions. A full doorbell takes no ring, so whoever leaves the ring to the listener empties the doorbell first.
//! * Between ring and sleep, [`Consumer::arm`] looks once more; between kick and sleep, [`Kick::fall_asleep`] does.

use super::books::Books;
use super::completions::Completions;
use super::effects::Effects;
use super::session::Session;
use super::sleep::Driver;
use super::state::Asker;
use crate::clock;
use crate::context;
use crate::kick::Kick;
use parking_lot::MutexGuard;
use rustix::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use trunkline_call::Instant;
use trunkline_shm::{Decision, Waiter, sleep_on};

impl Session {
    /// Asks the books on behalf of a task. If it has to wait, sees to it that somebody drains the ring meanwhile: the
    /// task's own thread, if that is driving it, else the listener. `Ready(None)` as [`Session::with`].
    pub(crate) fn poll_with<T>(
        self: &Arc<Self>,
        cx: &Context<'_>,
        ask: impl FnOnce(&mut Books, Asker<'_>, &mut Effects) -> Poll<T>,
    ) -> Poll<Option<T>> {
        let asker = context::asker(self, cx);
        let asked = self.with(|books, effects| {
            let polled = ask(books, asker, effects);
            if asker.foreign && !self.is_attended() {
                effects.listen |= books.must_wake_listener();
            }
            polled
        });
        match asked {
            None => Poll::Ready(None),
            Some(Poll::Ready(out)) => Poll::Ready(Some(out)),
            Some(Poll::Pending) => {
                if asker.foreign {
                    self.rely_on_listener();
                } else {
                    context::aim(self);
                }
                Poll::Pending
            }
        }
    }

    /// Drains the ring, or waits while another thread does, until `kick` is set. Returns early when the session is
    /// over. Tells whether this thread followed: then it may have been chosen to lead, and calls
    /// [`Session::hand_over`] when it does not come back.
    pub(crate) fn drive(&self, kick: &Arc<Kick>) -> bool {
        let mut followed = false;
        while !kick.is_set() && !self.is_lost() {
            match self.completions.try_lock() {
                Some(mut completions) => {
                    self.lead(&mut completions, kick);
                    drop(completions);
                    self.hand_over();
                }
                None => {
                    self.follow(kick);
                    followed = true;
                }
            }
        }
        followed
    }

    /// Books whatever waits in the ring, if nobody else is at it. Tells whether there was anything.
    pub(crate) fn look(&self) -> bool {
        self.look_and(|_| ())
    }

    /// The same for a listener, whose waits the calls of this session pay for.
    pub(crate) fn look_for(&self, waiter: &mut Waiter) -> bool {
        self.look_and(|completions| waiter.credit(std::mem::take(&mut completions.quick_steps)))
    }

    fn look_and(&self, then: impl FnOnce(&mut Completions)) -> bool {
        let Some(mut completions) = self.completions.try_lock() else { return false };
        completions.ring.disarm();
        let found = self.drain(&mut completions);
        then(&mut completions);
        drop(completions);
        self.hand_over();
        found
    }

    /// For a listener that is about to sleep: sees to it that the next completion rings the doorbell. `None`: something
    /// came meanwhile, look again. Otherwise how long it may sleep at most on behalf of this session.
    pub(crate) fn arm_for_listener(&self) -> Option<Option<u64>> {
        // Before the completions are tried: whoever holds them looks into the books after letting go of them, and only
        // this order makes sure that it finds `attended` cleared if we find them taken.
        let before = |books: &mut Books, effects: &mut Effects| {
            (books.before_listener_sleeps(effects), books.cancellations_taken())
        };
        let (timeout_ns, cancelled) = self.with(before).unwrap_or_default();
        let Some(mut completions) = self.completions.try_lock() else {
            return Some(timeout_ns); // whoever holds them drains, and arms when it leaves
        };
        // A ring that lies is found out by `drain`; here it only must not be slept on.
        let quiet = completions.arm_for_edges(&self.doorbell).unwrap_or(false);
        if !quiet {
            self.drain(&mut completions);
        } else if let Some(at) = cancelled {
            self.with(|books, _| books.cancellations_are_over(at));
        }
        drop(completions);
        self.hand_over();
        quiet.then_some(timeout_ns)
    }

    /// For a listener that slept: gives waiters for space another try and ends what is overdue.
    pub(crate) fn tend(&self, now: Instant) {
        self.with(|books, effects| books.after_sleep(now, effects));
    }

    /// Whether tasks wait here whose threads do not drain this session, or something is left to be submitted.
    pub(crate) fn needs_listener(&self) -> bool {
        self.with(|books, _| books.needs_listener()).unwrap_or(false)
    }

    /// Whether the listener is awake.
    pub(super) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Acquire)
    }

    /// The listener is awake and looks at this session, or is about to sleep and arms it.
    pub(crate) fn set_attended(&self, attended: bool) {
        self.attended.store(attended, Ordering::Release);
    }

    /// Marks the doorbell as watched by a listener, or not. Tells whether it was.
    pub(crate) fn set_watched(&self, watched: bool) -> bool {
        self.watched.swap(watched, Ordering::AcqRel)
    }

    /// The leader's loop.
    fn lead(&self, completions: &mut Completions, kick: &Arc<Kick>) {
        completions.ring.disarm();
        let mut waiting = false;
        loop {
            if self.drain(completions) && std::mem::take(&mut waiting) {
                completions.waiter.arrived(clock::now().0);
            }
            if kick.is_set() || self.is_lost() {
                return;
            }
            let now = clock::now();
            if !std::mem::replace(&mut waiting, true) {
                let quick_steps = std::mem::take(&mut completions.quick_steps);
                completions.waiter.credit(quick_steps);
                completions.waiter.begin(now.0);
            }
            match completions.waiter.decide(now.0) {
                Decision::Spin => std::hint::spin_loop(),
                Decision::Yield => rustix::thread::sched_yield(),
                Decision::Block => self.sleep(completions, kick),
            }
        }
    }

    /// Sleeps until rung, kicked, or something is to be tried again.
    fn sleep(&self, completions: &mut Completions, kick: &Arc<Kick>) {
        let timeout_ns = self.with(|books, effects| books.before_leader_sleeps(kick, effects)).flatten();
        if !completions.ring.arm().unwrap_or(false) {
            return; // entries came, or the ring lies: `drain` tells which
        }
        if kick.fall_asleep() {
            let woken = sleep_on(&[self.doorbell.as_fd(), kick.as_fd()], timeout_ns).unwrap_or(1);
            kick.wake_up();
            if woken & 1 != 0 {
                let _ = self.doorbell.quiet();
                completions.waiter.woken(completions.ring.rung_ns_ago(clock::now().0));
            }
            if timeout_ns.is_some() {
                self.take_and_tend(completions, clock::now());
            }
        }
        completions.ring.disarm();
    }

    /// What has come counts before the clock does: this thread may have been away for longer than it slept.
    pub(super) fn take_and_tend(&self, completions: &mut Completions, now: Instant) {
        self.drain(completions);
        self.tend(now);
    }

    /// Waits for a kick while another thread leads. If that one sleeps and does not know of something that this one
    /// waits for and nobody rings for, it is woken when the time for it has come.
    fn follow(&self, kick: &Arc<Kick>) {
        let timeout_ns = self.with(|books, _| books.before_follower_sleeps(kick)).flatten();
        if self.completions.try_lock().is_none() {
            kick.sleep(timeout_ns);
        }
        let leader = self.with(|books, _| {
            books.sleepers.unfollow(|follower| Arc::ptr_eq(follower, kick));
            if timeout_ns.is_some() && !kick.is_set() { books.oversleeper() } else { None }
        });
        if let Some(leader) = leader.flatten() {
            leader.kick();
        }
    }

    /// Sees to it that somebody drains as long as somebody waits. Called by whoever let go of the completions, was
    /// chosen to take them and goes elsewhere, or came to wait without draining. If they are taken, their holder will
    /// call this.
    pub(crate) fn hand_over(&self) {
        while !self.completions.is_locked() {
            match self.with(|books, _| books.next_driver()) {
                None | Some(Driver::Nobody) => return,
                Some(Driver::Follower(kick)) => return kick.kick(),
                // The listener is awake, and arms before it sleeps.
                Some(Driver::Listener) if self.is_attended() => return,
                Some(Driver::Listener) => {
                    let Some(completions) = self.completions.try_lock() else { return };
                    let Some(mut completions) = self.leave_to_listener(completions) else { return };
                    self.drain(&mut completions);
                }
            }
        }
    }

    /// Arms the ring and frees the completions, unless there is something to drain or a follower to lead: then they
    /// come back. All of it under the lock of the books. Whoever found the completions taken was in the books before
    /// (then what made it come is seen here) or comes to them later (then the completions are free): a ring that is
    /// answered by a listener while they are taken here would otherwise be answered by nobody.
    pub(super) fn leave_to_listener<'a>(
        &self,
        mut completions: MutexGuard<'a, Completions>,
    ) -> Option<MutexGuard<'a, Completions>> {
        self.with(|books, effects| {
            // A ring that lies is found out by whoever drains next.
            if books.sleepers.has_followers() || !completions.arm_for_edges(&self.doorbell).unwrap_or(true) {
                return Some(completions);
            }
            books.leave_to_sleeper(effects);
            drop(completions);
            None
        })
        .flatten()
    }

    /// Books everything in the ring. Tells whether there was anything.
    fn drain(&self, completions: &mut Completions) -> bool {
        let Completions { ring, waiter, quick_steps, effects } = completions;
        match ring.ready() {
            Ok(0) => return false,
            Ok(ready) => {
                let now = clock::now();
                let mut books = self.books.lock();
                books.outbox.drainer_is_awake();
                // One ring's worth at most, so that a daemon that never pauses cannot keep the books locked.
                for _ in 0..ready {
                    match ring.pop() {
                        Ok(Some(entry)) => books.complete(&entry, now, effects),
                        Ok(None) => break,
                        Err(error) => effects.note_fault(&error),
                    }
                }
                books.after_drain(effects);
                let quick = books.calls.take_quick_steps(waiter.step_ns_max());
                *quick_steps = quick_steps.saturating_add(quick);
            }
            Err(error) => effects.note_fault(&error),
        }
        self.settle(effects);
        true
    }

    /// A task waits here whose thread does not drain.
    fn rely_on_listener(&self) {
        self.hand_over();
        if !self.set_watched(true) {
            self.call_listener();
        }
    }
}
