//! What operators see of an engine: rows that are copied a part at a time, because there may be as many as others want.
//! Each owner says what there is of its own (`snapshot`); this puts the parts together.

use crate::SessionKey;
use crate::attempts::AttemptControl;
use crate::cluster::Clusters;
use crate::grpc::GrpcEnds;
use crate::peers::PeerEnds;
use crate::r2p2::R2p2;
use crate::registry::{Registry, service_of};
use crate::remote::Remotes;
use crate::sessions::SessionEnds;
use crate::shard::ShardLinks;
use crate::snapshot::{
    BalancedRow, PeerRow, RemoteRow, RestOfState, ServedMethod, ServiceRow, SessionRow, Snapshot, TableRows,
};
use crate::unserved::UnservedCalls;
use crate::workers::Workers;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_telemetry::Telemetry;

/// The owners that have something to show.
pub(crate) struct ObservedOwners<'e> {
    pub sessions: &'e SessionEnds,
    pub registry: &'e Registry,
    pub remotes: &'e Remotes,
    pub clusters: &'e Clusters,
    pub peers: &'e PeerEnds,
    pub grpc: &'e GrpcEnds,
    pub r2p2: &'e R2p2,
    pub attempts: &'e AttemptControl,
    pub workers: &'e Workers,
    pub unserved: &'e UnservedCalls,
    pub shards: &'e ShardLinks,
    pub telemetry: &'e Telemetry,
}

/// A snapshot under way. Calls are counted when it begins and connections last: an engine that takes no new calls and
/// is found to have none has what it said to connections in their rows.
#[derive(Debug, Default)]
pub struct StateParts {
    snapshot: Snapshot,
    /// Methods with those who serve them, by path.
    served: Vec<ServedMethod>,
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
pub(crate) enum StateTable {
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

impl ObservedOwners<'_> {
    /// Copies another part. `false`: that was all.
    pub fn copy(&self, now: Instant, parts: &mut StateParts) -> bool {
        let (table, part) = parts.wanted();
        let endpoint = |key| self.remotes.find(key).map(|remote| Arc::clone(&remote.endpoint));
        let left = match table {
            StateTable::Sessions => parts.add_sessions(self.sessions.snapshot(part)),
            StateTable::Methods => parts.add_methods(self.registry.snapshot(part)),
            StateTable::Remotes => parts.add_remotes(self.remotes.snapshot(part)),
            StateTable::Clusters => parts.add_clusters(self.clusters.snapshot(now, self.remotes, part)),
            StateTable::Peers => parts.add_peers(self.peers.snapshot(endpoint, part)),
            StateTable::Grpc => parts.add_grpc(self.grpc.snapshot(endpoint, part)),
            StateTable::Rest => parts.add_rest(self.rest()),
            StateTable::Done => None,
        };
        parts.go_on(left)
    }

    fn rest(&self) -> RestOfState {
        let Self { attempts, r2p2, workers, unserved, shards, .. } = self;
        RestOfState {
            peers: r2p2.rows(self.remotes.over_r2p2()),
            waiting: workers.waiting().into_iter().chain(unserved.waiting()).collect(),
            memory: vec![
                ("requests kept for further attempts", attempts.kept_bytes() as u64),
                ("requests kept for R2P2", r2p2.made.bytes()),
                ("messages of R2P2 on their way", r2p2.held_bytes() as u64),
                ("requests over R2P2 that have ended", r2p2.remembered_bytes() as u64),
                ("calls waiting for a worker", workers.queued_bytes()),
                ("calls waiting for a service", unserved.held_bytes()),
                ("messages between shards", shards.bytes_under_way()),
            ],
            telemetry_bytes: self.telemetry.heap_bytes() as u64,
        }
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

    /// Begins with what is asked of all at once.
    pub(crate) fn begin(snapshot: Snapshot) -> Self {
        Self { snapshot, ..Self::default() }
    }

    /// The table that is copied next, and the first slot of it that has not been looked at.
    pub(crate) fn wanted(&self) -> (StateTable, usize) {
        (self.table, self.next)
    }

    /// The first slot that is `left` of the table, if any is, was said: what is next. `false`: there is nothing more.
    pub(crate) fn go_on(&mut self, left: Option<usize>) -> bool {
        match left {
            Some(next) => self.next = next,
            None => (self.table, self.next) = (self.table.next(), 0),
        }
        self.table != StateTable::Done
    }

    pub(crate) fn add_sessions(&mut self, TableRows { rows, left }: TableRows<SessionRow>) -> Option<usize> {
        self.snapshot.sessions.extend(rows);
        left
    }

    pub(crate) fn add_methods(&mut self, TableRows { rows, left }: TableRows<ServedMethod>) -> Option<usize> {
        self.served.extend(rows);
        left
    }

    pub(crate) fn add_remotes(&mut self, TableRows { rows, left }: TableRows<RemoteRow>) -> Option<usize> {
        self.snapshot.remotes.extend(rows);
        left
    }

    pub(crate) fn add_clusters(&mut self, TableRows { rows, left }: TableRows<BalancedRow>) -> Option<usize> {
        self.snapshot.balanced.extend(rows);
        left
    }

    /// With the bytes of messages that they put together.
    pub(crate) fn add_peers(&mut self, (part, bytes): (TableRows<PeerRow>, u64)) -> Option<usize> {
        self.bytes.assembling += bytes;
        self.add_connections(part)
    }

    /// With the bytes of messages that arrive over them.
    pub(crate) fn add_grpc(&mut self, (part, bytes): (TableRows<PeerRow>, u64)) -> Option<usize> {
        self.bytes.arriving += bytes;
        self.add_connections(part)
    }

    fn add_connections(&mut self, TableRows { rows, left }: TableRows<PeerRow>) -> Option<usize> {
        for row in &rows {
            self.bytes.queued = self.bytes.queued.saturating_add(row.queued_bytes);
        }
        self.snapshot.peers.extend(rows);
        left
    }

    pub(crate) fn add_rest(&mut self, rest: RestOfState) -> Option<usize> {
        self.snapshot.peers.extend(rest.peers);
        self.snapshot.waiting = rest.waiting;
        self.snapshot.memory = rest.memory;
        self.bytes.telemetry = rest.telemetry_bytes;
        None
    }
}

fn service_rows(served: &[ServedMethod]) -> Vec<ServiceRow> {
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
