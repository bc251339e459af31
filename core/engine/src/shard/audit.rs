//! What shards keep of each other, held against each other: for tests.

use super::crossing::{Payer, ShardIndex, ShardStage};
use crate::call::{Body, Call, Item, ServerEnd};
use crate::engine::Engine;

/// Holds what shards keep of each other against each other, while nothing is in the queues between them: for tests.
///
/// # Errors
/// The first count that does not agree.
pub fn audit_crossings(engines: &[&Engine]) -> Result<(), String> {
    for engine in engines {
        let own = engine.shards.own();
        for (payer, bytes) in engine.shards.under_way() {
            let there = engines.iter().map(|other| held_for(other, own, payer)).sum::<u64>();
            if there != bytes {
                return Err(format!("{own:?}: {payer:?} has {bytes} under way, and {there} are there"));
            }
        }
        for other in engines.iter().filter(|other| other.shards.own() != own) {
            let (served, at) = (other.shards.book(own).0, other.shards.own());
            let is_there = |call: &&Call| {
                let half = &call.response;
                let is_whole =
                    half.ended || half.backlog.iter().any(|item| matches!(item, Item::Finish { .. }));
                let opened = |stage| stage != ShardStage::Chosen;
                !is_whole
                    && matches!(call.server, ServerEnd::Shard { shard, stage, .. } if shard == at && opened(stage))
            };
            let made = engine.calls.iter().map(|(_, call)| call).filter(is_there).count();
            if served.len() != made {
                return Err(format!("{own:?} has {made} calls at {at:?}, which knows of {}", served.len()));
            }
        }
    }
    Ok(())
}

/// Bytes of a sender of another shard that are held here, or were used here and not told.
fn held_for(engine: &Engine, shard: ShardIndex, payer: Payer) -> u64 {
    let halves = engine.calls.iter().flat_map(|(_, call)| [&call.request, &call.response]);
    let items = halves.flat_map(|half| half.backlog.iter().chain(half.gathered.as_deref()));
    let crossed = items.filter_map(|item| match item.body() {
        Some(Body::Crossed(body)) if (body.from, body.payer) == (shard, payer) => {
            Some(body.bytes.len() as u64)
        }
        _ => None,
    });
    crossed.sum::<u64>() + engine.shards.bytes_of(shard, payer)
}
