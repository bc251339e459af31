//! Calls that wait for their turn, and those that must not wait any longer.
//!
//! A queue that does not empty is no buffer but a delay for everybody. So, as Facebook's servers do (Maurer, "Fail at
//! Scale", ACM Queue 13(8), 2015, after Nichols and Jacobson's CoDel, 2012): while some call has found room at once
//! within the last interval, calls may wait that long, and the oldest goes first. Once none has, they may wait no
//! longer than the target, and the newest goes first: the oldest is the one whose caller has most likely given up.
//! (That the queue is empty says nothing by itself: shedding empties it, too.)
//!
//! A call may leave at any time, and all of a session's may at once: each is found by its token.

use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, HashMap};
use trunkline_call::Instant;

/// Bounds of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct QueueSettings {
    /// Calls under way at once; more wait.
    pub calls_max: u32,
    /// Calls that wait at once; more are refused.
    pub waiting_max: u32,
    /// Time a call may wait while none finds room at once.
    pub target_ns: u64,
    /// Time it may wait otherwise, and the time without room that makes the difference.
    pub interval_ns: u64,
}

/// The calls that wait.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "WrittenQueue")]
pub(crate) struct Queue {
    pub settings: QueueSettings,
    /// Urgent ones, and the others, by the number each has; the oldest has the least.
    classes: [BTreeMap<u64, Waiting>; 2],
    /// The class and the number of each call, by its token.
    places: HashMap<u64, (usize, u64)>,
    next_number: u64,
    /// When a call last found room at once.
    idle_at: Instant,
    /// Urgent ones served in a row while others waited.
    in_a_row: u32,
    /// Calls that it was asked for the end of.
    #[cfg(test)]
    ends_told: std::cell::Cell<u64>,
}

/// A queue as it is handed over: each class with its oldest first.
#[derive(Default, Serialize, Deserialize)]
struct WrittenQueue {
    settings: QueueSettings,
    classes: [Vec<Waiting>; 2],
    idle_at: Instant,
    in_a_row: u32,
}

#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Waiting {
    token: u64,
    since: Instant,
}

/// What becomes of a call that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Served(u64),
    Shed(u64),
}

/// Urgent calls served before one of the others is, if any wait: they are late then, but never starve.
const IN_A_ROW_MAX: u32 = 16;

impl Queue {
    /// Whether one more may wait, beside so many on other shards.
    pub fn has_room(&self, elsewhere: usize) -> bool {
        self.len().saturating_add(elsewhere) < self.settings.waiting_max as usize
    }

    /// A call found room without waiting.
    pub fn note_idle(&mut self, now: Instant) {
        self.idle_at = now;
    }

    /// A call waits from now on.
    pub fn push(&mut self, now: Instant, token: u64, urgent: bool) {
        self.add(usize::from(!urgent), Waiting { token, since: now });
    }

    /// Until when each call that waits may do so, by its token.
    pub fn ends(&self) -> impl Iterator<Item = (u64, Instant)> {
        let waiting = self.classes.iter().flat_map(BTreeMap::values);
        waiting.map(|waiting| (waiting.token, self.end_of(waiting)))
    }

    /// Until when this one may, if it waits.
    pub fn end(&self, token: u64) -> Option<Instant> {
        let (class, number) = self.places.get(&token)?;
        self.classes[*class].get(number).map(|waiting| self.end_of(waiting))
    }

    /// The next call, for which there is room now, or one that must go.
    pub fn pop(&mut self, now: Instant) -> Option<Turn> {
        let overloaded = self.is_overloaded(now);
        let limit = if overloaded { self.settings.target_ns } else { self.settings.interval_ns };
        let late = |class: &BTreeMap<u64, Waiting>| {
            class.first_key_value().is_some_and(|(_, oldest)| now.since_ns(oldest.since) > limit)
        };
        if let Some(class) = self.classes.iter().position(late) {
            return self.take(class, false).map(Turn::Shed);
        }
        let [urgent, others] = &self.classes;
        let skips = self.in_a_row >= IN_A_ROW_MAX && !others.is_empty();
        let takes_urgent = !urgent.is_empty() && !skips;
        self.in_a_row = if takes_urgent && !others.is_empty() { self.in_a_row + 1 } else { 0 };
        self.take(usize::from(!takes_urgent), overloaded).map(Turn::Served)
    }

    /// A call waits no longer. Whether it did.
    pub fn remove(&mut self, token: u64) -> bool {
        let Some((class, number)) = self.places.remove(&token) else { return false };
        self.classes[class].remove(&number).is_some()
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    fn add(&mut self, class: usize, waiting: Waiting) {
        self.places.insert(waiting.token, (class, self.next_number));
        self.classes[class].insert(self.next_number, waiting);
        self.next_number += 1;
    }

    /// The newest of a class, or the oldest.
    fn take(&mut self, class: usize, newest: bool) -> Option<u64> {
        let class = &mut self.classes[class];
        let (_, waiting) = if newest { class.pop_last() } else { class.pop_first() }?;
        self.places.remove(&waiting.token);
        Some(waiting.token)
    }

    fn end_of(&self, waiting: &Waiting) -> Instant {
        #[cfg(test)]
        self.ends_told.update(|told| told + 1);
        waiting.since.plus_ns(self.settings.interval_ns.saturating_add(1))
    }

    fn is_overloaded(&self, now: Instant) -> bool {
        now.since_ns(self.idle_at) > self.settings.interval_ns
    }
}

impl Serialize for Queue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenQueue::of(self).serialize(serializer)
    }
}

impl WrittenQueue {
    fn of(queue: &Queue) -> Self {
        let Queue { settings, classes, idle_at, in_a_row, .. } = queue;
        let classes = [0, 1].map(|class: usize| classes[class].values().copied().collect());
        Self { settings: *settings, classes, idle_at: *idle_at, in_a_row: *in_a_row }
    }
}

impl From<WrittenQueue> for Queue {
    fn from(WrittenQueue { settings, classes, idle_at, in_a_row }: WrittenQueue) -> Self {
        let mut queue = Self { settings, idle_at, in_a_row, ..Self::default() };
        for (class, waiting) in classes.into_iter().enumerate() {
            for one in waiting {
                // Whoever writes a call twice has it once.
                queue.remove(one.token);
                queue.add(class, one);
            }
        }
        queue
    }
}

#[cfg(test)]
mod tests {
    //! Shows that calls leave a long queue in any order, and that a queue is the same when it was handed over.
    use super::*;

    fn queue(count: u64) -> Queue {
        let settings =
            QueueSettings { calls_max: 1, waiting_max: 1 << 20, target_ns: 5, interval_ns: 1 << 40 };
        let mut queue = Queue { settings, ..Queue::default() };
        (0..count).for_each(|token| queue.push(Instant(token / 100), token, token % 3 == 0));
        queue
    }

    /// Each looks at itself only: a hundred thousand that looked at all others would take minutes.
    #[test]
    fn any_number_leaves_in_any_order() {
        const COUNT: u64 = 1 << 10;
        let mut queue = queue(COUNT);
        for at in 0..COUNT {
            let token = at * 40_503 % COUNT;
            assert!(queue.end(token).is_some() && queue.remove(token) && !queue.remove(token));
            assert_eq!(queue.places.len(), queue.classes.iter().map(BTreeMap::len).sum(), "{token}");
        }
        assert_eq!(queue.ends_told.get(), COUNT);
        assert_eq!((queue.len(), queue.ends().count(), queue.pop(Instant(1))), (0, 0, None));
    }

    #[test]
    fn one_that_was_handed_over_goes_on_as_it_was() {
        let mut before = queue(300);
        (0..50).for_each(|at| assert!(before.remove(at * 5)));
        let mut after = Queue::from(WrittenQueue::of(&before));
        assert_eq!(after.len(), before.len());
        for now in 0..before.len() as u64 {
            assert_eq!(after.pop(Instant(now)), before.pop(Instant(now)));
        }
        assert_eq!((after.len(), after.pop(Instant(1))), (0, None));
    }
}
