//! The state of a shard at a moment, for operators.

use crate::SessionKey;
use crate::samples::SampleCounts;
use std::sync::Arc;

/// Slots looked at for one part of a table, and what is copied of them: some tens of microseconds.
pub(crate) const SLOTS_PER_PART: usize = 256;

/// The rows of some slots of a table.
#[derive(Debug)]
pub(crate) struct TableRows<R> {
    pub rows: Vec<R>,
    /// The first slot behind them, if there is one.
    pub left: Option<usize>,
}

impl<R> TableRows<R> {
    pub fn of((rows, left): (impl Iterator<Item = R>, Option<usize>)) -> Self {
        Self { rows: rows.collect(), left }
    }
}

/// The path of a method that somebody serves, and who does.
pub(crate) type ServedMethod = (Arc<str>, Vec<SessionKey>);

/// What has no slots, and bounds of its own.
#[derive(Debug)]
pub(crate) struct RestOfState {
    /// Whom requests of R2P2 are from and go to.
    pub peers: Vec<PeerRow>,
    /// Services with calls that wait, and how many.
    pub waiting: Vec<(String, usize)>,
    /// Bytes held, by what for.
    pub memory: Vec<(&'static str, u64)>,
    pub telemetry_bytes: u64,
}

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
    /// Endpoints of services, as balancing sees them.
    pub balanced: Vec<BalancedRow>,
    /// Services with calls that wait for a worker, or until somebody serves them, and how many.
    pub waiting: Vec<(String, usize)>,
    /// Further attempts at calls made here, and what kept others from being made.
    pub attempts: AttemptFigures,
    /// Limits at which calls ended, and how many did.
    pub limits_met: Vec<(&'static str, u64)>,
    /// Calls that were to be kept with their messages, and what became of them here.
    pub samples: SampleCounts,
    /// Bytes by owner. What applications hold is with their sessions.
    pub memory: Vec<(&'static str, u64)>,
    /// Datagrams of R2P2 without a good seal, since the start. Filled in by the host, which opens them.
    pub datagrams_refused: u64,
}

/// An endpoint of a service, as balancing sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct BalancedRow {
    /// Whose calls go there.
    pub service: String,
    /// Where.
    pub endpoint: Arc<str>,
    /// Calls under way there.
    pub outstanding: u32,
    /// Whether it is left out, because its calls fail more than others do.
    pub ejected: bool,
    /// What its server says it can do, relative to the others.
    pub weight: Option<f64>,
}

/// Attempts at calls that may take several, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptFigures {
    /// Calls that may take several.
    pub calls: u64,
    /// Attempts behind a failed one.
    pub retries: u64,
    /// Attempts beside one that takes long.
    pub hedges: u64,
    /// Attempts because a server said that it had not seen the one before.
    pub unseen: u64,
    /// Times a server said when, or that it wants no more.
    pub pushed_back: u64,
    /// Attempts that were not made because too many of the service fail.
    pub throttled: u64,
    /// Attempts that were not made because all calls have spent what they may.
    pub over_budget: u64,
    /// Attempts that could be paid for now.
    pub budget_left: u64,
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
