//! Which native peers have announced which methods: who is to hear of it when it changes who serves a service here.

use crate::PeerKey;
use crate::registry::service_of;
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::{KeyedMap, KeyedSet};
use trunkline_native::MethodIndex;

/// A peer, and its number for a method.
type Announcer = (PeerKey, MethodIndex);
/// The methods of a service that anybody has announced.
type Paths = KeyedMap<Arc<str>, KeyedSet<Announcer>>;

/// What peers have announced, by path. Bounded by what each of them may announce, and there for as long as they are.
#[derive(Debug, Default)]
pub(crate) struct Announcers {
    services: KeyedMap<Box<str>, Paths>,
    /// Paths whose announcers are to be told what holds now, each once, however often that changes meanwhile.
    waiting: VecDeque<Arc<str>>,
    waits: KeyedSet<Arc<str>>,
}

impl Announcers {
    /// A peer has announced a method by this number.
    pub fn enter(&mut self, path: &Arc<str>, peer: PeerKey, index: MethodIndex) {
        let service = service_of(path);
        let paths = match self.services.get_mut(service) {
            Some(paths) => paths,
            None => self.services.entry(service.into()).or_default(),
        };
        paths.entry(Arc::clone(path)).or_default().insert((peer, index));
    }

    /// The peer has gone, or its number is another method's.
    pub fn leave(&mut self, path: &str, peer: PeerKey, index: MethodIndex) {
        let Some(paths) = self.services.get_mut(service_of(path)) else { return };
        let Some(announcers) = paths.get_mut(path) else { return };
        announcers.remove(&(peer, index));
        if announcers.is_empty() {
            paths.remove(path);
        }
        if paths.is_empty() {
            self.services.remove(service_of(path));
        }
    }

    /// Others serve this service, or as other types: those who have announced methods of it are to be told.
    pub fn changed(&mut self, service: &str) {
        let Self { services, waiting, waits } = self;
        for path in services.get(service).into_iter().flat_map(KeyedMap::keys) {
            if waits.insert(Arc::clone(path)) {
                waiting.push_back(Arc::clone(path));
            }
        }
    }

    /// The same of all.
    pub fn all_changed(&mut self) {
        let all: Vec<Box<str>> = self.services.keys().cloned().collect();
        all.iter().for_each(|service| self.changed(service));
    }

    /// The next path of which announcers are to be told, and those, in the order of their slots.
    pub fn next(&mut self) -> Option<(Arc<str>, Vec<Announcer>)> {
        let path = self.waiting.pop_front()?;
        self.waits.remove(&path);
        let known = self.services.get(service_of(&path)).and_then(|paths| paths.get(&path));
        let mut announcers: Vec<_> = known.into_iter().flatten().copied().collect();
        announcers.sort_unstable_by_key(|(peer, index)| (peer.index(), index.0));
        Some((path, announcers))
    }

    /// Whether any are to be told.
    #[inline]
    pub fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that those hear of a change whom it concerns, each once, and that nothing is left of peers that have gone.
    use super::*;

    #[test]
    fn who_announced_the_service_hears_of_it_and_nobody_else() {
        let mut announcers = Announcers::default();
        let [one, other] = [1, 2].map(PeerKey::from_bits);
        let paths: [Arc<str>; 3] = ["/a.B/C", "/a.B/D", "/x.Y/Z"].map(Arc::from);
        announcers.enter(&paths[0], other, MethodIndex(7));
        announcers.enter(&paths[0], one, MethodIndex(9));
        announcers.enter(&paths[1], one, MethodIndex(1));
        announcers.enter(&paths[2], other, MethodIndex(1));
        announcers.changed("b.B");
        assert!(!announcers.are_waiting());
        announcers.changed("a.B");
        announcers.changed("a.B");
        let mut told: Vec<_> = std::iter::from_fn(|| announcers.next()).collect();
        told.sort_by(|one, other| one.0.cmp(&other.0));
        let first = (Arc::clone(&paths[0]), vec![(one, MethodIndex(9)), (other, MethodIndex(7))]);
        assert_eq!(told, [first, (Arc::clone(&paths[1]), vec![(one, MethodIndex(1))])]);
        announcers.all_changed();
        announcers.leave(&paths[2], other, MethodIndex(1));
        announcers.leave(&paths[2], other, MethodIndex(1));
        announcers.leave(&paths[0], other, MethodIndex(7));
        announcers.leave(&paths[0], one, MethodIndex(9));
        announcers.leave(&paths[1], one, MethodIndex(1));
        assert!(announcers.services.is_empty());
        assert!(std::iter::from_fn(|| announcers.next()).all(|(_, announcers)| announcers.is_empty()));
        assert!(announcers.waits.is_empty() && !announcers.are_waiting());
    }
}
