//! What the tests of the exporter have in common.

use std::cell::RefCell;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Ends the process if the test of this thread hangs.
pub fn watched() {
    thread_local!(static RUNS: RefCell<Option<Sender<()>>> = const { RefCell::new(None) });
    let (runs, ended) = channel();
    std::thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(200)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("a test of run/otlp hangs");
            std::process::exit(101);
        }
    });
    RUNS.set(Some(runs));
}
