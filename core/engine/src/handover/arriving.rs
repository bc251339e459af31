//! A state that another engine has written, taken up by the owners of this one. What follows from the rest is counted
//! again instead of believed, and what contradicts itself is refused, or left out with whom it is of.

use super::sound::{Sound, clip};
use super::state::{HandoverError, StateRead};
use super::types::{Known, Using};
use crate::admission::AdmissionControl;
use crate::attempts::AttemptControl;
use crate::call::{Calls, ServerEnd};
use crate::cluster::Clusters;
use crate::due::Due;
use crate::grpc::GrpcEnds;
use crate::handover::left_out::LeftOut;
use crate::held::HeldBudget;
use crate::host_numbers::HostNumbers;
use crate::limits::Limits;
use crate::nested::Nested;
use crate::peers::PeerEnds;
use crate::r2p2::R2p2;
use crate::registry::{BoundSchema, Registry};
use crate::remote::Remotes;
use crate::sessions::SessionEnds;
use crate::shard::ShardLinks;
use crate::{CallKey, SessionKey};
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline_call::{CallId, TimerTable};
use trunkline_policy::PolicyError;
use trunkline_telemetry::{PeerIndex, Telemetry};

/// The owners who have a part in a state, or know what its numbers mean here.
pub(super) struct ArrivingOwners<'e> {
    pub sessions: &'e mut SessionEnds,
    pub peers: &'e mut PeerEnds,
    pub grpc: &'e mut GrpcEnds,
    pub r2p2: &'e mut R2p2,
    pub remotes: &'e mut Remotes,
    pub clusters: &'e mut Clusters,
    pub calls: &'e mut Calls,
    pub nested: &'e mut Nested,
    pub registry: &'e mut Registry,
    pub shards: &'e mut ShardLinks,
    pub left_out: &'e mut LeftOut,
    pub admission: &'e mut AdmissionControl,
    pub attempts: &'e mut AttemptControl,
    pub timers: &'e mut TimerTable<Due>,
    pub telemetry: &'e mut Telemetry,
    pub held: &'e mut HeldBudget,
    pub host_numbers: &'e mut HostNumbers,
    pub types_bound: &'e mut u64,
    pub limits: &'e Limits,
}

impl ArrivingOwners<'_> {
    /// Gives every owner its part. Whose services wait for their successors is said by the state alone.
    ///
    /// # Errors
    /// What of it cannot be, or is not known here.
    pub fn take_up(
        &mut self,
        arriving: StateRead,
        schemas: &[Arc<BoundSchema>],
    ) -> Result<Vec<(SessionKey, Box<str>)>, HandoverError> {
        let (mut known, mut unknown) = (Known::new(), BTreeMap::new());
        for types in arriving.types {
            let (types, left_out) = types.take_up(schemas).ok_or(HandoverError::Types)?;
            left_out.into_iter().for_each(|reason| _ = unknown.insert(types.number, reason));
            known.insert(types.number, Arc::new(types));
        }
        *self.types_bound = arriving.types_bound;
        let StateRead { sessions, retired, abandoned, stream_window_bytes, .. } = arriving;
        self.sessions.take_up(sessions, retired, abandoned, stream_window_bytes);
        *self.calls = arriving.calls;
        clip(self.calls);
        *self.nested = arriving.nested;
        self.grpc.come_after(arriving.grpc_generations);
        (*self.registry, *self.timers) = (arriving.registry, arriving.timers);
        if !self.shards.take_up(arriving.shards) {
            return Err(HandoverError::Unsound("it is of another shard".to_owned()));
        }
        if self.shards.had_plain_ids() {
            self.keep_plain_ids();
        }
        for (key, why) in self.peers.take_up(arriving.peers, arriving.lent) {
            self.left_out.connection(key, why);
        }
        self.relink(&known)?;
        self.know_served_again();
        if !self.remotes.take_up(arriving.remotes) {
            return Err(HandoverError::Unsound("two endpoints of one name".to_owned()));
        }
        if !self.registry.take_up(|path| self.telemetry.method(path)) {
            return Err(HandoverError::Unsound("two methods of one path".to_owned()));
        }
        self.left_out.untyped(&unknown, self.sessions, self.registry);
        self.left_out.unsound(self.sessions, self.peers, self.registry);
        // Older programs forgot methods that connections had announced.
        self.peers.forget_methods(|method| self.registry.knows(method));
        // Methods are known for as long as somebody has a route to them, or another shard serves them.
        let routes = self.sessions.methods_called().chain(self.shards.elsewhere.methods());
        self.registry.count_routes(routes);
        self.clusters.take_up(self.remotes, arriving.clusters);
        for placed in self.calls.iter().filter_map(|(_, call)| call.placed) {
            self.clusters.occupy(placed);
        }
        let taken = self.r2p2.take_up(arriving.r2p2, self.limits);
        taken.map_err(|unsound| HandoverError::Unsound(unsound.to_string()))?;
        self.admission.take_up(arriving.policies.take_up(self.clusters.seed).map_err(refused)?);
        self.recount();
        for (peer, called) in arriving.peers_called {
            let number = peer.number(self.telemetry);
            for key in called {
                self.calls.find_mut(key).into_iter().for_each(|call| call.peer_index = number);
            }
        }
        Ok(arriving.owners_left)
    }

    /// Holds what has arrived against what everybody here relies on, and books what connections have for their sources.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&mut self) -> Result<(), HandoverError> {
        let Self { calls, peers, registry, shards, held, .. } = self;
        Sound { calls, peers, registry, shards }.check().map_err(HandoverError::Unsound)?;
        peers.book_again(held);
        Ok(())
    }

    /// Numbers in reports are this engine's own.
    pub fn number_peers(&mut self) {
        for (key, name, has_same_clock) in self.peers.names_in_reports() {
            let number = self.telemetry.peer(&name, has_same_clock);
            self.host_numbers.join(number);
            self.peers.find_mut(key).into_iter().for_each(|peer| peer.telemetry = number);
        }
        for (_, call) in self.calls.iter_mut() {
            let ServerEnd::Peer { peer, .. } = call.server else { continue };
            call.peer_index = self.peers.find(peer).map_or(PeerIndex::OTHER, |peer| peer.telemetry);
        }
    }

    /// Handlers know the calls that a program of an older version has delivered by what that called them.
    fn keep_plain_ids(&mut self) {
        for (key, call) in self.calls.iter_mut().filter(|(_, call)| call.handed_over) {
            let Some(session) = call.handler().and_then(|session| self.sessions.find_mut(session)) else {
                continue;
            };
            let id = CallId(key.to_bits() | CallId::DELIVERED);
            call.known_as = Some(id);
            session.brought.insert(id, key);
        }
    }

    /// Puts types in the place of their numbers.
    fn relink(&mut self, known: &Known) -> Result<(), HandoverError> {
        let Self { sessions, registry, peers, calls, shards, .. } = self;
        let mut using = Using {
            sessions: &mut **sessions,
            registry: &mut **registry,
            peers: &mut **peers,
            calls: &mut **calls,
            shards: &mut **shards,
        };
        if using.relink(known) { Ok(()) } else { Err(HandoverError::Types) }
    }

    /// Which calls each session serves.
    fn know_served_again(&mut self) {
        let handlers = self.calls.iter().filter_map(|(key, call)| Some((key, call.handler()?)));
        let handlers: Vec<(CallKey, SessionKey)> = handlers.collect();
        handlers.into_iter().for_each(|(key, session)| self.sessions.note_served(self.calls, key, session));
    }

    /// What follows from the rest is counted again instead of believed.
    fn recount(&mut self) {
        self.sessions.count_lent(self.peers.lent().map(|lent| lent.session));
        let kept = self.calls.iter().filter_map(|(_, call)| call.attempts.as_ref());
        self.attempts.take_up(kept.map(|attempts| attempts.kept_bytes));
    }
}

fn refused(error: PolicyError) -> HandoverError {
    HandoverError::Policies(error.to_string())
}
