//! A session as the end of a call: items go into its receive heap and its completion ring.

use super::placing::{PlacedItem, SessionPlacing, Undelivered};
use crate::call::{Body, Call, Direction, Item};
use crate::ends::{
    ClientSide, EndOfCall, HandedItem, Refusal, ServerSide, SessionHandler, SessionMaker, wrong_way,
};
use crate::lent_call::LentCall;
use crate::owners::Owners;
use crate::records::awaited_handler;
use crate::session::credit;
use crate::turn::Turn;
use crate::{CallKey, SessionKey};
use trunkline_call::entry::{Completion, Finish};
use trunkline_call::{Code, Execution, Instant, RouteIndex, Status};

impl SessionHandler<'_> {
    // LIFE: 14
    /// The whole request of a call of another shard that was given this session just now, by this route of it: its
    /// metadata, and its message, which is used then.
    #[inline]
    pub(crate) fn deliver_whole(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        route: RouteIndex,
        (metadata, message): (&[u8], &Body<'_>),
    ) -> Result<(), Refusal> {
        let &Self { session, types } = self;
        placing(owners).whole_request(
            turn.now,
            turn.heaps,
            call,
            (session, route),
            types,
            (metadata, message),
        )
    }
}

impl EndOfCall for SessionHandler<'_> {
    // LIFE: 14 | copied or decoded into the receive heap, checked, published | the serving session (d9) | 2 request
    // processing + stack, B's part
    /// Request items, to the session that serves the call.
    fn deliver(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        _direction: Direction,
        item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        let &Self { session, types } = self;
        match placing(owners).request(turn.now, turn.heaps, call, session, types, item) {
            Ok(()) => Ok(HandedItem::Taken),
            Err(Undelivered::Refused(refusal)) => Err(refusal),
            Err(Undelivered::Twice) => {
                owners.drop_item(item);
                let why = "the daemon was about to deliver it a second time, and has not; this is a fault of the \
                           daemon";
                owners.invariants.note("a handler sees a call once");
                let status = Status::new(Code::Internal, why).with_execution(Execution::Unknown);
                Ok(HandedItem::Ends(Box::new(status)))
            }
        }
    }

    fn credit(&self, owners: &mut Owners, (key, call): (CallKey, &Call), bytes: u32, over: bool) {
        if !over {
            let id = call.delivered_id(owners.shards.own(), key);
            owners.sessions.complete(self.session, credit(id, bytes));
        }
    }

    /// What it has not released of a stream is no longer the call's, which may wait for its caller to read its end.
    #[inline(always)]
    fn release(&self, owners: &mut Owners, (key, call): (CallKey, &mut Call)) {
        let Owners { sessions, invariants, .. } = owners;
        let (known_as, share) = (call.known_as.take(), call.request.share.end());
        if let Some((session, bytes)) = share {
            sessions.streams_hold_less(invariants, session, bytes);
        }
        if sessions.find_mut(self.session).is_some_and(|session| session.undeliver(key, known_as)) {
            sessions.complete(self.session, Completion::Drained);
        }
    }
}

impl ServerSide for SessionHandler<'_> {
    fn cancel(&self, owners: &mut Owners, _now: Instant, (key, call): (CallKey, &Call), code: Code) {
        let Owners { shards, peers, grpc, registry, ended, sessions, .. } = owners;
        if call.handed_over {
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
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        _direction: Direction,
        item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        let &Self { session, id, types } = self;
        if matches!(item, Item::Open { .. } | Item::HalfClose) {
            return Err(Refusal::Fault(wrong_way()));
        }
        let PlacedItem { payload, metadata } =
            placing(owners).response(turn.heaps, call, session, types, item)?;
        match (&*item, payload) {
            (Item::Message { end, .. }, Some(payload)) => {
                owners.sessions.complete(session, Completion::Message { call: id, payload, end: *end })
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
                deliver_finish(owners, turn.now, call.named(), session, finish)
            }
            _ => owners.sessions.complete(session, Completion::Headers { call: id, metadata }),
        }
        Ok(HandedItem::Taken)
    }

    fn credit(&self, owners: &mut Owners, _call: (CallKey, &Call), bytes: u32, over: bool) {
        if !over {
            owners.sessions.complete(self.session, credit(self.id, bytes));
        }
    }

    #[inline(always)]
    fn release(&self, owners: &mut Owners, _call: (CallKey, &mut Call)) {
        owners.sessions.release_call(&mut owners.held, self.session, self.id);
    }
}

impl ClientSide for SessionMaker<'_> {
    /// If there is no room for its words, the code alone must do: an end is never held back.
    fn finish(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        finish: &mut Item<'_>,
    ) -> HandedItem {
        let direction = Direction::Response;
        if self.deliver(owners, turn, call, direction, &mut finish.without_body()).is_err() {
            let _ = self.deliver(owners, turn, call, direction, &mut finish.without_words());
        }
        HandedItem::Taken
    }
}

// LIFE: 20
/// The last completion of a call its application made. The call now waits for the Release that says when it was taken.
fn deliver_finish(
    owners: &mut Owners,
    now: Instant,
    (key, call): (CallKey, &mut Call),
    session: SessionKey,
    finish: Finish,
) {
    if call.outcome.is_some() {
        return owners.invariants.note("a call has one outcome");
    }
    call.ends_for_application(now, finish.code);
    if call.is_at_worker() {
        owners.places().leave(key, call);
    }
    if call.policies.is_some() {
        owners.books().end_policies(now, key, call, finish.code);
    }
    call.take_server().release(owners, (key, call));
    owners.sessions.complete(session, Completion::Finish(finish));
}

#[inline(always)]
fn placing(owners: &mut Owners) -> SessionPlacing<'_> {
    let Owners { sessions, scratch, shards, gateway, registry, peers, grpc, .. } = owners;
    SessionPlacing { sessions, scratch, shards, gateway, registry, peers, grpc }
}
