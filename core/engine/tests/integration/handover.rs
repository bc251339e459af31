//! Shows that an engine goes on as another one, whatever is under way: calls that wait for an answer, streams in the
//! middle of their windows, messages half arrived, calls in line; and that a state that was garbled is refused or
//! harmless, never a panic.

use crate::world;

use proptest::prelude::*;
use std::sync::Arc;
use trunkline_call::entry::{Completion, Finish, Span, Submission};
use trunkline_call::{Code, Deadline, Instant};
use trunkline_engine::{
    BindError, BindRequest, BoundSchema, Brought, Engine, Exported, HandoverError, Heaps, LeftOutReason,
    Limits, PeerIdentity, STATE_VERSION, SessionKey, Turn, export_state, go_on_elsewhere, hold_own_services,
    leave_grpc, left_out_connections, left_out_sessions, stay_with_grpc, take_over,
};
use trunkline_grpc::{Event, StreamTag};
use trunkline_schema::Schema;
use trunkline_telemetry::Coverage;
use world::web::blob;
use world::*;

const TARGET: Option<&str> = Some("tcp://127.0.0.1:1");

/// Finds the one completion that is a call, and takes it out.
fn delivered(app: &mut App) -> trunkline_call::entry::Call {
    let at = app.inbox.iter().position(|one| matches!(one, Completion::Call(_))).expect("a call came");
    match app.inbox.remove(at) {
        Completion::Call(call) => call,
        _ => unreachable!("it was one"),
    }
}

fn finished(app: &App) -> Vec<Code> {
    let code = |one: &Completion| match one {
        Completion::Finish(finish) => Some(finish.code),
        _ => None,
    };
    app.inbox.iter().filter_map(code).collect()
}

/// A name belongs to the user who serves it, in the engine that goes on as well.
#[test]
fn a_name_keeps_its_owner() {
    let mut world = World::new();
    let request = |schema| BindRequest { schema: Some(schema), serves: &[], calls: &[], permitted: &[] };
    let schema = world.attach(0, PROTO, None, false).schema;
    let serves = ["world.Echo".to_owned()];
    let attach = |world: &mut World, identity: &str| {
        let Host { engine, heaps } = &mut world.hosts[0];
        let key = engine.attach("app".into(), 1 << 20);
        heaps.insert(key, 1 << 20);
        engine.identify(key, identity, "");
        key
    };
    let keys = ["uid:1", "uid:1", "uid:2"].map(|identity| attach(&mut world, identity));
    for (replaced, permitted) in [(false, false), (true, false), (true, true)] {
        if replaced {
            world.replace_engines();
        }
        let engine = &mut world.hosts[0].engine;
        let wish = BindRequest { serves: &serves, ..request(&schema) };
        engine.bind(keys[0], &wish).unwrap();
        engine.bind(keys[1], &wish).unwrap();
        let refused = engine.bind(keys[2], &wish).unwrap_err().to_string();
        assert!(refused.contains("world.Echo is served by uid:1 here"), "{refused}");
        if permitted {
            engine.bind(keys[2], &BindRequest { permitted: &serves, ..wish }).unwrap();
        }
    }
    for owner in [0, 1] {
        let Host { engine, heaps } = &mut world.hosts[0];
        engine.detach(&mut Turn { now: world.now, heaps }, keys[owner]);
    }
    let wish = BindRequest { serves: &serves, ..request(&schema) };
    world.hosts[0].engine.bind(keys[2], &wish).unwrap();
}

/// Binds calls of a service's method at targets, for a user.
fn bind_at(world: &mut World, key: SessionKey, targets: std::ops::Range<usize>) -> Result<(), BindError> {
    let path = |number| ("/a.B/C".to_owned(), Some(format!("tcp://10.0.0.{number}:1")));
    let calls: Vec<_> = targets.map(path).collect();
    let request = BindRequest { schema: None, serves: &[], calls: &calls, permitted: &[] };
    world.hosts[0].engine.bind(key, &request).map(drop)
}

/// What applications bound as targets is theirs: counted by user, and forgotten with the last that has it.
#[test]
fn bound_targets_leave_with_the_last_session_that_has_them() {
    let limits = Limits { endpoints: 10, endpoints_per_user: 6, ..Limits::default() };
    for replaced in [false, true] {
        let mut world = World::with_limits(limits.clone());
        let attach = |world: &mut World, user: &str| {
            let Host { engine, heaps } = &mut world.hosts[0];
            let key = engine.attach("app".into(), 1 << 20);
            heaps.insert(key, 1 << 20);
            engine.identify(key, user, "");
            key
        };
        let [first, second, other] = ["uid:1", "uid:1", "uid:2"].map(|user| attach(&mut world, user));
        let known = |world: &World| world.hosts[0].engine.snapshot().remotes.len();
        world.hosts[0].engine.configure_service("x.Y", &["tcp://10.0.0.1:1".into()]).unwrap();
        bind_at(&mut world, first, 0..4).unwrap();
        bind_at(&mut world, second, 3..6).unwrap();
        if replaced {
            world.replace_engines();
        }
        let refused = bind_at(&mut world, second, 4..8).unwrap_err();
        assert!(refused.to_string().contains("limits.endpoints_per_user"), "{refused}");
        assert_eq!(known(&world), 6, "all of a bind takes effect, or nothing");
        bind_at(&mut world, second, 0..6).unwrap();
        bind_at(&mut world, other, 20..24).unwrap();
        let full = bind_at(&mut world, other, 30..31).unwrap_err();
        assert!(full.to_string().contains("limits.endpoints)"), "{full}");
        if replaced {
            world.replace_engines();
        }
        let leave = |world: &mut World, key| {
            let Host { engine, heaps } = &mut world.hosts[0];
            engine.detach(&mut Turn { now: world.now, heaps }, key);
        };
        leave(&mut world, other);
        assert_eq!(known(&world), 6);
        leave(&mut world, first);
        assert_eq!(known(&world), 6, "another session has them");
        leave(&mut world, second);
        assert_eq!(known(&world), 1, "what the configuration says stays");
    }
}

/// A connection that nobody calls over any more is closed, and its endpoint goes with it.
#[test]
fn the_connection_to_a_target_goes_with_the_last_session_that_has_it() {
    let mut world = World::new();
    let mut client = world.attach(0, PROTO, TARGET, false);
    let mut server = world.attach(1, PROTO, None, true);
    let payload = world.blob(&mut client, b"question");
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let served = delivered(&mut server);
    world.submit(&server, Submission::Finish(finish(served.call, Code::Ok, None))).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    world.detach(&client);
    let (engine, now) = (&mut world.hosts[0].engine, world.now);
    assert_eq!(engine.snapshot().remotes.len(), 1, "while the connection is there");
    let peer = engine.native().poll_unwanted().expect("it is to be closed").key;
    let Host { engine, heaps } = &mut world.hosts[0];
    engine.peer_lost(&mut Turn { now, heaps }, peer, "nobody calls over it");
    assert_eq!(engine.snapshot().remotes.len(), 0);
    assert_eq!(engine.native().poll_unwanted(), None);
}

#[test]
fn a_call_under_way_is_answered_through_other_engines() {
    for replaced in [[true, false], [false, true], [true, true]] {
        let mut world = World::new();
        let mut client = world.attach(0, PROTO, TARGET, false);
        let mut server = world.attach(1, PROTO, None, true);
        let payload = world.blob(&mut client, b"question");
        let mut call = client.call(0, Some(payload), true);
        call.deadline = Deadline::at(world.now.plus_ns(1_000_000));
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        for (host, _) in replaced.into_iter().enumerate().filter(|(_, replaced)| *replaced) {
            world.replace_engine(host);
        }
        let served = delivered(&mut server);
        let answer = world.blob(&mut server, b"answer");
        world.submit(&server, Submission::Finish(finish(served.call, Code::Ok, Some(answer)))).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(finished(&client), [Code::Ok], "{replaced:?}");
    }
}

/// An answer lies in an application's ring while its daemon is replaced: the call was still one to another host.
#[test]
fn a_call_that_was_answered_is_one_to_its_server_in_the_engine_that_took_over() {
    let mut world = World::new();
    let mut client = world.attach(0, PROTO, TARGET, false);
    let mut server = world.attach(1, PROTO, None, true);
    let payload = world.blob(&mut client, b"question");
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let served = delivered(&mut server);
    world.submit(&server, Submission::Finish(finish(served.call, Code::Ok, None))).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    world.replace_engine(0);
    let end = client.take_finish();
    world.submit(&client, release(end.call, end.payload, end.metadata, world.now.0)).unwrap();
    let telemetry = world.hosts[0].engine.telemetry();
    let rows: Vec<_> = telemetry.recorder().recent().collect();
    let [row] = &rows[..] else { panic!("{rows:#?}") };
    assert_eq!((telemetry.peer_name(row.peer), row.components.coverage), ("far", Coverage::Whole));
}

#[test]
fn a_deadline_passes_in_the_engine_that_took_over() {
    let mut world = World::new();
    let mut client = world.attach(0, PROTO, TARGET, false);
    let mut server = world.attach(1, PROTO, None, true);
    let payload = world.blob(&mut client, b"question");
    let mut call = client.call(0, Some(payload), true);
    call.deadline = Deadline::at(world.now.plus_ns(5_000));
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    world.replace_engines();
    world.advance(10_000);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(finished(&client), [Code::DeadlineExceeded]);
    assert!(server.inbox.iter().any(|one| matches!(one, Completion::Cancelled { .. })));
}

#[test]
fn a_large_message_arrives_piece_by_piece_through_many_engines() {
    let mut world = World::new();
    world.replaces = true;
    world.piece_bytes = 9_000;
    let mut client = world.attach(0, PROTO, TARGET, false);
    let mut server = world.attach(1, PROTO, None, true);
    let data: Vec<u8> = (0..300_000u32).map(|at| at as u8).collect();
    let payload = world.blob(&mut client, &data);
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let served = delivered(&mut server);
    assert_eq!(world.data(&server, served.payload.unwrap()), data);
}

#[test]
fn whose_connection_did_not_come_along_hears_so() {
    let mut world = World::new();
    let mut client = world.attach(0, PROTO, TARGET, false);
    let mut server = world.attach(1, PROTO, None, true);
    let payload = world.blob(&mut client, b"question");
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let exported = export_state(&world.hosts[0].engine).unwrap();
    let mut engine = take_over(fresh(), &exported.state, &exported.schemas).unwrap();
    let Host { engine: old, heaps } = &mut world.hosts[0];
    let brought = Brought { socket: &|_| false, memory: &|_| true };
    go_on_elsewhere(&mut engine, &mut Turn { now: world.now, heaps }, &brought);
    *old = engine;
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(finished(&client), [Code::Unavailable]);
}

/// What a server says of its times may be anything. It is only told, and no reason not to go on.
#[test]
fn a_host_is_replaced_whatever_a_server_says_of_its_times() {
    let mut world = World::new();
    let mut client = world.attach(0, PROTO, TARGET, false);
    let mut server = world.attach(1, PROTO, None, true);
    let payload = world.blob(&mut client, b"question");
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let served = delivered(&mut server);
    let told = Finish { cpu_ns: WILD_CPU_NS, ..finish(served.call, Code::Ok, None) };
    world.submit(&server, Submission::Finish(told)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(finished(&client), [Code::Ok]);
    assert_eq!(world.wild_trailers, 1);
    world.replace_engines();
    world.submit(&client, release(call.call, None, Span::default(), 5)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(world.leftovers().0, 0);
}

/// A service that the configuration does not name any more has no endpoints, and its connections are closed.
#[test]
fn a_service_that_is_not_configured_any_more_is_not_called() {
    let mut world = World::new();
    let far = [TARGET.unwrap().to_owned()];
    world.hosts[0].engine.configure_service("world.Echo", &far).unwrap();
    let mut client = world.attach(0, PROTO, None, false);
    let mut server = world.attach(1, PROTO, None, true);
    let mut ask = |world: &mut World, client: &mut App| {
        let payload = world.blob(client, b"question");
        let call = client.call(0, Some(payload), true);
        world.submit(client, Submission::Call(call)).unwrap();
        world.settle(&mut [client, &mut server]);
        if server.inbox.iter().any(|one| matches!(one, Completion::Call(_))) {
            let served = delivered(&mut server);
            world.submit(&server, Submission::Finish(finish(served.call, Code::Ok, None))).unwrap();
            world.settle(&mut [client, &mut server]);
        }
        finished(client)
    };
    assert_eq!(ask(&mut world, &mut client), [Code::Ok]);
    world.replace_engines();
    assert_eq!(ask(&mut world, &mut client), [Code::Ok; 2]);
    assert_eq!(world.links.iter().filter(|link| link.up).count(), 1);
    world.keeps_services = false;
    world.replace_engines();
    assert_eq!(ask(&mut world, &mut client)[2..], [Code::Unavailable]);
    assert_eq!(world.links.iter().filter(|link| link.up).count(), 0);
    assert_eq!(world.hosts[0].engine.snapshot().remotes.len(), 0);
}

/// What an application was told when it attached holds while it is attached, whatever later daemons tell others.
#[test]
fn applications_keep_the_limits_they_were_told() {
    let told = Limits { calls_made_per_session: 200, stream_window_bytes: 4 << 20, ..Limits::default() };
    let mut world = World::with_limits(told.clone());
    let mut early = world.attach(0, PROTO, None, false);
    let mut server = world.attach(0, PROTO, None, true);
    world.limits = Limits { calls_made_per_session: 20, stream_window_bytes: 64 << 10, ..told };
    // The second takes over what the first did.
    (0..2).for_each(|_| world.replace_engines());
    let mut late = world.attach(0, PROTO, None, false);
    for (client, refused) in [(&mut early, 0), (&mut late, 30)] {
        for _ in 0..50 {
            let payload = world.blob(client, b"question");
            let call = client.call(0, Some(payload), true);
            world.submit(client, Submission::Call(call)).unwrap();
        }
        world.settle(&mut [client, &mut server]);
        assert_eq!(finished(client), vec![Code::ResourceExhausted; refused]);
    }
    for (client, in_vain) in [(&mut early, false), (&mut late, true)] {
        let opening = client.call(1, None, false);
        let stream = opening.call;
        world.submit(client, Submission::Call(opening)).unwrap();
        let payload = world.blob(client, &[7; 60 << 10]);
        let sent = (0..20).try_for_each(|_| {
            let message = Submission::Message { call: stream, payload, end: false, a1: Instant(1) };
            world.submit(client, message)
        });
        assert_eq!(sent.is_err(), in_vain, "{sent:?}");
    }
}

/// An answer that is here is the call's, though the connection it came by stays behind.
#[test]
fn an_answer_of_a_grpc_server_that_waits_for_room_is_kept() {
    let mut world = World::new();
    world.foreign = true;
    let mut client = world.attach_sized(0, PROTO, TARGET, false, 256 << 10);
    for _ in 0..2 {
        let payload = world.blob(&mut client, b"question");
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
    }
    world.settle(&mut [&mut client]);
    world.http(0, Event::Ready { streams_max: 100 });
    world.settle(&mut [&mut client]);
    let streams: Vec<StreamTag> = world.webs[0].open().collect();
    for tag in streams {
        world.respond(0, tag, &[7; 150_000]);
        world.settle(&mut [&mut client]);
    }
    let first = client.take_finish();
    world.replace_engine(0);
    world.settle(&mut [&mut client]);
    assert_eq!(finished(&client), []);
    world.submit(&client, release(first.call, first.payload, first.metadata, 9)).unwrap();
    world.settle(&mut [&mut client]);
    let second = client.take_finish();
    assert_eq!((first.code, second.code), (Code::Ok, Code::Ok));
    assert_eq!(world.data(&client, second.payload.unwrap()), [7; 150_000]);
}

/// A connection that stays behind is not taken for one of those that come after it.
#[test]
fn connections_of_http_2_that_stayed_behind_share_no_key_with_later_ones() {
    let mut world = World::new();
    let mut seen = Vec::new();
    for _ in 0..3 {
        for _ in 0..3 {
            let engine = &mut world.hosts[0].engine;
            let key = engine.http().accept("10.0.0.9:1".into(), PeerIdentity::default());
            assert!(!seen.contains(&key), "{key:?}");
            seen.push(key);
        }
        world.replace_engines();
    }
}

/// A client of a host, and a service of the daemon's own there.
struct House {
    world: World,
    client: App,
    own: App,
}

impl House {
    fn new() -> Self {
        Self::of_shards(1)
    }

    /// Of a host of so many shards. Both are on the first, as the daemon's own services are.
    fn of_shards(count: usize) -> Self {
        let mut world = World::with_shards(Limits::default(), count);
        world.placed = Some(0);
        let (client, own) = (world.attach(0, PROTO, None, false), world.attach_standing_by(0));
        Self { world, client, own }
    }

    fn ask(&mut self) {
        let payload = self.world.blob(&mut self.client, b"how are you?");
        let call = self.client.call(0, Some(payload), true);
        self.world.submit(&self.client, Submission::Call(call)).unwrap();
        self.settle();
    }

    /// Answers the call that has come.
    fn answer(&mut self) {
        self.answer_with(b"well");
    }

    fn answer_with(&mut self, data: &[u8]) {
        let served = delivered(&mut self.own);
        let answer = self.world.blob(&mut self.own, data);
        let finish = finish(served.call, Code::Ok, Some(answer));
        self.world.submit(&self.own, Submission::Finish(finish)).unwrap();
        self.settle();
    }

    fn settle(&mut self) {
        self.world.settle(&mut [&mut self.client, &mut self.own]);
    }

    fn calls_delivered(&self) -> usize {
        self.own.inbox.iter().filter(|one| matches!(one, Completion::Call(_))).count()
    }
}

/// They end with the old process, and the next one brings its own.
#[test]
fn a_call_of_the_daemons_own_services_waits_for_their_successors() {
    let mut house = House::new();
    // It is asked, too, while nothing new is begun: nobody would be left to answer.
    assert_eq!(leave_grpc(&mut house.world.hosts[0].engine, true).unfinished, 0);
    house.ask();
    assert_eq!(house.calls_delivered(), 0);
    house.world.replace_engine_without(0, &[house.own.key]);
    house.ask();
    assert_eq!(finished(&house.client), []);
    house.own = house.world.attach_standing_by(0);
    house.world.advance(1);
    house.settle();
    assert_eq!(house.calls_delivered(), 2);
    (0..2).for_each(|_| house.answer());
    assert_eq!(finished(&house.client), [Code::Ok; 2]);
    // From then on they are called as they were before.
    house.ask();
    house.answer();
    assert_eq!(finished(&house.client), [Code::Ok; 3]);
}

/// The next hand-over may come before the successors have. Timers of the first are no reason to give up in the second.
#[test]
fn a_call_of_the_daemons_own_services_waits_through_several_hand_overs() {
    let mut house = House::new();
    house.world.replace_engine_without(0, &[house.own.key]);
    house.ask();
    for _ in 0..5 {
        house.world.advance(4_000_000_000);
        leave_grpc(&mut house.world.hosts[0].engine, true);
        house.ask();
        house.world.replace_engine(0);
    }
    assert_eq!(finished(&house.client), []);
    house.own = house.world.attach_standing_by(0);
    house.world.advance(1);
    house.settle();
    (0..6).for_each(|_| house.answer());
    assert_eq!(finished(&house.client), [Code::Ok; 6]);
}

/// An engine from before there was a timer for that would take the whole state for malformed.
#[test]
fn that_services_are_awaited_is_not_written_down() {
    let mut house = House::new();
    house.world.replace_engine_without(0, &[house.own.key]);
    house.ask();
    let engine = &mut house.world.hosts[0].engine;
    assert!(engine.next_timeout().is_some(), "the wait has an end");
    let state = export_state(engine).unwrap().state;
    assert!(!state.windows(7).any(|word| word == b"Awaited"));
}

#[test]
fn what_the_daemons_own_services_have_begun_is_waited_for() {
    let mut house = House::new();
    house.ask();
    assert_eq!(hold_own_services(&mut house.world.hosts[0].engine), 1);
    house.answer();
    assert_eq!(hold_own_services(&mut house.world.hosts[0].engine), 0);
    assert_eq!(finished(&house.client), [Code::Ok]);
}

/// Who asks them all the time over gRPC, or has no room for the answer, holds up nobody: neither the hand-over nor
/// gRPC.
#[test]
fn only_answers_that_are_not_there_are_waited_for() {
    let mut house = House::new();
    let web = house.world.web(0);
    house.world.request(web, StreamTag(1), ONCE, &[], false);
    house.world.body(web, StreamTag(1), &blob(b"how are you?"), true);
    house.settle();
    assert_eq!(hold_own_services(&mut house.world.hosts[0].engine), 1);
    house.world.request(web, StreamTag(3), ONCE, &[], false);
    house.world.body(web, StreamTag(3), &blob(b"and now?"), true);
    house.settle();
    house.answer();
    assert_eq!((house.calls_delivered(), hold_own_services(&mut house.world.hosts[0].engine)), (1, 0));
    house.answer();

    let mut house = House::new();
    house.client = house.world.attach_sized(0, PROTO, None, false, 4 << 20);
    (0..2).for_each(|_| house.ask());
    (0..2).for_each(|_| house.answer_with(&vec![7; 3 << 20]));
    assert_eq!(finished(&house.client), [Code::Ok], "the other answer has no room");
    assert_eq!(hold_own_services(&mut house.world.hosts[0].engine), 0);
    assert_eq!(leave_grpc(&mut house.world.hosts[0].engine, true).unfinished, 0);
    // It lies in the heap of its service, which stays behind.
    house.world.replace_engine_without(0, &[house.own.key]);
    house.settle();
    assert_eq!(finished(&house.client), [Code::Ok, Code::Unavailable]);
}

#[test]
fn after_a_hand_over_in_vain_the_daemons_own_services_go_on() {
    let mut house = House::new();
    leave_grpc(&mut house.world.hosts[0].engine, true);
    house.ask();
    assert_eq!(house.calls_delivered(), 0);
    let Host { engine, heaps } = &mut house.world.hosts[0];
    stay_with_grpc(engine, &mut Turn { now: house.world.now, heaps });
    house.settle();
    house.answer();
    assert_eq!(finished(&house.client), [Code::Ok]);
}

#[test]
fn successors_that_do_not_come_are_not_waited_for_for_ever() {
    let mut house = House::new();
    house.world.replace_engine_without(0, &[house.own.key]);
    house.ask();
    assert_eq!(finished(&house.client), []);
    house.world.advance(10_000_000_000);
    house.settle();
    assert_eq!(finished(&house.client), [Code::Unavailable]);
    // What they cannot hold is refused at once, and so is what comes later.
    house.ask();
    assert_eq!(finished(&house.client), [Code::Unavailable; 2]);
}

/// Between two processes, nobody else becomes who answers for the daemon.
#[test]
fn names_of_the_daemons_own_services_stay_its_users() {
    for hand_overs in [1, 2] {
        let mut house = House::new();
        for _ in 0..hand_overs {
            house.world.replace_engine_without(0, &[house.own.key]);
        }
        let serves = ["world.Echo".to_owned()];
        let schema = Arc::clone(&house.own.schema);
        let wish = BindRequest { schema: Some(&schema), serves: &serves, calls: &[], permitted: &[] };
        let Host { engine, heaps } = &mut house.world.hosts[0];
        let other = engine.attach("other".into(), 1 << 20);
        heaps.insert(other, 1 << 20);
        engine.identify(other, "uid:4711", "");
        let refused = engine.bind(other, &wish).unwrap_err().to_string();
        assert!(refused.contains("world.Echo is served by"), "{hand_overs}: {refused}");
        // It is there for whom nobody succeeds, once nobody is waited for any more.
        house.world.advance(10_000_000_000);
        house.settle();
        house.world.hosts[0].engine.bind(other, &wish).unwrap();
    }
}

/// A gRPC client cannot follow: until this process ends, its health checks are answered here.
#[test]
fn grpc_clients_ask_the_daemons_own_services_to_the_end() {
    let mut house = House::new();
    let web = house.world.web(0);
    let (early, late) = (StreamTag(1), StreamTag(3));
    assert_eq!(leave_grpc(&mut house.world.hosts[0].engine, true).calls, 0);
    house.world.request(web, early, ONCE, &[], false);
    house.world.body(web, early, &blob(b"how are you?"), true);
    house.settle();
    house.answer();
    assert_eq!(house.world.webs[web].take(early).code(), 0);
    // Those of the next process are waited for by everybody.
    house.world.webs[web].up = false;
    house.world.replace_engine_without(0, &[house.own.key]);
    let web = house.world.web(0);
    house.world.request(web, late, ONCE, &[], false);
    house.world.body(web, late, &blob(b"and you?"), true);
    house.settle();
    house.own = house.world.attach_standing_by(0);
    house.world.advance(1);
    house.settle();
    house.answer();
    assert_eq!(house.world.webs[web].take(late).code(), 0);
}

/// A client that is connected to another shard than theirs cannot follow either.
#[test]
fn grpc_clients_of_every_shard_ask_the_daemons_own_services_to_the_end() {
    let mut house = House::of_shards(2);
    let (web, tag) = (house.world.web(2), StreamTag(1));
    for shard in [0, 2] {
        assert_eq!(leave_grpc(&mut house.world.hosts[shard].engine, true).calls, 0);
    }
    house.world.request(web, tag, ONCE, &[], false);
    house.world.body(web, tag, &blob(b"how are you?"), true);
    house.settle();
    house.answer();
    assert_eq!(house.world.webs[web].take(tag).code(), 0);
}

/// Sessions that stay behind are parted with before anything goes on: what waited for one of them would be handed to
/// the next, where no memory is.
#[test]
fn nobody_who_stayed_behind_gets_another_call() {
    let mut world = World::new();
    let mut client = world.attach(0, PROTO, None, false);
    let mut servers = [world.attach(0, PROTO, None, true), world.attach(0, PROTO, None, true)];
    for _ in 0..200 {
        let payload = world.blob(&mut client, b"question");
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
    }
    let [first, second] = &mut servers;
    world.settle(&mut [&mut client, first, second]);
    let count = |servers: &[App; 2]| servers.iter().map(|server| server.inbox.len()).sum::<usize>();
    let before = count(&servers);
    assert!(before < 200, "some calls wait for a worker");
    let behind = [servers[0].key, servers[1].key];
    world.replace_engine_without(0, &behind);
    let [first, second] = &mut servers;
    world.settle(&mut [&mut client, first, second]);
    assert_eq!(count(&servers), before);
    let codes = finished(&client);
    assert_eq!((codes.len(), codes.iter().all(|code| *code == Code::Unavailable)), (200, true), "{codes:?}");
}

fn fresh() -> Engine {
    Engine::new(Limits::default(), "near", 1)
}

/// Heaps of nobody: nothing lies there, and there is no room.
struct Nowhere;

impl Heaps for Nowhere {
    fn allocate(&mut self, _: SessionKey, _: u32) -> Option<u32> {
        None
    }

    fn receive_capacity(&self, _: SessionKey) -> u32 {
        1 << 20
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

/// A busy engine's state.
fn busy() -> Exported {
    let mut world = World::new();
    world.piece_bytes = 5_000;
    let mut client = world.attach(0, PROTO, TARGET, true);
    let mut server = world.attach(1, PROTO, None, true);
    for method in [0, 1, 3, 0] {
        let payload = world.blob(&mut client, &vec![7; 20_000 * (method + 1)]);
        let mut call = client.call(method, Some(payload), method == 0);
        call.deadline = Deadline::at(Instant(1 << 40));
        world.submit(&client, Submission::Call(call)).unwrap();
        world.step(&mut [&mut client, &mut server]);
    }
    let exported =
        [export_state(&world.hosts[0].engine).unwrap(), export_state(&world.hosts[1].engine).unwrap()];
    let [near, far] = exported;
    if far.state.len() > near.state.len() { far } else { near }
}

/// Takes a state over if it can be, and has the engine do what a host would have it do first.
fn try_out(state: &[u8], schemas: &[Arc<BoundSchema>]) -> Result<(), HandoverError> {
    let mut engine = take_over(fresh(), state, schemas)?;
    let mut heaps = Nowhere;
    let mut turn = Turn { now: Instant(2_000_000), heaps: &mut heaps };
    go_on_elsewhere(&mut engine, &mut turn, &Brought { socket: &|_| true, memory: &|_| true });
    engine.handle_timeout(&mut turn);
    engine.snapshot();
    export_state(&engine).map(drop)
}

#[test]
fn another_version_is_refused_by_its_number() {
    let exported = busy();
    try_out(&exported.state, &exported.schemas).unwrap();
    let mut other = exported.state.clone();
    // An array of two, whose first is the version: a small number is one byte.
    assert_eq!(u32::from(other[1]), STATE_VERSION);
    other[1] = 23;
    assert_eq!(try_out(&other, &exported.schemas), Err(HandoverError::Version(23)));
    assert_eq!(try_out(&exported.state, &[]), Err(HandoverError::Types));
    assert!(matches!(try_out(&[], &exported.schemas), Err(HandoverError::Malformed(_))));
}

/// Whose part does not hold together ends, and an operator learns who that is.
#[test]
fn a_session_that_contradicts_itself_is_left_out_alone() {
    let mut world = World::new();
    world.attach(0, PROTO, TARGET, false);
    let exported = export_state(&world.hosts[0].engine).unwrap();
    let name = b"answer_bytes";
    let at = exported.state.windows(name.len()).position(|word| word == name).unwrap() + name.len();
    let mut state = exported.state.clone();
    assert_eq!(state[at], 0);
    // A number of eight bytes.
    state.splice(at..=at, [0x1b, 0x7f, 0, 0, 0, 0, 0, 0, 0]);
    try_out(&state, &exported.schemas).unwrap();
    let engine = take_over(fresh(), &state, &exported.schemas).unwrap();
    let left_out = left_out_sessions(&engine);
    assert_eq!(left_out.iter().map(|one| &*one.label).collect::<Vec<_>>(), ["app0"]);
    assert_eq!(left_out[0].reason, LeftOutReason::Unsound);
}

/// What an older program wrote down of a session's process is not taken for one of the host's programs.
#[test]
fn the_program_of_an_older_state_is_not_checked() {
    let mut world = World::new();
    let app = world.attach(0, PROTO, TARGET, false);
    world.attach(0, PROTO, TARGET, false);
    let engine = &mut world.hosts[0].engine;
    engine.identify(app.key, "uid:1000", "/usr/sbin/payd");
    let Exported { mut state, schemas } = export_state(engine).unwrap();
    let engine = take_over(fresh(), &state, &schemas).unwrap();
    assert_eq!((engine.unchecked_programs().len(), engine.program_of(app.key)), (0, "/usr/sbin/payd"));
    let name = b"program_is_of_host";
    let all: Vec<usize> =
        (0..state.len() - name.len()).filter(|at| &state[*at..*at + name.len()] == name).collect();
    all.into_iter().for_each(|at| state[at] = b'P');
    let mut engine = take_over(fresh(), &state, &schemas).unwrap();
    assert_eq!(engine.unchecked_programs(), [(app.key, "/usr/sbin/payd".to_owned())]);
    engine.note_program(app.key, "");
    assert_eq!((engine.unchecked_programs().len(), engine.program_of(app.key)), (0, ""));
    assert_eq!(engine.identity_of(app.key), "uid:1000");
}

/// What a schema does not define any more.
fn nothing() -> Arc<BoundSchema> {
    Arc::new(BoundSchema::new(Schema::from_descriptor_set(&[]).unwrap()))
}

/// Goes on with another state than the engine would write down.
fn go_on_with(world: &mut World, host: usize, state: &[u8], schemas: &[Arc<BoundSchema>]) -> Vec<String> {
    let mut engine = take_over(fresh(), state, schemas).unwrap();
    let sessions = left_out_sessions(&engine).into_iter().map(|one| format!("{}: {}", one.label, one.reason));
    let connections = left_out_connections(&engine).into_iter().map(|(label, why)| format!("{label}: {why}"));
    let left_out = sessions.chain(connections).collect();
    let Host { engine: old, heaps } = &mut world.hosts[host];
    let everything = Brought { socket: &|_| true, memory: &|_| true };
    go_on_elsewhere(&mut engine, &mut Turn { now: world.now, heaps }, &everything);
    *old = engine;
    left_out
}

/// A program that takes descriptor sets more strictly parts with those who have bound one it refuses: callers of
/// theirs hear that they are gone, and everybody else goes on.
#[test]
fn a_session_whose_schema_is_refused_is_left_out_alone() {
    for serves in [true, false] {
        let mut world = World::new();
        let mut refused = world.attach(0, OLDER_PROTO, None, serves);
        let mut other = world.attach(0, PROTO, None, !serves);
        let caller = if serves { &mut other } else { &mut refused };
        let payload = world.blob(caller, b"question");
        let call = caller.call(0, Some(payload), true);
        world.submit(caller, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut refused, &mut other]);
        let server = if serves { &mut refused } else { &mut other };
        assert_eq!(server.inbox.len(), 1);
        server.inbox.clear();

        let Exported { state, mut schemas } = export_state(&world.hosts[0].engine).unwrap();
        for schema in schemas.iter_mut().filter(|schema| Arc::ptr_eq(schema, &refused.schema)) {
            *schema = nothing();
        }
        let left_out = go_on_with(&mut world, 0, &state, &schemas);
        assert_eq!(left_out, ["app0: world.Blob, which it has bound, is no message for this program"]);
        world.settle(&mut [&mut refused, &mut other]);
        if serves {
            assert_eq!(finished(&other), [Code::Unavailable]);
            // The name is free, and the engine goes on.
            let mut next = world.attach(0, PROTO, None, true);
            let payload = world.blob(&mut other, b"question");
            let call = other.call(0, Some(payload), true);
            world.submit(&other, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut other, &mut next]);
            delivered(&mut next);
        } else {
            assert!(matches!(other.inbox[..], [Completion::Cancelled { .. }]), "{:?}", other.inbox);
        }
        assert_eq!(world.hosts[0].engine.snapshot().sessions.len(), 1 + usize::from(serves));
        world.replace_engine(0);
    }
}

/// A connection whose part does not hold together is lost, with the calls on it; everybody else goes on.
#[test]
fn a_connection_that_contradicts_itself_is_left_out_alone() {
    for host in [0, 1] {
        let mut world = World::new();
        let mut client = world.attach(0, PROTO, TARGET, false);
        let mut server = world.attach(1, PROTO, None, true);
        let payload = world.blob(&mut client, b"question");
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        delivered(&mut server);

        let Exported { mut state, schemas } = export_state(&world.hosts[host].engine).unwrap();
        let name = b"assembling_bytes";
        let at = state.windows(name.len()).position(|word| word == name).unwrap() + name.len();
        assert_eq!(state[at], 0);
        state.splice(at..=at, [0x1b, 0x7f, 0, 0, 0, 0, 0, 0, 0]);
        let left_out = go_on_with(&mut world, host, &state, &schemas);
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        let snapshot = world.hosts[host].engine.snapshot();
        assert_eq!((snapshot.peers.len(), snapshot.sessions.len()), (0, 1));
        let app = if host == 0 { &mut client } else { &mut server };
        world.settle(&mut [app]);
        match host {
            0 => assert_eq!(finished(app), [Code::Unavailable]),
            _ => assert!(matches!(app.inbox[..], [Completion::Cancelled { .. }]), "{:?}", app.inbox),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_garbled_state_never_panics(
        changes in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..4),
        cut in proptest::option::weighted(0.1, any::<u32>()),
    ) {
        thread_local!(static BUSY: Exported = busy());
        BUSY.with(|exported| {
            let mut state = exported.state.clone();
            for (at, byte) in changes {
                let at = at as usize % state.len();
                state[at] = byte;
            }
            if let Some(cut) = cut {
                state.truncate(cut as usize % state.len());
            }
            let _ = try_out(&state, &exported.schemas);
        });
    }
}
