//! Whether anybody else still has a receive heap.
//!
//! What lies in one are pages of the daemon that wrote them, for as long as an application maps it or has it open, and
//! the heap's seals keep the daemon from taking them back. The kernel knows: a write lease (fcntl(2), F_SETLEASE) on a
//! file is to be had only where nobody else has it open, and a mapping counts as that. It does not count descriptions
//! that `memfd_create` made. So the application is given one of the heap opened anew, to read, and so is this.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fcntl_getfl, open};
use rustix::io::Errno;
use std::ffi::c_int;

const F_SETSIG: c_int = 10;
const F_SETLEASE: c_int = 1024;
const F_WRLCK: c_int = 1;
const F_UNLCK: c_int = 2;
/// Tells of a lease that somebody else breaks, in the moment between F_WRLCK and F_UNLCK. Unlike SIGIO, which the
/// kernel sends otherwise, it ends no process that does not ask for it.
const SIGURG: c_int = 23;

unsafe extern "C" {
    fn fcntl(fd: c_int, cmd: c_int, ...) -> c_int;
}

/// Tells whether somebody else has a receive heap. One descriptor.
#[derive(Debug)]
pub struct HeapLease(OwnedFd);

impl HeapLease {
    /// Of the heap with this descriptor, which an application is given and which is still open here. `None` where the
    /// kernel does not tell (no /proc, no leases: `fs.leases-enable`).
    pub fn of(given: impl AsFd) -> Option<HeapLease> {
        let is_read_only = fcntl_getfl(&given).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDONLY);
        let lease = is_read_only.then(|| read_only(&given)).and_then(Result::ok).map(HeapLease)?;
        // The given one is open, and the kernel says so if it says anything.
        lease.is_held().then_some(lease)
    }

    /// Whether anybody else has the heap open or mapped; `false` also where the kernel does not tell.
    #[must_use]
    pub fn is_held(&self) -> bool {
        // For each lease anew: the kernel forgets it with the last.
        match self.set(F_SETSIG, SIGURG).and_then(|()| self.set(F_SETLEASE, F_WRLCK)) {
            Ok(()) => {
                let _ = self.set(F_SETLEASE, F_UNLCK);
                false
            }
            Err(errno) => errno == Errno::AGAIN,
        }
    }

    fn set(&self, what: c_int, to: c_int) -> Result<(), Errno> {
        let fd = self.0.as_raw_fd();
        // SAFETY: both take a number, and change nothing but what the kernel knows of this descriptor, which is open.
        let done = unsafe { fcntl(fd, what, to) };
        if done == 0 {
            Ok(())
        } else {
            Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
        }
    }
}

/// The same file opened anew, to read.
pub(crate) fn read_only(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    //! Shows that a heap is held for as long as somebody has it open or mapped.
    use super::*;
    use crate::{create_receive_heap, open_receive_heap};

    #[test]
    fn a_heap_is_held_until_it_is_closed_and_unmapped() {
        let (heap, given) = create_receive_heap(64 << 10).unwrap();
        let lease = HeapLease::of(&given).expect("a kernel that tells");
        assert!(lease.is_held());
        let opened = open_receive_heap(&given, 64 << 10).unwrap();
        drop(given);
        assert!(lease.is_held(), "it is mapped");
        drop(opened);
        assert!(!lease.is_held(), "what the daemon has does not count");
        drop(heap);
        assert!(!lease.is_held());
    }

    /// The signal of a broken lease ends no process that has no handler for it: here whoever opens the heap again is
    /// another thread, as often as it can.
    #[test]
    fn who_opens_a_heap_while_it_is_asked_ends_nobody() {
        let (_heap, given) = create_receive_heap(64 << 10).unwrap();
        let lease = HeapLease::of(&given).expect("a kernel that tells");
        let own = read_only(&lease.0).unwrap();
        drop((own, given));
        std::thread::scope(|threads| {
            let opens = threads.spawn(|| (0..2_000).all(|_| read_only(&lease.0).is_ok()));
            while !opens.is_finished() {
                let _ = lease.is_held();
            }
            assert!(opens.join().unwrap());
        });
        assert!(!lease.is_held());
    }

    #[test]
    fn of_a_description_that_the_kernel_does_not_count_nobody_knows() {
        let memfd = rustix::fs::memfd_create("writable", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(HeapLease::of(&memfd).is_none());
    }
}
