//! What records have in the place of published numbers.

use crate::figures::{
    TaxShares, cpu_shares, cycle_shares, error_shares, growth_points, service_shares, shown_methods, tail,
};
use crate::fleet::{Fleet, FleetCall, MethodValues};
use std::collections::BTreeMap;
use trunkline_call::Code;
use trunkline_telemetry::Side;

/// What a target is called, and how it is measured.
type Measure = (&'static str, fn(&Measured<'_>) -> f64);

/// Every target that is one number.
pub(crate) const MEASURES: &[Measure] = &[
    ("growth_total_700_days", |of| of.growth(700.0)),
    ("growth_per_year", |of| of.growth(365.0)),
    ("p1_at_most_657us", |of| of.methods_at_most(0.01, 657e-6)),
    ("p50_at_least_10700us", |of| 1.0 - of.methods_at_most(0.5, 10.7e-3)),
    ("p99_at_least_1ms", |of| 1.0 - of.methods_at_most(0.99, 1e-3)),
    ("p99_at_least_225ms", |of| 1.0 - of.methods_at_most(0.99, 0.225)),
    ("slowest_5_percent_p1", |of| over(&of.totals, 0.01, 95.0)),
    ("slowest_5_percent_p99", |of| over(&of.totals, 0.99, 95.0)),
    ("fastest_1_percent_calls", |of| of.calls_of_fastest(0.01)),
    ("largest_method_calls", |of| of.largest(1)),
    ("top_10_calls", |of| of.largest(10)),
    ("top_100_calls", |of| of.largest(100)),
    ("slowest_10_percent_calls", |of| 1.0 - of.calls_of_fastest(0.9)),
    ("slowest_10_percent_time", |of| of.time_of_slowest(0.1)),
    ("half_of_methods_descendants_p50", |of| over(&of.below, 0.5, 50.0)),
    ("descendants_p90_at_90_percent", |of| over(&of.below, 0.9, 90.0)),
    ("descendants_p99_at_90_percent", |of| over(&of.below, 0.99, 90.0)),
    ("half_of_methods_ancestors_p99", |of| over(&of.above, 0.99, 50.0)),
    ("smallest_message", |of| of.smallest()),
    ("request_p50_at_10_percent", |of| over(&of.requests, 0.5, 10.0)),
    ("response_p50_at_10_percent", |of| over(&of.responses, 0.5, 10.0)),
    ("request_p50_at_50_percent", |of| over(&of.requests, 0.5, 50.0)),
    ("response_p50_at_50_percent", |of| over(&of.responses, 0.5, 50.0)),
    ("request_p90_at_50_percent", |of| over(&of.requests, 0.9, 50.0)),
    ("response_p90_at_50_percent", |of| over(&of.responses, 0.9, 50.0)),
    ("request_p99_at_50_percent", |of| over(&of.requests, 0.99, 50.0)),
    ("response_p99_at_50_percent", |of| over(&of.responses, 0.99, 50.0)),
    ("methods_with_median_ratio_below_1", |of| part_below(&of.ratios, 0.5, 1.0)),
    ("top_8_services_calls", |of| of.services[..8.min(of.services.len())].iter().map(|one| one.1).sum()),
    ("network_disk_calls", |of| of.service_share("calls", "NetDisk")),
    ("network_disk_cycles", |of| of.service_share("cycles", "NetDisk")),
    ("ml_calls", |of| of.service_share("calls", "MlInference")),
    ("ml_cycles", |of| of.service_share("cycles", "MlInference")),
    ("f1_calls", |of| of.service_share("calls", "F1")),
    ("f1_cycles", |of| of.service_share("cycles", "F1")),
    ("tax", |of| of.all.by_time[1..].iter().sum()),
    ("tax_network", |of| of.all.by_time[1]),
    ("tax_stack", |of| of.all.by_time[2]),
    ("tax_queue", |of| of.all.by_time[3]),
    ("tax_is_wire", |of| of_tax(of.all.by_time, 1)),
    ("tax_is_stack", |of| of_tax(of.all.by_time, 2)),
    ("tax_is_queue", |of| of_tax(of.all.by_time, 3)),
    ("tail_tax", |of| of.tail.by_call[1..].iter().sum()),
    ("tail_tax_is_wire", |of| of_tax(of.tail.by_call, 1)),
    ("tail_tax_is_stack", |of| of_tax(of.tail.by_call, 2)),
    ("tail_tax_is_queue", |of| of_tax(of.tail.by_call, 3)),
    ("tax_ratio_at_50_percent", |of| percentile(of.tax_ratios.iter().map(|one| one.values.mean()), 50.0)),
    ("tax_ratio_p50_at_90_percent", |of| over(&of.tax_ratios, 0.5, 90.0)),
    ("tax_ratio_p90_at_90_percent", |of| over(&of.tax_ratios, 0.9, 90.0)),
    ("tax_ratio_p99_least", |of| over(&of.tax_ratios, 0.99, 0.0)),
    ("tax_ratio_p99_most", |of| over(&of.tax_ratios, 0.99, 100.0)),
    ("tax_ratio_p99_at_50_percent", |of| over(&of.tax_ratios, 0.99, 50.0)),
    ("wire_stack_p50_at_50_percent", |of| over(&of.wires, 0.5, 50.0)),
    ("wire_stack_p99_at_50_percent", |of| over(&of.wires, 0.99, 50.0)),
    ("wire_stack_p99_at_10_percent", |of| over(&of.wires, 0.99, 10.0)),
    ("wire_stack_p99_at_1_percent", |of| over(&of.wires, 0.99, 1.0)),
    ("wire_stack_p99_at_90_percent", |of| over(&of.wires, 0.99, 90.0)),
    ("wire_stack_p99_at_99_percent", |of| over(&of.wires, 0.99, 99.0)),
    ("queue_p50_at_50_percent", |of| over(&of.queues, 0.5, 50.0)),
    ("queue_p99_at_50_percent", |of| over(&of.queues, 0.99, 50.0)),
    ("queue_p50_at_90_percent", |of| over(&of.queues, 0.5, 90.0)),
    ("queue_p99_at_90_percent", |of| over(&of.queues, 0.99, 90.0)),
    ("cluster_count", |of| of.clusters.iter().map(|one| one.0).min().map_or(f64::NAN, |count| count as f64)),
    ("cluster_p95_ratio_least", |of| of.cluster_ratio(f64::min)),
    ("cluster_p95_ratio_most", |of| of.cluster_ratio(f64::max)),
    ("cycle_tax", |of| if of.cycles.is_empty() { f64::NAN } else { of.cycles.values().sum() }),
    ("rpc_library_cycles", |of| of.cycle_share("rpc_library")),
    ("cpu_p10_at_10_percent", |of| of.cpu_ms(0.1, 10.0)),
    ("cpu_p10_at_90_percent", |of| of.cpu_ms(0.1, 90.0)),
    ("cpu_p90_at_10_percent", |of| of.cpu_ms(0.9, 10.0)),
    ("cpu_p90_at_90_percent", |of| of.cpu_ms(0.9, 90.0)),
    ("cpu_p99_over_p1_of_cheapest", |of| of.cpu_spread(0.01, 0.0)),
    ("cpu_p99_over_p50_least", |of| of.cpu_spread(0.5, 10.0)),
    ("cpu_p99_over_p50_most", |of| of.cpu_spread(0.5, 90.0)),
    ("error_rate", |of| of.error_rate),
];

/// What is measured once and asked for often.
pub(crate) struct Measured<'a> {
    fleet: &'a Fleet,
    totals: Vec<MethodValues>,
    below: Vec<MethodValues>,
    above: Vec<MethodValues>,
    requests: Vec<MethodValues>,
    responses: Vec<MethodValues>,
    ratios: Vec<MethodValues>,
    tax_ratios: Vec<MethodValues>,
    wires: Vec<MethodValues>,
    queues: Vec<MethodValues>,
    cpu: Vec<MethodValues>,
    services: Vec<(&'a str, f64)>,
    bytes: Vec<(&'a str, f64)>,
    seconds: Vec<(&'a str, f64)>,
    all: TaxShares,
    tail: TaxShares,
    cycles: BTreeMap<&'a str, f64>,
    errors: Vec<(Code, f64, f64)>,
    error_rate: f64,
    /// Of methods that several clusters call: how many do, and by how many times their P95 differ.
    clusters: Vec<(usize, f64)>,
}

impl<'a> Measured<'a> {
    pub fn of(fleet: &'a Fleet) -> Self {
        let good = |value: &dyn Fn(&FleetCall) -> Option<f64>| fleet.by_method(fleet.good(), value);
        // What was served alone has no wires to compare.
        let divided = fleet.divided(|_| true);
        let divided = if divided.side == Side::Made { divided.calls } else { Vec::new() };
        let whole = |value: &dyn Fn(&FleetCall) -> f64| {
            fleet.by_method(divided.iter().copied(), |call| Some(value(call)))
        };
        let mut totals = good(&|call| Some(call.total_s()));
        totals.sort_by(|a, b| a.values.quantile(0.5).total_cmp(&b.values.quantile(0.5)));
        let size = |call: &FleetCall| f64::from(call.row.request_bytes) + f64::from(call.row.response_bytes);
        let failed =
            fleet.each_once().filter(|call| call.row.code != Code::Ok).map(|call| call.weight).sum::<f64>();
        Self {
            fleet,
            totals,
            below: good(&|call| (call.row.subtree > 0).then(|| f64::from(call.row.subtree - 1))),
            above: fleet.above_by_method(),
            requests: good(&|call| Some(call.row.request_bytes.into())),
            responses: good(&|call| Some(call.row.response_bytes.into())),
            ratios: good(&|call| {
                Some(f64::from(call.row.response_bytes) / f64::from(call.row.request_bytes))
            }),
            tax_ratios: whole(&|call| call.tax_s() / call.total_s()),
            wires: whole(&|call| call.wire_s() + call.stack_s()),
            queues: whole(&FleetCall::queue_s),
            cpu: good(&FleetCall::cpu_s),
            services: service_shares(fleet, |_| Some(1.0)),
            bytes: service_shares(fleet, |call| Some(size(call))),
            seconds: cpu_shares(fleet),
            all: TaxShares::of(divided.iter().copied()),
            tail: TaxShares::of(tail(fleet, &divided)),
            cycles: cycle_shares(fleet),
            errors: error_shares(fleet),
            error_rate: failed / fleet.weight(),
            clusters: shown_methods(fleet).iter().map(|one| (one.clusters(), one.tail_ratio())).collect(),
        }
    }

    /// A cell of a published grid.
    pub fn grid(&self, name: &str, part: f64, percent: f64) -> f64 {
        let methods = match name {
            "latency" => &self.totals,
            "descendants" => &self.below,
            "ancestors" => &self.above,
            _ => &self.ratios,
        };
        over(methods, part, percent)
    }

    /// The part of all calls that the fastest methods have, so large a part of all methods.
    pub fn calls_of_fastest(&self, part: f64) -> f64 {
        let count = (part * self.totals.len() as f64).round() as usize;
        let weight = |methods: &[MethodValues]| methods.iter().map(|one| one.values.weight()).sum::<f64>();
        weight(&self.totals[..count.min(self.totals.len())]) / weight(&self.totals)
    }

    /// A service's share, by the last word of its name.
    pub fn service_share(&self, what: &str, name: &str) -> f64 {
        let shares = match what {
            "calls" => &self.services,
            "bytes" => &self.bytes,
            _ => &self.seconds,
        };
        let is_it = |service: &str| service.rsplit('.').next() == Some(name);
        shares.iter().find(|(service, _)| is_it(service)).map_or(f64::NAN, |(_, share)| *share)
    }

    pub fn cycle_share(&self, stage: &str) -> f64 {
        self.cycles.get(stage).copied().unwrap_or(f64::NAN)
    }

    /// By count and by cycles.
    pub fn error_shares(&self, code: &str) -> [f64; 2] {
        let found = self.errors.iter().find(|(other, ..)| other.name() == code);
        found.map_or([f64::NAN; 2], |(_, calls, cycles)| [*calls, *cycles])
    }

    /// How much more calls a processor second bore after so many days.
    fn growth(&self, days: f64) -> f64 {
        let points = growth_points(self.fleet);
        let near = points.iter().min_by(|a, b| {
            let off = |point: &(f64, f64)| (point.0 - days * 86_400.0).abs();
            off(a).total_cmp(&off(b))
        });
        near.filter(|point| point.0 > days * 80_000.0).map_or(f64::NAN, |point| point.1 - 1.0)
    }

    /// The part of the methods whose percentile is at most this.
    fn methods_at_most(&self, part: f64, seconds: f64) -> f64 {
        part_below(&self.totals, part, seconds)
    }

    /// The part of all calls that the methods with most calls have.
    fn largest(&self, count: usize) -> f64 {
        let mut weights: Vec<f64> = self.totals.iter().map(|one| one.values.weight()).collect();
        weights.sort_unstable_by(|a, b| b.total_cmp(a));
        weights.iter().take(count).sum::<f64>() / weights.iter().sum::<f64>()
    }

    fn time_of_slowest(&self, part: f64) -> f64 {
        let time = |one: &MethodValues| one.values.mean() * one.values.weight();
        let first = self.totals.len() - (part * self.totals.len() as f64).round() as usize;
        self.totals[first..].iter().map(time).sum::<f64>() / self.totals.iter().map(time).sum::<f64>()
    }

    fn smallest(&self) -> f64 {
        let sizes = self.fleet.good().map(|call| call.row.request_bytes.min(call.row.response_bytes));
        sizes.min().map_or(f64::NAN, f64::from)
    }

    fn cpu_ms(&self, part: f64, percent: f64) -> f64 {
        1e3 * over(&self.cpu, part, percent)
    }

    /// P99 of a method's processor time over another percentile of it, over methods.
    fn cpu_spread(&self, part: f64, percent: f64) -> f64 {
        let spread = |one: &MethodValues| one.values.quantile(0.99) / one.values.quantile(part);
        percentile(self.cpu.iter().map(spread), percent)
    }

    /// Of the methods that several clusters call.
    fn cluster_ratio(&self, choose: fn(f64, f64) -> f64) -> f64 {
        self.clusters.iter().map(|one| one.1).reduce(choose).unwrap_or(f64::NAN)
    }
}

/// A part of the tax, of wire, stack and queue.
fn of_tax(shares: [f64; 4], part: usize) -> f64 {
    shares[part] / shares[1..].iter().sum::<f64>()
}

/// A percentile over methods of a percentile of each one's calls.
fn over(methods: &[MethodValues], part: f64, percent: f64) -> f64 {
    percentile(methods.iter().map(|one| one.values.quantile(part)), percent)
}

fn part_below(methods: &[MethodValues], part: f64, value: f64) -> f64 {
    let below = methods.iter().filter(|one| one.values.quantile(part) <= value).count();
    below as f64 / methods.len() as f64
}

/// A percentile of a few values, between neighbours.
fn percentile(values: impl Iterator<Item = f64>, percent: f64) -> f64 {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    let place = (percent / 100.0 * values.len() as f64 - 0.5).clamp(0.0, last as f64);
    let (below, rest) = (place.floor() as usize, place.fract());
    values[below] + (values[(below + 1).min(last)] - values[below]) * rest
}
