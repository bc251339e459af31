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

use crate::admission::AdmissionControl;
use crate::call::{Call, ClientEnd, Direction, ServerEnd};
use crate::cluster::ClusterKey;
use crate::gateway_client::{APPLICANT, GatewaySettings};
use crate::opaque::shown;
use crate::registry::{Called, Form, MessageType, MethodKey, MethodTypes, Registry, service_of};
use crate::unproven::{Unproven, Whose};
use std::sync::Arc;
use trunkline_call::{
    Code, Execution, Fault, Instant, KeyedMap, MetadataError, MetadataReader, MetadataWriter, Pattern, Status,
};
use trunkline_grpc::compress::{Accepts, Encoding};
use trunkline_policy::{Chain, Plan, PolicyError, PolicySet};
use trunkline_telemetry::Telemetry;

/// Counts the gateways a call has passed.
const HOPS_KEY: &str = "trunkline-hops";
/// Plans kept for methods that are not told apart.
const PLANS_MAX: usize = 256;

/// What the engine knows of the gateway.
#[derive(Debug, Default)]
pub(crate) struct Gateway {
    pub settings: GatewaySettings,
    /// Methods that were called and go on. Bounded as the registry is.
    methods: KeyedMap<MethodKey, Forwarded>,
    /// Those of them under which nobody has answered.
    unproven: Unproven<MethodKey>,
    /// What calls of further methods pass, by path, so that not every call has policies compiled. At most
    /// [`PLANS_MAX`].
    plans: KeyedMap<Box<str>, Option<Arc<Plan>>>,
}

/// A method that goes on.
#[derive(Debug)]
struct Forwarded {
    types: Arc<MethodTypes>,
    /// The request's type, if the operator has told it.
    message: Option<MessageType>,
    /// The policies its calls pass, once they have been looked up.
    plan: Option<Option<Arc<Plan>>>,
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

impl Gateway {
    /// One that works so.
    pub fn new(settings: GatewaySettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// What a call passes whose method is not told apart.
    fn plan_of(&mut self, chain: &mut Chain, types: &MethodTypes, path: &str) -> Option<Arc<Plan>> {
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
    /// The first policy of the `news` that does not.
    pub fn check(&self, chain: &mut Chain, news: PolicySet) -> Result<(), PolicyError> {
        let services = self.settings.schemas.iter().flat_map(|schema| schema.schema.services());
        for method in services.flat_map(|service| &service.methods) {
            let Some((pattern, message)) = self.settings.method(&method.path) else { continue };
            let types = MethodTypes { pattern, ..MethodTypes::opaque(&method.path, false) };
            let (plan, _) = APPLICANT.plan_by(chain, &types, Some(&message), &method.path);
            let Some(plan) = plan else { continue };
            let fit = APPLICANT.fit((chain, &plan), &types, Some(&message), &method.path, news);
            fit.misfits.into_iter().next().map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// The chain has been exchanged.
    pub fn forget_plans(&mut self) {
        self.methods.values_mut().for_each(|known| known.plan = None);
        self.plans.clear();
    }

    /// A server has answered a call of a client of the gateway: its method is there.
    #[inline]
    pub fn note_answered(&mut self, call: &Call) {
        if call.is_forwarded() {
            self.unproven.answered(call.method);
        }
    }

    /// Forgets what is known of methods that are not known any more.
    pub fn forget_methods(&mut self, is_known: impl Fn(MethodKey) -> bool) {
        self.methods.retain(|method, _| is_known(*method));
    }

    /// The request's type of a call that is forwarded, if the operator has told it.
    pub fn message_of(&self, call: &Call) -> Option<MessageType> {
        let known = call.is_forwarded() && call.path.is_none();
        known.then(|| self.methods.get(&call.method)).flatten()?.message.clone()
    }

    /// The form of a message that comes through the gateway, if the operator has told its type: requests are told.
    #[inline]
    pub fn form_sent(&self, call: &Call, direction: Direction) -> Option<Form> {
        let is_told = direction == Direction::Request && matches!(call.client, ClientEnd::Grpc { .. });
        is_told.then(|| self.message_of(call)).flatten().map(Form::Typed)
    }

    /// The form of the client end's messages; linear ones of a peer have the type this host told it of.
    pub fn request_form(&self, call: &Call) -> Option<Form> {
        let sent = call.form_sent(Direction::Request).cloned();
        sent.or_else(|| self.form_sent(call, Direction::Request))
    }

    /// The method a client names, told apart from others if it may be: so many of a service are.
    pub fn called(
        &mut self,
        registry: &mut Registry,
        telemetry: &mut Telemetry,
        learned_max: usize,
        path: &str,
        client: impl FnOnce() -> Box<str>,
    ) -> Called {
        if let Some(method) = registry.key_of(path) {
            return Called { method, path: None };
        }
        if self.settings.method(path).is_some() {
            let path = Arc::from(path);
            let method = registry.intern(&path, || telemetry.method(&path));
            return Called { method, path: None };
        }
        let whose = Whose { client: client(), service: service_of(path).into() };
        let may_learn = if self.unproven.has_room(&whose, learned_max) { learned_max } else { 0 };
        let method = registry.learn_forwarded(path, may_learn, |path| telemetry.method(path));
        if &**registry.path(method) != path {
            return Called { method, path: Some(path.into()) };
        }
        self.unproven.bring(method, whose);
        Called { method, path: None }
    }

    /// The types of a method that goes on, and what its calls pass. `numbers`: types bound here so far, and the shard.
    pub fn types_of(
        &mut self,
        registry: &Registry,
        admission: &mut AdmissionControl,
        (types_bound, shard): (&mut u64, u16),
        called: &Called,
    ) -> (Arc<MethodTypes>, Option<Arc<Plan>>) {
        if let Some(path) = &called.path {
            // One of very many: nothing is kept of it, not even a number. A call that needs one ends with its
            // connection.
            let types = Arc::new(MethodTypes::opaque(path, false));
            let plan = self.plan_of(admission.chain_mut(), &types, path);
            return (types, plan);
        }
        let Self { settings, methods, .. } = self;
        let known = methods.entry(called.method).or_insert_with(|| {
            let number = MethodTypes::next_number(types_bound, shard);
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

    /// Metadata of a request that goes on, if it may.
    pub fn with_hop(&self, path: &str, metadata: &[u8]) -> Result<Vec<u8>, Status> {
        let max = self.settings.hops_max;
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

    /// Why a method is not called that nobody serves here and nobody elsewhere.
    pub fn unserved(registry: &Registry, path: &str) -> Status {
        let service = service_of(path);
        if registry.key_of(path).is_some_and(|method| registry.was_served(method)) {
            return Fault::NoRoute { what: service.to_owned() }.status();
        }
        let (path, service) = (shown(path), shown(service));
        let why = format!(
            "{path}: no application of this host serves {service}, and it has no endpoints: to have its calls \
             forwarded, write services.{service:?}.endpoints in the daemon's configuration"
        );
        Status::new(Code::Unimplemented, why).with_execution(Execution::NotExecuted)
    }
}

impl Forward {
    /// Makes a call one that goes on: it came at `arrived`, in this encoding, and its client reads these.
    pub fn mark(
        &self,
        call: &mut Call,
        arrived: Instant,
        now: Instant,
        (encoding, accepts): (Encoding, Accepts),
    ) {
        call.server = ServerEnd::Cluster { cluster: self.cluster };
        let stamps = &mut call.client_stamps;
        (stamps.a0, stamps.a1, stamps.d2) = (arrived, arrived, now);
        // As it came, unless a policy says otherwise.
        call.request_encoding = (encoding != Encoding::Identity).then_some(encoding);
        (call.keeps_encoding, call.accepts) = (call.request_encoding.is_some(), accepts);
    }
}

impl Route {
    /// To applications of this host.
    pub fn here(called: Called, pattern: Pattern) -> Self {
        Self { called, pattern, forward: None }
    }
}

impl Forwarded {
    fn new(number: u64, path: &str, settings: &GatewaySettings) -> Self {
        let known = settings.method(path);
        let opaque = MethodTypes::opaque(path, false);
        let pattern = known.as_ref().map_or(opaque.pattern, |(pattern, _)| *pattern);
        let types = Arc::new(MethodTypes { number, pattern, ..opaque });
        Self { types, message: known.map(|(_, message)| message), plan: None }
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
