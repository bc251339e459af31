//! When a call may be tried once more: back-off and throttling (gRFC A6), and one budget for a whole host.

use crate::random::Random;
use trunkline_call::Instant;

/// The waits between the attempts of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    /// Before the first retry.
    pub initial_ns: u64,
    /// What waits grow to.
    pub max_ns: u64,
    /// What they grow by.
    pub multiplier: f64,
}

impl Backoff {
    /// The wait before the retry after `retries` others, give or take a fifth (gRFC A6).
    pub fn wait_ns(&self, retries: u32, random: &mut Random) -> u64 {
        let grown = self.initial_ns as f64 * self.multiplier.powi(retries.min(64) as i32);
        let wait = grown.min(self.max_ns as f64);
        // 53 bits are what a double holds exactly.
        let uniform = (random.number() >> 11) as f64 / (1u64 << 53) as f64;
        (wait * (0.8 + 0.4 * uniform)) as u64
    }
}

/// `retryThrottling` (gRFC A6): a server that fails most of its calls is not asked again for each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttle {
    thousandths: u32,
    thousandths_max: u32,
    ratio_thousandths: u32,
}

impl Throttle {
    /// A full bucket of `max_tokens`, into which a success puts `ratio_thousandths` of a token.
    pub fn new(max_tokens: u32, ratio_thousandths: u32) -> Self {
        let thousandths_max = max_tokens.saturating_mul(1000);
        Self { thousandths: thousandths_max, thousandths_max, ratio_thousandths }
    }

    /// An attempt succeeded.
    pub fn succeeded(&mut self) {
        self.thousandths = self.thousandths.saturating_add(self.ratio_thousandths).min(self.thousandths_max);
    }

    /// An attempt failed in a way that would be tried again.
    pub fn failed(&mut self) {
        self.thousandths = self.thousandths.saturating_sub(1000);
    }

    /// Whether there may be another.
    pub fn permits(&self) -> bool {
        self.thousandths > self.thousandths_max / 2
    }
}

/// What all calls of a host may spend on further attempts: a share of the calls made, and a few each second for hosts
/// that make few. Without it, every layer of services that retries multiplies the load of a failure.
#[derive(Clone, Debug)]
pub struct Budget {
    percent: u32,
    per_second: u32,
    /// Hundredths of an attempt.
    hundredths: u64,
    /// What of time has not become part of an attempt yet.
    since: Option<Instant>,
}

/// Attempts a budget saves up for later: what ten thousand calls at ten percent bring.
const SAVED_MAX: u64 = 1000;

impl Budget {
    /// So many attempts for a hundred calls, and so many per second.
    pub fn new(percent: u32, per_second: u32) -> Self {
        Self { percent, per_second, hundredths: 0, since: None }
    }

    /// A call is made.
    pub fn deposit(&mut self) {
        self.hundredths = (self.hundredths + u64::from(self.percent)).min(SAVED_MAX * 100);
    }

    /// Attempts that are saved up.
    pub fn left(&self) -> u64 {
        self.hundredths / 100
    }

    /// Takes an attempt out, if there is one.
    pub fn withdraw(&mut self, now: Instant) -> bool {
        self.accrue(now);
        let enough = self.hundredths >= 100;
        if enough {
            self.hundredths -= 100;
        }
        enough
    }

    fn accrue(&mut self, now: Instant) {
        let rate = u64::from(self.per_second) * 100;
        if rate == 0 {
            return;
        }
        // The first second is given at once: a host that has just come up has not saved anything.
        let since = *self.since.get_or_insert_with(|| Instant(now.0.saturating_sub(1_000_000_000)));
        let ns = now.since_ns(since).min(1_000_000_000);
        let earned = ns * rate / 1_000_000_000;
        if earned > 0 {
            self.hundredths = (self.hundredths + earned).min(SAVED_MAX * 100);
            self.since = Some(now);
        }
    }
}
