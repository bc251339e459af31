//! Messages and calls of another daemon that are not whole yet: what they may take of a receive heap and of the daemon,
//! and for how long. Whoever is behind the connection may never send the rest.

use crate::world;

use trunkline_call::entry::{Call, Completion, Submission};
use trunkline_call::{Code, Encoding, Metadata};
use trunkline_engine::Limits;
use world::*;

const SECOND_NS: u64 = 1_000_000_000;
const HEAP_BYTES: u32 = 1 << 20;
const TARGET: Option<&str> = Some("tcp://127.0.0.1:1");

/// A client, and a server on another host with a small heap. What goes between them goes in pieces.
struct Scene {
    world: World,
    client: App,
    server: App,
}

impl Scene {
    fn new(limits: Limits) -> Self {
        let mut world = World::with_limits(limits);
        let client = world.attach(0, PROTO, TARGET, false);
        let server = world.attach_sized(1, PROTO, None, true, HEAP_BYTES);
        let mut scene = Self { world, client, server };
        // So that types are agreed on, over the connection of large messages.
        scene.send(&[0; 100_000]);
        scene.world.settle(&mut [&mut scene.client, &mut scene.server]);
        let delivered = scene.server.take_call();
        scene
            .world
            .submit(&scene.server, release(delivered.call, delivered.payload, delivered.metadata, 0))
            .unwrap();
        scene
            .world
            .submit(&scene.server, Submission::Finish(finish(delivered.call, Code::Ok, None)))
            .unwrap();
        scene.world.settle(&mut [&mut scene.client, &mut scene.server]);
        scene.client.take();
        scene.world.piece_bytes = 20_000;
        scene
    }

    fn send(&mut self, data: &[u8]) {
        let payload = self.world.blob(&mut self.client, data);
        let call = self.client.call(0, Some(payload), true);
        self.world.submit(&self.client, Submission::Call(call)).unwrap();
    }

    fn step(&mut self) {
        self.world.step(&mut [&mut self.client, &mut self.server]);
    }

    /// Bytes of the server's receive heap of which it does not know yet.
    fn arriving_bytes(&self) -> u32 {
        let blocks = self.world.hosts[1].heaps.slots.values().flat_map(|slot| slot.blocks.values());
        blocks.filter(|(_, published)| !published).map(|(bytes, _)| bytes).sum()
    }

    fn outcomes(&mut self) -> Vec<(Code, String)> {
        let Self { world, client, .. } = self;
        let finishes = client.take().into_iter().filter_map(|completion| match completion {
            Completion::Finish(finish) => Some(finish),
            _ => None,
        });
        let said = |metadata| String::from_utf8_lossy(world.received(client, metadata)).into_owned();
        finishes.map(|finish| (finish.code, said(finish.metadata))).collect()
    }
}

#[test]
fn half_of_a_heap_is_for_messages_that_are_whole() {
    let mut scene = Scene::new(Limits::default());
    // As many as one caller may have there.
    let messages: Vec<Vec<u8>> = (0..5).map(|at| vec![at; 140_000]).collect();
    messages.iter().for_each(|data| scene.send(data));
    let mut most = 0;
    for _ in 0..200 {
        scene.step();
        most = most.max(scene.arriving_bytes());
    }
    assert!((140_000..=HEAP_BYTES / 2).contains(&most), "{most}");
    scene.world.settle(&mut [&mut scene.client, &mut scene.server]);
    let mut came: Vec<Vec<u8>> = Vec::new();
    for completion in scene.server.take() {
        let Completion::Call(call) = completion else { panic!("{completion:?}") };
        came.push(scene.world.data(&scene.server, call.payload.unwrap()));
    }
    came.sort();
    assert!(came == messages, "all of them come");
}

#[test]
fn a_message_that_does_not_go_on_ends_its_call() {
    let mut scene = Scene::new(Limits { message_stall_s: 1, ..Limits::default() });
    scene.send(&vec![1; 400_000]);
    (0..8).for_each(|_| scene.step());
    assert!(scene.arriving_bytes() > 400_000, "it has begun");
    scene.world.advance(SECOND_NS);
    assert!(scene.arriving_bytes() > 400_000, "it has come on since it began");
    scene.world.advance(SECOND_NS);
    assert_eq!(scene.arriving_bytes(), 0, "it is given up");
    scene.world.settle(&mut [&mut scene.client, &mut scene.server]);
    let [(code, said)] = &scene.outcomes()[..] else { panic!("one call") };
    assert_eq!(*code, Code::ResourceExhausted);
    assert!(said.contains("limits.message_stall_s"), "{said}");
    assert!(scene.server.take().is_empty());
}

#[test]
fn a_message_that_goes_on_slowly_arrives() {
    let mut scene = Scene::new(Limits { message_stall_s: 1, ..Limits::default() });
    scene.send(&vec![1; 400_000]);
    for _ in 0..40 {
        scene.step();
        scene.world.advance(SECOND_NS / 2);
    }
    scene.world.settle(&mut [&mut scene.client, &mut scene.server]);
    assert_eq!(scene.server.take_call().payload.map(|payload| payload.span.len > 400_000), Some(true));
}

/// A call whose one message never comes has its metadata here.
#[test]
fn metadata_of_calls_that_are_not_whole_counts() {
    let limit = 100_000;
    let mut world = World::with_limits(Limits { assembling_bytes_per_peer: limit, ..Limits::default() });
    let mut client = world.attach_opaque(0, TARGET, false);
    let mut server = world.attach(1, PROTO, None, true);
    let mut metadata = Metadata::new();
    metadata.insert("x", "y".repeat(8_000)).unwrap();
    for _ in 0..20 {
        let metadata = world.put_metadata(&mut client, &metadata);
        let call = client.call(0, None, false);
        world.submit(&client, Submission::Call(Call { metadata, ..call })).unwrap();
        world.settle(&mut [&mut client, &mut server]);
    }
    let refused = client.take().into_iter().filter_map(|completion| match completion {
        Completion::Finish(finish) => Some(finish),
        _ => None,
    });
    let refused: Vec<_> = refused.collect();
    assert_eq!(refused.len(), 20 - limit / 8_000);
    for finish in refused {
        assert_eq!(finish.code, Code::ResourceExhausted);
        let said = String::from_utf8_lossy(world.received(&client, finish.metadata)).into_owned();
        assert!(said.contains("limits.assembling_bytes_per_peer"), "{said}");
    }
    assert!(server.take().is_empty());
    world.detach(&client);
    world.settle(&mut [&mut server]);
    world.audit();
}

/// Two connections' worth of what comes is more than a source may have; what is only announced takes nothing of that.
#[test]
fn what_a_peer_announces_takes_nothing_until_it_comes() {
    const MESSAGES: usize = 8;
    const BYTES: usize = 400_000;
    for piece_bytes in [20_000, usize::MAX] {
        let limits = Limits { held_bytes_per_source: 1 << 20, ..Limits::default() };
        let mut world = World::with_limits(limits);
        // Without types: the daemon puts the message together itself, since it has to be converted.
        let mut client = world.attach_opaque(0, TARGET, false);
        let mut server = world.attach_sized(1, PROTO, None, true, 16 << 20);
        let send = |world: &mut World, client: &mut App| {
            let payload = world.put(client, &wire_of(&vec![7; BYTES]), Encoding::Protobuf);
            let call = client.call(0, Some(payload), true);
            world.submit(client, Submission::Call(call)).unwrap();
        };
        send(&mut world, &mut client);
        world.settle(&mut [&mut client, &mut server]);
        assert!(server.take_call().payload.is_some_and(|payload| payload.span.len as usize > BYTES));

        world.piece_bytes = piece_bytes;
        (0..MESSAGES).for_each(|_| send(&mut world, &mut client));
        let mut ended = Vec::new();
        let mut delivered = 0;
        for _ in 0..6 {
            world.step(&mut [&mut client, &mut server]);
            world.audit();
        }
        if piece_bytes < BYTES {
            assert!(client.take().is_empty() && server.take().is_empty(), "all of them have begun");
        }
        world.settle(&mut [&mut client, &mut server]);
        delivered += server.take().len();
        for completion in client.take() {
            let Completion::Finish(finish) = completion else { continue };
            let said = String::from_utf8_lossy(world.received(&client, finish.metadata)).into_owned();
            assert!(said.contains("limits.held_bytes_per_source"), "{said}");
            ended.push(finish.code);
        }
        assert_eq!(ended.len() + delivered, MESSAGES, "{piece_bytes}: {ended:?}");
        assert!(delivered >= 2 && ended.iter().all(|code| *code == Code::ResourceExhausted));
        world.audit();

        // Nothing of it is left.
        send(&mut world, &mut client);
        world.settle(&mut [&mut client, &mut server]);
        assert!(server.take_call().payload.is_some());
    }
}
