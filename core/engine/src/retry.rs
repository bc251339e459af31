//! Calls that may take more than one attempt: retries and hedges (gRFC A6).
//!
//! A call whose method has a retry or hedging policy, and which goes to an endpoint, keeps its request. Every attempt
//! is a call of its own, whose client end is the first call. As soon as one brings more than an end in vain, that
//! attempt takes the place of the call (*commits*): the client end becomes its own, the others are cancelled, what was
//! kept is forgotten. From there on it is as if there had never been more than one.
//!
//! ```text
//!   session ── call ─┬─ attempt ── endpoint          session ── attempt ── endpoint
//!                    └─ attempt ── endpoint    ▶
//! ```
//!
//! What a call remembers of its attempts, and what bounds those of all calls, is in `attempts/`. A request that
//! outgrows what may be kept of it commits to the attempt it has.

use crate::CallKey;
use crate::attempts::{AttemptEnd, CallAttempts, KeptItem, NextAttempt};
use crate::call::{Body, Call, ClientEnd, Direction, Item, KeptBody, ServerEnd};
use crate::due::Due;
use crate::ends::{Blocker, ItemWay, Refusal, deliver_to_server};
use crate::engine::{Engine, Turn};
use crate::limits::KEPT;
use crate::records::record_attempt;
use crate::source::{CallSources, source_of};
use crate::traced::{name_parent, span_of_attempt};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::{Code, Encoding, Execution, Fault, Instant};
use trunkline_grpc::Outcome;

impl Engine {
    // LIFE: 6 | retries and hedges prepared, where the service's configuration has them |
    /// Notes that a call may take several attempts, if it may.
    pub(crate) fn arm_attempts(&mut self, key: CallKey, body_bytes: u32) {
        if self.attempts.says_nothing() {
            return;
        }
        let Some(call) = self.calls.find_mut(key).filter(|call| call.is_made_here()) else { return };
        let ServerEnd::Cluster { cluster } = call.server else { return };
        let path = self.registry.path(call.method);
        if let Some(attempts) = self.attempts.begin(path, cluster, body_bytes) {
            call.server = ServerEnd::Attempts;
            call.attempts = Some(attempts);
        }
    }

    // LIFE: 9
    /// An item of a request: kept, and sent to every attempt there is.
    pub(crate) fn hand_to_attempts(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let opens = matches!(item, Item::Open { .. });
        if !self.can_keep(key, item.kept_bytes()) {
            if opens {
                return self.hand_over_once(turn, key, item);
            }
            let attempts = self.calls.find(key).and_then(|call| call.attempts.as_deref());
            let live = attempts.and_then(|attempts| attempts.live.first().copied());
            let Some(winner) = live else { return Err(Refusal::Blocked(Blocker::Stream)) };
            let later = self.commit_attempt(turn, key, winner);
            self.pass_on(turn, winner, Direction::Request, item);
            self.pass_later(turn, winner, later);
            self.pump_forwarded(turn, winner);
            return Ok(());
        }
        let Some(kept) = self.keep_item_of(turn, key, item) else { return Ok(()) };
        if opens {
            self.begin_attempt(turn, key, true);
            return Ok(());
        }
        for attempt in self.attempts_of(key).map_or_else(Vec::new, |attempts| attempts.live.clone()) {
            self.pass_on(turn, attempt, Direction::Request, &mut kept.item(0));
        }
        Ok(())
    }

    /// Whether so many bytes of a call's request can be kept.
    fn can_keep(&mut self, key: CallKey, bytes: usize) -> bool {
        let Self { calls, sessions, peers, grpc, attempts: control, .. } = self;
        let sources = CallSources { calls, sessions, peers, grpc };
        let attempts = calls.find(key).and_then(|call| call.attempts.as_deref());
        attempts.is_some_and(|attempts| control.has_room(attempts, bytes, || sources.of(key)))
    }

    /// There is no room to keep a request: it has one attempt, and that is the call.
    fn hand_over_once(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        *self.limits_met.entry(KEPT).or_default() += 1;
        if let Some(call) = self.calls.find_mut(key)
            && let Some(attempts) = call.attempts.take()
        {
            call.server = ServerEnd::Cluster { cluster: attempts.cluster };
        }
        deliver_to_server(self, turn, ItemWay { key, direction: Direction::Request }, opening)
    }

    /// A response item of an attempt. `false` if the attempt was in vain and the item is used up; else the attempt has
    /// taken the call's place, and the item goes to the application.
    pub(crate) fn answer_of_attempt(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallKey,
        attempt: CallKey,
        item: &mut Item<'_>,
    ) -> bool {
        if let Item::Finish { code, execution, metadata, .. } = &mut *item
            && *code != Code::Ok
        {
            let next = self.after_failure(turn, call, attempt, (*code, *execution), metadata);
            if next == NextAttempt::Deliver {
                self.note_attempts(call);
            }
            // What one attempt knows of itself says nothing of those before it, nor of those that end with it.
            if self.calls.find(call).is_some_and(|call| call.handed_over)
                && *execution == Execution::NotExecuted
            {
                *execution = Execution::Unknown;
            }
            if next != NextAttempt::Deliver {
                let (code, metadata) = (*code, Cow::Owned(metadata.to_vec()));
                let last = Outcome { code, execution: *execution, metadata };
                if let Some(attempts) = self.attempts_of(call) {
                    attempts.last = Some(last);
                }
                self.drop_item(item);
                record_attempt(self, attempt, code, turn.now);
                self.forget(attempt);
                self.follow(turn, call, next);
                return false;
            }
        } else {
            self.note_success(call);
        }
        self.commit_and_go_on(turn, call, attempt);
        true
    }

    /// The response has begun: it is this attempt.
    pub(crate) fn response_begun(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let Some(ClientEnd::Attempt { call, .. }) = self.calls.find(key).map(|call| &call.client) else {
            return;
        };
        let call = *call;
        self.note_success(call);
        self.commit_and_go_on(turn, call, key);
    }

    /// The time for another attempt has come.
    pub(crate) fn attempt_due(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let Self { calls, attempts: control, .. } = self;
        let Some(attempts) = calls.find_mut(key).and_then(|call| call.attempts.as_deref_mut()) else {
            return;
        };
        attempts.timer = None;
        // A retry was paid for when it was decided on.
        if !attempts.hedges() || control.may_try(turn.now, attempts) {
            return self.begin_attempt(turn, key, true);
        }
        if attempts.live.is_empty()
            && let Some(last) = attempts.last.take()
        {
            self.end_as(turn, key, &last);
        }
    }

    /// Whether some attempt may have been seen by a server.
    pub(crate) fn note_attempts(&mut self, key: CallKey) {
        let Some(attempts) = self.calls.find(key).and_then(|call| call.attempts.as_ref()) else { return };
        let handed_over = |key: &CallKey| self.calls.find(*key).is_some_and(|call| call.handed_over);
        if attempts.live.iter().any(handed_over)
            && let Some(call) = self.calls.find_mut(key)
        {
            call.handed_over = true;
        }
    }

    /// Ends every attempt of a call that ends otherwise.
    pub(crate) fn give_up_attempts(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        let Some(attempts) = self.calls.find_mut(key).and_then(|call| call.attempts.take()) else { return };
        for attempt in &attempts.live {
            self.cancel_as(turn, *attempt, code);
        }
        self.release_attempts(key, &attempts);
    }

    fn attempts_of(&mut self, key: CallKey) -> Option<&mut CallAttempts> {
        self.calls.find_mut(key)?.attempts.as_deref_mut()
    }

    fn release_attempts(&mut self, key: CallKey, attempts: &CallAttempts) {
        self.attempts.release(key, attempts);
        if let Some(timer) = attempts.timer {
            self.timers.cancel(timer);
        }
    }

    /// Makes an item private and keeps it; its block goes back, and its sender may send as much again.
    fn keep_item_of(&mut self, turn: &mut Turn<'_>, key: CallKey, item: &mut Item<'_>) -> Option<KeptItem> {
        let bytes = item.kept_bytes();
        let body = match item.body() {
            None => None,
            Some(body) => match keep_body(turn, body) {
                Some(body) => Some(body),
                None => {
                    self.drop_item(item);
                    let why = "message lies outside the send heap".into();
                    self.fail(turn, key, Fault::MalformedRequest { why });
                    return None;
                }
            },
        };
        item.body().into_iter().for_each(|body| self.used(body));
        self.credit_sender(key, Direction::Request, item.body().map_or(0, Body::window_cost));
        let kept = match (item, body) {
            (Item::Open { metadata, end, .. }, body) => {
                KeptItem::Open { metadata: (**metadata).into(), body, end: *end }
            }
            (Item::Message { end, .. }, Some(body)) => KeptItem::Message { body, end: *end },
            _ => KeptItem::HalfClose,
        };
        let source = source_of(self, key);
        let Self { calls, attempts: control, .. } = self;
        let attempts = calls.find_mut(key)?.attempts.as_deref_mut()?;
        control.keep(key, attempts, (kept.clone(), bytes), || source);
        Some(kept)
    }

    /// One more attempt, with all of the request there is.
    fn begin_attempt(&mut self, turn: &mut Turn<'_>, key: CallKey, counted: bool) {
        let Some(attempt) = self.calls.find(key).and_then(|call| self.attempt_of(turn.now, key, call)) else {
            return;
        };
        let attempt = self.calls.insert(attempt);
        let named = span_of_attempt(self, key, attempt);
        let Some(attempts) = self.attempts_of(key) else { return };
        let before = attempts.begin(turn.now, attempt, counted);
        let items = attempts.kept.clone();
        if let Some(delay_ns) = attempts.hedge_delay_ns() {
            self.book_attempt(turn, key, delay_ns);
        }
        for kept in items {
            let mut item = kept.item(before);
            named.iter().for_each(|parent| name_parent(&mut item, parent));
            self.pass_on(turn, attempt, Direction::Request, &mut item);
        }
        // What did not fit while nobody was there to commit to.
        self.unblock(turn, key, Direction::Request);
    }

    /// The call that is an attempt of this one.
    fn attempt_of(&self, now: Instant, key: CallKey, call: &Call) -> Option<Call> {
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
        let beside = attempts.live.iter().filter_map(|live| self.calls.find(*live)?.placed);
        attempt.tried.extend(beside.map(|placed| placed.endpoint));
        Some(attempt)
    }

    fn book_attempt(&mut self, turn: &Turn<'_>, key: CallKey, delay_ns: u64) {
        let timer = self.timers.insert(turn.now.plus_ns(delay_ns), Due::Attempt(key));
        if let Some(attempts) = self.attempts_of(key) {
            attempts.timer = Some(timer);
        }
    }

    fn note_success(&mut self, key: CallKey) {
        if let Some(attempts) = self.calls.find(key).and_then(|call| call.attempts.as_ref()) {
            self.attempts.succeeded(attempts);
        }
    }

    /// An attempt ended in vain: what now?
    fn after_failure(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        attempt: CallKey,
        (code, execution): (Code, Execution),
        trailers: &[u8],
    ) -> NextAttempt {
        let Some(ended) = self.calls.find_mut(attempt) else { return NextAttempt::Deliver };
        let (handed_over, tried) = (ended.handed_over, std::mem::take(&mut ended.tried));
        let Self { calls, attempts: control, timers, .. } = self;
        let Some(call) = calls.find_mut(key) else { return NextAttempt::Deliver };
        call.handed_over |= handed_over && execution != Execution::NotExecuted;
        let Some(attempts) = call.attempts.as_deref_mut() else { return NextAttempt::Deliver };
        let end = AttemptEnd { attempt, handed_over, tried, code, execution, trailers };
        let (next, dropped) = control.failed(turn.now, attempts, end);
        if let Some(timer) = dropped {
            timers.cancel(timer);
        }
        next
    }

    fn follow(&mut self, turn: &mut Turn<'_>, key: CallKey, next: NextAttempt) {
        match next {
            NextAttempt::Deliver | NextAttempt::Wait => {}
            NextAttempt::AgainUncounted => {
                if let Some(attempts) = self.attempts_of(key) {
                    attempts.transparent += 1;
                }
                self.begin_attempt(turn, key, false);
            }
            NextAttempt::Again => {
                self.drop_attempt_timer(key);
                self.begin_attempt(turn, key, true);
            }
            NextAttempt::After(ns) => {
                self.drop_attempt_timer(key);
                self.book_attempt(turn, key, ns);
            }
        }
    }

    fn drop_attempt_timer(&mut self, key: CallKey) {
        if let Some(timer) = self.attempts_of(key).and_then(|attempts| attempts.timer.take()) {
            self.timers.cancel(timer);
        }
    }

    fn commit_and_go_on(&mut self, turn: &mut Turn<'_>, call: CallKey, winner: CallKey) {
        let later = self.commit_attempt(turn, call, winner);
        self.pass_later(turn, winner, later);
        self.pump_forwarded(turn, winner);
    }

    /// What waits as bytes of the stream of a call that was forwarded may follow what waited as items.
    fn pump_forwarded(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        if self.calls.find(key).is_some_and(Call::is_forwarded) {
            self.unblock(turn, key, Direction::Request);
        }
    }

    fn pass_later(&mut self, turn: &mut Turn<'_>, key: CallKey, later: VecDeque<Item<'static>>) {
        for mut item in later {
            self.pass_on(turn, key, Direction::Request, &mut item);
        }
    }

    /// An attempt takes the call's place. Returns what of the request was not kept, and is still to go.
    fn commit_attempt(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        winner: CallKey,
    ) -> VecDeque<Item<'static>> {
        let later = self.calls.find_mut(key).map(|call| std::mem::take(&mut call.request.backlog));
        let later = later.unwrap_or_default();
        later.iter().for_each(|item| self.unaccount(key, Direction::Request, item));
        let Some(mut call) = self.calls.remove(key) else { return VecDeque::new() };
        if let Some(attempts) = call.attempts.take() {
            for loser in attempts.live.iter().filter(|live| **live != winner) {
                self.outpaced(turn.now, *loser);
                self.cancel_as(turn, *loser, Code::Cancelled);
            }
            self.release_attempts(key, &attempts);
        }
        if let Some(timer) = call.timer {
            self.timers.cancel(timer);
        }
        let timer = call.deadline.instant().map(|at| self.timers.insert(at, Due::Deadline(winner)));
        if let Some((session, id)) = call.maker()
            && let Some(session) = self.sessions.find_mut(session)
        {
            session.made.insert(id, winner);
        }
        if let Some(parent) = call.parent.and_then(|parent| self.calls.find_mut(parent)) {
            // What it was is over.
            parent.children.push(winner);
        }
        self.grpc.rename_call(&call, winner);
        if let ClientEnd::Shard { shard, call: number, .. } = call.client {
            self.shards.enter(shard, number, winner);
        }
        if let Some(won) = self.calls.find_mut(winner) {
            (won.client, won.timer, won.deadline) = (call.client, timer, call.deadline);
            (won.parent, won.trace, won.policies) = (call.parent, call.trace, call.policies);
            won.handed_over |= call.handed_over;
        }
        self.samples.rename(key, winner);
        later
    }
}

/// A private copy of what an application sends.
pub(crate) fn keep_body(turn: &Turn<'_>, body: &Body<'_>) -> Option<KeptBody> {
    let (bytes, encoding, packing): (Arc<[u8]>, _, _) = match body {
        Body::Lent { session, payload } => {
            let mut bytes = Vec::with_capacity(payload.span.len as usize);
            let sealed = turn.heaps.seal(*session, payload.span, &mut bytes);
            (sealed.then_some(bytes)?.into(), payload.encoding, None)
        }
        Body::Sealed { payload, bytes, .. } => ((**bytes).into(), payload.encoding, None),
        Body::Kept(kept) => return Some(kept.clone()),
        Body::Crossed(crossed) => ((*crossed.bytes).into(), crossed.encoding, None),
        Body::Wire { bytes, encoding: Encoding::Protobuf, .. } => {
            ((**bytes).into(), Encoding::Protobuf, None)
        }
        Body::Packed { bytes, packing, .. } => ((**bytes).into(), Encoding::Protobuf, Some(*packing)),
        // Without its header, and of a type only its peer has told.
        Body::Wire { .. } | Body::Placed { .. } => return None,
    };
    Some(KeptBody { bytes, encoding, packing, compression: body.compression() })
}
