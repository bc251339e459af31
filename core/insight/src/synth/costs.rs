//! Processor time of a generated fleet's calls (Figures 8 and 21).
//!
//! No call takes more processor time than its handler has time, so the dear calls of a method are the ones whose
//! handlers take long. Services have their published parts of all of it by a factor, which a method's cheapest calls do
//! not have: of a service without a name of its own by that of its largest methods.

use super::curves::{PartCurve, along_percent, normal_quantile, part_at, solve};
use super::plan::MethodPlan;
use super::times::CallTime;
use crate::published::Published;
use std::collections::BTreeMap;

/// A handler works so large a part of its time at most.
const WORKING_MAX: f64 = 0.9;
/// So many methods are dear of services without names of their own.
const DEAR_METHODS: usize = 40;
/// And none of them is faster, at the median: its handlers would not have the time.
const DEAR_TOTAL_MIN_PERCENT: f64 = 10.0;
/// Nothing becomes so many times dearer.
const DEARER_MAX: f64 = 1e4;
/// The calls of the cheapest service cost so large a part of what others' cheapest do: with its part of all calls and
/// that of all processor time, it says what all calls cost.
const LEAST_PART: f64 = 0.35;

/// Processor time of a method's calls in milliseconds, at some parts of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    least: f64,
    median: f64,
    dear: f64,
    most: f64,
}

impl Cost {
    /// Of a method at this percentile of methods by cost: a tenth of its calls cost nearly the least (Figure 21).
    pub fn of(percent: f64) -> Self {
        let of = |points: &[(f64, f64)]| along_percent(points, percent);
        let least = of(&[(10.0, 0.017), (90.0, 0.0198)]);
        let median = least * of(&[(10.0, 1.02), (90.0, 1.4)]);
        let dear = of(&[(14.0, 0.0195), (90.0, 0.17)]).max(median);
        let times = if percent < 1.0 { 1.3 } else { of(&[(1.0, 11.0), (90.0, 95.0)]) };
        Self { least, median, dear, most: (median * times).max(dear) }
    }

    /// Of the cheapest service.
    pub fn least() -> Self {
        let Self { least, median, dear, most } = Self::of(0.0);
        let [least, median, dear, most] = [least, median, dear, most].map(|cost| LEAST_PART * cost);
        Self { least, median, dear, most }
    }

    /// At a part of the calls.
    fn curve(&self) -> PartCurve {
        let Self { least, median, dear, most } = *self;
        PartCurve::of(&[(0.01, 0.98 * least), (0.1, least), (0.5, median), (0.9, dear), (0.99, most)], 0.0)
    }
}

/// What a method's calls cost: in the order of its calls, and with the most its handler can work.
struct MethodCosts {
    ms: Vec<f64>,
    /// By which power of a factor a call becomes dearer: the cheapest do not.
    powers: Vec<f64>,
    most_ms: Vec<f64>,
}

impl MethodCosts {
    /// The longer the handler, the dearer.
    fn of(cost: &Cost, times: &[CallTime]) -> Self {
        let count = times.len();
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|a, b| times[*a].application().total_cmp(&times[*b].application()));
        let (curve, tenth) = (cost.curve(), normal_quantile(0.1));
        let (mut ms, mut powers) = (vec![0.0; count], vec![0.0; count]);
        for (rank, at) in order.into_iter().enumerate() {
            let part = part_at(rank, count);
            ms[at] = curve.at(part.min(0.99));
            powers[at] = (1.0 - normal_quantile(part) / tenth).clamp(0.0, 1.0);
        }
        let most_ms = times.iter().map(|call| 1e3 * WORKING_MAX * call.application()).collect();
        Self { ms, powers, most_ms }
    }

    /// With so dear calls.
    fn calls(&self, dearer: f64) -> impl Iterator<Item = f64> {
        let costs = self.ms.iter().zip(&self.powers).zip(&self.most_ms);
        costs.map(move |((ms, power), most)| (ms * dearer.powf(*power)).min(*most))
    }
}

/// Processor time of each method's calls in milliseconds, in the order of its calls.
pub(super) fn costs(published: &Published, plans: &[MethodPlan], times: &[Vec<CallTime>]) -> Vec<Vec<f64>> {
    let is_dear = dear(published, plans);
    let methods: Vec<MethodCosts> = plans
        .iter()
        .zip(times)
        .map(|(plan, times)| MethodCosts::of(&plan.cost.map_or_else(Cost::least, Cost::of), times))
        .collect();
    let of_call = |at: usize, dearer: f64| if is_dear[at] { dearer } else { 1.0 };
    let sum = |at: usize, dearer: f64| {
        let sum: f64 = methods[at].calls(of_call(at, dearer)).sum();
        plans[at].share * sum / times[at].len() as f64
    };
    // Of all services without a published part together, under no name.
    let shares = &published.services.cycles;
    let mut services: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (at, plan) in plans.iter().enumerate() {
        let name = shares.get_key_value(&plan.service).map(|(name, _)| name.as_str());
        services.entry(name).or_default().push(at);
    }
    let rest = 1.0 - shares.values().sum::<f64>();
    let share = |name: &Option<&str>| name.map_or(rest, |name| shares[name]);
    let of = |own: &[usize], dearer: f64| own.iter().map(|at| sum(*at, dearer)).sum::<f64>();
    let whole = services.iter().map(|(name, own)| of(own, 1.0) / share(name)).fold(0.0, f64::max);
    let mut found = vec![Vec::new(); plans.len()];
    for (name, own) in &services {
        let dearer = solve(0.0, DEARER_MAX.ln(), share(name) * whole, |log| of(own, log.exp())).exp();
        own.iter().for_each(|at| found[*at] = methods[*at].calls(of_call(*at, dearer)).collect());
    }
    found
}

/// Whose calls may become dearer: all of services with a published part, of others the largest that are not too fast,
/// and none of those whose own part of calls is published.
fn dear(published: &Published, plans: &[MethodPlan]) -> Vec<bool> {
    let services = &published.services;
    let mut dear: Vec<bool> = plans.iter().map(|plan| services.cycles.contains_key(&plan.service)).collect();
    let is_other = |at: &usize| {
        !services.calls.contains_key(&plans[*at].service) && plans[*at].latency >= DEAR_TOTAL_MIN_PERCENT
    };
    let mut others: Vec<usize> = (0..plans.len()).filter(is_other).collect();
    others.sort_by(|a, b| plans[*b].share.total_cmp(&plans[*a].share));
    others.into_iter().take(DEAR_METHODS).for_each(|at| dear[at] = true);
    dear
}
