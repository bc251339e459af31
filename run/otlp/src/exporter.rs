//! The thread that exports, and what became of what it had to send.

use crate::body::ExportOrigin;
use crate::connection::CollectorAddress;
use crate::metrics::{self, FigureTimes};
use crate::post::{Posted, post};
use crate::spans;
use crate::tls::CollectorTls;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use trunkline_net::ClientFiles;
use trunkline_telemetry::{Exposition, SpanRoom, TRACED_CALLS_MAX, TracedCall};

/// Calls that wait for the collector. At half a kilobyte each, 4 MiB.
pub const SPANS_MAX: usize = 8192;
/// Calls in one request, of at most two spans of a kilobyte each.
const BATCH_CALLS: usize = 256;
/// How often spans are asked for.
const TICK: Duration = Duration::from_secs(1);
/// Longest time a collector is left alone after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// So long the end of the daemon waits for the last spans to be sent.
const LAST_SPANS_MAX: Duration = Duration::from_secs(1);

/// What the exporter asks for, on its own thread.
pub struct ExportSource {
    /// All figures, as they are now.
    pub figures: Box<dyn Fn() -> Exposition + Send>,
    /// At most so many calls of traces from each shard, taken out of their queues; and how many there was no room for,
    /// since the start.
    pub traced: Box<dyn Fn(usize) -> (Vec<TracedCall>, u64) + Send>,
    /// Nanoseconds since 1970, and on the host's monotonic clock, now.
    pub clocks: Box<dyn Fn() -> (u64, u64) + Send>,
}

/// Where to, how often, and in whose name.
#[derive(Clone, Debug)]
pub struct ExportSettings {
    /// The collector's host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What stands in front of `/v1/metrics` there.
    pub path: String,
    /// Whom it must prove to be, and what it is shown; `None` speaks in the clear.
    pub tls: Option<ClientFiles>,
    /// Time between two sets of figures.
    pub interval: Duration,
    /// Attributes of the resource.
    pub resource: Vec<(String, String)>,
    /// Version of the program.
    pub version: String,
    /// Figures go on from another process's: how long they have been counted is not known.
    pub goes_on: bool,
}

/// What became of requests and spans, since the start.
#[derive(Debug, Default)]
pub struct ExportFigures {
    /// Requests with figures that were taken, refused, and not answered.
    pub metrics: [AtomicU64; 3],
    /// Requests with spans, alike.
    pub spans: [AtomicU64; 3],
    /// Calls whose spans were lost: no room in a shard, no room here, refused.
    pub lost: [AtomicU64; 3],
}

impl ExportFigures {
    /// What the numbers of [`ExportFigures::metrics`] and [`ExportFigures::spans`] are of.
    pub const OUTCOMES: [&'static str; 3] = ["taken", "refused", "failed"];
    /// What those of [`ExportFigures::lost`] are of.
    pub const LOST: [&'static str; 3] = ["shard queue full", "export queue full", "refused"];
}

/// Exports until it is dropped.
pub struct Exporter {
    figures: Arc<ExportFigures>,
    /// Who sends what there is; whoever asked hears of it as what was sent is dropped. Nobody left: the end.
    orders: Option<Sender<Sender<()>>>,
    ended: Receiver<()>,
}

impl Exporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread to be had, or files of TLS cannot be used.
    pub fn start(settings: ExportSettings, source: ExportSource) -> io::Result<Self> {
        let figures = Arc::new(ExportFigures::default());
        let (orders, ordered) = channel();
        let (ends, ended) = channel();
        let mut export = Export::new(settings, source, Arc::clone(&figures))?;
        std::thread::Builder::new().name("otlp".into()).spawn(move || {
            export.run(&ordered);
            drop(ends);
        })?;
        Ok(Self { figures, orders: Some(orders), ended })
    }

    /// Sends what there is now, as before the end: shards go on in another process, which has nothing of it. Waits a
    /// second at most.
    pub fn flush(&self) {
        let (done, is_done) = channel();
        if self.orders.as_ref().is_some_and(|orders| orders.send(done).is_ok()) {
            let _ = is_done.recv_timeout(LAST_SPANS_MAX);
        }
    }

    /// What became of what was sent.
    pub fn figures(&self) -> Arc<ExportFigures> {
        Arc::clone(&self.figures)
    }
}

/// The thread sends what there is, and has so much time for it.
impl Drop for Exporter {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.ended.recv_timeout(LAST_SPANS_MAX);
    }
}

/// The thread's own.
struct Export {
    source: ExportSource,
    origin: ExportOrigin,
    to: CollectorAddress,
    interval: Duration,
    figures: Arc<ExportFigures>,
    queue: SpanRoom<TracedCall>,
    /// Since when figures are counted. `None` until the first are sent, if that is not known: those say so by being of
    /// no duration, and whoever reads takes later ones from there (OpenTelemetry, metrics data model, "Cumulative
    /// streams: handling unknown start time").
    since: Option<CountedSince>,
    pause: Pause,
    is_reached: bool,
}

/// Since when figures are counted, by both clocks.
#[derive(Clone, Copy, Debug)]
struct CountedSince {
    since_1970: u64,
    monotonic: u64,
}

impl CountedSince {
    fn of((since_1970, monotonic): (u64, u64)) -> Self {
        Self { since_1970, monotonic }
    }

    /// The same for whoever reads, who takes another start for other figures; but if the wall clock was set back behind
    /// it since: nothing that ends before it began is taken.
    fn start_ns(&mut self, (now_ns, monotonic): (u64, u64)) -> u64 {
        if self.since_1970 > now_ns {
            self.since_1970 = now_ns.saturating_sub(monotonic.saturating_sub(self.monotonic));
        }
        self.since_1970
    }
}

/// How long a collector is left alone.
#[derive(Debug, Default)]
struct Pause {
    until: Option<Instant>,
    time: Duration,
}

impl Export {
    fn new(settings: ExportSettings, source: ExportSource, figures: Arc<ExportFigures>) -> io::Result<Self> {
        let since = (!settings.goes_on).then(|| CountedSince::of((source.clocks)()));
        let ExportSettings { host, port, path, tls, .. } = settings;
        let tls = tls.map(CollectorTls::load).transpose().map_err(io::Error::other)?;
        Ok(Self {
            origin: ExportOrigin::new(&settings.resource, &settings.version),
            to: CollectorAddress { host, port, path, tls },
            interval: settings.interval,
            source,
            figures,
            queue: SpanRoom::new(SPANS_MAX),
            since,
            pause: Pause::default(),
            is_reached: true,
        })
    }

    fn run(&mut self, ordered: &Receiver<Sender<()>>) {
        let mut due = Instant::now() + self.interval.min(TICK);
        loop {
            let order = ordered.recv_timeout(TICK);
            let is_over = matches!(order, Err(RecvTimeoutError::Disconnected));
            let is_last = order.is_ok() || is_over;
            self.take_spans();
            if let Some(tls) = &mut self.to.tls {
                tls.renew();
            }
            if is_last {
                self.pause = Pause::default();
            }
            self.send_spans();
            if is_last || Instant::now() >= due {
                due = Instant::now() + self.interval;
                self.send_figures();
            }
            if is_over {
                return;
            }
        }
    }

    /// Takes what shards have, whether the collector does or not: they have less room.
    fn take_spans(&mut self) {
        let (calls, lost) = (self.source.traced)(TRACED_CALLS_MAX);
        self.figures.lost[0].store(lost, Ordering::Relaxed);
        self.queue.note_time();
        calls.into_iter().for_each(|call| self.queue.add(call));
        self.figures.lost[1].store(self.queue.lost(), Ordering::Relaxed);
    }

    fn send_spans(&mut self) {
        while !self.queue.is_empty() && !self.pause.lasts() {
            let count = self.queue.len().min(BATCH_CALLS);
            let calls: Vec<TracedCall> = self.queue.iter().take(count).cloned().collect();
            let (since_1970, monotonic) = (self.source.clocks)();
            let Self { origin, to, .. } = self;
            let mut outcomes = Vec::new();
            let through = spans::send(origin, &calls, since_1970.saturating_sub(monotonic), &mut |body| {
                let outcome = post(to, "traces", body);
                let goes_on = matches!(outcome, Ok(Posted::Taken { .. } | Posted::Refused(_)));
                outcomes.push(outcome);
                goes_on
            });
            let is_refused = outcomes.iter().any(|outcome| matches!(outcome, Ok(Posted::Refused(_))));
            let mut is_through = true;
            for outcome in outcomes {
                is_through &= self.note(outcome, true);
            }
            if is_refused {
                self.figures.lost[2].fetch_add(through as u64, Ordering::Relaxed);
            }
            // What a request took that is through is not sent again with what another did not.
            self.queue.take(through);
            if !is_through {
                return;
            }
        }
    }

    fn send_figures(&mut self) {
        if self.pause.lasts() {
            return;
        }
        let figures = (self.source.figures)();
        let (now_ns, monotonic) = (self.source.clocks)();
        let now = (now_ns, monotonic);
        let mut since = self.since.unwrap_or(CountedSince::of(now));
        let started_ns = since.start_ns(now);
        let times = FigureTimes { started_ns, now_ns, epoch_ns: now_ns.saturating_sub(monotonic) };
        let Self { origin, to, .. } = self;
        let mut outcomes = Vec::new();
        metrics::send(origin, &figures, times, &mut |body| {
            let outcome = post(to, "metrics", body);
            let goes_on = matches!(outcome, Ok(Posted::Taken { .. } | Posted::Refused(_)));
            outcomes.push(outcome);
            goes_on
        });
        // While a collector has not all that it will ever take of the first figures of a daemon that goes on, they
        // begin when they are taken. What it refuses it does not want later, either.
        let is_taken = |outcome: &io::Result<Posted>| matches!(outcome, Ok(Posted::Taken { .. }));
        let is_through = |outcome| is_taken(outcome) || matches!(outcome, Ok(Posted::Refused(_)));
        let has_begun =
            self.since.is_some() || outcomes.iter().any(is_taken) && outcomes.iter().all(is_through);
        self.since = has_begun.then_some(since);
        for outcome in outcomes {
            self.note(outcome, false);
        }
    }

    /// Counts what became of a request. Whether it is through: taken, or never to be.
    fn note(&mut self, outcome: io::Result<Posted>, of_spans: bool) -> bool {
        let (place, lost, why) = match &outcome {
            Ok(Posted::Taken { but }) => (0, *but, None),
            Ok(Posted::Refused(status)) => (1, 0, Some(format!("it answers {status}"))),
            Ok(Posted::Busy(status)) => (2, 0, Some(format!("it answers {status}"))),
            Err(error) => (2, 0, Some(error.to_string())),
        };
        let counts = if of_spans { &self.figures.spans } else { &self.figures.metrics };
        counts[place].fetch_add(1, Ordering::Relaxed);
        if of_spans {
            self.figures.lost[2].fetch_add(lost, Ordering::Relaxed);
        }
        self.tell(why.as_deref());
        if place == 2 {
            self.pause.begin();
        } else {
            self.pause = Pause::default();
        }
        place != 2
    }

    /// Says once that the collector takes nothing, and once that it does again.
    fn tell(&mut self, why: Option<&str>) {
        match why {
            Some(why) if std::mem::replace(&mut self.is_reached, false) => {
                let CollectorAddress { host, port, .. } = &self.to;
                tracing::warn!(host, port, why, "the OpenTelemetry collector takes nothing");
            }
            None if !std::mem::replace(&mut self.is_reached, true) => {
                tracing::info!("the OpenTelemetry collector takes figures and spans again");
            }
            _ => {}
        }
    }
}

impl Pause {
    fn lasts(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    fn begin(&mut self) {
        self.time = (self.time * 2).clamp(TICK, PAUSE_MAX);
        self.until = Some(Instant::now() + self.time);
    }
}

#[cfg(test)]
mod tests {
    //! Shows since when figures say they are, whatever becomes of the wall clock.
    use super::*;

    #[test]
    fn no_figure_ends_before_it_began() {
        let mut since = CountedSince::of((1_000, 100));
        assert_eq!(since.start_ns((2_000, 1_100)), 1_000);
        // Set forward, and a little back.
        assert_eq!([(9_000, 2_000), (3_000, 2_500)].map(|now| since.start_ns(now)), [1_000; 2]);
        // Set back behind the beginning: as long ago as it is, from now on.
        assert_eq!([(950, 600), (1_050, 700)].map(|now| since.start_ns(now)), [450; 2]);
    }
}
