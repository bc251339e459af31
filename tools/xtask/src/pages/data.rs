//! What is wanted and what was measured, from the files they stand in.

use std::collections::BTreeMap;
use toml::{Table, Value};

/// What is wanted, below the root.
pub const TARGETS: &str = "docs/targets.toml";

/// Targets in the order of the file, and README's figures.
#[derive(Debug)]
pub struct Data {
    pub targets: Vec<Target>,
    /// A text with `{}` for the median or `{inverse}` for one by it, and the mark it is of.
    pub figures: Vec<(String, String)>,
}

/// What the project is held to, in one or several marks.
#[derive(Debug)]
pub struct Target {
    pub id: String,
    pub what: String,
    pub command: String,
    pub note: Option<String>,
    pub marks: Vec<Mark>,
}

/// One figure that is wanted.
#[derive(Debug)]
pub struct Mark {
    pub name: String,
    pub bound: Option<Bound>,
    pub measured: String,
}

/// What a median is held against.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Data {
    /// From the text of `docs/targets.toml` and of the runs.
    ///
    /// # Errors
    /// A key that is missing or of another type; a mark that no run has; a figure of a mark that does not exist.
    pub fn read<'a>(wanted: &str, runs: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let table: Table = wanted.parse().map_err(|error| format!("{TARGETS}: {error}"))?;
        let measured = measured(runs);
        let targets = tables(&table, "target").map(|table| Target::read(table, &measured));
        let targets: Vec<Target> = targets.collect::<Result<_, _>>()?;
        let figures = tables(&table, "figure").map(|table| Ok((text(table, "text")?, text(table, "mark")?)));
        Ok(Self { targets, figures: figures.collect::<Result<_, String>>()? })
    }

    /// The mark of this name.
    pub fn mark(&self, name: &str) -> Option<&Mark> {
        self.targets.iter().flat_map(|target| &target.marks).find(|mark| mark.name == name)
    }
}

impl Target {
    fn read(table: &Table, measured: &BTreeMap<String, String>) -> Result<Self, String> {
        let id = text(table, "id")?;
        let marks = tables(table, "marks").map(|table| Mark::read(table, measured));
        let marks = marks.collect::<Result<_, _>>().map_err(|problem| format!("{problem} ({id})"))?;
        let note = table.get("note").and_then(Value::as_str).map(str::to_owned);
        Ok(Self { id, what: text(table, "what")?, command: text(table, "command")?, note, marks })
    }

    /// The anchor of its heading.
    pub fn anchor(&self) -> String {
        crate::rules::documents::slug(&self.heading())
    }

    /// Its heading.
    pub fn heading(&self) -> String {
        format!("{}: {}", self.id, self.what)
    }
}

impl Mark {
    fn read(table: &Table, measured: &BTreeMap<String, String>) -> Result<Self, String> {
        let name = text(table, "name")?;
        let number = |key: &str| table.get(key).and_then(Value::as_float);
        let bound = number("at_most").map(Bound::AtMost).or(number("at_least").map(Bound::AtLeast));
        let by_hand = || table.get("measured").and_then(Value::as_str).map(str::to_owned);
        let measured = measured.get(&name).cloned().or_else(by_hand);
        let measured = measured.ok_or_else(|| {
            format!("{TARGETS}: no run in docs/measured/ has {name:?}: publish one, or say `measured`")
        })?;
        Ok(Self { name, bound, measured })
    }

    /// Whether the median is what is wanted; `None` if nothing is.
    pub fn is_reached(&self) -> Option<bool> {
        let median: f64 = self.median().replace(',', "").parse().ok()?;
        Some(match self.bound? {
            Bound::AtMost(most) => median <= most,
            Bound::AtLeast(least) => median >= least,
        })
    }

    /// The median, as it was written.
    pub fn median(&self) -> &str {
        self.measured.split(' ').next().unwrap_or_default()
    }

    /// What is wanted, as a reader wants it.
    pub fn wanted(&self) -> String {
        match self.bound {
            Some(Bound::AtMost(most)) => format!("≤ {most}"),
            Some(Bound::AtLeast(least)) => format!("≥ {least}"),
            None => "–".to_owned(),
        }
    }
}

/// What runs measured, by the mark's name: the rows of their tables of marks.
fn measured<'a>(runs: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for line in runs.flat_map(str::lines) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let [target, name, _, measured, _] = cells[..]
            && target.strip_prefix('T').is_some_and(|number| number.parse::<u8>().is_ok())
        {
            all.insert(name.to_owned(), measured.to_owned());
        }
    }
    all
}

fn tables<'a>(table: &'a Table, key: &str) -> impl Iterator<Item = &'a Table> {
    table.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table)
}

fn text(table: &Table, key: &str) -> Result<String, String> {
    let text = table.get(key).and_then(Value::as_str).map(str::to_owned);
    text.ok_or_else(|| format!("{TARGETS}: a table has no text {key:?}: {table}"))
}
