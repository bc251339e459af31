//! What shards keep of each other, held against each other: for tests.

use super::crossing::{Payer, ShardIndex, ShardSaid, ShardStage};
use super::links::ShardLinks;
use crate::CallKey;
use crate::call::{Body, Call, Item, ServerEnd};
use crate::engine::Engine;

/// Holds what shards keep of each other against each other, while nothing is in the queues between them: for tests.
///
/// # Errors
/// The first count that does not agree.
pub fn audit_crossings(engines: &[&Engine]) -> Result<(), String> {
    for engine in engines {
        let own = engine.owners.shards.own();
        for (payer, bytes) in engine.owners.shards.under_way() {
            let there = engines.iter().map(|other| held_for(other, own, payer)).sum::<u64>();
            if there != bytes {
                return Err(format!("{own:?}: {payer:?} has {bytes} under way, and {there} are there"));
            }
        }
        for other in engines.iter().filter(|other| other.owners.shards.own() != own) {
            let (served, at) = (other.owners.shards.book(own).0, other.owners.shards.own());
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
    crossed.sum::<u64>() + engine.owners.shards.bytes_of(shard, payer)
}

impl ShardLinks {
    /// Calls made there that are served here, and how many made here are at work there.
    pub fn book(&self, of: ShardIndex) -> (Vec<CallKey>, usize) {
        let link = self.links.get(usize::from(of.0));
        link.map_or((Vec::new(), 0), |link| (link.served.iter().map(|(_, key)| *key).collect(), link.made))
    }

    /// What each sender has under way, and what of it waits to be said to the shards it comes from.
    pub fn under_way(&self) -> impl Iterator<Item = (Payer, u64)> {
        self.accounts.iter().map(|(payer, account)| (payer, account.bytes))
    }

    /// Bytes of a shard's senders that are on their way there, or were used and it does not know.
    pub fn bytes_of(&self, shard: ShardIndex, payer: Payer) -> u64 {
        let bodies = self.crossings().filter_map(|crossing| crossing.0.body());
        let bodies = bodies.filter(|body| (body.from, body.payer) == (shard, payer));
        let said = self.links.get(usize::from(shard.0)).into_iter().flat_map(|link| {
            let told = link.outbox.iter().flat_map(|crossing| match &crossing.0 {
                ShardSaid::Taken(taken) => taken.as_slice(),
                _ => &[],
            });
            told.chain(&link.taken)
        });
        let said = said.filter(|(of, _)| *of == payer).map(|(_, bytes)| *bytes);
        bodies.map(|body| body.bytes.len() as u64).sum::<u64>() + said.sum::<u64>()
    }
}
