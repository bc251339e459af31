//! Requests of gRPC clients, as calls: who may make them, and where they go.

use super::WebStream;
use super::ends::GrpcEnds;
use super::outgoing::of_all_attempts;
use super::peer::GrpcPeer;
use crate::GrpcKey;
use crate::admission::AdmissionControl;
use crate::call::{Call, Calls, ClientEnd, ServerEnd};
use crate::called_paths::CalledPaths;
use crate::end_event::{EndEvent, GrpcOpening};
use crate::gateway::{Forward, Gateway, Route};
use crate::opaque::is_path;
use crate::operator::{DeniedChanges, introduced};
use crate::peer::PeerFault;
use crate::peers::PeerEnds;
use crate::registry::{is_own_service, service_of};
use crate::target::Target;
use crate::vouching::PeerRule;
use std::sync::Arc;
use trunkline_call::{Deadline, Fault, Instant, Status};
use trunkline_grpc::Outcome;
use trunkline_grpc::request::RequestHead;
use trunkline_telemetry::PeerIndex;

/// The owners that the requests of gRPC clients concern, and when the last was known to be there.
pub(crate) struct GrpcOpenings<'e> {
    pub grpc: &'e mut GrpcEnds,
    pub calls: &'e mut Calls,
    pub gateway: &'e mut Gateway,
    pub admission: &'e mut AdmissionControl,
    pub denied: &'e mut DeniedChanges,
    pub types_bound: &'e mut u64,
    pub peers: &'e PeerEnds,
    pub peer_rules: &'e [PeerRule],
    pub paths: CalledPaths<'e>,
    pub arrived: Instant,
}

impl GrpcOpenings<'_> {
    /// A gRPC client opens a call.
    ///
    /// # Errors
    /// The stream cannot be.
    pub fn handle_request(
        &mut self,
        now: Instant,
        at: WebStream,
        head: &http::request::Parts,
        end: bool,
    ) -> Result<Option<EndEvent<'static>>, PeerFault> {
        let Some(head) = self.grpc.handle_request(at, head)? else { return Ok(None) };
        let is_repeated = head.is_repeated;
        let route = match self.grpc.find(at.peer).and_then(|peer| peer.operator.as_ref()) {
            Some(operator) => {
                let CalledPaths { registry, .. } = &self.paths;
                let method = registry.own_key_of(head.path);
                let served = method
                    .and_then(|method| Some((method, self.paths.routing().types_served(method)?.pattern)));
                operator.denied(head.path).into_iter().for_each(|denied| self.denied.push(denied));
                operator.asked(head.path, served).map(|(called, pattern)| Route::here(called, pattern))
            }
            None => self.route(at.peer, &head),
        };
        match route {
            Ok(route) => Ok(Some(self.open(now, at, head, end, route))),
            Err(status) => {
                let peer = self.grpc.find(at.peer).map_or(PeerIndex::OTHER, |peer| peer.telemetry);
                self.paths.note_refused(self.arrived, now, (head.path, peer), status.code());
                let outcome = Outcome::of(&self.peers.said_here(&status));
                self.grpc.refuse(at, &of_all_attempts(&outcome, is_repeated));
                Ok(None)
            }
        }
    }

    /// Where a request goes that a gRPC client makes.
    fn route(&mut self, peer: GrpcKey, head: &RequestHead<'_>) -> Result<Route, Status> {
        let found = self.grpc.find(peer);
        let client = found.and_then(|peer| peer.client.as_ref());
        let identity = found.map_or("", |peer| peer.identity.proven());
        let comes_by_tls = found.is_some_and(|peer| peer.identity.encrypted);
        let (rules, service) = (self.peer_rules, service_of(head.path));
        match client {
            // At a port of the gateway a certificate may do what nobody may who shows none.
            Some(_) if comes_by_tls && PeerRule::permit(rules, identity, service) => {}
            Some(client) => client.check(service)?,
            None => PeerRule::check(rules, identity, service)?,
        }
        if found.is_some_and(|peer| peer.forwards) {
            return self.route_at_gateway(peer, head);
        }
        let (called, pattern) = self.paths.served(head.path).map_err(|fault| fault.status())?;
        Ok(Route::here(called, pattern))
    }

    fn route_at_gateway(&mut self, peer: GrpcKey, head: &RequestHead<'_>) -> Result<Route, Status> {
        let path = head.path;
        let service = service_of(path);
        let has_endpoints = self.paths.clusters.of_service(service).is_some();
        // What the daemon answers for want of anybody else (health, load reports) is told of the service's endpoints by
        // themselves, if the operator has said where that is.
        if let Some(called) = self.paths.called(path)
            && let Some(types) = self.paths.routing().types_served(called.method)
            && !(has_endpoints && self.paths.routing().is_stood_by(called.method))
        {
            let pattern = types.pattern;
            return Ok(Route::here(called, pattern));
        }
        let Self { gateway, grpc, admission, types_bound, paths, .. } = self;
        let Some(cluster) = paths.clusters.of_service(service).filter(|_| !is_own_service(service)) else {
            return Err(Gateway::unserved(paths.registry, path));
        };
        if !is_path(path) {
            return Err(Fault::NoMethod { path: path.to_owned() }.status());
        }
        let CalledPaths { registry, telemetry, shards, limits, .. } = paths;
        let metadata = gateway.with_hop(path, &head.metadata)?;
        let source = || grpc.find(peer).map_or_else(Box::default, GrpcPeer::source);
        let called = gateway.called(registry, telemetry, limits.methods_learned_per_service, path, source);
        let (types, plan) = gateway.types_of(registry, admission, (types_bound, shards.own().0), &called);
        let pattern = types.pattern;
        Ok(Route { called, pattern, forward: Some(Forward { types, cluster, plan, metadata }) })
    }

    // LIFE: 13 gRPC
    fn open(
        &mut self,
        now: Instant,
        at: WebStream,
        mut head: RequestHead<'_>,
        end: bool,
        route: Route,
    ) -> EndEvent<'static> {
        if let Some(operator) = self.grpc.find(at.peer).and_then(|peer| peer.operator.as_ref()) {
            head.metadata = introduced(&operator.identity, head.metadata);
        }
        let deadline = head.timeout_ns.map_or(Deadline::NONE, |ns| Deadline::at(now.plus_ns(ns)));
        let Route { called, pattern, forward } = route;
        let types = forward.as_ref().map(|forward| Arc::clone(&forward.types));
        let client = ClientEnd::Grpc { peer: at.peer, stream: at.tag, types };
        let mut call = Call::new(called.method, client, ServerEnd::Nobody, deadline);
        call.path = called.path;
        call.server_stamps.k7 = self.arrived;
        call.server_stamps.d8 = now;
        if let Some(forward) = forward {
            forward.mark(&mut call, self.arrived, now, (head.encoding, head.accepts));
            self.admission.apply(&mut call.policies, 0, forward.plan);
            head.metadata = forward.metadata;
        }
        let target = target_of(&call);
        let call = self.calls.insert(call);
        self.grpc.take_call(at, call, pattern, head.encoding, head.accepts, head.is_repeated);
        let (streams, metadata) = (pattern.client_streams(), head.metadata);
        EndEvent::Asked(GrpcOpening { at, call, target, streams, metadata, end })
    }
}

/// Where a call goes that a gRPC client makes.
pub(super) fn target_of(call: &Call) -> Target {
    match &call.server {
        ServerEnd::Cluster { cluster } => Target::Cluster(*cluster),
        _ => Target::Here,
    }
}
