//! Random calls of every kind and size, ended in every way, for as long as is asked: what each comes to is known
//! beforehand, so whatever else comes is a fault. The same seed makes the same calls, in an order of the machine's.
//!
//! A [`Soak`] has a few callers: threads that wait, and tasks of an executor that is none of the library's. Each makes
//! one call after the other (`calls.rs`). Every call has a number, which the server's handler writes into its log
//! before anything else; what the client was told of it goes into the ledger ([`Ledger`]). Held against each other,
//! afterwards, they show whether any status was wrong about what was executed.

mod calls;
mod ledger;

pub use ledger::{Ledger, compare};

use crate::proto::probe::probe_client::ProbeClient;
use crate::random::Random;
use calls::Caller;
use futures_util::future::join_all;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use trunkline::{Channel, Wait, opaque};

/// Callers that wait, each on a thread of its own.
const THREADS: u64 = 3;
/// Callers that are tasks of one thread.
const TASKS: u64 = 4;
/// Faults that are told; further ones are counted.
const FAULTS_MAX: usize = 10;
/// A call that takes longer than this has stalled: patient ones have a deadline of half of it.
const STALLED: Duration = Duration::from_secs(120);

/// What calls are made.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Largest message that must arrive.
    pub bytes_max: u64,
    /// A message of this size must be refused with RESOURCE_EXHAUSTED; zero if there is none.
    pub refused_bytes: u64,
    /// Streams, too; unary calls only, if not.
    pub streams: bool,
}

/// Calls being made.
#[derive(Debug)]
pub struct Soak {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What callers share.
#[derive(Debug)]
struct Shared {
    client: ProbeClient,
    opaque: opaque::Client,
    extent: Extent,
    ledger: Ledger,
    until: Instant,
    stop: AtomicBool,
    numbers: AtomicU64,
    faults: Mutex<Vec<String>>,
    faults_count: AtomicU64,
    /// What each caller is at, and since when.
    at: Vec<Mutex<Option<(&'static str, Instant)>>>,
}

impl Soak {
    /// Begins to make calls through `channel`.
    ///
    /// # Errors
    /// If the ledger cannot be written.
    pub fn begin(
        channel: &Channel,
        extent: Extent,
        ledger: &Path,
        seed: u64,
        time: Duration,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            client: ProbeClient::new(channel.clone()),
            opaque: opaque::Client::new(channel.clone()),
            extent,
            ledger: Ledger::create(ledger)?,
            until: Instant::now() + time,
            stop: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            faults: Mutex::default(),
            faults_count: AtomicU64::new(0),
            at: (0..THREADS + TASKS).map(|_| Mutex::default()).collect(),
        });
        let caller = |index: u64| {
            let random = Random::new(seed.wrapping_mul(THREADS + TASKS).wrapping_add(index));
            run(Arc::clone(&shared), index as usize, random)
        };
        let tasks: Vec<_> = (THREADS..THREADS + TASKS).map(caller).collect();
        let mut threads = vec![std::thread::spawn(move || drop(execute(join_all(tasks))))];
        threads.extend((0..THREADS).map(caller).map(|caller| std::thread::spawn(move || caller.wait())));
        Ok(Self { shared, threads })
    }

    /// How it goes, in a line: `running`, `done`, or what is wrong.
    pub fn look(&mut self) -> String {
        let shared = &self.shared;
        let calls = shared.numbers.load(Ordering::Relaxed);
        if let Some(stalled) = shared.stalled() {
            return format!("stalled: {stalled}, after {calls} calls");
        }
        if !self.threads.iter().all(JoinHandle::is_finished) {
            return format!("running, {calls} calls");
        }
        let panicked = self.threads.drain(..).filter_map(|thread| thread.join().err()).count();
        let faults = shared.faults_count.load(Ordering::Relaxed);
        if faults > 0 || panicked > 0 {
            let told = shared.faults.lock().unwrap_or_else(PoisonError::into_inner).join("; ");
            return format!("{faults} faults, {panicked} panics in {calls} calls: {told}");
        }
        match shared.ledger.finish() {
            Ok(()) => format!("done, {calls} calls"),
            Err(error) => format!("the ledger cannot be written: {error}"),
        }
    }
}

/// One caller's calls, until the time is over.
async fn run(shared: Arc<Shared>, index: usize, random: Random) {
    let mut caller = Caller::new(Arc::clone(&shared), random);
    while Instant::now() < shared.until && !shared.stop.load(Ordering::Relaxed) {
        let kind = caller.choose();
        shared.is_at(index, Some((kind.name(), Instant::now())));
        if let Err(fault) = caller.call(kind).await {
            shared.fault(format!("{}: {fault}", kind.name()));
        }
    }
    shared.is_at(index, None);
}

/// An executor that is none of the library's, as small as one can be.
fn execute<F: Future>(future: F) -> F::Output {
    /// With a flag of its own: what is polled may park, too, and take the token.
    struct Unpark(Thread, AtomicBool);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::Release);
            self.0.unpark();
        }
    }
    let woken = Arc::new(Unpark(std::thread::current(), AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return out;
        }
        while !woken.1.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

impl Shared {
    fn is_at(&self, index: usize, at: Option<(&'static str, Instant)>) {
        *self.at[index].lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    fn fault(&self, fault: String) {
        self.faults_count.fetch_add(1, Ordering::Relaxed);
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if faults.len() < FAULTS_MAX {
            faults.push(fault);
        } else {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// The call that takes too long, if one does.
    fn stalled(&self) -> Option<String> {
        let at = |(index, at): (usize, &Mutex<Option<(&'static str, Instant)>>)| {
            let (name, since) = (*at.lock().unwrap_or_else(PoisonError::into_inner))?;
            let lasts = since.elapsed();
            (lasts > STALLED).then(|| format!("caller {index} in \"{name}\" for {} s", lasts.as_secs()))
        };
        self.at.iter().enumerate().find_map(at)
    }
}
