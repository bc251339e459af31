//! Shows that floods, endless things and bad manners end one connection with a reason the peer can read, and that good
//! manners are kept: pings, age, GOAWAY. Raw bytes speak where no proper client would.

use crate::ends;

use bytes::Bytes;
use ends::{End, WATCHDOG, own, pair, request, response, streams, trailers, until};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant as Clock;
use trunkline_call::Instant;
use trunkline_grpc::{Command, Event, Reason, StreamTag};
use trunkline_net::{
    AgeSettings, Buffers, Http2, Http2Settings, KeepaliveSettings, PingSettings, Rate, State, Stream,
    Transfer,
};

const SECOND_NS: u64 = 1_000_000_000;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `POST http://localhost/a.B/C` from the static table (RFC 7541, appendix A) and one literal.
const HEAD: &[u8] = b"\x83\x86\x44\x06/a.B/C\x41\x09localhost";

/// A server, and a socket that says whatever it likes.
struct Raw {
    server: Option<Http2>,
    closing: Option<trunkline_net::LingeringClose>,
    socket: Stream,
    buffers: Buffers,
    events: Vec<Event>,
    heard: Vec<u8>,
    over: Option<trunkline_net::Ended>,
    closed: bool,
    now: Instant,
    most_open: usize,
}

impl Raw {
    fn new(settings: Http2Settings) -> Self {
        let (server, socket) = streams();
        let mut raw = Self {
            server: Some(Http2::server(server, Arc::new(settings), Instant(0), &[], 0)),
            closing: None,
            socket,
            buffers: Buffers::new(),
            events: Vec::new(),
            heard: Vec::new(),
            over: None,
            closed: false,
            now: Instant(0),
            most_open: 0,
        };
        raw.say(PREFACE);
        raw.say(&frame(SETTINGS, 0, 0, &[]));
        raw
    }

    /// Says it as fast as the server listens.
    fn say(&mut self, mut bytes: &[u8]) {
        let until = Clock::now() + WATCHDOG;
        while !bytes.is_empty() {
            match self.socket.write_vectored(&[IoSlice::new(bytes)]) {
                Ok(Transfer::Bytes(count)) => bytes = &bytes[count..],
                Ok(_) => {}
                Err(_) => return,
            }
            self.turn();
            assert!(Clock::now() < until, "the server does not listen");
        }
    }

    fn turn(&mut self) {
        if let Some(server) = &mut self.server {
            server.handle_readable();
            match server.turn(self.now, &mut self.buffers, &mut self.events) {
                State::Over(ended) => {
                    self.over = Some(ended);
                    self.closing = self.server.take().map(|server| server.into_lingering_close(self.now));
                }
                State::Open | State::More => self.most_open = self.most_open.max(server.streams_open()),
            }
        }
        if self.closing.as_mut().is_some_and(|closing| closing.turn(self.now, &mut self.buffers)) {
            self.closing = None;
        }
        let mut buffer = [0; 4096];
        match self.socket.read(&mut buffer) {
            Ok(Transfer::Bytes(count)) => self.heard.extend_from_slice(&buffer[..count]),
            Ok(Transfer::NotReady) => {}
            Ok(Transfer::Ended) | Err(_) => self.closed = true,
        }
    }

    /// Turns until the server has closed the connection; what its GOAWAY said.
    fn goaway(&mut self) -> (Reason, String) {
        let until = Clock::now() + WATCHDOG;
        while !self.closed {
            self.turn();
            assert!(Clock::now() < until, "still open; heard {:?}", frames(&self.heard));
        }
        let frames = frames(&self.heard);
        let (_, payload) = frames.iter().rfind(|(kind, _)| *kind == GOAWAY).expect("a GOAWAY");
        let code = u32::from_be_bytes(payload[4..8].try_into().unwrap());
        (Reason(code), String::from_utf8_lossy(&payload[8..]).into_owned())
    }

    /// Turns until so many requests have come; their streams.
    fn requests(&mut self, count: usize) -> Vec<StreamTag> {
        let until = Clock::now() + WATCHDOG;
        loop {
            let requests = self.events.iter().filter_map(|event| match event {
                Event::Request { stream, .. } => Some(*stream),
                _ => None,
            });
            let streams: Vec<_> = requests.collect();
            if streams.len() == count {
                return streams;
            }
            self.turn();
            let came = streams.len();
            assert!(self.over.is_none() && Clock::now() < until, "{came} of {count}, {:?}", self.over);
        }
    }

    /// Turns until the server has sent a frame of that kind.
    fn hears(&mut self, wanted: u8) {
        let until = Clock::now() + WATCHDOG;
        while !frames(&self.heard).iter().any(|(kind, _)| *kind == wanted) {
            self.turn();
            assert!(Clock::now() < until, "not heard: {wanted}");
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while bytes.len() >= 9 {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        if bytes.len() < 9 + length {
            break;
        }
        found.push((bytes[3], bytes[9..9 + length].to_vec()));
        bytes = &bytes[9 + length..];
    }
    found
}

fn times(count: u32, one: impl FnMut(u32) -> Vec<u8>) -> Vec<u8> {
    (0..count).flat_map(one).collect()
}

#[test]
fn floods_of_idle_frames_end_in_calm() {
    for one in [
        frame(SETTINGS, 0, 0, &[]),
        frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 7]),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(0xfa, 0, 0, b"unknown"),
    ] {
        let mut raw = Raw::new(Http2Settings::server());
        raw.say(&times(2000, |_| one.clone()));
        assert_eq!(raw.goaway(), (Reason::ENHANCE_YOUR_CALM, "too_many_idle_frames".into()));
    }
}

#[test]
fn a_flood_of_pings_ends_in_calm() {
    let mut raw = Raw::new(Http2Settings::server());
    raw.say(&times(2000, |_| frame(PING, 0, 0, &[7; 8])));
    let (reason, _) = raw.goaway();
    assert_eq!(reason, Reason::ENHANCE_YOUR_CALM);
}

#[test]
fn empty_data_ends_in_calm() {
    let mut raw = Raw::new(Http2Settings::server());
    raw.say(&frame(HEADERS, END_HEADERS, 1, HEAD));
    raw.say(&times(2000, |_| frame(DATA, 0, 1, &[])));
    assert_eq!(raw.goaway(), (Reason::ENHANCE_YOUR_CALM, "too_many_idle_frames".into()));
}

/// Some stacks flush an empty frame now and then: no number of them ends a connection, as long as they are slow.
#[test]
fn empty_data_now_and_then_is_borne() {
    let mut raw = Raw::new(Http2Settings::server());
    raw.say(&frame(HEADERS, END_HEADERS, 1, HEAD));
    for number in 1..=1500 {
        raw.now = Instant(number * SECOND_NS / 10);
        raw.say(&frame(DATA, 0, 1, &[]));
        assert_eq!(raw.over, None, "at {number}");
    }
    raw.say(&frame(DATA, 0, 1, b"body"));
    let until = Clock::now() + WATCHDOG;
    while !raw.events.iter().any(|event| matches!(event, Event::Data { .. })) {
        raw.turn();
        assert!(raw.over.is_none() && Clock::now() < until, "{:?}", raw.over);
    }
    // No stream has been opened by that number.
    raw.say(&frame(DATA, 0, 5, &[]));
    assert_eq!(raw.goaway().0, Reason::PROTOCOL_ERROR);
}

/// What comes on a stream that was ended here costs its connection nothing, however many small frames that are.
#[test]
fn small_frames_on_streams_that_were_ended_are_borne() {
    let mut raw = Raw::new(Http2Settings::server());
    raw.say(&frame(HEADERS, END_HEADERS, 1, HEAD));
    let stream = raw.requests(1)[0];
    raw.server.as_mut().unwrap().command(Command::Reset { stream, reason: Reason::CANCEL });
    raw.say(&frame(DATA, 0, 1, b"x").repeat(140_000));
    assert_eq!(raw.over, None);
    raw.say(&frame(HEADERS, END_HEADERS | END_STREAM, 3, HEAD));
    raw.requests(2);
}

/// Opening and resetting at once, as in CVE-2023-44487.
#[test]
fn rapid_resets_end_in_calm() {
    let mut raw =
        Raw::new(Http2Settings { resets: Rate { burst: 200, per_second: 1 }, ..Http2Settings::server() });
    raw.say(&times(5000, |number| {
        let stream = 2 * number + 1;
        let mut both = frame(HEADERS, END_HEADERS | END_STREAM, stream, HEAD);
        both.extend(frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
        both
    }));
    assert_eq!(raw.goaway(), (Reason::ENHANCE_YOUR_CALM, "too_many_resets".into()));
    let opened = raw.events.iter().filter(|event| matches!(event, Event::Request { .. })).count();
    assert!(opened <= 402, "{opened} calls were begun");
}

/// Making the server reset, by breaking the rules of a stream just opened, as in CVE-2025-8671.
#[test]
fn resets_that_are_provoked_end_in_calm() {
    let mut raw =
        Raw::new(Http2Settings { resets: Rate { burst: 200, per_second: 1 }, ..Http2Settings::server() });
    for number in 0..5000 {
        let stream = 2 * number + 1;
        raw.say(&frame(HEADERS, END_HEADERS, stream, HEAD));
        raw.say(&frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff]));
        if raw.over.is_some() {
            break;
        }
    }
    assert_eq!(raw.goaway(), (Reason::ENHANCE_YOUR_CALM, "too_many_resets".into()));
    let opened = raw.events.iter().filter(|event| matches!(event, Event::Request { .. })).count();
    assert!(opened <= 402, "{opened} calls were begun");
}

/// Trailers with a pseudo-header are no trailers (RFC 9113, section 8.1), and others are.
#[test]
fn pseudo_headers_in_trailers_are_told() {
    for (block, is_sound) in
        [(&b"\x83"[..], false), (b"\x00\x05:path\x02/x", false), (b"\x00\x01a\x01b", true)]
    {
        let mut raw = Raw::new(Http2Settings::server());
        raw.say(&frame(HEADERS, END_HEADERS, 1, HEAD));
        raw.say(&frame(DATA, 0, 1, b"body"));
        raw.say(&frame(HEADERS, END_HEADERS | END_STREAM, 1, block));
        if is_sound {
            let until = Clock::now() + WATCHDOG;
            while !raw.events.iter().any(|event| matches!(event, Event::Trailers { .. })) {
                raw.turn();
                assert!(Clock::now() < until, "trailers are read");
            }
        } else {
            assert_eq!(raw.goaway(), (Reason::PROTOCOL_ERROR, "pseudo_header_in_trailers".into()));
            assert!(raw.events.iter().all(|event| !matches!(event, Event::Trailers { .. })));
        }
    }
}

/// A client that resets more than it may is asked to go: what else it has under way is answered.
#[test]
fn too_many_resets_leave_other_calls_alone() {
    let mut raw =
        Raw::new(Http2Settings { resets: Rate { burst: 200, per_second: 1 }, ..Http2Settings::server() });
    raw.say(&frame(HEADERS, END_HEADERS | END_STREAM, 1, HEAD));
    for number in 1..=250 {
        raw.say(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, HEAD));
        raw.say(&frame(RST_STREAM, 0, 2 * number + 1, &8u32.to_be_bytes()));
    }
    raw.hears(GOAWAY);
    assert_eq!(raw.over, None);
    let first = raw.events.iter().find_map(|event| match event {
        Event::Request { stream, .. } => Some(*stream),
        _ => None,
    });
    let server = raw.server.as_mut().unwrap();
    server.command(Command::Response { stream: first.unwrap(), head: response(), end: true });
    raw.hears(HEADERS);
}

/// A header block that never ends, in full frames and in empty ones.
#[test]
fn endless_headers_end() {
    for piece in [&[0x40, 1, b'a', 1, b'b'].repeat(3000)[..], b""] {
        let mut raw = Raw::new(Http2Settings::server());
        raw.say(&frame(HEADERS, 0, 1, HEAD));
        raw.say(&times(3000, |_| frame(CONTINUATION, 0, 1, piece)));
        let (reason, why) = raw.goaway();
        assert_eq!(reason, Reason::ENHANCE_YOUR_CALM, "{why}");
    }
}

/// A few bytes that stand for many: one large entry of the dynamic table, named over and over.
#[test]
fn a_header_bomb_is_refused() {
    let mut raw = Raw::new(Http2Settings::server());
    let mut block = HEAD.to_vec();
    block.extend([0x40, 1, b'x', 0x7f, 0xa1, 0x1e]);
    block.extend([b'v'; 4000]);
    block.extend([0xbe; 10_000]);
    raw.say(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
    let (reason, why) = raw.goaway();
    assert_eq!(reason, Reason::ENHANCE_YOUR_CALM, "{why}");
    assert!(raw.events.iter().all(|event| !matches!(event, Event::Request { .. })));
}

/// More than the limit, and not by far: one call's trouble, answered.
#[test]
fn a_large_header_list_is_answered() {
    let settings = Http2Settings { header_list_bytes_max: 16 << 10, ..Http2Settings::server() };
    let mut raw = Raw::new(settings);
    let mut block = HEAD.to_vec();
    for _ in 0..5 {
        block.extend([0x00, 1, b'x', 0x7f, 0xa1, 0x1e]);
        block.extend([b'v'; 4000]);
    }
    let (first, rest) = block.split_at(16_000);
    raw.say(&frame(HEADERS, END_STREAM, 1, first));
    raw.say(&frame(CONTINUATION, END_HEADERS, 1, rest));
    raw.hears(HEADERS);
    raw.say(&frame(HEADERS, END_HEADERS | END_STREAM, 3, HEAD));
    let until = Clock::now() + WATCHDOG;
    while !raw.events.iter().any(|event| matches!(event, Event::Request { .. })) {
        raw.turn();
        assert!(Clock::now() < until, "the connection goes on");
    }
}

#[test]
fn more_streams_than_allowed_are_refused() {
    let mut raw = Raw::new(Http2Settings { streams_max: 10, ..Http2Settings::server() });
    raw.say(&frame(SETTINGS, 1, 0, &[]));
    raw.say(&times(50, |number| frame(HEADERS, END_HEADERS, 2 * number + 1, HEAD)));
    raw.hears(RST_STREAM);
    assert_eq!(raw.most_open, 10);
    let refused: Vec<_> = frames(&raw.heard).into_iter().filter(|(kind, _)| *kind == RST_STREAM).collect();
    assert!(refused.iter().all(|(_, payload)| payload[..] == 7u32.to_be_bytes()), "REFUSED_STREAM");
}

/// A peer that never gives credit holds nothing here beyond what was handed ahead.
#[test]
fn a_window_that_never_opens_holds_little() {
    let mut raw = Raw::new(Http2Settings::server());
    raw.say(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    raw.say(&frame(HEADERS, END_HEADERS | END_STREAM, 1, HEAD));
    let until = Clock::now() + WATCHDOG;
    let stream = loop {
        raw.turn();
        let found = raw.events.iter().find_map(|event| match event {
            Event::Request { stream, .. } => Some(*stream),
            _ => None,
        });
        if let Some(stream) = found {
            break stream;
        }
        assert!(Clock::now() < until);
    };
    let server = raw.server.as_mut().unwrap();
    server.command(Command::Response { stream, head: response(), end: false });
    server.command(Command::Data { stream, bytes: Bytes::from(vec![0; 1 << 20]), end: true });
    for _ in 0..100 {
        raw.turn();
    }
    assert!(raw.events.iter().all(|event| !matches!(event, Event::Sent { .. })), "nothing has left");
}

/// A server with so many requests of a client that takes everything and then does not read.
fn unread(requests: u32) -> (Raw, Vec<StreamTag>) {
    let mut raw = Raw::new(Http2Settings::server());
    raw.say(&frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    raw.say(&frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes()));
    raw.say(&times(requests, |number| frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, HEAD)));
    let streams = raw.requests(requests as usize);
    for stream in &streams {
        let head = Command::Response { stream: *stream, head: response(), end: false };
        raw.server.as_mut().unwrap().command(head);
    }
    (raw, streams)
}

/// A body of so many bytes, and what says whether its memory is still there.
fn body(bytes: usize) -> (Bytes, std::sync::Weak<Vec<u8>>) {
    struct Body(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Body {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let body = Arc::new(vec![7; bytes]);
    let alive = Arc::downgrade(&body);
    (Bytes::from_owner(Body(body)), alive)
}

/// What is told as sent is at the socket, however large the windows are: until then somebody answers for its memory.
/// And what is cut off meanwhile leaves no memory behind, for a part of it may be all that keeps a large answer.
#[test]
fn what_no_socket_has_taken_has_not_left() {
    let (mut raw, streams) = unread(200);
    let (mut server, mut alive) = (raw.server.take().unwrap(), Vec::new());
    for stream in &streams {
        let (bytes, is_alive) = body(1 << 20);
        alive.push(is_alive);
        server.command(Command::Data { stream: *stream, bytes, end: false });
    }
    let (mut buffers, mut events) = (Buffers::new(), Vec::new());
    (0..200).for_each(|_| _ = server.turn(Instant(0), &mut buffers, &mut events));
    let sent: usize =
        events.iter().map(|event| if let Event::Sent { bytes, .. } = event { *bytes } else { 0 }).sum();
    // What a socket takes unread is some megabytes.
    assert!(sent > 0 && sent < 20 << 20, "{sent}");
    for stream in streams {
        server.command(Command::CutOff { stream, trailers: trailers() });
    }
    (0..200).for_each(|_| _ = server.turn(Instant(0), &mut buffers, &mut events));
    let alive = alive.iter().filter(|body| body.strong_count() > 0).count();
    assert!(alive <= 1, "{alive} of 200 are kept");
    assert_eq!(server.streams_open(), 0);
}

/// A stream is over when its last byte is at the socket, and a connection that leaves waits for that, however slowly
/// its client reads. What the kernel has then still arrives.
#[test]
fn an_answer_to_a_slow_reader_comes_whole_though_its_connection_leaves() {
    const ANSWER_BYTES: usize = 12 << 20;
    let (mut raw, streams) = unread(1);
    let (bytes, _) = body(ANSWER_BYTES);
    let server = raw.server.as_mut().unwrap();
    server.command(Command::Data { stream: streams[0], bytes, end: true });
    server.command(Command::GoAway);
    let until = Clock::now() + WATCHDOG;
    while raw.heard.len() < ANSWER_BYTES {
        let before = raw.heard.len();
        raw.turn();
        if raw.heard.len() > before {
            raw.now = raw.now.plus_ns(SECOND_NS);
        }
        let heard = raw.heard.len();
        assert!(!raw.closed && Clock::now() < until, "{heard} bytes, {:?}", raw.over);
    }
    let data = |heard: &[u8]| {
        let all = frames(heard).into_iter().filter(|(kind, _)| *kind == DATA);
        all.map(|(_, payload)| payload.len()).sum::<usize>()
    };
    // Frames have heads, so the last is still to come.
    while data(&raw.heard) < ANSWER_BYTES {
        raw.turn();
        assert!(!raw.closed && Clock::now() < until);
    }
    assert_eq!(data(&raw.heard), ANSWER_BYTES);
    while raw.over.is_none() {
        raw.now = raw.now.plus_ns(SECOND_NS);
        raw.turn();
        assert!(Clock::now() < until, "it ends when it is left alone");
    }
}

/// A frame, or a preface, that is begun and never ended.
#[test]
fn what_is_never_finished_is_given_up() {
    let settings = Http2Settings::server();
    for begun in [&frame(DATA, 0, 1, &[0; 100])[..50], &frame(HEADERS, 0, 1, HEAD)[..]] {
        let mut raw = Raw::new(settings.clone());
        raw.say(begun);
        (0..10).for_each(|_| raw.turn());
        assert_eq!(raw.over, None);
        raw.now = Instant(settings.unfinished_ns_max + 1);
        assert_eq!(raw.goaway(), (Reason::PROTOCOL_ERROR, "frame_not_finished_in_time".into()));
    }
}

/// A byte now and then is no way to have a frame for ever.
#[test]
fn what_comes_a_byte_at_a_time_is_given_up() {
    let settings = Http2Settings::server();
    let mut raw = Raw::new(settings.clone());
    raw.say(&frame(DATA, 0, 1, &[0; 100])[..50]);
    (0..10).for_each(|_| raw.turn());
    for times in 1..=2 {
        assert_eq!(raw.over, None, "{times}");
        raw.socket.write_vectored(&[IoSlice::new(&[0])]).unwrap();
        raw.now = Instant(times * (settings.unfinished_ns_max + 1));
        raw.turn();
    }
    assert_eq!(raw.goaway(), (Reason::PROTOCOL_ERROR, "frame_not_finished_in_time".into()));
}

/// A thread that was away for longer than a frame may take reads what lies in the socket before it judges.
#[test]
fn what_came_while_nobody_read_was_in_time() {
    let settings = Http2Settings::server();
    let mut raw = Raw::new(settings.clone());
    let ping = frame(PING, 0, 0, &[7; 8]);
    raw.say(&ping[..12]);
    let (server, mut buffers, mut events) = (raw.server.as_mut().unwrap(), Buffers::new(), Vec::new());
    raw.socket.write_vectored(&[IoSlice::new(&ping[12..])]).unwrap();
    // Its timer is due, and the poller has not been asked yet.
    let late = Instant(settings.unfinished_ns_max + 1);
    let state = server.turn(late, &mut buffers, &mut events);
    assert!(!matches!(state, State::Over(_)), "{state:?}");
    raw.now = late;
    raw.hears(PING);
    assert_eq!(raw.over, None);
}

/// A frame whose rest is not read, because the client takes nothing, is not late.
#[test]
fn time_in_which_nothing_is_read_does_not_count() {
    let settings = Http2Settings::server();
    let mut raw = Raw::new(settings.clone());
    raw.say(&frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    raw.say(&frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes()));
    raw.say(&frame(HEADERS, END_HEADERS, 1, HEAD));
    let until = Clock::now() + WATCHDOG;
    let stream = loop {
        raw.turn();
        let opened = raw.events.iter().find_map(|event| match event {
            Event::Request { stream, .. } => Some(*stream),
            _ => None,
        });
        if let Some(stream) = opened {
            break stream;
        }
        assert!(Clock::now() < until, "no request");
    };
    let (mut buffers, mut events) = (Buffers::new(), Vec::new());
    let mut server = raw.server.take().unwrap();
    server.command(Command::Response { stream, head: response(), end: false });
    let bytes = Bytes::from(vec![0; 32 << 20]);
    server.command(Command::Data { stream, bytes, end: true });
    while server.turn(Instant(0), &mut buffers, &mut events) == State::More {}
    // More frames than may wait for their answers. Each write ends within one.
    let one = frame(DATA, 0, 1, &[7]);
    let (begun, rest) = one.split_at(5);
    let many = [rest, &one.repeat(500), begun].concat();
    raw.socket.write_vectored(&[IoSlice::new(begun)]).unwrap();
    while server.interest() != trunkline_net::Interest::Write {
        raw.socket.write_vectored(&[IoSlice::new(&many)]).unwrap();
        server.handle_readable();
        let state = server.turn(Instant(0), &mut buffers, &mut events);
        assert!(!matches!(state, State::Over(_)) && Clock::now() < until, "{state:?}");
    }
    let late = Instant(settings.unfinished_ns_max + 1);
    assert_eq!(server.turn(late, &mut buffers, &mut events), State::Open);
    assert_eq!(server.interest(), trunkline_net::Interest::Write, "it still does not");
    // The client reads on, and the rest of its frame is awaited for as long as that of any other.
    (raw.server, raw.now) = (Some(server), late);
    raw.say(rest);
    raw.say(&frame(PING, 0, 0, &[7; 8]));
    raw.hears(PING);
    assert_eq!(raw.over, None);
}

#[test]
fn frames_that_break_the_protocol_are_told_so() {
    for (bytes, reason) in [
        (frame(DATA, 0, 0, b"x"), Reason::PROTOCOL_ERROR),
        (frame(PING, 0, 0, b"short"), Reason(6)),
        (frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), Reason::FLOW_CONTROL_ERROR),
        (frame(HEADERS, END_HEADERS, 2, HEAD), Reason::PROTOCOL_ERROR),
    ] {
        let mut raw = Raw::new(Http2Settings::server());
        raw.say(&bytes);
        let (told, _) = raw.goaway();
        assert!(told == reason || told == Reason::PROTOCOL_ERROR, "{told:?} for {bytes:?}");
    }
}

fn ping_of(seconds: u64, settings: PingSettings, calls: bool) -> Option<(Reason, String)> {
    let mut raw = Raw::new(Http2Settings { pings: settings, ..Http2Settings::server() });
    if calls {
        raw.say(&frame(HEADERS, END_HEADERS, 1, HEAD));
    }
    for number in 0..6 {
        raw.now = Instant(number * seconds * SECOND_NS);
        raw.say(&frame(PING, 0, 0, &[0; 8]));
        (0..5).for_each(|_| raw.turn());
    }
    raw.over.is_some().then(|| raw.goaway())
}

#[test]
fn impatient_clients_are_told() {
    let usual = Http2Settings::server().pings;
    let told = Some((Reason::ENHANCE_YOUR_CALM, "too_many_pings".to_owned()));
    assert_eq!(ping_of(10, usual, true), told);
    assert_eq!(ping_of(300, usual, true), None);
    assert_eq!(ping_of(300, usual, false), told, "without calls, two hours");
    let friendly = PingSettings { interval_ns_min: 10 * SECOND_NS, without_calls: true };
    assert_eq!(ping_of(10, friendly, false), None);
}

/// The client learns that it asks too often.
#[test]
fn a_client_hears_that_it_asks_too_often() {
    let keepalive = KeepaliveSettings::after(10 * SECOND_NS);
    let (mut server, mut client) =
        pair(Http2Settings::server(), Http2Settings { keepalive, ..Http2Settings::client() });
    let stream = own(1);
    client.command(Command::Request { stream, head: request("/a.B/C"), end: true });
    until(&mut server, &mut client, |server, _| server.take_request());
    until(&mut server, &mut client, |server, client| {
        let now = client.now.plus_ns(SECOND_NS);
        (server.now, client.now) = (now, now);
        // Time for the answers: nothing else takes time here.
        (0..20).for_each(|_| (server.turn(), client.turn()).0);
        client.over.clone()
    });
    let ended = client.over.unwrap();
    assert!(ended.too_many_pings, "{ended:?}");
}

/// A peer whose host is gone: no answer comes, and after the timeout the connection is over.
#[test]
fn no_answer_is_death() {
    let keepalive = KeepaliveSettings::after(10 * SECOND_NS);
    let (mut server, mut client) =
        pair(Http2Settings::server(), Http2Settings { keepalive, ..Http2Settings::client() });
    client.command(Command::Request { stream: own(1), head: request("/a.B/C"), end: true });
    until(&mut server, &mut client, |server, _| server.take_request());
    let start = Clock::now();
    for second in 0..=31 {
        client.now = Instant(second * SECOND_NS);
        (0..5).for_each(|_| client.turn());
        assert!(Clock::now() < start + WATCHDOG);
        if second < 30 {
            assert_eq!(client.over, None, "at {second} s");
        }
    }
    assert!(client.over.unwrap().why.contains("keepalive_timeout"));
}

#[test]
fn an_old_connection_asks_the_client_to_leave() {
    let age =
        AgeSettings { age_ns_max: Some(100 * SECOND_NS), grace_ns: Some(10 * SECOND_NS), idle_ns_max: None };
    let (mut server, mut client) =
        pair(Http2Settings { age, ..Http2Settings::server() }, Http2Settings::client());
    client.command(Command::Request { stream: own(1), head: request("/a.B/C"), end: true });
    let tag = until(&mut server, &mut client, |server, _| server.take_request());
    server.now = Instant(90 * SECOND_NS);
    let leaving = |end: &mut End| {
        end.take(|event| match event {
            Event::GoAway { reason, .. } => Some(*reason),
            _ => None,
        })
    };
    assert_eq!(until(&mut server, &mut client, |_, client| leaving(client)), Reason::NO_ERROR);
    // The call in flight ends well within the grace.
    server.command(Command::Response { stream: tag, head: response(), end: false });
    server.command(Command::Trailers { stream: tag, trailers: trailers() });
    until(&mut server, &mut client, |server, client| server.over.clone().zip(client.over.clone()));

    // Another does not end: after the grace it is over.
    let (mut server, mut client) =
        pair(Http2Settings { age, ..Http2Settings::server() }, Http2Settings::client());
    client.command(Command::Request { stream: own(1), head: request("/a.B/C"), end: true });
    until(&mut server, &mut client, |server, _| server.take_request());
    server.now = Instant(90 * SECOND_NS);
    until(&mut server, &mut client, |_, client| leaving(client));
    (0..20).for_each(|_| (server.turn(), client.turn()).0);
    assert_eq!(server.over, None);
    server.now = Instant(101 * SECOND_NS);
    until(&mut server, &mut client, |server, client| server.over.clone().zip(client.over.clone()));
}

#[test]
fn an_idle_connection_is_asked_to_leave() {
    let age = AgeSettings { age_ns_max: None, grace_ns: None, idle_ns_max: Some(60 * SECOND_NS) };
    let (mut server, mut client) =
        pair(Http2Settings { age, ..Http2Settings::server() }, Http2Settings::client());
    server.now = Instant(61 * SECOND_NS);
    until(&mut server, &mut client, |server, client| server.over.clone().zip(client.over.clone()));
}

/// A connection that is left ends after 20 s without a stream; but not over a request that lies in its socket because
/// the server's thread was away, sent before the client could hear of the end. Who merely says something now and then
/// is given the time once more.
#[test]
fn a_connection_that_is_left_ends_over_no_request() {
    let left = || {
        let mut raw = Raw::new(Http2Settings::server());
        raw.server.as_mut().unwrap().command(Command::GoAway);
        raw.hears(GOAWAY);
        raw
    };
    let write = |raw: &mut Raw, bytes: &[u8]| {
        let until = Clock::now() + WATCHDOG;
        while !matches!(raw.socket.write_vectored(&[IoSlice::new(bytes)]), Ok(Transfer::Bytes(_))) {
            assert!(Clock::now() < until);
        }
    };
    let mut raw = left();
    write(&mut raw, &frame(HEADERS, END_HEADERS | END_STREAM, 1, HEAD));
    raw.now = Instant(20 * SECOND_NS);
    raw.turn();
    assert_eq!(raw.over, None);
    assert!(matches!(raw.events[..], [.., Event::Request { .. }]), "{:?}", raw.events);

    let mut raw = left();
    raw.now = Instant(20 * SECOND_NS);
    raw.turn();
    assert!(raw.over.is_some(), "nobody says anything");

    let mut raw = left();
    for seconds in [20, 39, 40] {
        write(&mut raw, &frame(SETTINGS, 0, 0, &[]));
        raw.now = Instant(seconds * SECOND_NS);
        raw.turn();
        assert_eq!(raw.over.is_some(), seconds == 40, "after {seconds} s");
    }
}

/// The same in an answer: its call hears of it and others go on. An answer that is a head alone has them by right.
#[test]
fn pseudo_headers_in_an_answers_trailers_are_told() {
    for at_once in [false, true] {
        let (mut socket, client) = streams();
        let mut client = End::new(Http2::client(client, Arc::new(Http2Settings::client()), Instant(0)));
        for number in 1..=3 {
            client.command(Command::Request { stream: own(number), head: request("/a.B/C"), end: true });
        }
        (0..20).for_each(|_| client.turn());
        let head = b"\x88\x5f\x10application/grpc";
        let mut said = vec![frame(SETTINGS, 0, 0, &[]), frame(HEADERS, END_HEADERS, 1, head)];
        said.push(frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88\x00\x01a\x01b"));
        said.push(frame(HEADERS, END_HEADERS | END_STREAM, 3, head));
        said.push(frame(HEADERS, END_HEADERS, 5, head));
        said.push(frame(HEADERS, END_HEADERS | END_STREAM, 5, b"\x00\x01a\x01b"));
        if at_once {
            said = vec![said.concat()];
        }
        let mut heard = Vec::new();
        let until = Clock::now() + WATCHDOG;
        for bytes in said {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                if let Ok(Transfer::Bytes(count)) = socket.write_vectored(&[IoSlice::new(rest)]) {
                    rest = &rest[count..];
                }
            }
            (0..20).for_each(|_| client.turn());
            assert_eq!(client.over, None, "at once: {at_once}, behind {bytes:x?}, {:?}", client.events);
        }
        while heard.len() < 3 {
            client.turn();
            heard.extend(client.take(|event| match event {
                Event::Reset { stream, reason, .. } => Some((*stream, format!("{reason}"))),
                Event::Response { stream, end: true, .. } => Some((*stream, "head".into())),
                Event::Trailers { stream, .. } => Some((*stream, "trailers".into())),
                _ => None,
            }));
            assert!(Clock::now() < until, "{heard:?} {:?}", client.over);
        }
        heard.sort();
        let told = ["PROTOCOL_ERROR", "head", "trailers"].map(str::to_owned);
        assert_eq!(heard, (1..=3).map(own).zip(told).collect::<Vec<_>>());
        assert_eq!(client.over, None);
    }
}

/// Requests of a few bytes that name a long entry of the header table become a megabyte or two of headers in a turn and
/// no more, however many of them one read brings; and all of them are heard in the end.
#[test]
fn headers_by_reference_come_a_few_in_a_turn() {
    const REQUESTS: usize = 400;
    let mut raw = Raw::new(Http2Settings::server());
    let mut planted = HEAD.to_vec();
    // A literal with a name of one byte, to be kept in the table: 3,900 bytes.
    planted.extend(b"\x40\x01x\x7f\xbd\x1d");
    planted.extend([b'y'; 3900]);
    raw.say(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &planted));
    // Its path is not kept, so that the long one stays the newest.
    let mut referring = b"\x83\x86\x04\x06/a.B/C".to_vec();
    referring.extend([0x80 | 62; 15]);
    let all: Vec<u8> = (1..=REQUESTS as u32)
        .flat_map(|number| frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &referring))
        .collect();
    let written = raw.socket.write_vectored(&[IoSlice::new(&all)]).unwrap();
    assert_eq!(written, Transfer::Bytes(all.len()), "the socket takes it at once");
    let (mut heard, mut most, until) = (0, 0, Clock::now() + WATCHDOG);
    while heard < REQUESTS {
        raw.events.clear();
        raw.turn();
        let heads = raw.events.iter().filter_map(|event| match event {
            Event::Request { head, .. } => {
                Some(head.headers.values().map(|value| value.len()).sum::<usize>())
            }
            _ => None,
        });
        let heads: Vec<usize> = heads.collect();
        heard += heads.len();
        most = most.max(heads.iter().sum());
        assert!(raw.over.is_none() && Clock::now() < until, "{heard} heard, {:?}", raw.over);
    }
    assert!(most > 100_000 && most < 2_000_000, "{most} of {}", REQUESTS * 58_500);
}
