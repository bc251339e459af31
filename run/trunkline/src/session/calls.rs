//! The calls a session knows, made and delivered: what arrived, how they ended, who waits for them.

use super::effects::Effects;
use super::ids::IdMap;
use super::state::{Asker, CallState, End};
use super::stream_share::StreamShare;
use std::task::Waker;
use trunkline_call::entry::{Finish, Payload, Span};
use trunkline_call::{CallId, Code, Deadline, Instant, Step, Steps};

/// How late the daemon may be with the end of a call whose deadline has passed.
const OVERDUE_NS: u64 = 20_000_000;

/// Calls by id.
#[derive(Debug)]
pub(crate) struct CallTable {
    calls: IdMap<CallId, CallState>,
    /// How soon they take their steps.
    steps: Steps,
    /// The last id given to a call made here.
    last: u64,
    /// Calls made whose end was not released, and how many there may be.
    in_flight: u32,
    in_flight_max: u32,
    /// Bytes of a stream that may be sent at first.
    window_bytes: u32,
    /// What all streams have under way.
    share: StreamShare,
    /// Deadlines among the calls made: 0 spares the comparison with the clock.
    deadlines: IdMap<CallId, Instant>,
    /// Waiting tasks whose threads do not drain this session.
    foreign: u32,
}

/// A call that is being made.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenedCall {
    pub(super) at: Instant,
    pub(super) deadline: Deadline,
    /// The delivered call whose handler makes this one, or zero.
    pub(super) parent: CallId,
    /// It has a message with it.
    pub(super) message: bool,
    /// Number of its first entry among all entries of the session.
    pub(super) sequence: u32,
}

impl CallTable {
    pub(super) fn new(in_flight_max: u32, window_bytes: u32, heap_bytes: u32) -> Self {
        Self {
            calls: IdMap::default(),
            steps: Steps::default(),
            last: 0,
            in_flight: 0,
            in_flight_max,
            window_bytes,
            share: StreamShare::new(heap_bytes),
            deadlines: IdMap::default(),
            foreign: 0,
        }
    }

    /// A call made here.
    pub(super) fn open(&mut self, new: OpenedCall) -> CallId {
        self.last += 1;
        let call = CallId(self.last);
        let mut state = CallState::new(self.window_bytes, new.sequence);
        self.steps.note(&mut state.last_step, sent(new.at, new.message));
        self.calls.insert(call, state);
        if let Some(at) = new.deadline.instant() {
            self.deadlines.insert(call, at);
        }
        if let Some(parent) = self.calls.get_mut(&new.parent) {
            parent.children += 1;
        }
        self.in_flight += 1;
        call
    }

    /// A call delivered here; `end`: no message follows.
    pub(super) fn deliver(&mut self, call: CallId, sequence: u32, end: bool, step: Step) {
        let mut state = CallState::new(self.window_bytes, sequence);
        state.incoming_ended = end;
        self.steps.note(&mut state.last_step, step);
        self.calls.insert(call, state);
    }

    pub(super) fn get_mut(&mut self, call: CallId) -> Option<&mut CallState> {
        self.calls.get_mut(&call)
    }

    /// A call that has not ended.
    pub(super) fn open_mut(&mut self, call: CallId) -> Option<&mut CallState> {
        self.calls.get_mut(&call).filter(|state| state.end.is_none())
    }

    /// Whether a stream may send a message now; `None`: it has ended.
    pub(super) fn may_send(&mut self, call: CallId) -> Option<bool> {
        let window_bytes = self.window_bytes;
        let state = self.calls.get(&call).filter(|state| state.end.is_none())?;
        Some(state.credit_bytes > 0 && self.share.admits(state.under_way_bytes(window_bytes)))
    }

    /// A message of so many bytes goes out.
    pub(super) fn spend(&mut self, call: CallId, bytes: u32, at: Instant) {
        if let Some(state) = self.calls.get_mut(&call) {
            let before = state.under_way_bytes(self.window_bytes);
            state.credit_bytes -= i64::from(bytes);
            self.share.hold(state.under_way_bytes(self.window_bytes) - before);
            self.steps.note(&mut state.last_step, sent(at, true));
        }
    }

    /// The receiver takes so many bytes more.
    pub(super) fn credit(&mut self, call: CallId, bytes: u32, effects: &mut Effects) {
        let Some(state) = self.calls.get_mut(&call) else { return };
        let before = state.under_way_bytes(self.window_bytes);
        state.credit_bytes += i64::from(bytes);
        let read_bytes = before - state.under_way_bytes(self.window_bytes);
        if state.credit_bytes > 0 {
            effects.wakes.extend(state.sender.unpark(&mut self.foreign));
        }
        self.share_more(read_bytes, effects);
    }

    /// Streams have so many bytes less under way: those go on that waited for it.
    fn share_more(&mut self, bytes: u64, effects: &mut Effects) {
        for call in self.share.release(bytes) {
            if let Some(state) = self.calls.get_mut(&call) {
                state.waits_for_share = false;
                effects.wakes.extend(state.sender.unpark(&mut self.foreign));
            }
        }
    }

    /// A message arrived. It comes back if nobody here takes it.
    pub(super) fn message(
        &mut self,
        call: CallId,
        payload: Payload,
        end: bool,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<Payload> {
        let Some(state) = self.calls.get_mut(&call) else { return Some(payload) };
        state.incoming_ended |= end;
        self.steps.note(&mut state.last_step, received(now, true));
        effects.wakes.extend(state.receiver.unpark(&mut self.foreign));
        if state.discards {
            return Some(payload);
        }
        state.incoming.push_back(payload);
        None
    }

    /// No message follows.
    pub(super) fn half_closed(&mut self, call: CallId, effects: &mut Effects) {
        if let Some(state) = self.calls.get_mut(&call) {
            state.incoming_ended = true;
            effects.wakes.extend(state.receiver.unpark(&mut self.foreign));
        }
    }

    /// Response headers arrived. Gives those nobody will read.
    pub(super) fn headers(
        &mut self,
        call: CallId,
        metadata: Span,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<Span> {
        let Some(state) = self.calls.get_mut(&call) else { return Some(metadata) };
        self.steps.note(&mut state.last_step, received(now, false));
        effects.wakes.extend(state.receiver.unpark(&mut self.foreign));
        state.headers.replace(metadata)
    }

    /// A call made here was answered. `false`: it was abandoned, or given up as overdue.
    pub(super) fn finish(&mut self, finish: Finish, now: Instant, effects: &mut Effects) -> bool {
        let Some(state) = self.calls.get_mut(&finish.call).filter(|state| state.end.is_none()) else {
            return false;
        };
        state.incoming_ended = true;
        self.steps.note(&mut state.last_step, received(now, finish.payload.is_some()));
        state.end = Some(End::Finished(finish));
        self.wake_both(finish.call, effects);
        true
    }

    /// Ends an open call. `false`: there is none.
    pub(super) fn end(&mut self, call: CallId, end: End, effects: &mut Effects) -> bool {
        let Some(state) = self.open_mut(call) else { return false };
        state.end = Some(end);
        self.wake_both(call, effects);
        true
    }

    /// A delivered call is no longer wanted. `false`: that was known, or the call is not.
    pub(super) fn dismiss(&mut self, call: CallId, code: Code, effects: &mut Effects) -> bool {
        self.end(call, End::Cancelled(code), effects)
    }

    /// The handler of a delivered call answered. Gives the calls it made.
    pub(super) fn answered(&mut self, state: &mut CallState, at: Instant, message: bool) -> u32 {
        self.steps.note(&mut state.last_step, sent(at, message));
        state.children
    }

    /// Parks the asker until something arrives for the call.
    pub(super) fn wait_to_receive(&mut self, call: CallId, asker: Asker<'_>) {
        if let Some(state) = self.calls.get_mut(&call) {
            state.receiver.park(asker, &mut self.foreign);
        }
    }

    /// Parks the asker until the call has credit, or has ended.
    pub(super) fn wait_for_credit(&mut self, call: CallId, asker: Asker<'_>) {
        if let Some(state) = self.calls.get_mut(&call) {
            state.sender.park(asker, &mut self.foreign);
            let waits_for_share = state.credit_bytes > 0 && state.end.is_none();
            if waits_for_share && !std::mem::replace(&mut state.waits_for_share, true) {
                self.share.wait(call);
            }
        }
    }

    /// Parks the asker until the call has ended.
    pub(super) fn wait_for_end(&mut self, call: CallId, asker: Asker<'_>) {
        if let Some(state) = self.calls.get_mut(&call) {
            state.watcher.park(asker, &mut self.foreign);
        }
    }

    /// Whoever waited for credit, or for the call's end while it waited for a resource, waits no longer.
    pub(super) fn stop_waiting_for_credit(&mut self, call: CallId) -> Option<Waker> {
        self.calls.get_mut(&call)?.sender.unpark(&mut self.foreign)
    }

    /// Whoever waited for something to arrive waits no longer.
    pub(super) fn stop_waiting_to_receive(&mut self, call: CallId) -> Option<Waker> {
        self.calls.get_mut(&call)?.receiver.unpark(&mut self.foreign)
    }

    /// Takes a call out, and wakes whoever waits for it, who finds it gone.
    pub(super) fn remove(&mut self, call: CallId, effects: &mut Effects) -> Option<CallState> {
        self.wake_both(call, effects);
        let state = self.calls.remove(&call)?;
        if state.waits_for_share {
            self.share.stop_waiting(call);
        }
        self.share_more(state.under_way_bytes(self.window_bytes), effects);
        if !self.deadlines.is_empty() {
            self.deadlines.remove(&call);
        }
        Some(state)
    }

    /// A call made here no longer counts.
    pub(super) fn left(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Ends what the daemon should have ended. Gives those calls.
    pub(super) fn expire(&mut self, now: Instant, effects: &mut Effects) -> Vec<CallId> {
        if self.deadlines.is_empty() {
            return Vec::new();
        }
        let overdue = |at: &Instant| at.plus_ns(OVERDUE_NS) <= now;
        let late: Vec<CallId> =
            self.deadlines.iter().filter(|(_, at)| overdue(at)).map(|(call, _)| *call).collect();
        let gives_up = |call: &CallId| {
            self.deadlines.remove(call);
            self.end(*call, End::Overdue, effects)
        };
        late.into_iter().filter(gives_up).collect()
    }

    /// The session is over: ends every call. `taken`: how many entries the daemon has taken, if that is known. Gives
    /// the delivered ones.
    pub(super) fn lose(&mut self, taken: Option<u32>, effects: &mut Effects) -> Vec<CallId> {
        let ids: Vec<CallId> = self.calls.keys().copied().collect();
        for &call in &ids {
            if let Some(state) = self.open_mut(call) {
                let behind = |taken: u32| state.sequence.wrapping_sub(taken) as i32 >= 0;
                state.end = Some(End::SessionLost { taken: !taken.is_some_and(behind) });
            }
            self.wake_both(call, effects);
        }
        ids.into_iter().filter(|call| call.is_delivered()).collect()
    }

    /// Steps that came soon, for whoever waits next.
    pub(super) fn take_quick_steps(&mut self, within_ns: u64) -> u32 {
        self.steps.take_quick(within_ns)
    }

    /// Whether another call may be made.
    pub(super) fn has_space(&self) -> bool {
        self.in_flight < self.in_flight_max
    }

    /// Whether the call is known and has not ended.
    pub(super) fn is_open(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|state| state.end.is_none())
    }

    pub(super) fn has_delivered(&self) -> bool {
        self.calls.keys().any(|call| call.is_delivered())
    }

    pub(super) fn has_deadlines(&self) -> bool {
        !self.deadlines.is_empty()
    }

    /// Tasks that wait for a call and whose threads do not drain this session.
    pub(super) fn foreign(&self) -> u32 {
        self.foreign
    }

    /// Wakes whoever waits for the call, in either direction, or for its end.
    fn wake_both(&mut self, call: CallId, effects: &mut Effects) {
        if let Some(state) = self.calls.get_mut(&call) {
            effects.wakes.extend(state.receiver.unpark(&mut self.foreign));
            effects.wakes.extend(state.sender.unpark(&mut self.foreign));
            effects.wakes.extend(state.watcher.unpark(&mut self.foreign));
        }
    }
}

/// Something came at this instant, with a message or without.
pub(super) fn received(at: Instant, message: bool) -> Step {
    Step { at, back: true, message }
}

fn sent(at: Instant, message: bool) -> Step {
    Step { at, back: false, message }
}
