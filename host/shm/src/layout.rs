//! Where every shared word of the rings region lies; asserted when this file compiles.
//!
//! `docs/shared-memory.md` draws the same table for implementers in other languages.

use core::mem::{align_of, offset_of, size_of};

use crate::entry::{ENTRY_WORDS, Entry};
use crate::sync::{AtomicU32, AtomicU64};

/// First word of every rings region: `TLR1` when read as bytes.
pub const RINGS_MAGIC: u32 = u32::from_le_bytes(*b"TLR1");

/// Version of the layout in this file.
pub const LAYOUT_VERSION: u32 = 1;

/// Bytes of the rings region before the first entry: one page, so that entries start on a page.
pub const RINGS_HEADER_BYTES: usize = 4096;

/// Two lines of 64 bytes: x86 fetches lines in adjacent pairs, some ARM cores have 128-byte lines.
pub const LINE_BYTES: usize = 128;

/// A shared word alone in its line, so that its writer and its reader disturb nobody else.
#[repr(C, align(128))]
pub(crate) struct Line {
    pub(crate) word: AtomicU32,
}

/// Where a consumer that sleeps says so, and the producer that wakes it says when it rang.
#[repr(C, align(128))]
pub(crate) struct Bell {
    /// 1 while the consumer is about to block or blocks; the producer that takes it back to 0 must ring.
    pub(crate) sleeping: AtomicU32,
    /// When it last did, in nanoseconds modulo 2^32, never 0. A hint: the consumer learns from it what waking costs.
    pub(crate) rung: AtomicU32,
}

/// The shared words of one ring.
#[repr(C)]
pub(crate) struct RingLines {
    /// Entries ever published, modulo 2^32. Written by the producer only.
    pub(crate) tail: Line,
    /// Entries ever consumed, modulo 2^32. Written by the consumer only.
    pub(crate) head: Line,
    /// Written by both.
    pub(crate) bell: Bell,
}

/// What the region begins with. The daemon writes it once and never reads it again; it is for tools and for the
/// application's check that both sides speak of the same thing.
#[repr(C, align(128))]
pub(crate) struct RingsHeader {
    pub(crate) magic: AtomicU32,
    pub(crate) version: AtomicU32,
    pub(crate) submission_entries: AtomicU32,
    pub(crate) completion_entries: AtomicU32,
    pub(crate) submission_offset: AtomicU32,
    pub(crate) completion_offset: AtomicU32,
}

/// The first page of the rings region, before padding.
#[repr(C)]
pub(crate) struct RingsPage {
    pub(crate) header: RingsHeader,
    pub(crate) submission: RingLines,
    pub(crate) completion: RingLines,
}

/// An entry as it lies in shared memory.
pub(crate) type Slot = [AtomicU64; ENTRY_WORDS];

const _: () = {
    assert!(size_of::<Line>() == LINE_BYTES && align_of::<Line>() == LINE_BYTES);
    assert!(size_of::<RingLines>() == 3 * LINE_BYTES);
    assert!(offset_of!(RingLines, tail) == 0);
    assert!(offset_of!(RingLines, head) == 128);
    assert!(offset_of!(RingLines, bell) == 256);
    assert!(offset_of!(Bell, sleeping) == 0 && offset_of!(Bell, rung) == 4);
    assert!(offset_of!(RingsHeader, magic) == 0);
    assert!(offset_of!(RingsHeader, version) == 4);
    assert!(offset_of!(RingsHeader, submission_entries) == 8);
    assert!(offset_of!(RingsHeader, completion_entries) == 12);
    assert!(offset_of!(RingsHeader, submission_offset) == 16);
    assert!(offset_of!(RingsHeader, completion_offset) == 20);
    assert!(offset_of!(RingsPage, header) == 0);
    assert!(offset_of!(RingsPage, submission) == 128);
    assert!(offset_of!(RingsPage, completion) == 512);
    assert!(size_of::<RingsPage>() == 896 && size_of::<RingsPage>() <= RINGS_HEADER_BYTES);
    assert!(size_of::<Slot>() == 64 && size_of::<Entry>() == 64);
};
