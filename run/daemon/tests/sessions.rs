//! Shows calls through a running daemon, and that no application can harm it or another: every hostile act ends in a
//! reason for the one who did it, while a call between two others goes on working.

mod raw;

use prost::Message;
use raw::*;
use rustix::fd::AsFd;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use trunkline_call::entry::{Completion, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Encoding, Execution, RouteIndex};
use trunkline_control::{ABI_VERSION, Attach, Bind, Request, request};
use trunkline_daemon::{Config, Daemon};
use trunkline_shm::{ControlError, ControlSocket};

fn daemon(listen: bool) -> Daemon {
    let text = if listen { "[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]" } else { "" };
    Daemon::embedded(Config::from_toml(text, "test").unwrap()).unwrap()
}

#[test]
fn a_call_on_one_host() {
    let daemon = daemon(false);
    let mut server = RawApp::attach(&daemon, "", true);
    let mut client = RawApp::attach(&daemon, "", false);
    for bytes in [0, 10, 100_000] {
        let payload = client.blob(&vec![7; bytes]);
        let call = client.call(0, Some(payload), true);
        client.submit(Submission::Call(call));
        assert!(server.echo_once());
        let Completion::Finish(finish) = client.next() else { panic!("no finish") };
        assert_eq!(finish.code, Code::Ok);
        assert!(client.received(finish.payload.unwrap()).len() >= bytes);
    }
}

#[test]
fn a_call_between_two_daemons() {
    let (near, far) = (daemon(false), daemon(true));
    let mut server = RawApp::attach(&far, "", true);
    let mut client = RawApp::attach(&near, &far.endpoints()[0], false);
    for bytes in [0, 10, 5_000, 100_000, 3_000_000] {
        let payload = client.blob(&vec![7; bytes]);
        let call = client.call(0, Some(payload), true);
        client.submit(Submission::Call(call));
        assert!(server.echo_once());
        let Completion::Finish(finish) = client.next() else { panic!("no finish") };
        assert_eq!(finish.code, Code::Ok, "{bytes} bytes");
        assert!(client.received(finish.payload.unwrap()).len() >= bytes);
    }
}

/// A daemon with a pair of applications that must stay undisturbed, and one that will misbehave.
struct Stage {
    bystander: RawApp,
    villain: RawApp,
    daemon: Daemon,
}

impl Stage {
    fn set() -> Self {
        let daemon = daemon(false);
        let server = RawApp::attach(&daemon, "", true);
        echo_in_thread(server);
        let bystander = RawApp::attach(&daemon, "", false);
        let villain = RawApp::attach(&daemon, "", false);
        Self { bystander, villain, daemon }
    }

    /// The villain was dismissed with a reason that says this; nobody else noticed.
    #[track_caller]
    fn expect_dismissal(mut self, says: &str) {
        let reason = self.villain.dismissal();
        assert!(reason.contains(says), "{reason:?} does not say {says:?}");
        assert_eq!(self.bystander.unary(b"still here").code, Code::Ok);
        // It is told before its session has gone.
        let began = std::time::Instant::now();
        while self.daemon.observe(&Default::default())[0].snapshot.sessions.len() != 2 {
            assert!(began.elapsed() < WATCHDOG, "the session that was dismissed is there");
            std::thread::yield_now();
        }
    }
}

#[test]
fn an_entry_of_no_kind() {
    let mut stage = Stage::set();
    stage.villain.submit_raw(&[250, 0, 0, 0, 0, 0, 0, 0]);
    stage.expect_dismissal("UnknownKind");
}

#[test]
fn random_entries_never_disturb_anybody() {
    let mut stage = Stage::set();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..200 {
        let mut villain = RawApp::attach(&stage.daemon, "", false);
        for _ in 0..20 {
            let mut entry = [0u64; 8];
            for word in &mut entry {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *word = if state >> 60 < 8 { state >> 40 } else { state };
            }
            entry[0] = (entry[0] & !0xffff) | ((state >> 33) % 12) | (((state >> 20) & 7) << 8);
            if villain.end.submissions.push(&entry).unwrap_or(false) {
                villain.end.peer_doorbell.ring().unwrap();
            }
        }
        if round % 50 == 0 {
            assert_eq!(stage.bystander.unary(b"still here").code, Code::Ok);
        }
    }
    assert_eq!(stage.bystander.unary(b"still here").code, Code::Ok);
}

#[test]
fn a_message_outside_the_heap() {
    let mut stage = Stage::set();
    let span = Span { offset: u32::MAX - 10, len: 100 };
    let call = stage.villain.call(0, Some(Payload::new(span, Encoding::Linear)), true);
    stage.villain.submit(Submission::Call(call));
    stage.expect_dismissal("not a valid block");
}

#[test]
fn a_route_never_bound() {
    let mut stage = Stage::set();
    let mut call = stage.villain.call(0, None, true);
    call.route = RouteIndex(77);
    stage.villain.submit(Submission::Call(call));
    stage.expect_dismissal("never bound");
}

#[test]
fn a_release_of_what_was_never_given() {
    let mut stage = Stage::set();
    let block = Span { offset: 4096, len: 64 };
    let release =
        Submission::Release { call: CallId(1), block, metadata: Span::default(), a18: Default::default() };
    stage.villain.submit(release);
    stage.expect_dismissal("not a block");
}

#[test]
fn a_call_id_used_twice() {
    let mut stage = Stage::set();
    let payload = stage.villain.blob(b"x");
    let call = stage.villain.call(1, None, false);
    stage.villain.submit(Submission::Call(call));
    let again = trunkline_call::entry::Call { payload: Some(payload), ..call };
    stage.villain.submit(Submission::Call(again));
    stage.expect_dismissal("in use");
}

#[test]
fn a_linear_message_that_lies() {
    let mut stage = Stage::set();
    for bytes in [vec![0xff; 200], vec![0; 24], b"TL\x01\x00".repeat(20)] {
        let payload = stage.villain.bytes(&bytes, Encoding::Linear);
        let call = stage.villain.call(0, Some(payload), true);
        stage.villain.submit(Submission::Call(call));
        let Completion::Finish(finish) = stage.villain.next() else { panic!("no finish") };
        assert_eq!((finish.code, finish.execution), (Code::InvalidArgument, Execution::NotExecuted));
    }
    assert_eq!(stage.bystander.unary(b"still here").code, Code::Ok);
}

#[test]
fn an_application_that_takes_nothing() {
    let mut stage = Stage::set();
    // Far more calls than its completion ring holds: their outcomes wait, bounded by the calls it may have in flight.
    for _ in 0..3000 {
        let payload = stage.villain.blob(b"x");
        let call = stage.villain.call(0, Some(payload), true);
        stage.villain.submit(Submission::Call(call));
    }
    for _ in 0..100 {
        assert_eq!(stage.bystander.unary(b"still here").code, Code::Ok);
    }
    // And when it wakes up at last, nothing is lost.
    let mut finished = 0;
    while finished < 3000 {
        if let Completion::Finish(finish) = stage.villain.next() {
            finished += 1;
            let block = finish.payload.map_or(Span::default(), |payload| payload.span);
            let a18 = trunkline_call::Instant(9);
            stage.villain.submit(Submission::Release {
                call: finish.call,
                block,
                metadata: finish.metadata,
                a18,
            });
        }
    }
}

#[test]
fn a_session_that_dies_in_the_middle() {
    let mut stage = Stage::set();
    for _ in 0..50 {
        let mut short_lived = RawApp::attach(&stage.daemon, "", true);
        let payload = short_lived.blob(&[1; 10_000]);
        let call = short_lived.call(0, Some(payload), true);
        short_lived.submit(Submission::Call(call));
        drop(short_lived);
        let code = stage.bystander.unary(b"still here").code;
        assert!(matches!(code, Code::Ok | Code::Unavailable), "{code}");
    }
    // Only the server, the bystander and the villain are left once the daemon has noticed all the deaths.
    let began = std::time::Instant::now();
    while stage.daemon.observe(&Default::default())[0].snapshot.sessions.len() != 3 {
        assert!(began.elapsed() < WATCHDOG, "dead sessions linger");
        std::thread::yield_now();
    }
    assert_eq!(stage.bystander.unary(b"still here").code, Code::Ok);
}

#[test]
fn control_packets_that_make_no_sense() {
    let stage = Stage::set();
    let refused = |packet: &[u8], says: &str| {
        let control = stage.daemon.connect().unwrap();
        control.send(packet, &[]).unwrap();
        match answer(&control) {
            Answer::Detached(reason) => assert!(reason.contains(says), "{reason:?} does not say {says:?}"),
            _ => panic!("expected a refusal that says {says:?}"),
        }
    };
    refused(&[0xff; 100], "malformed");
    refused(&[8, 1], "names no request");
    let control = stage.daemon.connect().unwrap();
    match attach_on(&control, ABI_VERSION + 1) {
        Answer::Detached(reason) => assert!(reason.contains("ABI version"), "{reason}"),
        _ => panic!("another ABI version was accepted"),
    }
    let control = stage.daemon.connect().unwrap();
    let bind = Bind { descriptor_set_bytes: 0, serves: Vec::new(), calls: Vec::new() };
    send(&control, request::Kind::Bind(bind), None);
    match answer(&control) {
        Answer::Detached(reason) => assert!(reason.contains("before attach"), "{reason}"),
        _ => panic!("a bind before attach was accepted"),
    }
}

/// The limit is the program's, and that of all it starts: some close every descriptor up to it.
#[test]
fn an_engine_inside_a_program_leaves_its_limit_of_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let lower = limit.current.or(limit.maximum).map_or(Some(4096), |most| Some(most - 1));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: lower, ..limit });
    let before = getrlimit(Resource::Nofile);
    assert_ne!(before.current, before.maximum);
    let _daemon = daemon(false);
    assert_eq!(getrlimit(Resource::Nofile), before);
}

/// The admin API is not an engine's: who connects there would wait for ever.
#[test]
fn an_engine_inside_a_program_does_not_listen_for_operators() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let text = format!("[admin]\nlisten = [\"unix:{}\"]\n", path.display());
    let _daemon = Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap();
    assert!(!path.exists());
}

/// Descriptors whose close waits for as long as their sender likes: sockets that linger over what nobody reads.
struct Lingering {
    sockets: Vec<TcpStream>,
    _peers: Vec<TcpStream>,
}

impl Lingering {
    fn new(count: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut sockets, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..count {
            sockets.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            peers.push(listener.accept().unwrap().0);
        }
        for socket in &sockets {
            socket.set_nonblocking(true).unwrap();
            while (&mut &*socket).write(&[0; 65536]).is_ok() {}
            let for_long = Some(Duration::from_secs(100_000));
            rustix::net::sockopt::set_socket_linger(socket, for_long).unwrap();
        }
        Self { sockets, _peers: peers }
    }

    /// Sends all, and keeps none.
    fn send(&mut self, control: &ControlSocket, packet: &[u8]) -> Result<(), ControlError> {
        let fds: Vec<_> = self.sockets.iter().map(AsFd::as_fd).collect();
        let sent = control.send(packet, &fds);
        let sockets = std::mem::take(&mut self.sockets);
        // Where they were not sent, or have been closed there, the last close is this one.
        std::thread::spawn(move || drop(sockets));
        sent
    }
}

/// The last close of a descriptor is its receiver's, and may wait: who sends such stops neither the control thread nor
/// a shard, whether the daemon reads it or not.
#[test]
fn descriptors_whose_close_waits_stop_nobody() {
    let mut stage = Stage::set();
    let bind = Bind { descriptor_set_bytes: 1, serves: Vec::new(), calls: Vec::new() };
    let bind = Request { tag: 1, kind: Some(request::Kind::Bind(bind)) }.encode_to_vec();
    let mut kept = Vec::new();
    // Before it attaches.
    let control = stage.daemon.connect().unwrap();
    let mut lingering = Lingering::new(1);
    lingering.send(&control, &bind).unwrap();
    kept.push(lingering);
    // No memfd, more than one, with what is no request, and unread behind what the session ends with.
    for (count, packet) in [(1, &*bind), (2, &bind), (1, &[0xff; 100]), (8, &bind)] {
        let app = RawApp::attach(&stage.daemon, "", false);
        let mut lingering = Lingering::new(count);
        if count == 8 {
            app.control.send(&[0xff; 100], &[]).unwrap();
        }
        let _ = lingering.send(&app.control, packet);
        kept.push(lingering);
    }
    assert_eq!(stage.bystander.unary(b"still here").code, Code::Ok);
    // Behind all of them for the control thread, and then for the shard.
    let mut late = RawApp::attach(&stage.daemon, "", false);
    assert_eq!(late.unary(b"as well").code, Code::Ok);
}

#[test]
fn descriptor_sets_that_lie() {
    let stage = Stage::set();
    let cases: [(&[u8], u64, &str); 4] = [
        (b"\xff\xff\xff", 3, "descriptor set"),
        (b"", 100, "memfd has 0 bytes"),
        (b"abc", u64::MAX, "must be between"),
        (b"abc", 0, "must be between"),
    ];
    for (set, claimed, says) in cases {
        match bind_on(&stage.villain.control, set, claimed, &[], "") {
            Answer::Bound(bound) => {
                assert!(bound.error.contains(says), "{:?} does not say {says:?}", bound.error)
            }
            _ => panic!("expected an error that says {says:?}"),
        }
    }
    let attach = Attach { abi_version: ABI_VERSION, ..Attach::default() };
    send(&stage.villain.control, request::Kind::Attach(attach), None);
    stage.expect_dismissal("attached already");
}
