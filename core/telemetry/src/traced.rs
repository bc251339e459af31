//! Calls that belong to a trace: the last of each duration as exemplars, and all of them for whoever exports spans.

use crate::component::{Component, Components, Coverage};
use crate::record::{Record, Side};
use crate::span_room::{SpanOwner, SpanRoom, SpanSource};
use crate::{MethodIndex, PeerIndex};
use serde::{Deserialize, Serialize};
use trunkline_call::{Code, mix};

/// Calls a shard keeps until they are taken for export: 250 bytes each, and only while somebody exports.
pub const TRACED_CALLS_MAX: usize = 4096;

/// For so long a call stands for others: trace stores keep traces for hours or days, and where the wall clock is set,
/// what ended long ago would seem to have ended at another time.
pub const EXEMPLAR_NS_MAX: u64 = 3_600_000_000_000;

/// The spans of one call: ids of W3C Trace Context. A span without an id is zero, and is not made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTrace {
    /// The trace.
    pub trace: u128,
    /// The span that was there when the call came here; zero if the trace begins with the call.
    pub parent: u64,
    /// The call's own: *sent* for a call made here, *received* for one served here.
    pub span: u64,
    /// The attempt's, below the call's own. Its id is what the other side is told as its parent.
    pub attempt: u64,
    /// What the call whose handler makes this one is known by to that handler; zero if no handler makes it. An
    /// application that traces itself has spans of its own between the two, and `parent` is one of those.
    #[serde(default)]
    pub above: u64,
    /// For whom the call is made: room for calls of traces is shared by that.
    #[serde(default)]
    pub source: SpanSource,
}

impl CallTrace {
    /// The spans of an attempt: its own, and that of the call as its server has it, where no other daemon tells of that
    /// one. Within one host the server knows the call by the id of the attempt, so it is the attempt that gets another.
    pub fn of_attempt(&self, coverage: Coverage) -> (u64, Option<u64>) {
        match coverage {
            Coverage::OneHost => (mix(self.attempt).max(1), Some(self.attempt)),
            _ => (self.attempt, None),
        }
    }
}

/// A call of a trace, with names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedCall {
    /// Its spans.
    pub ids: CallTrace,
    /// Which end this host was, or whether it was one attempt of several.
    pub side: Side,
    /// When it began and ended, on the host's monotonic clock.
    pub began_ns: u64,
    /// See `began_ns`.
    pub ended_ns: u64,
    /// Path of the method.
    pub method: String,
    /// The other host.
    pub peer: String,
    /// gRPC code number.
    pub code: u16,
    /// Nanoseconds, indexed by [`Component`].
    pub ns: [u64; Component::COUNT],
    /// How many of the nine were measured.
    pub coverage: Coverage,
    /// Request message bytes.
    pub request_bytes: u64,
    /// Response message bytes.
    pub response_bytes: u64,
}

/// A call that stands for those that took about as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exemplar {
    /// When it ended, on the host's monotonic clock.
    pub at_ns: u64,
    /// Its completion time.
    pub total_ns: u64,
    /// Its trace.
    pub trace: u128,
    /// The span to look at.
    pub span: u64,
}

/// One exemplar per power of two of nanoseconds, the last call of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exemplars(Vec<Exemplar>);

/// What of a record a trace keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracedRow {
    pub ids: CallTrace,
    pub side: Side,
    pub method: MethodIndex,
    pub peer: PeerIndex,
    pub code: Code,
    pub began_ns: u64,
    pub ended_ns: u64,
    pub parts: Components,
    pub request_bytes: u64,
    pub response_bytes: u64,
}

/// Calls that wait to be exported. Bounded: what there is no room for is counted and not kept.
#[derive(Debug)]
pub(crate) struct TracedCalls {
    rows: SpanRoom<TracedRow>,
    is_on: bool,
}

impl Exemplars {
    /// Puts a call in the place of the last that took about as long.
    pub fn note(&mut self, exemplar: Exemplar) {
        let power = |one: &Exemplar| one.total_ns.max(1).ilog2();
        match self.0.iter_mut().find(|one| power(one) == power(&exemplar)) {
            Some(known) if known.at_ns <= exemplar.at_ns => *known = exemplar,
            Some(_) => {}
            None => self.0.push(exemplar),
        }
    }

    /// Those that ended then or later.
    pub fn since(&self, at_ns: u64) -> Self {
        Self(self.0.iter().filter(|one| one.at_ns >= at_ns).copied().collect())
    }

    /// Adds those of another shard.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|one| self.note(*one));
    }

    /// The last of those that took longer than `above_ns`, and at most `upto_ns`.
    pub fn between(&self, above_ns: f64, upto_ns: f64) -> Option<&Exemplar> {
        let is_there = |one: &&Exemplar| {
            let ns = one.total_ns as f64;
            ns <= upto_ns && (ns > above_ns || above_ns < 0.0)
        };
        self.0.iter().filter(is_there).max_by_key(|one| one.at_ns)
    }
}

impl TracedCalls {
    /// From now on calls are kept, or not any more.
    pub fn keep(&mut self, is_on: bool) {
        self.is_on = is_on;
        if !is_on {
            self.rows.clear();
        }
    }

    /// Keeps a call, if there is room for one of whom it is made for.
    pub fn add(&mut self, row: TracedRow) {
        if self.is_on && row.ids.span != 0 {
            self.rows.add(row);
        }
    }

    /// Other numbers for methods and peers.
    pub fn rename(&mut self, method: impl Fn(u32) -> u32, peer: impl Fn(u32) -> u32) {
        for row in self.rows.iter_mut() {
            (row.method, row.peer) = (MethodIndex(method(row.method.0)), PeerIndex(peer(row.peer.0)));
        }
    }

    /// Takes so many out, oldest first. Whoever exports asks at even intervals.
    pub fn take(&mut self, max: usize) -> Vec<TracedRow> {
        if max > 0 {
            self.rows.note_time();
        }
        self.rows.take(max)
    }

    /// Calls there was no room for, since the start.
    pub fn lost(&self) -> u64 {
        self.rows.lost()
    }
}

impl Default for TracedCalls {
    fn default() -> Self {
        Self { rows: SpanRoom::new(TRACED_CALLS_MAX), is_on: false }
    }
}

impl SpanOwner for TracedRow {
    fn source(&self) -> SpanSource {
        self.ids.source
    }

    fn trace(&self) -> u128 {
        self.ids.trace
    }
}

impl SpanOwner for TracedCall {
    fn source(&self) -> SpanSource {
        self.ids.source
    }

    fn trace(&self) -> u128 {
        self.ids.trace
    }
}

impl TracedRow {
    pub fn new(record: &Record, ids: CallTrace, parts: &Components, [began_ns, ended_ns]: [u64; 2]) -> Self {
        Self {
            ids,
            side: record.side,
            method: record.method,
            peer: record.peer,
            code: record.code,
            began_ns,
            ended_ns,
            parts: *parts,
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
        }
    }

    /// With names instead of numbers.
    pub fn named(&self, method: &str, peer: &str) -> TracedCall {
        TracedCall {
            ids: self.ids,
            side: self.side,
            began_ns: self.began_ns,
            ended_ns: self.ended_ns,
            method: method.to_owned(),
            peer: peer.to_owned(),
            code: self.code.number(),
            ns: self.parts.ns,
            coverage: self.parts.coverage,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows which calls stand for others, and that the queue has an end.
    use super::*;

    fn exemplar(at_ns: u64, total_ns: u64) -> Exemplar {
        Exemplar { at_ns, total_ns, trace: 1, span: at_ns }
    }

    #[test]
    fn the_last_of_each_duration_stays() {
        let mut exemplars = Exemplars::default();
        for (at, total) in [(1, 1000), (2, 1001), (3, 5000), (4, 0)] {
            exemplars.note(exemplar(at, total));
        }
        let mut other = Exemplars::default();
        other.note(exemplar(9, 5001));
        other.note(exemplar(1, 1002));
        exemplars.merge(&other);
        let at = |above: f64, upto: f64| exemplars.between(above, upto).map(|one| one.at_ns);
        assert_eq!(at(500.0, 2000.0), Some(2), "the newer one");
        assert_eq!(at(2000.0, f64::INFINITY), Some(9));
        assert_eq!(at(5001.0, f64::INFINITY), None, "a bound belongs to the bucket below it");
        assert_eq!((at(-1.0, 0.0), at(0.0, 0.0)), (Some(4), None));
        let newer = exemplars.since(4);
        assert_eq!(newer.between(500.0, 2000.0), None, "it ended before");
        assert_eq!(newer.between(2000.0, f64::INFINITY).map(|one| one.at_ns), Some(9));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let record = Record {
            side: Side::Made,
            method: MethodIndex(1),
            peer: PeerIndex(1),
            code: Code::Ok,
            request_bytes: 0,
            response_bytes: 0,
            client: Default::default(),
            server: None,
            is_stream: false,
        };
        let row = |span: u64| {
            let ids = CallTrace { span, trace: span.into(), ..CallTrace::default() };
            TracedRow::new(&record, ids, &Components::default(), [0, 1])
        };
        let mut calls = TracedCalls::default();
        calls.add(row(1));
        assert_eq!(calls.take(9).len(), 0, "nobody exports");
        calls.keep(true);
        calls.add(row(0));
        (1..=TRACED_CALLS_MAX as u64).for_each(|span| calls.add(row(span)));
        assert_eq!(calls.lost(), 0);
        assert_eq!(calls.take(2).iter().map(|row| row.ids.span).collect::<Vec<_>>(), [1, 2]);
        (1..=3).for_each(|span| calls.add(row(span)));
        let left = calls.take(usize::MAX).len();
        assert!(calls.lost() > 0 && left < TRACED_CALLS_MAX);
        assert_eq!(calls.lost() as usize + left, TRACED_CALLS_MAX + 1);
    }
}
