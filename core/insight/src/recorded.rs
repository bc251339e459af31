//! Which other hosts are among those recorded: a call that both of its hosts tell of counts once.

use crate::block::BlockHead;
use crate::fleet_call::FleetCall;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use trunkline_telemetry::Side;

/// By block: numbers of other hosts that are among those recorded.
#[derive(Clone)]
pub(crate) struct RecordedPeers {
    by_name: Rc<[BTreeSet<u32>]>,
    by_address: Rc<[BTreeSet<u32>]>,
    loopback: Rc<LoopbackCalls>,
}

/// Calls over R2P2 that stayed within a network namespace. Who made one does not show in its address, but that some
/// recorded daemon of that namespace makes calls of its method so.
#[derive(Debug, Default)]
struct LoopbackCalls {
    /// By block: numbers of other hosts that are loopback addresses.
    peers: Vec<BTreeSet<u32>>,
    /// By block: its network namespace; of blocks that do not say there is none.
    networks: Vec<Option<u32>>,
    /// The namespace, and the method of calls that were made.
    made: BTreeSet<(u32, u32)>,
}

impl RecordedPeers {
    /// Of all that was recorded.
    pub fn of(heads: &[BlockHead], calls: &[FleetCall]) -> Self {
        let names: BTreeSet<&str> = heads.iter().map(|head| head.host.as_str()).collect();
        let addresses: BTreeSet<&str> =
            heads.iter().flat_map(|head| &head.addresses).map(String::as_str).collect();
        let is_name = |name: &str| names.contains(name);
        let is_address = |name: &str| r2p2_address(name).is_some_and(|address| addresses.contains(address));
        Self {
            by_name: peers_that(heads, is_name).into(),
            by_address: peers_that(heads, is_address).into(),
            loopback: Rc::new(LoopbackCalls::of(heads, calls)),
        }
    }

    /// Whether the other host of a call is one of them, by its node's name.
    pub fn by_name(&self, call: &FleetCall) -> bool {
        has(&self.by_name, call)
    }

    /// The same over R2P2, by its address.
    pub fn by_address(&self, call: &FleetCall) -> bool {
        has(&self.by_address, call) || self.loopback.is_made_by_recorded(call)
    }
}

impl LoopbackCalls {
    fn of(heads: &[BlockHead], calls: &[FleetCall]) -> Self {
        let is_loopback = |name: &str| r2p2_address(name).is_some_and(|address| address.starts_with("127."));
        let mut numbers: BTreeMap<[&str; 2], u32> = BTreeMap::new();
        let mut networks = Vec::with_capacity(heads.len());
        for head in heads {
            let network = [head.boot_id.as_str(), head.network_namespace.as_str()];
            let next = numbers.len() as u32;
            let is_told = network.iter().all(|part| !part.is_empty());
            networks.push(is_told.then(|| *numbers.entry(network).or_insert(next)));
        }
        let mut found = Self { peers: peers_that(heads, is_loopback), networks, made: BTreeSet::new() };
        if found.peers.iter().any(|peers| !peers.is_empty()) {
            let made = calls.iter().filter(|call| call.row.side == Side::Made && has(&found.peers, call));
            found.made = made.filter_map(|call| Some((found.network(call)?, call.method))).collect();
        }
        found
    }

    fn is_made_by_recorded(&self, call: &FleetCall) -> bool {
        !self.made.is_empty()
            && has(&self.peers, call)
            && self.network(call).is_some_and(|network| self.made.contains(&(network, call.method)))
    }

    fn network(&self, call: &FleetCall) -> Option<u32> {
        self.networks.get(call.block as usize).copied().flatten()
    }
}

/// By block: numbers of other hosts whose name is so.
fn peers_that(heads: &[BlockHead], is_so: impl Fn(&str) -> bool) -> Vec<BTreeSet<u32>> {
    let number = |(number, name): &(u32, String)| is_so(name).then_some(*number);
    heads.iter().map(|head| head.peers.iter().filter_map(number).collect()).collect()
}

/// The address in the name of another host that is known by it alone: of a client without the port.
fn r2p2_address(name: &str) -> Option<&str> {
    let address = name.strip_prefix("r2p2 ")?;
    Some(address.split_once(':').map_or(address, |(address, _)| address))
}

fn has(peers: &[BTreeSet<u32>], call: &FleetCall) -> bool {
    peers.get(call.block as usize).is_some_and(|peers| peers.contains(&call.row.peer.0))
}

/// The hosts that tell of calls they served.
#[derive(Clone)]
pub(crate) struct RecordedServers {
    /// By block: which host another is.
    peers: Rc<[BTreeMap<u32, u32>]>,
    /// The host, and the method.
    told: Rc<BTreeSet<(u32, u32)>>,
}

impl RecordedServers {
    /// Of all that was recorded.
    pub fn of(heads: &[BlockHead], calls: &[FleetCall]) -> Self {
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        for head in heads {
            let next = numbers.len() as u32;
            numbers.entry(head.host.as_str()).or_insert(next);
        }
        let host_of = |name: &str| numbers.get(name).copied();
        let peers_of = |head: &BlockHead| {
            head.peers.iter().filter_map(|(peer, name)| Some((*peer, host_of(name)?))).collect()
        };
        let told = calls.iter().filter(|call| call.row.side == Side::Served).filter_map(|call| {
            let head = heads.get(call.block as usize)?;
            Some((host_of(&head.host)?, call.method))
        });
        Self { peers: heads.iter().map(peers_of).collect(), told: Rc::new(told.collect()) }
    }

    /// Whether the host that served a call is one that tells of calls of its method.
    pub fn tell_of(&self, call: &FleetCall) -> bool {
        let host = self.peers.get(call.block as usize).and_then(|peers| peers.get(&call.row.peer.0));
        host.is_some_and(|host| self.told.contains(&(*host, call.method)))
    }
}
