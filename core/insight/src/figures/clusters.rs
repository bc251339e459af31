//! Figures 16 and 19: the same calls from different clusters.

use super::Drawing;
use super::services::service_shares;
use crate::estimate::WeightedValues;
use crate::fleet::{Fleet, FleetCall};
use crate::words::time;
use std::collections::BTreeMap;
use trunkline_plot::StackChart;
use trunkline_telemetry::Component;

/// Clusters with fewer calls of a method are left out.
const CALLS_MIN: usize = 50;
/// Clusters shown.
const CLUSTERS_MAX: usize = 24;
/// Methods that are looked at: as many as the study shows.
const METHODS_SHOWN: usize = 8;

/// A method's whole calls by cluster, of two at least that have enough.
#[derive(Clone, Debug)]
pub(crate) struct ClusteredMethod<'f> {
    method: u32,
    weight: f64,
    clusters: BTreeMap<&'f str, Vec<&'f FleetCall>>,
}

/// The methods with most calls of those that several clusters tell of. One at a time, as in the study: what two
/// clusters have in common is a method, and not which of them they call.
pub(crate) fn clustered_methods(fleet: &Fleet) -> Vec<ClusteredMethod<'_>> {
    let mut found: BTreeMap<u32, ClusteredMethod<'_>> = BTreeMap::new();
    for call in fleet.whole() {
        let cluster = fleet.heads[call.block as usize].cluster.as_str();
        if !cluster.is_empty() {
            let clusters = BTreeMap::new();
            let new = || ClusteredMethod { method: call.method, weight: 0.0, clusters };
            let method = found.entry(call.method).or_insert_with(new);
            method.weight += call.weight;
            method.clusters.entry(cluster).or_default().push(call);
        }
    }
    let mut methods: Vec<_> = found.into_values().collect();
    methods.iter_mut().for_each(|one| one.clusters.retain(|_, calls| calls.len() >= CALLS_MIN));
    methods.retain(|one| one.clusters.len() >= 2);
    methods.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    methods
}

/// Those of Figure 16.
pub(crate) fn shown_methods(fleet: &Fleet) -> Vec<ClusteredMethod<'_>> {
    let mut methods = clustered_methods(fleet);
    methods.truncate(METHODS_SHOWN);
    methods
}

impl ClusteredMethod<'_> {
    /// How many clusters there are.
    pub fn clusters(&self) -> usize {
        self.clusters.len()
    }

    /// By how many times P95 differs between them.
    pub fn tail_ratio(&self) -> f64 {
        let p95 = |calls: &Vec<&FleetCall>| {
            WeightedValues::of(calls.iter().map(|call| (call.total_s(), call.weight)).collect())
                .quantile(0.95)
        };
        let ends = self.clusters.values().map(p95);
        let (least, most) =
            ends.fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        if least > 0.0 && least.is_finite() { most / least } else { f64::NAN }
    }
}

fn not_told() -> Drawing {
    Drawing::Missing(format!(
        "not measured here, because the records name no two clusters with {CALLS_MIN} calls of one method \
         (trunkline record --cluster NAME)"
    ))
}

pub(super) fn tails(fleet: &Fleet) -> Drawing {
    let methods = shown_methods(fleet);
    if methods.is_empty() {
        return not_told();
    }
    let mut said = vec![format!(
        "P95 of each cluster's calls of one method, divided as the calls around it are: the {} methods with most calls \
         of those of which two clusters have {CALLS_MIN} or more.",
        methods.len()
    )];
    let mut charts = Vec::new();
    for one in &methods {
        let (chart, spread) = by_cluster(fleet, one, 0.95);
        charts.push(chart);
        said.push(format!("{}: {spread}", fleet.name(one.method)));
    }
    Drawing::Charts(charts, said)
}

pub(super) fn callers(fleet: &Fleet) -> Drawing {
    let methods = clustered_methods(fleet);
    // Services in the order of their calls, and of the first that has one the method with most.
    let services = service_shares(fleet, |_| Some(1.0));
    let first = |(service, _): &(&str, f64)| methods.iter().find(|one| fleet.service(one.method) == *service);
    let Some(one) = services.iter().find_map(first) else { return not_told() };
    let (chart, spread) = by_cluster(fleet, one, 0.5);
    let said = format!(
        "{}, which has most calls of its service: the median of each cluster of callers, divided as the calls around \
         it are.",
        fleet.name(one.method)
    );
    Drawing::Charts(vec![chart], vec![said, spread])
}

/// A percentile of each cluster, divided into components as all the time of the calls around it is; and how far they
/// are from each other.
fn by_cluster(fleet: &Fleet, one: &ClusteredMethod<'_>, part: f64) -> (String, String) {
    let row = |(cluster, calls): (&&str, &Vec<&FleetCall>)| {
        let (value, parts) = divided(calls, part);
        (value, ((*cluster).to_owned(), parts, format!("{} ({})", time(value), calls.len())))
    };
    let mut rows: Vec<_> = one.clusters.iter().map(row).collect();
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
    let title = fleet.name(one.method).to_owned();
    let chart = StackChart { title, titled: true, parts, rows, whole: false }.svg();
    (chart, format!("the slowest cluster takes {ratio:.2} times as long as the fastest.{shown}"))
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

    /// Two clusters that call a fast and a slow method in other proportions are as fast as each other.
    #[test]
    fn methods_are_not_mixed() {
        let mut fleet = Fleet::default();
        for (cluster, slow) in [("east", 60), ("west", 140)] {
            let mut one = block("a", 200);
            one.head.cluster = cluster.into();
            one.head.methods = vec![(3, "/a.B/Fast".into()), (4, "/a.B/Slow".into())];
            for (n, call) in one.rows.iter_mut().enumerate() {
                let is_slow = n < slow;
                call.row.method.0 = 3 + u32::from(is_slow);
                call.row.components.ns[4] = if is_slow { 50_000_000 } else { 1_000_000 };
            }
            fleet.add(one);
        }
        let methods = shown_methods(&fleet);
        assert_eq!(methods.len(), 2);
        assert!(methods.iter().all(|one| one.clusters() == 2 && (one.tail_ratio() - 1.0).abs() < 0.01));
        let Drawing::Charts(charts, said) = tails(&fleet) else { panic!("it is drawn") };
        assert_eq!((charts.len(), said.len()), (2, 3), "{said:?}");
        assert!(said[1].contains("/a.B/") && said[1].contains("takes 1.00 times"), "{said:?}");
        let Drawing::Charts(charts, said) = callers(&fleet) else { panic!("it is drawn") };
        assert!(charts.len() == 1 && said[0].starts_with("/a.B/"), "{said:?}");
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
