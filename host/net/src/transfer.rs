//! How a read or write ended.

use rustix::io::Errno;
use std::io;

/// How a read or write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// So many bytes; at least one.
    Bytes(usize),
    /// Nothing could be read or written now.
    NotReady,
    /// Reading: the peer will send nothing more.
    Ended,
}

impl Transfer {
    /// Reads the outcome of a write made on the stream's descriptor by somebody else.
    ///
    /// # Errors
    /// What the kernel says, except *would block* and *interrupted*.
    pub fn of_write(result: rustix::io::Result<usize>) -> io::Result<Self> {
        match result {
            Ok(0) | Err(Errno::AGAIN | Errno::INTR) => Ok(Self::NotReady),
            Ok(count) => Ok(Self::Bytes(count)),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the outcome of a read for `wanted` bytes.
    ///
    /// # Errors
    /// What the kernel says, except *would block*.
    pub(crate) fn of_read(result: rustix::io::Result<usize>, wanted: usize) -> io::Result<Self> {
        match result {
            Ok(0) if wanted > 0 => Ok(Self::Ended),
            Ok(0) | Err(Errno::AGAIN) => Ok(Self::NotReady),
            Ok(count) => Ok(Self::Bytes(count)),
            Err(error) => Err(error.into()),
        }
    }
}
