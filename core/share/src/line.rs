//! Places that calls wait for, over all shards.
//!
//! Calls wait on their own shard. A shard with calls that wait says so in one word for all, and then looks once more
//! whether there is a place; one that gives a place back asks afterwards who waits. One of the two sees the other
//! (Dekker), so no place is free while somebody waits and nobody knows.

use crate::count::{CountShare, SharedCount};
use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering, fence};

/// Places, and who waits for them.
#[derive(Debug)]
pub struct SharedPlaces {
    count: Arc<SharedCount>,
    /// A bit for every shard that has calls waiting.
    waiting: AtomicU32,
    /// Calls that wait.
    calls: AtomicU64,
}

/// One shard's part of places.
#[derive(Debug, Default)]
pub struct PlaceShare {
    count: CountShare,
    /// Calls that wait here, as all shards know.
    waits: u64,
    /// Whose turn it was last to get a place from here.
    turn: u16,
    own: u16,
    host: Option<Arc<SharedPlaces>>,
}

impl SharedPlaces {
    /// Of so many shards, 32 at most.
    pub fn new(shards: u16) -> Self {
        let count = Arc::new(SharedCount::new(shards));
        Self { count, waiting: AtomicU32::new(0), calls: AtomicU64::new(0) }
    }

    /// Places that shards have taken.
    pub fn taken(&self) -> u64 {
        self.count.taken()
    }

    fn enter(&self, own: u16) {
        self.waiting.fetch_or(1 << own, Ordering::Relaxed);
        // SYNC: pairs with the fence in `others`. Either it sees our bit or we see the place that was given back.
        fence(Ordering::SeqCst);
    }

    fn leave(&self, own: u16) {
        self.waiting.fetch_and(!(1 << own), Ordering::Relaxed);
    }

    /// Shards other than this one that have calls waiting.
    fn others(&self, own: u16) -> u32 {
        // SYNC: pairs with the fence in `enter`. Either we see its bit or it sees the place that we have given back.
        fence(Ordering::SeqCst);
        self.waiting.load(Ordering::Relaxed) & !(1 << own)
    }
}

impl PlaceShare {
    /// Of a shard that uses so many already.
    pub fn using(used: u64) -> Self {
        Self { count: CountShare::using(used), waits: 0, turn: 0, own: 0, host: None }
    }

    /// This shard is one of several from now on, by this number among them; so many calls wait here.
    pub fn join(&mut self, host: &Arc<SharedPlaces>, own: u16, waits: usize) {
        self.leave();
        self.count.join(&host.count);
        (self.own, self.turn, self.host) = (own, own, Some(Arc::clone(host)));
        self.wait(waits);
    }

    /// Whether it is one of several, and of these.
    pub fn has_joined(&self, host: &Arc<SharedPlaces>) -> bool {
        self.host.as_ref().is_some_and(|joined| Arc::ptr_eq(joined, host))
    }

    /// Places that are used here.
    pub fn used(&self) -> u64 {
        self.count.used()
    }

    /// Takes a place, if there is one and nobody waits for it elsewhere.
    pub fn take(&mut self, max: u32) -> bool {
        !self.is_waited_for() && self.count.take(1, max.into())
    }

    /// Takes a place for a call that has waited.
    pub fn take_waited_for(&mut self, max: u32) -> bool {
        self.count.take_bare(1, max.into())
    }

    /// A place is used no more.
    pub fn give_back(&mut self) {
        self.count.give_back(1);
        if self.is_waited_for() {
            self.count.keep_nothing();
        }
    }

    /// Somebody waits elsewhere: gives up what is kept in spare. Whether there was any.
    pub fn keep_nothing(&mut self) -> bool {
        self.count.keep_nothing()
    }

    /// So many calls wait here by now. `true`: the first of them begin to, and others are to be told; and there may be
    /// a place by now.
    pub fn wait(&mut self, calls: usize) -> bool {
        let Some(host) = &self.host else { return false };
        let (calls, before) = (calls as u64, self.waits);
        self.waits = calls;
        if calls > before {
            host.calls.fetch_add(calls - before, Ordering::Relaxed);
        } else if calls < before {
            host.calls.fetch_sub(before - calls, Ordering::Relaxed);
        }
        match (before, calls) {
            (0, 1..) => host.enter(self.own),
            (1.., 0) => host.leave(self.own),
            _ => {}
        }
        before == 0 && calls > 0
    }

    /// Calls that wait elsewhere.
    pub fn waiting_elsewhere(&self) -> usize {
        let all = self.host.as_ref().map_or(0, |host| host.calls.load(Ordering::Relaxed));
        all.saturating_sub(self.waits) as usize
    }

    /// Whether calls wait elsewhere.
    pub fn is_waited_for(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.others(self.own) != 0)
    }

    /// Who is to have the next place that is free here: shards that wait have their turn one after the other, this one
    /// among them if calls wait here. `None`: it is this shard's turn, or nobody waits elsewhere.
    pub fn next_turn(&mut self) -> Option<u16> {
        let host = self.host.as_ref()?;
        let others = host.others(self.own);
        let waiting = if self.waits > 0 { others | 1 << self.own } else { others };
        if others == 0 {
            return None;
        }
        let after = (self.turn + 1) % 32;
        let next = (waiting.rotate_right(after.into()).trailing_zeros() as u16 + after) % 32;
        self.turn = next;
        (next != self.own).then_some(next)
    }

    fn leave(&mut self) {
        self.wait(0);
        self.host = None;
    }
}

impl Drop for PlaceShare {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    //! Shows whose turn it is, and that nobody overtakes who waits.
    use super::*;

    fn parts(count: u16) -> (Arc<SharedPlaces>, Vec<PlaceShare>) {
        let host = Arc::new(SharedPlaces::new(count));
        let part = |own| {
            let mut part = PlaceShare::default();
            part.join(&host, own, 0);
            part
        };
        let parts = (0..count).map(part).collect();
        (host, parts)
    }

    #[test]
    fn shards_that_wait_have_their_turn_one_after_the_other() {
        let (_host, mut parts) = parts(32);
        for waiting in [3, 31, 5] {
            assert!(parts[waiting].wait(1), "others are to be told");
        }
        assert!(!parts[5].wait(2), "they know");
        let turns: Vec<_> = (0..7).map(|_| parts[5].next_turn()).collect();
        assert_eq!(turns, [Some(31), Some(3), None, Some(31), Some(3), None, Some(31)]);
        assert_eq!(parts[0].next_turn(), Some(3));
        parts[3].wait(0);
        parts[31].wait(0);
        assert_eq!(parts[5].next_turn(), None);
        assert_eq!((parts[5].waiting_elsewhere(), parts[0].waiting_elsewhere()), (0, 2));
    }

    #[test]
    fn who_comes_later_does_not_overtake_who_waits_elsewhere() {
        let (host, mut parts) = parts(2);
        assert!(parts[0].take(1) && !parts[1].take(1));
        parts[1].wait(1);
        parts[0].give_back();
        assert!(!parts[0].take(1), "it is the other's");
        assert!(parts[1].take_waited_for(1));
        parts[1].wait(0);
        drop(parts);
        assert_eq!(host.taken(), 0);
    }
}
