//! Shows that what lay in a socket while its reader had no processor is as old as it is: a copy of a request that is
//! over and forgotten is not executed, by no server and through no router, and the time of a request runs meanwhile.

use crate::world;
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::sync::Arc;
use trunkline_call::{Deadline, Execution, Instant};
use trunkline_r2p2::*;
use world::*;

const CLIENT: u8 = 1;

/// A client's request as it is sent first, and as it is sent again after so long.
fn request_and_copy(deadline: Deadline, sent: Instant, again_ns: u64) -> [Vec<u8>; 2] {
    let mut client = Client::new(Arc::new(extended()), 7);
    let body = pattern(1, 8).into();
    let new = NewCall { tag: 1, target: address(101, 8000), sticky: false, class: 0, deadline, body };
    client.call(sent, new).unwrap();
    let first = client.poll_transmit().unwrap().to_vec();
    client.handle_timeout(sent.plus_ns(again_ns));
    [first, client.poll_transmit().unwrap().to_vec()]
}

/// Executes a request, and says its reply.
fn executes(server: &mut Server, now: Instant) -> bool {
    let Some(ServerEvent::Request(request)) = server.poll_event() else { return false };
    assert!(server.reply(now, request.key, pattern(1, 8).into(), None, Timing::default()));
    true
}

fn dropped_for(datagram: &Transmit) -> Option<Reason> {
    match Packet::parse(&datagram.to_vec(), true).unwrap().extension?.part {
        Part::Drop { reason, .. } => Some(reason),
        _ => None,
    }
}

#[test]
fn a_copy_that_waited_for_a_new_server_is_forgotten() {
    let [first, copy] = request_and_copy(Deadline::NONE, START, 350 * MS);
    let from = address(CLIENT, 33_000);
    let mut server = Server::new(Arc::new(extended()), Instant(START.0 - S));
    server.handle_datagram(START, START, from, &first);
    assert!(executes(&mut server, START.plus_ns(MS)));
    let mut server = Server::new(Arc::new(extended()), START.plus_ns(300 * MS));
    server.handle_datagram(START.plus_ns(900 * MS), START.plus_ns(351 * MS), from, &copy);
    assert_eq!(server.poll_event(), None);
    assert_eq!(dropped_for(&server.poll_transmit().unwrap()), Some(Reason::Forgotten));
}

#[test]
fn a_copy_that_came_in_time_is_answered_however_late_it_is_read() {
    let [first, copy] = request_and_copy(Deadline::NONE, START, 20 * MS);
    let from = address(CLIENT, 33_000);
    let mut server = Server::new(Arc::new(extended()), Instant(START.0 - S));
    server.handle_datagram(START, START, from, &first);
    assert!(executes(&mut server, START.plus_ns(MS)));
    let reply = server.poll_transmit().unwrap().to_vec();
    server.handle_datagram(START.plus_ns(11 * S), START.plus_ns(20 * MS), from, &copy);
    assert_eq!(server.poll_event(), None);
    assert_eq!(server.poll_transmit().unwrap().to_vec(), reply);
}

#[test]
fn the_time_of_a_request_runs_while_it_lies_in_a_socket() {
    let from = address(CLIENT, 33_000);
    let deadline = Deadline::at(START.plus_ns(100 * MS));
    let [first, _] = request_and_copy(deadline, START, 20 * MS);
    for (read_ns, executed) in [(0, true), (99 * MS, true), (100 * MS, false), (5 * S, false)] {
        let mut server = Server::new(Arc::new(extended()), Instant(START.0 - S));
        server.handle_datagram(START.plus_ns(read_ns), START, from, &first);
        match server.poll_event() {
            Some(ServerEvent::Request(request)) => assert_eq!((request.deadline, executed), (deadline, true)),
            _ => assert_eq!(
                (dropped_for(&server.poll_transmit().unwrap()), executed),
                (Some(Reason::Deadline), false)
            ),
        }
    }
}

/// What the authors' endpoints send says no age, and its name may be used again after 10 ms: a copy that the network
/// made is known by when it came.
#[test]
fn a_compatible_copy_is_judged_by_when_it_came() {
    let (from, request) = (address(CLIENT, 33_000), [0xcc, 8, 0, 0xc0, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
    let start = || {
        let mut server = Server::new(Arc::new(extended()), Instant(START.0 - S));
        server.handle_datagram(START, START, from, &request);
        assert!(executes(&mut server, START.plus_ns(MS)));
        server
    };
    for (came_ns, is_copy) in [(5 * MS, true), (20 * MS, false)] {
        for read_ns in [came_ns, 30 * MS, 500 * MS, 5 * S] {
            let mut server = start();
            server.handle_datagram(
                START.plus_ns(read_ns.max(came_ns)),
                START.plus_ns(came_ns),
                from,
                &request,
            );
            assert_eq!(
                server.poll_event().is_none(),
                is_copy,
                "came after {came_ns}, read after {read_ns} ns"
            );
        }
    }
    // Forgotten by time in between.
    let mut server = start();
    server.handle_timeout(START.plus_ns(5 * S));
    server.handle_datagram(START.plus_ns(5 * S), START.plus_ns(5 * MS), from, &request);
    assert_eq!(server.poll_event(), None);
    server.handle_datagram(START.plus_ns(5 * S), START.plus_ns(5 * S - 10_000), from, &request);
    assert!(server.poll_event().is_some(), "it is another one");
}

/// The router lies between: a repetition that lay in its socket goes on to the worker as old as it is.
#[test]
fn a_copy_that_waited_in_a_router_is_older_at_its_worker() {
    let deadline = Deadline::at(START.plus_ns(5 * S));
    let [first, copy] = request_and_copy(deadline, START, 20 * MS);
    let (worker, control) = (address(101, 8000), address(9, 9000));
    let config = RouterConfig {
        control,
        on_behalf: OnBehalf::Never,
        extended: true,
        workers: vec![(worker, 2)],
        ..RouterConfig::default()
    };
    let mut router = Router::new(config, Instant(START.0 - S));
    let mut joined =
        Server::new(Arc::new(Config { routers: vec![control], ..extended() }), Instant(START.0 - S));
    joined.handle_timeout(START);
    while let Some(beat) = joined.poll_transmit() {
        router.handle_feedback(START, worker, &beat.to_vec());
    }
    let part = |router: &mut Router| {
        let forward = router.poll_forward().expect("it goes on");
        match Packet::parse(&forward.datagram, true).unwrap().extension.unwrap().part {
            Part::Request(part) => (part.age_us, part.budget_us),
            part => panic!("{part:?}"),
        }
    };
    router.handle_request(START.plus_ns(3 * MS), START, address(CLIENT, 33_000), &first);
    assert_eq!(part(&mut router), (0, 5_000_000), "nobody else has had it");
    router.handle_request(START.plus_ns(700 * MS), START.plus_ns(20 * MS), address(CLIENT, 33_000), &copy);
    assert_eq!(part(&mut router), (700_000, 4_300_000));
}

/// A request that waited in the router's queue for too long is dropped, and its client told that nobody has executed
/// it. Copies of it that lie in the router's socket go to no worker, though one has time now.
#[test]
fn what_a_router_has_refused_goes_to_no_worker() {
    let [first, copy] = request_and_copy(Deadline::NONE, START, 20 * MS);
    let (from, worker, control) = (address(CLIENT, 33_000), address(101, 8000), address(9, 9000));
    let join_from = vec![(Ipv4Addr::new(10, 77, 0, 0), 24)];
    let mut router =
        Router::new(RouterConfig { control, join_from, ..RouterConfig::default() }, Instant(START.0 - S));
    // Nobody is there yet.
    router.handle_request(START, START, from, &first);
    router.handle_timeout(START.plus_ns(2 * S));
    assert_eq!(dropped_for(&router.poll_transmit().unwrap()), Some(Reason::QueueDelay));
    let worker_config = Config { routers: vec![control], ..extended() };
    let mut joined = Server::new(Arc::new(worker_config), Instant(START.0 - S));
    joined.handle_timeout(START.plus_ns(2 * S));
    let beat = joined.poll_transmit().unwrap().to_vec();
    router.handle_feedback(START.plus_ns(2 * S), worker, &beat);
    router.handle_request(START.plus_ns(2 * S), START.plus_ns(20 * MS), from, &copy);
    assert_eq!(router.poll_forward(), None);
    assert_eq!(dropped_for(&router.poll_transmit().unwrap()), Some(Reason::QueueDelay), "and says so again");
}

#[test]
fn what_waited_for_a_new_router_goes_nowhere() {
    let [_, copy] = request_and_copy(Deadline::NONE, START, 350 * MS);
    let config =
        RouterConfig { extended: true, workers: vec![(address(101, 8000), 2)], ..RouterConfig::default() };
    let mut router = Router::new(config, START.plus_ns(300 * MS));
    router.handle_request(START.plus_ns(900 * MS), START.plus_ns(351 * MS), address(CLIENT, 33_000), &copy);
    assert_eq!(router.poll_forward(), None);
    assert_eq!(dropped_for(&router.poll_transmit().unwrap()), Some(Reason::Forgotten));
}

/// The other end: what waits to be sent while the client's host has no processor.
#[test]
fn a_copy_that_waited_for_its_sender_is_older() {
    let mut client = Client::new(Arc::new(extended()), 7);
    let mut call = |tag: u64| {
        let (body, deadline) = (pattern(tag, 8).into(), Deadline::at(START.plus_ns(S)));
        client
            .call(START, NewCall { tag, target: address(101, 8000), sticky: false, class: 0, deadline, body })
    };
    let (_, given_up) = (call(1).unwrap(), call(2).unwrap());
    client.set_ages(START.plus_ns(MS / 2));
    client.handle_timeout(START.plus_ns(20 * MS));
    client.cancel(given_up);
    client.set_ages(START.plus_ns(500 * MS));
    let mut sent = Vec::new();
    while let Some(transmit) = client.poll_transmit() {
        let datagram = transmit.to_vec();
        let packet = Packet::parse(&datagram, true).unwrap();
        match packet.extension.unwrap().part {
            Part::Request(part) => {
                assert_eq!(packet.payload, pattern(1, 8));
                sent.push((part.again, part.age_us, part.budget_us));
            }
            part => assert!(matches!(part, Part::Drop { reason: Reason::Cancelled, .. }), "{part:?}"),
        }
    }
    assert_eq!(sent, [(false, 500_000, 500_000), (true, 500_000, 500_000)], "and none that nobody waits for");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Servers and a router that stop for up to some seconds, or longer than anything is remembered, are started again,
    /// and remember little: no call is executed twice, none is said not to have been that was, all end, and those that
    /// are made when all is over succeed.
    #[test]
    fn nothing_is_executed_twice_whoever_stops(
        seed in any::<u64>(),
        is_routed in any::<bool>(),
        remembered_max in prop_oneof![Just(4usize), Just(1 << 20)],
        stops in proptest::collection::vec((0u8..3, 0u64..600, any::<bool>(), 0u64..12_000), 1..12),
    ) {
        let mut world = World::new(seed, Weather { lost: 150, doubled: 100, late: 100 });
        let (router, control) = (address(9, 8000), address(9, 9000));
        let routers = if is_routed { vec![control] } else { Vec::new() };
        let config = Arc::new(Config { remembered_max, routers, slots: 4, ..extended() });
        (1..=2).for_each(|host| world.client(address(host, 33_000), &config));
        (101..=102).for_each(|host| world.server(address(host, 8000), &config));
        let join_from = vec![(Ipv4Addr::new(10, 77, 0, 0), 24)];
        let route = || RouterConfig { control, join_from: join_from.clone(), seed, ..RouterConfig::default() };
        if is_routed {
            world.routers.insert(router, Router::new(route(), Instant(world.now.0 - S)));
        }
        world.run(world.now.plus_ns(S));
        let target = |tag: u64| if is_routed { router } else { address(101 + (tag % 2) as u8, 8000) };
        let mut tag = 0;
        for (who, calls_ms, is_new, stop_ms) in stops {
            let until = world.now.plus_ns(calls_ms * MS);
            while world.now < until {
                world.call(address(1 + (tag % 2) as u8, 33_000), target(tag), tag, 100, 30 * S);
                tag += 1;
                let pause = world.random.below(40 * MS);
                world.run(world.now.plus_ns(pause));
            }
            let wakes = world.now.plus_ns(stop_ms * MS);
            let at = if who == 2 && is_routed { router } else { address(101 + who % 2, 8000) };
            if is_new && at == router {
                world.routers.insert(at, Router::new(route(), world.now));
            } else if is_new {
                world.servers.insert(at, Server::new(Arc::clone(&config), world.now));
            }
            world.asleep.insert(at, wakes);
            if at == router {
                world.asleep.insert(control, wakes);
            }
        }
        world.run(world.now.plus_ns(60 * S));
        for (tag, fate) in &world.fates {
            prop_assert!(fate.executed <= 1, "call {} runs once: {:?}", tag, fate);
            prop_assert_eq!(fate.replies as usize + fate.failures.len(), 1, "call {} ends once: {:?}", tag, fate);
            let said = fate.failures.first().map(CallFailure::execution);
            prop_assert!(fate.executed == 0 || said != Some(Execution::NotExecuted), "call {}: {:?}", tag, fate);
        }
        world.call(address(1, 33_000), target(tag), tag, 100, 30 * S);
        world.run(world.now.plus_ns(40 * S));
        prop_assert_eq!((world.fates[&tag].replies, world.fates[&tag].executed), (1, 1));
    }
}
