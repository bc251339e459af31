//! Sixteen workers behind everything that can choose among them: our router with each of its policies, nginx, HAProxy.
//!
//! The workers are the same processes for all, reached as datagrams or over gRPC (`sleepers.rs`); so is the client's
//! daemon. Two more have their workers, as many threads of one server, on the client's own host: there the daemon
//! itself holds calls back until one is free, or (methods that stream) gives them out in turn.
//!
//! Peers take turns, load by load and round by round, and are asked the same at the same times (`open.rs`).

use crate::children::{Child, Failure, Talker, text, wait_for_file};
use crate::foreign::{Foreign, Library};
use crate::open::{Answer, Load, Shape, WORKERS};
use crate::ours::{self, HEAP, Policing};
use crate::processes::{Machine, cpu_ns};
use crate::proxies::Upstreams;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// What of the field's this needs.
pub const LIBRARIES: [Library; 2] = [Library::Nginx, Library::Haproxy];
/// Percent of what the workers can do.
pub const PERCENTS: [u32; 3] = [50, 70, 90];
/// The router as it is if nothing is said: what the marks are about.
pub const OURS: &str = "jbsq(auto)";

/// Who chooses, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Chooser {
    pub name: &'static str,
    #[serde(skip)]
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Our router; the name is the policy's.
    Router,
    /// nginx, with a line of its `upstream` block.
    Nginx(&'static str),
    /// HAProxy, with a line of its `backend`, and words behind each server.
    Haproxy(&'static str, &'static str),
    /// The client's own daemon, with the workers on the same host.
    Host { in_turn: bool },
}

/// Everyone who is compared.
pub const CHOOSERS: [Chooser; 14] = [
    router("jbsq(auto)"),
    router("jbsq(1)"),
    router("jbsq(3)"),
    router("jsq"),
    router("power-of-two"),
    router("round-robin"),
    router("random"),
    Chooser { name: "nginx", way: Way::Nginx("") },
    Chooser { name: "nginx least_conn", way: Way::Nginx("least_conn;") },
    Chooser { name: "HAProxy", way: Way::Haproxy("balance roundrobin", "") },
    Chooser { name: "HAProxy leastconn", way: Way::Haproxy("balance leastconn", "") },
    // Not asked for by anybody who wrote the marks; whoever knows HAProxy would ask.
    Chooser { name: "HAProxy maxconn 1", way: Way::Haproxy("balance leastconn", "maxconn 1") },
    Chooser { name: "one host", way: Way::Host { in_turn: false } },
    Chooser { name: "one host, in turn", way: Way::Host { in_turn: true } },
];

/// What the choosers are called in reports and for `--only`.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHOOSERS.iter().map(|chooser| chooser.name)
}

/// How long, how often, with what.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub rounds: usize,
    pub millis: u64,
    pub mean_us: u64,
    pub shapes: Vec<Shape>,
    pub percents: Vec<u32>,
    /// Names of the choosers wanted; all if empty.
    pub only: Vec<String>,
    /// A round during which the host gave away more of the processors than so many percent is measured again.
    pub stolen_percent_max: Option<f64>,
}

/// All rounds of one chooser with one load.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub chooser: &'static str,
    pub shape: Shape,
    pub percent: u32,
    pub rounds: Vec<Round>,
}

/// One round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    pub answer: Answer,
    /// CPU of the process that chooses: one for all routers, one for each proxy; on one host the client's daemon, which
    /// does more than that.
    pub cpu_ns: u64,
    /// CPU of the client's daemon, which all calls pass.
    pub daemon_cpu_ns: u64,
    /// How much of the processors the host of a virtual machine gave to others meanwhile.
    pub stolen_percent: f64,
    /// How often it was measured before, while the host gave away more.
    pub again: u32,
}

/// Everything measured.
#[derive(Clone, Debug, Serialize)]
pub struct Dispatching {
    pub plan: Plan,
    pub rows: Vec<Row>,
    pub absent: Vec<(&'static str, String)>,
}

/// A chooser with its processes.
struct Peer {
    name: &'static str,
    driver: Talker,
    pid: u32,
    daemon: u32,
    _proxy: Option<Child>,
}

/// The hosts all of them share. They end with this.
struct Scene {
    dir: TempDir,
    near: std::path::PathBuf,
    /// Where each policy's router takes requests.
    routers: Vec<(&'static str, String)>,
    /// Where workers take calls over gRPC.
    upstreams: Vec<String>,
    routers_pid: u32,
    near_pid: u32,
    _processes: Vec<Child>,
}

/// Beyond a round's own time: a saturated worker needs so long to empty its queue.
const PATIENCE: Duration = Duration::from_secs(120);
/// Most times a round is measured again; then the one with most of the processors counts.
const AGAIN_MAX: u32 = 5;
const WARM_UP_MILLIS: u64 = 1000;
const WARM_UP_PERCENT: u32 = 30;

const fn router(name: &'static str) -> Chooser {
    Chooser { name, way: Way::Router }
}

/// Measures it; a peer that fails is absent from then on, with its reason.
pub fn measure(plan: &Plan, foreign: &Foreign) -> Result<Dispatching, Failure> {
    let scene = Scene::start(plan)?;
    let (mut peers, mut absent) = (Vec::new(), Vec::new());
    for chooser in CHOOSERS.iter().filter(|chooser| plan.wants(chooser.name)) {
        match scene.peer(chooser, foreign) {
            Ok(peer) => peers.push(peer),
            Err(error) => absent.push((chooser.name, error.to_string())),
        }
    }
    let mut rows = Vec::new();
    let warm_up = Load {
        shape: Shape::Fixed,
        mean_us: plan.mean_us,
        percent: WARM_UP_PERCENT,
        millis: WARM_UP_MILLIS,
        seed: 0,
    };
    ask_all(&mut peers, warm_up, None, &mut absent);
    for round in 0..plan.rounds {
        for (shape, percent) in plan.loads() {
            let seed = (round as u64 + 1) << 32 | u64::from(percent) << 8 | shape as u64;
            let load = Load { shape, mean_us: plan.mean_us, percent, millis: plan.millis, seed };
            for (name, measured) in ask_all(&mut peers, load, plan.stolen_percent_max, &mut absent) {
                eprintln!("{}", progress(round, name, load, &measured));
                keep(&mut rows, Row { chooser: name, shape, percent, rounds: vec![measured] });
            }
        }
    }
    rows.sort_by_key(|row: &Row| {
        let load = plan.loads().position(|load| load == (row.shape, row.percent));
        (load, CHOOSERS.iter().position(|chooser| chooser.name == row.chooser))
    });
    Ok(Dispatching { plan: plan.clone(), rows, absent })
}

fn ask_all(
    peers: &mut Vec<Peer>,
    load: Load,
    stolen_percent_max: Option<f64>,
    absent: &mut Vec<(&'static str, String)>,
) -> Vec<(&'static str, Round)> {
    let mut rounds = Vec::new();
    peers.retain_mut(|peer| match peer.quiet_round(load, stolen_percent_max) {
        Ok(round) => {
            rounds.push((peer.name, round));
            true
        }
        Err(error) => {
            eprintln!("{} is absent: {error}", peer.name);
            absent.push((peer.name, error.to_string()));
            false
        }
    });
    // Whoever comes behind one that has emptied a long queue must not be the same every time.
    if !peers.is_empty() {
        peers.rotate_left(1);
    }
    rounds
}

impl Plan {
    /// Whether a chooser was asked for.
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Every load, the lightest first.
    fn loads(&self) -> impl Iterator<Item = (Shape, u32)> {
        self.shapes.iter().flat_map(|shape| self.percents.iter().map(|percent| (*shape, *percent)))
    }
}

impl Peer {
    /// A round during which the host left the machine its processors, if that matters. Whoever is measured, a round is
    /// judged by the host's time alone, and not by what came of it.
    fn quiet_round(&mut self, load: Load, stolen_percent_max: Option<f64>) -> Result<Round, Failure> {
        let mut best = self.round(load)?;
        let mut again = 0;
        while stolen_percent_max.is_some_and(|most| best.stolen_percent > most) && again < AGAIN_MAX {
            again += 1;
            let next = self.round(load)?;
            if next.stolen_percent < best.stolen_percent {
                best = next;
            }
        }
        Ok(Round { again, ..best })
    }

    fn round(&mut self, load: Load) -> Result<Round, Failure> {
        let cpu = || Ok::<_, Failure>([cpu_ns(&[self.pid])?, cpu_ns(&[self.daemon])?]);
        let (before, cpu_before) = (Machine::now()?, cpu()?);
        let patience = PATIENCE + Duration::from_millis(load.millis);
        let answer: Answer = self.driver.ask(&load.to_string(), patience)?.parse()?;
        let cpu_after = cpu()?;
        let [cpu_ns, daemon_cpu_ns] = [0, 1].map(|of| cpu_after[of].saturating_sub(cpu_before[of]));
        if answer.failed > answer.calls / 2 {
            return Err(format!("{} of {} calls failed", answer.failed, answer.calls).into());
        }
        let [stolen_percent, _] = Machine::now()?.lost_since(before, 0);
        Ok(Round { answer, cpu_ns, daemon_cpu_ns, stolen_percent, again: 0 })
    }
}

impl Scene {
    fn start(plan: &Plan) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let policies = CHOOSERS.iter().filter(|chooser| chooser.way == Way::Router);
        let policies: Vec<&'static str> =
            policies.map(|chooser| chooser.name).filter(|name| plan.wants(name)).collect();
        let port_file = dir.path().join("routers");
        let routers = Child::role(&[&["routers", text(&port_file)][..], &policies].concat())?;
        let (routers_pid, lines) = (routers.pid(), wait_for_file(&port_file)?);
        let ports: Vec<(&str, &str)> = lines.lines().filter_map(|line| line.split_once(' ')).collect();
        let controls: Vec<&str> = ports.iter().map(|(_, control)| *control).collect();
        let mut processes = vec![routers];
        for worker in 0..WORKERS {
            let name = format!("worker{worker}");
            processes.push(Child::role(&["sleeper", text(dir.path()), &name, &controls.join(",")])?);
        }
        let upstreams: Result<Vec<String>, Failure> =
            (0..WORKERS).map(|worker| grpc_endpoint(dir.path(), worker)).collect();
        let near = dir.path().join("near.sock");
        let daemon = ours::start_daemon_speaking(&near, HEAP, "grpc", Policing::Bare)?.0;
        let near_pid = daemon.pid();
        processes.push(daemon);
        processes.push(Child::role(&["sleepers-here", text(&near), &WORKERS.to_string()])?);
        let targets = ports.iter().map(|(listen, _)| format!("r2p2://{listen}"));
        let routers = policies.into_iter().zip(targets).collect();
        Ok(Self { dir, near, routers, upstreams: upstreams?, routers_pid, near_pid, _processes: processes })
    }

    fn peer(&self, chooser: &Chooser, foreign: &Foreign) -> Result<Peer, Failure> {
        let name = chooser.name.replace(' ', "-");
        let balancer = |library, rule, each| {
            let upstreams = Upstreams { servers: &self.upstreams, rule, each };
            foreign.balancer(library, self.dir.path(), &name, upstreams)
        };
        let (proxy, target) = match chooser.way {
            Way::Router => {
                let found = self.routers.iter().find(|(policy, _)| *policy == chooser.name);
                (None, found.ok_or("its router did not start")?.1.clone())
            }
            Way::Nginx(rule) => proxied(balancer(Library::Nginx, rule, "")?),
            Way::Haproxy(rule, each) => proxied(balancer(Library::Haproxy, rule, each)?),
            Way::Host { .. } => (None, String::new()),
        };
        let here = matches!(chooser.way, Way::Host { .. });
        let pid = proxy.as_ref().map_or(if here { self.near_pid } else { self.routers_pid }, Child::pid);
        let mut driver = Child::role_command(&["drive-open", text(&self.near), &target])?;
        if chooser.way == (Way::Host { in_turn: true }) {
            driver.arg("in-turn");
        }
        let driver = Talker::start(&mut driver)?;
        Ok(Peer { name: chooser.name, driver, pid, daemon: self.near_pid, _proxy: proxy })
    }
}

fn proxied((proxy, address): (Child, String)) -> (Option<Child>, String) {
    (Some(proxy), format!("tcp://{address}"))
}

/// Where a worker takes calls over gRPC, once it does.
fn grpc_endpoint(dir: &Path, worker: usize) -> Result<String, Failure> {
    let endpoints = wait_for_file(&dir.join(format!("worker{worker}")))?;
    let endpoint = endpoints.split(' ').find_map(|endpoint| endpoint.strip_prefix("tcp://"));
    Ok(endpoint.ok_or("a worker does not listen at TCP")?.to_owned())
}

fn keep(rows: &mut Vec<Row>, new: Row) {
    let same =
        |row: &&mut Row| (row.chooser, row.shape, row.percent) == (new.chooser, new.shape, new.percent);
    match rows.iter_mut().find(same) {
        Some(row) => row.rounds.extend(new.rounds),
        None => rows.push(new),
    }
}

fn progress(round: usize, name: &str, load: Load, measured: &Round) -> String {
    let answer = &measured.answer;
    let ms = |ns: u64| ns as f64 / 1e6;
    let [p50, p99, p999] = answer.took.map(ms);
    format!(
        "r2p2 {:<11} {} % round {round} {name:<18} p50 {p50:>8.2} ms  p99 {p99:>8.2} ms  p99.9 {p999:>8.2} ms  \
         p99 ÷ bound {:>6.2}, as served {:>6.2}  failed {}  stolen {:.0} %",
        load.shape.name(),
        load.percent,
        answer.took[1] as f64 / answer.bound[1] as f64,
        answer.took[1] as f64 / answer.bound_as_served[1] as f64,
        answer.failed,
        measured.stolen_percent
    )
}
