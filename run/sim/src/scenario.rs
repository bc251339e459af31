//! One run: one policy, one load.

use crate::service::Service;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use trunkline_call::Instant;
use trunkline_dispatch::{Class, Dispatch, Dispatcher, Policy, Settings, Verdict, WorkerKey};

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Workers, each with one server.
    pub workers: usize,
    /// How long requests take.
    pub service: Service,
    /// From router to worker and back.
    pub travel_ns: u64,
    /// Offered work by what the workers can do.
    pub load: f64,
    /// Requests; the first tenth is not counted.
    pub requests: usize,
    /// Where drawing begins.
    pub seed: u64,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Latencies, sorted.
    latencies: Vec<u64>,
    /// The n of JBSQ(n) at the end.
    pub bound: Option<u32>,
}

/// A request, drawn beforehand so that every policy gets the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it comes, in nanoseconds since the start.
    pub arrives: u64,
    /// How long a worker has it.
    pub takes_ns: u64,
}

/// What happens at an instant.
enum Event {
    Arrival,
    /// A request reaches its worker.
    Reach(usize, usize),
    /// A worker is done with one.
    Done(usize, usize),
    /// Word of that reaches the router.
    Word(usize, usize),
}

/// A worker: a queue and a server.
struct Worker {
    key: WorkerKey,
    waiting: VecDeque<usize>,
    busy: bool,
}

struct Run<'a> {
    scenario: &'a Scenario,
    requests: Vec<Request>,
    dispatcher: Dispatcher<usize>,
    workers: Vec<Worker>,
    by_key: HashMap<WorkerKey, usize>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    what: Vec<Option<Event>>,
    free: Vec<usize>,
    serial: u64,
    latencies: Vec<u64>,
    arrived: usize,
}

impl Scenario {
    /// Runs a policy.
    pub fn run(&self, policy: Policy) -> Outcome {
        let settings = Settings {
            policy,
            queue_max: usize::MAX,
            delay_ns_max: u64::MAX,
            seed: self.seed,
            ..Settings::default()
        };
        let mut dispatcher = Dispatcher::new(settings);
        let workers: Vec<Worker> = (0..self.workers)
            .map(|_| Worker { key: dispatcher.join(1), waiting: VecDeque::new(), busy: false })
            .collect();
        let by_key = workers.iter().enumerate().map(|(index, worker)| (worker.key, index)).collect();
        let requests = self.requests();
        let mut run = Run {
            scenario: self,
            dispatcher,
            workers,
            by_key,
            events: BinaryHeap::new(),
            what: Vec::new(),
            free: Vec::new(),
            serial: 0,
            latencies: Vec::with_capacity(requests.len()),
            arrived: 0,
            requests,
        };
        run.book(run.requests[0].arrives, Event::Arrival);
        run.run();
        let bound = run.dispatcher.bound();
        Outcome::new(run.latencies, bound)
    }

    /// One queue and as many servers, no travel: the bound.
    pub fn bound(&self) -> Outcome {
        self.bound_of(&self.requests())
    }

    /// The same for requests that took other times than they were meant to.
    pub fn bound_of(&self, requests: &[Request]) -> Outcome {
        let mut free: BinaryHeap<Reverse<u64>> = (0..self.workers).map(|_| Reverse(0)).collect();
        let mut latencies = Vec::with_capacity(requests.len());
        for request in requests {
            let Reverse(idle) = free.pop().expect("there is a worker");
            let end = idle.max(request.arrives).saturating_add(request.takes_ns);
            free.push(Reverse(end));
            latencies.push(end - request.arrives);
        }
        latencies.drain(..requests.len() / 10);
        Outcome::new(latencies, None)
    }

    /// What every policy is given, in the order it comes.
    pub fn requests(&self) -> Vec<Request> {
        let mut random = self.seed;
        let mut uniform = move || {
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = random;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        };
        let gap_ns = self.service.mean_ns() / (self.workers as f64 * self.load);
        let mut at = 0.0;
        (0..self.requests)
            .map(|_| {
                at += -(1.0 - uniform()).ln() * gap_ns;
                Request { arrives: at as u64, takes_ns: self.service.draw(uniform()) }
            })
            .collect()
    }
}

impl Run<'_> {
    fn run(&mut self) {
        while let Some(Reverse((at, serial))) = self.events.pop() {
            let slot = (serial & 0xffff_ffff) as usize;
            self.free.push(slot);
            match self.what[slot].take().expect("it was booked") {
                Event::Arrival => self.arrival(at),
                Event::Reach(worker, request) => self.reach(at, worker, request),
                Event::Done(worker, request) => self.done(at, worker, request),
                Event::Word(worker, request) => self.word(at, worker, request),
            }
        }
    }

    fn arrival(&mut self, at: u64) {
        let request = self.arrived;
        self.arrived += 1;
        if let Some(next) = self.requests.get(self.arrived) {
            self.book(next.arrives, Event::Arrival);
        }
        match self.dispatcher.submit(Instant(at), Class::default(), None, request) {
            Verdict::To(worker, request) => self.hand_over(at, worker, request),
            Verdict::Waits(_) => {}
            Verdict::Refused(..) => unreachable!("the queue has no limit here"),
        }
    }

    fn reach(&mut self, at: u64, worker: usize, request: usize) {
        if self.workers[worker].busy {
            self.workers[worker].waiting.push_back(request);
        } else {
            self.begin(at, worker, request);
        }
    }

    fn begin(&mut self, at: u64, worker: usize, request: usize) {
        self.workers[worker].busy = true;
        self.book(at.saturating_add(self.requests[request].takes_ns), Event::Done(worker, request));
    }

    fn done(&mut self, at: u64, worker: usize, request: usize) {
        if request >= self.scenario.requests / 10 {
            self.latencies.push(at - self.requests[request].arrives);
        }
        self.book(at.saturating_add(self.scenario.travel_ns / 2), Event::Word(worker, request));
        self.workers[worker].busy = false;
        if let Some(next) = self.workers[worker].waiting.pop_front() {
            self.begin(at, worker, next);
        }
    }

    fn word(&mut self, at: u64, worker: usize, request: usize) {
        self.dispatcher.release(self.workers[worker].key);
        self.dispatcher.note(self.scenario.travel_ns, self.requests[request].takes_ns);
        while let Some(dispatch) = self.dispatcher.poll(Instant(at)) {
            if let Dispatch::To { worker, item, .. } = dispatch {
                self.hand_over(at, worker, item);
            }
        }
    }

    fn hand_over(&mut self, at: u64, worker: WorkerKey, request: usize) {
        let worker = self.by_key[&worker];
        self.book(at.saturating_add(self.scenario.travel_ns / 2), Event::Reach(worker, request));
    }

    fn book(&mut self, at: u64, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.what.push(None);
            self.what.len() - 1
        });
        self.what[slot] = Some(event);
        // Booked first, due first: the upper half orders, the lower says where it lies.
        self.serial += 1;
        self.events.push(Reverse((at, self.serial << 32 | slot as u64)));
    }
}

impl Outcome {
    /// Of latencies in nanoseconds, in any order.
    pub fn of(latencies: Vec<u64>) -> Self {
        Self::new(latencies, None)
    }

    fn new(mut latencies: Vec<u64>, bound: Option<u32>) -> Self {
        latencies.sort_unstable();
        Self { latencies, bound }
    }

    /// The latency below which this share of the requests stays, in nanoseconds.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let last = self.latencies.len().saturating_sub(1);
        let index = (share * self.latencies.len() as f64) as usize;
        self.latencies.get(index.min(last)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that the simulator agrees with what is known: M/M/1 in closed form, no policy below the bound, JBSQ close
    //! to it, and the paper's findings.
    use super::*;
    use trunkline_dispatch::Bound;

    fn scenario(service: &str, workers: usize, load: f64) -> Scenario {
        Scenario { workers, service: service.parse().unwrap(), travel_ns: 0, load, requests: 40_000, seed: 7 }
    }

    fn jbsq(n: u32) -> Policy {
        Policy::Bounded(Bound::Fixed(n))
    }

    #[test]
    fn one_worker_is_the_closed_form() {
        let outcome =
            Scenario { requests: 200_000, ..scenario("exponential:10us", 1, 0.5) }.run(Policy::Random);
        // The sojourn of M/M/1 is exponential with mean S ÷ (1 − ρ) = 20 µs.
        for share in [0.5, 0.9, 0.99] {
            let wanted = -(1.0f64 - share).ln() * 20_000.0;
            let found = outcome.quantile_ns(share) as f64;
            assert!((found / wanted - 1.0).abs() < 0.05, "quantile {share}: {found}, not {wanted}");
        }
    }

    #[test]
    fn nothing_beats_the_bound_and_a_single_queue_is_the_bound() {
        for service in ["fixed:10us", "exponential:10us", "bimodal:10us", "heavy:10us"] {
            let scenario = scenario(service, 16, 0.8);
            let bound = scenario.bound().quantile_ns(0.99);
            assert_eq!(scenario.run(jbsq(1)).quantile_ns(0.99), bound, "{service}");
            let p99 = |policy| scenario.run(policy).quantile_ns(0.99);
            let (jsq, two) = (p99(Policy::JoinShortestQueue), p99(Policy::PowerOfTwo));
            let (random, robin) = (p99(Policy::Random), p99(Policy::RoundRobin));
            assert!(bound <= jsq && jsq < two && two < random, "{service}: {bound} {jsq} {two} {random}");
            // Among heavy tails which of two that ignore load does better is chance.
            assert!(robin < random || service.starts_with("heavy"), "{service}: {robin} {random}");
        }
    }

    #[test]
    fn small_bounds_lose_throughput_and_three_does_not() {
        // The paper's figure: 64 workers, exponential 25 µs, 15 µs of travel.
        let scenario = Scenario { travel_ns: 15_000, ..scenario("exponential:25us", 64, 0.85) };
        let p99 = |policy| scenario.run(policy).quantile_ns(0.99);
        let (one, three, jsq) = (p99(jbsq(1)), p99(jbsq(3)), p99(Policy::JoinShortestQueue));
        let (robin, auto) = (p99(Policy::RoundRobin), p99(Policy::Bounded(Bound::Auto)));
        assert!(one > 4 * three, "n = 1 is saturated: {one} against {three}");
        assert!(three < jsq * 11 / 10 && three < robin, "{three} {jsq} {robin}");
        assert!(auto < three * 11 / 10, "auto {auto}, three {three}");
    }

    #[test]
    fn bimodal_milliseconds_stay_near_the_bound() {
        let scenario = Scenario { travel_ns: 100_000, ..scenario("bimodal:5ms", 16, 0.9) };
        let outcome = scenario.run(Policy::Bounded(Bound::Auto));
        let ratio = outcome.quantile_ns(0.99) as f64 / scenario.bound().quantile_ns(0.99) as f64;
        assert!(ratio < 1.2, "p99 is {ratio} times the bound's, n = {:?}", outcome.bound);
    }

    #[test]
    fn seconds_are_there_when_firsts_end() {
        // Deviation a third of the mean, as of a search's queries; a tenth of a service is lost between two.
        let service = Service::measured(&[4, 6, 8, 9, 10, 10, 11, 12, 14, 16], 10e6).unwrap();
        for load in [0.9, 0.94] {
            let like = scenario("fixed:10ms", 16, load);
            let scenario = Scenario { service, travel_ns: 1_000_000, ..like };
            let p99 = |policy| scenario.run(policy).quantile_ns(0.99) as f64;
            let (auto, two) = (p99(Policy::Bounded(Bound::Auto)), p99(jbsq(2)));
            let bound = scenario.bound().quantile_ns(0.99) as f64;
            assert!(auto < bound * 1.2 && auto < two, "{load}: {auto}, bound {bound}, two {two}");
        }
    }

    #[test]
    fn requests_that_are_alike_are_at_the_bound() {
        let scenario = Scenario { travel_ns: 1_000_000, ..scenario("fixed:10ms", 16, 0.93) };
        let p99 = |policy| scenario.run(policy).quantile_ns(0.99) as f64;
        let (auto, robin) = (p99(Policy::Bounded(Bound::Auto)), p99(Policy::RoundRobin));
        let bound = scenario.bound().quantile_ns(0.99) as f64;
        assert!(auto < bound * 1.05 && auto < robin * 1.02, "{auto}, bound {bound}, in turn {robin}");
    }
}
