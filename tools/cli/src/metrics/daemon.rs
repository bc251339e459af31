//! The daemon's own figures: applications, services, endpoints, policies.
//!
//! Names come from applications and peers, so what is told apart is bounded: beyond [`NAMES_MAX`] of a family, the rest
//! counts as [`ToldApart::OTHER`].

use super::live::{self, NAMES_MAX};
use super::process;
use crate::admin::{Facts, Host};
use crate::daemon::{LostLines, lost_lines};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use trunkline_daemon::Observation;
use trunkline_engine::{Protocol, RemoteState};
use trunkline_policy::PolicyRow;
use trunkline_telemetry::{Exposition, Snapshot, TaxTotals, ToldApart, prometheus};

/// Everything, as text.
pub fn text(host: &impl Host) -> String {
    prometheus::text(&figures(host))
}

/// Everything, as text with exemplars.
pub fn openmetrics(host: &impl Host) -> String {
    let (since_1970, monotonic) = clocks();
    prometheus::openmetrics(&figures(host), since_1970.saturating_sub(monotonic))
}

/// Nanoseconds since 1970, and on the monotonic clock, now.
pub fn clocks() -> (u64, u64) {
    let read = |clock| {
        let now = clock_gettime(clock);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    (read(ClockId::Realtime), read(ClockId::Monotonic))
}

/// Everything.
pub fn figures(host: &impl Host) -> Exposition {
    let (shards, series) = host.observe_counters();
    let mut text = Exposition::default();
    let Facts { node, tax, .. } = host.facts();
    build(&mut text, &node);
    process::add(&mut text);
    stages(&mut text, &tax);
    log_lines(&mut text);
    in_flight(&mut text, &shards);
    applications(&mut text, &shards);
    services(&mut text, &shards);
    endpoints(&mut text, &shards);
    balanced(&mut text, &shards);
    attempts(&mut text, &shards);
    limits(&mut text, &shards);
    memory(&mut text, &shards);
    datagrams(&mut text, &shards);
    connections(&mut text, &shards);
    samples(&mut text, &shards);
    policies(&mut text, &host.policies());
    #[cfg(feature = "otlp")]
    super::otlp::add(&mut text);
    prometheus::add(&mut text, &Snapshot { series, ..Snapshot::default() });
    text
}

fn build(text: &mut Exposition, node: &str) {
    text.family("trunkline_build_info", "gauge", "Always 1; its labels say who this is.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION")), ("node", node)], 1_u64);
}

fn log_lines(text: &mut Exposition) {
    let LostLines { unread, unwritten } = lost_lines();
    let name = "trunkline_log_lines_lost_total";
    text.family(name, "counter", "Log lines standard error did not take: not read in time, or not written.");
    for (why, count) in [("unread", unread), ("unwritten", unwritten)] {
        text.sample(&[("why", why)], count);
    }
}

/// What the threads of shards spend their processor time on.
fn stages(text: &mut Exposition, tax: &TaxTotals) {
    let name = "trunkline_stage_cpu_seconds_total";
    text.family(name, "counter", "Processor time of shards' threads by stage of a call's path, as measured.");
    for (stage, cpu_ns) in tax.by_label() {
        text.sample(&[("stage", stage)], cpu_ns as f64 / 1e9);
    }
}

fn samples(text: &mut Exposition, shards: &[Observation]) {
    let name = "trunkline_samples_total";
    text.family(name, "counter", "Calls that were to be kept with their messages, by what became of them.");
    let sum = |of: fn(&Observation) -> u64| shards.iter().map(of).sum::<u64>();
    for (outcome, count) in [
        ("written", sum(|shard| shard.samples.written)),
        ("too_large", sum(|shard| shard.snapshot.samples.too_large)),
        ("unreadable", sum(|shard| shard.snapshot.samples.unreadable)),
        ("unanswered", sum(|shard| shard.snapshot.samples.unanswered)),
        ("no_room", sum(|shard| shard.snapshot.samples.no_room + shard.samples.unqueued)),
        ("unwritten", sum(|shard| shard.samples.unwritten)),
        ("beyond_rate", sum(|shard| shard.samples.beyond_rate)),
    ] {
        text.sample(&[("outcome", outcome)], count);
    }
}

fn in_flight(text: &mut Exposition, shards: &[Observation]) {
    let name = "trunkline_shard_calls_in_flight";
    text.family(name, "gauge", "Calls that have begun and not ended.");
    for (index, shard) in shards.iter().enumerate() {
        text.sample(&[("shard", &index.to_string())], shard.snapshot.calls);
    }
}

/// Figures of one name, in the order of their families.
type Rows<const N: usize> = BTreeMap<String, [u64; N]>;

/// Adds figures to those of a name.
fn add<const N: usize>(rows: &mut Rows<N>, name: &str, figures: [u64; N]) {
    let is_known = rows.contains_key(name) || rows.len() < NAMES_MAX;
    let row = rows.entry(if is_known { name } else { ToldApart::OTHER }.to_owned()).or_insert([0; N]);
    for (sum, figure) in row.iter_mut().zip(figures) {
        *sum = sum.saturating_add(figure);
    }
}

/// Families with one label: name, kind and help of each, in the order of the figures.
fn show<const N: usize>(
    text: &mut Exposition,
    label: &'static str,
    families: [[&'static str; 3]; N],
    rows: &Rows<N>,
) {
    for (index, [name, kind, help]) in families.into_iter().enumerate() {
        text.family(name, kind, help);
        for (key, figures) in rows {
            text.sample(&[(label, key)], figures[index]);
        }
    }
}

fn applications(text: &mut Exposition, shards: &[Observation]) {
    let mut rows = Rows::new();
    for row in shards.iter().flat_map(|shard| &shard.snapshot.sessions) {
        // The label without the process id: a name per process would be a series per process.
        let name = row.label.rsplit_once('[').map_or(&*row.label, |(name, _)| name);
        let [made, delivered] = [row.calls_made as u64, row.calls_delivered as u64];
        let [queued, parked] = [row.completions_queued as u64, row.parked as u64];
        add(&mut rows, name, [1, made, delivered, queued, parked, row.receive_heap_bytes]);
    }
    let families = [
        ["trunkline_application_sessions", "gauge", "Sessions of the application."],
        [
            "trunkline_application_calls_made",
            "gauge",
            "Calls it has made that are in flight, or not released.",
        ],
        ["trunkline_application_calls_delivered", "gauge", "Calls delivered to it that it has not answered."],
        ["trunkline_application_completions_queued", "gauge", "Completions that wait for room in its ring."],
        [
            "trunkline_application_messages_parked",
            "gauge",
            "Messages that wait for room in its receive heap.",
        ],
        ["trunkline_application_receive_heap_bytes", "gauge", "Bytes of its receive heap in use."],
    ];
    show(text, "application", families, &rows);
}

fn services(text: &mut Exposition, shards: &[Observation]) {
    let mut rows = Rows::new();
    for row in shards.iter().flat_map(|shard| &shard.snapshot.services) {
        add(&mut rows, &row.name, [row.sessions.len() as u64]);
    }
    let help = "Sessions of this host that serve the service.";
    show(text, "service", [["trunkline_service_servers", "gauge", help]], &rows);
    let mut rows = Rows::new();
    for (service, calls) in shards.iter().flat_map(|shard| &shard.snapshot.waiting) {
        add(&mut rows, service, [*calls as u64]);
    }
    let help = "Calls that wait for a free worker of the service.";
    show(text, "service", [["trunkline_service_calls_waiting", "gauge", help]], &rows);
}

fn endpoints(text: &mut Exposition, shards: &[Observation]) {
    let mut rows = Rows::new();
    for row in shards.iter().flat_map(|shard| &shard.snapshot.remotes) {
        let states = [RemoteState::Idle, RemoteState::Connecting, RemoteState::Ready, RemoteState::Failing];
        add(&mut rows, &row.endpoint, states.map(|state| u64::from(row.state == state)));
    }
    let name = "trunkline_endpoint_shards";
    text.family(name, "gauge", "Shards to which the endpoint is in this state.");
    for (endpoint, counts) in &rows {
        for (state, count) in ["idle", "connecting", "ready", "failing"].iter().zip(counts) {
            text.sample(&[("endpoint", endpoint), ("state", state)], *count);
        }
    }
}

/// Endpoints as balancing sees them. An endpoint may have calls of several services.
fn balanced(text: &mut Exposition, shards: &[Observation]) {
    let mut rows = Rows::new();
    for row in shards.iter().flat_map(|shard| &shard.snapshot.balanced) {
        add(&mut rows, &row.endpoint, [u64::from(row.outstanding), u64::from(row.ejected)]);
    }
    let families = [
        ["trunkline_endpoint_calls", "gauge", "Calls under way at the endpoint."],
        [
            "trunkline_endpoint_ejected",
            "gauge",
            "Shards and services for which the endpoint is left out, because its calls fail.",
        ],
    ];
    show(text, "endpoint", families, &rows);
}

fn attempts(text: &mut Exposition, shards: &[Observation]) {
    let mut figures = live::attempts(shards);
    let budget_left = figures.remove("budget_left").unwrap_or(0);
    let name = "trunkline_attempts_total";
    text.family(
        name,
        "counter",
        "Calls that may take several attempts, attempts behind the first, and why there were no more.",
    );
    for (what, count) in figures {
        text.sample(&[("what", what)], count);
    }
    let name = "trunkline_attempt_budget";
    text.family(name, "gauge", "Attempts behind the first that could be paid for now.");
    text.sample(&[], budget_left);
}

fn limits(text: &mut Exposition, shards: &[Observation]) {
    let name = "trunkline_limit_met_total";
    text.family(name, "counter", "Calls that ended because a limit was reached.");
    for (limit, calls) in live::limits(shards) {
        text.sample(&[("limit", limit)], calls);
    }
}

fn datagrams(text: &mut Exposition, shards: &[Observation]) {
    let name = "trunkline_r2p2_datagrams_refused_total";
    text.family(name, "counter", "Datagrams of R2P2 without a good seal.");
    text.sample(&[], shards.iter().map(|shard| shard.snapshot.datagrams_refused).sum::<u64>());
}

fn memory(text: &mut Exposition, shards: &[Observation]) {
    let name = "trunkline_memory_bytes";
    text.family(name, "gauge", "Bytes the daemon holds, by what for.");
    for (owner, bytes) in live::memory(shards) {
        text.sample(&[("owner", &owner)], bytes);
    }
}

fn connections(text: &mut Exposition, shards: &[Observation]) {
    let mut rows: BTreeMap<[&'static str; 2], [u64; 3]> = BTreeMap::new();
    for row in shards.iter().flat_map(|shard| &shard.snapshot.peers) {
        let protocol = match row.protocol {
            Protocol::Native => "native",
            Protocol::Grpc => "grpc",
            Protocol::R2p2 => "r2p2",
        };
        let direction = if row.outgoing { "outgoing" } else { "incoming" };
        let [connections, streams, bytes] = rows.entry([protocol, direction]).or_default();
        *connections += 1;
        *streams += row.streams as u64;
        *bytes = bytes.saturating_add(row.queued_bytes);
    }
    let families = [
        ["trunkline_connections", "Connections to peers."],
        ["trunkline_connection_streams", "Streams open on them."],
        ["trunkline_connection_queued_bytes", "Bytes that wait for their sockets."],
    ];
    for (index, [name, help]) in families.into_iter().enumerate() {
        text.family(name, "gauge", help);
        for ([protocol, direction], figures) in &rows {
            text.sample(&[("protocol", protocol), ("direction", direction)], figures[index]);
        }
    }
}

fn policies(text: &mut Exposition, policies: &[PolicyRow]) {
    let mut rows = Rows::new();
    for row in policies {
        let of = &row.figures;
        let figures = [of.seen, of.refused, of.delayed, of.errors, of.mirrored, of.left_out, of.failed];
        add(&mut rows, &row.definition.name, figures);
    }
    let families = [
        ["trunkline_policy_seen_total", "counter", "Calls the policy was asked about."],
        ["trunkline_policy_refused_total", "counter", "Calls, or messages of calls, it refused."],
        ["trunkline_policy_delayed_total", "counter", "Calls it held for a time."],
        ["trunkline_policy_errors_total", "counter", "Calls for which an expression of it had no value."],
        ["trunkline_policy_mirrored_total", "counter", "Copies it sent elsewhere."],
        ["trunkline_policy_mirror_left_out_total", "counter", "Copies for which there was no room."],
        ["trunkline_policy_mirror_failed_total", "counter", "Copies that ended other than with OK."],
    ];
    show(text, "policy", families, &rows);
}
