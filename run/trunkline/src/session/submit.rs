//! What the application says: calls, messages, answers, returned blocks.
//!
//! Entries come in two kinds. Calls and messages of streams wait for room, so a caller feels back-pressure. Everything
//! else (cancellations, answers, returned blocks) makes room elsewhere and must not wait; if the ring is full it goes
//! to the backlog, and no call or message overtakes it there.

use super::books::{BindingId, Books, Effects, Phase};
use super::room::Room;
use super::state::{CallState, End};
use crate::clock;
use trunkline_call::entry::{Call, Entry, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Deadline, Encoding, Instant, Step};
use trunkline_shm::{Block, RingError};

/// Returned blocks that may lie in the ring before the daemon is rung for them.
const QUIET_ENTRIES_MAX: u32 = 32;

/// Returned and held blocks may be this part of the receive heap before each return rings: the rest is enough for the
/// daemon to go on with.
const QUIET_HEAP_PART: u64 = 4;

/// Returned blocks may be this part of a stream's window before each return rings: a sender whose receiver takes its
/// time still has the rest.
const QUIET_WINDOW_PART: u64 = 4;

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
}

/// Why something was not submitted. What was to be submitted is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Wait for room and try again.
    Room(Room),
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
        let encoding = self.encoding;
        Payload { span: self.lend(), encoding }
    }
}

/// The entry that returns one receive block.
pub(crate) fn returned(call: CallId, block: Span) -> Submission {
    Submission::Release { call, block, metadata: Span::default(), a18: Instant(0) }
}

impl Books {
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
        let routes = self.routes.get(&order.binding).ok_or(Refusal::Unbound)?;
        let route = *routes.get(order.method).ok_or(Refusal::Unbound)?;
        self.ask_room(Room::Calls, self.in_flight < self.limits.calls_max, barge)?;
        let fits = self.ring_has_room(effects);
        self.ask_room(Room::Ring, fits, barge)?;
        self.next_call += 1;
        let call = CallId(self.next_call);
        let mut state = CallState::new(self.limits.window_bytes, self.staged);
        let opening = Step { at: order.a1, back: false, message: order.payload.is_some() };
        self.steps.note(&mut state.last_step, opening);
        self.calls.insert(call, state);
        if let Some(at) = order.deadline.instant() {
            self.with_deadline.insert(call, at);
        }
        if let Some(parent) = self.calls.get_mut(&order.parent) {
            parent.children += 1;
        }
        self.in_flight += 1;
        let entry = Submission::Call(Call {
            route,
            call,
            payload: order.payload.take().map(Written::into_payload),
            metadata: order.metadata.take().map(Written::lend).unwrap_or_default(),
            end: order.end,
            wait_for_ready: order.wait_for_ready,
            deadline: order.deadline,
            entered: order.a0,
            published: order.a1,
            parent: order.parent,
        });
        self.put(&entry.encode(), effects);
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
        let Some(state) = self.calls.get(&call).filter(|state| state.end.is_none()) else {
            return Err(Refusal::Ended);
        };
        if state.credit_bytes <= 0 {
            return Err(Refusal::Credit);
        }
        let fits = self.ring_has_room(effects);
        self.ask_room(Room::Ring, fits, true)?;
        let Some(written) = message.take() else { return Ok(()) };
        let payload = written.into_payload();
        if let Some(state) = self.calls.get_mut(&call) {
            state.credit_bytes -= i64::from(payload.window_bytes());
            self.steps.note(&mut state.last_step, Step { at: a1, back: false, message: true });
        }
        let entry = Submission::Message { call, payload, end, a1 };
        self.put(&entry.encode(), effects);
        Ok(())
    }

    /// Says something about a call that is not to wait: half-close, cancel, headers.
    pub(crate) fn say(&mut self, submission: Submission, effects: &mut Effects) {
        self.put_or_keep(&submission.encode(), effects);
    }

    /// Hands over a handler's end of a delivered call and forgets the call.
    pub(crate) fn answer(&mut self, mut finish: Finish, effects: &mut Effects) {
        let Some(mut state) = self.forget(finish.call, effects) else { return };
        let answer = Step { at: finish.published, back: false, message: finish.payload.is_some() };
        self.steps.note(&mut state.last_step, answer);
        if state.end.is_none() {
            finish.subtree = state.children;
            self.put_or_keep(&Submission::Finish(finish).encode(), effects);
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
        self.put_or_keep(&Submission::Cancel { call }.encode(), effects);
        effects.keeper |= self.cancelled_at.is_none();
        self.cancelled_at = Some(self.staged.wrapping_add(self.backlog.len() as u32));
        self.call_left(effects);
    }

    /// Returns the block of a call's last completion and says when it was taken: the call is over on both sides.
    pub(crate) fn release_end(
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

    /// Returns a receive block. Rides along with the next entry that rings, or is rung for before the next sleep;
    /// unless much has been returned so, or whoever would ring sleeps already: what it waits for may need this block.
    pub(crate) fn release(&mut self, release: Submission, effects: &mut Effects) {
        let Submission::Release { block, metadata, .. } = release else { return };
        self.held.give_back(block);
        self.held.give_back(metadata);
        let bytes = u64::from(block.len) + u64::from(metadata.len);
        self.quiet.held_bytes = self.quiet.held_bytes.saturating_sub(bytes);
        self.quiet.bytes += bytes;
        self.quiet.entries += 1;
        let crowded = self.quiet.entries > QUIET_ENTRIES_MAX
            || (self.quiet.bytes + self.quiet.held_bytes) * QUIET_HEAP_PART > self.limits.usual_bytes
            || self.quiet.bytes * QUIET_WINDOW_PART > u64::from(self.limits.window_bytes);
        if self.asleep || crowded || !self.ring_has_room(effects) {
            self.put_or_keep(&release.encode(), effects);
        } else {
            self.stage(&release.encode(), effects);
            self.submissions.publish_quietly();
        }
    }

    /// Before a thread of this session sleeps: whether the daemon sleeps on entries that were published quietly.
    pub(super) fn quiet_must_ring(&mut self) -> bool {
        if self.quiet.entries == 0 {
            return false;
        }
        self.loud();
        self.submissions.must_ring()
    }

    /// Moves the backlog into the ring as far as there is room.
    pub(super) fn flush(&mut self, effects: &mut Effects) {
        let mut moved = false;
        while !self.backlog.is_empty() && self.slots_free(effects) {
            if let Some(entry) = self.backlog.pop_front() {
                self.stage(&entry, effects);
                moved = true;
            }
        }
        if moved {
            effects.ring |= self.publish();
        }
    }

    /// Whether a call or message may be put into the ring now.
    pub(super) fn ring_has_room(&mut self, effects: &mut Effects) -> bool {
        self.flush(effects);
        self.backlog.is_empty() && self.slots_free(effects)
    }

    fn ask_room(&self, room: Room, there_is: bool, barge: bool) -> Result<(), Refusal> {
        if there_is && (barge || !self.is_awaited(room)) { Ok(()) } else { Err(Refusal::Room(room)) }
    }

    /// A call we made no longer counts.
    fn call_left(&mut self, effects: &mut Effects) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.room_made(Room::Calls, effects);
    }

    fn slots_free(&mut self, effects: &mut Effects) -> bool {
        if self.submissions.len() < self.submissions.capacity() {
            return true;
        }
        match self.submissions.room() {
            Ok(room) => room > 0,
            Err(fault) => {
                note_fault(&fault, effects);
                false
            }
        }
    }

    fn put_or_keep(&mut self, entry: &Entry, effects: &mut Effects) {
        if self.ring_has_room(effects) {
            self.put(entry, effects);
        } else {
            // Nobody may be waiting for anything here, so nobody would look whether there is room again.
            effects.keeper |= self.backlog.is_empty();
            self.backlog.push_back(*entry);
        }
    }

    fn put(&mut self, entry: &Entry, effects: &mut Effects) {
        self.stage(entry, effects);
        effects.ring |= self.publish();
    }

    fn stage(&mut self, entry: &Entry, effects: &mut Effects) {
        match self.submissions.stage(entry) {
            Ok(()) => self.staged = self.staged.wrapping_add(1),
            Err(fault) => note_fault(&fault, effects),
        }
    }

    fn publish(&mut self) -> bool {
        self.loud();
        self.submissions.publish()
    }

    fn loud(&mut self) {
        self.quiet.entries = 0;
        self.quiet.bytes = 0;
    }
}

fn note_fault(fault: &RingError, effects: &mut Effects) {
    effects.fault.get_or_insert_with(|| fault.to_string());
}
