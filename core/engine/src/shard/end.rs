//! Handing items to another shard, what the host carries there, and doing what another shard says.

use super::batch::CrossingBatch;
use super::copies::{CrossingOwners, sent_types};
use super::crossing::{Crossing, Origin, ShardFinish, ShardIndex, ShardOpening, ShardSaid, ShardStage};
use super::offers::{has_arrived, is_brought, served_elsewhere, tell_news};
use super::origin::origin_of;
use super::returned::{is_served_by, made, returned};
use super::whole::handled_alone_by;
use super::{places, served};
use crate::CallKey;
use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::due::Due;
use crate::ends::{Blocker, HandedItem, Refusal};
use crate::engine::Engine;
use crate::heaps::Heaps;
use crate::item::ItemWay;
use crate::lent_call::LentCall;
use crate::named_peer::NamedPeer;
use crate::onward;
use crate::owners::Owners;
use crate::registry::service_of;
use crate::turn::Turn;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Fault, Instant};
use trunkline_telemetry::PeerIndex;

/// Crossings that were kept and are handled in one go: more are left for the next step.
const PARKED_PER_STEP_MAX: usize = 256;
/// Crossings that are handled before the clock is looked at again, and others go on that waited for them: 2 µs of work.
const PER_CLOCK: usize = 8;
/// After what time those who wait for others' messages to be used look whether there is room, whose they may be.
const STARVED_LOOK_NS: u64 = 1_000_000;

/// What goes to a shard next, at most about so many: what says which messages were used comes on top. Nothing if there
/// is nothing for it. Calls that waited for room go on.
pub fn next_crossings(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    to: ShardIndex,
    most: usize,
) -> Option<CrossingBatch> {
    tell_news(engine, turn.now);
    let batch = engine.owners.shards.next_batch(to, most);
    if !engine.owners.shards.is_stirred() {
        return batch;
    }
    settle(engine, turn);
    batch.or_else(|| engine.owners.shards.next_batch(to, most))
}

/// Whether there is anything for a shard.
pub fn has_crossings(engine: &Engine, to: ShardIndex) -> bool {
    engine.owners.shards.has_crossings(to)
}

/// Does what another shard of this host says. `clock` says what time it is, and is asked now and then.
pub fn handle_crossings(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    from: ShardIndex,
    mut batch: CrossingBatch,
    clock: &mut dyn FnMut() -> Instant,
) {
    let mut until_asked = PER_CLOCK;
    turn.now = clock();
    for crossing in batch.0.drain(..) {
        if until_asked == 0 {
            engine.go_on(turn);
            (turn.now, until_asked) = (clock(), PER_CLOCK);
        }
        until_asked -= 1;
        engine.owners.sessions.discard_abandoned(turn.heaps);
        if engine.owners.shards.has_parked() {
            engine.owners.shards.park_crossing(from, crossing);
        } else {
            handle(engine, turn, from, crossing);
        }
    }
    engine.go_on(turn);
    engine.owners.shards.reuse_batch(from, batch);
}

/// Keeps what another shard says until this engine goes on: here, or in another process.
pub fn park_crossing(engine: &mut Engine, from: ShardIndex, crossing: Crossing) {
    engine.owners.shards.park_crossing(from, crossing);
}

/// Request items, to the shard that serves the call.
pub(crate) fn hand_to_shard(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    (shard, stage): (ShardIndex, ShardStage),
    item: &mut Item<'_>,
) -> Result<HandedItem, Refusal> {
    if !matches!(item.body(), Some(Body::Lent { .. }) | None) && item.is_packed() {
        let mut plain = owners.grpc.unpacked(Direction::Request, item).map_err(Refusal::Fault)?;
        return hand_to_shard(owners, turn, lent, (shard, stage), &mut plain);
    }
    let (mut owners, (key, call)) = (CrossingOwners::of(owners), lent.named());
    if !matches!(item, Item::Open { .. }) {
        return if stage == ShardStage::Accepted {
            follow_opening(owners, &*turn.heaps, (key, call), shard, item)
        } else {
            Err(Refusal::Blocked(Blocker::Stream))
        };
    }
    let mut opening = owners.shards.spares.opening();
    let crossing = (&mut *call, Direction::Request);
    if let Err(refusal) = owners.cross(&*turn.heaps, crossing, shard, item, &mut opening.body) {
        owners.shards.spares.put_opening(opening);
        return Err(refusal);
    }
    let Item::Open { metadata, body, end } = item.take() else { return Ok(HandedItem::Taken) };
    drop_crossed(body);
    (opening.metadata, opening.end) = (metadata.into_owned(), end);
    if fill_opening(&mut owners, turn.now, (key, call), &mut opening).is_none() {
        return Err(Refusal::Fault(Fault::Ended));
    }
    owners.shards.push(shard, ShardSaid::Open(opening));
    Ok(HandedItem::Taken)
}

/// What comes behind an opening.
fn follow_opening(
    mut owners: CrossingOwners<'_>,
    heaps: &dyn Heaps,
    (key, call): (CallKey, &mut Call),
    shard: ShardIndex,
    item: &mut Item<'_>,
) -> Result<HandedItem, Refusal> {
    let mut body = None;
    owners.cross(heaps, (call, Direction::Request), shard, item, &mut body)?;
    let call = owners.shards.number_at(shard, key);
    let said = match (item.take(), body) {
        (Item::Message { end, .. }, Some(body)) => ShardSaid::Message { call, body, end },
        (Item::HalfClose, _) => ShardSaid::HalfClose { call },
        _ => return Err(Refusal::Fault(wrong_way())),
    };
    owners.shards.push(shard, said);
    Ok(HandedItem::Taken)
}

/// Response items, to the shard that made the call.
pub(crate) fn hand_to_caller(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    (shard, call): (ShardIndex, u64),
    item: &mut Item<'_>,
) -> Result<HandedItem, Refusal> {
    if !matches!(item.body(), Some(Body::Lent { .. }) | None) && item.is_packed() {
        let mut plain = owners.grpc.unpacked(Direction::Response, item).map_err(Refusal::Fault)?;
        return hand_to_caller(owners, turn, lent, (shard, call), &mut plain);
    }
    let mut crossing = CrossingOwners::of(owners);
    if !matches!(item, Item::Finish { .. }) {
        return precede_finish(crossing, &*turn.heaps, lent.call, (shard, call), item);
    }
    let (mut said, found) = (crossing.shards.spares.finish(), (&mut *lent.call, Direction::Response));
    if let Err(refusal) = crossing.cross(&*turn.heaps, found, shard, item, &mut said.body) {
        crossing.shards.spares.put_finish(said);
        return Err(refusal);
    }
    Ok(finish_to_caller(owners, turn, lent, (shard, call), item, said))
}

/// What comes before the end.
fn precede_finish(
    mut owners: CrossingOwners<'_>,
    heaps: &dyn Heaps,
    found: &mut Call,
    (shard, call): (ShardIndex, u64),
    item: &mut Item<'_>,
) -> Result<HandedItem, Refusal> {
    let mut body = None;
    owners.cross(heaps, (&mut *found, Direction::Response), shard, item, &mut body)?;
    let said = match (item.take(), body) {
        (Item::Headers { metadata }, _) => ShardSaid::Headers { call, metadata: metadata.into_owned() },
        (Item::Message { .. }, Some(body)) => {
            ShardSaid::Reply { call, body, types: found.sender_types(Direction::Response) }
        }
        _ => return Err(Refusal::Fault(wrong_way())),
    };
    owners.shards.push(shard, said);
    Ok(HandedItem::Taken)
}

/// The end of a call of another shard, whose message is in the box already. It waits for nothing.
#[inline(always)]
pub(crate) fn finish_to_caller(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    (shard, number): (ShardIndex, u64),
    finish: &mut Item<'_>,
    mut said: Box<ShardFinish>,
) -> HandedItem {
    let Item::Finish { code, execution, body, metadata } = finish.take() else { return HandedItem::Taken };
    drop_crossed(body);
    let (key, found) = lent.named();
    match found.peer_index {
        PeerIndex::LOCAL => found.server_stamps.k14 = turn.now,
        _ => say_who_served(owners, turn.now, found, &mut said),
    }
    (said.call, said.code, said.execution) = (number, code, execution);
    said.metadata = metadata.into_owned();
    said.types = said.body.as_ref().and_then(|_| found.sender_types(Direction::Response));
    (said.stamps, said.measured) = (found.server_stamps, found.server_measured);
    let handled_by = handled_alone_by(found);
    if handled_by.is_none() && found.policies.is_some() {
        owners.books().end_policies(turn.now, key, found, code);
    }
    owners.shards.push(shard, ShardSaid::Finish(said));
    match handled_by {
        Some(session) => HandedItem::Left { session, shard, number },
        None => HandedItem::Over,
    }
}

/// The call has gone to another host from here: its stamps are of that host's clock.
#[cold]
fn say_who_served(owners: &Owners, now: Instant, found: &mut Call, said: &mut ShardFinish) {
    if !found.server_measured {
        found.server_stamps.k14 = now;
    }
    said.peer = NamedPeer::of(&owners.telemetry, found.peer_index).map(Box::new);
}

/// Says in the opening of a call, which has its message and metadata, what else there is to say, and notes that it
/// crosses.
#[inline(always)]
fn fill_opening(
    owners: &mut CrossingOwners<'_>,
    now: Instant,
    (key, call): (CallKey, &mut Call),
    opening: &mut ShardOpening,
) -> Option<()> {
    let CrossingOwners { registry, sessions, peers, grpc, shards, .. } = owners;
    if !matches!(call.client, ClientEnd::Session { .. }) {
        opening.types = sent_types(call, Direction::Request);
        opening.origin = origin_of((&mut **sessions, peers, grpc), call);
    }
    let ServerEnd::Shard { shard, stage, .. } = &mut call.server else { return None };
    *stage = if opening.end { ShardStage::Accepted } else { ShardStage::Opened };
    match &call.client {
        ClientEnd::Session { session, types, .. } => {
            opening.types = Some(Arc::clone(types));
            match sessions.find_mut(*session) {
                Some(session) => {
                    share(&mut opening.origin, session.origin());
                    session.crossings.note(*shard);
                }
                None => opening.origin = Arc::new(Origin::Gone),
            }
        }
        ClientEnd::Peer { peer, .. } => shards.crossing_peers.note(*peer),
        _ => {}
    }
    match &call.path {
        Some(path) => opening.path = Arc::from(&**path),
        None => share(&mut opening.path, registry.path(call.method)),
    }
    let is_logged = matches!(call.client, ClientEnd::Shard { logged: true, .. });
    opening.logged = is_logged || call.policies.as_ref().is_some_and(|policies| policies.is_logged());
    opening.trace = call.trace.clone();
    (opening.call, opening.choice, opening.deadline) = (key.to_bits(), call.choice, call.deadline);
    opening.kept = call.kept_at.take().is_some();
    call.handed_over = true;
    opening.receive_wait_ns = call.receive_wait_ns;
    // What it waited for a worker is the server's receive queue: it left before.
    let (stamps, left) = (&mut call.client_stamps, now.minus_ns(call.receive_wait_ns));
    (stamps.d3, stamps.d4, stamps.k6) = (left, left, left);
    Some(())
}

/// What is left of a message that has crossed. Nearly always it lay in a heap: then there is no memory to be given up.
#[inline(always)]
fn drop_crossed(body: Option<Body<'_>>) {
    match body {
        None | Some(Body::Lent { .. }) => std::mem::forget(body),
        Some(other) => drop(other),
    }
}

/// What a box held last, mostly: it is counted once then, by shards that would count at the same place.
fn share<T: ?Sized>(held: &mut Arc<T>, wanted: &Arc<T>) {
    if !Arc::ptr_eq(held, wanted) {
        *held = Arc::clone(wanted);
    }
}

/// Tells the others what is served, if that has changed; then does what has come back to this very shard, and lets
/// those go on that waited.
pub(crate) fn settle(engine: &mut Engine, turn: &mut Turn<'_>) {
    if engine.owners.shards.is_alone() {
        return;
    }
    tell_news(engine, turn.now);
    places::tell_places(engine);
    places::tell_wanted(engine);
    for _ in 0..PARKED_PER_STEP_MAX {
        let Some((from, crossing)) = engine.owners.shards.next_parked() else { break };
        handle_parked(engine, turn, from, crossing);
    }
    if engine.owners.shards.accounts.are_to_be_looked_after() {
        engine.owners.timers.insert(turn.now.plus_ns(STARVED_LOOK_NS), Due::Starved);
    }
    for line in engine.owners.shards.take_stirred() {
        while let Some((call, back)) = engine.owners.shards.next_blocked(line) {
            engine.unblock(turn, call, if back { Direction::Response } else { Direction::Request });
            if engine.owners.shards.is_blocked_again(line, (call, back)) {
                break;
            }
        }
    }
}

/// The same of what was kept.
#[inline(never)]
fn handle_parked(engine: &mut Engine, turn: &mut Turn<'_>, from: ShardIndex, crossing: Crossing) {
    handle(engine, turn, from, crossing);
}

#[inline(always)]
fn handle(engine: &mut Engine, turn: &mut Turn<'_>, from: ShardIndex, crossing: Crossing) {
    match crossing.0 {
        ShardSaid::Open(opening) => served::open(engine, turn, from, opening),
        ShardSaid::Message { call, body, end } => {
            let mut item = Item::Message { body: Body::Crossed(body), end };
            pass_request(engine, turn, from, call, &mut item);
        }
        ShardSaid::HalfClose { call } => pass_request(engine, turn, from, call, &mut Item::HalfClose),
        ShardSaid::Cancel { call, code } => served::cancelled(engine, turn, from, call, code),
        ShardSaid::Accepted { call } => accepted(engine, turn, from, call),
        ShardSaid::Returned(opening) => returned(engine, turn, from, *opening),
        ShardSaid::Headers { call, metadata } => {
            if let Some((key, _)) = made(engine, from, call) {
                let metadata = Cow::Owned(metadata);
                engine.pass(turn, key, Direction::Response, &mut Item::Headers { metadata });
            }
        }
        ShardSaid::Reply { call, body, types } => match made(engine, from, call) {
            Some((key, call)) => {
                if let (Some(said), ServerEnd::Shard { types: known, .. }) = (types, &mut call.server) {
                    *known = said;
                }
                let mut item = Item::Message { body: Body::Crossed(body), end: false };
                engine.pass(turn, key, Direction::Response, &mut item);
            }
            None => engine.owners.shards.used(&body),
        },
        ShardSaid::Finish(finish) => finished(engine, turn, from, finish),
        ShardSaid::Credit { call, back: false, bytes } => {
            if let Some((key, _)) = made(engine, from, call) {
                engine.credit_sender(key, Direction::Request, bytes);
            }
        }
        ShardSaid::Credit { call, back: true, bytes } => {
            if let Some(key) = engine.owners.shards.served(from, call) {
                engine.credit_sender(key, Direction::Response, bytes);
            }
        }
        ShardSaid::Taken(mut taken) => {
            taken.drain(..).for_each(|(payer, bytes)| engine.owners.shards.discharge(payer, bytes));
            engine.owners.shards.reuse_taken(from, taken);
        }
        ShardSaid::Offers(offers) => {
            let changed = served_elsewhere(engine, from, &offers);
            engine.owners.workers.forget_asked(from.0);
            match changed {
                Some(services) => engine.peer_answers().changed(&services),
                None => engine.peer_answers().all_changed(),
            }
        }
        ShardSaid::Arrived => has_arrived(engine, from),
        ShardSaid::Moved { to, offers } => is_brought(engine, to, &offers),
        ShardSaid::Places { policy, wanted } => engine.owners.admission.handle_notice(&policy, wanted),
        ShardSaid::Wanted { path, wish } => places::wanted(engine, from, &path, wish),
        ShardSaid::Vacant { path } => places::vacant(engine, turn, from, path),
        ShardSaid::Unused { path } => engine.owners.workers.free_kept(service_of(&path), from.0),
        ShardSaid::Spares(spares) => engine.owners.shards.spares.take_back(*spares),
    }
}

fn pass_request(engine: &mut Engine, turn: &mut Turn<'_>, from: ShardIndex, call: u64, item: &mut Item<'_>) {
    match engine.owners.shards.served(from, call) {
        Some(key) => engine.pass(turn, key, Direction::Request, item),
        None => engine.owners.drop_item(item),
    }
}

fn accepted(engine: &mut Engine, turn: &mut Turn<'_>, from: ShardIndex, call: u64) {
    let Some((key, call)) = made(engine, from, call) else { return };
    if let ServerEnd::Shard { stage, .. } = &mut call.server {
        *stage = ShardStage::Accepted;
    }
    engine.unblock(turn, key, Direction::Request);
}

fn finished(engine: &mut Engine, turn: &mut Turn<'_>, from: ShardIndex, mut finish: Box<ShardFinish>) {
    let (metadata, body) = (std::mem::take(&mut finish.metadata), finish.body.take().map(Body::Crossed));
    let (code, execution, types) = (finish.code, finish.execution, finish.types.take());
    let mut item = Item::Finish { code, execution, body, metadata: Cow::Owned(metadata) };
    let Engine { calls, owners } = &mut *engine;
    let key = owners.shards.made_by(from, finish.call);
    let made = LentCall::of(calls, key).filter(|lent| is_served_by(lent.call, from));
    let Some(mut lent) = made else {
        owners.shards.spent_finish(from, finish);
        return owners.drop_item(&mut item);
    };
    let call = &mut *lent.call;
    if let (Some(said), ServerEnd::Shard { types: known, .. }) = (types, &mut call.server) {
        *known = said;
    }
    (call.client_stamps.k15, call.client_stamps.d16) = (turn.now, turn.now);
    let own = call.server_stamps;
    call.server_stamps = finish.stamps;
    if call.maker().is_none() && !call.is_forwarded() {
        // It came from elsewhere: it is served since it came here.
        (call.server_stamps.k7, call.server_stamps.d8) = (own.k7, own.d8);
    }
    call.server_stamps.wait_ns = finish.stamps.wait_ns.saturating_add(own.wait_ns);
    call.server_measured = finish.measured;
    if let Some(peer) = finish.peer.take() {
        call.peer_index = peer.number(&mut owners.telemetry);
    }
    owners.shards.spent_finish(from, finish);
    let direction = Direction::Response;
    let onward = onward::pass(owners, turn, &mut lent, direction, &mut item);
    engine.go_onward(turn, ItemWay { key, direction }, &mut item, onward);
}

fn wrong_way() -> Fault {
    Fault::HandlerProtocol { why: "an item of the other direction" }
}
