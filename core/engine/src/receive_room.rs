//! What has to wait before it may go into a session's receive heap, and who goes on when there is room.
//!
//! Messages of streams have their shares (`shares.rs`). *Openings* are held by the handlers of their calls, for as long
//! as those like, so they are told apart by who makes the calls: a source may have twice as much of the usual part of
//! the heap as is free there. The first quarter is not told apart, so one alone may have three quarters. What waits
//! does so by source (`parked.rs`), and streams last.

use crate::assembly::{AssemblyPlace, Shape, is_usual};
use crate::call::{Body, Direction};
use crate::ends::{Blocker, ItemWay};
use crate::engine::{Engine, Turn};
use crate::parked::ParkedLines;
use crate::session::Session;
use crate::shared_room::is_anybodys;
use crate::shares::{ReceiveHeap, Wait, block_bytes};
use crate::source::source_of;
use crate::{CallKey, SessionKey};
use std::sync::Arc;
use trunkline_call::Encoding;

/// So many sources whose first has to go on waiting are looked at when room is made, and others when it is made again:
/// as long as the heap is full, somebody holds it and releases it.
const SOURCES_LOOKED_MAX: usize = 64;

/// One of the groups of lines in which calls wait for a session's receive heap.
type Lines = fn(&mut Session) -> &mut ParkedLines;

/// What a message of a stream has to wait for before it may go into the receive heap of `to`, however much room
/// there is. What lies there already, and what is no message of a stream, waits for nothing.
pub(crate) fn awaits_share(
    engine: &mut Engine,
    turn: &Turn<'_>,
    key: CallKey,
    to: SessionKey,
    direction: Direction,
    body: &Body<'_>,
) -> Option<Blocker> {
    if matches!(body, Body::Placed { .. }) {
        return None;
    }
    match admit_to_heap(engine, turn, key, to, direction, body.len())? {
        Wait::Streams => Some(Blocker::Streams(to)),
        Wait::Share => {
            engine.calls.find_mut(key)?.half(direction).share.await_release();
            Some(Blocker::Share)
        }
    }
}

/// Where a message goes that is arriving: into the receive heap of the session it is meant for, if that takes it as it
/// comes, it may and there is room.
pub(crate) fn place_for(
    engine: &Engine,
    turn: &mut Turn<'_>,
    ItemWay { key, direction }: ItemWay,
    encoding: Encoding,
    total: u32,
    shape: &Shape,
) -> AssemblyPlace {
    let private = AssemblyPlace::Private(Vec::new());
    let call = engine.calls.find(key);
    let meant_for = call.and_then(|call| call.taken_as_it_comes(direction, encoding));
    let Some((session, found)) = meant_for.and_then(|key| Some((key, engine.sessions.find(key)?))) else {
        return private;
    };
    let header_bytes = Body::header_bytes(encoding);
    let bytes = total.saturating_add(header_bytes);
    let is_usual = is_usual(turn.heaps, session, bytes);
    let has_room = !is_usual || found.may_arrive(bytes, turn.heaps.receive_usual(session));
    let may = has_room
        && match shape {
            Shape::Message { .. } => has_share(engine, turn, key, session, direction, total),
            Shape::Open { .. } => opening_may_have(engine, turn, key, session, total).is_some(),
            Shape::Finish { .. } => true,
        };
    if may { AssemblyPlace::for_message(turn.heaps, session, header_bytes, total) } else { private }
}

/// Whether a message of a stream that is arriving may get a block in the receive heap of `to` now.
fn has_share(
    engine: &Engine,
    turn: &Turn<'_>,
    key: CallKey,
    to: SessionKey,
    direction: Direction,
    bytes: u32,
) -> bool {
    admit_to_heap(engine, turn, key, to, direction, bytes).is_none()
}

fn admit_to_heap(
    engine: &Engine,
    turn: &Turn<'_>,
    key: CallKey,
    to: SessionKey,
    direction: Direction,
    bytes: u32,
) -> Option<Wait> {
    let heap = ReceiveHeap {
        capacity: turn.heaps.receive_usual(to),
        free: turn.heaps.receive_free(to),
        // Large messages are beside what streams share; which of them are a stream's is not told apart.
        streams: engine.sessions.find(to)?.stream_bytes.saturating_sub(turn.heaps.receive_large(to).into()),
    };
    engine.calls.find(key)?.half_of(direction).share.admit(heap, bytes).err()
}

/// Whether an opening with this message may go into the receive heap of `to`: its source, if what it holds there is to
/// be counted.
///
/// # Errors
/// What it has to wait for.
#[inline]
pub(crate) fn part_of_opening(
    engine: &Engine,
    turn: &Turn<'_>,
    key: CallKey,
    to: SessionKey,
    body: Option<&Body<'_>>,
) -> Result<Option<Arc<str>>, Blocker> {
    let bytes = match body {
        Some(Body::Placed { .. }) | None => 0,
        Some(body) => body.len(),
    };
    opening_may_have(engine, turn, key, to, bytes).ok_or(Blocker::Opening(to))
}

/// Whether an opening may have so many bytes of a receive heap: its source, if they are to be counted.
pub(crate) fn opening_may_have(
    engine: &Engine,
    turn: &Turn<'_>,
    key: CallKey,
    to: SessionKey,
    bytes: u32,
) -> Option<Option<Arc<str>>> {
    let (usual, free) = (turn.heaps.receive_usual(to), turn.heaps.receive_free(to));
    let used = usual.saturating_sub(free);
    // Large ones lie beside what the others share.
    if bytes > usual / 2 || is_anybodys(used.into(), bytes.into(), usual.into()) {
        return Some(None);
    }
    opening_has_part(engine, key, to, bytes, free).map(Some)
}

#[cold]
fn opening_has_part(
    engine: &Engine,
    key: CallKey,
    to: SessionKey,
    bytes: u32,
    free: u32,
) -> Option<Arc<str>> {
    let source = source_of(engine, key);
    let openings = &engine.sessions.find(to)?.openings;
    // One that holds nothing waits for nothing but room.
    let may = openings.of(&source) == 0 || openings.may_have(bytes.into(), free.into(), &source);
    may.then_some(source)
}

/// The blocks of an opening lie in a receive heap.
#[cold]
pub(crate) fn opening_holds(
    engine: &mut Engine,
    key: CallKey,
    to: SessionKey,
    source: Arc<str>,
    blocks: [u32; 2],
) {
    let bytes = blocks.into_iter().filter(|len| *len > 0).map(block_bytes).sum::<u64>();
    if let Some(session) = engine.sessions.find_mut(to).filter(|_| bytes > 0) {
        session.openings.count(key, bytes, source);
    }
}

/// Blocks of an opening were released. Of one whose call has ended nothing is told any more.
#[inline]
pub(crate) fn opening_is_released(engine: &mut Engine, key: CallKey, session: SessionKey, blocks: [u32; 2]) {
    // Nearly always nothing is told apart.
    if let Some(session) = engine.sessions.find_mut(session).filter(|session| !session.openings.is_empty()) {
        let bytes = blocks.into_iter().filter(|len| *len > 0).map(block_bytes).sum();
        session.openings.count_off(key, bytes);
    }
}

/// A call waits for a session's receive heap, in the line of its source.
pub(crate) fn park(
    engine: &mut Engine,
    key: CallKey,
    direction: Direction,
    session: SessionKey,
    lines: Lines,
) {
    let source = source_of(engine, key);
    if let Some(session) = engine.sessions.find_mut(session) {
        lines(session).push(source, (key, direction));
    }
}

/// Room was made in a session's receive heap: those who wait for it go on, streams last. Mostly nobody does.
#[inline]
pub(crate) fn unpark(engine: &mut Engine, turn: &mut Turn<'_>, session: SessionKey) {
    if engine.sessions.find(session).is_some_and(Session::has_parked) {
        unpark_some(engine, turn, session);
    }
}

#[cold]
fn unpark_some(engine: &mut Engine, turn: &mut Turn<'_>, session: SessionKey) {
    if serve_parked(engine, turn, session, |session| &mut session.parked.room) {
        serve_parked(engine, turn, session, |session| &mut session.parked.openings);
        serve_parked(engine, turn, session, |session| &mut session.parked_streams);
    }
}

/// Serves each source until its first has to go on waiting. Whether nobody does.
fn serve_parked(engine: &mut Engine, turn: &mut Turn<'_>, session: SessionKey, lines: Lines) -> bool {
    let mut looked = 0;
    while looked < SOURCES_LOOKED_MAX
        && let Some(first) = engine.sessions.find_mut(session).and_then(|found| lines(found).pop())
    {
        engine.unblock(turn, first.0, first.1);
        let waits = engine.sessions.find_mut(session).is_some_and(|found| lines(found).waits_again(first));
        looked += usize::from(waits);
    }
    let Some(lines) = engine.sessions.find_mut(session).map(lines) else { return false };
    lines.end_round();
    lines.len() == 0
}
