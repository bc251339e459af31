//! The engine's state, and what the host may ask of it.

use crate::SessionKey;
use crate::admission::{AccessRecord, AdmissionControl};
use crate::attempts::AttemptControl;
use crate::bind::{BindError, Bound};
use crate::bound_targets::BoundTargets;
use crate::call::Calls;
use crate::called_paths::CalledPaths;
use crate::cluster::Clusters;
use crate::connections::{HttpConnections, NativeConnections, OutgoingDatagrams};
use crate::convert::Scratch;
use crate::due::Due;
use crate::ended::EndedCalls;
use crate::gateway::Gateway;
use crate::gateway_client::GatewaySettings;
use crate::grpc::{GrpcEnds, GrpcEvents, GrpcOpenings, GrpcSettings};
use crate::handover::awaited::Awaited;
use crate::handover::left_out::LeftOut;
use crate::heaps::Heaps;
use crate::held::HeldBudget;
use crate::host_numbers::HostNumbers;
use crate::invariants::Invariants;
use crate::limits::Limits;
use crate::nested::Nested;
use crate::observe::{ObservedOwners, StateParts};
use crate::operator::{DeniedChange, DeniedChanges};
use crate::owners::Owners;
use crate::peers::{PeerEnds, PeerEvents};
use crate::plant::Plant;
use crate::r2p2::R2p2;
use crate::r2p2_events::R2p2Events;
use crate::r2p2_settings::R2p2Settings;
use crate::registry::{BoundSchema, Registry};
use crate::remote::{Dial, Remotes, Speaks};
use crate::samples::{SampleCounts, SampleRule, Samples, TakenSample};
use crate::services::ServiceState;
use crate::session::{Session, ToldLimits};
use crate::sessions::{Outboxes, SessionEnds, SessionEntries, payer_of};
use crate::shard::ShardLinks;
use crate::snapshot::Snapshot;
use crate::spans::SpanIds;
use crate::target::Target;
use crate::unserved::UnservedCalls;
use crate::vouching::{Hosts, PeerRule};
use crate::workers::Workers;
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline_call::entry::Entry;
use trunkline_call::{Instant, Steps, TimerTable};
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_policy::{ExportedModule, Module, PolicyError, PolicyRow};
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
        let held = HeldBudget::of(&limits);
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
            self.binder().describe_again(key);
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

    /// The name of a session's application, with its process.
    pub fn label_of(&self, key: SessionKey) -> String {
        self.sessions.find(key).map_or_else(String::new, |session| session.label.clone())
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

    /// What a session has bound; nothing if it is gone.
    pub fn bound(&self, key: SessionKey) -> Bound {
        let Ok(session) = self.sessions.attached(key) else { return Bound::default() };
        let calls = session.called().map(|(_, types, target)| {
            let target = match target {
                Target::Cluster(cluster) => self.clusters.target_of(cluster),
                Target::Anyone | Target::Here => None,
            };
            let target = target.map(|target| self.remotes.label(target));
            (types.path.to_string(), target.unwrap_or_default())
        });
        Bound { serves: self.registry.services_of(key), calls: calls.collect() }
    }

    /// The schemas of what a session has bound, each once.
    pub fn schemas_of(&self, key: SessionKey) -> Vec<Arc<BoundSchema>> {
        let Ok(session) = self.sessions.attached(key) else { return Vec::new() };
        let called = session.called().map(|(_, types, _)| types);
        BoundSchema::each_once(called.chain(self.registry.types_served_by(key)))
    }

    /// Says where calls to a service go that no session of this host serves. Replaces what was said before.
    ///
    /// # Errors
    /// [`BindError::Endpoints`] if the host would know too many.
    pub fn configure_service(&mut self, service: &str, endpoints: &[String]) -> Result<(), BindError> {
        let limit = self.limits.endpoints;
        let remotes = endpoints.iter().map(|endpoint| self.remotes.intern(endpoint, limit));
        let remotes = remotes.collect::<Option<Vec<_>>>().ok_or(BindError::Endpoints(limit))?;
        let Self { clusters, remotes: known, admission, attempts, unserved, .. } = self;
        unserved.serve(service);
        clusters.set(known, service, remotes, attempts.balancing(admission.chain()));
        Ok(())
    }

    /// What the users of a service say about calls of it that are made on this host. Replaces what was said before.
    pub fn configure_calls(&mut self, service: &str, config: ServiceConfig) {
        self.attempts.configure(service, config);
        self.rebalance();
    }

    /// Of the services that were handed over, no others have endpoints from now on than those the configuration names.
    /// To be called between [`take_over`](crate::take_over) and [`go_on_elsewhere`](crate::go_on_elsewhere), once it
    /// has named all: what nothing has any more is forgotten, and its connections are closed.
    pub fn keep_services(&mut self, is_configured: impl Fn(&str) -> bool) {
        self.clusters.retain_services(&self.remotes, is_configured);
        self.binder().find_unbound();
    }

    /// The session for which an entry of this one is: the one that made the call, if it is of this shard and this entry
    /// is its handler's answer. What a handler says to no effect is its own.
    pub fn on_behalf_of(&self, session: SessionKey, raw: &Entry) -> SessionKey {
        let Self { sessions, calls, limits, shards, .. } = self;
        payer_of(sessions, calls, limits, shards.own(), (session, raw))
    }

    /// How gRPC is spoken; [`GrpcSettings::default`] until this is called.
    pub fn configure_grpc(&mut self, settings: GrpcSettings) {
        self.remotes.speak_at_first(if settings.always { Speaks::Grpc } else { Speaks::Unknown });
        self.grpc.configure(settings);
    }

    /// How R2P2 is spoken; [`R2p2Settings::default`] until this is called. To be said before anybody calls.
    pub fn configure_r2p2(&mut self, now: Instant, settings: R2p2Settings) {
        self.r2p2.configure(now, settings, &self.limits);
    }

    /// How the gateway works; [`GatewaySettings::default`] until this is called. To be called before policies are
    /// applied.
    pub fn configure_gateway(&mut self, settings: GatewaySettings) {
        self.gateway = Gateway::new(settings);
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

    /// What sessions are to hear.
    #[inline]
    pub fn outboxes(&mut self) -> Outboxes<'_> {
        Outboxes { sessions: &mut self.sessions }
    }

    /// The connections to other daemons.
    #[inline]
    pub fn native(&mut self) -> NativeConnections<'_> {
        let Self { peers, calls, held, .. } = self;
        NativeConnections { peers, calls, held }
    }

    /// The HTTP/2 connections.
    #[inline]
    pub fn http(&mut self) -> HttpConnections<'_> {
        let draining = self.draining;
        HttpConnections { reach: self.reach(), draining }
    }

    /// The datagrams that go out.
    #[inline]
    pub fn datagrams(&mut self) -> OutgoingDatagrams<'_> {
        OutgoingDatagrams { r2p2: &mut self.r2p2 }
    }

    /// A session that is gone and whose heaps nobody reads any more.
    pub fn poll_retired(&mut self) -> Option<SessionKey> {
        self.sessions.poll_retired()
    }

    /// An endpoint to connect to.
    pub fn poll_dial(&mut self) -> Option<Dial> {
        self.remotes.poll_dial()
    }

    /// The next name to look up. Every one is to be answered with [`Engine::handle_looked_up`], sooner or later.
    pub fn poll_lookup(&mut self) -> Option<Arc<str>> {
        self.remotes.names.wanted.pop_front()
    }

    /// The next name that is to be looked up no more. To be asked for before [`Engine::poll_lookup`]: a name may come
    /// again.
    pub fn poll_name_forgotten(&mut self) -> Option<Arc<str>> {
        self.remotes.names.forgotten.pop_front()
    }

    /// An invariant of the engine that was found broken, each once: for the log. What it concerned was ended or set
    /// right.
    pub fn poll_broken_invariant(&mut self) -> Option<&'static str> {
        self.invariants.poll()
    }

    /// Whether something waits for [`Engine::poll_dial`], [`NativeConnections::poll_transmitting`] or
    /// [`Engine::poll_lookup`].
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

    /// The state of things, for operators. Walks everything; a shard hands it over in parts instead:
    /// [`Engine::begin_state`].
    pub fn snapshot(&self) -> Snapshot {
        let mut parts = self.begin_state();
        while self.copy_state(Instant::default(), &mut parts) {}
        parts.finish()
    }

    /// Begins a snapshot.
    pub fn begin_state(&self) -> StateParts {
        StateParts::begin(Snapshot {
            calls: self.calls.len(),
            attempts: self.attempts.figures(),
            limits_met: self.limits_met.iter().map(|(name, calls)| (*name, *calls)).collect(),
            samples: self.sample_counts(),
            ..Snapshot::default()
        })
    }

    /// Copies another part. `false`: that was all, and it can be [finished](StateParts::finish) elsewhere.
    pub fn copy_state(&self, now: Instant, parts: &mut StateParts) -> bool {
        let Self { sessions, registry, remotes, clusters, peers, grpc, r2p2, .. } = self;
        let Self { attempts, workers, unserved, shards, telemetry, .. } = self;
        ObservedOwners {
            sessions,
            registry,
            remotes,
            clusters,
            peers,
            grpc,
            r2p2,
            attempts,
            workers,
            unserved,
            shards,
            telemetry,
        }
        .copy(now, parts)
    }

    /// The policies at work, in order, with their figures.
    pub fn policy_rows(&self) -> Vec<PolicyRow> {
        self.admission.rows()
    }

    /// The states of all modules, for a daemon that takes over from this one, and why some are not among them.
    pub fn export_modules(&self) -> (Vec<ExportedModule>, Vec<PolicyError>) {
        self.admission.export_modules()
    }

    /// Hands the states of another daemon's modules to those of this one, before its first call; returns which of them
    /// did not take theirs.
    pub fn import_modules(&mut self, exported: &[ExportedModule]) -> Vec<PolicyError> {
        self.admission.import_modules(exported)
    }

    /// Policies that do not fit a method bound since they were applied, for the host to log. Those methods' calls are
    /// refused.
    pub fn poll_policy_misfit(&mut self) -> Option<PolicyError> {
        self.admission.poll_misfit()
    }

    /// A record of the access log.
    pub fn poll_access_record(&mut self) -> Option<AccessRecord> {
        self.admission.poll_access_record()
    }

    /// A change of the daemon that an operator asked for who may not.
    pub fn poll_denied_change(&mut self) -> Option<DeniedChange> {
        self.denied.poll()
    }

    /// A module that was ejected because it is faulty, for the host to log.
    pub fn poll_ejected_module(&mut self) -> Option<PolicyError> {
        self.admission.poll_ejected_module()
    }

    /// Modules nobody needs any more, to be dropped where it may take its time.
    pub fn take_retired_modules(&mut self) -> Vec<Box<dyn Module>> {
        self.admission.take_retired_modules()
    }

    /// The owners that know what a path stands for.
    pub(crate) fn paths(&mut self) -> CalledPaths<'_> {
        let Self { registry, telemetry, shards, owners, clusters, limits, .. } = self;
        CalledPaths { registry, telemetry, shards, owners, clusters, limits }
    }

    #[inline(always)]
    pub(crate) fn session_entries(&mut self) -> SessionEntries<'_> {
        let Self { sessions, calls, workers, admission, held, invariants, registry, shards, limits, .. } =
            self;
        SessionEntries { sessions, calls, workers, admission, held, invariants, registry, shards, limits }
    }

    pub(crate) fn peer_events(&mut self) -> PeerEvents<'_> {
        let Self { peers, calls, sessions, held, invariants, timers, host_numbers, grpc, .. } = self;
        let Self { peer_rules, registry, telemetry, shards, owners, clusters, limits, arrived, .. } = self;
        let paths = CalledPaths { registry, telemetry, shards, owners, clusters, limits };
        PeerEvents {
            peers,
            calls,
            sessions,
            held,
            invariants,
            timers,
            host_numbers,
            grpc,
            peer_rules,
            paths,
            arrived: *arrived,
        }
    }

    pub(crate) fn grpc_openings(&mut self) -> GrpcOpenings<'_> {
        let Self { grpc, calls, gateway, admission, denied, types_bound, peers, peer_rules, .. } = self;
        let Self { registry, telemetry, shards, owners, clusters, limits, arrived, .. } = self;
        let paths = CalledPaths { registry, telemetry, shards, owners, clusters, limits };
        GrpcOpenings {
            grpc,
            calls,
            gateway,
            admission,
            denied,
            types_bound,
            peers,
            peer_rules,
            paths,
            arrived: *arrived,
        }
    }

    pub(crate) fn grpc_events(&mut self) -> GrpcEvents<'_> {
        let Self { grpc, calls, clusters, held, invariants, timers, limits_met, scratch, .. } = self;
        let Self { peers, arrived, .. } = self;
        GrpcEvents {
            grpc,
            calls,
            clusters,
            held,
            invariants,
            timers,
            limits_met,
            scratch,
            peers,
            arrived: *arrived,
        }
    }

    pub(crate) fn r2p2_events(&mut self) -> R2p2Events<'_> {
        let Self { r2p2, calls, remotes, scratch, peers, peer_rules, arrived, .. } = self;
        let Self { registry, telemetry, shards, owners, clusters, limits, .. } = self;
        let paths = CalledPaths { registry, telemetry, shards, owners, clusters, limits };
        R2p2Events { r2p2, calls, remotes, scratch, peers, peer_rules, paths, arrived: *arrived }
    }
}
