//! Shows that a hostile, broken or slow peer harms nobody but itself: it is told why and cut off, while a call through
//! the same daemon goes on working.

mod raw;

use raw::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use trunkline_call::{Code, Deadline, Encoding, Instant};
use trunkline_daemon::{Config, Daemon};
use trunkline_native as native;
use trunkline_native::{Body, Chunk, Connection, Event, FrameType, Header, Input, NewCall, Payload, Side};

/// A daemon that listens, with a server behind it and a bystander before it.
struct Stage {
    bystander: RawApp,
    daemon: Daemon,
}

impl Stage {
    fn set(config: &str) -> Self {
        let text = format!("[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n{config}");
        let daemon = Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap();
        echo_in_thread(RawApp::attach(&daemon, "", true));
        let bystander = RawApp::attach(&daemon, "", false);
        Self { bystander, daemon }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.daemon.endpoints()[0].strip_prefix("tcp://").unwrap()).unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        stream
    }

    #[track_caller]
    fn expect_undisturbed(mut self) {
        for _ in 0..10 {
            assert_eq!(self.bystander.unary(b"still here").code, Code::Ok);
        }
        // The bystander's last release may still be on its way.
        let began = std::time::Instant::now();
        loop {
            let snapshot = &self.daemon.observe(&Default::default())[0].snapshot;
            if (snapshot.sessions.len(), snapshot.calls) == (2, 0) {
                return;
            }
            assert!(began.elapsed() < WATCHDOG, "{snapshot:?}");
            std::thread::yield_now();
        }
    }
}

/// Reads to the end; the watchdog of the stream ends a test whose daemon does not close.
fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("the daemon did not close: {error}"),
    }
}

/// A peer that speaks properly, until a test makes it do otherwise.
struct Speaker {
    connection: Connection,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Speaker {
    fn connect(stage: &Stage) -> Self {
        let config = Arc::new(native::Config { node_name: "speaker".into(), ..native::Config::default() });
        let connection = Connection::new(Side::Initiator, config, Instant(1));
        let mut speaker =
            Self { connection, stream: stage.connect(), buffer: vec![0; native::INPUT_BYTES_MIN] };
        speaker.flush();
        speaker.until(|event| matches!(event, Event::Established));
        speaker
    }

    fn flush(&mut self) {
        let mut bytes = Vec::new();
        for chunk in self.connection.poll_transmit(Instant(1), usize::MAX) {
            match chunk {
                Chunk::Bytes(own) => bytes.extend_from_slice(own),
                Chunk::Shared(_) => unreachable!("this peer shares nothing"),
            }
        }
        self.connection.transmitted(bytes.len());
        self.stream.write_all(&bytes).unwrap();
    }

    /// Reads until an event fits; `false` if the daemon closed first.
    fn until(&mut self, mut fits: impl FnMut(&Event<'_>) -> bool) -> bool {
        loop {
            let start = self.connection.resume(&mut self.buffer);
            let count = self.stream.read(&mut self.buffer[start..]).unwrap_or(0);
            if count == 0 {
                return false;
            }
            let mut input = Input::new(&self.buffer[..start + count]);
            let mut found = false;
            while let Ok(Some(event)) = self.connection.handle_bytes(Instant(1), &mut input) {
                found |= fits(&event);
            }
            if found {
                return true;
            }
        }
    }

    /// Announces so many methods of the longest names, and hears of each or why not.
    fn announce(&mut self, methods: u16) -> Result<(), String> {
        for number in 0..methods {
            let path = format!("/raw.Echo/{number:01014}");
            self.connection.announce_schema(&path, 0, 0).unwrap();
        }
        self.flush();
        let mut why = String::from("it was cut off");
        let all = self.until(|event| match event {
            Event::SchemaAnswer { method, .. } => method.0 + 1 == methods,
            Event::Closed { why: said, .. } => {
                why = (*said).to_owned();
                false
            }
            _ => false,
        });
        if all { Ok(()) } else { Err(why) }
    }

    fn call(&mut self, bytes: &[u8], encoding: Encoding) {
        let method = self.connection.announce_schema("/raw.Echo/Once", 0, 0).unwrap();
        let call = NewCall {
            tag: 1,
            method,
            caller: None,
            deadline: Deadline::NONE,
            stamps: true,
            metadata: &[],
            end: true,
        };
        let message = Payload { encoding, body: Body::Inline(bytes) };
        self.connection.open_call(Instant(1), &call, Some(message)).unwrap();
        self.flush();
    }
}

#[test]
fn something_that_is_not_the_protocol() {
    let stage = Stage::set("");
    for bytes in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0; 64], &[0xff; 4096]] {
        let mut stream = stage.connect();
        stream.write_all(bytes).unwrap();
        read_to_end(stream);
    }
    stage.expect_undisturbed();
}

/// One that asks what is spoken here, in as many pieces as it likes, is answered natively; its own HELLO follows.
#[test]
fn one_that_asks_is_answered() {
    let stage = Stage::set("");
    for cut in [1, 24, 33, 38, native::PROBE.len()] {
        let mut stream = stage.connect();
        stream.set_nodelay(true).unwrap();
        let (begun, rest) = native::PROBE.split_at(cut);
        stream.write_all(begun).unwrap();
        if !rest.is_empty() {
            // Nothing is said before it is clear what is asked.
            stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            assert!(stream.read(&mut [0; 1]).is_err());
            stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        }
        stream.write_all(rest).unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, native::PREAMBLE.to_le_bytes());
    }
    stage.expect_undisturbed();
}

/// There is one place, and who has it has said what it wants: others are told so in what they speak, and by which key.
#[test]
fn one_for_which_there_is_no_place() {
    const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let stage = Stage::set("connections_max = 1\nconnections_per_source_max = 1\n");
    let mut first = stage.connect();
    first.write_all(HTTP2).unwrap();
    first.read_exact(&mut [0; 9]).unwrap();
    for (begins, answered) in
        [(HTTP2, &[0, 0][..]), (&native::PREAMBLE.to_le_bytes()[..], &native::PREAMBLE.to_le_bytes()[..])]
    {
        let mut other = stage.connect();
        other.write_all(begins).unwrap();
        let said = read_to_end(other);
        let key = b"(daemon.connections_";
        assert!(said.starts_with(answered) && said.windows(key.len()).any(|part| part == key), "{said:?}");
    }
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(stage.connect());
    }
    silent.into_iter().for_each(|other| assert_eq!(read_to_end(other), [0; 0]));
    drop(first);
    stage.expect_undisturbed();
}

/// With two shards, whoever greets when its place is given to another keeps it or is closed: no more stay than may.
#[test]
fn no_more_stay_than_there_are_places() {
    const PLACES: usize = 20;
    let stage = Stage::set(&format!("shards = 2\nconnections_max = {PLACES}\n"));
    let config = Arc::new(native::Config::default());
    let mut connection = Connection::new(Side::Initiator, config, Instant(1));
    let mut hello = Vec::new();
    for chunk in connection.poll_transmit(Instant(1), usize::MAX) {
        if let Chunk::Bytes(own) = chunk {
            hello.extend_from_slice(own);
        }
    }
    let greet =
        |streams: &mut [TcpStream]| streams.iter_mut().for_each(|stream| _ = stream.write_all(&hello));
    for _ in 0..40 {
        let mut streams: Vec<_> = (0..PLACES).map(|_| stage.connect()).collect();
        // Those that have a place greet while others want it.
        std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                let connect = |_| {
                    let mut other = [stage.connect()];
                    greet(&mut other);
                    other
                };
                (0..PLACES).flat_map(connect).collect::<Vec<_>>()
            });
            greet(&mut streams);
            streams.extend(others.join().unwrap());
        });
        streams.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
        let began = std::time::Instant::now();
        while streams.len() > PLACES {
            streams.retain_mut(|stream| match stream.read(&mut [0; 4096]) {
                Ok(bytes) => bytes > 0,
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            });
            assert!(began.elapsed() < WATCHDOG, "{} stay of {PLACES}", streams.len());
        }
    }
    stage.expect_undisturbed();
}

/// What a connection announces is its address's to hold, until it goes.
#[test]
fn methods_announced_are_held_by_whoever_announces_them() {
    let stage = Stage::set("[limits]\nheld_bytes_per_source = \"1 MiB\"\n");
    let mut first = Speaker::connect(&stage);
    first.announce(900).expect("1.1 MiB, of which the first 256 KiB are not counted");
    let mut others: Vec<_> = (0..2).map(|_| Speaker::connect(&stage)).collect();
    others[0].announce(100).expect("below what each connection has");
    let why = others[1].announce(900).unwrap_err();
    assert!(why.contains("method ") && why.contains("(limits.held_bytes_per_source)"), "{why}");
    drop(first);
    let began = std::time::Instant::now();
    while Speaker::connect(&stage).announce(900).is_err() {
        assert!(began.elapsed() < WATCHDOG, "what the first has held is not given back");
    }
    drop(others);
    stage.expect_undisturbed();
}

#[test]
fn frames_with_lies_in_them() {
    let stage = Stage::set("");
    let lies: [fn(&mut Header); 6] = [
        |header| header.length = u32::MAX,
        |header| header.flags = 0xff,
        |header| header.stream = u32::MAX,
        |header| header.code = u16::MAX,
        |header| header.frame = FrameType::Result,
        |header| header.frame = FrameType::Hello,
    ];
    for lie in lies {
        let mut speaker = Speaker::connect(&stage);
        let mut header = Header { frame: FrameType::Call, flags: 0, code: 0, stream: 1, length: 4 };
        lie(&mut header);
        speaker.stream.write_all(&header.encode()).unwrap();
        let _ = speaker.stream.write_all(&[0xaa; 4096]);
        let _ = speaker.stream.shutdown(std::net::Shutdown::Write);
        read_to_end(speaker.stream);
    }
    stage.expect_undisturbed();
}

#[test]
fn random_bytes_after_a_proper_hello() {
    let stage = Stage::set("");
    let mut state = 1u64;
    for _ in 0..100 {
        let mut speaker = Speaker::connect(&stage);
        let mut bytes = Vec::new();
        for _ in 0..40 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let word = (state >> 16).to_le_bytes();
            bytes.extend(native::PREAMBLE.to_le_bytes());
            bytes.extend([
                word[0] % 18,
                word[1] & word[2],
                word[3] & 1,
                0,
                word[4] & 7,
                0,
                0,
                0,
                word[5] & 63,
                0,
                0,
                0,
            ]);
            bytes.extend(std::iter::repeat_n(word[2], usize::from(word[5] & 63)));
        }
        // The daemon may have closed already.
        let _ = speaker.stream.write_all(&bytes);
        let _ = speaker.stream.shutdown(std::net::Shutdown::Write);
        read_to_end(speaker.stream);
    }
    stage.expect_undisturbed();
}

#[test]
fn messages_that_are_none() {
    let stage = Stage::set("");
    for bytes in [&[0xff; 100][..], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], &[0x12, 2, 0xff, 0xff]] {
        let mut speaker = Speaker::connect(&stage);
        speaker.call(bytes, Encoding::Protobuf);
        let mut code = None;
        speaker.until(|event| match event {
            Event::Error { code: found, .. } => {
                code = Some(*found);
                true
            }
            _ => false,
        });
        assert_eq!(code, Some(Code::InvalidArgument), "a malformed request is an error of that call alone");
    }
    stage.expect_undisturbed();
}

#[test]
fn a_claim_of_two_gibibytes_costs_nothing() {
    let stage = Stage::set("[limits]\nmessage_bytes = \"1 MiB\"");
    let mut speaker = Speaker::connect(&stage);
    // The peer's own announcement already forbids it, so the frame is written by hand.
    let method = speaker.connection.announce_schema("/raw.Echo/Once", 0, 0).unwrap();
    speaker.flush();
    assert_eq!(method.0, 0);
    let mut frame =
        Header { frame: FrameType::Call, flags: 0xff, code: 0, stream: 1, length: 40 }.encode().to_vec();
    frame.extend([0xff; 40]);
    speaker.stream.write_all(&frame).unwrap();
    speaker.stream.shutdown(std::net::Shutdown::Write).unwrap();
    read_to_end(speaker.stream);
    stage.expect_undisturbed();
}

#[test]
fn a_peer_that_never_reads_its_answers() {
    let mut stage = Stage::set("[limits]\nconnection_queue_bytes = \"1 MiB\"");
    let mut speaker = Speaker::connect(&stage);
    let method = speaker.connection.announce_schema("/raw.Echo/Once", 0, 0).unwrap();
    let mut wire = Vec::new();
    prost::encoding::bytes::encode(1, &vec![5u8; 10_000], &mut wire);
    speaker.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    for tag in 0..2000 {
        let call = NewCall {
            tag,
            method,
            caller: None,
            deadline: Deadline::NONE,
            stamps: true,
            metadata: &[],
            end: true,
        };
        let message = Payload { encoding: Encoding::Protobuf, body: Body::Inline(&wire) };
        if speaker.connection.open_call(Instant(1), &call, Some(message)).is_err() {
            break;
        }
    }
    let mut bytes = Vec::new();
    for chunk in speaker.connection.poll_transmit(Instant(1), usize::MAX) {
        if let Chunk::Bytes(own) = chunk {
            bytes.extend_from_slice(own);
        }
    }
    // Written as far as the daemon takes it; what it answers is never read.
    let _ = speaker.stream.write_all(&bytes);
    for _ in 0..20 {
        assert_eq!(stage.bystander.unary(b"still here").code, Code::Ok);
    }
    let queued = stage.daemon.observe(&Default::default())[0]
        .snapshot
        .peers
        .iter()
        .map(|peer| peer.queued_bytes)
        .max();
    assert!(queued.unwrap_or(0) <= 4 << 20, "answers nobody reads are bounded: {queued:?}");
    drop(speaker);
    let began = std::time::Instant::now();
    while stage.daemon.observe(&Default::default())[0].snapshot.calls != 0 {
        assert!(began.elapsed() < WATCHDOG, "calls of a dead peer linger");
        std::thread::yield_now();
    }
    stage.expect_undisturbed();
}

#[test]
fn connections_that_are_cut_at_every_byte_of_a_call() {
    let stage = Stage::set("");
    let config = Arc::new(native::Config::default());
    let mut connection = Connection::new(Side::Initiator, config, Instant(1));
    let mut bytes = Vec::new();
    for chunk in connection.poll_transmit(Instant(1), usize::MAX) {
        if let Chunk::Bytes(own) = chunk {
            bytes.extend_from_slice(own);
        }
    }
    let schema_len = 16 + 16 + "/raw.Echo/Once".len();
    let mut schema =
        Header { frame: FrameType::Schema, flags: 0, code: 0, stream: 0, length: schema_len as u32 - 16 }
            .encode()
            .to_vec();
    schema.extend([0; 16]);
    schema.extend(b"/raw.Echo/Once");
    bytes.extend(schema);
    for cut in 0..bytes.len() {
        let mut stream = stage.connect();
        stream.write_all(&bytes[..cut]).unwrap();
    }
    stage.expect_undisturbed();
}

/// How long a daemon that stops waits for its peers.
const LINGERS: Duration = Duration::from_secs(1);

/// Whoever reads late has not lost what it was told: the daemon ends when its peers have, or after a second.
#[test]
fn a_daemon_that_stops_is_heard() {
    for peer_ends in [true, false] {
        while !is_heard_in_time(peer_ends) {}
    }
}

/// `false`: the second was over before the peer had a processor to look.
fn is_heard_in_time(peer_ends: bool) -> bool {
    let stage = Stage::set("");
    let mut speaker = Speaker::connect(&stage);
    let mut wire = Vec::new();
    prost::encoding::bytes::encode(1, &vec![5u8; 10_000], &mut wire);
    speaker.call(&wire, Encoding::Protobuf);
    let Stage { bystander: _bystander, daemon } = stage;
    let began = std::time::Instant::now();
    daemon.drain();
    while !daemon.is_idle() {
        assert!(began.elapsed() < WATCHDOG, "the call has not ended");
        std::thread::yield_now();
    }
    let stops = std::time::Instant::now();
    let stopping = std::thread::spawn(move || daemon.stop());
    assert!(speaker.until(|event| matches!(event, Event::Result { .. })), "the answer is read");
    assert!(!speaker.until(|_| false), "and the end");
    // What a closed socket would answer with a reset.
    let listens = (0..3).all(|_| speaker.stream.write_all(&[0; 64]).is_ok());
    let waits = !peer_ends || !stopping.is_finished();
    let is_in_time = stops.elapsed() < LINGERS;
    if peer_ends {
        drop(speaker);
    }
    stopping.join().unwrap();
    assert!(!is_in_time || (listens && waits), "the daemon listens still: {listens}, {waits}");
    is_in_time
}
