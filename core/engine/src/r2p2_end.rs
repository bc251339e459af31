//! Handing items over by R2P2: as one request, or as one reply.

use crate::call::{Body, Call, Direction, Item, ServerEnd};
use crate::convert::{WireBody, for_wire};
use crate::convert_error::{conversion_fault, untyped};
use crate::ends::{
    Blocker, ClientSide, DatagramCall, DatagramRequest, DatagramTarget, EndOfCall, HandedItem, Opens,
    Refusal, ServerSide,
};
use crate::lent_call::LentCall;
use crate::owners::Owners;
use crate::r2p2_made::MadeCall;
use crate::r2p2_messages::streams_from_here;
use crate::source::CallSources;
use crate::turn::Turn;
use crate::{CallKey, RemoteKey};
use bytes::Bytes;
use std::borrow::Cow;
use trunkline_call::{Code, Encoding, Execution, Fault, Instant};
use trunkline_grpc::Outcome;
use trunkline_r2p2::{ReplyEnvelope, RequestEnvelope, RequestKey};

impl Opens for DatagramTarget {
    // LIFE: 9 R2P2
    /// Sends a call's request: at once, or when the endpoint has answered a greeting.
    fn open(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let &Self { remote } = self;
        let Owners { remotes, r2p2, limits, sessions, peers, grpc, .. } = &mut *owners;
        if streams_from_here(call.call) {
            return Err(Refusal::Fault(Fault::Streams { endpoint: remotes.label(remote) }));
        }
        let Some(found) = remotes.find(remote) else {
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        let Some(known) = &found.r2p2 else {
            return Err(Refusal::in_line(remote, owners.reach().unreachable(call, remote)));
        };
        let mode = r2p2.mode();
        if !known.is_ready(mode, r2p2.client(limits)) {
            if !known.is_greeting() {
                if found.not_before > turn.now {
                    return Err(Refusal::in_line(remote, owners.reach().unreachable(call, remote)));
                }
                r2p2.greet(turn.now, limits, remotes, remote, 0);
            }
            return Err(Refusal::in_line(remote, owners.reach().may_wait(call, remote)));
        }
        let Item::Open { metadata, body: Some(body), end: true } = &*opening else {
            let why = "R2P2 carries one request, and the method was opened without it";
            return Err(Refusal::Fault(Fault::Cardinality { why, executed: Execution::NotExecuted }));
        };
        let source = || CallSources { sessions, peers, grpc }.of_maker(call.made_for());
        if !r2p2.made.has_room(known, limits.connection_queue_bytes, source) {
            return Err(Refusal::Blocked(Blocker::R2p2(remote)));
        }
        r2p2.made.has_ids(source).map_err(Refusal::Fault)?;
        request(owners, turn, (call, remote), metadata, body).map_err(Refusal::Fault)?;
        owners.drop_item(opening);
        Ok(())
    }
}

impl EndOfCall for DatagramCall {
    /// There is no later item of a call: a request of one message has none.
    fn deliver(
        &self,
        _owners: &mut Owners,
        _turn: &mut Turn<'_>,
        _call: &mut LentCall<'_>,
        _direction: Direction,
        _item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        let why = "R2P2 carries one request, and there are more";
        Err(Refusal::Fault(Fault::Cardinality { why, executed: Execution::Unknown }))
    }

    fn credit(&self, _owners: &mut Owners, _call: (CallKey, &Call), _bytes: u32, _over: bool) {}

    fn release(&self, owners: &mut Owners, (key, _): (CallKey, &mut Call)) {
        let Owners { r2p2, remotes, .. } = owners;
        r2p2.cancel(remotes, key, self.name);
    }
}

impl ServerSide for DatagramCall {
    /// Its request is cancelled when the call leaves it.
    fn cancel(&self, _owners: &mut Owners, _now: Instant, _call: (CallKey, &Call), _code: Code) {}
}

impl EndOfCall for DatagramRequest {
    /// Response items, to the peer that made the call: all of them leave with the last.
    fn deliver(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        _direction: Direction,
        item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        let request = self.request;
        match &*item {
            Item::Headers { metadata } => {
                owners.r2p2.keep_headers(request, metadata);
                Ok(HandedItem::Taken)
            }
            Item::Finish { code: Code::Ok, body: None, .. } => {
                let why = "the method returns one message and the handler returned none";
                Err(Refusal::Fault(Fault::HandlerProtocol { why }))
            }
            Item::Finish { code, execution, body, metadata } => {
                let outcome =
                    Outcome { code: *code, execution: *execution, metadata: Cow::Borrowed(metadata) };
                answer(owners, turn, (call.call, request), &outcome, body.as_ref())
                    .map_err(Refusal::Fault)?;
                let code = *code;
                owners.drop_item(item);
                Ok(HandedItem::Served(code))
            }
            Item::Open { .. } | Item::Message { .. } | Item::HalfClose => {
                Err(Refusal::Fault(Fault::HandlerProtocol { why: "R2P2 carries one reply" }))
            }
        }
    }

    fn credit(&self, _owners: &mut Owners, _call: (CallKey, &Call), _bytes: u32, _over: bool) {}

    /// The request of a call of a peer has been answered, or nobody waits for it any more.
    fn release(&self, owners: &mut Owners, _call: (CallKey, &mut Call)) {
        owners.r2p2.leave_request(self.request);
    }
}

impl ClientSide for DatagramRequest {
    // LIFE: 18 R2P2
    /// Ends a call a peer made with a status made here.
    fn finish(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        finish: &mut Item<'_>,
    ) -> HandedItem {
        if let Item::Finish { code, execution, metadata, .. } = &*finish {
            let outcome = Outcome { code: *code, execution: *execution, metadata: Cow::Borrowed(metadata) };
            // Without a message there is nothing that could not be sent.
            if answer(owners, turn, (call.call, self.request), &outcome, None).is_ok() {
                return HandedItem::Served(*code);
            }
        }
        HandedItem::Over
    }
}

// LIFE: 10 R2P2
/// Sends a call's request, in the form the endpoint reads.
fn request(
    owners: &mut Owners,
    turn: &Turn<'_>,
    (lent, remote): (&mut LentCall<'_>, RemoteKey),
    metadata: &[u8],
    body: &Body<'_>,
) -> Result<(), Fault> {
    let Owners { r2p2, remotes, scratch, registry, limits, sessions, peers, grpc, .. } = owners;
    let (key, call) = lent.named();
    let types = call.types_sent(Direction::Request).ok_or_else(untyped)?;
    let fingerprints = [types.input.fingerprint(), types.output.fingerprint()];
    let known = remotes.find(remote).and_then(|remote| remote.r2p2.as_ref());
    let reads = known.filter(|known| known.reads(turn.now, call.method, fingerprints[0]));
    let extended = reads.is_some_and(|known| r2p2.client(limits).speaks_extended(known.target));
    let agreed = extended && fingerprints[0] != 0;
    let converted = for_wire(turn.heaps, scratch, &types.input, agreed, u32::MAX, body);
    let (wire, encoding) = converted.map_err(|error| conversion_fault(error, Direction::Request))?;
    let WireBody::Inline(message) = wire else {
        return Err(Fault::HandlerProtocol { why: "a message too long to copy" });
    };
    let is_linear = encoding == Encoding::Linear;
    let path = call.path.as_deref().unwrap_or(registry.path(call.method));
    let envelope = RequestEnvelope { path, is_linear, fingerprints, metadata, message }.encode();
    let limit = u64::from(u16::MAX);
    let envelope =
        envelope.ok_or(Fault::Limit { name: "bytes of metadata of an R2P2 request (fixed)", limit })?;
    let target = remotes.r2p2_target(remote).ok_or_else(|| Fault::NoRoute { what: "endpoint".into() })?;
    let envelope = Bytes::from(envelope);
    let name = r2p2.send(turn.now, limits, (key, call), target, envelope.clone())?;
    (call.server, call.handed_over) = (ServerEnd::R2p2 { name, remote }, true);
    call.request.count(body.len());
    (call.client_stamps.d3, call.client_stamps.d4) = (turn.now, turn.now);
    let bytes = envelope.len();
    let made = MadeCall { bytes, remote, linear: if is_linear { envelope } else { Bytes::new() } };
    let source = || CallSources { sessions, peers, grpc }.of_maker(lent.made_for());
    r2p2.made.note((key, remotes.r2p2_mut(remote)), made, limits.connection_queue_bytes, source);
    Ok(())
}

/// The end of a call of a peer: its reply.
fn answer(
    owners: &mut Owners,
    turn: &Turn<'_>,
    (call, request): (&mut Call, RequestKey),
    outcome: &Outcome<'_>,
    body: Option<&Body<'_>>,
) -> Result<(), Fault> {
    let Owners { r2p2, scratch, .. } = owners;
    call.server_stamps.k14 = turn.now;
    let types = call.types_sent(Direction::Response);
    let output = types.map_or(0, |types| types.output.fingerprint());
    let agreed = output != 0 && call.offered.is_some_and(|[_, response]| response == output);
    let message = match (body, types) {
        (Some(body), Some(types)) => {
            let wire = for_wire(turn.heaps, scratch, &types.output, agreed, u32::MAX, body);
            Some(wire.map_err(|error| conversion_fault(error, Direction::Response))?)
        }
        _ => None,
    };
    let (message, is_linear) = match message {
        Some((WireBody::Inline(bytes), encoding)) => (Some(bytes), encoding == Encoding::Linear),
        _ => (None, false),
    };
    let reply = ReplyEnvelope {
        is_linear,
        fingerprint: types.map_or(0, |types| types.input.fingerprint()),
        trailers: &outcome.metadata,
        message,
        ..ReplyEnvelope::of(outcome.code, outcome.execution)
    };
    let measured = call.server_measured.then_some(&call.server_stamps);
    r2p2.finish(turn.now, request, reply, measured)?;
    if let Some(message) = message {
        call.response.count(message.len() as u32);
    }
    Ok(())
}
