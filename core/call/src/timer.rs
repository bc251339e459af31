//! Many deadlines, one question: who is due?

use crate::{Instant, KeyedMap};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

#[cfg(feature = "serde")]
mod handover;

/// Names one timer in a [`TimerTable`] for as long as it is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TimerKey(u64);

/// A set of timers ordered by instant; those of one instant are due in the order they came.
///
/// Most timers are for calls, which end long before, and about in the order they began; and most calls of an
/// application may take equally long. So timers wait in a few lines, each ordered because a timer joins one whose last
/// is not later, or whose last few give way to it; only what fits into none goes into a heap. What is cancelled is left
/// where it is until it comes first, or until the dead outnumber the living (so memory stays within twice the live
/// timers).
#[derive(Debug)]
pub struct TimerTable<T> {
    lines: [VecDeque<Entry>; LINES],
    /// When the last of each line is due; zero for an empty one.
    lasts: [Instant; LINES],
    rest: BinaryHeap<Reverse<Entry>>,
    /// The earliest of all, or one before it that was cancelled: most are, each the earliest when it is, so that the
    /// next is looked for when somebody asks.
    first: Option<Entry>,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Entries of timers that are gone.
    dead: usize,
    /// Timers ever inserted.
    inserted: u64,
    /// Where timers are that came with a hand-over, whose keys were given out by another table.
    adopted: KeyedMap<TimerKey, u32>,
}

/// Lines for as many usual lengths of time: deadlines, keepalives, delays before another attempt.
const LINES: usize = 2;

/// Entries at most that leave a line for one that is due before them.
const WAY_MAX: usize = 4;

/// What entries are ordered by comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Instant,
    /// How many timers had been inserted before it.
    number: u64,
    slot: u32,
}

#[derive(Debug)]
struct Slot<T> {
    /// Names the timer to whoever inserted it.
    key: TimerKey,
    /// The number of its entry.
    number: u64,
    what: Option<T>,
}

impl Entry {
    /// As they are ordered; no two have one number.
    #[inline]
    fn comes_before(&self, other: &Self) -> bool {
        self.at < other.at || self.at == other.at && self.number < other.number
    }
}

impl TimerKey {
    /// Index bits of a key; the rest, but for the topmost, is the number of the timer. It may repeat after 2^35 timers:
    /// nobody keeps the key of a timer that is gone for as long.
    const INDEX_BITS: u32 = 28;
    const INDEX_MASK: u64 = (1 << Self::INDEX_BITS) - 1;

    fn new(number: u64, index: usize) -> Self {
        Self((number << Self::INDEX_BITS | index as u64) & (u64::MAX >> 1))
    }

    fn index(self) -> usize {
        (self.0 & Self::INDEX_MASK) as usize
    }
}

impl<T> TimerTable<T> {
    /// Dead entries are swept once there are this many and they are the majority.
    const SWEEP_MIN: usize = 64;

    /// An empty table.
    pub fn new() -> Self {
        Self {
            lines: Default::default(),
            lasts: [Instant::default(); LINES],
            rest: BinaryHeap::new(),
            first: None,
            slots: Vec::new(),
            free: Vec::new(),
            dead: 0,
            inserted: 0,
            adopted: KeyedMap::default(),
        }
    }

    /// Adds a timer that is due at `at`.
    pub fn insert(&mut self, at: Instant, what: T) -> TimerKey {
        let number = self.inserted;
        self.inserted += 1;
        let index = self.free.pop().map_or(self.slots.len(), |index| index as usize);
        let entry = Entry { at, number, slot: index as u32 };
        let fits = self.lasts.iter().position(|last| *last <= at);
        let line = fits.unwrap_or_else(|| self.make_way(at));
        match self.lines.get_mut(line) {
            Some(joined) => {
                joined.push_back(entry);
                self.lasts[line] = at;
            }
            None => self.rest.push(Reverse(entry)),
        }
        if self.first.is_none_or(|first| entry.comes_before(&first)) {
            self.first = Some(entry);
        }
        let key = TimerKey::new(number, index);
        let slot = Slot { key, number, what: Some(what) };
        match self.slots.get_mut(index) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        key
    }

    /// A line whose last few are later gives those to the heap: a single timer far ahead (a connection's, among those
    /// of calls) would keep all others from the line until it is due.
    #[cold]
    fn make_way(&mut self, at: Instant) -> usize {
        let later = |line: &VecDeque<Entry>| {
            line.iter().rev().take(WAY_MAX + 1).take_while(|entry| entry.at > at).count()
        };
        let Some(line) = self.lines.iter().position(|line| later(line) <= WAY_MAX) else { return LINES };
        while self.lines[line].back().is_some_and(|entry| entry.at > at) {
            let Some(entry) = self.lines[line].pop_back() else { break };
            if is_live(&self.slots, &entry) {
                self.rest.push(Reverse(entry));
            } else {
                self.dead -= 1;
            }
        }
        line
    }

    /// Takes a timer out, unless [`TimerTable::due`] has returned it.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let cancelled = self.find(key).and_then(|index| self.take(index))?;
        if self.dead > self.len() + Self::SWEEP_MIN {
            self.sweep();
        }
        Some(cancelled)
    }

    /// Takes the earliest timer that is due at `now`.
    pub fn due(&mut self, now: Instant) -> Option<T> {
        let first = self.first.filter(|first| first.at <= now)?;
        let first = if is_live(&self.slots, &first) { first } else { self.settle_first()? };
        if first.at > now {
            return None;
        }
        let due = self.take(first.slot as usize);
        self.settle_first();
        due
    }

    /// The earliest timer, which stays.
    pub fn first(&mut self) -> Option<(Instant, &T)> {
        self.next_due()?;
        let entry = self.first?;
        Some((entry.at, self.slots.get(entry.slot as usize)?.what.as_ref()?))
    }

    /// When the next timer is due.
    #[inline]
    pub fn next_due(&mut self) -> Option<Instant> {
        let first = self.first?;
        let first = if is_live(&self.slots, &first) { first } else { self.settle_first()? };
        Some(first.at)
    }

    /// Number of live timers.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no timer is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of a live timer.
    fn find(&self, key: TimerKey) -> Option<usize> {
        let names =
            |index: &usize| self.slots.get(*index).is_some_and(|slot| slot.key == key && slot.what.is_some());
        let index = key.index();
        if names(&index) {
            return Some(index);
        }
        if self.adopted.is_empty() {
            return None;
        }
        self.adopted.get(&key).map(|index| *index as usize).filter(names)
    }

    /// Takes a timer out of its slot. Its entry stays, dead.
    #[inline(always)]
    fn take(&mut self, index: usize) -> Option<T> {
        let slot = self.slots.get_mut(index)?;
        let what = slot.what.take()?;
        self.dead += 1;
        self.free.push(index as u32);
        if !self.adopted.is_empty() {
            let key = self.slots.get(index)?.key;
            self.adopted.remove(&key);
        }
        Some(what)
    }

    /// Looks for the earliest timer, where the one that was is gone.
    fn settle_first(&mut self) -> Option<Entry> {
        self.drop_dead();
        let mut earliest = self.rest.peek().map(|Reverse(entry)| *entry);
        for front in self.lines.iter().filter_map(|line| line.front()) {
            if earliest.is_none_or(|entry| front.comes_before(&entry)) {
                earliest = Some(*front);
            }
        }
        self.first = earliest;
        earliest
    }

    /// Has the first of every line, and of the heap, be a live one.
    fn drop_dead(&mut self) {
        let Self { lines, lasts, rest, slots, dead, .. } = self;
        for (line, last) in lines.iter_mut().zip(lasts) {
            while line.front().is_some_and(|entry| !is_live(slots, entry)) {
                line.pop_front();
                *dead -= 1;
            }
            if line.is_empty() {
                *last = Instant::default();
            }
        }
        while rest.peek().is_some_and(|Reverse(entry)| !is_live(slots, entry)) {
            rest.pop();
            *dead -= 1;
        }
    }

    /// Throws the dead out: those that come first, as nearly all do, and the others if they are too many by themselves.
    fn sweep(&mut self) {
        self.drop_dead();
        if self.dead > self.len() + Self::SWEEP_MIN / 2 {
            let Self { lines, lasts, rest, slots, .. } = self;
            for (line, last) in lines.iter_mut().zip(lasts) {
                line.retain(|entry| is_live(slots, entry));
                *last = line.back().map_or(Instant::default(), |entry| entry.at);
            }
            rest.retain(|Reverse(entry)| is_live(slots, entry));
            self.dead = 0;
        }
    }
}

fn is_live<T>(slots: &[Slot<T>], entry: &Entry) -> bool {
    slots.get(entry.slot as usize).is_some_and(|slot| slot.number == entry.number && slot.what.is_some())
}

impl<T> Default for TimerTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    //! Shows order, cancellation, and that cancelled timers do not pile up.
    use super::*;

    #[test]
    fn due_in_order_and_not_before() {
        let mut timers = TimerTable::new();
        for at in [30, 10, 20] {
            timers.insert(Instant(at), at);
        }
        assert_eq!(timers.due(Instant(9)), None);
        assert_eq!(timers.next_due(), Some(Instant(10)));
        assert_eq!(
            [timers.due(Instant(25)), timers.due(Instant(25)), timers.due(Instant(25))],
            [Some(10), Some(20), None]
        );
        assert_eq!(timers.len(), 1);
    }

    #[test]
    fn timers_of_one_instant_are_due_as_they_came() {
        let mut timers = TimerTable::new();
        let keys: Vec<_> = (0..100).map(|number| timers.insert(Instant(7), number)).collect();
        for key in keys.iter().step_by(3) {
            timers.cancel(*key);
        }
        let due: Vec<_> = std::iter::from_fn(|| timers.due(Instant(7))).collect();
        assert_eq!(due, (0..100).filter(|number| number % 3 != 0).collect::<Vec<_>>());
    }

    #[test]
    fn cancelled_timers_never_fire_and_nothing_of_them_stays() {
        let mut timers = TimerTable::new();
        timers.insert(Instant(1), 0);
        for i in 1..10_000 {
            let key = timers.insert(Instant(1_000_000), i);
            timers.cancel(key);
            // It names nothing any more, and nothing that came after it.
            timers.cancel(key);
            assert_eq!(timers.slots.len(), 2);
            assert!(timers.lines[0].len() <= 2 + 64, "dead timers pile up: {}", timers.lines[0].len());
        }
        assert_eq!(timers.due(Instant(u64::MAX)), Some(0));
        assert_eq!(timers.due(Instant(u64::MAX)), None);
        assert_eq!(timers.len(), 0);
    }

    #[test]
    fn the_dead_behind_the_living_are_swept() {
        let mut timers = TimerTable::new();
        for number in 0..1000_u32 {
            timers.insert(Instant(u64::from(number) % 2 * 7), number);
            let falling = timers.insert(Instant(1_000_000 - u64::from(number)), number);
            let rising = timers.insert(Instant(2_000_000 + u64::from(number)), number);
            timers.cancel(falling);
            timers.cancel(rising);
            let entries = timers.rest.len() + timers.lines.iter().map(VecDeque::len).sum::<usize>();
            assert!(entries <= 2 * timers.len() + 64, "{entries} entries of {} timers", timers.len());
        }
        assert_eq!(timers.len(), 1000);
    }

    #[test]
    fn a_few_timers_far_ahead_keep_nobody_from_the_lines() {
        let mut timers = TimerTable::new();
        for number in 0..1000_u64 {
            if number % 100 == 0 {
                // A connection's, an hour ahead; and one half as far.
                timers.insert(Instant(number + 3_600_000), 0);
                timers.insert(Instant(number + 1_800_000), 0);
            }
            timers.insert(Instant(number + 5000), 1);
        }
        assert!(timers.rest.len() <= 20, "{} in the heap", timers.rest.len());
        let due: Vec<u32> = std::iter::from_fn(|| timers.due(Instant(6000))).collect();
        assert_eq!(due, [1; 1000]);
        assert_eq!(timers.len(), 20);
    }

    proptest::proptest! {
        /// Any order of insertions, cancellations and time, beside a list that is searched.
        #[test]
        fn agrees_with_a_list(steps in proptest::collection::vec((0..3_u8, 0..50_u64), 0..400)) {
            let mut timers = TimerTable::new();
            let mut list: Vec<(Instant, usize, TimerKey)> = Vec::new();
            for (number, (step, value)) in steps.into_iter().enumerate() {
                match step {
                    0 => list.push((Instant(value), number, timers.insert(Instant(value), number))),
                    1 if !list.is_empty() => {
                        let (_, _, key) = list.swap_remove(value as usize % list.len());
                        timers.cancel(key);
                    }
                    _ => {
                        let first = list.iter().copied().filter(|(at, ..)| at.0 <= value).min();
                        list.retain(|timer| Some(*timer) != first);
                        proptest::prop_assert_eq!(timers.due(Instant(value)), first.map(|(_, number, _)| number));
                    }
                }
                proptest::prop_assert_eq!(timers.len(), list.len());
                proptest::prop_assert_eq!(timers.next_due(), list.iter().map(|(at, ..)| *at).min());
            }
        }
    }
}
