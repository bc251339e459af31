//! What an engine writes down of itself, for another that goes on with it.

use super::state::{Exported, HandoverError, StateWritten};
use super::types::{Known, TypesState, Using};
use crate::admission::AdmissionControl;
use crate::call::{Calls, ServerEnd};
use crate::cluster::Clusters;
use crate::due::Due;
use crate::grpc::GrpcEnds;
use crate::handover::awaited::Awaited;
use crate::limits::Limits;
use crate::named_peer::NamedPeer;
use crate::nested::Nested;
use crate::peers::PeerEnds;
use crate::r2p2::R2p2;
use crate::registry::{BoundSchema, Registry};
use crate::remote::Remotes;
use crate::service_users::ServiceUsers;
use crate::sessions::SessionEnds;
use crate::shard::ShardLinks;
use crate::{CallKey, SessionKey};
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline_call::TimerTable;
use trunkline_telemetry::{PeerIndex, Telemetry};

/// The owners whose state goes on elsewhere. Nothing of it changes here.
pub(super) struct LeavingOwners<'e> {
    pub sessions: &'e SessionEnds,
    pub peers: &'e PeerEnds,
    pub grpc: &'e GrpcEnds,
    pub r2p2: &'e R2p2,
    pub remotes: &'e Remotes,
    pub clusters: &'e Clusters,
    pub calls: &'e Calls,
    pub nested: &'e Nested,
    pub registry: &'e Registry,
    pub shards: &'e ShardLinks,
    pub service_users: &'e ServiceUsers,
    pub awaited: &'e Awaited,
    pub admission: &'e AdmissionControl,
    pub timers: &'e TimerTable<Due>,
    pub limits: &'e Limits,
    pub telemetry: &'e Telemetry,
    pub types_bound: u64,
}

impl<'e> LeavingOwners<'e> {
    /// The schemas a state written now would name.
    pub fn schemas(&self) -> Vec<Arc<BoundSchema>> {
        let mut schemas = Vec::new();
        for types in self.types().values() {
            TypesState::of(types, &mut schemas);
        }
        schemas
    }

    /// Writes the state down.
    ///
    /// # Errors
    /// [`HandoverError::Malformed`] if some of it cannot be written.
    pub fn export(&self) -> Result<Exported, HandoverError> {
        let mut schemas = Vec::new();
        let types = self.types();
        let ((peers, lent), sessions) = (self.peers.export(), self.sessions.export());
        let leaving = StateWritten {
            shards: self.shards,
            types: types.values().map(|types| TypesState::of(types, &mut schemas)).collect(),
            types_bound: self.types_bound,
            stream_window_bytes: self.sessions.stream_window_told(self.limits.stream_window_bytes),
            sessions: sessions.table,
            peers,
            lent,
            calls: self.calls,
            nested: self.nested,
            registry: self.registry,
            remotes: self.remotes,
            clusters: self.clusters,
            r2p2: self.r2p2,
            timers: self.timers,
            policies: self.admission.policies(),
            retired: sessions.retired,
            abandoned: sessions.abandoned,
            owners_left: self.owners_left(),
            grpc_generations: self.grpc.next_generations(),
            peers_called: self.peers_called(),
        };
        Ok(Exported { state: leaving.write()?, schemas })
    }

    fn types(&self) -> Known {
        let Self { sessions, registry, peers, calls, shards, .. } = *self;
        Using { sessions, registry, peers, calls, shards }.in_use()
    }

    /// To which other hosts calls were made, but for those whose connections say so.
    fn peers_called(&self) -> Vec<(NamedPeer, Vec<CallKey>)> {
        let mut called: BTreeMap<PeerIndex, Vec<CallKey>> = BTreeMap::new();
        for (key, call) in self.calls.iter() {
            if !matches!(call.server, ServerEnd::Peer { .. }) {
                called.entry(call.peer_index).or_default().push(key);
            }
        }
        let named = called.into_iter();
        named.filter_map(|(number, calls)| Some((NamedPeer::of(self.telemetry, number)?, calls))).collect()
    }

    /// Whose the services are that wait for their successors.
    fn owners_left(&self) -> Vec<(SessionKey, &'e str)> {
        let left = self.awaited.those_who_left();
        left.filter_map(|session| Some((session, self.service_users.of_session(session)?))).collect()
    }
}
