//! Shows that a peer can break the protocol in any way it likes and gets a named error, no panic, no growth.

use crate::pair;
use pair::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use trunkline_call::{Code, Execution};
use trunkline_native::*;

const PROTOBUF: u8 = 0x02;
const METADATA: u8 = 0x10;
const TOTAL: u8 = 0x20;
const MESSAGE: u8 = 0x40;
const END: u8 = 0x01;

fn raw(frame: FrameType, flags: u8, code: u16, stream: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Header { frame, flags, code, stream, length: body.len() as u32 }.encode().to_vec();
    out.extend(body);
    out
}

/// A server past hello with method 0 announced by the client, agreed on linear bodies.
fn server(config: Config) -> End {
    let mut pair = Pair::established(&config);
    pair.south.grants = false;
    pair.south
}

fn small_limits() -> Config {
    let limits = Limits {
        segment_bytes_max: 1024,
        message_bytes_max: 100_000,
        metadata_bytes_max: 64,
        streams_max: 2,
        methods_max: 2,
        stream_window_bytes: 64 << 10,
        ..Limits::default()
    };
    Config { limits, ..Config::default() }
}

fn call(stream: u32) -> Vec<u8> {
    raw(FrameType::Call, MESSAGE | PROTOBUF, 0, stream, b"x")
}

fn after_call(frame: FrameType, flags: u8, body: &[u8]) -> Vec<u8> {
    [call(1), raw(frame, flags, 0, 1, body)].concat()
}

fn cut_call(total: u32) -> Vec<u8> {
    raw(FrameType::Call, MESSAGE | PROTOBUF | TOTAL, 0, 1, &total.to_le_bytes())
}

#[test]
fn every_violation_is_named() {
    use FrameType::*;
    let schema = |index, path: &[u8]| raw(Schema, 0, index, 0, &[&[0; 16], path].concat());
    let wide = |value: u32| value.to_le_bytes().to_vec();
    let many = |frame: Vec<u8>, count| frame.repeat(count);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "preamble is 0x20544547"),
        (raw(Hello, 0, 0, 0, &[0; 60]), "HELLO frame on stream 0: HELLO comes once"),
        (raw(Ping, END, 0, 0, &[0; 8]), "PING frame: flags 0x01 are set, only 0x80 are allowed"),
        (raw(Ping, 0, 0, 0, &[0; 7]), "PING frame on stream 0: length is 7"),
        (raw(Ping, 0, 0, 0, &[0; 9]), "PING frame on stream 0: length is 9, limit 8"),
        (raw(Ping, 0, 0, 3, &[0; 8]), "PING frame on stream 3: stream is 3, must be 0"),
        (raw(Window, 0, 0, 0, &wide(0)), "grant is 0"),
        (raw(Window, 0, 0, 0, &wide(1 << 31)), "grant is 2147483648"),
        (many(raw(Window, 0, 0, 0, &wide(i32::MAX as u32)), 2), "window after the grant is"),
        (raw(Window, 0, 0, 1, &wide(1)), "WINDOW frame on stream 1: the stream was never opened"),
        (schema(0, b"/a"), "SCHEMA frame on stream 0: method index is 0, must be the next one"),
        (schema(2, b"/a"), "method index is 2"),
        (schema(1, b""), "SCHEMA frame on stream 0: length is 16"),
        (schema(1, b"\xff\xff"), "not UTF-8"),
        (schema(1, &[b'x'; 1025]), "length is 1041, limit 1040"),
        ([schema(1, b"/a"), schema(2, b"/b")].concat(), "methods is 3, limit 2"),
        (raw(SchemaAck, 0, 5, 0, &[0; 20]), "SCHEMA-ACK frame on stream 0: method index is 5"),
        (raw(SchemaAck, 0, 0, 0, &[2; 20]), "found is 33686018, must be 0 or 1"),
        (raw(GoAway, 0, 0, 0, &wide(8)), "last stream is 8"),
        (raw(Close, 0, 0, 0, &[b'x'; 1025]), "CLOSE frame on stream 0: length is 1025, limit 1024"),
        (call(2), "the id's parity is this side's"),
        (call(0), "the id's parity is this side's"),
        ([call(3), call(1)].concat(), "ids of new streams must rise"),
        ([call(3), call(3)].concat(), "ids of new streams must rise"),
        // Each is ahead of the one before, the last as the first: they have come round.
        ([call(1), call(0x7fff_ffff), call(0xffff_fffd), call(1)].concat(), "the stream is still open"),
        (raw(Call, 0, 9, 1, b""), "CALL frame on stream 1: method index is 9"),
        (raw(Call, 0, 0, 1, b"x"), "body length is 1, must be 0 without MESSAGE"),
        (raw(Call, TOTAL, 0, 1, &wide(9)), "must be 0 without MESSAGE"),
        (raw(Call, METADATA, 0, 1, &wide(65)), "metadata length is 65, limit 64"),
        (raw(Call, METADATA, 0, 1, &wide(60)), "length is 4, must be at least enough for the METADATA block"),
        (raw(Call, MESSAGE, 0, 1, &[0; 1025]), "body length is 1025, limit 1024"),
        (cut_call(100_001), "message length is 100001, limit 100000"),
        (cut_call(0), "TOTAL is 0"),
        (raw(Call, MESSAGE | TOTAL, 0, 1, &[9; 5]), "message length is 151587081, limit 100000"),
        (raw(Call, MESSAGE | TOTAL, 0, 1, &[9, 0, 0, 0, 1]), "body length is 1, must be 0 beside TOTAL"),
        (after_call(Segment, 0, b"x"), "SEGMENT frame on stream 1: no message is in parts"),
        ([cut_call(9), raw(Segment, 0, 0, 1, b"")].concat(), "SEGMENT frame on stream 1: length is 0"),
        (
            [cut_call(3), raw(Segment, 0, 0, 1, b"four")].concat(),
            "length is 4, must be within the message's TOTAL",
        ),
        ([cut_call(9), raw(HalfClose, 0, 0, 1, b"")].concat(), "the message before it is not complete"),
        ([cut_call(9), raw(Message, PROTOBUF, 0, 1, b"")].concat(), "the message before it is not complete"),
        (after_call(HalfClose, 0, b"x"), "HALF-CLOSE frame on stream 1: length is 1, limit 0"),
        (after_call(Result, PROTOBUF, b""), "RESULT frame on stream 1: only the serving side ends a call"),
        (after_call(VoidResult, 0, b""), "it is the other side's to say"),
        (after_call(Error, 0, b""), "it is the other side's to say"),
        (after_call(Headers, 0, b""), "it is the other side's to say"),
        (after_call(Error, 0, b"x"), "length is 1, must be that of its blocks"),
        (raw(Cancel, 0, 0, 1, b""), "CANCEL frame on stream 1: the stream was never opened"),
        (raw(Message, 0, 0, 0, b""), "MESSAGE frame on stream 0: the stream was never opened"),
        (raw(Error, 0, 0, 2, b""), "ERROR frame on stream 2: the stream was never opened"),
        (
            [call(1), many(raw(Message, PROTOBUF, 0, 1, &[0; 1000]), 62)].concat(),
            "cost against the stream's window is 1064",
        ),
    ];
    for (bytes, expected) in cases {
        let mut south = server(small_limits());
        let error = south.read(&bytes).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}\nexpected: {expected}");
        assert_eq!(south.read(&call(5)), Err(error.clone()), "an error is for ever");
        let last = south.write(1 << 20);
        assert!(last.ends_with(error.to_string().as_bytes()), "the peer is told why");
    }
}

#[test]
fn an_end_is_an_end() {
    for end in [raw(FrameType::HalfClose, 0, 0, 1, b""), raw(FrameType::Message, END | PROTOBUF, 0, 1, b"")] {
        for late in [raw(FrameType::HalfClose, 0, 0, 1, b""), raw(FrameType::Message, PROTOBUF, 0, 1, b"")] {
            let mut south = server(Config::default());
            let error = south.read(&[call(1), end.clone(), late].concat()).unwrap_err();
            assert!(error.to_string().contains("its side of the stream is complete"), "{error}");
        }
    }
}

#[test]
fn linear_bodies_without_agreement_are_refused() {
    let mut pair = Pair::new(Config::default(), Config::default());
    pair.settle();
    pair.north.connection.announce_schema("/a.B/C", 1, 2).unwrap();
    pair.settle();
    let error = pair.south.read(&raw(FrameType::Call, MESSAGE, 0, 1, b"x")).unwrap_err();
    assert!(error.to_string().contains("linear body without agreed fingerprints"), "{error}");
}

#[test]
fn checksums_are_there_if_both_offered_them_and_not_else() {
    let mut south = server(checked());
    let error = south.read(&call(1)).unwrap_err();
    assert!(error.to_string().contains("frames have checksums on this connection"), "{error}");
    let sealed = 0x80;
    let mut south = server(checked());
    let error = south.read(&raw(FrameType::Ping, sealed, 0, 0, b"abc")).unwrap_err();
    assert!(error.to_string().contains("length is 3, must be at least 4 with a checksum"), "{error}");
    let mut south = server(checked());
    let error = south.read(&raw(FrameType::Ping, sealed, 0, 0, &[0; 12])).unwrap_err();
    assert!(
        error.to_string().starts_with("PING frame on stream 0: CRC-32C is 0x00000000, its bytes give"),
        "{error}"
    );
    let mut south = server(Config::default());
    let error = south.read(&raw(FrameType::Ping, sealed, 0, 0, &[0; 12])).unwrap_err();
    assert!(error.to_string().contains("checksums were not offered by both sides"), "{error}");
    // A CLOSE may be written by a side that has not read the other's HELLO.
    let mut south = server(checked());
    assert_eq!(south.read(&raw(FrameType::Close, 0, 14, 0, b"bye")), Err(ProtocolError::Closed));
    assert!(matches!(south.told[..], [Told::Closed { .. }]));
}

#[test]
fn the_first_frame_must_be_hello() {
    for (bytes, expected) in [
        (call(1), "the first frame must be HELLO"),
        (raw(FrameType::Hello, 0, 0, 0, &[0; 49]), "length is 49"),
        (raw(FrameType::Hello, 0, 0, 0, &[0; 5000]), "length is 5000"),
        (raw(FrameType::Hello, 0, 0, 0, &[0; 50]), "peer speaks versions 0 to 0, this side 1 to 1"),
    ] {
        let mut south = End::new(Side::Acceptor, Config::default());
        let error = south.read(&bytes).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_call_too_many_is_refused_as_a_call() {
    let mut south = server(small_limits());
    for stream in [1, 3, 5] {
        south.read(&call(stream)).unwrap();
    }
    assert_eq!(south.told.len(), 2);
    let answer = south.write(1 << 20);
    let code = Code::ResourceExhausted.number() | (Execution::NotExecuted as u16) << 8;
    assert_eq!(answer, raw(FrameType::Error, 0, code, 5, b""));
    // What was on its way for it is ignored; the connection goes on.
    south.read(&raw(FrameType::Message, PROTOBUF, 0, 5, b"late")).unwrap();
    south.read(&raw(FrameType::Cancel, 0, 0, 1, b"")).unwrap();
    south.read(&call(7)).unwrap();
    assert_eq!(south.told.len(), 4);
    assert_eq!(south.connection.ignored_frames(), 2);
}

#[test]
fn a_claim_costs_nothing_and_can_be_refused() {
    let mut south = server(Config::default());
    let mut buffer = vec![0; INPUT_BYTES_MIN];
    let start = south.connection.resume(&mut buffer);
    let claim = cut_call(i32::MAX as u32);
    buffer[start..start + claim.len()].copy_from_slice(&claim);
    let mut input = Input::new(&buffer[..start + claim.len()]);
    let event = south.connection.handle_bytes(NOW, &mut input).unwrap();
    let Some(Event::Call(call)) = event else { panic!("{event:?}") };
    assert_eq!(call.message.unwrap().body, Arriving::Cut { total: i32::MAX as u32 });
    let (code, execution) = (Code::ResourceExhausted, Execution::NotExecuted);
    let failure = Failure { code, execution, metadata: b"", trailer: None };
    south.connection.abort(NOW, call.stream, &failure).unwrap();
    assert_eq!(south.connection.handle_bytes(NOW, &mut input), Ok(None));
    south.read(&raw(FrameType::Segment, 0, 0, 1, &[0; 5000])).unwrap();
    assert_eq!(south.connection.wanted(), None);
    assert_eq!(south.connection.stream_count(), 0);
    assert_eq!(south.told, []);
}

#[test]
fn a_message_refused_in_its_middle_is_skipped() {
    let mut south = server(Config::default());
    let segment = raw(FrameType::Segment, 0, 0, 1, &[7; 9000]);
    south.read(&[&cut_call(20_000), &segment[..5000]].concat()).unwrap();
    assert!(south.connection.wanted().is_some());
    let failure =
        Failure { code: Code::Cancelled, execution: Execution::NotExecuted, metadata: b"", trailer: None };
    south.connection.abort(NOW, StreamId(1), &failure).unwrap();
    assert_eq!(south.connection.wanted(), None);
    south.read(&[&segment[5000..], &segment[..], &call(3)[..]].concat()).unwrap();
    assert!(matches!(south.told[..], [Told::Call { stream: StreamId(3), .. }]));
    let windows = south.connection.windows();
    let whole = u64::from(Limits::default().connection_window_bytes);
    assert_eq!(windows.receive_bytes + u64::from(windows.unreturned_bytes), whole);
}

#[test]
fn who_makes_us_answer_and_never_reads_is_cut_off() {
    let mut south = server(Config { queue_bytes_max: 10_000, ..Config::default() });
    let pings = raw(FrameType::Ping, 0, 0, 0, &[0; 8]).repeat(1000);
    let error = (0..100).find_map(|_| south.read(&pings).err()).expect("an end to answering");
    assert!(matches!(error, ProtocolError::PeerNotReading { .. }), "{error}");
    assert!(south.connection.send_queue_bytes() < (1 << 20) + 20_000);
}

#[test]
fn a_lying_go_away_ends_no_call_it_could_not_know() {
    for last in [2u32, 3, 5, u32::MAX] {
        let mut pair = Pair::established(&Config::default());
        pair.north.connection.open_call(NOW, &unary(1), None).unwrap();
        let error = pair.north.read(&raw(FrameType::GoAway, 0, 0, 0, &last.to_le_bytes())).unwrap_err();
        assert!(error.to_string().contains("last stream is"), "{error}");
    }
}

/// What an honest client might send a server in a while.
fn transcript(config: &Config) -> Vec<u8> {
    let mut pair = Pair::established(config);
    let north = &mut pair.north.connection;
    north.open_call(NOW, &NewCall { metadata: b"m", stamps: true, ..unary(1) }, None).unwrap();
    let call = NewCall { end: false, ..unary(2) };
    let stream = north.open_call(NOW, &call, Some(linear(Body::Inline(b"first")))).unwrap();
    north.send_message(NOW, stream, linear(Body::Owned(pattern(40_000, 3))), false).unwrap();
    north.send_message(NOW, stream, linear(Body::Inline(b"last")), true).unwrap();
    north.ping(1);
    let third = north.open_call(NOW, &unary(3), Some(linear(Body::Owned(pattern(20_000, 3))))).unwrap();
    north.announce_schema("/a.B/D", 1, 2).unwrap();
    let mut bytes = pair.north.write(1 << 20);
    pair.north.connection.cancel(NOW, third, Code::Cancelled).unwrap();
    bytes.extend(pair.north.write(1 << 20));
    bytes
}

fn survives(mut end: End, bytes: &[u8], cut: usize) {
    end.places = false;
    for piece in bytes.chunks(cut) {
        let mut buffer = vec![0; INPUT_BYTES_MIN + piece.len()];
        let start = end.connection.resume(&mut buffer);
        buffer[start..start + piece.len()].copy_from_slice(piece);
        let mut input = Input::new(&buffer[..start + piece.len()]);
        loop {
            match end.connection.handle_bytes(NOW, &mut input) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return assert!(!error.to_string().is_empty()),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(3),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_at_all(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1..50usize) {
        survives(End::new(Side::Acceptor, Config::default()), &bytes, cut);
        survives(server(Config::default()), &bytes, cut);
    }

    #[test]
    fn any_frames_at_all(
        frames in prop::collection::vec(
            (1u8..19, prop_oneof![Just(0u8), any::<u8>()], 0u16..3, 0u32..6, prop::collection::vec(any::<u8>(), 0..40)),
            0..60,
        ),
        cut in 1..200usize,
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(|(frame, flags, code, stream, body)| {
            let frame = FrameType::from_number(*frame).unwrap();
            raw(frame, flags & frame.flags_allowed(), *code, *stream, body)
        }).collect();
        survives(server(Config::default()), &bytes, cut);
        survives(server(naming()), &bytes, cut);
        let mut pair = Pair::established(&Config::default());
        for tag in 0..3 {
            pair.north.connection.open_call(NOW, &unary(tag), None).unwrap();
        }
        survives(pair.north, &bytes, cut);
    }

    #[test]
    fn with_checksums_nothing_changed_is_believed(
        at in any::<prop::sample::Index>(),
        change in 1..=255u8,
        cut in 500..50_000usize,
    ) {
        let mut bytes = transcript(&checked());
        let mut honest = server(checked());
        honest.read(&bytes).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        let mut south = server(checked());
        let failed = bytes.chunks(cut).any(|piece| south.read(piece).is_err());
        prop_assert!(honest.told.starts_with(&south.told), "byte {} ^ {:#x}", at, change);
        // A changed length makes the connection wait for bytes that never come; all else is found at once.
        prop_assert!(failed || south.told.len() < honest.told.len());
    }

    #[test]
    fn honest_bytes_with_a_few_changed(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in 500..5000usize,
    ) {
        let mut bytes = transcript(&Config::default());
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        survives(server(Config::default()), &bytes, cut);
    }
}

#[test]
fn the_transcript_itself_is_accepted() {
    let mut south = server(Config::default());
    south.places = false;
    south.read(&transcript(&Config::default())).unwrap();
    assert_eq!(south.told.len(), 7);
}
