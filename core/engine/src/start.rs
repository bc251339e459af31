//! The start of a call: is it sound, and who serves it?

use crate::CallKey;
use crate::call::{Body, Direction, Item, ServerEnd};
use crate::cluster::ClusterKey;
use crate::due::Due;
use crate::engine::{Engine, Turn};
use crate::gather::{Gathered, is_whole};
use crate::limits::MESSAGE_BYTES;
use crate::registry::{Called, MethodKey, Server, service_of};
use crate::session::Target;
use crate::trace::Trace;
use trunkline_call::{Deadline, Execution, Fault, Instant, WorkerChoice};

impl Engine {
    /// Finds the server end of a new call and sends its opening item on the way.
    pub(crate) fn start(&mut self, turn: &mut Turn<'_>, key: CallKey, target: Target, opening: Item<'_>) {
        self.note_step(turn.now, key, Direction::Request, &opening);
        if !is_whole(&opening) && self.begins_whole(key, target) {
            return self.begin_in_parts(turn, key, opening);
        }
        if let Some(opening) = self.find_place(turn, key, target, opening) {
            self.start_now(turn, key, target, opening);
        }
    }

    /// Whether a call is to begin with its whole request: those who serve its method take one message. Their policies
    /// judge that message, and a worker that waited for it would keep others from it.
    fn begins_whole(&self, key: CallKey, target: Target) -> bool {
        let Some(call) = self.calls.find(key).filter(|_| !matches!(target, Target::Cluster(_))) else {
            return false;
        };
        let server = self.registry.servers(call.method).first();
        server.is_some_and(|server| !server.types.input.is_opaque() && !server.types.pattern.client_streams())
    }

    /// The first part of a request whose call begins when it is whole; deadline and cancellation hold from here on.
    fn begin_in_parts(&mut self, turn: &mut Turn<'_>, key: CallKey, opening: Item<'_>) {
        let admitted = match &opening {
            Item::Open { metadata, body, .. } => {
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
    pub(crate) fn add_part(&mut self, turn: &mut Turn<'_>, key: CallKey, part: Item<'_>) {
        match self.gather_request(key, part) {
            Ok(Gathered::One(opening) | Gathered::Two(opening, _)) => {
                let is_made_here = self.calls.find(key).is_some_and(|call| call.maker().is_some());
                let target = if is_made_here { Target::Anyone } else { Target::Here };
                self.start(turn, key, target, opening);
            }
            Ok(Gathered::Kept) => {}
            Err(fault) => self.fail(turn, key, fault),
        }
    }

    /// Begins a call that waited, with whatever has come behind its opening meanwhile.
    pub(crate) fn start_with_rest(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        opening: Item<'static>,
        start: impl FnOnce(&mut Self, &mut Turn<'_>, Item<'static>),
    ) {
        let Some(call) = self.calls.find_mut(key) else { return self.drop_item(opening) };
        call.request.ended = false;
        let rest = std::mem::take(&mut call.request.backlog);
        rest.iter().for_each(|item| self.unaccount(key, Direction::Request, item));
        start(self, turn, opening);
        for item in rest {
            self.pass(turn, key, Direction::Request, item);
        }
    }

    /// The same for a call that has its place at a worker, or needs none.
    pub(crate) fn start_now(&mut self, turn: &mut Turn<'_>, key: CallKey, target: Target, opening: Item<'_>) {
        let settled = match &opening {
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
            Err(fault) => {
                self.drop_item(opening);
                self.fail(turn, key, fault);
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
        let server = self.find_server(key, target)?;
        if let Some(call) = self.calls.find_mut(key) {
            call.server = server;
        }
        self.enter_server(key);
        self.enlist_server(key);
        Ok(())
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
        if self.draining {
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
        if self.service_configs.is_empty() {
            return;
        }
        let Some(call) = self.calls.find_mut(key).filter(|call| call.is_made_here()) else { return };
        let path = self.registry.path(call.method);
        let config = self.service_configs.get(service_of(path)).and_then(|config| config.method(path));
        let Some(config) = config else { return };
        if let Some(timeout_ns) = config.timeout_ns {
            call.deadline = call.deadline.earlier(Deadline::at(now.plus_ns(timeout_ns)));
        }
        call.waits_for_ready |= config.wait_for_ready.unwrap_or(false);
        let longest = [config.request_bytes_max, config.response_bytes_max];
        call.message_bytes_max = longest.map(|bytes| bytes.unwrap_or(u32::MAX));
    }

    fn find_server(&mut self, key: CallKey, target: Target) -> Result<ServerEnd, Fault> {
        let method = match self.calls.find(key) {
            Some(call) => call.method,
            None => return Err(Fault::Ended),
        };
        match target {
            Target::Cluster(cluster) => Ok(ServerEnd::Cluster { cluster }),
            Target::Anyone => match self.find_session(key, method)? {
                Some(server) => Ok(ServerEnd::Session { session: server.session, types: server.types }),
                None => self.find_cluster(method).map(|cluster| ServerEnd::Cluster { cluster }),
            },
            Target::Here => match self.find_session(key, method)? {
                Some(server) => Ok(ServerEnd::Session { session: server.session, types: server.types }),
                None => Err(self.unserved(method)),
            },
        }
    }

    /// A session of this host that serves the method and has room; `None` if none serves it at all.
    pub(crate) fn find_session(&mut self, key: CallKey, method: MethodKey) -> Result<Option<Server>, Fault> {
        let (sessions, limits) = (&self.sessions, &self.limits);
        let place = self.calls.find(key).and_then(|call| call.place);
        let has_room = |session| sessions.find(session).is_some_and(|session| session.has_room(limits));
        if let Some(place) = place.filter(|place| has_room(place.session)) {
            let servers = self.registry.servers(method);
            if let Some(server) = servers.iter().find(|server| server.session == place.session) {
                return Ok(Some(server.clone()));
            }
        }
        let mut any = false;
        for server in self.registry.rotate(method) {
            any = true;
            if has_room(server.session) {
                return Ok(Some(server.clone()));
            }
        }
        if any {
            let limit = self.limits.calls_delivered_per_session as u64;
            return Err(Fault::Limit {
                name: "calls in flight at the server (limits.calls_delivered_per_session)",
                limit,
            });
        }
        Ok(None)
    }

    /// The method a peer means by a path, if somebody here has named it or serves its service as a whole.
    pub(crate) fn method_called(&mut self, path: &str) -> Option<Called> {
        let (telemetry, max) = (&mut self.telemetry, self.limits.methods_learned_per_service);
        self.registry.called(path, max, |path| telemetry.method(path))
    }

    /// The configured endpoints of the method's service.
    fn find_cluster(&self, method: MethodKey) -> Result<ClusterKey, Fault> {
        let cluster = self.clusters.of_service(service_of(self.registry.path(method)));
        cluster.ok_or_else(|| self.unserved(method))
    }

    /// Why a method nobody here serves is not called.
    fn unserved(&self, method: MethodKey) -> Fault {
        let path = self.registry.path(method);
        let service = service_of(path);
        if self.registry.serves_service(service) {
            Fault::NoMethod { path: path.to_string() }
        } else {
            Fault::NoRoute { what: service.to_owned() }
        }
    }

    /// Why a call of a peer for a service that has endpoints here is not taken, if it has.
    pub(crate) fn unserved_here(&self, path: &str) -> Option<Fault> {
        let service = service_of(path);
        self.clusters.of_service(service).filter(|_| !self.registry.serves_service(service))?;
        let why = "its endpoints are for applications of this host; calls from elsewhere are forwarded only where \
                   gateway.listen in the daemon's configuration says";
        Some(Fault::Unreachable { endpoint: service.to_owned(), why: why.into() })
    }

    /// Why a call that had endpoints has none any more.
    pub(crate) fn unserved_call(&self, key: CallKey) -> Fault {
        self.calls.find(key).map_or(Fault::Ended, |call| self.unserved(call.method))
    }

    /// Counts the call with the session that will serve it.
    pub(crate) fn enter_server(&mut self, key: CallKey) {
        let handler = self.calls.find(key).and_then(|call| call.handler());
        if let Some(session) = handler.and_then(|session| self.sessions.find_mut(session)) {
            session.delivered += 1;
        }
    }
}
