//! Dice with a seed: what chance is asked for comes from the host, once.

/// A stream of numbers that follows from its seed (SplitMix64, Steele, Lea and Flood 2014): good enough to pick calls
/// by, and the same again in a test.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// True in so many of a hundred cases.
    pub fn happens(&mut self, percent: f64) -> bool {
        // 53 bits are what a double holds exactly.
        let uniform = (self.number() >> 11) as f64 / (1u64 << 53) as f64;
        uniform * 100.0 < percent
    }
}
