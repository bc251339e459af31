//! Messages that cross to another shard: private copies, for which their senders pay until they are used.

use super::crossing::{CrossedBody, Payer, ShardIndex};
use super::links::ShardLine;
use super::origin::payer_of;
use crate::call::{Body, Direction, Item};
use crate::convert::{private, seal};
use crate::convert_error::conversion_fault;
use crate::ends::{Blocker, ItemWay, Refusal};
use crate::engine::{Engine, Turn};
use crate::registry::MethodTypes;
use crate::{CallKey, SessionKey};
use std::sync::Arc;
use trunkline_call::Fault;
use trunkline_call::entry::Payload;

/// The message of an item that crosses now, if it has one: a private copy of it, which its sender pays for until it is
/// used.
#[inline(always)]
pub(super) fn cross(
    engine: &mut Engine,
    turn: &Turn<'_>,
    way: ItemWay,
    to: ShardIndex,
    item: &Item<'_>,
    copy: &mut Option<Box<CrossedBody>>,
) -> Result<(), Refusal> {
    if engine.shards.is_full(to) {
        return Err(Refusal::Blocked(Blocker::Shard(ShardLine::Link(to))));
    }
    let len = match item.body() {
        // Nearly always.
        Some(&Body::Lent { session, payload }) => {
            *copy = Some(cross_lent(engine, turn, way.direction, session, payload)?);
            payload.span.len
        }
        Some(body) => {
            *copy = Some(cross_other(engine, turn, way, body)?);
            body.len()
        }
        None => {
            *copy = None;
            return Ok(());
        }
    };
    if let Some(call) = engine.calls.find_mut(way.key) {
        call.half(way.direction).count(len);
    }
    Ok(())
}

/// The same of a message that lies in a session's heap, which gets its block back.
#[inline(always)]
fn cross_lent(
    engine: &mut Engine,
    turn: &Turn<'_>,
    direction: Direction,
    session: SessionKey,
    payload: Payload,
) -> Result<Box<CrossedBody>, Refusal> {
    let (payer, bytes) = (Payer::Session(session), u64::from(payload.span.len));
    charge(engine, payer, bytes)?;
    let mut copy = engine.shards.bodies.take();
    if let Err(error) = seal(turn.heaps, session, payload.span, &mut copy.bytes) {
        engine.shards.discharge(payer, bytes);
        return Err(Refusal::Fault(conversion_fault(error, direction)));
    }
    (copy.encoding, copy.compression) = (payload.encoding, payload.compression);
    (copy.charged, copy.from, copy.payer) = (payload.window_bytes(), engine.shards.own(), payer);
    engine.sessions.give_back(session, payload.span);
    Ok(copy)
}

/// The same of any other.
fn cross_other(
    engine: &mut Engine,
    turn: &Turn<'_>,
    ItemWay { key, direction }: ItemWay,
    body: &Body<'_>,
) -> Result<Box<CrossedBody>, Refusal> {
    // What comes from one shard and goes to another is paid for already.
    if let Body::Crossed(crossed) = body {
        return Ok(crossed.clone());
    }
    let lent = body.lent();
    let payer = match lent {
        Some((session, _)) => Some(Payer::Session(session)),
        None => payer_of(engine, key, direction),
    };
    let payer = payer.ok_or(Refusal::Fault(Fault::Ended))?;
    let bytes = crossing_bytes(body);
    charge(engine, payer, bytes)?;
    match private_copy(engine, turn, key, direction, payer, body) {
        Ok(crossed) => {
            if crossed.bytes.len() as u64 != bytes {
                engine.invariants.note("a message crosses with the bytes its sender is charged");
            }
            if let Some((session, payload)) = lent {
                engine.sessions.give_back(session, payload.span);
            }
            Ok(crossed)
        }
        Err(fault) => {
            engine.shards.discharge(payer, bytes);
            Err(Refusal::Fault(fault))
        }
    }
}

/// So many bytes of a sender cross, if they may.
#[inline(always)]
fn charge(engine: &mut Engine, payer: Payer, bytes: u64) -> Result<(), Refusal> {
    let may_cross = engine.shards.charge_if_room(payer, bytes, engine.limits.parked_bytes_per_session);
    if may_cross { Ok(()) } else { Err(Refusal::Blocked(Blocker::Shard(ShardLine::Sender(payer)))) }
}

/// Bytes of a body's private copy: a linear message has its header there.
fn crossing_bytes(body: &Body<'_>) -> u64 {
    let header = if let Body::Wire { encoding, .. } = body { Body::header_bytes(*encoding) } else { 0 };
    u64::from(body.len()) + u64::from(header)
}

fn private_copy(
    engine: &mut Engine,
    turn: &Turn<'_>,
    key: CallKey,
    direction: Direction,
    payer: Payer,
    body: &Body<'_>,
) -> Result<Box<CrossedBody>, Fault> {
    // What a session lends has its header.
    let is_headerless = matches!(body, Body::Wire { .. });
    let types = if is_headerless { sent_types(engine, key, direction) } else { None };
    let sent = types.as_ref().map(|types| types.of(direction));
    let mut copy = engine.shards.bodies.take();
    copy.encoding = private(turn.heaps, sent, body, &mut copy.bytes)
        .map_err(|error| conversion_fault(error, direction))?;
    (copy.charged, copy.compression) = (body.window_cost(), body.compression());
    (copy.from, copy.payer) = (engine.shards.own(), payer);
    Ok(copy)
}

/// The types of the messages of one direction, if anybody knows them.
pub(super) fn sent_types(engine: &Engine, key: CallKey, direction: Direction) -> Option<Arc<MethodTypes>> {
    let call = engine.calls.find(key)?;
    let known = call.sender_types(direction);
    if direction == Direction::Response {
        // What a peer sends back without its header is of the type that its caller told it.
        return known.or_else(|| call.receiver_types(direction));
    }
    if known.is_some() {
        return known;
    }
    // A peer that was told them later than it has sent this: it holds them all the same.
    let agreed = || {
        let receiver = call.receiver_types(direction)?;
        let same = call.offered.is_some_and(|[request, _]| request == receiver.input.fingerprint());
        same.then_some(receiver)
    };
    call.agreed.clone().or_else(agreed)
}
