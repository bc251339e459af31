//! Operators: processes that ask the daemon itself, over a socket of its own, as any gRPC client asks a server.
//!
//! Where applications and peers come in, the host's own services (package `trunkline`) are unknown, unless the
//! application is attached and may bind them. An operator's connection is the other way round: it reaches those
//! services and nothing else, and every request is held against what the host says its process may do.

use crate::GrpcKey;
use crate::engine::Engine;
use crate::opaque::Called;
use crate::registry::{is_own_service, is_reading};
use trunkline_call::{CALLER_KEY, Code, Fault, Instant, Metadata, Pattern, Status};

/// A process that asks the daemon itself, and what it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Who it is, by the kernel's word; what the audit log says of it.
    pub identity: String,
    /// Whether it may look; else why not.
    pub reads: Result<(), String>,
    /// Whether it may change something; else why not.
    pub changes: Result<(), String>,
}

impl Engine {
    /// Takes in an HTTP/2 connection of an operator.
    pub fn accept_operator(&mut self, now: Instant, operator: Operator) -> GrpcKey {
        let label = format!("operator {}", operator.identity);
        let key = self.accept_grpc(now, label, Default::default());
        if let Some(peer) = self.grpc_peers.find_mut(key) {
            peer.operator = Some(operator);
        }
        key
    }

    /// The method an operator calls; `None` if the peer is none.
    pub(crate) fn asked_by_operator(
        &self,
        peer: GrpcKey,
        path: &str,
    ) -> Option<Result<(Called, Pattern), Status>> {
        let operator = self.grpc_peers.find(peer)?.operator.as_ref()?;
        if !is_own_service(path.trim_start_matches('/')) {
            return Some(Err(Fault::NoMethod { path: path.to_owned() }.status()));
        }
        let may = if is_reading(path) { &operator.reads } else { &operator.changes };
        if let Err(why) = may {
            return Some(Err(Status::new(Code::PermissionDenied, format!("{path}: {why}"))));
        }
        let method = self.registry.own_key_of(path);
        let server = method.and_then(|method| self.registry.servers(method).first());
        Some(match (method, server) {
            (Some(method), Some(server)) => Ok((Called { method, path: None }, server.types.pattern)),
            _ => Err(Fault::NoMethod { path: path.to_owned() }.status()),
        })
    }

    /// What an operator's request says of itself, with who it is.
    pub(crate) fn introduce_operator(&self, peer: GrpcKey, metadata: Vec<u8>) -> Vec<u8> {
        match self.grpc_peers.find(peer).and_then(|peer| peer.operator.as_ref()) {
            Some(operator) => introduced(&operator.identity, metadata),
            None => metadata,
        }
    }
}

/// Metadata that says who calls, whatever it said before.
pub(crate) fn introduced(identity: &str, metadata: Vec<u8>) -> Vec<u8> {
    // What is malformed is refused with the call.
    let Ok(mut decoded) = Metadata::decode(&metadata) else { return metadata };
    decoded.remove(CALLER_KEY);
    if decoded.insert(CALLER_KEY, identity).is_err() {
        return Vec::new();
    }
    let mut introduced = Vec::with_capacity(decoded.encoded_len());
    decoded.encode(&mut introduced);
    introduced
}
