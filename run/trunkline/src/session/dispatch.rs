//! What the daemon says: each completion finds the call it is about.

use super::books::{Books, Effects, Phase};
use super::room::Room;
use super::state::{CallState, End};
use super::submit::returned;
use trunkline_call::entry::{Call, Completion, Entry, FREED_MAX, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Instant, Step};

/// A send block of this size is worth a system call when it is free, to give its pages back.
pub(super) const TRIM_BYTES: u32 = 8 << 20;

impl Books {
    /// Books one entry of the completion ring, found `now`. Completions for calls nobody here asks for return their
    /// blocks.
    pub(super) fn complete(&mut self, entry: &Entry, now: Instant, effects: &mut Effects) {
        let completion = match Completion::decode(entry) {
            Ok(completion) => completion,
            Err(error) => {
                effects.fault.get_or_insert_with(|| format!("completion entry: {error:?}"));
                return;
            }
        };
        match completion {
            Completion::Call(call) => self.deliver(call, now, effects),
            Completion::Message { call, payload, end } => self.message(call, payload, end, now, effects),
            Completion::HalfClose { call } => self.half_closed(call, effects),
            Completion::Cancelled { call, code } => self.dismiss(call, code, effects),
            Completion::Headers { call, metadata } => self.headers(call, metadata, now, effects),
            Completion::Finish(finish) => self.finish(finish, now, effects),
            Completion::Freed { offsets } => self.freed(&offsets, effects),
            Completion::Credit { call, bytes } => self.credit(call, bytes, effects),
            Completion::GoAway if self.phase == Phase::Open => {
                self.phase = Phase::Leaving;
                effects.closed = true;
            }
            Completion::GoAway => {}
            Completion::Drained => {
                self.drained = true;
                effects.worker = true;
            }
        }
    }

    fn deliver(&mut self, call: Call, now: Instant, effects: &mut Effects) {
        self.hold(call.payload.map_or(Span::default(), |payload| payload.block()));
        self.hold(call.metadata);
        let mut state = CallState::new(self.limits.window_bytes, self.staged);
        state.incoming_ended = call.end;
        self.steps.note(&mut state.last_step, received(now, call.payload.is_some()));
        self.calls.insert(call.call, state);
        self.inbox.push_back(call);
        effects.worker = true;
    }

    fn message(&mut self, call: CallId, payload: Payload, end: bool, now: Instant, effects: &mut Effects) {
        self.hold(payload.block());
        match self.calls.get_mut(&call) {
            Some(state) => {
                state.incoming_ended |= end;
                self.steps.note(&mut state.last_step, received(now, true));
                effects.wakes.extend(state.receiver.unpark(&mut self.foreign));
                if state.discards {
                    self.release(returned(call, payload.block()), effects);
                } else {
                    state.incoming.push_back(payload);
                }
            }
            None => self.release(returned(call, payload.block()), effects),
        }
    }

    fn half_closed(&mut self, call: CallId, effects: &mut Effects) {
        if let Some(state) = self.calls.get_mut(&call) {
            state.incoming_ended = true;
            effects.wakes.extend(state.receiver.unpark(&mut self.foreign));
        }
    }

    fn dismiss(&mut self, call: CallId, code: Code, effects: &mut Effects) {
        let Some(state) = self.calls.get_mut(&call).filter(|state| state.end.is_none()) else { return };
        state.end = Some(End::Cancelled(code));
        self.dismissed.push(call);
        self.wake_both(call, effects);
        effects.worker = true;
    }

    fn headers(&mut self, call: CallId, metadata: Span, now: Instant, effects: &mut Effects) {
        if metadata.len == 0 {
            return;
        }
        self.hold(metadata);
        let unread = match self.calls.get_mut(&call) {
            Some(state) => {
                self.steps.note(&mut state.last_step, received(now, false));
                effects.wakes.extend(state.receiver.unpark(&mut self.foreign));
                state.headers.replace(metadata)
            }
            None => Some(metadata),
        };
        if let Some(metadata) = unread {
            self.release(returned(call, metadata), effects);
        }
    }

    fn finish(&mut self, finish: Finish, now: Instant, effects: &mut Effects) {
        let block = finish.payload.map_or(Span::default(), |payload| payload.block());
        self.hold(block);
        self.hold(finish.metadata);
        match self.calls.get_mut(&finish.call).filter(|state| state.end.is_none()) {
            Some(state) => {
                state.incoming_ended = true;
                self.steps.note(&mut state.last_step, received(now, finish.payload.is_some()));
                state.end = Some(End::Finished(finish));
                self.wake_both(finish.call, effects);
            }
            // Abandoned, or given up as overdue: the daemon's books close with this return.
            None => {
                let (call, metadata) = (finish.call, finish.metadata);
                self.release(Submission::Release { call, block, metadata, a18: Instant(0) }, effects);
            }
        }
    }

    fn freed(&mut self, offsets: &[u32; FREED_MAX], effects: &mut Effects) {
        for &offset in offsets.iter().filter(|&&offset| offset != 0) {
            match self.heap.free(offset) {
                Ok(bytes) => {
                    effects.trim |= bytes >= TRIM_BYTES;
                    self.room_made(Room::Heap, effects);
                }
                Err(error) => {
                    effects.fault.get_or_insert_with(|| error.to_string());
                }
            }
        }
    }

    fn credit(&mut self, call: CallId, bytes: u32, effects: &mut Effects) {
        if let Some(state) = self.calls.get_mut(&call) {
            state.credit_bytes += i64::from(bytes);
            if state.credit_bytes > 0 {
                effects.wakes.extend(state.sender.unpark(&mut self.foreign));
            }
        }
    }

    fn hold(&mut self, block: Span) {
        self.quiet.held_bytes += u64::from(block.len);
        self.held.take(block);
    }
}

fn received(at: Instant, message: bool) -> Step {
    Step { at, back: true, message }
}
