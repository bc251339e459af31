//! Split gRPC (Ramos et al., APSys 2024): what it brings to take the infrastructure out of the application's process.
//!
//! The same gRPC client calls a *linked* server, gRPC C++ with everything in one process, and a *split* one, our daemon
//! with an application behind it whose business is the very same C++ source (`peers/split/business.h`) over the classes
//! that `protoc-gen-trunkline` writes. A third, *unchanged*, is the linked application's own source as it is, compiled
//! against gRPC's surface over our library; its messages are protobuf's. The process
//! with the business logic has one core for itself; client and daemon share the other, as the paper's infrastructure
//! has cores of its own. A call carries a message there and one like it back,
//! and between the two does business work from none to more than the core has time for. Calls are made so many at
//! once, each as soon as one is answered; servers take turns for every amount of work.
//!
//! Messages are HyperProtoBench's where `TRUNKLINE_HYPERPROTOBENCH` names the folder that has its schemas and payloads,
//! and always our own shapes, made after their figures.

use super::data;
use crate::harness::children::{self, Child, Failure, Talker, on_core, role_command, text, wait_for_file};
use crate::harness::orders::{Order, numbers};
use crate::harness::rounds::{Entrant, Measured, Plan, Turns};
use crate::harness::work::word;
use crate::peers::cpp::SHAPES;
use crate::peers::echo::Making;
use crate::peers::foreign::Foreign;
use crate::peers::hosts::{self, HEAP};
use crate::peers::messages::{SplitMessage, messages};
use crate::report::sheet::{Plot, Results, Sheet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use trunkline_measure::{Spread, idle_cpu_ns, us};

const OUTSTANDING: usize = 8;
/// Microseconds of business work in a call.
pub const WORK_US: [u64; 9] = [0, 10, 20, 50, 100, 200, 500, 1000, 2000];
/// Where the client and the infrastructure run, and where the business does.
pub const CORES: [usize; 2] = [0, 1];
/// A throughput beyond this share of that without work is kept; the knee is where it ends.
const KEPT: f64 = 0.9;
const PATIENCE: Duration = Duration::from_secs(60);
/// What a server does in a round, the first two being cores in use by the process with the business logic and by the
/// daemon.
const FIGURES: [&str; 7] = ["business core", "daemon's", "calls/s", "p50 µs", "p75 µs", "p90 µs", "p99 µs"];
/// How a server is started.
type Start = fn(&Foreign, &SplitMessage) -> Result<Stage, Failure>;
/// Everything in the application's process; the infrastructure in our daemon, with our classes and with the linked
/// one's source.
pub const SERVERS: [(&str, Start); 3] =
    [("linked", Stage::linked), ("split", Stage::split), ("unchanged", Stage::unchanged)];

/// The messages there are, or those of them that are asked for.
pub fn payloads(plan: &Plan) -> Vec<SplitMessage> {
    let mut all = messages(Path::new(SHAPES));
    all.retain(|payload| plan.wants(payload.name));
    all
}

/// Measures every message.
pub fn measure(plan: &Plan, foreign: &Foreign) -> Result<Results, Failure> {
    let mut results = Results::default();
    // Names are those of messages here.
    let everybody = Plan { only: Vec::new(), ..plan.clone() };
    for payload in payloads(plan) {
        let bytes = std::fs::metadata(&payload.wire)?.len();
        let mut sheet = empty(payload.name, bytes)?;
        let mut starts = Turns::new(&format!("split, {}", payload.name), &everybody);
        let mut stages = starts.start(SERVERS, |start| start(foreign, &payload));
        results.absent.extend(starts.absent);
        for work_us in WORK_US {
            for Entrant { stage, .. } in &mut stages {
                stage.work(work_us)?;
            }
            let mut turns = Turns::new(&format!("split, {}, {work_us} µs", payload.name), plan);
            let turn = |stage: &mut Stage, _| {
                stage.round(plan.warm_up_millis)?;
                stage.round(plan.round_millis)
            };
            let measured = turns.whole_rounds(&FIGURES.map(str::to_owned), &mut stages, turn);
            results.absent.extend(turns.absent);
            let row = row(&sheet, work_us, &measured);
            sheet = sheet.with(row.into_iter().collect());
        }
        sheet.notes.extend(knees(&sheet));
        results.sheets.push(sheet);
    }
    Ok(results)
}

/// A sheet for a message of so many bytes.
fn empty(message: &str, bytes: u64) -> Result<Sheet, Failure> {
    let sheet =
        data::sheet("split", &[("message", &message), ("bytes", &bytes), ("outstanding", &OUTSTANDING)])?;
    let plot = |figure: &str| {
        let place =
            |name: &str| sheet.columns.iter().position(|column| *column == format!("{name}: {figure}"));
        let lines = SERVERS.iter().filter_map(|(name, _)| Some((place(name)?, *name)));
        (format!("Split gRPC, {message}: {figure} over business work"), lines.collect())
    };
    let plot = Plot::OverRows(vec![plot("calls/s"), plot("p99 µs")]);
    Ok(Sheet { key: format!("split {message}"), plot, ..sheet })
}

/// All servers' figures for so much work, in the order of the sheet's columns, if all have them.
fn row(sheet: &Sheet, work_us: u64, measured: &[Measured]) -> Option<Measured> {
    let of = |server: &str, figure: &str| {
        let (_, values) = measured.iter().find(|(of, _)| of == server)?;
        values.get(FIGURES.iter().position(|of| *of == figure)?).cloned()
    };
    let column = |column: &String| {
        let (server, figure) = column.split_once(": ")?;
        match server.split_once(" ÷ ") {
            None => of(server, figure),
            Some((server, to)) => {
                let ratio = |(of, to): (f64, f64)| of / to;
                Some(of(server, figure)?.into_iter().zip(of(to, figure)?).map(ratio).collect())
            }
        }
    };
    Some((work_us.to_string(), sheet.columns.iter().map(column).collect::<Option<_>>()?))
}

/// What is said of the knees: the most work with which the throughput without work is still [`KEPT`].
fn knees(sheet: &Sheet) -> Option<String> {
    let knee = |server: &str| {
        let column = format!("{server}: calls/s");
        let medians = sheet.rows.iter().map_while(|row| {
            let spread = Spread::of(sheet.values(&column, &row.name)?.iter().copied())?;
            Some((row.name.as_str(), spread.median))
        });
        let medians: Vec<(&str, f64)> = medians.collect();
        let without = medians.first()?.1;
        medians.into_iter().take_while(|(_, rate)| *rate >= KEPT * without).last().map(|(name, _)| name)
    };
    let percent = KEPT * 100.0;
    let (linked, split, unchanged) = (knee("linked")?, knee("split")?, knee("unchanged")?);
    Some(format!(
        "The knee, the most work with {percent:.0} % of the throughput without: linked {linked} µs, split {split} µs, \
         unchanged {unchanged} µs."
    ))
}

/// What the client calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// The application's method.
    Business,
    /// One that it has not, which the infrastructure refuses.
    Refused,
}

/// What came of a round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub calls: u64,
    pub elapsed_ns: u64,
    pub p50_us: f64,
    pub p75_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
}

/// As the client is told: in the place of a size stands what is called.
fn order(millis: u64, outstanding: usize, call: Callee) -> String {
    Order { millis, request_bytes: usize::from(call == Callee::Refused), outstanding }.to_string()
}

/// A client, and whoever serves it.
pub struct Stage {
    client: Talker,
    business: Talker,
    infrastructure: Vec<Child>,
    _dir: TempDir,
}

impl Stage {
    /// With everything in the application's process.
    pub fn linked(foreign: &Foreign, payload: &SplitMessage) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let port_file = dir.path().join("port");
        let mut server = program(foreign, payload, "linked", &[text(&port_file)])?;
        let business = on_core(CORES[1], || Talker::start(&mut server))?;
        let address = wait_for_file(&port_file)?;
        Self::called(foreign, payload, &address, business, Vec::new(), dir)
    }

    /// With our daemon, and the application in C++.
    pub fn split(foreign: &Foreign, payload: &SplitMessage) -> Result<Self, Failure> {
        Self::with_daemon(foreign, payload, |socket| program(foreign, payload, "split", &[socket]))
    }

    /// With our daemon, and the linked application's source.
    fn unchanged(foreign: &Foreign, payload: &SplitMessage) -> Result<Self, Failure> {
        let ports = tempfile::tempdir()?;
        let port_file = ports.path().join("port");
        let stage = Self::with_daemon(foreign, payload, |socket| {
            let mut server = program(foreign, payload, "unchanged", &[text(&port_file)])?;
            server.env("TRUNKLINE_SOCKET", socket);
            Ok(server)
        });
        // It names a port, which is the daemon's.
        stage.and_then(|stage| wait_for_file(&port_file).map(|_| stage))
    }

    /// With our daemon, and an application in Rust that makes its answers in a certain way.
    pub fn in_rust(foreign: &Foreign, payload: &SplitMessage, making: Making) -> Result<Self, Failure> {
        Self::with_daemon(foreign, payload, |socket| {
            role_command(&["serve-echo", socket, payload.name, text(&payload.wire), &word(making)])
        })
    }

    fn with_daemon(
        foreign: &Foreign,
        payload: &SplitMessage,
        application: impl FnOnce(&str) -> Result<Command, Failure>,
    ) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let host = on_core(CORES[0], || hosts::start_daemon(dir.path(), "daemon", HEAP))?;
        let mut server = application(text(&host.socket))?;
        let business = on_core(CORES[1], || Talker::start(&mut server))?;
        let address = hosts::tcp(&host.endpoints)?.to_owned();
        Self::called(foreign, payload, &address, business, vec![host.process], dir)
    }

    fn called(
        foreign: &Foreign,
        payload: &SplitMessage,
        address: &str,
        business: Talker,
        infrastructure: Vec<Child>,
        dir: TempDir,
    ) -> Result<Self, Failure> {
        let mut client = program(foreign, payload, "client", &[address])?;
        let client = on_core(CORES[0], || Talker::start(&mut client))?;
        let mut stage = Self { client, business, infrastructure, _dir: dir };
        stage.round(1)?;
        Ok(stage)
    }

    /// So much work in every call from now on.
    pub fn work(&mut self, work_us: u64) -> Result<(), Failure> {
        self.business.ask(&work_us.to_string(), PATIENCE).map(drop)
    }

    /// Calls for so long.
    pub fn round(&mut self, millis: u64) -> Result<Vec<f64>, Failure> {
        let infrastructure: Vec<u32> = self.infrastructure.iter().map(Child::pid).collect();
        let business = [self.business.pid()];
        let cpu_ns =
            || -> Result<[u64; 2], Failure> { Ok([idle_cpu_ns(&business)?, idle_cpu_ns(&infrastructure)?]) };
        let before_ns = cpu_ns()?;
        let round = self.round_of(millis, OUTSTANDING, Callee::Business)?;
        let after_ns = cpu_ns()?;
        let cores = |of: usize| after_ns[of].saturating_sub(before_ns[of]) as f64 / round.elapsed_ns as f64;
        let rate = round.calls as f64 / round.elapsed_ns as f64 * 1e9;
        Ok(vec![cores(0), cores(1), rate, round.p50_us, round.p75_us, round.p90_us, round.p99_us])
    }

    /// Calls of a kind for so long, so many at once.
    pub fn round_of(&mut self, millis: u64, outstanding: usize, call: Callee) -> Result<Round, Failure> {
        let answer = self.client.ask(&order(millis, outstanding, call), PATIENCE)?;
        let [calls, elapsed_ns, p50, p75, p90, p99] = numbers(answer.split_whitespace())?;
        Ok(Round { calls, elapsed_ns, p50_us: us(p50), p75_us: us(p75), p90_us: us(p90), p99_us: us(p99) })
    }

    /// Does something while calls are made for so long.
    pub fn under_load<T>(
        &mut self,
        millis: u64,
        meanwhile: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.client.tell(&order(millis, OUTSTANDING, Callee::Business))?;
        let done = meanwhile();
        self.client.hear(PATIENCE)?;
        done
    }

    /// The application's process.
    pub fn business_pid(&self) -> u32 {
        self.business.pid()
    }
}

/// A program of the message's, with its words and the file of the message.
fn program(foreign: &Foreign, of: &SplitMessage, name: &str, words: &[&str]) -> Result<Command, Failure> {
    let mut command = children::program(&foreign.at("split")?.join(of.name).join(name))?;
    command.args(words).arg(&of.wire);
    Ok(command)
}

#[cfg(test)]
mod tests {
    //! The knee is the last amount of work with which nearly all of the throughput is left.
    use super::*;

    #[test]
    fn the_knee_is_where_throughput_ends() {
        let server = |name: &str, rate: f64| {
            let figures = FIGURES.map(|figure| vec![if figure == "calls/s" { rate } else { 1.0 }]);
            (name.to_owned(), figures.to_vec())
        };
        let mut sheet = empty("small", 845).unwrap();
        for (work_us, rate) in [(0, 100.0), (10, 95.0), (20, 91.0), (50, 60.0), (100, 99.0)] {
            let measured = [server("linked", 50.0), server("split", rate), server("unchanged", 10.0)];
            assert!(row(&sheet, work_us, &measured[..2]).is_none(), "all or none");
            let row = row(&sheet, work_us, &measured);
            sheet = sheet.with(row.into_iter().collect());
        }
        assert!(
            knees(&sheet).unwrap().contains("linked 100 µs, split 20 µs, unchanged 100 µs"),
            "{:?}",
            knees(&sheet)
        );
        assert_eq!(sheet.values("split ÷ linked: calls/s", "50"), Some(&[1.2][..]));
        assert_eq!(sheet.values("unchanged ÷ linked: calls/s", "50"), Some(&[0.2][..]));
        assert_eq!(sheet.values("split: p99 µs", "50"), Some(&[1.0][..]));
    }
}
