//! Published distributions between the points that were published.

use crate::published::PublishedGrid;
use trunkline_call::mix;

/// Numbers from 0 in an order that follows from a seed.
pub(crate) fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|at| mix(seed ^ (*at as u64) << 1));
    order
}

/// The part of a method's calls that are no slower, or larger, than that at `rank`: the percentiles of the drawn calls
/// are then those that were published, and not nearly.
pub(crate) fn part_at(rank: usize, count: usize) -> f64 {
    ((rank + 1) as f64 / count as f64).min(PART_MAX)
}

/// Beyond it nothing was published, and no call is much slower or larger.
const PART_MAX: f64 = 0.995;

/// A distribution of which some percentiles are known: between and beyond them it is as if logarithms were normal
/// there.
#[derive(Clone, Debug)]
pub(crate) struct PartCurve {
    /// Quantiles of the normal distribution with logarithms, ascending.
    points: Vec<(f64, f64)>,
    shift: f64,
}

impl PartCurve {
    /// Of values at some parts. `shift` is added before logarithms are taken: 1 where zero is a value.
    pub fn of(points: &[(f64, f64)], shift: f64) -> Self {
        let point = |(part, value): &(f64, f64)| (normal_quantile(*part), (value + shift).max(1e-12).ln());
        Self { points: points.iter().map(point).collect(), shift }
    }

    /// Of a method's calls, as a published grid has them at this percentile of methods.
    pub fn of_grid(grid: &PublishedGrid, percent: f64, shift: f64) -> Self {
        let rows = grid.rows();
        let points: Vec<_> =
            rows.map(|(part, row)| (part, along(&grid.methods, row, percent, shift, part))).collect();
        Self::of(&points, shift)
    }

    /// The value that so large a part does not exceed.
    pub fn at(&self, part: f64) -> f64 {
        let points = &self.points;
        let Some(last) = points.len().checked_sub(1).filter(|last| *last > 0) else {
            return points.first().map_or(0.0, |(_, log)| log.exp() - self.shift);
        };
        let z = normal_quantile(part);
        let right = points.iter().position(|(at, _)| *at >= z).unwrap_or(last).clamp(1, last);
        let ((from, left), (to, right)) = (points[right - 1], points[right]);
        ((left + (right - left) * (z - from) / (to - from)).exp() - self.shift).max(0.0)
    }
}

/// A row of a grid between its columns. Left of the first, values of counts fall to zero.
fn along(methods: &[f64], row: &[f64], percent: f64, shift: f64, part: f64) -> f64 {
    let log = |value: f64| (value + shift).ln();
    let (first, last) = (methods[0], methods[methods.len() - 1]);
    if percent < first && shift > 0.0 {
        // Of calls below: a fifth of the methods have a median of none, an eighth none at all (Figure 4b).
        let none = first * if part <= 0.5 { 0.73 } else { 0.43 };
        return row[0] * ((percent - none) / (first - none)).clamp(0.0, 1.0);
    }
    if percent <= first || percent >= last {
        return if percent <= first { row[0] } else { row[row.len() - 1] };
    }
    let right = methods.iter().position(|at| *at >= percent).unwrap_or(methods.len() - 1);
    let t = (percent - methods[right - 1]) / (methods[right] - methods[right - 1]);
    (log(row[right - 1]) + (log(row[right]) - log(row[right - 1])) * t).exp() - shift
}

/// A curve over percentiles of methods between its points, by logarithms; level beyond its ends.
pub(crate) fn along_percent(points: &[(f64, f64)], percent: f64) -> f64 {
    let right = points.iter().position(|(at, _)| *at >= percent).unwrap_or(points.len());
    if right == 0 || right == points.len() {
        return points[right.min(points.len() - 1)].1;
    }
    let ((from, low), (to, high)) = (points[right - 1], points[right]);
    (low.ln() + (high.ln() - low.ln()) * (percent - from) / (to - from)).exp()
}

/// Where a function that rises comes to a value, between two bounds; the nearer bound if it does not.
pub(crate) fn solve(mut low: f64, mut high: f64, wanted: f64, rising: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..SOLVE_STEPS {
        let middle = f64::midpoint(low, high);
        if rising(middle) < wanted { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// Halvings of an interval: a thousand millionth of it is left.
const SOLVE_STEPS: usize = 30;

/// The quantile of the normal distribution: Newton's steps on an expansion of its integral are exact enough, and
/// nothing has to be looked up.
pub(crate) fn normal_quantile(part: f64) -> f64 {
    let part = part.clamp(1e-6, 1.0 - 1e-6);
    // Near enough that few steps are left (Abramowitz and Stegun, 26.2.22).
    let t = (-2.0 * part.min(1.0 - part).ln()).sqrt();
    let near = t - (2.30753 + 0.27061 * t) / (1.0 + t * (0.99229 + 0.04481 * t));
    let mut z = if part < 0.5 { -near } else { near };
    for _ in 0..60 {
        let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let step = (normal_part(z) - part) / density;
        z -= step.clamp(-0.5, 0.5);
        if step.abs() < 1e-10 {
            break;
        }
    }
    z
}

/// The part of a normal distribution below `z`: a series that converges everywhere.
fn normal_part(z: f64) -> f64 {
    let (mut term, mut sum) = (z, z);
    let mut n = 1.0;
    while term.abs() > 1e-16 && n < 200.0 {
        term *= z * z / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    0.5 + sum * (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

#[cfg(test)]
mod tests {
    //! Shows quantiles of the normal distribution, which everything between points is drawn with.
    use super::*;

    #[test]
    fn a_row_alone_is_its_own_distribution() {
        let at = |points: &[(f64, f64)]| PartCurve::of(points, 1.0).at(0.9);
        assert!((at(&[(0.5, 3.0)]) - 3.0).abs() < 1e-9 && at(&[]) == 0.0);
    }

    #[test]
    fn a_rising_function_is_solved_within_its_bounds() {
        assert!((solve(0.0, 10.0, 49.0, |x| x * x) - 7.0).abs() < 1e-6);
        assert!(solve(0.0, 2.0, 49.0, |x| x * x) > 2.0 - 1e-6);
    }

    #[test]
    fn quantiles_of_the_normal_distribution() {
        for (part, z) in [(0.5, 0.0), (0.975, 1.959_964), (0.01, -2.326_348), (0.999, 3.090_232)] {
            assert!((normal_quantile(part) - z).abs() < 1e-5, "{part}");
        }
    }
}
