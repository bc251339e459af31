//! The engine's state, and what the host may ask of it.

use crate::SessionKey;
use crate::admission::AccessRecord;
use crate::bind::{BindError, Bound};
use crate::call::Calls;
use crate::called_paths::CalledPaths;
use crate::connections::{HttpConnections, NativeConnections, OutgoingDatagrams};
use crate::gateway::Gateway;
use crate::gateway_client::GatewaySettings;
use crate::grpc::{GrpcEvents, GrpcOpenings, GrpcSettings};
use crate::limits::Limits;
use crate::observe::{ObservedOwners, StateParts};
use crate::operator::DeniedChange;
use crate::owners::Owners;
use crate::peers::PeerEvents;
use crate::plant::Plant;
use crate::r2p2_events::R2p2Events;
use crate::r2p2_settings::R2p2Settings;
use crate::registry::BoundSchema;
use crate::remote::{Dial, Speaks};
use crate::samples::{SampleCounts, SampleRule, Samples, TakenSample};
use crate::services::ServiceState;
use crate::session::{Session, ToldLimits};
use crate::sessions::{Outboxes, SessionEntries, payer_of};
use crate::snapshot::Snapshot;
use crate::spans::SpanIds;
use crate::target::Target;
use crate::vouching::{Hosts, PeerRule};
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_call::entry::Entry;
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_policy::{ExportedModule, Module, PolicyError, PolicyRow};
use trunkline_telemetry::Telemetry;

/// One shard's state: its calls, and every other owner, which are lent along with a call.
pub struct Engine {
    pub(crate) calls: Calls,
    pub(crate) owners: Owners,
}

impl Engine {
    /// An engine with nobody attached. `node_name` and `clock_id` are what it tells peers about itself.
    pub fn new(limits: Limits, node_name: &str, clock_id: u64) -> Self {
        Self { calls: Calls::default(), owners: Owners::new(limits, node_name, clock_id) }
    }

    /// Takes a session in. Its heaps answer to the returned key from now on.
    pub fn attach(&mut self, label: String, send_heap_bytes: u64) -> SessionKey {
        let mut session = Session::new(label, send_heap_bytes);
        session.told = ToldLimits::of(&self.owners.limits);
        self.owners.sessions.insert(session)
    }

    /// Says who a session's process is, and which of this host's programs it runs (empty if nobody knows), as the
    /// kernel has it: what policies know its calls by.
    pub fn identify(&mut self, key: SessionKey, identity: &str, program: &str) {
        if let Some(session) = self.owners.sessions.find_mut(key) {
            self.owners.targets.remove_routes(&session.identity, session.routes.len());
            self.owners.targets.add_routes(identity, session.routes.len());
            session.identity = identity.into();
            session.holding.belongs_to(identity);
            self.note_program(key, program);
        }
    }

    /// Says which of this host's programs a session's process runs; empty if nobody knows.
    pub fn note_program(&mut self, key: SessionKey, program: &str) {
        if let Some(session) = self.owners.sessions.find_mut(key) {
            (session.program, session.program_is_of_host) = (program.into(), true);
            self.binder().describe_again(key);
        }
    }

    /// Sessions whose program was written down by a daemon that took any process at its word, with what it wrote.
    pub fn unchecked_programs(&self) -> Vec<(SessionKey, String)> {
        let sessions = self.owners.sessions.iter();
        let unchecked =
            sessions.filter(|(_, session)| !session.program_is_of_host && !session.program.is_empty());
        unchecked.map(|(key, session)| (key, session.program.to_string())).collect()
    }

    /// The program of a session's process; empty if nobody knows.
    pub fn program_of(&self, key: SessionKey) -> &str {
        self.owners.sessions.find(key).map_or("", |session| &session.program)
    }

    /// Names the peers that are daemons of the operator's hosts, by identity, whole or up to a `*`: callers are named
    /// to them, and their word about callers is taken. Nobody is until this is called. To be called before anybody
    /// connects.
    pub fn configure_hosts(&mut self, patterns: &[String]) {
        self.owners.peers.know_hosts(Hosts::new(patterns));
    }

    /// Says who of the network may call what; a service that no rule names may be called by all of it.
    pub fn configure_peer_rules(&mut self, rules: Vec<PeerRule>) {
        self.owners.peer_rules = rules;
    }

    /// Who a session's process is, as [`Engine::identify`] was told.
    pub fn identity_of(&self, key: SessionKey) -> &str {
        self.owners.sessions.find(key).map_or("", |session| &session.identity)
    }

    /// The name of a session's application, with its process.
    pub fn label_of(&self, key: SessionKey) -> String {
        self.owners.sessions.find(key).map_or_else(String::new, |session| session.label.clone())
    }

    /// Says in which control group a session's process is.
    pub fn note_cgroup(&mut self, key: SessionKey, cgroup: &str) {
        if let Some(session) = self.owners.sessions.find_mut(key) {
            session.cgroup = cgroup.into();
        }
    }

    /// Who a session is, to whoever shares out what there is: its user, its control group, what it serves.
    pub fn standing_of(&self, key: SessionKey) -> (&str, &str, &[Box<str>]) {
        let Some(session) = self.owners.sessions.find(key) else { return ("", "", &[]) };
        (&session.identity, &session.cgroup, self.owners.service_users.services_of(key))
    }

    /// What is held for a session is counted with what else is held for this tenant, which may have so many parts of so
    /// many of what one source may.
    pub fn share_memory(&mut self, key: SessionKey, tenant: &str, parts: u32, of: u32) {
        if let Some(session) = self.owners.sessions.find_mut(key) {
            session.holding.belongs_to(tenant);
            session.holding.has_parts(parts, of);
        }
    }

    /// What a session has bound; nothing if it is gone.
    pub fn bound(&self, key: SessionKey) -> Bound {
        let Ok(session) = self.owners.sessions.attached(key) else { return Bound::default() };
        let calls = session.called().map(|(_, types, target)| {
            let target = match target {
                Target::Cluster(cluster) => self.owners.clusters.target_of(cluster),
                Target::Anyone | Target::Here => None,
            };
            let target = target.map(|target| self.owners.remotes.label(target));
            (types.path.to_string(), target.unwrap_or_default())
        });
        Bound { serves: self.owners.registry.services_of(key), calls: calls.collect() }
    }

    /// The schemas of what a session has bound, each once.
    pub fn schemas_of(&self, key: SessionKey) -> Vec<Arc<BoundSchema>> {
        let Ok(session) = self.owners.sessions.attached(key) else { return Vec::new() };
        let called = session.called().map(|(_, types, _)| types);
        BoundSchema::each_once(called.chain(self.owners.registry.types_served_by(key)))
    }

    /// Says where calls to a service go that no session of this host serves. Replaces what was said before.
    ///
    /// # Errors
    /// [`BindError::Endpoints`] if the host would know too many.
    pub fn configure_service(&mut self, service: &str, endpoints: &[String]) -> Result<(), BindError> {
        let limit = self.owners.limits.endpoints;
        let remotes = endpoints.iter().map(|endpoint| self.owners.remotes.intern(endpoint, limit));
        let remotes = remotes.collect::<Option<Vec<_>>>().ok_or(BindError::Endpoints(limit))?;
        let Owners { clusters, remotes: known, admission, attempts, unserved, .. } = &mut self.owners;
        unserved.serve(service);
        clusters.set(known, service, remotes, attempts.balancing(admission.chain()));
        Ok(())
    }

    /// What the users of a service say about calls of it that are made on this host. Replaces what was said before.
    pub fn configure_calls(&mut self, service: &str, config: ServiceConfig) {
        self.owners.attempts.configure(service, config);
        self.rebalance();
    }

    /// Of the services that were handed over, no others have endpoints from now on than those the configuration names.
    /// To be called between [`take_over`](crate::take_over) and [`go_on_elsewhere`](crate::go_on_elsewhere), once it
    /// has named all: what nothing has any more is forgotten, and its connections are closed.
    pub fn keep_services(&mut self, is_configured: impl Fn(&str) -> bool) {
        self.owners.clusters.retain_services(&self.owners.remotes, is_configured);
        self.binder().find_unbound();
    }

    /// The session for which an entry of this one is: the one that made the call, if it is of this shard and this entry
    /// is its handler's answer. What a handler says to no effect is its own.
    pub fn on_behalf_of(&self, session: SessionKey, raw: &Entry) -> SessionKey {
        let Self { calls, owners: Owners { sessions, limits, shards, .. } } = self;
        payer_of(sessions, calls, limits, shards.own(), (session, raw))
    }

    /// How gRPC is spoken; [`GrpcSettings::default`] until this is called.
    pub fn configure_grpc(&mut self, settings: GrpcSettings) {
        self.owners.remotes.speak_at_first(if settings.always { Speaks::Grpc } else { Speaks::Unknown });
        self.owners.grpc.configure(settings);
    }

    /// How R2P2 is spoken; [`R2p2Settings::default`] until this is called. To be said before anybody calls.
    pub fn configure_r2p2(&mut self, now: Instant, settings: R2p2Settings) {
        self.owners.r2p2.configure(now, settings, &self.owners.limits);
    }

    /// How the gateway works; [`GatewaySettings::default`] until this is called. To be called before policies are
    /// applied.
    pub fn configure_gateway(&mut self, settings: GatewaySettings) {
        self.owners.gateway = Gateway::new(settings);
    }

    /// Takes randomness in, for what must not happen at the same moment on every host. Zero takes it out.
    pub fn seed(&mut self, seed: u64) {
        self.owners.remotes.jitter.seed(seed);
        self.owners.r2p2.seed(seed);
        self.owners.admission.seed(seed);
        self.owners.clusters.seed = seed;
        self.owners.attempts.seed(seed);
    }

    /// Offers checksums on connections to other daemons made from now on; where both sides do, every frame has one.
    pub fn configure_integrity(&mut self, offered: bool) {
        self.owners.peers.offer_checksums(offered);
    }

    /// From now on calls that belong to a sampled trace have spans, and a trace begins with `share` (0…1) of
    /// those that are made here, belong to none and are no handler's. Their ids can be foretold from `seed`, and it
    /// from them: it is for nothing else.
    pub fn trace_calls(&mut self, share: f64, seed: u64) {
        self.owners.spans = SpanIds::of_share(share, seed);
    }

    /// From now on some calls are kept with their messages, as these rules say, until [`Engine::take_sample`].
    pub fn sample_calls(&mut self, rules: Vec<SampleRule>) {
        self.owners.samples = Samples::new(rules);
    }

    /// The oldest call that was kept with its messages.
    pub fn take_sample(&mut self) -> Option<TakenSample> {
        self.owners.samples.take()
    }

    /// What became of the calls that were to be kept.
    pub fn sample_counts(&self) -> SampleCounts {
        self.owners.samples.counts
    }

    /// Plants delays; zero takes them out.
    pub fn plant(&mut self, plant: Plant) {
        self.owners.plant = plant;
    }

    /// Every service that was ever served here and may be known outside (not the host's own), by name.
    pub fn services(&self) -> Vec<ServiceState> {
        self.owners.registry.service_states(self.owners.draining)
    }

    /// A number that is another whenever [`Engine::services`] may say something else.
    pub fn services_version(&self) -> u64 {
        self.owners.registry.version() + u64::from(self.owners.draining)
    }

    /// Whether no new calls are taken.
    pub fn is_draining(&self) -> bool {
        self.owners.draining
    }

    /// What this session serves, it serves only while no other session does: the daemon's own form of a service that
    /// applications may bring themselves. To be said before it binds.
    pub fn stand_by(&mut self, session: SessionKey) {
        if let Some(session) = self.owners.sessions.find_mut(session) {
            session.stands_by = true;
        }
    }

    /// Has a session told who makes the calls delivered to it, in metadata that no caller can set: see
    /// [`trunkline_call::CALLER_KEY`].
    pub fn tell_callers(&mut self, key: SessionKey) {
        if let Some(session) = self.owners.sessions.find_mut(key) {
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
        Outboxes { sessions: &mut self.owners.sessions }
    }

    /// The connections to other daemons.
    #[inline]
    pub fn native(&mut self) -> NativeConnections<'_> {
        let Self { calls, owners: Owners { peers, held, .. } } = self;
        NativeConnections { peers, calls, held }
    }

    /// The HTTP/2 connections.
    #[inline]
    pub fn http(&mut self) -> HttpConnections<'_> {
        let draining = self.owners.draining;
        HttpConnections { reach: self.owners.reach(), draining }
    }

    /// The datagrams that go out.
    #[inline]
    pub fn datagrams(&mut self) -> OutgoingDatagrams<'_> {
        OutgoingDatagrams { r2p2: &mut self.owners.r2p2 }
    }

    /// A session that is gone and whose heaps nobody reads any more.
    pub fn poll_retired(&mut self) -> Option<SessionKey> {
        self.owners.sessions.poll_retired()
    }

    /// An endpoint to connect to.
    pub fn poll_dial(&mut self) -> Option<Dial> {
        self.owners.remotes.poll_dial()
    }

    /// The next name to look up. Every one is to be answered with [`Engine::handle_looked_up`], sooner or later.
    pub fn poll_lookup(&mut self) -> Option<Arc<str>> {
        self.owners.remotes.names.wanted.pop_front()
    }

    /// The users whose sessions have bound a name; the configuration's names are nobody's, too.
    pub fn who_names(&self, name: &str) -> Vec<&str> {
        let Owners { remotes, clusters, targets, .. } = &self.owners;
        let Some(key) = remotes.named(name) else { return Vec::new() };
        let configured = clusters.sources_of_services().contains(&key).then_some("");
        targets.users_of(key).chain(configured).collect()
    }

    /// The next name that is to be looked up no more. To be asked for before [`Engine::poll_lookup`]: a name may come
    /// again.
    pub fn poll_name_forgotten(&mut self) -> Option<Arc<str>> {
        self.owners.remotes.names.forgotten.pop_front()
    }

    /// An invariant of the engine that was found broken, each once: for the log. What it concerned was ended or set
    /// right.
    pub fn poll_broken_invariant(&mut self) -> Option<&'static str> {
        self.owners.invariants.poll()
    }

    /// Whether something waits for [`Engine::poll_dial`], [`NativeConnections::poll_transmitting`] or
    /// [`Engine::poll_lookup`].
    pub fn has_to_connect_or_transmit(&self) -> bool {
        self.owners.remotes.has_to_connect() || self.owners.peers.has_to_transmit()
    }

    /// Steps of calls that came soon, for a waiter on credit ([`Steps::take_quick`]).
    pub fn take_quick_steps(&mut self, within_ns: u64) -> u32 {
        self.owners.steps.take_quick(within_ns)
    }

    /// What the daemon has measured. Whoever asks has it counted: calls are pending until then.
    pub fn telemetry(&mut self) -> &mut Telemetry {
        &mut self.owners.telemetry
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
            attempts: self.owners.attempts.figures(),
            limits_met: self.owners.limits_met.iter().map(|(name, calls)| (*name, *calls)).collect(),
            samples: self.sample_counts(),
            ..Snapshot::default()
        })
    }

    /// Copies another part. `false`: that was all, and it can be [finished](StateParts::finish) elsewhere.
    pub fn copy_state(&self, now: Instant, parts: &mut StateParts) -> bool {
        let owners = &self.owners;
        let Owners { sessions, registry, remotes, clusters, peers, grpc, r2p2, .. } = owners;
        let Owners { attempts, workers, unserved, shards, telemetry, .. } = owners;
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
        self.owners.admission.rows()
    }

    /// The states of all modules, for a daemon that takes over from this one, and why some are not among them.
    pub fn export_modules(&self) -> (Vec<ExportedModule>, Vec<PolicyError>) {
        self.owners.admission.export_modules()
    }

    /// Hands the states of another daemon's modules to those of this one, before its first call; returns which of them
    /// did not take theirs.
    pub fn import_modules(&mut self, exported: &[ExportedModule]) -> Vec<PolicyError> {
        self.owners.admission.import_modules(exported)
    }

    /// Policies that do not fit a method bound since they were applied, for the host to log. Those methods' calls are
    /// refused.
    pub fn poll_policy_misfit(&mut self) -> Option<PolicyError> {
        self.owners.admission.poll_misfit()
    }

    /// A record of the access log.
    pub fn poll_access_record(&mut self) -> Option<AccessRecord> {
        self.owners.admission.poll_access_record()
    }

    /// A change of the daemon that an operator asked for who may not.
    pub fn poll_denied_change(&mut self) -> Option<DeniedChange> {
        self.owners.denied.poll()
    }

    /// A module that was ejected because it is faulty, for the host to log.
    pub fn poll_ejected_module(&mut self) -> Option<PolicyError> {
        self.owners.admission.poll_ejected_module()
    }

    /// Modules nobody needs any more, to be dropped where it may take its time.
    pub fn take_retired_modules(&mut self) -> Vec<Box<dyn Module>> {
        self.owners.admission.take_retired_modules()
    }

    /// The owners that know what a path stands for.
    pub(crate) fn paths(&mut self) -> CalledPaths<'_> {
        let Owners { registry, telemetry, shards, service_users, clusters, limits, .. } = &mut self.owners;
        CalledPaths { registry, telemetry, shards, service_users, clusters, limits }
    }

    #[inline(always)]
    pub(crate) fn session_entries(&mut self) -> SessionEntries<'_> {
        let Self { calls, owners } = self;
        let Owners { sessions, workers, admission, held, invariants, registry, shards, limits, .. } = owners;
        SessionEntries { sessions, calls, workers, admission, held, invariants, registry, shards, limits }
    }

    pub(crate) fn peer_events(&mut self) -> PeerEvents<'_> {
        let Self { calls, owners } = self;
        let Owners { peers, sessions, held, invariants, timers, limits_met, host_numbers, grpc, .. } = owners;
        let Owners {
            peer_rules, registry, telemetry, shards, service_users, clusters, limits, arrived, ..
        } = owners;
        let paths = CalledPaths { registry, telemetry, shards, service_users, clusters, limits };
        PeerEvents {
            peers,
            calls,
            sessions,
            held,
            invariants,
            timers,
            limits_met,
            host_numbers,
            grpc,
            peer_rules,
            paths,
            arrived: *arrived,
        }
    }

    pub(crate) fn grpc_openings(&mut self) -> GrpcOpenings<'_> {
        let Self { calls, owners } = self;
        let Owners { grpc, gateway, admission, denied, types_bound, peers, peer_rules, .. } = owners;
        let Owners { registry, telemetry, shards, service_users, clusters, limits, arrived, .. } = owners;
        let paths = CalledPaths { registry, telemetry, shards, service_users, clusters, limits };
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
        let Self { calls, owners } = self;
        let Owners { grpc, clusters, held, invariants, timers, limits_met, scratch, .. } = owners;
        let Owners { peers, arrived, .. } = owners;
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
        let Self { calls, owners } = self;
        let Owners { r2p2, remotes, scratch, peers, peer_rules, arrived, .. } = owners;
        let Owners { registry, telemetry, shards, service_users, clusters, limits, .. } = owners;
        let paths = CalledPaths { registry, telemetry, shards, service_users, clusters, limits };
        R2p2Events { r2p2, calls, remotes, scratch, peers, peer_rules, paths, arrived: *arrived }
    }
}
