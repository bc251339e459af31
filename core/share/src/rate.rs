//! So many per second, for each of many keys, over all shards.
//!
//! A bucket is one instant, as in the generic cell rate algorithm (ITU-T I.371): when it will be full again. Buckets
//! lie in an open hash table of fixed size. A bucket that is full holds nothing worth remembering, so its cell may be
//! the next key's. Two shards that do so at once may charge a token to the other's key, or begin two buckets for one
//! key, of which all then use the one that is emptier: neither lets more pass than a burst that nobody had asked for.

use crate::sync::{AtomicU64, Ordering};

/// How much may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// Time between two.
    pub interval_ns: u64,
    /// How many at once.
    pub burst: u32,
    /// Keys that are remembered at once. More share one bucket, and so do a few that find their cells in use.
    pub keys_max: usize,
}

/// The buckets of one limit.
#[derive(Debug)]
pub struct SharedRate {
    limits: RateLimits,
    /// The bucket of those without a key.
    whole: Bucket,
    /// That of all keys there was no cell for.
    overflow: Bucket,
    cells: Box<[Cell]>,
}

/// When it is full again. It has cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Bucket(AtomicU64);

#[derive(Debug)]
struct Cell {
    /// Zero: nobody's.
    key: AtomicU64,
    full_at: AtomicU64,
}

/// Cells that a key may have: as many as two cache lines hold.
const WINDOW: usize = 8;
/// Cells for each key that is remembered. A key in a thousand finds none in its window then.
const CELLS_PER_KEY: usize = 4;
/// How often a cell that another shard has just taken is looked for anew.
const CLAIMS_MAX: usize = 4;

impl RateLimits {
    /// Time an empty bucket takes to fill.
    pub fn span_ns(&self) -> u64 {
        self.interval_ns.saturating_mul(self.burst.into())
    }
}

impl SharedRate {
    /// Full buckets. `has_keys` says whether there is any key but zero.
    pub fn new(limits: RateLimits, has_keys: bool) -> Self {
        let count =
            if has_keys { (limits.keys_max * CELLS_PER_KEY).next_power_of_two().max(WINDOW) } else { 0 };
        let cell = |_| Cell { key: AtomicU64::new(0), full_at: AtomicU64::new(0) };
        let bucket = || Bucket(AtomicU64::new(0));
        Self { limits, whole: bucket(), overflow: bucket(), cells: (0..count).map(cell).collect() }
    }

    /// Buckets as full as those of another limit are: what is half empty stays so.
    pub fn in_place_of(old: &Self, limits: RateLimits, has_keys: bool, now_ns: u64) -> Self {
        let new = Self::new(limits, has_keys);
        let (old_span, new_span) = (old.limits.span_ns().max(1), limits.span_ns());
        let full_at = |old_full_at: u64| {
            let owed = u128::from(old_full_at.saturating_sub(now_ns).min(old_span));
            let owed = owed * u128::from(new_span) / u128::from(old_span);
            now_ns.saturating_add(u64::try_from(owed).unwrap_or(u64::MAX))
        };
        for (key, old_full_at) in old.emptier_than_full(now_ns) {
            new.empty(key, full_at(old_full_at));
        }
        new
    }

    /// What may pass.
    pub fn limits(&self) -> RateLimits {
        self.limits
    }

    /// Whether keys have buckets of their own.
    pub fn has_keys(&self) -> bool {
        !self.cells.is_empty()
    }

    /// Takes up to `most` tokens of a key's bucket.
    ///
    /// # Errors
    /// Nanoseconds until there is one.
    pub fn take(&self, now_ns: u64, key: u64, most: u32) -> Result<u32, u64> {
        let bucket = self.bucket(now_ns, key);
        let (interval, span) = (self.limits.interval_ns, self.limits.span_ns());
        let mut full_at = bucket.load(Ordering::Relaxed);
        loop {
            let from = full_at.max(now_ns);
            let owed = from - now_ns;
            let free = span.saturating_sub(owed) / interval.max(1);
            if free == 0 {
                return Err((owed + interval).saturating_sub(span));
            }
            let taken = u32::try_from(free).unwrap_or(u32::MAX).min(most.max(1));
            let next = from.saturating_add(interval.saturating_mul(taken.into()));
            match bucket.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(taken),
                Err(found) => full_at = found,
            }
        }
    }

    /// Puts tokens back that were not used. A bucket that is full takes none.
    pub fn give_back(&self, now_ns: u64, key: u64, tokens: u32) {
        let Some(bucket) = self.find(key) else { return };
        let owed = self.limits.interval_ns.saturating_mul(tokens.into());
        let mut full_at = bucket.load(Ordering::Relaxed);
        while full_at > now_ns {
            let next = full_at.saturating_sub(owed).max(now_ns);
            match bucket.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => full_at = found,
            }
        }
    }

    /// A key's bucket is at least so empty that it is full at this instant.
    pub fn empty(&self, key: u64, full_at_ns: u64) {
        self.bucket(0, key).fetch_max(full_at_ns, Ordering::Relaxed);
    }

    /// The buckets that are not full: keys, and when they will be.
    pub fn emptier_than_full(&self, now_ns: u64) -> impl Iterator<Item = (u64, u64)> {
        let cells = self
            .cells
            .iter()
            .map(|cell| (cell.key.load(Ordering::Relaxed), cell.full_at.load(Ordering::Relaxed)));
        let whole = (0, self.whole.0.load(Ordering::Relaxed));
        cells.filter(|(key, _)| *key != 0).chain([whole]).filter(move |(_, full_at)| *full_at > now_ns)
    }

    /// A key's bucket: one that is full, if it had none.
    fn bucket(&self, now_ns: u64, key: u64) -> &AtomicU64 {
        if key == 0 || self.cells.is_empty() {
            return &self.whole.0;
        }
        for _ in 0..CLAIMS_MAX {
            if let Some(known) = self.find(key) {
                return known;
            }
            let is_free =
                |(cell, key): &(&Cell, u64)| *key == 0 || cell.full_at.load(Ordering::Relaxed) <= now_ns;
            let window = self.window(key).map(|cell| (cell, cell.key.load(Ordering::Relaxed)));
            let Some((cell, before)) = { window }.find(is_free) else { break };
            // Whoever finds the key there finds a full bucket: what the cell had before is over.
            let _ = cell.key.compare_exchange(before, key, Ordering::Relaxed, Ordering::Relaxed);
        }
        &self.overflow.0
    }

    /// A key's bucket, if it has one: the emptier, if it has two.
    fn find(&self, key: u64) -> Option<&AtomicU64> {
        if key == 0 || self.cells.is_empty() {
            return Some(&self.whole.0);
        }
        let own = self.window(key).filter(|cell| cell.key.load(Ordering::Relaxed) == key);
        own.map(|cell| &cell.full_at).max_by_key(|full_at| full_at.load(Ordering::Relaxed))
    }

    fn window(&self, key: u64) -> impl Iterator<Item = &Cell> {
        // Keys are hashes, of which applications choose what is hashed: the middle bits of a product mix all.
        let start = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize;
        (0..WINDOW).filter_map(move |step| self.cells.get((start + step) & (self.cells.len() - 1)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    //! Shows burst and refill, that made-up keys share what there is, and that another rate leaves buckets as full as
    //! they were.
    use super::*;

    const LIMITS: RateLimits = RateLimits { interval_ns: 100, burst: 3, keys_max: 4 };

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        for key in [0, 7] {
            let rate = SharedRate::new(LIMITS, key != 0);
            let now = 1_000_000;
            assert_eq!(rate.take(now, key, 2), Ok(2));
            assert_eq!(rate.take(now, key, 2), Ok(1), "no more than there is");
            assert_eq!(rate.take(now, key, 1), Err(100));
            assert_eq!(rate.take(now + 40, key, 1), Err(60));
            assert_eq!(rate.take(now + 100, key, 9), Ok(1));
            rate.give_back(now + 100, key, 1);
            assert_eq!(rate.take(now + 100, key, 9), Ok(1));
            rate.give_back(now + 10_000, key, 50);
            assert_eq!(rate.take(now + 10_000, key, 9), Ok(3), "and no more than it holds");
        }
    }

    #[test]
    fn made_up_keys_share_one_bucket_and_leave_others_alone() {
        let rate = SharedRate::new(LIMITS, true);
        let now = 5_000_000;
        (0..LIMITS.burst).for_each(|_| assert!(rate.take(now, 42, 1).is_ok()));
        let passed = (100..10_000).filter(|key| rate.take(now, key * 77_777_777, 3).is_ok()).count();
        assert!(passed <= rate.cells.len() + LIMITS.burst as usize, "{passed}");
        assert!(rate.take(now, 42, 1).is_err(), "nobody has taken its cell");
        assert!(rate.take(now + 301, 42, 3) == Ok(3));
        assert!(rate.take(now + 301, 123, 1).is_ok(), "full buckets make room");
    }

    #[test]
    fn another_rate_leaves_buckets_as_full_as_they_were() {
        let now = 1_000_000;
        for taken in 0..=3 {
            for (interval_ns, burst) in [(1000, 3), (7, 300), (1 << 50, 3)] {
                let old = SharedRate::new(LIMITS, true);
                (0..taken).for_each(|_| assert_eq!(old.take(now, 9, 1), Ok(1)));
                let new = RateLimits { interval_ns, burst, keys_max: 50 };
                let new = SharedRate::in_place_of(&old, new, true, now);
                let passed = (0..burst).take_while(|_| new.take(now, 9, 1).is_ok()).count();
                let most = (burst as usize * (3 - taken)).div_ceil(3);
                assert!((most.saturating_sub(1)..=most).contains(&passed), "{taken} taken, {passed} pass");
            }
        }
    }
}
