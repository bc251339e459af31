//! A ring of places: equal keys meet at the same endpoint, and when one leaves only its own keys move (gRFC A42).

/// Most places on a ring, at 16 bytes each: who asks for more gets so many (gRFC A42 lets implementations do that).
pub const RING_MAX: u32 = 64 << 10;
/// FNV-1a (Fowler, Noll, Vo), 64 bits: short, and the same on every host.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Places in order, each with the index of its endpoint.
#[derive(Debug, Default)]
pub(crate) struct Ring(Vec<(u64, u32)>);

impl Ring {
    /// A ring of at least `min` places and at most `max`, as many for each endpoint.
    pub fn new<'l>(labels: impl ExactSizeIterator<Item = &'l str>, min: u32, max: u32) -> Self {
        let count = labels.len().max(1) as u32;
        let each = min.div_ceil(count).min(max / count).max(1);
        let mut places = Vec::with_capacity((each * count) as usize);
        for (index, label) in labels.enumerate() {
            let begun = fnv(FNV_BASIS, label.as_bytes());
            places.extend((0..each).map(|place| (mix(fnv(begun, &place.to_be_bytes())), index as u32)));
        }
        places.sort_unstable();
        Self(places)
    }

    /// Endpoints from the key's place on, once around. One may come more than once.
    pub fn walk(&self, key: u64) -> impl Iterator<Item = usize> {
        let start = self.0.partition_point(|(place, _)| *place < key);
        let (before, behind) = self.0.split_at(start);
        behind.iter().chain(before).map(|(_, index)| *index as usize)
    }
}

/// The key of a value.
pub fn key_of(value: &[u8]) -> u64 {
    mix(fnv(FNV_BASIS, value))
}

fn fnv(begun: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(begun, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// FNV leaves its high bits, by which places are ordered, close together for short values.
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}
