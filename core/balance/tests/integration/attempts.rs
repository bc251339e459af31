//! Shows the waits between attempts, the throttle's half, and that a budget is never overdrawn.

use proptest::prelude::*;
use std::sync::Arc;
use trunkline_balance::{Backoff, Budget, Random, Throttle};
use trunkline_call::Instant;
use trunkline_share::SharedSavings;

#[test]
fn waits_grow_to_their_bound_give_or_take_a_fifth() {
    let backoff = Backoff { initial_ns: 1000, max_ns: 5000, multiplier: 2.0 };
    let mut random = Random::new(1);
    for (retries, expected) in [(0, 1000), (1, 2000), (2, 4000), (3, 5000), (4_000_000, 5000)] {
        let waits: Vec<u64> = (0..100).map(|_| backoff.wait_ns(retries, &mut random)).collect();
        assert!(waits.iter().all(|wait| (expected * 4 / 5..=expected * 6 / 5).contains(wait)), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait < expected) && waits.iter().any(|wait| *wait > expected));
    }
}

#[test]
fn a_throttle_closes_at_half() {
    let mut throttle = Throttle::new(4, 500);
    throttle.failed();
    assert!(throttle.permits(), "3 of 4");
    throttle.failed();
    assert!(!throttle.permits(), "2 of 4 is not above the half");
    throttle.succeeded();
    assert!(throttle.permits(), "2.5 of 4");
    (0..9).for_each(|_| throttle.failed());
    (0..4).for_each(|_| throttle.succeeded());
    assert!(!throttle.permits(), "it never goes below nothing: four successes are two tokens");
    throttle.succeeded();
    assert!(throttle.permits());
}

proptest! {
    #[test]
    fn a_budget_is_its_share_and_what_time_brings(
        percent in 0u32..=100,
        per_second in 0u32..20,
        events in prop::collection::vec((any::<bool>(), 0u64..50_000_000), 1..500),
    ) {
        let mut budget = Budget::new(percent, per_second);
        let (mut now, mut calls, mut attempts) = (Instant(1_000_000_000), 0u64, 0u64);
        for (is_call, ns) in events {
            now = now.plus_ns(ns);
            if is_call {
                calls += 1;
                budget.deposit();
            } else if budget.withdraw(now) {
                attempts += 1;
            }
            let seconds = (now.0 - 1_000_000_000) as f64 / 1e9 + 1.0;
            let most = calls as f64 * f64::from(percent) / 100.0 + seconds * f64::from(per_second);
            prop_assert!(attempts as f64 <= most + 1e-6, "{attempts} of {most}");
        }
    }
}

/// What one shard's calls have saved another may spend, no more than all may save, and one of them says what that is.
#[test]
fn a_budget_is_the_hosts() {
    let savings = Arc::new(SharedSavings::default());
    let mut budgets = [0, 1].map(|shard| {
        let mut budget = Budget::new(10, 0);
        budget.share(&savings, shard == 0);
        budget
    });
    let left = |budgets: &[Budget; 2]| budgets.iter().map(Budget::left).sum::<u64>();
    (0..1000).for_each(|_| budgets[0].deposit());
    assert_eq!(left(&budgets), 100);
    assert_eq!((0..200).filter(|_| budgets[1].withdraw(Instant(1))).count(), 100);
    assert_eq!(left(&budgets), 0);
    (0..100_000).for_each(|call: usize| budgets[call % 2].deposit());
    // All may save 1000 together; ten more are each shard's own.
    assert!((1000..=1020).contains(&left(&budgets)), "{}", left(&budgets));
}
