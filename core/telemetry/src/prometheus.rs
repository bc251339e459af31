//! Counters and histograms in Prometheus' text format (exposition format 0.0.4).
//!
//! Where gRPC has a name for what is measured (gRFC A66), that name is used, as OpenTelemetry's exporter writes it, so
//! that existing dashboards work; unlike there, a duration carries no status, and calls by status are counted apart.
//! The nine components are ours.

use crate::component::Component;
use crate::histogram::{Histogram, upper};
use crate::record::Side;
use crate::series::Series;
use crate::snapshot::{Entry, Snapshot};
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
    of: fn(&Series) -> &Histogram,
}

const FAMILIES: [Family; 6] = [
    Family {
        name: "grpc_client_call_duration_seconds",
        help: "Completion time of calls made here, stub to stub.",
        side: Side::Made,
        bounds: &CALL_SECONDS,
        unit: NS,
        of: |series| &series.total,
    },
    Family {
        name: "grpc_server_call_duration_seconds",
        help: "Time calls from other hosts spent here, wire to wire.",
        side: Side::Served,
        bounds: &CALL_SECONDS,
        unit: NS,
        of: |series| &series.total,
    },
    Family {
        name: "grpc_client_attempt_sent_total_compressed_message_size_bytes",
        help: "Request bytes per call made here.",
        side: Side::Made,
        bounds: &SIZE_BYTES,
        unit: BYTES,
        of: |series| &series.request_bytes,
    },
    Family {
        name: "grpc_client_attempt_rcvd_total_compressed_message_size_bytes",
        help: "Response bytes per call made here.",
        side: Side::Made,
        bounds: &SIZE_BYTES,
        unit: BYTES,
        of: |series| &series.response_bytes,
    },
    Family {
        name: "grpc_server_call_rcvd_total_compressed_message_size_bytes",
        help: "Request bytes per call served here.",
        side: Side::Served,
        bounds: &SIZE_BYTES,
        unit: BYTES,
        of: |series| &series.request_bytes,
    },
    Family {
        name: "grpc_server_call_sent_total_compressed_message_size_bytes",
        help: "Response bytes per call served here.",
        side: Side::Served,
        bounds: &SIZE_BYTES,
        unit: BYTES,
        of: |series| &series.response_bytes,
    },
];

/// Text in the exposition format, family by family.
#[derive(Clone, Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// Begins a family: its samples come next. `kind` is `counter` or `gauge`.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        head(&mut self.0, name, kind, help);
    }

    /// Adds a sample. Values of labels may be any text.
    pub fn sample(&mut self, name: &str, labels: &[(&'static str, &str)], value: impl std::fmt::Display) {
        if labels.is_empty() {
            return line(&mut self.0, format_args!("{name} {value}"));
        }
        let labels: Vec<Label<'_>> = labels.iter().map(|(name, value)| Label(name, value)).collect();
        line(&mut self.0, format_args!("{name}{{{}}} {value}", self::labels(&labels)));
    }

    /// Adds families that are text already.
    pub fn append(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Every series of the snapshot. Counts at a bound are those of whole buckets below it, so up to 6 % of a bound may be
/// counted one bound higher.
pub fn text(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    calls(&mut out, snapshot);
    for family in &FAMILIES {
        let entries: Vec<&Entry> = snapshot.series.iter().filter(|entry| entry.side == family.side).collect();
        if entries.is_empty() {
            continue;
        }
        head(&mut out, family.name, "histogram", family.help);
        for entry in entries {
            let target = Label("grpc_target", &entry.peer);
            let labels = labels(&[Label("grpc_method", entry.method.trim_start_matches('/')), target]);
            histogram(&mut out, family.name, &labels, (family.of)(&entry.series), family.bounds, family.unit);
        }
    }
    handlers(&mut out, snapshot);
    components(&mut out, snapshot);
    out
}

/// What handlers told of their processor time. Not all do (docs/telemetry.md), so calls are counted beside it.
fn handlers(out: &mut String, snapshot: &Snapshot) {
    let name = "trunkline_handler_cpu_seconds_total";
    head(out, name, "counter", "Processor time of handlers that told it, by how their calls ended.");
    for entry in &snapshot.series {
        let (whole, failed) = (entry.series.cpu.sum() as f64 * NS, entry.series.failed_cpu_ns as f64 * NS);
        for (ended, seconds) in [("ok", whole - failed), ("failed", failed)] {
            line(out, format_args!("{name}{{{}}} {seconds}", keyed(entry, &[Label("ended", ended)])));
        }
    }
    let name = "trunkline_handler_cpu_calls_total";
    head(out, name, "counter", "Calls whose handlers told their processor time.");
    for entry in &snapshot.series {
        line(out, format_args!("{name}{{{}}} {}", keyed(entry, &[]), entry.series.cpu.count()));
    }
}

fn calls(out: &mut String, snapshot: &Snapshot) {
    head(out, "trunkline_calls_total", "counter", "Calls by status.");
    for entry in &snapshot.series {
        for (code, calls) in Code::ALL.iter().zip(entry.series.codes).filter(|(_, calls)| *calls > 0) {
            let labels = keyed(entry, &[Label("code", code.name())]);
            line(out, format_args!("trunkline_calls_total{{{labels}}} {calls}"));
        }
    }
    let name = "trunkline_calls_five_of_nine_total";
    head(
        out,
        name,
        "counter",
        "Calls whose peer sent no stamps, so that only five of nine components are known.",
    );
    for entry in &snapshot.series {
        line(out, format_args!("{name}{{{}}} {}", keyed(entry, &[]), entry.series.client_only));
    }
}

fn components(out: &mut String, snapshot: &Snapshot) {
    let name = "trunkline_component_seconds";
    head(out, name, "histogram", "The nine components of completion time (docs/telemetry.md).");
    for entry in &snapshot.series {
        for component in Component::ALL {
            let values = &entry.series.components[component as usize];
            if values.count() > 0 {
                let labels = keyed(entry, &[Label("component", component.label())]);
                histogram(out, name, &labels, values, &COMPONENT_SECONDS, NS);
            }
        }
    }
}

fn histogram(out: &mut String, name: &str, labels: &str, values: &Histogram, bounds: &[f64], unit: f64) {
    let mut buckets = values.buckets().peekable();
    let mut below = 0;
    for bound in bounds {
        while let Some((_, count)) = buckets.next_if(|(id, _)| upper(*id) as f64 * unit <= *bound) {
            below = count.saturating_add(below);
        }
        line(out, format_args!("{name}_bucket{{{labels},le=\"{bound}\"}} {below}"));
    }
    let count = values.count();
    line(out, format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {count}"));
    line(out, format_args!("{name}_sum{{{labels}}} {}", values.sum() as f64 * unit));
    line(out, format_args!("{name}_count{{{labels}}} {count}"));
}

struct Label<'a>(&'static str, &'a str);

fn keyed(entry: &Entry, more: &[Label<'_>]) -> String {
    let key = [
        Label("side", entry.side.name()),
        Label("method", entry.method.trim_start_matches('/')),
        Label("peer", &entry.peer),
    ];
    let more = labels(more);
    let comma = if more.is_empty() { "" } else { "," };
    format!("{}{comma}{more}", labels(&key))
}

fn labels(labels: &[Label<'_>]) -> String {
    let quoted = labels.iter().map(|Label(name, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    });
    quoted.collect::<Vec<_>>().join(",")
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}
