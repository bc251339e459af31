//! An application made of nothing but the ABI: control packets, rings and heaps. What a hostile one can do, it can do.

#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

mod capture;
mod grpc_server;
mod keys;

pub use capture::{captured, http2_kinds};
pub use grpc_server::{GrpcServer, note_names};
pub use keys::Keys;
use prost::Message;
use rustix::fd::AsFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::time::{Duration, Instant};
use trunkline_call::entry::{Call, Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Encoding, Execution, Instant as Stamp, RouteIndex};
use trunkline_control::{
    ABI_VERSION, Attach, Bind, Bound, CallMethod, Request, decode_reply, reply, request,
};
use trunkline_daemon::Daemon;
use trunkline_schema::Schema;
use trunkline_shm::{
    AppEnd, ControlSocket, SESSION_FDS, SessionConfig, SessionFds, WaitLimits, Waiter, Woken, monotonic_ns,
    open_session, wait_for_entries,
};

/// The service of these tests; payloads travel as protobuf, so that no builder is needed.
pub const PROTO: &str = r#"
syntax = "proto3";
package raw;
message Blob { bytes data = 1; string text = 2; }
service Echo { rpc Once(Blob) returns (Blob); rpc Chat(stream Blob) returns (stream Blob); }
"#;

/// How long a test waits for anything before it calls it lost.
pub const WATCHDOG: Duration = Duration::from_secs(120);

/// An attached application.
pub struct RawApp {
    pub control: ControlSocket,
    pub end: AppEnd,
    pub calls: Vec<RouteIndex>,
    pub serves: Vec<RouteIndex>,
    next_call: u64,
}

/// What a control exchange ended in.
pub enum Answer {
    Attached(Box<AppEnd>),
    Bound(Bound),
    Detached(String),
}

impl RawApp {
    /// Attaches and binds. `target` as in `CallMethod`.
    pub fn attach(daemon: &Daemon, target: &str, serves: bool) -> Self {
        Self::attach_as(daemon, "raw", target, serves)
    }

    /// The same under another name.
    pub fn attach_as(daemon: &Daemon, name: &str, target: &str, serves: bool) -> Self {
        trunkline_test_logs::watch();
        let control = daemon.connect().unwrap();
        let attach = Attach { abi_version: ABI_VERSION, name: name.into(), ..Attach::default() };
        send(&control, request::Kind::Attach(attach), None);
        let end = match answer(&control) {
            Answer::Attached(end) => *end,
            Answer::Bound(_) => panic!("bound before attached"),
            Answer::Detached(reason) => panic!("detached: {reason}"),
        };
        let mut app = Self { control, end, calls: Vec::new(), serves: Vec::new(), next_call: 1 };
        let set = Schema::from_proto_source("raw.proto", PROTO).unwrap().descriptor_set().to_vec();
        let services = if serves { vec!["raw.Echo"] } else { Vec::new() };
        let bound = match bind_on(&app.control, &set, set.len() as u64, &services, target) {
            Answer::Bound(bound) => bound,
            _ => panic!("bind was not answered"),
        };
        assert_eq!(bound.error, "");
        app.calls = bound.calls.into_iter().map(RouteIndex).collect();
        app.serves = bound.serves.into_iter().map(|method| RouteIndex(method.route)).collect();
        app
    }

    /// Sends an entry and rings.
    pub fn submit(&mut self, submission: Submission) {
        self.submit_raw(&submission.encode());
    }

    pub fn submit_raw(&mut self, entry: &[u64; 8]) {
        let began = Instant::now();
        loop {
            match self.end.submissions.push(entry) {
                Ok(true) => return self.end.peer_doorbell.ring().unwrap(),
                Ok(false) => return,
                Err(_) if began.elapsed() < WATCHDOG => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next completion that is not a return of send blocks.
    pub fn next(&mut self) -> Completion {
        self.next_within(WATCHDOG).expect("no completion came")
    }

    /// The next delivered call, as its completion; what else comes is forgotten. Something else if nothing came.
    pub fn next_call(&mut self) -> Completion {
        loop {
            match self.next_within(WATCHDOG) {
                Some(call @ Completion::Call(_)) => return call,
                Some(_) => {}
                None => return Completion::Drained,
            }
        }
    }

    pub fn next_within(&mut self, patience: Duration) -> Option<Completion> {
        let until_ns = monotonic_ns() + patience.as_nanos() as u64;
        // Sleeps when nothing comes: tests run side by side on few cores.
        let mut waiter = Waiter::new(WaitLimits::of_this_process());
        loop {
            if let Some(entry) = self.end.completions.pop().unwrap() {
                match Completion::decode(&entry).unwrap() {
                    Completion::Freed { offsets } => self.take_back(&offsets),
                    completion => return Some(completion),
                }
                continue;
            }
            let (ring, bell) = (&mut self.end.completions, &self.end.own_doorbell);
            if wait_for_entries(ring, bell, &[], &mut waiter, Some(until_ns)).unwrap() == Woken::TimedOut {
                return None;
            }
        }
    }

    fn take_back(&mut self, offsets: &[u32]) {
        for offset in offsets.iter().filter(|offset| **offset != 0) {
            self.end.send_heap.free(*offset).expect("the daemon returns what it was lent");
        }
    }

    /// `Blob { data }` in the send heap.
    pub fn blob(&mut self, data: &[u8]) -> Payload {
        let mut wire = Vec::new();
        prost::encoding::bytes::encode(1, &data.to_vec(), &mut wire);
        self.bytes(&wire, Encoding::Protobuf)
    }

    pub fn bytes(&mut self, bytes: &[u8], encoding: Encoding) -> Payload {
        let mut block = self.end.send_heap.allocate(bytes.len().max(1) as u32).unwrap();
        block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let span = block.lend(bytes.len() as u32);
        Payload::new(Span { offset: span.offset, len: span.len }, encoding)
    }

    pub fn call(&mut self, method: usize, payload: Option<Payload>, end: bool) -> Call {
        self.next_call += 1;
        Call {
            route: self.calls[method],
            call: CallId(self.next_call),
            payload,
            metadata: Span::default(),
            end,
            wait_for_ready: false,
            deadline: Deadline::NONE,
            entered: Stamp(1),
            published: Stamp(1),
            parent: CallId(0),
        }
    }

    /// Answers the next delivered call with its own bytes; anything else is taken and forgotten. `false`: nothing came.
    pub fn echo_once(&mut self) -> bool {
        let Some(completion) = self.next_within(WATCHDOG) else { return false };
        let Completion::Call(call) = completion else { return true };
        self.echo(&call);
        true
    }

    /// Answers a call with what it came with.
    pub fn echo(&mut self, call: &Call) {
        let block = call.payload.map_or(Span::default(), |payload| payload.span);
        let data = call.payload.map(|payload| self.received(payload));
        self.submit(Submission::Release { call: call.call, block, metadata: call.metadata, a18: Stamp(0) });
        let reply = data.map(|data| self.bytes(&data, Encoding::Linear));
        self.submit(Submission::Finish(finish(call.call, Code::Ok, reply)));
    }

    pub fn received(&self, payload: Payload) -> Vec<u8> {
        let span = trunkline_shm::Span { offset: payload.span.offset, len: payload.span.len };
        let block = self.end.receive_heap.block(span).unwrap();
        let bytes = block.to_vec();
        let _ = block.into_span();
        bytes
    }

    /// A whole unary call.
    pub fn unary(&mut self, data: &[u8]) -> Finish {
        self.unary_told(data).0
    }

    /// The same with what its metadata says.
    pub fn unary_told(&mut self, data: &[u8]) -> (Finish, String) {
        let payload = self.blob(data);
        let call = self.call(0, Some(payload), true);
        self.submit(Submission::Call(call));
        let Completion::Finish(finish) = self.next() else { panic!("a unary call ends in a finish") };
        assert_eq!(finish.call, call.call);
        let told = match finish.metadata {
            Span { len: 0, .. } => Vec::new(),
            span => self.received(Payload::new(span, Encoding::Protobuf)),
        };
        let block = finish.payload.map_or(Span::default(), |payload| payload.span);
        let release =
            Submission::Release { call: finish.call, block, metadata: finish.metadata, a18: Stamp(9) };
        self.submit(release);
        (finish, String::from_utf8_lossy(&told).into_owned())
    }

    /// The same with a message that may have to wait until the ones before it are given back.
    pub fn unary_of(&mut self, data: &[u8]) -> Finish {
        let until = Instant::now() + WATCHDOG;
        while self.end.send_heap.largest_free() < data.len() as u32 + 4096 {
            assert!(Instant::now() < until, "send blocks do not come back");
            assert_eq!(self.next_within(Duration::from_millis(1)), None, "only returns are due");
        }
        self.unary(data)
    }

    /// Why the daemon dismissed this application.
    pub fn dismissal(&self) -> String {
        match answer(&self.control) {
            Answer::Detached(reason) => reason,
            _ => panic!("expected to be detached"),
        }
    }
}

/// Sends `Attach` and reads the answer.
pub fn attach_on(control: &ControlSocket, abi_version: u32) -> Answer {
    let attach = Attach { abi_version, name: "raw".into(), ..Attach::default() };
    send(control, request::Kind::Attach(attach), None);
    answer(control)
}

/// Sends `Bind` with a memfd of these bytes and reads the answer.
pub fn bind_on(
    control: &ControlSocket,
    set: &[u8],
    claimed_bytes: u64,
    serves: &[&str],
    target: &str,
) -> Answer {
    let call = |name: &str| CallMethod { path: format!("/raw.Echo/{name}"), target: target.to_owned() };
    bind_as(control, set, claimed_bytes, serves, vec![call("Once"), call("Chat")])
}

/// The same without calls.
pub fn serve_on(control: &ControlSocket, set: &[u8], serves: &[&str]) -> Answer {
    bind_as(control, set, set.len() as u64, serves, Vec::new())
}

fn bind_as(
    control: &ControlSocket,
    set: &[u8],
    claimed_bytes: u64,
    serves: &[&str],
    calls: Vec<CallMethod>,
) -> Answer {
    let memfd = memfd_create("set", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    assert_eq!(rustix::io::write(&memfd, set).unwrap(), set.len());
    fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
    let serves = serves.iter().map(|name| (*name).to_owned()).collect();
    let bind = Bind { descriptor_set_bytes: claimed_bytes, serves, calls };
    send(control, request::Kind::Bind(bind), Some(&memfd));
    answer(control)
}

pub fn send(control: &ControlSocket, kind: request::Kind, fd: Option<&rustix::fd::OwnedFd>) {
    let packet = Request { tag: 1, kind: Some(kind) }.encode_to_vec();
    let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
    match control.send(&packet, &fds) {
        // It has refused and closed already: the answer that lies there says why.
        Err(error) if error.is_closed() => {}
        sent => sent.unwrap(),
    }
}

pub fn answer(control: &ControlSocket) -> Answer {
    let mut packet = Vec::new();
    let fds = control.recv(&mut packet, SESSION_FDS).unwrap().expect("an answer before the end");
    match decode_reply(&packet).unwrap().1 {
        reply::Kind::Attached(attached) => {
            let config = SessionConfig {
                submission_entries: attached.submission_entries,
                completion_entries: attached.completion_entries,
                send_heap_bytes: attached.send_heap_bytes as u32,
                receive_heap_bytes: attached.receive_heap_bytes as u32,
            };
            let fds = SessionFds::from_fds(fds).unwrap();
            Answer::Attached(Box::new(open_session(fds, &config).unwrap()))
        }
        reply::Kind::Bound(bound) => Answer::Bound(bound),
        reply::Kind::Detached(detached) => Answer::Detached(detached.reason),
        reply::Kind::Moved(_) => panic!("nobody has replaced the daemon"),
    }
}

pub fn finish(call: CallId, code: Code, payload: Option<Payload>) -> Finish {
    Finish {
        call,
        code,
        execution: Execution::Executed,
        payload,
        metadata: Span::default(),
        taken: Stamp(1),
        published: Stamp(1),
        cpu_ns: 0,
        subtree: 0,
    }
}

/// Serves unary calls from a thread until the application is detached or the test ends.
pub fn echo_in_thread(mut server: RawApp) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || while server.echo_once() {})
}
