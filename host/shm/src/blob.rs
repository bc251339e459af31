//! Blobs: bytes too large for a control packet, handed over in a sealed memfd.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::SealFlags;
use rustix::io::{Errno, pread, pwrite};

use crate::region::{RegionFault, SIZE_SEALS, check_seals, create_memfd, memfd_bytes, seal};

/// Nothing about the file can change any more.
const BLOB_SEALS: SealFlags = SIZE_SEALS.union(SealFlags::WRITE);

/// Bytes of the largest blob either side makes or reads: descriptor sets of the largest code bases are a tenth of it.
pub const BLOB_BYTES_MAX: usize = 64 << 20;

/// Why a blob could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// More bytes than allowed.
    #[error("a blob of {bytes} bytes where at most {limit} are allowed")]
    Length {
        /// Bytes of the blob.
        bytes: u64,
        /// Bytes allowed.
        limit: usize,
    },
    /// Not a memfd, or one that its sender could still change.
    #[error(transparent)]
    Region(#[from] RegionFault),
    /// The kernel refused.
    #[error("{what}: {errno}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        errno: Errno,
    },
}

/// Puts `bytes` into a memfd that nobody can change any more.
///
/// # Errors
/// [`BlobError::Length`] beyond [`BLOB_BYTES_MAX`], [`BlobError::System`].
pub fn create_blob(bytes: &[u8]) -> Result<OwnedFd, BlobError> {
    if bytes.len() > BLOB_BYTES_MAX {
        return Err(BlobError::Length { bytes: bytes.len() as u64, limit: BLOB_BYTES_MAX });
    }
    let fd = create_memfd("trunkline-blob", bytes.len()).map_err(system("memfd_create"))?;
    let mut written = 0;
    while written < bytes.len() {
        written += pwrite(&fd, &bytes[written..], written as u64).map_err(system("pwrite"))?;
    }
    seal(&fd, BLOB_SEALS).map_err(system("F_ADD_SEALS"))?;
    Ok(fd)
}

/// Reads a blob that another process made.
///
/// Only sealed memfds are read: any other file could change, shrink or block for ever while we do.
///
/// # Errors
/// [`BlobError::Region`]; [`BlobError::Length`] beyond `bytes_max` or [`BLOB_BYTES_MAX`], before anything is
/// allocated.
pub fn read_blob(fd: impl AsFd, bytes_max: usize) -> Result<Vec<u8>, BlobError> {
    check_seals(&fd, BLOB_SEALS)?;
    let limit = bytes_max.min(BLOB_BYTES_MAX);
    let bytes = memfd_bytes(&fd)?;
    let Some(len) = usize::try_from(bytes).ok().filter(|len| *len <= limit) else {
        return Err(BlobError::Length { bytes, limit });
    };
    let mut blob = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match pread(&fd, &mut blob[filled..], filled as u64).map_err(system("pread"))? {
            0 => return Err(BlobError::Region(RegionFault::Length { found: filled as u64, needed: bytes })),
            count => filled += count,
        }
    }
    Ok(blob)
}

fn system(what: &'static str) -> impl Fn(Errno) -> BlobError {
    move |errno| BlobError::System { what, errno }
}
