//! `[recorder]`: what the flight recorder keeps beside every call.

use super::error::{Breach, breach};
use super::otlp::Otlp;
use super::rules::within;
use serde::{Deserialize, Serialize};

/// Rounds of which one may be measured at least.
const TAX_ROUNDS_MAX: u32 = 65_536;

/// `[recorder]`: what the flight recorder keeps beside every call.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecorderKeys {
    /// Whether calls of sampled traces get spans, and their ids and stamps are kept.
    pub traces: bool,
    /// Share (0 to 1) of the calls without a trace context with which a trace begins, if traces are kept.
    pub sample: f64,
    /// Of so many rounds of a thread one is measured by stage. Zero: none is.
    pub tax_rounds: u32,
}

impl Default for RecorderKeys {
    fn default() -> Self {
        Self { traces: false, sample: 0.01, tax_rounds: 16 }
    }
}

impl RecorderKeys {
    pub(super) fn check(&self) -> Result<(), Breach> {
        let is_share = (0.0..=1.0).contains(&self.sample);
        let wrong = || {
            let problem = format!("is {}", self.sample);
            breach("recorder.sample", problem, "write a share from 0.0 to 1.0")
        };
        is_share.then_some(()).ok_or_else(wrong)?;
        within("recorder.tax_rounds", self.tax_rounds, 0, TAX_ROUNDS_MAX)
    }

    /// The share of calls without a trace context with which a trace begins; `None` if calls get no spans.
    pub fn traced_share(&self, otlp: &Otlp) -> Option<f64> {
        let exported = otlp.is_on().then_some(otlp.sample);
        let recorded = self.traces.then_some(self.sample);
        exported.into_iter().chain(recorded).reduce(f64::max)
    }
}
