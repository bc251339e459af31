//! Callers that never pause while the demo changes everything under them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trunkline::opaque::{Answer, Client};
use trunkline::{Channel, Code, Wait};

/// What they call, and with what: `query: "ring"`, `limit: 1`, as protobuf.
const PATH: &str = "/search.v1.Search/Query";
const QUESTION: &[u8] = b"\x0a\x04ring\x10\x01";
const CALLERS: usize = 2;
/// Longest a call may take; nothing in the demo stands still for that long.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Callers at work. They stop when it is dropped.
pub struct Load {
    counts: Arc<Counts>,
    callers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    stop: AtomicBool,
    answered: AtomicU64,
    failed: AtomicU64,
    longest_us: AtomicU64,
}

/// What came of the calls so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Calls that ended well.
    pub answered: u64,
    /// Calls that did not.
    pub failed: u64,
    /// The longest call of either kind since this was last asked.
    pub longest_us: u64,
}

impl Load {
    /// Starts them.
    pub fn start(channel: &Channel) -> Self {
        let counts = Arc::new(Counts::default());
        let caller = |_| {
            let (client, counts) = (Client::new(channel.clone()), Arc::clone(&counts));
            std::thread::spawn(move || call_on(&client, &counts))
        };
        let callers = (0..CALLERS).map(caller).collect();
        Self { counts, callers }
    }

    /// Waits until so many more calls were answered, and tells how it stands then.
    pub fn after(&self, calls: u64) -> Tally {
        let wanted = self.counts.answered.load(Ordering::Relaxed) + calls;
        let began = Instant::now();
        while self.counts.answered.load(Ordering::Relaxed) < wanted && began.elapsed() < CALL_LIMIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        Tally {
            answered: self.counts.answered.load(Ordering::Relaxed),
            failed: self.counts.failed.load(Ordering::Relaxed),
            longest_us: self.counts.longest_us.swap(0, Ordering::Relaxed),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
        for caller in self.callers.drain(..) {
            // One that panicked has made no calls since, which the tally shows.
            let _ = caller.join();
        }
    }
}

fn call_on(client: &Client, counts: &Counts) {
    while !counts.stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let counted = if call(client) { &counts.answered } else { &counts.failed };
        counted.fetch_add(1, Ordering::Relaxed);
        let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        counts.longest_us.fetch_max(took_us, Ordering::Relaxed);
    }
}

/// One call. Whether it ended well.
fn call(client: &Client) -> bool {
    let call = client.call(PATH).with_timeout(CALL_LIMIT).with_message(QUESTION).with_no_more();
    let Ok((_requests, mut answers)) = call.open().wait() else { return false };
    while let Some(answer) = answers.next().wait() {
        if let Answer::End(outcome) = answer {
            return outcome.code == Code::Ok;
        }
    }
    false
}
