//! Which streams of a connection, and whether the connection itself, have something to be looked at.
//!
//! h2 tells by wakers, as it would tell a runtime. Ours only set marks; the turn collects them.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// The marks of one connection.
#[derive(Debug, Default)]
pub(super) struct Marks {
    connection: AtomicBool,
    streams: Mutex<Vec<u32>>,
}

/// Marks one slot of the stream table. It is kept with the slot and serves every stream that lives there.
struct StreamMark {
    slot: u32,
    marks: Arc<Marks>,
}

impl Marks {
    /// A waker that marks the connection.
    pub fn connection_waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// A waker that marks a slot.
    pub fn stream_waker(self: &Arc<Self>, slot: u32) -> Waker {
        Waker::from(Arc::new(StreamMark { slot, marks: Arc::clone(self) }))
    }

    /// Marks the connection.
    pub fn mark(&self) {
        self.connection.store(true, Ordering::Relaxed);
    }

    /// Whether the connection was marked; no longer is.
    pub fn take_connection(&self) -> bool {
        self.connection.swap(false, Ordering::Relaxed)
    }

    /// Moves the marked slots into `slots`, each once.
    pub fn take_streams(&self, slots: &mut Vec<u32>) {
        slots.append(&mut self.streams.lock());
        slots.sort_unstable();
        slots.dedup();
    }

    /// Whether there is anything to look at.
    pub fn is_marked(&self) -> bool {
        self.connection.load(Ordering::Relaxed) || !self.streams.lock().is_empty()
    }

    /// Marks a slot.
    pub fn mark_stream(&self, slot: u32) {
        self.streams.lock().push(slot);
    }
}

impl Wake for Marks {
    fn wake(self: Arc<Self>) {
        self.mark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mark();
    }
}

impl Wake for StreamMark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.marks.mark_stream(self.slot);
    }
}
