//! Calls that come so fast that one of them stands for others.
//!
//! Dividing a call, writing it down and finding its buckets is a twelfth of what a call costs a daemon. A shard that
//! has more than [`Pace::ALL_PER_SECOND`] calls per second does it for every call that failed, was slow, streamed,
//! belongs to a trace or came after a pause in its series, and for one of eight others on average. The others are
//! *passed over*: counted, with their bytes, when the next one that is not passed over stands for them. How many are
//! passed over before one is taken is drawn anew each time and follows from nothing in the calls, so none is favoured.

use crate::batch::Uncounted;
use crate::flight::Flight;
use crate::record::Side;
use crate::{MethodIndex, PeerIndex};
use trunkline_call::{Instant, mix};

/// How fast a shard's calls end.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Calls until it is looked up again.
    due: u32,
    /// When it was looked up last.
    since: Instant,
    is_rapid: bool,
}

/// What one series has passed over.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    /// Calls to pass over before one is taken.
    left: u32,
    /// Calls passed over since one was taken that stands for others.
    passed: u32,
    /// Those of them that are counted, because somebody asked.
    counted: u32,
    /// Bytes of requests and responses passed over and not counted.
    bytes: [u64; 2],
    /// When a call was last written down.
    row_at: Instant,
    /// The last call that stood for others, or could have: for those that nobody stands for when somebody asks.
    last: Option<(Flight, Uncounted)>,
}

/// What there is to know of a call to pass over it: one that a host made or served, ended well, did not stream and
/// belongs to no trace.
#[derive(Clone, Copy, Debug)]
pub struct UnaryCall {
    /// Which end this host was.
    pub side: Side,
    /// The method.
    pub method: MethodIndex,
    /// The other host.
    pub peer: PeerIndex,
    /// How long it took.
    pub total_ns: u64,
    /// Bytes of request and response.
    pub bytes: [u64; 2],
}

/// For whom a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StandIn {
    /// Calls it stands for, itself included.
    pub stands_for: u32,
    /// Those of them that are not counted yet.
    pub weight: u32,
    /// Bytes of requests and responses of the others.
    pub bytes: [u64; 2],
}

impl StandIn {
    /// For itself.
    pub const ONE: Self = Self { stands_for: 1, weight: 1, bytes: [0; 2] };
}

impl Pace {
    /// While a shard has no more calls than this each is recorded: that is half of a hundredth of a core.
    pub const ALL_PER_SECOND: u64 = 20_000;
    /// It is looked up once in so many calls: a burst of fewer is recorded whole.
    pub const CALLS: u32 = 1_024;
    const CALLS_NS: u64 = Self::CALLS as u64 * 1_000_000_000 / Self::ALL_PER_SECOND;

    /// Takes note of a call, and says whether calls come so fast that some stand for others.
    #[inline(always)]
    pub fn note(&mut self, now: Instant) -> bool {
        self.due -= 1;
        if self.due == 0 {
            self.look_up(now);
        }
        self.is_rapid
    }

    pub fn is_rapid(&self) -> bool {
        self.is_rapid
    }

    #[cold]
    fn look_up(&mut self, now: Instant) {
        self.is_rapid = now.since_ns(self.since) < Self::CALLS_NS;
        (self.due, self.since) = (Self::CALLS, now);
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self { due: Self::CALLS, since: Instant::default(), is_rapid: false }
    }
}

impl Passing {
    /// Most calls that one stands for, itself included; on average half of it and a half.
    pub const STANDS_FOR_MAX: u32 = 15;
    /// A call that comes later than this after the one written down before is written down: nobody else can say what
    /// there was then.
    const PAUSE_NS: u64 = 1_000_000;

    /// Passes over an ordinary call of a rapid series, or says that it is not to be passed over.
    #[inline(always)]
    pub fn pass_over(&mut self, now: Instant, bytes: [u64; 2]) -> bool {
        if self.left == 0 || now.since_ns(self.row_at) > Self::PAUSE_NS {
            return false;
        }
        self.left -= 1;
        self.passed += 1;
        self.bytes[0] = self.bytes[0].saturating_add(bytes[0]);
        self.bytes[1] = self.bytes[1].saturating_add(bytes[1]);
        true
    }

    /// An ordinary call is written down: for whom it stands. One after a pause is taken for what it is, not because it
    /// was drawn, and stands for itself.
    #[inline]
    pub fn take(&mut self, now: Instant, is_rapid: bool, drawn: &mut u64) -> StandIn {
        let is_after_pause = now.since_ns(self.row_at) > Self::PAUSE_NS;
        self.row_at = now;
        let is_certain = if is_rapid { self.left > 0 || is_after_pause } else { self.passed == 0 };
        if is_certain {
            return StandIn::ONE;
        }
        *drawn += 1;
        self.left = if is_rapid { (mix(*drawn) % u64::from(Self::STANDS_FOR_MAX)) as u32 } else { 0 };
        let (passed, counted) = (std::mem::take(&mut self.passed), std::mem::take(&mut self.counted));
        let bytes = std::mem::take(&mut self.bytes);
        StandIn { stands_for: passed + 1, weight: passed - counted + 1, bytes }
    }

    /// A call is written down that is not ordinary, and stands for itself.
    #[inline]
    pub fn take_itself(&mut self, now: Instant) {
        self.row_at = now;
    }

    /// A call that was taken is one to go by where somebody asks before the next.
    #[inline]
    pub fn keep(&mut self, flight: &Flight, uncounted: Uncounted) {
        self.last = Some((*flight, uncounted));
    }

    /// Somebody asks: what is passed over is counted now, as calls like the last one. Their bytes, and that call with
    /// the number of those it is counted for.
    pub fn count(&mut self) -> Option<([u64; 2], Flight, Uncounted)> {
        let weight = self.passed.checked_sub(self.counted).filter(|weight| *weight > 0)?;
        let (flight, uncounted) = self.last?;
        self.counted = self.passed;
        Some((
            std::mem::take(&mut self.bytes),
            flight,
            Uncounted { weight, counts_itself: false, ..uncounted },
        ))
    }
}

#[cfg(test)]
mod tests {
    //! Shows that every call is stood for once, whoever asks meanwhile, that nobody is favoured, and what is fast.
    use super::*;
    use proptest::prelude::*;

    fn step(passing: &mut Passing, now: u64, drawn: &mut u64) -> Option<StandIn> {
        let is_passed = passing.pass_over(Instant(now), [3, 4]);
        let taken = (!is_passed).then(|| passing.take(Instant(now), true, drawn));
        if taken.is_some() {
            let uncounted = Uncounted { kind: 0, wakeups_ns: [0; 2], weight: 1, counts_itself: true };
            passing.keep(&Flight::VACANT, uncounted);
        }
        taken
    }

    proptest! {
        #[test]
        fn everybody_is_stood_for_once(
            steps in prop::collection::vec((0..2_000_000_u64, any::<bool>()), 1..400),
            seed in any::<u64>(),
        ) {
            let (mut passing, mut drawn, mut now) = (Passing::default(), seed, 1_u64 << 40);
            let (mut calls, mut stood_for, mut weight, mut bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
            for (pause, is_asked) in steps {
                now += if pause % 5 == 0 { pause } else { pause % 1_000 };
                calls += 1;
                if let Some(taken) = step(&mut passing, now, &mut drawn) {
                    prop_assert!(taken.stands_for <= Passing::STANDS_FOR_MAX);
                    stood_for += u64::from(taken.stands_for);
                    weight += u64::from(taken.weight);
                    bytes += taken.bytes[0] + 3;
                }
                if is_asked {
                    if let Some((more, _, uncounted)) = passing.count() {
                        weight += u64::from(uncounted.weight);
                        bytes += more[0];
                    }
                    prop_assert_eq!((weight, bytes), (calls, 3 * calls));
                }
                prop_assert_eq!(stood_for + u64::from(passing.passed), calls);
            }
        }
    }

    #[test]
    fn no_call_of_a_pattern_is_favoured() {
        // Twelve calls, one after the other, and a pause: the first of each twelve is always written down.
        let (mut passing, mut drawn, mut now) = (Passing::default(), 0, 1 << 40);
        let mut stood_for = [0_u64; 12];
        for _ in 0..20_000 {
            now += 2 * Passing::PAUSE_NS;
            for place in &mut stood_for {
                now += 1_000;
                *place += step(&mut passing, now, &mut drawn).map_or(0, |taken| u64::from(taken.stands_for));
            }
        }
        assert!(stood_for.iter().all(|calls| (18_000..22_000).contains(calls)), "{stood_for:?}");
    }

    #[test]
    fn what_is_fast_is_said_by_a_thousand_calls() {
        let is_rapid = |step_ns: u64, calls: u64| {
            let mut pace = Pace::default();
            (1..=calls).map(|call| pace.note(Instant((1 << 40) + call * step_ns))).last()
        };
        let calls = u64::from(Pace::CALLS);
        assert_eq!(is_rapid(1, calls), Some(false), "what was before the first is not known");
        assert_eq!(is_rapid(49_000, 2 * calls - 1), Some(false));
        assert_eq!(is_rapid(49_000, 2 * calls), Some(true));
        assert_eq!(is_rapid(51_000, 2 * calls), Some(false));
    }
}
