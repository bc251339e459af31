//! What is written and read: a version and the parts of the owners, by the names of fields.

use super::front::Version;
use super::types::TypesState;
use crate::call::Calls;
use crate::cluster::Clusters;
use crate::due::Due;
use crate::named_peer::NamedPeer;
use crate::nested::Nested;
use crate::peer::{Lent, Peer};
use crate::r2p2::{R2p2, R2p2State};
use crate::registry::{BoundSchema, Registry};
use crate::remote::Remotes;
use crate::session::Session;
use crate::shard::ShardLinks;
use crate::table::Table;
use crate::{CallKey, SessionKey};
use ciborium::de::Error as CborError;
use serde::{Deserialize, Serialize, Serializer};
use std::sync::Arc;
use trunkline_call::TimerTable;
use trunkline_policy::{Policies, PoliciesState};

/// Version of the state of an engine. A reader that does not know it refuses ([`HandoverError::Version`]).
pub const STATE_VERSION: u32 = 2;
/// That of a state in which somebody serves all of a service: earlier engines look for whoever does with each of its
/// methods, and find nobody.
const WHOLE_STATE_VERSION: u32 = 3;

/// The state of an engine, to be read by [`take_over`](super::take_over).
#[derive(Clone, Debug)]
pub struct Exported {
    /// The state.
    pub state: Vec<u8>,
    /// The schemas it names by their place here. The host brings them across: it has what they were built from.
    pub schemas: Vec<Arc<BoundSchema>>,
}

/// Why an engine does not go on with a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverError {
    /// It was written by a program of another version.
    #[error("the state has version {0}, this program reads {plain} and {whole}",
            plain = STATE_VERSION, whole = WHOLE_STATE_VERSION)]
    Version(u32),
    /// It cannot be read.
    #[error("the state cannot be read: {0}")]
    Malformed(String),
    /// It contradicts itself. Says whose part it is, so that an operator can have that part end.
    #[error("the state contradicts itself: {0}")]
    Unsound(String),
    /// It names types that it has not, or whose schemas were not handed over.
    #[error("the state names types, or schemas, that did not come with it")]
    Types,
    /// The chain of policies is none for this program.
    #[error("the chain of policies: {0}")]
    Policies(String),
}

/// What is written.
#[derive(Serialize)]
pub(super) struct StateWritten<'a> {
    /// In front: how many shards there must be is asked before the rest is read.
    pub shards: &'a ShardLinks,
    pub types: Vec<TypesState>,
    pub types_bound: u64,
    pub stream_window_bytes: u32,
    pub sessions: &'a Table<Session>,
    pub peers: &'a Table<Peer>,
    pub lent: &'a Table<Lent>,
    pub calls: &'a Calls,
    pub nested: &'a Nested,
    pub registry: &'a Registry,
    pub remotes: &'a Remotes,
    pub clusters: &'a Clusters,
    pub r2p2: &'a R2p2,
    #[serde(serialize_with = "lasting")]
    pub timers: &'a TimerTable<Due>,
    pub policies: &'a Policies,
    pub retired: &'a [SessionKey],
    pub abandoned: &'a [(SessionKey, u32)],
    pub owners_left: Vec<(SessionKey, &'a str)>,
    /// HTTP/2 connections stay behind, and others must not be taken for them: so that no key is used twice.
    pub grpc_generations: Vec<u32>,
    /// Other hosts as reports name them, with the calls that were made there.
    pub peers_called: Vec<(NamedPeer, Vec<CallKey>)>,
}

impl StateWritten<'_> {
    /// # Errors
    /// [`HandoverError::Malformed`] if some of it cannot be written.
    pub fn write(&self) -> Result<Vec<u8>, HandoverError> {
        let mut state = Vec::new();
        let version = if self.registry.has_whole() { WHOLE_STATE_VERSION } else { STATE_VERSION };
        ciborium::into_writer(&(version, self), &mut state)
            .map_err(|error| HandoverError::Malformed(error.to_string()))?;
        Ok(state)
    }
}

/// Whom calls wait for is found out anew by the engine that takes over, which sets that timer itself. It is not
/// written: engines before it was there read the rest.
fn lasting<S: Serializer>(timers: &&TimerTable<Due>, serializer: S) -> Result<S::Ok, S::Error> {
    timers.serialize_those(
        |due| !matches!(due, Due::Awaited | Due::Offers | Due::Sweep(_) | Due::Assemblies(_) | Due::Starved),
        serializer,
    )
}

/// What is read. Fields later versions add have defaults, so that an older state can be read.
#[derive(Deserialize)]
pub(super) struct StateRead {
    pub types: Vec<TypesState>,
    pub types_bound: u64,
    pub stream_window_bytes: u32,
    pub sessions: Table<Session>,
    pub peers: Table<Peer>,
    pub lent: Table<Lent>,
    pub calls: Calls,
    #[serde(default)]
    pub nested: Nested,
    pub registry: Registry,
    #[serde(default)]
    pub shards: ShardLinks,
    pub remotes: Remotes,
    pub clusters: Clusters,
    pub r2p2: R2p2State,
    pub timers: TimerTable<Due>,
    pub policies: PoliciesState,
    pub retired: Vec<SessionKey>,
    pub abandoned: Vec<(SessionKey, u32)>,
    #[serde(default)]
    pub owners_left: Vec<(SessionKey, Box<str>)>,
    #[serde(default)]
    pub grpc_generations: Vec<u32>,
    #[serde(default)]
    pub peers_called: Vec<(NamedPeer, Vec<CallKey>)>,
}

impl StateRead {
    /// # Errors
    /// It is of another version, or cannot be read.
    pub fn read(state: &[u8]) -> Result<Self, HandoverError> {
        let Version(version) = ciborium::from_reader(state).map_err(malformed)?;
        if ![STATE_VERSION, WHOLE_STATE_VERSION].contains(&version) {
            return Err(HandoverError::Version(version));
        }
        let (_, arriving): (u32, Self) = ciborium::from_reader(state).map_err(malformed)?;
        Ok(arriving)
    }
}

fn malformed<E: std::fmt::Display + std::fmt::Debug>(error: CborError<E>) -> HandoverError {
    HandoverError::Malformed(error.to_string())
}
