//! The verb itself.

use super::data::{Data, unknown_place};
use super::driver::{DriveError, Driver, LINE_MAX, Next, Order, Schedule};
use super::plan::{Arrivals, Extent, Loop};
use super::record::{Ended, Record};
use super::report::{Form, Report};
use crate::args::BenchArgs;
use crate::bounded;
use crate::call::{self, AttachError, CallError, RequestsError, Sources, Way};
use crate::go;
use crate::table::count;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// How long calls are made if nobody says.
const TIME_USUAL: Duration = Duration::from_secs(10);
/// Calls per second if nobody says: what a test server on anybody's laptop bears.
const RATE_USUAL: f64 = 100.0;

/// Why there is no report, or not of the whole run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Types, session.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The command line.
    #[error("{0}")]
    Plan(String),
    /// The data.
    #[error(transparent)]
    Data(#[from] RequestsError),
    /// The run ended before its time.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// A file that cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// The kernel tells of no signals.
    #[error("signals cannot be waited for: {0}")]
    Signals(#[from] io::Error),
}

impl From<AttachError> for BenchError {
    fn from(error: AttachError) -> Self {
        Self::Call(error.into())
    }
}

/// Makes the calls and shows what became of them. Whether every call ended well.
///
/// # Errors
/// [`BenchError`]; there is a report then only if the run had begun.
pub fn bench(args: BenchArgs, socket: Option<PathBuf>) -> Result<bool, BenchError> {
    let plan = plan(&args)?;
    let extent = extent(&args, &plan);
    // Before any call is made: what cannot be written is known now.
    let html = args.html.map(ReportFile::open).transpose()?;
    let out = args.out.map(ReportFile::open).transpose()?;
    let mut words = args.words;
    let target = go::take_target(&mut words).map_err(BenchError::Plan)?;
    let [method_name] = &words[..] else {
        return Err(BenchError::Plan(format!("{} is no address: write HOST:PORT METHOD", words.join(" "))));
    };
    let (sources, way) =
        (Sources::from(args.types), Way::new(args.way, target, socket).map_err(CallError::from)?);
    let mut own_engine = None;
    let mut attachment = call::attach(&way, &mut own_engine)?;
    let pool = call::of_method(&sources, &way, method_name).map_err(CallError::from)?;
    let method = call::method(&pool, method_name).map_err(CallError::from)?;
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let streams = method.is_client_streaming();
    let text = text(&args.data)?;
    if let Some(name) = unknown_place(&text) {
        return Err(BenchError::Plan(format!(
            "--data: nothing is known to fill into {{{{{name}}}}}; write {{{{number}}}}, {{{{random}}}}, \
             {{{{uuid}}}} or {{{{time_ms}}}}"
        )));
    }
    let data = Data::new(method.input(), &text, streams, args.allow_unknown_fields)?;
    let order = Order {
        route: attachment.bind(&path, &way.target, &pool.encode_to_vec())?,
        streams,
        metadata: way.metadata.clone(),
        timeout: way.timeout,
        in_flight_max: args.in_flight_max,
    };
    let mut run = Run::new(&plan, extent, args.warm_up, stop_signals()?);
    let began = SystemTime::now();
    let driven = Driver::new(&mut attachment, order, &data).run(&mut run);
    let target = if way.target.is_empty() { "whoever serves it".into() } else { way.target.clone() };
    let (rates, plan) = (plan.rates(), described(&plan, extent));
    let (warm_up, record) = (args.warm_up, run.record);
    let report = Report { method: path, target, plan, rates, began, warm_up, record };
    // What was measured until then is true whatever ended the run.
    if driven.is_ok() || report.record.calls() > 0 || report.record.unsent > 0 {
        show(&report, args.output, out, html)?;
    }
    driven?;
    Ok(report.record.is_good())
}

fn plan(args: &BenchArgs) -> Result<Loop, BenchError> {
    if args.closed && args.concurrency > LINE_MAX {
        let asked = args.concurrency;
        return Err(BenchError::Plan(format!("--concurrency {asked}: write {LINE_MAX} at most")));
    }
    if args.closed {
        return Ok(Loop::Closed { concurrency: args.concurrency });
    }
    let rate = args.rate.unwrap_or(RATE_USUAL);
    Loop::steps(rate, args.rate_end, args.rate_step, args.step_time).map_err(BenchError::Plan)
}

/// Steps end by themselves; anything else after a count, a time, or the usual time. The warm-up comes before.
fn extent(args: &BenchArgs, plan: &Loop) -> Extent {
    let ends = args.count.is_some() || plan.time().is_some();
    let time = args.duration.or((!ends).then_some(TIME_USUAL));
    Extent { count: args.count, time: time.map(|time| time + args.warm_up) }
}

fn described(plan: &Loop, extent: Extent) -> String {
    let plan = match plan {
        Loop::Closed { concurrency } => {
            format!("closed loop, {} outstanding", count(*concurrency as u64, "call"))
        }
        Loop::Open(steps) => match &steps[..] {
            [one] => format!("open loop, {}/s", one.rate),
            [first, .., last] => {
                let steps = count(steps.len() as u64, "step");
                format!("open loop, from {}/s to {}/s in {steps}", first.rate, last.rate)
            }
            [] => "open loop".into(),
        },
    };
    let calls = extent.count.map_or_else(String::new, |calls| format!(", {}", count(calls, "call")));
    let time = extent.time.map_or_else(String::new, |time| format!(", {time:?}"));
    plan + &calls + &time
}

/// JSON, `@FILE`, or `@` and `-` for standard input.
fn text(data: &str) -> Result<String, BenchError> {
    let path = match data {
        "@" | "@-" | "-" => None,
        data => match data.strip_prefix('@') {
            Some(path) => Some(PathBuf::from(path)),
            None => return Ok(data.to_owned()),
        },
    };
    let text = match &path {
        Some(path) => bounded::read_text(path),
        None => bounded::text_from(io::stdin()),
    };
    let path = path.unwrap_or_else(|| "standard input".into());
    text.map_err(|error| BenchError::File { path, error })
}

/// Shows the report, as text if a file that was to have it cannot be written: a run is not made twice for that.
fn show(
    report: &Report,
    form: Form,
    out: Option<ReportFile>,
    html: Option<ReportFile>,
) -> Result<(), BenchError> {
    let written = html.map_or(Ok(()), |html| html.write(&report.render(Form::Html)));
    let (written, shown) = match out {
        Some(out) => (written.and(out.write(&report.render(form))), None),
        None => (written, Some(form)),
    };
    if let Some(form) = shown.or(written.is_err().then_some(Form::Text)) {
        print!("{}", report.render(form));
    }
    written
}

/// A file for a report. One that is there keeps what it has until there is another report; one that is new is there no
/// more if there is none.
struct ReportFile {
    path: PathBuf,
    file: File,
    /// It was made here, and has no report yet.
    is_empty: bool,
}

impl ReportFile {
    fn open(path: PathBuf) -> Result<Self, BenchError> {
        let new = File::options().write(true).create_new(true).open(&path);
        let is_empty = new.is_ok();
        let opened = new.or_else(|_| File::options().write(true).create(true).truncate(false).open(&path));
        match opened {
            Ok(file) => Ok(Self { path, file, is_empty }),
            Err(error) => Err(BenchError::File { path, error }),
        }
    }

    fn write(mut self, report: &str) -> Result<(), BenchError> {
        self.is_empty = false;
        let is_file = self.file.metadata().is_ok_and(|found| found.is_file());
        let emptied = if is_file { self.file.set_len(0) } else { Ok(()) };
        let written = emptied.and_then(|()| self.file.write_all(report.as_bytes()));
        written.map_err(|error| BenchError::File { path: self.path.clone(), error })
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if self.is_empty {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The first signal ends the run and shows what there is; a second ends the program.
fn stop_signals() -> Result<Arc<AtomicBool>, BenchError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// A run as the driver sees it.
struct Run {
    plan: Loop,
    pace: Pace,
    extent: Extent,
    warm_up: Duration,
    stop: Arc<AtomicBool>,
    /// Calls that were due, the warm-up's not among them.
    counted: u64,
    record: Record,
    /// When the call that comes next is due.
    due: Duration,
}

enum Pace {
    Open(std::iter::Peekable<Arrivals>),
    Closed(usize),
}

impl Run {
    fn new(plan: &Loop, extent: Extent, warm_up: Duration, stop: Arc<AtomicBool>) -> Self {
        let pace = match plan {
            Loop::Open(steps) => Pace::Open(Arrivals::new(steps.clone()).peekable()),
            Loop::Closed { concurrency } => Pace::Closed(*concurrency),
        };
        let plan = plan.clone();
        Self { plan, pace, extent, warm_up, stop, counted: 0, record: Record::new(), due: Duration::ZERO }
    }

    fn is_over(&self, due: Duration) -> bool {
        self.extent.count.is_some_and(|count| self.counted >= count)
            || self.extent.time.is_some_and(|time| due >= time)
            || self.is_stopped()
    }
}

impl Schedule for Run {
    fn next(&mut self, elapsed: Duration, in_flight: usize) -> Next {
        let due = match &mut self.pace {
            Pace::Open(arrivals) => match arrivals.peek() {
                Some(due) => *due,
                None => return Next::Never,
            },
            Pace::Closed(_) => elapsed,
        };
        self.due = due;
        match self.pace {
            _ if self.is_over(due) => Next::Never,
            Pace::Closed(concurrency) if in_flight >= concurrency => Next::WhenOneEnds,
            _ => Next::At(due),
        }
    }

    fn taken(&mut self) {
        self.counted += u64::from(self.due >= self.warm_up);
        if let Pace::Open(arrivals) = &mut self.pace {
            arrivals.next();
        }
    }

    fn unsent(&mut self, due: Duration) {
        self.record.unsent += u64::from(due >= self.warm_up);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn ended(&mut self, mut call: Ended) {
        let step = self.plan.step_at(call.due);
        let Some(due) = call.due.checked_sub(self.warm_up) else { return };
        call.due = due;
        call.sent = call.sent.saturating_sub(self.warm_up);
        call.over = call.over.saturating_sub(self.warm_up);
        self.record.add(call, step);
    }
}

#[cfg(test)]
mod tests {
    //! Shows when runs of either kind have calls due, and what a warm-up leaves out.
    use super::*;
    use trunkline_call::Code;

    const MS: Duration = Duration::from_millis(1);

    fn run(plan: &Loop, count: Option<u64>, time: Option<Duration>, warm_up: Duration) -> Run {
        Run::new(plan, Extent { count, time }, warm_up, Arc::default())
    }

    #[test]
    fn an_open_loop_does_not_wait() {
        let plan = Loop::steps(1000.0, None, None, MS).unwrap();
        let mut run = run(&plan, Some(3), None, Duration::ZERO);
        let mut due = Vec::new();
        while let Next::At(at) = run.next(Duration::ZERO, 1000) {
            due.push(at);
            run.taken();
        }
        assert_eq!(due, [Duration::ZERO, MS, 2 * MS]);
        assert_eq!(run.next(Duration::ZERO, 0), Next::Never);
    }

    #[test]
    fn a_closed_loop_waits_for_ends() {
        let mut run = run(&Loop::Closed { concurrency: 2 }, None, Some(10 * MS), Duration::ZERO);
        assert_eq!(run.next(MS, 0), Next::At(MS));
        run.taken();
        assert_eq!(run.next(2 * MS, 2), Next::WhenOneEnds);
        assert_eq!(run.next(3 * MS, 1), Next::At(3 * MS));
        assert_eq!(run.next(10 * MS, 0), Next::Never);
        run.extent.time = None;
        run.stop.store(true, Ordering::Relaxed);
        assert_eq!(run.next(10 * MS, 0), Next::Never, "told to stop");
    }

    #[test]
    fn a_warm_up_does_not_count() {
        let plan = Loop::steps(1000.0, None, None, MS).unwrap();
        let mut run = run(&plan, Some(2), None, 5 * MS);
        let mut calls = 0;
        while let Next::At(due) = run.next(Duration::ZERO, 0) {
            run.taken();
            calls += 1;
            let (code, message) = (Code::Ok, String::new());
            run.ended(Ended { due, sent: due, over: due + MS, code, message, responses: 1, bytes: [0; 2] });
        }
        assert!(run.record.is_good());
        run.unsent(MS);
        assert!(run.record.is_good(), "a call of the warm-up");
        run.unsent(5 * MS);
        assert!(!run.record.is_good());
        assert_eq!((calls, run.record.calls(), run.record.last), (7, 2, 2 * MS));
    }
}
