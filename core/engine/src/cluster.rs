//! The endpoints a call may go to: those of its service, or of the target its application bound.
//!
//! A cluster is a list of endpoints, some of them names that stand for others (`names.rs`). Its [`Balancer`] picks one
//! for every call at the moment of hand-over, so that a call that has to wait, and finds that its endpoint cannot be
//! reached, goes to another. What was picked is noted with the call ([`Placed`]) until its outcome is known, and told
//! to the balancer then.

use crate::call::Item;
use crate::engine::{Engine, Turn};
use crate::limits::WAITING;
use crate::pass::{Blocker, Refusal};
use crate::table::{Key, Table};
use crate::{CallKey, RemoteKey};
use http::uri::Authority;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_balance::{
    Balancer, EndpointRow, LoadReport, Pick, Readiness, Report, Settings, Wanted, key_of,
};
use trunkline_call::{Code, Fault, Instant, KeyedMap, MetadataReader};

/// Names a cluster. Clusters are never forgotten: there are as many as there are targets of services.
pub(crate) type ClusterKey = Key<Cluster>;

/// Services that are called at one endpoint, at most: each has a cluster of its own there.
const SERVICES_PER_ENDPOINT: usize = 16;

/// Endpoints of one service.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Cluster {
    service: Box<str>,
    /// As they were written: endpoints, and names.
    sources: Vec<RemoteKey>,
    #[serde(skip, default = "unsettled")]
    balancer: Balancer<RemoteKey>,
    /// Its names have been asked for.
    asked: bool,
}

/// All clusters.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Clusters {
    table: Table<Cluster>,
    by_service: KeyedMap<Box<str>, ClusterKey>,
    by_target: KeyedMap<(RemoteKey, Box<str>), ClusterKey>,
    #[serde(skip)]
    pub seed: u64,
}

fn unsettled() -> Balancer<RemoteKey> {
    Balancer::new(Settings::default(), 0)
}

/// The endpoint a call has been given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Placed {
    pub cluster: ClusterKey,
    pub endpoint: RemoteKey,
}

/// Where a call goes next.
enum Way {
    To(RemoteKey),
    /// Some name has not been looked up: its line.
    Wait(RemoteKey),
    /// No name is known to stand for anything.
    Nowhere(RemoteKey, String),
    /// All endpoints have as many calls under way as a policy lets them have.
    Full(u64),
    /// There is no endpoint and no name any more: the service was configured anew.
    Unserved,
    /// The call has ended.
    Ended,
}

impl Clusters {
    /// The cluster calls of a service go to unless they name a target.
    pub fn of_service(&self, service: &str) -> Option<ClusterKey> {
        let key = *self.by_service.get(service)?;
        self.table.find(key).filter(|cluster| !cluster.sources.is_empty()).map(|_| key)
    }

    fn insert(&mut self, service: &str, sources: Vec<RemoteKey>, settings: Settings) -> ClusterKey {
        let seed = self.seed.wrapping_add(self.table.len() as u64);
        let balancer = Balancer::new(settings, seed);
        self.table.insert(Cluster { service: service.into(), sources, balancer, asked: false })
    }
}

impl Engine {
    /// What a cluster of one target was asked for by, as it was written; `None` for those of the configuration.
    pub(crate) fn target_of(&self, key: ClusterKey) -> Option<&str> {
        let [source] = self.clusters.table.find(key)?.sources[..] else { return None };
        self.remotes.find(source).map(|remote| &*remote.endpoint)
    }

    /// The endpoints of every cluster and what is known of them: service, endpoint.
    pub fn endpoint_rows(&self, now: Instant) -> Vec<(String, EndpointRow<Arc<str>>)> {
        let rows = self.clusters.table.iter().flat_map(|(_, cluster)| {
            let rows = cluster.balancer.rows(now).into_iter();
            rows.map(|row| (cluster.service.to_string(), row))
        });
        rows.filter_map(|(service, row)| {
            let endpoint = Arc::clone(&self.remotes.find(row.endpoint)?.endpoint);
            let EndpointRow { outstanding, ejected, weight, .. } = row;
            Some((service, EndpointRow { endpoint, outstanding, ejected, weight }))
        })
        .collect()
    }

    /// The cluster of one target of a service, made if new; `None` at the limit.
    pub(crate) fn cluster_of_target(&mut self, remote: RemoteKey, service: &str) -> Option<ClusterKey> {
        let target = (remote, Box::from(service));
        if let Some(key) = self.clusters.by_target.get(&target) {
            return Some(*key);
        }
        if self.clusters.by_target.len() >= self.limits.endpoints * SERVICES_PER_ENDPOINT {
            return None;
        }
        let settings = self.balancing_of(service);
        let key = self.clusters.insert(service, vec![remote], settings);
        self.clusters.by_target.insert(target, key);
        self.gather_endpoints(key);
        Some(key)
    }

    /// Whether all of a cluster is reached over R2P2.
    pub(crate) fn is_reached_by_r2p2(&self, key: ClusterKey) -> bool {
        let Some(cluster) = self.clusters.table.find(key) else { return false };
        !cluster.sources.is_empty()
            && cluster.sources.iter().all(|source| self.r2p2_target(*source).is_some())
    }

    /// Says where calls of a service go.
    pub(crate) fn set_cluster(&mut self, service: &str, sources: Vec<RemoteKey>) {
        let settings = self.balancing_of(service);
        let key = match self.clusters.by_service.get(service) {
            Some(key) => *key,
            None => {
                let key = self.clusters.insert(service, Vec::new(), settings);
                self.clusters.by_service.insert(service.into(), key);
                key
            }
        };
        if let Some(cluster) = self.clusters.table.find_mut(key) {
            (cluster.sources, cluster.asked) = (sources, false);
        }
        self.gather_endpoints(key);
    }

    /// Takes clusters that were handed over: what is known of their endpoints begins anew, but for the calls they have.
    pub(crate) fn take_up_clusters(&mut self, moved: Clusters) {
        self.clusters = Clusters { seed: self.clusters.seed, ..moved };
        let keys: Vec<ClusterKey> = self.clusters.table.iter().map(|(key, _)| key).collect();
        for (key, count) in keys.into_iter().zip(0..) {
            let Some(cluster) = self.clusters.table.find_mut(key) else { continue };
            cluster.balancer = Balancer::new(Settings::default(), self.clusters.seed.wrapping_add(count));
            self.gather_endpoints(key);
        }
        for (_, call) in self.calls.iter() {
            let Some(placed) = call.placed else { continue };
            if let Some(cluster) = self.clusters.table.find_mut(placed.cluster) {
                cluster.balancer.occupy(placed.endpoint);
            }
        }
    }

    /// What is said about balancing has changed.
    pub(crate) fn rebalance(&mut self) {
        let keys: Vec<(ClusterKey, Box<str>)> =
            self.clusters.table.iter().map(|(key, cluster)| (key, cluster.service.clone())).collect();
        for (key, service) in keys {
            let settings = self.balancing_of(&service);
            if let Some(cluster) = self.clusters.table.find_mut(key) {
                cluster.balancer.configure(settings);
            }
        }
    }

    /// A policy of the host's operator, else what the service's users say, else nothing.
    fn balancing_of(&self, service: &str) -> Settings {
        let said = || self.service_configs.get(service).and_then(|config| config.load_balancing.as_ref());
        self.admission.chain().balance(service).or_else(said).cloned().unwrap_or_default()
    }

    /// What requests say they are for that go to this endpoint because a name of the cluster stands for it.
    pub(crate) fn authority_at(&self, placed: Placed) -> Option<&Authority> {
        let names = &self.remotes.names;
        let stands = |name: &&RemoteKey| {
            names.endpoints(**name).is_some_and(|endpoints| endpoints.contains(&placed.endpoint))
        };
        let cluster = self.clusters.table.find(placed.cluster)?;
        cluster.sources.iter().filter(stands).find_map(|name| names.authority(*name))
    }

    /// A name stands for other endpoints from now on.
    pub(crate) fn regather(&mut self, name: RemoteKey) {
        let has = |cluster: &Cluster| cluster.sources.contains(&name);
        let keys: Vec<ClusterKey> =
            self.clusters.table.iter().filter(|(_, cluster)| has(cluster)).map(|(key, _)| key).collect();
        for key in keys {
            self.gather_endpoints(key);
        }
    }

    /// Names whose clusters have this name, too: calls in their lines may have somewhere to go by now.
    pub(crate) fn names_beside(&self, name: RemoteKey) -> Vec<RemoteKey> {
        let beside = self.clusters.table.iter().filter(|(_, cluster)| cluster.sources.contains(&name));
        let mut names: Vec<RemoteKey> =
            beside.flat_map(|(_, cluster)| cluster.sources.iter().copied()).collect();
        names.retain(|source| *source != name && self.remotes.names.contains(*source));
        names.dedup();
        names
    }

    fn gather_endpoints(&mut self, key: ClusterKey) {
        let Some(cluster) = self.clusters.table.find_mut(key) else { return };
        let mut endpoints = Vec::new();
        for source in &cluster.sources {
            match self.remotes.names.endpoints(*source) {
                Some(named) => endpoints.extend_from_slice(named),
                None => endpoints.push(*source),
            }
        }
        let remotes = &self.remotes;
        let labelled = endpoints.iter().filter_map(|key| Some((*key, &*remotes.find(*key)?.endpoint)));
        cluster.balancer.set_endpoints(labelled);
    }

    // LIFE: 9 | endpoint picked, connection found or dialled | the endpoint |
    /// A call for a cluster: over to an endpoint of it, or in the line of a name.
    pub(crate) fn hand_to_cluster<'a>(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        cluster: ClusterKey,
        item: Item<'a>,
    ) -> Result<(), Refusal<'a>> {
        self.ask_names_once(cluster);
        let waits = self.calls.find(key).is_some_and(|call| call.waits_for_ready);
        let limit = self.limits.calls_waiting_per_endpoint;
        let way = self.way_of(turn.now, key, cluster, &item);
        let has_room =
            |name: RemoteKey| self.remotes.find(name).is_some_and(|name| name.waiting.len() < limit);
        let fault = match way {
            Way::To(endpoint) => return self.hand_to_remote(turn, key, endpoint, item),
            Way::Wait(name) if has_room(name) => return Err(Refusal::Blocked(item, Blocker::Remote(name))),
            Way::Wait(_) => Fault::Limit { name: WAITING, limit: limit as u64 },
            Way::Nowhere(name, why) => {
                // The next answer may be better, and who is ready to wait gets it.
                let ready = waits && has_room(name);
                self.ask_name(name);
                if ready {
                    return Err(Refusal::Blocked(item, Blocker::Remote(name)));
                }
                let endpoint =
                    self.remotes.find(name).map_or_else(String::new, |name| name.endpoint.to_string());
                Fault::Unreachable { endpoint, why }
            }
            Way::Full(limit) => {
                let name = "calls under way per endpoint (outstanding_max of a balance policy)";
                Fault::Limit { name, limit }
            }
            Way::Unserved => self.unserved_call(key),
            Way::Ended => Fault::Ended,
        };
        self.drop_item(item);
        Err(Refusal::Fault(fault))
    }

    /// Calls of this one that may wait for a connection to one endpoint.
    pub(crate) fn pending_max(&self, key: CallKey) -> usize {
        let placed = self.calls.find(key).and_then(|call| call.placed);
        let cluster = placed.and_then(|placed| self.clusters.table.find(placed.cluster));
        let own = cluster.map_or(u32::MAX, |cluster| cluster.balancer.settings().circuit.pending_max);
        self.limits.calls_waiting_per_endpoint.min(own as usize)
    }

    /// A call was answered elsewhere before its endpoint did: that is slow.
    pub(crate) fn outpaced(&mut self, now: Instant, key: CallKey) {
        let Some(placed) = self.calls.find_mut(key).and_then(|call| call.placed.take()) else { return };
        if let Some(cluster) = self.clusters.table.find_mut(placed.cluster) {
            let report = Report { outpaced: true, ..Report::default() };
            cluster.balancer.finished(now, placed.endpoint, &report);
        }
    }

    /// How a call ended at the endpoint it was given, with the trailing metadata that came with it.
    pub(crate) fn tell_balancer(&mut self, now: Instant, key: CallKey, code: Option<Code>, trailers: &[u8]) {
        let Some(placed) = self.calls.find_mut(key).and_then(|call| call.placed.take()) else { return };
        let failed = code.is_some_and(|code| code != Code::Ok);
        if let Some(call) = self.calls.find_mut(key).filter(|_| failed) {
            call.tried.push(placed.endpoint);
        }
        let Some(cluster) = self.clusters.table.find_mut(placed.cluster) else { return };
        let weighs = matches!(cluster.balancer.settings().pick, Pick::Weighted(_));
        let load = weighs.then(|| value_of(trailers, LoadReport::KEY)).flatten();
        let load = load.and_then(|bytes| LoadReport::decode(&bytes));
        cluster.balancer.finished(now, placed.endpoint, &Report { code, load, outpaced: false });
    }

    /// The endpoint the call has, while that can be reached; else another.
    fn way_of(&mut self, now: Instant, key: CallKey, cluster_key: ClusterKey, item: &Item<'_>) -> Way {
        let Some(call) = self.calls.find(key) else { return Way::Ended };
        let placed = call.placed.filter(|placed| placed.cluster == cluster_key);
        let lane = self.lane_of(item);
        let reachable = |endpoint: RemoteKey| {
            self.remotes.find(endpoint).is_some_and(|remote| remote.is_reachable(now, lane))
        };
        if let Some(placed) = placed.filter(|placed| reachable(placed.endpoint)) {
            return Way::To(placed.endpoint);
        }
        self.tell_balancer(now, key, None, &[]);
        let Self { clusters, remotes, calls, .. } = self;
        let (Some(cluster), Some(call)) = (clusters.table.find_mut(cluster_key), calls.find_mut(key)) else {
            return Way::Unserved;
        };
        let readiness = |endpoint| match remotes.find(endpoint) {
            Some(remote) if remote.is_reachable(now, lane) => Readiness::Reachable,
            _ => Readiness::Failing,
        };
        let wanted = Wanted { key: hash_key(cluster.balancer.settings(), item), tried: &call.tried };
        match cluster.balancer.pick(now, wanted, readiness) {
            Some(Ok(endpoint)) => {
                call.placed = Some(Placed { cluster: cluster_key, endpoint });
                Way::To(endpoint)
            }
            Some(Err(full)) => Way::Full(full.outstanding_max.into()),
            None => cluster.without_endpoints(&remotes.names),
        }
    }

    fn ask_names_once(&mut self, key: ClusterKey) {
        let Some(cluster) = self.clusters.table.find_mut(key) else { return };
        if std::mem::replace(&mut cluster.asked, true) {
            return;
        }
        for source in cluster.sources.clone() {
            self.ask_name(source);
        }
    }
}

impl Cluster {
    fn without_endpoints(&self, names: &crate::names::Names) -> Way {
        let mut failed = None;
        for name in &self.sources {
            match names.failure(*name) {
                Some(why) => failed = failed.or(Some((*name, why.to_owned()))),
                None => return Way::Wait(*name),
            }
        }
        failed.map_or(Way::Unserved, |(name, why)| Way::Nowhere(name, why))
    }
}

/// The key by which equal calls meet, if the cluster has such a key and the call a value for it.
fn hash_key(settings: &Settings, item: &Item<'_>) -> Option<u64> {
    let (Pick::RingHash { header: Some(header), .. }, Item::Open { metadata, .. }) = (&settings.pick, item)
    else {
        return None;
    };
    value_of(metadata, header).map(|value| key_of(&value))
}

fn value_of<'m>(metadata: &'m [u8], wanted: &str) -> Option<Cow<'m, [u8]>> {
    let pairs = MetadataReader::read(metadata).ok()?;
    pairs.filter_map(Result::ok).find(|(key, _)| *key == wanted).map(|(_, value)| Cow::Borrowed(value))
}
