//! What has come from the connection and was not looked at.

use std::io;
use trunkline_control::{FRAME_BODY_BYTES_MAX, FRAME_HEADER_BYTES, LinkFrame, LinkFrameError};
use trunkline_net::{Stream, Transfer};

/// Two of the longest frames: one may be half here.
const INPUT_BYTES: usize = 2 * (FRAME_HEADER_BYTES + FRAME_BODY_BYTES_MAX);

/// Bytes read ahead of frames.
#[derive(Debug)]
pub(crate) struct LinkInput {
    bytes: Box<[u8]>,
    taken: usize,
    filled: usize,
}

impl LinkInput {
    pub fn new() -> Self {
        Self { bytes: vec![0; INPUT_BYTES].into(), taken: 0, filled: 0 }
    }

    /// Reads what fits. `None`: nothing is there now.
    ///
    /// # Errors
    /// What the connection says; `UnexpectedEof` at its end.
    pub fn fill(&mut self, stream: &mut Stream) -> io::Result<Option<usize>> {
        if self.taken > 0 {
            self.bytes.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
        match stream.read(&mut self.bytes[self.filled..])? {
            Transfer::Bytes(bytes) => {
                self.filled += bytes;
                Ok(Some(bytes))
            }
            Transfer::NotReady => Ok(None),
            Transfer::Ended => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The next frame; `None` while it is not whole.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn next(&mut self) -> Result<Option<LinkFrame<'_>>, LinkFrameError> {
        let Some((frame, bytes)) = LinkFrame::parse(&self.bytes[self.taken..self.filled])? else {
            return Ok(None);
        };
        self.taken += bytes;
        Ok(Some(frame))
    }
}
