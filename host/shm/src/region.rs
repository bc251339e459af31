//! Regions: memfds, their seals, and mappings of them.

use std::ptr::NonNull;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::fork::ForkGuard;

/// The size can never change again. On every region, because a mapping that can be cut short kills its reader.
pub(crate) const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// [`SIZE_SEALS`], and nobody can become a writer any more: no new writable mapping, no `write`, no hole.
pub(crate) const READ_ONLY_SEALS: SealFlags = SIZE_SEALS.union(SealFlags::FUTURE_WRITE);

/// How a region is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

/// One mapping of one memfd, unmapped when dropped in the process that made it.
///
/// The memory belongs to two processes. A region therefore hands out its address and never a reference; what may
/// be done at which offset is the business of the rings and heaps that hold it.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    guard: ForkGuard,
}

// SAFETY: a region is an address and a length. Every access through it is either atomic or within a block whose
// single owner the allocator guarantees, so it may be used from any thread.
unsafe impl Send for Region {}
// SAFETY: as above; `Region` itself has no interior state.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` of `fd`; the caller has made sure that the file is at least that long and cannot shrink.
    pub(crate) fn map(fd: impl AsFd, bytes: usize, access: Access) -> io::Result<Region> {
        let prot = match access {
            Access::ReadOnly => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::Errno::FAULT)?;
        let region = Region { base, bytes, guard: ForkGuard::new() };
        // SAFETY: the range is exactly the mapping made above. A forked child does not inherit it, so a child that
        // forgets to ask its `ForkGuard` faults instead of writing into its parent's rings.
        unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
        Ok(region)
    }

    /// Address of the first byte.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What tells a forked child from the process that has the mapping.
    pub(crate) fn guard(&self) -> ForkGuard {
        self.guard
    }

    /// Whether this process is a forked child that does not have the mapping.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        self.guard.is_foreign()
    }

    /// Address of `len` bytes at `offset`, or `None` when they do not lie wholly within the region.
    #[inline]
    pub(crate) fn range(&self, offset: u32, len: usize) -> Option<NonNull<u8>> {
        let end = (offset as usize).checked_add(len)?;
        if end > self.bytes || self.is_foreign() {
            return None;
        }
        // SAFETY: `offset <= end <= bytes`, so the address is within the mapping or one past its end.
        Some(unsafe { self.base.add(offset as usize) })
    }

    /// Gives the pages from `offset` (rounded up) to `offset + len` (rounded up) back to the kernel; they read as
    /// zeros after. The caller owns all bytes from `offset` to the end of the last page.
    ///
    /// # Errors
    /// `EPERM` on a region with [`READ_ONLY_SEALS`]: a hole is a write.
    pub(crate) fn remove_pages(&self, offset: u32, len: usize) -> io::Result<usize> {
        let page_bytes = rustix::param::page_size();
        let first = (offset as usize).next_multiple_of(page_bytes);
        let last = (offset as usize + len).next_multiple_of(page_bytes).min(self.bytes);
        if first >= last || self.is_foreign() {
            return Ok(0);
        }
        // SAFETY: `first < last <= bytes`: within the mapping.
        let from = unsafe { self.base.add(first) };
        // SAFETY: the range lies within this mapping, and the caller owns every block in it (`Heap::trim`).
        unsafe { madvise(from.as_ptr().cast(), last - first, Advice::LinuxRemove) }?;
        Ok(last - first)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // In a forked child these addresses were never mapped and may belong to something else by now.
        if self.is_foreign() {
            return;
        }
        // SAFETY: the range is the mapping this value made, and nothing refers to it any more: every ring, heap
        // and block that does holds the region in an `Arc`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "the range was mapped by `Region::map`");
    }
}

/// Creates a memfd of `bytes` zeros, not yet sealed. `name` shows in `/proc/<pid>/maps`.
pub(crate) fn create_memfd(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know NOEXEC_SEAL; there the fd merely stays executable-capable.
    let fd = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create(name, flags))?;
    ftruncate(&fd, bytes as u64)?;
    Ok(fd)
}

/// Adds `seals`, for ever.
pub(crate) fn seal(fd: impl AsFd, seals: SealFlags) -> io::Result<()> {
    fcntl_add_seals(fd, seals)
}

/// Why a memfd handed to us is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionFault {
    /// Not a memfd, or one that cannot be sealed.
    #[error("not a sealable memfd")]
    NotMemfd,
    /// A seal is missing, so the other side could still change what must not change.
    #[error("seals {found:#x} where {needed:#x} are needed")]
    Seals {
        /// `F_GET_SEALS` of the descriptor.
        found: u32,
        /// The seals it must have.
        needed: u32,
    },
    /// The file has another length than agreed.
    #[error("{found} bytes where {needed} were agreed")]
    Length {
        /// Length of the file.
        found: u64,
        /// Length agreed in the attach.
        needed: u64,
    },
}

/// Checks that `fd` is a memfd with at least `needed` seals and exactly `bytes` long.
pub(crate) fn check_memfd(fd: impl AsFd, bytes: usize, needed: SealFlags) -> Result<(), RegionFault> {
    check_seals(&fd, needed)?;
    let found = memfd_bytes(fd)?;
    if found != bytes as u64 {
        return Err(RegionFault::Length { found, needed: bytes as u64 });
    }
    Ok(())
}

/// Checks the seals alone. `F_GET_SEALS` succeeds on memfds only, so this also tells a memfd from a file whose
/// reads could block for ever.
pub(crate) fn check_seals(fd: impl AsFd, needed: SealFlags) -> Result<(), RegionFault> {
    let found = fcntl_get_seals(fd).map_err(|_| RegionFault::NotMemfd)?;
    if !found.contains(needed) {
        return Err(RegionFault::Seals { found: found.bits(), needed: needed.bits() });
    }
    Ok(())
}

/// Length of a memfd in bytes.
pub(crate) fn memfd_bytes(fd: impl AsFd) -> Result<u64, RegionFault> {
    let stat = fstat(fd).map_err(|_| RegionFault::NotMemfd)?;
    u64::try_from(stat.st_size).map_err(|_| RegionFault::NotMemfd)
}
