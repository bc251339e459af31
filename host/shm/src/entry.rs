//! One entry of a ring: eight words that mean nothing here.

/// Words of one ring entry: eight, so that an entry is one 64-byte cache line.
pub const ENTRY_WORDS: usize = 8;

/// One submission or completion, opaque here: `trunkline_call` gives the words their meaning.
pub type Entry = [u64; ENTRY_WORDS];
