//! Shows at-most-once under loss, duplication and reordering, over many seeds: every call ends once, every message
//! arrives whole, nothing runs twice, and in the extended mode everything runs.

use crate::world;
use std::sync::Arc;
use trunkline_call::{Deadline, Execution, Instant};
use trunkline_r2p2::*;
use world::*;

/// What a test run has time for.
const SEEDS: u64 = 24;

fn sizes(random: &mut Random) -> usize {
    match random.below(10) {
        0..6 => random.below(1400) as usize,
        6..9 => 1400 + random.below(20_000) as usize,
        _ => 20_000 + random.below(280_000) as usize,
    }
}

fn world_of(seed: u64, weather: Weather, config: Config) -> World {
    let config = Arc::new(config);
    let mut world = World::new(seed, weather);
    world.reply_bytes =
        |tag| if tag.is_multiple_of(7) { (tag * 997 % 300_000) as usize } else { (tag % 2000) as usize };
    for host in 1..=3 {
        world.client(address(host, 33_000), &config);
        world.server(address(100 + host, 8000), &config);
    }
    world
}

fn make_calls(world: &mut World, calls: u64, timeout_ns: u64) {
    for tag in 0..calls {
        let from = address(1 + world.random.below(3) as u8, 33_000);
        let to = address(101 + world.random.below(3) as u8, 8000);
        let bytes = sizes(&mut world.random);
        world.call(from, to, tag, bytes, timeout_ns);
        let pause = world.random.below(2 * MS);
        world.run(world.now.plus_ns(pause));
    }
    world.run(world.now.plus_ns(timeout_ns + 10 * S));
}

fn check_once(world: &World, seed: u64) {
    for (tag, fate) in &world.fates {
        let ends = fate.replies as usize + fate.failures.len();
        assert_eq!(ends, 1, "seed {seed}, call {tag} ends once: {fate:?}");
        assert!(fate.executed <= 1, "seed {seed}, call {tag} runs once: {fate:?}");
        if let Some(failure) = fate.failures.first() {
            let said = failure.execution();
            assert!(
                fate.executed == 0 || said != Execution::NotExecuted,
                "seed {seed}, call {tag}: {fate:?}"
            );
        }
    }
    assert!(world.clients.values().all(Client::is_empty), "seed {seed}: no call is left");
    assert!(world.servers.values().all(Server::is_empty), "seed {seed}: no request is left");
    let held_bytes = world.clients.values().map(Client::held_bytes).sum::<usize>()
        + world.servers.values().map(Server::held_bytes).sum::<usize>();
    assert_eq!(held_bytes, 0, "seed {seed}: nothing is held for anybody");
}

#[test]
fn extended_calls_all_succeed_in_bad_weather() {
    for seed in 0..SEEDS {
        let mut world = world_of(seed, Weather::BAD, extended());
        make_calls(&mut world, 40, 20 * S);
        check_once(&world, seed);
        for (tag, fate) in &world.fates {
            assert_eq!((fate.replies, fate.executed), (1, 1), "seed {seed}, call {tag}: {fate:?}");
        }
    }
}

/// Endpoints that go on in another process, at any moment: in the middle of messages, between a request and its answer,
/// while an answer may be asked for again.
#[test]
fn endpoints_that_are_handed_over_lose_nothing_and_repeat_nothing() {
    for seed in 0..SEEDS / 3 {
        let mut world = world_of(seed, Weather::BAD, extended());
        world.replaced = if seed % 2 == 0 { 10 } else { 200 };
        make_calls(&mut world, 40, 20 * S);
        check_once(&world, seed);
        for (tag, fate) in &world.fates {
            assert_eq!((fate.replies, fate.executed), (1, 1), "seed {seed}, call {tag}: {fate:?}");
        }
    }
}

/// What the authors' endpoints do not mend is not made worse.
#[test]
fn compatible_endpoints_are_handed_over() {
    for seed in 0..SEEDS / 3 {
        let mut world = world_of(seed, Weather { lost: 0, doubled: 100, late: 0 }, Config::default());
        world.replaced = 200;
        make_calls(&mut world, 40, 20 * S);
        check_once(&world, seed);
        for (tag, fate) in &world.fates {
            assert_eq!((fate.replies, fate.executed), (1, 1), "seed {seed}, call {tag}: {fate:?}");
        }
    }
}

/// A state is some megabytes at most, whatever is remembered: the oldest replies stay behind, and are known as served.
#[test]
fn old_replies_stay_behind() {
    let (client, config) = (address(1, 33_000), Arc::new(extended()));
    let mut server = Server::new(Arc::clone(&config), Instant(START.0 - S));
    let mut requests = Vec::new();
    for tag in 0..20_000u64 {
        let mut maker = Client::new(Arc::clone(&config), tag);
        let new = NewCall {
            tag,
            target: address(2, 8000),
            sticky: false,
            class: 0,
            deadline: Deadline::NONE,
            body: pattern(tag, 8).into(),
        };
        maker.call(START, new).unwrap();
        let request = maker.poll_transmit().unwrap().to_vec();
        server.handle_datagram(START, START, client, &request);
        let Some(ServerEvent::Request(taken)) = server.poll_event() else { panic!("it is new") };
        assert!(server.reply(START, taken.key, vec![7; 1000].into(), None, Timing::default()));
        requests.push(request);
    }
    while server.poll_transmit().is_some() {}
    let mut bytes = Vec::new();
    ciborium::into_writer(&server, &mut bytes).unwrap();
    assert!(bytes.len() < 20 << 20, "{} bytes", bytes.len());
    let mut next = Server::new(config, START);
    next.take_up(handed_over(&server)).unwrap();
    let mut answers = |request: &[u8]| {
        next.handle_datagram(START, START, client, request);
        assert_eq!(next.poll_event(), None, "nothing is executed again");
        let datagram = next.poll_transmit().unwrap().to_vec();
        Packet::parse(&datagram, true).unwrap().header.kind
    };
    assert_eq!(answers(&requests[0]), PacketType::Drop);
    assert_eq!(answers(&requests[19_999]), PacketType::Reply);
}

/// Longer than it takes to suspect somebody, shorter than it takes to give up.
#[test]
fn hosts_that_get_no_processor_for_seconds_cost_no_call() {
    for seed in 0..SEEDS {
        let mut world = world_of(seed, Weather { lost: 10, doubled: 10, late: 10 }, extended());
        for tag in 0..60 {
            let (client, server) = (1 + world.random.below(3) as u8, 101 + world.random.below(3) as u8);
            let (from, to) = (address(client, 33_000), address(server, 8000));
            let bytes = sizes(&mut world.random);
            world.call(from, to, tag, bytes, 60 * S);
            if tag % 10 == 9 {
                let sleeper = if world.random.chance(500) { from } else { to };
                let until = world.now.plus_ns(2 * S + world.random.below(4 * S));
                world.asleep.insert(sleeper, until);
                world.run(world.now.plus_ns(10 * S));
            }
            let pause = world.random.below(2 * MS);
            world.run(world.now.plus_ns(pause));
        }
        world.run(world.now.plus_ns(70 * S));
        check_once(&world, seed);
        for (tag, fate) in &world.fates {
            assert_eq!((fate.replies, fate.executed), (1, 1), "seed {seed}, call {tag}: {fate:?}");
        }
    }
}

#[test]
fn compatible_calls_end_once_in_bad_weather() {
    for seed in 0..SEEDS {
        let mut world = world_of(seed, Weather::BAD, Config::default());
        make_calls(&mut world, 40, 2 * S);
        check_once(&world, seed);
    }
}

#[test]
fn short_deadlines_and_restarts_never_run_a_call_twice() {
    for seed in 0..SEEDS {
        let mut world = world_of(seed, Weather::BAD, extended());
        for tag in 0..60 {
            let from = address(1 + world.random.below(3) as u8, 33_000);
            let to = address(101, 8000);
            let timeout = MS * [3, 30, 300, 5000][world.random.below(4) as usize];
            let bytes = sizes(&mut world.random);
            world.call(from, to, tag, bytes, timeout);
            let pause = world.random.below(10 * MS);
            world.run(world.now.plus_ns(pause));
            if world.random.chance(50) {
                let fresh = Server::new(Arc::new(extended()), world.now);
                world.servers.insert(to, fresh);
            }
        }
        world.run(world.now.plus_ns(30 * S));
        check_once(&world, seed);
    }
}

#[test]
fn a_small_memory_refuses_rather_than_repeats() {
    for seed in 0..SEEDS {
        let config = Config { remembered_max: 4, kept_bytes_max: 2000, ..extended() };
        let mut world = world_of(seed, Weather { lost: 200, doubled: 100, late: 200 }, config);
        make_calls(&mut world, 60, 10 * S);
        check_once(&world, seed);
    }
}

#[test]
fn offering_peers_find_each_other() {
    let mut world = world_of(1, Weather::FINE, Config { mode: Mode::Offer, ..Config::default() });
    let (from, to) = (address(1, 33_000), address(101, 8000));
    world.call(from, to, 1, 100, S);
    assert!(!world.clients[&from].speaks_extended(to), "not before the server has shown the bit");
    world.run(world.now.plus_ns(S));
    assert!(world.clients[&from].speaks_extended(to));
    world.call(from, to, 2, 200_000, S);
    world.run(world.now.plus_ns(S));
    check_once(&world, 1);
}

#[test]
fn a_long_message_needs_the_extended_mode() {
    let mut world = world_of(1, Weather { lost: 10, doubled: 10, late: 10 }, extended());
    world.reply_bytes = |_| 8;
    world.call(address(1, 33_000), address(101, 8000), 1, 5_000_000, 60 * S);
    world.run(world.now.plus_ns(60 * S));
    assert_eq!(world.fates[&1].replies, 1);

    let mut client = Client::new(Arc::new(Config::default()), 1);
    let body = vec![0; 14 + 253 * 1464 + 1].into();
    let target = address(101, 8000);
    let deadline = trunkline_call::Deadline::NONE;
    let new = NewCall { tag: 0, target, sticky: false, class: 0, deadline, body };
    let refused = client.call(Instant(0), new).unwrap_err();
    assert_eq!(refused, Refused::TooLong { bytes: 370_407, limit: 370_406 });
}

#[test]
fn a_lost_worker_is_noticed_without_a_deadline() {
    let mut world = world_of(1, Weather::FINE, extended());
    world.service_ns_max = 100 * S;
    let (from, to) = (address(1, 33_000), address(101, 8000));
    world.call(from, to, 1, 100, 1000 * S);
    world.run(world.now.plus_ns(50 * MS));
    world.servers.remove(&to);
    world.run(world.now.plus_ns(25 * S));
    assert_eq!(world.fates[&1].failures, [CallFailure::Silent]);
}
