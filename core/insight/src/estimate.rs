//! Estimators for calls that were kept with different probabilities: every one uses the weights.

use trunkline_call::mix;

/// Values in order, each with the number of calls it stands for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightedValues {
    /// Ascending.
    values: Vec<(f64, f64)>,
    total: f64,
    squares: f64,
}

/// Resamples behind an interval.
pub const RESAMPLES: usize = 200;
/// Of [`RESAMPLES`], so many lie outside of an interval at each of its ends: 95 % are within.
const OUTSIDE: usize = 5;
/// 95 % of a normal distribution lie within so many standard deviations.
const DEVIATIONS: f64 = 1.96;

impl WeightedValues {
    /// Of values and weights; what is not finite is left out.
    pub fn of(mut values: Vec<(f64, f64)>) -> Self {
        values.retain(|(value, weight)| value.is_finite() && weight.is_finite() && *weight > 0.0);
        values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let total = values.iter().map(|(_, weight)| weight).sum();
        let squares = values.iter().map(|(_, weight)| weight * weight).sum();
        Self { values, total, squares }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Calls they stand for.
    pub fn weight(&self) -> f64 {
        self.total
    }

    /// So many values of one weight would say as much (Kish).
    pub fn effective(&self) -> f64 {
        if self.squares > 0.0 { self.total * self.total / self.squares } else { 0.0 }
    }

    /// The mean; NaN of nothing.
    pub fn mean(&self) -> f64 {
        self.values.iter().map(|(value, weight)| value * weight).sum::<f64>() / self.total
    }

    /// The least value that so large a part of the calls does not exceed; NaN of nothing.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut left = part.clamp(0.0, 1.0) * self.total;
        for (value, weight) in &self.values {
            left -= weight;
            // The sum of many weights is not exact.
            if left <= self.total * 1e-12 {
                return *value;
            }
        }
        self.values.last().map_or(f64::NAN, |(value, _)| *value)
    }

    /// Where the quantile lies with a probability of 95 %, whatever the distribution: the values whose ranks are as far
    /// to either side as ranks of so many calls scatter.
    pub fn interval(&self, part: f64) -> [f64; 2] {
        let spread = DEVIATIONS * (part * (1.0 - part) / self.effective().max(1.0)).sqrt();
        [self.quantile(part - spread), self.quantile(part + spread)]
    }

    /// The part of the calls that have at most this value.
    pub fn part_at_most(&self, value: f64) -> f64 {
        let at_most = self.values.iter().take_while(|(other, _)| *other <= value);
        at_most.map(|(_, weight)| weight).sum::<f64>() / self.total
    }
}

/// How often a resample of the bootstrap draws the value at `index`: a Poisson number with mean one. The same each
/// time, so that one question has one answer.
pub fn drawn(resample: usize, index: usize) -> f64 {
    let uniform = (mix((resample as u64) << 40 ^ index as u64) >> 11) as f64 / (1_u64 << 53) as f64;
    let (mut count, mut probability) = (0.0, (-1.0_f64).exp());
    let mut sum = probability;
    while uniform > sum && count < 12.0 {
        count += 1.0;
        probability /= count;
        sum += probability;
    }
    count
}

/// Where 95 % of the resamples have a figure.
pub fn interval_of(mut figures: Vec<f64>) -> [f64; 2] {
    figures.retain(|figure| !figure.is_nan());
    figures.sort_unstable_by(f64::total_cmp);
    let outside = figures.len() * OUTSIDE / RESAMPLES;
    match (figures.get(outside), figures.get(figures.len().saturating_sub(1 + outside))) {
        (Some(low), Some(high)) => [*low, *high],
        _ => [f64::NAN, f64::NAN],
    }
}

/// How two lists of the same things agree in order, from −1 to 1 (Spearman, ties in the middle); `None` of fewer than
/// three.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let xs = ranks(pairs.iter().map(|pair| pair.0).collect());
    let ys = ranks(pairs.iter().map(|pair| pair.1).collect());
    let mean = (pairs.len() as f64 - 1.0) / 2.0;
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let scale = (sum(&xs, &xs) * sum(&ys, &ys)).sqrt();
    (scale > 0.0).then(|| sum(&xs, &ys) / scale)
}

fn ranks(values: Vec<f64>) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut at = 0;
    while at < order.len() {
        let ties = order[at..].iter().take_while(|index| values[**index] == values[order[at]]).count();
        let middle = at as f64 + (ties as f64 - 1.0) / 2.0;
        order[at..at + ties].iter().for_each(|index| ranks[*index] = middle);
        at += ties;
    }
    ranks
}

#[cfg(test)]
mod tests {
    //! Shows that weights count, that intervals hold what they promise in simulation, and rank correlation by hand.
    use super::*;

    #[test]
    fn a_weight_is_so_many_values() {
        let light = WeightedValues::of(vec![(3.0, 1.0), (1.0, 4.0), (f64::NAN, 1.0)]);
        let heavy = WeightedValues::of(vec![(1.0, 1.0), (1.0, 1.0), (3.0, 1.0), (1.0, 1.0), (1.0, 1.0)]);
        for part in [0.0, 0.5, 0.79, 0.8, 0.81, 1.0] {
            assert_eq!(light.quantile(part), heavy.quantile(part), "{part}");
        }
        assert_eq!((light.quantile(0.8), light.quantile(0.81)), (1.0, 3.0));
        assert_eq!((light.mean(), heavy.mean()), (1.4, 1.4));
        assert_eq!((light.part_at_most(1.0), light.effective()), (0.8, 25.0 / 17.0));
        assert!(WeightedValues::default().quantile(0.5).is_nan());
    }

    /// Values from 0 to 1, kept with a probability that falls with the value, with the weight that belongs to it.
    fn kept(seed: u64) -> WeightedValues {
        let uniform = |n: u64| (mix(n) >> 11) as f64 / (1_u64 << 53) as f64;
        let calls = (0..4_000).filter_map(|n| {
            let value = uniform(seed << 32 | n);
            let probability = if value > 0.9 { 1.0 } else { 0.125 };
            (uniform(seed << 32 | 1 << 31 | n) < probability).then_some((value, 1.0 / probability))
        });
        WeightedValues::of(calls.collect())
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        for part in [0.5, 0.95] {
            let held = (0..400).filter(|seed| {
                let [low, high] = kept(*seed).interval(part);
                (low..=high).contains(&part)
            });
            let held = held.count();
            assert!(held >= 370, "P{part} lies within in {held} of 400");
        }
    }

    #[test]
    fn resamples_have_the_mean_of_the_sample() {
        let sum: f64 = (0..100).flat_map(|resample| (0..100).map(move |index| drawn(resample, index))).sum();
        assert!((sum - 10_000.0).abs() < 300.0, "{sum}");
        assert_eq!(interval_of((0..200).map(f64::from).collect()), [5.0, 194.0]);
        assert!(interval_of(Vec::new())[0].is_nan());
    }

    #[test]
    fn order_is_what_correlates() {
        let pairs = |ys: [f64; 4]| ys.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect::<Vec<_>>();
        assert_eq!(rank_correlation(&pairs([1.0, 10.0, 100.0, 1e9])), Some(1.0));
        assert_eq!(rank_correlation(&pairs([4.0, 3.0, 2.0, 1.0])), Some(-1.0));
        assert_eq!(rank_correlation(&pairs([1.0; 4])), None);
        assert_eq!(rank_correlation(&[(1.0, 1.0)]), None);
    }
}
