//! Hash tables that are fast, and keyed: names of requests are drawn by whoever sends them.

use core::hash::BuildHasher;
use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use std::collections::{HashMap, HashSet};
use std::hash::RandomState;

/// Hashes with keys that follow from a seed nobody outside knows. Both are drawn from it: with a known second one
/// (the library's own is fixed, or drawn where no host can say from what) collisions could be made without the first.
#[derive(Clone, Debug)]
pub struct Keyed {
    first: u64,
    others: SharedSeed,
}

/// A map with such keys.
pub type KeyedMap<K, V> = HashMap<K, V, Keyed>;

pub(crate) type KeyedSet<T> = HashSet<T, Keyed>;

impl Keyed {
    /// Keys that follow from a seed.
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

impl Default for Keyed {
    /// Keys drawn as the standard library draws its own.
    fn default() -> Self {
        Self::new(RandomState::new().hash_one(0_u64))
    }
}
