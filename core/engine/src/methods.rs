//! The methods somebody on this host has named, in slots. A name that nobody uses any more is forgotten, and a key to
//! it never reaches the method that takes its slot.

use crate::known_services::{KnownServices, ServiceSlot, WholeService};
pub use crate::method_key::MethodKey;
use crate::servers::{Server, Servers};
use http::uri::PathAndQuery;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use trunkline_call::KeyedMap;
use trunkline_telemetry::MethodIndex;

/// Services of this package are the host's own (the admin API): no peer reaches them, and only the daemon's own process
/// may serve them.
const OWN_PACKAGE: &str = "trunkline.";

/// Whether a service, by its full name, is one of the host's own.
pub fn is_own_service(full_name: &str) -> bool {
    full_name.starts_with(OWN_PACKAGE)
}

/// Unused methods that are remembered although nobody uses them, if somebody served them: health checks and callers
/// hear that they are away, and not that they are unknown.
const REMEMBERED_MAX: usize = 1024;
/// So many more are found before some are forgotten: each time, calls in flight are looked through.
const FORGOTTEN_AT_ONCE: usize = 1024;

/// All methods. Bounded by the routes of sessions, by what peers may name (`limits.methods_learned_per_service`), and
/// by the two numbers above.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct MethodTable {
    entries: Vec<MethodEntry>,
    #[serde(skip)]
    by_path: KeyedMap<Arc<str>, MethodKey>,
    /// The services whose methods these are.
    #[serde(skip)]
    services: KnownServices,
    #[serde(skip)]
    free: Vec<u32>,
    /// Those that nobody used any more at some time, the oldest first; some are used again.
    #[serde(skip)]
    unused: VecDeque<MethodKey>,
    /// How many were put there since some were last forgotten, and have a number in reports.
    #[serde(skip)]
    idle_numbers: usize,
    /// Their number at which some are forgotten.
    #[serde(skip)]
    forgets_at: usize,
    /// What a key to a forgotten method finds.
    #[serde(skip)]
    nothing: MethodEntry,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct MethodEntry {
    /// Empty in a free slot.
    pub path: Arc<str>,
    /// The path as a request to a gRPC server carries it, if one could.
    #[serde(skip)]
    pub http_path: Option<PathAndQuery>,
    /// It is one of the host's own services'.
    #[serde(skip)]
    pub is_own: bool,
    #[serde(skip, default = "unnumbered")]
    pub number: MethodIndex,
    /// Those who serve this method by its name; those who stand by are behind the others. Who serves all of its service
    /// is with that.
    pub servers: Vec<Server>,
    /// Whose turn it is among those in line.
    pub next: usize,
    /// Somebody serves it, or has.
    pub ever_served: bool,
    /// How often its slot was used before.
    #[serde(default)]
    generation: u32,
    /// Routes of sessions that call it, and one if other shards serve it.
    #[serde(skip)]
    routes: u32,
    /// A peer has named it, and it counts among those of its service.
    #[serde(default)]
    is_learned: bool,
    /// Clients of the gateway know it: it stays as long as the engine.
    #[serde(default)]
    stays: bool,
    /// It is among the unused, or would be if nobody served all of its service.
    #[serde(skip)]
    is_noted: bool,
    #[serde(skip)]
    service: ServiceSlot,
}

fn unnumbered() -> MethodIndex {
    MethodIndex(0)
}

impl Default for MethodEntry {
    fn default() -> Self {
        Self {
            path: "".into(),
            http_path: None,
            is_own: false,
            number: unnumbered(),
            servers: Vec::new(),
            next: 0,
            ever_served: false,
            generation: 0,
            routes: 0,
            is_learned: false,
            stays: false,
            is_noted: false,
            service: ServiceSlot::default(),
        }
    }
}

impl MethodTable {
    /// Knows the services of methods that were handed over; each is served as a whole by those in `whole`.
    pub fn know_services(&mut self, whole: impl Iterator<Item = (Box<str>, WholeService)>) {
        for entry in self.entries.iter_mut().filter(|entry| !entry.path.is_empty()) {
            entry.service = self.services.enter(service_of(&entry.path));
        }
        for (name, WholeService { all, servers, learned, .. }) in whole {
            let service = self.services.find(&name).and_then(|slot| self.services.make_whole(slot, all));
            if let Some(service) = service {
                (service.servers, service.learned) = (servers, learned);
            }
        }
    }

    /// Makes what follows from methods that were handed over. `false`: two have one path.
    pub fn take_up(&mut self, mut number: impl FnMut(&Arc<str>) -> MethodIndex) -> bool {
        for (slot, entry) in (0..).zip(&mut self.entries) {
            if entry.path.is_empty() {
                entry.servers.clear();
                self.free.push(slot);
                continue;
            }
            // An older engine wrote down who serves all of a service with each of its methods, too.
            entry.servers.retain(|server| !server.types.whole_service);
            entry.number = number(&entry.path);
            entry.http_path = trunkline_grpc::request::path(&entry.path);
            entry.is_own = is_own_path(&entry.path);
            let key = MethodKey::new(slot, entry.generation);
            if self.by_path.insert(Arc::clone(&entry.path), key).is_some() {
                return false;
            }
        }
        true
    }

    /// Adds a method whose path is not known yet.
    pub fn insert(&mut self, path: &Arc<str>, number: MethodIndex) -> MethodKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(MethodEntry::default());
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[slot as usize];
        *entry = MethodEntry {
            path: Arc::clone(path),
            http_path: trunkline_grpc::request::path(path),
            is_own: is_own_path(path),
            number,
            generation: entry.generation,
            service: self.services.enter(service_of(path)),
            ..MethodEntry::default()
        };
        let key = MethodKey::new(slot, entry.generation);
        self.by_path.insert(Arc::clone(path), key);
        key
    }

    /// A session's route leads to it, or another shard serves it.
    pub fn hold(&mut self, method: MethodKey) {
        if let Some(entry) = self.find_mut(method) {
            entry.routes += 1;
        }
    }

    /// A session that had a route to it has gone, or no other shard serves it any more.
    pub fn release(&mut self, method: MethodKey) {
        if let Some(entry) = self.find_mut(method) {
            entry.routes = entry.routes.saturating_sub(1);
            self.note_unused(method);
        }
    }

    /// It counts among the methods that peers have named of its service.
    pub fn learned(&mut self, method: MethodKey) {
        let Some(entry) = self.find_mut(method) else { return };
        let (service, is_new) = (entry.service, !std::mem::replace(&mut entry.is_learned, true));
        if let Some(whole) = self.services.whole_mut(service).filter(|_| is_new) {
            whole.learned += 1;
        }
        self.note_unused(method);
    }

    /// It is not forgotten.
    pub fn keep(&mut self, method: MethodKey) {
        if let Some(entry) = self.find_mut(method) {
            entry.stays = true;
        }
    }

    /// Puts it among the unused, if nobody uses it; while somebody serves all of its service, it rests.
    pub fn note_unused(&mut self, method: MethodKey) {
        let Some(entry) = self.find_mut(method) else { return };
        if entry.has_users() || std::mem::replace(&mut entry.is_noted, true) {
            return;
        }
        let (service, is_numbered) = (entry.service, entry.number != unnumbered());
        match self.services.whole_mut(service).filter(|whole| !whole.servers.is_empty()) {
            Some(whole) => whole.resting.push(method),
            None => {
                self.idle_numbers += usize::from(is_numbered);
                self.unused.push_back(method);
            }
        }
    }

    /// A session serves all of a method's service from now on.
    pub fn serve_all(&mut self, all: MethodKey, server: Server) {
        let service = self.get(all).service;
        if let Some(whole) = self.services.make_whole(service, all) {
            whole.enter(server);
        }
    }

    /// A session serves a method no more, nor, if it stands for them, all of its service.
    pub fn withdraw(&mut self, method: MethodKey, session: crate::SessionKey) {
        let Some(entry) = self.find_mut(method) else { return };
        entry.servers.retain(|server| server.session != session);
        let service = entry.service;
        if let Some(whole) = self.services.whole_mut(service).filter(|whole| whole.all == method) {
            let left = whole.withdraw(session);
            self.idle_numbers += left.len();
            self.unused.extend(left);
        }
        self.note_unused(method);
    }

    /// Finds all that nobody uses.
    pub fn find_unused(&mut self) {
        let all: Vec<MethodKey> = self.iter().map(|(key, _)| key).collect();
        all.into_iter().for_each(|method| self.note_unused(method));
    }

    /// Whether some are to be forgotten.
    pub fn has_many_unused(&self) -> bool {
        self.unused.len() >= self.forgets_at.max(REMEMBERED_MAX + FORGOTTEN_AT_ONCE)
    }

    /// About how many have a number in reports that nobody needs.
    pub fn idle_numbers(&self) -> usize {
        self.idle_numbers
    }

    /// Those that nobody uses have no number in reports from now on, but for those of calls in flight.
    pub fn give_numbers_back(&mut self, in_flight: &HashSet<MethodKey>) {
        for method in self.unused.clone() {
            if self.is_used(self.get(method)) || in_flight.contains(&method) {
                continue;
            }
            if let Some(entry) = self.find_mut(method) {
                entry.number = unnumbered();
            }
        }
        self.idle_numbers = 0;
    }

    /// Gives numbers to those that are used and have none, while there are some.
    pub fn number_again(&mut self, mut number: impl FnMut(&Arc<str>) -> MethodIndex) {
        let Self { entries, services, .. } = self;
        let unnumbered = entries.iter_mut().filter(|entry| entry.number == unnumbered());
        for entry in unnumbered.filter(|entry| !entry.path.is_empty()) {
            if entry.has_users() || !services.servers(entry.service).is_empty() {
                entry.number = number(&entry.path);
                if entry.number == MethodIndex::OTHER {
                    return;
                }
            }
        }
    }

    /// Forgets those that nobody uses, but for the last that were served and those of calls in flight.
    pub fn forget_unused(&mut self, in_flight: &HashSet<MethodKey>) {
        self.idle_numbers = 0;
        let (mut kept, mut used, mut remembered) = (VecDeque::new(), Vec::new(), 0);
        for method in std::mem::take(&mut self.unused).into_iter().rev() {
            let Some(entry) = self.find(method) else { continue };
            if self.is_used(entry) {
                if let Some(entry) = self.find_mut(method) {
                    entry.is_noted = false;
                }
                used.push(method);
                continue;
            }
            let is_remembered = self.was_served(entry) && remembered < REMEMBERED_MAX;
            remembered += usize::from(is_remembered);
            if is_remembered || in_flight.contains(&method) {
                kept.push_front(method);
                continue;
            }
            self.remove(method);
        }
        // They rest from now on, if they are used with their whole service only.
        used.into_iter().rev().for_each(|method| self.note_unused(method));
        self.forgets_at = kept.len() + FORGOTTEN_AT_ONCE;
        self.unused = kept;
        self.by_path.shrink_to(2 * self.by_path.len());
        self.services.shrink();
    }

    pub fn key_of(&self, path: &str) -> Option<MethodKey> {
        self.by_path.get(path).copied()
    }

    pub fn knows(&self, method: MethodKey) -> bool {
        self.find(method).is_some()
    }

    /// The method, or what stands for one that is forgotten: it has no path and no servers.
    pub fn get(&self, method: MethodKey) -> &MethodEntry {
        self.find(method).unwrap_or(&self.nothing)
    }

    pub fn find_mut(&mut self, method: MethodKey) -> Option<&mut MethodEntry> {
        let entry = self.entries.get_mut(method.slot())?;
        (entry.generation == method.generation() && !entry.path.is_empty()).then_some(entry)
    }

    /// A service of which a method is known, if it is served as a whole, or was.
    pub fn whole(&self, service: &str) -> Option<&WholeService> {
        self.services.whole(self.services.find(service)?)
    }

    /// Every service that is served as a whole, or was.
    pub fn every_whole(&self) -> impl Iterator<Item = &WholeService> {
        self.services.every_whole()
    }

    /// Those who serve a method.
    #[inline]
    pub fn servers<'a>(&'a self, entry: &'a MethodEntry) -> Servers<'a> {
        Servers { own: &entry.servers, whole: self.services.servers(entry.service) }
    }

    /// Those who are written down with it: who serves all of its service is so with the method that stands for all.
    pub fn written<'a>(&'a self, method: MethodKey, entry: &'a MethodEntry) -> Servers<'a> {
        let whole = self.services.whole(entry.service).filter(|whole| whole.all == method);
        Servers { own: &entry.servers, whole: whole.map_or(&[], |whole| &whole.servers) }
    }

    /// Whether somebody serves it, or has.
    pub fn was_served(&self, entry: &MethodEntry) -> bool {
        entry.ever_served || self.services.whole(entry.service).is_some()
    }

    fn is_used(&self, entry: &MethodEntry) -> bool {
        entry.has_users() || !self.services.servers(entry.service).is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (MethodKey, &MethodEntry)> {
        self.iter_from(0)
    }

    /// Those from this slot on.
    pub fn iter_from(&self, slot: usize) -> impl Iterator<Item = (MethodKey, &MethodEntry)> {
        let known = (0..).zip(&self.entries).skip(slot).filter(|(_, entry)| !entry.path.is_empty());
        known.map(|(slot, entry)| (MethodKey::new(slot, entry.generation), entry))
    }

    /// Every server, to be changed.
    pub fn every_server_mut(&mut self) -> impl Iterator<Item = &mut Server> {
        let Self { entries, services, .. } = self;
        let whole = services.every_whole_mut().flat_map(|whole| &mut whole.servers);
        let known = entries.iter_mut().filter(|entry| !entry.path.is_empty());
        known.flat_map(|entry| &mut entry.servers).chain(whole)
    }

    /// The same in the same order, each with what it serves.
    pub fn every_server(&self) -> impl Iterator<Item = (MethodKey, &Server)> {
        let own = self.iter().flat_map(|(key, entry)| entry.servers.iter().map(move |server| (key, server)));
        let whole = self.services.every_whole();
        own.chain(whole.flat_map(|whole| whole.servers.iter().map(|server| (whole.all, server))))
    }

    fn find(&self, method: MethodKey) -> Option<&MethodEntry> {
        let entry = self.entries.get(method.slot())?;
        (entry.generation == method.generation() && !entry.path.is_empty()).then_some(entry)
    }

    fn remove(&mut self, method: MethodKey) {
        let Some(entry) = self.find_mut(method) else { return };
        let generation = entry.generation.wrapping_add(1);
        let gone = std::mem::replace(entry, MethodEntry { generation, ..MethodEntry::default() });
        self.by_path.remove(&gone.path);
        self.free.push(method.slot() as u32);
        if let Some(whole) = self.services.whole_mut(gone.service).filter(|_| gone.is_learned) {
            whole.learned = whole.learned.saturating_sub(1);
        }
        self.services.leave(gone.service, service_of(&gone.path));
    }
}

impl MethodEntry {
    /// Whether anybody but those who serve its whole service uses it.
    fn has_users(&self) -> bool {
        self.routes > 0 || self.stays || !self.servers.is_empty()
    }
}

/// Whether a path is that of a method of the host's own services.
fn is_own_path(path: &str) -> bool {
    is_own_service(path.trim_start_matches('/'))
}

/// `package.Service` of `/package.Service/Method`.
pub(crate) fn service_of(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split_once('/').map_or(path, |(service, _)| service)
}

#[cfg(test)]
mod tests {
    //! Shows that names leave with those who used them, and what is remembered of them.
    use super::*;

    fn path(service: usize, method: usize) -> Arc<str> {
        format!("/a.S{service}/M{method}").into()
    }

    #[test]
    fn what_nobody_uses_is_forgotten_and_its_slot_used_again() {
        let mut methods = MethodTable::default();
        let held = methods.insert(&path(0, 0), MethodIndex(1));
        methods.hold(held);
        let mut stale = Vec::new();
        for round in 0..20 {
            let keys: Vec<_> = (1..=500).map(|at| methods.insert(&path(round, at), MethodIndex(2))).collect();
            keys.iter().for_each(|key| methods.hold(*key));
            keys.iter().for_each(|key| methods.release(*key));
            stale.extend(keys);
            if methods.has_many_unused() {
                methods.forget_unused(&HashSet::new());
                assert_eq!(methods.by_path.len(), 1);
            }
        }
        assert!(methods.entries.len() <= 1 + REMEMBERED_MAX + FORGOTTEN_AT_ONCE + 500);
        let fresh = methods.insert(&path(99, 0), MethodIndex(3));
        assert!(stale.iter().all(|key| *key != fresh && &*methods.get(*key).path != "/a.S99/M0"));
        assert_eq!(&*methods.get(held).path, "/a.S0/M0");
    }

    #[test]
    fn where_no_number_is_left_they_are_asked_for_once() {
        let mut methods = MethodTable::default();
        let keys: Vec<_> = (0..100).map(|at| methods.insert(&path(0, at), MethodIndex::OTHER)).collect();
        keys.iter().for_each(|key| methods.hold(*key));
        let mut asked = 0;
        let mut left = 10;
        let mut number = || {
            (asked, left) = (asked + 1, left - 1);
            if left < 0 { MethodIndex::OTHER } else { MethodIndex(7) }
        };
        (0..5).for_each(|_| methods.number_again(|_| number()));
        let numbered = keys.iter().filter(|key| methods.get(**key).number == MethodIndex(7)).count();
        assert_eq!((numbered, asked), (10, 15), "ten had one, and each time one asked in vain");
    }

    #[test]
    fn a_service_is_forgotten_with_the_last_of_its_methods() {
        let mut methods = MethodTable::default();
        let keys: Vec<_> = (0..64).map(|at| methods.insert(&path(at % 4, at), MethodIndex(1))).collect();
        // Not in the order they came in.
        for at in (0..64).map(|at| at * 37 % 64) {
            assert!(!methods.services.is_empty());
            methods.remove(keys[at]);
        }
        assert!(methods.services.is_empty());
    }

    #[test]
    fn calls_in_flight_and_what_was_served_last_are_not_forgotten() {
        let mut methods = MethodTable::default();
        let count = REMEMBERED_MAX + 10;
        let keys: Vec<_> = (0..count).map(|at| methods.insert(&path(1, at), MethodIndex(1))).collect();
        for key in &keys {
            methods.find_mut(*key).unwrap().ever_served = true;
            methods.learned(*key);
        }
        methods.find_unused();
        methods.forget_unused(&HashSet::from([keys[3]]));
        let known: Vec<bool> = keys.iter().map(|key| methods.knows(*key)).collect();
        assert_eq!((known[3], known[..10].iter().filter(|known| **known).count()), (true, 1));
        assert!(known[10..].iter().all(|known| *known), "the oldest go first");
        // Served again, and not forgotten however often it is asked.
        methods.hold(keys[20]);
        (0..5).for_each(|_| methods.forget_unused(&HashSet::new()));
        assert!(methods.knows(keys[20]));
        methods.release(keys[20]);
        assert_eq!(methods.unused.back(), Some(&keys[20]));
    }
}
