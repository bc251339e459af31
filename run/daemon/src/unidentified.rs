//! Unidentified connections: accepted, but they have sent nothing yet, or not all of a HELLO. At a limit the oldest of
//! the source that has most of them gives way, whichever shard has it (`giving_way.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use trunkline_engine::PeerKey;
use trunkline_net::Source;

/// The connections of all shards, by where they come from and in the order they came. As many as there are accepted
/// connections.
#[derive(Debug, Default)]
pub(crate) struct UnidentifiedOrder {
    of_source: HashMap<Source, BTreeMap<u64, UnidentifiedAt>>,
    /// Sources by how many of them each has.
    by_count: BTreeSet<(usize, Source)>,
    count: usize,
    next: u64,
}

/// Which shard has it, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnidentifiedAt {
    pub shard: usize,
    pub place: Unidentified,
}

/// Where in its shard an unidentified connection is.
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

impl UnidentifiedOrder {
    /// Another has come.
    pub fn enter(&mut self, source: Source, at: UnidentifiedAt) -> UnidentifiedKey {
        self.next += 1;
        let key = UnidentifiedKey { source, number: self.next };
        self.insert(key, at);
        key
    }

    /// Says where one is.
    pub fn insert(&mut self, key: UnidentifiedKey, at: UnidentifiedAt) {
        self.change(key.source, |of_source| _ = of_source.insert(key.number, at));
    }

    /// It is none any more. `false` if it was none.
    pub fn remove(&mut self, key: UnidentifiedKey) -> bool {
        let before = self.count;
        self.change(key.source, |of_source| _ = of_source.remove(&key.number));
        self.count < before
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The oldest of this source, or of the one that has most.
    pub fn oldest(&self, source: Option<Source>) -> Option<(UnidentifiedKey, UnidentifiedAt)> {
        let source = source.or_else(|| self.by_count.last().map(|(_, source)| *source))?;
        let (&number, &at) = self.of_source.get(&source)?.first_key_value()?;
        Some((UnidentifiedKey { source, number }, at))
    }

    fn change(&mut self, source: Source, act: impl FnOnce(&mut BTreeMap<u64, UnidentifiedAt>)) {
        let of_source = self.of_source.entry(source).or_default();
        let before = of_source.len();
        act(of_source);
        let count = of_source.len();
        if count == 0 {
            self.of_source.remove(&source);
        }
        self.count = self.count + count - before;
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
        let mut order = UnidentifiedOrder::default();
        let at = |place| UnidentifiedAt { shard: 0, place };
        let keys = [(1, 1), (2, 2), (2, 3), (1, 4), (2, 5)]
            .map(|(uid, pending)| order.enter(Source::User(uid), at(Unidentified::Pending(pending))));
        let oldest = |order: &UnidentifiedOrder, source| order.oldest(source).map(|(key, _)| key);
        assert_eq!(oldest(&order, None), Some(keys[1]), "user 2 has three");
        assert_eq!(oldest(&order, Some(Source::User(1))), Some(keys[0]));
        let peer = at(Unidentified::Peer(PeerKey::from_bits(9)));
        order.insert(keys[1], peer);
        assert_eq!((order.oldest(None), order.count()), (Some((keys[1], peer)), 5));
        order.remove(keys[1]);
        order.remove(keys[2]);
        assert_eq!(oldest(&order, None), Some(keys[0]));
        assert_eq!(keys.map(|key| order.remove(key)), [true, false, false, true, true]);
        assert!(order.of_source.is_empty() && order.by_count.is_empty() && order.count() == 0);
    }
}
