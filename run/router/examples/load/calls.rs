//! Calls in a closed loop: so many at once, each followed by the next.

use crate::Spread;
use crate::bare;
use crate::route::Route;
use crate::support::{ANY, Time, poller_of, send, wait};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;
use trunkline_call::{Deadline, Instant};
use trunkline_net::{DatagramBatch, Datagrams};
use trunkline_r2p2::{Client, ClientEvent, Config, Mode, NewCall};

/// One round over one way.
struct Round {
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
}

const BODY: [u8; 64] = [7; 64];

/// Every way in turn, direct and routed one behind the other, in every round.
pub fn measure(routes: &[Route], at_once: usize, calls: usize, rounds: usize) {
    println!("\n{at_once} at once, {calls} calls a round, {rounds} rounds\n");
    println!(
        "| | direct, calls/s | routed | CPU µs per request | of one datagram sent alone | direct p50, p99 µs | \
         added p50 | added p99 |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut rows: Vec<[Vec<f64>; 8]> = routes.iter().map(|_| Default::default()).collect();
    for _ in 0..rounds {
        for (route, row) in routes.iter().zip(&mut rows) {
            let direct = round(route.worker, route.mode, at_once, calls);
            let before = route.cpu_ns();
            let routed = round(route.listen, route.mode, at_once, calls);
            let cpu_us = (route.cpu_ns() - before) as f64 / 1e3 / calls as f64;
            let bare_us = bare::send_us();
            let added = [routed.p50_us - direct.p50_us, routed.p99_us - direct.p99_us];
            let all = [
                direct.per_second,
                routed.per_second,
                cpu_us,
                bare_us,
                direct.p50_us,
                direct.p99_us,
                added[0],
                added[1],
            ];
            row.iter_mut().zip(all).for_each(|(column, value)| column.push(value));
        }
    }
    for (route, row) in routes.iter().zip(rows) {
        let [direct, routed, cpu, bare, p50, p99, more50, more99] = row.map(Spread);
        println!(
            "| {} | {direct} | {routed} | {cpu} | {bare} | {p50}, {p99} | {more50} | {more99} |",
            route.name
        );
    }
}

fn round(target: SocketAddrV4, mode: Mode, at_once: usize, calls: usize) -> Round {
    let (socket, time) = (Datagrams::bind(ANY).expect("a port"), Time::begin());
    let poller = poller_of(&socket);
    let mut client = Client::new(Arc::new(Config { mode, ..Config::default() }), std::process::id().into());
    let (mut batch, mut begun, mut took_us) = (DatagramBatch::new(), Vec::new(), Vec::new());
    let began = time.now();
    while took_us.len() < calls {
        while client.len() < at_once && begun.len() < calls {
            begun.push(time.now());
            let call = call(target, begun.len() as u64 - 1, time.now());
            client.call(time.now(), call).expect("it may have so many");
        }
        send(&socket, || client.poll_transmit());
        let next = client.next_timeout();
        wait(&poller, &time, next);
        socket.receive_batch(&mut batch).expect("it can be read");
        let now = time.now();
        batch.iter().for_each(|(from, datagram)| client.handle_datagram(now, from, datagram));
        client.handle_timeout(now);
        while let Some(event) = client.poll_event() {
            match event {
                ClientEvent::Replied { tag, .. } => {
                    took_us.push(time.now().since_ns(begun[tag as usize]) as f64 / 1e3);
                }
                ClientEvent::Failed { tag, failure } => panic!("call {tag}: {failure}"),
            }
        }
    }
    let seconds = time.now().since_ns(began) as f64 / 1e9;
    took_us.sort_by(f64::total_cmp);
    let at = |share: f64| took_us[((calls as f64 * share) as usize).min(calls - 1)];
    Round { per_second: calls as f64 / seconds, p50_us: at(0.5), p99_us: at(0.99) }
}

fn call(target: SocketAddrV4, tag: u64, now: Instant) -> NewCall {
    let deadline = Deadline::after(now, Duration::from_secs(20));
    NewCall { tag, target, sticky: false, class: 0, deadline, body: BODY.as_slice().into() }
}
