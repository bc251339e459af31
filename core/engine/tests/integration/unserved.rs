//! Shows calls that wait until somebody serves their service: for how long, how many, and across everything that may
//! happen to who makes them and who is to serve them.

use crate::world;

use trunkline_call::entry::{self, Completion, Finish, Submission};
use trunkline_call::{Code, Deadline, Execution, Instant};
use trunkline_engine::{Limits, Turn};
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
