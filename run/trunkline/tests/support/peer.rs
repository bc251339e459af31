//! The daemon's end of one session, moved by hand.

use super::WATCHDOG;
use super::text::Text;
use prost::Message as _;
use rustix::fd::AsFd;
use std::time::Instant;
use trunkline::codegen::{AlignedBuf, Message as _};
use trunkline_call::entry::{Call, Completion, FREED_MAX, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Encoding, Execution, RouteIndex};
use trunkline_control::{Attached, Bound, BoundMethod, Reply, decode_request, reply, request};
use trunkline_shm::{ControlSocket, DaemonEnd, SessionConfig, create_session, sleep_on};

pub struct Peer {
    pub end: DaemonEnd,
    pub control: ControlSocket,
    /// Paths of the methods bound, by route.
    pub paths: Vec<String>,
    /// Services this application serves.
    pub serves: Vec<String>,
    pub config: SessionConfig,
}

/// What the stand-in allows.
pub const CALLS_MAX: u32 = 8;
pub const WINDOW_BYTES: u32 = 200;

impl Peer {
    pub fn attach(control: ControlSocket, config: SessionConfig, calls_max: u32) -> Self {
        let mut packet = Vec::new();
        control.recv(&mut packet, 0).unwrap().expect("an attach");
        let (tag, kind) = decode_request(&packet).unwrap();
        assert!(matches!(kind, request::Kind::Attach(_)));
        let (end, fds) = create_session(&config).unwrap();
        let attached = Attached {
            abi_version: trunkline_control::ABI_VERSION,
            session: 1,
            submission_entries: config.submission_entries,
            completion_entries: config.completion_entries,
            send_heap_bytes: config.send_heap_bytes.into(),
            receive_heap_bytes: config.receive_heap_bytes.into(),
            calls_max,
            stream_window_bytes: WINDOW_BYTES,
            node: "stand-in".into(),
            tells_callers: false,
            identity: String::new(),
        };
        let packet = Reply { tag, kind: Some(reply::Kind::Attached(attached)) }.encode_to_vec();
        control.send(&packet, &fds.as_fds()).unwrap();
        control.set_nonblocking(true).unwrap();
        Self { end, control, paths: Vec::new(), serves: Vec::new(), config }
    }

    /// The next submission; control requests that come before it are answered.
    pub fn next(&mut self) -> Submission {
        let until = Instant::now() + WATCHDOG;
        loop {
            if let Some(submission) = self.try_next() {
                return submission;
            }
            assert!(Instant::now() < until, "no submission came");
            self.doze();
        }
    }

    /// The next submission that is not a returned block.
    pub fn next_but_release(&mut self) -> Submission {
        loop {
            match self.next() {
                Submission::Release { block, metadata, .. } => self.take_back(block, metadata),
                other => return other,
            }
        }
    }

    /// A submission that is there already and is not a returned block.
    pub fn try_next_but_release(&mut self) -> Option<Submission> {
        loop {
            match self.try_next()? {
                Submission::Release { block, metadata, .. } => self.take_back(block, metadata),
                other => return Some(other),
            }
        }
    }

    pub fn next_call(&mut self) -> Call {
        match self.next_but_release() {
            Submission::Call(call) => call,
            other => panic!("a call was expected, not {other:?}"),
        }
    }

    pub fn try_next(&mut self) -> Option<Submission> {
        self.answer_control();
        let entry = self.end.submissions.pop().unwrap()?;
        Some(Submission::decode(&entry).unwrap())
    }

    /// Sleeps until the application says something.
    pub fn doze(&mut self) {
        if self.end.submissions.arm().unwrap() {
            let fds = [self.end.own_doorbell.as_fd(), self.control.as_fd()];
            sleep_on(&fds, Some(50_000_000)).unwrap();
            self.end.submissions.disarm();
            self.end.own_doorbell.quiet().unwrap();
        }
    }

    /// Answers `Bind`s: each method gets the next number. `false` when the application has closed the socket.
    pub fn answer_control(&mut self) -> bool {
        let mut packet = Vec::new();
        loop {
            match self.control.recv(&mut packet, 1) {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(error) => return error.would_block(),
            }
            self.answer(&packet);
        }
    }

    /// Answers the next `Bind`, and no other.
    pub fn answer_bind(&mut self) {
        sleep_on(&[self.control.as_fd()], Some(WATCHDOG.as_nanos() as u64)).unwrap();
        let mut packet = Vec::new();
        self.control.recv(&mut packet, 1).unwrap().expect("a bind");
        self.answer(&packet);
    }

    fn answer(&mut self, packet: &[u8]) {
        let (tag, kind) = decode_request(packet).unwrap();
        let request::Kind::Bind(bind) = kind else { panic!("attached twice") };
        let mut bound = Bound::default();
        for call in bind.calls {
            bound.calls.push(self.paths.len() as u32);
            self.paths.push(call.path);
        }
        for service in bind.serves {
            for method in super::ECHO.methods {
                let route = self.paths.len() as u32;
                bound.serves.push(BoundMethod { path: method.path.into(), route });
                self.paths.push(method.path.into());
            }
            self.serves.push(service);
        }
        let packet = Reply { tag, kind: Some(reply::Kind::Bound(bound)) }.encode_to_vec();
        while let Err(error) = self.control.send(&packet, &[]) {
            assert!(error.would_block(), "{error}");
            std::thread::yield_now();
        }
    }

    /// Answers control requests until something was bound.
    pub fn answer_control_until_bound(&mut self) {
        let until = Instant::now() + WATCHDOG;
        while self.paths.is_empty() && self.answer_control() {
            assert!(Instant::now() < until, "nothing was bound");
            self.doze();
        }
    }

    /// Goes on until the application has closed its socket.
    pub fn settle(&mut self) {
        let until = Instant::now() + WATCHDOG;
        while self.answer_control() {
            assert!(Instant::now() < until, "the application does not go");
            std::thread::yield_now();
        }
    }

    /// Refuses the next `Bind`: with PERMISSION_DENIED or RESOURCE_EXHAUSTED for now, with anything else for good.
    pub fn refuse_bind(&mut self, code: Code, why: &str) {
        sleep_on(&[self.control.as_fd()], Some(WATCHDOG.as_nanos() as u64)).unwrap();
        let mut packet = Vec::new();
        self.control.recv(&mut packet, 1).unwrap().expect("a bind");
        let (tag, _) = decode_request(&packet).unwrap();
        let bound = Bound { error: why.into(), code: code.number().into(), ..Bound::default() };
        let packet = Reply { tag, kind: Some(reply::Kind::Bound(bound)) }.encode_to_vec();
        self.control.send(&packet, &[]).unwrap();
    }

    /// Gives the window of a message back at once.
    pub fn credit_back(&mut self, submission: &Submission) {
        if let Submission::Message { call, payload, .. } = *submission {
            self.free(&[payload.span.offset]);
            self.complete(&Completion::Credit { call, bytes: payload.span.len });
        }
    }

    /// Publishes a completion; waits for the application to drain the ring if it is full.
    pub fn complete(&mut self, completion: &Completion) {
        let until = Instant::now() + WATCHDOG;
        while self.end.completions.is_full().unwrap() {
            assert!(Instant::now() < until, "the application does not drain its ring");
            std::thread::yield_now();
        }
        if self.end.completions.push(&completion.encode()).unwrap() {
            self.end.peer_doorbell.ring().unwrap();
        }
    }

    /// A message in the receive heap.
    pub fn put(&mut self, bytes: &[u8]) -> Payload {
        let mut block = self.end.receive_heap.allocate(bytes.len() as u32).expect("room in the receive heap");
        block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let span = block.lend(bytes.len() as u32);
        Payload::new(Span { offset: span.offset, len: span.len }, Encoding::Linear)
    }

    pub fn put_text(&mut self, text: &str) -> Payload {
        let linear = Text::new(text).write_to(AlignedBuf::new()).unwrap();
        self.put(linear.bytes())
    }

    /// A private copy of what lies in the send heap.
    pub fn copy(&self, span: Span) -> Vec<u8> {
        self.end.send_heap.seal(trunkline_shm::Span { offset: span.offset, len: span.len }).unwrap()
    }

    pub fn text(&self, payload: Option<Payload>) -> String {
        let bytes = self.copy(payload.expect("a message").span);
        Text::read(Text::view(&bytes)).text
    }

    /// Ends a call we were asked to carry.
    pub fn finish(&mut self, call: CallId, code: Code, text: Option<&str>) {
        let payload = text.map(|text| self.put_text(text));
        self.complete(&Completion::Finish(finish(call, code, payload)));
    }

    /// Returns send blocks.
    pub fn free(&mut self, blocks: &[u32]) {
        for some in blocks.chunks(FREED_MAX) {
            let mut offsets = [0; FREED_MAX];
            offsets[..some.len()].copy_from_slice(some);
            self.complete(&Completion::Freed { offsets });
        }
    }

    /// Takes returned receive blocks back.
    pub fn take_back(&mut self, block: Span, metadata: Span) {
        for span in [block, metadata].into_iter().filter(|span| span.len > 0) {
            self.end.receive_heap.free(span.offset).expect("a block that was handed out");
        }
    }

    pub fn route_of(&self, path: &str) -> Option<RouteIndex> {
        self.paths.iter().position(|known| known == path).map(|route| RouteIndex(route as u32))
    }
}

pub fn finish(call: CallId, code: Code, payload: Option<Payload>) -> Finish {
    let zero = trunkline_call::Instant(0);
    Finish {
        call,
        code,
        execution: Execution::Executed,
        payload,
        metadata: Span::default(),
        taken: zero,
        published: zero,
        cpu_ns: 0,
        subtree: 0,
    }
}
