//! What the host lends for a turn.

use crate::heaps::Heaps;
use trunkline_call::Instant;

/// What one turn of the host lends the engine: the time, and the heaps.
pub struct Turn<'a> {
    /// Now. The host refreshes it as often as it wants stamps to be fine.
    pub now: Instant,
    /// The memory of all sessions.
    pub heaps: &'a mut dyn Heaps,
}
