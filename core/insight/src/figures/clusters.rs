//! Figures 16 and 19: the same calls from different clusters.

use super::Drawing;
use super::services::service_shares;
use crate::estimate::WeightedValues;
use crate::fleet::{Fleet, FleetCall};
use crate::words::time;
use std::collections::BTreeMap;
use trunkline_plot::StackChart;
use trunkline_telemetry::Component;

/// Clusters with fewer calls are left out.
const CALLS_MIN: usize = 50;
/// Clusters shown.
const CLUSTERS_MAX: usize = 24;

fn not_told() -> Drawing {
    Drawing::Missing(
        "not measured here, because the records name fewer than two clusters with enough calls \
         (trunkline record --cluster NAME)"
            .into(),
    )
}

pub(super) fn tails(fleet: &Fleet) -> Drawing {
    by_cluster(fleet, None, 0.95, "Calls around P95 of each cluster, divided.")
}

pub(super) fn callers(fleet: &Fleet) -> Drawing {
    let most = service_shares(fleet, |_| Some(1.0)).first().map(|(name, _)| (*name).to_owned());
    let Some(service) = most else { return not_told() };
    let said = format!(
        "{service}, which has most calls: calls around the median of each cluster of callers, divided."
    );
    by_cluster(fleet, Some(&service), 0.5, &said)
}

/// Calls of each cluster within a tenth of the calls around a percentile, divided into components.
fn by_cluster(fleet: &Fleet, service: Option<&str>, part: f64, said: &str) -> Drawing {
    let mut found: BTreeMap<&str, Vec<&FleetCall>> = BTreeMap::new();
    for call in fleet.whole() {
        let cluster = fleet.heads[call.block as usize].cluster.as_str();
        if !cluster.is_empty() && service.is_none_or(|service| fleet.service(call.method) == service) {
            found.entry(cluster).or_default().push(call);
        }
    }
    found.retain(|_, calls| calls.len() >= CALLS_MIN);
    if found.len() < 2 {
        return not_told();
    }
    let mut rows: Vec<_> = found
        .into_iter()
        .map(|(cluster, calls)| {
            let totals = WeightedValues::of(calls.iter().map(|call| (call.total_s(), call.weight)).collect());
            let (low, high) = (totals.quantile(part - 0.04), totals.quantile(part + 0.04));
            let around = || calls.iter().filter(|call| (low..=high).contains(&call.total_s()));
            let mean = |component| {
                let part = |call: &&FleetCall| (call.part_s(component), call.weight);
                WeightedValues::of(around().map(part).collect()).mean()
            };
            let value = totals.quantile(part);
            let parts: Vec<f64> = Component::ALL.into_iter().map(mean).collect();
            (value, (cluster.to_owned(), parts, format!("{} ({})", time(value), calls.len())))
        })
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    rows.truncate(CLUSTERS_MAX);
    let ratio = rows.last().map_or(1.0, |row| row.0) / rows.first().map_or(1.0, |row| row.0);
    let parts = Component::ALL.iter().map(|component| component.name().to_owned()).collect();
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    let chart = StackChart { title: "clusters".into(), titled: false, parts, rows, whole: false }.svg();
    let spread = format!("The slowest cluster takes {ratio:.2} times as long as the fastest.");
    Drawing::Charts(vec![chart], vec![said.to_owned(), spread])
}
