//! Shows calls whose ends keep their types to themselves: every pairing of opaque and typed ends on one host and on
//! two, all patterns, empty messages, wrong numbers of messages, and that an application is not taken at its word.

use crate::world;

use proptest::prelude::*;
use trunkline_call::entry::{Call, Completion, Payload, Span, Submission};
use trunkline_call::{Code, Encoding, Execution, Instant, Metadata};
use trunkline_engine::{BindError, BindRequest, Limits};
use world::*;

const TARGET: Option<&str> = Some("tcp://127.0.0.1:1");

/// Who serves and who calls, on one host and on two.
const PAIRINGS: [(usize, bool, bool); 6] = [
    (0, true, true),
    (0, true, false),
    (0, false, true),
    (1, true, true),
    (1, true, false),
    (1, false, true),
];

fn pairing(host: usize, opaque_server: bool, opaque_client: bool) -> (World, App, App) {
    pairing_within(Limits::default(), host, opaque_server, opaque_client)
}

fn pairing_within(
    limits: Limits,
    host: usize,
    opaque_server: bool,
    opaque_client: bool,
) -> (World, App, App) {
    let mut world = World::with_limits(limits);
    let target = if host == 0 { None } else { TARGET };
    let server = match opaque_server {
        true => world.attach_opaque(host, None, true),
        false => world.attach(host, PROTO, None, true),
    };
    let client = match opaque_client {
        true => world.attach_opaque(0, target, false),
        false => world.attach(0, PROTO, target, false),
    };
    (world, server, client)
}

/// The path before a delivered call's metadata, and the metadata.
fn named(bytes: &[u8]) -> (String, Metadata) {
    let (len, rest) = bytes.split_first_chunk::<2>().unwrap();
    let (path, metadata) = rest.split_at(u16::from_le_bytes(*len).into());
    (String::from_utf8(path.to_vec()).unwrap(), Metadata::decode(metadata).unwrap())
}

fn message(call: &Call, payload: Payload, end: bool) -> Submission {
    Submission::Message { call: call.call, payload, end, a1: Instant(5) }
}

/// Everything delivered to a handler since: messages, and whether the end was said.
fn requests(world: &mut World, server: &App, taken: Vec<Completion>) -> (Vec<Vec<u8>>, bool) {
    let (mut messages, mut ended) = (Vec::new(), false);
    for completion in taken {
        match completion {
            Completion::Message { call, payload, end } => {
                messages.push(world.data(server, payload));
                ended |= end;
                world.submit(server, release(call, Some(payload), Span::default(), 0)).unwrap();
            }
            Completion::HalfClose { .. } => ended = true,
            Completion::Credit { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    (messages, ended)
}

#[test]
fn unary_in_every_pairing() {
    for (host, opaque_server, opaque_client) in PAIRINGS {
        let (mut world, mut server, mut client) = pairing(host, opaque_server, opaque_client);
        for bytes in [0, 1, 100, 5_000, 100_000, 3_000_000] {
            let data = vec![7; bytes];
            let payload = world.message(&mut client, &data);
            let call = client.call(0, Some(payload), true);
            world.submit(&client, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            let delivered = server.take_call();
            assert!(delivered.end);
            if opaque_server {
                let (path, metadata) = named(world.received(&server, delivered.metadata));
                assert_eq!((path.as_str(), metadata.len()), (ONCE, 0));
            }
            let request = delivered.payload.unwrap();
            assert_eq!(request.encoding == Encoding::Protobuf, opaque_server);
            assert_eq!(world.data(&server, request), data, "{host} {opaque_server} {opaque_client} {bytes}");
            world.submit(&server, release(delivered.call, Some(request), delivered.metadata, 0)).unwrap();
            let reply = world.message(&mut server, &data[..bytes / 2]);
            world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, Some(reply)))).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            let taken = client.take();
            let [Completion::Finish(outcome)] = taken[..] else { panic!("{taken:?}") };
            assert_eq!(outcome.code, Code::Ok);
            assert_eq!(world.data(&client, outcome.payload.unwrap()), data[..bytes / 2]);
            world.submit(&client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
        }
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn an_end_that_streams_meets_one_that_does_not() {
    // An opaque client says everything in single items, an opaque server answers in single items.
    for (host, opaque_server, opaque_client) in PAIRINGS {
        let (mut world, mut server, mut client) = pairing(host, opaque_server, opaque_client);
        for end_apart in [false, true] {
            let call = match opaque_client {
                true => client.call(0, None, false),
                false => {
                    let payload = world.message(&mut client, b"ask");
                    client.call(0, Some(payload), true)
                }
            };
            world.submit(&client, Submission::Call(call)).unwrap();
            if opaque_client {
                let payload = world.message(&mut client, b"ask");
                world.settle(&mut [&mut client, &mut server]);
                world.submit(&client, message(&call, payload, !end_apart)).unwrap();
                if end_apart {
                    world.settle(&mut [&mut client, &mut server]);
                    world.submit(&client, Submission::HalfClose { call: call.call }).unwrap();
                }
            }
            world.settle(&mut [&mut client, &mut server]);
            let mut taken = server.take();
            taken.retain(|completion| !matches!(completion, Completion::Credit { .. }));
            let Completion::Call(delivered) = taken.remove(0) else { panic!("{taken:?}") };
            if opaque_server && opaque_client {
                assert_eq!(requests(&mut world, &server, taken), (vec![b"ask".to_vec()], true));
            } else {
                assert!(delivered.end && taken.is_empty());
                assert_eq!(world.data(&server, delivered.payload.unwrap()), b"ask");
            }
            world.submit(&server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
            let reply = world.message(&mut server, b"answer");
            if opaque_server {
                world.submit(&server, message(&delivered, reply, false)).unwrap();
                world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, None))).unwrap();
            } else {
                let finish = finish(delivered.call, Code::Ok, Some(reply));
                world.submit(&server, Submission::Finish(finish)).unwrap();
            }
            world.settle(&mut [&mut client, &mut server]);
            let mut answers = Vec::new();
            for completion in client.take() {
                match completion {
                    Completion::Message { call, payload, .. } => {
                        answers.push(world.data(&client, payload));
                        world.submit(&client, release(call, Some(payload), Span::default(), 0)).unwrap();
                    }
                    Completion::Finish(outcome) => {
                        assert_eq!(outcome.code, Code::Ok);
                        answers.extend(outcome.payload.map(|payload| world.data(&client, payload)));
                        let done = release(outcome.call, outcome.payload, outcome.metadata, 9);
                        world.submit(&client, done).unwrap();
                    }
                    Completion::Credit { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(answers, [b"answer".to_vec()], "{host} {opaque_server} {opaque_client}");
        }
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn a_lone_answer_reaches_a_caller_that_expects_a_stream() {
    for host in [0, 1] {
        let (mut world, mut server, mut client) = pairing(host, true, false);
        let payload = world.message(&mut client, b"ask");
        let call = client.call(2, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let delivered = server.take_call();
        world.submit(&server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
        let reply = world.message(&mut server, b"only");
        world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, Some(reply)))).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let taken = client.take();
        let [Completion::Message { payload, .. }, Completion::Finish(outcome)] = taken[..] else {
            panic!("{taken:?}")
        };
        assert_eq!((world.data(&client, payload), outcome.payload), (b"only".to_vec(), None));
        world.submit(&client, release(call.call, Some(payload), Span::default(), 0)).unwrap();
        world.submit(&client, release(call.call, None, outcome.metadata, 9)).unwrap();
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn empty_messages_count_against_the_window() {
    for host in [0, 1] {
        let limits = Limits { stream_window_bytes: 64 << 10, ..Limits::default() };
        let mut world = World::with_limits(limits);
        let mut server = world.attach_opaque(host, None, true);
        let mut client = world.attach_opaque(0, if host == 0 { None } else { TARGET }, false);
        let call = client.call(3, None, false);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let delivered = server.take_call();
        world.submit(&server, release(delivered.call, None, delivered.metadata, 0)).unwrap();
        let empty = Payload::new(Span::default(), Encoding::Protobuf);
        let (mut sent, mut credited) = (0u64, 0u64);
        for _ in 0..3000 {
            world.submit(&client, message(&call, empty, false)).unwrap();
            sent += u64::from(empty.window_bytes());
            world.settle(&mut [&mut client, &mut server]);
            let taken = server.take();
            let (messages, _) = requests(&mut world, &server, taken);
            assert_eq!(messages, [b""]);
            world.settle(&mut [&mut client, &mut server]);
            for completion in client.take() {
                let Completion::Credit { bytes, .. } = completion else { panic!("{completion:?}") };
                credited += u64::from(bytes);
            }
        }
        assert!(sent - credited < 64 << 10, "sent {sent}, credited {credited}: the stream would stand still");
        world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, None))).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let outcome = client.take_finish();
        world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn a_wrong_number_of_messages_is_refused() {
    for host in [0, 1] {
        for messages in [0, 2] {
            let (mut world, mut server, mut client) = pairing(host, false, true);
            let call = client.call(0, None, false);
            world.submit(&client, Submission::Call(call)).unwrap();
            for _ in 0..messages {
                let payload = world.message(&mut client, b"ask");
                world.submit(&client, message(&call, payload, false)).unwrap();
            }
            world.submit(&client, Submission::HalfClose { call: call.call }).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            assert_eq!(server.take(), [], "no handler sees it");
            let outcome = client.take().into_iter().find_map(|completion| match completion {
                Completion::Finish(finish) => Some(finish),
                _ => None,
            });
            let outcome = outcome.unwrap();
            assert_eq!((outcome.code, outcome.execution), (Code::Unimplemented, Execution::NotExecuted));
            world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
            assert_eq!(world.leftovers(), (0, 0), "{host} {messages}");
        }
        let (mut world, mut server, mut client) = pairing(host, true, false);
        let payload = world.message(&mut client, b"ask");
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let delivered = server.take_call();
        world.submit(&server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
        for _ in 0..2 {
            let reply = world.message(&mut server, b"answer");
            world.submit(&server, message(&delivered, reply, false)).unwrap();
        }
        world.settle(&mut [&mut client, &mut server]);
        let outcome = client.take_finish();
        assert_eq!((outcome.code, outcome.execution), (Code::Unimplemented, Execution::Executed));
        world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
        assert!(matches!(server.take()[..], [.., Completion::Cancelled { .. }]));
        assert_eq!(world.leftovers(), (0, 0));
    }
}

/// What waits for the end of its direction would keep the window to itself, and a second message would wait for it, and
/// the end behind that.
#[test]
fn one_message_too_many_is_refused_however_large_the_first_is() {
    let window = 64 << 10;
    for host in [0, 1] {
        for first in [window - 5_000, window - 10, window, 3 * window] {
            let limits = || Limits { stream_window_bytes: window as u32, ..Limits::default() };
            let (mut world, mut server, mut client) = pairing_within(limits(), host, true, false);
            let payload = world.message(&mut client, b"ask");
            let call = client.call(0, Some(payload), true);
            world.submit(&client, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            let delivered = server.take_call();
            world.submit(&server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
            for bytes in [first, 6_000] {
                let reply = world.message(&mut server, &vec![7; bytes]);
                world.submit(&server, message(&delivered, reply, false)).unwrap();
                world.settle(&mut [&mut client, &mut server]);
            }
            world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, None))).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            let outcome = client.take_finish();
            assert_eq!(
                (outcome.code, outcome.execution),
                (Code::Unimplemented, Execution::Executed),
                "{host} {first}"
            );
            world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
            assert_eq!(world.leftovers(), (0, 0), "{host} {first}");

            let (mut world, mut server, mut client) = pairing_within(limits(), host, false, true);
            let call = client.call(0, None, false);
            world.submit(&client, Submission::Call(call)).unwrap();
            for bytes in [first, 6_000] {
                let payload = world.message(&mut client, &vec![7; bytes]);
                world.submit(&client, message(&call, payload, false)).unwrap();
                world.settle(&mut [&mut client, &mut server]);
            }
            assert_eq!(server.take(), [], "no handler sees it");
            let ends = client.take().into_iter().find_map(|completion| match completion {
                Completion::Finish(finish) => Some(finish),
                _ => None,
            });
            let outcome = ends.unwrap_or_else(|| panic!("{host} {first}: it waits"));
            assert_eq!((outcome.code, outcome.execution), (Code::Unimplemented, Execution::NotExecuted));
            world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
            assert_eq!(world.leftovers(), (0, 0), "{host} {first}");
        }
    }
}

#[test]
fn nothing_unchecked_reaches_a_typed_end() {
    for host in [0, 1] {
        for bytes in [3, 50_000] {
            let (mut world, mut server, mut client) = pairing(host, false, true);
            let payload = world.put(&mut client, &vec![0xff; bytes], Encoding::Protobuf);
            let call = client.call(0, Some(payload), true);
            world.submit(&client, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            assert_eq!(server.take(), []);
            let outcome = client.take_finish();
            assert_eq!(outcome.code, Code::InvalidArgument);
            world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
            assert_eq!(world.leftovers(), (0, 0));
        }
    }
}

/// A type of two hundred fields, of which a list of nothing takes two bytes a row.
fn wide_proto() -> String {
    let fields: String = (1..=200).map(|n| format!("fixed64 f{n} = {n};")).collect();
    let blob = "message Blob { bytes data = 1; string note = 2; repeated Row rows = 3; }";
    let world = PROTO.replace("message Blob { bytes data = 1; string note = 2; }", blob);
    format!("{world} message Row {{ {fields} }}")
}

#[test]
fn a_short_message_is_not_made_a_long_one() {
    for host in [0, 1] {
        let mut world = World::new();
        let mut server = world.attach(host, &wide_proto(), None, true);
        let mut client = world.attach_opaque(0, if host == 0 { None } else { TARGET }, false);
        for (rows, fits) in [(600, true), (20_000, false), (2_000, false)] {
            let wire = [0x1a, 0].repeat(rows);
            let payload = world.put(&mut client, &wire, Encoding::Protobuf);
            let call = client.call(0, Some(payload), true);
            world.submit(&client, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            if fits {
                let delivered = server.take_call();
                let request = delivered.payload.unwrap();
                assert!(request.span.len > 600 * 1600, "{}", request.span.len);
                world.submit(&server, release(delivered.call, Some(request), delivered.metadata, 0)).unwrap();
                world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, None))).unwrap();
                world.settle(&mut [&mut client, &mut server]);
            }
            let outcome = client.take_finish();
            let said = String::from_utf8_lossy(world.received(&client, outcome.metadata)).into_owned();
            if fits {
                assert_eq!(outcome.code, Code::Ok, "{said}");
            } else {
                assert!(server.take().is_empty());
                assert_eq!(
                    (outcome.code, outcome.execution),
                    (Code::ResourceExhausted, Execution::NotExecuted)
                );
                let limit = (2 * rows * 64 + (1 << 20)).to_string();
                assert!(said.contains("limits.linear_growth") && said.contains(&limit), "{said}");
            }
            world.submit(&client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
        }
    }
}

/// What protobuf makes of a linear message is bounded as that is.
#[test]
fn a_message_that_is_too_long_as_protobuf_is_refused() {
    let flags =
        "message Blob { bytes data = 1; string note = 2; repeated bool on = 268435456 [packed = false]; }";
    let proto = PROTO.replace("message Blob { bytes data = 1; string note = 2; }", flags);
    let message_bytes = 8 << 20;
    let mut world = World::with_limits(Limits { message_bytes, ..Limits::default() });
    let mut server = world.attach_opaque(0, None, true);
    let mut client = world.attach(0, &proto, None, false);
    for (count, fits) in [(1 << 20, true), (2 << 20, false)] {
        let length = [0x80, 0x80, (count >> 14) as u8 | 0x80, (count >> 21) as u8];
        let mut wire = [&[0x82, 0x80, 0x80, 0x80, 0x08], &length[..]].concat();
        wire.resize(wire.len() + count, 1);
        let payload = world.linear(&mut client, &wire);
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(!server.take().is_empty(), fits, "{count}");
        if !fits {
            let outcome = client.take_finish();
            assert_eq!((outcome.code, outcome.execution), (Code::ResourceExhausted, Execution::NotExecuted));
            let said = String::from_utf8_lossy(world.received(&client, outcome.metadata)).into_owned();
            assert!(
                said.contains("limits.message_bytes") && said.contains(&message_bytes.to_string()),
                "{said}"
            );
        }
    }
}

#[test]
fn an_opaque_end_cannot_send_linear_messages() {
    for (host, opaque_server, _) in PAIRINGS {
        let (mut world, mut server, mut client) = pairing(host, opaque_server, true);
        let payload = world.blob(&mut client, b"x");
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(server.take(), []);
        assert_eq!(client.take_finish().code, Code::InvalidArgument);
    }
}

#[test]
fn a_server_of_other_types_that_came_later_gets_what_it_can_read() {
    // The peer has agreed on linear messages with the first server, and goes on sending them.
    for bytes in [10, 100_000] {
        for opaque in [true, false] {
            let mut world = World::new();
            let mut first = world.attach(1, PROTO, None, true);
            let mut client = world.attach(0, PROTO, TARGET, false);
            for _ in 0..3 {
                let payload = world.blob(&mut client, b"one");
                let call = client.call(0, Some(payload), true);
                world.submit(&client, Submission::Call(call)).unwrap();
                world.settle(&mut [&mut client, &mut first]);
                let delivered = first.take_call();
                let taken = release(delivered.call, delivered.payload, delivered.metadata, 0);
                world.submit(&first, taken).unwrap();
                let done = finish(delivered.call, Code::NotFound, None);
                world.submit(&first, Submission::Finish(done)).unwrap();
                world.settle(&mut [&mut client, &mut first]);
                let outcome = client.take_finish();
                world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
            }
            world.detach(&first);
            let mut second = match opaque {
                true => world.attach_opaque(1, None, true),
                false => world.attach(1, OLDER_PROTO, None, true),
            };
            let data = vec![5; bytes];
            let payload = world.blob(&mut client, &data);
            let call = client.call(0, Some(payload), true);
            world.submit(&client, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut client, &mut second]);
            let delivered = second.take_call();
            assert_eq!(world.data(&second, delivered.payload.unwrap()), data);
        }
    }
}

#[test]
fn peers_name_no_more_methods_than_they_may() {
    let limits = Limits { methods_learned_per_service: 4, ..Limits::default() };
    let mut world = World::with_limits(limits);
    let mut server = world.attach_opaque(1, None, true);
    let mut client = world.attach_opaque(0, None, false);
    for number in 0..10 {
        let path = format!("/world.Echo/Made{number}");
        let calls = [(path.clone(), TARGET.map(str::to_owned))];
        let request = BindRequest { schema: None, serves: &[], calls: &calls, permitted: &[] };
        let binding = world.hosts[client.host].engine.bind(client.key, &request).unwrap();
        client.routes[0] = binding.calls[0];
        let call = client.call(0, None, true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let delivered = server.take_call();
        assert_eq!(named(world.received(&server, delivered.metadata)).0, path, "each call says its own path");
        world.submit(&server, release(delivered.call, None, delivered.metadata, 0)).unwrap();
        world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, None))).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let outcome = client.take_finish();
        world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
    }
    let services = world.hosts[server.host].engine.snapshot().services;
    let methods = &services.iter().find(|service| service.name == "world.Echo").unwrap().methods;
    let made = methods.iter().filter(|method| method.starts_with("Made")).count();
    assert_eq!(made, 4);
    assert_eq!(world.leftovers(), (0, 0));
}

#[test]
fn names_that_cannot_be_bound_are_refused() {
    let mut world = World::new();
    let app = world.attach_opaque(0, None, false);
    let engine = &mut world.hosts[app.host].engine;
    for path in ["", "world.Echo/Once", "/world.Echo", "/a/b/c", "/a b/c"] {
        let calls = [(path.to_owned(), None)];
        let refused =
            engine.bind(app.key, &BindRequest { schema: None, serves: &[], calls: &calls, permitted: &[] });
        assert_eq!(refused, Err(BindError::Path(path.to_owned())));
    }
    let serves = ["a/b".to_owned()];
    let refused =
        engine.bind(app.key, &BindRequest { schema: None, serves: &serves, calls: &[], permitted: &[] });
    assert_eq!(refused, Err(BindError::Service("a/b".to_owned())));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes at all, to an opaque server they arrive as they are; to a typed one decoded or not at all.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), host in 0..2usize, opaque: bool) {
        let (mut world, mut server, mut client) = pairing(host, opaque, true);
        let payload = world.put(&mut client, &bytes, Encoding::Protobuf);
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let taken = server.take();
        match taken[..] {
            [Completion::Call(delivered)] => {
                let payload = delivered.payload.unwrap();
                if opaque {
                    prop_assert_eq!(world.received(&server, payload.span), &bytes[..]);
                }
                world.submit(&server, release(delivered.call, Some(payload), delivered.metadata, 0)).unwrap();
                let done = finish(delivered.call, Code::Ok, None);
                world.submit(&server, Submission::Finish(done)).unwrap();
                world.settle(&mut [&mut client, &mut server]);
            }
            [] => prop_assert!(!opaque),
            ref other => panic!("{other:?}"),
        }
        let outcome = client.take_finish();
        world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
        prop_assert_eq!(world.leftovers(), (0, 0));
    }
}
