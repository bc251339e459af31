//! Figures 1, 17, 18 and 22: what hosts did meanwhile.

use super::Drawing;
use crate::block::{BlockHead, NAMED_MAX};
use crate::estimate::{WeightedValues, rank_correlation};
use crate::fleet::{Fleet, FleetCall, is_good};
use crate::machines::{machine, own_parts};
use crate::words::{short, time};
use std::collections::{BTreeMap, BTreeSet};
use trunkline_plot::{Axis, BarChart, BarRow, ChartLine, LineChart};
use trunkline_telemetry::{Coverage, Side};

/// Blocks with fewer calls have no 95th percentile.
const BLOCK_CALLS_MIN: usize = 20;
/// Hosts with a bar.
const HOSTS_MAX: usize = 30;

/// Calls ÷ processor seconds by time, of all hosts together, relative to the first. Intervals are as long as the
/// longest block, so that each host that recorded is in each; a call that two hosts tell of counts once, and so do the
/// processors of a machine of which two daemons were recorded.
pub(crate) fn growth_points(fleet: &Fleet) -> Vec<(f64, f64)> {
    let calls = calls_by_block(fleet);
    let busy_s =
        |head: &BlockHead| head.variables.get("cpu_seconds").copied().filter(|seconds| *seconds > 0.0);
    let own_parts = own_parts(&fleet.heads, |head| machine(head).filter(|_| busy_s(head).is_some()));
    let heads = || fleet.heads.iter().zip(&calls).zip(&own_parts);
    let known = || heads().filter_map(|((head, calls), part)| Some((head, *calls, busy_s(head)? * part)));
    let Some(first_ms) = known().map(|(head, ..)| head.began_unix_ms).min() else { return Vec::new() };
    let length_ms = |head: &BlockHead| head.ended_ns.saturating_sub(head.began_ns).div_ceil(1_000_000);
    let wide_ms = known().map(|(head, ..)| length_ms(head)).max().unwrap_or(0).max(1000);
    let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for (head, calls, seconds) in known() {
        let sum = sums.entry((head.began_unix_ms - first_ms) / wide_ms).or_default();
        *sum = (sum.0 + calls, sum.1 + seconds);
    }
    let points = sums.iter().filter(|(_, (calls, _))| *calls > 0.0);
    let points = points.map(|(at, (calls, seconds))| ((at * wide_ms) as f64 * 1e-3, calls / seconds));
    let points: Vec<(f64, f64)> = points.collect();
    let first = points.first().map_or(f64::NAN, |(_, value)| *value);
    points.into_iter().map(|(at, value)| (at, value / first)).collect()
}

/// Calls of each block, with those that were lost; of a generated one, as it says.
fn calls_by_block(fleet: &Fleet) -> Vec<f64> {
    let mut calls = vec![0.0; fleet.heads.len()];
    fleet.each_once().for_each(|call| calls[call.block as usize] += call.weight);
    for (calls, head) in calls.iter_mut().zip(&fleet.heads) {
        match (head.generated, head.calls_seen) {
            (true, seen) => *calls = seen as f64,
            (false, 0) => {}
            (false, seen) => *calls *= 1.0 + head.calls_lost as f64 / seen as f64,
        }
    }
    calls
}

pub(super) fn growth(fleet: &Fleet) -> Drawing {
    let points = growth_points(fleet);
    if points.len() < 2 || points.iter().any(|(_, value)| !value.is_finite()) {
        return Drawing::Missing(
            "not measured here, because it takes two blocks with calls and their hosts' processor seconds"
                .into(),
        );
    }
    let said =
        format!("{} intervals; processor time is all of the hosts', not of calls alone.", points.len());
    let chart = LineChart {
        title: "calls by processor time".into(),
        x: Axis::linear("time since the first", duration),
        y: Axis::linear("relative to the first", short),
        lines: vec![ChartLine::new("calls ÷ processor time", points)],
    };
    Drawing::Charts(vec![chart.svg()], vec![said])
}

/// Heads of blocks, each with its P95 in seconds, and whose processors their variables are. Those of the hosts that
/// served the calls, if enough blocks tell of such.
fn tails(fleet: &Fleet) -> (Vec<(&BlockHead, f64)>, &'static str) {
    let served = tails_of(fleet, served_there(fleet));
    if served.len() >= 3 {
        return (served, "Calls of all methods that each host served, and that host's variables.");
    }
    let said = "Calls of all methods, and variables of the host that tells of them: here of who made them, not of who \
                served them.";
    (tails_of(fleet, fleet.good()), said)
}

/// Calls that ended well and whose handler was on the host that tells of them.
fn served_there(fleet: &Fleet) -> impl Iterator<Item = &FleetCall> {
    let is_there = |call: &&FleetCall| match call.row.side {
        Side::Served => true,
        Side::Made => call.row.components.coverage == Coverage::OneHost,
        Side::Attempt => false,
    };
    fleet.calls.iter().filter(|call| is_good(call)).filter(is_there)
}

fn tails_of<'f>(fleet: &'f Fleet, calls: impl Iterator<Item = &'f FleetCall>) -> Vec<(&'f BlockHead, f64)> {
    let mut found: Vec<Vec<(f64, f64)>> = vec![Vec::new(); fleet.heads.len()];
    for call in calls {
        found[call.block as usize].push((call.total_s(), call.weight));
    }
    let blocks = fleet.heads.iter().zip(found);
    blocks
        .filter(|(head, calls)| calls.len() >= BLOCK_CALLS_MIN && head.began_ns <= head.ended_ns)
        .map(|(head, calls)| (head, WeightedValues::of(calls).quantile(0.95)))
        .collect()
}

fn names(tails: &[(&BlockHead, f64)]) -> Vec<String> {
    let mut blocks: BTreeMap<&String, usize> = BTreeMap::new();
    for name in tails.iter().flat_map(|(head, _)| head.variables.keys()) {
        *blocks.entry(name).or_default() += 1;
    }
    let enough = blocks.into_iter().filter(|(name, blocks)| *blocks >= 3 && name.as_str() != "cpu_seconds");
    enough.map(|(name, _)| name.clone()).take(NAMED_MAX).collect()
}

fn no_variables() -> Drawing {
    Drawing::Missing(format!(
        "not measured here, because no three blocks of {BLOCK_CALLS_MIN} calls have a variable of their host"
    ))
}

/// Values of a variable and P95 beside each other.
fn pairs(tails: &[(&BlockHead, f64)], name: &str) -> Vec<(f64, f64)> {
    tails.iter().filter_map(|(head, p95)| Some((*head.variables.get(name)?, *p95))).collect()
}

fn correlation(pairs: &[(f64, f64)]) -> String {
    match rank_correlation(pairs) {
        Some(rank) => format!("rank correlation {rank:.2} over {} blocks", pairs.len()),
        None => format!("no correlation to speak of over {} blocks", pairs.len()),
    }
}

pub(super) fn variables(fleet: &Fleet) -> Drawing {
    let (tails, whose) = tails(fleet);
    let (mut charts, mut said) = (Vec::new(), vec![whose.to_owned()]);
    for name in names(&tails) {
        let pairs = pairs(&tails, &name);
        if pairs.len() < 3 {
            continue;
        }
        said.push(format!("{name}: {}.", correlation(&pairs)));
        let chart = LineChart {
            title: format!("P95 against {name}"),
            x: Axis { from: None, ..Axis::linear(&name, short) },
            y: Axis::log("P95", time),
            lines: vec![ChartLine::new("one block", pairs).dots()],
        };
        charts.push(chart.svg());
    }
    if charts.is_empty() { no_variables() } else { Drawing::Charts(charts, said) }
}

pub(super) fn over_time(fleet: &Fleet) -> Drawing {
    let (tails, whose) = tails(fleet);
    let names = names(&tails);
    let Some(first) = tails.iter().map(|(head, _)| head.began_unix_ms).min() else { return no_variables() };
    let seconds = |head: &BlockHead| (head.began_unix_ms - first) as f64 * 1e-3;
    let over = |value: &dyn Fn(&BlockHead, f64) -> Option<f64>| -> Vec<(f64, f64)> {
        // Hosts that recorded at the same time: their mean.
        let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for (head, p95) in &tails {
            if let Some(value) = value(head, *p95) {
                let sum = sums.entry(seconds(head) as u64).or_default();
                *sum = (sum.0 + value, sum.1 + 1.0);
            }
        }
        sums.into_iter().map(|(at, (sum, count))| (at as f64, sum / count)).collect()
    };
    let tail = over(&|_, p95| Some(p95));
    if tail.len() < 3 || names.is_empty() {
        return no_variables();
    }
    let x = || Axis::linear("time since the first block", duration);
    let chart = |title: &str, y: Axis, points| {
        LineChart { title: title.into(), x: x(), y, lines: vec![ChartLine::new(title, points)] }.svg()
    };
    let mut charts = vec![chart("P95", Axis::linear("P95", time), tail.clone())];
    let mut said = vec![whose.to_owned()];
    for name in &names {
        let points = over(&|head, _| head.variables.get(name).copied());
        let joined: BTreeMap<u64, f64> = tail.iter().map(|(at, value)| (*at as u64, *value)).collect();
        if points.len() < 3 {
            continue;
        }
        let both: Vec<_> =
            points.iter().filter_map(|(at, value)| Some((*value, *joined.get(&(*at as u64))?))).collect();
        said.push(format!("{name}: {}.", correlation(&both)));
        charts.push(chart(name, Axis { from: None, ..Axis::linear(name, short) }, points));
    }
    Drawing::Charts(charts, said)
}

pub(super) fn use_of_hosts(fleet: &Fleet) -> Drawing {
    let sums = uses(fleet);
    if sums.is_empty() {
        return Drawing::Missing(
            "not measured here, because no block says how busy its host's processors were".into(),
        );
    }
    let hosts = sums.len();
    let mut rows: Vec<BarRow> = sums
        .into_iter()
        .map(|(host, values)| {
            let values = WeightedValues::of(values);
            let ends = [values.quantile(0.0), values.quantile(1.0)];
            BarRow {
                name: host,
                value: values.mean(),
                interval: Some(ends),
                words: format!("{:.0} % ({:.0}–{:.0})", values.mean(), ends[0], ends[1]),
                colour: 0,
            }
        })
        .collect();
    rows.sort_by(|a, b| b.value.total_cmp(&a.value));
    rows.truncate(HOSTS_MAX);
    let said = format!(
        "{} of {hosts} hosts, the busiest; whiskers from the least to the most of a block.",
        rows.len()
    );
    Drawing::Charts(
        vec![BarChart { title: "processor use by host".into(), rows, log: false }.svg()],
        vec![said],
    )
}

/// Percentages of time that machines' processors were busy, each with the time it is of, by the names of their hosts.
fn uses(fleet: &Fleet) -> BTreeMap<String, Vec<(f64, f64)>> {
    let percent = |head: &BlockHead| head.variables.get("cpu_percent").copied();
    let own_parts = own_parts(&fleet.heads, |head| machine(head).filter(|_| percent(head).is_some()));
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for head in &fleet.heads {
        if let Some(machine) = machine(head) {
            names.entry(machine).or_default().insert(&head.host);
        }
    }
    let mut sums: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (head, own_part) in fleet.heads.iter().zip(own_parts).filter(|(_, own_part)| *own_part > 0.0) {
        if let Some(percent) = percent(head) {
            // A short block counts as little as it lasted.
            let ns = head.ended_ns.saturating_sub(head.began_ns).max(1) as f64 * own_part;
            let names = machine(head).and_then(|machine| names.get(machine));
            let name = names.map_or_else(|| head.host.clone(), |names| machine_name(names));
            sums.entry(name).or_default().push((percent, ns));
        }
    }
    sums
}

/// What a machine is called of which these hosts' daemons were recorded.
fn machine_name(names: &BTreeSet<&str>) -> String {
    match names.first() {
        Some(first) if names.len() > 1 => format!("{first} and {} more", names.len() - 1),
        Some(first) => (*first).to_owned(),
        None => String::new(),
    }
}

/// A time on an axis that may be seconds or years.
fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 180.0 => format!("{seconds:.0} s"),
        seconds if seconds < 10_800.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 259_200.0 => format!("{:.0} h", seconds / 3600.0),
        seconds => format!("{:.0} d", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    //! Shows that hosts of different speed make one line, and that a call counts once, lost ones with the others.
    use super::*;
    use crate::block::tests::block;

    /// A server's processors say something about its calls, those of its callers do not.
    #[test]
    fn variables_are_of_the_host_that_served_the_calls() {
        let mut fleet = Fleet::default();
        for n in 0..4_u64 {
            for (host, other, side, percent) in
                [("caller", "server", Side::Made, 5.0), ("server", "caller", Side::Served, 90.0)]
            {
                let mut block = block(host, 60);
                block.head.began_unix_ms = 1_000_000 + 60_000 * n;
                block.head.peers.iter_mut().for_each(|(_, name)| other.clone_into(name));
                block.head.variables = BTreeMap::from([("cpu_percent".to_owned(), percent)]);
                block.rows.iter_mut().for_each(|call| {
                    call.row.side = side;
                    call.row.components.coverage =
                        if side == Side::Made { Coverage::Whole } else { Coverage::ServerOnly };
                });
                fleet.add(block);
            }
        }
        let (found, whose) = tails(&fleet);
        assert!(whose.contains("each host served"), "{whose}");
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|(head, _)| head.variables["cpu_percent"] > 80.0));
        // Where only callers have recorded it is said.
        fleet.calls.retain(|call| call.row.side == Side::Made);
        let (found, whose) = tails(&fleet);
        assert!(found.len() == 4 && whose.contains("not of who served"), "{whose}");
    }

    #[test]
    fn hosts_together_make_one_line() {
        let mut fleet = Fleet::default();
        // A host that bears ten times as many calls as the other; their blocks of five seconds begin at other seconds.
        for n in 0..4_u64 {
            for (host, calls, at_ms) in [("a", 100, 0), ("b", 10, 2_500)] {
                let mut block = block(host, calls);
                (block.head.began_unix_ms, block.head.calls_seen) = (1_000_000 + at_ms + 5_000 * n, calls);
                block.head.ended_ns = block.head.began_ns + 5_000_000_000;
                block.head.variables = BTreeMap::from([("cpu_seconds".to_owned(), 1.0)]);
                if host == "b" {
                    // Calls of the other host that this one has served.
                    block.head.peers.iter_mut().for_each(|(_, name)| "a".clone_into(name));
                    let mut served = block.rows.clone();
                    served.iter_mut().for_each(|call| call.row.side = Side::Served);
                    block.rows.extend(served);
                    (block.head.calls_seen, block.head.calls_lost) = (20, 20 * (n / 3));
                }
                fleet.add(block);
            }
        }
        let points = growth_points(&fleet);
        let expected = [(0.0, 1.0), (5.0, 1.0), (10.0, 1.0), (15.0, 120.0 / 110.0)];
        assert_eq!(points.len(), 4, "{points:?}");
        for (got, wanted) in points.iter().zip(expected) {
            assert!(got.0 == wanted.0 && (got.1 - wanted.1).abs() < 1e-9, "{points:?}");
        }
    }

    #[test]
    fn processors_of_two_daemons_of_a_machine_count_once() {
        let with = |daemons: &[&str]| {
            let mut fleet = Fleet::default();
            for n in 0..4_u64 {
                // One of them was recorded in the first half alone.
                for host in daemons.iter().filter(|host| **host == "a" || n < 2) {
                    let mut block = block(host, 100);
                    (block.head.began_unix_ms, block.head.calls_seen) = (1_000_000 + 5_000 * n, 100);
                    block.head.ended_ns = block.head.began_ns + 5_000_000_000;
                    block.head.boot_id = "boot".into();
                    let variables = [("cpu_seconds", 1.0), ("cpu_percent", 20.0)];
                    block.head.variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
                    block.rows.iter_mut().for_each(|call| call.row.at.0 += n * 7);
                    fleet.add(block);
                }
            }
            fleet
        };
        let two = with(&["a", "b"]);
        let points = growth_points(&two);
        assert_eq!(points.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [1.0, 1.0, 0.5, 0.5]);
        let (one, two) = (uses(&with(&["a"])), uses(&two));
        assert_eq!((one.len(), two.len()), (1, 1));
        assert_eq!(one["a"], two["a and 1 more"]);
    }
}
