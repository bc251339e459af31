//! Calls that come back from a shard that does not serve their methods any more: they go to another, or wait for one if
//! they are such as wait (`unserved.rs`).
//!
//! Policies have judged such a call before it crossed, and do not again. What waits behind its opening stays behind it.

use super::chosen::find_shard;
use super::crossing::{ShardIndex, ShardOpening, ShardStage};
use super::offers::is_not_served;
use crate::CallKey;
use crate::call::{Body, Call, Direction, Item, ServerEnd};
use crate::engine::Engine;
use crate::half::Backlog;
use crate::item::ItemWay;
use crate::limits::CROSSING;
use crate::owners::Owners;
use crate::routing::Routing;
use crate::served_later::wait_for_service;
use crate::target::Target;
use crate::turn::Turn;
use crate::wait_accounts::WaitAccounts;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::Fault;

const WAY: Direction = Direction::Request;

/// Nobody there serves the call any more, and what is served there by now was said before: it goes to another.
pub(super) fn returned(engine: &mut Engine, turn: &mut Turn<'_>, from: ShardIndex, opening: ShardOpening) {
    let body = opening.body.map(Body::Crossed);
    let mut item = Item::Open { metadata: Cow::Owned(opening.metadata), body, end: opening.end };
    let Some((key, call)) = made(engine, from, opening.call) else {
        return engine.owners.drop_item(&mut item);
    };
    let method = call.method;
    let Owners { shards, registry, .. } = &mut engine.owners;
    is_not_served((shards, registry), from, method, (&opening.path, opening.version));
    go_elsewhere(engine, turn, key, &mut item);
}

/// A call that policies have judged goes to whoever serves it by now, or waits; else it ends.
pub(crate) fn go_elsewhere(engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, opening: &mut Item<'_>) {
    let is_whole = matches!(opening, Item::Open { end: true, .. });
    let Some((next, behind)) = take_behind(engine, key, is_whole) else {
        return engine.owners.drop_item(opening);
    };
    engine.leave_server(key);
    let goes = match next {
        Ok(server) => {
            let Engine { calls, owners } = &mut *engine;
            if let Some(call) = calls.find_mut(key) {
                begin_anew(call);
                owners.start_of_call().set_server(call, server, None);
            }
            engine.hand_over(turn, key, WAY, opening);
            Ok(())
        }
        Err(fault) => wait_again(engine, turn, key, opening, fault),
    };
    match goes {
        Ok(()) => wait_behind(engine, turn, key, behind),
        Err(fault) => {
            engine.owners.drop_item(opening);
            behind.into_iter().for_each(|mut item| engine.owners.drop_item(&mut item));
            engine.fail(turn, key, fault);
        }
    }
}

/// Nobody has seen it, and it is counted when it crosses again.
fn begin_anew(call: &mut Call) {
    call.handed_over = false;
    (call.request.messages, call.request.bytes) = (0, 0);
}

/// Where a call goes that came back, and what waits behind its opening; nobody pays for that now.
fn take_behind(
    engine: &mut Engine,
    key: CallKey,
    is_whole: bool,
) -> Option<(Result<ServerEnd, Fault>, Backlog)> {
    let Engine { calls, owners } = engine;
    let Owners { registry, service_users, clusters, sessions, peers, grpc, shards, .. } = owners;
    let Owners { held, invariants, limits, .. } = owners;
    let call = calls.find_mut(key)?;
    let next = next_server(Routing { registry, shards, service_users, clusters }, call, is_whole);
    let mut accounts = WaitAccounts { sessions, peers, grpc, shards, held, invariants, limits };
    Some((next, accounts.take_backlog(key, call, WAY)))
}

/// It waits there again, and whoever is to pay for it at the end it has by now does.
fn wait_behind(engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, behind: Backlog) {
    for mut item in behind {
        match engine.calls.find(key).is_some_and(|call| call.outcome.is_none()) {
            true => engine.hold(turn, ItemWay { key, direction: WAY }, &mut item),
            false => engine.owners.drop_item(&mut item),
        }
    }
}

/// Has a call wait that policies have judged, with its message put aside.
fn wait_again(
    engine: &mut Engine,
    turn: &Turn<'_>,
    key: CallKey,
    opening: &mut Item<'_>,
    fault: Fault,
) -> Result<(), Fault> {
    let held = match opening.body() {
        Some(Body::Crossed(body)) => Some((body.payer, body.bytes.len() as u64)),
        _ => None,
    };
    if let Some(call) = engine.calls.find_mut(key) {
        begin_anew(call);
    }
    wait_for_service(engine, turn, (key, Target::Anyone), opening, fault)?;
    let queued = engine.calls.find_mut(key).and_then(|call| call.queued.as_mut());
    queued.into_iter().for_each(|queued| queued.is_judged = true);
    let limit = engine.owners.limits.parked_bytes_per_session;
    if held.is_some_and(|(payer, bytes)| !engine.owners.shards.put_aside(key, payer, bytes, limit)) {
        // Its opening waits by now, and goes with it.
        return Err(Fault::Limit { name: CROSSING, limit: limit as u64 });
    }
    Ok(())
}

/// Where a call goes that came back. Its own shard takes it as any other would: what there is to judge there has not
/// been judged.
fn next_server(routing: Routing<'_>, call: &Call, is_whole: bool) -> Result<ServerEnd, Fault> {
    let here = || {
        let server = routing.registry.in_line(call.method).first()?;
        let (shard, types) = (routing.shards.own(), Arc::clone(&server.types));
        Some(ServerEnd::Shard { shard, types, stage: ShardStage::Chosen, late: false })
    };
    let elsewhere = |stands_by| find_shard(routing.shards, routing.registry, call, stands_by);
    let found = elsewhere(false).or_else(here).or_else(|| elsewhere(true));
    match found {
        Some(server) => Ok(server),
        None if is_whole && call.is_made_here() => {
            Ok(ServerEnd::Cluster { cluster: routing.cluster_of(call.method)? })
        }
        None => Err(routing.unserved(call.method)),
    }
}

/// A call made here, if it is at work there.
#[inline]
pub(super) fn made(engine: &mut Engine, there: ShardIndex, number: u64) -> Option<(CallKey, &mut Call)> {
    let key = engine.owners.shards.made_by(there, number);
    let call = engine.calls.find_mut(key)?;
    is_served_by(call, there).then_some((key, call))
}

/// Whether a shard serves a call.
#[inline]
pub(super) fn is_served_by(call: &Call, there: ShardIndex) -> bool {
    matches!(&call.server, ServerEnd::Shard { shard, .. } if *shard == there)
}
