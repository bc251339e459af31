//! Models of the ring and of its sleep/wake handshake: loom runs every interleaving that the memory model allows.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p trunkline-shm --release --test loom_ring
//! ```
#![cfg(loom)]

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use trunkline_shm::{Consumer, Entry, Producer, RingError, model_ring};

/// Stands for the eventfd: a count that a ring raises and a waiter takes. It is a lock, so it orders memory more
/// strongly than a descriptor promises; the assertions that matter therefore read the ring before they take it.
#[derive(Default)]
struct Bell {
    rings: Mutex<u32>,
    rung: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rings.lock().unwrap() += 1;
        self.rung.notify_one();
    }

    fn wait(&self) {
        let mut rings = self.rings.lock().unwrap();
        while *rings == 0 {
            rings = self.rung.wait(rings).unwrap();
        }
        *rings = 0;
    }
}

fn entry(number: u64) -> Entry {
    [number; 8]
}

/// What was staged before a publish is what the consumer sees, whole and in order, across the wrap of the indices.
#[test]
fn entries_arrive_whole_and_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = model_ring(2, u32::MAX);
        let writing = thread::spawn(move || {
            producer.stage(&entry(1)).unwrap();
            let _ = producer.publish();
            producer.stage(&entry(2)).unwrap();
            let _ = producer.publish();
        });
        let mut expected = 1;
        while expected <= 2 {
            match consumer.pop().unwrap() {
                Some(found) => {
                    assert_eq!(found, entry(expected));
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        writing.join().unwrap();
    });
}

/// A slot is written again only after the consumer has read it, however late its head becomes visible.
#[test]
fn a_full_ring_is_not_overwritten() {
    loom::model(|| {
        let (mut producer, mut consumer) = model_ring(1, 0);
        let writing = thread::spawn(move || {
            let mut number = 1;
            while number <= 2 {
                match producer.push(&entry(number)) {
                    Ok(_) => number += 1,
                    Err(RingError::Full { .. }) => thread::yield_now(),
                    Err(fault) => panic!("{fault}"),
                }
            }
        });
        let mut expected = 1;
        while expected <= 2 {
            match consumer.pop().unwrap() {
                Some(found) => {
                    assert_eq!(found, entry(expected));
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        writing.join().unwrap();
    });
}

/// A consumer that goes to sleep is rung for every entry it did not see: it never sleeps for ever.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let (mut producer, mut consumer) = model_ring(2, 0);
        let bell = Arc::new(Bell::default());
        let ringing = bell.clone();
        let writing = thread::spawn(move || {
            for number in 1..=2 {
                push_and_ring(&mut producer, &ringing, number);
            }
        });
        for expected in 1..=2 {
            assert_eq!(pop_or_sleep(&mut consumer, &bell), entry(expected));
        }
        writing.join().unwrap();
    });
}

/// A consumer that stays armed, as a shard leaves an idle session, is rung by the first publish.
#[test]
fn an_armed_idle_consumer_is_rung() {
    loom::model(|| {
        let (mut producer, mut consumer) = model_ring(2, 0);
        let bell = Arc::new(Bell::default());
        let ringing = bell.clone();
        assert!(consumer.arm().unwrap());
        let writing = thread::spawn(move || push_and_ring(&mut producer, &ringing, 1));
        bell.wait();
        assert_eq!(consumer.pop().unwrap(), Some(entry(1)));
        writing.join().unwrap();
    });
}

fn push_and_ring(producer: &mut Producer, bell: &Bell, number: u64) {
    if producer.push(&entry(number)).unwrap() {
        bell.ring();
    }
}

fn pop_or_sleep(consumer: &mut Consumer, bell: &Bell) -> Entry {
    loop {
        if let Some(found) = consumer.pop().unwrap() {
            return found;
        }
        if consumer.arm().unwrap() {
            bell.wait();
            consumer.disarm();
        }
    }
}
