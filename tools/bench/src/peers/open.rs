//! Calls in an open loop: they come as a Poisson process, each with the time its handler is to take, and none waits for
//! another's answer. Everything follows from a seed, so every peer of a round is asked the same at the same times, and
//! what no balancer could beat (M/G/k) is computed from the very same requests.

use super::ours;
use super::sleepers::proto::{SleepClient, Span};
use crate::harness::children::{Failure, Talker, once_there};
use crate::harness::orders::answer_lines;
use crate::harness::work::word;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::future::poll_fn;
use std::num::NonZeroU64;
use std::path::Path;
use std::pin::Pin;
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
const SEARCH_TIMES: &str = include_str!("../search_times.txt");
/// The kernel may be late by so much with a sleep: next to nothing, instead of the usual 50 µs.
const TIMER_SLACK: Option<NonZeroU64> = NonZeroU64::new(1);

/// How service times are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Shape {
    Fixed,
    Exponential,
    /// One in ten takes ten times as long.
    Bimodal,
    /// As the search example's queries.
    Search,
}

/// What is asked of a peer for one round.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
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
    fn service(self, mean_us: u64) -> Result<Service, Failure> {
        if self == Self::Search {
            let times: Result<Vec<u64>, _> = SEARCH_TIMES.lines().map(str::parse).collect();
            // Once in a process's life.
            let times: &'static [u64] = Vec::leak(times?);
            return Service::measured(times, mean_us as f64 * 1e3).ok_or_else(|| "no search times".into());
        }
        format!("{}:{mean_us}us", word(self)).parse().map_err(|error| format!("{error}").into())
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
        once_there(|| caller.call(0).wait())?;
        Ok(caller)
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
    answer_lines(|line| Ok(serde_json::to_string(&carry_out(&client, serde_json::from_str(line)?)?)?))
}

/// Has a driver carry out a load.
pub fn ask(driver: &mut Talker, load: &Load, patience: Duration) -> Result<Answer, Failure> {
    Ok(serde_json::from_str(&driver.ask(&serde_json::to_string(load)?, patience)?)?)
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

#[cfg(test)]
mod tests {
    //! Every kind of load can be drawn with the mean it says.
    use super::*;

    const LOAD: Load = Load { shape: Shape::Search, mean_us: 5000, percent: 90, millis: 60_000, seed: 7 };

    #[test]
    fn service_times_have_their_mean_and_calls_their_rate() {
        for &shape in Shape::value_variants() {
            let requests = Load { shape, ..LOAD }.scenario().unwrap().requests();
            let mean_us =
                requests.iter().map(|request| request.takes_ns).sum::<u64>() / requests.len() as u64 / 1000;
            assert!((4800..5200).contains(&mean_us), "{shape:?}: {mean_us} µs");
            let seconds = requests.last().unwrap().arrives / 1_000_000_000;
            assert!((58..62).contains(&seconds), "{shape:?}: {seconds} s");
        }
    }
}
