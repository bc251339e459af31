//! Emptying gRPC connections before a hand-over: they cannot move.
//!
//! Three steps, all while this engine serves. First, the clients that are there are told to go elsewhere, and their
//! calls end in their own time; a client that comes back is served, so that nobody waits for somebody else's long call.
//! Then calls of the daemon's own services (`awaited.rs`) wait for the next process, but for those of gRPC clients,
//! which this one still answers, and those that are under way are answered: gRPC goes on meanwhile, so that nobody who
//! has called one of them holds up others. Last, for a moment, gRPC is *held*: everybody is told, nobody new is let in
//! (the host sees to that), and calls to gRPC servers wait in line for the engine that takes over, but for those that
//! gRPC clients make (`gateway.rs`), which are waited for.
//! When nothing is left, no call is in the way.

use crate::call::{Call, ClientEnd, ServerEnd};
use crate::engine::{Engine, Turn};
use crate::grpc_peer::GrpcLeaving;
use crate::registry::{MethodKey, Server};
use crate::shard::Origin;
use crate::target::Target;
use crate::{CallKey, RemoteKey, SessionKey};
use std::collections::HashSet;
use trunkline_call::Pattern;
use trunkline_grpc::Command;

/// How far that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrpcLeft {
    /// What the step waits for: calls of clients that were told first; then connections of clients, and calls made.
    pub unfinished: usize,
    /// Calls under way.
    pub calls: usize,
}

impl Engine {
    /// Begins a step, or goes on with it.
    pub fn leave_grpc(&mut self, hold: bool) -> GrpcLeft {
        let begins = std::mem::replace(&mut self.grpc_leaving, GrpcLeaving::Told) == GrpcLeaving::No;
        if hold {
            self.grpc_leaving = GrpcLeaving::Held;
        }
        if begins || hold {
            let untold =
                self.grpc_peers.iter_mut().filter(|(_, peer)| peer.remote.is_none() && !peer.leaving);
            self.commands.extend(untold.map(|(key, peer)| {
                peer.leaving = true;
                (key, Command::GoAway)
            }));
        }
        let (mut left, mut told, mut clients, mut made) = (GrpcLeft::default(), 0, 0, 0);
        for (_, peer) in self.grpc_peers.iter() {
            let streams = peer.streams.len();
            left.calls += streams;
            match peer.remote {
                Some(_) => made += streams,
                None => {
                    clients += 1;
                    told += if peer.leaving { streams } else { 0 };
                }
            }
        }
        if hold {
            self.hold_own_services();
        }
        left.unfinished = if hold { clients + made } else { told };
        left
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

    /// The hand-over was in vain: calls in line go on.
    pub fn stay_with_grpc(&mut self, turn: &mut Turn<'_>) {
        let was_held = std::mem::take(&mut self.grpc_leaving) == GrpcLeaving::Held;
        if self.awaited.release() {
            self.settle_awaited(turn);
        }
        if was_held {
            let keys: Vec<RemoteKey> = self.remotes.keys();
            keys.into_iter().for_each(|key| self.serve_line(turn, key));
            self.go_on(turn);
        }
    }

    pub(crate) fn grpc_is_held(&self) -> bool {
        self.grpc_leaving == GrpcLeaving::Held
    }
}
