//! Which clock a peer reads.

use crate::clock::{ClockOffset, ClockPair, Wires};

/// What is known of a peer's clock.
#[derive(Debug)]
pub(crate) enum PeerClock {
    /// It is this host's.
    Same,
    Estimated(Box<ClockPair>),
}

impl PeerClock {
    /// The offset when a call ended, the call itself included; and half the width of what is known of it.
    #[inline]
    pub fn look(&mut self, wires: &Wires) -> (ClockOffset, u64) {
        match self {
            Self::Estimated(pair) => {
                pair.observe_wires(wires);
                let offset = pair.offset(wires.received.0);
                (offset, offset.half_width_ns)
            }
            Self::Same => (ClockOffset::SAME, 0),
        }
    }
}
