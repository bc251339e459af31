//! `xds.service.orca.v3.OpenRcaService`: how loaded a server is, told again and again beside its calls (gRFC A51).
//!
//! The daemon tells about its host ([`HostLoad`]); an application that knows its load better brings a
//! [`LoadService`] with a [`Recorder`] of its own.

use crate::host::Host;
use crate::pause::Pause;
use crate::proto::xds::data::orca::v3::OrcaLoadReport;
use crate::proto::xds::service::orca::v3 as pb;
use crate::slots::Slots;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trunkline::wkt as protobuf;
use trunkline::{Incoming, LoadReport, Sender, Status};
use trunkline_telemetry::{Ask, Detail, Side};

/// Shortest time between two reports of one stream.
pub const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Longest, so that a stream whose reader is gone is noticed.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// For a client that does not say, as in the field.
const INTERVAL_USUAL: Duration = Duration::from_secs(30);

/// Knows how loaded a server is.
pub trait ReportLoad: Send + Sync + 'static {
    /// The load now. Asked once per stream and interval.
    fn report(&self) -> LoadReport;
}

/// Serves `OpenRcaService` from what a [`ReportLoad`] knows.
///
/// ```no_run
/// use trunkline_services::proto::xds::service::orca::v3::open_rca_service_server::OpenRcaServiceServer;
/// use trunkline_services::{LoadService, Recorder};
///
/// let load = Recorder::default();
/// let server = trunkline::Server::builder()
///     .add_service(OpenRcaServiceServer::new(LoadService::new(load.clone())));
/// load.change(|report| report.application_utilization = 0.4);
/// ```
#[derive(Debug)]
pub struct LoadService<L> {
    load: L,
    streams: Slots,
}

/// A report an application keeps up to date.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    report: Arc<Mutex<LoadReport>>,
}

/// The load of the daemon's host.
pub(crate) struct HostLoad<H> {
    host: H,
    last: Mutex<Option<(Sample, LoadReport)>>,
}

/// Counters of one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at: Option<Instant>,
    /// Time all processors had, and time they had nothing to do, in the kernel's ticks.
    ticks: u64,
    idle_ticks: u64,
    /// Calls from other hosts that were served here, and those that failed.
    served: u64,
    failed: u64,
}

impl<L: ReportLoad> LoadService<L> {
    /// Serves what `load` knows.
    pub fn new(load: L) -> Self {
        Self::with_slots(load, Slots::default())
    }

    pub(crate) fn with_slots(load: L, streams: Slots) -> Self {
        Self { load, streams }
    }
}

impl<L: ReportLoad> pb::open_rca_service_server::OpenRcaService for LoadService<L> {
    async fn stream_core_metrics(
        &self,
        request: Incoming<pb::OrcaLoadReportRequest>,
        mut out: Sender<OrcaLoadReport>,
    ) -> Result<(), Status> {
        let slot = self.streams.take(request.caller())?;
        let interval = interval(request.into_inner().report_interval);
        slot.run(async {
            loop {
                out.send(message(self.load.report())).await?;
                Pause::of(interval).await;
            }
        })
        .await
    }
}

impl Recorder {
    /// Changes what is reported from now on.
    pub fn change(&self, change: impl FnOnce(&mut LoadReport)) {
        change(&mut locked(&self.report));
    }
}

impl ReportLoad for Recorder {
    fn report(&self) -> LoadReport {
        locked(&self.report).clone()
    }
}

impl<H: Host> HostLoad<H> {
    pub fn new(host: H) -> Self {
        Self { host, last: Mutex::new(None) }
    }

    fn sample(&self) -> (Sample, u64) {
        let ask = Ask { detail: Detail::Totals, ..Ask::default() };
        let (ticks, idle_ticks) = ticks(&std::fs::read_to_string("/proc/stat").unwrap_or_default());
        let mut sample = Sample { at: Some(Instant::now()), ticks, idle_ticks, ..Sample::default() };
        let mut in_flight = 0;
        for shard in self.host.observe(&ask) {
            in_flight += shard.snapshot.calls as u64;
            let served = shard.telemetry.sum(Side::Served);
            sample.served += served.calls();
            sample.failed += served.calls() - served.codes[0];
        }
        (sample, in_flight)
    }
}

impl<H: Host> ReportLoad for HostLoad<H> {
    /// The load since the last look, which is at least [`INTERVAL_MIN`] ago; all streams share the looks.
    fn report(&self) -> LoadReport {
        let mut last = locked(&self.last);
        if let Some((sample, report)) = &*last
            && sample.at.is_some_and(|at| at.elapsed() < INTERVAL_MIN)
        {
            return report.clone();
        }
        let (sample, in_flight) = self.sample();
        let before = last.as_ref().map(|(sample, _)| *sample).unwrap_or_default();
        let mut report = sample.since(before);
        report.mem_utilization = memory(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default());
        report.named_metrics.insert("trunkline.calls_in_flight".into(), in_flight as f64);
        *last = Some((sample, report.clone()));
        report
    }
}

impl Sample {
    fn since(self, before: Self) -> LoadReport {
        let ratio = |part: u64, whole: f64| if whole > 0.0 { part as f64 / whole } else { 0.0 };
        let ticks = self.ticks.saturating_sub(before.ticks);
        let busy = ticks.saturating_sub(self.idle_ticks.saturating_sub(before.idle_ticks));
        // The first look has nothing to compare rates with.
        let elapsed = before.at.zip(self.at).map_or(0.0, |(before, now)| (now - before).as_secs_f64());
        LoadReport {
            cpu_utilization: ratio(busy, ticks as f64),
            rps_fractional: ratio(self.served.saturating_sub(before.served), elapsed),
            eps: ratio(self.failed.saturating_sub(before.failed), elapsed),
            ..LoadReport::default()
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a client asks for, within bounds.
fn interval(asked: Option<protobuf::Duration>) -> Duration {
    let asked = asked.unwrap_or_default();
    let seconds = u64::try_from(asked.seconds).unwrap_or(0);
    let nanos = u32::try_from(asked.nanos).unwrap_or(0).min(999_999_999);
    match Duration::new(seconds, nanos) {
        Duration::ZERO => INTERVAL_USUAL,
        asked => asked.clamp(INTERVAL_MIN, INTERVAL_MAX),
    }
}

fn message(report: LoadReport) -> OrcaLoadReport {
    OrcaLoadReport {
        cpu_utilization: report.cpu_utilization,
        mem_utilization: report.mem_utilization,
        rps_fractional: report.rps_fractional,
        eps: report.eps,
        application_utilization: report.application_utilization,
        request_cost: report.request_cost.into_iter().collect(),
        utilization: report.utilization.into_iter().collect(),
        named_metrics: report.named_metrics.into_iter().collect(),
        ..OrcaLoadReport::default()
    }
}

/// All time and idle time in the first line of proc(5) stat: `cpu user nice system idle iowait irq softirq steal …`.
/// Guest time is part of user time.
fn ticks(stat: &str) -> (u64, u64) {
    let numbers = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
    let numbers: Vec<u64> = numbers.map_while(|number| number.parse().ok()).collect();
    let idle = numbers.iter().skip(3).take(2).sum();
    (numbers.iter().sum(), idle)
}

/// Share of memory in use, from proc(5) meminfo: what is available is not in use.
fn memory(meminfo: &str) -> f64 {
    let kib = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse::<f64>().ok()
    };
    match (kib("MemTotal"), kib("MemAvailable")) {
        (Some(total), Some(available)) if total > 0.0 => 1.0 - available / total,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    //! Shows how the kernel's numbers are read, what becomes of two looks, and what intervals a client gets.
    use super::*;

    #[test]
    fn the_kernels_numbers() {
        let stat = "cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 2 3 4\n";
        assert_eq!(ticks(stat), (1000, 850));
        assert_eq!(ticks(""), (0, 0));
        let meminfo = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    250 kB\n";
        assert_eq!(memory(meminfo), 0.75);
        assert_eq!(memory("MemTotal: 5 kB"), 0.0);
    }

    #[test]
    fn two_looks_make_a_report() {
        let now = Instant::now();
        let before = Sample { at: Some(now), ticks: 1000, idle_ticks: 500, served: 10, failed: 1 };
        let after = Sample { ticks: 1100, idle_ticks: 525, served: 30, failed: 6, ..before };
        let after = Sample { at: Some(now + Duration::from_secs(10)), ..after };
        let report = after.since(before);
        assert_eq!((report.cpu_utilization, report.rps_fractional, report.eps), (0.75, 2.0, 0.5));
        assert_eq!(after.since(Sample::default()).rps_fractional, 0.0, "nothing to compare with");
    }

    #[test]
    fn intervals_are_bounded() {
        let asked = |seconds, nanos| interval(Some(protobuf::Duration { seconds, nanos }));
        assert_eq!(interval(None), INTERVAL_USUAL);
        assert_eq!(asked(0, 1), INTERVAL_MIN);
        assert_eq!(asked(5, 500_000_000), Duration::from_millis(5500));
        assert_eq!(asked(i64::MAX, 0), INTERVAL_MAX);
        assert_eq!(asked(-5, -5), INTERVAL_USUAL);
    }
}
