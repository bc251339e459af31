//! Figure 8: whose calls, bytes and processor time they are.

use super::Drawing;
use crate::fleet::{Fleet, FleetCall};
use crate::words::percent;
use std::collections::BTreeMap;
use trunkline_plot::{BarChart, BarRow};

/// Services with a bar of their own; the others share one.
const SERVICES_MAX: usize = 12;

pub(super) fn shares(fleet: &Fleet) -> Drawing {
    let calls = service_shares(fleet, |_| Some(1.0));
    if calls.is_empty() {
        return Drawing::Missing("not measured here, because there are no calls".into());
    }
    let order: Vec<&str> = calls.iter().take(SERVICES_MAX).map(|(name, _)| *name).collect();
    let bytes =
        |call: &FleetCall| Some(f64::from(call.row.request_bytes) + f64::from(call.row.response_bytes));
    let mut charts =
        vec![bars("of calls", &order, &calls, 0), bars("of bytes", &order, &service_shares(fleet, bytes), 1)];
    let mut said = vec!["Shares of calls, then of bytes, then of processor time of handlers.".to_owned()];
    let told = fleet.each_once().filter(|call| call.cpu_s().is_some()).count();
    match told {
        0 => said.push("Processor time is not measured here, because no handler told its own.".into()),
        _ => charts.push(bars("of processor time", &order, &service_shares(fleet, FleetCall::cpu_s), 2)),
    }
    Drawing::Charts(charts, said)
}

/// Shares of a sum over calls by service, largest first.
pub(crate) fn service_shares(fleet: &Fleet, value: impl Fn(&FleetCall) -> Option<f64>) -> Vec<(&str, f64)> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for call in fleet.each_once() {
        *sums.entry(fleet.service(call.method)).or_default() += value(call).unwrap_or(0.0) * call.weight;
    }
    let whole: f64 = sums.values().sum();
    let mut shares: Vec<_> = sums.into_iter().map(|(name, sum)| (name, sum / whole)).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

fn bars(what: &str, order: &[&str], shares: &[(&str, f64)], colour: usize) -> String {
    let share = |name: &str| shares.iter().find(|(other, _)| *other == name).map_or(0.0, |(_, share)| *share);
    let row = |name: &str, value: f64| BarRow {
        name: name.to_owned(),
        value,
        interval: None,
        words: format!("{} {what}", percent(value)),
        colour,
    };
    let mut rows: Vec<BarRow> = order.iter().map(|name| row(name, share(name))).collect();
    let rest = 1.0 - rows.iter().map(|row| row.value).sum::<f64>();
    if rest > 1e-9 {
        rows.push(row("all others", rest));
    }
    BarChart { title: format!("services: shares {what}"), rows, log: false }.svg()
}
