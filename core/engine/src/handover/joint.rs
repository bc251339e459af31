//! The hand-over: joins the parts that owners write and read, and has all of them go on.
//!
//! What stayed behind ends, everything else gets a push. And what waits for another process to go on: calls of the
//! daemon's own services, and gRPC connections, which are empty by then.

use super::front::ShardsOfState;
use super::left_out::{LeftOutSession, calls_over};
use super::sound::{Sound, clip};
use super::state::{Exported, HandoverError, STATE_VERSION, StateRead, StateWritten};
use super::types::{Known, TypesState, Using};
use crate::bound_methods::{bound_methods, put_plans};
use crate::call::{Call, ClientEnd, Direction, Item, ServerEnd};
use crate::due::Due;
use crate::engine::{Engine, Turn};
use crate::grpc::GrpcLeft;
use crate::handover::awaited::WAIT_NS;
use crate::r2p2::R2p2;
use crate::registry::BoundSchema;
use crate::{CallKey, PeerKey, RemoteKey, SessionKey};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use trunkline_call::{CallId, Execution, Fault};
use trunkline_policy::{ExportedModule, PolicyError};
use trunkline_telemetry::PeerIndex;

/// What the host could bring along.
pub struct Brought<'a> {
    /// Whether there is a socket for a connection.
    pub socket: &'a dyn Fn(PeerKey) -> bool,
    /// Whether there is memory for a session.
    pub memory: &'a dyn Fn(SessionKey) -> bool,
}

impl Engine {
    /// Version of what is written. A reader that does not know it refuses ([`HandoverError::Version`]).
    pub const STATE_VERSION: u32 = STATE_VERSION;

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
        Using { sessions, registry, peers, calls, shards }.in_use()
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
        let ((peers, lent), sessions) = (self.peers.export(), self.sessions.export());
        let leaving = StateWritten {
            shards: &self.shards,
            types: types.values().map(|types| TypesState::of(types, &mut schemas)).collect(),
            types_bound: self.types_bound,
            stream_window_bytes: self.sessions.stream_window_told(self.limits.stream_window_bytes),
            sessions: sessions.table,
            peers,
            lent,
            calls: &self.calls,
            nested: &self.nested,
            registry: &self.registry,
            remotes: &self.remotes,
            clusters: &self.clusters,
            r2p2: &self.r2p2,
            timers: &self.timers,
            policies: self.admission.policies(),
            retired: sessions.retired,
            abandoned: sessions.abandoned,
            owners_left: self.owners_left(),
            grpc_generations: self.grpc.next_generations(),
        };
        Ok(Exported { state: leaving.write()?, schemas })
    }

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
        self.fill(StateRead::read(state)?, schemas)
    }

    /// Hands the states of another daemon's modules to those of this one, before its first call; returns which of them
    /// did not take theirs.
    pub fn import_modules(&mut self, exported: &[ExportedModule]) -> Vec<PolicyError> {
        self.admission.import_modules(exported)
    }

    fn fill(mut self, arriving: StateRead, schemas: &[Arc<BoundSchema>]) -> Result<Self, HandoverError> {
        let (mut known, mut unknown) = (Known::new(), BTreeMap::new());
        for types in arriving.types {
            let (types, left_out) = types.take_up(schemas).ok_or(HandoverError::Types)?;
            left_out.into_iter().for_each(|reason| _ = unknown.insert(types.number, reason));
            known.insert(types.number, Arc::new(types));
        }
        self.types_bound = arriving.types_bound;
        let StateRead { sessions, retired, abandoned, stream_window_bytes, .. } = arriving;
        self.sessions.take_up(sessions, retired, abandoned, stream_window_bytes);
        self.calls = arriving.calls;
        clip(&mut self.calls);
        self.nested = arriving.nested;
        self.grpc.come_after(arriving.grpc_generations);
        (self.registry, self.timers) = (arriving.registry, arriving.timers);
        if !self.shards.take_up(arriving.shards) {
            return Err(HandoverError::Unsound("it is of another shard".to_owned()));
        }
        if self.shards.had_plain_ids() {
            self.keep_plain_ids();
        }
        for (key, why) in self.peers.take_up(arriving.peers, arriving.lent) {
            self.left_out.connection(key, why);
        }
        let Self { sessions, registry, peers, calls, shards, .. } = &mut self;
        if !(Using { sessions, registry, peers: &mut *peers, calls, shards }).relink(&known) {
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
        left_out.unsound(sessions, peers, registry);
        // Older programs forgot methods that connections had announced.
        peers.forget_methods(|method| registry.knows(method));
        // Methods are known for as long as somebody has a route to them, or another shard serves them.
        let routes = self.sessions.methods_called().chain(self.shards.elsewhere.methods());
        self.registry.count_routes(routes);
        self.clusters.take_up(&self.remotes, arriving.clusters);
        for placed in self.calls.iter().filter_map(|(_, call)| call.placed) {
            self.clusters.occupy(placed);
        }
        let taken = self.r2p2.take_up(arriving.r2p2, &self.limits);
        taken.map_err(|unsound| HandoverError::Unsound(unsound.to_string()))?;
        self.admission.take_up(arriving.policies.take_up(self.clusters.seed).map_err(refused)?);
        self.recount();
        self.binder().hold_targets_again();
        self.reach().forget_unwanted();
        let Self { calls, peers, registry, shards, .. } = &self;
        Sound { calls, peers, registry, shards }.check().map_err(HandoverError::Unsound)?;
        self.peers.book_again(&mut self.held);
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

    /// What follows from the rest is counted again instead of believed.
    fn recount(&mut self) {
        self.sessions.count_lent(self.peers.lent().map(|lent| lent.session));
        let kept = self.calls.iter().filter_map(|(_, call)| call.attempts.as_ref());
        self.attempts.take_up(kept.map(|attempts| attempts.kept_bytes));
    }

    /// Compiles the chain for everything that is bound.
    fn plan_again(&mut self) {
        let Self { admission, sessions, registry, gateway, .. } = self;
        let bound = bound_methods(sessions, registry, gateway);
        let plans = admission.plan_all(&bound);
        put_plans(sessions, registry, plans);
        let (calls, mut start) = self.start_of_call();
        calls.iter_mut().for_each(|(_, call)| start.enlist_again(call));
    }

    /// Which calls each session serves.
    fn know_served_again(&mut self) {
        let handlers = self.calls.iter().filter_map(|(key, call)| Some((key, call.handler()?)));
        let handlers: Vec<(CallKey, SessionKey)> = handlers.collect();
        handlers.into_iter().for_each(|(key, session)| self.sessions.note_served(&self.calls, key, session));
    }

    /// Numbers in reports are this engine's own.
    fn number_peers(&mut self) {
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

    /// Begins a step of emptying gRPC connections before a hand-over, or goes on with it.
    pub fn leave_grpc(&mut self, hold: bool) -> GrpcLeft {
        let left = self.grpc.leave(hold);
        if hold {
            self.hold_own_services();
        }
        left
    }

    /// The hand-over was in vain: calls in line go on.
    pub fn stay_with_grpc(&mut self, turn: &mut Turn<'_>) {
        let was_held = self.grpc.stay();
        if self.awaited.release() {
            self.settle_awaited(turn);
        }
        if was_held {
            let keys: Vec<RemoteKey> = self.remotes.keys();
            keys.into_iter().for_each(|key| self.serve_line(turn, key));
            self.go_on(turn);
        }
    }

    /// Goes on after [`Engine::take_over`], from the moment on in which no other engine works with the same rings and
    /// sockets. Connections without a socket are lost, or dialled again if nothing was said on them; sessions without
    /// memory are detached.
    pub fn go_on_elsewhere(&mut self, turn: &mut Turn<'_>, brought: &Brought<'_>) {
        self.count_what_waits(turn);
        let sessions: Vec<SessionKey> = self.sessions.iter().map(|(key, _)| key).collect();
        let is_behind = |key: &SessionKey| self.left_out.session(*key).is_some() || !(brought.memory)(*key);
        let behind = sessions.iter().copied().filter(is_behind).collect();
        // Before anything goes on: what moves on would be handed to somebody who is not there.
        let behind = self.leave_behind(turn, behind);
        self.calls.iter_mut().for_each(|(_, call)| call.rename_blocks(turn.heaps));
        self.peers.rename_blocks(turn.heaps);
        self.end_left_behind(turn);
        for (key, parked) in behind {
            self.end_calls_of(turn, key, parked);
        }
        self.lose_left_out(turn);
        self.reach().forget_unwanted();
        let peers: Vec<PeerKey> = self.peers.iter().map(|(key, _)| key).collect();
        for key in peers.iter().filter(|key| !(brought.socket)(**key)) {
            self.dial_again(turn, *key);
        }
        self.queue_again(turn);
        for key in peers {
            self.transmit(key);
            self.unblock_peer(turn, key);
            self.settle_peer(turn, key);
            self.peer_events().look_at_messages_in_time(turn.now, key);
        }
        for key in sessions {
            self.unpark(turn, key);
        }
        for key in self.remotes.keys() {
            self.serve_line(turn, key);
        }
        self.sessions.line_up_all();
        self.answer_all_again();
        self.go_on(turn);
    }

    /// The sessions that do not go on here. To be asked between [`Engine::take_over`] and
    /// [`Engine::go_on_elsewhere`]: their memory is to be left behind.
    pub fn left_out(&self) -> Vec<LeftOutSession> {
        let left_out = self.sessions.iter().filter_map(|(key, session)| {
            let reason = self.left_out.session(key)?.clone();
            Some(LeftOutSession { session: key, label: session.label.clone(), reason })
        });
        left_out.collect()
    }

    /// The connections that do not go on here, with why, in the same time.
    pub fn left_out_connections(&self) -> Vec<(String, String)> {
        let peers = self.left_out.connections().iter();
        peers.filter_map(|(key, why)| Some((self.peers.find(*key)?.label.clone(), why.clone()))).collect()
    }

    /// The name of a session's application, with its process.
    pub fn label_of(&self, key: SessionKey) -> String {
        self.sessions.find(key).map_or_else(String::new, |session| session.label.clone())
    }

    /// Connections that are left out end, with the calls on them, of which they know nothing any more.
    fn lose_left_out(&mut self, turn: &mut Turn<'_>) {
        for (key, why) in std::mem::take(&mut self.left_out).connections() {
            let Some(endpoint) = self.peers.find(*key).map(|peer| peer.label.clone()) else { continue };
            for (call, is_made_there) in calls_over(&self.calls, *key) {
                match self.calls.find(call) {
                    Some(_) if is_made_there => self.cancel(turn, call),
                    Some(found) => {
                        let (executed, endpoint) = (found.execution(), endpoint.clone());
                        self.fail(turn, call, Fault::ConnectionLost { endpoint, executed });
                    }
                    None => {}
                }
            }
            self.peer_lost(turn, *key, why);
        }
    }

    /// Parts with sessions that have no memory here. What the daemon's own of them served is waited for.
    fn leave_behind(
        &mut self,
        turn: &Turn<'_>,
        sessions: Vec<SessionKey>,
    ) -> Vec<(SessionKey, Vec<CallKey>)> {
        let until = turn.now.plus_ns(WAIT_NS);
        // Some the daemon before this one waited for itself.
        let gone = self.registry.every_server().map(|(_, server)| server.session);
        let gone: HashSet<SessionKey> = gone.filter(|key| self.sessions.find(*key).is_none()).collect();
        for key in sessions.iter().copied().chain(gone) {
            if self.registry.serves_for_the_house(key) {
                // Nobody else may take their names meanwhile.
                self.awaited.leave(key, until);
                self.stop_serving(key, &[""; 0]);
            } else {
                self.withdraw(key);
            }
        }
        if self.awaited.is_active() {
            self.timers.insert(until, Due::Awaited);
        }
        sessions.into_iter().filter_map(|key| Some((key, self.part_with(key)?))).collect()
    }

    /// What waits and what arrives is counted anew: another version may have counted otherwise.
    fn count_what_waits(&mut self, turn: &Turn<'_>) {
        let large_bytes = self.limits.stream_window_bytes as usize;
        let Self { sessions, peers, calls, shards, .. } = self;
        shards.unpark(shards.parked_bytes());
        sessions.reset_counts();
        peers.count_assemblies(turn.heaps, |session, bytes| {
            let session = sessions.find_mut(session)?;
            Some(session.arrives(bytes))
        });
        for (_, call) in calls.iter() {
            for direction in [Direction::Request, Direction::Response] {
                let half = call.half_of(direction);
                if let (Some(peer), Some(kept)) = (call.native_sender(direction), half.gathered.as_deref()) {
                    peers.hold_waiting(peer, kept.parked_bytes());
                }
                let session = call.receiver(direction);
                for bytes in half.backlog.iter().map(Item::parked_bytes) {
                    let is_large = bytes > large_bytes;
                    if let Some(peer) = half.large_of.filter(|_| is_large) {
                        peers.hold_waiting(peer, bytes);
                    } else if let Some(session) = session {
                        sessions.count_waiting(session, bytes, is_large && half.large_waits);
                    } else if call.crosses(direction) {
                        shards.park(bytes, usize::MAX);
                    }
                }
            }
        }
    }

    /// Calls with an end that could not come along.
    fn end_left_behind(&mut self, turn: &mut Turn<'_>) {
        self.r2p2.disown_strays();
        let calls: Vec<CallKey> = self.calls.iter().map(|(key, _)| key).collect();
        for key in calls {
            match self.calls.find(key).and_then(|call| left_behind(call, &self.r2p2)) {
                Some(LeftBehind::Client) => self.cancel(turn, key),
                Some(LeftBehind::Server) => {
                    let endpoint = "a connection that stayed with the daemon before this one".to_owned();
                    self.fail(turn, key, Fault::ConnectionLost { endpoint, executed: Execution::Unknown });
                }
                None => {}
            }
        }
    }

    /// A connection without a socket. While it was being dialled nothing was said on it, so it may be dialled again.
    fn dial_again(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        let Some(peer) = self.peers.find(key) else { return };
        let lane = peer.lane;
        if !lane.is_some_and(|(remote, lane)| self.remotes.dial_lane_anew(remote, lane, key)) {
            self.peer_lost(turn, key, "connection could not be handed over");
        }
    }

    /// Calls that waited for a worker begin again: who is free is this engine's to find out.
    fn queue_again(&mut self, turn: &mut Turn<'_>) {
        let queued: Vec<CallKey> =
            self.calls.iter().filter(|(_, call)| call.queued.is_some()).map(|(key, _)| key).collect();
        for key in queued {
            self.begin_again(turn, key);
        }
    }

    /// Has calls of the daemon's own services wait for the next process. How many of those that were under way when
    /// that began have no answer: each has one, which does not take long. One whose request is not whole is not begun,
    /// and for how long an answer waits is its caller's doing.
    pub fn hold_own_services(&mut self) -> usize {
        self.awaited.hold(&self.calls, &self.registry)
    }

    /// Has calls go on whose services are back, and all when they have waited long enough.
    pub(crate) fn settle_awaited(&mut self, turn: &mut Turn<'_>) {
        let Self { registry, awaited, owners, .. } = self;
        let mut services = Vec::new();
        for session in awaited.forget(turn.now, registry) {
            services.extend(registry.services_of(session));
            registry.withdraw(session);
            owners.leave(session);
        }
        self.answer_again(&services);
        for key in self.awaited.take_calls() {
            self.begin_again(turn, key);
        }
        self.go_on(turn);
    }
}

/// The end of a call that could not come along.
enum LeftBehind {
    Client,
    Server,
}

fn left_behind(call: &Call, r2p2: &R2p2) -> Option<LeftBehind> {
    let client_left = match call.client {
        // Copies stay with who made them, too: nobody waits for them.
        ClientEnd::Grpc { .. } | ClientEnd::Mirror { .. } => true,
        ClientEnd::R2p2 { request } => !r2p2.can_answer(request),
        _ => false,
    };
    let server_left = match call.server {
        // Its end may be here and wait for the application to have room.
        ServerEnd::Grpc { .. } => !call.response.ended,
        ServerEnd::R2p2 { name, .. } => !r2p2.makes(name),
        _ => false,
    };
    let server_left = server_left.then_some(LeftBehind::Server);
    if client_left { Some(LeftBehind::Client) } else { server_left }
}

fn refused(error: PolicyError) -> HandoverError {
    HandoverError::Policies(error.to_string())
}
