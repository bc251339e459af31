//! What operators see of an engine: rows that are copied a part at a time, because there may be as many as others want.

use crate::engine::Engine;
use crate::registry::service_of;
use crate::snapshot::{BalancedRow, PeerRow, Protocol, ServiceRow, SessionRow, Snapshot};
use crate::{GrpcKey, PeerKey, SessionKey};
use core::net::SocketAddrV4;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use trunkline_balance::EndpointRow;
use trunkline_call::Instant;
use trunkline_policy::{Module, PolicyError, PolicyRow};

/// Marks the numbers of rows that are no connection's, and of those the outgoing ones.
const R2P2_ROW: u64 = 1 << 63;
const R2P2_OUTGOING: u64 = 1 << 62;
/// Slots looked at for one part, and what is copied of them: some tens of microseconds.
const SLOTS_PER_PART: usize = 256;

/// A snapshot under way. Calls are counted when it begins and connections last: an engine that takes no new calls and
/// is found to have none has what it said to connections in their rows.
#[derive(Debug, Default)]
pub struct StateParts {
    snapshot: Snapshot,
    /// Methods with those who serve them, by path.
    served: Vec<(Arc<str>, Vec<SessionKey>)>,
    table: StateTable,
    /// The first slot of it that has not been looked at.
    next: usize,
    bytes: StateBytes,
}

/// Bytes the shard holds, by what for.
#[derive(Debug, Default)]
struct StateBytes {
    telemetry: u64,
    assembling: u64,
    arriving: u64,
    queued: u64,
}

/// The tables, in the order in which they are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StateTable {
    #[default]
    Sessions,
    Methods,
    Remotes,
    Clusters,
    Peers,
    Grpc,
    /// What has no slots, and bounds of its own: requests of R2P2 that are served, services with calls that wait, and
    /// series.
    Rest,
    Done,
}

impl StateTable {
    fn next(self) -> Self {
        match self {
            Self::Sessions => Self::Methods,
            Self::Methods => Self::Remotes,
            Self::Remotes => Self::Clusters,
            Self::Clusters => Self::Peers,
            Self::Peers => Self::Grpc,
            Self::Grpc => Self::Rest,
            Self::Rest | Self::Done => Self::Done,
        }
    }
}

impl Engine {
    /// The state of things, for operators. Walks everything; a shard hands it over in parts instead:
    /// [`Engine::begin_state`].
    pub fn snapshot(&self) -> Snapshot {
        let mut parts = self.begin_state();
        while self.copy_state(Instant::default(), &mut parts) {}
        parts.finish()
    }

    /// Begins a snapshot.
    pub fn begin_state(&self) -> StateParts {
        let snapshot = Snapshot {
            calls: self.calls.len(),
            attempts: self.attempts.figures(),
            limits_met: self.limits_met.iter().map(|(name, calls)| (*name, *calls)).collect(),
            samples: self.sample_counts(),
            ..Snapshot::default()
        };
        StateParts { snapshot, ..StateParts::default() }
    }

    /// Copies another part. `false`: that was all, and it can be [finished](StateParts::finish) elsewhere.
    pub fn copy_state(&self, now: Instant, parts: &mut StateParts) -> bool {
        let left = parts.copy(self, now);
        match left {
            Some(next) => parts.next = next,
            None => (parts.table, parts.next) = (parts.table.next(), 0),
        }
        parts.table != StateTable::Done
    }

    /// The policies at work, in order, with their figures.
    pub fn policy_rows(&self) -> Vec<PolicyRow> {
        self.admission.rows()
    }

    /// Policies that do not fit a method bound since they were applied, for the host to log. Those methods' calls are
    /// refused.
    pub fn poll_policy_misfit(&mut self) -> Option<PolicyError> {
        self.admission.poll_misfit()
    }

    /// A record of the access log.
    pub fn poll_access_record(&mut self) -> Option<crate::AccessRecord> {
        self.admission.poll_access_record()
    }

    /// A change of the daemon that an operator asked for who may not.
    pub fn poll_denied_change(&mut self) -> Option<crate::DeniedChange> {
        self.denied.poll()
    }

    /// A module that was ejected because it is faulty, for the host to log.
    pub fn poll_ejected_module(&mut self) -> Option<PolicyError> {
        self.admission.poll_ejected_module()
    }

    /// Modules nobody needs any more, to be dropped where it may take its time.
    pub fn take_retired_modules(&mut self) -> Vec<Box<dyn Module>> {
        self.admission.take_retired_modules()
    }

    /// Holds every count against what it counts. Walks everything several times: for tests.
    ///
    /// # Errors
    /// The first count that does not agree.
    pub fn audit(&self) -> Result<(), String> {
        crate::books::audit(self)
    }
}

impl StateParts {
    /// Puts it together.
    pub fn finish(self) -> Snapshot {
        let Self { mut snapshot, served, bytes, .. } = self;
        snapshot.services = service_rows(&served);
        let StateBytes { telemetry, assembling, arriving, queued } = bytes;
        snapshot.memory.extend([
            ("telemetry", telemetry),
            ("messages put together", assembling),
            ("messages of gRPC clients and servers", arriving),
            ("queues of connections", queued),
        ]);
        snapshot
    }

    /// The sessions copied so far, for what only the host knows of them.
    pub fn sessions_mut(&mut self) -> &mut [SessionRow] {
        &mut self.snapshot.sessions
    }

    /// Datagrams of R2P2 without a good seal, which the host counts.
    pub fn set_datagrams_refused(&mut self, datagrams: u64) {
        self.snapshot.datagrams_refused = datagrams;
    }

    /// Copies what the next slots of the table have. The first slot that is left, if any is.
    fn copy(&mut self, engine: &Engine, now: Instant) -> Option<usize> {
        let Self { snapshot, served, bytes, table, next: from } = self;
        let from = *from;
        match *table {
            StateTable::Sessions => {
                let (rows, left) = engine.sessions.part(from, SLOTS_PER_PART);
                snapshot.sessions.extend(rows.filter(|(_, session)| !session.gone).map(session_row));
                left
            }
            StateTable::Methods => copy_methods(engine, from, served),
            StateTable::Remotes => {
                let (rows, left) = engine.remotes.rows(from, SLOTS_PER_PART);
                snapshot.remotes.extend(rows);
                left
            }
            StateTable::Clusters => {
                let (rows, left) = engine.clusters.rows(now, &engine.remotes, from, SLOTS_PER_PART);
                snapshot.balanced.extend(rows.into_iter().map(balanced_row));
                left
            }
            StateTable::Peers => {
                let (peers, left) = engine.peers.table.part(from, SLOTS_PER_PART);
                for (key, peer) in peers {
                    bytes.assembling += peer.assembling_bytes as u64;
                    bytes.queued = bytes.queued.saturating_add(peer.connection.send_queue_bytes());
                    snapshot.peers.push(native_row(engine, key, peer));
                }
                left
            }
            StateTable::Grpc => {
                let (peers, left) = engine.grpc.part(from, SLOTS_PER_PART);
                for (key, peer) in peers {
                    bytes.arriving += peer.arriving_bytes as u64;
                    bytes.queued = bytes.queued.saturating_add(peer.queued_bytes);
                    snapshot.peers.push(grpc_row(engine, key, peer));
                }
                left
            }
            StateTable::Rest => {
                snapshot.peers.extend(r2p2_rows(engine));
                snapshot.waiting = engine.workers.waiting();
                snapshot.waiting.extend(engine.unserved.waiting());
                snapshot.memory = vec![
                    ("requests kept for further attempts", engine.attempts.kept_bytes() as u64),
                    ("requests kept for R2P2", engine.r2p2.made_bytes as u64),
                    ("messages of R2P2 on their way", engine.r2p2.held_bytes() as u64),
                    ("requests over R2P2 that have ended", engine.r2p2.remembered_bytes() as u64),
                    ("calls waiting for a worker", engine.workers.queued_bytes()),
                    ("calls waiting for a service", engine.unserved.held_bytes()),
                ];
                bytes.telemetry = engine.telemetry.heap_bytes() as u64;
                None
            }
            StateTable::Done => None,
        }
    }
}

fn balanced_row((service, row): (String, EndpointRow<Arc<str>>)) -> BalancedRow {
    let EndpointRow { endpoint, outstanding, ejected, weight } = row;
    BalancedRow { service, endpoint, outstanding, ejected, weight }
}

fn session_row((key, session): (SessionKey, &crate::session::Session)) -> SessionRow {
    SessionRow {
        key,
        label: session.label.clone(),
        calls_made: session.made.len(),
        calls_delivered: session.delivered.used() as usize,
        completions_queued: session.outbox.len(),
        parked: session.parked.len() + session.parked_streams.len(),
        receive_heap_bytes: 0,
        draining: session.draining,
    }
}

/// Methods that somebody serves. One that many serve counts for as many.
fn copy_methods(
    engine: &Engine,
    from: usize,
    served: &mut Vec<(Arc<str>, Vec<SessionKey>)>,
) -> Option<usize> {
    let mut looked = 0;
    for row in engine.registry.iter_from(from) {
        if looked >= SLOTS_PER_PART {
            return Some(row.slot);
        }
        looked += 1 + row.written.len() / 4;
        if !row.servers.is_empty() {
            served.push((Arc::clone(row.path), row.written.iter().map(|server| server.session).collect()));
        }
    }
    None
}

fn service_rows(served: &[(Arc<str>, Vec<SessionKey>)]) -> Vec<ServiceRow> {
    let mut rows: BTreeMap<&str, (ServiceRow, HashSet<SessionKey>)> = BTreeMap::new();
    for (path, sessions) in served {
        let service = service_of(path);
        let new = || {
            let row = ServiceRow { name: service.to_owned(), methods: Vec::new(), sessions: Vec::new() };
            (row, HashSet::new())
        };
        let (row, known) = rows.entry(service).or_insert_with(new);
        row.methods.extend(path.rsplit('/').next().map(str::to_owned));
        row.sessions.extend(sessions.iter().copied().filter(|session| known.insert(*session)));
    }
    rows.into_values().map(|(row, _)| row).collect()
}

fn native_row(engine: &Engine, key: PeerKey, peer: &crate::peer::Peer) -> PeerRow {
    let endpoint = |remote| engine.remotes.find(remote).map(|remote| Arc::clone(&remote.endpoint));
    PeerRow {
        id: key.to_bits() << 1,
        endpoint: peer.lane.and_then(|(remote, _)| endpoint(remote)),
        protocol: Protocol::Native,
        label: peer.label.clone(),
        node: peer.connection.peer().map(|said| said.node_name.clone()),
        outgoing: peer.lane.is_some(),
        streams: peer.connection.stream_count(),
        queued_bytes: peer.connection.send_queue_bytes(),
    }
}

fn grpc_row(engine: &Engine, key: GrpcKey, peer: &crate::grpc::GrpcPeer) -> PeerRow {
    let endpoint = |remote| engine.remotes.find(remote).map(|remote| Arc::clone(&remote.endpoint));
    PeerRow {
        id: key.to_bits() << 1 | 1,
        endpoint: peer.remote.and_then(endpoint),
        protocol: Protocol::Grpc,
        label: peer.label.clone(),
        node: peer.identity.spiffe_id.clone().or_else(|| peer.identity.names.first().cloned()),
        outgoing: peer.remote.is_some(),
        streams: peer.streams.len(),
        queued_bytes: peer.queued_bytes,
    }
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
