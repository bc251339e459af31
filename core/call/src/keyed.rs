//! Hash tables that are fast, and keyed: many names are chosen by whoever sends them.
//!
//! One hash for every table that a call's way asks. The standard library's own took a third of a call over R2P2; what
//! nobody asks for every call may keep it.

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

/// A set with such keys.
pub type KeyedSet<T> = HashSet<T, Keyed>;

impl Keyed {
    /// Keys that follow from a seed.
    pub fn new(seed: u64) -> Self {
        Self { first: mix(seed), others: SharedSeed::from_u64(mix(!seed)) }
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

/// Spreads a seed over all bits (the finalizer of splitmix64).
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    //! Shows that keys follow from a seed, and that no two tables draw the same.
    use super::*;

    #[test]
    fn keys_follow_from_a_seed_or_are_drawn() {
        let hash = |keyed: Keyed| keyed.hash_one(7_u64);
        assert_eq!(hash(Keyed::new(1)), hash(Keyed::new(1)));
        assert_ne!(hash(Keyed::new(1)), hash(Keyed::new(2)));
        assert_ne!(hash(Keyed::default()), hash(Keyed::default()));
    }
}
