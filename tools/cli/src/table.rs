//! Text in columns.

/// Lines of cells, shown with every column as wide as its widest cell.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    right: &'static [usize],
}

impl Table {
    /// A table with a heading; the columns with the numbers `right` are aligned to the right.
    pub fn new(heading: &[&str], right: &'static [usize]) -> Self {
        Self { rows: vec![heading.iter().map(ToString::to_string).collect()], right }
    }

    /// Adds a line.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there is nothing below the heading.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &[String], at: usize| row.get(at).map_or("", String::as_str).to_owned();
        let width = |at| self.rows.iter().map(|row| cell(row, at).chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let cells = widths.iter().enumerate().map(|(at, width)| match self.right.contains(&at) {
                true => format!("{:>width$}", cell(row, at)),
                false => format!("{:width$}", cell(row, at)),
            });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A number with its noun: `1 call`, `2 calls`.
pub fn count(number: u64, noun: &str) -> String {
    trunkline_telemetry::render::count(number, noun)
}

/// A size in the largest unit that leaves at least one: `1.5 MiB`.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    //! Shows alignment and units.
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["name", "calls", "x"], &[1]);
        table.row(["größe".into(), "7".into()]);
        table.row(["a".into(), "12345".into(), "y".into()]);
        assert_eq!(table.to_string(), "name   calls  x\ngröße      7\na      12345  y\n");
    }

    #[test]
    fn sizes() {
        for (size, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (64 << 20, "64.0 MiB")] {
            assert_eq!(bytes(size), text);
        }
    }
}
