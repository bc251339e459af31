//! Datagrams that prove where they come from: a key all hosts of a cluster share, and a seal behind every datagram.
//!
//! A seal says who sent the datagram, as which of his, when, whereto and wherefrom, and a keyed hash (HMAC-SHA-256)
//! over all of it, the datagram included, that nobody without the key can make. [`Sealer`] writes it; [`Opener`] takes
//! it off and refuses what is forged, changed, meant for somebody else, or has been seen before. Neither knows what a
//! datagram says. Time and addresses are arguments.
//!
//! What was seen is known by sender: the newest number, and which of the last [`WINDOW`] before it have come (RFC 4303,
//! section 3.4.3). Who has not been heard for longer than a seal is good is forgotten, because what he sent then is
//! refused by its time; so is everything that is older than the receiver itself.

use crate::wire::{HEADER_BYTES, MAGIC};
use core::net::SocketAddrV4;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::collections::HashMap;

/// First byte of a sealed datagram, in the place of [`MAGIC`]: who expects no seals takes it for none of his.
pub const SEALED_MAGIC: u8 = 0xcd;

/// Bytes of a seal.
pub const SEAL_BYTES: usize = 52;

/// Bytes of the hash that travel: half of it, as RFC 2104 (section 5) has it at least.
const TAG_BYTES: usize = 16;
/// Where they begin.
const TAG_AT: usize = SEAL_BYTES - TAG_BYTES;

/// Datagrams of one sender that may overtake each other: a burst of all its calls' packets.
const WINDOW: u64 = 1024;

/// How far a sender's clock may be from the receiver's, in microseconds, either way. Hosts of a cluster keep their
/// clocks within milliseconds of each other.
const SKEW_US: u64 = 30_000_000;

/// Senders that are known at once: every host has a few, for each shard and each port. Only who has the key is one.
const SENDERS_MAX: usize = 16_384;

/// Keys that are good at once: the one in use, and those before and after it while they are exchanged.
pub const SEAL_KEYS_MAX: usize = 4;

/// Keys, the first of which is used to seal. All of them open.
#[derive(Clone)]
pub struct SealKeys {
    keys: Vec<Hmac<Sha256>>,
}

/// Seals what one process sends.
#[derive(Debug)]
pub struct Sealer {
    keys: SealKeys,
    sender: u64,
    sequence: u64,
}

/// Takes seals off what one process receives.
#[derive(Debug)]
pub struct Opener {
    keys: SealKeys,
    /// Since when it is there.
    since_us: u64,
    senders: HashMap<u64, Sender>,
    counters: SealCounters,
}

/// What has come of a sender.
#[derive(Debug)]
struct Sender {
    newest: u64,
    /// Bit i of the whole: the number `newest - i` has come.
    seen: [u64; (WINDOW / 64) as usize],
    heard_us: u64,
}

/// Why a datagram is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unbelieved {
    /// It has no seal.
    #[error("it has no seal: its sender has no key")]
    Unsealed,
    /// It was made, or changed, by somebody who does not have the key.
    #[error("its seal is not made with this cluster's key")]
    Forged,
    /// It was meant for somebody else, or comes from elsewhere than its sender is.
    #[error("it was sealed for another address, or comes from another")]
    Misdirected,
    /// It is too old, or the clocks of its sender and of this host are apart.
    #[error("its time is more than 30 s from this host's, or before this process began")]
    Stale,
    /// It has come before.
    #[error("it has come before")]
    Replayed,
    /// There are more senders than can be known.
    #[error("too many senders")]
    Crowded,
}

/// What was refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the reasons")]
pub struct SealCounters {
    pub unsealed: u64,
    pub forged: u64,
    pub misdirected: u64,
    pub stale: u64,
    pub replayed: u64,
    pub crowded: u64,
}

impl SealKeys {
    /// Shortest key: as long as the hash (RFC 2104, section 3).
    pub const BYTES_MIN: usize = 32;

    /// Keys, of which the first seals. `None` if there is none, one is too short, or there are more than
    /// [`SEAL_KEYS_MAX`].
    pub fn new(keys: &[&[u8]]) -> Option<Self> {
        let is_good = (1..=SEAL_KEYS_MAX).contains(&keys.len());
        let are_long = keys.iter().all(|key| key.len() >= Self::BYTES_MIN);
        if !is_good || !are_long {
            return None;
        }
        let made = keys.iter().map(|key| Hmac::new_from_slice(key).ok()).collect::<Option<_>>();
        made.map(|keys| Self { keys })
    }

    fn tag(&self, covered: &[u8]) -> [u8; TAG_BYTES] {
        let whole = self.keys[0].clone().chain_update(covered).finalize().into_bytes();
        std::array::from_fn(|at| whole[at])
    }

    /// In a time that does not tell how much of the tag is right.
    fn fit(&self, covered: &[u8], tag: &[u8]) -> bool {
        let fits = |key: &Hmac<Sha256>| key.clone().chain_update(covered).verify_truncated_left(tag).is_ok();
        tag.len() == TAG_BYTES && self.keys.iter().any(fits)
    }
}

impl std::fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.keys.len())
    }
}

impl Sealer {
    /// `sender` is drawn at random: no two have the same.
    pub fn new(keys: SealKeys, sender: u64) -> Self {
        Self { keys, sender, sequence: 0 }
    }

    /// Writes the datagram that these pieces are, sealed, behind what `out` has. `from` is the address it leaves from,
    /// as far as that is known: zeros are not looked at.
    pub fn seal(
        &mut self,
        unix_us: u64,
        from: SocketAddrV4,
        to: SocketAddrV4,
        pieces: &[&[u8]],
        out: &mut Vec<u8>,
    ) {
        self.sequence += 1;
        let start = out.len();
        pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        if let Some(magic) = out.get_mut(start) {
            *magic = SEALED_MAGIC;
        }
        out.extend_from_slice(&self.sender.to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&unix_us.to_be_bytes());
        for address in [to, from] {
            out.extend_from_slice(&address.port().to_be_bytes());
            out.extend_from_slice(&address.ip().octets());
        }
        let tag = self.keys.tag(&out[start..]);
        out.extend_from_slice(&tag);
    }
}

impl Opener {
    /// `unix_us` is now: what is older is not believed.
    pub fn new(keys: SealKeys, unix_us: u64) -> Self {
        Self { keys, since_us: unix_us, senders: HashMap::new(), counters: SealCounters::default() }
    }

    /// Takes the seal off a datagram that came to `own` from `from`, and leaves the datagram in `out`.
    ///
    /// # Errors
    /// [`Unbelieved`]; it is counted.
    pub fn open(
        &mut self,
        unix_us: u64,
        own: SocketAddrV4,
        from: SocketAddrV4,
        datagram: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Unbelieved> {
        let opened = self.judge(unix_us, own, from, datagram);
        match opened {
            Ok(bytes) => {
                out.clear();
                out.extend_from_slice(&datagram[..bytes]);
                out[0] = MAGIC;
                Ok(())
            }
            Err(why) => {
                self.counters.count(why);
                Err(why)
            }
        }
    }

    /// What was refused.
    pub fn counters(&self) -> &SealCounters {
        &self.counters
    }

    /// How many bytes are the datagram's own.
    fn judge(
        &mut self,
        unix_us: u64,
        own: SocketAddrV4,
        from: SocketAddrV4,
        datagram: &[u8],
    ) -> Result<usize, Unbelieved> {
        let bytes = datagram.len().checked_sub(SEAL_BYTES).filter(|bytes| *bytes >= HEADER_BYTES);
        let Some(bytes) = bytes.filter(|_| datagram[0] == SEALED_MAGIC) else {
            return Err(Unbelieved::Unsealed);
        };
        let (covered, tag) = datagram.split_at(bytes + TAG_AT);
        let seal = &covered[bytes..];
        if !self.keys.fit(covered, tag) {
            return Err(Unbelieved::Forged);
        }
        let [sender, sequence, sent_us] = [0, 8, 16].map(|at| u64_of(&seal[at..]));
        let [to, said] = [24, 30].map(|at| address_of(&seal[at..]));
        if !is_at(to, own) || !is_at(own, to) || !is_at(from, said) {
            return Err(Unbelieved::Misdirected);
        }
        // The clock has been set back: what is sent from now on is what is new.
        self.since_us = self.since_us.min(unix_us);
        if sent_us < self.since_us || sent_us.abs_diff(unix_us) > SKEW_US {
            return Err(Unbelieved::Stale);
        }
        self.note(unix_us, sender, sequence).map(|()| bytes)
    }

    fn note(&mut self, unix_us: u64, sender: u64, sequence: u64) -> Result<(), Unbelieved> {
        if !self.senders.contains_key(&sender) {
            self.make_room(unix_us)?;
            let seen = [0; (WINDOW / 64) as usize];
            self.senders
                .insert(sender, Sender { newest: sequence.saturating_sub(1), seen, heard_us: unix_us });
        }
        let Some(known) = self.senders.get_mut(&sender) else { return Err(Unbelieved::Crowded) };
        if !known.take(sequence) {
            return Err(Unbelieved::Replayed);
        }
        known.heard_us = unix_us;
        Ok(())
    }

    /// Forgets who has been silent for so long that what he sent then is refused by its time.
    fn make_room(&mut self, unix_us: u64) -> Result<(), Unbelieved> {
        if self.senders.len() >= SENDERS_MAX {
            self.senders.retain(|_, sender| unix_us.saturating_sub(sender.heard_us) <= 2 * SKEW_US);
        }
        if self.senders.len() < SENDERS_MAX { Ok(()) } else { Err(Unbelieved::Crowded) }
    }
}

impl Sender {
    /// Whether a number is new, which it is no longer.
    fn take(&mut self, sequence: u64) -> bool {
        if let Some(ahead) = sequence.checked_sub(self.newest).filter(|ahead| *ahead > 0) {
            self.shift(ahead);
            self.newest = sequence;
        }
        let behind = self.newest - sequence;
        if behind >= WINDOW {
            return false;
        }
        let (word, bit) = ((behind / 64) as usize, 1 << (behind % 64));
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }

    /// Moves what was seen by so many places.
    fn shift(&mut self, places: u64) {
        if places >= WINDOW {
            self.seen = Default::default();
            return;
        }
        let (words, bits) = ((places / 64) as usize, places % 64);
        for at in (0..self.seen.len()).rev() {
            let moved = at.checked_sub(words).map_or(0, |from| self.seen[from]);
            let below = at.checked_sub(words + 1).map_or(0, |from| self.seen[from]);
            self.seen[at] = if bits == 0 { moved } else { moved << bits | below >> (64 - bits) };
        }
    }
}

impl SealCounters {
    /// What was refused, with its reason's name.
    pub fn each(&self) -> [(&'static str, u64); 6] {
        [
            ("unsealed", self.unsealed),
            ("forged", self.forged),
            ("misdirected", self.misdirected),
            ("stale", self.stale),
            ("replayed", self.replayed),
            ("crowded", self.crowded),
        ]
    }

    fn count(&mut self, why: Unbelieved) {
        let counter = match why {
            Unbelieved::Unsealed => &mut self.unsealed,
            Unbelieved::Forged => &mut self.forged,
            Unbelieved::Misdirected => &mut self.misdirected,
            Unbelieved::Stale => &mut self.stale,
            Unbelieved::Replayed => &mut self.replayed,
            Unbelieved::Crowded => &mut self.crowded,
        };
        *counter += 1;
    }
}

/// Whether an address is the one that is named, as far as one is: zeros stand for any.
fn is_at(address: SocketAddrV4, named: SocketAddrV4) -> bool {
    (named.ip().is_unspecified() || address.ip() == named.ip() || address.ip().is_unspecified())
        && (named.port() == 0 || address.port() == named.port())
}

fn u64_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn address_of(bytes: &[u8]) -> SocketAddrV4 {
    let [p0, p1, a, b, c, d] = bytes.first_chunk().copied().unwrap_or_default();
    SocketAddrV4::new([a, b, c, d].into(), u16::from_be_bytes([p0, p1]))
}

#[cfg(test)]
mod tests {
    //! Shows that what was sealed is opened once, by whom it was meant for, and nothing else is.
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    const NOW: u64 = 1_700_000_000_000_000;
    const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 4000);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 8000);
    const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 8000);

    fn keys(all: &[u8]) -> SealKeys {
        let all: Vec<[u8; 32]> = all.iter().map(|byte| [*byte; 32]).collect();
        SealKeys::new(&all.iter().map(<[u8; 32]>::as_slice).collect::<Vec<_>>()).unwrap()
    }

    fn pair() -> (Sealer, Opener) {
        (Sealer::new(keys(&[1]), 7), Opener::new(keys(&[1]), NOW - 1))
    }

    fn sealed(sealer: &mut Sealer, at: u64) -> Vec<u8> {
        let mut out = Vec::new();
        sealer.seal(at, FROM, TO, &[&[MAGIC, 8, 0, 0xf0, 0, 1, 0, 1], b"body"], &mut out);
        out
    }

    fn open(opener: &mut Opener, at: u64, datagram: &[u8]) -> Result<Vec<u8>, Unbelieved> {
        let mut out = Vec::new();
        opener.open(at, TO, FROM, datagram, &mut out).map(|()| out)
    }

    #[test]
    fn what_is_sealed_is_opened_once() {
        let (mut sealer, mut opener) = pair();
        let datagram = sealed(&mut sealer, NOW);
        assert_eq!(datagram.len(), 12 + SEAL_BYTES);
        let opened = open(&mut opener, NOW, &datagram).unwrap();
        assert_eq!(opened, [&[MAGIC, 8, 0, 0xf0, 0, 1, 0, 1][..], b"body"].concat());
        assert_eq!(open(&mut opener, NOW, &datagram), Err(Unbelieved::Replayed));
        assert_eq!(opener.counters().replayed, 1);
    }

    #[test]
    fn the_wrong_place_time_or_key_is_refused() {
        let (mut sealer, _) = pair();
        let datagram = sealed(&mut sealer, NOW);
        let other = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 3), 8000);
        let port = SocketAddrV4::new(*TO.ip(), 8001);
        for (own, from, at, key, since, expected) in [
            (TO, FROM, NOW, 1, NOW, Ok(())),
            (ANY, FROM, NOW, 1, NOW, Ok(())),
            (TO, FROM, NOW + SKEW_US, 1, NOW, Ok(())),
            (TO, FROM, NOW + SKEW_US + 1, 1, NOW, Err(Unbelieved::Stale)),
            (TO, FROM, NOW - SKEW_US - 1, 1, 0, Err(Unbelieved::Stale)),
            (TO, FROM, NOW + 1, 1, NOW + 1, Err(Unbelieved::Stale)),
            (other, FROM, NOW, 1, NOW, Err(Unbelieved::Misdirected)),
            (port, FROM, NOW, 1, NOW, Err(Unbelieved::Misdirected)),
            (TO, other, NOW, 1, NOW, Err(Unbelieved::Misdirected)),
            (TO, FROM, NOW, 2, NOW, Err(Unbelieved::Forged)),
        ] {
            let mut opener = Opener::new(keys(&[key]), since);
            let found = opener.open(at, own, from, &datagram, &mut Vec::new());
            assert_eq!(found, expected, "{own} {from} {at} {key} {since}");
        }
        let mut opener = Opener::new(keys(&[1]), NOW);
        assert_eq!(open(&mut opener, NOW, &[MAGIC; 80]), Err(Unbelieved::Unsealed));
        assert_eq!(open(&mut opener, NOW, &[SEALED_MAGIC; SEAL_BYTES + 7]), Err(Unbelieved::Unsealed));
    }

    /// A process began with a clock that was ahead, and which has been set since.
    #[test]
    fn a_clock_that_is_set_back_makes_nobody_deaf() {
        const HOUR: u64 = 3_600_000_000;
        let (mut sealer, mut opener) = (Sealer::new(keys(&[1]), 7), Opener::new(keys(&[1]), NOW + HOUR));
        let [long_before, before] = [SKEW_US + 1, 5].map(|us| sealed(&mut sealer, NOW - us));
        let datagram = sealed(&mut sealer, NOW + 1);
        assert!(open(&mut opener, NOW + 1, &datagram).is_ok());
        assert_eq!(open(&mut opener, NOW + 1, &datagram), Err(Unbelieved::Replayed));
        assert_eq!(open(&mut opener, NOW + 1, &long_before), Err(Unbelieved::Stale));
        assert_eq!(open(&mut opener, NOW + 2, &before), Err(Unbelieved::Stale));
        let next = sealed(&mut sealer, NOW + 2);
        assert!(open(&mut opener, NOW + 2, &next).is_ok());
    }

    #[test]
    fn keys_are_exchanged_one_host_after_the_other() {
        let hosts = [keys(&[1]), keys(&[1, 2]), keys(&[2, 1]), keys(&[2])];
        for (from, seals) in hosts.iter().zip([1, 1, 2, 2]) {
            for (to, opens) in hosts.iter().zip([&[1][..], &[1, 2], &[1, 2], &[2]]) {
                let datagram = sealed(&mut Sealer::new(from.clone(), 7), NOW);
                let opened = open(&mut Opener::new(to.clone(), 0), NOW, &datagram);
                assert_eq!(opened.is_ok(), opens.contains(&seals), "{seals} {opens:?}");
            }
        }
        assert!(SealKeys::new(&[]).is_none() && SealKeys::new(&[&[1; 31]]).is_none());
        assert!(SealKeys::new(&[&[1; 32][..]; SEAL_KEYS_MAX + 1]).is_none());
    }

    #[test]
    fn senders_are_few_and_the_silent_make_room() {
        let mut opener = Opener::new(keys(&[1]), 0);
        for sender in 0..SENDERS_MAX as u64 {
            opener.note(NOW, sender, 1).unwrap();
        }
        assert_eq!(opener.note(NOW + 2 * SKEW_US, u64::MAX, 1), Err(Unbelieved::Crowded));
        assert_eq!(opener.note(NOW + 2 * SKEW_US + 1, u64::MAX, 1), Ok(()));
        assert_eq!(opener.senders.len(), 1);
    }

    proptest! {
        #[test]
        fn numbers_are_taken_once_and_only_far_behind_refused(
            order in prop::collection::vec(1..3000u64, 1..400), first in 1..3000u64,
        ) {
            let mut opener = Opener::new(keys(&[1]), 0);
            let mut taken = std::collections::HashSet::new();
            let mut newest = 0;
            for sequence in std::iter::once(first).chain(order) {
                let is_new = opener.note(NOW, 7, sequence).is_ok();
                let is_near = newest == 0 || sequence + WINDOW > newest;
                // What is before the first that came may be new, too.
                prop_assert_eq!(is_new, is_near && taken.insert(sequence), "{} after {}", sequence, newest);
                newest = newest.max(sequence);
            }
        }

        #[test]
        fn nothing_changed_is_believed(at in 0..(12 + SEAL_BYTES), change in 1..=255u8) {
            let (mut sealer, mut opener) = pair();
            let mut datagram = sealed(&mut sealer, NOW);
            datagram[at] ^= change;
            prop_assert!(open(&mut opener, NOW, &datagram).is_err());
            datagram[at] ^= change;
            prop_assert!(open(&mut opener, NOW, &datagram).is_ok());
        }

        #[test]
        fn any_bytes_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_marked in any::<bool>()) {
            if let Some(first) = bytes.first_mut().filter(|_| is_marked) {
                *first = SEALED_MAGIC;
            }
            let (_, mut opener) = pair();
            prop_assert!(open(&mut opener, NOW, &bytes).is_err());
        }
    }
}
