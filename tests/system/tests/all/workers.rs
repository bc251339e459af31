//! Shows that of two worker threads the one that is free gets the calls, while the other is at work for long; and that
//! handlers that wait, rather than work, are not held back.

use crate::support::{Host, channel};
use std::time::{Duration, Instant};
use trunkline::Wait;
use trunkline_system_tests::proto::probe::order::Task;
use trunkline_system_tests::scenario::{ALL, Stage};

/// Whoever has been in work for so many times as long as any other is a long one to every dispatcher.
const LONG: u32 = 8;

#[test]
fn a_long_call_keeps_nobody_waiting_but_itself() {
    let mut host = Host::alone();
    let _server = host.server("server");
    let stage = Stage::new(channel(&host, ""), "workers");
    let call = |label: &str, task: Task| stage.client().r#do(stage.order(label, task)).wait().unwrap();
    // What calls take is measured.
    let took = (0..40).map(|_| {
        let began = Instant::now();
        call("measured", Task::BlockMs(5));
        began.elapsed()
    });
    let longest = took.max().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| call("long", Task::WorkUntil("the end".into())));
        stage.until("long", |seen| seen.entered == 1).unwrap();
        // While it is young nobody can know that it is a long one.
        std::thread::sleep(longest * LONG + Duration::from_millis(100));
        (0..20).for_each(|_| drop(scope.spawn(|| call("short", Task::BlockMs(5)))));
        let ended = stage.until("short", |seen| seen.returned == 20);
        // Whoever stands behind the long one goes on now, and the test ends.
        call("opens", Task::Open("the end".into()));
        assert!(ended.is_ok(), "calls stood behind the long one: {ended:?}");
    });
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
