//! Names divided into parts.

use crate::page::{COLOURS, cut, open, text};
use std::fmt::Write;

/// One bar for each name, divided.
#[derive(Clone, Debug)]
pub struct StackChart {
    /// What it shows.
    pub title: String,
    /// The title stands above.
    pub titled: bool,
    /// What the parts are.
    pub parts: Vec<String>,
    /// A name, its parts, and what stands at its right.
    pub rows: Vec<(String, Vec<f64>, String)>,
    /// Each bar is as long as the chart is wide; else they are to one scale.
    pub whole: bool,
}

const WIDTH: f64 = 860.0;
const NAMES: f64 = 190.0;
const WORDS: f64 = 130.0;
const BAR: f64 = 24.0;
const NAME_LETTERS: usize = 28;
/// Names of parts in one line.
const LEGEND_COLUMNS: usize = 4;
const LEGEND_HEIGHT: f64 = 18.0;
/// A part this wide has room for its share.
const SHARE_WIDTH: f64 = 34.0;

impl StackChart {
    /// The chart; empty without bars.
    pub fn svg(&self) -> String {
        let sum = |parts: &[f64]| parts.iter().filter(|part| **part > 0.0).sum::<f64>();
        let most = self.rows.iter().map(|(_, parts, _)| sum(parts)).fold(0.0, f64::max);
        if self.rows.is_empty() || !most.is_finite() || most <= 0.0 {
            return String::new();
        }
        let head = if self.titled { BAR } else { 0.0 };
        let bars = head + BAR * self.rows.len() as f64;
        let legend = LEGEND_HEIGHT * self.parts.len().div_ceil(LEGEND_COLUMNS) as f64;
        let mut out = open(WIDTH, bars + legend + 10.0, &self.title);
        if self.titled {
            text(&mut out, 0.0, BAR * 0.68, "start", "name", &self.title);
        }
        for (index, (name, parts, words)) in self.rows.iter().enumerate() {
            let top = head + BAR * index as f64;
            text(&mut out, 0.0, top + BAR * 0.68, "start", "name", &cut(name, NAME_LETTERS));
            let total = sum(parts);
            let scale =
                (WIDTH - NAMES - WORDS) / if self.whole { total.max(f64::MIN_POSITIVE) } else { most };
            let mut x = NAMES;
            for (place, part) in parts.iter().enumerate().filter(|(_, part)| **part > 0.0) {
                let width = part * scale;
                let _ = write!(
                    out,
                    "<rect class=\"f{}\" x=\"{x:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\"/>",
                    place % COLOURS,
                    top + 3.0,
                    BAR - 6.0
                );
                if width >= SHARE_WIDTH {
                    let share = format!("{:.0}%", 100.0 * part / total);
                    text(&mut out, x + width / 2.0, top + BAR * 0.68, "middle", "in", &share);
                }
                x += width;
            }
            text(&mut out, x + 8.0, top + BAR * 0.68, "start", "", words);
        }
        for (place, name) in self.parts.iter().enumerate() {
            let (column, line) = (place % LEGEND_COLUMNS, place / LEGEND_COLUMNS);
            let x = (WIDTH / LEGEND_COLUMNS as f64) * column as f64;
            let y = bars + 8.0 + LEGEND_HEIGHT * line as f64;
            let _ = write!(
                out,
                "<rect class=\"f{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\"/>",
                place % COLOURS
            );
            text(&mut out, x + 18.0, y + 10.0, "start", "", name);
        }
        out + "</svg>"
    }
}

#[cfg(test)]
mod tests {
    //! Shows that parts are as wide as their shares.
    use super::*;

    #[test]
    fn parts_are_as_wide_as_their_shares() {
        let rows = vec![
            ("a".to_owned(), vec![1.0, 3.0], "4".to_owned()),
            ("b".to_owned(), vec![1.0, -7.0], "1".to_owned()),
        ];
        let chart = StackChart {
            title: "t<".into(),
            titled: true,
            parts: vec!["p".into(), "q".into()],
            rows,
            whole: true,
        };
        let drawn = chart.svg();
        assert!(drawn.contains("width=\"135.0\"") && drawn.contains("width=\"405.0\""), "{drawn}");
        assert!(
            drawn.contains("width=\"540.0\"") && drawn.contains(">75%<") && drawn.contains(">t&lt;<"),
            "{drawn}"
        );
        assert!(StackChart { whole: false, ..chart }.svg().contains("width=\"135.0\""));
    }
}
