//! Figures 10 to 15: the nine components.

use super::{Drawing, over_methods, too_few};
use crate::effects::{Effect, effects};
use crate::estimate::WeightedValues;
use crate::fleet::{Fleet, FleetCall, METHOD_CALLS_MIN, MethodValues};
use crate::words::{percent, time};
use trunkline_plot::{HeatChart, StackChart};
use trunkline_telemetry::{Component, Side};

/// Methods that are looked at one by one: the ones with most calls.
const METHODS_SHOWN: usize = 8;

fn not_whole() -> Drawing {
    Drawing::Missing(
        "not measured here, because of no call every component was measured (docs/telemetry.md says when)"
            .into(),
    )
}

/// Application, wire, stack and queue of calls, each as a part of one, by both weightings.
pub(crate) struct TaxShares {
    /// The sums of the parts over the sum of completion times.
    pub by_time: [f64; 4],
    /// The mean of each call's parts over its own completion time.
    pub by_call: [f64; 4],
}

impl TaxShares {
    pub fn of<'a>(calls: impl Iterator<Item = &'a FleetCall>) -> Self {
        let (mut sums, mut ratios, mut time, mut weight) = ([0.0; 4], [0.0; 4], 0.0, 0.0);
        for call in calls.filter(|call| call.total_s() > 0.0) {
            let application = call.part_s(Component::ServerApplication);
            let parts = [application, call.wire_s(), call.stack_s(), call.queue_s()];
            for (at, part) in parts.into_iter().enumerate() {
                sums[at] += part * call.weight;
                ratios[at] += part / call.total_s() * call.weight;
            }
            time += call.total_s() * call.weight;
            weight += call.weight;
        }
        Self { by_time: sums.map(|sum| sum / time), by_call: ratios.map(|ratio| ratio / weight) }
    }
}

/// Those at or above the 95th percentile of their method.
pub(crate) fn tail<'a>(fleet: &Fleet, calls: &[&'a FleetCall]) -> impl Iterator<Item = &'a FleetCall> {
    let mut marks = vec![f64::INFINITY; fleet.methods.len()];
    for one in fleet.by_method(calls.iter().copied(), |call| Some(call.total_s())) {
        marks[one.method as usize] = one.values.quantile(0.95);
    }
    calls.iter().copied().filter(move |call| call.total_s() >= marks[call.method as usize])
}

pub(super) fn tax(fleet: &Fleet) -> Drawing {
    let divided = fleet.divided(|_| true);
    let calls = &divided.calls;
    if calls.is_empty() {
        return not_whole();
    }
    let (all, tail) = (TaxShares::of(calls.iter().copied()), TaxShares::of(tail(fleet, calls)));
    let has_wires = divided.side != Side::Served;
    let wires = if has_wires { &["wire"][..] } else { &[] };
    let parts = [&["application"], wires, &["stack", "queue"]].concat();
    let parts: Vec<String> = parts.into_iter().map(str::to_owned).collect();
    let row = |name: &str, [application, wire, stack, queue]: [f64; 4]| {
        let wires = if has_wires { &[wire][..] } else { &[] };
        let shares = [&[application], wires, &[stack, queue]].concat();
        let tax = format!("tax {}", percent(shares[1..].iter().sum()));
        (name.to_owned(), shares, tax)
    };
    let is_sound = |(_, shares, _): &(String, Vec<f64>, String)| shares.iter().all(|share| share.is_finite());
    let rows = [
        row("all calls, by time", all.by_time),
        row("all calls, mean of ratios", all.by_call),
        row("P95 tail, by time", tail.by_time),
        row("P95 tail, mean of ratios", tail.by_call),
    ];
    let rows: Vec<_> = rows.into_iter().filter(is_sound).collect();
    let of_tax: Vec<_> = rows
        .iter()
        .map(|(name, shares, _)| {
            let tax: f64 = shares[1..].iter().sum();
            (name.clone(), [&[0.0], &shares[1..]].concat(), format!("{} of all", percent(tax)))
        })
        .collect();
    let stack = |title: &str, rows| {
        StackChart { title: title.into(), titled: true, parts: parts.clone(), rows, whole: true }.svg()
    };
    let said = "By time: sums of components over the sum of completion times. Mean of ratios: each call's own shares, \
                averaged. The second picture divides the tax alone. The tail is each method's own.";
    Drawing::Charts(
        vec![stack("application and tax", rows), stack("the tax alone", of_tax)],
        [said.to_owned()].into_iter().chain(divided.words()).collect(),
    )
}

fn by_method(
    fleet: &Fleet,
    what: &str,
    format: fn(f64) -> String,
    value: impl Fn(&FleetCall) -> f64,
) -> Drawing {
    let divided = fleet.divided(|_| true);
    if divided.calls.is_empty() {
        return not_whole();
    }
    let methods = fleet.by_method(divided.calls.iter().copied(), |call| Some(value(call)));
    if methods.is_empty() {
        return too_few(fleet);
    }
    let said = format!("{} methods; calls of which every component was measured.", methods.len());
    let said = [said].into_iter().chain(divided.words()).collect();
    Drawing::Charts(over_methods(methods, what, format), said)
}

pub(super) fn tax_ratio(fleet: &Fleet) -> Drawing {
    by_method(fleet, "tax ÷ completion time", percent, |call| call.tax_s() / call.total_s())
}

pub(super) fn wire_and_stack(fleet: &Fleet) -> Drawing {
    by_method(fleet, "wires and stacks", time, |call| call.wire_s() + call.stack_s())
}

pub(super) fn queues(fleet: &Fleet) -> Drawing {
    by_method(fleet, "queues", time, FleetCall::queue_s)
}

/// The methods with most calls among those that have enough, and their calls.
fn shown<'f>(fleet: &Fleet, calls: &[&'f FleetCall]) -> Vec<(MethodValues, Vec<&'f FleetCall>)> {
    let mut methods = fleet.by_method(calls.iter().copied(), |call| Some(call.total_s()));
    methods.sort_by(|a, b| b.values.weight().total_cmp(&a.values.weight()));
    methods.truncate(METHODS_SHOWN);
    let of = |one: &MethodValues| calls.iter().copied().filter(|call| call.method == one.method).collect();
    methods
        .into_iter()
        .map(|one| {
            let calls = of(&one);
            (one, calls)
        })
        .collect()
}

pub(super) fn by_percentile(fleet: &Fleet) -> Drawing {
    let divided = fleet.divided(|_| true);
    let shown = shown(fleet, &divided.calls);
    if shown.is_empty() {
        return if divided.calls.is_empty() { not_whole() } else { too_few(fleet) };
    }
    let parts: Vec<String> = Component::ALL.iter().map(|component| component.name().to_owned()).collect();
    let chart = |(one, calls): &(MethodValues, Vec<&FleetCall>)| {
        let rows = [(0.0, 0.5), (0.5, 0.9), (0.9, 0.95), (0.95, 0.99), (0.99, 1.0)].map(|(from, to)| {
            let ends = (one.values.quantile(from), one.values.quantile(to));
            let is_within =
                |call: &&&FleetCall| call.total_s() <= ends.1 && (call.total_s() > ends.0 || from == 0.0);
            let within: Vec<_> = calls.iter().filter(is_within).collect();
            let mean = |component: Component| {
                let part = |call: &&&FleetCall| (call.part_s(component), call.weight);
                WeightedValues::of(within.iter().map(part).collect()).mean()
            };
            let parts: Vec<f64> = Component::ALL
                .into_iter()
                .map(mean)
                .map(|mean| if mean.is_nan() { 0.0 } else { mean })
                .collect();
            let total: f64 = parts.iter().sum();
            (format!("P{:.0} to P{:.0}", 100.0 * from, 100.0 * to), parts, time(total))
        });
        StackChart {
            title: fleet.name(one.method).to_owned(),
            titled: true,
            parts: parts.clone(),
            rows: rows.to_vec(),
            whole: true,
        }
        .svg()
    };
    let said = shown.iter().map(|(one, calls)| format!("{}: {} calls.", fleet.name(one.method), calls.len()));
    Drawing::Charts(shown.iter().map(chart).collect(), said.chain(divided.words()).collect())
}

pub(super) fn what_if(fleet: &Fleet) -> Drawing {
    let divided = fleet.divided(|_| true);
    let shown = shown(fleet, &divided.calls);
    if shown.is_empty() {
        return if divided.calls.is_empty() { not_whole() } else { too_few(fleet) };
    }
    let found: Vec<(String, Vec<Effect>)> =
        shown.iter().map(|(one, calls)| (fleet.name(one.method).to_owned(), effects(calls))).collect();
    let matrix = |title: &str, figure: fn(&Effect) -> (f64, [f64; 2])| {
        let cell = |effect: &Effect| {
            let (value, [low, high]) = figure(effect);
            let words =
                if value < 0.5 { String::new() } else { format!("{value:.0} ({low:.0}–{high:.0})") };
            (value / 100.0, words)
        };
        HeatChart {
            title: title.into(),
            columns: Component::ALL
                .iter()
                .map(|component| component.name().replacen(" processing + ", " ", 1))
                .collect(),
            rows: found
                .iter()
                .map(|(name, found)| (short_name(name), found.iter().map(cell).collect()))
                .collect(),
            label: format!("{title}, percent (95 % interval)"),
        }
        .svg()
    };
    let charts = vec![
        matrix("P95 reduction", |effect| (effect.p95_reduction, effect.p95_reduction_interval)),
        matrix("tail escape", |effect| (effect.tail_escape, effect.tail_escape_interval)),
    ];
    let said = "P95 reduction: by how much P95 falls with the component capped at its median. Tail escape: the share \
                of the calls at or above P95 that fall below it with the component at its median.";
    let least =
        format!("The {} methods with most calls, of those with {METHOD_CALLS_MIN} or more.", found.len());
    Drawing::Charts(charts, [said.into(), least].into_iter().chain(divided.words()).collect())
}

/// Service and method, without package.
fn short_name(path: &str) -> String {
    path.trim_start_matches('/').rsplit('.').next().unwrap_or(path).to_owned()
}
