//! The gateway: calls of gRPC clients that go on to the endpoints this host has.
//!
//! A client that comes where the host has a gateway calls whatever applications of this host serve, and every service
//! that has endpoints here. In the second case both ends of a call are connections, and what holds for the calls of
//! this host's applications holds for it: service config, policies of the client's side, balancing, attempts. It is
//! recorded as a call that was made here.
//!
//! Its messages are protobuf that nobody reads: to a gRPC server, to R2P2 and to another daemon (as a call of an
//! application without types) they go as they came; between gRPC peers compressed ones, too (`packing.rs`). Only a
//! policy that looks at messages has them decoded, by a descriptor set of the operator's; what is sent on is still what
//! came.
//!
//! A header counts the gateways on the way. Endpoints that lead back to a gateway end as a refusal, not as a circle.

use crate::call::{Call, ClientEnd, Direction, ServerEnd};
use crate::engine::{Engine, Turn};
use crate::gateway_client::{APPLICANT, CallRights, Forward, Forwarded, Gateway, GatewaySettings, Route};
use crate::grpc_peer::{GrpcPeer, PeerIdentity};
use crate::opaque::{is_path, shown};
use crate::registry::{Called, MessageType, MethodTypes, is_own_service, service_of};
use crate::target::Target;
use crate::unproven::Whose;
use crate::vouching::PeerRule;
use crate::{CallKey, GrpcKey};
use std::sync::Arc;
use trunkline_call::{
    Code, Execution, Fault, Instant, MetadataError, MetadataReader, MetadataWriter, Status,
};
use trunkline_grpc::compress::{Accepts, Encoding};
use trunkline_grpc::request::RequestHead;
use trunkline_policy::Plan;

/// Counts the gateways a call has passed.
const HOPS_KEY: &str = "trunkline-hops";

impl Engine {
    /// How the gateway works; [`GatewaySettings::default`] until this is called. To be called before policies are
    /// applied.
    pub fn configure_gateway(&mut self, settings: GatewaySettings) {
        self.gateway = Gateway::new(settings);
    }

    /// Takes in an HTTP/2 connection of a client of the gateway. `label` is its address, for operators.
    pub fn accept_at_gateway(
        &mut self,
        now: Instant,
        label: String,
        identity: PeerIdentity,
        client: CallRights,
    ) -> GrpcKey {
        let key = self.accept_user(now, label, identity, client);
        if let Some(peer) = self.grpc_peers.find_mut(key) {
            peer.forwards = true;
        }
        key
    }

    /// Takes in an HTTP/2 connection of a user of this host, for what its applications serve.
    pub fn accept_user(
        &mut self,
        now: Instant,
        label: String,
        identity: PeerIdentity,
        client: CallRights,
    ) -> GrpcKey {
        let key = self.accept_grpc(now, label, identity);
        if let Some(peer) = self.grpc_peers.find_mut(key) {
            peer.client = Some(client);
        }
        key
    }

    /// Where a request goes that a gRPC client makes.
    pub(crate) fn route_from_grpc(&mut self, peer: GrpcKey, head: &RequestHead<'_>) -> Result<Route, Status> {
        let found = self.grpc_peers.find(peer);
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
        let (called, pattern) = self.served(head.path).map_err(|fault| fault.status())?;
        Ok(Route::here(called, pattern))
    }

    fn route_at_gateway(&mut self, peer: GrpcKey, head: &RequestHead<'_>) -> Result<Route, Status> {
        let path = head.path;
        let service = service_of(path);
        let has_endpoints = self.clusters.of_service(service).is_some();
        // What the daemon answers for want of anybody else (health, load reports) is told of the service's endpoints by
        // themselves, if the operator has said where that is.
        if let Some(called) = self.method_called(path)
            && let Some(types) = self.types_served(called.method)
            && !(has_endpoints && self.is_stood_by(called.method))
        {
            let pattern = types.pattern;
            return Ok(Route::here(called, pattern));
        }
        let Some(cluster) = self.clusters.of_service(service).filter(|_| !is_own_service(service)) else {
            return Err(self.unserved_at_gateway(path));
        };
        if !is_path(path) {
            return Err(Fault::NoMethod { path: path.to_owned() }.status());
        }
        let metadata = self.with_hop(path, &head.metadata)?;
        let called = self.method_forwarded(peer, path);
        let (types, plan) = self.forwarded(&called);
        let pattern = types.pattern;
        Ok(Route { called, pattern, forward: Some(Forward { types, cluster, plan, metadata }) })
    }

    /// Makes a call one that goes on. Returns its metadata.
    pub(crate) fn forward(
        &mut self,
        now: Instant,
        key: CallKey,
        forward: Forward,
        encoding: Encoding,
        accepts: Accepts,
    ) -> Vec<u8> {
        let arrived = self.arrived;
        if let Some(call) = self.calls.find_mut(key) {
            call.server = ServerEnd::Cluster { cluster: forward.cluster };
            let stamps = &mut call.client_stamps;
            (stamps.a0, stamps.a1, stamps.d2) = (arrived, arrived, now);
            // As it came, unless a policy says otherwise.
            call.request_encoding = (encoding != Encoding::Identity).then_some(encoding);
            (call.keeps_encoding, call.accepts) = (call.request_encoding.is_some(), accepts);
        }
        self.enlist(key, 0, forward.plan);
        forward.metadata
    }

    /// Where a call goes that a gRPC client makes.
    pub(crate) fn target_from_grpc(&self, key: CallKey) -> Target {
        match self.calls.find(key).map(|call| &call.server) {
            Some(ServerEnd::Cluster { cluster }) => Target::Cluster(*cluster),
            _ => Target::Here,
        }
    }

    /// The answer to a call that was forwarded is compressed as its server has compressed it, if its client reads that.
    pub(crate) fn pass_encoding_on(&mut self, key: CallKey, encoding: Encoding) {
        if encoding != Encoding::Identity
            && let Some(call) = self.calls.find(key)
            && let ClientEnd::Grpc { peer, stream, types: Some(_) } = call.client
            && let Some(stream) = self.grpc_stream(peer, stream)
        {
            stream.outgoing.encoding = stream.outgoing.accepts.or_identity(encoding);
        }
    }

    /// A server has said which encodings it reads, and the one of its client's request is not among them: its client
    /// hears that as it was said.
    pub(crate) fn pass_refusal_on(&mut self, key: CallKey, accepts: Accepts) {
        let key = match self.calls.find(key).map(|call| &call.client) {
            Some(ClientEnd::Attempt { call, .. }) => *call,
            _ => key,
        };
        if let Some(call) = self.calls.find(key)
            && let ClientEnd::Grpc { peer, stream, types: Some(_) } = call.client
            && let Some(stream) = self.grpc_stream(peer, stream)
        {
            stream.outgoing.reads = accepts;
        }
    }

    /// A call that was forwarded goes on as its attempt: its client's stream is that one's.
    pub(crate) fn name_stream_of(&mut self, call: &Call, attempt: CallKey) {
        if let ClientEnd::Grpc { peer, stream, .. } = call.client
            && let Some(stream) = self.grpc_stream(peer, stream)
        {
            stream.call = Some(attempt);
        }
    }

    /// What waits as bytes of the stream of a call that was forwarded may follow what waited as items.
    pub(crate) fn pump_forwarded(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        if self.calls.find(key).is_some_and(Call::is_forwarded) {
            self.unblock(turn, key, Direction::Request);
        }
    }

    /// Whether the answer to a call, or to the call it is an attempt of, is for a gRPC client: who cannot follow to
    /// another process, and is waited for.
    pub(crate) fn is_for_grpc_client(&self, key: CallKey) -> bool {
        let Some(call) = self.calls.find(key) else { return false };
        match call.client {
            ClientEnd::Attempt { call, .. } => self.calls.find(call).is_some_and(Call::is_forwarded),
            _ => call.is_forwarded(),
        }
    }

    /// The request's type of a call that is forwarded, if the operator has told it.
    pub(crate) fn message_at_gateway(&self, call: &Call) -> Option<MessageType> {
        let known = call.is_forwarded() && call.path.is_none();
        known.then(|| self.gateway.methods.get(&call.method)).flatten()?.message.clone()
    }

    /// Why a method is not called that nobody serves here and nobody elsewhere.
    fn unserved_at_gateway(&self, path: &str) -> Status {
        let service = service_of(path);
        let was_served = self.registry.key_of(path).is_some_and(|method| self.registry.was_served(method));
        if was_served {
            return Fault::NoRoute { what: service.to_owned() }.status();
        }
        let (path, service) = (shown(path), shown(service));
        let why = format!(
            "{path}: no application of this host serves {service}, and it has no endpoints: to have its calls \
             forwarded, write services.{service:?}.endpoints in the daemon's configuration"
        );
        Status::new(Code::Unimplemented, why).with_execution(Execution::NotExecuted)
    }

    /// Metadata of a request that goes on, if it may.
    fn with_hop(&self, path: &str, metadata: &[u8]) -> Result<Vec<u8>, Status> {
        let max = self.gateway.settings.hops_max;
        let malformed = |error: MetadataError| Fault::MalformedMetadata { why: error.to_string() }.status();
        match hops_of(metadata).map_err(malformed)? {
            Some(hops) if hops < max => with_hops(metadata, hops + 1).map_err(|_| full()),
            None => with_first_hop(metadata).map_err(|_| full()),
            Some(_) => {
                let (path, service) = (shown(path), shown(service_of(path)));
                let why = format!(
                    "{path} has passed {max} gateways, as many as gateway.hops_max allows: the endpoints of \
                     {service} lead back to a gateway; look at services.{service:?}.endpoints on each of them"
                );
                Err(Status::new(Code::FailedPrecondition, why).with_execution(Execution::NotExecuted))
            }
        }
    }

    /// A server has answered a call of a client of the gateway: its method is there.
    pub(crate) fn note_answered(&mut self, key: CallKey) {
        if let Some(call) = self.calls.find(key).filter(|call| call.is_forwarded()) {
            self.gateway.unproven.answered(call.method);
        }
    }

    fn method_forwarded(&mut self, peer: GrpcKey, path: &str) -> Called {
        if let Some(method) = self.registry.key_of(path) {
            return Called { method, path: None };
        }
        let telemetry = &mut self.telemetry;
        if self.gateway.settings.method(path).is_some() {
            let path = Arc::from(path);
            let method = self.registry.intern(&path, || telemetry.method(&path));
            return Called { method, path: None };
        }
        let client = self.grpc_peers.find(peer).map_or_else(Box::default, GrpcPeer::source);
        let whose = Whose { client, service: service_of(path).into() };
        let max = self.limits.methods_learned_per_service;
        let may_learn = if self.gateway.unproven.has_room(&whose, max) { max } else { 0 };
        let method = self.registry.learn_forwarded(path, may_learn, |path| telemetry.method(path));
        if &**self.registry.path(method) != path {
            return Called { method, path: Some(path.into()) };
        }
        self.gateway.unproven.bring(method, whose);
        Called { method, path: None }
    }

    /// The types of a method that goes on, and what its calls pass.
    fn forwarded(&mut self, called: &Called) -> (Arc<MethodTypes>, Option<Arc<Plan>>) {
        if let Some(path) = &called.path {
            // One of very many: nothing is kept of it, not even a number. A call that needs one ends with its
            // connection.
            let types = Arc::new(MethodTypes::opaque(path, false));
            let plan = self.gateway.plan_of(self.admission.chain_mut(), &types, path);
            return (types, plan);
        }
        let Self { gateway: Gateway { settings, methods, .. }, registry, admission, shards, .. } = self;
        let types_bound = &mut self.types_bound;
        let known = methods.entry(called.method).or_insert_with(|| {
            let number = MethodTypes::next_number(types_bound, shards.own().0);
            Forwarded::new(number, registry.path(called.method), settings)
        });
        let Forwarded { types, message, plan } = known;
        let plan = plan.get_or_insert_with(|| {
            let path = Arc::clone(&types.path);
            let (plan, misfit) = APPLICANT.plan_by(admission.chain_mut(), types, message.as_ref(), &path);
            admission.note_misfit(misfit);
            plan
        });
        (Arc::clone(types), plan.clone())
    }
}

/// The gateways a request has passed, if it has passed any. What is no number is more than any limit.
fn hops_of(metadata: &[u8]) -> Result<Option<u32>, MetadataError> {
    for pair in MetadataReader::read(metadata)? {
        let (key, value) = pair?;
        if key == HOPS_KEY {
            let hops = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            return Ok(Some(hops.unwrap_or(u32::MAX)));
        }
    }
    Ok(None)
}

/// A request's metadata, which has been read and says nothing of hops, with the first.
fn with_first_hop(metadata: &[u8]) -> Result<Vec<u8>, MetadataError> {
    let mut out = MetadataWriter::behind(metadata, HOPS_KEY.len() + 16)?;
    out.insert(HOPS_KEY, b"1")?;
    Ok(out.into_bytes())
}

/// A request's metadata with so many hops.
fn with_hops(metadata: &[u8], hops: u32) -> Result<Vec<u8>, MetadataError> {
    let mut out = MetadataWriter::with_capacity(metadata.len() + HOPS_KEY.len() + 16);
    for pair in MetadataReader::read(metadata)? {
        let (key, value) = pair?;
        if key != HOPS_KEY {
            out.insert(key, value)?;
        }
    }
    out.insert(HOPS_KEY, hops.to_string().as_bytes())?;
    Ok(out.into_bytes())
}

fn full() -> Status {
    let limit = trunkline_call::Metadata::BYTES_MAX as u64;
    Fault::Limit { name: "bytes of metadata with what the gateway adds (fixed)", limit }.status()
}
