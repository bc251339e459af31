//! Shows that time is booked where it was spent: five milliseconds planted in the handler, in the client's daemon and
//! in the server's daemon each appear in their own component, and on every record the nine add up to the completion
//! time.

mod raw;

use raw::*;
use std::time::Duration;
use trunkline_call::entry::{Completion, Span, Submission};
use trunkline_call::{Code, Encoding, Instant};
use trunkline_daemon::{Config, Daemon};
use trunkline_shm::monotonic_ns;
use trunkline_telemetry::{Ask, Component, Sample, Side};

const PLANTED_NS: u64 = 5_000_000;
const CALLS: usize = 40;
/// Rounds of which one must fit.
const ROUNDS: usize = 8;

fn daemon(debug: &str) -> Daemon {
    let text = format!("[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n[debug]\n{debug}");
    Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap()
}

fn stamp() -> Instant {
    Instant(monotonic_ns())
}

/// Answers calls with true stamps, after `pause` in the handler.
fn serve(mut server: RawApp, pause: Duration) {
    std::thread::spawn(move || {
        loop {
            let Completion::Call(call) = server.next() else { continue };
            let taken = stamp();
            let payload = call.payload.unwrap();
            let data = server.received(payload);
            std::thread::sleep(pause);
            let reply = server.bytes(&data, Encoding::Linear);
            let mut end = finish(call.call, Code::Ok, Some(reply));
            (end.taken, end.published) = (taken, stamp());
            server.submit(Submission::Finish(end));
            let metadata = call.metadata;
            server.submit(Submission::Release {
                call: call.call,
                block: payload.span,
                metadata,
                a18: Instant(0),
            });
        }
    });
}

/// Makes calls with true stamps; returns the completion times the application saw.
fn drive(client: &mut RawApp) -> Vec<u64> {
    let mut times = Vec::new();
    for _ in 0..CALLS {
        let entered = stamp();
        let payload = client.blob(b"where does the time go");
        let mut call = client.call(0, Some(payload), true);
        (call.entered, call.published) = (entered, stamp());
        client.submit(Submission::Call(call));
        let Completion::Finish(end) = client.next() else { panic!("no finish") };
        let a18 = stamp();
        assert_eq!(end.code, Code::Ok);
        let block = end.payload.map_or(Span::default(), |payload| payload.span);
        client.submit(Submission::Release { call: end.call, block, metadata: end.metadata, a18 });
        times.push(a18.since_ns(entered));
    }
    times
}

/// The calls the daemon recorded, once all are there.
fn samples(daemon: &Daemon) -> Vec<Sample> {
    let ask = Ask { method: "/raw.Echo/Once".into(), samples_max: 1000, ..Ask::default() };
    let began = std::time::Instant::now();
    loop {
        let measured = daemon.observe(&ask).remove(0).telemetry;
        let made: Vec<_> = measured.samples.into_iter().filter(|sample| sample.side == Side::Made).collect();
        if made.len() >= CALLS {
            return made;
        }
        assert!(began.elapsed() < WATCHDOG, "{} of {CALLS} calls recorded", made.len());
        std::thread::yield_now();
    }
}

/// The least a component took: what was planted is in every call, what the scheduler does to a busy machine is not.
fn least(samples: &[Sample], component: usize) -> u64 {
    samples.iter().map(|sample| sample.ns[component]).min().unwrap()
}

/// Runs calls over two daemons and holds the records to what was planted.
fn expect_in(component: Component, near_debug: &str, far_debug: &str, pause: Duration) {
    let (near, far) = (daemon(near_debug), daemon(far_debug));
    serve(RawApp::attach(&far, "", true), pause);
    let mut client = RawApp::attach(&near, &far.endpoints()[0], false);
    let times = drive(&mut client);
    let samples = samples(&near);
    let mut recorded: Vec<u64> = samples.iter().map(Sample::total_ns).collect();
    let mut seen = times.clone();
    recorded.sort_unstable();
    seen.sort_unstable();
    // A row is exact to one in 2³¹ beyond 4.29 s, which is what a host that stood still makes of a call.
    let is_exact = |(seen, recorded): (&u64, &u64)| seen.abs_diff(*recorded) <= seen >> 28;
    assert!(
        recorded.len() == seen.len() && seen.iter().zip(&recorded).all(is_exact),
        "the nine add up to what the application saw, on every record: {seen:?} {recorded:?}"
    );
    let booked = least(&samples, component as usize);
    assert!(booked >= PLANTED_NS, "{component:?} has {booked} of {PLANTED_NS} ns");
    for other in (0..Component::COUNT).filter(|other| *other != component as usize) {
        let least = least(&samples, other);
        assert!(least < PLANTED_NS / 2, "component {} has {least} ns of a pause elsewhere", other + 1);
    }
}

/// Calls made at once, of servers that take [`PLANTED_NS`] each: most of their time is a queue in front of the servers.
/// A host that is busy with something else delays all of them elsewhere: one round must fit.
fn expect_queue_of(workers: usize) {
    let mut rounds = Vec::new();
    while let Err(why) = queues(workers) {
        rounds.push(why);
        assert!(rounds.len() < ROUNDS, "{workers} workers: {rounds:#?}");
    }
}

/// Why a round does not fit.
fn queues(workers: usize) -> Result<(), String> {
    let (near, far) = (daemon(""), daemon(""));
    for _ in 0..workers {
        serve(RawApp::attach(&far, "", true), Duration::from_nanos(PLANTED_NS));
    }
    let mut client = RawApp::attach(&near, &far.endpoints()[0], false);
    for _ in 0..CALLS {
        let payload = client.blob(b"who is free");
        let mut call = client.call(0, Some(payload), true);
        (call.entered, call.published) = (stamp(), stamp());
        client.submit(Submission::Call(call));
    }
    for _ in 0..CALLS {
        let Completion::Finish(end) = client.next() else { panic!("no finish") };
        let block = end.payload.map_or(Span::default(), |payload| payload.span);
        client.submit(Submission::Release { call: end.call, block, metadata: end.metadata, a18: stamp() });
    }
    let samples = samples(&near);
    let sum = |component: usize| samples.iter().map(|sample| sample.ns[component]).sum::<u64>();
    let whole: u64 = samples.iter().map(Sample::total_ns).sum();
    let most = (0..Component::COUNT).max_by_key(|component| sum(*component)).unwrap();
    if Component::ALL[most] != Component::ServerReceiveQueue {
        return Err(format!("most of {whole} ns is {:?}", Component::ALL[most]));
    }
    // The n-th call waits for those before it: (CALLS / workers − 1) / 2 handlers on average, and one works for it.
    let others = whole - sum(most) - sum(Component::ServerApplication as usize);
    if others >= sum(most) / 2 {
        return Err(format!("{others} ns of {whole} are neither queue nor handler"));
    }
    Ok(())
}

#[test]
fn in_the_queue_of_one_worker() {
    expect_queue_of(1);
}

#[test]
fn in_the_queue_in_front_of_two_workers() {
    expect_queue_of(2);
}

#[test]
fn in_the_handler() {
    expect_in(Component::ServerApplication, "", "", Duration::from_nanos(PLANTED_NS));
}

#[test]
fn in_the_clients_daemon() {
    expect_in(Component::ClientSendQueue, "request_hold_us = 5000", "", Duration::ZERO);
}

#[test]
fn in_the_servers_daemon() {
    expect_in(Component::ServerSendQueue, "", "response_hold_us = 5000", Duration::ZERO);
}
