//! Maps by stream tag.

use crate::StreamTag;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by stream tag. Every message of a call asks it several times, and no peer has a say in tags, so that it needs
/// no hash that resists chosen keys.
pub type TagMap<T> = HashMap<StreamTag, T, BuildHasherDefault<TagHasher>>;

/// Spreads the bits of one number by a multiplication (Knuth, The Art of Computer Programming, 6.4).
#[derive(Clone, Copy, Debug, Default)]
pub struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // 2⁶⁴ divided by the golden ratio. The table takes its place from the low bits and seven more from the top, and
        // a product's low bits know nothing of its factors' high ones: so the halves are put together.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = (self.0 ^ number).wrapping_mul(GOLDEN);
        self.0 = product ^ (product >> 32);
    }
}

#[cfg(test)]
mod tests {
    //! Shows that tags as they come, of either side, are spread over the places of a table.
    use super::*;
    use std::collections::HashSet;
    use std::hash::{BuildHasher, BuildHasherDefault};

    fn places(tags: impl Iterator<Item = u64>) -> usize {
        let hasher = BuildHasherDefault::<TagHasher>::default();
        tags.map(|tag| hasher.hash_one(StreamTag(tag)) % 1024).collect::<HashSet<_>>().len()
    }

    #[test]
    fn tags_are_spread() {
        // 1024 numbers drawn at random would meet 647 places of 1024 in the mean.
        assert!(places((0..1024).map(|slot| 1 << 24 | slot)) > 600, "one use of many slots");
        assert!(places((0..1024).map(|uses| uses << 24 | 3)) > 600, "many uses of one slot");
        assert!(places((0..1024).map(|own| StreamTag::OWN | own)) > 600, "our own");
    }
}
