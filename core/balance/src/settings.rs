//! What an operator may say about the endpoints of a service. Defaults are those of the gRFCs named.

/// How endpoints of a service are picked and left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Which of those that may be picked is.
    pub pick: Pick,
    /// Which are left out for a while because they fail; `None`: none.
    pub outliers: Option<Outliers>,
    /// How much one endpoint gets at once.
    pub circuit: Circuit,
}

/// Which endpoint gets a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Pick {
    /// The first on the list that can be reached, and the same as long as it can; then the first again (gRFC A62).
    First {
        /// Whether every host makes its own order of the list, so that not all take the same.
        shuffle: bool,
    },
    /// One after the other.
    #[default]
    RoundRobin,
    /// Of so many taken at random the one with fewest calls under way (gRFC A48); failures count as calls.
    LeastRequest {
        /// 2 to 10.
        choices: u32,
    },
    /// In proportion to what servers say they can do (gRFC A58).
    Weighted(Weighting),
    /// By a key, so that equal keys go to the same endpoint while it is there (gRFC A42).
    RingHash {
        /// Places on the ring, at least.
        ring_min: u32,
        /// Places on the ring, at most.
        ring_max: u32,
        /// The metadata whose value is the key (gRFC A76); calls without it go anywhere.
        header: Option<String>,
    },
}

/// Weights from load reports (gRFC A58).
#[derive(Clone, Debug, PartialEq)]
pub struct Weighting {
    /// An endpoint's weight counts once it has reported for so long.
    pub blackout_ns: u64,
    /// A weight that is older is forgotten.
    pub expiry_ns: u64,
    /// How much its errors take from its weight.
    pub error_penalty: f64,
}

/// Outlier detection (gRFC A50).
#[derive(Clone, Debug, PartialEq)]
pub struct Outliers {
    /// Time between looks.
    pub interval_ns: u64,
    /// The first time out; each further one in a row is longer by as much.
    pub ejection_ns: u64,
    /// The longest time out.
    pub ejection_ns_max: u64,
    /// Share of the endpoints that may be out at once, the last one included. One may, unless this is 0.
    pub ejected_percent_max: u32,
    /// Leaves out those whose share of successes is far below that of the others.
    pub success_rate: Option<SuccessRate>,
    /// Leaves out those of whose calls too many fail.
    pub failure_share: Option<FailureShare>,
    /// Leaves out at once who fails so many calls in a row; 0: nobody. (Envoy's `consecutive_5xx`.)
    pub failures_in_a_row: u32,
}

/// `successRateEjection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessRate {
    /// Thousandths of a standard deviation below the mean that are too many.
    pub stdev_factor: u32,
    /// Chance of being left out when found out, in percent.
    pub enforced_percent: u32,
    /// Endpoints that must have calls enough for any to be judged.
    pub hosts_min: u32,
    /// Calls in an interval without which an endpoint is not judged.
    pub volume_min: u32,
}

/// `failurePercentageEjection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureShare {
    /// Percent of failures that are too many when exceeded.
    pub threshold: u32,
    /// As in [`SuccessRate`].
    pub enforced_percent: u32,
    /// As in [`SuccessRate`].
    pub hosts_min: u32,
    /// As in [`SuccessRate`].
    pub volume_min: u32,
}

/// What one endpoint gets at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circuit {
    /// Calls under way.
    pub outstanding_max: u32,
    /// Calls waiting for a connection.
    pub pending_max: u32,
}

impl Default for Weighting {
    fn default() -> Self {
        Self { blackout_ns: 10_000_000_000, expiry_ns: 180_000_000_000, error_penalty: 1.0 }
    }
}

impl Default for Outliers {
    fn default() -> Self {
        Self {
            interval_ns: 10_000_000_000,
            ejection_ns: 30_000_000_000,
            ejection_ns_max: 300_000_000_000,
            ejected_percent_max: 10,
            success_rate: None,
            failure_share: None,
            failures_in_a_row: 0,
        }
    }
}

impl Default for SuccessRate {
    fn default() -> Self {
        Self { stdev_factor: 1900, enforced_percent: 100, hosts_min: 5, volume_min: 100 }
    }
}

impl Default for FailureShare {
    fn default() -> Self {
        Self { threshold: 85, enforced_percent: 100, hosts_min: 5, volume_min: 50 }
    }
}

impl Default for Circuit {
    fn default() -> Self {
        Self { outstanding_max: u32::MAX, pending_max: u32::MAX }
    }
}
