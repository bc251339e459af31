//! One queue for the workers of all shards: calls that wait here, workers that are free there.
//!
//! A call waits on the shard it came to. A shard with calls that wait for a service's workers asks the shards that
//! serve it, too, for as many places; a shard with a free place and nobody who has waited half as long keeps it for the
//! one that asks, says so, and the head of the queue there crosses to it. So a worker that is free anywhere gets the
//! call that has waited longest, as with one JBSQ(n), and no shard touches what is another's. While a shard has a free
//! worker of its own, nothing is asked and nothing crosses.
//!
//! ```text
//!   shard 1: the queue grows │ Wanted { path, calls, since } ▶ │ shard 0: a place is free, and kept
//!            its head goes   │ ◀ Vacant { path }             │
//!            to the place    │ Open { kept } ▶               │ the call has the place
//!            or nobody waits │ Unused { path } ▶             │ the place is free
//! ```
//!
//! # Limits
//! * Unary calls of services without workers kept for a class only, as with the queue itself.
//! * A shard whose own sessions do not serve the method has no queue: its calls go to the shard with the fewest calls
//!   from it for each worker, and wait there. They do not cross again.
//! * Places are asked for [`ASKED_MAX`] at a time; what is kept for a shard that wants it no more is free a crossing
//!   later.

use trunkline_call::Instant;
use trunkline_dispatch::WorkerKey;

/// Places asked of one shard at once: enough that its workers find the next call there when they are free.
const ASKED_MAX: u32 = 32;

/// What the workers of one service and those who wait for them have to do with other shards.
#[derive(Debug, Default)]
pub(crate) struct SharedQueue {
    /// Places asked of other shards, and not given.
    asked: Vec<(u16, u32)>,
    /// What other shards ask for, the next first: one entry for each shard at most.
    wishes: Vec<(u16, PlacesAsked)>,
    /// Workers with a place that is kept for a shard: no more than there are places.
    kept: Vec<(u16, WorkerKey)>,
    /// More calls wait than did when others were asked.
    pub grown: bool,
}

/// Calls that wait on a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PlacesAsked {
    pub calls: u32,
    /// Since when the first of them has.
    pub since: Instant,
}

impl SharedQueue {
    /// What to ask a shard for, if so many calls wait: what it has not been asked for.
    pub fn ask(&mut self, shard: u16, waiting: usize, since: Instant) -> Option<PlacesAsked> {
        let wanted = u32::try_from(waiting).unwrap_or(u32::MAX).min(ASKED_MAX);
        let at = self.asked.iter().position(|(of, _)| *of == shard).unwrap_or_else(|| {
            self.asked.push((shard, 0));
            self.asked.len() - 1
        });
        let asked = &mut self.asked[at].1;
        let calls = wanted.checked_sub(*asked).filter(|calls| *calls > 0)?;
        *asked = wanted;
        Some(PlacesAsked { calls, since })
    }

    /// A shard keeps a place for a call from here.
    pub fn granted(&mut self, shard: u16) {
        if let Some((_, asked)) = self.asked.iter_mut().find(|(of, _)| *of == shard) {
            *asked = asked.saturating_sub(1);
        }
    }

    /// A shard is to be asked again.
    pub fn forget_asked(&mut self, shard: u16) {
        self.asked.retain(|(of, _)| *of != shard);
    }

    /// A shard asks.
    pub fn wish(&mut self, shard: u16, wish: PlacesAsked) {
        match self.wishes.iter_mut().find(|(of, _)| *of == shard) {
            Some((_, known)) => {
                *known = PlacesAsked { calls: known.calls.saturating_add(wish.calls), since: wish.since }
            }
            None => self.wishes.push((shard, wish)),
        }
    }

    /// Whether anybody asks.
    pub fn is_wanted(&self) -> bool {
        !self.wishes.is_empty()
    }

    /// Who is to have a place that is free, by the time the first call here has waited: the shard whose calls have
    /// waited longest, if for more than twice as long as those here. Between two that are equally busy nothing crosses.
    pub fn next(&self, now: Instant, own: Option<Instant>) -> Option<u16> {
        let (shard, wish) = self.wishes.iter().min_by_key(|(_, wish)| wish.since)?;
        let own_ns = own.map_or(0, |since| now.since_ns(since));
        let waits_longer = own.is_none() || now.since_ns(wish.since) > own_ns.saturating_mul(2);
        waits_longer.then_some(*shard)
    }

    /// A place is kept for a shard that asked.
    pub fn keep(&mut self, shard: u16, worker: WorkerKey) {
        self.kept.push((shard, worker));
        if let Some(at) = self.wishes.iter().position(|(of, _)| *of == shard) {
            // The next of equals comes first.
            let (shard, wish) = self.wishes.remove(at);
            if wish.calls > 1 {
                self.wishes.push((shard, PlacesAsked { calls: wish.calls - 1, ..wish }));
            }
        }
    }

    /// The place kept for a shard is taken, or is not to be.
    pub fn take_kept(&mut self, shard: u16) -> Option<WorkerKey> {
        let at = self.kept.iter().position(|(of, _)| *of == shard)?;
        Some(self.kept.swap_remove(at).1)
    }

    /// Nobody serves here any more. Who asked is told so by what is offered, and asks again when somebody does.
    pub fn forget_wishes(&mut self) {
        self.wishes.clear();
    }

    /// A worker has gone, with its places.
    pub fn forget(&mut self, worker: WorkerKey) {
        self.kept.retain(|(_, of)| *of != worker);
    }
}

#[cfg(test)]
mod tests {
    //! Shows what is asked for, and who gets the next place.
    use super::*;

    const NOW: Instant = Instant(1_000_000);

    fn wish(calls: u32, waits_ns: u64) -> PlacesAsked {
        PlacesAsked { calls, since: Instant(NOW.0 - waits_ns) }
    }

    #[test]
    fn as_much_is_asked_for_as_waits_and_no_more_than_once() {
        let mut shared = SharedQueue::default();
        assert_eq!(shared.ask(1, 2, NOW), Some(wish(2, 0)));
        assert_eq!(shared.ask(1, 2, NOW), None);
        assert_eq!(shared.ask(1, 3, NOW), Some(wish(1, 0)));
        shared.granted(1);
        assert_eq!(shared.ask(1, 3, NOW), Some(wish(1, 0)));
        assert_eq!(shared.ask(2, 1000, NOW), Some(wish(ASKED_MAX, 0)));
        assert_eq!(shared.ask(2, 2000, NOW), None);
    }

    #[test]
    fn who_has_waited_longest_is_next_and_equals_stay_where_they_are() {
        let mut shared = SharedQueue::default();
        shared.wish(1, wish(1, 100));
        shared.wish(2, wish(1, 200));
        assert_eq!(shared.next(NOW, None), Some(2));
        assert_eq!(shared.next(NOW, Some(Instant(NOW.0 - 99))), Some(2));
        assert_eq!(shared.next(NOW, Some(Instant(NOW.0 - 100))), None);
        shared.wish(1, wish(1, 500));
        assert_eq!(shared.next(NOW, Some(Instant(NOW.0 - 100))), Some(1));
        let worker = trunkline_dispatch::Dispatcher::<()>::new(Default::default()).join(1);
        [1, 1, 2].into_iter().for_each(|shard| shared.keep(shard, worker));
        assert!(!shared.is_wanted());
        assert_eq!([1, 2, 2].map(|shard| shared.take_kept(shard).is_some()), [true, true, false]);
        shared.forget(worker);
        assert_eq!(shared.take_kept(1), None);
    }
}
