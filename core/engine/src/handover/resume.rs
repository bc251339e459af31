//! Going on: what stayed behind ends, everything else gets a push. And what waits for another process to go on: calls
//! of the daemon's own services, and gRPC connections, which are empty by then.

use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::due::Due;
use crate::engine::{Engine, Turn};
use crate::grpc::GrpcLeft;
use crate::handover::awaited::WAIT_NS;
use crate::handover::left_out::{LeftOutSession, calls_over};
use crate::receive_room::unpark;
use crate::registry::{MethodKey, Server};
use crate::shard::Origin;
use crate::shared_room::SharedRoom;
use crate::target::Target;
use crate::{CallKey, PeerKey, RemoteKey, SessionKey};
use std::collections::HashSet;
use trunkline_call::{Execution, Fault, Pattern};

/// What the host could bring along.
pub struct Brought<'a> {
    /// Whether there is a socket for a connection.
    pub socket: &'a dyn Fn(PeerKey) -> bool,
    /// Whether there is memory for a session.
    pub memory: &'a dyn Fn(SessionKey) -> bool,
}

impl Engine {
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
        self.rename_blocks(turn);
        self.end_left_behind(turn);
        for (key, parked) in behind {
            self.end_calls_of(turn, key, parked);
        }
        self.lose_left_out(turn);
        self.forget_unwanted();
        let peers: Vec<PeerKey> = self.peers.iter().map(|(key, _)| key).collect();
        for key in peers.iter().filter(|key| !(brought.socket)(**key)) {
            self.dial_again(turn, *key);
        }
        self.queue_again(turn);
        for key in peers {
            self.transmit(key);
            self.unblock_peer(turn, key);
            self.settle_peer(turn, key);
            self.look_at_assemblies_in_time(turn.now, key);
        }
        for key in sessions {
            unpark(self, turn, key);
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

    /// Blocks that are being written lie in other heaps now.
    fn rename_blocks(&mut self, turn: &Turn<'_>) {
        for (_, call) in self.calls.iter_mut() {
            for half in [&mut call.request, &mut call.response] {
                for item in half.backlog.iter_mut().chain(half.gathered.as_deref_mut()) {
                    if let Some(Body::Placed { session, block, .. }) = item.body_mut() {
                        block.offset = turn.heaps.renamed(*session, block.offset);
                    }
                }
            }
        }
        for (_, peer) in self.peers.table.iter_mut() {
            peer.assemblies.values_mut().for_each(|assembly| assembly.rename(turn.heaps));
        }
    }

    /// What waits and what arrives is counted anew: another version may have counted otherwise.
    fn count_what_waits(&mut self, turn: &Turn<'_>) {
        let large_bytes = self.limits.stream_window_bytes as usize;
        let Self { sessions, peers, calls, shards, .. } = self;
        shards.unpark(shards.parked_bytes());
        for (_, session) in sessions.iter_mut() {
            session.parked_bytes = SharedRoom::default();
            (session.answer_bytes, session.arriving_bytes) = (0, 0);
        }
        for (_, peer) in peers.table.iter_mut() {
            (peer.assembling_bytes, peer.missing_bytes) = (0, 0);
            for assembly in peer.assemblies.values_mut() {
                peer.assembling_bytes += assembly.private_bytes();
                peer.missing_bytes += assembly.missing_bytes();
                let Some((session, bytes)) = assembly.place.usual_bytes(turn.heaps) else { continue };
                let Some(session) = sessions.find_mut(session) else { continue };
                session.arriving_bytes += bytes;
                assembly.counted = bytes;
            }
        }
        for (_, call) in calls.iter() {
            for direction in [Direction::Request, Direction::Response] {
                let half = call.half_of(direction);
                if let Some(peer) = call.native_sender(direction).and_then(|peer| peers.find_mut(peer)) {
                    peer.assembling_bytes += half.gathered.as_deref().map_or(0, Item::parked_bytes);
                }
                let session = call.receiver(direction);
                for bytes in half.backlog.iter().map(Item::parked_bytes) {
                    let is_large = bytes > large_bytes;
                    if let Some(peer) = half.large_of.filter(|_| is_large) {
                        peers.find_mut(peer).into_iter().for_each(|peer| peer.assembling_bytes += bytes);
                    } else if let Some(session) = session.and_then(|session| sessions.find_mut(session)) {
                        match is_large && half.large_waits {
                            true => session.answer_bytes += bytes,
                            false => session.parked_bytes.take_untold(bytes as u64),
                        }
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
            let Some(call) = self.calls.find(key) else { continue };
            let client_left = match call.client {
                // Copies stay with who made them, too: nobody waits for them.
                ClientEnd::Grpc { .. } | ClientEnd::Mirror { .. } => true,
                ClientEnd::R2p2 { request } => !self.r2p2.can_answer(request),
                _ => false,
            };
            let server_left = match call.server {
                // Its end may be here and wait for the application to have room.
                ServerEnd::Grpc { .. } => !call.response.ended,
                ServerEnd::R2p2 { name, .. } => !self.r2p2.makes(name),
                _ => false,
            };
            if client_left {
                self.cancel(turn, key);
            } else if server_left {
                let endpoint = "a connection that stayed with the daemon before this one".to_owned();
                self.fail(turn, key, Fault::ConnectionLost { endpoint, executed: Execution::Unknown });
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

    /// A call that waited and was in nobody's queue begins again, unless it has ended meanwhile.
    pub(crate) fn begin_again(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let Some(call) = self.calls.find_mut(key) else { return };
        let Some(queued) = call.queued.take() else { return };
        let waited = call.request.waiting_since.take().map_or(0, |since| turn.now.since_ns(since));
        call.client_stamps.wait_ns = call.client_stamps.wait_ns.saturating_add(waited);
        if let Some(opening) = call.request.backlog.pop_front() {
            self.start_with_rest(turn, key, opening, |engine, turn, opening| {
                engine.start(turn, key, queued.target, opening);
            });
        }
    }

    /// Has calls of the daemon's own services wait for the next process. How many of those that were under way when
    /// that began have no answer: each has one, which does not take long. One whose request is not whole is not begun,
    /// and for how long an answer waits is its caller's doing.
    pub fn hold_own_services(&mut self) -> usize {
        if !self.awaited.is_held() {
            self.awaited.hold(self.own_calls_begun());
        }
        let calls = &self.calls;
        self.awaited.begun().filter(|key| calls.find(*key).is_some_and(|call| !call.response.ended)).count()
    }

    fn own_calls_begun(&self) -> Vec<CallKey> {
        let registry = &self.registry;
        let servers =
            registry.every_server().filter(|(method, server)| registry.is_of_the_house(*method, server));
        let sessions: HashSet<SessionKey> = servers.map(|(_, server)| server.session).collect();
        let is_own = |call: &Call| match &call.server {
            ServerEnd::Session { session, types } => {
                types.pattern == Pattern::Unary && call.request.ended && sessions.contains(session)
            }
            _ => false,
        };
        self.calls.iter().filter(|(_, call)| is_own(call)).map(|(key, _)| key).collect()
    }

    /// Whether a method is served by none but the daemon's own, and they are between two processes. For a call of a
    /// gRPC client, which cannot follow, those of this process are there until it ends.
    pub(crate) fn is_awaited(&self, key: CallKey, method: MethodKey, target: Target) -> bool {
        let servers = self.registry.servers(method);
        let follows = self.calls.find(key).is_none_or(|call| match &call.client {
            ClientEnd::Grpc { .. } => false,
            ClientEnd::Shard { origin, .. } => !matches!(**origin, Origin::Grpc { .. }),
            _ => true,
        });
        let is_away = |server: &Server| {
            self.awaited.is_away(server.session, follows) && self.registry.is_of_the_house(method, server)
        };
        !matches!(target, Target::Cluster(_)) && !servers.is_empty() && servers.iter().all(is_away)
    }

    /// Has calls go on whose services are back, and all when they have waited long enough.
    pub(crate) fn settle_awaited(&mut self, turn: &mut Turn<'_>) {
        let over = self.awaited.is_over(turn.now);
        let Self { registry, awaited, owners, .. } = self;
        // Sessions that are still the only ones to have served some method.
        let mut alone: HashSet<SessionKey> = HashSet::new();
        for row in registry.iter_from(0) {
            let mut sessions = row.servers.iter().map(|server| server.session);
            if sessions.clone().all(|session| awaited.is_away(session, true)) {
                alone.extend(sessions.by_ref());
            }
        }
        let mut services = Vec::new();
        for session in awaited.forget(|session| over || !alone.contains(&session)) {
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
