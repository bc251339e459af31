//! Accepted connections that have not shown what they want: they hold a descriptor and have said nothing yet, or not
//! all of a greeting. Where there is no room, the oldest of the source that has most of them gives way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use trunkline_engine::PeerKey;
use trunkline_net::Source;

/// The connections, by where they come from and in the order they came. As many as there are accepted connections.
#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    of_source: HashMap<Source, BTreeMap<u64, Newcomer>>,
    /// Sources by how many newcomers each has.
    by_count: BTreeSet<(usize, Source)>,
}

/// Where in the shard a newcomer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Newcomer {
    /// Among the visitors, under this number.
    Visitor(u64),
    /// It has begun to speak the native protocol.
    Peer(PeerKey),
}

/// A newcomer's entry. Numbers grow with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub source: Source,
    pub number: u64,
}

impl Newcomers {
    /// Adds a newcomer, or says where it is now.
    pub fn insert(&mut self, entry: Entry, newcomer: Newcomer) {
        self.change(entry.source, |of_source| _ = of_source.insert(entry.number, newcomer));
    }

    /// It is none any more, or gone.
    pub fn remove(&mut self, entry: Entry) {
        self.change(entry.source, |of_source| _ = of_source.remove(&entry.number));
    }

    /// The oldest of this source, or of the one that has most.
    pub fn oldest(&self, source: Option<Source>) -> Option<(Entry, Newcomer)> {
        let source = source.or_else(|| self.by_count.last().map(|(_, source)| *source))?;
        let (&number, &newcomer) = self.of_source.get(&source)?.first_key_value()?;
        Some((Entry { source, number }, newcomer))
    }

    fn change(&mut self, source: Source, act: impl FnOnce(&mut BTreeMap<u64, Newcomer>)) {
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
    //! Shows who gives way, and that nothing stays of who has gone.
    use super::*;

    #[test]
    fn the_oldest_of_the_largest_source() {
        let mut newcomers = Newcomers::default();
        let entry = |uid, number| Entry { source: Source::User(uid), number };
        for (uid, number) in [(1, 1), (2, 2), (2, 3), (1, 4), (2, 5)] {
            newcomers.insert(entry(uid, number), Newcomer::Visitor(number));
        }
        assert_eq!(newcomers.oldest(None), Some((entry(2, 2), Newcomer::Visitor(2))));
        assert_eq!(newcomers.oldest(Some(Source::User(1))), Some((entry(1, 1), Newcomer::Visitor(1))));
        newcomers.insert(entry(2, 2), Newcomer::Peer(PeerKey::from_bits(9)));
        assert_eq!(newcomers.oldest(None), Some((entry(2, 2), Newcomer::Peer(PeerKey::from_bits(9)))));
        newcomers.remove(entry(2, 2));
        newcomers.remove(entry(2, 3));
        assert_eq!(newcomers.oldest(None), Some((entry(1, 1), Newcomer::Visitor(1))));
        for (uid, number) in [(1, 1), (1, 4), (2, 5), (2, 5)] {
            newcomers.remove(entry(uid, number));
        }
        assert_eq!(newcomers.oldest(None), None);
        assert!(newcomers.of_source.is_empty() && newcomers.by_count.is_empty());
    }
}
