//! Bytes read from the socket, being taken apart.

/// The unread part of a read buffer. Events borrow from the buffer, so they outlive this and the connection's borrow.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

/// Smallest read buffer: the longest thing that must lie in one piece (header, blocks with the longest metadata, a body
/// that arrives whole) fits.
pub const INPUT_BYTES_MIN: usize = 64 << 10;

impl<'a> Input<'a> {
    /// What was read, led by what [`crate::Connection::resume`] put there.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether everything has been taken.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes left.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Takes up to `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }
}
