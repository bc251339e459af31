//! Counters and histograms as Prometheus has them: which there are, and their text, in the exposition format 0.0.4 and
//! in OpenMetrics 1.0, which has exemplars.
//!
//! Where gRPC has a name for what is measured (gRFC A66), that name is used, as OpenTelemetry's exporter writes it, so
//! that existing dashboards work; unlike there, a duration carries no status, and calls by status are counted apart.
//! The nine components are ours.

use crate::component::Component;
use crate::exposition::{BoundCounts, Exposition, Figure, FigureFamily, FigureKind, FigurePoint};
use crate::histogram::Histogram;
use crate::record::Side;
use crate::series::Series;
use crate::snapshot::{Entry, Snapshot};
use crate::traced::Exemplar;
use std::borrow::Cow;
use std::fmt::Write;
use trunkline_call::Code;

/// Bounds of call durations in seconds: those gRFC A66 recommends.
const CALL_SECONDS: [f64; 41] = [
    0.0, 0.00001, 0.00005, 0.0001, 0.0003, 0.0006, 0.0008, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008,
    0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4,
    0.5, 0.65, 0.8, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0,
];
/// Bounds of components: there are nine per call, and half of them are a few microseconds.
const COMPONENT_SECONDS: [f64; 16] = [
    0.000001, 0.000002, 0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.005, 0.01,
    0.05, 0.1, 1.0, 10.0,
];
/// Bounds of message sizes in bytes: those gRFC A66 recommends.
const SIZE_BYTES: [f64; 14] = [
    0.0,
    1024.0,
    2048.0,
    4096.0,
    16384.0,
    65536.0,
    262144.0,
    1048576.0,
    4194304.0,
    16777216.0,
    67108864.0,
    268435456.0,
    1073741824.0,
    4294967296.0,
];

/// What both wires and the server are called where no stamps came back.
const REMOTE: &str = "remote";

const NS: f64 = 1e-9;
const BYTES: f64 = 1.0;

/// A histogram family: where its values come from and how they are shown.
struct Family {
    name: &'static str,
    help: &'static str,
    side: Side,
    bounds: &'static [f64],
    /// What one recorded unit is in the unit of the metric.
    unit: f64,
    of: fn(&Series) -> Cow<'_, Histogram>,
}

const FAMILIES: [Family; 6] = [
    Family {
        name: "grpc_client_call_duration_seconds",
        help: "Completion time of calls made here, stub to stub.",
        side: Side::Made,
        bounds: &CALL_SECONDS,
        unit: NS,
        of: all_durations,
    },
    Family {
        name: "grpc_server_call_duration_seconds",
        help: "Time calls from other hosts spent here, wire to wire.",
        side: Side::Served,
        bounds: &CALL_SECONDS,
        unit: NS,
        of: all_durations,
    },
    Family {
        name: "grpc_client_attempt_sent_total_compressed_message_size_bytes",
        help: "Request bytes per call made here.",
        side: Side::Made,
        bounds: &SIZE_BYTES,
        unit: BYTES,
        of: |series| Cow::Borrowed(&series.request_bytes),
    },
    Family {
        name: "grpc_client_attempt_rcvd_total_compressed_message_size_bytes",
        help: "Response bytes per call made here.",
        side: Side::Made,
        bounds: &SIZE_BYTES,
        unit: BYTES,
        of: |series| Cow::Borrowed(&series.response_bytes),
    },
    Family {
        name: "grpc_server_call_rcvd_total_compressed_message_size_bytes",
        help: "Request bytes per call served here.",
        side: Side::Served,
        bounds: &SIZE_BYTES,
        unit: BYTES,
        of: |series| Cow::Borrowed(&series.request_bytes),
    },
    Family {
        name: "grpc_server_call_sent_total_compressed_message_size_bytes",
        help: "Response bytes per call served here.",
        side: Side::Served,
        bounds: &SIZE_BYTES,
        unit: BYTES,
        of: |series| Cow::Borrowed(&series.response_bytes),
    },
];

/// Completion times of all calls: gRFC A66 does not tell streams apart.
fn all_durations(series: &Series) -> Cow<'_, Histogram> {
    if series.streams == 0 {
        return Cow::Borrowed(&series.total);
    }
    let mut all = series.total.clone();
    all.merge(&series.stream_total);
    Cow::Owned(all)
}

/// Adds every series of the snapshot.
pub fn add(to: &mut Exposition, snapshot: &Snapshot) {
    calls(to, snapshot);
    for family in &FAMILIES {
        let entries: Vec<&Entry> = snapshot.series.iter().filter(|entry| entry.side == family.side).collect();
        if entries.is_empty() {
            continue;
        }
        to.histograms(family.name, family.help);
        for entry in entries {
            let method = entry.method.trim_start_matches('/');
            let labels = [("grpc_method", method), ("grpc_target", &entry.peer)];
            let buckets = BoundCounts::of(&(family.of)(&entry.series), family.bounds, family.unit);
            let timed = family.unit == NS;
            to.sample(&labels, if timed { buckets.with(&entry.exemplars) } else { buckets });
        }
    }
    handlers(to, snapshot);
    components(to, snapshot);
}

/// Everything, in the exposition format 0.0.4.
pub fn text(figures: &Exposition) -> String {
    let mut out = String::new();
    for family in figures.families() {
        head(&mut out, family.name, family);
        for point in &family.points {
            write_point(&mut out, family.name, point, |_, _| ());
        }
    }
    out
}

/// Everything, in OpenMetrics 1.0, with exemplars; `epoch_ns` is what the host's monotonic clock lacks to the time
/// since 1970.
pub fn openmetrics(figures: &Exposition, epoch_ns: u64) -> String {
    let mut out = String::new();
    for family in figures.families() {
        // A counter is called without what its samples end in.
        let is_counter = family.kind == FigureKind::Counter;
        head(&mut out, if is_counter { family.name.trim_end_matches("_total") } else { family.name }, family);
        for point in &family.points {
            write_point(&mut out, family.name, point, |out, exemplar| show(out, exemplar, epoch_ns));
        }
    }
    line(&mut out, format_args!("# EOF"));
    out
}

fn calls(to: &mut Exposition, snapshot: &Snapshot) {
    to.family("trunkline_calls_total", "counter", "Calls by status.");
    for entry in &snapshot.series {
        for (code, calls) in Code::ALL.iter().zip(entry.series.codes).filter(|(_, calls)| *calls > 0) {
            to.sample(&keyed(entry, Some(("code", code.name()))), calls);
        }
    }
    let help = "Calls whose peer sent no stamps, so that only five of nine components are known.";
    to.family("trunkline_calls_five_of_nine_total", "counter", help);
    for entry in &snapshot.series {
        to.sample(&keyed(entry, None), entry.series.client_only);
    }
}

/// What handlers told of their processor time. Not all do (docs/telemetry.md), so calls are counted beside it.
fn handlers(to: &mut Exposition, snapshot: &Snapshot) {
    let help = "Processor time of handlers that told it, by how their calls ended.";
    to.family("trunkline_handler_cpu_seconds_total", "counter", help);
    for entry in &snapshot.series {
        let failed_ns = u128::from(entry.series.failed_cpu_ns);
        // Taken apart as whole numbers: a difference of two seconds may become less while both grow, and whoever reads
        // a counter takes that for a daemon that was started anew.
        for (ended, ns) in [("ok", entry.series.cpu.sum().saturating_sub(failed_ns)), ("failed", failed_ns)] {
            to.sample(&keyed(entry, Some(("ended", ended))), ns as f64 * NS);
        }
    }
    let help = "Calls whose handlers told their processor time.";
    to.family("trunkline_handler_cpu_calls_total", "counter", help);
    for entry in &snapshot.series {
        to.sample(&keyed(entry, None), entry.series.cpu.count());
    }
}

fn components(to: &mut Exposition, snapshot: &Snapshot) {
    let help =
        "The nine components of completion time, and what of it is not divided: remote (docs/telemetry.md).";
    to.histograms("trunkline_component_seconds", help);
    for entry in &snapshot.series {
        let nine = Component::ALL.map(|part| (part.label(), &entry.series.components[part as usize]));
        for (label, values) in nine.into_iter().chain([(REMOTE, &entry.series.remote)]) {
            if values.count() > 0 {
                let labels = keyed(entry, Some(("component", label)));
                to.sample(&labels, BoundCounts::of(values, &COMPONENT_SECONDS, NS));
            }
        }
    }
}

fn keyed<'a>(entry: &'a Entry, more: Option<(&'static str, &'a str)>) -> Vec<(&'static str, &'a str)> {
    let method = entry.method.trim_start_matches('/');
    let key = [("side", entry.side.name()), ("method", method), ("peer", &*entry.peer)];
    key.into_iter().chain(more).collect()
}

fn write_point(out: &mut String, name: &str, point: &FigurePoint, exemplar: impl Fn(&mut String, &Exemplar)) {
    let labels = quoted(&point.labels);
    let buckets = match &point.value {
        Figure::Count(count) => return line(out, format_args!("{name}{} {count}", braced(&labels))),
        Figure::Number(number) => return line(out, format_args!("{name}{} {number}", braced(&labels))),
        Figure::BoundCounts(buckets) => buckets,
    };
    let comma = if labels.is_empty() { "" } else { "," };
    for (bound, below, of_bound) in buckets.rows() {
        let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
        // Writing to a String cannot fail.
        let _ = write!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
        of_bound.into_iter().for_each(|one| exemplar(out, one));
        out.push('\n');
    }
    line(out, format_args!("{name}_sum{} {}", braced(&labels), buckets.sum));
    line(out, format_args!("{name}_count{} {}", braced(&labels), buckets.count));
}

/// An exemplar behind its bucket.
fn show(out: &mut String, exemplar: &Exemplar, epoch_ns: u64) {
    let Exemplar { at_ns, total_ns, trace, span } = exemplar;
    let (value, at) = (*total_ns as f64 * NS, at_ns.saturating_add(epoch_ns) / 1_000_000);
    let (seconds, ms) = (at / 1000, at % 1000);
    let _ = write!(out, " # {{trace_id=\"{trace:032x}\",span_id=\"{span:016x}\"}} {value} {seconds}.{ms:03}");
}

fn braced(labels: &str) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{labels}}}") }
}

fn quoted(labels: &[(&'static str, String)]) -> String {
    let quoted = labels.iter().map(|(name, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    });
    quoted.collect::<Vec<_>>().join(",")
}

fn head(out: &mut String, name: &str, family: &FigureFamily) {
    let kind = match family.kind {
        FigureKind::Counter => "counter",
        FigureKind::Gauge => "gauge",
        FigureKind::Histogram => "histogram",
    };
    line(out, format_args!("# HELP {name} {}\n# TYPE {name} {kind}", family.help));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}
