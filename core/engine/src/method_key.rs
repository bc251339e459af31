//! The names of methods within an engine.

/// Names a path for as long as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct MethodKey(u64);

impl MethodKey {
    /// Names nothing.
    pub(crate) const NOTHING: Self = Self(u64::MAX);

    /// As a number, whose lower half is the slot.
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    /// The key this number is; it may name nothing.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl MethodKey {
    pub(crate) fn new(slot: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot))
    }

    pub(crate) fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}
