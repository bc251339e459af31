//! One endpoint, as a balancer sees it.

use crate::tally::Tally;
use crate::weight::Weight;
use trunkline_call::Instant;

/// Time in which half of an endpoint's failures are forgotten.
const PENALTY_HALF_LIFE_NS: f64 = 1e9;

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Member<E> {
    pub endpoint: E,
    /// What it is called on every host.
    pub label: Box<str>,
    pub outstanding: u32,
    /// Recent failures, as of `penalty_at`.
    pub penalty: f64,
    pub penalty_at: Instant,
    pub tally: Tally,
    pub weight: Weight,
}

impl<E> Member<E> {
    pub fn new(endpoint: E, label: &str) -> Self {
        Self {
            endpoint,
            label: label.into(),
            outstanding: 0,
            penalty: 0.0,
            penalty_at: Instant::default(),
            tally: Tally::default(),
            weight: Weight::default(),
        }
    }

    pub fn penalty_now(&self, now: Instant) -> f64 {
        self.penalty * (-(now.since_ns(self.penalty_at) as f64) / PENALTY_HALF_LIFE_NS).exp2()
    }

    /// Calls under way, and failures that count as such: whole ones, so that endpoints whose failures are as good as
    /// forgotten are equals, and chance decides.
    pub fn load(&self, now: Instant) -> u64 {
        u64::from(self.outstanding) + self.penalty_now(now).round() as u64
    }
}
