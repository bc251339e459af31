//! What the router costs: single-packet requests through it and past it, in turns, with the CPU time of its thread.
//!
//! `cargo run --release -p trunkline-router --example load [CALLS [AT_ONCE]]`

#[path = "../tests/support/mod.rs"]
mod support;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::{ANY, call_all, work};
use trunkline_net::Datagrams;
use trunkline_r2p2::{ClientEvent, Config, Mode, RouterConfig};
use trunkline_router::{Forwarding, RouterProcess, Settings};

const AT_ONCE: [usize; 3] = [1, 64, 512];
const ROUNDS: usize = 5;

fn main() {
    let argument = |index| std::env::args().nth(index).and_then(|text| text.parse::<usize>().ok());
    let calls = argument(1).unwrap_or(50_000);
    let at_once = argument(2).map_or(AT_ONCE.to_vec(), |at_once| vec![at_once]);
    for forwarding in [Forwarding::Preserve, Forwarding::Proxy] {
        for mode in [Mode::Compatible, Mode::Extended] {
            for at_once in at_once.clone() {
                measure(forwarding, mode, at_once, if at_once == 1 { calls / 10 } else { calls });
            }
        }
    }
}

fn measure(forwarding: Forwarding, mode: Mode, at_once: usize, calls: usize) {
    let socket = Datagrams::bind(ANY).expect("a port");
    let worker_at = socket.address().expect("it has one");
    let joins = mode == Mode::Extended;
    let config = RouterConfig {
        workers: if joins { Vec::new() } else { vec![(worker_at, at_once.max(64) as u16)] },
        join_from: vec![(Ipv4Addr::LOCALHOST, 8)],
        ..RouterConfig::default()
    };
    let settings = Settings { listen: ANY, control: ANY, forwarding, router: config };
    let router = match RouterProcess::start(settings) {
        Ok(router) => router,
        Err(error) => return println!("{forwarding:?}: skipped, {error}"),
    };
    let [listen, control] = router.addresses().expect("it has two");
    let shared = router.shared();
    let (stop_worker, stop_router) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("router".into());
        thread.spawn_scoped(scope, || router.run(&stop_router)).expect("a thread");
        let worker =
            Config { mode, slots: at_once.max(64) as u16, routers: vec![control], ..Config::default() };
        scope.spawn(|| work(&socket, worker, &stop_worker));
        thread::sleep(Duration::from_millis(500));
        let mut rows: Vec<[f64; 3]> = Vec::new();
        for _ in 0..ROUNDS {
            let direct = rate(worker_at, mode, at_once, calls);
            let before = shared.report.lock().cpu_ns;
            let routed = rate(listen, mode, at_once, calls);
            thread::sleep(Duration::from_millis(250));
            let cpu_us = (shared.report.lock().cpu_ns - before) as f64 / 1e3 / calls as f64;
            rows.push([direct, routed, cpu_us]);
        }
        let median = |column: usize| {
            let mut values: Vec<f64> = rows.iter().map(|row| row[column]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!(
            "{forwarding:?} {mode:?}, {at_once} at once: direct {:.0}/s, routed {:.0}/s, router CPU {:.2} µs each",
            median(0),
            median(1),
            median(2)
        );
        stop_worker.store(true, Ordering::Relaxed);
        stop_router.store(true, Ordering::Relaxed);
    });
}

/// Calls a second.
fn rate(target: SocketAddrV4, mode: Mode, at_once: usize, calls: usize) -> f64 {
    let bodies = vec![vec![7; 64]; calls];
    let began = Instant::now();
    let ended = call_all(target, Config { mode, ..Config::default() }, &bodies, at_once);
    let replied = ended.iter().filter(|event| matches!(event, ClientEvent::Replied { .. })).count();
    if replied < calls {
        println!("  {} of {calls} calls had no reply", calls - replied);
    }
    calls as f64 / began.elapsed().as_secs_f64()
}
