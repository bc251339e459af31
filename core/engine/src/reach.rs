//! A call on its way to an endpoint: the joint between calls, clusters, endpoints and their connections.
//!
//! `cluster.rs` chooses the endpoint at the moment of hand-over, `remote.rs` knows what there is of connections to it
//! (`connecting.rs` what follows when one comes or goes), `names.rs` what names stand for. What was chosen is noted
//! with the call until its outcome is known, and told to the balancer then.

use crate::call::{Call, Calls, ClientEnd, Direction, Item, ServerEnd};
use crate::cluster::{ClusterChoice, ClusterKey, Placed};
use crate::connecting::{LaneLost, LaneOpened};
use crate::due::Due;
use crate::ends::{Blocker, Opens, Refusal};
use crate::engine::{Engine, Turn};
use crate::grpc::PeerIdentity;
use crate::limits::WAITING;
use crate::remote::{Dial, Dialled, LaneConnection, LaneIndex, LineLimits, Remote, Speaks};
use crate::source::source_of;
use crate::{CallKey, GrpcKey, PeerKey, RemoteKey};
use std::sync::Arc;
use trunkline_call::{Code, Fault, Instant};

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
            for lane in &remote.lanes {
                // What is being dialled is closed when it is there.
                let LaneConnection::Open(peer) = lane else { continue };
                if self.peers.find(*peer).is_some_and(|peer| peer.connection.stream_count() == 0) {
                    self.peers.close(*peer);
                }
            }
            for open in remote.pool.open.clone() {
                self.grpc.leave_unwanted(open);
            }
        }
    }

    /// The cluster of one target of a service, made if new; `None` at the limit.
    pub(crate) fn cluster_of_target(&mut self, remote: RemoteKey, service: &str) -> Option<ClusterKey> {
        let Self { clusters, remotes, admission, attempts, limits, .. } = self;
        let settings = || attempts.balancing(service, admission.chain().balance(service));
        clusters.of_target(remotes, remote, service, limits.endpoints, settings)
    }

    /// Says where calls of a service go.
    pub(crate) fn set_cluster(&mut self, service: &str, sources: Vec<RemoteKey>) {
        let Self { clusters, remotes, admission, attempts, unserved, .. } = self;
        unserved.serve(service);
        clusters.set(remotes, service, sources, || {
            attempts.balancing(service, admission.chain().balance(service))
        });
    }

    /// What is said about balancing has changed.
    pub(crate) fn rebalance(&mut self) {
        let Self { clusters, admission, attempts, .. } = self;
        clusters.configure(|service| attempts.balancing(service, admission.chain().balance(service)));
    }

    /// Whether all of a cluster is reached over R2P2.
    pub(crate) fn is_reached_by_r2p2(&self, key: ClusterKey) -> bool {
        let sources = self.clusters.sources(key);
        !sources.is_empty() && sources.iter().all(|source| self.remotes.r2p2_target(*source).is_some())
    }

    // LIFE: 9 | endpoint picked, connection found or dialled | the endpoint |
    /// A call for a cluster: over to an endpoint of it, or in the line of a name.
    pub(crate) fn hand_to_cluster(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        cluster: ClusterKey,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        for source in self.clusters.take_unasked(cluster) {
            self.remotes.ask_name(source);
        }
        let Some(choice) = self.choose_endpoint(turn.now, key, cluster, item) else {
            return Err(Refusal::Fault(Fault::Ended));
        };
        let fault = match choice {
            ClusterChoice::To(endpoint) => return self.hand_to_remote(turn, key, endpoint, item),
            ClusterChoice::Wait(name) => return Err(self.wait_in_line(key, name)),
            ClusterChoice::Nowhere(name, why) => {
                // The next answer may be better, and who is ready to wait gets it.
                let ready = self.waits_for_ready(key) && self.may_wait(key, name).is_ok();
                self.remotes.ask_name(name);
                if ready {
                    return Err(Refusal::Blocked(Blocker::Remote(name)));
                }
                Fault::Unreachable { endpoint: self.remotes.label(name), why }
            }
            ClusterChoice::Full(limit) => {
                let name = "calls under way per endpoint (outstanding_max of a balance policy)";
                Fault::Limit { name, limit }
            }
            ClusterChoice::Unserved => self.unserved_call(key),
        };
        Err(Refusal::Fault(fault))
    }

    /// The endpoint the call has, while that can be reached; else another. `None` if the call has ended.
    fn choose_endpoint(
        &mut self,
        now: Instant,
        key: CallKey,
        cluster: ClusterKey,
        item: &Item<'_>,
    ) -> Option<ClusterChoice> {
        let lane = self.lane_of(item);
        let Self { clusters, remotes, calls, .. } = self;
        let call = calls.find_mut(key)?;
        if let Some(placed) = call.placed.take() {
            let is_reachable = |key| remotes.find(key).is_some_and(|remote| remote.is_reachable(now, lane));
            if placed.cluster == cluster && is_reachable(placed.endpoint) {
                call.placed = Some(placed);
                return Some(ClusterChoice::To(placed.endpoint));
            }
            clusters.finished(now, placed, None, &[]);
        }
        let metadata: &[u8] = match item {
            Item::Open { metadata, .. } => metadata,
            _ => &[],
        };
        let choice = clusters.choose(now, remotes, cluster, lane, metadata, &call.tried);
        if let ClusterChoice::To(endpoint) = choice {
            call.placed = Some(Placed { cluster, endpoint });
        }
        Some(choice)
    }

    /// A call waits for a connection to its endpoint, or for a name, or fails where too many do.
    pub(crate) fn wait_in_line(&self, key: CallKey, remote: RemoteKey) -> Refusal {
        match self.may_wait(key, remote) {
            Ok(()) => Refusal::Blocked(Blocker::Remote(remote)),
            Err(fault) => Refusal::Fault(fault),
        }
    }

    /// Whether one more call may wait for an endpoint or a name.
    fn may_wait(&self, key: CallKey, remote: RemoteKey) -> Result<(), Fault> {
        let placed = self.calls.find(key).and_then(|call| call.placed);
        let of_policy = placed.and_then(|placed| self.clusters.pending_max(placed));
        let all = of_policy.map_or(usize::MAX, |max| max as usize);
        let each = self.limits.calls_waiting_per_endpoint.min(all);
        if self.remotes.has_room_in_line(remote, key, LineLimits { each, all }, || source_of(self, key)) {
            return Ok(());
        }
        Err(Fault::Limit { name: WAITING, limit: each as u64 })
    }

    fn waits_for_ready(&self, key: CallKey) -> bool {
        self.calls.find(key).is_some_and(|call| call.waits_for_ready)
    }

    /// A call was answered elsewhere before its endpoint did: that is slow.
    pub(crate) fn outpaced(&mut self, now: Instant, key: CallKey) {
        if let Some(placed) = self.calls.find_mut(key).and_then(|call| call.placed.take()) {
            self.clusters.outpaced(now, placed);
        }
    }

    /// How a call ended at the endpoint it was given, with the trailing metadata that came with it.
    pub(crate) fn tell_balancer(&mut self, now: Instant, key: CallKey, code: Option<Code>, trailers: &[u8]) {
        let Some(call) = self.calls.find_mut(key) else { return };
        let Some(placed) = call.placed.take() else { return };
        if code.is_some_and(|code| code != Code::Ok) {
            call.tried.push(placed.endpoint);
        }
        self.clusters.finished(now, placed, code, trailers);
    }

    // LIFE: 9
    /// A call for an endpoint: over the open connection of its lane, or in line until there is one.
    pub(crate) fn hand_to_remote(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        remote_key: RemoteKey,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let lane = self.lane_of(item);
        let Some(remote) = self.remotes.find(remote_key) else {
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        match remote.speaks {
            Speaks::Grpc => return self.hand_to_pool(turn, key, remote_key, item),
            Speaks::R2p2 | Speaks::Native if item.is_packed() => {
                return self.hand_over_unpacked(Direction::Request, item, |this, plain| {
                    this.hand_to_remote(turn, key, remote_key, plain)
                });
            }
            Speaks::R2p2 => return self.hand_to_r2p2_remote(turn, key, remote_key, item),
            Speaks::Unknown | Speaks::Native => {}
        }
        match remote.lanes[lane as usize] {
            LaneConnection::Open(peer) => return peer.open(self, turn, key, item),
            LaneConnection::Dialling(_) => return Err(self.wait_in_line(key, remote_key)),
            LaneConnection::Idle if remote.not_before > turn.now => {
                return Err(self.unreachable(key, remote_key));
            }
            LaneConnection::Idle => {
                let label = remote.endpoint.to_string();
                let peer = self.peers.insert(turn.now, label, Some((remote_key, lane)));
                self.remotes.dial_lane(remote_key, lane, peer);
            }
        }
        Err(Refusal::Blocked(Blocker::Remote(remote_key)))
    }

    // LIFE: 9 gRPC
    /// A call for an endpoint that speaks gRPC: over the connection with most room, or in line until there is room.
    pub(crate) fn hand_to_pool(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        remote_key: RemoteKey,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let is_held = self.grpc.is_held() && !is_for_grpc_client(&self.calls, key);
        if let Some(peer) = self.pooled_with_room(remote_key).filter(|_| !is_held) {
            return peer.open(self, turn, key, item);
        }
        if !is_held {
            self.grow_pool(turn.now, remote_key);
        }
        let Some(remote) = self.remotes.find(remote_key) else {
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        if remote.pool.is_unused() && !self.grpc.is_held() {
            return Err(self.unreachable(key, remote_key));
        }
        Err(self.wait_in_line(key, remote_key))
    }

    /// Dials one more connection, one at a time, if the limit and the last failure allow it.
    fn grow_pool(&mut self, now: Instant, remote_key: RemoteKey) {
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
        while self.pooled_with_room(remote_key).is_some()
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

    /// The connection of a pool with the fewest streams, if it takes one more.
    fn pooled_with_room(&self, remote_key: RemoteKey) -> Option<GrpcKey> {
        self.grpc.with_room(&self.remotes.find(remote_key)?.pool.open)
    }

    /// The lane a call takes by what it opens with, where the endpoint has lanes.
    pub(crate) fn lane_of(&self, opening: &Item<'_>) -> LaneIndex {
        let bulk = opening.body().is_some_and(|body| body.len() > self.limits.bulk_body_bytes);
        if bulk { LaneIndex::Bulk } else { LaneIndex::Small }
    }

    /// Nobody is to be dialled there for a while: the call fails, or waits if it is ready to.
    pub(crate) fn unreachable(&mut self, key: CallKey, remote_key: RemoteKey) -> Refusal {
        let full = if self.waits_for_ready(key) { Some(self.may_wait(key, remote_key)) } else { None };
        let fault = match (self.remotes.find_mut(remote_key), full) {
            (Some(remote), Some(Ok(()))) => {
                if !std::mem::replace(&mut remote.wakes, true) {
                    self.timers.insert(remote.not_before, Due::Remote(remote_key));
                }
                return Refusal::Blocked(Blocker::Remote(remote_key));
            }
            (Some(_), Some(Err(full))) => full,
            (Some(remote), None) => {
                Fault::Unreachable { endpoint: remote.endpoint.to_string(), why: remote.last_error.clone() }
            }
            (None, _) => Fault::NoRoute { what: "endpoint".into() },
        };
        Refusal::Fault(fault)
    }

    /// It may be dialled again: those in line try.
    pub(crate) fn wake_remote(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        if let Some(remote) = self.remotes.find_mut(remote_key) {
            remote.wakes = false;
        }
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
        if !self.waits_for_remote(key) {
            return;
        }
        self.remotes.goes_on(key);
        self.unblock(turn, key, Direction::Request);
    }

    pub(crate) fn waits_for_remote(&self, key: CallKey) -> bool {
        self.calls.find(key).is_some_and(|call| matches!(call.server, ServerEnd::Cluster { .. }))
    }
}

/// Whether the answer to a call, or to the call it is an attempt of, is for a gRPC client: who cannot follow to another
/// process, and is waited for.
fn is_for_grpc_client(calls: &Calls, key: CallKey) -> bool {
    let Some(call) = calls.find(key) else { return false };
    match call.client {
        ClientEnd::Attempt { call, .. } => calls.find(call).is_some_and(Call::is_forwarded),
        _ => call.is_forwarded(),
    }
}
