//! Places for connections: so many in all, and so many from one source.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections that are answered at once.
pub const PLACES_MAX: usize = 8;
/// Those of them that may come from one address (of IPv6: one /64): whoever is slow on purpose leaves places to others.
pub const PLACES_OF_SOURCE_MAX: usize = 4;

/// The places. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReaderLimit(Arc<Mutex<Vec<IpAddr>>>);

/// A connection's place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct ReaderPermit {
    places: ReaderLimit,
    source: IpAddr,
}

impl ReaderLimit {
    /// A place for a connection from this address, if there is one.
    pub fn admit(&self, address: IpAddr) -> Option<ReaderPermit> {
        let source = source_of(address);
        let mut taken = self.taken();
        let of_source = taken.iter().filter(|one| **one == source).count();
        if taken.len() >= PLACES_MAX || of_source >= PLACES_OF_SOURCE_MAX {
            return None;
        }
        taken.push(source);
        Some(ReaderPermit { places: self.clone(), source })
    }

    fn taken(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReaderPermit {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(at) = taken.iter().position(|one| *one == self.source) {
            taken.swap_remove(at);
        }
    }
}

/// Of IPv6 the first half: a host has the other half for itself.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    //! Shows that no source has all places, and that they are given back.
    use super::*;

    #[test]
    fn a_source_leaves_places_to_others() {
        let places = ReaderLimit::default();
        let admit = |address: &str| places.admit(address.parse().unwrap());
        let own: Vec<_> = (0..PLACES_OF_SOURCE_MAX).map(|_| admit("10.0.0.1").unwrap()).collect();
        assert!(admit("10.0.0.1").is_none() && admit("::ffff:10.0.0.1").is_none());
        let others: Vec<_> =
            (0..PLACES_OF_SOURCE_MAX).map(|n| admit(&format!("2001:db8::{n}")).unwrap()).collect();
        assert!(admit("10.0.0.2").is_none(), "all are taken");
        drop(own);
        assert!(admit("2001:db8::99").is_none() && admit("2001:db8:0:1::").is_some());
        drop(others);
        assert!(places.taken().is_empty());
    }
}
