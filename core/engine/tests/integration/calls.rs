//! Shows calls between applications of one host and of two: all patterns, every way to end, and that nothing is left.

use crate::world;

use trunkline_call::entry::{Call, Completion, Submission};
use trunkline_call::{CallId, Code, Deadline, Encoding, Execution, Instant, Metadata};
use trunkline_engine::{Limits, Plant, SessionFault};
use trunkline_telemetry::{Ask, FlightRow, Side};
use world::*;

const TARGET: Option<&str> = Some("tcp://127.0.0.1:1");

/// A unary call, from submission to release; returns what the handler saw and what came back.
fn unary(world: &mut World, client: &mut App, server: &mut App, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let payload = world.blob(client, data);
    let call = client.call(0, Some(payload), true);
    world.submit(client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    let delivered = server.take_call();
    assert!(delivered.end);
    let seen = world.data(server, delivered.payload.unwrap());
    world.submit(server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
    let answer: Vec<u8> = seen.iter().rev().copied().collect();
    let reply = world.blob(server, &answer);
    world.submit(server, Submission::Finish(finish(delivered.call, Code::Ok, Some(reply)))).unwrap();
    world.settle(&mut [&mut *client, &mut *server]);
    let outcome = client.take_finish();
    assert_eq!((outcome.call, outcome.code), (call.call, Code::Ok));
    let back = world.data(client, outcome.payload.unwrap());
    world.submit(client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
    (seen, back)
}

fn data_of(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 % 251) as u8).collect()
}

#[test]
fn unary_on_one_host() {
    let mut world = World::new();
    let mut server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    for bytes in [0, 1, 100, 100_000, 3_000_000] {
        let data = data_of(bytes);
        let (seen, back) = unary(&mut world, &mut client, &mut server, &data);
        assert_eq!(seen, data);
        assert_eq!(back, data.iter().rev().copied().collect::<Vec<_>>());
    }
    assert_eq!(world.leftovers(), (0, 0));
}

/// Both daemons of a call tell whether its answer came soon: what looking for the next one is worth.
#[test]
fn answers_that_come_soon_are_counted() {
    let mut world = World::new();
    let mut server = world.attach(1, PROTO, None, true);
    let mut client = world.attach(0, PROTO, TARGET, false);
    for (handler_ns, quick) in [(900_000, 1), (1_100_000, 0)] {
        for host in &mut world.hosts[..2] {
            host.engine.take_quick_steps(1_000_000);
        }
        let question = world.blob(&mut client, b"?");
        let call = client.call(0, Some(question), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let delivered = server.take_call();
        world.advance(handler_ns);
        let answer = world.blob(&mut server, b"!");
        let end = finish(delivered.call, Code::Ok, Some(answer));
        world.submit(&server, Submission::Finish(end)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        client.take_finish();
        for host in &mut world.hosts[..2] {
            assert_eq!(host.engine.take_quick_steps(0), quick, "{handler_ns} ns");
        }
    }
}

#[test]
fn what_is_not_recorded_is_carried_all_the_same() {
    for unrecorded in [false, true] {
        let mut world = World::new();
        for host in &mut world.hosts {
            host.engine.plant(Plant { unrecorded, ..Plant::default() });
        }
        let mut server = world.attach(1, PROTO, None, true);
        let mut client = world.attach(0, PROTO, TARGET, false);
        unary(&mut world, &mut client, &mut server, b"once");
        for host in &mut world.hosts[..2] {
            let seen = host.engine.telemetry().snapshot(world.now, &Ask::default());
            assert_eq!(seen.series.is_empty(), unrecorded);
        }
    }
}

#[test]
fn unary_between_hosts_whole_and_in_pieces() {
    for piece_bytes in [usize::MAX, 1000, 7] {
        let mut world = World::new();
        world.piece_bytes = piece_bytes;
        let mut server = world.attach(1, PROTO, None, true);
        let mut client = world.attach(0, PROTO, TARGET, false);
        let sizes =
            if piece_bytes == 7 { &[0, 40, 40_000][..] } else { &[0, 40, 5_000, 40_000, 3_000_000, 64] };
        for &bytes in sizes {
            let data = data_of(bytes);
            let (seen, back) = unary(&mut world, &mut client, &mut server, &data);
            assert_eq!(seen, data, "{bytes} bytes in pieces of {piece_bytes}");
            assert_eq!(back, data.iter().rev().copied().collect::<Vec<_>>());
        }
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn schemas_that_differ_are_bridged() {
    for host in [0, 1] {
        let mut world = World::new();
        let mut server = world.attach(host, OLDER_PROTO, None, true);
        let target = if host == 0 { None } else { TARGET };
        let mut client = world.attach(0, PROTO, target, false);
        for _ in 0..2 {
            let (seen, _) = unary(&mut world, &mut client, &mut server, &data_of(50_000));
            assert_eq!(seen, data_of(50_000));
        }
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn a_handlers_error_reaches_the_caller() {
    for (host, target) in [(0, None), (1, TARGET)] {
        let mut world = World::new();
        let mut server = world.attach(host, PROTO, None, true);
        let mut client = world.attach(0, PROTO, target, false);
        let payload = world.blob(&mut client, b"x");
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let delivered = server.take_call();
        world.submit(&server, Submission::Finish(finish(delivered.call, Code::NotFound, None))).unwrap();
        world.submit(&server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let outcome = client.take_finish();
        assert_eq!((outcome.code, outcome.execution), (Code::NotFound, Execution::Executed));
        world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn streams_in_both_directions_with_credit() {
    for (host, target) in [(0, None), (1, TARGET)] {
        let mut world = World::new();
        let mut server = world.attach(host, PROTO, None, true);
        let mut client = world.attach(0, PROTO, target, false);
        let call = client.call(3, None, false);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let delivered = server.take_call();
        assert!(!delivered.end && delivered.payload.is_none());
        let mut credited = 0u64;
        for round in 0..40u8 {
            let payload = world.blob(&mut client, &vec![round; 100_000]);
            let message = Submission::Message { call: call.call, payload, end: round == 39, a1: Instant(5) };
            world.submit(&client, message).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            let taken = server.take();
            let messages: Vec<_> = taken.iter().filter(|c| !matches!(c, Completion::Credit { .. })).collect();
            let [&Completion::Message { call: id, payload, end }] = messages[..] else { panic!("{taken:?}") };
            assert_eq!((id, end), (delivered.call, round == 39));
            assert_eq!(world.data(&server, payload), vec![round; 100_000]);
            world.submit(&server, release(id, Some(payload), Default::default(), 0)).unwrap();
            let reply = world.blob(&mut server, &[round]);
            let message = Submission::Message { call: id, payload: reply, end: false, a1: Instant(6) };
            world.submit(&server, message).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            for completion in client.take() {
                match completion {
                    Completion::Message { call: id, payload, .. } => {
                        assert_eq!(world.data(&client, payload), [round]);
                        world.submit(&client, release(id, Some(payload), Default::default(), 0)).unwrap();
                    }
                    Completion::Credit { bytes, .. } => credited += u64::from(bytes),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(credited >= 39 * 100_000, "the sender got its window back: {credited}");
        world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, None))).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let outcome = client.take_finish();
        assert_eq!(outcome.code, Code::Ok);
        world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
        assert_eq!(world.leftovers(), (0, 0));
    }
}

#[test]
fn a_sender_that_goes_on_without_credit_breaks_the_rules_and_only_itself() {
    for (host, target) in [(0, None), (1, TARGET)] {
        let mut world = World::new();
        let mut server = world.attach(host, PROTO, None, true);
        let mut client = world.attach(0, PROTO, target, false);
        let call = client.call(3, None, false);
        world.submit(&client, Submission::Call(call)).unwrap();
        // One block, named again and again; its reader takes messages, and returns none.
        let payload = world.blob(&mut client, &[1; 60_000]);
        let message = Submission::Message { call: call.call, payload, end: false, a1: Instant(5) };
        let mut said = 0;
        let fault = loop {
            match world.submit(&client, message) {
                Ok(()) => said += 1,
                Err(fault) => break fault,
            }
            world.settle(&mut [&mut client, &mut server]);
            assert!(said < 100, "nobody counts");
        };
        assert_eq!(fault, SessionFault::OverWindow(call.call));
        // Between hosts, a message has left its sender's host when it is given back to.
        let window = i64::from(Limits::default().stream_window_bytes);
        assert!(said >= window / 60_000, "{said}");
        world.detach(&client);
        world.settle(&mut [&mut server]);
        assert!(matches!(server.take().last(), Some(Completion::Cancelled { .. })));
    }
}

#[test]
fn headers_said_again_are_not_kept() {
    let mut world = World::new();
    let mut server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    let call = client.call(3, None, false);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let delivered = server.take_call();
    for _ in 0..3 {
        let metadata = world.put_metadata(&mut server, &Metadata::new());
        world.submit(&server, Submission::Headers { call: delivered.call, metadata }).unwrap();
    }
    world.settle(&mut [&mut client, &mut server]);
    assert!(matches!(client.take()[..], [Completion::Headers { .. }]));
}

#[test]
fn a_deadline_ends_both_sides() {
    for (host, target) in [(0, None), (1, TARGET)] {
        let mut world = World::new();
        let mut server = world.attach(host, PROTO, None, true);
        let mut client = world.attach(0, PROTO, target, false);
        let payload = world.blob(&mut client, b"x");
        let mut call = client.call(0, Some(payload), true);
        call.deadline = Deadline::at(world.now.plus_ns(1000));
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let delivered = server.take_call();
        assert_eq!(delivered.deadline.instant(), Some(world.now.plus_ns(1000)));
        world.advance(1000);
        world.settle(&mut [&mut client, &mut server]);
        let outcome = client.take_finish();
        assert_eq!((outcome.code, outcome.execution), (Code::DeadlineExceeded, Execution::Unknown));
        let told = server.take();
        assert_eq!(told, [Completion::Cancelled { call: delivered.call, code: Code::DeadlineExceeded }]);
        let late = world.blob(&mut server, b"late");
        world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, Some(late)))).unwrap();
        world.submit(&server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
        world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        assert!(client.take().is_empty(), "a late answer reaches nobody");
        assert_eq!(world.leftovers(), (0, 0));
    }
}

/// A watch that its daemon ends, however little was said, is no call of an hour of the server's application.
#[test]
fn a_served_stream_that_is_ended_here_is_counted_as_one() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    for (route, is_gone) in [(0, false), (1, false), (2, false), (2, true), (3, true)] {
        let mut world = World::new();
        let mut server = world.attach(1, PROTO, None, true);
        let mut client = world.attach(0, PROTO, TARGET, false);
        let payload = world.blob(&mut client, b"x");
        let mut call = client.call(route, Some(payload), true);
        call.deadline = Deadline::at(world.now.plus_ns(HOUR_NS));
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        server.take_call();
        match is_gone {
            true => world.detach(&server),
            false => world.advance(HOUR_NS),
        }
        world.settle(&mut [&mut client]);
        let rows: Vec<FlightRow> = world.hosts[1].engine.telemetry().recorder().recent().collect();
        let [row] = &rows[..] else { panic!("{rows:#?}") };
        assert_eq!((row.side, row.is_stream), (Side::Served, route > 0), "{row:#?}");
    }
}

#[test]
fn a_cancel_reaches_the_handler_and_its_children() {
    let mut world = World::new();
    let mut leaf = world.attach(1, PROTO, None, true);
    let mut middle = world.attach(0, PROTO, TARGET, true);
    let mut client = world.attach(0, PROTO, None, false);
    let payload = world.blob(&mut client, b"x");
    let mut call = client.call(0, Some(payload), true);
    call.deadline = Deadline::at(world.now.plus_ns(5_000));
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut leaf, &mut middle, &mut client]);
    let delivered = middle.take_call();
    let payload = world.blob(&mut middle, b"y");
    let mut nested = middle.call(0, Some(payload), true);
    nested.parent = delivered.call;
    world.submit(&middle, Submission::Call(nested)).unwrap();
    world.settle(&mut [&mut leaf, &mut middle, &mut client]);
    let at_leaf = leaf.take_call();
    assert_eq!(at_leaf.deadline, call.deadline, "a child never outlives its parent");
    world.submit(&client, Submission::Cancel { call: call.call }).unwrap();
    world.settle(&mut [&mut leaf, &mut middle, &mut client]);
    assert!(client.take().is_empty());
    let told = middle.take();
    assert!(
        told.contains(&Completion::Cancelled { call: delivered.call, code: Code::Cancelled }),
        "{told:?}"
    );
    let nested_end = told.iter().find_map(|completion| match completion {
        Completion::Finish(finish) => Some(*finish),
        _ => None,
    });
    assert_eq!(nested_end.map(|finish| finish.code), Some(Code::Cancelled));
    assert_eq!(leaf.take(), [Completion::Cancelled { call: at_leaf.call, code: Code::Cancelled }]);
}

/// A chain of calls, each made by the handler of the one before it, all of one application that serves itself.
struct Chain {
    world: World,
    app: App,
    depth: usize,
    head: CallId,
}

impl Chain {
    fn of(depth: usize, deadline_ns: Option<u64>) -> Self {
        let limits =
            Limits { calls_made_per_session: depth, calls_delivered_per_session: depth, ..Limits::default() };
        let mut world = World::with_limits(limits);
        let mut app = world.attach(0, PROTO, None, true);
        let mut parent = CallId(0);
        let mut head = None;
        for _ in 0..depth {
            let mut call = app.call(3, None, true);
            call.parent = parent;
            if let (true, Some(ns)) = (head.is_none(), deadline_ns) {
                call.deadline = Deadline::at(world.now.plus_ns(ns));
            }
            head.get_or_insert(call.call);
            world.submit(&app, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut app]);
            parent = app.take_call().call;
        }
        Self { world, app, depth, head: head.unwrap() }
    }

    /// Goes on until nothing happens any more; the codes calls ended with.
    fn end(&mut self) -> Vec<Code> {
        let (mut steps, mut codes) = (1, Vec::new());
        for round in 0.. {
            self.world.settle(&mut [&mut self.app]);
            let told = self.app.take();
            let before = codes.len();
            for completion in &told {
                if let Completion::Finish(finish) = completion {
                    codes.push(finish.code);
                    self.world.submit(&self.app, release(finish.call, None, finish.metadata, 9)).unwrap();
                }
            }
            let ended = codes.len() - before;
            assert!(ended <= steps * 512, "{ended} calls ended in {steps} steps");
            if round == 1 && self.depth <= 4_096 {
                self.world.replace_engines();
            }
            steps = 1 + ended;
            if !self.world.fire() && told.is_empty() {
                break;
            }
        }
        assert_eq!(self.world.leftovers(), (0, 0));
        codes
    }
}

/// However deep calls are nested, ending them takes no stack, and no step of it much time; a hand-over amid the steps
/// changes nothing.
#[test]
fn a_deep_chain_of_calls_ends_step_by_step() {
    for depth in [1, 300, 4_096, 100_000] {
        let mut chain = Chain::of(depth, None);
        chain.world.submit(&chain.app, Submission::Cancel { call: chain.head }).unwrap();
        assert_eq!(chain.end(), vec![Code::Cancelled; depth - 1]);
    }
}

/// All calls of a chain have one deadline.
#[test]
fn a_deep_chain_of_calls_expires_step_by_step() {
    let mut chain = Chain::of(4_096, Some(1_000_000));
    chain.world.now = chain.world.now.plus_ns(1_000_000);
    chain.world.fire();
    assert_eq!(chain.end(), vec![Code::DeadlineExceeded; 4_096]);
}

#[test]
fn nobody_serves_it() {
    let mut world = World::new();
    let mut client = world.attach(0, PROTO, None, false);
    let payload = world.blob(&mut client, b"x");
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client]);
    let outcome = client.take_finish();
    assert_eq!((outcome.code, outcome.execution), (Code::Unavailable, Execution::NotExecuted));
}

#[test]
fn an_unreachable_endpoint_fails_the_call_and_is_left_alone_for_a_while() {
    let mut world = World::new();
    world.unreachable = true;
    let mut client = world.attach(0, PROTO, TARGET, false);
    for attempt in 0..3 {
        let payload = world.blob(&mut client, b"x");
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client]);
        let outcome = client.take_finish();
        assert_eq!(
            (outcome.code, outcome.execution),
            (Code::Unavailable, Execution::NotExecuted),
            "{attempt}"
        );
        world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
    }
    world.unreachable = false;
    world.advance(10_000_000_000);
    let mut server = world.attach(1, PROTO, None, true);
    unary(&mut world, &mut client, &mut server, b"again");
}

/// What the calls a host has made are counted under, by all its shards.
fn peers_in_reports(world: &mut World, host: usize) -> Vec<(String, u64)> {
    let (now, shards) = (world.now, world.shards[host].clone());
    let mut of_shard = |shard: usize| {
        let series = world.hosts[shard].engine.telemetry().snapshot(now, &Ask::default()).series;
        let made = series.into_iter().filter(|one| one.side == Side::Made);
        made.map(|one| (one.peer, one.series.calls())).collect::<Vec<_>>()
    };
    shards.into_iter().flat_map(&mut of_shard).collect()
}

#[test]
fn calls_that_come_to_no_server_are_not_counted_as_calls_of_one_host() {
    for is_given_up in [false, true] {
        let mut world = World::new();
        world.unreachable = true;
        let mut client = world.attach(0, PROTO, TARGET, false);
        let payload = world.blob(&mut client, b"x");
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        if is_given_up {
            world.submit(&client, Submission::Cancel { call: call.call }).unwrap();
        }
        world.settle(&mut [&mut client]);
        for completion in client.take() {
            let Completion::Finish(end) = completion else { panic!("{completion:?}") };
            world.submit(&client, release(end.call, None, end.metadata, 9)).unwrap();
        }
        assert_eq!(peers_in_reports(&mut world, 0), [("tcp://127.0.0.1:1".to_owned(), 1)]);
    }
}

#[test]
fn a_lost_connection_says_what_is_known() {
    let mut world = World::new();
    let mut server = world.attach(1, PROTO, None, true);
    let mut client = world.attach(0, PROTO, TARGET, false);
    unary(&mut world, &mut client, &mut server, b"warm");
    let payload = world.blob(&mut client, b"x");
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let delivered = server.take_call();
    world.cut(0);
    world.settle(&mut [&mut client, &mut server]);
    let outcome = client.take_finish();
    assert_eq!((outcome.code, outcome.execution), (Code::Unavailable, Execution::Unknown));
    assert_eq!(server.take(), [Completion::Cancelled { call: delivered.call, code: Code::Cancelled }]);
    world.submit(&server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
    world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
    unary(&mut world, &mut client, &mut server, b"over a new connection");
    assert_eq!(world.leftovers(), (0, 0));
}

/// A call that waits for room on a connection has sent nothing when that is lost: it goes by the next one.
#[test]
fn what_waited_for_room_on_a_lost_connection_goes_by_another() {
    let limits = Limits { connection_queue_bytes: 100_000, bulk_body_bytes: 1 << 20, ..Limits::default() };
    let mut world = World::with_limits(limits);
    let mut server = world.attach(1, PROTO, None, true);
    let mut client = world.attach(0, PROTO, TARGET, false);
    unary(&mut world, &mut client, &mut server, b"warm");
    let [fills, waits] = [&[1; 200_000][..], b"waits"].map(|data| {
        let payload = world.blob(&mut client, data);
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        call.call
    });
    world.cut(0);
    world.settle(&mut [&mut client, &mut server]);
    let outcome = client.take_finish();
    assert_eq!((outcome.call, outcome.code), (fills, Code::Unavailable));
    world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
    let delivered = server.take_call();
    world.submit(&server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
    world.submit(&server, Submission::Finish(finish(delivered.call, Code::Aborted, None))).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let outcome = client.take_finish();
    assert_eq!((outcome.call, outcome.code), (waits, Code::Aborted));
    world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(world.leftovers(), (0, 0));
}

#[test]
fn a_handler_that_dies_ends_its_calls_only() {
    let mut world = World::new();
    let mut server = world.attach(1, PROTO, None, true);
    let mut client = world.attach(0, PROTO, TARGET, false);
    let payload = world.blob(&mut client, b"x");
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    server.take_call();
    world.detach(&server);
    world.settle(&mut [&mut client]);
    let outcome = client.take_finish();
    assert_eq!((outcome.code, outcome.execution), (Code::Unavailable, Execution::Unknown));
    let mut other = world.attach(1, PROTO, None, true);
    world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
    unary(&mut world, &mut client, &mut other, b"somebody else serves it");
}

#[test]
fn who_serves_no_new_calls_is_told_once_that_the_last_has_ended() {
    for asks in [true, false] {
        let mut world = World::new();
        let mut server = world.attach(0, PROTO, None, true);
        let mut client = world.attach(0, PROTO, None, false);
        let payload = world.blob(&mut client, b"x");
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        while world.cross_shards(usize::MAX) {}
        for _ in 0..2 {
            world.submit(&server, Submission::Drain { answer: asks }).unwrap();
        }
        world.settle(&mut [&mut client, &mut server]);
        // Which was on its way when the order was given; nothing else is said before its end.
        let delivered = server.take_call();
        world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, None))).unwrap();
        world.submit(&server, Submission::Drain { answer: asks }).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let said = server.take();
        assert_eq!(said, if asks { vec![Completion::Drained] } else { Vec::new() });
        let mut idle = world.attach(0, PROTO, None, true);
        world.submit(&idle, Submission::Drain { answer: asks }).unwrap();
        world.settle(&mut [&mut client, &mut idle]);
        assert_eq!(idle.take(), said);
    }
}

/// A call that is under way reaches the method it names, whatever its server serves by then.
#[test]
fn a_call_that_waits_while_its_server_drains_reaches_its_method() {
    let mut world = World::new();
    let mut server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    world.hosts[server.host].engine.plant(Plant { request_hold_ns: 1000, ..Plant::default() });
    let payload = world.blob(&mut client, b"x");
    let call = client.call(2, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    while world.cross_shards(usize::MAX) {}
    world.submit(&server, Submission::Drain { answer: false }).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(server.take(), [], "it is held");
    world.advance(1000);
    world.settle(&mut [&mut client, &mut server]);
    let delivered = server.take_call();
    let method = server.served.iter().find(|(_, route)| *route == delivered.route);
    assert!(method.is_some_and(|(path, _)| path.ends_with("/Scatter")), "{method:?}");
}

#[test]
fn a_full_receive_heap_holds_calls_back_and_loses_none() {
    for (host, target) in [(0, None), (1, TARGET)] {
        let mut world = World::new();
        let mut server = world.attach_sized(host, PROTO, None, true, 256 << 10);
        let mut client = world.attach(0, PROTO, target, false);
        for number in 0..20u8 {
            let payload = world.blob(&mut client, &vec![number; 50_000]);
            let call = client.call(0, Some(payload), true);
            world.submit(&client, Submission::Call(call)).unwrap();
        }
        let mut seen = Vec::new();
        while seen.len() < 20 {
            world.settle(&mut [&mut client, &mut server]);
            let calls = server.take();
            assert!(!calls.is_empty(), "stuck after {seen:?}");
            for completion in calls {
                let Completion::Call(call) = completion else { panic!("{completion:?}") };
                seen.push(world.data(&server, call.payload.unwrap())[0]);
                world.submit(&server, release(call.call, call.payload, call.metadata, 0)).unwrap();
                world.submit(&server, Submission::Finish(finish(call.call, Code::Ok, None))).unwrap();
            }
        }
        assert_eq!(seen, (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn a_message_no_heap_can_hold_is_refused_by_name() {
    let mut world = World::new();
    let mut server = world.attach_sized(0, PROTO, None, true, 128 << 10);
    let mut client = world.attach(0, PROTO, None, false);
    let payload = world.blob(&mut client, &vec![0; 200_000]);
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(client.take_finish().code, Code::ResourceExhausted);
}

#[test]
fn too_many_calls_are_refused_by_name() {
    let mut world = World::with_limits(Limits { calls_made_per_session: 3, ..Limits::default() });
    let mut server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    for _ in 0..4 {
        let payload = world.blob(&mut client, b"x");
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
    }
    world.settle(&mut [&mut client, &mut server]);
    let outcome = client.take_finish();
    assert_eq!((outcome.code, outcome.execution), (Code::ResourceExhausted, Execution::NotExecuted));
    assert_eq!(server.take().len(), 3);
}

/// What a caller is told when its call ends.
fn told(world: &World, client: &mut App) -> (Code, String) {
    let outcome = client.take_finish();
    (outcome.code, format!("{:?}", world.metadata(client, outcome.metadata)))
}

/// What is not there is said to be gone, and not to be full or draining.
#[test]
fn a_service_that_is_configured_away_is_nobodys() {
    let mut world = World::new();
    let engine = &mut world.hosts[0].engine;
    engine.configure_service("world.Echo", &[TARGET.unwrap().to_owned()]).unwrap();
    let mut client = world.attach(0, PROTO, None, false);
    let payload = world.blob(&mut client, b"x");
    let call = client.call(0, Some(payload), true);
    // It waits for a connection when its last endpoint is taken away.
    world.submit(&client, Submission::Call(call)).unwrap();
    world.hosts[0].engine.configure_service("world.Echo", &[]).unwrap();
    world.unreachable = true;
    world.settle(&mut [&mut client]);
    let (code, words) = told(&world, &mut client);
    assert_eq!(code, Code::Unavailable, "{words}");
    assert!(words.contains("nobody serves world.Echo"), "{words}");
}

#[test]
fn a_limit_names_its_key() {
    let mut world = World::with_limits(Limits { calls_made_per_session: 0, ..Limits::default() });
    let mut client = world.attach(0, PROTO, None, false);
    let payload = world.blob(&mut client, b"x");
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client]);
    let (code, words) = told(&world, &mut client);
    assert_eq!(code, Code::ResourceExhausted, "{words}");
    assert!(
        words.contains("limit of 0 reached: calls in flight per session (limits.calls_made_per_session)"),
        "{words}"
    );
}

/// Each session has its bound, and so have all those of a user together; what is refused says so, and there is room
/// again when calls are over.
#[test]
fn calls_of_all_sessions_of_a_user_are_bounded() {
    const SESSIONS: usize = 8;
    const CALLS: usize = 768;
    // The first 256 of each session are not counted.
    const MAX: usize = SESSIONS * 256 + 1024;
    let mut world = World::with_limits(Limits { held_bytes_per_source: 1 << 20, ..Limits::default() });
    let mut clients: Vec<App> = (0..SESSIONS).map(|_| world.attach(0, PROTO, None, false)).collect();
    // Nobody serves them: each ends at once, and is kept until its end is released.
    for client in &mut clients {
        for _ in 0..CALLS {
            let call = client.call(3, None, true);
            world.submit(client, Submission::Call(call)).unwrap();
        }
    }
    world.settle(&mut clients.iter_mut().collect::<Vec<_>>());
    let (mut made, mut words) = (0, String::new());
    for client in &mut clients {
        for completion in client.take() {
            let Completion::Finish(end) = completion else { continue };
            match end.code {
                Code::ResourceExhausted => words = format!("{:?}", world.metadata(client, end.metadata)),
                _ => made += 1,
            }
            world.submit(client, release(end.call, None, end.metadata, 9)).unwrap();
        }
    }
    assert_eq!(made, MAX);
    assert!(words.contains("bytes held for one address or user (limits.held_bytes_per_source)"), "{words}");
    assert_eq!(world.leftovers(), (0, 0));
    let last = clients.last_mut().unwrap();
    for _ in 0..CALLS {
        let call = last.call(3, None, true);
        world.submit(last, Submission::Call(call)).unwrap();
    }
    world.settle(&mut [&mut *last]);
    let ends = last.take().into_iter();
    let refused =
        |end: &Completion| matches!(end, Completion::Finish(end) if end.code == Code::ResourceExhausted);
    assert_eq!(ends.filter(refused).count(), 0);
}

/// Refused calls are kept until they are released, and no more of them than a session may have calls.
#[test]
fn whoever_goes_on_when_its_calls_are_refused_is_detached() {
    let mut world = World::with_limits(Limits { calls_made_per_session: 100, ..Limits::default() });
    let mut client = world.attach(0, PROTO, None, false);
    let payload = world.blob(&mut client, b"x");
    let mut made = 0;
    let fault = loop {
        let call = client.call(0, Some(payload), true);
        match world.submit(&client, Submission::Call(call)) {
            Ok(()) => made += 1,
            Err(fault) => break fault,
        }
    };
    assert_eq!(made, 200);
    assert!(fault.to_string().contains("100 calls in flight (limits.calls_made_per_session)"), "{fault}");
}

#[test]
fn an_id_of_the_wrong_direction_is_nobodys() {
    let mut world = World::new();
    let mut client = world.attach(0, PROTO, None, false);
    let stray = CallId(CallId::DELIVERED | 77);
    let payload = world.blob(&mut client, b"x");
    world.submit(&client, Submission::Finish(finish(stray, Code::Ok, Some(payload)))).unwrap();
    world.submit(&client, Submission::Cancel { call: CallId(5) }).unwrap();
    world.settle(&mut [&mut client]);
    assert!(client.take().is_empty());
}

/// A request that is none is its caller's to mend: INVALID_ARGUMENT, and the limit by its number.
#[test]
fn a_request_that_nests_too_deep_is_refused_by_name() {
    const NESTING: &str = "syntax = \"proto3\"; package world; message Blob { bytes data = 1; Blob inner = 3; }
        service Echo { rpc Once(Blob) returns (Blob); rpc Gather(stream Blob) returns (Blob);
                       rpc Scatter(Blob) returns (stream Blob); rpc Chat(stream Blob) returns (stream Blob); }";
    let nested = |levels: usize| {
        (0..levels).fold(Vec::new(), |inner: Vec<u8>, _| {
            let length = [inner.len() as u8 & 0x7f | 0x80, (inner.len() >> 7) as u8];
            [&[0x1a][..], &length, &inner].concat()
        })
    };
    for (server_at, opaque_client) in [(0, false), (0, true), (1, true)] {
        let mut world = World::new();
        let mut server = world.attach(server_at, NESTING, None, true);
        let target = if server_at == 1 { TARGET } else { None };
        let mut client = match opaque_client {
            true => world.attach_opaque(0, target, false),
            false => world.attach(0, NESTING, target, false),
        };
        for levels in [101, 100] {
            let payload = world.put(&mut client, &nested(levels), Encoding::Protobuf);
            let call = client.call(0, Some(payload), true);
            world.submit(&client, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            if levels == 100 {
                assert_eq!(server.take().len(), 1, "delivered");
                continue;
            }
            assert!(server.take().is_empty());
            let outcome = client.take_finish();
            assert_eq!((outcome.code, outcome.execution), (Code::InvalidArgument, Execution::NotExecuted));
            let said = String::from_utf8_lossy(world.received(&client, outcome.metadata)).into_owned();
            assert!(said.contains("nested deeper than 100 messages in world.Blob"), "{said:?} {outcome:?}");
            world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
        }
    }
}

/// Two versions of a type on a host lose speed, and nothing else: a sparse message is short as protobuf, and its sender
/// has had all of it.
#[test]
fn a_sparse_message_reaches_another_version_of_its_type() {
    let proto = |fields: usize| {
        let fields: String = (1..=fields).map(|number| format!("fixed64 f{number} = {number};")).collect();
        let blob = "message Blob { bytes data = 1; string note = 2; repeated Row rows = 3; }";
        let world = PROTO.replace("message Blob { bytes data = 1; string note = 2; }", blob);
        format!("{world} message Row {{ {fields} }}")
    };
    let mut world = World::new();
    let mut server = world.attach(0, &proto(201), None, true);
    let mut client = world.attach(0, &proto(200), None, false);
    let payload = world.linear(&mut client, &[0x1a, 0].repeat(2_000));
    assert!(payload.span.len > 3 << 20);
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert!(server.take_call().payload.unwrap().span.len > 3 << 20);
}

#[test]
fn a_large_malformed_message_leaves_no_block_behind() {
    let mut world = World::new();
    let mut server = world.attach(1, PROTO, None, true);
    let mut client = world.attach(0, PROTO, TARGET, false);
    unary(&mut world, &mut client, &mut server, b"so that linear is agreed");
    let mut bytes = vec![0xff; 100_000];
    bytes[..2].copy_from_slice(b"TL");
    let payload = world.put(&mut client, &bytes, Encoding::Linear);
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let outcome = client.take_finish();
    assert_eq!((outcome.code, outcome.execution), (Code::InvalidArgument, Execution::NotExecuted));
    assert!(server.take().is_empty(), "nothing unchecked reaches an application");
    world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
    world.advance(1);
    assert_eq!(world.leftovers(), (0, 0));
}

#[test]
fn a_deadline_while_a_large_message_arrives() {
    let mut world = World::new();
    world.piece_bytes = 1000;
    let mut server = world.attach(1, PROTO, None, true);
    let mut client = world.attach(0, PROTO, TARGET, false);
    unary(&mut world, &mut client, &mut server, b"warm");
    let payload = world.blob(&mut client, &vec![1; 500_000]);
    let mut call = client.call(0, Some(payload), true);
    call.deadline = Deadline::at(world.now.plus_ns(100));
    world.submit(&client, Submission::Call(call)).unwrap();
    for _ in 0..50 {
        world.step(&mut [&mut client, &mut server]);
    }
    world.advance(100);
    world.settle(&mut [&mut client, &mut server]);
    let outcome = client.take_finish();
    assert_eq!(outcome.code, Code::DeadlineExceeded);
    assert!(!server.take().iter().any(|c| matches!(c, Completion::Call(_))), "half a message is no call");
    world.submit(&client, release(outcome.call, None, outcome.metadata, 9)).unwrap();
    world.advance(1);
    assert_eq!(world.leftovers(), (0, 0));
    unary(&mut world, &mut client, &mut server, b"and the connection goes on");
}

/// The blocks of many calls' metadata come back by themselves, and nothing that follows waits behind them.
#[test]
fn metadata_of_many_calls_at_once_holds_nothing_up() {
    let mut world = World::new();
    let mut server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    let mut metadata = Metadata::new();
    metadata.insert("tenant", "blue").unwrap();
    for _ in 0..100 {
        let metadata = world.put_metadata(&mut client, &metadata);
        let call = client.call(3, None, false);
        world.submit(&client, Submission::Call(Call { metadata, ..call })).unwrap();
    }
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(server.take().len(), 100);
    let (seen, _) = unary(&mut world, &mut client, &mut server, &data_of(100));
    assert_eq!(seen, data_of(100));
}

/// A server may end a client's stream whenever it likes, with an answer that arrives in parts: whatever the client
/// sends meanwhile, and wherever the answer is then, the answer is the outcome.
#[test]
fn a_long_answer_to_an_unfinished_stream_is_the_outcome() {
    for steps in 0..30 {
        for (last, sends) in [(false, true), (true, true), (true, false)] {
            let mut world = World::new();
            world.piece_bytes = 20_000;
            let mut server = world.attach(1, PROTO, None, true);
            let mut client = world.attach(0, PROTO, TARGET, false);
            let call = client.call(1, None, false);
            world.submit(&client, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            let delivered = server.take_call();
            let answer = data_of(256 << 10);
            let reply = world.blob(&mut server, &answer);
            world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, Some(reply)))).unwrap();
            for _ in 0..steps {
                world.step(&mut [&mut client, &mut server]);
            }
            if sends {
                for bytes in [10, 300_000] {
                    let payload = world.blob(&mut client, &data_of(bytes));
                    let end = last && bytes > 10;
                    let more = Submission::Message { call: call.call, payload, end, a1: Instant(1) };
                    world.submit(&client, more).unwrap();
                }
            } else {
                world.submit(&client, Submission::HalfClose { call: call.call }).unwrap();
            }
            world.settle(&mut [&mut client, &mut server]);
            let completions = client.take();
            let outcome = completions.iter().find_map(|completion| match completion {
                Completion::Finish(finish) => Some(*finish),
                _ => None,
            });
            let outcome = outcome.expect("the call has ended");
            assert_eq!(
                (outcome.code, outcome.execution),
                (Code::Ok, Execution::Executed),
                "after {steps} steps"
            );
            assert!(world.data(&client, outcome.payload.unwrap()) == answer);
            world.submit(&client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            assert_eq!(world.leftovers(), (0, 0));
        }
    }
}

/// The same when the answer is here, and waits for room in the caller's heap.
#[test]
fn an_answer_that_waits_for_room_is_the_outcome() {
    let mut world = World::new();
    let mut server = world.attach(1, PROTO, None, true);
    let mut client = world.attach_sized(0, PROTO, TARGET, false, 1 << 20);
    let long = data_of(700_000);
    let mut finishes = Vec::new();
    let mut calls = Vec::new();
    for _ in 0..2 {
        let call = client.call(1, None, false);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let delivered = server.take_call();
        let reply = world.blob(&mut server, &long);
        world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, Some(reply)))).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        calls.push(call.call);
        finishes.extend(client.take());
    }
    let [Completion::Finish(first)] = finishes[..] else { panic!("one fits: {finishes:?}") };
    for end in [false, true] {
        let payload = world.blob(&mut client, b"more");
        let more = Submission::Message { call: calls[1], payload, end, a1: Instant(1) };
        world.submit(&client, more).unwrap();
        world.settle(&mut [&mut client, &mut server]);
    }
    client.take();
    world.submit(&client, release(first.call, first.payload, first.metadata, 9)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let second = client.take_finish();
    assert_eq!((second.call, second.code, second.execution), (calls[1], Code::Ok, Execution::Executed));
    world.submit(&client, release(second.call, second.payload, second.metadata, 9)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(world.leftovers(), (0, 0));
}

/// However long a message may be, it holds for whoever sends it: answers and messages of streams, too.
#[test]
fn no_message_is_longer_than_any_may_be() {
    for host in [0, 1] {
        let limits = Limits { message_bytes: 2000, ..Limits::default() };
        let mut world = World::with_limits(limits);
        let mut server = world.attach(host, PROTO, None, true);
        let mut client = world.attach(0, PROTO, if host == 0 { None } else { TARGET }, false);
        for (bytes, code) in [(1900, Code::Ok), (2100, Code::ResourceExhausted)] {
            let payload = world.blob(&mut client, &data_of(10));
            let call = client.call(0, Some(payload), true);
            world.submit(&client, Submission::Call(call)).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            let delivered = server.take_call();
            world.submit(&server, release(delivered.call, delivered.payload, delivered.metadata, 0)).unwrap();
            let reply = world.blob(&mut server, &data_of(bytes));
            world.submit(&server, Submission::Finish(finish(delivered.call, Code::Ok, Some(reply)))).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            let outcome = client.take_finish();
            assert_eq!(
                (outcome.call, outcome.code),
                (call.call, code),
                "an answer of {bytes} on host {host}"
            );
            world.submit(&client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
        }
        let stream = client.call(1, None, false);
        world.submit(&client, Submission::Call(stream)).unwrap();
        let payload = world.blob(&mut client, &data_of(2100));
        let message = Submission::Message { call: stream.call, payload, end: true, a1: Instant(1) };
        world.submit(&client, message).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let outcome = client.take_finish();
        assert_eq!((outcome.call, outcome.code), (stream.call, Code::ResourceExhausted), "host {host}");
        world.submit(&client, release(outcome.call, outcome.payload, outcome.metadata, 9)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(world.leftovers().0, 0);
    }
}

/// Whoever makes a call pays for what its handler does for it, and for nothing else the handler says.
#[test]
fn what_a_handler_says_to_no_effect_is_its_own_to_pay() {
    let mut world = World::with_limits(Limits { message_bytes: 2000, ..Limits::default() });
    let mut server = world.attach(0, PROTO, None, true);
    let mut client = world.attach(0, PROTO, None, false);
    let payload = world.blob(&mut client, &data_of(10));
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    let call = server.take_call().call;
    let (host, key) = (server.host, server.key);
    let payer = |world: &World, said: &Submission| world.hosts[host].engine.on_behalf_of(key, &said.encode());
    let headers = Submission::Headers { call, metadata: trunkline_call::entry::Span::default() };
    assert_eq!(payer(&world, &headers), client.key);
    world.submit(&server, headers).unwrap();
    assert_eq!(payer(&world, &headers), key, "headers a second time");
    let (short, long) = (world.blob(&mut server, &[1; 100]), world.blob(&mut server, &[1; 2100]));
    let end = |payload| Submission::Finish(finish(call, Code::Ok, Some(payload)));
    assert_eq!(payer(&world, &end(short)), client.key);
    assert_eq!(payer(&world, &end(long)), key, "what is refused");
    world.submit(&server, end(short)).unwrap();
    assert_eq!(payer(&world, &end(short)), key, "an end after the end");
}

/// Calls that end while they wait for room on a connection, or in a receive heap, are not kept in those lines.
#[test]
fn calls_that_end_in_line_are_not_kept_there() {
    for over_a_connection in [true, false] {
        let limits =
            Limits { connection_queue_bytes: 100_000, bulk_body_bytes: 1 << 20, ..Limits::default() };
        let mut world = World::with_limits(limits);
        let serving = usize::from(over_a_connection);
        let mut server = world.attach_sized(serving, PROTO, None, true, 64 << 10);
        let mut client = world.attach(0, PROTO, TARGET.filter(|_| over_a_connection), false);
        unary(&mut world, &mut client, &mut server, b"warm");
        for link in &mut world.links {
            link.up = false;
        }
        for round in 0..1000 {
            let payload = world.blob(&mut client, &vec![1; 20_000]);
            let deadline = if round < 20 { Deadline::NONE } else { Deadline::at(world.now.plus_ns(1000)) };
            let call = Call { deadline, ..client.call(0, Some(payload), true) };
            world.submit(&client, Submission::Call(call)).unwrap();
            world.advance(2000);
            world.settle(&mut [&mut client, &mut server]);
            for completion in client.take() {
                if let Completion::Finish(finish) = completion {
                    world.submit(&client, release(finish.call, finish.payload, finish.metadata, 9)).unwrap();
                }
            }
            assert!(world.entries_in_line() <= 200, "{round}: {}", world.entries_in_line());
        }
        assert!(world.entries_in_line() > 0);
    }
}
