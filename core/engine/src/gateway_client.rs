//! What the gateway is told: its settings, who came to it and what it may call.

use crate::admission::Applicant;
use crate::opaque::shown;
use crate::registry::{BoundSchema, MessageType};
use std::sync::Arc;
use trunkline_call::{Code, Execution, Pattern, Status};
use trunkline_policy::Side;

/// What policies know the gateway's calls by, where others have the name of the application that makes them.
pub(crate) const APPLICATION: &str = "gateway";

/// The gateway as policies know it.
pub(crate) const APPLICANT: Applicant<'static> = Applicant { side: Side::Client, application: APPLICATION };

/// How the gateway works.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Gateways a call may pass, this one among them.
    pub hops_max: u32,
    /// Services whose messages policies may look at, by the operator's word.
    pub schemas: Vec<Arc<BoundSchema>>,
}

/// What a user of this host may call that came over a socket, or a client of the gateway.
#[derive(Clone, Debug)]
pub struct CallRights {
    /// For whoever reads that a call was refused: `uid 1000, gid 1000`.
    pub who: Box<str>,
    /// In order: the first that names a service decides; a service none of them names may be called.
    pub rules: Arc<[CallRule]>,
}

/// Whether one client may call a service, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRule {
    /// `search.v1.Search`, `search.v1.*` or `*`.
    pub service: Box<str>,
    /// Whether it may.
    pub permits: bool,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self { hops_max: 4, schemas: Vec::new() }
    }
}

impl GatewaySettings {
    /// A method of one of the schemas: its pattern, and its request's type.
    pub(crate) fn method(&self, path: &str) -> Option<(Pattern, MessageType)> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        self.schemas.iter().find_map(|schema| {
            let method = schema.schema.method(service, method)?;
            let pattern = Pattern::of(method.client_streaming, method.server_streaming);
            Some((pattern, MessageType::new(schema, method.input)))
        })
    }
}

impl CallRights {
    pub(crate) fn check(&self, service: &str) -> Result<(), Status> {
        match self.rules.iter().find(|rule| rule.names(service)) {
            Some(rule) if !rule.permits => {
                let (who, pattern, service) = (&self.who, &rule.service, shown(service));
                let why = format!(
                    "{who} may not call {service}: [[call]] for {pattern:?} in the daemon's configuration says who \
                     may"
                );
                Err(Status::new(Code::PermissionDenied, why).with_execution(Execution::NotExecuted))
            }
            _ => Ok(()),
        }
    }
}

impl CallRule {
    fn names(&self, service: &str) -> bool {
        match self.service.strip_suffix('*') {
            Some(prefix) => service.starts_with(prefix),
            None => &*self.service == service,
        }
    }
}
