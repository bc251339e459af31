//! Time as an argument.

use std::fmt;
use std::time::Duration;

/// A point on the host's monotonic clock (CLOCK_MONOTONIC), in nanoseconds.
///
/// Rooms of `core` never read a clock; they are handed an `Instant`. All processes of one host share this clock,
/// so instants may cross shared memory; they never cross the network without the offset estimate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Instant(pub u64);

impl Instant {
    /// The instant `ns` nanoseconds later; stays at the end of time instead of wrapping.
    pub fn plus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// The instant `ns` nanoseconds before; stays at the beginning of time.
    pub fn minus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }

    /// Nanoseconds since `earlier`; zero if `earlier` is later.
    pub fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// When a call must have ended, if ever. Zero on the wire and in ring entries means *none*.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No deadline.
    pub const NONE: Self = Self(None);

    /// A deadline at `at`.
    pub fn at(at: Instant) -> Self {
        Self(Some(at))
    }

    /// A deadline `timeout` after `now`.
    pub fn after(now: Instant, timeout: Duration) -> Self {
        Self::at(now.plus_ns(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Reads the form used in ring entries: nanoseconds, zero for none.
    pub fn from_wire(ns: u64) -> Self {
        Self((ns != 0).then_some(Instant(ns)))
    }

    /// Writes the form used in ring entries.
    pub fn to_wire(self) -> u64 {
        self.0.map_or(0, |at| at.0.max(1))
    }

    /// The instant, if there is one.
    pub fn instant(self) -> Option<Instant> {
        self.0
    }

    /// The earlier of two deadlines: what a nested call inherits (gRPC: a child never outlives its parent).
    pub fn earlier(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(a), Some(b)) => Self(Some(a.min(b))),
            (a, b) => Self(a.or(b)),
        }
    }

    /// Whether the deadline lies at or before `now`.
    pub fn has_passed(self, now: Instant) -> bool {
        self.0.is_some_and(|at| at <= now)
    }

    /// Nanoseconds left at `now`: `None` without a deadline, `Some(0)` when it has passed.
    pub fn remaining_ns(self, now: Instant) -> Option<u64> {
        self.0.map(|at| at.since_ns(now))
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(at) => write!(f, "by {at:?}"),
            None => f.write_str("no deadline"),
        }
    }
}
