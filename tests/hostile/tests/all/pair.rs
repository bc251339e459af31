//! A client that calls a server all the time, and what it noticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trunkline_system_tests::harness::{Host, Process, client, echo, until, until_served};

/// Calls before anything is judged: what is bound and touched first is no cost of an attack.
const WARM_UP_CALLS: u64 = 200;
/// Between two calls, so that the pair leaves the machine to the attack.
const PAUSE: Duration = Duration::from_micros(500);

/// A server, and a client that calls it until it is told to stop.
pub struct Pair {
    _server: Process,
    caller: JoinHandle<Noticed>,
    stops: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
}

/// What the client noticed.
#[derive(Debug, Default)]
pub struct Noticed {
    pub took: Vec<Duration>,
    pub errors: Vec<String>,
}

impl Pair {
    /// Begins, and returns when they know each other.
    pub fn begin(host: &Host) -> Self {
        let server = host.server("server");
        let client = client(host, "");
        until_served(&client);
        let (stops, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (Arc::clone(&stops), Arc::clone(&calls));
        let caller = std::thread::spawn(move || {
            let mut noticed = Noticed::default();
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                match echo(&client, "well?") {
                    Ok(_) => noticed.took.push(began.elapsed()),
                    Err(status) => noticed.errors.push(status.to_string()),
                }
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::park_timeout(PAUSE);
            }
            noticed
        });
        let pair = Self { _server: server, caller, stops, calls };
        pair.until_more(WARM_UP_CALLS);
        pair
    }

    /// Waits until the client has made so many more calls.
    pub fn until_more(&self, calls: u64) {
        let before = self.calls.load(Ordering::Relaxed);
        until("calls of the good pair", || {
            (self.calls.load(Ordering::Relaxed) >= before + calls).then_some(())
        });
    }

    /// Ends. What the client noticed.
    pub fn end(self) -> Noticed {
        self.stops.store(true, Ordering::Relaxed);
        self.caller.join().expect("the good client does not panic")
    }
}

impl Noticed {
    /// For people.
    pub fn print(mut self, attack: &str) {
        self.took.sort();
        let at = |percent: usize| self.took.get(self.took.len() * percent / 100).copied().unwrap_or_default();
        eprintln!("{attack}: {} calls of the good pair, p50 {:?}, p99 {:?}", self.took.len(), at(50), at(99));
    }
}
