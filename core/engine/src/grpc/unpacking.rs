//! Unpacking messages a few at a time: what it costs is what they become, or what they came in where that is more work.
//!
//! A message of some hundred bytes may become as large as a message may be, and one read of a connection brings
//! thousands. One that is made to be slow (empty members, empty blocks with tables of their own) becomes nothing, and
//! takes its decoder longer for each byte than any other. So after so many bytes the rest waits, in its streams and
//! within their windows, until the other connections and applications have had their turn: one stream of each
//! connection in turn.

use crate::GrpcKey;
use std::cell::Cell;
use std::collections::VecDeque;

/// Bytes unpacked before the others get their turn: a millisecond or a few, and one message above it. A message is
/// unpacked in one piece: one of 4 MiB that is made to be slow takes some tenths of a second.
const UNPACKED_BYTES_MAX: usize = 1 << 20;
/// A message counts as so many at least: a decoder is made for each.
const UNPACKED_BYTES_MIN: usize = 8 << 10;

/// What a byte that came counts at least. Honest messages become a few times what they came in.
const PACKED_BYTE_WEIGHT: usize = 16;

/// What has been unpacked, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Unpacking {
    /// Since the others last had their turn.
    bytes: Cell<usize>,
    /// Connections with a stream in `GrpcPeer::unpacks`. One that is gone is passed over.
    waiting: VecDeque<GrpcKey>,
}

impl Unpacking {
    /// A message of so many bytes has become so many.
    pub fn charge(&self, packed_bytes: usize, bytes: usize) {
        let cost = bytes.max(packed_bytes * PACKED_BYTE_WEIGHT).max(UNPACKED_BYTES_MIN);
        self.bytes.set(self.bytes.get() + cost);
    }

    /// Whether the rest is to wait.
    pub fn is_spent(&self) -> bool {
        self.bytes.get() >= UNPACKED_BYTES_MAX
    }

    /// Whether something waits for the next turn.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A connection has a stream that waits.
    pub fn wait(&mut self, peer: GrpcKey) {
        self.waiting.push_back(peer);
    }

    /// The others have had their turn.
    pub fn begin_turn(&mut self) {
        self.bytes.set(0);
    }

    /// The next connection that may go on in this turn.
    pub fn poll_waiting(&mut self) -> Option<GrpcKey> {
        if self.is_spent() { None } else { self.waiting.pop_front() }
    }
}
