//! Many deadlines, one question: who is due?

use crate::{Instant, KeyedSet};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Names one timer in a [`TimerTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct TimerKey(u64);

/// A set of timers ordered by instant.
///
/// Cancelling is lazy: most calls end long before their deadline, so a cancelled timer is forgotten by key and its heap
/// entry dropped when it surfaces, or when the dead outnumber the living (so memory stays within twice the live
/// timers).
#[derive(Debug)]
pub struct TimerTable<T> {
    heap: BinaryHeap<Reverse<Timer<T>>>,
    cancelled: KeyedSet<TimerKey>,
    next_key: u64,
}

#[derive(Debug)]
struct Timer<T> {
    at: Instant,
    key: TimerKey,
    what: T,
}

impl<T> TimerTable<T> {
    /// Dead entries are swept once there are this many and they are the majority.
    const SWEEP_MIN: usize = 64;
    /// Far beyond what any process gives out, far below where counting on would wrap.
    const KEYS_MAX: u64 = u64::MAX / 2;

    /// An empty table.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), cancelled: KeyedSet::default(), next_key: 0 }
    }

    /// Adds a timer that is due at `at`.
    pub fn insert(&mut self, at: Instant, what: T) -> TimerKey {
        let key = TimerKey(self.next_key);
        self.next_key += 1;
        self.heap.push(Reverse(Timer { at, key, what }));
        key
    }

    /// Forgets a timer that has not been returned by [`TimerTable::due`] yet.
    pub fn cancel(&mut self, key: TimerKey) {
        self.cancelled.insert(key);
        if self.cancelled.len() >= Self::SWEEP_MIN && self.cancelled.len() * 2 > self.heap.len() {
            let Self { heap, cancelled, .. } = self;
            heap.retain(|Reverse(timer)| !cancelled.contains(&timer.key));
            // Cleared, not dropped: it fills up again as soon as calls go on.
            cancelled.clear();
        }
    }

    /// Takes the earliest timer that is due at `now`.
    pub fn due(&mut self, now: Instant) -> Option<T> {
        self.drop_cancelled();
        if self.heap.peek()?.0.at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(timer)| timer.what)
    }

    /// When the next timer is due.
    pub fn next_due(&mut self) -> Option<Instant> {
        self.drop_cancelled();
        self.heap.peek().map(|Reverse(timer)| timer.at)
    }

    /// Number of live timers.
    pub fn len(&self) -> usize {
        self.heap.len().saturating_sub(self.cancelled.len())
    }

    /// Whether no timer is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn drop_cancelled(&mut self) {
        while let Some(Reverse(timer)) = self.heap.peek() {
            if self.cancelled.is_empty() || !self.cancelled.remove(&timer.key) {
                return;
            }
            self.heap.pop();
        }
    }
}

/// Handed over as what is live; keys that were given out stay valid.
impl<T: Serialize> Serialize for TimerTable<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let live = self.heap.iter().filter(|Reverse(timer)| !self.cancelled.contains(&timer.key));
        let live: Vec<_> = live.map(|Reverse(timer)| (timer.at, timer.key, &timer.what)).collect();
        (self.next_key, live).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TimerTable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (next_key, live) = <(u64, Vec<(Instant, TimerKey, T)>)>::deserialize(deserializer)?;
        if next_key > Self::KEYS_MAX || live.iter().any(|(_, key, _)| key.0 >= next_key) {
            return Err(D::Error::custom("a timer with a key that was never given out"));
        }
        let heap = live.into_iter().map(|(at, key, what)| Reverse(Timer { at, key, what })).collect();
        Ok(Self { heap, cancelled: KeyedSet::default(), next_key })
    }
}

impl<T> Default for TimerTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PartialEq for Timer<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.key) == (other.at, other.key)
    }
}

impl<T> Eq for Timer<T> {}

impl<T> PartialOrd for Timer<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Timer<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.key).cmp(&(other.at, other.key))
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
    fn cancelled_timers_never_fire_and_are_swept() {
        let mut timers = TimerTable::new();
        let keep = timers.insert(Instant(1), 0);
        for i in 1..10_000 {
            let key = timers.insert(Instant(1_000_000), i);
            timers.cancel(key);
            assert!(timers.heap.len() < 200, "dead timers pile up: {}", timers.heap.len());
        }
        assert_eq!(timers.due(Instant(u64::MAX)), Some(0));
        assert_eq!(timers.due(Instant(u64::MAX)), None);
        assert_eq!(timers.len(), 0);
        let _ = keep;
    }
}
