//! Passing a living session from one daemon to its successor, and a receive heap to an application anew.
//!
//! Rings, send heap and doorbells outlive a daemon: their descriptors and a few private numbers are all there is. The
//! receive heap does not, because its seals allow no new writer, not even the successor. So the successor makes a new
//! one *with the same books*: what was lent stays lent, at the same offset, and what was being written is written
//! again at the same place. The application opens the new heap beside the old and tells the two apart by a number in
//! the low bits of every offset ([`crate::heap_number`]): a completion names the heap it points into, so it does not
//! matter when the application opens the new one, or in which order it reads what. A block of an old heap stays
//! readable until it is dropped, and is returned as every block is.
//!
//! 1. The old daemon stops at the end of a turn and sends descriptors, [`RingIndices`] and the books
//!    ([`Heap::blocks`]).
//! 2. The new daemon maps everything ([`inherit_rings`], [`inherit_heaps`]) and sends the application the new heap's
//!    descriptor and number.
//! 3. The application opens it ([`open_successor_heap`]) when it first meets the number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::{AsFd, FromRawFd, OwnedFd};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

use crate::alleged::AllegedHeap;
use crate::allocator::BlockState;
use crate::config::{SessionConfig, SessionError};
use crate::control::ControlSocket;
use crate::doorbell::{Doorbell, Ringer};
use crate::heap::Heap;
use crate::region::{Access, SIZE_SEALS};
use crate::regions::{open_region, receive_region, rings_of};
use crate::ring::{Consumer, Producer};

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

/// The doorbells of a session as a daemon has them.
#[derive(Debug)]
pub struct Bells {
    /// The eventfd the application rings.
    pub own: OwnedFd,
    /// What wakes the application.
    pub ringer: OwnedFd,
}

impl RingIndices {
    /// Where a daemon stands. Entries staged but not published do not count.
    #[must_use]
    pub fn of(submissions: &Consumer, completions: &Producer) -> RingIndices {
        let (completion_tail, completion_head) = completions.indices();
        RingIndices { submission_head: submissions.head(), completion_tail, completion_head }
    }
}

/// The control socket at a descriptor this process was started with. Works once.
///
/// # Errors
/// `EBADF` if there is no such descriptor, or it was asked for before.
pub fn inherited_socket(descriptor: i32) -> std::io::Result<ControlSocket> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // Standard streams have owners already.
    if descriptor <= 2 || TAKEN.swap(true, Ordering::Relaxed) {
        return Err(Errno::BADF.into());
    }
    // SAFETY: the number names a descriptor this process was given at its start for this purpose, and nobody else in
    // it knows of; it is taken once. If there is none, it is not closed.
    let fd = unsafe { OwnedFd::from_raw_fd(descriptor) };
    if let Err(error) = fcntl_setfd(&fd, FdFlags::CLOEXEC) {
        std::mem::forget(fd);
        return Err(error.into());
    }
    Ok(ControlSocket::from(fd))
}

/// Takes over the rings and doorbells of a session from another daemon process.
///
/// # Errors
/// Every [`SessionError`]; [`SessionError::Doorbell`] for a session that a daemon of an earlier version made.
pub fn inherit_rings(
    rings: impl AsFd,
    bells: Bells,
    indices: RingIndices,
    config: &SessionConfig,
) -> Result<(Consumer, Producer, Ringer, Doorbell), SessionError> {
    config.check()?;
    let rings = open_region("rings", rings, config.rings_bytes(), Access::ReadWrite, SIZE_SEALS)?;
    let (submission, completion) = rings_of(Arc::new(rings), config)?;
    let submissions = Consumer::resume(submission, indices.submission_head);
    let completions = Producer::resume(completion, indices.completion_tail, indices.completion_head);
    let ringer = Ringer::of_daemon(bells.ringer).ok_or(SessionError::Doorbell)?;
    Ok((submissions, completions, ringer, Doorbell::of_daemon(bells.own)))
}

/// Takes over the send heap of a session, and makes a receive heap in the place of the old one, with its books. Also
/// returns the descriptor of the new heap, for the application.
///
/// # Errors
/// Every [`SessionError`]; [`SessionError::Blocks`] if the books are none.
pub fn inherit_heaps(
    send_heap: impl AsFd,
    blocks: &[BlockState],
    config: &SessionConfig,
) -> Result<(AllegedHeap, Heap, OwnedFd), SessionError> {
    config.check()?;
    let send_bytes = config.send_heap_bytes as usize;
    let send_heap = open_region("send heap", send_heap, send_bytes, Access::ReadOnly, SIZE_SEALS)?;
    let (region, fd) = receive_region(config.receive_heap_bytes)?;
    let receive_heap = Heap::with_blocks(region, blocks)?;
    Ok((AllegedHeap::new(send_heap), receive_heap, fd))
}
