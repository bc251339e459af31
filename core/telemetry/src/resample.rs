//! How far the what-if figures could be off: the same figures of resamples (the bootstrap).
//!
//! A resample draws as many calls as there are, each any number of times. Only the tail of one is looked at, so a
//! figure of a resample costs a twentieth of a walk. The draws are the same each time, so that one question has one
//! answer.

use crate::component::Component;
use crate::quantile::{percent, quantile};
use crate::snapshot::Sample;
use serde::{Deserialize, Serialize};

/// Resamples behind an interval. Its ends are the 5th from either side: 95 % lie between them.
const RESAMPLES: usize = 200;
const CUT: usize = RESAMPLES / 40;

/// Ends of two intervals, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// Of [`WhatIf::p95_reduction_percent`](crate::WhatIf).
    pub p95_reduction_percent: [f64; 2],
    /// Of [`WhatIf::tail_escape_percent`](crate::WhatIf).
    pub tail_escape_percent: [f64; 2],
}

/// Resamples of some calls.
pub(crate) struct Resamples<'s> {
    calls: &'s [&'s Sample],
    /// Completion times with the calls' numbers, longest first.
    totals: Vec<(u64, usize)>,
    /// By resample: how often each call was drawn.
    drawn: Vec<Vec<u8>>,
    /// By resample: its weight and its 95th percentile.
    tails: Vec<(u64, u64)>,
}

impl<'s> Resamples<'s> {
    pub fn of(calls: &'s [&'s Sample]) -> Self {
        let totals = longest_first(calls.iter().map(|call| call.total_ns()));
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let drawn: Vec<Vec<u8>> = (0..RESAMPLES).map(|_| draw(calls.len(), &mut state)).collect();
        let mut resamples = Self { calls, totals, drawn, tails: Vec::new() };
        let tails = resamples.drawn.iter().map(|drawn| {
            let weight = (0..calls.len()).map(|n| resamples.weight(drawn, n)).fold(0, u64::saturating_add);
            (weight, resamples.p95(&resamples.totals, drawn, weight))
        });
        resamples.tails = tails.collect();
        resamples
    }

    /// Where the two figures of a component lie.
    pub fn intervals(&mut self, component: Component) -> Intervals {
        let part = |call: &Sample| call.ns[component as usize];
        let median = quantile(self.calls.iter().map(|call| (part(call), call.weight)).collect(), 0.5);
        let rest = |call: &Sample| call.total_ns() - part(call);
        let capped =
            longest_first(self.calls.iter().map(|call| rest(call).saturating_add(part(call).min(median))));
        let mut reductions = Vec::with_capacity(RESAMPLES);
        let mut escapes = Vec::with_capacity(RESAMPLES);
        for (drawn, (weight, p95)) in self.drawn.iter().zip(&self.tails) {
            let reduced = self.p95(&capped, drawn, *weight);
            reductions.push(percent(p95.saturating_sub(reduced), *p95));
            let (mut tail, mut escaped) = (0u64, 0u64);
            for (_, n) in self.totals.iter().take_while(|(total, _)| total >= p95) {
                let weight = self.weight(drawn, *n);
                tail = tail.saturating_add(weight);
                if rest(self.calls[*n]).saturating_add(median) < *p95 {
                    escaped = escaped.saturating_add(weight);
                }
            }
            escapes.push(percent(escaped, tail));
        }
        Intervals { p95_reduction_percent: ends(reductions), tail_escape_percent: ends(escapes) }
    }

    fn weight(&self, drawn: &[u8], call: usize) -> u64 {
        self.calls[call].weight.saturating_mul(drawn[call].into())
    }

    /// The smallest value that at least 95 % of the weight does not exceed.
    fn p95(&self, longest_first: &[(u64, usize)], drawn: &[u8], weight: u64) -> u64 {
        let rank = (0.95 * weight as f64).ceil() as u64;
        let mut below = weight;
        for (value, call) in longest_first {
            below = below.saturating_sub(self.weight(drawn, *call));
            if below < rank {
                return *value;
            }
        }
        0
    }
}

fn longest_first(values: impl Iterator<Item = u64>) -> Vec<(u64, usize)> {
    let mut values: Vec<(u64, usize)> = values.enumerate().map(|(n, value)| (value, n)).collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values
}

/// How often each of `count` calls is drawn in `count` draws (xorshift64*, Vigna 2016).
fn draw(count: usize, state: &mut u64) -> Vec<u8> {
    let mut drawn = vec![0u8; count];
    for _ in 0..count {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
        let call = ((u128::from(random) * count as u128) >> 64) as usize;
        drawn[call] = drawn[call].saturating_add(1);
    }
    drawn
}

fn ends(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_unstable_by(f64::total_cmp);
    [values[CUT - 1], values[RESAMPLES - CUT]]
}
