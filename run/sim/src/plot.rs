//! A page with the curves: self-contained, no script.

use crate::sweep::{Curve, Sweep};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const MARGIN: f64 = 56.0;
/// Latencies above so many times the bound's least are off the plot: a saturated policy would flatten all others.
const TOP: f64 = 30.0;
const COLOURS: [&str; 9] =
    ["#000", "#888", "#b58900", "#268bd2", "#6c71c4", "#2aa198", "#859900", "#d33682", "#dc322f"];

/// An HTML page: for each sweep a plot of p99 against load, and the numbers.
pub fn page(sweeps: &[(Sweep, Vec<Curve>)]) -> String {
    let mut out = String::from("<!doctype html><meta charset=utf-8><title>Dispatch policies</title>\n");
    out.push_str(
        "<style>body{font:14px sans-serif;margin:2em}td,th{padding:2px 10px;text-align:right}</style>\n",
    );
    out.push_str("<h1>p99 against load</h1>\n");
    for (Sweep { scenario, .. }, curves) in sweeps {
        let (workers, service, requests) = (scenario.workers, scenario.service, scenario.requests);
        let travel_us = scenario.travel_ns as f64 / 1e3;
        let _ = writeln!(
            out,
            "<h2>{workers} workers, {service} service, {travel_us} µs travel, {requests} requests a point</h2>"
        );
        out.push_str(&plot(curves));
        out.push_str(&table(curves));
    }
    out
}

fn plot(curves: &[Curve]) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let least = points().map(|point| point.p99).min().unwrap_or(1).max(1) as f64;
    let most = points().map(|point| point.p99 as f64).fold(least, f64::max).min(least * TOP);
    let loads = points().map(|point| point.load);
    let (from, to) = loads.fold((1.0f64, 0.0f64), |(from, to), load| (from.min(load), to.max(load)));
    let x = |load: f64| MARGIN + (load - from) / (to - from).max(1e-9) * (WIDTH - 2.0 * MARGIN);
    let scale = (most / least).ln().max(1e-9);
    let y = |ns: f64| HEIGHT - MARGIN - (ns / least).ln() / scale * (HEIGHT - 2.0 * MARGIN);
    let mut out = format!("<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}'>\n");
    let _ = writeln!(
        out,
        "<path d='M{MARGIN} {MARGIN}V{0}H{1}' fill='none' stroke='#999'/>",
        HEIGHT - MARGIN,
        WIDTH - MARGIN
    );
    for ns in [1.0, 2.0, 5.0].iter().flat_map(|step| (3..11).map(move |power| step * 10f64.powi(power))) {
        if (least..=most).contains(&ns) {
            let _ = writeln!(out, "<text x='4' y='{:.0}' font-size='11'>{}</text>", y(ns) + 4.0, time(ns));
        }
    }
    for load in curves.first().map_or(&[][..], |curve| &curve.points).iter().map(|point| point.load) {
        let (x, y) = (x(load) - 10.0, HEIGHT - MARGIN + 18.0);
        let _ = writeln!(out, "<text x='{x:.0}' y='{y:.0}' font-size='11'>{:.0}%</text>", load * 100.0);
    }
    for (index, curve) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let shown = curve.points.iter().filter(|point| point.p99 as f64 <= most);
        let path: Vec<_> =
            shown.map(|point| format!("{:.1},{:.1}", x(point.load), y(point.p99 as f64))).collect();
        let path = path.join(" ");
        let _ = writeln!(out, "<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>");
        let at = MARGIN + 8.0 + 16.0 * index as f64;
        let _ = writeln!(out, "<text x='{}' y='{at}' fill='{colour}'>{}</text>", MARGIN + 12.0, curve.name);
    }
    out.push_str("</svg>\n");
    out
}

fn table(curves: &[Curve]) -> String {
    let mut out = String::from("<table><tr><th>policy<th>load<th>p50<th>p99<th>p99.9<th>n</tr>\n");
    for (curve, point) in curves.iter().flat_map(|curve| curve.points.iter().map(move |point| (curve, point)))
    {
        let bound = point.bound.map_or(String::new(), |bound| bound.to_string());
        let [p50, p99, p999] = [point.p50, point.p99, point.p999].map(|ns| time(ns as f64));
        let (name, load) = (&curve.name, point.load);
        let _ = writeln!(out, "<tr><td>{name}<td>{load:.2}<td>{p50}<td>{p99}<td>{p999}<td>{bound}</tr>");
    }
    out.push_str("</table>\n");
    out
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
            assert_eq!(page.matches(&format!("<td>{name}<td>")).count(), 2);
        }
        assert!(!page.contains("NaN") && page.ends_with("</table>\n"));
    }
}
