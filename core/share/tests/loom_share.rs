//! Models of what shards share: a place that is given back is seen by whoever waits for it or by whoever gives it back,
//! a count is never exceeded, and two that claim a bucket for one key let no more pass than two bursts.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p trunkline-share --release --test loom_share
//! ```
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use trunkline_share::{CountShare, PlaceShare, RateLimits, SharedCount, SharedPlaces, SharedRate};

/// One place, used by one shard; the other begins to wait while it is given back. Nobody rests beside a free place:
/// either the one who waits gets it, or the other knows whom to tell.
#[test]
fn a_place_that_is_given_back_is_known_to_somebody() {
    loom::model(|| {
        let host = Arc::new(SharedPlaces::new(2));
        let mut user = PlaceShare::default();
        user.join(&host, 0, 0);
        assert!(user.take(1));
        let shared = Arc::clone(&host);
        let other = thread::spawn(move || {
            let mut waiter = PlaceShare::default();
            waiter.join(&shared, 1, 0);
            waiter.wait(1);
            let got = waiter.take_waited_for(1);
            (got, waiter)
        });
        user.give_back();
        let told = user.next_turn() == Some(1);
        let (got, mut waiter) = other.join().unwrap();
        assert!(got || told, "a place is free, and somebody waits");
        // Whoever is told looks again.
        assert!(got || waiter.take_waited_for(1));
    });
}

#[test]
fn a_count_is_never_exceeded() {
    loom::model(|| {
        let host = Arc::new(SharedCount::new(2));
        let take = |host: Arc<SharedCount>| {
            let mut part = CountShare::default();
            part.join(&host);
            let took = u32::from(part.take(1, 2)) + u32::from(part.take(1, 2));
            (took, part)
        };
        let shared = Arc::clone(&host);
        let other = thread::spawn(move || take(shared));
        let (own, _own_part) = take(Arc::clone(&host));
        let (others, _part) = other.join().unwrap();
        assert_eq!(own + others, 2);
        assert_eq!(host.taken(), 2);
    });
}

/// Two shards meet a new key at once: one bucket comes of it, or two of which all then use the emptier.
#[test]
fn a_key_that_is_new_to_two_shards() {
    loom::model(|| {
        let limits = RateLimits { interval_ns: 100, burst: 1, keys_max: 1 };
        let rate = Arc::new(SharedRate::new(limits, true));
        let shared = Arc::clone(&rate);
        let other = thread::spawn(move || shared.take(1000, 7, 1).is_ok());
        let own = rate.take(1000, 7, 1).is_ok();
        let both = u32::from(own) + u32::from(other.join().unwrap());
        assert_eq!(both, 1);
        assert!(rate.take(1000, 7, 1).is_err(), "it is empty for everybody");
    });
}
