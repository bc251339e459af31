//! Passing a living session from one daemon to its successor, and a receive heap to an application anew.
//!
//! Rings, send heap and doorbells outlive a daemon: their descriptors and two private indices are all there is. The
//! receive heap does not, because its seals allow no new writer, not even the successor. So the successor makes a new
//! one, and the application opens it beside the old, whose blocks stay readable until they are dropped:
//!
//! 1. The old daemon publishes what it staged and stops; it sends descriptors and [`RingIndices`].
//! 2. The new daemon calls [`inherit_session`] and sends the application the new heap's descriptor.
//! 3. The application opens it ([`open_receive_heap`]) and says so **in its submission ring**. Returns of blocks that
//!    come before that entry name the old heap, and the new daemon drops them; completions that point into the new
//!    heap are published only after it.
//!
//! The same steps without a new daemon replace a heap that a burst has made large: a receive heap cannot be trimmed.

use std::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};

use crate::alleged::AllegedHeap;
use crate::doorbell::{Doorbell, Ringer, dup_cloexec};
use crate::heap::Heap;
use crate::received::ReceivedHeap;
use crate::region::{Access, READ_ONLY_SEALS, SIZE_SEALS};
use crate::ring::{Consumer, Producer};
use crate::session::{
    DaemonEnd, SessionConfig, SessionError, SessionFds, create_region, heap_size, open_region, rings_of,
    system,
};

/// Where a daemon stood in the two rings of a session. Private numbers: the words in shared memory are only copies
/// that the application could have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingIndices {
    /// Submissions consumed, modulo 2^32.
    pub submission_head: u32,
    /// Completions published, modulo 2^32.
    pub completion_tail: u32,
    /// Completions the application had consumed when last looked at, modulo 2^32.
    pub completion_head: u32,
}

impl DaemonEnd {
    /// Where this end stands, for the successor. Entries staged but not published do not count.
    #[must_use]
    pub fn indices(&self) -> RingIndices {
        let (completion_tail, completion_head) = self.completions.indices();
        RingIndices { submission_head: self.submissions.head(), completion_tail, completion_head }
    }
}

/// Takes over a session from another daemon process: its descriptors as the application has them, the writing end of
/// the application's doorbell ([`Ringer`] as a descriptor), and its indices. Also returns the descriptor of the new
/// receive heap, for the application.
///
/// # Errors
/// Every [`SessionError`].
pub fn inherit_session(
    fds: &SessionFds,
    ringer: OwnedFd,
    indices: RingIndices,
    config: &SessionConfig,
) -> Result<(DaemonEnd, OwnedFd), SessionError> {
    config.check()?;
    let [rings, send_heap, _, daemon_doorbell, app_doorbell] = fds.as_fds();
    let rings = open_region("rings", rings, config.rings_bytes(), Access::ReadWrite, SIZE_SEALS)?;
    let send_bytes = config.send_heap_bytes as usize;
    let send_heap = open_region("send heap", send_heap, send_bytes, Access::ReadOnly, SIZE_SEALS)?;
    let (submission, completion) = rings_of(Arc::new(rings), config)?;
    let (receive_heap, receive_fd) = create_receive_heap(config.receive_heap_bytes)?;
    let end = DaemonEnd {
        submissions: Consumer::resume(submission, indices.submission_head),
        completions: Producer::resume(completion, indices.completion_tail, indices.completion_head),
        send_heap: AllegedHeap::new(send_heap),
        receive_heap,
        peer_doorbell: Ringer::of_daemon(ringer, dup_cloexec(app_doorbell).map_err(system("dup"))?),
        own_doorbell: Doorbell::of_daemon(dup_cloexec(daemon_doorbell).map_err(system("dup"))?),
    };
    Ok((end, receive_fd))
}

/// A receive heap of its own, and the descriptor with which the application opens it.
///
/// # Errors
/// [`SessionError::Size`], [`SessionError::System`].
pub fn create_receive_heap(bytes: u32) -> Result<(Heap, OwnedFd), SessionError> {
    heap_size("receive_heap_bytes", bytes)?;
    // Mapped before it is sealed: F_SEAL_FUTURE_WRITE spares the mapping that exists, so this process alone writes.
    let (fd, region) =
        create_region("trunkline-receive", bytes as usize, Access::ReadWrite, READ_ONLY_SEALS)?;
    Ok((Heap::new(region), fd))
}

/// Opens a receive heap the daemon has sent, after checking its seals and length.
///
/// To replace an older one, assign it: blocks of the older stay readable, and their offsets are not returned any more.
///
/// # Errors
/// [`SessionError::Size`], [`SessionError::Region`], [`SessionError::System`].
pub fn open_receive_heap(fd: impl AsFd, bytes: u32) -> Result<ReceivedHeap, SessionError> {
    heap_size("receive_heap_bytes", bytes)?;
    let region = open_region("receive heap", fd, bytes as usize, Access::ReadOnly, READ_ONLY_SEALS)?;
    Ok(ReceivedHeap::new(region))
}
