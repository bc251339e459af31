//! A fleet that nobody has: records drawn from published distributions.
//!
//! Each method has a place in every published order (by completion time, by sizes, by calls below and above, by cost),
//! and its calls take the percentiles of that place evenly, so that few calls have the whole distribution. Times are
//! divided so that wires, stacks and queues have theirs. What one figure says against another cannot be had together:
//! the figure that is drawn from more numbers wins, and the check says how far the other is off.

mod curves;
mod plan;

use crate::block::{BlockHead, RecordBlock};
use crate::published::{Published, code_of};
use curves::{grid_value, shuffled, size_factor};
use plan::MethodPlan;
use std::collections::BTreeMap;
use trunkline_call::{Code, Instant, mix};
use trunkline_telemetry::{
    Component, Components, Coverage, FlightRow, MethodIndex, PeerIndex, RecordedCall, Side,
};

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
/// The wires' part of wires and stacks, of all calls and of a method's slowest twentieth (Figures 10b and 10d).
const WIRE_PART: f64 = 0.55 / (0.55 + 0.245);
const TAIL_WIRE_PART: f64 = 0.74 / (0.74 + 0.19);

/// Records of such a fleet, as blocks that say they are generated.
pub fn synth(published: &Published, how: &Synthetic) -> Vec<RecordBlock> {
    let plans = plan::plans(published, how);
    let mut blocks = history(published);
    let first = blocks.len();
    blocks.extend((0..CLUSTERS * HOURS).map(|at| hour_block(published, at / HOURS, at % HOURS)));
    let names: Vec<(u32, String)> =
        plans.iter().enumerate().map(|(number, plan)| (number as u32, plan.name.clone())).collect();
    let mut drawn: Vec<Vec<RecordedCall>> =
        plans.iter().enumerate().map(|(number, plan)| calls(published, plan, number, how)).collect();
    weigh_bytes(published, &plans, &mut drawn);
    for (number, calls) in drawn.into_iter().enumerate() {
        for (at, call) in calls.into_iter().enumerate() {
            let block = first + place(how.seed, number, at, how.calls);
            blocks[block].rows.push(call);
        }
    }
    for (at, call) in errors(published, how, plans.len()).into_iter().enumerate() {
        let block = first + mix(how.seed ^ at as u64) as usize % (CLUSTERS * HOURS);
        blocks[block].rows.push(call);
    }
    blocks.iter_mut().skip(first).for_each(|block| close(block, &names));
    blocks
}

/// The calls of a method, fastest first.
fn calls(published: &Published, plan: &MethodPlan, number: usize, how: &Synthetic) -> Vec<RecordedCall> {
    let count = how.calls;
    let weight = (FLEET_CALLS * plan.share / count as f64).max(1.0) as f32;
    let part = |rank: usize| (rank as f64 + 0.5) / count as f64;
    // Every other distribution is taken in an order of its own.
    let order = |salt: u64| shuffled(count, how.seed ^ (number as u64) << 20 ^ salt << 8);
    let (queues, below, above, sizes, costs) = (order(1), order(2), order(3), order(4), order(5));
    let ratios = ratio_ranks(count, &order(6));
    let mut rows = Vec::with_capacity(count);
    for rank in 0..count {
        let total_s = grid_value(&published.latency, plan.latency, part(rank), 0.0);
        let ns = divide(plan, total_s, part(rank), part(queues[rank]));
        let request = (plan.request_bytes * size_factor(part(sizes[rank]))).max(64.0);
        let ratio = grid_value(&published.ratio, plan.ratio, part(ratios[sizes[rank]]), 0.0);
        let response = (request * ratio).max(64.0);
        let descendants = grid_value(&published.descendants, plan.descendants, part(below[rank]), 1.0);
        let ancestors = grid_value(&published.ancestors, plan.ancestors, part(above[rank]), 1.0);
        rows.push(RecordedCall {
            row: FlightRow {
                method: MethodIndex(number as u32),
                components: Components { ns, ..Components::default() },
                request_bytes: request as u32,
                response_bytes: response as u32,
                cpu_ns: (plan.cost_ms(part(costs[rank])) * 1e6) as u32,
                subtree: descendants.round() as u32 + 1,
                slow: part(rank) >= 0.95,
                ..plain()
            },
            weight,
            ancestors: Some(ancestors.round() as u16),
        });
    }
    rows
}

/// Makes services' messages so much larger that they have their published parts of all bytes.
fn weigh_bytes(published: &Published, plans: &[MethodPlan], drawn: &mut [Vec<RecordedCall>]) {
    let size = |call: &RecordedCall| {
        (f64::from(call.row.request_bytes) + f64::from(call.row.response_bytes)) * f64::from(call.weight)
    };
    let sums: Vec<f64> = drawn.iter().map(|calls| calls.iter().map(size).sum()).collect();
    let shares = &published.services.bytes;
    let of = |wanted: &dyn Fn(&MethodPlan) -> bool| -> f64 {
        plans.iter().zip(&sums).filter(|(plan, _)| wanted(plan)).map(|(_, sum)| sum).sum()
    };
    let others = of(&|plan| !shares.contains_key(&plan.service));
    let named: f64 = shares.values().sum();
    for (service, share) in shares {
        let factor = share / (1.0 - named) * others / of(&|plan| plan.service == *service);
        let own = plans.iter().zip(&mut *drawn).filter(|(plan, _)| plan.service == *service);
        for call in own.flat_map(|(_, calls)| calls) {
            let larger = |bytes: u32| ((f64::from(bytes) * factor) as u32).max(64);
            call.row.request_bytes = larger(call.row.request_bytes);
            call.row.response_bytes = larger(call.row.response_bytes);
        }
    }
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

/// Completion time, divided: wires and stacks are slow in calls that are slow, queues whenever they are.
fn divide(plan: &MethodPlan, total_s: f64, part: f64, queue_part: f64) -> [u64; Component::COUNT] {
    let network = plan.network(part).min(0.97 * total_s);
    let queue = plan.queue(queue_part, part).min(0.97 * (total_s - network));
    let wire = network * if part >= 0.95 { TAIL_WIRE_PART } else { WIRE_PART };
    let stack = network - wire;
    let mut seconds = [0.0; Component::COUNT];
    let mut add = |component: Component, value: f64| seconds[component as usize] = value;
    add(Component::RequestWire, 0.55 * wire);
    add(Component::ResponseWire, 0.45 * wire);
    add(Component::RequestStack, 0.55 * stack);
    add(Component::ResponseStack, 0.45 * stack);
    add(Component::ClientSendQueue, 0.1 * queue);
    add(Component::ServerReceiveQueue, 0.7 * queue);
    add(Component::ServerSendQueue, 0.1 * queue);
    add(Component::ClientReceiveQueue, 0.1 * queue);
    add(Component::ServerApplication, total_s - network - queue);
    seconds.map(|seconds| (seconds * 1e9) as u64)
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

/// The block of a call: slow ones come from far clusters, and from busy hours, more often than fast ones.
fn place(seed: u64, method: usize, rank: usize, count: usize) -> usize {
    let uniform = |salt: u64| {
        (mix(seed ^ salt << 56 ^ (method as u64) << 24 ^ rank as u64) >> 11) as f64 / (1_u64 << 53) as f64
    };
    let slow = (rank as f64 + 0.5) / count as f64;
    let cluster = ((0.25 * slow + 0.75 * uniform(1)) * CLUSTERS as f64) as usize;
    // As often as a call of that speed would be met at that load: drawn until it is taken.
    let hours = (2..34).map(|salt| ((uniform(salt) * HOURS as f64) as usize, uniform(salt + 64)));
    let taken =
        hours.clone().find(|(hour, lot)| *lot < 0.5 + 0.5 * (2.0 * load(*hour) - 1.0) * (2.0 * slow - 1.0));
    let hour = taken.or_else(|| hours.clone().next()).map_or(0, |(hour, _)| hour);
    cluster.min(CLUSTERS - 1) * HOURS + hour.min(HOURS - 1)
}

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

/// For each rank of a request's size the rank of its ratio. Large requests have large answers, but the least ratios
/// belong to large requests too: no answer is smaller than the smallest message.
fn ratio_ranks(count: usize, order: &[usize]) -> Vec<usize> {
    let (low, large) = (count / 10, count - count / 5);
    let mut ranks = vec![usize::MAX; count];
    let mut places: Vec<usize> = (large..count).collect();
    places.sort_by_key(|place| order[*place]);
    places.iter().take(low).enumerate().for_each(|(rank, place)| ranks[*place] = rank);
    let mut next = low..count;
    ranks.iter_mut().filter(|rank| **rank == usize::MAX).for_each(|rank| *rank = next.next().unwrap_or(0));
    ranks
}

#[cfg(test)]
mod tests {
    //! Shows that a generated fleet says so, has the published distributions through its own file, and is the same each
    //! time.
    use super::*;
    use crate::fleet::Fleet;

    const STUDY: &str = include_str!("../../../tools/insight/data/fleet.toml");

    #[test]
    fn a_generated_fleet_has_what_was_published() {
        let published = Published::parse(STUDY).unwrap();
        let how = Synthetic { methods: 300, calls: 200, seed: 1 };
        let blocks = synth(&published, &how);
        assert_eq!(blocks, synth(&published, &how));
        let mut fleet = Fleet::default();
        fleet.read(&blocks.iter().flat_map(RecordBlock::encode).collect::<Vec<_>>());
        assert!(
            fleet.faults.is_empty() && fleet.is_generated() && fleet.heads.iter().all(|head| head.generated)
        );
        assert_eq!(fleet.calls.len(), 300 * 200 + published.errors.len() * ERROR_CALLS);
        let checked = published.check(&fleet);
        let of = |figure: &str| {
            let found: Vec<_> = checked.iter().filter(|one| one.figure == figure).collect();
            (found.iter().filter(|one| one.is_reached()).count(), found.len())
        };
        for (figure, least) in [("2", 0.8), ("3", 0.8), ("4", 0.8), ("23", 1.0)] {
            let (reached, all) = of(figure);
            assert!(reached as f64 >= least * all as f64, "figure {figure}: {reached} of {all}");
        }
        let unmeasured: Vec<_> = checked.iter().filter(|one| !one.got.is_finite()).collect();
        assert!(unmeasured.is_empty(), "every target is measured: {unmeasured:?}");
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
