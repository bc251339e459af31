//! What whoever owns a daemon knows of what its shards have counted.

use trunkline_telemetry::{CallHistory, ToldApart};

/// It goes along with the shards, whose counts go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptCounts {
    /// What was counted when.
    pub history: CallHistory,
    /// Which series readers of counters are told of one by one.
    pub told_apart: ToldApart,
}
