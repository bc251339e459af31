//! Everything that is measured: each peer is some processes, one of which takes orders.

use crate::chain::{self, Hops};
use crate::children::{Child, Failure, Talker, text, wait_for_file};
use crate::foreign::{ANY_PORT, Foreign, Library, Serving};
use crate::orders::{Answer, Order};
use crate::ours::{self, Hosts, Policing, Road};
use crate::processes::{Machine, cpu_ns};
use crate::sections::Section;
use crate::work::Work;
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
    GrpcGo,
    CapNProto,
    Thrift,
    ThriftCorked,
    EnvoyOne,
    EnvoyTwo,
    NginxTwo,
    HaproxyTwo,
    GatewayOne,
    GatewayTwo,
    GatewayToOurs,
    TonicGateway,
    CppToOurs,
    GoToOurs,
    OursToCpp,
    OursToGo,
    OursGrpcTwoHosts,
    OursNull,
    OursContent,
    OursUnrecorded,
    OursOneHostUnrecorded,
    EnvoyContent,
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
            Self::GrpcGo => "grpc-go",
            Self::CapNProto => "capnproto",
            Self::Thrift => "thrift",
            Self::ThriftCorked => "thrift-corked",
            Self::EnvoyOne => "envoy-one",
            Self::EnvoyTwo => "envoy-two",
            Self::NginxTwo => "nginx-two",
            Self::HaproxyTwo => "haproxy-two",
            Self::GatewayOne => "gateway-one",
            Self::GatewayTwo => "gateway-two",
            Self::GatewayToOurs => "gateway-to-trunkline",
            Self::TonicGateway => "tonic-gateway",
            Self::CppToOurs => "grpc-cpp-to-trunkline",
            Self::GoToOurs => "grpc-go-to-trunkline",
            Self::OursToCpp => "trunkline-to-grpc-cpp",
            Self::OursToGo => "trunkline-to-grpc-go",
            Self::OursGrpcTwoHosts => "trunkline-two-hosts-grpc",
            Self::OursNull => "trunkline-null-policy",
            Self::OursContent => "trunkline-content-policy",
            Self::OursUnrecorded => "trunkline-two-hosts-unrecorded",
            Self::OursOneHostUnrecorded => "trunkline-one-host-unrecorded",
            Self::EnvoyContent => "envoy-two-content-filter",
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
            Self::GrpcGo => "grpc-go direct over TCP",
            Self::CapNProto => "Cap'n Proto RPC direct over TCP, an event loop on each side",
            Self::Thrift => {
                "Thrift direct over TCP, framed binary; many at once are sent one behind the other"
            }
            Self::ThriftCorked => "the same, written by the application only when there is nothing to read",
            Self::EnvoyOne => "gRPC C++ client – Envoy – gRPC C++ server",
            Self::EnvoyTwo => "gRPC C++ client – Envoy – Envoy – gRPC C++ server, as two sidecars",
            Self::NginxTwo => "gRPC C++ client – nginx – nginx – gRPC C++ server",
            Self::HaproxyTwo => "gRPC C++ client – HAProxy – HAProxy – gRPC C++ server",
            Self::GatewayOne => "gRPC C++ client – gateway – gRPC C++ server",
            Self::GatewayTwo => "gRPC C++ client – gateway – gateway – gRPC C++ server",
            Self::GatewayToOurs => "gRPC C++ client – gateway – TCP – daemon – Trunkline server",
            Self::TonicGateway => "tonic client – gateway – tonic server, current-thread runtimes",
            Self::CppToOurs => "gRPC C++ client – daemon – Trunkline server",
            Self::GoToOurs => "grpc-go client – daemon – Trunkline server",
            Self::OursToCpp => "Trunkline client – daemon – gRPC C++ server",
            Self::OursToGo => "Trunkline client – daemon – grpc-go server",
            Self::OursGrpcTwoHosts => "client – daemon – gRPC over TCP – daemon – server",
            Self::OursNull => {
                "client – daemon – TCP – daemon – server, a policy on each side that does nothing"
            }
            Self::OursContent => {
                "client – daemon – TCP – daemon – server, a policy on a field at the client's"
            }
            Self::OursUnrecorded => "client – daemon – TCP – daemon – server, finished calls not recorded",
            Self::OursOneHostUnrecorded => "client – daemon – server, finished calls not recorded",
            Self::EnvoyContent => {
                "gRPC C++ client – Envoy – Envoy – gRPC C++ server, a filter (Lua) that parses the message at the \
                 client's"
            }
        }
    }
}

impl Kind {
    /// Whether something on the way refuses what bears a certain name.
    pub fn refuses(self) -> bool {
        matches!(self, Self::OursContent | Self::EnvoyContent)
    }

    /// What of the field's it needs.
    pub fn library(self) -> &'static [Library] {
        match self {
            Self::ChainRings | Self::ChainTcp | Self::OursOneHost | Self::OursTwoHosts => &[],
            Self::OursUnrecorded | Self::OursOneHostUnrecorded => &[],
            Self::Tcp | Self::TcpOneBuffer | Self::OursGrpcTwoHosts | Self::OursNull | Self::OursContent => {
                &[]
            }
            Self::GatewayOne | Self::GatewayTwo | Self::GatewayToOurs => &[Library::GrpcCpp],
            Self::GrpcSync | Self::GrpcUnix | Self::GrpcQueue | Self::CppToOurs | Self::OursToCpp => {
                &[Library::GrpcCpp]
            }
            Self::Tonic | Self::TonicGateway => &[Library::Tonic],
            Self::GrpcGo | Self::GoToOurs | Self::OursToGo => &[Library::GrpcGo],
            Self::CapNProto => &[Library::CapNProto],
            Self::Thrift | Self::ThriftCorked => &[Library::Thrift],
            Self::EnvoyOne | Self::EnvoyTwo | Self::EnvoyContent => &[Library::GrpcCpp, Library::Envoy],
            Self::NginxTwo => &[Library::GrpcCpp, Library::Nginx],
            Self::HaproxyTwo => &[Library::GrpcCpp, Library::Haproxy],
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
    /// Percent of the machine's processors that the machine's host gave to others meanwhile, and that other processes
    /// took.
    pub lost_percent: [f64; 2],
}

/// A running peer; its processes end when it is dropped.
pub struct Peer {
    pub kind: Kind,
    drivers: Vec<Talker>,
    pids: Vec<u32>,
    _others: Vec<Child>,
    _dir: TempDir,
}

impl Peer {
    /// Starts every process of it. With one call at once, gRPC C++ serves what does not say its form with its
    /// synchronous server, else with its queue server: the better one each time.
    pub fn start(
        section: Section,
        kind: Kind,
        foreign: &Foreign,
        outstanding: usize,
    ) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let form = if outstanding == 1 { "sync" } else { "queue" };
        let (others, mut driver) = processes(kind, form, section.work(kind), dir.path(), foreign)?;
        let drivers: Result<Vec<_>, Failure> =
            (0..section.clients()).map(|_| Talker::start(&mut driver)).collect();
        let drivers = drivers?;
        let pids = others.iter().map(Child::pid).chain(drivers.iter().map(Talker::pid)).collect();
        Ok(Self { kind, drivers, pids, _others: others, _dir: dir })
    }

    /// One round.
    pub fn round(&mut self, order: Order) -> Result<Sample, Failure> {
        let (before, before_ns) = (Machine::now()?, cpu_ns(&self.pids)?);
        for driver in &mut self.drivers {
            driver.tell(&order.to_string())?;
        }
        let patience = PATIENCE + Duration::from_millis(order.millis);
        let mut sum = Answer { calls: 0, elapsed_ns: 0, p50_ns: 0, p99_ns: 0 };
        for driver in &mut self.drivers {
            sum = sum.beside(driver.hear(patience)?.parse()?);
        }
        let cpu_ns = cpu_ns(&self.pids)?.saturating_sub(before_ns);
        if sum.calls == 0 {
            return Err("no call was answered".into());
        }
        let Answer { calls, elapsed_ns, p50_ns, p99_ns } = sum;
        let lost_percent = Machine::now()?.lost_since(before, cpu_ns);
        Ok(Sample { calls, elapsed_ns, p50_ns, p99_ns, cpu_ns, lost_percent })
    }
}

/// Processes, and how the driver is started.
type Started = (Vec<Child>, Command);

/// Starts all of a peer but its drivers, and says how those are started.
fn processes(kind: Kind, form: &str, work: Work, dir: &Path, foreign: &Foreign) -> Result<Started, Failure> {
    let (one, two): (&[_], &[_]) = (&["in"], &["in", "out"]);
    match kind {
        Kind::ChainRings => chain_of(dir, Hops::Rings),
        Kind::ChainTcp => chain_of(dir, Hops::RingsAndTcp),
        Kind::OursOneHost => ours_on(dir, Hosts::One, Policing::Bare, work),
        Kind::OursTwoHosts => ours_on(dir, Hosts::Two, Policing::Bare, work),
        Kind::OursGrpcTwoHosts => ours_on(dir, Hosts::TwoByGrpc, Policing::Bare, work),
        Kind::OursNull => ours_on(dir, Hosts::Two, Policing::Null, work),
        Kind::OursContent => ours_on(dir, Hosts::Two, Policing::Content, work),
        Kind::OursUnrecorded => ours_on(dir, Hosts::Two, Policing::Unrecorded, work),
        Kind::OursOneHostUnrecorded => ours_on(dir, Hosts::One, Policing::Unrecorded, work),
        Kind::Tcp => tcp(dir, "filled"),
        Kind::TcpOneBuffer => tcp(dir, "one-buffer"),
        Kind::GrpcSync => cpp(dir, foreign, "sync", ANY_PORT, work),
        Kind::GrpcUnix => cpp(dir, foreign, "sync", &format!("unix:{}/grpc.sock", text(dir)), work),
        Kind::GrpcQueue => cpp(dir, foreign, "queue", ANY_PORT, work),
        Kind::Tonic => direct(dir, foreign, Library::Tonic, work),
        Kind::GrpcGo => direct(dir, foreign, Library::GrpcGo, work),
        Kind::CapNProto => direct(dir, foreign, Library::CapNProto, work),
        Kind::Thrift => direct(dir, foreign, Library::Thrift, work),
        Kind::ThriftCorked => thrift_corked(dir, foreign),
        Kind::EnvoyOne => cpp_through(dir, foreign, form, Library::Envoy, one, work),
        Kind::EnvoyTwo => cpp_through(dir, foreign, form, Library::Envoy, two, work),
        Kind::EnvoyContent => cpp_through(dir, foreign, form, Library::Envoy, &["in", "filter"], work),
        Kind::NginxTwo => cpp_through(dir, foreign, form, Library::Nginx, two, work),
        Kind::HaproxyTwo => cpp_through(dir, foreign, form, Library::Haproxy, two, work),
        Kind::GatewayOne => cpp_through_gateways(dir, foreign, form, one, work),
        Kind::GatewayTwo => cpp_through_gateways(dir, foreign, form, two, work),
        Kind::GatewayToOurs => to_ours_through_gateway(dir, foreign, work),
        Kind::TonicGateway => tonic_through_gateway(dir, foreign, work),
        Kind::CppToOurs => to_ours(dir, |address| foreign.cpp_client(address, work)),
        Kind::GoToOurs => to_ours(dir, |address| foreign.client(Library::GrpcGo, address, work)),
        Kind::OursToCpp => from_ours(dir, foreign.cpp_server(dir, form, ANY_PORT)?, work),
        Kind::OursToGo => from_ours(dir, foreign.server(Library::GrpcGo, dir)?, work),
    }
}

fn chain_of(dir: &Path, hops: Hops) -> Result<Started, Failure> {
    let (processes, near) = chain::start(dir, hops)?;
    Ok((processes, Child::role_command(&["drive-chain", text(&near)])?))
}

fn ours_on(dir: &Path, hosts: Hosts, policing: Policing, work: Work) -> Result<Started, Failure> {
    let (processes, road) = ours::start_working(dir, hosts, policing, work)?;
    Ok((processes, our_driver(&road, work)?))
}

fn our_driver(road: &Road, work: Work) -> Result<Command, Failure> {
    Child::role_command(&["drive-ours", text(&road.socket), &road.target, work.name()])
}

fn tcp(dir: &Path, habits: &str) -> Result<Started, Failure> {
    let port_file = dir.join("port");
    let sink = Child::role(&["sink", text(&port_file)])?;
    let port = wait_for_file(&port_file)?;
    Ok((vec![sink], Child::role_command(&["drive-tcp", &port, habits])?))
}

fn cpp(dir: &Path, foreign: &Foreign, form: &str, address: &str, work: Work) -> Result<Started, Failure> {
    let (server, address) = foreign.cpp_server(dir, form, address)?;
    Ok((vec![server], foreign.cpp_client(&address, work)?))
}

fn direct(dir: &Path, foreign: &Foreign, library: Library, work: Work) -> Result<Started, Failure> {
    let (server, address) = foreign.server(library, dir)?;
    Ok((vec![server], foreign.client(library, &address, work)?))
}

fn thrift_corked(dir: &Path, foreign: &Foreign) -> Result<Started, Failure> {
    let (server, address) = foreign.server_as(Library::Thrift, "serve-corked", dir)?;
    Ok((vec![server], foreign.client_as(Library::Thrift, "drive-corked", &address)?))
}

/// gRPC C++ with proxies between, each in front of the one before.
fn cpp_through(
    dir: &Path,
    foreign: &Foreign,
    form: &str,
    library: Library,
    names: &[&str],
    work: Work,
) -> Result<Started, Failure> {
    let (server, mut address) = foreign.cpp_server(dir, form, ANY_PORT)?;
    let mut processes = vec![server];
    for name in names {
        let (proxy, listens_at) = foreign.proxy(library, dir, name, &address)?;
        processes.push(proxy);
        address = listens_at;
    }
    Ok((processes, foreign.cpp_client(&address, work)?))
}

/// gRPC C++ with the gateways of daemons between, each in front of the one before.
fn cpp_through_gateways(
    dir: &Path,
    foreign: &Foreign,
    form: &str,
    names: &[&str],
    work: Work,
) -> Result<Started, Failure> {
    let (server, mut address) = foreign.cpp_server(dir, form, ANY_PORT)?;
    let mut processes = vec![server];
    for name in names {
        let (gateway, listens_at) = ours::start_gateway(dir, name, &address)?;
        processes.push(gateway);
        address = listens_at;
    }
    Ok((processes, foreign.cpp_client(&address, work)?))
}

/// gRPC C++ in front of a gateway, which reaches our server by way of its daemon.
fn to_ours_through_gateway(dir: &Path, foreign: &Foreign, work: Work) -> Result<Started, Failure> {
    let (mut processes, address) = ours::start_server(dir)?;
    let (gateway, listens_at) = ours::start_gateway(dir, "in", &address)?;
    processes.push(gateway);
    Ok((processes, foreign.cpp_client(&listens_at, work)?))
}

/// tonic with a gateway between.
fn tonic_through_gateway(dir: &Path, foreign: &Foreign, work: Work) -> Result<Started, Failure> {
    let (server, address) = foreign.server(Library::Tonic, dir)?;
    let (gateway, listens_at) = ours::start_gateway(dir, "in", &address)?;
    Ok((vec![server, gateway], foreign.client(Library::Tonic, &listens_at, work)?))
}

/// A stock client of our server.
fn to_ours(dir: &Path, client: impl FnOnce(&str) -> Result<Command, Failure>) -> Result<Started, Failure> {
    let (processes, address) = ours::start_server(dir)?;
    Ok((processes, client(&address)?))
}

/// Our client of a stock server.
fn from_ours(dir: &Path, (server, address): Serving, work: Work) -> Result<Started, Failure> {
    let (daemon, road) = ours::start_client(dir, &address)?;
    Ok((vec![server, daemon], our_driver(&road, work)?))
}
