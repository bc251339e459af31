//! Room for calls of traces until somebody exports them, shared between those for whom they are made.
//!
//! Whether a call is sampled is up to whoever makes it, and one application that says so of each of its calls would
//! take all room there is. So when there is none, the source that has most gives some up (longest queue drop: Suter,
//! Lakshman, Stiliadis and Choudhury, INFOCOM 1998), and in it the application that has most: nobody loses a call who
//! has less than an equal part. It gives up whole traces: those that a draw by their ids leaves out, and of these it
//! keeps no more calls for a while. Shards and hosts draw alike, so that what is left of a trace is all of it.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use trunkline_call::mix;

/// Applications of this host that are told apart, and as many of other hosts. Beyond that they share a part.
pub const SPAN_SOURCES_MAX: usize = 128;
/// A source whose traces are all left out keeps some again after one such time, and all after forty.
const BELOW_LEAST: u64 = 1 << 24;
/// Where the shares of all others are: of this host, and of elsewhere.
const OTHERS: [u32; 2] = [0, 1];

/// For whom a call of a trace is made: a source (a user of this host or a tenant, or another host), and an application
/// of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanSource(u64);

/// A call that waits.
pub trait SpanOwner {
    /// For whom it is made.
    fn source(&self) -> SpanSource;
    /// Its trace.
    fn trace(&self) -> u128;
}

/// Calls that wait, oldest first: so many at most, whoever they are for.
#[derive(Debug)]
pub struct SpanRoom<T> {
    calls: VecDeque<(u32, T)>,
    calls_max: usize,
    /// By the numbers beside calls. The first two are those of all that are not told apart.
    shares: Vec<SpanShare>,
    lost: u64,
}

/// What one source has.
#[derive(Clone, Copy, Debug)]
struct SpanShare {
    /// `None`: it is that of several, or of nobody.
    source: Option<SpanSource>,
    is_here: bool,
    held: usize,
    /// Traces whose draw is below it are kept.
    below: u64,
}

impl SpanSource {
    /// Of a source, which is of this host or not, and an application of it, by numbers that others hardly have.
    pub fn new(is_here: bool, source: u64, application: u64) -> Self {
        Self((source << 1 | u64::from(is_here)) & u64::from(u32::MAX) | application << u32::BITS)
    }

    fn is_here(self) -> bool {
        self.0 & 1 != 0
    }

    fn is_with(self, other: Self) -> bool {
        self.0 as u32 == other.0 as u32
    }
}

impl SpanShare {
    fn new(source: Option<SpanSource>, is_here: bool) -> Self {
        Self { source, is_here, held: 0, below: u64::MAX }
    }

    /// It has nothing, and nothing of it is left out.
    fn is_at_rest(&self) -> bool {
        self.held == 0 && self.below == u64::MAX
    }

    fn is_with(&self, other: &Self) -> bool {
        match (self.source, other.source) {
            (Some(source), Some(other)) => source.is_with(other),
            (None, None) => self.is_here == other.is_here,
            _ => false,
        }
    }
}

impl<T: SpanOwner> SpanRoom<T> {
    /// For so many calls.
    pub fn new(calls_max: usize) -> Self {
        let shares = [true, false].map(|is_here| SpanShare::new(None, is_here)).into();
        Self { calls: VecDeque::new(), calls_max, shares, lost: 0 }
    }

    /// Takes a call in, or counts it as lost: one of another trace if the room is full.
    pub fn add(&mut self, call: T) {
        let share = self.share_of(call.source());
        let draw = draw(call.trace());
        while self.is_kept(share, draw) && self.calls.len() >= self.calls_max.max(1) {
            self.thin();
        }
        if !self.is_kept(share, draw) || self.calls_max == 0 {
            self.lost += 1;
            return;
        }
        self.calls.push_back((share, call));
        self.shares[share as usize].held += 1;
    }

    /// Takes so many out, oldest first.
    pub fn take(&mut self, max: usize) -> Vec<T> {
        let count = max.min(self.calls.len());
        let shares = &mut self.shares;
        let take = |(share, call): (u32, T)| {
            shares[share as usize].held -= 1;
            call
        };
        self.calls.drain(..count).map(take).collect()
    }

    /// Some time has passed. A source that has less than half of an equal part may keep twice as many traces from now
    /// on. To be said at even intervals, before what has come meanwhile is taken out.
    pub fn note_time(&mut self) {
        let shared_by = self.shares.iter().filter(|share| !share.is_at_rest()).count();
        let part = self.calls_max / shared_by.max(1);
        for share in self.shares.iter_mut().filter(|share| 2 * share.held <= part) {
            share.below = share.below.max(BELOW_LEAST).saturating_mul(2);
        }
    }

    /// Gives all room back. What is there is no longer wanted, and not lost.
    pub fn clear(&mut self) {
        *self = Self { lost: self.lost, ..Self::new(self.calls_max) };
    }

    /// Calls that wait, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.calls.iter().map(|(_, call)| call)
    }

    /// The same, to be changed: but for whose they are.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.calls.iter_mut().map(|(_, call)| call)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Calls there was no room for, since the start.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn is_kept(&self, share: u32, draw: u64) -> bool {
        draw < self.shares[share as usize].below
    }

    /// The number of a source's share: that of all others of its kind if too many are told apart.
    fn share_of(&mut self, source: SpanSource) -> u32 {
        if let Some(at) = self.shares.iter().position(|share| share.source == Some(source)) {
            return at as u32;
        }
        let (new, first) = (SpanShare::new(Some(source), source.is_here()), OTHERS.len());
        let is_free = |share: &SpanShare| share.is_here == source.is_here() && share.is_at_rest();
        if let Some(at) = self.shares.iter().skip(first).position(is_free) {
            self.shares[first + at] = new;
            return (first + at) as u32;
        }
        let alike = self.shares.iter().skip(first).filter(|share| share.is_here == source.is_here()).count();
        if alike >= SPAN_SOURCES_MAX {
            return OTHERS[usize::from(!source.is_here())];
        }
        self.shares.push(new);
        self.shares.len() as u32 - 1
    }

    /// Whoever has most keeps half of it, or less.
    #[cold]
    fn thin(&mut self) {
        let together = |one: &SpanShare| -> usize {
            self.shares.iter().filter(|share| share.is_with(one)).map(|share| share.held).sum()
        };
        let has_any = |(_, share): &(usize, &SpanShare)| share.held > 0;
        let most = self.shares.iter().enumerate().filter(has_any);
        let Some((at, _)) = most.max_by_key(|(_, share)| (together(share), share.held)) else { return };
        let is_its = |share: u32| share as usize == at;
        let own = self.calls.iter().filter(|(share, _)| is_its(*share));
        let mut draws: Vec<u64> = own.map(|(_, call)| draw(call.trace())).collect();
        let middle = draws.len() / 2;
        let (_, below, _) = draws.select_nth_unstable(middle);
        let (below, before) = (*below, self.calls.len());
        self.calls.retain(|(share, call)| !is_its(*share) || draw(call.trace()) < below);
        let given_up = before - self.calls.len();
        self.lost += given_up as u64;
        let share = &mut self.shares[at];
        (share.held, share.below) = (share.held - given_up, below);
    }
}

/// The smaller, the sooner a trace is kept: as `trunkline record --traces` draws, so that both keep the same ones.
fn draw(trace: u128) -> u64 {
    // Below `u64::MAX`, which is where all are kept.
    mix((trace >> 64) as u64 ^ trace as u64).reverse_bits() >> 1
}

#[cfg(test)]
mod tests {
    //! Shows that nobody loses a call who has less than an equal part, that traces are kept whole, that all of it comes
    //! back, and what bounds it.
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Waiting {
        source: SpanSource,
        trace: u128,
    }

    impl SpanOwner for Waiting {
        fn source(&self) -> SpanSource {
            self.source
        }

        fn trace(&self) -> u128 {
            self.trace
        }
    }

    const ROOM: usize = 4096;

    fn application(user: u64, number: u64) -> SpanSource {
        SpanSource::new(true, user, number)
    }

    fn of(calls: &[Waiting], source: SpanSource) -> usize {
        calls.iter().filter(|call| call.source == source).count()
    }

    #[test]
    fn one_that_samples_everything_leaves_the_others_theirs() {
        let mut room = SpanRoom::new(ROOM);
        let (much, little) = (application(1, 1), application(2, 2));
        for number in 0..8_000 {
            room.add(Waiting { source: much, trace: 1 << 100 | number });
            if number % 200 == 199 {
                room.add(Waiting { source: little, trace: number });
            }
        }
        let kept = room.take(usize::MAX);
        assert_eq!(of(&kept, little), 40, "all of them");
        assert!(of(&kept, much) > ROOM / 3, "and what there is room for of the others: {}", kept.len());
        assert_eq!(room.lost() as usize + kept.len(), 8_040);
    }

    /// A user's applications have what one application of another has.
    #[test]
    fn more_applications_of_a_user_have_no_more() {
        let mut room = SpanRoom::new(ROOM);
        for number in 0..40_000_u128 {
            let program = (number % 20) as u64;
            room.add(Waiting { source: application(1, program), trace: number << 8 });
            if number % 10 == 0 {
                room.add(Waiting { source: application(2, 1), trace: number << 8 | 1 });
            }
        }
        let kept = room.take(usize::MAX);
        let other = of(&kept, application(2, 1));
        assert!(other >= ROOM / 5 && kept.len() > ROOM / 2, "{other} of {}", kept.len());
    }

    #[test]
    fn what_is_left_are_whole_traces_and_the_same_everywhere() {
        const SPANS: usize = 5;
        let source = application(1, 1);
        let kept_of = |traces: u128| {
            let mut room = SpanRoom::new(ROOM);
            for _ in 0..SPANS {
                // The calls of a trace end at some distance of each other.
                for trace in 0..traces {
                    room.add(Waiting { source, trace });
                }
            }
            let mut spans: BTreeMap<u128, usize> = BTreeMap::new();
            room.take(usize::MAX).iter().for_each(|call| *spans.entry(call.trace).or_default() += 1);
            spans
        };
        let (here, there) = (kept_of(3_000), kept_of(1_000));
        assert!(here.len() > 200 && here.values().all(|spans| *spans == SPANS), "{}", here.len());
        assert!(there.values().all(|spans| *spans == SPANS));
        let both = here.keys().filter(|trace| **trace < 1_000 && there.contains_key(trace)).count();
        assert_eq!(
            both,
            here.keys().filter(|trace| **trace < 1_000).count(),
            "who keeps more has these, too"
        );
    }

    #[test]
    fn who_has_little_for_a_while_keeps_all_again() {
        let mut room = SpanRoom::new(ROOM);
        let source = application(1, 1);
        let mut number = 0;
        let mut round = |room: &mut SpanRoom<Waiting>, calls: usize| {
            for _ in 0..calls {
                number += 1;
                room.add(Waiting { source, trace: number });
            }
            room.note_time();
            room.take(usize::MAX).len()
        };
        assert!(round(&mut room, 40_000) < ROOM);
        let kept: Vec<usize> = (0..8).map(|_| round(&mut room, 100)).collect();
        assert!(kept[0] < 50 && kept[7] == 100, "{kept:?}");
        assert!(room.shares.iter().all(SpanShare::is_at_rest));
    }

    /// Traces whose ids are chosen are drawn as others are, and one trace of everything is given up as a whole.
    #[test]
    fn one_trace_without_end_is_given_up() {
        let mut room = SpanRoom::new(ROOM);
        (0..3 * ROOM).for_each(|_| room.add(Waiting { source: application(1, 1), trace: 7 }));
        assert_eq!(room.take(usize::MAX).len(), 0);
        let lower = (0..).find(|trace| draw(*trace) < draw(7)).unwrap();
        let other = Waiting { source: application(1, 1), trace: lower };
        room.add(other);
        assert_eq!(room.take(usize::MAX), [other]);
    }

    #[test]
    fn so_many_are_told_apart_and_elsewhere_takes_nothing_from_here() {
        let mut room = SpanRoom::new(ROOM);
        for host in 0..10_000 {
            room.add(Waiting { source: SpanSource::new(false, host, 0), trace: host.into() });
        }
        assert_eq!(room.shares.len(), OTHERS.len() + SPAN_SOURCES_MAX);
        (0..100).for_each(|trace| room.add(Waiting { source: application(1, 1), trace }));
        assert_eq!(room.shares.len(), OTHERS.len() + SPAN_SOURCES_MAX + 1);
        assert_eq!(of(&room.take(usize::MAX), application(1, 1)), 100);
    }

    proptest! {
        #[test]
        fn every_call_is_taken_or_lost(
            room_for in 0_usize..40,
            calls in prop::collection::vec((any::<bool>(), 0..5_u64, 0..3_u64, 0..20_u128, 0..30_u8), 0..400),
        ) {
            let (mut room, mut taken, count) = (SpanRoom::new(room_for), 0, calls.len());
            for (is_here, user, program, trace, what) in calls {
                match what {
                    0 => taken += room.take(usize::from(what) + 3).len(),
                    1 => room.note_time(),
                    _ => {}
                }
                room.add(Waiting { source: SpanSource::new(is_here, user, program), trace });
                prop_assert!(room.len() <= room_for);
                let held: usize = room.shares.iter().map(|share| share.held).sum();
                prop_assert_eq!(held, room.len());
            }
            taken += room.take(usize::MAX).len();
            prop_assert_eq!(taken + room.lost() as usize, count);
        }
    }
}
