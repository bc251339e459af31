//! Hash tables that are fast, and keyed: names of requests are drawn by whoever sends them.

use core::hash::BuildHasher;
use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use std::collections::HashMap;

/// Hashes with keys that follow from a seed nobody outside knows. Both are drawn from it: with a known second one
/// (the library's own is fixed, or drawn where no host can say from what) collisions could be made without the first.
#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    first: u64,
    others: SharedSeed,
}

pub(crate) type KeyedMap<K, V> = HashMap<K, V, Keyed>;

impl Keyed {
    pub fn new(seed: u64) -> Self {
        Self { first: crate::mix(seed), others: SharedSeed::from_u64(crate::mix(!seed)) }
    }
}

impl BuildHasher for Keyed {
    type Hasher = FoldHasher;

    fn build_hasher(&self) -> FoldHasher {
        FoldHasher::with_seed(self.first, &self.others)
    }
}
