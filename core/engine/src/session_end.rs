//! Handing items to a session: into its receive heap and its completion ring.

use crate::call::{Body, ClientEnd, Direction, Item, ServerEnd};
use crate::callers::words;
use crate::convert::place;
use crate::convert_error::{ConvertError, conversion_fault};
use crate::ends::{
    Blocker, ClientSide, EndOfCall, ItemWay, Refusal, ServerSide, SessionHandler, SessionMaker,
};
use crate::engine::{Engine, Turn};
use crate::receive_room::{awaits_share, opening_holds, opening_may_have, part_of_opening};
use crate::records::await_handler;
use crate::registry::{Form, MethodTypes};
use crate::session::credit;
use crate::{CallKey, SessionKey};
use trunkline_call::entry::{self, Completion, Finish, Payload, Span};
use trunkline_call::{CallId, Code, Encoding, Execution, Fault, Instant, RouteIndex, Status};

impl SessionHandler<'_> {
    // LIFE: 14
    /// The whole request of a call of another shard that was given this session just now, by this route of it: its
    /// metadata, and its message, which is used then.
    #[inline]
    pub(crate) fn deliver_whole(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        key: CallKey,
        route: RouteIndex,
        (metadata, message): (&[u8], &Body<'_>),
    ) -> Result<(), Refusal> {
        let (to, way) = (self.session, ItemWay { key, direction: Direction::Request });
        let told = opening_may_have(engine, turn, key, to, message.len())
            .ok_or(Refusal::Blocked(Blocker::Opening(to)))?;
        let Some(placed) = place_metadata(turn, to, &words(engine, key, to, self.types, metadata)) else {
            return Err(Refusal::Blocked(Blocker::Session(to)));
        };
        let payload = engine.place_message(turn, way, to, &self.types.input, message, (placed, false))?;
        if let Some(source) = told {
            opening_holds(engine, key, to, source, [payload.block().len, placed.len]);
        }
        let completion = engine.delivered_call(turn.now, key, route, Some(payload), placed, true);
        engine.sessions.complete(to, completion);
        Ok(())
    }
}

impl EndOfCall for SessionHandler<'_> {
    // LIFE: 14 | copied or decoded into the receive heap, checked, published | the serving session (d9) | 2 request
    // processing + stack, B's part
    /// Request items, to the session that serves the call.
    fn deliver(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let (key, &Self { session, types }) = (way.key, self);
        if !engine.bridgeable(key, types, item) {
            let why = "the server that shared the caller's schema is gone".into();
            return Err(Refusal::Fault(Fault::SchemaMismatch { why }));
        }
        let Some(route) = engine.route_of(key, session, types) else {
            return Err(Refusal::Fault(Fault::HandlerGone { executed: Execution::NotExecuted }));
        };
        if matches!(item, Item::Open { .. }) && engine.was_handed_over(key) {
            engine.drop_item(item);
            let why = "the daemon was about to deliver it a second time, and has not; this is a fault of the daemon";
            engine.invariants.note("a handler sees a call once");
            engine.end(turn, key, &Status::new(Code::Internal, why).with_execution(Execution::Unknown));
            return Ok(());
        }
        if matches!(item, Item::Headers { .. } | Item::Finish { .. }) {
            return Err(Refusal::Fault(wrong_way()));
        }
        let Placed { payload, metadata } =
            engine.place_item(turn, key, session, Direction::Request, types, item)?;
        let call = engine.delivered_id(key);
        let completion = match (&*item, payload) {
            (Item::Open { end, .. }, payload) => {
                engine.delivered_call(turn.now, key, route, payload, metadata, *end)
            }
            (Item::Message { end, .. }, Some(payload)) => Completion::Message { call, payload, end: *end },
            _ => Completion::HalfClose { call },
        };
        engine.sessions.complete(session, completion);
        Ok(())
    }

    fn credit(&self, engine: &mut Engine, key: CallKey, bytes: u32, over: bool) {
        if !over {
            let call = engine.delivered_id(key);
            engine.sessions.complete(self.session, credit(call, bytes));
        }
    }

    /// What it has not released of a stream is no longer the call's, which may wait for its caller to read its end.
    fn release(&self, engine: &mut Engine, key: CallKey) {
        let left = engine.calls.find_mut(key).map(|call| (call.known_as.take(), call.request.share.end()));
        let (known_as, share) = left.unwrap_or_default();
        share.into_iter().for_each(|(session, bytes)| {
            engine.sessions.streams_hold_less(&mut engine.invariants, session, bytes)
        });
        if engine.sessions.find_mut(self.session).is_some_and(|session| session.undeliver(key, known_as)) {
            engine.sessions.complete(self.session, Completion::Drained);
        }
    }
}

impl ServerSide for SessionHandler<'_> {
    fn cancel(&self, engine: &mut Engine, _turn: &mut Turn<'_>, key: CallKey, code: Code) {
        if engine.calls.find(key).is_some_and(|call| call.handed_over) {
            await_handler(engine, key, self.session, code);
            let call = engine.delivered_id(key);
            engine.sessions.complete(self.session, Completion::Cancelled { call, code });
        }
    }
}

impl EndOfCall for SessionMaker<'_> {
    // LIFE: 20 | placed in the receive heap, checked, published | (d17) | 8 response processing + stack, A's part
    /// Response items, to the session that made the call.
    fn deliver(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let (key, &Self { session, id, types }) = (way.key, self);
        if matches!(item, Item::Open { .. } | Item::HalfClose) {
            return Err(Refusal::Fault(wrong_way()));
        }
        let Placed { payload, metadata } =
            engine.place_item(turn, key, session, Direction::Response, types, item)?;
        match (&*item, payload) {
            (Item::Message { end, .. }, Some(payload)) => {
                engine.sessions.complete(session, Completion::Message { call: id, payload, end: *end })
            }
            (Item::Finish { code, execution, .. }, payload) => {
                let finish = Finish {
                    call: id,
                    code: *code,
                    execution: *execution,
                    payload,
                    metadata,
                    taken: Instant::default(),
                    published: Instant::default(),
                    cpu_ns: 0,
                    subtree: 0,
                };
                engine.deliver_finish(turn, key, session, finish)
            }
            _ => engine.sessions.complete(session, Completion::Headers { call: id, metadata }),
        }
        Ok(())
    }

    fn credit(&self, engine: &mut Engine, _key: CallKey, bytes: u32, over: bool) {
        if !over {
            engine.sessions.complete(self.session, credit(self.id, bytes));
        }
    }

    fn release(&self, engine: &mut Engine, _key: CallKey) {
        engine.sessions.release_call(&mut engine.held, self.session, self.id);
    }
}

impl ClientSide for SessionMaker<'_> {
    /// If there is no room for its words, the code alone must do: an end is never held back.
    fn finish(&self, engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, finish: &mut Item<'_>) {
        let way = ItemWay { key, direction: Direction::Response };
        if self.deliver(engine, turn, way, &mut finish.without_body()).is_err() {
            let _ = self.deliver(engine, turn, way, &mut finish.without_words());
        }
    }
}

impl Engine {
    fn was_handed_over(&self, key: CallKey) -> bool {
        self.calls.find(key).is_some_and(|call| call.handed_over)
    }

    /// Whether a request's message can become one of the session's type. A linear message of a peer can only if it has
    /// this very type: peers may send what was agreed with a server that is gone since, and nobody here can read it.
    pub(crate) fn bridgeable(&self, key: CallKey, types: &MethodTypes, item: &Item<'_>) -> bool {
        let linear = match item.body() {
            Some(Body::Wire { encoding, .. } | Body::Placed { encoding, .. }) => {
                *encoding == Encoding::Linear
            }
            Some(
                Body::Lent { .. }
                | Body::Sealed { .. }
                | Body::Kept(_)
                | Body::Packed { .. }
                | Body::Crossed(_),
            )
            | None => false,
        };
        if !linear {
            return true;
        }
        let Some(call) = self.calls.find(key) else { return true };
        let same = call.offered.is_none_or(|[request, _]| request == types.input.fingerprint());
        same || call.agreed.is_some()
    }

    /// Notes what the receiver must release before the sender may send as much again; nothing for what comes with the
    /// end.
    #[inline(always)]
    fn note_passed(
        &mut self,
        key: CallKey,
        to: SessionKey,
        direction: Direction,
        (body, is_end): (&Body<'_>, bool),
        payload: Payload,
    ) {
        let Some(call) = self.calls.find_mut(key) else { return };
        let streams = !is_end && call.streams(direction);
        let half = call.half(direction);
        half.count(body.len());
        if !streams {
            return;
        }
        half.expect_release(body.window_cost(), payload.block().len);
        let more = half.share.hold(to, payload.block().len);
        if let Some(session) = self.sessions.find_mut(to) {
            session.stream_bytes += more;
        }
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
    fn place_item(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        to: SessionKey,
        direction: Direction,
        types: &MethodTypes,
        item: &mut Item<'_>,
    ) -> Result<Placed, Refusal> {
        let told = match &*item {
            Item::Open { body, .. } => {
                part_of_opening(self, turn, key, to, body.as_ref()).map_err(Refusal::Blocked)?
            }
            Item::Message { body, .. } => match awaits_share(self, turn, key, to, direction, body) {
                Some(blocker) => return Err(Refusal::Blocked(blocker)),
                None => None,
            },
            Item::Headers { .. } | Item::HalfClose | Item::Finish { .. } => None,
        };
        // The message of an end was thrown away with what waited before it, and that of another is not waited for.
        if item.body().is_some() && self.awaits_room(turn, key, to, direction) {
            return Err(Refusal::Blocked(Blocker::Session(to)));
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
            opening_holds(self, key, to, source, [bytes, metadata.len]);
        }
        match item.body() {
            // Nearly always.
            Some(&Body::Lent { session, payload }) => self.sessions.give_back(session, payload.span),
            Some(Body::Crossed(_)) => self.used_up(item),
            Some(body) => self.used(body),
            None => {}
        }
        Ok(Placed { payload, metadata })
    }

    /// Moves the message of an item into the session's receive heap, whose metadata lies there; `is_end`: nothing comes
    /// behind it.
    #[inline(always)]
    fn place_message(
        &mut self,
        turn: &mut Turn<'_>,
        ItemWay { key, direction }: ItemWay,
        to: SessionKey,
        wanted: &Form,
        body: &Body<'_>,
        (metadata, is_end): (Span, bool),
    ) -> Result<Payload, Refusal> {
        let payload = match self.place_body(turn, key, to, direction, wanted, body) {
            Ok(payload) => payload,
            Err(error) => {
                if metadata.len != 0 {
                    turn.heaps.discard(to, metadata.offset);
                }
                return Err(self.unplaced(key, to, direction, error));
            }
        };
        turn.heaps.publish(to, payload.span);
        publish(turn, to, metadata);
        self.note_passed(key, to, direction, (body, is_end), payload);
        Ok(payload)
    }

    /// The message of an item, which has crossed, was used.
    fn used_up(&mut self, item: &mut Item<'_>) {
        if let Some(crossed) = item.take_crossed() {
            self.shards.used_up(crossed);
        }
    }

    /// Moves a message into the session's receive heap, from the form it was sent in.
    #[inline]
    fn place_body(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        to: SessionKey,
        direction: Direction,
        wanted: &Form,
        body: &Body<'_>,
    ) -> Result<Payload, ConvertError> {
        let at_gateway = self.form_at_gateway(key, direction);
        let Self { calls, scratch, .. } = self;
        let sent = calls.find(key).and_then(|call| call.form_sent(direction)).or(at_gateway.as_ref());
        place(turn.heaps, scratch, to, wanted, sent, body)
    }

    /// Whether a message waits for room that is not there yet: it is not converted in vain each time that some is made.
    #[inline]
    fn awaits_room(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        to: SessionKey,
        direction: Direction,
    ) -> bool {
        let Some(call) = self.calls.find_mut(key) else { return false };
        let wanted = call.half(direction).room_wanted;
        if wanted == 0 {
            return false;
        }
        // Another receiver's heap may be smaller, and says so itself.
        if wanted <= turn.heaps.receive_capacity(to) {
            match turn.heaps.allocate(to, wanted) {
                Some(offset) => turn.heaps.discard(to, offset),
                None => return true,
            }
        }
        call.half(direction).room_wanted = 0;
        false
    }

    /// Why a message has no place in a session's receive heap; for how much room it waits is noted.
    fn unplaced(
        &mut self,
        key: CallKey,
        to: SessionKey,
        direction: Direction,
        error: ConvertError,
    ) -> Refusal {
        let ConvertError::NoRoom { wanted, .. } = error else {
            return Refusal::Fault(conversion_fault(error, direction));
        };
        if let Some(call) = self.calls.find_mut(key) {
            call.half(direction).room_wanted = wanted;
        }
        Refusal::Blocked(Blocker::Session(to))
    }

    /// The route by which a session serves a call. An older engine may have handed it over without.
    fn route_of(&self, key: CallKey, session: SessionKey, types: &MethodTypes) -> Option<RouteIndex> {
        let call = self.calls.find(key)?;
        call.served_as.or_else(|| {
            let mut servers = self.registry.servers(call.method).iter();
            let server =
                servers.find(|server| server.session == session && server.types.number == types.number);
            server.map(|server| server.route)
        })
    }

    #[inline]
    fn delivered_call(
        &mut self,
        now: Instant,
        key: CallKey,
        route: RouteIndex,
        payload: Option<Payload>,
        metadata: Span,
        end: bool,
    ) -> Completion {
        let mut deadline = trunkline_call::Deadline::NONE;
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
            deadline = call.deadline;
        }
        Completion::Call(entry::Call {
            route,
            call: self.delivered_id(key),
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
    /// The last completion of a call its application made. The call now waits for the Release that says when it was
    /// taken.
    pub(crate) fn deliver_finish(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        session: SessionKey,
        finish: Finish,
    ) {
        if let Some(call) = self.calls.find_mut(key) {
            if call.outcome.is_some() {
                return self.invariants.note("a call has one outcome");
            }
            call.outcome = Some(finish.code);
            let same_host = matches!(call.server, ServerEnd::Session { .. });
            if same_host {
                call.server_stamps.k14 = turn.now;
                call.client_stamps.k15 = turn.now;
                call.client_stamps.d16 = turn.now;
            }
            call.client_stamps.d17 = turn.now;
        }
        self.leave_server(key);
        self.end_policies(turn.now, key, finish.code);
        self.sessions.complete(session, Completion::Finish(finish));
    }

    /// The form of the client end's messages; linear ones of a peer have the type this host told it of.
    pub(crate) fn request_form(&self, key: CallKey) -> Option<Form> {
        let sent = self.calls.find(key)?.form_sent(Direction::Request).cloned();
        sent.or_else(|| self.form_at_gateway(key, Direction::Request))
    }

    /// The form of a request that comes through the gateway.
    #[inline]
    fn form_at_gateway(&self, key: CallKey, direction: Direction) -> Option<Form> {
        if direction == Direction::Response {
            return None;
        }
        let call = self.calls.find(key).filter(|call| matches!(call.client, ClientEnd::Grpc { .. }))?;
        self.gateway.message_of(call).map(Form::Typed)
    }
}

/// Where the bytes of an item lie in the destination's receive heap.
struct Placed {
    payload: Option<Payload>,
    metadata: Span,
}

/// Writes metadata into a block of its own; nothing for none. `None` when there is no room.
fn place_metadata(turn: &mut Turn<'_>, to: SessionKey, metadata: &[u8]) -> Option<Span> {
    if metadata.is_empty() {
        return Some(Span::default());
    }
    let len = metadata.len() as u32;
    let span = Span { offset: turn.heaps.allocate(to, len)?, len };
    turn.heaps.receive_block(to, span).copy_from_slice(metadata);
    Some(span)
}

/// Metadata that lies in a receive heap is complete, if there is any.
fn publish(turn: &mut Turn<'_>, to: SessionKey, metadata: Span) {
    if metadata.len != 0 {
        turn.heaps.publish(to, metadata);
    }
}

fn wrong_way() -> Fault {
    Fault::HandlerProtocol { why: "an item of the other direction" }
}
