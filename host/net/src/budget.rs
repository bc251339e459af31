//! How many accepted connections there may be: from one source, and in all. Each holds its place for as long as its
//! [`Stream`](crate::Stream) lives, whoever has it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a connection comes from, as far as one party is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// An address. Of IPv6 the first half: a host has the other half for itself.
    Address(IpAddr),
    /// A user of this host, by the kernel's word.
    User(u32),
}

/// So many connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// From one source.
    pub of_source: usize,
    /// In all.
    pub in_all: usize,
}

/// The places. Clones share them.
#[derive(Clone, Debug)]
pub struct ConnectionBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: ConnectionLimits,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    in_all: usize,
    /// As many as there are connections at most.
    of_source: HashMap<Source, usize>,
}

/// A connection's place; given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    shared: Arc<Shared>,
    source: Source,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The source has as many as one may have.
    Source,
    /// There are as many as there may be.
    All,
}

impl Source {
    /// An address, as far as one party has it.
    pub fn of_address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

impl ConnectionBudget {
    /// Places for so many.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self(Arc::new(Shared { limits, taken: Mutex::default() }))
    }

    /// A place for a connection from there.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn admit(&self, source: Source) -> Result<Place, Full> {
        let mut taken = self.0.taken();
        // First what the source itself can mend: where both are reached, nobody else is to give way for it in vain.
        if taken.of_source.get(&source).is_some_and(|count| *count >= self.0.limits.of_source) {
            return Err(Full::Source);
        }
        if taken.in_all >= self.0.limits.in_all {
            return Err(Full::All);
        }
        taken.add(source);
        Ok(Place { shared: Arc::clone(&self.0), source })
    }

    /// A place for a connection that is there already: it came from another process.
    pub fn hold(&self, source: Source) -> Place {
        self.0.taken().add(source);
        Place { shared: Arc::clone(&self.0), source }
    }

    /// The limits.
    pub fn limits(&self) -> ConnectionLimits {
        self.0.limits
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn add(&mut self, source: Source) {
        self.in_all += 1;
        *self.of_source.entry(source).or_default() += 1;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.shared.taken();
        taken.in_all -= 1;
        if let Some(count) = taken.of_source.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                taken.of_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows which limit holds when, that a place is given back with its owner, and what one source is.
    use super::*;

    fn address(text: &str) -> Source {
        Source::of_address(text.parse().unwrap())
    }

    #[test]
    fn places_are_taken_and_given_back() {
        let budget = ConnectionBudget::new(ConnectionLimits { of_source: 2, in_all: 3 });
        let [a, b] = [address("10.0.0.1"), Source::User(7)];
        let mut held = vec![budget.admit(a).unwrap(), budget.admit(a).unwrap()];
        assert_eq!(budget.admit(a).unwrap_err(), Full::Source);
        held.push(budget.admit(b).unwrap());
        assert_eq!(budget.admit(b).unwrap_err(), Full::All);
        assert_eq!(
            budget.admit(a).unwrap_err(),
            Full::Source,
            "it would have no place however many others left"
        );
        let inherited = budget.hold(b);
        held.clear();
        assert_eq!(budget.0.taken().of_source, HashMap::from([(b, 1)]));
        drop(inherited);
        assert!(budget.0.taken().of_source.is_empty() && budget.0.taken().in_all == 0);
        assert!(budget.admit(a).is_ok());
    }

    /// Shards accept at the same time: those that want the last place do not both have it.
    #[test]
    fn there_are_never_more_than_there_may_be() {
        let budget = ConnectionBudget::new(ConnectionLimits { of_source: 1000, in_all: 1 });
        let held = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        let Ok(place) = budget.admit(Source::User(7)) else { continue };
                        let before = held.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(before, 0, "somebody else has the only place");
                        held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(place);
                    }
                });
            }
        });
    }

    #[test]
    fn one_source() {
        for (one, other, are_one) in [
            ("10.0.0.1", "10.0.0.2", false),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            assert_eq!(address(one) == address(other), are_one, "{one} {other}");
        }
    }
}
