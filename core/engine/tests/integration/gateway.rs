//! Shows calls of gRPC clients that a host forwards to its endpoints: to gRPC servers and to another daemon, all
//! patterns, every way to end, windows from end to end, and what the gateway refuses.

use crate::world;

use http::HeaderMap;
use std::sync::Arc;
use trunkline_call::entry::{Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Execution, Instant, Metadata};
use trunkline_engine::{BoundSchema, GatewaySettings, GrpcSettings, Limits, R2p2Settings, Turn};
use trunkline_grpc::compress::{Encoding, compress, decompress};
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_grpc::{Command, Event, Reason, StreamTag};
use trunkline_policy::{Chain, Definition, Kind, Side};
use trunkline_schema::Schema;
use trunkline_telemetry::{Ask, Component, Coverage, Entry, Side as Recorded};
use world::web::{Said, blob, framed};
use world::*;

const ONE: StreamTag = StreamTag(1);
const TWO: StreamTag = StreamTag(3);
const OK: &[(&str, &str)] = &[("grpc-status", "0")];
const SERVICE: &str = "world.Echo";
/// The client's connection; those of servers follow.
const CLIENT: usize = 0;

/// One host, a client at its gateway, and gRPC servers wherever it dials.
struct Scene {
    world: World,
}

impl Scene {
    fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        Self::with(limits, &["tcp://10.1.1.1:50051"], &[])
    }

    fn with(limits: Limits, endpoints: &[&str], rules: &[(&str, bool)]) -> Self {
        let mut world = World::with_limits(limits);
        world.foreign = true;
        let endpoints: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
        world.hosts[0].engine.configure_service(SERVICE, &endpoints).unwrap();
        assert_eq!(world.web_at_gateway(0, rules), CLIENT);
        Self { world }
    }

    /// A scene whose server's connection is up.
    fn connected() -> Self {
        let mut scene = Self::new();
        scene.connect();
        scene
    }

    fn connect(&mut self) {
        self.ask(StreamTag(99), ONCE, &[], b"first");
        self.ready(1);
        let tag = self.server(1);
        self.world.webs[1].take(tag);
        self.respond(1, tag, b"first");
        assert_eq!(answered(&self.said(CLIENT, StreamTag(99))), [b"first".to_vec()]);
    }

    fn told() -> GatewaySettings {
        let schema = Schema::from_proto_source("world.proto", PROTO).unwrap();
        GatewaySettings { schemas: vec![Arc::new(BoundSchema::new(schema))], ..GatewaySettings::default() }
    }

    fn settle(&mut self) {
        self.world.settle(&mut []);
    }

    /// What is unpacked a few in a turn gets the turns it needs.
    fn settle_in_turns(&mut self) {
        self.settle();
        while self.world.fire() {
            self.settle();
        }
    }

    fn ready(&mut self, web: usize) {
        self.world.http(web, Event::Ready { streams_max: 100 });
        self.settle();
    }

    /// The newest stream at a server.
    fn server(&self, web: usize) -> StreamTag {
        self.world.webs[web].newest()
    }

    /// A whole unary request.
    fn ask(&mut self, tag: StreamTag, path: &str, headers: &[(&str, &str)], data: &[u8]) {
        self.world.request(CLIENT, tag, path, headers, false);
        self.world.body(CLIENT, tag, &blob(data), true);
        self.settle();
    }

    fn open(&mut self, tag: StreamTag, path: &str, headers: &[(&str, &str)]) {
        self.world.request(CLIENT, tag, path, headers, false);
        self.settle();
    }

    fn body(&mut self, web: usize, tag: StreamTag, bytes: &[u8], end: bool) {
        self.world.body(web, tag, bytes, end);
        self.settle();
    }

    fn said(&mut self, web: usize, tag: StreamTag) -> Said {
        self.settle();
        self.world.webs[web].take(tag)
    }

    /// A whole unary answer.
    fn respond(&mut self, web: usize, tag: StreamTag, data: &[u8]) {
        self.world.respond(web, tag, data);
        self.settle();
    }

    fn apply(&mut self, definitions: &[Definition]) {
        let chain = Chain::build(definitions).unwrap();
        let Host { engine, heaps } = &mut self.world.hosts[0];
        engine.apply_policies(chain).unwrap();
        engine.serve_waiting(&mut Turn { now: self.world.now, heaps });
    }

    fn configure(&mut self, service_config: &str) {
        let config = ServiceConfig::parse(service_config).unwrap();
        self.world.hosts[0].engine.configure_calls(SERVICE, config);
    }

    fn recorded(&mut self) -> Vec<Entry> {
        let now = self.world.now;
        self.world.hosts[0].engine.telemetry().snapshot(now, &Ask::default()).series
    }

    #[track_caller]
    fn nothing_left(&mut self) {
        self.settle();
        self.world.nothing_left();
    }
}

fn message(call: CallId, payload: Payload) -> Submission {
    Submission::Message { call, payload, end: false, a1: Instant(2) }
}

fn data_of(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 % 251) as u8).collect()
}

#[track_caller]
fn answered(said: &Said) -> Vec<Vec<u8>> {
    assert_eq!((said.status, said.code()), (200, 0), "{said:?}");
    said.messages.iter().map(|(_, message)| world::data_of(message)).collect()
}

fn text<'m>(map: &'m HeaderMap, name: &str) -> &'m str {
    map.get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn a_unary_call_goes_on_to_a_grpc_server_with_all_it_says() {
    let mut scene = Scene::new();
    let headers =
        &[("grpc-timeout", "2S"), ("tenant", "blue"), ("key-bin", "AQI"), ("user-agent", "grpc-go/1.60")];
    scene.ask(ONE, ONCE, headers, b"hello");
    scene.ready(1);
    let tag = scene.server(1);
    let asked = scene.said(1, tag);
    assert_eq!((asked.path.as_str(), asked.authority.as_str()), (ONCE, "10.1.1.1:50051"));
    assert_eq!(world::data_of(&asked.messages[0].1), b"hello");
    assert_eq!((text(&asked.head, "tenant"), text(&asked.head, "key-bin")), ("blue", "AQI"));
    assert_eq!(text(&asked.head, "grpc-timeout"), "2000000u");
    assert_eq!(text(&asked.head, "trunkline-hops"), "1");
    assert!(text(&asked.head, "user-agent").starts_with("grpc-go/1.60 grpc-trunkline/"));
    scene.world.answer(1, tag, 200, &[("early", "1")], false);
    scene.world.body(1, tag, &blob(b"olleh"), false);
    scene.world.trailers(1, tag, &[("grpc-status", "0"), ("late-bin", "/wA")]);
    let said = scene.said(CLIENT, ONE);
    assert_eq!(answered(&said), [b"olleh".to_vec()]);
    assert_eq!(text(&said.head, "early"), "1");
    assert_eq!(text(said.trailers.as_ref().unwrap(), "late-bin"), "/wA");
    scene.nothing_left();
}

#[test]
fn a_failure_comes_back_whole_with_a_head_and_without() {
    for headed in [false, true] {
        let mut scene = Scene::connected();
        scene.ask(ONE, ONCE, &[], b"x");
        let tag = scene.server(1);
        let failed = &[
            ("grpc-status", "9"),
            ("grpc-message", "no%20room%21"),
            ("grpc-status-details-bin", "CAkSBG5vbmU"),
            ("why", "full"),
        ];
        if headed {
            scene.world.answer(1, tag, 200, &[], false);
            scene.world.trailers(1, tag, failed);
        } else {
            scene.world.answer(1, tag, 200, failed, true);
        }
        let said = scene.said(CLIENT, ONE);
        let trailers = said.trailers.as_ref().unwrap();
        assert_eq!((said.code(), text(trailers, "grpc-message")), (9, "no%20room%21"));
        assert_eq!(text(trailers, "grpc-status-details-bin"), "CAkSBG5vbmU");
        assert_eq!(text(trailers, "why"), "full");
        assert_eq!(text(trailers, "trunkline-execution"), "executed");
        scene.nothing_left();
    }
}

#[test]
fn streams_of_all_patterns() {
    for (path, up, down) in [(ONCE, 1, 1), (GATHER, 3, 1), (SCATTER, 1, 3), (CHAT, 3, 3)] {
        for told in [false, true] {
            let mut scene = Scene::new();
            if told {
                scene.world.hosts[0].engine.configure_gateway(Scene::told());
            }
            scene.open(ONE, path, &[]);
            for n in 0..up {
                scene.body(CLIENT, ONE, &blob(&[n]), n + 1 == up);
            }
            scene.ready(1);
            let tag = scene.server(1);
            let asked = scene.said(1, tag);
            let sent: Vec<_> = asked.messages.iter().map(|(_, m)| world::data_of(m)).collect();
            assert_eq!((sent, asked.ended), ((0..up).map(|n| vec![n]).collect(), true), "{path} {told}");
            scene.world.answer(1, tag, 200, &[], false);
            for n in 0..down {
                scene.body(1, tag, &blob(&[n]), false);
            }
            scene.world.trailers(1, tag, OK);
            let said = scene.said(CLIENT, ONE);
            assert_eq!(answered(&said), (0..down).map(|n| vec![n]).collect::<Vec<_>>(), "{path} {told}");
            scene.nothing_left();
        }
    }
}

/// What is unpacked a few in a turn gets the turns it needs.
fn settle_in_turns(world: &mut World, server: &mut App) {
    world.settle(&mut [&mut *server]);
    while world.fire() {
        world.settle(&mut [&mut *server]);
    }
}

/// Two hosts: a client at the gateway of the first, the service at the second, over the native protocol or over gRPC.
fn two_hosts(proto: Option<&str>, bridged: bool) -> (World, App) {
    let mut world = World::new();
    world.bridged = bridged;
    let server = match proto {
        Some(proto) => world.attach(1, proto, None, true),
        None => world.attach_opaque(1, None, true),
    };
    world.hosts[0].engine.configure_service(SERVICE, &["tcp://10.0.0.2:1".to_owned()]).unwrap();
    world.web_at_gateway(0, &[]);
    (world, server)
}

#[test]
fn calls_go_on_to_another_daemon_and_to_its_applications_in_their_own_form() {
    for (proto, bridged) in [(Some(PROTO), false), (None, false), (Some(PROTO), true), (None, true)] {
        let (mut world, mut server) = two_hosts(proto, bridged);
        for (n, data) in [&b"hello"[..], b"", &[7; 3_000_000]].into_iter().enumerate() {
            let tag = StreamTag(n as u64 * 2 + 1);
            world.request(CLIENT, tag, ONCE, &[("grpc-timeout", "5S"), ("key-bin", "AQI")], false);
            world.body(CLIENT, tag, &blob(data), true);
            world.settle(&mut [&mut server]);
            let call = take_delivered(&mut world, &mut server, data);
            let metadata = delivered_metadata(&world, &server, call.metadata);
            let named = (metadata.first("key-bin"), metadata.text("trunkline-hops"));
            assert_eq!(named, (Some(&[1, 2][..]), Some("1")));
            assert!(call.deadline.instant().is_some());
            world.submit(&server, release(call.call, None, call.metadata, 0)).unwrap();
            let mut trailers = Metadata::new();
            trailers.insert("late", "1").unwrap();
            let mut end = finish(call.call, Code::Ok, Some(world.message(&mut server, data)));
            end.metadata = world.put_metadata(&mut server, &trailers);
            world.submit(&server, Submission::Finish(end)).unwrap();
            world.settle(&mut [&mut server]);
            let said = world.webs[CLIENT].take(tag);
            assert_eq!(answered(&said), [data.to_vec()]);
            assert_eq!(text(said.trailers.as_ref().unwrap(), "late"), "1");
        }
        server.take();
        assert_eq!((world.leftovers(), world.unreleased()), ((0, 0), 0));
    }
}

/// What a delivered call says of itself; that of a service served as a whole says its path first.
fn delivered_metadata(world: &World, server: &App, span: Span) -> Metadata {
    let bytes = world.received(server, span);
    let path = if server.is_opaque { 2 + usize::from(u16::from_le_bytes([bytes[0], bytes[1]])) } else { 0 };
    Metadata::decode(&bytes[path..]).unwrap()
}

/// The one call delivered, whose message is released; of an opaque server it comes behind the call.
#[track_caller]
fn take_delivered(world: &mut World, server: &mut App, data: &[u8]) -> trunkline_call::entry::Call {
    let (mut found, mut messages) = (None, 0);
    for completion in server.take() {
        let (call, payload) = match completion {
            Completion::Call(call) => {
                found = Some(call);
                (call.call, call.payload)
            }
            Completion::Message { call, payload, .. } => (call, Some(payload)),
            _ => continue,
        };
        if let Some(payload) = payload {
            messages += 1;
            assert_eq!(world.data(server, payload), data);
            world.submit(server, release(call, Some(payload), Span::default(), 0)).unwrap();
        }
    }
    assert_eq!(messages, 1);
    found.expect("a call is delivered")
}

#[test]
fn a_client_that_goes_away_takes_its_call_along() {
    for hangs_up in [false, true] {
        let mut scene = Scene::connected();
        scene.open(ONE, CHAT, &[]);
        scene.body(CLIENT, ONE, &blob(b"a"), false);
        let tag = scene.server(1);
        match hangs_up {
            true => scene.world.hang_up(CLIENT),
            false => scene.world.reset(CLIENT, ONE, Reason::CANCEL),
        }
        assert_eq!(scene.said(1, tag).reset, Some(Reason::CANCEL));
        scene.nothing_left();
    }
}

#[test]
fn a_server_that_resets_or_goes_away_ends_the_call_with_a_status() {
    let endings: [fn(&mut Scene, StreamTag); 3] = [
        |scene, tag| scene.world.reset(1, tag, Reason::INTERNAL_ERROR),
        |scene, tag| scene.world.reset(1, tag, Reason::ENHANCE_YOUR_CALM),
        |scene, _| scene.world.hang_up(1),
    ];
    for (end, code) in endings.into_iter().zip([13, 8, 14]) {
        let mut scene = Scene::connected();
        scene.open(ONE, CHAT, &[]);
        scene.body(CLIENT, ONE, &blob(b"a"), false);
        let tag = scene.server(1);
        end(&mut scene, tag);
        let said = scene.said(CLIENT, ONE);
        assert_eq!((said.code(), said.ended), (code, true));
        scene.nothing_left();
    }
}

#[test]
fn the_deadline_ends_both_ends() {
    let mut scene = Scene::connected();
    scene.ask(ONE, ONCE, &[("grpc-timeout", "1S")], b"x");
    let tag = scene.server(1);
    scene.said(1, tag);
    scene.world.advance(1_000_000_001);
    let said = scene.said(CLIENT, ONE);
    assert_eq!(said.code(), Code::DeadlineExceeded as u32);
    assert!(said.message().ends_with("(node near)"), "{}", said.message());
    assert_eq!(scene.said(1, tag).reset, Some(Reason::CANCEL));
    scene.nothing_left();
}

#[test]
fn a_server_that_does_not_read_stops_the_client() {
    let limits = Limits { stream_window_bytes: 64 << 10, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    scene.connect();
    scene.world.webs[1].reads = false;
    scene.open(ONE, CHAT, &[]);
    let message = data_of(10_000);
    for _ in 0..40 {
        scene.body(CLIENT, ONE, &blob(&message), false);
    }
    let tag = scene.server(1);
    let queued = scene.world.webs[1].streams[&tag.0].unsent;
    assert!((64 << 10..96 << 10).contains(&queued), "{queued} bytes for a server that does not read");
    let held = scene.world.unreleased();
    assert!(held >= 40 * 10_000, "nothing is given back to the client before it has left: {held}");
    let before = held;
    scene.world.leave(1, tag, 30_000);
    scene.settle();
    assert!(scene.world.unreleased() <= before - 20_000, "what leaves is given back");
    scene.world.webs[1].reads = true;
    scene.body(CLIENT, ONE, &[], true);
    let asked = scene.said(1, tag);
    assert_eq!((asked.messages.len(), asked.ended), (40, true));
    scene.world.answer(1, tag, 200, &[], false);
    scene.world.trailers(1, tag, OK);
    answered(&scene.said(CLIENT, ONE));
    scene.nothing_left();
}

#[test]
fn a_client_that_does_not_read_stops_the_server() {
    let limits = Limits { stream_window_bytes: 64 << 10, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    scene.connect();
    scene.ask(ONE, SCATTER, &[], b"x");
    let tag = scene.server(1);
    scene.world.webs[CLIENT].reads = false;
    scene.world.answer(1, tag, 200, &[], false);
    let message = data_of(10_000);
    for _ in 0..40 {
        scene.body(1, tag, &blob(&message), false);
    }
    let queued = scene.world.webs[CLIENT].streams[&ONE.0].unsent;
    assert!((64 << 10..96 << 10).contains(&queued), "{queued} bytes for a client that does not read");
    assert!(scene.world.unreleased() >= 40 * 10_000, "nothing is given back before it has left");
    scene.world.trailers(1, tag, OK);
    scene.world.webs[CLIENT].reads = true;
    let said = scene.said(CLIENT, ONE);
    assert_eq!(answered(&said).len(), 40);
    scene.nothing_left();
}

#[test]
fn a_client_that_does_not_read_stops_a_server_behind_another_daemon() {
    let (mut world, mut server) = two_hosts(Some(PROTO), false);
    world.request(CLIENT, ONE, SCATTER, &[], false);
    world.body(CLIENT, ONE, &blob(b"x"), true);
    world.settle(&mut [&mut server]);
    let call = take_delivered(&mut world, &mut server, b"x");
    world.submit(&server, release(call.call, None, call.metadata, 0)).unwrap();
    world.webs[CLIENT].reads = false;
    let (mut sent, mut credit) = (0, i64::from(Limits::default().stream_window_bytes));
    let credited = |server: &mut App| -> i64 {
        let of = |completion: &Completion| match completion {
            Completion::Credit { bytes, .. } => i64::from(*bytes),
            _ => 0,
        };
        server.take().iter().map(of).sum()
    };
    for _ in 0..1_000 {
        credit += credited(&mut server);
        if credit < 100_100 {
            break;
        }
        let payload = world.message(&mut server, &[5; 100_000]);
        credit -= i64::from(payload.window_bytes());
        world.submit(&server, message(call.call, payload)).unwrap();
        world.settle(&mut [&mut server]);
        sent += 1;
    }
    assert!((20..100).contains(&sent), "{sent} messages of 100 kB for a client that reads nothing");
    world.webs[CLIENT].reads = true;
    world.settle(&mut [&mut server]);
    assert!(credited(&mut server) > 1_000_000, "what leaves is given back to the handler");
    world.submit(&server, Submission::Finish(finish(call.call, Code::Ok, None))).unwrap();
    world.settle(&mut [&mut server]);
    assert_eq!(answered(&world.webs[CLIENT].take(ONE)).len(), sent);
    server.take();
    assert_eq!((world.leftovers(), world.unreleased()), ((0, 0), 0));
}

const PACKINGS: [Encoding; 3] = [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd];

/// A message behind its prefix, as it is.
fn flagged(compressed: bool, bytes: &[u8]) -> Vec<u8> {
    let mut out = framed(bytes);
    out[0] = u8::from(compressed);
    out
}

fn squeezed(encoding: Encoding, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(encoding, message, &mut out).unwrap();
    out
}

fn loosened(encoding: Encoding, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    decompress(encoding, message, 16 << 20, &mut out).unwrap();
    out
}

#[test]
fn compressed_messages_pass_as_they_came() {
    // That it is nobody's compression shows that nobody has unpacked it. What is not compressed stays so.
    let mixed: [(bool, Vec<u8>); 4] = [
        (true, b"no encoding makes this".to_vec()),
        (false, data_of(5_000)),
        (true, vec![]),
        (true, data_of(9)),
    ];
    let body: Vec<u8> = mixed.iter().flat_map(|(compressed, bytes)| flagged(*compressed, bytes)).collect();
    for (encoding, told, retries) in PACKINGS.iter().flat_map(|encoding| {
        [(false, false), (true, false), (false, true), (true, true)].map(|(a, b)| (*encoding, a, b))
    }) {
        let mut scene = Scene::with_limits(generous());
        if told {
            scene.world.hosts[0].engine.configure_gateway(Scene::told());
        }
        if retries {
            scene.configure(RETRIES);
        }
        scene.connect();
        let accepts = format!("{},identity", encoding.name());
        let headers = [("grpc-encoding", encoding.name()), ("grpc-accept-encoding", &*accepts)];
        for (path, request, answer) in [
            (CHAT, &body[..], &body[..]),
            (ONCE, &flagged(true, b"request")[..], &flagged(true, b"answer")[..]),
            (SCATTER, &flagged(false, b"request")[..], &body[..]),
        ] {
            scene.open(ONE, path, &headers);
            // However it is cut.
            scene.body(CLIENT, ONE, &request[..7], false);
            scene.body(CLIENT, ONE, &request[7..], true);
            let tag = scene.server(1);
            let asked = scene.said(1, tag);
            let sent: Vec<u8> =
                asked.messages.iter().flat_map(|(flag, bytes)| flagged(*flag, bytes)).collect();
            assert_eq!((sent, asked.ended), (request.to_vec(), true), "{encoding:?} {path} told: {told}");
            assert_eq!(text(&asked.head, "grpc-encoding"), encoding.name());
            let offered = text(&asked.head, "grpc-accept-encoding");
            assert_eq!(offered, format!("identity,{}", encoding.name()), "what the client reads");
            scene.world.answer(1, tag, 200, &[("grpc-encoding", encoding.name())], false);
            scene.world.body(1, tag, answer, false);
            scene.world.trailers(1, tag, OK);
            let said = scene.said(CLIENT, ONE);
            let heard: Vec<u8> =
                said.messages.iter().flat_map(|(flag, bytes)| flagged(*flag, bytes)).collect();
            assert_eq!((heard, said.code()), (answer.to_vec(), 0), "{encoding:?} {path} told: {told}");
            assert_eq!(text(&said.head, "grpc-encoding"), encoding.name());
        }
        scene.nothing_left();
    }
}

#[test]
fn what_comes_compressed_is_unpacked_for_a_client_that_cannot_read_it() {
    let message = wire_of(&data_of(1_000));
    for encoding in PACKINGS {
        let mut scene = Scene::connected();
        scene.ask(ONE, ONCE, &[("grpc-accept-encoding", "identity")], b"x");
        let tag = scene.server(1);
        assert_eq!(text(&scene.said(1, tag).head, "grpc-accept-encoding"), "identity");
        scene.world.answer(1, tag, 200, &[("grpc-encoding", encoding.name())], false);
        scene.world.body(1, tag, &flagged(true, &squeezed(encoding, &message)), false);
        scene.world.trailers(1, tag, OK);
        let said = scene.said(CLIENT, ONE);
        assert_eq!((text(&said.head, "grpc-encoding"), &said.messages[0]), ("", &(false, message.clone())));
        // And what is no compression, or too much, is no answer.
        for (packed, code) in [(b"junk".to_vec(), 13), (squeezed(encoding, &vec![0; 5 << 20]), 8)] {
            scene.ask(ONE, ONCE, &[], b"x");
            let tag = scene.server(1);
            scene.world.answer(1, tag, 200, &[("grpc-encoding", encoding.name())], false);
            scene.world.body(1, tag, &flagged(true, &packed), false);
            scene.world.trailers(1, tag, OK);
            scene.settle_in_turns();
            assert_eq!(scene.said(CLIENT, ONE).code(), code, "{encoding:?}");
        }
        scene.nothing_left();
    }
}

#[test]
fn a_server_that_cannot_read_an_encoding_is_heard_and_gets_no_more_of_it() {
    let message = wire_of(&data_of(1_000));
    for (retries, trailers_only) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut scene = Scene::with_limits(generous());
        if retries {
            scene.configure(RETRIES);
        }
        scene.connect();
        let refusal = [
            ("grpc-accept-encoding", "snappy, gzip"),
            ("grpc-status", "12"),
            ("grpc-message", "zstd is not supported"),
        ];
        for (encoding, sent_as) in [
            (Encoding::Zstd, Encoding::Zstd),
            (Encoding::Zstd, Encoding::Identity),
            (Encoding::Gzip, Encoding::Gzip),
        ] {
            scene.open(ONE, ONCE, &[("grpc-encoding", encoding.name())]);
            scene.body(CLIENT, ONE, &flagged(true, &squeezed(encoding, &message)), true);
            let tag = scene.server(1);
            let asked = scene.said(1, tag);
            let (flag, bytes) = &asked.messages[0];
            assert_eq!(*flag, sent_as != Encoding::Identity);
            assert_eq!(text(&asked.head, "grpc-encoding"), if *flag { sent_as.name() } else { "" });
            assert_eq!(loosened(sent_as, bytes), message);
            if sent_as == Encoding::Zstd {
                match trailers_only {
                    true => scene.world.answer(1, tag, 200, &refusal, true),
                    false => {
                        scene.world.answer(1, tag, 200, &refusal[..1], false);
                        scene.world.trailers(1, tag, &refusal[1..]);
                    }
                }
                let said = scene.said(CLIENT, ONE);
                assert_eq!((said.code(), said.message()), (12, "zstd is not supported"));
                assert_eq!(text(&said.head, "grpc-accept-encoding"), "identity,gzip", "as it was said");
            } else {
                scene.respond(1, tag, b"y");
                answered(&scene.said(CLIENT, ONE));
            }
        }
        scene.nothing_left();
    }
}

#[test]
fn compressed_requests_are_tried_again_as_they_came() {
    let packed = flagged(true, b"no encoding makes this");
    let mut scene = Scene::with_limits(generous());
    scene.configure(RETRIES);
    scene.connect();
    scene.open(ONE, ONCE, &[("grpc-encoding", "gzip")]);
    scene.body(CLIENT, ONE, &packed, true);
    let first = scene.server(1);
    assert_eq!(scene.said(1, first).messages[0], (true, packed[5..].to_vec()));
    scene.world.answer(1, first, 200, &[("grpc-status", "14")], true);
    scene.world.advance(200_000_000);
    scene.settle();
    let second = scene.server(1);
    assert_ne!(first, second);
    let asked = scene.said(1, second);
    assert_eq!((&asked.messages[0], asked.ended), (&(true, packed[5..].to_vec()), true));
    scene.respond(1, second, b"y");
    answered(&scene.said(CLIENT, ONE));
    // And sent again, if the server has not seen it.
    let mut scene = Scene::connected();
    scene.open(ONE, CHAT, &[("grpc-encoding", "zstd")]);
    scene.body(CLIENT, ONE, &[&packed[..], &flagged(false, b"plain")].concat(), true);
    let first = scene.server(1);
    scene.said(1, first);
    scene.world.reset(1, first, Reason::REFUSED_STREAM);
    scene.settle();
    let second = scene.server(1);
    let asked = scene.said(1, second);
    let sent: Vec<u8> = asked.messages.iter().flat_map(|(flag, bytes)| flagged(*flag, bytes)).collect();
    assert_eq!((sent, asked.ended), ([&packed[..], &flagged(false, b"plain")].concat(), true));
    scene.respond(1, second, b"y");
    answered(&scene.said(CLIENT, ONE));
    scene.nothing_left();
}

#[test]
fn a_policy_that_reads_gets_messages_unpacked() {
    let deny = Definition {
        service: Some(SERVICE.into()),
        deny: Some("request.note == 'secret'".into()),
        ..policy(Kind::Access, "notes")
    };
    let noted = |note: &str| [&[0x12, note.len() as u8], note.as_bytes()].concat();
    for (path, encoding) in [ONCE, GATHER, SCATTER, CHAT].into_iter().zip(PACKINGS.into_iter().cycle()) {
        let mut scene = Scene::new();
        scene.world.hosts[0].engine.configure_gateway(Scene::told());
        scene.connect();
        scene.apply(std::slice::from_ref(&deny));
        let long = noted(&"plain".repeat(25));
        let bomb = vec![0; 5 << 20];
        for (n, packed, code) in [
            (1, squeezed(encoding, &long), 0),
            (3, squeezed(encoding, &noted("secret")), 7),
            (5, b"junk".to_vec(), 13),
            (7, squeezed(encoding, &bomb), 8),
        ] {
            scene.open(StreamTag(n), path, &[("grpc-encoding", encoding.name())]);
            scene.body(CLIENT, StreamTag(n), &flagged(true, &packed), true);
            scene.settle_in_turns();
            if code == 0 {
                let tag = scene.server(1);
                let asked = scene.said(1, tag);
                let (flag, bytes) = &asked.messages[0];
                assert_eq!(text(&asked.head, "grpc-encoding"), encoding.name());
                assert_eq!(if *flag { loosened(encoding, bytes) } else { bytes.clone() }, long);
                scene.respond(1, tag, b"y");
            }
            assert_eq!(scene.said(CLIENT, StreamTag(n)).code(), code, "{path} {encoding:?}");
        }
        scene.nothing_left();
    }
}

#[test]
fn daemons_get_messages_unpacked() {
    for (encoding, retries) in PACKINGS.into_iter().flat_map(|encoding| [(encoding, false), (encoding, true)])
    {
        let (mut world, mut server) = two_hosts(Some(PROTO), false);
        if retries {
            world.hosts[0].engine.configure_calls(SERVICE, ServiceConfig::parse(RETRIES).unwrap());
        }
        for (n, data) in [&b"hello"[..], &[7; 3_000_000]].into_iter().enumerate() {
            let tag = StreamTag(n as u64 * 2 + 1);
            world.request(CLIENT, tag, ONCE, &[("grpc-encoding", encoding.name())], false);
            world.body(CLIENT, tag, &flagged(true, &squeezed(encoding, &wire_of(data))), true);
            settle_in_turns(&mut world, &mut server);
            let call = take_delivered(&mut world, &mut server, data);
            world.submit(&server, release(call.call, None, call.metadata, 0)).unwrap();
            let end = finish(call.call, Code::Ok, Some(world.message(&mut server, data)));
            world.submit(&server, Submission::Finish(end)).unwrap();
            world.settle(&mut [&mut server]);
            assert_eq!(answered(&world.webs[CLIENT].take(tag)), [data.to_vec()]);
        }
        // What is no message, and what becomes too large, is refused here.
        for (path, packed, code) in [
            (ONCE, b"junk".to_vec(), [3, 13]),
            (ONCE, squeezed(encoding, &vec![0; 5 << 20]), [8, 8]),
            (CHAT, b"junk".to_vec(), [3, 13]),
        ] {
            world.request(CLIENT, TWO, path, &[("grpc-encoding", encoding.name())], false);
            world.settle(&mut [&mut server]);
            world.body(CLIENT, TWO, &flagged(true, &packed), true);
            settle_in_turns(&mut world, &mut server);
            for completion in server.take() {
                if let Completion::Call(call) = completion {
                    world.submit(&server, release(call.call, None, call.metadata, 0)).unwrap();
                }
            }
            let said = world.webs[CLIENT].take(TWO);
            assert!(code.contains(&said.code()), "{path} {encoding:?} {said:?}");
        }
        server.take();
        assert_eq!((world.leftovers(), world.unreleased()), ((0, 0), 0));
    }
}

#[test]
fn a_policy_changes_the_compression() {
    let mut scene = Scene::connected();
    scene.apply(&[Definition {
        name: "small".into(),
        kind: Kind::Compress,
        side: Side::Client,
        encoding: Some(trunkline_policy::EncodingName::Gzip),
        ..Definition::default()
    }]);
    scene.ask(ONE, ONCE, &[], &[7; 1_000]);
    let tag = scene.server(1);
    let asked = scene.said(1, tag);
    assert_eq!((text(&asked.head, "grpc-encoding"), asked.messages[0].0), ("gzip", true));
    scene.respond(1, tag, b"y");
    answered(&scene.said(CLIENT, ONE));
    scene.nothing_left();
}

#[test]
fn a_circle_of_gateways_ends() {
    let mut scene = Scene::connected();
    for (said, forwarded) in [("0", Some("1")), ("3", Some("4")), ("4", None), ("many", None), ("-1", None)] {
        scene.ask(ONE, ONCE, &[("trunkline-hops", said)], b"x");
        let tag = scene.server(1);
        match forwarded {
            Some(hops) => {
                assert_eq!(text(&scene.said(1, tag).head, "trunkline-hops"), hops);
                scene.respond(1, tag, b"y");
                answered(&scene.said(CLIENT, ONE));
            }
            None => {
                let refused = scene.said(CLIENT, ONE);
                assert_eq!(refused.code(), Code::FailedPrecondition as u32, "{said}");
                let trailers = refused.trailers.as_ref().unwrap();
                assert_eq!(text(trailers, "trunkline-execution"), "not-executed");
                for words in ["gateway.hops_max", SERVICE, "(node near)"] {
                    assert!(refused.message().contains(words), "{}", refused.message());
                }
            }
        }
        scene.world.webs[CLIENT].streams.remove(&ONE.0);
    }
    scene.nothing_left();
}

#[test]
fn what_applications_of_this_host_serve_is_called_there() {
    let mut scene = Scene::connected();
    let mut server = scene.world.attach(0, PROTO, None, true);
    scene.world.request(CLIENT, ONE, ONCE, &[], false);
    scene.world.body(CLIENT, ONE, &blob(b"x"), true);
    scene.world.settle(&mut [&mut server]);
    let call = server.take_call();
    assert!(scene.world.metadata(&server, call.metadata).text("trunkline-hops").is_none());
    scene.world.submit(&server, release(call.call, call.payload, call.metadata, 0)).unwrap();
    let payload = scene.world.blob(&mut server, b"y");
    scene.world.submit(&server, Submission::Finish(finish(call.call, Code::Ok, Some(payload)))).unwrap();
    scene.world.settle(&mut [&mut server]);
    assert_eq!(answered(&scene.said(CLIENT, ONE)), [b"y".to_vec()]);
    server.take();
    scene.nothing_left();
}

#[test]
fn what_the_daemon_answers_for_want_of_anybody_else_is_asked_of_the_endpoints_there_are() {
    let mut scene = Scene::connected();
    let mut own = scene.world.attach_standing_by(0);
    scene.ask(ONE, ONCE, &[], b"x");
    let tag = scene.server(1);
    scene.world.answer(1, tag, 200, &[], false);
    scene.world.body(1, tag, &blob(b"y"), false);
    scene.world.trailers(1, tag, OK);
    assert_eq!(answered(&scene.said(CLIENT, ONE)), [b"y".to_vec()]);
    assert!(own.take().is_empty(), "nothing came here");
    scene.nothing_left();
}

#[test]
fn what_has_no_endpoint_is_refused_with_what_to_write() {
    let mut scene = Scene::connected();
    scene.ask(ONE, "/other.Service/Do", &[], b"x");
    let said = scene.said(CLIENT, ONE);
    assert_eq!(said.code(), Code::Unimplemented as u32);
    assert!(said.message().contains("services.\"other.Service\".endpoints"), "{}", said.message());
    scene.ask(TWO, "/trunkline.admin.v1.Admin/List", &[], b"x");
    assert_eq!(scene.said(CLIENT, TWO).code(), Code::Unimplemented as u32, "the daemon's own are not there");
    scene.nothing_left();
}

#[test]
fn only_who_came_to_the_gateway_is_forwarded() {
    let mut scene = Scene::connected();
    let other = scene.world.web(0);
    scene.world.request(other, ONE, ONCE, &[], false);
    let said = scene.said(other, ONE);
    assert_eq!(said.code(), Code::Unavailable as u32);
    assert!(said.message().contains("gateway.listen"), "{}", said.message());
    scene.nothing_left();
}

#[test]
fn rules_say_who_may_call_what() {
    let rules = &[("world.Echo", false), ("*", true)];
    let mut scene = Scene::with(Limits::default(), &["tcp://10.1.1.1:50051"], rules);
    scene.ask(ONE, ONCE, &[], b"x");
    let said = scene.said(CLIENT, ONE);
    assert_eq!(said.code(), Code::PermissionDenied as u32);
    for words in ["uid 7, gid 7", "world.Echo", "[[call]]"] {
        assert!(said.message().contains(words), "{}", said.message());
    }
    scene.ask(TWO, "/other.Service/Do", &[], b"x");
    assert_eq!(scene.said(CLIENT, TWO).code(), Code::Unimplemented as u32);
    let of_nobody = |code: Code| ("(other)".to_owned(), code.number());
    let refused = [of_nobody(Code::PermissionDenied), of_nobody(Code::Unimplemented)];
    assert_eq!(scene.world.refused(0), refused, "this host knows, and what nobody has bound has no name");
    // What applications of this host serve is no way around them.
    let _server = scene.world.attach(0, PROTO, None, true);
    scene.ask(StreamTag(5), ONCE, &[], b"x");
    assert_eq!(scene.said(CLIENT, StreamTag(5)).code(), Code::PermissionDenied as u32);
    scene.nothing_left();
}

#[test]
fn rules_hold_for_users_of_this_host_who_come_elsewhere_than_to_the_gateway() {
    let mut scene = Scene::new();
    let mut server = scene.world.attach(0, PROTO, None, true);
    for (permits, code) in [(false, Code::PermissionDenied), (true, Code::Ok)] {
        let web = scene.world.web_of_user(0, &[("world.Echo", permits)], |engine, label, who, rights| {
            engine.http().accept_user(label, who, rights)
        });
        scene.world.request(web, ONE, ONCE, &[], false);
        scene.world.body(web, ONE, &blob(b"x"), true);
        scene.world.settle(&mut [&mut server]);
        if permits {
            let call = take_delivered(&mut scene.world, &mut server, b"x");
            scene.world.submit(&server, release(call.call, None, call.metadata, 0)).unwrap();
            let payload = scene.world.blob(&mut server, b"y");
            scene
                .world
                .submit(&server, Submission::Finish(finish(call.call, Code::Ok, Some(payload))))
                .unwrap();
            scene.world.settle(&mut [&mut server]);
        }
        assert_eq!(scene.said(web, ONE).code(), code as u32);
        // Nobody forwards its calls.
        scene.world.request(web, TWO, "/other.Service/Do", &[], true);
        assert_eq!(scene.said(web, TWO).code(), Code::Unimplemented as u32);
    }
    server.take();
    scene.nothing_left();
}

#[test]
fn an_endpoint_that_cannot_be_reached_is_said_so() {
    let mut scene = Scene::new();
    scene.world.unreachable = true;
    scene.ask(ONE, ONCE, &[], b"x");
    let said = scene.said(CLIENT, ONE);
    assert_eq!(said.code(), Code::Unavailable as u32);
    assert!(said.message().contains("tcp://10.1.1.1:50051"), "{}", said.message());
    scene.nothing_left();
}

#[test]
fn messages_that_are_too_long_end_their_call_only() {
    let limits = Limits { grpc_message_bytes: 10_000, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    scene.connect();
    scene.open(ONE, CHAT, &[]);
    let mut announced = framed(&[]);
    announced[1..5].copy_from_slice(&10_001u32.to_be_bytes());
    scene.body(CLIENT, ONE, &announced, false);
    let said = scene.said(CLIENT, ONE);
    assert_eq!(said.code(), Code::ResourceExhausted as u32);
    assert!(said.message().contains("limits.grpc_message_bytes"), "{}", said.message());
    scene.ask(TWO, ONCE, &[], b"x");
    let tag = scene.server(1);
    scene.world.answer(1, tag, 200, &[], false);
    scene.body(1, tag, &announced, false);
    assert_eq!(scene.said(CLIENT, TWO).code(), Code::ResourceExhausted as u32);
    scene.nothing_left();
}

#[test]
fn methods_nobody_here_knows_are_learned_up_to_a_limit_and_called_beyond_it() {
    let limits = Limits { methods_learned_per_service: 3, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    scene.connect();
    for n in 0..8 {
        let path = format!("/world.Echo/M{n}");
        scene.ask(ONE, &path, &[], b"x");
        let tag = scene.server(1);
        assert_eq!(scene.said(1, tag).path, path);
        scene.respond(1, tag, b"y");
        answered(&scene.said(CLIENT, ONE));
        scene.world.webs[CLIENT].streams.remove(&ONE.0);
    }
    let paths: std::collections::BTreeSet<_> =
        scene.recorded().into_iter().map(|entry| entry.method).collect();
    assert!(paths.len() <= 5, "{paths:?}");
    scene.nothing_left();
}

#[test]
fn on_the_way_to_a_daemon_methods_beyond_the_limit_are_refused_unless_their_schema_is_told() {
    for told in [false, true] {
        let mut world = World::with_limits(Limits { methods_learned_per_service: 1, ..Limits::default() });
        let mut server = world.attach(1, PROTO, None, true);
        let engine = &mut world.hosts[0].engine;
        if told {
            engine.configure_gateway(Scene::told());
        }
        engine.configure_service(SERVICE, &["tcp://10.0.0.2:1".to_owned()]).unwrap();
        world.web_at_gateway(0, &[]);
        for (tag, path, goes) in [(ONE, ONCE, true), (TWO, SCATTER, told)] {
            world.request(CLIENT, tag, path, &[], false);
            world.body(CLIENT, tag, &blob(b"x"), true);
            world.settle(&mut [&mut server]);
            let seen = server.take().iter().any(|one| matches!(one, Completion::Call(_)));
            assert_eq!(seen, goes, "{path}, told {told}");
            if !goes {
                let said = world.webs[CLIENT].take(tag);
                assert_eq!(said.code(), Code::ResourceExhausted as u32);
                assert!(said.message().contains("limits.methods_learned_per_service"), "{}", said.message());
            }
        }
    }
}

const RETRIES: &str = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3,
    "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;

fn generous() -> Limits {
    Limits { attempts_percent: 400, attempts_per_second: 1000, ..Limits::default() }
}

#[test]
fn a_failure_is_tried_again_as_the_service_config_says() {
    for path in [ONCE, CHAT] {
        let mut scene = Scene::with_limits(generous());
        scene.connect();
        scene.configure(RETRIES);
        scene.open(ONE, path, &[("tenant", "blue")]);
        scene.body(CLIENT, ONE, &blob(b"a"), false);
        let first = scene.server(1);
        scene.said(1, first);
        scene.world.answer(1, first, 200, &[("grpc-status", "14")], true);
        scene.settle();
        scene.world.advance(20_000_000);
        scene.body(CLIENT, ONE, &[], true);
        let second = scene.server(1);
        assert_ne!(first, second, "another attempt");
        let asked = scene.said(1, second);
        assert_eq!(text(&asked.head, "grpc-previous-rpc-attempts"), "1");
        assert_eq!((text(&asked.head, "tenant"), asked.ended), ("blue", true));
        assert_eq!(world::data_of(&asked.messages[0].1), b"a");
        scene.respond(1, second, b"y");
        assert_eq!(answered(&scene.said(CLIENT, ONE)), [b"y".to_vec()]);
        scene.nothing_left();
    }
}

#[test]
fn a_stream_goes_on_behind_its_first_attempt_however_long_it_is() {
    let limits = Limits { grpc_replay_bytes_per_call: 4_000, stream_window_bytes: 64 << 10, ..generous() };
    for native in [false, true] {
        let mut world = World::with_limits(limits.clone());
        world.foreign = !native;
        let mut server = world.attach(1, PROTO, None, true);
        world.hosts[0].engine.configure_service(SERVICE, &["tcp://10.1.1.1:1".to_owned()]).unwrap();
        world.hosts[0].engine.configure_calls(SERVICE, ServiceConfig::parse(RETRIES).unwrap());
        world.web_at_gateway(0, &[]);
        world.request(CLIENT, ONE, GATHER, &[], false);
        for n in 0..100u8 {
            world.body(CLIENT, ONE, &blob(&[n; 300]), n == 99);
        }
        world.settle(&mut [&mut server]);
        let seen = match native {
            false => {
                world.http(1, Event::Ready { streams_max: 100 });
                world.settle(&mut []);
                let tag = world.webs[1].newest();
                let asked = world.webs[1].take(tag);
                assert!(asked.ended);
                world.answer(1, tag, 200, &[], false);
                world.body(1, tag, &blob(b"y"), false);
                world.trailers(1, tag, OK);
                asked.messages.iter().map(|(_, message)| world::data_of(message)[0]).collect()
            }
            true => take_stream(&mut world, &mut server),
        };
        assert_eq!(seen, (0..100).collect::<Vec<u8>>(), "native: {native}");
        world.settle(&mut [&mut server]);
        assert_eq!(answered(&world.webs[CLIENT].take(ONE)), [b"y".to_vec()]);
        server.take();
        assert_eq!((world.leftovers(), world.unreleased()), ((0, 0), 0));
    }
}

/// Takes a client's stream at a typed server, and answers it.
fn take_stream(world: &mut World, server: &mut App) -> Vec<u8> {
    let (mut seen, mut id) = (Vec::new(), None);
    loop {
        let completions = server.take();
        if completions.is_empty() {
            break;
        }
        for completion in completions {
            let (call, payload, metadata) = match completion {
                Completion::Call(call) => {
                    id = Some(call.call);
                    (call.call, call.payload, call.metadata)
                }
                Completion::Message { call, payload, .. } => (call, Some(payload), Default::default()),
                _ => continue,
            };
            seen.extend(payload.map(|payload| world.data(server, payload)[0]));
            world.submit(server, release(call, payload, metadata, 0)).unwrap();
        }
        world.settle(&mut [&mut *server]);
    }
    let payload = world.blob(server, b"y");
    world.submit(server, Submission::Finish(finish(id.unwrap(), Code::Ok, Some(payload)))).unwrap();
    seen
}

#[test]
fn a_hedge_overtakes_a_slow_endpoint() {
    let mut scene = Scene::with(generous(), &["tcp://10.1.1.1:1", "tcp://10.1.1.2:1"], &[]);
    scene.configure(
        r#"{"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [{"name": [{}], "hedgingPolicy":
            {"maxAttempts": 2, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}}]}"#,
    );
    scene.ask(ONE, ONCE, &[], b"x");
    scene.ready(1);
    scene.world.advance(11_000_000);
    scene.settle();
    scene.ready(2);
    let (slow, quick) = (scene.server(1), scene.server(2));
    assert_ne!(scene.world.webs[1].endpoint, scene.world.webs[2].endpoint);
    scene.respond(2, quick, b"quick");
    assert_eq!(answered(&scene.said(CLIENT, ONE)), [b"quick".to_vec()]);
    assert_eq!(scene.said(1, slow).reset, Some(Reason::CANCEL));
    scene.nothing_left();
}

#[test]
fn calls_are_balanced_over_endpoints() {
    let mut scene = Scene::with(Limits::default(), &["tcp://10.1.1.1:1", "tcp://10.1.1.2:1"], &[]);
    for n in 0..10u64 {
        scene.ask(StreamTag(n * 2 + 1), ONCE, &[], b"x");
    }
    scene.ready(1);
    scene.ready(2);
    for web in [1, 2] {
        let tags: Vec<StreamTag> = scene.world.webs[web].open().collect();
        assert_eq!(tags.len(), 5);
        tags.into_iter().for_each(|tag| scene.respond(web, tag, b"y"));
    }
    for n in 0..10u64 {
        answered(&scene.said(CLIENT, StreamTag(n * 2 + 1)));
    }
    scene.nothing_left();
}

#[test]
fn a_request_the_server_has_not_seen_goes_again() {
    let mut scene = Scene::connected();
    scene.ask(ONE, CHAT, &[], b"x");
    let tag = scene.server(1);
    scene.said(1, tag);
    scene.world.reset(1, tag, Reason::REFUSED_STREAM);
    scene.settle();
    let again = scene.server(1);
    assert_ne!(tag, again);
    let asked = scene.said(1, again);
    assert_eq!((world::data_of(&asked.messages[0].1), asked.ended), (b"x".to_vec(), true));
    scene.respond(1, again, b"y");
    answered(&scene.said(CLIENT, ONE));
    // A client that says so of its own stream cancels its call.
    scene.open(TWO, CHAT, &[]);
    scene.world.reset(CLIENT, TWO, Reason::REFUSED_STREAM);
    scene.nothing_left();
}

#[test]
fn the_last_message_of_a_request_goes_on_with_its_end() {
    for (path, messages) in [(ONCE, 1), (CHAT, 3), (CHAT, 0)] {
        let mut scene = Scene::connected();
        scene.open(ONE, path, &[]);
        scene.body(CLIENT, ONE, &blob(b"x").repeat(messages), true);
        let tag = scene.server(1);
        let sent: Vec<(bool, bool)> = scene.world.webs[1]
            .said
            .iter()
            .filter_map(|command| match command {
                Command::Data { bytes, end, .. } => Some((bytes.is_empty(), *end)),
                _ => None,
            })
            .collect();
        let expected: &[(bool, bool)] = match messages {
            0 => &[(true, true)],
            1 => &[(false, true)],
            _ => &[(false, false), (false, false), (false, true)],
        };
        assert_eq!(sent, expected, "{path}");
        scene.respond(1, tag, b"y");
        answered(&scene.said(CLIENT, ONE));
        scene.nothing_left();
    }
}

fn policy(kind: Kind, name: &str) -> Definition {
    Definition { name: name.into(), kind, side: Side::Client, ..Definition::default() }
}

#[test]
fn policies_of_the_clients_side_hold() {
    let mut scene = Scene::connected();
    scene.apply(&[
        Definition { deny: Some("metadata['tenant'] == 'red'".into()), ..policy(Kind::Access, "tenants") },
        Definition {
            deny: Some("peer.identity != 'uid:7' || application != 'gateway'".into()),
            ..policy(Kind::Access, "who")
        },
    ]);
    for (n, tenant, passes) in [(1, "blue", true), (3, "red", false)] {
        scene.ask(StreamTag(n), ONCE, &[("tenant", tenant)], b"x");
        if passes {
            let tag = scene.server(1);
            scene.respond(1, tag, b"y");
        }
        let said = scene.said(CLIENT, StreamTag(n));
        assert_eq!(said.code() == 0, passes, "{said:?}");
        if !passes {
            assert!(said.message().contains("tenants"), "{}", said.message());
        }
    }
    scene.nothing_left();
}

#[test]
fn a_policy_reads_messages_whose_type_the_operator_has_told() {
    let deny = Definition {
        service: Some(SERVICE.into()),
        deny: Some("request.note == 'secret'".into()),
        ..policy(Kind::Access, "notes")
    };
    let noted = |note: &str| framed(&[&[0x12, note.len() as u8], note.as_bytes()].concat());
    for path in [ONCE, GATHER, SCATTER, CHAT] {
        let mut scene = Scene::new();
        scene.world.hosts[0].engine.configure_gateway(Scene::told());
        scene.connect();
        scene.apply(std::slice::from_ref(&deny));
        for (n, note, passes) in [(1, "plain", true), (3, "secret", false)] {
            scene.open(StreamTag(n), path, &[]);
            scene.body(CLIENT, StreamTag(n), &noted(note), true);
            if passes {
                let tag = scene.server(1);
                let asked = scene.said(1, tag);
                assert_eq!(asked.messages[0].1, noted(note)[5..], "byte for byte");
                scene.respond(1, tag, b"y");
            }
            let said = scene.said(CLIENT, StreamTag(n));
            assert_eq!(said.code() == 0, passes, "{path} {note} {said:?}");
        }
        scene.nothing_left();
    }
}

#[test]
fn a_policy_that_reads_messages_of_unknown_type_refuses() {
    let mut scene = Scene::connected();
    scene.apply(&[Definition {
        service: Some(SERVICE.into()),
        deny: Some("request.note == 'secret'".into()),
        ..policy(Kind::Access, "notes")
    }]);
    scene.ask(ONE, ONCE, &[], b"x");
    let said = scene.said(CLIENT, ONE);
    assert_ne!(said.code(), 0);
    assert!(said.message().contains("notes"), "{}", said.message());
    assert!(scene.world.hosts[0].engine.poll_policy_misfit().is_some(), "and the host is told");
    // And one that does not fit a type that is known is not applied.
    scene.world.hosts[0].engine.configure_gateway(Scene::told());
    let chain = Chain::build(&[Definition {
        service: Some(SERVICE.into()),
        deny: Some("request.nothing == 'secret'".into()),
        ..policy(Kind::Access, "wrong")
    }])
    .unwrap();
    assert!(scene.world.hosts[0].engine.apply_policies(chain).is_err());
    scene.nothing_left();
}

/// A policy at work that does not fit a type that was told since hides nothing that is new behind it.
#[test]
fn what_does_not_fit_a_told_type_hides_nothing_new() {
    let mut scene = Scene::connected();
    let reads = |name: &'static str, field: &str| Definition {
        service: Some(SERVICE.into()),
        deny: Some(format!("request.{field} == 'secret'")),
        ..policy(Kind::Access, name)
    };
    let at_work = reads("odd", "other");
    scene.apply(std::slice::from_ref(&at_work));
    let engine = &mut scene.world.hosts[0].engine;
    engine.configure_gateway(Scene::told());
    let mut apply = |field: &str| {
        let chain = Chain::build(&[at_work.clone(), reads("new", field)]).unwrap();
        engine.apply_policies(chain).err().map(|refused| refused.name)
    };
    assert_eq!(apply("nothing"), Some("new".into()));
    assert_eq!(apply("note"), None);
}

#[test]
fn a_rate_limit_holds_for_all_clients() {
    let mut scene = Scene::connected();
    let other = scene.world.web_at_gateway(0, &[]);
    scene.apply(&[Definition {
        calls_per_second: Some(1.0),
        burst: Some(2),
        ..policy(Kind::RateLimit, "two")
    }]);
    let mut codes = Vec::new();
    for n in 0..4u64 {
        let web = if n % 2 == 0 { CLIENT } else { other };
        let tag = StreamTag(n * 2 + 1);
        scene.world.request(web, tag, ONCE, &[], false);
        scene.world.body(web, tag, &blob(b"x"), true);
        scene.settle();
        if n < 2 {
            let tag = scene.server(1);
            scene.respond(1, tag, b"y");
        }
        codes.push(scene.said(web, tag).code());
    }
    assert_eq!(codes, [0, 0, 8, 8]);
    scene.nothing_left();
}

#[test]
fn forwarded_calls_are_recorded_as_made_here() {
    let mut scene = Scene::connected();
    let rows = scene.recorded();
    let row = rows.iter().find(|row| row.method == ONCE).expect("the call is recorded");
    assert_eq!((row.side, row.peer.as_str()), (Recorded::Made, "grpc tcp://10.1.1.1:50051"));
    scene.nothing_left();
}

/// The stamps of the host that serves are of its clock, which is an hour behind this one's, or ahead of it.
#[test]
fn calls_forwarded_to_a_daemon_are_divided_whatever_the_clocks_say() {
    const MS: u64 = 1_000_000;
    for ahead_ns in [[3_600_000 * MS, 0], [0, 3_600_000 * MS], [0, 0]] {
        let (mut world, mut server) = two_hosts(Some(PROTO), false);
        world.ahead_ns = ahead_ns;
        for n in 0..3 {
            let tag = StreamTag(n * 2 + 1);
            world.request(CLIENT, tag, ONCE, &[], false);
            world.body(CLIENT, tag, &blob(b"x"), true);
            world.settle(&mut [&mut server]);
            let call = take_delivered(&mut world, &mut server, b"x");
            world.submit(&server, release(call.call, None, call.metadata, 0)).unwrap();
            let taken = world.clock(server.host);
            world.advance(8 * MS);
            let published = world.clock(server.host);
            let payload = Some(world.message(&mut server, b"x"));
            let end = Finish { taken, published, ..finish(call.call, Code::Ok, payload) };
            world.submit(&server, Submission::Finish(end)).unwrap();
            world.advance(2 * MS);
            world.settle(&mut [&mut server]);
            assert_eq!(answered(&world.webs[CLIENT].take(tag)), [b"x".to_vec()]);
        }
        let rows: Vec<_> = world.hosts[0].engine.telemetry().recorder().recent().collect();
        assert_eq!(rows.len(), 3);
        for row in rows {
            let parts = &row.components;
            let told = (row.side, parts.coverage, parts.clipped);
            assert_eq!(told, (Recorded::Made, Coverage::Whole, false), "{row:#?}");
            let application = parts.ns[Component::ServerApplication as usize];
            assert_eq!(application, 8 * MS, "{ahead_ns:?}: {row:#?}");
            assert!(row.half_width_ns < u32::MAX, "{row:#?}");
        }
    }
}

/// A head, and 50 ms later the message: where that took its time on the way to the gateway.
#[test]
fn what_a_client_takes_to_send_its_request_is_no_work_of_the_gateway() {
    const MS: u64 = 1_000_000;
    let (mut world, mut server) = two_hosts(Some(PROTO), false);
    world.hosts[0].engine.configure_gateway(Scene::told());
    for n in 0..2 {
        let tag = StreamTag(n * 2 + 1);
        world.request(CLIENT, tag, ONCE, &[], false);
        world.settle(&mut [&mut server]);
        world.advance(50 * MS);
        world.body(CLIENT, tag, &blob(b"x"), true);
        world.settle(&mut [&mut server]);
        let call = take_delivered(&mut world, &mut server, b"x");
        world.submit(&server, release(call.call, None, call.metadata, 0)).unwrap();
        let payload = Some(world.message(&mut server, b"x"));
        let end = Finish { taken: world.now, published: world.now, ..finish(call.call, Code::Ok, payload) };
        world.submit(&server, Submission::Finish(end)).unwrap();
        world.settle(&mut [&mut server]);
        assert_eq!(answered(&world.webs[CLIENT].take(tag)), [b"x".to_vec()]);
    }
    let rows: Vec<_> = world.hosts[0].engine.telemetry().recorder().recent().collect();
    assert_eq!(rows.iter().map(|row| row.components.total_ns()).collect::<Vec<_>>(), [0, 0], "{rows:#?}");
}

#[test]
fn a_host_that_speaks_grpc_to_daemons_has_its_calls_forwarded_by_the_next() {
    // Both hosts are gateways: what comes to the second by gRPC is not at its gateway, and is refused there.
    let mut world = World::new();
    world.bridged = true;
    for host in 0..2 {
        let engine = &mut world.hosts[host].engine;
        engine.configure_grpc(GrpcSettings { always: true, ..GrpcSettings::default() });
        engine.configure_service(SERVICE, &["tcp://10.0.0.9:1".to_owned()]).unwrap();
    }
    world.web_at_gateway(0, &[]);
    world.request(CLIENT, ONE, ONCE, &[], false);
    world.body(CLIENT, ONE, &blob(b"x"), true);
    world.settle(&mut []);
    let said = world.webs[CLIENT].take(ONE);
    assert_eq!(said.code(), Code::Unavailable as u32);
    assert!(said.message().contains("(node far)"), "{}", said.message());
    assert_eq!((world.leftovers(), world.unreleased()), ((0, 0), 0));
}

/// A client at the gateway of one host, and a server on the other that is reached by R2P2.
fn r2p2_behind(world: &mut World, told: bool) -> App {
    world.now = Instant(0);
    for (host, serves) in [(0, false), (1, true)] {
        let settings = R2p2Settings { serves, ..R2p2Settings::default() };
        world.hosts[host].engine.configure_r2p2(world.now, settings.clone());
        world.r2p2[host] = settings;
    }
    world.now = Instant(60_000_000_000);
    let engine = &mut world.hosts[0].engine;
    if told {
        engine.configure_gateway(Scene::told());
    }
    engine.configure_service(SERVICE, &["r2p2://10.0.0.2:8000".to_owned()]).unwrap();
    world.web_at_gateway(0, &[]);
    world.attach(1, PROTO, None, true)
}

#[test]
fn unary_calls_go_on_over_r2p2_with_a_schema_here_and_without() {
    for (told, retries) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::with_limits(generous());
        let mut server = r2p2_behind(&mut world, told);
        if retries {
            world.hosts[0].engine.configure_calls(SERVICE, ServiceConfig::parse(RETRIES).unwrap());
        }
        world.request(CLIENT, ONE, ONCE, &[("tenant", "blue")], false);
        world.body(CLIENT, ONE, &blob(b"x"), true);
        world.settle(&mut [&mut server]);
        let call = take_delivered(&mut world, &mut server, b"x");
        assert_eq!(world.metadata(&server, call.metadata).text("tenant"), Some("blue"));
        world.submit(&server, release(call.call, None, call.metadata, 0)).unwrap();
        let payload = world.blob(&mut server, b"y");
        world.submit(&server, Submission::Finish(finish(call.call, Code::Ok, Some(payload)))).unwrap();
        world.settle(&mut [&mut server]);
        assert_eq!(
            answered(&world.webs[CLIENT].take(ONE)),
            [b"y".to_vec()],
            "told {told}, retries {retries}"
        );
        // Two messages are more than it carries.
        world.request(CLIENT, TWO, CHAT, &[], false);
        world.body(CLIENT, TWO, &[blob(b"a"), blob(b"b")].concat(), true);
        world.settle(&mut [&mut server]);
        assert_eq!(world.webs[CLIENT].take(TWO).code(), Code::Unimplemented as u32);
        server.take();
        assert_eq!((world.leftovers(), world.unreleased()), ((0, 0), 0));
    }
}

#[test]
fn the_policies_of_the_host_that_serves_read_what_was_forwarded() {
    for bridged in [false, true] {
        for (n, (note, passes)) in [("plain", true), ("secret", false)].into_iter().enumerate() {
            let (mut world, mut server) = two_hosts(Some(PROTO), bridged);
            let deny = Definition {
                side: Side::Server,
                deny: Some("request.note == 'secret'".into()),
                ..policy(Kind::Access, "notes")
            };
            let Host { engine, heaps } = &mut world.hosts[1];
            engine.apply_policies(Chain::build(&[deny]).unwrap()).unwrap();
            engine.serve_waiting(&mut Turn { now: world.now, heaps });
            let tag = StreamTag(n as u64 * 2 + 1);
            world.request(CLIENT, tag, ONCE, &[], false);
            world.body(CLIENT, tag, &framed(&[&[0x12, note.len() as u8], note.as_bytes()].concat()), true);
            world.settle(&mut [&mut server]);
            let seen = server.take().iter().any(|completion| matches!(completion, Completion::Call(_)));
            assert_eq!(seen, passes, "bridged {bridged}: {note}");
        }
    }
}

#[test]
fn what_is_under_way_when_the_engine_is_replaced_is_cancelled_where_it_went() {
    for retries in [false, true] {
        let (mut world, mut server) = two_hosts(Some(PROTO), false);
        if retries {
            let config = ServiceConfig::parse(RETRIES).unwrap();
            world.hosts[0].engine.configure_calls(SERVICE, config);
        }
        world.request(CLIENT, ONE, CHAT, &[("grpc-timeout", "9S")], false);
        world.body(CLIENT, ONE, &blob(b"a"), false);
        world.settle(&mut [&mut server]);
        let call = take_delivered(&mut world, &mut server, b"a");
        world.submit(&server, release(call.call, None, call.metadata, 0)).unwrap();
        // Its client's connection stays behind.
        world.webs[CLIENT].up = false;
        world.replace_engine(0);
        world.settle(&mut [&mut server]);
        let cancelled =
            |one: &Completion| matches!(one, Completion::Cancelled { call: of, .. } if *of == call.call);
        assert!(server.take().iter().any(cancelled), "retries {retries}");
        assert_eq!(world.leftovers(), (0, 0));
        // The engine that took over forwards calls as well.
        world.hosts[0].engine.configure_service(SERVICE, &["tcp://10.0.0.2:1".to_owned()]).unwrap();
        let again = world.web_at_gateway(0, &[]);
        world.request(again, TWO, CHAT, &[], false);
        world.body(again, TWO, &blob(b"b"), false);
        world.settle(&mut [&mut server]);
        take_delivered(&mut world, &mut server, b"b");
    }
}

/// What waits for the rest of a request is charged to the connection it came by.
#[test]
fn what_is_gathered_for_r2p2_is_bounded() {
    let limits =
        Limits { stream_window_bytes: 64 << 10, assembling_bytes_per_peer: 1 << 20, ..Limits::default() };
    let mut world = World::with_limits(limits);
    let mut server = r2p2_behind(&mut world, false);
    let large = vec![7; 400 << 10];
    let mut refused = Vec::new();
    for n in 0..8 {
        let tag = StreamTag(2 * n + 1);
        world.request(CLIENT, tag, ONCE, &[], false);
        // One that has not ended waits for that, or for another message.
        blob(&large).chunks(16 << 10).for_each(|piece| world.body(CLIENT, tag, piece, false));
        world.settle(&mut [&mut server]);
        let said = world.webs[CLIENT].take(tag);
        if said.trailers.is_some() {
            assert_eq!(said.code(), Code::ResourceExhausted as u32);
            assert!(said.message().contains("limits.assembling_bytes_per_peer"), "{}", said.message());
            refused.push(n);
        }
    }
    assert_eq!(refused, [2, 3, 4, 5, 6, 7], "two are within the limit");
    // What those held is free when they end: by a reset, by their answer.
    world.reset(CLIENT, StreamTag(1), Reason::CANCEL);
    world.body(CLIENT, StreamTag(3), &[], true);
    world.settle(&mut [&mut server]);
    let call = take_delivered(&mut world, &mut server, &large);
    world.submit(&server, release(call.call, None, call.metadata, 0)).unwrap();
    let payload = world.blob(&mut server, b"y");
    world.submit(&server, Submission::Finish(finish(call.call, Code::Ok, Some(payload)))).unwrap();
    world.settle(&mut [&mut server]);
    assert_eq!(answered(&world.webs[CLIENT].take(StreamTag(3))), [b"y".to_vec()]);
    assert_eq!((world.leftovers(), world.unreleased()), ((0, 0), 0));
}

#[test]
fn a_client_that_goes_away_leaves_its_line_in_the_access_log() {
    for gone in ["connection", "stream"] {
        let mut scene = Scene::connected();
        scene.apply(&[policy(Kind::AccessLog, "log")]);
        scene.ask(ONE, ONCE, &[], b"x");
        match gone {
            "connection" => scene.world.hang_up(CLIENT),
            _ => scene.world.reset(CLIENT, ONE, Reason::CANCEL),
        }
        scene.settle();
        let line =
            scene.world.hosts[0].engine.poll_access_record().unwrap_or_else(|| panic!("{gone}: a line"));
        assert_eq!(
            (&*line.path, line.code, line.caller.as_str()),
            (ONCE, Code::Cancelled, "tcp://10.0.0.1:4711 (uid:7)")
        );
        scene.nothing_left();
    }
}

#[test]
fn statuses_of_attempts_name_their_host() {
    for retries in [false, true] {
        let mut scene = Scene::with_limits(generous());
        scene.connect();
        if retries {
            // Of another failure than this one.
            scene.configure(&RETRIES.replace("UNAVAILABLE", "ABORTED"));
        }
        scene.ask(ONE, ONCE, &[], b"x");
        scene.world.hang_up(1);
        let said = scene.said(CLIENT, ONE);
        assert_eq!(said.code(), Code::Unavailable as u32);
        assert!(said.message().ends_with("(node near)"), "retries {retries}: {}", said.message());
        scene.nothing_left();
    }
}

/// An empty message is kept as all others are.
#[test]
fn empty_messages_count_among_what_is_kept_for_attempts() {
    for (messages, tries) in [(10, true), (40, false)] {
        let mut scene = Scene::with_limits(Limits { grpc_replay_bytes_per_call: 4_000, ..generous() });
        scene.connect();
        scene.configure(RETRIES);
        scene.open(ONE, GATHER, &[]);
        (0..messages).for_each(|_| scene.body(CLIENT, ONE, &framed(b""), false));
        let first = scene.server(1);
        scene.world.answer(1, first, 200, &[("grpc-status", "14")], true);
        scene.settle();
        scene.world.advance(20_000_000);
        scene.settle();
        assert_eq!(scene.server(1) != first, tries, "{messages} messages");
        scene.world.reset(CLIENT, ONE, Reason::CANCEL);
        scene.nothing_left();
    }
}

/// While nobody is there to go on with it, most of a stream waits as bytes.
#[test]
fn the_rest_of_a_stream_follows_the_attempt_that_was_committed_by_size() {
    let limits = Limits { grpc_replay_bytes_per_call: 4_000, stream_window_bytes: 64 << 10, ..generous() };
    let mut world = World::with_limits(limits);
    let mut server = world.attach(1, PROTO, None, true);
    world.hosts[0].engine.configure_service(SERVICE, &["tcp://10.1.1.1:1".to_owned()]).unwrap();
    world.hosts[0].engine.configure_calls(SERVICE, ServiceConfig::parse(RETRIES).unwrap());
    world.web_at_gateway(0, &[]);
    world.request(CLIENT, ONE, GATHER, &[], false);
    world.body(CLIENT, ONE, &blob(&[0; 300]), false);
    world.settle(&mut [&mut server]);
    let first = take_delivered(&mut world, &mut server, &[0; 300]);
    let refusal = Finish { execution: Execution::NotExecuted, ..finish(first.call, Code::Unavailable, None) };
    world.submit(&server, Submission::Finish(refusal)).unwrap();
    world.submit(&server, release(first.call, None, first.metadata, 0)).unwrap();
    world.settle(&mut [&mut server]);
    server.take();
    for n in 1..100u8 {
        world.body(CLIENT, ONE, &blob(&[n; 300]), n == 99);
    }
    world.advance(20_000_000);
    world.settle(&mut [&mut server]);
    let seen = take_stream(&mut world, &mut server);
    assert_eq!(seen, (0..100).collect::<Vec<u8>>());
    world.settle(&mut [&mut server]);
    assert_eq!(answered(&world.webs[CLIENT].take(ONE)), [b"y".to_vec()]);
    server.take();
    assert_eq!((world.leftovers(), world.unreleased()), ((0, 0), 0));
}

/// Who names what is not there uses up its own share of the names, and nobody else's.
#[test]
fn names_nobody_answers_to_are_bounded_for_each_client() {
    let limits = Limits { methods_learned_per_service: 8, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    scene.connect();
    for n in 0..20 {
        scene.ask(ONE, &format!("/world.Echo/Wrong{n}"), &[], b"x");
        let tag = scene.server(1);
        scene.world.answer(1, tag, 200, &[("grpc-status", "12")], true);
        assert_eq!(scene.said(CLIENT, ONE).code(), Code::Unimplemented as u32);
        scene.world.webs[CLIENT].streams.remove(&ONE.0);
    }
    let other = scene.world.web_at_gateway(0, &[]);
    for n in 0..4 {
        let path = format!("/world.Echo/Right{n}");
        scene.world.request(other, ONE, &path, &[], false);
        scene.body(other, ONE, &blob(b"x"), true);
        let tag = scene.server(1);
        assert_eq!(scene.said(1, tag).path, path);
        scene.respond(1, tag, b"y");
        answered(&scene.said(other, ONE));
        scene.world.webs[other].streams.remove(&ONE.0);
    }
    let names: Vec<_> = scene.recorded().into_iter().map(|entry| entry.method).collect();
    let known = |word: &str| names.iter().filter(|name| name.contains(word)).count();
    assert_eq!((known("Right"), known("Wrong") <= 2), (4, true), "{names:?}");
    scene.nothing_left();
}
