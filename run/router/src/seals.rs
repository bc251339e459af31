//! The seals of what the router takes and sends, where its cluster has a key.

use rustix::time::{ClockId, clock_gettime};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddrV4;
use trunkline_r2p2::{Forward, Opener, SealCounters, SealKeys, Sealer, Transmit};

/// Takes seals off, and puts them on; does nothing without a key.
#[derive(Default)]
pub(crate) struct Seals {
    both: Option<(Sealer, Opener)>,
    /// The datagram that was opened last.
    opened: Vec<u8>,
}

impl Seals {
    pub fn new(keys: Option<SealKeys>) -> Self {
        // The standard library's only door to the system's randomness.
        let sender = RandomState::new().hash_one(0);
        let both = keys.map(|keys| (Sealer::new(keys.clone(), sender), Opener::new(keys, unix_us())));
        Self { both, opened: Vec::new() }
    }

    /// A datagram that came to `own`, without its seal; `None` if it is not to be believed.
    pub fn open<'a>(
        &'a mut self,
        own: SocketAddrV4,
        from: SocketAddrV4,
        datagram: &'a [u8],
    ) -> Option<&'a [u8]> {
        let Self { both: Some((_, opener)), opened } = self else { return Some(datagram) };
        match opener.open(unix_us(), own, from, datagram, opened) {
            Ok(()) => Some(opened),
            Err(why) => {
                tracing::warn!(%from, %why, "datagram refused");
                None
            }
        }
    }

    /// Seals what is sent on, from whichever address it leaves.
    pub fn seal_forwards(&mut self, forwards: &mut [Forward], from: impl Fn(&Forward) -> SocketAddrV4) {
        if self.both.is_none() {
            return;
        }
        for one in forwards {
            one.datagram = self.sealed(from(one), one.to, &[&one.datagram]);
        }
    }

    /// Datagrams in one piece each, sealed if there is a key.
    pub fn sealed_transmits(
        &mut self,
        from: SocketAddrV4,
        all: &[Transmit],
    ) -> Option<Vec<(SocketAddrV4, Vec<u8>)>> {
        self.both.as_ref()?;
        let one = |one: &Transmit| (one.to, self.sealed(from, one.to, &[one.head.as_slice(), &one.body]));
        Some(all.iter().map(one).collect())
    }

    /// A datagram, sealed if there is a key.
    pub fn sealed(&mut self, from: SocketAddrV4, to: SocketAddrV4, pieces: &[&[u8]]) -> Vec<u8> {
        let Some((sealer, _)) = &mut self.both else { return pieces.concat() };
        let mut out = Vec::new();
        sealer.seal(unix_us(), from, to, pieces, &mut out);
        out
    }

    /// What was refused.
    pub fn counters(&self) -> SealCounters {
        self.both.as_ref().map_or_else(SealCounters::default, |(_, opener)| *opener.counters())
    }
}

/// Microseconds since 1970.
fn unix_us() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}
