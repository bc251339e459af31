//! Token buckets by key, kept as one instant each.
//!
//! The generic cell rate algorithm (ITU-T I.371) is a token bucket in which one number stands for the level: the
//! instant at which the bucket will be full again. A call moves it by one interval; a call that would move it further
//! ahead than the burst is refused. A bucket that is full now holds nothing worth remembering, so it may be forgotten.

use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_share::{RateLimits, RateShare, SharedRate};

/// Buckets of one policy. Keys are hashes.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Buckets {
    full_at: HashMap<u64, Instant>,
    /// Time an empty bucket takes to fill: what the instants are measured in. Zero before the first call.
    #[serde(default)]
    span_ns: u64,
    /// The bucket of all keys there was no room for.
    overflow_full_at: Instant,
    /// No use looking for full buckets before.
    next_sweep: Instant,
    /// All of that is elsewhere, if other shards have calls of the same host.
    #[serde(skip)]
    share: Option<RateShare>,
    /// Then this shard writes what all of them have.
    #[serde(skip)]
    writes_for_all: bool,
}

/// Buckets as they are written: those of all shards, where they are shared, by the one of them that writes for all.
#[derive(Serialize)]
struct Written<'a> {
    full_at: Cow<'a, HashMap<u64, Instant>>,
    span_ns: u64,
    overflow_full_at: Instant,
    next_sweep: Instant,
}

impl Serialize for Buckets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written().serialize(serializer)
    }
}

/// How much may pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub interval_ns: u64,
    pub burst: u32,
    pub keys_max: usize,
}

impl Buckets {
    /// Takes a token of `key`'s bucket. Beyond `keys_max` keys, the new ones share one bucket until old ones are full
    /// again: memory stays bounded, and whoever makes up keys competes with others who do.
    ///
    /// # Errors
    /// Nanoseconds until there is a token.
    pub fn take(&mut self, now: Instant, key: u64, rate: Rate) -> Result<(), u64> {
        if let Some(share) = &mut self.share {
            return share.take(now.0, key);
        }
        if self.span_ns != rate.span_ns() {
            self.change_rate(now, rate);
        }
        if let Some(full_at) = self.full_at.get_mut(&key) {
            return take_from(full_at, now, rate);
        }
        if self.full_at.len() >= rate.keys_max && !self.sweep(now, rate) {
            return take_from(&mut self.overflow_full_at, now, rate);
        }
        take_from(self.full_at.entry(key).or_insert(now), now, rate)
    }

    /// From now on buckets fill at this rate and hold this burst. What is half empty stays so, and what is empty waits
    /// for a call as long as the new rate says: nobody owes time of the old one.
    pub fn change_rate(&mut self, now: Instant, rate: Rate) {
        let (old, new) = (self.span_ns, rate.span_ns());
        if old == new {
            return;
        }
        self.span_ns = new;
        if old == 0 {
            return;
        }
        let changed = |full_at: &mut Instant| {
            let owed_ns = u128::from(full_at.since_ns(now).min(old)) * u128::from(new) / u128::from(old);
            *full_at = now.plus_ns(u64::try_from(owed_ns).unwrap_or(u64::MAX));
        };
        self.full_at.values_mut().chain([&mut self.overflow_full_at]).for_each(changed);
    }

    fn written(&self) -> Written<'_> {
        let (full_at, span_ns) = match &self.share {
            None => (Cow::Borrowed(&self.full_at), self.span_ns),
            Some(share) if !self.writes_for_all => (Cow::default(), share.host().limits().span_ns()),
            Some(share) => {
                let known = share.host().emptier_than_full(share.latest_ns());
                let known = known.map(|(key, full_at)| (key, Instant(full_at))).collect();
                (Cow::Owned(known), share.host().limits().span_ns())
            }
        };
        let (overflow_full_at, next_sweep) = (self.overflow_full_at, self.next_sweep);
        Written { full_at, span_ns, overflow_full_at, next_sweep }
    }

    /// From now on these buckets are the host's, which are at least as empty as these were. One of the shards
    /// `writes_for_all` what the next process is to know.
    pub fn share(&mut self, host: &Arc<SharedRate>, shards: u16, writes_for_all: bool) {
        self.writes_for_all = writes_for_all;
        if self.share.as_ref().is_some_and(|share| Arc::ptr_eq(share.host(), host)) {
            return;
        }
        for (key, full_at) in self.full_at.drain() {
            host.empty(key, full_at.0);
        }
        self.share = Some(RateShare::new(host, shards));
    }

    /// Forgets full buckets. Whether there is room now.
    fn sweep(&mut self, now: Instant, rate: Rate) -> bool {
        if now < self.next_sweep {
            return false;
        }
        self.full_at.retain(|_, full_at| *full_at > now);
        // A sweep looks at every key, so it must not happen at every call. Sooner than an empty bucket takes to fill
        // there is little to find.
        let pause = rate.span_ns().clamp(1_000_000, 1_000_000_000);
        self.next_sweep = now.plus_ns(pause);
        self.full_at.len() < rate.keys_max
    }
}

impl From<Rate> for RateLimits {
    fn from(rate: Rate) -> Self {
        Self { interval_ns: rate.interval_ns, burst: rate.burst, keys_max: rate.keys_max }
    }
}

impl Rate {
    /// Time an empty bucket takes to fill.
    fn span_ns(&self) -> u64 {
        self.interval_ns.saturating_mul(self.burst.into())
    }
}

fn take_from(full_at: &mut Instant, now: Instant, rate: Rate) -> Result<(), u64> {
    let next = (*full_at).max(now).plus_ns(rate.interval_ns);
    let ahead_ns = next.since_ns(now);
    let most_ns = rate.span_ns();
    if ahead_ns > most_ns {
        return Err(ahead_ns - most_ns);
    }
    *full_at = next;
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Shows burst, refill, and that made-up keys neither grow the table nor take from those who were there.
    use super::*;

    const RATE: Rate = Rate { interval_ns: 100, burst: 3, keys_max: 4 };

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut buckets = Buckets::default();
        let now = Instant(1_000_000);
        let taken: Vec<bool> = (0..5).map(|_| buckets.take(now, 1, RATE).is_ok()).collect();
        assert_eq!(taken, [true, true, true, false, false]);
        assert_eq!(buckets.take(now, 1, RATE), Err(100));
        assert_eq!(buckets.take(now.plus_ns(40), 1, RATE), Err(60));
        assert!(buckets.take(now.plus_ns(100), 1, RATE).is_ok());
        assert!(buckets.take(now.plus_ns(100), 1, RATE).is_err());
        assert!(buckets.take(now, 2, RATE).is_ok(), "another key has its own");
    }

    #[test]
    fn another_rate_holds_at_once_and_leaves_buckets_as_full_as_they_were() {
        // An interval, calls at once; how many pass then, and how long the next one waits.
        let slow = Rate { interval_ns: 1_000_000_000_000, burst: 4, keys_max: 4 };
        let rates = [(1000, 4), (1000, 400), (7, 4), (1, 1), (1 << 50, 4), (1_000_000_000_000, 2)];
        for (interval_ns, burst) in rates {
            let rate = Rate { interval_ns, burst, keys_max: 4 };
            for taken in 0..=4 {
                let (mut buckets, now) = (Buckets::default(), Instant(1_000_000));
                (0..taken).for_each(|_| buckets.take(now, 1, slow).unwrap());
                buckets.change_rate(now, rate);
                let passed = (0..burst).take_while(|_| buckets.take(now, 1, rate).is_ok()).count();
                let most = (burst as usize * (4 - taken)).div_ceil(4);
                assert!(
                    (most.saturating_sub(1)..=most).contains(&passed),
                    "{rate:?}: {taken} taken, {passed} pass"
                );
                let wait_ns = buckets.take(now, 1, rate).unwrap_err();
                assert!(wait_ns <= interval_ns, "{rate:?}: {taken} taken, the next waits for {wait_ns} ns");
            }
        }
    }

    #[test]
    fn of_several_shards_one_writes_what_all_have() {
        let limits = trunkline_share::HostLimits::new(2);
        let (shared, now) = (limits.rate("x", RATE.into(), true, 0), Instant(1_000_000));
        let mut shards = [true, false].map(|writes| {
            let mut buckets = Buckets::default();
            buckets.share(&shared, 2, writes);
            buckets
        });
        for key in 0..4 {
            shards[key as usize % 2].take(now, key, RATE).unwrap();
        }
        assert_eq!(shards.each_ref().map(|buckets| buckets.written().full_at.len()), [4, 0]);
        assert_eq!(shards.map(|buckets| buckets.written().span_ns), [300; 2]);
    }

    #[test]
    fn made_up_keys_share_one_bucket() {
        let mut buckets = Buckets::default();
        let now = Instant(5_000_000);
        for key in 0..4 {
            buckets.take(now, key, RATE).unwrap();
        }
        let strangers = (100..200).filter(|key| buckets.take(now, *key, RATE).is_ok()).count();
        assert_eq!((strangers, buckets.full_at.len()), (3, 4));
        assert!(buckets.take(now, 0, RATE).is_ok(), "those who were there keep theirs");
        let later = now.plus_ns(2_000_000);
        assert!(buckets.take(later, 500, RATE).is_ok());
        assert_eq!(buckets.full_at.len(), 1, "full buckets made room");
    }
}
