//! Shows that what calls wait for a free worker is the server's receive queue in every record: on one shard and
//! between two, of one host and of two, answered or not.

use crate::world;

use trunkline_call::entry::{Completion, Finish, Submission};
use trunkline_call::{CallId, Code, Deadline, Instant};
use trunkline_engine::Limits;
use trunkline_telemetry::{Ask, Component, Coverage, FlightRow, Side};
use world::*;

const MS: u64 = 1_000_000;
/// Calls a worker has in hand at most while nothing is measured (`core/dispatch`).
const WORKERS_CALLS: usize = 3;

/// Opens a unary call now.
fn open(world: &mut World, client: &mut App, deadline: Deadline) -> CallId {
    let payload = world.blob(client, b"x");
    let mut call = client.call(0, Some(payload), true);
    (call.deadline, call.entered, call.published) = (deadline, world.now, world.now);
    world.submit(client, Submission::Call(call)).unwrap();
    call.call
}

/// Takes the calls that were delivered, at once.
fn delivered(world: &mut World, server: &mut App) -> Vec<(CallId, Instant)> {
    let mut calls = Vec::new();
    for completion in server.take() {
        let Completion::Call(call) = completion else { continue };
        world.submit(server, release(call.call, call.payload, call.metadata, 0)).unwrap();
        calls.push((call.call, world.now));
    }
    calls
}

fn answer(world: &mut World, server: &App, (call, taken): (CallId, Instant)) {
    let answer = Finish { taken, published: world.now, ..finish(call, Code::Ok, None) };
    world.submit(server, Submission::Finish(answer)).unwrap();
}

/// Takes the outcomes that have come: their codes.
fn ended(world: &mut World, client: &mut App) -> Vec<Code> {
    let mut codes = Vec::new();
    for completion in client.take() {
        let Completion::Finish(end) = completion else { continue };
        codes.push(end.code);
        world.submit(client, release(end.call, end.payload, end.metadata, world.now.0)).unwrap();
    }
    codes
}

fn rows(world: &mut World, host: usize) -> Vec<FlightRow> {
    world.hosts[host].engine.telemetry().recorder().recent().collect()
}

#[track_caller]
fn has_queued(rows: &[FlightRow], side: Side, coverage: Coverage) {
    let part = |row: &FlightRow, component: Component| row.components.ns[component as usize];
    let queued: Vec<_> = rows
        .iter()
        .filter(|row| row.side == side && part(row, Component::ServerReceiveQueue) >= 50 * MS)
        .collect();
    let [queued] = queued[..] else { panic!("one call has waited: {rows:#?}") };
    assert_eq!(queued.components.coverage, coverage, "{queued:#?}");
    for row in rows {
        for component in Component::ALL {
            let is_servers =
                matches!(component, Component::ServerReceiveQueue | Component::ServerApplication);
            assert!(is_servers || part(row, component) < 5 * MS, "{component:?} of {row:#?}");
        }
    }
}

/// The caller's shard has a busy worker, and another shard has one that is free first.
#[test]
fn a_call_that_crosses_to_a_free_worker_has_waited_for_it() {
    for (caller, target, near, far) in [(0, None, 0, 2), (0, Some("far:1"), 1, 3)] {
        let mut world = World::with_shards(Limits::default(), 2);
        let mut attach = |host, target, serves| {
            world.placed = Some(host);
            world.attach(host % 2, PROTO, target, serves)
        };
        let mut client = attach(caller, target, false);
        let (mut near_worker, mut far_worker) = (attach(near, None, true), attach(far, None, true));
        for _ in 0..2 * WORKERS_CALLS + 1 {
            open(&mut world, &mut client, Deadline::NONE);
            world.settle(&mut [&mut client, &mut near_worker, &mut far_worker]);
        }
        let here = delivered(&mut world, &mut near_worker);
        world.settle(&mut [&mut client, &mut near_worker, &mut far_worker]);
        let mut there = delivered(&mut world, &mut far_worker);
        assert_eq!((here.len(), there.len()), (WORKERS_CALLS, WORKERS_CALLS), "{target:?}: one waits");
        world.advance(50 * MS);
        answer(&mut world, &far_worker, there.remove(0));
        world.settle(&mut [&mut client, &mut near_worker, &mut far_worker]);
        let crossed = delivered(&mut world, &mut far_worker);
        assert_eq!(crossed.len(), 1, "it goes where a worker is free");
        world.advance(MS);
        there.into_iter().chain(crossed).for_each(|call| answer(&mut world, &far_worker, call));
        here.into_iter().for_each(|call| answer(&mut world, &near_worker, call));
        world.settle(&mut [&mut client, &mut near_worker, &mut far_worker]);
        assert_eq!(ended(&mut world, &mut client), [Code::Ok; 2 * WORKERS_CALLS + 1]);
        world.settle(&mut [&mut client, &mut near_worker, &mut far_worker]);
        let made = if target.is_some() { Coverage::Whole } else { Coverage::OneHost };
        has_queued(&rows(&mut world, caller), Side::Made, made);
        if target.is_some() {
            has_queued(&rows(&mut world, near), Side::Served, Coverage::ServerOnly);
        }
    }
}

/// Its deadline passes there, or its caller gives it up.
#[test]
fn a_call_that_ends_in_the_queue_was_in_it_until_then() {
    for (worker, is_cancelled) in [(0, false), (0, true), (2, false)] {
        let mut world = World::with_shards(Limits::default(), 2);
        let mut attach = |host, serves| {
            world.placed = Some(host);
            world.attach(0, PROTO, None, serves)
        };
        let (mut client, mut servers) = (attach(0, false), [attach(worker, true), attach(worker, true)]);
        let settle = |world: &mut World, client: &mut App, servers: &mut [App; 2]| {
            let [first, second] = servers;
            world.settle(&mut [client, first, second]);
        };
        for _ in 0..2 * WORKERS_CALLS {
            open(&mut world, &mut client, Deadline::NONE);
        }
        settle(&mut world, &mut client, &mut servers);
        let held = servers.each_mut().map(|server| delivered(&mut world, server));
        assert_eq!(held.each_ref().map(Vec::len), [WORKERS_CALLS; 2]);
        let deadline = if is_cancelled { Deadline::NONE } else { Deadline::at(world.now.plus_ns(50 * MS)) };
        let late = open(&mut world, &mut client, deadline);
        settle(&mut world, &mut client, &mut servers);
        world.advance(50 * MS);
        if is_cancelled {
            world.submit(&client, Submission::Cancel { call: late }).unwrap();
        }
        settle(&mut world, &mut client, &mut servers);
        for (server, held) in servers.iter().zip(held) {
            held.into_iter().for_each(|call| answer(&mut world, server, call));
        }
        settle(&mut world, &mut client, &mut servers);
        let codes = ended(&mut world, &mut client);
        assert_eq!(codes.contains(&Code::DeadlineExceeded), !is_cancelled, "{codes:?}");
        has_queued(&rows(&mut world, 0), Side::Made, Coverage::OneHost);
    }
}

/// Those that wait go on in the engine that takes over.
#[test]
fn a_hand_over_leaves_the_wait_in_the_queue() {
    for (client, target, worker, side) in [(0, None, 0, Side::Made), (0, Some("far:1"), 1, Side::Served)] {
        let mut world = World::new();
        let mut client = world.attach(client, PROTO, target, false);
        let mut servers = [0, 1].map(|_| world.attach(worker, PROTO, None, true));
        for _ in 0..2 * WORKERS_CALLS + 1 {
            open(&mut world, &mut client, Deadline::NONE);
        }
        for round in 0..2 {
            let [first, second] = &mut servers;
            world.settle(&mut [&mut client, first, second]);
            let held = servers.each_mut().map(|server| delivered(&mut world, server));
            let count = held.iter().map(Vec::len).sum::<usize>();
            assert_eq!(count, [2 * WORKERS_CALLS, 1][round], "one waits");
            if round == 0 {
                world.advance(50 * MS);
                world.replace_engine(worker);
            }
            for (server, held) in servers.iter().zip(held) {
                held.into_iter().for_each(|call| answer(&mut world, server, call));
            }
        }
        let [first, second] = &mut servers;
        world.settle(&mut [&mut client, first, second]);
        assert_eq!(ended(&mut world, &mut client), [Code::Ok; 2 * WORKERS_CALLS + 1]);
        let coverage = if target.is_some() { Coverage::ServerOnly } else { Coverage::OneHost };
        has_queued(&rows(&mut world, worker), side, coverage);
    }
}

fn part(row: &FlightRow, component: Component) -> u64 {
    row.components.ns[component as usize]
}

/// Its deadline passes there, its caller gives it up, or its handler dies.
#[test]
fn a_call_that_ends_at_its_handler_was_there_until_then() {
    for (worker, code) in [0, 2].into_iter().flat_map(|worker| {
        [Code::DeadlineExceeded, Code::Cancelled, Code::Unavailable].map(|code| (worker, code))
    }) {
        let mut world = World::with_shards(Limits::default(), 2);
        let mut attach = |host, serves| {
            world.placed = Some(host);
            world.attach(0, PROTO, None, serves)
        };
        let (mut client, mut server) = (attach(0, false), attach(worker, true));
        let is_late = code == Code::DeadlineExceeded;
        let deadline = if is_late { Deadline::at(world.now.plus_ns(50 * MS)) } else { Deadline::NONE };
        let call = open(&mut world, &mut client, deadline);
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(delivered(&mut world, &mut server).len(), 1);
        world.advance(50 * MS);
        match code {
            Code::Cancelled => world.submit(&client, Submission::Cancel { call }).unwrap(),
            Code::Unavailable => world.detach(&server),
            _ => {}
        }
        world.settle(&mut [&mut client, &mut server]);
        let codes = ended(&mut world, &mut client);
        assert_eq!(codes, if code == Code::Cancelled { vec![] } else { vec![code] });
        let rows = rows(&mut world, 0);
        let [row] = &rows[..] else { panic!("one call: {rows:#?}") };
        assert_eq!((row.code, row.components.coverage), (code, Coverage::OneHost), "{worker} {row:#?}");
        assert_eq!(part(row, Component::ServerApplication), 50 * MS, "{worker} {row:#?}");
        let now = world.now;
        let series = world.hosts[0].engine.telemetry().snapshot(now, &Ask::default()).series;
        assert!(series.iter().all(|entry| entry.series.remote.count() == 0), "nothing is elsewhere");
    }
}

/// The server keeps the request before it, and has no room for another: whoever makes it, and however it ends.
#[test]
fn a_request_that_waits_for_room_waits_in_the_servers_queue() {
    for (worker, target, is_late) in [(0, None), (2, None), (1, Some("far:1"))]
        .into_iter()
        .flat_map(|(worker, target)| [false, true].map(|is_late| (worker, target, is_late)))
    {
        let mut world = World::with_shards(Limits::default(), 2);
        world.placed = Some(0);
        let mut client = world.attach(0, PROTO, target, false);
        world.placed = Some(worker);
        let mut server = world.attach_sized(worker % 2, PROTO, None, true, 8192);
        let mut calls = Vec::new();
        for round in 0..2 {
            let until = world.now.plus_ns(50 * MS);
            let deadline = if is_late && round == 1 { Deadline::at(until) } else { Deadline::NONE };
            let payload = world.blob(&mut client, &[7; 5000]);
            let mut call = client.call(0, Some(payload), true);
            (call.deadline, call.entered, call.published) = (deadline, world.now, world.now);
            world.submit(&client, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            calls.push(server.take());
        }
        let [Completion::Call(first)] = calls[0][..] else { panic!("{calls:?}") };
        assert!(calls[1].is_empty(), "there is no room: {calls:?}");
        world.advance(50 * MS);
        world.settle(&mut [&mut client, &mut server]);
        world.submit(&server, release(first.call, first.payload, first.metadata, 0)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        for call in delivered(&mut world, &mut server) {
            answer(&mut world, &server, call);
        }
        world.settle(&mut [&mut client, &mut server]);
        let code = if is_late { Code::DeadlineExceeded } else { Code::Ok };
        assert_eq!(ended(&mut world, &mut client), [code], "{worker} {is_late}");
        let place = if is_late { worker % 2 } else { 0 };
        let rows = rows(&mut world, place);
        let [row] = &rows[..] else { panic!("one call: {rows:#?}") };
        let told = format!("{worker} {is_late} {row:#?}");
        assert_eq!(part(row, Component::ServerReceiveQueue), 50 * MS, "{told}");
        assert!(part(row, Component::ClientSendQueue) < MS && row.components.total_ns() == 50 * MS, "{told}");
    }
}

/// Its caller keeps the answer before it, and has no room for another. It takes it then, or its deadline passes.
#[test]
fn an_answer_that_waits_for_its_reader_waits_in_the_clients_queue() {
    for (worker, target, is_late) in [(0, None), (2, None), (1, Some("far:1"))]
        .into_iter()
        .flat_map(|(worker, target)| [false, true].map(|is_late| (worker, target, is_late)))
    {
        let mut world = World::with_shards(Limits::default(), 2);
        world.placed = Some(0);
        let mut client = world.attach_sized(0, PROTO, target, false, 8192);
        world.placed = Some(worker);
        let mut server = world.attach(worker % 2, PROTO, None, true);
        let mut kept = None;
        for round in 0..2 {
            let until = world.now.plus_ns(54 * MS);
            let deadline = if is_late && round == 1 { Deadline::at(until) } else { Deadline::NONE };
            open(&mut world, &mut client, deadline);
            world.settle(&mut [&mut client, &mut server]);
            let call = server.take_call();
            world.submit(&server, release(call.call, call.payload, call.metadata, 0)).unwrap();
            let taken = world.now;
            world.advance(4 * MS);
            let payload = Some(world.blob(&mut server, &[7; 5000]));
            let answer = Finish { taken, published: world.now, ..finish(call.call, Code::Ok, payload) };
            world.submit(&server, Submission::Finish(answer)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            if round == 0 {
                kept = Some(client.take_finish());
            }
        }
        assert!(client.take().is_empty(), "there is no room");
        world.advance(50 * MS);
        // Another shard is asked whether its handler has seen the call, and does not say.
        let asked_ns = if is_late && worker == 2 { 5 * MS } else { 0 };
        world.advance(asked_ns);
        let first = kept.expect("an answer");
        world.submit(&client, release(first.call, first.payload, first.metadata, 0)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(ended(&mut world, &mut client), [if is_late { Code::DeadlineExceeded } else { Code::Ok }]);
        let rows = rows(&mut world, 0);
        let row = rows.iter().max_by_key(|row| row.at).expect("two calls");
        let told = format!("{worker} {is_late} {row:#?}");
        assert_eq!(part(row, Component::ClientReceiveQueue), 50 * MS + asked_ns, "{told}");
        assert_eq!(part(row, Component::ServerApplication), 4 * MS, "{told}");
        assert_eq!(row.components.total_ns(), 54 * MS + asked_ns, "{told}");
    }
}
