//! What the engine asks of memory it does not own.

use crate::SessionKey;
use trunkline_call::entry::Span;

/// The heaps of all sessions, as the engine needs them. The host implements it over shared memory, tests over vectors.
///
/// Send heaps are written by applications at any time: nothing here ever lends out their bytes as a slice, it copies.
/// Receive heaps are written by the daemon alone.
pub trait Heaps {
    /// A block in the session's receive heap, 8-aligned, contents unspecified. `None` when there is no room.
    fn allocate(&mut self, session: SessionKey, bytes: u32) -> Option<u32>;

    /// The largest block the session's receive heap could ever hold.
    fn receive_capacity(&self, session: SessionKey) -> u32;

    /// Bytes that messages of the usual sizes may take of it yet. Heaps that do not count say that there are plenty.
    fn receive_free(&self, _session: SessionKey) -> u32 {
        u32::MAX
    }

    /// How much of that heap messages of the usual sizes may take together; larger ones have the rest.
    fn receive_usual(&self, session: SessionKey) -> u32 {
        self.receive_capacity(session)
    }

    /// Bytes in blocks that lie beyond that, because they are larger than half of it.
    fn receive_large(&self, _session: SessionKey) -> u32 {
        0
    }

    /// What an unpublished block is called that was allocated before these heaps were handed over.
    fn renamed(&self, _session: SessionKey, offset: u32) -> u32 {
        offset
    }

    /// Gives a block back that the application was never told of.
    fn discard(&mut self, session: SessionKey, offset: u32);

    /// The block is complete and about to be named in a completion: from here on the application may read and release
    /// it, and nobody writes it.
    fn publish(&mut self, session: SessionKey, span: Span);

    /// The application gives a published block back. `None` if there is no such block: it made that up.
    fn release(&mut self, session: SessionKey, offset: u32) -> Option<u32>;

    /// The bytes of a block that is not published yet. Empty if there is no such block.
    fn receive_block(&mut self, session: SessionKey, span: Span) -> &mut [u8];

    /// A block that is not published yet is written bit by bit: so many bytes from its beginning, and nothing behind
    /// them. Of others all may be written. Heaps that nobody takes over need not know.
    fn wrote(&mut self, _session: SessionKey, _offset: u32, _bytes: u32) {}

    /// Whether the range lies in the session's send heap.
    fn send_heap_contains(&self, session: SessionKey, span: Span) -> bool;

    /// Appends a private copy of a send-heap range. `false`, and nothing appended, if it is not in the heap.
    fn seal(&self, session: SessionKey, span: Span, out: &mut Vec<u8>) -> bool;

    /// Fills `out` with a private copy of a send-heap range of that length. `false` if it is not in the heap.
    fn seal_into(&self, session: SessionKey, span: Span, out: &mut [u8]) -> bool;

    /// Copies from one session's send heap into a receive block of another. `false` if either range is outside.
    fn copy_across(&mut self, from: SessionKey, span: Span, to: SessionKey, offset: u32) -> bool;
}
