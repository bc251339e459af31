//! What shards tell each other of what they serve, also while a session moves from one to another.

use super::crossing::{Offers, ShardIndex, ShardOpening, ShardSaid};
use crate::engine::Engine;
use std::sync::Arc;

/// Tells the others what is served here, if that has changed. What a session serves that is on its way to another shard
/// is served here until it has arrived: calls for it are kept.
#[inline]
pub(crate) fn tell_offers(engine: &mut Engine) {
    if engine.shards.tells(engine.registry.version()) {
        tell_all(engine);
    }
}

fn tell_all(engine: &mut Engine) {
    let mut offers = Offers::of(&engine.registry, engine.owners.all());
    for moving in engine.shards.moving() {
        offers.methods.extend(moving.offers.methods.iter().cloned());
        offers.owners.extend(moving.offers.owners.iter().cloned());
    }
    let offers = Arc::new(offers);
    for shard in engine.shards.others() {
        engine.shards.push(shard, ShardSaid::Offers(Arc::clone(&offers)));
    }
}

/// Returns an opening, after what is served here by now: it must not come again.
pub(crate) fn send_back(engine: &mut Engine, to: ShardIndex, opening: ShardOpening) {
    tell_offers(engine);
    engine.shards.push(to, ShardSaid::Returned(Box::new(opening)));
}

/// Another shard says what it serves. It may not know yet what has left for it.
pub(crate) fn served_elsewhere(engine: &mut Engine, from: ShardIndex, offers: &Offers) {
    let Engine { shards, registry, telemetry, .. } = engine;
    shards.elsewhere.replace(from, offers, |path| registry.intern(path, || telemetry.method(path)));
    let coming: Vec<Arc<Offers>> =
        shards.moving().filter(|moving| moving.to == from).map(|moving| Arc::clone(&moving.offers)).collect();
    for offers in coming {
        shards.elsewhere.add(from, &offers, |path| registry.intern(path, || telemetry.method(path)));
    }
}

/// A session leaves for another shard, with what it serves: that is served there from now on.
pub(crate) fn leaves(engine: &mut Engine, to: ShardIndex, offers: Offers) {
    let Engine { shards, registry, telemetry, .. } = engine;
    shards.elsewhere.add(to, &offers, |path| registry.intern(path, || telemetry.method(path)));
    shards.move_away(to, Arc::new(offers));
}

/// A session that left for another shard has arrived there, and all shards have been told what that one serves by now:
/// but it may be that what is served here no longer is heard first.
pub(crate) fn has_arrived(engine: &mut Engine, at: ShardIndex) {
    let Some(offers) = engine.shards.has_arrived(at) else { return };
    let version = engine.shards.elsewhere.version_of(at);
    let offers = Arc::new(Offers { version, ..Offers::clone(&offers) });
    for shard in engine.shards.others().filter(|shard| *shard != at) {
        engine.shards.push(shard, ShardSaid::Moved { to: at, offers: Arc::clone(&offers) });
    }
    tell_offers(engine);
}

/// What a session serves that has moved to a shard, by the word of the one it has left.
pub(crate) fn is_brought(engine: &mut Engine, to: ShardIndex, offers: &Offers) {
    let Engine { shards, registry, telemetry, .. } = engine;
    if to != shards.own() {
        shards.elsewhere.bring(to, offers, |path| registry.intern(path, || telemetry.method(path)));
    }
}
