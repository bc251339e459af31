//! The flight recorder: the last calls one by one, and the ones worth keeping for longer.

use crate::MethodIndex;
use crate::flight::{Flight, FlightRow};
use crate::record::Record;
use crate::traced::CallTrace;
use std::collections::VecDeque;
use trunkline_call::{ClientStamps, Code, Instant, ServerStamps};

/// Calls in the ring. At 80 bytes each, 5 MiB per shard, of which only what was written is resident.
pub const RING_CALLS: usize = 64 * 1024;
/// Numbers of peers a row has room for.
pub(crate) const PEERS_MAX: usize = 1 << 16;
/// Calls of the ring that are read at once: a tenth of a millisecond.
const CALLS_PER_PART: usize = 4 * 1024;
/// Calls of the ring whose trace is kept beside it: 240 bytes each, 3.8 MiB per shard, and only where calls have spans.
pub const TRACES_MAX: usize = 16 * 1024;
/// Words of handlers whose calls were over before them: 32 bytes each, 128 KiB. `trunkline record`, which asks every 50
/// ms, would miss some of more than 80,000 cancelled calls a second of a shard.
pub const LATE_MAX: usize = 4 * 1024;
/// Calls each of the three strata keeps: 320 KiB.
pub const STRATUM_CALLS: usize = 4 * 1024;
/// How far the strata reach back, at least: ten minutes.
pub const EPOCH_NS: u64 = 600_000_000_000;
/// Of two epochs.
const STRATA: usize = 6;

/// One shard's recorder.
///
/// The ring holds the last [`RING_CALLS`] calls that were written down, which is every one unless they come so fast
/// that one [stands for](FlightRow::stands_for) others; on a busy host that is a second or two. Beside it, three strata
/// reach back two [`EPOCH_NS`] at most, and one if there were calls then: calls that failed, the slowest twentieth of
/// each method, and the rest. A stratum that is full drops one of every two calls and from then on takes one of every
/// two, so each call it keeps stands for the same number of calls of the ring, which with those that they stand for is
/// its *weight*. Which one of them is drawn: where two methods are called by turns, every second call would be of one.
/// No part of the period is favoured.
#[derive(Debug, Default)]
pub struct FlightRecorder {
    ring: Vec<Flight>,
    /// Where the next call goes once the ring is full.
    next: usize,
    /// Calls written down since the beginning.
    written: u64,
    /// Of the newest calls of the ring, those that belong to a trace, oldest first.
    traces: VecDeque<FlightTrace>,
    /// What handlers said last whose calls were written down before, oldest first.
    late: VecDeque<LateHandler>,
    /// The calls since the epoch began.
    current: Strata,
    /// Those of the epoch before.
    previous: Strata,
    epoch_began: Instant,
    previous_began: Instant,
    /// Calls from before it are missing: another recorder had them.
    began: Instant,
}

/// How far a recorder has been read.
#[derive(Debug)]
pub(crate) struct FlightReader {
    /// What is read tells of all calls that ended since.
    pub since: Instant,
    /// Where in the ring to read next, and how many are left; none are if the strata tell of more.
    next: usize,
    left: usize,
    /// Strata that were read: all of them if the ring is.
    strata_read: usize,
}

/// The sample of one epoch.
#[derive(Debug, Default)]
struct Strata {
    failed: Stratum,
    slow: Stratum,
    rest: Stratum,
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

const _: () = assert!(size_of::<FlightTrace>() == 240);

/// What a handler took whose call was over before it: the call's row does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateHandler {
    /// The number that the next call got.
    pub number: u64,
    /// The method.
    pub method: MethodIndex,
    /// How the call had ended.
    pub code: Code,
    /// Processor time of the handler.
    pub cpu_ns: u64,
}

/// A row and how many calls it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighted {
    /// The call.
    pub row: FlightRow,
    /// Calls it stands for, itself included.
    pub weight: u64,
}

/// An evenly thinned sample.
#[derive(Debug)]
struct Stratum {
    kept: Vec<Flight>,
    /// Of so many calls in a row one is kept.
    stride: u64,
    /// Calls seen since the last one kept.
    skipped: u64,
    /// The next one kept is so many after the last.
    wanted: u64,
    /// How many of those the last was kept of are behind it.
    behind: u64,
    /// Numbers drawn so far.
    drawn: u64,
}

impl FlightRecorder {
    /// An empty recorder. Memory is taken as calls come.
    pub fn new() -> Self {
        Self::default()
    }

    /// The call that had this number in another recorder is the last one here. Where numbers are missing before it,
    /// what is older is left out.
    pub(crate) fn take_up(&mut self, number: u64, row: &FlightRow) {
        if number != self.written {
            (self.ring, self.next) = (Vec::new(), 0);
            self.traces.clear();
            (self.written, self.began) = (number, row.at);
        }
        self.record(&Flight::of(row));
    }

    /// The call taken up last belongs to this trace.
    pub(crate) fn take_up_trace(&mut self, ids: CallTrace, client: ClientStamps, server: ServerStamps) {
        let number = self.written.saturating_sub(1);
        self.push_trace(FlightTrace { number, ids, client, server });
    }

    /// Writes one call down.
    #[inline]
    pub(crate) fn record(&mut self, flight: &Flight) {
        self.written += 1;
        if self.ring.len() < RING_CALLS {
            self.fill(flight);
        } else if let Some(oldest) = self.ring.get_mut(self.next) {
            *oldest = *flight;
            self.next = (self.next + 1) % RING_CALLS;
        }
        let at = Instant(flight.at);
        if at.since_ns(self.epoch_began) >= EPOCH_NS {
            self.turn_epoch(at);
        }
        let stratum = match (flight.bits & Flight::CODE, flight.bits & Flight::SLOW) {
            (0, 0) => &mut self.current.rest,
            (0, _) => &mut self.current.slow,
            _ => &mut self.current.failed,
        };
        stratum.offer(flight);
    }

    fn fill(&mut self, flight: &Flight) {
        if self.ring.capacity() == 0 {
            // All at once: growing would copy what is there in the middle of a call.
            self.ring.reserve_exact(RING_CALLS);
        }
        self.ring.push(*flight);
    }

    /// Whether the call written down last is at the end of the ring: the next one is not beside it.
    #[inline]
    pub(crate) fn is_at_end(&self) -> bool {
        self.next == 0 && self.ring.len() >= RING_CALLS
    }

    /// So many of the calls that were written down last, oldest first; fewer if the ring [ended](Self::is_at_end) among
    /// them.
    pub(crate) fn newest(&self, count: usize) -> &[Flight] {
        let end = if self.next == 0 { self.ring.len() } else { self.next };
        self.ring.get(end.saturating_sub(count)..end).unwrap_or_default()
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

    /// A handler says what it took of a call that is over.
    pub(crate) fn note_late(&mut self, method: MethodIndex, code: Code, cpu_ns: u64) {
        if self.late.len() >= LATE_MAX {
            self.late.pop_front();
        }
        self.late.push_back(LateHandler { number: self.written, method, code, cpu_ns });
    }

    /// What handlers said late while calls got the numbers from `from` to `to`, without the last.
    pub fn late_between(&self, from: u64, to: u64) -> impl Iterator<Item = &LateHandler> {
        let place = |number: u64| self.late.partition_point(|late| late.number < number);
        self.late.range(place(from)..place(to).max(place(from)))
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
        self.strata().flat_map(|stratum| stratum.weighted())
    }

    /// Begins to read, a part at a time: the ring if it reaches back half as far as the strata, which then have fewer
    /// calls of the same time, otherwise those.
    pub(crate) fn read(&self, begun: Instant) -> FlightReader {
        let newest = self.next.checked_sub(1).unwrap_or(self.ring.len().saturating_sub(1));
        let is_full = self.ring.len() >= RING_CALLS;
        let oldest = self.ring.get(self.next).filter(|_| is_full).map(|flight| Instant(flight.at));
        let (of_ring, of_strata) = (oldest.unwrap_or(self.began), self.previous_began.max(self.began));
        if begun.since_ns(of_ring) >= begun.since_ns(of_strata) / 2 {
            return FlightReader { since: of_ring, next: newest, left: self.ring.len(), strata_read: STRATA };
        }
        FlightReader { since: of_strata, next: newest, left: 0, strata_read: 0 }
    }

    /// Reads on, and leaves out what has been written since `begun`. `false`: there is no more.
    pub(crate) fn read_part(
        &self,
        reader: &mut FlightReader,
        begun: Instant,
        mut take: impl FnMut(Weighted),
    ) -> bool {
        for _ in 0..reader.left.min(CALLS_PER_PART) {
            if let Some(flight) = self.ring.get(reader.next).filter(|flight| flight.at <= begun.0) {
                take(Weighted { row: flight.unpack(), weight: flight.stands_for().into() });
            }
            reader.next = reader.next.checked_sub(1).unwrap_or(self.ring.len().saturating_sub(1));
            reader.left -= 1;
        }
        if let Some(stratum) = self.strata().nth(reader.strata_read) {
            reader.strata_read += 1;
            stratum.weighted().filter(|call| call.row.at <= begun).for_each(&mut take);
        }
        reader.left > 0 || reader.strata_read < STRATA
    }

    /// Other numbers for methods and peers, of every call there is.
    pub(crate) fn rename(&mut self, method: impl Fn(u32) -> u32, peer: impl Fn(u32) -> u32) {
        let strata = [&mut self.current, &mut self.previous].into_iter();
        let strata = strata.flat_map(|strata| [&mut strata.failed, &mut strata.slow, &mut strata.rest]);
        self.late.iter_mut().for_each(|late| late.method.0 = method(late.method.0));
        for flight in strata.flat_map(|stratum| &mut stratum.kept).chain(&mut self.ring) {
            flight.method = method(flight.method);
            flight.peer = peer(flight.peer.into()) as u16;
        }
    }

    /// Heap bytes in use; those of the ring that nobody has written to are not.
    pub fn heap_bytes(&self) -> usize {
        let kept = self.strata().map(|stratum| stratum.kept.capacity());
        let traces = self.traces.capacity() * size_of::<FlightTrace>();
        let late = self.late.capacity() * size_of::<LateHandler>();
        (self.ring.len() + kept.sum::<usize>()) * size_of::<Flight>() + traces + late
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
        // Behind a time without calls, what there is, is of long ago.
        let is_old = at.since_ns(self.epoch_began) >= 2 * EPOCH_NS;
        if is_old {
            self.previous.clear();
        }
        self.current.clear();
        self.previous_began = if is_old { at } else { self.epoch_began };
        self.epoch_began = at;
    }
}

impl Strata {
    fn clear(&mut self) {
        let Self { failed, slow, rest } = self;
        [failed, slow, rest].into_iter().for_each(Stratum::clear);
    }
}

impl Stratum {
    #[inline]
    fn offer(&mut self, flight: &Flight) {
        self.skipped += 1;
        if self.skipped >= self.wanted {
            self.keep(flight);
        }
    }

    fn keep(&mut self, flight: &Flight) {
        self.skipped = 0;
        if self.kept.capacity() == 0 {
            // As with the ring: only what is written is resident.
            self.kept.reserve_exact(STRATUM_CALLS);
        }
        self.kept.push(*flight);
        if self.kept.len() == STRATUM_CALLS {
            self.thin();
        }
        // One of the next so many, wherever among them.
        let place = 1 + self.draw() % self.stride;
        self.wanted = self.behind + place;
        self.behind = self.stride - place;
    }

    /// Keeps one of every two.
    fn thin(&mut self) {
        let left = self.kept.len() / 2;
        for place in 0..left {
            let second = (self.draw() % 2) as usize;
            self.kept[place] = self.kept[2 * place + second];
        }
        self.kept.truncate(left);
        self.stride *= 2;
    }

    /// A number that has nothing to do with the calls: `SplitMix64` of how many were drawn.
    fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.drawn ^ (self.drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The calls kept, each with the number of those it stands for.
    fn weighted(&self) -> impl Iterator<Item = Weighted> {
        let weight = |flight: &Flight| self.stride * u64::from(flight.stands_for());
        self.kept.iter().map(move |flight| Weighted { row: flight.unpack(), weight: weight(flight) })
    }

    fn clear(&mut self) {
        self.kept.clear();
        (self.stride, self.skipped, self.wanted, self.behind) = (1, 0, 1, 0);
    }
}

impl Default for Stratum {
    fn default() -> Self {
        Self { kept: Vec::new(), stride: 1, skipped: 0, wanted: 1, behind: 0, drawn: 0 }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that the newest are at hand, what a full ring of traces keeps, and how a stratum thins.
    use super::*;
    use crate::PeerIndex;
    use crate::record::Side;

    fn flight(at: u64) -> Flight {
        Flight { at, ..Flight::VACANT }
    }

    #[test]
    fn the_newest_lie_side_by_side_but_for_the_end_of_the_ring() {
        let mut recorder = FlightRecorder::new();
        let mut since_end = 0;
        for number in 0..2 * RING_CALLS as u64 + 100 {
            recorder.record(&flight(number));
            since_end += 1;
            if number % 61 != 0 && !recorder.is_at_end() {
                continue;
            }
            let newest = recorder.newest(since_end.min(64));
            let ats: Vec<u64> = newest.iter().map(|flight| flight.at).collect();
            let expected: Vec<u64> = (0..=number).rev().take(since_end.min(64)).collect();
            assert!(ats.iter().rev().eq(&expected), "{number}");
            if recorder.is_at_end() {
                since_end = 0;
            }
        }
        assert_eq!(since_end, 100);
    }

    #[test]
    fn a_full_ring_of_traces_keeps_the_newest() {
        let mut recorder = FlightRecorder::new();
        let one = Record {
            side: Side::Made,
            method: MethodIndex(7),
            peer: PeerIndex(9),
            code: Code::Ok,
            request_bytes: 8,
            response_bytes: 8,
            client: Default::default(),
            server: None,
            is_stream: false,
        };
        let calls = TRACES_MAX as u64 + 100;
        for number in 0..calls {
            recorder.record(&flight(number));
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
    fn a_full_stratum_keeps_one_of_every_two() {
        let mut stratum = Stratum::default();
        for n in 1..=(3 * STRATUM_CALLS as u64) {
            stratum.offer(&flight(n));
        }
        assert_eq!(stratum.stride, 4);
        assert!(stratum.kept.len().abs_diff(STRATUM_CALLS / 4 * 3) <= 1, "{}", stratum.kept.len());
        // One of each four.
        assert!(stratum.kept.iter().enumerate().all(|(place, kept)| (kept.at - 1) / 4 == place as u64));
    }

    /// Whoever calls two methods by turns.
    #[test]
    fn of_calls_by_turns_a_stratum_keeps_as_many_of_each() {
        for period in [2, 4, 8] {
            let (mut stratum, calls) = (Stratum::default(), 100_000);
            for n in 1..=calls {
                stratum.offer(&Flight { method: u32::from(n % period == 0), ..flight(n) });
            }
            let all: u64 = stratum.weighted().map(|call| call.weight).sum();
            let one = stratum.weighted().filter(|call| call.row.method.0 == 1);
            let one: u64 = one.map(|call| call.weight).sum();
            assert!(all.abs_diff(calls) < calls / 100, "{all}");
            let expected = calls / period;
            assert!(one.abs_diff(expected) < expected / 5, "{one} of {expected}");
        }
    }
}
