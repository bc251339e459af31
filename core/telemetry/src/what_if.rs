//! What if one component were never worse than its median? (seed 004, Figure 15)

use crate::component::{Component, Coverage};
use crate::quantile::{percent, quantile};
use crate::record::Side;
use crate::resample::{Intervals, Resamples};
use crate::snapshot::Sample;
use serde::{Deserialize, Serialize};

/// Fewer calls than this have no 95th percentile to speak of.
pub const CALLS_MIN: usize = 20;
/// With fewer calls at or above the 95th percentile, the figures have an interval: of a share of 400 calls it would be
/// ±5 points at most.
pub const TAIL_CALLS_MIN: usize = 400;

/// What capping one component would do to the tail, by both readings of the study's figure.
///
/// The two disagree on purpose: the first says how far the 95th percentile would move, the second how many of the calls
/// that make the tail owe it to this component alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// The component that is changed.
    pub component: Component,
    /// 100·(P95(T) − P95(T′)) / P95(T), with this component capped at its median in T′. Reproduces the printed matrix.
    pub p95_reduction_percent: f64,
    /// The share of calls at or above P95(T) that fall below it when this component is set to its median, in percent.
    pub tail_escape_percent: f64,
    /// Where 95 % of resamples have the reduction and the escape; `None` if the tail has [`TAIL_CALLS_MIN`] calls.
    pub intervals: Option<Intervals>,
}

/// Both figures for every component, from calls that ended well and were measured whole on that side; empty if there
/// are fewer than twenty.
pub fn what_if(samples: &[Sample], side: Side) -> Vec<WhatIf> {
    let calls = whole_calls(samples, side);
    if calls.len() < CALLS_MIN {
        return Vec::new();
    }
    let p95 = p95_of(&calls);
    let mut found: Vec<WhatIf> =
        Component::ALL.into_iter().map(|component| one(&calls, component, p95)).collect();
    if calls.iter().filter(|call| call.total_ns() >= p95).count() < TAIL_CALLS_MIN {
        let mut resamples = Resamples::of(&calls);
        for what_if in &mut found {
            what_if.intervals = Some(resamples.intervals(what_if.component));
        }
    }
    found
}

/// How many of the calls that [`what_if`] rests on are at or above their 95th percentile.
pub fn tail_calls(samples: &[Sample], side: Side) -> u64 {
    let calls = whole_calls(samples, side);
    let p95 = p95_of(&calls);
    calls.iter().filter(|call| call.total_ns() >= p95).count() as u64
}

/// The calls of a side that ended well and were measured whole.
pub(crate) fn whole_calls(samples: &[Sample], side: Side) -> Vec<&Sample> {
    let is_measured = |coverage: Coverage| match side {
        Side::Served => coverage == Coverage::ServerOnly,
        Side::Made | Side::Attempt => coverage.is_whole(),
    };
    let wanted = |sample: &&Sample| (sample.side, sample.code) == (side, 0) && is_measured(sample.coverage);
    samples.iter().filter(wanted).collect()
}

fn p95_of(calls: &[&Sample]) -> u64 {
    quantile(calls.iter().map(|call| (call.total_ns(), call.weight)).collect(), 0.95)
}

fn one(calls: &[&Sample], component: Component, p95: u64) -> WhatIf {
    let part = |call: &Sample| call.ns[component as usize];
    let median = quantile(calls.iter().map(|call| (part(call), call.weight)).collect(), 0.5);
    let rest = |call: &Sample| call.total_ns() - part(call);
    let capped = calls.iter().map(|call| (rest(call).saturating_add(part(call).min(median)), call.weight));
    let reduced = quantile(capped.collect(), 0.95);
    let tail = || calls.iter().filter(|call| call.total_ns() >= p95);
    let escaped = tail().filter(|call| rest(call).saturating_add(median) < p95);
    WhatIf {
        component,
        p95_reduction_percent: percent(p95.saturating_sub(reduced), p95),
        tail_escape_percent: percent(weigh(escaped), weigh(tail())),
        intervals: None,
    }
}

fn weigh<'a>(calls: impl Iterator<Item = &'a &'a Sample>) -> u64 {
    calls.fold(0, |sum, call| sum.saturating_add(call.weight))
}

#[cfg(test)]
mod tests {
    //! Shows both figures by hand, and that weights count.
    use super::*;

    /// Nine calls of 100 with 10 in the queue, and one of 1090 that waited 1000.
    fn samples(weight: u64) -> Vec<Sample> {
        let sample = |queue: u64, weight: u64| Sample {
            at_ns: 0,
            side: Side::Made,
            method: String::new(),
            peer: String::new(),
            code: 0,
            weight,
            ns: [queue, 0, 0, 0, 90, 0, 0, 0, 0],
            coverage: Coverage::Whole,
            stand_ins: Vec::new(),
            clipped: false,
            request_bytes: 0,
            response_bytes: 0,
        };
        (0..20).map(|n| if n % 10 == 0 { sample(1_000, weight) } else { sample(10, 1) }).collect()
    }

    fn of(found: &[WhatIf], component: Component) -> (f64, f64) {
        let found = found.iter().find(|what_if| what_if.component == component).unwrap();
        (found.p95_reduction_percent, found.tail_escape_percent)
    }

    #[test]
    fn the_queue_makes_the_tail() {
        let found = what_if(&samples(1), Side::Made);
        let (reduction, escape) = of(&found, Component::ClientSendQueue);
        assert!((reduction - 100.0 * 990.0 / 1_090.0).abs() < 1e-9);
        assert_eq!(escape, 100.0);
        assert_eq!(of(&found, Component::ServerApplication), (0.0, 0.0));
    }

    #[test]
    fn weights_move_the_percentile() {
        assert_eq!(quantile(vec![(5, 1), (1, 99)], 0.5), 1);
        assert_eq!(quantile(vec![(5, 99), (1, 1)], 0.5), 5);
        let heavy = what_if(&samples(100), Side::Made);
        assert_eq!(of(&heavy, Component::ClientSendQueue), (0.0, 0.0), "waiting is the median now");
    }

    #[test]
    fn few_calls_have_no_tail() {
        assert_eq!(what_if(&samples(1)[..CALLS_MIN - 1], Side::Made), []);
        assert_eq!(what_if(&samples(1), Side::Served), []);
    }
}
