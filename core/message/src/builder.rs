//! Writing a message in place, in any order.

use std::collections::BTreeMap;

use crate::bytes::{pair, read_pair, read_u32, write};
use crate::extent::{Extent, LimitError};
use crate::header::{EXTENT_BYTES_MAX, HEADER_BYTES, Header};
use crate::place::DEPTH_MAX;

/// A message under construction in an extent.
///
/// Nothing is written twice and nothing is gathered first: a setter puts its value where it stays. Parts may be set
/// in any order, set again, and grown; what is abandoned by that stays behind as unused bytes of the extent.
///
/// Errors are remembered, not returned, so that setters read as setters: once the extent cannot grow or a message
/// nests too deeply, everything set is dropped and [`Builder::finish`] says why.
#[derive(Debug)]
pub struct Builder<E> {
    extent: E,
    /// Bytes in use; all allocated bytes are initialised, padding to zero.
    len: usize,
    error: Option<BuildError>,
    /// Arrays that were given more room than they had elements, by the offset of their slot.
    roomy: BTreeMap<usize, Room>,
}

/// Beyond any extent: reads as zero, writes vanish, the builder remembers why.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// An array's place and the elements it has room for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    pub(crate) offset: u32,
    pub(crate) capacity: u32,
}

/// Why a message could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The extent cannot grow any further.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Messages are nested more than [`DEPTH_MAX`] levels below the root.
    #[error("messages are nested more than {DEPTH_MAX} levels deep")]
    Depth,
}

/// A finished message and the extent it lies in.
#[derive(Clone, Debug)]
pub struct Built<E> {
    extent: E,
    len: usize,
}

impl<E: Extent> Built<E> {
    /// The message, header included.
    pub fn bytes(&self) -> &[u8] {
        self.extent.bytes().get(..self.len).unwrap_or_default()
    }

    /// Its length.
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    /// The extent back, for the next message.
    pub fn into_extent(self) -> E {
        self.extent
    }
}

impl<E: Extent> AsRef<[u8]> for Built<E> {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl<E: Extent> Builder<E> {
    /// Begins a message whose root block has `root_block_bytes` bytes. What the extent held is lost.
    pub fn new(extent: E, root_block_bytes: u32) -> Self {
        let mut builder = Self { extent, len: 0, error: None, roomy: BTreeMap::new() };
        builder.allocate_zeroed(HEADER_BYTES, 8);
        builder.allocate_zeroed(root_block_bytes as usize, 8);
        builder
    }

    /// Bytes used so far, header included.
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    /// Writes the header and hands the message out.
    ///
    /// # Errors
    /// [`BuildError`], the first that occurred.
    pub fn finish(mut self, fingerprint: u64) -> Result<Built<E>, BuildError> {
        match self.error {
            Some(error) => Err(error),
            None => {
                Header { total_bytes: self.len as u32, fingerprint }.write(self.extent.bytes_mut());
                Ok(Built { extent: self.extent, len: self.len })
            }
        }
    }

    /// Reserves bytes at the end, the gap before them zeroed, and returns their offset; `None` once anything failed.
    pub(crate) fn allocate(&mut self, length: usize, alignment: usize) -> Option<u32> {
        // By mask: alignments are powers of two, and a division would cost more than all the rest.
        let at = (self.len + (alignment - 1)) & !(alignment - 1);
        let end = at.saturating_add(length);
        if self.error.is_some() || !self.reserve(end) {
            return None;
        }
        let gap = self.len..at;
        self.len = end;
        if !gap.is_empty() {
            self.bytes_mut(gap.start, gap.len()).fill(0);
        }
        Some(at as u32)
    }

    /// As [`Builder::allocate`], with the bytes zeroed.
    pub(crate) fn allocate_zeroed(&mut self, length: usize, alignment: usize) -> Option<u32> {
        let at = self.allocate(length, alignment)?;
        self.bytes_mut(at as usize, length).fill(0);
        Some(at)
    }

    /// A block one level below one that has `depth_left` levels left.
    pub(crate) fn allocate_block(&mut self, depth_left: u32, block_bytes: u32) -> Option<u32> {
        if depth_left == 0 {
            self.fail(BuildError::Depth);
            return None;
        }
        self.allocate_zeroed(block_bytes as usize, 8)
    }

    /// Copies bytes to the end.
    pub(crate) fn append(&mut self, bytes: &[u8], alignment: usize) -> Option<u32> {
        let at = self.allocate(bytes.len(), alignment)?;
        self.overwrite(at, bytes);
        Some(at)
    }

    pub(crate) fn overwrite(&mut self, at: u32, bytes: &[u8]) {
        let target = self.bytes_mut(at as usize, bytes.len());
        if target.len() == bytes.len() {
            target.copy_from_slice(bytes);
        }
    }

    /// Copies what lies at `from` to `to`.
    pub(crate) fn copy_within(&mut self, from: u32, to: u32, length: usize) {
        let (from, to) = (from as usize, to as usize);
        if from.max(to).saturating_add(length) <= self.len {
            self.extent.bytes_mut().copy_within(from..from + length, to);
        }
    }

    /// Allocated bytes; empty if they are not wholly allocated.
    pub(crate) fn bytes_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        let allocated = self.extent.bytes_mut().get_mut(..self.len).unwrap_or_default();
        allocated.get_mut(at..).and_then(|rest| rest.get_mut(..length)).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn store<const N: usize>(&mut self, at: usize, value: [u8; N]) {
        write(self.extent.bytes_mut(), at, value);
    }

    /// Stores a slot's value and sets the field's bit in its presence word. Finding the extent's bytes costs more than
    /// writing them, where they lie in a heap, so it is done once.
    #[inline]
    pub(crate) fn store_present<const N: usize>(
        &mut self,
        slot: usize,
        value: [u8; N],
        word: usize,
        mask: u32,
    ) {
        let bytes = self.extent.bytes_mut();
        write(bytes, slot, value);
        let bits = read_u32(bytes, word) | mask;
        write(bytes, word, bits.to_le_bytes());
    }

    #[inline]
    pub(crate) fn store_pair(&mut self, at: usize, offset: u32, count: u32) {
        self.store(at, pair(offset, count));
    }

    #[inline]
    pub(crate) fn load_u32(&self, at: usize) -> u32 {
        read_u32(self.extent.bytes(), at)
    }

    #[inline]
    pub(crate) fn load_pair(&self, at: usize) -> (u32, u32) {
        read_pair(self.extent.bytes(), at)
    }

    /// Whether bytes from `at` on are the last that were allocated.
    pub(crate) fn is_last(&self, at: u32, length: usize) -> bool {
        at as usize + length == self.len
    }

    /// The room of the array whose `{offset, count}` is at `slot`: as it was noted, if that array is still the one
    /// there, else what its elements take up.
    pub(crate) fn room(&self, slot: usize) -> (Room, u32) {
        let (offset, count) = self.load_pair(slot);
        match self.roomy.get(&slot) {
            Some(room) if count == 0 || room.offset == offset => {
                (Room { offset: room.offset, capacity: room.capacity.max(count) }, count)
            }
            _ => (Room { offset, capacity: count }, count),
        }
    }

    pub(crate) fn note_room(&mut self, slot: usize, room: Room) {
        self.roomy.insert(slot, room);
    }

    fn fail(&mut self, error: BuildError) {
        self.error.get_or_insert(error);
    }

    /// Makes room up to `end`. An extent whose `grow` succeeds without growing is an error too: a write must never
    /// get lost silently.
    fn reserve(&mut self, end: usize) -> bool {
        if end <= self.extent.bytes().len().min(EXTENT_BYTES_MAX) {
            return true;
        }
        let refused = LimitError { wanted_bytes: end, limit_bytes: EXTENT_BYTES_MAX };
        let grown = if end > EXTENT_BYTES_MAX { Err(refused) } else { self.extent.grow(end) };
        let limit_bytes = self.extent.bytes().len();
        match grown {
            Ok(()) if end <= limit_bytes => return true,
            Ok(()) => self.fail(LimitError { limit_bytes, ..refused }.into()),
            Err(error) => self.fail(error.into()),
        }
        false
    }
}
