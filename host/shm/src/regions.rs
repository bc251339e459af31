//! The regions of a session: made and sealed by the daemon, checked and mapped by the application.

use std::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use crate::config::{SessionConfig, SessionError, heap_size, system};
use crate::heap::Heap;
use crate::lease::read_only;
use crate::received::{HEAP_NUMBERS, ReceivedHeap};
use crate::region::{Access, READ_ONLY_SEALS, Region, check_memfd, create_memfd, seal};
use crate::ring_memory::{RingMemory, Which};

/// A fresh memfd, mapped and then sealed.
pub(crate) fn create_region(
    name: &'static str,
    bytes: usize,
    access: Access,
    seals: rustix::fs::SealFlags,
) -> Result<(OwnedFd, Region), SessionError> {
    let fd = create_memfd(name, bytes).map_err(system("memfd_create"))?;
    let region = Region::map(&fd, bytes, access).map_err(system("mmap"))?;
    seal(&fd, seals).map_err(system("F_ADD_SEALS"))?;
    Ok((fd, region))
}

/// A memfd from another process, checked and then mapped.
pub(crate) fn open_region(
    region: &'static str,
    fd: impl AsFd,
    bytes: usize,
    access: Access,
    seals: rustix::fs::SealFlags,
) -> Result<Region, SessionError> {
    check_memfd(&fd, bytes, seals).map_err(|fault| SessionError::Region { region, fault })?;
    Region::map(fd, bytes, access).map_err(system("mmap"))
}

/// The two rings of a rings region.
pub(crate) fn rings_of(
    rings: Arc<Region>,
    config: &SessionConfig,
) -> Result<(RingMemory, RingMemory), SessionError> {
    let ring = |which, at, entries| {
        RingMemory::new(&rings, which, at, entries)
            .ok_or(SessionError::System { what: "ring", errno: Errno::INVAL })
    };
    Ok((
        ring(Which::Submission, config.submission_offset(), config.submission_entries)?,
        ring(Which::Completion, config.completion_offset(), config.completion_entries)?,
    ))
}

/// A receive heap of its own, and the descriptor with which the application opens it.
///
/// # Errors
/// [`SessionError::Size`], [`SessionError::System`].
pub fn create_receive_heap(bytes: u32) -> Result<(Heap, OwnedFd), SessionError> {
    let (region, fd) = receive_region(bytes)?;
    Ok((Heap::new(region)?, fd))
}

pub(crate) fn receive_region(bytes: u32) -> Result<(Region, OwnedFd), SessionError> {
    heap_size("receive_heap_bytes", bytes)?;
    // Mapped before it is sealed: F_SEAL_FUTURE_WRITE spares the mapping that exists, so this process alone writes.
    let (fd, region) =
        create_region("trunkline-receive", bytes as usize, Access::ReadWrite, READ_ONLY_SEALS)?;
    // The kernel counts who has this one (`lease.rs`). Without /proc the other does as well.
    let given = read_only(&fd).unwrap_or(fd);
    Ok((region, given))
}

/// Opens a receive heap the daemon has sent, after checking its seals and length.
///
/// # Errors
/// [`SessionError::Size`], [`SessionError::Region`], [`SessionError::System`].
pub fn open_receive_heap(fd: impl AsFd, bytes: u32) -> Result<ReceivedHeap, SessionError> {
    open_successor_heap(fd, bytes, 0)
}

/// The same for the heap of a daemon that has taken another's place; completions name it by its number.
///
/// # Errors
/// As [`open_receive_heap`].
pub fn open_successor_heap(fd: impl AsFd, bytes: u32, number: u32) -> Result<ReceivedHeap, SessionError> {
    heap_size("receive_heap_bytes", bytes)?;
    if number >= HEAP_NUMBERS {
        return Err(SessionError::Size { field: "heap number", value: number, rule: "must be below 64" });
    }
    let region = open_region("receive heap", fd, bytes as usize, Access::ReadOnly, READ_ONLY_SEALS)?;
    Ok(ReceivedHeap::new(region, number))
}
