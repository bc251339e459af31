//! Shows R2P2 over a network that loses, doubles and reorders datagrams: client, router and workers in namespaces of
//! their own, calls of 1 byte to 300 KB; each is answered, executed once, and no place is left taken.
//!
//! `TRUNKLINE_R2P2_CALLS` says how many; `make r2p2` makes 100,000.

use crate::support::{Barrage, Host, Network, Router, Tally, Weather, client};
use std::collections::HashSet;
use std::time::Duration;

const WORKERS: usize = 3;
const CALLS: u64 = 1000;
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn every_call_ends_once_whatever_the_network_does() {
    let weather = Weather { lost: 10, doubled: 10, late: 10, seed: 20_260_101 };
    let network = match Network::new(2 + WORKERS, weather) {
        Ok(network) => network,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let at = |host: usize, port: u16| format!("{}:{port}", Network::address(host));
    let (near, middle) = (network.namespace(0), network.namespace(1));
    let mut router = Router::start(Some(&middle), &at(1, 8000), &at(1, 9000));
    let mut workers: Vec<Host> = (0..WORKERS)
        .map(|worker| {
            let host = 2 + worker;
            Host::over_r2p2(Some(&network.namespace(host)), &at(host, 8000), &[router.control()])
        })
        .collect();
    let servers: Vec<_> = workers.iter().map(|worker| worker.server("server")).collect();
    router.until("workers", WORKERS as u64);
    let mut near = Host::within(&near);

    let calls = std::env::var("TRUNKLINE_R2P2_CALLS").map_or(CALLS, |calls| calls.parse().unwrap());
    let barrage = Barrage { calls, threads: 16, bytes_max: 300_000, timeout: TIMEOUT };
    let began = std::time::Instant::now();
    let tally = barrage.run(&client(&near, &router.endpoint()));
    let took = began.elapsed();

    let mut executed = HashSet::new();
    for worker in &workers {
        let log = std::fs::read_to_string(worker.log()).unwrap();
        log.lines()
            .for_each(|line| assert!(executed.insert(line.to_owned()), "call {line} was executed twice"));
    }
    all_are_answered(&tally, &executed, calls);
    near.until_idle();
    workers.iter_mut().for_each(Host::until_idle);
    router.until("outstanding", 0);
    router.until("queued", 0);
    let report = router.report();
    drop((servers, workers, router, near));
    let relayed = network.end();
    let (answered, bytes) = (tally.answered, tally.bytes);
    println!("{answered} of {calls} calls answered, {bytes} bytes each way, in {took:?}");
    println!("router: {report}; network: {relayed:?}");
    assert!(relayed.lost > 0 && relayed.doubled > 0 && relayed.late > 0, "{relayed:?}");
}

/// Every call has ended once, with its answer. (Not every call would if somebody got no processor for eight seconds.)
fn all_are_answered(tally: &Tally, executed: &HashSet<String>, calls: u64) {
    for (number, after, status) in &tally.failures {
        println!("call {number}, after {after:?}: {status}");
    }
    let (answered, failed) = (tally.answered, tally.failures.len());
    assert_eq!((answered, failed, executed.len() as u64), (calls, 0, calls));
}
