//! What all calls of a host may spend on further attempts, and what those of one service may.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// What was saved up for later, in parts of an attempt, and since when time has added nothing.
#[derive(Debug, Default)]
pub struct SharedSavings {
    saved: AtomicU64,
    /// Zero: nobody has asked.
    since_ns: AtomicU64,
}

/// A bucket of tokens that failures empty and successes fill.
#[derive(Debug)]
pub struct SharedTokens {
    left: AtomicU32,
    max: u32,
}

/// Time counts for no longer than this.
const ACCRUED_NS_MAX: u64 = 1_000_000_000;

impl SharedSavings {
    /// What is saved.
    pub fn saved(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }

    /// Adds to what was saved, up to a bound.
    pub fn add(&self, parts: u64, max: u64) {
        let mut saved = self.saved.load(Ordering::Relaxed);
        while saved < max {
            let next = (saved + parts).min(max);
            match self.saved.compare_exchange_weak(saved, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => saved = found,
            }
        }
    }

    /// Adds what time has brought, at so many parts per second. The first second is given at once.
    pub fn accrue(&self, now_ns: u64, parts_per_second: u64, max: u64) {
        if parts_per_second == 0 {
            return;
        }
        let since = self.since_ns.load(Ordering::Relaxed);
        let from = if since == 0 { now_ns.saturating_sub(ACCRUED_NS_MAX) } else { since };
        let ns = now_ns.saturating_sub(from).min(ACCRUED_NS_MAX);
        let earned = ns.saturating_mul(parts_per_second) / 1_000_000_000;
        // What was no whole part counts the next time.
        let paid_until =
            now_ns - ns + earned.saturating_mul(1_000_000_000).div_ceil(parts_per_second).min(ns);
        if earned > 0
            && self
                .since_ns
                .compare_exchange(since, paid_until.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.add(earned, max);
        }
    }

    /// Takes so many parts out, if they are there.
    pub fn take(&self, parts: u64) -> bool {
        let mut saved = self.saved.load(Ordering::Relaxed);
        while saved >= parts {
            match self.saved.compare_exchange_weak(saved, saved - parts, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(found) => saved = found,
            }
        }
        false
    }
}

impl SharedTokens {
    /// A full bucket.
    pub fn full(max: u32) -> Self {
        Self { left: AtomicU32::new(max), max }
    }

    /// What it holds when it is full.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// What is left.
    pub fn left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }

    /// Puts some in. A bucket that is full is only looked at.
    pub fn add(&self, tokens: u32) {
        self.change(|left| left.saturating_add(tokens).min(self.max));
    }

    /// Takes some out, as many as there are.
    pub fn remove(&self, tokens: u32) {
        self.change(|left| left.saturating_sub(tokens));
    }

    fn change(&self, change: impl Fn(u32) -> u32) {
        let mut left = self.left.load(Ordering::Relaxed);
        while change(left) != left {
            match self.left.compare_exchange_weak(left, change(left), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => left = found,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    //! Shows that no more is spent than was saved, and no more saved than may be.
    use super::*;

    #[test]
    fn no_more_is_spent_than_was_saved() {
        let savings = SharedSavings::default();
        assert!(!savings.take(1));
        savings.add(250, 300);
        savings.add(250, 300);
        let spent = (0..10).filter(|_| savings.take(100)).count();
        assert_eq!(spent, 3);
        savings.accrue(5_000_000_000, 1000, 300);
        assert!(savings.take(300), "the first second comes at once, up to the bound");
        savings.accrue(5_000_000_000, 1000, 300);
        assert!(!savings.take(1), "no time has passed");
        savings.accrue(5_100_000_000, 1000, 300);
        assert!(savings.take(100) && !savings.take(1));
    }

    #[test]
    fn what_is_no_whole_part_counts_the_next_time() {
        let savings = SharedSavings::default();
        let start_ns = 10_000_000_000;
        savings.accrue(start_ns, 100, 1000);
        assert_eq!(savings.saved(), 100);
        for step in 1..=100 {
            savings.accrue(start_ns + step * 19_000_000, 100, 1000);
        }
        assert_eq!(savings.saved(), 100 + 190, "1.9 parts each time");
        savings.accrue(start_ns + 60_000_000_000, 100, 1000);
        assert_eq!(savings.saved(), 100 + 190 + 100, "no more than a second's");
        savings.accrue(u64::MAX, u64::MAX, 1000);
        assert_eq!(savings.saved(), 1000);
    }

    #[test]
    fn tokens_stay_between_nothing_and_all() {
        let tokens = SharedTokens::full(10);
        tokens.add(5);
        assert_eq!((tokens.left(), tokens.max()), (10, 10));
        tokens.remove(7);
        tokens.remove(7);
        assert_eq!(tokens.left(), 0);
        tokens.add(4);
        assert_eq!(tokens.left(), 4);
    }
}
