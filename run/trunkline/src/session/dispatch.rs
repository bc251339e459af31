//! What the daemon says: each completion finds the call it is about.

use super::books::{Books, Phase};
use super::calls::received;
use super::effects::Effects;
use super::order::returned;
use super::queues::Resource;
use trunkline_call::entry::{Call, Completion, Entry, FREED_MAX, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Instant};

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
            Completion::HalfClose { call } => self.calls.half_closed(call, effects),
            Completion::Cancelled { call, code } => self.dismiss(call, code, effects),
            Completion::Headers { call, metadata } => self.headers(call, metadata, now, effects),
            Completion::Finish(finish) => self.finish(finish, now, effects),
            Completion::Freed { offsets } => self.freed(&offsets, effects),
            Completion::Credit { call, bytes } => self.calls.credit(call, bytes, effects),
            Completion::GoAway if self.phase == Phase::Open => {
                self.phase = Phase::Leaving;
                effects.closed = true;
            }
            Completion::GoAway => {}
            Completion::Drained => {
                self.inbox.set_drained();
                effects.worker = true;
            }
        }
    }

    fn deliver(&mut self, call: Call, now: Instant, effects: &mut Effects) {
        self.held.take(call.payload.map_or(Span::default(), |payload| payload.block()));
        self.held.take(call.metadata);
        let step = received(now, call.payload.is_some());
        self.calls.deliver(call.call, self.outbox.next_sequence(), call.end, step);
        self.inbox.deliver(call);
        effects.worker = true;
    }

    fn message(&mut self, call: CallId, payload: Payload, end: bool, now: Instant, effects: &mut Effects) {
        self.held.take(payload.block());
        if let Some(payload) = self.calls.message(call, payload, end, now, effects) {
            self.release(returned(call, payload.block()), effects);
        }
    }

    fn dismiss(&mut self, call: CallId, code: Code, effects: &mut Effects) {
        if self.calls.dismiss(call, code, effects) {
            self.inbox.dismiss(call);
            effects.worker = true;
        }
    }

    fn headers(&mut self, call: CallId, metadata: Span, now: Instant, effects: &mut Effects) {
        if metadata.len == 0 {
            return;
        }
        self.held.take(metadata);
        if let Some(unread) = self.calls.headers(call, metadata, now, effects) {
            self.release(returned(call, unread), effects);
        }
    }

    // LIFE: 21
    fn finish(&mut self, finish: Finish, now: Instant, effects: &mut Effects) {
        let block = finish.payload.map_or(Span::default(), |payload| payload.block());
        self.held.take(block);
        self.held.take(finish.metadata);
        if !self.calls.finish(finish, now, effects) {
            // Nobody asks for it: the daemon's books close with this return.
            let (call, metadata) = (finish.call, finish.metadata);
            self.release(Submission::Release { call, block, metadata, a18: Instant(0) }, effects);
        }
    }

    fn freed(&mut self, offsets: &[u32; FREED_MAX], effects: &mut Effects) {
        for &offset in offsets.iter().filter(|&&offset| offset != 0) {
            match self.heap.free(offset) {
                Ok(bytes) => {
                    effects.trim |= bytes >= TRIM_BYTES;
                    self.made_available(Resource::Heap, effects);
                }
                Err(error) => {
                    effects.fault.get_or_insert_with(|| error.to_string());
                }
            }
        }
    }
}
