//! The receive heap from the application's side: read-only, bounds-checked, returned when dropped.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use crate::allocator::GRANULE_BYTES;
use crate::heap::Span;
use crate::region::Region;
use crate::sync::{AtomicU32, Ordering};

/// The daemon named bytes that do not lie in the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} do not lie in a heap of {heap_bytes} bytes")]
pub struct SpanError {
    /// First byte named.
    pub offset: u32,
    /// Bytes named.
    pub len: u32,
    /// Bytes of the heap.
    pub heap_bytes: usize,
}

/// Receive heaps of a session have numbers below this: they stand in the low bits of an offset, which are zero in that
/// of a block.
pub const HEAP_NUMBERS: u32 = GRANULE_BYTES;

/// The heap an offset of a completion points into.
#[must_use]
pub fn heap_number(offset: u32) -> u32 {
    offset % HEAP_NUMBERS
}

/// The offset without the heap's number.
#[must_use]
pub fn first_byte(offset: u32) -> u32 {
    offset - heap_number(offset)
}

/// The application's read-only view of the heap the daemon writes. Cheap to clone; `Send` and `Sync`.
#[derive(Clone, Debug)]
pub struct ReceivedHeap {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    region: Region,
    /// Which of its session's heaps it is (docs/shared-memory.md, "A new receive heap").
    number: u32,
    /// Offsets of dropped blocks that the daemon has not been told of.
    returns: Mutex<Vec<u32>>,
    waiting: AtomicU32,
}

impl ReceivedHeap {
    pub(crate) fn new(region: Region, number: u32) -> ReceivedHeap {
        ReceivedHeap {
            shared: Arc::new(Shared {
                region,
                number,
                returns: Mutex::default(),
                waiting: AtomicU32::new(0),
            }),
        }
    }

    /// The block a completion names. Call it once per completion: each block returns its offset when dropped, and
    /// the daemon ends a session that returns a block twice.
    ///
    /// # Errors
    /// [`SpanError`] when the span does not lie in the heap (or this process is a forked child).
    pub fn block(&self, span: Span) -> Result<ReceivedBlock, SpanError> {
        let Span { offset, len } = span;
        let is_other = heap_number(offset) != self.shared.number;
        if is_other || self.shared.region.range(first_byte(offset), len as usize).is_none() {
            return Err(SpanError { offset, len, heap_bytes: self.shared.region.bytes() });
        }
        Ok(ReceivedBlock { shared: self.shared.clone(), span, given_up: false })
    }

    /// Which of its session's heaps it is: the blocks of this number lie here.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// Moves the offsets of blocks dropped since the last time to `out`, for the ring entries that return them.
    pub fn take_returns(&self, out: &mut Vec<u32>) {
        if !self.has_returns() {
            return;
        }
        let mut returns = self.shared.returns.lock().unwrap_or_else(PoisonError::into_inner);
        out.append(&mut returns);
        self.shared.waiting.store(0, Ordering::Relaxed);
    }

    /// Whether [`ReceivedHeap::take_returns`] would move anything. One load.
    #[inline]
    #[must_use]
    pub fn has_returns(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) != 0
    }

    /// Bytes of the heap.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.shared.region.bytes()
    }
}

/// Bytes of one completion in the receive heap. `Send` and `Sync`; its drop queues the offset for return.
///
/// A plain `&[u8]` although another process can write there: that process is the daemon, which every application
/// trusts with its calls anyway, and which writes a block again only after its return. No other process can
/// (`F_SEAL_FUTURE_WRITE`).
#[derive(Debug)]
pub struct ReceivedBlock {
    shared: Arc<Shared>,
    span: Span,
    given_up: bool,
}

impl ReceivedBlock {
    /// Where the bytes lie in the heap.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// Gives the block up without queueing its offset: the caller returns it in a ring entry of its own.
    #[must_use = "a block that is not returned is lost to the daemon until the session ends"]
    pub fn into_span(mut self) -> Span {
        let span = self.span;
        self.given_up = true;
        span
    }
}

impl Deref for ReceivedBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let Some(base) = self.shared.region.range(first_byte(self.span.offset), self.span.len as usize)
        else {
            return &[]; // in a forked child the memory is not there
        };
        // SAFETY: `range` checked the bounds. The daemon does not write the block until its offset is returned,
        // which needs the drop of this value; nobody else can write it.
        unsafe { std::slice::from_raw_parts(base.as_ptr(), self.span.len as usize) }
    }
}

impl Drop for ReceivedBlock {
    fn drop(&mut self) {
        if self.given_up || self.shared.region.is_foreign() {
            return;
        }
        let mut returns = self.shared.returns.lock().unwrap_or_else(PoisonError::into_inner);
        returns.push(self.span.offset);
        self.shared.waiting.store(returns.len() as u32, Ordering::Relaxed);
    }
}
