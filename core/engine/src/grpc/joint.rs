//! What an HTTP/2 connection to a peer that speaks gRPC says, turned into items: the joint between [`GrpcEnds`] and
//! calls, policies, methods and endpoints.
//!
//! The connection may be one a gRPC client made to us (its streams are calls for sessions of this host, or for
//! endpoints: `gateway.rs`) or one dialled for an endpoint (its streams are calls sessions made). Either way a stream
//! is one call; `end.rs` is the way back.
//!
//! [`GrpcEnds`]: super::GrpcEnds

use super::incoming::{EndedBody, NextMessage, body_of, of_cardinality, of_framing};
use super::peer::{GrpcPeer, PeerIdentity};
use super::stream::Ending;
use super::{HeldAccounts, WebStream};
use crate::attempts::response_begun;
use crate::call::{Call, ClientEnd, Direction, Item, ServerEnd};
use crate::engine::{Engine, Turn};
use crate::gateway::{Forward, Gateway, Route};
use crate::gateway_client::{CallRights, GatewaySettings};
use crate::limits::{STALLED, UNSENT};
use crate::opaque::is_path;
use crate::operator::{Operator, introduced};
use crate::peer::PeerFault;
use crate::registry::{is_own_service, service_of};
use crate::source::made_for;
use crate::target::Target;
use crate::vouching::PeerRule;
use crate::{CallKey, GrpcKey};
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Execution, Fault, Instant, Metadata, Status};
use trunkline_grpc::request::RequestHead;
use trunkline_grpc::response::{self, ResponseHead};
use trunkline_grpc::{Command, Event, Outcome, Reason};

/// Messages of one stream that may wait as items; the rest waits as bytes. An empty message takes five bytes of the
/// window and a hundred as an item.
const MESSAGES_WAITING_MAX: usize = 16;
/// Times a request the server has not seen is sent again. The specification says once.
const TRANSPARENT_RETRIES_MAX: u32 = 1;

impl Engine {
    /// How the gateway works; [`GatewaySettings::default`] until this is called. To be called before policies are
    /// applied.
    pub fn configure_gateway(&mut self, settings: GatewaySettings) {
        self.gateway = Gateway::new(settings);
    }

    /// Takes in an HTTP/2 connection somebody made to us. `label` is its address, for operators.
    pub fn accept_grpc(&mut self, label: String, identity: PeerIdentity) -> GrpcKey {
        let key = self.reach().insert_grpc(label, identity, None);
        if self.draining {
            self.grpc.command(key, Command::GoAway);
        }
        key
    }

    /// Takes in an HTTP/2 connection of an operator.
    pub fn accept_operator(&mut self, operator: Operator) -> GrpcKey {
        let label = format!("operator {}", operator.identity);
        let key = self.accept_grpc(label, PeerIdentity::default());
        self.grpc.note_operator(key, operator);
        key
    }

    /// Takes in an HTTP/2 connection of a client of the gateway. `label` is its address, for operators.
    pub fn accept_at_gateway(
        &mut self,
        label: String,
        identity: PeerIdentity,
        client: CallRights,
    ) -> GrpcKey {
        let key = self.accept_grpc(label, identity);
        self.grpc.note_client(key, client, true);
        key
    }

    /// Takes in an HTTP/2 connection of a user of this host, for what its applications serve.
    pub fn accept_user(&mut self, label: String, identity: PeerIdentity, client: CallRights) -> GrpcKey {
        let key = self.accept_grpc(label, identity);
        self.grpc.note_client(key, client, false);
        key
    }

    /// A dialled connection proved who it is.
    pub fn grpc_identified(&mut self, key: GrpcKey, identity: PeerIdentity) {
        self.grpc.identify(key, identity);
    }

    // LIFE: 12 gRPC
    /// Takes in what happened on a connection, known since `arrived`.
    ///
    /// # Errors
    /// [`PeerFault`] if the connection says what cannot be; the host closes it and calls [`Engine::grpc_lost`].
    pub fn handle_http(
        &mut self,
        turn: &mut Turn<'_>,
        peer: GrpcKey,
        arrived: Instant,
        event: Event,
    ) -> Result<(), PeerFault> {
        self.arrived = arrived;
        self.sessions.discard_abandoned(turn.heaps);
        let at = |tag| WebStream { peer, tag };
        match event {
            Event::Ready { streams_max } => {
                let remote = self.grpc.handle_ready(peer, streams_max);
                self.reach().pooled_ready(remote, peer);
            }
            Event::Request { stream, head, end } => self.handle_request(turn, at(stream), &head, end)?,
            Event::Response { stream, head, end } => self.handle_response(turn, at(stream), &head, end),
            Event::Data { stream, bytes, end } => {
                if self.grpc.handle_data(&mut self.held, at(stream), bytes, end) {
                    self.read_on(turn, at(stream), end);
                }
            }
            Event::Trailers { stream, trailers } => {
                let outcome = self.grpc.read_trailers(&trailers);
                self.handle_ending(turn, at(stream), Ending::Outcome(outcome));
            }
            Event::Reset { stream, reason } => self.handle_reset(turn, at(stream), reason),
            Event::Sent { stream, bytes } => self.handle_sent(turn, at(stream), bytes),
            Event::Written { stream, at: written } => self.handle_written(at(stream), written),
            Event::GoAway { .. } => {
                if let Some(remote) = self.grpc.handle_leaving(peer)
                    && self.reach().pooled_leaving(turn.now, remote, peer)
                {
                    self.serve_line(turn, remote);
                }
            }
            Event::StreamsMax { streams_max } => self.grpc.handle_streams_max(peer, streams_max),
        }
        self.go_on(turn);
        Ok(())
    }

    /// What a connection is to do next.
    pub fn poll_http(&mut self) -> Option<(GrpcKey, Command)> {
        self.grpc.poll_command()
    }

    /// The connection is over: calls made over it end, and so do calls that came from it.
    pub fn grpc_lost(&mut self, turn: &mut Turn<'_>, key: GrpcKey, why: &str) {
        let Some((calls, remote)) = self.grpc.handle_lost(key) else { return };
        if remote.is_none() {
            // Whose calls they were is known until they have ended: the access log names it.
            calls.iter().for_each(|call| self.cancel(turn, *call));
        }
        let Some(lost) = self.grpc.remove(&mut self.held, &mut self.timers, key) else { return };
        self.note_host_left(turn.now, lost.telemetry);
        if let Some(remote) = remote {
            calls.iter().for_each(|call| self.server_lost(turn, *call, &lost.label));
            if self.reach().pooled_lost(turn.now, remote, key, why) {
                self.line_goes_on(turn, remote);
            }
        }
        self.go_on(turn);
    }

    /// The connection to a call's gRPC server is over.
    fn server_lost(&mut self, turn: &mut Turn<'_>, key: CallKey, endpoint: &str) {
        let Some(call) = self.calls.find(key) else { return };
        // Its end may be here and wait for the application to have room.
        if !call.response.ended {
            let (endpoint, executed) = (endpoint.to_owned(), call.execution());
            self.fail(turn, key, Fault::ConnectionLost { endpoint, executed });
        }
    }

    /// A gRPC client opens a call.
    fn handle_request(
        &mut self,
        turn: &mut Turn<'_>,
        at: WebStream,
        head: &http::request::Parts,
        end: bool,
    ) -> Result<(), PeerFault> {
        let Some(head) = self.grpc.handle_request(at, head)? else { return Ok(()) };
        let route = match self.grpc.find(at.peer).and_then(|peer| peer.operator.as_ref()) {
            Some(operator) => {
                let method = self.registry.own_key_of(head.path);
                let served =
                    method.and_then(|method| Some((method, self.routing().types_served(method)?.pattern)));
                operator.denied(head.path).into_iter().for_each(|denied| self.denied.push(denied));
                operator.asked(head.path, served).map(|(called, pattern)| Route::here(called, pattern))
            }
            None => self.route_from_grpc(at.peer, &head),
        };
        match route {
            Ok(route) => self.open_from_grpc(turn, at, head, end, route),
            Err(status) => self.grpc.refuse(at, &Outcome::of(&self.peers.said_here(&status))),
        }
        Ok(())
    }

    /// Where a request goes that a gRPC client makes.
    fn route_from_grpc(&mut self, peer: GrpcKey, head: &RequestHead<'_>) -> Result<Route, Status> {
        let found = self.grpc.find(peer);
        let client = found.and_then(|peer| peer.client.as_ref());
        let identity = found.map_or("", |peer| peer.identity.proven());
        let comes_by_tls = found.is_some_and(|peer| peer.identity.encrypted);
        let (rules, service) = (&self.peer_rules, service_of(head.path));
        match client {
            // At a port of the gateway a certificate may do what nobody may who shows none.
            Some(_) if comes_by_tls && PeerRule::permit(rules, identity, service) => {}
            Some(client) => client.check(service)?,
            None => PeerRule::check(rules, identity, service)?,
        }
        if found.is_some_and(|peer| peer.forwards) {
            return self.route_at_gateway(peer, head);
        }
        let (called, pattern) = self.paths().served(head.path).map_err(|fault| fault.status())?;
        Ok(Route::here(called, pattern))
    }

    fn route_at_gateway(&mut self, peer: GrpcKey, head: &RequestHead<'_>) -> Result<Route, Status> {
        let path = head.path;
        let service = service_of(path);
        let has_endpoints = self.clusters.of_service(service).is_some();
        // What the daemon answers for want of anybody else (health, load reports) is told of the service's endpoints by
        // themselves, if the operator has said where that is.
        if let Some(called) = self.paths().called(path)
            && let Some(types) = self.routing().types_served(called.method)
            && !(has_endpoints && self.routing().is_stood_by(called.method))
        {
            let pattern = types.pattern;
            return Ok(Route::here(called, pattern));
        }
        let Some(cluster) = self.clusters.of_service(service).filter(|_| !is_own_service(service)) else {
            return Err(Gateway::unserved(&self.registry, path));
        };
        if !is_path(path) {
            return Err(Fault::NoMethod { path: path.to_owned() }.status());
        }
        let Self { gateway, grpc, registry, telemetry, admission, types_bound, shards, limits, .. } = self;
        let metadata = gateway.with_hop(path, &head.metadata)?;
        let source = || grpc.find(peer).map_or_else(Box::default, GrpcPeer::source);
        let called = gateway.called(registry, telemetry, limits.methods_learned_per_service, path, source);
        let (types, plan) = gateway.types_of(registry, admission, (types_bound, shards.own().0), &called);
        let pattern = types.pattern;
        Ok(Route { called, pattern, forward: Some(Forward { types, cluster, plan, metadata }) })
    }

    // LIFE: 13 gRPC
    fn open_from_grpc(
        &mut self,
        turn: &mut Turn<'_>,
        at: WebStream,
        mut head: RequestHead<'_>,
        end: bool,
        route: Route,
    ) {
        if let Some(operator) = self.grpc.find(at.peer).and_then(|peer| peer.operator.as_ref()) {
            head.metadata = introduced(&operator.identity, head.metadata);
        }
        let deadline = head.timeout_ns.map_or(Deadline::NONE, |ns| Deadline::at(turn.now.plus_ns(ns)));
        let Route { called, pattern, forward } = route;
        let types = forward.as_ref().map(|forward| Arc::clone(&forward.types));
        let client = ClientEnd::Grpc { peer: at.peer, stream: at.tag, types };
        let mut call = Call::new(called.method, client, ServerEnd::Nobody, deadline);
        call.path = called.path;
        call.server_stamps.k7 = self.arrived;
        call.server_stamps.d8 = turn.now;
        if let Some(forward) = forward {
            forward.mark(&mut call, self.arrived, turn.now, (head.encoding, head.accepts));
            self.admission.apply(&mut call.policies, 0, forward.plan);
            head.metadata = forward.metadata;
        }
        let key = self.calls.insert(call);
        self.grpc.take_call(at, key, pattern, head.encoding, head.accepts);
        let (calls, mut start) = self.start_of_call();
        let Some(call) = calls.find_mut(key) else { return };
        let target = target_of(call);
        if let Err(fault) = start.admit(turn.now, (key, call), &head.metadata, 0) {
            return self.fail(turn, key, fault);
        }
        if pattern.client_streams() {
            let metadata = Cow::Owned(head.metadata);
            return self.start(turn, key, target, &mut Item::Open { metadata, body: None, end });
        }
        self.grpc.keep_opening(&mut self.held, at, head.metadata);
        if end {
            return self.handle_ending(turn, at, Ending::Body);
        }
        let Self { grpc, held, timers, .. } = self;
        if let Err(fault) = grpc.may_hold_unfinished(held, timers, turn.now, at) {
            self.fail(turn, key, fault);
        }
    }

    /// A gRPC server answers.
    fn handle_response(
        &mut self,
        turn: &mut Turn<'_>,
        at: WebStream,
        head: &http::response::Parts,
        end: bool,
    ) {
        let Some(answer) = self.grpc.handle_response(at, head, end) else { return };
        let key = answer.call;
        if let Some(accepts) = answer.refused
            && let Some(call) = self.calls.find(key).and_then(|call| made_for(&self.calls, call))
        {
            self.grpc.pass_refusal_on(call, accepts);
        }
        let (metadata, encoding) = match answer.head {
            ResponseHead::Headers { metadata, encoding, .. } => (metadata, encoding),
            ResponseHead::Ended(outcome) => {
                return self.handle_ending(turn, at, Ending::Outcome(outcome));
            }
        };
        response_begun(self, turn, key);
        let Some(call) = self.calls.find(key) else { return };
        self.grpc.pass_encoding_on(call, encoding);
        // A head without metadata says nothing to the application, unless that waits for the answer to begin.
        let words = match metadata.is_empty() {
            true => call.is_made_opaque().then(|| Metadata::NO_PAIRS.to_vec()),
            false => Some(metadata),
        };
        if let Some(words) = words {
            self.pass(turn, key, Direction::Response, &mut Item::Headers { metadata: Cow::Owned(words) });
        }
    }

    /// A direction ended: what of it waits goes first.
    fn handle_ending(&mut self, turn: &mut Turn<'_>, at: WebStream, ending: Ending) {
        if self.grpc.handle_ending(at, ending) {
            self.read_on(turn, at, true);
        }
    }

    /// Passes on what came. With its end, an answer makes what is left of its request nobody's business.
    fn read_on(&mut self, turn: &mut Turn<'_>, at: WebStream, end: bool) {
        let Self { grpc, held, invariants, .. } = self;
        let mut accounts = HeldAccounts { held, invariants };
        let answered = if end { grpc.stop_asking(&mut accounts, at) } else { None };
        if let Some((call, credit)) = answered {
            self.credit_sender(call, Direction::Request, credit);
        }
        self.pump(turn, at);
        if let Some((call, _)) = answered {
            self.unblock(turn, call, Direction::Request);
        }
    }

    /// Passes on every message that is complete, as long as the application keeps up, and then the end.
    pub(crate) fn pump(&mut self, turn: &mut Turn<'_>, at: WebStream) {
        loop {
            let Self { grpc, calls, scratch, held, .. } = self;
            let Some(key) = grpc.stream(at).and_then(|stream| stream.call) else { return };
            let Some(call) = calls.find_mut(key) else { return };
            let direction = if call.comes_by(at) { Direction::Request } else { Direction::Response };
            if call.half(direction).backlog.len() >= MESSAGES_WAITING_MAX || grpc.unpacks_later(at) {
                return;
            }
            match grpc.next_message(held, &scratch.long, at, call, direction) {
                Ok(NextMessage::Whole { message, charged, end }) => {
                    call.note_complete(direction, self.arrived, turn.now);
                    let mut item = Item::Message { body: body_of(&message, charged), end };
                    self.pass(turn, key, direction, &mut item);
                }
                Ok(NextMessage::Kept) => {}
                Ok(NextMessage::TooMany) => {
                    return self.end_malformed(turn, key, direction, of_cardinality(2, direction));
                }
                Ok(NextMessage::Nothing) => return self.drained(turn, at, key, direction),
                Err(fault) => return self.end_malformed(turn, key, direction, of_framing(&fault, direction)),
            }
        }
    }

    /// The others have had their turn: who waited goes on.
    pub(crate) fn unpack_on(&mut self, turn: &mut Turn<'_>) {
        if !self.grpc.begin_unpacking() {
            return;
        }
        while let Some(at) = self.grpc.poll_unpacked() {
            self.pump(turn, at);
        }
    }

    /// Nothing complete is left: an end that was told takes effect.
    fn drained(&mut self, turn: &mut Turn<'_>, at: WebStream, key: CallKey, direction: Direction) {
        let Self { grpc, held, timers, .. } = self;
        match grpc.drain(held, timers, turn.now, at) {
            Ok(true) => self.end_incoming(turn, at, key, direction),
            Ok(false) => {}
            Err(fault) => self.fail(turn, key, fault),
        }
    }

    fn end_incoming(&mut self, turn: &mut Turn<'_>, at: WebStream, key: CallKey, direction: Direction) {
        let Some(ended) = self.grpc.end_body(&mut self.held, at, direction) else { return };
        let EndedBody { outcome, streams, message, opening } = ended;
        let call = self.calls.find_mut(key);
        let target = call.map_or(Target::Here, |call| {
            call.note_complete(direction, self.arrived, turn.now);
            target_of(call)
        });
        let body = message.as_ref().map(|message| body_of(message, 0));
        match (outcome, direction) {
            (Err(outcome), _) => self.end_malformed(turn, key, direction, outcome),
            (Ok(_), Direction::Request) if streams => {
                self.pass(turn, key, Direction::Request, &mut Item::HalfClose);
            }
            (Ok(_), Direction::Request) => {
                let Some(metadata) = opening.map(Cow::Owned) else { return };
                self.start(turn, key, target, &mut Item::Open { metadata, body, end: true });
            }
            (Ok(outcome), Direction::Response) => {
                let Outcome { code, execution, metadata } = outcome;
                let body = body.filter(|_| code == Code::Ok);
                self.finish_from_grpc(turn, key, &mut Item::Finish { code, execution, body, metadata });
            }
        }
    }

    /// Ends a call whose body is not well formed. What a request's handler has seen of the call is known here.
    fn end_malformed(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        direction: Direction,
        outcome: Outcome<'static>,
    ) {
        let known = self.calls.find(key).filter(|_| direction == Direction::Request).map(Call::execution);
        self.end_as(turn, key, &Outcome { execution: known.unwrap_or(outcome.execution), ..outcome });
    }

    /// The stream is over before its time.
    fn handle_reset(&mut self, turn: &mut Turn<'_>, at: WebStream, reason: Reason) {
        let made = self.grpc.is_dialled(at.peer);
        let stream = self.grpc.stream(at);
        let answered = stream.is_some_and(|stream| stream.incoming.answered);
        // The answer is whole and waits its turn: what comes of the request is nobody's business.
        let waits = stream.is_some_and(|stream| stream.call.is_some() && stream.incoming.ended.is_some());
        let refused = made && reason == Reason::REFUSED_STREAM && !answered;
        if (refused && self.retry_refused(turn, at)) || (made && waits) {
            return;
        }
        let Self { grpc, held, invariants, .. } = self;
        let Some(stream) = grpc.drop_stream(&mut HeldAccounts { held, invariants }, at) else { return };
        let Some(key) = stream.call else { return };
        let Some(call) = self.calls.find(key) else { return };
        if !made {
            return self.cancel_as(turn, key, Code::Cancelled);
        }
        let late = call.deadline.has_passed(turn.now);
        let outcome = response::of_reset(reason, answered);
        if late && outcome.code == Code::Cancelled {
            // The server's clock struck first.
            return self.fail(turn, key, Fault::DeadlinePassed { executed: outcome.execution });
        }
        // What of the response waits for the application goes first, as it would have had it been taken in time.
        let Outcome { code, execution, metadata } = outcome;
        self.finish_from_grpc(turn, key, &mut Item::Finish { code, execution, body: None, metadata });
    }

    /// The server says it has not seen a request. Whether it is sent again.
    fn retry_refused(&mut self, turn: &mut Turn<'_>, at: WebStream) -> bool {
        let Self { grpc, calls, held, invariants, .. } = self;
        let Some(key) = grpc.stream(at).and_then(|stream| stream.call) else { return false };
        let Some(call) = calls.find(key) else { return false };
        let Some(placed) = call.placed else { return false };
        let is_over = call.outcome.is_some() || call.resent >= TRANSPARENT_RETRIES_MAX;
        if call.is_made_for_another() || is_over {
            return false;
        }
        let Some(mut stream) = grpc.drop_stream(&mut HeldAccounts { held, invariants }, at) else {
            return false;
        };
        let Some(replay) = stream.replay.take() else {
            let endpoint = grpc.find(at.peer).map_or_else(String::new, |peer| peer.label.clone());
            self.fail(turn, key, Fault::ConnectionLost { endpoint, executed: Execution::NotExecuted });
            return true;
        };
        let Self { calls, clusters, .. } = self;
        let Some(call) = calls.find_mut(key) else { return true };
        if let Some(placed) = call.leave_endpoint(Some(Code::Unavailable)) {
            clusters.finished(turn.now, placed, Some(Code::Unavailable), &[]);
        }
        call.resent += 1;
        call.server = ServerEnd::Cluster { cluster: placed.cluster };
        call.handed_over = false;
        (call.request.bytes, call.request.messages) = (0, 0);
        let items = replay.into_items(stream.outgoing.encoding, stream.outgoing.ended);
        for item in items.into_iter().rev() {
            call.request.backlog.push_front(item);
        }
        self.unblock(turn, key, Direction::Request);
        true
    }

    // LIFE: 19 gRPC
    /// The outcome of a call made at a gRPC server, behind whatever of the response still waits.
    fn finish_from_grpc(&mut self, turn: &mut Turn<'_>, key: CallKey, item: &mut Item<'_>) {
        let arrived = self.arrived;
        if let Some(call) = self.calls.find_mut(key) {
            call.client_stamps.k15 = arrived;
            call.client_stamps.d16 = turn.now;
        }
        self.pass(turn, key, Direction::Response, item);
    }

    /// Bytes given to the connection have left.
    fn handle_sent(&mut self, turn: &mut Turn<'_>, at: WebStream, bytes: usize) {
        let Self { grpc, held, invariants, .. } = self;
        let Some(sent) = grpc.handle_sent(&mut HeldAccounts { held, invariants }, at, bytes) else { return };
        self.credit_sender(sent.call, sent.direction, sent.credit);
        if sent.has_room {
            self.unblock(turn, sent.call, sent.direction);
        }
    }

    /// A request made here is at the socket.
    fn handle_written(&mut self, at: WebStream, written: Instant) {
        let call = self.grpc.stream(at).and_then(|stream| stream.call);
        if let Some(call) = call.and_then(|key| self.calls.find_mut(key)) {
            call.client_stamps.d4 = written;
        }
    }

    /// Those who waited for room on a connection go on, and a connection that is left and has nothing to do ends.
    pub(crate) fn settle_grpc(&mut self, turn: &mut Turn<'_>) {
        while let Some(key) = self.grpc.poll_touched() {
            while let Some((call, direction)) = self.grpc.poll_unblocked(&mut self.held, key) {
                self.unblock(turn, call, direction);
            }
            if let Some(remote) = self.grpc.close_if_left(key) {
                self.serve_pool_line(turn, remote);
            }
        }
    }

    /// Ends calls whose messages do not go on, and drops answers whose deadlines have passed before they left.
    pub(crate) fn sweep_grpc(&mut self, turn: &mut Turn<'_>, key: GrpcKey) {
        let swept = self.grpc.sweep(&mut self.timers, turn.now, key);
        for call in swept.stalled {
            let limit = self.limits.message_stall_s.into();
            self.fail(turn, call, Fault::Limit { name: STALLED, limit });
        }
        if swept.late.is_empty() {
            return;
        }
        let status = Fault::DeadlinePassed { executed: Execution::Executed }.status();
        let outcome = Outcome::of(&self.peers.said_here(&status));
        let Self { grpc, held, invariants, limits_met, .. } = self;
        let mut accounts = HeldAccounts { held, invariants };
        for at in swept.late {
            *limits_met.entry(UNSENT).or_default() += 1;
            grpc.cut_off(&mut accounts, at, &outcome);
            grpc.remove_stream(&mut accounts, at);
        }
    }
}

/// Where a call goes that a gRPC client makes.
fn target_of(call: &Call) -> Target {
    match &call.server {
        ServerEnd::Cluster { cluster } => Target::Cluster(*cluster),
        _ => Target::Here,
    }
}
