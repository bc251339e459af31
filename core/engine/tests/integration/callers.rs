//! Shows who a session that asks is told calls it, over every way a call may come, and that no caller can say it.

use crate::world;

use trunkline_call::entry::Submission;
use trunkline_call::{CALLER_KEY, Caller, Code, Metadata, VouchedCaller};
use trunkline_engine::{BindRequest, Limits, PeerIdentity, PeerRule};
use trunkline_grpc::StreamTag;
use trunkline_policy::{Chain, Definition, Kind, Side};
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
    world.hosts[0].engine.identify(client.key, "uid:1000", "");
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

const NEAR: &str = "spiffe://example.org/host/near";
const FAR: &str = "spiffe://example.org/host/far";

/// Hosts that prove who they are, each of which names these as its operator's.
fn proven(shards: usize, near_names: &[&str], far_names: &[&str]) -> World {
    let mut world = World::with_shards(Limits::default(), shards);
    let identity = |id: &str| PeerIdentity { encrypted: true, names: Vec::new(), spiffe_id: Some(id.into()) };
    world.identities = [identity(NEAR), identity(FAR)];
    for (side, names) in [near_names, far_names].into_iter().enumerate() {
        let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        for host in world.shards[side].clone() {
            world.hosts[host].engine.configure_hosts(&names);
        }
    }
    world
}

/// An application of the near host that user 1000 runs.
fn till(world: &mut World) -> App {
    let client = world.attach(0, PROTO, TARGET, false);
    let engine = &mut world.hosts[client.host].engine;
    engine.identify(client.key, "uid:1000", "/bin/till");
    client
}

/// What the server is told of who calls.
fn vouched(world: &mut World, client: &mut App, server: &mut App) -> (String, Option<VouchedCaller>) {
    let caller = Caller::take_from(&mut called(world, client, server));
    let Some(Caller::Daemon { identity, vouched, .. }) = caller else { panic!("{caller:?}") };
    (identity, vouched.map(|vouched| *vouched))
}

#[test]
fn an_application_of_another_host_of_the_operators() {
    let mut world = proven(1, &["spiffe://example.org/host/*"], &[NEAR]);
    let mut server = world.attach(1, PROTO, None, true);
    world.hosts[1].engine.tell_callers(server.key);
    let mut client = till(&mut world);
    let mut expected = VouchedCaller {
        identity: "uid:1000".into(),
        name: "app0".into(),
        program: "/bin/till".into(),
        services: Vec::new(),
    };
    let found = vouched(&mut world, &mut client, &mut server);
    assert_eq!(found, (NEAR.to_owned(), Some(expected.clone())));
    // What it serves is said from the next call on, after a hand-over of both daemons, too.
    let (schema, serves) = (client.schema.clone(), ["world.Echo".to_owned()]);
    let request = BindRequest { schema: Some(&schema), serves: &serves, calls: &[], permitted: &[] };
    world.hosts[0].engine.bind(client.key, &request).unwrap();
    expected.services = vec!["world.Echo".into()];
    assert_eq!(vouched(&mut world, &mut client, &mut server).1, Some(expected));
}

#[test]
fn nobody_is_told_or_believed_who_is_not_one_of_the_operators_hosts() {
    for (near_names, far_names) in [
        (&[FAR][..], &[][..]),
        (&[], &[NEAR]),
        (&["spiffe://example.org/host/f"], &[NEAR]),
        (&[FAR], &["spiffe://example.org/other/*"]),
    ] {
        let mut world = proven(1, near_names, far_names);
        let mut server = world.attach(1, PROTO, None, true);
        world.hosts[1].engine.tell_callers(server.key);
        let mut client = till(&mut world);
        let found = vouched(&mut world, &mut client, &mut server);
        assert_eq!(found, (NEAR.to_owned(), None), "{near_names:?} {far_names:?}");
    }
}

/// The far host's policies and log know the calling application, on whichever of its shards the server is.
#[test]
fn policies_and_the_access_log_know_who_calls_on_another_host() {
    let allow = format!(
        "peer.identity == '{NEAR}' && caller.uid == 1000 && caller.name == 'app0' && caller.program == '/bin/till' \
         && size(caller.services) == 0"
    );
    let definitions = [
        Definition { name: "who".into(), side: Side::Server, allow: Some(allow), ..Definition::default() },
        Definition { name: "log".into(), kind: Kind::AccessLog, side: Side::Server, ..Definition::default() },
    ];
    for shards in [1, 2] {
        let mut world = proven(shards, &[FAR], &[NEAR]);
        // Connections come to the far host's first shard.
        world.placed = Some(world.shards[1][shards - 1]);
        let mut server = world.attach(1, PROTO, None, true);
        world.placed = Some(0);
        let mut client = till(&mut world);
        let far = world.shards[1].clone();
        for host in far.clone() {
            world.hosts[host].engine.apply_policies(Chain::build(&definitions).unwrap()).unwrap();
        }
        called(&mut world, &mut client, &mut server);
        let lines: Vec<_> =
            far.into_iter().filter_map(|host| world.hosts[host].engine.poll_access_record()).collect();
        let [line] = &lines[..] else { panic!("one line for one call: {lines:?}") };
        let caller = format!("near ({NEAR}: application app0 (uid:1000))");
        assert_eq!((line.caller.as_str(), line.code), (caller.as_str(), Code::Internal), "{shards} shards");
    }
}

#[test]
fn rules_say_who_of_the_network_may_call() {
    for (peers, may) in [(NEAR, true), (FAR, false)] {
        let mut world = proven(1, &[], &[]);
        let rule = PeerRule { service: "world.*".into(), peers: vec![peers.into()] };
        world.hosts[1].engine.configure_peer_rules(vec![rule]);
        let mut server = world.attach(1, PROTO, None, true);
        let mut client = till(&mut world);
        let payload = world.blob(&mut client, b"?");
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        if may {
            server.take_call();
            continue;
        }
        let finish = client.take_finish();
        assert_eq!(finish.code, Code::PermissionDenied);
        assert!(server.inbox.is_empty());
        assert_eq!(world.refused(1), [(ONCE.to_owned(), Code::PermissionDenied.number())], "its host knows");
    }
}
