//! A table whose cells are shaded.

use crate::page::{cut, open, text};
use std::fmt::Write;

/// Cells shaded by their numbers, from 0 to 1.
#[derive(Clone, Debug)]
pub struct HeatChart {
    /// What it shows, for who cannot see it; not drawn.
    pub title: String,
    /// What stands above.
    pub columns: Vec<String>,
    /// A name, and for each column how dark its cell is and what stands in it.
    pub rows: Vec<(String, Vec<(f64, String)>)>,
    /// What stands below.
    pub label: String,
}

const WIDTH: f64 = 860.0;
const NAMES: f64 = 190.0;
const NAME_LETTERS: usize = 28;
const HEAD: f64 = 34.0;
const FOOT: f64 = 24.0;
/// Rows with names are as high as letters; many rows without share this.
const ROW: f64 = 22.0;
const UNNAMED_HEIGHT: f64 = 260.0;
/// A cell this dark has light letters.
const DARK: f64 = 0.55;

impl HeatChart {
    /// The chart; empty without cells.
    pub fn svg(&self) -> String {
        if self.rows.is_empty() || self.columns.is_empty() {
            return String::new();
        }
        let named = self.rows.iter().any(|(name, _)| !name.is_empty());
        let left = if named { NAMES } else { 20.0 };
        let row_height = if named { ROW } else { UNNAMED_HEIGHT / self.rows.len() as f64 };
        let width = (WIDTH - left) / self.columns.len() as f64;
        let foot = HEAD + row_height * self.rows.len() as f64;
        let mut out = open(WIDTH, foot + FOOT, &self.title);
        let letters = (width / 6.5) as usize;
        for (index, name) in self.columns.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let x = left + width * (index as f64 + 0.5);
            // Long names have two lines.
            let (first, second) = match name.split_once(' ') {
                Some(halves) if name.chars().count() > letters => halves,
                _ => ("", name.as_str()),
            };
            text(&mut out, x, 12.0, "middle", "", &cut(first, letters.max(4)));
            text(&mut out, x, 26.0, "middle", "", &cut(second, letters.max(4)));
        }
        for (index, (name, cells)) in self.rows.iter().enumerate() {
            let top = HEAD + row_height * index as f64;
            text(&mut out, 0.0, top + row_height * 0.7, "start", "name", &cut(name, NAME_LETTERS));
            for (column, (dark, words)) in cells.iter().enumerate() {
                let dark = if dark.is_finite() { dark.clamp(0.0, 1.0) } else { 0.0 };
                let x = left + width * column as f64;
                // Nothing is drawn where nothing is to be seen.
                if dark >= 0.005 {
                    let _ = write!(
                        out,
                        "<rect class=\"cell\" fill-opacity=\"{dark:.2}\" x=\"{x:.1}\" y=\"{top:.1}\" \
                         width=\"{width:.1}\" height=\"{row_height:.1}\"/>"
                    );
                }
                if !words.is_empty() {
                    let class = if dark > DARK { "in" } else { "name" };
                    text(&mut out, x + width / 2.0, top + row_height * 0.7, "middle", class, words);
                }
            }
        }
        text(&mut out, (left + WIDTH) / 2.0, foot + 17.0, "middle", "name", &self.label);
        out + "</svg>"
    }
}

#[cfg(test)]
mod tests {
    //! Shows that cells are as dark as they are to be.
    use super::*;

    #[test]
    fn cells_are_as_dark_as_they_are_to_be() {
        let cell = |dark: f64| (dark, format!("{dark}"));
        let rows = vec![
            ("a<".to_owned(), vec![cell(0.25), cell(7.0)]),
            ("b".to_owned(), vec![(f64::NAN, "".into())]),
        ];
        let chart = HeatChart {
            title: String::new(),
            columns: vec!["one".into(), "two".into()],
            rows,
            label: "x".into(),
        };
        let drawn = chart.svg();
        assert_eq!(drawn.matches("<rect").count(), 2);
        assert!(drawn.contains("fill-opacity=\"0.25\"") && drawn.contains("fill-opacity=\"1.00\""));
        assert!(drawn.contains("a&lt;") && !drawn.contains("opacity=\"NaN"));
    }
}
