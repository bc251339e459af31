//! Percentiles of weighted values, and shares.

/// The smallest value that at least `share` of the weight does not exceed.
pub(crate) fn quantile(mut values: Vec<(u64, u64)>, share: f64) -> u64 {
    values.sort_unstable();
    let whole = values.iter().fold(0, |sum: u64, (_, weight)| sum.saturating_add(*weight));
    let rank = ((share * whole as f64).ceil() as u64).max(1);
    let mut below = 0;
    let reached = values.iter().find(|(_, weight)| {
        below = weight.saturating_add(below);
        below >= rank
    });
    reached.map_or(0, |(value, _)| *value)
}

pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}
