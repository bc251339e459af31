//! The one place where the library reads a clock.

use trunkline_call::Instant;

/// The host's monotonic clock, which the daemon and every process of the host share.
#[inline]
pub(crate) fn now() -> Instant {
    Instant(trunkline_shm::monotonic_ns())
}
