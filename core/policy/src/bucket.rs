//! Token buckets by key, kept as one instant each.
//!
//! The generic cell rate algorithm (ITU-T I.371) is a token bucket in which one number stands for the level: the
//! instant at which the bucket will be full again. A call moves it by one interval; a call that would move it further
//! ahead than the burst is refused. A bucket that is full now holds nothing worth remembering, so it may be forgotten.

use std::collections::HashMap;
use trunkline_call::Instant;

/// Buckets of one policy. Keys are hashes.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Buckets {
    full_at: HashMap<u64, Instant>,
    /// The bucket of all keys there was no room for.
    overflow_full_at: Instant,
    /// No use looking for full buckets before.
    next_sweep: Instant,
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
        if let Some(full_at) = self.full_at.get_mut(&key) {
            return take_from(full_at, now, rate);
        }
        if self.full_at.len() >= rate.keys_max && !self.sweep(now, rate) {
            return take_from(&mut self.overflow_full_at, now, rate);
        }
        take_from(self.full_at.entry(key).or_insert(now), now, rate)
    }

    /// Forgets full buckets. Whether there is room now.
    fn sweep(&mut self, now: Instant, rate: Rate) -> bool {
        if now < self.next_sweep {
            return false;
        }
        self.full_at.retain(|_, full_at| *full_at > now);
        // A sweep looks at every key, so it must not happen at every call. Sooner than an empty bucket takes to fill
        // there is little to find.
        let pause = rate.interval_ns.saturating_mul(u64::from(rate.burst)).clamp(1_000_000, 1_000_000_000);
        self.next_sweep = now.plus_ns(pause);
        self.full_at.len() < rate.keys_max
    }
}

fn take_from(full_at: &mut Instant, now: Instant, rate: Rate) -> Result<(), u64> {
    let next = (*full_at).max(now).plus_ns(rate.interval_ns);
    let ahead_ns = next.since_ns(now);
    let most_ns = rate.interval_ns.saturating_mul(rate.burst.into());
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
