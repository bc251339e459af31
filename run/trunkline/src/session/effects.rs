//! What is to be done once the books are closed: under their lock nothing blocks, and nobody's waker is called.

use std::task::Waker;
use trunkline_shm::RingError;

/// What the owners behind the books note for their session to do.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Ring the daemon's doorbell.
    pub(crate) ring: bool,
    /// Wake these tasks.
    pub(crate) wakes: Vec<Waker>,
    /// Wake the worker whose session this is.
    pub(crate) worker: bool,
    /// Wake the listener, and have it watch this session.
    pub(crate) listen: bool,
    /// The daemon is leaving: no new calls here.
    pub(crate) closed: bool,
    /// A large block of the send heap is free: its memory may go back when nobody has used it for a while.
    pub(crate) trim: bool,
    /// End the session: the daemon broke the protocol.
    pub(crate) fault: Option<String>,
}

impl Effects {
    /// A ring is not what the daemon should have made of it. Of several faults the first counts.
    pub(crate) fn note_fault(&mut self, fault: &RingError) {
        self.fault.get_or_insert_with(|| fault.to_string());
    }
}
