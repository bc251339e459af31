//! Shows calls between applications that sit on different shards of one host: what crosses, in which order and how much
//! of it, how calls end whichever side ends them, and that nothing is left.

use crate::world;

use trunkline_call::entry::{Completion, Submission};
use trunkline_call::{CallId, Code, Deadline, Execution};
use trunkline_engine::{
    BindError, BindRequest, Engine, Limits, ShardIndex, export_state, has_crossings, join_shards,
    shards_needed, take_over,
};
use trunkline_policy::{Chain, Definition, Kind, Side};
use world::*;

/// The shards of the near host in a world of three, by their places among its hosts.
const SHARDS: [usize; 3] = [0, 2, 4];

fn world(shards: usize) -> World {
    World::with_shards(Limits::default(), shards)
}

fn attach(world: &mut World, host: usize, serves: bool) -> App {
    world.placed = Some(host);
    world.attach(0, PROTO, None, serves)
}

/// Opens a unary call with so many bytes, and carries nothing.
fn open(world: &mut World, client: &mut App, bytes: usize, deadline: Deadline) -> CallId {
    let payload = world.blob(client, &vec![7; bytes]);
    let mut call = client.call(0, Some(payload), true);
    call.deadline = deadline;
    world.submit(client, Submission::Call(call)).unwrap();
    call.call
}

/// Answers the call that was delivered with the bytes it came with.
fn echo(world: &mut World, server: &mut App) -> usize {
    let delivered = server.take_call();
    let seen = world.data(server, delivered.payload.unwrap());
    world.submit(server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
    let reply = world.blob(server, &seen);
    world.submit(server, Submission::Finish(finish(delivered.call, Code::Ok, Some(reply)))).unwrap();
    seen.len()
}

/// Takes the outcome of a call: its code, and whether it was executed.
fn outcome(world: &mut World, client: &mut App) -> (Code, Execution) {
    let outcome = client.take_finish();
    world.submit(client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
    (outcome.code, outcome.execution)
}

#[test]
fn calls_cross_to_whichever_shard_serves_them() {
    for (from, to) in [(0, 2), (2, 0), (4, 2), (0, 4)] {
        let mut world = world(3);
        let mut server = attach(&mut world, to, true);
        let mut client = attach(&mut world, from, false);
        for bytes in [0, 1, 5_000, 3_000_000] {
            open(&mut world, &mut client, bytes, Deadline::NONE);
            world.settle(&mut [&mut client, &mut server]);
            assert_eq!(echo(&mut world, &mut server), bytes);
            world.settle(&mut [&mut client, &mut server]);
            assert_eq!(outcome(&mut world, &mut client), (Code::Ok, Execution::Executed));
            world.settle(&mut [&mut client, &mut server]);
        }
        assert_eq!(world.leftovers(), (0, 0));
    }
}

/// Calls of a shard that has no worker go to those that have, in the measure of their workers.
#[test]
fn calls_are_spread_over_the_shards_that_serve_them() {
    let mut world = world(3);
    let mut servers = [2, 4, 4].map(|host| attach(&mut world, host, true));
    let mut client = attach(&mut world, 0, false);
    for _ in 0..30 {
        open(&mut world, &mut client, 10, Deadline::NONE);
    }
    let [a, b, c] = &mut servers;
    // Unary calls wait for a worker that is free: each answers as many as it gets.
    let mut answered = [0; 3];
    for _ in 0..100 {
        world.settle(&mut [&mut client, a, b, c]);
        for (server, count) in [&mut *a, &mut *b, &mut *c].into_iter().zip(&mut answered) {
            for completion in server.take() {
                let Completion::Call(call) = completion else { continue };
                *count += 1;
                world.submit(server, release(call.call, call.payload, call.metadata, 0)).unwrap();
                let reply = world.blob(server, b"!");
                world.submit(server, Submission::Finish(finish(call.call, Code::Ok, Some(reply)))).unwrap();
            }
        }
    }
    assert_eq!(answered.iter().sum::<usize>(), 30);
    assert_eq!(answered[0], 10, "a third of the workers has a third of the calls: {answered:?}");
}

/// Calls a worker has in hand at most while nothing is measured (`core/dispatch`).
const WORKERS_CALLS: usize = 3;

/// Takes the calls that were delivered, in their order.
fn delivered(app: &mut App) -> Vec<CallId> {
    let calls = app.take().into_iter();
    calls
        .filter_map(|completion| if let Completion::Call(call) = completion { Some(call.call) } else { None })
        .collect()
}

/// Takes the outcomes that have come: how many calls ended well.
fn ended_well(world: &mut World, client: &mut App) -> usize {
    let mut well = 0;
    for completion in client.take() {
        let Completion::Finish(end) = completion else { continue };
        well += usize::from(end.code == Code::Ok);
        world.submit(client, release(end.call, end.payload, end.metadata, 9)).unwrap();
    }
    well
}

fn answer(world: &mut World, server: &App, call: CallId) {
    world.submit(server, Submission::Finish(finish(call, Code::Ok, None))).unwrap();
}

/// Calls that wait for a worker of their own shard go to those that are free on another, and to the one that is free
/// first from then on; none goes anywhere while its own shard has a free one.
#[test]
fn a_call_that_waits_goes_to_whichever_worker_is_free_first() {
    let mut world = world(2);
    let mut client = attach(&mut world, 0, false);
    let mut near = attach(&mut world, 0, true);
    let [mut far, mut farther] = [2, 2].map(|host| attach(&mut world, host, true));
    let settle = |world: &mut World, apps: [&mut App; 4]| {
        world.settle(&mut apps.into_iter().collect::<Vec<_>>());
    };
    let each = WORKERS_CALLS;
    for _ in 0..each {
        open(&mut world, &mut client, 1, Deadline::NONE);
    }
    settle(&mut world, [&mut client, &mut near, &mut far, &mut farther]);
    let mut here = delivered(&mut near);
    assert_eq!(here.len(), each, "its own shard has a worker with room");
    for _ in 0..2 * each + 2 {
        open(&mut world, &mut client, 1, Deadline::NONE);
    }
    settle(&mut world, [&mut client, &mut near, &mut far, &mut farther]);
    let [mut there, mut farther_there] = [&mut far, &mut farther].map(delivered);
    assert_eq!((there.len(), farther_there.len(), delivered(&mut near).len()), (each, each, 0));
    // Two wait: the workers that are through with a call get them, wherever they are.
    answer(&mut world, &far, there.remove(0));
    settle(&mut world, [&mut client, &mut near, &mut far, &mut farther]);
    answer(&mut world, &near, here.remove(0));
    settle(&mut world, [&mut client, &mut near, &mut far, &mut farther]);
    let more = [&mut near, &mut far, &mut farther].map(delivered);
    assert_eq!([1, 1, 0], [0, 1, 2].map(|app: usize| more[app].len()));
    let [near_more, far_more, _] = more;
    here.extend(near_more);
    there.extend(far_more);
    for (app, calls) in [(&near, here), (&far, there), (&farther, std::mem::take(&mut farther_there))] {
        calls.into_iter().for_each(|call| answer(&mut world, app, call));
    }
    settle(&mut world, [&mut client, &mut near, &mut far, &mut farther]);
    assert_eq!(ended_well(&mut world, &mut client), 3 * each + 2);
    settle(&mut world, [&mut client, &mut near, &mut far, &mut farther]);
    let left = [0, 2].map(|host| world.hosts[host].engine.snapshot().calls);
    assert_eq!(left, [0, 0]);
}

/// Where both shards are as busy, nothing crosses: it would cost both and help nobody.
#[test]
fn between_shards_that_are_as_busy_nothing_crosses() {
    let mut world = world(2);
    let mut clients = [0, 2].map(|host| attach(&mut world, host, false));
    let mut servers = [0, 2].map(|host| attach(&mut world, host, true));
    for _ in 0..20 {
        clients.iter_mut().for_each(|client| _ = open(&mut world, client, 1, Deadline::NONE));
    }
    let mut served = [0; 2];
    while served.iter().sum::<usize>() < 40 {
        let [a, b] = &mut clients;
        let [c, d] = &mut servers;
        world.settle(&mut [a, b, c, d]);
        for (server, count) in servers.iter_mut().zip(&mut served) {
            let calls = delivered(server);
            *count += calls.len();
            calls.into_iter().for_each(|call| answer(&mut world, server, call));
        }
        assert_eq!(served[0], served[1]);
        let made = [0, 2].map(|host| world.hosts[host].engine.snapshot().calls);
        assert_eq!(made[0], made[1], "calls on each shard");
    }
    let [a, b] = &mut clients;
    let [c, d] = &mut servers;
    world.settle(&mut [a, b, c, d]);
    assert_eq!(clients.map(|mut client| ended_well(&mut world, &mut client)), [20, 20]);
}

/// A place that is kept for calls that have gone meanwhile is free for others.
#[test]
fn a_place_that_was_kept_in_vain_is_free_again() {
    let mut world = world(2);
    let [mut client, mut other] = [0, 2].map(|host| attach(&mut world, host, false));
    let [mut near, mut far] = [0, 2].map(|host| attach(&mut world, host, true));
    for _ in 0..WORKERS_CALLS {
        open(&mut world, &mut client, 1, Deadline::NONE);
    }
    let waiting = open(&mut world, &mut client, 1, Deadline::NONE);
    world.submit(&client, Submission::Cancel { call: waiting }).unwrap();
    world.settle(&mut [&mut client, &mut other, &mut near, &mut far]);
    assert_eq!((delivered(&mut near).len(), delivered(&mut far).len()), (WORKERS_CALLS, 0));
    for _ in 0..WORKERS_CALLS {
        open(&mut world, &mut other, 1, Deadline::NONE);
    }
    world.settle(&mut [&mut client, &mut other, &mut near, &mut far]);
    assert_eq!(delivered(&mut far).len(), WORKERS_CALLS);
}

/// What a shard asked of workers that have left keeps nobody awake: a shard whose calls wait looks again and again.
#[test]
fn what_was_asked_of_workers_leaves_with_them() {
    let mut world = world(2);
    let mut clients = [0, 2].map(|host| attach(&mut world, host, false));
    let [mut near, mut far] = [0, 2].map(|host| attach(&mut world, host, true));
    for _ in 0..WORKERS_CALLS {
        clients.iter_mut().for_each(|client| _ = open(&mut world, client, 1, Deadline::NONE));
    }
    open(&mut world, &mut clients[0], 1, Deadline::NONE);
    let [a, b] = &mut clients;
    world.settle(&mut [a, b, &mut near, &mut far]);
    assert!(world.hosts[2].engine.calls_wait_for_workers(), "it was asked");
    world.detach(&far);
    world.settle(&mut [a, b, &mut near]);
    assert!(!world.hosts[2].engine.calls_wait_for_workers());
    assert!(world.hosts[0].engine.calls_wait_for_workers());
}

/// Who is on the caller's own shard is asked first; whoever stands by is asked last, wherever it is.
#[test]
fn workers_of_the_own_shard_come_first_and_those_that_stand_by_last() {
    let mut world = world(2);
    world.placed = Some(0);
    let mut standing_by = world.attach_standing_by(0);
    let mut client = attach(&mut world, 0, false);
    let mut far = attach(&mut world, 2, true);
    let call = |world: &mut World, client: &mut App, apps: &mut [&mut App], server: usize| {
        open(world, client, 10, Deadline::NONE);
        let mut all: Vec<&mut App> = apps.iter_mut().map(|app| &mut **app).collect();
        all.push(client);
        world.settle(&mut all);
        echo(world, apps[server]);
        let mut all: Vec<&mut App> = apps.iter_mut().map(|app| &mut **app).collect();
        all.push(client);
        world.settle(&mut all);
        assert_eq!(outcome(world, client).0, Code::Ok);
    };
    call(&mut world, &mut client, &mut [&mut standing_by, &mut far], 1);
    let mut near = attach(&mut world, 0, true);
    call(&mut world, &mut client, &mut [&mut standing_by, &mut far, &mut near], 2);
    world.detach(&near);
    world.detach(&far);
    world.settle(&mut [&mut client]);
    call(&mut world, &mut client, &mut [&mut standing_by], 0);
}

/// A call that meets a shard whose last server has just gone comes back unseen and goes to another, or says that nobody
/// serves it.
#[test]
fn a_call_that_nobody_there_serves_any_more_goes_elsewhere() {
    for others in [&[][..], &[0], &[4], &[0, 4]] {
        let mut world = world(3);
        let gone = attach(&mut world, 2, true);
        let mut client = attach(&mut world, 0, false);
        let mut servers: Vec<App> = Vec::new();
        if others.contains(&4) {
            servers.push(attach(&mut world, 4, true));
        }
        let call = open(&mut world, &mut client, 100, Deadline::NONE);
        assert!(has_crossings(&world.hosts[0].engine, ShardIndex(1)), "it is on its way");
        // Nothing arrives while others come and go.
        world.crossings_max = 0;
        if others.contains(&0) {
            servers.push(attach(&mut world, 0, true));
        }
        world.detach(&gone);
        world.crossings_max = usize::MAX;
        let mut apps: Vec<&mut App> = servers.iter_mut().collect();
        apps.push(&mut client);
        world.settle(&mut apps);
        let delivered = servers.iter_mut().find(|server| !server.inbox.is_empty());
        let Some(server) = delivered else {
            assert!(others.is_empty());
            let outcome = client.take_finish();
            assert_eq!((outcome.call, outcome.execution), (call, Execution::NotExecuted));
            assert_eq!(outcome.code, Code::Unavailable);
            continue;
        };
        assert_eq!(echo(&mut world, server), 100);
        let mut apps: Vec<&mut App> = servers.iter_mut().collect();
        apps.push(&mut client);
        world.settle(&mut apps);
        assert_eq!(outcome(&mut world, &mut client), (Code::Ok, Execution::Executed), "{others:?}");
        assert_eq!(world.leftovers(), (0, 0));
    }
}

/// The deadline passes where the call is made, and only the shard that serves it knows whether anybody has seen it.
#[test]
fn a_deadline_says_what_the_other_shard_knows() {
    for seen in [false, true] {
        let mut world = world(2);
        // The message of one call fills the server's heap: another waits until it is released.
        world.placed = Some(2);
        let mut server = world.attach_sized(0, PROTO, None, true, 96 << 10);
        let mut client = attach(&mut world, 0, false);
        let at = Deadline::at(world.now.plus_ns(1_000_000));
        if !seen {
            open(&mut world, &mut client, 60_000, Deadline::NONE);
        }
        world.settle(&mut [&mut client, &mut server]);
        let call = open(&mut world, &mut client, 60_000, at);
        world.settle(&mut [&mut client, &mut server]);
        world.advance(1_000_000);
        world.settle(&mut [&mut client, &mut server]);
        let outcome = client.take_finish();
        let executed = if seen { Execution::Unknown } else { Execution::NotExecuted };
        assert_eq!((outcome.call, outcome.code), (call, Code::DeadlineExceeded));
        assert_eq!(outcome.execution, executed, "seen: {seen}");
    }
}

/// A shard that says nothing keeps nobody waiting for longer than a few milliseconds.
#[test]
fn a_deadline_passes_although_the_other_shard_is_silent() {
    let mut world = world(2);
    let _server = attach(&mut world, 2, true);
    let mut client = attach(&mut world, 0, false);
    let at = Deadline::at(world.now.plus_ns(1_000_000));
    open(&mut world, &mut client, 10, at);
    let ended = |world: &mut World, client: &mut App| {
        let engine = &mut world.hosts[0].engine;
        client.inbox.extend(std::iter::from_fn(|| engine.outboxes().poll(client.key)));
        client.take()
    };
    world.advance(1_000_000);
    assert_eq!(ended(&mut world, &mut client), []);
    world.advance(5_000_000);
    let [Completion::Finish(outcome)] = ended(&mut world, &mut client)[..] else { panic!("it has ended") };
    assert_eq!((outcome.code, outcome.execution), (Code::DeadlineExceeded, Execution::Unknown));
}

/// Between one number of shards and another calls are under way, within a shard and across: each is answered once.
#[test]
fn a_host_goes_on_with_another_number_of_shards() {
    let mut world = world(1);
    let mut server = attach(&mut world, 0, true);
    // One on each shard.
    let mut clients = vec![attach(&mut world, 0, false)];
    for count in [2, 3, 3, 2, 4, 3, 2, 1, 2, 1] {
        // What a shard that is to go has is over before.
        clients.drain(count.min(clients.len())..).for_each(|client| world.detach(&client));
        for bytes in [0, 100_000] {
            for client in &mut clients {
                open(&mut world, client, bytes, Deadline::NONE);
            }
        }
        // Some are on their way, some delivered.
        world.step(&mut clients.iter_mut().chain([&mut server]).collect::<Vec<_>>());
        world.set_shards(count);
        world.settle(&mut clients.iter_mut().chain([&mut server]).collect::<Vec<_>>());
        let delivered: Vec<Completion> = server.take();
        let calls = delivered.into_iter().filter_map(|completion| match completion {
            Completion::Call(call) => Some(call),
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        assert_eq!(calls.len(), 2 * clients.len(), "each once");
        for call in calls {
            world.submit(&server, release(call.call, call.payload, call.metadata, 0)).unwrap();
            world.submit(&server, Submission::Finish(finish(call.call, Code::Ok, None))).unwrap();
        }
        world.settle(&mut clients.iter_mut().chain([&mut server]).collect::<Vec<_>>());
        for client in &mut clients {
            let ended = client.take();
            assert_eq!(ended.len(), 2, "{ended:?}");
            for completion in ended {
                let Completion::Finish(end) = completion else { panic!("{completion:?}") };
                assert_eq!((end.code, end.execution), (Code::Ok, Execution::Executed));
                world.submit(client, release(end.call, end.payload, end.metadata, 9)).unwrap();
            }
        }
        world.settle(&mut clients.iter_mut().chain([&mut server]).collect::<Vec<_>>());
        assert_eq!(world.leftovers(), (0, 0));
        clients.extend((clients.len()..count).map(|shard| attach(&mut world, 2 * shard, false)));
    }
}

/// A shard that is left over and has calls with others is not left out.
#[test]
fn a_shard_with_calls_stays() {
    let mut world = world(3);
    let mut server = attach(&mut world, 0, true);
    let mut client = attach(&mut world, 4, false);
    let needed = |world: &World| {
        let needed = world.shards[0].iter().map(|place| {
            let exported = export_state(&world.hosts[*place].engine).unwrap();
            shards_needed(&exported.state).unwrap()
        });
        needed.max().unwrap()
    };
    assert_eq!(needed(&world), 0);
    open(&mut world, &mut client, 10, Deadline::NONE);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(needed(&world), 3);
    let exported = export_state(&world.hosts[0].engine).unwrap();
    let mut fewer = Engine::new(Limits::default(), "near", 1);
    join_shards(&mut fewer, ShardIndex(0), 2);
    assert!(take_over(fewer, &exported.state, &exported.schemas).is_err());
    echo(&mut world, &mut server);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(needed(&world), 0);
    assert_eq!(shards_needed(b"nothing"), None);
}

#[test]
fn either_side_may_die() {
    for dead_server in [false, true] {
        for bytes in [10, 100_000] {
            let mut world = world(2);
            let mut server = attach(&mut world, 2, true);
            let mut client = attach(&mut world, 0, false);
            open(&mut world, &mut client, bytes, Deadline::NONE);
            world.settle(&mut [&mut client, &mut server]);
            let delivered = server.take_call();
            if dead_server {
                world.detach(&server);
                world.settle(&mut [&mut client]);
                let outcome = client.take_finish();
                assert_eq!((outcome.code, outcome.execution), (Code::Unavailable, Execution::Unknown));
                world.submit(&client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
                assert_eq!(world.leftovers().0, 0);
            } else {
                world.detach(&client);
                world.settle(&mut [&mut server]);
                let [Completion::Cancelled { call, .. }] = server.take()[..] else { panic!("it is told") };
                assert_eq!(call, delivered.call);
                assert_eq!(world.leftovers().0, 0);
            }
        }
    }
}

/// What a stream's sender has under way is bounded by its window, wherever its reader is; and the reader's releases
/// give the sender credit.
#[test]
fn streams_have_credit_across_shards() {
    let mut world = world(2);
    let mut server = attach(&mut world, 2, true);
    let mut client = attach(&mut world, 0, false);
    let call = client.call(3, None, false);
    world.submit(&client, Submission::Call(call)).unwrap();
    // Before the other shard has taken the call nothing follows it, and nothing is lost.
    for _ in 0..4 {
        let payload = world.blob(&mut client, &[1; 1000]);
        let message = Submission::Message { call: call.call, payload, end: false, a1: world.now };
        world.submit(&client, message).unwrap();
    }
    world.settle(&mut [&mut client, &mut server]);
    let mut delivered = server.take().into_iter();
    let Some(Completion::Call(opened)) = delivered.next() else { panic!("it opens") };
    let messages: Vec<_> = delivered.collect();
    assert_eq!(messages.len(), 4, "{messages:?}");
    let credit = |client: &mut App| {
        let given = client.take().into_iter().map(|completion| match completion {
            Completion::Credit { bytes, .. } => bytes,
            other => panic!("{other:?}"),
        });
        given.sum::<u32>()
    };
    assert_eq!(credit(&mut client), 0);
    for message in messages {
        let Completion::Message { payload, .. } = message else { panic!("{message:?}") };
        assert_eq!(world.data(&server, payload), [1; 1000]);
        world.submit(&server, release(opened.call, Some(payload), Default::default(), 0)).unwrap();
    }
    world.settle(&mut [&mut client, &mut server]);
    assert!(credit(&mut client) >= 4000);
    world.submit(&client, Submission::HalfClose { call: call.call }).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(server.take(), [Completion::HalfClose { call: opened.call }]);
    world.submit(&server, Submission::Finish(finish(opened.call, Code::Ok, None))).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(outcome(&mut world, &mut client).0, Code::Ok);
    assert_eq!(world.leftovers(), (0, 0));
}

/// What one sender has between shards is bounded, and more waits in its own heap; others are not held up by it.
#[test]
fn who_sends_much_to_a_full_heap_waits_alone() {
    let limits = Limits { parked_bytes_per_session: 1 << 20, ..Limits::default() };
    let mut world = World::with_shards(limits, 2);
    world.placed = Some(2);
    // Room for one of the large messages.
    let mut server = world.attach_sized(0, PROTO, None, true, 512 << 10);
    let mut large = attach(&mut world, 0, false);
    let mut small = attach(&mut world, 0, false);
    for _ in 0..8 {
        open(&mut world, &mut large, 400 << 10, Deadline::NONE);
    }
    world.settle(&mut [&mut large, &mut small, &mut server]);
    let lent = world.hosts[0].engine.snapshot().calls;
    assert_eq!(lent, 8);
    open(&mut world, &mut small, 10, Deadline::NONE);
    let mut answered = 0;
    for _ in 0..40 {
        world.settle(&mut [&mut large, &mut small, &mut server]);
        for completion in server.take() {
            let Completion::Call(call) = completion else { continue };
            answered += 1;
            world.submit(&server, release(call.call, call.payload, call.metadata, 0)).unwrap();
            let reply = world.blob(&mut server, b"!");
            world.submit(&server, Submission::Finish(finish(call.call, Code::Ok, Some(reply)))).unwrap();
        }
    }
    assert_eq!(answered, 9);
    assert_eq!((large.take().len(), small.take().len()), (8, 1));
}

/// A queue that takes one item at a time carries everything all the same, in order.
#[test]
fn a_short_queue_is_enough() {
    let mut world = world(2);
    world.crossings_max = 1;
    let mut server = attach(&mut world, 2, true);
    let mut client = attach(&mut world, 0, false);
    let calls: Vec<CallId> = (0..3000).map(|_| open(&mut world, &mut client, 10, Deadline::NONE)).collect();
    let mut seen = 0;
    while seen < calls.len() {
        world.settle(&mut [&mut client, &mut server]);
        for completion in server.take() {
            let Completion::Call(call) = completion else { continue };
            seen += 1;
            world.submit(&server, release(call.call, call.payload, call.metadata, 0)).unwrap();
            let reply = world.blob(&mut server, b"!");
            world.submit(&server, Submission::Finish(finish(call.call, Code::Ok, Some(reply)))).unwrap();
        }
    }
    world.settle(&mut [&mut client, &mut server]);
    let ended: Vec<CallId> = client
        .take()
        .into_iter()
        .filter_map(|completion| match completion {
            Completion::Finish(finish) if finish.code == Code::Ok => Some(finish.call),
            _ => None,
        })
        .collect();
    assert_eq!(ended, calls);
}

/// Each side's policies judge a call once, on their own shard, and know who calls.
#[test]
fn policies_of_both_sides_judge_once() {
    let access = |name: &str, side, allow: &str| Definition {
        name: name.into(),
        side,
        allow: Some(allow.into()),
        ..Definition::default()
    };
    let definitions = [
        access("made", Side::Client, "application == 'app0'"),
        access(
            "served",
            Side::Server,
            "peer.identity == 'uid:7' && caller.uid == 7 && caller.name == 'app0'",
        ),
        Definition { name: "log".into(), kind: Kind::AccessLog, ..Definition::default() },
    ];
    let mut world = world(2);
    let mut server = attach(&mut world, 2, true);
    let mut client = attach(&mut world, 0, false);
    world.hosts[0].engine.identify(client.key, "uid:7", "");
    for host in [0, 2] {
        world.hosts[host].engine.apply_policies(Chain::build(&definitions).unwrap()).unwrap();
    }
    open(&mut world, &mut client, 10, Deadline::NONE);
    world.settle(&mut [&mut client, &mut server]);
    echo(&mut world, &mut server);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(outcome(&mut world, &mut client).0, Code::Ok);
    let seen = |world: &World, name: &str| {
        [0, 2].map(|host| {
            let rows = world.hosts[host].engine.policy_rows();
            rows.iter().find(|row| row.definition.name == name).unwrap().figures.seen
        })
    };
    assert_eq!((seen(&world, "made"), seen(&world, "served")), ([1, 0], [0, 1]));
    let lines: Vec<_> = [0, 2]
        .into_iter()
        .flat_map(|host| {
            std::iter::from_fn(|| world.hosts[host].engine.poll_access_record()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(lines.len(), 1, "one line for one call: {lines:?}");
}

/// A service's name belongs to a user on all shards.
#[test]
fn names_have_owners_across_shards() {
    let mut world = world(2);
    let owner = attach(&mut world, 0, false);
    let other = attach(&mut world, 2, false);
    let bind = |world: &mut World, app: &App| {
        let request = BindRequest {
            schema: Some(&app.schema),
            serves: &["world.Echo".to_owned()],
            calls: &[],
            permitted: &[],
        };
        let bound = world.hosts[app.host].engine.bind(app.key, &request).map(drop);
        while world.cross_shards(usize::MAX) {}
        bound
    };
    world.hosts[0].engine.identify(owner.key, "uid:1", "");
    world.hosts[2].engine.identify(other.key, "uid:2", "");
    bind(&mut world, &owner).unwrap();
    assert!(matches!(bind(&mut world, &other), Err(BindError::Owned { owner, .. }) if owner == "uid:1"));
    world.detach(&owner);
    while world.cross_shards(usize::MAX) {}
    bind(&mut world, &other).unwrap();
}

/// Where very much is served, other shards are told of it all once in a while, and at once of what is new: what is not
/// served any more they find out by calling it.
#[test]
fn of_very_many_services_what_is_new_is_told_at_once_and_the_rest_later() {
    let limits = Limits { routes_per_session: 8192, ..Limits::default() };
    let mut world = World::with_shards(limits, 3);
    let busy = attach(&mut world, 2, false);
    let mut brief = attach(&mut world, 2, false);
    let client = attach(&mut world, 0, false);
    world.hosts[2].engine.identify(busy.key, "uid:1", "");
    world.hosts[2].engine.identify(brief.key, "uid:1", "");
    let serve = |world: &mut World, app: &App, services: &[String]| {
        let request = BindRequest { schema: None, serves: services, calls: &[], permitted: &[] };
        world.hosts[app.host].engine.bind(app.key, &request).map(drop)
    };
    let services: Vec<String> = (0..3000).map(|number| format!("a.S{number}")).collect();
    serve(&mut world, &busy, &services).unwrap();
    while world.cross_shards(usize::MAX) {}
    let is_owned = |world: &mut World, service: &str| {
        let bound = serve(world, &client, &[service.to_owned()]);
        matches!(bound, Err(BindError::Owned { owner, .. }) if owner == "uid:1")
    };
    assert!(is_owned(&mut world, "a.S7"), "told at once, the first time");
    // More of it is told later, but what is new.
    serve(&mut world, &brief, &["world.Echo".to_owned()]).unwrap();
    while world.cross_shards(usize::MAX) {}
    assert!(is_owned(&mut world, "world.Echo"));
    let mut caller = attach(&mut world, 4, false);
    open(&mut world, &mut caller, 10, Deadline::NONE);
    world.settle(&mut [&mut caller, &mut brief]);
    let call = brief.take_call();
    world.submit(&brief, Submission::Finish(finish(call.call, Code::Ok, None))).unwrap();
    world.settle(&mut [&mut caller, &mut brief]);
    assert_eq!(outcome(&mut world, &mut caller).0, Code::Ok);
    world.detach(&brief);
    for number in 0..2 {
        open(&mut world, &mut caller, 10, Deadline::NONE);
        let crosses = has_crossings(&world.hosts[4].engine, ShardIndex(1));
        assert_eq!(crosses, number == 0, "the first finds out");
        world.settle(&mut [&mut caller]);
        assert_eq!(outcome(&mut world, &mut caller), (Code::Unavailable, Execution::NotExecuted));
    }
    // Until all is told, a name is whose it was.
    assert!(is_owned(&mut world, "world.Echo"));
    world.advance(1_000_000_000);
    while world.cross_shards(usize::MAX) {}
    assert!(is_owned(&mut world, "a.S7") && !is_owned(&mut world, "world.Echo"));
}

/// A call recorded where it was made says when things happened where it was served, and no other record is made of it.
#[test]
fn a_call_is_recorded_once() {
    let mut world = world(2);
    let mut server = attach(&mut world, 2, true);
    let mut client = attach(&mut world, 0, false);
    open(&mut world, &mut client, 10, Deadline::NONE);
    world.settle(&mut [&mut client, &mut server]);
    echo(&mut world, &mut server);
    world.settle(&mut [&mut client, &mut server]);
    outcome(&mut world, &mut client);
    let counts = SHARDS[..2].iter().map(|host| {
        let now = world.now;
        let seen = world.hosts[*host].engine.telemetry().snapshot(now, &trunkline_telemetry::Ask::default());
        seen.series.len()
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 0]);
}

/// A session that serves no more calls is told when its last one has ended, wherever that was made, however it ended,
/// and whether its message was released before.
#[test]
fn who_drains_is_told_of_the_end_of_its_last_call_from_another_shard() {
    for (code, is_released) in [(Code::Ok, true), (Code::Ok, false), (Code::NotFound, true)] {
        let mut world = world(2);
        let mut server = attach(&mut world, 2, true);
        let mut client = attach(&mut world, 0, false);
        for bytes in [10, 5_000] {
            open(&mut world, &mut client, bytes, Deadline::NONE);
        }
        world.settle(&mut [&mut client, &mut server]);
        let taken = server.take().into_iter();
        let calls: Vec<_> = taken
            .filter_map(|completion| if let Completion::Call(call) = completion { Some(call) } else { None })
            .collect();
        world.submit(&server, Submission::Drain { answer: true }).unwrap();
        assert_eq!(calls.len(), 2);
        for (call, is_last) in calls.into_iter().zip([false, true]) {
            let released = release(call.call, call.payload, call.metadata, 0);
            let end = Submission::Finish(finish(call.call, code, None));
            let said = if is_released { [released, end] } else { [end, released] };
            for submission in said {
                world.submit(&server, submission).unwrap();
            }
            world.settle(&mut [&mut client, &mut server]);
            assert_eq!(server.take().contains(&Completion::Drained), is_last, "{code:?} {is_released}");
            assert_eq!(outcome(&mut world, &mut client), (code, Execution::Executed));
        }
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(world.leftovers(), (0, 0));
    }
}

/// What the applications of a user have under way between shards counts together: what is too much waits where it is,
/// and goes when there is room.
#[test]
fn large_messages_of_many_senders_wait_for_each_other() {
    let limits = Limits { held_bytes_per_source: 2 << 20, held_bytes: 3 << 20, ..Limits::default() };
    let mut world = World::with_shards(limits, 2);
    let mut server = attach(&mut world, 2, true);
    let mut clients: Vec<App> = (0..6).map(|_| attach(&mut world, 0, false)).collect();
    for client in &mut clients {
        for bytes in [1 << 20, 900 << 10] {
            open(&mut world, client, bytes, Deadline::NONE);
        }
    }
    // What has crossed is not taken there yet.
    world.crossings_max = 0;
    let snapshot = world.hosts[0].engine.snapshot();
    let (_, crossed) = snapshot.memory.iter().find(|(what, _)| what.starts_with("messages between")).unwrap();
    assert!((1..=2 << 20).contains(crossed), "{crossed} bytes are under way");
    world.crossings_max = usize::MAX;
    world.replace_engines();
    let mut answered = 0;
    while answered < 12 {
        let before = answered;
        world.advance(2_000_000);
        let mut apps: Vec<&mut App> = clients.iter_mut().collect();
        apps.push(&mut server);
        world.settle(&mut apps);
        for completion in server.take() {
            let Completion::Call(call) = completion else { continue };
            answered += 1;
            world.submit(&server, release(call.call, call.payload, call.metadata, 0)).unwrap();
            world.submit(&server, Submission::Finish(finish(call.call, Code::Ok, None))).unwrap();
        }
        assert!(answered > before, "nothing goes on after {answered}");
    }
    let mut apps: Vec<&mut App> = clients.iter_mut().collect();
    apps.push(&mut server);
    world.settle(&mut apps);
    for client in &mut clients {
        assert_eq!(ended_well(&mut world, client), 2);
    }
    assert_eq!(world.leftovers(), (0, 0));
}
