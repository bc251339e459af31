//! Reading the state into a fresh engine.

use super::front::{ShardsOfState, Version};
use super::sound::{Sound, clip};
use super::types::{Known, TypesState, Using};
use crate::bound_methods::{bound_methods, put_plans};
use crate::call::Calls;
use crate::cluster::Clusters;
use crate::due::Due;
use crate::engine::Engine;
use crate::limits::Limits;
use crate::nested::Nested;
use crate::peer::{HostClaim, Lent, Peer, claim_of, reported_name};
use crate::r2p2::R2p2State;
use crate::registry::{BoundSchema, Registry};
use crate::remote::Remotes;
use crate::session::{Route, Session, ToldLimits};
use crate::shard::ShardLinks;
use crate::table::Table;
use crate::{CallKey, PeerKey, SessionKey};
use ciborium::de::Error as CborError;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use trunkline_call::{CallId, TimerTable};
use trunkline_policy::{ExportedModule, PoliciesState, PolicyError};
use trunkline_telemetry::PeerIndex;

/// Why an engine does not go on with a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverError {
    /// It was written by a program of another version.
    #[error("the state has version {0}, this program reads {plain} and {whole}",
            plain = Engine::STATE_VERSION, whole = Engine::WHOLE_STATE_VERSION)]
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

/// What is read. Fields later versions add have defaults, so that an older state can be read.
#[derive(Deserialize)]
struct Arriving {
    types: Vec<TypesState>,
    types_bound: u64,
    stream_window_bytes: u32,
    sessions: Table<Session>,
    peers: Table<Peer>,
    lent: Table<Lent>,
    calls: Calls,
    #[serde(default)]
    nested: Nested,
    registry: Registry,
    #[serde(default)]
    shards: ShardLinks,
    remotes: Remotes,
    clusters: Clusters,
    r2p2: R2p2State,
    timers: TimerTable<Due>,
    policies: PoliciesState,
    retired: Vec<SessionKey>,
    abandoned: Vec<(SessionKey, u32)>,
    #[serde(default)]
    owners_left: Vec<(SessionKey, Box<str>)>,
    #[serde(default)]
    grpc_generations: Vec<u32>,
}

impl Engine {
    /// How many shards a host must have where an engine goes on with this state: up to the last one it has calls with.
    /// `None`: the state cannot be read.
    pub fn shards_needed(state: &[u8]) -> Option<u16> {
        let ShardsOfState(shards) = ciborium::from_reader(state).ok()?;
        Some(shards.busy())
    }

    /// Goes on with a state that another engine has written. To be called on a fresh one, configured as this host is
    /// now, before services are; [`Engine::go_on_elsewhere`] follows as soon as the other engine is gone. Sessions
    /// whose schemas do not define what they use, and what contradicts itself, are left out ([`Engine::left_out`]).
    ///
    /// # Errors
    /// [`HandoverError`]. Whatever the bytes are, nothing panics.
    pub fn take_over(self, state: &[u8], schemas: &[Arc<BoundSchema>]) -> Result<Self, HandoverError> {
        let Version(version) = ciborium::from_reader(state).map_err(malformed)?;
        if ![Self::STATE_VERSION, Self::WHOLE_STATE_VERSION].contains(&version) {
            return Err(HandoverError::Version(version));
        }
        let (_, arriving): (u32, Arriving) = ciborium::from_reader(state).map_err(malformed)?;
        self.fill(arriving, schemas)
    }

    /// Hands the states of another daemon's modules to those of this one, before its first call; returns which of them
    /// did not take theirs.
    pub fn import_modules(&mut self, exported: &[ExportedModule]) -> Vec<PolicyError> {
        self.admission.import_modules(exported)
    }

    fn fill(mut self, arriving: Arriving, schemas: &[Arc<BoundSchema>]) -> Result<Self, HandoverError> {
        let (mut known, mut unknown) = (Known::new(), BTreeMap::new());
        for types in arriving.types {
            let (types, left_out) = types.take_up(schemas).ok_or(HandoverError::Types)?;
            left_out.into_iter().for_each(|reason| _ = unknown.insert(types.number, reason));
            known.insert(types.number, Arc::new(types));
        }
        self.types_bound = arriving.types_bound;
        self.sessions.adopt(arriving.sessions, arriving.retired, arriving.abandoned);
        (self.calls, self.peers.lent) = (arriving.calls, arriving.lent);
        clip(&mut self.calls);
        self.know_told_limits(arriving.stream_window_bytes);
        self.nested = arriving.nested;
        self.grpc.come_after(arriving.grpc_generations);
        (self.registry, self.timers) = (arriving.registry, arriving.timers);
        if !self.shards.take_up(arriving.shards) {
            return Err(HandoverError::Unsound("it is of another shard".to_owned()));
        }
        if self.shards.had_plain_ids() {
            self.keep_plain_ids();
        }
        for (key, why) in self.peers.take_up(arriving.peers) {
            self.left_out.connection(key, why);
        }
        let Self { sessions, registry, peers, calls, shards, .. } = &mut self;
        if !(Using { sessions, registry, peers: &mut peers.table, calls, shards }).relink(&known) {
            return Err(HandoverError::Types);
        }
        self.know_served_again();
        if !self.remotes.take_up(arriving.remotes) {
            return Err(HandoverError::Unsound("two endpoints of one name".to_owned()));
        }
        let telemetry = &mut self.telemetry;
        if !self.registry.take_up(|path| telemetry.method(path)) {
            return Err(HandoverError::Unsound("two methods of one path".to_owned()));
        }
        let Self { sessions, peers, registry, left_out, .. } = &mut self;
        left_out.untyped(&unknown, sessions, registry);
        left_out.unsound(sessions, &peers.table, registry);
        // Older programs forgot methods that connections had announced.
        peers.forget_methods(|method| registry.knows(method));
        self.count_routes();
        self.clusters.take_up(&self.remotes, arriving.clusters);
        for placed in self.calls.iter().filter_map(|(_, call)| call.placed) {
            self.clusters.occupy(placed);
        }
        let taken = self.r2p2.take_up(arriving.r2p2, &self.limits);
        taken.map_err(|unsound| HandoverError::Unsound(unsound.to_string()))?;
        self.admission.take_up(arriving.policies.take_up(self.clusters.seed).map_err(refused)?);
        self.recount();
        self.binder().hold_targets_again();
        self.forget_unwanted();
        let Self { calls, peers, registry, shards, .. } = &self;
        Sound { calls, lent: &peers.lent, registry, shards }.check().map_err(HandoverError::Unsound)?;
        for (_, peer) in self.peers.table.iter_mut() {
            peer.book_again(&mut self.held);
        }
        self.binder().know_owners_again(&arriving.owners_left);
        self.plan_again();
        self.rebalance();
        self.number_peers();
        Ok(self)
    }

    /// Handlers know the calls that a program of an older version has delivered by what that called them.
    fn keep_plain_ids(&mut self) {
        let Self { calls, sessions, .. } = self;
        for (key, call) in calls.iter_mut().filter(|(_, call)| call.handed_over) {
            let Some(session) = call.handler().and_then(|session| sessions.find_mut(session)) else {
                continue;
            };
            let id = CallId(key.to_bits() | CallId::DELIVERED);
            call.known_as = Some(id);
            session.brought.insert(id, key);
        }
    }

    /// A program of an older version does not say what each session was told: it was its window of all, and the calls
    /// that may be made unless an operator says otherwise.
    fn know_told_limits(&mut self, stream_window_bytes: u32) {
        let calls_max = Limits::default().calls_made_per_session;
        let told = ToldLimits { calls_max, stream_window_bytes };
        let untold = self.sessions.iter_mut().filter(|(_, session)| session.told == ToldLimits::default());
        untold.for_each(|(_, session)| session.told = told);
    }

    /// What follows from the rest is counted again instead of believed.
    fn recount(&mut self) {
        for (_, session) in self.sessions.iter_mut() {
            session.lent = 0;
        }
        for (_, lent) in self.peers.lent.iter() {
            if let Some(session) = self.sessions.find_mut(lent.session) {
                session.lent += 1;
            }
        }
        let kept = self.calls.iter().filter_map(|(_, call)| call.attempts.as_ref());
        self.attempts.take_up(kept.map(|attempts| attempts.kept_bytes));
    }

    /// Methods are known for as long as somebody has a route to them, or another shard serves them.
    fn count_routes(&mut self) {
        let routes = self.sessions.iter().filter(|(_, session)| !session.gone).flat_map(|(_, session)| {
            session.routes.iter().filter_map(|route| match route {
                Route::Calls { method, .. } => Some(*method),
                Route::Serves => None,
            })
        });
        self.registry.count_routes(routes.chain(self.shards.elsewhere.methods()));
    }

    /// Compiles the chain for everything that is bound.
    fn plan_again(&mut self) {
        let Self { admission, sessions, registry, gateway, .. } = self;
        let bound = bound_methods(sessions, registry, gateway);
        let plans = admission.plan_all(&bound);
        put_plans(sessions, registry, plans);
        let calls: Vec<CallKey> = self.calls.iter().map(|(key, _)| key).collect();
        calls.into_iter().for_each(|key| self.enlist_again(key));
    }

    /// Which calls each session serves.
    fn know_served_again(&mut self) {
        let handlers = self.calls.iter().filter_map(|(key, call)| Some((key, call.handler()?)));
        let handlers: Vec<(CallKey, SessionKey)> = handlers.collect();
        handlers.into_iter().for_each(|(key, session)| self.sessions.note_served(&self.calls, key, session));
    }

    /// Numbers in reports are this engine's own.
    fn number_peers(&mut self) {
        let mut named: Vec<(PeerKey, String, bool)> = Vec::new();
        // Of each name two claims that differ are enough to tell a third apart.
        let mut before: HashMap<&str, Vec<HostClaim<'_>>> = HashMap::new();
        for (key, peer) in self.peers.iter() {
            let Some(claim) = claim_of(peer) else { continue };
            let same = before.entry(claim.name).or_default();
            named.push((
                key,
                reported_name(claim, same.iter().copied()),
                self.peers.has_same_clock(claim.clock_id),
            ));
            if same.len() < 2 && same.iter().all(|other| other.clock_id != claim.clock_id) {
                same.push(claim);
            }
        }
        for (key, name, has_same_clock) in named {
            let number = self.telemetry.peer(&name, has_same_clock);
            self.host_numbers.join(number);
            self.peers.find_mut(key).into_iter().for_each(|peer| peer.telemetry = number);
        }
        for (_, call) in self.calls.iter_mut() {
            let crate::call::ServerEnd::Peer { peer, .. } = call.server else { continue };
            call.peer_index = self.peers.find(peer).map_or(PeerIndex::OTHER, |peer| peer.telemetry);
        }
    }
}

fn malformed<E: std::fmt::Display + std::fmt::Debug>(error: CborError<E>) -> HandoverError {
    HandoverError::Malformed(error.to_string())
}

fn refused(error: PolicyError) -> HandoverError {
    HandoverError::Policies(error.to_string())
}
