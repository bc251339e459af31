//! Sessions whose application and daemon are apart: whoever carries entries between the two stands in for the other
//! side at either end.
//!
//! Both heaps have the same size at both ends, and a block lies at the same offset. Whoever writes a heap allocates in
//! it, as always; at the other end the same bytes are written where the entry says. So nothing is allocated here, and
//! no table is kept. What comes over the network is checked against the heap's length; whether it may be written where
//! somebody reads is for the carrier to know.

use rustix::fd::{AsFd, OwnedFd};

use crate::alleged::AllegedHeap;
use crate::config::{SessionConfig, SessionError, heap_size};
use crate::doorbell::{Doorbell, Ringer};
use crate::received::SpanError;
use crate::region::{Access, READ_ONLY_SEALS, Region, SIZE_SEALS};
use crate::regions::{open_region, receive_region};
use crate::ring::{Consumer, Producer};
use crate::session::{AppEnd, DaemonEnd, SessionFds, create_session, open_session};

/// A heap that is written where the other end's allocator says.
#[derive(Debug)]
pub struct RelayedHeap {
    region: Region,
}

/// What stands in for the application beside its daemon. `Send`.
#[derive(Debug)]
pub struct RelayedAppEnd {
    /// Entries to the daemon.
    pub submissions: Producer,
    /// Entries from the daemon.
    pub completions: Consumer,
    /// Where the application's messages are written.
    pub send_heap: RelayedHeap,
    /// What the daemon has written.
    pub receive_heap: AllegedHeap,
    /// Wakes the daemon's shard.
    pub peer_doorbell: Ringer,
    /// Wakes us.
    pub own_doorbell: Doorbell,
}

/// What stands in for the daemon beside its application. `Send`.
#[derive(Debug)]
pub struct RelayedDaemonEnd {
    /// Entries from the application.
    pub submissions: Consumer,
    /// Entries to the application.
    pub completions: Producer,
    /// What the application has written.
    pub send_heap: AllegedHeap,
    /// Where the daemon's messages are written.
    pub receive_heap: RelayedHeap,
    /// Wakes the application.
    pub peer_doorbell: Ringer,
    /// Wakes us.
    pub own_doorbell: Doorbell,
}

impl RelayedHeap {
    /// Writes bytes at their place. The carrier vouches that nobody holds a block there: no entry that names it has
    /// been handed over, or it was given back since.
    ///
    /// # Errors
    /// [`SpanError`] when they do not lie in the heap.
    pub fn write(&self, offset: u32, bytes: &[u8]) -> Result<(), SpanError> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let out_of_bounds = SpanError { offset, len, heap_bytes: self.region.bytes() };
        let to = self.region.range(offset, bytes.len()).ok_or(out_of_bounds)?;
        // SAFETY: `range` says that as many bytes lie there, mapped for writing, and `bytes` is memory of our own, no
        // part of the mapping: a region hands out no reference. That no other writer is at work: a heap has one.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Gives all its pages back to the kernel; they read as zeros after. For a heap in which nothing lies.
    ///
    /// # Errors
    /// `EPERM` on a receive heap: its seals forbid holes.
    pub fn clear(&self) -> rustix::io::Result<usize> {
        self.region.remove_pages(0, self.region.bytes())
    }
}

/// Creates a session whose daemon is elsewhere, in the sizes that one has given.
///
/// # Errors
/// [`SessionError::Size`], [`SessionError::System`].
pub fn create_relayed_session(
    config: &SessionConfig,
) -> Result<(RelayedDaemonEnd, SessionFds), SessionError> {
    let (end, fds) = create_session(config)?;
    let DaemonEnd { submissions, completions, send_heap, peer_doorbell, own_doorbell, .. } = end;
    let (receive_heap, receive_fd) = create_relayed_heap(config.receive_heap_bytes)?;
    let end =
        RelayedDaemonEnd { submissions, completions, send_heap, receive_heap, peer_doorbell, own_doorbell };
    Ok((end, fds.with_receive_heap(receive_fd)))
}

/// A receive heap whose daemon is elsewhere, and the descriptor with which the application opens it.
///
/// # Errors
/// [`SessionError::Size`], [`SessionError::System`].
pub fn create_relayed_heap(bytes: u32) -> Result<(RelayedHeap, OwnedFd), SessionError> {
    let (region, fd) = receive_region(bytes)?;
    Ok((RelayedHeap { region }, fd))
}

/// Opens a session in the place of an application that is elsewhere, after the checks of [`open_session`].
///
/// # Errors
/// Every [`SessionError`].
pub fn open_relayed_session(fds: SessionFds, config: &SessionConfig) -> Result<RelayedAppEnd, SessionError> {
    config.check()?;
    let send_bytes = config.send_heap_bytes as usize;
    let [send, receive] = fds.heaps();
    let region = open_region("send heap", send, send_bytes, Access::ReadWrite, SIZE_SEALS)?;
    let receive_heap = open_relayed_heap(receive, config.receive_heap_bytes)?;
    let AppEnd { submissions, completions, peer_doorbell, own_doorbell, .. } = open_session(fds, config)?;
    let send_heap = RelayedHeap { region };
    Ok(RelayedAppEnd { submissions, completions, send_heap, receive_heap, peer_doorbell, own_doorbell })
}

/// Opens a receive heap that the daemon has sent, to read what it writes there.
///
/// # Errors
/// [`SessionError::Size`], [`SessionError::Region`], [`SessionError::System`].
pub fn open_relayed_heap(fd: impl AsFd, bytes: u32) -> Result<AllegedHeap, SessionError> {
    heap_size("receive_heap_bytes", bytes)?;
    let region = open_region("receive heap", fd, bytes as usize, Access::ReadOnly, READ_ONLY_SEALS)?;
    Ok(AllegedHeap::new(region))
}

#[cfg(test)]
mod tests {
    //! Shows that a block carried from one end to the other lies where its entry says, and nothing lands outside.
    use super::*;
    use crate::Span;

    fn config() -> SessionConfig {
        SessionConfig {
            submission_entries: 16,
            completion_entries: 16,
            send_heap_bytes: 64 << 10,
            receive_heap_bytes: 64 << 10,
        }
    }

    #[test]
    fn a_block_lies_at_the_same_place_at_both_ends() {
        // Beside the application.
        let (mut near, fds) = create_relayed_session(&config()).unwrap();
        let mut app = open_session(fds, &config()).unwrap();
        // Beside the daemon.
        let (mut daemon, fds) = create_session(&config()).unwrap();
        let mut far = open_relayed_session(fds, &config()).unwrap();

        let mut block = app.send_heap.allocate(5).unwrap();
        block.bytes_mut()[..5].copy_from_slice(b"there");
        let span = block.lend(5);
        assert!(!app.submissions.push(&[1, span.offset.into(), 0, 0, 0, 0, 0, 0]).unwrap());
        let entry = near.submissions.pop().unwrap().unwrap();
        far.send_heap.write(span.offset, &near.send_heap.seal(span).unwrap()).unwrap();
        assert!(!far.submissions.push(&entry).unwrap());
        assert_eq!(daemon.submissions.pop().unwrap(), Some(entry));
        assert_eq!(daemon.send_heap.seal(span).unwrap(), b"there");

        let mut block = daemon.receive_heap.allocate(4).unwrap();
        block.bytes_mut()[..4].copy_from_slice(b"back");
        let span = block.lend(4);
        assert!(!daemon.completions.push(&entry).unwrap());
        assert_eq!(far.completions.pop().unwrap(), Some(entry));
        near.receive_heap.write(span.offset, &far.receive_heap.seal(span).unwrap()).unwrap();
        assert!(!near.completions.push(&entry).unwrap());
        assert_eq!(app.completions.pop().unwrap(), Some(entry));
        assert_eq!(&*app.receive_heap.block(span).unwrap(), b"back");
    }

    #[test]
    fn nothing_lands_outside_a_heap() {
        let (heap, fd) = create_relayed_heap(64 << 10).unwrap();
        let end = 64 << 10;
        heap.write(end - 1, b"x").unwrap();
        assert_eq!(heap.write(end, b"x"), Err(SpanError { offset: end, len: 1, heap_bytes: end as usize }));
        assert!(heap.write(u32::MAX, b"x").is_err());
        let seen = open_relayed_heap(&fd, end).unwrap();
        assert_eq!(seen.seal(Span { offset: end - 1, len: 1 }).unwrap(), b"x");
        assert!(open_relayed_heap(&fd, 2 * end).is_err());
    }
}
