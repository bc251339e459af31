//! When a call may be tried once more: back-off and throttling (gRFC A6), and one budget for a whole host.

use crate::random::Random;
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_share::{SharedSavings, SharedTokens};

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
#[derive(Clone, Debug)]
pub struct Throttle {
    /// Thousandths of a token: the bucket is one for all shards of a host.
    bucket: Arc<SharedTokens>,
    ratio_thousandths: u32,
}

impl Throttle {
    /// A full bucket of `max_tokens`, into which a success puts `ratio_thousandths` of a token.
    pub fn new(max_tokens: u32, ratio_thousandths: u32) -> Self {
        Self::of(Arc::new(SharedTokens::full(Self::thousandths(max_tokens))), ratio_thousandths)
    }

    /// What a bucket of `max_tokens` holds, in its own measure.
    pub fn thousandths(max_tokens: u32) -> u32 {
        max_tokens.saturating_mul(1000)
    }

    /// One that has its bucket with others.
    pub fn of(bucket: Arc<SharedTokens>, ratio_thousandths: u32) -> Self {
        Self { bucket, ratio_thousandths }
    }

    /// An attempt succeeded.
    pub fn succeeded(&mut self) {
        self.bucket.add(self.ratio_thousandths);
    }

    /// An attempt failed in a way that would be tried again.
    pub fn failed(&mut self) {
        self.bucket.remove(1000);
    }

    /// Whether there may be another.
    pub fn permits(&self) -> bool {
        self.bucket.left() > self.bucket.max() / 2
    }
}

/// What all calls of a host may spend on further attempts: a share of the calls made, and a few each second for hosts
/// that make few. Without it, every layer of services that retries multiplies the load of a failure.
#[derive(Clone, Debug)]
pub struct Budget {
    percent: u32,
    per_second: u32,
    /// Hundredths of an attempt that calls of this shard have brought, and all shards do not know of.
    hundredths: u64,
    /// Hundredths that all shards have.
    savings: Arc<SharedSavings>,
    /// Whether there are several.
    is_shared: bool,
    /// Whether this one says what all have.
    tells: bool,
}

/// Attempts a budget saves up for later: what ten thousand calls at ten percent bring.
const SAVED_MAX: u64 = 1000;
/// Hundredths that a shard keeps to itself: ten attempts, so that most calls change nothing that is shared.
const OWN_MAX: u64 = 1000;

impl Budget {
    /// So many attempts for a hundred calls, and so many per second.
    pub fn new(percent: u32, per_second: u32) -> Self {
        Self { percent, per_second, hundredths: 0, savings: Arc::default(), is_shared: false, tells: true }
    }

    /// From now on what is saved is for all shards of the host, one of which `tells` what that is.
    pub fn share(&mut self, savings: &Arc<SharedSavings>, tells: bool) {
        (self.savings, self.is_shared, self.tells) = (Arc::clone(savings), true, tells);
    }

    /// A call is made.
    pub fn deposit(&mut self) {
        self.hundredths += u64::from(self.percent);
        if !self.is_shared || self.hundredths >= OWN_MAX {
            self.pay_in();
        }
    }

    /// Attempts that are saved up. The sum over all shards is the host's.
    pub fn left(&self) -> u64 {
        let all = if self.tells { self.savings.saved() } else { 0 };
        (self.hundredths + all) / 100
    }

    /// Takes an attempt out, if there is one.
    pub fn withdraw(&mut self, now: Instant) -> bool {
        self.pay_in();
        self.savings.accrue(now.0, u64::from(self.per_second) * 100, SAVED_MAX * 100);
        self.savings.take(100)
    }

    fn pay_in(&mut self) {
        self.savings.add(std::mem::take(&mut self.hundredths), SAVED_MAX * 100);
    }
}
