//! A peer: processes from who calls to who serves, one of which takes orders. Which there are, and their routes, is in
//! `peers.toml`; how each part of a route is started is here.

use super::chain;
use super::data::{PeerData, part};
use super::foreign::{CommandWords, Foreign};
use super::hosts::{self, HEAP, Started};
use super::proxies::{self, Upstreams};
use crate::harness::children::{Child, Failure, Talker, role, role_command, text, wait_for_file};
use crate::harness::orders::{Answer, Order};
use crate::harness::work::{Work, word};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use trunkline_measure::{Machine, cpu_ns};

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
        let route = PeerRoute { dir: dir.path(), form, work, foreign };
        let (caller, called) = peer.route.split_first().ok_or("a route without a beginning")?;
        let started = route.start(called)?;
        let mut driver = route.driver(caller, &started)?;
        let drivers = (0..drivers).map(|_| Talker::start(&mut driver)).collect::<Result<Vec<_>, _>>()?;
        let others = started.processes;
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
pub struct PeerRoute<'a> {
    pub dir: &'a Path,
    /// Of a gRPC C++ server whose route does not say it.
    pub form: &'static str,
    pub work: Work,
    pub foreign: &'a Foreign,
}

impl PeerRoute<'_> {
    /// Starts who serves, the last of `parts`, and what stands before it. The first process is the first part's.
    pub fn start<S: AsRef<str>>(&self, parts: &[S]) -> Result<Started, Failure> {
        let (server, between) = parts.split_last().ok_or("a route without an end")?;
        let mut between = between.iter().enumerate().rev();
        between.try_fold(self.server(server.as_ref())?, |behind, (index, of)| {
            self.between(of.as_ref(), index, behind)
        })
    }

    fn server(&self, of: &str) -> Result<Started, Failure> {
        let (part, how) = part(of);
        let (hosts, rest) = how.split_once(':').unwrap_or((how, ""));
        match (part, hosts) {
            ("chain", how) => {
                let (processes, socket) = chain::start(self.dir, how == "tcp")?;
                Ok(Started { processes, address: String::new(), socket })
            }
            ("tcp", _) => {
                let port_file = self.dir.join("port");
                let sink = role(&["sink", text(&port_file)])?;
                Ok(Started::of((sink, wait_for_file(&port_file)?)))
            }
            ("trunkline", "") => hosts::start_for_grpc(self.dir),
            ("trunkline", hosts) => {
                hosts::start(self.dir, hosts, if rest.is_empty() { "bare" } else { rest }, self.work)
            }
            (library, "one-host" | "two-hosts") => hosts::start_with(self.dir, hosts, "bare", |socket| {
                Ok(self.foreign.server(library, self.dir, self.told(rest, "", socket))?.0)
            }),
            (library, _) => {
                let told = self.told(how, "", Path::new(""));
                self.foreign.server(library, self.dir, told).map(Started::of)
            }
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
                (proxies::start(self.foreign, proxy, self.dir, &name, upstreams)?, PathBuf::new())
            }
        };
        processes.insert(0, process);
        Ok(Started { processes, address, socket })
    }

    /// How who calls is started.
    fn driver(&self, of: &str, Started { address, socket, .. }: &Started) -> Result<Command, Failure> {
        match part(of) {
            ("chain", _) => role_command(&["drive-chain", text(socket)]),
            ("tcp", habits) => role_command(&["drive-tcp", address, habits]),
            ("trunkline", _) => role_command(&["drive-ours", text(socket), address, &word(self.work)]),
            (library, "") if self.work == Work::Large => {
                self.foreign.client(library, self.told("large", address, socket))
            }
            (library, how) => self.foreign.client(library, self.told(how, address, socket)),
        }
    }

    fn told<'t>(&self, how: &'t str, address: &'t str, socket: &'t Path) -> CommandWords<'t> {
        CommandWords { how, form: self.form, work: self.work, address, socket }
    }
}
