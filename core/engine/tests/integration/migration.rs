//! Shows that sessions go from shard to shard while their calls are in flight, at either end: every call ends once, as
//! if nothing had been, whoever calls them meanwhile finds them, and nothing is left.

use crate::world;

use trunkline_call::entry::{Completion, Submission};
use trunkline_call::{CallId, Code, Deadline, Execution, Instant};
use trunkline_engine::{Limits, ShardIndex, Stays, Turn, export_state, release_session, shards_needed};
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_grpc::{Event, Reason, StreamTag};
use trunkline_policy::{Chain, Definition, Side};
use trunkline_telemetry::Coverage;
use world::web::blob;
use world::*;

/// The shards of the near host in a world of three, by their places among its hosts.
const SHARDS: [usize; 3] = [0, 2, 4];

fn world() -> World {
    World::with_shards(Limits::default(), 3)
}

fn attach(world: &mut World, host: usize, serves: bool) -> App {
    world.placed = Some(host);
    world.attach(0, PROTO, None, serves)
}

fn open(world: &mut World, client: &mut App, method: usize, data: &[u8], end: bool) -> CallId {
    let payload = world.blob(client, data);
    let call = client.call(method, Some(payload), end);
    world.submit(client, Submission::Call(call)).unwrap();
    call.call
}

fn send(world: &mut World, app: &mut App, call: CallId, data: &[u8]) {
    let payload = world.blob(app, data);
    world.submit(app, Submission::Message { call, payload, end: false, a1: Instant(1) }).unwrap();
}

fn end(world: &mut World, server: &App, call: CallId) {
    world.submit(server, Submission::Finish(finish(call, Code::Ok, None))).unwrap();
}

/// The calls delivered, the bytes of messages, and the codes of calls that ended.
type Taken = (Vec<CallId>, Vec<Vec<u8>>, Vec<(CallId, Code)>);

/// Takes everything and releases it.
fn take(world: &mut World, app: &mut App) -> Taken {
    let (mut calls, mut messages, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    for completion in app.take() {
        match completion {
            Completion::Call(call) => {
                calls.push(call.call);
                messages.extend(call.payload.map(|payload| world.data(app, payload)));
                world.submit(app, release(call.call, call.payload, call.metadata, 0)).unwrap();
            }
            Completion::Message { call, payload, .. } => {
                messages.push(world.data(app, payload));
                world.submit(app, release(call, Some(payload), Default::default(), 0)).unwrap();
            }
            Completion::Finish(end) => {
                messages.extend(end.payload.map(|payload| world.data(app, payload)));
                ended.push((end.call, end.code));
                world.submit(app, release(end.call, end.payload, end.metadata, 9)).unwrap();
            }
            Completion::Cancelled { call, code } => ended.push((call, code)),
            _ => {}
        }
    }
    (calls, messages, ended)
}

/// Wherever the two ends of a stream sit, and whichever of them goes where, what each sends arrives in order and once.
#[test]
fn a_stream_goes_on_while_its_ends_move() {
    let mut world = world();
    let mut client = attach(&mut world, 0, false);
    let mut server = attach(&mut world, 0, true);
    let made = open(&mut world, &mut client, 3, b"first", false);
    world.settle(&mut [&mut client, &mut server]);
    let (calls, messages, _) = take(&mut world, &mut server);
    assert_eq!(messages, [b"first"]);
    let delivered = calls[0];
    let moves = [
        (true, 2),
        (false, 2),
        (false, 4),
        (true, 0),
        (true, 4),
        (false, 0),
        (true, 0),
        (true, 2),
        (false, 4),
    ];
    for (round, (moves_client, to)) in moves.into_iter().enumerate() {
        // Something is on its way in both directions.
        send(&mut world, &mut client, made, &[round as u8; 5000]);
        send(&mut world, &mut server, delivered, &[100 + round as u8; 300]);
        let app = if moves_client { &mut client } else { &mut server };
        assert!(world.migrate(app, to), "round {round}");
        send(&mut world, &mut client, made, &[50 + round as u8; 10]);
        world.settle(&mut [&mut client, &mut server]);
        let (_, messages, ended) = take(&mut world, &mut server);
        assert_eq!(
            messages,
            [vec![round as u8; 5000], vec![50 + round as u8; 10]],
            "round {round}: {ended:?}"
        );
        let (_, messages, ended) = take(&mut world, &mut client);
        assert_eq!(messages, [vec![100 + round as u8; 300]], "round {round}: {ended:?}");
    }
    end(&mut world, &server, delivered);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(take(&mut world, &mut client).2, [(made, Code::Ok)]);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(world.leftovers(), (0, 0));
}

/// Each shard waits for the word that a session has arrived at the other before it sends anything about calls there: it
/// must not wait for that word itself.
#[test]
fn sessions_change_places() {
    for leaves_together in [false, true] {
        let mut world = world();
        let mut client = attach(&mut world, 0, false);
        let mut server = attach(&mut world, 2, true);
        let mut other = attach(&mut world, 2, false);
        let made = open(&mut world, &mut client, 3, b"first", false);
        world.settle(&mut [&mut client, &mut server, &mut other]);
        let delivered = take(&mut world, &mut server).0[0];
        // Nothing crosses until both have moved.
        let [leaving, followed] = if leaves_together {
            let both = [world.release(&client, 2).unwrap(), world.release(&other, 0).unwrap()];
            both.map(Some)
        } else {
            let leaving = world.release(&client, 2).unwrap();
            world.adopt(&mut client, leaving);
            [None, world.release(&other, 0)]
        };
        leaving.into_iter().for_each(|leaving| world.adopt(&mut client, leaving));
        world.adopt(&mut other, followed.unwrap());
        send(&mut world, &mut client, made, b"request");
        send(&mut world, &mut server, delivered, b"response");
        let also = open(&mut world, &mut other, 3, b"also", false);
        world.settle(&mut [&mut client, &mut server, &mut other]);
        let (calls, messages, _) = take(&mut world, &mut server);
        assert_eq!(calls.len(), 1);
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert_eq!(take(&mut world, &mut client).1, [b"response"]);
        end(&mut world, &server, delivered);
        end(&mut world, &server, calls[0]);
        world.settle(&mut [&mut client, &mut server, &mut other]);
        assert_eq!(take(&mut world, &mut client).2, [(made, Code::Ok)]);
        assert_eq!(take(&mut world, &mut other).2, [(also, Code::Ok)]);
        world.settle(&mut [&mut client, &mut server, &mut other]);
        assert_eq!(world.leftovers(), (0, 0));
    }
}

/// The call waits on the shard its server leaves. Whoever serves there next does not hear of it.
#[test]
fn a_call_given_up_while_its_server_is_on_its_way_does_not_begin() {
    for passes in [false, true] {
        let mut world = world();
        let (mut client, mut server) = (attach(&mut world, 0, false), attach(&mut world, 2, true));
        let leaving = world.release(&server, 4).unwrap();
        let mut call = client.call(3, None, false);
        if passes {
            call.deadline = Deadline::at(world.now.plus_ns(1_000));
        }
        world.submit(&client, Submission::Call(call)).unwrap();
        while world.cross_shards(usize::MAX) {}
        if passes {
            world.advance(1_000);
        } else {
            world.submit(&client, Submission::Cancel { call: call.call }).unwrap();
        }
        while world.cross_shards(usize::MAX) {}
        let mut next = attach(&mut world, 2, true);
        world.adopt(&mut server, leaving);
        world.settle(&mut [&mut client, &mut server, &mut next]);
        assert!(take(&mut world, &mut server).0.is_empty() && take(&mut world, &mut next).0.is_empty());
        let said = client.take().into_iter().find_map(|completion| match completion {
            Completion::Finish(finish) => Some((finish.code, finish.execution)),
            _ => None,
        });
        assert_eq!(said, passes.then_some((Code::DeadlineExceeded, Execution::NotExecuted)));
        world.audit();
    }
}

/// A request of one message that comes in parts is joined where it began, though its session has moved before the last
/// of them.
#[test]
fn a_request_in_parts_goes_on_while_its_session_moves() {
    for (serves_at, has_message) in [(0, true), (0, false), (1, true), (1, false), (2, true), (2, false)] {
        let mut world = world();
        let mut client = attach(&mut world, SHARDS[0], false);
        let mut server = attach(&mut world, SHARDS[serves_at], true);
        let made = match has_message {
            true => open(&mut world, &mut client, 0, b"whole", false),
            false => {
                let call = client.call(0, None, false);
                world.submit(&client, Submission::Call(call)).unwrap();
                call.call
            }
        };
        world.settle(&mut [&mut client, &mut server]);
        assert!(world.migrate(&mut client, SHARDS[1]));
        let rest = match has_message {
            true => Submission::HalfClose { call: made },
            false => {
                let payload = world.blob(&mut client, b"whole");
                Submission::Message { call: made, payload, end: true, a1: Instant(1) }
            }
        };
        world.submit(&client, rest).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        let (calls, messages, _) = take(&mut world, &mut server);
        assert_eq!(messages, [b"whole"], "{serves_at} {has_message}: {:?}", client.inbox);
        end(&mut world, &server, calls[0]);
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(take(&mut world, &mut client).2, [(made, Code::Ok)]);
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(world.leftovers(), (0, 0));
    }
}

/// A call that waits for the rest of its request moves with its session, and then takes several attempts: the one that
/// takes its place is known to the other shard by the same number.
#[test]
fn a_call_that_has_moved_is_given_up_by_its_attempt() {
    let mut world = world();
    world.foreign = true;
    let config = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.01s",
        "maxBackoff": "0.1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;
    let engine = &mut world.hosts[SHARDS[0]].engine;
    engine.configure_service("world.Echo", &["tcp://10.0.0.0:80".to_owned()]).unwrap();
    engine.configure_calls("world.Echo", ServiceConfig::parse(config).unwrap());
    let (mut client, server) = (attach(&mut world, SHARDS[0], false), attach(&mut world, SHARDS[0], true));
    let made = open(&mut world, &mut client, 0, b"whole", false);
    // Nobody serves it here any more.
    world.detach(&server);
    assert!(world.migrate(&mut client, SHARDS[1]));
    world.submit(&client, Submission::HalfClose { call: made }).unwrap();
    world.settle(&mut [&mut client]);
    world.http(0, Event::Ready { streams_max: 100 });
    world.settle(&mut [&mut client]);
    let stream = world.webs[0].newest();
    // It commits with the first word of an answer.
    world.answer(0, stream, 200, &[], false);
    world.settle(&mut [&mut client]);
    world.submit(&client, Submission::Cancel { call: made }).unwrap();
    world.settle(&mut [&mut client]);
    assert_eq!(world.webs[0].take(stream).reset, Some(Reason::CANCEL), "its server hears of it");
    world.bury();
    assert_eq!(world.leftovers(), (0, 0));
}

/// An answer that comes in parts waits for its end where the call began.
#[test]
fn an_answer_in_parts_is_whole_though_its_session_moves() {
    for serves_at in [SHARDS[0], SHARDS[1]] {
        let mut world = world();
        world.placed = Some(serves_at);
        let mut server = world.attach_opaque(0, None, true);
        let mut client = attach(&mut world, SHARDS[0], false);
        let made = open(&mut world, &mut client, 0, b"asked", true);
        world.settle(&mut [&mut client, &mut server]);
        let delivered = take(&mut world, &mut server).0[0];
        let payload = world.message(&mut server, b"answer");
        world
            .submit(&server, Submission::Message { call: delivered, payload, end: false, a1: Instant(1) })
            .unwrap();
        world.settle(&mut [&mut client, &mut server]);
        assert!(client.inbox.is_empty(), "its end is not there");
        assert!(world.migrate(&mut client, SHARDS[2]));
        end(&mut world, &server, delivered);
        world.settle(&mut [&mut client, &mut server]);
        let (_, messages, ended) = take(&mut world, &mut client);
        assert_eq!((messages, ended), (vec![b"answer".to_vec()], vec![(made, Code::Ok)]), "{serves_at}");
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(world.leftovers(), (0, 0));
        world.audit();
    }
}

/// What a policy of the client's side knows of an application it knows though that is on another shard by now, or the
/// engine is another.
#[test]
fn a_call_that_has_moved_is_judged_as_its_applications() {
    for (allow, expected) in
        [("application == 'app0'", Code::Ok), ("application != 'app0'", Code::PermissionDenied)]
    {
        for is_replaced in [false, true] {
            let mut world = world();
            let made_by = Definition {
                name: "made".into(),
                side: Side::Client,
                allow: Some(allow.into()),
                ..Definition::default()
            };
            for host in SHARDS {
                let chain = Chain::build(std::slice::from_ref(&made_by)).unwrap();
                world.hosts[host].engine.apply_policies(chain).unwrap();
            }
            let mut client = attach(&mut world, SHARDS[0], false);
            let mut server = attach(&mut world, SHARDS[0], true);
            let made = open(&mut world, &mut client, 0, b"whole", false);
            world.settle(&mut [&mut client, &mut server]);
            assert!(world.migrate(&mut client, SHARDS[1]));
            if is_replaced {
                world.replace_engines();
            }
            world.submit(&client, Submission::HalfClose { call: made }).unwrap();
            world.settle(&mut [&mut client, &mut server]);
            for call in take(&mut world, &mut server).0 {
                end(&mut world, &server, call);
            }
            world.settle(&mut [&mut client, &mut server]);
            assert_eq!(take(&mut world, &mut client).2, [(made, expected)], "{allow} {is_replaced}");
        }
    }
}

/// A session whose call was judged and waits for room stays: where the call crossed anew it would be judged anew.
#[test]
fn a_call_is_judged_once_though_its_server_is_to_move() {
    let mut world = world();
    let served = Definition {
        name: "served".into(),
        side: Side::Server,
        allow: Some("true".into()),
        ..Definition::default()
    };
    for host in SHARDS {
        let chain = Chain::build(std::slice::from_ref(&served)).unwrap();
        world.hosts[host].engine.apply_policies(chain).unwrap();
    }
    // The message of one call fills the server's heap: another waits until it is released.
    world.placed = Some(SHARDS[0]);
    let mut server = world.attach_sized(0, PROTO, None, true, 96 << 10);
    let mut client = attach(&mut world, SHARDS[0], false);
    for _ in 0..2 {
        open(&mut world, &mut client, 0, &[7; 60_000], true);
    }
    world.settle(&mut [&mut client, &mut server]);
    assert!(!world.migrate(&mut server, SHARDS[1]), "one waits");
    for _ in 0..2 {
        for call in take(&mut world, &mut server).0 {
            end(&mut world, &server, call);
        }
        world.settle(&mut [&mut client, &mut server]);
    }
    let seen = |host: usize| -> u64 {
        world.hosts[host].engine.policy_rows().iter().map(|row| row.figures.seen).sum()
    };
    assert_eq!(SHARDS.map(seen).iter().sum::<u64>(), 2);
    assert_eq!(take(&mut world, &mut client).2.len(), 2);
}

/// A call whose server has left comes back, and goes on where it was made, as if it had crossed: a daemon of one shard
/// has no way for it.
#[test]
fn a_call_that_came_back_needs_a_second_shard() {
    let mut world = world();
    let gone = attach(&mut world, SHARDS[1], true);
    let mut client = attach(&mut world, SHARDS[0], false);
    let made = open(&mut world, &mut client, 3, b"first", false);
    world.crossings_max = 0;
    let mut server = attach(&mut world, SHARDS[0], true);
    world.detach(&gone);
    world.crossings_max = usize::MAX;
    world.settle(&mut [&mut client, &mut server]);
    let delivered = take(&mut world, &mut server).0[0];
    let needed =
        |world: &World| shards_needed(&export_state(&world.hosts[SHARDS[0]].engine).unwrap().state).unwrap();
    assert_eq!(needed(&world), 2);
    end(&mut world, &server, delivered);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(take(&mut world, &mut client).2, [(made, Code::Ok)]);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(needed(&world), 0);
}

/// What a server had not read of a stream when it ended it stays its own where it goes, and is counted nowhere.
#[test]
fn a_server_moves_with_messages_of_a_stream_that_is_over() {
    let mut world = world();
    let mut server = attach(&mut world, SHARDS[0], true);
    let mut client = attach(&mut world, SHARDS[0], false);
    let made = open(&mut world, &mut client, 3, b"first", false);
    world.settle(&mut [&mut client, &mut server]);
    let taken = server.take();
    let [Completion::Call(call)] = taken[..] else { panic!("{taken:?}") };
    end(&mut world, &server, call.call);
    assert!(world.migrate(&mut server, SHARDS[1]));
    world.submit(&server, release(call.call, call.payload, call.metadata, 0)).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(take(&mut world, &mut client).2, [(made, Code::Ok)]);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(world.leftovers(), (0, 0));
}

/// A stream of a peer crosses to a server that is gone by then, and there is no other: what waited behind its opening
/// is not counted as what is to cross any more.
#[test]
fn nothing_waits_of_a_stream_that_came_back_to_nobody() {
    let mut world = world();
    let server = attach(&mut world, SHARDS[1], true);
    let web = world.web(SHARDS[0]);
    world.request(web, StreamTag(1), CHAT, &[], false);
    world.body(web, StreamTag(1), &blob(b"first"), false);
    world.body(web, StreamTag(1), &blob(b"second"), false);
    world.detach(&server);
    world.settle(&mut []);
    assert_eq!(world.webs[web].take(StreamTag(1)).code(), u32::from(Code::Unavailable.number()));
    world.nothing_left();
}

/// The other host sends its messages without their headers by then.
#[test]
fn a_stream_from_another_host_goes_on_while_its_server_moves() {
    let mut world = world();
    world.placed = Some(1);
    let mut server = world.attach(1, PROTO, None, true);
    world.placed = Some(0);
    let mut client = world.attach(0, PROTO, Some("tcp://10.0.0.2:7878"), false);
    let made = open(&mut world, &mut client, 3, b"first", false);
    world.settle(&mut [&mut client, &mut server]);
    let delivered = take(&mut world, &mut server).0[0];
    for (round, to) in [1, 3, 5, 1, 3].into_iter().enumerate() {
        send(&mut world, &mut client, made, &[round as u8; 5000]);
        world.settle(&mut [&mut client, &mut server]);
        assert!(to == server.host || world.migrate(&mut server, to), "round {round}");
        send(&mut world, &mut client, made, &[50 + round as u8; 10]);
        send(&mut world, &mut server, delivered, &[100 + round as u8; 300]);
        world.settle(&mut [&mut client, &mut server]);
        let (_, messages, ended) = take(&mut world, &mut server);
        let sent = [vec![round as u8; 5000], vec![50 + round as u8; 10]];
        assert_eq!(messages, sent, "round {round}: {ended:?}");
        let (_, messages, ended) = take(&mut world, &mut client);
        assert_eq!(messages, [vec![100 + round as u8; 300]], "round {round}: {ended:?}");
    }
    end(&mut world, &server, delivered);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(take(&mut world, &mut client).2, [(made, Code::Ok)]);
}

/// A window that is full stays full, and opens again when the receiver has released enough, wherever both are by then.
#[test]
fn credit_follows_a_session() {
    let mut world = world();
    let mut client = attach(&mut world, 0, false);
    let mut server = attach(&mut world, 2, true);
    let made = open(&mut world, &mut client, 3, b"first", false);
    world.settle(&mut [&mut client, &mut server]);
    let (_, _, _) = take(&mut world, &mut server);
    let window = Limits::default().stream_window_bytes as usize;
    let mut sent = 0;
    while sent + 70_000 < window {
        send(&mut world, &mut client, made, &vec![7; 65_536]);
        sent += 65_536;
    }
    world.settle(&mut [&mut client, &mut server]);
    assert!(world.migrate(&mut client, 4) && world.migrate(&mut server, 0));
    world.settle(&mut [&mut client, &mut server]);
    let (_, messages, _) = take(&mut world, &mut server);
    assert_eq!(messages.len(), sent / 65_536);
    world.settle(&mut [&mut client, &mut server]);
    let credit: u32 = client
        .take()
        .into_iter()
        .map(|completion| if let Completion::Credit { bytes, .. } = completion { bytes } else { 0 })
        .sum();
    assert!(credit as usize >= sent, "{credit} of {sent}");
    world.submit(&client, Submission::Cancel { call: made }).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(take(&mut world, &mut server).2.len(), 1, "it is told");
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(world.leftovers(), (0, 0));
}

/// Clients on every shard go on calling a service whose only server goes from shard to shard, at any moment of what
/// crosses: none is told that nobody serves it.
#[test]
fn whoever_calls_a_session_that_moves_finds_it() {
    for pieces in 0..6 {
        let mut world = world();
        world.crossings_max = 2;
        let mut server = attach(&mut world, 0, true);
        let [mut a, mut b, mut c] = SHARDS.map(|shard| attach(&mut world, shard, false));
        let (mut made, mut answered) = (0, 0);
        let mut codes = Vec::new();
        for round in 0..12 {
            for client in [&mut a, &mut b, &mut c] {
                open(&mut world, client, 0, b"x", true);
                made += 1;
            }
            for _ in 0..pieces {
                world.step(&mut [&mut a, &mut b, &mut c, &mut server]);
            }
            let leaving = world.release(&server, SHARDS[(round + 1) % 3]).unwrap();
            // While it is nowhere, it is called from everywhere.
            for client in [&mut b, &mut c, &mut a] {
                open(&mut world, client, 0, b"z", true);
                made += 1;
            }
            world.settle(&mut [&mut a, &mut b, &mut c]);
            world.adopt(&mut server, leaving);
            for client in [&mut c, &mut a, &mut b] {
                open(&mut world, client, 0, b"y", true);
                made += 1;
            }
            for _ in 0..30 {
                world.settle(&mut [&mut a, &mut b, &mut c, &mut server]);
                let (calls, ..) = take(&mut world, &mut server);
                answered += calls.len();
                calls.into_iter().for_each(|call| end(&mut world, &server, call));
                for client in [&mut a, &mut b, &mut c] {
                    codes.extend(take(&mut world, client).2);
                }
            }
        }
        assert_eq!(codes.iter().filter(|(_, code)| *code != Code::Ok).count(), 0, "{pieces}: {codes:?}");
        assert_eq!((codes.len(), answered), (made, made), "{pieces}: each was executed once");
        world.settle(&mut [&mut a, &mut b, &mut c, &mut server]);
        assert_eq!(world.leftovers(), (0, 0));
    }
}

/// Calls to another host stay on the connection they are on; those made afterwards get one of the new shard.
#[test]
fn calls_to_another_host_go_on() {
    let mut world = world();
    world.placed = Some(0);
    let mut client = world.attach(0, PROTO, Some("tcp://127.0.0.1:1"), false);
    world.placed = Some(1);
    let mut server = world.attach(1, PROTO, None, true);
    let stream = open(&mut world, &mut client, 3, b"first", false);
    world.settle(&mut [&mut client, &mut server]);
    let delivered = take(&mut world, &mut server).0[0];
    assert!(world.migrate(&mut client, 2));
    send(&mut world, &mut client, stream, b"second");
    let unary = open(&mut world, &mut client, 0, b"other", true);
    world.settle(&mut [&mut client, &mut server]);
    let (calls, mut messages, _) = take(&mut world, &mut server);
    messages.sort();
    assert_eq!(messages, [b"other".to_vec(), b"second".to_vec()]);
    assert_eq!(world.links.len(), 2, "another connection");
    // An answer that is larger than a window is on its way when the session moves on.
    send(&mut world, &mut server, delivered, &vec![9; 600_000]);
    for _ in 0..3 {
        world.step(&mut [&mut client, &mut server]);
    }
    let moved = (0..100).any(|_| {
        let moves = world.migrate(&mut client, 4);
        world.step(&mut [&mut client, &mut server]);
        moves
    });
    assert!(moved);
    end(&mut world, &server, delivered);
    end(&mut world, &server, calls[0]);
    world.settle(&mut [&mut client, &mut server]);
    let (_, messages, mut ended) = take(&mut world, &mut client);
    assert_eq!(messages, [vec![9; 600_000]]);
    ended.sort_by_key(|(call, _)| call.0);
    assert_eq!(ended, [(stream, Code::Ok), (unary, Code::Ok)]);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(world.leftovers(), (0, 0));
    // Where the session is now they are counted as calls to that host, with its stamps.
    let telemetry = world.hosts[4].engine.telemetry();
    let rows: Vec<_> = telemetry.recorder().recent().collect();
    let to: Vec<_> =
        rows.iter().map(|row| (telemetry.peer_name(row.peer), row.components.coverage)).collect();
    assert_eq!(to, [("far", Coverage::Whole); 2], "{rows:#?}");
}

/// Calls a handler has made end with the call it handles, wherever it went with both.
#[test]
fn calls_made_by_a_handler_end_with_its_call() {
    let mut world = world();
    let mut client = attach(&mut world, 2, false);
    let mut middle = attach(&mut world, 0, true);
    world.placed = Some(1);
    let mut last = world.attach(1, PROTO, None, true);
    let made = open(&mut world, &mut client, 0, b"x", true);
    world.settle(&mut [&mut client, &mut middle, &mut last]);
    let outer = take(&mut world, &mut middle).0[0];
    let payload = world.blob(&mut middle, b"nested");
    let mut call = middle.call(0, Some(payload), true);
    call.parent = outer;
    world.submit(&middle, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut middle, &mut last]);
    let inner = take(&mut world, &mut middle).0[0];
    assert!(world.migrate(&mut middle, 4));
    world.settle(&mut [&mut client, &mut middle, &mut last]);
    world.submit(&client, Submission::Cancel { call: made }).unwrap();
    world.settle(&mut [&mut client, &mut middle, &mut last]);
    let mut ended = take(&mut world, &mut middle).2;
    ended.sort_by_key(|(call, _)| call.0);
    let mut told = vec![(call.call, Code::Cancelled), (outer, Code::Cancelled), (inner, Code::Cancelled)];
    told.sort_by_key(|(call, _)| call.0);
    assert_eq!(ended, told);
    world.settle(&mut [&mut client, &mut middle, &mut last]);
    assert_eq!(world.leftovers(), (0, 0));
}

/// The calls its handler makes stay known with a call whose client moves: they end with it.
#[test]
fn calls_made_by_a_handler_end_with_the_call_of_a_client_that_moved() {
    let mut world = world();
    let mut client = attach(&mut world, 0, false);
    let mut middle = attach(&mut world, 0, true);
    let outer_call = open(&mut world, &mut client, 0, b"x", true);
    world.settle(&mut [&mut client, &mut middle]);
    let outer = take(&mut world, &mut middle).0[0];
    // The only server is called by its own handler.
    let payload = world.blob(&mut middle, b"nested");
    let mut call = middle.call(0, Some(payload), true);
    call.parent = outer;
    world.submit(&middle, Submission::Call(call)).unwrap();
    world.settle(&mut [&mut client, &mut middle]);
    let inner = take(&mut world, &mut middle).0[0];
    assert!(world.migrate(&mut client, 2));
    world.settle(&mut [&mut client, &mut middle]);
    world.submit(&client, Submission::Cancel { call: outer_call }).unwrap();
    world.settle(&mut [&mut client, &mut middle]);
    let mut ended = take(&mut world, &mut middle).2;
    ended.sort_by_key(|(call, _)| call.0);
    let mut told = vec![(call.call, Code::Cancelled), (outer, Code::Cancelled), (inner, Code::Cancelled)];
    told.sort_by_key(|(call, _)| call.0);
    assert_eq!(ended, told);
    world.settle(&mut [&mut client, &mut middle]);
    assert_eq!(world.leftovers(), (0, 0));
}

/// A session that dies, and a deadline that passes, after a move end what they would have ended before it.
#[test]
fn calls_end_as_before_after_a_move() {
    for moves_client in [true, false] {
        let mut world = world();
        let mut client = attach(&mut world, 0, false);
        let mut server = attach(&mut world, 0, true);
        let payload = world.blob(&mut client, b"x");
        let mut call = client.call(0, Some(payload), true);
        call.deadline = Deadline::at(world.now.plus_ns(1_000));
        world.submit(&client, Submission::Call(call)).unwrap();
        let waiting = open(&mut world, &mut client, 0, b"y", true);
        world.settle(&mut [&mut client, &mut server]);
        let delivered = take(&mut world, &mut server).0;
        assert_eq!(delivered.len(), 2);
        let app = if moves_client { &mut client } else { &mut server };
        assert!(world.migrate(app, 2));
        world.settle(&mut [&mut client, &mut server]);
        world.advance(1_001);
        world.settle(&mut [&mut client, &mut server]);
        assert_eq!(take(&mut world, &mut client).2, [(call.call, Code::DeadlineExceeded)]);
        assert_eq!(take(&mut world, &mut server).2, [(delivered[0], Code::DeadlineExceeded)]);
        world.detach(&server);
        world.settle(&mut [&mut client]);
        assert_eq!(take(&mut world, &mut client).2, [(waiting, Code::Unavailable)]);
        world.settle(&mut [&mut client]);
        world.bury();
        assert_eq!(world.leftovers(), (0, 0));
    }
}

/// Engines that are replaced go on with what moved before, and with what is on its way between them.
#[test]
fn a_move_outlives_the_engines() {
    let mut world = world();
    let mut client = attach(&mut world, 0, false);
    let mut server = attach(&mut world, 0, true);
    let made = open(&mut world, &mut client, 3, b"first", false);
    world.settle(&mut [&mut client, &mut server]);
    let delivered = take(&mut world, &mut server).0[0];
    for to in [2, 4, 0, 2] {
        send(&mut world, &mut client, made, b"before");
        assert!(world.migrate(&mut server, to));
        world.replace_engines();
        send(&mut world, &mut server, delivered, b"after");
        world.replace_engines();
        world.settle(&mut [&mut client, &mut server]);
        world.replace_engines();
        assert_eq!(take(&mut world, &mut server).1, [b"before"]);
        assert_eq!(take(&mut world, &mut client).1, [b"after"]);
    }
    end(&mut world, &server, delivered);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(take(&mut world, &mut client).2, [(made, Code::Ok)]);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(world.leftovers(), (0, 0));
}

/// What keeps a session where it is.
#[test]
fn a_session_stays_where_it_is_wanted() {
    let mut world = world();
    let mut client = attach(&mut world, 0, false);
    world.placed = Some(0);
    let standing = world.attach_standing_by(0);
    world.settle(&mut [&mut client]);
    let ask = |world: &mut World, key, to| {
        let Host { engine, heaps } = &mut world.hosts[0];
        release_session(engine, &mut Turn { now: world.now, heaps }, key, ShardIndex(to)).map(|_| ())
    };
    assert_eq!(ask(&mut world, standing.key, 1), Err(Stays::OfTheHouse));
    assert_eq!(ask(&mut world, client.key, 3), Err(Stays::Leaving), "there is no such shard");
    world.submit(&client, Submission::Drain { answer: false }).unwrap();
    assert_eq!(ask(&mut world, client.key, 1), Err(Stays::Leaving));
}

/// What waits in its own heap is copied where it moves: more than it may have between shards keeps it where it is,
/// until that is taken.
#[test]
fn a_session_stays_while_much_of_it_waits() {
    let limits = Limits { parked_bytes_per_session: 1 << 20, ..Limits::default() };
    let mut world = World::with_shards(limits, 3);
    world.placed = Some(0);
    // Room for one of the large messages.
    let mut server = world.attach_sized(0, PROTO, None, true, 512 << 10);
    let mut client = attach(&mut world, 0, false);
    let data = vec![7; 400 << 10];
    let made: Vec<CallId> = (0..8).map(|_| open(&mut world, &mut client, 0, &data, true)).collect();
    world.settle(&mut [&mut client, &mut server]);
    let ask = |world: &mut World, client: &App| {
        let Host { engine, heaps } = &mut world.hosts[0];
        release_session(engine, &mut Turn { now: world.now, heaps }, client.key, ShardIndex(1)).map(|_| ())
    };
    assert_eq!(ask(&mut world, &client), Err(Stays::Full));
    let mut answered = 0;
    while answered < made.len() - 2 {
        let (calls, ..) = take(&mut world, &mut server);
        calls.iter().for_each(|call| end(&mut world, &server, *call));
        answered += calls.len();
        world.settle(&mut [&mut client, &mut server]);
    }
    assert!(world.migrate(&mut client, 2), "two wait at most");
    while answered < made.len() {
        let (calls, ..) = take(&mut world, &mut server);
        calls.iter().for_each(|call| end(&mut world, &server, *call));
        answered += calls.len();
        world.settle(&mut [&mut client, &mut server]);
    }
    assert_eq!(take(&mut world, &mut client).2.len(), made.len());
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(world.leftovers(), (0, 0));
}

/// The deadline of a call passes whose client has moved. Three shards have the call, and only the one with the handler
/// knows whether that has seen it; those between are asked while they wait for the answer themselves.
#[test]
fn a_deadline_says_what_is_known_two_shards_away() {
    for seen in [false, true] {
        let mut world = world();
        // The message of one call fills the server's heap: another waits until it is released.
        world.placed = Some(SHARDS[1]);
        let mut server = world.attach_sized(0, PROTO, None, true, 96 << 10);
        let mut client = attach(&mut world, SHARDS[0], false);
        if !seen {
            open(&mut world, &mut client, 0, &[0; 60_000], true);
        }
        let at = Deadline::at(world.now.plus_ns(1_000_000));
        let payload = world.blob(&mut client, &[1; 60_000]);
        let mut call = client.call(0, Some(payload), true);
        call.deadline = at;
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client, &mut server]);
        assert!(world.migrate(&mut client, SHARDS[2]));
        world.settle(&mut [&mut client, &mut server]);
        world.advance(1_000_000);
        world.settle(&mut [&mut client, &mut server]);
        let outcome = client.take_finish();
        let executed = if seen { Execution::Unknown } else { Execution::NotExecuted };
        assert_eq!((outcome.call, outcome.code), (call.call, Code::DeadlineExceeded));
        assert_eq!(outcome.execution, executed, "seen: {seen}");
    }
}

/// Each move adds a call that hands on what is said: nobody makes as many as they like by moving.
#[test]
fn a_session_that_moves_to_and_fro_with_a_stream_comes_to_rest() {
    let mut world = world();
    let (mut client, mut server) = (attach(&mut world, 0, false), attach(&mut world, 0, true));
    let made = open(&mut world, &mut client, 3, b"first", false);
    world.settle(&mut [&mut client, &mut server]);
    let delivered = take(&mut world, &mut server).0[0];
    let moves = (0..40).filter(|round| {
        let moved = world.migrate(&mut client, SHARDS[(round + 1) % 3]);
        world.settle(&mut [&mut client, &mut server]);
        moved
    });
    let moves = moves.count();
    assert!((5..20).contains(&moves), "{moves}");
    assert!(world.leftovers().0 <= 2 * moves + 1, "{:?} after {moves} moves", world.leftovers());
    send(&mut world, &mut client, made, b"second");
    end(&mut world, &server, delivered);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(take(&mut world, &mut client).2, [(made, Code::Ok)]);
    take(&mut world, &mut server);
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!(world.leftovers(), (0, 0));
    assert!(world.migrate(&mut client, 2), "who has no calls may go on");
}
