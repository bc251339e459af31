//! A peer: processes from who calls to who serves, one of which takes orders. Which there are, and their routes, is in
//! `peers.toml`; how each part of a route is started is here.

use super::chain;
use super::data::{PeerData, part};
use super::foreign::Foreign;
use super::hosts::{self, HEAP, Started};
use super::proxies::Upstreams;
use crate::harness::children::{Child, Failure, Talker, text, wait_for_file};
use crate::harness::orders::{Answer, Order};
use crate::harness::processes::{Machine, cpu_ns};
use crate::harness::work::{Work, named, word};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Beyond an order's own time: the slowest peer here empties its queue in under a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// One round of one peer.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub answer: Answer,
    /// Of all the peer's processes.
    pub cpu_ns: u64,
    /// Percent of the machine's processors that the machine's host gave to others meanwhile, and that other processes
    /// took.
    pub lost_percent: [f64; 2],
}

/// A running peer; its processes end when it is dropped.
pub struct Peer {
    drivers: Vec<Talker>,
    pids: Vec<u32>,
    _others: Vec<Child>,
    _dir: TempDir,
}

impl Peer {
    /// Starts every process of it, with so many drivers. With one call at once, gRPC C++ serves what does not say its
    /// form with its synchronous server, else with its queue server.
    pub fn start(
        peer: &PeerData,
        work: Work,
        outstanding: usize,
        drivers: usize,
        foreign: &Foreign,
    ) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let form = if outstanding == 1 { "sync" } else { "queue" };
        let route = Route { dir: dir.path(), form, work, foreign };
        let [caller, between @ .., server] = &peer.route[..] else {
            return Err("a route without two ends".into());
        };
        let mut started = route.server(server)?;
        for (index, part) in between.iter().enumerate().rev() {
            started = route.between(part, index, started)?;
        }
        let mut driver = route.driver(caller, &started)?;
        let drivers: Result<Vec<_>, Failure> = (0..drivers).map(|_| Talker::start(&mut driver)).collect();
        let (drivers, others) = (drivers?, started.processes);
        let pids = others.iter().map(Child::pid).chain(drivers.iter().map(Talker::pid)).collect();
        Ok(Self { drivers, pids, _others: others, _dir: dir })
    }

    /// One round.
    pub fn round(&mut self, order: Order) -> Result<Sample, Failure> {
        let (before, before_ns) = (Machine::now()?, cpu_ns(&self.pids)?);
        for driver in &mut self.drivers {
            driver.tell(&order.to_string())?;
        }
        let patience = PATIENCE + Duration::from_millis(order.millis);
        let mut answer = Answer { calls: 0, elapsed_ns: 0, p50_ns: 0, p99_ns: 0 };
        for driver in &mut self.drivers {
            answer = answer.beside(driver.hear(patience)?.parse()?);
        }
        let cpu_ns = cpu_ns(&self.pids)?.saturating_sub(before_ns);
        if answer.calls == 0 {
            return Err("no call was answered".into());
        }
        Ok(Sample { answer, cpu_ns, lost_percent: Machine::now()?.lost_since(before, cpu_ns) })
    }
}

/// How a route's parts are started.
struct Route<'a> {
    dir: &'a Path,
    form: &'static str,
    work: Work,
    foreign: &'a Foreign,
}

impl Route<'_> {
    fn server(&self, of: &str) -> Result<Started, Failure> {
        let dir = self.dir;
        match part(of) {
            ("chain", how) => {
                let (processes, socket) = chain::start(dir, how == "tcp")?;
                Ok(Started { processes, address: String::new(), socket })
            }
            ("tcp", _) => {
                let port_file = dir.join("port");
                let sink = Child::role(&["sink", text(&port_file)])?;
                Ok(Started::of((sink, wait_for_file(&port_file)?)))
            }
            ("trunkline", "") => hosts::start_for_grpc(dir),
            ("trunkline", how) => {
                let (hosts, policies) = how.split_once(':').unwrap_or((how, "bare"));
                hosts::start(dir, hosts, policies, self.work)
            }
            ("trunkline-cpp", hosts) => hosts::start_with(dir, hosts, "bare", |socket| {
                self.foreign.trunkline_server(socket, self.work)
            }),
            ("trunkline-grpc-cpp", hosts) => hosts::start_with(dir, hosts, "bare", |socket| {
                self.foreign.unchanged_server(dir, socket, self.form)
            }),
            ("python", how) if how.starts_with("trunkline") => {
                hosts::start_with(dir, "one-host", "bare", |socket| {
                    Ok(self.foreign.python_server(dir, how, socket)?.0)
                })
            }
            ("python", how) => self.foreign.python_server(dir, how, Path::new("")).map(Started::of),
            ("grpc-cpp", "") => self.foreign.cpp_server(dir, self.form).map(Started::of),
            ("grpc-cpp", form) => self.foreign.cpp_server(dir, form).map(Started::of),
            (library, how) => self.foreign.server(named(library)?, &role("serve", how), dir).map(Started::of),
        }
    }

    /// `index` tells it from others in the folder.
    fn between(&self, of: &str, index: usize, behind: Started) -> Result<Started, Failure> {
        let Started { mut processes, address, .. } = behind;
        let (part, how) = part(of);
        let name = format!("between{index}");
        let ((process, address), socket) = match part {
            "gateway" => (hosts::start_gateway(self.dir, &name, &address)?, PathBuf::new()),
            "daemon" => {
                let host = hosts::start_daemon(self.dir, &name, HEAP)?;
                ((host.process, format!("tcp://{address}")), host.socket)
            }
            proxy => {
                let upstreams = Upstreams { servers: &[address], rule: how, each: "" };
                (self.foreign.proxy(named(proxy)?, self.dir, &name, upstreams)?, PathBuf::new())
            }
        };
        processes.push(process);
        Ok(Started { processes, address, socket })
    }

    fn driver(&self, of: &str, Started { address, socket, .. }: &Started) -> Result<Command, Failure> {
        match part(of) {
            ("chain", _) => Child::role_command(&["drive-chain", text(socket)]),
            ("tcp", habits) => Child::role_command(&["drive-tcp", address, habits]),
            ("trunkline", _) => Child::role_command(&["drive-ours", text(socket), address, &word(self.work)]),
            ("trunkline-cpp", _) => self.foreign.trunkline_client(socket, address, self.work),
            ("trunkline-grpc-cpp", _) => self.foreign.unchanged_client(socket, self.work),
            ("python", how) => {
                let mut driver = self.foreign.python("drive", how, socket)?;
                driver.arg(address);
                Ok(driver)
            }
            ("grpc-cpp", _) => self.foreign.cpp_client(address, self.work),
            (library, "") if self.work == Work::Large => {
                self.foreign.client(named(library)?, "drive-large", address)
            }
            (library, how) => self.foreign.client(named(library)?, &role("drive", how), address),
        }
    }
}

fn role(of: &str, how: &str) -> String {
    if how.is_empty() { of.to_owned() } else { format!("{of}-{how}") }
}
