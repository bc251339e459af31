//! Room for streams that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use trunkline::{Execution, Status};

/// Streams of all these services that wait at once. A quarter of the calls one session may have in hand
/// (`limits.calls_delivered_per_session`), so that plain questions always find room beside them.
pub const STREAMS_MAX: usize = 1024;

/// Counts streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    taken: Arc<AtomicUsize>,
}

/// Room for one stream, given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// Takes room.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, naming the limit.
    pub fn take(&self) -> Result<Slot, Status> {
        let slot = Slot(Arc::clone(&self.taken));
        if self.taken.fetch_add(1, Ordering::Relaxed) >= STREAMS_MAX {
            let why =
                format!("at most {STREAMS_MAX} streams of the daemon's own services at once (STREAMS_MAX)");
            return Err(Status::resource_exhausted(why).with_execution(Execution::NotExecuted));
        }
        Ok(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    //! Shows that room is limited and comes back.
    use super::*;

    #[test]
    fn room_comes_back() {
        let slots = Slots::default();
        let taken: Vec<Slot> = (0..STREAMS_MAX).map(|_| slots.take().unwrap()).collect();
        assert!(slots.take().unwrap_err().message().contains("STREAMS_MAX"));
        drop(taken);
        assert!(slots.take().is_ok());
    }
}
