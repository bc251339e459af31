//! A session as the end of a call: items go into its receive heap and its completion ring.

use super::placing::{PlacedItem, place_metadata};
use crate::CallKey;
use crate::call::{Body, Direction, Item};
use crate::callers::words;
use crate::ends::{
    Blocker, ClientSide, EndOfCall, ItemWay, Refusal, ServerSide, SessionHandler, SessionMaker,
};
use crate::engine::{Engine, Turn};
use crate::records::awaited_handler;
use crate::session::credit;
use trunkline_call::entry::{Completion, Finish};
use trunkline_call::{Code, Execution, Fault, Instant, RouteIndex, Status};

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
        let told = engine.part_of_opening(turn, key, to, message.len())?;
        let Some(placed) = place_metadata(turn, to, &words(engine, key, to, self.types, metadata)) else {
            return Err(Refusal::Blocked(Blocker::Session(to)));
        };
        let payload = engine.place_message(turn, way, to, &self.types.input, message, (placed, false))?;
        if let Some(source) = told {
            engine.sessions.opening_holds(key, to, source, [payload.block().len, placed.len]);
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
        let gone = Fault::HandlerGone { executed: Execution::NotExecuted };
        let Some(call) = engine.calls.find(key) else { return Err(Refusal::Fault(gone)) };
        if !call.bridgeable(types, item) {
            let why = "the server that shared the caller's schema is gone".into();
            return Err(Refusal::Fault(Fault::SchemaMismatch { why }));
        }
        // An older engine may have handed it over without its route.
        let served_as =
            call.served_as.or_else(|| engine.registry.route_of(call.method, session, types.number));
        let Some(route) = served_as else { return Err(Refusal::Fault(gone)) };
        let id = call.delivered_id(engine.shards.own(), key);
        if matches!(item, Item::Open { .. }) && call.handed_over {
            engine.drop_item(item);
            let why = "the daemon was about to deliver it a second time, and has not; this is a fault of the daemon";
            engine.invariants.note("a handler sees a call once");
            engine.end(turn, key, &Status::new(Code::Internal, why).with_execution(Execution::Unknown));
            return Ok(());
        }
        if matches!(item, Item::Headers { .. } | Item::Finish { .. }) {
            return Err(Refusal::Fault(wrong_way()));
        }
        let PlacedItem { payload, metadata } =
            engine.place_item(turn, key, session, Direction::Request, types, item)?;
        let completion = match (&*item, payload) {
            (Item::Open { end, .. }, payload) => {
                engine.delivered_call(turn.now, key, route, payload, metadata, *end)
            }
            (Item::Message { end, .. }, Some(payload)) => {
                Completion::Message { call: id, payload, end: *end }
            }
            _ => Completion::HalfClose { call: id },
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
        let Engine { calls, shards, peers, grpc, registry, ended, sessions, .. } = engine;
        if let Some(call) = calls.find(key).filter(|call| call.handed_over) {
            if let Some(awaited) = awaited_handler((peers, grpc, registry), call, self.session, code) {
                ended.insert(key, awaited);
            }
            let call = call.delivered_id(shards.own(), key);
            sessions.complete(self.session, Completion::Cancelled { call, code });
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
        let PlacedItem { payload, metadata } =
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

fn wrong_way() -> Fault {
    Fault::HandlerProtocol { why: "an item of the other direction" }
}
