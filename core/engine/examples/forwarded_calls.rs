//! Unary calls of a gRPC client that the gateway forwards to a gRPC server, as the engine sees them: events in,
//! commands out, and nothing of HTTP/2. Under callgrind, the difference of two runs is what so many calls took more,
//! with what this program does as their client and server.
//!
//! `forwarded_calls OUTSTANDING CALLS`

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use trunkline_call::Instant;
use trunkline_call::entry::Span;
use trunkline_engine::{CallRights, Dialled, Engine, GrpcKey, Heaps, Limits, PeerIdentity, SessionKey, Turn};
use trunkline_grpc::{Command, Event, StreamTag};

/// A message of 64 bytes behind its prefix, and an answer of nine.
const REQUEST: [u8; 5] = [0, 0, 0, 0, 64];
const ANSWER: [u8; 5] = [0, 0, 0, 0, 9];
const STEP_NS: u64 = 1000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [outstanding, calls] = words.as_slice() else { panic!("two words are expected") };
    let (outstanding, calls): (u64, u64) = (outstanding.parse().unwrap(), calls.parse().unwrap());
    let mut gateway = Gateway::new();
    for _ in 0..calls / outstanding {
        gateway.calls(outstanding);
    }
}

/// An engine, a client at its gateway, and the server it dials.
struct Gateway {
    engine: Engine,
    now: Instant,
    client: GrpcKey,
    server: Option<GrpcKey>,
    streams: u64,
    request: Bytes,
    answer: Bytes,
    answered: u64,
}

impl Gateway {
    fn new() -> Self {
        let mut engine = Engine::new(Limits::default(), "forwarding", 1);
        engine.configure_service("bench.v1.Bench", &["tcp://127.0.0.1:1".to_owned()]).unwrap();
        let client = CallRights { who: "somebody".into(), rules: [].into() };
        let (now, label) = (Instant(1_000_000), "tcp://127.0.0.1:2".to_owned());
        let client = engine.http().accept_at_gateway(label, PeerIdentity::default(), client);
        let of = |prefix: [u8; 5]| Bytes::from([&prefix[..], &vec![7; usize::from(prefix[4])]].concat());
        let (request, answer) = (of(REQUEST), of(ANSWER));
        Self { engine, now, client, server: None, streams: 0, request, answer, answered: 0 }
    }

    /// So many calls at once, to their ends.
    fn calls(&mut self, outstanding: u64) {
        self.answered = 0;
        for _ in 0..outstanding {
            self.streams += 1;
            let stream = StreamTag(self.streams * 2 + 1);
            let (mut head, ()) =
                Request::post("http://host/bench.v1.Bench/Small").body(()).unwrap().into_parts();
            head.headers = headers(&[
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", "grpc-c++/1.51.1 grpc-c/29.0.0 (linux; chttp2)"),
                ("grpc-accept-encoding", "identity, deflate, gzip"),
            ]);
            self.tell(self.client, Event::Request { stream, head: Box::new(head), end: false });
            self.tell(self.client, Event::Data { stream, bytes: self.request.clone(), end: true });
        }
        while self.answered < outstanding {
            assert!(self.step(), "calls are under way that nobody moves");
        }
    }

    fn tell(&mut self, connection: GrpcKey, event: Event) {
        self.now = self.now.plus_ns(STEP_NS);
        let turn = &mut Turn { now: self.now, heaps: &mut Nothing };
        self.engine.handle_http(turn, connection, self.now, event).expect("events are sound");
    }

    /// What the engine has to say is done. Whether there was anything.
    fn step(&mut self) -> bool {
        if let Some(dial) = self.engine.poll_dial() {
            // It is dialled as a daemon, and answers as none.
            let server = match dial.connection {
                Dialled::Grpc(server) => server,
                Dialled::Native(peer) => {
                    self.engine.http().take_dialled(peer, PeerIdentity::default()).expect("it was dialled")
                }
            };
            self.server = Some(server);
            self.tell(server, Event::Ready { streams_max: 1000 });
        }
        let Some((connection, command)) = self.engine.http().poll() else { return false };
        match command {
            Command::Data { stream, bytes, end } => {
                self.tell(connection, Event::Sent { stream, bytes: bytes.len() });
                if end && Some(connection) == self.server {
                    self.answer(connection, stream);
                }
            }
            Command::Trailers { trailers, .. } => {
                assert_eq!(trailers["grpc-status"], "0");
                self.answered += 1;
            }
            Command::CutOff { .. } | Command::Reset { .. } | Command::Close { .. } => {
                panic!("a call failed: {command:?}")
            }
            _ => {}
        }
        true
    }

    fn answer(&mut self, server: GrpcKey, stream: StreamTag) {
        let (mut head, ()) = Response::builder().status(200).body(()).unwrap().into_parts();
        head.headers = headers(&[
            ("content-type", "application/grpc"),
            ("grpc-accept-encoding", "identity, deflate, gzip"),
        ]);
        self.tell(server, Event::Response { stream, head: Box::new(head), end: false });
        self.tell(server, Event::Data { stream, bytes: self.answer.clone(), end: false });
        self.tell(server, Event::Trailers { stream, trailers: headers(&[("grpc-status", "0")]) });
    }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    pairs.iter().map(pair).collect()
}

/// No application is attached.
struct Nothing;

impl Heaps for Nothing {
    fn allocate(&mut self, _: SessionKey, _: u32) -> Option<u32> {
        None
    }

    fn receive_capacity(&self, _: SessionKey) -> u32 {
        0
    }

    fn discard(&mut self, _: SessionKey, _: u32) {}

    fn publish(&mut self, _: SessionKey, _: Span) {}

    fn release(&mut self, _: SessionKey, _: u32) -> Option<u32> {
        None
    }

    fn receive_block(&mut self, _: SessionKey, _: Span) -> &mut [u8] {
        &mut []
    }

    fn send_heap_contains(&self, _: SessionKey, _: Span) -> bool {
        false
    }

    fn seal(&self, _: SessionKey, _: Span, _: &mut Vec<u8>) -> bool {
        false
    }

    fn seal_into(&self, _: SessionKey, _: Span, _: &mut [u8]) -> bool {
        false
    }

    fn copy_across(&mut self, _: SessionKey, _: Span, _: SessionKey, _: u32) -> bool {
        false
    }
}
