//! The methods of a generated fleet: their places in every order, their shares of calls and their services.

use super::curves::{shuffled, solve};
use super::sizes::SizePlan;
use crate::published::Published;

/// What fleet.
#[derive(Clone, Copy, Debug)]
pub struct Synthetic {
    /// Methods.
    pub methods: usize,
    /// Calls of each; of the eight with most of all calls four times as many.
    pub calls: usize,
    /// Where drawing begins.
    pub seed: u64,
}

/// One method.
#[derive(Clone, Debug)]
pub(super) struct MethodPlan {
    pub name: String,
    pub service: String,
    /// Its part of all calls.
    pub share: f64,
    /// How many of its calls are drawn.
    pub calls: usize,
    /// Its percentile in the orders by completion time and calls below: calls that are slow have more of them.
    pub latency: f64,
    /// And in that by calls above.
    pub ancestors: f64,
    pub sizes: SizePlan,
    /// And in that by processor time; none of the cheapest service.
    pub cost: Option<f64>,
}

/// The service with most calls, of which text and figure say different parts: the middle is near both.
const NETWORK_DISK: &str = "NetDisk";
/// Services that have no name of their own.
const OTHER_SERVICES: usize = 40;
/// What a method may have beside the room that is left in its service.
const ROOM_TIMES: f64 = 1.1;
/// Methods of a service.
const SERVICE_METHODS_MAX: usize = 6;
/// Of these methods one of a few has more of the calls than its neighbours.
const UNEVEN_PERCENT: [f64; 2] = [1.0, 5.0];

pub(super) fn plans(published: &Published, how: &Synthetic) -> Vec<MethodPlan> {
    let count = how.methods;
    let shares = shares(published, count);
    let services = services(published, &shares);
    let percent = |rank: usize| 100.0 * (rank as f64 + 0.5) / count as f64;
    let large = large(&shares);
    let order = |salt: u64| shuffled(count, how.seed ^ salt << 48);
    let (ratio, above, cost) = (order(1), order(3), costs(count, &order(4)));
    let plan = |at: usize| {
        let service = &services[at];
        MethodPlan {
            name: format!("/{}.v1.{service}/Method{at:04}", service.to_lowercase()),
            share: shares[at],
            calls: if large.contains(&at) { LARGE_TIMES * how.calls } else { how.calls },
            latency: percent(at),
            ancestors: percent(above[at]),
            sizes: SizePlan::of(published, percent(ratio[at])),
            service: service.clone(),
            cost: (service != NETWORK_DISK).then(|| percent(cost[at])),
        }
    };
    (0..count).map(plan).collect()
}

/// Methods that are compared by cluster (Figure 16) have so many times as many calls as others: each cluster has some
/// of a method, and its P95 wants fifty.
const LARGE_TIMES: usize = 4;
const LARGE_METHODS: usize = 8;

/// Those with most of all calls.
fn large(shares: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]));
    order.truncate(LARGE_METHODS);
    order
}

/// Places of methods in the order by cost: the fastest have the lowest, since no call takes more processor time than it
/// lasts, and all others any.
fn costs(count: usize, order: &[usize]) -> Vec<usize> {
    let fast = (FAST_PERCENT / 100.0 * count as f64) as usize;
    let (mut low, mut high) = (0..fast, fast..count);
    let mut places = vec![0; count];
    let mut by_lot: Vec<usize> = (0..count).collect();
    by_lot.sort_by_key(|at| order[*at]);
    for at in by_lot {
        let from = if at < fast { &mut low } else { &mut high };
        places[at] = from.next().unwrap_or(0);
    }
    places
}

/// Up to here methods are too fast for calls that cost much.
const FAST_PERCENT: f64 = 12.0;

/// Parts of all calls, by completion time, fastest first.
///
/// The published curve says how many calls the fastest methods have together. Among neighbours they are divided so that
/// the largest ten methods have what was published of them: the steeper, the more.
fn shares(published: &Published, count: usize) -> Vec<f64> {
    let wanted = |name: &str, or: f64| published.target.get(name).map_or(or, |target| target.wanted);
    let (top_10, top_100) = (wanted("top_10_calls", 0.58), wanted("top_100_calls", 0.91));
    let largest = |shares: &[f64], count: usize| -> f64 {
        let mut sorted = shares.to_vec();
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        sorted.iter().take(count).sum()
    };
    let steepest = |lower: f64| {
        let of = |steep: f64| largest(&shares_with(published, count, 1.0 - steep, lower), 10);
        shares_with(published, count, 1.0 - solve(0.0, 1.0, top_10, of), lower)
    };
    steepest(solve(0.0, LOWER_MAX, -top_100, |lower| -largest(&steepest(lower), 100)))
}

/// The published curve is read off a figure: so much lower it may be in its middle, for the largest hundred methods to
/// have what is published of them.
const LOWER_MAX: f64 = 0.01;
/// The middle: not where the steps are.
const LOWER_PERCENT: [f64; 2] = [15.0, 50.0];

/// With each of some neighbours having so large a part of what the one before has, and the middle of the curve so much
/// lower.
fn shares_with(published: &Published, count: usize, ratio: f64, lower: f64) -> Vec<f64> {
    let wanted = |name: &str, or: f64| published.target.get(name).map_or(or, |target| target.wanted);
    let fastest = wanted("fastest_1_percent_calls", 0.4);
    let slowest = wanted("slowest_10_percent_calls", 0.011);
    let curve = published.popularity.methods.iter().zip(&published.popularity.calls);
    let mut points: Vec<(f64, f64)> = curve.map(|(at, calls)| (*at, *calls)).collect();
    points[0].1 = fastest;
    let last = points.last().copied().filter(|(at, _)| *at > 90.0);
    points.retain(|(at, _)| *at < 90.0);
    let middle = points.iter_mut().filter(|(at, _)| (LOWER_PERCENT[0]..LOWER_PERCENT[1]).contains(at));
    middle.for_each(|(_, calls)| *calls -= lower);
    points.push((90.0, 1.0 - slowest));
    // The slowest methods of all have most calls of the slow ones, and so nearly all time (Figure 3).
    points.extend(last.map(|(at, calls)| (at, calls.max(1.0 - slowest))));
    points.push((100.0, 1.0));
    let mut shares = vec![0.0; count];
    let (mut from, mut before) = (0, 0.0);
    for (at, calls) in points {
        let to = ((at / 100.0 * count as f64).round() as usize).clamp(from, count);
        let is_uneven = at > UNEVEN_PERCENT[0] && at <= UNEVEN_PERCENT[1];
        let ratio = if is_uneven { ratio } else { 1.0 };
        if to > from && calls > before {
            let mut whole = calls - before;
            let mut first = from;
            if from == 0 {
                // The largest method of all.
                shares[0] = wanted("largest_method_calls", 0.0).min(whole);
                (whole, first) = (whole - shares[0], 1.min(to - 1));
            }
            let parts: Vec<f64> = (first..to).map(|at| ratio.powi((at - first) as i32)).collect();
            let sum: f64 = parts.iter().sum();
            parts.iter().enumerate().for_each(|(at, part)| shares[first + at] += whole * part / sum);
            (from, before) = (to, calls);
        }
    }
    let sum: f64 = shares.iter().sum();
    shares.iter().map(|share| share / sum).collect()
}

/// The service of each method, so that services have their published parts of calls: large methods first, each to the
/// service with least room that it fits in. All others are of many services, none of them large.
fn services(published: &Published, shares: &[f64]) -> Vec<String> {
    let disk = published.target.get("network_disk_calls").map(|target| target.wanted);
    let mut room: Vec<(&str, f64, usize)> = Vec::new();
    for (name, share) in &published.services.calls {
        let text = disk.filter(|_| name == NETWORK_DISK).unwrap_or(*share);
        room.push((name, f64::midpoint(*share, text), SERVICE_METHODS_MAX));
    }
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]));
    let mut services = vec![String::new(); shares.len()];
    let mut others = vec![0.0_f64; OTHER_SERVICES];
    for method in order {
        let fits = |one: &&mut (&str, f64, usize)| one.1 * ROOM_TIMES >= shares[method] && one.2 > 0;
        let least = room.iter_mut().filter(fits).min_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((name, left, methods)) = least {
            services[method] = (*name).to_owned();
            (*left, *methods) = (*left - shares[method], *methods - 1);
            continue;
        }
        let least = others.iter_mut().enumerate().min_by(|a, b| (*a.1).total_cmp(b.1));
        if let Some((number, has)) = least {
            *has += shares[method];
            services[method] = format!("Other{number:02}");
        }
    }
    services
}
