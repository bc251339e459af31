//! How fast a message of several packets goes on.

use serde::{Deserialize, Serialize};
use trunkline_call::Instant;

/// How far a message had come when that was last looked at.
///
/// A packet now and then keeps a message from being given up for silence. What holds memory meanwhile has to go on
/// faster than that.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Headway {
    /// When; the default until somebody looks.
    at: Instant,
    packets: u16,
}

/// Packets in the time of a stall that are enough. What the smallest window lets out in ten of the longest timeouts is
/// more: a network that loses most of what it is given gets as far.
const PACKETS_MIN: u16 = 32;

impl Headway {
    /// Of a message that begins now.
    pub fn since(now: Instant) -> Self {
        Self { at: now, packets: 0 }
    }

    /// When to look again, with so much time for a few packets; zero for as long as it takes.
    pub fn next_look(&self, stall_ns: u64) -> Option<Instant> {
        (stall_ns > 0).then(|| self.at.plus_ns(stall_ns))
    }

    /// Looks, if it is time to: whether too few packets have come since. `packets` are those so far.
    pub fn is_stalled(&mut self, now: Instant, packets: u16, stall_ns: u64) -> bool {
        if self.next_look(stall_ns).is_none_or(|look| look > now) {
            return false;
        }
        let is_known = self.at != Instant::default();
        let few = packets.saturating_sub(self.packets) < PACKETS_MIN;
        *self = Self { at: now, packets };
        is_known && few
    }
}
