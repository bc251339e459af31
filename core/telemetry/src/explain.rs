//! Where the time goes: the answer to `trunkline explain`, as data.

use crate::component::Component;
use crate::histogram::Histogram;
use crate::record::Side;
use crate::series::Series;
use crate::snapshot::Snapshot;
use crate::what_if::{WhatIf, tail_calls, what_if, whole_calls};
use serde::{Deserialize, Serialize};
use trunkline_call::Code;

/// Where the completion time of a set of calls went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Which end of the calls this host was.
    pub side: Side,
    /// Paths of the methods added up here.
    pub methods: Vec<String>,
    /// The other hosts.
    pub peers: Vec<String>,
    /// Calls, ended well or not.
    pub calls: u64,
    /// Codes other than OK and how often, most frequent first.
    pub errors: Vec<(String, u64)>,
    /// Completion time.
    pub total: Spread,
    /// The nine, in the order a call passes them.
    pub components: Vec<Row>,
    /// Both wires and the server in one, of calls whose peer sent no stamps.
    pub remote: Option<Spread>,
    /// Between kernel and daemon on the server (part of request processing + stack) and on the client (part of response
    /// processing + stack): mostly the wake-up of an idle core.
    pub wakeups: [Spread; 2],
    /// How long streams took, if any call was one: they are in no component and not in `total`.
    pub streams: Option<Spread>,
    /// Calls of which only five of nine components could be measured.
    pub client_only: u64,
    /// Calls whose server claimed more time than there was.
    pub clipped: u64,
    /// Calls that never left this host: seven of seven measured.
    pub one_host: u64,
    /// Calls that ended before they were handed to anybody.
    pub stayed: u64,
    /// Calls in which the kernel said when the last byte left this host.
    pub kernel_stamped: u64,
    /// Processor time of the handlers that told it. Its share is that of calls that did not end well.
    pub cpu: Spread,
    /// Calls below one call, itself included, on average over all calls whose server told.
    pub subtree_mean: f64,
    /// Mean half-width of the clock offset over calls with two wires, in nanoseconds: how much these may have to give
    /// each other.
    pub half_width_ns: u64,
    /// What if a component were never worse than its median; empty if too few calls were seen one by one.
    pub what_if: Vec<WhatIf>,
    /// Calls the what-if rests on.
    pub samples: u64,
    /// How long ago the first of them ended.
    #[serde(default)]
    pub samples_ns: u64,
    /// Those of them at or above the 95th percentile.
    pub tail_calls: u64,
}

/// One component's part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    pub component: Component,
    /// How it is spread.
    pub spread: Spread,
}

/// How a set of durations is spread. Nanoseconds; percentiles are within 3.2 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Share of the sum of all completion times, in percent.
    pub share_percent: f64,
    /// Calls in which it was measured.
    pub calls: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

impl Explanation {
    /// Adds up every series of one side in the snapshot; `None` if it has no call.
    pub fn of(snapshot: &Snapshot, side: Side) -> Option<Self> {
        let sum = snapshot.sum(side);
        if sum.calls() == 0 {
            return None;
        }
        let spread = |histogram: &Histogram| Spread::of(histogram, sum.total.sum());
        let what_if = what_if(&snapshot.samples, side);
        let whole = whole_calls(&snapshot.samples, side);
        let first_ns = whole.iter().map(|sample| sample.at_ns).min();
        Some(Self {
            side,
            methods: names(snapshot, side, |entry| &entry.method),
            peers: names(snapshot, side, |entry| &entry.peer),
            calls: sum.calls(),
            errors: errors(&sum),
            total: spread(&sum.total),
            components: Component::ALL
                .into_iter()
                .map(|component| Row { component, spread: spread(&sum.components[component as usize]) })
                .collect(),
            remote: (sum.client_only > 0).then(|| spread(&sum.remote)),
            streams: (sum.streams > 0)
                .then(|| Spread { share_percent: 0.0, ..Spread::of(&sum.stream_total, 0) }),
            wakeups: [spread(&sum.request_wakeup), spread(&sum.response_wakeup)],
            client_only: sum.client_only,
            clipped: sum.clipped,
            one_host: sum.one_host,
            stayed: sum.stayed,
            cpu: Spread { share_percent: failed_cpu_percent(&sum), ..spread(&sum.cpu) },
            subtree_mean: subtree_mean(&sum),
            kernel_stamped: sum.kernel_stamped,
            half_width_ns: sum.half_width_ns / sum.wired_calls().saturating_sub(sum.clock_unknown).max(1),
            samples: whole.len() as u64,
            samples_ns: first_ns.map_or(0, |first_ns| snapshot.at_ns.saturating_sub(first_ns)),
            tail_calls: tail_calls(&snapshot.samples, side),
            what_if,
        })
    }

    /// The part of the completion time that is not the application: the RPC latency tax, in percent. What a peer
    /// without stamps did counts as application. `None` where every call streams: nothing of those is divided.
    pub fn tax_percent(&self) -> Option<f64> {
        let application = self.components[Component::ServerApplication as usize].spread.share_percent;
        let tax = 100.0 - application - self.remote.map_or(0.0, |remote| remote.share_percent);
        (!self.only_streams()).then_some(tax)
    }

    /// Whether every call streams.
    pub fn only_streams(&self) -> bool {
        self.streams.is_some_and(|streams| streams.calls >= self.calls)
    }
}

impl Spread {
    fn of(histogram: &Histogram, whole_ns: u128) -> Self {
        let share = if whole_ns == 0 { 0.0 } else { histogram.sum() as f64 / whole_ns as f64 };
        Self {
            share_percent: 100.0 * share,
            calls: histogram.count(),
            mean_ns: histogram.mean().round() as u64,
            p50_ns: histogram.quantile(0.5),
            p90_ns: histogram.quantile(0.9),
            p99_ns: histogram.quantile(0.99),
            p999_ns: histogram.quantile(0.999),
            max_ns: histogram.max(),
        }
    }
}

fn failed_cpu_percent(series: &Series) -> f64 {
    let whole = series.cpu.sum();
    if whole == 0 { 0.0 } else { 100.0 * series.failed_cpu_ns as f64 / whole as f64 }
}

/// Calls without any below them are not in the histogram, and count as one.
fn subtree_mean(series: &Series) -> f64 {
    let told = series.components[Component::ServerApplication as usize].count();
    let leaves = told.saturating_sub(series.subtree.count());
    if told == 0 { 1.0 } else { (series.subtree.sum() as f64 + leaves as f64) / told as f64 }
}

fn names(snapshot: &Snapshot, side: Side, name: fn(&crate::snapshot::Entry) -> &String) -> Vec<String> {
    let mut names: Vec<String> =
        snapshot.series.iter().filter(|entry| entry.side == side).map(|entry| name(entry).clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn errors(series: &Series) -> Vec<(String, u64)> {
    let coded = Code::ALL.into_iter().zip(series.codes).skip(1).filter(|(_, n)| *n > 0);
    let mut errors: Vec<_> = coded.map(|(code, n)| (code.name().to_owned(), n)).collect();
    errors.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    errors
}
