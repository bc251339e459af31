//! What bounds the further attempts of all calls of a host, as one shard of it knows them.

use super::call_attempts::{CallAttempts, KeptItem};
use crate::cluster::ClusterKey;
use crate::limits::Limits;
use crate::registry::service_of;
use crate::shared_room::SharedRoom;
use crate::snapshot::AttemptFigures;
use crate::{CallKey, RemoteKey};
use std::collections::HashMap;
use std::sync::Arc;
use trunkline_balance::{Backoff, Budget, Random, Settings, Throttle};
use trunkline_call::{Code, Execution, Instant, TimerKey};
use trunkline_grpc::Outcome;
use trunkline_grpc::retry::{Pushback, pushback};
use trunkline_grpc::service_config::{Attempts as Policy, MethodConfig, RetryThrottling, ServiceConfig};
use trunkline_policy::Chain;
use trunkline_share::{CountShare, HostLimits};

/// What all calls of a shard share that may be tried more than once.
#[derive(Debug)]
pub(crate) struct AttemptControl {
    /// By service: what is said about calls of it that are made here.
    configs: HashMap<String, ServiceConfig>,
    /// By service: what bounds further attempts.
    throttles: HashMap<Box<str>, Throttle>,
    /// What all calls may spend on further attempts.
    budget: Budget,
    /// Bytes of requests kept for further attempts, over the whole host.
    kept: CountShare,
    /// Those of this shard, by for whom.
    room: SharedRoom,
    /// The limits of the host, if there are other shards.
    host: Option<Arc<HostLimits>>,
    /// Those of all calls at most, and those of one.
    kept_bytes_max: usize,
    call_bytes_max: usize,
    /// Chance, for waits between attempts.
    random: Random,
    figures: AttemptFigures,
}

/// How an attempt ended in vain.
#[derive(Debug)]
pub(crate) struct AttemptEnd<'a> {
    pub attempt: CallKey,
    /// Whether any byte of it left for a server.
    pub handed_over: bool,
    /// Endpoints it was at.
    pub tried: Vec<RemoteKey>,
    pub code: Code,
    pub execution: Execution,
    /// Trailing metadata that came with its end.
    pub trailers: &'a [u8],
}

/// What comes after an attempt that ended in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAttempt {
    /// The caller gets its end.
    Deliver,
    /// Others are under way, or will be.
    Wait,
    /// Another, now. One that is not counted is the same, sent again.
    Now { counted: bool },
    /// Another, in so many nanoseconds.
    After(u64),
}

/// What comes when the time for another attempt has.
#[derive(Debug)]
pub(crate) enum AttemptsDue {
    /// Another.
    Begin,
    /// None: those under way go on.
    Wait,
    /// None, and none is under way: the call ends as the last one did.
    End(Outcome<'static>),
}

/// gRFC A6: what a server has refused to see is sent again once, whatever the policy.
const TRANSPARENT_MAX: u32 = 1;

/// What is to be done with an item of a call's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepDecision {
    /// It is kept, and goes to every attempt there is.
    Keep,
    /// It opens the call, and there is no room to keep it: the call has one attempt, which is itself.
    Once,
    /// There is no room to keep it: this attempt takes the call's place, and gets it.
    Commit(CallKey),
    /// There is none either, but for an attempt that is to come.
    Wait,
}

impl AttemptControl {
    pub fn new(limits: &Limits, seed: u64) -> Self {
        Self {
            configs: HashMap::new(),
            throttles: HashMap::new(),
            budget: Budget::new(limits.attempts_percent, limits.attempts_per_second),
            kept: CountShare::default(),
            room: SharedRoom::default(),
            host: None,
            kept_bytes_max: limits.attempts_bytes,
            call_bytes_max: limits.grpc_replay_bytes_per_call,
            random: Random::new(seed),
            figures: AttemptFigures::default(),
        }
    }

    pub fn seed(&mut self, seed: u64) {
        self.random = Random::new(!seed);
    }

    /// This is one of several shards: limits count for all. To be said before anything is configured.
    pub fn share(&mut self, limits: &Arc<HostLimits>, own: u16) {
        self.kept.join(&limits.count("limits.attempts_bytes"));
        self.budget.share(limits.savings(), own == 0);
        self.host = Some(Arc::clone(limits));
    }

    fn throttle(&self, service: &str, said: &RetryThrottling) -> Throttle {
        let (max, ratio) = (Throttle::thousandths(said.max_tokens), said.token_ratio_thousandths);
        match &self.host {
            Some(host) => Throttle::of(host.tokens(service, max, ratio), ratio),
            None => Throttle::new(said.max_tokens, ratio),
        }
    }

    /// What the users of a service say about calls of it from now on.
    pub fn configure(&mut self, service: &str, config: ServiceConfig) {
        let throttle = config.retry_throttling.as_ref().map(|said| self.throttle(service, said));
        match throttle {
            Some(throttle) => self.throttles.insert(service.into(), throttle),
            None => self.throttles.remove(service),
        };
        self.configs.insert(service.to_owned(), config);
    }

    /// Whether nothing is said about any call. Asked for every one; most hosts say nothing.
    #[inline]
    pub fn says_nothing(&self) -> bool {
        self.configs.is_empty()
    }

    /// What is said about calls of this path.
    pub fn config(&self, path: &str) -> Option<&Arc<MethodConfig>> {
        self.configs.get(service_of(path))?.method(path)
    }

    /// How calls of a service are balanced: by a policy of the host's operator, else by what the service's users say,
    /// else by nothing.
    pub fn balancing(&self, chain: &Chain) -> impl Fn(&str) -> Settings {
        move |service| {
            let said = || self.configs.get(service)?.load_balancing.as_ref();
            chain.balance(service).or_else(said).cloned().unwrap_or_default()
        }
    }

    /// A call of this path that goes to a cluster begins: its memory, if it may take several attempts.
    pub fn begin(&mut self, path: &str, cluster: ClusterKey, body_bytes: u32) -> Option<Box<CallAttempts>> {
        let config = self.config(path).filter(|config| config.attempts != Policy::One).cloned()?;
        if body_bytes as usize > self.call_bytes_max {
            return None;
        }
        self.budget.deposit();
        self.figures.calls += 1;
        Some(Box::new(CallAttempts::new(config, cluster, service_of(path).into())))
    }

    /// What calls that were handed over keep.
    pub fn take_up(&mut self, kept_bytes: impl Iterator<Item = usize>) {
        self.kept.give_back(self.kept.used());
        let kept_bytes = kept_bytes.fold(0, usize::saturating_add) as u64;
        self.kept.hold(kept_bytes);
        self.room = SharedRoom::default();
        self.room.take_untold(kept_bytes);
    }

    /// What has become of attempts so far.
    pub fn figures(&self) -> AttemptFigures {
        AttemptFigures { budget_left: self.budget.left(), ..self.figures }
    }

    /// Bytes that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept.used() as usize
    }

    /// Whether an item of so many bytes can be kept, of a call of this source.
    fn has_room(&mut self, attempts: &CallAttempts, bytes: usize, source: impl FnOnce() -> Arc<str>) -> bool {
        // An opening was found small enough, and metadata is bounded.
        let is_short = attempts.kept.is_empty() || attempts.kept_bytes + bytes <= self.call_bytes_max;
        is_short
            && self.kept.reserve(bytes as u64, self.kept_bytes_max as u64)
            && self.room.has_room(bytes as u64, self.room_bytes(), source)
    }

    /// What is to be done with an item of a call's request that costs so many bytes to keep, of a call of this source.
    pub fn take(
        &mut self,
        attempts: Option<&CallAttempts>,
        (bytes, opens): (usize, bool),
        source: impl FnOnce() -> Arc<str>,
    ) -> KeepDecision {
        if attempts.is_some_and(|attempts| self.has_room(attempts, bytes, source)) {
            return KeepDecision::Keep;
        }
        let winner = attempts.and_then(|attempts| attempts.live.first().copied());
        match winner {
            _ if opens => KeepDecision::Once,
            Some(winner) => KeepDecision::Commit(winner),
            None => KeepDecision::Wait,
        }
    }

    /// Keeps an item of a call that costs so many bytes.
    pub fn keep(
        &mut self,
        call: CallKey,
        attempts: &mut CallAttempts,
        (kept, bytes): (KeptItem, usize),
        source: impl FnOnce() -> Arc<str>,
    ) {
        self.kept.hold(bytes as u64);
        self.room.take(call, bytes as u64, self.room_bytes(), source);
        attempts.kept_bytes += bytes;
        attempts.kept.push(kept);
    }

    /// What a call kept is free.
    pub fn release(&mut self, call: CallKey, attempts: &CallAttempts) {
        debug_assert!(attempts.kept_bytes <= self.kept_bytes(), "a call gives back what it kept, once");
        self.kept.give_back(attempts.kept_bytes as u64);
        self.room.give_back(call, attempts.kept_bytes as u64);
    }

    /// What one source alone may have kept: so that all together have what may be.
    fn room_bytes(&self) -> u64 {
        let all = self.kept_bytes_max as u64;
        all - all / 3
    }

    /// Whether a call may have another attempt; if so it is paid for.
    pub fn may_try(&mut self, now: Instant, attempts: &CallAttempts) -> bool {
        if attempts.made >= attempts.attempts_max() || attempts.is_stopped {
            return false;
        }
        let is_permitted = self.throttles.get(&attempts.service).is_none_or(Throttle::permits);
        let is_paid = is_permitted && self.budget.withdraw(now);
        let figure = match (is_permitted, is_paid) {
            (false, _) => &mut self.figures.throttled,
            (true, false) => &mut self.figures.over_budget,
            (true, true) if attempts.hedges() => &mut self.figures.hedges,
            (true, true) => &mut self.figures.retries,
        };
        *figure += 1;
        is_paid
    }

    /// An attempt of a call has been answered.
    pub fn succeeded(&mut self, attempts: &CallAttempts) {
        if let Some(throttle) = self.throttles.get_mut(&attempts.service) {
            throttle.succeeded();
        }
    }

    /// The time for another attempt has come.
    pub fn due(&mut self, now: Instant, attempts: &mut CallAttempts) -> AttemptsDue {
        attempts.timer = None;
        // A retry was paid for when it was decided on.
        if !attempts.hedges() || self.may_try(now, attempts) {
            return AttemptsDue::Begin;
        }
        let last = if attempts.live.is_empty() { attempts.last.take() } else { None };
        last.map_or(AttemptsDue::Wait, AttemptsDue::End)
    }

    /// An attempt ended in vain: what now? A timer that is returned is not waited for any more.
    pub fn failed(
        &mut self,
        now: Instant,
        attempts: &mut CallAttempts,
        end: &mut AttemptEnd<'_>,
    ) -> (NextAttempt, Option<TimerKey>) {
        attempts.live.retain(|live| *live != end.attempt);
        for endpoint in std::mem::take(&mut end.tried) {
            if !attempts.tried.contains(&endpoint) {
                attempts.tried.push(endpoint);
            }
        }
        let unseen =
            end.handed_over && end.execution == Execution::NotExecuted && end.code == Code::Unavailable;
        if unseen && attempts.transparent < TRANSPARENT_MAX {
            // It takes from the budget what is there. Others cannot have it refused: it is once for each call.
            self.budget.withdraw(now);
            self.figures.unseen += 1;
            attempts.transparent += 1;
            return (NextAttempt::Now { counted: false }, None);
        }
        let said = pushback(end.trailers);
        self.figures.pushed_back += u64::from(said.is_some());
        let goes_on = match &attempts.config.attempts {
            Policy::One => false,
            Policy::Retry(policy) => policy.retryable.contains(end.code),
            Policy::Hedge(policy) => policy.non_fatal.contains(end.code),
        };
        attempts.is_stopped |= said == Some(Pushback::Never);
        if (goes_on || said == Some(Pushback::Never))
            && let Some(throttle) = self.throttles.get_mut(&attempts.service)
        {
            throttle.failed();
        }
        if !goes_on {
            return (NextAttempt::Deliver, None);
        }
        // With that there is nothing to wait for any more but those under way.
        let given_up = if said == Some(Pushback::Never) { attempts.timer.take() } else { None };
        let next = self.another(now, attempts, said);
        // Another takes the place of the one that was to come.
        let replaced = match next {
            NextAttempt::Now { .. } | NextAttempt::After(_) => attempts.timer.take(),
            NextAttempt::Deliver | NextAttempt::Wait => None,
        };
        (next, given_up.or(replaced))
    }

    /// The attempt that follows one whose end is not the call's.
    fn another(&mut self, now: Instant, attempts: &mut CallAttempts, said: Option<Pushback>) -> NextAttempt {
        let pushed_ns = match said {
            Some(Pushback::After { ms }) => Some(u64::from(ms) * 1_000_000),
            _ => None,
        };
        if let Some(ns) = pushed_ns
            && attempts.hedges()
            && attempts.made < attempts.attempts_max()
            && !attempts.is_stopped
        {
            // Paid for when it is due.
            return NextAttempt::After(ns);
        }
        if !self.may_try(now, attempts) {
            let waits = attempts.hedges() && attempts.timer.is_some();
            let is_last = attempts.live.is_empty() && !waits;
            return if is_last { NextAttempt::Deliver } else { NextAttempt::Wait };
        }
        match (&attempts.config.attempts, pushed_ns) {
            (Policy::Retry(_), Some(ns)) => {
                attempts.backed_off = 0;
                NextAttempt::After(ns)
            }
            (Policy::Retry(policy), None) => {
                let backoff = Backoff {
                    initial_ns: policy.initial_backoff_ns,
                    max_ns: policy.max_backoff_ns,
                    multiplier: policy.backoff_multiplier,
                };
                attempts.backed_off += 1;
                NextAttempt::After(backoff.wait_ns(attempts.backed_off - 1, &mut self.random))
            }
            _ => NextAttempt::Now { counted: true },
        }
    }
}
