//! The shard that is to serve a call, as its server end; and the call one speaks of that does.

use super::crossing::{ShardIndex, ShardStage};
use super::links::ShardLinks;
use crate::CallKey;
use crate::call::{Call, ClientEnd, ServerEnd};
use crate::engine::Engine;
use crate::registry::Registry;
use std::sync::Arc;

/// A shard that serves a method, or its service, if one does.
pub(crate) fn find_shard(
    shards: &ShardLinks,
    registry: &Registry,
    call: &Call,
    stands_by: bool,
) -> Option<ServerEnd> {
    if shards.is_alone() || matches!(call.client, ClientEnd::Shard { .. }) && !call.has_moved() {
        return None;
    }
    let path = || call.path.as_deref().unwrap_or_else(|| registry.path(call.method));
    let serving = shards.serving(call.method, path, stands_by)?;
    let (shard, types) = (serving.shard, Arc::clone(&serving.types));
    Some(ServerEnd::Shard { shard, types, stage: ShardStage::Chosen, late: false })
}

/// The shard that keeps a place for a call, if it serves the method still.
pub(crate) fn find_keeping(shards: &ShardLinks, registry: &Registry, call: &Call) -> Option<ServerEnd> {
    let kept_at = call.kept_at?;
    let path = registry.path(call.method);
    let serving = shards.sharing(call.method, path).find(|one| one.shard == kept_at)?;
    let types = Arc::clone(&serving.types);
    Some(ServerEnd::Shard { shard: kept_at, types, stage: ShardStage::Chosen, late: false })
}

/// A call made here, if it is at work there.
#[inline]
pub(super) fn made(engine: &mut Engine, there: ShardIndex, number: u64) -> Option<(CallKey, &mut Call)> {
    let key = engine.shards.made_by(there, number);
    let call = engine.calls.find_mut(key)?;
    let is_there = matches!(&call.server, ServerEnd::Shard { shard, .. } if *shard == there);
    is_there.then_some((key, call))
}
