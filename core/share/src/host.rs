//! All limits that the shards of one host hold together, by name.
//!
//! What is here is looked up when a chain of policies or a configuration is put to work, and kept by whoever has looked
//! it up: no call comes this way.

use crate::count::SharedCount;
use crate::line::SharedPlaces;
use crate::rate::{RateLimits, SharedRate};
use crate::savings::{SharedSavings, SharedTokens};
use crate::sync::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The limits of one host.
#[derive(Debug)]
pub struct HostLimits {
    shards: u16,
    savings: Arc<SharedSavings>,
    /// Chance, of which keys of rates are made.
    key_seed: AtomicU64,
    named: Mutex<Named>,
}

#[derive(Debug, Default)]
struct Named {
    rates: BTreeMap<String, Arc<SharedRate>>,
    places: BTreeMap<String, Arc<SharedPlaces>>,
    counts: BTreeMap<String, Arc<SharedCount>>,
    /// Counts at which those that nobody has are taken out next: there may be one for each address.
    counts_swept_at: usize,
    tokens: BTreeMap<String, (u32, Arc<SharedTokens>)>,
}

/// So few counts are not looked through.
const COUNTS_SWEPT_MIN: usize = 64;

/// Shards of a host at most: each has a bit in a word.
const SHARDS_MAX: u16 = 32;

impl HostLimits {
    /// Of so many shards, 32 at most.
    ///
    /// # Panics
    /// If there are more.
    pub fn new(shards: u16) -> Self {
        assert!(shards <= SHARDS_MAX, "{shards} shards");
        Self { shards, savings: Arc::default(), key_seed: AtomicU64::new(0), named: Mutex::default() }
    }

    /// How many shards there are.
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// Whether there is but one, which need not share anything.
    pub fn is_of_one(&self) -> bool {
        self.shards <= 1
    }

    /// What keys of rates are made of: the same on all shards, or they would not mean the same.
    pub fn key_seed(&self) -> u64 {
        self.key_seed.load(Ordering::Relaxed)
    }

    /// Keys are made of this from now on. To be said before there are any, or with buckets that know them so.
    pub fn seed_keys(&self, seed: u64) {
        self.key_seed.store(seed, Ordering::Relaxed);
    }

    /// The same where they were made of `was`, or of nothing yet: what other shards go by, and have inherited, holds.
    pub fn seed_keys_in_place_of(&self, was: u64, seed: u64) {
        for known in [0, was] {
            let _ = self.key_seed.compare_exchange(known, seed, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The rate of this name: a new one, if nobody has it any more. Where it was another, its buckets stay as full as
    /// they were, for whoever asks from now on.
    pub fn rate(&self, name: &str, limits: RateLimits, has_keys: bool, now_ns: u64) -> Arc<SharedRate> {
        let mut named = self.named();
        let rates = &mut named.rates;
        rates.retain(|_, rate| Arc::strong_count(rate) > 1);
        let rate = match rates.get(name) {
            Some(known) if known.limits() == limits && known.has_keys() == has_keys => {
                return Arc::clone(known);
            }
            Some(known) => SharedRate::in_place_of(known, limits, has_keys, now_ns),
            None => SharedRate::new(limits, has_keys),
        };
        let rate = Arc::new(rate);
        rates.insert(name.to_owned(), Arc::clone(&rate));
        rate
    }

    /// The places of this name.
    pub fn places(&self, name: &str) -> Arc<SharedPlaces> {
        let mut named = self.named();
        let places = &mut named.places;
        places.retain(|_, places| Arc::strong_count(places) > 1);
        let known = places.entry(name.to_owned()).or_insert_with(|| Arc::new(SharedPlaces::new(self.shards)));
        Arc::clone(known)
    }

    /// The count of this name.
    pub fn count(&self, name: &str) -> Arc<SharedCount> {
        let mut named = self.named();
        let Named { counts, counts_swept_at, .. } = &mut *named;
        if let Some(known) = counts.get(name) {
            return Arc::clone(known);
        }
        if counts.len() >= *counts_swept_at {
            counts.retain(|_, count| Arc::strong_count(count) > 1);
            *counts_swept_at = COUNTS_SWEPT_MIN.max(2 * counts.len());
        }
        let count = Arc::new(SharedCount::new(self.shards));
        counts.insert(name.to_owned(), Arc::clone(&count));
        count
    }

    /// The tokens of this name. `filling` is how they are filled: where that or their number has changed, the bucket is
    /// a full one.
    pub fn tokens(&self, name: &str, max: u32, filling: u32) -> Arc<SharedTokens> {
        let mut named = self.named();
        let tokens = &mut named.tokens;
        tokens.retain(|_, (_, tokens)| Arc::strong_count(tokens) > 1);
        match tokens.get(name) {
            Some((known, tokens)) if (*known, tokens.max()) == (filling, max) => Arc::clone(tokens),
            _ => {
                let fresh = Arc::new(SharedTokens::full(max));
                tokens.insert(name.to_owned(), (filling, Arc::clone(&fresh)));
                fresh
            }
        }
    }

    /// What all calls may spend on further attempts.
    pub fn savings(&self) -> &Arc<SharedSavings> {
        &self.savings
    }

    fn named(&self) -> std::sync::MutexGuard<'_, Named> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    //! Shows who gets the same limit, and what becomes of one that has changed.
    use super::*;

    const LIMITS: RateLimits = RateLimits { interval_ns: 100, burst: 4, keys_max: 4 };

    #[test]
    fn one_name_is_one_limit() {
        let host = HostLimits::new(2);
        assert!(Arc::ptr_eq(&host.places("a"), &host.places("a")));
        assert!(Arc::ptr_eq(&host.count("a"), &host.count("a")));
        let rate = host.rate("a", LIMITS, false, 1);
        assert!(Arc::ptr_eq(&rate, &host.rate("a", LIMITS, false, 1)));
        assert!(!Arc::ptr_eq(&rate, &host.rate("b", LIMITS, false, 1)));
        rate.take(1000, 0, 4).unwrap();
        let slower = host.rate("a", RateLimits { interval_ns: 1000, ..LIMITS }, false, 1000);
        assert!(slower.take(1000, 0, 1).is_err(), "it is as empty as it was");
        assert!(Arc::ptr_eq(&slower, &host.rate("a", slower.limits(), false, 1000)));
    }

    #[test]
    fn a_limit_that_gets_keys_has_a_bucket_for_each() {
        let host = HostLimits::new(2);
        let whole = host.rate("a", LIMITS, false, 1);
        whole.take(1000, 0, 4).unwrap();
        let by_key = host.rate("a", LIMITS, true, 1000);
        assert_eq!((by_key.take(1000, 7, 9), by_key.take(1000, 8, 9)), (Ok(4), Ok(4)));
        assert!(Arc::ptr_eq(&by_key, &host.rate("a", LIMITS, true, 1000)));
        assert!(!Arc::ptr_eq(&by_key, &host.rate("a", LIMITS, false, 1000)), "and back");
    }

    #[test]
    fn who_comes_later_goes_by_the_seed_there_is() {
        let host = HostLimits::new(2);
        host.seed_keys_in_place_of(7, 7);
        host.seed_keys_in_place_of(7, 8);
        assert_eq!(host.key_seed(), 8, "its own, until it has chance");
        host.seed_keys_in_place_of(7, 7);
        host.seed_keys_in_place_of(7, 9);
        assert_eq!(host.key_seed(), 8);
        host.seed_keys(5);
        assert_eq!(host.key_seed(), 5, "inherited");
    }

    #[test]
    fn what_nobody_holds_any_more_begins_anew() {
        let host = HostLimits::new(2);
        host.rate("a", LIMITS, false, 1).take(1000, 0, 4).unwrap();
        assert_eq!(host.rate("a", LIMITS, false, 1).take(1000, 0, 4), Ok(4));
        let tokens = host.tokens("s", 10, 1);
        tokens.remove(3);
        assert_eq!(host.tokens("s", 10, 1).left(), 7);
        assert_eq!(host.tokens("s", 10, 2).left(), 10, "said anew, it is full");
    }

    #[test]
    fn counts_that_nobody_has_go_without_a_look_at_all_for_each_that_comes() {
        let host = HostLimits::new(2);
        let mut swept_at = Vec::new();
        let had: Vec<_> = (0..1000)
            .map(|name| {
                swept_at.push(host.named().counts_swept_at);
                host.count(&name.to_string())
            })
            .collect();
        swept_at.dedup();
        assert_eq!(swept_at, [0, 64, 128, 256, 512, 1024]);
        drop(had);
        (1000..5000).for_each(|name| drop(host.count(&name.to_string())));
        let named = host.named();
        assert!(named.counts.len() <= 1024, "{}", named.counts.len());
    }

    #[test]
    #[should_panic(expected = "33 shards")]
    fn there_are_never_more_shards_than_bits() {
        HostLimits::new(33);
    }
}
