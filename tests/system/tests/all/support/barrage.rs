//! Many calls of all sizes from many threads, each checked: it ends once, and what comes back is what was sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use trunkline::{Request, Status, Wait};
use trunkline_system_tests::proto::probe::Text;
use trunkline_system_tests::proto::probe::probe_client::ProbeClient;
use trunkline_system_tests::random::mix;

/// What to do.
#[derive(Clone, Copy)]
pub struct Barrage {
    pub calls: u64,
    pub threads: usize,
    pub bytes_max: u64,
    pub timeout: Duration,
}

/// How calls ended.
#[derive(Debug, Default)]
pub struct Tally {
    pub answered: u64,
    pub bytes: u64,
    /// Which, how long after the start, and why.
    pub failures: Vec<(u64, Duration, Status)>,
}

impl Barrage {
    /// Makes all calls; returns when every one has ended.
    pub fn run(&self, client: &ProbeClient) -> Tally {
        let (next, began) = (AtomicU64::new(0), Instant::now());
        let mut all = Tally::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.threads).map(|_| scope.spawn(|| self.work(client, &next, began))).collect();
            for thread in threads {
                let one = thread.join().expect("no thread panics");
                all.answered += one.answered;
                all.bytes += one.bytes;
                all.failures.extend(one.failures);
            }
        });
        all
    }

    fn work(&self, client: &ProbeClient, next: &AtomicU64, began: Instant) -> Tally {
        let mut tally = Tally::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= self.calls {
                return tally;
            }
            let text = text_of(number, self.bytes_max);
            let request =
                Request::new(Text { text: text.clone() }).with_timeout(self.timeout).wait_for_ready();
            let request = request.with_metadata("log", number.to_string()).expect("digits are legal");
            match client.echo(request).wait() {
                Ok(reply) => {
                    assert!(
                        reply.view().text() == text,
                        "call {number}: {} bytes came back different",
                        text.len()
                    );
                    tally.answered += 1;
                    tally.bytes += text.len() as u64;
                }
                Err(status) => tally.failures.push((number, began.elapsed(), status)),
            }
        }
    }
}

/// From one byte to the most, as many of each order of magnitude.
fn text_of(number: u64, bytes_max: u64) -> String {
    let mixed = mix(number);
    let share = (mixed >> 11) as f64 / (1u64 << 53) as f64;
    let bytes = (bytes_max as f64).powf(share).round().max(1.0) as usize;
    (0..bytes).map(|at| char::from(b'a' + ((at as u64 ^ (mixed >> (at % 40))) % 26) as u8)).collect()
}
