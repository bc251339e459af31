//! What other shards of this host serve, as they have said.

use super::by_slot::BySlot;
use super::crossing::{MethodOffer, Offers, ShardIndex};
use crate::registry::{MethodKey, MethodTypes, Registry, service_of};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use trunkline_call::{KeyedMap, Pattern};
use trunkline_telemetry::Telemetry;

/// Methods and services that other shards serve. Each shard's part is replaced as a whole; it is bounded by the routes
/// of the sessions there. Each of the methods is held in this shard's registry, once, and given back with the last that
/// serves it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Elsewhere {
    methods: BySlot<Vec<ServingShard>>,
    /// Services served as a whole, by full name.
    whole: KeyedMap<Box<str>, Vec<ServingShard>>,
    owners: OwnersElsewhere,
    /// How new it is what is known of each shard.
    #[serde(default)]
    versions: Vec<(ShardIndex, u64)>,
    /// What each shard has said last of each of its services, summed up.
    #[serde(skip)]
    sums: HashMap<ShardIndex, HashMap<Box<str>, u64>>,
}

/// Who serves which service on which shard, by the service's full name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(ShardIndex, Box<str>, Box<str>)>", into = "Vec<(ShardIndex, Box<str>, Box<str>)>")]
struct OwnersElsewhere(HashMap<Box<str>, Vec<OwnerElsewhere>>);

/// Whose a service's name is on a shard.
#[derive(Clone, Debug)]
struct OwnerElsewhere {
    shard: ShardIndex,
    identity: Box<str>,
    /// A call for it has come back from there: as far as is known, it is not served any more.
    is_away: bool,
}

/// A shard that serves a method.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ServingShard {
    pub shard: ShardIndex,
    pub types: Arc<MethodTypes>,
    pub stands_by: bool,
    pub workers: u32,
}

impl Elsewhere {
    /// A shard serves this from now on, and nothing else. The services of which it said something else before; `None`
    /// if it has said nothing yet.
    pub fn replace(
        &mut self,
        shard: ShardIndex,
        offers: &Offers,
        registry: &mut Registry,
        telemetry: &mut Telemetry,
    ) -> Option<Vec<Box<str>>> {
        if self.is_known(shard, offers.version) {
            return Some(Vec::new());
        }
        for serving in self.methods.values_mut().chain(self.whole.values_mut()) {
            serving.retain(|one| one.shard != shard);
        }
        self.owners.retain(|at| at != shard);
        self.add(shard, offers, registry, telemetry);
        // After that: what is served as before is held all the time.
        self.methods.retain(|method, serving| {
            if serving.is_empty() {
                registry.release(MethodKey::from_bits(method));
            }
            !serving.is_empty()
        });
        self.whole.retain(|_, serving| !serving.is_empty());
        self.note_sums(shard, offers)
    }

    fn note_sums(&mut self, shard: ShardIndex, offers: &Offers) -> Option<Vec<Box<str>>> {
        let mut now: HashMap<Box<str>, u64> = HashMap::new();
        for offer in &offers.methods {
            let service = service_of(&offer.types.path);
            let sum = match now.get_mut(service) {
                Some(sum) => sum,
                None => now.entry(service.into()).or_default(),
            };
            let mut hasher = DefaultHasher::new();
            (&offer.types.path, kind_of(&offer.types)).hash(&mut hasher);
            // In whichever order they come.
            *sum = sum.wrapping_add(hasher.finish());
        }
        let before = self.sums.insert(shard, now)?;
        let now = &self.sums[&shard];
        let changed = now.iter().filter(|(service, sum)| before.get(*service) != Some(*sum));
        let changed = changed.map(|(service, _)| service.clone());
        let gone = before.keys().filter(|service| !now.contains_key(*service)).cloned();
        Some(changed.chain(gone).collect())
    }

    /// A shard serves what a session that moves there serves. It says so itself, but may have said what it served
    /// before that later than this comes.
    pub fn bring(
        &mut self,
        shard: ShardIndex,
        offers: &Offers,
        registry: &mut Registry,
        telemetry: &mut Telemetry,
    ) {
        // What is as new has it already.
        let known = self.versions.iter().find(|(at, _)| *at == shard);
        if known.is_none_or(|(_, version)| *version < offers.version) {
            self.is_known(shard, offers.version);
            self.add(shard, offers, registry, telemetry);
        }
    }

    /// A shard serves this, too.
    pub fn add(
        &mut self,
        shard: ShardIndex,
        offers: &Offers,
        registry: &mut Registry,
        telemetry: &mut Telemetry,
    ) {
        for offer in &offers.methods {
            let (types, stands_by, workers) = (Arc::clone(&offer.types), offer.stands_by, offer.workers);
            let serving = ServingShard { shard, types, stands_by, workers };
            let path = &offer.types.path;
            if offer.types.whole_service {
                self.whole.entry(service_of(path).into()).or_default().push(serving);
            } else {
                let method = registry.intern(path, || telemetry.method(path));
                let held = || {
                    registry.hold(method);
                    Vec::new()
                };
                self.methods.get_or_insert_with(method.to_bits(), held).push(serving);
            }
        }
        offers.owners.iter().for_each(|(service, identity)| self.owners.add(shard, service, identity));
    }

    /// A shard does not serve a method any more, nor all of its service.
    pub fn forget_server(
        &mut self,
        shard: ShardIndex,
        method: MethodKey,
        path: &str,
        registry: &mut Registry,
    ) {
        if let Some(serving) = self.methods.get_mut(method.to_bits()) {
            serving.retain(|one| one.shard != shard);
            if serving.is_empty() {
                self.methods.remove(method.to_bits());
                registry.release(method);
            }
        }
        let service = service_of(path);
        if let Some(serving) = self.whole.get_mut(service) {
            serving.retain(|one| one.shard != shard);
            if serving.is_empty() {
                self.whole.remove(service);
            }
        }
        let owners = self.owners.0.get_mut(service).into_iter().flatten();
        owners.filter(|owner| owner.shard == shard).for_each(|owner| owner.is_away = true);
    }

    /// How new it is what is known of a shard.
    pub fn version_of(&self, shard: ShardIndex) -> u64 {
        self.versions.iter().find(|(at, _)| *at == shard).map_or(0, |(_, version)| *version)
    }

    /// Notes how new it is what is said of a shard. Whether something newer is known.
    fn is_known(&mut self, shard: ShardIndex, version: u64) -> bool {
        match self.versions.iter_mut().find(|(at, _)| *at == shard) {
            Some((_, known)) if *known > version => true,
            Some((_, known)) => {
                *known = version;
                false
            }
            None => {
                self.versions.push((shard, version));
                false
            }
        }
    }

    /// Forgets what other shards than these serve; one that comes anew counts from the beginning. Of a state that was
    /// handed over, before its methods are held again.
    pub fn retain(&mut self, is_here: impl Fn(ShardIndex) -> bool) {
        for serving in self.methods.values_mut().chain(self.whole.values_mut()) {
            serving.retain(|one| is_here(one.shard));
        }
        self.methods.retain(|_, serving| !serving.is_empty());
        self.whole.retain(|_, serving| !serving.is_empty());
        self.owners.retain(is_here);
        self.versions.clear();
        self.sums.clear();
    }

    /// Who serves a method, if that is one shard, and none serves a service as a whole: mostly it is so.
    #[inline]
    pub fn only_one(&self, method: MethodKey) -> Option<&ServingShard> {
        match self.methods.get(method.to_bits()).map(Vec::as_slice) {
            Some([one]) if self.whole.is_empty() => Some(one),
            _ => None,
        }
    }

    /// Who serves a method of this path.
    pub fn serving(&self, method: MethodKey, path: &str) -> impl Iterator<Item = &ServingShard> {
        let whole = if self.whole.is_empty() { None } else { self.whole.get(service_of(path)) };
        self.methods.get(method.to_bits()).into_iter().chain(whole).flatten()
    }

    /// Whether anybody serves a method of this path.
    #[inline(always)]
    pub fn is_served(&self, method: MethodKey, path: &str) -> bool {
        self.methods.get(method.to_bits()).is_some_and(|serving| !serving.is_empty())
            || !self.whole.is_empty() && self.serving(method, path).next().is_some()
    }

    /// Whether a service is served there as a whole.
    pub fn has_whole(&self, service: &str) -> bool {
        self.whole.contains_key(service)
    }

    /// Whether any method of a service is served there.
    pub fn serves(&self, service: &str) -> bool {
        self.owners.0.get(service).is_some_and(|owners| owners.iter().any(|owner| !owner.is_away))
    }

    /// A user other than this one that serves the service there.
    pub fn owner_other_than(&self, identity: &str, service: &str) -> Option<&str> {
        let mut owners = self.owners.0.get(service)?.iter().map(|owner| &*owner.identity);
        owners.find(|owner| *owner != identity)
    }

    /// Everybody who serves anything.
    pub fn iter(&self) -> impl Iterator<Item = &ServingShard> {
        self.methods.iter().map(|(_, serving)| serving).chain(self.whole.values()).flatten()
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut ServingShard> {
        self.methods.values_mut().chain(self.whole.values_mut()).flatten()
    }

    /// The methods that are served there by their names.
    pub fn methods(&self) -> impl Iterator<Item = MethodKey> {
        self.methods.iter().map(|(method, _)| MethodKey::from_bits(method))
    }

    /// Whether every method it names is known to `knows`.
    pub fn is_sound(&self, knows: impl Fn(MethodKey) -> bool) -> bool {
        self.methods().all(knows)
    }
}

impl OwnersElsewhere {
    /// A user serves a service there, too.
    fn add(&mut self, shard: ShardIndex, service: &str, identity: &str) {
        let owner = OwnerElsewhere { shard, identity: identity.into(), is_away: false };
        self.0.entry(service.into()).or_default().push(owner);
    }

    /// Forgets those of other shards than these.
    fn retain(&mut self, is_kept: impl Fn(ShardIndex) -> bool) {
        self.0.retain(|_, owners| {
            owners.retain(|owner| is_kept(owner.shard));
            !owners.is_empty()
        });
    }
}

impl From<Vec<(ShardIndex, Box<str>, Box<str>)>> for OwnersElsewhere {
    fn from(all: Vec<(ShardIndex, Box<str>, Box<str>)>) -> Self {
        let mut owners = Self::default();
        all.iter().for_each(|(shard, service, identity)| owners.add(*shard, service, identity));
        owners
    }
}

impl From<OwnersElsewhere> for Vec<(ShardIndex, Box<str>, Box<str>)> {
    fn from(owners: OwnersElsewhere) -> Self {
        let of_service = |(service, owners): (Box<str>, Vec<OwnerElsewhere>)| {
            owners.into_iter().map(move |owner| (owner.shard, service.clone(), owner.identity))
        };
        owners.0.into_iter().flat_map(of_service).collect()
    }
}

impl Offers {
    /// What a shard serves; a session's service of a method counts as one worker.
    pub fn of(registry: &Registry, owners: Vec<(Box<str>, Box<str>)>) -> Self {
        let mut methods: Vec<MethodOffer> = Vec::new();
        let mut alike: HashMap<_, usize> = HashMap::new();
        for row in registry.iter_from(0) {
            // Of those whose messages can be taken for one another: as many may serve it, each with types of its own.
            alike.clear();
            for server in row.written.iter() {
                match alike.entry((server.stands_by, kind_of(&server.types))) {
                    Entry::Occupied(at) => methods[*at.get()].workers += 1,
                    Entry::Vacant(place) => {
                        place.insert(methods.len());
                        let types = Arc::clone(&server.types);
                        methods.push(MethodOffer { types, stands_by: server.stands_by, workers: 1 });
                    }
                }
            }
        }
        Self { methods, owners, version: registry.version() }
    }
}

impl Offers {
    /// What a session serves.
    pub fn of_session<'a>(
        types: impl Iterator<Item = &'a Arc<MethodTypes>>,
        owners: Vec<(Box<str>, Box<str>)>,
    ) -> Self {
        let offer =
            |types: &Arc<MethodTypes>| MethodOffer { types: Arc::clone(types), stands_by: false, workers: 1 };
        Self { methods: types.map(offer).collect(), owners, version: 0 }
    }

    /// Whether a method of this path is among it.
    pub fn has(&self, path: &str) -> bool {
        self.methods.iter().any(|offer| match offer.types.whole_service {
            true => service_of(&offer.types.path) == service_of(path),
            false => *offer.types.path == *path,
        })
    }
}

/// What types have in common whose messages can be taken for one another.
fn kind_of(types: &MethodTypes) -> ([u64; 2], Pattern, bool) {
    let prints = [types.input.fingerprint(), types.output.fingerprint()];
    (prints, types.pattern, types.whole_service)
}
