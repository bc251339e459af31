//! Which clock a peer reads.

use crate::clock::{ClockOffset, ClockPair, Wires};
use crate::index::PeerIndex;

/// What is known of a peer's clock.
#[derive(Debug)]
pub(crate) enum PeerClock {
    /// It is this host's.
    Same,
    Estimated(Box<ClockPair>),
}

impl PeerClock {
    /// The offset of a peer's clock when a call ended, the call itself included; and half the width of what is known of
    /// it, if that is not known exactly.
    #[inline]
    pub fn look(clocks: &mut [Self], peer: PeerIndex, wires: &Wires, half_width_ns: &mut u64) -> ClockOffset {
        match clocks.get_mut(peer.0 as usize) {
            Some(Self::Estimated(pair)) => {
                pair.observe_wires(wires);
                let offset = pair.offset(wires.received.0);
                *half_width_ns = offset.half_width_ns;
                offset
            }
            Some(Self::Same) | None => ClockOffset::SAME,
        }
    }
}
