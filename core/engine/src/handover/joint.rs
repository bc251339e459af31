//! The hand-over: what the host asks of an engine that is replaced, and of the one that goes on.
//!
//! Owners write and take up their parts, and say of what stayed behind how it ends. This does what they say, in order,
//! and gives everything else a push. And what waits for another process to go on: calls of the daemon's own services,
//! and gRPC connections, which are empty by then.

use super::arriving::ArrivingOwners;
use super::front::ShardsOfState;
use super::going_on::{Brought, MovedOwners, NotServing};
use super::leaving::LeavingOwners;
use super::left_out::LeftOutSession;
use super::state::{Exported, HandoverError, StateRead};
use crate::bound_methods::{bound_methods, put_plans};
use crate::engine::Engine;
use crate::grpc::GrpcLeft;
use crate::owners::Owners;
use crate::registry::BoundSchema;
use crate::turn::Turn;
use crate::{PeerKey, SessionKey};
use std::sync::Arc;

/// The schemas a state written now would name.
pub fn schemas_in_use(engine: &Engine) -> Vec<Arc<BoundSchema>> {
    leaving(engine).schemas()
}

/// Writes an engine's state down, between two turns. Nothing changes here.
///
/// # Errors
/// [`HandoverError::Malformed`] if some of it cannot be written.
pub fn export_state(engine: &Engine) -> Result<Exported, HandoverError> {
    leaving(engine).export()
}

/// How many shards a host must have where an engine goes on with this state: up to the last one it has calls with.
/// `None`: the state cannot be read.
pub fn shards_needed(state: &[u8]) -> Option<u16> {
    let ShardsOfState(shards) = ciborium::from_reader(state).ok()?;
    Some(shards.busy())
}

/// Goes on with a state that another engine has written. To be called with a fresh one, configured as this host is now,
/// before services are; [`go_on_elsewhere`] follows as soon as the other engine is gone. Sessions whose schemas do not
/// define what they use, and what contradicts itself, are left out ([`left_out_sessions`]).
///
/// # Errors
/// [`HandoverError`]. Whatever the bytes are, nothing panics.
pub fn take_over(
    mut engine: Engine,
    state: &[u8],
    schemas: &[Arc<BoundSchema>],
) -> Result<Engine, HandoverError> {
    let owners_left = arriving(&mut engine).take_up(StateRead::read(state)?, schemas)?;
    engine.binder().hold_targets_again();
    engine.owners.reach().forget_unwanted(&engine.calls);
    arriving(&mut engine).check()?;
    engine.binder().know_owners_again(&owners_left);
    plan_again(&mut engine);
    engine.rebalance();
    arriving(&mut engine).number_peers();
    Ok(engine)
}

/// Goes on after [`take_over`], from the moment on in which no other engine works with the same rings and sockets.
/// Connections without a socket are lost, or dialled again if nothing was said on them; sessions without memory are
/// detached.
pub fn go_on_elsewhere(engine: &mut Engine, turn: &mut Turn<'_>, brought: &Brought<'_>) {
    moved(engine).count_what_waits(turn.heaps);
    let sessions: Vec<SessionKey> = engine.owners.sessions.iter().map(|(key, _)| key).collect();
    // Before anything goes on: what moves on would be handed to somebody who is not there.
    let behind = moved(engine).sessions_behind(brought);
    let NotServing { withdrawn, awaited } = moved(engine).stop_serving(turn.now, &behind);
    awaited.into_iter().for_each(|key| engine.stop_serving(key, &[""; 0]));
    withdrawn.into_iter().for_each(|key| engine.withdraw(key));
    let behind: Vec<_> = behind.into_iter().filter_map(|key| Some((key, engine.part_with(key)?))).collect();
    moved(engine).rename_blocks(turn.heaps);
    for call in moved(engine).calls_here() {
        if let Some(mut end) = moved(engine).end_behind(call) {
            engine.carry_out_event(turn, &mut end);
        }
    }
    for (key, parked) in behind {
        engine.end_calls_of(turn, key, parked);
    }
    lose_left_out(engine, turn);
    engine.owners.reach().forget_unwanted(&engine.calls);
    let peers: Vec<PeerKey> = engine.owners.peers.iter().map(|(key, _)| key).collect();
    for key in peers.iter().filter(|key| !(brought.socket)(**key)) {
        if !moved(engine).dials_again(*key) {
            engine.peer_lost(turn, *key, "connection could not be handed over");
        }
    }
    for key in moved(engine).queued() {
        engine.begin_again(turn, key);
    }
    push(engine, turn, peers, sessions);
}

/// The sessions that do not go on here. To be asked between [`take_over`] and [`go_on_elsewhere`]: their memory is to
/// be left behind.
pub fn left_out_sessions(engine: &Engine) -> Vec<LeftOutSession> {
    engine.owners.left_out.sessions_told(&engine.owners.sessions)
}

/// The connections that do not go on here, with why, in the same time.
pub fn left_out_connections(engine: &Engine) -> Vec<(String, String)> {
    engine.owners.left_out.connections_told(&engine.owners.peers)
}

/// Begins a step of emptying gRPC connections before a hand-over, or goes on with it.
pub fn leave_grpc(engine: &mut Engine, hold: bool) -> GrpcLeft {
    let left = engine.owners.grpc.leave(hold);
    if hold {
        hold_own_services(engine);
    }
    left
}

/// Has calls of the daemon's own services wait for the next process. How many of those that were under way when that
/// began have no answer: each has one, which does not take long. One whose request is not whole is not begun, and for
/// how long an answer waits is its caller's doing.
pub fn hold_own_services(engine: &mut Engine) -> usize {
    engine.owners.awaited.hold(&engine.calls, &engine.owners.registry)
}

/// The hand-over was in vain: calls in line go on.
pub fn stay_with_grpc(engine: &mut Engine, turn: &mut Turn<'_>) {
    let was_held = engine.owners.grpc.stay();
    if engine.owners.awaited.release() {
        settle_awaited(engine, turn);
    }
    if was_held {
        for key in engine.owners.remotes.keys() {
            engine.serve_line(turn, key);
        }
        engine.go_on(turn);
    }
}

/// Has calls go on whose services are back, and all when they have waited long enough.
pub(crate) fn settle_awaited(engine: &mut Engine, turn: &mut Turn<'_>) {
    let Owners { registry, awaited, service_users, .. } = &mut engine.owners;
    let mut services = Vec::new();
    for session in awaited.forget(turn.now, registry) {
        services.extend(registry.services_of(session));
        registry.withdraw(session);
        service_users.leave(session);
    }
    engine.peer_answers().changed(&services);
    for key in engine.owners.awaited.take_calls() {
        engine.begin_again(turn, key);
    }
    engine.go_on(turn);
}

/// Connections that are left out end, with the calls on them.
fn lose_left_out(engine: &mut Engine, turn: &mut Turn<'_>) {
    for (key, why) in moved(engine).take_left_out() {
        let Some((endpoint, over)) = moved(engine).over_left_out(key) else { continue };
        for call in over {
            if let Some(mut end) = moved(engine).end_over(&endpoint, call) {
                engine.carry_out_event(turn, &mut end);
            }
        }
        engine.peer_lost(turn, key, &why);
    }
}

/// Whoever waits for a connection, a session or an endpoint goes on, as far as there is room.
fn push(engine: &mut Engine, turn: &mut Turn<'_>, peers: Vec<PeerKey>, sessions: Vec<SessionKey>) {
    for key in peers {
        engine.owners.peers.transmit(key);
        engine.unblock_peer(turn, key);
        engine.settle_peer(turn, key);
        engine.peer_events().look_at_messages_in_time(turn.now, key);
    }
    for key in sessions {
        engine.unpark(turn, key);
    }
    for key in engine.owners.remotes.keys() {
        engine.serve_line(turn, key);
    }
    engine.owners.sessions.line_up_all();
    engine.peer_answers().all_changed();
    engine.go_on(turn);
}

/// Compiles the chain for everything that is bound.
fn plan_again(engine: &mut Engine) {
    let Owners { admission, sessions, registry, gateway, .. } = &mut engine.owners;
    let bound = bound_methods(sessions, registry, gateway);
    let plans = admission.plan_all(&bound);
    put_plans(sessions, registry, plans);
    let Engine { calls, owners } = engine;
    let mut start = owners.start_of_call();
    calls.iter_mut().for_each(|(_, call)| start.enlist_again(call));
}

fn leaving(engine: &Engine) -> LeavingOwners<'_> {
    let Engine { calls, owners } = engine;
    let Owners { sessions, peers, grpc, r2p2, remotes, clusters, nested, registry, .. } = owners;
    let Owners { shards, service_users, awaited, admission, timers, limits, types_bound, .. } = owners;
    let Owners { telemetry, .. } = owners;
    LeavingOwners {
        sessions,
        peers,
        grpc,
        r2p2,
        remotes,
        clusters,
        calls,
        nested,
        registry,
        shards,
        service_users,
        awaited,
        admission,
        timers,
        limits,
        telemetry,
        types_bound: *types_bound,
    }
}

fn arriving(engine: &mut Engine) -> ArrivingOwners<'_> {
    let Engine { calls, owners } = engine;
    let Owners { sessions, peers, grpc, r2p2, remotes, clusters, nested, registry, .. } = owners;
    let Owners { shards, left_out, admission, attempts, timers, telemetry, held, .. } = owners;
    let Owners { host_numbers, types_bound, limits, .. } = owners;
    ArrivingOwners {
        sessions,
        peers,
        grpc,
        r2p2,
        remotes,
        clusters,
        calls,
        nested,
        registry,
        shards,
        left_out,
        admission,
        attempts,
        timers,
        telemetry,
        held,
        host_numbers,
        types_bound,
        limits,
    }
}

fn moved(engine: &mut Engine) -> MovedOwners<'_> {
    let Engine { calls, owners } = engine;
    let Owners { sessions, peers, r2p2, remotes, shards, left_out, awaited, timers, .. } = owners;
    let Owners { registry, limits, .. } = owners;
    MovedOwners { sessions, peers, r2p2, remotes, calls, shards, left_out, awaited, timers, registry, limits }
}
