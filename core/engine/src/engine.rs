//! The engine's state, and what the host may ask of it.

use crate::admission::{AdmissionControl, ChainExchange};
use crate::attempts::AttemptControl;
use crate::bound_methods::{bound_methods, put_plans};
use crate::bound_targets::BoundTargets;
use crate::call::Calls;
use crate::cluster::Clusters;
use crate::convert::Scratch;
use crate::due::Due;
use crate::ended::EndedCalls;
use crate::gateway::Gateway;
use crate::grpc::{GrpcEnds, GrpcSettings};
use crate::handover::awaited::Awaited;
use crate::handover::left_out::LeftOut;
use crate::heaps::Heaps;
use crate::held::HeldBudget;
use crate::host_numbers::HostNumbers;
use crate::invariants::Invariants;
use crate::limits::Limits;
use crate::nested::Nested;
use crate::operator::DeniedChanges;
use crate::owners::Owners;
use crate::peers::PeerEnds;
use crate::plant::Plant;
use crate::r2p2::R2p2;
use crate::registry::Registry;
use crate::remote::{Dial, Remotes, Speaks};
use crate::samples::{SampleCounts, SampleRule, Samples, TakenSample};
use crate::services::ServiceState;
use crate::session::{Route, Session, ToldLimits};
use crate::sessions::{PartedSession, SessionEnds};
use crate::shard::ShardLinks;
use crate::spans::SpanIds;
use crate::unserved::UnservedCalls;
use crate::vouching::{Hosts, PeerRule};
use crate::workers::Workers;
use crate::{CallKey, PeerKey, SessionKey};
use std::collections::BTreeMap;
use trunkline_call::entry::{Completion, Entry, is_answer};
use trunkline_call::{CallId, Instant, Steps, TimerTable};
use trunkline_policy::{Chain, Modules, PolicyError};
use trunkline_telemetry::Telemetry;

/// What one turn of the host lends the engine: the time, and the heaps.
pub struct Turn<'a> {
    /// Now. The host refreshes it as often as it wants stamps to be fine.
    pub now: Instant,
    /// The memory of all sessions.
    pub heaps: &'a mut dyn Heaps,
}

/// One shard's state.
pub struct Engine {
    pub(crate) limits: Limits,
    pub(crate) plant: Plant,
    pub(crate) spans: SpanIds,
    pub(crate) samples: Samples,
    pub(crate) steps: Steps,
    /// The applications of this host.
    pub(crate) sessions: SessionEnds,
    pub(crate) peers: PeerEnds,
    pub(crate) grpc: GrpcEnds,
    pub(crate) gateway: Gateway,
    pub(crate) r2p2: R2p2,
    /// Services of the daemon itself that are between two processes.
    pub(crate) awaited: Awaited,
    /// Calls that wait for services nobody serves.
    pub(crate) unserved: UnservedCalls,
    pub(crate) left_out: LeftOut,
    pub(crate) workers: Workers,
    pub(crate) remotes: Remotes,
    pub(crate) clusters: Clusters,
    pub(crate) targets: BoundTargets,
    pub(crate) calls: Calls,
    pub(crate) nested: Nested,
    pub(crate) registry: Registry,
    /// The other shards of this host.
    pub(crate) shards: ShardLinks,
    pub(crate) owners: Owners,
    /// What those that come over the network may call.
    pub(crate) peer_rules: Vec<PeerRule>,
    /// Types of methods ever bound here: each has a number by which it is handed over.
    pub(crate) types_bound: u64,
    pub(crate) timers: TimerTable<Due>,
    pub(crate) scratch: Scratch,
    pub(crate) telemetry: Telemetry,
    pub(crate) admission: AdmissionControl,
    pub(crate) denied: DeniedChanges,
    /// What is held for connections and sessions, by where they come from.
    pub(crate) held: HeldBudget,
    pub(crate) attempts: AttemptControl,
    pub(crate) draining: bool,
    /// Calls that ended before their handlers did.
    pub(crate) ended: EndedCalls,
    /// Numbers in reports of the hosts that are connected.
    pub(crate) host_numbers: HostNumbers,
    /// Calls that ended at a limit, by its name: there are as many as the code has.
    pub(crate) limits_met: BTreeMap<&'static str, u64>,
    /// When the bytes being handled were first known to be there.
    pub(crate) arrived: Instant,
    pub(crate) invariants: Invariants,
}

impl Engine {
    /// An engine with nobody attached. `node_name` and `clock_id` are what it tells peers about itself.
    pub fn new(limits: Limits, node_name: &str, clock_id: u64) -> Self {
        let attempts = AttemptControl::new(&limits, clock_id);
        let held = HeldBudget::new(limits.held_bytes_per_source as u64, limits.held_bytes as u64);
        Self {
            plant: Plant::default(),
            spans: SpanIds::default(),
            samples: Samples::default(),
            steps: Steps::default(),
            sessions: SessionEnds::default(),
            peers: PeerEnds::new(&limits, node_name, clock_id),
            grpc: GrpcEnds::new(&limits),
            gateway: Gateway::default(),
            r2p2: R2p2::default(),
            awaited: Awaited::default(),
            unserved: UnservedCalls::default(),
            left_out: LeftOut::default(),
            workers: Workers::default(),
            remotes: Remotes::default(),
            clusters: Clusters::default(),
            targets: BoundTargets::default(),
            calls: Calls::default(),
            nested: Nested::default(),
            registry: Registry::default(),
            shards: ShardLinks::default(),
            owners: Owners::default(),
            peer_rules: Vec::new(),
            types_bound: 0,
            timers: TimerTable::new(),
            scratch: Scratch::new(&limits),
            limits,
            telemetry: Telemetry::default(),
            admission: AdmissionControl::new(clock_id),
            denied: DeniedChanges::default(),
            held,
            attempts,
            draining: false,
            ended: EndedCalls::default(),
            host_numbers: HostNumbers::default(),
            limits_met: BTreeMap::new(),
            arrived: Instant::default(),
            invariants: Invariants::default(),
        }
    }

    /// Takes a session in. Its heaps answer to the returned key from now on.
    pub fn attach(&mut self, label: String, send_heap_bytes: u64) -> SessionKey {
        let mut session = Session::new(label, send_heap_bytes);
        session.told = ToldLimits::of(&self.limits);
        self.sessions.insert(session)
    }

    /// Says who a session's process is, and which program it runs (empty if nobody knows), as the kernel has it: what
    /// policies know its calls by.
    pub fn identify(&mut self, key: SessionKey, identity: &str, program: &str) {
        if let Some(session) = self.sessions.find_mut(key) {
            self.targets.remove_routes(&session.identity, session.routes.len());
            self.targets.add_routes(identity, session.routes.len());
            (session.identity, session.program) = (identity.into(), program.into());
            session.holding.belongs_to(identity);
            self.describe_again(key);
        }
    }

    /// Something is known of a session that is said of its calls.
    pub(crate) fn describe_again(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.find_mut(key) {
            session.describe(self.owners.services_of(key).to_vec());
        }
    }

    /// Names the peers that are daemons of the operator's hosts, by identity, whole or up to a `*`: callers are named
    /// to them, and their word about callers is taken. Nobody is until this is called. To be called before anybody
    /// connects.
    pub fn configure_hosts(&mut self, patterns: &[String]) {
        self.peers.know_hosts(Hosts::new(patterns));
    }

    /// Says who of the network may call what; a service that no rule names may be called by all of it.
    pub fn configure_peer_rules(&mut self, rules: Vec<PeerRule>) {
        self.peer_rules = rules;
    }

    /// Who a session's process is, as [`Engine::identify`] was told.
    pub fn identity_of(&self, key: SessionKey) -> &str {
        self.sessions.find(key).map_or("", |session| &session.identity)
    }

    /// Says in which control group a session's process is.
    pub fn note_cgroup(&mut self, key: SessionKey, cgroup: &str) {
        if let Some(session) = self.sessions.find_mut(key) {
            session.cgroup = cgroup.into();
        }
    }

    /// Who a session is, to whoever shares out what there is: its user, its control group, what it serves.
    pub fn standing_of(&self, key: SessionKey) -> (&str, &str, &[Box<str>]) {
        let Some(session) = self.sessions.find(key) else { return ("", "", &[]) };
        (&session.identity, &session.cgroup, self.owners.services_of(key))
    }

    /// What is held for a session is counted with what else is held for this tenant, which may have so many parts of so
    /// many of what one source may.
    pub fn share_memory(&mut self, key: SessionKey, tenant: &str, parts: u32, of: u32) {
        if let Some(session) = self.sessions.find_mut(key) {
            session.holding.belongs_to(tenant);
            session.holding.has_parts(parts, of);
        }
    }

    /// The session for which an entry of this one is: the one that made the call, if it is of this shard and this entry
    /// is its handler's answer. What a handler says to no effect is its own.
    pub fn on_behalf_of(&self, session: SessionKey, raw: &Entry) -> SessionKey {
        let call = is_answer(raw).then(|| self.delivered_key(session, CallId(raw[1]))).flatten();
        let made = call.and_then(|call| self.calls.find(call)?.maker());
        made.map_or(session, |(maker, _)| maker)
    }

    /// Ends a session, for whatever reason. Its calls end; nobody else's do. The host may drop its heaps once
    /// [`Engine::poll_retired`] names it.
    pub fn detach(&mut self, turn: &mut Turn<'_>, key: SessionKey) {
        let Some(parked) = self.part_with(key) else { return };
        self.withdraw(key);
        self.end_calls_of(turn, key, parked);
        self.forget_unwanted();
        self.forget_unused_names();
        self.go_on(turn);
    }

    /// From now on a session gets nothing any more. Calls whose items were on their way to it; `None` if it had gone
    /// before.
    pub(crate) fn part_with(&mut self, key: SessionKey) -> Option<Vec<CallKey>> {
        let PartedSession { routes, identity, parked } = self.sessions.part_with(key)?;
        self.targets.remove_routes(&identity, routes.len());
        for route in routes {
            if let Route::Calls { method, target, .. } = route {
                self.registry.release(method);
                self.release_target(&identity, target);
            }
        }
        Some(parked)
    }

    /// Ends the calls of a session that has gone.
    pub(crate) fn end_calls_of(&mut self, turn: &mut Turn<'_>, key: SessionKey, parked: Vec<CallKey>) {
        for call in self.sessions.calls_of(&self.calls, key).into_iter().chain(parked) {
            self.end_gone(turn, call, key);
        }
        self.sessions.retire_if_unlent(&mut self.held, key);
    }

    /// Puts a chain in the place of the one at work, for all calls from now on; or only says whether it would do
    /// (`dry_run`). Calls in flight keep what they were admitted by; policies that keep name and kind keep their state,
    /// and modules hand theirs to their next version. Returns which modules were upgraded, in words.
    ///
    /// # Errors
    /// [`PolicyError`] if the chain does not fit a method as anybody here has bound it, names a method that a service
    /// bound here does not have, or a module does not take over from the one at work; nothing has changed then. If it
    /// fits the method as some have it, it refuses the calls of the others, and the host is told.
    pub fn exchange_policies(
        &mut self,
        chain: Chain,
        modules: Modules,
        dry_run: bool,
    ) -> Result<Vec<String>, PolicyError> {
        let how = if dry_run { ChainExchange::Trial } else { ChainExchange::IfFits };
        self.exchange_chain(chain, modules, how)
    }

    /// The same for a chain that every shard of the host has found to do: what was bound since does not keep this one
    /// from it, or their chains would differ. Calls it does not fit are refused, and the host is told.
    ///
    /// # Errors
    /// [`PolicyError`] if a module does not take over from the one at work.
    pub fn exchange_checked_policies(
        &mut self,
        chain: Chain,
        modules: Modules,
    ) -> Result<Vec<String>, PolicyError> {
        self.exchange_chain(chain, modules, ChainExchange::Found)
    }

    /// Exchanges policies for a chain without modules.
    ///
    /// # Errors
    /// As [`Engine::exchange_policies`].
    pub fn apply_policies(&mut self, chain: Chain) -> Result<(), PolicyError> {
        self.exchange_policies(chain, Modules::default(), false).map(drop)
    }

    /// Whether a chain without modules would be applied.
    ///
    /// # Errors
    /// As [`Engine::exchange_policies`].
    pub fn try_policies(&mut self, chain: &Chain) -> Result<(), PolicyError> {
        self.exchange_policies(chain.clone(), Modules::default(), true).map(drop)
    }

    /// How gRPC is spoken; [`GrpcSettings::default`] until this is called.
    pub fn configure_grpc(&mut self, settings: GrpcSettings) {
        self.remotes.speak_at_first(if settings.always { Speaks::Grpc } else { Speaks::Unknown });
        self.grpc.configure(settings);
    }

    /// Takes randomness in, for what must not happen at the same moment on every host. Zero takes it out.
    pub fn seed(&mut self, seed: u64) {
        self.remotes.jitter.seed(seed);
        self.r2p2.seed(seed);
        self.admission.seed(seed);
        self.clusters.seed = seed;
        self.attempts.seed(seed);
    }

    /// Offers checksums on connections to other daemons made from now on; where both sides do, every frame has one.
    pub fn configure_integrity(&mut self, offered: bool) {
        self.peers.offer_checksums(offered);
    }

    /// From now on calls that belong to a sampled trace have spans, and a trace begins with `share` (0…1) of
    /// those that are made here, belong to none and are no handler's. Their ids can be foretold from `seed`, and it
    /// from them: it is for nothing else.
    pub fn trace_calls(&mut self, share: f64, seed: u64) {
        self.spans = SpanIds::of_share(share, seed);
    }

    /// From now on some calls are kept with their messages, as these rules say, until [`Engine::take_sample`].
    pub fn sample_calls(&mut self, rules: Vec<SampleRule>) {
        self.samples = Samples::new(rules);
    }

    /// The oldest call that was kept with its messages.
    pub fn take_sample(&mut self) -> Option<TakenSample> {
        self.samples.take()
    }

    /// What became of the calls that were to be kept.
    pub fn sample_counts(&self) -> SampleCounts {
        self.samples.counts
    }

    /// Plants delays; zero takes them out.
    pub fn plant(&mut self, plant: Plant) {
        self.plant = plant;
    }

    /// Takes no new calls from here on, but for those of the host's own services: an operator looks until the end.
    /// Those in flight go on. Peers are told.
    pub fn drain(&mut self, now: Instant) {
        self.draining = true;
        self.peers.go_away(now);
        self.grpc.turn_clients_away();
        if let Some(server) = &mut self.r2p2.server {
            server.leave(now);
        }
        self.sessions.go_away();
        // Nobody comes for whom they could wait.
        self.unserved.serve_all();
    }

    /// Every service that was ever served here and may be known outside (not the host's own), by name.
    pub fn services(&self) -> Vec<ServiceState> {
        self.registry.service_states(self.draining)
    }

    /// A number that is another whenever [`Engine::services`] may say something else.
    pub fn services_version(&self) -> u64 {
        self.registry.version() + u64::from(self.draining)
    }

    /// Whether no new calls are taken.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// What this session serves, it serves only while no other session does: the daemon's own form of a service that
    /// applications may bring themselves. To be said before it binds.
    pub fn stand_by(&mut self, session: SessionKey) {
        if let Some(session) = self.sessions.find_mut(session) {
            session.stands_by = true;
        }
    }

    /// Has a session told who makes the calls delivered to it, in metadata that no caller can set: see
    /// [`trunkline_call::CALLER_KEY`].
    pub fn tell_callers(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.find_mut(key) {
            session.told_callers = true;
        }
    }

    /// Whether no call is in flight.
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    /// A session whose outbox has something.
    pub fn poll_completing(&mut self) -> Option<SessionKey> {
        self.sessions.poll_completing()
    }

    /// The session's next completion; the host takes as many as its ring has room for.
    pub fn poll_completion(&mut self, session: SessionKey) -> Option<Completion> {
        self.sessions.poll_completion(session)
    }

    /// Puts the session back in line: its ring was full and its outbox is not empty.
    pub fn completion_blocked(&mut self, session: SessionKey, completion: Completion) {
        self.sessions.completion_blocked(session, completion);
    }

    /// Whether completions of this session wait.
    pub fn has_completions(&self, session: SessionKey) -> bool {
        self.sessions.has_completions(session)
    }

    /// Completions of this session that wait for room in its ring.
    pub fn completions_waiting(&self, session: SessionKey) -> usize {
        self.sessions.completions_waiting(session)
    }

    /// A session that is gone and whose heaps nobody reads any more.
    pub fn poll_retired(&mut self) -> Option<SessionKey> {
        self.sessions.poll_retired()
    }

    /// An endpoint to connect to.
    pub fn poll_dial(&mut self) -> Option<Dial> {
        self.remotes.poll_dial()
    }

    /// An invariant of the engine that was found broken, each once: for the log. What it concerned was ended or set
    /// right.
    pub fn poll_broken_invariant(&mut self) -> Option<&'static str> {
        self.invariants.poll()
    }

    /// A connection to be closed: nobody calls there any more. The host closes it and says so by
    /// [`Engine::peer_lost`].
    pub fn poll_unwanted(&mut self) -> Option<PeerKey> {
        self.peers.poll_unwanted()
    }

    /// Whether something waits for [`Engine::poll_dial`], [`Engine::poll_transmitting`] or [`Engine::poll_lookup`].
    pub fn has_to_connect_or_transmit(&self) -> bool {
        self.remotes.has_to_connect() || self.peers.has_to_transmit()
    }

    /// Steps of calls that came soon, for a waiter on credit ([`Steps::take_quick`]).
    pub fn take_quick_steps(&mut self, within_ns: u64) -> u32 {
        self.steps.take_quick(within_ns)
    }

    /// What the daemon has measured. Whoever asks has it counted: calls are pending until then.
    pub fn telemetry(&mut self) -> &mut Telemetry {
        &mut self.telemetry
    }

    fn exchange_chain(
        &mut self,
        chain: Chain,
        modules: Modules,
        how: ChainExchange,
    ) -> Result<Vec<String>, PolicyError> {
        let Self { admission, sessions, registry, gateway, .. } = self;
        let bound = bound_methods(sessions, registry, gateway);
        let fits_told = |chain: &mut Chain| gateway.check(chain);
        let (upgraded, plans) = admission.exchange(chain, modules, how, &bound, fits_told)?;
        if let Some(plans) = plans {
            put_plans(sessions, registry, plans);
            // Plans of methods that are forwarded are made when they are called.
            gateway.forget_plans();
            self.reserve_workers();
            self.rebalance();
        }
        Ok(upgraded)
    }
}
