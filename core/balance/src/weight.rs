//! What a server says it can do, as a weight (gRFC A58).

use crate::load::LoadReport;
use crate::settings::Weighting;
use trunkline_call::Instant;

/// One endpoint's weight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weight {
    weight: f64,
    /// When the first of an unbroken row of reports came.
    since: Option<Instant>,
    reported: Instant,
    /// What it has earned and not spent.
    wealth: f64,
}

impl Weight {
    /// Takes a report in: calls per second over the utilization they cause, errors counted as utilization.
    pub fn report(&mut self, now: Instant, load: &LoadReport, weighting: &Weighting) {
        let utilization = match load.application_utilization {
            own if own > 0.0 => own,
            _ => load.cpu_utilization,
        };
        let usable = |value: f64| value.is_finite() && value > 0.0;
        if !usable(load.calls_per_second) || !usable(utilization) {
            return;
        }
        let errors = if load.errors_per_second.is_finite() { load.errors_per_second.max(0.0) } else { 0.0 };
        let penalty = errors / load.calls_per_second * weighting.error_penalty;
        let weight = load.calls_per_second / (utilization + penalty);
        if !usable(weight) {
            return;
        }
        let stale = now.since_ns(self.reported) >= weighting.expiry_ns;
        if self.since.is_none() || stale {
            self.since = Some(now);
        }
        (self.weight, self.reported) = (weight, now);
    }

    /// The weight, if it may be relied on.
    pub fn of(&self, now: Instant, weighting: &Weighting) -> Option<f64> {
        let since = self.since?;
        let settled = now.since_ns(since) >= weighting.blackout_ns;
        let recent = now.since_ns(self.reported) < weighting.expiry_ns;
        (settled && recent).then_some(self.weight)
    }

    /// Adds shares of the mean weight to its wealth, and says what that is.
    pub fn earn(&mut self, amount: f64) -> f64 {
        self.wealth += amount;
        self.wealth
    }
}
