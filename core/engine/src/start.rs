//! The start of a call: is it sound, and who serves it?

use crate::call::{Body, ClientEnd, Direction, Item, ServerEnd};
use crate::cluster::ClusterKey;
use crate::due::Due;
use crate::engine::{Engine, Turn};
use crate::gather::is_whole;
use crate::limits::MESSAGE_BYTES;
use crate::opaque::is_path;
use crate::registry::{Called, MethodKey, MethodTypes, Server, service_of};
use crate::served_later::wait_for_service;
use crate::shard::crossing::ShardSaid;
use crate::shard::{ShardIndex, note_stays};
use crate::source::{CallSources, caller_of, source_of};
use crate::table::Key;
use crate::target::Target;
use crate::trace::Trace;
use crate::traced::open_spans;
use crate::workers::{Asking, Given, GivenOut, Queued, ServiceWorkers};
use crate::{CallKey, SessionKey};
use std::sync::Arc;
use trunkline_call::{Deadline, Execution, Fault, Instant, Pattern, RouteIndex, WorkerChoice};
use trunkline_dispatch::Class;

/// Where a call goes; if that is a session, by which of its routes.
type Found = (ServerEnd, Option<RouteIndex>);

impl Engine {
    /// Finds the server end of a new call and sends its opening item on the way.
    pub(crate) fn start(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        target: Target,
        opening: &mut Item<'_>,
    ) {
        open_spans(self, key, opening);
        if let Some(call) = self.calls.find_mut(key) {
            call.note_step(&mut self.steps, turn.now, Direction::Request, opening);
        }
        if !is_whole(opening) && self.begins_whole(key, target) {
            return self.begin_in_parts(turn, key, target, opening);
        }
        match self.way_to_worker(turn.now, key, target, opening) {
            Ok(None) => self.start_now(turn, key, target, opening),
            Ok(Some(queued)) => self.wait_for_worker(turn, key, queued, opening),
            Err(fault) => {
                self.drop_item(opening);
                self.fail(turn, key, fault);
            }
        }
    }

    /// Whether a call is to begin with its whole request: its maker's policies judge the one message it has, or
    /// those who serve its method take one. Their policies judge that message, and a worker that waited for it would
    /// keep others from it.
    fn begins_whole(&self, key: CallKey, target: Target) -> bool {
        let Some(call) = self.calls.find(key) else { return false };
        if call.policies.as_ref().is_some_and(|policies| policies.read_one_message()) {
            return true;
        }
        if matches!(target, Target::Cluster(_)) {
            return false;
        }
        let types = self.types_served(call.method);
        types.is_some_and(|types| !types.input.is_opaque() && !types.pattern.client_streams())
    }

    /// The first part of a request whose call begins when it is whole; deadline and cancellation hold from here on.
    fn begin_in_parts(&mut self, turn: &mut Turn<'_>, key: CallKey, target: Target, opening: &mut Item<'_>) {
        if let Some(policies) = self.calls.find_mut(key).and_then(|call| call.policies.as_mut()) {
            policies.begins_at = Some(target);
        }
        let admitted = match &*opening {
            // One that has waited for its service was admitted when it began.
            Item::Open { metadata, body, .. } if self.calls.find(key).is_some_and(|call| !call.admitted) => {
                self.admit(turn, key, metadata, body.as_ref().map_or(0, Body::len))
            }
            _ => Ok(()),
        };
        match admitted {
            Ok(()) => self.add_part(turn, key, opening),
            Err(fault) => {
                self.drop_item(opening);
                self.fail(turn, key, fault);
            }
        }
    }

    /// Another part: with the last one the call begins.
    pub(crate) fn add_part(&mut self, turn: &mut Turn<'_>, key: CallKey, part: &mut Item<'_>) {
        match self.join(key, Direction::Request, part.take()) {
            Ok([Some(mut opening), _]) => {
                let Some(call) = self.calls.find_mut(key) else { return self.drop_item(&mut opening) };
                let is_made_here = call.maker().is_some() || call.has_moved();
                let kept = call.policies.as_mut().and_then(|policies| policies.begins_at.take());
                let target = kept.unwrap_or(if is_made_here { Target::Anyone } else { Target::Here });
                self.start(turn, key, target, &mut opening);
            }
            Ok(_) => {}
            Err(fault) => self.fail(turn, key, fault),
        }
    }

    /// Begins a call that waited, with whatever has come behind its opening meanwhile.
    pub(crate) fn start_with_rest(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        mut opening: Item<'static>,
        start: impl FnOnce(&mut Self, &mut Turn<'_>, &mut Item<'static>),
    ) {
        let Some(call) = self.calls.find_mut(key) else { return self.drop_item(&mut opening) };
        call.request.ended = false;
        let rest = std::mem::take(&mut call.request.backlog);
        rest.iter().for_each(|item| self.unaccount(key, Direction::Request, item));
        start(self, turn, &mut opening);
        for mut item in rest {
            self.pass(turn, key, Direction::Request, &mut item);
        }
    }

    /// Starts a call that has its place at a worker, or needs none.
    pub(crate) fn start_now(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        target: Target,
        opening: &mut Item<'_>,
    ) {
        let settled = match &*opening {
            Item::Open { metadata, body, .. } => {
                let bytes = body.as_ref().map_or(0, Body::len);
                self.settle(turn, key, target, metadata, bytes)
            }
            _ => Err(Fault::HandlerProtocol { why: "a call must start with its opening" }),
        };
        match settled {
            Ok(()) => {
                self.arm_attempts(key, opening.body().map_or(0, Body::len));
                self.admit_opening(turn, key, opening);
            }
            Err(_) if self.return_opening(key, opening) => {}
            Err(fault) => {
                if let Err(fault) = wait_for_service(self, turn, (key, target), opening, fault) {
                    self.drop_item(opening);
                    self.fail(turn, key, fault);
                }
            }
        }
    }

    // LIFE: 5 | admitted: not too long, not too late; the server end found | deadline, parent, trace, local session or
    // service with endpoints |
    /// Admits a call and gives it its server end, before its first message is there or with it.
    pub(crate) fn settle(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        target: Target,
        metadata: &[u8],
        body_bytes: u32,
    ) -> Result<(), Fault> {
        if self.calls.find(key).is_some_and(|call| !call.admitted) {
            self.admit(turn, key, metadata, body_bytes)?;
        }
        let (server, route) = self.find_server(key, target)?;
        self.set_server(key, server, route);
        self.enlist_server(key);
        Ok(())
    }

    /// Gives a call its server end, and counts it with the session or the shard that will serve it.
    pub(crate) fn set_server(&mut self, key: CallKey, server: ServerEnd, route: Option<RouteIndex>) {
        if let ServerEnd::Session { session, .. } = server {
            self.count_delivered(key, session);
        }
        let Some(call) = self.calls.find_mut(key) else { return };
        match &server {
            ServerEnd::Session { .. } if !self.shards.is_alone() => {
                note_stays(&mut self.sessions, &mut self.shards, &call.client);
            }
            ServerEnd::Shard { shard, .. } => self.shards.note_made(*shard),
            _ => {}
        }
        (call.server, call.served_as) = (server, route);
    }

    /// A call takes of what may be in flight at a session.
    #[inline]
    fn count_delivered(&mut self, key: CallKey, session: SessionKey) {
        let limit = self.limits.calls_delivered_per_session as u64;
        self.sessions.note_served(&self.calls, key, session);
        let Some(found) = self.sessions.find_mut(session) else { return };
        if found.delivered.take_of_anybodys(1, limit) {
            return;
        }
        let source = source_of(self, key);
        if let Some(found) = self.sessions.find_mut(session) {
            found.delivered.take(key, 1, limit, || source);
        }
    }

    // LIFE: 5
    /// What must hold before anybody is bothered with the call.
    pub(crate) fn admit(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        metadata: &[u8],
        body_bytes: u32,
    ) -> Result<(), Fault> {
        if self.draining && !self.calls.find(key).is_some_and(|call| self.registry.is_own(call.method)) {
            return Err(Fault::Draining);
        }
        if body_bytes > self.limits.message_bytes {
            return Err(Fault::Limit { name: MESSAGE_BYTES, limit: self.limits.message_bytes.into() });
        }
        let (trace, asked) = Trace::read(metadata)?;
        self.apply_service_config(turn.now, key);
        let Some(call) = self.calls.find_mut(key) else { return Ok(()) };
        call.trace = trace;
        let said = call.policies.as_ref().map_or(WorkerChoice::default(), |policies| policies.choice());
        call.choice = said.or(asked).or(call.choice);
        call.admitted = true;
        if call.deadline.has_passed(turn.now) {
            return Err(Fault::DeadlinePassed { executed: Execution::NotExecuted });
        }
        if let Some(at) = call.deadline.instant() {
            call.timer = Some(self.timers.insert(at, Due::Deadline(key)));
        }
        Ok(())
    }

    /// What the service's users have said about calls such as this one, if it is made here.
    fn apply_service_config(&mut self, now: Instant, key: CallKey) {
        if self.attempts.says_nothing() {
            return;
        }
        let Some(call) = self.calls.find_mut(key).filter(|call| call.is_made_here()) else { return };
        let Some(config) = self.attempts.config(self.registry.path(call.method)) else { return };
        if let Some(timeout_ns) = config.timeout_ns {
            call.deadline = call.deadline.earlier(Deadline::at(now.plus_ns(timeout_ns)));
        }
        call.waits_for_ready |= config.wait_for_ready.unwrap_or(false);
        let longest = [config.request_bytes_max, config.response_bytes_max];
        call.message_bytes_max = longest.map(|bytes| bytes.unwrap_or(u32::MAX));
    }

    fn find_server(&mut self, key: CallKey, target: Target) -> Result<Found, Fault> {
        let Some(call) = self.calls.find(key) else { return Err(Fault::Ended) };
        let method = call.method;
        if let Target::Cluster(cluster) = target {
            return Ok((ServerEnd::Cluster { cluster }, None));
        }
        if call.kept_at.is_some() {
            match self.find_keeping(key) {
                Some(shard) => return Ok((shard, None)),
                None => self.return_kept(key),
            }
        }
        // Those who stand by serve only while nobody else does, wherever.
        let serves = |server: &Server| !server.stands_by;
        if !self.registry.in_line(method).first().is_some_and(serves)
            && let Some(shard) = self.find_shard(key, false)
        {
            return Ok((shard, None));
        }
        match self.find_session(key, method) {
            Ok(Some(found)) => Ok(found),
            Err(full) => self.find_shard(key, false).map(|shard| (shard, None)).ok_or(full),
            Ok(None) => match self.find_shard(key, true) {
                Some(shard) => Ok((shard, None)),
                None if target == Target::Anyone => {
                    self.find_cluster(method).map(|cluster| (ServerEnd::Cluster { cluster }, None))
                }
                None => Err(self.unserved(method)),
            },
        }
    }

    /// The types of those who serve a method here, or on another shard if nobody does here.
    pub(crate) fn types_served(&self, method: MethodKey) -> Option<&Arc<MethodTypes>> {
        let here = self.registry.servers(method).first().map(|server| &server.types);
        here.or_else(|| self.shards.types(method, self.registry.path(method)).next())
    }

    /// Whether any method of a service is served on this host.
    pub(crate) fn serves_service(&self, service: &str) -> bool {
        self.owners.has(service) || self.shards.elsewhere.serves(service)
    }

    /// A session of this host that serves the method and has room; `None` if none serves it at all.
    fn find_session(&mut self, key: CallKey, method: MethodKey) -> Result<Option<Found>, Fault> {
        let end_at = |server: &Server| {
            let (session, types) = (server.session, Arc::clone(&server.types));
            Some((ServerEnd::Session { session, types }, Some(server.route)))
        };
        let Self { sessions, limits, calls, peers, grpc, .. } = self;
        let sources = CallSources { calls, sessions, peers, grpc };
        let limit = limits.calls_delivered_per_session as u64;
        let full = || Fault::Limit {
            name: "calls in flight at the server (limits.calls_delivered_per_session)",
            limit,
        };
        let has_room = |session| {
            sessions.find(session).is_some_and(|session| session.has_room(limits, || sources.of(key)))
        };
        let place = calls.find(key).and_then(|call| call.place);
        let servers = self.registry.servers(method);
        if let Some(server) = servers.only_one() {
            return if has_room(server.session) { Ok(end_at(server)) } else { Err(full()) };
        }
        if let Some(place) = place.filter(|place| has_room(place.session))
            && let Some(server) = servers.iter().find(|server| server.session == place.session)
        {
            return Ok(end_at(server));
        }
        let mut any = false;
        for server in self.registry.rotate(method) {
            any = true;
            if has_room(server.session) {
                return Ok(end_at(server));
            }
        }
        if any { Err(full()) } else { Ok(None) }
    }

    /// The method a peer means by a path, if somebody here has named it or serves its service as a whole.
    pub(crate) fn method_called(&mut self, path: &str) -> Option<Called> {
        let (telemetry, max) = (&mut self.telemetry, self.limits.methods_learned_per_service);
        let called = self.registry.called(path, max, |path| telemetry.method(path));
        if called.is_some() || !self.shards.elsewhere.has_whole(service_of(path)) || !is_path(path) {
            return called;
        }
        let method = self.registry.learn_forwarded(path, max, |path| telemetry.method(path));
        let shared = &**self.registry.path(method) != path;
        Some(Called { method, path: shared.then(|| path.into()) })
    }

    /// Whether those who serve a method do so only while nobody else does.
    pub(crate) fn is_stood_by(&self, method: MethodKey) -> bool {
        let here = self.registry.servers(method).iter().all(|server| server.stands_by);
        let mut elsewhere = self.shards.elsewhere.serving(method, self.registry.path(method));
        here && elsewhere.all(|one| one.stands_by)
    }

    /// The configured endpoints of the method's service.
    pub(crate) fn find_cluster(&self, method: MethodKey) -> Result<ClusterKey, Fault> {
        let cluster = self.clusters.of_service(service_of(self.registry.path(method)));
        cluster.ok_or_else(|| self.unserved(method))
    }

    /// Why a method nobody here serves is not called.
    fn unserved(&self, method: MethodKey) -> Fault {
        let path = self.registry.path(method);
        let service = service_of(path);
        if self.serves_service(service) {
            Fault::NoMethod { path: path.to_string() }
        } else {
            Fault::NoRoute { what: service.to_owned() }
        }
    }

    /// Why a call that had endpoints has none any more.
    pub(crate) fn unserved_call(&self, key: CallKey) -> Fault {
        self.calls.find(key).map_or(Fault::Ended, |call| self.unserved(call.method))
    }

    // LIFE: 4 | served by workers of this host: one that is free, or the queue in front of them | the worker |
    /// Gives a call that begins a place at a worker, if it is to have one; or what it waits in, with its place there.
    fn way_to_worker(
        &mut self,
        now: Instant,
        key: CallKey,
        target: Target,
        opening: &Item<'_>,
    ) -> Result<Option<Queued>, Fault> {
        let Some(call) = self.calls.find(key) else { return Err(Fault::Ended) };
        let method = call.method;
        if call.place.is_some() {
            // It has come from another shard for the place that was kept there.
            return Ok(None);
        }
        if self.awaited.is_active()
            && self.awaited.has_all(&self.registry, method, target, call.client.follows())
        {
            let (calls, bytes) = (&self.calls, opening.parked_bytes());
            let is_waiting = |key| calls.find(key).is_some_and(|call| call.queued.is_some());
            if self.awaited.admit(key, bytes, is_waiting) {
                return Ok(Some(Queued::for_none(target, bytes)));
            }
        }
        let servers = self.registry.in_line(method);
        let is_one_of_several = match servers.len() {
            0 => false,
            1 => {
                !self.shards.is_alone()
                    && self.shards.sharing(method, self.registry.path(method)).next().is_some()
            }
            _ => true,
        };
        if matches!(target, Target::Cluster(_)) || !is_one_of_several || self.draining {
            return Ok(None);
        }
        let choice = self.choice_of_worker(key, method, opening);
        let sticky = (choice.sticky == Some(true)).then(|| caller_of(self, key));
        let is_unary =
            |server: &Server| server.types.pattern == Pattern::Unary && !server.types.input.is_opaque();
        let is_shared = servers.iter().all(is_unary);
        if !is_shared && sticky.is_none() {
            return Ok(None);
        }
        let class = Class::new(choice.class.unwrap_or(0));
        let (calls_max, bytes_max) =
            (self.limits.calls_delivered_per_session, self.limits.parked_bytes_per_session);
        let (call, bytes) = (key, opening.parked_bytes());
        self.give_to_worker(
            now,
            Asking { call, method, class, sticky, is_shared, target, bytes, calls_max, bytes_max },
        )
    }

    fn give_to_worker(&mut self, now: Instant, asking: Asking) -> Result<Option<Queued>, Fault> {
        let Asking { call: key, calls_max, bytes_max, .. } = asking;
        let Some(service) = self.workers_of(asking.method) else { return Ok(None) };
        let Self { workers, calls, sessions, peers, grpc, .. } = self;
        let sources = CallSources { calls, sessions, peers, grpc };
        match workers.give(now, service, asking, || sources.of(key)) {
            Given::On(place) => {
                if let Some(call) = self.calls.find_mut(key) {
                    call.place = place;
                }
                Ok(None)
            }
            Given::Waits(queued) => Ok(Some(queued)),
            Given::BytesFull => Err(Fault::Limit {
                name: "bytes of calls waiting for a worker (limits.parked_bytes_per_session)",
                limit: bytes_max as u64,
            }),
            Given::Full => Err(Fault::Limit {
                name: "calls waiting for a worker (limits.calls_delivered_per_session)",
                limit: calls_max as u64,
            }),
        }
    }

    /// The workers of a method's service, if there are any here.
    pub(crate) fn workers_of(&mut self, method: MethodKey) -> Option<Key<ServiceWorkers>> {
        let Self { workers, registry, admission, limits, .. } = self;
        let (name, servers) = (service_of(registry.path(method)), registry.in_line(method));
        let reserved = || admission.chain().reservations(name);
        let queue_max = limits.calls_delivered_per_session;
        (!servers.is_empty()).then(|| workers.service(name, servers, registry.version(), queue_max, reserved))
    }

    /// Which worker a call wants: what the operator of this host says of calls that are served here, else of those that
    /// are made here, else the call itself. What is wrong with its metadata is said at its admission.
    fn choice_of_worker(&self, key: CallKey, method: MethodKey, opening: &Item<'_>) -> WorkerChoice {
        let server = self.registry.in_line(method).first().and_then(|server| server.plan.as_ref());
        let served = server.map_or(WorkerChoice::default(), |plan| plan.choice());
        let Some(call) = self.calls.find(key) else { return served };
        let made = call.policies.as_ref().map_or(WorkerChoice::default(), |policies| policies.choice());
        let asked = match opening {
            // It was asked for where it comes from.
            _ if matches!(call.client, ClientEnd::Shard { .. }) => WorkerChoice::default(),
            Item::Open { metadata, .. } => WorkerChoice::read(metadata).unwrap_or_default(),
            _ => WorkerChoice::default(),
        };
        served.or(made).or(asked).or(call.choice)
    }

    fn wait_for_worker(&mut self, turn: &mut Turn<'_>, key: CallKey, queued: Queued, opening: &mut Item<'_>) {
        let admitted = match &*opening {
            // One that begins again was admitted when it began.
            Item::Open { metadata, body, .. } if self.calls.find(key).is_some_and(|call| !call.admitted) => {
                self.admit(turn, key, metadata, body.as_ref().map_or(0, Body::len))
            }
            _ => Ok(()),
        };
        let Some(call) = self.calls.find_mut(key) else {
            self.workers.stop_waiting(&queued, key);
            return self.drop_item(opening);
        };
        call.queued = Some(queued);
        match admitted {
            Ok(()) => {
                call.request.waiting_since.get_or_insert(turn.now);
                call.request.backlog.push_back(opening.take().into_owned());
            }
            Err(fault) => {
                self.stop_waiting(key);
                self.drop_item(opening);
                self.fail(turn, key, fault);
            }
        }
    }

    /// A call takes no place at its worker any more, for whatever reason.
    pub(crate) fn give_place_back(&mut self, key: CallKey) {
        self.return_kept(key);
        if let Some(place) = self.calls.find_mut(key).and_then(|call| call.place.take()) {
            self.workers.give_back(place, key);
        }
    }

    /// A call that waited for a worker is over.
    pub(crate) fn stop_waiting(&mut self, key: CallKey) {
        if let Some(queued) = self.calls.find_mut(key).and_then(|call| call.queued.take()) {
            self.workers.stop_waiting(&queued, key);
            if queued.at.is_none() {
                self.unserved.leave(key);
            }
        }
    }

    /// Whether calls wait for a worker: the host looks then which of them rest.
    pub fn calls_wait_for_workers(&self) -> bool {
        self.workers.is_waited_for()
    }

    /// Asks of workers with calls in hand, for which others wait, whether their threads wait for entries and have taken
    /// all there were: the handlers of their calls wait then, too, and do not keep them from taking others. Whether any
    /// does. A part of the services in each turn.
    pub fn free_resting_workers(
        &mut self,
        turn: &mut Turn<'_>,
        rests: impl FnMut(SessionKey) -> bool,
    ) -> bool {
        let Self { workers, calls, .. } = self;
        let any = workers.free_resting(rests, |key| {
            let call = calls.find_mut(key)?;
            call.place = None;
            Some(call.method)
        });
        if any {
            self.go_on(turn);
        }
        any
    }

    /// Calls that waited go to workers that are free, here or where they have waited much longer.
    pub(crate) fn settle_workers(&mut self, turn: &mut Turn<'_>) {
        while !self.shards.is_alone()
            && let Some((shard, method)) = self.workers.poll_kept(turn.now)
        {
            let path = Arc::clone(self.registry.path(method));
            self.shards.push(ShardIndex(shard), ShardSaid::Vacant { path });
        }
        while let Some(GivenOut { call: key, place }) = self.workers.poll(turn.now) {
            match self.calls.find_mut(key) {
                Some(call) => call.place = place.or(call.place),
                None => {
                    place.into_iter().for_each(|place| self.workers.give_back(place, key));
                    continue;
                }
            }
            self.take_from_queue(turn, key);
        }
    }

    /// A call goes on from the queue.
    pub(crate) fn take_from_queue(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let Some(call) = self.calls.find_mut(key) else { return };
        let Some(queued) = call.queued.take() else { return self.give_place_back(key) };
        let waited = call.request.waiting_since.take().map_or(0, |since| turn.now.since_ns(since));
        call.note_receive_wait(waited);
        let opening = call.request.backlog.pop_front();
        self.workers.taken_from_queue(&queued, key);
        match opening {
            Some(opening) => self.start_with_rest(turn, key, opening, |engine, turn, opening| {
                // Of a call of another shard that shard says when its deadline has passed, and may be late.
                if engine.calls.find(key).is_some_and(|call| call.deadline.has_passed(turn.now)) {
                    engine.drop_item(opening);
                    return engine.fail(
                        turn,
                        key,
                        Fault::DeadlinePassed { executed: Execution::NotExecuted },
                    );
                }
                engine.start_now(turn, key, queued.target, opening);
            }),
            None => self.give_place_back(key),
        }
    }

    /// Policies keep other workers for other classes from now on.
    pub(crate) fn reserve_workers(&mut self) {
        let Self { workers, admission, .. } = self;
        workers.reserve(|name| admission.chain().reservations(name));
    }
}
