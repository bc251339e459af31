//! A page with the curves: self-contained, no script.

use crate::sweep::{Curve, Sweep};
use trunkline_plot::{Axis, ChartLine, ChartPage, LineChart};

/// Latencies above so many times the bound's least are off the plot: a saturated policy would flatten all others.
const TOP: f64 = 30.0;

/// An HTML page: for each sweep a plot of p99 against load, and the numbers.
pub fn page(sweeps: &[(Sweep, Vec<Curve>)]) -> String {
    let mut page = ChartPage::new("Dispatch policies: p99 against load");
    for (Sweep { scenario, .. }, curves) in sweeps {
        let (workers, service, requests) = (scenario.workers, scenario.service, scenario.requests);
        let travel_us = scenario.travel_ns as f64 / 1e3;
        page.heading(
            2,
            &format!(
                "{workers} workers, {service} service, {travel_us} µs travel, {requests} requests a point"
            ),
        );
        page.charts(&[plot(curves)]);
        page.table(&["policy", "load", "p50", "p99", "p99.9", "n"], &table(curves));
    }
    page.finish()
}

fn plot(curves: &[Curve]) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let least = points().map(|point| point.p99).min().unwrap_or(1).max(1) as f64;
    let loads = curves.first().map_or(&[][..], |curve| &curve.points);
    let ticks = loads.iter().map(|point| (point.load, format!("{:.0} %", point.load * 100.0)));
    let lines = curves.iter().enumerate().map(|(index, curve)| {
        let points = curve.points.iter().map(|point| (point.load, point.p99 as f64));
        let line = ChartLine::new(&curve.name, points.collect());
        // The first is the bound that the others are held against.
        if index == 0 { line.dashed() } else { line }
    });
    LineChart {
        title: "p99 against load".into(),
        x: Axis { from: None, ..Axis::linear("load", |load| format!("{:.0} %", load * 100.0)) }
            .with_ticks(ticks.collect()),
        y: Axis { most: Some(least * TOP), ..Axis::log("", time) },
        lines: lines.collect(),
    }
    .svg()
}

fn table(curves: &[Curve]) -> Vec<Vec<String>> {
    let rows = curves.iter().flat_map(|curve| curve.points.iter().map(move |point| (curve, point)));
    rows.map(|(curve, point)| {
        let bound = point.bound.map_or(String::new(), |bound| bound.to_string());
        let [p50, p99, p999] = [point.p50, point.p99, point.p999].map(|ns| time(ns as f64));
        vec![curve.name.clone(), format!("{:.2}", point.load), p50, p99, p999, bound]
    })
    .collect()
}

fn time(ns: f64) -> String {
    if ns < 1e6 { format!("{:.1} µs", ns / 1e3) } else { format!("{:.2} ms", ns / 1e6) }
}

#[cfg(test)]
mod tests {
    //! Shows that a page holds every curve and number, whatever they are.
    use super::*;
    use crate::Scenario;
    use trunkline_dispatch::Policy;

    #[test]
    fn every_policy_is_on_the_page() {
        let service = "bimodal:10us".parse().unwrap();
        let scenario = Scenario { workers: 4, service, travel_ns: 1000, load: 0.0, requests: 500, seed: 1 };
        let policies = vec![Policy::Random, Policy::default()];
        let sweep = Sweep { scenario, loads: vec![0.5, 2.0], policies };
        let curves = sweep.run();
        let page = page(&[(sweep, curves)]);
        for name in ["M/G/k bound", "random", "jbsq(auto)"] {
            assert!(page.contains(&format!(">{name}</text>")), "{name}");
            assert_eq!(page.matches(&format!("<td>{name}</td>")).count(), 2);
        }
        assert!(!page.contains("NaN") && page.ends_with("</html>\n"));
    }

    /// Published pages: file, workers, service, travel and requests of each run, and what writes it. That they are of
    /// today shows at one point of each.
    const PUBLISHED: [(&str, usize, &str, u64, usize, &str); 9] = [
        ("all-fixed", 16, "fixed:25000ns", 15_000, 200_000, PAPER),
        ("all-exponential", 16, "exponential:25000ns", 15_000, 200_000, PAPER),
        ("all-bimodal", 16, "bimodal:25000ns", 15_000, 200_000, PAPER),
        ("all-heavy", 16, "heavy:25000ns", 15_000, 200_000, PAPER),
        ("bimodal-5ms", 16, "bimodal:5ms", 100_000, 400_000, VERB),
        ("exponential-25us", 64, "exponential:25us", 15_000, 400_000, VERB),
        ("fixed-10us", 64, "fixed:10us", 15_000, 200_000, VERB),
        ("exponential-10us", 64, "exponential:10us", 15_000, 200_000, VERB),
        ("bimodal-10us", 64, "bimodal:10us", 15_000, 200_000, VERB),
    ];
    const PAPER: &str = "cargo run --release -p trunkline-sim --example paper docs/plots";
    const VERB: &str = "trunkline sim --plot, as docs/measured/history/simulated.md has it";

    #[test]
    fn the_published_pages_are_what_is_simulated() {
        for (name, workers, service, travel_ns, requests, command) in PUBLISHED {
            let path = format!("{}/../../docs/plots/sim-{name}.html", env!("CARGO_MANIFEST_DIR"));
            let published = std::fs::read_to_string(path).unwrap();
            let service = service.parse().unwrap();
            let scenario = Scenario { workers, service, travel_ns, load: 0.0, requests, seed: 1 };
            let sweep = Sweep { scenario, loads: vec![0.9], policies: vec![Policy::default()] };
            let curves = sweep.run();
            let own = page(&[(sweep, curves)]);
            let head = own.split("<h2").next().unwrap();
            assert!(published.starts_with(head), "{name}: drawn by another plotting module: {command}");
            let rows = own.split("<tr>").filter(|row| row.contains("<td>jbsq(auto)"));
            let row = rows.last().and_then(|row| row.split("</tr>").next()).unwrap();
            assert!(published.contains(row), "{name}: {row} is not there: {command}");
        }
    }
}
