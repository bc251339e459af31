//! Handing items over by R2P2: as one request, or as one reply.

use crate::call::{Body, Direction, Item, ServerEnd};
use crate::convert::{WireBody, for_wire, reencode};
use crate::convert_error::{conversion_fault, untyped};
use crate::ends::{
    Blocker, ClientSide, DatagramCall, DatagramRequest, DatagramTarget, EndOfCall, ItemWay, Opens, Refusal,
    ServerSide,
};
use crate::engine::{Engine, Turn};
use crate::limits::R2P2_REPLY;
use crate::r2p2::{Made, fault_of};
use crate::r2p2_remote::Ungreeted;
use crate::records::record_served;
use crate::registry::Form;
use crate::remote::Speaks;
use crate::{CallKey, RemoteKey};
use bytes::Bytes;
use core::net::SocketAddrV4;
use serde_bytes::ByteBuf;
use std::borrow::Cow;
use trunkline_call::{Code, Encoding, Execution, Fault, Instant, Status};
use trunkline_grpc::Outcome;
use trunkline_r2p2::{
    CallFailure, NewCall, Reason, Refused, ReplyEnvelope, RequestEnvelope, RequestKey, Timing,
};

impl Opens for DatagramTarget {
    // LIFE: 10 R2P2
    /// Sends a call's request.
    fn open(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        key: CallKey,
        opening: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let remote = self.remote;
        let Item::Open { metadata, body: Some(body), end: true } = &*opening else {
            let why = "R2P2 carries one request, and the method was opened without it";
            return Err(Refusal::Fault(Fault::Cardinality { why, executed: Execution::NotExecuted }));
        };
        if engine.r2p2.made_bytes >= engine.limits.connection_queue_bytes {
            return Err(Refusal::Blocked(Blocker::R2p2));
        }
        let sent =
            engine.request_envelope(turn, key, remote, metadata, body).and_then(|(envelope, is_linear)| {
                engine.request(turn.now, key, remote, envelope.into(), is_linear)
            });
        sent.map_err(Refusal::Fault)?;
        engine.opened_at_r2p2(turn.now, key, body.len());
        engine.drop_item(opening);
        Ok(())
    }
}

impl EndOfCall for DatagramCall {
    /// There is no later item of a call: a request of one message has none.
    fn deliver(
        &self,
        _engine: &mut Engine,
        _turn: &mut Turn<'_>,
        _way: ItemWay,
        _item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let why = "R2P2 carries one request, and there are more";
        Err(Refusal::Fault(Fault::Cardinality { why, executed: Execution::Unknown }))
    }

    fn credit(&self, _engine: &mut Engine, _key: CallKey, _bytes: u32, _over: bool) {}

    fn release(&self, engine: &mut Engine, key: CallKey) {
        engine.r2p2.forget_made(key);
        if let Some(client) = engine.r2p2.client_if_any() {
            client.cancel(self.name);
        }
    }
}

impl ServerSide for DatagramCall {
    /// Its request is cancelled when the call leaves it.
    fn cancel(&self, _engine: &mut Engine, _turn: &mut Turn<'_>, _key: CallKey, _code: Code) {}
}

impl EndOfCall for DatagramRequest {
    /// Response items, to the peer that made the call: all of them leave with the last.
    fn deliver(
        &self,
        engine: &mut Engine,
        turn: &mut Turn<'_>,
        way: ItemWay,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        let (key, request) = (way.key, self.request);
        match &*item {
            Item::Headers { metadata } => {
                if let Some(serving) = engine.r2p2.served.get_mut(&request) {
                    serving.headers.get_or_insert_with(|| ByteBuf::from(metadata.as_ref()));
                }
                Ok(())
            }
            Item::Finish { code: Code::Ok, body: None, .. } => {
                let why = "the method returns one message and the handler returned none";
                Err(Refusal::Fault(Fault::HandlerProtocol { why }))
            }
            Item::Finish { code, execution, body, metadata } => {
                let outcome =
                    Outcome { code: *code, execution: *execution, metadata: Cow::Borrowed(metadata) };
                engine.finish_with(turn, key, request, &outcome, body.as_ref()).map_err(Refusal::Fault)?;
                engine.drop_item(item);
                Ok(())
            }
            Item::Open { .. } | Item::Message { .. } | Item::HalfClose => {
                Err(Refusal::Fault(Fault::HandlerProtocol { why: "R2P2 carries one reply" }))
            }
        }
    }

    fn credit(&self, _engine: &mut Engine, _key: CallKey, _bytes: u32, _over: bool) {}

    /// The request of a call of a peer has been answered, or nobody waits for it any more.
    fn release(&self, engine: &mut Engine, _key: CallKey) {
        if engine.r2p2.served.remove(&self.request).is_some() {
            engine.r2p2.unanswered.push(self.request);
        }
    }
}

impl ClientSide for DatagramRequest {
    // LIFE: 18 R2P2
    /// Ends a call a peer made with a status made here.
    fn finish(&self, engine: &mut Engine, turn: &mut Turn<'_>, key: CallKey, finish: &mut Item<'_>) {
        if let Item::Finish { code, execution, metadata, .. } = &*finish {
            let outcome = Outcome { code: *code, execution: *execution, metadata: Cow::Borrowed(metadata) };
            // Without a message there is nothing that could not be sent.
            let _ = engine.finish_with(turn, key, self.request, &outcome, None);
        }
        engine.forget(key);
    }
}

impl Engine {
    // LIFE: 9 R2P2
    /// A call for an endpoint reached over R2P2: at once, or in line until it has answered a greeting.
    pub(crate) fn hand_to_r2p2_remote(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        remote_key: RemoteKey,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        if self.streams_from_here(key) {
            let endpoint = self.remotes.label(remote_key);
            return Err(Refusal::Fault(Fault::Streams { endpoint }));
        }
        let Some(remote) = self.remotes.find(remote_key) else {
            return Err(Refusal::Fault(Fault::NoRoute { what: "endpoint".into() }));
        };
        let Some(r2p2) = &remote.r2p2 else { return Err(self.unreachable(key, remote_key)) };
        let mode = self.r2p2.mode();
        if r2p2.is_ready(mode, self.r2p2.client(&self.limits)) {
            return DatagramTarget { remote: remote_key }.open(self, turn, key, item);
        }
        if !r2p2.is_greeting() {
            if remote.not_before > turn.now {
                return Err(self.unreachable(key, remote_key));
            }
            self.greet(turn.now, remote_key, 0);
        }
        Err(self.wait_in_line(key, remote_key))
    }

    /// A greeting was answered.
    pub(crate) fn greeted(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let Some(remote) = self.remotes.find_mut(remote_key) else { return };
        remote.connected(Speaks::R2p2);
        if let Some(r2p2) = &mut remote.r2p2 {
            r2p2.greeted(self.r2p2.client(&self.limits));
        }
        self.serve_line(turn, remote_key);
    }

    /// A greeting was not answered, or refused.
    pub(crate) fn not_greeted(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey, failure: CallFailure) {
        let r2p2 = self.remotes.find_mut(remote_key).and_then(|remote| remote.r2p2.as_mut());
        match r2p2.and_then(|r2p2| r2p2.not_greeted(failure)) {
            Some(Ungreeted::GreetAgain(before)) => self.greet(turn.now, remote_key, before),
            Some(Ungreeted::GiveUp) => {
                self.remotes.dial_failed(turn.now, remote_key, &failure.to_string());
                self.serve_line(turn, remote_key);
            }
            None => {}
        }
    }

    fn greet(&mut self, now: Instant, remote_key: RemoteKey, before: u32) {
        let Some(r2p2) = self.remotes.find_mut(remote_key).and_then(|remote| remote.r2p2.as_mut()) else {
            return;
        };
        let greeting = r2p2.greet(now, remote_key.to_bits(), before);
        if self.r2p2.client(&self.limits).call(now, greeting).is_err() {
            // Every id is in use.
            r2p2.not_sent();
            self.remotes.dial_failed(now, remote_key, "too many calls are in flight over R2P2");
        }
    }

    /// Whether the caller knows that the method streams. Who does not know its types is held to one message.
    fn streams_from_here(&self, key: CallKey) -> bool {
        let Some(types) = self.calls.find(key).and_then(|call| call.sender_types(Direction::Request)) else {
            return false;
        };
        let pattern = types.pattern;
        !types.input.is_opaque() && (pattern.client_streams() || pattern.server_streams())
    }

    /// A server could not read a linear request, and did not execute it: it goes again as protobuf.
    pub(crate) fn request_again(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        request: &Bytes,
    ) -> Result<(), Fault> {
        let call = self.calls.find(key).ok_or(Fault::Ended)?;
        let ServerEnd::R2p2 { remote, .. } = call.server else { return Err(Fault::Ended) };
        let types = call.sender_types(Direction::Request).ok_or_else(untyped)?;
        let method = call.method;
        let malformed = |why: String| Fault::MalformedRequest { why };
        let said = RequestEnvelope::parse(request).map_err(|error| malformed(error.to_string()))?;
        let Form::Typed(of) = &types.input else { return Err(malformed("its type is not known".into())) };
        let message = reencode(&mut self.scratch, of, said.message)
            .map_err(|error| conversion_fault(error, Direction::Request))?;
        let again = RequestEnvelope { is_linear: false, message, ..said }.encode();
        if let Some(r2p2) = self.remotes.find_mut(remote).and_then(|remote| remote.r2p2.as_mut()) {
            r2p2.disagrees(turn.now, method);
        }
        if let Some(call) = self.calls.find_mut(key) {
            call.resent += 1;
        }
        self.request(turn.now, key, remote, again.unwrap_or_default().into(), false)
    }

    /// Answers a request that never becomes a call.
    pub(crate) fn refuse_r2p2(&mut self, now: Instant, request: RequestKey, status: &Status) {
        let outcome = Outcome::of(&self.said_here(status));
        let reply = ReplyEnvelope {
            trailers: &outcome.metadata,
            ..ReplyEnvelope::of(outcome.code, outcome.execution)
        };
        let sent = self.reply_r2p2(now, request, &reply, Timing::default(), None);
        if let Some(server) = self.r2p2.server.as_mut().filter(|_| !sent) {
            // Words as long as the path they name need room.
            server.refuse(now, request, Reason::Busy);
        }
    }

    /// Sends a reply. `false` if it is too long to be one, or there is no room for it: then nothing was sent.
    pub(crate) fn reply_r2p2(
        &mut self,
        now: Instant,
        request: RequestKey,
        reply: &ReplyEnvelope<'_>,
        timing: Timing,
        trailer: Option<trunkline_native::Trailer>,
    ) -> bool {
        let Some(server) = &mut self.r2p2.server else { return true };
        let fits = |bytes: &Vec<u8>| {
            bytes.len() <= server.reply_bytes_max(request) && server.room_for(request, bytes.len()).is_ok()
        };
        let Some(bytes) = reply.encode().filter(fits) else { return false };
        server.reply(now, request, bytes.into(), trailer, timing);
        true
    }

    /// A request in the form the endpoint reads, and whether that is linear.
    fn request_envelope(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        remote: RemoteKey,
        metadata: &[u8],
        body: &Body<'_>,
    ) -> Result<(Vec<u8>, bool), Fault> {
        let call = self.calls.find(key).ok_or(Fault::Ended)?;
        let types = call.sender_types(Direction::Request).ok_or_else(untyped)?;
        let method = call.method;
        let own_path = call.path.clone();
        let fingerprints = [types.input.fingerprint(), types.output.fingerprint()];
        let known = self.remotes.find(remote).and_then(|remote| remote.r2p2.as_ref());
        let reads = known.filter(|known| known.reads(turn.now, method, fingerprints[0]));
        let extended =
            reads.is_some_and(|known| self.r2p2.client(&self.limits).speaks_extended(known.target));
        let agreed = extended && fingerprints[0] != 0;
        let converted = for_wire(turn.heaps, &mut self.scratch, &types.input, agreed, u32::MAX, body);
        let (wire, encoding) = converted.map_err(|error| conversion_fault(error, Direction::Request))?;
        let WireBody::Inline(message) = wire else {
            return Err(Fault::HandlerProtocol { why: "a message too long to copy" });
        };
        let is_linear = encoding == Encoding::Linear;
        let path = own_path.as_deref().unwrap_or(self.registry.path(method));
        let envelope = RequestEnvelope { path, is_linear, fingerprints, metadata, message }.encode();
        let limit = u64::from(u16::MAX);
        Ok((
            envelope.ok_or(Fault::Limit { name: "bytes of metadata of an R2P2 request (fixed)", limit })?,
            is_linear,
        ))
    }

    /// Hands a request to the client's port.
    fn request(
        &mut self,
        now: Instant,
        key: CallKey,
        remote: RemoteKey,
        envelope: Bytes,
        is_linear: bool,
    ) -> Result<(), Fault> {
        let target = self.remotes.r2p2_target(remote).ok_or(Fault::NoRoute { what: "endpoint".into() })?;
        let call = self.calls.find(key).ok_or(Fault::Ended)?;
        let (class, sticky) = (call.choice.class.unwrap_or(0), call.choice.sticky == Some(true));
        let (tag, deadline, body) = (key.to_bits(), call.deadline, envelope.clone());
        let new = NewCall { tag, target, sticky, class, deadline, body };
        let name = self.r2p2.client(&self.limits).call(now, new).map_err(|refused| match refused {
            Refused::Calls { limit } => {
                Fault::Limit { name: "calls in flight over R2P2 (fixed)", limit: limit as u64 }
            }
            Refused::TooLong { limit, .. } => Fault::Limit {
                name: "bytes of an R2P2 request (limits.message_bytes; less in the compatible mode)",
                limit: limit as u64,
            },
        })?;
        let bytes = envelope.len();
        self.r2p2.forget_made(key);
        self.r2p2.made.insert(key, Made { bytes, linear: if is_linear { envelope } else { Bytes::new() } });
        self.r2p2.made_bytes += bytes;
        if let Some(call) = self.calls.find_mut(key) {
            call.server = ServerEnd::R2p2 { name, remote };
        }
        Ok(())
    }

    fn opened_at_r2p2(&mut self, now: Instant, key: CallKey, bytes: u32) {
        let Some(call) = self.calls.find_mut(key) else { return };
        call.handed_over = true;
        call.request.count(bytes);
        call.client_stamps.d3 = now;
        call.client_stamps.d4 = now;
    }

    /// The end of a call of a peer: its reply.
    fn finish_with(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        request: RequestKey,
        outcome: &Outcome<'_>,
        body: Option<&Body<'_>>,
    ) -> Result<(), Fault> {
        let Some(call) = self.calls.find_mut(key) else { return Ok(()) };
        call.server_stamps.k14 = turn.now;
        let (stamps, measured, offered) = (call.server_stamps, call.server_measured, call.offered);
        let types = call.sender_types(Direction::Response);
        let output = types.as_ref().map_or(0, |types| types.output.fingerprint());
        let agreed = output != 0 && offered.is_some_and(|[_, response]| response == output);
        let fingerprint = types.as_ref().map_or(0, |types| types.input.fingerprint());
        let message = match (body, &types) {
            (Some(body), Some(types)) => {
                let wire = for_wire(turn.heaps, &mut self.scratch, &types.output, agreed, u32::MAX, body);
                Some(wire.map_err(|error| conversion_fault(error, Direction::Response))?)
            }
            _ => None,
        };
        let (message, is_linear) = match message {
            Some((WireBody::Inline(bytes), encoding)) => (Some(bytes), encoding == Encoding::Linear),
            _ => (None, false),
        };
        let bytes = message.map(<[u8]>::len);
        let headers = self.r2p2.served.get_mut(&request).and_then(|serving| serving.headers.take());
        let reply = ReplyEnvelope {
            is_linear,
            fingerprint,
            headers: headers.as_ref().map(|headers| headers.as_slice()),
            trailers: &outcome.metadata,
            message,
            ..ReplyEnvelope::of(outcome.code, outcome.execution)
        };
        let server = self.r2p2.server.as_mut();
        let encoded = reply.encode();
        let limit = server.as_ref().map_or(usize::MAX, |server| server.reply_bytes_max(request));
        let Some(encoded) = encoded.filter(|encoded| encoded.len() <= limit) else {
            return Err(Fault::Limit { name: R2P2_REPLY, limit: limit as u64 });
        };
        if let Some(server) = self.r2p2.server.as_ref() {
            server.room_for(request, encoded.len()).map_err(fault_of)?;
        }
        self.r2p2.served.remove(&request);
        if let Some(server) = self.r2p2.server.as_mut() {
            let trailer = measured.then(|| trunkline_telemetry::settle(&stamps).encode());
            let timing = Timing {
                queue_ns: if measured { stamps.a10.since_ns(stamps.k7) } else { 0 },
                service_ns: if measured { stamps.a11.since_ns(stamps.a10) } else { 0 },
            };
            server.reply(turn.now, request, encoded.into(), trailer, timing);
        }
        if let (Some(call), Some(bytes)) = (self.calls.find_mut(key), bytes) {
            call.response.count(bytes as u32);
        }
        record_served(self, key, outcome.code, turn.now);
        self.forget(key);
        Ok(())
    }

    /// Whose address a request came from, for policies and logs.
    pub(crate) fn r2p2_label(client: SocketAddrV4) -> String {
        format!("r2p2://{client}")
    }
}
