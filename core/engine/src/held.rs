//! What the daemon holds for those who send to it or read from it, and what one source and the host may have of that.
//!
//! Connections and sessions have limits of their own, and a source may have many of them. So what is held for one is
//! booked for its source, too (an address, a user of this host, an endpoint), and for the host. It is booked in large
//! steps, and what is below the first step is not booked at all: a connection that is read from and written to in time
//! costs a comparison, and whoever comes when everything is taken can still make calls, one after another.

use crate::limits::{HELD_OF_HOST, HELD_OF_SOURCE, Limits};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use trunkline_call::{Fault, KeyedMap};
use trunkline_share::{CountShare, HostLimits};

/// What is booked at once, and what a holder has without booking.
pub(crate) const HELD_STEP_BYTES: u64 = 256 << 10;
/// A method that a native peer has announced, beside its path: entries of tables, of the connection's and the engine's.
pub(crate) const HELD_METHOD_BYTES: u64 = 256;
/// A call that an application or another daemon makes, and what names it.
pub(crate) const HELD_CALL_BYTES: u64 = 1 << 10;
/// A stream of a gRPC connection and its call, beside the bytes of messages.
pub(crate) const HELD_STREAM_BYTES: u64 = 2 << 10;

/// What is held by all, by source.
#[derive(Debug, Default)]
pub(crate) struct HeldBudget {
    source_bytes_max: u64,
    host_bytes_max: u64,
    host_bytes: CountShare,
    /// Sources for whom something is booked; one for whom nothing is leaves. Bounded by the connections and sessions.
    sources: KeyedMap<Arc<str>, CountShare>,
    /// Shared with other shards, if there are any.
    shared: Option<Arc<HostLimits>>,
}

/// What is held for one connection or session.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    source: Arc<str>,
    booked_bytes: u64,
    /// Held for as long as it is there, beside what is said of other bytes.
    kept_bytes: u64,
    /// Its source has so many parts of so many of what a source may have: all, if nothing is said.
    parts: Option<(u32, u32)>,
}

/// Whose budget is full, and how much that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldFull {
    /// That of the source.
    Source(u64),
    /// That of the host.
    Host(u64),
}

impl HeldBudget {
    /// With these limits.
    pub fn new(source_bytes_max: u64, host_bytes_max: u64) -> Self {
        Self { source_bytes_max, host_bytes_max, ..Self::default() }
    }

    /// As the limits say.
    pub fn of(limits: &Limits) -> Self {
        Self::new(limits.held_bytes_per_source as u64, limits.held_bytes as u64)
    }

    /// The same, of which other shards have their part.
    pub fn shared(mut self, limits: &Arc<HostLimits>) -> Self {
        self.share(limits);
        self
    }

    /// The limits count for all shards of the host.
    pub fn share(&mut self, limits: &Arc<HostLimits>) {
        self.host_bytes.join(&limits.count("held bytes"));
        self.shared = Some(Arc::clone(limits));
    }

    /// So many bytes are held for this one: whether they may be, which is booked.
    #[inline]
    pub fn book(&mut self, holding: &mut Holding, held_bytes: u64) -> Result<(), HeldFull> {
        let held_bytes = held_bytes + holding.kept_bytes;
        if held_bytes <= holding.booked_bytes + HELD_STEP_BYTES {
            return Ok(());
        }
        self.book_more(holding, held_bytes)
    }

    /// So many bytes are held for this one, however many may be, if nothing is booked here for its source: whether that
    /// is so.
    pub fn book_alone(&mut self, holding: &mut Holding, held_bytes: u64) -> bool {
        if holding.booked_bytes > 0 || self.sources.contains_key(&holding.source) {
            return false;
        }
        let bytes = steps_for(held_bytes);
        let mut source = self.new_share(&holding.source);
        source.hold(bytes);
        self.sources.insert(Arc::clone(&holding.source), source);
        self.host_bytes.hold(bytes);
        holding.booked_bytes = bytes;
        true
    }

    /// So many bytes more are held for as long as this one is there, beside others: whether they may be, which is
    /// booked.
    pub fn keep(&mut self, holding: &mut Holding, held_bytes: u64, more_bytes: u64) -> Result<(), HeldFull> {
        self.book(holding, held_bytes + more_bytes)?;
        holding.keeps(more_bytes);
        Ok(())
    }

    /// So many are held now. What is booked beyond that is given back, but for a step.
    #[inline]
    pub fn settle(&mut self, holding: &mut Holding, held_bytes: u64) {
        if holding.booked_bytes == 0 {
            return;
        }
        let held_bytes = held_bytes + holding.kept_bytes;
        // A step more than is needed stays, for what comes next; not for a holder at rest.
        let needed = steps_for(held_bytes);
        if holding.booked_bytes > needed + HELD_STEP_BYTES || held_bytes <= HELD_STEP_BYTES / 2 {
            self.give_back(holding, holding.booked_bytes - needed);
        }
    }

    /// The connection or session is gone.
    pub fn leave(&mut self, mut holding: Holding) {
        let booked_bytes = holding.booked_bytes;
        self.give_back(&mut holding, booked_bytes);
    }

    /// Bytes booked here in all, and sources they are booked for.
    pub fn booked(&self) -> (u64, usize) {
        (self.host_bytes.used(), self.sources.len())
    }

    #[cold]
    fn book_more(&mut self, holding: &mut Holding, held_bytes: u64) -> Result<(), HeldFull> {
        let more = steps_for(held_bytes) - holding.booked_bytes;
        if !self.sources.contains_key(&holding.source) {
            let share = self.new_share(&holding.source);
            self.sources.insert(Arc::clone(&holding.source), share);
        }
        let Some(source) = self.sources.get_mut(&holding.source) else { return Ok(()) };
        let source_bytes_max = holding.parts.map_or(self.source_bytes_max, |(parts, of)| {
            let bytes = u128::from(self.source_bytes_max) * u128::from(parts) / u128::from(of);
            // Fewer than all parts of it, and so no more than it.
            bytes as u64
        });
        let full = if !source.take_bare(more, source_bytes_max) {
            Some(HeldFull::Source(source_bytes_max))
        } else if !self.host_bytes.take(more, self.host_bytes_max) {
            source.give_back(more);
            Some(HeldFull::Host(self.host_bytes_max))
        } else {
            holding.booked_bytes += more;
            None
        };
        if source.used() == 0 {
            self.sources.remove(&holding.source);
        }
        full.map_or(Ok(()), Err)
    }

    fn new_share(&self, source: &str) -> CountShare {
        let mut share = CountShare::default();
        if let Some(shared) = &self.shared {
            share.join(&shared.count(&format!("held bytes of {source}")));
        }
        share
    }

    fn give_back(&mut self, holding: &mut Holding, bytes: u64) {
        if bytes == 0 {
            return;
        }
        holding.booked_bytes -= bytes;
        self.host_bytes.give_back(bytes);
        if let Some(source) = self.sources.get_mut(&holding.source) {
            source.give_back(bytes);
            if source.used() == 0 {
                self.sources.remove(&holding.source);
            }
        }
    }
}

impl HeldFull {
    /// What the call hears that met it.
    pub fn fault(self) -> Fault {
        match self {
            Self::Source(limit) => Fault::Limit { name: HELD_OF_SOURCE, limit },
            Self::Host(limit) => Fault::Limit { name: HELD_OF_HOST, limit },
        }
    }
}

impl Holding {
    /// Of this source, with nothing booked.
    pub fn of(source: Box<str>) -> Self {
        Self { source: source.into(), ..Self::default() }
    }

    /// Nothing, held for the same as this.
    pub fn for_the_same(&self) -> Self {
        Self { source: Arc::clone(&self.source), parts: self.parts, ..Self::default() }
    }

    /// Whom it is held for.
    pub fn source(&self) -> &Arc<str> {
        &self.source
    }

    /// So many bytes more are held for as long as it is there. They are booked with whatever is booked next.
    pub fn keeps(&mut self, more_bytes: u64) {
        self.kept_bytes += more_bytes;
    }

    /// What is booked for it.
    pub fn booked_bytes(&self) -> u64 {
        self.booked_bytes
    }

    /// Its source may have so many parts of so many of what one may have.
    pub fn has_parts(&mut self, parts: u32, of: u32) {
        self.parts = (parts < of).then_some((parts, of));
    }

    /// It is known whose it is. To be said before anything is held for it.
    pub fn belongs_to(&mut self, source: &str) {
        if self.booked_bytes == 0 {
            self.source = source.into();
        }
    }
}

/// Whose a connection is, by its label: an endpoint that was dialled, a user of this host, or an address without port,
/// scheme and protocol. Of IPv6 it is the network of 64 bits that one party has (as for connections, `trunkline-net`).
pub(crate) fn source_of_peer(label: &str, dialled: bool) -> Box<str> {
    if dialled {
        return label.into();
    }
    if let Some(user) = label.strip_prefix("unix (").and_then(|rest| rest.strip_suffix(')')) {
        return user.replacen(' ', ":", 1).into();
    }
    let address = label.split_once("://").map_or(label, |(_, address)| address);
    let Ok(address) = address.parse::<SocketAddr>() else { return label.into() };
    match address.ip().to_canonical() {
        IpAddr::V4(address) => address.to_string().into(),
        IpAddr::V6(address) => format!("{}/64", Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)).into(),
    }
}

/// Whether a source is a user or tenant of this host, or an identity that has proved who it is: none of them can be had
/// by the hundred. Others are addresses, and nobody in particular.
pub(crate) fn is_of_host(source: &str) -> bool {
    let is_address = source.ends_with("/64") || source.parse::<IpAddr>().is_ok();
    let is_named = source.starts_with("spiffe://") || !source.contains("://");
    !is_address && is_named && !["", "r2p2"].contains(&source)
}

/// What is to be booked where so much is held: all but the first step, in whole ones.
fn steps_for(held_bytes: u64) -> u64 {
    held_bytes.saturating_sub(HELD_STEP_BYTES).next_multiple_of(HELD_STEP_BYTES)
}

#[cfg(test)]
mod tests {
    //! Shows that no source and no host holds more than it may, beside a first step each, and that nothing is left.
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    proptest! {
        #[test]
        fn budgets_hold(steps in prop::collection::vec((0usize..8, 0u64..6 * MIB), 1..200)) {
            let mut budget = HeldBudget::new(4 * MIB, 10 * MIB);
            let mut holders: Vec<_> =
                (0..8).map(|number| (Holding::of(format!("source {}", number % 4).into()), 0u64)).collect();
            for (index, wants) in steps {
                let (holding, held) = &mut holders[index];
                if wants > *held {
                    if budget.book(holding, wants).is_ok() {
                        *held = wants;
                    }
                } else {
                    *held = wants;
                    budget.settle(holding, wants);
                }
                let beyond = |held: u64| held.saturating_sub(HELD_STEP_BYTES);
                let all: u64 = holders.iter().map(|(_, held)| beyond(*held)).sum();
                prop_assert!(all <= 10 * MIB, "{all}");
                for source in 0..4 {
                    let of = holders.iter().skip(source).step_by(4).map(|(_, held)| beyond(*held)).sum::<u64>();
                    prop_assert!(of <= 4 * MIB, "{of}");
                }
                let booked: u64 = holders.iter().map(|(holding, _)| holding.booked_bytes()).sum();
                prop_assert_eq!(budget.booked().0, booked);
            }
            for (holding, _) in holders {
                budget.leave(holding);
            }
            prop_assert_eq!(budget.booked(), (0, 0));
        }
    }

    #[test]
    fn a_party_is_one_source_by_whatever_it_comes() {
        let source = |label| source_of_peer(label, false);
        for same in [
            &["tcp://10.0.0.1:4711", "tcp://10.0.0.1:4712", "tls://10.0.0.1:1", "tcp://[::ffff:10.0.0.1]:1"]
                [..],
            &["tcp://[2001:db8::1]:1", "tls://[2001:db8::ffff:1]:2"],
            &["unix (uid 7)"],
            &["tcp://10.0.0.2:4711"],
            &["tcp://[2001:db8:0:1::1]:1"],
        ] {
            assert!(same.iter().all(|label| source(label) == source(same[0])), "{same:?}");
        }
        assert_eq!(&*source("unix (uid 7)"), "uid:7", "as its sessions are");
        assert_eq!(&*source("tcp://10.0.0.1:4711"), "10.0.0.1");
        assert_eq!(&*source("tcp://[2001:db8::1]:1"), "2001:db8::/64");
        assert_eq!(&*source_of_peer("tcp://10.0.0.1:50051", true), "tcp://10.0.0.1:50051");
    }

    #[test]
    fn who_holds_little_books_nothing_even_when_all_is_taken() {
        let mut budget = HeldBudget::new(MIB, 2 * MIB);
        let mut greedy = Holding::of("greedy".into());
        assert_eq!(budget.book(&mut greedy, MIB + HELD_STEP_BYTES), Ok(()));
        assert_eq!(budget.book(&mut greedy, MIB + HELD_STEP_BYTES + 1), Err(HeldFull::Source(MIB)));
        let mut other = Holding::of("other".into());
        assert_eq!(budget.book(&mut other, MIB), Ok(()));
        let mut third = Holding::of("third".into());
        assert_eq!(budget.book(&mut third, MIB), Err(HeldFull::Host(2 * MIB)));
        assert_eq!(budget.book(&mut third, HELD_STEP_BYTES), Ok(()));
        assert_eq!((third.booked_bytes(), budget.booked().1), (0, 2), "and leaves no source behind");
    }

    #[test]
    fn what_is_kept_stays_booked_whatever_else_comes_and_goes() {
        let mut budget = HeldBudget::new(MIB, 2 * MIB);
        let mut holding = Holding::of("a".into());
        assert_eq!(budget.keep(&mut holding, 0, MIB), Ok(()));
        assert_eq!(budget.book(&mut holding, HELD_STEP_BYTES), Ok(()));
        assert_eq!(budget.book(&mut holding, HELD_STEP_BYTES + 1), Err(HeldFull::Source(MIB)));
        assert_eq!(budget.keep(&mut holding, HELD_STEP_BYTES, 1), Err(HeldFull::Source(MIB)));
        budget.settle(&mut holding, 0);
        assert!(holding.booked_bytes() >= MIB - HELD_STEP_BYTES, "all that is kept, but for the first step");
        budget.leave(holding);
        assert_eq!(budget.booked(), (0, 0));
    }

    #[test]
    fn a_source_may_have_less_than_others() {
        let mut budget = HeldBudget::new(4 * MIB, 8 * MIB);
        let (mut light, mut heavy) = (Holding::of("light".into()), Holding::of("heavy".into()));
        light.has_parts(1, 4);
        heavy.has_parts(4, 4);
        assert_eq!(budget.book(&mut light, MIB), Ok(()));
        assert_eq!(budget.book(&mut light, 2 * MIB), Err(HeldFull::Source(MIB)));
        assert_eq!(budget.book(&mut heavy, 4 * MIB), Ok(()));
    }

    #[test]
    fn a_part_is_rounded_once_and_may_be_of_any_size() {
        let mut budget = HeldBudget::new(u64::MAX, u64::MAX);
        let mut light = Holding::of("light".into());
        light.has_parts(u32::MAX - 1, u32::MAX);
        assert_eq!(budget.book(&mut light, MIB), Ok(()), "no product is too large");
        let mut budget = HeldBudget::new(3 * HELD_STEP_BYTES - 1, 8 * MIB);
        let mut light = Holding::of("light".into());
        light.has_parts(999, 1000);
        let whole = (3 * HELD_STEP_BYTES - 1) * 999 / 1000;
        assert_eq!(budget.book(&mut light, MIB), Err(HeldFull::Source(whole)));
    }

    #[test]
    fn shards_share_what_a_source_may_hold() {
        let limits = Arc::new(HostLimits::new(2));
        let mut shards = [HeldBudget::new(MIB, 8 * MIB), HeldBudget::new(MIB, 8 * MIB)];
        shards.iter_mut().for_each(|shard| shard.share(&limits));
        let [one, two] = &mut shards;
        let (mut here, mut there) = (Holding::of("a".into()), Holding::of("a".into()));
        assert_eq!(one.book(&mut here, MIB), Ok(()));
        assert_eq!(two.book(&mut there, MIB), Err(HeldFull::Source(MIB)));
        one.leave(here);
        assert_eq!(two.book(&mut there, MIB), Ok(()));
    }
}
