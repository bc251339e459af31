//! One attempt of a call: a call of its own, made of the call it is for, whose place it may take.

use crate::attempts::{AttemptControl, AttemptEnd, NextAttempt};
use crate::call::{Call, Calls, ClientEnd, Direction, ServerEnd};
use crate::due::Due;
use crate::{CallKey, RemoteKey};
use std::borrow::Cow;
use trunkline_call::{Code, Execution, Instant, TimerKey, TimerTable};
use trunkline_grpc::Outcome;

/// The call that is an attempt of this one, beside others that are under way at these endpoints; `None` if it may not
/// have several.
pub(crate) fn attempt_of(
    key: CallKey,
    call: &Call,
    beside: impl Fn(CallKey) -> Option<RemoteKey>,
    now: Instant,
) -> Option<Call> {
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
    attempt.tried.extend(attempts.live.iter().filter_map(|live| beside(*live)));
    Some(attempt)
}

/// A call, with which it is noted now whether some attempt of it may have been seen by a server.
pub(crate) fn note_attempts(calls: &mut Calls, key: CallKey) -> Option<&mut Call> {
    let attempts = calls.find(key)?.attempts.as_ref();
    let handed_over = |key: &CallKey| calls.find(*key).is_some_and(|call| call.handed_over);
    let is_seen = attempts.is_some_and(|attempts| attempts.live.iter().any(handed_over));
    let call = calls.find_mut(key)?;
    call.handed_over |= is_seen;
    Some(call)
}

/// An attempt of a call ended in vain, so: what now? One that is to come later is booked.
pub(crate) fn attempt_in_vain(
    calls: &mut Calls,
    control: &mut AttemptControl,
    timers: &mut TimerTable<Due>,
    now: Instant,
    (key, attempt): (CallKey, CallKey),
    (code, execution): (Code, Execution),
    trailers: &[u8],
) -> NextAttempt {
    let Some(ended) = calls.find_mut(attempt) else { return NextAttempt::Deliver };
    let (handed_over, tried) = (ended.handed_over, std::mem::take(&mut ended.tried));
    let mut end = AttemptEnd { attempt, handed_over, tried, code, execution, trailers };
    let Some(call) = calls.find_mut(key) else { return NextAttempt::Deliver };
    let (next, dropped) = attempt_failed(call, control, now, &mut end);
    if let Some(timer) = dropped {
        timers.cancel(timer);
    }
    if let (NextAttempt::After(ns), Some(attempts)) = (next, &mut call.attempts) {
        attempts.timer = Some(timers.insert(now.plus_ns(ns), Due::Attempt(key)));
    }
    next
}

/// The same of the call itself. A timer that is returned is not waited for any more.
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
pub(crate) fn execution_of_all(call: &Call, of_one: Execution) -> Execution {
    if call.handed_over && of_one == Execution::NotExecuted { Execution::Unknown } else { of_one }
}

/// An attempt takes the place of the call it is of, which has ended as such.
pub(crate) fn take_place(won: &mut Call, call: Call, timer: Option<TimerKey>) {
    (won.client, won.timer, won.deadline) = (call.client, timer, call.deadline);
    (won.parent, won.trace, won.policies) = (call.parent, call.trace, call.policies);
    won.handed_over |= call.handed_over;
}
