//! `[debug]`: faults planted on purpose.

use super::error::{Breach, breach};
use super::rules::{PAUSE_US_MAX, within};
use serde::{Deserialize, Serialize};
use trunkline_telemetry::TaxStage;

/// `[debug]`: faults planted on purpose, to see where telemetry puts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Debug {
    /// Time every request waits before admission.
    pub request_hold_us: u64,
    /// Time every response waits before admission.
    pub response_hold_us: u64,
    /// Time a shard lets pass between being told of bytes of a native connection and reading them.
    pub read_stall_us: u64,
    /// A shard sees the wall clock, by which the kernel stamps, set so far ahead every second and back again.
    pub wall_clock_set_by_us: u64,
    /// Finished calls are not recorded.
    pub unrecorded: bool,
    /// It takes over as one that does not know what was recorded.
    pub earlier_hand_over: bool,
    /// Processor time a thread takes more whenever it enters a stage, and which.
    pub spin_us: u64,
    pub spin_stage: String,
}

impl Debug {
    pub(super) fn check(&self) -> Result<(), Breach> {
        within("debug.request_hold_us", self.request_hold_us, 0, PAUSE_US_MAX)?;
        within("debug.response_hold_us", self.response_hold_us, 0, PAUSE_US_MAX)?;
        within("debug.read_stall_us", self.read_stall_us, 0, PAUSE_US_MAX)?;
        within("debug.wall_clock_set_by_us", self.wall_clock_set_by_us, 0, PAUSE_US_MAX)?;
        within("debug.spin_us", self.spin_us, 0, PAUSE_US_MAX)?;
        let advice = || format!("write one of {}", TaxStage::ALL.map(TaxStage::label).join(", "));
        match self.spin_stage.as_str() {
            "" if self.spin_us > 0 => {
                Err(breach("debug.spin_stage", "is not there, and debug.spin_us is".into(), &advice()))
            }
            "" => Ok(()),
            stage if TaxStage::of_label(stage).is_some() => Ok(()),
            stage => Err(breach("debug.spin_stage", format!("has {stage:?}, which is no stage"), &advice())),
        }
    }

    /// The stage that takes so many nanoseconds of processor time more, if one does.
    pub(crate) fn spin(&self) -> Option<(TaxStage, u64)> {
        let stage = TaxStage::of_label(&self.spin_stage).filter(|_| self.spin_us > 0)?;
        Some((stage, self.spin_us.saturating_mul(1000)))
    }
}
