//! A sheet: figures by row and column, each with a value for every round. Every study hands in its results as sheets,
//! and tables, plots and marks are made from these alone.

use crate::harness::rounds::{Absent, Measured};
use serde::Serialize;
use trunkline_measure::cell;

/// What a study hands in.
#[derive(Debug, Default)]
pub struct Results {
    pub sheets: Vec<Sheet>,
    pub absent: Vec<Absent>,
}

/// Figures that belong together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sheet {
    /// The name by which `docs/targets.toml` means it.
    pub key: String,
    pub title: String,
    /// What the rows are.
    pub head: &'static str,
    pub columns: Vec<String>,
    /// So many columns are shown; those behind them are for marks and for whoever reads the JSON.
    pub shown: usize,
    pub rows: Vec<Row>,
    pub notes: Vec<String>,
    #[serde(skip)]
    pub plot: Plot,
}

/// A row of one.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: String,
    /// What it is, for people; empty if its name says so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// By column, and there by round.
    pub values: Vec<Vec<f64>>,
}

/// How a sheet is drawn.
#[derive(Clone, Debug, Default)]
pub enum Plot {
    #[default]
    Nothing,
    /// Bars, of each of the first so many columns.
    Bars(usize),
    /// A line for each row, over the columns that are shown.
    OverColumns,
    /// Lines over the rows: a title, and the columns and what they are called in it.
    OverRows(Vec<(String, Vec<(usize, &'static str)>)>),
}

impl Sheet {
    /// One whose columns are all shown.
    #[cfg(test)]
    pub fn new(key: &str, title: String, head: &'static str, columns: &[&str]) -> Self {
        let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
        Self { key: key.to_owned(), title, head, shown: columns.len(), columns, ..Self::default() }
    }

    /// The same with rows.
    pub fn with(mut self, rows: Vec<Measured>) -> Self {
        self.rows.extend(rows.into_iter().map(|(name, values)| Row { name, what: String::new(), values }));
        self
    }

    /// The same with a row of figures that were taken once.
    pub fn with_row(self, name: &str, values: &[f64]) -> Self {
        self.with(vec![(name.to_owned(), values.iter().map(|value| vec![*value]).collect())])
    }

    /// The values of a figure.
    pub fn values(&self, column: &str, row: &str) -> Option<&[f64]> {
        let column = self.columns.iter().position(|name| name == column)?;
        let row = self.rows.iter().find(|of| of.name == row)?;
        row.values.get(column).filter(|values| !values.is_empty()).map(Vec::as_slice)
    }

    /// All values of a column.
    pub fn column(&self, column: &str) -> Vec<f64> {
        self.rows.iter().filter_map(|row| self.values(column, &row.name)).flatten().copied().collect()
    }

    /// As the documents have it: a heading, a table, and what is to be said of it.
    pub fn markdown(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let described = self.rows.iter().any(|row| !row.what.is_empty());
        let columns = &self.columns[..self.shown];
        let mut head = vec![self.head.to_owned()];
        head.extend(described.then(|| "what it is".to_owned()));
        head.extend(columns.iter().cloned());
        let mut text = format!("\n### {}\n\n{}", self.title, line(&head));
        text += &format!("|{}\n", "---|".repeat(head.len()));
        for row in &self.rows {
            let mut cells = vec![row.name.clone()];
            cells.extend(described.then(|| row.what.clone()));
            cells.extend(row.values.iter().take(self.shown).map(|values| cell(values)));
            text += &line(&cells);
        }
        self.notes.iter().for_each(|note| text += &format!("\n{note}\n"));
        text
    }
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    //! What is in a sheet is found by name, and shown as far as it is to be.
    use super::*;

    #[test]
    fn figures_have_names_and_tables_have_cells() {
        let mut sheet = Sheet::new("k", "Title".to_owned(), "peer", &["p50 µs", "calls"]);
        sheet.shown = 1;
        sheet.notes.push("Said.".to_owned());
        let sheet =
            sheet.with(vec![("a".to_owned(), vec![vec![3.0, 1.0], vec![7.0, 8.0]])]).with_row("b", &[2.0]);
        assert_eq!(sheet.values("calls", "a"), Some(&[7.0, 8.0][..]));
        assert_eq!((sheet.values("calls", "b"), sheet.values("p99", "a")), (None, None));
        assert_eq!(sheet.column("p50 µs"), [3.0, 1.0, 2.0]);
        let table =
            "\n### Title\n\n| peer | p50 µs |\n|---|---|\n| a | 2.00 (1.00–3.00) |\n| b | 2.00 |\n\nSaid.\n";
        assert_eq!(sheet.markdown(), table);
        assert_eq!(Sheet::default().markdown(), "");
    }
}
