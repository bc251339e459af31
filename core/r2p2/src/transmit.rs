//! A datagram on its way out.

use crate::extension::Head;
use bytes::Bytes;
use core::net::SocketAddrV4;

/// A datagram to send: two pieces, so that nothing is copied to put the head before the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddrV4,
    /// Header and extension.
    pub head: Head,
    /// Payload.
    pub body: Bytes,
}

impl Transmit {
    /// The datagram in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        [self.head.as_slice(), &self.body].concat()
    }

    /// Its length.
    pub fn len(&self) -> usize {
        self.head.as_slice().len() + self.body.len()
    }

    /// Never: a datagram has a header.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Spreads a seed over all bits (the finalizer of splitmix64).
pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
