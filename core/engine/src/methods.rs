//! The methods somebody on this host has named, in slots. A name that nobody uses any more is forgotten, and a key to
//! it never reaches the method that takes its slot.

use crate::SessionKey;
use crate::method_types::MethodTypes;
use http::uri::PathAndQuery;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use trunkline_call::{KeyedMap, RouteIndex};
use trunkline_policy::Plan;
use trunkline_telemetry::MethodIndex;

/// Services of this package are the host's own (the admin API): no peer reaches them, and only the daemon's own process
/// may serve them.
const OWN_PACKAGE: &str = "trunkline.";

/// Whether a service, by its full name, is one of the host's own.
pub fn is_own_service(full_name: &str) -> bool {
    full_name.starts_with(OWN_PACKAGE)
}

/// Names a path for as long as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct MethodKey(u64);

impl MethodKey {
    /// Names nothing.
    pub(crate) const NOTHING: Self = Self(u64::MAX);

    /// As a number, whose lower half is the slot.
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    /// The key this number is; it may name nothing.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// One session's service of one method.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Server {
    /// Who.
    pub session: SessionKey,
    /// What its delivered calls carry.
    pub route: RouteIndex,
    /// With which types.
    pub types: Arc<MethodTypes>,
    /// Only while nobody else does.
    pub stands_by: bool,
    /// The policies its calls pass.
    #[serde(skip)]
    pub plan: Option<Arc<Plan>>,
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
    #[serde(skip)]
    by_service: HashMap<Box<str>, Vec<MethodKey>>,
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
    /// Those who stand by are behind the others.
    pub servers: Vec<Server>,
    pub next: usize,
    /// Somebody serves it, or has.
    pub ever_served: bool,
    /// How often its slot was used before.
    #[serde(default)]
    generation: u32,
    /// Routes of sessions that call it.
    #[serde(skip)]
    routes: u32,
    /// A peer has named it, and it counts among those of its service.
    #[serde(default)]
    is_learned: bool,
    /// Clients of the gateway know it: it stays as long as the engine.
    #[serde(default)]
    stays: bool,
    /// It is among the unused.
    #[serde(skip)]
    is_noted: bool,
    /// Where it is in the list of its service's methods.
    #[serde(skip)]
    at_of_service: usize,
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
            at_of_service: 0,
        }
    }
}

impl MethodKey {
    fn new(slot: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot))
    }

    fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl MethodTable {
    /// Makes what follows from methods that were handed over. `false`: two have one path.
    pub fn take_up(&mut self, mut number: impl FnMut(&Arc<str>) -> MethodIndex) -> bool {
        for (slot, entry) in (0..).zip(&mut self.entries) {
            if entry.path.is_empty() {
                entry.servers.clear();
                self.free.push(slot);
                continue;
            }
            entry.number = number(&entry.path);
            entry.http_path = trunkline_grpc::request::path(&entry.path);
            entry.is_own = is_own_path(&entry.path);
            let key = MethodKey::new(slot, entry.generation);
            let of_service = self.by_service.entry(service_of(&entry.path).into()).or_default();
            entry.at_of_service = of_service.len();
            of_service.push(key);
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
            ..MethodEntry::default()
        };
        let key = MethodKey::new(slot, entry.generation);
        self.by_path.insert(Arc::clone(path), key);
        let of_service = self.by_service.entry(service_of(path).into()).or_default();
        entry.at_of_service = of_service.len();
        of_service.push(key);
        key
    }

    /// A session's route leads to it.
    pub fn hold(&mut self, method: MethodKey) {
        if let Some(entry) = self.find_mut(method) {
            entry.routes += 1;
        }
    }

    /// A session that had a route to it has gone.
    pub fn release(&mut self, method: MethodKey) {
        if let Some(entry) = self.find_mut(method) {
            entry.routes = entry.routes.saturating_sub(1);
            self.note_unused(method);
        }
    }

    /// It counts among the methods that peers have named of its service.
    pub fn learned(&mut self, method: MethodKey) {
        if let Some(entry) = self.find_mut(method) {
            entry.is_learned = true;
        }
    }

    /// It is not forgotten.
    pub fn keep(&mut self, method: MethodKey) {
        if let Some(entry) = self.find_mut(method) {
            entry.stays = true;
        }
    }

    /// Puts it among the unused, if nobody uses it.
    pub fn note_unused(&mut self, method: MethodKey) {
        if let Some(entry) = self.find_mut(method)
            && !entry.is_used()
            && !std::mem::replace(&mut entry.is_noted, true)
        {
            let is_numbered = entry.number != unnumbered();
            self.idle_numbers += usize::from(is_numbered);
            self.unused.push_back(method);
        }
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
            if let Some(entry) = self.find_mut(method).filter(|entry| !entry.is_used())
                && !in_flight.contains(&method)
            {
                entry.number = unnumbered();
            }
        }
        self.idle_numbers = 0;
    }

    /// Gives numbers to those that are used and have none.
    pub fn number_again(&mut self, mut number: impl FnMut(&Arc<str>) -> MethodIndex) {
        for entry in self.entries_mut().filter(|entry| entry.number == unnumbered() && entry.is_used()) {
            entry.number = number(&entry.path);
        }
    }

    /// Forgets those that nobody uses, but for the last that were served and those of calls in flight; `forgotten`
    /// hears the paths of those that peers had named.
    pub fn forget_unused(&mut self, in_flight: &HashSet<MethodKey>, mut forgotten: impl FnMut(&str)) {
        self.idle_numbers = 0;
        let (mut kept, mut remembered) = (VecDeque::new(), 0);
        for method in std::mem::take(&mut self.unused).into_iter().rev() {
            let Some(entry) = self.find_mut(method) else { continue };
            if entry.is_used() {
                entry.is_noted = false;
                continue;
            }
            let is_remembered = entry.ever_served && remembered < REMEMBERED_MAX;
            remembered += usize::from(is_remembered);
            if is_remembered || in_flight.contains(&method) {
                kept.push_front(method);
                continue;
            }
            if entry.is_learned {
                forgotten(&entry.path);
            }
            self.remove(method);
        }
        self.forgets_at = kept.len() + FORGOTTEN_AT_ONCE;
        self.unused = kept;
        self.by_path.shrink_to(2 * self.by_path.len());
        self.by_service.shrink_to(2 * self.by_service.len());
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

    /// The known methods of a service.
    pub fn of_service(&self, service: &str) -> &[MethodKey] {
        self.by_service.get(service).map_or(&[], Vec::as_slice)
    }

    pub fn iter(&self) -> impl Iterator<Item = (MethodKey, &MethodEntry)> {
        let known = (0..).zip(&self.entries).filter(|(_, entry)| !entry.path.is_empty());
        known.map(|(slot, entry)| (MethodKey::new(slot, entry.generation), entry))
    }

    /// Those from this slot on.
    pub fn iter_from(&self, slot: usize) -> impl Iterator<Item = (usize, &MethodEntry)> {
        let slots = self.entries.iter().enumerate().skip(slot);
        slots.filter(|(_, entry)| !entry.path.is_empty())
    }

    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut MethodEntry> {
        self.entries.iter_mut().filter(|entry| !entry.path.is_empty())
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
        let service = service_of(&gone.path);
        let Some(methods) = self.by_service.get_mut(service) else { return };
        // The last takes its place, and no other is looked at: a service may have very many.
        methods.swap_remove(gone.at_of_service);
        match methods.get(gone.at_of_service).copied() {
            Some(moved) => {
                if let Some(entry) = self.find_mut(moved) {
                    entry.at_of_service = gone.at_of_service;
                }
            }
            None if methods.is_empty() => _ = self.by_service.remove(service),
            None => {}
        }
    }
}

impl MethodEntry {
    fn is_used(&self) -> bool {
        self.routes > 0 || self.stays || !self.servers.is_empty()
    }

    /// The first of those who stand by; as many serve without that.
    pub fn first_in_line(&self) -> usize {
        self.servers.partition_point(|server| !server.stands_by)
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
            assert_eq!(methods.of_service(&format!("a.S{round}")).len(), 500 + usize::from(round == 0));
            keys.iter().for_each(|key| methods.release(*key));
            stale.extend(keys);
            if methods.has_many_unused() {
                methods.forget_unused(&HashSet::new(), |_| panic!("no peer has named one"));
                assert_eq!(methods.by_path.len(), 1);
            }
        }
        assert!(methods.entries.len() <= 1 + REMEMBERED_MAX + FORGOTTEN_AT_ONCE + 500);
        let fresh = methods.insert(&path(99, 0), MethodIndex(3));
        assert!(stale.iter().all(|key| *key != fresh && &*methods.get(*key).path != "/a.S99/M0"));
        assert_eq!(&*methods.get(held).path, "/a.S0/M0");
    }

    #[test]
    fn a_method_that_is_forgotten_leaves_the_others_of_its_service_in_their_places() {
        let mut methods = MethodTable::default();
        let keys: Vec<_> = (0..64).map(|at| methods.insert(&path(1, at), MethodIndex(1))).collect();
        // Not in the order they came in.
        for at in (0..64).map(|at| at * 37 % 64) {
            methods.remove(keys[at]);
            let of_service = methods.of_service("a.S1");
            let is_in_place = |(at, key): (usize, &MethodKey)| methods.get(*key).at_of_service == at;
            assert!(of_service.iter().enumerate().all(is_in_place), "{at}");
            assert!(!of_service.contains(&keys[at]));
        }
        assert!(methods.by_service.is_empty());
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
        let mut forgotten = 0;
        methods.forget_unused(&HashSet::from([keys[3]]), |_| forgotten += 1);
        let known: Vec<bool> = keys.iter().map(|key| methods.knows(*key)).collect();
        assert_eq!((forgotten, known[3], known[..10].iter().filter(|known| **known).count()), (9, true, 1));
        assert!(known[10..].iter().all(|known| *known), "the oldest go first");
        // Served again, and not forgotten however often it is asked.
        methods.hold(keys[20]);
        (0..5).for_each(|_| methods.forget_unused(&HashSet::new(), |_| {}));
        assert!(methods.knows(keys[20]));
        methods.release(keys[20]);
        assert_eq!(methods.unused.back(), Some(&keys[20]));
    }
}
