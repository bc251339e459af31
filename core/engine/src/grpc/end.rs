//! Handing items to a gRPC peer: as heads, messages and trailers of a stream.

use super::outgoing::{FullQueue, StreamOpening};
use super::{HeldAccounts, WebStream};
use crate::call::{Call, Direction, Item, ServerEnd};
use crate::convert_error::untyped;
use crate::ends::{Blocker, ClientSide, EndOfCall, HandedItem, Opens, Refusal, ServerSide};
use crate::lent_call::LentCall;
use crate::owners::Owners;
use crate::turn::Turn;
use crate::{CallKey, GrpcKey};
use std::borrow::Cow;
use trunkline_call::{Code, Deadline, Fault, Instant};
use trunkline_grpc::{Outcome, request};

impl Opens for GrpcKey {
    /// Opens a call at a gRPC server.
    fn open(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let peer = *self;
        let Item::Open { metadata, body, end } = &*opening else {
            return Err(Refusal::Fault(Fault::HandlerProtocol { why: "a call must start with its opening" }));
        };
        let (key, call) = call.named();
        let Owners { grpc, held, scratch, registry, clusters, remotes, .. } = owners;
        grpc.room(held, peer, None).map_err(|full| blocked(full, peer))?;
        let encoding = grpc.request_encoding(peer, call, metadata);
        let framed = body
            .as_ref()
            .map(|body| grpc.frame(&*turn.heaps, scratch, call, Direction::Request, encoding, body));
        let framed = framed.transpose().map_err(Refusal::Fault)?;
        let own = call.path.as_deref().map(request::path);
        let path = own.as_ref().map_or_else(|| registry.http_path(call.method), Option::as_ref);
        let Some(path) = path else {
            let path = call.path.as_deref().unwrap_or(registry.path(call.method));
            let why = format!("{path:?} is no path that HTTP carries");
            return Err(Refusal::Fault(Fault::MalformedRequest { why }));
        };
        let types = call.types_sent(Direction::Request).ok_or_else(|| Refusal::Fault(untyped()))?;
        let opened = StreamOpening {
            call: key,
            pattern: types.pattern,
            path,
            authority: call.placed.and_then(|placed| clusters.authority_at(remotes, placed)),
            timeout_ns: deadline_left_ns(call.deadline, turn.now),
            metadata,
            encoding,
            accepts: call.accepts,
            end: *end && framed.is_none(),
        };
        let Some((tag, peer_index)) = grpc.open(peer, opened) else {
            return Err(Refusal::Fault(owners.connection_gone(call)));
        };
        let at = WebStream { peer, tag };
        (call.server, call.handed_over) = (ServerEnd::Grpc { peer, stream: tag }, true);
        call.peer_index = peer_index;
        // It is not at the socket yet, and what another stream had is not this one's.
        (call.client_stamps.d3, call.client_stamps.d4) = (turn.now, Instant::default());
        // An attempt's request is kept with its call.
        if !call.is_made_for_another() {
            grpc.keep(at, metadata);
        }
        if let (Some(framed), Some(body)) = (framed, body) {
            call.request.count(framed.message_bytes);
            grpc.send(at, framed.bytes, body.window_cost(), *end);
            owners.used(body);
        }
        Ok(())
    }
}

impl EndOfCall for WebStream {
    /// Sends a later item of a call along the stream it has at a gRPC peer.
    fn deliver(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        direction: Direction,
        item: &mut Item<'_>,
    ) -> Result<HandedItem, Refusal> {
        let (at, (key, call)) = (*self, call.named());
        let Owners { grpc, held, scratch, gateway, .. } = owners;
        let stream = grpc.stream(at);
        let Some(stream) = stream.filter(|stream| direction == Direction::Response || !stream.incoming.over)
        else {
            owners.drop_unwanted((key, call), direction, item);
            return Ok(HandedItem::Taken);
        };
        let encoding = stream.outgoing.encoding;
        grpc.room(held, at.peer, Some(at.tag)).map_err(|full| blocked(full, at.peer))?;
        let framed = item
            .body()
            .map(|body| grpc.frame(&*turn.heaps, scratch, call, direction, encoding, body))
            .transpose()
            .map_err(Refusal::Fault)?;
        if direction == Direction::Response && framed.is_some() {
            gateway.note_answered(call);
        }
        match &*item {
            Item::Finish { code: Code::Ok, .. } if framed.is_none() && call.lacks_message(direction) => {
                let why = "the method returns one message and the handler returned none";
                return Err(Refusal::Fault(Fault::HandlerProtocol { why }));
            }
            Item::Open { .. } => {
                return Err(Refusal::Fault(Fault::HandlerProtocol { why: "a call opens once" }));
            }
            Item::HalfClose => grpc.half_close(at),
            Item::Headers { metadata } => grpc.answer_head(at, direction, metadata),
            Item::Message { .. } => grpc.answer_head(at, direction, &[]),
            Item::Finish { .. } if framed.is_some() => grpc.answer_head(at, direction, &[]),
            Item::Finish { .. } => {}
        }
        if let (Some(framed), Some(body)) = (framed, item.body()) {
            let end = matches!(item, Item::Message { end: true, .. });
            call.half(direction).count(framed.message_bytes);
            grpc.send(at, framed.bytes, body.window_cost(), end);
            owners.used(body);
        }
        if let Item::Finish { code, execution, metadata, .. } = &*item {
            let outcome = Outcome { code: *code, execution: *execution, metadata: Cow::Borrowed(metadata) };
            owners.grpc.finish_stream(at, &outcome);
            return Ok(served(owners, turn.now, call, at, *code));
        }
        Ok(HandedItem::Taken)
    }

    fn credit(&self, owners: &mut Owners, _call: (CallKey, &Call), bytes: u32, _over: bool) {
        owners.grpc.grant(*self, bytes);
    }

    /// The call of a stream is over. A stream whose bytes have all left is gone with it.
    fn release(&self, owners: &mut Owners, _call: (CallKey, &mut Call)) {
        let Owners { grpc, held, invariants, .. } = owners;
        grpc.end_call(&mut HeldAccounts { held, invariants }, *self);
    }
}

impl ClientSide for WebStream {
    fn finish(
        &self,
        owners: &mut Owners,
        turn: &mut Turn<'_>,
        call: &mut LentCall<'_>,
        finish: &mut Item<'_>,
    ) -> HandedItem {
        let Item::Finish { code, execution, metadata, .. } = &finish else { return HandedItem::Taken };
        let outcome = Outcome { code: *code, execution: *execution, metadata: Cow::Borrowed(metadata) };
        let Owners { grpc, held, invariants, .. } = owners;
        match code {
            // What waits for the client to read comes too late.
            Code::DeadlineExceeded => grpc.cut_off(&mut HeldAccounts { held, invariants }, *self, &outcome),
            _ => grpc.finish_stream(*self, &outcome),
        }
        served(owners, turn.now, call.call, *self, *code)
    }
}

impl ServerSide for WebStream {
    /// Its stream is reset when the call leaves it.
    fn cancel(&self, _owners: &mut Owners, _now: Instant, _call: (CallKey, &Call), _code: Code) {}
}

/// A call of a client is served; what of its answer has not left leaves before its deadline, or not at all.
fn served(owners: &mut Owners, now: Instant, call: &mut Call, at: WebStream, code: Code) -> HandedItem {
    let Owners { grpc, timers, .. } = owners;
    call.leaves_by_grpc(now);
    grpc.want_until(timers, at, call.deadline);
    HandedItem::Served(code)
}

fn blocked(full: FullQueue, peer: GrpcKey) -> Refusal {
    Refusal::Blocked(match full {
        FullQueue::Stream => Blocker::Stream,
        FullQueue::Connection => Blocker::Grpc(peer),
    })
}

/// What is left of a deadline; at least 1 ns, for it has not passed here yet.
fn deadline_left_ns(deadline: Deadline, now: Instant) -> Option<u64> {
    deadline.instant().map(|at| at.since_ns(now).max(1))
}
