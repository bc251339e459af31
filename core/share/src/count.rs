//! So many at once, over all shards.

use crate::sync::{Arc, AtomicU64, Ordering};

/// What the shards of a host have taken of a count. It has a cache line of its own, and the one that is fetched with
/// it.
#[derive(Debug)]
#[repr(align(128))]
pub struct SharedCount {
    taken: AtomicU64,
    shards: u64,
}

/// One shard's part of a count.
#[derive(Debug, Default)]
pub struct CountShare {
    used: u64,
    /// Taken out of what all may have: never less than is used.
    taken: u64,
    /// What is kept for what comes next, as of the last time that something was taken.
    spare: u64,
    /// None: this shard is alone.
    host: Option<Arc<SharedCount>>,
}

/// All shards together keep twice the sixteenth part of a count in spare at most.
const SPARE_PART: u64 = 16;

impl SharedCount {
    /// Of so many shards.
    pub fn new(shards: u16) -> Self {
        Self { taken: AtomicU64::new(0), shards: u64::from(shards).max(1) }
    }

    /// What all shards have taken: no less than they use.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes what is needed, and up to `spare` more. `None`: so much is not left.
    fn take(&self, needed: u64, spare: u64, max: u64) -> Option<u64> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let left = max.checked_sub(taken).filter(|left| *left >= needed)?;
            let more = needed.saturating_add(spare).min(left);
            match self.taken.compare_exchange_weak(taken, taken + more, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some(more),
                Err(found) => taken = found,
            }
        }
    }

    fn add(&self, units: u64) {
        self.taken.fetch_add(units, Ordering::Relaxed);
    }

    fn give(&self, units: u64) {
        if units > 0 {
            self.taken.fetch_sub(units, Ordering::Relaxed);
        }
    }
}

impl CountShare {
    /// Of a shard that uses so much already.
    pub fn using(used: u64) -> Self {
        Self { used, taken: used, spare: 0, host: None }
    }

    /// This shard is one of several from now on. What it uses is counted, whether there is room for it or not.
    pub fn join(&mut self, host: &Arc<SharedCount>) {
        self.leave();
        host.add(self.used);
        (self.taken, self.spare) = (self.used, 0);
        self.host = Some(Arc::clone(host));
    }

    /// What this shard uses.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Takes so much of `max`, if it is there.
    pub fn take(&mut self, units: u64, max: u64) -> bool {
        self.take_with(units, max, self.spare_of(max))
    }

    /// The same, and no more than that.
    pub fn take_bare(&mut self, units: u64, max: u64) -> bool {
        self.take_with(units, max, 0)
    }

    /// Whether so much of `max` is there. It is, until something else is asked of this part.
    pub fn reserve(&mut self, units: u64, max: u64) -> bool {
        self.reserve_with(units, max, self.spare_of(max))
    }

    /// Uses so much, whether there is room for it or not.
    pub fn hold(&mut self, units: u64) {
        self.used = self.used.saturating_add(units);
        let needed = self.used.saturating_sub(self.taken);
        self.taken += needed;
        if let Some(host) = self.host.as_ref().filter(|_| needed > 0) {
            host.add(needed);
        }
    }

    fn take_with(&mut self, units: u64, max: u64, spare: u64) -> bool {
        let fits = self.reserve_with(units, max, spare);
        if fits {
            self.hold(units);
        }
        fits
    }

    fn reserve_with(&mut self, units: u64, max: u64, spare: u64) -> bool {
        self.spare = spare;
        self.trim();
        let used = self.used.saturating_add(units);
        let Some(host) = &self.host else { return used <= max };
        let needed = used.saturating_sub(self.taken);
        if needed > 0 {
            let Some(more) = host.take(needed, spare, max) else { return false };
            self.taken += more;
        }
        true
    }

    fn spare_of(&self, max: u64) -> u64 {
        self.host.as_ref().map_or(0, |host| max / (SPARE_PART * host.shards))
    }

    /// So much is used no more.
    pub fn give_back(&mut self, units: u64) {
        self.used = self.used.saturating_sub(units);
        self.trim();
    }

    /// Keeps nothing that is not used. Whether there was any.
    pub fn keep_nothing(&mut self) -> bool {
        self.spare = 0;
        let kept = self.taken > self.used;
        self.trim();
        kept
    }

    /// Gives back what is more than twice what is kept: not every end of something is followed by giving back.
    fn trim(&mut self) {
        let idle = self.taken.saturating_sub(self.used);
        if idle > 2 * self.spare {
            self.taken = self.used + self.spare;
            if let Some(host) = &self.host {
                host.give(idle - self.spare);
            }
        }
    }

    fn leave(&mut self) {
        if let Some(host) = self.host.take() {
            host.give(self.taken);
        }
    }
}

impl Drop for CountShare {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    //! Shows the bounds of a count over random histories of one to three shards.
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_more_and_hardly_less(
            shards in 1usize..4,
            max in 1u64..400,
            steps in proptest::collection::vec((any::<u8>(), 0u64..5, any::<bool>()), 1..400),
        ) {
            let host = Arc::new(SharedCount::new(shards as u16));
            let mut parts: Vec<CountShare> = (0..shards).map(|_| CountShare::default()).collect();
            parts.iter_mut().for_each(|part| part.join(&host));
            for (pick, units, takes) in steps {
                let sum: u64 = parts.iter().map(CountShare::used).sum();
                let part = &mut parts[usize::from(pick) % shards];
                if !takes {
                    let units = units.min(part.used());
                    part.give_back(units);
                    continue;
                }
                let fits = sum + units <= max;
                let spared = (shards as u64 - 1) * 2 * (max / (SPARE_PART * shards as u64));
                prop_assert!(spared <= max / 8);
                let took = part.take(units, max);
                prop_assert!(!took || fits, "{sum} and {units} of {max}");
                prop_assert!(took || sum + units + spared > max, "{sum} and {units} of {max} refused");
            }
            drop(parts);
            prop_assert_eq!(host.taken(), 0);
        }
    }

    #[test]
    fn what_was_used_before_counts_and_may_be_too_much() {
        let host = Arc::new(SharedCount::new(2));
        let (mut one, mut other) = (CountShare::using(5), CountShare::default());
        one.join(&host);
        other.join(&host);
        assert!(!other.take(1, 4));
        one.give_back(2);
        assert!(other.take(1, 4) && !other.take(1, 4));
    }

    #[test]
    fn a_part_that_is_dropped_gives_back_what_it_had() {
        let host = Arc::new(SharedCount::new(2));
        let mut one = CountShare::default();
        one.join(&host);
        assert!(one.take(3, 1000));
        assert!(host.taken() > 3, "some is kept in spare");
        one.keep_nothing();
        assert_eq!(host.taken(), 3);
        drop(one);
        assert_eq!(host.taken(), 0);
    }

    #[test]
    fn most_calls_touch_nothing_that_is_shared() {
        let host = Arc::new(SharedCount::new(2));
        let mut part = CountShare::default();
        part.join(&host);
        let mut changes = 0;
        for _ in 0..1000 {
            let before = host.taken();
            assert!(part.take(1, 1000));
            part.give_back(1);
            changes += usize::from(host.taken() != before);
        }
        assert_eq!(changes, 1, "what it took first is enough for the rest");
    }
}
