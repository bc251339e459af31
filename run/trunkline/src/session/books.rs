//! The books of a session: what the application says of its calls, and how their owners answer.
//!
//! Behind one lock ([`Session`](super::Session) holds it) each part has an owner: the submission side
//! ([`Outbox`]), the calls ([`CallTable`]), those who wait for what there is none of ([`WaitQueues`]), what a worker is
//! to do ([`Inbox`]), the receive blocks held here ([`Held`]). This is the one place that sees them all; `dispatch.rs`
//! is the same for what the daemon says, `sleep.rs` for who drains and how long one may sleep. Nothing here blocks,
//! calls a waker or makes a system call: what is to happen after the lock is released is noted in [`Effects`].

use super::calls::{CallTable, OpenedCall};
use super::effects::Effects;
use super::heaps::Held;
use super::ids::IdMap;
use super::inbox::{Inbox, Work};
use super::order::{BindingId, Order, Refusal, Written, returned};
use super::outbox::Outbox;
use super::queues::{QueuePlace, Resource, Ticket, WaitQueues};
use super::state::{Asker, CallState, End, EndedBy};
use super::taken::TakenEnds;
use crate::clock;
use crate::kick::Kick;
use std::sync::Arc;
use std::task::{Poll, Waker};
use trunkline_call::entry::{Call, Finish, Span, Submission};
use trunkline_call::{CallId, Instant, RouteIndex};
use trunkline_shm::{Heap, Producer, Sleepers};

/// Everything about a session that more than one thread changes.
#[derive(Debug)]
pub(crate) struct Books {
    pub(super) outbox: Outbox,
    pub(super) calls: CallTable,
    pub(super) queues: WaitQueues,
    pub(super) inbox: Inbox,
    /// Receive blocks this side holds.
    pub(super) held: Held,
    /// Ends that the daemon is not told of yet.
    taken: TakenEnds,
    /// The send heap.
    pub(super) heap: Heap,
    /// Routes of the methods bound so far, by binding.
    routes: IdMap<BindingId, Arc<[RouteIndex]>>,
    /// Threads that wait for calls of this session, and who of them and the listener sleeps for how long.
    pub(super) sleepers: Sleepers<Arc<Kick>>,
    /// The last cancellation of a call we made, as a count of entries staged, while the daemon may have said something
    /// of that call that nobody waits for: its blocks are to go back all the same.
    pub(super) cancelled_at: Option<u32>,
    pub(super) phase: Phase,
}

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
            outbox: Outbox::new(submissions, limits.usual_bytes, limits.window_bytes),
            calls: CallTable::new(limits.calls_max, limits.window_bytes, heap.capacity_bytes()),
            queues: WaitQueues::default(),
            inbox: Inbox::default(),
            held: Held::default(),
            taken: TakenEnds::default(),
            heap,
            routes: IdMap::default(),
            sleepers: Sleepers::default(),
            cancelled_at: None,
            phase: Phase::Open,
        }
    }

    // LIFE: 2
    /// Submits a call. `barge`: the caller has waited for its turn already.
    pub(crate) fn start(
        &mut self,
        order: &mut Order,
        barge: bool,
        effects: &mut Effects,
    ) -> Result<CallId, Refusal> {
        if self.phase != Phase::Open {
            return Err(Refusal::Closed);
        }
        self.tell_ends(order.a1, effects);
        let routes = self.routes.get(&order.binding).ok_or(Refusal::Unbound)?;
        let route = *routes.get(order.method).ok_or(Refusal::Unbound)?;
        self.ask_for(Resource::Calls, self.calls.has_space(), barge)?;
        let fits = self.outbox.has_space(effects);
        self.ask_for(Resource::Ring, fits, barge)?;
        let call = self.calls.open(OpenedCall {
            at: order.a1,
            deadline: order.deadline,
            parent: order.parent,
            message: order.payload.is_some(),
            sequence: self.outbox.next_sequence(),
        });
        let entry = Submission::Call(Call {
            route,
            call,
            payload: order.payload.take().map(Written::into_payload),
            metadata: order.metadata.take().map(Written::lend).unwrap_or_default(),
            end: order.end,
            wait_for_ready: order.wait_for_ready,
            deadline: order.deadline,
            entered: order.a0,
            published: order.queued.unwrap_or(order.a1),
            parent: order.parent,
        });
        self.outbox.put(&entry.encode(), effects);
        Ok(call)
    }

    /// Sends a message on an open stream.
    pub(crate) fn send(
        &mut self,
        call: CallId,
        message: &mut Option<Written>,
        end: bool,
        a1: Instant,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if !self.calls.may_send(call).ok_or(Refusal::Ended)? {
            return Err(Refusal::Credit);
        }
        let fits = self.outbox.has_space(effects);
        self.ask_for(Resource::Ring, fits, true)?;
        let Some(written) = message.take() else { return Ok(()) };
        let payload = written.into_payload();
        self.calls.spend(call, payload.window_bytes(), a1);
        let entry = Submission::Message { call, payload, end, a1 };
        self.outbox.put(&entry.encode(), effects);
        Ok(())
    }

    /// Says something about a call that is not to wait: half-close, cancel, headers.
    pub(crate) fn say(&mut self, submission: Submission, effects: &mut Effects) {
        self.outbox.put_or_keep(&submission.encode(), effects);
    }

    /// Hands over a handler's end of a delivered call and forgets the call.
    pub(crate) fn answer(&mut self, mut finish: Finish, effects: &mut Effects) {
        let Some(mut state) = self.forget(finish.call, effects) else { return };
        let children = self.calls.answered(&mut state, finish.published, finish.payload.is_some());
        if state.end.is_none() {
            finish.subtree = children;
            self.outbox.put_or_keep(&Submission::Finish(finish).encode(), effects);
        }
    }

    /// The caller no longer wants the call it made: cancels it if it is open, forgets it, returns what arrived.
    pub(crate) fn abandon(&mut self, call: CallId, effects: &mut Effects) {
        let Some(state) = self.forget(call, effects) else { return };
        match state.end {
            None => self.cancel(call, effects),
            Some(End::Finished(finish)) => {
                let block = finish.payload.map_or(Span::default(), |payload| payload.block());
                // Nobody looked at the answer, but it was taken: only with a stamp are the daemon's books closed.
                self.release_end(call, block, finish.metadata, clock::now(), effects);
            }
            Some(End::Overdue | End::SessionLost { .. } | End::Cancelled(_)) => {}
        }
    }

    /// Tells the daemon that a call we made is not wanted; it answers nothing to that. What it said before, nobody may
    /// be waiting for: the listener looks until the daemon has taken this.
    pub(super) fn cancel(&mut self, call: CallId, effects: &mut Effects) {
        self.outbox.put_or_keep(&Submission::Cancel { call }.encode(), effects);
        effects.listen |= self.cancelled_at.is_none();
        self.cancelled_at = Some(self.outbox.end_sequence());
        self.call_left(effects);
    }

    /// Its owner takes a call's end, and owes its blocks ([`Books::return_last`]).
    pub(crate) fn take_end(&mut self, call: CallId, end: End, effects: &mut Effects) {
        self.forget(call, effects);
        if let End::Finished(_) = end {
            let a18 = clock::now();
            self.tell_ends(a18, effects);
            self.taken.add(call, a18);
        }
    }

    // LIFE: 21 | taken; block released with the last stamp | (a18) | 9 client receive queue
    /// Returns the blocks of an end that was taken, and tells of it, unless that was done.
    pub(crate) fn return_last(&mut self, call: CallId, block: Span, metadata: Span, effects: &mut Effects) {
        match self.taken.remove(call) {
            Some(a18) => self.release_end(call, block, metadata, a18, effects),
            None => {
                self.release(Submission::Release { call, block, metadata, a18: Instant(0) }, effects);
            }
        }
    }

    /// Tells of ends whose blocks are held for long.
    fn tell_ends(&mut self, now: Instant, effects: &mut Effects) {
        while let Some((call, a18)) = self.taken.due(now) {
            self.release_end(call, Span::default(), Span::default(), a18, effects);
        }
    }

    /// Returns the block of a call's last completion and says when it was taken: the call is over on both sides.
    fn release_end(
        &mut self,
        call: CallId,
        block: Span,
        metadata: Span,
        a18: Instant,
        effects: &mut Effects,
    ) {
        self.release(Submission::Release { call, block, metadata, a18 }, effects);
        self.call_left(effects);
    }

    /// Returns a receive block.
    pub(crate) fn release(&mut self, release: Submission, effects: &mut Effects) {
        let Submission::Release { block, metadata, .. } = release else { return };
        self.held.give_back(block);
        self.held.give_back(metadata);
        let bytes = u64::from(block.len) + u64::from(metadata.len);
        self.outbox.put_return(&release.encode(), bytes, self.held.bytes(), effects);
    }

    /// The state of a call, while somebody here asks for it.
    pub(crate) fn call(&mut self, call: CallId) -> Option<&mut CallState> {
        self.calls.get_mut(call)
    }

    /// Whether the call is known and has not ended.
    pub(crate) fn is_open(&self, call: CallId) -> bool {
        self.calls.is_open(call)
    }

    /// Parks the asker until something arrives for the call.
    pub(crate) fn wait_to_receive(&mut self, call: CallId, asker: Asker<'_>) {
        self.calls.wait_to_receive(call, asker);
    }

    /// Whether a stream may send a message, by what its receiver takes and what other streams have under way; `None`:
    /// the call has ended.
    pub(crate) fn may_send(&mut self, call: CallId) -> Option<bool> {
        self.calls.may_send(call)
    }

    /// Parks the asker until the call has credit, or has ended.
    pub(crate) fn wait_for_credit(&mut self, call: CallId, asker: Asker<'_>) {
        self.calls.wait_for_credit(call, asker);
    }

    /// Parks the asker until the call has ended, whether or not what came before that has been taken.
    pub(crate) fn wait_for_end(&mut self, call: CallId, asker: Asker<'_>) {
        self.calls.wait_for_end(call, asker);
    }

    /// Whoever waited for credit, or for the call's end while it waited for a resource, waits no longer.
    pub(crate) fn stop_waiting_for_credit(&mut self, call: CallId) -> Option<Waker> {
        self.calls.stop_waiting_for_credit(call)
    }

    /// Whoever waited for something to arrive waits no longer.
    pub(crate) fn stop_waiting_to_receive(&mut self, call: CallId) -> Option<Waker> {
        self.calls.stop_waiting_to_receive(call)
    }

    /// Forgets a call: returns what arrived for it and was not taken, and wakes whoever else waits for it, who finds it
    /// gone. Tells how it stood.
    pub(crate) fn forget(&mut self, call: CallId, effects: &mut Effects) -> Option<CallState> {
        let mut state = self.calls.remove(call, effects)?;
        for payload in state.incoming.drain(..) {
            self.release(returned(call, payload.block()), effects);
        }
        if let Some(headers) = state.headers.take() {
            self.release(returned(call, headers), effects);
        }
        Some(state)
    }

    /// A place in the queue for a resource, to wait in with [`Books::poll_turn`].
    pub(crate) fn join(&mut self, resource: Resource) -> Ticket {
        self.queues.join(resource)
    }

    /// Waits until it is this place's turn to try again. The first poll of a wait is content if there is some of the
    /// resource and nobody waits before it.
    pub(crate) fn poll_turn(
        &mut self,
        place: QueuePlace,
        first: bool,
        asker: Asker<'_>,
        effects: &mut Effects,
    ) -> Poll<()> {
        let served = match first {
            true => !self.queues.is_behind(place) && self.has(place.resource, place.wanted_bytes, effects),
            false => !self.queues.is_parked(place),
        };
        if served || matches!(self.phase, Phase::Lost(_)) {
            return Poll::Ready(());
        }
        self.queues.park(place, asker);
        Poll::Pending
    }

    /// Gives a place up. If it had its turn, the turn passes on.
    pub(crate) fn leave_queue(&mut self, place: QueuePlace, effects: &mut Effects) {
        self.queues.leave(place, effects);
    }

    /// There is more of this: the first who waits for it tries again.
    pub(crate) fn made_available(&mut self, resource: Resource, effects: &mut Effects) {
        self.queues.wake_next(resource, effects);
    }

    pub(super) fn has(&mut self, resource: Resource, wanted_bytes: u32, effects: &mut Effects) -> bool {
        match resource {
            Resource::Ring => self.outbox.has_space(effects),
            Resource::Heap => self.heap.largest_free() >= wanted_bytes,
            Resource::Calls => self.calls.has_space(),
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

    /// Gives the worker whose session this is what there is to do, for the empty `work` of its last turn.
    pub(crate) fn take_work(&mut self, work: &mut Work) {
        self.inbox.take(work);
    }

    /// Whether the daemon has taken all we said, and every delivered call was answered. After `Drain` more may be on
    /// their way all the same, until [`Books::has_drained`].
    pub(crate) fn is_served_out(&mut self) -> bool {
        !self.inbox.has_calls() && self.outbox.is_taken() && !self.calls.has_delivered()
    }

    /// Whether the daemon has answered `Drain`.
    pub(crate) fn has_drained(&self) -> bool {
        self.inbox.has_drained()
    }

    /// Whether the daemon has taken everything said to it.
    pub(crate) fn is_taken(&mut self) -> bool {
        self.outbox.is_taken()
    }

    /// Ends every call and wakes everybody: the session is over. A second time changes nothing. Where the daemon takes
    /// nothing any more, what it has not taken is known; otherwise it may take everything yet.
    pub(super) fn lose(&mut self, reason: &str, end: EndedBy, effects: &mut Effects) -> bool {
        if matches!(self.phase, Phase::Lost(_)) {
            return false;
        }
        self.phase = Phase::Lost(reason.into());
        let taken = match end {
            EndedBy::Daemon => self.outbox.taken(),
            EndedBy::Us => None,
        };
        self.inbox.lose(self.calls.lose(taken, effects));
        self.queues.wake_all(effects);
        effects.wakes.extend(self.sleepers.dismiss().map(Waker::from));
        effects.worker = true;
        self.cancelled_at = None;
        true
    }

    fn ask_for(&self, resource: Resource, there_is: bool, barge: bool) -> Result<(), Refusal> {
        if there_is && (barge || !self.queues.is_awaited(resource)) {
            return Ok(());
        }
        Err(Refusal::Full(resource))
    }

    /// A call we made no longer counts.
    fn call_left(&mut self, effects: &mut Effects) {
        self.calls.left();
        self.queues.wake_next(Resource::Calls, effects);
    }
}
