//! What comes by R2P2, turned into items: requests of peers, and replies to the calls of this host's sessions; and
//! calls on their way to an endpoint that is reached by it. `r2p2_end.rs` is the way back.

use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::convert::reencode;
use crate::convert_error::{conversion_fault, untyped};
use crate::ends::{DatagramTarget, Opens, Refusal};
use crate::engine::{Engine, Turn};
use crate::limits::R2P2_REPLY;
use crate::r2p2::{Named, R2p2Port, R2p2Settings, Serving, fault_of};
use crate::r2p2_remote::{GREETING_TAG, Ungreeted};
use crate::registry::{Form, MethodTypes, service_of};
use crate::remote::Speaks;
use crate::target::Target;
use crate::vouching::PeerRule;
use crate::{CallKey, RemoteKey};
use bytes::Bytes;
use core::net::SocketAddrV4;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{
    Code, Deadline, Encoding, Execution, Fault, Instant, MetadataError, MetadataReader, ServerStamps, Status,
    WorkerChoice,
};
use trunkline_grpc::Outcome;
use trunkline_r2p2::{
    CallFailure, Client, ClientEvent, Reason, ReplyEnvelope, Request, RequestEnvelope, RequestKey, Server,
    ServerEvent, Transmit,
};
use trunkline_telemetry::PeerIndex;

impl Engine {
    /// How R2P2 is spoken; [`R2p2Settings::default`] until this is called. To be said before anybody calls.
    pub fn configure_r2p2(&mut self, now: Instant, settings: R2p2Settings) {
        self.r2p2.configure(now, settings, &self.limits);
    }

    /// Takes a datagram, known to be there since `arrived`. It did not come before `came`: what is not known to be
    /// younger may be a copy of a request that is over, and forgotten.
    pub fn handle_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        port: R2p2Port,
        (came, arrived): (Instant, Instant),
        from: SocketAddrV4,
        datagram: &[u8],
    ) {
        self.arrived = arrived;
        self.sessions.discard_abandoned(turn.heaps);
        self.r2p2.handle_datagram(turn.now, port, came, from, datagram);
        self.handle_r2p2_events(turn);
        self.go_on(turn);
    }

    /// Whether requests wait to be sent, which [`Engine::set_datagram_ages`] is to be told of first.
    pub fn sends_r2p2_requests(&self) -> bool {
        self.r2p2.client_sends()
    }

    /// Datagrams are sent now: [`Client::set_ages`].
    pub fn set_datagram_ages(&mut self, now: Instant) {
        self.r2p2.set_ages(now);
    }

    /// The next datagram to send, and from which port.
    pub fn poll_datagram(&mut self) -> Option<(R2p2Port, Transmit)> {
        self.r2p2.poll_datagram()
    }

    pub(crate) fn r2p2_timeout(&mut self, turn: &mut Turn<'_>) {
        self.r2p2.handle_timeout(turn.now);
        self.arrived = turn.now;
        self.handle_r2p2_events(turn);
    }

    /// Answers requests whose calls are over, and lets calls go on that waited for others to end.
    pub(crate) fn settle_r2p2(&mut self, turn: &mut Turn<'_>) {
        self.r2p2.answer_unanswered(turn.now);
        while let Some(call) = self.r2p2.next_unblocked(self.limits.connection_queue_bytes) {
            self.unblock(turn, call, Direction::Request);
        }
    }

    /// The number of another host in reports.
    pub(crate) fn r2p2_number(&mut self, host: Named) -> PeerIndex {
        let telemetry = &mut self.telemetry;
        self.r2p2.number(host, |name| telemetry.peer(name, false))
    }

    // LIFE: 9 R2P2
    /// A call for an endpoint reached over R2P2: at once, or in line until it has answered a greeting.
    pub(crate) fn hand_to_r2p2_remote(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        remote_key: RemoteKey,
        item: &mut Item<'_>,
    ) -> Result<(), Refusal> {
        if self.calls.find(key).is_some_and(streams_from_here) {
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
    fn greeted(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let Some(remote) = self.remotes.find_mut(remote_key) else { return };
        remote.connected(Speaks::R2p2);
        if let Some(r2p2) = &mut remote.r2p2 {
            r2p2.greeted(self.r2p2.client(&self.limits));
        }
        self.serve_line(turn, remote_key);
    }

    /// A greeting was not answered, or refused.
    fn not_greeted(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey, failure: CallFailure) {
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

    /// Does what both ports have to tell.
    pub(crate) fn handle_r2p2_events(&mut self, turn: &mut Turn<'_>) {
        while let Some(event) = self.r2p2.client_if_any().and_then(Client::poll_event) {
            self.handle_client_event(turn, event);
        }
        while let Some(event) = self.r2p2.server.as_mut().and_then(Server::poll_event) {
            match event {
                ServerEvent::Request(request) => self.handle_r2p2_request(turn, &request),
                ServerEvent::Cancelled { key } => self.handle_r2p2_cancelled(turn, key),
            }
        }
    }

    fn handle_client_event(&mut self, turn: &mut Turn<'_>, event: ClientEvent) {
        let tag = match &event {
            ClientEvent::Replied { tag, .. } | ClientEvent::Failed { tag, .. } => *tag,
        };
        let remote = RemoteKey::from_bits(tag & !GREETING_TAG);
        let key = CallKey::from_bits(tag);
        match event {
            ClientEvent::Replied { .. } if tag & GREETING_TAG != 0 => self.greeted(turn, remote),
            ClientEvent::Failed { failure, .. } if tag & GREETING_TAG != 0 => {
                self.not_greeted(turn, remote, failure);
            }
            // One reply may end other calls, whose own is then nobody's.
            _ if self.made_over_r2p2(key).is_none() => {}
            ClientEvent::Replied { server, body, trailer, .. } => {
                self.handle_r2p2_reply(turn, key, server, &body, trailer);
            }
            ClientEvent::Failed { failure, .. } => self.handle_r2p2_failure(turn, key, failure),
        }
    }

    fn made_over_r2p2(&self, key: CallKey) -> Option<RemoteKey> {
        match self.calls.find(key)?.server {
            ServerEnd::R2p2 { remote, .. } => Some(remote),
            _ => None,
        }
    }

    // LIFE: 19 R2P2
    fn handle_r2p2_reply(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        server: SocketAddrV4,
        body: &[u8],
        trailer: Option<trunkline_native::Trailer>,
    ) {
        let request = self.r2p2.made.get(&key).map(|made| made.linear.clone());
        self.r2p2.forget_made(key);
        let reply = match ReplyEnvelope::parse(body) {
            Ok(reply) => reply,
            Err(error) => {
                let executed = Execution::Unknown;
                return self.fail(turn, key, Fault::PeerProtocol { why: error.to_string(), executed });
            }
        };
        self.note_fingerprint(key, reply.fingerprint);
        if reply.is_unreadable {
            let again = match request {
                Some(request) if !request.is_empty() => self.request_again(turn.now, key, &request),
                _ => {
                    let (why, executed) = ("it cannot read protobuf".into(), Execution::NotExecuted);
                    Err(Fault::PeerProtocol { why, executed })
                }
            };
            return again.unwrap_or_else(|fault| self.fail(turn, key, fault));
        }
        self.note_r2p2_response(turn, key, server, trailer);
        if let Some(headers) = reply.headers {
            self.pass(
                turn,
                key,
                Direction::Response,
                &mut Item::Headers { metadata: Cow::Borrowed(headers) },
            );
        }
        let encoding = if reply.is_linear { Encoding::Linear } else { Encoding::Protobuf };
        let message = reply.message.filter(|_| reply.code == Code::Ok);
        if reply.code == Code::Ok && message.is_none() {
            let (why, executed) = ("a reply without a message".into(), Execution::Executed);
            return self.fail(turn, key, Fault::PeerProtocol { why, executed });
        }
        let body = message.map(|bytes| Body::Wire {
            bytes: Cow::Borrowed(bytes),
            encoding,
            charged: 0,
            compressed: false,
        });
        let (code, execution) = (reply.code, reply.execution);
        let metadata = Cow::Borrowed(reply.trailers);
        self.pass(turn, key, Direction::Response, &mut Item::Finish { code, execution, body, metadata });
    }

    /// A server could not read a linear request, and did not execute it: it goes again as protobuf.
    fn request_again(&mut self, now: Instant, key: CallKey, request: &Bytes) -> Result<(), Fault> {
        let Self { r2p2, calls, remotes, scratch, limits, .. } = self;
        let call = calls.find_mut(key).ok_or(Fault::Ended)?;
        let ServerEnd::R2p2 { remote, .. } = call.server else { return Err(Fault::Ended) };
        let types = call.types_sent(Direction::Request).ok_or_else(untyped)?;
        let malformed = |why: String| Fault::MalformedRequest { why };
        let said = RequestEnvelope::parse(request).map_err(|error| malformed(error.to_string()))?;
        let Form::Typed(of) = &types.input else { return Err(malformed("its type is not known".into())) };
        let message = reencode(scratch, of, said.message)
            .map_err(|error| conversion_fault(error, Direction::Request))?;
        let again = RequestEnvelope { is_linear: false, message, ..said }.encode();
        if let Some(r2p2) = remotes.find_mut(remote).and_then(|remote| remote.r2p2.as_mut()) {
            r2p2.disagrees(now, call.method);
        }
        call.resent += 1;
        let target = remotes.r2p2_target(remote).ok_or(Fault::NoRoute { what: "endpoint".into() })?;
        let name = r2p2.send(now, limits, (key, call), target, again.unwrap_or_default().into(), false)?;
        call.server = ServerEnd::R2p2 { name, remote };
        Ok(())
    }

    /// A call ended without a reply.
    fn handle_r2p2_failure(&mut self, turn: &mut Turn<'_>, key: CallKey, failure: CallFailure) {
        let Some(remote_key) = self.made_over_r2p2(key) else { return };
        let executed = failure.execution();
        let by = self.remotes.label(remote_key);
        let dropped = |code| Fault::Dropped { by, why: failure.to_string(), code, executed };
        let fault = match failure {
            CallFailure::Deadline => Fault::DeadlinePassed { executed },
            CallFailure::Dropped { reason: Reason::Deadline, .. } => Fault::DeadlinePassed { executed },
            CallFailure::Silent => {
                if let Some(r2p2) = self.remotes.find_mut(remote_key).and_then(|remote| remote.r2p2.as_mut())
                {
                    r2p2.fell_silent();
                }
                dropped(Code::Unavailable)
            }
            CallFailure::Full(full) => fault_of(full),
            CallFailure::TooLong { limit } => Fault::Limit { name: R2P2_REPLY, limit: limit as u64 },
            CallFailure::Dropped { reason, .. } => dropped(code_of(reason)),
        };
        self.r2p2.forget_made(key);
        self.fail(turn, key, fault);
    }

    /// The types a server has are remembered for the next request.
    fn note_fingerprint(&mut self, key: CallKey, fingerprint: u64) {
        let Some(call) = self.calls.find(key) else { return };
        let ServerEnd::R2p2 { remote, .. } = call.server else { return };
        let method = call.method;
        if fingerprint != 0
            && let Some(r2p2) = self.remotes.find_mut(remote).and_then(|remote| remote.r2p2.as_mut())
        {
            r2p2.has(method, fingerprint);
        }
    }

    /// The reply is here: from now on time is response stack, and the server's part is known if it said so.
    fn note_r2p2_response(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        server: SocketAddrV4,
        trailer: Option<trunkline_native::Trailer>,
    ) {
        let (arrived, number) = (self.arrived, self.r2p2_number(Named::Server(server)));
        let Some(call) = self.calls.find_mut(key) else { return };
        call.peer_index = number;
        call.client_stamps.k15 = arrived;
        call.client_stamps.d16 = turn.now;
        if let Some(trailer) = trailer {
            call.server_stamps = ServerStamps::decode(&trailer);
            call.server_measured = true;
        }
    }

    // LIFE: 13 R2P2
    /// A peer calls.
    fn handle_r2p2_request(&mut self, turn: &mut Turn<'_>, request: &Request) {
        let key = request.key;
        let said = match RequestEnvelope::parse(&request.body) {
            Ok(said) => said,
            Err(error) => return self.refuse_unreadable(turn.now, key, &error.to_string()),
        };
        if said.path.is_empty() {
            let reply = ReplyEnvelope::of(Code::Ok, Execution::NotExecuted);
            self.r2p2.reply(turn.now, key, &reply);
            return;
        }
        match self.r2p2_called(key, &said) {
            Ok(mut call) => {
                call.deadline = request.deadline;
                call.choice.class = WorkerChoice::class_of(request.class.into()).filter(|class| *class > 0);
                call.server_stamps.k7 = self.arrived;
                call.server_stamps.d8 = turn.now;
                let call = self.calls.insert(call);
                self.r2p2.served.insert(key, Serving { call, headers: None });
                let encoding = if said.is_linear { Encoding::Linear } else { Encoding::Protobuf };
                let body = Body::Wire {
                    bytes: Cow::Borrowed(said.message),
                    encoding,
                    charged: 0,
                    compressed: false,
                };
                let metadata = Cow::Borrowed(said.metadata);
                let mut opening = Item::Open { metadata, body: Some(body), end: true };
                self.start(turn, call, Target::Here, &mut opening);
            }
            Err(Uncalled::Fault(fault)) => self.refuse_r2p2(turn.now, key, &fault.status()),
            Err(Uncalled::Denied(status)) => self.refuse_r2p2(turn.now, key, &status),
            Err(Uncalled::Metadata(error)) => self.refuse_unreadable(turn.now, key, &error.to_string()),
            Err(Uncalled::Unreadable { fingerprint }) => {
                let reply = ReplyEnvelope::of(Code::Internal, Execution::NotExecuted);
                let reply = ReplyEnvelope { is_unreadable: true, fingerprint, ..reply };
                self.r2p2.reply(turn.now, key, &reply);
            }
        }
    }

    /// Whoever wrote it made a mistake, and nobody here.
    fn refuse_unreadable(&mut self, now: Instant, key: RequestKey, why: &str) {
        let status = Status::new(Code::InvalidArgument, format!("the request cannot be read: {why}"));
        self.refuse_r2p2(now, key, &status.with_execution(Execution::NotExecuted));
    }

    /// Answers a request that never becomes a call.
    fn refuse_r2p2(&mut self, now: Instant, request: RequestKey, status: &Status) {
        let outcome = Outcome::of(&self.said_here(status));
        self.r2p2.refuse(now, request, &outcome);
    }

    /// The call a request means, if it can be one here. Its deadline is still to be said.
    ///
    /// Nobody has an identity here: a seal says that the sender has the key of the cluster, and not which host it is.
    fn r2p2_called(&mut self, request: RequestKey, said: &RequestEnvelope<'_>) -> Result<Call, Uncalled> {
        if !said.metadata.is_empty() {
            let mut pairs = MetadataReader::read(said.metadata).map_err(Uncalled::Metadata)?;
            pairs.try_for_each(|pair| pair.map(drop)).map_err(Uncalled::Metadata)?;
        }
        PeerRule::check(&self.peer_rules, "", service_of(said.path)).map_err(Uncalled::Denied)?;
        let (called, pattern) = self.served(said.path).map_err(Uncalled::Fault)?;
        let elsewhere = self.shards.types(called.method, self.registry.path(called.method));
        let servers =
            self.registry.servers(called.method).iter().map(|server| &server.types).chain(elsewhere);
        let servers: Vec<&Arc<MethodTypes>> = servers.collect();
        let first = servers.first();
        let fingerprint = first.map_or(0, |types| types.input.fingerprint());
        // A fingerprint that is zero stands for no type.
        if first.is_some_and(|types| !types.input.is_opaque())
            && (pattern.client_streams() || pattern.server_streams())
        {
            return Err(Uncalled::Fault(Fault::Streams { endpoint: "R2P2".into() }));
        }
        let reads = |types: &&Arc<MethodTypes>| {
            said.is_linear && said.fingerprints[0] != 0 && types.input.fingerprint() == said.fingerprints[0]
        };
        let agreed = servers.iter().copied().find(reads).cloned();
        if said.is_linear && agreed.is_none() {
            return Err(Uncalled::Unreadable { fingerprint });
        }
        let client = ClientEnd::R2p2 { request };
        let mut call = Call::new(called.method, client, ServerEnd::Nobody, Deadline::NONE);
        call.path = called.path;
        call.offered = Some(said.fingerprints);
        call.agreed = agreed;
        Ok(call)
    }

    /// Nobody waits for the reply any more.
    fn handle_r2p2_cancelled(&mut self, turn: &mut Turn<'_>, key: RequestKey) {
        if let Some(call) = self.r2p2.served.get(&key).map(|serving| serving.call) {
            self.cancel(turn, call);
        }
    }
}

/// Whether the caller knows that the method streams. Who does not know its types is held to one message.
fn streams_from_here(call: &Call) -> bool {
    let types = call.types_sent(Direction::Request);
    types.is_some_and(|types| {
        let pattern = types.pattern;
        !types.input.is_opaque() && (pattern.client_streams() || pattern.server_streams())
    })
}

/// Why a request becomes no call.
enum Uncalled {
    Fault(Fault),
    /// By a rule about those that come over the network.
    Denied(Status),
    Metadata(MetadataError),
    /// It is linear, and of a type nobody here has.
    Unreadable {
        fingerprint: u64,
    },
}

/// The status of a refusal. What is full may be free in a moment, and says so as gRPC's libraries do.
fn code_of(reason: Reason) -> Code {
    match reason {
        Reason::Busy | Reason::QueueFull | Reason::QueueDelay | Reason::TooLong => Code::ResourceExhausted,
        Reason::Deadline => Code::DeadlineExceeded,
        Reason::Cancelled => Code::Cancelled,
        Reason::Unsaid | Reason::NoWorker | Reason::Partial | Reason::Forgotten | Reason::Served => {
            Code::Unavailable
        }
    }
}
