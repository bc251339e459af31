//! Plots of a sheet: bars with whiskers, and lines over steps.

use super::sheet::{Plot, Row, Sheet};
use trunkline_measure::{Spread, short};
use trunkline_plot::{Axis, BarChart, BarRow, ChartLine, LineChart};

/// A name, and where it is at each step.
type Line<'a> = (&'a str, Vec<(&'a str, f64)>);

/// All of a sheet's plots, each with its title, which may be empty.
pub fn plots(sheet: &Sheet) -> Vec<(String, String)> {
    match &sheet.plot {
        Plot::Nothing => Vec::new(),
        Plot::Bars(columns) => {
            sheet.columns.iter().take(*columns).map(|name| (name.clone(), bars(sheet, name))).collect()
        }
        Plot::OverColumns => {
            let columns = || sheet.columns.iter().take(sheet.shown).map(String::as_str);
            let lines = sheet.rows.iter().map(|row| {
                let points =
                    columns().zip(&row.values).filter_map(|(name, values)| Some((name, median(values)?)));
                (row.name.as_str(), points.collect())
            });
            vec![(String::new(), curves(&lines.collect::<Vec<_>>()))]
        }
        Plot::OverRows(plots) => {
            let line = |(column, name): &(usize, &'static str)| (*name, over_rows(sheet, *column));
            let plot = |(title, columns): &(String, Vec<(usize, &'static str)>)| {
                let lines: Vec<Line<'_>> = columns.iter().map(line).collect();
                (title.clone(), curves(&lines))
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
    let spreads = sheet.rows.iter().filter_map(|row| Some((row.name.as_str(), spread(&row.name)?)));
    let row = |(colour, (name, spread)): (usize, (&str, Spread))| BarRow {
        name: name.to_owned(),
        value: spread.median,
        interval: Some([spread.least, spread.most]),
        words: spread.to_string(),
        colour,
    };
    BarChart { title: column.to_owned(), rows: spreads.enumerate().map(row).collect(), log: false }.svg()
}

/// Lines over steps at equal distances, because each is a multiple of the one before.
fn curves(lines: &[Line<'_>]) -> String {
    let mut steps: Vec<&str> = Vec::new();
    for (step, _) in lines.iter().flat_map(|(_, points)| points) {
        if !steps.contains(step) {
            steps.push(step);
        }
    }
    let place = |step: &str| steps.iter().position(|other| *other == step).unwrap_or(0) as f64;
    let line = |(name, points): &Line<'_>| {
        ChartLine::new(name, points.iter().map(|(step, value)| (place(step), *value)).collect())
    };
    let ticks = steps.iter().map(|step| (place(step), (*step).to_owned())).collect();
    LineChart {
        title: steps.join(", "),
        x: Axis::linear("", short).with_ticks(ticks),
        y: Axis::linear("", short),
        lines: lines.iter().map(line).collect(),
    }
    .svg()
}

#[cfg(test)]
mod tests {
    //! Every row has its bar, and every line its points.
    use super::*;

    #[test]
    fn sheets_are_drawn() {
        let mut sheet = Sheet::new("k", String::new(), "", &["a", "b"]).with_row("x<y", &[1.0, 2.0]);
        sheet = sheet.with_row("z", &[4.0, 4.0]);
        let drawn = |sheet: &Sheet| plots(sheet).into_iter().map(|(_, svg)| svg).collect::<String>();
        assert_eq!(drawn(&sheet), "");
        sheet.plot = Plot::Bars(1);
        let bars = drawn(&sheet);
        assert_eq!((bars.matches("<rect").count(), bars.matches("<svg").count()), (2, 1), "{bars}");
        assert!(
            bars.contains("x&lt;y") && bars.contains("width=\"110.0\"") && bars.contains("width=\"440.0\"")
        );
        sheet.plot = Plot::OverColumns;
        assert!(drawn(&sheet).contains("points=\"76.0,194.0 690.0,134.0\""), "{}", drawn(&sheet));
        sheet.plot = Plot::OverRows(vec![("over".to_owned(), vec![(0, "one"), (1, "two")])]);
        assert_eq!(drawn(&sheet).matches("<polyline").count(), 2);
        assert!(drawn(&sheet).contains("points=\"76.0,194.0 690.0,14.0\""), "{}", drawn(&sheet));
        assert_eq!(plots(&sheet)[0].0, "over");
    }
}
