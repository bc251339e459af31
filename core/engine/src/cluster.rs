//! The endpoints a call may go to: those of its service, or of the target its application bound.
//!
//! A cluster is a list of endpoints, some of them names that stand for others (`names.rs`). Its [`Balancer`] picks one
//! for every call at the moment of hand-over, so that a call that has to wait, and finds that its endpoint cannot be
//! reached, goes to another. What was picked is noted with the call ([`Placed`]) until its outcome is known, and told
//! to the balancer then.

use crate::RemoteKey;
use crate::names::Names;
use crate::remote::{LaneIndex, Remotes};
use crate::snapshot::{BalancedRow, SLOTS_PER_PART, TableRows};
use crate::table::{Key, Table};
use http::uri::Authority;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use trunkline_balance::{
    Balancer, EndpointRow, LoadReport, Pick, Readiness, Report, Settings, Wanted, key_of,
};
use trunkline_call::{Code, Instant, KeyedMap, MetadataReader};

/// Names a cluster. Those of configured services are never forgotten, those of bound targets with the last route.
pub(crate) type ClusterKey = Key<Cluster>;

/// Services that are called at one endpoint, at most: each has a cluster of its own there.
pub(crate) const SERVICES_PER_ENDPOINT: usize = 16;

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
    /// Which have an endpoint or a name: what becomes of one is found without the others. As many as they have written.
    #[serde(skip)]
    by_source: KeyedMap<RemoteKey, HashSet<ClusterKey>>,
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
#[derive(Debug)]
pub(crate) enum ClusterChoice {
    To(RemoteKey),
    /// Some name has not been looked up: its line.
    Wait(RemoteKey),
    /// No name is known to stand for anything.
    Nowhere(RemoteKey, String),
    /// All endpoints have as many calls under way as a policy lets them have.
    Full(u64),
    /// There is no endpoint and no name any more: the service was configured anew.
    Unserved,
}

impl Clusters {
    /// The cluster calls of a service go to unless they name a target.
    pub fn of_service(&self, service: &str) -> Option<ClusterKey> {
        let key = *self.by_service.get(service)?;
        self.table.find(key).filter(|cluster| !cluster.sources.is_empty()).map(|_| key)
    }

    /// What a cluster of one target was asked for by; `None` for those of the configuration.
    pub fn target_of(&self, key: ClusterKey) -> Option<RemoteKey> {
        let [source] = self.table.find(key)?.sources[..] else { return None };
        Some(source)
    }

    /// What operators see of the endpoints of the clusters in the next slots. A cluster of many ends the part.
    pub fn snapshot(&self, now: Instant, remotes: &Remotes, from: usize) -> TableRows<BalancedRow> {
        let (clusters, left) = self.table.part(from, SLOTS_PER_PART);
        let mut rows = Vec::new();
        for (key, cluster) in clusters {
            if rows.len() >= SLOTS_PER_PART {
                return TableRows { rows, left: Some(key.index()) };
            }
            rows.extend(cluster.balancer.rows(now).into_iter().filter_map(|row| {
                let endpoint = Arc::clone(&remotes.find(row.endpoint)?.endpoint);
                let EndpointRow { outstanding, ejected, weight, .. } = row;
                let service = cluster.service.to_string();
                Some(BalancedRow { service, endpoint, outstanding, ejected, weight })
            }));
        }
        TableRows { rows, left }
    }

    /// The cluster of one target of a service, made if new; `None` at the limit.
    pub fn of_target(
        &mut self,
        remotes: &Remotes,
        target: RemoteKey,
        service: &str,
        endpoints_max: usize,
        settings: impl FnOnce(&str) -> Settings,
    ) -> Option<ClusterKey> {
        let named = (target, Box::from(service));
        if let Some(key) = self.by_target.get(&named) {
            return Some(*key);
        }
        if self.by_target.len() >= endpoints_max * SERVICES_PER_ENDPOINT {
            return None;
        }
        let key = self.insert(service, vec![target], settings(service));
        self.by_target.insert(named, key);
        self.gather(remotes, key);
        Some(key)
    }

    /// No application has this target any more.
    pub fn remove_target(&mut self, key: ClusterKey) {
        let Some(target) = self.target_of(key) else { return };
        let Some(cluster) = self.table.find(key) else { return };
        let named = (target, cluster.service.clone());
        if self.by_target.get(&named) == Some(&key) {
            self.by_target.remove(&named);
            self.write_sources(key, Vec::new());
            self.table.remove(key);
        }
    }

    /// What configured services have of endpoints and names.
    pub fn sources_of_services(&self) -> HashSet<RemoteKey> {
        self.by_service.values().flat_map(|key| self.sources(*key)).copied().collect()
    }

    /// What the endpoints of a cluster were written as.
    pub fn sources(&self, key: ClusterKey) -> &[RemoteKey] {
        self.table.find(key).map_or(&[], |cluster| &cluster.sources)
    }

    /// Whether all of a cluster is reached over R2P2.
    pub fn is_reached_by_r2p2(&self, remotes: &Remotes, key: ClusterKey) -> bool {
        let sources = self.sources(key);
        !sources.is_empty() && sources.iter().all(|source| remotes.r2p2_target(*source).is_some())
    }

    /// Says where calls of a service go.
    pub fn set(
        &mut self,
        remotes: &Remotes,
        service: &str,
        sources: Vec<RemoteKey>,
        settings: impl FnOnce(&str) -> Settings,
    ) {
        let key = match self.by_service.get(service) {
            Some(key) => *key,
            None => {
                let key = self.insert(service, Vec::new(), settings(service));
                self.by_service.insert(service.into(), key);
                key
            }
        };
        self.write_sources(key, sources);
        if let Some(cluster) = self.table.find_mut(key) {
            cluster.asked = false;
        }
        self.gather(remotes, key);
    }

    /// Services have no endpoints any more but for these.
    pub fn retain_services(&mut self, remotes: &Remotes, is_kept: impl Fn(&str) -> bool) {
        let gone: Vec<ClusterKey> =
            self.by_service.iter().filter(|(service, _)| !is_kept(service)).map(|(_, key)| *key).collect();
        for key in gone {
            self.write_sources(key, Vec::new());
            self.gather(remotes, key);
        }
    }

    /// Takes clusters that were handed over: what is known of their endpoints begins anew.
    pub fn take_up(&mut self, remotes: &Remotes, moved: Self) {
        *self = Self { seed: self.seed, ..moved };
        let keys: Vec<ClusterKey> = self.table.iter().map(|(key, _)| key).collect();
        for (key, count) in keys.into_iter().zip(0..) {
            let Some(cluster) = self.table.find_mut(key) else { continue };
            cluster.balancer = Balancer::new(Settings::default(), self.seed.wrapping_add(count));
            let sources = std::mem::take(&mut cluster.sources);
            self.write_sources(key, sources);
            self.gather(remotes, key);
        }
    }

    /// A call that was handed over is at an endpoint.
    pub fn occupy(&mut self, placed: Placed) {
        if let Some(cluster) = self.table.find_mut(placed.cluster) {
            cluster.balancer.occupy(placed.endpoint);
        }
    }

    /// What is said about balancing has changed.
    pub fn configure(&mut self, settings: impl Fn(&str) -> Settings) {
        for (_, cluster) in self.table.iter_mut() {
            cluster.balancer.configure(settings(&cluster.service));
        }
    }

    /// What requests say they are for that go to this endpoint because a name of the cluster stands for it.
    pub fn authority_at<'r>(&self, remotes: &'r Remotes, placed: Placed) -> Option<&'r Authority> {
        let names = &remotes.names;
        let stands = |name: &&RemoteKey| names.stands_for(**name, placed.endpoint);
        self.sources(placed.cluster).iter().filter(stands).find_map(|name| names.authority(*name))
    }

    /// A name stands for other endpoints from now on.
    pub fn regather(&mut self, remotes: &Remotes, name: RemoteKey) {
        self.with_source(name).into_iter().for_each(|key| self.gather(remotes, key));
    }

    /// The clusters that have an endpoint or a name, as it was written; in the order of their slots.
    fn with_source(&self, source: RemoteKey) -> Vec<ClusterKey> {
        let mut keys: Vec<ClusterKey> = self.by_source.get(&source).into_iter().flatten().copied().collect();
        keys.sort_unstable_by_key(|key| key.index());
        keys
    }

    /// A cluster has these endpoints and names from now on, and no others.
    fn write_sources(&mut self, key: ClusterKey, sources: Vec<RemoteKey>) {
        let Self { table, by_source, .. } = self;
        let Some(cluster) = table.find_mut(key) else { return };
        for before in std::mem::take(&mut cluster.sources) {
            let Some(keys) = by_source.get_mut(&before) else { continue };
            keys.remove(&key);
            if keys.is_empty() {
                by_source.remove(&before);
            }
        }
        for source in &sources {
            by_source.entry(*source).or_default().insert(key);
        }
        cluster.sources = sources;
    }

    /// Names whose clusters have this name, too: calls in their lines may have somewhere to go by now.
    pub fn names_beside(&self, remotes: &Remotes, name: RemoteKey) -> Vec<RemoteKey> {
        let beside = self.with_source(name).into_iter().flat_map(|key| self.sources(key));
        let mut seen = HashSet::new();
        let others = beside.copied().filter(|source| *source != name && remotes.names.contains(*source));
        others.filter(|source| seen.insert(*source)).collect()
    }

    /// Endpoints of a cluster whose names are to be asked for: once, when it is first called.
    pub fn take_unasked(&mut self, key: ClusterKey) -> Vec<RemoteKey> {
        let Some(cluster) = self.table.find_mut(key) else { return Vec::new() };
        if std::mem::replace(&mut cluster.asked, true) { Vec::new() } else { cluster.sources.clone() }
    }

    /// Calls that may wait for a connection to the endpoint of one of them, by policy.
    pub fn pending_max(&self, placed: Placed) -> Option<u32> {
        Some(self.table.find(placed.cluster)?.balancer.settings().circuit.pending_max)
    }

    /// The endpoint a call has been given (`placed`), while that can be reached; else another, which it has from then
    /// on.
    pub fn place(
        &mut self,
        now: Instant,
        remotes: &Remotes,
        key: ClusterKey,
        lane: LaneIndex,
        metadata: &[u8],
        (placed, tried): (&mut Option<Placed>, &[RemoteKey]),
    ) -> ClusterChoice {
        if let Some(before) = placed.take() {
            let is_reachable = |key| remotes.find(key).is_some_and(|remote| remote.is_reachable(now, lane));
            if before.cluster == key && is_reachable(before.endpoint) {
                *placed = Some(before);
                return ClusterChoice::To(before.endpoint);
            }
            self.finished(now, before, None, &[]);
        }
        let choice = self.choose(now, remotes, key, lane, metadata, tried);
        if let ClusterChoice::To(endpoint) = choice {
            *placed = Some(Placed { cluster: key, endpoint });
        }
        choice
    }

    /// An endpoint for a call that opens with this metadata, and was in vain where it `tried`.
    fn choose(
        &mut self,
        now: Instant,
        remotes: &Remotes,
        key: ClusterKey,
        lane: LaneIndex,
        metadata: &[u8],
        tried: &[RemoteKey],
    ) -> ClusterChoice {
        let Some(cluster) = self.table.find_mut(key) else { return ClusterChoice::Unserved };
        let readiness = |endpoint| match remotes.find(endpoint) {
            Some(remote) if remote.is_reachable(now, lane) => Readiness::Reachable,
            _ => Readiness::Failing,
        };
        let wanted = Wanted { key: hash_key(cluster.balancer.settings(), metadata), tried };
        match cluster.balancer.pick(now, wanted, readiness) {
            Some(Ok(endpoint)) => ClusterChoice::To(endpoint),
            Some(Err(full)) => ClusterChoice::Full(full.outstanding_max.into()),
            None => cluster.without_endpoints(&remotes.names),
        }
    }

    /// A call was answered elsewhere before its endpoint did: that is slow.
    pub fn outpaced(&mut self, now: Instant, placed: Placed) {
        if let Some(cluster) = self.table.find_mut(placed.cluster) {
            let report = Report { outpaced: true, ..Report::default() };
            cluster.balancer.finished(now, placed.endpoint, &report);
        }
    }

    /// How a call ended at the endpoint it was given, with the trailing metadata that came with it.
    pub fn finished(&mut self, now: Instant, placed: Placed, code: Option<Code>, trailers: &[u8]) {
        let Some(cluster) = self.table.find_mut(placed.cluster) else { return };
        let weighs = matches!(cluster.balancer.settings().pick, Pick::Weighted(_));
        let load = weighs.then(|| value_of(trailers, LoadReport::KEY)).flatten();
        let load = load.and_then(|bytes| LoadReport::decode(&bytes));
        cluster.balancer.finished(now, placed.endpoint, &Report { code, load, outpaced: false });
    }

    fn gather(&mut self, remotes: &Remotes, key: ClusterKey) {
        let Some(cluster) = self.table.find_mut(key) else { return };
        let mut endpoints = Vec::new();
        for source in &cluster.sources {
            match remotes.names.endpoints(*source) {
                Some(named) => endpoints.extend_from_slice(named),
                None => endpoints.push(*source),
            }
        }
        let labelled = endpoints.iter().filter_map(|key| Some((*key, &*remotes.find(*key)?.endpoint)));
        cluster.balancer.set_endpoints(labelled);
    }

    fn insert(&mut self, service: &str, sources: Vec<RemoteKey>, settings: Settings) -> ClusterKey {
        let seed = self.seed.wrapping_add(self.table.len() as u64);
        let balancer = Balancer::new(settings, seed);
        let cluster = Cluster { service: service.into(), sources: Vec::new(), balancer, asked: false };
        let key = self.table.insert(cluster);
        self.write_sources(key, sources);
        key
    }
}

impl Cluster {
    fn without_endpoints(&self, names: &Names) -> ClusterChoice {
        let mut failed = None;
        for name in &self.sources {
            match names.failure(*name) {
                Some(why) => failed = failed.or(Some((*name, why.to_owned()))),
                None => return ClusterChoice::Wait(*name),
            }
        }
        failed.map_or(ClusterChoice::Unserved, |(name, why)| ClusterChoice::Nowhere(name, why))
    }
}

/// The key by which equal calls meet, if the cluster has such a key and the call a value for it.
fn hash_key(settings: &Settings, metadata: &[u8]) -> Option<u64> {
    let Pick::RingHash { header: Some(header), .. } = &settings.pick else {
        return None;
    };
    value_of(metadata, header).map(|value| key_of(&value))
}

fn value_of<'m>(metadata: &'m [u8], wanted: &str) -> Option<Cow<'m, [u8]>> {
    let pairs = MetadataReader::read(metadata).ok()?;
    pairs.filter_map(Result::ok).find(|(key, _)| *key == wanted).map(|(_, value)| Cow::Borrowed(value))
}

#[cfg(test)]
mod tests {
    //! Shows that clusters are found by what they have, and that nothing is left of those that are gone.
    use super::*;

    #[test]
    fn a_cluster_is_found_by_each_of_its_sources_while_it_has_them() {
        let (mut clusters, mut remotes) = (Clusters::default(), Remotes::default());
        let [a, b, c] =
            ["dns:///a:1", "dns:///b:1", "tcp://10.0.0.1:1"].map(|text| remotes.intern(text, 9).unwrap());
        let settings = |_: &str| Settings::default();
        clusters.set(&remotes, "x.Y", vec![a, b, c, a], settings);
        let service = clusters.of_service("x.Y").unwrap();
        let target = clusters.of_target(&remotes, a, "x.Z", 9, settings).unwrap();
        assert_eq!(clusters.with_source(a), [service, target]);
        assert_eq!(
            (clusters.names_beside(&remotes, a), clusters.names_beside(&remotes, b)),
            (vec![b], vec![a])
        );
        clusters.remove_target(target);
        assert_eq!(clusters.with_source(a), [service]);
        clusters.set(&remotes, "x.Y", vec![b], settings);
        assert!(clusters.with_source(a).is_empty() && clusters.with_source(c).is_empty());
        let mut moved = Clusters::default();
        moved.take_up(&remotes, clusters);
        assert_eq!(moved.with_source(b), [service]);
        moved.retain_services(&remotes, |_| false);
        assert!(moved.by_source.is_empty());
    }
}
