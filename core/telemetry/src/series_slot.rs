//! The series of one (side, method, peer), and what is kept beside its counters while it is used.

use crate::batch::Batch;
use crate::histogram::Histogram;
use crate::index::{MethodIndex, PeerIndex};
use crate::passing::{Passing, StandIn};
use crate::record::Side;
use crate::series::Series;
use crate::traced::Exemplars;
use trunkline_call::Instant;

/// A series, and what is kept beside it.
#[derive(Debug)]
pub(crate) struct SeriesSlot {
    pub side: Side,
    pub method: MethodIndex,
    pub peer: PeerIndex,
    pub series: Box<Series>,
    /// Calls with traces that stand for others.
    pub exemplars: Exemplars,
    /// About a twentieth of the series' calls of lately is slower than this, in nanoseconds.
    pub slow_ns: u64,
    /// Its first calls, until `slow_ns` follows them by itself.
    first_calls: Option<Box<FirstCalls>>,
    /// Faster calls since the last that was slower.
    slow_quiet: u64,
    /// Calls that come too fast.
    pub passing: Passing,
    /// It is among those that may have passed over calls.
    pub is_passing: bool,
}

/// What the first calls took that ended well, since this daemon counts the series. The series itself has those that
/// failed or were refused, too, and those of the daemons before this one.
#[derive(Debug)]
struct FirstCalls {
    total: Histogram,
    /// Calls until the threshold is looked up again.
    due: u64,
}

impl SeriesSlot {
    /// Until this many calls, none is slow: a twentieth of fewer is nobody.
    const SLOW_AFTER_CALLS: u64 = 20;
    /// Until this many, the threshold for *slow* is looked up among all that ended well, each time there are twice as
    /// many: it scans some hundred buckets. From then on it follows what comes, or calls of last week would say what is
    /// slow today.
    const SLOW_FOLLOWS_CALLS: u64 = 640;
    /// A slower call moves it by 19 steps of so small a part of it, a faster one by one step the other way: it rests
    /// where one is slower for 19 that are faster. What became twice as slow has it there in 150 calls.
    const SLOW_STEPS: u64 = 4_096;
    /// Calls that are faster by less than this part do not move it: of calls that take alike, none is slow.
    const SLOW_ALIKE: u64 = 32;
    /// After so many calls in a row that were all faster, which are rare where a twentieth is slower, a faster one
    /// moves it by twice as many steps, after as many more by four times as many, a batch by a quarter of it at most:
    /// what has become faster by a thousand times, as when an incident is over, has it there within 2,000 calls.
    const SLOW_QUIET_CALLS: u64 = 64;
    const SLOW_DOUBLED_MAX: u64 = 8;

    pub fn new(side: Side, method: MethodIndex, peer: PeerIndex) -> Self {
        let first_calls = FirstCalls { total: Histogram::default(), due: Self::SLOW_AFTER_CALLS };
        let exemplars = Exemplars::default();
        let (series, passing) = (Box::default(), Passing::default());
        Self {
            side,
            method,
            peer,
            series,
            exemplars,
            slow_ns: u64::MAX,
            first_calls: Some(Box::new(first_calls)),
            slow_quiet: 0,
            passing,
            is_passing: false,
        }
    }

    /// The series of everything beyond the limits; its slot is the side's number.
    pub fn other(side: Side) -> Self {
        Self::new(side, MethodIndex::OTHER, PeerIndex::OTHER)
    }

    /// Whether it is that of a method, and not free.
    pub fn is_used(&self) -> bool {
        self.method != MethodIndex::OTHER || self.peer != PeerIndex::OTHER
    }

    /// An ordinary call is written down: for whom it stands.
    #[inline]
    pub fn take(&mut self, now: Instant, is_rapid: bool, drawn: &mut u64) -> StandIn {
        let taken = self.passing.take(now, is_rapid, drawn);
        if taken.bytes != [0; 2] {
            self.series.note_passed_bytes(taken.bytes);
        }
        taken
    }

    /// More calls were counted that ended well, that took so long and stand for so many: what is slow follows them.
    pub fn note_slow(&mut self, calls: impl Iterator<Item = (u64, u64)>) {
        if let Some(first_calls) = &mut self.first_calls {
            let Some(slow_ns) = first_calls.look_up_slow(calls) else { return };
            self.slow_ns = slow_ns;
            if first_calls.total.count() >= Self::SLOW_FOLLOWS_CALLS {
                self.first_calls = None;
            }
            return;
        }
        let faster_ns = self.slow_ns - self.slow_ns / Self::SLOW_ALIKE;
        let [mut slower, mut faster] = [0; 2];
        for (total_ns, weight) in calls {
            slower += if total_ns > self.slow_ns { weight } else { 0 };
            faster += if total_ns < faster_ns { weight } else { 0 };
        }
        self.slow_quiet = if slower > 0 { 0 } else { self.slow_quiet.saturating_add(faster) };
        let doubled = (self.slow_quiet / Self::SLOW_QUIET_CALLS).min(Self::SLOW_DOUBLED_MAX);
        let step_ns = self.slow_ns / Self::SLOW_STEPS + 1;
        let up_ns = step_ns.saturating_mul(19 * slower);
        // Not all at once, however many calls one stands for.
        let down_ns = step_ns.saturating_mul(faster << doubled).min(self.slow_ns / 4);
        self.slow_ns = self.slow_ns.saturating_add(up_ns).saturating_sub(down_ns);
    }
}

impl FirstCalls {
    /// Takes more in; what a twentieth of all is slower than, if that was due.
    #[cold]
    fn look_up_slow(&mut self, calls: impl Iterator<Item = (u64, u64)>) -> Option<u64> {
        self.total.record_by(calls, 0);
        let count = self.total.count();
        if count < self.due {
            return None;
        }
        self.due = 2 * count;
        Some(self.total.not_above(0.95))
    }
}

/// Counts calls of a batch that are of one series and coverage.
pub(crate) fn count(series: &mut [SeriesSlot], batch: &Batch<'_>, calls: impl Iterator<Item = u8> + Clone) {
    let first = calls.clone().next().and_then(|first| batch.pending.get(usize::from(first)));
    let Some(first) = first else { return };
    let Some(keyed) = series.get_mut((first.kind >> 4) as usize) else { return };
    let (coverage, is_stream) = first.coverage();
    keyed.series.record_batch(batch, calls.clone(), (coverage, is_stream));
    if !is_stream {
        let ended_well = calls.filter(|call| batch.has_ended_well(*call));
        keyed.note_slow(ended_well.map(|call| (batch.total_ns(call), batch.weight(call))));
    }
}
