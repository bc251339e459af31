//! What operators see of a router: a table, and text for Prometheus.

use parking_lot::Mutex;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use trunkline_pages::{HostNames, Page, PageServer};
use trunkline_r2p2::{Reason, Router, RouterCounters, SealCounters, WorkerRow};

/// What the loop shows to other threads.
#[derive(Debug, Default)]
pub struct Shared {
    /// As of a tenth of a second ago at most.
    pub report: Mutex<Report>,
}

/// A router at one instant.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What it has seen.
    pub counters: RouterCounters,
    /// Its workers, by address.
    pub workers: Vec<WorkerRow>,
    /// Requests that wait.
    pub queued: usize,
    /// The n of JBSQ(n) in force.
    pub bound: Option<u32>,
    /// Datagrams that were not believed.
    pub refused: SealCounters,
    /// CPU time of the loop.
    pub cpu_ns: u64,
}

impl Report {
    pub(crate) fn of(router: &Router, refused: SealCounters, cpu_ns: u64) -> Self {
        Self {
            counters: *router.counters(),
            workers: router.workers(),
            queued: router.queued(),
            bound: router.bound(),
            refused,
            cpu_ns,
        }
    }

    /// For people.
    pub fn table(&self) -> String {
        let counters = &self.counters;
        let mean_us = counters.waited_ns as f64 / counters.waited.max(1) as f64 / 1e3;
        let bound = self.bound.map_or("-".into(), |bound| bound.to_string());
        let mut out = format!(
            "forwarded {}  queued {}  n {bound}  waited {} (mean {mean_us:.0} µs, longest {} µs)  lapsed {}\n",
            counters.forwarded,
            self.queued,
            counters.waited,
            counters.waited_ns_max / 1000,
            counters.lapsed,
        );
        for (reason, count) in Reason::ALL.iter().zip(counters.dropped).filter(|(_, count)| *count > 0) {
            let _ = writeln!(out, "dropped {count} ({})", reason.name());
        }
        for (reason, count) in self.refused.each().iter().filter(|(_, count)| *count > 0) {
            let _ = writeln!(out, "refused {count} ({reason})");
        }
        let _ = writeln!(out, "{:<22} {:>5} {:>11} {:>12}", "worker", "slots", "outstanding", "served");
        for row in &self.workers {
            let rests = if row.rests { "  rests" } else { "" };
            let address = row.address.to_string();
            let _ = writeln!(
                out,
                "{address:<22} {:>5} {:>11} {:>12}{rests}",
                row.slots, row.outstanding, row.served
            );
        }
        out
    }

    /// For Prometheus (text format 0.0.4).
    pub fn prometheus(&self) -> String {
        let mut out = String::new();
        let c = &self.counters;
        let counters = [
            ("requests", c.requests),
            ("forwarded", c.forwarded),
            ("on_behalf", c.on_behalf),
            ("unsent", c.unsent),
            ("moved", c.moved),
            ("waited", c.waited),
            ("duplicates", c.duplicates),
            ("malformed", c.malformed),
            ("stray", c.stray),
            ("feedback", c.feedback),
            ("feedback_unknown", c.feedback_unknown),
            ("feedback_foreign", c.feedback_foreign),
            ("leases_lapsed", c.lapsed),
            ("places_recounted", c.recounted),
            ("workers_joined", c.joined),
            ("workers_left", c.left),
            ("workers_lost", c.lost),
        ];
        for (name, value) in counters {
            let _ = writeln!(
                out,
                "# TYPE trunkline_router_{name}_total counter\ntrunkline_router_{name}_total {value}"
            );
        }
        for (name, ns) in [("queue_delay", c.waited_ns), ("cpu", self.cpu_ns)] {
            let name = format!("trunkline_router_{name}_seconds_total");
            let _ = writeln!(out, "# TYPE {name} counter\n{name} {}", ns as f64 / 1e9);
        }
        out.push_str("# TYPE trunkline_router_dropped_total counter\n");
        for (reason, count) in Reason::ALL.iter().zip(c.dropped) {
            let _ = writeln!(out, "trunkline_router_dropped_total{{reason=\"{}\"}} {count}", reason.name());
        }
        out.push_str("# TYPE trunkline_router_refused_total counter\n");
        for (reason, count) in self.refused.each() {
            let _ = writeln!(out, "trunkline_router_refused_total{{reason=\"{reason}\"}} {count}");
        }
        let gauges = [("queued", self.queued as u64), ("bound", self.bound.unwrap_or(0).into())];
        for (name, value) in gauges {
            let _ = writeln!(out, "# TYPE trunkline_router_{name} gauge\ntrunkline_router_{name} {value}");
        }
        out.push_str("# TYPE trunkline_router_worker_outstanding gauge\n");
        for row in &self.workers {
            let (address, count) = (row.address, row.outstanding);
            let _ = writeln!(out, "trunkline_router_worker_outstanding{{worker=\"{address}\"}} {count}");
        }
        out
    }
}

/// Serves the metrics at `/metrics` of an address, under these names beside its own, until what it returns is dropped.
///
/// # Errors
/// What the kernel says: the address is taken, or not this host's.
pub fn serve_metrics(address: SocketAddr, hosts: HostNames, shared: Arc<Shared>) -> io::Result<PageServer> {
    PageServer::bind(address, "router-metrics", hosts, move |request| {
        let known = matches!(&*request.path, "/metrics" | "/");
        known.then(|| Page::metrics(shared.report.lock().prometheus()))
    })
}
