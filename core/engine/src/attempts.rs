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
//! Further attempts are bounded by the policy's number, the service's throttle, the server's pushback and the host's
//! budget; what is kept by bytes per call and per shard. A request that outgrows them commits to the attempt it has.

use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::cluster::ClusterKey;
use crate::due::Due;
use crate::engine::{Engine, Turn};
use crate::packing::Packing;
use crate::pass::{Blocker, Refusal};
use crate::{CallKey, RemoteKey};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_balance::{Backoff, Throttle};
use trunkline_call::{Code, Encoding, Execution, TimerKey};
use trunkline_grpc::Outcome;
use trunkline_grpc::retry::{Pushback, pushback, with_previous_attempts};
use trunkline_grpc::service_config::{Attempts as Policy, MethodConfig, ServiceConfig};

/// The attempts of one call.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Attempts {
    config: Arc<MethodConfig>,
    cluster: ClusterKey,
    service: Box<str>,
    /// The request so far.
    kept: Vec<Kept>,
    pub(crate) kept_bytes: usize,
    /// Those under way.
    live: Vec<CallKey>,
    /// Those made, and those made because a server said it had not seen the one before.
    made: u32,
    transparent: u32,
    /// Retries since the server last named a time.
    backed_off: u32,
    /// When there will be another.
    timer: Option<TimerKey>,
    /// A server wants no more.
    is_stopped: bool,
    /// Endpoints that were tried.
    tried: Vec<RemoteKey>,
    /// How the last one ended, should there be no other.
    last: Option<Outcome<'static>>,
}

/// An item of a request that can be sent again.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
enum Kept {
    Open { metadata: Arc<[u8]>, body: Option<KeptBody>, end: bool },
    Message { body: KeptBody, end: bool },
    HalfClose,
}

/// A message, private, shared by all attempts.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct KeptBody {
    pub bytes: Arc<[u8]>,
    pub encoding: Encoding,
    /// A gRPC peer has packed it.
    #[serde(default)]
    pub packing: Option<Packing>,
}

/// What comes after an attempt that ended in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The caller gets its end.
    Deliver,
    /// Others are under way, or will be.
    Wait,
    /// Another, now; it does not count.
    AgainUncounted,
    /// Another, now.
    Again,
    /// Another, then.
    After(u64),
}

/// gRFC A6: what a server has refused to see is sent again once, whatever the policy.
const TRANSPARENT_MAX: u32 = 1;

impl Engine {
    // LIFE: 6 | retries and hedges prepared, where the service's configuration has them |
    /// Notes that a call may take several attempts, if it may.
    pub(crate) fn arm_attempts(&mut self, key: CallKey, body_bytes: u32) {
        let Some(call) = self.calls.find(key).filter(|call| call.is_made_here()) else { return };
        let ServerEnd::Cluster { cluster } = call.server else { return };
        let path = self.registry.path(call.method);
        let service = crate::registry::service_of(path);
        let config = self.service_configs.get(service).and_then(|config| config.method(path));
        let Some(config) = config.filter(|config| config.attempts != Policy::One).cloned() else { return };
        if body_bytes as usize > self.limits.grpc_replay_bytes_per_call {
            return;
        }
        let attempts = Attempts::new(config, cluster, service.into());
        self.budget.deposit();
        if let Some(call) = self.calls.find_mut(key) {
            call.server = ServerEnd::Attempts;
            call.attempts = Some(Box::new(attempts));
        }
    }

    /// What a service's config says about throttling from now on.
    pub(crate) fn configure_throttle(&mut self, service: &str, config: &ServiceConfig) {
        let throttle =
            config.retry_throttling.map(|t| Throttle::new(t.max_tokens, t.token_ratio_thousandths));
        match throttle {
            Some(throttle) => self.throttles.insert(service.into(), throttle),
            None => self.throttles.remove(service),
        };
    }

    // LIFE: 9
    /// An item of a request: kept, and sent to every attempt there is.
    pub(crate) fn hand_to_attempts<'a>(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        item: Item<'a>,
    ) -> Result<(), Refusal<'a>> {
        let opens = matches!(item, Item::Open { .. });
        if !self.can_keep(key, &item) {
            let live = self.attempts_of(key).and_then(|attempts| attempts.live.first().copied());
            let Some(winner) = live else { return Err(Refusal::Blocked(item, Blocker::Stream)) };
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
            self.pass_on(turn, attempt, Direction::Request, kept.item(0));
        }
        Ok(())
    }

    /// A response item of an attempt. `None` if the attempt was in vain and the item is used up; else the attempt has
    /// taken the call's place, and the item goes to the application.
    pub(crate) fn answer_of_attempt<'a>(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallKey,
        attempt: CallKey,
        mut item: Item<'a>,
    ) -> Option<Item<'a>> {
        if let Item::Finish { code, execution, metadata, .. } = &mut item
            && *code != Code::Ok
        {
            let next = self.after_failure(turn, call, attempt, *code, *execution, metadata);
            // What one attempt knows of itself says nothing of those before it.
            if self.calls.find(call).is_some_and(|call| call.handed_over)
                && *execution == Execution::NotExecuted
            {
                *execution = Execution::Unknown;
            }
            if next != Next::Deliver {
                let metadata = Cow::Owned(metadata.to_vec());
                let last = Outcome { code: *code, execution: *execution, metadata };
                if let Some(attempts) = self.attempts_of(call) {
                    attempts.last = Some(last);
                }
                self.drop_item(item);
                self.forget(attempt);
                self.follow(turn, call, next);
                return None;
            }
        } else {
            self.note_success(call);
        }
        self.commit_and_go_on(turn, call, attempt);
        Some(item)
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
        let Some(attempts) = self.attempts_of(key) else { return };
        attempts.timer = None;
        let hedges = matches!(attempts.config.attempts, Policy::Hedge(_));
        // A retry was paid for when it was decided on.
        if !hedges || self.may_try(turn, key) {
            return self.begin_attempt(turn, key, true);
        }
        let Some(attempts) = self.attempts_of(key).filter(|attempts| attempts.live.is_empty()) else {
            return;
        };
        if let Some(last) = attempts.last.take() {
            self.end_as(turn, key, &last);
        }
    }

    /// Whether some attempt may have been seen by a server.
    pub(crate) fn note_attempts(&mut self, key: CallKey) {
        let Some(call) = self.calls.find(key) else { return };
        let Some(attempts) = &call.attempts else { return };
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
        self.release_attempts(&attempts);
    }

    fn attempts_of(&mut self, key: CallKey) -> Option<&mut Attempts> {
        self.calls.find_mut(key)?.attempts.as_deref_mut()
    }

    fn release_attempts(&mut self, attempts: &Attempts) {
        self.kept_bytes = self.kept_bytes.saturating_sub(attempts.kept_bytes);
        if let Some(timer) = attempts.timer {
            self.timers.cancel(timer);
        }
    }

    fn can_keep(&mut self, key: CallKey, item: &Item<'_>) -> bool {
        let bytes = item.kept_bytes();
        let (call_max, all_max) = (self.limits.grpc_replay_bytes_per_call, self.limits.attempts_bytes);
        let room = self.kept_bytes + bytes <= all_max;
        self.attempts_of(key).is_some_and(|attempts| {
            // An opening is always kept: it was found small enough, and metadata is bounded.
            attempts.kept.is_empty() || room && attempts.kept_bytes + bytes <= call_max
        })
    }

    /// Makes an item private and keeps it; its block goes back, and its sender may send as much again.
    fn keep_item_of(&mut self, turn: &mut Turn<'_>, key: CallKey, item: Item<'_>) -> Option<Kept> {
        let bytes = item.kept_bytes();
        let body = match item.body() {
            None => None,
            Some(body) => match keep_body(turn, body) {
                Some(body) => Some(body),
                None => {
                    self.drop_item(item);
                    let why = "message lies outside the send heap".into();
                    self.fail(turn, key, trunkline_call::Fault::MalformedRequest { why });
                    return None;
                }
            },
        };
        if let Some((session, payload)) = item.body().and_then(Body::lent) {
            self.give_back(session, payload.span);
        }
        self.credit_sender(key, Direction::Request, item.body().map_or(0, Body::window_cost));
        let kept = match (item, body) {
            (Item::Open { metadata, end, .. }, body) => {
                Kept::Open { metadata: (*metadata).into(), body, end }
            }
            (Item::Message { end, .. }, Some(body)) => Kept::Message { body, end },
            _ => Kept::HalfClose,
        };
        self.kept_bytes += bytes;
        let attempts = self.attempts_of(key)?;
        attempts.kept_bytes += bytes;
        attempts.kept.push(kept.clone());
        Some(kept)
    }

    /// One more attempt, with all of the request there is.
    fn begin_attempt(&mut self, turn: &mut Turn<'_>, key: CallKey, counted: bool) {
        let Some(call) = self.calls.find(key) else { return };
        let (Some(attempts), Some(types)) = (&call.attempts, call.sender_types(Direction::Request)) else {
            return;
        };
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
        attempt.tried.clone_from(&attempts.tried);
        let beside = attempts.live.iter().filter_map(|live| self.calls.find(*live)?.placed);
        attempt.tried.extend(beside.map(|placed| placed.endpoint));
        let attempt = self.calls.insert(attempt);
        let Some(attempts) = self.attempts_of(key) else { return };
        attempts.live.push(attempt);
        // One that is not counted is the same attempt, sent again.
        let before = if counted { attempts.made } else { attempts.made.saturating_sub(1) };
        attempts.made += u32::from(counted);
        let items = attempts.kept.clone();
        self.book_hedge(turn, key);
        for kept in items {
            self.pass_on(turn, attempt, Direction::Request, kept.item(before));
        }
        // What did not fit while nobody was there to commit to.
        self.unblock(turn, key, Direction::Request);
    }

    /// Books the next hedge, if there may be one.
    fn book_hedge(&mut self, turn: &Turn<'_>, key: CallKey) {
        let Some(attempts) = self.attempts_of(key) else { return };
        let Policy::Hedge(policy) = &attempts.config.attempts else { return };
        if attempts.made < policy.attempts_max && !attempts.is_stopped && attempts.timer.is_none() {
            let at = turn.now.plus_ns(policy.delay_ns);
            let timer = self.timers.insert(at, Due::Attempt(key));
            if let Some(attempts) = self.attempts_of(key) {
                attempts.timer = Some(timer);
            }
        }
    }

    /// Whether a call may have another attempt; if so it is paid for.
    fn may_try(&mut self, turn: &Turn<'_>, key: CallKey) -> bool {
        let Some(attempts) = self.attempts_of(key) else { return false };
        let max = attempts.attempts_max();
        let wanted = attempts.made < max && !attempts.is_stopped;
        let service = attempts.service.clone();
        let permitted = self.throttles.get(&service).is_none_or(Throttle::permits);
        wanted && permitted && self.budget.withdraw(turn.now)
    }

    fn note_success(&mut self, key: CallKey) {
        let Some(service) = self.attempts_of(key).map(|attempts| attempts.service.clone()) else { return };
        if let Some(throttle) = self.throttles.get_mut(&service) {
            throttle.succeeded();
        }
    }

    /// An attempt ended in vain: what now?
    fn after_failure(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        attempt: CallKey,
        code: Code,
        execution: Execution,
        trailers: &[u8],
    ) -> Next {
        let ended =
            self.calls.find_mut(attempt).map(|call| (call.handed_over, std::mem::take(&mut call.tried)));
        let Some((handed_over, tried)) = ended else { return Next::Deliver };
        if let Some(call) = self.calls.find_mut(key) {
            call.handed_over |= handed_over && execution != Execution::NotExecuted;
        }
        let Some(attempts) = self.attempts_of(key) else { return Next::Deliver };
        attempts.live.retain(|live| *live != attempt);
        for endpoint in tried {
            if !attempts.tried.contains(&endpoint) {
                attempts.tried.push(endpoint);
            }
        }
        let unseen = handed_over && execution == Execution::NotExecuted && code == Code::Unavailable;
        if unseen && attempts.transparent < TRANSPARENT_MAX && self.budget.withdraw(turn.now) {
            return Next::AgainUncounted;
        }
        let Some(attempts) = self.attempts_of(key) else { return Next::Deliver };
        let said = pushback(trailers);
        let goes_on = match &attempts.config.attempts {
            Policy::One => false,
            Policy::Retry(policy) => policy.retryable.contains(code),
            Policy::Hedge(policy) => policy.non_fatal.contains(code),
        };
        attempts.is_stopped |= said == Some(Pushback::Never);
        let service = attempts.service.clone();
        if (goes_on || said == Some(Pushback::Never))
            && let Some(throttle) = self.throttles.get_mut(&service)
        {
            throttle.failed();
        }
        if !goes_on {
            return Next::Deliver;
        }
        if said == Some(Pushback::Never) {
            // There is nothing to wait for any more but those under way.
            self.drop_attempt_timer(key);
        }
        self.another(turn, key, said)
    }

    /// The attempt that follows one whose end is not the call's.
    fn another(&mut self, turn: &Turn<'_>, key: CallKey, said: Option<Pushback>) -> Next {
        let Some(attempts) = self.attempts_of(key) else { return Next::Deliver };
        let alone = attempts.live.is_empty();
        let hedges = matches!(attempts.config.attempts, Policy::Hedge(_));
        let pushed_ns = match said {
            Some(Pushback::After { ms }) => Some(u64::from(ms) * 1_000_000),
            _ => None,
        };
        if hedges && pushed_ns.is_some() && attempts.made < attempts.attempts_max() && !attempts.is_stopped {
            // Paid for when it is due.
            return Next::After(pushed_ns.unwrap_or(0));
        }
        if !self.may_try(turn, key) {
            let waits = self.attempts_of(key).is_some_and(|attempts| hedges && attempts.timer.is_some());
            return if alone && !waits { Next::Deliver } else { Next::Wait };
        }
        let Self { calls, random, .. } = self;
        let Some(attempts) = calls.find_mut(key).and_then(|call| call.attempts.as_deref_mut()) else {
            return Next::Deliver;
        };
        match (&attempts.config.attempts, pushed_ns) {
            (Policy::Retry(_), Some(ns)) => {
                attempts.backed_off = 0;
                Next::After(ns)
            }
            (Policy::Retry(policy), None) => {
                let backoff = Backoff {
                    initial_ns: policy.initial_backoff_ns,
                    max_ns: policy.max_backoff_ns,
                    multiplier: policy.backoff_multiplier,
                };
                attempts.backed_off += 1;
                Next::After(backoff.wait_ns(attempts.backed_off - 1, random))
            }
            _ => Next::Again,
        }
    }

    fn follow(&mut self, turn: &mut Turn<'_>, key: CallKey, next: Next) {
        match next {
            Next::Deliver | Next::Wait => {}
            Next::AgainUncounted => {
                if let Some(attempts) = self.attempts_of(key) {
                    attempts.transparent += 1;
                }
                self.begin_attempt(turn, key, false);
            }
            Next::Again => {
                self.drop_attempt_timer(key);
                self.begin_attempt(turn, key, true);
            }
            Next::After(ns) => {
                self.drop_attempt_timer(key);
                let timer = self.timers.insert(turn.now.plus_ns(ns), Due::Attempt(key));
                if let Some(attempts) = self.attempts_of(key) {
                    attempts.timer = Some(timer);
                }
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

    fn pass_later(&mut self, turn: &mut Turn<'_>, key: CallKey, later: VecDeque<Item<'static>>) {
        for item in later {
            self.pass_on(turn, key, Direction::Request, item);
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
            self.release_attempts(&attempts);
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
            parent.children.iter_mut().filter(|child| **child == key).for_each(|child| *child = winner);
        }
        self.name_stream_of(&call, winner);
        if let Some(won) = self.calls.find_mut(winner) {
            (won.client, won.timer, won.deadline) = (call.client, timer, call.deadline);
            (won.parent, won.trace, won.policies) = (call.parent, call.trace, call.policies);
            won.handed_over |= call.handed_over;
        }
        later
    }
}

impl Attempts {
    fn new(config: Arc<MethodConfig>, cluster: ClusterKey, service: Box<str>) -> Self {
        Self {
            config,
            cluster,
            service,
            kept: Vec::new(),
            kept_bytes: 0,
            live: Vec::new(),
            made: 0,
            transparent: 0,
            backed_off: 0,
            timer: None,
            is_stopped: false,
            tried: Vec::new(),
            last: None,
        }
    }

    /// Whether its counts can be those of attempts.
    pub(crate) fn is_sound(&self) -> bool {
        // A hundred times what gRFC A6 allows.
        const ATTEMPTS: u32 = 500;
        let counts = [self.made, self.transparent, self.backed_off];
        counts.iter().all(|count| *count <= ATTEMPTS) && self.kept_bytes <= 1 << 40
    }

    fn attempts_max(&self) -> u32 {
        match &self.config.attempts {
            Policy::One => 1,
            Policy::Retry(policy) => policy.attempts_max,
            Policy::Hedge(policy) => policy.attempts_max,
        }
    }
}

impl Kept {
    /// The item as an attempt sends it that has so many before it.
    fn item(&self, attempts_before: u32) -> Item<'static> {
        match self {
            Self::Open { metadata, body, end } => {
                // Metadata that is full goes without the count: a call is worth more.
                let counted = (attempts_before > 0)
                    .then(|| with_previous_attempts(metadata, attempts_before).ok())
                    .flatten();
                let metadata = Cow::Owned(counted.unwrap_or_else(|| metadata.to_vec()));
                Item::Open { metadata, body: body.clone().map(Body::Kept), end: *end }
            }
            Self::Message { body, end } => Item::Message { body: Body::Kept(body.clone()), end: *end },
            Self::HalfClose => Item::HalfClose,
        }
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
        Body::Wire { bytes, encoding: Encoding::Protobuf, .. } => {
            ((**bytes).into(), Encoding::Protobuf, None)
        }
        Body::Packed { bytes, packing, .. } => ((**bytes).into(), Encoding::Protobuf, Some(*packing)),
        // Without its header, and of a type only its peer has told.
        Body::Wire { .. } | Body::Placed { .. } => return None,
    };
    Some(KeptBody { bytes, encoding, packing })
}
