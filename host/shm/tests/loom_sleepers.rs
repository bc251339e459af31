//! Models of leader and followers where nobody rings: a ring that is full and a deadline that has passed, with the
//! leader asleep and a daemon that says nothing. Loom runs every interleaving of threads; a thread that nobody wakes is
//! a deadlock to it. Sleep without a limit ends only when somebody ends it.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p trunkline-shm --release --test loom_sleepers
//! ```
#![cfg(loom)]

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;
use trunkline_shm::Sleepers;

/// How soon room in the ring is looked for, and how soon deadlines are.
const RETRY_NS: u64 = 1;
const SWEEP_NS: u64 = 50;

const LEADER: usize = 0;
const FOLLOWER: usize = 1;

/// One session of a process: what it waits for, and who sleeps.
#[derive(Default)]
struct World {
    state: Mutex<State>,
    /// The right to drain the completion ring: a lock that is only ever tried.
    seat_taken: AtomicBool,
    /// What ends a sleep. One for all: whoever is woken by it and was not meant sleeps again.
    woken: Condvar,
}

#[derive(Default)]
struct State {
    sleepers: Sleepers<usize>,
    /// Threads woken that have not looked since.
    kicked: [bool; 2],
    /// The doorbell of the completion ring.
    rung: bool,
    /// Answers in the completion ring.
    answers: [bool; 2],
    /// Answers that were booked.
    booked: [bool; 2],
    ring_full: bool,
    /// Somebody waits for room in the submission ring.
    ring_awaited: bool,
    /// A call has a deadline, which has passed.
    overdue: bool,
    submitted: bool,
}

impl State {
    fn due_ns(&self) -> Option<u64> {
        if self.ring_awaited { Some(RETRY_NS) } else { self.overdue.then_some(SWEEP_NS) }
    }

    fn try_submit(&mut self) -> bool {
        self.submitted = !self.ring_full;
        self.ring_awaited = self.ring_full;
        self.submitted
    }

    fn answer(&mut self, who: usize) {
        self.answers[who] = true;
        self.rung = true;
    }

    fn is_due(&self) -> bool {
        self.ring_awaited && !self.ring_full || self.overdue
    }

    /// What a thread does whose sleep had a limit.
    fn tend(&mut self) {
        if self.ring_awaited && !self.ring_full {
            self.ring_awaited = false;
            self.kicked[FOLLOWER] = true;
        }
        if std::mem::take(&mut self.overdue) {
            self.booked[FOLLOWER] = true;
            self.kicked[FOLLOWER] = true;
        }
    }
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Changes something that may end somebody's sleep.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let out = change(&mut state);
        self.woken.notify_all();
        out
    }

    fn kick(&self, who: usize) {
        self.change(|state| state.kicked[who] = true);
    }

    /// Leads or follows until kicked.
    fn drive(&self, me: usize) {
        while !self.lock().kicked[me] {
            if self.take_seat() {
                self.lead(me);
                self.leave_seat();
                self.hand_over();
            } else {
                self.follow(me);
            }
        }
        self.lock().kicked[me] = false;
    }

    fn lead(&self, me: usize) {
        loop {
            self.drain();
            let mut state = self.lock();
            if state.kicked[me] {
                return;
            }
            let due_ns = state.due_ns();
            state.sleepers.leader_sleeps(me, due_ns);
            drop(state);
            self.sleep_leading(me, due_ns);
            if due_ns.is_some() {
                self.change(State::tend);
            }
        }
    }

    fn drain(&self) {
        self.change(|state| {
            state.rung = false;
            for who in [LEADER, FOLLOWER] {
                if std::mem::take(&mut state.answers[who]) {
                    state.booked[who] = true;
                    state.kicked[who] = true;
                }
            }
        });
    }

    fn follow(&self, me: usize) {
        let limit_ns = {
            let mut state = self.lock();
            let due_ns = state.due_ns();
            state.sleepers.follow(me, due_ns)
        };
        if self.take_seat() {
            self.leave_seat();
        } else {
            if !self.sleep_following(me, limit_ns) {
                let leader = {
                    let mut state = self.lock();
                    let due_ns = state.due_ns();
                    state.sleepers.oversleeper(due_ns)
                };
                leader.into_iter().for_each(|leader| self.kick(leader));
            }
        }
        self.lock().sleepers.unfollow(|follower| *follower == me);
    }

    fn hand_over(&self) {
        // SYNC: nothing; what orders this is the lock of the state.
        if !self.seat_taken.load(Ordering::Relaxed) {
            let next = self.lock().sleepers.next_leader();
            next.into_iter().for_each(|next| self.kick(next));
        }
    }

    fn take_seat(&self) -> bool {
        // SYNC: pairs with the store in `leave_seat`.
        self.seat_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn leave_seat(&self) {
        // SYNC: pairs with the exchange in `take_seat`.
        self.seat_taken.store(false, Ordering::Release);
    }

    /// The leader's sleep. With a limit it ends as soon as there is something to be found by the clock: that it may end
    /// earlier, too, changes nothing.
    fn sleep_leading(&self, me: usize, limit_ns: Option<u64>) {
        let mut state = self.lock();
        while !(state.rung || state.kicked[me] || limit_ns.is_some() && state.is_due()) {
            state = self.woken.wait(state).unwrap();
        }
    }

    /// The follower's sleep, which ends at once if it has a limit: so it does at every moment there is. Tells whether
    /// it was woken.
    fn sleep_following(&self, me: usize, limit_ns: Option<u64>) -> bool {
        let mut state = self.lock();
        while !state.kicked[me] && limit_ns.is_none() {
            state = self.woken.wait(state).unwrap();
        }
        state.kicked[me]
    }

    /// A call without a deadline, from its submission to its answer.
    fn wait_for_answer(&self, me: usize) {
        while !self.lock().booked[me] {
            self.drive(me);
        }
        self.hand_over();
    }
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}

/// The daemon takes entries and says nothing about it: whoever waits for room must look by itself, or have the leader
/// look.
#[test]
fn room_in_a_full_ring_is_found_although_nobody_rings() {
    model(|| {
        let world = Arc::new(World::default());
        world.lock().ring_full = true;
        let leading = thread::spawn({
            let world = world.clone();
            move || world.wait_for_answer(LEADER)
        });
        let calling = thread::spawn({
            let world = world.clone();
            move || {
                while !world.change(State::try_submit) {
                    world.drive(FOLLOWER);
                }
                world.wait_for_answer(FOLLOWER);
            }
        });
        world.change(|state| state.ring_full = false);
        let mut state = world.lock();
        while !state.submitted {
            state = world.woken.wait(state).unwrap();
        }
        state.answer(LEADER);
        state.answer(FOLLOWER);
        world.woken.notify_all();
        drop(state);
        leading.join().unwrap();
        calling.join().unwrap();
    });
}

/// The daemon has stopped: the follower's deadline passes, and its call must end although the leader's goes on.
#[test]
fn a_followers_deadline_is_enforced_while_the_daemon_says_nothing() {
    model(|| {
        let world = Arc::new(World::default());
        let leading = thread::spawn({
            let world = world.clone();
            move || world.wait_for_answer(LEADER)
        });
        world.change(|state| state.overdue = true);
        world.wait_for_answer(FOLLOWER);
        // The daemon goes on.
        world.change(|state| state.answer(LEADER));
        leading.join().unwrap();
    });
}
