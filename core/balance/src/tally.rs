//! How calls at one endpoint ended, and its time out.

use crate::settings::Outliers;
use trunkline_call::Instant;

/// How calls at one endpoint ended since the last look, and its time out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub successes: u32,
    pub failures: u32,
    pub failures_in_a_row: u32,
    /// Since when it is out, and until when.
    pub ejected: Option<(Instant, Instant)>,
    /// Times it was ejected, less the looks it passed since; not more than make the time out longer.
    pub ejections: u32,
}

impl Tally {
    pub fn is_ejected(&self, now: Instant) -> bool {
        self.ejected.is_some_and(|(_, until)| now < until)
    }

    pub fn count(&mut self, failed: bool) {
        if failed {
            self.failures = self.failures.saturating_add(1);
            self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        } else {
            self.successes = self.successes.saturating_add(1);
            self.failures_in_a_row = 0;
        }
    }

    pub fn volume(&self) -> u32 {
        self.successes.saturating_add(self.failures)
    }

    pub fn success_rate(&self) -> f64 {
        f64::from(self.successes) / f64::from(self.volume().max(1))
    }

    pub fn eject(&mut self, now: Instant, outliers: &Outliers) {
        self.ejections = self.ejections.saturating_add(1);
        self.ejected = Some((now, now));
        self.failures_in_a_row = 0;
        self.retime(outliers);
    }

    /// Has it out for as long as is said now, counted from when it went.
    pub fn retime(&mut self, outliers: &Outliers) {
        let longest = outliers.ejection_ns_max.max(outliers.ejection_ns);
        let counted = longest.div_ceil(outliers.ejection_ns.max(1));
        self.ejections = self.ejections.min(u32::try_from(counted).unwrap_or(u32::MAX));
        let ns = outliers.ejection_ns.saturating_mul(self.ejections.into()).min(longest);
        self.ejected = self.ejected.map(|(since, _)| (since, since.plus_ns(ns)));
    }
}
