//! Telemetry as plain data: of one shard, of many merged, or of a stretch of time.

use crate::component::{Component, Coverage};
use crate::flight::FlightRow;
use crate::record::Side;
use crate::series::Series;
use crate::traced::{Exemplars, TracedCall};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What a snapshot shall hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Only methods whose path contains this; all if empty.
    #[serde(default)]
    pub method: String,
    /// How much of each series.
    #[serde(default)]
    pub detail: Detail,
    /// Most calls one by one; 0 for none.
    #[serde(default)]
    pub samples_max: usize,
    /// Most calls of traces; 0 for none. Those told are taken out: for whoever exports them, and nobody else.
    #[serde(default)]
    pub traced_max: usize,
}

/// How much of each series a snapshot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// Every histogram: for `explain`.
    #[default]
    Whole,
    /// Completion times and the sums of the rest: for `top`.
    Totals,
}

/// What shards have counted, with names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When, on the host's monotonic clock.
    pub at_ns: u64,
    /// One per (side, method, peer).
    pub series: Vec<Entry>,
    /// Calls one by one, if asked for.
    pub samples: Vec<Sample>,
    /// They stand for all calls that ended since then.
    #[serde(default)]
    pub samples_since_ns: u64,
    /// Calls of traces, if asked for, oldest first.
    #[serde(default)]
    pub traced: Vec<TracedCall>,
    /// Calls of traces there was no room for until somebody asked, since the start.
    #[serde(default)]
    pub traced_lost: u64,
}

/// One series and its key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Which end this host was.
    pub side: Side,
    /// Path of the method.
    pub method: String,
    /// The other host.
    pub peer: String,
    /// What was counted.
    pub series: Series,
    /// Calls with traces that stand for others.
    #[serde(default)]
    pub exemplars: Exemplars,
}

/// One call, and how many it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// When it ended, on the host's monotonic clock.
    pub at_ns: u64,
    /// Which end this host was.
    pub side: Side,
    /// Path of the method.
    pub method: String,
    /// The other host.
    pub peer: String,
    /// gRPC code number.
    pub code: u16,
    /// Calls it stands for, itself included.
    pub weight: u64,
    /// Nanoseconds, indexed by [`Component`].
    pub ns: [u64; Component::COUNT],
    /// How many of the nine were measured.
    pub coverage: Coverage,
    /// Names of stamps that were missing or out of order.
    pub stand_ins: Vec<String>,
    /// The server claimed more time than there was.
    pub clipped: bool,
    /// Request message bytes.
    pub request_bytes: u32,
    /// Response message bytes.
    pub response_bytes: u32,
}

impl Ask {
    /// Whether a method is asked for.
    pub fn wants(&self, method: &str) -> bool {
        method.contains(&self.method)
    }
}

impl Snapshot {
    /// Adds what another shard of the same host has counted.
    pub fn merge(&mut self, other: Self) {
        self.at_ns = self.at_ns.max(other.at_ns);
        self.merge_series(other.series);
        self.samples.extend(other.samples);
        // What one knows of a time that the other does not would count for too much.
        self.samples_since_ns = self.samples_since_ns.max(other.samples_since_ns);
        self.samples.retain(|sample| sample.at_ns >= self.samples_since_ns);
        self.traced.extend(other.traced);
        self.traced_lost = self.traced_lost.saturating_add(other.traced_lost);
    }

    /// Shards have thousands of series: each is found by its key's place among the sorted ones.
    fn merge_series(&mut self, mut others: Vec<Entry>) {
        others.sort_by(|a, b| a.key().cmp(&b.key()));
        others.dedup_by(|same, one| {
            let is_same = same.key() == one.key();
            if is_same {
                one.merge(same);
            }
            is_same
        });
        let mut is_new = vec![true; others.len()];
        for own in &mut self.series {
            if let Ok(place) = others.binary_search_by(|other| other.key().cmp(&own.key())) {
                own.merge(&others[place]);
                is_new[place] = false;
            }
        }
        self.series
            .extend(others.into_iter().zip(is_new).filter_map(|(other, is_new)| is_new.then_some(other)));
    }

    /// The series of each method added up over peers, without exemplars: as much as [`top`](crate::top()) shows.
    pub fn by_method(self) -> Self {
        let at_ns = self.at_ns;
        let without_peer =
            |entry: Entry| Entry { peer: String::new(), exemplars: Exemplars::default(), ..entry };
        let mut summed = Self { at_ns, ..Self::default() };
        summed.merge_series(self.series.into_iter().map(without_peer).collect());
        summed
    }

    /// What was counted here and not yet in `earlier`, an older snapshot of the same shards with the same [`Ask`].
    /// Samples that ended before it are dropped.
    pub fn since(&self, earlier: &Self) -> Self {
        let before: HashMap<_, &Entry> = earlier.series.iter().map(|old| (old.key(), old)).collect();
        let series = self.series.iter().map(|entry| {
            let before = before.get(&entry.key());
            let series = before.map_or_else(|| entry.series.clone(), |old| entry.series.since(&old.series));
            Entry { series, ..entry.clone() }
        });
        let series = series.filter(|entry| entry.series.calls() > 0).collect();
        let samples = self.samples.iter().filter(|sample| sample.at_ns > earlier.at_ns).cloned().collect();
        let samples_since_ns = self.samples_since_ns.max(earlier.at_ns);
        Self { at_ns: self.at_ns, series, samples, samples_since_ns, ..Self::default() }
    }

    /// All series of one side added up, over methods and peers.
    pub fn sum(&self, side: Side) -> Series {
        let mut sum = Series::default();
        for entry in self.series.iter().filter(|entry| entry.side == side) {
            sum.merge(&entry.series);
        }
        sum
    }
}

impl Entry {
    fn key(&self) -> (Side, &str, &str) {
        (self.side, &self.method, &self.peer)
    }

    fn merge(&mut self, other: &Self) {
        self.series.merge(&other.series);
        self.exemplars.merge(&other.exemplars);
    }
}

impl Sample {
    pub(crate) fn new(row: &FlightRow, weight: u64, method: &str, peer: &str) -> Self {
        Self {
            at_ns: row.at.0,
            side: row.side,
            method: method.to_owned(),
            peer: peer.to_owned(),
            code: row.code.number(),
            weight,
            ns: row.components.ns,
            coverage: row.components.coverage,
            stand_ins: row.components.stand_ins.iter().map(|stamp| stamp.name().to_owned()).collect(),
            clipped: row.components.clipped,
            request_bytes: row.request_bytes,
            response_bytes: row.response_bytes,
        }
    }

    /// Completion time.
    pub fn total_ns(&self) -> u64 {
        self.ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }
}
