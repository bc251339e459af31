//! Shows calls that wait until somebody serves their service: for how long, how many, and across everything that may
//! happen to who makes them and who is to serve them.

use crate::world;

use trunkline_call::entry::{self, Completion, Finish, Submission};
use trunkline_call::{Code, Deadline, Execution, Instant};
use trunkline_engine::{Limits, Turn};
use trunkline_policy::{Chain, Definition, Kind, Side};
use world::*;

const SECOND_NS: u64 = 1_000_000_000;

fn client(world: &mut World) -> App {
    world.attach(0, PROTO, None, false)
}

/// Makes a call that waits, of a method by its place, with its only message.
fn call(world: &mut World, app: &mut App, method: usize, deadline: Deadline) -> entry::Call {
    let payload = world.blob(app, &[7; 10]);
    let call = app.call(method, Some(payload), true);
    let call = entry::Call { wait_for_ready: true, deadline, ..call };
    world.submit(app, Submission::Call(call)).unwrap();
    call
}

fn settle(world: &mut World, apps: &mut [&mut App]) {
    while world.fire() {}
    world.settle(apps);
}

fn delivered(app: &mut App) -> usize {
    app.take().iter().filter(|completion| matches!(completion, Completion::Call(_))).count()
}

fn ends(app: &mut App) -> Vec<(Code, Execution)> {
    let finish = |completion| match completion {
        Completion::Finish(Finish { code, execution, .. }) => Some((code, execution)),
        _ => None,
    };
    app.take().into_iter().filter_map(finish).collect()
}

#[test]
fn a_call_waits_until_its_service_is_there() {
    for shards in [1, 2] {
        let mut world = World::with_shards(Limits::default(), shards);
        let mut client = client(&mut world);
        let first = call(&mut world, &mut client, 0, Deadline::NONE);
        settle(&mut world, &mut [&mut client]);
        assert_eq!(ends(&mut client), []);
        // On the other shard, where there is one.
        let mut server = world.attach(0, PROTO, None, true);
        settle(&mut world, &mut [&mut client, &mut server]);
        let came = server.take_call();
        world.submit(&server, Submission::Finish(finish(came.call, Code::Ok, None))).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let ended = client.take_finish();
        assert_eq!((ended.call, ended.code), (first.call, Code::Ok));
        // It leaves: who calls next waits for its successor.
        world.detach(&server);
        settle(&mut world, &mut [&mut client]);
        call(&mut world, &mut client, 0, Deadline::NONE);
        settle(&mut world, &mut [&mut client]);
        assert_eq!(ends(&mut client), []);
        let mut server = world.attach(0, PROTO, None, true);
        settle(&mut world, &mut [&mut client, &mut server]);
        assert_eq!(delivered(&mut server), 1);
    }
}

#[test]
fn who_does_not_wait_is_told_at_once_and_who_waits_until_its_deadline() {
    let mut world = World::new();
    let mut client = client(&mut world);
    let payload = world.blob(&mut client, &[7; 10]);
    let plain = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(plain)).unwrap();
    let deadline = Deadline::at(world.now.plus_ns(SECOND_NS));
    call(&mut world, &mut client, 0, deadline);
    settle(&mut world, &mut [&mut client]);
    assert_eq!(ends(&mut client), [(Code::Unavailable, Execution::NotExecuted)]);
    world.advance(SECOND_NS);
    settle(&mut world, &mut [&mut client]);
    assert_eq!(ends(&mut client), [(Code::DeadlineExceeded, Execution::NotExecuted)]);
    let mut server = world.attach(0, PROTO, None, true);
    settle(&mut world, &mut [&mut client, &mut server]);
    assert_eq!(delivered(&mut server), 0);
}

#[test]
fn a_call_that_is_cancelled_is_not_delivered_and_leaves_its_place() {
    let mut world = World::with_limits(Limits { calls_waiting_per_endpoint: 4, ..Limits::default() });
    let mut client = client(&mut world);
    // Many more than may wait at once.
    for _ in 0..100 {
        let made = call(&mut world, &mut client, 0, Deadline::NONE);
        settle(&mut world, &mut [&mut client]);
        world.submit(&client, Submission::Cancel { call: made.call }).unwrap();
        settle(&mut world, &mut [&mut client]);
    }
    client.take();
    call(&mut world, &mut client, 0, Deadline::NONE);
    let mut server = world.attach(0, PROTO, None, true);
    settle(&mut world, &mut [&mut client, &mut server]);
    assert_eq!(delivered(&mut server), 1);
}

#[test]
fn those_who_wait_are_bounded() {
    let mut world = World::with_limits(Limits { calls_waiting_per_endpoint: 4, ..Limits::default() });
    let mut client = client(&mut world);
    for _ in 0..50 {
        call(&mut world, &mut client, 0, Deadline::NONE);
    }
    settle(&mut world, &mut [&mut client]);
    let refused = ends(&mut client);
    assert!((40..50).contains(&refused.len()), "{}", refused.len());
    assert!(
        refused.iter().all(|end| *end == (Code::ResourceExhausted, Execution::NotExecuted)),
        "{refused:?}"
    );
    let mut server = world.attach(0, PROTO, None, true);
    settle(&mut world, &mut [&mut client, &mut server]);
    assert_eq!(delivered(&mut server), 50 - refused.len());
    world.detach(&client);
    settle(&mut world, &mut [&mut server]);
}

/// A stream whose messages come while it waits: all are delivered, in order.
#[test]
fn messages_of_a_stream_wait_with_it() {
    let mut world = World::new();
    let mut client = client(&mut world);
    let made = entry::Call { wait_for_ready: true, ..client.call(1, None, false) };
    world.submit(&client, Submission::Call(made)).unwrap();
    for number in 0..3 {
        let payload = world.blob(&mut client, &[number; 10]);
        let message = Submission::Message { call: made.call, payload, end: number == 2, a1: Instant(1) };
        world.submit(&client, message).unwrap();
    }
    settle(&mut world, &mut [&mut client]);
    let mut server = world.attach(0, PROTO, None, true);
    settle(&mut world, &mut [&mut client, &mut server]);
    let came: Vec<_> = server
        .take()
        .into_iter()
        .filter_map(|completion| match completion {
            Completion::Call(call) => call.payload,
            Completion::Message { payload, .. } => Some(payload),
            _ => None,
        })
        .map(|payload| world.data(&server, payload))
        .collect();
    assert_eq!(came, [[0; 10], [1; 10], [2; 10]]);
}

#[test]
fn a_hand_over_keeps_those_who_wait() {
    for shards in [1, 2] {
        let mut world = World::with_shards(Limits::default(), shards);
        let mut client = client(&mut world);
        call(&mut world, &mut client, 0, Deadline::NONE);
        let deadline = Deadline::at(world.now.plus_ns(SECOND_NS));
        call(&mut world, &mut client, 0, deadline);
        settle(&mut world, &mut [&mut client]);
        world.replace_engines();
        world.replace_engines();
        world.advance(SECOND_NS);
        settle(&mut world, &mut [&mut client]);
        assert_eq!(ends(&mut client), [(Code::DeadlineExceeded, Execution::NotExecuted)]);
        let mut server = world.attach(0, PROTO, None, true);
        settle(&mut world, &mut [&mut client, &mut server]);
        assert_eq!(delivered(&mut server), 1);
    }
}

#[test]
fn a_session_that_waits_may_move() {
    let mut world = World::with_shards(Limits::default(), 3);
    let mut client = client(&mut world);
    call(&mut world, &mut client, 0, Deadline::NONE);
    settle(&mut world, &mut [&mut client]);
    let to = (client.host + 2) % 6;
    assert!(world.migrate(&mut client, to));
    settle(&mut world, &mut [&mut client]);
    assert_eq!(ends(&mut client), []);
    for _ in 0..2 {
        let mut server = world.attach(0, PROTO, None, true);
        settle(&mut world, &mut [&mut client, &mut server]);
        let came = server.take_call();
        world.submit(&server, Submission::Finish(finish(came.call, Code::Ok, None))).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(client.take_finish().code, Code::Ok);
        world.detach(&server);
        call(&mut world, &mut client, 0, Deadline::NONE);
        settle(&mut world, &mut [&mut client]);
    }
}

#[test]
fn a_daemon_that_drains_keeps_nobody_waiting() {
    let mut world = World::new();
    let mut client = client(&mut world);
    call(&mut world, &mut client, 0, Deadline::NONE);
    settle(&mut world, &mut [&mut client]);
    world.hosts[client.host].engine.drain(world.now);
    let Host { engine, heaps } = &mut world.hosts[client.host];
    engine.handle_timeout(&mut Turn { now: world.now, heaps });
    settle(&mut world, &mut [&mut client]);
    assert_eq!(ends(&mut client), [(Code::Unavailable, Execution::NotExecuted)]);
}

/// Endpoints that the configuration names for the service are somebody to go to as well.
#[test]
fn endpoints_that_are_configured_are_gone_to() {
    let mut world = World::new();
    let (mut client, mut server) = (client(&mut world), world.attach(1, PROTO, None, true));
    call(&mut world, &mut client, 0, Deadline::NONE);
    settle(&mut world, &mut [&mut client, &mut server]);
    assert_eq!(ends(&mut client), []);
    let engine = &mut world.hosts[client.host].engine;
    engine.configure_service("world.Echo", &["tcp://10.0.0.7:80".to_owned()]).unwrap();
    settle(&mut world, &mut [&mut client, &mut server]);
    assert_eq!(delivered(&mut server), 1);
}

/// A call that crosses to a shard whose server leaves meanwhile comes back, and waits as one does that begins then.
fn crossing_in_vain(world: &mut World, method: usize, end: bool) -> (App, entry::Call) {
    world.placed = Some(2);
    let gone = world.attach(0, PROTO, None, true);
    world.placed = Some(0);
    let mut client = client(world);
    let payload = end.then(|| world.blob(&mut client, &[7; 10]));
    let call = entry::Call { wait_for_ready: true, ..client.call(method, payload, end) };
    world.submit(&client, Submission::Call(call)).unwrap();
    world.crossings_max = 0;
    world.detach(&gone);
    world.crossings_max = usize::MAX;
    settle(world, &mut [&mut client]);
    assert_eq!(ends(&mut client), []);
    (client, call)
}

#[test]
fn a_call_that_comes_back_from_another_shard_waits() {
    for (place, replaced) in [(0, false), (2, false), (4, true), (0, true)] {
        let mut world = World::with_shards(Limits::default(), 3);
        let (mut client, call) = crossing_in_vain(&mut world, 0, true);
        if replaced {
            world.replace_engines();
            settle(&mut world, &mut [&mut client]);
        }
        world.placed = Some(place);
        let mut server = world.attach(0, PROTO, None, true);
        settle(&mut world, &mut [&mut client, &mut server]);
        let came = server.take_call();
        assert_eq!(world.data(&server, came.payload.unwrap()), [7; 10]);
        world.submit(&server, release(came.call, came.payload, came.metadata, 0)).unwrap();
        world.submit(&server, Submission::Finish(finish(came.call, Code::Ok, None))).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let ended = client.take_finish();
        assert_eq!((ended.call, ended.code), (call.call, Code::Ok), "served at {place}");
        world.submit(&client, release(ended.call, ended.payload, ended.metadata, 9)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn what_follows_a_call_that_comes_back_waits_behind_it() {
    let mut world = World::with_shards(Limits::default(), 2);
    let (mut client, call) = crossing_in_vain(&mut world, 1, false);
    for number in 0..3 {
        let payload = world.blob(&mut client, &[number; 10]);
        let message = Submission::Message { call: call.call, payload, end: number == 2, a1: Instant(1) };
        world.submit(&client, message).unwrap();
    }
    settle(&mut world, &mut [&mut client]);
    world.placed = Some(2);
    let mut server = world.attach(0, PROTO, None, true);
    settle(&mut world, &mut [&mut client, &mut server]);
    let payloads = server.take().into_iter().filter_map(|completion| match completion {
        Completion::Message { payload, .. } => Some(payload),
        _ => None,
    });
    let came: Vec<_> = payloads.map(|payload| world.data(&server, payload)).collect();
    assert_eq!(came, [[0; 10], [1; 10], [2; 10]]);
}

/// What a policy has given a call for as long as it is under way it has once, however often the call goes elsewhere.
#[test]
fn policies_judge_a_call_that_comes_back_once() {
    for shards_then in [2, 1] {
        let mut world = World::with_shards(Limits::default(), 2);
        let one_at_once = Definition {
            name: "one".into(),
            kind: Kind::ConcurrencyLimit,
            side: Side::Client,
            calls_max: Some(1),
            ..Definition::default()
        };
        for host in [0, 2] {
            let chain = Chain::build(std::slice::from_ref(&one_at_once)).unwrap();
            world.hosts[host].engine.apply_policies(chain).unwrap();
        }
        let (mut client, _) = crossing_in_vain(&mut world, 0, true);
        if shards_then == 1 {
            world.set_shards(1);
        }
        world.placed = Some(0);
        let mut server = world.attach(0, PROTO, None, true);
        for _ in 0..2 {
            settle(&mut world, &mut [&mut client, &mut server]);
            let came = server.take_call();
            world.submit(&server, release(came.call, came.payload, came.metadata, 0)).unwrap();
            world.submit(&server, Submission::Finish(finish(came.call, Code::Ok, None))).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            let ended = client.take_finish();
            assert_eq!(ended.code, Code::Ok);
            world.submit(&client, release(ended.call, ended.payload, ended.metadata, 9)).unwrap();
            call(&mut world, &mut client, 0, Deadline::NONE);
        }
    }
}

#[test]
fn a_call_that_comes_back_ends_at_its_deadline_and_when_it_is_cancelled() {
    let mut world = World::with_shards(Limits::default(), 2);
    let (mut client, call) = crossing_in_vain(&mut world, 0, true);
    world.submit(&client, Submission::Cancel { call: call.call }).unwrap();
    settle(&mut world, &mut [&mut client]);
    world.placed = Some(2);
    let mut server = world.attach(0, PROTO, None, true);
    settle(&mut world, &mut [&mut client, &mut server]);
    assert_eq!(delivered(&mut server), 0);
    assert_eq!(world.leftovers(), (0, 0));
    let memory = world.hosts[0].engine.snapshot().memory;
    assert!(memory.contains(&("messages between shards", 0)), "{memory:?}");
}
