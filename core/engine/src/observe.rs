//! What operators see of an engine. Walks everything; not for every turn.

use crate::engine::Engine;
use crate::registry::service_of;
use crate::snapshot::{BalancedRow, PeerRow, Protocol, ServiceRow, SessionRow, Snapshot};
use crate::{GrpcKey, PeerKey, SessionKey};
use core::net::SocketAddrV4;
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline_balance::EndpointRow;
use trunkline_call::Instant;

/// Marks the numbers of rows that are no connection's, and of those the outgoing ones.
const R2P2_ROW: u64 = 1 << 63;
const R2P2_OUTGOING: u64 = 1 << 62;

impl Engine {
    /// The state of things, for operators.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            sessions: session_rows(self),
            services: service_rows(self),
            peers: peer_rows(self),
            remotes: self.remotes.rows(),
            calls: self.calls.len(),
            balanced: Vec::new(),
            waiting: self.workers.waiting(),
            attempts: self.attempts.figures(),
            datagrams_refused: 0,
            limits_met: self.limits_met.iter().map(|(name, calls)| (*name, *calls)).collect(),
            samples: self.sample_counts(),
            memory: memory(self),
        }
    }

    /// Endpoints of services, as balancing sees them now.
    pub fn balanced(&self, now: Instant) -> Vec<BalancedRow> {
        let row = |(service, row): (String, EndpointRow<Arc<str>>)| {
            let EndpointRow { endpoint, outstanding, ejected, weight } = row;
            BalancedRow { service, endpoint, outstanding, ejected, weight }
        };
        self.endpoint_rows(now).into_iter().map(row).collect()
    }

    /// Holds every count against what it counts. Walks everything several times: for tests.
    ///
    /// # Errors
    /// The first count that does not agree.
    pub fn audit(&self) -> Result<(), String> {
        crate::books::audit(self)
    }
}

/// Bytes the shard holds, by what for.
fn memory(engine: &Engine) -> Vec<(&'static str, u64)> {
    let assembling: usize = engine.peers.iter().map(|(_, peer)| peer.assembling_bytes).sum();
    let native = engine.peers.iter().map(|(_, peer)| peer.connection.send_queue_bytes());
    let grpc = engine.grpc_peers.iter().map(|(_, peer)| peer.queued_bytes);
    let arriving = engine.grpc_peers.iter().map(|(_, peer)| peer.arriving_bytes as u64);
    vec![
        ("telemetry", engine.telemetry.heap_bytes() as u64),
        ("requests kept for further attempts", engine.attempts.kept_bytes() as u64),
        ("requests kept for R2P2", engine.r2p2.made_bytes as u64),
        ("messages put together", assembling as u64),
        ("messages of gRPC clients and servers", arriving.fold(0, u64::saturating_add)),
        ("queues of connections", native.chain(grpc).fold(0, u64::saturating_add)),
        ("calls waiting for a worker", engine.workers.queued_bytes()),
    ]
}

fn session_rows(engine: &Engine) -> Vec<SessionRow> {
    let attached = engine.sessions.iter().filter(|(_, session)| !session.gone);
    let row = |(key, session): (SessionKey, &crate::session::Session)| SessionRow {
        key,
        label: session.label.clone(),
        calls_made: session.made.len(),
        calls_delivered: session.delivered,
        completions_queued: session.outbox.len(),
        parked: session.parked.len() + session.parked_streams.len(),
        receive_heap_bytes: 0,
        draining: session.draining,
    };
    attached.map(row).collect()
}

fn service_rows(engine: &Engine) -> Vec<ServiceRow> {
    let mut rows: BTreeMap<&str, ServiceRow> = BTreeMap::new();
    for (path, servers) in engine.registry.iter().filter(|(_, servers)| !servers.is_empty()) {
        let service = service_of(path);
        let row = rows.entry(service).or_insert_with(|| ServiceRow {
            name: service.to_owned(),
            methods: Vec::new(),
            sessions: Vec::new(),
        });
        row.methods.extend(path.rsplit('/').next().map(str::to_owned));
        for server in servers {
            if !row.sessions.contains(&server.session) {
                row.sessions.push(server.session);
            }
        }
    }
    rows.into_values().collect()
}

fn peer_rows(engine: &Engine) -> Vec<PeerRow> {
    let endpoint = |remote| engine.remotes.find(remote).map(|remote| Arc::clone(&remote.endpoint));
    let native = |key: PeerKey, peer: &crate::peer::Peer| PeerRow {
        id: key.to_bits() << 1,
        endpoint: peer.lane.and_then(|(remote, _)| endpoint(remote)),
        protocol: Protocol::Native,
        label: peer.label.clone(),
        node: peer.connection.peer().map(|said| said.node_name.clone()),
        outgoing: peer.lane.is_some(),
        streams: peer.connection.stream_count(),
        queued_bytes: peer.connection.send_queue_bytes(),
    };
    let grpc = |key: GrpcKey, peer: &crate::grpc_peer::GrpcPeer| PeerRow {
        id: key.to_bits() << 1 | 1,
        endpoint: peer.remote.and_then(endpoint),
        protocol: Protocol::Grpc,
        label: peer.label.clone(),
        node: peer.identity.spiffe_id.clone().or_else(|| peer.identity.names.first().cloned()),
        outgoing: peer.remote.is_some(),
        streams: peer.streams.len(),
        queued_bytes: peer.queued_bytes,
    };
    let natives = engine.peers.iter().map(|(key, peer)| native(key, peer));
    let grpcs = engine.grpc_peers.iter().map(|(key, peer)| grpc(key, peer));
    natives.chain(grpcs).chain(r2p2_rows(engine)).collect()
}

/// Endpoints that have answered, and clients with requests here, each port a row.
fn r2p2_rows(engine: &Engine) -> impl Iterator<Item = PeerRow> + '_ {
    let row = |id, endpoint, address: SocketAddrV4, streams| PeerRow {
        id: R2P2_ROW | id,
        outgoing: Option::is_some(&endpoint),
        endpoint,
        protocol: Protocol::R2p2,
        label: address.to_string(),
        node: None,
        streams,
        queued_bytes: 0,
    };
    let mut clients: BTreeMap<SocketAddrV4, usize> = BTreeMap::new();
    for request in engine.r2p2.served.keys() {
        *clients.entry(request.client()).or_default() += 1;
    }
    let client = move |(address, streams): (SocketAddrV4, usize)| {
        let id = u64::from(u32::from(*address.ip())) << 16 | u64::from(address.port());
        row(id, None, address, streams)
    };
    let servers = engine.remotes.over_r2p2().map(move |(key, remote, target)| {
        let streams = engine.r2p2.in_flight(target);
        let id = R2P2_OUTGOING | key.to_bits() & (R2P2_OUTGOING - 1);
        row(id, Some(Arc::clone(&remote.endpoint)), target, streams)
    });
    servers.chain(clients.into_iter().map(client))
}
