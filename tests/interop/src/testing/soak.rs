//! The same large call again and again, on one channel and on a new one each time.

use super::cases::{Caller, CaseError, body_of, large_request};
use crate::proto::grpc::testing::test_service_client::TestServiceClient;
use std::thread;
use std::time::{Duration, Instant};
use trunkline::{Request, Wait};

/// How a soak goes. Defaults are those of gRPC's programs.
#[derive(Clone, Debug, clap::Args)]
pub struct Soak {
    /// Calls in all
    #[arg(long = "soak_iterations", default_value_t = 10)]
    pub iterations: usize,
    /// Calls that may fail or be late
    #[arg(long = "soak_max_failures", default_value_t = 0)]
    pub max_failures: usize,
    /// A call that takes longer is late
    #[arg(long = "soak_per_iteration_max_acceptable_latency_ms", default_value_t = 1000)]
    pub max_acceptable_latency_ms: u64,
    /// Calls not begun by then count as failed
    #[arg(long = "soak_overall_timeout_seconds", default_value_t = 10)]
    pub overall_timeout_seconds: u64,
    /// Time between the starts of two calls of a thread, at least
    #[arg(long = "soak_min_time_ms_between_rpcs", default_value_t = 0)]
    pub min_time_ms_between_rpcs: u64,
    /// Bytes in a request's body
    #[arg(long = "soak_request_size", default_value_t = 271_828)]
    pub request_size: usize,
    /// Bytes in a response's body
    #[arg(long = "soak_response_size", default_value_t = 314_159)]
    pub response_size: i32,
    /// Threads among which the calls are divided
    #[arg(long = "soak_num_threads", default_value_t = 1)]
    pub num_threads: usize,
}

impl Default for Soak {
    fn default() -> Self {
        Self {
            iterations: 10,
            max_failures: 0,
            max_acceptable_latency_ms: 1000,
            overall_timeout_seconds: 10,
            min_time_ms_between_rpcs: 0,
            request_size: 271_828,
            response_size: 314_159,
            num_threads: 1,
        }
    }
}

pub(super) fn rpc_soak(caller: &Caller) -> Result<(), CaseError> {
    let client = caller.service();
    soak(caller, move || client.clone())
}

pub(super) fn channel_soak(caller: &Caller) -> Result<(), CaseError> {
    soak(caller, || caller.fresh())
}

fn soak(caller: &Caller, client: impl Fn() -> TestServiceClient + Sync) -> Result<(), CaseError> {
    let (soak, began) = (caller.soak(), Instant::now());
    let threads = soak.num_threads.max(1);
    let failures: Vec<String> = thread::scope(|scope| {
        let shares = (0..threads).map(|index| share(soak.iterations, threads, index));
        let workers: Vec<_> = shares
            .map(|calls| {
                let client = &client;
                scope.spawn(move || work(soak, began, calls, client))
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|_| vec!["a thread panicked".into()]))
            .collect()
    });
    if failures.len() <= soak.max_failures {
        return Ok(());
    }
    let first = failures.first().map_or("", String::as_str);
    Err(CaseError::Wrong(format!("{} of {} calls failed: {first}", failures.len(), soak.iterations)))
}

/// Calls of one thread: all of them add up to the whole.
fn share(calls: usize, threads: usize, index: usize) -> usize {
    calls / threads + usize::from(index < calls % threads)
}

fn work(
    soak: &Soak,
    began: Instant,
    calls: usize,
    client: &(impl Fn() -> TestServiceClient + Sync),
) -> Vec<String> {
    let mut failures = Vec::new();
    for _ in 0..calls {
        let started = Instant::now();
        if began.elapsed() > Duration::from_secs(soak.overall_timeout_seconds) {
            failures.push(format!("not begun after {} s", soak.overall_timeout_seconds));
            continue;
        }
        failures.extend(one(soak, &client()).err());
        let next = started + Duration::from_millis(soak.min_time_ms_between_rpcs);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    failures
}

fn one(soak: &Soak, client: &TestServiceClient) -> Result<(), String> {
    let began = Instant::now();
    let request = Request::new(large_request((soak.request_size, soak.response_size)));
    let limit = Duration::from_secs(soak.overall_timeout_seconds);
    let reply = client.unary_call(request.with_timeout(limit)).wait().map_err(|status| status.to_string())?;
    if body_of(&reply) != usize::try_from(soak.response_size).ok() {
        return Err(format!("a body of {:?} bytes", body_of(&reply)));
    }
    match began.elapsed() {
        late if late > Duration::from_millis(soak.max_acceptable_latency_ms) => Err(format!("took {late:?}")),
        _ => Ok(()),
    }
}
