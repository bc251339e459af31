//! Shows that a delay is found where it is: planted in each of the nine components in turn, between two real daemons
//! with a relay for a network between them, on some of the calls or on all from the middle of the run on, it appears in
//! that component as long as it was, and in no other.
//!
//! `TRUNKLINE_TEST_PLANTED=all` plants 0.5, 5 and 20 ms, on all calls and on one in twenty: 27 of 27, twice. Otherwise
//! it is 5 ms on all. A host that is busy with something else delays, too, and elsewhere: so low percentiles are
//! compared, those of calls with the delay and of calls without it in one run, and a round in which they do not fit is
//! made again. With `TRUNKLINE_TEST_MEANS=1` it is means, which needs a quiet machine.

mod raw;

use raw::*;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trunkline_call::entry::{Completion, Span, Submission};
use trunkline_call::{Code, Encoding, Instant};
use trunkline_daemon::{Config, Daemon};
use trunkline_shm::monotonic_ns;
use trunkline_telemetry::{Ask, Component, Sample, Side};

/// Rounds of which one must fit.
const ROUNDS: usize = 8;
/// What a delay may be off by, beside a twentieth of it: a core that sleeps meanwhile takes this long to wake.
const SLACK_NS: u64 = 100_000;
/// The same for means.
const MEANS_SLACK_NS: u64 = 50_000;

fn daemon(debug: &str) -> Daemon {
    let text = format!("[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n[debug]\n{debug}");
    Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap()
}

fn stamp() -> Instant {
    Instant(monotonic_ns())
}

/// A delay that the next to come takes, and how long that became.
#[derive(Default)]
struct Delay {
    next_ns: AtomicU64,
    taken_ns: AtomicU64,
}

impl Delay {
    fn plant(&self, ns: u64) {
        self.taken_ns.store(0, Ordering::SeqCst);
        self.next_ns.store(ns, Ordering::SeqCst);
    }

    fn take(&self) {
        let ns = self.next_ns.swap(0, Ordering::SeqCst);
        if ns > 0 {
            let began = monotonic_ns();
            std::thread::sleep(Duration::from_nanos(ns));
            self.taken_ns.store(monotonic_ns() - began, Ordering::SeqCst);
        }
    }
}

/// One delay for each component.
type Delays = Arc<[Delay; Component::COUNT]>;

/// A network: what is written to it comes out at `to`, and back.
fn relay(to: SocketAddr, delays: &Delays) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // A short queue, so that what is not read waits at its sender.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 64 << 10).unwrap();
    let address = listener.local_addr().unwrap();
    let delays = Arc::clone(delays);
    std::thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let far = TcpStream::connect(to).unwrap();
            near.set_nodelay(true).unwrap();
            far.set_nodelay(true).unwrap();
            let (back_near, back_far) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let (forth, back) = (Arc::clone(&delays), Arc::clone(&delays));
            std::thread::spawn(move || carry(near, far, &forth[Component::RequestWire as usize]));
            std::thread::spawn(move || carry(back_far, back_near, &back[Component::ResponseWire as usize]));
        }
    });
    address
}

fn carry(mut from: TcpStream, mut to: TcpStream, delay: &Delay) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        delay.take();
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// How often a server looks whether it is wanted: what a stage that is over leaves behind delays the next.
const LOOK: Duration = Duration::from_millis(100);

/// Answers calls with true stamps until `is_over`.
fn serve(mut server: RawApp, delays: Delays, is_over: Arc<AtomicBool>) {
    let delay = move |component: Component| delays[component as usize].take();
    std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            let Some(Completion::Call(call)) = server.next_within(LOOK) else { continue };
            delay(Component::ServerReceiveQueue);
            let taken = stamp();
            let payload = call.payload.unwrap();
            let data = server.received(payload);
            delay(Component::ServerApplication);
            let reply = server.bytes(&data, Encoding::Linear);
            let mut end = finish(call.call, Code::Ok, Some(reply));
            (end.taken, end.published) = (taken, stamp());
            delay(Component::ServerSendQueue);
            server.submit(Submission::Finish(end));
            let (block, metadata) = (payload.span, call.metadata);
            server.submit(Submission::Release { call: call.call, block, metadata, a18: Instant(0) });
        }
    });
}

/// One call: what was planted, and what the application saw.
#[derive(Clone, Copy)]
struct Seen {
    planted_ns: u64,
    total_ns: u64,
}

fn call(client: &mut RawApp, delays: &Delays) -> u64 {
    let delay = |component: Component| delays[component as usize].take();
    let entered = stamp();
    let payload = client.blob(b"where does the time go");
    let mut call = client.call(0, Some(payload), true);
    delay(Component::RequestStack);
    (call.entered, call.published) = (entered, stamp());
    delay(Component::ClientSendQueue);
    client.submit(Submission::Call(call));
    let Completion::Finish(end) = client.next() else { panic!("no finish") };
    delay(Component::ClientReceiveQueue);
    let a18 = stamp();
    assert_eq!(end.code, Code::Ok);
    let block = end.payload.map_or(Span::default(), |payload| payload.span);
    client.submit(Submission::Release { call: end.call, block, metadata: end.metadata, a18 });
    a18.since_ns(entered)
}

/// The calls the daemon recorded, oldest first, once all are there.
fn samples(daemon: &Daemon, calls: usize) -> Vec<Sample> {
    let ask = Ask { method: "/raw.Echo/Once".into(), samples_max: 10_000, ..Ask::default() };
    let began = std::time::Instant::now();
    loop {
        let observed = daemon.observe(&ask).into_iter().flat_map(|shard| shard.telemetry.samples);
        let mut made: Vec<_> = observed.filter(|sample| sample.side == Side::Made).collect();
        if made.len() >= calls {
            made.reverse();
            made.sort_by_key(|sample| sample.at_ns);
            return made;
        }
        assert!(began.elapsed() < WATCHDOG, "{} of {calls} calls recorded", made.len());
        std::thread::yield_now();
    }
}

/// Two daemons with a network between them, a server at one and a client at the other.
struct Stage {
    near: Daemon,
    _far: Daemon,
    client: RawApp,
    delays: Delays,
    is_over: Arc<AtomicBool>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Stage {
    fn new(near_debug: &str, far_debug: &str) -> Self {
        let (near, far) = (daemon(near_debug), daemon(far_debug));
        let delays = Delays::default();
        let is_over = Arc::default();
        serve(RawApp::attach(&far, "", true), Arc::clone(&delays), Arc::clone(&is_over));
        let address = far.endpoints()[0].strip_prefix("tcp://").unwrap().parse().unwrap();
        let network = relay(address, &delays);
        let client = RawApp::attach(&near, &format!("tcp://{network}"), false);
        Self { near, _far: far, client, delays, is_over }
    }

    /// Makes calls of which those have a delay that `has` says.
    fn run(&mut self, calls: usize, component: Component, ns: u64, has: impl Fn(usize) -> bool) -> Vec<Seen> {
        let delay = &self.delays[component as usize];
        let one = |n: usize| {
            delay.plant(if has(n) { ns } else { 0 });
            let total_ns = call(&mut self.client, &self.delays);
            Seen { planted_ns: delay.taken_ns.load(Ordering::SeqCst), total_ns }
        };
        (0..calls).map(one).collect()
    }
}

/// What is compared: on a quiet machine the mean; else a value that nine in ten exceed, for what a delay is in every
/// call, what a busy host adds is not.
fn typical(mut values: Vec<i64>) -> i64 {
    if are_means() {
        return values.iter().sum::<i64>() / values.len() as i64;
    }
    values.sort_unstable();
    values[values.len() / 10]
}

fn are_means() -> bool {
    std::env::var_os("TRUNKLINE_TEST_MEANS").is_some()
}

fn tolerated(ns: u64) -> i64 {
    let slack_ns = if are_means() { MEANS_SLACK_NS } else { SLACK_NS };
    slack_ns.max(ns / 20) as i64
}

/// How much each component has more in calls with a delay than in those without; of `component`, beyond the delay.
fn moved(component: Component, seen: &[Seen], samples: &[Sample]) -> [i64; Component::COUNT] {
    std::array::from_fn(|part| {
        let of = |is_planted: bool| {
            let calls = seen.iter().zip(samples).filter(|(seen, _)| (seen.planted_ns > 0) == is_planted);
            let booked = calls.map(|(seen, sample)| {
                let planted_ns = if part == component as usize { seen.planted_ns } else { 0 };
                sample.ns[part] as i64 - planted_ns as i64
            });
            typical(booked.collect())
        };
        of(true) - of(false)
    })
}

/// Plants until one round fits: the delay is where it was planted, and nowhere else.
fn expect(component: Component, ns: u64, calls: usize, has: impl Fn(usize) -> bool) {
    let tolerated_ns = tolerated(ns);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let mut stage = Stage::new("", "");
        let seen = stage.run(calls, component, ns, &has);
        let samples = samples(&stage.near, calls);
        for (seen, sample) in seen.iter().zip(&samples) {
            // A row is exact to one in 2³¹ beyond 4.29 s, which is what a host that stood still makes of a call.
            let off_ns = seen.total_ns.abs_diff(sample.total_ns());
            assert!(off_ns <= seen.total_ns >> 28, "the nine are what the application saw: {off_ns} ns off");
        }
        let moved = moved(component, &seen, &samples);
        if moved.iter().all(|ns| ns.abs() <= tolerated_ns) {
            return;
        }
        rounds.push(moved);
    }
    panic!("{ns} ns in {component}: tolerated is {tolerated_ns} ns, found {rounds:?}");
}

/// The same for a delay that no application and no network can plant: the daemon that reads late, beside one that does
/// not.
fn expect_of_late_reads(component: Component, ns: u64, calls: usize) {
    let tolerated_ns = tolerated(ns);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let debug = format!("read_stall_us = {}", ns / 1000);
        let (near, far) = match component {
            Component::ResponseStack => (debug.as_str(), ""),
            _ => ("", debug.as_str()),
        };
        let (mut without, mut with) = (Stage::new("", ""), Stage::new(near, far));
        // In turn, so that whatever else this host does is the same to both.
        for _ in 0..calls {
            without.run(1, component, 0, |_| false);
            with.run(1, component, 0, |_| false);
        }
        let typicals = |stage: &Stage| -> [i64; Component::COUNT] {
            let samples = samples(&stage.near, calls);
            std::array::from_fn(|part| typical(samples.iter().map(|one| one.ns[part] as i64).collect()))
        };
        let (without, with) = (typicals(&without), typicals(&with));
        let mut moved: [i64; Component::COUNT] = std::array::from_fn(|part| with[part] - without[part]);
        moved[component as usize] -= slept(ns);
        if moved.iter().all(|ns| ns.abs() <= tolerated_ns) {
            return;
        }
        rounds.push(moved);
    }
    panic!("{ns} ns before reading, {component}: tolerated is {tolerated_ns} ns, found {rounds:?}");
}

/// What becomes of a sleep here.
fn slept(ns: u64) -> i64 {
    let one = |_| {
        let began = monotonic_ns();
        std::thread::sleep(Duration::from_nanos(ns));
        (monotonic_ns() - began) as i64
    };
    typical((0..20).map(one).collect())
}

fn delays() -> &'static [u64] {
    if is_whole() { &[500_000, 5_000_000, 20_000_000] } else { &[5_000_000] }
}

fn is_whole() -> bool {
    std::env::var("TRUNKLINE_TEST_PLANTED").is_ok_and(|which| which == "all")
}

/// One at a time: they are about time.
static ALONE: Mutex<()> = Mutex::new(());

fn plant(component: Component) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for ns in delays() {
        if component == Component::ResponseStack {
            expect_of_late_reads(component, *ns, 40);
            continue;
        }
        expect(component, *ns, 80, |n| n >= 40);
        if is_whole() {
            expect(component, *ns, 400, |n| n % 20 == 19);
        }
    }
}

#[test]
fn in_the_client_send_queue() {
    plant(Component::ClientSendQueue);
}

#[test]
fn in_the_request_stack() {
    plant(Component::RequestStack);
}

#[test]
fn on_the_way_there() {
    plant(Component::RequestWire);
}

#[test]
fn in_the_server_receive_queue() {
    plant(Component::ServerReceiveQueue);
}

#[test]
fn in_the_server_application() {
    plant(Component::ServerApplication);
}

#[test]
fn in_the_server_send_queue() {
    plant(Component::ServerSendQueue);
}

#[test]
fn on_the_way_back() {
    plant(Component::ResponseWire);
}

/// The client's daemon reads late: the kernel knows when the bytes were there, so it is no wire.
#[test]
fn in_the_response_stack() {
    plant(Component::ResponseStack);
}

#[test]
fn in_the_client_receive_queue() {
    plant(Component::ClientReceiveQueue);
}

/// The server's daemon reads late.
#[test]
fn a_late_read_is_no_wire() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for ns in delays() {
        expect_of_late_reads(Component::RequestStack, *ns, 40);
    }
}

/// The network takes nothing for two seconds, and the socket fills. The call that waited for it longest in the daemon.
fn fill_socket(near: &Daemon, client: &mut RawApp, delays: &Delays) -> Sample {
    const CALLS: usize = 700;
    call(client, delays);
    delays[Component::RequestWire as usize].plant(PAUSE_NS);
    // More than the kernel keeps for two sockets, in messages that are not cut.
    let message = vec![7; 15_000];
    for _ in 0..CALLS {
        let entered = stamp();
        let payload = client.blob(&message);
        let mut call = client.call(0, Some(payload), true);
        (call.entered, call.published) = (entered, stamp());
        client.submit(Submission::Call(call));
    }
    for _ in 0..CALLS {
        let Completion::Finish(end) = client.next() else { panic!("no finish") };
        let block = end.payload.map_or(Span::default(), |payload| payload.span);
        let (call, metadata, a18) = (end.call, end.metadata, stamp());
        client.submit(Submission::Release { call, block, metadata, a18 });
    }
    let samples = samples(near, CALLS + 1);
    samples.into_iter().max_by_key(|sample| sample.ns[Component::RequestStack as usize]).unwrap()
}

const PAUSE_NS: u64 = 2_000_000_000;

/// What waits in the daemon for the network is no wire.
#[test]
fn a_full_socket_is_no_wire() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stage = Stage::new("", "");
    let waited = fill_socket(&stage.near, &mut stage.client, &stage.delays);
    let [stack, wire] =
        [Component::RequestStack, Component::RequestWire].map(|component| waited.ns[component as usize]);
    assert!(stack > PAUSE_NS / 2, "{stack} ns in the daemon's queue, {wire} ns on the wire");
    assert!(stack > wire, "{stack} ns in the daemon's queue, {wire} ns on the wire");
}

/// The same where the server speaks gRPC, and wires and server are one.
#[test]
fn a_full_socket_is_no_wire_over_http2() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = GrpcServer::start(None);
    let (near, delays) = (daemon(""), Delays::default());
    let network = relay(server.endpoint.strip_prefix("tcp://").unwrap().parse().unwrap(), &delays);
    let mut client = RawApp::attach(&near, &format!("tcp://{network}"), false);
    let waited = fill_socket(&near, &mut client, &delays);
    let stack = waited.ns[Component::RequestStack as usize];
    assert!(stack > PAUSE_NS / 2, "{stack} ns in the daemon's queue, {:?}", waited.ns);
    assert!(stack > waited.total_ns() / 2, "{stack} ns in the daemon's queue, {:?}", waited.ns);
}
