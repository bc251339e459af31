//! How many calls that were refused before they began are written down one by one.

use trunkline_call::Instant;

/// A bound on rows of refused calls. Anybody can have calls refused, as fast as datagrams come: they are counted, and
/// leave the recorder to those that were made.
#[derive(Debug, Default)]
pub(crate) struct RefusedRows {
    since: Instant,
    written: u32,
}

const PERIOD_NS: u64 = 1_000_000_000;
const ROWS_PER_PERIOD: u32 = 16;

impl RefusedRows {
    /// Whether another is written down.
    pub fn take(&mut self, now: Instant) -> bool {
        if now.since_ns(self.since) >= PERIOD_NS {
            (self.since, self.written) = (now, 0);
        }
        self.written += 1;
        self.written <= ROWS_PER_PERIOD
    }
}
