//! `studies.toml`: what a run consists of, calls of one kind by many peers, who chooses among workers.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The file.
pub static STUDIES: LazyLock<StudiesFile> =
    LazyLock::new(|| toml::from_str(include_str!("../../studies.toml")).expect("a test reads studies.toml"));

/// All of it.
#[derive(Deserialize)]
pub struct StudiesFile {
    pub run: Vec<RunData>,
    pub calls: Vec<CallsData>,
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
