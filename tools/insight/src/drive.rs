//! `trunkline drive`: calls through real daemons, after the shape of recorded or generated ones.
//!
//! This program is client and servers: it calls through one daemon, or one for each cluster, what it serves at another,
//! and records where it calls. Where wires are planted it is the network, too. Of what was recorded it keeps the calls
//! that the file had, with the number of calls each of those stood for.

mod acts;
mod kept;
mod pace;
mod plan;
mod relay;
mod timer;
mod wires;
mod work;

use crate::args::DriveArgs;
use crate::load::load_calls;
use crate::operator::operator_channel;
use crate::output;
use crate::record::{Beginning, RecordingProgress, beginning, record_all};
use acts::{ActService, Acts, DrivenCaller, TREE};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kept::kept;
use pace::{begins, order};
use plan::plans;
use relay::Relays;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::io::IsTerminal;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
/// Where somebody looks on, it is said so often how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// What became of the calls.
#[derive(Debug, Default)]
struct Driven {
    took: Duration,
    /// Calls that ended otherwise than those of the file.
    otherwise: BTreeMap<&'static str, usize>,
}

/// A daemon that makes calls, of a cluster.
struct CallerHost {
    cluster: String,
    socket: Option<PathBuf>,
}

impl CallerHost {
    /// As this program calls, attached to it.
    fn channel(&self) -> ChannelBuilder {
        match &self.socket {
            Some(socket) => application().socket(socket),
            None => application(),
        }
    }
}

/// Makes the calls of a file, and writes what was recorded of them. The file is made when there is something to write.
///
/// # Errors
/// The file holds no calls that can be made, a daemon does not answer, or the output cannot be written.
pub fn drive(operators: &Channel, socket: Option<PathBuf>, args: &DriveArgs) -> Result<(), String> {
    let planned = load_calls(std::slice::from_ref(&args.file))?;
    let (calls, wires) = plans(&planned, args);
    if calls.is_empty() {
        let of =
            if args.cluster.is_empty() { String::new() } else { format!(" of cluster {}", args.cluster) };
        return Err(format!(
            "{}: it holds no calls{of} but those to daemons themselves",
            args.file.display()
        ));
    }
    output::check(&args.out)?;
    let (hosts, mut from) = match args.caller.as_slice() {
        [] => {
            (vec![CallerHost { cluster: args.cluster.clone(), socket }], vec![beginning(operators.clone())?])
        }
        callers => {
            let host = |(cluster, socket): &(String, PathBuf)| CallerHost {
                cluster: cluster.clone(),
                socket: Some(socket.clone()),
            };
            let begins = |(_, socket): &(String, PathBuf)| {
                beginning(operator_channel(Some(socket.clone()), None))
                    .map_err(|why| format!("--caller {}: {why}", socket.display()))
            };
            (callers.iter().map(host).collect(), callers.iter().map(begins).collect::<Result<_, _>>()?)
        }
    };
    from.push(reach(&hosts, args)?);
    let relays = relays(args, &wires.times())?;
    let there = application().socket(&args.server_socket);
    let acts = Acts::new(calls, callers(&hosts, args, &relays), Client::new(there.connect_lazy()));
    let acts = Arc::new(acts);
    let _servers = serve(&hosts, args, &acts)?;
    let first = Client::new(hosts[0].channel().wait_for_ready(false).target(&args.to).connect_lazy());
    acts.reach(&first).wait().map_err(|why| unreached(args, &why))?;
    let connected = acts.connect().wait();
    connected.map_err(|code| format!("a first call through a relay ended with {}", code.name()))?;
    relays.lengthen();
    let (driven, bytes) = recorded(&acts, &hosts, args, from)?;
    let (served, made) = bytes.split_last().ok_or("nothing was recorded")?;
    let [mut recorded, served] = [made, std::slice::from_ref(served)].map(|files| {
        let mut fleet = Fleet::default();
        for bytes in files {
            fleet.read(bytes);
        }
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

/// Makes the calls, while all daemons are asked for what they record; the last is that of the servers.
fn recorded(
    acts: &Acts,
    hosts: &[CallerHost],
    args: &DriveArgs,
    from: Vec<Beginning>,
) -> Result<(Driven, Vec<Vec<u8>>), String> {
    let all: Vec<RecordingProgress> = from.iter().map(|_| RecordingProgress::default()).collect();
    let callers = hosts.iter().map(|host| (host.cluster.as_str(), f64::INFINITY));
    let named = callers.chain([(args.cluster.as_str(), SERVED_RATE)]);
    let (driven, bytes) = std::thread::scope(|scope| {
        let threads: Vec<_> = from
            .into_iter()
            .zip(named)
            .zip(&all)
            .map(|((from, (cluster, rate)), progress)| {
                scope.spawn(move || record_all(from, cluster, rate, progress))
            })
            .collect();
        let made = &all[..hosts.len()];
        let is_lost = || made.iter().any(|own| own.is_lost.load(Ordering::Relaxed));
        let driven = make_all(acts, args, is_lost).wait();
        for progress in &all {
            progress.wait_for_all(LAST_RECORDS_MAX);
            progress.is_over.store(true, Ordering::Relaxed);
        }
        let failed = || Err("the recording has failed".into());
        let bytes = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| failed()));
        (driven, bytes.collect::<Vec<_>>())
    });
    // Without their daemons the calls are not made, either.
    let at = |number: usize| match hosts.get(number).map(|host| &host.socket) {
        None => "--server-socket: ".to_owned(),
        Some(Some(socket)) if hosts.len() > 1 => format!("--caller {}: ", socket.display()),
        Some(_) => String::new(),
    };
    let bytes = bytes.into_iter().enumerate();
    let bytes = bytes.map(|(number, bytes)| bytes.map_err(|why| format!("{}{why}", at(number))));
    let bytes = bytes.collect::<Result<Vec<_>, String>>()?;
    Ok((driven?, bytes))
}

/// Attaches to all daemons, so that it is known which of them is not there; where the recording of the servers'
/// begins.
fn reach(hosts: &[CallerHost], args: &DriveArgs) -> Result<Beginning, String> {
    let connected = |builder: ChannelBuilder| builder.wait_for_ready(false).connect().wait();
    for host in hosts {
        connected(host.channel()).map_err(|status| status.to_string())?;
    }
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
    if acts.below_failed() > 0 {
        println!(
            "{} calls below others did not end well: those have fewer below them than they were to have",
            acts.below_failed()
        );
    }
}

/// As this program calls.
fn application() -> ChannelBuilder {
    Channel::builder().name("trunkline drive").embedded(false).wait_for_ready(true)
}

/// Relays to the servers' daemon, for wires of these times.
fn relays(args: &DriveArgs, times: &[relay::WireTimes]) -> Result<Relays, String> {
    let found = args.to.strip_prefix("tcp://").and_then(|to| to.to_socket_addrs().ok()?.next());
    let to = match found {
        Some(to) => to,
        None if times.is_empty() => ([127, 0, 0, 1], 0).into(),
        None => return Err(format!("--to {}: --plant needs an address, as tcp://10.0.0.7:7878", args.to)),
    };
    Relays::start(to, times).map_err(|error| format!("no relays for --plant: {error}"))
}

/// Who makes calls, by the servers' address and by each relay.
fn callers(hosts: &[CallerHost], args: &DriveArgs, relays: &Relays) -> Vec<DrivenCaller> {
    let by = relays.addresses().iter().map(|address| format!("tcp://{address}"));
    let targets: Vec<String> = std::iter::once(args.to.clone()).chain(by).collect();
    let caller = |host: &CallerHost| {
        let client = |target: &String| Client::new(host.channel().target(target).connect_lazy());
        DrivenCaller {
            across: targets.iter().map(client).collect(),
            above: Client::new(host.channel().connect_lazy()),
        }
    };
    hosts.iter().map(caller).collect()
}

/// Serves the calls above at the daemons of the callers, all others at the servers': those of the file on threads of
/// their own, since of short handlers only some tell what they take, and a thread's handlers are short behind short
/// ones.
fn serve(hosts: &[CallerHost], args: &DriveArgs, acts: &Arc<Acts>) -> Result<Vec<ServerHandle>, String> {
    let service = |name: &str| ActService { name: name.to_owned(), acts: Arc::clone(acts) };
    let server = || Server::builder().name("trunkline drive").embedded(false);
    let tree = || server().add_opaque_service(service(TREE));
    let here = |host: &CallerHost| match &host.socket {
        Some(socket) => tree().socket(socket),
        None => tree(),
    };
    let mut servers: Vec<trunkline::ServerBuilder> = hosts.iter().map(here).collect();
    servers.push(tree().socket(&args.server_socket).workers(WORKERS));
    let mut there = server().socket(&args.server_socket).workers(WORKERS);
    let names = acts.calls.iter().filter_map(|call| call.path[1..].rsplit_once('/')).map(|(name, _)| name);
    for name in names.collect::<BTreeSet<_>>() {
        there = there.add_opaque_service(service(name));
    }
    servers.push(there);
    let start = |server: trunkline::ServerBuilder| {
        let handle = server.spawn().map_err(|status| status.to_string())?;
        let is_ready = acts.within(READY_MAX, handle.ready()).wait();
        let is_ready =
            is_ready.ok_or("a daemon does not take the services of this program: its log says more")?;
        is_ready.map_err(|status| status.to_string())?;
        Ok::<_, String>(handle)
    };
    servers.into_iter().map(start).collect()
}

/// Makes every call once, unless the recording of them is lost.
async fn make_all(acts: &Acts, args: &DriveArgs, is_lost: impl Fn() -> bool) -> Result<Driven, String> {
    acts.set_way_back(way_back(acts).await?);
    let order = order(&acts.calls);
    let begins = begins(&acts.calls, &order, args.rate);
    let began = Instant::now();
    let mut driven = Driven::default();
    let mut under_way = FuturesUnordered::new();
    let most = args.in_flight_max as usize;
    // Those above calls are made before them, and end behind them.
    let mut in_flight = 0;
    let mut told = std::io::stderr().is_terminal().then_some(began);
    for (place, (number, begins)) in order.into_iter().zip(begins).enumerate() {
        let mut due = pin!(acts.until(began + begins));
        poll_fn(|cx| {
            in_flight -= take_ended(&mut under_way, &mut driven, cx);
            // A chain that is longer than what may be is made alone.
            match in_flight == 0 || in_flight + chain(acts, number) <= most {
                true => due.as_mut().poll(cx),
                false => Poll::Pending,
            }
        })
        .await;
        if is_lost() {
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
    while !under_way.is_empty() && !is_lost() {
        let mut look = pin!(acts.until(Instant::now() + LOOK));
        poll_fn(|cx| {
            take_ended(&mut under_way, &mut driven, cx);
            if under_way.is_empty() { Poll::Ready(()) } else { look.as_mut().poll(cx) }
        })
        .await;
    }
    driven.took = began.elapsed();
    // A session says with its next call when the last answer was taken: as tasks, so that it is the one the calls had.
    let clients = acts.callers.iter().flat_map(|caller| [&caller.above, &caller.across[0]]);
    let mut last: FuturesUnordered<_> = clients.map(|to| acts.probe(to)).collect();
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
        match acts.probe(&acts.callers[0].across[0]).await {
            Code::Ok => took.push(began.elapsed()),
            code => return Err(format!("an empty call to the servers ended with {}", code.name())),
        }
    }
    took.sort_unstable();
    Ok(took[PROBES / 2] / 2)
}
