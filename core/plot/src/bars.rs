//! Bars beside names, with whiskers where a number has an interval.

use crate::axis::Axis;
use crate::page::{COLOURS, cut, open, text};
use std::fmt::Write;

/// Bars from zero to the right.
#[derive(Clone, Debug)]
pub struct BarChart {
    /// What it shows, for who cannot see it; not drawn.
    pub title: String,
    /// The bars, from above.
    pub rows: Vec<BarRow>,
    /// Their lengths are logarithms.
    pub log: bool,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct BarRow {
    /// What stands at its left.
    pub name: String,
    /// Its length.
    pub value: f64,
    /// From where to where its whisker goes.
    pub interval: Option<[f64; 2]>,
    /// What stands at its right.
    pub words: String,
    /// Its colour, by place.
    pub colour: usize,
}

const WIDTH: f64 = 860.0;
const NAMES: f64 = 230.0;
const WORDS: f64 = 190.0;
const BAR: f64 = 22.0;
const NAME_LETTERS: usize = 34;

impl BarChart {
    /// The chart; empty without bars.
    pub fn svg(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let ends =
            self.rows.iter().flat_map(|row| [row.value, row.interval.map_or(row.value, |ends| ends[1])]);
        let format = |value: f64| value.to_string();
        let axis = if self.log { Axis::log("", format) } else { Axis::linear("", format) };
        let Some(range) = axis.range(ends) else { return String::new() };
        // A logarithmic bar of the least number is still to be seen.
        let ground = if self.log { 0.03 } else { 0.0 };
        let part =
            |value: f64| if axis.bears(value) { ground + range.part(value) * (1.0 - ground) } else { 0.0 };
        let at = |value: f64| NAMES + part(value).clamp(0.0, 1.0) * (WIDTH - NAMES - WORDS);
        let mut out = open(WIDTH, BAR * self.rows.len() as f64, &self.title);
        for (index, row) in self.rows.iter().enumerate() {
            let top = BAR * index as f64;
            let (middle, foot) = (top + BAR / 2.0, top + BAR * 0.7);
            text(&mut out, 0.0, foot, "start", "name", &cut(&row.name, NAME_LETTERS));
            let _ = write!(
                out,
                "<rect class=\"f{}\" x=\"{NAMES}\" y=\"{}\" width=\"{:.1}\" height=\"{}\"/>",
                row.colour % COLOURS,
                top + 3.0,
                at(row.value) - NAMES,
                BAR - 6.0
            );
            let mut end = at(row.value);
            if let Some([from, to]) = row.interval {
                end = end.max(at(to));
                let _ = write!(
                    out,
                    "<line class=\"whisker\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>",
                    at(from),
                    at(to)
                );
            }
            text(&mut out, end + 8.0, foot, "start", "", &row.words);
        }
        out + "</svg>"
    }
}

#[cfg(test)]
mod tests {
    //! Shows that lengths follow from numbers.
    use super::*;

    #[test]
    fn lengths_follow_from_numbers() {
        let row = |value: f64| BarRow {
            name: "n".into(),
            value,
            interval: Some([value / 2.0, value]),
            words: "w".into(),
            colour: 20,
        };
        let chart =
            BarChart { title: String::new(), rows: vec![row(1.0), row(4.0), row(f64::NAN)], log: false };
        let drawn = chart.svg();
        assert!(drawn.contains("width=\"110.0\"") && drawn.contains("width=\"440.0\""), "{drawn}");
        assert!(drawn.contains("width=\"0.0\"") && !drawn.contains("NaN"), "{drawn}");
        assert!(!BarChart { log: true, ..chart }.svg().contains("NaN"));
    }
}
