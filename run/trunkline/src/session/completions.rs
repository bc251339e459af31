//! The completion ring and what whoever drains it needs.

use super::effects::Effects;
use crate::settings;
use trunkline_shm::{Consumer, Doorbell, RingError, Waiter};

/// The completion side. One thread at a time has it: the leader, or the listener.
#[derive(Debug)]
pub(super) struct Completions {
    pub(super) ring: Consumer,
    pub(super) waiter: Waiter,
    /// Steps that came soon and nobody's wait was told of yet.
    pub(super) quick_steps: u32,
    /// Kept for its memory; empty between two drains.
    pub(super) effects: Effects,
}

impl Completions {
    pub(super) fn new(ring: Consumer) -> Self {
        let waiter = Waiter::on_credit(settings::wait_limits());
        Self { ring, waiter, quick_steps: 0, effects: Effects::default() }
    }

    /// Announces that the next entry is to be rung for, to somebody who hears rings and not what lies in the doorbell:
    /// rings of before are taken out of it, because a full one takes no more. `false`: entries are there.
    ///
    /// # Errors
    /// As [`Consumer::arm`].
    pub(super) fn arm_for_edges(&mut self, doorbell: &Doorbell) -> Result<bool, RingError> {
        if !self.ring.arm()? {
            return Ok(false);
        }
        if !self.ring.take_rung() {
            return Ok(true);
        }
        let _ = doorbell.quiet();
        // A ring that came between the two, or found the doorbell full, is not lost: it left an entry.
        Ok(self.ring.ready()? == 0)
    }
}
