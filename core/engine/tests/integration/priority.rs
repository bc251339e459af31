//! Shows that calls of class batch make room for those of class latency, in order and for as long as those are about,
//! and that other calls are left alone.

use crate::world;

use trunkline_call::entry::{Completion, Payload, Submission};
use trunkline_call::{CallId, Code, Deadline, Execution, Instant};
use trunkline_policy::{Chain, ClassName, Definition, Kind, Side};
use world::*;

/// The routes of the world's methods.
const ONCE_ROUTE: usize = 0;
const CHAT_ROUTE: usize = 3;
const RATE: u64 = 2_000_000;
const BYTES: usize = 100_000;
const NOTHING: [u8; 0] = [];
/// Longer than a message takes at that rate.
const TURN_NS: u64 = 51_000_000;

/// `Chat` is batch, `Once` what `once` says.
fn classes(once: Option<ClassName>) -> Vec<Definition> {
    let of = |name: &str, method: &str, class, bytes_per_second| Definition {
        name: name.into(),
        kind: Kind::Priority,
        side: Side::Client,
        service: Some("world.Echo".into()),
        method: Some(method.into()),
        class: Some(class),
        bytes_per_second,
        ..Definition::default()
    };
    let once = once.map(|class| {
        let rate = (class == ClassName::Batch).then_some(RATE);
        of("once", "Once", class, rate)
    });
    once.into_iter().chain([of("bulk", "Chat", ClassName::Batch, Some(RATE))]).collect()
}

fn hosts() -> [(World, App, App); 2] {
    [(0, None), (1, Some("tcp://127.0.0.1:1"))].map(|(host, target)| {
        let mut world = World::new();
        let server = world.attach(host, PROTO, None, true);
        let client = world.attach(0, PROTO, target, false);
        (world, client, server)
    })
}

fn apply(world: &mut World, definitions: &[Definition]) {
    world.hosts[0].engine.apply_policies(Chain::build(definitions).unwrap()).unwrap();
}

/// A call that is answered at once.
fn once(world: &mut World, client: &mut App, server: &mut App) {
    let payload = world.blob(client, b"who waits");
    let opening = client.call(ONCE_ROUTE, Some(payload), true);
    world.submit(client, Submission::Call(opening)).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    let seen = server.take_call();
    world.submit(server, Submission::Finish(finish(seen.call, Code::Ok, None))).unwrap();
    world.submit(server, release(seen.call, seen.payload, seen.metadata, 0)).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    let ended = client.take().into_iter().find_map(|completion| match completion {
        Completion::Finish(finish) => Some(finish),
        _ => None,
    });
    let outcome = ended.unwrap();
    assert_eq!(outcome.code, Code::Ok);
    world.submit(client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
}

/// The first bytes of the messages a server has been given since it was last asked, which it returns.
fn delivered(world: &mut World, client: &mut App, server: &mut App) -> Vec<u8> {
    world.settle(&mut [&mut *client, &mut *server]);
    client.take(); // credit
    let seen: Vec<_> = server
        .take()
        .into_iter()
        .filter_map(|completion| match completion {
            Completion::Message { call, payload, .. } => Some((call, payload)),
            _ => None,
        })
        .collect();
    seen.into_iter()
        .map(|(call, payload): (_, Payload)| {
            let first = world.data(server, payload)[0];
            world.submit(server, release(call, Some(payload), Default::default(), 0)).unwrap();
            first
        })
        .collect()
}

#[test]
fn messages_of_batch_streams_take_turns_while_somebody_waits() {
    for (mut world, mut client, mut server) in hosts() {
        apply(&mut world, &classes(Some(ClassName::Latency)));
        let stream = client.call(CHAT_ROUTE, None, false);
        world.submit(&client, Submission::Call(stream)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        server.take_call();
        let send = |world: &mut World, client: &mut App, number: u8| {
            let payload = world.blob(client, &[number; BYTES]);
            let (call, a1) = (stream.call, Instant(5));
            world.submit(client, Submission::Message { call, payload, end: false, a1 }).unwrap();
        };
        for number in 0..3 {
            send(&mut world, &mut client, number);
            assert_eq!(delivered(&mut world, &mut client, &mut server), [number], "nobody else is about");
        }
        once(&mut world, &mut client, &mut server);
        for number in 3..6 {
            send(&mut world, &mut client, number);
        }
        assert_eq!(delivered(&mut world, &mut client, &mut server), [3], "what it may be ahead");
        for number in 4..6 {
            world.advance(TURN_NS / 2);
            once(&mut world, &mut client, &mut server);
            assert_eq!(delivered(&mut world, &mut client, &mut server), NOTHING, "not yet");
            world.advance(TURN_NS / 2);
            assert_eq!(delivered(&mut world, &mut client, &mut server), [number]);
        }
        send(&mut world, &mut client, 6);
        assert_eq!(delivered(&mut world, &mut client, &mut server), NOTHING, "paid for 5 first");
        world.advance(TURN_NS);
        assert_eq!(delivered(&mut world, &mut client, &mut server), [6]);
        world.advance(10 * TURN_NS);
        for number in 7..10 {
            send(&mut world, &mut client, number);
            assert_eq!(delivered(&mut world, &mut client, &mut server), [number], "they are gone");
        }
    }
}

#[test]
fn what_had_to_wait_long_goes_on_when_nobody_waits_any_more() {
    for (mut world, mut client, mut server) in hosts() {
        apply(&mut world, &classes(Some(ClassName::Latency)));
        once(&mut world, &mut client, &mut server);
        // Eight messages of a twentieth of a second each: the last has its turn in 0.35 s.
        let streams: Vec<_> = (0..8u8)
            .map(|number| {
                let stream = client.call(CHAT_ROUTE, None, false);
                world.submit(&client, Submission::Call(stream)).unwrap();
                let payload = world.blob(&mut client, &[number; BYTES]);
                let (call, a1) = (stream.call, Instant(5));
                world.submit(&client, Submission::Message { call, payload, end: false, a1 }).unwrap();
                stream.call
            })
            .collect();
        assert_eq!(delivered(&mut world, &mut client, &mut server), [0]);
        world.advance(TURN_NS / 2);
        once(&mut world, &mut client, &mut server);
        assert_eq!(delivered(&mut world, &mut client, &mut server), NOTHING);
        world.advance(TURN_NS / 2);
        assert_eq!(delivered(&mut world, &mut client, &mut server), [1], "its turn");
        // The last latency call is forgotten 0.1 s after it moved; only two more turns had come by then.
        world.advance(2 * TURN_NS);
        let mut rest = delivered(&mut world, &mut client, &mut server);
        rest.sort_unstable();
        assert_eq!(rest, [2, 3, 4, 5, 6, 7], "of {streams:?}");
    }
}

#[test]
fn calls_of_no_class_are_left_alone() {
    for (mut world, mut client, mut server) in hosts() {
        apply(&mut world, &classes(None));
        let stream = client.call(CHAT_ROUTE, None, false);
        world.submit(&client, Submission::Call(stream)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        server.take_call();
        for number in 0..5 {
            once(&mut world, &mut client, &mut server);
            let payload = world.blob(&mut client, &[number; BYTES]);
            let (call, a1) = (stream.call, Instant(5));
            world.submit(&client, Submission::Message { call, payload, end: false, a1 }).unwrap();
            assert_eq!(delivered(&mut world, &mut client, &mut server), [number], "none of them is urgent");
        }
    }
}

#[test]
fn a_deadline_may_pass_before_a_batch_call_has_its_turn() {
    for (mut world, mut client, mut server) in hosts() {
        apply(&mut world, &classes(Some(ClassName::Latency)));
        once(&mut world, &mut client, &mut server);
        world.advance(10_000_000);
        apply(&mut world, &classes(Some(ClassName::Batch)));
        let begin = |world: &mut World, client: &mut App| {
            let payload = world.blob(client, &[1; BYTES]);
            let mut opening = client.call(ONCE_ROUTE, Some(payload), true);
            opening.deadline = Deadline::at(world.now.plus_ns(TURN_NS / 2));
            world.submit(client, Submission::Call(opening)).unwrap();
        };
        begin(&mut world, &mut client);
        begin(&mut world, &mut client);
        world.settle(&mut [&mut client, &mut server]);
        let first = server.take_call();
        world.submit(&server, Submission::Finish(finish(first.call, Code::Ok, None))).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(client.take_finish().code, Code::Ok);
        world.advance(TURN_NS / 2);
        world.settle(&mut [&mut client, &mut server]);
        let second = client.take_finish();
        assert_eq!((second.code, second.execution), (Code::DeadlineExceeded, Execution::NotExecuted));
        world.advance(TURN_NS);
        world.settle(&mut [&mut client, &mut server]);
        assert!(server.take().iter().all(|seen| !matches!(seen, Completion::Call(_))), "nor later");
    }
}

/// Begins a batch stream with one message.
fn open(world: &mut World, client: &mut App, number: u8) -> CallId {
    let stream = client.call(CHAT_ROUTE, None, false);
    world.submit(client, Submission::Call(stream)).unwrap();
    let payload = world.blob(client, &[number; BYTES]);
    let message = Submission::Message { call: stream.call, payload, end: false, a1: Instant(5) };
    world.submit(client, message).unwrap();
    stream.call
}

#[test]
fn what_was_cancelled_holds_nobody_up() {
    for (mut world, mut client, mut server) in hosts() {
        apply(&mut world, &classes(Some(ClassName::Latency)));
        once(&mut world, &mut client, &mut server);
        let all: Vec<CallId> = (0..40).map(|number| open(&mut world, &mut client, number)).collect();
        assert_eq!(delivered(&mut world, &mut client, &mut server), [0]);
        for call in &all[1..39] {
            world.submit(&client, Submission::Cancel { call: *call }).unwrap();
        }
        delivered(&mut world, &mut client, &mut server);
        open(&mut world, &mut client, 77);
        let mut seen = Vec::new();
        for _ in 0..6 {
            world.advance(TURN_NS / 2);
            seen.extend(delivered(&mut world, &mut client, &mut server));
            once(&mut world, &mut client, &mut server);
        }
        seen.sort_unstable();
        assert_eq!(seen, [39, 77], "the one that waited behind them, and the one that came next");
    }
}

#[test]
fn what_a_policy_said_by_mistake_holds_nobody_up_when_it_is_gone() {
    for (mut world, mut client, mut server) in hosts() {
        let right = classes(Some(ClassName::Latency));
        let mut wrong = right.clone();
        wrong.iter_mut().filter_map(|policy| policy.bytes_per_second.as_mut()).for_each(|rate| *rate = 1);
        apply(&mut world, &wrong);
        once(&mut world, &mut client, &mut server);
        open(&mut world, &mut client, 0);
        open(&mut world, &mut client, 1);
        assert_eq!(delivered(&mut world, &mut client, &mut server), [0]);
        apply(&mut world, &right);
        open(&mut world, &mut client, 2);
        assert_eq!(delivered(&mut world, &mut client, &mut server), [2]);
        // The other one looks after a while.
        world.advance(TURN_NS);
        assert_eq!(delivered(&mut world, &mut client, &mut server), NOTHING);
        once(&mut world, &mut client, &mut server);
        world.advance(TURN_NS);
        assert_eq!(delivered(&mut world, &mut client, &mut server), [1]);
    }
}

/// What waits goes at its rate, whatever becomes of its turns: also after waves of calls that ended, in another process
/// and after a change of policies for others.
#[test]
fn what_waits_never_goes_faster_than_its_rate() {
    for change in ["waves", "process", "policies"] {
        for (mut world, mut client, mut server) in hosts() {
            let policies = classes(Some(ClassName::Latency));
            apply(&mut world, &policies);
            once(&mut world, &mut client, &mut server);
            let all: Vec<CallId> = (0..90).map(|number| open(&mut world, &mut client, number)).collect();
            assert_eq!(delivered(&mut world, &mut client, &mut server), [0]);
            let cancel = |world: &mut World, client: &mut App, calls: &[CallId]| {
                for call in calls {
                    world.submit(client, Submission::Cancel { call: *call }).unwrap();
                }
            };
            cancel(&mut world, &mut client, &all[1..60]);
            let (mut seen, mut most) = (Vec::new(), 0);
            for round in 0..80 {
                world.advance(TURN_NS / 2);
                let more = delivered(&mut world, &mut client, &mut server);
                most = most.max(more.len());
                seen.extend(more);
                once(&mut world, &mut client, &mut server);
                match (round, change) {
                    (6, "waves") => cancel(&mut world, &mut client, &all[60..75]),
                    (6, "process") => world.replace_engines(),
                    (6, "policies") => {
                        let other = Definition { service: Some("other.One".into()), ..policies[0].clone() };
                        let other = Definition { name: "other".into(), method: None, ..other };
                        apply(&mut world, &[&policies[..], &[other]].concat());
                    }
                    _ => {}
                }
            }
            seen.sort_unstable();
            let rest: Vec<u8> = (60..90).filter(|number| seen.contains(number)).collect();
            assert_eq!((most, &seen), (1, &rest), "{change}: one in half a turn at most");
            assert!(rest.ends_with(&(75..90).collect::<Vec<_>>()), "{change}: {rest:?}");
            assert!(change == "waves" || rest.len() == 30, "{change}: {rest:?}");
        }
    }
}
