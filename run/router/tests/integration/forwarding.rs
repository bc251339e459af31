//! Shows a real router between real clients and workers on this host: both ways to send on, both modes of the protocol,
//! long messages, every call once, no place left taken, and the metrics that say so.

use crate::support;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::*;
use trunkline_net::{DatagramBatch, Datagrams, Outgoing, RawDatagrams};
use trunkline_pages::HostNames;
use trunkline_r2p2::*;
use trunkline_router::*;

const CALLS: usize = 300;
/// Longer than any of these tests takes.
const PATIENCE_NS: u64 = 300_000_000_000;

/// Calls through a router with three workers. The router's last report.
fn run(forwarding: Forwarding, mode: Mode) -> Report {
    let sockets: Vec<Datagrams> = (0..3).map(|_| Datagrams::bind(ANY).unwrap()).collect();
    let workers = sockets.iter().map(|socket| (socket.address().unwrap(), 1)).collect();
    let joins = mode == Mode::Extended;
    // A host that is busy elsewhere stops everybody here for longer than a router waits for anybody: what is shown is
    // what becomes of calls nobody gives up.
    let config = RouterConfig {
        delay_ns_max: PATIENCE_NS,
        lease_ns: PATIENCE_NS,
        silent_ns_max: PATIENCE_NS,
        workers: if joins { Vec::new() } else { workers },
        join_from: vec![(Ipv4Addr::LOCALHOST, 8)],
        ..RouterConfig::default()
    };
    let settings = Settings {
        listen: ANY,
        control: ANY,
        forwarding,
        flows_max: Settings::FLOWS_MAX,
        keys: None,
        router: config,
    };
    let router = RouterProcess::start(settings).unwrap();
    let [listen, control] = router.addresses().unwrap();
    let shared = router.shared();
    let (stop_workers, stop_router) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let loop_thread = scope.spawn(|| router.run(&stop_router));
        let worker = Config { mode, routers: vec![control], ..Config::default() };
        let all: Vec<_> = sockets
            .iter()
            .map(|socket| {
                let (worker, stop) = (worker.clone(), &stop_workers);
                scope.spawn(move || work(socket, worker, stop))
            })
            .collect();
        // A router that has just started waits until every datagram from before has arrived.
        if joins {
            until(&shared, |report| report.workers.len() == 3);
        }
        thread::sleep(Duration::from_millis(50));
        call_and_check(listen, mode);
        stop_workers.store(true, Ordering::Relaxed);
        let executed: Vec<u64> = all.into_iter().map(|worker| worker.join().unwrap()).collect();
        assert_eq!(executed.iter().sum::<u64>(), CALLS as u64, "each once: {executed:?}");
        assert!(executed.iter().all(|count| *count > 0), "by everyone: {executed:?}");
        // The last FEEDBACK may come after the last answer.
        until(&shared, |report| {
            let at_rest = report.workers.iter().all(|row| row.outstanding == 0);
            at_rest && report.counters.forwarded == CALLS as u64
        });
        stop_router.store(true, Ordering::Relaxed);
        loop_thread.join().unwrap();
    });
    let report = shared.report.lock().clone();
    assert_eq!(report.counters.forwarded, CALLS as u64);
    assert!(report.workers.iter().all(|row| row.outstanding == 0), "{report:?}");
    report
}

/// Waits for a report.
fn until(shared: &Shared, is_wanted: impl Fn(&Report) -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let report = shared.report.lock().clone();
        if is_wanted(&report) {
            return;
        }
        assert!(Instant::now() < patience, "{report:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn call_and_check(listen: SocketAddrV4, mode: Mode) {
    let longest = if mode == Mode::Extended { 300_000 } else { 20_000 };
    let bodies: Vec<Vec<u8>> =
        (0..CALLS).map(|i| vec![i as u8; (i * 7919) % if i % 20 == 0 { longest } else { 1400 }]).collect();
    for event in call_all(listen, Config { mode, ..Config::default() }, &bodies, 8) {
        match event {
            ClientEvent::Replied { tag, body, .. } => {
                assert!(body == bodies[tag as usize], "call {tag} is echoed")
            }
            ClientEvent::Failed { tag, failure } => panic!("call {tag}: {failure}"),
        }
    }
}

#[test]
fn clients_addresses_are_preserved() {
    if RawDatagrams::open().unwrap().is_none() {
        println!("skipped: no right to open a raw socket (CAP_NET_RAW)");
        return;
    }
    let report = run(Forwarding::Preserve, Mode::Extended);
    assert!(report.counters.on_behalf >= CALLS as u64, "{report:?}");
    let report = run(Forwarding::Preserve, Mode::Compatible);
    assert_eq!(report.counters.on_behalf, 0, "{report:?}");
}

#[test]
fn on_behalf_of_clients_needs_no_right() {
    let report = run(Forwarding::OnBehalf, Mode::Extended);
    assert!(report.counters.on_behalf >= CALLS as u64, "{report:?}");
}

#[test]
fn a_proxy_needs_no_right() {
    let report = run(Forwarding::Proxy, Mode::Extended);
    assert_eq!(report.counters.on_behalf, 0, "workers answer the proxy: {report:?}");
    let report = run(Forwarding::Proxy, Mode::Compatible);
    assert!(report.table().contains("forwarded 300"), "{}", report.table());
}

/// Tells a router to stop, also where its test has failed.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The next datagram that comes to a socket.
fn receive(socket: &Datagrams) -> (SocketAddrV4, Vec<u8>) {
    let (mut batch, poller, until) =
        (DatagramBatch::new(), poller_of(socket), Instant::now() + Duration::from_secs(60));
    loop {
        assert!(Instant::now() < until, "nothing has come");
        wait(&poller, &Time::begin(), None);
        socket.receive_batch(&mut batch).unwrap();
        if let Some((from, datagram)) = batch.iter().next() {
            return (from, datagram.to_vec());
        }
    }
}

/// A worker knows a request by the address it came from. Where its client's port has given way since, a repetition
/// would be a new one there: it is not sent on, and its client hears that it may have been executed.
#[test]
fn a_repetition_does_not_come_from_another_port_than_the_request_did() {
    let socket = Datagrams::bind(ANY).unwrap();
    let router = RouterConfig {
        delay_ns_max: PATIENCE_NS,
        lease_ns: PATIENCE_NS,
        silent_ns_max: PATIENCE_NS,
        join_from: vec![(Ipv4Addr::LOCALHOST, 8)],
        ..RouterConfig::default()
    };
    let (forwarding, flows_max) = (Forwarding::Proxy, 1);
    let settings = Settings { listen: ANY, control: ANY, forwarding, flows_max, keys: None, router };
    let router = RouterProcess::start(settings).unwrap();
    let ([listen, control], shared) = (router.addresses().unwrap(), router.shared());
    let (stop_worker, stop_router) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let _stops = [Stops(&stop_worker), Stops(&stop_router)];
        scope.spawn(|| router.run(&stop_router));
        let worker = Config { mode: Mode::Extended, routers: vec![control], ..Config::default() };
        let working = scope.spawn(|| work(&socket, worker, &stop_worker));
        until(&shared, |report| report.workers.len() == 1);
        thread::sleep(Duration::from_millis(50));
        let began = Instant::now();
        let ask = |client: &Datagrams, again: bool| {
            let age_us = if again { began.elapsed().as_micros() as u32 } else { 0 };
            let part =
                RequestPart { again, class: 0, router: None, client: None, age_us, budget_us: u32::MAX };
            let identity = Identity { epoch: 7, round: 0 };
            let flags = Flags(Flags::FIRST | Flags::LAST | Flags::OFFER | Flags::EXTENDED);
            let (kind, policy) = (PacketType::Request, Policy::Unrestricted);
            let header = Header { kind, policy, flags, id: 1, order: 1 };
            let head = Packet::head(&header, Some(&Extension { identity, part: Part::Request(part) }));
            client.send(&[Outgoing { to: listen, pieces: [head.as_slice(), b"request"] }]);
            let (_, answer) = receive(client);
            let answer = Packet::parse(&answer, true).unwrap();
            (answer.header.kind, answer.extension.map(|extension| extension.part))
        };
        let clients = [ANY; 2].map(|address| Datagrams::bind(address).unwrap());
        assert_eq!(ask(&clients[0], false).0, PacketType::Reply);
        assert_eq!(ask(&clients[0], true).0, PacketType::Reply, "the same port still");
        assert_eq!(ask(&clients[1], false).0, PacketType::Reply, "in the place of the other");
        // What follows its request takes nobody's place.
        let identity = Identity { epoch: 7, round: 0 };
        let flags = Flags(Flags::FIRST | Flags::LAST | Flags::EXTENDED);
        let (kind, policy) = (PacketType::Drop, Policy::Unrestricted);
        let header = Header { kind, policy, flags, id: 1, order: 1 };
        let part = Part::Drop { reason: Reason::Cancelled, delay_us: 0, client: None };
        let cancelled = Packet::head(&header, Some(&Extension { identity, part }));
        clients[0].send(&[Outgoing { to: listen, pieces: [cancelled.as_slice(), &[]] }]);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(ask(&clients[1], true).0, PacketType::Reply, "it has its port still");
        let (kind, part) = ask(&clients[0], true);
        assert_eq!(kind, PacketType::Drop);
        assert!(matches!(part, Some(Part::Drop { reason: Reason::Forgotten, .. })), "{part:?}");
        stop_worker.store(true, Ordering::Relaxed);
        assert_eq!(working.join().unwrap(), 2, "each once");
    });
}

/// Whoever finds a port of a proxy has no words of its own brought to the client behind it.
#[test]
fn a_proxy_passes_on_what_workers_answer_and_nothing_else() {
    let [worker, client] = [ANY; 2].map(|address| Datagrams::bind(address).unwrap());
    let stranger = Datagrams::bind(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 9), 0)).unwrap();
    let workers = vec![(worker.address().unwrap(), 1)];
    let router = RouterConfig { workers, extended: false, ..RouterConfig::default() };
    let (forwarding, flows_max) = (Forwarding::Proxy, Settings::FLOWS_MAX);
    let settings = Settings { listen: ANY, control: ANY, forwarding, flows_max, keys: None, router };
    let router = RouterProcess::start(settings).unwrap();
    let ([listen, _], shared, stop) = (router.addresses().unwrap(), router.shared(), AtomicBool::new(false));
    let send = |socket: &Datagrams, to, bytes: &[u8]| socket.send(&[Outgoing { to, pieces: [bytes, &[]] }]);
    thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| router.run(&stop));
        // After a start nothing is known to be new for a moment.
        thread::sleep(Duration::from_millis(50));
        send(&client, listen, &[0xcc, 8, 0, 0xc0, 0, 1, 0, 1, 7]);
        let (flow, request) = receive(&worker);
        assert_eq!(request[8..], [7]);
        let reply = |says: u8| [0xcc, 8, 0x11, 0xc0, 0, 1, 0, 1, says];
        send(&stranger, flow, &reply(66));
        send(&worker, flow, &[0xcc, 8, 0, 0xc0, 0, 1, 0, 1, 67]);
        until(&shared, |report| report.counters.stray == 2);
        send(&worker, flow, &reply(8));
        assert_eq!(receive(&client), (listen, reply(8).to_vec()));
    });
}

#[test]
fn metrics_are_served() {
    let shared = std::sync::Arc::new(Shared::default());
    shared.report.lock().counters.dropped[Reason::QueueFull as usize] = 7;
    let hosts = HostNames::new(&["x".into()], "--metrics-host");
    let server = serve_metrics("127.0.0.1:0".parse().unwrap(), hosts, shared).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(answer.contains("\ntrunkline_router_dropped_total{reason=\"queue_full\"} 7\n"), "{answer}");
}

#[test]
fn a_control_address_nobody_reaches_is_refused() {
    let control = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let settings = Settings {
        listen: ANY,
        control,
        forwarding: Forwarding::Auto,
        flows_max: Settings::FLOWS_MAX,
        keys: None,
        router: RouterConfig::default(),
    };
    let said = RouterProcess::start(settings).err().unwrap().to_string();
    assert!(said.contains("write the address workers reach"), "{said}");
}

/// Clients at ports and addresses of their own, through a proxy with few sockets: who comes from ever new ports makes
/// room for itself; a host for which there is none hears so at once, and takes no place at a worker.
#[test]
fn a_proxy_has_so_many_clients_and_refuses_others() {
    let socket = Datagrams::bind(ANY).unwrap();
    let config = RouterConfig {
        delay_ns_max: PATIENCE_NS,
        lease_ns: PATIENCE_NS,
        workers: vec![(socket.address().unwrap(), 1)],
        ..RouterConfig::default()
    };
    let (forwarding, flows_max) = (Forwarding::Proxy, 2);
    let settings = Settings { listen: ANY, control: ANY, forwarding, flows_max, keys: None, router: config };
    let router = RouterProcess::start(settings).unwrap();
    let [listen, control] = router.addresses().unwrap();
    let shared = router.shared();
    let (stop_worker, stop_router) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let loop_thread = scope.spawn(|| router.run(&stop_router));
        let worker = Config { routers: vec![control], ..Config::default() };
        let working = scope.spawn(|| work(&socket, worker, &stop_worker));
        thread::sleep(Duration::from_millis(50));
        let call = |host: u8| {
            let from = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, host), 0);
            call_all_from(from, listen, Config::default(), &[vec![7; 8]], 1).pop().unwrap()
        };
        let is_answered = |event: &ClientEvent| matches!(event, ClientEvent::Replied { .. });
        for host in [1, 1, 1, 1, 1, 2, 2] {
            let event = call(host);
            assert!(is_answered(&event), "host {host}: {event:?}");
        }
        let ClientEvent::Failed { failure, .. } = call(3) else { panic!("there is no socket for it") };
        assert!(matches!(failure, CallFailure::Dropped { .. }), "{failure:?}");
        assert!(is_answered(&call(1)), "the worker is free");
        until(&shared, |report| report.counters.unsent == 1 && report.workers[0].outstanding == 0);
        stop_worker.store(true, Ordering::Relaxed);
        assert_eq!(working.join().unwrap(), 8);
        stop_router.store(true, Ordering::Relaxed);
        loop_thread.join().unwrap();
    });
}
