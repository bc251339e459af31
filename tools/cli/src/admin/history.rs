//! The daemon's history: what was counted when, noted once a minute by a thread of its own.

use super::convert::side_message;
use super::host::Host;
use super::proto::{HistoryRequest, HistoryResponse, HistoryRow, Percentile};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use trunkline_telemetry::{
    Ask, CallHistory, Component, Detail, Past, QuantileInterval, Series, Side, Snapshot,
};

/// The percentiles that are told.
const SHARES: [f64; 3] = [0.5, 0.95, 0.99];

/// A history and whoever notes it. Its clones are the same history.
#[derive(Clone, Debug, Default)]
pub struct Chronicle(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    history: CallHistory,
    /// How many shards had a part in what was noted last.
    shards: usize,
}

impl Chronicle {
    /// Goes on with that of another daemon.
    pub fn of(past: CallHistory) -> Self {
        Self(Arc::new(Mutex::new(Noted { history: past, shards: 0 })))
    }

    /// What there is, up to now.
    pub fn noted<H: Host>(&self, host: &H) -> CallHistory {
        self.note(host);
        self.lock().history.clone()
    }

    /// Notes what is counted, once a minute, for as long as the host is there.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn keep<H: Host>(&self, host: H) -> io::Result<()> {
        let own = self.clone();
        let note = move || {
            while own.note(&host) {
                std::thread::sleep(Duration::from_nanos(CallHistory::EVERY_NS));
            }
        };
        std::thread::Builder::new().name("history".into()).spawn(note).map(drop)
    }

    /// Answers about a time, up to now.
    pub fn answer<H: Host>(&self, host: &H, asked: HistoryRequest) -> HistoryResponse {
        self.note(host);
        let noted = self.lock();
        let history = &noted.history;
        let now_ns = history.noted_ns();
        let at = |ago_ms: u64| now_ns.saturating_sub(ago_ms.saturating_mul(1_000_000));
        let ago = |at_ns: u64| now_ns.saturating_sub(at_ns) / 1_000_000;
        let ask = Ask { method: asked.method, ..Ask::default() };
        let past = history.between(at(asked.from_ago_ms), at(asked.to_ago_ms), &ask);
        let reaches_ms = history.since_ns().map_or(0, ago);
        let Some(Past { from_ns, to_ns, series, is_incomplete }) = past else {
            return HistoryResponse { reaches_ms, ..HistoryResponse::default() };
        };
        let rows = series.iter().map(|(side, series)| row(*side, series)).collect();
        HistoryResponse { from_ago_ms: ago(from_ns), to_ago_ms: ago(to_ns), rows, reaches_ms, is_incomplete }
    }

    /// `false`: the host is gone.
    fn note<H: Host>(&self, host: &H) -> bool {
        // Nobody else looks meanwhile: what is noted later is later.
        let mut noted = self.lock();
        let shards = host.observe(&Ask { detail: Detail::Totals, ..Ask::default() });
        let is_there = !shards.is_empty();
        noted.note(shards.into_iter().map(|shard| shard.telemetry).collect());
        is_there
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    /// Notes what all shards have counted. Where one does not answer nothing is noted: without it less was counted than
    /// before, and when it answers again, all it has ever counted would be new.
    fn note(&mut self, shards: Vec<Snapshot>) {
        if shards.is_empty() || shards.len() < self.shards {
            return;
        }
        self.shards = shards.len();
        let mut all = Snapshot::default();
        shards.into_iter().for_each(|shard| all.merge(shard));
        self.history.note(&all);
    }
}

fn row(side: Side, series: &Series) -> HistoryRow {
    let percentile = |share: f64| {
        let QuantileInterval { ns, low_ns, high_ns } = QuantileInterval::of(series.durations(), share);
        Percentile { share, ns, low_ns, high_ns }
    };
    let means = Component::ALL.map(|component| Past::component_mean(series, component));
    let remote = Past::remote_mean(series);
    HistoryRow {
        side: side_message(side),
        calls: series.calls(),
        errors: series.errors(),
        percentiles: SHARES.map(percentile).to_vec(),
        component_mean_ns: means.map(|mean| mean.ns).to_vec(),
        remote_mean_ns: remote.ns,
        component_half_width_ns: means.map(|mean| mean.half_width_ns).to_vec(),
        remote_half_width_ns: remote.half_width_ns,
    }
}

#[cfg(test)]
mod tests {
    //! Shows that nothing is counted twice when a shard does not answer.
    use super::*;
    use trunkline_telemetry::Entry;

    #[test]
    fn what_a_silent_shard_has_counted_is_not_new_when_it_answers() {
        let mut noted = Noted::default();
        for minute in 1..=5 {
            let shard = |calls: u64| {
                let mut series = Series::default();
                series.codes[0] = calls * minute;
                let (method, peer) = ("a".to_owned(), "p".to_owned());
                let entry = Entry { side: Side::Made, method, peer, series, exemplars: Default::default() };
                let at_ns = minute * CallHistory::EVERY_NS;
                Snapshot { at_ns, series: vec![entry], ..Snapshot::default() }
            };
            let answered = if minute == 3 { vec![shard(10)] } else { vec![shard(10), shard(1_000)] };
            noted.note(answered);
        }
        let past = noted.history.between(0, u64::MAX, &Ask::default()).unwrap();
        let calls: u64 = past.series.iter().map(|(_, series)| series.calls()).sum();
        assert_eq!(calls, 4 * 1_010);
    }
}
