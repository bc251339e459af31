//! Which methods run now: the answer to `trunkline top`, as data.

use crate::component::Component;
use crate::record::Side;
use crate::series::Series;
use crate::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One method over the time between two snapshots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopRow {
    /// Which end this host was.
    pub side: Side,
    /// Path of the method.
    pub method: String,
    /// Calls that ended.
    pub calls: u64,
    /// Calls per second.
    pub rate: f64,
    /// Calls that ended with anything but OK.
    pub errors: u64,
    /// Median completion time, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Where most of the time went; `None` if that was at a peer that sends no stamps.
    pub biggest: Option<Component>,
    /// How much of the time that was, in percent.
    pub biggest_percent: f64,
}

/// One row per (side, method), most calls first, for what happened between `earlier` and `now`. Without an earlier
/// snapshot: since the start, and `elapsed_ns` must say how long that is.
pub fn top(now: &Snapshot, earlier: Option<&Snapshot>, elapsed_ns: u64) -> Vec<TopRow> {
    let window = earlier.map_or_else(|| now.clone(), |earlier| now.since(earlier));
    let mut methods: BTreeMap<(Side, &str), Series> = BTreeMap::new();
    for entry in &window.series {
        methods.entry((entry.side, &entry.method)).or_default().merge(&entry.series);
    }
    let seconds = elapsed_ns.max(1) as f64 / 1e9;
    let mut rows: Vec<TopRow> =
        methods.into_iter().map(|((side, method), series)| row(side, method, &series, seconds)).collect();
    rows.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.method.cmp(&b.method)));
    rows
}

fn row(side: Side, method: &str, series: &Series, seconds: f64) -> TopRow {
    let (biggest, sum) = biggest(series);
    let whole = series.total.sum();
    TopRow {
        side,
        method: method.to_owned(),
        calls: series.calls(),
        rate: series.calls() as f64 / seconds,
        errors: series.errors(),
        p50_ns: series.durations().quantile(0.5),
        p99_ns: series.durations().quantile(0.99),
        biggest,
        biggest_percent: if whole == 0 { 0.0 } else { 100.0 * sum as f64 / whole as f64 },
    }
}

fn biggest(series: &Series) -> (Option<Component>, u128) {
    let parts = Component::ALL.map(|part| (Some(part), series.components[part as usize].sum()));
    let parts = parts.into_iter().chain([(None, series.remote.sum())]);
    parts.max_by_key(|(_, sum)| *sum).unwrap_or_default()
}
