//! Opening a call at an endpoint: of a cluster, over the connection of its lane, or over one of a pool.
//!
//! Which endpoint it is `cluster.rs` says, and what there is of connections to it `remote.rs`; what has to wait for
//! them waits in the endpoint's line (`reach.rs`).

use crate::CallKey;
use crate::call::{Body, Direction, Item};
use crate::cluster::ClusterChoice;
use crate::ends::{Blocker, ClusterTarget, DatagramTarget, EndpointTarget, Opens, PoolTarget, Refusal};
use crate::engine::{Engine, Turn};
use crate::owners::Owners;
use crate::reach::WaitingCall;
use crate::remote::{LaneConnection, LaneIndex, Speaks};
use crate::source::is_for_grpc_client;
use trunkline_call::Fault;

impl Opens for ClusterTarget {
    // LIFE: 9 | endpoint picked, connection found or dialled | the endpoint |
    /// Over to an endpoint, or in the line of a name.
    fn open(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        key: CallKey,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        for source in engine.owners.clusters.take_unasked(self.cluster) {
            engine.owners.remotes.ask_name(source);
        }
        let lane = LaneIndex::of(opening.body().map(Body::len), engine.owners.limits.bulk_body_bytes);
        let Engine { calls, owners: Owners { clusters, remotes, .. } } = &mut *engine;
        let Some(call) = calls.find_mut(key) else { return Err(Refusal::Fault(Fault::Ended)) };
        let metadata: &[u8] = if let Item::Open { metadata, .. } = &*opening { metadata } else { &[] };
        let (method, placed) = (call.method, (&mut call.placed, &*call.tried));
        let choice = clusters.place(turn.now, remotes, self.cluster, lane, metadata, placed);
        let waiting = WaitingCall::of(key, call);
        let fault = match choice {
            ClusterChoice::To(endpoint) => {
                return EndpointTarget { remote: endpoint, waiting }.open(engine, turn, key, opening);
            }
            ClusterChoice::Wait(name) => {
                return Err(Refusal::in_line(name, engine.reach().may_wait(waiting, name)));
            }
            ClusterChoice::Nowhere(name, why) => {
                // The next answer may be better, and who is ready to wait gets it.
                let ready = waiting.is_ready_to() && engine.reach().may_wait(waiting, name).is_ok();
                engine.owners.remotes.ask_name(name);
                if ready {
                    return Err(Refusal::Blocked(Blocker::Remote(name)));
                }
                Fault::Unreachable { endpoint: engine.owners.remotes.label(name), why }
            }
            ClusterChoice::Full(limit) => {
                let name = "calls under way per endpoint (outstanding_max of a balance policy)";
                Fault::Limit { name, limit }
            }
            ClusterChoice::Unserved => engine.routing().unserved(method),
        };
        Err(Refusal::Fault(fault))
    }
}

impl Opens for EndpointTarget {
    /// Over the open connection of its lane, or in line until there is one.
    fn open(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        key: CallKey,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let lane = LaneIndex::of(opening.body().map(Body::len), engine.owners.limits.bulk_body_bytes);
        let &Self { remote, waiting } = self;
        let Some(found) = engine.owners.remotes.find(remote) else {
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        match found.speaks {
            Speaks::Grpc => return PoolTarget { remote, waiting }.open(engine, turn, key, opening),
            Speaks::R2p2 | Speaks::Native if opening.is_packed() => {
                let mut plain =
                    engine.owners.grpc.unpacked(Direction::Request, opening).map_err(Refusal::Fault)?;
                return self.open(engine, turn, key, &mut plain);
            }
            Speaks::R2p2 => return DatagramTarget { remote, waiting }.open(engine, turn, key, opening),
            Speaks::Unknown | Speaks::Native => {}
        }
        match found.lanes[lane as usize] {
            LaneConnection::Open(peer) => return peer.open(engine, turn, key, opening),
            LaneConnection::Dialling(_) => {
                return Err(Refusal::in_line(remote, engine.reach().may_wait(waiting, remote)));
            }
            LaneConnection::Idle if found.not_before > turn.now => {
                return Err(Refusal::in_line(remote, engine.reach().unreachable(waiting, remote)));
            }
            LaneConnection::Idle => {
                let label = found.endpoint.to_string();
                let peer = engine.owners.peers.insert(turn.now, label, Some((remote, lane)));
                engine.owners.remotes.dial_lane(remote, lane, peer);
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
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        key: CallKey,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let &Self { remote, waiting } = self;
        let is_held = engine.owners.grpc.is_held() && !is_for_grpc_client(&engine.calls, key);
        if let Some(peer) =
            engine.owners.grpc.with_room(engine.owners.remotes.pooled(remote)).filter(|_| !is_held)
        {
            return peer.open(engine, turn, key, opening);
        }
        if !is_held {
            engine.reach().grow_pool(turn.now, remote);
        }
        let Some(found) = engine.owners.remotes.find(remote) else {
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        if found.pool.is_unused() && !engine.owners.grpc.is_held() {
            return Err(Refusal::in_line(remote, engine.reach().unreachable(waiting, remote)));
        }
        Err(Refusal::in_line(remote, engine.reach().may_wait(waiting, remote)))
    }
}
