//! For a terminal.

use super::{PERCENTILES, Report, bars, time};
use crate::table::{Table, bytes, count};
use hdrhistogram::Histogram;
use std::fmt::Write;
use trunkline_call::printable;

/// Width of the longest bar.
const BAR_COLUMNS: u64 = 50;
/// Failures shown by their words, and the columns those get.
const FAILURES_SHOWN: usize = 10;
const WORDS_COLUMNS: usize = 70;

/// The report.
pub fn render(report: &Report) -> String {
    let record = &report.record;
    let mut out = format!(
        "{} at {}\n{}\n\n{} in {}, {:.1}/s; {} OK\n",
        report.method,
        report.target,
        report.plan,
        count(record.calls(), "call"),
        time(u64::try_from(record.last.as_nanos()).unwrap_or(u64::MAX)),
        record.rate(),
        record.good(),
    );
    let [sent, received] = record.bytes.map(bytes);
    let _ = writeln!(out, "{sent} sent, {received} received in {}", count(record.responses, "response"));
    if record.unsent > 0 {
        let _ = writeln!(
            out,
            "{} due and not sent: the line was full, or the run was stopped; the figures leave them out",
            count(record.unsent, "call")
        );
    }
    out.push('\n');
    let _ = writeln!(out, "{}", percentiles(report));
    out.push_str(&steps(report));
    out.push_str(&histogram(&record.latency));
    out.push_str(&statuses(report));
    out
}

/// Latency counts from when a call was due, service from when it was sent, behind is the difference.
fn percentiles(report: &Report) -> Table {
    let mut table = Table::new(&["", "latency", "service", "behind"], &[1, 2, 3]);
    let histograms = [&report.record.latency, &report.record.service, &report.record.behind];
    let mut row = |name: &str, value: &dyn Fn(&Histogram<u64>) -> u64| {
        let cells = histograms.iter().map(|histogram| time(value(histogram)));
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    row("min", &|histogram| if histogram.is_empty() { 0 } else { histogram.min() });
    row("mean", &|histogram| histogram.mean() as u64);
    for (name, quantile) in PERCENTILES {
        row(name, &|histogram| histogram.value_at_quantile(quantile));
    }
    row("max", &|histogram| histogram.max());
    table
}

/// A line per step: where latency begins to climb, or calls to fail, is what the service bears.
fn steps(report: &Report) -> String {
    let mut table =
        Table::new(&["rate", "calls", "failed", "p50", "p90", "p99", "max"], &[0, 1, 2, 3, 4, 5, 6]);
    for (rate, step) in report.rates.iter().zip(&report.record.steps) {
        let quantile = |quantile| time(step.latency.value_at_quantile(quantile));
        let calls = (step.good + step.bad).to_string();
        let spread = [quantile(0.5), quantile(0.9), quantile(0.99), quantile(1.0)];
        table.row([format!("{rate:.0}/s"), calls, step.bad.to_string()].into_iter().chain(spread));
    }
    if table.is_empty() { String::new() } else { format!("{table}\n") }
}

fn histogram(latency: &Histogram<u64>) -> String {
    let bars = bars(latency);
    let most = bars.iter().map(|(_, calls)| *calls).max().unwrap_or(0).max(1);
    let mut table = Table::new(&["up to", "calls", ""], &[0, 1]);
    for (end, calls) in &bars {
        let columns = (calls * BAR_COLUMNS).div_ceil(most) as usize;
        table.row([time(*end), calls.to_string(), "█".repeat(columns)]);
    }
    if bars.is_empty() { String::new() } else { format!("{table}\n") }
}

fn statuses(report: &Report) -> String {
    let mut out = String::new();
    for (code, calls) in &report.record.codes {
        let _ = writeln!(out, "{:<20} {calls}", code.name());
        let failures = report.record.failures.iter().filter(|((failed, _), _)| failed == code);
        let mut failures: Vec<_> = failures.collect();
        failures.sort_by_key(|(_, calls)| std::cmp::Reverse(**calls));
        for ((_, words), calls) in failures.into_iter().take(FAILURES_SHOWN) {
            let words: String = printable(words).chars().take(WORDS_COLUMNS).collect();
            let _ = writeln!(out, "    {calls} × {words}");
        }
    }
    out
}
