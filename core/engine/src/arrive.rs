//! What comes to the ends of calls, and what follows from it.
//!
//! An end's owner is told of it, finds the call it is for, and answers with a value ([`EndEvent`]); this has the call
//! go on, or end. Calls in line for an endpoint go on here, too, when `reach.rs` says so.

use crate::call::{Direction, Item, ServerEnd};
use crate::called_paths::CalledPaths;
use crate::end_event::EndEvent;
use crate::engine::{Engine, Turn};
use crate::grpc::PeerIdentity;
use crate::r2p2_events::R2p2Events;
use crate::r2p2_settings::{R2p2Port, R2p2Settings};
use crate::reach::EndpointReach;
use crate::remote::{Dialled, LaneIndex};
use crate::{CallKey, GrpcKey, PeerKey, RemoteKey};
use core::net::SocketAddrV4;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_r2p2::Transmit;

impl Engine {
    /// The next name to look up. Every one is to be answered with [`Engine::handle_looked_up`], sooner or later.
    pub fn poll_lookup(&mut self) -> Option<Arc<str>> {
        self.remotes.names.wanted.pop_front()
    }

    /// The next name that is to be looked up no more. To be asked for before [`Engine::poll_lookup`]: a name may come
    /// again.
    pub fn poll_name_forgotten(&mut self) -> Option<Arc<str>> {
        self.remotes.names.forgotten.pop_front()
    }

    /// What a name stands for by now, or why that is not known. What stood there before stays when nothing is known.
    pub fn handle_looked_up(&mut self, turn: &mut Turn<'_>, name: &str, found: Result<&[String], &str>) {
        let Some((key, has_changed)) = self.remotes.looked_up(name, found, self.limits.endpoints) else {
            return;
        };
        if has_changed {
            self.clusters.regather(&self.remotes, key);
            self.reach().forget_unwanted();
        }
        self.serve_line(turn, key);
        for name in self.clusters.names_beside(&self.remotes, key) {
            self.serve_line(turn, name);
        }
    }

    /// A connection that was dialled as native turns out to speak HTTP/2 (TLS has agreed on `h2`): from here on it is
    /// the key returned. `None` if the connection is not one that was dialled here.
    pub fn dialled_speaks_grpc(&mut self, key: PeerKey, identity: PeerIdentity) -> Option<GrpcKey> {
        self.reach().dialled_speaks_grpc(key, identity)
    }

    /// A dialled endpoint did not answer. (One that did speaks for itself, by its hello.)
    pub fn handle_dial_failed(&mut self, turn: &mut Turn<'_>, connection: Dialled, why: &str) {
        match connection {
            Dialled::Native(key) => self.lose_peer(turn, key, why, false),
            Dialled::Grpc(key) => self.grpc_lost(turn, key, why),
        }
    }

    /// How R2P2 is spoken; [`R2p2Settings::default`] until this is called. To be said before anybody calls.
    pub fn configure_r2p2(&mut self, now: Instant, settings: R2p2Settings) {
        self.r2p2.configure(now, settings, &self.limits);
    }

    /// Takes a datagram, known to be there since `arrived`. It did not come before `came`: what is not known to be
    /// younger may be a copy of a request that is over, and forgotten.
    pub fn handle_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        port: R2p2Port,
        (came, arrived): (Instant, Instant),
        from: SocketAddrV4,
        datagram: &[u8],
    ) {
        self.arrived = arrived;
        self.sessions.discard_abandoned(turn.heaps);
        self.r2p2.handle_datagram(turn.now, port, came, from, datagram);
        self.take_r2p2_events(turn);
        self.go_on(turn);
    }

    /// Whether requests wait to be sent, which [`Engine::set_datagram_ages`] is to be told of first.
    pub fn sends_r2p2_requests(&self) -> bool {
        self.r2p2.client_sends()
    }

    /// Datagrams are sent now: [`trunkline_r2p2::Client::set_ages`].
    pub fn set_datagram_ages(&mut self, now: Instant) {
        self.r2p2.set_ages(now);
    }

    /// The next datagram to send, and from which port.
    pub fn poll_datagram(&mut self) -> Option<(R2p2Port, Transmit)> {
        self.r2p2.poll_datagram()
    }

    pub(crate) fn r2p2_timeout(&mut self, turn: &mut Turn<'_>) {
        self.r2p2.handle_timeout(turn.now);
        self.arrived = turn.now;
        self.take_r2p2_events(turn);
    }

    /// Answers requests whose calls are over, and lets calls go on that waited for others to end.
    pub(crate) fn settle_r2p2(&mut self, turn: &mut Turn<'_>) {
        self.r2p2.answer_unanswered(turn.now);
        while let Some(call) = self.r2p2.next_unblocked(self.limits.connection_queue_bytes) {
            self.unblock(turn, call, Direction::Request);
        }
    }

    /// Does what both ports have to tell.
    fn take_r2p2_events(&mut self, turn: &mut Turn<'_>) {
        while let Some(event) = self.r2p2.poll_client_event() {
            if let Some(follows) = self.r2p2_events().handle_client(turn.now, &event) {
                self.carry_out_event(turn, follows);
            }
        }
        while let Some(event) = self.r2p2.poll_server_event() {
            if let Some(follows) = self.r2p2_events().handle_server(turn.now, &event) {
                self.carry_out_event(turn, follows);
            }
        }
    }

    /// Does what follows from what came to an end.
    fn carry_out_event(&mut self, turn: &mut Turn<'_>, event: EndEvent<'_>) {
        match event {
            EndEvent::Opens { call, target, mut opening } => self.start(turn, call, target, &mut opening),
            EndEvent::Answer { call, headers, finish } => {
                if let Some(headers) = headers {
                    let metadata = Cow::Borrowed(headers);
                    self.pass(turn, call, Direction::Response, &mut Item::Headers { metadata });
                }
                match finish {
                    Ok(mut finish) => self.pass(turn, call, Direction::Response, &mut finish),
                    Err(fault) => self.fail(turn, call, fault),
                }
            }
            EndEvent::Cancelled { call, code } => self.cancel_as(turn, call, code),
            EndEvent::Failed { call, fault } => self.fail(turn, call, fault),
            EndEvent::Line(remote) => self.serve_line(turn, remote),
        }
    }

    /// Tries every call in line once: each goes, fails, or joins the line again.
    pub(crate) fn serve_line(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let Some(remote) = self.remotes.find_mut(remote_key) else { return };
        for key in remote.waiting.drain() {
            self.go_on_from_line(turn, key);
        }
    }

    /// A connection of an endpoint has come or gone, and those in line try; the endpoint may go.
    pub(crate) fn line_goes_on(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        self.serve_line(turn, remote_key);
        self.reach().forget_unwanted();
    }

    /// Calls in line take the room there is.
    pub(crate) fn serve_pool_line(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        if !self.remotes.has_pool_line(remote_key) {
            return;
        }
        if self.grpc.is_held() {
            for key in self.reach().take_held_line(remote_key) {
                self.go_on_from_line(turn, key);
            }
            return;
        }
        while let Some(key) = self.reach().poll_pool_line(turn.now, remote_key) {
            self.go_on_from_line(turn, key);
        }
    }

    /// It may be dialled again: those in line try.
    pub(crate) fn wake_remote(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        self.remotes.wake(remote_key);
        self.serve_line(turn, remote_key);
    }

    /// A connection ended or never came about ([`EndpointReach::lane_lost`]): those in line go another way.
    pub(crate) fn lane_lost(
        &mut self,
        turn: &mut Turn<'_>,
        lane: (RemoteKey, LaneIndex, PeerKey),
        why: &str,
        silent: bool,
    ) {
        if self.reach().lane_lost(turn.now, lane, why, silent) {
            self.line_goes_on(turn, lane.0);
        }
    }

    /// A call that was in line tries again. It may join the line again, whoever has come meanwhile.
    fn go_on_from_line(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let server = self.calls.find(key).map(|call| &call.server);
        if matches!(server, Some(ServerEnd::Cluster { .. })) {
            self.remotes.goes_on(key);
            self.unblock(turn, key, Direction::Request);
        }
    }

    /// The owners that endpoints and connections to them concern.
    pub(crate) fn reach(&mut self) -> EndpointReach<'_> {
        let Self { remotes, peers, grpc, r2p2, timers, telemetry, host_numbers, .. } = self;
        let Self { clusters, targets, calls, sessions, limits, .. } = self;
        EndpointReach {
            remotes,
            peers,
            grpc,
            r2p2,
            timers,
            telemetry,
            host_numbers,
            clusters,
            targets,
            calls,
            sessions,
            limits,
        }
    }

    /// The owners that know what a path stands for.
    pub(crate) fn paths(&mut self) -> CalledPaths<'_> {
        let Self { registry, telemetry, shards, owners, clusters, limits, .. } = self;
        CalledPaths { registry, telemetry, shards, owners, clusters, limits }
    }

    fn r2p2_events(&mut self) -> R2p2Events<'_> {
        let Self { r2p2, calls, remotes, scratch, peers, peer_rules, arrived, .. } = self;
        let Self { registry, telemetry, shards, owners, clusters, limits, .. } = self;
        let paths = CalledPaths { registry, telemetry, shards, owners, clusters, limits };
        R2p2Events { r2p2, calls, remotes, scratch, peers, peer_rules, paths, arrived: *arrived }
    }
}
