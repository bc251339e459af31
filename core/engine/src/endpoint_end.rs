//! Opening a call at an endpoint: of a cluster, over the connection of its lane, or over one of a pool.
//!
//! Which endpoint it is `cluster.rs` says, and what there is of connections to it `remote.rs`; what has to wait for
//! them waits in the endpoint's line (`reach.rs`).

use crate::call::{Body, Call, Direction, Item};
use crate::cluster::ClusterChoice;
use crate::ends::{Blocker, ClusterTarget, DatagramTarget, EndpointTarget, Opens, PoolTarget, Refusal};
use crate::lent_call::LentCall;
use crate::owners::Owners;
use crate::remote::{LaneConnection, LaneIndex, Speaks};
use crate::turn::Turn;
use trunkline_call::Fault;

impl Opens for ClusterTarget {
    // LIFE: 9 | endpoint picked, connection found or dialled | the endpoint |
    /// Over to an endpoint, or in the line of a name.
    fn open(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        for source in owners.clusters.take_unasked(self.cluster) {
            owners.remotes.ask_name(source);
        }
        let lane = LaneIndex::of(opening.body().map(Body::len), owners.limits.bulk_body_bytes);
        let Owners { clusters, remotes, .. } = owners;
        let metadata: &[u8] = if let Item::Open { metadata, .. } = &*opening { metadata } else { &[] };
        let found = &mut *call.call;
        let (method, placed) = (found.method, (&mut found.placed, &*found.tried));
        let choice = clusters.place(turn.now, remotes, self.cluster, lane, metadata, placed);
        let fault = match choice {
            ClusterChoice::To(endpoint) => {
                return EndpointTarget { remote: endpoint }.open(owners, turn, call, opening);
            }
            ClusterChoice::Wait(name) => {
                return Err(Refusal::in_line(name, owners.reach().may_wait(call, name)));
            }
            ClusterChoice::Nowhere(name, why) => {
                // The next answer may be better, and who is ready to wait gets it.
                let ready = call.call.waits_for_ready && owners.reach().may_wait(call, name).is_ok();
                owners.remotes.ask_name(name);
                if ready {
                    return Err(Refusal::Blocked(Blocker::Remote(name)));
                }
                Fault::Unreachable { endpoint: owners.remotes.label(name), why }
            }
            ClusterChoice::Full(limit) => {
                let name = "calls under way per endpoint (outstanding_max of a balance policy)";
                Fault::Limit { name, limit }
            }
            ClusterChoice::Unserved => owners.routing().unserved(method),
        };
        Err(Refusal::Fault(fault))
    }
}

impl Opens for EndpointTarget {
    /// Over the open connection of its lane, or in line until there is one.
    fn open(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let lane = LaneIndex::of(opening.body().map(Body::len), owners.limits.bulk_body_bytes);
        let &Self { remote } = self;
        let Some(found) = owners.remotes.find(remote) else {
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        match found.speaks {
            Speaks::Grpc => return PoolTarget { remote }.open(owners, turn, call, opening),
            Speaks::R2p2 | Speaks::Native if opening.is_packed() => {
                let mut plain = owners.grpc.unpacked(Direction::Request, opening).map_err(Refusal::Fault)?;
                return self.open(owners, turn, call, &mut plain);
            }
            Speaks::R2p2 => return DatagramTarget { remote }.open(owners, turn, call, opening),
            Speaks::Unknown | Speaks::Native => {}
        }
        match found.lanes[lane as usize] {
            LaneConnection::Open(peer) => return peer.open(owners, turn, call, opening),
            LaneConnection::Dialling(_) => {
                return Err(Refusal::in_line(remote, owners.reach().may_wait(call, remote)));
            }
            LaneConnection::Idle if found.not_before > turn.now => {
                return Err(Refusal::in_line(remote, owners.reach().unreachable(call, remote)));
            }
            LaneConnection::Idle => {
                let label = found.endpoint.to_string();
                let peer = owners.peers.insert(turn.now, label, Some((remote, lane)));
                owners.remotes.dial_lane(remote, lane, peer);
            }
        }
        Err(Refusal::Blocked(Blocker::Remote(remote)))
    }
}

impl Opens for PoolTarget {
    // LIFE: 9 gRPC
    /// Over the connection with most room, or in line until there is room.
    fn open(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let &Self { remote } = self;
        let is_held = owners.grpc.is_held() && !call.made_for().is_some_and(Call::is_forwarded);
        if let Some(peer) = owners.grpc.with_room(owners.remotes.pooled(remote)).filter(|_| !is_held) {
            return peer.open(owners, turn, call, opening);
        }
        if !is_held {
            owners.reach().grow_pool(turn.now, remote);
        }
        let Some(found) = owners.remotes.find(remote) else {
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        if found.pool.is_unused() && !owners.grpc.is_held() {
            return Err(Refusal::in_line(remote, owners.reach().unreachable(call, remote)));
        }
        Err(Refusal::in_line(remote, owners.reach().may_wait(call, remote)))
    }
}
