//! Handing items to a peer: as frames of a connection.

use super::frames::{BodySent, Outbound, Unsent};
use crate::call::{Body, Call, ClientEnd, Direction, Item};
use crate::convert_error::untyped;
use crate::ends::{ClientSide, EndOfCall, Opens, PeerStream, Refusal, ServerSide};
use crate::engine::{Engine, Turn};
use crate::item::ItemWay;
use crate::limits::METHODS_LEARNED;
use crate::owners::Owners;
use crate::peer::Announced;
use crate::registry::MethodKey;
use crate::source::made_for;
use crate::unproven::Whose;
use crate::vouching::Maker;
use crate::{CallKey, PeerKey};
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Fault, Instant, SERVER_TRAILER_BYTES, VouchedCaller};
use trunkline_native::{CallerNumber, Connection, Failure, MethodIndex, NewCall, Outcome, Payload, Refused};

impl Opens for PeerKey {
    // LIFE: 10 | framed and queued at the connection, linear or protobuf, copied or lent | lane, window, stream (d3)
    // |
    /// Opens a call at a peer.
    fn open(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        key: CallKey,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let Item::Open { metadata, end, .. } = &*opening else {
            return Err(Refusal::Fault(Fault::HandlerProtocol { why: "a call must start with its opening" }));
        };
        let opened = announced(engine, turn.now, key, *self).and_then(|(announced, deadline)| {
            let caller = caller_number(engine, key, *self);
            let (tag, method) = (key.to_bits(), announced.index);
            let call = NewCall { tag, method, caller, deadline, stamps: true, metadata, end: *end };
            let way = ItemWay { key, direction: Direction::Request };
            let command = |connection: &mut Connection, now, message: Option<Payload<'_>>| {
                connection.open_call(now, &call, message)
            };
            send(engine, turn, way, *self, announced.agreed, opening.body(), command)
        });
        let stream = opened.map_err(|unsent| refusal_of(engine, unsent, key, *self, Direction::Request))?;
        let number = engine.owners.peers.find(*self).map(|peer| peer.telemetry);
        if let Some(call) = engine.calls.find_mut(key) {
            call.opened_at(*self, stream, number, turn.now);
        }
        Ok(())
    }
}

impl EndOfCall for PeerStream {
    // LIFE: 18 | response framed with the server's stamps and queued, then written as at 11 | trailer; when it is
    // written (k14) | 8 response processing + stack, B's part
    /// Sends a later item of a call along the stream it has at a peer.
    fn deliver(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let (ItemWay { key, direction }, &Self { peer, stream }) = (way, self);
        if item.is_packed() {
            let mut plain = engine.owners.grpc.unpacked(direction, item).map_err(Refusal::Fault)?;
            return self.deliver(engine, turn, way, &mut plain);
        }
        let mut call = engine.calls.find_mut(key);
        let agreed =
            call.as_deref().is_some_and(|call| engine.owners.peers.agreed(call, direction, peer, stream));
        let trailer = matches!(item, Item::Finish { .. })
            .then(|| call.as_mut().map_or([0; SERVER_TRAILER_BYTES], |call| call.trailer(turn.now)));
        let sent =
            send(engine, turn, way, peer, agreed, item.body(), |connection, now, message| match &*item {
                Item::Message { end, .. } => match message {
                    Some(message) => connection.send_message(now, stream, message, *end),
                    None => Ok(()),
                },
                Item::HalfClose => connection.half_close(now, stream),
                Item::Headers { metadata } => connection.send_headers(now, stream, metadata),
                Item::Finish { code: Code::Ok, metadata, .. } => {
                    let outcome = Outcome { trailer: trailer.as_ref(), metadata };
                    connection.send_result(now, stream, &outcome, message)
                }
                Item::Finish { code, execution, metadata, .. } => {
                    let (code, execution) = (*code, *execution);
                    let failure = Failure { code, execution, metadata, trailer: trailer.as_ref() };
                    connection.send_error(now, stream, &failure)
                }
                Item::Open { .. } => Err(Refused::OutOfPlace),
            });
        match sent {
            Ok(()) => {
                if let Item::Finish { code, .. } = item {
                    engine.conclude_served(turn.now, key, *code);
                }
                Ok(())
            }
            // Its answer is here, or on its way in: what of the request comes after it is nobody's business.
            Err(Unsent::Refused(Refused::NoStream | Refused::Answered))
                if direction == Direction::Request =>
            {
                engine.drop_unwanted(key, direction, item);
                Ok(())
            }
            Err(unsent) => Err(refusal_of(engine, unsent, key, peer, direction)),
        }
    }

    fn credit(&self, owners: &mut Owners, _call: (CallKey, &Call), bytes: u32, _over: bool) {
        if let Some(found) = owners.peers.find_mut(self.peer) {
            found.connection.grant(self.stream, bytes);
        }
        owners.peers.transmit(self.peer);
    }

    /// What still arrives on the stream is nobody's.
    #[inline]
    fn release(&self, owners: &mut Owners, _call: (CallKey, &mut Call)) {
        let Owners { peers, sessions, invariants, .. } = owners;
        if let Some(assembly) = peers.take_assembly(self.peer, self.stream) {
            sessions.give_up(invariants, &assembly);
        }
    }
}

impl ClientSide for PeerStream {
    /// What waits on its stream is given up.
    fn finish(&self, engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, finish: &mut Item<'_>) {
        let &Self { peer, stream } = self;
        if let Item::Finish { code, execution, metadata, .. } = &finish
            && let Some(found) = engine.owners.peers.find_mut(peer)
        {
            let failure = Failure { code: *code, execution: *execution, metadata, trailer: None };
            let _ = found.connection.abort(turn.now, stream, &failure);
            engine.owners.peers.transmit(peer);
            return engine.conclude_served(turn.now, key, *code);
        }
        engine.forget(key);
    }
}

impl ServerSide for PeerStream {
    fn cancel(&self, owners: &mut Owners, now: Instant, _call: (CallKey, &Call), code: Code) {
        let &Self { peer, stream } = self;
        if let Some(found) = owners.peers.find_mut(peer) {
            let _ = found.connection.cancel(now, stream, code);
        }
        owners.peers.transmit(peer);
    }
}

/// Has a connection queue a frame, and does with its body, and the call, what follows from that.
fn send<T>(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    ItemWay { key, direction }: ItemWay,
    peer: PeerKey,
    agreed: bool,
    body: Option<&Body<'_>>,
    command: impl FnOnce(&mut Connection, Instant, Option<Payload<'_>>) -> Result<T, Refused>,
) -> Result<T, Unsent> {
    let Engine { calls, owners: Owners { peers, scratch, limits, .. } } = engine;
    let Some(body) = body else {
        let found = peers.find_mut(peer).ok_or(Unsent::Gone)?;
        let done = command(&mut found.connection, turn.now, None).map_err(Unsent::Refused)?;
        peers.transmit(peer);
        return Ok(done);
    };
    let call = calls.find_mut(key).ok_or(Unsent::Fault(Fault::Ended))?;
    let inline_max = limits.inline_body_bytes;
    let out = Outbound { key, call: &*call, direction, agreed, inline_max, body };
    let sent = peers.send(peer, turn.now, turn.heaps, scratch, &out, command);
    if sent.is_ok() {
        call.half(direction).count(body.len());
    }
    match &sent {
        Ok((_, BodySent::Lent)) => note_lent(engine, body),
        Ok((_, BodySent::Copied)) => note_copied(engine, key, direction, body),
        Err(Unsent::Refused(_)) => engine.owners.peers.transmit(peer),
        Err(_) => {}
    }
    let (done, _) = sent?;
    engine.owners.peers.transmit(peer);
    Ok(done)
}

/// The connection reads it from its session's heap.
fn note_lent(engine: &mut Engine, body: &Body<'_>) {
    if let Body::Lent { session, .. } = body
        && let Some(session) = engine.owners.sessions.find_mut(*session)
    {
        session.lent += 1;
    }
}

/// Where it was is free again, and its sender may send as much more.
fn note_copied(engine: &mut Engine, key: CallKey, direction: Direction, body: &Body<'_>) {
    if let Some((session, payload)) = body.lent() {
        engine.owners.sessions.give_back(session, payload.span);
        engine.credit_sender(key, direction, payload.window_bytes());
    } else if let Body::Wire { charged, .. } = body {
        engine.credit_sender(key, direction, *charged);
    } else if let Body::Crossed(crossed) = body {
        engine.credit_sender(key, direction, crossed.charged);
        engine.owners.shards.used(crossed);
    }
}

/// The number of the call's method on a connection, announced now if it is new there; and the call's deadline.
fn announced(
    engine: &mut Engine,
    now: Instant,
    key: CallKey,
    peer: PeerKey,
) -> Result<(Announced, Deadline), Unsent> {
    let call = engine.calls.find(key).ok_or(Unsent::Fault(Fault::Ended))?;
    let types = call.types_sent(Direction::Request).ok_or_else(|| Unsent::Fault(untyped()))?;
    let (deadline, path) = (call.deadline, &types.path);
    let method = (call.method, [types.input.fingerprint(), types.output.fingerprint()]);
    if call.path.is_some() {
        // Its method stands for others, too, and has no number that would mean this one.
        let limit = engine.owners.limits.methods_learned_per_service as u64;
        return Err(Unsent::Fault(Fault::Limit { name: METHODS_LEARNED, limit }));
    }
    if let Some(known) = engine.owners.peers.announced(peer, method)? {
        return Ok((known, deadline));
    }
    let path = Arc::clone(path);
    let index = announce_new(engine, now, key, peer, method, &path)?;
    Ok((Announced { index, agreed: false }, deadline))
}

/// Announces a method that is new on a connection.
#[cold]
fn announce_new(
    engine: &mut Engine,
    now: Instant,
    key: CallKey,
    peer: PeerKey,
    method: (MethodKey, [u64; 2]),
    path: &str,
) -> Result<MethodIndex, Unsent> {
    if engine.owners.peers.wants_renewal(now, peer) {
        engine.reach().redial(now, peer);
        engine.owners.peers.renewed(now, peer);
    }
    let whose = Whose { client: (&*engine.source_of(key)).into(), service: Box::default() };
    engine.owners.peers.announce(peer, whose, method, path)
}

/// The number of whoever makes a call, named now if that is new on this connection. Only the operator's own hosts are
/// told.
fn caller_number(engine: &mut Engine, key: CallKey, peer: PeerKey) -> Option<CallerNumber> {
    let Engine { calls, owners: Owners { peers, sessions, grpc, .. } } = engine;
    let peer = peers.find_mut(peer).filter(|peer| peer.is_host && peer.connection.names_callers())?;
    match &made_for(calls, calls.find(key)?)?.client {
        ClientEnd::Session { session, .. } => {
            let maker = sessions.find(*session)?;
            let named = Maker::Session(*session, maker.caller_revision);
            peer.callers_said.number(named, &mut peer.connection, || Some(Arc::clone(&maker.caller)))
        }
        ClientEnd::Grpc { peer: client, .. } => {
            let named = Maker::Grpc(*client);
            peer.callers_said.number(named, &mut peer.connection, || {
                let identity = grpc.find(*client)?.identity.proven().into();
                Some(Arc::new(VouchedCaller { identity, ..VouchedCaller::default() }.within_bounds()))
            })
        }
        // Nobody makes a copy, and what came from elsewhere is not vouched for here.
        ClientEnd::Attempt { .. }
        | ClientEnd::Mirror { .. }
        | ClientEnd::Peer { .. }
        | ClientEnd::R2p2 { .. }
        | ClientEnd::Shard { .. } => None,
    }
}

/// What it means for an item that its frame was not queued.
fn refusal_of(engine: &Engine, unsent: Unsent, key: CallKey, peer: PeerKey, direction: Direction) -> Refusal {
    engine.owners.peers.refusal(unsent, peer, direction, || engine.connection_gone(key))
}
