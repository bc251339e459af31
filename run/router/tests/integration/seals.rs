//! Shows that a router with its cluster's key takes a worker in that has it, and nobody else: no forged one, no word of
//! one that is said again, from the same place or another; and that calls go through it when all have the key.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock, SystemTime};
use trunkline_call::Instant;
use trunkline_r2p2::*;
use trunkline_router::*;

const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

fn keys(byte: u8) -> SealKeys {
    SealKeys::new(&[&[byte; 32]]).unwrap()
}

fn unix_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64
}

fn port() -> (UdpSocket, SocketAddrV4) {
    let socket = UdpSocket::bind(ANY).unwrap();
    let std::net::SocketAddr::V4(address) = socket.local_addr().unwrap() else { panic!("IPv4") };
    (socket, address)
}

/// What a worker says of itself to a router's control port.
fn heartbeat(control: SocketAddrV4) -> Vec<u8> {
    let config = Config { mode: Mode::Extended, routers: vec![control], ..Config::default() };
    let mut worker = Server::new(Arc::new(config), Instant(1_000_000_000));
    worker.handle_timeout(Instant(2_000_000_000));
    worker.poll_transmit().expect("it says that it is there").to_vec()
}

/// Waits for a report.
fn until(shared: &Shared, what: &str, is_wanted: impl Fn(&Report) -> bool) -> Report {
    let patience = Clock::now() + Duration::from_secs(60);
    loop {
        let report = shared.report.lock().clone();
        if is_wanted(&report) {
            return report;
        }
        assert!(Clock::now() < patience, "{what}: {report:?}");
        std::thread::yield_now();
    }
}

#[test]
fn only_who_has_the_key_is_a_worker_and_says_everything_once() {
    let router = RouterConfig {
        join_from: vec![(Ipv4Addr::LOCALHOST, 8)],
        silent_ns_max: 300_000_000_000,
        ..RouterConfig::default()
    };
    let settings = Settings {
        listen: ANY,
        control: ANY,
        forwarding: Forwarding::OnBehalf,
        flows_max: Settings::FLOWS_MAX,
        keys: Some(keys(1)),
        router,
    };
    let process = RouterProcess::start(settings).unwrap();
    let ([data, control], shared) = (process.addresses().unwrap(), process.shared());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| process.run(&stop));
        let (worker, at) = port();
        let (attacker, elsewhere) = port();
        let said = heartbeat(control);
        let sealed = |key: u8, from: SocketAddrV4, sender: u64| {
            let mut out = Vec::new();
            Sealer::new(keys(key), sender).seal(unix_us(), from, control, &[&said], &mut out);
            out
        };

        attacker.send_to(&said, control).unwrap();
        until(&shared, "it has no seal", |report| report.refused.unsealed == 1);
        attacker.send_to(&sealed(2, elsewhere, 1), control).unwrap();
        let report = until(&shared, "another key's", |report| report.refused.forged == 1);
        assert!(report.workers.is_empty(), "{report:?}");

        let word = sealed(1, at, 2);
        worker.send_to(&word, control).unwrap();
        let report = until(&shared, "it has the key", |report| report.workers.len() == 1);
        assert_eq!((report.workers[0].address, report.counters.joined), (at, 1));

        // What was heard is said again: from its place, from elsewhere, and to the router's other port.
        worker.send_to(&word, control).unwrap();
        until(&shared, "said again", |report| report.refused.replayed == 1);
        attacker.send_to(&word, control).unwrap();
        until(&shared, "from elsewhere", |report| report.refused.misdirected == 1);
        worker.send_to(&word, data).unwrap();
        until(&shared, "elsewhere", |report| report.refused.misdirected == 2);
        let mut changed = sealed(1, at, 3);
        changed[9] ^= 1;
        worker.send_to(&changed, control).unwrap();
        let report = until(&shared, "changed", |report| report.refused.forged == 2);
        assert_eq!((report.workers.len(), report.counters.joined), (1, 1));
        let metrics = report.prometheus();
        for line in ["unsealed\"} 1", "forged\"} 2", "replayed\"} 1", "misdirected\"} 2", "stale\"} 0"] {
            let line = format!("trunkline_router_refused_total{{reason=\"{line}");
            assert!(metrics.contains(&line), "{line} is not in {metrics}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}
