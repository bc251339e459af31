//! Every owner of a shard beside that of its calls. They are lent with a call that was found once for what happens to
//! it: its ends take, open, let go, stop, or send more (`ends.rs`).

use crate::admission::AdmissionControl;
use crate::admission_of_call::AdmissionOfCall;
use crate::attempts::AttemptControl;
use crate::attempts::CallAttempts;
use crate::bound_targets::BoundTargets;
use crate::call::{Body, Call, Calls, ClientEnd, Direction, Item, ServerEnd};
use crate::call_ends::ReleasedParts;
use crate::cluster::Clusters;
use crate::convert::Scratch;
use crate::course::Course;
use crate::due::Due;
use crate::ended::EndedCalls;
use crate::gateway::Gateway;
use crate::grpc::GrpcEnds;
use crate::handover::awaited::Awaited;
use crate::handover::left_out::LeftOut;
use crate::held::HeldBudget;
use crate::host_numbers::HostNumbers;
use crate::invariants::Invariants;
use crate::limits::Limits;
use crate::nested::Nested;
use crate::operator::DeniedChanges;
use crate::peers::PeerEnds;
use crate::plant::Plant;
use crate::r2p2::R2p2;
use crate::reach::EndpointReach;
use crate::records::{CallBooks, CallRecorder};
use crate::registry::Registry;
use crate::remote::Remotes;
use crate::routing::Routing;
use crate::samples::Samples;
use crate::service_users::ServiceUsers;
use crate::sessions::SessionEnds;
use crate::shard::ShardLinks;
use crate::source::CallSources;
use crate::spans::SpanIds;
use crate::start_of_call::StartOfCall;
use crate::unserved::UnservedCalls;
use crate::vouching::PeerRule;
use crate::wait_accounts::WaitAccounts;
use crate::worker_places::WorkerPlaces;
use crate::workers::Workers;
use crate::{CallKey, SessionKey};
use std::collections::BTreeMap;
use trunkline_call::Steps;
use trunkline_call::{Code, Fault, Instant, TimerTable};
use trunkline_telemetry::Telemetry;

/// Every owner of a shard beside that of its calls.
pub(crate) struct Owners {
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
    pub(crate) nested: Nested,
    pub(crate) registry: Registry,
    /// The other shards of this host.
    pub(crate) shards: ShardLinks,
    pub(crate) service_users: ServiceUsers,
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

impl Owners {
    /// Owners of nothing yet. `node_name` and `clock_id` are what peers are told about this host.
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
            nested: Nested::default(),
            registry: Registry::default(),
            shards: ShardLinks::default(),
            service_users: ServiceUsers::default(),
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

    /// Those who are told that a call is over, beside its ends.
    #[inline(always)]
    pub fn books(&mut self) -> CallBooks<'_> {
        let Self { telemetry, registry, plant, sessions, peers, grpc, r2p2, admission, timers, .. } = self;
        let recorder = CallRecorder { telemetry, registry, plant };
        CallBooks { recorder, sessions, peers, grpc, r2p2, admission, timers }
    }

    /// Those who keep places for calls.
    #[inline(always)]
    pub fn places(&mut self) -> WorkerPlaces<'_> {
        let Self { workers, unserved, shards, registry, .. } = self;
        WorkerPlaces { workers, unserved, shards, registry }
    }

    /// Those who know of whoever makes calls whose source that is.
    pub fn sources(&self) -> CallSources<'_> {
        let Self { sessions, peers, grpc, .. } = self;
        CallSources { sessions, peers, grpc }
    }

    /// Those who say what becomes of items.
    #[inline(always)]
    pub fn course(&mut self) -> Course<'_> {
        let Self { clusters, remotes, admission, timers, plant, .. } = self;
        Course { clusters, remotes, admission, timers, plant: *plant }
    }

    /// Those who have a say in how a call begins.
    #[inline]
    pub fn start_of_call(&mut self) -> StartOfCall<'_> {
        let Self { registry, shards, service_users, clusters, sessions, peers, grpc, workers, .. } = self;
        let Self { gateway, awaited, admission, attempts, timers, steps, limits, draining, .. } = self;
        StartOfCall {
            registry,
            shards,
            service_users,
            clusters,
            sessions,
            peers,
            grpc,
            gateway,
            workers,
            awaited,
            admission,
            attempts,
            timers,
            steps,
            limits,
            draining: *draining,
        }
    }

    /// Those who know what policies ask of a call.
    #[inline]
    pub fn admission_of_call(&mut self) -> AdmissionOfCall<'_> {
        let Self { admission, sessions, peers, grpc, registry, gateway, scratch, timers, .. } = self;
        let (control, limits) = (admission, &scratch.limits);
        AdmissionOfCall { control, sessions, peers, grpc, registry, gateway, limits, timers }
    }

    /// A session of this host is to serve a call, and counts it.
    #[inline]
    pub fn count_served(&mut self, calls: &Calls, key: CallKey, session: SessionKey) {
        let Self { sessions, peers, grpc, limits, .. } = self;
        let source = |sessions: &SessionEnds| {
            let sources = CallSources { sessions, peers, grpc };
            calls.find(key).map_or_else(|| "".into(), |call| sources.of(call))
        };
        sessions.serve(calls, (key, session), limits.calls_delivered_per_session as u64, source);
    }

    /// Those who know who serves what.
    pub fn routing(&self) -> Routing<'_> {
        let Self { registry, shards, service_users, clusters, .. } = self;
        Routing { registry, shards, service_users, clusters }
    }

    /// Those who know what there is of connections to endpoints, and for whom calls wait there.
    pub fn reach(&mut self) -> EndpointReach<'_> {
        let Self { remotes, peers, grpc, r2p2, timers, telemetry, host_numbers, .. } = self;
        let Self { clusters, targets, sessions, limits, .. } = self;
        EndpointReach {
            remotes,
            peers,
            grpc,
            r2p2,
            timers,
            telemetry,
            host_numbers,
            clusters,
            targets,
            sessions,
            limits,
        }
    }

    /// How a call ends says nothing of the endpoint it was given.
    pub fn excuse_server(&mut self, now: Instant, call: &mut Call) {
        if let Some(placed) = call.leave_endpoint(None) {
            self.clusters.finished(now, placed, None, &[]);
        }
    }

    /// The connection a call was to go on is not there any more.
    pub fn connection_gone(&self, call: &Call) -> Fault {
        let remote = call.placed.and_then(|placed| self.remotes.find(placed.endpoint));
        let endpoint = remote.map_or_else(|| "its endpoint".to_owned(), |remote| remote.endpoint.to_string());
        Fault::ConnectionLost { endpoint, executed: call.execution() }
    }

    /// Those who pay for what waits.
    #[inline(always)]
    pub fn accounts(&mut self) -> WaitAccounts<'_> {
        let Self { sessions, peers, grpc, shards, held, invariants, limits, .. } = self;
        WaitAccounts { sessions, peers, grpc, shards, held, invariants, limits }
    }

    /// A body was used: its send block goes back to its session, and who pays for one that has crossed may send more.
    #[inline(always)]
    pub fn used(&mut self, body: &Body<'_>) {
        if let Some((session, payload)) = body.lent() {
            self.sessions.give_back(session, payload.span);
        } else if let Body::Crossed(crossed) = body {
            self.shards.used(crossed);
        }
    }

    /// Throws an item away: its send block goes back to its session, its receive block to the heap. Nothing is left of
    /// it, so that it is thrown away once.
    #[inline(always)]
    pub fn drop_item(&mut self, item: &mut Item<'_>) {
        match item.take().body() {
            Some(&(Body::Lent { session, payload } | Body::Sealed { session, payload, .. })) => {
                self.sessions.give_back(session, payload.span);
            }
            Some(&Body::Placed { session, block, .. }) => self.sessions.abandon([(session, block.offset)]),
            Some(Body::Crossed(crossed)) => self.shards.used(crossed),
            Some(Body::Wire { .. } | Body::Packed { .. } | Body::Kept(_)) | None => {}
        }
    }

    /// Throws an item away whose receiver has ended the call: its sender may go on as if it had been taken, for the end
    /// is on its way to it.
    #[inline]
    pub fn drop_unwanted(&mut self, call: (CallKey, &mut Call), direction: Direction, item: &mut Item<'_>) {
        let bytes = item.body().map_or(0, Body::window_cost);
        self.drop_item(item);
        self.credit_sender(call, direction, bytes);
    }

    /// Whoever sends in this direction may send so many bytes more, if the direction is a stream.
    #[inline(always)]
    pub fn credit_sender(&mut self, (key, call): (CallKey, &mut Call), direction: Direction, bytes: u32) {
        if bytes > 0 && call.streams(direction) {
            self.open_window((key, call), direction, bytes);
        }
    }

    /// The same, whether the end's method streams or not.
    #[inline(never)]
    pub fn open_window(&mut self, (key, call): (CallKey, &mut Call), direction: Direction, bytes: u32) {
        let from_session = match direction {
            Direction::Request => matches!(call.client, ClientEnd::Session { .. }),
            Direction::Response => matches!(call.server, ServerEnd::Session { .. }),
        };
        let half = call.half(direction);
        // Others are counted where their connection is.
        half.charged -= if from_session { i64::from(bytes) } else { 0 };
        let over = half.ended;
        match direction {
            Direction::Request => call.client.credit(self, (key, call), bytes, over),
            Direction::Response => call.server.credit(self, (key, call), bytes, over),
        }
    }

    /// Tells the server end of a call that nobody waits any more, if it does not know. What waits in the call is thrown
    /// away before, while it is known who is charged with it: the session it leads to, or the connection it came from.
    /// Its attempts, if it has any, are to be ended then.
    pub fn stop_server(
        &mut self,
        now: Instant,
        (key, call): (CallKey, &mut Call),
        code: Code,
    ) -> Option<Box<CallAttempts>> {
        if !call.is_at_rest() {
            let waiting = self.accounts().take_waiting(key, call);
            waiting.for_each(|mut item| self.drop_item(&mut item));
        }
        call.server.cancel(self, now, (key, call), code);
        call.attempts.take()
    }

    /// The server end of a call is through with it: it makes room for another.
    #[inline(always)]
    pub fn leave_server(&mut self, (key, call): (CallKey, &mut Call)) {
        if call.is_at_worker() {
            self.places().leave(key, call);
        }
        call.take_server().release(self, (key, call));
    }

    /// A call is over, and both its ends are through with it: what it gives back beside that.
    #[inline(always)]
    pub fn leave(&mut self, (key, call): (CallKey, &mut Call)) -> ReleasedParts {
        if !call.has_let_go() {
            self.let_go((key, call));
        }
        call.take_client().release(self, (key, call));
        call.take_released()
    }

    /// Throws away what waits in a call, which has the ends it waits for, and has its server end leave it.
    #[inline(never)]
    fn let_go(&mut self, (key, call): (CallKey, &mut Call)) {
        let waiting = (!call.is_at_rest()).then(|| self.accounts().take_waiting(key, call));
        if call.is_at_worker() {
            self.places().leave(key, call);
        }
        let server = call.take_server();
        waiting.into_iter().flatten().for_each(|mut item| self.drop_item(&mut item));
        server.release(self, (key, call));
    }
}
