//! What shards tell each other of what they serve, also while a session moves from one to another.

use super::crossing::{Offers, Origin, ShardIndex, ShardOpening, ShardSaid};
use super::links::ShardLinks;
use crate::call::{Body, ClientEnd, Item};
use crate::due::Due;
use crate::engine::Engine;
use crate::owners::Owners;
use crate::registry::{MethodKey, MethodTypes, Registry};
use crate::{CallKey, SessionKey};
use std::sync::Arc;
use trunkline_call::{Deadline, Instant};

/// What is told at once however soon after the last time: methods, services and their users.
const OFFERS_UNPACED: usize = 1024;
/// How long it rests for each of them, beyond that: about ten times what one costs the shards that hear of it. Whoever
/// has bound very many routes, and binds and detaches one name without end, is so not to stop them.
const PAUSE_NS: u64 = 4_000;

/// Tells the others what is served here, if that has changed and they were not told very much just now. What a session
/// serves that is on its way to another shard is served here until it has arrived: calls for it are kept.
#[inline]
pub(crate) fn tell_news(engine: &mut Engine, now: Instant) {
    if !engine.owners.shards.is_alone()
        && engine.owners.shards.telling.has_news(engine.owners.registry.version())
    {
        let told = tell_all(engine);
        if told > OFFERS_UNPACED {
            engine.owners.shards.telling.rest();
            engine.owners.timers.insert(now.plus_ns(told as u64 * PAUSE_NS), Due::Offers);
        }
    }
}

/// What a session has bound is told at once, also where the rest is told later: a name that is somebody's is so on all
/// shards. What is not served any more, they find out when they call it.
pub(crate) fn tell_bound(
    engine: &mut Engine,
    session: SessionKey,
    services: &[String],
    types: &[Arc<MethodTypes>],
) {
    if engine.owners.shards.is_alone() || !engine.owners.shards.telling.rests() {
        return;
    }
    let Some(identity) = engine.owners.sessions.find(session).map(|session| session.identity.clone()) else {
        return;
    };
    let owners = services.iter().map(|service| (service.as_str().into(), identity.clone())).collect();
    let offers =
        Offers { version: engine.owners.registry.version(), ..Offers::of_session(types.iter(), owners) };
    let (to, offers) = (engine.owners.shards.own(), Arc::new(offers));
    for shard in engine.owners.shards.others() {
        engine.owners.shards.push(shard, ShardSaid::Moved { to, offers: Arc::clone(&offers) });
    }
}

/// Tells all at once, because a session has moved.
pub(crate) fn tell_offers(engine: &mut Engine) {
    if !engine.owners.shards.is_alone()
        && engine.owners.shards.telling.is_behind(engine.owners.registry.version())
    {
        tell_all(engine);
    }
}

/// How much was told.
fn tell_all(engine: &mut Engine) -> usize {
    engine.owners.shards.telling.note(engine.owners.registry.version());
    let mut offers = Offers::of(&engine.owners.registry, engine.owners.service_users.all());
    for moving in engine.owners.shards.moving() {
        offers.methods.extend(moving.offers.methods.iter().cloned());
        offers.owners.extend(moving.offers.owners.iter().cloned());
    }
    let offers = Arc::new(offers);
    for shard in engine.owners.shards.others() {
        engine.owners.shards.push(shard, ShardSaid::Offers(Arc::clone(&offers)));
    }
    offers.methods.len() + offers.owners.len()
}

/// Returns an opening. It does not come again: who gets it back knows by it that its method is not served here.
pub(crate) fn send_back(engine: &mut Engine, to: ShardIndex, opening: ShardOpening) {
    let opening = ShardOpening { version: engine.owners.registry.version(), ..opening };
    engine.owners.shards.push(to, ShardSaid::Returned(Box::new(opening)));
}

/// A call has come back from another shard: until more is heard of it, its method is not served there. More may be
/// known already: a session has left for that shard since, this one or another, which has said so.
pub(crate) fn is_not_served(
    (shards, registry): (&mut ShardLinks, &mut Registry),
    from: ShardIndex,
    method: MethodKey,
    (path, version): (&str, u64),
) {
    if shards.elsewhere.version_of(from) <= version && shards.moving().all(|moving| moving.to != from) {
        shards.elsewhere.forget_server(from, method, path, registry);
    }
}

/// Another shard says what it serves. It may not know yet what has left for it. The services it serves otherwise than
/// before; `None` if that is not known.
pub(crate) fn served_elsewhere(
    engine: &mut Engine,
    from: ShardIndex,
    offers: &Offers,
) -> Option<Vec<Box<str>>> {
    let Owners { shards, registry, telemetry, .. } = &mut engine.owners;
    let changed = shards.elsewhere.replace(from, offers, registry, telemetry);
    let coming: Vec<Arc<Offers>> =
        shards.moving().filter(|moving| moving.to == from).map(|moving| Arc::clone(&moving.offers)).collect();
    for offers in coming {
        shards.elsewhere.add(from, &offers, registry, telemetry);
    }
    expect(engine, offers);
    engine.forget_unused_names();
    changed
}

/// Calls that wait for services go on whose services are among these.
fn expect(engine: &mut Engine, offers: &Offers) {
    offers.owners.iter().for_each(|(service, _)| engine.owners.unserved.serve(service));
}

/// A session leaves for another shard, with what it serves: that is served there from now on.
pub(crate) fn leaves(engine: &mut Engine, to: ShardIndex, offers: Offers) {
    let Owners { shards, registry, telemetry, .. } = &mut engine.owners;
    shards.elsewhere.add(to, &offers, registry, telemetry);
    shards.move_away(to, Arc::new(offers));
}

/// A session that left for another shard has arrived there, and all shards have been told what that one serves by now:
/// but it may be that what is served here no longer is heard first.
pub(crate) fn has_arrived(engine: &mut Engine, at: ShardIndex) {
    let Some(offers) = engine.owners.shards.has_arrived(at) else { return };
    let version = engine.owners.shards.elsewhere.version_of(at);
    let offers = Arc::new(Offers { version, ..Offers::clone(&offers) });
    for shard in engine.owners.shards.others().filter(|shard| *shard != at) {
        engine.owners.shards.push(shard, ShardSaid::Moved { to: at, offers: Arc::clone(&offers) });
    }
    tell_offers(engine);
}

/// What a session serves that has moved to a shard, by the word of the one it has left.
pub(crate) fn is_brought(engine: &mut Engine, to: ShardIndex, offers: &Offers) {
    let Owners { shards, registry, telemetry, .. } = &mut engine.owners;
    if to != shards.own() {
        shards.elsewhere.bring(to, offers, registry, telemetry);
        expect(engine, offers);
    }
}

/// A call of another shard whose method nobody here serves any more: back to where it came from, if all of it is here
/// and nobody has seen it. Whether it has gone, and its opening is used up.
pub(crate) fn give_back(engine: &mut Engine, key: CallKey, opening: &mut Item<'_>) -> bool {
    let Some(call) = engine.calls.find(key) else { return false };
    // One that was made here, by a session that has moved, is judged here or was.
    let (&ClientEnd::Shard { shard, call: number, .. }, None, false, false) =
        (&call.client, call.handler(), call.handed_over, call.has_moved())
    else {
        return false;
    };
    let path =
        call.path.as_deref().map_or_else(|| Arc::clone(engine.owners.registry.path(call.method)), Arc::from);
    let is_whole = matches!(opening, Item::Open { body: None | Some(Body::Crossed(_)), end: true, .. });
    if !is_whole || !engine.owners.registry.servers(call.method).is_empty() {
        return false;
    }
    let Item::Open { metadata, body, end } = opening.take() else { return false };
    let body = body.and_then(|body| if let Body::Crossed(body) = body { Some(body) } else { None });
    let returned = ShardOpening {
        call: number,
        path,
        types: None,
        origin: Arc::new(Origin::Gone),
        logged: false,
        trace: None,
        choice: call.choice,
        deadline: Deadline::NONE,
        metadata: metadata.into_owned(),
        body,
        end,
        kept: false,
        receive_wait_ns: 0,
        version: 0,
    };
    send_back(engine, shard, returned);
    engine.forget(key);
    true
}
