//! Plots as inline SVG: bars with whiskers, and lines over steps.

use super::sheet::{Plot, Row, Sheet};
use crate::harness::stats::{Spread, short};
use std::fmt::Write;

/// Of bars and lines, by place.
const COLOURS: [&str; 12] = [
    "#888888", "#1764ab", "#d2691e", "#bbbbbb", "#2a9d4a", "#7a5195", "#c23b5e", "#e0a030", "#3aa6a0",
    "#5c4033", "#4f6d7a", "#b38867",
];
const WIDTH: f64 = 860.0;
const NAME_WIDTH: f64 = 190.0;
const VALUE_WIDTH: f64 = 190.0;
const BAR: f64 = 22.0;

/// A name, and where it is at each step.
type Line<'a> = (&'a str, Vec<(&'a str, f64)>);

/// All of a sheet's plots, each with what it shows.
pub fn plots(sheet: &Sheet) -> String {
    match &sheet.plot {
        Plot::Nothing => String::new(),
        Plot::Bars(columns) => {
            let bars = |name: &String| format!("<h3>{}</h3>{}", escape(name), bars(sheet, name));
            sheet.columns.iter().take(*columns).map(bars).collect()
        }
        Plot::OverColumns => {
            let columns = || sheet.columns.iter().take(sheet.shown).map(String::as_str);
            let lines = sheet.rows.iter().map(|row| {
                let points =
                    columns().zip(&row.values).filter_map(|(name, values)| Some((name, median(values)?)));
                (row.name.as_str(), points.collect())
            });
            curves(&lines.collect::<Vec<_>>())
        }
        Plot::OverRows(plots) => {
            let line = |(column, name): &(usize, &'static str)| (*name, over_rows(sheet, *column));
            let plot = |(title, columns): &(String, Vec<(usize, &'static str)>)| {
                let lines: Vec<Line<'_>> = columns.iter().map(line).collect();
                format!("<h3>{}</h3>{}", escape(title), curves(&lines))
            };
            plots.iter().map(plot).collect()
        }
    }
}

fn over_rows(sheet: &Sheet, column: usize) -> Vec<(&str, f64)> {
    let point = |row: &Row| median(row.values.get(column)?);
    sheet.rows.iter().filter_map(|row| Some((row.name.as_str(), point(row)?))).collect()
}

fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values.iter().copied()).map(|spread| spread.median)
}

/// A bar for each row's median, a whisker from the least to the most round.
fn bars(sheet: &Sheet, column: &str) -> String {
    let spread = |name| Spread::of(sheet.values(column, name)?.iter().copied());
    let spreads: Vec<(&str, Spread)> =
        sheet.rows.iter().filter_map(|row| Some((row.name.as_str(), spread(&row.name)?))).collect();
    let most = spreads.iter().map(|(_, spread)| spread.most).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - NAME_WIDTH - VALUE_WIDTH) / most;
    let mut svg = svg(BAR * spreads.len() as f64);
    for (index, (name, spread)) in spreads.iter().enumerate() {
        let (top, colour) = (BAR * index as f64, COLOURS[index % COLOURS.len()]);
        let (middle, text) = (top + BAR / 2.0, top + BAR * 0.7);
        let at = |value: f64| NAME_WIDTH + value * scale;
        let (from, to, width, name) =
            (at(spread.least), at(spread.most), spread.median * scale, escape(name));
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{text}\">{name}</text>\
             <rect x=\"{NAME_WIDTH}\" y=\"{}\" width=\"{width}\" height=\"{}\" fill=\"{colour}\"/>\
             <line x1=\"{from}\" x2=\"{to}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"#000\"/>\
             <text x=\"{}\" y=\"{text}\">{spread}</text>",
            top + 3.0,
            BAR - 6.0,
            to + 8.0,
        );
    }
    svg + "</svg>"
}

/// Lines over steps at equal distances, because each is a multiple of the one before.
fn curves(lines: &[Line<'_>]) -> String {
    const HEIGHT: f64 = 320.0;
    const FOOT: f64 = 30.0;
    let points = || lines.iter().flat_map(|(_, points)| points);
    let mut steps: Vec<&str> = Vec::new();
    for (step, _) in points() {
        if !steps.contains(step) {
            steps.push(step);
        }
    }
    let most = points().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let width = (WIDTH - NAME_WIDTH - 60.0) / (steps.len().max(2) - 1) as f64;
    let x = |step: &str| 40.0 + width * steps.iter().position(|other| *other == step).unwrap_or(0) as f64;
    let y = |value: f64| (HEIGHT - FOOT) * (1.0 - value / most) + 10.0;
    let (end, mut svg) = (WIDTH - NAME_WIDTH, svg(HEIGHT + 10.0));
    for step in &steps {
        let _ = write!(svg, "<text x=\"{}\" y=\"{HEIGHT}\">{}</text>", x(step) - 20.0, escape(step));
    }
    for value in [0.0, most / 2.0, most] {
        let (at, to, value, colour) = (y(value), end - 20.0, short(value), "#ddd");
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{}\">{value}</text><line x1=\"40\" x2=\"{to}\" y1=\"{at}\" y2=\"{at}\" \
             stroke=\"{colour}\"/>",
            at + 4.0,
        );
    }
    for (index, (name, points)) in lines.iter().enumerate() {
        let (colour, down) = (COLOURS[index % COLOURS.len()], 20.0 + 18.0 * index as f64);
        let points: String =
            points.iter().map(|(step, value)| format!("{:.1},{:.1} ", x(step), y(*value))).collect();
        let _ = write!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{end}\" y=\"{down}\" style=\"fill:{colour}\">{}</text>",
            escape(name)
        );
    }
    svg + "</svg>"
}

fn svg(height: f64) -> String {
    format!("<svg width=\"{WIDTH}\" height=\"{height}\" role=\"img\">")
}

/// As HTML has it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    //! Every row has its bar, and every line its points.
    use super::*;

    #[test]
    fn sheets_are_drawn() {
        let mut sheet = Sheet::new("k", String::new(), "", &["a", "b"]).with_row("x<y", &[1.0, 2.0]);
        sheet = sheet.with_row("z", &[4.0, 4.0]);
        assert_eq!(plots(&sheet), "");
        sheet.plot = Plot::Bars(1);
        let drawn = plots(&sheet);
        assert_eq!((drawn.matches("<rect").count(), drawn.matches("<svg").count()), (2, 1), "{drawn}");
        assert!(
            drawn.contains("x&lt;y") && drawn.contains("width=\"120\"") && drawn.contains("width=\"480\"")
        );
        sheet.plot = Plot::OverColumns;
        assert!(plots(&sheet).contains("points=\"40.0,227.5 650.0,155.0 \""), "{}", plots(&sheet));
        sheet.plot = Plot::OverRows(vec![("over".to_owned(), vec![(0, "one"), (1, "two")])]);
        assert_eq!(plots(&sheet).matches("<polyline").count(), 2);
        assert!(plots(&sheet).contains("points=\"40.0,227.5 650.0,10.0 \""), "{}", plots(&sheet));
    }
}
