//! The parts the binary plays, and the lines it is ordered about with: one order, one answer.

mod floods;
mod forks;
mod relay;
mod router;
mod soaks;
pub mod upgrade;

use crate::handler::{Echoes, Handler};
use crate::journal::Journal;
use crate::proto::newer::notes_server::NotesServer as NewerNotes;
use crate::proto::older::notes_server::NotesServer as OlderNotes;
use crate::proto::probe::order::Task;
use crate::proto::probe::probe_server::ProbeServer;
use crate::proto::probe::{Order, Text};
use crate::scenario::{self, Stage};
use crate::skew::Notes;
use floods::Floods;
use rustix::process::Pid;
use soaks::Soaks;
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use trunkline::{Channel, Request, Response, Server, ServerBuilder, ServerHandle, Status, Wait};
use trunkline_daemon::{Config, Daemon, GrpcServices};
use trunkline_telemetry::Ask;
use upgrade::Dies;

/// Environment variable: where clients' calls go; nowhere in particular if it is not set.
pub const TARGET_VARIABLE: &str = "PROBE_TARGET";

/// Environment variable: the file a server writes the numbers of executed orders to.
pub const LOG_VARIABLE: &str = "PROBE_LOG";

/// The parts.
const PARTS: &str = "daemon CONFIG | healthy CONFIG | relay CONFIG [LISTEN] | router LISTEN CONTROL | server | \
     failing | hanging | older | newer | client | both | forker | forker-embedded";

/// Plays the part named by `arguments`.
///
/// # Errors
/// What kept it from starting, in words.
pub fn play(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["daemon", config] => daemon(config, None, false),
        ["daemon", config, "--take-over", descriptor] => daemon(config, Some(descriptor), false),
        ["healthy", config] => daemon(config, None, true),
        ["healthy", config, "--take-over", descriptor] => daemon(config, Some(descriptor), true),
        ["stubborn", how, descriptor] => upgrade::stubborn(how, descriptor),
        ["server"] => server(&start_server(Echoes::Answers)?),
        ["failing"] => server(&start_server(Echoes::Fails)?),
        ["hanging"] => server(&start_server(Echoes::Hangs)?),
        ["older"] => server(&start(Server::builder().add_service(OlderNotes::new(Notes)))?),
        ["newer"] => server(&start(Server::builder().add_service(NewerNotes::new(Notes)))?),
        ["relay", config] => relay::relay(config, None),
        ["relay", config, listen] => relay::relay(config, Some(listen)),
        ["router", listen, control] => router::router(listen, control),
        ["client"] => client(),
        ["both"] => {
            let _server = start_server(Echoes::Answers)?;
            client()
        }
        ["forker"] => forks::forker(false),
        ["forker-embedded"] => {
            let _server = start_server(Echoes::Answers)?;
            forks::forker(true)
        }
        _ => Err(PARTS.to_owned()),
    }
}

/// Answers every order until there are no more, beginning with `greeting`. An empty answer ends it.
///
/// # Errors
/// Orders cannot be read, or answers written.
pub fn converse(greeting: &str, mut answer: impl FnMut(&str) -> String) -> Result<(), String> {
    say(greeting)?;
    for order in std::io::stdin().lock().lines() {
        let order = order.map_err(|error| error.to_string())?;
        say(&answer(&order))?;
    }
    Ok(())
}

fn say(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", line.replace('\n', "\\n"))
        .and_then(|()| out.flush())
        .map_err(|error| error.to_string())
}

/// A daemon; `healthy`: one that answers probes of its health.
fn daemon(path: &str, take_over: Option<&str>, healthy: bool) -> Result<(), String> {
    let (config, part) = (path, if healthy { "healthy" } else { "daemon" });
    let text = std::fs::read_to_string(config).map_err(|error| format!("{config}: {error}"))?;
    let config = Config::from_toml(&text, config).map_err(|error| error.to_string())?;
    let (daemon, greeting) = match take_over {
        None => {
            let daemon = Daemon::start(config).map_err(|error| error.to_string())?;
            let greeting = format!("ready {}", daemon.endpoints().join(" "));
            (daemon, greeting)
        }
        Some(descriptor) => upgrade::take_over(config, descriptor)?,
    };
    let daemon = Arc::new(daemon);
    let _services = if healthy { Some(serve_health(&daemon)?) } else { None };
    converse(&greeting, |order| match order.split(' ').collect::<Vec<_>>().as_slice() {
        ["observe"] => observed(&daemon),
        ["route", service, endpoint] => {
            daemon.configure_service(service, &[(*endpoint).to_owned()]);
            "routed".into()
        }
        ["policies", file] => policies(&daemon, file).unwrap_or_else(|why| why),
        ["shards"] => shards(&daemon),
        ["move", application, to] => match to.parse().map(|to| daemon.move_application(application, to)) {
            Ok(Ok(moved)) => format!("moved {moved}"),
            Ok(Err(why)) => why,
            Err(_) => format!("no number of a shard: {to}"),
        },
        ["replace"] => upgrade::replace(&daemon, &[part, path, "--take-over"]),
        ["replace-within", descriptors] => {
            upgrade::replace_within(&daemon, descriptors, &[part, path, "--take-over"])
        }
        ["replace-and-kill", who, when] => {
            let other = who.parse().ok().and_then(Pid::from_raw).map(Dies::Other);
            let dies = other.unwrap_or(if *who == "old" { Dies::Old } else { Dies::New });
            upgrade::replace_and_kill(&daemon, &[part, path, "--take-over"], dies, when)
        }
        ["replace-by", how] => upgrade::replace(&daemon, &["stubborn", how]),
        ["replace-with", config] => upgrade::replace(&daemon, &[part, config, "--take-over"]),
        ["drain"] => {
            daemon.drain();
            "draining".into()
        }
        _ => format!("no such order: {order}"),
    })
}

/// Has a daemon answer `grpc.health.v1.Health`, as the binary does.
fn serve_health(daemon: &Arc<Daemon>) -> Result<ServerHandle, String> {
    let path = daemon.control_path().ok_or("a daemon without a control socket")?;
    let wanted = GrpcServices { reflection: false, channelz: false, orca: false, ..GrpcServices::default() };
    let server = Server::builder().name("grpc services").socket(path).stand_by();
    start(trunkline_services::add_to(server, &Arc::downgrade(daemon), &wanted))
}

/// Puts the chain in a file to work, and says how many modules were upgraded.
fn policies(daemon: &Daemon, file: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let definitions = Config::policies_from_toml(&text, file).map_err(|error| error.to_string())?;
    let upgraded = daemon.apply_policies(&definitions, false).map_err(|error| error.to_string())?;
    Ok(format!("applied, {} upgraded", upgraded.len()))
}

/// What a daemon holds, as `name=number` words.
fn observed(daemon: &Daemon) -> String {
    let mut sums = [0_u64; 9];
    for shard in daemon.observe(&Ask::default()) {
        sums[0] += shard.snapshot.calls as u64;
        sums[1] += shard.snapshot.sessions.len() as u64;
        sums[8] += shard.snapshot.remotes.len() as u64;
        for session in &shard.snapshot.sessions {
            sums[2] += session.calls_made as u64;
            sums[3] += session.calls_delivered as u64;
            sums[4] += (session.completions_queued + session.parked) as u64;
            sums[5] += session.receive_heap_bytes;
        }
        for peer in &shard.snapshot.peers {
            sums[6] += peer.streams as u64;
            sums[7] += peer.queued_bytes;
        }
    }
    let names = [
        "calls",
        "sessions",
        "made",
        "delivered",
        "queued",
        "heap_bytes",
        "streams",
        "peer_bytes",
        "endpoints",
    ];
    let words: Vec<String> = names.iter().zip(sums).map(|(name, sum)| format!("{name}={sum}")).collect();
    words.join(" ")
}

/// The shards that have threads, and the applications of each: `0=probe[7],probe[9] 1=`.
fn shards(daemon: &Daemon) -> String {
    let observed = daemon.observe(&Ask::default()).into_iter().enumerate();
    let words = observed.filter(|(_, shard)| shard.has_thread).map(|(index, shard)| {
        let labels: Vec<String> = shard.snapshot.sessions.into_iter().map(|row| row.label).collect();
        format!("{index}={}", labels.join(","))
    });
    words.collect::<Vec<_>>().join(" ")
}

fn start_server(echoes: Echoes) -> Result<ServerHandle, String> {
    let journal = match std::env::var_os(LOG_VARIABLE) {
        None => Journal::default(),
        Some(path) => {
            let log = OpenOptions::new().create(true).append(true).open(path);
            Journal::with_log(log.map_err(|error| error.to_string())?)
        }
    };
    let handler = Handler::new(journal, Channel::local(), echoes);
    start(Server::builder().add_service(ProbeServer::new(handler)).workers(2))
}

fn start(builder: ServerBuilder) -> Result<ServerHandle, String> {
    let server = builder.spawn().map_err(|status| status.to_string())?;
    server.ready().wait().map_err(|status| status.to_string())?;
    Ok(server)
}

fn server(server: &ServerHandle) -> Result<(), String> {
    converse("ready", |order| match order {
        "stop" => match server.shutdown(Duration::from_secs(20)).wait() {
            Ok(()) => "stopped".into(),
            Err(status) => status.to_string(),
        },
        "leave a child" => forks::leave_child(),
        _ => format!("no such order: {order}"),
    })
}

fn client() -> Result<(), String> {
    let target = std::env::var(TARGET_VARIABLE).unwrap_or_default();
    let channel = Channel::builder().target(&target).connect_lazy();
    let stage = Stage::new(channel.clone(), &format!("client {}", std::process::id()));
    let mut soaks = Soaks::default();
    let mut floods = Floods::default();
    let mut begun: HashMap<String, JoinHandle<String>> = HashMap::new();
    converse("ready", |order| match order.split_once(' ').unwrap_or((order, "")) {
        ("scenario", name) => scenario_named(&stage, name),
        ("echo", text) => outcome(stage.client().echo(Text { text: text.to_owned() }).wait()),
        ("echo-when-ready", text) => {
            let request = Request::new(Text { text: text.to_owned() }).wait_for_ready();
            outcome(stage.client().echo(request.with_timeout(scenario::WATCHDOG)).wait())
        }
        ("hang", label) => begin(&mut begun, &stage, label, Task::Hang(true)),
        ("chain", links) => match links.parse() {
            Ok(links) => begin(&mut begun, &stage, "chain", Task::Chain(links)),
            Err(_) => format!("no number of calls: {links}"),
        },
        ("flood", bytes) => floods.begin(stage.client(), bytes),
        ("flood-ends", _) => std::mem::take(&mut floods).end(),
        ("soak", order) => soaks.begin(&channel, order),
        ("soak-look", _) => soaks.look(),
        ("join", label) => match begun.remove(label).map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => "it panicked".into(),
            None => "nothing of that name was begun".into(),
        },
        _ => format!("no such order: {order}"),
    })
}

/// Makes a call on a thread of its own, to be asked about by its label.
fn begin(begun: &mut HashMap<String, JoinHandle<String>>, stage: &Stage, label: &str, task: Task) -> String {
    let stage = stage.clone();
    let order = Order { label: label.to_owned(), task: Some(task) };
    begun.insert(label.to_owned(), std::thread::spawn(move || outcome(stage.client().r#do(order).wait())));
    "begun".into()
}

fn scenario_named(stage: &Stage, name: &str) -> String {
    let Some((_, run)) = scenario::ALL.iter().find(|(known, _)| *known == name) else {
        return format!("no such scenario: {name}");
    };
    match catch_unwind(AssertUnwindSafe(|| run(stage))) {
        Ok(Ok(said)) => format!("ok: {said}"),
        Ok(Err(status)) => format!("failed: {status} {:?}", status.execution()),
        Err(_) => "panicked; see standard error".into(),
    }
}

/// How a call ended, in a line.
pub fn outcome<M>(result: Result<Response<M>, Status>) -> String {
    match result {
        Ok(_) => "OK".into(),
        Err(status) => format!("{} {:?}: {}", status.code(), status.execution(), status.message()),
    }
}
