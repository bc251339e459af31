//! Calls of other shards that go to a session as they came: nothing of them is still to come, no other session serves
//! them, and nobody here judges them or has them wait.

use super::crossing::{CrossedBody, ShardIndex, ShardOpening};
use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::ends::SessionHandler;
use crate::engine::Engine;
use crate::item::ItemWay;
use crate::lent_call::LentCall;
use crate::registry::{MethodKey, MethodTypes, Server};
use crate::turn::Turn;
use crate::{CallKey, SessionKey};
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::entry::Completion;
use trunkline_call::{Instant, RouteIndex, Step};
use trunkline_policy::Side;

/// A session that serves a call, by which of its routes, and the call's message.
pub(super) struct ServedBy {
    session: SessionKey,
    types: Arc<MethodTypes>,
    route: RouteIndex,
    method: MethodKey,
    message: Box<CrossedBody>,
}

/// The session that gets a call as it came, if the whole call has come, in time, without waiting and for no place that
/// was kept for it, there is no other session, and nobody judges it or has it wait. The call has its place among those
/// that may be in flight there.
#[inline(always)]
pub(super) fn only_server(
    engine: &mut Engine,
    now: Instant,
    from: ShardIndex,
    opening: &mut ShardOpening,
) -> Option<ServedBy> {
    if !opening.end || opening.kept || opening.receive_wait_ns != 0 {
        return None;
    }
    let method = own_method(engine, from, &opening.path)?;
    let Server { session, ref types, route, .. } = *engine.owners.registry.servers(method).only_one()?;
    let takes_one = !types.input.is_opaque() && !types.pattern.client_streams();
    let is_held_up = engine.owners.draining
        || engine.owners.awaited.is_active()
        || engine.owners.plant.request_hold_ns > 0;
    let is_judged = engine.owners.admission.chain().stands_on(Side::Server);
    let is_late = opening.deadline.has_passed(now);
    if !takes_one || is_held_up || is_judged || is_late {
        return None;
    }
    if engine.owners.shards.elsewhere.is_served(method, &opening.path) {
        return None;
    }
    let types = Arc::clone(types);
    let found = engine.owners.sessions.find_mut(session)?;
    let message = opening.body.take()?;
    if !found.takes_anybodys_call(&engine.owners.limits) {
        opening.body = Some(message);
        return None;
    }
    Some(ServedBy { session, types, route, method, message })
}

/// The method of a path that somebody here has named. Nearly always the last call from there was of the same.
#[inline]
fn own_method(engine: &mut Engine, from: ShardIndex, path: &Arc<str>) -> Option<MethodKey> {
    if let Some(method) = engine.owners.shards.called_last(from, path) {
        return Some(method);
    }
    let method = engine.owners.registry.own_key_of(path)?;
    engine.owners.shards.note_called(from, path, method);
    Some(method)
}

/// Delivers the whole request of a call to the session that serves it.
pub(super) fn serve_as_it_came(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    from: ShardIndex,
    server: ServedBy,
    mut opening: Box<ShardOpening>,
) {
    let ServedBy { session, types, route, method, message } = server;
    let ShardOpening { call: number, logged, choice, deadline, .. } = *opening;
    let Engine { calls, owners } = &mut *engine;
    let (key, call) = calls.renew();
    let (sent, origin) = (opening.types.take(), Arc::clone(&opening.origin));
    call.begin(method, ClientEnd::Shard { shard: from, call: number, types: sent, origin, logged }, deadline);
    (call.server, call.served_as) = (ServerEnd::Session { session, types: Arc::clone(&types) }, Some(route));
    (call.trace, call.choice) = (opening.trace.take(), choice);
    // Its own shard has admitted it.
    (call.admitted, call.request.ended) = (true, true);
    (call.server_stamps.k7, call.server_stamps.d8) = (turn.now, turn.now);
    owners.steps.note(&mut call.last_step, Step { at: turn.now, back: false, message: true });
    owners.shards.enter(from, number, key);
    let metadata = std::mem::take(&mut opening.metadata);
    owners.shards.spent_opening(from, opening);
    let (handler, message) = (SessionHandler { session, types: &types }, Body::Crossed(message));
    let mut lent = LentCall::alone(key, call);
    let delivered = handler.deliver_whole(owners, turn, &mut lent, route, (&metadata, &message));
    owners.sessions.note_served(calls, key, session);
    match (delivered, message) {
        (Ok(()), Body::Crossed(message)) => engine.owners.shards.used_up(message),
        (Ok(()), _) => {}
        (Err(refusal), message) => {
            let (metadata, way) = (Cow::Owned(metadata), ItemWay { key, direction: Direction::Request });
            let mut opening = Item::Open { metadata, body: Some(message), end: true };
            engine.refused(turn, way, &mut opening, refusal);
        }
    }
}

/// The session that has handled a call of another shard, if nobody else here has to do with it, and nothing is left in
/// it.
#[inline]
pub(super) fn handled_alone_by(call: &Call) -> Option<SessionKey> {
    let (&ServerEnd::Session { session, .. }, ClientEnd::Shard { .. }) = (&call.server, &call.client) else {
        return None;
    };
    let is_at_rest = call.request.is_at_rest() && call.response.is_at_rest() && !call.is_at_worker();
    let has_more = call.policies.is_some() || call.parent.is_some() || call.known_as.is_some();
    (is_at_rest && !has_more && call.timer.is_none()).then_some(session)
}

/// Such a call is over, and its shard is told: there is nothing to be given up but its place at its session.
#[inline(always)]
pub(crate) fn leave(
    engine: &mut Engine,
    key: CallKey,
    session: SessionKey,
    (shard, number): (ShardIndex, u64),
) {
    engine.owners.samples.forget(key);
    engine.calls.put_by(key);
    engine.owners.shards.forget(shard, number);
    if engine.owners.sessions.find_mut(session).is_some_and(|session| session.undeliver(key, None)) {
        engine.owners.sessions.complete(session, Completion::Drained);
    }
}
