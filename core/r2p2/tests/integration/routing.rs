//! Shows a router in front of workers in bad weather, over many seeds: every call ends once and runs at most once, no
//! place at a worker stays taken, also when the router starts anew and workers die, leave and come back.

use crate::world;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use trunkline_dispatch::{Bound, Policy as Picking};
use trunkline_r2p2::*;
use world::*;

/// What a test run has time for.
const SEEDS: u64 = 12;
const ROUTER: u8 = 200;

fn router_config() -> RouterConfig {
    RouterConfig {
        control: control_of(address(ROUTER, 8000)),
        policy: Picking::Bounded(Bound::Fixed(2)),
        join_from: vec![(Ipv4Addr::new(10, 77, 0, 0), 24)],
        ..RouterConfig::default()
    }
}

fn worker_config(mode: Mode) -> Arc<Config> {
    Arc::new(Config { mode, routers: vec![control_of(address(ROUTER, 8000))], ..Config::default() })
}

fn worker(index: u8) -> SocketAddrV4 {
    address(100 + index, 8000)
}

/// Two clients, four workers, a router all workers have joined; every second one sends on behalf.
fn world_of(seed: u64, weather: Weather, mode: Mode) -> World {
    let mut world = World::new(seed, weather);
    let config = Arc::new(Config { mode, ..Config::default() });
    (1..=2).for_each(|host| world.client(address(host, 33_000), &config));
    (1..=4).for_each(|index| world.server(worker(index), &worker_config(mode)));
    let mut config = RouterConfig { on_behalf: on_behalf(seed), ..router_config() };
    if mode == Mode::Compatible {
        config.workers = (1..=4).map(|index| (worker(index), 1)).collect();
    }
    world.routers.insert(address(ROUTER, 8000), Router::new(config, world.now));
    world.run(world.now.plus_ns(300 * MS));
    world
}

fn on_behalf(seed: u64) -> OnBehalf {
    if seed.is_multiple_of(2) { OnBehalf::Never } else { OnBehalf::Preferred }
}

fn call(world: &mut World, tag: u64, timeout_ns: u64) {
    let from = address(1 + (tag % 2) as u8, 33_000);
    let bytes = if tag.is_multiple_of(5) { world.random.below(40_000) } else { world.random.below(1400) };
    world.call(from, address(ROUTER, 8000), tag, bytes as usize, timeout_ns);
    let pause = world.random.below(2 * MS);
    world.run(world.now.plus_ns(pause));
}

fn check(world: &World, seed: u64) {
    for (tag, fate) in &world.fates {
        let ends = fate.replies as usize + fate.failures.len();
        assert_eq!(ends, 1, "seed {seed}, call {tag} ends once: {fate:?}");
        assert!(fate.executed <= 1, "seed {seed}, call {tag} runs once: {fate:?}");
        if let Some(failure) = fate.failures.first() {
            let claimed = failure.execution() == trunkline_call::Execution::NotExecuted;
            assert!(!claimed || fate.executed == 0, "seed {seed}, call {tag}: {fate:?}");
        }
    }
    for router in world.routers.values() {
        assert_eq!((router.live(), router.queued()), (0, 0), "seed {seed}: nothing waits, nothing is out");
        for row in router.workers() {
            assert_eq!(
                row.outstanding,
                0,
                "seed {seed}: a place stays taken at {row:?}, {:?}",
                router.counters()
            );
        }
    }
}

#[test]
fn every_extended_call_succeeds_and_no_place_stays_taken() {
    for seed in 0..SEEDS {
        let mut world = world_of(seed, Weather::BAD, Mode::Extended);
        (0..80).for_each(|tag| call(&mut world, tag, 20 * S));
        world.run(world.now.plus_ns(30 * S));
        check(&world, seed);
        assert!(world.fates.values().all(|fate| fate.replies == 1), "seed {seed}: {:?}", world.fates);
        let counters = world.routers[&address(ROUTER, 8000)].counters();
        let least = if seed.is_multiple_of(2) { 0 } else { counters.forwarded };
        assert!(
            counters.on_behalf >= least && (least > 0 || counters.on_behalf == 0),
            "seed {seed}: {counters:?}"
        );
        let used = world
            .servers
            .keys()
            .filter(|at| {
                world.routers[&address(ROUTER, 8000)]
                    .workers()
                    .iter()
                    .any(|row| row.address == **at && row.served > 0)
            })
            .count();
        assert_eq!(used, 4, "seed {seed}: every worker has worked");
    }
}

#[test]
fn compatible_calls_end_once_and_leases_free_what_feedback_does_not() {
    for seed in 0..SEEDS {
        let mut world = world_of(seed, Weather::BAD, Mode::Compatible);
        (0..80).for_each(|tag| call(&mut world, tag, 3 * S));
        world.run(world.now.plus_ns(30 * S));
        check(&world, seed);
        let replied = world.fates.values().filter(|fate| fate.replies == 1).count();
        assert!(replied > 30, "seed {seed}: most single packets come through, {replied} did");
    }
}

#[test]
fn a_router_that_starts_anew_runs_nothing_twice() {
    for seed in 0..SEEDS {
        let mut world = world_of(seed, Weather::BAD, Mode::Extended);
        for tag in 0..80 {
            call(&mut world, tag, 10 * S);
            if tag % 25 == 24 {
                let down = world.random.below(60 * MS);
                world.routers.remove(&address(ROUTER, 8000));
                world.run(world.now.plus_ns(down));
                let config = RouterConfig { on_behalf: on_behalf(seed), ..router_config() };
                let fresh = Router::new(config, world.now);
                world.routers.insert(address(ROUTER, 8000), fresh);
                // Until it may be sure that a request is new.
                world.run(world.now.plus_ns(20 * MS));
            } else if tag % 25 == 10 {
                // Workers have said again that they are there, and what waited for them has gone.
                world.run(world.now.plus_ns(200 * MS));
            }
        }
        world.run(world.now.plus_ns(30 * S));
        check(&world, seed);
        let replied = world.fates.values().filter(|fate| fate.replies == 1).count();
        assert!(
            replied >= 60,
            "seed {seed}: the rest is undisturbed, {replied} of 80 replied: {:?}",
            world.fates
        );
    }
}

#[test]
fn workers_die_leave_and_come_back() {
    for seed in 0..SEEDS {
        let mut world = world_of(seed, Weather::BAD, Mode::Extended);
        for tag in 0..120 {
            call(&mut world, tag, 10 * S);
            let which = worker(1 + world.random.below(3) as u8);
            match world.random.below(60) {
                0 => drop(world.servers.remove(&which)),
                1 => {
                    let now = world.now;
                    if let Some(server) = world.servers.get_mut(&which) {
                        server.leave(now);
                    }
                }
                2 | 3 => {
                    let fresh = Server::new(worker_config(Mode::Extended), world.now);
                    world.servers.insert(which, fresh);
                }
                _ => {}
            }
        }
        world.run(world.now.plus_ns(30 * S));
        check(&world, seed);
        let replied = world.fates.values().filter(|fate| fate.replies == 1).count();
        assert!(replied >= 80, "seed {seed}: {replied} of 120 replied: {:?}", world.fates);
    }
}

#[test]
fn a_full_queue_and_a_long_wait_are_said() {
    let mut world = world_of(1, Weather::FINE, Mode::Extended);
    let config = RouterConfig { queue_max: 4, delay_ns_max: 30 * MS, ..router_config() };
    world.service_ns_max = 2 * S;
    world.routers.insert(address(ROUTER, 8000), Router::new(config, world.now));
    world.run(world.now.plus_ns(300 * MS));
    for tag in 0..40 {
        world.call(address(1, 33_000), address(ROUTER, 8000), tag, 100, 20 * S);
    }
    world.run(world.now.plus_ns(30 * S));
    check(&world, 1);
    let dropped = |wanted: Reason| {
        let is = |failure: &CallFailure| matches!(failure, CallFailure::Dropped { reason, .. } if *reason == wanted);
        world.fates.values().filter(|fate| fate.failures.iter().any(is)).count()
    };
    assert_eq!((dropped(Reason::QueueFull), dropped(Reason::QueueDelay)), (28, 4), "{:?}", world.fates);
}

#[test]
fn strangers_change_nothing() {
    let mut config = router_config();
    config.workers = vec![(worker(1), 1)];
    let mut router = Router::new(config, START);
    let now = START.plus_ns(S);
    let request = [0xcc, 8, 0, 0xc0, 0, 1, 0, 1, 1, 2, 3];
    router.handle_request(now, now, address(1, 33_000), &request);
    assert_eq!(router.poll_forward().unwrap().to, worker(1));
    let feedback = |port: u16| {
        let about = FeedbackFor { id: 1, port, ip: u32::from(Ipv4Addr::new(10, 77, 0, 1)) };
        [&[0xcc, 8, 0x20, 0xc0, 0, 1, 0, 1][..], &about.encode()].concat()
    };
    let stranger = SocketAddrV4::new(Ipv4Addr::new(10, 88, 0, 1), 8000);
    router.handle_feedback(now, stranger, &feedback(33_000));
    router.handle_feedback(now, worker(1), &feedback(33_001));
    router.handle_request(now, now, address(1, 33_000), &request);
    router.handle_request(now, now, address(1, 33_000), &request[..5]);
    let counters = router.counters();
    assert_eq!((counters.feedback_foreign, counters.feedback_unknown), (1, 1));
    assert_eq!((counters.duplicates, counters.malformed), (1, 1));
    assert_eq!(router.workers()[0].outstanding, 1, "still");
    router.handle_feedback(now, worker(1), &feedback(33_000));
    assert_eq!(router.workers()[0].outstanding, 0);
    router.handle_request(now, now, address(1, 33_000), &request);
    assert!(router.poll_forward().is_none(), "the id of a request just over is a duplicate on its way");
}

/// A busy client has used every id within a second, long before the router has a timer to look at.
#[test]
fn an_id_that_comes_round_is_a_new_request() {
    let workers = vec![(worker(1), 1)];
    let config = RouterConfig { workers, lease_ns: 60 * S, extended: false, ..router_config() };
    let (mut router, mut now) = (Router::new(config, START), START.plus_ns(S));
    for round in 0..3 {
        router.handle_request(now, now, address(1, 33_000), &[0xcc, 8, 0, 0xc0, 0, 1, 0, 1, round]);
        assert_eq!(router.poll_forward().map(|forward| forward.to), Some(worker(1)), "round {round}");
        let about = FeedbackFor { id: 1, port: 33_000, ip: u32::from(Ipv4Addr::new(10, 77, 0, 1)) };
        router.handle_feedback(
            now,
            worker(1),
            &[&[0xcc, 8, 0x20, 0xc0, 0, 1, 0, 1][..], &about.encode()].concat(),
        );
        assert_eq!(router.next_timeout(), None, "nothing is out");
        now = now.plus_ns(50 * MS);
    }
    assert_eq!(router.counters().duplicates, 0);
}

/// What a worker of the extended mode says when nothing has happened: that it is there.
fn beat() -> Vec<u8> {
    let part = FeedbackPart {
        slots: 1,
        leaving: false,
        on_behalf: true,
        queue_ns: 0,
        service_ns: 0,
        epoch: 7,
        taken: 0,
        served: 0,
    };
    feedback(part, Identity::default(), NO_REQUEST)
}

fn feedback(part: FeedbackPart, identity: Identity, about: FeedbackFor) -> Vec<u8> {
    let extension = Extension { identity, part: Part::Feedback(part) };
    let header = Header {
        kind: PacketType::Feedback,
        policy: Policy::Unrestricted,
        flags: Flags(Flags::FIRST | Flags::LAST | Flags::OFFER | Flags::EXTENDED),
        id: 0,
        order: 1,
    };
    [Packet::head(&header, Some(&extension)).as_slice(), &about.encode()].concat()
}

/// A client gives up on a request nobody has answered: its worker hears of it, in the client's name or on its behalf.
#[test]
fn a_cancellation_goes_the_way_of_its_request() {
    let workers = vec![(worker(1), 1)];
    let config = RouterConfig { on_behalf: OnBehalf::Preferred, workers, ..router_config() };
    let (mut router, now, client) = (Router::new(config, START), START.plus_ns(S), address(1, 33_000));
    router.handle_feedback(now, worker(1), &beat());
    let config = Arc::new(extended());
    let mut caller = Client::new(Arc::clone(&config), 1);
    let mut call = |router: &mut Router, tag| {
        let (deadline, body) = (trunkline_call::Deadline::NONE, bytes::Bytes::from_static(b"abc"));
        let new = NewCall { tag, target: address(ROUTER, 8000), sticky: false, class: 0, deadline, body };
        let name = caller.call(now, new).unwrap();
        let request = caller.poll_transmit().unwrap().to_vec();
        router.handle_request(now, now, client, &request);
        caller.cancel(name);
        router.handle_request(now, now, client, &caller.poll_transmit().unwrap().to_vec());
        let sent = [router.poll_forward().unwrap(), router.poll_forward().unwrap()];
        (Packet::parse(&request, true).unwrap().extension.unwrap().identity, request, sent)
    };
    // The worker's last word counts.
    for (round, expected, takes) in [(1u64, true, false), (2, false, true), (3, true, true)] {
        let (identity, request, sent) = call(&mut router, round);
        let of = |forward: &Forward| Packet::parse(&forward.datagram, true).unwrap().on_behalf_of();
        for forward in &sent {
            assert_eq!((forward.on_behalf, of(forward)), (expected, expected.then_some(client)), "{round}");
        }
        let cancel = Packet::parse(&sent[1].datagram, true).unwrap();
        assert!(
            matches!(
                cancel.extension.unwrap().part,
                Part::Drop { reason: Reason::Cancelled, delay_us: 0, .. }
            ),
            "{cancel:?}"
        );
        let id = Packet::parse(&request, true).unwrap().header.id;
        let about = FeedbackFor { id, port: client.port(), ip: (*client.ip()).into() };
        let (slots, leaving, queue_ns, service_ns) = (1, false, 0, 0);
        let (on_behalf, epoch, taken, served) = (takes, 7, round, round);
        let part = FeedbackPart { slots, leaving, on_behalf, queue_ns, service_ns, epoch, taken, served };
        router.handle_feedback(now, worker(1), &feedback(part, identity, about));
    }
    assert_eq!(router.counters().on_behalf, 4);
}

/// A host that may not write clients' addresses.
#[test]
fn a_router_that_sends_only_on_behalf_refuses_the_rest() {
    let config = RouterConfig { on_behalf: OnBehalf::Only, workers: vec![(worker(1), 1)], ..router_config() };
    let (mut router, now, client) = (Router::new(config, START), START.plus_ns(S), address(1, 33_000));
    let refused = |router: &mut Router, request: &[u8]| {
        router.handle_request(now, now, client, request);
        let drops = router.counters().dropped[Reason::NoWorker as usize];
        assert_eq!((router.poll_forward(), router.live(), router.workers()[0].outstanding), (None, 0, 0));
        assert_eq!(router.poll_transmit().map(|transmit| transmit.to), Some(client));
        drops
    };
    assert_eq!(refused(&mut router, &[0xcc, 8, 0, 0xc0, 0, 1, 0, 1, 1]), 1, "a compatible one");
    let mut caller = Client::new(Arc::new(extended()), 1);
    let mut request = || {
        let (deadline, body) = (trunkline_call::Deadline::NONE, bytes::Bytes::from_static(b"abc"));
        let new = NewCall { tag: 1, target: address(ROUTER, 8000), sticky: false, class: 0, deadline, body };
        caller.call(now, new).unwrap();
        caller.poll_transmit().unwrap().to_vec()
    };
    let mut beat = beat();
    beat[9] = 0;
    router.handle_feedback(now, worker(1), &beat);
    assert_eq!(refused(&mut router, &request()), 2, "for a worker that does not take it");
    beat[9] = 0x10;
    router.handle_feedback(now, worker(1), &beat);
    router.handle_request(now, now, client, &request());
    assert!(router.poll_forward().is_some_and(|forward| forward.on_behalf));
}

/// Lets a router sleep until it wants to be called, again and again, for so long; when that is over.
fn idle(router: &mut Router, now: trunkline_call::Instant, ns: u64) -> trunkline_call::Instant {
    let until = now.plus_ns(ns);
    while let Some(next) = router.next_timeout().filter(|next| *next <= until) {
        router.handle_timeout(next.max(now));
    }
    until
}

/// A virtual machine that is moved, or a host that swaps: nobody gets a processor, then everybody does.
#[test]
fn a_stop_of_the_whole_host_loses_no_worker() {
    let config = RouterConfig { workers: vec![(worker(2), 1)], ..router_config() };
    let (mut router, mut now) = (Router::new(config, START), START.plus_ns(S));
    router.handle_feedback(now, worker(1), &beat());
    // The second one, which never beats, gets three requests and is silent: three lapses would make it rest.
    for stop_ns in [500 * MS, 3 * S, 60 * S] {
        for step in 0..20 {
            now = idle(&mut router, now, 100 * MS);
            router.handle_feedback(now, worker(1), &beat());
            assert_eq!(router.workers().len(), 2, "{step}");
        }
        now = idle(&mut router, now, 60 * MS);
        now = now.plus_ns(stop_ns);
        // Its timers come first, and the beats only when the workers have woken up, too.
        router.handle_timeout(now);
        now = idle(&mut router, now, 99 * MS);
        assert_eq!((router.workers().len(), router.counters().lost), (2, 0), "a stop of {stop_ns} ns");
        router.handle_feedback(now, worker(1), &beat());
    }
    let heard = now;
    while router.counters().lost == 0 {
        now = router.next_timeout().expect("it looks after its workers");
        router.handle_timeout(now);
    }
    assert_eq!(now.since_ns(heard), 500 * MS, "one that is silent while the router is awake is gone");
    assert_eq!(router.workers().iter().map(|row| row.address).collect::<Vec<_>>(), [worker(2)]);
}

#[test]
fn leases_do_not_end_while_the_host_stands_still() {
    let config = RouterConfig {
        policy: Picking::Bounded(Bound::Fixed(3)),
        workers: vec![(worker(1), 1)],
        ..router_config()
    };
    let (mut router, mut now) = (Router::new(config, START), START.plus_ns(S));
    for id in 0..3 {
        router.handle_request(now, now, address(1, 33_000), &[0xcc, 8, 0, 0xc0, 0, id, 0, 1, 1]);
    }
    now = now.plus_ns(5 * S);
    router.handle_timeout(now);
    assert_eq!((router.counters().lapsed, router.workers()[0].outstanding), (0, 3));
    let woken = now;
    while router.counters().lapsed == 0 {
        now = router.next_timeout().expect("leases are out");
        router.handle_timeout(now);
    }
    // Of the stop one step of a hundred milliseconds has counted.
    assert_eq!(now.since_ns(woken), 900 * MS);
    assert!(router.workers()[0].rests, "three lapses in a row");
    idle(&mut router, now, 1001 * MS);
    assert!(!router.workers()[0].rests, "it is tried again");
}

/// To the authors' router every datagram at its control port is a credit for one more request.
#[test]
fn a_router_hears_of_requests_only_until_it_has_shown_what_it_understands() {
    let router = control_of(address(ROUTER, 8000));
    let (mut server, mut now) = (Server::new(worker_config(Mode::Offer), START), START.plus_ns(S));
    let mut said = |server: &mut Server, ns: u64| -> Vec<Vec<u8>> {
        let until = now.plus_ns(ns);
        while let Some(next) = server.next_timeout().filter(|next| *next <= until) {
            now = now.max(next);
            server.handle_timeout(now);
        }
        now = until;
        let sent = std::iter::from_fn(|| server.poll_transmit());
        sent.filter(|transmit| transmit.to == router).map(|transmit| transmit.to_vec()).collect()
    };
    assert!(said(&mut server, 60 * S).is_empty());
    server.handle_datagram(
        START.plus_ns(61 * S),
        START.plus_ns(61 * S),
        address(1, 33_000),
        &[0xcc, 8, 0, 0xc0, 0, 1, 0, 1, 1],
    );
    let Some(ServerEvent::Request(request)) = server.poll_event() else { panic!("a request") };
    server.reply(START.plus_ns(61 * S), request.key, bytes::Bytes::new(), None, Timing::default());
    let feedback = said(&mut server, 60 * S);
    assert_eq!(feedback.iter().map(Vec::len).collect::<Vec<_>>(), [16], "one request, one credit");

    let mut ours = Router::new(RouterConfig { workers: vec![(worker(1), 1)], ..router_config() }, START);
    ours.handle_timeout(START);
    let greeting = ours.poll_greeting().expect("for the worker it is told of");
    assert_eq!((greeting.to, ours.next_timeout()), (worker(1), Some(START.plus_ns(S))));
    server.handle_datagram(
        START.plus_ns(121 * S),
        START.plus_ns(121 * S),
        address(77, 9000),
        &greeting.to_vec(),
    );
    assert!(said(&mut server, S).is_empty(), "who is no router shows nothing");
    server.handle_datagram(START.plus_ns(122 * S), START.plus_ns(122 * S), router, &greeting.to_vec());
    let moved = world::handed_over(&server);
    assert_eq!(said(&mut server, S).len(), 11);
    assert!(said(&mut server, 60 * S).len() < 100, "it may be another one by now");
    assert!(said(&mut server, 60 * S).is_empty());

    let mut heir = Server::new(worker_config(Mode::Offer), START.plus_ns(122 * S));
    heir.take_up(moved).unwrap();
    heir.handle_timeout(START.plus_ns(122 * S));
    assert!(heir.poll_transmit().is_some_and(|beat| beat.to == router), "the next process goes on with it");
}

#[test]
fn workers_that_a_router_is_told_of_come_to_speak_the_extended_mode() {
    let mut world = World::new(1, Weather::FINE);
    let config = Arc::new(Config { mode: Mode::Offer, ..Config::default() });
    (1..=2).for_each(|host| world.client(address(host, 33_000), &config));
    (1..=4).for_each(|index| world.server(worker(index), &worker_config(Mode::Offer)));
    let workers = (1..=4).map(|index| (worker(index), 1)).collect();
    let router = Router::new(RouterConfig { workers, join_from: Vec::new(), ..router_config() }, world.now);
    world.routers.insert(address(ROUTER, 8000), router);
    world.run(world.now.plus_ns(1500 * MS));
    (0..40).for_each(|tag| call(&mut world, tag, 5 * S));
    world.weather = Weather::BAD;
    (40..80).for_each(|tag| call(&mut world, tag, 5 * S));
    world.run(world.now.plus_ns(20 * S));
    check(&world, 1);
    assert!(
        world.fates.values().all(|fate| fate.replies == 1),
        "what is lost is repeated: {:?}",
        world.fates
    );
}

/// Long compatible requests whose clients give up before a lease or the queue's delay is over. A second of them, three
/// in which one datagram in a hundred is lost, and eight more; the share answered in the last three.
fn answered_in_the_end(seed: u64, timeout_ns: u64) -> f64 {
    const CALLS_PER_SECOND: u64 = 350;
    let mut world = World::new(seed, Weather::FINE);
    world.service_ns_max = 30 * MS;
    let config = Arc::new(Config { mode: Mode::Compatible, ..Config::default() });
    world.client(address(1, 33_000), &config);
    (1..=4).for_each(|index| world.server(worker(index), &worker_config(Mode::Compatible)));
    let workers = (1..=4).map(|index| (worker(index), 1)).collect();
    let router = Router::new(RouterConfig { workers, ..router_config() }, world.now);
    world.routers.insert(address(ROUTER, 8000), router);
    world.run(world.now.plus_ns(100 * MS));
    for tag in 0..12 * CALLS_PER_SECOND {
        world.weather.lost = if (1..4).contains(&(tag / CALLS_PER_SECOND)) { 10 } else { 0 };
        world.call(address(1, 33_000), address(ROUTER, 8000), tag, 4000, timeout_ns);
        world.run(world.now.plus_ns(S / CALLS_PER_SECOND));
    }
    world.run(world.now.plus_ns(2 * S));
    let last = 9 * CALLS_PER_SECOND..12 * CALLS_PER_SECOND;
    let answered = last.clone().filter(|tag| world.fates[tag].replies == 1).count();
    answered as f64 / last.count() as f64
}

#[test]
fn a_router_recovers_from_lost_datagrams_however_soon_its_clients_give_up() {
    for (seed, timeout_ms) in [(1, 60), (2, 100), (3, 200), (4, 300), (5, 500), (6, 800), (7, 3000)] {
        let share = answered_in_the_end(seed, timeout_ms * MS);
        assert!(share > 0.98, "clients that wait {timeout_ms} ms: {share}");
    }
}

/// The first packet of a request of several, as a client of the authors writes it.
fn first(id: u8, packets: u8, payload: &[u8; 14]) -> Vec<u8> {
    [&[0xcc, 8, 0, 0x80, 0, id, 0, packets][..], payload].concat()
}

#[test]
fn another_request_takes_the_place_of_one_of_its_name_that_was_given_up() {
    let config = RouterConfig { workers: vec![(worker(1), 1), (worker(2), 1)], ..router_config() };
    let policy = Picking::Bounded(Bound::Fixed(1));
    let (mut router, client) = (Router::new(RouterConfig { policy, ..config }, START), address(1, 33_000));
    let now = START.plus_ns(S);
    router.handle_timeout(now);
    let ask = |router: &mut Router, now, datagram: &[u8]| {
        router.handle_request(now, now, client, datagram);
        router.poll_forward().map(|forward| forward.to)
    };
    let went = ask(&mut router, now, &first(1, 3, b"the first one."));
    assert!(went.is_some());
    assert_eq!(ask(&mut router, now, &first(1, 3, b"the first one.")), None, "the network has doubled it");
    assert_eq!(ask(&mut router, now, &first(1, 4, b"the first one.")), went, "the worker knows what it has");
    assert_eq!(ask(&mut router, now, &first(1, 4, b"the other one.")), went);
    let later = now.plus_ns(11 * MS);
    assert_eq!(ask(&mut router, later, &first(1, 4, b"the other one.")), went, "no datagram is that old");
    assert_eq!(router.workers().iter().map(|row| row.outstanding).sum::<u32>(), 1);

    // One that waits: the other one waits instead.
    assert!(ask(&mut router, later, &first(2, 3, b"keeps the next")).is_some());
    assert_eq!(ask(&mut router, later, &first(3, 3, b"waits         ")), None);
    assert_eq!(ask(&mut router, later, &first(3, 3, b"waits instead.")), None);
    let end = |router: &mut Router, id| {
        let about = FeedbackFor { id, port: 33_000, ip: u32::from(Ipv4Addr::new(10, 77, 0, 1)) };
        let feedback = [&[0xcc, 8, 0x20, 0xc0, 0, 1, 0, 1][..], &about.encode()].concat();
        (1..=2).for_each(|index| router.handle_feedback(later, worker(index), &feedback));
        std::iter::from_fn(|| router.poll_forward()).map(|forward| forward.datagram).collect::<Vec<_>>()
    };
    assert_eq!(end(&mut router, 1), [first(3, 3, b"waits instead.")]);
    assert!(end(&mut router, 2).is_empty());
    assert!(end(&mut router, 3).is_empty());
    assert_eq!((router.live(), router.queued()), (0, 0));
}

#[test]
fn a_server_never_mixes_two_requests_of_one_name() {
    let client = address(1, 33_000);
    let later = |index: u8, last: bool, text: &str| {
        let flags = if last { 0x40 } else { 0 };
        [&[0xcc, 8, 0, flags, 0, 1, 0, index][..], text.as_bytes()].concat()
    };
    // The first one's last packet is lost. What the second begins with, and when it comes.
    let others: [(&[u8; 14], u64); 3] =
        [(b"the other one.", MS), (b"the first one.", 11 * MS), (b"the other one.", S)];
    for (begins, after_ns) in others {
        let mut server = Server::new(worker_config(Mode::Compatible), START);
        let now = START.plus_ns(S);
        server.handle_datagram(now, now, client, &first(1, 3, b"the first one."));
        server.handle_datagram(now, now, client, &later(1, false, "old"));
        let now = now.plus_ns(after_ns);
        server.handle_datagram(now, now, client, &first(1, 3, begins));
        server.handle_datagram(now, now, client, &first(1, 3, begins));
        server.handle_datagram(now, now, client, &later(1, false, "new"));
        server.handle_datagram(now, now, client, &later(2, true, "er"));
        let Some(ServerEvent::Request(request)) = server.poll_event() else { panic!("a request") };
        assert_eq!(request.body, [&begins[..], b"newer"].concat());
        assert_eq!((server.poll_event(), server.len(), server.counters().abandoned), (None, 1, 1));
        let sent: Vec<_> = std::iter::from_fn(|| server.poll_transmit()).collect();
        let acks = sent.iter().filter(|transmit| transmit.to == client).count();
        assert_eq!((acks, sent.len()), (2, 3), "each is asked for its rest, and a credit comes back");
        // Long after, nothing is left of either.
        server.reply(now, request.key, bytes::Bytes::new(), None, Timing::default());
        server.handle_timeout(now.plus_ns(60 * S));
        assert_eq!((server.len(), server.poll_event()), (0, None));
    }
}

/// The request that begins with a datagram.
fn begun(forward: &Forward) -> RequestKey {
    let Sending::Begins(key) = forward.of else { panic!("{forward:?}") };
    key
}

/// What a host cannot send on is at nobody: the place is free, its client hears so, and no worker is blamed.
#[test]
fn a_request_that_could_not_be_sent_on_takes_no_place() {
    let workers = vec![(worker(1), 1)];
    let picking = Picking::Bounded(Bound::Fixed(1));
    let config = RouterConfig { workers, extended: false, policy: picking, ..router_config() };
    let (mut router, now) = (Router::new(config, START), START.plus_ns(S));
    let request = |id: u8| [0xcc, 8, 0, 0xc0, 0, id, 0, 1, 7];
    for id in 0..3 {
        router.handle_request(now, now, address(1, 33_000), &request(id));
        let forward = router.poll_forward().unwrap();
        assert_eq!((router.workers()[0].outstanding, router.live()), (1, 1));
        router.unsent(now, begun(&forward));
        assert_eq!((router.workers()[0].outstanding, router.live()), (0, 0));
        let said = router.poll_transmit().unwrap().to_vec();
        assert_eq!(Packet::parse(&said, true).unwrap().header.kind, PacketType::Drop);
        assert_eq!(router.next_timeout(), None, "no lease is left to lapse");
    }
    // One that waited gets the place.
    router.handle_request(now, now, address(1, 33_000), &request(8));
    router.handle_request(now, now, address(1, 33_000), &request(9));
    let forward = router.poll_forward().unwrap();
    assert_eq!(router.poll_forward(), None);
    router.unsent(now, begun(&forward));
    router.handle_timeout(now);
    assert_eq!(router.poll_forward().map(|forward| forward.datagram[5]), Some(9));
    let counters = router.counters();
    assert_eq!((counters.unsent, counters.lapsed), (4, 0));
    assert_eq!(counters.dropped[Reason::Busy as usize], 4);
}

/// Of the extended mode: what is sent again may be at its worker.
#[test]
fn a_repetition_that_could_not_be_sent_says_nothing() {
    let mut router = Router::new(router_config(), START);
    let now = START.plus_ns(S);
    router.handle_feedback(now, worker(1), &beat());
    let mut client = Client::new(Arc::new(extended()), 1);
    let (target, body) = (address(ROUTER, 8000), vec![7; 8].into());
    let deadline = trunkline_call::Deadline::NONE;
    client.call(now, NewCall { tag: 1, target, sticky: false, class: 0, deadline, body }).unwrap();
    let mut send = |client: &mut Client, now| {
        router.handle_request(now, now, address(1, 33_000), &client.poll_transmit().unwrap().to_vec());
        router.poll_forward().unwrap()
    };
    let first = begun(&send(&mut client, now));
    let again = now.plus_ns(20 * MS);
    client.handle_timeout(again);
    let repeated = send(&mut client, again).of;
    assert_eq!(repeated, Sending::Repeats { key: first, since: now }, "it went out then");
    router.unsent(now, first);
    let said = router.poll_transmit().unwrap().to_vec();
    let part = Packet::parse(&said, true).unwrap().extension.unwrap().part;
    assert!(matches!(part, Part::Drop { reason: Reason::Busy, .. }), "{part:?}");
}

/// Nothing is done one by one for what a worker says of itself, and nothing is looked through for a start of it.
#[test]
fn a_worker_that_claims_very_much_costs_what_another_does() {
    for picking in [Picking::Random, Picking::JoinShortestQueue] {
        let mut router = Router::new(RouterConfig { policy: picking, ..router_config() }, START);
        let now = START.plus_ns(S);
        let part = |slots, epoch, taken, served| FeedbackPart {
            slots,
            leaving: false,
            on_behalf: true,
            queue_ns: 0,
            service_ns: 0,
            epoch,
            taken,
            served,
        };
        let say = |router: &mut Router, part| {
            router.handle_feedback(now, worker(1), &feedback(part, Identity::default(), NO_REQUEST));
        };
        router.handle_feedback(now, worker(2), &beat());
        for epoch in 0..20_000 {
            say(&mut router, part(u16::MAX, epoch, 1 << 40, 0));
        }
        assert_eq!(router.workers()[0].outstanding, u32::from(u16::MAX) * 64);
        // With fewer slots its load is the larger.
        say(&mut router, part(1, 19_999, 1 << 40, 0));
        for id in 0..200 {
            router.handle_request(now, now, address(1, 33_000), &[0xcc, 8, 0, 0xc0, 0, id, 0, 1, 7]);
            assert!(router.poll_forward().is_some());
        }
        say(&mut router, part(1, 19_999, 1 << 40, 1 << 39));
        assert!(router.workers()[0].outstanding < 200);
    }
}

/// A router with one worker that beats, and as many extended requests as it is asked to make.
struct Fed {
    router: Router,
    caller: Client,
    now: trunkline_call::Instant,
    /// Those sent on, in order: id and identity.
    sent: Vec<(u16, Identity)>,
    sent_at: Vec<trunkline_call::Instant>,
    taken: u64,
    served: u64,
}

const CALLER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 33_000);

impl Fed {
    fn new(policy: Picking, lease_ns: u64) -> Self {
        let workers = vec![(worker(1), 1)];
        let config = RouterConfig { workers, policy, lease_ns, delay_ns_max: 1000 * S, ..router_config() };
        let (mut router, now) = (Router::new(config, START), START.plus_ns(S));
        router.handle_feedback(now, worker(1), &beat());
        let caller = Client::new(Arc::new(extended()), 1);
        let (sent, sent_at) = Default::default();
        Self { router, caller, now, sent, sent_at, taken: 0, served: 0 }
    }

    fn call(&mut self) -> CallName {
        let (deadline, body) = (trunkline_call::Deadline::NONE, bytes::Bytes::from_static(b"abc"));
        let target = address(ROUTER, 8000);
        let new = NewCall { tag: 1, target, sticky: false, class: 0, deadline, body };
        let name = self.caller.call(self.now, new).unwrap();
        self.tell_router();
        name
    }

    /// What the client has to say reaches the router, and what that sends on its worker.
    fn tell_router(&mut self) {
        while let Some(said) = self.caller.poll_transmit() {
            self.router.handle_request(self.now, self.now, CALLER, &said.to_vec());
        }
        self.sends();
    }

    fn sends(&mut self) {
        while let Some(forward) = self.router.poll_forward() {
            let packet = Packet::parse(&forward.datagram, true).unwrap();
            self.sent.push((packet.header.id, packet.extension.unwrap().identity));
            self.sent_at.push(self.now);
            self.taken += 1;
        }
    }

    fn say(&mut self, about: FeedbackFor, identity: Identity, service_ns: u64) {
        let part = FeedbackPart {
            slots: 1,
            leaving: false,
            on_behalf: true,
            queue_ns: 0,
            service_ns: service_ns.min(u32::MAX.into()) as u32,
            epoch: 7,
            taken: self.taken,
            served: self.served,
        };
        self.router.handle_feedback(self.now, worker(1), &feedback(part, identity, about));
        self.sends();
    }

    /// The worker has done one of those sent on; FEEDBACK about it arrives, or is lost.
    fn done(&mut self, which: usize, service_ns: u64, arrives: bool) {
        self.served += 1;
        let (id, identity) = self.sent[which];
        let about = FeedbackFor { id, port: CALLER.port(), ip: (*CALLER.ip()).into() };
        if arrives {
            self.say(about, identity, service_ns);
        }
    }

    /// Time passes; the worker says that it is there.
    fn pass(&mut self, ns: u64) {
        let until = self.now.plus_ns(ns);
        while self.now < until {
            self.now = self.now.plus_ns((100 * MS).min(until.since_ns(self.now)));
            self.router.handle_timeout(self.now);
            self.sends();
            self.say(NO_REQUEST, Identity::default(), 0);
        }
    }

    /// Sent on, and not done.
    fn in_hand(&self) -> usize {
        self.sent.len() - self.served as usize
    }
}

/// A lease that ends by itself gives its place to the next. When its request is done after all, that is no second one.
#[test]
fn a_request_that_outlasts_its_lease_frees_one_place() {
    let mut fed = Fed::new(Picking::Bounded(Bound::Fixed(1)), 1000 * MS);
    for _ in 0..6 {
        fed.call();
    }
    assert_eq!(fed.sent.len(), 1);
    fed.pass(1050 * MS);
    assert_eq!(fed.sent.len(), 2, "its lease has ended");
    fed.pass(450 * MS);
    fed.done(0, 1500 * MS, true);
    assert_eq!(fed.sent.len(), 2, "its place is the second one's already");
    for which in 1..4 {
        fed.pass(10 * MS);
        fed.done(which, 10 * MS, true);
        assert_eq!((fed.sent.len(), fed.in_hand()), (which + 2, 1));
    }
    assert_eq!(fed.router.counters().recounted, 0, "no FEEDBACK was lost");
    // The count still makes up for one that is.
    fed.done(4, 10 * MS, false);
    fed.pass(100 * MS);
    assert_eq!((fed.router.counters().recounted, fed.in_hand()), (1, 1));
}

/// Whatever lapses, comes late or is lost, a worker has no more in hand than its bound and what has outlasted a lease.
#[test]
fn late_and_lost_feedback_lift_no_bound() {
    for seed in 0..200 {
        let mut random = trunkline_call::mix(seed);
        let mut draw = |below: u64| {
            random = trunkline_call::mix(random.wrapping_add(1));
            random % below
        };
        let mut fed = Fed::new(Picking::Bounded(Bound::Fixed(2)), 1000 * MS);
        for _ in 0..300 {
            fed.call();
        }
        let mut open = Vec::new();
        for _ in 0..150 {
            open.extend(open.len() + fed.served as usize..fed.sent.len());
            if draw(3) == 0 {
                fed.pass(draw(700) * MS);
            } else if !open.is_empty() {
                let which = open.swap_remove(draw(open.len() as u64) as usize);
                fed.done(which, fed.now.since_ns(fed.sent_at[which]), draw(10) > 0);
            }
            let known = open.len() + fed.served as usize;
            let all = open.iter().copied().chain(known..fed.sent.len());
            let running = all.filter(|which| fed.now.since_ns(fed.sent_at[*which]) < S).count();
            assert!(running <= 2, "{seed}: {running} whose lease runs");
        }
    }
}

/// A request that waits and whose client gives it up goes to nobody, and takes no room.
#[test]
fn a_request_given_up_in_the_queue_goes_nowhere() {
    let mut fed = Fed::new(Picking::Bounded(Bound::Fixed(1)), 1000 * MS);
    fed.call();
    let given_up = fed.call();
    let again = fed.caller.next_timeout();
    assert_eq!((fed.sent.len(), fed.router.queued(), fed.router.live()), (1, 1, 2));
    let mut copies = fed.caller.poll_transmit().into_iter().collect::<Vec<_>>();
    fed.now = again.expect("questions are asked again");
    fed.caller.handle_timeout(fed.now);
    copies.extend(std::iter::from_fn(|| fed.caller.poll_transmit()));
    fed.caller.cancel(given_up);
    fed.tell_router();
    assert_eq!((fed.router.queued(), fed.router.live()), (0, 1));
    fed.done(0, 10 * MS, true);
    assert_eq!((fed.sent.len(), fed.router.counters().stray), (1, 0));
    assert_eq!(fed.router.counters().dropped[Reason::Cancelled as usize], 1);
    // A repetition that was on its way all the time.
    assert!(!copies.is_empty());
    for copy in copies {
        fed.router.handle_request(fed.now, fed.now, CALLER, &copy.to_vec());
    }
    fed.sends();
    let about_the_first = |(id, _): &(u16, Identity)| *id == fed.sent[0].0;
    assert!(fed.sent.iter().all(about_the_first), "{:?}", fed.sent);
}

/// FEEDBACK cannot say a time above 4.29 s: the router measures those itself.
#[test]
fn services_longer_than_feedback_can_say_raise_no_bound() {
    let mut fed = Fed::new(Picking::Bounded(Bound::Auto), 120 * S);
    for which in 0..40 {
        fed.call();
        fed.pass(60 * S);
        fed.done(which, 60 * S, true);
    }
    assert_eq!(fed.router.bound(), Some(1));
}

/// Many requests of one address leave room in the queue for another's, and have their turns as before.
#[test]
fn an_address_that_fills_the_queue_keeps_no_other_out() {
    let workers = vec![(worker(1), 1)];
    let policy = Picking::Bounded(Bound::Fixed(1));
    let config = RouterConfig { workers, policy, queue_max: 100, extended: false, ..router_config() };
    let (mut router, now) = (Router::new(config, START), START.plus_ns(S));
    let request = |id: u8| [0xcc, 8, 0, 0xc0, 0, id, 0, 1, 7];
    for id in 0..200 {
        router.handle_request(now, now, address(1, 33_000), &request(id));
    }
    assert_eq!(router.queued(), 100);
    assert_eq!(router.counters().dropped[Reason::QueueFull as usize], 99);
    router.handle_request(now, now, address(2, 33_000), &request(250));
    assert_eq!((router.queued(), router.counters().dropped[Reason::QueueFull as usize]), (101, 99));
    let mut sent = Vec::new();
    while let Some(forward) = router.poll_forward() {
        let about =
            FeedbackFor { id: forward.datagram[5].into(), port: 33_000, ip: (*forward.client.ip()).into() };
        sent.push(forward.datagram[5]);
        let flags = Flags(Flags::FIRST | Flags::LAST);
        let (kind, policy, id) = (PacketType::Feedback, Policy::Unrestricted, about.id);
        let head = Packet::head(&Header { kind, policy, flags, id, order: 1 }, None);
        let said = [head.as_slice(), &about.encode()].concat();
        router.handle_feedback(now, worker(1), &said);
    }
    assert_eq!((sent.len(), sent[2], router.queued()), (102, 250, 0), "{sent:?}");
}

/// A worker joins by saying that it is there. What it said before it left may come late.
#[test]
fn a_late_feedback_brings_no_worker_back() {
    let config = RouterConfig { join_from: vec![(*worker(1).ip(), 32)], ..router_config() };
    let (mut router, now) = (Router::new(config, START), START.plus_ns(S));
    let part = |leaving: bool| FeedbackPart {
        slots: u16::from(!leaving),
        leaving,
        on_behalf: true,
        queue_ns: 0,
        service_ns: 0,
        epoch: 7,
        taken: 1,
        served: 1,
    };
    let about = FeedbackFor { id: 1, port: CALLER.port(), ip: (*CALLER.ip()).into() };
    let identity = Identity { epoch: 1, round: 1 };
    let mut say = |part, identity, about| {
        router.handle_feedback(now, worker(1), &feedback(part, identity, about));
        router.workers().len()
    };
    assert_eq!(say(part(false), Identity::default(), NO_REQUEST), 1);
    assert_eq!(say(part(false), identity, about), 1);
    assert_eq!(say(part(true), Identity::default(), NO_REQUEST), 0);
    assert_eq!(say(part(false), identity, about), 0);
    assert_eq!(say(part(false), Identity::default(), NO_REQUEST), 1);
}
