//! Delays on purpose.

/// What is planted on purpose, to see that telemetry finds it and what it costs (`[debug]` in the daemon's
/// configuration).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plant {
    /// Every call waits this long between its submission and its admission.
    pub request_hold_ns: u64,
    /// Every response waits this long between its submission and its hand-over.
    pub response_hold_ns: u64,
    /// Finished calls are not recorded: no histograms, no flight recorder. To see what recording costs.
    pub unrecorded: bool,
}
