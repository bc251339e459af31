//! The decision: this worker now, or wait, or not at all.

use crate::bound::{Bound, BoundEstimate};
use crate::lines::WaitingKey;
use crate::policy::Policy;
use crate::pool::{Class, Pool, Reservation, WorkerKey};
use crate::queue::Queues;
use crate::remaining::Remaining;
use trunkline_call::Instant;

/// What a dispatcher is told at birth.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How a worker is picked.
    pub policy: Policy,
    /// Requests of one source that may wait here; of all together five eighths more. Also the most a sticky request's
    /// worker may have outstanding.
    pub queue_max: usize,
    /// Longest time one may wait.
    pub delay_ns_max: u64,
    /// Workers kept for one class.
    pub reservations: Vec<Reservation>,
    /// Whether JBSQ(auto) gives a worker a second request before the queue is old: where requests are alike, and where
    /// the first is about to end. If that one then takes longer than any before it, what is behind it waits for it.
    pub stocks_early: bool,
    /// Where the drawing of random policies and of ties begins.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let (policy, reservations) = (Policy::default(), Vec::new());
        let (queue_max, delay_ns_max) = (65_536, 1_000_000_000);
        Self { policy, queue_max, delay_ns_max, reservations, stocks_early: true, seed: 1 }
    }
}

/// Workers, and what waits for them.
#[derive(Debug)]
pub struct Dispatcher<T> {
    settings: Settings,
    pool: Pool,
    queues: Queues<T>,
    estimate: BoundEstimate,
    remaining: Remaining,
    /// Workers that have begun what they had in stock, at the instant of the next question.
    begun: Vec<WorkerKey>,
    random: u64,
    turn: u32,
    /// Something may be given out.
    stirred: bool,
    /// What waits has waited for long: see [`Dispatcher::roomy`].
    behind: bool,
}

/// The queue is old when one has waited for so much of a mean service, and no more when for half of that: the
/// sooner, the more of a service a worker loses between two, but never sooner and never later than these.
const OLD_SERVICES: (f64, f64) = (0.5, 2.0);
/// What is lost at which a queue is old after one mean service.
const OLD_TRAVEL: f64 = 0.015;
/// A worker gets its second request while others wait, too, and what is risked to be left of its first is within so
/// many travels: then it is there when it is needed, and hardly ever before.
const SECOND_TRAVELS: f64 = 8.0;
/// How many must wait for that. For a single one a worker that is free soon is better than one that might be.
const SECOND_QUEUE_MIN: usize = 2;
/// A request goes into stock only behind one that is expected to end within so many mean services: services without
/// memory always do, whoever has outlived most of the others does not.
const STOCK_SERVICES: f64 = 1.5;

/// Room in the queue by source, as calls that wait in a daemon have it: dynamic thresholds (Choudhury and Hahne,
/// IEEE/ACM Transactions on Networking 6(2), 1998). A source may have so many times what is free.
const FREE_TIMES: usize = 2;
/// Such parts of the queue's length are there for other sources than one that has all of it, and for those that have
/// nothing.
const OTHERS_PART: usize = 2;
const NEWCOMERS_PART: usize = 8;
/// So large a part is anybody's, and not told apart.
const ANYBODYS_PART: usize = 4;

/// What becomes of a new request.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// It goes to this worker.
    To(WorkerKey, T),
    /// It waits; [`Dispatcher::poll`] gives it out, [`Dispatcher::withdraw`] takes it back.
    Waits(WaitingKey),
    /// It comes back.
    Refused(T, Refusal),
}

/// Why a request comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many wait as may.
    QueueFull,
    /// Nobody serves its class.
    NoWorker,
}

/// What waited and is given out.
#[derive(Debug, PartialEq, Eq)]
pub enum Dispatch<T> {
    /// To this worker.
    To {
        /// Who.
        worker: WorkerKey,
        /// What.
        item: T,
        /// How long it has waited.
        waited_ns: u64,
    },
    /// It has waited for as long as it may.
    Expired {
        /// What.
        item: T,
        /// How long it has waited.
        waited_ns: u64,
    },
}

impl<T> Dispatcher<T> {
    /// A dispatcher without workers.
    pub fn new(settings: Settings) -> Self {
        let pool = Pool::new(settings.reservations.clone());
        let (estimate, random) = (BoundEstimate::default(), settings.seed);
        Self {
            pool,
            queues: Queues::new(),
            estimate,
            remaining: Remaining::default(),
            begun: Vec::new(),
            random,
            turn: 0,
            stirred: false,
            behind: false,
            settings,
        }
    }

    /// A worker that works on `slots` requests at once.
    pub fn join(&mut self, slots: u32) -> WorkerKey {
        self.stirred = true;
        self.pool.insert(slots)
    }

    /// A worker is gone, with all it had.
    pub fn remove(&mut self, worker: WorkerKey) {
        self.stirred |= self.pool.remove(worker);
    }

    /// A worker gets nothing new, or gets something again. What it has is still counted.
    pub fn rest(&mut self, worker: WorkerKey, rests: bool) {
        self.pool.rest(worker, rests);
        self.stirred = true;
    }

    /// A worker works on so many at once.
    pub fn set_slots(&mut self, worker: WorkerKey, slots: u32) {
        self.pool.set_slots(worker, slots);
        self.stirred = true;
    }

    /// Workers are kept for these classes from now on, and for no others.
    pub fn reserve(&mut self, reservations: Vec<Reservation>) {
        if reservations != self.settings.reservations {
            self.settings.reservations.clone_from(&reservations);
            self.pool.reserve(reservations);
            self.stirred = true;
        }
    }

    /// The worker that sticky requests of this class and key go to.
    pub fn sticky_worker(&self, class: Class, key: u64) -> Option<WorkerKey> {
        self.pool.highest(class, |index: u32| mix(key ^ mix(u64::from(index) + 1)))
    }

    /// A new request of nobody in particular: see [`Dispatcher::submit_of`].
    pub fn submit(&mut self, now: Instant, class: Class, sticky: Option<u64>, item: T) -> Verdict<T> {
        self.submit_of(now, class, sticky, item, || 0)
    }

    // LIFE: 4
    /// A new request. `sticky` is the key that decides its worker, if one does. Requests that wait are given out by
    /// `source` in turn; it is asked for only then.
    pub fn submit_of(
        &mut self,
        now: Instant,
        class: Class,
        sticky: Option<u64>,
        item: T,
        source: impl FnOnce() -> u64,
    ) -> Verdict<T> {
        if let Some(key) = sticky {
            return self.submit_sticky(now, class, key, item);
        }
        // Whoever waits comes first, unless it waits for others' workers.
        if self.queues.len_of(class) == 0
            && let Some(worker) = self.pick(now, class)
        {
            self.pool.take(worker, now);
            return Verdict::To(worker, item);
        }
        let source = source();
        if !self.has_room_to_wait(source) {
            return Verdict::Refused(item, Refusal::QueueFull);
        }
        Verdict::Waits(self.queues.push(now, class, source, item))
    }

    /// Takes back a request that waits, if it still does. It costs the same wherever it stands.
    pub fn withdraw(&mut self, key: WaitingKey) -> Option<T> {
        self.queues.withdraw(key)
    }

    /// A request given to the worker is done with.
    pub fn release(&mut self, worker: WorkerKey) {
        self.release_many(worker, 1);
    }

    /// So many are done with. It costs what one does.
    pub fn release_many(&mut self, worker: WorkerKey, count: u32) {
        self.pool.release(worker, count);
        self.stirred = true;
        if self.pool.outstanding(worker).is_some_and(|count| count > 0) {
            self.begun.push(worker);
        }
    }

    /// A free place at a worker, kept for something that is given to it elsewhere; [`Dispatcher::release`] gives it
    /// back.
    pub fn keep(&mut self, now: Instant) -> Option<WorkerKey> {
        let worker = self.pick(now, Class::default())?;
        self.pool.take(worker, now);
        Some(worker)
    }

    /// Takes the next of the requests that wait that `may` be served elsewhere, among so many.
    pub fn take_waiting(&mut self, looked_max: usize, may: impl Fn(&T) -> bool) -> Option<T> {
        self.queues.pop_first(looked_max, may)
    }

    /// Since when the one that has waited longest has.
    pub fn waits_since(&self) -> Option<Instant> {
        self.queues.waits_since()
    }

    /// So much is outstanding at the worker that was given to it elsewhere, or before this dispatcher began.
    pub fn adopt(&mut self, worker: WorkerKey, count: u32) {
        self.pool.adopt(worker, count);
    }

    /// Takes out of the queue whatever `keep` does not want.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.queues.retain(keep);
    }

    /// What one request took: see [`BoundEstimate::note`].
    pub fn note(&mut self, travel_ns: u64, service_ns: u64) {
        let before = self.bound();
        self.estimate.note(travel_ns, service_ns);
        self.remaining.note(service_ns);
        self.stirred |= self.bound() > before;
    }

    /// What waited and is given out now. Ask after every other call.
    pub fn poll(&mut self, now: Instant) -> Option<Dispatch<T>> {
        let travel_ns = self.estimate.travel_ns() as u64;
        while let Some(worker) = self.begun.pop() {
            self.pool.begin(worker, Instant(now.0.saturating_sub(travel_ns)));
        }
        self.look_back(now);
        if let Some(since) = self.queues.waits_since()
            && now.since_ns(since) >= self.settings.delay_ns_max
        {
            let waiting = self.queues.pop_oldest()?;
            return Some(Dispatch::Expired { item: waiting.item, waited_ns: now.since_ns(waiting.since) });
        }
        if !self.stirred {
            return None;
        }
        let Some(class) = self.queues.next_class(|class| self.has_room(now, class)) else {
            self.stirred = false;
            return None;
        };
        let worker = self.pick(now, class)?;
        let waiting = self.queues.pop(class)?;
        self.pool.take(worker, now);
        Some(Dispatch::To { worker, item: waiting.item, waited_ns: now.since_ns(waiting.since) })
    }

    /// When something has waited for as long as it may.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.queues.waits_since().map(|since| since.plus_ns(self.settings.delay_ns_max))
    }

    /// Requests that wait.
    pub fn queued(&self) -> usize {
        self.queues.len()
    }

    /// Workers.
    pub fn workers(&self) -> usize {
        self.pool.len()
    }

    /// What a worker has.
    pub fn outstanding(&self, worker: WorkerKey) -> Option<u32> {
        self.pool.outstanding(worker)
    }

    /// The n in force, but for the one more while the queue is old; `None` for policies without.
    pub fn bound(&self) -> Option<u32> {
        match self.settings.policy {
            Policy::Bounded(Bound::Fixed(n)) => Some(n),
            Policy::Bounded(Bound::Auto) => Some(self.measured_bound()),
            Policy::Random | Policy::RoundRobin | Policy::PowerOfTwo | Policy::JoinShortestQueue => None,
        }
    }

    /// What the bound is measured from.
    pub fn estimate(&self) -> &BoundEstimate {
        &self.estimate
    }

    /// A measure is of what was: with a worker's wake-ups, its timers and a busy host the gap between two requests may
    /// be longer, and workers that wait for their next one while a queue grows are lost to everybody.
    fn look_back(&mut self, now: Instant) {
        let waited_ns = self.queues.waits_since().map_or(0, |since| now.since_ns(since));
        let (service_ns, travel_ns) = (self.estimate.service_ns(), self.estimate.travel_ns());
        let (least, most) = OLD_SERVICES;
        let old_ns = (OLD_TRAVEL * service_ns / travel_ns.max(1.0)).clamp(least, most) * service_ns;
        let behind = service_ns > 0.0 && waited_ns as f64 > if self.behind { old_ns / 2.0 } else { old_ns };
        self.stirred |= behind && !self.behind;
        self.behind = behind;
    }

    /// Whether one more request of a source may wait. Alone it may have all of [`Settings::queue_max`]; beside it there
    /// is half as much for others, of which each may have twice what is free, and an eighth for those that have
    /// nothing.
    fn has_room_to_wait(&self, source: u64) -> bool {
        let (queued, max) = (self.queues.len(), self.settings.queue_max);
        if queued < max / ANYBODYS_PART {
            return true;
        }
        let (for_all, held) = (max.saturating_add(max / OTHERS_PART), self.queues.len_of_source(source));
        let free = for_all.saturating_sub(queued);
        let is_new = held == 0 && queued < for_all.saturating_add(max / NEWCOMERS_PART);
        free > 0 && held < free.saturating_mul(FREE_TIMES) || is_new
    }

    fn submit_sticky(&mut self, now: Instant, class: Class, key: u64, item: T) -> Verdict<T> {
        let Some(worker) = self.sticky_worker(class, key) else {
            return Verdict::Refused(item, Refusal::NoWorker);
        };
        if self.pool.outstanding(worker).is_some_and(|count| count as usize >= self.settings.queue_max) {
            return Verdict::Refused(item, Refusal::QueueFull);
        }
        self.pool.take(worker, now);
        Verdict::To(worker, item)
    }

    fn has_room(&self, now: Instant, class: Class) -> bool {
        match self.settings.policy {
            Policy::Bounded(Bound::Fixed(n)) => self.pool.least_load(class).is_some_and(|load| load < n),
            Policy::Bounded(Bound::Auto) => self.roomy(now, class).is_some(),
            _ => self.pool.eligible(class) > 0,
        }
    }

    fn measured_bound(&self) -> u32 {
        let second =
            self.settings.stocks_early && self.remaining.is_measured() && self.estimate.is_second_free();
        self.estimate.bound().max(1 + u32::from(second))
    }

    /// JBSQ(auto): a worker with room by what was measured; one more goes into stock while the queue is old. What goes
    /// into stock goes to the worker that is expected to end soonest what it has in work, and to none that has met a
    /// long one. While the queue is young, a second goes behind a first that is about to end.
    fn roomy(&self, now: Instant, class: Class) -> Option<WorkerKey> {
        let drawn = mix(self.random);
        let load = self.pool.least_load(class)?;
        let (service_ns, travel_ns) = (self.estimate.service_ns(), self.estimate.travel_ns());
        let has_room = load < self.measured_bound() + u32::from(self.behind);
        // Before anything is measured, nobody is expected to end sooner than another.
        if load == 0 || has_room && service_ns == 0.0 {
            return self.pool.least_loaded(class, drawn);
        }
        let age_ns = |began| now.since_ns(began).saturating_sub(travel_ns as u64);
        let ((left_ns, worker), within_ns) = if has_room {
            let expected_ns = |began| self.remaining.expected_ns(age_ns(began));
            (self.pool.soonest(class, load, drawn, expected_ns)?, service_ns * STOCK_SERVICES)
        } else if load == 1 && self.gives_seconds(class) {
            let risked_ns = |began| self.remaining.risked_ns(age_ns(began));
            (self.pool.soonest(class, load, drawn, risked_ns)?, travel_ns * SECOND_TRAVELS)
        } else {
            return None;
        };
        (left_ns as f64 <= within_ns).then_some(worker)
    }

    /// Whether a worker with one may get a second now, if that one is about to end.
    fn gives_seconds(&self, class: Class) -> bool {
        let is_measured = self.remaining.is_measured() && self.estimate.has_gap();
        self.settings.stocks_early && is_measured && self.queues.len_of(class) >= SECOND_QUEUE_MIN
    }

    fn pick(&mut self, now: Instant, class: Class) -> Option<WorkerKey> {
        match self.settings.policy {
            Policy::Bounded(Bound::Auto) => {
                let found = self.roomy(now, class);
                self.random();
                found
            }
            _ if !self.has_room(now, class) => None,
            Policy::Random => self.draw(class),
            Policy::RoundRobin => {
                let (worker, index) = self.pool.after(class, self.turn)?;
                self.turn = index;
                Some(worker)
            }
            Policy::PowerOfTwo => {
                let (one, other) = (self.draw(class)?, self.draw(class)?);
                let load = |worker| self.pool.outstanding(worker);
                Some(if load(other) < load(one) { other } else { one })
            }
            Policy::JoinShortestQueue | Policy::Bounded(_) => {
                let drawn = self.random();
                self.pool.least_loaded(class, drawn)
            }
        }
    }

    fn draw(&mut self, class: Class) -> Option<WorkerKey> {
        let count = self.pool.eligible(class) as u64;
        let drawn = self.random();
        self.pool.at(class, (drawn % count.max(1)) as usize)
    }

    /// The next of a deterministic sequence (splitmix64).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }
}

/// The finalizer of splitmix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
