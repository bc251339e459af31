//! What one shard has taken of a rate in advance.
//!
//! A key that comes once takes one token. If it comes again before the bucket has filled up by what was taken, it takes
//! twice as many, up to its share of the burst: who is busy on a shard has the shard look at the common bucket rarely,
//! and who is not keeps nothing from others. What is left when that time is over goes back first.

use crate::rate::{RateLimits, SharedRate};
use crate::sync::Arc;

/// One shard's part of a rate.
#[derive(Debug)]
pub struct RateShare {
    host: Arc<SharedRate>,
    /// By key, as many as there is room for: another key in the same place puts back what was left of the one before.
    slices: Box<[Slice]>,
    slice_max: u32,
    /// When something was last asked for.
    latest_ns: u64,
}

/// Tokens of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    key: u64,
    left: u32,
    size: u32,
    until_ns: u64,
}

/// Keys that are busy on one shard at once: more take their tokens one by one.
const SLICES: usize = 64;
/// All shards together have no more than the sixteenth part of a burst in advance.
const SLICE_PART: u32 = 16;

impl RateShare {
    /// The part of one of so many shards.
    pub fn new(host: &Arc<SharedRate>, shards: u16) -> Self {
        let slice_max = host.limits().burst / (SLICE_PART * u32::from(shards.max(1)));
        let slices = vec![Slice::default(); if slice_max > 1 { SLICES } else { 0 }];
        Self { host: Arc::clone(host), slices: slices.into(), slice_max, latest_ns: 0 }
    }

    /// What all shards have.
    pub fn host(&self) -> &Arc<SharedRate> {
        &self.host
    }

    /// When something was last asked for.
    pub fn latest_ns(&self) -> u64 {
        self.latest_ns
    }

    /// Takes a token of a key's bucket.
    ///
    /// # Errors
    /// Nanoseconds until there is one.
    pub fn take(&mut self, now_ns: u64, key: u64) -> Result<(), u64> {
        self.latest_ns = now_ns;
        let place = key as usize % SLICES;
        let Some(slice) = self.slices.get_mut(place) else {
            return self.host.take(now_ns, key, 1).map(drop);
        };
        let is_in_time = slice.key == key && now_ns < slice.until_ns;
        if is_in_time && slice.left > 0 {
            slice.left -= 1;
            return Ok(());
        }
        if slice.left > 0 {
            self.host.give_back(now_ns, slice.key, slice.left);
        }
        let size = if is_in_time { (slice.size * 2).min(self.slice_max) } else { 1 };
        *slice = Slice { key, left: 0, size: 0, until_ns: 0 };
        let taken = self.host.take(now_ns, key, size)?;
        let RateLimits { interval_ns, .. } = self.host.limits();
        let until_ns = now_ns.saturating_add(interval_ns.saturating_mul(taken.into()));
        *slice = Slice { key, left: taken - 1, size: taken, until_ns };
        Ok(())
    }
}

impl Drop for RateShare {
    fn drop(&mut self) {
        for slice in &self.slices {
            if slice.left > 0 {
                self.host.give_back(self.latest_ns, slice.key, slice.left);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    //! Shows the bounds of a rate over random histories of one to three shards, and how rarely the common bucket is
    //! looked at.
    use super::*;
    use proptest::prelude::*;

    fn shares(limits: RateLimits, shards: u16) -> Vec<RateShare> {
        let host = Arc::new(SharedRate::new(limits, false));
        (0..shards).map(|_| RateShare::new(&host, shards)).collect()
    }

    proptest! {
        /// In every window of time: no more than rate and 17/16 of the burst.
        #[test]
        fn never_more(
            shards in 1u16..4,
            burst in prop_oneof![1u32..10, 10u32..500],
            interval_ns in 1u64..200,
            steps in proptest::collection::vec((any::<u8>(), 0u64..400, 1u32..300), 1..60),
        ) {
            let limits = RateLimits { interval_ns, burst, keys_max: 1 };
            let mut shares = shares(limits, shards);
            let (mut now, mut passed) = (1_000_000u64, Vec::new());
            for (pick, wait_ns, calls) in steps {
                now += wait_ns;
                let share = &mut shares[usize::from(pick) % usize::from(shards)];
                passed.extend((0..calls).filter(|_| share.take(now, 0).is_ok()).map(|_| now));
            }
            for (first, from) in passed.iter().enumerate().step_by(7) {
                for (last, to) in passed.iter().enumerate().skip(first).step_by(3) {
                    let most = burst + burst / 16 + ((to - from) / interval_ns) as u32 + 1;
                    let count = last - first + 1;
                    prop_assert!(count as u32 <= most, "{count} in {} ns", to - from);
                }
            }
        }

        /// Whoever asks all the time gets rate and 15/16 of the burst, by however many shards.
        #[test]
        fn hardly_less(shards in 1u16..4, burst in 1u32..300, half_ns in 5u64..100, order in any::<u64>()) {
            // Whoever asks does so when there may be one more, and not a little later.
            let interval_ns = 2 * half_ns;
            let limits = RateLimits { interval_ns, burst, keys_max: 1 };
            let mut shares = shares(limits, shards);
            let (from, mut passed) = (1_000_000u64, 0u32);
            let mut state = order | 1;
            let span_ns = interval_ns * 60;
            let mut now = from;
            while now <= from + span_ns {
                for _ in 0..burst {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let share = &mut shares[(state % u64::from(shards)) as usize];
                    passed += u32::from(share.take(now, 0).is_ok());
                }
                now += half_ns;
            }
            // All shards at the end, too: nobody keeps what others ask for.
            let least = burst - burst / 16 + 60;
            prop_assert!(passed + 1 >= least, "{passed} of {least}");
        }
    }

    #[test]
    fn who_is_busy_looks_at_the_common_bucket_rarely_and_who_is_not_keeps_nothing() {
        let limits = RateLimits { interval_ns: 1000, burst: 6400, keys_max: 1 };
        let mut shares = shares(limits, 2);
        let host = Arc::clone(shares[0].host());
        let full_at = |now| host.emptier_than_full(now).next().map(|(_, at)| at);
        let mut looks = 0;
        for call in 0..3200u64 {
            let before = full_at(1);
            shares[0].take(1_000_000 + call, 0).unwrap();
            looks += usize::from(full_at(1) != before);
        }
        assert!(looks < 32, "{looks} for 3200 calls");
        // One call in a long time takes one token.
        let now = 1_000_000_000;
        shares[1].take(now, 0).unwrap();
        assert_eq!(full_at(now), Some(now + 1000));
    }

    #[test]
    fn what_is_left_goes_back() {
        let limits = RateLimits { interval_ns: 1000, burst: 640, keys_max: 1 };
        let mut shares = shares(limits, 1);
        let host = Arc::clone(shares[0].host());
        (0..20).for_each(|_| shares[0].take(1_000_000, 0).unwrap());
        drop(shares);
        assert_eq!(host.emptier_than_full(0).next(), Some((0, 1_000_000 + 20_000)));
    }
}
