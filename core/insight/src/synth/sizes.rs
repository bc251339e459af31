//! Sizes of a generated fleet's messages: each call's ratio is as published, and its request follows from its answer.
//!
//! Half of a method's answers are small, whatever the request; the largest answers belong to the largest ratios. The
//! least ratios belong to the largest requests: no answer is smaller than the smallest message.

use super::curves::{PartCurve, normal_quantile, part_at};
use crate::published::Published;

/// No message is smaller.
const BYTES_MIN: f64 = 64.0;
/// As the sizes are in Figure 6: percentiles at the middle of methods.
const ANSWER_PARTS: [f64; 3] = [0.5, 0.9, 0.99];
/// With the ratios below and above the middle of methods, answers grow by such a power, at each of these parts: few
/// methods have messages of more than a mebibyte.
const BELOW_POWERS: [f64; 2] = [0.5, 0.6];
const ABOVE_POWERS: [f64; 3] = [1.0, 0.4, 0.06];
/// The power by which the largest requests fall with the ratio.
const LARGE_POWER: f64 = 0.3;
/// Answers fall a little faster than ratios below the median: then so do requests.
const SMALL_POWER: f64 = 1.2;
/// Answers beside the published ones, at [`ANSWER_PARTS`]. The median is smaller, since the median request follows from
/// it and the ratio; beyond it requests in the middle of methods are not all of the calls with the largest answers.
const ANSWER_TIMES: [f64; 3] = [0.93, 1.07, 1.05];
/// Services with small messages are among the tenth of methods with the smallest.
const LOW_ANSWER_TIMES: f64 = 1.1;

/// What the sizes of a method's calls follow from.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizePlan {
    /// Ratios at the first hundredth, the middle, nine tenths and the last hundredth.
    ratio: [f64; 4],
    /// Answers at [`ANSWER_PARTS`].
    answer: [f64; 3],
    /// The request that a hundredth exceed.
    large: f64,
}

impl SizePlan {
    /// Of a method at this percentile of methods by ratio.
    pub fn of(published: &Published, percent: f64) -> Self {
        let wanted = |name: &str, or: f64| published.target.get(name).map_or(or, |target| target.wanted);
        let ratio_at = |percent: f64| {
            let curve = PartCurve::of_grid(&published.ratio, percent, 0.0);
            [0.01, 0.5, 0.9, 0.99].map(|part| curve.at(part))
        };
        let (ratio, middle, tenth) = (ratio_at(percent), ratio_at(50.0), ratio_at(10.0));
        let answers = [
            ANSWER_TIMES[0] * wanted("response_p50_at_50_percent", 315.0),
            ANSWER_TIMES[1] * wanted("response_p90_at_50_percent", 10_000.0),
            ANSWER_TIMES[2] * wanted("response_p99_at_50_percent", 563_000.0),
        ];
        let low = LOW_ANSWER_TIMES * wanted("response_p50_at_10_percent", 188.0);
        let low_power = ((low / answers[0]).ln() / (tenth[1] / middle[1]).ln()).clamp(0.0, 1.0);
        let powers = match percent < 50.0 {
            true => [if low_power.is_nan() { 0.0 } else { low_power }, BELOW_POWERS[0], BELOW_POWERS[1]],
            false => ABOVE_POWERS,
        };
        let grown = |at: usize| answers[at] * (ratio[at + 1] / middle[at + 1]).powf(powers[at]);
        let large =
            wanted("request_p99_at_50_percent", 196_000.0) * (ratio[1] / middle[1]).powf(-LARGE_POWER);
        Self { ratio, answer: [0, 1, 2].map(grown), large: large.max(1.1 * BYTES_MIN / ratio[0]) }
    }

    /// Answer and ratio of each of so many calls, the least ratio first.
    pub fn calls(&self, count: usize) -> Vec<SizedCall> {
        // A percentile lies at the last call of a hundredth.
        let large = (count / 100 + 1).min(count);
        let call = |rank: usize| {
            let part = part_at(rank, count);
            let ratio = self.ratio(part);
            SizedCall { ratio, answer: if rank < large { self.large * ratio } else { self.answer(part) } }
        };
        (0..count).map(call).collect()
    }

    /// The published ratios, and between the first two of them most near the median.
    fn ratio(&self, part: f64) -> f64 {
        let [least, median, ..] = self.ratio;
        let [first, middle] = [0.01, 0.5].map(normal_quantile);
        let down = ((middle - normal_quantile(part)) / (middle - first)).clamp(0.0, 1.0);
        match part < 0.5 {
            true => median * (least / median).powf(down * down),
            false => self.upper(&self.ratio[1..], part, 1.0, 1.0),
        }
    }

    fn answer(&self, part: f64) -> f64 {
        match part < 0.5 {
            true => self.answer[0] * (self.ratio(part) / self.ratio[1]).powf(SMALL_POWER),
            false => self.upper(&self.answer, part, 1.5, 2.0),
        }
    }

    /// Between values at [`ANSWER_PARTS`], in logarithms that bend so much between the first two and the last two.
    fn upper(&self, values: &[f64], part: f64, first: f64, second: f64) -> f64 {
        let z = normal_quantile(part);
        let at = ANSWER_PARTS.map(normal_quantile);
        let (from, bend) = if part < ANSWER_PARTS[1] { (0, first) } else { (1, second) };
        let along = ((z - at[from]) / (at[from + 1] - at[from])).clamp(0.0, 1.0);
        values[from] * (values[from + 1] / values[from]).powf(along.powf(bend))
    }
}

/// Sizes of a call's messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizedCall {
    answer: f64,
    ratio: f64,
}

impl SizedCall {
    /// Bytes of request and answer, both so many times as large: the smaller is rounded, and the other follows, so that
    /// their ratio stays.
    pub fn bytes(&self, times: f64) -> [u32; 2] {
        let Self { answer, ratio } = *self;
        if ratio < 1.0 {
            let answer = (answer * times).max(BYTES_MIN).round();
            [(answer / ratio).round() as u32, answer as u32]
        } else {
            let request = (answer * times / ratio).max(BYTES_MIN).round();
            [request as u32, (request * ratio).round() as u32]
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that every method has its published ratios whatever its sizes, and no message below the smallest.
    use super::*;

    const STUDY: &str = include_str!("../../../../tools/insight/data/fleet.toml");

    #[test]
    fn ratios_are_those_published_whatever_the_sizes() {
        let published = Published::parse(STUDY).unwrap();
        for percent in [0.2, 5.0, 20.0, 50.0, 70.0, 90.0, 99.9] {
            let plan = SizePlan::of(&published, percent);
            for times in [0.01, 1.0, 7.0] {
                let sizes: Vec<[u32; 2]> = plan.calls(400).iter().map(|call| call.bytes(times)).collect();
                let mut ratios: Vec<f64> = sizes.iter().map(|[q, a]| f64::from(*a) / f64::from(*q)).collect();
                ratios.sort_unstable_by(f64::total_cmp);
                for (part, wanted) in [0.01, 0.5, 0.9, 0.99].into_iter().zip(plan.ratio) {
                    let got = ratios[(400.0 * part) as usize - 1];
                    assert!(
                        (got / wanted - 1.0).abs() < 0.02,
                        "{percent} {times} P{part}: {got} for {wanted}"
                    );
                }
                assert!(sizes.iter().flatten().all(|bytes| *bytes >= 64), "{percent}");
            }
        }
    }
}
