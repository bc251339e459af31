//! What waits for the connection.

use crate::error::LinkError;
use std::io::{self, IoSlice};
use trunkline_control::LinkFrame;
use trunkline_net::{Stream, Transfer};

/// Bytes that wait for the connection before entries stay in their ring. A control packet and its descriptor set may
/// come on top.
pub const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// The same, with answers to what the other side asks: who asks on and takes none of them is no application.
const ANSWERS_BYTES_MAX: usize = 4 * OUTPUT_BYTES_MAX;

/// Frames on their way out.
#[derive(Debug, Default)]
pub(crate) struct LinkOutput {
    bytes: Vec<u8>,
    written: usize,
}

impl LinkOutput {
    pub fn push(&mut self, frame: &LinkFrame<'_>) {
        frame.encode(&mut self.bytes);
    }

    /// What is not written yet.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.get(self.written..).unwrap_or_default().to_vec()
    }

    /// Whether entries may be put behind what waits.
    pub fn has_room(&self) -> bool {
        self.bytes.len() - self.written < OUTPUT_BYTES_MAX
    }

    /// For who asks: there is room for an answer.
    ///
    /// # Errors
    /// It has not taken those before.
    pub fn may_answer(&self) -> Result<(), LinkError> {
        let bytes = self.bytes.len() - self.written;
        if bytes < ANSWERS_BYTES_MAX { Ok(()) } else { Err(LinkError::Unread { bytes }) }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.len() == self.written
    }

    /// Writes as much as the connection takes. Whether it took any.
    pub fn flush(&mut self, stream: &mut Stream) -> io::Result<bool> {
        let mut any = false;
        while !self.is_empty() {
            match stream.write_vectored(&[IoSlice::new(&self.bytes[self.written..])])? {
                Transfer::Bytes(bytes) => {
                    self.written += bytes;
                    any = true;
                }
                Transfer::NotReady => break,
                Transfer::Ended => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
        if self.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(OUTPUT_BYTES_MAX);
            self.written = 0;
        } else if self.written >= OUTPUT_BYTES_MAX {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        Ok(any | (stream.wants_write() && stream.flush()?))
    }
}
