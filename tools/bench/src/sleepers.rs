//! Workers whose handlers sleep for as long as they are told, one call at a time, and the routers in front of them.
//! Each worker is a host of its own: a daemon that takes calls as datagrams and over gRPC, and a server with one
//! thread.

use crate::children::{Failure, text, write_file};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use trunkline::{Incoming, Response, Sender, Server, ServerBuilder, Status, Wait};
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
/// Calls a counted worker has at work at once: more than ever are.
const COUNTED_THREADS: usize = 8;
/// Longer than anything waits at a worker here.
const LEASE_NS: u64 = 60_000_000_000;

/// A worker's process; writes its endpoints to a file. `routers`: control ports, separated by commas.
pub fn sleeper(dir: &Path, name: &str, routers: &str) -> Result<(), Failure> {
    let socket = dir.join(format!("{name}.sock"));
    let routers: Vec<&str> = routers.split(',').collect();
    let config = format!(
        "[daemon]\nnode = {name:?}\nsocket = {:?}\nlisten = [\"tcp://127.0.0.1:0\"]\n\
         [r2p2]\nlisten = \"127.0.0.1:0\"\nmode = \"extended\"\nrouters = {routers:?}\nslots = 1\n",
        text(&socket)
    );
    let daemon = Daemon::start(Config::from_toml(&config, "bench")?)?;
    write_file(&dir.join(name), &daemon.endpoints().join(" "))?;
    Ok(server(&socket, name, Sleeper::default()).run()?)
}

/// A worker's process that says on every line of its input how many calls it has seen. Each takes `slow_us` longer than
/// it is told; several are at work at once. Writes its endpoint to a file.
pub fn counted_sleeper(dir: &Path, name: &str, slow_us: u64) -> Result<(), Failure> {
    let socket = dir.join(format!("{name}.sock"));
    let config = format!(
        "[daemon]\nnode = {name:?}\nsocket = {:?}\nlisten = [\"tcp://127.0.0.1:0\"]\n",
        text(&socket)
    );
    let daemon = Daemon::start(Config::from_toml(&config, "bench")?)?;
    let sleeper = Sleeper { slow: Duration::from_micros(slow_us), seen: Arc::default() };
    let seen = Arc::clone(&sleeper.seen);
    let server = server(&socket, name, sleeper).workers(COUNTED_THREADS).spawn()?;
    server.ready().wait()?;
    write_file(&dir.join(name), &daemon.endpoints().join(" "))?;
    for line in std::io::stdin().lines() {
        line?;
        let mut output = std::io::stdout().lock();
        writeln!(output, "{}", seen.load(Ordering::Relaxed))?;
        output.flush()?;
    }
    Ok(())
}

/// A daemon's process with a configuration of its own.
pub fn configured_daemon(config: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(config)?;
    let _daemon = Daemon::start(Config::from_toml(&text, "bench")?)?;
    loop {
        std::thread::park();
    }
}

/// A server with so many threads at the daemon at `socket`: workers of one host.
pub fn sleepers_here(socket: &Path, threads: usize) -> Result<(), Failure> {
    Ok(server(socket, "here", Sleeper::default()).workers(threads).run()?)
}

/// A server whose sleeps are as short as they are told, not 50 µs longer.
fn server(socket: &Path, name: &str, sleeper: Sleeper) -> ServerBuilder {
    let exact = |run: &mut dyn FnMut()| {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        run();
    };
    Server::builder().socket(socket).name(name).worker_scope(exact).add_service(SleepServer::new(sleeper))
}

#[derive(Default)]
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
        let settings = Settings { listen: ANY, control: ANY, forwarding: Forwarding::Auto, router };
        let process = RouterProcess::start(settings)?;
        let [listen, control] = process.addresses()?;
        lines += &format!("{listen} {control}\n");
        std::thread::Builder::new()
            .name(format!("router {policy}"))
            .spawn(move || process.run(&AtomicBool::new(false)))?;
    }
    write_file(port_file, &lines)?;
    loop {
        std::thread::park();
    }
}
