//! What an OpenTelemetry collector is sent: the figures of `/metrics`, and calls of traces.

use crate::admin::Host;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use trunkline_daemon::{Collector, Otlp};
use trunkline_net::ClientFiles;
use trunkline_otlp::{ExportFigures, ExportSettings, ExportSource, Exporter};
use trunkline_telemetry::{Ask, Detail, Exposition, Snapshot};

/// What became of what was sent, for whoever reads the daemon's figures.
static FIGURES: OnceLock<Arc<ExportFigures>> = OnceLock::new();

/// Exports, if the configuration names a collector, for as long as what it returns lives.
///
/// # Errors
/// There is no thread to be had, or files of TLS cannot be used.
pub fn start<H: Host + Clone>(
    host: &H,
    (node, goes_on): (&str, bool),
    (otlp, tls): (&Otlp, Option<ClientFiles>),
    figures: impl Fn() -> Exposition + Send + 'static,
    clocks: fn() -> (u64, u64),
) -> io::Result<Option<Exporter>> {
    let Some(Collector { host: name, port, path, .. }) = otlp.collector() else { return Ok(None) };
    let settings = ExportSettings {
        host: name,
        port,
        path,
        tls,
        interval: Duration::from_secs(otlp.interval_s),
        resource: resource(node, otlp),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        goes_on,
    };
    let of_calls = host.clone();
    let traced = move |max: usize| {
        let ask = Ask { method: "(none)".into(), detail: Detail::Totals, traced_max: max, ..Ask::default() };
        let mut all = Snapshot::default();
        of_calls.observe(&ask).into_iter().for_each(|shard| all.merge(shard.telemetry));
        (all.traced, all.traced_lost)
    };
    let source =
        ExportSource { figures: Box::new(figures), traced: Box::new(traced), clocks: Box::new(clocks) };
    let exporter = Exporter::start(settings, source)?;
    let _ = FIGURES.set(exporter.figures());
    Ok(Some(exporter))
}

/// Adds what became of what was sent, if anything is.
pub fn add(to: &mut Exposition) {
    let Some(figures) = FIGURES.get() else { return };
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let help = "Requests to the OpenTelemetry collector, by what they carried and what became of them.";
    to.family("trunkline_otlp_requests_total", "counter", help);
    for (what, counts) in [("metrics", &figures.metrics), ("spans", &figures.spans)] {
        for (outcome, counter) in ExportFigures::OUTCOMES.iter().zip(counts) {
            to.sample(&[("what", what), ("outcome", outcome)], count(counter));
        }
    }
    let help = "Calls whose spans the OpenTelemetry collector does not get.";
    to.family("trunkline_otlp_calls_lost_total", "counter", help);
    for (why, counter) in ExportFigures::LOST.iter().zip(&figures.lost) {
        to.sample(&[("why", why)], count(counter));
    }
}

/// Who sends, by OpenTelemetry's conventions; what the configuration says counts more.
fn resource(node: &str, otlp: &Otlp) -> Vec<(String, String)> {
    let own = [
        ("service.name", "trunkline"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", node),
        ("host.name", node),
    ];
    let said: Vec<(&str, &str)> = otlp.attributes().collect();
    let own = own.into_iter().filter(|(key, _)| !said.iter().any(|(said, _)| said == key));
    own.chain(said.iter().copied()).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
