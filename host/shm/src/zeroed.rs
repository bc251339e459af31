//! Zeroed memory of the process that may be refused: `vec![0; n]` ends the process instead.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;

/// So many words that are zero, whose pages are there when they are touched; `None` if the kernel promises no more
/// memory (`vm.overcommit_memory=2`, `RLIMIT_AS`).
pub(crate) fn zeroed_words(count: usize) -> Option<Vec<u32>> {
    let layout = Layout::array::<u32>(count).ok()?;
    if layout.size() == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the layout has a size, as looked at above.
    let words = unsafe { alloc_zeroed(layout) };
    let words: NonNull<u32> = NonNull::new(words)?.cast();
    // SAFETY: the global allocator has just given out this memory, by the layout of `count` words, and it belongs to
    // nobody else; zeros are words.
    Some(unsafe { Vec::from_raw_parts(words.as_ptr(), count, count) })
}

#[cfg(test)]
mod tests {
    //! Shows that what cannot be had is said, and what can is zero.
    use super::*;

    #[test]
    fn what_cannot_be_had_is_said() {
        assert_eq!(zeroed_words(0), Some(Vec::new()));
        assert_eq!(zeroed_words(1000), Some(vec![0; 1000]));
        // More than there are addresses.
        assert_eq!(zeroed_words(usize::MAX / 16), None);
        assert_eq!(zeroed_words(usize::MAX), None);
    }
}
