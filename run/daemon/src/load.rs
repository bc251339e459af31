//! What a shard is busy with: measured over intervals, while it works and the daemon has several shards.
//!
//! A shard adds up the time of its turns that found something, and that of each session's entries. When an interval is
//! over and it worked for much of it, it says so to the control thread (`placement.rs`). One that rests measures
//! nothing, says nothing and wakes nobody.

use crate::placement::INTERVAL_NS;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use trunkline_call::Instant;

/// How long a shard has been busy in all. On a cache line of its own: its shard writes it every turn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct BusyTime(AtomicU64);

/// A shard's measure of its own work.
#[derive(Debug)]
pub(crate) struct LoadMeter {
    /// `None`: the daemon has one shard, and nobody asks.
    total: Option<Arc<BusyTime>>,
    began: Instant,
    busy_ns: u64,
}

impl BusyTime {
    pub fn ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl LoadMeter {
    pub fn new(total: Option<Arc<BusyTime>>, now: Instant) -> Self {
        Self { total, began: now, busy_ns: 0 }
    }

    /// Whether anybody wants to know.
    pub fn is_on(&self) -> bool {
        self.total.is_some()
    }

    /// A turn that found something has ended. The interval and what was busy of it, if it is over.
    pub fn note(&mut self, from: Instant, now: Instant) -> Option<(u64, u64)> {
        let total = self.total.as_ref()?;
        let turn_ns = now.since_ns(from);
        self.busy_ns += turn_ns;
        // One writer.
        total.0.store(total.ns() + turn_ns, Ordering::Relaxed);
        let interval_ns = now.since_ns(self.began);
        if interval_ns < INTERVAL_NS {
            return None;
        }
        self.began = now;
        Some((interval_ns, std::mem::take(&mut self.busy_ns)))
    }
}
