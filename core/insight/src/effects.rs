//! What if a component were never above its median, or so much smaller? And which component moved between two fleets?

use crate::estimate::{RESAMPLES, WeightedValues, drawn, interval_of};
use crate::fleet::FleetCall;
use trunkline_telemetry::Component;

/// Fewer calls than this have no tail to speak of.
pub const EFFECT_CALLS_MIN: usize = 20;
/// More calls than this are thinned for the resamples: a hundred thousand make no interval narrower that matters.
const RESAMPLED_CALLS_MAX: usize = 20_000;

/// What capping one component would do to the tail, by both readings of the study's Figure 15.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The component that is changed.
    pub component: Component,
    /// 100·(P95(T) − P95(T′)) / P95(T), with this component capped at its median in T′.
    pub p95_reduction: f64,
    /// Where 95 % of resamples have it.
    pub p95_reduction_interval: [f64; 2],
    /// The share of the calls at or above P95(T) that fall below it with this component at its median, in percent.
    pub tail_escape: f64,
    /// Where 95 % of resamples have it.
    pub tail_escape_interval: [f64; 2],
}

/// Both figures for every component; empty with fewer than [`EFFECT_CALLS_MIN`] calls.
pub fn effects(calls: &[&FleetCall]) -> Vec<Effect> {
    if calls.len() < EFFECT_CALLS_MIN {
        return Vec::new();
    }
    let step = calls.len().div_ceil(RESAMPLED_CALLS_MAX);
    let thinned: Vec<&FleetCall> = calls.iter().copied().step_by(step).collect();
    Component::ALL.into_iter().map(|component| effect(calls, &thinned, component)).collect()
}

fn effect(calls: &[&FleetCall], thinned: &[&FleetCall], component: Component) -> Effect {
    let median = values(calls, |call| call.part_s(component)).quantile(0.5);
    let exact = Capped::of(calls, component, median).figures(|_| 1.0);
    let resampled = Capped::of(thinned, component, median);
    let figures: Vec<_> =
        (0..RESAMPLES).map(|resample| resampled.figures(|index| drawn(resample, index))).collect();
    Effect {
        component,
        p95_reduction: exact[0],
        p95_reduction_interval: interval_of(figures.iter().map(|figures| figures[0]).collect()),
        tail_escape: exact[1],
        tail_escape_interval: interval_of(figures.iter().map(|figures| figures[1]).collect()),
    }
}

/// Calls with and without the change, in order of both, so that a resample is a walk and no sorting.
struct Capped {
    /// Completion time as it was, with the component at its median, and weight.
    calls: Vec<(f64, f64, f64)>,
    /// Numbers of calls, longest first.
    by_total: Vec<u32>,
    /// Capped completion times and numbers of calls, longest first.
    by_capped: Vec<(f64, u32)>,
}

impl Capped {
    fn of(calls: &[&FleetCall], component: Component, median: f64) -> Self {
        let parts = |call: &&FleetCall| (call.total_s(), call.total_s() - call.part_s(component));
        let capped = calls.iter().enumerate().map(|(index, call)| {
            let (_, rest) = parts(call);
            (rest + call.part_s(component).min(median), index as u32)
        });
        let mut by_capped: Vec<_> = capped.collect();
        by_capped.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let calls: Vec<_> = calls
            .iter()
            .map(|call| {
                let (total, rest) = parts(call);
                (total, rest + median, call.weight)
            })
            .collect();
        let mut by_total: Vec<u32> = (0..calls.len() as u32).collect();
        by_total.sort_unstable_by(|a, b| calls[*b as usize].0.total_cmp(&calls[*a as usize].0));
        Self { calls, by_total, by_capped }
    }

    /// Reduction and escape in percent, where each call counts so often.
    fn figures(&self, count: impl Fn(usize) -> f64) -> [f64; 2] {
        let weight = |index: u32| self.calls[index as usize].2 * count(index as usize);
        let tail = 0.05 * (0..self.calls.len() as u32).map(weight).sum::<f64>();
        let mut left = tail;
        let mut p95 = 0.0;
        for index in &self.by_total {
            left -= weight(*index);
            p95 = self.calls[*index as usize].0;
            if left < 0.0 {
                break;
            }
        }
        let (mut left, mut reduced) = (tail, 0.0);
        for (capped, index) in &self.by_capped {
            left -= weight(*index);
            reduced = *capped;
            if left < 0.0 {
                break;
            }
        }
        let (mut at_or_above, mut escaped) = (0.0, 0.0);
        for index in &self.by_total {
            let (total, at_median, _) = self.calls[*index as usize];
            if total < p95 {
                break;
            }
            at_or_above += weight(*index);
            // Both are sums of the same parts in another order.
            if at_median < p95 * (1.0 - 1e-12) {
                escaped += weight(*index);
            }
        }
        let percent = |part: f64, whole: f64| if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
        [percent((p95 - reduced).max(0.0), p95), percent(escaped, at_or_above)]
    }
}

/// Completion times with components so many times as large: P50, P95, P99 and mean in seconds, before and after.
pub fn scaled(calls: &[&FleetCall], factors: &[(Component, f64)]) -> [[f64; 2]; 4] {
    let after = |call: &FleetCall| {
        let moved: f64 =
            factors.iter().map(|(component, factor)| call.part_s(*component) * (factor - 1.0)).sum();
        (call.total_s() + moved).max(0.0)
    };
    let (before, after) = (values(calls, FleetCall::total_s), values(calls, after));
    let at = |part: f64| [before.quantile(part), after.quantile(part)];
    [at(0.5), at(0.95), at(0.99), [before.mean(), after.mean()]]
}

/// How a figure differs between two fleets.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetDifference {
    /// Which figure.
    pub what: String,
    /// In the first, in seconds.
    pub before: f64,
    /// In the second.
    pub after: f64,
    /// Where 95 % of resamples have the second less the first.
    pub interval: [f64; 2],
}

impl FleetDifference {
    /// Whether chance alone does not explain it.
    pub fn is_real(&self) -> bool {
        self.interval[0] > 0.0 || self.interval[1] < 0.0
    }
}

/// Mean of every component, and mean, P50, P95 and P99 of completion time, between two fleets.
pub fn differences(before: &[&FleetCall], after: &[&FleetCall]) -> Vec<FleetDifference> {
    let mut found: Vec<_> = Component::ALL
        .into_iter()
        .map(|component| {
            let mean = |calls, draws| means(calls, draws, |call| call.part_s(component));
            difference(component.name(), mean(before, Draws::First), mean(after, Draws::Second))
        })
        .collect();
    let total = |calls, draws| means(calls, draws, FleetCall::total_s);
    let totals = (total(before, Draws::First), total(after, Draws::Second));
    found.push(difference("completion time, mean", totals.0, totals.1));
    for (name, part) in
        [("completion time, P50", 0.5), ("completion time, P95", 0.95), ("completion time, P99", 0.99)]
    {
        let of = |calls, draws| quantiles(calls, draws, part);
        found.push(difference(name, of(before, Draws::First), of(after, Draws::Second)));
    }
    found
}

/// The figure itself, then of each resample.
fn difference(what: &str, before: Vec<f64>, after: Vec<f64>) -> FleetDifference {
    let first = |figures: &[f64]| figures.first().copied().unwrap_or(f64::NAN);
    let resamples = before.iter().zip(&after).skip(1).map(|(before, after)| after - before).collect();
    FleetDifference {
        what: what.to_owned(),
        before: first(&before),
        after: first(&after),
        interval: interval_of(resamples),
    }
}

/// Which of two fleets is resampled. Each has draws of its own: with the same ones, which go by rank where values are
/// sorted, both resamples' percentiles would move together, and their difference would seem to be known exactly.
#[derive(Clone, Copy, Debug)]
enum Draws {
    First,
    Second,
}

impl Draws {
    fn count(self, resample: usize, index: usize) -> f64 {
        match self {
            Self::First => drawn(resample, index),
            Self::Second => drawn(RESAMPLES + resample, index),
        }
    }
}

fn means(calls: &[&FleetCall], draws: Draws, value: impl Fn(&FleetCall) -> f64) -> Vec<f64> {
    let mean = |count: &dyn Fn(usize) -> f64| {
        let sums = calls.iter().enumerate().fold((0.0, 0.0), |(sum, weight), (index, call)| {
            let counts = call.weight * count(index);
            (sum + value(call) * counts, weight + counts)
        });
        sums.0 / sums.1
    };
    let resamples = (0..RESAMPLES).map(|resample| mean(&|index| draws.count(resample, index)));
    std::iter::once(mean(&|_| 1.0)).chain(resamples).collect()
}

fn quantiles(calls: &[&FleetCall], draws: Draws, part: f64) -> Vec<f64> {
    let mut sorted: Vec<(f64, f64)> = calls.iter().map(|call| (call.total_s(), call.weight)).collect();
    sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let quantile = |count: &dyn Fn(usize) -> f64| {
        let whole: f64 = sorted.iter().enumerate().map(|(index, (_, weight))| weight * count(index)).sum();
        let mut left = part * whole;
        for (index, (value, weight)) in sorted.iter().enumerate() {
            left -= weight * count(index);
            if left <= whole * 1e-12 {
                return *value;
            }
        }
        sorted.last().map_or(f64::NAN, |(value, _)| *value)
    };
    let resamples = (0..RESAMPLES).map(|resample| quantile(&|index| draws.count(resample, index)));
    std::iter::once(quantile(&|_| 1.0)).chain(resamples).collect()
}

fn values(calls: &[&FleetCall], value: impl Fn(&FleetCall) -> f64) -> WeightedValues {
    WeightedValues::of(calls.iter().map(|call| (value(call), call.weight)).collect())
}

#[cfg(test)]
mod tests {
    //! Shows both what-if figures by hand, that the planted component moves them most, that weights count, and that a
    //! difference is told from chance.
    use super::*;
    use crate::block::tests::block;
    use crate::fleet::Fleet;
    use std::collections::BTreeMap;
    use trunkline_call::mix;

    /// Calls with the given parts in nanoseconds and weights.
    fn calls(parts: impl Iterator<Item = ([u64; 9], f32)>) -> Fleet {
        let parts: Vec<_> = parts.collect();
        let mut block = block("a", parts.len() as u64);
        for (call, (ns, weight)) in block.rows.iter_mut().zip(parts) {
            (call.row.components.ns, call.weight) = (ns, weight);
        }
        let mut fleet = Fleet::default();
        fleet.add(block);
        fleet
    }

    fn of(found: &[Effect], component: Component) -> Effect {
        *found.iter().find(|effect| effect.component == component).unwrap()
    }

    #[test]
    fn the_queue_makes_the_tail() {
        let one = |n: u64| ([if n.is_multiple_of(10) { 1_000 } else { 10 }, 0, 0, 0, 90, 0, 0, 0, 0], 1.0);
        let fleet = calls((0..20).map(one));
        let found = effects(&fleet.whole().collect::<Vec<_>>());
        let queue = of(&found, Component::ClientSendQueue);
        assert!((queue.p95_reduction - 100.0 * 990.0 / 1_090.0).abs() < 1e-9, "{queue:?}");
        assert_eq!(queue.tail_escape, 100.0);
        let application = of(&found, Component::ServerApplication);
        assert_eq!((application.p95_reduction, application.tail_escape), (0.0, 0.0));
        // Waiting is the median as soon as those who wait stand for more.
        let heavy = calls((0..20).map(|n| (one(n).0, if n % 10 == 0 { 100.0 } else { 1.0 })));
        assert_eq!(
            of(&effects(&heavy.whole().collect::<Vec<_>>()), Component::ClientSendQueue).tail_escape,
            0.0
        );
        assert_eq!(effects(&fleet.whole().take(19).collect::<Vec<_>>()), []);
    }

    #[test]
    fn a_planted_delay_is_found_in_its_component_and_within_its_interval() {
        for planted in Component::ALL {
            let one = |n: u64| {
                let mut ns: [u64; 9] = std::array::from_fn(|part| 10_000 + mix(n << 4 | part as u64) % 1_000);
                // One in sixteen waits: the tail is theirs.
                ns[planted as usize] += if mix(n << 8).is_multiple_of(16) { 400_000 } else { 0 };
                (ns, 1.0)
            };
            let fleet = calls((0..2_000).map(one));
            let found = effects(&fleet.whole().collect::<Vec<_>>());
            let most = found.iter().max_by(|a, b| a.p95_reduction.total_cmp(&b.p95_reduction)).unwrap();
            assert_eq!(most.component, planted);
            let [low, high] = most.p95_reduction_interval;
            assert!(low <= most.p95_reduction && most.p95_reduction <= high, "{most:?}");
            assert!(most.tail_escape > 95.0, "{most:?}");
        }
    }

    #[test]
    fn components_are_scaled() {
        let fleet = calls((0..20).map(|_| ([10, 0, 0, 0, 90, 0, 0, 0, 0], 1.0)));
        let found = scaled(&fleet.whole().collect::<Vec<_>>(), &[(Component::ServerApplication, 0.5)]);
        for [before, after] in found {
            assert!((before - 100e-9).abs() < 1e-15 && (after - 55e-9).abs() < 1e-15, "{found:?}");
        }
    }

    #[test]
    fn a_difference_is_told_from_chance() {
        let fleet = |seed: u64, more: u64| {
            calls((0..1_000).map(move |n| {
                let noise = |part: u64| 10_000 + mix(seed << 32 | n << 4 | part) % 4_000;
                ([noise(0), 0, noise(2) + more, 0, noise(4), 0, 0, 0, 0], 1.0)
            }))
        };
        let (before, slower) = (fleet(1, 0), fleet(3, 1_000));
        let whole = |fleet: &Fleet| fleet.whole().copied().collect::<Vec<_>>();
        let [before, slower] = [whole(&before), whole(&slower)];
        let differ = |a: &[FleetCall], b: &[FleetCall]| {
            differences(&a.iter().collect::<Vec<_>>(), &b.iter().collect::<Vec<_>>())
        };
        let real = |found: &[FleetDifference]| -> Vec<String> {
            found.iter().filter(|found| found.is_real()).map(|found| found.what.clone()).collect()
        };
        let found = differ(&before, &slower);
        assert!(real(&found).contains(&"request wire".to_owned()), "{found:?}");
        assert!(!real(&found).contains(&"server application".to_owned()), "{found:?}");
        let wire = found.iter().find(|found| found.what == "request wire").unwrap();
        assert!((wire.interval[0]..wire.interval[1]).contains(&1_000e-9), "{wire:?}");
    }

    #[test]
    fn chance_is_taken_for_a_difference_as_rarely_as_promised() {
        // Of 20 pairs one each is expected, and more than four once in four hundred.
        let fleet = |seed: u64| {
            let wire = |n: u64| (mix(seed << 32 | n) % 4_000).pow(2) / 1_000;
            calls((0..200).map(|n| ([0, 0, wire(n), 0, 0, 0, 0, 0, 0], 1.0)))
        };
        let mut real: BTreeMap<String, u32> = BTreeMap::new();
        for pair in 0..20 {
            let (before, after) = (fleet(2 * pair), fleet(2 * pair + 1));
            let [before, after] = [&before, &after].map(|fleet| fleet.whole().collect::<Vec<_>>());
            for found in differences(&before, &after) {
                *real.entry(found.what.clone()).or_default() += u32::from(found.is_real());
            }
        }
        assert!(real.len() == 13 && real.values().all(|taken| *taken <= 4), "of 20 pairs: {real:?}");
    }
}
