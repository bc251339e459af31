//! Shows that the bound on the other host's clock covers the truth between real daemons: a relay between them has one
//! read a clock that is a thousand seconds ahead, runs a hundred millionths fast or slow, and is set anew midway.
//! And that kernel stamps are not misread where the wall clock is set, by which they are.
//!
//! `TRUNKLINE_TEST_CLOCKS=120` has each run take so many seconds instead of twelve.

mod raw;

use raw::*;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use trunkline_call::entry::{Completion, Span, Submission};
use trunkline_call::{Code, Encoding, Instant};
use trunkline_daemon::{Config, Daemon};
use trunkline_shm::monotonic_ns;
use trunkline_telemetry::{CallsAsk, Component, RecordedCall, RecordedTrace};

const SECOND_NS: u64 = 1_000_000_000;
const AHEAD_NS: i64 = 1_000_000_000_000;
/// So far the clock is set in the middle of a run, if it is.
const STEP_NS: i64 = 5_000_000;

/// What the other host's clock is ahead by, from `began` on.
#[derive(Clone, Copy)]
struct Theta {
    began_ns: u64,
    drift_ppm: f64,
    step_at_ns: Option<u64>,
}

impl Theta {
    fn at(&self, ns: u64) -> i64 {
        let drifted = (ns as f64 - self.began_ns as f64) * self.drift_ppm * 1e-6;
        let step_ns = if self.step_at_ns.is_some_and(|at| ns >= at) { STEP_NS } else { 0 };
        AHEAD_NS + drifted.round() as i64 + step_ns
    }
}

/// Frames of the native protocol (docs/native-protocol.md): length of a head, and what of them is of a clock.
const HEAD_BYTES: usize = 16;
const HELLO: u8 = 1;
const OUTCOMES: std::ops::RangeInclusive<u8> = 4..=6;
const STAMPS: u8 = 0x08;
const CHECKSUM: u8 = 0x80;
/// Where a HELLO has the clock id.
const CLOCK_ID: std::ops::Range<usize> = HEAD_BYTES + 12..HEAD_BYTES + 20;

/// Makes a frame of the server say that it reads another clock.
fn say(frame: &mut [u8], theta: Theta) {
    let (kind, flags) = (frame[4], frame[5]);
    assert_eq!(flags & CHECKSUM, 0, "it is not to be changed");
    if kind == HELLO {
        frame[CLOCK_ID].iter_mut().for_each(|byte| *byte = !*byte);
    }
    if OUTCOMES.contains(&kind) && flags & STAMPS != 0 {
        // Only k7 is a time; all else is told as intervals.
        let k7 = &mut frame[HEAD_BYTES..HEAD_BYTES + 8];
        let read = u64::from_le_bytes((&*k7).try_into().unwrap());
        k7.copy_from_slice(&read.checked_add_signed(theta.at(read)).unwrap().to_le_bytes());
    }
}

/// Carries what the server says, frame by frame.
fn carry_changed(mut from: TcpStream, mut to: TcpStream, theta: Theta) {
    let mut said = Vec::new();
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        said.extend_from_slice(&bytes[..count]);
        let mut whole = 0;
        while let Some(head) = said.get(whole..whole + HEAD_BYTES) {
            assert_eq!(&head[..4], b"TRK1");
            let length = u32::from_le_bytes(head[12..].try_into().unwrap()) as usize;
            let Some(frame) = said.get_mut(whole..whole + HEAD_BYTES + length) else { break };
            say(frame, theta);
            whole += HEAD_BYTES + length;
        }
        if to.write_all(&said[..whole]).is_err() {
            break;
        }
        said.drain(..whole);
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn relay(to: SocketAddr, theta: Theta) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut near, _)) = listener.accept() {
            let mut far = TcpStream::connect(to).unwrap();
            near.set_nodelay(true).unwrap();
            far.set_nodelay(true).unwrap();
            let (back_near, back_far) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || carry_changed(back_far, back_near, theta));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut near, &mut far);
                let _ = far.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

fn daemon(more: &str) -> Daemon {
    let text = format!("[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n{more}");
    Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap()
}

fn address(daemon: &Daemon) -> SocketAddr {
    daemon.endpoints()[0].strip_prefix("tcp://").unwrap().parse().unwrap()
}

fn stamp() -> Instant {
    Instant(monotonic_ns())
}

/// Answers calls with true stamps, each after `takes`.
fn serve(mut server: RawApp, takes: Duration) {
    std::thread::spawn(move || {
        while let Completion::Call(call) = server.next_call() {
            let taken = stamp();
            let payload = call.payload.unwrap();
            let data = server.received(payload);
            std::thread::sleep(takes);
            let reply = server.bytes(&data, Encoding::Linear);
            let mut end = finish(call.call, Code::Ok, Some(reply));
            (end.taken, end.published) = (taken, stamp());
            server.submit(Submission::Finish(end));
            let (block, metadata) = (payload.span, call.metadata);
            server.submit(Submission::Release { call: call.call, block, metadata, a18: Instant(0) });
        }
    });
}

fn call(client: &mut RawApp) {
    let entered = stamp();
    let payload = client.blob(b"what time is it");
    let mut call = client.call(0, Some(payload), true);
    (call.entered, call.published) = (entered, stamp());
    client.submit(Submission::Call(call));
    let Completion::Finish(end) = client.next() else { panic!("no finish") };
    assert_eq!(end.code, Code::Ok);
    let block = end.payload.map_or(Span::default(), |payload| payload.span);
    client.submit(Submission::Release { call: end.call, block, metadata: end.metadata, a18: stamp() });
}

/// The calls that were recorded, with all their stamps.
fn recorded(daemon: &Daemon, calls: usize) -> Vec<(RecordedCall, RecordedTrace)> {
    let began = std::time::Instant::now();
    loop {
        let answers =
            daemon.calls(|_| CallsAsk { from: Some(0), rows_max: usize::MAX, ..CallsAsk::default() });
        let with_traces = answers.into_iter().flat_map(|answer| {
            let of = move |(place, trace): (u32, RecordedTrace)| (answer.rows[place as usize], trace);
            answer.traces.into_iter().map(of)
        });
        let found: Vec<_> = with_traces.collect();
        if found.len() >= calls {
            return found;
        }
        assert!(began.elapsed() < WATCHDOG, "{} of {calls} calls recorded", found.len());
        std::thread::yield_now();
    }
}

/// How far the offset that a call was divided by is from the true one, and how far it may be by what was recorded.
fn off_ns(call: &RecordedCall, trace: &RecordedTrace, theta: Theta) -> (u64, u64) {
    let row = &call.row;
    let wire_ns = |wire: Component| row.components.ns[wire as usize] as i64;
    let apart = |a: Instant, b: Instant| a.0.wrapping_sub(b.0) as i64;
    let (client, server) = (&trace.client, &trace.server);
    let left = if client.k6 == Instant(0) { client.d4 } else { client.k6 };
    // A wire of zero says only that the offset was as far to that side as it can be.
    let offset = match wire_ns(Component::RequestWire) {
        0 => apart(server.k14, client.k15) + wire_ns(Component::ResponseWire),
        wire => apart(server.k7, left) - wire,
    };
    let k7 = server.k7.0.saturating_sub_signed(theta.at(left.0));
    // The server's intervals are told as this machine's clock has them, and not as one does that runs fast.
    let stretched = row.components.ns.iter().sum::<u64>() / 10_000;
    (offset.abs_diff(theta.at(k7)).saturating_sub(stretched), row.half_width_ns.into())
}

fn seconds() -> u64 {
    std::env::var("TRUNKLINE_TEST_CLOCKS").map_or(12, |seconds| seconds.parse().unwrap())
}

/// Makes calls to a host of such a clock and holds every one to the truth.
fn bound_covers(drift_ppm: f64, steps: bool) {
    let (began_ns, lasts_ns) = (monotonic_ns(), seconds() * SECOND_NS);
    let step_at_ns = steps.then_some(began_ns + lasts_ns / 2);
    let theta = Theta { began_ns, drift_ppm, step_at_ns };
    let (near, far) = (daemon("[recorder]\ntraces = true\nsample = 1.0\n"), daemon(""));
    serve(RawApp::attach(&far, "", true), Duration::ZERO);
    let mut client = RawApp::attach(&near, &format!("tcp://{}", relay(address(&far), theta)), false);
    let mut calls = 0;
    while monotonic_ns() < began_ns + lasts_ns {
        call(&mut client);
        calls += 1;
        std::thread::sleep(Duration::from_millis(4));
    }
    // The last answer is recorded with the next call.
    let found = recorded(&near, calls - 1);
    let counted: Vec<(u64, u64)> = found.iter().map(|(call, trace)| off_ns(call, trace, theta)).collect();
    let covered = counted.iter().filter(|(off, bound)| off <= bound).count();
    let missed: Vec<_> = counted.iter().filter(|(off, bound)| off > bound).take(5).collect();
    assert!(
        covered * 100 >= counted.len() * 99,
        "{drift_ppm} ppm: {covered} of {} within the bound; beyond it {missed:?}",
        counted.len()
    );
    // And it says something: less than what a call takes.
    let (last, _) = found.last().unwrap();
    let total_ns: u64 = last.row.components.ns.iter().sum();
    assert!(u64::from(last.row.half_width_ns) < total_ns, "{} of {total_ns} ns", last.row.half_width_ns);
}

#[test]
fn the_bound_covers_a_clock_that_runs_fast() {
    bound_covers(100.0, false);
}

#[test]
fn the_bound_covers_a_clock_that_runs_slow_and_is_set() {
    bound_covers(-100.0, true);
}

/// A stamp that is misread by fifty milliseconds would have the server stay longer than the call was away.
#[test]
fn a_wall_clock_that_is_set_moves_no_stamp() {
    const SET_BY: &str = "[debug]\nwall_clock_set_by_us = 50000\n[recorder]\ntraces = true\nsample = 1.0\n";
    let until_ns = monotonic_ns() + seconds() * SECOND_NS / 2;
    let (near, far) = (daemon(SET_BY), daemon(SET_BY));
    serve(RawApp::attach(&far, "", true), Duration::ZERO);
    let mut client = RawApp::attach(&near, &format!("tcp://{}", address(&far)), false);
    let mut calls = 0;
    while monotonic_ns() < until_ns {
        call(&mut client);
        calls += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    let found = recorded(&near, calls - 1);
    let clipped = found.iter().filter(|(call, _)| call.row.components.clipped).count();
    assert!(
        clipped * 100 <= found.len(),
        "{clipped} of {} calls claim more time than there was",
        found.len()
    );
}
