//! Shows who a session that asks is told calls it, over every way a call may come, and that no caller can say it.

mod world;

use trunkline_call::entry::Submission;
use trunkline_call::{CALLER_KEY, Caller, Code, Metadata};
use trunkline_grpc::StreamTag;
use world::web::blob;
use world::*;

/// The other host.
const TARGET: Option<&str> = Some("tcp://127.0.0.1:1");

/// Says that it is root.
fn forged() -> Metadata {
    let mut metadata = Metadata::new();
    metadata.insert(CALLER_KEY, "application;0;1;init").unwrap();
    metadata.insert("tenant", "blue").unwrap();
    metadata
}

/// Calls from an application and tells what the server saw of it.
fn called(world: &mut World, client: &mut App, server: &mut App) -> Metadata {
    let mut call = client.call(0, None, true);
    call.payload = Some(world.blob(client, b"?"));
    call.metadata = world.put_metadata(client, &forged());
    world.submit(client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    let delivered = server.take_call();
    let metadata = world.metadata(server, delivered.metadata);
    world.submit(server, Submission::Finish(finish(delivered.call, Code::Internal, None))).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    metadata
}

#[test]
fn an_application_of_this_host() {
    let mut world = World::new();
    let (mut server, mut client) = (world.attach(0, PROTO, None, true), world.attach(0, PROTO, None, false));
    world.hosts[0].engine.identify(client.key, "uid:1000");
    assert_eq!(called(&mut world, &mut client, &mut server), forged(), "nobody has asked");
    world.hosts[0].engine.tell_callers(server.key);
    let mut metadata = called(&mut world, &mut client, &mut server);
    let caller = Caller::Application { name: "app0".into(), pid: u32::MAX, uid: 1000 };
    assert_eq!(Caller::take_from(&mut metadata), Some(caller));
    assert_eq!((metadata.len(), metadata.text("tenant")), (1, Some("blue")));
}

#[test]
fn an_application_of_another_host() {
    let mut world = World::new();
    let (mut server, mut client) =
        (world.attach(1, PROTO, None, true), world.attach(0, PROTO, TARGET, false));
    world.hosts[1].engine.tell_callers(server.key);
    let mut metadata = called(&mut world, &mut client, &mut server);
    let caller = Caller::take_from(&mut metadata);
    assert!(matches!(&caller, Some(Caller::Daemon { node, .. }) if node == "near"), "{caller:?}");
    assert_eq!(metadata.text("tenant"), Some("blue"));
}

#[test]
fn a_grpc_client() {
    let mut world = World::new();
    let mut server = world.attach(0, PROTO, None, true);
    world.hosts[0].engine.tell_callers(server.key);
    let web = world.web(0);
    world.request(web, StreamTag(1), ONCE, &[(CALLER_KEY, "application;0;1;init")], false);
    world.body(web, StreamTag(1), &blob(b"?"), true);
    world.settle(&mut [&mut server]);
    let delivered = server.take_call();
    let caller = Caller::take_from(&mut world.metadata(&server, delivered.metadata));
    assert!(
        matches!(&caller, Some(Caller::Grpc { identity, encrypted: false, .. }) if identity.is_empty()),
        "{caller:?}"
    );
}
