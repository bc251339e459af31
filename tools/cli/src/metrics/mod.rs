//! The metrics listener: what the daemon has counted, for Prometheus.
//!
//! Pages are made on threads of the listener's own. Shards are asked as `trunkline top` asks them, once a second at
//! most whatever readers do. `daemon.rs` tells of the daemon, `process.rs` of its process; completion times, components
//! and sizes are `trunkline_telemetry::prometheus`'s. `live.rs` makes the page for people. `otlp.rs` sends the same to
//! an OpenTelemetry collector.

mod daemon;
mod live;
#[cfg(feature = "otlp")]
mod otlp;
mod process;

use crate::admin::Host;
use live::Pictures;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
#[cfg(feature = "otlp")]
use trunkline_otlp::Exporter;
use trunkline_pages::{HostNames, Page, PageServer, Request, ReservedAddress};

/// Reading twice within this time reads the same text.
const FRESH: Duration = Duration::from_secs(1);

/// Addresses to serve at, bound: who `succeeds` a daemon has them before that one leaves them.
pub type Reserved = Vec<(SocketAddr, ReservedAddress)>;

/// Binds every address.
///
/// # Errors
/// The address, and what the kernel says of it.
pub fn reserve(
    addresses: impl Iterator<Item = SocketAddr>,
    succeeds: bool,
) -> Result<Reserved, (SocketAddr, io::Error)> {
    let bind = |address| match ReservedAddress::bind(address, succeeds) {
        Ok(reserved) => Ok((address, reserved)),
        Err(error) => Err((address, error)),
    };
    addresses.map(bind).collect()
}

/// Serves `/metrics`, the live page and its JSON at each address, under `hosts` and this host's own names, for as long
/// as what it returns lives.
///
/// # Errors
/// The address, and what the kernel says of it.
pub fn serve<H: Host + Clone>(
    host: &H,
    addresses: Reserved,
    hosts: &[String],
) -> Result<Vec<PageServer>, (SocketAddr, io::Error)> {
    let metrics = Arc::new(Latest::default());
    let openmetrics = Arc::new(Latest::default());
    let live = Arc::new(Latest::<Pictures>::default());
    let hosts = HostNames::new(hosts, "metrics.hosts");
    let serve = |(address, reserved): (SocketAddr, ReservedAddress)| {
        let (host, metrics, live) = (host.clone(), Arc::clone(&metrics), Arc::clone(&live));
        let openmetrics = Arc::clone(&openmetrics);
        let make = move |request: &Request| match &*request.path {
            "/metrics" if takes_openmetrics(&request.accept) => {
                Some(Page::openmetrics(openmetrics.text(|()| daemon::openmetrics(&host))))
            }
            "/metrics" => Some(Page::metrics(metrics.text(|()| daemon::text(&host)))),
            "/live.json" => Some(Page::json(live.text(|pictures| pictures.next(&host)))),
            "/" => Some(live::page()),
            _ => None,
        };
        reserved.serve("metrics", hosts.clone(), make).map_err(|error| (address, error))
    };
    addresses.into_iter().map(serve).collect()
}

/// Sends the same to an OpenTelemetry collector, if the configuration names one, for as long as what it returns lives.
/// Who `succeeds` a daemon goes on counting where that one stopped.
///
/// # Errors
/// There is no thread to be had, or files of TLS cannot be used.
#[cfg(feature = "otlp")]
pub fn export<H: Host + Clone>(
    host: &H,
    (node, succeeds): (&str, bool),
    otlp: &trunkline_daemon::Otlp,
    tls: Option<trunkline_net::ClientFiles>,
) -> io::Result<Option<Exporter>> {
    let of_figures = host.clone();
    otlp::start(host, (node, succeeds), (otlp, tls), move || daemon::figures(&of_figures), daemon::clocks)
}

/// Whether a reader takes OpenMetrics, which has exemplars: Prometheus and its agents say so.
fn takes_openmetrics(accept: &str) -> bool {
    accept.split(',').any(|kind| kind.trim_start().starts_with("application/openmetrics-text"))
}

/// The text read last, and when it was made, with what its maker remembers. Who comes while it is made waits for it.
#[derive(Default)]
struct Latest<M = ()>(Mutex<(M, Option<(Instant, String)>)>);

impl<M> Latest<M> {
    fn text(&self, make: impl FnOnce(&mut M) -> String) -> String {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (memory, text) = &mut *latest;
        match text {
            Some((made, text)) if made.elapsed() < FRESH => text.clone(),
            _ => text.insert((Instant::now(), make(memory))).1.clone(),
        }
    }
}
