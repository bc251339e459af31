//! `[sessions]`: what an attached application gets, and how many there may be.

use super::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use trunkline_shm::{HEAP_BYTES_MIN, RING_ENTRIES_MIN, SessionConfig};

/// `[sessions]`: what an attached application gets.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sessions {
    /// Sessions served at once. More are turned away.
    pub count_max: usize,
    /// Those of one user. Zero: three quarters of all.
    pub per_user_max: usize,
    /// Connections of one user to the control socket that have not attached; the oldest gives way.
    pub unattached_per_user_max: usize,
    /// Longest a connection to the control socket may take to attach.
    pub attach_ms_max: u64,
    /// Entries of each ring for an application that does not ask.
    pub ring_entries: u32,
    /// Most entries of a ring an application gets, whatever it asks for.
    pub ring_entries_max: u32,
    /// Bytes of each heap for an application that does not ask. Address space; memory only when touched.
    pub heap_bytes: Bytes,
    /// Largest heap an application gets, whatever it asks for.
    pub heap_bytes_max: Bytes,
    /// Bytes of all receive heaps together. Zero: as many as `count_max` sessions have that do not ask.
    pub receive_heap_bytes_max: Bytes,
    /// Those of one user. Zero: three quarters of all.
    pub receive_heap_bytes_per_user_max: Bytes,
    /// Memory that the descriptor sets take which applications have bound, each set once.
    pub descriptor_bytes_max: Bytes,
    /// Those of one user. Zero: three quarters of all.
    pub descriptor_bytes_per_user_max: Bytes,
}

impl Sessions {
    /// Sessions of one user.
    pub(crate) fn of_user_max(&self) -> usize {
        if self.per_user_max == 0 { self.count_max - self.count_max / 4 } else { self.per_user_max }
    }

    /// Bytes of the descriptor sets of one user.
    pub(crate) fn descriptor_bytes_of_user_max(&self) -> u64 {
        match self.descriptor_bytes_per_user_max.0 {
            0 => self.descriptor_bytes_max.0 - self.descriptor_bytes_max.0 / 4,
            bytes => bytes,
        }
    }

    /// Bytes of all receive heaps together.
    pub(crate) fn receive_heap_bytes_of_all_max(&self) -> u64 {
        match self.receive_heap_bytes_max.0 {
            0 => self.heap_bytes.0.saturating_mul(self.count_max as u64),
            bytes => bytes,
        }
    }

    /// Bytes of the receive heaps of one user.
    pub(crate) fn receive_heap_bytes_of_user_max(&self) -> u64 {
        let all = self.receive_heap_bytes_of_all_max();
        match self.receive_heap_bytes_per_user_max.0 {
            // The heap of one session at least.
            0 => (all - all / 4).max(self.heap_bytes.0),
            bytes => bytes,
        }
    }

    /// Longest a connection may take to attach.
    pub(crate) fn attach_max(&self) -> Duration {
        Duration::from_millis(self.attach_ms_max)
    }

    pub(super) fn ring(&self, wanted: u32) -> u32 {
        let wanted = if wanted == 0 { self.ring_entries } else { wanted };
        // The largest is a power of two (rules.rs), so that capping first keeps the rounding below it.
        wanted.clamp(RING_ENTRIES_MIN, self.ring_entries_max).next_power_of_two()
    }

    pub(super) fn heap(&self, wanted: u64) -> u32 {
        let wanted = if wanted == 0 { self.heap_bytes } else { Bytes(wanted) };
        let within = wanted.0.clamp(HEAP_BYTES_MIN.into(), self.heap_bytes_max.0);
        Bytes(within.next_multiple_of(HEAP_BYTES_MIN.into())).as_u32()
    }
}

impl Default for Sessions {
    fn default() -> Self {
        let session = SessionConfig::default();
        Self {
            count_max: 4096,
            per_user_max: 0,
            unattached_per_user_max: 64,
            attach_ms_max: 10_000,
            ring_entries: session.submission_entries,
            ring_entries_max: 16_384,
            heap_bytes: Bytes(512 << 20),
            heap_bytes_max: Bytes(1 << 30),
            receive_heap_bytes_max: Bytes(0),
            receive_heap_bytes_per_user_max: Bytes(0),
            descriptor_bytes_max: Bytes(2 << 30),
            descriptor_bytes_per_user_max: Bytes(0),
        }
    }
}
