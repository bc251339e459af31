//! How a call begins: what must hold before anybody is bothered with it, which worker it waits for, and who serves it.
//!
//! [`StartOfCall`] is lent those who have a say in that, and is given the call; what becomes of it, it answers with a
//! value. Where a call goes, [`Routing`] says; the engine does what is answered (`start.rs`).

use crate::admission::{AdmissionControl, CallPolicies};
use crate::admission_of_call::end_in_time;
use crate::attempts::{AttemptControl, arm_attempts};
use crate::bound_methods::{handler_plan, maker_plan};
use crate::call::{Body, Call, Item, ServerEnd};
use crate::cluster::Clusters;
use crate::due::Due;
use crate::gateway::Gateway;
use crate::grpc::GrpcEnds;
use crate::handover::awaited::Awaited;
use crate::limits::Limits;
use crate::peers::PeerEnds;
use crate::registry::{MethodKey, Registry, service_of};
use crate::routing::{Routing, WorkerWish};
use crate::service_users::ServiceUsers;
use crate::sessions::SessionEnds;
use crate::shard::{ShardLinks, note_stays, return_kept};
use crate::source::CallSources;
use crate::table::Key;
use crate::target::Target;
use crate::trace::Trace;
use crate::workers::{Asking, Given, Queued, ServiceWorkers, Workers};
use crate::{CallKey, SessionKey};
use trunkline_call::{Execution, Fault, Instant, RouteIndex, Steps, TimerTable, WorkerChoice};
use trunkline_dispatch::Class;
use trunkline_policy::Side;

/// Where a call goes; if that is a session, by which of its routes.
type Found = (ServerEnd, Option<RouteIndex>);

/// What becomes of a call that begins.
pub(crate) enum CallStart {
    /// It has its server end, which counts it if it is a session of this host; policies that have to do with it judge
    /// its opening.
    Settled { handler: Option<SessionKey>, policies: Option<Box<CallPolicies>> },
    /// It waits for a worker, with its opening.
    Waits,
    /// It does not begin.
    Refused(Fault),
    /// Nobody serves it here, or nobody has room.
    Unserved(Fault),
}

/// Those who have a say in how a call begins.
pub(crate) struct StartOfCall<'e> {
    pub registry: &'e mut Registry,
    pub shards: &'e mut ShardLinks,
    pub service_users: &'e ServiceUsers,
    pub clusters: &'e Clusters,
    pub sessions: &'e mut SessionEnds,
    pub peers: &'e PeerEnds,
    pub grpc: &'e GrpcEnds,
    pub gateway: &'e Gateway,
    pub workers: &'e mut Workers,
    pub awaited: &'e Awaited,
    pub admission: &'e mut AdmissionControl,
    pub attempts: &'e mut AttemptControl,
    pub timers: &'e mut TimerTable<Due>,
    pub steps: &'e mut Steps,
    pub limits: &'e Limits,
    pub draining: bool,
}

impl StartOfCall<'_> {
    /// A call begins: it waits for a worker, or has its server end.
    #[inline]
    pub fn start(
        &mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        target: Target,
        opening: &mut Item<'_>,
    ) -> CallStart {
        match self.way_to_worker(now, (key, &mut *call), target, opening) {
            Ok(None) => self.start_now(now, (key, call), target, opening),
            Ok(Some(queued)) => self.wait(now, (key, call), queued, opening),
            Err(fault) => CallStart::Refused(fault),
        }
    }

    /// The same of one that has its place at a worker, or needs none.
    #[inline]
    pub fn start_now(
        &mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        target: Target,
        opening: &Item<'_>,
    ) -> CallStart {
        let Item::Open { metadata, body, .. } = opening else {
            return CallStart::Unserved(Fault::HandlerProtocol { why: "a call must start with its opening" });
        };
        let bytes = body.as_ref().map_or(0, Body::len);
        match self.settle(now, (key, &mut *call), target, metadata, bytes) {
            Ok(handler) => {
                if !self.attempts.says_nothing() {
                    arm_attempts(self.attempts, self.registry, call, bytes);
                }
                CallStart::Settled { handler, policies: call.policies.take() }
            }
            Err(fault) => CallStart::Unserved(fault),
        }
    }

    /// It waits, for a worker or for who comes.
    #[inline(never)]
    pub fn wait(
        &mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        queued: Queued,
        opening: &mut Item<'_>,
    ) -> CallStart {
        let admitted = self.admit_early(now, (key, &mut *call), opening);
        // Where it may not, its end takes it out of the queue.
        call.queued = Some(queued);
        match admitted {
            Ok(()) => {
                call.request.wait(now, opening.take().into_owned());
                CallStart::Waits
            }
            Err(fault) => CallStart::Refused(fault),
        }
    }

    // LIFE: 5 | admitted: not too long, not too late; the server end found | deadline, parent, trace, local session or
    // service with endpoints |
    /// Admits a call and gives it its server end, before its first message is there or with it. The session of this
    /// host that is to serve it, if that is its server end.
    pub fn settle(
        &mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        target: Target,
        metadata: &[u8],
        body_bytes: u32,
    ) -> Result<Option<SessionKey>, Fault> {
        self.admit(now, (key, &mut *call), metadata, body_bytes)?;
        let (server, route) = self.find_server(call, target)?;
        self.set_server(call, server, route);
        self.enlist_server(call);
        Ok(call.handler())
    }

    /// Gives a call its server end, and counts it with the shard that will serve it.
    pub fn set_server(&mut self, call: &mut Call, server: ServerEnd, route: Option<RouteIndex>) {
        match &server {
            ServerEnd::Session { .. } if !self.shards.is_alone() => {
                note_stays(self.sessions, self.shards, &call.client);
            }
            ServerEnd::Shard { shard, .. } => self.shards.note_made(*shard),
            _ => {}
        }
        (call.server, call.served_as) = (server, route);
    }

    /// Admits a call before its server end is looked for: it waits.
    pub fn admit_early(
        &mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        opening: &Item<'_>,
    ) -> Result<(), Fault> {
        let Item::Open { metadata, body, .. } = opening else { return Ok(()) };
        let bytes = body.as_ref().map_or(0, Body::len);
        self.admit_head(now, (key, &mut *call), metadata, bytes)?;
        self.bound_wait(now, (key, call));
        Ok(())
    }

    /// Admits a call whose opening is not whole, or waits. One that streams does not wait for the rest of it.
    #[inline(never)]
    pub fn admit_head(
        &mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        metadata: &[u8],
        body_bytes: u32,
    ) -> Result<(), Fault> {
        self.admit(now, (key, &mut *call), metadata, body_bytes)?;
        call.planned_by = self.admission.version();
        Ok(())
    }

    /// The time that policies of whoever makes a call give it is over while it waits, too. What those of its server say
    /// is known when it has one: of several, each may have others.
    #[inline(never)]
    pub fn bound_wait(&mut self, now: Instant, (key, call): (CallKey, &mut Call)) {
        if let Some(timeout_ns) = call.policies.as_ref().and_then(|policies| policies.timeout_ns()) {
            end_in_time(self.timers, now, (key, call), timeout_ns);
        }
    }

    /// A call that has waited is judged by the policies of this moment.
    #[cold]
    #[inline(never)]
    fn plan_anew(&mut self, call: &mut Call) {
        if call.planned_by == self.admission.version() {
            return;
        }
        call.planned_by = self.admission.version();
        let plan = maker_plan(self.admission, self.registry, self.sessions, self.gateway, call);
        self.admission.apply_anew(&mut call.policies, plan);
    }

    /// The same of one that has its server end already.
    #[cold]
    #[inline(never)]
    pub fn plan_settled(&mut self, call: &mut Call) {
        if call.planned_by != self.admission.version() {
            self.enlist_anew(call);
        }
    }

    /// Finds again what applies to a call, on both of its sides.
    #[cold]
    #[inline(never)]
    fn enlist_anew(&mut self, call: &mut Call) {
        self.plan_anew(call);
        self.enlist_server(call);
    }

    // LIFE: 5
    /// What must hold before anybody is bothered with the call. One that begins again was admitted when it began.
    pub fn admit(
        &mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        metadata: &[u8],
        body_bytes: u32,
    ) -> Result<(), Fault> {
        if call.admitted {
            self.plan_anew(call);
            return Ok(());
        }
        let Self { registry, attempts, limits, timers, draining, .. } = self;
        if *draining && !registry.is_own(call.method) {
            return Err(Fault::Draining);
        }
        limits.check_message(body_bytes)?;
        let (trace, asked) = Trace::read(metadata)?;
        if !attempts.says_nothing()
            && call.is_made_here()
            && let Some(config) = attempts.config(registry.path(call.method))
        {
            call.configure(now, config);
        }
        call.trace = trace;
        let said = call.policies.as_ref().map_or(WorkerChoice::default(), |policies| policies.choice());
        call.choice = said.or(asked).or(call.choice);
        call.admitted = true;
        if call.deadline.has_passed(now) {
            return Err(Fault::DeadlinePassed { executed: Execution::NotExecuted });
        }
        if let Some(at) = call.deadline.instant() {
            call.timer = Some(timers.insert(at, Due::Deadline(key)));
        }
        Ok(())
    }

    /// Whether it is for the daemon's own, who are between two processes (`handover/awaited.rs`).
    #[inline]
    pub fn is_awaited(&self, call: &Call, target: Target) -> bool {
        // One with a place has come from another shard for that.
        self.awaited.is_active()
            && call.place.is_none()
            && self.awaited.has_all(self.registry, call.method, target, call.client.follows())
    }

    /// The workers of a method's service, if there are any here.
    pub fn workers_of(&mut self, method: MethodKey) -> Option<Key<ServiceWorkers>> {
        let Self { workers, registry, admission, limits, .. } = self;
        let (name, servers) = (service_of(registry.path(method)), registry.in_line(method));
        let reserved = || admission.chain().reservations(name);
        let queue_max = limits.calls_delivered_per_session;
        (!servers.is_empty()).then(|| workers.service(name, servers, registry.version(), queue_max, reserved))
    }

    /// Finds again what applies to a call that was handed over.
    pub fn enlist_again(&mut self, call: &mut Call) {
        if call.policies.is_some() {
            self.enlist_anew(call);
        }
    }

    /// Those who know who serves what.
    pub fn routing(&self) -> Routing<'_> {
        let Self { registry, shards, service_users, clusters, .. } = self;
        Routing { registry, shards, service_users, clusters }
    }

    // LIFE: 4 | served by workers of this host: one that is free, or the queue in front of them | the worker |
    /// Gives a call that begins a place at a worker, if it is to have one; or what it waits in, with its place there.
    fn way_to_worker(
        &mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        target: Target,
        opening: &Item<'_>,
    ) -> Result<Option<Queued>, Fault> {
        if call.place.is_some() {
            // It has come from another shard for the place that was kept there.
            return Ok(None);
        }
        let wish = if self.draining { None } else { self.routing().worker_wish(call, target, opening) };
        let Some(wish) = wish else { return Ok(None) };
        self.ask_for_worker(now, (key, call), target, opening, wish)
    }

    fn ask_for_worker(
        &mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        target: Target,
        opening: &Item<'_>,
        WorkerWish { choice, is_shared }: WorkerWish,
    ) -> Result<Option<Queued>, Fault> {
        let method = call.method;
        let Some(service) = self.workers_of(method) else { return Ok(None) };
        let Self { workers, sessions, peers, grpc, limits, .. } = self;
        let sources = CallSources { sessions, peers, grpc };
        let sticky = (choice.sticky == Some(true)).then(|| sources.caller_of(call));
        let (calls_max, bytes_max) = (limits.calls_delivered_per_session, limits.parked_bytes_per_session);
        let (class, bytes) = (Class::new(choice.class.unwrap_or(0)), opening.parked_bytes());
        let asking =
            Asking { call: key, method, class, sticky, is_shared, target, bytes, calls_max, bytes_max };
        match workers.give(now, service, asking, || sources.of(call)) {
            Given::On(place) => {
                call.place = place;
                Ok(None)
            }
            Given::Waits(queued) => Ok(Some(queued)),
            Given::Refused(fault) => Err(fault),
        }
    }

    fn find_server(&mut self, call: &mut Call, target: Target) -> Result<Found, Fault> {
        if call.kept_at.is_some() && !matches!(target, Target::Cluster(_)) {
            if let Some(shard) = self.routing().keeping(call) {
                return Ok((shard, None));
            }
            return_kept(self.shards, self.registry, call);
        }
        let Self { sessions, peers, grpc, limits, .. } = &*self;
        let sources = CallSources { sessions, peers, grpc };
        let has_room = |session| {
            let session = sessions.find(session);
            session.is_some_and(|session| session.has_room(limits, || sources.of(call)))
        };
        let found = self.routing().route(call, target, limits.calls_delivered_per_session, has_room)?;
        if let ServerEnd::Session { session, .. } = &found.0
            && call.place.is_none_or(|place| place.session != *session)
        {
            self.registry.advance(call.method);
        }
        Ok(found)
    }

    /// Notes what applies to a call at the session that will serve it.
    #[inline]
    fn enlist_server(&mut self, call: &mut Call) {
        if self.admission.chain().stands_on(Side::Server) {
            let plan = handler_plan(self.admission, self.registry, self.sessions, call);
            self.admission.apply(&mut call.policies, 1, plan);
        }
    }
}
