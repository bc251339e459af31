//! The flight recorder: the last calls one by one, and the ones worth keeping for longer.

use crate::component::{Component, Components, Coverage, StampSet};
use crate::record::{Record, Side};
use crate::traced::CallTrace;
use crate::{MethodIndex, PeerIndex};
use std::collections::VecDeque;
use trunkline_call::{ClientStamps, Code, Instant, ServerStamps};

/// Calls in the ring. At 80 bytes each, 5 MiB per shard, of which only what was written is resident.
pub const RING_CALLS: usize = 64 * 1024;
/// Numbers of peers a row has room for.
pub(crate) const PEERS_MAX: usize = 1 << 16;
/// Calls of the ring that are read at once: a tenth of a millisecond.
const CALLS_PER_PART: usize = 4 * 1024;
/// Calls of the ring whose trace is kept beside it: 224 bytes each, 3.5 MiB per shard, and only where calls have spans.
pub const TRACES_MAX: usize = 16 * 1024;
/// Calls each of the three strata keeps: 320 KiB.
pub const STRATUM_CALLS: usize = 4 * 1024;
/// How far the strata reach back, at least: ten minutes.
pub const EPOCH_NS: u64 = 600_000_000_000;

/// One shard's recorder.
///
/// The ring holds every one of the last [`RING_CALLS`] calls; on a busy host that is less than a second. Beside it,
/// three strata reach back between one and two [`EPOCH_NS`]: calls that failed, the slowest twentieth of each
/// method, and the rest. A stratum that is full drops every second call and from then on takes every second one, so
/// each call it keeps stands for the same number of calls, its *weight*. No randomness, and no part of the period is
/// favoured.
#[derive(Debug, Default)]
pub struct FlightRecorder {
    ring: Vec<Flight>,
    /// Where the next call goes once the ring is full.
    next: usize,
    /// Calls written down since the beginning.
    written: u64,
    /// Of the newest calls of the ring, those that belong to a trace, oldest first.
    traces: VecDeque<FlightTrace>,
    /// The calls since the epoch began.
    current: Strata,
    /// Those of the epoch before.
    previous: Strata,
    epoch_began: Instant,
}

/// How far a recorder has been read.
#[derive(Debug)]
pub(crate) struct FlightReader {
    /// Where in the ring to read next, and how many are left.
    next: usize,
    left: usize,
    strata_read: usize,
}

/// The sample of one epoch.
#[derive(Debug, Default)]
struct Strata {
    failed: Stratum,
    slow: Stratum,
    rest: Stratum,
}

/// One recorded call, as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightRow {
    /// When it ended.
    pub at: Instant,
    /// Which end this host was.
    pub side: Side,
    /// The method.
    pub method: MethodIndex,
    /// The other host.
    pub peer: PeerIndex,
    /// How it ended.
    pub code: Code,
    /// Where its time went. A part of a call longer than 4.29 s is exact to one in 2³¹ of the call.
    pub components: Components,
    /// Request message bytes, at most `u32::MAX`.
    pub request_bytes: u32,
    /// Response message bytes, at most `u32::MAX`.
    pub response_bytes: u32,
    /// Processor time of the handler, at most 4.29 s; 0 if it told none.
    pub cpu_ns: u32,
    /// Calls below this one, itself included; 0 if nobody told.
    pub subtree: u32,
    /// How much the two wires may have to give each other; `u32::MAX` if nothing is known of the other clock.
    pub half_width_ns: u32,
    /// It was among the slowest twentieth of its method when it ended.
    pub slow: bool,
}

/// What is kept of a call that belongs to a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightTrace {
    /// The number of the call.
    pub number: u64,
    /// Its ids.
    pub ids: CallTrace,
    /// This host's stamps of a call made here.
    pub client: ClientStamps,
    /// The server's stamps, on its own clock; none taken if nobody told.
    pub server: ServerStamps,
}

/// A row and how many calls it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighted {
    /// The call.
    pub row: FlightRow,
    /// Calls it stands for, itself included.
    pub weight: u64,
}

/// A row as it is kept.
#[derive(Clone, Copy, Debug)]
struct Flight {
    at: u64,
    method: u32,
    request_bytes: u32,
    response_bytes: u32,
    /// Nanoseconds >> `shift`.
    parts: [u32; Component::COUNT],
    /// Bits 0…16 stand-ins, 17 kernel sent, 18 slow, 19 clipped, 21…25 code, 26…31 shift.
    bits: u32,
    cpu_ns: u32,
    subtree: u32,
    half_width_ns: u32,
    peer: u16,
    /// Bits 0…2 coverage, 3…4 side.
    ends: u16,
}

const _: () = assert!(size_of::<Flight>() == 80);

/// An evenly thinned sample.
#[derive(Debug)]
struct Stratum {
    kept: Vec<Flight>,
    /// Every so many calls one is kept.
    stride: u64,
    /// Calls seen since the last one kept.
    skipped: u64,
}

impl FlightRecorder {
    /// An empty recorder. Memory is taken as calls come.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes one call down; `slow` if it is among the slowest twentieth of its method. `half_width_ns` is how well the
    /// other host's clock is known.
    pub fn record(
        &mut self,
        at: Instant,
        record: &Record,
        components: &Components,
        slow: bool,
        half_width_ns: u64,
    ) {
        let mut flight = Flight::pack(at, record, components);
        flight.bits |= u32::from(slow) << 18;
        flight.half_width_ns = narrow(half_width_ns);
        self.write(flight);
    }

    /// The call that had this number in another recorder is the last one here. Where numbers are missing before it,
    /// what is older is left out.
    pub(crate) fn take_up(&mut self, number: u64, row: &FlightRow) {
        if number != self.written {
            (self.ring, self.next) = (Vec::new(), 0);
            self.traces.clear();
            self.written = number;
        }
        self.write(Flight::of(row));
    }

    /// The call taken up last belongs to this trace.
    pub(crate) fn take_up_trace(&mut self, ids: CallTrace, client: ClientStamps, server: ServerStamps) {
        let number = self.written.saturating_sub(1);
        self.push_trace(FlightTrace { number, ids, client, server });
    }

    #[inline]
    fn write(&mut self, flight: Flight) {
        let (at, slow) = (Instant(flight.at), flight.bits >> 18 & 1 == 1);
        self.written += 1;
        if self.ring.len() < RING_CALLS {
            if self.ring.capacity() == 0 {
                // All at once: growing would copy what is there in the middle of a call.
                self.ring.reserve_exact(RING_CALLS);
            }
            self.ring.push(flight);
        } else if let Some(oldest) = self.ring.get_mut(self.next) {
            *oldest = flight;
            self.next = (self.next + 1) % RING_CALLS;
        }
        if at.since_ns(self.epoch_began) >= EPOCH_NS {
            self.turn_epoch(at);
        }
        let is_ok = flight.bits >> 21 & 31 == u32::from(Code::Ok.number());
        let stratum = match (is_ok, slow) {
            (true, false) => &mut self.current.rest,
            (true, true) => &mut self.current.slow,
            _ => &mut self.current.failed,
        };
        stratum.offer(&flight);
    }

    /// The call written down last belongs to this trace.
    pub fn note_trace(&mut self, record: &Record, ids: CallTrace) {
        let (number, server) = (self.written.saturating_sub(1), record.server.unwrap_or_default());
        self.push_trace(FlightTrace { number, ids, client: record.client, server });
    }

    fn push_trace(&mut self, trace: FlightTrace) {
        if self.traces.len() >= TRACES_MAX {
            self.traces.pop_front();
        }
        self.traces.push_back(trace);
    }

    /// What is known of the traces of the calls that have the numbers from `from` on, oldest first.
    pub fn traces_since(&self, from: u64) -> impl Iterator<Item = &FlightTrace> {
        let first = self.traces.partition_point(|trace| trace.number < from);
        self.traces.range(first..)
    }

    /// The last calls, newest first.
    pub fn recent(&self) -> impl Iterator<Item = FlightRow> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        newer.iter().rev().chain(older.iter().rev()).map(Flight::unpack)
    }

    /// Calls written down since the beginning: the number that the next one gets.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The calls that have the numbers from `from` on, oldest first, each with its number, as far as they are still
    /// there.
    pub fn since(&self, from: u64) -> impl Iterator<Item = (u64, FlightRow)> {
        let oldest = self.written - self.ring.len() as u64;
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        let skipped = usize::try_from(from.saturating_sub(oldest)).unwrap_or(usize::MAX).min(self.ring.len());
        let older_skipped = skipped.min(older.len());
        let rest = older[older_skipped..].iter().chain(&newer[skipped - older_skipped..]);
        (oldest.max(from)..).zip(rest.map(Flight::unpack))
    }

    /// A sample of all calls of this epoch and the one before, with weights.
    pub fn sample(&self) -> impl Iterator<Item = Weighted> {
        self.strata().flat_map(|stratum| {
            stratum.kept.iter().map(|flight| Weighted { row: flight.unpack(), weight: stratum.stride })
        })
    }

    /// Begins to read all there is, a part at a time.
    pub(crate) fn read(&self) -> FlightReader {
        let newest = self.next.checked_sub(1).unwrap_or(self.ring.len().saturating_sub(1));
        FlightReader { next: newest, left: self.ring.len(), strata_read: 0 }
    }

    /// The next of the last calls, newest first; what has been written since the reader began is left out. `false`:
    /// there are no more.
    pub(crate) fn read_recent(
        &self,
        reader: &mut FlightReader,
        begun: Instant,
        mut take: impl FnMut(FlightRow),
    ) -> bool {
        for _ in 0..reader.left.min(CALLS_PER_PART) {
            if let Some(flight) = self.ring.get(reader.next).filter(|flight| flight.at <= begun.0) {
                take(flight.unpack());
            }
            reader.next = reader.next.checked_sub(1).unwrap_or(self.ring.len().saturating_sub(1));
            reader.left -= 1;
        }
        reader.left > 0
    }

    /// The next stratum of the sample. `false`: there are no more.
    pub(crate) fn read_sample(&self, reader: &mut FlightReader, mut take: impl FnMut(Weighted)) -> bool {
        let Some(stratum) = self.strata().nth(reader.strata_read) else { return false };
        reader.strata_read += 1;
        for flight in &stratum.kept {
            take(Weighted { row: flight.unpack(), weight: stratum.stride });
        }
        true
    }

    /// Other numbers for methods and peers, of every call there is.
    pub(crate) fn rename(&mut self, method: impl Fn(u32) -> u32, peer: impl Fn(u32) -> u32) {
        let strata = [&mut self.current, &mut self.previous].into_iter();
        let strata = strata.flat_map(|strata| [&mut strata.failed, &mut strata.slow, &mut strata.rest]);
        for flight in strata.flat_map(|stratum| &mut stratum.kept).chain(&mut self.ring) {
            flight.method = method(flight.method);
            flight.peer = peer(flight.peer.into()) as u16;
        }
    }

    /// Heap bytes in use; those of the ring that nobody has written to are not.
    pub fn heap_bytes(&self) -> usize {
        let kept = self.strata().map(|stratum| stratum.kept.capacity());
        let traces = self.traces.capacity() * size_of::<FlightTrace>();
        (self.ring.len() + kept.sum::<usize>()) * size_of::<Flight>() + traces
    }

    fn strata(&self) -> impl Iterator<Item = &Stratum> {
        [&self.current, &self.previous]
            .into_iter()
            .flat_map(|strata| [&strata.failed, &strata.slow, &strata.rest])
    }

    /// Begins an epoch at `at`; the memory of the one before the last is used again.
    #[cold]
    fn turn_epoch(&mut self, at: Instant) {
        std::mem::swap(&mut self.current, &mut self.previous);
        let Strata { failed, slow, rest } = &mut self.current;
        for stratum in [failed, slow, rest] {
            stratum.clear();
        }
        self.epoch_began = at;
    }
}

impl Stratum {
    fn offer(&mut self, flight: &Flight) {
        self.skipped += 1;
        if self.skipped < self.stride {
            return;
        }
        self.skipped = 0;
        if self.kept.capacity() == 0 {
            // As with the ring: only what is written is resident.
            self.kept.reserve_exact(STRATUM_CALLS);
        }
        self.kept.push(*flight);
        if self.kept.len() == STRATUM_CALLS {
            self.thin();
        }
    }

    fn thin(&mut self) {
        let mut nth = 0;
        self.kept.retain(|_| {
            nth += 1;
            nth % 2 == 0
        });
        self.stride *= 2;
    }

    fn clear(&mut self) {
        self.kept.clear();
        self.stride = 1;
        self.skipped = 0;
    }
}

impl Default for Stratum {
    fn default() -> Self {
        Self { kept: Vec::new(), stride: 1, skipped: 0 }
    }
}

impl Flight {
    fn pack(at: Instant, record: &Record, components: &Components) -> Self {
        let (bits, shift) = Self::bits(components, record.code);
        Self {
            at: at.0,
            method: record.method.0,
            request_bytes: narrow(record.request_bytes),
            response_bytes: narrow(record.response_bytes),
            parts: components.ns.map(|ns| (ns >> shift) as u32),
            bits,
            cpu_ns: narrow(record.server.map_or(0, |server| server.cpu_ns)),
            subtree: record.server.map_or(0, |server| server.subtree),
            half_width_ns: 0,
            peer: record.peer.0 as u16,
            ends: components.coverage as u16 | (record.side as u16) << 3,
        }
    }

    /// A row that was one before.
    fn of(row: &FlightRow) -> Self {
        let (bits, shift) = Self::bits(&row.components, row.code);
        Self {
            at: row.at.0,
            method: row.method.0,
            request_bytes: row.request_bytes,
            response_bytes: row.response_bytes,
            parts: row.components.ns.map(|ns| (ns >> shift) as u32),
            bits: bits | u32::from(row.slow) << 18,
            cpu_ns: row.cpu_ns,
            subtree: row.subtree,
            half_width_ns: row.half_width_ns,
            peer: row.peer.0 as u16,
            ends: row.components.coverage as u16 | (row.side as u16) << 3,
        }
    }

    /// What is not slow, and how far the parts are shifted.
    fn bits(components: &Components, code: Code) -> (u32, u32) {
        let largest = components.ns.iter().fold(0, |all, ns| all | ns);
        let shift = (u64::BITS - largest.leading_zeros()).saturating_sub(u32::BITS);
        let bits = components.stand_ins.bits()
            | u32::from(components.kernel_sent) << 17
            | u32::from(components.clipped) << 19
            | u32::from(code.number()) << 21
            | shift << 26;
        (bits, shift)
    }

    fn unpack(&self) -> FlightRow {
        let shift = self.bits >> 26;
        let components = Components {
            ns: self.parts.map(|part| u64::from(part) << shift),
            coverage: of(&Coverage::ALL, self.ends & 7),
            kernel_sent: self.bits >> 17 & 1 == 1,
            stand_ins: StampSet::from_bits(self.bits),
            clipped: self.bits >> 19 & 1 == 1,
            ..Components::default()
        };
        FlightRow {
            at: Instant(self.at),
            side: of(&Side::ALL, self.ends >> 3),
            method: MethodIndex(self.method),
            peer: PeerIndex(self.peer.into()),
            code: Code::from_number((self.bits >> 21 & 31) as u16),
            components,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            cpu_ns: self.cpu_ns,
            subtree: self.subtree,
            half_width_ns: self.half_width_ns,
            slow: self.bits >> 18 & 1 == 1,
        }
    }
}

/// The value with this number.
fn of<T: Copy>(all: &[T], number: u16) -> T {
    all[usize::from(number).min(all.len() - 1)]
}

fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    //! Shows that a row comes back as it went in, and how a stratum thins.
    use super::*;
    use crate::component::Stamp;
    use proptest::prelude::*;

    fn record(side: Side, code: Code) -> Record {
        Record {
            side,
            method: MethodIndex(7),
            peer: PeerIndex(9),
            code,
            request_bytes: 1 << 40,
            response_bytes: 8,
            client: Default::default(),
            server: None,
        }
    }

    proptest! {
        #[test]
        fn rows_come_back(
            ns in prop::array::uniform9(0..=u64::MAX / 9),
            small in any::<bool>(),
            code in 0..17_u16,
            clipped in any::<bool>(),
            side in prop::sample::select(&Side::ALL),
            coverage in prop::sample::select(&Coverage::ALL),
        ) {
            let ns = if small { ns.map(|ns| ns % (1 << 32)) } else { ns };
            let mut stand_ins = StampSet::default();
            stand_ins.insert(Stamp::A0);
            stand_ins.insert(Stamp::A18);
            let kernel_sent = !clipped;
            let parts = Components { ns, coverage, clipped, kernel_sent, stand_ins, ..Components::default() };
            let row = Flight::pack(Instant(5), &record(side, Code::from_number(code)), &parts).unpack();
            prop_assert_eq!((row.side, row.code, row.at), (side, Code::from_number(code), Instant(5)));
            prop_assert_eq!((row.method, row.peer), (MethodIndex(7), PeerIndex(9)));
            prop_assert_eq!((row.request_bytes, row.response_bytes), (u32::MAX, 8));
            prop_assert_eq!(Flight::of(&row).unpack(), row, "and once more");
            let back = row.components;
            prop_assert_eq!((back.coverage, back.clipped, back.stand_ins), (coverage, clipped, stand_ins));
            prop_assert_eq!(back.kernel_sent, kernel_sent);
            let largest = ns.into_iter().max().unwrap_or(0);
            for (kept, exact) in back.ns.into_iter().zip(ns) {
                prop_assert!(exact - kept <= largest >> 31, "{} for {}", kept, exact);
                prop_assert!(!small || kept == exact);
            }
        }
    }

    #[test]
    fn a_full_ring_of_traces_keeps_the_newest() {
        let mut recorder = FlightRecorder::new();
        let one = record(Side::Made, Code::Ok);
        let calls = TRACES_MAX as u64 + 100;
        for number in 0..calls {
            recorder.record(Instant(number), &one, &Components::default(), false, 0);
            recorder
                .note_trace(&one, CallTrace { trace: u128::from(number), span: 1, ..CallTrace::default() });
        }
        let kept: Vec<(u64, u128)> =
            recorder.traces_since(0).map(|trace| (trace.number, trace.ids.trace)).collect();
        let newest: Vec<_> = (100..calls).map(|number| (number, u128::from(number))).collect();
        assert_eq!(kept.len(), TRACES_MAX);
        assert!(kept == newest, "each beside its call, oldest first");
        assert_eq!(recorder.traces_since(calls - 3).count(), 3);
    }

    #[test]
    fn a_full_stratum_keeps_every_second() {
        let mut stratum = Stratum::default();
        for n in 1..=(3 * STRATUM_CALLS as u64) {
            stratum.offer(&Flight::pack(Instant(n), &record(Side::Made, Code::Ok), &Components::default()));
        }
        assert_eq!((stratum.stride, stratum.kept.len()), (4, STRATUM_CALLS / 4 * 3));
        assert!(stratum.kept.windows(2).all(|pair| pair[1].at - pair[0].at == 4));
    }
}
