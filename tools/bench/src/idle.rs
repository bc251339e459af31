//! What it costs that applications are attached and do nothing.

use crate::children::{Child, Failure, Talker, text};
use crate::ours;
use crate::processes::{idle_cpu_ns, pss_bytes};
use crate::work::Work;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// Applications attached.
const APPLICATIONS: usize = 100;
/// The default of `sessions.heap_bytes`.
const HEAP: &str = "64 MiB";
/// For the last attachment's work to be over.
const SETTLE: Duration = Duration::from_secs(3);
const START_PATIENCE: Duration = Duration::from_secs(30);

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Idle {
    pub applications: usize,
    pub seconds: f64,
    /// Percent of one core.
    pub daemon_cpu_percent: f64,
    /// Percent of one core, all applications together.
    pub applications_cpu_percent: f64,
    /// Growth of the daemon's proportional memory by an application.
    pub daemon_bytes_each: f64,
    /// Proportional memory of an application process: everything in it, its share of the session included.
    pub application_bytes_each: f64,
}

/// Attaches idle applications to a daemon and watches for `seconds`.
pub fn measure(seconds: u64) -> Result<Idle, Failure> {
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("idle.sock");
    let (daemon, _) = ours::start_daemon(&socket, HEAP)?;
    let _server = Child::role(&["serve", text(&socket), Work::Bytes.name()])?;
    // The first only makes sure that what the daemon needs once is there before it is counted.
    let _first = attach(&socket)?;
    let before_bytes = pss_bytes(&[daemon.pid()])?;
    let mut applications = Vec::with_capacity(APPLICATIONS);
    while applications.len() < APPLICATIONS {
        applications.push(attach(&socket)?);
    }
    std::thread::sleep(SETTLE);
    let pids: Vec<u32> = applications.iter().map(Talker::pid).collect();
    let grown_bytes = pss_bytes(&[daemon.pid()])?.saturating_sub(before_bytes);
    let own_bytes = pss_bytes(&pids)?;
    let (daemon_ns, applications_ns, elapsed) = watch(&daemon, &pids, seconds)?;
    let count = APPLICATIONS as f64;
    Ok(Idle {
        applications: APPLICATIONS,
        seconds: elapsed.as_secs_f64(),
        daemon_cpu_percent: daemon_ns as f64 / elapsed.as_nanos() as f64 * 100.0,
        applications_cpu_percent: applications_ns as f64 / elapsed.as_nanos() as f64 * 100.0,
        daemon_bytes_each: grown_bytes as f64 / count,
        application_bytes_each: own_bytes as f64 / count,
    })
}

fn attach(socket: &Path) -> Result<Talker, Failure> {
    let mut application = Talker::start(&mut Child::role_command(&["idle", text(socket)])?)?;
    application.hear(START_PATIENCE)?;
    Ok(application)
}

fn watch(daemon: &Child, pids: &[u32], seconds: u64) -> Result<(u64, u64, Duration), Failure> {
    let began = Instant::now();
    let before_ns = (idle_cpu_ns(&[daemon.pid()])?, idle_cpu_ns(pids)?);
    std::thread::sleep(Duration::from_secs(seconds));
    let after_ns = (idle_cpu_ns(&[daemon.pid()])?, idle_cpu_ns(pids)?);
    Ok((after_ns.0 - before_ns.0, after_ns.1 - before_ns.1, began.elapsed()))
}
