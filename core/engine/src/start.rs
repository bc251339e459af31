//! The start of a call: is it sound, who serves it, and what do the policies say?
//!
//! Who serves it, [`Routing`] answers. Policies stand between that and its hand-over (`pass.rs`): [`AdmissionControl`]
//! is told of the call, and this does what it says. A call they let go on may be held for a while, may wait for calls
//! before it to end, and may be copied elsewhere (`mirrors.rs`); its opening then waits in the call's own backlog, as
//! everything that waits does. If its deadline passes or its caller goes away meanwhile, its handler never hears of it.
//!
//! [`AdmissionControl`]: crate::admission::AdmissionControl

use crate::CallKey;
use crate::admission::{CallFacts, CallPolicies, Denied, Inspection, add_metadata};
use crate::attempts::arm_attempts;
use crate::bound_methods::{handler_plan, maker_plan};
use crate::call::{Body, Calls, Direction, Item, ServerEnd};
use crate::call_facts::types_to_read;
use crate::due::Due;
use crate::engine::{Engine, Turn};
use crate::gather::is_whole;
use crate::limits::MESSAGE_BYTES;
use crate::permit::admit_as_sent;
use crate::registry::{MethodKey, service_of};
use crate::routing::{Routing, WorkerWish};
use crate::served_later::wait_for_service;
use crate::sessions::SessionEnds;
use crate::shard::{self, note_stays, return_kept};
use crate::source::{CallSources, caller_of};
use crate::table::Key;
use crate::target::Target;
use crate::trace::Trace;
use crate::traced::open_spans;
use crate::worker_places::WorkerPlaces;
use crate::workers::{Asking, Given, Queued, ServiceWorkers};
use trunkline_call::{Execution, Fault, Instant, RouteIndex, WorkerChoice};
use trunkline_dispatch::Class;
use trunkline_message::View;
use trunkline_policy::{Admission, Side};

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
        if !is_whole(opening)
            && self.calls.find(key).is_some_and(|call| self.routing().begins_whole(call, target))
        {
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

    /// The first part of a request whose call begins when it is whole; deadline and cancellation hold from here on.
    #[inline(never)]
    fn begin_in_parts(&mut self, turn: &mut Turn<'_>, key: CallKey, target: Target, opening: &mut Item<'_>) {
        if let Some(policies) = self.calls.find_mut(key).and_then(|call| call.policies.as_mut()) {
            policies.begins_at = Some(target);
        }
        match self.admit_early(turn, key, opening) {
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
        let (calls, mut accounts) = self.wait_accounts();
        let Some(call) = calls.find_mut(key) else { return self.drop_item(&mut opening) };
        call.request.ended = false;
        let rest = accounts.take_backlog(key, call, Direction::Request);
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
                let Self { calls, attempts, registry, .. } = self;
                if !attempts.says_nothing()
                    && let Some(call) = calls.find_mut(key)
                {
                    arm_attempts(attempts, registry, call, opening.body().map_or(0, Body::len));
                }
                self.admit_opening(turn, key, opening);
            }
            Err(_) if shard::give_back(self, key, opening) => {}
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
        self.admit(turn, key, metadata, body_bytes)?;
        let (server, route) = self.find_server(key, target)?;
        self.set_server(key, server, route);
        self.enlist_server(key);
        Ok(())
    }

    /// Gives a call its server end, and counts it with the session or the shard that will serve it.
    pub(crate) fn set_server(&mut self, key: CallKey, server: ServerEnd, route: Option<RouteIndex>) {
        if let ServerEnd::Session { session, .. } = server {
            let Self { calls, sessions, peers, grpc, limits, .. } = self;
            let Some(call) = calls.find(key) else { return };
            let source = |sessions: &SessionEnds| CallSources { sessions, peers, grpc }.of(call);
            sessions.serve(calls, (key, session), limits.calls_delivered_per_session as u64, source);
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

    /// Admits a call before its server end is looked for.
    fn admit_early(&mut self, turn: &Turn<'_>, key: CallKey, opening: &Item<'_>) -> Result<(), Fault> {
        match opening {
            Item::Open { metadata, body, .. } => {
                self.admit(turn, key, metadata, body.as_ref().map_or(0, Body::len))
            }
            _ => Ok(()),
        }
    }

    // LIFE: 5
    /// What must hold before anybody is bothered with the call. One that begins again was admitted when it began.
    pub(crate) fn admit(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        metadata: &[u8],
        body_bytes: u32,
    ) -> Result<(), Fault> {
        let Self { calls, registry, attempts, limits, timers, draining, .. } = self;
        let Some(call) = calls.find_mut(key) else { return Err(Fault::Ended) };
        if call.admitted {
            return Ok(());
        }
        if *draining && !registry.is_own(call.method) {
            return Err(Fault::Draining);
        }
        if body_bytes > limits.message_bytes {
            return Err(Fault::Limit { name: MESSAGE_BYTES, limit: limits.message_bytes.into() });
        }
        let (trace, asked) = Trace::read(metadata)?;
        if !attempts.says_nothing()
            && call.is_made_here()
            && let Some(config) = attempts.config(registry.path(call.method))
        {
            call.configure(turn.now, config);
        }
        call.trace = trace;
        let said = call.policies.as_ref().map_or(WorkerChoice::default(), |policies| policies.choice());
        call.choice = said.or(asked).or(call.choice);
        call.admitted = true;
        if call.deadline.has_passed(turn.now) {
            return Err(Fault::DeadlinePassed { executed: Execution::NotExecuted });
        }
        if let Some(at) = call.deadline.instant() {
            call.timer = Some(timers.insert(at, Due::Deadline(key)));
        }
        Ok(())
    }

    fn find_server(&mut self, key: CallKey, target: Target) -> Result<Found, Fault> {
        let mut call = self.calls.find(key).ok_or(Fault::Ended)?;
        if call.kept_at.is_some() && !matches!(target, Target::Cluster(_)) {
            if let Some(shard) = self.routing().keeping(call) {
                return Ok((shard, None));
            }
            let Self { calls, shards, registry, .. } = self;
            calls.find_mut(key).into_iter().for_each(|call| return_kept(shards, registry, call));
            call = self.calls.find(key).ok_or(Fault::Ended)?;
        }
        let (limits, sources) = (&self.limits, self.sources());
        let has_room = |session| {
            let session = sources.sessions.find(session);
            session.is_some_and(|session| session.has_room(limits, || sources.of(call)))
        };
        let (method, place) = (call.method, call.place);
        let found = self.routing().route(call, target, limits.calls_delivered_per_session, has_room)?;
        if let ServerEnd::Session { session, .. } = &found.0
            && place.is_none_or(|place| place.session != *session)
        {
            self.registry.advance(method);
        }
        Ok(found)
    }

    /// Those who know for whom a call is made.
    pub(crate) fn sources(&self) -> CallSources<'_> {
        let Self { sessions, peers, grpc, .. } = self;
        CallSources { sessions, peers, grpc }
    }

    /// Those who know who serves what.
    pub(crate) fn routing(&self) -> Routing<'_> {
        let Self { registry, shards, owners, clusters, .. } = self;
        Routing { registry, shards, owners, clusters }
    }

    /// Why a call that had endpoints has none any more.
    pub(crate) fn unserved_call(&self, key: CallKey) -> Fault {
        self.calls.find(key).map_or(Fault::Ended, |call| self.routing().unserved(call.method))
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
        if call.place.is_some() {
            // It has come from another shard for the place that was kept there.
            return Ok(None);
        }
        let method = call.method;
        if self.awaited.is_active()
            && self.awaited.has_all(&self.registry, method, target, call.client.follows())
        {
            let is_waiting = |key| self.calls.find(key).is_some_and(|call| call.queued.is_some());
            let bytes = opening.parked_bytes();
            if self.awaited.admit(key, bytes, is_waiting) {
                return Ok(Some(Queued::for_none(target, bytes)));
            }
        }
        let wish = if self.draining { None } else { self.routing().worker_wish(call, target, opening) };
        let Some(WorkerWish { choice, is_shared }) = wish else { return Ok(None) };
        let sticky = (choice.sticky == Some(true)).then(|| caller_of(self, key));
        let Some(service) = self.workers_of(method) else { return Ok(None) };
        let Self { workers, calls, sessions, peers, grpc, limits, .. } = self;
        let (calls_max, bytes_max) = (limits.calls_delivered_per_session, limits.parked_bytes_per_session);
        let Some(call) = calls.find_mut(key) else { return Err(Fault::Ended) };
        let (class, bytes) = (Class::new(choice.class.unwrap_or(0)), opening.parked_bytes());
        let asking =
            Asking { call: key, method, class, sticky, is_shared, target, bytes, calls_max, bytes_max };
        match workers.give(now, service, asking, || CallSources { sessions, peers, grpc }.of(call)) {
            Given::On(place) => {
                call.place = place;
                Ok(None)
            }
            Given::Waits(queued) => Ok(Some(queued)),
            Given::Refused(fault) => Err(fault),
        }
    }

    /// The calls, and those who keep places for them.
    #[inline]
    pub(crate) fn worker_places(&mut self) -> (&mut Calls, WorkerPlaces<'_>) {
        let Self { calls, workers, unserved, shards, registry, .. } = self;
        (calls, WorkerPlaces { workers, unserved, shards, registry })
    }

    /// The workers of a method's service, if there are any here.
    pub(crate) fn workers_of(&mut self, method: MethodKey) -> Option<Key<ServiceWorkers>> {
        let Self { workers, registry, admission, limits, .. } = self;
        let (name, servers) = (service_of(registry.path(method)), registry.in_line(method));
        let reserved = || admission.chain().reservations(name);
        let queue_max = limits.calls_delivered_per_session;
        (!servers.is_empty()).then(|| workers.service(name, servers, registry.version(), queue_max, reserved))
    }

    #[inline(never)]
    fn wait_for_worker(&mut self, turn: &mut Turn<'_>, key: CallKey, queued: Queued, opening: &mut Item<'_>) {
        let admitted = self.admit_early(turn, key, opening);
        let (calls, mut places) = self.worker_places();
        let Some(call) = calls.find_mut(key) else {
            places.workers.stop_waiting(&queued, key);
            return self.drop_item(opening);
        };
        call.queued = Some(queued);
        match admitted {
            Ok(()) => {
                call.request.wait(turn.now, opening.take().into_owned());
            }
            Err(fault) => {
                places.stop_waiting(key, call);
                self.drop_item(opening);
                self.fail(turn, key, fault);
            }
        }
    }

    /// Notes what applies to a call at the session that will serve it.
    #[inline]
    fn enlist_server(&mut self, key: CallKey) {
        if self.admission.chain().stands_on(Side::Server) {
            let Self { calls, registry, sessions, admission, .. } = self;
            let Some(call) = calls.find_mut(key) else { return };
            let plan = handler_plan(admission, registry, sessions, call);
            admission.apply(&mut call.policies, 1, plan);
        }
    }

    /// Finds again what applies to a call that was handed over.
    pub(crate) fn enlist_again(&mut self, key: CallKey) {
        let Self { calls, registry, sessions, admission, .. } = self;
        let Some(call) = calls.find_mut(key).filter(|call| call.policies.is_some()) else { return };
        let plan = maker_plan(admission, registry, sessions, call);
        admission.apply(&mut call.policies, 0, plan);
        self.enlist_server(key);
    }

    // LIFE: 7 | judged by the policies of both sides that are this host's: let through, held, or refused; copied where
    // a policy mirrors | a private copy, if a policy looks at the message |
    /// Asks the policies about a call that begins, and sends it on its way if they let it.
    pub(crate) fn admit_opening(&mut self, turn: &mut Turn<'_>, key: CallKey, opening: &mut Item<'_>) {
        match self.calls.find_mut(key).and_then(|call| call.policies.take()) {
            None => self.pass_on(turn, key, Direction::Request, opening),
            Some(policies) => self.judge_opening(turn, key, policies, opening),
        }
    }

    #[inline(never)]
    fn judge_opening(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        policies: Box<CallPolicies>,
        opening: &mut Item<'_>,
    ) {
        let only_refuse = policies.only_refuse();
        if only_refuse && !policies.reads_messages() {
            return match self.admission.permit(turn.now, policies, opening, View::EMPTY) {
                Ok(()) => self.pass_on(turn, key, Direction::Request, opening),
                Err(denied) => self.deny(turn, key, denied, opening),
            };
        }
        let policies = match only_refuse {
            true => match admit_as_sent(self, turn, key, policies, opening) {
                Some(policies) => policies,
                None => return,
            },
            false => policies,
        };
        let mut admission = Admission::default();
        if !policies.reads_messages() {
            let judged = self.judge(turn, key, &policies, opening, None, &mut admission);
            return self.go_on_judged(turn, key, policies, judged, &mut admission, opening);
        }
        let mut inspection = self.admission.take_inspection();
        // What policies have read is lent to it until it is handed over.
        let mut opening = opening.take();
        let judged = self.judge(turn, key, &policies, &mut opening, Some(&mut inspection), &mut admission);
        self.go_on_judged(turn, key, policies, judged, &mut admission, &mut opening);
        drop(opening);
        self.admission.put_back(inspection);
    }

    fn go_on_judged(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        policies: Box<CallPolicies>,
        judged: Result<(), Denied>,
        admission: &mut Admission,
        opening: &mut Item<'_>,
    ) {
        match judged {
            // Nearly always: nothing is to be remembered, and nothing to be done.
            Ok(()) if admission.says_nothing() && !policies.inspects_messages() => {
                self.admission.spare(policies);
                self.pass_on(turn, key, Direction::Request, opening);
            }
            Ok(()) => self.go_on_admitted(turn, key, policies, admission, opening),
            Err(denied) => self.deny(turn, key, denied, opening),
        }
    }

    fn go_on_admitted(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        policies: Box<CallPolicies>,
        admission: &mut Admission,
        opening: &mut Item<'_>,
    ) {
        self.bind_to_terms(turn.now, key, policies, admission, opening);
        match add_metadata(opening, &admission.metadata) {
            Ok(()) => {
                let copies =
                    self.copy_for_mirrors(turn, key, opening, std::mem::take(&mut admission.mirrors));
                self.pass_on(turn, key, Direction::Request, opening);
                self.send_copies(turn, copies);
            }
            Err(fault) => self.deny(turn, key, fault.into(), opening),
        }
    }

    pub(crate) fn deny(&mut self, turn: &mut Turn<'_>, key: CallKey, denied: Denied, item: &mut Item<'_>) {
        // A call that is refused is logged as others are: its end finds what says so with it.
        if denied.log
            && let Some(call) = self.calls.find_mut(key)
        {
            call.policies = Some(Box::new(CallPolicies::refused(true)));
        }
        self.drop_item(item);
        self.fail(turn, key, denied.fault);
    }

    /// Asks the policies about a later message.
    pub(crate) fn admit_message(&mut self, turn: &mut Turn<'_>, key: CallKey, message: &mut Item<'_>) {
        let Some(policies) = self.calls.find_mut(key).and_then(|call| call.policies.take()) else {
            return self.drop_item(message);
        };
        let (mut inspection, mut admission) = (self.admission.take_inspection(), Admission::default());
        let mut message = message.take();
        let judged = self.judge(turn, key, &policies, &mut message, Some(&mut inspection), &mut admission);
        if let Some(call) = self.calls.find_mut(key) {
            call.policies = Some(policies);
        }
        match judged {
            Ok(()) => self.pass_on(turn, key, Direction::Request, &mut message),
            Err(denied) => self.deny(turn, key, denied, &mut message),
        }
        drop(message);
        self.admission.put_back(inspection);
    }

    /// Tells the policies of a call about an item of it, and what is known of both as far as they ask for it.
    fn judge<'i>(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        policies: &CallPolicies,
        item: &mut Item<'i>,
        inspection: Option<&'i mut Inspection>,
        admission: &mut Admission,
    ) -> Result<(), Denied> {
        let Self { admission: control, calls, sessions, peers, grpc, registry, gateway, scratch, .. } = self;
        let (reads, reads_facts) = (policies.reads_messages(), policies.reads_facts());
        let call = if reads || reads_facts { calls.find(key) } else { None };
        let types = call.filter(|_| reads).map(|call| types_to_read(gateway, call, item)).transpose()?;
        let types = types.unwrap_or_default();
        let facts = match call {
            Some(call) if reads_facts => CallSources { sessions, peers, grpc }.facts(call, registry, types),
            None if reads_facts || reads => return Err(Fault::Ended.into()),
            _ => CallFacts { types, ..CallFacts::default() },
        };
        let limits = &scratch.limits;
        control.judge(turn.now, turn.heaps, limits, policies, &facts, item, inspection, admission)
    }

    /// Does what the policies said about a call that may go on.
    fn bind_to_terms(
        &mut self,
        now: Instant,
        key: CallKey,
        policies: Box<CallPolicies>,
        admission: &mut Admission,
        opening: &Item<'_>,
    ) {
        let Self { admission: control, calls, timers, .. } = self;
        let Some(call) = calls.find_mut(key) else {
            return control.release(std::mem::take(&mut admission.permits));
        };
        let queue = |until| timers.insert(until, Due::Queued(key));
        let terms = control.settle(now, key.to_bits(), policies, admission, opening, queue);
        call.policies = terms.kept;
        if let Some(said) = terms.encoding {
            (call.request_encoding, call.keeps_encoding) = (Some(said), false);
        }
        let deadline = call.deadline.earlier(terms.deadline);
        if deadline != call.deadline {
            call.deadline = deadline;
            let timer = deadline.instant().map(|at| timers.insert(at, Due::Deadline(key)));
            if let Some(replaced) = std::mem::replace(&mut call.timer, timer) {
                timers.cancel(replaced);
            }
        }
    }
}
