//! Hands entries and blocks over and ends: what `cargo xtask counts` counts the instructions of.
//!
//! `ring_counts entry|block|idle TIMES`: an entry through a ring; a block of 64 bytes taken, lent and freed; a look at
//! an empty ring.

use std::hint::black_box;
use trunkline_shm::{SessionConfig, create_session, open_session};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, times] = words.as_slice() else { panic!("two words are expected") };
    let config = SessionConfig {
        submission_entries: 64,
        completion_entries: 64,
        send_heap_bytes: 1 << 20,
        receive_heap_bytes: 1 << 20,
    };
    let (mut daemon, fds) = create_session(&config).unwrap();
    let mut app = open_session(fds, &config).unwrap();
    for n in 0..times.parse::<u64>().unwrap() {
        match what.as_str() {
            "entry" => {
                app.submissions.push(black_box(&[n, 1, 2, 3, 4, 5, 6, 7])).unwrap();
                assert_eq!(daemon.submissions.pop().unwrap().unwrap()[0], n);
            }
            "block" => {
                let block = app.send_heap.allocate(black_box(64)).unwrap();
                let span = block.lend(64);
                app.send_heap.free(span.offset).unwrap();
            }
            "idle" => assert!(black_box(daemon.submissions.pop().unwrap()).is_none()),
            other => panic!("{other} is not entry, block or idle"),
        }
    }
}
