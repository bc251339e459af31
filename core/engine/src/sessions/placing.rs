//! Items in a session's receive heap: what of them is where, and what is noted of a message that was placed or was not.

use super::SessionEnds;
use super::room::bytes_to_place;
use crate::SessionKey;
use crate::call::{Body, Call, Direction, Item};
use crate::callers::words;
use crate::convert::{Scratch, place};
use crate::convert_error::{ConvertError, conversion_fault};
use crate::ends::{Blocker, Refusal, wrong_way};
use crate::gateway::Gateway;
use crate::grpc::GrpcEnds;
use crate::half::Half;
use crate::heaps::Heaps;
use crate::lent_call::LentCall;
use crate::peers::PeerEnds;
use crate::registry::{Form, MethodTypes, Registry};
use crate::shard::ShardLinks;
use crate::shares::Wait;
use crate::source::CallSources;
use std::sync::Arc;
use trunkline_call::entry::{self, Completion, Payload, Span};
use trunkline_call::{CallId, Execution, Fault, Instant, RouteIndex};

/// The owners that an item concerns which goes into a session's receive heap.
pub(super) struct SessionPlacing<'e> {
    pub sessions: &'e mut SessionEnds,
    pub scratch: &'e mut Scratch,
    pub shards: &'e mut ShardLinks,
    pub gateway: &'e Gateway,
    pub registry: &'e Registry,
    pub peers: &'e PeerEnds,
    pub grpc: &'e GrpcEnds,
}

/// Why a request item is not with its handler.
pub(super) enum Undelivered {
    Refused(Refusal),
    /// The handler has seen the call already.
    Twice,
}

impl From<Refusal> for Undelivered {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Where the bytes of an item lie in the destination's receive heap.
pub(super) struct PlacedItem {
    pub payload: Option<Payload>,
    pub metadata: Span,
}

impl SessionPlacing<'_> {
    /// A request item, to the session that serves the call by these types.
    #[inline(always)]
    pub fn request(
        &mut self,
        now: Instant,
        heaps: &mut dyn Heaps,
        lent: &mut LentCall<'_>,
        to: SessionKey,
        types: &MethodTypes,
        item: &mut Item<'_>,
    ) -> Result<(), Undelivered> {
        let (part, named) = match &*item {
            Item::Open { metadata, body, .. } => {
                let bytes = bytes_to_place(body.as_ref());
                (self.part_of_opening(heaps, lent, to, bytes), self.named(lent, to, types, metadata))
            }
            _ => (Some(None), None),
        };
        let Self { sessions, scratch, shards, gateway, registry, .. } = self;
        let gone = || Refusal::Fault(Fault::HandlerGone { executed: Execution::NotExecuted });
        let (key, call) = lent.named();
        if !call.bridgeable(types, item) {
            let why = "the server that shared the caller's schema is gone".into();
            return Err(Refusal::Fault(Fault::SchemaMismatch { why }).into());
        }
        // An older engine may have handed it over without its route.
        let served_as = call.served_as.or_else(|| registry.route_of(call.method, to, types.number));
        let route = served_as.ok_or_else(gone)?;
        let id = call.delivered_id(shards.own(), key);
        match &*item {
            Item::Open { .. } if call.handed_over => return Err(Undelivered::Twice),
            Item::Headers { .. } | Item::Finish { .. } => return Err(Refusal::Fault(wrong_way()).into()),
            Item::Open { .. } | Item::Message { .. } | Item::HalfClose => {}
        }
        let told = part.ok_or(Refusal::Blocked(Blocker::Opening(to)))?;
        let owners = (&mut **sessions, &mut **scratch, &mut **shards, *gateway);
        let way = (to, Direction::Request);
        let PlacedItem { payload, metadata } =
            place_item(heaps, owners, call, way, types, item, named.as_deref())?;
        if let Some(source) = told {
            let bytes = payload.map_or(0, |payload| payload.block().len);
            sessions.opening_holds(key, to, source, [bytes, metadata.len]);
        }
        let completion = match (&*item, payload) {
            (Item::Open { end, .. }, payload) => delivered(now, call, (id, route), payload, metadata, *end),
            (Item::Message { end, .. }, Some(payload)) => {
                Completion::Message { call: id, payload, end: *end }
            }
            _ => Completion::HalfClose { call: id },
        };
        sessions.complete(to, completion);
        Ok(())
    }

    /// The whole request of a call of another shard that was given this session just now, by this route of it: its
    /// metadata, and its message, which is used then.
    #[inline(always)]
    pub fn whole_request(
        &mut self,
        now: Instant,
        heaps: &mut dyn Heaps,
        lent: &mut LentCall<'_>,
        (to, route): (SessionKey, RouteIndex),
        types: &MethodTypes,
        (metadata, message): (&[u8], &Body<'_>),
    ) -> Result<(), Refusal> {
        let told = self.part_of_opening(heaps, lent, to, message.len());
        let told = told.ok_or(Refusal::Blocked(Blocker::Opening(to)))?;
        let named = self.named(lent, to, types, metadata);
        let placed = place_metadata(heaps, to, named.as_deref().unwrap_or(metadata));
        let placed = placed.ok_or(Refusal::Blocked(Blocker::Session(to)))?;
        let Self { sessions, scratch, shards, gateway, .. } = self;
        let (key, call) = lent.named();
        let (owners, way) = ((&mut **sessions, &mut **scratch, *gateway), (to, Direction::Request));
        let payload = place_message(heaps, owners, call, way, &types.input, message, (placed, false))?;
        if let Some(source) = told {
            sessions.opening_holds(key, to, source, [payload.block().len, placed.len]);
        }
        let id = call.delivered_id(shards.own(), key);
        let completion = delivered(now, call, (id, route), Some(payload), placed, true);
        sessions.complete(to, completion);
        Ok(())
    }

    /// A response item, to the session that made the call by these types: where it lies there.
    #[inline(always)]
    pub fn response(
        &mut self,
        heaps: &mut dyn Heaps,
        lent: &mut LentCall<'_>,
        to: SessionKey,
        types: &MethodTypes,
        item: &mut Item<'_>,
    ) -> Result<PlacedItem, Refusal> {
        let Self { sessions, scratch, shards, gateway, .. } = self;
        let owners = (&mut **sessions, &mut **scratch, &mut **shards, *gateway);
        place_item(heaps, owners, lent.call, (to, Direction::Response), types, item, None)
    }

    /// Whether an opening may have so many bytes of a receive heap: its source, if they are to be counted.
    #[inline]
    fn part_of_opening(
        &self,
        heaps: &dyn Heaps,
        lent: &LentCall<'_>,
        to: SessionKey,
        bytes: u32,
    ) -> Option<Option<Arc<str>>> {
        let Self { sessions, peers, grpc, .. } = self;
        let source = || CallSources { sessions, peers, grpc }.of_maker(lent.made_for());
        sessions.opening_may_have(heaps, to, bytes, source)
    }

    /// The metadata of an opening with what a session is told beside it, if it is told anything.
    #[inline(always)]
    fn named(
        &self,
        lent: &LentCall<'_>,
        to: SessionKey,
        types: &MethodTypes,
        metadata: &[u8],
    ) -> Option<Vec<u8>> {
        let Self { sessions, peers, grpc, registry, .. } = self;
        let told_callers = sessions.find(to).is_some_and(|session| session.told_callers);
        if !told_callers && !types.whole_service {
            return None;
        }
        let sources = CallSources { sessions, peers, grpc };
        Some(words((lent, sources), registry, (told_callers, types.whole_service), metadata))
    }
}

/// The owners of what an item becomes in a receive heap.
type PlacingOwners<'e> = (&'e mut SessionEnds, &'e mut Scratch, &'e mut ShardLinks, &'e Gateway);

/// Moves an item's bytes into a session's receive heap and settles what its sender gets back; `named`: its metadata, if
/// that is not the item's.
#[inline(always)]
fn place_item(
    heaps: &mut dyn Heaps,
    (sessions, scratch, shards, gateway): PlacingOwners<'_>,
    call: &mut Call,
    (to, direction): (SessionKey, Direction),
    types: &MethodTypes,
    item: &mut Item<'_>,
    named: Option<&[u8]>,
) -> Result<PlacedItem, Refusal> {
    if let Some(body) = item.body() {
        let half = call.half(direction);
        if matches!(item, Item::Message { .. })
            && let Some(wait) = sessions.share_awaited(heaps, to, &half.share, body)
        {
            if matches!(wait, Wait::Share) {
                half.share.await_release();
            }
            return Err(Refusal::Blocked(blocker_of_stream(wait, to)));
        }
        // The message of an end was thrown away with what waited before it, and that of another is not waited for.
        if awaits_room(heaps, to, half) {
            return Err(Refusal::Blocked(Blocker::Session(to)));
        }
    }
    // Before the message, which may be long to convert: that is not to have been in vain.
    let (metadata, is_end) = match &*item {
        Item::Open { metadata, .. } => (place_metadata(heaps, to, named.unwrap_or(metadata)), false),
        Item::Finish { metadata, .. } => (place_metadata(heaps, to, metadata), true),
        Item::Headers { metadata } => (place_metadata(heaps, to, metadata), false),
        Item::Message { .. } | Item::HalfClose => (Some(Span::default()), false),
    };
    let metadata = metadata.ok_or(Refusal::Blocked(Blocker::Session(to)))?;
    let payload = match item.body() {
        Some(body) => {
            let (owners, placed) = ((&mut *sessions, scratch, gateway), (metadata, is_end));
            let wanted = types.of(direction);
            Some(place_message(heaps, owners, call, (to, direction), wanted, body, placed)?)
        }
        None => {
            publish(heaps, to, metadata);
            None
        }
    };
    match item.body() {
        // Nearly always.
        Some(&Body::Lent { session, payload }) => sessions.give_back(session, payload.span),
        Some(Body::Crossed(_)) => item.take_crossed().into_iter().for_each(|crossed| shards.used_up(crossed)),
        Some(body) => {
            if let Some((session, payload)) = body.lent() {
                sessions.give_back(session, payload.span);
            }
        }
        None => {}
    }
    Ok(PlacedItem { payload, metadata })
}

/// Moves the message of an item into a session's receive heap, whose metadata lies there; `is_end`: nothing comes
/// behind it.
#[inline(always)]
fn place_message(
    heaps: &mut dyn Heaps,
    (sessions, scratch, gateway): (&mut SessionEnds, &mut Scratch, &Gateway),
    call: &mut Call,
    (to, direction): (SessionKey, Direction),
    wanted: &Form,
    body: &Body<'_>,
    (metadata, is_end): (Span, bool),
) -> Result<Payload, Refusal> {
    let sent = call.form_sent(direction);
    let told = match sent {
        Some(_) => None,
        None => gateway.form_sent(call, direction),
    };
    let payload = match place(heaps, scratch, to, wanted, sent.or(told.as_ref()), body) {
        Ok(payload) => payload,
        Err(error) => {
            if metadata.len != 0 {
                heaps.discard(to, metadata.offset);
            }
            return Err(unplaced(call.half(direction), to, direction, error));
        }
    };
    heaps.publish(to, payload.span);
    publish(heaps, to, metadata);
    if let Some(more) = note_passed(call, to, direction, (body, is_end), payload) {
        sessions.streams_hold_more(to, more);
    }
    Ok(payload)
}

/// A call is its handler's from now on: what that is told.
#[inline]
fn delivered(
    now: Instant,
    call: &mut Call,
    (id, route): (CallId, RouteIndex),
    payload: Option<Payload>,
    metadata: Span,
    end: bool,
) -> Completion {
    call.handed_over = true;
    // From when it waited for the server, if it did: that is the server's receive queue.
    let ready = now.minus_ns(call.receive_wait_ns);
    call.server_stamps.d9 = ready;
    if call.maker().is_some() {
        call.client_stamps.d3 = ready;
        call.client_stamps.d4 = ready;
        call.client_stamps.k6 = ready;
        call.server_stamps.k7 = ready;
        call.server_stamps.d8 = ready;
    }
    Completion::Call(entry::Call {
        route,
        call: id,
        payload,
        metadata,
        end,
        wait_for_ready: false,
        deadline: call.deadline,
        entered: now,
        published: Instant::default(),
        parent: CallId(0),
    })
}

/// Writes metadata into a block of its own; nothing for none. `None` when there is no room.
fn place_metadata(heaps: &mut dyn Heaps, to: SessionKey, metadata: &[u8]) -> Option<Span> {
    if metadata.is_empty() {
        return Some(Span::default());
    }
    let len = metadata.len() as u32;
    let span = Span { offset: heaps.allocate(to, len)?, len };
    heaps.receive_block(to, span).copy_from_slice(metadata);
    Some(span)
}

/// Metadata that lies in a receive heap is complete, if there is any.
fn publish(heaps: &mut dyn Heaps, to: SessionKey, metadata: Span) {
    if metadata.len != 0 {
        heaps.publish(to, metadata);
    }
}

/// Notes what the receiver must release before the sender may send as much again; nothing for what comes with the end.
/// How much more messages of streams hold of the heap of `to`, if it is one of a stream.
#[inline(always)]
fn note_passed(
    call: &mut Call,
    to: SessionKey,
    direction: Direction,
    (body, is_end): (&Body<'_>, bool),
    payload: Payload,
) -> Option<u64> {
    let streams = !is_end && call.streams(direction);
    let half = call.half(direction);
    half.count(body.len());
    if !streams {
        return None;
    }
    half.expect_release(body.window_cost(), payload.block().len);
    Some(half.share.hold(to, payload.block().len))
}

/// Whether a message waits for room that is not there yet: it is not converted in vain each time that some is made.
#[inline]
fn awaits_room(heaps: &mut dyn Heaps, to: SessionKey, half: &mut Half) -> bool {
    let wanted = half.room_wanted;
    if wanted == 0 {
        return false;
    }
    // Another receiver's heap may be smaller, and says so itself.
    if wanted <= heaps.receive_capacity(to) {
        match heaps.allocate(to, wanted) {
            Some(offset) => heaps.discard(to, offset),
            None => return true,
        }
    }
    half.room_wanted = 0;
    false
}

/// What a message of a stream waits for before it may go into the receive heap of `to`.
fn blocker_of_stream(wait: Wait, to: SessionKey) -> Blocker {
    match wait {
        Wait::Streams => Blocker::Streams(to),
        Wait::Share => Blocker::Share,
    }
}

/// Why a message has no place in a session's receive heap; for how much room it waits is noted.
fn unplaced(half: &mut Half, to: SessionKey, direction: Direction, error: ConvertError) -> Refusal {
    let ConvertError::NoRoom { wanted, .. } = error else {
        return Refusal::Fault(conversion_fault(error, direction));
    };
    half.room_wanted = wanted;
    Refusal::Blocked(Blocker::Session(to))
}
