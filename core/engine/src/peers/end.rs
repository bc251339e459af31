//! Handing items to a peer: as frames of a connection.

use super::frames::{BodySent, Outbound, Unsent};
use crate::call::{Body, Call, ClientEnd, Direction, Item};
use crate::convert_error::untyped;
use crate::ends::{ClientSide, EndOfCall, HandedItem, Opens, PeerStream, Refusal, ServerSide};
use crate::lent_call::LentCall;
use crate::limits::METHODS_LEARNED;
use crate::owners::Owners;
use crate::peer::Announced;
use crate::registry::MethodKey;
use crate::turn::Turn;
use crate::unproven::Whose;
use crate::vouching::Maker;
use crate::{CallKey, PeerKey};
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Fault, Instant, VouchedCaller};
use trunkline_native::{CallerNumber, Connection, Failure, MethodIndex, NewCall, Outcome, Payload, Refused};

impl Opens for PeerKey {
    // LIFE: 10 | framed and queued at the connection, linear or protobuf, copied or lent | lane, window, stream (d3)
    // |
    /// Opens a call at a peer.
    fn open(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let Item::Open { metadata, end, .. } = &*opening else {
            return Err(Refusal::Fault(Fault::HandlerProtocol { why: "a call must start with its opening" }));
        };
        let direction = Direction::Request;
        let opened = announced(owners, turn.now, call, *self).and_then(|(announced, deadline)| {
            let caller = caller_number(owners, call, *self);
            let (tag, method) = (call.key.to_bits(), announced.index);
            let new = NewCall { tag, method, caller, deadline, stamps: true, metadata, end: *end };
            let command = |connection: &mut Connection, now, message: Option<Payload<'_>>| {
                connection.open_call(now, &new, message)
            };
            send(owners, turn, call.named(), direction, *self, announced.agreed, opening.body(), command)
        });
        let stream = opened.map_err(|unsent| refusal_of(owners, unsent, call.call, *self, direction))?;
        let number = owners.peers.find(*self).map(|peer| peer.telemetry);
        call.call.opened_at(*self, stream, number, turn.now);
        Ok(())
    }
}

impl EndOfCall for PeerStream {
    // LIFE: 18 | response framed with the server's stamps and queued, then written as at 11 | trailer; when it is
    // written (k14) | 8 response processing + stack, B's part
    /// Sends a later item of a call along the stream it has at a peer.
    fn deliver(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        direction: Direction,
        item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        let &Self { peer, stream } = self;
        if item.is_packed() {
            let mut plain = owners.grpc.unpacked(direction, item).map_err(Refusal::Fault)?;
            return self.deliver(owners, turn, call, direction, &mut plain);
        }
        let (key, call) = call.named();
        let agreed = owners.peers.agreed(call, direction, peer, stream);
        let trailer = matches!(item, Item::Finish { .. }).then(|| call.trailer(turn.now));
        let command = |connection: &mut Connection, now, message: Option<Payload<'_>>| match &*item {
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
        };
        match send(owners, turn, (key, call), direction, peer, agreed, item.body(), command) {
            Ok(()) => match item {
                Item::Finish { code, .. } => Ok(HandedItem::Served(*code)),
                _ => Ok(HandedItem::Taken),
            },
            // Its answer is here, or on its way in: what of the request comes after it is nobody's business.
            Err(Unsent::Refused(Refused::NoStream | Refused::Answered))
                if direction == Direction::Request =>
            {
                owners.drop_unwanted((key, call), direction, item);
                Ok(HandedItem::Taken)
            }
            Err(unsent) => Err(refusal_of(owners, unsent, call, peer, direction)),
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
    fn finish(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        _call: &mut LentCall<'_>,
        finish: &mut Item<'_>,
    ) -> HandedItem {
        let &Self { peer, stream } = self;
        if let Item::Finish { code, execution, metadata, .. } = &finish
            && let Some(found) = owners.peers.find_mut(peer)
        {
            let failure = Failure { code: *code, execution: *execution, metadata, trailer: None };
            let _ = found.connection.abort(turn.now, stream, &failure);
            owners.peers.transmit(peer);
            return HandedItem::Served(*code);
        }
        HandedItem::Over
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
#[expect(clippy::too_many_arguments, reason = "what a frame is of")]
fn send<T>(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    (key, call): (CallKey, &mut Call),
    direction: Direction,
    peer: PeerKey,
    agreed: bool,
    body: Option<&Body<'_>>,
    command: impl FnOnce(&mut Connection, Instant, Option<Payload<'_>>) -> Result<T, Refused>,
) -> Result<T, Unsent> {
    let Owners { peers, scratch, limits, .. } = owners;
    let Some(body) = body else {
        let found = peers.find_mut(peer).ok_or(Unsent::Gone)?;
        let done = command(&mut found.connection, turn.now, None).map_err(Unsent::Refused)?;
        peers.transmit(peer);
        return Ok(done);
    };
    let inline_max = limits.inline_body_bytes;
    let out = Outbound { key, call: &*call, direction, agreed, inline_max, body };
    let sent = peers.send(peer, turn.now, turn.heaps, scratch, &out, command);
    match &sent {
        Ok((_, sent)) => {
            call.half(direction).count(body.len());
            match sent {
                BodySent::Lent => note_lent(owners, body),
                BodySent::Copied => note_copied(owners, (key, call), direction, body),
            }
        }
        Err(Unsent::Refused(_)) => owners.peers.transmit(peer),
        Err(_) => {}
    }
    let (done, _) = sent?;
    owners.peers.transmit(peer);
    Ok(done)
}

/// The connection reads it from its session's heap.
fn note_lent(owners: &mut Owners, body: &Body<'_>) {
    if let Body::Lent { session, .. } = body
        && let Some(session) = owners.sessions.find_mut(*session)
    {
        session.lent += 1;
    }
}

/// Where it was is free again, and its sender may send as much more.
fn note_copied(owners: &mut Owners, call: (CallKey, &mut Call), direction: Direction, body: &Body<'_>) {
    if let Some((session, payload)) = body.lent() {
        owners.sessions.give_back(session, payload.span);
        owners.credit_sender(call, direction, payload.window_bytes());
    } else if let Body::Wire { charged, .. } = body {
        owners.credit_sender(call, direction, *charged);
    } else if let Body::Crossed(crossed) = body {
        owners.credit_sender(call, direction, crossed.charged);
        owners.shards.used(crossed);
    }
}

/// The number of the call's method on a connection, announced now if it is new there; and the call's deadline.
fn announced(
    owners: &mut Owners,
    now: Instant,
    lent: &LentCall<'_>,
    peer: PeerKey,
) -> Result<(Announced, Deadline), Unsent> {
    let call = &*lent.call;
    let types = call.types_sent(Direction::Request).ok_or_else(|| Unsent::Fault(untyped()))?;
    let method = (call.method, [types.input.fingerprint(), types.output.fingerprint()]);
    if call.path.is_some() {
        // Its method stands for others, too, and has no number that would mean this one.
        let limit = owners.limits.methods_learned_per_service as u64;
        return Err(Unsent::Fault(Fault::Limit { name: METHODS_LEARNED, limit }));
    }
    if let Some(known) = owners.peers.announced(peer, method)? {
        return Ok((known, call.deadline));
    }
    let index = announce_new(owners, now, lent, peer, method, &types.path)?;
    Ok((Announced { index, agreed: false }, call.deadline))
}

/// Announces a method that is new on a connection.
#[cold]
fn announce_new(
    owners: &mut Owners,
    now: Instant,
    lent: &LentCall<'_>,
    peer: PeerKey,
    method: (MethodKey, [u64; 2]),
    path: &str,
) -> Result<MethodIndex, Unsent> {
    if owners.peers.wants_renewal(now, peer) {
        owners.reach().redial(now, peer);
        owners.peers.renewed(now, peer);
    }
    let source = owners.sources().of_maker(lent.made_for());
    owners.peers.announce(peer, Whose { client: (&*source).into(), service: Box::default() }, method, path)
}

/// The number of whoever makes a call, named now if that is new on this connection. Only the operator's own hosts are
/// told.
fn caller_number(owners: &mut Owners, lent: &LentCall<'_>, peer: PeerKey) -> Option<CallerNumber> {
    let Owners { peers, sessions, grpc, .. } = owners;
    let peer = peers.find_mut(peer).filter(|peer| peer.is_host && peer.connection.names_callers())?;
    match &lent.made_for()?.client {
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
fn refusal_of(owners: &Owners, unsent: Unsent, call: &Call, peer: PeerKey, direction: Direction) -> Refusal {
    owners.peers.refusal(unsent, peer, direction, || owners.connection_gone(call))
}
