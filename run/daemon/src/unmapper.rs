//! Memory of sessions that are over goes back to the kernel on a thread of its own.
//!
//! The daemon has the last reference to it: the mappings of an application that dies go first. To unmap and close a
//! heap of which half a gigabyte was used takes the kernel some thirty milliseconds, in which a shard would carry no
//! call. Not on the thread of `closer.rs`, whose next close may wait for as long as somebody likes; this one never
//! does.

use crate::heaps::MovingHeaps;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trunkline_shm::{Heap, take_turns};

/// What has so few bytes is given back where it is: that takes no longer than to start a thread.
const SMALL_BYTES: u64 = 1 << 20;
/// Heaps that may wait. Whoever attaches, writes and goes again takes longer for it than the thread, unless many do it
/// on many processors; then their shards wait.
const WAITING_MAX: usize = 256;

/// The thread, which is there while something waits, and what waits for it.
#[derive(Default)]
pub(crate) struct Unmapper {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    memory: VecDeque<Box<dyn Send>>,
    is_running: bool,
}

impl Unmapper {
    /// The heaps of a session that is over.
    pub fn unmap_session(self: &Arc<Self>, heaps: MovingHeaps) {
        let bytes = heaps.touched_bytes();
        self.unmap(heaps, bytes);
    }

    /// A receive heap whose place another has taken.
    pub fn unmap_heap(self: &Arc<Self>, heap: Heap) {
        let bytes = u64::from(heap.touched_bytes());
        self.unmap(heap, bytes);
    }

    fn unmap(self: &Arc<Self>, memory: impl Send + 'static, bytes: u64) {
        if bytes <= SMALL_BYTES {
            return;
        }
        let mut waiting = self.lock();
        if waiting.memory.len() >= WAITING_MAX {
            drop(waiting);
            return;
        }
        waiting.memory.push_back(Box::new(memory));
        if std::mem::replace(&mut waiting.is_running, true) {
            return;
        }
        // Other shards do not wait while the kernel makes a thread.
        drop(waiting);
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name("trunkline-unmap".into());
        if thread.spawn(move || this.run()).is_err() {
            // Without a thread it is this one that takes the time.
            let mut waiting = self.lock();
            waiting.is_running = false;
            let memory = std::mem::take(&mut waiting.memory);
            drop(waiting);
            drop(memory);
        }
    }

    fn run(&self) {
        // It has the slices of the shard that made it, which may be short: those are for who carries calls.
        if let Err(error) = take_turns(false) {
            tracing::debug!(%error, "the thread that gives memory back keeps the slices it was made with");
        }
        while let Some(memory) = self.next() {
            drop(memory);
        }
    }

    /// What is to be given back next; if nothing is, the thread ends.
    fn next(&self) -> Option<Box<dyn Send>> {
        let mut waiting = self.lock();
        let next = waiting.memory.pop_front();
        waiting.is_running = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Shows which thread gives memory back.
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;
    use std::time::Duration;

    /// Something that says which thread drops it, and goes on when it may.
    struct Plug(Sender<ThreadId>, Receiver<()>);

    impl Drop for Plug {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::current().id());
            let _ = self.1.recv();
        }
    }

    /// Has the thread wait until the result is dropped, and tells how many wait behind that.
    pub(crate) fn hold(unmapper: &Arc<Unmapper>) -> (Sender<()>, impl Fn() -> usize + use<>) {
        let ((say, said), (go_on, waits)) = (channel(), channel());
        unmapper.unmap(Plug(say, waits), SMALL_BYTES + 1);
        let thread = said.recv_timeout(Duration::from_secs(60)).expect("somebody drops it");
        assert_ne!(thread, std::thread::current().id());
        let unmapper = Arc::clone(unmapper);
        (go_on, move || unmapper.lock().memory.len())
    }

    #[test]
    fn what_is_small_or_too_much_is_given_back_where_it_is() {
        let unmapper = Arc::default();
        let (_go_on, waiting) = hold(&unmapper);
        unmapper.unmap(Vec::<u8>::new(), SMALL_BYTES);
        assert_eq!(waiting(), 0);
        let shared = Arc::new(());
        (0..WAITING_MAX + 10).for_each(|_| unmapper.unmap(Arc::clone(&shared), SMALL_BYTES + 1));
        assert_eq!((waiting(), Arc::strong_count(&shared)), (WAITING_MAX, WAITING_MAX + 1));
    }
}
