//! What sessions say in their entries, as what follows for the calls it is about. `end.rs` is the way back.

use super::SessionEnds;
use crate::admission::AdmissionControl;
use crate::call::{Body, Call, Calls, ClientEnd, Direction, Item};
use crate::end_event::{EndEvent, ReleasedBlock};
use crate::heaps::Heaps;
use crate::held::HeldBudget;
use crate::invariants::Invariants;
use crate::limits::Limits;
use crate::nested::{nest, subtree};
use crate::operator::introduced;
use crate::records::lately;
use crate::registry::Registry;
use crate::session::{Route, delivered_by};
use crate::session_fault::SessionFault;
use crate::shard::{ShardIndex, ShardLinks};
use crate::workers::Workers;
use crate::{CallKey, SessionKey};
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use trunkline_call::entry::{self, EntryError, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Execution, Instant, Metadata};

/// Refused calls that wait for their release, where a session may have fewer calls than this.
const REFUSED_MIN: usize = 64;

/// The owners that entries of sessions concern.
pub(crate) struct SessionEntries<'e> {
    pub sessions: &'e mut SessionEnds,
    pub calls: &'e mut Calls,
    pub workers: &'e mut Workers,
    pub admission: &'e mut AdmissionControl,
    pub held: &'e mut HeldBudget,
    pub invariants: &'e mut Invariants,
    pub registry: &'e Registry,
    pub shards: &'e ShardLinks,
    pub limits: &'e Limits,
}

type Taken = Result<(), SessionFault>;

impl SessionEntries<'_> {
    /// What a session has said, as it was decoded: what follows from it is written where that `follows`. The ways of
    /// unary calls are all laid out where it is decoded: what is large is in registers then, and not moved about.
    ///
    /// # Errors
    /// The application broke the ABI.
    #[inline(always)]
    pub fn take(
        &mut self,
        now: Instant,
        heaps: &mut dyn Heaps,
        session: SessionKey,
        said: Result<Submission, EntryError>,
        follows: &mut EndEvent<'static>,
    ) -> Taken {
        match said.map_err(SessionFault::Entry)? {
            Submission::Call(call) => self.call(now, heaps, session, &call, follows),
            Submission::Finish(finish) => self.finish(now, heaps, session, &finish, follows),
            Submission::Release { call, block, metadata, a18 } => {
                self.release(heaps, session, call, [block, metadata], a18, follows)
            }
            Submission::Message { call, payload, end, .. } => {
                self.message(heaps, session, call, payload, end, follows)
            }
            Submission::HalfClose { call } => {
                if !call.is_delivered() {
                    self.item(session, call, Item::HalfClose, follows);
                }
                Ok(())
            }
            Submission::Headers { call, metadata } => {
                let metadata = self.take_metadata(heaps, session, metadata)?;
                if call.is_delivered() {
                    let item = Item::Headers { metadata: Cow::Owned(metadata) };
                    self.item(session, call, item, follows);
                }
                Ok(())
            }
            Submission::Cancel { call } => {
                if let Some(call) = self.sessions.made_key(session, call) {
                    *follows = EndEvent::Cancelled { call, code: Code::Cancelled };
                }
                Ok(())
            }
            Submission::Drain { answer } => {
                self.sessions.attached(session)?;
                *follows = EndEvent::Drains { session, answer };
                Ok(())
            }
        }
    }

    // LIFE: 3 | entry taken out of the ring, and its spans checked | session, method, target (judged when it was
    // bound), call id (d2) | 1 client send queue
    #[inline(always)]
    fn call(
        &mut self,
        now: Instant,
        heaps: &mut dyn Heaps,
        session: SessionKey,
        made: &entry::Call,
        follows: &mut EndEvent<'static>,
    ) -> Taken {
        let mut metadata = self.take_metadata(heaps, session, made.metadata)?;
        claim(heaps, session, made.payload)?;
        let from = self.sessions.attached(session)?;
        let Some(Route::Calls { method, types, target, plan }) = from.routes.get(made.route.0 as usize)
        else {
            return Err(SessionFault::UnknownRoute(made.route));
        };
        let (method, types, target, plan) = (*method, types.clone(), *target, plan.clone());
        if made.call.is_delivered() {
            return Err(SessionFault::CallIdInUse(made.call));
        }
        let limit = from.told.calls_max(self.limits);
        let full = from.made.len() >= limit;
        if from.made.len() >= limit + limit.max(REFUSED_MIN) {
            // Calls that are refused wait for their release like others; an application that goes on without reading
            // that they are could have any number kept.
            return Err(SessionFault::TooManyCalls(limit));
        }
        let may_be = self.sessions.hold_call(self.held, session, full.then_some(limit));
        let client = ClientEnd::Session { session, id: made.call, types };
        let (key, call) = self.calls.renew();
        call.begin(method, client, made.deadline);
        call.waits_for_ready = made.wait_for_ready;
        call.client_stamps.a0 = lately(made.entered, now);
        call.client_stamps.a1 = lately(made.published, now);
        call.client_stamps.d2 = now;
        match self.sessions.attached_mut(session)?.made.entry(made.call) {
            Entry::Vacant(entry) => {
                entry.insert(key);
            }
            Entry::Occupied(_) => {
                self.calls.put_by(key);
                return Err(SessionFault::CallIdInUse(made.call));
            }
        }
        if plan.is_some() {
            self.admission.apply(&mut call.policies, 0, plan);
        }
        if made.parent.is_delivered() {
            metadata = self.inherit(key, session, made.parent, metadata);
        }
        if self.registry.is_own(method) {
            metadata = self.naming_own_caller(session, metadata);
        }
        if let Err(fault) = may_be {
            self.give_back(session, made.payload);
            *follows = EndEvent::Failed { call: key, fault };
            return Ok(());
        }
        let body = made.payload.map(|payload| Body::Lent { session, payload });
        let opening = Item::Open { metadata: Cow::Owned(metadata), body, end: made.end };
        *follows = EndEvent::Opens { call: key, target, opening };
        Ok(())
    }

    /// Takes over deadline and trace context from the delivered call whose handler makes this one.
    #[inline(never)]
    fn inherit(&mut self, key: CallKey, session: SessionKey, parent: CallId, metadata: Vec<u8>) -> Vec<u8> {
        let Self { sessions, calls, shards, .. } = self;
        let Some((parent_key, parent)) = sessions.delivered_to(calls, shards.own(), session, parent) else {
            return metadata;
        };
        let deadline = parent.deadline;
        let inherited = parent.trace.as_ref().map(|trace| trace.inherited(&metadata));
        nest(calls, parent_key, key);
        if let Some(call) = calls.find_mut(key) {
            call.parent = Some(parent_key);
            call.deadline = call.deadline.earlier(deadline);
        }
        inherited.unwrap_or(metadata)
    }

    /// Tells the daemon's own services who calls them.
    #[inline(never)]
    fn naming_own_caller(&self, session: SessionKey, metadata: Vec<u8>) -> Vec<u8> {
        let identity = self.sessions.find(session).map_or("", |session| &session.identity);
        introduced(identity, metadata)
    }

    fn message(
        &mut self,
        heaps: &mut dyn Heaps,
        session: SessionKey,
        id: CallId,
        payload: Payload,
        end: bool,
        follows: &mut EndEvent<'static>,
    ) -> Taken {
        claim(heaps, session, Some(payload))?;
        let window = i64::from(self.sessions.attached(session)?.told.stream_window_bytes(self.limits));
        let Some((key, direction, call)) = self.sends_on(session, id) else {
            self.give_back(session, Some(payload));
            return Ok(());
        };
        // Whoever sends on without credit could make the daemon keep any number of entries that all name one block.
        let half = call.half(direction);
        if half.charged >= window {
            return Err(SessionFault::OverWindow(id));
        }
        // Nothing well-formed is shorter than a header.
        half.charged += i64::from(payload.window_bytes().max(Body::header_bytes(payload.encoding)));
        let is_over = half.ended;
        if call.outcome.is_some() {
            self.give_back(session, Some(payload));
            return Ok(());
        }
        // What comes after the end is nobody's, however long it is.
        if let Err(fault) = self.limits.check_message(payload.span.len)
            && !is_over
        {
            self.give_back(session, Some(payload));
            *follows = EndEvent::Failed { call: key, fault };
            return Ok(());
        }
        let item = Item::Message { body: Body::Lent { session, payload }, end };
        *follows = EndEvent::Passes { call: key, direction, item };
        Ok(())
    }

    /// The call known to a session under `id`, and the direction in which it sends on it.
    fn sends_on(&mut self, session: SessionKey, id: CallId) -> Option<(CallKey, Direction, &mut Call)> {
        if id.is_delivered() {
            let key = self.sessions.delivered_as(self.shards.own(), session, id)?;
            let call = self.calls.find_mut(key).filter(|call| call.handler() == Some(session))?;
            return Some((key, Direction::Response, call));
        }
        let key = self.sessions.made_key(session, id)?;
        Some((key, Direction::Request, self.calls.find_mut(key)?))
    }

    /// An item without a message, of an open call: it goes on in the direction its sender sends.
    fn item(
        &mut self,
        session: SessionKey,
        id: CallId,
        item: Item<'static>,
        follows: &mut EndEvent<'static>,
    ) {
        if let Some((call, direction, found)) = self.sends_on(session, id)
            && found.outcome.is_none()
        {
            *follows = EndEvent::Passes { call, direction, item };
        }
    }

    // LIFE: 17 | entry taken out of the ring; the worker is free | (d12) | 6 server send queue
    #[inline(always)]
    fn finish(
        &mut self,
        now: Instant,
        heaps: &mut dyn Heaps,
        session: SessionKey,
        finish: &Finish,
        follows: &mut EndEvent<'static>,
    ) -> Taken {
        let metadata = self.take_metadata(heaps, session, finish.metadata)?;
        claim(heaps, session, finish.payload)?;
        let Self { sessions, calls, workers, shards, limits, .. } = self;
        let Some((key, call)) = sessions.delivered_to(calls, shards.own(), session, finish.call) else {
            let call = delivered_by(shards.own(), finish.call);
            self.give_back(session, finish.payload);
            let cpu_ns = finish.cpu_ns;
            if cpu_ns > 0 {
                *follows = EndEvent::LateHandler { call, session, cpu_ns };
            }
            return Ok(());
        };
        let is_over = call.response.ended;
        let too_long = finish.payload.and_then(|payload| limits.check_message(payload.span.len).err());
        let subtree = subtree(calls, call).max(finish.subtree.saturating_add(1));
        if let Some(call) = calls.find_mut(key) {
            call.server_measured = true;
            call.server_stamps.a10 = finish.taken;
            call.server_stamps.a11 = finish.published;
            call.server_stamps.d12 = now;
            call.server_stamps.cpu_ns = finish.cpu_ns;
            call.server_stamps.subtree = subtree;
            if let Some(place) = call.place.take() {
                workers.give_back(place, key);
                workers.note(now, place, call.method, &call.server_stamps, call.receive_wait_ns);
            }
        }
        if let Some(fault) = too_long.filter(|_| !is_over) {
            self.give_back(session, finish.payload);
            *follows = EndEvent::Failed { call: key, fault };
            return Ok(());
        }
        let body = finish.payload.map(|payload| Body::Lent { session, payload });
        let (code, execution, metadata) = (finish.code, Execution::Executed, Cow::Owned(metadata));
        let item = Item::Finish { code, execution, body, metadata };
        *follows = EndEvent::Passes { call: key, direction: Direction::Response, item };
        Ok(())
    }

    /// The application is through with a message: its sender may send as much again.
    #[inline(always)]
    fn release(
        &mut self,
        heaps: &mut dyn Heaps,
        session: SessionKey,
        id: CallId,
        blocks: [Span; 2],
        a18: Instant,
        follows: &mut EndEvent<'static>,
    ) -> Taken {
        let [block, metadata] = blocks;
        for span in [block, metadata] {
            if span.len != 0 {
                heaps.release(session, span.offset).ok_or(SessionFault::NotABlock(span))?;
            }
        }
        let Self { sessions, calls, invariants, shards, .. } = self;
        let (direction, key) = match id.is_delivered() {
            true => (Direction::Request, sessions.delivered_as(shards.own(), session, id)),
            false => (Direction::Response, sessions.made_key(session, id)),
        };
        let is_its = |call: &&mut Call| direction == Direction::Response || call.handler() == Some(session);
        let found = key.and_then(|key| Some((key, calls.find_mut(key).filter(is_its)?)));
        let Some((call, found)) = found else {
            *follows = EndEvent::Released(ReleasedBlock::of_nobody(session));
            return Ok(());
        };
        if direction == Direction::Request {
            sessions.opening_is_released(call, session, [block.len, metadata.len]);
        }
        let mut released =
            ReleasedBlock { call: Some(call), direction, a18, ..ReleasedBlock::of_nobody(session) };
        if block.len != 0 {
            let half = found.half(direction);
            released.credit = half.release(block.len);
            let holder = half.share.held();
            let less = half.share.release(block.len);
            released.was_awaited = half.share.was_awaited();
            if less > 0
                && let Some((holder, _)) = holder
            {
                sessions.streams_hold_less(invariants, holder, less);
            }
        }
        *follows = EndEvent::Released(released);
        Ok(())
    }

    /// A message is nobody's: its block goes back.
    fn give_back(&mut self, session: SessionKey, payload: Option<Payload>) {
        payload.into_iter().for_each(|payload| self.sessions.give_back(session, payload.span));
    }

    /// The metadata in a block, if there is one.
    #[inline(always)]
    fn take_metadata(
        &mut self,
        heaps: &dyn Heaps,
        session: SessionKey,
        span: Span,
    ) -> Result<Vec<u8>, SessionFault> {
        if span.len == 0 { Ok(Vec::new()) } else { self.copy_metadata(heaps, session, span) }
    }

    /// Copies a metadata block out and gives it back at once. What is in it is read by whoever needs it.
    fn copy_metadata(
        &mut self,
        heaps: &dyn Heaps,
        session: SessionKey,
        span: Span,
    ) -> Result<Vec<u8>, SessionFault> {
        let mut metadata = Vec::new();
        if span.len as usize > Metadata::BYTES_MAX || !heaps.seal(session, span, &mut metadata) {
            return Err(SessionFault::OutsideHeap(span));
        }
        self.sessions.attached(session)?;
        self.sessions.give_back(session, span);
        Ok(metadata)
    }
}

/// The application says a message lies there: that must be in its send heap.
fn claim(heaps: &dyn Heaps, session: SessionKey, payload: Option<Payload>) -> Result<(), SessionFault> {
    match payload {
        Some(payload) if !heaps.send_heap_contains(session, payload.span) => {
            Err(SessionFault::OutsideHeap(payload.span))
        }
        _ => Ok(()),
    }
}

/// The session for which an entry of this one is: the one that made the call, if it is of this shard and this entry is
/// its handler's answer. What a handler says to no effect is its own.
pub(crate) fn payer_of(
    sessions: &SessionEnds,
    calls: &Calls,
    limits: &Limits,
    own: ShardIndex,
    (session, raw): (SessionKey, &entry::Entry),
) -> SessionKey {
    let delivered = || sessions.delivered_to(calls, own, session, CallId(raw[1]));
    let call = entry::is_answer(raw).then(delivered).flatten();
    let has_effect = |call: &Call| {
        let said = entry::is_headers(raw) && call.response.introduced;
        !(call.response.ended || said || limits.check_message(entry::message_bytes(raw)).is_err())
    };
    let made = call.filter(|(_, call)| has_effect(call)).and_then(|(_, call)| call.maker());
    made.map_or(session, |(maker, _)| maker)
}
