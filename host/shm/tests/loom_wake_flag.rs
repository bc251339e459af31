//! Models of a thread that sleeps while its queues are empty, and of two that fill them: no interleaving leaves
//! something in a queue with the sleeper asleep and nobody to ring. A sleep that nobody ends is a deadlock to loom.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p trunkline-shm --release --test loom_wake_flag
//! ```
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use trunkline_shm::WakeFlag;

/// How often a thread of the larger model is interrupted where it could go on.
const PREEMPTIONS: usize = 3;

/// What a shard has: queues (how many things were put into each, as a bounded queue publishes them), its flag, and an
/// eventfd that stays readable until it is read.
#[derive(Default)]
struct Shard {
    queues: [AtomicU32; 2],
    flag: WakeFlag,
    rung: Mutex<bool>,
    woken: Condvar,
}

impl Shard {
    fn put(&self, queue: usize) {
        self.queues[queue].fetch_add(1, Ordering::Release);
        if self.flag.must_ring() {
            *self.rung.lock().unwrap() = true;
            self.woken.notify_one();
        }
    }

    fn seen(&self) -> u32 {
        self.queues.iter().map(|queue| queue.load(Ordering::Acquire)).sum()
    }

    /// Sleeps until more than `known` was put in.
    fn wait_for_more_than(&self, known: u32) -> u32 {
        loop {
            let seen = self.seen();
            if seen > known {
                return seen;
            }
            self.flag.arm();
            if self.seen() > known {
                self.flag.disarm();
                continue;
            }
            let mut rung = self.rung.lock().unwrap();
            while !*rung {
                rung = self.woken.wait(rung).unwrap();
            }
            *rung = false;
            self.flag.disarm();
        }
    }
}

/// One puts two things in, one after the other, while the other sleeps or is about to.
#[test]
fn one_that_fills_a_queue_twice() {
    loom::model(|| {
        let shard = Arc::new(Shard::default());
        let filling = Arc::clone(&shard);
        let other = thread::spawn(move || {
            filling.put(0);
            filling.put(0);
        });
        let mut seen = 0;
        while seen < 2 {
            seen = shard.wait_for_more_than(seen);
        }
        other.join().unwrap();
    });
}

/// Two fill a queue each. Threads are interrupted where they could go on three times at most: all interleavings of
/// three threads take longer than a check may.
#[test]
fn two_that_fill_queues_of_their_own() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(|| {
        let shard = Arc::new(Shard::default());
        let others = [0, 1].map(|queue| {
            let filling = Arc::clone(&shard);
            thread::spawn(move || filling.put(queue))
        });
        let mut seen = 0;
        while seen < 2 {
            seen = shard.wait_for_more_than(seen);
        }
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
