//! Shows that no stream an application does not read keeps anything else from it, and that what has to wait for room
//! waits, however large it is.

use crate::world;

use std::collections::BTreeMap;
use trunkline_call::entry::{Completion, Payload, Span, Submission};
use trunkline_call::{CallId, Code};
use trunkline_engine::Limits;
use world::*;

const TARGET: Option<&str> = Some("tcp://127.0.0.1:1");

const STREAMS: usize = 300;
const MESSAGES: usize = 40;

/// What came for the calls of an application and was not released.
#[derive(Default)]
struct Unread {
    messages: BTreeMap<CallId, Vec<Payload>>,
    ended: BTreeMap<CallId, Code>,
}

impl Unread {
    fn take(&mut self, app: &mut App) {
        for completion in app.take() {
            match completion {
                Completion::Message { call, payload, .. } => {
                    self.messages.entry(call).or_default().push(payload);
                }
                Completion::Finish(finish) => drop(self.ended.insert(finish.call, finish.code)),
                Completion::Freed { .. } | Completion::Credit { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The calls delivered to a server, in the order in which they came.
fn delivered(server: &mut App) -> Vec<CallId> {
    let call = |completion| match completion {
        Completion::Call(call) => Some(call.call),
        _ => None,
    };
    server.take().into_iter().filter_map(call).collect()
}

fn open(world: &mut World, app: &mut App, route: usize) -> CallId {
    let payload = world.blob(app, b"x");
    let call = app.call(route, Some(payload), true);
    let id = call.call;
    world.submit(app, Submission::Call(call)).unwrap();
    id
}

#[test]
fn unread_streams_starve_neither_a_unary_call_nor_each_other() {
    for (host, target) in [(0, None), (1, TARGET)] {
        let mut world = World::new();
        let mut server = world.attach(host, PROTO, None, true);
        let mut client = world.attach_sized(0, PROTO, target, false, 256 << 10);
        let streams: Vec<CallId> = (0..STREAMS).map(|_| open(&mut world, &mut client, 2)).collect();
        world.settle(&mut [&mut client, &mut server]);
        let calls = delivered(&mut server);
        assert_eq!(calls.len(), STREAMS);
        for _ in 0..MESSAGES {
            for &call in &calls {
                let payload = world.blob(&mut server, b"tiny");
                let message = Submission::Message { call, payload, end: false, a1: world.now };
                world.submit(&server, message).unwrap();
            }
        }
        for call in calls {
            world.submit(&server, Submission::Finish(finish(call, Code::Ok, None))).unwrap();
        }
        world.settle(&mut [&mut client, &mut server]);

        // Nobody reads a stream, and a unary answer comes through all the same.
        let unary = open(&mut world, &mut client, 0);
        world.settle(&mut [&mut client, &mut server]);
        let [call] = delivered(&mut server)[..] else { panic!("one call") };
        let answer = world.blob(&mut server, &[7; 16 << 10]);
        world.submit(&server, Submission::Finish(finish(call, Code::Ok, Some(answer)))).unwrap();
        let mut unread = Unread::default();
        world.settle(&mut [&mut client, &mut server]);
        unread.take(&mut client);
        assert_eq!(unread.ended.get(&unary), Some(&Code::Ok), "host {host}");

        // And the streams can be read one after another.
        for stream in streams {
            let mut read = 0;
            while !unread.ended.contains_key(&stream) || unread.messages.contains_key(&stream) {
                let messages = unread.messages.remove(&stream).unwrap_or_default();
                assert!(!messages.is_empty(), "host {host}: stuck after {read} of {stream:?}");
                for payload in messages {
                    assert_eq!(world.data(&client, payload), b"tiny");
                    world.submit(&client, release(stream, Some(payload), Span::default(), 0)).unwrap();
                    read += 1;
                }
                world.settle(&mut [&mut client, &mut server]);
                unread.take(&mut client);
            }
            assert_eq!((read, unread.ended[&stream]), (MESSAGES, Code::Ok));
        }
    }
}

/// A caller that does not read how its stream ended keeps nothing of the heap of its server from other streams.
#[test]
fn a_stream_that_has_ended_has_no_share_though_its_caller_does_not_read() {
    let mut world = World::with_shards(Limits::default(), 1);
    let mut server = world.attach_sized(0, PROTO, None, true, 96 << 10);
    let mut clients = [(); 2].map(|()| world.attach(0, PROTO, None, false));
    for client in &mut clients {
        let call = client.call(3, None, false);
        world.submit(client, Submission::Call(call)).unwrap();
        let payload = world.blob(client, &[7; 60_000]);
        let message = Submission::Message { call: call.call, payload, end: false, a1: world.now };
        world.submit(client, message).unwrap();
        world.settle(&mut [client, &mut server]);
        let taken = server.take();
        let [Completion::Call(call), Completion::Message { payload, .. }] = taken[..] else {
            panic!("{taken:?}")
        };
        world.submit(&server, Submission::Finish(finish(call.call, Code::Aborted, None))).unwrap();
        world.submit(&server, release(call.call, Some(payload), call.metadata, 0)).unwrap();
    }
}

/// The daemon holds it itself meanwhile: it was let in as a large message of its connection.
#[test]
fn a_large_message_of_a_stream_waits_for_room_beside_small_ones() {
    let limits = Limits {
        stream_window_bytes: 64 << 10,
        parked_bytes_per_session: 64 << 10,
        assembling_bytes_per_peer: 1 << 20,
        ..Limits::default()
    };
    let mut world = World::with_limits(limits);
    let mut server = world.attach(1, PROTO, None, true);
    let mut client = world.attach_sized(0, PROTO, TARGET, false, 1 << 20);
    let unary = open(&mut world, &mut client, 0);
    let streams = [(); 2].map(|()| open(&mut world, &mut client, 2));
    world.settle(&mut [&mut client, &mut server]);
    let [answered, large, small] = delivered(&mut server)[..] else { panic!("three calls") };
    // An answer that nobody reads takes most of the heap.
    let answer = world.blob(&mut server, &vec![1; 1000 << 10]);
    world.submit(&server, Submission::Finish(finish(answered, Code::Ok, Some(answer)))).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let Some(Completion::Finish(answer)) = client.take().pop() else { panic!("an answer") };
    assert_eq!(answer.call, unary);
    for (call, bytes) in [(large, 700 << 10), (small, 40 << 10)] {
        let payload = world.blob(&mut server, &vec![2; bytes]);
        let message = Submission::Message { call, payload, end: false, a1: world.now };
        world.submit(&server, message).unwrap();
        world.submit(&server, Submission::Finish(finish(call, Code::Ok, None))).unwrap();
    }
    world.settle(&mut [&mut client, &mut server]);
    let mut unread = Unread::default();
    unread.take(&mut client);
    assert!(unread.ended.is_empty(), "both wait: {:?}", unread.ended);
    world.submit(&client, release(unary, answer.payload, answer.metadata, 9)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    unread.take(&mut client);
    let bytes = streams.map(|stream| unread.messages[&stream].iter().map(|m| m.span.len >> 10).sum::<u32>());
    assert_eq!(bytes, [700, 40]);
    for stream in streams {
        assert_eq!(unread.ended[&stream], Code::Ok);
        let payload = unread.messages[&stream][0];
        world.submit(&client, release(stream, Some(payload), Span::default(), 0)).unwrap();
        world.submit(&client, release(stream, None, Span::default(), 9)).unwrap();
    }
    world.settle(&mut [&mut client, &mut server]);
    // As much again is let in: what waited is not counted for ever.
    let again = open(&mut world, &mut client, 2);
    world.settle(&mut [&mut client, &mut server]);
    let [call] = delivered(&mut server)[..] else { panic!("one call") };
    let payload = world.blob(&mut server, &vec![3; 900 << 10]);
    world.submit(&server, Submission::Message { call, payload, end: false, a1: world.now }).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    unread.take(&mut client);
    assert_eq!(unread.messages[&again].len(), 1);
}

/// Who does not read pays for the large answers that wait for it, and whoever else has answers from that host does not.
#[test]
fn a_large_answer_that_waits_is_its_callers_to_pay() {
    let limits =
        Limits { stream_window_bytes: 64 << 10, assembling_bytes_per_peer: 1 << 20, ..Limits::default() };
    let mut world = World::with_limits(limits);
    let mut server = world.attach(1, PROTO, None, true);
    let mut clients = [(); 2].map(|()| world.attach_sized(0, PROTO, TARGET, false, 1 << 20));
    let mut unread = [(); 2].map(|()| Unread::default());
    // Answers of so many KiB, one after the other. What became of the last.
    let mut answer = |world: &mut World, of: usize, kib: usize| {
        let call = open(world, &mut clients[of], 2);
        let [one, other] = &mut clients;
        world.settle(&mut [one, other, &mut server]);
        let [delivered] = delivered(&mut server)[..] else { panic!("one call") };
        let payload = world.blob(&mut server, &vec![of as u8; kib << 10]);
        let message = Submission::Message { call: delivered, payload, end: false, a1: world.now };
        world.submit(&server, message).unwrap();
        world.submit(&server, Submission::Finish(finish(delivered, Code::Ok, None))).unwrap();
        let [one, other] = &mut clients;
        world.settle(&mut [one, other, &mut server]);
        unread[of].take(&mut clients[of]);
        let messages = unread[of].messages.get(&call).cloned().unwrap_or_default();
        (call, messages, unread[of].ended.get(&call).copied())
    };
    // Neither has room for a second one.
    let first = [0, 1].map(|of| answer(&mut world, of, 800));
    assert!(first.iter().all(|(_, messages, ended)| messages.len() == 1 && *ended == Some(Code::Ok)));
    assert_eq!(answer(&mut world, 0, 700).2, None, "it waits");
    assert_eq!(answer(&mut world, 1, 700).2, None, "it waits, too, and has not failed");
    assert_eq!(answer(&mut world, 0, 700).2, Some(Code::ResourceExhausted), "beyond its own budget");
    let (call, messages, _) = &first[1];
    world.submit(&clients[1], release(*call, Some(messages[0]), Span::default(), 0)).unwrap();
    world.submit(&clients[1], release(*call, None, Span::default(), 9)).unwrap();
    let [one, other] = &mut clients;
    world.settle(&mut [one, other, &mut server]);
    unread[1].take(&mut clients[1]);
    assert!(unread[1].messages.values().any(|messages| messages.iter().any(|one| one.span.len >> 10 == 700)));
    // Nothing is counted for one who has left.
    world.detach(&clients[0]);
    let [_, other] = &mut clients;
    world.settle(&mut [other, &mut server]);
}
