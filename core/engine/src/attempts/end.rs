//! Attempts as the server end of a call, and a call as the client end of its attempts (gRFC A6).
//!
//! A call whose method has a retry or hedging policy, and which goes to an endpoint, keeps its request. Every attempt
//! is a call of its own (`attempt.rs`), whose client end is the first call. As soon as one brings more than an end in
//! vain, that attempt takes the place of the call (*commits*): the client end becomes its own, the others are
//! cancelled, what was kept is forgotten. From there on it is as if there had never been more than one.
//!
//! ```text
//!   session ── call ─┬─ attempt ── endpoint          session ── attempt ── endpoint
//!                    └─ attempt ── endpoint    ▶
//! ```
//!
//! A request that outgrows what may be kept of it commits to the attempt it has.

use super::attempt::{AttemptOwners, take_place};
use super::call_attempts::{CallAttempts, KeptItem};
use super::control::{AttemptsDue, KeepDecision, NextAttempt};
use crate::CallKey;
use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::due::Due;
use crate::ends::{
    AttemptCaller, AttemptsServer, Blocker, ClientSide, ClusterTarget, EndOfCall, HandedItem, Opens, Refusal,
    ServerSide,
};
use crate::engine::Engine;
use crate::in_vain::name_first_in_vain;
use crate::lent_call::LentCall;
use crate::limits::KEPT;
use crate::owners::Owners;
use crate::records::{CallRecorder, progress_of_attempts};
use crate::source::CallSources;
use crate::traced::name_parent;
use crate::turn::Turn;
use trunkline_call::{Code, Fault, Instant};

impl EndOfCall for AttemptsServer {
    /// They are calls of their own: [`take_for_attempts`].
    fn deliver(
        &self,
        _owners: &mut Owners,
        _turn: &mut Turn<'_>,
        _call: &mut LentCall<'_>,
        _direction: Direction,
        _item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        Ok(HandedItem::ToAttempts)
    }

    /// What attempts have taken was credited when it was kept.
    fn credit(&self, _owners: &mut Owners, _call: (CallKey, &Call), _bytes: u32, _over: bool) {}

    fn release(&self, _owners: &mut Owners, _call: (CallKey, &mut Call)) {}
}

impl ServerSide for AttemptsServer {
    /// They are calls of their own, which the engine ends.
    fn cancel(&self, _owners: &mut Owners, _now: Instant, _call: (CallKey, &Call), _code: Code) {}
}

// LIFE: 9
/// An item of a request: kept, and sent to every attempt there is.
///
/// # Errors
/// What it has to wait for, or what ends the call.
pub(crate) fn take_for_attempts(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    key: CallKey,
    item: &mut Item<'_>,
) -> Result<(), Refusal> {
    let opens = matches!(item, Item::Open { .. });
    let Engine { calls, owners } = engine;
    let mut lent = LentCall::of(calls, key).ok_or(Refusal::Fault(Fault::Ended))?;
    let Owners { sessions, peers, grpc, attempts: control, .. } = &mut *owners;
    let call = &mut *lent.call;
    let source = |call: &Call| CallSources { sessions, peers, grpc }.of(call);
    let asked = (item.kept_bytes(), opens);
    match control.take(call.attempts.as_deref(), asked, || source(call)) {
        KeepDecision::Keep => {}
        KeepDecision::Once => {
            let Some(attempts) = call.attempts.take() else { return Err(Refusal::Fault(Fault::Ended)) };
            call.server = ServerEnd::Cluster { cluster: attempts.cluster };
            // It has one attempt, and that is the call.
            *owners.limits_met.entry(KEPT).or_default() += 1;
            return ClusterTarget { cluster: attempts.cluster }.open(owners, turn, &mut lent, item);
        }
        KeepDecision::Commit(winner) => {
            commit(engine, turn, (key, winner), Some(item));
            return Ok(());
        }
        KeepDecision::Wait => return Err(Refusal::Blocked(Blocker::Stream)),
    }
    // A copy of it: its block goes back, and its sender may send as much again.
    let body = item.body().map(|body| body.kept(&*turn.heaps));
    if matches!(body, Some(None)) {
        let why = "message lies outside the send heap".into();
        return Err(Refusal::Fault(Fault::MalformedRequest { why }));
    }
    let kept = KeptItem::of(item, body.flatten());
    let source = source(call);
    let Some(attempts) = call.attempts.as_deref_mut() else { return Ok(()) };
    control.keep(key, attempts, (kept.clone(), asked.0), || source);
    let live = if opens { Vec::new() } else { attempts.live.clone() };
    item.body().into_iter().for_each(|body| owners.used(body));
    owners.credit_sender(lent.named(), Direction::Request, item.body().map_or(0, Body::window_cost));
    if opens {
        begin(engine, turn, key, true);
    }
    for attempt in live {
        engine.pass_on(turn, attempt, Direction::Request, &mut kept.item(0));
    }
    Ok(())
}

/// Ends every attempt of a call that ends otherwise, from which they are taken.
#[cold]
pub(crate) fn end_attempts(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    key: CallKey,
    attempts: &CallAttempts,
    code: Code,
) {
    let Engine { calls, owners } = engine;
    if let Some(first) = attempts.live.first() {
        name_first_in_vain(owners, calls, *first);
    }
    let first = progress_of_attempts(calls, Some(attempts));
    if let Some(call) = calls.find_mut(key) {
        call.comes_as_far_as(first);
    }
    for attempt in &attempts.live {
        engine.cancel_as(turn, *attempt, code);
    }
    release(engine, key, attempts);
}

impl EndOfCall for AttemptCaller {
    /// A response item of an attempt: [`is_answered`].
    fn deliver(
        &self,
        _owners: &mut Owners,
        _turn: &mut Turn<'_>,
        _call: &mut LentCall<'_>,
        _direction: Direction,
        _item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        Ok(HandedItem::OfAttempt(self.call))
    }

    /// What a request may send is given back when it is kept.
    fn credit(&self, _owners: &mut Owners, _call: (CallKey, &Call), _bytes: u32, _over: bool) {}

    fn release(&self, _owners: &mut Owners, _call: (CallKey, &mut Call)) {}
}

impl ClientSide for AttemptCaller {
    fn finish(
        &self,
        _owners: &mut Owners,
        _turn: &mut Turn<'_>,
        _call: &mut LentCall<'_>,
        _finish: &mut Item<'_>,
    ) -> HandedItem {
        HandedItem::OfAttempt(self.call)
    }
}

/// The time for another attempt has come.
pub(crate) fn attempt_due(engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey) {
    let Engine { calls, owners: Owners { attempts: control, .. } } = engine;
    let attempts = calls.find_mut(key).and_then(|call| call.attempts.as_deref_mut());
    match attempts.map(|attempts| control.due(turn.now, attempts)) {
        Some(AttemptsDue::Begin) => begin(engine, turn, key, true),
        Some(AttemptsDue::End(last)) => engine.end_as(turn, key, &last),
        Some(AttemptsDue::Wait) | None => {}
    }
}

/// The response to a call has begun: if that is an attempt, it is the one.
pub(crate) fn response_begun(engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey) {
    let client = engine.calls.find(key).map(|call| &call.client);
    if let Some(&ClientEnd::Attempt { call, .. }) = client {
        answered_by(engine, turn, (call, key));
    }
}

/// Whether an attempt that gets this response item has taken its call's place. Else it was in vain, and the item is
/// used up.
pub(crate) fn is_answered(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    (call, attempt): (CallKey, CallKey),
    item: &mut Item<'_>,
) -> bool {
    let Item::Finish { code, execution, metadata, .. } = &mut *item else {
        answered_by(engine, turn, (call, attempt));
        return true;
    };
    if *code == Code::Ok {
        answered_by(engine, turn, (call, attempt));
        return true;
    }
    let end = (*code, *execution);
    let (next, executed) = owners(engine).in_vain(turn.now, (call, attempt), end, metadata);
    if next == NextAttempt::Deliver {
        *execution = executed;
        commit(engine, turn, (call, attempt), None);
        return true;
    }
    engine.owners.drop_item(item);
    let Engine { calls, owners: Owners { telemetry, registry, plant, .. } } = engine;
    if let Some(attempt) = calls.find(attempt) {
        CallRecorder { telemetry, registry, plant }.attempt(turn.now, attempt, end.0);
    }
    engine.forget(attempt);
    if let NextAttempt::Now { counted } = next {
        begin(engine, turn, call, counted);
    }
    false
}

/// An attempt was answered, and takes the call's place.
fn answered_by(engine: &mut Engine, turn: &mut Turn<'_>, (key, winner): (CallKey, CallKey)) {
    let Some(call) = engine.calls.remove(key) else { return };
    if let Some(attempts) = call.attempts.as_deref() {
        engine.owners.attempts.succeeded(attempts);
    }
    put_in_place(engine, turn, (key, call), winner, None);
}

/// One more attempt, with all of the request there is.
fn begin(engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, counted: bool) {
    let Some(begun) = owners(engine).begin(turn.now, key, counted) else { return };
    for kept in begun.kept {
        let mut item = kept.item(begun.before);
        begun.named.iter().for_each(|parent| name_parent(&mut item, parent));
        engine.pass_on(turn, begun.key, Direction::Request, &mut item);
    }
    // What did not fit while nobody was there to commit to.
    engine.unblock(turn, key, Direction::Request);
}

/// An attempt takes the call's place. This item of the request goes there, then what waits behind it.
fn commit(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    (key, winner): (CallKey, CallKey),
    next: Option<&mut Item<'_>>,
) {
    if let Some(call) = engine.calls.remove(key) {
        put_in_place(engine, turn, (key, call), winner, next);
    }
}

/// The same of a call that is taken out.
fn put_in_place(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    (key, mut call): (CallKey, Call),
    winner: CallKey,
    next: Option<&mut Item<'_>>,
) {
    let later = engine.owners.accounts().take_backlog(key, &mut call, Direction::Request);
    let is_forwarded = call.is_forwarded();
    give_place(engine, turn, (key, call), winner);
    if let Some(next) = next {
        engine.pass_on(turn, winner, Direction::Request, next);
    }
    for mut item in later {
        engine.pass_on(turn, winner, Direction::Request, &mut item);
    }
    // What waits as bytes of the stream of a call that was forwarded may follow what waited as items.
    if is_forwarded {
        engine.unblock(turn, winner, Direction::Request);
    }
}

/// Whoever named a call names its attempt from here on; the other attempts end.
fn give_place(engine: &mut Engine, turn: &mut Turn<'_>, (key, mut call): (CallKey, Call), winner: CallKey) {
    if let Some(attempts) = call.attempts.take() {
        for loser in attempts.live.iter().filter(|live| **live != winner) {
            let lost = engine.calls.find_mut(*loser);
            call.handed_over |= lost.as_ref().is_some_and(|lost| lost.handed_over);
            // The call was answered elsewhere before its endpoint did: that is slow.
            if let Some(placed) = lost.and_then(|lost| lost.placed.take()) {
                engine.owners.clusters.outpaced(turn.now, placed);
            }
            engine.cancel_as(turn, *loser, Code::Cancelled);
        }
        release(engine, key, &attempts);
    }
    let Engine { calls, owners: Owners { timers, sessions, grpc, shards, samples, .. } } = engine;
    if let Some(timer) = call.timer {
        timers.cancel(timer);
    }
    let timer = call.deadline.instant().map(|at| timers.insert(at, Due::Deadline(winner)));
    if let Some((session, id)) = call.maker()
        && let Some(session) = sessions.find_mut(session)
    {
        session.made.insert(id, winner);
    }
    if let Some(parent) = call.parent.and_then(|parent| calls.find_mut(parent)) {
        // What it was is over.
        parent.children.push(winner);
    }
    grpc.rename_call(&call, winner);
    if let ClientEnd::Shard { shard, call: number, .. } = call.client {
        shards.enter(shard, number, winner);
    }
    if let Some(won) = calls.find_mut(winner) {
        take_place(won, call, timer);
    }
    samples.rename(key, winner);
}

/// What a call kept for its attempts is free.
fn release(engine: &mut Engine, key: CallKey, attempts: &CallAttempts) {
    engine.owners.attempts.release(key, attempts);
    if let Some(timer) = attempts.timer {
        engine.owners.timers.cancel(timer);
    }
}

fn owners(engine: &mut Engine) -> AttemptOwners<'_> {
    let Engine { calls, owners: Owners { attempts: control, timers, spans, .. } } = engine;
    AttemptOwners { calls, control, timers, spans }
}
