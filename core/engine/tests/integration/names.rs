//! Shows calls for endpoints that are names, calls that wait for a connection, and what a service config says about
//! calls; all without a resolver, a socket or a clock.

use crate::world;

use trunkline_call::entry::{Completion, Finish, Submission};
use trunkline_call::{Code, Deadline, Execution};
use trunkline_engine::{Limits, Turn};
use trunkline_grpc::service_config::ServiceConfig;
use world::{App, Host, PROTO, World, finish};

const NAME: &str = "dns:///echo.example:80";
const SECOND_NS: u64 = 1_000_000_000;

/// Two hosts; an application on the first calls the name, one on the second serves.
fn hosts(limits: Limits) -> (World, App, App) {
    let mut world = World::with_limits(limits);
    let client = world.attach(0, PROTO, Some(NAME), false);
    let server = world.attach(1, PROTO, None, true);
    (world, client, server)
}

fn looked_up(world: &mut World, found: Result<&[&str], &str>) {
    let endpoints: Result<Vec<String>, &str> =
        found.map(|endpoints| endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect());
    let Host { engine, heaps } = &mut world.hosts[0];
    let mut turn = Turn { now: world.now, heaps };
    let found = endpoints.as_ref().map_or_else(|why| Err(*why), |endpoints| Ok(&endpoints[..]));
    engine.handle_looked_up(&mut turn, NAME, found);
}

fn asked(world: &mut World) -> Option<String> {
    world.hosts[0].engine.poll_lookup().map(|name| name.to_string())
}

/// Makes a call of so many bytes; `ready` to wait, or not.
fn call(world: &mut World, client: &mut App, bytes: usize, ready: bool, deadline: Deadline) {
    let payload = world.blob(client, &vec![7; bytes]);
    let call = client.call(0, Some(payload), true);
    let call = trunkline_call::entry::Call { wait_for_ready: ready, deadline, ..call };
    world.submit(client, Submission::Call(call)).unwrap();
}

fn delivered(app: &mut App) -> usize {
    app.take().iter().filter(|completion| matches!(completion, Completion::Call(_))).count()
}

fn ends(app: &mut App) -> Vec<Finish> {
    let finish = |completion| match completion {
        Completion::Finish(finish) => Some(finish),
        _ => None,
    };
    app.take().into_iter().filter_map(finish).collect()
}

fn codes(app: &mut App) -> Vec<(Code, Execution)> {
    ends(app).iter().map(|end| (end.code, end.execution)).collect()
}

#[test]
fn calls_wait_for_their_name_and_take_its_endpoints_in_turn() {
    let (mut world, mut client, mut server) = hosts(Limits::default());
    for _ in 0..4 {
        call(&mut world, &mut client, 10, false, Deadline::NONE);
    }
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!((asked(&mut world).as_deref(), asked(&mut world), world.links.len()), (Some(NAME), None, 0));
    looked_up(&mut world, Ok(&["tcp://10.0.0.7:80", "tcp://10.0.0.8:80"]));
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!((world.links.len(), delivered(&mut server)), (2, 4));
    // News without a question: a third server gets its share from now on.
    looked_up(&mut world, Ok(&["tcp://10.0.0.7:80", "tcp://10.0.0.8:80", "tcp://10.0.0.9:80"]));
    for _ in 0..3 {
        call(&mut world, &mut client, 10, false, Deadline::NONE);
    }
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!((world.links.len(), delivered(&mut server)), (3, 3));
}

#[test]
fn a_name_that_cannot_be_looked_up_fails_calls_and_is_asked_for_again() {
    let (mut world, mut client, mut server) = hosts(Limits::default());
    call(&mut world, &mut client, 10, false, Deadline::NONE);
    assert!(asked(&mut world).is_some());
    looked_up(&mut world, Err("no such host"));
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(codes(&mut client), [(Code::Unavailable, Execution::NotExecuted)]);
    call(&mut world, &mut client, 10, false, Deadline::NONE);
    call(&mut world, &mut client, 10, true, Deadline::NONE);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(codes(&mut client), [(Code::Unavailable, Execution::NotExecuted)]);
    assert!(asked(&mut world).is_some());
    looked_up(&mut world, Ok(&["tcp://10.0.0.7:80"]));
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(delivered(&mut server), 1);
    // A later failure changes nothing.
    looked_up(&mut world, Err("no answer"));
    call(&mut world, &mut client, 10, false, Deadline::NONE);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(delivered(&mut server), 1);
}

#[test]
fn an_endpoint_that_fails_has_its_name_looked_up_again() {
    let (mut world, mut client, mut server) = hosts(Limits::default());
    world.unreachable = true;
    call(&mut world, &mut client, 10, false, Deadline::NONE);
    assert!(asked(&mut world).is_some());
    looked_up(&mut world, Ok(&["tcp://10.0.0.7:80", "tcp://10.0.0.8:80"]));
    world.settle(&mut [&mut client, &mut server]);
    // Both were tried before the call failed.
    assert_eq!(codes(&mut client), [(Code::Unavailable, Execution::NotExecuted)]);
    assert!(asked(&mut world).is_some());
}

#[test]
fn endpoints_nobody_names_any_more_are_forgotten() {
    let (mut world, mut client, mut server) = hosts(Limits { endpoints: 3, ..Limits::default() });
    call(&mut world, &mut client, 10, false, Deadline::NONE);
    world.unreachable = true;
    for host in 1..100 {
        looked_up(&mut world, Ok(&[&format!("tcp://10.0.0.{host}:80")]));
        world.settle(&mut [&mut client, &mut server]);
    }
    world.unreachable = false;
    call(&mut world, &mut client, 10, false, Deadline::NONE);
    looked_up(&mut world, Ok(&["tcp://10.0.1.1:80"]));
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(delivered(&mut server), 1);
}

#[test]
fn calls_that_are_ready_to_wait_wait() {
    let (mut world, mut client, mut server) = hosts(Limits::default());
    world.unreachable = true;
    looked_up(&mut world, Ok(&["tcp://10.0.0.7:80"]));
    let soon = Deadline::at(world.now.plus_ns(SECOND_NS / 2));
    call(&mut world, &mut client, 10, true, Deadline::NONE);
    call(&mut world, &mut client, 10, true, soon);
    call(&mut world, &mut client, 10, false, Deadline::NONE);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(codes(&mut client), [(Code::Unavailable, Execution::NotExecuted)]);
    for _ in 0..20 {
        world.advance(SECOND_NS / 10);
        world.settle(&mut [&mut client, &mut server]);
    }
    assert_eq!(codes(&mut client), [(Code::DeadlineExceeded, Execution::NotExecuted)]);
    world.unreachable = false;
    for _ in 0..60 {
        world.advance(SECOND_NS / 10);
        world.settle(&mut [&mut client, &mut server]);
    }
    assert_eq!((delivered(&mut server), codes(&mut client).len()), (1, 0));
}

#[test]
fn those_who_wait_are_bounded() {
    let (mut world, mut client, mut server) =
        hosts(Limits { calls_waiting_per_endpoint: 3, ..Limits::default() });
    world.unreachable = true;
    for _ in 0..5 {
        call(&mut world, &mut client, 10, true, Deadline::NONE);
    }
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(codes(&mut client), [(Code::ResourceExhausted, Execution::NotExecuted); 2]);
}

/// A user that waits with all the calls it may keeps no other user out, and goes first with none but its turn.
#[test]
fn one_user_that_waits_leaves_room_and_turns_to_others() {
    let (mut world, mut busy, mut server) =
        hosts(Limits { calls_waiting_per_endpoint: 64, ..Limits::default() });
    let mut other = world.attach(0, PROTO, Some(NAME), false);
    world.hosts[0].engine.identify(busy.key, "uid:1000", "");
    world.hosts[0].engine.identify(other.key, "uid:2000", "");
    for _ in 0..100 {
        call(&mut world, &mut busy, 10, true, Deadline::NONE);
    }
    for _ in 0..8 {
        call(&mut world, &mut other, 500, true, Deadline::NONE);
    }
    world.settle(&mut [&mut busy, &mut other, &mut server]);
    let refused = codes(&mut busy);
    assert!((30..40).contains(&refused.len()), "{}", refused.len());
    assert_eq!(codes(&mut other), [], "there is room beside it");
    looked_up(&mut world, Ok(&["tcp://10.0.0.7:80"]));
    world.settle(&mut [&mut busy, &mut other, &mut server]);
    let sizes: Vec<usize> = server
        .take()
        .iter()
        .filter_map(|completion| match completion {
            Completion::Call(call) => call.payload.as_ref().map(|payload| payload.span.len as usize),
            _ => None,
        })
        .collect();
    assert_eq!(sizes.len(), 108 - refused.len(), "nobody who waited is refused");
    let others = sizes.iter().take(20).filter(|size| **size > 400).count();
    assert_eq!(others, 8, "in turn: {sizes:?}");
}

#[test]
fn a_service_config_holds_for_calls_made_here() {
    let (mut world, mut client, mut server) = hosts(Limits::default());
    looked_up(&mut world, Ok(&["tcp://10.0.0.7:80"]));
    let config = r#"{"methodConfig": [{"name": [{"service": "world.Echo"}], "timeout": "1s", "waitForReady": true,
        "maxRequestMessageBytes": 1000, "maxResponseMessageBytes": 500}]}"#;
    world.hosts[0].engine.configure_calls("world.Echo", ServiceConfig::parse(config).unwrap());
    call(&mut world, &mut client, 1001, false, Deadline::NONE);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(codes(&mut client), [(Code::ResourceExhausted, Execution::NotExecuted)]);
    // It waits although it does not ask for it, and not for longer than the config says.
    world.unreachable = true;
    call(&mut world, &mut client, 100, false, Deadline::NONE);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(codes(&mut client), []);
    world.advance(SECOND_NS);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(codes(&mut client), [(Code::DeadlineExceeded, Execution::NotExecuted)]);
    world.unreachable = false;
    world.advance(10 * SECOND_NS);
    call(&mut world, &mut client, 100, false, Deadline::NONE);
    world.settle(&mut [&mut client, &mut server]);
    let delivered = server.take_call();
    let answer = world.blob(&mut server, &[1; 600]);
    world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, Some(answer)))).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(ends(&mut client).iter().map(|end| end.code).collect::<Vec<_>>(), [Code::ResourceExhausted]);
}

/// Whoever looks names up hears when one is not needed any more, and of one that comes again behind that.
#[test]
fn a_name_that_is_forgotten_is_told() {
    let (mut world, mut client, mut server) = hosts(Limits::default());
    call(&mut world, &mut client, 10, false, Deadline::NONE);
    assert_eq!(asked(&mut world).as_deref(), Some(NAME));
    looked_up(&mut world, Err("no such host"));
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(world.hosts[0].engine.poll_name_forgotten(), None);
    world.detach(&client);
    world.settle(&mut [&mut server]);
    assert_eq!(world.hosts[0].engine.poll_name_forgotten().as_deref(), Some(NAME));
    assert_eq!((world.hosts[0].engine.poll_name_forgotten(), asked(&mut world)), (None, None));
}
