//! Shows what daemons tell each other about the schemas of a method as servers come and go, and that a call nobody
//! serves is not passed around.

use crate::world;

use trunkline_call::entry::Submission;
use trunkline_call::{Code, Execution};
use world::*;

const TARGET: Option<&str> = Some("tcp://10.0.0.2:1");

/// A unary call over an open connection: the bytes it took, both ways.
fn carried(world: &mut World, client: &mut App, server: &mut App) -> usize {
    let before = world.links.first().map_or(0, |link| link.carried);
    let payload = world.blob(client, &[7; 2_000]);
    let call = client.call(0, Some(payload), true);
    world.submit(client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    let delivered = server.take_call();
    assert_eq!(world.data(server, delivered.payload.unwrap()), [7; 2_000]);
    let reply = world.blob(server, b"y");
    world.submit(server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
    world.submit(server, Submission::Finish(finish(delivered.call, Code::Ok, Some(reply)))).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    let outcome = client.take_finish();
    assert_eq!(outcome.code, Code::Ok);
    world.submit(client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
    world.links[0].carried - before
}

/// A call nobody serves: the method is announced on the connection.
fn announce(world: &mut World, client: &mut App) {
    let payload = world.blob(client, b"x");
    let call = client.call(0, Some(payload), true);
    world.submit(client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut *client]);
    let outcome = client.take_finish();
    assert_eq!((outcome.code, outcome.execution), (Code::Unavailable, Execution::NotExecuted));
    world.submit(client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
}

#[test]
fn a_server_that_comes_after_its_method_was_announced_gets_linear_messages() {
    // The road a message takes shows in its length: linear has slots, protobuf has tags.
    let settled = |late: bool, proto: &str| {
        let mut world = World::new();
        let mut client = world.attach(0, PROTO, TARGET, false);
        let mut server = if late {
            announce(&mut world, &mut client);
            world.attach(1, proto, None, true)
        } else {
            let mut server = world.attach(1, proto, None, true);
            carried(&mut world, &mut client, &mut server);
            server
        };
        world.settle(&mut [&mut client, &mut server]);
        carried(&mut world, &mut client, &mut server)
    };
    assert_eq!(settled(true, PROTO), settled(false, PROTO));
    assert_ne!(settled(true, PROTO), settled(true, OLDER_PROTO));
}

#[test]
fn a_server_with_another_schema_ends_linear_messages() {
    let mut world = World::new();
    let mut client = world.attach(0, PROTO, TARGET, false);
    let mut server = world.attach(1, PROTO, None, true);
    carried(&mut world, &mut client, &mut server);
    let linear = carried(&mut world, &mut client, &mut server);
    world.detach(&server);
    let mut older = world.attach(1, OLDER_PROTO, None, true);
    world.settle(&mut [&mut client, &mut older]);
    assert_ne!(carried(&mut world, &mut client, &mut older), linear);
}

#[test]
fn a_linear_message_for_a_server_that_is_gone_is_read_by_its_own_types() {
    let mut world = World::new();
    let mut client = world.attach(0, PROTO, TARGET, false);
    let mut server = world.attach(1, PROTO, None, true);
    carried(&mut world, &mut client, &mut server);
    carried(&mut world, &mut client, &mut server);
    // The message is on its way, linear, while another server takes over.
    let payload = world.blob(&mut client, b"x");
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.detach(&server);
    let mut older = world.attach(1, OLDER_PROTO, None, true);
    world.settle(&mut [&mut client, &mut older]);
    let delivered = older.take_call();
    assert_eq!(world.data(&older, delivered.payload.unwrap()), b"x");
}

#[test]
fn two_daemons_that_are_each_others_endpoint_do_not_pass_a_call_around() {
    let mut world = World::new();
    for host in 0..2 {
        let endpoint = vec!["tcp://the.other:1".to_owned()];
        world.hosts[host].engine.configure_service("world.Echo", &endpoint).unwrap();
    }
    // Somebody on the far host knows the path, and nobody anywhere serves it.
    let mut far = world.attach(1, PROTO, None, false);
    let mut near = world.attach(0, PROTO, None, false);
    let payload = world.blob(&mut near, b"x");
    let call = near.call(0, Some(payload), true);
    world.submit(&near, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut near, &mut far]);
    let outcome = near.take_finish();
    assert_eq!((outcome.code, outcome.execution), (Code::Unavailable, Execution::NotExecuted));
    assert!(world.hosts[1].engine.poll_dial().is_none(), "the far host does not forward it");
}
