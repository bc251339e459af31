//! `trunkline tree`: calls below calls, above them, and whole trees one by one.

use crate::args::TreeArgs;
use crate::load::load_calls;
use crate::say;
use std::collections::BTreeMap;
use trunkline_insight::estimate::WeightedValues;
use trunkline_insight::words::{percent, time};
use trunkline_insight::{Fleet, WholeTree};

/// Lines of one tree; of a larger one the rest is counted.
const LINES_MAX: usize = 200;
/// Methods of the critical path.
const METHODS_MAX: usize = 20;

/// Prints what is asked for.
///
/// # Errors
/// A file cannot be read, or it says nothing of calls below or above others.
pub fn tree(args: &TreeArgs) -> Result<(), String> {
    let fleet = load_calls(&args.files.files)?;
    let mut trees = WholeTree::all(&fleet);
    trees.retain(|tree| {
        let first = tree.calls.first().map_or("", |top| fleet.name(method_of(&fleet, top.trace)));
        first.contains(&args.of.method)
    });
    if let Some(wanted) = args.trace {
        let found = trees.iter().find(|tree| trace_of(&fleet, tree) == wanted);
        let found = found
            .ok_or_else(|| format!("no whole tree of trace {wanted:032x}; {}", whole(&fleet, &trees)))?;
        print!("{}", drawn(&fleet, found));
        return Ok(());
    }
    if args.slowest > 0 {
        if trees.is_empty() {
            return Err(whole(&fleet, &trees));
        }
        trees.iter().take(args.slowest as usize).for_each(|tree| println!("{}", drawn(&fleet, tree)));
        return Ok(());
    }
    let (below, told) = below(&fleet);
    let above: Vec<_> = fleet.above_by_method().into_iter().map(|one| (one.method, one.values)).collect();
    if below.is_empty() && above.is_empty() {
        return Err("no server told how many calls there were below its own (docs/telemetry.md says who does), and no \
                    method has enough calls of whole trees"
            .into());
    }
    print!("{}", say::tree("below", &rows(&fleet, below)));
    println!("servers told of {} of the calls how many were below\n", percent(told));
    print!("{}", say::tree("above", &rows(&fleet, above)));
    println!("{}\n", whole(&fleet, &trees));
    print!("{}", critical(&fleet, &trees));
    print!("{}", say::footer(&fleet, fleet.each_once().count()));
    Ok(())
}

/// How many calls were below calls, by method; and of which part of the calls that was told.
fn below(fleet: &Fleet) -> (Vec<(u32, WeightedValues)>, f64) {
    let mut found: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    for call in fleet.each_once().filter(|call| call.row.subtree > 0) {
        found.entry(call.method).or_default().push((f64::from(call.row.subtree - 1), call.weight));
    }
    let told: f64 = found.values().flatten().map(|(_, weight)| weight).sum();
    let found = found.into_iter().map(|(method, values)| (method, WeightedValues::of(values)));
    (found.collect(), told / fleet.weight())
}

fn rows(fleet: &Fleet, found: Vec<(u32, WeightedValues)>) -> Vec<(String, usize, [f64; 4])> {
    let row = |(method, values): (u32, WeightedValues)| {
        let figures = [values.quantile(0.5), values.quantile(0.9), values.quantile(0.99), values.mean()];
        (fleet.name(method).to_owned(), values.len(), figures)
    };
    let mut rows: Vec<_> = found.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.2[3].total_cmp(&a.2[3]));
    rows
}

fn whole(fleet: &Fleet, trees: &[WholeTree]) -> String {
    if fleet.traces.is_empty() {
        return "no call belongs to a trace: traces are kept where recorder.traces is true".into();
    }
    format!(
        "{} trees were recorded from their first call on, {} calls belong to a trace",
        trees.len(),
        fleet.traces.len()
    )
}

/// What part of whole trees' completion time each method accounts for.
fn critical(fleet: &Fleet, trees: &[WholeTree]) -> String {
    let mut shares: BTreeMap<u32, f64> = BTreeMap::new();
    let mut all = 0.0;
    for tree in trees {
        let weight =
            tree.calls.first().map_or(0.0, |top| f64::from(fleet.traces[top.trace as usize].trace.weight));
        for call in &tree.calls {
            *shares.entry(method_of(fleet, call.trace)).or_default() += call.critical_ns as f64 * weight;
        }
        all += tree.total_ns() as f64 * weight;
    }
    if all == 0.0 {
        return String::new();
    }
    let mut shares: Vec<(u32, f64)> = shares.into_iter().collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let row = |(method, ns): &(u32, f64)| vec![fleet.name(*method).to_owned(), percent(ns / all)];
    let rows: Vec<_> = shares.iter().take(METHODS_MAX).map(row).collect();
    format!("{}\n", say::table(&["critical path of whole trees", "share"], &rows))
}

/// One tree, a line a call.
fn drawn(fleet: &Fleet, tree: &WholeTree) -> String {
    let began_ns = tree.calls.first().map_or(0, |top| top.placed.began_ns);
    let seconds = |ns: i64| time(ns as f64 * 1e-9);
    let rows: Vec<Vec<String>> = tree
        .calls
        .iter()
        .take(LINES_MAX)
        .map(|call| {
            let own = &fleet.calls[fleet.traces[call.trace as usize].call as usize];
            let indent = "  ".repeat(usize::from(call.depth).min(30));
            let part = call.critical_ns as f64 / tree.total_ns().max(1) as f64;
            vec![
                format!("{indent}{}", fleet.name(own.method)),
                fleet.heads[own.block as usize].host.clone(),
                fleet.peer(own).to_owned(),
                seconds(call.placed.began_ns.saturating_sub(began_ns)),
                seconds(call.placed.ended_ns.saturating_sub(call.placed.began_ns)),
                if call.critical_ns > 0 { percent(part) } else { String::new() },
                own.row.code.name().to_owned(),
            ]
        })
        .collect();
    let head = ["call", "made at", "to", "after", "took", "critical", "ended"];
    let rest = tree.calls.len().saturating_sub(LINES_MAX);
    let rest = if rest == 0 { String::new() } else { format!("… and {rest} calls more\n") };
    format!("trace {:032x}\n{}{rest}", trace_of(fleet, tree), say::table(&head, &rows))
}

fn trace_of(fleet: &Fleet, tree: &WholeTree) -> u128 {
    tree.calls.first().map_or(0, |top| fleet.traces[top.trace as usize].trace.ids.trace)
}

fn method_of(fleet: &Fleet, trace: u32) -> u32 {
    fleet.calls[fleet.traces[trace as usize].call as usize].method
}
