//! A stream's lingering close: what is unsent is sent, then the peer gets time to read it.
//!
//! A socket that is closed while bytes wait to be read answers with a reset, and a reset takes what the peer has not
//! read with it: a GOAWAY or an HTTP answer would be lost. So our side ends first, and what still comes is thrown away
//! until the peer ends, too, or a limit of time or bytes is reached.

use crate::{Buffers, Interest, Stream, Transfer};
use std::io::IoSlice;
use trunkline_call::Instant;

/// Time for the peer to read and to end.
const LINGER_NS_MAX: u64 = 1_000_000_000;
/// Bytes thrown away at most.
const DISCARDED_BYTES_MAX: usize = 1 << 20;

/// A stream that is about to be closed.
pub struct LingeringClose {
    stream: Stream,
    unsent: Vec<u8>,
    has_ended: bool,
    peer_ended: bool,
    discarded_bytes: usize,
    until: Instant,
}

impl LingeringClose {
    /// Sends `unsent` and closes.
    pub fn new(stream: Stream, unsent: Vec<u8>, now: Instant) -> Self {
        let until = now.plus_ns(LINGER_NS_MAX);
        Self { stream, unsent, has_ended: false, peer_ended: false, discarded_bytes: 0, until }
    }

    /// Goes on as far as the socket lets it, also when its time is over: whoever calls may have been away. `true` when
    /// the stream may be dropped.
    pub fn turn(&mut self, now: Instant, buffers: &mut Buffers) -> bool {
        let is_done = self.send().and_then(|()| self.discard(buffers)).unwrap_or(true);
        is_done || now >= self.until
    }

    /// What to wait for at the poller.
    pub fn interest(&self) -> Interest {
        match (self.has_ended, self.peer_ended) {
            (true, _) => Interest::Read,
            (false, false) => Interest::ReadWrite,
            (false, true) => Interest::Write,
        }
    }

    /// When it is over, come what may.
    pub fn next_timeout(&self) -> Instant {
        self.until
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    fn send(&mut self) -> std::io::Result<()> {
        self.stream.flush()?;
        let mut sent = 0;
        while sent < self.unsent.len() {
            match self.stream.write_vectored(&[IoSlice::new(&self.unsent[sent..])])? {
                Transfer::Bytes(bytes) => sent += bytes,
                Transfer::NotReady | Transfer::Ended => break,
            }
        }
        self.unsent.drain(..sent);
        if self.unsent.is_empty() && !self.has_ended && !self.stream.wants_write() {
            self.has_ended = true;
            self.stream.end()?;
        }
        Ok(())
    }

    fn discard(&mut self, buffers: &mut Buffers) -> std::io::Result<bool> {
        while !self.peer_ended && self.discarded_bytes < DISCARDED_BYTES_MAX {
            match self.stream.read(&mut buffers.input)? {
                Transfer::Bytes(bytes) => self.discarded_bytes += bytes,
                Transfer::NotReady => return Ok(false),
                Transfer::Ended => self.peer_ended = true,
            }
        }
        Ok(self.has_ended || self.discarded_bytes >= DISCARDED_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that what is unsent is sent, and what lies unread is read, however late it is.
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn one_that_is_late_resets_nobody() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[0; 1000]).unwrap();
        let stream = Stream::inherit(ours.into(), false).unwrap();
        let mut closing = LingeringClose::new(stream, b"why".to_vec(), Instant(0));
        assert!(closing.turn(Instant(2 * LINGER_NS_MAX), &mut Buffers::new()));
        drop(closing);
        let mut said = String::new();
        theirs.read_to_string(&mut said).unwrap();
        assert_eq!(said, "why");
    }
}
