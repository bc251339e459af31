//! Calls that are counted together, and which of them stand for others.
//!
//! A call touches some fifty cache lines in fifteen histograms; one call after the other they would be fetched for each
//! anew, from caches that carry messages meanwhile. So many calls as a batch has fit the innermost.
//!
//! Finding its bucket is most of what a value costs. A shard that has more than [`Batch::ALL_PER_SECOND`] calls per
//! second looks for the buckets of every call that failed or was slow, and of one of [`Chosen::STANDS_FOR_MAX`] others,
//! which is drawn by chance and counts for all of them: as many are counted as there were, and no kind of call is
//! favoured. Counters and sums are those of all calls at any rate.

use crate::flight::Flight;
use trunkline_call::mix;

/// What of a call that waits to be counted is not in its row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uncounted {
    /// Its series, whether it streamed, and coverage: calls that have all in common are counted together.
    pub kind: u32,
    /// The parts of request and response stack between kernel and daemon.
    pub wakeups_ns: [u32; 2],
}

/// Calls that wait to be counted, oldest first.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'c> {
    pub flights: &'c [Flight],
    pub pending: &'c [Uncounted],
}

/// What some calls come to.
pub(crate) struct BatchSums {
    pub amounts: [u64; Flight::AMOUNTS],
    pub wakeups_ns: [u64; 2],
    pub half_width_ns: u64,
    /// The bits of all.
    pub bits: u32,
    /// Zero if no handler said anything but that it made no calls.
    pub handlers: u32,
}

/// Calls of a batch that stand for all of a kind.
pub(crate) struct Chosen {
    all: [Choice; Batch::CALLS],
    len: usize,
}

/// A call by its place in the batch, and how many it stands for, itself included.
#[derive(Clone, Copy, Default)]
pub(crate) struct Choice {
    pub call: u8,
    pub stands_for: u8,
}

impl Batch<'_> {
    /// Most calls in one.
    pub const CALLS: usize = 64;
    /// Where among the amounts the parts between kernel and daemon are: behind those of a flight.
    pub const REQUEST_WAKEUP: usize = Flight::AMOUNTS;
    pub const RESPONSE_WAKEUP: usize = Flight::AMOUNTS + 1;
    /// While a shard has no more calls than this each is looked at itself: it is a thousandth of a core.
    pub const ALL_PER_SECOND: u64 = 10_000;
    const ALL_NS: u64 = Self::CALLS as u64 * 1_000_000_000 / Self::ALL_PER_SECOND;

    /// Whether it came so fast that some stand for others.
    pub fn is_rapid(&self) -> bool {
        let [first, .., last] = self.flights else { return false };
        self.flights.len() == Self::CALLS && last.at.saturating_sub(first.at) < Self::ALL_NS
    }

    pub fn flight(&self, call: u8) -> Option<&Flight> {
        self.flights.get(usize::from(call))
    }

    /// The parts of a call between kernel and daemon, in nanoseconds.
    pub fn wakeup_ns(&self, call: u8, wakeup: usize) -> u64 {
        let wakeups_ns = self.pending.get(usize::from(call)).map_or([0; 2], |call| call.wakeups_ns);
        wakeups_ns.get(wakeup).copied().unwrap_or_default().into()
    }

    pub fn sums(&self, calls: impl Iterator<Item = u8>) -> BatchSums {
        let mut amounts = [0; Flight::AMOUNTS];
        let (mut wakeups_ns, mut half_width_ns, mut bits, mut handlers) = ([0; 2], 0, 0, 0);
        for call in calls.map(usize::from) {
            let (Some(flight), Some(pending)) = (self.flights.get(call), self.pending.get(call)) else {
                continue;
            };
            for (sum, amount) in amounts.iter_mut().zip(flight.amounts) {
                *sum += u64::from(amount);
            }
            for (sum, amount) in wakeups_ns.iter_mut().zip(pending.wakeups_ns) {
                *sum += u64::from(amount);
            }
            half_width_ns += u64::from(flight.half_width_ns);
            bits |= flight.bits;
            handlers |= flight.cpu_ns | flight.subtree >> 1;
        }
        BatchSums { amounts, wakeups_ns, half_width_ns, bits, handlers }
    }
}

impl Chosen {
    /// Most calls one stands for.
    pub const STANDS_FOR_MAX: usize = 8;
    /// Where more than this of a batch failed or are slow, that says nothing of them.
    const KEPT_MAX: usize = Batch::CALLS / 4;

    /// Every call, each for itself.
    pub fn every(calls: impl Iterator<Item = u8>) -> Self {
        let mut chosen = Self { all: [Choice::default(); Batch::CALLS], len: 0 };
        calls.for_each(|call| chosen.push(call, 1));
        chosen
    }

    /// Those that failed or were slow for themselves, unless they are many; of others one of each eight, drawn by the
    /// `drawn`th number.
    pub fn drawn(batch: &Batch<'_>, calls: impl Iterator<Item = u8> + Clone, drawn: u64) -> Self {
        let (mut others, mut count) = ([0; Batch::CALLS], 0);
        let mut chosen = Self::every(std::iter::empty());
        for call in calls.clone() {
            let bits = batch.flight(call).map_or(0, |flight| flight.bits);
            if bits & (Flight::CODE | Flight::SLOW) == 0 {
                others[count % Batch::CALLS] = call;
                count += 1;
            } else {
                chosen.push(call, 1);
            }
        }
        if chosen.len > Self::KEPT_MAX {
            (chosen.len, count) = (0, 0);
            for call in calls {
                others[count % Batch::CALLS] = call;
                count += 1;
            }
        }
        let mut chance = mix(drawn);
        for alike in others[..count.min(Batch::CALLS)].chunks(Self::STANDS_FOR_MAX) {
            let drawn = ((chance & 0xff) as usize * alike.len()) >> 8;
            chosen.push(alike[drawn], alike.len() as u8);
            chance >>= 8;
        }
        chosen
    }

    pub fn iter(&self) -> impl Iterator<Item = Choice> {
        self.all[..self.len].iter().copied()
    }

    fn push(&mut self, call: u8, stands_for: u8) {
        if let Some(free) = self.all.get_mut(self.len) {
            *free = Choice { call, stands_for };
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that every call is stood for once, those that failed or were slow by themselves, and nobody is favoured.
    use super::*;
    use proptest::prelude::*;

    fn flight(at: u64, bits: u32) -> Flight {
        Flight { at, bits, ..Flight::VACANT }
    }

    proptest! {
        #[test]
        fn everybody_is_stood_for_once(
            kinds in prop::collection::vec(0..12_u32, 0..=Batch::CALLS),
            drawn in any::<u64>(),
        ) {
            let bits = |kind: u32| [Flight::SLOW, 3 << 21].get(kind as usize).copied().unwrap_or(0);
            let flights: Vec<Flight> = kinds.iter().map(|kind| flight(1, bits(*kind))).collect();
            let batch = Batch { flights: &flights, pending: &[] };
            let chosen = Chosen::drawn(&batch, 0..flights.len() as u8, drawn);
            let all: usize = chosen.iter().map(|one| usize::from(one.stands_for)).sum();
            prop_assert_eq!(all, flights.len());
            let kept = kinds.iter().filter(|kind| **kind < 2).count();
            prop_assert!(chosen.iter().count() <= kinds.len().div_ceil(8) + kept.min(Chosen::KEPT_MAX));
            for (call, kind) in kinds.iter().enumerate().filter(|(_, kind)| **kind < 2) {
                if kept > Chosen::KEPT_MAX {
                    break;
                }
                let itself = chosen.iter().filter(|one| usize::from(one.call) == call);
                prop_assert_eq!(itself.map(|one| one.stands_for).collect::<Vec<_>>(), [1], "{}", kind);
            }
        }
    }

    #[test]
    fn each_is_drawn_as_often_as_others() {
        let flights = [flight(1, 0); Batch::CALLS];
        let batch = Batch { flights: &flights, pending: &[] };
        for count in [64, 61, 3] {
            let mut drawn = [0_u32; Batch::CALLS];
            for number in 0..8_000 {
                let chosen = Chosen::drawn(&batch, 0..count, number);
                chosen.iter().for_each(|one| drawn[usize::from(one.call)] += u32::from(one.stands_for));
            }
            let drawn = &drawn[..usize::from(count)];
            assert!(drawn.iter().all(|times| (7_000..9_000).contains(times)), "{drawn:?}");
        }
    }

    #[test]
    fn only_what_comes_fast_is_drawn_from() {
        let rapid = |step: u64, count: u64| {
            let flights: Vec<Flight> = (0..count).map(|call| flight(call * step, 0)).collect();
            Batch { flights: &flights, pending: &[] }.is_rapid()
        };
        assert!(rapid(99_000, 64) && !rapid(110_000, 64));
        assert!(!rapid(1, 63), "what was counted early was asked for");
    }
}
