//! Binding: strings become numbers once, so that calls carry none.

use crate::admission::AdmissionControl;
use crate::attempts::AttemptControl;
use crate::bound_methods::bound_method;
use crate::bound_targets::{BoundTargets, Unbound};
use crate::cluster::{ClusterKey, Clusters, SERVICES_PER_ENDPOINT};
use crate::limits::Limits;
use crate::opaque::{self, PATH_BYTES_MAX, SERVICE_BYTES_MAX};
use crate::registry::{BoundSchema, Form, MessageType, MethodKey, MethodTypes, Registry, Server, service_of};
use crate::remote::Remotes;
use crate::service_users::ServiceUsers;
use crate::session::Route;
use crate::sessions::SessionEnds;
use crate::shard::ShardLinks;
use crate::target::Target;
use crate::{RemoteKey, SessionKey};
use std::collections::HashSet;
use std::sync::Arc;
use trunkline_call::{Pattern, RouteIndex};
use trunkline_policy::Side;
use trunkline_schema::{Method, Service};
use trunkline_telemetry::Telemetry;

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
    /// The session has more routes than all of its user may have.
    #[error(
        "session would have more than the {0} routes that all applications of a user may have on one shard: methods \
         they call and serve (limits.routes_per_user)"
    )]
    RoutesForUser(usize),
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

/// What a request comes to, before any of it takes effect.
#[derive(Debug)]
pub(crate) struct ToBind {
    calls: Vec<MethodTypes>,
    /// `None` for a service without methods.
    serves: Vec<Option<MethodTypes>>,
}

/// What has taken effect: the numbers, and the types of what is served since.
#[derive(Debug, Default)]
pub(crate) struct Entered {
    pub binding: Binding,
    pub served: Vec<Arc<MethodTypes>>,
}

/// The owners that a request to bind concerns, lent for its time: all of it takes effect, or nothing.
pub(crate) struct Binder<'e> {
    pub sessions: &'e mut SessionEnds,
    pub registry: &'e mut Registry,
    pub service_users: &'e mut ServiceUsers,
    pub targets: &'e mut BoundTargets,
    pub remotes: &'e mut Remotes,
    pub clusters: &'e mut Clusters,
    pub admission: &'e mut AdmissionControl,
    pub telemetry: &'e mut Telemetry,
    pub types_bound: &'e mut u64,
    pub attempts: &'e AttemptControl,
    pub shards: &'e ShardLinks,
    pub limits: &'e Limits,
}

impl Binder<'_> {
    /// What a request comes to.
    ///
    /// # Errors
    /// [`BindError`] names what is missing, whose it is, or which limit is reached.
    pub fn check(&self, session: SessionKey, request: &BindRequest<'_>) -> Result<ToBind, BindError> {
        // First by number alone: what there is no room for is not put together.
        self.check_room(session, request.calls.len() + routes_served(request)?)?;
        let calls = request.calls.iter().map(|(path, _)| called_types(request.schema, path));
        let calls = calls.collect::<Result<Vec<_>, _>>()?;
        let serves = served_types(request)?;
        self.check_owners(session, request)?;
        Ok(ToBind { calls, serves })
    }

    fn check_room(&self, session: SessionKey, routes: usize) -> Result<(), BindError> {
        let session = self.sessions.attached(session).map_err(|_| BindError::Gone)?;
        let limit = self.limits.routes_per_session;
        if session.routes.len() + routes > limit {
            return Err(BindError::Routes(limit));
        }
        let (own, user, limit) = (session.routes.len(), &session.identity, self.limits.routes_per_user);
        if own + routes > limit {
            return Err(BindError::RoutesForUser(limit));
        }
        if self.targets.routes_of(user) + routes > limit {
            return Err(BindError::RoutesOfUser { user: user.to_string(), limit });
        }
        Ok(())
    }

    fn check_owners(&self, session: SessionKey, request: &BindRequest<'_>) -> Result<(), BindError> {
        let identity = &self.sessions.attached(session).map_err(|_| BindError::Gone)?.identity;
        let permitted: HashSet<&String> = request.permitted.iter().collect();
        for service in request.serves.iter().filter(|name| !permitted.contains(name)) {
            let here = self.service_users.other_than(identity, service);
            if let Some(owner) = here.or_else(|| self.shards.elsewhere.owner_other_than(identity, service)) {
                return Err(BindError::Owned { service: service.clone(), owner: owner.to_owned() });
            }
        }
        Ok(())
    }

    /// The targets of calls, each of which is the session's from now on.
    ///
    /// # Errors
    /// A limit is reached: it has none of them, and endpoints may be unwanted.
    pub fn hold_targets(
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
                    return Err(error);
                }
            }
        }
        Ok(targets)
    }

    fn hold_target(&mut self, user: &str, path: &str, endpoint: &str) -> Result<ClusterKey, BindError> {
        let Limits { endpoints_per_user: limit, endpoints, .. } = *self.limits;
        if self.targets.others_of(user, self.remotes.known(endpoint)) >= limit {
            return Err(BindError::EndpointsOfUser { user: user.to_owned(), limit });
        }
        let full = || BindError::Endpoints(endpoints);
        let remote = self.remotes.intern_bound(endpoint, endpoints).ok_or_else(full)?;
        let cluster = self.cluster_of_target(remote, service_of(path), endpoints);
        let has_room =
            |key: &ClusterKey| self.targets.other_services_of(user, *key) < limit * SERVICES_PER_ENDPOINT;
        if let Some(cluster) = cluster.filter(has_room) {
            self.targets.hold(user, remote, cluster);
            self.remotes.names.ask_for_another(remote, endpoint);
            return Ok(cluster);
        }
        self.forget_unbound(self.targets.unbound(remote, cluster));
        Err(cluster.map_or_else(full, |_| BindError::EndpointsOfUser { user: user.to_owned(), limit }))
    }

    /// The target of a route that a session has brought from another shard, where it was within the limits.
    pub fn bring_target(&mut self, user: &str, path: &str, endpoint: &str) -> Option<ClusterKey> {
        let remote = self.remotes.intern_bound(endpoint, usize::MAX)?;
        let cluster = self.cluster_of_target(remote, service_of(path), u32::MAX as usize)?;
        self.targets.hold(user, remote, cluster);
        Some(cluster)
    }

    /// The cluster of one target of a service, made if new; `None` at the limit.
    pub fn cluster_of_target(
        &mut self,
        remote: RemoteKey,
        service: &str,
        endpoints_max: usize,
    ) -> Option<ClusterKey> {
        let Self { clusters, remotes, admission, attempts, .. } = self;
        clusters.of_target(remotes, remote, service, endpoints_max, attempts.balancing(admission.chain()))
    }

    /// Enters what was checked, with the targets that are held for it.
    ///
    /// # Errors
    /// The session has gone.
    pub fn enter(
        &mut self,
        session: SessionKey,
        request: &BindRequest<'_>,
        ToBind { calls, serves }: ToBind,
        targets: Vec<Target>,
    ) -> Result<Entered, BindError> {
        if let Some(schema) = request.schema {
            self.admission.note_misnamed(&schema.schema);
        }
        let mut entered = Entered::default();
        for (types, target) in calls.into_iter().zip(targets) {
            let types = self.numbered(types);
            entered.binding.calls.push(self.bind_call(session, types, target)?);
        }
        if let Some(session_here) = self.sessions.find(session) {
            request
                .serves
                .iter()
                .for_each(|name| self.service_users.enter(session, &session_here.identity, name));
        }
        if !request.serves.is_empty() {
            self.describe_again(session);
        }
        for types in serves {
            let Some(types) = types else {
                // A service without methods: its name is kept, and counts.
                self.add_route(session, Route::Serves)?;
                continue;
            };
            let known = types.whole_service.then(|| service_of(&types.path));
            if let Some(route) = known.and_then(|service| self.registry.route_of_whole(session, service)) {
                entered.binding.serves.push((types.path.to_string(), route));
                continue;
            }
            let types = self.numbered(types);
            entered.served.push(Arc::clone(&types));
            entered.binding.serves.push((types.path.to_string(), self.bind_service(session, types)?));
        }
        Ok(entered)
    }

    /// A session calls a method from now on.
    ///
    /// # Errors
    /// It has gone.
    pub fn bind_call(
        &mut self,
        session: SessionKey,
        types: Arc<MethodTypes>,
        target: Target,
    ) -> Result<RouteIndex, BindError> {
        let method = self.intern(&types.path);
        let plan = self.admission.plan(&bound_method(self.sessions, session, Side::Client, &types));
        let route = self.add_route(session, Route::Calls { method, types, target, plan })?;
        self.registry.hold(method);
        Ok(route)
    }

    /// A session serves a method from now on, or a whole service.
    ///
    /// # Errors
    /// It has gone.
    pub fn bind_service(
        &mut self,
        session: SessionKey,
        types: Arc<MethodTypes>,
    ) -> Result<RouteIndex, BindError> {
        let key = self.intern(&types.path);
        let route = self.add_route(session, Route::Serves)?;
        let stands_by = self.sessions.find(session).is_some_and(|session| session.stands_by);
        let whole = types.whole_service;
        let plan = self.admission.plan(&bound_method(self.sessions, session, Side::Server, &types));
        let server = Server { session, route, types, stands_by, plan };
        if whole {
            self.registry.serve_all(key, server);
        } else {
            self.registry.serve(key, server);
        }
        Ok(route)
    }

    fn numbered(&mut self, types: MethodTypes) -> Arc<MethodTypes> {
        let number = MethodTypes::next_number(self.types_bound, self.shards.own().0);
        Arc::new(MethodTypes { number, ..types })
    }

    fn intern(&mut self, path: &Arc<str>) -> MethodKey {
        let telemetry = &mut *self.telemetry;
        self.registry.intern(path, || telemetry.method(path))
    }

    /// A session has a route more.
    ///
    /// # Errors
    /// It has gone.
    pub fn add_route(&mut self, session: SessionKey, route: Route) -> Result<RouteIndex, BindError> {
        let session = self.sessions.attached_mut(session).map_err(|_| BindError::Gone)?;
        session.routes.push(route);
        self.targets.add_routes(&session.identity, 1);
        Ok(RouteIndex((session.routes.len() - 1) as u32))
    }

    /// A session of this user has these routes no more: it is gone, or goes on elsewhere.
    pub fn unbind(&mut self, user: &str, routes: Vec<Route>) {
        self.targets.remove_routes(user, routes.len());
        for route in routes {
            if let Route::Calls { method, target, .. } = route {
                self.registry.release(method);
                self.release_target(user, target);
            }
        }
    }

    /// A session serves nothing from now on. What it served; `None` if it served nothing.
    pub fn withdraw(&mut self, session: SessionKey) -> Option<Vec<String>> {
        let services = self.registry.services_of(session);
        let served = self.registry.withdraw(session);
        self.service_users.leave(session);
        self.describe_again(session);
        served.then_some(services)
    }

    /// Something is known of a session that is said of its calls.
    pub fn describe_again(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.find_mut(key) {
            session.describe(self.service_users.services_of(key).to_vec());
        }
    }

    /// A session has a route less to this target.
    fn release_target(&mut self, user: &str, target: Target) {
        let Target::Cluster(cluster) = target else { return };
        let Some(remote) = self.clusters.target_of(cluster) else { return };
        let unbound = self.targets.release(user, remote, cluster);
        self.forget_unbound(unbound);
    }

    fn forget_unbound(&mut self, Unbound { cluster, endpoint }: Unbound) {
        cluster.into_iter().for_each(|cluster| self.clusters.remove_target(cluster));
        endpoint.into_iter().for_each(|endpoint| self.remotes.release(endpoint));
    }

    /// Endpoints go from now on that neither a configured service nor a session has.
    pub fn find_unbound(&mut self) {
        let (sources, targets) = (self.clusters.sources_of_services(), &*self.targets);
        self.remotes.find_unbound(|key| sources.contains(&key), |key| targets.has(key));
    }

    /// Counts the targets of sessions that were handed over.
    pub fn hold_targets_again(&mut self) {
        for (_, session) in self.sessions.iter().filter(|(_, session)| !session.gone) {
            self.targets.add_routes(&session.identity, session.routes.len());
            for (_, _, target) in session.called() {
                let Target::Cluster(cluster) = target else { continue };
                if let Some(remote) = self.clusters.target_of(cluster) {
                    self.targets.hold(&session.identity, remote, cluster);
                }
            }
        }
        self.find_unbound();
    }

    /// What follows from the registry and the sessions of a state that was handed over, and from the users of sessions
    /// that had gone before and whose successors were awaited.
    pub fn know_owners_again(&mut self, left: &[(SessionKey, Box<str>)]) {
        for (_, server) in self.registry.every_server() {
            let identity = match self.sessions.find(server.session) {
                Some(session) => Some(&session.identity),
                None => left.iter().find(|(key, _)| *key == server.session).map(|(_, identity)| identity),
            };
            if let Some(identity) = identity {
                self.service_users.enter(server.session, identity, service_of(&server.types.path));
            }
        }
        let sessions: Vec<SessionKey> = self.sessions.iter().map(|(key, _)| key).collect();
        sessions.into_iter().for_each(|session| self.describe_again(session));
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
