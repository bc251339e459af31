//! Shows that figures of methods leave with those who named them, and that those who stay are told apart again.

use crate::world;

use std::sync::Arc;
use trunkline_call::Code;
use trunkline_call::entry::Submission;
use trunkline_engine::{BindRequest, BoundSchema, Limits, SessionKey, Turn, export_state};
use trunkline_schema::Schema;
use trunkline_telemetry::Ask;
use world::{App, Host, PROTO, World, finish, release};

/// A session that names so many paths nobody else does.
fn stranger(world: &mut World, host: usize, first: usize, count: usize) -> SessionKey {
    let engine = &mut world.hosts[host].engine;
    let session = engine.attach("stranger".into(), 0);
    let paths = (first..first + count).map(|number| (format!("/strange.v1.S/M{number}"), None));
    let calls: Vec<(String, Option<String>)> = paths.collect();
    engine.bind(session, &BindRequest { schema: None, serves: &[], calls: &calls, permitted: &[] }).unwrap();
    session
}

fn leave(world: &mut World, host: usize, session: SessionKey) {
    let Host { engine, heaps } = &mut world.hosts[host];
    engine.detach(&mut Turn { now: world.now, heaps }, session);
}

/// A call and its answer.
fn call(world: &mut World, client: &mut App, server: &mut App) {
    let payload = world.blob(client, b"x");
    let made = client.call(0, Some(payload), true);
    world.submit(client, Submission::Call(made)).unwrap();
    world.settle(&mut [client, server]);
    let call = server.take_call();
    world.submit(server, release(call.call, call.payload, call.metadata, 0)).unwrap();
    let payload = world.blob(server, b"y");
    world.submit(server, Submission::Finish(finish(call.call, Code::Ok, Some(payload)))).unwrap();
    world.settle(&mut [client, server]);
    let end = client.take_finish();
    world.submit(client, release(end.call, end.payload, end.metadata, 5)).unwrap();
    world.settle(&mut [client, server]);
}

/// Many names come and go on a host, so that it forgets those that nobody uses.
fn names_come_and_go(world: &mut World, host: usize) {
    for first in [0, 3000] {
        let other = stranger(world, host, first, 3000);
        leave(world, host, other);
    }
}

fn links_up(world: &World) -> usize {
    world.links.iter().filter(|link| link.up).count()
}

/// A connection outlives the names that were called over it, and so does the host that has it: it can be replaced, and
/// they are called again.
#[test]
fn a_method_that_was_forgotten_is_called_again_over_the_same_connection() {
    for replaced in [false, true] {
        let mut world = World::new();
        let far = ["tcp://127.0.0.1:1".to_owned()];
        world.hosts[0].engine.configure_service("world.Echo", &far).unwrap();
        let mut client = world.attach(0, PROTO, None, false);
        let mut server = world.attach(1, PROTO, None, true);
        call(&mut world, &mut client, &mut server);
        world.detach(&client);
        world.settle(&mut [&mut server]);
        names_come_and_go(&mut world, 0);
        if replaced {
            world.replace_engines();
        }
        client = world.attach(0, PROTO, None, false);
        call(&mut world, &mut client, &mut server);
        assert_eq!((world.links.len(), links_up(&world)), (1, 1));
    }
}

/// What a peer has announced is found again, too.
#[test]
fn a_method_that_was_forgotten_is_served_again_over_the_same_connection() {
    for replaced in [false, true] {
        let mut world = World::new();
        let mut client = world.attach(0, PROTO, Some("tcp://127.0.0.1:1"), false);
        // It calls the method there, and nobody serves it.
        let knows = world.attach(1, PROTO, None, false);
        let ask = |world: &mut World, client: &mut App| {
            let payload = world.blob(client, b"x");
            let made = client.call(0, Some(payload), true);
            world.submit(client, Submission::Call(made)).unwrap();
            world.settle(&mut [client]);
            client.take_finish().code
        };
        assert_ne!(ask(&mut world, &mut client), Code::Ok);
        world.detach(&knows);
        names_come_and_go(&mut world, 1);
        assert_ne!(ask(&mut world, &mut client), Code::Ok);
        if replaced {
            world.replace_engines();
        }
        assert_ne!(ask(&mut world, &mut client), Code::Ok);
        let mut server = world.attach(1, PROTO, None, true);
        call(&mut world, &mut client, &mut server);
        assert_eq!((world.links.len(), links_up(&world)), (1, 1));
    }
}

/// The methods there are figures of.
fn counted(world: &mut World) -> Vec<String> {
    let now = world.now;
    let snapshot = world.hosts[0].engine.telemetry().snapshot(now, &Ask::default());
    let mut methods: Vec<String> = snapshot.series.into_iter().map(|one| one.method).collect();
    methods.sort();
    methods.dedup();
    methods
}

#[test]
fn whoever_fills_the_figures_and_leaves_gives_them_back() {
    let mut world = World::new();
    let strangers = [stranger(&mut world, 0, 0, 1500), stranger(&mut world, 0, 1500, 1500)];
    assert!(world.hosts[0].engine.telemetry().has_all_methods());
    let mut client = world.attach(0, PROTO, None, false);
    let mut server = world.attach(0, PROTO, None, true);
    call(&mut world, &mut client, &mut server);
    assert_eq!(counted(&mut world), ["(other)"]);
    strangers.into_iter().for_each(|session| leave(&mut world, 0, session));
    assert!(!world.hosts[0].engine.telemetry().has_all_methods());
    call(&mut world, &mut client, &mut server);
    assert_eq!(counted(&mut world), ["(other)", "/world.Echo/Once"]);
    // Those who go on keep what they have.
    let more = stranger(&mut world, 0, 0, 3000);
    leave(&mut world, 0, more);
    call(&mut world, &mut client, &mut server);
    assert_eq!(counted(&mut world), ["(other)", "/world.Echo/Once"]);
}

/// A service of so many methods, by the number of who serves it.
fn wide(number: usize, methods: usize) -> String {
    let methods: String = (0..methods).map(|at| format!("rpc M{at}(M) returns (M);")).collect();
    format!("syntax = \"proto3\"; package wide.v1; message M {{}} service S{number} {{ {methods} }}")
}

/// Has applications of one shard serve services of 500 methods, one after the other.
fn serve_and_leave(world: &mut World, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let schema = Schema::from_proto_source("wide.proto", &wide(number, 500)).unwrap();
        let schema = Arc::new(BoundSchema::new(schema));
        let engine = &mut world.hosts[0].engine;
        let session = engine.attach("wide".into(), 0);
        let serves = [format!("wide.v1.S{number}")];
        let request = BindRequest { schema: Some(&schema), serves: &serves, calls: &[], permitted: &[] };
        engine.bind(session, &request).unwrap();
        world.settle(&mut []);
        leave(world, 0, session);
        world.settle(&mut []);
    }
}

/// How many methods of those services an engine knows.
fn wide_methods_known(world: &World, host: usize) -> usize {
    let state = export_state(&world.hosts[host].engine).unwrap().state;
    let path = b"/wide.v1.S";
    state.windows(path.len()).filter(|bytes| bytes == path).count()
}

/// What another shard serves is known for as long as it is served, and no longer: its name, and its number in reports.
#[test]
fn names_that_another_shard_served_are_forgotten() {
    for replaced in [false, true] {
        let mut world = World::with_shards(Limits::default(), 2);
        world.placed = Some(0);
        let mut server = world.attach(0, PROTO, None, true);
        world.placed = Some(2);
        let mut client = world.attach(0, PROTO, None, false);
        serve_and_leave(&mut world, 0..10);
        if replaced {
            world.replace_engines();
            world.settle(&mut [&mut client, &mut server]);
        }
        serve_and_leave(&mut world, 10..20);
        let known = [0, 2].map(|host| wide_methods_known(&world, host));
        assert!(known[0] <= 3_000 && known[1] <= 3_000, "{known:?} of 10,000 are remembered");
        assert!(!world.hosts[2].engine.telemetry().has_all_methods());
        // What is served all the time is known all the time.
        call(&mut world, &mut client, &mut server);
        let now = world.now;
        let snapshot = world.hosts[2].engine.telemetry().snapshot(now, &Ask::default());
        assert!(snapshot.series.iter().any(|one| one.method == "/world.Echo/Once"));
    }
}
