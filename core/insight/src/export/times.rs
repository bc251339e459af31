//! When calls were, in microseconds since 1970.

use crate::fleet::{Fleet, FleetCall};
use crate::trees::{TreePlace, Trees};

/// When a call ended, microseconds since 1970, by its host's clock.
pub(super) fn ended_us(fleet: &Fleet, call: &FleetCall) -> u64 {
    unix_us(fleet, call.block, call.row.at.0)
}

/// What a host's monotonic clock showed as microseconds since 1970, by its wall clock when this block began.
fn unix_us(fleet: &Fleet, block: u32, at_ns: u64) -> u64 {
    let head = &fleet.heads[block as usize];
    let began_us =
        head.began_unix_ms.saturating_mul(1000).saturating_add(u64::from(head.began_unix_ns) / 1000);
    match at_ns.checked_sub(head.began_ns) {
        Some(since_ns) => began_us.saturating_add(since_ns / 1000),
        None => began_us.saturating_sub((head.began_ns - at_ns) / 1000),
    }
}

/// When the calls of traces were: on the wall clock of the host at the top of each tree.
pub(super) struct TreeTimes(Vec<TreePlace>);

impl TreeTimes {
    pub fn of(fleet: &Fleet) -> Self {
        Self(Trees::of(fleet).placed(fleet))
    }

    /// When the call of a trace began, in microseconds since 1970.
    pub fn began_us(&self, fleet: &Fleet, trace: u32) -> f64 {
        let placed = &self.0[trace as usize];
        unix_us(fleet, placed.block(fleet), placed.began_ns.max(0) as u64) as f64
    }

    /// When something was that the clock of the call's host shows.
    pub fn at_us(&self, fleet: &Fleet, trace: u32, at_ns: u64) -> u64 {
        let placed = &self.0[trace as usize];
        let shifted = i128::from(at_ns) + i128::from(placed.shift_ns);
        unix_us(fleet, placed.block(fleet), u64::try_from(shifted).unwrap_or(0))
    }
}
