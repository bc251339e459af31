//! The shard that is to serve a call, as its server end.

use super::crossing::{ShardSaid, ShardStage};
use super::links::ShardLinks;
use crate::call::{Call, ClientEnd, ServerEnd};
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

/// A call does not go to the place that is kept for it.
pub(crate) fn return_kept(shards: &mut ShardLinks, registry: &Registry, call: &mut Call) {
    let Some(shard) = call.kept_at.take() else { return };
    let path = Arc::clone(registry.path(call.method));
    shards.push(shard, ShardSaid::Unused { path });
}
