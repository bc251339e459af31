//! `trunkline record`: calls of a running daemon into a file.
//!
//! The daemon hands over what its flight recorders hold, at most 8192 calls of a shard at a time; a shard is asked
//! again until it has no more, then left alone for a while. How many of the calls that ended well are kept follows from
//! the last interval's rate; the daemon draws them, so that what is not kept is never sent.

use crate::applications::ApplicationTimes;
use crate::args::{KeptTail, OutputArgs, RecordArgs};
use crate::earlier::earlier_calls;
use crate::host::{HostReading, is_this_machine};
use crate::load::FILE_BYTES_MAX;
use crate::operator::refusal;
use crate::output;
use proto::admin_client::AdminClient;
use proto::{CallsRequest, CallsResponse, LateHandler, ListRequest, ShardCalls};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trunkline::{Channel, Wait};
use trunkline_insight::{BlockHead, RecordBlock, printable};
use trunkline_telemetry::{RecordedCall, RecordedTrace, TaxStage};

/// Generated from `proto/trunkline/admin/v1/admin.proto`.
#[allow(dead_code, missing_docs, reason = "two calls of it are made here")]
mod proto {
    trunkline::include_proto!("trunkline.admin.v1");
}

/// How often a daemon is asked: at a million calls a second a recorder holds a sixteenth of one.
const INTERVAL: Duration = Duration::from_millis(50);
/// A block holds what was kept in this time.
const BLOCK_TIME: Duration = Duration::from_secs(5);
/// Or so many calls, if they are there sooner: 12 MB.
const BLOCK_CALLS_MAX: usize = 100_000;
/// Or so many bytes of names: those of one more answer still fit into a head.
const NAMES_BYTES_MAX: usize = trunkline_insight::block::HEAD_BYTES_MAX / 4;
/// A block, its head and the one of earlier calls beside it have no more.
const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// How often the processes of applications are looked at: what one takes behind the last look at it is not known.
const LOOK: Duration = Duration::from_secs(1);
/// Answers without a pause in between; then the block's end and the time are looked at.
const ANSWERS_MAX: usize = 64;

/// What a recording has come to.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    seen: u64,
    /// Calls the daemon had recorded one by one: fewer than there were, where one stands for others.
    rows: u64,
    traced: u64,
    /// Of these, those it sent: none of its own services.
    sent: u64,
    lost: u64,
    kept: u64,
    /// Shards that were there no more behind a replacement of the daemon.
    shards_gone: usize,
    /// Calls the daemon sent that can be none.
    unsound: u64,
    blocks: u64,
    bytes: u64,
}

/// Records and says what came of it.
///
/// A signal ends it before its time.
///
/// # Errors
/// The file cannot be written, or the daemon does not answer; what was recorded before is in the file.
pub fn record(channel: Channel, args: &RecordArgs) -> Result<(), String> {
    // The first answer before the file: without a daemon there is none.
    let Beginning { client, first } = beginning(channel)?;
    // Whoever sees the file may end the recording, and finds in it what was recorded until then.
    let stop = stop_signals()?;
    let file = match args.append {
        true => output::append(&args.out.output)?,
        false => output::create(&args.out).map_err(|why| match args.out.output.is_file() {
            true => why + ", or --append to add to it",
            false => why,
        })?,
    };
    let written = file.metadata().map_or(0, |found| found.len());
    let mut recording = Recording::new(client, args, file, &first);
    recording.room = FILE_BYTES_MAX.saturating_sub(written);
    let end = Instant::now() + args.time;
    let outcome = recording.run(|| match stop.load(Ordering::Relaxed) {
        true => Duration::ZERO,
        false => end.saturating_duration_since(Instant::now()),
    });
    if recording.is_full() {
        let most = FILE_BYTES_MAX >> 20;
        println!(
            "ended before its time: the file has as much as is read of one, {most} MiB; record with a lower --rate"
        );
    }
    let Tally { seen, traced, lost, kept, shards_gone, unsound, blocks, bytes, .. } = recording.tally;
    println!("{}: {kept} of {seen} calls kept, {blocks} blocks, {bytes} bytes", args.out.output.display());
    if traced > 0 {
        println!("{traced} of them belong to a trace");
    }
    if lost > 0 {
        println!("{lost} calls were overwritten in the daemon before they were looked at; the file says so");
    }
    if shards_gone > 0 {
        println!(
            "{shards_gone} shards went with a replacement of the daemon: calls of their last {INTERVAL:?} are missing"
        );
    }
    if unsound > 0 {
        println!("{unsound} calls were left out: the daemon sent them as no call can be");
    }
    outcome
}

/// Where the recorders of a daemon stand: what was recorded before is none of a recording's.
pub struct Beginning {
    client: AdminClient,
    first: CallsResponse,
}

/// Asks the daemon.
///
/// # Errors
/// It does not answer, or not to this user.
pub fn beginning(channel: Channel) -> Result<Beginning, String> {
    let client = AdminClient::new(channel);
    let first = ask(&client, CallsRequest::default())?;
    Ok(Beginning { client, first })
}

/// How far a recording in memory is, for those that wait for it, and whether it is to end.
#[derive(Debug, Default)]
pub struct RecordingProgress {
    /// How often the daemon was asked for everything new, and how many calls it answered with.
    looks: AtomicU64,
    rows: AtomicU64,
    /// It is to look once more.
    pub is_over: AtomicBool,
    /// The daemon answers no more.
    pub is_lost: AtomicBool,
}

impl RecordingProgress {
    /// Waits until a whole look that begins now finds no new call, or for so long.
    pub fn wait_for_all(&self, most: Duration) {
        let began = Instant::now();
        let now = || (self.looks.load(Ordering::Acquire), self.rows.load(Ordering::Acquire));
        let mut from = now();
        while began.elapsed() < most && !self.is_lost.load(Ordering::Relaxed) {
            std::thread::sleep(INTERVAL);
            let (looks, rows) = now();
            // The first of two may have begun before.
            match looks >= from.0 + 2 {
                true if rows == from.1 => return,
                true => from = (looks, rows),
                false => {}
            }
        }
    }
}

/// Records every call from there on until it is over, and returns the blocks as a file has them, of a host of that
/// cluster. With a rate, so many calls a second besides those that failed, and everything that heads say.
///
/// # Errors
/// The daemon does not answer any more.
pub fn record_all(
    from: Beginning,
    cluster: &str,
    rate: f64,
    progress: &RecordingProgress,
) -> Result<Vec<u8>, String> {
    let Beginning { client, first } = from;
    let args = RecordArgs {
        out: OutputArgs { output: PathBuf::from("(memory)"), force: false },
        append: false,
        rate,
        traces: rate,
        tail: KeptTail::None,
        time: Duration::ZERO,
        cluster: cluster.to_owned(),
    };
    let mut recording = Recording::new(client, &args, Vec::new(), &first);
    recording.progress = Some(progress);
    let left = || if progress.is_over.load(Ordering::Relaxed) { Duration::ZERO } else { INTERVAL };
    let recorded = recording.run(left);
    progress.is_lost.store(recorded.is_err(), Ordering::Relaxed);
    recorded.map(|()| recording.file)
}

struct Recording<'a, W> {
    client: AdminClient,
    args: &'a RecordArgs,
    file: W,
    from: Vec<u64>,
    one_in_log2: u32,
    traces_one_in_log2: u32,
    block: RecordBlock,
    /// Numbers of methods and hosts in the block, by name: shards and daemons number on their own.
    methods: BTreeMap<String, u32>,
    peers: BTreeMap<String, u32>,
    /// What handlers said late, in nanoseconds, by number of the method and gRPC code.
    late: BTreeMap<(u32, u16), u64>,
    began: Instant,
    host: HostReading,
    /// The daemon is on the machine this runs on.
    is_here: bool,
    /// What the daemon's time had gone into when the block began, and by the last answer.
    stages: [BTreeMap<String, u64>; 2],
    /// What applications did, if their processes can be looked at, and when they last were.
    applications: Option<ApplicationTimes>,
    looked: Instant,
    tally: Tally,
    /// Bytes the file may have more.
    room: u64,
    progress: Option<&'a RecordingProgress>,
}

impl<'a, W: Write> Recording<'a, W> {
    fn new(client: AdminClient, args: &'a RecordArgs, file: W, first: &CallsResponse) -> Self {
        let mut recording = Self {
            client,
            args,
            file,
            from: first.shards.iter().map(|shard| shard.next).collect(),
            one_in_log2: 0,
            traces_one_in_log2: 0,
            block: RecordBlock::default(),
            methods: BTreeMap::new(),
            peers: BTreeMap::new(),
            late: BTreeMap::new(),
            began: Instant::now(),
            host: HostReading::default(),
            is_here: false,
            stages: [stages(first), stages(first)],
            applications: Some(ApplicationTimes::default()),
            looked: Instant::now(),
            tally: Tally::default(),
            room: u64::MAX,
            progress: None,
        };
        recording.look();
        recording.begin_block(first);
        recording
    }

    /// Until `left` says that no time is.
    fn run(&mut self, left: impl Fn() -> Duration) -> Result<(), String> {
        let mut last = Instant::now();
        let (mut heard, mut written) = (Ok(()), Ok(()));
        look_until_over(left, || {
            let Tally { rows, traced, .. } = self.tally;
            heard = self.take();
            if let Some(progress) = self.progress {
                progress.rows.store(self.tally.sent, Ordering::Release);
                progress.looks.fetch_add(1, Ordering::Release);
            }
            if self.looked.elapsed() >= LOOK {
                self.look();
            }
            let elapsed = last.elapsed().as_secs_f64();
            last = Instant::now();
            let (rows, traced) = (self.tally.rows - rows, self.tally.traced - traced);
            self.one_in_log2 = one_in_log2(rows.saturating_sub(traced) as f64 / elapsed, self.args.rate);
            self.traces_one_in_log2 = one_in_log2(traced as f64 / elapsed, self.args.traces);
            if self.began.elapsed() >= BLOCK_TIME || self.block.rows.len() >= BLOCK_CALLS_MAX {
                written = self.end_block();
            }
            heard.is_ok() && written.is_ok() && !self.is_full()
        });
        written?;
        self.end_block()?;
        heard
    }

    /// Whether another block might not fit into what is read of a file.
    fn is_full(&self) -> bool {
        self.tally.bytes.saturating_add(BLOCK_BYTES_MAX) > self.room
    }

    /// Looks at the processes of applications. A daemon that does not answer is asked again the next time.
    fn look(&mut self) {
        self.looked = Instant::now();
        let Some(times) = &mut self.applications else { return };
        let Ok(list) = self.client.list(ListRequest::default()).wait() else { return };
        let list = list.into_inner();
        if !times.look(list.applications.iter().map(|one| one.name.as_str()), list.process_id) {
            self.applications = None;
        }
    }

    /// Asks until there is nothing new.
    fn take(&mut self) -> Result<(), String> {
        for _ in 0..ANSWERS_MAX {
            let request = CallsRequest {
                next: self.from.clone(),
                one_in_log2: self.one_in_log2,
                keeps_slow: self.args.tail == KeptTail::P95,
                traces_one_in_log2: self.traces_one_in_log2,
            };
            let answer = ask(&self.client, request)?;
            self.stages[1] = stages(&answer);
            let next: Vec<u64> = answer.shards.iter().map(|shard| shard.next).collect();
            let (from, has_new) = from_where(&self.from, &next);
            // What they had, nobody has any more, nor says how many calls that was.
            self.tally.shards_gone += shards_gone(&self.from, &next);
            let lost: u64 = answer.shards.iter().map(|shard| shard.lost).sum();
            self.tally.rows += rows_between(&self.from, &next).saturating_sub(lost);
            self.from = from;
            let more = has_new || answer.shards.iter().any(|shard| shard.more);
            for shard in answer.shards {
                self.keep(shard);
                if self.names_bytes() >= NAMES_BYTES_MAX {
                    self.end_block()?;
                }
            }
            if !more || self.block.rows.len() >= BLOCK_CALLS_MAX {
                return Ok(());
            }
        }
        Ok(())
    }

    fn keep(&mut self, shard: ShardCalls) {
        self.tally.seen += shard.seen;
        self.tally.traced += shard.traced;
        self.tally.lost += shard.lost;
        self.block.head.calls_seen += shard.seen;
        self.block.head.calls_lost += shard.lost;
        let methods =
            numbers(&mut self.methods, shard.methods.into_iter().map(|name| (name.number, name.name)));
        let peers = numbers(&mut self.peers, shard.peers.into_iter().map(|name| (name.number, name.name)));
        // Where each call of the answer is in the block. One that can be none, as of a daemon of another version, ends
        // no recording: it is counted.
        let mut places = Vec::with_capacity(shard.rows.len() / RecordedCall::BYTES);
        for bytes in shard.rows.chunks_exact(RecordedCall::BYTES) {
            let named = RecordedCall::decode(bytes).ok().and_then(|mut call| {
                call.row.method.0 = *methods.get(&call.row.method.0)?;
                call.row.peer.0 = *peers.get(&call.row.peer.0)?;
                Some(call)
            });
            places.push(named.map(|_| self.block.rows.len() as u32));
            self.tally.sent += 1;
            self.tally.unsound += u64::from(named.is_none());
            self.block.rows.extend(named);
        }
        for bytes in shard.traces.chunks_exact(4 + RecordedTrace::BYTES) {
            let (place, bytes) = bytes.split_at(4);
            let place = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
            let place = places.get(place as usize).copied().flatten();
            if let Some((place, trace)) = place.zip(RecordedTrace::decode(bytes).ok()) {
                self.block.traces.push((place, trace));
            }
        }
        for LateHandler { method, code, cpu_ns } in shard.late {
            if let Some((method, code)) = methods.get(&method).copied().zip(u16::try_from(code).ok()) {
                let sum_ns = self.late.entry((method, code)).or_default();
                *sum_ns = sum_ns.saturating_add(cpu_ns);
            }
        }
    }

    /// About what names take in the head of the block.
    fn names_bytes(&self) -> usize {
        let names = self.methods.keys().chain(self.peers.keys());
        // In quotes, with its number; a character may be written as two.
        names.map(|name| 2 * name.len() + 16).sum::<usize>() + self.late.len() * 40
    }

    fn begin_block(&mut self, answer: &CallsResponse) {
        self.is_here = is_this_machine(&answer.boot_id);
        self.begin_block_of(BlockHead {
            host: answer.node.clone(),
            version: answer.version.clone(),
            addresses: answer.addresses.clone(),
            boot_id: answer.boot_id.clone(),
            network_namespace: answer.network_namespace.clone(),
            ..BlockHead::default()
        });
    }

    /// The host is as this head says.
    fn begin_block_of(&mut self, host: BlockHead) {
        let BlockHead { host, version, addresses, boot_id, network_namespace, .. } = host;
        let now_ns = monotonic_ns();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.block.head = BlockHead {
            host,
            version,
            addresses,
            boot_id,
            network_namespace,
            cluster: self.args.cluster.clone(),
            began_unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX),
            began_unix_ns: unix.subsec_nanos() % 1_000_000,
            began_ns: now_ns,
            ended_ns: now_ns,
            ..BlockHead::default()
        };
        self.block.rows.clear();
        self.block.traces.clear();
        (self.methods, self.peers, self.late) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        self.began = Instant::now();
        self.host = HostReading::take();
    }

    fn end_block(&mut self) -> Result<(), String> {
        self.look();
        let earlier = earlier_calls(&mut self.block);
        let head = &mut self.block.head;
        let ats = || self.block.rows.iter().map(|call| call.row.at.0);
        // A call may have ended just before the clock was read here.
        let first_ns = ats().min().unwrap_or(head.began_ns).min(head.began_ns);
        let unix_ns = u128::from(head.began_unix_ms) * 1_000_000 + u128::from(head.began_unix_ns);
        let unix_ns = unix_ns.saturating_sub(u128::from(head.began_ns - first_ns));
        head.began_unix_ms = (unix_ns / 1_000_000) as u64;
        head.began_unix_ns = (unix_ns % 1_000_000) as u32;
        head.began_ns = first_ns;
        head.ended_ns = ats().max().unwrap_or(0).max(monotonic_ns());
        let listed = |names: &BTreeMap<String, u32>| {
            let mut list: Vec<(u32, String)> =
                names.iter().map(|(name, number)| (*number, name.clone())).collect();
            list.sort_unstable();
            list
        };
        (head.methods, head.peers) = (listed(&self.methods), listed(&self.peers));
        // What is read here says nothing of another machine.
        head.variables = if self.is_here { HostReading::take().since(&self.host) } else { BTreeMap::new() };
        head.daemon_seconds = seconds_since(&self.stages[0], &self.stages[1]);
        head.cycles = shares(&head.daemon_seconds, head.variables.get("cpu_seconds").copied());
        head.application_seconds = self.applications.as_mut().map(ApplicationTimes::take_seconds);
        let late = self.late.iter();
        head.late_handlers = late.map(|((method, code), ns)| (*method, *code, *ns as f64 * 1e-9)).collect();
        self.stages[0] = self.stages[1].clone();
        // What the host did while there were no calls belongs to it, too; the rest behind the last block does not.
        if head.calls_seen > 0 || self.tally.blocks == 0 || self.began.elapsed() >= LOOK {
            self.tally.kept += self.block.rows.len() as u64;
            self.write(&self.block.encode())?;
        }
        if let Some(mut earlier) = earlier {
            (earlier.head.methods, earlier.head.peers) = (listed(&self.methods), listed(&self.peers));
            self.tally.kept += earlier.rows.len() as u64;
            self.write(&earlier.encode())?;
        }
        self.begin_block_of(self.block.head.clone());
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let said = |error: std::io::Error| format!("{}: {error}", self.args.out.output.display());
        self.file.write_all(bytes).map_err(said)?;
        self.tally.bytes += bytes.len() as u64;
        self.tally.blocks += 1;
        Ok(())
    }
}

/// Looks every [`INTERVAL`] until no time is left, and once more then: a call that ended behind the look before it
/// ended in time, too. `look` says whether it can go on.
fn look_until_over(left: impl Fn() -> Duration, mut look: impl FnMut() -> bool) {
    loop {
        let time = left();
        std::thread::sleep(INTERVAL.min(time));
        if !look() || time.is_zero() {
            return;
        }
    }
}

/// Where each shard is to be asked from next, and whether one is to be asked anew. A shard that is behind where it was
/// is that of a daemon which began anew, and one that was not there is new: of both every call is new.
fn from_where(from: &[u64], next: &[u64]) -> (Vec<u64>, bool) {
    let is_known = |(shard, next): (usize, &u64)| from.get(shard).is_some_and(|from| from <= next);
    let known: Vec<bool> = next.iter().enumerate().map(is_known).collect();
    let goes_on = next.iter().zip(&known).map(|(next, is_known)| if *is_known { *next } else { 0 });
    (goes_on.collect(), known.iter().any(|is_known| !is_known))
}

/// How many calls shards have recorded one by one from there to there.
fn rows_between(from: &[u64], next: &[u64]) -> u64 {
    from.iter().zip(next).fold(0, |sum, (from, next)| sum.saturating_add(next.saturating_sub(*from)))
}

/// How many shards there are no more.
fn shards_gone(from: &[u64], next: &[u64]) -> usize {
    from.len().saturating_sub(next.len())
}

/// What the daemon's processor time has gone into, by stage.
fn stages(answer: &CallsResponse) -> BTreeMap<String, u64> {
    answer.stages.iter().map(|one| (one.stage.clone(), one.cpu_ns)).collect()
}

/// What has come to it. A daemon that took another's place began anew.
fn seconds_since(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> BTreeMap<String, f64> {
    let restarted = before.iter().any(|(stage, ns)| now.get(stage).is_some_and(|now_ns| now_ns < ns));
    let since = |(stage, ns): (&String, &u64)| {
        let before_ns = before.get(stage).filter(|_| !restarted).copied().unwrap_or(0);
        (stage.clone(), (ns - before_ns) as f64 * 1e-9)
    };
    now.iter().map(since).collect()
}

/// Parts of all that the host's processors did, of what calls make a daemon do: looking for work is none of it.
fn shares(daemon_seconds: &BTreeMap<String, f64>, busy_s: Option<f64>) -> BTreeMap<String, f64> {
    let Some(busy_s) = busy_s.filter(|busy_s| *busy_s > 0.0) else { return BTreeMap::new() };
    let stages = TaxStage::ALL.into_iter().filter(|stage| *stage != TaxStage::Idle);
    let known = stages.filter_map(|stage| Some((stage.label(), daemon_seconds.get(stage.label())?)));
    known.map(|(label, seconds)| (label.to_owned(), (seconds / busy_s).min(1.0))).collect()
}

/// Of how many calls one is kept, as a power of two, to come to `wanted` a second of `rate`.
fn one_in_log2(rate: f64, wanted: f64) -> u32 {
    (rate / wanted).log2().ceil().clamp(0.0, 32.0) as u32
}

/// Numbers of this block for the numbers of a shard.
fn numbers(
    known: &mut BTreeMap<String, u32>,
    names: impl Iterator<Item = (u32, String)>,
) -> BTreeMap<u32, u32> {
    let number = |(number, name): (u32, String)| {
        let next = known.len() as u32;
        // As whoever reads the file sees it, and no longer for what would be written as an escape.
        (number, *known.entry(printable(&name)).or_insert(next))
    };
    names.map(number).collect()
}

fn ask(client: &AdminClient, request: CallsRequest) -> Result<CallsResponse, String> {
    Ok(client.calls(request).wait().map_err(|status| refusal(&status))?.into_inner())
}

/// The first signal ends the work, with what there is; a second ends the program.
pub fn stop_signals() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order counts: what the flag says is looked at before it is set.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| format!("signals cannot be waited for: {error}"))?;
    }
    Ok(stop)
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    //! Shows how much is kept at which rate, what a daemon that begins anew is asked for, and that what ended before a
    //! recording did is in it.
    use super::*;
    use std::cell::Cell;

    /// A call may end, and the signal come, while an answer is on its way.
    #[test]
    fn what_ends_during_a_look_is_found_by_the_last() {
        let (ended, found, is_over) = (Cell::new(0), Cell::new(0), Cell::new(false));
        let left = || if is_over.get() { Duration::ZERO } else { Duration::from_nanos(1) };
        let looks = Cell::new(0);
        look_until_over(left, || {
            looks.set(looks.get() + 1);
            found.set(ended.get());
            if looks.get() == 3 {
                ended.set(7);
                is_over.set(true);
            }
            true
        });
        assert_eq!((looks.get(), found.get()), (4, 7));
        look_until_over(|| INTERVAL, || looks.replace(looks.get() + 1) < 5);
        assert_eq!(looks.get(), 6, "it ends where it cannot go on");
    }

    #[test]
    fn what_was_recorded_is_counted_from_shard_to_shard() {
        assert_eq!(rows_between(&[10, 20], &[15, 20, 7]), 5, "of one that is new nobody knows");
        assert_eq!(rows_between(&[10, 20], &[3, 22]), 2, "nor of one that began anew");
    }

    #[test]
    fn what_is_kept_follows_the_rate() {
        for (rate, wanted, log2) in [(0.0, 200.0, 0), (200.0, 200.0, 0), (201.0, 200.0, 1), (1e6, 200.0, 13)]
        {
            assert_eq!(one_in_log2(rate, wanted), log2, "{rate}");
        }
    }

    #[test]
    fn a_daemon_that_began_anew_is_asked_for_all_it_has() {
        assert_eq!(from_where(&[10, 20], &[15, 20]), (vec![15, 20], false));
        assert_eq!(from_where(&[10, 20], &[15, 3]), (vec![15, 0], true), "another daemon");
        assert_eq!(from_where(&[10], &[15, 7]), (vec![15, 0], true), "a shard more");
        assert_eq!(from_where(&[10, 20], &[12]), (vec![12], false));
        assert_eq!((shards_gone(&[10, 20], &[12]), shards_gone(&[10], &[12, 5])), (1, 0));
    }

    #[test]
    fn the_daemons_time_is_that_of_the_block() {
        let at = |copies: u64, idle: u64| {
            BTreeMap::from([("copies".to_owned(), copies), ("idle".to_owned(), idle)])
        };
        let since = seconds_since(&at(1_000_000_000, 5), &at(1_500_000_000, 2_000_000_005));
        assert_eq!((since["copies"], since["idle"]), (0.5, 2.0));
        assert_eq!(shares(&since, Some(4.0)), BTreeMap::from([("copies".to_owned(), 0.125)]));
        assert_eq!(shares(&since, None), BTreeMap::new());
        // Another daemon took its place.
        assert_eq!(seconds_since(&at(7_000_000_000, 0), &at(500_000_000, 9))["copies"], 0.5);
    }

    #[test]
    fn shards_number_on_their_own() {
        let mut known = BTreeMap::new();
        let one = numbers(&mut known, [(7, "a".to_owned()), (9, "b".to_owned())].into_iter());
        let two = numbers(&mut known, [(7, "b".to_owned())].into_iter());
        assert_eq!((one[&7], one[&9], two[&7]), (0, 1, 1));
    }
}
