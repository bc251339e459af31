//! Calls that wait for those before them, because a policy lets only so many be under way.
//!
//! The opening of such a call, and what follows it, waits in the call's own backlog, as everything that waits does.
//! It goes on when a call of the same policy has ended, or is refused when it has waited too long; if its deadline
//! passes or its caller goes away meanwhile, its handler never hears of it.

use crate::CallKey;
use crate::call::Direction;
use crate::engine::{Engine, Turn};
use crate::expire::Due;
use crate::police::{Policed, denied};
use trunkline_call::{Instant, TimerKey};
use trunkline_policy::{Permits, Rejection, Ticket, Verdict};

/// A call's place in a queue.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Queued {
    ticket: Ticket,
    timer: TimerKey,
}

impl Engine {
    /// Has a call wait.
    pub(crate) fn queue_call(&mut self, now: Instant, key: CallKey, ticket: Ticket) -> Queued {
        self.policies.enqueue(now, ticket, key.to_bits());
        let at = now.plus_ns(self.policies.waits_ns(ticket).saturating_add(1));
        Queued { ticket, timer: self.timers.insert(at, Due::Queued(key)) }
    }

    /// After an exchange of policies: calls that wait do so by the new ones, or go on.
    pub fn serve_waiting(&mut self, turn: &mut Turn<'_>) {
        self.go_on(turn);
    }

    /// Calls that waited for others to end go on.
    pub(crate) fn serve_queues(&mut self, turn: &mut Turn<'_>) {
        while let Some(verdict) = self.policies.serve(turn.now) {
            self.carry_out(turn, verdict);
        }
    }

    /// A call has waited as long as it may.
    pub(crate) fn queued_due(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let policed = self.calls.find(key).and_then(|call| call.policed.as_ref());
        let Some(ticket) = policed.and_then(|policed| policed.queued.as_ref()).map(|queued| queued.ticket)
        else {
            return;
        };
        let verdict = self.policies.late(turn.now, ticket, key.to_bits());
        self.carry_out(turn, verdict);
    }

    /// A call ends: it waits no longer.
    pub(crate) fn leave_queue(&mut self, key: CallKey, policed: &mut Policed) {
        if let Some(queued) = policed.queued.take() {
            self.timers.cancel(queued.timer);
            self.policies.leave(queued.ticket, key.to_bits());
        }
    }

    fn carry_out(&mut self, turn: &mut Turn<'_>, verdict: Verdict) {
        match verdict {
            Verdict::Served(token, permits) => self.serve_queued(turn, CallKey::from_bits(token), permits),
            Verdict::Shed(token, rejection) => self.shed(turn, CallKey::from_bits(token), rejection),
            Verdict::Waits(token, until) => self.wait_until(CallKey::from_bits(token), until),
        }
    }

    fn wait_until(&mut self, key: CallKey, until: Instant) {
        let Self { calls, timers, .. } = self;
        let policed = calls.find_mut(key).and_then(|call| call.policed.as_mut());
        if let Some(queued) = policed.and_then(|policed| policed.queued.as_mut()) {
            timers.cancel(queued.timer);
            queued.timer = timers.insert(until, Due::Queued(key));
        }
    }

    fn serve_queued(&mut self, turn: &mut Turn<'_>, key: CallKey, permits: Permits) {
        let Some(policed) = self.calls.find_mut(key).and_then(|call| call.policed.as_mut()) else {
            return self.policies.release(permits);
        };
        policed.permits.join(permits);
        if let Some(queued) = policed.queued.take() {
            self.timers.cancel(queued.timer);
        }
        match policed.held_until.take() {
            Some(until) => drop(self.timers.insert(until, Due::Held(key, Direction::Request))),
            None => self.unblock(turn, key, Direction::Request),
        }
    }

    fn shed(&mut self, turn: &mut Turn<'_>, key: CallKey, rejection: Rejection) {
        if let Some(policed) = self.calls.find_mut(key).and_then(|call| call.policed.as_mut())
            && let Some(queued) = policed.queued.take()
        {
            self.timers.cancel(queued.timer);
        }
        self.fail(turn, key, denied(rejection));
    }
}
