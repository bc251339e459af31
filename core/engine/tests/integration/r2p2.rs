//! Shows services called over R2P2 with no change to the applications: the greeting before the first call, linear and
//! protobuf requests, statuses and metadata both ways, stamps, deadlines and cancellation, losses, a server that has
//! other types since, and what becomes of everything that cannot be said in one request and one reply.

use crate::world;

use core::net::SocketAddrV4;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline_call::entry::{Call, Completion, Finish, Submission};
use trunkline_call::{Code, Deadline, Execution, Instant, Metadata};
use trunkline_engine::{Limits, PeerRule, Protocol, R2p2Port, R2p2Settings};
use trunkline_r2p2::{
    CallFailure, Client, ClientEvent, Config, Mode, NewCall, Packet, PacketType, Reason, ReplyEnvelope,
    RequestEnvelope,
};
use trunkline_telemetry::{Ask, Side};
use world::*;

const TARGET: Option<&str> = Some("r2p2://10.0.0.2:8000");
const MS: u64 = 1_000_000;

thread_local! {
    /// Whether engines are replaced after every step of the scenes of this thread.
    static REPLACES: Cell<bool> = const { Cell::new(false) };
}

/// A caller on one host, a server on the other, datagrams between them.
struct Scene {
    world: World,
    client: App,
    server: App,
}

impl Scene {
    fn new() -> Self {
        Self::with(PROTO, PROTO, Mode::Offer)
    }

    fn with(client: &str, server: &str, mode: Mode) -> Self {
        Self::within(Limits::default(), client, server, mode)
    }

    fn within(limits: Limits, client: &str, server: &str, mode: Mode) -> Self {
        let mut world = World::with_limits(limits);
        // Long after both began: nothing sent before them is on its way.
        world.now = Instant(0);
        for (host, serves) in [(0, false), (1, true)] {
            let settings = R2p2Settings { mode, serves, ..R2p2Settings::default() };
            world.hosts[host].engine.configure_r2p2(world.now, settings.clone());
            world.r2p2[host] = settings;
        }
        world.now = Instant(60_000 * MS);
        world.replaces = REPLACES.get();
        let client = world.attach(0, client, TARGET, false);
        let server = world.attach(1, server, None, true);
        Self { world, client, server }
    }

    fn settle(&mut self) {
        self.world.settle(&mut [&mut self.client, &mut self.server]);
    }

    fn pass(&mut self, ns: u64) {
        self.world.advance(ns);
        self.settle();
    }

    fn call(&mut self, route: usize, data: &[u8], deadline: Deadline) -> Call {
        let payload = self.world.message(&mut self.client, data);
        let streams = self.client.is_opaque || route % 2 == 1;
        let mut call = self.client.call(route, Some(payload), !streams);
        call.deadline = deadline;
        self.world.submit(&self.client, Submission::Call(call)).unwrap();
        self.settle();
        call
    }

    fn submit_to_server(&mut self, submission: Submission) {
        self.world.submit(&self.server, submission).unwrap();
        self.settle();
    }

    /// Answers the one delivered call with its own data; what it was.
    #[track_caller]
    fn echo(&mut self) -> (Call, Vec<u8>) {
        let call = self.server.take_call();
        let payload = call.payload.expect("a unary request has a message");
        let data = self.world.data(&self.server, payload);
        self.submit_to_server(release(call.call, Some(payload), call.metadata, 0));
        let reply = self.world.message(&mut self.server, &data);
        self.submit_to_server(Submission::Finish(finish(call.call, Code::Ok, Some(reply))));
        (call, data)
    }

    /// The call's outcome, released.
    #[track_caller]
    fn conclude(&mut self, call: Call, code: Code) -> (Finish, Vec<u8>, Metadata) {
        let finish = self.client.take_finish();
        let metadata = self.world.metadata(&self.client, finish.metadata);
        let words = metadata.text("grpc-message").unwrap_or_default();
        assert_eq!((finish.call, finish.code), (call.call, code), "{words}");
        let data = finish.payload.map_or_else(Vec::new, |payload| self.world.data(&self.client, payload));
        self.world.submit(&self.client, release(finish.call, finish.payload, finish.metadata, 9)).unwrap();
        self.settle();
        (finish, data, metadata)
    }

    /// A whole call that succeeds.
    #[track_caller]
    fn round_trip(&mut self, data: &[u8]) {
        let call = self.call(0, data, Deadline::NONE);
        assert!(self.echo().1 == data, "the request");
        assert!(self.conclude(call, Code::Ok).1 == data, "the reply");
    }

    #[track_caller]
    fn nothing_left(&mut self) {
        self.settle();
        assert_eq!(self.world.leftovers(), (0, 0), "calls and receive blocks left");
    }

    /// The datagrams so far that are of this type.
    fn datagrams(&self, kind: PacketType) -> usize {
        let parsed = self.world.datagrams.iter().filter_map(|bytes| Packet::parse(bytes, true).ok());
        parsed.filter(|packet| packet.header.kind == kind).count()
    }

    /// The last request that was sent whole in one packet.
    fn last_request(&self) -> Vec<u8> {
        let last = self.world.datagrams.iter().rev().find_map(|bytes| {
            let packet = Packet::parse(bytes, true).ok()?;
            (packet.header.kind == PacketType::Request).then(|| packet.payload.to_vec())
        });
        last.expect("a request was sent")
    }

    fn request_is_linear(&self) -> bool {
        RequestEnvelope::parse(&self.last_request()).unwrap().is_linear
    }
}

#[test]
fn a_greeting_goes_before_the_first_call_and_equal_schemas_before_protobuf() {
    let mut scene = Scene::new();
    let call = scene.call(0, b"first", Deadline::NONE);
    assert_eq!(scene.datagrams(PacketType::Request), 2, "a greeting, then the call");
    assert!(!scene.request_is_linear(), "what types the server has is not known");
    let rows = [0, 1].map(|host: usize| scene.world.hosts[host].engine.snapshot().peers);
    let seen =
        rows.map(|rows| rows.iter().map(|row| (row.protocol, row.outgoing, row.streams)).collect::<Vec<_>>());
    assert_eq!(
        seen,
        [true, false].map(|outgoing| vec![(Protocol::R2p2, outgoing, 1)]),
        "operators see both ends"
    );
    scene.echo();
    let (finish, data, _) = scene.conclude(call, Code::Ok);
    assert_eq!((finish.execution, data.as_slice()), (Execution::Executed, &b"first"[..]));
    scene.round_trip(b"second");
    assert!(scene.request_is_linear());
    assert_eq!(scene.datagrams(PacketType::Request), 3, "greeted once");
    scene.nothing_left();
}

/// Engines write down everything they know of an exchange: what was asked and not answered, answered and not heard,
/// greeted, agreed on, given up.
#[test]
fn all_of_it_goes_on_through_engines_that_are_replaced_after_every_step() {
    REPLACES.set(true);
    a_greeting_goes_before_the_first_call_and_equal_schemas_before_protobuf();
    every_size_up_to_many_packets();
    programs_of_different_versions_understand_each_other();
    a_server_without_the_type_gets_the_request_again_as_protobuf();
    nothing_is_said_beyond_the_authors_protocol_if_so_configured();
    statuses_and_metadata_travel_both_ways();
    methods_that_stream_are_refused_before_anything_is_sent();
    where_nobody_answers_nothing_was_executed();
    what_is_lost_is_sent_again_and_executed_once();
    a_server_that_falls_silent_leaves_the_outcome_unknown();
    a_call_given_up_is_given_up_by_its_handler_too();
    a_deadline_ends_both_ends();
    a_handler_that_goes_away_is_said_to_have();
    an_answer_without_a_message_is_the_handlers_fault();
    applications_that_keep_their_types_to_themselves_are_held_to_one_message();
    an_opaque_server_is_held_to_one_message_too();
    requests_that_are_no_calls_are_answered();
}

/// A request that was answered, and one that is being worked on, come again to the engine that took over.
#[test]
fn a_repetition_is_one_for_the_engine_that_took_over() {
    let mut scene = Scene::new();
    scene.round_trip(b"greeted");
    let repeated = |scene: &mut Scene| {
        let request = scene.world.datagrams.iter().rev();
        let is_request =
            |bytes: &&Vec<u8>| Packet::parse(bytes, true).unwrap().header.kind == PacketType::Request;
        let request = request.clone().find(is_request).unwrap().clone();
        let (from, to) = (udp_address(0, R2p2Port::Client), udp_address(1, R2p2Port::Server));
        let before = scene.world.datagrams.len();
        scene.world.deliver_datagram(from, to, &request);
        scene.settle();
        let answer = scene.world.datagrams.get(before).expect("it is answered");
        Packet::parse(answer, true).unwrap().header.kind
    };
    let call = scene.call(0, b"once", Deadline::NONE);
    scene.world.replace_engines();
    assert_eq!(repeated(&mut scene), PacketType::Ack, "it is being worked on");
    scene.echo();
    scene.conclude(call, Code::Ok);
    scene.world.replace_engines();
    assert_eq!(repeated(&mut scene), PacketType::Reply, "it was answered, and the answer is kept");
    assert!(scene.server.take().is_empty(), "nothing is executed twice");
    scene.nothing_left();
}

/// Where R2P2 is not served any more, whoever works on a request hears that nobody waits for it.
#[test]
fn requests_are_given_up_where_nobody_serves_them_any_more() {
    let mut scene = Scene::new();
    let call = scene.call(0, b"question", Deadline::NONE);
    let delivered = scene.server.take_call();
    scene.world.r2p2[1].serves = false;
    scene.world.replace_engines();
    scene.settle();
    let cancelled = scene.server.take();
    assert!(matches!(cancelled[..], [Completion::Cancelled { call, .. }] if call == delivered.call));
    scene.submit_to_server(release(delivered.call, delivered.payload, delivered.metadata, 0));
    scene.submit_to_server(Submission::Finish(finish(delivered.call, Code::Ok, None)));
    for _ in 0..100 {
        scene.pass(100 * MS);
    }
    assert_eq!(scene.conclude(call, Code::Unavailable).0.execution, Execution::Unknown);
    scene.nothing_left();
}

#[test]
fn every_size_up_to_many_packets() {
    let mut scene = Scene::new();
    for bytes in [0, 1, 1300, 1400, 1500, 20_000, 300_000] {
        let data: Vec<u8> = (0..bytes).map(|at: u32| (at % 251) as u8).collect();
        scene.round_trip(&data);
    }
    scene.nothing_left();
}

#[test]
fn programs_of_different_versions_understand_each_other() {
    for (client, server) in [(PROTO, OLDER_PROTO), (OLDER_PROTO, PROTO)] {
        let mut scene = Scene::with(client, server, Mode::Offer);
        for _ in 0..3 {
            scene.round_trip(b"old or new");
            assert!(!scene.request_is_linear());
        }
        scene.nothing_left();
    }
}

#[test]
fn a_server_without_the_type_gets_the_request_again_as_protobuf() {
    let mut scene = Scene::new();
    scene.round_trip(b"agreed");
    let replaced = scene.world.attach(1, OLDER_PROTO, None, true);
    scene.world.detach(&scene.server);
    scene.server = replaced;
    let requests = scene.datagrams(PacketType::Request);
    scene.round_trip(b"not any more");
    assert_eq!(scene.datagrams(PacketType::Request), requests + 2, "linear, then protobuf, executed once");
    scene.round_trip(b"and from now on");
    assert_eq!(scene.datagrams(PacketType::Request), requests + 3, "protobuf at once");
    scene.nothing_left();
}

#[test]
fn nothing_is_said_beyond_the_authors_protocol_if_so_configured() {
    let mut scene = Scene::with(PROTO, PROTO, Mode::Compatible);
    for _ in 0..3 {
        scene.round_trip(&[7; 5000]);
    }
    assert!(scene.world.datagrams.iter().all(|bytes| bytes[3] & 0x3f == 0), "only first and last");
    scene.nothing_left();
}

#[test]
fn statuses_and_metadata_travel_both_ways() {
    let mut scene = Scene::new();
    let mut words = Metadata::new();
    words.insert("ask", "what?").unwrap();
    let payload = scene.world.blob(&mut scene.client, b"x");
    let mut call = scene.client.call(0, Some(payload), true);
    call.metadata = scene.world.put_metadata(&mut scene.client, &words);
    scene.world.submit(&scene.client, Submission::Call(call)).unwrap();
    scene.settle();
    let delivered = scene.server.take_call();
    assert_eq!(scene.world.metadata(&scene.server, delivered.metadata).text("ask"), Some("what?"));
    scene.submit_to_server(release(delivered.call, delivered.payload, delivered.metadata, 0));
    let mut answer = Metadata::new();
    answer.insert("answer", "first").unwrap();
    let metadata = scene.world.put_metadata(&mut scene.server, &answer);
    scene.submit_to_server(Submission::Headers { call: delivered.call, metadata });
    let mut trailers = Metadata::new();
    trailers.insert("grpc-message", "no such thing").unwrap();
    let metadata = scene.world.put_metadata(&mut scene.server, &trailers);
    scene.submit_to_server(Submission::Finish(Finish {
        metadata,
        ..finish(delivered.call, Code::NotFound, None)
    }));
    let taken = scene.client.take();
    let [Completion::Headers { metadata: headers, .. }, Completion::Finish(finish)] = taken[..] else {
        panic!("{taken:?}")
    };
    assert_eq!(scene.world.metadata(&scene.client, headers).text("answer"), Some("first"));
    assert_eq!((finish.code, finish.execution), (Code::NotFound, Execution::Executed));
    let said = scene.world.metadata(&scene.client, finish.metadata);
    assert_eq!(said.text("grpc-message"), Some("no such thing"));
    let blocks = [(headers, 0), (finish.metadata, 9)];
    for (metadata, a18) in blocks {
        scene.world.submit(&scene.client, release(call.call, None, metadata, a18)).unwrap();
    }
    scene.nothing_left();
}

#[test]
fn all_nine_components_are_measured() {
    let mut scene = Scene::new();
    scene.round_trip(b"greeted, and so in the extended mode");
    scene.round_trip(b"measured");
    let mut measured = |host: usize, side: Side| {
        let ask = Ask::default();
        let snapshot = scene.world.hosts[host].engine.telemetry().snapshot(scene.world.now, &ask);
        let series: Vec<_> = snapshot.series.into_iter().filter(|one| one.side == side).collect();
        assert_eq!(series.len(), 1);
        (series[0].peer.clone(), series[0].series.client_only)
    };
    assert_eq!(measured(0, Side::Made), ("r2p2 10.0.0.2:8000".into(), 0), "none by the client alone");
    assert_eq!(measured(1, Side::Served).0, "r2p2 10.0.0.1");
}

#[test]
fn methods_that_stream_are_refused_before_anything_is_sent() {
    let mut scene = Scene::new();
    for route in [1, 2, 3] {
        let call = scene.call(route, b"x", Deadline::NONE);
        let (finish, _, words) = scene.conclude(call, Code::Unimplemented);
        assert_eq!(finish.execution, Execution::NotExecuted);
        assert!(words.text("grpc-message").unwrap().contains("streams: call it by tcp://"), "{words:?}");
    }
    assert!(scene.world.datagrams.is_empty());
    scene.nothing_left();
}

#[test]
fn where_nobody_answers_nothing_was_executed() {
    let mut scene = Scene::new();
    scene.world.arrives = |_| false;
    let call = scene.call(0, b"anybody?", Deadline::NONE);
    // Three greetings, with 250, 500 and 1000 ms for their answers.
    for ms in [250, 500, 1000] {
        assert!(scene.client.take().is_empty());
        scene.pass(ms * MS);
    }
    let (finish, ..) = scene.conclude(call, Code::Unavailable);
    assert_eq!((finish.execution, scene.world.datagrams.len()), (Execution::NotExecuted, 3));
    let call = scene.call(0, b"and now?", Deadline::NONE);
    assert_eq!(scene.conclude(call, Code::Unavailable).0.execution, Execution::NotExecuted, "it rests");
    scene.world.arrives = |_| true;
    scene.pass(1000 * MS);
    scene.round_trip(b"now!");
    scene.nothing_left();
}

#[test]
fn what_is_lost_is_sent_again_and_executed_once() {
    let mut scene = Scene::new();
    scene.round_trip(b"greeted");
    // Every third datagram is lost from here on.
    scene.world.arrives = |number| number % 3 != 0;
    for bytes in [10, 3000, 40_000] {
        let data = vec![5; bytes];
        let call = scene.call(0, &data, Deadline::NONE);
        for _ in 0..200 {
            scene.pass(20 * MS);
        }
        assert!(scene.echo().1 == data);
        for _ in 0..200 {
            scene.pass(20 * MS);
        }
        assert!(scene.conclude(call, Code::Ok).1 == data);
    }
    scene.nothing_left();
}

#[test]
fn a_server_that_falls_silent_leaves_the_outcome_unknown() {
    let mut scene = Scene::new();
    scene.round_trip(b"greeted");
    let call = scene.call(0, b"taken", Deadline::NONE);
    scene.world.arrives = |_| false;
    for _ in 0..100 {
        scene.pass(100 * MS);
    }
    let (finish, _, words) = scene.conclude(call, Code::Unavailable);
    assert_eq!(finish.execution, Execution::Unknown);
    assert_eq!(words.text("grpc-message"), Some("r2p2://10.0.0.2:8000: no answer"));
    if scene.world.replaces {
        return; // Figures are handed over by daemons.
    }
    let now = scene.world.now;
    let series = scene.world.hosts[0].engine.telemetry().snapshot(now, &Ask::default()).series;
    let made: Vec<_> = series.iter().filter(|one| one.side == Side::Made).collect();
    let [both] = made[..] else { panic!("{made:#?}") };
    assert_eq!(
        (&*both.peer, both.series.calls()),
        ("r2p2 10.0.0.2:8000", 2),
        "as the call that was answered"
    );
}

#[test]
fn a_call_given_up_is_given_up_by_its_handler_too() {
    let mut scene = Scene::new();
    scene.round_trip(b"greeted");
    let call = scene.call(0, b"never mind", Deadline::NONE);
    let delivered = scene.server.take_call();
    scene.world.submit(&scene.client, Submission::Cancel { call: call.call }).unwrap();
    scene.settle();
    let cancelled = scene.server.take();
    assert!(matches!(cancelled[..], [Completion::Cancelled { call, .. }] if call == delivered.call));
    scene.submit_to_server(release(delivered.call, delivered.payload, delivered.metadata, 0));
    scene.submit_to_server(Submission::Finish(finish(delivered.call, Code::Ok, None)));
    scene.nothing_left();
}

#[test]
fn a_deadline_ends_both_ends() {
    let mut scene = Scene::new();
    scene.round_trip(b"greeted");
    let call = scene.call(0, b"hurry", Deadline::at(scene.world.now.plus_ns(50 * MS)));
    let delivered = scene.server.take_call();
    assert!(delivered.deadline.instant().is_some_and(|at| at <= scene.world.now.plus_ns(50 * MS)));
    scene.pass(51 * MS);
    assert!(scene.server.take().iter().any(|one| matches!(one, Completion::Cancelled { .. })));
    assert_eq!(scene.conclude(call, Code::DeadlineExceeded).0.execution, Execution::Unknown);
    scene.submit_to_server(release(delivered.call, delivered.payload, delivered.metadata, 0));
    scene.nothing_left();
}

#[test]
fn a_handler_that_goes_away_is_said_to_have() {
    let mut scene = Scene::new();
    scene.round_trip(b"greeted");
    let call = scene.call(0, b"x", Deadline::NONE);
    scene.server.take_call();
    scene.world.detach(&scene.server);
    scene.settle();
    assert_eq!(scene.conclude(call, Code::Unavailable).0.execution, Execution::Unknown);
    let call = scene.call(0, b"x", Deadline::NONE);
    assert_eq!(
        scene.conclude(call, Code::Unavailable).0.execution,
        Execution::NotExecuted,
        "nobody serves it"
    );
}

#[test]
fn an_answer_without_a_message_is_the_handlers_fault() {
    let mut scene = Scene::new();
    let call = scene.call(0, b"x", Deadline::NONE);
    let delivered = scene.server.take_call();
    scene.submit_to_server(release(delivered.call, delivered.payload, delivered.metadata, 0));
    scene.submit_to_server(Submission::Finish(finish(delivered.call, Code::Ok, None)));
    assert_eq!(scene.conclude(call, Code::Internal).0.execution, Execution::Executed);
    scene.nothing_left();
}

#[test]
fn applications_that_keep_their_types_to_themselves_are_held_to_one_message() {
    let mut scene = Scene::new();
    scene.client = scene.world.attach_opaque(0, TARGET, false);
    let call = scene.call(0, b"opaque", Deadline::NONE);
    assert!(scene.world.datagrams.is_empty(), "more may come");
    scene.world.submit(&scene.client, Submission::HalfClose { call: call.call }).unwrap();
    scene.settle();
    assert_eq!(scene.echo().1, b"opaque");
    assert_eq!(scene.conclude(call, Code::Ok).1, b"opaque");
    let call = scene.call(0, b"one", Deadline::NONE);
    let payload = scene.world.message(&mut scene.client, b"two");
    let two = Submission::Message { call: call.call, payload, a1: Instant(3), end: true };
    scene.world.submit(&scene.client, two).unwrap();
    scene.settle();
    assert_eq!(scene.conclude(call, Code::Unimplemented).0.execution, Execution::NotExecuted);
    scene.nothing_left();
}

#[test]
fn an_opaque_server_is_held_to_one_message_too() {
    let mut scene = Scene::new();
    scene.world.detach(&scene.server);
    scene.server = scene.world.attach_opaque(1, None, true);
    for (more, code) in [(false, Code::Ok), (true, Code::Unimplemented)] {
        let call = scene.call(0, b"x", Deadline::NONE);
        let delivered = scene.server.take_call();
        scene.submit_to_server(release(delivered.call, delivered.payload, delivered.metadata, 0));
        for data in if more { &[b"a", b"b"][..] } else { &[b"a"] } {
            let payload = scene.world.message(&mut scene.server, *data);
            let message = Submission::Message { call: delivered.call, payload, a1: Instant(3), end: false };
            scene.submit_to_server(message);
        }
        scene.submit_to_server(Submission::Finish(finish(delivered.call, Code::Ok, None)));
        let (finish, data, _) = scene.conclude(call, code);
        assert_eq!(finish.execution, Execution::Executed);
        assert_eq!(data, if more { &b""[..] } else { b"a" });
        scene.server.take();
    }
    scene.nothing_left();
}

#[test]
fn requests_that_are_no_calls_are_answered() {
    let mut scene = Scene::new();
    let method = |path| RequestEnvelope { path, ..RequestEnvelope::default() }.encode().unwrap();
    let path = "/world.Echo/Once";
    let mut no_text = method(path);
    no_text[30] = 0xff;
    let mut beyond = method(path);
    beyond[2] = 0xff;
    let metadata =
        |metadata| RequestEnvelope { path, metadata, ..RequestEnvelope::default() }.encode().unwrap();
    let table = [
        (vec![], Code::InvalidArgument),
        (vec![9; 40], Code::InvalidArgument),
        (no_text, Code::InvalidArgument),
        (beyond, Code::InvalidArgument),
        (metadata(&[1]), Code::InvalidArgument),
        (metadata(&[1, 0, 9, 0, 0, 0, 9]), Code::InvalidArgument),
        (method("/world.Echo/Missing"), Code::Unimplemented),
        (method("/nobody.Here/Ever"), Code::Unimplemented),
        (method("/trunkline.admin.v1.Admin/List"), Code::Unimplemented),
        (method(SCATTER), Code::Unimplemented),
        (method(""), Code::Ok),
    ];
    let (from, to) = ("10.9.9.9:5".parse().unwrap(), udp_address(1, R2p2Port::Server));
    for (id, (body, code)) in table.into_iter().enumerate() {
        let mut datagram = vec![0xcc, 8, 0, 0xc0, 0, id as u8, 0, 1];
        datagram.extend_from_slice(&body);
        scene.world.deliver_datagram(from, to, &datagram);
        scene.settle();
        let answer = scene.world.datagrams.last().unwrap();
        let packet = Packet::parse(answer, false).unwrap();
        assert_eq!((packet.header.kind, packet.header.id), (PacketType::Reply, id as u16));
        let reply = ReplyEnvelope::parse(packet.payload).unwrap();
        assert_eq!((reply.code, reply.execution), (code, Execution::NotExecuted), "{body:?}");
    }
    assert!(scene.server.take().is_empty());
    scene.nothing_left();
}

/// What the daemon of host 1 holds, by what for.
fn held(scene: &Scene, owner: &str) -> u64 {
    let memory = scene.world.hosts[1].engine.snapshot().memory;
    memory.iter().find(|(name, _)| *name == owner).expect("it is in the report").1
}

#[test]
fn answers_nobody_takes_are_held_up_to_a_limit_that_is_named() {
    const MOST: usize = 100 << 10;
    let limits = Limits { held_bytes_per_source: MOST, ..Limits::default() };
    let mut scene = Scene::within(limits, PROTO, PROTO, Mode::Offer);
    scene.round_trip(b"greeted");
    let data = vec![5; 60 << 10];
    let calls = [0; 2].map(|_| scene.call(0, &data, Deadline::NONE));
    assert_eq!(held(&scene, "messages of R2P2 on their way"), 0);
    // From here on the client takes nothing.
    scene.world.arrives = |_| false;
    let delivered = scene.server.take();
    assert_eq!(delivered.len(), 2);
    for completion in delivered {
        scene.server.inbox = vec![completion];
        scene.echo();
    }
    let held_bytes = held(&scene, "messages of R2P2 on their way");
    assert!((data.len() as u64..MOST as u64).contains(&held_bytes), "{held_bytes}");
    // Another client of that host, with words that need room.
    let mut other = Client::new(Arc::new(Config { mode: Mode::Extended, ..Config::default() }), 9);
    let (from, to) = (SocketAddrV4::new([10, 0, 0, 1].into(), 5), udp_address(1, R2p2Port::Server));
    let path = format!("/{}/Ever", "n".repeat(50_000));
    let body = RequestEnvelope { path: &path, ..RequestEnvelope::default() }.encode().unwrap().into();
    let (tag, target, now) = (1, to, scene.world.now);
    other
        .call(now, NewCall { tag, target, sticky: false, class: 0, deadline: Deadline::NONE, body })
        .unwrap();
    while let Some(transmit) = other.poll_transmit() {
        let before = scene.world.datagrams.len();
        scene.world.deliver_datagram(from, to, &transmit.to_vec());
        scene.settle();
        scene.world.datagrams[before..].iter().for_each(|bytes| other.handle_datagram(now, to, bytes));
    }
    let Some(ClientEvent::Failed { failure, .. }) = other.poll_event() else { panic!("it has no answer") };
    assert_eq!(failure, CallFailure::Dropped { reason: Reason::Busy, delay_us: 0 });
    // It takes again.
    scene.world.arrives = |_| true;
    for _ in 0..200 {
        scene.pass(20 * MS);
    }
    assert_eq!(held(&scene, "messages of R2P2 on their way"), 0);
    assert!(held(&scene, "requests over R2P2 that have ended") > 0);
    let mut finishes = scene.client.take();
    finishes.retain(|completion| matches!(completion, Completion::Finish(_)));
    let mut ended = BTreeMap::new();
    for completion in finishes {
        let Completion::Finish(Finish { call: id, code, .. }) = completion else { continue };
        scene.client.inbox = vec![completion];
        let call = calls.into_iter().find(|call| call.call == id).expect("it is one of them");
        let (finish, _, words) = scene.conclude(call, code);
        ended.insert(code.number(), (finish.execution, words.text("grpc-message").map(str::to_owned)));
    }
    let [ok, full] = [Code::Ok, Code::ResourceExhausted].map(|code| ended.remove(&code.number()));
    assert_eq!(ok, Some((Execution::Executed, None)));
    let (execution, words) = full.expect("one has met the limit");
    assert_eq!(execution, Execution::Unknown, "an answer that cannot be sent");
    assert!(words.as_ref().unwrap().contains("(limits.held_bytes_per_source)"), "{words:?}");
    scene.nothing_left();
}

/// An application that names endpoints and goes leaves nothing of them.
#[test]
fn what_an_endpoint_speaks_is_forgotten_with_it() {
    let mut scene = Scene::new();
    let greeting_is_extended = |scene: &Scene| {
        let mut parsed = scene.world.datagrams.iter().filter_map(|bytes| Packet::parse(bytes, true).ok());
        let greeting = parsed.find(|packet| packet.header.kind == PacketType::Request).unwrap();
        greeting.extension.is_some()
    };
    scene.round_trip(b"it shows the extended mode");
    assert!(!greeting_is_extended(&scene), "nobody knows before it answers");
    scene.world.detach(&scene.client);
    scene.settle();
    scene.world.datagrams.clear();
    scene.client = scene.world.attach(0, PROTO, TARGET, false);
    scene.round_trip(b"it is another endpoint");
    assert!(!greeting_is_extended(&scene), "nobody knows");
}

/// No seal says which host it is, so nobody is among `peers`.
#[test]
fn rules_about_the_network_hold_for_requests() {
    for (service, may) in [("world.*", false), ("other.*", true)] {
        let mut scene = Scene::new();
        let rule = PeerRule { service: service.into(), peers: vec!["*".into()] };
        scene.world.hosts[1].engine.configure_peer_rules(vec![rule]);
        if may {
            scene.round_trip(b"no rule names it");
        } else {
            let call = scene.call(0, b"x", Deadline::NONE);
            assert!(scene.server.take().is_empty(), "no handler hears of it");
            let (finish, _, words) = scene.conclude(call, Code::PermissionDenied);
            assert_eq!(finish.execution, Execution::NotExecuted);
            let words = words.text("grpc-message").unwrap();
            let why = "a peer that has proved nothing may not call world.Echo: [[call]] for \"world.*\"";
            assert!(words.starts_with(why), "{words}");
            assert_eq!(
                scene.world.refused(1),
                [(ONCE.to_owned(), Code::PermissionDenied.number())],
                "its host knows"
            );
        }
        scene.nothing_left();
    }
}

#[test]
fn a_host_that_drains_takes_nothing_new() {
    let mut scene = Scene::new();
    let call = scene.call(0, b"before", Deadline::NONE);
    scene.world.hosts[1].engine.drain(scene.world.now);
    let refused = scene.call(0, b"after", Deadline::NONE);
    let (finish, _, words) = scene.conclude(refused, Code::Unavailable);
    assert_eq!(finish.execution, Execution::NotExecuted, "{words:?}");
    scene.server.inbox.retain(|completion| matches!(completion, Completion::Call(_)));
    scene.echo();
    scene.conclude(call, Code::Ok);
    scene.nothing_left();
}

/// Policy and class of the last first packet of a request.
fn asked(scene: &Scene) -> (trunkline_r2p2::Policy, u8) {
    let requests = scene.world.datagrams.iter().rev().filter_map(|bytes| Packet::parse(bytes, true).ok());
    let found = requests.into_iter().find_map(|packet| match packet.extension?.part {
        trunkline_r2p2::Part::Request(part) => Some((packet.header.policy, part.class)),
        _ => None,
    });
    found.expect("a request of the extended mode")
}

#[test]
fn routers_are_told_class_and_sticky_of_a_call() {
    use trunkline_policy::{Chain, Definition, Kind};
    use trunkline_r2p2::Policy;
    let mut scene = Scene::new();
    scene.round_trip(b"first");
    let call = |scene: &mut Scene, pairs: &[(&str, &str)]| {
        let payload = scene.world.message(&mut scene.client, b"x");
        let mut call = scene.client.call(0, Some(payload), true);
        let mut metadata = Metadata::new();
        pairs.iter().for_each(|(key, value)| metadata.insert(key, value).unwrap());
        call.metadata = scene.world.put_metadata(&mut scene.client, &metadata);
        scene.world.submit(&scene.client, Submission::Call(call)).unwrap();
        scene.settle();
        scene.echo();
        scene.conclude(call, Code::Ok);
        asked(scene)
    };
    assert_eq!(call(&mut scene, &[("tenant", "blue")]), (Policy::Unrestricted, 0));
    assert_eq!(call(&mut scene, &[("trunkline-worker-class", "3")]), (Policy::Unrestricted, 3));
    assert_eq!(call(&mut scene, &[("trunkline-sticky", "true")]), (Policy::Sticky, 0));
    let definition = Definition {
        name: "classes".into(),
        kind: Kind::Workers,
        worker_class: Some(5),
        sticky: Some(true),
        ..Definition::default()
    };
    scene.world.hosts[0].engine.apply_policies(Chain::build(&[definition]).unwrap()).unwrap();
    assert_eq!(
        call(&mut scene, &[("trunkline-worker-class", "3")]),
        (Policy::Sticky, 5),
        "the operator decides"
    );
    scene.nothing_left();
}

/// Host 0 has two callers of different users; both hosts serve.
fn two_users(limits: Limits) -> (World, [App; 2], [App; 2]) {
    let mut scene = Scene::within(limits, PROTO, PROTO, Mode::Offer);
    let settings = R2p2Settings { serves: true, ..R2p2Settings::default() };
    scene.world.hosts[0].engine.configure_r2p2(scene.world.now, settings.clone());
    scene.world.r2p2[0] = settings;
    // Nothing sent before it began is on its way.
    scene.world.advance(60_000 * MS);
    let here = scene.world.attach(0, PROTO, None, true);
    let other = scene.world.attach(0, PROTO, TARGET, false);
    let Scene { mut world, client, server } = scene;
    for (app, user) in [(&client, "uid:1"), (&other, "uid:2")] {
        world.hosts[0].engine.identify(app.key, user, "");
    }
    (world, [client, other], [here, server])
}

fn submit(world: &mut World, app: &mut App, route: usize, bytes: usize, deadline: Deadline) -> Call {
    let payload = world.message(app, &vec![7; bytes]);
    let call = Call { deadline, ..app.call(route, Some(payload), true) };
    world.submit(app, Submission::Call(call)).unwrap();
    call
}

/// A user whose calls nobody answers fills what may be kept for it, and leaves room to others: at another endpoint, and
/// at the same.
#[test]
fn requests_nobody_answers_hold_up_no_others_calls() {
    let limits = Limits { connection_queue_bytes: 64 << 10, ..Limits::default() };
    let (mut world, [mut greedy, mut good], [mut here, mut server]) = two_users(limits);
    let calls = [(ONCE.to_owned(), Some("r2p2://10.0.0.1:8000".to_owned()))];
    world.bind(&mut good, &[], &calls);
    let all = |world: &mut World, apps: [&mut App; 4]| world.settle(&mut apps.map(|app| app));
    for _ in 0..200 {
        submit(&mut world, &mut greedy, 0, 1000, Deadline::NONE);
        all(&mut world, [&mut greedy, &mut good, &mut here, &mut server]);
    }
    let delivered = server.take();
    assert!((60..=80).contains(&delivered.len()), "{} of the greedy one", delivered.len());
    // By another endpoint, and by the same.
    let elsewhere = good.routes.len() - 1;
    for route in [elsewhere, 0] {
        submit(&mut world, &mut good, route, 10, Deadline::NONE);
        all(&mut world, [&mut greedy, &mut good, &mut here, &mut server]);
    }
    let said = good.take();
    assert_eq!((here.take().len(), server.take().len()), (1, 1), "{said:?}");
    // What waits goes on as what is out is answered, in order.
    let mut waiting = delivered;
    let mut answered = 0;
    while let Some(Completion::Call(call)) = waiting.pop() {
        let read = release(call.call, call.payload, call.metadata, 0);
        world.submit(&server, read).unwrap();
        world.submit(&server, Submission::Finish(finish(call.call, Code::Aborted, None))).unwrap();
        all(&mut world, [&mut greedy, &mut good, &mut here, &mut server]);
        waiting.append(&mut server.take());
        waiting.retain(|completion| matches!(completion, Completion::Call(_)));
        answered += 1;
    }
    assert_eq!(answered, 200);
    assert_eq!(world.entries_in_line(), 0);
}

/// Calls that end while they wait for others to be answered leave the line.
#[test]
fn calls_that_end_in_line_are_not_kept_there() {
    let limits = Limits { connection_queue_bytes: 4 << 10, ..Limits::default() };
    let (mut world, [mut greedy, mut good], [mut here, mut server]) = two_users(limits);
    for round in 0..1000 {
        let deadline = if round < 10 { Deadline::NONE } else { Deadline::at(world.now.plus_ns(MS)) };
        submit(&mut world, &mut greedy, 0, 1000, deadline);
        world.advance(2 * MS);
        world.settle(&mut [&mut greedy, &mut good, &mut here, &mut server]);
        for completion in greedy.take() {
            if let Completion::Finish(finish) = completion {
                world.submit(&greedy, release(finish.call, finish.payload, finish.metadata, 9)).unwrap();
            }
        }
        assert!(world.entries_in_line() <= 100, "{round}");
    }
    assert!(world.entries_in_line() > 0);
}
