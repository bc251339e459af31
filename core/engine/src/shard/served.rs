//! Calls of other shards that are served here: how they begin, and how they are given up.
//!
//! What there is to decide of such a call its maker's shard has decided, and what there is to keep it keeps: deadline,
//! record, attempts. Nearly always one session serves the method, and nobody here judges its calls: then a call goes to
//! that session as it came. Any other passes the stations of a call that is made here.

use super::crossing::{ShardFinish, ShardIndex, ShardOpening, ShardSaid};
use super::offers::send_back;
use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::ends::{ItemWay, SessionHandler};
use crate::engine::{Engine, Turn};
use crate::gather::is_whole;
use crate::registry::{MethodKey, MethodTypes, service_of};
use crate::source::source_of;
use crate::target::Target;
use crate::{CallKey, SessionKey};
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::entry::Completion;
use trunkline_call::{Code, Execution, Fault, Instant, RouteIndex, ServerStamps};
use trunkline_grpc::Outcome;
use trunkline_policy::Side;

/// A call of another shard begins here, if somebody here serves it.
pub(super) fn open(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    from: ShardIndex,
    mut opening: Box<ShardOpening>,
) {
    let Some((method, path)) = method_served(engine, from, &opening.path) else {
        if std::mem::take(&mut opening.kept) {
            engine.workers.free_kept(service_of(&opening.path), from.0);
        }
        if engine.shards.moving().any(|moving| moving.offers.has(&opening.path)) {
            return engine.shards.deferred.push(from, opening);
        }
        return send_back(engine, from, *opening);
    };
    let kept = opening.kept.then(|| Arc::clone(&opening.path));
    let ShardOpening { call: number, logged, choice, deadline, end, .. } = *opening;
    let (types, origin) = (opening.types.take(), Arc::clone(&opening.origin));
    let (trace, metadata, body) =
        (opening.trace.take(), std::mem::take(&mut opening.metadata), opening.body.take());
    engine.shards.spent_opening(from, opening);
    let client = ClientEnd::Shard { shard: from, call: number, types, origin, logged };
    let (key, record) = engine.calls.renew();
    record.begin(method, client, deadline);
    (record.path, record.trace, record.choice) = (path, trace, choice);
    // Its own shard has admitted it.
    record.admitted = true;
    (record.server_stamps.k7, record.server_stamps.d8) = (turn.now, turn.now);
    engine.shards.enter(from, number, key);
    let mut item = Item::Open { metadata: Cow::Owned(metadata), body: body.map(Body::Crossed), end };
    if let Some(path) = kept {
        let place = engine.workers.take_kept(service_of(&path), from.0, key);
        if let Some(call) = engine.calls.find_mut(key) {
            call.place = place;
        }
    } else if !deadline.has_passed(turn.now)
        && let Some(server) = only_server(engine, key, method, &item)
    {
        return serve_as_it_came(engine, turn, key, server, &mut item);
    }
    if !end {
        engine.shards.push(from, ShardSaid::Accepted { call: number });
    }
    if deadline.has_passed(turn.now) {
        engine.drop_item(&mut item);
        return engine.fail(turn, key, Fault::DeadlinePassed { executed: Execution::NotExecuted });
    }
    engine.start(turn, key, Target::Here, &mut item);
}

/// The method of a path that somebody here serves, and the path if the method stands for others, too.
fn method_served(
    engine: &mut Engine,
    from: ShardIndex,
    path: &Arc<str>,
) -> Option<(MethodKey, Option<Box<str>>)> {
    let is_served = |engine: &Engine, method| !engine.registry.servers(method).is_empty();
    if let Some(method) = engine.shards.called_last(from, path)
        && is_served(engine, method)
    {
        return Some((method, None));
    }
    let Some(method) = engine.registry.own_key_of(path) else {
        let called = engine.method_called(path)?;
        return is_served(engine, called.method).then_some((called.method, called.path));
    };
    engine.shards.note_called(from, path, method);
    is_served(engine, method).then_some((method, None))
}

/// A session that serves a call, and by which of its routes.
struct ServedBy {
    session: SessionKey,
    types: Arc<MethodTypes>,
    route: RouteIndex,
}

/// The session that gets a call as it came, if there is no other, nothing of the call is still to come, and nobody
/// judges it or has it wait.
fn only_server(engine: &Engine, key: CallKey, method: MethodKey, opening: &Item<'_>) -> Option<ServedBy> {
    let server = engine.registry.servers(method).only_one()?;
    let types = &server.types;
    let takes_one = !types.input.is_opaque() && !types.pattern.client_streams();
    let is_held_up = engine.draining || engine.awaited.is_active() || engine.plant.request_hold_ns > 0;
    if !takes_one || !is_whole(opening) || is_held_up || engine.admission.chain().stands_on(Side::Server) {
        return None;
    }
    let is_elsewhere = engine.shards.elsewhere.is_served(method, &types.path);
    let has_room = engine.sessions.find(server.session)?.has_room(&engine.limits, || source_of(engine, key));
    let end = || ServedBy { session: server.session, types: Arc::clone(types), route: server.route };
    (has_room && !is_elsewhere).then(end)
}

fn serve_as_it_came(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    key: CallKey,
    server: ServedBy,
    opening: &mut Item<'_>,
) {
    let ServedBy { session, types, route } = server;
    engine.set_server(key, ServerEnd::Session { session, types: Arc::clone(&types) }, Some(route));
    if let Some(call) = engine.calls.find_mut(key) {
        call.note_step(&mut engine.steps, turn.now, Direction::Request, opening);
        call.request.ended = true;
    }
    let handler = SessionHandler { session, types: &types };
    if let Err(refusal) = handler.deliver_whole(engine, turn, key, route, opening) {
        engine.refused(turn, ItemWay { key, direction: Direction::Request }, opening, refusal);
    }
}

/// A call is over, and its shard is told. Mostly there is nothing to be given up but its place at its session.
#[inline]
pub(super) fn leave(engine: &mut Engine, now: Instant, key: CallKey, code: Code) {
    let Some((session, shard, number)) = engine.calls.find(key).and_then(handled_alone) else {
        engine.end_policies(now, key, code);
        return engine.forget(key);
    };
    engine.samples.forget(key);
    engine.calls.put_by(key);
    engine.shards.forget(shard, number);
    if engine.sessions.find_mut(session).is_some_and(|session| session.undeliver(key, None)) {
        engine.complete(session, Completion::Drained);
    }
}

/// The session that has handled a call, and who made it by which number, if nobody else here has to do with it, and
/// nothing is left in it.
fn handled_alone(call: &Call) -> Option<(SessionKey, ShardIndex, u64)> {
    let (&ServerEnd::Session { session, .. }, &ClientEnd::Shard { shard, call: number, .. }) =
        (&call.server, &call.client)
    else {
        return None;
    };
    let is_at_rest = call.request.is_at_rest() && call.response.is_at_rest() && !call.is_at_worker();
    let has_more = call.policies.is_some() || call.parent.is_some() || call.known_as.is_some();
    (is_at_rest && !has_more && call.timer.is_none()).then_some((session, shard, number))
}

/// Nobody waits any more for the call of this number. One for a session that is on its way does not begin.
pub(super) fn cancelled(engine: &mut Engine, turn: &mut Turn<'_>, from: ShardIndex, number: u64, code: Code) {
    if let Some(key) = engine.shards.served(from, number) {
        return give_up(engine, turn, key, code);
    }
    let Some(mut opening) = engine.shards.deferred.withdraw(from, number) else { return };
    if let Some(body) = opening.body.take() {
        engine.shards.used(&body);
    }
    engine.shards.spent_opening(from, opening);
    if code == Code::DeadlineExceeded {
        let fault = Fault::DeadlinePassed { executed: Execution::NotExecuted };
        let Outcome { code, execution, metadata } = Outcome::of(&engine.said_here(&fault.status()));
        let (metadata, stamps) = (metadata.into_owned(), ServerStamps::default());
        let finish = ShardFinish {
            call: number,
            code,
            execution,
            metadata,
            body: None,
            types: None,
            stamps,
            measured: false,
        };
        engine.shards.push(from, ShardSaid::Finish(Box::new(finish)));
    }
}

/// Nobody waits for a call any more. If its deadline has passed, its maker's shard waits to hear whether anybody has
/// seen it.
fn give_up(engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, code: Code) {
    if code != Code::DeadlineExceeded {
        return engine.cancel_as(turn, key, code);
    }
    let Some(call) = engine.calls.find_mut(key) else { return };
    // It asks another shard itself, and waits for that.
    if !matches!(call.server, ServerEnd::Shard { late: true, .. }) {
        if let Some(timer) = call.timer.take() {
            engine.timers.cancel(timer);
        }
        engine.expire(turn, key);
    }
}
