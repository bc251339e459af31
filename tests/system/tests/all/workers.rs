//! Shows that of two worker threads the one that is free gets the calls, while the other is at work for long; and that
//! handlers that wait, rather than work, are not held back.

use crate::support::{Host, channel};
use std::sync::atomic::{AtomicBool, Ordering};
use trunkline::Wait;
use trunkline_system_tests::proto::probe::order::Task;
use trunkline_system_tests::scenario::{ALL, Stage};

#[test]
fn a_long_call_keeps_nobody_waiting_but_itself() {
    let mut host = Host::alone();
    let _server = host.server("server");
    let stage = Stage::new(channel(&host, ""), "workers");
    let block =
        |label: &str, ms: u32| stage.client().r#do(stage.order(label, Task::BlockMs(ms))).wait().unwrap();
    // What calls take is measured.
    (0..40).for_each(|_| drop(block("measured", 5)));
    let over = AtomicBool::new(false);
    let behind = std::thread::scope(|scope| {
        scope.spawn(|| {
            block("long", 3000);
            over.store(true, Ordering::SeqCst);
        });
        stage.until("long", |seen| seen.entered == 1).unwrap();
        let short = |_| {
            scope.spawn(|| {
                block("short", 5);
                over.load(Ordering::SeqCst)
            })
        };
        let threads: Vec<_> = (0..20).map(short).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|behind| *behind).count()
    });
    assert_eq!(behind, 0, "calls that stood behind the long one");
    host.until_idle();
}

#[test]
fn handlers_that_wait_are_not_held_back() {
    let mut host = Host::alone();
    let _server = host.server("server");
    let stage = Stage::new(channel(&host, ""), "waiting");
    let block = || stage.client().r#do(stage.order("measured", Task::BlockMs(5))).wait().unwrap();
    (0..40).for_each(|_| drop(block()));
    let (_, scenario) = ALL.iter().find(|(name, _)| *name == "many calls in flight").unwrap();
    assert_eq!(scenario(&stage).unwrap(), "64 through");
    host.until_idle();
}
