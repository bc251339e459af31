//! The completion ring and what whoever drains it needs.

use super::effects::Effects;
use crate::settings;
use trunkline_shm::{Consumer, Waiter};

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
}
