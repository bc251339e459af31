//! Trunkline's daemons, each a process with a configuration of its own, and the servers and gateways at them.

use super::data::policies;
use super::ours::OurClient;
use crate::harness::children::{
    Child, Failure, Serving, free_port, role, stay, text, wait_for_file, wait_until_it_listens, write_file,
};
use crate::harness::work::{Work, word};
use std::path::{Path, PathBuf};
use trunkline_daemon::{Config, Daemon};

/// Heaps of the measured sessions: 32 requests of 8 MB, or 128 of 2 MB, under way and as much again.
pub const HEAP: &str = "512 MiB";
/// Methods of an application when it is asked how a call's cost grows with them.
const ROUTES_MAX: usize = 16 << 10;
/// Where a daemon listens for others.
pub const LISTEN: &str = "listen = [\"tcp://127.0.0.1:0\"]\n";

/// What has been started of a peer, from the server on: whom the next in front calls, and by way of which daemon. The
/// process that is called is the first.
pub struct Started {
    pub processes: Vec<Child>,
    pub address: String,
    pub socket: PathBuf,
}

impl Started {
    /// One process that is called at an address.
    pub fn of((process, address): Serving) -> Self {
        Self { processes: vec![process], address, socket: PathBuf::new() }
    }
}

/// A daemon's process, and where it is.
pub struct HostProcess {
    pub process: Child,
    pub socket: PathBuf,
    pub endpoints: Vec<String>,
}

/// That of endpoints which is over TCP, without the scheme.
pub fn tcp(endpoints: &[String]) -> Result<&str, Failure> {
    let tcp = endpoints.iter().find_map(|endpoint| endpoint.strip_prefix("tcp://"));
    tcp.ok_or_else(|| "the daemon does not listen at TCP".into())
}

/// A daemon's configuration, in a file: `keys` are of its first table, and `rest` is what follows that.
pub fn configure(dir: &Path, name: &str, keys: &str, rest: &str) -> Result<(PathBuf, PathBuf), Failure> {
    let (socket, file) = (dir.join(format!("{name}.sock")), dir.join(format!("{name}.toml")));
    write_file(&file, &format!("[daemon]\nsocket = {:?}\n{keys}{rest}", text(&socket)))?;
    Ok((file, socket))
}

/// Starts a daemon so configured.
pub fn start_host(dir: &Path, name: &str, keys: &str, rest: &str) -> Result<HostProcess, Failure> {
    let (file, socket) = configure(dir, name, keys, rest)?;
    let endpoints_file = dir.join(format!("{name}.endpoints"));
    let process = role(&["daemon", text(&file), text(&endpoints_file)])?;
    let endpoints = wait_for_file(&endpoints_file)?.lines().map(str::to_owned).collect();
    Ok(HostProcess { process, socket, endpoints })
}

/// Starts a daemon as most are measured: with such heaps, no policies, for others to call.
pub fn start_daemon(dir: &Path, name: &str, heap: &str) -> Result<HostProcess, Failure> {
    start_host(dir, name, LISTEN, &rest(heap, false, "bare")?)
}

/// What is said of sessions, of gRPC towards others (`always` or not), and of policies.
pub fn rest(heap: &str, grpc: bool, policies_named: &str) -> Result<String, Failure> {
    let policies = policies(policies_named)?;
    Ok(format!(
        "[sessions]\nheap_bytes = {heap:?}\n[limits]\nroutes_per_session = {ROUTES_MAX}\n[grpc]\nalways = {grpc}\n\
         {policies}"
    ))
}

/// The daemon process; writes where it listens to a file, a line for each endpoint.
pub fn daemon(config: &Path, endpoints_file: &Path) -> Result<(), Failure> {
    let daemon = Daemon::start(Config::from_toml(&std::fs::read_to_string(config)?, "bench")?)?;
    write_file(endpoints_file, &daemon.endpoints().join("\n"))?;
    stay()
}

/// Starts daemons with such policies and a server of `work` in `dir`: on one host, on two, or on two that speak gRPC
/// with each other.
pub fn start(dir: &Path, hosts: &str, policies: &str, work: Work) -> Result<Started, Failure> {
    start_with(dir, hosts, policies, |socket| role(&["serve", text(socket), &word(work)]))
}

/// The same with another server, started at the socket of its daemon.
pub fn start_with(
    dir: &Path,
    hosts: &str,
    policies: &str,
    serve: impl FnOnce(&Path) -> Result<Child, Failure>,
) -> Result<Started, Failure> {
    // That one is for requests as they leave.
    let at_server = if policies == "content" { "bare" } else { policies };
    let far = start_host(dir, "far", LISTEN, &rest(HEAP, false, at_server)?)?;
    let target = far.endpoints.first().ok_or("the daemon listens nowhere")?.clone();
    let server = serve(&far.socket)?;
    let processes = vec![far.process, server];
    if hosts == "one-host" {
        return Ok(Started { processes, address: String::new(), socket: far.socket });
    }
    let near = start_host(dir, "near", LISTEN, &rest(HEAP, hosts == "two-hosts-by-grpc", policies)?)?;
    let processes = processes.into_iter().chain([near.process]).collect();
    Ok(Started { processes, address: target, socket: near.socket })
}

/// Starts a daemon and a server in `dir`, for gRPC clients: the daemon is the first process.
pub fn start_for_grpc(dir: &Path) -> Result<Started, Failure> {
    let Started { processes, socket, .. } = start(dir, "one-host", "bare", Work::Bytes)?;
    let address = wait_for_file(&dir.join("far.endpoints"))?.trim_start_matches("tcp://").to_owned();
    // A call from this very process: gRPC's libraries take the first UNIMPLEMENTED for an answer.
    OurClient::connect(&socket, "", Work::Bytes)?;
    Ok(Started { processes, address, socket })
}

/// Starts a daemon in `dir` whose gateway leads to the server at `address`; returns where clients reach it.
pub fn start_gateway(dir: &Path, name: &str, address: &str) -> Result<Serving, Failure> {
    let listens_at = free_port()?;
    let rest = format!(
        "[gateway]\nlisten = [\"tcp://{listens_at}\"]\n\
         [services.\"bench.v1.Bench\"]\nendpoints = [\"tcp://{address}\"]\n"
    );
    wait_until_it_listens(start_host(dir, name, "", &rest)?.process, listens_at)
}
