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
pub struct Chronicle(Arc<Mutex<CallHistory>>);

impl Chronicle {
    /// Goes on with that of another daemon.
    pub fn of(past: CallHistory) -> Self {
        Self(Arc::new(Mutex::new(past)))
    }

    /// What there is, up to now.
    pub fn noted<H: Host>(&self, host: &H) -> CallHistory {
        self.note(host);
        self.lock().clone()
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
        let history = self.lock();
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
        let shards = host.observe(&Ask { detail: Detail::Totals, ..Ask::default() });
        if shards.is_empty() {
            return false;
        }
        let mut all = Snapshot::default();
        shards.into_iter().for_each(|shard| all.merge(shard.telemetry));
        self.lock().note(&all);
        true
    }

    fn lock(&self) -> MutexGuard<'_, CallHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
