//! Rounds into figures: medians over rounds, with the least and the most.

use serde::Serialize;
use std::fmt;

/// A figure over rounds. Ordered: `least <= median <= most`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// Of one value per round; `None` without rounds.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(lower, upper), least, most })
    }

    /// Of two figures' ratio, round by round: what was measured within the same seconds is compared.
    pub fn of_ratio(of: &[f64], to: &[f64]) -> Option<Self> {
        Self::of(of.iter().zip(to).map(|(of, to)| of / to))
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}–{})", short(self.median), short(self.least), short(self.most))
    }
}

/// As a cell of a table has it: a figure that was taken once has no least and no most.
pub fn cell(values: &[f64]) -> String {
    match (values, Spread::of(values.iter().copied())) {
        (_, None) => String::new(),
        ([once], _) => short(*once),
        (_, Some(spread)) => spread.to_string(),
    }
}

/// Microseconds.
pub fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Three digits that matter.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => grouped(value.round()),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    //! Medians of odd and even counts, ratios by round, and numbers as people read them.
    use super::*;

    #[test]
    fn spreads() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        // A round in which the machine was slow for both does not spread the ratio.
        let ratio = Spread::of_ratio(&[2.0, 20.0, 4.0], &[1.0, 10.0, 2.0]);
        assert_eq!(ratio, Some(Spread { median: 2.0, least: 2.0, most: 2.0 }));
    }

    #[test]
    fn numbers() {
        let cases = [
            (0.0, "0"),
            (0.0123, "0.0123"),
            (0.5, "0.50"),
            (12.34, "12.3"),
            (1_234_567.8, "1,234,568"),
            (999.4, "999"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }
}
