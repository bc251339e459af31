//! Emptying gRPC connections before a hand-over: they cannot move.
//!
//! Two steps, both while this engine serves. First, the clients that are there are told to go elsewhere, and their
//! calls end in their own time; a client that comes back is served, so that nobody waits for somebody else's long call.
//! Then, for a moment, gRPC is *held*: everybody is told, nobody new is let in (the host sees to that), and calls to
//! gRPC servers wait in line for the engine that takes over, but for those that gRPC clients make (`gateway.rs`), which
//! are waited for; so do calls of the daemon's own services (`awaited.rs`), but for those of gRPC clients again, which
//! this process still answers.
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
    /// What the step waits for: calls of clients that were told first; then connections of clients, calls made, and
    /// calls under way at the daemon's own services.
    pub unfinished: usize,
    /// Calls under way.
    pub calls: usize,
    /// Those of them, and of applications, that the daemon's own services have begun: each has one answer, which does
    /// not take long.
    pub own: usize,
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
            left.own = self.hold_own_services();
        }
        left.unfinished = if hold { clients + made + left.own } else { told };
        left
    }

    /// Has calls of the daemon's own services wait for the next process. How many are under way that will end by
    /// themselves.
    fn hold_own_services(&mut self) -> usize {
        self.awaited.hold();
        let registry = &self.registry;
        let servers =
            registry.every_server().filter(|(method, server)| registry.is_of_the_house(*method, server));
        let sessions: HashSet<SessionKey> = servers.map(|(_, server)| server.session).collect();
        let is_own = |call: &Call| match &call.server {
            ServerEnd::Session { session, types } => {
                types.pattern == Pattern::Unary && sessions.contains(session)
            }
            _ => false,
        };
        self.calls.iter().filter(|(_, call)| is_own(call)).count()
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
        for session in awaited.forget(|session| over || !alone.contains(&session)) {
            registry.withdraw(session);
            owners.leave(session);
        }
        for key in self.awaited.take_calls() {
            self.begin_again(turn, key);
        }
        self.go_on(turn);
    }

    /// The hand-over was in vain: calls in line go on.
    pub fn stay_with_grpc(&mut self, turn: &mut Turn<'_>) {
        if std::mem::take(&mut self.grpc_leaving) == GrpcLeaving::Held {
            self.awaited.release();
            self.settle_awaited(turn);
            let keys: Vec<RemoteKey> = self.remotes.keys();
            keys.into_iter().for_each(|key| self.serve_line(turn, key));
            self.go_on(turn);
        }
    }

    pub(crate) fn grpc_is_held(&self) -> bool {
        self.grpc_leaving == GrpcLeaving::Held
    }
}
