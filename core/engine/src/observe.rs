//! What operators see: records of finished calls, and the state of things.

use crate::call::ClientEnd;
use crate::engine::Engine;
use crate::r2p2::Named;
use crate::{CallKey, GrpcKey, PeerKey, SessionKey};
use core::net::SocketAddrV4;
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline_call::{Code, Instant};
use trunkline_telemetry::{PeerIndex, Record, Side};

/// The state of a shard, for `trunkline list`.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Attached sessions.
    pub sessions: Vec<SessionRow>,
    /// Services somebody here serves.
    pub services: Vec<ServiceRow>,
    /// Connections to other daemons.
    pub peers: Vec<PeerRow>,
    /// Endpoints calls go to.
    pub remotes: Vec<RemoteRow>,
    /// Calls in flight.
    pub calls: usize,
}

/// An attached session.
#[derive(Clone, Debug)]
pub struct SessionRow {
    /// Its key.
    pub key: SessionKey,
    /// Name and process id.
    pub label: String,
    /// Calls it made, in flight or not yet released.
    pub calls_made: usize,
    /// Calls delivered to it and not finished.
    pub calls_delivered: usize,
    /// Completions waiting for room in its ring.
    pub completions_queued: usize,
    /// Messages waiting for room in its receive heap.
    pub parked: usize,
    /// Bytes of its receive heap in use. Filled in by the host.
    pub receive_heap_bytes: u64,
    /// Whether it takes no new calls.
    pub draining: bool,
}

/// A service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRow {
    /// Full name.
    pub name: String,
    /// Its methods, by name.
    pub methods: Vec<String>,
    /// The sessions that serve it.
    pub sessions: Vec<SessionKey>,
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The native protocol: another daemon.
    Native,
    /// gRPC on HTTP/2: anybody.
    Grpc,
    /// Datagrams: no connection, but whoever has answered here, or has requests here.
    R2p2,
}

/// A connection to another daemon, or to a gRPC client or server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRow {
    /// A number no other connection of this shard has.
    pub id: u64,
    /// The endpoint it was dialled for.
    pub endpoint: Option<Arc<str>>,
    /// What it speaks.
    pub protocol: Protocol,
    /// Address.
    pub label: String,
    /// The peer's name for itself, once it said hello; of a gRPC peer what its certificate says.
    pub node: Option<String>,
    /// Whether it was dialled here.
    pub outgoing: bool,
    /// Streams open.
    pub streams: usize,
    /// Bytes queued for its socket, of a gRPC peer of messages only.
    pub queued_bytes: u64,
}

/// An endpoint calls go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRow {
    /// A number no other endpoint of this shard has.
    pub id: u64,
    /// `tcp://host:port` or `unix:path`.
    pub endpoint: Arc<str>,
    /// What there is of connections.
    pub state: RemoteState,
}

/// What there is of connections to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteState {
    /// None, and none is wanted.
    Idle,
    /// One is being made.
    Connecting,
    /// At least one.
    Ready,
    /// None could be made, and the next attempt waits for its time.
    Failing,
}

/// Marks the numbers of rows that are no connection's, and of those the outgoing ones.
const R2P2_ROW: u64 = 1 << 63;
const R2P2_OUTGOING: u64 = 1 << 62;

impl Engine {
    /// The state of things, for operators. Walks everything; not for every turn.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            sessions: self.session_rows(),
            services: self.service_rows(),
            peers: self.peer_rows(),
            remotes: self.remotes.rows(),
            calls: self.calls.len(),
        }
    }

    /// Holds every count against what it counts. Walks everything several times: for tests.
    ///
    /// # Errors
    /// The first count that does not agree.
    pub fn audit(&self) -> Result<(), String> {
        crate::books::audit(self)
    }

    // LIFE: 22
    /// A call made here is over, from the first stamp to the last.
    pub(crate) fn record(&mut self, key: CallKey, now: Instant) {
        if self.plant.unrecorded {
            return;
        }
        let Some(call) = self.calls.find(key) else { return };
        let code = call.outcome.unwrap_or(Code::Unknown);
        let server = call.server_measured.then_some(call.server_stamps);
        let record = Record {
            side: Side::Made,
            method: self.registry.number(call.method),
            peer: call.peer_index,
            code,
            request_bytes: call.request.bytes,
            response_bytes: call.response.bytes,
            client: call.client_stamps,
            server,
        };
        self.telemetry.record(now, &record);
    }

    /// A call from another host was answered.
    pub(crate) fn record_served(&mut self, key: CallKey, code: Code, now: Instant) {
        self.end_policies(now, key, code);
        if let Some(call) = self.calls.find_mut(key).filter(|call| call.is_forwarded()) {
            // Made here for somebody who keeps no time: it ends where it leaves.
            call.outcome = Some(code);
            (call.client_stamps.d17, call.client_stamps.a18) = (now, now);
            return self.record(key, now);
        }
        if self.plant.unrecorded {
            return;
        }
        let Some(client) = self.calls.find(key).map(|call| call.client.clone()) else { return };
        let peer = match client {
            ClientEnd::Peer { peer, .. } => self.peers.find(peer).map(|peer| peer.telemetry),
            ClientEnd::Grpc { peer, .. } => self.grpc_peers.find(peer).map(|peer| peer.telemetry),
            ClientEnd::R2p2 { request } => Some(self.r2p2_number(Named::Client(*request.client().ip()))),
            ClientEnd::Session { .. } | ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => return,
        };
        let peer = peer.unwrap_or(PeerIndex::OTHER);
        let Some(call) = self.calls.find(key) else { return };
        let record = Record {
            side: Side::Served,
            method: self.registry.number(call.method),
            peer,
            code,
            request_bytes: call.request.bytes,
            response_bytes: call.response.bytes,
            client: call.client_stamps,
            server: Some(call.server_stamps),
        };
        self.telemetry.record(now, &record);
    }

    fn session_rows(&self) -> Vec<SessionRow> {
        let attached = self.sessions.iter().filter(|(_, session)| !session.gone);
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

    fn service_rows(&self) -> Vec<ServiceRow> {
        let mut rows: BTreeMap<&str, ServiceRow> = BTreeMap::new();
        for (path, servers) in self.registry.iter().filter(|(_, servers)| !servers.is_empty()) {
            let service = crate::registry::service_of(path);
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

    fn peer_rows(&self) -> Vec<PeerRow> {
        let endpoint = |remote| self.remotes.find(remote).map(|remote| Arc::clone(&remote.endpoint));
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
        let natives = self.peers.iter().map(|(key, peer)| native(key, peer));
        let grpcs = self.grpc_peers.iter().map(|(key, peer)| grpc(key, peer));
        natives.chain(grpcs).chain(self.r2p2_rows()).collect()
    }

    /// Endpoints that have answered, and clients with requests here, each port a row.
    fn r2p2_rows(&self) -> impl Iterator<Item = PeerRow> {
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
        for request in self.r2p2.served.keys() {
            *clients.entry(request.client()).or_default() += 1;
        }
        let client = move |(address, streams): (SocketAddrV4, usize)| {
            let id = u64::from(u32::from(*address.ip())) << 16 | u64::from(address.port());
            row(id, None, address, streams)
        };
        let servers = self.remotes.over_r2p2().map(move |(key, remote, target)| {
            let streams = self.r2p2.in_flight(target);
            let id = R2P2_OUTGOING | key.to_bits() & (R2P2_OUTGOING - 1);
            row(id, Some(Arc::clone(&remote.endpoint)), target, streams)
        });
        servers.chain(clients.into_iter().map(client))
    }
}
