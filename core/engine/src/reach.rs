//! A call on its way to an endpoint: the joint between calls, clusters, endpoints and their connections; and what comes
//! by R2P2, where there are none.
//!
//! `endpoint_end.rs` opens it there: `cluster.rs` chooses the endpoint at the moment of hand-over, `remote.rs` knows
//! what there is of connections to it (`connecting.rs` what follows when one comes or goes), `names.rs` what names
//! stand for. What was chosen is noted with the call until its outcome is known, and told to the balancer then.
//! `r2p2.rs` owns the ports of R2P2, `r2p2_messages.rs` has what is said there as calls and items, `r2p2_end.rs` is the
//! way back.

use crate::call::{Call, Direction, Item, ServerEnd};
use crate::connecting::{LaneLost, LaneOpened};
use crate::due::Due;
use crate::ends::{Blocker, Refusal};
use crate::engine::{Engine, Turn};
use crate::grpc::PeerIdentity;
use crate::limits::WAITING;
use crate::r2p2::Named;
use crate::r2p2_messages::{
    RequestRefused, call_of, check_metadata, fault_of_failure, finish_of, opening_of, read_reply,
    read_request,
};
use crate::r2p2_remote::GREETING_TAG;
use crate::r2p2_settings::{R2p2Port, R2p2Settings};
use crate::registry::service_of;
use crate::remote::{Dial, Dialled, LaneIndex, LineLimits, Remote, Speaks};
use crate::source::{is_for_grpc_client, source_of};
use crate::target::Target;
use crate::vouching::PeerRule;
use crate::{CallKey, GrpcKey, PeerKey, RemoteKey};
use core::net::SocketAddrV4;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Code, Execution, Fault, Instant};
use trunkline_native::Trailer;
use trunkline_r2p2::{
    CallFailure, ClientEvent, ReplyEnvelope, Request, RequestEnvelope, ServerEvent, Transmit,
};

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
            self.forget_unwanted();
        }
        self.serve_line(turn, key);
        for name in self.clusters.names_beside(&self.remotes, key) {
            self.serve_line(turn, name);
        }
    }

    /// Forgets endpoints that nobody has any more; connections there are closed first.
    pub(crate) fn forget_unwanted(&mut self) {
        let Self { targets, calls, remotes, .. } = self;
        let is_there = |call| calls.find(call).is_some();
        let connected = remotes.forget_unwanted(|key| targets.has(key), is_there);
        while let Some(target) = self.remotes.poll_forgotten() {
            self.r2p2.forget_target(target);
        }
        for key in connected {
            let Some(remote) = self.remotes.find(key) else { continue };
            // What is being dialled is closed when it is there.
            remote.open_lanes().for_each(|peer| self.peers.close_unused(peer));
            remote.pool.open.iter().for_each(|open| self.grpc.leave_unwanted(*open));
        }
    }

    /// Says where calls of a service go.
    pub(crate) fn set_cluster(&mut self, service: &str, sources: Vec<RemoteKey>) {
        let Self { clusters, remotes, admission, attempts, unserved, .. } = self;
        unserved.serve(service);
        clusters.set(remotes, service, sources, attempts.balancing(admission.chain()));
    }

    /// What is said about balancing has changed.
    pub(crate) fn rebalance(&mut self) {
        let Self { clusters, admission, attempts, .. } = self;
        clusters.configure(attempts.balancing(admission.chain()));
    }

    /// A call waits for a connection to its endpoint, or for a name, or fails where too many do.
    pub(crate) fn wait_in_line(&self, key: CallKey, remote: RemoteKey) -> Refusal {
        match self.may_wait(key, remote) {
            Ok(()) => Refusal::Blocked(Blocker::Remote(remote)),
            Err(fault) => Refusal::Fault(fault),
        }
    }

    /// Whether one more call may wait for an endpoint or a name.
    pub(crate) fn may_wait(&self, key: CallKey, remote: RemoteKey) -> Result<(), Fault> {
        let placed = self.calls.find(key).and_then(|call| call.placed);
        let of_policy = placed.and_then(|placed| self.clusters.pending_max(placed));
        let all = of_policy.map_or(usize::MAX, |max| max as usize);
        let each = self.limits.calls_waiting_per_endpoint.min(all);
        if self.remotes.has_room_in_line(remote, key, LineLimits { each, all }, || source_of(self, key)) {
            return Ok(());
        }
        Err(Fault::Limit { name: WAITING, limit: each as u64 })
    }

    pub(crate) fn waits_for_ready(&self, key: CallKey) -> bool {
        self.calls.find(key).is_some_and(|call| call.waits_for_ready)
    }

    /// Dials one more connection, one at a time, if the limit and the last failure allow it.
    pub(crate) fn grow_pool(&mut self, now: Instant, remote_key: RemoteKey) {
        let connections_max = self.limits.grpc_connections_per_endpoint;
        let Some(endpoint) = self.remotes.grow_pool(now, remote_key, connections_max) else { return };
        let peer = self.insert_grpc(endpoint.to_string(), PeerIdentity::default(), Some(remote_key));
        self.remotes.dial_pooled(remote_key, endpoint, peer);
    }

    /// A connection that was dialled as native turns out to speak HTTP/2 (TLS has agreed on `h2`): from here on it is
    /// the key returned. `None` if the connection is not one that was dialled here.
    pub fn dialled_speaks_grpc(&mut self, key: crate::PeerKey, identity: PeerIdentity) -> Option<GrpcKey> {
        let (remote_key, lane) = self.peers.find(key)?.lane?;
        let label = self.remotes.find(remote_key)?.endpoint.to_string();
        let peer = self.insert_grpc(label, identity, Some(remote_key));
        self.remotes.handle_lane_speaks_grpc(remote_key, lane, (key, peer));
        self.peers.remove(key);
        Some(peer)
    }

    /// A connection of an endpoint is up, whose calls it takes from now on; `None` if that is not new, or there is no
    /// endpoint.
    pub(crate) fn pooled_ready(&mut self, remote: Option<RemoteKey>, key: GrpcKey) {
        if let Some(remote) = remote {
            self.remotes.handle_pooled_ready(remote, key);
        }
        self.forget_unwanted();
    }

    /// A connection of a pool takes no new calls: those go elsewhere.
    pub(crate) fn pooled_leaving(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey, key: GrpcKey) {
        self.remotes.handle_pooled_leaving(turn.now, remote_key, key);
        if self.unlearn_unused(remote_key) {
            self.serve_line(turn, remote_key);
        }
    }

    /// A connection of a pool ended, or never came about.
    pub(crate) fn pooled_lost(
        &mut self,
        turn: &mut Turn<'_>,
        remote_key: RemoteKey,
        key: GrpcKey,
        why: &str,
    ) {
        if self.remotes.handle_pooled_lost(turn.now, remote_key, key, why) {
            self.unlearn_unused(remote_key);
            self.serve_line(turn, remote_key);
            self.forget_unwanted();
        }
    }

    /// An endpoint of which no connection shows any more that it speaks gRPC is asked anew. Whether that was so.
    fn unlearn_unused(&mut self, remote_key: RemoteKey) -> bool {
        // Calls held for the daemon that takes over are its own to dial for.
        !self.grpc.is_held() && self.remotes.unlearn_unused(remote_key)
    }

    /// Calls in line take the room there is. Every call touches its connection several times; there is seldom a line.
    pub(crate) fn serve_pool_line(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let has_line = |remote: &Remote| remote.speaks == Speaks::Grpc && remote.waiting.len() > 0;
        if !self.remotes.find(remote_key).is_some_and(has_line) {
            return;
        }
        if self.grpc.is_held() {
            return self.serve_held_line(turn, remote_key);
        }
        while self.grpc.with_room(self.remotes.pooled(remote_key)).is_some()
            && let Some(key) = self.remotes.next_in_line(remote_key)
        {
            self.go_on_from_line(turn, key);
        }
        if self.remotes.find(remote_key).is_some_and(|remote| remote.waiting.len() > 0) {
            self.grow_pool(turn.now, remote_key);
        }
    }

    /// Of those in line only calls of gRPC clients take the room there is: the others wait for another engine.
    fn serve_held_line(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let line = self.remotes.find_mut(remote_key).map(|remote| remote.waiting.drain());
        let (goes, waits): (Vec<_>, Vec<_>) =
            line.unwrap_or_default().into_iter().partition(|key| is_for_grpc_client(&self.calls, *key));
        for key in waits {
            let source = source_of(self, key);
            self.remotes.line_up(remote_key, key, source);
        }
        for key in goes {
            self.go_on_from_line(turn, key);
        }
    }

    /// Nobody is to be dialled there for a while: the call fails, or waits if it is ready to.
    pub(crate) fn unreachable(&mut self, key: CallKey, remote_key: RemoteKey) -> Refusal {
        let ready = self.waits_for_ready(key).then(|| self.may_wait(key, remote_key));
        match self.remotes.back_off(remote_key, ready) {
            Ok(wakes) => {
                wakes.map(|at| self.timers.insert(at, Due::Remote(remote_key)));
                Refusal::Blocked(Blocker::Remote(remote_key))
            }
            Err(fault) => Refusal::Fault(fault),
        }
    }

    /// It may be dialled again: those in line try.
    pub(crate) fn wake_remote(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        self.remotes.wake(remote_key);
        self.serve_line(turn, remote_key);
    }

    /// A dialled connection said hello: those in line go on.
    pub(crate) fn lane_open(
        &mut self,
        turn: &mut Turn<'_>,
        remote_key: RemoteKey,
        lane: LaneIndex,
        peer: PeerKey,
    ) {
        match self.remotes.handle_lane_open(remote_key, lane, peer) {
            LaneOpened::Unwanted => return self.peers.close(peer),
            LaneOpened::Replaces(before) => self.peers.replaced(before),
            LaneOpened::First => {}
        }
        self.serve_line(turn, remote_key);
        self.forget_unwanted();
    }

    /// A peer would rather have new calls on another connection: one is dialled, and takes this one's place when it is
    /// up. Until then, and if it never is, everything goes on here. However often a peer asks, each connection is
    /// replaced by one other, and an endpoint is dialled for it once in a while ([`crate::remote::Remotes::redial`]).
    pub(crate) fn redial(&mut self, now: Instant, key: PeerKey) {
        let Some(peer) = self.peers.find_mut(key).filter(|peer| !peer.is_asked_to_redial) else { return };
        let Some((remote_key, lane)) = peer.lane else { return };
        let Some(endpoint) = self.remotes.redial(now, remote_key, lane, key) else { return };
        peer.is_asked_to_redial = true;
        let connection =
            Dialled::Native(self.peers.insert(now, endpoint.to_string(), Some((remote_key, lane))));
        self.remotes.dial(Dial { connection, endpoint, is_known: true });
    }

    /// A dialled endpoint did not answer. (One that did speaks for itself, by its hello.)
    pub fn handle_dial_failed(&mut self, turn: &mut Turn<'_>, connection: Dialled, why: &str) {
        match connection {
            Dialled::Native(key) => self.lose_peer(turn, key, why, false),
            Dialled::Grpc(key) => self.grpc_lost(turn, key, why),
        }
    }

    /// A connection ended or never came about. Calls on it are ended by whoever noticed; those in line go another way,
    /// or fail here if there is none.
    ///
    /// `silent`: whoever answers there has not shown that it speaks the native protocol, so it may well speak gRPC.
    pub(crate) fn lane_lost(
        &mut self,
        turn: &mut Turn<'_>,
        remote_key: RemoteKey,
        lane: LaneIndex,
        peer: PeerKey,
        why: &str,
        silent: bool,
    ) {
        match self.remotes.handle_lane_lost(turn.now, (remote_key, lane, peer), why, silent) {
            LaneLost::NotItsLane => return,
            LaneLost::WasOpen => {}
            LaneLost::WasDialled => self.serve_line(turn, remote_key),
        }
        self.forget_unwanted();
    }

    /// Tries every call in line once: each goes, fails, or joins the line again.
    pub(crate) fn serve_line(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let Some(remote) = self.remotes.find_mut(remote_key) else { return };
        for key in remote.waiting.drain() {
            self.go_on_from_line(turn, key);
        }
    }

    /// A call that was in line tries again. It may join the line again, whoever has come meanwhile.
    pub(crate) fn go_on_from_line(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let server = self.calls.find(key).map(|call| &call.server);
        if matches!(server, Some(ServerEnd::Cluster { .. })) {
            self.remotes.goes_on(key);
            self.unblock(turn, key, Direction::Request);
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
        self.handle_r2p2_events(turn);
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
        self.handle_r2p2_events(turn);
    }

    /// Answers requests whose calls are over, and lets calls go on that waited for others to end.
    pub(crate) fn settle_r2p2(&mut self, turn: &mut Turn<'_>) {
        self.r2p2.answer_unanswered(turn.now);
        while let Some(call) = self.r2p2.next_unblocked(self.limits.connection_queue_bytes) {
            self.unblock(turn, call, Direction::Request);
        }
    }

    /// Does what both ports have to tell.
    fn handle_r2p2_events(&mut self, turn: &mut Turn<'_>) {
        while let Some(event) = self.r2p2.poll_client_event() {
            self.handle_client_event(turn, event);
        }
        while let Some(event) = self.r2p2.poll_server_event() {
            match event {
                ServerEvent::Request(request) => self.handle_r2p2_request(turn, &request),
                // Nobody waits for the reply any more.
                ServerEvent::Cancelled { key } => {
                    if let Some(call) = self.r2p2.call_of(key) {
                        self.cancel(turn, call);
                    }
                }
            }
        }
    }

    fn handle_client_event(&mut self, turn: &mut Turn<'_>, event: ClientEvent) {
        let (ClientEvent::Replied { tag, .. } | ClientEvent::Failed { tag, .. }) = event;
        if tag & GREETING_TAG != 0 {
            let remote = RemoteKey::from_bits(tag & !GREETING_TAG);
            let failure = if let ClientEvent::Failed { failure, .. } = event { Some(failure) } else { None };
            let Self { r2p2, remotes, limits, .. } = self;
            if r2p2.handle_greeting(turn.now, limits, remotes, remote, failure) {
                self.serve_line(turn, remote);
            }
            return;
        }
        // One reply may end other calls, whose own is then nobody's.
        let key = CallKey::from_bits(tag);
        let server = self.calls.find(key).map(|call| &call.server);
        let Some(&ServerEnd::R2p2 { remote, .. }) = server else { return };
        match event {
            ClientEvent::Replied { server, body, trailer, .. } => {
                self.handle_r2p2_reply(turn, (key, remote), server, &body, trailer.as_ref());
            }
            ClientEvent::Failed { failure, .. } => {
                if failure == CallFailure::Silent
                    && let Some(known) = self.remotes.r2p2_mut(remote)
                {
                    known.fell_silent();
                }
                self.r2p2.forget_made(key);
                self.fail(turn, key, fault_of_failure(failure, self.remotes.label(remote)));
            }
        }
    }

    // LIFE: 19 R2P2
    fn handle_r2p2_reply(
        &mut self,
        turn: &mut Turn<'_>,
        (key, remote): (CallKey, RemoteKey),
        server: SocketAddrV4,
        body: &[u8],
        trailer: Option<&Trailer>,
    ) {
        let linear = self.r2p2.forget_made(key);
        let reply = match read_reply(body) {
            Ok(reply) => reply,
            Err(fault) => return self.fail(turn, key, fault),
        };
        let Self { calls, remotes, .. } = self;
        if reply.fingerprint != 0
            && let (Some(call), Some(known)) = (calls.find(key), remotes.r2p2_mut(remote))
        {
            known.has(call.method, reply.fingerprint);
        }
        if reply.is_unreadable {
            let Self { r2p2, calls, remotes, scratch, limits, .. } = self;
            let Some(call) = calls.find_mut(key) else { return };
            let again = r2p2.send_again(turn.now, limits, (key, call), (remotes, remote), scratch, &linear);
            return again.unwrap_or_else(|fault| self.fail(turn, key, fault));
        }
        let number = self.r2p2.number(Named::Server(server), &mut self.telemetry);
        if let Some(call) = self.calls.find_mut(key) {
            call.peer_index = number;
            call.answer_begins(self.arrived, turn.now, trailer);
        }
        if let Some(headers) = reply.headers {
            let metadata = Cow::Borrowed(headers);
            self.pass(turn, key, Direction::Response, &mut Item::Headers { metadata });
        }
        match finish_of(&reply) {
            Ok(mut finish) => self.pass(turn, key, Direction::Response, &mut finish),
            Err(fault) => self.fail(turn, key, fault),
        }
    }

    // LIFE: 13 R2P2
    /// A peer calls.
    fn handle_r2p2_request(&mut self, turn: &mut Turn<'_>, request: &Request) {
        let (now, key) = (turn.now, request.key);
        let said = match read_request(&request.body) {
            Ok(said) if said.path.is_empty() => {
                self.r2p2.reply(now, key, &ReplyEnvelope::of(Code::Ok, Execution::NotExecuted));
                return;
            }
            Ok(said) => said,
            Err(uncalled) => return self.r2p2.refuse(now, key, &uncalled, |said| self.peers.said_here(said)),
        };
        match self.called_by_r2p2(now, request, &said) {
            Ok(call) => {
                let call = self.calls.insert(call);
                self.r2p2.serve(key, call);
                self.start(turn, call, Target::Here, &mut opening_of(&said));
            }
            Err(uncalled) => self.r2p2.refuse(now, key, &uncalled, |said| self.peers.said_here(said)),
        }
    }

    /// The call a request means, if it can be one here.
    fn called_by_r2p2(
        &mut self,
        now: Instant,
        request: &Request,
        said: &RequestEnvelope<'_>,
    ) -> Result<Call, RequestRefused> {
        check_metadata(said)?;
        PeerRule::check(&self.peer_rules, "", service_of(said.path)).map_err(RequestRefused::Refused)?;
        let (called, pattern) = self.served(said.path)?;
        let served: Vec<_> = self.routing().all_types_served(called.method).collect();
        call_of(request, said, (called, pattern), &served, (self.arrived, now))
    }
}
