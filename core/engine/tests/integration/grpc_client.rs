//! Shows applications of a host calling gRPC servers: how it is found out what an endpoint speaks, the pool of
//! connections, every way an answer can come or fail to, and requests sent again where that is safe.

use crate::world;

use trunkline_call::entry::{Call, Completion, Finish, Submission};
use trunkline_call::{Code, Deadline, Execution, Instant, Metadata};
use trunkline_engine::{GrpcSettings, Limits, Protocol, Turn, leave_grpc, stay_with_grpc};
use trunkline_grpc::compress::{Encoding, decompress};
use trunkline_grpc::{Event, Reason, ResetBy, StreamTag};
use trunkline_telemetry::{Ask, Coverage, Side};
use world::web::{Said, blob};
use world::*;

const TARGET: Option<&str> = Some("tcp://10.1.1.1:50051");
const OK: &[(&str, &str)] = &[("grpc-status", "0")];

/// One host, one application that calls, and gRPC servers wherever it dials.
struct Scene {
    world: World,
    client: App,
}

impl Scene {
    fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        let mut world = World::with_limits(limits);
        world.foreign = true;
        let client = world.attach(0, PROTO, TARGET, false);
        Self { world, client }
    }

    fn settle(&mut self) {
        self.world.settle(&mut [&mut self.client]);
    }

    /// A scene with one connection that is up.
    fn connected(streams_max: u32) -> Self {
        let mut scene = Self::new();
        let call = scene.call(0, b"first", Deadline::NONE);
        scene.ready(0, streams_max);
        let tag = scene.world.webs[0].newest();
        scene.said(0, tag);
        scene.respond(0, tag, b"first");
        scene.conclude(call, Code::Ok);
        scene
    }

    fn ready(&mut self, web: usize, streams_max: u32) {
        self.world.http(web, Event::Ready { streams_max });
        self.settle();
    }

    fn call(&mut self, route: usize, data: &[u8], deadline: Deadline) -> Call {
        let payload = self.world.blob(&mut self.client, data);
        let streams = route == 1 || route == 3;
        let mut call = self.client.call(route, Some(payload), !streams);
        call.deadline = deadline;
        self.world.submit(&self.client, Submission::Call(call)).unwrap();
        self.settle();
        call
    }

    fn submit(&mut self, submission: Submission) {
        self.world.submit(&self.client, submission).unwrap();
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

    /// The call's outcome, released.
    #[track_caller]
    fn conclude(&mut self, call: Call, code: Code) -> (Finish, Vec<u8>, Metadata) {
        let finish = self.client.take_finish();
        assert_eq!((finish.call, finish.code), (call.call, code), "{}", self.message(&finish));
        let data = finish.payload.map_or_else(Vec::new, |payload| self.world.data(&self.client, payload));
        let metadata = self.world.metadata(&self.client, finish.metadata);
        self.submit(release(finish.call, finish.payload, finish.metadata, 9));
        (finish, data, metadata)
    }

    fn message(&self, finish: &Finish) -> String {
        let metadata = self.world.metadata(&self.client, finish.metadata);
        metadata.text("grpc-message").unwrap_or_default().to_owned()
    }

    #[track_caller]
    fn nothing_left(&mut self) {
        self.settle();
        self.world.nothing_left();
    }
}

#[test]
fn an_endpoint_that_does_not_answer_the_native_hello_is_called_by_grpc() {
    let mut scene = Scene::new();
    let deadline = Deadline::at(scene.world.now.plus_ns(2_000_000_000));
    let call = scene.call(0, b"hello", deadline);
    assert_eq!((scene.world.dials, scene.world.webs.len()), (2, 1), "native first, then gRPC, at once");
    assert!(scene.world.webs[0].streams.is_empty(), "nothing is sent before the connection is up");
    scene.ready(0, 100);
    let tag = scene.world.webs[0].newest();
    let said = scene.said(0, tag);
    assert_eq!((said.path.as_str(), said.ended), (ONCE, true));
    assert_eq!(data_of(&said.messages[0].1), b"hello");
    assert_eq!(said.head["grpc-timeout"], "2000000u");
    assert!(said.head["user-agent"].to_str().unwrap().starts_with("grpc-trunkline/"));
    scene.respond(0, tag, b"dlrow");
    let (finish, data, _) = scene.conclude(call, Code::Ok);
    assert_eq!((finish.execution, data.as_slice()), (Execution::Executed, &b"dlrow"[..]));
    let call = scene.call(0, b"again", Deadline::NONE);
    assert_eq!(scene.world.dials, 2, "the connection stays");
    let tag = scene.world.webs[0].newest();
    assert!(!scene.said(0, tag).head.contains_key("grpc-timeout"));
    scene.respond(0, tag, b"y");
    scene.conclude(call, Code::Ok);
    scene.world.hang_up(0);
    let call = scene.call(0, b"and again", Deadline::NONE);
    assert_eq!((scene.world.dials, scene.world.webs.len()), (4, 2), "it is asked again what it speaks");
    scene.ready(1, 100);
    let tag = scene.world.webs[1].newest();
    scene.respond(1, tag, b"y");
    scene.conclude(call, Code::Ok);
    scene.nothing_left();
}

#[test]
fn what_an_endpoint_speaks_is_forgotten_when_it_is_gone() {
    let mut scene = Scene::connected(100);
    scene.world.hang_up(0);
    scene.world.unreachable = true;
    let call = scene.call(0, b"x", Deadline::NONE);
    let (finish, ..) = scene.conclude(call, Code::Unavailable);
    assert_eq!(finish.execution, Execution::NotExecuted);
    // Another daemon listens there when it comes back.
    (scene.world.unreachable, scene.world.foreign) = (false, false);
    scene.world.advance(10_000_000_000);
    let mut server = scene.world.attach(1, PROTO, None, true);
    let call = scene.call(0, b"x", Deadline::NONE);
    scene.world.settle(&mut [&mut scene.client, &mut server]);
    let delivered = server.take_call();
    let reply = scene.world.blob(&mut server, b"native");
    scene.world.submit(&server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
    scene.world.submit(&server, Submission::Finish(finish_ok(delivered.call, reply))).unwrap();
    scene.world.settle(&mut [&mut scene.client, &mut server]);
    assert_eq!(scene.conclude(call, Code::Ok).1, b"native");
}

/// It was silent when it was asked. As soon as no connection is left that shows that it speaks gRPC, it is asked again.
#[test]
fn a_daemon_taken_for_a_grpc_server_is_found_out_when_its_connections_end_or_leave() {
    for leaves in [false, true] {
        let mut scene = Scene::connected(1);
        let go = |scene: &mut Scene, web: usize| match leaves {
            true => {
                scene.world.http(web, Event::GoAway { reason: Reason::NO_ERROR, debug: Default::default() })
            }
            false => scene.world.hang_up(web),
        };
        let answer = |scene: &mut Scene, web: usize, call: Call| {
            let tag = scene.world.webs[web].newest();
            scene.respond(web, tag, b"y");
            scene.conclude(call, Code::Ok);
        };
        let first = scene.call(0, b"1", Deadline::NONE);
        let second = scene.call(0, b"2", Deadline::NONE);
        scene.ready(1, 1);
        answer(&mut scene, 0, first);
        let dials = scene.world.dials;
        go(&mut scene, 0);
        let third = scene.call(0, b"3", Deadline::NONE);
        assert_eq!(
            (scene.world.dials, scene.world.webs.len()),
            (dials + 1, 3),
            "one is left: nothing is forgotten"
        );
        answer(&mut scene, 1, second);
        scene.ready(2, 1);
        let tag = scene.world.webs[1].newest();
        scene.respond(1, tag, b"y");
        scene.conclude(third, Code::Ok);
        scene.world.foreign = false;
        go(&mut scene, 1);
        go(&mut scene, 2);
        let mut server = scene.world.attach(1, PROTO, None, true);
        let last = scene.call(0, b"4", Deadline::NONE);
        scene.world.settle(&mut [&mut scene.client, &mut server]);
        let delivered = server.take_call();
        let reply = scene.world.blob(&mut server, b"native");
        scene
            .world
            .submit(&server, release(delivered.call, delivered.payload, delivered.metadata, 0))
            .unwrap();
        scene.world.submit(&server, Submission::Finish(finish_ok(delivered.call, reply))).unwrap();
        scene.world.settle(&mut [&mut scene.client, &mut server]);
        assert_eq!(scene.conclude(last, Code::Ok).1, b"native");
    }
}

#[test]
fn a_host_told_to_always_speak_grpc_does_so_at_once_and_after_a_failure() {
    let mut scene = Scene::new();
    scene.world.hosts[0].engine.configure_grpc(GrpcSettings { always: true, ..GrpcSettings::default() });
    scene.world.unreachable = true;
    let call = scene.call(0, b"x", Deadline::NONE);
    scene.conclude(call, Code::Unavailable);
    scene.world.unreachable = false;
    scene.world.advance(10_000_000_000);
    let dials = scene.world.dials;
    let call = scene.call(0, b"x", Deadline::NONE);
    assert_eq!((scene.world.dials - dials, scene.world.webs.len()), (1, 1), "no native greeting before it");
    scene.ready(0, 100);
    let tag = scene.world.webs[0].newest();
    scene.respond(0, tag, b"y");
    scene.conclude(call, Code::Ok);
    scene.nothing_left();
}

fn finish_ok(call: trunkline_call::CallId, payload: trunkline_call::entry::Payload) -> Finish {
    world::finish(call, Code::Ok, Some(payload))
}

#[test]
fn metadata_goes_both_ways() {
    let mut scene = Scene::connected(100);
    let mut metadata = Metadata::new();
    metadata.insert("custom", "a").unwrap();
    metadata.insert("custom-bin", [1, 2]).unwrap();
    let payload = scene.world.blob(&mut scene.client, b"x");
    let mut call = scene.client.call(0, Some(payload), true);
    call.metadata = scene.world.put_metadata(&mut scene.client, &metadata);
    scene.submit(Submission::Call(call));
    let tag = scene.world.webs[0].newest();
    let said = scene.said(0, tag);
    assert_eq!(
        (&said.head["custom"], &said.head["custom-bin"]),
        (&"a".parse().unwrap(), &"AQI".parse().unwrap())
    );
    scene.world.answer(0, tag, 200, &[("early", "1")], false);
    scene.world.body(0, tag, &blob(b"y"), false);
    scene.world.trailers(0, tag, &[("grpc-status", "0"), ("late-bin", "/wA=")]);
    scene.settle();
    let taken = scene.client.take();
    let [Completion::Headers { metadata, .. }, Completion::Finish(finish)] = taken[..] else {
        panic!("{taken:?}")
    };
    assert_eq!(scene.world.metadata(&scene.client, metadata).text("early"), Some("1"));
    assert_eq!(scene.world.metadata(&scene.client, finish.metadata).first("late-bin"), Some(&[0xff, 0][..]));
    scene.submit(release(call.call, None, metadata, 0));
    scene.submit(release(call.call, finish.payload, finish.metadata, 9));
    scene.nothing_left();
}

#[test]
fn streams_in_both_directions() {
    let mut scene = Scene::connected(100);
    let call = scene.call(3, &[0; 10], Deadline::NONE);
    let tag = scene.world.webs[0].newest();
    assert_eq!(scene.said(0, tag).messages.len(), 1);
    scene.world.answer(0, tag, 200, &[], false);
    for round in 0..30u8 {
        let payload = scene.world.blob(&mut scene.client, &vec![round; 50_000]);
        let end = round == 29;
        scene.submit(Submission::Message { call: call.call, payload, end, a1: Instant(5) });
        let said = scene.said(0, tag);
        assert_eq!((data_of(&said.messages[0].1), said.ended), (vec![round; 50_000], end));
        scene.world.body(0, tag, &blob(&[round]), false);
        scene.settle();
        for completion in scene.client.take() {
            if let Completion::Message { payload, .. } = completion {
                assert_eq!(scene.world.data(&scene.client, payload), [round]);
                scene.submit(release(call.call, Some(payload), Default::default(), 0));
            }
        }
    }
    scene.world.trailers(0, tag, OK);
    scene.settle();
    scene.conclude(call, Code::Ok);
    scene.nothing_left();
}

#[test]
fn answers_that_are_not_what_they_should_be() {
    type Answer = fn(&mut World, StreamTag);
    let table: [(&str, Answer, Code, Execution); 14] = [
        (
            "an error",
            |w, t| w.answer(0, t, 200, &[("grpc-status", "5"), ("grpc-message", "no")], true),
            Code::NotFound,
            Execution::Executed,
        ),
        ("no status at all", |w, t| w.answer(0, t, 200, &[], true), Code::Unknown, Execution::Unknown),
        (
            "HTTP 503",
            |w, t| w.answer(0, t, 503, &[("content-type", "text/html")], true),
            Code::Unavailable,
            Execution::Unknown,
        ),
        (
            "HTTP 404",
            |w, t| w.answer(0, t, 404, &[("content-type", "text/html")], false),
            Code::Unimplemented,
            Execution::Unknown,
        ),
        (
            "not gRPC",
            |w, t| w.answer(0, t, 200, &[("content-type", "text/html")], false),
            Code::Unknown,
            Execution::Unknown,
        ),
        (
            "no message",
            |w, t| {
                w.answer(0, t, 200, &[], false);
                w.trailers(0, t, OK)
            },
            Code::Unimplemented,
            Execution::Unknown,
        ),
        (
            "two messages",
            |w, t| {
                w.answer(0, t, 200, &[], false);
                w.body(0, t, &[blob(b"1"), blob(b"2")].concat(), false)
            },
            Code::Unimplemented,
            Execution::Unknown,
        ),
        (
            "half a message",
            |w, t| {
                w.answer(0, t, 200, &[], false);
                w.body(0, t, &blob(b"abc")[..6], false);
                w.trailers(0, t, OK)
            },
            Code::Internal,
            Execution::Unknown,
        ),
        (
            "no trailers",
            |w, t| {
                w.answer(0, t, 200, &[], false);
                w.body(0, t, &blob(b"abc"), true)
            },
            Code::Internal,
            Execution::Unknown,
        ),
        (
            "trailers without status",
            |w, t| {
                w.answer(0, t, 200, &[], false);
                w.body(0, t, &blob(b"abc"), false);
                w.trailers(0, t, &[])
            },
            Code::Unknown,
            Execution::Unknown,
        ),
        ("reset", |w, t| w.reset(0, t, Reason::INTERNAL_ERROR), Code::Internal, Execution::Unknown),
        ("reset as cancelled", |w, t| w.reset(0, t, Reason::CANCEL), Code::Cancelled, Execution::Unknown),
        (
            "too busy",
            |w, t| w.reset(0, t, Reason::ENHANCE_YOUR_CALM),
            Code::ResourceExhausted,
            Execution::Unknown,
        ),
        ("hung up", |w, _| w.hang_up(0), Code::Unavailable, Execution::Unknown),
    ];
    for (what, answer, code, execution) in table {
        let mut scene = Scene::connected(100);
        let call = scene.call(0, b"x", Deadline::NONE);
        let tag = scene.world.webs[0].newest();
        answer(&mut scene.world, tag);
        scene.settle();
        let finish = scene.client.take_finish();
        assert_eq!((finish.code, finish.execution), (code, execution), "{what}: {}", scene.message(&finish));
        assert!(finish.payload.is_none(), "{what}");
        if matches!(what, "HTTP 404" | "not gRPC") {
            // Its stream has not ended, and would otherwise stay for as long as the server likes.
            assert_eq!(scene.said(0, tag).reset, Some(Reason::CANCEL), "{what}");
        }
        scene.submit(release(call.call, None, finish.metadata, 9));
        scene.nothing_left();
    }
}

#[test]
fn an_answer_to_half_a_request_ends_it() {
    let mut scene = Scene::connected(100);
    let call = scene.call(1, b"first of many", Deadline::NONE);
    let tag = scene.world.webs[0].newest();
    scene.world.answer(0, tag, 200, &[("grpc-status", "8")], true);
    scene.settle();
    assert_eq!(scene.said(0, tag).reset, Some(Reason::NO_ERROR), "the server is told that no more comes");
    scene.client.inbox.retain(|completion| !matches!(completion, Completion::Credit { .. }));
    scene.conclude(call, Code::ResourceExhausted);
    scene.nothing_left();
}

#[test]
fn a_cancel_and_a_deadline_reset_the_stream() {
    for late in [false, true] {
        let mut scene = Scene::connected(100);
        let deadline = Deadline::at(scene.world.now.plus_ns(1_000));
        let call = scene.call(0, b"x", deadline);
        let tag = scene.world.webs[0].newest();
        if late {
            scene.world.advance(1_000);
            scene.settle();
            let (finish, ..) = scene.conclude(call, Code::DeadlineExceeded);
            assert_eq!(finish.execution, Execution::Unknown);
        } else {
            scene.submit(Submission::Cancel { call: call.call });
        }
        assert_eq!(scene.said(0, tag).reset, Some(Reason::CANCEL));
        scene.respond(0, tag, b"late");
        assert!(scene.client.take().is_empty(), "a late answer reaches nobody");
        scene.nothing_left();
    }
}

#[test]
fn the_servers_clock_may_strike_first() {
    let mut scene = Scene::connected(100);
    let deadline = Deadline::at(scene.world.now.plus_ns(1_000));
    let call = scene.call(0, b"x", deadline);
    let tag = scene.world.webs[0].newest();
    scene.world.now = scene.world.now.plus_ns(1_000);
    scene.world.reset(0, tag, Reason::CANCEL);
    scene.settle();
    scene.conclude(call, Code::DeadlineExceeded);
    scene.nothing_left();
}

#[test]
fn the_pool_grows_when_streams_run_out_and_no_further_than_its_limit() {
    let limits = Limits { grpc_connections_per_endpoint: 3, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let calls: Vec<_> = (0..10).map(|_| scene.call(0, b"x", Deadline::NONE)).collect();
    for web in 0..3 {
        assert_eq!(scene.world.webs.len(), web + 1, "one at a time");
        scene.ready(web, 2);
        assert_eq!(scene.world.webs[web].streams.len(), 2);
    }
    assert_eq!(scene.world.webs.len(), 3);
    // Those that wait go on as streams end.
    let mut ended = 0;
    while ended < calls.len() {
        for web in 0..3 {
            let open: Vec<_> = scene.world.webs[web].open().collect();
            assert!(open.len() <= 2, "the server's limit holds");
            for tag in open {
                scene.respond(web, tag, b"y");
                ended += 1;
            }
        }
    }
    let finished = scene.client.take();
    assert_eq!(finished.len(), 10);
    for completion in finished {
        let Completion::Finish(finish) = completion else { panic!("{completion:?}") };
        assert_eq!(finish.code, Code::Ok);
        scene.submit(release(finish.call, finish.payload, finish.metadata, 9));
    }
    scene.nothing_left();
}

#[test]
fn more_streams_may_be_allowed_later() {
    let mut scene = Scene::connected(1);
    let first = scene.call(0, b"1", Deadline::NONE);
    scene.world.unreachable = true;
    let second = scene.call(0, b"2", Deadline::NONE);
    assert_eq!(scene.world.webs[0].open().count(), 1);
    scene.world.http(0, Event::StreamsMax { streams_max: 2 });
    scene.settle();
    let open: Vec<_> = scene.world.webs[0].open().collect();
    assert_eq!(open.len(), 2, "and a failed dial ended nobody who has a connection to wait for");
    for (tag, call) in open.into_iter().zip([first, second]) {
        scene.respond(0, tag, b"y");
        scene.conclude(call, Code::Ok);
    }
    scene.nothing_left();
}

#[test]
fn a_server_that_leaves_finishes_what_it_has_and_gets_no_more() {
    let mut scene = Scene::connected(100);
    let first = scene.call(0, b"1", Deadline::NONE);
    let tag = scene.world.webs[0].newest();
    scene.world.http(0, Event::GoAway { reason: Reason::NO_ERROR, debug: Default::default() });
    let second = scene.call(0, b"2", Deadline::NONE);
    assert_eq!(scene.world.webs.len(), 2, "new calls go over a new connection");
    scene.ready(1, 100);
    let other = scene.world.webs[1].newest();
    scene.respond(1, other, b"b");
    assert_eq!(scene.conclude(second, Code::Ok).1, b"b");
    assert_eq!(scene.world.webs[0].closed(), None);
    scene.respond(0, tag, b"a");
    assert_eq!(scene.conclude(first, Code::Ok).1, b"a");
    scene.settle();
    assert_eq!(scene.world.webs[0].closed(), Some(Reason::NO_ERROR), "and then it is closed");
    scene.nothing_left();
}

/// A daemon that is being replaced takes a connection and leaves: nothing was asked of it yet, and its successor is
/// there. Who does so again cannot be reached.
#[test]
fn a_server_that_leaves_before_it_is_up_is_dialled_once_more() {
    for says_settings in [false, true] {
        let mut scene = Scene::new();
        let leave = |scene: &mut Scene, web: usize| {
            scene.world.http(web, Event::GoAway { reason: Reason::NO_ERROR, debug: Default::default() });
            if says_settings {
                scene.world.http(web, Event::Ready { streams_max: 100 });
            }
            scene.settle();
            assert_eq!(scene.world.webs[web].open().count(), 0, "no call goes to who leaves");
            scene.world.hang_up(web);
            scene.settle();
        };
        for _ in 0..2 {
            let first = scene.world.webs.len();
            let call = scene.call(0, b"x", Deadline::NONE);
            assert_eq!(scene.world.webs.len(), first + 1);
            leave(&mut scene, first);
            assert_eq!(scene.world.webs.len(), first + 2, "it is dialled once more, and at once");
            scene.ready(first + 1, 100);
            let tag = scene.world.webs[first + 1].newest();
            scene.respond(first + 1, tag, b"y");
            scene.conclude(call, Code::Ok);
            scene.world.hang_up(first + 1);
            scene.settle();
        }
        let first = scene.world.webs.len();
        let call = scene.call(0, b"x", Deadline::NONE);
        leave(&mut scene, first);
        leave(&mut scene, first + 1);
        let (finish, ..) = scene.conclude(call, Code::Unavailable);
        assert_eq!(finish.execution, Execution::NotExecuted);
        assert_eq!(scene.world.webs.len(), first + 2);
        scene.nothing_left();
    }
}

/// Before the daemon is replaced: what is under way ends, what comes waits in line, and goes on in the engine that
/// takes over, or in this one if none does.
#[test]
fn held_calls_wait_in_line() {
    for takes_over in [false, true] {
        let mut scene = Scene::connected(100);
        let first = scene.call(0, b"1", Deadline::NONE);
        let tag = scene.world.webs[0].newest();
        let left = leave_grpc(&mut scene.world.hosts[0].engine, true);
        assert_eq!((left.unfinished, left.calls), (1, 1));
        let second = scene.call(0, b"2", Deadline::NONE);
        assert_eq!(
            (scene.world.webs.len(), scene.world.webs[0].open().count()),
            (1, 1),
            "nothing new is begun"
        );
        scene.respond(0, tag, b"a");
        assert_eq!(scene.conclude(first, Code::Ok).1, b"a");
        assert_eq!(leave_grpc(&mut scene.world.hosts[0].engine, true).unfinished, 0);
        if takes_over {
            scene.world.replace_engine(0);
            // The old connection does not come along.
            scene.world.webs.clear();
            scene.settle();
            scene.ready(0, 100);
        } else {
            let (now, host) = (scene.world.now, &mut scene.world.hosts[0]);
            stay_with_grpc(&mut host.engine, &mut Turn { now, heaps: &mut host.heaps });
            scene.settle();
        }
        let tag = scene.world.webs[0].newest();
        scene.respond(0, tag, b"b");
        assert_eq!(scene.conclude(second, Code::Ok).1, b"b");
        scene.nothing_left();
    }
}

#[test]
fn a_request_the_server_has_not_seen_is_sent_again_once() {
    for route in [0, 3] {
        let mut scene = Scene::connected(100);
        let call = scene.call(route, b"one", Deadline::NONE);
        if route == 3 {
            let payload = scene.world.blob(&mut scene.client, b"two");
            scene.submit(Submission::Message { call: call.call, payload, end: true, a1: Instant(5) });
        }
        let first = scene.world.webs[0].newest();
        let said = scene.said(0, first);
        scene.world.reset(0, first, Reason::REFUSED_STREAM);
        scene.settle();
        let second = scene.world.webs[0].newest();
        assert_ne!(first, second);
        let again = scene.said(0, second);
        assert_eq!((&again.messages, again.ended), (&said.messages, true), "all of it");
        assert_eq!(again.head, said.head);
        scene.world.reset(0, second, Reason::REFUSED_STREAM);
        scene.settle();
        scene.client.inbox.retain(|completion| !matches!(completion, Completion::Credit { .. }));
        let (finish, ..) = scene.conclude(call, Code::Unavailable);
        assert_eq!(finish.execution, Execution::NotExecuted, "and the caller may try again itself");
        scene.nothing_left();
    }
}

#[test]
fn what_is_not_whole_when_it_is_refused_goes_on_where_it_was() {
    let mut scene = Scene::connected(100);
    let call = scene.call(3, b"one", Deadline::NONE);
    let first = scene.world.webs[0].newest();
    scene.said(0, first);
    scene.world.reset(0, first, Reason::REFUSED_STREAM);
    scene.settle();
    let payload = scene.world.blob(&mut scene.client, b"two");
    scene.submit(Submission::Message { call: call.call, payload, end: true, a1: Instant(5) });
    let second = scene.world.webs[0].newest();
    let said = scene.said(0, second);
    let sent: Vec<_> = said.messages.iter().map(|(_, message)| data_of(message)).collect();
    assert_eq!((sent, said.ended), (vec![b"one".to_vec(), b"two".to_vec()], true));
    scene.world.answer(0, second, 200, &[], false);
    scene.world.trailers(0, second, OK);
    scene.settle();
    scene.client.inbox.retain(|completion| !matches!(completion, Completion::Credit { .. }));
    scene.conclude(call, Code::Ok);
    scene.nothing_left();
}

/// What had not left when it was refused takes nothing of its sender's window for good.
#[test]
fn what_is_sent_again_gives_its_credit_back() {
    let mut scene = Scene::connected(100);
    scene.world.webs[0].reads = false;
    let call = scene.call(3, &[1; 20_000], Deadline::NONE);
    let payload = scene.world.blob(&mut scene.client, &[2; 20_000]);
    scene.submit(Submission::Message { call: call.call, payload, end: false, a1: Instant(5) });
    assert!(scene.client.take().is_empty(), "nothing has left");
    let first = scene.world.webs[0].newest();
    scene.said(0, first);
    scene.world.reset(0, first, Reason::REFUSED_STREAM);
    scene.settle();
    scene.world.webs[0].reads = true;
    scene.settle();
    let second = scene.world.webs[0].newest();
    assert_eq!(scene.said(0, second).messages.len(), 2);
    let credited = scene.client.take().into_iter().map(|completion| match completion {
        Completion::Credit { bytes, .. } => bytes,
        other => panic!("{other:?}"),
    });
    assert_eq!(credited.sum::<u32>(), 2 * payload.window_bytes(), "each once");
    scene.submit(Submission::Cancel { call: call.call });
    scene.nothing_left();
}

#[test]
fn an_answer_or_a_long_request_ends_the_right_to_try_again() {
    let mut scene = Scene::connected(100);
    let call = scene.call(0, b"x", Deadline::NONE);
    let tag = scene.world.webs[0].newest();
    scene.world.answer(0, tag, 200, &[], false);
    scene.world.reset(0, tag, Reason::REFUSED_STREAM);
    scene.settle();
    let (finish, ..) = scene.conclude(call, Code::Unavailable);
    assert_eq!(finish.execution, Execution::Unknown, "it had begun to answer");
    let call = scene.call(0, &vec![1; 300_000], Deadline::NONE);
    let tag = scene.world.webs[0].newest();
    scene.world.reset(0, tag, Reason::REFUSED_STREAM);
    scene.settle();
    let (finish, ..) = scene.conclude(call, Code::Unavailable);
    assert_eq!(finish.execution, Execution::NotExecuted);
    scene.nothing_left();
}

#[test]
fn a_lost_server_is_left_alone_for_a_while_and_longer_each_time() {
    for seed in [0, 77] {
        let mut scene = Scene::new();
        scene.world.hosts[0].engine.seed(seed);
        scene.world.unreachable = true;
        let mut dials = Vec::new();
        for _ in 0..300 {
            let before = scene.world.dials;
            let call = scene.call(0, b"x", Deadline::NONE);
            scene.conclude(call, Code::Unavailable);
            if scene.world.dials > before {
                dials.push(scene.world.now.0);
            }
            scene.world.advance(10_000_000);
        }
        let pauses: Vec<u64> = dials.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect();
        assert!(dials.len() < 12, "{pauses:?}");
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1] + 10), "{pauses:?}");
        if seed == 0 {
            assert_eq!(pauses[..4], [20, 40, 80, 160]);
        }
    }
}

#[test]
fn a_slow_server_slows_the_application_and_a_slow_application_the_server() {
    let window = Limits::default().stream_window_bytes as usize;
    let mut scene = Scene::connected(100);
    scene.world.webs[0].reads = false;
    let call = scene.call(3, b"x", Deadline::NONE);
    let tag = scene.world.webs[0].newest();
    let messages = window / 100_000 + 1;
    for _ in 0..messages {
        let payload = scene.world.blob(&mut scene.client, &[3; 100_000]);
        scene.submit(Submission::Message { call: call.call, payload, end: false, a1: Instant(5) });
    }
    assert!(scene.client.take().is_empty(), "no credit while nothing leaves");
    let queued = scene.world.hosts[0].engine.snapshot().peers[0].queued_bytes as usize;
    assert!((window..window + 110_000).contains(&queued), "{queued}");
    scene.world.webs[0].reads = true;
    scene.settle();
    let credit = |completion: &Completion| match completion {
        Completion::Credit { bytes, .. } => u64::from(*bytes),
        other => panic!("{other:?}"),
    };
    let credited = scene.client.take().iter().map(credit).sum::<u64>();
    assert!(credited >= messages as u64 * 100_000, "and then all: {credited}");
    scene.world.answer(0, tag, 200, &[], false);
    while scene.world.webs[0].streams[&tag.0].unreleased + 100_010 <= window {
        scene.world.body(0, tag, &blob(&[4; 100_000]), false);
        scene.settle();
    }
    let held = scene.client.take();
    assert_eq!(held.len(), window / 100_010);
    for completion in held {
        let Completion::Message { payload, .. } = completion else { panic!("{completion:?}") };
        scene.submit(release(call.call, Some(payload), Default::default(), 0));
    }
    assert_eq!(scene.world.webs[0].streams[&tag.0].unreleased, 0);
    scene.submit(Submission::Cancel { call: call.call });
    scene.nothing_left();
}

/// What this host has reset is not told as the server's doing.
#[test]
fn a_stream_that_was_reset_here_says_so() {
    for (by, code, said) in [
        (ResetBy::Peer, Code::Internal, "reset by the peer: PROTOCOL_ERROR"),
        (ResetBy::Us, Code::Internal, "reset here, not by the peer: PROTOCOL_ERROR"),
        (ResetBy::Limit("a.key"), Code::ResourceExhausted, "(a.key)"),
    ] {
        let mut scene = Scene::connected(100);
        let call = scene.call(0, b"x", Deadline::NONE);
        let stream = scene.world.webs[0].newest();
        scene.world.http(0, Event::Reset { stream, reason: Reason::PROTOCOL_ERROR, by });
        scene.settle();
        let (finish, _, metadata) = scene.conclude(call, code);
        let message = metadata.text("grpc-message").unwrap_or_default().to_owned();
        assert!(message.contains(said), "{message}");
        assert_eq!(finish.execution, Execution::Unknown);
        scene.nothing_left();
    }
}

/// A call that waits for room on a connection, of which nothing has been sent, goes by another when that one ends or is
/// left.
#[test]
fn a_call_that_waits_for_room_takes_another_connection() {
    for leaves in [false, true] {
        let mut scene = Scene::with_limits(Limits { held_bytes_per_source: 1 << 20, ..Limits::default() });
        let first = scene.call(0, b"first", Deadline::NONE);
        scene.ready(0, 100);
        let tag = scene.world.webs[0].newest();
        scene.respond(0, tag, b"first");
        scene.conclude(first, Code::Ok);
        scene.world.webs[0].reads = false;
        let streams = |scene: &Scene| scene.world.hosts[0].engine.snapshot().peers[0].streams;
        let waiting = loop {
            let before = streams(&scene);
            let call = scene.call(0, &[3; 200_000], Deadline::NONE);
            if streams(&scene) == before {
                break call;
            }
        };
        let sent = streams(&scene);
        assert!((4..8).contains(&sent), "{sent}");
        match leaves {
            true => {
                scene.world.http(0, Event::GoAway { reason: Reason::NO_ERROR, debug: Default::default() })
            }
            false => scene.world.hang_up(0),
        }
        scene.settle();
        let failed = scene.client.take();
        assert_eq!(failed.len(), if leaves { 0 } else { sent });
        scene.ready(1, 100);
        let tag = scene.world.webs[1].newest();
        assert_eq!(data_of(&scene.said(1, tag).messages[0].1), [3; 200_000]);
        scene.respond(1, tag, b"y");
        assert_eq!(scene.conclude(waiting, Code::Ok).1, b"y");
    }
}

#[test]
fn requests_are_compressed_when_the_host_says_so() {
    let mut scene = Scene::connected(100);
    let settings = GrpcSettings { request_encoding: Encoding::Gzip, ..GrpcSettings::default() };
    scene.world.hosts[0].engine.configure_grpc(settings);
    let call = scene.call(0, &[5; 10_000], Deadline::NONE);
    let first = scene.world.webs[0].newest();
    let said = scene.said(0, first);
    assert_eq!(said.head["grpc-encoding"], "gzip");
    scene.world.reset(0, first, Reason::REFUSED_STREAM);
    let second = {
        scene.settle();
        scene.world.webs[0].newest()
    };
    let again = scene.said(0, second);
    for said in [&said, &again] {
        let (compressed, message) = &said.messages[0];
        let mut plain = Vec::new();
        decompress(Encoding::Gzip, message, 1 << 20, &mut plain).unwrap();
        assert!(*compressed && data_of(&plain) == [5; 10_000]);
    }
    scene.respond(0, second, b"y");
    scene.conclude(call, Code::Ok);
    scene.nothing_left();
}

#[test]
fn five_of_nine_components_are_measured_and_the_sum_is_exact() {
    let mut scene = Scene::new();
    let started = Instant(1);
    let call = scene.call(0, b"x", Deadline::NONE);
    scene.world.advance(1_000);
    scene.ready(0, 100);
    let tag = scene.world.webs[0].newest();
    scene.world.advance(5_000);
    scene.respond(0, tag, b"y");
    let finish = scene.client.take_finish();
    scene.world.advance(100);
    let taken = scene.world.now;
    // Its application keeps the response for a while.
    scene.world.advance(5_000_000);
    scene.submit(release(call.call, finish.payload, finish.metadata, taken.0));
    let ask = Ask { samples_max: 10, ..Ask::default() };
    let seen = scene.world.hosts[0].engine.telemetry().snapshot(scene.world.now, &ask);
    let sample = seen.samples.iter().find(|sample| sample.method == ONCE).expect("the call is recorded");
    assert_eq!((sample.side, sample.coverage), (Side::Made, Coverage::ClientOnly));
    assert_eq!(sample.peer, "grpc tcp://10.1.1.1:50051");
    assert_eq!((sample.ns.iter().sum::<u64>(), sample.at_ns), (taken.since_ns(started), taken.0));
    assert!(sample.ns[0] >= 1_000, "waiting for the connection is a queue: {:?}", sample.ns);
    let row = &scene.world.hosts[0].engine.snapshot().peers[0];
    assert_eq!((row.protocol, row.outgoing), (Protocol::Grpc, true));
}

/// An application says that its call began when the host did.
#[test]
fn no_call_began_long_before_it_was_there() {
    let mut scene = Scene::new();
    scene.world.advance(3_600_000_000_000);
    let call = scene.call(0, b"x", Deadline::NONE);
    scene.ready(0, 100);
    let tag = scene.world.webs[0].newest();
    scene.respond(0, tag, b"y");
    let finish = scene.client.take_finish();
    let now = scene.world.now;
    scene.submit(release(call.call, finish.payload, finish.metadata, now.0));
    let ask = Ask { samples_max: 10, ..Ask::default() };
    let seen = scene.world.hosts[0].engine.telemetry().snapshot(now, &ask);
    let total_ns: u64 = seen.samples.iter().map(|sample| sample.ns.iter().sum::<u64>()).sum();
    assert!((600_000_000_000..700_000_000_000).contains(&total_ns), "{total_ns}");
}

/// What came of a request before its answer is all the server wants of it: the rest leaves neither the connection's
/// queue short of room nor a stream behind, whatever the answer is and however slow the application takes it.
#[test]
fn answers_that_come_before_the_request_has_left_cost_nothing() {
    let limits = Limits { connection_queue_bytes: 1 << 20, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let first = scene.call(0, b"first", Deadline::NONE);
    scene.ready(0, 100);
    let tag = scene.world.webs[0].newest();
    scene.respond(0, tag, b"first");
    scene.conclude(first, Code::Ok);
    scene.world.webs[0].reads = false;
    let request = vec![7; 400_000];
    for round in 0..60 {
        // Two on their way, and of each a part has left.
        let route = [0, 1][round % 2];
        let calls = [0, 1].map(|_| {
            let call = scene.call(route, &request, Deadline::NONE);
            (call, scene.world.webs[0].newest())
        });
        for (call, tag) in calls {
            scene.world.leave(0, tag, round * 1000);
            let code = match round % 5 {
                0 => {
                    scene.world.answer(0, tag, 200, &[("grpc-status", "8")], true);
                    Code::ResourceExhausted
                }
                1 => {
                    scene.respond(0, tag, b"enough");
                    Code::Ok
                }
                2 => {
                    scene.world.answer(0, tag, 200, &[], false);
                    scene.world.body(0, tag, &[], true);
                    Code::Internal
                }
                3 => {
                    scene.world.answer(0, tag, 404, &[], true);
                    Code::Unimplemented
                }
                _ => {
                    scene.world.reset(0, tag, Reason::CANCEL);
                    Code::Cancelled
                }
            };
            scene.settle();
            // An application that goes on with its stream meanwhile is neither stopped nor told otherwise.
            if route == 1 {
                let payload = scene.world.blob(&mut scene.client, b"more");
                let (call, a1) = (call.call, Instant(1));
                scene.submit(Submission::Message { call, payload, end: true, a1 });
            }
            scene.client.inbox.retain(|completion| !matches!(completion, Completion::Credit { .. }));
            scene.conclude(call, code);
        }
        let rows = scene.world.hosts[0].engine.snapshot().peers;
        assert!(rows.iter().all(|row| (row.streams, row.queued_bytes) == (0, 0)), "round {round}: {rows:?}");
    }
    scene.world.webs[0].reads = true;
    assert_eq!(scene.world.webs.len(), 1, "the first connection has always had room");
    let call = scene.call(0, &request, Deadline::NONE);
    let tag = scene.world.webs[0].newest();
    scene.respond(0, tag, b"still here");
    scene.conclude(call, Code::Ok);
    scene.nothing_left();
}

/// The answer is complete and waits for room in the application's heap: what the application still sends is dropped,
/// gives its window back, and changes nothing; nor does the end of the connection.
#[test]
fn an_answer_that_waits_for_the_application_is_the_answer() {
    for hangs_up in [false, true] {
        let mut world = World::new();
        world.foreign = true;
        let client = world.attach_sized(0, PROTO, TARGET, false, 1 << 20);
        let mut scene = Scene { world, client };
        let first = scene.call(0, b"first", Deadline::NONE);
        scene.ready(0, 100);
        let tag = scene.world.webs[0].newest();
        let long = vec![1; 700_000];
        scene.respond(0, tag, &long);
        let kept = scene.client.take_finish();
        assert_eq!((kept.call, kept.code), (first.call, Code::Ok));
        scene.world.webs[0].reads = false;
        let call = scene.call(1, b"second", Deadline::NONE);
        let tag = scene.world.webs[0].newest();
        scene.respond(0, tag, &long);
        let mut credit = 0;
        for _ in 0..3 {
            let payload = scene.world.blob(&mut scene.client, b"more");
            scene.submit(Submission::Message { call: call.call, payload, end: false, a1: Instant(1) });
            for completion in scene.client.take() {
                match completion {
                    Completion::Credit { call: of, bytes } if of == call.call => credit += bytes,
                    other => panic!("there is no room for it yet: {other:?}"),
                }
            }
        }
        assert!(credit > 0, "a sender that nobody hears is not left waiting");
        if hangs_up {
            scene.world.hang_up(0);
            scene.settle();
        }
        scene.submit(release(kept.call, kept.payload, kept.metadata, 9));
        let (_, data, _) = scene.conclude(call, Code::Ok);
        assert!(data == long);
        scene.nothing_left();
    }
}
