//! Where a message is built: one stretch of memory that can grow.

use crate::EXTENT_BYTES_MAX;

/// A stretch of memory a message is built in: a heap buffer, or a block of a send heap.
///
/// The length of [`bytes`](Extent::bytes) is the *capacity*: how much may be written. How much of it is message is
/// its builder's to know. Content need not be zero; a builder zeroes what it hands out.
///
/// An implementation keeps the base 8-byte aligned. One that does not gets messages no check accepts.
pub trait Extent {
    /// All bytes up to the capacity.
    fn bytes(&self) -> &[u8];

    /// All bytes up to the capacity, to write to.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Raises the capacity to at least `min_len` bytes and keeps the content. May move the extent: nothing in a
    /// message depends on where it lies.
    ///
    /// # Errors
    /// [`LimitError`] if it cannot grow so far; the extent is unchanged.
    fn grow(&mut self, min_len: usize) -> Result<(), LimitError>;
}

impl<E: Extent + ?Sized> Extent for &mut E {
    fn bytes(&self) -> &[u8] {
        (**self).bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        (**self).bytes_mut()
    }

    fn grow(&mut self, min_len: usize) -> Result<(), LimitError> {
        (**self).grow(min_len)
    }
}

/// An extent that cannot grow so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {wanted_bytes} bytes or more exceeds the extent limit of {limit_bytes}")]
pub struct LimitError {
    /// What was needed.
    pub wanted_bytes: usize,
    /// What there may be at most.
    pub limit_bytes: usize,
}

/// An extent on the process's own heap, 8-byte aligned, reusable.
///
/// Reuse one for many messages: touching fresh memory costs more than the work done in it.
#[derive(Clone, Debug)]
pub struct AlignedBuf {
    words: Vec<u64>,
    bytes_max: usize,
}

impl AlignedBuf {
    /// An empty extent that may grow to [`EXTENT_BYTES_MAX`].
    pub const fn new() -> Self {
        Self { words: Vec::new(), bytes_max: EXTENT_BYTES_MAX }
    }

    /// An empty extent that may grow to `bytes_max`, rounded down to whole words.
    pub const fn with_limit(bytes_max: usize) -> Self {
        Self {
            words: Vec::new(),
            bytes_max: if bytes_max < EXTENT_BYTES_MAX { bytes_max } else { EXTENT_BYTES_MAX },
        }
    }

    /// An aligned copy of bytes from anywhere; its capacity is the copy's length rounded up to whole words.
    ///
    /// # Errors
    /// [`LimitError`] if there are more than [`EXTENT_BYTES_MAX`] of them.
    pub fn copied(bytes: &[u8]) -> Result<Self, LimitError> {
        let mut buf = Self::new();
        buf.grow(bytes.len())?;
        if let Some(target) = buf.bytes_mut().get_mut(..bytes.len()) {
            target.copy_from_slice(bytes);
        }
        Ok(buf)
    }
}

impl Default for AlignedBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl Extent for AlignedBuf {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.words)
    }

    /// Grows at least to double the capacity, so that growing step by step costs linear time.
    fn grow(&mut self, min_len: usize) -> Result<(), LimitError> {
        let words_max = self.bytes_max / 8;
        let words = min_len.div_ceil(8);
        if words > words_max {
            return Err(LimitError { wanted_bytes: min_len, limit_bytes: self.bytes_max });
        }
        if words > self.words.len() {
            self.words.resize(words.max(2 * self.words.len()).min(words_max), 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Shows alignment, growth that keeps the content, and the limit.
    use super::*;

    #[test]
    fn grows_aligned_to_its_limit() {
        let mut buf = AlignedBuf::with_limit(100);
        buf.grow(10).unwrap();
        buf.bytes_mut()[..3].copy_from_slice(b"abc");
        buf.grow(80).unwrap();
        assert_eq!(&buf.bytes()[..4], b"abc\0");
        assert_eq!(buf.bytes().as_ptr() as usize % 8, 0);
        let refused = LimitError { wanted_bytes: 97, limit_bytes: 100 };
        assert_eq!(buf.grow(97), Err(refused));
        assert_eq!(buf.bytes().len(), 80, "a refused growth changes nothing");
    }
}
