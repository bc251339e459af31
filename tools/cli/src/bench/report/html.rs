//! A page with plots, in one file.

use super::{Report, bars, text, time};
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 260.0;
/// Room for the numbers at the axes.
const LEFT: f64 = 80.0;
const BELOW: f64 = 30.0;

const STYLE: &str = "body{font:15px system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}\
pre{background:#f6f6f6;padding:1rem;overflow-x:auto}svg{width:100%;height:auto}\
text{font:12px system-ui,sans-serif;fill:#555}.grid{stroke:#ddd}.bar{fill:#4878a8}.bad{fill:#c0504d}\
.line{fill:none;stroke-width:2}h2{margin-top:2rem}";

/// Ticks of an axis beside the one at zero.
const TICKS_MAX: usize = 5;

/// A curve: name, colour, points.
struct Curve<'a> {
    name: &'a str,
    color: &'a str,
    points: Vec<(f64, f64)>,
}

/// The page.
pub fn render(report: &Report) -> String {
    let title = escape(&format!("{} at {}", report.method, report.target));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    );
    section(&mut out, "Latency by percentile", &percentiles(report));
    section(&mut out, "Latency, how often", &histogram(report));
    section(&mut out, "Latency over time", &over_time(report));
    section(&mut out, "Calls per second", &rates(report));
    let _ = writeln!(out, "<h2>Figures</h2>\n<pre>{}</pre>", escape(&text::render(report)));
    out.push_str(
        "<p>Latency counts from the moment a call was due, service from the moment it was sent; the difference \
         is how far the bench was behind.</p>\n</body></html>\n",
    );
    out
}

fn section(out: &mut String, heading: &str, plot: &str) {
    if !plot.is_empty() {
        let _ = writeln!(out, "<h2>{heading}</h2>\n{plot}");
    }
}

/// Both latencies over 1/(1 − quantile), which gives each further nine as much room as the last.
fn percentiles(report: &Report) -> String {
    let record = &report.record;
    if record.latency.is_empty() {
        return String::new();
    }
    let nines = (record.calls() as f64).log10().clamp(1.0, 6.0);
    let curve = |name, color, histogram: &hdrhistogram::Histogram<u64>| {
        let at = |step: u32| nines * f64::from(step) / 200.0;
        let value = |x: f64| histogram.value_at_quantile(1.0 - 10f64.powf(-x)) as f64;
        Curve { name, color, points: (0..=200).map(|step| (at(step), value(at(step)))).collect() }
    };
    let curves = [curve("latency", "#4878a8", &record.latency), curve("service", "#70a858", &record.service)];
    let names = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"];
    let ticks = names.iter().enumerate().map(|(nine, name)| (nine as f64, (*name).to_owned()));
    lines(&curves, nines, ticks.take_while(|(x, _)| *x <= nines).collect(), time_label)
}

fn over_time(report: &Report) -> String {
    let seconds = &report.record.seconds;
    let curve = |name, color, quantile: f64| {
        let filled = seconds.iter().enumerate().filter(|(_, second)| !second.latency.is_empty());
        let point = |(at, second): (usize, &crate::bench::record::Part)| {
            (at as f64, second.latency.value_at_quantile(quantile) as f64)
        };
        Curve { name, color, points: filled.map(point).collect() }
    };
    let curves = [curve("p50", "#70a858", 0.5), curve("p99", "#4878a8", 0.99), curve("max", "#c0504d", 1.0)];
    time_plot(&curves, seconds.len(), time_label)
}

fn rates(report: &Report) -> String {
    let seconds = &report.record.seconds;
    let curve = |name, color, value: fn(&crate::bench::record::Part) -> u64| {
        let point = |(at, second)| (at as f64, value(second) as f64);
        Curve { name, color, points: seconds.iter().enumerate().map(|(at, s)| point((at, s))).collect() }
    };
    let curves =
        [curve("OK", "#4878a8", |second| second.good), curve("failed", "#c0504d", |second| second.bad)];
    time_plot(&curves, seconds.len(), |value| format!("{value:.0}"))
}

/// A plot over seconds; one second alone is no curve.
fn time_plot(curves: &[Curve<'_>], seconds: usize, label: fn(f64) -> String) -> String {
    if seconds < 2 {
        return String::new();
    }
    let end = seconds - 1;
    // Whole seconds: a tick between two would say one of them again.
    let ticks =
        (0..=end).step_by(end.div_ceil(TICKS_MAX)).map(|second| (second as f64, format!("{second} s")));
    lines(curves, end as f64, ticks.collect(), label)
}

fn histogram(report: &Report) -> String {
    let bars = bars(&report.record.latency);
    let most = bars.iter().map(|(_, calls)| *calls).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let mut out = begin();
    let width = (WIDTH - LEFT) / bars.len() as f64;
    for (at, (end, calls)) in bars.iter().enumerate() {
        let (x, height) = (LEFT + at as f64 * width, *calls as f64 / most as f64 * (HEIGHT - 20.0));
        let _ = write!(
            out,
            "<rect class=\"bar\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{calls}</text>",
            HEIGHT - height,
            width - 4.0,
            x + width / 2.0,
            HEIGHT + 18.0,
            time(*end),
            x + width / 2.0,
            HEIGHT - height - 4.0,
        );
    }
    out.push_str("</svg>");
    out
}

/// Curves over `0..=x_max`, from zero up.
fn lines(curves: &[Curve<'_>], x_max: f64, x_ticks: Vec<(f64, String)>, label: fn(f64) -> String) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let y_max = points().map(|(_, y)| *y).fold(0.0, f64::max);
    if points().next().is_none() || y_max <= 0.0 || x_max <= 0.0 {
        return String::new();
    }
    let x_of = |x: f64| LEFT + x / x_max * (WIDTH - LEFT - 20.0);
    let y_of = |y: f64| HEIGHT - y / y_max * (HEIGHT - 20.0);
    let mut out = begin();
    let mut y_ticks: Vec<(f64, String)> =
        (0..=4).map(|tick| y_max * f64::from(tick) / 4.0).map(|value| (value, label(value))).collect();
    // Small figures are rounded to the same words.
    y_ticks.dedup_by(|next, before| next.1 == before.1);
    for (value, name) in y_ticks {
        let y = y_of(value);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            LEFT - 6.0,
            y + 4.0,
        );
    }
    for (x, name) in x_ticks {
        let y = HEIGHT + 18.0;
        let _ = write!(out, "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{name}</text>", x_of(x));
    }
    for (at, curve) in curves.iter().enumerate() {
        let path: Vec<String> =
            curve.points.iter().map(|(x, y)| format!("{:.1},{:.1}", x_of(*x), y_of(*y))).collect();
        let _ = write!(
            out,
            "<polyline class=\"line\" stroke=\"{0}\" points=\"{1}\"/>\
             <text x=\"{2:.1}\" y=\"{3:.1}\" style=\"fill:{0}\">{4}</text>",
            curve.color,
            path.join(" "),
            LEFT + 12.0,
            24.0 + 16.0 * at as f64,
            curve.name,
        );
    }
    out.push_str("</svg>");
    out
}

fn begin() -> String {
    let height = HEIGHT + BELOW;
    format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">")
}

fn time_label(ns: f64) -> String {
    time(ns as u64)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    //! Shows that axes say nothing twice.
    use super::*;

    /// What stands at the axes, in the order of the page.
    fn labels(plot: &str) -> Vec<&str> {
        let texts = plot.split("text-anchor=").skip(1);
        texts.filter_map(|text| text.split_once('>')?.1.split_once('<').map(|(label, _)| label)).collect()
    }

    #[test]
    fn no_tick_is_repeated() {
        for seconds in 2..70 {
            for most in [1.0, 2.0, 3.0, 1000.0] {
                let points = (0..seconds).map(|second| (second as f64, most)).collect();
                let curve = Curve { name: "OK", color: "#000", points };
                let plot = time_plot(&[curve], seconds, |value| format!("{value:.0}"));
                let mut found = labels(&plot);
                let count = found.len();
                assert!((4..=12).contains(&count), "{seconds} seconds: {found:?}");
                found.sort_unstable();
                found.dedup();
                assert_eq!(found.len(), count, "{seconds} seconds, up to {most}: {found:?}");
            }
        }
    }
}
