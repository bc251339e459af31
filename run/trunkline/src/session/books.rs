//! The books of a session: what was submitted, which calls are open, who waits for what.
//!
//! One lock guards them ([`super::Session`] holds it). Nothing here blocks, calls a waker or makes a system call:
//! what is to happen after the lock is released is noted in [`Effects`].

use super::heaps::Held;
use super::ids::IdMap;
use super::room::{Room, RoomQueue, Ticket};
use super::state::{Asker, CallState, End};
use super::submit::returned;
use crate::kick::Kick;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};
use trunkline_call::entry::{Call, Entry};
use trunkline_call::{CallId, Instant, RouteIndex, Steps};
use trunkline_shm::{Heap, Producer, Sleepers};

/// How often a thread that waits for room in the ring looks: the daemon does not tell when it takes entries, and a
/// full ring of 512 takes it some 50 µs.
const RING_RETRY_NS: u64 = 100_000;

/// How often deadlines are compared with the clock (the daemon enforces them; this is for a daemon that hangs), and
/// room that is there with those who wait for it: whoever was woken for it may be a task that nobody polls any more.
const SWEEP_NS: u64 = 50_000_000;

/// How late the daemon may be with the end of a call whose deadline has passed.
const OVERDUE_NS: u64 = 20_000_000;

/// Everything about a session that more than one thread changes.
#[derive(Debug)]
pub(crate) struct Books {
    /// The submission ring.
    pub(super) submissions: Producer,
    /// Entries that must not wait for anybody (returned blocks, cancellations, answers) and found the ring full.
    /// Bounded by the blocks and calls they are about.
    pub(super) backlog: VecDeque<Entry>,
    /// Entries ever staged, modulo 2^32.
    pub(super) staged: u32,
    /// What was published since the daemon was last rung or seen awake.
    pub(super) quiet: Quiet,
    /// The send heap.
    pub(super) heap: Heap,
    pub(super) limits: Limits,
    /// Receive blocks this side holds, by heap.
    pub(super) held: Held,
    pub(super) calls: IdMap<CallId, CallState>,
    /// How soon they take their steps.
    pub(super) steps: Steps,
    pub(super) next_call: u64,
    /// Calls made whose end was not released.
    pub(super) in_flight: u32,
    /// Deadlines among the calls made: 0 spares the sweep.
    pub(super) with_deadline: IdMap<CallId, Instant>,
    /// Delivered calls no worker has taken.
    pub(super) inbox: VecDeque<Call>,
    /// Delivered calls whose handler is to be dropped.
    pub(super) dismissed: Vec<CallId>,
    /// Routes of the methods bound so far, by binding.
    pub(super) routes: IdMap<BindingId, Arc<[RouteIndex]>>,
    pub(super) rooms: Rooms,
    /// Threads that wait for calls of this session, and who of them and the listener sleeps for how long.
    pub(super) sleepers: Sleepers<Arc<Kick>>,
    /// Waiting tasks whose threads do not drain this session.
    pub(super) foreign: u32,
    /// The last cancellation of a call we made, as a count of entries staged, while the daemon may have said something
    /// of that call that nobody waits for: its blocks are to go back all the same.
    pub(super) cancelled_at: Option<u32>,
    /// Whoever drains the ring sleeps: nobody will look at what was published quietly before something else happens.
    pub(super) asleep: bool,
    pub(super) phase: Phase,
    /// The daemon has said that no call is left here and none will come.
    pub(super) drained: bool,
}

/// What is to be done once the books are closed.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Ring the daemon's doorbell.
    pub(crate) ring: bool,
    /// Wake these tasks.
    pub(crate) wakes: Vec<Waker>,
    /// Wake the worker whose session this is.
    pub(crate) worker: bool,
    /// Wake the keeper, and have it watch this session.
    pub(crate) keeper: bool,
    /// The daemon is leaving: no new calls here.
    pub(crate) closed: bool,
    /// A large block of the send heap is free: its memory may go back when nobody has used it for a while.
    pub(crate) trim: bool,
    /// End the session: the daemon broke the protocol.
    pub(crate) fault: Option<String>,
}

/// Names a service called through one target, in every session of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BindingId(pub(crate) u64);

/// What the daemon allowed at attach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) calls_max: u32,
    pub(crate) window_bytes: u32,
    /// Bytes of the receive heap that messages of the usual sizes share.
    pub(crate) usual_bytes: u64,
    /// The metadata of delivered calls says who makes them.
    pub(crate) tells_callers: bool,
}

/// Entries published without ringing, and what they concern.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    pub(super) entries: u32,
    pub(super) bytes: u64,
    /// Bytes of receive blocks this side holds.
    pub(super) held_bytes: u64,
}

/// The queues for room, by what there is no room in.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    ring: RoomQueue,
    heap: RoomQueue,
    calls: RoomQueue,
}

/// Who is to drain the ring next.
#[derive(Debug)]
pub(super) enum Driver {
    /// This thread, which waits for its kick; it is no longer in the books.
    Follower(Arc<Kick>),
    /// The keeper, when the doorbell rings.
    Listener,
    /// Nobody waits.
    Nobody,
}

/// What a worker is to do.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Calls to handle.
    pub(crate) calls: VecDeque<Call>,
    /// Calls whose handlers are to be dropped.
    pub(crate) dismissed: Vec<CallId>,
}

/// A place in the queue for one kind of room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) room: Room,
    pub(crate) ticket: Ticket,
    /// For [`Room::Heap`]: the block that was not to be had.
    pub(crate) wanted_bytes: u32,
}

/// How far a session's life has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// New calls may be made.
    Open,
    /// The daemon is leaving: calls in flight go on, new ones need another session.
    Leaving,
    /// Over, with the reason.
    Lost(Arc<str>),
}

impl Books {
    pub(super) fn new(submissions: Producer, heap: Heap, limits: Limits) -> Self {
        Self {
            submissions,
            backlog: VecDeque::new(),
            staged: 0,
            quiet: Quiet::default(),
            heap,
            limits,
            held: Held::default(),
            calls: IdMap::default(),
            steps: Steps::default(),
            next_call: 0,
            in_flight: 0,
            with_deadline: IdMap::default(),
            inbox: VecDeque::new(),
            dismissed: Vec::new(),
            routes: IdMap::default(),
            rooms: Rooms::default(),
            sleepers: Sleepers::default(),
            foreign: 0,
            cancelled_at: None,
            asleep: false,
            phase: Phase::Open,
            drained: false,
        }
    }

    /// The state of a call, while somebody here asks for it.
    pub(crate) fn call(&mut self, call: CallId) -> Option<&mut CallState> {
        self.calls.get_mut(&call)
    }

    /// Parks the asker until something arrives for the call.
    pub(crate) fn wait_to_receive(&mut self, call: CallId, asker: Asker<'_>) {
        if let Some(state) = self.calls.get_mut(&call) {
            state.receiver.park(asker, &mut self.foreign);
        }
    }

    /// Parks the asker until the call has credit, or has ended.
    pub(crate) fn wait_for_credit(&mut self, call: CallId, asker: Asker<'_>) {
        if let Some(state) = self.calls.get_mut(&call) {
            state.sender.park(asker, &mut self.foreign);
        }
    }

    /// Whoever waited for credit, or for the call's end while it waited for room, waits no longer.
    pub(crate) fn stop_waiting_for_credit(&mut self, call: CallId) {
        if let Some(state) = self.calls.get_mut(&call) {
            drop(state.sender.unpark(&mut self.foreign));
        }
    }

    /// Whether the call is known and has not ended.
    pub(crate) fn is_open(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|state| state.end.is_none())
    }

    /// Wakes whoever waits for the call, in either direction, or for its end.
    pub(super) fn wake_both(&mut self, call: CallId, effects: &mut Effects) {
        if let Some(state) = self.calls.get_mut(&call) {
            effects.wakes.extend(state.receiver.unpark(&mut self.foreign));
            effects.wakes.extend(state.sender.unpark(&mut self.foreign));
            effects.wakes.extend(state.watcher.take());
        }
    }

    /// Forgets a call: returns what arrived for it and was not taken, and wakes whoever else waits for it, who finds it
    /// gone. Tells how it stood.
    pub(crate) fn forget(&mut self, call: CallId, effects: &mut Effects) -> Option<CallState> {
        self.wake_both(call, effects);
        let mut state = self.calls.remove(&call)?;
        for payload in state.incoming.drain(..) {
            self.release(returned(call, payload.block()), effects);
        }
        if let Some(headers) = state.headers.take() {
            self.release(returned(call, headers), effects);
        }
        if !self.with_deadline.is_empty() {
            self.with_deadline.remove(&call);
        }
        Some(state)
    }

    /// A place in the queue for room, to wait in with [`Books::poll_room`].
    pub(crate) fn join(&mut self, room: Room) -> Ticket {
        self.rooms.of(room).join()
    }

    /// Waits until it is this place's turn to try again. The first poll of a wait is content if there is room and
    /// nobody waits before it.
    pub(crate) fn poll_room(
        &mut self,
        place: Place,
        first: bool,
        asker: Asker<'_>,
        effects: &mut Effects,
    ) -> Poll<()> {
        let Place { room, ticket, wanted_bytes } = place;
        let over = matches!(self.phase, Phase::Lost(_));
        let served = match first {
            true => !self.rooms.of(room).is_behind(ticket) && self.has_room(room, wanted_bytes, effects),
            false => !self.rooms.of(room).is_parked(ticket),
        };
        if served || over {
            return Poll::Ready(());
        }
        self.rooms.of(room).park(ticket, asker, &mut self.foreign);
        Poll::Pending
    }

    /// Gives a place up. If it had its turn, the turn passes on.
    pub(crate) fn leave_room(&mut self, place: Place, effects: &mut Effects) {
        if !self.rooms.of(place.room).leave(place.ticket, &mut self.foreign) {
            self.room_made(place.room, effects);
        }
    }

    /// Whether somebody waits for room already, so that a newcomer must not barge in.
    pub(crate) fn is_awaited(&self, room: Room) -> bool {
        match room {
            Room::Ring => !self.rooms.ring.is_empty(),
            Room::Heap => !self.rooms.heap.is_empty(),
            Room::Calls => !self.rooms.calls.is_empty(),
        }
    }

    /// Wakes the first who waits for this kind of room.
    pub(crate) fn room_made(&mut self, room: Room, effects: &mut Effects) {
        effects.wakes.extend(self.rooms.of(room).next(&mut self.foreign));
    }

    pub(super) fn has_room(&mut self, room: Room, wanted_bytes: u32, effects: &mut Effects) -> bool {
        match room {
            Room::Ring => self.ring_has_room(effects),
            Room::Heap => self.heap.largest_free() >= wanted_bytes,
            Room::Calls => self.in_flight < self.limits.calls_max,
        }
    }

    pub(crate) fn has_routes(&self, binding: BindingId) -> bool {
        self.routes.contains_key(&binding)
    }

    /// From here on, methods of this binding can be called.
    pub(crate) fn set_routes(&mut self, binding: BindingId, routes: Arc<[RouteIndex]>) {
        self.routes.insert(binding, routes);
    }

    pub(super) fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Who is to drain the ring when nobody does: a follower if there is one, since it cannot go on otherwise.
    pub(super) fn next_driver(&mut self) -> Driver {
        match self.sleepers.next_leader() {
            Some(kick) => Driver::Follower(kick),
            None if self.needs_listener() => Driver::Listener,
            None => Driver::Nobody,
        }
    }

    /// Gives the worker whose session this is what there is to do, for the empty `work` of its last turn.
    pub(crate) fn take_work(&mut self, work: &mut Work) {
        std::mem::swap(&mut self.inbox, &mut work.calls);
        std::mem::swap(&mut self.dismissed, &mut work.dismissed);
    }

    /// Whether the daemon has taken all we said, and every delivered call was answered. After `Drain` more may be on
    /// their way all the same, until [`Books::has_drained`].
    pub(crate) fn is_served_out(&mut self) -> bool {
        self.inbox.is_empty() && self.is_taken() && !self.calls.keys().any(|call| call.is_delivered())
    }

    /// Whether the daemon has answered `Drain`.
    pub(crate) fn has_drained(&self) -> bool {
        self.drained
    }

    /// Whether the daemon has taken everything said to it.
    pub(crate) fn is_taken(&mut self) -> bool {
        self.backlog.is_empty()
            && self.submissions.room().is_ok_and(|room| room == self.submissions.capacity())
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
        self.foreign > 0 || !self.backlog.is_empty() || self.cancelled_at.is_some()
    }

    /// The last cancellation, if the daemon has taken it: whatever it says of those calls is in the ring by now.
    pub(super) fn cancellations_taken(&mut self) -> Option<u32> {
        let at = self.cancelled_at?;
        self.taken_by_daemon().is_none_or(|taken| taken.wrapping_sub(at) as i32 >= 0).then_some(at)
    }

    /// The ring was empty after the daemon had taken this cancellation. There may be a later one by now.
    pub(super) fn cancellations_are_over(&mut self, at: u32) {
        self.cancelled_at = self.cancelled_at.filter(|last| *last != at);
    }

    /// What a thread that is about to sleep has to know and do.
    pub(super) fn before_sleep(&mut self, effects: &mut Effects) -> Option<u64> {
        self.flush(effects);
        self.leave_to_sleeper(effects);
        self.due_ns()
    }

    /// How soon somebody has to look at what nobody rings for: room in the submission ring, deadlines, turns not taken.
    fn due_ns(&self) -> Option<u64> {
        if !self.backlog.is_empty() || self.is_awaited(Room::Ring) {
            return Some(RING_RETRY_NS);
        }
        let turns = self.is_awaited(Room::Heap) || self.is_awaited(Room::Calls);
        let unheard = !self.with_deadline.is_empty() || self.cancelled_at.is_some();
        (turns || unheard).then_some(SWEEP_NS)
    }

    /// Lets the first who waits for room in the submission ring try again, if there is some.
    pub(super) fn serve_ring_room(&mut self, effects: &mut Effects) {
        if self.is_awaited(Room::Ring) && self.ring_has_room(effects) {
            self.room_made(Room::Ring, effects);
        }
    }

    /// From now on nobody is awake who would say loudly, before sleeping, what was said quietly.
    pub(super) fn leave_to_sleeper(&mut self, effects: &mut Effects) {
        self.asleep = true;
        effects.ring |= self.quiet_must_ring();
    }

    /// What a thread does that woke up without an entry: the ring may have room again, somebody woken for room may not
    /// have taken it, a deadline may have passed.
    pub(super) fn after_sleep(&mut self, now: Instant, effects: &mut Effects) {
        self.flush(effects);
        self.serve_ring_room(effects);
        if self.in_flight < self.limits.calls_max {
            self.room_made(Room::Calls, effects);
        }
        self.room_made(Room::Heap, effects);
        if self.with_deadline.is_empty() {
            return;
        }
        let overdue = |at: &Instant| at.plus_ns(OVERDUE_NS) <= now;
        let late: Vec<CallId> =
            self.with_deadline.iter().filter(|(_, at)| overdue(at)).map(|(call, _)| *call).collect();
        for call in late {
            self.give_up(call, effects);
        }
    }

    /// Ends a call the daemon should have ended.
    fn give_up(&mut self, call: CallId, effects: &mut Effects) {
        self.with_deadline.remove(&call);
        let Some(state) = self.calls.get_mut(&call).filter(|state| state.end.is_none()) else { return };
        state.end = Some(End::Overdue);
        self.wake_both(call, effects);
        self.cancel(call, effects);
    }

    /// Ends every call and wakes everybody: the session is over. A second time changes nothing.
    pub(super) fn lose(&mut self, reason: &str, effects: &mut Effects) -> bool {
        if matches!(self.phase, Phase::Lost(_)) {
            return false;
        }
        self.phase = Phase::Lost(reason.into());
        let taken_before = self.taken_by_daemon();
        let ids: Vec<CallId> = self.calls.keys().copied().collect();
        for call in ids {
            self.lose_call(call, taken_before, effects);
        }
        for room in [Room::Ring, Room::Heap, Room::Calls] {
            while !self.rooms.of(room).is_empty() {
                self.room_made(room, effects);
            }
        }
        effects.wakes.extend(self.sleepers.dismiss().map(Waker::from));
        effects.worker = true;
        self.inbox.clear();
        self.cancelled_at = None;
        true
    }

    fn lose_call(&mut self, call: CallId, taken_before: Option<u32>, effects: &mut Effects) {
        let Some(state) = self.calls.get_mut(&call) else { return };
        if state.end.is_none() {
            let behind = |taken: u32| state.sequence.wrapping_sub(taken) as i32 >= 0;
            state.end = Some(End::SessionLost { taken: !taken_before.is_some_and(behind) });
        }
        if call.is_delivered() {
            self.dismissed.push(call);
        }
        self.wake_both(call, effects);
    }

    /// How many of our entries the daemon has taken; `None` when its head cannot be believed.
    fn taken_by_daemon(&mut self) -> Option<u32> {
        let room = self.submissions.room().ok()?;
        Some(self.staged.wrapping_sub(self.submissions.capacity() - room))
    }
}

impl Rooms {
    fn of(&mut self, room: Room) -> &mut RoomQueue {
        match room {
            Room::Ring => &mut self.ring,
            Room::Heap => &mut self.heap,
            Room::Calls => &mut self.calls,
        }
    }
}
