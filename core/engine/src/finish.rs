//! Every way a call can end, and a call that may end several times before that: retries and hedges (gRFC A6).
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
//! What comes after an attempt, and what bounds those of all calls, `attempts/` says. A request that outgrows what may
//! be kept of it commits to the attempt it has.

use crate::admission::CallPolicies;
use crate::attempt::{attempt_in_vain, attempt_of, execution_of_all, note_attempts, take_place};
use crate::attempts::{AttemptsDue, CallAttempts, KeepDecision, KeptItem, NextAttempt};
use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::call_ends::ReleasedParts;
use crate::due::Due;
use crate::ends::{Blocker, ClientSide, EndOfCall, ItemWay, Refusal, ServerSide, deliver_to_server};
use crate::engine::{Engine, Turn};
use crate::limits::KEPT;
use crate::nested::Nested;
use crate::records::{record_abandoned, record_attempt, record_made, take_stamps_of_attempt};
use crate::sampled::sample_answer;
use crate::shard::{ShardStage, return_kept};
use crate::source::{CallSources, made_for, source_of};
use crate::traced::{name_parent, span_of_attempt};
use crate::{CallKey, SessionKey};
use std::borrow::Cow;
use trunkline_call::{Code, Execution, Fault, Instant, Status};
use trunkline_grpc::Outcome;

/// A deadline that is noticed so much later says that this host had no processor, and nothing of the server.
const UNATTENDED_NS: u64 = 20_000_000;
/// Time another shard gets to say how a call ended whose deadline has passed.
const LATE_NS: u64 = 5_000_000;

impl Engine {
    /// The infrastructure ends a call: the client end gets the fault's status, the server end is told to stop.
    pub(crate) fn fail(&mut self, turn: &mut Turn<'_>, key: CallKey, fault: Fault) {
        if let Fault::Limit { name, .. } = &fault {
            *self.limits_met.entry(name).or_default() += 1;
        }
        let Some(call) = self.calls.find(key) else { return };
        let mut status = fault.status();
        if call.handed_over && status.execution() == Execution::NotExecuted && !fault.knows_execution() {
            // A limit that strikes in the middle of a stream: the handler has been at work for long.
            status = status.with_execution(Execution::Unknown);
        }
        if made_for(&self.calls, call).is_some_and(Call::is_for_elsewhere) {
            status = self.peers.said_here(&status);
        }
        self.end(turn, key, &status);
    }

    /// The connection a call was to go on is not there any more.
    pub(crate) fn connection_gone(&self, key: CallKey) -> Fault {
        let Some(call) = self.calls.find(key) else { return Fault::Ended };
        let remote = call.placed.and_then(|placed| self.remotes.find(placed.endpoint));
        let endpoint = remote.map_or_else(|| "its endpoint".to_owned(), |remote| remote.endpoint.to_string());
        Fault::ConnectionLost { endpoint, executed: call.execution() }
    }

    /// How a call ended at the endpoint it was given, with the trailing metadata that came with it.
    pub(crate) fn tell_balancer(&mut self, now: Instant, key: CallKey, code: Option<Code>, trailers: &[u8]) {
        let Some(call) = self.calls.find_mut(key) else { return };
        if let Some(placed) = call.leave_endpoint(code) {
            self.clusters.finished(now, placed, code, trailers);
        }
    }

    /// The caller does not want the call any more: nobody answers it, the server end is told, children end too.
    pub(crate) fn cancel(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        self.cancel_as(turn, key, Code::Cancelled);
    }

    /// The same, when the caller's side says why: its deadline may have passed there first.
    pub(crate) fn cancel_as(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        self.tell_balancer(turn.now, key, None, &[]);
        record_abandoned(self, key, code, turn.now);
        self.stop_server(turn, key, code);
        if let Some(call) = self.calls.find_mut(key) {
            self.nested.add(call.take_children(), code);
        }
        self.end_policies(turn.now, key, code);
        self.forget(key);
    }

    /// The deadline of a call passed.
    pub(crate) fn expire(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let Some(call) = note_attempts(&mut self.calls, key) else { return };
        call.timer = None;
        if let ServerEnd::Shard { stage: ShardStage::Opened | ShardStage::Accepted, late, .. } =
            &mut call.server
            && !std::mem::replace(late, true)
        {
            // There it is known whether a handler has seen the call.
            call.timer = Some(self.timers.insert(turn.now.plus_ns(LATE_NS), Due::Deadline(key)));
            let server = call.server.clone();
            return server.cancel(self, turn, key, Code::DeadlineExceeded);
        }
        if call.outcome.is_none() {
            let executed = call.execution();
            let late_ns = call.deadline.instant().map_or(0, |at| turn.now.since_ns(at));
            if late_ns > UNATTENDED_NS {
                self.tell_balancer(turn.now, key, None, &[]);
            }
            self.fail(turn, key, Fault::DeadlinePassed { executed });
        }
    }

    /// A call one of whose ends was the session that is gone.
    pub(crate) fn end_gone(&mut self, turn: &mut Turn<'_>, key: CallKey, gone: SessionKey) {
        let Some(call) = self.calls.find(key) else { return };
        if call.maker().is_some_and(|(session, _)| session == gone) {
            self.cancel(turn, key);
        } else {
            let executed = call.execution();
            self.fail(turn, key, Fault::HandlerGone { executed });
        }
    }

    /// Ends a call with a status made here.
    pub(crate) fn end(&mut self, turn: &mut Turn<'_>, key: CallKey, status: &Status) {
        self.end_as(turn, key, &Outcome::of(status));
    }

    /// The same, in the form an outcome travels in.
    pub(crate) fn end_as(&mut self, turn: &mut Turn<'_>, key: CallKey, outcome: &Outcome<'_>) {
        let Self { calls, clusters, .. } = self;
        let Some(call) = calls.find_mut(key).filter(|call| call.outcome.is_none()) else { return };
        let (code, execution) = (outcome.code, outcome.execution);
        if let Some(placed) = call.leave_endpoint(Some(code)) {
            clusters.finished(turn.now, placed, Some(code), &[]);
        }
        take_stamps_of_attempt(self, key);
        self.stop_server(turn, key, code);
        let Self { calls, nested, .. } = self;
        let Some(call) = calls.find_mut(key) else { return };
        // Calls its handler made end with it: soon.
        nested.add(call.take_children(), code);
        call.server_measured = false;
        call.response.ended = true;
        let metadata = Cow::Borrowed(&*outcome.metadata);
        self.finish_now(turn, key, &mut Item::Finish { code, execution, body: None, metadata });
    }

    /// Hands the end over, which waits for nothing.
    pub(crate) fn finish_now(&mut self, turn: &mut Turn<'_>, key: CallKey, item: &mut Item<'_>) {
        sample_answer(self, turn, key, item);
        let Some(call) = self.calls.find(key) else { return };
        call.client.clone().finish(self, turn, key, item);
    }

    // LIFE: 22 | record whole: components, histograms, flight recorder | all nine |
    /// The application took a call's last completion: the record is whole, the call is history.
    pub(crate) fn conclude(&mut self, now: Instant, key: CallKey, a18: Instant) {
        let Some(call) = self.calls.find_mut(key) else { return };
        if call.outcome.is_none() || a18 == Instant::default() {
            return;
        }
        call.client_stamps.a18 = a18;
        // It may be told later: its application kept the response.
        let ended = a18.max(call.client_stamps.d17).min(now);
        record_made(self, key, ended);
        self.forget(key);
    }

    /// Tells the server end that nobody waits any more, if it does not know. What waits in the call goes first, while
    /// it is known who is charged with it: the session it leads to, or the connection it came from.
    fn stop_server(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        self.drop_backlogs(key);
        let Some(call) = self.calls.find(key) else { return };
        call.server.clone().cancel(self, turn, key, code);
        self.leave_server(key);
    }

    /// The server end is through with the call: it makes room for another.
    pub(crate) fn leave_server(&mut self, key: CallKey) {
        let Self { calls, workers, unserved, shards, registry, .. } = self;
        let Some(call) = calls.find_mut(key) else { return };
        if call.is_at_worker() {
            return_kept(shards, registry, call);
            if let Some(place) = call.place.take() {
                workers.give_back(place, key);
            }
            if let Some(queued) = call.queued.take() {
                workers.stop_waiting(&queued, key);
                if queued.at.is_none() {
                    unserved.leave(key);
                }
            }
        }
        std::mem::replace(&mut call.server, ServerEnd::Nobody).release(self, key);
    }

    /// Ends calls whose parent has ended, as many as one step may.
    #[inline]
    pub(crate) fn end_nested(&mut self, turn: &mut Turn<'_>) {
        if !self.nested.is_empty() {
            self.end_some_nested(turn);
        }
    }

    fn end_some_nested(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..Nested::PER_STEP_MAX {
            let Some((child, code)) = self.nested.next() else { return };
            let Some(call) = note_attempts(&mut self.calls, child) else { continue };
            let executed = call.execution();
            let fault = match code {
                Code::DeadlineExceeded => Fault::DeadlinePassed { executed },
                _ => Fault::Cancelled { executed },
            };
            self.fail(turn, child, fault);
        }
    }

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
        let Self { calls, sessions, peers, grpc, attempts: control, .. } = self;
        let sources = CallSources { calls, sessions, peers, grpc };
        let attempts = calls.find(key).and_then(|call| call.attempts.as_deref());
        match control.take(attempts, (item.kept_bytes(), opens), || sources.of(key)) {
            KeepDecision::Keep => {}
            KeepDecision::Once => return self.hand_over_once(turn, key, item),
            KeepDecision::Commit(winner) => {
                self.commit_attempt(turn, key, winner, Some(item));
                return Ok(());
            }
            KeepDecision::Wait => return Err(Refusal::Blocked(Blocker::Stream)),
        }
        let Some((kept, live)) = self.keep_item_of(turn, key, item) else { return Ok(()) };
        if opens {
            self.begin_attempt(turn, key, true);
            return Ok(());
        }
        for attempt in live {
            self.pass_on(turn, attempt, Direction::Request, &mut kept.item(0));
        }
        Ok(())
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

    /// Makes an item private and keeps it; its block goes back, and its sender may send as much again. It, and the
    /// attempts under way.
    fn keep_item_of(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        item: &mut Item<'_>,
    ) -> Option<(KeptItem, Vec<CallKey>)> {
        let bytes = item.kept_bytes();
        let body = item.body().map(|body| body.kept(&*turn.heaps));
        if matches!(body, Some(None)) {
            self.drop_item(item);
            let why = "message lies outside the send heap".into();
            self.fail(turn, key, Fault::MalformedRequest { why });
            return None;
        }
        item.body().into_iter().for_each(|body| self.used(body));
        self.credit_sender(key, Direction::Request, item.body().map_or(0, Body::window_cost));
        let kept = KeptItem::of(item, body.flatten());
        let source = source_of(self, key);
        let Self { calls, attempts: control, .. } = self;
        let attempts = calls.find_mut(key)?.attempts.as_deref_mut()?;
        control.keep(key, attempts, (kept.clone(), bytes), || source);
        Some((kept, attempts.live.clone()))
    }

    /// One more attempt, with all of the request there is.
    fn begin_attempt(&mut self, turn: &mut Turn<'_>, key: CallKey, counted: bool) {
        let beside = |live| Some(self.calls.find(live)?.placed?.endpoint);
        let attempt = self.calls.find(key).and_then(|call| attempt_of(key, call, beside, turn.now));
        let Some(attempt) = attempt else { return };
        let attempt = self.calls.insert(attempt);
        let named = span_of_attempt(self, key, attempt);
        let Self { calls, timers, .. } = self;
        let Some(attempts) = calls.find_mut(key).and_then(|call| call.attempts.as_deref_mut()) else {
            return;
        };
        let before = attempts.begin(turn.now, attempt, counted);
        if let Some(delay_ns) = attempts.hedge_delay_ns() {
            attempts.timer = Some(timers.insert(turn.now.plus_ns(delay_ns), Due::Attempt(key)));
        }
        for kept in attempts.kept.clone() {
            let mut item = kept.item(before);
            named.iter().for_each(|parent| name_parent(&mut item, parent));
            self.pass_on(turn, attempt, Direction::Request, &mut item);
        }
        // What did not fit while nobody was there to commit to.
        self.unblock(turn, key, Direction::Request);
    }

    /// The time for another attempt has come.
    pub(crate) fn attempt_due(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let Self { calls, attempts: control, .. } = self;
        let Some(attempts) = calls.find_mut(key).and_then(|call| call.attempts.as_deref_mut()) else {
            return;
        };
        match control.due(turn.now, attempts) {
            AttemptsDue::Begin => self.begin_attempt(turn, key, true),
            AttemptsDue::Wait => {}
            AttemptsDue::End(last) => self.end_as(turn, key, &last),
        }
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
        let Item::Finish { code, execution, metadata, .. } = &mut *item else {
            self.answered_by(turn, call, attempt);
            return true;
        };
        if *code == Code::Ok {
            self.answered_by(turn, call, attempt);
            return true;
        }
        let Self { calls, attempts: control, timers, .. } = &mut *self;
        let (now, end) = (turn.now, (*code, *execution));
        let next = attempt_in_vain(calls, control, timers, now, (call, attempt), end, metadata);
        if next == NextAttempt::Deliver {
            if let Some(call) = note_attempts(&mut self.calls, call) {
                *execution = execution_of_all(call, *execution);
            }
            self.commit_attempt(turn, call, attempt, None);
            return true;
        }
        let code = *code;
        self.drop_item(item);
        record_attempt(self, attempt, code, turn.now);
        self.forget(attempt);
        if let NextAttempt::Now { counted } = next {
            self.begin_attempt(turn, call, counted);
        }
        false
    }

    /// The response has begun: it is this attempt.
    pub(crate) fn response_begun(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let client = self.calls.find(key).map(|call| &call.client);
        if let Some(&ClientEnd::Attempt { call, .. }) = client {
            self.answered_by(turn, call, key);
        }
    }

    fn answered_by(&mut self, turn: &mut Turn<'_>, key: CallKey, winner: CallKey) {
        if let Some(attempts) = self.calls.find(key).and_then(|call| call.attempts.as_ref()) {
            self.attempts.succeeded(attempts);
        }
        self.commit_attempt(turn, key, winner, None);
    }

    /// Ends every attempt of a call that ends otherwise.
    pub(crate) fn give_up_attempts(&mut self, turn: &mut Turn<'_>, key: CallKey, code: Code) {
        let Some(attempts) = self.calls.find_mut(key).and_then(|call| call.attempts.take()) else { return };
        for attempt in &attempts.live {
            self.cancel_as(turn, *attempt, code);
        }
        self.release_attempts(key, &attempts);
    }

    fn release_attempts(&mut self, key: CallKey, attempts: &CallAttempts) {
        self.attempts.release(key, attempts);
        if let Some(timer) = attempts.timer {
            self.timers.cancel(timer);
        }
    }

    /// An attempt takes the call's place. This item of the request goes there, then what waits behind it.
    fn commit_attempt(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        winner: CallKey,
        next: Option<&mut Item<'_>>,
    ) {
        let (calls, mut accounts) = self.wait_accounts();
        let call = calls.find_mut(key);
        let later = call.map(|call| accounts.take_backlog(key, call, Direction::Request)).unwrap_or_default();
        let is_there =
            self.calls.remove(key).map(|call| self.give_place(turn, (key, call), winner)).is_some();
        if let Some(next) = next {
            self.pass_on(turn, winner, Direction::Request, next);
        }
        if is_there {
            for mut item in later {
                self.pass_on(turn, winner, Direction::Request, &mut item);
            }
        }
        // What waits as bytes of the stream of a call that was forwarded may follow what waited as items.
        if self.calls.find(winner).is_some_and(Call::is_forwarded) {
            self.unblock(turn, winner, Direction::Request);
        }
    }

    /// Whoever named a call names its attempt from here on; the other attempts end.
    fn give_place(&mut self, turn: &mut Turn<'_>, (key, mut call): (CallKey, Call), winner: CallKey) {
        if let Some(attempts) = call.attempts.take() {
            for loser in attempts.live.iter().filter(|live| **live != winner) {
                // The call was answered elsewhere before its endpoint did: that is slow.
                if let Some(placed) = self.calls.find_mut(*loser).and_then(|call| call.placed.take()) {
                    self.clusters.outpaced(turn.now, placed);
                }
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
            take_place(won, call, timer);
        }
        self.samples.rename(key, winner);
    }

    /// Removes a call and everything that names it.
    pub(crate) fn forget(&mut self, key: CallKey) {
        let Some(mut call) = self.calls.find_mut(key) else { return };
        if !call.has_let_go() {
            self.drop_backlogs(key);
            self.leave_server(key);
            let Some(again) = self.calls.find_mut(key) else { return };
            call = again;
        }
        let ReleasedParts { policies, timer, parent, subtree, client } = call.take_released();
        self.samples.forget(key);
        self.calls.put_by(key);
        if let Some(policies) = policies {
            self.dismiss(key, policies, None);
        }
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
        if let Some(parent) = parent.and_then(|parent| self.calls.find_mut(parent)) {
            parent.subtree_below = parent.subtree_below.saturating_add(subtree);
        }
        client.release(self, key);
    }

    /// A call has ended with `code`: what it held is free, and its line is written.
    pub(crate) fn end_policies(&mut self, now: Instant, key: CallKey, code: Code) {
        let Some(policies) = self.calls.find_mut(key).and_then(|call| call.policies.take()) else { return };
        let is_logged = policies.is_logged();
        self.dismiss(key, policies, Some((now, code)));
        if is_logged
            && self.admission.logs()
            && let Some(call) = self.calls.find(key)
            && let Some(record) = self.sources().access_record(now, call, &self.registry, code)
        {
            self.admission.log(record);
        }
    }

    /// Policies are through with a call.
    pub(crate) fn dismiss(
        &mut self,
        key: CallKey,
        policies: Box<CallPolicies>,
        end: Option<(Instant, Code)>,
    ) {
        if let Some(timer) = self.admission.dismiss(key.to_bits(), policies, end) {
            self.timers.cancel(timer);
        }
    }

    /// Throws away what waits in a call, which has the ends it waits for.
    pub(crate) fn drop_backlogs(&mut self, key: CallKey) {
        let (calls, mut accounts) = self.wait_accounts();
        let Some(call) = calls.find_mut(key) else { return };
        if call.request.is_at_rest() && call.response.is_at_rest() {
            return;
        }
        let request = accounts.take_all(key, call, Direction::Request);
        let response = accounts.take_all(key, call, Direction::Response);
        request.chain(response).for_each(|mut item| self.drop_item(&mut item));
    }
}
