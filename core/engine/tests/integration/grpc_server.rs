//! Shows a gRPC client calling applications of a host: all patterns, every way to end, bodies that are not what they
//! should be, and that a slow application slows the client and a slow client the application.

use crate::world;

use trunkline_call::entry::{Completion, MessageCompression, Submission};
use trunkline_call::{Code, Instant, Metadata, Status};
use trunkline_engine::{GrpcSettings, Limits, Protocol};
use trunkline_grpc::compress::{Encoding, compress, decompress};
use trunkline_grpc::{Command, Event, Reason, StreamTag};
use trunkline_telemetry::Ask;
use world::web::{Said, blob, framed};
use world::*;

const ONE: StreamTag = StreamTag(1);

/// One host, one application that serves, one gRPC client.
struct Scene {
    world: World,
    server: App,
    web: usize,
}

impl Scene {
    fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        let mut world = World::with_limits(limits);
        let server = world.attach(0, PROTO, None, true);
        let web = world.web(0);
        Self { world, server, web }
    }

    fn settle(&mut self) {
        self.world.settle(&mut [&mut self.server]);
    }

    fn said(&mut self, tag: StreamTag) -> Said {
        self.settle();
        self.world.webs[self.web].take(tag)
    }

    /// A whole unary request.
    fn ask(&mut self, tag: StreamTag, headers: &[(&str, &str)], data: &[u8]) {
        self.world.request(self.web, tag, ONCE, headers, false);
        self.world.body(self.web, tag, &blob(data), true);
        self.settle();
    }

    fn submit(&mut self, submission: Submission) {
        self.world.submit(&self.server, submission).unwrap();
        self.settle();
    }

    /// Releases a delivered call and answers it.
    fn reply(&mut self, call: trunkline_call::entry::Call, code: Code, data: Option<&[u8]>) {
        self.world.submit(&self.server, release(call.call, call.payload, call.metadata, 0)).unwrap();
        let payload = data.map(|data| self.world.blob(&mut self.server, data));
        self.submit(Submission::Finish(finish(call.call, code, payload)));
    }

    #[track_caller]
    fn nothing_left(&mut self) {
        self.settle();
        self.world.nothing_left();
    }
}

fn data_of(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 % 251) as u8).collect()
}

#[track_caller]
fn answered(said: &Said) -> Vec<Vec<u8>> {
    assert_eq!((said.status, said.code()), (200, 0), "{said:?}");
    assert_eq!(said.head["content-type"], "application/grpc");
    said.messages.iter().map(|(_, message)| world::data_of(message)).collect()
}

#[test]
fn a_unary_call() {
    let mut scene = Scene::new();
    for (number, bytes) in [0, 1, 100, 100_000, 3_000_000].into_iter().enumerate() {
        let tag = StreamTag(number as u64);
        let data = data_of(bytes);
        scene.ask(tag, &[("grpc-timeout", "5S"), ("custom", "a"), ("custom-bin", "AQI")], &data);
        let call = scene.server.take_call();
        assert!(call.end);
        assert_eq!(call.deadline.instant(), Some(scene.world.now.plus_ns(5_000_000_000)));
        assert_eq!(scene.world.data(&scene.server, call.payload.unwrap()), data);
        let metadata = scene.world.metadata(&scene.server, call.metadata);
        assert_eq!((metadata.text("custom"), metadata.first("custom-bin")), (Some("a"), Some(&[1, 2][..])));
        scene.reply(call, Code::Ok, Some(&data));
        let said = scene.said(tag);
        assert_eq!(answered(&said), [data]);
    }
    scene.nothing_left();
}

#[test]
fn a_body_in_pieces_of_any_size() {
    for piece in [1, 4, 5, 6, 1000] {
        let mut scene = Scene::new();
        scene.world.request(scene.web, ONE, ONCE, &[], false);
        for bytes in blob(&data_of(3_000)).chunks(piece) {
            scene.world.body(scene.web, ONE, bytes, false);
        }
        scene.settle();
        assert!(scene.server.take().is_empty(), "a unary call is there when its direction has ended");
        scene.world.body(scene.web, ONE, &[], true);
        scene.settle();
        let call = scene.server.take_call();
        assert_eq!(scene.world.data(&scene.server, call.payload.unwrap()), data_of(3_000));
        scene.reply(call, Code::Ok, Some(b"y"));
        assert_eq!(answered(&scene.said(ONE)), [b"y".to_vec()]);
        scene.nothing_left();
    }
}

#[test]
fn metadata_of_the_handler_reaches_the_client() {
    let mut scene = Scene::new();
    scene.ask(ONE, &[], b"x");
    let call = scene.server.take_call();
    let mut headers = Metadata::new();
    headers.insert("early", "1").unwrap();
    let span = scene.world.put_metadata(&mut scene.server, &headers);
    scene.submit(Submission::Headers { call: call.call, metadata: span });
    let mut trailers = Metadata::new();
    trailers.insert("late-bin", [0xff, 0]).unwrap();
    let mut last = finish(call.call, Code::Ok, Some(scene.world.blob(&mut scene.server, b"y")));
    last.metadata = scene.world.put_metadata(&mut scene.server, &trailers);
    scene.submit(release(call.call, call.payload, call.metadata, 0));
    scene.submit(Submission::Finish(last));
    let said = scene.said(ONE);
    assert_eq!(answered(&said), [b"y".to_vec()]);
    assert_eq!(
        (&said.head["early"], &said.trailers.unwrap()["late-bin"]),
        (&"1".parse().unwrap(), &"/wA".parse().unwrap())
    );
    scene.nothing_left();
}

#[test]
fn an_error_is_a_head_that_says_it_all() {
    let mut scene = Scene::new();
    scene.ask(ONE, &[], b"x");
    let call = scene.server.take_call();
    let mut trailers = Metadata::new();
    Status::not_found("no such thing: ä").with_details([1, 2, 3]).put_into(&mut trailers).unwrap();
    let mut last = finish(call.call, Code::NotFound, None);
    last.metadata = scene.world.put_metadata(&mut scene.server, &trailers);
    scene.submit(release(call.call, call.payload, call.metadata, 0));
    scene.submit(Submission::Finish(last));
    let said = scene.said(ONE);
    assert_eq!((said.status, said.code(), said.message()), (200, 5, "no such thing: %C3%A4"));
    assert_eq!(said.head["grpc-status-details-bin"], "AQID");
    scene.nothing_left();
}

#[test]
fn what_nobody_serves_is_unimplemented() {
    let mut scene = Scene::new();
    for (number, path) in
        ["/world.Echo/Never", "/no.Such/Thing", "/trunkline.admin.v1.Admin/List"].iter().enumerate()
    {
        let tag = StreamTag(number as u64);
        scene.world.request(scene.web, tag, path, &[], false);
        scene.world.body(scene.web, tag, &blob(b"late"), true);
        let said = scene.said(tag);
        assert_eq!((said.status, said.code()), (200, 12), "{path}");
        assert!(said.message().contains(path), "{}", said.message());
    }
    // Called here, served by nobody yet.
    let mut other = World::new();
    other.attach(0, PROTO, None, false);
    let web = other.web(0);
    other.request(web, ONE, ONCE, &[], true);
    other.settle(&mut []);
    assert_eq!(other.webs[web].take(ONE).code(), 12);
    scene.nothing_left();
}

#[test]
fn a_server_that_is_away_is_unavailable_and_not_unimplemented() {
    let mut scene = Scene::new();
    scene.world.detach(&scene.server);
    scene.world.request(scene.web, ONE, ONCE, &[], true);
    scene.world.settle(&mut []);
    assert_eq!(scene.world.webs[scene.web].take(ONE).code(), 14);
}

#[test]
fn what_is_not_grpc_gets_an_http_answer() {
    let mut scene = Scene::new();
    scene.world.request(scene.web, ONE, ONCE, &[("content-type", "text/html")], true);
    let said = scene.said(ONE);
    assert_eq!(
        (said.status, said.head["content-type"].to_str().unwrap(), said.ended),
        (415, "text/plain", true)
    );
    assert!(String::from_utf8(said.text).unwrap().contains("gRPC"));
    scene.world.request(scene.web, StreamTag(2), ONCE, &[("grpc-encoding", "br")], true);
    let said = scene.said(StreamTag(2));
    assert_eq!((said.status, said.code()), (200, 12));
    assert_eq!(said.head["grpc-accept-encoding"], "identity,gzip,deflate,zstd");
    scene.nothing_left();
}

/// What is wrong with it, headers, body, and the status that says so.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [u8], u32);

#[test]
fn bodies_that_are_not_what_they_should_be() {
    let two = [blob(b"a"), blob(b"b")].concat();
    let mut compressed = blob(b"a");
    compressed[0] = 1;
    let mut flagged = blob(b"a");
    flagged[0] = 2;
    let mut huge = vec![0];
    huge.extend(u32::MAX.to_be_bytes());
    let not_gzip = compressed.clone();
    let cut = blob(b"abc");
    let table: [Case<'_>; 8] = [
        ("none at all", &[], &[], 12),
        ("two", &[], &two, 12),
        ("half a message", &[], &cut[..cut.len() - 1], 13),
        ("half a prefix", &[], &cut[..3], 13),
        ("compressed, in no encoding", &[], &compressed, 13),
        ("not gzip", &[("grpc-encoding", "gzip")], &not_gzip, 13),
        ("a flag that is none", &[], &flagged, 13),
        ("4 GiB", &[], &huge, 8),
    ];
    for (what, headers, body, code) in table {
        let mut scene = Scene::new();
        scene.world.request(scene.web, ONE, ONCE, headers, false);
        scene.world.body(scene.web, ONE, body, true);
        let said = scene.said(ONE);
        assert_eq!(said.code(), code, "{what}: {}", said.message());
        assert!(!said.message().is_empty(), "{what}");
        assert!(scene.server.take().is_empty(), "{what}: no handler sees it");
        scene.nothing_left();
    }
}

#[test]
fn not_protobuf_is_not_delivered() {
    let mut scene = Scene::new();
    scene.world.request(scene.web, ONE, ONCE, &[], false);
    scene.world.body(scene.web, ONE, &framed(&[0x0a, 0xff]), true);
    let said = scene.said(ONE);
    assert_eq!(said.code(), 3, "{}", said.message());
    assert!(scene.server.take().is_empty());
    scene.nothing_left();
}

#[test]
fn messages_above_the_limit_are_refused_by_name() {
    let mut scene = Scene::with_limits(Limits { grpc_message_bytes: 1000, ..Limits::default() });
    scene.ask(ONE, &[], &data_of(990));
    let call = scene.server.take_call();
    scene.reply(call, Code::Ok, Some(&data_of(5_000)));
    assert_eq!(answered(&scene.said(ONE))[0].len(), 5_000, "what is sent has its own limit, at the client");
    scene.ask(StreamTag(2), &[], &data_of(1_000));
    let said = scene.said(StreamTag(2));
    assert_eq!(said.code(), 8);
    assert!(said.message().contains("1000"), "{}", said.message());
    let mut bomb = vec![0; 5];
    compress(Encoding::Gzip, &wire_of(&[0; 100_000]), &mut bomb).unwrap();
    let len = bomb.len() as u32 - 5;
    bomb[0] = 1;
    bomb[1..5].copy_from_slice(&len.to_be_bytes());
    assert!(len < 1_000);
    scene.world.request(scene.web, StreamTag(3), ONCE, &[("grpc-encoding", "gzip")], false);
    scene.world.body(scene.web, StreamTag(3), &bomb, true);
    assert_eq!(scene.said(StreamTag(3)).code(), 8);
    scene.nothing_left();
}

/// Large messages are decoded where they are received: those that fit what was guessed, those that do not (a number of
/// one byte becomes one of eight), and those that turn out to be none.
#[test]
fn large_messages_of_any_shape_are_decoded() {
    let proto = PROTO.replace("string note = 2;", "string note = 2; repeated int64 numbers = 3;");
    let mut world = World::new();
    let server = world.attach(0, &proto, None, true);
    let web = world.web(0);
    let mut scene = Scene { world, server, web };
    let numbers = {
        let mut wire = vec![0x1a];
        let mut len = 100_000u32;
        while len >= 0x80 {
            wire.push(len as u8 | 0x80);
            len >>= 7;
        }
        wire.push(len as u8);
        wire.extend((0..100_000).map(|i| (i % 100) as u8));
        wire
    };
    for (number, wire) in [wire_of(&data_of(300_000)), numbers].into_iter().enumerate() {
        let tag = StreamTag(number as u64 + 1);
        scene.world.request(scene.web, tag, ONCE, &[], false);
        scene.world.body(scene.web, tag, &framed(&wire), true);
        scene.settle();
        let call = scene.server.take_call();
        let bytes = scene.world.received(&scene.server, call.payload.unwrap().span);
        let index = scene.server.schema.schema.message_named("world.Blob").unwrap();
        let mut again = Vec::new();
        scene.server.schema.transcoder.encode(index, bytes, &mut again).unwrap();
        assert!(again == wire, "message {number} came otherwise than it was sent");
        scene.reply(call, Code::Ok, Some(b"done"));
        assert_eq!(scene.said(tag).code(), 0);
    }
    let mut not_text = wire_of(&data_of(300_000));
    not_text.extend([0x12, 1, 0xff]);
    scene.world.request(scene.web, StreamTag(9), ONCE, &[], false);
    scene.world.body(scene.web, StreamTag(9), &framed(&not_text), true);
    assert_eq!(scene.said(StreamTag(9)).code(), 3);
    scene.nothing_left();
}

/// Long answers are encoded, or copied, into the buffer they leave from, which is one that another message had before:
/// nothing of that is in them, while it waits to leave or after.
#[test]
fn long_answers_have_nothing_of_those_before() {
    let mut scene = Scene::new();
    let lengths = [300_000, 70_000, 65_536, 290_000, 40_000, 1_200_000, 310_000];
    for (number, pair) in lengths.windows(2).enumerate() {
        let tags = [2 * number as u64, 2 * number as u64 + 1].map(StreamTag);
        let answers = [data_of(pair[0]), data_of(pair[1]).into_iter().rev().collect()];
        for (tag, answer) in tags.into_iter().zip(&answers) {
            scene.ask(tag, &[], &data_of(100_000 + number));
            let call = scene.server.take_call();
            assert_eq!(scene.world.data(&scene.server, call.payload.unwrap()), data_of(100_000 + number));
            scene.reply(call, Code::Ok, Some(answer));
        }
        for (tag, answer) in tags.into_iter().zip(&answers) {
            assert!(answered(&scene.said(tag)) == [answer.clone()], "answer of {} bytes", answer.len());
        }
    }
    scene.nothing_left();
}

#[test]
fn compression_in_and_out() {
    for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd] {
        for (accepts, compresses) in [(encoding.name(), true), ("identity", false)] {
            let mut scene = Scene::new();
            let settings = GrpcSettings { response_encoding: encoding, ..GrpcSettings::default() };
            scene.world.hosts[0].engine.configure_grpc(settings);
            let headers = [("grpc-encoding", encoding.name()), ("grpc-accept-encoding", accepts)];
            scene.world.request(scene.web, ONE, ONCE, &headers, false);
            let mut body = vec![0; 5];
            compress(encoding, &wire_of(&[7; 10_000]), &mut body).unwrap();
            let len = (body.len() - 5) as u32;
            body[0] = 1;
            body[1..5].copy_from_slice(&len.to_be_bytes());
            scene.world.body(scene.web, ONE, &body, true);
            scene.settle();
            let call = scene.server.take_call();
            assert_eq!(scene.world.data(&scene.server, call.payload.unwrap()), [7; 10_000]);
            assert_eq!(call.payload.unwrap().compression, MessageCompression::Compressed);
            scene.reply(call, Code::Ok, Some(&[8; 10_000]));
            let said = scene.said(ONE);
            assert_eq!(said.code(), 0);
            let (flag, message) = &said.messages[0];
            assert_eq!((*flag, message.len() < 1_000), (compresses, compresses), "{encoding:?}");
            assert_eq!(said.head.contains_key("grpc-encoding"), compresses);
            let mut plain = message.clone();
            if compresses {
                plain.clear();
                decompress(encoding, message, 1 << 20, &mut plain).unwrap();
            }
            assert_eq!(world::data_of(&plain), [8; 10_000]);
            scene.nothing_left();
        }
    }
}

#[test]
fn streams_in_both_directions() {
    let mut scene = Scene::new();
    scene.world.request(scene.web, ONE, CHAT, &[], false);
    scene.settle();
    let call = scene.server.take_call();
    assert!(!call.end && call.payload.is_none(), "a stream is there with its head");
    for round in 0..50u8 {
        scene.world.body(scene.web, ONE, &blob(&vec![round; 50_000]), false);
        scene.settle();
        let [Completion::Message { call: id, payload, end: false }] = scene.server.take()[..] else {
            panic!()
        };
        assert_eq!(scene.world.data(&scene.server, payload), vec![round; 50_000]);
        scene.submit(release(id, Some(payload), Default::default(), 0));
        let reply = scene.world.blob(&mut scene.server, &[round]);
        scene.submit(Submission::Message { call: id, payload: reply, end: false, a1: Instant(6) });
        let said = scene.said(ONE);
        assert_eq!(world::data_of(&said.messages[0].1), [round]);
        assert_eq!((said.status, said.trailers.is_some()), (if round == 0 { 200 } else { 0 }, false));
        scene.server.take();
    }
    scene.world.body(scene.web, ONE, &[], true);
    scene.settle();
    assert_eq!(scene.server.take(), [Completion::HalfClose { call: call.call }]);
    scene.submit(Submission::Finish(finish(call.call, Code::Ok, None)));
    assert_eq!(scene.said(ONE).code(), 0);
    scene.nothing_left();
}

#[test]
fn one_side_streams() {
    let mut scene = Scene::new();
    scene.world.request(scene.web, ONE, GATHER, &[], false);
    scene.world.body(scene.web, ONE, &[blob(b"a"), blob(b"b"), blob(b"c")].concat(), true);
    scene.settle();
    let taken = scene.server.take();
    let [Completion::Call(call), rest @ ..] = &taken[..] else { panic!("{taken:?}") };
    let ends = |one: &Completion| matches!(one, Completion::Message { end: true, .. });
    assert_eq!(
        (rest.len(), rest.last().map(ends)),
        (3, Some(true)),
        "three messages, the last with the end: {rest:?}"
    );
    for completion in rest {
        if let Completion::Message { payload, .. } = completion {
            scene.submit(release(call.call, Some(*payload), Default::default(), 0));
        }
    }
    scene.reply(*call, Code::Ok, Some(b"abc"));
    assert_eq!(answered(&scene.said(ONE)), [b"abc".to_vec()]);

    let two = StreamTag(2);
    scene.world.request(scene.web, two, SCATTER, &[], false);
    scene.world.body(scene.web, two, &blob(b"x"), true);
    scene.settle();
    let call = scene.server.take_call();
    for data in [b"1", b"2"] {
        let payload = scene.world.blob(&mut scene.server, data);
        scene.submit(Submission::Message { call: call.call, payload, end: false, a1: Instant(6) });
    }
    scene.server.take();
    scene.reply(call, Code::Aborted, None);
    let said = scene.said(two);
    assert_eq!((said.messages.len(), said.code(), said.head.contains_key("grpc-status")), (2, 10, false));
    scene.nothing_left();
}

#[test]
fn a_handler_that_returns_nothing_where_one_message_is_due() {
    let mut scene = Scene::new();
    scene.ask(ONE, &[], b"x");
    let call = scene.server.take_call();
    scene.reply(call, Code::Ok, None);
    assert_eq!(scene.said(ONE).code(), 13);
    scene.nothing_left();
}

#[test]
fn a_deadline_ends_in_trailers_and_cancels_the_handler() {
    for streams in [false, true] {
        let mut scene = Scene::new();
        let path = if streams { CHAT } else { ONCE };
        scene.world.request(scene.web, ONE, path, &[("grpc-timeout", "1m")], false);
        scene.world.body(scene.web, ONE, &blob(b"x"), !streams);
        scene.settle();
        let taken = scene.server.take();
        let Completion::Call(call) = taken[0] else { panic!("{taken:?}") };
        scene.world.advance(1_000_000);
        let said = scene.said(ONE);
        assert_eq!((said.status, said.code(), said.reset), (200, 4, None));
        let told = scene.server.take();
        assert_eq!(told, [Completion::Cancelled { call: call.call, code: Code::DeadlineExceeded }]);
        for completion in taken {
            match completion {
                Completion::Call(call) => scene.submit(release(call.call, call.payload, call.metadata, 0)),
                Completion::Message { call, payload, .. } => {
                    scene.submit(release(call, Some(payload), Default::default(), 0));
                }
                _ => {}
            }
        }
        scene.nothing_left();
    }
}

#[test]
fn a_deadline_strikes_while_the_request_arrives() {
    let mut scene = Scene::new();
    scene.world.request(scene.web, ONE, ONCE, &[("grpc-timeout", "1m")], false);
    scene.world.body(scene.web, ONE, &blob(&data_of(100))[..50], false);
    scene.settle();
    scene.world.advance(1_000_000);
    assert_eq!(scene.said(ONE).code(), 4);
    scene.world.body(scene.web, ONE, &blob(&data_of(100))[50..], true);
    scene.settle();
    assert!(scene.server.take().is_empty(), "half a message is no call");
    scene.nothing_left();
}

#[test]
fn a_reset_cancels_the_handler() {
    let mut scene = Scene::new();
    scene.ask(ONE, &[], b"x");
    let call = scene.server.take_call();
    scene.world.reset(scene.web, ONE, Reason::CANCEL);
    scene.settle();
    assert_eq!(scene.server.take(), [Completion::Cancelled { call: call.call, code: Code::Cancelled }]);
    scene.reply(call, Code::Ok, Some(b"late"));
    let said = scene.said(ONE);
    assert!(said.trailers.is_none() && said.messages.is_empty(), "nothing is said on a stream that is over");
    scene.nothing_left();
}

#[test]
fn a_lost_connection_cancels_everything_it_brought() {
    let mut scene = Scene::new();
    scene.ask(ONE, &[], b"x");
    let first = scene.server.take_call();
    scene.world.request(scene.web, StreamTag(2), CHAT, &[], false);
    scene.settle();
    let second = scene.server.take_call();
    scene.world.hang_up(scene.web);
    scene.settle();
    let told = scene.server.take();
    for call in [first.call, second.call] {
        assert!(told.contains(&Completion::Cancelled { call, code: Code::Cancelled }), "{told:?}");
    }
    scene.submit(release(first.call, first.payload, first.metadata, 0));
    scene.nothing_left();
}

#[test]
fn a_handler_that_dies_ends_its_calls() {
    let mut scene = Scene::new();
    scene.ask(ONE, &[], b"x");
    scene.server.take_call();
    scene.world.detach(&scene.server);
    scene.world.settle(&mut []);
    assert_eq!(scene.world.webs[scene.web].take(ONE).code(), 14);
}

#[test]
fn a_slow_application_slows_the_client() {
    let window = Limits::default().stream_window_bytes as usize;
    let mut scene = Scene::new();
    scene.world.request(scene.web, ONE, GATHER, &[], false);
    scene.settle();
    let call = scene.server.take_call();
    let message = blob(&vec![1; 100_000]);
    let mut held = Vec::new();
    // The client sends what its window allows; the application takes and does not release.
    while scene.world.webs[scene.web].streams[&1].unreleased + message.len() <= window {
        scene.world.body(scene.web, ONE, &message, false);
        scene.settle();
        held.extend(scene.server.take());
    }
    assert_eq!(held.len(), window / message.len());
    let full = scene.world.webs[scene.web].streams[&1].unreleased;
    assert_eq!(
        full,
        held.len() * message.len(),
        "nothing is given back before the application is through with it"
    );
    for completion in held {
        let Completion::Message { payload, .. } = completion else { panic!("{completion:?}") };
        scene.submit(release(call.call, Some(payload), Default::default(), 0));
    }
    assert_eq!(scene.world.webs[scene.web].streams[&1].unreleased, 0);
    scene.world.body(scene.web, ONE, &[], true);
    scene.settle();
    scene.server.take();
    scene.reply(call, Code::Ok, Some(b"y"));
    assert_eq!(scene.said(ONE).code(), 0);
    scene.nothing_left();
}

#[test]
fn a_message_larger_than_the_window_arrives() {
    larger_than_the_window(64 << 10, 1 << 20);
}

/// What HTTP/2 has told a peer and what a stream may hold here are two keys, whichever is less.
#[test]
fn a_message_larger_than_the_window_of_http2_arrives() {
    larger_than_the_window(1 << 20, 64 << 10);
    larger_than_the_window(4 << 20, 1 << 20);
}

fn larger_than_the_window(stream_window_bytes: u32, told: u32) {
    let window = stream_window_bytes.min(told);
    let mut scene = Scene::with_limits(Limits { stream_window_bytes, ..Limits::default() });
    let settings = GrpcSettings { stream_window_bytes: told, ..GrpcSettings::default() };
    scene.world.hosts[0].engine.configure_grpc(settings);
    scene.world.request(scene.web, ONE, CHAT, &[], false);
    scene.settle();
    let call = scene.server.take_call();
    for round in 0..3u8 {
        let mut message = &blob(&vec![round; 3 << 20])[..];
        while !message.is_empty() {
            let room = window as usize - scene.world.webs[scene.web].streams[&1].unreleased;
            assert!(room > 0, "the client can go on");
            let (piece, rest) = message.split_at(room.min(message.len()).min(16_384));
            scene.world.body(scene.web, ONE, piece, false);
            scene.settle();
            message = rest;
        }
        let [Completion::Message { payload, .. }] = scene.server.take()[..] else { panic!("round {round}") };
        assert!(scene.world.webs[scene.web].streams[&1].unreleased > 0, "it still takes of the window");
        scene.submit(release(call.call, Some(payload), Default::default(), 0));
        assert_eq!(scene.world.webs[scene.web].streams[&1].unreleased, 0);
    }
    scene.world.reset(scene.web, ONE, Reason::CANCEL);
    scene.settle();
    scene.nothing_left();
}

/// Sends what is left of a message on each of the streams, a frame of each in turn, as far as windows allow. Whether
/// all has been sent.
fn send_in_turn(scene: &mut Scene, sent: &mut [usize], message: &[u8], connection_window: usize) -> bool {
    let window = Limits::default().stream_window_bytes as usize;
    loop {
        let before = sent.to_vec();
        for (tag, sent) in sent.iter_mut().enumerate() {
            let web = &scene.world.webs[scene.web];
            let taken = web.streams.values().map(|stream| stream.unreleased).sum::<usize>();
            let room = (window - web.streams[&(tag as u64)].unreleased).min(connection_window - taken);
            let piece = room.min(message.len() - *sent).min(16_384);
            if piece > 0 {
                scene.world.body(scene.web, StreamTag(tag as u64), &message[*sent..*sent + piece], false);
                *sent += piece;
            }
        }
        scene.settle();
        if sent == before {
            return sent.iter().all(|sent| *sent == message.len());
        }
    }
}

/// A scene with a connection that has so large a window, and so many streams of it with calls.
fn scene_of_streams(streams: u64, connection_window: usize, limits: Limits) -> Scene {
    let mut scene = Scene::with_limits(limits);
    scene.world.detach(&scene.server);
    scene.server = scene.world.attach_sized(0, PROTO, None, true, 256 << 20);
    let settings =
        GrpcSettings { connection_window_bytes: connection_window as u32, ..GrpcSettings::default() };
    scene.world.hosts[0].engine.configure_grpc(settings);
    for tag in 0..streams {
        let path = if tag % 2 == 0 { GATHER } else { CHAT };
        scene.world.request(scene.web, StreamTag(tag), path, &[], false);
    }
    scene.settle();
    assert_eq!(scene.server.take().len(), streams as usize);
    scene
}

/// A connection's window is shared by messages none of which is complete: they do not keep it from each other.
#[test]
fn unfinished_messages_leave_the_connections_window_to_each_other() {
    for (streams, bytes, window) in
        [(200, 600_000, 64 << 20), (130, 1 << 20, 64 << 20), (8, 600_000, 4 << 20)]
    {
        let mut scene = scene_of_streams(streams, window, Limits::default());
        let mut sent = vec![0; streams as usize];
        let message = blob(&vec![7; bytes]);
        assert!(send_in_turn(&mut scene, &mut sent, &message, window), "{streams} of {bytes} stand still");
        let mut arrived = 0;
        while arrived < sent.len() {
            let before = arrived;
            for completion in scene.server.take() {
                let Completion::Message { call, payload, .. } = completion else { panic!("{completion:?}") };
                scene.submit(release(call, Some(payload), Default::default(), 0));
                arrived += 1;
            }
            assert!(arrived > before, "{arrived} have arrived");
        }
        assert_eq!(scene.world.unreleased(), 0);
        (0..streams).for_each(|tag| scene.world.reset(scene.web, StreamTag(tag), Reason::CANCEL));
        scene.nothing_left();
    }
}

/// Halves of messages that would fill a connection's window, or take exactly half of it, and then silence: each has its
/// time and no more.
#[test]
fn halves_that_would_fill_the_connections_window_stall() {
    let limits = Limits { message_stall_s: 30, ..Limits::default() };
    let message = blob(&[7; 1 << 20]);
    for (streams, bytes) in [(130, 520_000), (64, 512 << 10)] {
        let mut scene = scene_of_streams(streams, 64 << 20, limits.clone());
        let mut sent = vec![0; streams as usize];
        assert!(send_in_turn(&mut scene, &mut sent, &message[..bytes], 64 << 20));
        (0..3).for_each(|_| scene.world.advance(30_000_000_000));
        for tag in (0..streams).map(StreamTag) {
            let said = scene.said(tag);
            assert!(said.message().contains("limits.message_stall_s"), "{streams} of {bytes}: {said:?}");
        }
        scene.server.take();
        scene.nothing_left();
    }
}

/// An application that does not read slows its clients also where the connection's window is short: what waits for it
/// is not without bound. When it reads on, they go on.
#[test]
fn a_short_window_is_not_given_to_messages_that_nobody_reads() {
    let window = 4 << 20;
    let mut scene = scene_of_streams(8, window, Limits::default());
    let (message, mut sent) = (blob(&[7; 600_000]).repeat(20), [0; 8]);
    assert!(!send_in_turn(&mut scene, &mut sent, &message, window), "nobody reads");
    let waits = sent.iter().sum::<usize>();
    assert!(waits < 8 << 20, "a message of each, and a window: {waits}");
    let mut read = 0;
    while read < 8 * 20 {
        send_in_turn(&mut scene, &mut sent, &message, window);
        let before = read;
        for completion in scene.server.take() {
            if let Completion::Message { call, payload, .. } = completion {
                scene.submit(release(call, Some(payload), Default::default(), 0));
                read += 1;
            }
        }
        assert!(read > before, "{read} read, and no more come");
    }
    assert_eq!(scene.world.unreleased(), 0);
}

#[test]
fn a_flood_of_empty_messages_waits_as_bytes() {
    let mut scene = Scene::new();
    scene.world.detach(&scene.server);
    scene.server = scene.world.attach_sized(0, PROTO, None, true, 64 << 10);
    scene.world.request(scene.web, ONE, GATHER, &[], false);
    let flood: Vec<u8> = std::iter::repeat_n(framed(&[]), 20_000).flatten().collect();
    for piece in flood.chunks(16_384) {
        scene.world.body(scene.web, ONE, piece, false);
    }
    let mut taken = 0;
    let mut delivered = None;
    while taken < 20_000 {
        scene.settle();
        let before = taken;
        for completion in scene.server.take() {
            match completion {
                Completion::Call(call) => delivered = Some(call.call),
                Completion::Message { call, payload, .. } => {
                    taken += 1;
                    scene
                        .world
                        .submit(&scene.server, release(call, Some(payload), Default::default(), 0))
                        .unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(taken > before, "stuck after {taken}");
    }
    scene.settle();
    assert_eq!(scene.world.webs[scene.web].streams[&1].unreleased, 0);
    scene.submit(Submission::Finish(finish(delivered.unwrap(), Code::Aborted, None)));
    assert_eq!(scene.said(ONE).code(), 10);
    scene.nothing_left();
}

#[test]
fn a_slow_client_slows_the_application() {
    let window = u64::from(Limits::default().stream_window_bytes);
    let mut scene = Scene::new();
    scene.world.webs[scene.web].reads = false;
    scene.world.request(scene.web, ONE, SCATTER, &[], false);
    scene.world.body(scene.web, ONE, &blob(b"x"), true);
    scene.settle();
    let call = scene.server.take_call();
    scene.submit(release(call.call, call.payload, call.metadata, 0));
    let messages = window / 100_000 + 1;
    for _ in 0..messages {
        let payload = scene.world.blob(&mut scene.server, &[3; 100_000]);
        scene.submit(Submission::Message { call: call.call, payload, end: false, a1: Instant(6) });
    }
    assert!(scene.server.take().is_empty(), "no credit while nothing leaves");
    let queued = scene.world.hosts[0].engine.snapshot().peers[0].queued_bytes;
    assert!((window..window + 110_000).contains(&queued), "what the daemon holds is bounded: {queued}");
    scene.world.leave(scene.web, ONE, 250_000);
    scene.settle();
    let credits = |taken: Vec<Completion>| -> u64 {
        let credit = |completion: &Completion| match completion {
            Completion::Credit { bytes, .. } => u64::from(*bytes),
            other => panic!("{other:?}"),
        };
        taken.iter().map(credit).sum()
    };
    let credited = credits(scene.server.take());
    assert!((200_000..300_000).contains(&credited), "two messages have left: {credited}");
    scene.world.webs[scene.web].reads = true;
    scene.settle();
    assert!(credited + credits(scene.server.take()) >= messages * 100_000, "and then all");
    scene.submit(Submission::Finish(finish(call.call, Code::Ok, None)));
    let said = scene.said(ONE);
    assert_eq!((said.messages.len() as u64, said.code()), (messages, 0));
    scene.nothing_left();
}

#[test]
fn a_client_that_reads_nothing_holds_no_more_than_its_connections_queue() {
    let limits = Limits { connection_queue_bytes: 500_000, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    scene.world.webs[scene.web].reads = false;
    for number in 0..20 {
        scene.ask(StreamTag(number), &[], b"x");
        let call = scene.server.take_call();
        scene.reply(call, Code::Ok, Some(&[9; 100_000]));
    }
    let queued = scene.world.hosts[0].engine.snapshot().peers[0].queued_bytes;
    assert!(queued < 700_000, "{queued}");
    scene.world.webs[scene.web].reads = true;
    for number in 0..20 {
        assert_eq!(answered(&scene.said(StreamTag(number))), [vec![9; 100_000]]);
    }
    scene.nothing_left();
}

#[test]
fn requests_that_never_become_whole_are_bounded() {
    let limits = Limits { assembling_bytes_per_peer: 1 << 20, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let mut refused = 0;
    for number in 0..20 {
        let tag = StreamTag(number);
        scene.world.request(scene.web, tag, ONCE, &[], false);
        scene.world.body(scene.web, tag, &blob(&[1; 200_000])[..100_000], false);
        refused += u32::from(scene.said(tag).trailers.is_some_and(|trailers| trailers["grpc-status"] == "8"));
    }
    assert_eq!(refused, 10, "ten fit");
    for number in 0..20 {
        scene.world.reset(scene.web, StreamTag(number), Reason::CANCEL);
    }
    scene.nothing_left();
}

/// At the limit of a connection the call ends of which most is held, whoever asks for more.
#[test]
fn who_holds_most_pays_for_the_connection() {
    let limits = Limits { assembling_bytes_per_peer: 1 << 20, ..Limits::default() };
    let mut scene = scene_of_streams(4, 64 << 20, limits);
    let (small, large) = (blob(&[8; 200_000]), blob(&[7; 500_000]));
    (1..4).for_each(|tag| scene.world.body(scene.web, StreamTag(tag), &large[..300_000], false));
    scene.world.body(scene.web, StreamTag(0), &small[..160_000], false);
    scene.settle();
    let ended: Vec<u64> = (0..4).filter(|tag| scene.said(StreamTag(*tag)).trailers.is_some()).collect();
    assert!(matches!(ended[..], [1..4]), "{ended:?}");
    scene.world.body(scene.web, StreamTag(0), &small[160_000..], false);
    scene.settle();
    let mut arrived = 0;
    for completion in scene.server.take() {
        if let Completion::Message { call, payload, .. } = completion {
            scene.submit(release(call, Some(payload), Default::default(), 0));
            arrived += 1;
        }
    }
    assert_eq!(arrived, 1);
    (0..4).for_each(|tag| scene.world.reset(scene.web, StreamTag(tag), Reason::CANCEL));
    scene.nothing_left();
}

/// What comes before a message is held like part of it, and does not wait for it for ever.
#[test]
fn heads_whose_messages_never_come_are_bounded() {
    let second = 1_000_000_000;
    let limits = Limits { assembling_bytes_per_peer: 50_000, message_stall_s: 30, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let (word, mut fit) = ("w".repeat(6_000), Vec::new());
    for tag in (0..20).map(StreamTag) {
        scene.world.request(scene.web, tag, ONCE, &[("word", &word)], false);
        match scene.said(tag).trailers {
            Some(trailers) => assert_eq!(trailers["grpc-status"], "8"),
            None => fit.push(tag),
        }
    }
    assert_eq!(fit.len(), 8);
    scene.world.body(scene.web, fit[0], &blob(b"x"), true);
    scene.settle();
    let call = scene.server.take_call();
    scene.reply(call, Code::Ok, Some(b"y"));
    assert_eq!(scene.said(fit[0]).code(), 0);
    (0..3).for_each(|_| scene.world.advance(30 * second));
    for tag in &fit[1..] {
        let trailers = scene.said(*tag).trailers.expect("it ended");
        assert!(trailers["grpc-message"].to_str().unwrap().contains("limits.message_stall_s"));
    }
    scene.nothing_left();
}

/// Compressed messages are unpacked a few in a turn: calls of others come first, and those of another connection that
/// are compressed come before the rest of them.
#[test]
fn compressed_messages_are_unpacked_a_few_in_a_turn() {
    let mut scene = Scene::new();
    let other = scene.world.web_from(0, "tcp://10.9.9.9:1".into());
    let packed = |data: &[u8]| {
        let mut body = Vec::new();
        compress(Encoding::Zstd, &wire_of(data), &mut body).unwrap();
        let mut framed = framed(&body);
        framed[0] = 1;
        framed
    };
    let headers = [("grpc-encoding", "zstd")];
    for tag in (0..300).map(StreamTag) {
        scene.world.request(scene.web, tag, ONCE, &headers, false);
        scene.world.body(scene.web, tag, &packed(b"x"), true);
    }
    for (tag, headers, body) in [(1, &[][..], blob(b"plain")), (2, &headers[..], packed(&[7; 1000]))] {
        scene.world.request(other, StreamTag(tag), ONCE, headers, false);
        scene.world.body(other, StreamTag(tag), &body, true);
    }
    scene.settle();
    let (mut turns, mut all) = (Vec::new(), Vec::new());
    loop {
        let some = scene.server.take();
        turns.push(some.len());
        all.extend(some);
        if !scene.world.fire() {
            break;
        }
        scene.settle();
    }
    // Each counts as 8 KiB, and a megabyte is unpacked in a turn.
    assert_eq!(turns, [128 + 1, 128, 45]);
    let call_of = |completion| match completion {
        Completion::Call(call) => call,
        other => panic!("{other:?}"),
    };
    let calls: Vec<_> = all.into_iter().map(call_of).collect();
    let is_large = |call: &trunkline_call::entry::Call| call.payload.unwrap().span.len > 1000;
    let at = calls.iter().position(is_large);
    assert_eq!(at, Some(128 + 1 + 1), "it has its turn when the first connection has had one");
    for call in calls {
        scene.reply(call, Code::Ok, Some(b"y"));
    }
    for tag in (0..300).map(StreamTag) {
        assert_eq!(scene.said(tag).code(), 0);
    }
    scene.nothing_left();
}

/// What becomes nothing costs its decoder most of all: empty members of gzip, each begun anew.
#[test]
fn what_is_packed_to_be_slow_is_unpacked_a_few_in_a_turn() {
    let mut scene = Scene::new();
    let mut member = Vec::new();
    compress(Encoding::Gzip, b"", &mut member).unwrap();
    let mut body = framed(&member.repeat((8 << 10) / member.len()));
    body[0] = 1;
    for tag in (0..100).map(StreamTag) {
        scene.world.request(scene.web, tag, ONCE, &[("grpc-encoding", "gzip")], false);
        scene.world.body(scene.web, tag, &body, true);
    }
    scene.settle();
    let (mut most, mut all) = (0, Vec::new());
    loop {
        let some = scene.server.take();
        most = most.max(some.len());
        all.extend(some);
        if !scene.world.fire() {
            break;
        }
        scene.settle();
    }
    assert_eq!(all.len(), 100);
    assert!(most <= 10, "{most} in a turn");
    for completion in all {
        let Completion::Call(call) = completion else { panic!("{completion:?}") };
        scene.reply(call, Code::Ok, Some(b"y"));
    }
    scene.nothing_left();
}

/// Eight connections of one client and one of another: what the first may hold is one budget, whose key the refused
/// calls hear, and the other's calls do not notice.
#[test]
fn what_all_connections_of_an_address_hold_is_one_budget() {
    let limits = Limits { held_bytes_per_source: 4 << 20, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let (mut fit, mut refused) = (Vec::new(), 0);
    let label = |port: u32| format!("tcp://10.9.9.9:{port}");
    let webs: Vec<usize> = (1..=8).map(|port| scene.world.web_from(0, label(port))).collect();
    let part = &blob(&[1; 1_000_000])[..900_000];
    for (web, tag) in webs.iter().flat_map(|web| (0..2).map(|tag| (*web, StreamTag(tag)))) {
        scene.world.request(web, tag, ONCE, &[], false);
        scene.world.body(web, tag, part, false);
        scene.settle();
        match scene.world.webs[web].take(tag).trailers {
            Some(trailers) => {
                assert_eq!(trailers["grpc-status"], "8");
                let said = trailers["grpc-message"].to_str().unwrap();
                assert!(said.contains("limits.held_bytes_per_source"), "{said}");
                refused += 1;
            }
            None => fit.push((web, tag)),
        }
    }
    // 4 MiB, and a first step of 256 KiB for each connection.
    assert!((4..=6).contains(&fit.len()) && refused == 16 - fit.len(), "{} fit", fit.len());
    scene.world.request(scene.web, ONE, ONCE, &[], false);
    scene.world.body(scene.web, ONE, part, false);
    assert!(scene.said(ONE).trailers.is_none(), "another address has its own");
    scene.world.reset(scene.web, ONE, Reason::CANCEL);
    for (web, tag) in fit {
        scene.world.reset(web, tag, Reason::CANCEL);
    }
    let (web, whole) = (webs[0], blob(&[1; 1_000_000]));
    scene.world.request(web, ONE, ONCE, &[], false);
    scene.world.body(web, ONE, &whole, true);
    scene.settle();
    let call = scene.server.take_call();
    scene.reply(call, Code::Ok, Some(b"y"));
    assert_eq!(
        answered(&scene.world.webs[web].take(ONE)),
        [b"y".to_vec()],
        "and what was held is given back"
    );
    scene.nothing_left();
}

/// Messages that are complete and wait as bytes behind those that wait as items are in the budget of their address.
#[test]
fn what_waits_as_bytes_is_in_the_budget() {
    let limits = Limits { held_bytes_per_source: 4 << 20, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    scene.world.detach(&scene.server);
    scene.server = scene.world.attach_sized(0, PROTO, None, true, 64 << 10);
    let webs: Vec<usize> =
        (1..=8).map(|port| scene.world.web_from(0, format!("tcp://10.9.9.9:{port}"))).collect();
    let streams: Vec<_> = webs.iter().flat_map(|web| (0..4).map(|tag| (*web, StreamTag(tag)))).collect();
    streams.iter().for_each(|(web, tag)| scene.world.request(*web, *tag, CHAT, &[], false));
    scene.settle();
    assert_eq!(scene.server.take().len(), streams.len());
    let messages = blob(&[1; 1_000]).repeat(16);
    for _ in 0..57 {
        streams.iter().for_each(|(web, tag)| scene.world.body(*web, *tag, &messages, false));
        scene.settle();
        let most = (4 << 20) + webs.len() * (256 << 10) + streams.len() * messages.len();
        assert!(scene.world.unreleased() <= most, "{} of {most}", scene.world.unreleased());
    }
    let mut refused = 0;
    for (web, tag) in &streams {
        let said = scene.world.webs[*web].take(*tag);
        if said.trailers.is_some() {
            assert!(said.message().contains("limits.held_bytes_per_source"), "{}", said.message());
            refused += 1;
        }
    }
    assert!((16..32).contains(&refused), "{refused}");
    scene.ask(ONE, &[], b"x");
    assert!(scene.said(ONE).trailers.is_none(), "another address has its own");
    scene.world.reset(scene.web, ONE, Reason::CANCEL);
    streams.iter().for_each(|(web, tag)| scene.world.reset(*web, *tag, Reason::CANCEL));
    scene.settle();
    assert_eq!(scene.world.unreleased(), 0);
}

/// One address has all the calls in flight at a server that it may have, by several connections: the server takes
/// those of others.
#[test]
fn an_address_that_has_all_calls_it_may_leaves_room_for_another() {
    let mut scene = Scene::with_limits(Limits { calls_delivered_per_session: 64, ..Limits::default() });
    let webs: Vec<usize> =
        (1..=4).map(|port| scene.world.web_from(0, format!("tcp://10.9.9.9:{port}"))).collect();
    let mut taken = 0;
    for (web, tag) in webs.iter().flat_map(|web| (0..40).map(|tag| (*web, StreamTag(tag)))) {
        scene.world.request(web, tag, GATHER, &[], false);
        scene.settle();
        match scene.world.webs[web].take(tag).trailers {
            Some(trailers) => {
                let said = trailers["grpc-message"].to_str().unwrap();
                assert!(said.contains("limits.calls_delivered_per_session"), "{said}");
            }
            None => taken += 1,
        }
    }
    assert!((64..=72).contains(&taken), "{taken} calls of one address");
    scene.server.take();
    scene.world.request(scene.web, ONE, GATHER, &[], false);
    scene.settle();
    assert!(scene.said(ONE).trailers.is_none());
    scene.server.take_call();
}

/// A server reads slowly, and one address has filled its receive heap, and all that may wait for it: a message of
/// another address waits, too, and is not refused.
#[test]
fn an_address_that_fills_a_servers_heap_leaves_room_to_wait_for_another() {
    let mut world = World::with_limits(Limits { parked_bytes_per_session: 64 << 10, ..Limits::default() });
    let mut server = world.attach_sized(0, PROTO, None, true, 96 << 10);
    let [greedy, good] =
        ["tcp://10.9.9.9:1", "tcp://10.8.8.8:1"].map(|label| world.web_from(0, label.into()));
    let mut refused = 0;
    for (web, tag) in (0..20).map(|tag| (greedy, StreamTag(tag))).chain([(good, ONE)]) {
        world.request(web, tag, ONCE, &[], false);
        world.body(web, tag, &blob(&[1; 20_000]), true);
        world.settle(&mut [&mut server]);
        let Some(trailers) = world.webs[web].take(tag).trailers else { continue };
        let said = trailers["grpc-message"].to_str().unwrap();
        assert!(web == greedy && said.contains("limits.parked_bytes_per_session"), "{said}");
        refused += 1;
    }
    assert!((1..20).contains(&refused), "{refused}");
}

/// A client that reads nothing, by many connections: handlers that stream to it are paused, with all its connections
/// together within what its address may hold, and a handler that streams to another goes on.
#[test]
fn handlers_that_stream_to_a_slow_address_are_paused_and_others_go_on() {
    let limits = Limits { held_bytes_per_source: 2 << 20, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let mut webs: Vec<usize> =
        (1..=6).map(|port| scene.world.web_from(0, format!("tcp://10.9.9.9:{port}"))).collect();
    webs.push(scene.web);
    let mut calls = Vec::new();
    for web in &webs {
        scene.world.webs[*web].reads = *web == scene.web;
        scene.world.request(*web, ONE, SCATTER, &[], false);
        scene.world.body(*web, ONE, &blob(b"x"), true);
        scene.settle();
        let call = scene.server.take_call();
        scene.submit(release(call.call, call.payload, call.metadata, 0));
        calls.push(call.call);
    }
    for _ in 0..9 {
        for call in &calls {
            let payload = scene.world.blob(&mut scene.server, &[3; 100_000]);
            scene.submit(Submission::Message { call: *call, payload, end: false, a1: Instant(6) });
        }
    }
    let rows = scene.world.hosts[0].engine.snapshot().peers;
    let queued = rows.iter().map(|row| row.queued_bytes).sum::<u64>();
    assert!(queued <= (2 << 20) + 6 * ((256 << 10) + 100_010), "{queued} of {}", 6 * 900_000);
    assert_eq!(scene.world.webs[scene.web].take(ONE).messages.len(), 9, "the other's all went");
    for web in webs {
        scene.world.webs[web].reads = true;
    }
    scene.settle();
    for call in calls {
        scene.submit(Submission::Finish(finish(call, Code::Ok, None)));
    }
    scene.nothing_left();
}

#[test]
fn a_message_that_does_not_go_on_ends_its_call() {
    let second = 1_000_000_000;
    let mut scene = Scene::with_limits(Limits { message_stall_s: 30, ..Limits::default() });
    let message = blob(&[1; 200_000]);
    let (slow, stalled, idle) = (StreamTag(1), StreamTag(2), StreamTag(3));
    for (tag, path, bytes) in
        [(slow, ONCE, &message[..10_000]), (stalled, ONCE, &message[..10_000]), (idle, GATHER, &message)]
    {
        scene.world.request(scene.web, tag, path, &[], false);
        scene.world.body(scene.web, tag, bytes, false);
    }
    scene.settle();
    let streamed = scene.server.take();
    let [Completion::Call(streaming), Completion::Message { payload, .. }] = streamed[..] else {
        panic!("{streamed:?}")
    };
    scene.submit(release(streaming.call, Some(payload), Default::default(), 0));
    for piece in message[10_000..].chunks(20_000).take(4) {
        scene.world.advance(20 * second);
        scene.world.body(scene.web, slow, piece, false);
    }
    let trailers = scene.said(stalled).trailers.expect("it ended");
    assert_eq!(trailers["grpc-status"], "8");
    assert!(trailers["grpc-message"].to_str().unwrap().contains("limits.message_stall_s"));
    assert!(scene.said(slow).trailers.is_none(), "what goes on may take its time");
    assert!(scene.said(idle).trailers.is_none(), "between two messages a stream may be silent");
    scene.world.body(scene.web, slow, &message[90_000..], true);
    scene.settle();
    let call = scene.server.take_call();
    scene.reply(call, Code::Ok, Some(b"y"));
    assert_eq!(scene.said(slow).code(), 0);
    scene.submit(Submission::Finish(finish(streaming.call, Code::Aborted, None)));
    assert_eq!(scene.said(idle).code(), 10);
    scene.world.advance(600 * second);
    scene.nothing_left();
}

/// The deadlines of answers that wait to leave have a connection's streams looked at, too: that accuses no message
/// that has only begun. And none is accused of what the one before it had been seen to do.
#[test]
fn a_message_has_its_time_however_often_it_is_looked_at() {
    let second = 1_000_000_000;
    let mut scene = Scene::with_limits(Limits { message_stall_s: 30, ..Limits::default() });
    scene.world.webs[scene.web].reads = false;
    for (tag, timeout) in [(1, "5S"), (2, "6S"), (3, "7S")] {
        scene.ask(StreamTag(tag), &[("grpc-timeout", timeout)], b"x");
        let call = scene.server.take_call();
        scene.reply(call, Code::Ok, Some(&[9; 100_000]));
    }
    let (slow, message) = (StreamTag(4), blob(&[1; 500]));
    scene.world.advance(4 * second);
    scene.world.request(scene.web, slow, GATHER, &[], false);
    scene.world.body(scene.web, slow, &message[..100], false);
    for _ in 0..4 {
        scene.world.advance(second);
        scene.settle();
    }
    assert!(scene.said(slow).trailers.is_none(), "looked at three times within four seconds");
    scene.world.advance(25 * second);
    scene.world.body(scene.web, slow, &message[100..], false);
    scene.world.body(scene.web, slow, &message[..100], false);
    scene.world.advance(25 * second);
    scene.settle();
    assert!(
        scene.said(slow).trailers.is_none(),
        "of this message hardly anything has come for 25 seconds only"
    );
    scene.world.advance(10 * second);
    scene.settle();
    let completions = scene.server.take();
    assert!(matches!(completions.last(), Some(Completion::Cancelled { code: Code::ResourceExhausted, .. })));
}

/// An answer that waits for its client to read is dropped when its deadline passes: one that is complete, and one that
/// a handler was in the middle of.
#[test]
fn deadlines_hold_for_answers_that_wait_to_leave() {
    let mut scene = Scene::new();
    scene.world.webs[scene.web].reads = false;
    let (whole, begun) = (StreamTag(1), StreamTag(2));
    scene.ask(whole, &[("grpc-timeout", "5S")], b"x");
    let call = scene.server.take_call();
    scene.reply(call, Code::Ok, Some(&[9; 100_000]));
    scene.world.request(scene.web, begun, SCATTER, &[("grpc-timeout", "6S")], false);
    scene.world.body(scene.web, begun, &blob(b"x"), true);
    scene.settle();
    let call = scene.server.take_call();
    scene.submit(release(call.call, call.payload, call.metadata, 0));
    let payload = scene.world.blob(&mut scene.server, &[3; 100_000]);
    scene.submit(Submission::Message { call: call.call, payload, end: false, a1: Instant(6) });
    let queued = |scene: &Scene| scene.world.hosts[0].engine.snapshot().peers[0].queued_bytes;
    assert!(queued(&scene) > 200_000);
    scene.world.advance(5_500_000_000);
    scene.settle();
    assert!((100_000..110_000).contains(&queued(&scene)), "{}", queued(&scene));
    let said = scene.said(whole);
    assert_eq!((said.code(), said.messages.len()), (4, 0));
    scene.world.advance(1_000_000_000);
    scene.settle();
    assert_eq!(queued(&scene), 0);
    assert_eq!(scene.said(begun).code(), 4);
    assert!(matches!(
        scene.server.take().last(),
        Some(Completion::Cancelled { code: Code::DeadlineExceeded, .. })
    ));
    scene.submit(Submission::Finish(finish(call.call, Code::Ok, None)));
    scene.world.webs[scene.web].reads = true;
    scene.nothing_left();
}

#[test]
fn operators_tell_grpc_peers_from_native_ones() {
    let mut scene = Scene::new();
    scene.ask(ONE, &[], b"x");
    let call = scene.server.take_call();
    let row = scene.world.hosts[0].engine.snapshot().peers.remove(0);
    assert_eq!((row.protocol, row.streams, row.outgoing), (Protocol::Grpc, 1, false));
    assert_eq!(row.label, "tcp://10.0.0.1:4711");
    scene.reply(call, Code::Ok, Some(b"y"));
    scene.said(ONE);
    let ask = Ask::default();
    let seen = scene.world.hosts[0].engine.telemetry().snapshot(scene.world.now, &ask);
    let entry = seen.series.iter().find(|entry| entry.method == ONCE).expect("the call is recorded");
    assert_eq!((entry.peer.as_str(), entry.series.calls()), ("grpc tcp://10.0.0.1", 1));
}

#[test]
fn a_draining_host_says_so() {
    let mut scene = Scene::new();
    let now = scene.world.now;
    scene.world.hosts[0].engine.drain(now);
    scene.settle();
    assert!(scene.world.webs[scene.web].said.iter().any(|command| matches!(command, Command::GoAway)));
    scene.world.request(scene.web, ONE, ONCE, &[], true);
    assert_eq!(scene.said(ONE).code(), 14);
}

#[test]
fn events_out_of_place_harm_nobody() {
    let mut scene = Scene::new();
    let stray = StreamTag(99);
    scene.world.body(scene.web, stray, b"nobody's", false);
    scene.world.trailers(scene.web, stray, &[("grpc-status", "0")]);
    scene.world.reset(scene.web, stray, Reason::NO_ERROR);
    scene.world.answer(scene.web, stray, 200, &[], false);
    scene.world.http(scene.web, Event::Sent { stream: stray, bytes: 77 });
    scene.world.http(scene.web, Event::Written { stream: stray, at: Instant(7) });
    scene.world.http(scene.web, Event::Ready { streams_max: 3 });
    scene.world.http(scene.web, Event::StreamsMax { streams_max: 0 });
    scene.world.http(scene.web, Event::GoAway { reason: Reason(77), debug: Default::default() });
    scene.ask(ONE, &[], b"x");
    scene.world.trailers(scene.web, ONE, &[]);
    scene.world.body(scene.web, ONE, b"behind the end", true);
    let call = scene.server.take_call();
    scene.world.http(scene.web, Event::Sent { stream: ONE, bytes: usize::MAX });
    scene.reply(call, Code::Ok, Some(b"y"));
    assert_eq!(answered(&scene.said(ONE)), [b"y".to_vec()]);
    scene.nothing_left();
}
