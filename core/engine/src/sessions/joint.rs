//! Entries from applications, the beginning of a call's way, and what comes to them: the joint between [`SessionEnds`]
//! and calls, methods and policies.
//!
//! [`SessionEnds`]: super::SessionEnds

use super::placing::{
    PlacedItem, awaits_room, blocker_of_stream, claim, note_passed, place_metadata, publish, unplaced,
};
use super::room::bytes_to_place;
use crate::assembly::{AssemblyPlace, Shape};
use crate::call::{Body, Call, ClientEnd, Direction, Item};
use crate::callers::words;
use crate::convert::place;
use crate::ends::{Blocker, EndOfCall, ItemWay, Refusal};
use crate::engine::{Engine, Turn};
use crate::nested::{nest, subtree};
use crate::operator::introduced;
use crate::records::{CallBooks, CallRecorder, lately, note_late_handler};
use crate::registry::{Form, MethodTypes};
use crate::session::{Route, delivered_by, delivered_id};
use crate::shares::Wait;
use crate::source::source_of;
use crate::worker_places::WorkerPlaces;
use crate::{CallKey, SessionFault, SessionKey};
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use trunkline_call::entry::{self, Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Encoding, Execution, Instant, Metadata, RouteIndex};

/// Refused calls that wait for their release, where a session may have fewer calls than this.
const REFUSED_MIN: usize = 64;

impl Engine {
    /// Takes one submission of a session.
    ///
    /// # Errors
    /// [`SessionFault`] if the application broke the ABI; the host detaches it. Everything else ends in a completion.
    pub fn handle_submission(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionKey,
        raw: &entry::Entry,
    ) -> Result<(), SessionFault> {
        self.sessions.discard_abandoned(turn.heaps);
        let submission = Submission::decode(raw).map_err(SessionFault::Entry)?;
        self.submit(turn, session, submission)?;
        self.go_on(turn);
        Ok(())
    }

    fn submit(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionKey,
        submission: Submission,
    ) -> Result<(), SessionFault> {
        match submission {
            Submission::Call(call) => self.submit_call(turn, session, call),
            Submission::Message { call, payload, end, .. } => {
                self.submit_message(turn, session, call, payload, end)
            }
            Submission::HalfClose { call } => self.submit_half_close(turn, session, call),
            Submission::Cancel { call } => self.submit_cancel(turn, session, call),
            Submission::Headers { call, metadata } => self.submit_headers(turn, session, call, metadata),
            Submission::Finish(finish) => self.submit_finish(turn, session, finish),
            Submission::Release { call, block, metadata, a18 } => {
                self.submit_release(turn, session, call, [block, metadata], a18)
            }
            Submission::Drain { answer } => self.submit_drain(session, answer),
        }
    }

    // LIFE: 3 | entry taken out of the ring, and its spans checked | session, method, target (judged when it was
    // bound), call id (d2) | 1 client send queue
    fn submit_call(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionKey,
        made: entry::Call,
    ) -> Result<(), SessionFault> {
        let metadata = self.take_metadata(turn, session, made.metadata)?;
        claim(turn, session, made.payload)?;
        let from = self.sessions.attached(session)?;
        let Some(Route::Calls { method, types, target, plan }) = from.routes.get(made.route.0 as usize)
        else {
            return Err(SessionFault::UnknownRoute(made.route));
        };
        let (method, types, target, plan) = (*method, types.clone(), *target, plan.clone());
        if made.call.is_delivered() {
            return Err(SessionFault::CallIdInUse(made.call));
        }
        let limit = from.told.calls_max(&self.limits);
        let full = from.made.len() >= limit;
        if from.made.len() >= limit + limit.max(REFUSED_MIN) {
            // Calls that are refused wait for their release like others; an application that goes on without reading
            // that they are could have any number kept.
            return Err(SessionFault::TooManyCalls(limit));
        }
        let may_be = self.sessions.hold_call(&mut self.held, session, full.then_some(limit));
        let client = ClientEnd::Session { session, id: made.call, types };
        let (key, call) = self.calls.renew();
        call.begin(method, client, made.deadline);
        call.waits_for_ready = made.wait_for_ready;
        call.client_stamps.a0 = lately(made.entered, turn.now);
        call.client_stamps.a1 = lately(made.published, turn.now);
        call.client_stamps.d2 = turn.now;
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
        let mut metadata = metadata;
        if made.parent.is_delivered() {
            metadata = self.inherit(key, session, made.parent, metadata);
        }
        if self.registry.is_own(method) {
            metadata = self.naming_own_caller(session, metadata);
        }
        let body = made.payload.map(|payload| Body::Lent { session, payload });
        let mut item = Item::Open { metadata: Cow::Owned(metadata), body, end: made.end };
        if let Err(full) = may_be {
            self.drop_item(&mut item);
            self.fail(turn, key, full);
            return Ok(());
        }
        self.start(turn, key, target, &mut item);
        Ok(())
    }

    /// Takes over deadline and trace context from the delivered call whose handler makes this one.
    fn inherit(&mut self, key: CallKey, session: SessionKey, parent: CallId, metadata: Vec<u8>) -> Vec<u8> {
        let Some((parent_key, parent)) = self.delivered_to(session, parent) else { return metadata };
        let deadline = parent.deadline;
        let inherited = parent.trace.as_ref().map(|trace| trace.inherited(&metadata));
        nest(&mut self.calls, parent_key, key);
        if let Some(call) = self.calls.find_mut(key) {
            call.parent = Some(parent_key);
            call.deadline = call.deadline.earlier(deadline);
        }
        inherited.unwrap_or(metadata)
    }

    /// Tells the daemon's own services who calls them.
    fn naming_own_caller(&self, session: SessionKey, metadata: Vec<u8>) -> Vec<u8> {
        let identity = self.sessions.find(session).map_or("", |session| &session.identity);
        introduced(identity, metadata)
    }

    fn submit_message(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionKey,
        id: CallId,
        payload: Payload,
        end: bool,
    ) -> Result<(), SessionFault> {
        claim(turn, session, Some(payload))?;
        let window = i64::from(self.sessions.attached(session)?.told.stream_window_bytes(&self.limits));
        let mut item = Item::Message { body: Body::Lent { session, payload }, end };
        let Some((key, direction, call)) = self.sends_on(session, id) else {
            self.drop_item(&mut item);
            return Ok(());
        };
        // Whoever sends on without credit could make the daemon keep any number of entries that all name one block.
        let half = call.half(direction);
        if half.charged >= window {
            return Err(SessionFault::OverWindow(id));
        }
        // Nothing well-formed is shorter than a header.
        half.charged += i64::from(payload.window_bytes().max(Body::header_bytes(payload.encoding)));
        if call.outcome.is_some() {
            self.drop_item(&mut item);
        } else if let Err(fault) = self.limits.check_message(payload.span.len) {
            self.drop_item(&mut item);
            self.fail(turn, key, fault);
        } else {
            self.pass(turn, key, direction, &mut item);
        }
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

    fn submit_half_close(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionKey,
        id: CallId,
    ) -> Result<(), SessionFault> {
        if !id.is_delivered() {
            self.submit_item(turn, session, id, &mut Item::HalfClose);
        }
        Ok(())
    }

    fn submit_headers(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionKey,
        id: CallId,
        metadata: Span,
    ) -> Result<(), SessionFault> {
        let metadata = self.take_metadata(turn, session, metadata)?;
        if id.is_delivered() {
            self.submit_item(turn, session, id, &mut Item::Headers { metadata: Cow::Owned(metadata) });
        }
        Ok(())
    }

    // LIFE: 17 | entry taken out of the ring; the worker is free | (d12) | 6 server send queue
    fn submit_finish(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionKey,
        finish: Finish,
    ) -> Result<(), SessionFault> {
        let metadata = self.take_metadata(turn, session, finish.metadata)?;
        claim(turn, session, finish.payload)?;
        let body = finish.payload.map(|payload| Body::Lent { session, payload });
        let metadata = Cow::Owned(metadata);
        let mut item = Item::Finish { code: finish.code, execution: Execution::Executed, body, metadata };
        let Some((key, call)) = self.delivered_to(session, finish.call) else {
            self.drop_item(&mut item);
            if finish.cpu_ns > 0 {
                let key = delivered_by(self.shards.own(), finish.call);
                note_late_handler(self, key, session, finish.cpu_ns);
            }
            return Ok(());
        };
        if let Some(Err(fault)) = item.body().map(|body| self.limits.check_message(body.len())) {
            self.drop_item(&mut item);
            self.fail(turn, key, fault);
            return Ok(());
        }
        let subtree = subtree(&self.calls, call).max(finish.subtree.saturating_add(1));
        if let Some(call) = self.calls.find_mut(key) {
            call.server_measured = true;
            call.server_stamps.a10 = finish.taken;
            call.server_stamps.a11 = finish.published;
            call.server_stamps.d12 = turn.now;
            call.server_stamps.cpu_ns = finish.cpu_ns;
            call.server_stamps.subtree = subtree;
            if let Some(place) = call.place.take() {
                self.workers.give_back(place, key);
                let waited_ns = call.receive_wait_ns;
                self.workers.note(turn.now, place, call.method, &call.server_stamps, waited_ns);
            }
        }
        self.pass(turn, key, Direction::Response, &mut item);
        Ok(())
    }

    fn submit_cancel(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionKey,
        id: CallId,
    ) -> Result<(), SessionFault> {
        if let Some(key) = self.sessions.made_key(session, id) {
            self.cancel(turn, key);
        }
        Ok(())
    }

    fn submit_release(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionKey,
        id: CallId,
        blocks: [Span; 2],
        a18: Instant,
    ) -> Result<(), SessionFault> {
        let [block, metadata] = blocks;
        for span in [block, metadata] {
            if span.len != 0 {
                turn.heaps.release(session, span.offset).ok_or(SessionFault::NotABlock(span))?;
            }
        }
        let (key, direction) = match id.is_delivered() {
            true => (self.delivered_to(session, id).map(|(key, _)| key), Direction::Request),
            false => (self.sessions.made_key(session, id), Direction::Response),
        };
        if let Some(key) = key {
            if direction == Direction::Request {
                self.sessions.opening_is_released(key, session, [block.len, metadata.len]);
            }
            if block.len != 0 {
                self.released(turn, key, direction, block.len);
            }
            if direction == Direction::Response {
                self.conclude(turn.now, key, a18);
            }
        }
        self.unpark(turn, session);
        Ok(())
    }

    fn submit_drain(&mut self, session: SessionKey, answer: bool) -> Result<(), SessionFault> {
        self.withdraw(session);
        if self.sessions.attached_mut(session)?.drain(answer) {
            self.sessions.complete(session, Completion::Drained);
        }
        Ok(())
    }

    /// Passes an item of an open call on, in the direction its sender sends.
    fn submit_item(&mut self, turn: &mut Turn<'_>, session: SessionKey, id: CallId, item: &mut Item<'_>) {
        match self.sends_on(session, id).filter(|(_, _, call)| call.outcome.is_none()) {
            Some((key, direction, _)) => self.pass(turn, key, direction, item),
            None => self.drop_item(item),
        }
    }

    /// The metadata in a block, if there is one.
    #[inline(always)]
    fn take_metadata(
        &mut self,
        turn: &Turn<'_>,
        session: SessionKey,
        span: Span,
    ) -> Result<Vec<u8>, SessionFault> {
        if span.len == 0 { Ok(Vec::new()) } else { self.copy_metadata(turn, session, span) }
    }

    /// Copies a metadata block out and gives it back at once. What is in it is read by whoever needs it.
    fn copy_metadata(
        &mut self,
        turn: &Turn<'_>,
        session: SessionKey,
        span: Span,
    ) -> Result<Vec<u8>, SessionFault> {
        let mut metadata = Vec::new();
        if span.len as usize > Metadata::BYTES_MAX || !turn.heaps.seal(session, span, &mut metadata) {
            return Err(SessionFault::OutsideHeap(span));
        }
        self.sessions.attached(session)?;
        self.sessions.give_back(session, span);
        Ok(metadata)
    }

    /// The call delivered to `session` under `id`, if it still is.
    pub(crate) fn delivered_to(&self, session: SessionKey, id: CallId) -> Option<(CallKey, &Call)> {
        self.sessions.delivered_to(&self.calls, self.shards.own(), session, id)
    }

    /// The id by which its handler knows a call.
    pub(crate) fn delivered_id(&self, key: CallKey) -> CallId {
        let (call, own) = (self.calls.find(key), self.shards.own());
        call.map_or_else(|| delivered_id(own, key), |call| call.delivered_id(own, key))
    }

    /// The application is through with a message: its sender may send as much again.
    pub(crate) fn released(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction, bytes: u32) {
        let Some(call) = self.calls.find_mut(key) else { return };
        let half = call.half(direction);
        let credit = half.release(bytes);
        let holder = half.share.held();
        let less = half.share.release(bytes);
        let awaited = half.share.was_awaited();
        if less > 0
            && let Some((session, _)) = holder
        {
            self.sessions.streams_hold_less(&mut self.invariants, session, less);
        }
        if credit > 0 {
            self.credit_sender(key, direction, credit);
        }
        if awaited {
            self.unblock(turn, key, direction);
        }
    }

    /// Moves an item's bytes into the session's receive heap and settles what the sender gets back.
    #[inline(always)]
    pub(super) fn place_item(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        to: SessionKey,
        direction: Direction,
        types: &MethodTypes,
        item: &mut Item<'_>,
    ) -> Result<PlacedItem, Refusal> {
        let told = match &*item {
            Item::Open { body, .. } => self.part_of_opening(turn, key, to, bytes_to_place(body.as_ref()))?,
            _ => None,
        };
        if let Some(body) = item.body()
            && let Some(call) = self.calls.find_mut(key)
        {
            let half = call.half(direction);
            if matches!(item, Item::Message { .. })
                && let Some(wait) = self.sessions.share_awaited(turn.heaps, to, &half.share, body)
            {
                if matches!(wait, Wait::Share) {
                    half.share.await_release();
                }
                return Err(Refusal::Blocked(blocker_of_stream(wait, to)));
            }
            // The message of an end was thrown away with what waited before it, and that of another is not waited for.
            if awaits_room(turn.heaps, to, half) {
                return Err(Refusal::Blocked(Blocker::Session(to)));
            }
        }
        // Before the message, which may be long to convert: that is not to have been in vain.
        let (metadata, is_end) = match &*item {
            Item::Open { metadata, .. } => {
                (place_metadata(turn, to, &words(self, key, to, types, metadata)), false)
            }
            Item::Finish { metadata, .. } => (place_metadata(turn, to, metadata), true),
            Item::Headers { metadata } => (place_metadata(turn, to, metadata), false),
            Item::Message { .. } | Item::HalfClose => (Some(Span::default()), false),
        };
        let metadata = metadata.ok_or(Refusal::Blocked(Blocker::Session(to)))?;
        let payload = match item.body() {
            Some(body) => {
                let (way, placed) = (ItemWay { key, direction }, (metadata, is_end));
                Some(self.place_message(turn, way, to, types.of(direction), body, placed)?)
            }
            None => {
                publish(turn, to, metadata);
                None
            }
        };
        if let Some(source) = told {
            let bytes = payload.map_or(0, |payload| payload.block().len);
            self.sessions.opening_holds(key, to, source, [bytes, metadata.len]);
        }
        match item.body() {
            // Nearly always.
            Some(&Body::Lent { session, payload }) => self.sessions.give_back(session, payload.span),
            Some(Body::Crossed(_)) => self.used_up(item),
            Some(body) => self.used(body),
            None => {}
        }
        Ok(PlacedItem { payload, metadata })
    }

    /// Whether an opening may have so many bytes of a receive heap: its source, if they are to be counted.
    ///
    /// # Errors
    /// It has to wait for others of its source.
    #[inline]
    pub(super) fn part_of_opening(
        &self,
        turn: &Turn<'_>,
        key: CallKey,
        to: SessionKey,
        bytes: u32,
    ) -> Result<Option<Arc<str>>, Refusal> {
        let part = self.sessions.opening_may_have(turn.heaps, to, bytes, || source_of(self, key));
        part.ok_or(Refusal::Blocked(Blocker::Opening(to)))
    }

    /// Where a message goes that is arriving: into the receive heap of a session, or into memory of the daemon's own.
    pub(crate) fn place_for(
        &self,
        turn: &mut Turn<'_>,
        ItemWay { key, direction }: ItemWay,
        encoding: Encoding,
        total: u32,
        shape: &Shape,
    ) -> AssemblyPlace {
        let Some(call) = self.calls.find(key) else { return AssemblyPlace::Private(Vec::new()) };
        let (on, message) = ((call, direction), (encoding, total));
        self.sessions.place_for(turn.heaps, on, message, shape, || source_of(self, key))
    }

    /// Moves the message of an item into the session's receive heap, whose metadata lies there; `is_end`: nothing comes
    /// behind it.
    #[inline(always)]
    pub(super) fn place_message(
        &mut self,
        turn: &mut Turn<'_>,
        ItemWay { key, direction }: ItemWay,
        to: SessionKey,
        wanted: &Form,
        body: &Body<'_>,
        (metadata, is_end): (Span, bool),
    ) -> Result<Payload, Refusal> {
        let Self { calls, scratch, gateway, sessions, .. } = self;
        let call = calls.find_mut(key);
        let sent = call.as_deref().and_then(|call| call.form_sent(direction));
        let told = match sent {
            Some(_) => None,
            None => call.as_deref().and_then(|call| gateway.form_sent(call, direction)),
        };
        let payload = match place(turn.heaps, scratch, to, wanted, sent.or(told.as_ref()), body) {
            Ok(payload) => payload,
            Err(error) => {
                if metadata.len != 0 {
                    turn.heaps.discard(to, metadata.offset);
                }
                return Err(unplaced(call.map(|call| call.half(direction)), to, direction, error));
            }
        };
        turn.heaps.publish(to, payload.span);
        publish(turn, to, metadata);
        if let Some(call) = call
            && let Some(more) = note_passed(call, to, direction, (body, is_end), payload)
        {
            sessions.streams_hold_more(to, more);
        }
        Ok(payload)
    }

    /// The message of an item, which has crossed, was used.
    pub(super) fn used_up(&mut self, item: &mut Item<'_>) {
        if let Some(crossed) = item.take_crossed() {
            self.shards.used_up(crossed);
        }
    }

    #[inline]
    pub(super) fn delivered_call(
        &mut self,
        now: Instant,
        key: CallKey,
        route: RouteIndex,
        payload: Option<Payload>,
        metadata: Span,
        end: bool,
    ) -> Completion {
        let (mut deadline, mut known_as) = (trunkline_call::Deadline::NONE, None);
        if let Some(call) = self.calls.find_mut(key) {
            call.handed_over = true;
            // From when it waited for the server, if it did: that is the server's receive queue.
            let ready = Instant(now.0.saturating_sub(call.receive_wait_ns));
            call.server_stamps.d9 = ready;
            if call.maker().is_some() {
                call.client_stamps.d3 = ready;
                call.client_stamps.d4 = ready;
                call.client_stamps.k6 = ready;
                call.server_stamps.k7 = ready;
                call.server_stamps.d8 = ready;
            }
            (deadline, known_as) = (call.deadline, call.known_as);
        }
        Completion::Call(entry::Call {
            route,
            call: known_as.unwrap_or_else(|| delivered_id(self.shards.own(), key)),
            payload,
            metadata,
            end,
            wait_for_ready: false,
            deadline,
            entered: now,
            published: Instant::default(),
            parent: CallId(0),
        })
    }

    // LIFE: 20
    /// The last completion of a call made here, which now waits for the Release that says when it was taken.
    pub(crate) fn deliver_finish(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        session: SessionKey,
        finish: Finish,
    ) {
        let Self { calls, workers, unserved, shards, registry, telemetry, plant, sessions, peers, .. } = self;
        let Self { grpc, r2p2, admission, timers, .. } = self;
        if let Some(call) = calls.find_mut(key) {
            if call.outcome.is_some() {
                return self.invariants.note("a call has one outcome");
            }
            call.ends_for_application(turn.now, finish.code);
            if call.is_at_worker() {
                WorkerPlaces { workers, unserved, shards, registry }.leave(key, call);
            }
            if call.policies.is_some() {
                let recorder = CallRecorder { telemetry, registry, plant };
                let mut books = CallBooks { recorder, sessions, peers, grpc, r2p2, admission, timers };
                books.end_policies(turn.now, key, call, finish.code);
            }
            call.take_server().release(self, key);
        }
        self.sessions.complete(session, Completion::Finish(finish));
    }
}
