//! What the gateway is told and remembers: its settings, who came to it and what it may call, methods that go on.

use crate::admission::Applicant;
use crate::cluster::ClusterKey;
use crate::opaque::shown;
use crate::registry::{BoundSchema, Called, MessageType, MethodKey, MethodTypes};
use crate::unproven::Unproven;
use std::sync::Arc;
use trunkline_call::{Code, Execution, KeyedMap, Pattern, Status};
use trunkline_policy::{Chain, Plan, PolicyError, Side};

/// What policies know the gateway's calls by, where others have the name of the application that makes them.
pub(crate) const APPLICATION: &str = "gateway";

/// The gateway as policies know it.
pub(crate) const APPLICANT: Applicant<'static> = Applicant { side: Side::Client, application: APPLICATION };

/// Plans kept for methods that are not told apart.
const PLANS_MAX: usize = 256;

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

/// What the engine knows of the gateway.
#[derive(Debug, Default)]
pub(crate) struct Gateway {
    pub settings: GatewaySettings,
    /// Methods that were called and go on. Bounded as the registry is.
    pub methods: KeyedMap<MethodKey, Forwarded>,
    /// Those of them under which nobody has answered.
    pub unproven: Unproven<MethodKey>,
    /// What calls of further methods pass, by path, so that not every call has policies compiled. At most
    /// [`PLANS_MAX`].
    plans: KeyedMap<Box<str>, Option<Arc<Plan>>>,
}

/// A method that goes on.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub types: Arc<MethodTypes>,
    /// The request's type, if the operator has told it.
    pub message: Option<MessageType>,
    /// The policies its calls pass, once they have been looked up.
    pub plan: Option<Option<Arc<Plan>>>,
}

/// Where a request of a gRPC client goes.
pub(crate) struct Route {
    pub called: Called,
    pub pattern: Pattern,
    /// To endpoints; else to applications of this host.
    pub forward: Option<Forward>,
}

/// How a call goes on.
pub(crate) struct Forward {
    pub types: Arc<MethodTypes>,
    pub cluster: ClusterKey,
    pub plan: Option<Arc<Plan>>,
    /// The request's, with its hops.
    pub metadata: Vec<u8>,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self { hops_max: 4, schemas: Vec::new() }
    }
}

impl Forwarded {
    pub fn new(number: u64, path: &str, settings: &GatewaySettings) -> Self {
        let known = settings.method(path);
        let opaque = MethodTypes::opaque(path, false);
        let pattern = known.as_ref().map_or(opaque.pattern, |(pattern, _)| *pattern);
        let types = Arc::new(MethodTypes { number, pattern, ..opaque });
        Self { types, message: known.map(|(_, message)| message), plan: None }
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

impl Gateway {
    /// One that works so.
    pub fn new(settings: GatewaySettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// What a call passes whose method is not told apart.
    pub fn plan_of(&mut self, chain: &mut Chain, types: &MethodTypes, path: &str) -> Option<Arc<Plan>> {
        if let Some(plan) = self.plans.get(path) {
            return plan.clone();
        }
        let plan = APPLICANT.plan(chain, types, path).0;
        if self.plans.len() >= PLANS_MAX {
            self.plans.clear();
        }
        self.plans.insert(path.into(), plan.clone());
        plan
    }

    /// Whether a chain fits every method the operator has told the types of.
    ///
    /// # Errors
    /// The first policy that does not.
    pub fn check(&self, chain: &mut Chain) -> Result<(), PolicyError> {
        let services = self.settings.schemas.iter().flat_map(|schema| schema.schema.services());
        for method in services.flat_map(|service| &service.methods) {
            let Some((pattern, message)) = self.settings.method(&method.path) else { continue };
            let types = MethodTypes { pattern, ..MethodTypes::opaque(&method.path, false) };
            let (_, misfit) = APPLICANT.plan_by(chain, &types, Some(&message), &method.path);
            misfit.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// The chain has been exchanged.
    pub fn forget_plans(&mut self) {
        self.methods.values_mut().for_each(|known| known.plan = None);
        self.plans.clear();
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

impl Route {
    /// To applications of this host.
    pub fn here(called: Called, pattern: Pattern) -> Self {
        Self { called, pattern, forward: None }
    }
}
