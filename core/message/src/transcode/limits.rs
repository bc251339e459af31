//! How much a message may be.

use crate::DEPTH_MAX;

/// Bytes of an encoded message: lengths in protobuf are 31 bits, and the longest tag with the longest varint has to fit
/// behind the last of them.
pub const WIRE_BYTES_MAX: usize = i32::MAX as usize - 16;
/// Bytes of a linear message: one word short of [`EXTENT_BYTES_MAX`](crate::EXTENT_BYTES_MAX), so that the sum of two
/// offsets is still an offset.
pub const LINEAR_BYTES_MAX: usize = crate::EXTENT_BYTES_MAX - 8;

/// Bytes of a linear message that are nobody's growth, unless somebody says otherwise: so many any message may have,
/// however short it was.
pub const GROWTH_FREE_BYTES: usize = 1 << 20;

/// What one decoding may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Bytes of the protobuf form.
    pub wire_bytes_max: usize,
    /// Bytes of the linear form. An empty message is two bytes on the wire and a whole block here, so this is what
    /// bounds memory.
    pub linear_bytes_max: usize,
    /// Bytes of the linear form for each byte of the protobuf form, beyond [`GROWTH_FREE_BYTES`]: what bounds the work
    /// that somebody has done who sends little.
    pub growth_max: u32,
    /// Bytes of the linear form that are nobody's growth, however short the protobuf form is.
    pub growth_free_bytes: usize,
    /// Messages and groups within one another, below the root; never more than [`DEPTH_MAX`].
    pub depth_max: u32,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self::UNBOUNDED
    }
}

impl DecodeLimits {
    /// What the two forms can be at all.
    pub const UNBOUNDED: Self = Self {
        wire_bytes_max: WIRE_BYTES_MAX,
        linear_bytes_max: LINEAR_BYTES_MAX,
        growth_max: u32::MAX,
        growth_free_bytes: GROWTH_FREE_BYTES,
        depth_max: DEPTH_MAX,
    };

    /// The same for protobuf that was made of a linear message of so many bytes, which its sender has had: another
    /// version of its type may take twice as many.
    #[must_use]
    pub fn of_linear(&self, linear_bytes: usize) -> Self {
        let had = linear_bytes.saturating_mul(2);
        Self { growth_free_bytes: self.growth_free_bytes.max(had), ..*self }
    }

    /// Bytes of the linear form of a message that has so many as protobuf, and whether it is its growth that bounds
    /// them.
    pub(super) fn linear_bytes(&self, wire_bytes: usize) -> (usize, bool) {
        let most = self.linear_bytes_max.min(LINEAR_BYTES_MAX);
        let grown =
            wire_bytes.saturating_mul(self.growth_max as usize).saturating_add(self.growth_free_bytes);
        (most.min(grown), grown < most)
    }
}
