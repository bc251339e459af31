//! Shows applications that keep their types to themselves at gRPC's edge: served to gRPC clients and calling gRPC
//! servers, in all patterns; and what an application may say of a call there: how its messages are compressed, and whom
//! it is for.

use crate::world;

use std::sync::Arc;
use trunkline_call::entry::{Call, Completion, Finish, MessageCompression, Payload, Span, Submission};
use trunkline_call::{Code, Instant, Metadata};
use trunkline_engine::{BoundSchema, GatewaySettings, Limits};
use trunkline_grpc::StreamTag;
use trunkline_grpc::compress::{Encoding, compress, decompress};
use trunkline_schema::Schema;
use world::web::{Said, blob};
use world::*;

const ONE: StreamTag = StreamTag(1);
const TARGET: Option<&str> = Some("tcp://10.1.1.1:50051");
const OK: &[(&str, &str)] = &[("grpc-status", "0")];

/// One application behind a host, and one connection of HTTP/2 before it.
struct Scene {
    world: World,
    app: App,
}

impl Scene {
    /// An application that serves, without saying its types unless `typed`.
    fn serving(typed: bool) -> Self {
        let mut world = World::new();
        let app = match typed {
            true => world.attach(0, PROTO, None, true),
            false => world.attach_opaque(0, None, true),
        };
        world.web(0);
        Self { world, app }
    }

    /// An application that calls, its connection up.
    fn calling(typed: bool, target: Option<&str>) -> Self {
        let mut world = World::new();
        world.foreign = true;
        let app = match typed {
            true => world.attach(0, PROTO, target, false),
            false => world.attach_opaque(0, target, false),
        };
        Self { world, app }
    }

    fn settle(&mut self) {
        self.world.settle(&mut [&mut self.app]);
    }

    fn submit(&mut self, submission: Submission) {
        self.world.submit(&self.app, submission).unwrap();
        self.settle();
    }

    fn send(&mut self, call: Call, data: &[u8], end: bool) {
        let payload = self.world.message(&mut self.app, data);
        self.submit(Submission::Message { call: call.call, payload, end, a1: Instant(5) });
    }

    fn finish(&mut self, call: Call, code: Code, payload: Option<Payload>) {
        self.submit(Submission::Finish(finish(call.call, code, payload)));
    }

    fn said(&mut self, tag: StreamTag) -> Said {
        self.settle();
        self.world.webs[0].take(tag)
    }

    fn metadata(&mut self, pairs: &[(&str, &str)]) -> Span {
        let mut metadata = Metadata::new();
        for (key, value) in pairs {
            metadata.insert(key, value).unwrap();
        }
        self.world.put_metadata(&mut self.app, &metadata)
    }

    /// Makes a call with metadata and says what the server sees of it.
    fn make(&mut self, route: usize, pairs: &[(&str, &str)], data: &[u8]) -> (Call, StreamTag, Said) {
        let payload = self.world.message(&mut self.app, data);
        let mut call = self.app.call(route, Some(payload), true);
        call.metadata = self.metadata(pairs);
        self.submit(Submission::Call(call));
        if self.world.webs[0].streams.is_empty() {
            self.world.http(0, trunkline_grpc::Event::Ready { streams_max: 100 });
            self.settle();
        }
        let tag = self.world.webs[0].newest();
        let said = self.said(tag);
        (call, tag, said)
    }

    /// What has come for the application, released: messages, and the outcome if that has come.
    fn taken(&mut self) -> (Vec<Vec<u8>>, bool, Option<Finish>) {
        let (mut messages, mut ended, mut outcome) = (Vec::new(), false, None);
        for completion in self.app.take() {
            match completion {
                Completion::Message { call, payload, end } => {
                    messages.push(self.world.data(&self.app, payload));
                    ended |= end;
                    self.submit(release(call, Some(payload), Span::default(), 0));
                }
                Completion::Headers { call, metadata } => self.submit(release(call, None, metadata, 0)),
                Completion::Finish(finish) => {
                    messages.extend(finish.payload.map(|payload| self.world.data(&self.app, payload)));
                    self.submit(release(finish.call, finish.payload, finish.metadata, 9));
                    outcome = Some(finish);
                }
                Completion::HalfClose { .. } => ended = true,
                Completion::Credit { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        (messages, ended, outcome)
    }

    /// The delivered call, its path, and what has come of its request.
    fn delivered(&mut self) -> (Call, String, Metadata, Vec<Vec<u8>>, bool) {
        let at = self.app.inbox.iter().position(|completion| matches!(completion, Completion::Call(_)));
        let Completion::Call(call) = self.app.inbox.remove(at.expect("a call")) else { unreachable!() };
        let bytes = self.world.received(&self.app, call.metadata).to_vec();
        let (len, rest) = bytes.split_first_chunk::<2>().unwrap();
        let (path, metadata) = rest.split_at(u16::from_le_bytes(*len).into());
        let (path, metadata) =
            (String::from_utf8(path.to_vec()).unwrap(), Metadata::decode(metadata).unwrap());
        let mut messages: Vec<_> =
            call.payload.iter().map(|payload| self.world.data(&self.app, *payload)).collect();
        self.submit(release(call.call, call.payload, call.metadata, 0));
        let (later, ended, _) = self.taken();
        messages.extend(later);
        (call, path, metadata, messages, ended || call.end)
    }

    #[track_caller]
    fn nothing_left(&mut self) {
        self.settle();
        self.world.nothing_left();
    }
}

fn data_of_all(said: &Said) -> Vec<Vec<u8>> {
    said.messages.iter().map(|(_, message)| data_of(message)).collect()
}

#[test]
fn a_grpc_client_calls_an_opaque_server() {
    let mut scene = Scene::serving(false);
    // The client knows the patterns; the host does not.
    for (number, (asked, answered)) in [(1, 1), (3, 1), (1, 3), (3, 3), (0, 0)].into_iter().enumerate() {
        let (tag, path) = (StreamTag(number as u64), format!("/world.Echo/Any{number}"));
        scene.world.request(0, tag, &path, &[("tenant", "blue")], asked == 0);
        for index in 0..asked {
            scene.world.body(0, tag, &blob(&vec![index as u8; 70_000]), index + 1 == asked);
        }
        scene.settle();
        let (call, said_path, metadata, messages, ended) = scene.delivered();
        assert_eq!((said_path, metadata.text("tenant"), ended), (path, Some("blue"), true));
        assert_eq!(messages, (0..asked).map(|index| vec![index as u8; 70_000]).collect::<Vec<_>>());
        for index in 0..answered {
            scene.send(call, &vec![index as u8; 70_000], false);
        }
        scene.finish(call, Code::Ok, None);
        let said = scene.said(tag);
        assert_eq!((said.status, said.code()), (200, 0), "{said:?}");
        assert_eq!(
            data_of_all(&said),
            (0..answered).map(|index| vec![index as u8; 70_000]).collect::<Vec<_>>()
        );
        scene.taken();
    }
    scene.nothing_left();
}

/// A gateway that was told the types knows that the method gives one answer; the server, behind another daemon, does
/// not, and sends it ahead of its end.
#[test]
fn an_answer_in_parts_goes_through_a_gateway_that_knows_the_method() {
    let mut world = World::new();
    let schema = Schema::from_proto_source("world.proto", PROTO).unwrap();
    let schemas = vec![Arc::new(BoundSchema::new(schema))];
    let engine = &mut world.hosts[0].engine;
    engine.configure_gateway(GatewaySettings { schemas, ..GatewaySettings::default() });
    engine.configure_service("world.Echo", &["tcp://10.1.1.1:50051".to_owned()]).unwrap();
    let app = world.attach_opaque(1, None, true);
    world.web_at_gateway(0, &[]);
    let mut scene = Scene { world, app };
    for (number, answers) in [(1, 1), (2, 0)] {
        let tag = StreamTag(number);
        scene.world.request(0, tag, ONCE, &[], false);
        scene.world.body(0, tag, &blob(b"ask"), true);
        scene.settle();
        let (call, ..) = scene.delivered();
        (0..answers).for_each(|_| scene.send(call, b"answer", false));
        scene.finish(call, Code::Ok, None);
        let said = scene.said(tag);
        let code = if answers == 0 { Code::Internal } else { Code::Ok };
        assert_eq!(said.code(), u32::from(code.number()), "{said:?}");
        assert_eq!(data_of_all(&said), vec![b"answer".to_vec(); answers]);
        scene.taken();
    }
    scene.nothing_left();
}

#[test]
fn an_opaque_server_fails_as_it_likes() {
    let mut scene = Scene::serving(false);
    scene.world.request(0, ONE, ONCE, &[], false);
    scene.world.body(0, ONE, &blob(b"ask"), true);
    scene.settle();
    let (call, ..) = scene.delivered();
    scene.finish(call, Code::NotFound, None);
    let said = scene.said(ONE);
    assert_eq!((said.code(), said.messages.len()), (5, 0));
    scene.nothing_left();
}

#[test]
fn an_opaque_client_calls_a_grpc_server() {
    let mut scene = Scene::calling(false, TARGET);
    for (asked, answered) in [(1, 1), (3, 1), (1, 3), (3, 3), (1, 0)] {
        let (call, tag, first) = {
            let call = scene.app.call(3, None, false);
            scene.submit(Submission::Call(call));
            if scene.world.webs[0].streams.is_empty() {
                scene.world.http(0, trunkline_grpc::Event::Ready { streams_max: 100 });
                scene.settle();
            }
            let tag = scene.world.webs[0].newest();
            (call, tag, scene.said(tag))
        };
        assert_eq!((first.path.as_str(), first.ended), (CHAT, false), "the head goes ahead");
        for index in 0..asked {
            scene.send(call, &vec![index as u8; 70_000], index + 1 == asked);
        }
        let said = scene.said(tag);
        assert!(said.ended);
        assert_eq!(data_of_all(&said), (0..asked).map(|index| vec![index as u8; 70_000]).collect::<Vec<_>>());
        scene.world.answer(0, tag, 200, &[], false);
        scene.settle();
        assert!(
            scene.app.inbox.iter().any(|completion| matches!(completion, Completion::Headers { .. })),
            "an opaque caller is told that the answer begins"
        );
        for index in 0..answered {
            scene.world.body(0, tag, &blob(&vec![index as u8; 60_000]), false);
        }
        scene.world.trailers(0, tag, OK);
        scene.settle();
        let (messages, _, outcome) = scene.taken();
        assert_eq!(outcome.map(|outcome| outcome.code), Some(Code::Ok), "{asked} {answered}");
        assert_eq!(messages, (0..answered).map(|index| vec![index as u8; 60_000]).collect::<Vec<_>>());
    }
    scene.nothing_left();
}

#[test]
fn an_opaque_client_is_refused_in_trailers_only() {
    let mut scene = Scene::calling(false, TARGET);
    let (_, tag, _) = scene.make(0, &[], b"ask");
    scene.world.answer(0, tag, 200, &[("grpc-status", "7"), ("grpc-message", "no")], true);
    scene.settle();
    let (messages, _, outcome) = scene.taken();
    assert_eq!((messages.len(), outcome.map(|outcome| outcome.code)), (0, Some(Code::PermissionDenied)));
    scene.nothing_left();
}

#[test]
fn an_application_says_how_its_requests_are_compressed() {
    for typed in [true, false] {
        let mut scene = Scene::calling(typed, TARGET);
        for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd, Encoding::Identity] {
            let (_, tag, said) =
                scene.make(0, &[("grpc-encoding", encoding.name()), ("tenant", "blue")], &[7; 10_000]);
            let compresses = encoding != Encoding::Identity;
            let named = compresses.then(|| encoding.name());
            assert_eq!(said.head.get("grpc-encoding").map(|name| name.to_str().unwrap()), named);
            assert_eq!(said.head["tenant"], "blue");
            let (flag, message) = &said.messages[0];
            let mut plain = Vec::new();
            decompress(encoding, message, 1 << 20, &mut plain).unwrap();
            assert_eq!((*flag, data_of(&plain)), (compresses, vec![7; 10_000]), "{encoding:?}");
            scene.world.answer(0, tag, 200, &[], false);
            scene.world.body(0, tag, &blob(b"done"), false);
            scene.world.trailers(0, tag, OK);
            scene.settle();
            assert_eq!(scene.taken().0, [b"done"]);
        }
        let (_, tag, said) = scene.make(0, &[("grpc-encoding", "snappy")], &[7; 10_000]);
        assert!(!said.head.contains_key("grpc-encoding"), "a word nobody knows is no word");
        scene.world.answer(0, tag, 200, OK, true);
        scene.settle();
        scene.taken();
        scene.nothing_left();
    }
}

#[test]
fn an_application_says_how_its_answers_are_compressed() {
    let mut scene = Scene::serving(true);
    for (number, (said_by_app, accepts, sent_as)) in [
        ("gzip", "identity,gzip", Encoding::Gzip),
        ("zstd", "zstd,gzip", Encoding::Zstd),
        ("zstd", "gzip", Encoding::Identity),
        ("identity", "gzip", Encoding::Identity),
        ("nothing", "gzip", Encoding::Identity),
    ]
    .into_iter()
    .enumerate()
    {
        let tag = StreamTag(number as u64);
        scene.world.request(0, tag, ONCE, &[("grpc-accept-encoding", accepts)], false);
        scene.world.body(0, tag, &blob(b"ask"), true);
        scene.settle();
        let call = scene.app.take_call();
        scene.submit(release(call.call, call.payload, call.metadata, 0));
        let metadata = scene.metadata(&[("grpc-encoding", said_by_app), ("kept", "yes")]);
        scene.submit(Submission::Headers { call: call.call, metadata });
        let payload = scene.world.message(&mut scene.app, &[9; 10_000]);
        scene.finish(call, Code::Ok, Some(payload));
        let said = scene.said(tag);
        let named = said.head.get("grpc-encoding").map(|name| name.to_str().unwrap());
        assert_eq!(named, (sent_as != Encoding::Identity).then(|| sent_as.name()), "{said_by_app} {accepts}");
        assert_eq!((said.code(), said.head["kept"].to_str().unwrap()), (0, "yes"));
        let mut plain = Vec::new();
        decompress(sent_as, &said.messages[0].1, 1 << 20, &mut plain).unwrap();
        assert_eq!(data_of(&plain), [9; 10_000]);
    }
    scene.nothing_left();
}

fn squeezed(message: &[u8]) -> Vec<u8> {
    let mut body = vec![1, 0, 0, 0, 0];
    compress(Encoding::Gzip, message, &mut body).unwrap();
    let len = body.len() as u32 - 5;
    body[1..5].copy_from_slice(&len.to_be_bytes());
    body
}

/// Also where the application is on another shard than its gRPC client.
#[test]
fn each_message_of_a_stream_tells_whether_it_was_compressed() {
    for (typed, host) in [(true, 0), (false, 0), (true, 2), (false, 2)] {
        let mut world = World::with_shards(Limits::default(), 3);
        world.placed = Some(host);
        let app = match typed {
            true => world.attach(0, PROTO, None, true),
            false => world.attach_opaque(0, None, true),
        };
        world.web(0);
        let mut scene = Scene { world, app };
        let pairs = [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "gzip")];
        scene.world.request(0, ONE, CHAT, &pairs, false);
        scene.settle();
        let call = scene.app.take_call();
        scene.submit(release(call.call, call.payload, call.metadata, 0));
        for (body, wanted) in [
            (squeezed(&wire_of(&[3; 10_000])), MessageCompression::Compressed),
            (blob(&[4; 10_000]), MessageCompression::Unsaid),
        ] {
            scene.world.body(0, ONE, &body, false);
            scene.settle();
            let came = scene.app.take();
            let [Completion::Message { payload, .. }] = came[..] else { panic!("{came:?}") };
            assert_eq!(payload.compression, wanted, "typed {typed}, host {host}");
            assert_eq!(scene.world.data(&scene.app, payload).len(), 10_000);
            scene.submit(release(call.call, Some(payload), Span::default(), 0));
        }
        let metadata = scene.metadata(&[("grpc-encoding", "gzip")]);
        scene.submit(Submission::Headers { call: call.call, metadata });
        for compression in [MessageCompression::Unsaid, MessageCompression::Plain] {
            let payload = scene.world.message(&mut scene.app, &[5; 10_000]);
            let payload = Payload { compression, ..payload };
            scene.submit(Submission::Message { call: call.call, payload, end: false, a1: Instant(5) });
        }
        let mut last = scene.world.message(&mut scene.app, &[6; 10_000]);
        last.compression = MessageCompression::Plain;
        scene.world.body(0, ONE, &[], true);
        scene.finish(call, Code::Ok, Some(last));
        let said = scene.said(ONE);
        let flags: Vec<bool> = said.messages.iter().map(|(flag, _)| *flag).collect();
        assert_eq!((said.code(), &*flags), (0, &[true, false, false][..]), "typed {typed}, host {host}");
        assert!(said.head.contains_key("grpc-encoding"));
    }
}

/// To a gRPC server, and what it answers.
#[test]
fn a_request_that_is_not_to_be_compressed_is_not() {
    for typed in [true, false] {
        let mut scene = Scene::calling(typed, TARGET);
        for compression in [MessageCompression::Unsaid, MessageCompression::Plain] {
            let payload = scene.world.message(&mut scene.app, &[7; 10_000]);
            let mut call = scene.app.call(0, Some(Payload { compression, ..payload }), true);
            call.metadata = scene.metadata(&[("grpc-encoding", "gzip")]);
            scene.submit(Submission::Call(call));
            if scene.world.webs[0].streams.is_empty() {
                scene.world.http(0, trunkline_grpc::Event::Ready { streams_max: 100 });
                scene.settle();
            }
            let tag = scene.world.webs[0].newest();
            let said = scene.said(tag);
            assert_eq!(said.messages[0].0, compression == MessageCompression::Unsaid, "typed {typed}");
            scene.world.answer(0, tag, 200, &[("grpc-encoding", "gzip")], false);
            scene.world.body(0, tag, &squeezed(&wire_of(b"done")), false);
            scene.world.trailers(0, tag, OK);
            scene.settle();
            let answer = scene.app.inbox.iter().find_map(|came| match came {
                Completion::Message { payload, .. } => Some(payload.compression),
                Completion::Finish(finish) => finish.payload.map(|payload| payload.compression),
                _ => None,
            });
            assert_eq!(answer, Some(MessageCompression::Compressed));
            assert_eq!(scene.taken().0, [b"done"]);
        }
        scene.nothing_left();
    }
}

#[test]
fn requests_say_whom_they_are_for() {
    for (target, pairs, authority) in [
        ("tcp://10.1.1.1:50051", &[][..], "10.1.1.1:50051"),
        ("tls://search.internal@10.1.1.1:443", &[], "search.internal"),
        ("tls://search.internal@10.1.1.1:8443", &[], "search.internal:8443"),
        ("tcp://10.1.1.1:50051", &[("host", "blue.example")], "blue.example"),
        ("tcp://10.1.1.1:50051", &[("host", "user@blue.example")], "10.1.1.1:50051"),
        ("tcp://10.1.1.1:50051", &[("host", "not an authority")], "10.1.1.1:50051"),
    ] {
        let mut scene = Scene::calling(true, Some(target));
        let (_, _, said) = scene.make(0, pairs, b"ask");
        assert_eq!(said.authority, authority, "{target} {pairs:?}");
        assert!(!said.head.contains_key("host"));
    }
}

#[test]
fn a_name_is_whom_a_request_is_for() {
    let name = "dns:///search.example:50051";
    let mut scene = Scene::calling(true, Some(name));
    let payload = scene.world.message(&mut scene.app, b"ask");
    let call = scene.app.call(0, Some(payload), true);
    scene.submit(Submission::Call(call));
    let engine = &mut scene.world.hosts[0].engine;
    assert_eq!(engine.poll_lookup().as_deref(), Some(name));
    let found = ["tcp://10.1.1.1:50051".to_owned()];
    let now = scene.world.now;
    let Host { engine, heaps } = &mut scene.world.hosts[0];
    engine.handle_looked_up(&mut trunkline_engine::Turn { now, heaps }, name, Ok(&found));
    scene.settle();
    scene.world.http(0, trunkline_grpc::Event::Ready { streams_max: 100 });
    scene.settle();
    let tag = scene.world.webs[0].newest();
    assert_eq!(scene.said(tag).authority, "search.example:50051");
}
