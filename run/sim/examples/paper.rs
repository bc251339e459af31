//! The paper's findings, simulated: the highest load within a latency limit, and p99 at the loads of
//! docs/measured/history/simulated.md. With a directory: p99 against load for every policy, service and number of
//! workers, as pages with curves there, and a summary of them.
//!
//! `cargo run --release -p trunkline-sim --example paper [DIRECTORY]`

use std::path::{Path, PathBuf};
use trunkline_dispatch::Policy;
use trunkline_sim::{Curve, Scenario, Service, Sweep, page};

const SHAPES: [&str; 3] = ["fixed", "exponential", "bimodal"];
/// Loads in hundredths.
const FINE: std::ops::RangeInclusive<u32> = 30..=100;
const ALL: [&str; 8] =
    ["random", "round-robin", "power-of-two", "jsq", "jbsq(1)", "jbsq(2)", "jbsq(3)", "jbsq(auto)"];
const SIZES: [usize; 4] = [16, 64, 256, 1024];
/// What queries of the search example took, in ns.
const SEARCH: &str = include_str!("../../../tools/bench/src/search_times.txt");

fn main() {
    match std::env::args_os().nth(1) {
        Some(directory) => plots(&PathBuf::from(directory)),
        None => findings(),
    }
}

fn findings() {
    println!("highest load with p99 <= 150 us: 64 workers, 10 us service, 15 us travel");
    for name in ["jbsq(1)", "jbsq(2)", "jbsq(3)", "jbsq(4)", "jbsq(5)", "jsq", "jbsq(auto)"] {
        print!("{name:<12}");
        for shape in SHAPES {
            let loads = FINE.step_by(2).collect();
            let (_, curves) = sweep(service(shape, 10e3), 64, 15_000, loads, &[name], 200_000);
            print!("  {shape} {:.2}", curves[1].highest_load(150_000));
        }
        println!();
    }
    table("exponential", 25e3, 64, 15_000, &[50, 70, 80, 90, 95]);
    for shape in SHAPES {
        table(shape, 5e6, 16, 100_000, &[50, 70, 90]);
        table(shape, 1e6, 16, 15_000, &[50, 70, 90]);
    }
    for name in ["search", "exponential", "bimodal", "fixed"] {
        lost(service(name, 10e6));
    }
}

/// p99 by the bound's where a worker loses so much between two requests: the median of as many seeds.
fn lost(service: Service) {
    const SEEDS: u64 = 11;
    const POLICIES: [&str; 4] = ["jbsq(auto)", "jbsq(1)", "jbsq(2)", "jsq"];
    println!("\np99 / bound at loads 0.7, 0.9, 0.94: 16 workers, {service}; {}", POLICIES.join(", "));
    for travel_ns in [300_000, 600_000, 1_000_000, 1_500_000] {
        print!("{:>5} us lost", travel_ns / 1000);
        for load in [0.7, 0.9, 0.94] {
            let ratio = |policy: Policy, seed| {
                let scenario = Scenario { workers: 16, service, travel_ns, load, requests: 20_000, seed };
                scenario.run(policy).quantile_ns(0.99) as f64 / scenario.bound().quantile_ns(0.99) as f64
            };
            let median = |name: &str| {
                let policy: Policy = name.parse().expect("a policy");
                let mut ratios: Vec<f64> = (1..=SEEDS).map(|seed| ratio(policy, seed)).collect();
                ratios.sort_by(f64::total_cmp);
                format!("{:.2}", ratios[ratios.len() / 2])
            };
            print!("  | {}", POLICIES.map(median).join(" "));
        }
        println!();
    }
}

/// Short services behind a long way, and, as measured, searching behind the same relative to its length.
fn plots(directory: &Path) {
    for name in ["fixed", "exponential", "bimodal", "heavy", "search"] {
        let service = service(name, 25e3);
        let pages: Vec<_> = SIZES
            .iter()
            .map(|workers| {
                let requests = (workers * 4000).clamp(200_000, 800_000);
                sweep(service, *workers, 15_000, vec![10, 30, 50, 60, 70, 80, 85, 90, 95], &ALL, requests)
            })
            .collect();
        let path = directory.join(format!("sim-all-{name}.html"));
        std::fs::write(&path, page(&pages)).expect("it can be written");
        for (sweep, curves) in &pages {
            print!("| {name}, {} |", sweep.scenario.workers);
            for curve in curves {
                let at =
                    |load: f64| curve.points.iter().find(|point| point.load == load).expect("simulated").p99;
                let bound = curve.points.last().and_then(|point| point.bound);
                let bound = bound
                    .filter(|_| curve.name.contains("auto"))
                    .map_or(String::new(), |n| format!(", n {n}"));
                print!(" {} / {}{bound} |", us(at(0.5)), us(at(0.9)));
            }
            println!();
        }
    }
}

fn us(ns: u64) -> String {
    if ns < 10_000_000 { format!("{:.0}", ns as f64 / 1e3) } else { "∞".into() }
}

fn service(name: &str, mean_ns: f64) -> Service {
    if name == "search" {
        let times: Vec<u64> = SEARCH.lines().filter_map(|line| line.parse().ok()).collect();
        return Service::measured(times.leak(), mean_ns).expect("there are some");
    }
    format!("{name}:{mean_ns}ns").parse().expect("a distribution")
}

fn table(shape: &str, mean_ns: f64, workers: usize, travel_ns: u64, loads: &[u32]) {
    let service = service(shape, mean_ns);
    println!("\np99 in us at loads {loads:?}: {workers} workers, {service}, {} us travel", travel_ns / 1000);
    for curve in sweep(service, workers, travel_ns, loads.to_vec(), &ALL, 400_000).1 {
        let points: Vec<String> =
            curve.points.iter().map(|point| format!("{:.0}", point.p99 as f64 / 1e3)).collect();
        let bound =
            curve.points.last().and_then(|point| point.bound).map_or(String::new(), |n| format!(" n={n}"));
        println!("{:<14}{}{bound}", curve.name, points.join(" "));
    }
}

fn sweep(
    service: Service,
    workers: usize,
    travel_ns: u64,
    loads: Vec<u32>,
    policies: &[&str],
    requests: usize,
) -> (Sweep, Vec<Curve>) {
    let scenario = Scenario { workers, service, travel_ns, load: 0.0, requests, seed: 1 };
    let policies: Vec<Policy> = policies.iter().map(|name| name.parse().expect("a policy")).collect();
    let loads = loads.into_iter().map(|load| f64::from(load) / 100.0).collect();
    let sweep = Sweep { scenario, loads, policies };
    let curves = sweep.run();
    (sweep, curves)
}
