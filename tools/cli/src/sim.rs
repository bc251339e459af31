//! `trunkline sim`: dispatch policies against each other and against the bound, simulated.

use crate::numbers::count_within;
use crate::times::duration;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use trunkline_sim::{Curve, Scenario, Sweep, page};

/// `trunkline sim`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  trunkline sim --workers 16 --service bimodal:5ms --travel 100us --load 50,70,90 --plot sim.html")]
pub struct SimArgs {
    /// Workers, each with one server
    #[arg(long, default_value_t = 16, value_parser = count_within(1, 65_536))]
    pub workers: usize,
    /// Service times: fixed, exponential, bimodal (one in ten takes ten times as long) or heavy, with their mean
    #[arg(long, value_name = "SHAPE:MEAN", default_value = "bimodal:5ms")]
    pub service: trunkline_sim::Service,
    /// From router to worker and back
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = duration)]
    pub travel: Duration,
    /// Loads, in hundredths of what the workers can do
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "50,60,70,80,85,90,95",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub load: Vec<u32>,
    /// Policies to compare
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "random,round-robin,power-of-two,jsq,jbsq(1),jbsq(2),jbsq(3),jbsq(auto)"
    )]
    pub policy: Vec<trunkline_dispatch::Policy>,
    /// Requests of one run
    #[arg(long, default_value_t = 400_000, value_parser = count_within(100, 100_000_000))]
    pub requests: usize,
    /// Where drawing begins
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Say up to which load p99 stays within this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub within: Option<Duration>,
    /// Write a page with the curves
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Runs the sweep, prints its table, writes its page.
pub fn sim(args: &SimArgs) -> Result<(), String> {
    let scenario = Scenario {
        workers: args.workers,
        service: args.service,
        travel_ns: u64::try_from(args.travel.as_nanos()).unwrap_or(u64::MAX),
        load: 0.0,
        requests: args.requests,
        seed: args.seed,
    };
    let loads = args.load.iter().map(|percent| f64::from(*percent) / 100.0).collect();
    let sweep = Sweep { scenario, loads, policies: args.policy.clone() };
    let curves = sweep.run();
    print!("{}", table(&curves, args));
    if let Some(path) = &args.plot {
        std::fs::write(path, page(&[(sweep, curves)]))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        println!("plot: {}", path.display());
    }
    Ok(())
}

fn table(curves: &[Curve], args: &SimArgs) -> String {
    let mut out = format!(
        "p99 µs, {} workers, {}, travel {:?}\n{:<14}",
        args.workers, args.service, args.travel, "load %"
    );
    for load in &args.load {
        out += &format!("{load:>10}");
    }
    for curve in curves {
        out += &format!("\n{:<14}", curve.name);
        for point in &curve.points {
            out += &format!("{:>10.1}", point.p99 as f64 / 1e3);
        }
        if let Some(bound) = curve.points.last().and_then(|point| point.bound) {
            out += &format!("   n = {bound}");
        }
        if let Some(limit) = args.within {
            let ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            out += &format!("   within {limit:?} up to {:.2}", curve.highest_load(ns));
        }
    }
    out.push('\n');
    out
}
