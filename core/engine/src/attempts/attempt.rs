//! One attempt of a call: a call of its own, made of the call it is for, whose place it may take.

use super::call_attempts::{CallAttempts, KeptItem};
use super::control::{AttemptControl, AttemptEnd, NextAttempt};
use crate::CallKey;
use crate::call::{Call, Calls, ClientEnd, Direction, ServerEnd};
use crate::due::Due;
use crate::peers::PeerEnds;
use crate::registry::Registry;
use crate::spans::SpanIds;
use crate::traced::span_of_attempt;
use std::borrow::Cow;
use trunkline_call::{Code, Execution, Instant, TimerKey, TimerTable, TraceParent};
use trunkline_grpc::Outcome;

/// The owners that the attempts of calls concern.
pub(crate) struct AttemptOwners<'e> {
    pub calls: &'e mut Calls,
    pub control: &'e mut AttemptControl,
    pub timers: &'e mut TimerTable<Due>,
    pub spans: &'e mut SpanIds,
}

/// An attempt that begins.
pub(crate) struct BegunAttempt {
    pub key: CallKey,
    /// Attempts before it, as its server is told.
    pub before: u32,
    /// All of the request there is.
    pub kept: Vec<KeptItem>,
    /// The parent its opening names instead of its own.
    pub named: Option<TraceParent>,
}

impl AttemptOwners<'_> {
    /// One more attempt of a call.
    pub fn begin(&mut self, now: Instant, key: CallKey, counted: bool) -> Option<BegunAttempt> {
        let Self { calls, timers, spans, .. } = self;
        let call = calls.find(key)?;
        let mut attempt = attempt_of(key, call, calls, now)?;
        let mut named = None;
        if let Some((ids, instead)) = span_of_attempt(spans, call) {
            (attempt.spans, named) = (Some(Box::new(ids)), instead);
        }
        let attempt = calls.insert(attempt);
        let call = calls.find_mut(key)?;
        if let Some(ids) = call.spans.as_deref_mut() {
            // The one its metadata names is this attempt's.
            ids.attempt = 0;
        }
        let attempts = call.attempts.as_deref_mut()?;
        let before = attempts.begin(now, attempt, counted);
        if let Some(delay_ns) = attempts.hedge_delay_ns() {
            attempts.timer = Some(timers.insert(now.plus_ns(delay_ns), Due::Attempt(key)));
        }
        Some(BegunAttempt { key: attempt, before, kept: attempts.kept.clone(), named })
    }

    /// An attempt of a call ended in vain, so: what now? One that is to come later is booked. What is known of the
    /// execution, should this be the end.
    pub fn in_vain(
        &mut self,
        now: Instant,
        (key, attempt): (CallKey, CallKey),
        (code, execution): (Code, Execution),
        trailers: &[u8],
    ) -> (NextAttempt, Execution) {
        let Self { calls, control, timers, .. } = self;
        let others_seen = calls.find(key).is_some_and(|call| is_seen_beside(calls, call, attempt));
        let [Some(call), ended] = calls.get_disjoint_mut([key, attempt]) else {
            return (NextAttempt::Deliver, execution);
        };
        let mut next = NextAttempt::Deliver;
        if let Some(ended) = ended {
            let (handed_over, tried) = (ended.handed_over, std::mem::take(&mut ended.tried));
            let mut end = AttemptEnd { attempt, handed_over, tried, code, execution, trailers };
            let (decided, dropped) = attempt_failed(call, control, now, &mut end);
            next = decided;
            if let Some(timer) = dropped {
                timers.cancel(timer);
            }
        }
        match (next, &mut call.attempts) {
            (NextAttempt::Deliver, _) => call.handed_over |= others_seen,
            (NextAttempt::After(ns), Some(attempts)) => {
                attempts.timer = Some(timers.insert(now.plus_ns(ns), Due::Attempt(key)));
            }
            _ => {}
        }
        (next, execution_of_all(call, execution))
    }
}

// LIFE: 6 | retries and hedges prepared, where the service's configuration has them |
/// Notes that a call may take several attempts, if it may.
pub(crate) fn arm_attempts(
    control: &mut AttemptControl,
    registry: &Registry,
    call: &mut Call,
    body_bytes: u32,
) {
    let ServerEnd::Cluster { cluster } = call.server else { return };
    if call.is_made_here()
        && let Some(attempts) = control.begin(registry.path(call.method), cluster, body_bytes)
    {
        (call.server, call.attempts) = (ServerEnd::Attempts, Some(attempts));
    }
}

/// What is known of the execution of a call that ends now, with all its attempts.
pub(crate) fn execution_so_far(calls: &Calls, peers: &PeerEnds, call: &Call) -> Execution {
    let is_seen = call.handed_over && !peers.is_unsent(call) || is_seen_beside(calls, call, CallKey::NOTHING);
    if is_seen { Execution::Unknown } else { Execution::NotExecuted }
}

/// Whether some attempt of a call beside this one may have been seen by a server.
fn is_seen_beside(calls: &Calls, call: &Call, attempt: CallKey) -> bool {
    let Some(attempts) = call.attempts.as_deref() else { return false };
    under_way(calls, attempts).any(|(live, other)| live != attempt && other.handed_over)
}

/// The attempts of a call that are under way.
fn under_way<'c>(calls: &'c Calls, attempts: &'c CallAttempts) -> impl Iterator<Item = (CallKey, &'c Call)> {
    attempts.live.iter().filter_map(|live| Some((*live, calls.find(*live)?)))
}

/// The call that is an attempt of this one, for another endpoint than the others that are under way; `None` if it may
/// not have several.
fn attempt_of(key: CallKey, call: &Call, calls: &Calls, now: Instant) -> Option<Call> {
    let (attempts, types) = (call.attempts.as_ref()?, call.sender_types(Direction::Request)?);
    let client = ClientEnd::Attempt { call: key, types };
    let server = ServerEnd::Cluster { cluster: attempts.cluster };
    let mut attempt = Call::new(call.method, client, server, call.deadline);
    attempt.admitted = true;
    attempt.waits_for_ready = call.waits_for_ready;
    attempt.request_encoding = call.request_encoding;
    (attempt.keeps_encoding, attempt.accepts) = (call.keeps_encoding, call.accepts);
    attempt.path.clone_from(&call.path);
    attempt.choice = call.choice;
    attempt.message_bytes_max = call.message_bytes_max;
    attempt.client_stamps = call.client_stamps;
    attempt.attempt_began = now;
    // While others failed, and while it was waited to begin this one, the call waited: no stack was at work.
    let before_ns = attempts.first_began.map_or(0, |first| now.since_ns(first));
    attempt.attempt_waited_ns = call.client_stamps.wait_ns.saturating_add(before_ns);
    attempt.client_stamps.wait_ns = attempt.attempt_waited_ns;
    attempt.tried.clone_from(&attempts.tried);
    let placed = under_way(calls, attempts).filter_map(|(_, other)| other.placed);
    attempt.tried.extend(placed.map(|placed| placed.endpoint));
    Some(attempt)
}

/// What comes after an attempt that ended in vain. A timer that is returned is not waited for any more.
fn attempt_failed(
    call: &mut Call,
    control: &mut AttemptControl,
    now: Instant,
    end: &mut AttemptEnd<'_>,
) -> (NextAttempt, Option<TimerKey>) {
    call.handed_over |= end.handed_over && end.execution != Execution::NotExecuted;
    let execution = execution_of_all(call, end.execution);
    let Some(attempts) = call.attempts.as_deref_mut() else { return (NextAttempt::Deliver, None) };
    let (next, dropped) = control.failed(now, attempts, end);
    if next != NextAttempt::Deliver {
        let metadata = Cow::Owned(end.trailers.to_vec());
        attempts.last = Some(Outcome { code: end.code, execution, metadata });
    }
    (next, dropped)
}

/// What one attempt knows of itself says nothing of those before it, nor of those that end with it.
fn execution_of_all(call: &Call, of_one: Execution) -> Execution {
    if call.handed_over && of_one == Execution::NotExecuted { Execution::Unknown } else { of_one }
}

/// An attempt takes the place of the call it is of, which has ended as such.
pub(crate) fn take_place(won: &mut Call, call: Call, timer: Option<TimerKey>) {
    (won.client, won.timer, won.deadline) = (call.client, timer, call.deadline);
    (won.parent, won.trace, won.policies) = (call.parent, call.trace, call.policies);
    won.handed_over |= call.handed_over;
    won.seen_before = call.handed_over;
}
