//! The one place where the library reads a clock.

use trunkline_call::Instant;

/// Processor time of the calling thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    trunkline_shm::thread_cpu_ns()
}

/// The host's monotonic clock, which the daemon and every process of the host share.
#[inline]
pub(crate) fn now() -> Instant {
    Instant(trunkline_shm::monotonic_ns())
}
