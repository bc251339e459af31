//! The clock of shards.

use trunkline_call::Instant;
use trunkline_shm::monotonic_ns;

/// The shard's clock, read once a turn and once per entry that wants a stamp.
pub(crate) fn now() -> Instant {
    Instant(monotonic_ns())
}
