//! Entries from applications: the beginning of a call's way.

use crate::call::{Body, ClientEnd, Direction, Item};
use crate::engine::{Engine, Turn};
use crate::operator::introduced;
use crate::receive_room::{opening_is_released, unpark};
use crate::records::{lately, note_late_handler};
use crate::session::{Route, delivered_by, delivered_id};
use crate::{CallKey, SessionFault, SessionKey};
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use trunkline_call::entry::{self, Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Execution, Metadata};

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
        self.claim(turn, session, made.payload)?;
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
        self.enlist(key, 0, plan);
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
        let Some(parent_key) = self.delivered_key(session, parent) else { return metadata };
        self.nest(parent_key, key);
        let Some(parent) = self.calls.find_mut(parent_key) else { return metadata };
        let (deadline, trace) = (parent.deadline, parent.trace.clone());
        if let Some(call) = self.calls.find_mut(key) {
            call.parent = Some(parent_key);
            call.deadline = call.deadline.earlier(deadline);
        }
        trace.map_or_else(|| metadata.clone(), |trace| trace.inherited(&metadata))
    }

    /// Notes that a call is another's child. Those of a call that are over go when the list is full, and it doubles
    /// where half of them are not: a handler may have thousands at once, and each that ends is not to be looked for.
    fn nest(&mut self, parent: CallKey, child: CallKey) {
        let Some(call) = self.calls.find_mut(parent) else { return };
        if call.children.len() < call.children.capacity() {
            return call.children.push(child);
        }
        let mut children = std::mem::take(&mut call.children);
        children.retain(|child| self.calls.find(*child).is_some());
        if children.len() >= children.capacity() / 2 {
            children.reserve_exact(children.capacity().max(4));
        }
        children.push(child);
        if let Some(call) = self.calls.find_mut(parent) {
            call.children = children;
        }
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
        self.claim(turn, session, Some(payload))?;
        self.count_against_window(session, id, payload)?;
        let mut item = Item::Message { body: Body::Lent { session, payload }, end };
        self.submit_item(turn, session, id, &mut item);
        Ok(())
    }

    /// Counts a message against its stream's window. Whoever sends on without credit could make the daemon keep any
    /// number of entries that all name one block.
    fn count_against_window(
        &mut self,
        session: SessionKey,
        id: CallId,
        payload: Payload,
    ) -> Result<(), SessionFault> {
        let window = i64::from(self.sessions.attached(session)?.told.stream_window_bytes(&self.limits));
        let (key, direction) = self.sends_on(session, id);
        let Some(call) = key.and_then(|key| self.calls.find_mut(key)) else { return Ok(()) };
        let half = call.half(direction);
        if half.charged >= window {
            return Err(SessionFault::OverWindow(id));
        }
        // Nothing well-formed is shorter than a header.
        half.charged += i64::from(payload.window_bytes().max(Body::header_bytes(payload.encoding)));
        Ok(())
    }

    /// The call known to a session under `id`, and the direction in which it sends on it.
    fn sends_on(&self, session: SessionKey, id: CallId) -> (Option<CallKey>, Direction) {
        match id.is_delivered() {
            true => (self.delivered_key(session, id), Direction::Response),
            false => (self.sessions.made_key(session, id), Direction::Request),
        }
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
        self.claim(turn, session, finish.payload)?;
        let body = finish.payload.map(|payload| Body::Lent { session, payload });
        let metadata = Cow::Owned(metadata);
        let mut item = Item::Finish { code: finish.code, execution: Execution::Executed, body, metadata };
        let Some(key) = self.delivered_key(session, finish.call) else {
            self.drop_item(&mut item);
            if finish.cpu_ns > 0 {
                let key = delivered_by(self.shards.own(), finish.call);
                note_late_handler(self, key, session, finish.cpu_ns);
            }
            return Ok(());
        };
        let mut has_place = false;
        let subtree = self.subtree(key).max(finish.subtree.saturating_add(1));
        if let Some(call) = self.calls.find_mut(key) {
            has_place = call.place.is_some();
            call.server_measured = true;
            call.server_stamps.a10 = finish.taken;
            call.server_stamps.a11 = finish.published;
            call.server_stamps.d12 = turn.now;
            call.server_stamps.cpu_ns = finish.cpu_ns;
            call.server_stamps.subtree = subtree;
        }
        if has_place {
            self.leave_worker(turn.now, key);
        }
        self.pass(turn, key, Direction::Response, &mut item);
        Ok(())
    }

    /// A delivered call and all calls below it, as far as those that serve them told.
    fn subtree(&self, key: CallKey) -> u32 {
        let Some(call) = self.calls.find(key) else { return 1 };
        let open = call.children.iter().filter_map(|child| self.calls.find(*child));
        let below = open
            .fold(call.subtree_below, |sum, child| sum.saturating_add(child.server_stamps.subtree.max(1)));
        below.saturating_add(1)
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
        a18: trunkline_call::Instant,
    ) -> Result<(), SessionFault> {
        let [block, metadata] = blocks;
        for span in [block, metadata] {
            if span.len != 0 {
                turn.heaps.release(session, span.offset).ok_or(SessionFault::NotABlock(span))?;
            }
        }
        let (key, direction) = match id.is_delivered() {
            true => (self.delivered_key(session, id), Direction::Request),
            false => (self.sessions.made_key(session, id), Direction::Response),
        };
        if let Some(key) = key {
            if direction == Direction::Request {
                opening_is_released(self, key, session, [block.len, metadata.len]);
            }
            if block.len != 0 {
                self.released(turn, key, direction, block.len);
            }
            if direction == Direction::Response {
                self.conclude(turn.now, key, a18);
            }
        }
        unpark(self, turn, session);
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
        let (key, direction) = self.sends_on(session, id);
        match key.filter(|key| self.calls.find(*key).is_some_and(|call| call.outcome.is_none())) {
            Some(key) => self.pass(turn, key, direction, item),
            None => self.drop_item(item),
        }
    }

    /// The application says a message lies there: the range must be in its heap and within the message limit.
    fn claim(
        &mut self,
        turn: &Turn<'_>,
        session: SessionKey,
        payload: Option<Payload>,
    ) -> Result<(), SessionFault> {
        let Some(payload) = payload else { return Ok(()) };
        if !turn.heaps.send_heap_contains(session, payload.span) {
            return Err(SessionFault::OutsideHeap(payload.span));
        }
        Ok(())
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
    pub(crate) fn delivered_key(&self, session: SessionKey, id: CallId) -> Option<CallKey> {
        self.sessions.delivered_key(&self.calls, self.shards.own(), session, id)
    }

    /// The id by which its handler knows a call.
    pub(crate) fn delivered_id(&self, key: CallKey) -> CallId {
        let known = self.calls.find(key).and_then(|call| call.known_as);
        known.unwrap_or_else(|| delivered_id(self.shards.own(), key))
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a call knows its children for as long as they are there, and not much longer.
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn children_that_are_over_are_not_kept() {
        let mut engine = Engine::new(Limits::default(), "n", 1);
        let parent = engine.calls.renew().0;
        for _ in 0..1000 {
            let child = engine.calls.renew().0;
            engine.nest(parent, child);
            engine.calls.put_by(child);
        }
        let of = |engine: &Engine| engine.calls.find(parent).unwrap().children.clone();
        assert!(of(&engine).len() <= 4, "{}", of(&engine).len());
        let open: Vec<CallKey> = (0..1000).map(|_| engine.calls.renew().0).collect();
        open.iter().for_each(|child| engine.nest(parent, *child));
        assert!(open.iter().all(|child| of(&engine).contains(child)));
        open.iter().for_each(|child| engine.calls.put_by(*child));
        (0..3000).for_each(|_| engine.nest(parent, CallKey::NOTHING));
        assert!(of(&engine).len() <= 2000, "{}", of(&engine).len());
    }
}
