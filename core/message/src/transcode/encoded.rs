//! A buffer for encoded messages that is kept from one to the next.

use super::emit::HEADROOM_BYTES;
use super::limits::WIRE_BYTES_MAX;

/// Protobuf bytes, written from the end of a buffer that is reused.
#[derive(Debug, Clone)]
pub struct Encoded {
    buffer: Vec<u8>,
    start: usize,
    bytes_max: usize,
}

impl Default for Encoded {
    fn default() -> Self {
        Self::over(Vec::new())
    }
}

impl Encoded {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The message last encoded.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// A buffer that takes over a vector's memory: as much of it as the vector is long.
    pub fn over(buffer: Vec<u8>) -> Self {
        Encoded { start: buffer.len(), buffer, bytes_max: WIRE_BYTES_MAX }
    }

    /// The same for messages of at most `bytes_max` bytes: one that is longer is
    /// [`EncodeError::Full`](crate::transcode::EncodeError::Full), and no room is made for it.
    #[must_use]
    pub fn within(self, bytes_max: usize) -> Self {
        Self { bytes_max: bytes_max.min(WIRE_BYTES_MAX), ..self }
    }

    /// Bytes of memory it has, whatever was encoded last.
    pub fn capacity_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Longest message.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Longest buffer: the longest message, and the room it is written with.
    pub(super) fn room_max(&self) -> usize {
        self.bytes_max + HEADROOM_BYTES
    }

    /// The message last encoded, at the start of a vector.
    pub(super) fn into_vec(mut self) -> Vec<u8> {
        let len = self.buffer.len() - self.start;
        self.buffer.copy_within(self.start.., 0);
        self.buffer.truncate(len);
        self.buffer
    }

    /// The vector, and where the message last encoded begins in it; it ends with the vector.
    pub fn into_parts(self) -> (Vec<u8>, usize) {
        (self.buffer, self.start)
    }

    /// The message last encoded, to be overwritten in place.
    pub(super) fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Makes the buffer at least `bytes` long; what it holds is lost.
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.buffer.len() < bytes {
            // A new allocation comes zeroed from the system, where growing would copy.
            self.buffer = vec![0; bytes];
        }
        self.start = self.buffer.len();
    }

    pub(super) fn set_start(&mut self, start: usize) {
        self.start = start;
    }
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
