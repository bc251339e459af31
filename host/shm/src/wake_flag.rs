//! Whether a thread that looks at several queues sleeps: for those who put something into one of them.
//!
//! A shard looks at its queues every turn, so whoever fills one need not ring, unless the shard sleeps. Who sleeps says
//! so first and then looks once more; who puts something in asks afterwards. One of the two sees the other (Dekker), so
//! nothing lies in a queue while nobody is awake and nobody rings. Which kind of queue it is does not matter, as long
//! as what was put in is there before [`WakeFlag::must_ring`] is called. `tests/loom_wake_flag.rs` runs it.

use crate::sync::{AtomicU32, Ordering, fence};

/// The word of one sleeper and all that wake it, threads of one process.
#[derive(Debug)]
pub struct WakeFlag {
    asleep: AtomicU32,
}

impl Default for WakeFlag {
    fn default() -> Self {
        Self { asleep: AtomicU32::new(0) }
    }
}

impl WakeFlag {
    /// The sleeper is about to sleep. It looks at all its queues after this, and sleeps only if they are empty.
    pub fn arm(&self) {
        // A read-modify-write, as in `Consumer::arm`: all writes then stand in one order.
        self.asleep.swap(1, Ordering::Relaxed);
        // SYNC: pairs with the fence in `must_ring`. Either it sees our flag or we see what was put in.
        fence(Ordering::SeqCst);
    }

    /// The sleeper is awake, or has found something: nobody need ring.
    pub fn disarm(&self) {
        self.asleep.swap(0, Ordering::Relaxed);
    }

    /// Something was put into a queue: whether the sleeper is to be rung for it. Of several that ask, one is told so.
    #[inline]
    #[must_use]
    pub fn must_ring(&self) -> bool {
        // SYNC: pairs with the fence in `arm`. Either we see its flag or it sees what we have put in.
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) != 0 && self.asleep.swap(0, Ordering::Relaxed) != 0
    }
}
