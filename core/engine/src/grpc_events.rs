//! What an HTTP/2 connection to a peer that speaks gRPC says, turned into items.
//!
//! The connection may be one a gRPC client made to us (its streams are calls for sessions of this host) or one dialled
//! for an endpoint (its streams are calls sessions made). Either way a stream is one call; `grpc_body.rs` makes
//! messages of its bytes, `grpc_end.rs` is the way back.

use crate::call::{Call, ClientEnd, Direction, Item, ServerEnd};
use crate::engine::{Engine, Turn};
use crate::gateway_client::Route;
use crate::grpc_peer::{GrpcPeer, PeerIdentity, report_name};
use crate::grpc_stream::{Ending, GrpcStream};
use crate::operator::{Operator, introduced};
use crate::peer::PeerFault;
use crate::registry::Called;
use crate::served_later::unserved_here;
use crate::{CallKey, GrpcKey, RemoteKey};
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Fault, Instant, Metadata, Pattern, Status};
use trunkline_grpc::compress::{Accepts, Encoding};
use trunkline_grpc::request::{self, Refusal, RequestHead};
use trunkline_grpc::response::{self, ResponseHead};
use trunkline_grpc::{Command, Event, Outcome, Reason, StreamTag};

impl Engine {
    /// Takes in an HTTP/2 connection somebody made to us. `label` is its address, for operators.
    pub fn accept_grpc(&mut self, now: Instant, label: String, identity: PeerIdentity) -> GrpcKey {
        let _ = now;
        let key = self.insert_grpc(label, identity, None);
        if self.draining {
            self.http(key, Command::GoAway);
        }
        key
    }

    /// Takes in an HTTP/2 connection of an operator.
    pub fn accept_operator(&mut self, now: Instant, operator: Operator) -> GrpcKey {
        let label = format!("operator {}", operator.identity);
        let key = self.accept_grpc(now, label, PeerIdentity::default());
        if let Some(peer) = self.grpc_peers.find_mut(key) {
            peer.operator = Some(operator);
        }
        key
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
        self.discard_abandoned(turn);
        match event {
            Event::Ready { streams_max } => self.grpc_ready(peer, streams_max),
            Event::Request { stream, head, end } => self.handle_request(turn, peer, stream, &head, end)?,
            Event::Response { stream, head, end } => self.handle_response(turn, peer, stream, &head, end),
            Event::Data { stream, bytes, end } => self.handle_data(turn, peer, stream, bytes, end),
            Event::Trailers { stream, trailers } => {
                let outcome = response::parse_trailers(&trailers, &self.grpc.heads);
                self.handle_ending(turn, peer, stream, Ending::Outcome(outcome));
            }
            Event::Reset { stream, reason } => self.handle_reset(turn, peer, stream, reason),
            Event::Sent { stream, bytes } => self.handle_sent(turn, peer, stream, bytes),
            Event::Written { stream, at } => self.handle_written(peer, stream, at),
            Event::GoAway { .. } => self.grpc_leaving(turn, peer),
            Event::StreamsMax { streams_max } => self.grpc_streams_max(peer, streams_max),
        }
        self.go_on(turn);
        Ok(())
    }

    /// What a connection is to do next.
    pub fn poll_http(&mut self) -> Option<(GrpcKey, Command)> {
        self.commands.pop_front()
    }

    /// The connection is over: calls made over it end, and so do calls that came from it.
    pub fn grpc_lost(&mut self, turn: &mut Turn<'_>, key: GrpcKey, why: &str) {
        let Some(peer) = self.grpc_peers.find_mut(key) else { return };
        let streams = std::mem::take(&mut peer.streams);
        let calls = streams.into_values().filter_map(|stream| stream.call);
        match peer.remote {
            None => {
                // Whose calls they were is known until they have ended: the access log names it.
                calls.for_each(|call| self.cancel(turn, call));
                self.remove_grpc(turn.now, key);
            }
            Some(remote) => {
                let endpoint = std::mem::take(&mut peer.label);
                self.remove_grpc(turn.now, key);
                calls.for_each(|call| self.server_lost(turn, call, &endpoint));
                self.pooled_lost(turn, remote, key, why);
            }
        }
        self.go_on(turn);
    }

    /// Takes a connection out of the table, and what it had out of the books.
    fn remove_grpc(&mut self, now: Instant, key: GrpcKey) {
        let Some(peer) = self.grpc_peers.remove(key) else { return };
        self.held.leave(peer.holding);
        if let Some((_, timer)) = peer.sweep {
            self.timers.cancel(timer);
        }
        self.note_host_left(now, peer.telemetry);
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

    /// A command for a connection.
    pub(crate) fn http(&mut self, peer: GrpcKey, command: Command) {
        self.commands.push_back((peer, command));
    }

    pub(crate) fn insert_grpc(
        &mut self,
        label: String,
        identity: PeerIdentity,
        remote: Option<RemoteKey>,
    ) -> GrpcKey {
        let telemetry = self.telemetry.peer(&report_name(&label, remote.is_some()), false);
        self.host_numbers.join(telemetry);
        self.grpc_peers.insert(GrpcPeer::new(label, identity, remote, telemetry))
    }

    pub(crate) fn grpc_stream(&mut self, peer: GrpcKey, tag: StreamTag) -> Option<&mut GrpcStream> {
        self.grpc_peers.find_mut(peer)?.streams.get_mut(&tag).map(Box::as_mut)
    }

    /// A gRPC client opens a call.
    fn handle_request(
        &mut self,
        turn: &mut Turn<'_>,
        peer: GrpcKey,
        tag: StreamTag,
        head: &http::request::Parts,
        end: bool,
    ) -> Result<(), PeerFault> {
        let Some(found) = self.grpc_peers.find(peer) else { return Ok(()) };
        if found.remote.is_some() || found.streams.contains_key(&tag) {
            return Err(PeerFault(format!("stream {tag:?} cannot be opened by the peer")));
        }
        let is_head = head.method == http::Method::HEAD;
        let head = match request::parse(head, &self.grpc.heads) {
            Ok(head) => head,
            Err(refusal) => {
                self.refuse_head(peer, tag, refusal, is_head);
                return Ok(());
            }
        };
        let here = |(called, pattern)| Route::here(called, pattern);
        let route = match self.grpc_peers.find(peer) {
            Some(GrpcPeer { operator: Some(operator), .. }) => {
                let method = self.registry.own_key_of(head.path);
                let served = method.and_then(|method| Some((method, self.types_served(method)?.pattern)));
                operator.denied(head.path).into_iter().for_each(|denied| self.denied.push(denied));
                operator.asked(head.path, served).map(here)
            }
            _ => self.route_from_grpc(peer, &head),
        };
        match route {
            Ok(route) => self.open_from_grpc(turn, peer, tag, head, end, route),
            Err(status) => self.refuse_request(peer, tag, &status),
        }
        Ok(())
    }

    // LIFE: 13 gRPC
    fn open_from_grpc(
        &mut self,
        turn: &mut Turn<'_>,
        peer: GrpcKey,
        tag: StreamTag,
        mut head: RequestHead<'_>,
        end: bool,
        route: Route,
    ) {
        if let Some(operator) = self.grpc_peers.find(peer).and_then(|peer| peer.operator.as_ref()) {
            head.metadata = introduced(&operator.identity, head.metadata);
        }
        let deadline = head.timeout_ns.map_or(Deadline::NONE, |ns| Deadline::at(turn.now.plus_ns(ns)));
        let Route { called, pattern, forward } = route;
        let types = forward.as_ref().map(|forward| Arc::clone(&forward.types));
        let client = ClientEnd::Grpc { peer, stream: tag, types };
        let mut call = Call::new(called.method, client, ServerEnd::Nobody, deadline);
        call.path = called.path;
        call.server_stamps.k7 = self.arrived;
        call.server_stamps.d8 = turn.now;
        let key = self.calls.insert(call);
        if let Some(forward) = forward {
            head.metadata = self.forward(turn.now, key, forward, head.encoding, head.accepts);
        }
        let mut stream = GrpcStream::taken(key, pattern, head.encoding, self.limits.grpc_bytes_max());
        stream.outgoing.accepts = head.accepts;
        stream.outgoing.encoding = self.grpc.answer_encoding(head.accepts);
        if let Some(found) = self.grpc_peers.find_mut(peer) {
            found.streams.insert(tag, Box::new(stream));
        }
        if let Err(fault) = self.admit(turn, key, &head.metadata, 0) {
            return self.fail(turn, key, fault);
        }
        if pattern.client_streams() {
            let metadata = Cow::Owned(head.metadata);
            let target = self.target_from_grpc(key);
            return self.start(turn, key, target, &mut Item::Open { metadata, body: None, end });
        }
        let opening_bytes = head.metadata.len() as isize;
        if let Some(stream) = self.grpc_stream(peer, tag) {
            stream.incoming.opening = Some(head.metadata);
        }
        self.note_held(peer, opening_bytes);
        if end {
            self.handle_ending(turn, peer, tag, Ending::Body);
        } else if let Err(fault) = self.may_hold_unfinished(turn.now, peer, tag) {
            self.fail(turn, key, fault);
        }
    }

    /// The method at this path, if sessions of this host serve it.
    pub(crate) fn served(&mut self, path: &str) -> Result<(Called, Pattern), Fault> {
        let unknown = |this: &Self| {
            unserved_here(this, path).unwrap_or_else(|| Fault::NoMethod { path: path.to_owned() })
        };
        let Some(called) = self.method_called(path) else { return Err(unknown(self)) };
        let method = called.method;
        match self.types_served(method) {
            Some(types) => Ok((called, types.pattern)),
            // Somebody served it and is away: to try again is sound, and UNIMPLEMENTED would say it is not.
            None if self.registry.was_served(method) => {
                Err(Fault::NoRoute { what: crate::registry::service_of(path).to_owned() })
            }
            None => Err(unknown(self)),
        }
    }

    /// A head that is no call's is answered, with a body for a person if it was not even gRPC's.
    fn refuse_head(&mut self, peer: GrpcKey, tag: StreamTag, refusal: Refusal, is_head: bool) {
        let end = is_head || !refusal.has_body();
        self.http(peer, Command::Response { stream: tag, head: refusal.into_head(), end });
        if !end {
            let bytes = Bytes::from_static(Refusal::TEXT.as_bytes());
            self.http(peer, Command::Data { stream: tag, bytes, end: true });
        }
    }

    /// Answers a request that never becomes a call.
    fn refuse_request(&mut self, peer: GrpcKey, tag: StreamTag, status: &Status) {
        let head = Box::new(response::trailers_only(&Outcome::of(&self.said_here(status))));
        self.http(peer, Command::Response { stream: tag, head, end: true });
    }

    /// A gRPC server answers.
    fn handle_response(
        &mut self,
        turn: &mut Turn<'_>,
        peer: GrpcKey,
        tag: StreamTag,
        head: &http::response::Parts,
        end: bool,
    ) {
        self.commit(peer, tag);
        self.note_accepts(peer, tag, head);
        let head = response::parse(head, end, &self.grpc.heads);
        let Some(stream) = self.grpc_stream(peer, tag) else { return };
        stream.incoming.answered = true;
        let Some(call) = stream.call else { return };
        match head {
            ResponseHead::Headers { metadata, encoding, .. } => {
                stream.incoming.encoding = encoding;
                self.response_begun(turn, call);
                self.pass_encoding_on(call, encoding);
                let opaque = self.calls.find(call).is_some_and(Call::is_made_opaque);
                // A head without metadata says nothing to the application, unless that waits for the answer to begin.
                let words = match metadata.is_empty() {
                    true => opaque.then(|| Metadata::NO_PAIRS.to_vec()),
                    false => Some(metadata),
                };
                if let Some(words) = words {
                    let mut item = Item::Headers { metadata: Cow::Owned(words) };
                    self.pass(turn, call, Direction::Response, &mut item);
                }
            }
            ResponseHead::Ended(outcome) => {
                self.handle_ending(turn, peer, tag, Ending::Outcome(outcome));
            }
        }
    }

    /// A server says which encodings it reads, and the request was in another.
    fn note_accepts(&mut self, key: GrpcKey, tag: StreamTag, head: &http::response::Parts) {
        let Some(peer) = self.grpc_peers.find_mut(key) else { return };
        let Some(stream) = peer.streams.get(&tag) else { return };
        let (sent, call) = (stream.outgoing.encoding, stream.call);
        if sent == Encoding::Identity {
            return;
        }
        if let Some(accepts) = Accepts::said(&head.headers).filter(|accepts| !accepts.contains(sent)) {
            peer.accepts = accepts;
            if let Some(call) = call {
                self.pass_refusal_on(call, accepts);
            }
        }
    }

    /// The stream is over before its time.
    fn handle_reset(&mut self, turn: &mut Turn<'_>, peer: GrpcKey, tag: StreamTag, reason: Reason) {
        let made = self.grpc_peers.find(peer).is_some_and(|peer| peer.remote.is_some());
        let answered = self.grpc_stream(peer, tag).is_some_and(|stream| stream.incoming.answered);
        let refused = made && reason == Reason::REFUSED_STREAM && !answered;
        if refused && self.retry_refused(turn, peer, tag) {
            return;
        }
        // The answer is whole and waits its turn: what comes of the request is nobody's business.
        let waits = |stream: &mut GrpcStream| stream.call.is_some() && stream.incoming.ended.is_some();
        if made && self.grpc_stream(peer, tag).is_some_and(waits) {
            return;
        }
        let Some(stream) = self.remove_grpc_stream(peer, tag) else { return };
        self.release_bytes(peer, tag, stream.incoming.unreleased);
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
        let mut item = Item::Finish { code, execution, body: None, metadata };
        self.finish_from_grpc(turn, key, &mut item);
    }

    // LIFE: 19 gRPC
    /// The outcome of a call made at a gRPC server, behind whatever of the response still waits.
    pub(crate) fn finish_from_grpc(&mut self, turn: &mut Turn<'_>, key: CallKey, item: &mut Item<'_>) {
        let arrived = self.arrived;
        if let Some(call) = self.calls.find_mut(key) {
            call.client_stamps.k15 = arrived;
            call.client_stamps.d16 = turn.now;
        }
        self.pass(turn, key, Direction::Response, item);
    }
}
