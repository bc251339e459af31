//! A snapshot that leaves its shard in parts: the shard copies values, a little in each of its turns, and whoever asked
//! puts them together on a thread of its own.

use crate::flight::FlightRow;
use crate::recorder::{FlightReader, FlightRecorder, Weighted};
use crate::sampled_rows::SampledRows;
use crate::snapshot::{Ask, Detail, Entry, Sample, Snapshot};
use crate::traced::TracedCall;
use std::sync::Arc;
use trunkline_call::Instant;

/// Series copied at once, whole (some 10 KiB each) or their totals: a tenth of a millisecond.
const SERIES_PER_PART: usize = 32;
const TOTALS_PER_PART: usize = 128;

/// What has been copied of a snapshot.
#[derive(Debug)]
pub struct SnapshotParts {
    pub(crate) ask: Ask,
    pub(crate) begun: Instant,
    pub(crate) series: Vec<Entry>,
    pub(crate) series_read: usize,
    calls: FlightReader,
    names: Option<Names>,
    sampled: SampledRows,
    traced: Vec<TracedCall>,
    traced_lost: u64,
}

/// Names of methods and peers, by their numbers, and which methods are asked for.
#[derive(Debug)]
struct Names {
    methods: Vec<Arc<str>>,
    peers: Vec<Arc<str>>,
    wanted: Vec<bool>,
}

impl SnapshotParts {
    pub(crate) fn new(begun: Instant, ask: Ask, calls: FlightReader) -> Self {
        let (series, sampled) = (Vec::new(), SampledRows::new(ask.samples_max));
        let (traced, traced_lost) = (Vec::new(), 0);
        Self { ask, begun, series, series_read: 0, calls, names: None, sampled, traced, traced_lost }
    }

    /// The same, with calls that a trace is about, and how many of those were lost.
    pub(crate) fn with_traced(self, traced: Vec<TracedCall>, traced_lost: u64) -> Self {
        Self { traced, traced_lost, ..self }
    }

    /// Names and orders what was copied.
    pub fn finish(self) -> Snapshot {
        let Self { begun, series, calls, names, sampled, traced, traced_lost, .. } = self;
        // Where no call was counted, none is missing.
        let samples_since_ns = if series.is_empty() { 0 } else { calls.since.0 };
        let samples = names.map_or_else(Vec::new, |names| {
            sampled.rows().iter().map(|Weighted { row, weight }| names.named(row, *weight)).collect()
        });
        Snapshot { at_ns: begun.0, series, samples, samples_since_ns, traced, traced_lost }
    }

    pub(crate) fn series_per_part(&self) -> usize {
        match self.ask.detail {
            Detail::Whole => SERIES_PER_PART,
            Detail::Totals => TOTALS_PER_PART,
        }
    }

    /// Copies calls one by one, of the methods asked for. `false`: that was all.
    pub(crate) fn copy_calls(
        &mut self,
        recorder: &FlightRecorder,
        names: impl FnOnce() -> (Vec<Arc<str>>, Vec<Arc<str>>),
    ) -> bool {
        if self.ask.samples_max == 0 {
            return false;
        }
        let Self { ask, begun, calls, names: known, sampled, .. } = self;
        let names = known.get_or_insert_with(|| {
            let (methods, peers) = names();
            let wanted = methods.iter().map(|name| ask.wants(name)).collect();
            Names { methods, peers, wanted }
        });
        recorder.read_part(calls, *begun, |weighted| {
            if names.wants(&weighted.row) {
                sampled.offer(weighted);
            }
        })
    }
}

impl Names {
    /// Streams are in no question that calls one by one answer.
    fn wants(&self, row: &FlightRow) -> bool {
        !row.is_stream && self.wanted.get(row.method.0 as usize).copied().unwrap_or(false)
    }

    fn named(&self, row: &FlightRow, weight: u64) -> Sample {
        let name = |names: &[Arc<str>], number: u32| {
            names.get(number as usize).map_or_else(|| "(other)".into(), Arc::clone)
        };
        let (method, peer) = (name(&self.methods, row.method.0), name(&self.peers, row.peer.0));
        Sample::new(row, weight, &method, &peer)
    }
}
