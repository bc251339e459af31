//! The state of a shard at a moment, for operators.

use crate::SessionKey;
use std::sync::Arc;

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
