//! Who serves a call: sessions of this host, another shard, or endpoints.
//!
//! What is known of that has owners of its own: [`Registry`] who serves a method here, [`ShardLinks`] what other shards
//! serve, [`Owners`] whose a service is, [`Clusters`] the endpoints of services. [`Routing`] is lent them and answers
//! with values; it changes nothing.

use crate::SessionKey;
use crate::call::{Call, Item, ServerEnd};
use crate::cluster::{ClusterKey, Clusters};
use crate::registry::{MethodKey, MethodTypes, Picked, Registry, Server, service_of};
use crate::service_users::ServiceUsers;
use crate::shard::{ShardLinks, find_keeping, find_shard};
use crate::target::Target;
use std::sync::Arc;
use trunkline_call::{Fault, Pattern, RouteIndex, WorkerChoice};

/// Those who know who serves what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing<'e> {
    pub registry: &'e Registry,
    pub shards: &'e ShardLinks,
    pub service_users: &'e ServiceUsers,
    pub clusters: &'e Clusters,
}

/// What a call asks of the workers of its service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerWish {
    pub choice: WorkerChoice,
    /// Whether its method has one request and one response, at every worker.
    pub is_shared: bool,
}

impl<'e> Routing<'e> {
    /// The types of those who serve a method here, or on another shard if nobody does here.
    pub fn types_served(self, method: MethodKey) -> Option<&'e Arc<MethodTypes>> {
        let here = self.registry.servers(method).first().map(|server| &server.types);
        here.or_else(|| self.shards.types(method, self.registry.path(method)).next())
    }

    /// The types of all who serve a method, those who do so here first.
    pub fn all_types_served(self, method: MethodKey) -> impl Iterator<Item = &'e Arc<MethodTypes>> {
        let here = self.registry.servers(method).iter().map(|server| &server.types);
        here.chain(self.shards.types(method, self.registry.path(method)))
    }

    /// The types of all who serve a method, if they have all the same.
    pub fn types_agreed(self, method: MethodKey) -> Option<Arc<MethodTypes>> {
        let of = |types: &MethodTypes| [types.input.fingerprint(), types.output.fingerprint()];
        let mut all = self.all_types_served(method);
        let first = all.next()?;
        all.all(|types| of(types) == of(first)).then(|| Arc::clone(first))
    }

    /// Whether any method of a service is served on this host.
    pub fn serves_service(self, service: &str) -> bool {
        self.service_users.has(service) || self.shards.elsewhere.serves(service)
    }

    /// Whether those who serve a method do so only while nobody else does.
    pub fn is_stood_by(self, method: MethodKey) -> bool {
        let here = self.registry.servers(method).iter().all(|server| server.stands_by);
        let mut elsewhere = self.shards.elsewhere.serving(method, self.registry.path(method));
        here && elsewhere.all(|one| one.stands_by)
    }

    /// The configured endpoints of the method's service.
    ///
    /// # Errors
    /// It has none.
    pub fn cluster_of(self, method: MethodKey) -> Result<ClusterKey, Fault> {
        let cluster = self.clusters.of_service(service_of(self.registry.path(method)));
        cluster.ok_or_else(|| self.unserved(method))
    }

    /// Why a method nobody here serves is not called.
    pub fn unserved(self, method: MethodKey) -> Fault {
        let path = self.registry.path(method);
        let service = service_of(path);
        if self.serves_service(service) {
            Fault::NoMethod { path: path.to_string() }
        } else {
            Fault::NoRoute { what: service.to_owned() }
        }
    }

    /// The shard whose worker keeps a place for a call, if that is of use to it still.
    pub fn keeping(self, call: &Call) -> Option<ServerEnd> {
        find_keeping(self.shards, self.registry, call)
    }

    /// Where a call goes for which no place is kept; if that is a session, by which of its routes. At a session that
    /// `has_room` so many may be in flight.
    ///
    /// # Errors
    /// Nobody serves it, or nobody has room.
    #[inline(always)]
    pub fn route(
        self,
        call: &Call,
        target: Target,
        calls_max: usize,
        has_room: impl Fn(SessionKey) -> bool,
    ) -> Result<(ServerEnd, Option<RouteIndex>), Fault> {
        if let Target::Cluster(cluster) = target {
            return Ok((ServerEnd::Cluster { cluster }, None));
        }
        // Those who stand by serve only while nobody else does, wherever.
        let serves = |server: &Server| !server.stands_by;
        if !self.registry.in_line(call.method).first().is_some_and(serves)
            && let Some(shard) = find_shard(self.shards, self.registry, call, false)
        {
            return Ok((shard, None));
        }
        let full = match self.registry.pick(call.method, call.place.map(|place| place.session), has_room) {
            Picked::One(session, route, types) => {
                return Ok((ServerEnd::Session { session, types }, Some(route)));
            }
            Picked::Full => Some(Fault::Limit {
                name: "calls in flight at the server (limits.calls_delivered_per_session)",
                limit: calls_max as u64,
            }),
            Picked::Nobody => None,
        };
        self.beside_sessions(call, target, full).map(|server| (server, None))
    }

    /// What a call asks of the workers of its service, if it is for those and several serve its method. Others go to
    /// whoever is next in turn.
    #[inline(always)]
    pub fn worker_wish(self, call: &Call, target: Target, opening: &Item<'_>) -> Option<WorkerWish> {
        let servers = self.registry.in_line(call.method);
        let is_one_of_several = match servers.len() {
            0 => false,
            1 => {
                let path = self.registry.path(call.method);
                !self.shards.is_alone() && self.shards.sharing(call.method, path).next().is_some()
            }
            _ => true,
        };
        if matches!(target, Target::Cluster(_)) || !is_one_of_several {
            return None;
        }
        let plan = servers.first().and_then(|server| server.plan.as_ref());
        let served = plan.map_or(WorkerChoice::default(), |plan| plan.choice());
        let choice = call.choice_of_worker(served, opening);
        let is_unary =
            |server: &Server| server.types.pattern == Pattern::Unary && !server.types.input.is_opaque();
        let is_shared = servers.iter().all(is_unary);
        (is_shared || choice.sticky == Some(true)).then_some(WorkerWish { choice, is_shared })
    }

    /// Whether a call is to begin with its whole request: its maker's policies judge the one message it has, or those
    /// who serve its method take one. Their policies judge that message, and a worker that waited for it would keep
    /// others from it.
    pub fn begins_whole(self, call: &Call, target: Target) -> bool {
        if call.policies.as_ref().is_some_and(|policies| policies.read_one_message()) {
            return true;
        }
        let types = self.types_served(call.method).filter(|_| !matches!(target, Target::Cluster(_)));
        types.is_some_and(|types| !types.input.is_opaque() && !types.pattern.client_streams())
    }

    /// Where a call goes that no session here takes: they are `full`, or there is none.
    fn beside_sessions(self, call: &Call, target: Target, full: Option<Fault>) -> Result<ServerEnd, Fault> {
        let stands_by = full.is_none();
        match (find_shard(self.shards, self.registry, call, stands_by), full) {
            (Some(shard), _) => Ok(shard),
            (None, Some(full)) => Err(full),
            (None, None) if target == Target::Anyone => {
                self.cluster_of(call.method).map(|cluster| ServerEnd::Cluster { cluster })
            }
            (None, None) => Err(self.unserved(call.method)),
        }
    }
}
