//! How a server begins to speak: where something else than HTTP/2 answers, people are told what.

use trunkline_call::Instant;

/// Enough to tell protocols apart.
const OPENING_BYTES: usize = 8;
/// The last type of frame that a server of HTTP/2 may begin with (RFC 9113: SETTINGS; all are taken).
const FRAME_TYPE_MAX: u8 = 9;

/// The first bytes heard on a connection.
pub(super) struct FirstHeard {
    bytes: [u8; OPENING_BYTES],
    filled: usize,
    began: Instant,
}

impl FirstHeard {
    pub fn new(began: Instant) -> Self {
        Self { bytes: [0; OPENING_BYTES], filled: 0, began }
    }

    pub fn hear(&mut self, bytes: &[u8]) {
        let taken = bytes.len().min(OPENING_BYTES - self.filled);
        self.bytes[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
    }

    /// What is wrong with it, if it is not HTTP/2 or nothing has come at all.
    pub fn why(&self, now: Instant) -> Option<String> {
        let heard = &self.bytes[..self.filled];
        let what = match heard {
            [] => {
                let seconds = now.since_ns(self.began) / 1_000_000_000;
                return Some(format!("it accepted the connection and said nothing for {seconds} s"));
            }
            // A frame shorter than 64 KiB.
            [0, ..] if heard.get(3).is_none_or(|kind| *kind <= FRAME_TYPE_MAX) => return None,
            [b'H', b'T', b'T', b'P', b'/', b'1', ..] => "HTTP/1",
            [b'S', b'S', b'H', b'-', ..] => "SSH",
            // An alert or a handshake of any version.
            [0x15 | 0x16, 3, ..] => "TLS",
            _ => "something else",
        };
        Some(format!("it answers {what}, not gRPC or Trunkline: is the port right?"))
    }
}
