//! Operators: processes that ask the daemon itself, over a socket of its own, as any gRPC client asks a server.
//!
//! Where applications and peers come in, the host's own services (package `trunkline`) are unknown, unless the
//! application is attached and may bind them. An operator's connection is the other way round: it reaches those
//! services and nothing else, and every request is held against what the host says its process may do.

use crate::registry::{Called, MethodKey, is_own_service, is_reading};
use trunkline_call::{CALLER_KEY, Code, Fault, Metadata, Pattern, Status};

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

impl Operator {
    /// The method it calls, if it may; and if anybody serves it.
    ///
    /// # Errors
    /// It may not, or there is none.
    pub(crate) fn asked(
        &self,
        path: &str,
        served: Option<(MethodKey, Pattern)>,
    ) -> Result<(Called, Pattern), Status> {
        if !is_own_service(path.trim_start_matches('/')) {
            return Err(Fault::NoMethod { path: path.to_owned() }.status());
        }
        let may = if is_reading(path) { &self.reads } else { &self.changes };
        if let Err(why) = may {
            return Err(Status::new(Code::PermissionDenied, format!("{path}: {why}")));
        }
        match served {
            Some((method, pattern)) => Ok((Called { method, path: None }, pattern)),
            _ => Err(Fault::NoMethod { path: path.to_owned() }.status()),
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
