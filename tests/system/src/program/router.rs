//! The probe as a router of R2P2.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trunkline_r2p2::RouterConfig;
use trunkline_router::{Forwarding, Report, RouterProcess, Settings};

/// Routes between `listen` and whoever of this host or of the tests' namespaces joins at `control`.
pub(super) fn router(listen: &str, control: &str) -> Result<(), String> {
    let address = |text: &str| text.parse().map_err(|error| format!("{text}: {error}"));
    let join_from = vec![(Ipv4Addr::LOCALHOST, 8), (Ipv4Addr::new(10, 77, 0, 0), 16)];
    let seed = std::process::id().into();
    // On a busy machine a worker may get no processor for seconds, and what is tested is not who is refused then.
    let config = RouterConfig { join_from, seed, delay_ns_max: 30_000_000_000, ..RouterConfig::default() };
    let (listen, control) = (address(listen)?, address(control)?);
    let settings = Settings {
        listen,
        control,
        forwarding: Forwarding::Auto,
        flows_max: Settings::FLOWS_MAX,
        keys: None,
        router: config,
    };
    let process = RouterProcess::start(settings).map_err(|error| error.to_string())?;
    let [listen, control] = process.addresses().map_err(|error| error.to_string())?;
    let shared = process.shared();
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    let turning = std::thread::spawn(move || process.run(&stopping));
    let conversed = super::converse(&format!("ready {listen} {control}"), |order| match order {
        "report" => words(&shared.report.lock()),
        _ => format!("no such order: {order}"),
    });
    stop.store(true, Ordering::Relaxed);
    turning.join().map_err(|_| "the router panicked".to_owned())?;
    conversed
}

fn words(report: &Report) -> String {
    let outstanding: u32 = report.workers.iter().map(|row| row.outstanding).sum();
    let words = [
        ("workers", report.workers.len() as u64),
        ("outstanding", outstanding.into()),
        ("queued", report.queued as u64),
        ("forwarded", report.counters.forwarded),
        ("duplicates", report.counters.duplicates),
        ("lapsed", report.counters.lapsed),
    ];
    words.map(|(name, number)| format!("{name}={number}")).join(" ")
}
