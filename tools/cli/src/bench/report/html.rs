//! A page with plots, in one file.

use super::{Report, bars, text, time};
use trunkline_plot::{Axis, BarChart, BarRow, ChartLine, ChartPage, Format, LineChart};

/// Ticks of an axis beside the one at zero.
const TICKS_MAX: usize = 5;

/// The page.
pub fn render(report: &Report) -> String {
    let mut page = ChartPage::new(&format!("{} at {}", report.method, report.target));
    section(&mut page, "Latency by percentile", percentiles(report));
    section(&mut page, "Latency, how often", histogram(report));
    section(&mut page, "Latency over time", over_time(report));
    section(&mut page, "Calls per second", rates(report));
    page.heading(2, "Figures");
    page.preformatted(&text::render(report));
    page.note(
        "Latency counts from the moment a call was due, service from the moment it was sent; the difference is how far \
         the bench was behind.",
    );
    page.finish()
}

fn section(page: &mut ChartPage, heading: &str, plot: String) {
    if !plot.is_empty() {
        page.heading(2, heading);
        page.charts(&[plot]);
    }
}

/// Both latencies over 1/(1 − quantile), which gives each further nine as much room as the last.
fn percentiles(report: &Report) -> String {
    let record = &report.record;
    if record.latency.is_empty() {
        return String::new();
    }
    let nines = (record.calls() as f64).log10().clamp(1.0, 6.0);
    let line = |name, histogram: &hdrhistogram::Histogram<u64>| {
        let at = |step: u32| nines * f64::from(step) / 200.0;
        let value = |x: f64| histogram.value_at_quantile(1.0 - 10f64.powf(-x)) as f64;
        ChartLine::new(name, (0..=200).map(|step| (at(step), value(at(step)))).collect())
    };
    let names = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"];
    let ticks = names.iter().enumerate().map(|(nine, name)| (nine as f64, (*name).to_owned()));
    LineChart {
        title: "latency by percentile".into(),
        x: Axis::linear("calls", number).with_ticks(ticks.take_while(|(x, _)| *x <= nines).collect()),
        y: Axis::linear("", time_label),
        lines: vec![line("latency", &record.latency), line("service", &record.service)],
    }
    .svg()
}

fn over_time(report: &Report) -> String {
    let seconds = &report.record.seconds;
    let line = |name, quantile: f64| {
        let filled = seconds.iter().enumerate().filter(|(_, second)| !second.latency.is_empty());
        let point = |(at, second): (usize, &crate::bench::record::Part)| {
            (at as f64, second.latency.value_at_quantile(quantile) as f64)
        };
        ChartLine::new(name, filled.map(point).collect())
    };
    time_plot(vec![line("p50", 0.5), line("p99", 0.99), line("max", 1.0)], seconds.len(), time_label)
}

fn rates(report: &Report) -> String {
    let seconds = &report.record.seconds;
    let line = |name, value: fn(&crate::bench::record::Part) -> u64| {
        let points = seconds.iter().enumerate().map(|(at, second)| (at as f64, value(second) as f64));
        ChartLine::new(name, points.collect())
    };
    time_plot(
        vec![line("OK", |second| second.good), line("failed", |second| second.bad)],
        seconds.len(),
        number,
    )
}

/// A plot over seconds; one second alone is no curve.
fn time_plot(lines: Vec<ChartLine>, seconds: usize, label: Format) -> String {
    if seconds < 2 {
        return String::new();
    }
    let end = seconds - 1;
    // Whole seconds: a tick between two would say one of them again.
    let ticks =
        (0..=end).step_by(end.div_ceil(TICKS_MAX)).map(|second| (second as f64, format!("{second} s")));
    LineChart {
        title: "over time".into(),
        x: Axis::linear("", number).with_ticks(ticks.collect()),
        y: Axis::linear("", label),
        lines,
    }
    .svg()
}

fn histogram(report: &Report) -> String {
    let bars = bars(&report.record.latency);
    let row = |(end, calls): (u64, u64)| BarRow {
        name: format!("up to {}", time(end)),
        value: calls as f64,
        interval: None,
        words: calls.to_string(),
        colour: 0,
    };
    BarChart { title: "latency, how often".into(), rows: bars.into_iter().map(row).collect(), log: false }
        .svg()
}

fn time_label(ns: f64) -> String {
    time(ns as u64)
}

fn number(value: f64) -> String {
    format!("{value:.0}")
}

#[cfg(test)]
mod tests {
    //! Shows that axes say nothing twice.
    use super::*;

    /// What stands at the axes, in the order of the page.
    fn labels(plot: &str) -> Vec<&str> {
        let texts = plot.split("text-anchor=").skip(1);
        let texts = texts.filter_map(|text| text.split_once('>')?.1.split_once('<').map(|(label, _)| label));
        texts.filter(|label| !label.is_empty() && *label != "OK").collect()
    }

    #[test]
    fn no_tick_is_repeated() {
        for seconds in 2..70 {
            for most in [1.0, 2.0, 3.0, 1000.0] {
                let points = (0..seconds).map(|second| (second as f64, most)).collect();
                let plot = time_plot(vec![ChartLine::new("OK", points)], seconds, number);
                let mut found = labels(&plot);
                let count = found.len();
                assert!((4..=13).contains(&count), "{seconds} seconds: {found:?}");
                found.sort_unstable();
                found.dedup();
                assert_eq!(found.len(), count, "{seconds} seconds, up to {most}: {found:?}");
            }
        }
    }
}
