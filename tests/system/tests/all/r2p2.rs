//! Shows services called over R2P2 through a router, between real processes: calls of all sizes, workers and the router
//! killed under load, nothing executed twice, no place left taken.

use crate::once::{Load, are_true_of_the_logs, finish};
use crate::support::{Barrage, Host, Process, Router, client};
use std::collections::HashSet;
use trunkline_system_tests::scenario::{Stage, WATCHDOG};

/// A router, workers behind it, and a host that calls.
struct Scene {
    router: Router,
    workers: Vec<Host>,
    servers: Vec<Process>,
    near: Host,
}

impl Scene {
    fn new(workers: usize) -> Self {
        let mut router = Router::start(None, "127.0.0.1:0", "127.0.0.1:0");
        let workers: Vec<Host> =
            (0..workers).map(|_| Host::over_r2p2(None, "127.0.0.1:0", &[router.control()])).collect();
        let servers = workers.iter().map(|worker| worker.server("server")).collect();
        router.until("workers", workers.len() as u64);
        Self { router, workers, servers, near: Host::alone() }
    }

    fn finish(mut self) {
        self.near.until_idle();
        for mut worker in self.workers {
            worker.until_idle();
        }
        self.router.until("outstanding", 0);
        self.router.until("queued", 0);
    }
}

#[test]
fn through_a_router() {
    let scene = Scene::new(3);
    let client = client(&scene.near, &scene.router.endpoint());
    let barrage = Barrage { calls: 400, threads: 8, bytes_max: 300_000, timeout: WATCHDOG };
    let tally = barrage.run(&client);
    assert!(tally.failures.is_empty(), "{:?}", tally.failures);
    let mut executed = HashSet::new();
    for worker in &scene.workers {
        let log = std::fs::read_to_string(worker.log()).unwrap();
        assert!(log.lines().count() > 0, "every worker has worked");
        log.lines()
            .for_each(|line| assert!(executed.insert(line.to_owned()), "call {line} was executed twice"));
    }
    assert_eq!(executed.len() as u64, barrage.calls);
    scene.finish();
}

/// The program of the other topologies, without those parts that stream.
#[test]
fn unary_scenarios_say_what_they_say_elsewhere() {
    let far = Host::over_r2p2(None, "127.0.0.1:0", &[]);
    let mut near = Host::alone();
    let _server = far.server("server");
    let stage = |host: &Host, target: &str| Stage::new(crate::support::channel(host, target), "over R2P2");
    let over_r2p2 = stage(&near, far.endpoint());
    let directly = stage(&far, "");
    for name in ["unary, small", "metadata both ways", "every status, with details", "a handler that panics"]
    {
        let scenario =
            trunkline_system_tests::scenario::ALL.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(scenario(&over_r2p2).unwrap(), scenario(&directly).unwrap(), "{name}");
    }
    for name in
        ["a handler slower than the deadline", "a call given up", "many calls in flight", "many threads"]
    {
        let scenario =
            trunkline_system_tests::scenario::ALL.iter().find(|(known, _)| *known == name).unwrap().1;
        scenario(&over_r2p2).unwrap_or_else(|status| panic!("{name}: {status}"));
    }
    near.until_idle();
}

#[test]
fn workers_and_the_router_are_killed_under_load() {
    let mut scene = Scene::new(3);
    let caller = client(&scene.near, &scene.router.endpoint());
    let (load, threads) = Load::start_within(&caller, Load::SHORT_TIMEOUT);
    for round in 0..4 {
        load.until_answered(100);
        let worker = &mut scene.workers[round % 3];
        worker.kill_daemon();
        load.until_answered(100);
        worker.start();
        scene.router.until("workers", 3);
        load.until_answered(100);
        scene.router.restart();
        scene.router.until("workers", 3);
    }
    load.until_answered(100);
    finish(&load, threads);
    let longest = load.longest();
    assert!(longest < Load::SHORT_TIMEOUT + WATCHDOG, "a call took {longest:?}");
    are_true_of_the_logs(&load, &scene.workers);
    drop(std::mem::take(&mut scene.servers));
    scene.finish();
}

/// Both routers know the workers; the caller knows both routers.
#[test]
fn a_spare_router_takes_over() {
    let mut routers: Vec<Router> =
        (0..2).map(|_| Router::start(None, "127.0.0.1:0", "127.0.0.1:0")).collect();
    let controls: Vec<String> = routers.iter().map(|router| router.control().to_owned()).collect();
    let controls: Vec<&str> = controls.iter().map(String::as_str).collect();
    let mut workers: Vec<Host> = (0..2).map(|_| Host::over_r2p2(None, "127.0.0.1:0", &controls)).collect();
    let servers: Vec<Process> = workers.iter().map(|worker| worker.server("server")).collect();
    routers.iter_mut().for_each(|router| router.until("workers", 2));
    let mut near = Host::routed(routers.iter().map(Router::endpoint).collect());
    let (load, threads) = Load::start_within(&client(&near, ""), Load::SHORT_TIMEOUT);
    load.until_answered(100);
    drop(routers.remove(0));
    load.until_answered(200);
    finish(&load, threads);
    let longest = load.longest();
    assert!(longest < Load::SHORT_TIMEOUT + WATCHDOG, "a call took {longest:?}");
    are_true_of_the_logs(&load, &workers);
    near.until_idle();
    workers.iter_mut().for_each(Host::until_idle);
    routers[0].until("outstanding", 0);
    drop(servers);
}
