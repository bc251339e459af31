//! `trunkline replay`: sampled calls are sent again.
//!
//! Calls leave at the rate that was asked for, whether or not those before have come back, as long as there are
//! threads that are free; a call that leaves late counts from when it was due. They go through an engine of this
//! process's own, so that nothing depends on a daemon of this host. Messages are sent as they lie in the file.

use crate::answers::{ReplayAnswer, ReplayAnswers, compare};
use crate::args::ReplayArgs;
use crate::load::bytes_of;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use trunkline::opaque::{Answer as Part, Client};
use trunkline::{Channel, Code, Execution, Status, Wait};
use trunkline_schema::Schema;
use trunkline_telemetry::{CallSample, SampleEntry, SampleFaults, SampleFileReader};

/// A call that was given no time has this.
const USUAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Where so many calls could not be sent, and none could, nobody is there.
const UNREACHED_MAX: usize = 20;
/// Longest sleep before signals are looked at again.
const NAP: Duration = Duration::from_millis(100);
/// How often a terminal is told how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// What a file holds.
#[derive(Default)]
struct Recorded {
    calls: Vec<CallSample>,
    /// Only if answers are compared.
    schemas: BTreeMap<u64, Schema>,
    faults: SampleFaults,
}

/// Descriptor sets of a file that are used: as many as a daemon writes into one, and so many bytes of them, which take
/// fifty times as much as types.
const SCHEMAS_MAX: usize = 256;
const SCHEMA_BYTES_MAX: usize = 16 << 20;

impl Recorded {
    /// The types of a call: its own, or, where its daemon knew none, those by which another call of the file names
    /// them.
    fn schema_of(&self, sample: &CallSample) -> Option<&Schema> {
        let own = self.schemas.get(&sample.schema);
        own.or_else(|| self.schemas.values().find(|schema| schema.method_at(&sample.path).is_some()))
    }
}

/// Sends the calls of a file again and says what came of it.
///
/// # Errors
/// The file holds no calls, a call failed otherwise than when it was kept, or answers differ.
pub fn replay(args: &ReplayArgs) -> Result<(), String> {
    let recorded = read(args)?;
    let client = Client::new(
        Channel::builder().name("trunkline replay").embedded(true).target(&args.to).connect_lazy(),
    );
    let wanted = recorded.calls.len().saturating_mul(args.times as usize);
    let answers = Mutex::new(ReplayAnswers::default());
    let next = AtomicUsize::new(0);
    let course = Course { stop: crate::record::stop_signals()?, unreached: AtomicUsize::new(0) };
    let began = Instant::now();
    let send = |_ended: Sender<()>| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= wanted {
                return;
            }
            let due = began + Duration::from_secs_f64(index as f64 / args.rate);
            if !course.goes_on_until(due) {
                return;
            }
            let sample = &recorded.calls[index % recorded.calls.len()];
            let answer = call(&client, sample, due);
            course.note(&answer.status);
            let schema = recorded.schema_of(sample);
            let compared = args.compare.then(|| compare(sample, schema, &args.ignore, &answer));
            answers.lock().unwrap_or_else(PoisonError::into_inner).add(sample, &answer, compared);
        }
    };
    std::thread::scope(|scope| {
        let (ended, all_ended) = channel();
        for _ in 0..threads(args.in_flight, wanted) {
            let (send, ended) = (&send, ended.clone());
            scope.spawn(move || send(ended));
        }
        drop(ended);
        while all_ended.recv_timeout(PROGRESS_EVERY) == Err(RecvTimeoutError::Timeout) {
            let sent = answers.lock().unwrap_or_else(PoisonError::into_inner).count().0;
            if std::io::stderr().is_terminal() {
                eprint!("\r{sent} of {wanted} calls sent");
            }
        }
    });
    let answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    if std::io::stderr().is_terminal() && began.elapsed() >= PROGRESS_EVERY {
        eprintln!();
    }
    let sent = answers.count().0;
    let is_cut_short = sent < wanted as u64;
    if is_cut_short {
        println!("ended before its time: {sent} of {wanted} calls sent");
    }
    let told = tell(args, &recorded, &answers, began.elapsed());
    match answers.worse() {
        Some((_, first)) if course.is_in_vain() => Err(format!(
            "--to {}: none of the first {UNREACHED_MAX} calls could be sent: {first}; write the address of a daemon or \
             server that serves them",
            args.to
        )),
        _ if is_cut_short => {
            told.and_then(|()| Err(format!("{sent} of {wanted} calls were sent: a signal ended the rest")))
        }
        _ => told,
    }
}

/// So many calls are under way at once at most, and no thread has nothing to do.
fn threads(in_flight: u32, wanted: usize) -> usize {
    (in_flight as usize).min(wanted)
}

/// Whether calls are still to be sent.
struct Course {
    /// A signal has come.
    stop: Arc<AtomicBool>,
    /// Calls that could not be sent, as long as none could; `usize::MAX` from then on.
    unreached: AtomicUsize,
}

impl Course {
    fn note(&self, status: &Status) {
        let is_unsent = status.code() == Code::Unavailable && status.execution() == Execution::NotExecuted;
        let count = |count: usize| match is_unsent {
            true => count.checked_add(1),
            false => Some(usize::MAX),
        };
        // One that was sent settles it.
        let _ = self.unreached.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
    }

    fn is_in_vain(&self) -> bool {
        (UNREACHED_MAX..usize::MAX).contains(&self.unreached.load(Ordering::Relaxed))
    }

    /// Sleeps until then. `false`: no more calls are to be sent.
    fn goes_on_until(&self, due: Instant) -> bool {
        loop {
            if self.stop.load(Ordering::Relaxed) || self.is_in_vain() {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

fn tell(
    args: &ReplayArgs,
    recorded: &Recorded,
    answers: &ReplayAnswers,
    took: Duration,
) -> Result<(), String> {
    let (sent, differ) = answers.count();
    let rate = sent as f64 / took.as_secs_f64();
    println!("{sent} calls sent to {} in {:.1} s, {rate:.1} a second", args.to, took.as_secs_f64());
    print!("{}", answers.text());
    let emptied = recorded.calls.iter().filter(|call| call.emptied).count();
    if emptied > 0 {
        println!(
            "{emptied} of {} calls in the file have fields that were emptied when they were kept",
            recorded.calls.len()
        );
    }
    let failed = answers.worse().map(|(count, first)| {
        format!("{count} of {sent} calls failed, and not as when they were kept; the first: {first}")
    });
    if !args.compare {
        return failed.map_or(Ok(()), Err);
    }
    let (equal, status_alone) = answers.equal();
    println!(
        "{equal} answers are equal, {status_alone} have the same status and nothing to compare, {differ} differ"
    );
    let failed = failed.map_or_else(String::new, |failed| format!("; {failed}"));
    if differ > 0 { Err(format!("{differ} of {sent} answers differ{failed}")) } else { Ok(()) }
}

fn read(args: &ReplayArgs) -> Result<Recorded, String> {
    let bytes = bytes_of(&args.file)?;
    let mut recorded = Recorded::default();
    let (mut unread, mut bytes_left) = (BTreeSet::new(), SCHEMA_BYTES_MAX);
    let mut reader = SampleFileReader::new(&bytes);
    for entry in reader.by_ref() {
        match entry {
            SampleEntry::Call(call) if call.path.contains(&args.of.method) => recorded.calls.push(call),
            SampleEntry::Call(_) => {}
            SampleEntry::Schema(..) if !args.compare => {}
            SampleEntry::Schema(number, descriptors) => {
                let has_room = recorded.schemas.len() < SCHEMAS_MAX && descriptors.len() <= bytes_left;
                match has_room.then(|| Schema::from_descriptor_set(&descriptors)) {
                    Some(Ok(schema)) => {
                        bytes_left -= descriptors.len();
                        recorded.schemas.insert(number, schema);
                    }
                    Some(Err(_)) | None => drop(unread.insert(number)),
                }
            }
        }
    }
    recorded.faults = reader.faults;
    let faults: Vec<String> =
        recorded.faults.list().map(|(fault, count)| format!("{count} {fault}")).collect();
    if recorded.calls.is_empty() {
        let why = if faults.is_empty() { "it holds none of that method".into() } else { faults.join(", ") };
        return Err(format!("{}: no call could be read: {why}", args.file.display()));
    }
    if !faults.is_empty() {
        eprintln!("trunkline: not used: {}", faults.join(", "));
    }
    if !unread.is_empty() {
        eprintln!(
            "trunkline: {} descriptor sets are not used: they cannot be read, or are more than {SCHEMAS_MAX} or {} \
             MiB; fields have numbers for names",
            unread.len(),
            SCHEMA_BYTES_MAX >> 20
        );
    }
    Ok(recorded)
}

fn call(client: &Client, sample: &CallSample, due: Instant) -> ReplayAnswer {
    let timeout =
        if sample.timeout_ns == 0 { USUAL_TIMEOUT } else { Duration::from_nanos(sample.timeout_ns) };
    let (status, response) = match exchange(client, sample, timeout) {
        Ok(answer) => answer,
        Err(status) => (status, None),
    };
    ReplayAnswer { status, response, took: due.elapsed() }
}

fn exchange(
    client: &Client,
    sample: &CallSample,
    timeout: Duration,
) -> Result<(Status, Option<Vec<u8>>), Status> {
    let call = client.call(&sample.path).with_timeout(timeout);
    let (_, mut parts) = call.with_message(sample.request.clone()).with_no_more().open().wait()?;
    let mut response = None;
    loop {
        match parts.next().wait() {
            Some(Part::Headers(_)) => {}
            Some(Part::Message(message)) => response = Some(message.as_ref().to_vec()),
            Some(Part::End(mut end)) => {
                let status = Status::take_from(&mut end.trailers, end.code).with_execution(end.execution);
                return Ok((status, response));
            }
            None => return Err(Status::unavailable("the call ended without an answer")),
        }
    }
}
