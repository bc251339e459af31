//! Split gRPC (Ramos et al., APSys 2024): what it brings to take the infrastructure out of the application's process.
//!
//! The same gRPC client calls a *linked* server, tonic with everything in one process, and a *split* one, our daemon
//! with an application behind it. The process with the business logic has one core for itself; client and daemon share
//! the other, as the paper's infrastructure has cores of its own. A call carries a message there and one like it back,
//! and between the two does business work from none to more than the core has time for. Calls are made so many at
//! once, each as soon as one is answered; servers take turns for every amount of work.
//!
//! Messages are HyperProtoBench's where this program was built with `TRUNKLINE_HYPERPROTOBENCH` set to the folder that
//! has its schemas and payloads (and it is set to run), and always our own shapes, made after their figures.

use crate::children::{Child, Failure, Talker, on_core, text, wait_for_file};
use crate::echo::Making;
use crate::foreign::{Foreign, Library};
use crate::labour;
use crate::orders::Order;
use crate::ours::{self, HEAP};
use crate::processes::idle_cpu_ns;
use crate::sections::Plan;
use crate::stats::{Spread, short};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use trunkline_shm::monotonic_ns;

/// What is needed of the field's.
pub const LIBRARIES: [Library; 1] = [Library::Tonic];

const OUTSTANDING: usize = 8;
/// Microseconds of business work in a call.
const WORK_US: [u64; 9] = [0, 10, 20, 50, 100, 200, 500, 1000, 2000];
/// Where the client and the infrastructure run, and where the business does.
const CORES: [usize; 2] = [0, 1];
/// A throughput beyond this share of that without work is kept; the knee is where it ends.
const KEPT: f64 = 0.9;
const PATIENCE: Duration = Duration::from_secs(60);
const SHAPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/shapes");
const HYPERPROTOBENCH: &str = "TRUNKLINE_HYPERPROTOBENCH";

/// A message, by the name of its module in `echo.rs`, and where its bytes are.
#[derive(Clone, Debug)]
pub struct Payload {
    pub name: &'static str,
    pub wire: PathBuf,
}

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    /// Everything in the application's process.
    Linked,
    /// The infrastructure in our daemon.
    Split,
}

/// One server with one message and one amount of work.
#[derive(Clone, Debug, Serialize)]
pub struct Worked {
    pub message: &'static str,
    pub wire_bytes: u64,
    pub server: Server,
    pub work_us: u64,
    pub rounds: Vec<Round>,
}

/// One round of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    pub calls_per_second: f64,
    /// Cores in use by the process with the business logic, and by the daemon.
    pub business_cores: f64,
    pub infrastructure_cores: f64,
    pub p50_us: f64,
    pub p75_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
}

/// Messages of `SHAPES`.
const OWN: [&str; 4] = ["small", "medium", "large", "deep"];
/// Messages of HyperProtoBench, and their files.
const OF_HYPERPROTOBENCH: [(&str, &str); 3] = [
    ("bench3_m3", "bench3_M3.bin"),
    ("bench4_m43", "bench4_M43.bin"),
    ("bench5_m34", "synth_bench5_M34.bin"),
];

/// The messages there are, or those of them that are asked for.
pub fn payloads(plan: &Plan) -> Vec<Payload> {
    let of = |folder: &Path, name, file: &str| Payload { name, wire: folder.join(file) };
    let shapes = Path::new(SHAPES);
    let mut all: Vec<Payload> = OWN.map(|name| of(shapes, name, &format!("{name}.bin"))).into();
    match std::env::var_os(HYPERPROTOBENCH).map(PathBuf::from) {
        Some(folder) if cfg!(hyperprotobench) => {
            all.extend(OF_HYPERPROTOBENCH.map(|(name, file)| of(&folder, name, file)));
        }
        _ => eprintln!("split: HyperProtoBench is absent: build and run with {HYPERPROTOBENCH}=FOLDER"),
    }
    all.retain(|payload| plan.only.is_empty() || plan.only.iter().any(|name| name == payload.name));
    all
}

/// What the messages are called in reports and for `--only`, also where those of HyperProtoBench are absent.
pub fn names() -> impl Iterator<Item = &'static str> {
    OWN.into_iter().chain(OF_HYPERPROTOBENCH.map(|(name, _)| name))
}

/// Measures every message.
pub fn measure(plan: &Plan, foreign: &Foreign) -> Result<Vec<Worked>, Failure> {
    let turns_per_us = turns_per_us();
    let mut all = Vec::new();
    for payload in payloads(plan) {
        let mut stages = [
            (Server::Linked, Stage::linked(foreign, &payload)?),
            (Server::Split, Stage::split(foreign, &payload, Making::Struct)?),
        ];
        for work_us in WORK_US {
            let turns = work_us * turns_per_us;
            all.extend(take_turns(plan, &payload, work_us, turns, &mut stages)?);
        }
    }
    Ok(all)
}

/// Turns of the business's loop in a microsecond, by the best of some tries: the others were disturbed.
pub fn turns_per_us() -> u64 {
    const TURNS: u64 = 2_000_000;
    let time = |_| {
        let began_ns = monotonic_ns();
        labour::turn(TURNS);
        monotonic_ns() - began_ns
    };
    let least_ns = (0..10).map(time).min().unwrap_or(1).max(1);
    (TURNS * 1000 / least_ns).max(1)
}

fn take_turns(
    plan: &Plan,
    payload: &Payload,
    work_us: u64,
    turns: u64,
    stages: &mut [(Server, Stage)],
) -> Result<Vec<Worked>, Failure> {
    let wire_bytes = std::fs::metadata(&payload.wire)?.len();
    let worked = |server| Worked { message: payload.name, wire_bytes, server, work_us, rounds: Vec::new() };
    let mut all: Vec<Worked> = stages.iter().map(|(server, _)| worked(*server)).collect();
    for (_, stage) in stages.iter_mut() {
        stage.work(turns)?;
    }
    for round in 0..plan.rounds {
        for ((server, stage), worked) in stages.iter_mut().zip(&mut all) {
            stage.round(plan.warm_up_millis)?;
            let took = stage.round(plan.round_millis)?;
            eprintln!(
                "split, {}, {work_us} µs, {server:?}, round {}: {:.0}/s, business {:.2}, daemon {:.2}, p99 {:.0} µs",
                payload.name,
                round + 1,
                took.calls_per_second,
                took.business_cores,
                took.infrastructure_cores,
                took.p99_us
            );
            worked.rounds.push(took);
        }
    }
    Ok(all)
}

/// A client, and whoever serves it.
pub struct Stage {
    client: Talker,
    business: Talker,
    infrastructure: Vec<Child>,
    _dir: TempDir,
}

impl Stage {
    fn linked(foreign: &Foreign, payload: &Payload) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let port_file = dir.path().join("port");
        let mut server = Command::new(foreign.at(Library::Tonic)?);
        server.args(["serve-echo", text(&port_file), payload.name, text(&payload.wire)]);
        let business = on_core(CORES[1], || Talker::start(&mut server))?;
        let address = wait_for_file(&port_file)?;
        Self::called(foreign, payload, &address, business, Vec::new(), dir)
    }

    /// With our daemon, and an application that makes its answers in a certain way.
    pub fn split(foreign: &Foreign, payload: &Payload, making: Making) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("daemon.sock");
        let (daemon, listens_at) = on_core(CORES[0], || ours::start_daemon(&socket, HEAP))?;
        let serve = ["serve-echo", text(&socket), payload.name, text(&payload.wire), making.name()];
        let mut server = Child::role_command(&serve)?;
        let business = on_core(CORES[1], || Talker::start(&mut server))?;
        let address = listens_at.strip_prefix("tcp://").ok_or("the daemon does not listen at TCP")?;
        Self::called(foreign, payload, address, business, vec![daemon], dir)
    }

    fn called(
        foreign: &Foreign,
        payload: &Payload,
        address: &str,
        business: Talker,
        infrastructure: Vec<Child>,
        dir: TempDir,
    ) -> Result<Self, Failure> {
        let mut client = Command::new(foreign.at(Library::Tonic)?);
        client.args(["drive-echo", address, text(&payload.wire)]);
        let client = on_core(CORES[0], || Talker::start(&mut client))?;
        let mut stage = Self { client, business, infrastructure, _dir: dir };
        stage.round(1)?;
        Ok(stage)
    }

    /// So much work in every call from now on.
    fn work(&mut self, turns: u64) -> Result<(), Failure> {
        self.business.ask(&turns.to_string(), PATIENCE).map(drop)
    }

    /// Calls for so long.
    pub fn round(&mut self, millis: u64) -> Result<Round, Failure> {
        let infrastructure: Vec<u32> = self.infrastructure.iter().map(Child::pid).collect();
        let business = [self.business.pid()];
        let cpu_ns =
            || -> Result<[u64; 2], Failure> { Ok([idle_cpu_ns(&business)?, idle_cpu_ns(&infrastructure)?]) };
        let before_ns = cpu_ns()?;
        let order = Order { millis, request_bytes: 0, outstanding: OUTSTANDING };
        let answer = self.client.ask(&order.to_string(), PATIENCE)?;
        let after_ns = cpu_ns()?;
        let numbers: Result<Vec<u64>, _> = answer.split_whitespace().map(str::parse).collect();
        let [calls, elapsed_ns, p50, p75, p90, p99] = numbers?[..] else {
            return Err(format!("six numbers expected in {answer:?}").into());
        };
        let cores = |of: usize| after_ns[of].saturating_sub(before_ns[of]) as f64 / elapsed_ns as f64;
        let us = |ns: u64| ns as f64 / 1e3;
        Ok(Round {
            calls_per_second: calls as f64 / elapsed_ns as f64 * 1e9,
            business_cores: cores(0),
            infrastructure_cores: cores(1),
            p50_us: us(p50),
            p75_us: us(p75),
            p90_us: us(p90),
            p99_us: us(p99),
        })
    }

    /// Does something while calls are made for so long.
    pub fn under_load<T>(
        &mut self,
        millis: u64,
        meanwhile: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.client.tell(&Order { millis, request_bytes: 0, outstanding: OUTSTANDING }.to_string())?;
        let done = meanwhile();
        self.client.hear(PATIENCE)?;
        done
    }

    /// The application's process.
    pub fn business_pid(&self) -> u32 {
        self.business.pid()
    }
}

impl Worked {
    fn of(&self, figure: impl Fn(&Round) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(figure))
    }

    fn calls_per_second(&self) -> f64 {
        self.of(|round| round.calls_per_second).map_or(0.0, |spread| spread.median)
    }
}

/// The most work with which the throughput without work is still [`KEPT`].
fn knee_us(of_server: &[&Worked]) -> u64 {
    let Some(without) = of_server.first().map(|worked| worked.calls_per_second()) else { return 0 };
    let kept = of_server.iter().take_while(|worked| worked.calls_per_second() >= KEPT * without);
    kept.last().map_or(0, |worked| worked.work_us)
}

/// Every message, once.
fn messages(all: &[Worked]) -> Vec<&Worked> {
    let mut first: Vec<&Worked> = Vec::new();
    for worked in all {
        if first.iter().all(|other| other.message != worked.message) {
            first.push(worked);
        }
    }
    first
}

fn with_work<'w>(all: &'w [Worked], message: &str, server: Server) -> Vec<&'w Worked> {
    all.iter().filter(|worked| worked.message == message && worked.server == server).collect()
}

/// As the documents have it.
pub fn markdown(all: &[Worked]) -> String {
    let mut text = String::new();
    for Worked { message, wire_bytes, .. } in messages(all) {
        let [linked, split] = [Server::Linked, Server::Split].map(|server| with_work(all, message, server));
        text += &format!(
            "\n### Split gRPC: `{message}`, {wire_bytes} B there and back, {OUTSTANDING} at once\n\n\
             | work, µs | linked: calls/s | split: calls/s | split ÷ linked | business core: linked, split | daemon \
             | linked: p75, p90, p99, µs | split |\n|---|---|---|---|---|---|---|---|\n"
        );
        for (linked, split) in linked.iter().zip(&split) {
            text += &row(linked, split);
        }
        text += &format!(
            "\nThe knee, the most work with {:.0} % of the throughput without: linked {} µs, split {} µs.\n",
            KEPT * 100.0,
            knee_us(&linked),
            knee_us(&split)
        );
    }
    text
}

fn row(linked: &Worked, split: &Worked) -> String {
    let show = |spread: Option<Spread>| spread.map_or_else(String::new, |spread| spread.to_string());
    let median = |worked: &Worked, figure: fn(&Round) -> f64| {
        worked.of(figure).map_or_else(String::new, |spread| short(spread.median))
    };
    let rates =
        |worked: &Worked| -> Vec<f64> { worked.rounds.iter().map(|round| round.calls_per_second).collect() };
    let tails = |worked: &Worked| {
        let figures: [fn(&Round) -> f64; 3] =
            [|round| round.p75_us, |round| round.p90_us, |round| round.p99_us];
        figures.map(|figure| median(worked, figure)).join(", ")
    };
    format!(
        "| {} | {} | {} | {} | {}, {} | {} | {} | {} |\n",
        linked.work_us,
        show(linked.of(|round| round.calls_per_second)),
        show(split.of(|round| round.calls_per_second)),
        show(Spread::of_ratio(&rates(split), &rates(linked))),
        median(linked, |round| round.business_cores),
        median(split, |round| round.business_cores),
        median(split, |round| round.infrastructure_cores),
        tails(linked),
        tails(split)
    )
}

/// Throughput and tail over work, one plot for each message: what a line is called and its points.
pub fn plots(all: &[Worked]) -> Vec<Plot> {
    let mut plots = Vec::new();
    for Worked { message, .. } in messages(all) {
        let calls: fn(&Round) -> f64 = |round| round.calls_per_second;
        let p99: fn(&Round) -> f64 = |round| round.p99_us;
        let figures = [("calls/s", calls), ("p99, µs", p99)];
        for (figure, of) in figures {
            let line = |server: Server| {
                let points = with_work(all, message, server).into_iter();
                let points = points
                    .filter_map(|worked| Some((format!("{} µs", worked.work_us), worked.of(of)?.median)));
                (format!("{server:?}").to_lowercase(), points.collect())
            };
            let lines = [Server::Linked, Server::Split].map(line).to_vec();
            plots.push(Plot { title: format!("Split gRPC, {message}: {figure} over business work"), lines });
        }
    }
    plots
}

/// Lines over steps that all have.
pub struct Plot {
    pub title: String,
    pub lines: Vec<(String, Vec<(String, f64)>)>,
}

#[cfg(test)]
mod tests {
    //! The knee is the last amount of work with which nearly all of the throughput is left.
    use super::*;

    #[test]
    fn the_knee_is_where_throughput_ends() {
        let worked = |work_us, calls_per_second| {
            let round = Round {
                calls_per_second,
                business_cores: 1.0,
                infrastructure_cores: 0.5,
                p50_us: 1.0,
                p75_us: 1.0,
                p90_us: 1.0,
                p99_us: 1.0,
            };
            let rounds = vec![round];
            Worked { message: "small", wire_bytes: 845, server: Server::Split, work_us, rounds }
        };
        let all = [worked(0, 100.0), worked(10, 95.0), worked(20, 91.0), worked(50, 60.0), worked(100, 99.0)];
        assert_eq!(knee_us(&with_work(&all, "small", Server::Split)), 20);
        assert_eq!(knee_us(&with_work(&all, "small", Server::Linked)), 0);
        assert!(markdown(&all).contains("split 20 µs"), "{}", markdown(&all));
        assert_eq!(plots(&all).len(), 2);
    }

    #[test]
    fn work_takes_time() {
        assert!((1..100_000).contains(&turns_per_us()));
    }
}
