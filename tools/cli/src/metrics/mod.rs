//! The metrics listener: what the daemon has counted, for Prometheus.
//!
//! Pages are made on threads of the listener's own. Shards are asked as `trunkline top` asks them, once a second at
//! most whatever readers do. `daemon.rs` tells of the daemon, `process.rs` of its process; completion times, components
//! and sizes are `trunkline_telemetry::prometheus`'s.

mod daemon;
mod process;

use crate::admin::Host;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use trunkline_pages::{Page, PageServer};

/// Reading twice within this time reads the same text.
const FRESH: Duration = Duration::from_secs(1);
/// At `/`, until there is more to show.
const INDEX: &str = "<!doctype html><title>Trunkline</title><p><a href=\"/metrics\">metrics</a>";

/// Serves `/metrics` at each address, for as long as what it returns lives.
///
/// # Errors
/// The address, and what the kernel says of it.
pub fn serve<H: Host + Clone>(
    host: &H,
    addresses: impl Iterator<Item = SocketAddr>,
) -> Result<Vec<PageServer>, (SocketAddr, io::Error)> {
    let latest = Arc::new(Latest::default());
    let bind = |address: SocketAddr| {
        let (host, latest) = (host.clone(), Arc::clone(&latest));
        let make = move |path: &str| match path {
            "/metrics" => Some(Page::metrics(latest.text(|| daemon::text(&host)))),
            "/" => Some(Page::html(INDEX)),
            _ => None,
        };
        PageServer::bind(address, "metrics", make).map_err(|error| (address, error))
    };
    addresses.map(bind).collect()
}

/// The text read last, and when it was made. Who comes while it is made waits for it.
#[derive(Default)]
struct Latest(Mutex<Option<(Instant, String)>>);

impl Latest {
    fn text(&self, make: impl FnOnce() -> String) -> String {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some((made, text)) if made.elapsed() < FRESH => text.clone(),
            _ => latest.insert((Instant::now(), make())).1.clone(),
        }
    }
}
