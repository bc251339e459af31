//! Explanations and rows as text.

use crate::component::Component;
use crate::explain::{Explanation, Spread};
use crate::record::Side;
use crate::top::TopRow;
use crate::what_if::WhatIf;
use std::fmt::Write;

/// The table `trunkline explain` prints.
pub fn explanation(explanation: &Explanation) -> String {
    let mut out = String::new();
    head(&mut out, explanation);
    table(&mut out, explanation);
    notes(&mut out, explanation);
    out
}

/// Columns a method's name gets at least, in which one is told from others of its service.
const METHOD_MIN: usize = 20;
/// Columns of the figures of a line of [`top`], with the blanks between them.
const FIGURES: usize = 50;
/// What wires and server are called where no stamps came back.
const REMOTE: &str = "remote (not divided)";
/// Columns of the longest component, with its share.
const COMPONENT_MAX: usize = 32;

/// The busiest methods, a line each, in so many columns: long names lose their beginning, which they share with others.
pub fn top(rows: &[TopRow], columns: usize) -> String {
    let longest = rows.iter().map(|row| row.method.chars().count()).max().unwrap_or(0).max(6);
    let width = longest.min(columns.saturating_sub(FIGURES + COMPONENT_MAX).max(METHOD_MIN));
    let mut out = String::new();
    let heading = format!(
        "{:width$}  {:6} {:>10} {:>8} {:>9} {:>9}  most time in",
        "method", "side", "calls/s", "errors", "p50", "p99"
    );
    line(&mut out, format_args!("{}", first(&heading, columns)));
    for row in rows {
        let biggest = match row.biggest_percent {
            // Every call streams.
            0.0 if row.p50_ns > 0 => "–",
            _ => row.biggest.map_or(REMOTE, Component::name),
        };
        let whole = format!(
            "{:width$}  {:6} {:>10.1} {:>8} {:>9} {:>9}  {:>3.0} % {biggest}",
            last(&row.method, width),
            row.side.name(),
            row.rate,
            row.errors,
            duration(row.p50_ns),
            duration(row.p99_ns),
            row.biggest_percent,
        );
        line(&mut out, format_args!("{}", first(&whole, columns)));
    }
    out
}

/// The end of a text that is too long for its columns.
fn last(text: &str, columns: usize) -> String {
    let over = text.chars().count().saturating_sub(columns);
    if over == 0 {
        text.to_owned()
    } else {
        format!("…{}", text.chars().skip(over + 1).collect::<String>())
    }
}

/// Its beginning.
fn first(text: &str, columns: usize) -> String {
    let fits = text.chars().count() <= columns;
    let cut = || text.chars().take(columns.saturating_sub(1)).chain(['…']).collect();
    if fits { text.to_owned() } else { cut() }
}

/// A duration in three significant digits: `870 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`.
pub fn duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

/// A number with its noun, in the plural unless it is one: `1 call`, `2 calls`, `2 days`, `2 policies`, `2 processes`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 {
        return format!("1 {noun}");
    }
    match noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
        Some(stem) => format!("{number} {stem}ies"),
        None if noun.ends_with('s') => format!("{number} {noun}es"),
        None => format!("{number} {noun}s"),
    }
}

fn head(out: &mut String, explanation: &Explanation) {
    let what = match explanation.methods.as_slice() {
        [one] => one.clone(),
        many => format!("{} methods", many.len()),
    };
    let peers = match explanation.peers.as_slice() {
        [one] => one.clone(),
        many => format!("{} peers", many.len()),
    };
    let (noun, verb, preposition) = match explanation.side {
        Side::Made => ("call", "made", "to"),
        Side::Served => ("call", "served", "for"),
        Side::Attempt => ("attempt", "made", "at"),
    };
    let calls = count(explanation.calls, noun);
    line(out, format_args!("{what}: {calls} {verb} here, {preposition} {peers}"));
    let errors = explanation.errors.iter().fold(0, |sum: u64, (_, n)| sum.saturating_add(*n));
    if errors > 0 {
        let list: Vec<_> = explanation.errors.iter().map(|(code, n)| format!("{code} {n}")).collect();
        line(out, format_args!("{}: {}", count(errors, "error"), list.join(", ")));
    }
    out.push('\n');
}

fn table(out: &mut String, explanation: &Explanation) {
    let what_if = !explanation.what_if.is_empty();
    let has_intervals = explanation.what_if.iter().any(|row| row.intervals.is_some());
    let head = match (what_if, has_intervals) {
        (false, _) => "",
        (true, false) => "  P95 at median  escape",
        (true, true) => "  P95 at median  escape  95 % interval",
    };
    line(
        out,
        format_args!(
            "{:28} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9}{head}",
            "component", "share", "mean", "p50", "p90", "p99", "p99.9"
        ),
    );
    for row in &explanation.components {
        let found = explanation.what_if.iter().find(|what_if| what_if.component == row.component);
        let tail = found.map_or_else(String::new, what_if_columns);
        spread(out, row.component.name(), &row.spread, &tail);
        match row.component {
            Component::RequestStack => wakeup(out, &explanation.wakeups[0]),
            Component::ResponseStack => wakeup(out, &explanation.wakeups[1]),
            _ => {}
        }
    }
    if let Some(remote) = &explanation.remote {
        spread(out, REMOTE, remote, "");
    }
    spread(out, "completion time", &explanation.total, "");
    if let Some(streams) = &explanation.streams {
        spread(out, "streams (not divided)", streams, "");
    }
}

fn what_if_columns(found: &WhatIf) -> String {
    let columns =
        format!("{:>15} {:>7}", reduction(found.p95_reduction_percent), share(found.tail_escape_percent));
    let Some(intervals) = &found.intervals else { return columns };
    let [low, high] = intervals.p95_reduction_percent;
    if high < 0.05 {
        return format!("{columns} {:>14}", "–");
    }
    format!("{columns} {:>14}", format!("{}…{}", reduction(high), reduction(low)))
}

fn notes(out: &mut String, explanation: &Explanation) {
    let streams = explanation.streams.map_or(0, |streams| streams.calls);
    if let Some(tax) = explanation.tax_percent() {
        verdict(out, explanation);
        line(out, format_args!("RPC latency tax: {tax:.1} % of completion time"));
        coverage(out, explanation);
    } else {
        out.push('\n');
    }
    if streams > 0 {
        let streams = count(streams, "stream");
        line(out, format_args!("{streams}: how long one takes is up to its ends, and is not divided"));
    }
    handlers(out, explanation);
    if explanation.half_width_ns > 0 {
        line(
            out,
            format_args!("wires: clock offset known within ±{} (mean)", duration(explanation.half_width_ns)),
        );
    }
    if explanation.clipped > 0 {
        line(
            out,
            format_args!(
                "{}: the server claimed more time than there was; scaled down",
                count(explanation.clipped, "call")
            ),
        );
    }
    if !explanation.what_if.is_empty() {
        let samples = count(explanation.samples, "call");
        let (last, tail) = (duration(explanation.samples_ns), explanation.tail_calls);
        line(
            out,
            format_args!(
                "what-if columns: from {samples} of the last {last} seen one by one, {tail} at or above P95"
            ),
        );
    }
}

/// How much of the calls was measured.
fn coverage(out: &mut String, explanation: &Explanation) {
    let Explanation { calls, client_only, one_host, stayed, .. } = explanation;
    if explanation.side == Side::Served {
        return line(out, format_args!("5 of 9 components: the server's own part of each call"));
    }
    let streams = explanation.streams.map_or(0, |streams| streams.calls);
    let others = [*client_only, *one_host, *stayed, streams];
    let whole = others.iter().fold(*calls, |left, other| left.saturating_sub(*other));
    let of = |n: u64| if n == *calls { "every call".to_owned() } else { count(n, "call") };
    if whole > 0 {
        line(out, format_args!("9 of 9 components measured in {}", of(whole)));
    }
    if *one_host > 0 {
        line(
            out,
            format_args!(
                "7 of 7 components measured in {}: within this host there is no wire",
                of(*one_host)
            ),
        );
    }
    if *client_only > 0 {
        let of = of(*client_only);
        line(
            out,
            format_args!(
                "5 of 9 components measured in {of}: no stamps came back, so wires and server are one"
            ),
        );
    }
    if *stayed > 0 {
        line(out, format_args!("{} ended before anybody was asked", count(*stayed, "call")));
    }
    if explanation.kernel_stamped > 0 {
        let stamped = count(explanation.kernel_stamped, "call");
        line(out, format_args!("the kernel said when the last byte left in {stamped}"));
    }
}

/// What the handlers took and made.
fn handlers(out: &mut String, explanation: &Explanation) {
    let cpu = &explanation.cpu;
    if cpu.calls > 0 {
        let (mean, p99, told) = (duration(cpu.mean_ns), duration(cpu.p99_ns), count(cpu.calls, "call"));
        line(out, format_args!("handler's processor time: {mean} on average, p99 {p99} (told by {told})"));
    }
    if cpu.share_percent > 0.0 {
        line(out, format_args!("{:.1} % of it went into calls that did not end well", cpu.share_percent));
    }
    if explanation.subtree_mean > 1.0 {
        line(
            out,
            format_args!("calls below each, itself included: {:.1} on average", explanation.subtree_mean),
        );
    }
}

/// Where to look first.
fn verdict(out: &mut String, explanation: &Explanation) {
    let parts = explanation.components.iter().map(|row| (row.component.name(), row.spread.share_percent));
    // Where no stamps came back most calls are mostly there.
    let remote = explanation.remote.iter().map(|remote| (REMOTE, remote.share_percent));
    if let Some((name, percent)) = parts.chain(remote).max_by(|a, b| a.1.total_cmp(&b.1)) {
        line(out, format_args!("\nmost of the time: {name}, {percent:.1} %"));
    }
    let by_p95 = |a: &&WhatIf, b: &&WhatIf| a.p95_reduction_percent.total_cmp(&b.p95_reduction_percent);
    let Some(tail) =
        explanation.what_if.iter().max_by(by_p95).filter(|tail| tail.p95_reduction_percent >= 1.0)
    else {
        return;
    };
    if tail.intervals.is_some_and(|intervals| intervals.p95_reduction_percent[0] < 1.0) {
        let few = count(explanation.tail_calls, "call");
        return line(out, format_args!("most of the tail: not known, {few} at or above P95 are too few"));
    }
    let (name, percent) = (tail.component, tail.p95_reduction_percent);
    line(
        out,
        format_args!("most of the tail: {name}, P95 −{percent:.1} % if it were never above its median"),
    );
}

fn spread(out: &mut String, name: &str, spread: &Spread, tail: &str) {
    if spread.calls == 0 {
        return line(out, format_args!("{name:28} {:>6}", "–"));
    }
    let [mean, p50, p90, p99, p999] =
        [spread.mean_ns, spread.p50_ns, spread.p90_ns, spread.p99_ns, spread.p999_ns].map(duration);
    line(
        out,
        format_args!(
            "{name:28} {:>6} {mean:>9} {p50:>9} {p90:>9} {p99:>9} {p999:>9}{tail}",
            share(spread.share_percent)
        ),
    );
}

fn wakeup(out: &mut String, wakeup: &Spread) {
    if wakeup.max_ns > 0 {
        spread(out, "  of it kernel to daemon", wakeup, "");
    }
}

fn share(percent: f64) -> String {
    format!("{percent:.1}%")
}

fn reduction(percent: f64) -> String {
    if percent < 0.05 { "–".to_owned() } else { format!("−{percent:.1}%") }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}
