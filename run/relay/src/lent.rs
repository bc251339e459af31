//! The blocks an application has been handed and not given back: nothing is written there.
//!
//! The library reads a received message in place. Beside a daemon, that one's allocator keeps its hands off; what comes
//! over the network is held to the same here.

use std::collections::BTreeMap;
use trunkline_call::entry::Span;
use trunkline_shm::{first_byte, heap_number};

/// Blocks by the place of their first byte, of one heap. Bounded by the heap: each has a granule at least.
#[derive(Debug, Default)]
pub(crate) struct LentBlocks {
    blocks: BTreeMap<u32, u32>,
}

impl LentBlocks {
    /// A block is handed over. `false`: it lies on one that was.
    pub fn lend(&mut self, block: Span) -> bool {
        let first = first_byte(block.offset);
        if block.len == 0 {
            return true;
        }
        let is_free = self.is_free(first, block.len);
        self.blocks.insert(first, block.len);
        is_free
    }

    /// A block is given back.
    pub fn give_back(&mut self, offset: u32) {
        self.blocks.remove(&first_byte(offset));
    }

    /// Whether nobody holds any of these bytes.
    pub fn is_free(&self, first: u32, len: u32) -> bool {
        let end = first.saturating_add(len);
        let before = self.blocks.range(..end).next_back();
        before.is_none_or(|(at, held)| at.saturating_add(*held) <= first)
    }
}

/// The number of the heap a span is in, and its first byte there.
pub(crate) fn place_of(span: Span) -> (u32, u32) {
    (heap_number(span.offset), first_byte(span.offset))
}

#[cfg(test)]
mod tests {
    //! Shows which bytes are held.
    use super::*;

    #[test]
    fn nothing_is_written_where_a_block_is_held() {
        let mut lent = LentBlocks::default();
        assert!(lent.lend(Span { offset: 128, len: 100 }) && lent.lend(Span { offset: 256 + 3, len: 1 }));
        for (first, len, is_free) in [
            (0, 128, true),
            (0, 129, false),
            (227, 1, false),
            (228, 28, true),
            (228, 29, false),
            (257, 9, true),
        ] {
            assert_eq!(lent.is_free(first, len), is_free, "{len} bytes from {first}");
        }
        assert!(!lent.lend(Span { offset: 192, len: 64 }), "a block on another");
        lent.give_back(192);
        lent.give_back(128);
        lent.give_back(256 + 3);
        assert!(lent.is_free(0, u32::MAX) && lent.blocks.is_empty());
    }
}
