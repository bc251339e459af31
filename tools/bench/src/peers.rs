//! Everything that is measured: each peer is some processes, one of which takes orders.

use crate::chain::{self, Hops};
use crate::children::{Child, Failure, Talker, text, wait_for_file};
use crate::foreign::Foreign;
use crate::orders::{Answer, Order};
use crate::ours::{self, Hosts};
use crate::processes::cpu_ns;
use serde::Serialize;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Beyond an order's own time: the slowest peer here empties its queue in under a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum Kind {
    ChainRings,
    ChainTcp,
    OursOneHost,
    OursTwoHosts,
    Tcp,
    TcpOneBuffer,
    GrpcSync,
    GrpcUnix,
    GrpcQueue,
    Tonic,
}

impl Kind {
    /// Its name in reports and for `--only`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChainRings => "chain-rings",
            Self::ChainTcp => "chain-tcp",
            Self::OursOneHost => "trunkline-one-host",
            Self::OursTwoHosts => "trunkline-two-hosts",
            Self::Tcp => "tcp",
            Self::TcpOneBuffer => "tcp-one-buffer",
            Self::GrpcSync => "grpc-cpp",
            Self::GrpcUnix => "grpc-cpp-unix",
            Self::GrpcQueue => "grpc-cpp-queue",
            Self::Tonic => "tonic",
        }
    }

    /// What it is, for people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::ChainRings => "client – relay – server over bare rings, no RPC; waits as a daemon does",
            Self::ChainTcp => {
                "client – relay – TCP – relay – server over bare rings, no RPC; waits as a daemon does"
            }
            Self::OursOneHost => "client – daemon – server",
            Self::OursTwoHosts => "client – daemon – TCP – daemon – server",
            Self::Tcp => "one bare TCP stream, blocking, a reply per request; a place per request, filled",
            Self::TcpOneBuffer => {
                "one bare TCP stream, blocking, a reply per request; one buffer, never filled"
            }
            Self::GrpcSync => "gRPC C++ direct over TCP, synchronous server",
            Self::GrpcUnix => "gRPC C++ direct over a Unix socket, synchronous server",
            Self::GrpcQueue => "gRPC C++ direct over TCP, completion-queue server with one thread",
            Self::Tonic => "tonic direct over TCP, current-thread runtimes",
        }
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.name().to_owned()
    }
}

/// One round of one peer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    pub calls: u64,
    pub elapsed_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    /// Of all the peer's processes.
    pub cpu_ns: u64,
}

/// A running peer; its processes end when it is dropped.
pub struct Peer {
    pub kind: Kind,
    driver: Talker,
    pids: Vec<u32>,
    _others: Vec<Child>,
    _dir: TempDir,
}

impl Peer {
    /// Starts every process of it.
    pub fn start(kind: Kind, foreign: &Foreign) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let (others, mut driver) = processes(kind, dir.path(), foreign)?;
        let driver = Talker::start(&mut driver)?;
        let pids = others.iter().map(Child::pid).chain([driver.pid()]).collect();
        Ok(Self { kind, driver, pids, _others: others, _dir: dir })
    }

    /// One round.
    pub fn round(&mut self, order: Order) -> Result<Sample, Failure> {
        let before_ns = cpu_ns(&self.pids)?;
        let patience = PATIENCE + Duration::from_millis(order.millis);
        let answer: Answer = self.driver.ask(&order.to_string(), patience)?.parse()?;
        let cpu_ns = cpu_ns(&self.pids)?.saturating_sub(before_ns);
        if answer.calls == 0 {
            return Err("no call was answered".into());
        }
        let Answer { calls, elapsed_ns, p50_ns, p99_ns } = answer;
        Ok(Sample { calls, elapsed_ns, p50_ns, p99_ns, cpu_ns })
    }
}

/// Starts all of a peer but its driver, and says how that is started.
fn processes(kind: Kind, dir: &Path, foreign: &Foreign) -> Result<(Vec<Child>, Command), Failure> {
    match kind {
        Kind::ChainRings => chain_of(dir, Hops::Rings),
        Kind::ChainTcp => chain_of(dir, Hops::RingsAndTcp),
        Kind::OursOneHost => ours_on(dir, Hosts::One),
        Kind::OursTwoHosts => ours_on(dir, Hosts::Two),
        Kind::Tcp => tcp(dir, "filled"),
        Kind::TcpOneBuffer => tcp(dir, "one-buffer"),
        Kind::GrpcSync => foreign.grpc(dir, "sync", "127.0.0.1:0"),
        Kind::GrpcUnix => foreign.grpc(dir, "sync", &format!("unix:{}/grpc.sock", text(dir))),
        Kind::GrpcQueue => foreign.grpc(dir, "queue", "127.0.0.1:0"),
        Kind::Tonic => foreign.tonic(dir),
    }
}

fn chain_of(dir: &Path, hops: Hops) -> Result<(Vec<Child>, Command), Failure> {
    let (processes, near) = chain::start(dir, hops)?;
    Ok((processes, Child::role_command(&["drive-chain", text(&near)])?))
}

fn ours_on(dir: &Path, hosts: Hosts) -> Result<(Vec<Child>, Command), Failure> {
    let (processes, road) = ours::start(dir, hosts)?;
    Ok((processes, Child::role_command(&["drive-ours", text(&road.socket), &road.target])?))
}

fn tcp(dir: &Path, habits: &str) -> Result<(Vec<Child>, Command), Failure> {
    let port_file = dir.join("port");
    let sink = Child::role(&["sink", text(&port_file)])?;
    let port = wait_for_file(&port_file)?;
    Ok((vec![sink], Child::role_command(&["drive-tcp", &port, habits])?))
}
