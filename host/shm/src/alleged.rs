//! Alleged memory: the send heap from the daemon's side.
//!
//! Every byte is a claim by another process, which may change it at any moment. Rust's `&[u8]` promises that bytes
//! stand still, so none is ever made here. What there is: private copies, made with relaxed atomic loads, and
//! descriptions of ranges that only the kernel reads.

use std::io::IoSlice;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::heap::Span;
use crate::racing::copy_racing;
use crate::received::SpanError;
use crate::region::Region;

/// The daemon's view of a heap that an application writes. Cheap to clone; `Send` and `Sync`.
#[derive(Clone, Debug)]
pub struct AllegedHeap {
    region: Arc<Region>,
}

impl AllegedHeap {
    pub(crate) fn new(region: Region) -> AllegedHeap {
        AllegedHeap { region: Arc::new(region) }
    }

    /// Copies `into.len()` bytes from `offset`. The copy is private; the original may have changed meanwhile.
    ///
    /// # Errors
    /// [`SpanError`] when the bytes do not lie in the heap.
    pub fn copy_out(&self, offset: u32, into: &mut [u8]) -> Result<(), SpanError> {
        let from = self.range(offset, into.len())?;
        // SAFETY: `range` found `into.len()` bytes there; `self.region` keeps them mapped during the call.
        unsafe { copy_racing(from, into) };
        Ok(())
    }

    /// A private copy of `span`.
    ///
    /// The length is the application's claim: check it against the limit for messages before.
    ///
    /// # Errors
    /// [`SpanError`] when the bytes do not lie in the heap; nothing is allocated then.
    pub fn seal(&self, span: Span) -> Result<Vec<u8>, SpanError> {
        self.range(span.offset, span.len as usize)?;
        let mut copy = vec![0; span.len as usize];
        self.copy_out(span.offset, &mut copy)?;
        Ok(copy)
    }

    /// `span` as bytes for the kernel to read: nothing is copied in user space.
    ///
    /// # Errors
    /// [`SpanError`] when the bytes do not lie in the heap.
    pub fn gather(&self, span: Span) -> Result<SharedSlice, SpanError> {
        let base = self.range(span.offset, span.len as usize)?;
        Ok(SharedSlice { region: self.region.clone(), base, len: span.len as usize })
    }

    /// Bytes of the heap.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.region.bytes()
    }

    fn range(&self, offset: u32, len: usize) -> Result<NonNull<u8>, SpanError> {
        let out_of_bounds = || SpanError {
            offset,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            heap_bytes: self.region.bytes(),
        };
        self.region.range(offset, len).ok_or_else(out_of_bounds)
    }
}

/// A range of alleged memory, kept mapped, that only the kernel may read. `Send` and `Sync`.
#[derive(Clone, Debug)]
pub struct SharedSlice {
    region: Arc<Region>,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address, a length and the mapping they lie in; nothing is read through it but by the kernel.
unsafe impl Send for SharedSlice {}
// SAFETY: as above.
unsafe impl Sync for SharedSlice {}

impl SharedSlice {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the memory is still there: not in a forked child of the process that opened the session.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        !self.region.is_foreign()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part from `start`, at most `len` bytes of it; empty when `start` is beyond the end.
    #[must_use]
    pub fn part(&self, start: usize, len: usize) -> SharedSlice {
        let start = start.min(self.len);
        let len = len.min(self.len - start);
        // SAFETY: `start <= self.len`, so the address stays within the range or one past it.
        let base = unsafe { self.base.add(start) };
        SharedSlice { region: self.region.clone(), base, len }
    }

    /// The range as the kernel takes it.
    ///
    /// # Safety
    /// The result may only be passed to a system call. Dereferencing it would make a `&[u8]` to memory that another
    /// process changes, which is undefined behaviour.
    #[must_use]
    pub unsafe fn io_slice(&self) -> IoSlice<'_> {
        // SAFETY: the range is mapped for as long as `self` lives; the caller promises that nobody but the kernel
        // looks through the slice, so no reader in this program relies on the bytes standing still.
        let bytes = unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) };
        IoSlice::new(bytes)
    }
}
