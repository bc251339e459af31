//! Calls of other shards that are served here: how they begin, and how they are given up.
//!
//! What there is to decide of such a call its maker's shard has decided, and what there is to keep it keeps: deadline,
//! record, attempts. Nearly always one session serves the method, and nobody here judges its calls: then a call goes to
//! that session as it came (`whole.rs`). Any other passes the stations of a call that is made here.

use super::crossing::{ShardFinish, ShardIndex, ShardOpening, ShardSaid};
use super::offers::send_back;
use super::whole::{only_server, serve_as_it_came};
use crate::CallKey;
use crate::call::{Body, ClientEnd, Item, ServerEnd};
use crate::engine::Engine;
use crate::registry::{MethodKey, service_of};
use crate::target::Target;
use crate::turn::Turn;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Code, Execution, Fault, ServerStamps};
use trunkline_grpc::Outcome;

/// A call of another shard begins here, if somebody here serves it.
pub(super) fn open(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    from: ShardIndex,
    mut opening: Box<ShardOpening>,
) {
    match only_server(engine, turn.now, from, &mut opening) {
        Some(server) => serve_as_it_came(engine, turn, from, server, opening),
        None => open_as_others(engine, turn, from, opening),
    }
}

/// The same of one that passes the stations of a call that is made here.
fn open_as_others(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    from: ShardIndex,
    mut opening: Box<ShardOpening>,
) {
    let Some((method, path)) = method_served(engine, from, &opening.path) else {
        if std::mem::take(&mut opening.kept) {
            engine.owners.workers.free_kept(service_of(&opening.path), from.0);
        }
        if engine.owners.shards.moving().any(|moving| moving.offers.has(&opening.path)) {
            return engine.owners.shards.deferred.push(from, opening);
        }
        return send_back(engine, from, *opening);
    };
    let kept = opening.kept.then(|| Arc::clone(&opening.path));
    let ShardOpening { call: number, logged, choice, deadline, end, receive_wait_ns: waited_ns, .. } =
        *opening;
    let (types, origin) = (opening.types.take(), Arc::clone(&opening.origin));
    let (trace, metadata, body) =
        (opening.trace.take(), std::mem::take(&mut opening.metadata), opening.body.take());
    engine.owners.shards.spent_opening(from, opening);
    let client = ClientEnd::Shard { shard: from, call: number, types, origin, logged };
    let (key, record) = engine.calls.renew();
    record.begin(method, client, deadline);
    (record.path, record.trace, record.choice) = (path, trace, choice);
    // Its own shard has admitted it.
    record.admitted = true;
    record.receive_wait_ns = waited_ns;
    let came = turn.now.minus_ns(waited_ns);
    (record.server_stamps.k7, record.server_stamps.d8) = (came, came);
    if let Some(path) = kept {
        record.place = engine.owners.workers.take_kept(service_of(&path), from.0, key);
    }
    engine.owners.shards.enter(from, number, key);
    let mut item = Item::Open { metadata: Cow::Owned(metadata), body: body.map(Body::Crossed), end };
    if !end {
        engine.owners.shards.push(from, ShardSaid::Accepted { call: number });
    }
    if deadline.has_passed(turn.now) {
        engine.owners.drop_item(&mut item);
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
    let is_served = |engine: &Engine, method| !engine.owners.registry.servers(method).is_empty();
    if let Some(method) = engine.owners.shards.called_last(from, path)
        && is_served(engine, method)
    {
        return Some((method, None));
    }
    // The last may have been of a method that nobody names any more.
    let Some(method) = engine.owners.registry.own_key_of(path) else {
        let called = engine.paths().called(path)?;
        return is_served(engine, called.method).then_some((called.method, called.path));
    };
    engine.owners.shards.note_called(from, path, method);
    is_served(engine, method).then_some((method, None))
}

/// Nobody waits any more for the call of this number. One for a session that is on its way does not begin.
pub(super) fn cancelled(engine: &mut Engine, turn: &mut Turn<'_>, from: ShardIndex, number: u64, code: Code) {
    if let Some(key) = engine.owners.shards.served(from, number) {
        return give_up(engine, turn, key, code);
    }
    let Some(mut opening) = engine.owners.shards.deferred.withdraw(from, number) else { return };
    if let Some(body) = opening.body.take() {
        engine.owners.shards.used(&body);
    }
    engine.owners.shards.spent_opening(from, opening);
    if code == Code::DeadlineExceeded {
        let fault = Fault::DeadlinePassed { executed: Execution::NotExecuted };
        let Outcome { code, execution, metadata } =
            Outcome::of(&engine.owners.peers.said_here(&fault.status()));
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
            peer: None,
        };
        engine.owners.shards.push(from, ShardSaid::Finish(Box::new(finish)));
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
            engine.owners.timers.cancel(timer);
        }
        engine.expire(turn, key);
    }
}
