//! Places for which calls wait, over all shards, at workers (`shared_queue.rs`) and by policies: what is said of them,
//! and what is done about it.

use super::crossing::{ShardIndex, ShardSaid};
use crate::call::ClientEnd;
use crate::engine::Engine;
use crate::owners::Owners;
use crate::registry::service_of;
use crate::shared_queue::PlacesAsked;
use crate::turn::Turn;
use std::sync::Arc;
use trunkline_policy::PlaceNotice;

/// Asks the others that serve it, too, for places for calls that wait here.
pub(crate) fn tell_wanted(engine: &mut Engine) {
    while let Some((service, method)) = engine.owners.workers.next_grown() {
        let Owners { workers, shards, registry, .. } = &mut engine.owners;
        let path = registry.path(method);
        let asked: Vec<_> = shards
            .sharing(method, path)
            .filter_map(|one| Some((one.shard, workers.ask(service, one.shard.0)?)))
            .collect();
        for (shard, wish) in asked {
            shards.push(shard, ShardSaid::Wanted { path: Arc::clone(path), wish });
        }
    }
}

/// A shard asks for places for calls that wait there.
pub(crate) fn wanted(engine: &mut Engine, from: ShardIndex, path: &str, wish: PlacesAsked) {
    let Some(method) = engine.owners.registry.own_key_of(path) else { return };
    if let Some(service) = engine.owners.start_of_call().workers_of(method) {
        engine.owners.workers.wish(service, method, from.0, wish);
    }
}

/// A shard keeps a place: the next call that waits goes there, if one does.
pub(crate) fn vacant(engine: &mut Engine, turn: &mut Turn<'_>, from: ShardIndex, path: Arc<str>) {
    let Engine { calls, owners: Owners { workers, .. } } = engine;
    let may_cross = |key| calls.find(key).is_some_and(|call| !matches!(call.client, ClientEnd::Shard { .. }));
    let taken = workers.take_for(service_of(&path), from.0, may_cross);
    match taken.and_then(|key| Some((key, calls.find_mut(key)?))) {
        Some((key, call)) => {
            call.kept_at = Some(from);
            engine.take_from_queue(turn, key, None);
        }
        None => engine.owners.shards.push(from, ShardSaid::Unused { path }),
    }
}

/// Tells the others of places of policies for which calls wait.
pub(crate) fn tell_places(engine: &mut Engine) {
    while let Some(PlaceNotice { to, policy }) = engine.owners.admission.poll_notice() {
        let (policy, wanted) = (Box::<str>::from(policy), to.is_none());
        let others = engine.owners.shards.others();
        for shard in others.filter(|shard| to.is_none_or(|to| to == shard.0)) {
            engine.owners.shards.push(shard, ShardSaid::Places { policy: policy.clone(), wanted });
        }
    }
}
