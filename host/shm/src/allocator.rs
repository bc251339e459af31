//! The block allocator of a heap. Its books are private memory: the other process sees offsets and nothing else.
//!
//! Two-level segregated fit: free blocks stand in bins by size, eight bins to each power of two, and a bitmap names
//! the bins that are not empty. Allocation takes a block of the tightest bin that is sure to fit, so small holes at
//! low addresses go first and the large block at the top of the heap goes last; freeing joins a block with its free
//! neighbours. Both touch a constant number of words whatever the other process did with the blocks it held, which a
//! search through a list of holes could not promise.
//!
//! Rejected: buddies (half of a 1 MiB + 24 block wasted), trees by size and by address (exact best fit, 150 ns
//! where this takes 20).

use crate::zeroed::zeroed_words;

/// Blocks start at and are rounded to multiples of this: a cache line, so that two blocks never share one.
pub const GRANULE_BYTES: u32 = 64;

/// Sizes of one bin differ by at most an eighth; below eight granules each size has its own.
const BINS_PER_POWER: u32 = 8;

/// Enough for `HEAP_BYTES_MAX` (2^25 granules): `(25 - 2) * 8 + 8`.
const BINS: usize = 192;

/// Candidates looked at in a bin whose blocks may or may not fit, and places looked at to keep a bin in order.
/// Bounded because an application that holds on to blocks can make a bin as long as it likes.
const BIN_LOOKS_MAX: usize = 8;

/// Surplus of a block worth the work of giving it back: 1 KiB.
const SURPLUS_GRANULES_MIN: u32 = 16;

/// "No node".
const NONE: u32 = u32::MAX;

/// Why a block could not be returned. The other side named it, so this is a fault of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreeError {
    /// No block begins there: never allocated, already returned, or not a block's first byte.
    #[error("no block begins at offset {offset}")]
    NoBlock {
        /// The offset named.
        offset: u32,
    },
    /// The block is still owned by its writer and was never handed over.
    #[error("the block at offset {offset} was not handed over")]
    NotLent {
        /// The offset named.
        offset: u32,
    },
}

/// A block that is not free, as it is told to a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockState {
    /// Its first byte.
    pub offset: u32,
    /// Its length in bytes, whole granules.
    pub len: u32,
    /// Handed over; otherwise still being written.
    pub lent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Being written by this side.
    Held,
    /// Handed over; only the other side's return frees it.
    Lent,
}

/// One block, free or not. `below` and `above` are its neighbours in the heap; the bin links are used while free.
#[derive(Clone, Copy, Debug)]
struct Node {
    start: u32,
    len: u32,
    below: u32,
    above: u32,
    bin_prev: u32,
    bin_next: u32,
    state: State,
}

/// Allocates blocks of a heap of at most `HEAP_BYTES_MAX` bytes. Offsets and lengths are in bytes outside, in
/// granules inside.
#[derive(Debug)]
pub struct BlockAllocator {
    nodes: Vec<Node>,
    /// Unused entries of `nodes`, linked by `bin_next`.
    spare: u32,
    /// For each granule, one more than the node of the block that begins there. Zero pages until touched.
    node_at: Vec<u32>,
    /// The node of the highest block.
    top: u32,
    bins: [u32; BINS],
    filled: [u64; BINS / 64],
    granules: u32,
    used: u32,
    /// The highest granule ever in use since the last `forget_idle_top`, exclusive.
    touched: u32,
}

impl BlockAllocator {
    /// Books for a heap of `heap_bytes`, rounded down to whole granules; all of it free. `None` if there is no memory
    /// for them: they take a sixteenth of the heap, of addresses at first.
    #[must_use]
    pub fn new(heap_bytes: u32) -> Option<BlockAllocator> {
        let mut books = BlockAllocator::empty(heap_bytes)?;
        books.append(0, books.granules, State::Free);
        Some(books)
    }

    /// Every block that is not free, lowest first.
    #[must_use]
    pub fn blocks(&self) -> Vec<BlockState> {
        let taken = self.nodes.iter().enumerate().filter(|(index, node)| {
            // Spare nodes stand in no granule's place.
            self.node_at.get(node.start as usize) == Some(&(*index as u32 + 1)) && node.state != State::Free
        });
        let state = |node: &Node| BlockState {
            offset: node.start * GRANULE_BYTES,
            len: node.len * GRANULE_BYTES,
            lent: node.state == State::Lent,
        };
        let mut blocks: Vec<BlockState> = taken.map(|(_, node)| state(node)).collect();
        blocks.sort_unstable_by_key(|block| block.offset);
        blocks
    }

    /// [Empty](Self::empty) books with these blocks taken and everything else free; `None` if they overlap, are not in
    /// order, or do not lie in the heap.
    #[must_use]
    pub(crate) fn with_blocks(mut self, blocks: &[BlockState]) -> Option<BlockAllocator> {
        let books = &mut self;
        let mut at = 0;
        for block in blocks {
            let whole = block.offset.is_multiple_of(GRANULE_BYTES) && block.len.is_multiple_of(GRANULE_BYTES);
            let (start, len) = (block.offset / GRANULE_BYTES, block.len / GRANULE_BYTES);
            let end = start.checked_add(len).filter(|end| whole && len > 0 && *end <= books.granules)?;
            books.append(at, start.checked_sub(at)?, State::Free);
            books.append(start, len, if block.lent { State::Lent } else { State::Held });
            books.used += len;
            (books.touched, at) = (end, end);
        }
        books.append(at, books.granules - at, State::Free);
        Some(self)
    }

    /// Offset of a block of at least `len` bytes (at least one granule), or `None` when none is found.
    ///
    /// Finds one whenever a free block is an eighth larger than `len`, and nearly always when one is just as large.
    pub fn allocate(&mut self, len: u32) -> Option<u32> {
        let wanted = granules_of(len)?;
        let node = self.find(wanted)?;
        self.take_from_bin(node);
        self.split(node, wanted);
        let block = &mut self.nodes[node as usize];
        block.state = State::Held;
        self.used += wanted;
        self.touched = self.touched.max(block.start + wanted);
        Some(block.start * GRANULE_BYTES)
    }

    /// Returns the block at `offset`, whoever holds it, and tells its length in bytes.
    ///
    /// # Errors
    /// [`FreeError::NoBlock`].
    pub fn free(&mut self, offset: u32) -> Result<u32, FreeError> {
        let node = self.allocated(offset)?;
        Ok(self.free_node(node))
    }

    /// Returns the block at `offset` on behalf of the other side: only one that was lent to it.
    ///
    /// # Errors
    /// [`FreeError::NoBlock`], [`FreeError::NotLent`].
    pub fn free_lent(&mut self, offset: u32) -> Result<u32, FreeError> {
        let node = self.allocated(offset)?;
        if self.nodes[node as usize].state != State::Lent {
            return Err(FreeError::NotLent { offset });
        }
        Ok(self.free_node(node))
    }

    /// Marks the block at `offset` as handed over; what lies far beyond `len` bytes goes back to the heap.
    ///
    /// # Errors
    /// [`FreeError::NoBlock`].
    pub fn lend(&mut self, offset: u32, len: u32) -> Result<(), FreeError> {
        let node = self.allocated(offset)?;
        self.nodes[node as usize].state = State::Lent;
        let wanted = granules_of(len).unwrap_or(u32::MAX);
        let surplus = self.nodes[node as usize].len.saturating_sub(wanted);
        if surplus >= SURPLUS_GRANULES_MIN {
            self.used -= surplus;
            self.split(node, wanted);
        }
        Ok(())
    }

    /// Takes a lent block back as ours, and tells its length in bytes: a submission that did not happen.
    ///
    /// # Errors
    /// [`FreeError::NoBlock`], [`FreeError::NotLent`].
    pub fn take_back(&mut self, offset: u32) -> Result<u32, FreeError> {
        let node = self.allocated(offset)?;
        let node = &mut self.nodes[node as usize];
        if node.state != State::Lent {
            return Err(FreeError::NotLent { offset });
        }
        node.state = State::Held;
        Ok(node.len * GRANULE_BYTES)
    }

    /// Makes the block at `offset` at least `new_len` bytes long where it lies. `false`: no room above it, or no
    /// such block.
    pub fn grow(&mut self, offset: u32, new_len: u32) -> bool {
        let (Ok(node), Some(wanted)) = (self.allocated(offset), granules_of(new_len)) else { return false };
        let Node { start, len, above, .. } = self.nodes[node as usize];
        if wanted <= len {
            return true;
        }
        if above == NONE || !self.is_free(above) || len + self.nodes[above as usize].len < wanted {
            return false;
        }
        self.take_from_bin(above);
        self.absorb_above(node);
        self.split(node, wanted);
        self.used += wanted - len;
        self.touched = self.touched.max(start + wanted);
        true
    }

    /// Length in bytes of the block at `offset`, if one that is not free begins there.
    #[must_use]
    pub fn len_at(&self, offset: u32) -> Option<u32> {
        let node = self.allocated(offset).ok()?;
        Some(self.nodes[node as usize].len * GRANULE_BYTES)
    }

    /// Bytes in blocks that are not free.
    #[must_use]
    pub fn bytes_in_use(&self) -> u32 {
        self.used * GRANULE_BYTES
    }

    /// Bytes the heap can hold.
    #[must_use]
    pub fn capacity_bytes(&self) -> u32 {
        self.granules * GRANULE_BYTES
    }

    /// Length in bytes of the largest free block among the first eight of the highest bin: exact while
    /// there are no more, and never more than an eighth too little.
    #[must_use]
    pub fn largest_free(&self) -> u32 {
        let Some(bin) = self.last_filled() else { return 0 };
        let largest = self.in_bin(bin).take(BIN_LOOKS_MAX).map(|node| self.nodes[node as usize].len).max();
        largest.unwrap_or(0) * GRANULE_BYTES
    }

    /// The bytes above every block in use that were in use once: `(offset, len)`. Their pages may be given back.
    #[must_use]
    pub fn idle_top(&self) -> (u32, u32) {
        let top = self.top_free_start();
        (top * GRANULE_BYTES, self.touched.saturating_sub(top) * GRANULE_BYTES)
    }

    /// The pages of [`BlockAllocator::idle_top`] were given back: they count as never used.
    pub fn forget_idle_top(&mut self) {
        self.touched = self.touched.min(self.top_free_start());
    }

    /// The highest byte in use since the last [`BlockAllocator::forget_idle_top`], exclusive.
    #[must_use]
    pub fn touched_bytes(&self) -> u32 {
        self.touched * GRANULE_BYTES
    }

    /// Books without any block, not even a free one.
    pub(crate) fn empty(heap_bytes: u32) -> Option<BlockAllocator> {
        let granules = heap_bytes / GRANULE_BYTES;
        Some(BlockAllocator {
            nodes: Vec::new(),
            spare: NONE,
            node_at: zeroed_words(granules as usize)?,
            top: NONE,
            bins: [NONE; BINS],
            filled: [0; BINS / 64],
            granules,
            used: 0,
            touched: 0,
        })
    }

    /// Adds a block above all others; nothing if it has no length.
    fn append(&mut self, start: u32, len: u32, state: State) {
        if len == 0 {
            return;
        }
        let below = self.top;
        let node = self.new_node(start, len, below, NONE);
        if below != NONE {
            self.nodes[below as usize].above = node;
        }
        self.top = node;
        match state {
            State::Free => self.put_in_bin(node),
            taken => self.nodes[node as usize].state = taken,
        }
    }

    /// Where the free block at the top of the heap begins, or the end of the heap when the top is in use.
    fn top_free_start(&self) -> u32 {
        match self.nodes.get(self.top as usize) {
            Some(top) if top.state == State::Free => top.start,
            _ => self.granules,
        }
    }

    /// A free block of at least `wanted` granules.
    fn find(&self, wanted: u32) -> Option<u32> {
        if let Some(bin) = self.first_filled(sure_bin(wanted)) {
            return Some(self.bins[bin]);
        }
        let fits = |node: &u32| self.nodes[*node as usize].len >= wanted;
        self.in_bin(bin_of(wanted)).take(BIN_LOOKS_MAX).find(fits)
    }

    /// Leaves `wanted` granules in `node` and makes the rest a free block, joined with a free one above it.
    fn split(&mut self, node: u32, wanted: u32) {
        let Node { start, len, above, .. } = self.nodes[node as usize];
        if len == wanted {
            return;
        }
        let rest = self.new_node(start + wanted, len - wanted, node, above);
        self.nodes[node as usize].len = wanted;
        self.nodes[node as usize].above = rest;
        if above == NONE {
            self.top = rest;
        } else {
            self.nodes[above as usize].below = rest;
            if self.is_free(above) {
                self.take_from_bin(above);
                self.absorb_above(rest);
            }
        }
        self.put_in_bin(rest);
    }

    fn free_node(&mut self, node: u32) -> u32 {
        let Node { len, below, above, .. } = self.nodes[node as usize];
        self.used -= len;
        let mut joined = node;
        if above != NONE && self.is_free(above) {
            self.take_from_bin(above);
            self.absorb_above(node);
        }
        if below != NONE && self.is_free(below) {
            self.take_from_bin(below);
            self.absorb_above(below);
            joined = below;
        }
        self.put_in_bin(joined);
        len * GRANULE_BYTES
    }

    /// Joins `node` with the block above it, whose node becomes spare. Neither stands in a bin.
    fn absorb_above(&mut self, node: u32) {
        let absorbed = self.nodes[node as usize].above;
        let Node { start, len, above, .. } = self.nodes[absorbed as usize];
        self.nodes[node as usize].len += len;
        self.nodes[node as usize].above = above;
        if above == NONE {
            self.top = node;
        } else {
            self.nodes[above as usize].below = node;
        }
        self.node_at[start as usize] = 0;
        self.nodes[absorbed as usize].bin_next = self.spare;
        self.spare = absorbed;
    }

    fn new_node(&mut self, start: u32, len: u32, below: u32, above: u32) -> u32 {
        let node = Node { start, len, below, above, bin_prev: NONE, bin_next: NONE, state: State::Free };
        let index = if self.spare == NONE {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let index = self.spare;
            self.spare = self.nodes[index as usize].bin_next;
            self.nodes[index as usize] = node;
            index
        };
        self.node_at[start as usize] = index + 1;
        index
    }

    /// Puts a block into its bin, lower addresses first as far as a bounded look allows.
    fn put_in_bin(&mut self, node: u32) {
        let Node { start, len, .. } = self.nodes[node as usize];
        let bin = bin_of(len);
        let (mut prev, mut next) = (NONE, self.bins[bin]);
        for _ in 0..BIN_LOOKS_MAX {
            if next == NONE || self.nodes[next as usize].start > start {
                break;
            }
            (prev, next) = (next, self.nodes[next as usize].bin_next);
        }
        let entry = &mut self.nodes[node as usize];
        (entry.state, entry.bin_prev, entry.bin_next) = (State::Free, prev, next);
        self.link(bin, prev, node);
        if next != NONE {
            self.nodes[next as usize].bin_prev = node;
        }
        self.filled[bin / 64] |= 1 << (bin % 64);
    }

    fn take_from_bin(&mut self, node: u32) {
        let Node { len, bin_prev, bin_next, .. } = self.nodes[node as usize];
        let bin = bin_of(len);
        self.link(bin, bin_prev, bin_next);
        if bin_next != NONE {
            self.nodes[bin_next as usize].bin_prev = bin_prev;
        }
        if self.bins[bin] == NONE {
            self.filled[bin / 64] &= !(1 << (bin % 64));
        }
    }

    /// Makes `next` follow `prev`, or head the bin when there is no `prev`.
    fn link(&mut self, bin: usize, prev: u32, next: u32) {
        if prev == NONE {
            self.bins[bin] = next;
        } else {
            self.nodes[prev as usize].bin_next = next;
        }
    }

    fn in_bin(&self, bin: usize) -> impl Iterator<Item = u32> + '_ {
        let known = |node: u32| (node != NONE).then_some(node);
        std::iter::successors(known(self.bins[bin]), move |node| known(self.nodes[*node as usize].bin_next))
    }

    fn first_filled(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.filled.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    fn last_filled(&self) -> Option<usize> {
        let word = self.filled.iter().rposition(|bits| *bits != 0)?;
        Some(word * 64 + 63 - self.filled[word].leading_zeros() as usize)
    }

    /// The node of the block at `offset` if that is a block in use. The offset may come from the other side.
    fn allocated(&self, offset: u32) -> Result<u32, FreeError> {
        let none = FreeError::NoBlock { offset };
        if !offset.is_multiple_of(GRANULE_BYTES) {
            return Err(none);
        }
        let at = *self.node_at.get((offset / GRANULE_BYTES) as usize).ok_or(none)?;
        let node = at.checked_sub(1).ok_or(none)?;
        if self.is_free(node) { Err(none) } else { Ok(node) }
    }

    fn is_free(&self, node: u32) -> bool {
        self.nodes[node as usize].state == State::Free
    }
}

/// What [`BlockAllocator::allocate`] makes of `len`: whole granules, at least one. In bytes.
#[must_use]
pub(crate) fn rounded(len: u32) -> u32 {
    granules_of(len).map_or(u32::MAX, |granules| granules * GRANULE_BYTES)
}

/// Whole granules for `len` bytes, at least one. `None` when the rounding would not fit.
fn granules_of(len: u32) -> Option<u32> {
    Some(len.max(1).checked_next_multiple_of(GRANULE_BYTES)? / GRANULE_BYTES)
}

/// The bin a free block of `len` granules stands in.
fn bin_of(len: u32) -> usize {
    let power = len.ilog2();
    let bin =
        if power < 3 { len } else { (power - 2) * BINS_PER_POWER + ((len >> (power - 3)) % BINS_PER_POWER) };
    (bin as usize).min(BINS - 1)
}

/// The lowest bin whose every block has `wanted` granules.
fn sure_bin(wanted: u32) -> usize {
    let power = wanted.ilog2();
    if power < 3 { wanted as usize } else { bin_of(wanted.saturating_add((1 << (power - 3)) - 1)) }
}
