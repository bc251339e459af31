//! The methods of a generated fleet: their places in every order, their shares of calls, their services and costs.

use super::curves::{between, grid_value, shuffled};
use crate::published::Published;

/// What fleet.
#[derive(Clone, Copy, Debug)]
pub struct Synthetic {
    /// Methods.
    pub methods: usize,
    /// Calls of each.
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
    /// Its percentiles in the orders by completion time, ratio of sizes, calls below and calls above.
    pub latency: f64,
    pub ratio: f64,
    pub descendants: f64,
    pub ancestors: f64,
    /// Median of its requests.
    pub request_bytes: f64,
    cost: Cost,
}

/// Processor time of a method's calls in milliseconds: percentiles, and what the dearest hundredth takes.
#[derive(Clone, Debug, Default)]
struct Cost {
    points: Vec<(f64, f64)>,
    dearest: f64,
}

/// The dearest calls of a method are so large a part of them.
const DEAREST: f64 = 0.01;
/// Services that have no name of their own.
const OTHER_SERVICES: usize = 28;
/// Methods of a service.
const SERVICE_METHODS_MAX: usize = 6;
/// Queues are long from this part of a method's calls on, or later.
const QUEUE_TAIL: f64 = 0.95;
/// Up to this part of the methods one of a few has nearly all calls of its neighbourhood.
const UNEVEN_PERCENT: f64 = 15.0;

pub(super) fn plans(published: &Published, how: &Synthetic) -> Vec<MethodPlan> {
    let count = how.methods;
    let shares = shares(published, count);
    let services = services(published, &shares);
    let percent = |rank: usize| 100.0 * (rank as f64 + 0.5) / count as f64;
    let order = |salt: u64| shuffled(count, how.seed ^ salt << 48);
    let (ratio, below, above, cost) = (order(1), order(2), order(3), order(4));
    let mut plans: Vec<MethodPlan> = (0..count)
        .map(|at| {
            let service = &services[at];
            let is_cheap = service == "NetDisk";
            MethodPlan {
                name: format!("/{}.v1.{service}/Method{at:04}", service.to_lowercase()),
                share: shares[at],
                latency: percent(at),
                ratio: percent(ratio[at]),
                descendants: percent(below[at]),
                ancestors: percent(above[at]),
                request_bytes: request_bytes(published, percent(ratio[at])),
                service: service.clone(),
                cost: Cost::of(if is_cheap { 0.0 } else { percent(cost[at]) }),
            }
        })
        .collect();
    weigh_costs(published, &mut plans, &services);
    plans
}

impl MethodPlan {
    /// Wires and stacks of a call (Figure 12), in seconds. Of slow methods only the slowest calls wait for them; fast
    /// ones have little else to wait for (Figure 11).
    pub fn network(&self, part: f64) -> f64 {
        let of = |points: &[(f64, f64)]| along_percent(points, self.latency);
        let median =
            of(&[(1.0, 140e-6), (5.0, 260e-6), (10.0, 390e-6), (50.0, 390e-6), (90.0, 1.5e-3), (99.0, 6e-3)]);
        let tail = of(&[(1.0, 6e-3), (10.0, 19e-3), (50.0, 0.115), (90.0, 0.271), (99.0, 0.826)]);
        if part >= self.tail_begins() {
            return tail;
        }
        between(&[(0.01, median / 4.0), (0.5, median), (0.9, median * 2.2)], part, 0.0)
    }

    /// Queues of a call (Figure 13), in seconds: at its own percentile, but long ones in calls that are slow (`slow`).
    pub fn queue(&self, part: f64, slow: f64) -> f64 {
        let of = |points: &[(f64, f64)]| along_percent(points, self.latency);
        let median = of(&[(1.0, 10e-6), (10.0, 50e-6), (50.0, 350e-6), (90.0, 1.1e-3), (99.0, 5e-3)]);
        if slow >= self.tail_begins().max(QUEUE_TAIL) {
            return of(&[(1.0, 0.2e-3), (10.0, 2e-3), (50.0, 22e-3), (90.0, 0.611), (99.0, 0.7)]);
        }
        between(&[(0.01, median / 10.0), (0.5, median), (0.9, median * 2.0)], part.min(0.97), 0.0)
    }

    /// From which part of its calls on a method's wires and stacks are slow.
    fn tail_begins(&self) -> f64 {
        match self.latency {
            percent if percent < 11.0 => 0.895,
            percent if percent < 30.0 => 0.95,
            _ => 0.986,
        }
    }

    /// Processor time of a call in milliseconds.
    pub fn cost_ms(&self, part: f64) -> f64 {
        if part > 1.0 - DEAREST { self.cost.dearest } else { between(&self.cost.points, part, 0.0) }
    }
}

impl Cost {
    /// Of a method at this percentile of methods by cost: half of its calls cost nearly the least (Figure 21).
    fn of(percent: f64) -> Self {
        let of = |points: &[(f64, f64)]| along_percent(points, percent);
        let least = of(&[(10.0, 0.017), (90.0, 0.0198)]);
        let median = least * of(&[(10.0, 1.02), (90.0, 1.4)]);
        let dear = of(&[(10.0, 0.0195), (90.0, 0.17)]).max(median);
        let times = if percent < 1.0 { 1.3 } else { of(&[(1.0, 11.0), (90.0, 95.0)]) };
        let most = (median * times).max(dear);
        Self { points: vec![(0.1, least), (0.5, median), (0.9, dear), (0.99, most)], dearest: most }
    }

    /// The mean without the dearest calls.
    fn mean_of_rest(&self) -> f64 {
        let steps = 200;
        let at = |step: u32| (1.0 - DEAREST) * (f64::from(step) + 0.5) / f64::from(steps);
        (0..steps).map(|step| between(&self.points, at(step), 0.0)).sum::<f64>() / f64::from(steps)
    }
}

/// The median of requests that gives answers a median as Figure 6 has it, at this percentile of methods by ratio.
fn request_bytes(published: &Published, percent: f64) -> f64 {
    let wanted = |name: &str, or: f64| published.target.get(name).map_or(or, |target| target.wanted);
    let request = wanted("request_p50_at_50_percent", 1530.0);
    let low = wanted("response_p50_at_10_percent", 188.0);
    let middle = 0.92 * wanted("response_p50_at_50_percent", 315.0);
    let ratio = |percent: f64| grid_value(&published.ratio, percent, 0.5, 0.0);
    let response = match percent {
        percent if percent < 10.0 => low,
        percent if percent < 50.0 => along_percent(&[(10.0, low), (50.0, middle)], percent),
        percent => middle.max(ratio(percent) * request),
    };
    response / ratio(percent)
}

/// Parts of all calls, by completion time, fastest first.
///
/// The published curve says how many calls the fastest methods have together. Among neighbours they are divided so that
/// the largest ten methods have what was published of them: the steeper, the more.
fn shares(published: &Published, count: usize) -> Vec<f64> {
    let wanted = |name: &str, or: f64| published.target.get(name).map_or(or, |target| target.wanted);
    let top = wanted("top_10_calls", 0.5);
    let (mut flat, mut steep) = (0.0, 1.0);
    for _ in 0..40 {
        let middle = (flat + steep) / 2.0;
        let mut sorted = shares_with(published, count, 1.0 - middle);
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        let of_top: f64 = sorted.iter().take(10).sum();
        if of_top < top { flat = middle } else { steep = middle }
    }
    shares_with(published, count, 1.0 - flat)
}

/// With each of some neighbours having so large a part of what the one before has.
fn shares_with(published: &Published, count: usize, ratio: f64) -> Vec<f64> {
    let wanted = |name: &str, or: f64| published.target.get(name).map_or(or, |target| target.wanted);
    let fastest = wanted("fastest_1_percent_calls", 0.4);
    let slowest = wanted("slowest_10_percent_calls", 0.011);
    let curve = published.popularity.methods.iter().zip(&published.popularity.calls);
    let mut points: Vec<(f64, f64)> = curve.map(|(at, calls)| (*at, *calls)).collect();
    points[0].1 = fastest;
    points.retain(|(at, _)| *at < 90.0);
    points.extend([(90.0, 1.0 - slowest), (100.0, 1.0)]);
    let mut shares = vec![0.0; count];
    let (mut from, mut before) = (0, 0.0);
    for (at, calls) in points {
        let to = ((at / 100.0 * count as f64).round() as usize).clamp(from, count);
        let ratio = if at <= UNEVEN_PERCENT { ratio } else { 1.0 };
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
/// service with most room that it fits in. All others are of many services.
fn services(published: &Published, shares: &[f64]) -> Vec<String> {
    let room =
        published.services.calls.iter().map(|(name, share)| (name.as_str(), *share, SERVICE_METHODS_MAX));
    let mut room: Vec<(&str, f64, usize)> = room.collect();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]));
    let mut services = vec![String::new(); shares.len()];
    let mut other = 0;
    for method in order {
        let fits = |one: &&mut (&str, f64, usize)| one.1 * 1.05 >= shares[method] && one.2 > 0;
        let most = room.iter_mut().filter(fits).max_by(|a, b| a.1.total_cmp(&b.1));
        match most {
            Some((name, left, methods)) => {
                services[method] = (*name).to_owned();
                (*left, *methods) = (*left - shares[method], *methods - 1);
            }
            None => {
                services[method] = format!("Other{:02}", other % OTHER_SERVICES);
                other += 1;
            }
        }
    }
    services
}

/// Makes services' dearest calls so dear that they have their published parts of all processor time.
fn weigh_costs(published: &Published, plans: &mut [MethodPlan], services: &[String]) {
    let calls = |name: &str| -> f64 {
        let own = plans.iter().zip(services).filter(|(_, service)| *service == name);
        own.map(|(plan, _)| plan.share).sum()
    };
    // The cheapest service, whose calls all cost the same, says what a hundredth of all time is.
    let cheap = published.services.cycles.get("NetDisk").copied().unwrap_or(0.01);
    let mean_of_cheap = Cost::of(0.0).mean_of_rest();
    let whole = calls("NetDisk") * mean_of_cheap / cheap;
    let named: f64 = published.services.cycles.values().sum();
    let named_calls: f64 = published.services.cycles.keys().map(|name| calls(name)).sum();
    let means: Vec<f64> = services
        .iter()
        .map(|service| match published.services.cycles.get(service) {
            Some(share) => share * whole / calls(service),
            None => (1.0 - named) * whole / (1.0 - named_calls),
        })
        .collect();
    for ((plan, mean), service) in plans.iter_mut().zip(means).zip(services) {
        if service != "NetDisk" {
            let rest = plan.cost.mean_of_rest() * (1.0 - DEAREST);
            plan.cost.dearest = ((mean - rest) / DEAREST).clamp(plan.cost.dearest, 4_000.0);
        }
    }
}

/// A curve between its points, by logarithms; level beyond its ends.
fn along_percent(points: &[(f64, f64)], percent: f64) -> f64 {
    let right = points.iter().position(|(at, _)| *at >= percent).unwrap_or(points.len());
    if right == 0 || right == points.len() {
        return points[right.min(points.len() - 1)].1;
    }
    let ((from, low), (to, high)) = (points[right - 1], points[right]);
    (low.ln() + (high.ln() - low.ln()) * (percent - from) / (to - from)).exp()
}
