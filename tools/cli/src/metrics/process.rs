//! The daemon's process, under the names Prometheus' client libraries give such figures.

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use trunkline_telemetry::Exposition;

/// Adds what the kernel says of this process (proc(5)). What it does not say is left out.
pub fn add(text: &mut Exposition) {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    one(text, "process_cpu_seconds_total", "counter", "Processor time of the daemon.", Some(cpu));
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = |field: usize| statm.split(' ').nth(field)?.trim().parse::<u64>().ok();
    let bytes = |field: usize| Some(pages(field)? as f64 * rustix::param::page_size() as f64);
    one(text, "process_virtual_memory_bytes", "gauge", "Address space of the daemon.", bytes(0));
    one(text, "process_resident_memory_bytes", "gauge", "Memory of the daemon.", bytes(1));
    let open = std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
    one(text, "process_open_fds", "gauge", "Descriptors the daemon has open.", open);
    let most = getrlimit(Resource::Nofile).current.map(|most| most as f64);
    one(text, "process_max_fds", "gauge", "Descriptors it may have open.", most);
    one(text, "process_start_time_seconds", "gauge", "When it was started, since 1970.", started());
}

fn one(text: &mut Exposition, name: &'static str, kind: &str, help: &'static str, value: Option<f64>) {
    if let Some(value) = value {
        text.family(name, kind, help);
        text.sample(&[], value);
    }
}

/// In seconds since 1970: the kernel tells it in ticks since it was booted (proc_pid_stat(5), field 22).
fn started() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let all = std::fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = all.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + ticks / rustix::param::clock_ticks_per_second() as f64)
}
