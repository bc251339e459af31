//! Binding: strings become numbers once, so that calls carry none.

use crate::bound_methods::bound_method;
use crate::bound_targets::Unbound;
use crate::cluster::{ClusterKey, SERVICES_PER_ENDPOINT};
use crate::due::Due;
use crate::engine::Engine;
use crate::host_numbers::NUMBERS_AT_ONCE;
use crate::limits::Limits;
use crate::opaque::{self, PATH_BYTES_MAX, SERVICE_BYTES_MAX};
use crate::registry::{BoundSchema, Form, MessageType, MethodKey, MethodTypes, Server};
use crate::session::Route;
use crate::target::Target;
use crate::{RemoteKey, SessionKey};
use std::collections::HashSet;
use std::sync::Arc;
use trunkline_call::{Instant, Pattern, RouteIndex};
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_policy::Side;
use trunkline_schema::{Method, Service};
use trunkline_telemetry::{MethodIndex, PeerIndex};

/// Methods whose announcers are told at once when it has changed who serves them.
const ANSWERED_AT_ONCE: usize = 8;

/// What a session wants to call and serve.
#[derive(Debug)]
pub struct BindRequest<'a> {
    /// The types of everything below; `None` if the application keeps them to itself (`opaque.rs`).
    pub schema: Option<&'a Arc<BoundSchema>>,
    /// Full names of services to serve.
    pub serves: &'a [String],
    /// Paths to call, each with the endpoint they go to; `None` for whoever serves them.
    pub calls: &'a [(String, Option<String>)],
    /// Those of `serves` that a rule of the host lets this session serve, whoever else does. Of any other service the
    /// first user to serve it is the only one, while it does.
    pub permitted: &'a [String],
}

/// The numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// One per element of [`BindRequest::calls`].
    pub calls: Vec<RouteIndex>,
    /// Every method of the services served; without a schema one `/package.Service/*` per service.
    pub serves: Vec<(String, RouteIndex)>,
}

/// Why nothing of a bind took effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The descriptor set does not define it.
    #[error("service {0} is not in the descriptor set")]
    NoService(String),
    /// The descriptor set does not define it.
    #[error("method {0} is not in the descriptor set")]
    NoMethod(String),
    /// Nothing of this name can be called.
    #[error("{0:?} is no path of a method: write /package.Service/Method, at most {PATH_BYTES_MAX} bytes")]
    Path(String),
    /// Nothing of this name can be served.
    #[error("{0:?} is no name of a service: write package.Service, at most {SERVICE_BYTES_MAX} bytes")]
    Service(String),
    /// Another user serves it.
    #[error(
        "service {service} is served by {owner} here: no other user may serve it meanwhile, unless [[serve]] in the \
         daemon's configuration says so"
    )]
    Owned {
        /// Its full name.
        service: String,
        /// Who serves it.
        owner: String,
    },
    /// The session has too many routes.
    #[error(
        "session would have more than {0} routes: methods it calls and serves (limits.routes_per_session)"
    )]
    Routes(usize),
    /// The sessions of the user have too many routes.
    #[error(
        "applications of {user} would have more than {limit} routes on one shard: methods they call and serve \
         (limits.routes_per_user)"
    )]
    RoutesOfUser {
        /// The user, as the host knows it.
        user: String,
        /// The limit.
        limit: usize,
    },
    /// The host knows too many endpoints.
    #[error("host would know more than {0} endpoints (limits.endpoints)")]
    Endpoints(usize),
    /// Applications of the session's user name too many targets.
    #[error("applications of {user} would name more than {limit} endpoints (limits.endpoints_per_user)")]
    EndpointsOfUser {
        /// The user, as the host knows it.
        user: String,
        /// The limit.
        limit: usize,
    },
    /// The session is gone.
    #[error("session is gone")]
    Gone,
}

/// What a session has bound so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Services it serves, by full name.
    pub serves: Vec<String>,
    /// Paths it calls, each with the endpoint or name it is called at; empty where whoever serves it is called.
    pub calls: Vec<(String, String)>,
}

impl Engine {
    /// What a session has bound; nothing if it is gone.
    pub fn bound(&self, key: SessionKey) -> Bound {
        let Ok(session) = self.sessions.attached(key) else { return Bound::default() };
        let serves = self.registry.services_of(key);
        let calls = session.routes.iter().filter_map(|route| {
            let Route::Calls { types, target, .. } = route else { return None };
            let target = match target {
                Target::Cluster(cluster) => {
                    let target = self.clusters.target_of(*cluster);
                    target.map(|target| self.remotes.label(target))
                }
                Target::Anyone | Target::Here => None,
            };
            Some((types.path.to_string(), target.unwrap_or_default()))
        });
        Bound { serves, calls: calls.collect() }
    }

    /// The schemas of what a session has bound, each once.
    pub fn schemas_of(&self, key: SessionKey) -> Vec<Arc<BoundSchema>> {
        let (mut schemas, mut known) = (Vec::new(), HashSet::new());
        let Ok(session) = self.sessions.attached(key) else { return schemas };
        let called = session.routes.iter().filter_map(|route| match route {
            Route::Calls { types, .. } => Some(types),
            Route::Serves => None,
        });
        for types in called.chain(self.registry.types_served_by(key)) {
            let Form::Typed(MessageType { schema, .. }) = &types.input else { continue };
            if known.insert(Arc::as_ptr(schema)) {
                schemas.push(Arc::clone(schema));
            }
        }
        schemas
    }

    /// Gives a session numbers for methods. All of the request takes effect, or nothing.
    ///
    /// # Errors
    /// [`BindError`] names what is missing or which limit is reached.
    pub fn bind(&mut self, session: SessionKey, request: &BindRequest<'_>) -> Result<Binding, BindError> {
        // First by number alone: what there is no room for is not put together.
        self.check_room(session, request.calls.len() + routes_served(request)?)?;
        let calls = request
            .calls
            .iter()
            .map(|(path, _)| called_types(request.schema, path))
            .collect::<Result<Vec<_>, _>>()?;
        let serves = served_types(request)?;
        self.check_owners(session, request)?;
        let targets = self.hold_targets(session, request.calls)?;
        if let Some(schema) = request.schema {
            self.admission.note_misnamed(&schema.schema);
        }
        let mut binding = Binding::default();
        for (types, target) in calls.into_iter().zip(targets) {
            let types = self.numbered(types);
            binding.calls.push(self.bind_call(session, types, target)?);
        }
        let changes = !request.serves.is_empty();
        if let Some(session_here) = self.sessions.find(session) {
            request.serves.iter().for_each(|name| self.owners.enter(session, &session_here.identity, name));
        }
        if changes {
            self.describe_again(session);
        }
        let mut served = Vec::new();
        for types in serves {
            let Some(types) = types else {
                // A service without methods: its name is kept, and counts.
                self.add_route(session, Route::Serves)?;
                continue;
            };
            let known = types.whole_service.then(|| crate::registry::service_of(&types.path));
            if let Some(route) = known.and_then(|service| self.registry.route_of_whole(session, service)) {
                binding.serves.push((types.path.to_string(), route));
                continue;
            }
            let types = self.numbered(types);
            served.push(Arc::clone(&types));
            binding.serves.push((types.path.to_string(), self.bind_service(session, types)?));
        }
        if changes {
            self.tell_bound(session, request.serves, &served);
            self.answer_again(request.serves);
            request.serves.iter().for_each(|service| self.unserved.serve(service));
            if self.awaited.is_active() {
                // Due at once: whom calls wait for may be this one.
                self.timers.insert(Instant::default(), Due::Awaited);
            }
        }
        Ok(binding)
    }

    /// Says where calls to a service go that no session of this host serves. Replaces what was said before.
    ///
    /// # Errors
    /// [`BindError::Endpoints`] if the host would know too many.
    pub fn configure_service(&mut self, service: &str, endpoints: &[String]) -> Result<(), BindError> {
        let remotes =
            endpoints.iter().map(|endpoint| self.remote(endpoint)).collect::<Result<Vec<_>, _>>()?;
        self.set_cluster(service, remotes);
        Ok(())
    }

    /// What the users of a service say about calls of it that are made on this host. Replaces what was said before.
    pub fn configure_calls(&mut self, service: &str, config: ServiceConfig) {
        self.attempts.configure(service, config);
        self.rebalance();
    }

    /// Of the services that were handed over, no others have endpoints from now on than those the configuration names.
    /// To be called between [`Engine::take_over`] and [`Engine::go_on_elsewhere`], once it has named all: what nothing
    /// has any more is forgotten, and its connections are closed.
    pub fn keep_services(&mut self, is_configured: impl Fn(&str) -> bool) {
        self.clusters.retain_services(&self.remotes, is_configured);
        let Self { clusters, targets, remotes, .. } = self;
        let sources = clusters.sources_of_services();
        remotes.find_unbound(|key| sources.contains(&key), |key| targets.has(key));
    }

    fn remote(&mut self, endpoint: &str) -> Result<RemoteKey, BindError> {
        self.remotes
            .intern(endpoint, self.limits.endpoints)
            .ok_or(BindError::Endpoints(self.limits.endpoints))
    }

    /// The targets of calls, each of which is the session's from now on.
    fn hold_targets(
        &mut self,
        session: SessionKey,
        calls: &[(String, Option<String>)],
    ) -> Result<Vec<Target>, BindError> {
        let user = self.sessions.attached(session).map_err(|_| BindError::Gone)?.identity.clone();
        let mut targets = Vec::with_capacity(calls.len());
        for (path, endpoint) in calls {
            match endpoint.as_ref().map(|endpoint| self.hold_target(&user, path, endpoint)).transpose() {
                Ok(cluster) => targets.push(cluster.map_or(Target::Anyone, Target::Cluster)),
                Err(error) => {
                    targets.into_iter().for_each(|target| self.release_target(&user, target));
                    self.forget_unwanted();
                    return Err(error);
                }
            }
        }
        Ok(targets)
    }

    fn hold_target(&mut self, user: &str, path: &str, endpoint: &str) -> Result<ClusterKey, BindError> {
        let Limits { endpoints_per_user: limit, endpoints, .. } = self.limits;
        if self.targets.others_of(user, self.remotes.known(endpoint)) >= limit {
            return Err(BindError::EndpointsOfUser { user: user.to_owned(), limit });
        }
        let full = || BindError::Endpoints(endpoints);
        let remote = self.remotes.intern_bound(endpoint, endpoints).ok_or_else(full)?;
        let cluster = self.cluster_of_target(remote, crate::registry::service_of(path));
        let has_room =
            |key: &ClusterKey| self.targets.other_services_of(user, *key) < limit * SERVICES_PER_ENDPOINT;
        if let Some(cluster) = cluster.filter(has_room) {
            self.targets.hold(user, remote, cluster);
            return Ok(cluster);
        }
        self.forget_unbound(self.targets.unbound(remote, cluster));
        Err(cluster.map_or_else(full, |_| BindError::EndpointsOfUser { user: user.to_owned(), limit }))
    }

    /// The target of a route that a session has brought from another shard, where it was within the limits.
    pub(crate) fn bring_target(&mut self, user: &str, path: &str, endpoint: &str) -> Option<ClusterKey> {
        let remote = self.remotes.intern_bound(endpoint, usize::MAX)?;
        let cluster = self.cluster_brought(remote, crate::registry::service_of(path))?;
        self.targets.hold(user, remote, cluster);
        Some(cluster)
    }

    /// A session has a route less to this target.
    pub(crate) fn release_target(&mut self, user: &str, target: Target) {
        let Target::Cluster(cluster) = target else { return };
        let Some(remote) = self.clusters.target_of(cluster) else { return };
        let unbound = self.targets.release(user, remote, cluster);
        self.forget_unbound(unbound);
    }

    fn forget_unbound(&mut self, Unbound { cluster, endpoint }: Unbound) {
        cluster.into_iter().for_each(|cluster| self.clusters.remove_target(cluster));
        endpoint.into_iter().for_each(|endpoint| self.remotes.release(endpoint));
    }

    /// Counts the targets of sessions that were handed over.
    pub(crate) fn hold_targets_again(&mut self) {
        let Self { sessions, clusters, targets, .. } = self;
        for (_, session) in sessions.iter().filter(|(_, session)| !session.gone) {
            targets.add_routes(&session.identity, session.routes.len());
            for route in &session.routes {
                let Route::Calls { target: Target::Cluster(cluster), .. } = route else { continue };
                if let Some(remote) = clusters.target_of(*cluster) {
                    targets.hold(&session.identity, remote, *cluster);
                }
            }
        }
        let sources = clusters.sources_of_services();
        self.remotes.find_unbound(|key| sources.contains(&key), |key| targets.has(key));
        self.forget_unwanted();
    }

    fn check_owners(&self, session: SessionKey, request: &BindRequest<'_>) -> Result<(), BindError> {
        let identity = &self.sessions.attached(session).map_err(|_| BindError::Gone)?.identity;
        let permitted: HashSet<&String> = request.permitted.iter().collect();
        for service in request.serves.iter().filter(|name| !permitted.contains(name)) {
            let here = self.owners.other_than(identity, service);
            if let Some(owner) = here.or_else(|| self.shards.elsewhere.owner_other_than(identity, service)) {
                return Err(BindError::Owned { service: service.clone(), owner: owner.to_owned() });
            }
        }
        Ok(())
    }

    /// A session serves nothing from now on: it drains, or is gone.
    pub(crate) fn withdraw(&mut self, session: SessionKey) {
        let services = self.registry.services_of(session);
        let served = self.registry.withdraw(session);
        self.owners.leave(session);
        self.describe_again(session);
        if served {
            self.stop_serving(session, &services);
        }
    }

    /// What nobody has a route to any more, and nobody serves, is forgotten: now and then, many at once.
    pub(crate) fn forget_unused_names(&mut self) {
        let idle_methods = self.registry.idle_numbers() >= NUMBERS_AT_ONCE;
        self.forget_names(idle_methods && self.telemetry.has_all_methods());
    }

    /// A host is not connected any more, and may not be counted any more.
    pub(crate) fn note_host_left(&mut self, now: Instant, number: PeerIndex) {
        self.host_numbers.leave(number);
        if self.host_numbers.is_due(now, &self.telemetry) {
            self.forget_names(true);
        }
    }

    fn forget_names(&mut self, wants_numbers: bool) {
        if !self.registry.has_many_unused() && !wants_numbers {
            return;
        }
        let in_flight: HashSet<MethodKey> = self.calls.iter().map(|(_, call)| call.method).collect();
        if wants_numbers {
            self.registry.give_numbers_back(&in_flight);
        }
        self.registry.forget_unused(&in_flight);
        let registry = &self.registry;
        self.workers.forget(|method| registry.knows(method));
        self.gateway.forget_methods(|method| registry.knows(method));
        self.remotes.forget_methods(|method| registry.knows(method));
        self.peers.forget_methods(|method| registry.knows(method));
        self.forget_series();
    }

    /// The figures of methods and hosts that are gone go, too.
    fn forget_series(&mut self) {
        let mut methods = self.registry.numbers();
        methods.insert(MethodIndex::OTHER);
        let connected = self.host_numbers.connected();
        let calls = self.calls.iter().map(|(_, call)| call.peer_index);
        let always = [PeerIndex::OTHER, PeerIndex::LOCAL];
        let hosts: HashSet<PeerIndex> = connected.chain(calls).chain(always).collect();
        self.ended.retain(|method, host| methods.contains(&method) && hosts.contains(&host));
        self.r2p2.forget_numbers(|host| hosts.contains(&host));
        self.telemetry.forget(|method| methods.contains(&method), |host| hosts.contains(&host));
        let Self { registry, telemetry, .. } = self;
        registry.number_again(|path| telemetry.method(path));
    }

    /// It has changed who serves these: peers that announced a method of one are told what holds now. A method
    /// announced before its server came would otherwise stay on protobuf as long as the connection lives.
    ///
    /// Some at once, and the rest one after the other: peers may have announced many, and who serves what may change
    /// often.
    pub(crate) fn answer_again(&mut self, services: &[impl AsRef<str>]) {
        services.iter().for_each(|service| self.peers.announcers.changed(service.as_ref()));
        (0..ANSWERED_AT_ONCE).for_each(|_| self.answer_next());
    }

    /// All peers are told what holds now of all they have announced.
    pub(crate) fn answer_all_again(&mut self) {
        self.peers.announcers.all_changed();
        self.answer_again(&[""; 0]);
    }

    /// Those who have announced the next method are told what holds now.
    pub(crate) fn answer_next(&mut self) {
        let Some((path, announcers)) = self.peers.announcers.next() else { return };
        let answer = self.answer_to(&path);
        for (peer, index) in announcers {
            self.peers.answer(peer, index, answer.clone());
            self.peers.transmit(peer);
        }
    }

    /// The method at a path a peer announced, and the types to answer with.
    pub(crate) fn answer_to(&self, path: &str) -> (Option<MethodKey>, Option<Arc<MethodTypes>>) {
        let method = self.registry.key_of(path);
        (method, self.served_types(method))
    }

    /// What the sessions serving a method have, if they have all the same.
    fn served_types(&self, method: Option<MethodKey>) -> Option<Arc<MethodTypes>> {
        let of = |types: &MethodTypes| [types.input.fingerprint(), types.output.fingerprint()];
        let method = method?;
        let here = self.registry.servers(method).iter().map(|server| &server.types);
        let mut all = here.chain(self.shards.types(method, self.registry.path(method)));
        let first = all.next()?;
        all.all(|types| of(types) == of(first)).then(|| Arc::clone(first))
    }

    /// A session serves these no more, and nothing else; the names stay its user's for those who come after it.
    pub(crate) fn stop_serving(&mut self, session: SessionKey, services: &[impl AsRef<str>]) {
        self.workers.dismiss(session);
        self.answer_again(services);
    }

    /// What follows from the registry and the sessions of a state that was handed over, and from the users of sessions
    /// that had gone before and whose successors were awaited.
    pub(crate) fn know_owners_again(&mut self, left: &[(SessionKey, Box<str>)]) {
        for (_, server) in self.registry.every_server() {
            let identity = match self.sessions.find(server.session) {
                Some(session) => Some(&session.identity),
                None => left.iter().find(|(key, _)| *key == server.session).map(|(_, identity)| identity),
            };
            if let Some(identity) = identity {
                let service = crate::registry::service_of(&server.types.path);
                self.owners.enter(server.session, identity, service);
            }
        }
        let sessions: Vec<SessionKey> = self.sessions.iter().map(|(key, _)| key).collect();
        sessions.into_iter().for_each(|session| self.describe_again(session));
    }

    fn check_room(&self, session: SessionKey, routes: usize) -> Result<(), BindError> {
        let session = self.sessions.attached(session).map_err(|_| BindError::Gone)?;
        let limit = self.limits.routes_per_session;
        if session.routes.len() + routes > limit {
            return Err(BindError::Routes(limit));
        }
        let (user, limit) = (&session.identity, self.limits.routes_per_user);
        if self.targets.routes_of(user) + routes > limit {
            return Err(BindError::RoutesOfUser { user: user.to_string(), limit });
        }
        Ok(())
    }

    pub(crate) fn bind_call(
        &mut self,
        session: SessionKey,
        types: Arc<MethodTypes>,
        target: Target,
    ) -> Result<RouteIndex, BindError> {
        let method = self.intern(&types.path);
        let plan = self.admission.plan(&bound_method(&self.sessions, session, Side::Client, &types));
        let route = self.add_route(session, Route::Calls { method, types, target, plan })?;
        self.registry.hold(method);
        Ok(route)
    }

    pub(crate) fn bind_service(
        &mut self,
        session: SessionKey,
        types: Arc<MethodTypes>,
    ) -> Result<RouteIndex, BindError> {
        let key = self.intern(&types.path);
        let route = self.add_route(session, Route::Serves)?;
        let stands_by = self.sessions.find(session).is_some_and(|session| session.stands_by);
        let whole = types.whole_service;
        let plan = self.admission.plan(&bound_method(&self.sessions, session, Side::Server, &types));
        let server = Server { session, route, types, stands_by, plan };
        if whole {
            self.registry.serve_all(key, server);
        } else {
            self.registry.serve(key, server);
        }
        Ok(route)
    }

    fn numbered(&mut self, types: MethodTypes) -> Arc<MethodTypes> {
        let number = MethodTypes::next_number(&mut self.types_bound, self.shards.own().0);
        Arc::new(MethodTypes { number, ..types })
    }

    fn intern(&mut self, path: &Arc<str>) -> MethodKey {
        let telemetry = &mut self.telemetry;
        self.registry.intern(path, || telemetry.method(path))
    }

    pub(crate) fn add_route(&mut self, session: SessionKey, route: Route) -> Result<RouteIndex, BindError> {
        let Self { sessions, targets, .. } = self;
        let session = sessions.find_mut(session).filter(|session| !session.gone).ok_or(BindError::Gone)?;
        session.routes.push(route);
        targets.add_routes(&session.identity, 1);
        Ok(RouteIndex((session.routes.len() - 1) as u32))
    }
}

fn called_types(schema: Option<&Arc<BoundSchema>>, path: &str) -> Result<MethodTypes, BindError> {
    match schema {
        Some(schema) => Ok(method_types(schema, find_method(schema, path)?)),
        None if opaque::is_path(path) => Ok(MethodTypes::opaque(path, false)),
        None => Err(BindError::Path(opaque::shown(path))),
    }
}

/// How many routes the services take that are to be served: one for each method, one for a service without any.
fn routes_served(request: &BindRequest<'_>) -> Result<usize, BindError> {
    let Some(schema) = request.schema else { return Ok(request.serves.len()) };
    let routes = |name: &String| Ok(find_service(schema, name)?.methods.len().max(1));
    request.serves.iter().map(routes).sum()
}

/// The types of what is to be served; `None` for a service without methods.
fn served_types(request: &BindRequest<'_>) -> Result<Vec<Option<MethodTypes>>, BindError> {
    let mut all = Vec::new();
    for name in request.serves {
        match request.schema {
            Some(schema) => {
                let methods = &find_service(schema, name)?.methods;
                all.extend(methods.iter().map(|method| Some(method_types(schema, method))));
                if methods.is_empty() {
                    all.push(None);
                }
            }
            None if opaque::is_service(name) => {
                all.push(Some(MethodTypes::opaque(&format!("/{name}/*"), true)));
            }
            None => return Err(BindError::Service(opaque::shown(name))),
        }
    }
    Ok(all)
}

fn find_service<'s>(schema: &'s BoundSchema, name: &str) -> Result<&'s Service, BindError> {
    schema.schema.service_named(name).ok_or_else(|| BindError::NoService(name.to_owned()))
}

fn find_method<'s>(schema: &'s Arc<BoundSchema>, path: &str) -> Result<&'s Method, BindError> {
    let missing = || BindError::NoMethod(path.to_owned());
    let (service, method) =
        path.strip_prefix('/').and_then(|path| path.split_once('/')).ok_or_else(missing)?;
    schema.schema.method(service, method).ok_or_else(missing)
}

fn method_types(schema: &Arc<BoundSchema>, method: &Method) -> MethodTypes {
    MethodTypes {
        number: 0,
        path: method.path.as_str().into(),
        input: Form::Typed(MessageType::new(schema, method.input)),
        output: Form::Typed(MessageType::new(schema, method.output)),
        pattern: Pattern::of(method.client_streaming, method.server_streaming),
        whole_service: false,
    }
}
