//! `trunkline drive`: calls through real daemons, after the shape of recorded or generated ones.
//!
//! This program is client and servers: it calls through one daemon what it serves at another, and records at the first.
//! Of what was recorded it keeps the calls that the file had, with the number of calls each of those stood for.

mod acts;
mod kept;
mod plan;
mod timer;
mod work;

use crate::args::DriveArgs;
use crate::load::load;
use crate::output;
use crate::record::{Beginning, RecordingProgress, beginning, record_all};
use acts::{ActService, Acts, CallPlan, TREE};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kept::kept;
use plan::plans;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use trunkline::opaque::Client;
use trunkline::{Channel, ChannelBuilder, Code, Server, ServerHandle, Status, Wait};
use trunkline_insight::{Fleet, RecordBlock, count_ancestors};

/// Empty calls, whose time says how long an answer is on its way.
const PROBES: usize = 200;
/// Time a daemon has to take the services of this program.
const READY_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether the recording goes on, while the last calls are waited for.
const LOOK: Duration = Duration::from_millis(200);
/// Time the daemons have to tell the last of what they recorded.
const LAST_RECORDS_MAX: Duration = Duration::from_secs(10);
/// Of the daemon that has the servers nearly no calls are kept, but what handlers say late.
const SERVED_RATE: f64 = 1.0;
/// Threads that run handlers of the file's methods, and as many those of the trees below them: while one works, others
/// answer.
const WORKERS: usize = 4;
/// Calls that take a larger part of the longest's time than this begin first, so that nobody waits for them alone.
const LONG_PART: u32 = 4;
/// And calls that take a smaller part of it than this begin last.
const SHORT_PART: u32 = 1000;
/// Where somebody looks on, it is said so often how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// What became of the calls.
#[derive(Debug, Default)]
struct Driven {
    took: Duration,
    /// Calls that ended otherwise than those of the file.
    otherwise: BTreeMap<&'static str, usize>,
}

/// Makes the calls of a file, and writes what was recorded of them. The file is made when there is something to write.
///
/// # Errors
/// The file holds no calls that can be made, a daemon does not answer, or the output cannot be written.
pub fn drive(operators: &Channel, socket: Option<PathBuf>, args: &DriveArgs) -> Result<(), String> {
    let planned = load(std::slice::from_ref(&args.file))?;
    let calls = plans(&planned, args);
    if calls.is_empty() {
        let of =
            if args.cluster.is_empty() { String::new() } else { format!(" of cluster {}", args.cluster) };
        return Err(format!(
            "{}: it holds no calls{of} but those to daemons themselves",
            args.file.display()
        ));
    }
    output::check(&args.out)?;
    let socket = socket.as_deref();
    let from = [beginning(operators.clone())?, reach(socket, args)?];
    let acts = Arc::new(Acts::new(calls, clients(socket, args)));
    let _servers = serve(socket, args, &acts)?;
    let first = Client::new(here(socket).wait_for_ready(false).target(&args.to).connect_lazy());
    acts.reach(&first).wait().map_err(|why| unreached(args, &why))?;
    let (driven, bytes) = recorded(&acts, args, from)?;
    let [mut recorded, served] = bytes.map(|bytes| {
        let mut fleet = Fleet::default();
        fleet.read(&bytes);
        fleet
    });
    count_ancestors(&mut recorded);
    let blocks = kept(&planned, &recorded, &served, args);
    if blocks.is_empty() {
        return Err("no call was recorded: the daemon that makes them needs recorder.traces = true and \
                    recorder.sample = 1.0"
            .into());
    }
    let mut file = output::create(&args.out)?;
    for block in &blocks {
        std::io::Write::write_all(&mut file, &block.encode())
            .map_err(|error| output::refusal(&args.out.output, &error))?;
    }
    tell(args, &acts, &driven, &recorded, &blocks);
    Ok(())
}

/// Makes the calls, while both daemons are asked for what they record.
fn recorded(
    acts: &Acts,
    args: &DriveArgs,
    [from, from_servers]: [Beginning; 2],
) -> Result<(Driven, [Vec<u8>; 2]), String> {
    let all = [RecordingProgress::default(), RecordingProgress::default()];
    let (driven, bytes) = std::thread::scope(|scope| {
        let [own, servers] = &all;
        let recording = scope.spawn(|| record_all(from, &args.cluster, f64::INFINITY, own));
        let serving = scope.spawn(|| record_all(from_servers, &args.cluster, SERVED_RATE, servers));
        let driven = make_all(acts, args, &own.is_lost).wait();
        for progress in &all {
            progress.wait_for_all(LAST_RECORDS_MAX);
            progress.is_over.store(true, Ordering::Relaxed);
        }
        let failed = || Err("the recording has failed".into());
        (driven, [recording, serving].map(|thread| thread.join().unwrap_or_else(|_| failed())))
    });
    // Without its daemon the calls are not made, either.
    let [bytes, served] = bytes;
    let bytes = [bytes?, served.map_err(|why| format!("--server-socket: {why}"))?];
    Ok((driven?, bytes))
}

/// Attaches to both daemons, so that it is known which of them is not there; where the recording of the servers'
/// begins.
fn reach(socket: Option<&Path>, args: &DriveArgs) -> Result<Beginning, String> {
    let connected = |builder: ChannelBuilder| builder.wait_for_ready(false).connect().wait();
    connected(here(socket)).map_err(|status| status.to_string())?;
    let at = |why: String| format!("--server-socket {}: {why}", args.server_socket.display());
    let there =
        connected(application().socket(&args.server_socket)).map_err(|status| at(status.to_string()))?;
    beginning(there).map_err(at)
}

/// Why nobody is reached at the address.
fn unreached(args: &DriveArgs, why: &Status) -> String {
    format!(
        "--to {}: a first call to the servers there ended with {why}; write the address at which the daemon at {} \
         listens (daemon.listen)",
        args.to,
        args.server_socket.display()
    )
}

fn tell(args: &DriveArgs, acts: &Acts, driven: &Driven, recorded: &Fleet, blocks: &[RecordBlock]) {
    let kept: usize = blocks.iter().map(|block| block.rows.len()).sum();
    println!(
        "{}: {} calls made in {:.1} s, {kept} of them recorded",
        args.out.output.display(),
        acts.calls.len(),
        driven.took.as_secs_f64()
    );
    if recorded.lost() > 0 {
        println!("{} calls were overwritten in the daemon before they were looked at", recorded.lost());
    }
    for (code, count) in &driven.otherwise {
        println!("{count} calls ended with {code}, and not as those of the file");
    }
}

/// As this program calls.
fn application() -> ChannelBuilder {
    Channel::builder().name("trunkline drive").embedded(false).wait_for_ready(true)
}

/// The same, attached to the daemon that makes the calls.
fn here(socket: Option<&Path>) -> ChannelBuilder {
    socket.map_or_else(application, |socket| application().socket(socket))
}

/// Clients across, of the calls above, and of the calls below.
fn clients(socket: Option<&Path>, args: &DriveArgs) -> [Client; 3] {
    let there = application().socket(&args.server_socket);
    [here(socket).target(&args.to), here(socket), there].map(|builder| Client::new(builder.connect_lazy()))
}

/// Serves the calls above at the first daemon, all others at the second: those of the file on threads of their own,
/// since of short handlers only some tell what they take, and a thread's handlers are short behind short ones.
fn serve(socket: Option<&Path>, args: &DriveArgs, acts: &Arc<Acts>) -> Result<[ServerHandle; 3], String> {
    let service = |name: &str| ActService { name: name.to_owned(), acts: Arc::clone(acts) };
    let server = || Server::builder().name("trunkline drive").embedded(false);
    let tree = || server().add_opaque_service(service(TREE));
    let mut there = server().socket(&args.server_socket).workers(WORKERS);
    let names = acts.calls.iter().filter_map(|call| call.path[1..].rsplit_once('/')).map(|(name, _)| name);
    for name in names.collect::<BTreeSet<_>>() {
        there = there.add_opaque_service(service(name));
    }
    let here = socket.map_or_else(tree, |socket| tree().socket(socket));
    let start = |server: trunkline::ServerBuilder| {
        let handle = server.spawn().map_err(|status| status.to_string())?;
        let is_ready = acts.within(READY_MAX, handle.ready()).wait();
        let is_ready =
            is_ready.ok_or("a daemon does not take the services of this program: its log says more")?;
        is_ready.map_err(|status| status.to_string())?;
        Ok::<_, String>(handle)
    };
    Ok([start(here)?, start(tree().socket(&args.server_socket).workers(WORKERS))?, start(there)?])
}

/// Makes every call once, unless the recording of them is lost.
async fn make_all(acts: &Acts, args: &DriveArgs, is_lost: &AtomicBool) -> Result<Driven, String> {
    acts.set_way_back(way_back(acts).await?);
    let began = Instant::now();
    let mut driven = Driven::default();
    let mut under_way = FuturesUnordered::new();
    let most = args.in_flight_max as usize;
    // Those above calls are made before them, and end behind them.
    let mut in_flight = 0;
    let mut told = std::io::stderr().is_terminal().then_some(began);
    for (place, number) in order(&acts.calls).into_iter().enumerate() {
        let due = began + Duration::from_secs_f64(place as f64 / args.rate);
        let mut due = pin!(acts.until(due));
        poll_fn(|cx| {
            in_flight -= take_ended(&mut under_way, &mut driven, cx);
            // A chain that is longer than what may be is made alone.
            match in_flight == 0 || in_flight + chain(acts, number) <= most {
                true => due.as_mut().poll(cx),
                false => Poll::Pending,
            }
        })
        .await;
        if is_lost.load(Ordering::Relaxed) {
            return Ok(driven);
        }
        in_flight += chain(acts, number);
        under_way.push(one(acts, number));
        if let Some(told) = told.as_mut().filter(|told| told.elapsed() >= TOLD_EVERY) {
            *told = Instant::now();
            eprint!("\r{} of {} calls begun, {} under way ", place + 1, acts.calls.len(), under_way.len());
        }
    }
    if told.is_some() {
        eprintln!();
    }
    while !under_way.is_empty() && !is_lost.load(Ordering::Relaxed) {
        let mut look = pin!(acts.until(Instant::now() + LOOK));
        poll_fn(|cx| {
            take_ended(&mut under_way, &mut driven, cx);
            if under_way.is_empty() { Poll::Ready(()) } else { look.as_mut().poll(cx) }
        })
        .await;
    }
    driven.took = began.elapsed();
    // A session says with its next call when the last answer was taken: as tasks, so that it is the one the calls had.
    let mut last: FuturesUnordered<_> =
        [&acts.above, &acts.across].map(|to| acts.probe(to)).into_iter().collect();
    while last.next().await.is_some() {}
    Ok(driven)
}

/// A call with those above it.
fn chain(acts: &Acts, number: usize) -> usize {
    1 + usize::from(acts.calls[number].above)
}

/// What a call with those above it came to, and was to come to.
struct MadeCall {
    code: Code,
    wanted: Code,
    chain: usize,
}

/// Makes one. With calls above it, it comes to what the first of those came to.
async fn one(acts: &Acts, number: usize) -> MadeCall {
    let plan = &acts.calls[number];
    let code = acts.make(number, plan.above).await;
    MadeCall { code, wanted: if plan.above > 0 { Code::Ok } else { plan.code }, chain: chain(acts, number) }
}

/// How many calls ended, with those above them.
fn take_ended<F: Future<Output = MadeCall>>(
    under_way: &mut FuturesUnordered<F>,
    driven: &mut Driven,
    cx: &mut std::task::Context<'_>,
) -> usize {
    let mut ended = 0;
    while let Poll::Ready(Some(call)) = Pin::new(&mut *under_way).poll_next_unpin(cx) {
        if call.code != call.wanted {
            *driven.otherwise.entry(call.code.name()).or_default() += 1;
        }
        ended += call.chain;
    }
    ended
}

/// How long an answer is on its way: half of an empty call.
async fn way_back(acts: &Acts) -> Result<Duration, String> {
    let mut took = Vec::with_capacity(PROBES);
    for _ in 0..PROBES {
        let began = Instant::now();
        match acts.probe(&acts.across).await {
            Code::Ok => took.push(began.elapsed()),
            code => return Err(format!("an empty call to the servers ended with {}", code.name())),
        }
    }
    took.sort_unstable();
    Ok(took[PROBES / 2] / 2)
}

/// The long calls, then all others as if drawn, the short ones last: those have few calls below, and wait for nothing
/// that takes the processors' time meanwhile.
fn order(calls: &[CallPlan]) -> Vec<usize> {
    let longest = calls.iter().map(|call| call.takes).max().unwrap_or_default();
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|number| {
        let takes = calls[*number].takes;
        let turn = if takes > longest / LONG_PART { 0 } else { 1 + u8::from(takes < longest / SHORT_PART) };
        (turn, (*number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    });
    order
}
