//! The seals of R2P2's datagrams (`r2p2.key_file`): put on what leaves a shard, taken off what comes to it.

use rustix::time::{ClockId, clock_gettime};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddrV4;
use std::ops::Range;
use trunkline_net::{Datagrams, Outgoing};
use trunkline_r2p2::{Opener, SealKeys, Sealer, Transmit};

/// Both ways of one shard.
pub(crate) struct ShardSeals {
    sealer: Sealer,
    opener: Opener,
    /// The datagram that was opened last.
    opened: Vec<u8>,
    /// Sealed and not yet sent, for a moment: one behind the other.
    sealed: Vec<u8>,
    /// Datagrams without a good seal.
    refused: u64,
}

impl ShardSeals {
    pub fn new(keys: SealKeys) -> Self {
        // The standard library's only door to the system's randomness.
        let sealer = Sealer::new(keys.clone(), RandomState::new().hash_one(0));
        let opener = Opener::new(keys, unix_us());
        Self { sealer, opener, opened: Vec::new(), sealed: Vec::new(), refused: 0 }
    }

    /// A datagram that came to `own`, without its seal; `None` if it is not to be believed.
    pub fn open(&mut self, own: SocketAddrV4, from: SocketAddrV4, datagram: &[u8]) -> Option<&[u8]> {
        match self.opener.open(unix_us(), own, from, datagram, &mut self.opened) {
            Ok(()) => Some(&self.opened),
            Err(why) => {
                self.refused += 1;
                tracing::warn!(%from, %why, "datagram refused");
                None
            }
        }
    }

    /// Datagrams without a good seal so far.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Sends datagrams, each with its seal.
    pub fn send(&mut self, socket: &Datagrams, own: SocketAddrV4, all: &[Transmit]) {
        let Self { sealer, sealed, .. } = self;
        let now_us = unix_us();
        sealed.clear();
        let mut places: Vec<(SocketAddrV4, Range<usize>)> = Vec::with_capacity(all.len());
        for one in all {
            let start = sealed.len();
            sealer.seal(now_us, own, one.to, &[one.head.as_slice(), &one.body], sealed);
            places.push((one.to, start..sealed.len()));
        }
        let batch: Vec<_> = places
            .iter()
            .map(|(to, place)| Outgoing { to: *to, pieces: [&sealed[place.clone()], &[]] })
            .collect();
        socket.send(&batch);
    }
}

/// Microseconds since 1970.
fn unix_us() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}
