//! A fleet that nobody has: records drawn from published distributions.
//!
//! Each method has a place in every published order (by completion time, by sizes, by calls below and above, by cost),
//! and its calls take the percentiles of that place evenly, so that few calls have the whole distribution. Times are
//! divided so that wires, stacks and queues have theirs ([`times`]), messages are as large as ratios and sizes say
//! together ([`sizes`]), and handlers work no longer than they have time ([`costs`]). What one figure says against
//! another cannot be had together: the figure that is drawn from more numbers wins, and the check says how far off the
//! other is.

mod costs;
mod curves;
mod plan;
mod sizes;
mod times;

use crate::block::{BlockHead, RecordBlock};
use crate::published::{Published, code_of};
use curves::{PartCurve, part_at, shuffled, solve};
use plan::MethodPlan;
use sizes::SizedCall;
use std::collections::BTreeMap;
use trunkline_call::{Code, Instant, mix};
use trunkline_telemetry::{Components, Coverage, FlightRow, MethodIndex, PeerIndex, RecordedCall, Side};

pub use plan::Synthetic;

/// Calls that all the records stand for.
const FLEET_CALLS: f64 = 1e9;
/// Clusters and hours; each pair is a block.
const CLUSTERS: usize = 12;
const HOURS: usize = 24;
const HOUR_NS: u64 = 3_600_000_000_000;
/// Blocks of the two years before, four weeks each, without calls: what they say is how many there were.
const PERIODS: u32 = 26;
const PERIOD_DAYS: f64 = 28.0;
/// 1 January 2023 and 700 days before.
const BEGAN_UNIX_MS: u64 = 1_672_531_200_000;
const DAY_MS: u64 = 86_400_000;
/// Calls of each code that did not end well.
const ERROR_CALLS: usize = 200;
/// Services' messages become no more times as large, or as small.
const LARGER_MAX: f64 = 1e3;

/// Records of such a fleet, as blocks that say they are generated.
pub fn synth(published: &Published, how: &Synthetic) -> Vec<RecordBlock> {
    let plans = plan::plans(published, how);
    let mut blocks = history(published);
    let first = blocks.len();
    blocks.extend((0..CLUSTERS * HOURS).map(|at| hour_block(published, at / HOURS, at % HOURS)));
    let names: Vec<(u32, String)> =
        plans.iter().enumerate().map(|(number, plan)| (number as u32, plan.name.clone())).collect();
    let drawn = Drawn::of(published, &plans, how);
    for (number, plan) in plans.iter().enumerate() {
        let calls = calls(published, plan, number, &drawn, how);
        for (call, place) in calls.into_iter().zip(places(how.seed, number, plan.calls)) {
            blocks[first + place].rows.push(call);
        }
    }
    for (at, call) in errors(published, how, plans.len()).into_iter().enumerate() {
        let block = first + mix(how.seed ^ at as u64) as usize % (CLUSTERS * HOURS);
        blocks[block].rows.push(call);
    }
    blocks.iter_mut().skip(first).for_each(|block| close(block, &names));
    blocks
}

/// What is drawn of all methods together, a list for each.
struct Drawn {
    times: Vec<Vec<times::CallTime>>,
    /// Milliseconds.
    costs: Vec<Vec<f64>>,
    /// Of request and answer, the least ratio first.
    sizes: Vec<Vec<[u32; 2]>>,
}

impl Drawn {
    fn of(published: &Published, plans: &[MethodPlan], how: &Synthetic) -> Self {
        let times = times::times(published, plans, how);
        let costs = costs::costs(published, plans, &times);
        Self { times, costs, sizes: sizes(published, plans) }
    }
}

/// Sizes of each method's messages: services' are so much larger or smaller that they have their published parts of all
/// bytes.
fn sizes(published: &Published, plans: &[MethodPlan]) -> Vec<Vec<[u32; 2]>> {
    let sized: Vec<Vec<SizedCall>> = plans.iter().map(|plan| plan.sizes.calls(plan.calls)).collect();
    let bytes = |wanted: &dyn Fn(&MethodPlan) -> bool, times: f64| -> f64 {
        let of = |(plan, calls): (&MethodPlan, &Vec<SizedCall>)| {
            let sizes = calls.iter().flat_map(|call| call.bytes(times));
            plan.share * sizes.map(f64::from).sum::<f64>() / calls.len() as f64
        };
        plans.iter().zip(&sized).filter(|(plan, _)| wanted(plan)).map(of).sum()
    };
    let shares = &published.services.bytes;
    let others = bytes(&|plan| !shares.contains_key(&plan.service), 1.0);
    let whole = others / (1.0 - shares.values().sum::<f64>());
    let most = LARGER_MAX.ln();
    let times = |(service, share): (&String, &f64)| {
        let own = |log: f64| bytes(&|plan| plan.service == *service, log.exp());
        (service.clone(), solve(-most, most, share * whole, own).exp())
    };
    let times: BTreeMap<String, f64> = shares.iter().map(times).collect();
    let of = |(plan, calls): (&MethodPlan, Vec<SizedCall>)| {
        let times = times.get(&plan.service).copied().unwrap_or(1.0);
        calls.iter().map(|call| call.bytes(times)).collect()
    };
    plans.iter().zip(sized).map(of).collect()
}

/// The calls of a method, fastest first.
fn calls(
    published: &Published,
    plan: &MethodPlan,
    number: usize,
    drawn: &Drawn,
    how: &Synthetic,
) -> Vec<RecordedCall> {
    let count = plan.calls;
    let weight = (FLEET_CALLS * plan.share / count as f64).max(1.0) as f32;
    // Sizes and calls above are in orders of their own; the more calls below, the slower.
    let order = |salt: u64| shuffled(count, how.seed ^ (number as u64) << 20 ^ salt << 8);
    let (above, sizes) = (order(3), order(4));
    let descendants = PartCurve::of_grid(&published.descendants, plan.latency, 1.0);
    let ancestors = PartCurve::of_grid(&published.ancestors, plan.ancestors, 1.0);
    let call = |rank: usize| {
        let [request_bytes, response_bytes] = drawn.sizes[number][sizes[rank]];
        let (descendants, ancestors) =
            (descendants.at(part_at(rank, count)), ancestors.at(part_at(above[rank], count)));
        let ns = drawn.times[number][rank].components();
        RecordedCall {
            row: FlightRow {
                method: MethodIndex(number as u32),
                components: Components { ns, ..plain().components },
                request_bytes,
                response_bytes,
                cpu_ns: (drawn.costs[number][rank] * 1e6) as u32,
                subtree: descendants.round() as u32 + 1,
                slow: part_at(rank, count) >= 0.95,
                ..plain()
            },
            weight,
            ancestors: Some(ancestors.round() as u16),
        }
    };
    (0..count).map(call).collect()
}

/// A call about which nothing is known.
fn plain() -> FlightRow {
    FlightRow {
        at: Instant(0),
        side: Side::Made,
        method: MethodIndex(0),
        peer: PeerIndex(0),
        code: Code::Ok,
        components: Components { coverage: Coverage::Whole, ..Components::default() },
        request_bytes: 64,
        response_bytes: 64,
        cpu_ns: 0,
        subtree: 1,
        half_width_ns: 0,
        slow: false,
        is_stream: false,
        stands_for: 1,
    }
}

/// Calls that did not end well, as often and as dear as published.
fn errors(published: &Published, how: &Synthetic, methods: usize) -> Vec<RecordedCall> {
    let rate = published.target.get("error_rate").map_or(0.0, |rate| rate.wanted);
    let whole: f64 = published.errors.values().map(|shares| shares[0]).sum();
    let mut rows = Vec::new();
    for (index, (name, [calls, cycles])) in published.errors.iter().enumerate() {
        let Some(code) = code_of(name) else { continue };
        let weight = FLEET_CALLS * rate / (1.0 - rate) * calls / whole / ERROR_CALLS as f64;
        for n in 0..ERROR_CALLS {
            let method = mix(how.seed ^ (index as u64) << 32 ^ n as u64) as usize % methods;
            let row = FlightRow {
                method: MethodIndex(method as u32),
                code,
                cpu_ns: (cycles / calls * 100_000.0) as u32,
                ..plain()
            };
            rows.push(RecordedCall { row, weight: weight.max(1.0) as f32, ancestors: None });
        }
    }
    rows
}

/// How many calls there were in the time before, for how much processor time.
fn history(published: &Published) -> Vec<RecordBlock> {
    let total = published.target.get("growth_total_700_days").map_or(0.0, |growth| growth.wanted);
    let period = |at: u32| {
        let days = f64::from(at) * PERIOD_DAYS;
        let head = BlockHead {
            host: "fleet".into(),
            generated: true,
            began_unix_ms: BEGAN_UNIX_MS - 701 * DAY_MS + (days * DAY_MS as f64) as u64,
            calls_seen: (1e6 * (1.0 + total).powf(days / 700.0)) as u64,
            variables: BTreeMap::from([("cpu_seconds".to_owned(), 1000.0)]),
            ..BlockHead::default()
        };
        RecordBlock { head, ..RecordBlock::default() }
    };
    (0..PERIODS).map(period).collect()
}

/// An hour of a cluster: more load by day, and more in some clusters than in others.
fn hour_block(published: &Published, cluster: usize, hour: usize) -> RecordBlock {
    let load = load(hour);
    let own = (mix(cluster as u64) % 100) as f64 / 100.0;
    let variables = [
        ("cpu_percent", (15.0 + 60.0 * load + 13.0 * own).min(88.0)),
        ("memory_bandwidth_gb_per_second", 35.0 + 60.0 * load + 15.0 * own),
        ("long_wakeup_fraction", 0.12 * load * load),
        ("cycles_per_instruction", 0.6 + 1.7 * load + 0.4 * own),
    ];
    let head = BlockHead {
        host: format!("cluster-{cluster:02}-host"),
        cluster: format!("cluster-{cluster:02}"),
        generated: true,
        began_unix_ms: BEGAN_UNIX_MS + hour as u64 * HOUR_NS / 1_000_000,
        began_ns: hour as u64 * HOUR_NS,
        ended_ns: (hour as u64 + 1) * HOUR_NS,
        peers: vec![(0, "(generated)".into())],
        variables: variables.map(|(name, value)| (name.to_owned(), value)).into(),
        cycles: published.cycles.clone(),
        ..BlockHead::default()
    };
    RecordBlock { head, ..RecordBlock::default() }
}

/// From 0 at night to 1 by day.
fn load(hour: usize) -> f64 {
    0.5 - 0.5 * (2.0 * std::f64::consts::PI * (hour as f64 - 3.0) / HOURS as f64).cos()
}

/// The blocks of a method's calls, the fastest first: slow ones come from far clusters, and from busy hours, more often
/// than fast ones. All clusters have as many.
fn places(seed: u64, method: usize, count: usize) -> Vec<usize> {
    let uniform = |rank: usize, salt: u64| {
        (mix(seed ^ salt << 56 ^ (method as u64) << 24 ^ rank as u64) >> 11) as f64 / (1_u64 << 53) as f64
    };
    let slow = |rank: usize| (rank as f64 + 0.5) / count as f64;
    let far = |rank: usize| FAR_PART * slow(rank) + (1.0 - FAR_PART) * uniform(rank, 1);
    let mut nearest: Vec<usize> = (0..count).collect();
    nearest.sort_by(|a, b| far(*a).total_cmp(&far(*b)));
    let mut clusters = vec![0; count];
    nearest.into_iter().enumerate().for_each(|(at, rank)| clusters[rank] = at * CLUSTERS / count);
    // As often as a call of that speed would be met at that load: drawn until it is taken.
    let hour = |rank: usize| {
        let hours =
            (2..34).map(|salt| ((uniform(rank, salt) * HOURS as f64) as usize, uniform(rank, salt + 64)));
        let is_met = |load_at: usize, lot: f64| {
            lot < 0.5 + 0.5 * (2.0 * load(load_at) - 1.0) * (2.0 * slow(rank) - 1.0)
        };
        let taken = hours.clone().find(|(hour, lot)| is_met(*hour, *lot));
        taken.or_else(|| hours.clone().next()).map_or(0, |(hour, _)| hour.min(HOURS - 1))
    };
    clusters.into_iter().enumerate().map(|(rank, cluster)| cluster * HOURS + hour(rank)).collect()
}

/// How much a call's speed says of its cluster: P95 of a method differs between clusters by some times, and not by more
/// than ten (Figure 16).
const FAR_PART: f64 = 0.15;

/// Spreads a block's calls over its time, and names what it has.
fn close(block: &mut RecordBlock, names: &[(u32, String)]) {
    let step = HOUR_NS / (block.rows.len() as u64 + 1);
    let mut used = vec![false; names.len()];
    let rows = &mut block.rows;
    rows.sort_by_key(|call| mix(u64::from(call.row.method.0) << 40 ^ call.row.components.total_ns()));
    for (at, call) in rows.iter_mut().enumerate() {
        call.row.at = Instant(block.head.began_ns + (at as u64 + 1) * step);
        used[call.row.method.0 as usize] = true;
    }
    block.head.calls_seen = rows.iter().map(|call| f64::from(call.weight)).sum::<f64>() as u64;
    block.head.methods = names.iter().filter(|(number, _)| used[*number as usize]).cloned().collect();
}

#[cfg(test)]
mod tests {
    //! Shows that a generated fleet says so, has the published distributions through its own file, and is the same each
    //! time.
    use super::*;
    use crate::fleet::Fleet;
    use trunkline_telemetry::Component;

    const STUDY: &str = include_str!("../../../tools/insight/data/fleet.toml");

    fn read(blocks: &[RecordBlock]) -> Fleet {
        let mut fleet = Fleet::default();
        fleet.read(&blocks.iter().flat_map(RecordBlock::encode).collect::<Vec<_>>());
        fleet
    }

    /// What the study does not contradict itself in can be had together, wherever drawing begins.
    #[test]
    fn a_generated_fleet_has_what_was_published() {
        let published = Published::parse(STUDY).unwrap();
        for (seed, calls) in [(1, 200), (2, 400), (3, 200)] {
            let how = Synthetic { methods: 300, calls, seed };
            let fleet = read(&synth(&published, &how));
            assert!(
                fleet.faults.is_empty()
                    && fleet.is_generated()
                    && fleet.heads.iter().all(|head| head.generated)
            );
            let ended_well = (300 + 8 * 3) * calls;
            assert_eq!(fleet.calls.len(), ended_well + published.errors.len() * ERROR_CALLS);
            let missed: Vec<_> = published
                .check(&fleet)
                .into_iter()
                .filter(|one| !one.is_reached() && one.conflict.is_none())
                .map(|one| (one.name, one.wanted, one.got))
                .collect();
            assert!(missed.is_empty(), "seed {seed}, {calls} calls: {missed:?}");
        }
    }

    /// Of every call the handler has the time that it works, and of a method those with more calls below are slower.
    #[test]
    fn generated_calls_could_be_made() {
        let published = Published::parse(STUDY).unwrap();
        let how = Synthetic { methods: 60, calls: 100, seed: 5 };
        let blocks = synth(&published, &how);
        assert_eq!(blocks, synth(&published, &how));
        let fleet = read(&blocks);
        for call in fleet.good() {
            assert!(call.cpu_s().unwrap_or(0.0) <= call.part_s(Component::ServerApplication), "{call:?}");
            assert!(call.row.request_bytes >= 64 && call.row.response_bytes >= 64, "{call:?}");
        }
        for method in 0..60 {
            let mut calls: Vec<_> = fleet.good().filter(|call| call.method == method).collect();
            calls.sort_by_key(|call| call.row.components.total_ns());
            let below = calls.iter().map(|call| call.row.subtree);
            assert!(below.is_sorted(), "{}", fleet.name(method));
        }
    }

    #[test]
    fn few_methods_calls_and_numbers_make_a_fleet_too() {
        let published = Published::parse(STUDY).unwrap();
        let mut few = Published::parse(STUDY).unwrap();
        few.target.clear();
        few.services.calls.clear();
        few.services.bytes.clear();
        few.services.cycles.clear();
        for (methods, calls) in [(20, 10), (21, 13), (20, 137)] {
            for published in [&published, &few] {
                let fleet = read(&synth(published, &Synthetic { methods, calls, seed: 1 }));
                assert!(fleet.faults.is_empty() && fleet.good().count() == (methods + 8 * 3) * calls);
            }
        }
    }

    #[test]
    fn targets_that_are_wrong_are_named() {
        for (change, said) in [
            (("[popularity]", "[popularitx]"), "popularitx"),
            (("growth_per_year", "growth_per_yeer"), "there is no such target"),
            (("CANCELLED", "CANCELED"), "write a gRPC code"),
            (("methods = [1, 5,", "methods = [5,"), "write one for each"),
            (("methods = [1, 5,", "methods = [5, 1,"), "in ascending order"),
            (("p1 = [0.00018", "p1 = [-0.00018"), "no number from zero"),
        ] {
            let wrong = Published::parse(&STUDY.replacen(change.0, change.1, 1)).unwrap_err();
            assert!(wrong.contains(said), "{change:?}: {wrong}");
        }
    }
}
