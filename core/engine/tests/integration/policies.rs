//! Shows policies in the way of calls: both sides, on one host and between two, refused calls that nobody else notices,
//! and that what is sent is what was looked at.

use crate::world;

use trunkline_call::entry::{Completion, Submission};
use trunkline_call::{Code, Encoding, Execution, Instant};
use trunkline_engine::{Engine, Turn};
use trunkline_policy::{Chain, CodeName, Definition, Kind, Modules, Side};
use trunkline_telemetry::Ask;
use world::*;

const TARGET: Option<&str> = Some("tcp://127.0.0.1:1");

fn access(side: Side, deny: &str) -> Definition {
    Definition { name: "no".into(), side, deny: Some(deny.into()), ..Definition::default() }
}

fn apply(world: &mut World, host: usize, definitions: &[Definition]) {
    let chain = Chain::build(definitions).unwrap();
    let host = &mut world.hosts[host];
    host.engine.apply_policies(chain).unwrap();
    host.engine.serve_waiting(&mut Turn { now: world.now, heaps: &mut host.heaps });
}

/// Makes a unary call that the server answers if it sees it. Returns how it ended and whether the server saw it.
fn call(world: &mut World, client: &mut App, server: &mut App, data: &[u8]) -> (Code, Execution, bool) {
    let payload = world.blob(client, data);
    let call = client.call(0, Some(payload), true);
    world.submit(client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    let seen = server.take().into_iter().find_map(|completion| match completion {
        Completion::Call(call) => Some(call),
        _ => None,
    });
    if let Some(seen) = seen {
        assert_eq!(world.data(server, seen.payload.unwrap()), data, "what was looked at is what was sent");
        world.submit(server, Submission::Finish(finish(seen.call, Code::Ok, None))).unwrap();
        world.submit(server, release(seen.call, seen.payload, seen.metadata, 0)).unwrap();
        world.settle(&mut [&mut *client, &mut *server]);
    }
    let outcome = client.take_finish();
    world.submit(client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    (outcome.code, outcome.execution, seen.is_some())
}

/// A client and a server: on one host, on two, and on two with schemas that differ.
fn pairs() -> Vec<(World, App, App, usize)> {
    [(0, None, PROTO), (1, TARGET, PROTO), (1, TARGET, OLDER_PROTO), (0, None, OLDER_PROTO)]
        .into_iter()
        .map(|(host, target, proto)| {
            let mut world = World::new();
            let server = world.attach(host, proto, None, true);
            let client = world.attach(0, PROTO, target, false);
            (world, client, server, host)
        })
        .collect()
}

const REFUSED: (Code, Execution, bool) = (Code::PermissionDenied, Execution::NotExecuted, false);

#[test]
fn access_by_content_on_either_side() {
    for (mut world, mut client, mut server, server_host) in pairs() {
        for (side, host) in [(Side::Client, 0), (Side::Server, server_host)] {
            apply(
                &mut world,
                host,
                &[access(side, "request.data.size() > 3 && request.data != b'fourteen bytes'")],
            );
            for (data, passes) in [
                (&b"yes"[..], true),
                (b"no, no", false),
                (b"", true),
                (b"fourteen bytes", true),
                (&[7; 5000], false),
                (&[7; 100_000], false),
            ] {
                let ended = call(&mut world, &mut client, &mut server, data);
                let expected = if passes { (Code::Ok, Execution::Executed, true) } else { REFUSED };
                assert_eq!(ended, expected, "{} bytes, {side:?}", data.len());
            }
            apply(&mut world, host, &[]);
            assert!(call(&mut world, &mut client, &mut server, &[7; 100_000]).2);
        }
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn large_messages_are_looked_at_too() {
    for (mut world, mut client, mut server, server_host) in pairs() {
        for (side, host) in [(Side::Client, 0), (Side::Server, server_host)] {
            apply(&mut world, host, &[access(side, "request.data.size() == 1000001")]);
            assert!(call(&mut world, &mut client, &mut server, &[1; 1_000_000]).2);
            assert_eq!(call(&mut world, &mut client, &mut server, &[1; 1_000_001]), REFUSED);
            apply(&mut world, host, &[]);
        }
        // Blocks nobody will fill go back with the next turn.
        world.advance(1);
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn writing_over_a_message_after_it_was_looked_at_changes_nothing() {
    // The peer is not connected yet, so the call waits between the look and the hand-over.
    let mut world = World::new();
    let mut server = world.attach(1, PROTO, None, true);
    let mut client = world.attach(0, PROTO, TARGET, false);
    apply(&mut world, 0, &[access(Side::Client, "request.data == b'evil!'")]);
    let payload = world.blob(&mut client, b"good!");
    let opening = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(opening)).unwrap();
    let heap = world.hosts[0].heaps.slots.get_mut(&client.key.to_bits()).unwrap();
    let lies = heap.send.windows(5).position(|bytes| bytes == b"good!").unwrap();
    heap.send[lies..lies + 5].copy_from_slice(b"evil!");
    world.settle(&mut [&mut client, &mut server]);
    let delivered = server.take_call();
    assert_eq!(world.data(&server, delivered.payload.unwrap()), b"good!");
}

/// Calls wait for room in the server's heap behind the look at them, while their sender writes over them, others are
/// looked at, and the policies are exchanged: each arrives as it was judged, by those that held when it began.
#[test]
fn what_was_looked_at_waits_as_it_was() {
    const BYTES: usize = 600_000;
    for (host, target, sides) in [(0, None, &[Side::Client, Side::Server][..]), (1, TARGET, &[Side::Client])]
    {
        for &side in sides {
            let mut world = World::new();
            let mut server = world.attach_sized(host, PROTO, None, true, 1 << 20);
            let mut client = world.attach(0, PROTO, target, false);
            let begin = |world: &mut World, client: &mut App, data: &[u8]| {
                let payload = world.blob(client, data);
                let call = client.call(0, Some(payload), true);
                world.submit(client, Submission::Call(call)).unwrap();
                call.call
            };
            apply(&mut world, 0, &[access(side, "request.data.size() == 4")]);
            let sent: Vec<Vec<u8>> = (1..=3u8).map(|fill| vec![fill; BYTES]).collect();
            for data in &sent {
                begin(&mut world, &mut client, data);
            }
            let refuse = |world: &mut World, client: &mut App, data: &[u8]| {
                let refused = begin(world, client, data);
                world.settle(&mut [&mut *client]);
                let outcome = client.take_finish();
                assert_eq!((outcome.call, outcome.code), (refused, Code::PermissionDenied));
                world.submit(client, release(refused, None, outcome.metadata, 9)).unwrap();
            };
            refuse(&mut world, &mut client, b"four");
            // Whatever is of theirs in the sender's heap now, it is not what was looked at.
            let heap = world.hosts[0].heaps.slots.get_mut(&client.key.to_bits()).unwrap();
            heap.send.iter_mut().filter(|byte| (2..=3).contains(*byte)).for_each(|byte| *byte = 9);
            apply(&mut world, 0, &[access(side, "request.data.size() > 1000")]);
            refuse(&mut world, &mut client, &[7; 2000]);
            apply(&mut world, 0, &[]);
            let mut seen = Vec::new();
            while seen.len() < sent.len() {
                world.settle(&mut [&mut client, &mut server]);
                let delivered = server.take_call();
                seen.push(world.data(&server, delivered.payload.unwrap()));
                world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, None))).unwrap();
                let release = release(delivered.call, delivered.payload, delivered.metadata, 0);
                world.submit(&server, release).unwrap();
            }
            assert!(seen == sent, "{side:?} of host {host}");
            world.settle(&mut [&mut client, &mut server]);
            for ended in client.take() {
                let Completion::Finish(ended) = ended else { panic!("{ended:?}") };
                assert_eq!(ended.code, Code::Ok);
                world.submit(&client, release(ended.call, None, ended.metadata, 9)).unwrap();
            }
            world.advance(1);
            assert_eq!(world.leftovers(), (0, 0));
        }
    }
}

/// Policies that only refuse have a way of their own (`permit.rs`). It says what that of all policies says, message by
/// message, and counts alike.
#[test]
fn those_that_only_refuse_are_asked_like_all_others() {
    let timeout = |side| Definition {
        name: "other-way".into(),
        kind: Kind::Timeout,
        side,
        timeout_ms: Some(3_600_000),
        ..Definition::default()
    };
    let named = |name: &str, definition| Definition { name: name.into(), ..definition };
    for (mut world, mut client, mut server, server_host) in pairs() {
        for (side, host) in [(Side::Client, 0), (Side::Server, server_host)] {
            let rules = [
                named("short", access(side, "request.data.size() == 3")),
                named("by-time", access(side, "request.data == b'fourteen bytes'")),
                named(
                    "when",
                    Definition { when: Some("request.data.size() > 9".into()), ..access(side, "true") },
                ),
            ];
            let of = |world: &World| -> Vec<_> {
                let rows = world.hosts[host].engine.policy_rows();
                rows.into_iter()
                    .filter(|row| row.definition.kind == Kind::Access)
                    .map(|row| row.figures)
                    .collect()
            };
            let mut said = Vec::new();
            for longer in [false, true] {
                apply(&mut world, host, &[]);
                let chain: Vec<_> = rules.iter().cloned().chain(longer.then(|| timeout(side))).collect();
                apply(&mut world, host, &chain);
                let mut ended = Vec::new();
                for data in [&b""[..], b"yes", b"fourteen bytes", b"passes", b"0123456789", &[5; 90_000]] {
                    ended.push(call(&mut world, &mut client, &mut server, data));
                }
                said.push((ended, of(&world)));
            }
            assert_eq!(said[0], said[1], "{side:?}");
            let passed = said[0].0.iter().filter(|(code, ..)| *code == Code::Ok).count();
            assert_eq!(passed, 2, "{side:?}: some pass, and some do not");
            apply(&mut world, host, &[]);
        }
        // Blocks nobody will fill go back with the next turn.
        world.advance(1);
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn malformed_messages_end_before_they_are_judged() {
    for encoding in [Encoding::Linear, Encoding::Protobuf] {
        let mut world = World::new();
        let mut server = world.attach(0, PROTO, None, true);
        let mut client = world.attach(0, PROTO, None, false);
        apply(&mut world, 0, &[access(Side::Client, "request.data == b'x'")]);
        let payload = world.put(&mut client, &[0xff; 100], encoding);
        let opening = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(opening)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let outcome = client.take_finish();
        assert_eq!((outcome.code, outcome.execution), (Code::InvalidArgument, Execution::NotExecuted));
        world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
        assert!(server.take().is_empty());
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn protobuf_from_an_application_is_judged_and_passed_on() {
    for (mut world, mut client, mut server, server_host) in pairs() {
        for (side, host) in [(Side::Client, 0), (Side::Server, server_host)] {
            apply(&mut world, host, &[access(side, "request.data == b'no'")]);
            for (data, passes) in [(&b"yes"[..], true), (b"no", false)] {
                let payload = world.put(&mut client, &wire_of(data), Encoding::Protobuf);
                let opening = client.call(0, Some(payload), true);
                world.submit(&client, Submission::Call(opening)).unwrap();
                world.settle(&mut [&mut client, &mut server]);
                let seen = server.take();
                assert_eq!(!seen.is_empty(), passes, "{side:?}");
                if let [Completion::Call(seen)] = seen.as_slice() {
                    assert_eq!(world.data(&server, seen.payload.unwrap()), data);
                    world.submit(&server, Submission::Finish(finish(seen.call, Code::Ok, None))).unwrap();
                    world.submit(&server, release(seen.call, seen.payload, seen.metadata, 0)).unwrap();
                    world.settle(&mut [&mut client, &mut server]);
                }
                let outcome = client.take_finish();
                world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
            }
            apply(&mut world, host, &[]);
        }
        assert_eq!(world.leftovers(), (0, 0));
    }
}

/// What the policies of the server's side look at is what its handler gets, whatever types the caller says it has: a
/// list where the server has one number, entries of a map that leave fields out, a oneof without one of its members.
#[test]
fn no_types_of_a_caller_have_the_servers_policy_see_another_message() {
    let proto_of = |blob: &str| PROTO.replace("message Blob { bytes data = 1; string note = 2; }", blob);
    let cases: [(&str, &str, &str, Vec<u8>); 3] = [
        (
            "message Blob { int32 amount = 1; }",
            "message Blob { repeated int32 amount = 1; }",
            "request.amount > 100",
            vec![0x08, 0xe8, 7],
        ),
        (
            "message Blob { repeated Line lines = 1; } message Line { string key = 1; int32 price = 3; }",
            "message Blob { map<string, int32> lines = 1; }",
            "request.lines.exists(line, line.price > 100)",
            vec![0x0a, 6, 0x0a, 1, b'k', 0x18, 0xe8, 7],
        ),
        (
            "message Blob { oneof which { int32 amount = 1; int32 count = 2; } }",
            "message Blob { int32 amount = 1; }",
            "request.count > 100",
            vec![0x08, 1, 0x10, 0xe8, 7],
        ),
    ];
    for (served, sent, denied, wire) in cases {
        for host in [0, 1] {
            let mut world = World::new();
            let mut server = world.attach(host, &proto_of(served), None, true);
            let mut client = world.attach(0, &proto_of(sent), TARGET.filter(|_| host == 1), false);
            apply(&mut world, host, &[access(Side::Server, denied)]);
            let payload = world.put(&mut client, &wire, Encoding::Protobuf);
            let opening = client.call(0, Some(payload), true);
            world.submit(&client, Submission::Call(opening)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            assert!(server.take().is_empty(), "{sent}");
            assert_eq!(client.take_finish().code, Code::PermissionDenied, "{sent}");
        }
    }
}

#[test]
fn every_message_of_a_stream_is_looked_at() {
    for (mut world, mut client, mut server, server_host) in pairs() {
        apply(&mut world, server_host, &[access(Side::Server, "request.data == b'no'")]);
        let opening = client.call(3, None, false);
        world.submit(&client, Submission::Call(opening)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let delivered = server.take_call();
        for data in [&b"one"[..], b"two", b"no", b"three"] {
            let payload = world.blob(&mut client, data);
            let message = Submission::Message {
                call: opening.call,
                payload,
                end: false,
                a1: trunkline_call::Instant(5),
            };
            world.submit(&client, message).unwrap();
            world.settle(&mut [&mut client, &mut server]);
        }
        let seen = server.take();
        let messages: Vec<_> = seen
            .iter()
            .filter_map(|completion| match completion {
                Completion::Message { payload, .. } => Some(world.data(&server, *payload)),
                _ => None,
            })
            .collect();
        assert_eq!(messages, [b"one".to_vec(), b"two".to_vec()]);
        assert!(
            seen.iter().any(|c| matches!(c, Completion::Cancelled { call, .. } if *call == delivered.call))
        );
        let ended = client.take().into_iter().find_map(|completion| match completion {
            Completion::Finish(finish) => Some(finish),
            _ => None,
        });
        // The handler has seen a part of the stream: nobody may say it did not run.
        let ended = ended.unwrap();
        assert_eq!((ended.code, ended.execution), (Code::PermissionDenied, Execution::Unknown));
    }
}

/// An application without types opens its call before it sends the one message: it is that message that is judged.
#[test]
fn a_request_in_parts_is_judged_when_it_is_whole() {
    for (host, target) in [(0, None), (1, TARGET)] {
        let mut world = World::new();
        let mut server = world.attach(host, PROTO, None, true);
        let mut client = world.attach_opaque(0, target, false);
        apply(&mut world, host, &[access(Side::Server, "request.data == b'no'")]);
        for (data, code) in [(&b"yes"[..], Code::Ok), (b"no", Code::PermissionDenied)] {
            let call = client.call(0, None, false);
            world.submit(&client, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            let payload = world.message(&mut client, data);
            let message = Submission::Message { call: call.call, payload, end: false, a1: Instant(2) };
            world.submit(&client, message).unwrap();
            world.submit(&client, Submission::HalfClose { call: call.call }).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            for completion in server.take() {
                let Completion::Call(seen) = completion else { continue };
                assert_eq!(world.data(&server, seen.payload.unwrap()), b"yes");
                world.submit(&server, release(seen.call, seen.payload, seen.metadata, 0)).unwrap();
                let reply = world.message(&mut server, b"y");
                let finish = finish(seen.call, Code::Ok, Some(reply));
                world.submit(&server, Submission::Finish(finish)).unwrap();
                world.settle(&mut [&mut client, &mut server]);
            }
            let ended = client.take().into_iter().find_map(|completion| match completion {
                Completion::Finish(finish) => Some(finish.code),
                _ => None,
            });
            assert_eq!(ended, Some(code), "host {host}");
        }
    }
}

/// Sends the one request in three entries. Returns how the call ended and whether a server saw it.
fn call_in_parts(world: &mut World, client: &mut App, servers: &mut [&mut App], data: &[u8]) -> (Code, bool) {
    let call = client.call(0, None, false);
    world.submit(client, Submission::Call(call)).unwrap();
    let mut settle = |world: &mut World, client: &mut App| {
        let mut all = vec![client];
        all.extend(servers.iter_mut().map(|server| &mut **server));
        world.settle(&mut all);
    };
    settle(world, client);
    let payload = world.message(client, data);
    let message = Submission::Message { call: call.call, payload, end: false, a1: Instant(2) };
    world.submit(client, message).unwrap();
    world.submit(client, Submission::HalfClose { call: call.call }).unwrap();
    settle(world, client);
    let mut seen = false;
    for server in servers.iter_mut() {
        for completion in server.take() {
            let Completion::Call(delivered) = completion else { continue };
            seen = true;
            let reply = world.message(server, b"y");
            world.submit(server, Submission::Finish(finish(delivered.call, Code::Ok, Some(reply)))).unwrap();
        }
    }
    let mut all = vec![&mut *client];
    all.extend(servers.iter_mut().map(|server| &mut **server));
    world.settle(&mut all);
    let ended = client.take().into_iter().find_map(|completion| match completion {
        Completion::Finish(finish) => Some(finish.code),
        _ => None,
    });
    (ended.unwrap(), seen)
}

/// Whoever knows the type may send its request in parts, too, wherever it goes.
#[test]
fn a_request_in_parts_does_not_pass_the_policies_of_its_maker() {
    for (host, target) in [(0, None), (1, TARGET)] {
        for opaque in [false, true] {
            let mut world = World::new();
            apply(&mut world, 0, &[access(Side::Client, "request.data == b'no'")]);
            let mut server = match opaque {
                true => world.attach_opaque(host, None, true),
                false => world.attach(host, PROTO, None, true),
            };
            let mut client = world.attach(0, PROTO, target, false);
            let mut ask = |data: &[u8]| call_in_parts(&mut world, &mut client, &mut [&mut server], data);
            assert_eq!(ask(b"yes"), (Code::Ok, true), "host {host}, opaque {opaque}");
            assert_eq!(ask(b"no"), (Code::PermissionDenied, false), "host {host}, opaque {opaque}");
        }
    }
}

/// A method may have servers that know its type behind others that do not.
#[test]
fn a_request_in_parts_is_judged_whoever_serves_first() {
    let mut world = World::new();
    apply(&mut world, 0, &[access(Side::Server, "request.data == b'no'")]);
    let mut first = world.attach_opaque(0, None, true);
    let mut second = world.attach(0, PROTO, None, true);
    let mut client = world.attach_opaque(0, None, false);
    let mut ask = || call_in_parts(&mut world, &mut client, &mut [&mut first, &mut second], b"no");
    let ended = [ask(), ask(), ask(), ask()];
    assert!(ended.contains(&(Code::PermissionDenied, false)), "by the one that knows the type: {ended:?}");
    assert!(ended.iter().all(|(_, seen)| !seen), "{ended:?}");
}

#[test]
fn rate_limits_and_chances_of_time() {
    let limit = Definition {
        name: "limit".into(),
        kind: Kind::RateLimit,
        side: Side::Client,
        calls_per_second: Some(10.0),
        burst: Some(2),
        ..Definition::default()
    };
    let mut world = World::new();
    let mut server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    apply(&mut world, 0, &[limit]);
    let mut ask = |world: &mut World| call(world, &mut client, &mut server, b"x").0;
    assert_eq!(
        [ask(&mut world), ask(&mut world), ask(&mut world)],
        [Code::Ok, Code::Ok, Code::ResourceExhausted]
    );
    world.advance(100_000_000);
    assert_eq!([ask(&mut world), ask(&mut world)], [Code::Ok, Code::ResourceExhausted]);
}

#[test]
fn delays_hold_and_timeouts_end() {
    let delay = Definition {
        name: "slow".into(),
        kind: Kind::Fault,
        side: Side::Client,
        delay_ms: Some(50),
        ..Definition::default()
    };
    let timeout = |timeout_ms| Definition {
        name: "bound".into(),
        kind: Kind::Timeout,
        side: Side::Client,
        timeout_ms: Some(timeout_ms),
        ..Definition::default()
    };
    let mut world = World::new();
    let mut server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    apply(&mut world, 0, &[delay.clone(), timeout(100)]);
    let mut begin = |world: &mut World, server: &mut App| {
        let payload = world.blob(&mut client, b"x");
        let opening = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(opening)).unwrap();
        world.advance(49_000_000);
        world.settle(&mut [&mut client, &mut *server]);
        assert!(server.take().is_empty() && client.take().is_empty(), "held");
        world.advance(1_000_000);
        world.settle(&mut [&mut client, &mut *server]);
        let told = (server.take(), client.take());
        world.submit(&client, Submission::Cancel { call: opening.call }).unwrap();
        world.settle(&mut [&mut client, &mut *server]);
        server.take();
        told
    };
    let (seen, _) = begin(&mut world, &mut server);
    let [Completion::Call(seen)] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(seen.deadline.instant().map(|at| at.since_ns(world.now)), Some(50_000_000));

    apply(&mut world, 0, &[delay, timeout(50)]);
    let (_, ended) = begin(&mut world, &mut server);
    let [Completion::Finish(ended)] = ended.as_slice() else { panic!("{ended:?}") };
    assert_eq!((ended.code, ended.execution), (Code::DeadlineExceeded, Execution::NotExecuted));
}

/// After Envoy: with both, a call is held and then ended.
#[test]
fn a_call_is_ended_when_its_delay_is_over() {
    let both = Definition {
        name: "slow-failure".into(),
        kind: Kind::Fault,
        side: Side::Client,
        delay_ms: Some(50),
        abort: Some(CodeName(Code::Unavailable)),
        ..Definition::default()
    };
    // None of these is asked about a call that ends before it comes to them.
    let behind =
        |name: &str, side, kind| Definition { name: name.into(), kind, side, ..Definition::default() };
    let rate = Definition {
        calls_per_second: Some(0.001),
        burst: Some(1),
        ..behind("rate", Side::Client, Kind::RateLimit)
    };
    let places = Definition { calls_max: Some(1), ..behind("places", Side::Server, Kind::ConcurrencyLimit) };
    let log = behind("log", Side::Server, Kind::AccessLog);
    for (mut world, mut client, mut server, host) in pairs() {
        apply(&mut world, 0, &[both.clone(), rate.clone(), places.clone(), turns(1), log.clone()]);
        let payload = world.blob(&mut client, b"x");
        let opening = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(opening)).unwrap();
        world.advance(49_000_000);
        world.settle(&mut [&mut client, &mut server]);
        assert!(!client.take().iter().any(|one| matches!(one, Completion::Finish(_))), "held");
        world.advance(1_000_000);
        world.settle(&mut [&mut client, &mut server]);
        let ended = client.take_finish();
        assert_eq!((ended.code, ended.execution), (Code::Unavailable, Execution::NotExecuted));
        world.submit(&client, release(ended.call, None, ended.metadata, 9)).unwrap();
        assert!(server.take().is_empty());
        let figures = world.hosts[0].engine.policy_rows()[0].figures;
        assert_eq!((figures.delayed, figures.refused), (1, 1));
        let seen: Vec<u64> = world.hosts[0].engine.policy_rows().iter().map(|row| row.figures.seen).collect();
        assert_eq!(seen, [1, 0, 0, 0, u64::from(host == 0)], "only the log is asked where it is served");
        assert_eq!(world.hosts[0].engine.poll_access_record().is_some(), host == 0);
        world.advance(1);
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn aborts_permits_and_the_log() {
    let abort = Definition {
        name: "break".into(),
        kind: Kind::Fault,
        side: Side::Client,
        abort: Some(CodeName(Code::Unavailable)),
        service: Some("world.Echo".into()),
        method: Some("Once".into()),
        when: Some("request.data == b'break'".into()),
        ..Definition::default()
    };
    let log =
        Definition { name: "log".into(), kind: Kind::AccessLog, side: Side::Server, ..Definition::default() };
    let limit = Definition {
        name: "one".into(),
        kind: Kind::ConcurrencyLimit,
        side: Side::Client,
        calls_max: Some(1),
        ..Definition::default()
    };
    for (mut world, mut client, mut server, host) in pairs() {
        apply(&mut world, 0, &[abort.clone(), limit.clone(), log.clone()]);
        if host == 1 {
            apply(&mut world, 1, std::slice::from_ref(&log));
        }
        let ended = call(&mut world, &mut client, &mut server, b"break");
        assert_eq!(ended, (Code::Unavailable, Execution::NotExecuted, false));
        for _ in 0..3 {
            // Each gives its permit back.
            assert_eq!(call(&mut world, &mut client, &mut server, b"go on").0, Code::Ok);
        }
        let waiting = client.call(3, None, false);
        world.submit(&client, Submission::Call(waiting)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        server.take();
        assert_eq!(call(&mut world, &mut client, &mut server, b"one too many").0, Code::ResourceExhausted);
        world.submit(&client, Submission::Cancel { call: waiting.call }).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        server.take();
        assert_eq!(call(&mut world, &mut client, &mut server, b"there is room").0, Code::Ok);

        let engine: &mut Engine = &mut world.hosts[host].engine;
        let lines: Vec<_> = std::iter::from_fn(|| engine.poll_access_record()).collect();
        let codes: Vec<_> = lines.iter().map(|line| line.code).collect();
        assert_eq!(codes, [Code::Ok, Code::Ok, Code::Ok, Code::Cancelled, Code::Ok]);
        assert_eq!(&*lines[0].path, ONCE);
        assert!(lines[0].request_bytes > 0);
    }
}

/// What a call's line and its telemetry say of its messages, at both of its ends.
#[test]
fn bytes_are_counted_both_ways() {
    for (mut world, mut client, mut server, host) in pairs() {
        let log =
            |side| Definition { name: "log".into(), kind: Kind::AccessLog, side, ..Definition::default() };
        apply(&mut world, 0, &[log(Side::Client)]);
        if host == 1 {
            apply(&mut world, 1, &[log(Side::Server)]);
        }
        let payload = world.blob(&mut client, &[1; 3000]);
        let begun = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(begun)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let seen = server.take_call();
        let answer = world.message(&mut server, &[2; 7000]);
        world.submit(&server, Submission::Finish(finish(seen.call, Code::Ok, Some(answer)))).unwrap();
        world.submit(&server, release(seen.call, seen.payload, seen.metadata, 0)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let outcome = client.take_finish();
        world.submit(&client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        for host in 0..=host {
            let (now, engine) = (world.now, &mut world.hosts[host].engine);
            let line = engine.poll_access_record().unwrap();
            let are_near = |said: u64, bytes: u64| (bytes..bytes + 200).contains(&said);
            let counted = (line.request_bytes, line.response_bytes);
            assert!(are_near(counted.0, 3000) && are_near(counted.1, 7000), "host {host}: {counted:?}");
            let ask = Ask { samples_max: 10, ..Ask::default() };
            for sample in engine.telemetry().snapshot(now, &ask).samples {
                let sampled = (u64::from(sample.request_bytes), u64::from(sample.response_bytes));
                assert_eq!(sampled, counted, "host {host}, {:?}", sample.side);
            }
        }
    }
}

#[test]
fn a_chain_that_does_not_fit_changes_nothing() {
    let mut world = World::new();
    let mut server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    apply(&mut world, 0, &[access(Side::Client, "request.data == b'no'")]);
    let wrong = Chain::build(&[access(Side::Client, "request.dta == b'no'")]).unwrap();
    let engine = &mut world.hosts[0].engine;
    let refused = engine.apply_policies(wrong.clone()).unwrap_err().to_string();
    let expected = "policy \"no\".deny: 1:9: world.Blob has no field \"dta\" (for /world.Echo/Once), as \"app0\" \
      () has it; did you mean \"data\"?";
    assert_eq!(refused, expected);
    let (_, fit) = engine.try_policies(wrong, Modules::default()).unwrap();
    assert_eq!(fit.refuse().unwrap_err().to_string(), expected);
    assert_eq!(call(&mut world, &mut client, &mut server, b"no"), REFUSED);
    assert_eq!(call(&mut world, &mut client, &mut server, b"yes").0, Code::Ok);
    let figures = world.hosts[0].engine.policy_rows()[0].figures;
    assert_eq!((figures.seen, figures.refused), (2, 1));
}

#[test]
fn whoever_binds_later_is_judged_by_the_same_chain_and_a_misfit_refuses() {
    let mut world = World::new();
    apply(
        &mut world,
        0,
        &[
            access(Side::Server, "request.note == 'no'"),
            Definition { name: "client".into(), ..access(Side::Client, "request.data == b'no'") },
        ],
    );
    let mut server = world.attach(0, OLDER_PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    let misfit = world.hosts[0].engine.poll_policy_misfit().unwrap().to_string();
    assert!(misfit.contains("world.Blob has no field \"note\""), "{misfit}");
    assert_eq!(call(&mut world, &mut client, &mut server, b"no"), REFUSED);
    let ended = call(&mut world, &mut client, &mut server, b"yes");
    assert_eq!(ended, (Code::Internal, Execution::NotExecuted, false));
}

/// Whoever binds a method with other descriptors than everybody else has its own calls refused, and no say.
#[test]
fn an_application_with_types_of_its_own_keeps_nobody_from_being_judged() {
    let mut world = World::new();
    let mut server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    let mut odd = world.attach(0, OLDER_PROTO, None, false);
    let chain = || Chain::build(&[access(Side::Client, "request.note == 'no'")]).unwrap();
    world.hosts[0].engine.apply_policies(chain()).unwrap();
    let told = world.hosts[0].engine.poll_policy_misfit().unwrap().to_string();
    assert!(told.contains("has no field \"note\"") && told.contains("as \"app0\" ("), "{told}");
    assert_eq!(call(&mut world, &mut client, &mut server, b"yes").0, Code::Ok);
    assert_eq!(call(&mut world, &mut odd, &mut server, b"yes").0, Code::Internal);

    let wrong = || Chain::build(&[access(Side::Client, "request.nothing == 'no'")]).unwrap();
    let refused = world.hosts[0].engine.apply_policies(wrong()).unwrap_err().to_string();
    assert!(refused.contains("has no field \"nothing\""), "{refused}");
    // Every shard has found it to do: what has been bound since changes nothing.
    world.hosts[0].engine.exchange_checked_policies(wrong(), Modules::default()).unwrap();
    assert_eq!(call(&mut world, &mut client, &mut server, b"yes").0, Code::Internal);
}

/// What was bound since a policy was put to work, and does not fit it, has its own calls refused; the operator may
/// change all others, and a daemon that takes over goes on with all of them.
#[test]
fn what_is_at_work_keeps_nobody_from_changing_the_rest() {
    let mut world = World::new();
    let at_work = [
        access(Side::Server, "request.note == 'no'"),
        Definition {
            name: "misnamed".into(),
            service: Some("world.Echo".into()),
            method: Some("Onces".into()),
            ..access(Side::Server, "true")
        },
    ];
    apply(&mut world, 0, &at_work);
    let mut server = world.attach(0, OLDER_PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    assert_eq!(call(&mut world, &mut client, &mut server, b"yes").0, Code::Internal);
    let other = |deny: &str| Definition { name: "other".into(), ..access(Side::Client, deny) };
    let chain = |deny: &str| Chain::build(&[&at_work[..], &[other(deny)]].concat()).unwrap();
    let engine = &mut world.hosts[0].engine;
    engine.apply_policies(chain("request.data == b'no'")).unwrap();
    let refused = engine.apply_policies(chain("request.dta == b'no'")).unwrap_err();
    assert_eq!(
        (refused.name.as_str(), refused.index),
        ("other", 2),
        "what is new is held against what is bound"
    );
    engine.apply_policies(Chain::build(&at_work[..1]).unwrap()).unwrap();
    // Written otherwise, it is new.
    let changed = Definition { message: Some("no".into()), ..at_work[0].clone() };
    assert!(engine.apply_policies(Chain::build(&[changed]).unwrap()).is_err());
    world.replace_engines();
    let engine = &mut world.hosts[0].engine;
    let same = Chain::build(&at_work[..1]).unwrap();
    engine.exchange_checked_policies(same, Modules::default()).unwrap();
    engine.apply_policies(Chain::default()).unwrap();
    assert_eq!(call(&mut world, &mut client, &mut server, b"yes").0, Code::Ok);
}

/// A policy behind one at work that does not fit some application is held against that application by itself, and one
/// that does not concern an application has no say in whether others fit.
#[test]
fn what_does_not_fit_hides_nothing_that_is_new_behind_it() {
    let at_work = access(Side::Server, "request.note == 'no'");
    let other = |deny: &str| Definition { name: "other".into(), ..access(Side::Server, deny) };
    for alone in [false, true] {
        let mut world = World::new();
        apply(&mut world, 0, std::slice::from_ref(&at_work));
        world.label = Some("odd");
        let _odd = world.attach(0, OLDER_PROTO, None, true);
        world.label = None;
        let _server = (!alone).then(|| world.attach(0, PROTO, None, true));
        let engine = &mut world.hosts[0].engine;
        let mut apply =
            |new: Definition| engine.apply_policies(Chain::build(&[at_work.clone(), new]).unwrap()).err();
        let refused = apply(other("request.nothing == ''")).expect("it fits nobody");
        assert_eq!((refused.name.as_str(), refused.index), ("other", 1), "alone: {alone}");
        let of_one = Definition { application: Some("odd".into()), ..other("request.note == ''") };
        assert_eq!(apply(of_one).map(|refused| refused.index), Some(1), "others have no say: {alone}");
        assert_eq!(apply(other("request.note == ''")).is_some(), alone, "as somebody has it, it fits");
        assert_eq!(apply(other("request.data == b''")), None);
    }
}

/// Shards ask together: who has a method otherwise may be alone on its shard, and is not alone on the host.
#[test]
fn what_fits_on_one_shard_fits() {
    let mut world = World::new();
    let _server = world.attach(0, PROTO, None, true);
    let _odd = world.attach(1, OLDER_PROTO, None, true);
    let named = |method: &str| Definition {
        name: method.into(),
        service: Some("world.Echo".into()),
        method: Some(method.into()),
        ..access(Side::Server, "request.note == 'no'")
    };
    let mut fits = |definition: Definition| {
        let chain = Chain::build(&[definition]).unwrap();
        let mut tried = [0, 1].map(|host| {
            let engine = &mut world.hosts[host].engine;
            engine.try_policies(chain.clone(), Modules::default()).unwrap().1
        });
        let alone = tried[1].refuse();
        let odd = std::mem::take(&mut tried[1]);
        tried[0].join(odd);
        (alone.is_ok(), tried[0].refuse().is_ok())
    };
    assert_eq!(fits(access(Side::Server, "request.note == 'no'")), (false, true));
    assert_eq!(fits(access(Side::Server, "request.nothing == 'no'")), (false, false));
    assert_eq!(fits(named("Once")), (false, true));
    assert_eq!(fits(named("Onces")), (false, false));
}

/// That a descriptor set has a service is no bind of it: whoever wants may send one.
#[test]
fn a_descriptor_set_alone_has_no_say_in_methods() {
    let mut world = World::new();
    let more = "\nservice Elsewhere { rpc Other (Blob) returns (Blob); }\n";
    let _odd = world.attach(0, &format!("{PROTO}{more}"), None, true);
    let named = |service: &str| Definition {
        service: Some(service.into()),
        method: Some("Buy".into()),
        ..access(Side::Server, "true")
    };
    let engine = &mut world.hosts[0].engine;
    assert!(engine.apply_policies(Chain::build(&[named("world.Echo")]).unwrap()).is_err());
    engine.apply_policies(Chain::build(&[named("world.Elsewhere")]).unwrap()).unwrap();
}

#[test]
fn a_method_that_nobody_has_is_told() {
    let mut world = World::new();
    let named = |method: &str| Definition {
        service: Some("world.Echo".into()),
        method: Some(method.into()),
        ..access(Side::Server, "true")
    };
    apply(&mut world, 0, &[named("Onces")]);
    world.attach(0, PROTO, None, true);
    let told = world.hosts[0].engine.poll_policy_misfit().unwrap().to_string();
    assert!(told.ends_with(".method: world.Echo has no method \"Onces\"; did you mean \"Once\"?"), "{told}");
    let refused =
        Chain::build(&[named("Twice")]).and_then(|chain| world.hosts[0].engine.apply_policies(chain));
    assert!(refused.unwrap_err().to_string().contains("has no method \"Twice\""));
    apply(&mut world, 0, &[named("Once")]);
    assert_eq!(world.hosts[0].engine.poll_policy_misfit(), None);
}

#[test]
fn callers_are_known_by_name_and_user() {
    let mut world = World::new();
    let mut server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    world.hosts[0].engine.identify(client.key, "uid:1000", "");
    apply(
        &mut world,
        0,
        &[
            Definition { name: "who".into(), ..access(Side::Server, "peer.identity != 'uid:1000'") },
            Definition { name: "app".into(), ..access(Side::Client, "application != 'app0'") },
            Definition {
                name: "other".into(),
                application: Some("other".into()),
                ..access(Side::Client, "true")
            },
        ],
    );
    assert_eq!(call(&mut world, &mut client, &mut server, b"x").0, Code::Ok);
    world.hosts[0].engine.identify(client.key, "uid:0", "");
    assert_eq!(call(&mut world, &mut client, &mut server, b"x"), REFUSED);
}

#[test]
fn a_client_that_leaves_with_a_held_call_leaves_nothing() {
    let mut world = World::new();
    let server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    let delay = Definition {
        name: "slow".into(),
        kind: Kind::Fault,
        side: Side::Client,
        delay_ms: Some(50),
        ..Definition::default()
    };
    apply(&mut world, 0, &[delay, access(Side::Client, "request.data == b'no'")]);
    let payload = world.blob(&mut client, b"x");
    let opening = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(opening)).unwrap();
    world.detach(&client);
    world.advance(60_000_000);
    let host = &mut world.hosts[0];
    host.engine.handle_timeout(&mut Turn { now: world.now, heaps: &mut host.heaps });
    assert_eq!(world.leftovers(), (0, 0));
    let _ = server;
}

fn turns(calls_max: u32) -> Definition {
    let (kind, side) = (Kind::Queue, Side::Server);
    Definition { name: "turns".into(), kind, side, calls_max: Some(calls_max), ..Definition::default() }
}

/// Calls delivered since the last look.
fn delivered(server: &mut App) -> Vec<trunkline_call::entry::Call> {
    let call = |completion| match completion {
        Completion::Call(call) => Some(call),
        _ => None,
    };
    server.take().into_iter().filter_map(call).collect()
}

fn codes(client: &mut App) -> Vec<(Code, Execution)> {
    let code = |completion| match completion {
        Completion::Finish(finish) => Some((finish.code, finish.execution)),
        _ => None,
    };
    client.take().into_iter().filter_map(code).collect()
}

#[test]
fn calls_wait_their_turn_and_leave_it_when_nobody_waits_for_them() {
    for (mut world, mut client, mut server, host) in pairs() {
        apply(&mut world, host, &[turns(1)]);
        let begin = |world: &mut World, client: &mut App, deadline_ns: Option<u64>| {
            let payload = world.blob(client, b"x");
            let mut call = client.call(0, Some(payload), true);
            let at = deadline_ns.map(|ns| trunkline_call::Deadline::at(world.now.plus_ns(ns)));
            call.deadline = at.unwrap_or(trunkline_call::Deadline::NONE);
            world.submit(client, Submission::Call(call)).unwrap();
            world.settle(&mut [client]);
            call.call
        };
        begin(&mut world, &mut client, None);
        begin(&mut world, &mut client, Some(10_000_000));
        let cancelled = begin(&mut world, &mut client, None);
        begin(&mut world, &mut client, None);
        world.settle(&mut [&mut client, &mut server]);
        let first = delivered(&mut server);
        assert_eq!(first.len(), 1, "one at a time");
        world.submit(&client, Submission::Cancel { call: cancelled }).unwrap();
        world.advance(20_000_000);
        world.settle(&mut [&mut client, &mut server]);
        // Its deadline passed in the queue: no handler has heard of it.
        assert_eq!(codes(&mut client).len(), 1);
        assert!(delivered(&mut server).is_empty());
        let back = world.blob(&mut server, b"y");
        world.submit(&server, Submission::Finish(finish(first[0].call, Code::Ok, Some(back)))).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let next = delivered(&mut server);
        assert_eq!((next.len(), codes(&mut client)), (1, vec![(Code::Ok, Execution::Executed)]));
        // And nobody waits longer than the interval.
        begin(&mut world, &mut client, None);
        world.settle(&mut [&mut client, &mut server]);
        world.advance(101_000_000);
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(codes(&mut client), [(Code::Unavailable, Execution::NotExecuted)]);
    }
}

#[test]
fn a_queue_that_is_changed_or_taken_away_is_so_for_those_who_wait() {
    let within = |interval_ms| Definition { interval_ms: Some(interval_ms), ..turns(1) };
    const MS: u64 = 1_000_000;
    for (mut world, mut client, mut server, host) in pairs() {
        let begin = |world: &mut World, client: &mut App, server: &mut App, count: usize| {
            for _ in 0..count {
                let payload = world.blob(client, b"x");
                let call = client.call(0, Some(payload), true);
                world.submit(client, Submission::Call(call)).unwrap();
            }
            world.settle(&mut [client, server]);
            delivered(server).len()
        };
        apply(&mut world, host, &[turns(1)]);
        assert_eq!(begin(&mut world, &mut client, &mut server, 4), 1);
        apply(&mut world, host, &[turns(3)]);
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(delivered(&mut server).len(), 2, "there is room for two more, now");
        apply(&mut world, host, &[]);
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(delivered(&mut server).len(), 1, "nobody waits any more");

        let late = vec![(Code::Unavailable, Execution::NotExecuted)];
        // What waits for so long at first is told to, after so long, and is late then.
        for (before, at, after) in [(10_000, 20, 40), (100, 60, 5_000), (100, 0, 50)] {
            apply(&mut world, host, &[within(before)]);
            assert!(begin(&mut world, &mut client, &mut server, 2) <= 1);
            world.advance(at * MS);
            apply(&mut world, host, &[within(after)]);
            world.advance((after - at) * MS);
            world.settle(&mut [&mut client, &mut server]);
            assert_eq!(codes(&mut client), [], "{before} ms, after {at} ms {after} ms");
            world.advance(MS);
            world.settle(&mut [&mut client, &mut server]);
            assert_eq!(codes(&mut client), late, "{before} ms, after {at} ms {after} ms");
            // The one under way is over.
            apply(&mut world, host, &[]);
        }
    }
}

#[test]
fn a_raised_rate_holds_at_once() {
    let rate = |calls_per_second| Definition {
        name: "rate".into(),
        kind: Kind::RateLimit,
        side: Side::Server,
        calls_per_second: Some(calls_per_second),
        burst: Some(1),
        ..Definition::default()
    };
    for (mut world, mut client, mut server, host) in pairs() {
        apply(&mut world, host, &[rate(0.001)]);
        assert_eq!(call(&mut world, &mut client, &mut server, b"x").0, Code::Ok);
        assert_eq!(call(&mut world, &mut client, &mut server, b"x").0, Code::ResourceExhausted);
        apply(&mut world, host, &[rate(1000.0)]);
        world.advance(1_000_000);
        assert_eq!(call(&mut world, &mut client, &mut server, b"x").0, Code::Ok);
    }
}

#[test]
fn calls_refused_at_their_opening_are_logged_too() {
    let log = |name: &str| {
        let (kind, side) = (Kind::AccessLog, Side::Server);
        Definition { name: name.into(), kind, side, ..Definition::default() }
    };
    let no = access(Side::Server, "size(request.data) > 0");
    for chain in [vec![log("log"), no.clone()], vec![no.clone(), log("log")]] {
        for (mut world, mut client, mut server, host) in pairs() {
            apply(&mut world, host, &chain);
            assert_eq!(call(&mut world, &mut client, &mut server, b"x"), REFUSED);
            let record = world.hosts[host].engine.poll_access_record().expect("a line");
            assert_eq!((&*record.path, record.code), (ONCE, Code::PermissionDenied));
            assert_eq!(world.hosts[host].engine.poll_access_record(), None);
        }
    }
}
