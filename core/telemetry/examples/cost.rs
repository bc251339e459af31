//! What telemetry costs per call: `cargo run --release -p trunkline-telemetry --example cost`.
//!
//! Prints nanoseconds per record for one hot method, for a peer whose clock is estimated, and for a thousand methods in
//! turn; and the memory they take. The best of many short rounds, because others use the machine, too.

use std::hint::black_box;
use std::time::Instant as Wall;
use trunkline_call::{ClientStamps, Code, Instant, ServerStamps};
use trunkline_telemetry::{ClockOffset, Histogram, MethodIndex, PeerIndex, Record, Side, Telemetry};

const CALLS: u64 = 10_000;
const ROUNDS: u64 = 500;

fn main() {
    histogram();
    division();
    telemetry("one method, one clock", 1, true);
    telemetry("one method, clock estimated", 1, false);
    telemetry("1000 methods, one clock", 1000, true);
}

fn histogram() {
    let mut values = Histogram::default();
    let best = best(|at| values.record(black_box(20_000 + at * 7 % 4_000)));
    println!("{best:6.1} ns  one histogram");
}

fn division() {
    let record = call(0, MethodIndex(1), PeerIndex::LOCAL);
    let best = best(|_| {
        black_box(black_box(&record).components(ClockOffset::SAME));
    });
    println!("{best:6.1} ns  division into components");
}

fn telemetry(what: &str, methods: u64, same_clock: bool) {
    let mut telemetry = Telemetry::new();
    let peer = telemetry.peer("10.0.0.7:7878", same_clock);
    let paths = (0..methods).map(|n| format!("/bench.Service{n}/Call"));
    let methods: Vec<MethodIndex> = paths.map(|path| telemetry.method(&path)).collect();
    let best = best(|at| {
        let record = call(at, methods[at as usize % methods.len()], peer);
        telemetry.record(record.client.a18, black_box(&record));
    });
    println!("{best:6.1} ns  {what}; {} KiB", telemetry.heap_bytes() / 1024);
}

/// Nanoseconds per call of the fastest round, the making of the argument included.
fn best(mut each: impl FnMut(u64)) -> f64 {
    let mut round = |round: u64| {
        let began = Wall::now();
        for at in 0..CALLS {
            each(round * CALLS + at);
        }
        began.elapsed().as_nanos() as f64 / CALLS as f64
    };
    (0..ROUNDS).map(&mut round).fold(f64::INFINITY, f64::min)
}

fn call(number: u64, method: MethodIndex, peer: PeerIndex) -> Record {
    let start = 1_000_000 + number * 10_000;
    let jitter = number * 2_654_435_761 % 4_096;
    let at = |ns: u64| Instant(start + ns + jitter * ns / 4_096);
    let client = ClientStamps {
        a0: at(0),
        a1: at(200),
        d2: at(900),
        d3: at(1_200),
        wait_ns: 0,
        d4: at(1_500),
        k6: at(1_600),
        k15: at(9_000),
        d16: at(9_800),
        d17: at(10_100),
        a18: at(10_900),
    };
    let server = ServerStamps {
        k7: at(3_000),
        d8: at(3_500),
        d9: at(3_900),
        a10: at(4_700),
        a11: at(6_000),
        d12: at(6_700),
        wait_ns: 0,
        k14: at(7_200),
        subtree: 1,
        cpu_ns: 0,
    };
    let (request_bytes, response_bytes, code) = (64, 8, Code::Ok);
    Record {
        side: Side::Made,
        method,
        peer,
        code,
        request_bytes,
        response_bytes,
        client,
        server: Some(server),
        is_stream: false,
    }
}
