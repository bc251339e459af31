//! The pieces of a gathering write.

use std::io::IoSlice;
use trunkline_shm::SharedSlice;

/// Most pieces of one write.
pub const CHUNKS_MAX: usize = 64;

/// A piece of what is written.
#[derive(Debug)]
pub enum Chunk<'a> {
    /// Bytes of this process.
    Bytes(&'a [u8]),
    /// A range another process may be writing; read by the kernel only.
    Shared(SharedSlice),
}

impl Chunk<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Shared(range) => range.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As the kernel takes it.
    pub(crate) fn io_slice(&self) -> IoSlice<'_> {
        match self {
            Self::Bytes(bytes) => IoSlice::new(bytes),
            // SAFETY: this is private to the room, and `Stream::write` hands the result to `sendmsg` and nothing else.
            Self::Shared(range) => unsafe { range.io_slice() },
        }
    }
}
