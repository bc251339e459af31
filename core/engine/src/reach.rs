//! A call on its way to an endpoint: what there is of connections to it, which is to be dialled, and who may wait for
//! that.
//!
//! `endpoint_end.rs` opens it there: `cluster.rs` chooses the endpoint at the moment of hand-over, `remote.rs` knows
//! what there is of connections to it (`connecting.rs` what follows when one comes or goes), `names.rs` what names
//! stand for. What was chosen is noted with the call until its outcome is known, and told to the balancer then.
//! [`EndpointReach`] joins these with the connections themselves, and says whose calls in line go on: `arrive.rs` has
//! them.

use crate::bound_targets::BoundTargets;
use crate::call::Calls;
use crate::cluster::Clusters;
use crate::connecting::{LaneLost, LaneOpened};
use crate::due::Due;
use crate::grpc::{GrpcEnds, GrpcPeer, PeerIdentity, report_name};
use crate::host_numbers::HostNumbers;
use crate::lent_call::LentCall;
use crate::limits::{Limits, WAITING};
use crate::peers::PeerEnds;
use crate::r2p2::R2p2;
use crate::remote::{Dial, Dialled, LaneIndex, LineLimits, Remotes};
use crate::sessions::SessionEnds;
use crate::source::{CallSources, is_for_grpc_client};
use crate::{CallKey, GrpcKey, PeerKey, RemoteKey};
use trunkline_call::{Fault, Instant, TimerTable};
use trunkline_telemetry::Telemetry;

/// The owners that endpoints and connections to them concern, and those who know for whom a call waits.
pub(crate) struct EndpointReach<'e> {
    pub remotes: &'e mut Remotes,
    pub peers: &'e mut PeerEnds,
    pub grpc: &'e mut GrpcEnds,
    pub r2p2: &'e mut R2p2,
    pub timers: &'e mut TimerTable<Due>,
    pub telemetry: &'e mut Telemetry,
    pub host_numbers: &'e mut HostNumbers,
    pub clusters: &'e Clusters,
    pub targets: &'e BoundTargets,
    pub sessions: &'e SessionEnds,
    pub limits: &'e Limits,
}

impl EndpointReach<'_> {
    /// Forgets endpoints that nobody has any more; connections there are closed first.
    pub fn forget_unwanted(&mut self, calls: &Calls) {
        let Self { targets, remotes, .. } = self;
        let is_there = |call| calls.contains(call);
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

    /// Whether one more call may wait for an endpoint or a name.
    ///
    /// # Errors
    /// Too many do.
    pub fn may_wait(&self, waiting: &LentCall<'_>, remote: RemoteKey) -> Result<(), Fault> {
        let Self { remotes, clusters, limits, sessions, peers, grpc, .. } = self;
        let of_policy = waiting.call.placed.and_then(|placed| clusters.pending_max(placed));
        let all = of_policy.map_or(usize::MAX, |max| max as usize);
        let each = limits.calls_waiting_per_endpoint.min(all);
        let source = || CallSources { sessions, peers, grpc }.of_maker(waiting.made_for());
        if remotes.has_room_in_line(remote, waiting.key, LineLimits { each, all }, source) {
            return Ok(());
        }
        Err(Fault::Limit { name: WAITING, limit: each as u64 })
    }

    /// Nobody is to be dialled there for a while: the call waits if it is ready to.
    ///
    /// # Errors
    /// What ends it otherwise.
    pub fn unreachable(&mut self, waiting: &LentCall<'_>, remote: RemoteKey) -> Result<(), Fault> {
        let ready = waiting.call.waits_for_ready.then(|| self.may_wait(waiting, remote));
        let wakes = self.remotes.back_off(remote, ready)?;
        wakes.map(|at| self.timers.insert(at, Due::Remote(remote)));
        Ok(())
    }

    /// Takes in an HTTP/2 connection, made to us or of an endpoint.
    pub fn insert_grpc(
        &mut self,
        label: String,
        identity: PeerIdentity,
        remote: Option<RemoteKey>,
    ) -> GrpcKey {
        let telemetry = self.telemetry.peer(&report_name(&label, remote.is_some()), false);
        self.host_numbers.join(telemetry);
        self.grpc.insert(GrpcPeer::new(label, identity, remote, telemetry))
    }

    /// Dials one more connection, one at a time, if the limit and the last failure allow it.
    pub fn grow_pool(&mut self, now: Instant, remote_key: RemoteKey) {
        let connections_max = self.limits.grpc_connections_per_endpoint;
        let Some(endpoint) = self.remotes.grow_pool(now, remote_key, connections_max) else { return };
        let peer = self.insert_grpc(endpoint.to_string(), PeerIdentity::default(), Some(remote_key));
        self.remotes.dial_pooled(remote_key, endpoint, peer);
    }

    /// A connection that was dialled as native speaks HTTP/2: from here on it is this one. `None` if it was not dialled
    /// here.
    pub fn dialled_speaks_grpc(&mut self, key: PeerKey, identity: PeerIdentity) -> Option<GrpcKey> {
        let (remote_key, lane) = self.peers.find(key)?.lane?;
        let label = self.remotes.find(remote_key)?.endpoint.to_string();
        let peer = self.insert_grpc(label, identity, Some(remote_key));
        self.remotes.handle_lane_speaks_grpc(remote_key, lane, (key, peer));
        self.peers.remove(key);
        Some(peer)
    }

    /// A connection of an endpoint is up, whose calls it takes from now on; `None` if that is not new, or there is no
    /// endpoint.
    pub fn pooled_ready(&mut self, calls: &Calls, remote: Option<RemoteKey>, key: GrpcKey) {
        if let Some(remote) = remote {
            self.remotes.handle_pooled_ready(remote, key);
        }
        self.forget_unwanted(calls);
    }

    /// A connection of a pool takes no new calls. Whether those in line go elsewhere.
    pub fn pooled_leaving(&mut self, now: Instant, remote_key: RemoteKey, key: GrpcKey) -> bool {
        self.remotes.handle_pooled_leaving(now, remote_key, key);
        self.unlearn_unused(remote_key)
    }

    /// A connection of a pool ended, or never came about. Whether those in line go elsewhere; the endpoint may go then.
    pub fn pooled_lost(&mut self, now: Instant, remote_key: RemoteKey, key: GrpcKey, why: &str) -> bool {
        let is_there = self.remotes.handle_pooled_lost(now, remote_key, key, why);
        if is_there {
            self.unlearn_unused(remote_key);
        }
        is_there
    }

    /// An endpoint of which no connection shows any more that it speaks gRPC is asked anew. Whether that was so.
    fn unlearn_unused(&mut self, remote_key: RemoteKey) -> bool {
        // Calls held for the daemon that takes over are its own to dial for.
        !self.grpc.is_held() && self.remotes.unlearn_unused(remote_key)
    }

    /// The next call in line for which a pool has room. One that has not grows where calls are in line.
    pub fn poll_pool_line(&mut self, now: Instant, remote_key: RemoteKey) -> Option<CallKey> {
        if self.grpc.with_room(self.remotes.pooled(remote_key)).is_some()
            && let Some(key) = self.remotes.next_in_line(remote_key)
        {
            return Some(key);
        }
        if self.remotes.find(remote_key).is_some_and(|remote| remote.waiting.len() > 0) {
            self.grow_pool(now, remote_key);
        }
        None
    }

    /// Of those in line only calls of gRPC clients take the room there is: the others wait for another engine.
    pub fn take_held_line(&mut self, calls: &Calls, remote_key: RemoteKey) -> Vec<CallKey> {
        let Self { remotes, sessions, peers, grpc, .. } = self;
        let line = remotes.find_mut(remote_key).map(|remote| remote.waiting.drain());
        let (goes, waits): (Vec<_>, Vec<_>) =
            line.unwrap_or_default().into_iter().partition(|key| is_for_grpc_client(calls, *key));
        for key in waits {
            let source = CallSources { sessions, peers, grpc }.of_key(calls, key);
            remotes.line_up(remote_key, key, source, |_| true);
        }
        goes
    }

    /// A dialled connection said hello. Whether those in line go on.
    pub fn lane_open(&mut self, remote_key: RemoteKey, lane: LaneIndex, peer: PeerKey) -> bool {
        match self.remotes.handle_lane_open(remote_key, lane, peer) {
            LaneOpened::Unwanted => {
                self.peers.close(peer);
                return false;
            }
            LaneOpened::Replaces(before) => self.peers.replaced(before),
            LaneOpened::First => {}
        }
        true
    }

    /// A connection ended or never came about. Calls on it are ended by whoever noticed. Whether those in line go
    /// another way, or fail where there is none.
    ///
    /// `silent`: whoever answers there has not shown that it speaks the native protocol, so it may well speak gRPC.
    pub fn lane_lost(
        &mut self,
        calls: &Calls,
        now: Instant,
        (remote_key, lane, peer): (RemoteKey, LaneIndex, PeerKey),
        why: &str,
        silent: bool,
    ) -> bool {
        match self.remotes.handle_lane_lost(now, (remote_key, lane, peer), why, silent) {
            LaneLost::NotItsLane => {}
            LaneLost::WasOpen => self.forget_unwanted(calls),
            LaneLost::WasDialled => return true,
        }
        false
    }

    /// A peer would rather have new calls on another connection: one is dialled, and takes this one's place when it is
    /// up. Until then, and if it never is, everything goes on here. However often a peer asks, each connection is
    /// replaced by one other, and an endpoint is dialled for it once in a while ([`Remotes::redial`]).
    pub fn redial(&mut self, now: Instant, key: PeerKey) {
        let Some(peer) = self.peers.find_mut(key).filter(|peer| !peer.is_asked_to_redial) else { return };
        let Some((remote_key, lane)) = peer.lane else { return };
        let Some(endpoint) = self.remotes.redial(now, remote_key, lane, key) else { return };
        peer.is_asked_to_redial = true;
        let connection =
            Dialled::Native(self.peers.insert(now, endpoint.to_string(), Some((remote_key, lane))));
        self.remotes.dial(Dial { connection, endpoint, is_known: true });
    }
}
