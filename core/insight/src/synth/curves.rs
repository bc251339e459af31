//! Published distributions between the points that were published.

use crate::published::PublishedGrid;
use trunkline_call::mix;

/// Numbers from 0 in an order that follows from a seed.
pub(crate) fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|at| mix(seed ^ (*at as u64) << 1));
    order
}

/// Sizes of a method's requests beside their median, as Figure 6 has them at half of the methods.
pub(crate) fn size_factor(part: f64) -> f64 {
    let points =
        [(0.01, 0.125), (0.1, 0.4), (0.5, 1.0), (0.9, 11_800.0 / 1530.0), (0.99, 196_000.0 / 1530.0)];
    between(&points, part, 0.0)
}

/// A published grid at a percentile of methods and a part of a method's calls. `shift` is added before logarithms are
/// taken: 1 where zero is a value.
pub(crate) fn grid_value(grid: &PublishedGrid, percent: f64, part: f64, shift: f64) -> f64 {
    let mut points = Vec::with_capacity(5);
    for (row_part, row) in grid.rows() {
        points.push((row_part, along(&grid.methods, row, percent, shift, row_part)));
    }
    between(&points, part, shift)
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

/// Values at some parts of a distribution, and between and beyond them as if their logarithms were normal there.
pub(crate) fn between(points: &[(f64, f64)], part: f64, shift: f64) -> f64 {
    let log = |value: f64| (value + shift).max(1e-12).ln();
    let z = normal_quantile(part);
    let place = points.iter().position(|(at, _)| *at >= part).unwrap_or(points.len());
    let right = place.clamp(1, points.len() - 1);
    let ((left_part, left), (right_part, right)) = (points[right - 1], points[right]);
    let (from, to) = (normal_quantile(left_part), normal_quantile(right_part));
    let value = log(left) + (log(right) - log(left)) * (z - from) / (to - from);
    (value.exp() - shift).max(0.0)
}

/// The quantile of the normal distribution: Newton's steps on an expansion of its integral are exact enough, and
/// nothing has to be looked up.
pub(crate) fn normal_quantile(part: f64) -> f64 {
    let part = part.clamp(1e-6, 1.0 - 1e-6);
    let mut z = 0.0_f64;
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
    fn quantiles_of_the_normal_distribution() {
        for (part, z) in [(0.5, 0.0), (0.975, 1.959_964), (0.01, -2.326_348), (0.999, 3.090_232)] {
            assert!((normal_quantile(part) - z).abs() < 1e-5, "{part}");
        }
    }
}
