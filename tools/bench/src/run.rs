//! A run from the command line to the reports.

use crate::harness::children::Failure;
use crate::harness::rounds::Plan;
use crate::harness::work::word;
use crate::peers::debian::Peers;
use crate::peers::foreign::Foreign;
use crate::peers::open::Shape;
use crate::report::document::{About, Report};
use crate::studies::data::RunData;
use crate::studies::list;
use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Rounds each peer gets; the marks ask for five at least.
const ROUNDS: usize = 7;
const ROUND_MILLIS: u64 = 1000;
const SLICE_MILLIS: u64 = 250;
const WARM_UP_MILLIS: u64 = 100;
const IDLE_SECONDS: u64 = 20;
const CONNECTIONS: usize = 10_000;
/// Mean service time of r2p2: what is between client and workers is a few hundredths of a call, and 90 % of the
/// workers' time are 1,440 calls a second.
const MEAN_US: u64 = 10_000;
/// Of `--quick`: to see that it works, not to quote.
const QUICK_ROUNDS: usize = 2;
const QUICK_MILLIS: u64 = 200;
const QUICK_IDLE_SECONDS: u64 = 3;
const QUICK_CONNECTIONS: usize = 500;

/// Measures Trunkline beside the bare limits of this machine and the field's libraries.
#[derive(Debug, Parser)]
#[command(name = "trunkline-bench", version)]
pub struct Arguments {
    /// What to measure.
    #[arg(default_value = "all", value_parser = what())]
    what: String,
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
    #[arg(long, default_value_t = MEAN_US)]
    mean_us: u64,
    /// Service times of r2p2, separated by commas.
    #[arg(long, value_delimiter = ',', value_enum)]
    service: Vec<Shape>,
    /// Loads of r2p2, in percent, separated by commas.
    #[arg(long, value_delimiter = ',')]
    load: Vec<u32>,
    /// Only these peers, by name, separated by commas, and only what has one of them.
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

fn what() -> PossibleValuesParser {
    list::runs().iter().map(|run| PossibleValue::new(run.name.as_str()).help(run.help.as_str())).into()
}

/// Measures what is asked for and writes the reports; progress goes to standard error, the tables to standard output.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let asked = list::runs().iter().find(|run| run.name == arguments.what).ok_or("nothing of that name")?;
    let studies = arguments.studies(asked)?;
    std::fs::create_dir_all(&arguments.out)?;
    let plan = arguments.plan(asked);
    let codec = arguments.codec.as_ref().map(std::fs::read_to_string).transpose()?;
    let codec = codec.map(|text| serde_json::from_str(&text)).transpose()?;
    let foreign = Foreign::build(&list::libraries(&studies, &plan)?, arguments.peers)?;
    let about = About::now(&plan, foreign.versions());
    let (mut sheets, mut absent) = (Vec::new(), Vec::new());
    for study in studies {
        let results = list::measure(study, &plan, &foreign)?;
        sheets.extend(results.sheets);
        absent.extend(results.absent);
    }
    let report = Report::of(about, sheets, absent, codec)?;
    report.write(&arguments.out)?;
    if let Some(folder) = &arguments.publish {
        let what = &arguments.what;
        std::fs::write(folder.join(format!("{what}.md")), report.published(what))?;
    }
    print!("{}", report.markdown());
    eprintln!("results.json, report.html and tables.md are in {}", arguments.out.display());
    Ok(())
}

impl Arguments {
    /// The studies asked for. Nobody waits minutes for the measures of a name that is misspelt.
    fn studies<'r>(&self, run: &'r RunData) -> Result<Vec<&'r str>, Failure> {
        let mut studies: Vec<&str> = run.studies.iter().map(String::as_str).collect();
        let known: BTreeSet<&str> = studies.iter().flat_map(|study| list::names(study)).collect();
        if let Some(name) = self.only.iter().find(|name| !known.contains(name.as_str())) {
            let known = Vec::from_iter(known).join(", ");
            return Err(match known.is_empty() {
                true => format!("--only {name:?}: what is asked for measures all of its peers").into(),
                false => format!("--only {name:?} is nobody measured here: write one of {known}").into(),
            });
        }
        let has_one =
            |study: &str| list::names(study).iter().any(|name| self.only.iter().any(|of| of == name));
        studies.retain(|study| self.only.is_empty() || has_one(study));
        Ok(studies)
    }

    fn plan(&self, run: &RunData) -> Plan {
        let (rounds, millis) = match self.quick {
            true => (QUICK_ROUNDS, QUICK_MILLIS),
            false => (run.rounds.unwrap_or(ROUNDS), run.millis.unwrap_or(ROUND_MILLIS)),
        };
        let round_millis = self.millis.unwrap_or(millis);
        Plan {
            rounds: self.rounds.unwrap_or(rounds),
            round_millis,
            slices: self.slices.unwrap_or((round_millis / SLICE_MILLIS) as usize),
            warm_up_millis: WARM_UP_MILLIS,
            only: self.only.clone(),
            idle_seconds: if self.quick { QUICK_IDLE_SECONDS } else { IDLE_SECONDS },
            connections: if self.quick { QUICK_CONNECTIONS } else { CONNECTIONS },
            mean_us: self.mean_us,
            services: self.service.iter().map(|shape| word(*shape)).collect(),
            percents: self.load.clone(),
            stolen_percent_max: self.stolen_max,
        }
    }
}

#[cfg(test)]
mod tests {
    //! A name nobody has is said before anything is built or measured.
    use super::*;

    fn of(words: &[&str]) -> (Arguments, &'static RunData) {
        let arguments = Arguments::parse_from(["trunkline-bench"].iter().chain(words));
        let run = list::runs().iter().find(|run| run.name == arguments.what).unwrap();
        (arguments, run)
    }

    #[test]
    fn misspelt_names_are_refused() {
        let studies = |words: &[&str]| {
            let (arguments, run) = of(words);
            arguments.studies(run).map_err(|why| why.to_string())
        };
        assert_eq!(studies(&["r2p2", "--only", "jbsq(auto),HAProxy leastconn"]), Ok(vec!["r2p2"]));
        assert_eq!(studies(&["rate", "--only", "tcp"]), Ok(vec!["rate"]));
        assert_eq!(studies(&["split", "--only", "bench3_m3"]), Ok(vec!["split", "shares"]));
        assert_eq!(studies(&["grpc", "--only", "envoy-two"]), Ok(vec!["grpc", "grpc-rate"]));
        assert_eq!(studies(&["grpc"]).map(|all| all.len()), Ok(3));
        let why = studies(&["r2p2", "--only", "nginx,haproxy leastconn"]).unwrap_err();
        assert!(why.contains("haproxy leastconn") && why.contains("HAProxy leastconn"), "{why}");
        assert!(studies(&["idle", "--only", "tcp"]).is_err(), "what is measured has no peers to choose from");
        assert!(
            Arguments::try_parse_from(["trunkline-bench", "latancy"])
                .unwrap_err()
                .to_string()
                .contains("latency")
        );
    }

    #[test]
    fn rounds_are_as_long_as_is_said() {
        let plan = |words: &[&str]| {
            let (arguments, run) = of(words);
            arguments.plan(run)
        };
        assert_eq!((plan(&["r2p2"]).rounds, plan(&["r2p2"]).round_millis), (3, 4000));
        assert_eq!((plan(&["rate"]).rounds, plan(&["rate"]).slices), (7, 4));
        assert_eq!(
            (plan(&["all", "--quick"]).round_millis, plan(&["all", "--quick"]).connections),
            (200, 500)
        );
        assert_eq!(plan(&["r2p2", "--service", "fixed,search"]).services, ["fixed", "search"]);
    }
}
