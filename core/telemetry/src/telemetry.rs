//! One shard's telemetry: takes finished calls, answers questions.

use crate::batch::{Batch, Uncounted};
use crate::calls::{CallsAnswer, CallsAsk};
use crate::clock::{ClockOffset, Wires};
use crate::component::Components;
use crate::flight::Flight;
use crate::index::{MethodIndex, PeerIndex};
use crate::names::{NumberedNames, OTHER, is_own_method};
use crate::passing::{Pace, UnaryCall};
use crate::peer_clock::PeerClock;
use crate::record::{Record, Side};
use crate::recorder::FlightRecorder;
use crate::refused::RefusedRows;
use crate::series::{Counted, Series};
use crate::series_slot::{SeriesSlot, count};
use crate::snapshot::{Ask, Detail, Entry, Snapshot};
use crate::snapshot_parts::SnapshotParts;
use crate::traced::{CallTrace, EXEMPLAR_NS_MAX, Exemplar, TracedCall, TracedCalls, TracedRow};
use std::collections::{BTreeMap, BTreeSet};
use trunkline_call::{Code, Instant};

/// Counters, histograms, flight recorder and clock estimates of one shard.
///
/// Names are numbered once, when a method is bound or a peer connects; recording takes numbers. What a hostile
/// application can make it hold is bounded by the three limits; what is beyond them is counted under `(other)`. What
/// nobody uses any more is [forgotten](Telemetry::forget).
#[derive(Debug)]
pub struct Telemetry {
    methods: NumberedNames,
    peers: NumberedNames,
    clocks: Vec<PeerClock>,
    series: Vec<SeriesSlot>,
    /// Places of series that were forgotten.
    free_series: Vec<u32>,
    /// Per method: its series, ascending by (peer, side).
    by_method: Vec<Vec<(PeerIndex, Side, u32)>>,
    recorder: FlightRecorder,
    /// What else is known of the calls that the recorder wrote down last and that are not counted yet, oldest first.
    pending: Vec<Uncounted>,
    /// How fast calls end.
    pace: Pace,
    /// How often it was drawn which call stands for others.
    drawn: u64,
    /// Series that have passed over calls and may have some that are not counted.
    passing: Vec<u32>,
    /// By side: what was recorded last, and its series.
    last: [(MethodIndex, PeerIndex, u32); Side::ALL.len()],
    /// Calls of traces that wait to be exported.
    traced: TracedCalls,
    refused: RefusedRows,
}

const _: () = assert!(Telemetry::PEERS_MAX <= crate::recorder::PEERS_MAX);

impl Telemetry {
    /// Most methods that are told apart. A series with typical spreads takes about 12 KiB.
    pub const METHODS_MAX: usize = 2048;
    /// Most peers that are told apart.
    pub const PEERS_MAX: usize = 1024;
    /// Most (side, method, peer) that are told apart.
    pub const SERIES_MAX: usize = 4096;
    /// Longer names are cut.
    pub const NAME_BYTES_MAX: usize = crate::names::NAME_BYTES_MAX;
    /// Beyond the limits: the series that all others share.
    const NOTHING_YET: [(MethodIndex, PeerIndex, u32); Side::ALL.len()] = [
        (MethodIndex::OTHER, PeerIndex::OTHER, Side::Made as u32),
        (MethodIndex::OTHER, PeerIndex::OTHER, Side::Served as u32),
        (MethodIndex::OTHER, PeerIndex::OTHER, Side::Attempt as u32),
    ];

    /// Nothing recorded.
    pub fn new() -> Self {
        let mut telemetry = Self {
            methods: NumberedNames::new(Self::METHODS_MAX),
            peers: NumberedNames::new(Self::PEERS_MAX),
            clocks: vec![PeerClock::Same],
            series: Side::ALL.into_iter().map(SeriesSlot::other).collect(),
            free_series: Vec::new(),
            by_method: vec![
                Side::ALL.into_iter().map(|side| (PeerIndex::OTHER, side, side as u32)).collect(),
            ],
            recorder: FlightRecorder::new(),
            pending: Vec::with_capacity(Batch::CALLS),
            pace: Pace::default(),
            drawn: 0,
            passing: Vec::new(),
            last: Self::NOTHING_YET,
            traced: TracedCalls::default(),
            refused: RefusedRows::default(),
        };
        telemetry.peer("(local)", true);
        telemetry
    }

    /// The number of a method, by its path `/package.Service/Method`. Not for the call path: looks the name up.
    pub fn method(&mut self, path: &str) -> MethodIndex {
        let index = self.methods.number(path);
        self.by_method.resize_with(self.methods.len(), Vec::new);
        self.last = Self::NOTHING_YET;
        MethodIndex(index)
    }

    /// The number of another host, by the name reports shall show. `same_clock` if both hosts read one clock (equal
    /// clock ids in the native hello): then the offset is zero exactly, and nothing is estimated. Not for the call
    /// path.
    pub fn peer(&mut self, name: &str, same_clock: bool) -> PeerIndex {
        let index = self.peers.number(name);
        self.last = Self::NOTHING_YET;
        while self.clocks.len() < self.peers.len() {
            self.clocks.push(PeerClock::Same);
        }
        let clock = &mut self.clocks[index as usize];
        match (same_clock || index == PeerIndex::OTHER.0, &clock) {
            (true, _) => *clock = PeerClock::Same,
            (false, PeerClock::Same) => *clock = PeerClock::Estimated(Box::default()),
            (false, PeerClock::Estimated(_)) => {}
        }
        PeerIndex(index)
    }

    /// Counts a call that ended now without its [`Record`], if calls come so fast that some stand for others, and this
    /// one is not to be drawn. `false`: it is to be [recorded](Self::record).
    ///
    /// A call that is passed over has the status OK; it is counted with the next of its series that is recorded, or
    /// when somebody asks.
    #[inline]
    pub fn passes_over(&mut self, now: Instant, call: &UnaryCall) -> bool {
        if !self.pace.note(now) {
            return false;
        }
        let slot = self.slot(call.side, call.method, call.peer);
        let Some(keyed) = self.series.get_mut(slot) else { return false };
        if call.total_ns > keyed.slow_ns || !keyed.passing.pass_over(now, call.bytes) {
            return false;
        }
        if !keyed.is_passing {
            keyed.is_passing = true;
            self.passing.push(slot as u32);
        }
        true
    }

    /// Takes a finished call in. `now` bounds what its application may claim. It is written down at once, and counted
    /// with the next ones together, or when somebody asks.
    ///
    /// Allocates only for the first call of a (side, method, peer), for a first value of a new order of magnitude, and
    /// while the recorder fills.
    pub fn record(&mut self, now: Instant, record: &Record) {
        self.write_down(now, record, true, &mut |_| {});
    }

    /// Takes in a call that was refused before it began. It is counted as others are, and hardly written down.
    #[cold]
    pub fn record_refused(&mut self, now: Instant, record: &Record) {
        let parts = record.lines(now).divide(&mut |_| ClockOffset::SAME);
        let slot = self.slot(record.side, record.method, record.peer);
        self.count_long(slot, record, &parts, 0);
        if self.refused.take(now) {
            self.recorder.record(&Flight::pack(now, record, &parts, parts.total_ns(), 0).0);
        }
    }

    /// Takes in a finished call that belongs to a trace: it stands for others of its duration, and if it has a span of
    /// its own its ids and stamps are kept beside its row, and for whoever exports it.
    pub fn record_traced(&mut self, now: Instant, record: &Record, ids: CallTrace) {
        let mut parts = Components::default();
        self.write_down(now, record, false, &mut |told| parts = *told);
        let slot = self.slot(record.side, record.method, record.peer);
        let own = if record.side == Side::Attempt { ids.attempt } else { ids.span };
        let span = if own == 0 { ids.parent } else { own };
        let (at_ns, total_ns) = (now.0, parts.total_ns());
        self.series[slot].exemplars.note(Exemplar { at_ns, total_ns, trace: ids.trace, span });
        if ids.span != 0 {
            self.recorder.note_trace(record, ids);
            self.traced.add(TracedRow::new(record, ids, &parts, record.lines(now).ends_ns()));
        }
    }

    /// Says whether somebody exports calls of traces: only then they are kept.
    pub fn keep_traced(&mut self, is_exported: bool) {
        self.traced.keep(is_exported);
    }

    /// Whether methods that are new would be counted under `(other)`.
    pub fn has_all_methods(&self) -> bool {
        self.methods.is_full()
    }

    /// Whether hosts that are new would be counted under `(other)`.
    pub fn has_all_peers(&self) -> bool {
        self.peers.is_full()
    }

    /// How many other hosts are told apart: one of the names is this host's.
    pub fn peers_named(&self) -> usize {
        self.peers.named().saturating_sub(1)
    }

    /// Forgets methods and hosts that nobody uses any more, and their series: others get their numbers. Of the calls
    /// that are kept one by one, theirs are called `(other)` from now on.
    ///
    /// Not for every turn: looks at every call that is kept, two milliseconds when all room is taken.
    pub fn forget(
        &mut self,
        uses_method: impl Fn(MethodIndex) -> bool,
        uses_peer: impl Fn(PeerIndex) -> bool,
    ) {
        self.settle_all();
        self.last = Self::NOTHING_YET;
        let methods = self.methods.retain(|number| number == 0 || uses_method(MethodIndex(number)));
        let own = PeerIndex::LOCAL.0;
        let peers = self.peers.retain(|number| number <= own || uses_peer(PeerIndex(number)));
        let is_known =
            |method: MethodIndex, peer: PeerIndex| is_one_of(&methods, method.0) && is_one_of(&peers, peer.0);
        for (slot, keyed) in self.series.iter_mut().enumerate().skip(Side::ALL.len()) {
            if keyed.is_used() && !is_known(keyed.method, keyed.peer) {
                *keyed = SeriesSlot::other(keyed.side);
                self.free_series.push(slot as u32);
            }
        }
        for (places, is_known) in self.by_method.iter_mut().zip(&methods) {
            places.retain(|(peer, ..)| *is_known && is_one_of(&peers, peer.0));
            places.shrink_to_fit();
        }
        for (clock, is_known) in self.clocks.iter_mut().zip(&peers) {
            if !is_known {
                *clock = PeerClock::Same;
            }
        }
        self.free_series.sort_unstable();
        while self.free_series.pop_if(|last| *last as usize + 1 == self.series.len()).is_some() {
            self.series.pop();
        }
        self.series.shrink_to(2 * self.series.len());
        let known = |numbers: &[bool], number: u32| if is_one_of(numbers, number) { number } else { 0 };
        self.recorder.rename(|method| known(&methods, method), |peer| known(&peers, peer));
        self.traced.rename(|method| known(&methods, method), |peer| known(&peers, peer));
    }

    /// Divides a call and writes it down; it `may_stand` for others. Nearly always it goes the short way, which is all
    /// in one piece for each end.
    #[inline(always)]
    fn write_down(
        &mut self,
        now: Instant,
        record: &Record,
        may_stand: bool,
        told: &mut impl FnMut(&Components),
    ) {
        match record.side {
            Side::Served => self.write_down_for::<true>(now, record, may_stand, told),
            Side::Made => self.write_down_for::<false>(now, record, may_stand, told),
            Side::Attempt => self.write_down_for::<false>(now, record, false, told),
        }
    }

    #[inline(always)]
    fn write_down_for<const SERVED: bool>(
        &mut self,
        now: Instant,
        record: &Record,
        may_stand: bool,
        told: &mut impl FnMut(&Components),
    ) {
        let mut half_width_ns = 0;
        let clocks = &mut self.clocks;
        let offset = |wires: &Wires| PeerClock::look(clocks, record.peer, wires, &mut half_width_ns);
        match record.divide_in_order::<SERVED>(now, offset) {
            Some((parts, total_ns)) => {
                told(&parts);
                self.note(now, record, may_stand, (&parts, total_ns), half_width_ns);
            }
            None => told(&self.write_down_by_lines(now, record, may_stand)),
        }
    }

    #[cold]
    #[inline(never)]
    fn write_down_by_lines(&mut self, now: Instant, record: &Record, may_stand: bool) -> Components {
        let mut half_width_ns = 0;
        let clocks = &mut self.clocks;
        let mut offset = |wires: &Wires| PeerClock::look(clocks, record.peer, wires, &mut half_width_ns);
        let parts = record.lines(now).divide(&mut offset);
        self.note(now, record, may_stand, (&parts, parts.total_ns()), half_width_ns);
        parts
    }

    /// Writes a call down that is divided.
    #[inline(always)]
    fn note(
        &mut self,
        now: Instant,
        record: &Record,
        may_stand: bool,
        (parts, total_ns): (&Components, u64),
        half_width_ns: u64,
    ) {
        let slot = self.slot(record.side, record.method, record.peer);
        let (mut flight, is_exact) = Flight::pack(now, record, parts, total_ns, half_width_ns);
        let keyed = &mut self.series[slot];
        let is_slow = total_ns > keyed.slow_ns && !record.is_stream;
        flight.bits |= u32::from(is_slow) * Flight::SLOW;
        let is_ordinary = flight.bits & (Flight::CODE | Flight::SLOW | Flight::STREAM) == 0;
        if !is_exact {
            self.count_long(slot, record, parts, half_width_ns);
            return self.recorder.record(&flight);
        }
        // What is part of a stack is not longer than that.
        let wakeups_ns = [parts.request_wakeup_ns as u32, parts.response_wakeup_ns as u32];
        let kind = (slot as u32) << 4 | u32::from(record.is_stream) << 3 | parts.coverage as u32;
        let mut uncounted = Uncounted { kind, wakeups_ns, weight: 1, counts_itself: true };
        if !is_ordinary || !may_stand {
            keyed.passing.take_itself(now);
        } else if self.pace.is_rapid() || keyed.is_passing {
            let taken = keyed.take(now, self.pace.is_rapid(), &mut self.drawn);
            flight = flight.standing_for(taken.stands_for);
            keyed.passing.keep(&flight, uncounted);
            uncounted.weight = taken.weight;
        }
        self.recorder.record(&flight);
        self.pending.push(uncounted);
        if self.pending.len() >= Batch::CALLS || self.recorder.is_at_end() {
            self.settle();
        }
    }

    /// Counts a call of which something is too large for a batch. Those before it no longer lie side by side.
    #[cold]
    #[inline(never)]
    fn count_long(&mut self, slot: usize, record: &Record, parts: &Components, half_width_ns: u64) {
        self.settle();
        let keyed = &mut self.series[slot];
        keyed.series.record(&Counted {
            code: record.code,
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
            parts: *parts,
            total_ns: parts.total_ns(),
            half_width_ns,
            cpu_ns: record.server.map_or(0, |server| server.cpu_ns),
            subtree: record.server.map_or(0, |server| server.subtree),
            is_stream: record.is_stream,
        });
        if !record.is_stream && record.code == Code::Ok {
            keyed.note_slow(std::iter::once((parts.total_ns(), 1)));
        }
    }

    /// A handler of a call that did not end well, and is counted already, says what it took of its processor.
    pub fn note_failed_cpu(
        &mut self,
        (side, method, peer): (Side, MethodIndex, PeerIndex),
        code: Code,
        cpu_ns: u64,
    ) {
        let slot = self.slot(side, method, peer);
        self.series[slot].series.note_failed_cpu(cpu_ns);
        self.recorder.note_late(method, code, cpu_ns);
    }

    /// Counts what is pending, calls of one series and coverage together. Mostly all are: a busy application calls one
    /// method, and answers come from one peer.
    fn settle(&mut self) {
        let Self { pending, recorder, series, .. } = self;
        let batch = Batch { flights: recorder.newest(pending.len()), pending };
        let Some(first) = batch.pending.first() else { return };
        if batch.pending.iter().all(|call| call.kind == first.kind) {
            count(series, &batch, 0..pending.len() as u8);
        } else {
            // Numbers are sorted and not calls, which are a cache line and more.
            let kind = |n: &u8| batch.pending.get(usize::from(*n)).map(|call| call.kind);
            let mut order: [u8; Batch::CALLS] = std::array::from_fn(|n| n as u8);
            let order = &mut order[..pending.len().min(Batch::CALLS)];
            order.sort_unstable_by_key(kind);
            for run in order.chunk_by(|a, b| kind(a) == kind(b)) {
                count(series, &batch, run.iter().copied());
            }
        }
        self.pending.clear();
    }

    /// The same, and what was passed over since, by the last call of its series: whoever asks is told of every call.
    fn settle_all(&mut self) {
        self.settle();
        for slot in self.passing.drain(..) {
            let Some(keyed) = self.series.get_mut(slot as usize) else { continue };
            keyed.is_passing = false;
            if let Some((bytes, flight, uncounted)) = keyed.passing.count() {
                keyed.series.note_passed_bytes(bytes);
                keyed.series.note_counted_before(&flight, &uncounted);
                let batch = Batch { flights: &[flight], pending: &[uncounted] };
                count(&mut self.series, &batch, 0..1);
            }
        }
    }

    /// The series and, if asked for, calls one by one, with names instead of numbers.
    ///
    /// Not for every turn: copies what is asked for, and with samples reads the whole ring (4 MiB). A shard hands it
    /// over in parts instead: [`Telemetry::begin_snapshot`].
    pub fn snapshot(&mut self, now: Instant, ask: &Ask) -> Snapshot {
        let mut parts = self.begin_snapshot(now, ask.clone());
        while self.copy_part(&mut parts) {}
        parts.finish()
    }

    /// Begins a snapshot of what is counted now.
    pub fn begin_snapshot(&mut self, now: Instant, ask: Ask) -> SnapshotParts {
        self.settle_all();
        let (traced, lost) = (self.take_traced(ask.traced_max), self.traced.lost());
        SnapshotParts::new(now, ask, self.recorder.read(now)).with_traced(traced, lost)
    }

    /// Copies another part of a snapshot: so much as a turn has time for. `false`: it is complete, and can be
    /// [finished](SnapshotParts::finish) elsewhere.
    pub fn copy_part(&self, parts: &mut SnapshotParts) -> bool {
        let read = parts.series_read;
        let count = self.series.len().saturating_sub(read).min(parts.series_per_part());
        if count > 0 {
            parts.series_read += count;
            for keyed in &self.series[read..read + count] {
                let method = self.methods.name(keyed.method.0);
                if keyed.series.calls() > 0 && parts.ask.wants(method) {
                    let series = match parts.ask.detail {
                        Detail::Whole => (*keyed.series).clone(),
                        Detail::Totals => keyed.series.totals(),
                    };
                    let (method, peer) = (method.to_owned(), self.peers.name(keyed.peer.0).to_owned());
                    let from_ns = parts.begun.0.saturating_sub(EXEMPLAR_NS_MAX);
                    let (side, exemplars) = (keyed.side, keyed.exemplars.since(from_ns));
                    parts.series.push(Entry { side, method, peer, series, exemplars });
                }
            }
            return true;
        }
        parts.copy_calls(&self.recorder, || (self.methods.names.clone(), self.peers.names.clone()))
    }

    /// Goes on counting where a shard of another daemon stopped: these are its series, by their names. What is beyond
    /// the limits here is counted under `(other)`.
    pub fn take_up(&mut self, entries: Vec<Entry>) {
        for Entry { side, method, peer, series, exemplars } in entries {
            // Which clock the other host reads it says when its connection is known here.
            let peer = if peer == OTHER { PeerIndex::OTHER } else { PeerIndex(self.peers.number(&peer)) };
            self.clocks.resize_with(self.peers.len(), || PeerClock::Same);
            let method = if method == OTHER { MethodIndex::OTHER } else { self.method(&method) };
            let slot = self.slot(side, method, peer);
            self.series[slot].series.merge(&series);
            self.series[slot].exemplars.merge(&exemplars);
        }
    }

    /// Goes on recording where a shard of another daemon stopped: these are calls of its recorder, all of some numbers.
    pub fn take_up_calls(&mut self, calls: CallsAnswer) {
        let CallsAnswer { next, rows, traces, methods, peers, .. } = calls;
        let method = |(number, name): (u32, String)| {
            (number, if name == OTHER { MethodIndex::OTHER } else { self.method(&name) })
        };
        let methods: BTreeMap<u32, MethodIndex> = methods.into_iter().map(method).collect();
        let peer = |(number, name): (u32, String)| {
            (number, if name == OTHER { PeerIndex::OTHER } else { PeerIndex(self.peers.number(&name)) })
        };
        let peers: BTreeMap<u32, PeerIndex> = peers.into_iter().map(peer).collect();
        self.clocks.resize_with(self.peers.len(), || PeerClock::Same);
        // What waits to be counted lies beside what was written down last.
        self.settle();
        let first = next.saturating_sub(rows.len() as u64);
        let mut traces = traces.into_iter().peekable();
        for ((place, mut call), number) in (0..).zip(rows).zip(first..) {
            call.row.method = methods.get(&call.row.method.0).copied().unwrap_or(MethodIndex::OTHER);
            call.row.peer = peers.get(&call.row.peer.0).copied().unwrap_or(PeerIndex::OTHER);
            self.recorder.take_up(number, &call.row);
            if let Some((_, trace)) = traces.next_if(|(of, _)| *of == place) {
                self.recorder.take_up_trace(trace.ids, trace.client, trace.server);
            }
        }
    }

    fn take_traced(&mut self, max: usize) -> Vec<TracedCall> {
        let Self { traced, methods, peers, .. } = self;
        let named = |row: TracedRow| row.named(methods.name(row.method.0), peers.name(row.peer.0));
        traced.take(max).into_iter().map(named).collect()
    }

    /// The calls one by one.
    pub fn recorder(&mut self) -> &FlightRecorder {
        self.settle();
        &self.recorder
    }

    /// Calls that ended since the last time, with the names they need.
    ///
    /// Looks at [`CallsAnswer::SCAN_MAX`] calls at most, some tens of microseconds: an owner who has turns to take is
    /// asked again for the rest.
    pub fn calls(&mut self, ask: &CallsAsk) -> CallsAnswer {
        let is_own = |method: MethodIndex| is_own_method(self.methods.name(method.0));
        let mut answer = CallsAnswer::of(&self.recorder, ask, is_own);
        let of_rows = answer.rows.iter().map(|row| row.row.method.0);
        let methods = of_rows.chain(answer.late.iter().map(|late| late.method.0));
        answer.methods = names_of(methods, &self.methods);
        answer.peers = names_of(answer.rows.iter().map(|row| row.row.peer.0), &self.peers);
        answer
    }

    /// Heap bytes in use by counters and calls; names and clock estimates come to less than a megabyte on top.
    pub fn heap_bytes(&self) -> usize {
        let series = self.series.iter().map(|keyed| size_of::<Series>() + keyed.series.heap_bytes());
        self.recorder.heap_bytes() + series.sum::<usize>()
    }

    /// The name behind a number.
    pub fn method_name(&self, method: MethodIndex) -> &str {
        self.methods.name(method.0)
    }

    /// The name behind a number.
    pub fn peer_name(&self, peer: PeerIndex) -> &str {
        self.peers.name(peer.0)
    }

    /// Whether this host's clock is said to be a peer's, too.
    pub fn has_same_clock(&self, peer: PeerIndex) -> bool {
        !matches!(self.clocks.get(peer.0 as usize), Some(PeerClock::Estimated(_)))
    }

    /// The offset estimate to this peer, at `now`.
    pub fn offset(&self, peer: PeerIndex, now: Instant) -> ClockOffset {
        match self.clocks.get(peer.0 as usize) {
            Some(PeerClock::Estimated(pair)) => pair.offset(now.0),
            Some(PeerClock::Same) | None => ClockOffset::SAME,
        }
    }

    #[inline(always)]
    fn slot(&mut self, side: Side, method: MethodIndex, peer: PeerIndex) -> usize {
        let last = &mut self.last[side as usize];
        if (last.0, last.1) != (method, peer) {
            let slot = self.find_slot(side, method, peer);
            self.last[side as usize] = (method, peer, slot as u32);
            return slot;
        }
        last.2 as usize
    }

    fn find_slot(&mut self, side: Side, method: MethodIndex, peer: PeerIndex) -> usize {
        let known = |index: u32, count: usize| if (index as usize) < count { index } else { 0 };
        let method = MethodIndex(known(method.0, self.by_method.len()));
        let peer = PeerIndex(known(peer.0, self.clocks.len()));
        let wanted = (peer, side);
        let places = &self.by_method[method.0 as usize];
        match places.binary_search_by_key(&wanted, |&(peer, side, _)| (peer, side)) {
            Ok(at) => places[at].2 as usize,
            Err(at) => self.new_slot(side, method, peer, at),
        }
    }

    /// Makes room for a new series, or falls back to the one all others share.
    #[cold]
    fn new_slot(&mut self, side: Side, method: MethodIndex, peer: PeerIndex, at: usize) -> usize {
        let slot = match self.free_series.pop() {
            Some(slot) => slot as usize,
            None if self.series.len() >= Self::SERIES_MAX => return side as usize,
            None => self.series.len(),
        };
        self.by_method[method.0 as usize].insert(at, (peer, side, slot as u32));
        let keyed = SeriesSlot::new(side, method, peer);
        match self.series.get_mut(slot) {
            Some(free) => *free = keyed,
            None => self.series.push(keyed),
        }
        slot
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::new()
    }
}

fn is_one_of(numbers: &[bool], number: u32) -> bool {
    numbers.get(number as usize).copied().unwrap_or(false)
}

/// The names behind these numbers, each once.
fn names_of(numbers: impl Iterator<Item = u32>, names: &NumberedNames) -> Vec<(u32, String)> {
    let numbers: BTreeSet<u32> = numbers.collect();
    numbers.into_iter().map(|number| (number, names.name(number).to_owned())).collect()
}
