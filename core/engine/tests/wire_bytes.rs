//! Shows what a request takes on the wire between two hosts, header and all: messages of many integers, as HPRPC
//! measured them, cost four bytes for a member and a little once.

mod world;

use trunkline_call::entry::Submission;
use trunkline_call::{Code, Encoding};
use trunkline_message::{AlignedBuf, Extent};
use world::*;

const TARGET: Option<&str> = Some("tcp://127.0.0.1:1");
/// HPRPC's LargeData128 to LargeData8192.
const MEMBERS: [usize; 7] = [128, 256, 512, 1024, 2048, 4096, 8192];

/// The world's service, with a message of so many integers.
fn proto(members: usize) -> String {
    let fields: String = (1..=members).map(|n| format!("int32 m{n} = {n};\n")).collect();
    format!(
        "syntax = \"proto3\"; package world; message Blob {{ {fields} }}
         service Echo {{ rpc Once(Blob) returns (Blob); rpc Gather(stream Blob) returns (Blob);
         rpc Scatter(Blob) returns (stream Blob); rpc Chat(stream Blob) returns (stream Blob); }}"
    )
}

/// Every member set; as protobuf, and in linear form.
fn message(app: &App, members: usize) -> (usize, Vec<u8>) {
    let mut wire = Vec::new();
    let mut varint = |mut value: usize| {
        while value >= 0x80 {
            wire.push(value as u8 | 0x80);
            value >>= 7;
        }
        wire.push(value as u8);
    };
    for member in 1..=members {
        varint(member << 3);
        varint(member * 7919 % 100_000 + 1);
    }
    let index = app.schema.schema.message_named("world.Blob").unwrap();
    let mut extent = AlignedBuf::new();
    let len = app.schema.transcoder.decode(index, &wire, &mut extent, &Default::default()).unwrap();
    (wire.len(), extent.bytes()[..len].to_vec())
}

/// Bytes that cross the wire until the request is there.
fn request_bytes(world: &mut World, client: &mut App, server: &mut App, message: &[u8]) -> usize {
    let carried = |world: &World| world.links.iter().map(|link| link.carried).sum::<usize>();
    let before = carried(world);
    let payload = world.put(client, message, Encoding::Linear);
    let call = client.call(0, Some(payload), true);
    world.submit(client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    let taken = carried(world) - before;
    let delivered = server.take_call();
    assert_eq!(world.received(server, delivered.payload.unwrap().span), message, "it arrives as it was");
    world.submit(server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
    world.submit(server, Submission::Finish(finish(delivered.call, Code::Ok, None))).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    let outcome = client.take_finish();
    world.submit(client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
    taken
}

#[test]
fn a_member_takes_four_bytes() {
    for members in MEMBERS {
        let proto = proto(members);
        let mut world = World::new();
        let mut server = world.attach(1, &proto, None, true);
        let mut client = world.attach(0, &proto, TARGET, false);
        let (protobuf, message) = message(&client, members);
        // The first call opens connections and names the method.
        request_bytes(&mut world, &mut client, &mut server, &message);
        let taken = request_bytes(&mut world, &mut client, &mut server, &message);
        println!("{members} members: {taken} B on the wire; the message alone is {protobuf} B in protobuf");
        let most = 4 * members + members / 8 + 64;
        assert!(taken <= most, "{members} members take {taken} bytes, more than {most}");
    }
}
