//! A heap from the side that writes it: the application's send heap, the daemon's receive heap.
//!
//! Whoever writes a heap allocates in it. A [`Block`] is exclusive: until it is lent, nobody else looks at it, so it
//! hands out `&mut [u8]`. Lending turns it into a [`Span`] that travels in a ring entry; the other side reads it and
//! returns its offset, and only a block that was lent can be returned. So a confused or hostile other side can
//! return the wrong blocks of its own session, and the error names them, but it can never make two owners of one.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io;

use crate::allocator::{BlockAllocator, BlockState, FreeError, rounded};
use crate::config::SessionError;
use crate::fork::ForkGuard;
use crate::region::Region;

/// Where bytes lie in a heap: what a ring entry carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Bytes from the start of the heap.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// The heap has no free block that large: back-pressure, to be tried again when blocks were returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no free block of {wanted} bytes in a heap of {capacity} bytes, {in_use} of them in use")]
pub struct HeapFull {
    /// Bytes asked for.
    pub wanted: u32,
    /// Bytes in use by other blocks.
    pub in_use: u32,
    /// Bytes of the heap.
    pub capacity: u32,
}

/// The writing side of a heap. Cheap to clone; `Send` and `Sync`.
///
/// Behind it stands one mutex around private books. Uncontended it costs about ten nanoseconds, which buys that an
/// asynchronous task may build a message on one thread and drop it on another.
#[derive(Clone, Debug)]
pub struct Heap {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    region: Region,
    books: Mutex<BlockAllocator>,
}

impl Heap {
    /// A heap that is free.
    ///
    /// # Errors
    /// [`SessionError::System`]: there is no memory for its books.
    pub(crate) fn new(region: Region) -> Result<Heap, SessionError> {
        let books = BlockAllocator::new(bytes_of(&region)).ok_or(NO_BOOKS)?;
        Ok(Heap { shared: Arc::new(Shared { region, books: Mutex::new(books) }) })
    }

    /// A heap in which these blocks are taken.
    ///
    /// # Errors
    /// As [`Self::new`]; [`SessionError::Blocks`] if they cannot be.
    pub(crate) fn with_blocks(region: Region, blocks: &[BlockState]) -> Result<Heap, SessionError> {
        let books = BlockAllocator::empty(bytes_of(&region)).ok_or(NO_BOOKS)?;
        let books = books.with_blocks(blocks).ok_or(SessionError::Blocks)?;
        Ok(Heap { shared: Arc::new(Shared { region, books: Mutex::new(books) }) })
    }

    /// Every block that is not free, lowest first: for a successor.
    #[must_use]
    pub fn blocks(&self) -> Vec<BlockState> {
        self.books().blocks()
    }

    /// The handle of every block that is held and not lent, of a heap that was taken over: their writer goes on with
    /// them. To be called once, before anything is allocated.
    #[must_use]
    pub fn take_held(&self) -> Vec<Block> {
        let held = self.books().blocks().into_iter().filter(|block| !block.lent);
        held.map(|BlockState { offset, len, .. }| Block::new(&self.shared, offset, len)).collect()
    }

    /// A block of at least `len` bytes to write into. Its first contents are whatever the session wrote there last.
    ///
    /// # Errors
    /// [`HeapFull`].
    ///
    /// # Panics
    /// In a forked child of the process that opened the session: the memory is not there.
    pub fn allocate(&self, len: u32) -> Result<Block, HeapFull> {
        let mut books = self.books();
        let Some(offset) = books.allocate(len) else { return Err(full(&books, len)) };
        drop(books);
        Ok(Block::new(&self.shared, offset, rounded(len)))
    }

    /// The same, as long as no more than `in_use_max` bytes are in use then.
    ///
    /// # Errors
    /// [`HeapFull`].
    ///
    /// # Panics
    /// As [`Heap::allocate`].
    pub fn allocate_within(&self, len: u32, in_use_max: u32) -> Result<Block, HeapFull> {
        let mut books = self.books();
        let fits = books.bytes_in_use().checked_add(len).is_some_and(|in_use| in_use <= in_use_max);
        if !fits {
            return Err(full(&books, len));
        }
        let Some(offset) = books.allocate(len) else { return Err(full(&books, len)) };
        drop(books);
        Ok(Block::new(&self.shared, offset, rounded(len)))
    }

    /// Frees the lent block at `offset` because the other side returned it; tells its length in bytes.
    ///
    /// # Errors
    /// [`FreeError`]: the other side named a block it does not have.
    pub fn free(&self, offset: u32) -> Result<u32, FreeError> {
        self.books().free_lent(offset)
    }

    /// Takes a lent block back to write in it again, because its span was never sent.
    ///
    /// # Errors
    /// [`FreeError`] when no lent block begins there.
    pub fn take_back(&self, offset: u32) -> Result<Block, FreeError> {
        let capacity = self.books().take_back(offset)?;
        Ok(Block::new(&self.shared, offset, capacity))
    }

    /// Gives the pages above the highest block in use back to the kernel; tells how many bytes.
    ///
    /// For a moment of rest, not for the call path: a system call, and the next use of those pages faults them in.
    ///
    /// # Errors
    /// `EPERM` on a receive heap: its seals forbid holes, for the daemon too. Such a heap is replaced by a new one
    /// ([`crate::create_receive_heap`]).
    pub fn trim(&self) -> io::Result<usize> {
        let mut books = self.books();
        let (offset, len) = books.idle_top();
        let removed = self.shared.region.remove_pages(offset, len as usize)?;
        books.forget_idle_top();
        Ok(removed)
    }

    /// Length in bytes of the block at `offset`, if one begins there; what was left of it when it was lent.
    #[must_use]
    pub fn len_at(&self, offset: u32) -> Option<u32> {
        self.books().len_at(offset)
    }

    /// Bytes in blocks, held and lent.
    #[must_use]
    pub fn bytes_in_use(&self) -> u32 {
        self.books().bytes_in_use()
    }

    /// Bytes of the largest block that could be had now (see [`BlockAllocator::largest_free`]).
    #[must_use]
    pub fn largest_free(&self) -> u32 {
        self.books().largest_free()
    }

    /// Bytes of the heap.
    #[must_use]
    pub fn capacity_bytes(&self) -> u32 {
        self.books().capacity_bytes()
    }

    /// Upper bound of the bytes resident: the highest byte ever in use since the last [`Heap::trim`].
    #[must_use]
    pub fn touched_bytes(&self) -> u32 {
        self.books().touched_bytes()
    }

    fn books(&self) -> MutexGuard<'_, BlockAllocator> {
        self.shared.books()
    }
}

impl Shared {
    /// The books. A panic while they were locked is one of our own asserts; the books are whole between calls.
    fn books(&self) -> MutexGuard<'_, BlockAllocator> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A block of a heap, written by its one owner. Returned to the heap when dropped; `Send`.
#[derive(Debug)]
pub struct Block {
    shared: Arc<Shared>,
    offset: u32,
    capacity: u32,
    /// Start of the block's `capacity` bytes in the region that `shared` keeps mapped.
    base: NonNull<u8>,
    guard: ForkGuard,
}

// SAFETY: the block is the only owner of the bytes at `base`, and `shared` keeps them mapped on every thread.
unsafe impl Send for Block {}
// SAFETY: as above; through a shared reference the bytes are only read.
unsafe impl Sync for Block {}

impl Block {
    fn new(shared: &Arc<Shared>, offset: u32, capacity: u32) -> Block {
        let base = place_of(shared, offset, capacity);
        Block { shared: shared.clone(), offset, capacity, base, guard: shared.region.guard() }
    }

    /// Every byte of the block, [`Block::capacity`] of them. Aligned to 64.
    ///
    /// # Panics
    /// In a forked child of the process that opened the session: the memory is not there.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let base = self.base();
        // SAFETY: `base` is the start of `capacity` bytes of the region, which `shared` keeps mapped: `place_of` found
        // it, and `new` and `grow` set both together. The allocator gave this range to this block alone, so only
        // `bytes_mut` of the same block writes there; the other process reads at most.
        unsafe { std::slice::from_raw_parts(base, self.capacity as usize) }
    }

    /// Every byte of the block, to write.
    ///
    /// # Panics
    /// As [`Block::bytes`].
    #[inline]
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let base = self.base();
        // SAFETY: as in `bytes`; `&mut self` makes this the only slice, and the block was not lent yet, so that the
        // other process has no business reading it (if it does, it reads bytes in motion and harms itself).
        unsafe { std::slice::from_raw_parts_mut(base, self.capacity as usize) }
    }

    /// Makes the block at least `len` bytes long, in place if the heap has room above it, else by moving it.
    ///
    /// # Errors
    /// [`HeapFull`]; the block is unchanged.
    pub fn grow(&mut self, len: u32) -> Result<(), HeapFull> {
        if len <= self.capacity {
            return Ok(());
        }
        let mut books = self.shared.books();
        if books.grow(self.offset, len) {
            self.capacity = rounded(len);
            self.base = place_of(&self.shared, self.offset, self.capacity);
            return Ok(());
        }
        drop(books);
        let mut larger = Heap { shared: self.shared.clone() }.allocate(len)?;
        larger.bytes_mut()[..self.capacity as usize].copy_from_slice(self.bytes());
        *self = larger;
        Ok(())
    }

    /// Hands over the first `len` bytes: what the ring entry is to say. A large surplus goes back to the heap at
    /// once, the block itself when the other side returns it ([`Heap::free`]).
    ///
    /// # Panics
    /// When `len` is more than [`Block::capacity`]: a span must not cover memory of other blocks.
    #[must_use = "a lent block is lost until the other side returns it"]
    pub fn lend(self, len: u32) -> Span {
        assert!(len <= self.capacity, "lending {len} bytes of a block of {}", self.capacity);
        let span = Span { offset: self.offset, len };
        let lent = self.shared.books().lend(self.offset, len);
        debug_assert!(lent.is_ok(), "a Block's offset is in the books until it is dropped");
        self.forget();
        span
    }

    /// Bytes from the start of the heap.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// Bytes that can be written; a multiple of 64, at least what was asked for.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline]
    fn base(&self) -> *mut u8 {
        assert!(!self.guard.is_foreign(), "a block is used only by the process that opened the session");
        self.base.as_ptr()
    }

    /// Drops the handle without returning the block.
    fn forget(mut self) {
        self.capacity = 0;
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A lent block has no handle to return; in a forked child the books are a copy whose lock may be held for
        // ever by a thread that was not forked.
        if self.capacity == 0 || self.guard.is_foreign() {
            return;
        }
        let freed = self.shared.books().free(self.offset);
        debug_assert!(freed.is_ok(), "a Block's offset is in the books until it is dropped");
    }
}

const NO_BOOKS: SessionError =
    SessionError::System { what: "memory for the books of a heap", errno: io::Errno::NOMEM };

fn bytes_of(region: &Region) -> u32 {
    u32::try_from(region.bytes()).unwrap_or(u32::MAX)
}

/// Where a block lies in this process.
fn place_of(shared: &Shared, offset: u32, capacity: u32) -> NonNull<u8> {
    let range = shared.region.range(offset, capacity as usize);
    range.expect("a block lies in its heap, and is made by the process that opened the session")
}

#[cold]
fn full(books: &BlockAllocator, wanted: u32) -> HeapFull {
    HeapFull { wanted, in_use: books.bytes_in_use(), capacity: books.capacity_bytes() }
}
