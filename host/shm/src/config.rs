//! Sizes of a session, and why one cannot be.

use rustix::io::Errno;

use crate::entry::Entry;
use crate::layout::RINGS_HEADER_BYTES;
use crate::region::RegionFault;

/// Fewest entries of a ring: less than this and a batch cannot hide a hand-over.
pub const RING_ENTRIES_MIN: u32 = 16;

/// Most entries of a ring: 4 MiB. More outstanding calls than 65,536 on one session is a flood, not a load.
pub const RING_ENTRIES_MAX: u32 = 1 << 16;

/// Smallest heap: one page of the largest common page size, so that sealing and mapping agree everywhere.
pub const HEAP_BYTES_MIN: u32 = 64 << 10;

/// Largest heap. Offsets are `u32` and lengths are added to them; 2 GiB leaves every sum within `u32`.
pub const HEAP_BYTES_MAX: u32 = 1 << 31;

/// Descriptors an application receives for a session.
pub const SESSION_FDS: usize = 5;

/// Sizes of a session, agreed in the attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Entries of the submission ring (application to daemon), a power of two.
    pub submission_entries: u32,
    /// Entries of the completion ring (daemon to application), a power of two.
    pub completion_entries: u32,
    /// Bytes of the heap the application writes, a multiple of 64 KiB.
    pub send_heap_bytes: u32,
    /// Bytes of the heap the daemon writes, a multiple of 64 KiB.
    pub receive_heap_bytes: u32,
}

/// What the usual messages of a heap share: 64 MiB, or an eighth of a larger heap.
const USUAL_BYTES_MIN: u32 = 64 << 20;

/// Bytes of a receive heap for messages of the usual sizes, all of them together. The rest is address space for single
/// messages larger than half of that, so that one of them fits without anybody holding as much in small ones.
#[must_use]
pub fn usual_bytes(heap_bytes: u32) -> u32 {
    (heap_bytes / 8).max(USUAL_BYTES_MIN).min(heap_bytes)
}

impl Default for SessionConfig {
    /// 512 entries each way: 128 outstanding calls, their block returns and as much again, in 68 KiB when every slot
    /// has been used. Heaps of 64 MiB: 128 messages of 512 KiB; they cost address space until touched.
    fn default() -> SessionConfig {
        SessionConfig {
            submission_entries: 512,
            completion_entries: 512,
            send_heap_bytes: 64 << 20,
            receive_heap_bytes: 64 << 20,
        }
    }
}

impl SessionConfig {
    /// Checks every size against its limits.
    ///
    /// # Errors
    /// [`SessionError::Size`] naming the first field that is out of bounds.
    pub fn check(&self) -> Result<(), SessionError> {
        ring_size("submission_entries", self.submission_entries)?;
        ring_size("completion_entries", self.completion_entries)?;
        heap_size("send_heap_bytes", self.send_heap_bytes)?;
        heap_size("receive_heap_bytes", self.receive_heap_bytes)
    }

    /// Bytes of the rings region: a page of control words, then both rings' entries.
    #[must_use]
    pub fn rings_bytes(&self) -> usize {
        self.completion_offset() + ring_bytes(self.completion_entries)
    }

    pub(crate) fn submission_offset(&self) -> usize {
        RINGS_HEADER_BYTES
    }

    pub(crate) fn completion_offset(&self) -> usize {
        self.submission_offset() + ring_bytes(self.submission_entries)
    }
}

/// Why a session could not be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A size is beyond its limits.
    #[error("{field} is {value}: {rule}")]
    Size {
        /// Field of [`SessionConfig`].
        field: &'static str,
        /// Its value.
        value: u32,
        /// What it must be.
        rule: &'static str,
    },
    /// The attach brought another number of descriptors.
    #[error("{found} descriptors where a session has {SESSION_FDS}")]
    DescriptorCount {
        /// Descriptors received.
        found: usize,
    },
    /// A region is not what was agreed.
    #[error("{region}: {fault}")]
    Region {
        /// `"rings"`, `"send heap"` or `"receive heap"`.
        region: &'static str,
        /// What is wrong with it.
        fault: RegionFault,
    },
    /// The first words of the rings region disagree with the sizes agreed.
    #[error("rings header: {word} is {found} where {needed} was agreed")]
    Header {
        /// Which word.
        word: &'static str,
        /// Its value.
        found: u32,
        /// The value agreed.
        needed: u32,
    },
    /// The books of a receive heap that was handed over are none.
    #[error("blocks of the receive heap overlap, or lie outside it")]
    Blocks,
    /// The application's doorbell is no socket.
    #[error(
        "the application's doorbell is a pipe of an earlier version, by which it could have the daemon wait"
    )]
    Doorbell,
    /// The kernel refused.
    #[error("{what}: {errno}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        errno: Errno,
    },
}

fn ring_bytes(entries: u32) -> usize {
    (entries as usize * size_of::<Entry>()).next_multiple_of(RINGS_HEADER_BYTES)
}

fn ring_size(field: &'static str, value: u32) -> Result<(), SessionError> {
    if value.is_power_of_two() && (RING_ENTRIES_MIN..=RING_ENTRIES_MAX).contains(&value) {
        return Ok(());
    }
    Err(SessionError::Size { field, value, rule: "a power of two from 16 to 65536" })
}

pub(crate) fn heap_size(field: &'static str, value: u32) -> Result<(), SessionError> {
    if value.is_multiple_of(HEAP_BYTES_MIN) && (HEAP_BYTES_MIN..=HEAP_BYTES_MAX).contains(&value) {
        return Ok(());
    }
    Err(SessionError::Size { field, value, rule: "a multiple of 64 KiB from 64 KiB to 2 GiB" })
}

pub(crate) fn system(what: &'static str) -> impl Fn(Errno) -> SessionError {
    move |errno| SessionError::System { what, errno }
}
