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
        let mut datagram = Vec::with_capacity(self.len());
        datagram.extend_from_slice(self.head.as_slice());
        datagram.extend_from_slice(&self.body);
        datagram
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
