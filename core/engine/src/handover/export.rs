//! Writing the state down.

use super::types::{Known, TypesState, Using};
use crate::SessionKey;
use crate::call::Calls;
use crate::cluster::Clusters;
use crate::due::Due;
use crate::engine::Engine;
use crate::handover::HandoverError;
use crate::nested::Nested;
use crate::peer::{Lent, Peer};
use crate::r2p2::R2p2;
use crate::registry::{BoundSchema, Registry};
use crate::remote::Remotes;
use crate::session::Session;
use crate::shard::ShardLinks;
use crate::table::Table;
use serde::{Serialize, Serializer};
use std::sync::Arc;
use trunkline_call::TimerTable;
use trunkline_policy::{ExportedModule, Policies, PolicyError};

/// The state of an engine, to be read by [`Engine::take_over`].
#[derive(Clone, Debug)]
pub struct Exported {
    /// The state.
    pub state: Vec<u8>,
    /// The schemas it names by their place here. The host brings them across: it has what they were built from.
    pub schemas: Vec<Arc<BoundSchema>>,
}

/// What is written.
#[derive(Serialize)]
struct Leaving<'a> {
    /// In front: how many shards there must be is asked before the rest is read.
    shards: &'a ShardLinks,
    types: Vec<TypesState>,
    types_bound: u64,
    stream_window_bytes: u32,
    sessions: &'a Table<Session>,
    peers: &'a Table<Peer>,
    lent: &'a Table<Lent>,
    calls: &'a Calls,
    nested: &'a Nested,
    registry: &'a Registry,
    remotes: &'a Remotes,
    clusters: &'a Clusters,
    r2p2: &'a R2p2,
    #[serde(serialize_with = "lasting")]
    timers: &'a TimerTable<Due>,
    policies: &'a Policies,
    retired: &'a [SessionKey],
    abandoned: &'a [(SessionKey, u32)],
    owners_left: Vec<(SessionKey, &'a str)>,
    /// HTTP/2 connections stay behind, and others must not be taken for them: so that no key is used twice.
    grpc_generations: Vec<u32>,
}

/// Whom calls wait for is found out anew by the engine that takes over, which sets that timer itself. It is not
/// written: engines before it was there read the rest.
fn lasting<S: Serializer>(timers: &&TimerTable<Due>, serializer: S) -> Result<S::Ok, S::Error> {
    timers.serialize_those(
        |due| !matches!(due, Due::Awaited | Due::Offers | Due::Sweep(_) | Due::Assemblies(_)),
        serializer,
    )
}

impl Engine {
    /// Version of what is written. A reader that does not know it refuses ([`HandoverError::Version`]).
    pub const STATE_VERSION: u32 = 2;
    /// That of a state in which somebody serves all of a service: earlier engines look for whoever does with each of
    /// its methods, and find nobody.
    pub(super) const WHOLE_STATE_VERSION: u32 = 3;

    /// The schemas a state written now would name.
    pub fn schemas_in_use(&self) -> Vec<Arc<BoundSchema>> {
        let mut schemas = Vec::new();
        for types in self.types().values() {
            TypesState::of(types, &mut schemas);
        }
        schemas
    }

    fn types(&self) -> Known {
        let Self { sessions, registry, peers, calls, shards, .. } = self;
        Using { sessions, registry, peers: &peers.table, calls, shards }.in_use()
    }

    /// The largest window that any session was told of: programs of older versions count with one for all.
    fn stream_window_told(&self) -> u32 {
        let told = self.sessions.iter().map(|(_, session)| session.told.stream_window_bytes);
        told.fold(self.limits.stream_window_bytes, u32::max)
    }

    /// Whose the services are that wait for their successors.
    fn owners_left(&self) -> Vec<(SessionKey, &str)> {
        let left = self.awaited.those_who_left();
        left.filter_map(|session| Some((session, self.owners.of_session(session)?))).collect()
    }

    /// The states of all modules, for a daemon that takes over from this one, and why some are not among them.
    pub fn export_modules(&self) -> (Vec<ExportedModule>, Vec<PolicyError>) {
        self.admission.export_modules()
    }

    /// Writes the state down, between two turns. Nothing changes here.
    ///
    /// # Errors
    /// [`HandoverError::Malformed`] if some of it cannot be written.
    pub fn export(&self) -> Result<Exported, HandoverError> {
        let mut schemas = Vec::new();
        let types = self.types();
        let leaving = Leaving {
            shards: &self.shards,
            types: types.values().map(|types| TypesState::of(types, &mut schemas)).collect(),
            types_bound: self.types_bound,
            stream_window_bytes: self.stream_window_told(),
            sessions: self.sessions.table(),
            peers: &self.peers.table,
            lent: &self.peers.lent,
            calls: &self.calls,
            nested: &self.nested,
            registry: &self.registry,
            remotes: &self.remotes,
            clusters: &self.clusters,
            r2p2: &self.r2p2,
            timers: &self.timers,
            policies: self.admission.policies(),
            retired: self.sessions.retired(),
            abandoned: self.sessions.abandoned(),
            owners_left: self.owners_left(),
            grpc_generations: self.grpc.next_generations(),
        };
        let mut state = Vec::new();
        let version = match self.registry.has_whole() {
            true => Self::WHOLE_STATE_VERSION,
            false => Self::STATE_VERSION,
        };
        ciborium::into_writer(&(version, leaving), &mut state)
            .map_err(|error| HandoverError::Malformed(error.to_string()))?;
        Ok(Exported { state, schemas })
    }
}
