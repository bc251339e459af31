//! `trunkline sim`: dispatch policies against each other and against the bound, simulated.

use crate::args::SimArgs;
use trunkline_sim::{Curve, Scenario, Sweep, page};

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
