//! What the poller of a shard, and its timers, name.

use trunkline_engine::{GrpcKey, PeerKey, R2p2Port, SessionKey};

/// What a poller token names: the kind in the low bits, the key above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Waker,
    /// The poller of a shard on the same thread.
    Beside,
    Session(SessionKey),
    Peer(PeerKey),
    Listener(usize),
    Http(GrpcKey),
    Pending(u64),
    Lingering(u64),
    Datagrams(R2p2Port),
}

impl Token {
    const KINDS: u64 = 8;

    /// As the poller carries it. Keys have 63 bits; a generation that does not fit beside the kind wraps three bits
    /// earlier, and a stale token then finds nothing, or a session that is looked at once for nothing.
    pub fn to_bits(self) -> u64 {
        match self {
            Self::Waker => 0,
            Self::Beside => Self::KINDS,
            Self::Session(key) => key.to_bits() * Self::KINDS + 1,
            Self::Peer(key) => key.to_bits() * Self::KINDS + 2,
            Self::Listener(index) => index as u64 * Self::KINDS + 3,
            Self::Http(key) => key.to_bits() * Self::KINDS + 4,
            Self::Pending(id) => id * Self::KINDS + 5,
            Self::Lingering(id) => id * Self::KINDS + 6,
            Self::Datagrams(port) => port as u64 * Self::KINDS + 7,
        }
    }

    /// The same, in the poller's own type.
    pub fn to_poller(self) -> trunkline_net::Token {
        trunkline_net::Token(self.to_bits())
    }

    pub fn from_bits(bits: u64) -> Self {
        let key = bits / Self::KINDS;
        match bits % Self::KINDS {
            0 if key == 0 => Self::Waker,
            0 => Self::Beside,
            1 => Self::Session(SessionKey::from_bits(key)),
            2 => Self::Peer(PeerKey::from_bits(key)),
            3 => Self::Listener(key as usize),
            4 => Self::Http(GrpcKey::from_bits(key)),
            5 => Self::Pending(key),
            6 => Self::Lingering(key),
            _ if key == R2p2Port::Client as u64 => Self::Datagrams(R2p2Port::Client),
            _ => Self::Datagrams(R2p2Port::Server),
        }
    }
}
