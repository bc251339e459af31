//! Unpacking messages a few at a time: what they become, and not what they came in, is what it costs.
//!
//! A message of some hundred bytes may become as large as a message may be, and one read of a connection brings
//! thousands. So after so many bytes the rest waits, in its streams and within their windows, until the other
//! connections and applications have had their turn: one stream of each connection in turn.

use crate::GrpcKey;
use std::cell::Cell;
use std::collections::VecDeque;

/// Bytes unpacked before the others get their turn: a millisecond or a few, and one message above it.
const UNPACKED_BYTES_MAX: usize = 1 << 20;
/// A message counts as so many at least: a decoder is made for each.
const UNPACKED_BYTES_MIN: usize = 8 << 10;

/// What has been unpacked, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Unpacking {
    /// Since the others last had their turn.
    bytes: Cell<usize>,
    /// Connections with a stream in `GrpcPeer::unpacks`. One that is gone is passed over.
    waiting: VecDeque<GrpcKey>,
}

impl Unpacking {
    /// A message has become so many bytes.
    pub fn charge(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes.max(UNPACKED_BYTES_MIN));
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
