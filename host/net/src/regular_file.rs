//! Reading a small file whole: a regular one, so that nobody waits for a writer, and no more than it may have.

use rustix::fs::OFlags;
use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegularFileError {
    /// It cannot be.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is a folder, a pipe, a socket or a device.
    #[error("is no regular file; write the path of one")]
    Irregular,
    /// It has more.
    #[error("has more than {0} bytes")]
    Long(u64),
}

/// What a file has, at most `bytes_max`, if `is_taken` has nothing against it. Links are followed.
pub(crate) fn read_regular<E: From<RegularFileError>>(
    path: &Path,
    bytes_max: u64,
    is_taken: impl FnOnce(&Metadata) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32);
    let file = options.open(path).map_err(RegularFileError::from)?;
    let metadata = file.metadata().map_err(RegularFileError::from)?;
    if !metadata.is_file() {
        return Err(RegularFileError::Irregular.into());
    }
    is_taken(&metadata)?;
    let mut bytes = Vec::new();
    // One more than it may have, so that a file that grows meanwhile is found out.
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(RegularFileError::from)?;
    if bytes.len() as u64 > bytes_max {
        return Err(RegularFileError::Long(bytes_max).into());
    }
    Ok(bytes)
}
