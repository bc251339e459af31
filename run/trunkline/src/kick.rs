//! Waking one thread, wherever it waits: between two looks at a ring, or asleep in the kernel.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

const IDLE: u32 = 0;
const KICKED: u32 = 1;
const ASLEEP: u32 = 2;

/// A flag with an eventfd behind it. One thread waits on it, any thread kicks it; as a [`std::task::Waker`] it wakes
/// the future that thread drives.
///
/// The eventfd is written only when the waiter said that it sleeps, so that a kick between two looks costs one atomic
/// swap. A kick is never lost: it stays set until [`Kick::take`].
#[derive(Debug)]
pub(crate) struct Kick {
    state: AtomicU32,
    bell: OwnedFd,
}

impl Kick {
    /// A kick nobody has given yet.
    ///
    /// # Errors
    /// What the kernel says when it has no descriptor to give.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { state: AtomicU32::new(IDLE), bell }))
    }

    /// Wakes the waiter now, or as soon as it looks.
    pub(crate) fn kick(&self) {
        // SYNC: Release pairs with the Acquire in `take`: what was done before the kick is seen after it.
        if self.state.swap(KICKED, Ordering::AcqRel) == ASLEEP {
            // A full counter means it is readable already; nothing else can go wrong with an eventfd of ours.
            let _ = io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Takes a kick, if there is one.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        // SYNC: pairs with `kick`. The load first, because a look that finds nothing must not write the line.
        self.state.load(Ordering::Relaxed) == KICKED && self.state.swap(IDLE, Ordering::Acquire) == KICKED
    }

    /// Whether there is a kick to take.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.state.load(Ordering::Acquire) == KICKED
    }

    /// Announces that the waiter is about to sleep on [`Kick::as_fd`]. `false`: it was kicked, it must not.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.state.compare_exchange(IDLE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Takes the announcement back; a kick meanwhile stays set, its eventfd is silent again.
    pub(crate) fn wake_up(&self) {
        if self.state.compare_exchange(ASLEEP, IDLE, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // `kick` writes after its swap; should that write come after this read, the next sleep ends at once and
            // the caller looks once more than needed.
            let _ = io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// Sleeps until kicked, or until `timeout_ns` has passed. The kick stays set.
    pub(crate) fn sleep(&self, timeout_ns: Option<u64>) {
        if self.fall_asleep() {
            // An error would mean a broken descriptor; the caller's loop looks again either way.
            let _ = trunkline_shm::sleep_on(&[self.bell.as_fd()], timeout_ns);
            self.wake_up();
        }
    }
}

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Wake for Kick {
    fn wake(self: Arc<Self>) {
        self.kick();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.kick();
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a kick before, during and after sleep is seen exactly once.
    use super::*;

    #[test]
    fn a_kick_before_sleep_prevents_it() {
        let kick = Kick::new().unwrap();
        kick.kick();
        kick.sleep(None);
        assert!(kick.take());
        assert!(!kick.take());
    }

    #[test]
    fn a_kick_ends_sleep() {
        let kick = Kick::new().unwrap();
        let kicker = Arc::clone(&kick);
        let thread = std::thread::spawn(move || kicker.kick());
        while !kick.is_set() {
            kick.sleep(None);
        }
        thread.join().unwrap();
        assert!(kick.take());
        kick.sleep(Some(0));
        assert!(!kick.take());
    }
}
