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
    let said = "P95 of the calls of all methods that each cluster tells of, divided as the calls around it are: \
                where their methods, or the mix of them, differ, so do they.";
    by_cluster(fleet, None, 0.95, said)
}

pub(super) fn callers(fleet: &Fleet) -> Drawing {
    let most = service_shares(fleet, |_| Some(1.0)).first().map(|(name, _)| (*name).to_owned());
    let Some(service) = most else { return not_told() };
    let said = format!(
        "{service}, which has most calls: the median of each cluster of callers, divided as the calls around it are."
    );
    by_cluster(fleet, Some(&service), 0.5, &said)
}

/// A percentile of each cluster, divided into components as all the time of the calls around it is.
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
            let (value, parts) = divided(&calls, part);
            (value, (cluster.to_owned(), parts, format!("{} ({})", time(value), calls.len())))
        })
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ratio = rows.last().map_or(1.0, |row| row.0) / rows.first().map_or(1.0, |row| row.0);
    let all = rows.len();
    // The slowest stay: they are what is looked for.
    rows.drain(..all.saturating_sub(CLUSTERS_MAX));
    let shown = match rows.len() {
        shown if shown < all => format!(" Shown are the slowest {shown} of {all}."),
        _ => String::new(),
    };
    let parts = Component::ALL.iter().map(|component| component.name().to_owned()).collect();
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    let chart = StackChart { title: "clusters".into(), titled: false, parts, rows, whole: false }.svg();
    let spread = format!("The slowest cluster takes {ratio:.2} times as long as the fastest.{shown}");
    Drawing::Charts(vec![chart], vec![said.to_owned(), spread])
}

/// A percentile of calls, and what of it is each component's: as of all the time of the calls within a tenth around it.
fn divided(calls: &[&FleetCall], part: f64) -> (f64, Vec<f64>) {
    let totals = WeightedValues::of(calls.iter().map(|call| (call.total_s(), call.weight)).collect());
    let (low, value, high) =
        (totals.quantile(part - 0.04), totals.quantile(part), totals.quantile(part + 0.04));
    let around = || calls.iter().filter(|call| (low..=high).contains(&call.total_s()));
    let means = Component::ALL.map(|component| {
        WeightedValues::of(around().map(|call| (call.part_s(component), call.weight)).collect()).mean()
    });
    let all: f64 = means.iter().sum();
    let share = |mean: f64| if all > 0.0 { mean / all * value } else { 0.0 };
    (value, means.into_iter().map(share).collect())
}

#[cfg(test)]
mod tests {
    //! Shows that what is drawn of a cluster is as long as the time that stands beside it.
    use super::*;
    use crate::block::tests::block;
    use crate::{Published, Synthetic, synth};

    #[test]
    fn of_many_clusters_the_slowest_are_shown_and_all_are_compared() {
        let drawn = |clusters: u64| {
            let mut fleet = Fleet::default();
            for cluster in 1..=clusters {
                let mut one = block("a", 60);
                one.head.cluster = format!("cluster-{cluster:02}");
                one.rows.iter_mut().for_each(|call| call.row.components.ns[4] = cluster * 1_000_000);
                fleet.add(one);
            }
            let Drawing::Charts(charts, said) = tails(&fleet) else { panic!("it is drawn") };
            (charts.concat(), said.concat())
        };
        let (chart, said) = drawn(30);
        assert!(said.contains("takes 30.00 times") && said.contains("the slowest 24 of 30."), "{said}");
        assert!(
            chart.contains("cluster-30") && chart.contains("cluster-07") && !chart.contains("cluster-06")
        );
        let (chart, said) = drawn(24);
        assert!(said.contains("takes 24.00 times") && !said.contains("Shown"), "{said}");
        assert!(chart.contains("cluster-01"));
    }

    #[test]
    fn the_parts_of_a_percentile_come_to_it() {
        let published = Published::parse(include_str!("../../../../tools/insight/data/fleet.toml")).unwrap();
        let mut fleet = Fleet::default();
        let blocks = synth(&published, &Synthetic { methods: 10, calls: 100, seed: 1 });
        blocks.into_iter().for_each(|block| fleet.add(block));
        let calls: Vec<&FleetCall> = fleet.whole().collect();
        for part in [0.5, 0.95] {
            let (value, parts) = divided(&calls, part);
            let all: f64 = parts.iter().sum();
            assert!(value > 0.0 && (all / value - 1.0).abs() < 1e-9, "{all} s of {value} s");
        }
        assert_eq!(divided(&[], 0.5).1, [0.0; 9]);
    }
}
