//! What it costs that applications are attached and do nothing.

use super::data::sheet;
use crate::harness::children::{Failure, Talker, role, role_command, text};
use crate::harness::rounds::Plan;
use crate::harness::work::{Work, word};
use crate::peers::foreign::Foreign;
use crate::peers::hosts;
use crate::report::sheet::Results;
use std::path::Path;
use std::time::{Duration, Instant};
use trunkline_measure::{idle_cpu_ns, pss_bytes};

/// Applications attached.
const APPLICATIONS: usize = 100;
/// The default of `sessions.heap_bytes`.
const HEAP: &str = "64 MiB";
/// For the last attachment's work to be over.
const SETTLE: Duration = Duration::from_secs(3);
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Attaches idle applications to a daemon and watches.
pub fn measure(plan: &Plan, _: &Foreign) -> Result<Results, Failure> {
    let dir = tempfile::tempdir()?;
    let host = hosts::start_daemon(dir.path(), "idle", HEAP)?;
    let _server = role(&["serve", text(&host.socket), &word(Work::Bytes)])?;
    // The first only makes sure that what the daemon needs once is there before it is counted.
    let _first = attach(&host.socket)?;
    let daemon = [host.process.pid()];
    let before_bytes = pss_bytes(&daemon)?;
    let applications = (0..APPLICATIONS).map(|_| attach(&host.socket)).collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(SETTLE);
    let pids: Vec<u32> = applications.iter().map(Talker::pid).collect();
    let each_kib = |bytes: u64| bytes as f64 / APPLICATIONS as f64 / 1024.0;
    let grown_kib = each_kib(pss_bytes(&daemon)?.saturating_sub(before_bytes));
    let own_kib = each_kib(pss_bytes(&pids)?);
    let began = Instant::now();
    let before_ns = [idle_cpu_ns(&daemon)?, idle_cpu_ns(&pids)?];
    std::thread::sleep(Duration::from_secs(plan.idle_seconds));
    let after_ns = [idle_cpu_ns(&daemon)?, idle_cpu_ns(&pids)?];
    let elapsed_ns = began.elapsed().as_nanos() as f64;
    let [daemon, own] = [0, 1].map(|of: usize| (after_ns[of] - before_ns[of]) as f64 / elapsed_ns * 100.0);
    let values = [daemon, own, grown_kib, own_kib, (grown_kib + own_kib) / 1024.0];
    let sheet = sheet("idle", &[("count", &APPLICATIONS), ("seconds", &plan.idle_seconds)])?;
    let sheet = sheet.with_row(&APPLICATIONS.to_string(), &values);
    Ok(Results { sheets: vec![sheet], ..Results::default() })
}

fn attach(socket: &Path) -> Result<Talker, Failure> {
    let mut application = Talker::start(&mut role_command(&["idle", text(socket)])?)?;
    application.hear(START_PATIENCE)?;
    Ok(application)
}
