//! `studies.toml`: what a run consists of, calls of one kind by many peers, the sheets of other studies, who chooses
//! among workers.

use crate::harness::children::Failure;
use crate::harness::work::filled;
use crate::report::sheet::{Plot, Sheet};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::LazyLock;

/// The file.
pub static STUDIES: LazyLock<StudiesFile> =
    LazyLock::new(|| toml::from_str(include_str!("../../studies.toml")).expect("a test reads studies.toml"));

/// All of it.
#[derive(Deserialize)]
pub struct StudiesFile {
    pub run: Vec<RunData>,
    pub calls: Vec<CallsData>,
    pub sheet: Vec<SheetData>,
    pub r2p2: R2p2Data,
}

/// What can be asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunData {
    pub name: String,
    pub help: String,
    pub studies: Vec<String>,
    /// Rounds and their milliseconds if nothing is said, where they differ from all others'.
    pub rounds: Option<usize>,
    pub millis: Option<u64>,
}

/// Calls of one kind, by many peers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallsData {
    pub name: String,
    pub title: String,
    pub peers: Vec<String>,
    /// Sizes, and how many are outstanding.
    pub orders: Vec<(usize, usize)>,
    /// A column for each order has this figure.
    pub figure: Option<String>,
    #[serde(default)]
    pub unit: String,
    /// Whether the first figure is how many calls there were.
    #[serde(default)]
    pub is_rate: bool,
    pub work: Option<String>,
    /// Drivers that call at the same time.
    pub clients: Option<usize>,
    pub warm_up_factor: Option<u64>,
    /// The largest size a peer can do; sizes grow.
    #[serde(default)]
    pub size_max: BTreeMap<String, usize>,
}

/// A sheet of a study that is code of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SheetData {
    pub key: String,
    title: String,
    /// What its rows are.
    #[serde(default)]
    head: String,
    pub columns: Vec<String>,
    /// So many of them are shown; all if nothing is said.
    shown: Option<usize>,
    /// So many of them are drawn, as bars.
    bars: Option<usize>,
}

/// A sheet without rows; in its title, `values` stand for what is between `@`.
pub fn sheet(key: &str, values: &[(&str, &dyn Display)]) -> Result<Sheet, Failure> {
    let data = STUDIES.sheet.iter().find(|sheet| sheet.key == key);
    let SheetData { title, head, columns, shown, bars, .. } =
        data.ok_or_else(|| format!("studies.toml has no sheet {key:?}"))?;
    let title = values
        .iter()
        .fold(title.clone(), |title, (name, value)| filled(&title, &[(name, &value.to_string())]));
    Ok(Sheet {
        key: key.to_owned(),
        title,
        head,
        columns: columns.clone(),
        shown: shown.unwrap_or(columns.len()),
        plot: bars.map_or(Plot::Nothing, Plot::Bars),
        ..Sheet::default()
    })
}

/// Of the comparison of dispatching.
#[derive(Deserialize)]
pub struct R2p2Data {
    pub choosers: Vec<ChooserData>,
}

/// Who chooses, and how.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChooserData {
    pub name: String,
    /// `router`, `nginx`, `haproxy`, or the client's `host`.
    pub by: String,
    #[serde(default)]
    pub rule: String,
    #[serde(default)]
    pub each: String,
}
