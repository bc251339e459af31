//! Shows that figures of methods leave with those who named them, and that those who stay are told apart again.

mod world;

use trunkline_call::Code;
use trunkline_call::entry::Submission;
use trunkline_engine::{BindRequest, SessionKey, Turn};
use trunkline_telemetry::Ask;
use world::{App, Host, PROTO, World, finish, release};

/// A session that names so many paths nobody else does.
fn stranger(world: &mut World, first: usize, count: usize) -> SessionKey {
    let engine = &mut world.hosts[0].engine;
    let session = engine.attach("stranger".into(), 0);
    let paths = (first..first + count).map(|number| (format!("/strange.v1.S/M{number}"), None));
    let calls: Vec<(String, Option<String>)> = paths.collect();
    engine.bind(session, &BindRequest { schema: None, serves: &[], calls: &calls, permitted: &[] }).unwrap();
    session
}

fn leave(world: &mut World, session: SessionKey) {
    let Host { engine, heaps } = &mut world.hosts[0];
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
    let strangers = [stranger(&mut world, 0, 1500), stranger(&mut world, 1500, 1500)];
    assert!(world.hosts[0].engine.telemetry().is_full());
    let mut client = world.attach(0, PROTO, None, false);
    let mut server = world.attach(0, PROTO, None, true);
    call(&mut world, &mut client, &mut server);
    assert_eq!(counted(&mut world), ["(other)"]);
    strangers.into_iter().for_each(|session| leave(&mut world, session));
    assert!(!world.hosts[0].engine.telemetry().is_full());
    call(&mut world, &mut client, &mut server);
    assert_eq!(counted(&mut world), ["(other)", "/world.Echo/Once"]);
    // Those who go on keep what they have.
    let more = stranger(&mut world, 0, 3000);
    leave(&mut world, more);
    call(&mut world, &mut client, &mut server);
    assert_eq!(counted(&mut world), ["(other)", "/world.Echo/Once"]);
}
