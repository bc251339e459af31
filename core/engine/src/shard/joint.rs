//! What the engine does of calls with an end on another shard: `end.rs`, where others meet it.

use super::crossing::{ShardIndex, ShardSaid, ShardStage};
use super::end;
use crate::call::{Call, Direction, Item};
use crate::ends::{ClientSide, EndOfCall, HandedItem, Refusal, ServerSide, ShardCaller, ShardServer};
use crate::engine::Engine;
use crate::held::HeldBudget;
use crate::lent_call::LentCall;
use crate::owners::Owners;
use crate::turn::Turn;
use crate::{CallKey, PeerKey, SessionKey};
use std::sync::Arc;
use trunkline_call::{Code, Instant};
use trunkline_share::HostLimits;

/// Makes an engine one of several shards of its host. To be called before anything else is; each has the same count.
pub fn join_shards(engine: &mut Engine, own: ShardIndex, count: u16) {
    engine.owners.shards.join(own, count);
}

/// Has what an operator writes once for the host count for all its shards, which are given the same limits. To be
/// called after [`join_shards`] and before anything is configured.
pub fn share_limits(engine: &mut Engine, limits: &Arc<HostLimits>) {
    if !limits.is_of_one() {
        let own = engine.owners.shards.own().0;
        engine.owners.admission.share(limits, own);
        engine.owners.attempts.share(limits, own);
        engine.owners.held.share(limits);
        engine.owners.shards.accounts.book_in(HeldBudget::of(&engine.owners.limits).shared(limits));
    }
}

/// The shard most calls of a session have crossed to since this was asked last, if most of its calls cross, and by how
/// many they are more.
pub fn take_partner(engine: &mut Engine, session: SessionKey) -> Option<(ShardIndex, u64)> {
    std::mem::take(&mut engine.owners.sessions.find_mut(session)?.crossings).most()
}

/// The connection that most of the calls came over that have crossed from connections since this was asked last, and by
/// how many they are more than those of all others, and of those of its own that stayed.
pub fn take_crossing_peer(engine: &mut Engine) -> Option<(PeerKey, u64)> {
    std::mem::take(&mut engine.owners.shards.crossing_peers).most()
}

/// Asks whoever made a connection to open its calls on another, once. Whether it was asked.
pub fn ask_to_redial(engine: &mut Engine, peer: PeerKey) -> bool {
    let Some(asked) = engine.owners.peers.find_mut(peer).filter(|peer| peer.lane.is_none()) else {
        return false;
    };
    if std::mem::replace(&mut asked.is_asked_to_redial, true) {
        return false;
    }
    asked.connection.ask_to_redial();
    engine.owners.peers.transmit(peer);
    true
}

impl EndOfCall for ShardServer {
    fn deliver(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        _direction: Direction,
        item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        end::hand_to_shard(owners, turn, call, (self.shard, self.stage), item)
    }

    fn credit(&self, owners: &mut Owners, (key, _): (CallKey, &Call), bytes: u32, over: bool) {
        if !over {
            let call = owners.shards.number_at(self.shard, key);
            owners.shards.push(self.shard, ShardSaid::Credit { call, back: true, bytes });
        }
    }

    #[inline]
    fn release(&self, owners: &mut Owners, (key, _): (CallKey, &mut Call)) {
        owners.shards.note_left(self.shard, key);
    }
}

impl ServerSide for ShardServer {
    fn cancel(&self, owners: &mut Owners, _now: Instant, (key, _): (CallKey, &Call), code: Code) {
        if self.stage != ShardStage::Chosen {
            let call = owners.shards.number_at(self.shard, key);
            owners.shards.push(self.shard, ShardSaid::Cancel { call, code });
        }
    }
}

impl EndOfCall for ShardCaller {
    fn deliver(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        _direction: Direction,
        item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        end::hand_to_caller(owners, turn, call, (self.shard, self.call), item)
    }

    fn credit(&self, owners: &mut Owners, _call: (CallKey, &Call), bytes: u32, _over: bool) {
        owners.shards.push(self.shard, ShardSaid::Credit { call: self.call, back: false, bytes });
    }

    #[inline]
    fn release(&self, owners: &mut Owners, _call: (CallKey, &mut Call)) {
        owners.shards.forget(self.shard, self.call);
    }
}

impl ClientSide for ShardCaller {
    fn finish(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        finish: &mut Item<'_>,
    ) -> HandedItem {
        let mut said = owners.shards.spares.finish();
        said.body = None;
        end::finish_to_caller(owners, turn, call, (self.shard, self.call), finish, said)
    }
}
