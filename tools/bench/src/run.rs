//! A run from the command line to the reports.

use crate::beside;
use crate::binding;
use crate::children::Failure;
use crate::connections::{self, CONNECTIONS};
use crate::debian::Peers;
use crate::dispatch::{self, Dispatching};
use crate::foreign::{Foreign, Library};
use crate::hedging;
use crate::html;
use crate::idle;
use crate::marks::marks;
use crate::open::Shape;
use crate::report::{About, Report, load};
use crate::scaling;
use crate::sections::{Plan, Section};
use crate::shares;
use crate::split;
use clap::{Parser, ValueEnum};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Rounds each peer gets; the marks ask for five at least.
const ROUNDS: usize = 7;
const ROUND_MILLIS: u64 = 1000;
const SLICE_MILLIS: u64 = 250;
const WARM_UP_MILLIS: u64 = 100;
const IDLE_SECONDS: u64 = 20;
/// Of `--quick`: to see that it works, not to quote.
const QUICK: (usize, u64, u64) = (2, 200, 3);
const QUICK_CONNECTIONS: usize = 500;
/// Of the comparison of dispatching: rounds of a load, their milliseconds, mean service time. At 10 ms what is between
/// client and workers is a few hundredths of a call, and 90 % of the workers' time are 1,440 calls a second.
const DISPATCH: (usize, u64, u64) = (3, 4000, 10_000);

/// Measures Trunkline beside the bare limits of this machine and the field's libraries.
#[derive(Debug, Parser)]
#[command(name = "trunkline-bench", version)]
pub struct Arguments {
    /// What to measure.
    #[arg(default_value = "all")]
    what: What,
    /// Few and short rounds: shows that it works, not to be quoted.
    #[arg(long)]
    quick: bool,
    /// Rounds for each peer.
    #[arg(long)]
    rounds: Option<usize>,
    /// Milliseconds of a round.
    #[arg(long)]
    millis: Option<u64>,
    /// Pieces of a round, between which the other peers have theirs: noise that lasts longer meets all of them alike.
    /// A quarter of a second each if nothing is said.
    #[arg(long)]
    slices: Option<usize>,
    /// Mean service time of r2p2, in microseconds.
    #[arg(long)]
    mean_us: Option<u64>,
    /// Service times of r2p2, separated by commas: fixed, exponential, bimodal, search.
    #[arg(long, value_delimiter = ',', value_parser = shape)]
    service: Vec<Shape>,
    /// Loads of r2p2, in percent, separated by commas.
    #[arg(long, value_delimiter = ',')]
    load: Vec<u32>,
    /// Only these peers, by name, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Of r2p2: measures a round again, five times at most, during which the host of this virtual machine gave away
    /// more of the processors than so many percent.
    #[arg(long)]
    stolen_max: Option<f64>,
    /// What is done about libraries and proxies that are not there.
    #[arg(long, value_enum, default_value = "unpack")]
    peers: Peers,
    /// Folder for results.json, report.html and tables.md.
    #[arg(long, default_value = "target/bench-report")]
    out: PathBuf,
    /// Folder to which the tables are written as well, as the page of what was measured: docs/measured for the
    /// repository's own, after which `cargo xtask pages` has to run.
    #[arg(long)]
    publish: Option<PathBuf>,
    /// The codec comparison's JSON, to be part of the report.
    #[arg(long)]
    codec: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// The bare chain alone: what the machine allows.
    Chain,
    /// 64 bytes there, 8 back, one outstanding.
    Latency,
    /// The same with 128 outstanding.
    Rate,
    /// Requests of 2 KiB to 8 MiB.
    Goodput,
    /// 100 idle applications.
    Idle,
    /// Small calls that gRPC carries, beside gRPC's libraries and proxies; 10,000 idle connections.
    Grpc,
    /// Those connections alone.
    Connections,
    /// Sixteen workers behind our router, nginx and HAProxy, in an open loop. Takes long, and is no part of all.
    R2p2,
    /// The figures of mRPC: small and large calls with sidecars and policies.
    Mrpc,
    /// What policies cost, without the rest of mRPC's figures.
    Policy,
    /// Those of HPRPC.
    Hprpc,
    /// How a call's cost grows with applications, methods and peers.
    Scaling,
    /// A small call beside bulk streams.
    Beside,
    /// One slow endpoint of eight, with hedging and without.
    Hedging,
    /// How long binding a schema takes.
    Bind,
    /// The infrastructure in a process of its own beside everything in one, over business work (Split gRPC).
    Split,
    /// Everything but the bare chain, which is part of latency.
    All,
}

/// Measures what is asked for and writes the reports; progress goes to standard error, the tables to standard output.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.check_names()?;
    std::fs::create_dir_all(&arguments.out)?;
    let plan = arguments.plan();
    let foreign = Foreign::build(&arguments.libraries(&plan), arguments.peers)?;
    let report = measure(arguments, &plan, &foreign)?;
    report.write_json(&arguments.out.join("results.json"))?;
    std::fs::write(arguments.out.join("report.html"), html::page(&report))?;
    std::fs::write(arguments.out.join("tables.md"), report.markdown())?;
    if let Some(folder) = &arguments.publish {
        let name = arguments.what.to_possible_value().ok_or("a section without a name")?;
        std::fs::write(folder.join(format!("{}.md", name.get_name())), report.page(name.get_name()))?;
    }
    print!("{}", report.markdown());
    eprintln!("results.json, report.html and tables.md are in {}", arguments.out.display());
    Ok(())
}

fn measure(arguments: &Arguments, plan: &Plan, foreign: &Foreign) -> Result<Report, Failure> {
    let mut about = About::now(plan, foreign);
    let (mut rows, mut absent) = (Vec::new(), Vec::new());
    for section in arguments.what.sections() {
        let (more_rows, more_absent) = section.measure(plan, foreign);
        rows.extend(more_rows);
        absent.extend(more_absent);
    }
    let idle_seconds = if arguments.quick { QUICK.2 } else { IDLE_SECONDS };
    let idle = arguments.what.includes_idle().then(|| idle::measure(idle_seconds)).transpose()?;
    let connections = if arguments.quick { QUICK_CONNECTIONS } else { CONNECTIONS };
    let connections =
        arguments.holds_connections().then(|| connections::measure(foreign, connections)).transpose()?;
    let dispatching = arguments.dispatches(foreign)?;
    let codec = arguments
        .codec
        .as_ref()
        .map(|path| -> Result<_, Failure> { Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?) });
    let more = arguments.what.more();
    let scaling = if more(What::Scaling) { scaling::measure(plan)? } else { Vec::new() };
    let beside = more(What::Beside).then(|| beside::measure(plan)).transpose()?;
    let hedging = more(What::Hedging).then(|| hedging::measure(plan)).transpose()?;
    let binding = more(What::Bind).then(|| binding::measure(plan)).transpose()?;
    about.load[1] = load();
    let split = if more(What::Split) { split::measure(plan, foreign)? } else { Vec::new() };
    let shares = if more(What::Split) { shares::measure(plan, foreign) } else { Vec::new() };
    let mut marks = marks(&rows, idle.as_ref());
    marks.extend(dispatching.iter().flat_map(Dispatching::marks));
    marks.extend(shares::marks(&shares));
    Ok(Report {
        about,
        marks,
        dispatching,
        rows,
        idle,
        connections: connections.unwrap_or_default(),
        codec: codec.transpose()?,
        scaling,
        beside,
        hedging,
        binding,
        split,
        shares,
        absent,
    })
}

impl Arguments {
    /// Nobody waits minutes for the measures of a name that is misspelt.
    fn check_names(&self) -> Result<(), Failure> {
        let kinds = self.what.sections().into_iter().flat_map(Section::peers).map(|kind| kind.name());
        let choosers = dispatch::names().filter(|_| self.what == What::R2p2);
        let messages = split::names().filter(|_| self.what.more()(What::Split));
        let known: BTreeSet<&str> = kinds.chain(choosers).chain(messages).collect();
        match self.only.iter().find(|name| !known.contains(name.as_str())) {
            Some(name) if known.is_empty() => {
                Err(format!("--only {name:?}: what is asked for measures all of its peers").into())
            }
            Some(name) => {
                let known: Vec<&str> = known.into_iter().collect();
                Err(format!("--only {name:?} is nobody measured here: write one of {}", known.join(", "))
                    .into())
            }
            None => Ok(()),
        }
    }

    /// What of the field's is needed.
    fn libraries(&self, plan: &Plan) -> Vec<Library> {
        let sections = self.what.sections();
        let kinds = sections.iter().flat_map(|section| section.peers()).filter(|kind| plan.wants(**kind));
        let of_connections = self.holds_connections().then_some(connections::LIBRARIES);
        let of_dispatching = (self.what == What::R2p2).then_some(dispatch::LIBRARIES);
        let of_split = self.what.more()(What::Split).then_some(split::LIBRARIES);
        let kinds = kinds.flat_map(|kind| kind.library()).copied();
        kinds
            .chain(of_connections.into_iter().flatten())
            .chain(of_dispatching.into_iter().flatten())
            .chain(of_split.into_iter().flatten())
            .collect()
    }

    /// Whether connections are held: as part of more, only if all peers are wanted.
    fn holds_connections(&self) -> bool {
        match self.what {
            What::Connections => true,
            What::Grpc | What::All => self.only.is_empty(),
            _ => false,
        }
    }

    /// Measures dispatching, if that is asked for.
    fn dispatches(&self, foreign: &Foreign) -> Result<Option<Dispatching>, Failure> {
        if self.what != What::R2p2 {
            return Ok(None);
        }
        let or = |given: &[u32], all: &[u32]| if given.is_empty() { all.to_vec() } else { given.to_vec() };
        let (rounds, millis, mean_us) = DISPATCH;
        let plan = dispatch::Plan {
            rounds: self.rounds.unwrap_or(if self.quick { 1 } else { rounds }),
            millis: self.millis.unwrap_or(if self.quick { QUICK.1 } else { millis }),
            mean_us: self.mean_us.unwrap_or(mean_us),
            shapes: if self.service.is_empty() { Shape::ALL.to_vec() } else { self.service.clone() },
            percents: or(&self.load, &dispatch::PERCENTS),
            only: self.only.clone(),
            stolen_percent_max: self.stolen_max,
        };
        Ok(Some(dispatch::measure(&plan, foreign)?))
    }

    fn plan(&self) -> Plan {
        let (rounds, millis) = if self.quick { (QUICK.0, QUICK.1) } else { (ROUNDS, ROUND_MILLIS) };
        let round_millis = self.millis.unwrap_or(millis);
        Plan {
            rounds: self.rounds.unwrap_or(rounds),
            round_millis,
            slices: self.slices.unwrap_or((round_millis / SLICE_MILLIS) as usize),
            warm_up_millis: WARM_UP_MILLIS,
            only: self.only.clone(),
        }
    }
}

fn shape(name: &str) -> Result<Shape, String> {
    let known = Shape::ALL.into_iter().find(|shape| shape.name() == name);
    known.ok_or_else(|| format!("service times are {name:?}: write fixed, exponential, bimodal or search"))
}

impl What {
    fn sections(self) -> Vec<Section> {
        match self {
            Self::Chain => vec![Section::Chain],
            Self::Latency => vec![Section::Latency],
            Self::Rate => vec![Section::Rate],
            Self::Goodput => vec![Section::Goodput],
            Self::Grpc => vec![Section::Grpc, Section::GrpcRate],
            Self::Mrpc => Section::MRPC.to_vec(),
            Self::Policy => vec![Section::MrpcRate, Section::MrpcPolicy],
            Self::Hprpc => Section::HPRPC.to_vec(),
            Self::Idle
            | Self::Connections
            | Self::R2p2
            | Self::Scaling
            | Self::Beside
            | Self::Hedging
            | Self::Bind
            | Self::Split => Vec::new(),
            // The bare chain is part of latency.
            Self::All => Section::ALL.into_iter().filter(|section| *section != Section::Chain).collect(),
        }
    }

    /// Whether a measure that is not a section is part of it.
    fn more(self) -> impl Fn(Self) -> bool {
        move |what| self == what || self == Self::All
    }

    fn includes_idle(self) -> bool {
        matches!(self, Self::Idle | Self::All)
    }
}

#[cfg(test)]
mod tests {
    //! A name nobody has is said before anything is built or measured.
    use super::*;

    #[test]
    fn misspelt_names_are_refused() {
        let check = |words: &[&str]| {
            let arguments = Arguments::parse_from(["trunkline-bench"].iter().chain(words));
            arguments.check_names().map_err(|why| why.to_string())
        };
        assert_eq!(check(&["r2p2", "--only", "jbsq(auto),HAProxy leastconn"]), Ok(()));
        assert_eq!(check(&["rate", "--only", "tcp"]), Ok(()));
        assert_eq!(check(&["split", "--only", "bench3_m3"]), Ok(()));
        let why = check(&["r2p2", "--only", "nginx,haproxy leastconn"]).unwrap_err();
        assert!(why.contains("haproxy leastconn") && why.contains("HAProxy leastconn"), "{why}");
        assert!(check(&["idle", "--only", "tcp"]).is_err(), "what is measured has no peers to choose from");
    }
}
