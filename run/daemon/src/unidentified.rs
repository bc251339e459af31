//! Unidentified connections: accepted, but they have sent nothing yet, or not all of a HELLO. At the limit of accepted
//! connections the oldest of the source that has most of them is closed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use trunkline_engine::PeerKey;
use trunkline_net::Source;

/// The connections, by where they come from and in the order they came. As many as there are accepted connections.
#[derive(Debug, Default)]
pub(crate) struct UnidentifiedConnections {
    of_source: HashMap<Source, BTreeMap<u64, Unidentified>>,
    /// Sources by how many of them each has.
    by_count: BTreeSet<(usize, Source)>,
}

/// Where in the shard an unidentified connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unidentified {
    /// Among the pending connections, under this number.
    Pending(u64),
    /// It has begun to speak the native protocol.
    Peer(PeerKey),
}

/// The key of an unidentified connection. Numbers grow with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnidentifiedKey {
    pub source: Source,
    pub number: u64,
}

impl UnidentifiedConnections {
    /// Adds one, or says where it is now.
    pub fn insert(&mut self, key: UnidentifiedKey, unidentified: Unidentified) {
        self.change(key.source, |of_source| _ = of_source.insert(key.number, unidentified));
    }

    /// It has identified itself, or is gone.
    pub fn remove(&mut self, key: UnidentifiedKey) {
        self.change(key.source, |of_source| _ = of_source.remove(&key.number));
    }

    /// The oldest of this source, or of the one that has most.
    pub fn oldest(&self, source: Option<Source>) -> Option<(UnidentifiedKey, Unidentified)> {
        let source = source.or_else(|| self.by_count.last().map(|(_, source)| *source))?;
        let (&number, &unidentified) = self.of_source.get(&source)?.first_key_value()?;
        Some((UnidentifiedKey { source, number }, unidentified))
    }

    fn change(&mut self, source: Source, act: impl FnOnce(&mut BTreeMap<u64, Unidentified>)) {
        let of_source = self.of_source.entry(source).or_default();
        let before = of_source.len();
        act(of_source);
        let count = of_source.len();
        if count == 0 {
            self.of_source.remove(&source);
        }
        if count != before {
            self.by_count.remove(&(before, source));
            if count > 0 {
                self.by_count.insert((count, source));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows which connection is the one to close, and that nothing stays of those that are gone.
    use super::*;

    #[test]
    fn the_oldest_of_the_largest_source() {
        let mut unidentified = UnidentifiedConnections::default();
        let key = |uid, number| UnidentifiedKey { source: Source::User(uid), number };
        for (uid, number) in [(1, 1), (2, 2), (2, 3), (1, 4), (2, 5)] {
            unidentified.insert(key(uid, number), Unidentified::Pending(number));
        }
        assert_eq!(unidentified.oldest(None), Some((key(2, 2), Unidentified::Pending(2))));
        assert_eq!(unidentified.oldest(Some(Source::User(1))), Some((key(1, 1), Unidentified::Pending(1))));
        unidentified.insert(key(2, 2), Unidentified::Peer(PeerKey::from_bits(9)));
        assert_eq!(unidentified.oldest(None), Some((key(2, 2), Unidentified::Peer(PeerKey::from_bits(9)))));
        unidentified.remove(key(2, 2));
        unidentified.remove(key(2, 3));
        assert_eq!(unidentified.oldest(None), Some((key(1, 1), Unidentified::Pending(1))));
        for (uid, number) in [(1, 1), (1, 4), (2, 5), (2, 5)] {
            unidentified.remove(key(uid, number));
        }
        assert_eq!(unidentified.oldest(None), None);
        assert!(unidentified.of_source.is_empty() && unidentified.by_count.is_empty());
    }
}
