//! The step: what follows from an event, until nothing follows any more; what time brings; and what follows for all
//! when somebody leaves, or serves something else, or policies are exchanged.

use crate::admission::{CallPolicies, ChainExchange, ChainFit, Denied, ExchangedChain};
use crate::attempts::attempt_due;
use crate::bind::{BindError, BindRequest, Binder, Binding, Entered};
use crate::books::{audit, entries_in_line};
use crate::bound_methods::{bound_methods, put_plans};
use crate::call::{Calls, Direction};
use crate::due::Due;
use crate::engine::Engine;
use crate::handover::settle_awaited;
use crate::host_numbers::NUMBERS_AT_ONCE;
use crate::in_line::SOURCES_LOOKED_MAX;
use crate::owners::Owners;
use crate::peers::PeerAnswers;
use crate::registry::MethodTypes;
use crate::routing::Routing;
use crate::served_later::settle_unserved;
use crate::session::Session;
use crate::sessions::{LinesOf, PartedSession};
use crate::shard::crossing::ShardSaid;
use crate::shard::{self, ShardIndex};
use crate::source::CallSources;
use crate::turn::Turn;
use crate::unused_names::UnusedNames;
use crate::workers::{GivenOut, Place};
use crate::{CallKey, PeerKey, SessionKey};
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_policy::{Chain, Modules, Permits, PolicyError, PolicySet, Verdict};
use trunkline_telemetry::PeerIndex;

/// Timers that fire in one go: calls nested in one another share their deadline, and applications choose how many there
/// are. A deadline takes about a microsecond.
const TIMERS_PER_STEP_MAX: usize = 256;

impl Engine {
    /// Does what is due at `turn.now`. If that is very much, some of it is left for the next time, which
    /// [`Engine::next_timeout`] then wants at once.
    pub fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.owners.sessions.discard_abandoned(turn.heaps);
        for _ in 0..TIMERS_PER_STEP_MAX {
            let Some(due) = self.owners.timers.due(turn.now) else { break };
            match due {
                Due::Deadline(call) => self.expire(turn, call),
                Due::Queued(call) => self.queued_due(turn, call),
                Due::Attempt(call) => attempt_due(self, turn, call),
                Due::Held(call, direction) => self.held_due(turn, call, direction),
                Due::Paced(call, direction) => self.paced_due(turn, call, direction),
                Due::Peer(peer) => self.peer_timeout(turn, peer),
                Due::Remote(remote) => self.wake_remote(turn, remote),
                Due::Offers => self.owners.shards.telling.go_on(),
                Due::Awaited => settle_awaited(self, turn),
                Due::Assemblies(peer) => self.look_at_assemblies(turn, peer),
                Due::Sweep(peer) => self.sweep_grpc(turn, peer),
                Due::Starved => self.owners.shards.look_after_starved(),
            }
        }
        self.r2p2_timeout(turn);
        self.unpack_on(turn);
        self.go_on(turn);
    }

    /// After an exchange of policies: calls that wait do so by the new ones, or go on.
    pub fn serve_waiting(&mut self, turn: &mut Turn<'_>) {
        self.go_on(turn);
    }

    /// Whether calls wait for a worker: the host looks then which of them rest.
    pub fn calls_wait_for_workers(&self) -> bool {
        self.owners.workers.is_waited_for()
    }

    /// Asks of workers with calls in hand, for which others wait, whether their threads wait for entries and have taken
    /// all there were: the handlers of their calls wait then, too, and do not keep them from taking others. Whether any
    /// does. A part of the services in each turn.
    pub fn free_resting_workers(
        &mut self,
        turn: &mut Turn<'_>,
        rests: impl FnMut(SessionKey) -> bool,
    ) -> bool {
        let Self { calls, owners: Owners { workers, .. } } = self;
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

    /// Ends a session, for whatever reason. Its calls end; nobody else's do. The host may drop its heaps once
    /// [`Engine::poll_retired`] names it.
    pub fn detach(&mut self, turn: &mut Turn<'_>, key: SessionKey) {
        let Some(parked) = self.part_with(key) else { return };
        self.withdraw(key);
        self.end_calls_of(turn, key, parked);
        self.owners.reach().forget_unwanted(&self.calls);
        self.forget_unused_names();
        self.go_on(turn);
    }

    /// Gives a session numbers for methods. All of the request takes effect, or nothing.
    ///
    /// # Errors
    /// [`BindError`] names what is missing or which limit is reached.
    pub fn bind(&mut self, session: SessionKey, request: &BindRequest<'_>) -> Result<Binding, BindError> {
        let wanted = self.binder().check(session, request)?;
        let held = self.binder().hold_targets(session, request.calls);
        if held.is_err() {
            self.owners.reach().forget_unwanted(&self.calls);
        }
        let Entered { binding, served } = self.binder().enter(session, request, wanted, held?)?;
        if !request.serves.is_empty() {
            self.serves_more(session, request.serves, &served);
        }
        Ok(binding)
    }

    /// Puts a chain in the place of the one at work, for all calls from now on. Calls in flight keep what they were
    /// admitted by; policies that keep name and kind keep their state, and modules hand theirs to their next version.
    /// Returns which modules were upgraded, in words.
    ///
    /// # Errors
    /// [`PolicyError`] if a policy that was not at work does not fit a method as anybody here has bound it, or names a
    /// method that a service bound here does not have, or a module does not take over from the one at work; nothing has
    /// changed then. If it fits the method as some have it, it refuses the calls of the others, and the host is told.
    pub fn exchange_policies(&mut self, chain: Chain, modules: Modules) -> Result<Vec<String>, PolicyError> {
        self.exchange_chain(chain, modules, ChainExchange::IfFits).map(|(upgraded, _)| upgraded)
    }

    /// Says which modules the exchange would upgrade, and what fits of the policies that are new. Nothing changes.
    ///
    /// # Errors
    /// [`PolicyError`] if a module would not take over from the one at work.
    pub fn try_policies(
        &mut self,
        chain: Chain,
        modules: Modules,
    ) -> Result<(Vec<String>, ChainFit), PolicyError> {
        self.exchange_chain(chain, modules, ChainExchange::Trial)
    }

    /// Exchanges policies for a chain that the shards of the host have found to do, or that was at work in another
    /// process: what was bound since does not keep this one from it, or their chains would differ. Calls it does not
    /// fit are refused, and the host is told.
    ///
    /// # Errors
    /// [`PolicyError`] if a module does not take over from the one at work.
    pub fn exchange_checked_policies(
        &mut self,
        chain: Chain,
        modules: Modules,
    ) -> Result<Vec<String>, PolicyError> {
        self.exchange_chain(chain, modules, ChainExchange::Found).map(|(upgraded, _)| upgraded)
    }

    /// Exchanges policies for a chain without modules.
    ///
    /// # Errors
    /// As [`Engine::exchange_policies`].
    pub fn apply_policies(&mut self, chain: Chain) -> Result<(), PolicyError> {
        self.exchange_policies(chain, Modules::default()).map(drop)
    }

    /// Takes no new calls from here on, but for those of the host's own services: an operator looks until the end.
    /// Those in flight go on. Peers are told.
    pub fn drain(&mut self, now: Instant) {
        self.owners.draining = true;
        self.owners.peers.go_away(now);
        self.owners.grpc.turn_clients_away();
        self.owners.r2p2.leave(now);
        self.owners.sessions.go_away();
        // Nobody comes for whom they could wait.
        self.owners.unserved.serve_all();
    }

    /// When [`Engine::handle_timeout`] is wanted next.
    pub fn next_timeout(&mut self) -> Option<Instant> {
        let r2p2 = self.owners.r2p2.next_timeout();
        let nested = (!self.owners.nested.is_empty() || self.owners.peers.announcers.are_waiting())
            .then(Instant::default);
        let unserved = self.owners.unserved.has_ready().then(Instant::default);
        let shards = self.owners.shards.has_parked().then(Instant::default);
        let unpacking = self.owners.grpc.has_to_unpack().then(Instant::default);
        self.owners
            .timers
            .next_due()
            .into_iter()
            .chain(r2p2)
            .chain(nested)
            .chain(unserved)
            .chain(shards)
            .chain(unpacking)
            .min()
    }

    /// Entries in the lines of calls that wait for connections, R2P2, receive heaps and other shards: for tests.
    pub fn entries_in_line(&self) -> usize {
        entries_in_line(self)
    }

    /// Holds every count against what it counts. Walks everything several times: for tests.
    ///
    /// # Errors
    /// The first count that does not agree.
    pub fn audit(&self) -> Result<(), String> {
        audit(self)
    }

    /// The owners that a request to bind concerns.
    pub(crate) fn binder(&mut self) -> Binder<'_> {
        Binder {
            sessions: &mut self.owners.sessions,
            registry: &mut self.owners.registry,
            service_users: &mut self.owners.service_users,
            targets: &mut self.owners.targets,
            remotes: &mut self.owners.remotes,
            clusters: &mut self.owners.clusters,
            admission: &mut self.owners.admission,
            telemetry: &mut self.owners.telemetry,
            types_bound: &mut self.owners.types_bound,
            attempts: &self.owners.attempts,
            shards: &self.owners.shards,
            limits: &self.owners.limits,
        }
    }

    /// Calls that waited for others to end go on.
    #[inline]
    pub(crate) fn serve_queues(&mut self, turn: &mut Turn<'_>) {
        while let Some(verdict) = self.owners.admission.poll_queues(turn.now) {
            self.carry_out(turn, verdict);
        }
    }

    /// A call has waited as long as it may.
    pub(crate) fn queued_due(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let queued = policies_of(&mut self.calls, key).and_then(|policies| policies.queued.as_ref());
        let Some(ticket) = queued.map(|queued| queued.ticket) else { return };
        let verdict = self.owners.admission.late(turn.now, ticket, key.to_bits());
        self.carry_out(turn, verdict);
    }

    /// The time for which an item was held is over: it goes on, or its call ends as a policy has said.
    pub(crate) fn held_due(&mut self, turn: &mut Turn<'_>, key: CallKey, direction: Direction) {
        let policies = policies_of(&mut self.calls, key);
        match policies.and_then(|policies| policies.ends.take()) {
            Some(rejection) => self.fail(turn, key, Denied::from(*rejection).fault),
            None => self.unblock(turn, key, direction),
        }
    }

    fn carry_out(&mut self, turn: &mut Turn<'_>, verdict: Verdict) {
        match verdict {
            Verdict::Served(token, permits) => self.serve_queued(turn, CallKey::from_bits(token), permits),
            Verdict::Shed(token, rejection) => {
                let key = CallKey::from_bits(token);
                let queued = policies_of(&mut self.calls, key).and_then(|policies| policies.queued.take());
                queued.into_iter().for_each(|queued| _ = self.owners.timers.cancel(queued.timer));
                self.fail(turn, key, Denied::from(rejection).fault);
            }
            Verdict::Waits(token, until) => {
                let key = CallKey::from_bits(token);
                let queued = policies_of(&mut self.calls, key).and_then(|policies| policies.queued.as_mut());
                if let Some(queued) = queued {
                    self.owners.timers.cancel(queued.timer);
                    queued.timer = self.owners.timers.insert(until, Due::Queued(key));
                }
            }
        }
    }

    /// The policy has let a call out of its queue.
    fn serve_queued(&mut self, turn: &mut Turn<'_>, key: CallKey, permits: Permits) {
        let Self { calls, owners: Owners { admission, timers, .. } } = self;
        let Some(policies) = policies_of(calls, key) else { return admission.release(permits) };
        if let Some(queued) = policies.queued.take() {
            timers.cancel(queued.timer);
        }
        policies.permits.join(permits);
        match policies.held_until.take() {
            Some(until) => drop(timers.insert(until, Due::Held(key, Direction::Request))),
            None => self.unblock(turn, key, Direction::Request),
        }
    }

    /// Calls that waited go to workers that are free, here or where they have waited much longer.
    pub(crate) fn settle_workers(&mut self, turn: &mut Turn<'_>) {
        while !self.owners.shards.is_alone()
            && let Some((shard, method)) = self.owners.workers.poll_kept(turn.now)
        {
            let path = Arc::clone(self.owners.registry.path(method));
            self.owners.shards.push(ShardIndex(shard), ShardSaid::Vacant { path });
        }
        while let Some(GivenOut { call: key, place }) = self.owners.workers.poll(turn.now) {
            self.take_from_queue(turn, key, place);
        }
    }

    /// A call goes on from the queue, with a place that it has got, if it was waiting for one of this shard.
    pub(crate) fn take_from_queue(&mut self, turn: &mut Turn<'_>, key: CallKey, place: Option<Place>) {
        let Self { calls, owners } = &mut *self;
        let mut places = owners.places();
        let Some(call) = calls.find_mut(key) else {
            return place.into_iter().for_each(|place| places.workers.give_back(place, key));
        };
        call.place = place.or(call.place);
        let Some(queued) = call.queued.take() else { return places.give_back(key, call) };
        let waited = call.request.waiting_since.take().map_or(0, |since| turn.now.since_ns(since));
        call.note_receive_wait(waited);
        places.workers.taken_from_queue(&queued, key);
        match call.request.backlog.pop_front() {
            Some(opening) => self.start_with_rest(turn, key, (queued.target, true), opening),
            None => places.give_back(key, call),
        }
    }

    /// Policies keep other workers for other classes from now on.
    pub(crate) fn reserve_workers(&mut self) {
        let Owners { workers, admission, .. } = &mut self.owners;
        workers.reserve(|name| admission.chain().reservations(name));
    }

    /// Whoever sends in this direction may send so many bytes more, if the direction is a stream.
    pub(crate) fn credit_sender(&mut self, key: CallKey, direction: Direction, bytes: u32) {
        let Self { calls, owners } = self;
        if let Some(call) = calls.find_mut(key) {
            owners.credit_sender((key, call), direction, bytes);
        }
    }

    /// There is room on a connection: calls that wait for it go on, in order, until one has to wait again.
    pub(crate) fn unblock_peer(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        while let Some((call, direction)) =
            self.owners.peers.find_mut(key).and_then(|peer| peer.blocked.pop())
        {
            self.unblock(turn, call, direction);
            if self.owners.peers.find_mut(key).is_none_or(|peer| peer.blocked.waits_again((call, direction)))
            {
                return;
            }
        }
    }

    /// The instant matters to nobody else: a connection's timers are kept in the engine's table.
    pub(crate) fn peer_timeout(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        let Some(peer) = self.owners.peers.find_mut(key) else { return };
        peer.timer_at = None;
        match peer.connection.handle_timeout(turn.now) {
            // Its calls end when the host has closed it.
            Err(error) => self.owners.peers.give_up(key, error.to_string()),
            Ok(()) => self.settle_peer(turn, key),
        }
    }

    /// A call that waited and was in nobody's queue begins again, unless it has ended meanwhile.
    pub(crate) fn begin_again(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let Some(call) = self.calls.find_mut(key) else { return };
        let Some(queued) = call.queued.take() else { return };
        let waited = call.request.waiting_since.take().map_or(0, |since| turn.now.since_ns(since));
        match queued.for_worker {
            true => call.note_receive_wait(waited),
            false => call.note_request_wait(waited, false),
        }
        if queued.is_judged {
            self.owners.shards.take_up_aside(key);
        }
        let Some(mut opening) = call.request.backlog.pop_front() else { return };
        if queued.is_judged && !self.owners.shards.is_alone() {
            return shard::go_elsewhere(self, turn, key, &mut opening);
        }
        if let Some(policies) = call.policies.as_mut().filter(|_| queued.is_judged) {
            // The other shards have gone meanwhile: it is judged as a call that begins.
            self.owners.admission.release(std::mem::take(&mut policies.permits));
        }
        if queued.is_judged {
            // By those that have judged it, or by none.
            call.planned_by = self.owners.admission.version();
        }
        self.start_with_rest(turn, key, (queued.target, false), opening);
    }

    /// The source of a call; nobody's if it or who made it has gone.
    pub(crate) fn source_of(&self, key: CallKey) -> Arc<str> {
        let Self { calls, owners: Owners { sessions, peers, grpc, .. } } = self;
        CallSources { sessions, peers, grpc }.of_key(calls, key)
    }

    /// Room was made in a session's receive heap: those who wait for it go on, streams last. Mostly nobody does.
    #[inline]
    pub(crate) fn unpark(&mut self, turn: &mut Turn<'_>, session: SessionKey) {
        if self.owners.sessions.find(session).is_some_and(Session::has_parked) {
            self.unpark_some(turn, session);
        }
    }

    #[cold]
    fn unpark_some(&mut self, turn: &mut Turn<'_>, session: SessionKey) {
        if self.serve_parked(turn, session, |session| &mut session.parked.room) {
            self.serve_parked(turn, session, |session| &mut session.parked.openings);
            self.serve_parked(turn, session, |session| &mut session.parked_streams);
        }
    }

    /// Serves each source until its first has to go on waiting. Whether nobody does.
    fn serve_parked(&mut self, turn: &mut Turn<'_>, session: SessionKey, lines: LinesOf) -> bool {
        let mut looked = 0;
        while looked < SOURCES_LOOKED_MAX
            && let Some(first) = self.owners.sessions.unpark_next(session, lines)
        {
            self.unblock(turn, first.0, first.1);
            looked += usize::from(self.owners.sessions.waits_again(session, lines, first));
        }
        self.owners.sessions.end_round(session, lines)
    }

    /// Does what the last change allows: others may have room now, or wait for an answer nobody else gives.
    #[inline]
    pub(crate) fn go_on(&mut self, turn: &mut Turn<'_>) {
        // Asked after everything that happens; nearly always, nobody waits.
        if self.has_more_to_do() {
            self.do_what_follows(turn);
        }
    }

    /// Whether any owner has something that the last change may have set going.
    #[inline]
    fn has_more_to_do(&self) -> bool {
        !self.owners.nested.is_empty()
            || self.owners.admission.may_serve_queues()
            || self.owners.grpc.has_touched()
            || self.owners.r2p2.is_waited_for()
            || self.owners.workers.may_be_stirred()
            || self.owners.peers.announcers.are_waiting()
            || self.owners.unserved.has_ready()
            || !self.owners.shards.is_alone() && self.has_more_for_shards()
    }

    /// Whether other shards are to be told anything, or calls that waited for them may go on.
    #[inline(always)]
    fn has_more_for_shards(&self) -> bool {
        self.owners.shards.is_stirred()
            || self.owners.shards.has_parked()
            || self.owners.shards.telling.has_news(self.owners.registry.version())
            || self.owners.admission.has_notices()
            || self.owners.workers.has_grown()
    }

    #[inline(never)]
    fn do_what_follows(&mut self, turn: &mut Turn<'_>) {
        self.end_nested(turn);
        self.peer_answers().answer_next();
        self.serve_queues(turn);
        self.settle_grpc(turn);
        self.settle_r2p2(turn);
        self.settle_workers(turn);
        settle_unserved(self, turn);
        shard::settle(self, turn);
    }

    /// From now on a session gets nothing any more. Calls whose items were on their way to it; `None` if it had gone
    /// before.
    pub(crate) fn part_with(&mut self, key: SessionKey) -> Option<Vec<CallKey>> {
        let PartedSession { routes, identity, parked } = self.owners.sessions.part_with(key)?;
        self.binder().unbind(&identity, routes);
        Some(parked)
    }

    /// Ends the calls of a session that has gone.
    pub(crate) fn end_calls_of(&mut self, turn: &mut Turn<'_>, key: SessionKey, parked: Vec<CallKey>) {
        for call in self.owners.sessions.calls_of(&self.calls, key).into_iter().chain(parked) {
            self.end_gone(turn, call, key);
        }
        self.owners.sessions.retire_if_unlent(&mut self.owners.held, key);
    }

    /// A session serves nothing from now on: it drains, or is gone.
    pub(crate) fn withdraw(&mut self, session: SessionKey) {
        if let Some(services) = self.binder().withdraw(session) {
            self.stop_serving(session, &services);
        }
    }

    /// A session serves these from now on: those who asked for them hear of it, and calls that wait for them go on.
    pub(crate) fn serves_more(
        &mut self,
        session: SessionKey,
        services: &[String],
        types: &[Arc<MethodTypes>],
    ) {
        shard::tell_bound(self, session, services, types);
        self.peer_answers().changed(services);
        services.iter().for_each(|service| self.owners.unserved.serve(service));
        if self.owners.awaited.is_active() {
            // Due at once: whom calls wait for may be this one.
            self.owners.timers.insert(Instant::default(), Due::Awaited);
        }
    }

    /// A session serves these no more, and nothing else; the names stay its user's for those who come after it.
    pub(crate) fn stop_serving(&mut self, session: SessionKey, services: &[impl AsRef<str>]) {
        self.owners.workers.dismiss(session);
        self.peer_answers().changed(services);
    }

    /// What nobody has a route to any more, and nobody serves, is forgotten: now and then, many at once.
    pub(crate) fn forget_unused_names(&mut self) {
        let idle_methods = self.owners.registry.idle_numbers() >= NUMBERS_AT_ONCE;
        self.forget_names(idle_methods && self.owners.telemetry.has_all_methods());
    }

    /// A host is not connected any more, and may not be counted any more.
    pub(crate) fn note_host_left(&mut self, now: Instant, number: PeerIndex) {
        self.owners.host_numbers.leave(number);
        if self.owners.host_numbers.is_due(now, &self.owners.telemetry) {
            self.forget_names(true);
        }
    }

    fn forget_names(&mut self, wants_numbers: bool) {
        if !self.owners.registry.has_many_unused() && !wants_numbers {
            return;
        }
        let Self { calls, owners } = self;
        let Owners { registry, workers, gateway, remotes, peers, r2p2, ended, .. } = owners;
        let Owners { host_numbers, telemetry, .. } = owners;
        UnusedNames {
            calls,
            registry,
            workers,
            gateway,
            remotes,
            peers,
            r2p2,
            ended,
            host_numbers,
            telemetry,
        }
        .forget(wants_numbers);
    }

    /// The connections, and those who know what peers are to be told.
    pub(crate) fn peer_answers(&mut self) -> PeerAnswers<'_> {
        let Owners { peers, registry, shards, service_users, clusters, .. } = &mut self.owners;
        PeerAnswers { peers, routing: Routing { registry, shards, service_users, clusters } }
    }

    /// What is said about balancing has changed.
    pub(crate) fn rebalance(&mut self) {
        let Owners { clusters, admission, attempts, .. } = &mut self.owners;
        clusters.configure(attempts.balancing(admission.chain()));
    }

    fn exchange_chain(
        &mut self,
        chain: Chain,
        modules: Modules,
        how: ChainExchange,
    ) -> Result<(Vec<String>, ChainFit), PolicyError> {
        let Owners { admission, sessions, registry, gateway, .. } = &mut self.owners;
        let bound = bound_methods(sessions, registry, gateway);
        let fits_told = |chain: &mut Chain, news: PolicySet| gateway.check(chain, news);
        let (upgraded, made) = admission.exchange(chain, modules, how, &bound, fits_told)?;
        let plans = match made {
            ExchangedChain::Tried(fit) => return Ok((upgraded, fit)),
            ExchangedChain::Made(plans) => plans,
        };
        put_plans(sessions, registry, plans);
        // Plans of methods that are forwarded are made when they are called.
        gateway.forget_plans();
        self.reserve_workers();
        self.rebalance();
        Ok((upgraded, ChainFit::default()))
    }
}

/// What policies have to do with a call, if they have.
fn policies_of(calls: &mut Calls, key: CallKey) -> Option<&mut CallPolicies> {
    calls.find_mut(key)?.policies.as_deref_mut()
}
