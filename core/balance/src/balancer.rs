//! The endpoints of one service, and which of them gets the next call.

use crate::load::LoadReport;
use crate::member::Member;
use crate::outlier;
use crate::random::Random;
use crate::ring::Ring;
use crate::settings::{Pick, Settings};
use crate::tally::Tally;
use trunkline_call::{Code, Instant};

/// Endpoints of one service. More are a mistake, and a pick looks at all of them in the worst case.
pub const ENDPOINTS_MAX: usize = 4096;
/// Least and most of the mean weight that counts: the ratios of gRPC's static stride scheduler.
const SHARE_MIN: f64 = 0.1;
const SHARE_MAX: f64 = 10.0;

/// The endpoints of one service, by names of type `E`.
#[derive(Debug)]
pub struct Balancer<E> {
    settings: Settings,
    members: Vec<Member<E>>,
    /// Those that have left the list and still have calls: who comes back has them, too.
    leaving: Vec<Member<E>>,
    /// Round-robin: whose turn it is. Pick-first: who gets the calls, for as long as it can be reached.
    next: usize,
    ring: Ring,
    random: Random,
    /// When outliers are looked for next.
    sweep_at: Option<Instant>,
    /// Indexes to choose from, kept for its memory.
    pool: Vec<usize>,
}

/// What a call wants of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a, E> {
    /// Equal keys are to meet ([`Pick::RingHash`]); `None`: anywhere.
    pub key: Option<u64>,
    /// Endpoints it had before: others are better.
    pub tried: &'a [E],
}

/// Whether a call can be had to an endpoint now, as its connections stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// There is a connection, or one may be made.
    Reachable,
    /// It could not be reached, and is left alone for a while.
    Failing,
}

/// Every endpoint has as many calls under way as it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// So many each.
    pub outstanding_max: u32,
}

/// How a call ended at an endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// The status; `None` if nobody waited for it.
    pub code: Option<Code>,
    /// What the server said about itself.
    pub load: Option<LoadReport>,
    /// Another endpoint answered first.
    pub outpaced: bool,
}

/// One endpoint, for operators.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointRow<E> {
    /// Which.
    pub endpoint: E,
    /// Calls under way.
    pub outstanding: u32,
    /// Whether it is left out.
    pub ejected: bool,
    /// What it says it can do, relative to the others.
    pub weight: Option<f64>,
}

impl<E: Copy + Eq> Balancer<E> {
    /// No endpoints yet.
    pub fn new(settings: Settings, seed: u64) -> Self {
        let random = Random::new(seed);
        let (members, leaving, pool) = (Vec::new(), Vec::new(), Vec::new());
        Self { settings, members, leaving, next: 0, ring: Ring::default(), random, sweep_at: None, pool }
    }

    /// Takes other settings; what is known of the endpoints stays.
    pub fn configure(&mut self, settings: Settings) {
        if settings == self.settings {
            return;
        }
        let old = std::mem::replace(&mut self.settings, settings);
        if old.outliers != self.settings.outliers {
            self.sweep_at = None;
            for member in &mut self.members {
                match &self.settings.outliers {
                    Some(outliers) => member.tally.retime(outliers),
                    None => member.tally = Tally::default(),
                }
            }
        }
        if old.pick != self.settings.pick {
            self.next = 0;
            self.arrange();
        }
    }

    /// Takes another list of endpoints, each with what it is called on every host. Those that stay keep what is known
    /// of them; those beyond [`ENDPOINTS_MAX`], and doubles, are left out.
    pub fn set_endpoints<'l>(&mut self, endpoints: impl Iterator<Item = (E, &'l str)>) {
        let mut old = std::mem::take(&mut self.members);
        let had = old.get(self.next).map(|member| member.endpoint);
        old.append(&mut self.leaving);
        for (endpoint, label) in endpoints.take(ENDPOINTS_MAX) {
            if self.members.iter().any(|member| member.endpoint == endpoint) {
                continue;
            }
            let known = old.iter().position(|member| member.endpoint == endpoint);
            let member = known.map(|at| old.swap_remove(at));
            self.members.push(member.unwrap_or_else(|| Member::new(endpoint, label)));
        }
        // A name that flaps brings others each time: the calls of the first are long over, or were never many.
        old.retain(|member| member.outstanding > 0);
        old.truncate(ENDPOINTS_MAX);
        self.leaving = old;
        self.share_wealth();
        self.arrange();
        let stays = self.members.iter().position(|member| Some(member.endpoint) == had);
        self.next = stays.unwrap_or(0);
    }

    /// A call is at an endpoint already: it was picked elsewhere.
    pub fn occupy(&mut self, endpoint: E) {
        if let Some(member) = self.members.iter_mut().find(|member| member.endpoint == endpoint) {
            member.outstanding = member.outstanding.saturating_add(1);
        }
    }

    /// An endpoint for a call, counted as having it from here on. `None` if there are none at all.
    ///
    /// # Errors
    /// [`Full`] if all have as much as they may have.
    pub fn pick(
        &mut self,
        now: Instant,
        wanted: Wanted<'_, E>,
        readiness: impl Fn(E) -> Readiness,
    ) -> Option<Result<E, Full>> {
        self.look_around(now);
        if self.members.is_empty() {
            return None;
        }
        if let Pick::First { .. } = self.settings.pick {
            self.settle_first(&readiness);
        }
        let outstanding_max = self.settings.circuit.outstanding_max;
        let open = |member: &Member<E>| member.outstanding < outstanding_max;
        let reachable = |member: &Member<E>| readiness(member.endpoint) == Readiness::Reachable;
        let fresh = |member: &Member<E>| !wanted.tried.contains(&member.endpoint);
        // From the best to what is better than nothing.
        let best = |member: &Member<E>| {
            open(member) && !member.tally.is_ejected(now) && reachable(member) && fresh(member)
        };
        let tried = |member: &Member<E>| open(member) && !member.tally.is_ejected(now) && reachable(member);
        let ejected = |member: &Member<E>| open(member) && reachable(member);
        let stages = [&best as &dyn Fn(&Member<E>) -> bool, &tried, &ejected, &open];
        let stage = stages.into_iter().find(|stage| self.members.iter().any(stage));
        let Some(eligible) = stage else { return Some(Err(Full { outstanding_max })) };
        let index = self.choose(now, wanted.key, eligible);
        let member = &mut self.members[index];
        member.outstanding += 1;
        Some(Ok(member.endpoint))
    }

    /// A call is through with an endpoint.
    pub fn finished(&mut self, now: Instant, endpoint: E, report: &Report) {
        let Some(member) = self.members.iter_mut().find(|member| member.endpoint == endpoint) else {
            return self.finished_leaving(endpoint);
        };
        member.outstanding = member.outstanding.saturating_sub(1);
        if let Some(load) = &report.load
            && let Pick::Weighted(weighting) = &self.settings.pick
        {
            member.weight.report(now, load, weighting);
        }
        let answered = report.code.filter(|code| *code != Code::Cancelled);
        let failed = answered.is_some_and(is_fault_of_server);
        if failed || report.outpaced {
            member.penalty = member.penalty_now(now) + 1.0;
            member.penalty_at = now;
        }
        if let Some(outliers) = &self.settings.outliers
            && answered.is_some()
        {
            member.tally.count(failed);
            outlier::judge_row(now, outliers, &mut self.members, endpoint);
        }
        self.look_around(now);
    }

    /// A call is through with an endpoint that is not on the list any more.
    fn finished_leaving(&mut self, endpoint: E) {
        let Some(at) = self.leaving.iter().position(|member| member.endpoint == endpoint) else { return };
        self.leaving[at].outstanding -= 1;
        if self.leaving[at].outstanding == 0 {
            self.leaving.swap_remove(at);
        }
    }

    /// What it was told.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether there are no endpoints.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The endpoints in order, for operators.
    pub fn rows(&self, now: Instant) -> Vec<EndpointRow<E>> {
        let weighting = match &self.settings.pick {
            Pick::Weighted(weighting) => Some(weighting),
            _ => None,
        };
        let row = |member: &Member<E>| EndpointRow {
            endpoint: member.endpoint,
            outstanding: member.outstanding,
            ejected: member.tally.is_ejected(now),
            weight: weighting.and_then(|weighting| member.weight.of(now, weighting)),
        };
        self.members.iter().map(row).collect()
    }

    /// Looks for outliers if it is time.
    fn look_around(&mut self, now: Instant) {
        let Some(outliers) = &self.settings.outliers else { return };
        let at = *self.sweep_at.get_or_insert(now.plus_ns(outliers.interval_ns));
        if at <= now {
            self.sweep_at = Some(now.plus_ns(outliers.interval_ns));
            outlier::sweep(now, outliers, &mut self.members, &mut self.random);
        }
    }

    fn choose(&mut self, now: Instant, key: Option<u64>, eligible: &dyn Fn(&Member<E>) -> bool) -> usize {
        match &self.settings.pick {
            Pick::First { .. } => {
                let order = std::iter::once(self.next).chain(0..self.members.len());
                order.into_iter().find(|index| eligible(&self.members[*index])).unwrap_or(self.next)
            }
            Pick::RoundRobin => self.take_turn(eligible),
            Pick::LeastRequest { choices } => self.least(now, *choices, eligible),
            Pick::Weighted(_) => self.by_weight(now, eligible),
            Pick::RingHash { .. } => {
                let key = key.unwrap_or_else(|| self.random.number());
                let members = &self.members;
                let found = self.ring.walk(key).find(|index| eligible(&members[*index]));
                found.unwrap_or_else(|| self.in_turn(eligible))
            }
        }
    }

    /// Pick-first stays with its endpoint until that cannot be reached, and then begins at the head of the list again.
    /// What only one call cannot have (it was there before, it is full, ejected) moves that call and no other.
    fn settle_first(&mut self, readiness: &impl Fn(E) -> Readiness) {
        let reachable = |member: &Member<E>| readiness(member.endpoint) == Readiness::Reachable;
        if !self.members.get(self.next).is_some_and(reachable)
            && let Some(first) = self.members.iter().position(reachable)
        {
            self.next = first;
        }
    }

    /// The first from `next` on.
    fn in_turn(&self, eligible: &dyn Fn(&Member<E>) -> bool) -> usize {
        let count = self.members.len();
        let indexes = (0..count).map(|step| (self.next + step) % count);
        indexes.into_iter().find(|index| eligible(&self.members[*index])).unwrap_or(0)
    }

    fn take_turn(&mut self, eligible: &dyn Fn(&Member<E>) -> bool) -> usize {
        let index = self.in_turn(eligible);
        self.next = (index + 1) % self.members.len();
        index
    }

    /// Of a few at random the one with least under way; of equals one at random, for the first taken is.
    fn least(&mut self, now: Instant, choices: u32, eligible: &dyn Fn(&Member<E>) -> bool) -> usize {
        let mut pool = std::mem::take(&mut self.pool);
        pool.clear();
        pool.extend((0..self.members.len()).filter(|at| eligible(&self.members[*at])));
        let mut best: Option<(u64, usize)> = None;
        for _ in 0..choices.max(1).min(pool.len() as u32) {
            let index = pool.swap_remove((self.random.number() % pool.len() as u64) as usize);
            let load = self.members[index].load(now);
            if best.is_none_or(|(least, _)| load < least) {
                best = Some((load, index));
            }
        }
        self.pool = pool;
        best.map_or(0, |(_, index)| index)
    }

    /// Smooth weighted round-robin: everybody earns its weight, the richest pays for all.
    fn by_weight(&mut self, now: Instant, eligible: &dyn Fn(&Member<E>) -> bool) -> usize {
        let Pick::Weighted(weighting) = &self.settings.pick else { return 0 };
        let weights: Vec<Option<f64>> =
            self.members.iter().map(|member| member.weight.of(now, weighting)).collect();
        let known: Vec<f64> = weights.iter().copied().flatten().collect();
        // gRFC A58: with fewer than two known weights it is round-robin; unknown ones count as the mean.
        if known.len() < 2 {
            return self.take_turn(eligible);
        }
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        // Relative to the mean, so that what was earned under other weights is soon spent; and within bounds, as gRPC's
        // own schedulers have it, so that a report nobody can believe neither takes all calls nor starves its server.
        let share =
            |weight: Option<f64>| weight.map_or(1.0, |weight| (weight / mean).clamp(SHARE_MIN, SHARE_MAX));
        let (mut total, mut richest) = (0.0, None::<(f64, usize)>);
        for (index, member) in self.members.iter_mut().enumerate() {
            if !eligible(member) {
                continue;
            }
            let share = share(weights[index]);
            total += share;
            let wealth = member.weight.earn(share);
            if richest.is_none_or(|(most, _)| wealth > most) {
                richest = Some((wealth, index));
            }
        }
        let index = richest.map_or(0, |(_, index)| index);
        self.members[index].weight.earn(-total);
        index
    }

    /// Whoever has left took along what it had earned or owed: the others share that, or a newcomer would get all calls
    /// until it has caught up with them, or none.
    fn share_wealth(&mut self) {
        let count = self.members.len().max(1) as f64;
        let mean = self.members.iter_mut().map(|member| member.weight.earn(0.0)).sum::<f64>() / count;
        for member in &mut self.members {
            member.weight.earn(-mean);
        }
    }

    /// Brings what follows from the list up to date.
    fn arrange(&mut self) {
        match self.settings.pick {
            Pick::First { shuffle: true } => {
                for last in (1..self.members.len()).rev() {
                    self.members.swap(last, (self.random.number() % (last as u64 + 1)) as usize);
                }
            }
            Pick::RingHash { ring_min, ring_max, .. } => {
                self.ring = Ring::new(self.members.iter().map(|member| &*member.label), ring_min, ring_max);
                return;
            }
            _ => {}
        }
        self.ring = Ring::default();
    }
}

/// Statuses that say something about the server and not about the call. (gRFC A50 counts every status but OK; a
/// service that answers NOT_FOUND to whoever asks for nothing is as sound as any.)
fn is_fault_of_server(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}
