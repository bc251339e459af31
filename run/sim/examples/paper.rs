//! The paper's findings, simulated: the highest load within a latency limit, and p99 at the loads of
//! docs/benchmarks.md.
//!
//! `cargo run --release -p trunkline-sim --example paper`

use trunkline_dispatch::Policy;
use trunkline_sim::{Scenario, Sweep};

const SHAPES: [&str; 3] = ["fixed", "exponential", "bimodal"];
/// Loads in hundredths.
const FINE: std::ops::RangeInclusive<u32> = 30..=100;

fn main() {
    println!("highest load with p99 <= 150 us: 64 workers, 10 us service, 15 us travel");
    for name in ["jbsq(1)", "jbsq(2)", "jbsq(3)", "jbsq(4)", "jbsq(5)", "jsq", "jbsq(auto)"] {
        print!("{name:<12}");
        for shape in SHAPES {
            let curves =
                sweep(&format!("{shape}:10us"), 64, 15_000, FINE.step_by(2).collect(), &[name], 200_000);
            print!("  {shape} {:.2}", curves[1].highest_load(150_000));
        }
        println!();
    }
    table("exponential:25us", 64, 15_000, &[50, 70, 80, 90, 95]);
    for shape in SHAPES {
        table(&format!("{shape}:5ms"), 16, 100_000, &[50, 70, 90]);
        table(&format!("{shape}:1ms"), 16, 15_000, &[50, 70, 90]);
    }
}

fn table(service: &str, workers: usize, travel_ns: u64, loads: &[u32]) {
    println!("\np99 in us at loads {loads:?}: {workers} workers, {service}, {} us travel", travel_ns / 1000);
    let names =
        ["random", "round-robin", "power-of-two", "jsq", "jbsq(1)", "jbsq(2)", "jbsq(3)", "jbsq(auto)"];
    for curve in sweep(service, workers, travel_ns, loads.to_vec(), &names, 400_000) {
        let points: Vec<String> =
            curve.points.iter().map(|point| format!("{:.0}", point.p99 as f64 / 1e3)).collect();
        let bound =
            curve.points.last().and_then(|point| point.bound).map_or(String::new(), |n| format!(" n={n}"));
        println!("{:<14}{}{bound}", curve.name, points.join(" "));
    }
}

fn sweep(
    service: &str,
    workers: usize,
    travel_ns: u64,
    loads: Vec<u32>,
    policies: &[&str],
    requests: usize,
) -> Vec<trunkline_sim::Curve> {
    let service = service.parse().expect("a distribution");
    let scenario = Scenario { workers, service, travel_ns, load: 0.0, requests, seed: 1 };
    let policies: Vec<Policy> = policies.iter().map(|name| name.parse().expect("a policy")).collect();
    Sweep { scenario, loads: loads.into_iter().map(|load| f64::from(load) / 100.0).collect(), policies }.run()
}
