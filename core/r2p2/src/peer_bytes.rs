//! What a port holds for its peers: messages of which a part is here, and long replies on their way out.

use crate::config::Config;
use core::net::Ipv4Addr;
use trunkline_call::KeyedMap;

/// What is held for one address when everything is taken, too: a message of tens of packets.
const FIRST_BYTES: usize = 64 << 10;
/// For all these first bytes there is so much beside what may be held: a quarter of it.
const FIRST_PART: usize = 4;

/// Bytes held, in all and by the peer's address.
///
/// A few addresses may take all there is. Beside it there is some for those for whom little is held, so that their
/// small messages of several packets go on.
///
/// One address has many ports, and each port many requests; so neither is what is counted. Whoever writes another's
/// address as source takes of that one's share: seals (`seal.rs`) keep those out.
#[derive(Debug)]
pub(crate) struct PeerBytes {
    peer_max: usize,
    port_max: usize,
    bytes: usize,
    /// Peers for whom something is held.
    peers: KeyedMap<Ipv4Addr, usize>,
}

/// No more is held, and how much that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortFull {
    /// For this peer.
    #[error("{limit} bytes are held for one address")]
    Peer {
        /// The limit.
        limit: usize,
    },
    /// For anybody.
    #[error("{limit} bytes are held for all addresses")]
    Port {
        /// The limit.
        limit: usize,
    },
}

impl PeerBytes {
    pub fn new(config: &Config) -> Self {
        let (peer_max, port_max) = (config.held_bytes_per_peer_max, config.held_bytes_max);
        Self { peer_max, port_max, bytes: 0, peers: KeyedMap::default() }
    }

    /// What is held for a peer was so much, and is so much now. Counted, whether there is room for it or not.
    pub fn change(&mut self, peer: Ipv4Addr, before: usize, after: usize) {
        if before == after {
            return;
        }
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
        let held = self.peers.entry(peer).or_default();
        *held = held.saturating_sub(before).saturating_add(after);
        if *held == 0 {
            self.peers.remove(&peer);
        }
    }

    /// Why so much more is not to be held for a peer.
    pub fn full(&self, peer: Ipv4Addr, more: usize) -> Option<PortFull> {
        let of_peer = self.peers.get(&peer).copied().unwrap_or(0);
        if of_peer.saturating_add(more) > self.peer_max {
            return Some(PortFull::Peer { limit: self.peer_max });
        }
        let is_first = of_peer.saturating_add(more) <= FIRST_BYTES.min(self.peer_max / 2);
        let beside = if is_first { self.port_max / FIRST_PART } else { 0 };
        let is_full = self.bytes.saturating_add(more) > self.port_max.saturating_add(beside);
        is_full.then_some(PortFull::Port { limit: self.port_max })
    }

    /// Held in all.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    //! Shows whose limit is met, and that a peer for whom nothing is held takes no room.
    use super::*;

    #[test]
    fn peers_have_a_share_of_what_all_may_have() {
        let config = Config { held_bytes_per_peer_max: 10, held_bytes_max: 15, ..Config::default() };
        let (mut held, [one, other]) = (PeerBytes::new(&config), [1, 2].map(Ipv4Addr::from));
        held.change(one, 0, 9);
        assert_eq!((held.full(one, 1), held.full(one, 2)), (None, Some(PortFull::Peer { limit: 10 })));
        assert_eq!((held.full(other, 6), held.full(other, 7)), (None, Some(PortFull::Port { limit: 15 })));
        held.change(other, 0, 6);
        held.change(one, 9, 0);
        assert_eq!((held.bytes(), held.peers.len()), (6, 1));
        held.change(other, 6, 0);
        assert_eq!((held.bytes(), held.peers.len()), (0, 0));
    }

    #[test]
    fn who_holds_little_goes_on_when_others_have_taken_all() {
        const KIB: usize = 1 << 10;
        let (of_peer, of_port) = (512 * KIB, 1024 * KIB);
        let config =
            Config { held_bytes_per_peer_max: of_peer, held_bytes_max: of_port, ..Config::default() };
        let mut held = PeerBytes::new(&config);
        let [one, two, few, more, third] = [1, 2, 3, 4, 5].map(Ipv4Addr::from);
        held.change(one, 0, of_peer);
        held.change(two, 0, of_peer);
        let full = Some(PortFull::Port { limit: of_port });
        assert_eq!((held.full(few, FIRST_BYTES), held.full(few, FIRST_BYTES + 1)), (None, full));
        // There is room for four of these.
        for peer in [few, more, third].into_iter().chain([6.into()]) {
            assert_eq!(held.full(peer, FIRST_BYTES), None);
            held.change(peer, 0, FIRST_BYTES);
        }
        assert_eq!((held.full(7.into(), 1), held.full(few, 0), held.full(few, 1)), (full, None, full));
        assert_eq!(held.full(one, 0), full, "who holds much does not go on");
    }
}
