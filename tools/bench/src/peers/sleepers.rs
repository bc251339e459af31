//! Workers whose handlers sleep for as long as they are told, one call at a time, and the routers in front of them.
//! A worker is a host of its own, a daemon and a server in one process, or a server at somebody else's daemon.

use super::hosts::{self, LISTEN};
use crate::harness::children::{Failure, Talker, role_command, stay, text, wait_for_file, write_file};
use crate::harness::orders::answer_lines;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use trunkline::{Incoming, Response, Sender, Server, Status, Wait};
use trunkline_daemon::{Config, Daemon};
use trunkline_r2p2::RouterConfig;
use trunkline_router::{Forwarding, RouterProcess, Settings};

/// Generated from `proto/sleep.proto`.
pub mod proto {
    trunkline::include_proto!("sleep.v1");

    pub use sleep_client::SleepClient;
}

use proto::sleep_server::{Sleep, SleepServer};
use proto::{Slept, Span};

const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
/// Never reached here: what is compared is who waits where, not who is refused.
const DELAY_NS_MAX: u64 = 30_000_000_000;
/// Longer than anything waits at a worker here.
const LEASE_NS: u64 = 60_000_000_000;

/// Starts a worker in `dir` at the socket of a daemon, or as a host of its own, with what is said there of R2P2. With
/// the endpoints of its own daemon.
pub fn start(
    dir: &Path,
    name: &str,
    daemon: Option<&Path>,
    r2p2: &str,
    threads: usize,
    slow_us: u64,
) -> Result<(Talker, Vec<String>), Failure> {
    let (config, socket) = match daemon {
        Some(socket) => ("none".into(), socket.to_owned()),
        None => hosts::configure(dir, name, &format!("node = {name:?}\n{LISTEN}"), r2p2)?,
    };
    let (file, [threads, slow_us]) = (dir.join(name), [threads as u64, slow_us].map(|n| n.to_string()));
    let role = ["sleeper", text(&config), text(&file), text(&socket), &threads, &slow_us];
    let worker = Talker::start(&mut role_command(&role)?)?;
    Ok((worker, wait_for_file(&file)?.lines().map(str::to_owned).collect()))
}

/// A worker's process: a daemon, if it is given a configuration, and a server with so many threads at `socket`, whose
/// calls take `slow_us` longer than they are told. Writes the daemon's endpoints to a file, a line for each, and says
/// on every line of its input how many calls it has seen.
pub fn sleeper(
    [config, endpoints_file, socket]: [&Path; 3],
    threads: usize,
    slow_us: u64,
) -> Result<(), Failure> {
    let text = std::fs::read_to_string(config).ok();
    let daemon = text.map(|text| Daemon::start(Config::from_toml(&text, "bench")?).map_err(Failure::from));
    let daemon = daemon.transpose()?;
    // Sleeps are as short as they are told, not 50 µs longer.
    let exact = |run: &mut dyn FnMut()| {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        run();
    };
    let seen = Arc::new(AtomicU64::new(0));
    let service = Sleeper { slow: Duration::from_micros(slow_us), seen: Arc::clone(&seen) };
    let server = Server::builder().socket(socket).name("sleeper").worker_scope(exact);
    let server = server.add_service(SleepServer::new(service)).workers(threads).spawn()?;
    server.ready().wait()?;
    let endpoints = daemon.as_ref().map_or(&[][..], Daemon::endpoints);
    write_file(endpoints_file, &endpoints.join("\n"))?;
    answer_lines(|_| Ok(seen.load(Ordering::Relaxed)))?;
    stay()
}

struct Sleeper {
    /// Takes so much longer than it is told.
    slow: Duration,
    seen: Arc<AtomicU64>,
}

impl Sleeper {
    /// Blocks its thread, so that the worker has nothing else in work meanwhile.
    fn sleep(&self, request: &Incoming<Span>) -> Slept {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        std::thread::sleep(Duration::from_nanos(request.view().ns()) + self.slow);
        Slept { ns: began.elapsed().as_nanos().try_into().unwrap_or(u64::MAX) }
    }
}

impl Sleep for Sleeper {
    async fn nap(&self, request: Incoming<Span>) -> Result<Response<Slept>, Status> {
        Ok(Response::new(self.sleep(&request)))
    }

    async fn nap_in_turn(&self, request: Incoming<Span>, mut out: Sender<Slept>) -> Result<(), Status> {
        out.send(self.sleep(&request)).await
    }
}

/// A process with a router for each policy, each on a thread of its own; writes a line for each to a file: where
/// clients send, and where workers do.
pub fn routers(port_file: &Path, policies: &[&str]) -> Result<(), Failure> {
    let mut lines = String::new();
    for policy in policies {
        let router = RouterConfig {
            policy: policy.parse().map_err(|error| format!("{policy}: {error}"))?,
            join_from: vec![(Ipv4Addr::LOCALHOST, 8)],
            delay_ns_max: DELAY_NS_MAX,
            lease_ns: LEASE_NS,
            ..RouterConfig::default()
        };
        let settings = Settings {
            listen: ANY,
            control: ANY,
            forwarding: Forwarding::Auto,
            flows_max: Settings::FLOWS_MAX,
            keys: None,
            router,
        };
        let process = RouterProcess::start(settings)?;
        let [listen, control] = process.addresses()?;
        lines += &format!("{listen} {control}\n");
        std::thread::Builder::new()
            .name(format!("router {policy}"))
            .spawn(move || process.run(&AtomicBool::new(false)))?;
    }
    write_file(port_file, &lines)?;
    stay()
}
