//! Unpacking messages a few at a time: what they become, and not what they came in, is what it costs.
//!
//! A message of some hundred bytes may become as large as a message may be, and one read of a connection brings
//! thousands. So after so many bytes the rest waits, in its streams and within their windows, until the other
//! connections and applications have had their turn: one stream of each connection in turn.

use crate::engine::{Engine, Turn};
use crate::{CallKey, GrpcKey};
use std::cell::Cell;
use std::collections::VecDeque;
use trunkline_grpc::StreamTag;
use trunkline_grpc::compress::Encoding;

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
}

impl Engine {
    /// Whether a stream has to wait with its next message, which then goes on in the next turn.
    pub(crate) fn unpacks_later(&mut self, key: CallKey, peer: GrpcKey, tag: StreamTag) -> bool {
        if !self.unpacking.is_spent() {
            return false;
        }
        let Some(found) = self.grpc_peers.find_mut(peer) else { return false };
        let Some(stream) = found.streams.get_mut(&tag) else { return false };
        let is_packed = stream.incoming.encoding != Encoding::Identity && stream.incoming.has_bytes();
        if !is_packed || stream.call != Some(key) {
            return false;
        }
        if !std::mem::replace(&mut stream.incoming.unpacks_later, true) {
            if found.unpacks.is_empty() {
                self.unpacking.waiting.push_back(peer);
            }
            found.unpacks.push_back(tag);
        }
        true
    }

    /// The others have had their turn: who waited goes on.
    pub(crate) fn unpack_on(&mut self, turn: &mut Turn<'_>) {
        if !self.unpacking.is_waited_for() {
            return;
        }
        self.unpacking.bytes.set(0);
        while !self.unpacking.is_spent()
            && let Some(peer) = self.unpacking.waiting.pop_front()
        {
            let Some(found) = self.grpc_peers.find_mut(peer) else { continue };
            let Some(tag) = found.unpacks.pop_front() else { continue };
            if !found.unpacks.is_empty() {
                self.unpacking.waiting.push_back(peer);
            }
            if let Some(stream) = found.streams.get_mut(&tag) {
                stream.incoming.unpacks_later = false;
                self.pump(turn, peer, tag);
            }
        }
    }
}
