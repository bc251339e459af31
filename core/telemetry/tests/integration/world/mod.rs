//! Calls made by arithmetic, for tests: stamps of two hosts with known parts.

// Each test program uses its own share of this.
#![allow(dead_code)]

use trunkline_call::{ClientStamps, Code, Instant, ServerStamps};
use trunkline_telemetry::{MethodIndex, PeerIndex, Record, Side, Telemetry};

/// The method most tests call.
pub const GREETER: &str = "/greeter.v1.Greeter/SayHello";

/// A call with these nine parts, in nanoseconds, that starts at `at`. Both hosts read one clock.
pub fn call(at: u64, method: MethodIndex, peer: PeerIndex, parts: [u64; 9]) -> Record {
    let mut now = at;
    let mut after = |ns: u64| {
        now += ns;
        Instant(now)
    };
    let [send, stack, wire, queue, application, respond, back, unstack, receive] = parts;
    let a0 = after(0);
    let a1 = after(stack / 4);
    let d2 = after(send);
    let d3 = after(stack / 4);
    let k6 = after(stack / 4);
    let k7 = after(wire);
    let d9 = after(stack - 3 * (stack / 4));
    let a10 = after(queue);
    let a11 = after(application);
    let d12 = after(respond);
    let k14 = after(unstack / 2);
    let k15 = after(back);
    let d17 = after(unstack - unstack / 2);
    let a18 = after(receive);
    let client = ClientStamps { a0, a1, d2, d3, wait_ns: 0, d4: k6, k6, k15, d16: k15, d17, a18 };
    let server = ServerStamps { k7, d8: k7, d9, a10, a11, d12, wait_ns: 0, k14, subtree: 1, cpu_ns: 0 };
    Record {
        side: Side::Made,
        method,
        peer,
        code: Code::Ok,
        request_bytes: 64,
        response_bytes: 8,
        client,
        server: Some(server),
        is_stream: false,
    }
}

/// A number that looks random and is always the same: between 0 and `most`.
pub fn dice(number: u64, most: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) % (most + 1)
}

/// A thousand greetings whose tail is a queue in front of the server's workers; three of them ran out of time.
pub fn queueing_greeter() -> (Telemetry, Instant) {
    let mut telemetry = Telemetry::new();
    let (method, peer) = (telemetry.method(GREETER), telemetry.peer("10.0.0.7:7878", true));
    let mut now = Instant(1_000_000_000);
    for n in 0..1_000 {
        let queue = if n % 12 == 5 { 2_000_000 + dice(n, 3_000_000) } else { 900 + dice(n, 600) };
        let work = 180_000 + dice(n + 1, 90_000);
        let parts = [
            700 + dice(n, 300),
            4_000 + dice(n + 2, 2_000),
            21_000 + dice(n + 3, 9_000),
            queue,
            work,
            800 + dice(n, 500),
            20_000 + dice(n + 4, 9_000),
            5_000 + dice(n + 5, 2_500),
            1_100 + dice(n + 6, 900),
        ];
        let mut record = call(now.0, method, peer, parts);
        if n % 1_000 != 7 {
            record.client.k6 = Instant(0); // the kernel is asked now and then, and the daemon's word is the same
        }
        if n % 333 == 332 {
            (record.code, record.server) = (Code::DeadlineExceeded, None);
        }
        now = record.client.a18;
        telemetry.record(now, &record);
    }
    (telemetry, now)
}
