//! One attempt of a call: a call of its own, made of the call it is for, whose place it may take.

use crate::attempts::{AttemptControl, AttemptEnd, NextAttempt};
use crate::call::{Call, ClientEnd, Direction, ServerEnd};
use crate::{CallKey, RemoteKey};
use std::borrow::Cow;
use trunkline_call::{Execution, Instant, TimerKey};
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

/// An attempt of a call ended in vain: what now? A timer that is returned is not waited for any more.
pub(crate) fn attempt_failed(
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
