//! The service.

use super::addresses::{boot_id, network_namespace, own_addresses};
use super::convert::{calls_message, explanation_message, stages_message, top_row_message};
use super::history::Chronicle;
use super::host::{Facts, Host, UpgradeState};
use super::looks::Looks;
use super::policies::{caller, listed};
use super::proto::admin_server::Admin;
use super::proto::{self};
use super::proto::{
    Application, CallsRequest, CallsResponse, ExplainRequest, ExplainResponse, GetUpgradeRequest,
    GetUpgradeResponse, HistoryRequest, HistoryResponse, ListPoliciesRequest, ListPoliciesResponse,
    ListRequest, ListResponse, Memory, Peer, Service, Shard, TopRequest, TopResponse,
};
use super::served::{NameRoom, ServedServices};
use super::watchers::Watchers;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trunkline::{Incoming, Response, Sender, Status};
use trunkline_daemon::Observation;
use trunkline_engine::{Protocol, ServiceRow, SessionRow};
use trunkline_services::Pause;
use trunkline_telemetry::{Ask, CallsAsk, Detail, Explanation, RecordedCall, Side, Snapshot, top};

/// Shortest time between two pictures of `top`: every picture asks every shard.
const INTERVAL_MS_MIN: u32 = 100;
const INTERVAL_MS_MAX: u32 = 60_000;
/// How soon it is noticed that a watcher has left.
const LEFT_LOOK_EVERY: Duration = Duration::from_millis(500);
/// Most calls looked at one by one for one explanation: 64 k rows of 100 bytes are read for it.
const SAMPLES_MAX: u32 = 20_000;

/// Bytes of calls in one answer: with names, it fits a message of gRPC's default limit.
const CALLS_BYTES_MAX: usize = 2 << 20;

/// Answers operators.
#[derive(Debug)]
pub struct AdminService<H> {
    host: Arc<H>,
    history: Chronicle,
    looks: Looks<H>,
    watchers: Watchers,
}

impl<H: Host> AdminService<H> {
    /// Tells about `host`, whose history this is.
    ///
    /// # Errors
    /// There is no thread to be had for it.
    pub fn new(host: H, history: Chronicle) -> io::Result<Self> {
        let host = Arc::new(host);
        let looks = Looks::begin(Arc::clone(&host), "admin looks")?;
        Ok(Self { host, history, looks, watchers: Watchers::default() })
    }
}

fn telemetry(host: &impl Host, ask: &Ask) -> Snapshot {
    let mut merged = Snapshot::default();
    for shard in host.observe(ask) {
        merged.merge(shard.telemetry);
    }
    merged
}

fn explain(host: &impl Host, asked: ExplainRequest) -> ExplainResponse {
    let samples_max = asked.samples_max.min(SAMPLES_MAX) as usize;
    let ask = Ask { method: asked.method, detail: Detail::Whole, samples_max, ..Ask::default() };
    let snapshot = telemetry(host, &ask);
    let sides = Side::ALL.into_iter();
    let explained = sides.filter_map(|side| Explanation::of(&snapshot, side));
    let mut response = ExplainResponse {
        explanations: explained.map(|explanation| explanation_message(&explanation)).collect(),
        methods_known: Vec::new(),
    };
    if response.explanations.is_empty() {
        let all = telemetry(host, &Ask { detail: Detail::Totals, ..Ask::default() });
        response.methods_known = all.series.into_iter().map(|entry| entry.method).collect();
        response.methods_known.sort_unstable();
        response.methods_known.dedup();
    }
    response
}

fn calls(host: &impl Host, asked: &CallsRequest) -> CallsResponse {
    let rows_max = CALLS_BYTES_MAX / RecordedCall::BYTES / asked.next.len().max(1);
    let shards = host.calls(&|shard| CallsAsk {
        from: asked.next.get(shard).copied(),
        one_in_log2: asked.one_in_log2,
        keeps_slow: asked.keeps_slow,
        traces_one_in_log2: asked.traces_one_in_log2,
        leaves_own_out: true,
        rows_max: rows_max.max(1),
    });
    let Facts { node, tax, .. } = host.facts();
    let shards = shards.iter().map(calls_message).collect();
    let is_first = asked.next.is_empty();
    CallsResponse {
        node,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        shards,
        stages: stages_message(&tax),
        addresses: if is_first { own_addresses() } else { Vec::new() },
        boot_id: if is_first { boot_id() } else { String::new() },
        network_namespace: if is_first { network_namespace() } else { String::new() },
    }
}

impl<H: Host> Admin for AdminService<H> {
    async fn list(&self, request: Incoming<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let ask = Ask { method: "(none)".into(), detail: Detail::Totals, ..Ask::default() };
        let caller = caller(request.metadata());
        let listed = self.looks.ask(caller, move |host| list(host.facts(), &host.observe(&ask))).await?;
        Ok(Response::new(listed))
    }

    async fn explain(&self, request: Incoming<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        let caller = caller(request.metadata()).to_owned();
        let asked = request.into_inner();
        Ok(Response::new(self.looks.ask(&caller, move |host| explain(host, asked)).await?))
    }

    async fn history(&self, request: Incoming<HistoryRequest>) -> Result<Response<HistoryResponse>, Status> {
        let caller = caller(request.metadata()).to_owned();
        let (history, asked) = (self.history.clone(), request.into_inner());
        Ok(Response::new(self.looks.ask(&caller, move |host| history.answer(host, asked)).await?))
    }

    async fn calls(&self, request: Incoming<CallsRequest>) -> Result<Response<CallsResponse>, Status> {
        let caller = caller(request.metadata()).to_owned();
        let asked = request.into_inner();
        Ok(Response::new(self.looks.ask(&caller, move |host| calls(host, &asked)).await?))
    }

    async fn list_policies(
        &self,
        request: Incoming<ListPoliciesRequest>,
    ) -> Result<Response<ListPoliciesResponse>, Status> {
        Ok(Response::new(self.looks.ask(caller(request.metadata()), listed).await?))
    }

    async fn get_upgrade(
        &self,
        _: Incoming<GetUpgradeRequest>,
    ) -> Result<Response<GetUpgradeResponse>, Status> {
        let UpgradeState { under_way, steps, failure, taken } = self.host.upgrade_state();
        let taken_over = taken.map(|taken| proto::TakenOver {
            from_process_id: taken.from,
            sessions: taken.sessions as u32,
            connections: taken.connections as u32,
            calls: taken.calls as u32,
            paused_ns: taken.paused_ns,
        });
        let (process_id, version) = (std::process::id(), env!("CARGO_PKG_VERSION").to_owned());
        Ok(Response::new(GetUpgradeResponse { process_id, version, under_way, steps, failure, taken_over }))
    }

    async fn top(&self, request: Incoming<TopRequest>, mut out: Sender<TopResponse>) -> Result<(), Status> {
        let asked_ms = request.view().interval_ms();
        let interval_ms = if asked_ms == 0 { 1000 } else { asked_ms.clamp(INTERVAL_MS_MIN, INTERVAL_MS_MAX) };
        let caller = caller(request.metadata()).to_owned();
        let _place = self.watchers.admit(&caller)?;
        let mut earlier = self.looks.ask(&caller, TopFigures::look).await?.figures;
        while !request.is_cancelled() {
            if !goes_on_after(Duration::from_millis(interval_ms.into()), &request).await {
                break;
            }
            let TopFigures { mut shown, figures: now } = self.looks.ask(&caller, TopFigures::look).await?;
            shown.elapsed_ns = now.at_ns.saturating_sub(earlier.at_ns);
            let rows = top(&now, Some(&earlier), shown.elapsed_ns);
            shown.rows = rows.iter().map(top_row_message).collect();
            out.send(shown).await?;
            earlier = now;
        }
        Ok(())
    }
}

/// Waits so long. `false`, soon after: who watches has left, and its place is somebody else's.
async fn goes_on_after(time: Duration, request: &Incoming<TopRequest>) -> bool {
    let until = Instant::now() + time;
    while !request.is_cancelled() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        Pause::of(left.min(LEFT_LOOK_EVERY)).await;
    }
    false
}

/// What `top` shows of a moment, without what has changed since the one before.
struct TopFigures {
    shown: TopResponse,
    figures: Snapshot,
}

impl TopFigures {
    fn look(host: &impl Host) -> Self {
        let mut figures = Snapshot::default();
        let mut shown = TopResponse { node: host.facts().node, ..TopResponse::default() };
        for shard in host.observe(&Ask { detail: Detail::Totals, ..Ask::default() }) {
            shown.calls_in_flight += shard.snapshot.calls as u64;
            shown.applications += shard.snapshot.sessions.len() as u32;
            shown.peers += shard.snapshot.peers.len() as u32;
            figures.merge(shard.telemetry);
        }
        Self { shown, figures: figures.by_method() }
    }
}

fn list(facts: Facts, shards: &[Observation]) -> ListResponse {
    let mut list = ListResponse {
        node: facts.node,
        version: env!("CARGO_PKG_VERSION").into(),
        process_id: std::process::id(),
        uptime_ns: facts.uptime_ns,
        socket: facts.socket,
        listening: facts.listening,
        admin_listening: facts.admin_listening,
        gateway_listening: facts.gateway_listening,
        ..ListResponse::default()
    };
    let mut receive_heap_bytes = 0;
    let mut room = NameRoom::default();
    for (index, shard) in shards.iter().enumerate() {
        list.calls_in_flight += shard.snapshot.calls as u64;
        list.shards.push(Shard {
            has_thread: shard.has_thread,
            busy_permille: shard.busy_permille as u32,
            sessions: shard.snapshot.sessions.len() as u32,
            calls_in_flight: shard.snapshot.calls as u64,
        });
        receive_heap_bytes += shard.snapshot.sessions.iter().map(|row| row.receive_heap_bytes).sum::<u64>();
        list.applications.extend(applications(index as u32, shard, &mut room));
        list.peers.extend(peers(index as u32, shard));
    }
    list.services = services(shards.iter().flat_map(|shard| &shard.snapshot.services));
    list.memory = Some(Memory { resident_bytes: facts.resident_bytes, receive_heap_bytes });
    list
}

fn applications(shard: u32, seen: &Observation, room: &mut NameRoom) -> Vec<Application> {
    let served = ServedServices::of(&seen.snapshot.services);
    let application = |row: &SessionRow| {
        let (serves, serves_more) = served.names(row.key, room);
        Application {
            name: row.label.clone(),
            shard,
            serves,
            serves_more,
            calls_made: row.calls_made as u64,
            calls_delivered: row.calls_delivered as u64,
            completions_queued: row.completions_queued as u64,
            messages_parked: row.parked as u64,
            receive_heap_bytes: row.receive_heap_bytes,
            draining: row.draining,
        }
    };
    seen.snapshot.sessions.iter().map(application).collect()
}

fn peers(shard: u32, seen: &Observation) -> impl Iterator<Item = Peer> {
    seen.snapshot.peers.iter().map(move |row| Peer {
        address: row.label.clone(),
        node: row.node.clone().unwrap_or_default(),
        outgoing: row.outgoing,
        shard,
        streams: row.streams as u32,
        queued_bytes: row.queued_bytes,
        protocol: match row.protocol {
            Protocol::Native => "native".into(),
            Protocol::Grpc => "grpc".into(),
            Protocol::R2p2 => "r2p2".into(),
        },
    })
}

/// Each once, in the order they come in: several shards may serve one.
fn services<'a>(rows: impl Iterator<Item = &'a ServiceRow>) -> Vec<Service> {
    let (mut services, mut known): (Vec<Service>, HashMap<&str, usize>) = (Vec::new(), HashMap::new());
    for row in rows {
        let servers = row.sessions.len() as u32;
        let at = *known.entry(&row.name).or_insert(services.len());
        match services.get_mut(at) {
            Some(service) => service.servers += servers,
            None => services.push(Service { name: row.name.clone(), methods: row.methods.clone(), servers }),
        }
    }
    services
}
