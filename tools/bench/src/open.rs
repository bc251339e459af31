//! Calls in an open loop: they come as a Poisson process, each with the time its handler is to take, and none waits for
//! another's answer. Everything follows from a seed, so every peer of a round is asked the same at the same times, and
//! what no balancer could beat (M/G/k) is computed from the very same requests.

use crate::children::{Failure, START_LOOKS, START_PAUSE};
use crate::ours;
use crate::sleepers::proto::{SleepClient, Span};
use serde::Serialize;
use std::future::poll_fn;
use std::io::Write;
use std::num::NonZeroU64;
use std::path::Path;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use trunkline::{Status, Wait, block_on};
use trunkline_sim::{Outcome, Request, Scenario, Service};

/// Workers behind every balancer.
pub const WORKERS: usize = 16;
/// Nanoseconds that queries of the search example took, sorted; how they came to be is in the file's program,
/// `examples/search/examples/query_times.rs`.
const SEARCH_TIMES: &str = include_str!("search_times.txt");
/// The kernel may be late by so much with a sleep: next to nothing, instead of the usual 50 µs.
const TIMER_SLACK: Option<NonZeroU64> = NonZeroU64::new(1);

/// How service times are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    Fixed,
    Exponential,
    /// One in ten takes ten times as long.
    Bimodal,
    /// As the search example's queries.
    Search,
}

/// What is asked of a peer for one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Load {
    pub shape: Shape,
    pub mean_us: u64,
    /// Offered work by what the workers can do.
    pub percent: u32,
    pub millis: u64,
    pub seed: u64,
}

/// p50, p99 and p99.9, in nanoseconds.
pub type Quantiles = [u64; 3];

/// What came of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub calls: u64,
    pub failed: u64,
    /// One in twenty took longer.
    pub p95_ns: u64,
    /// From the instant a call was to be made until its answer was there.
    pub took: Quantiles,
    /// What one queue without any way to it would have needed for the same requests.
    pub bound: Quantiles,
    /// The same if it too had needed as long for each as the handler really did: sleeps end late.
    pub bound_as_served: Quantiles,
}

impl Shape {
    pub const ALL: [Self; 4] = [Self::Fixed, Self::Exponential, Self::Bimodal, Self::Search];

    /// For people and for lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Exponential => "exponential",
            Self::Bimodal => "bimodal",
            Self::Search => "search",
        }
    }

    fn service(self, mean_us: u64) -> Result<Service, Failure> {
        if self == Self::Search {
            let times: Result<Vec<u64>, _> = SEARCH_TIMES.lines().map(str::parse).collect();
            // Once in a process's life.
            let times: &'static [u64] = Vec::leak(times?);
            return Service::measured(times, mean_us as f64 * 1e3).ok_or_else(|| "no search times".into());
        }
        format!("{}:{mean_us}us", self.name()).parse().map_err(|error| format!("{error}").into())
    }
}

impl Load {
    fn scenario(&self) -> Result<Scenario, Failure> {
        let service = self.shape.service(self.mean_us)?;
        let load = f64::from(self.percent) / 100.0;
        let requests = (self.millis as f64 * 1e3 * WORKERS as f64 * load / self.mean_us as f64) as usize;
        Ok(Scenario {
            workers: WORKERS,
            service,
            travel_ns: 0,
            load,
            requests: requests.max(10),
            seed: self.seed,
        })
    }
}

/// A call until it has ended; for how many nanoseconds its handler was busy.
type Call = Pin<Box<dyn Future<Output = Result<u64, Status>>>>;

/// How a call ended.
struct End {
    /// Which request it was.
    request: usize,
    /// If it was answered: from the instant it was due, and in its handler.
    took: Option<(u64, u64)>,
}

/// The calling end.
struct Caller {
    client: SleepClient,
    /// By the method whose calls a daemon does not hold back.
    in_turn: bool,
}

impl Caller {
    /// Waits until somebody answers.
    fn connect(socket: &Path, target: &str, in_turn: bool) -> Result<Self, Failure> {
        let caller = Self { client: SleepClient::new(ours::channel(socket, target)?), in_turn };
        for _ in 0..START_LOOKS {
            if caller.call(0).wait().is_ok() {
                return Ok(caller);
            }
            std::thread::sleep(START_PAUSE);
        }
        Err("no worker answers".into())
    }

    fn call(&self, ns: u64) -> Call {
        if !self.in_turn {
            let call = self.client.nap(Span { ns });
            return Box::pin(async move { Ok(call.await?.view().ns()) });
        }
        let call = self.client.nap_in_turn(Span { ns });
        Box::pin(async move {
            let mut answers = call.await?;
            let mut busy_ns = 0;
            while let Some(slept) = answers.recv().await? {
                busy_ns = slept.view().ns();
            }
            Ok(busy_ns)
        })
    }
}

/// Carries out every load on standard input, until it ends.
pub fn drive(socket: &Path, target: &str, in_turn: bool) -> Result<(), Failure> {
    let client = Caller::connect(socket, target, in_turn)?;
    for line in std::io::stdin().lines() {
        let answer = carry_out(&client, line?.parse()?)?;
        let mut output = std::io::stdout().lock();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

fn carry_out(client: &Caller, load: Load) -> Result<Answer, Failure> {
    let scenario = load.scenario()?;
    let requests = scenario.requests();
    let clock = Clock { began: Instant::now(), due: AtomicUsize::new(0), waker: Mutex::default() };
    let mut round =
        Round { client, clock: &clock, requests: &requests, made: 0, calls: Vec::new(), ends: Vec::new() };
    std::thread::scope(|scope| {
        scope.spawn(|| clock.run(&requests));
        block_on(poll_fn(|cx| round.poll(cx)));
    });
    // As in the simulator: queues begin empty, so the first tenth is not counted.
    let counted = round.ends.iter().filter(|end| end.request >= requests.len() / 10);
    let took = Outcome::of(counted.filter_map(|end| end.took).map(|(took_ns, _)| took_ns).collect());
    Ok(Answer {
        calls: requests.len() as u64,
        failed: round.ends.iter().filter(|end| end.took.is_none()).count() as u64,
        p95_ns: took.quantile_ns(0.95),
        took: quantiles(&took),
        bound: quantiles(&scenario.bound()),
        bound_as_served: quantiles(&scenario.bound_of(&as_served(&requests, &round.ends))),
    })
}

/// The requests with the times their handlers took; those that failed as they were meant.
fn as_served(requests: &[Request], ends: &[End]) -> Vec<Request> {
    let mut served = requests.to_vec();
    for end in ends {
        if let Some((_, busy_ns)) = end.took {
            served[end.request].takes_ns = busy_ns;
        }
    }
    served
}

fn quantiles(outcome: &Outcome) -> Quantiles {
    [0.5, 0.99, 0.999].map(|share| outcome.quantile_ns(share))
}

/// Says when calls are due.
struct Clock {
    began: Instant,
    /// Calls whose time has come.
    due: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Clock {
    fn run(&self, requests: &[Request]) {
        // Without the right to it, sleeps are as late as they usually are.
        let _ = rustix::thread::set_current_timer_slack(TIMER_SLACK);
        for (index, request) in requests.iter().enumerate() {
            let left = Duration::from_nanos(request.arrives).saturating_sub(self.began.elapsed());
            std::thread::sleep(left);
            self.due.store(index + 1, Ordering::Release);
            if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
                waker.wake_by_ref();
            }
        }
    }
}

/// Calls under way.
struct Round<'a> {
    client: &'a Caller,
    clock: &'a Clock,
    requests: &'a [Request],
    made: usize,
    calls: Vec<(usize, Call)>,
    ends: Vec<End>,
}

impl Round<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // First: whatever comes due from here on wakes this.
        *self.clock.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        let due = self.clock.due.load(Ordering::Acquire);
        for index in self.made..due {
            self.calls.push((index, self.client.call(self.requests[index].takes_ns)));
        }
        self.made = due;
        let Self { calls, ends, requests, clock, .. } = self;
        calls.retain_mut(|(index, call)| {
            let Poll::Ready(answer) = call.as_mut().poll(cx) else { return true };
            let took_ns = clock.began.elapsed().as_nanos() as u64 - requests[*index].arrives;
            ends.push(End { request: *index, took: answer.ok().map(|busy_ns| (took_ns, busy_ns)) });
            false
        });
        if self.ends.len() == self.requests.len() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { shape, mean_us, percent, millis, seed } = self;
        write!(f, "{} {mean_us} {percent} {millis} {seed}", shape.name())
    }
}

impl FromStr for Load {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let shape =
            Shape::ALL.into_iter().find(|shape| shape.name() == name).ok_or("no such service times")?;
        let [mean_us, percent, millis, seed] = numbers(words)?;
        Ok(Self { shape, mean_us, percent: percent.try_into()?, millis, seed })
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { calls, failed, p95_ns, took, bound, bound_as_served } = self;
        write!(f, "{calls} {failed} {p95_ns}")?;
        [took, bound, bound_as_served].into_iter().flatten().try_for_each(|ns| write!(f, " {ns}"))
    }
}

impl FromStr for Answer {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let [calls, failed, p95_ns, a, b, c, d, e, f, g, h, i] = numbers(line.split_whitespace())?;
        let [took, bound, bound_as_served] = [[a, b, c], [d, e, f], [g, h, i]];
        Ok(Self { calls, failed, p95_ns, took, bound, bound_as_served })
    }
}

fn numbers<'a, const N: usize>(words: impl Iterator<Item = &'a str>) -> Result<[u64; N], Failure> {
    let numbers: Result<Vec<u64>, _> = words.map(str::parse).collect();
    numbers?.try_into().map_err(|_| format!("{N} numbers expected").into())
}

#[cfg(test)]
mod tests {
    //! Loads and answers survive their lines, and every kind of load can be drawn with the mean it says.
    use super::*;

    const LOAD: Load = Load { shape: Shape::Search, mean_us: 5000, percent: 90, millis: 60_000, seed: 7 };

    #[test]
    fn lines_are_read_as_they_were_written() {
        assert_eq!(LOAD.to_string().parse::<Load>().unwrap(), LOAD);
        let [took, bound, bound_as_served] = [[3, 4, 5], [6, 7, 8], [10, 11, 12]];
        let answer = Answer { calls: 1, failed: 2, p95_ns: 9, took, bound, bound_as_served };
        assert_eq!(answer.to_string().parse::<Answer>().unwrap(), answer);
        for damaged in ["", "search", "search 1 2 3", "slow 1 2 3 4", "fixed 1 2 3 x"] {
            assert!(damaged.parse::<Load>().is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn service_times_have_their_mean_and_calls_their_rate() {
        for shape in Shape::ALL {
            let requests = Load { shape, ..LOAD }.scenario().unwrap().requests();
            let mean_us =
                requests.iter().map(|request| request.takes_ns).sum::<u64>() / requests.len() as u64 / 1000;
            assert!((4800..5200).contains(&mean_us), "{shape:?}: {mean_us} µs");
            let seconds = requests.last().unwrap().arrives / 1_000_000_000;
            assert!((58..62).contains(&seconds), "{shape:?}: {seconds} s");
        }
    }
}
