//! Shows that no caller fills the receive heap of a server with requests that the server is slow to let go of, and that
//! what one caller has waiting for room keeps nobody else's waiting.

use crate::world;

use trunkline_call::entry::{Call, Completion, Span, Submission};
use trunkline_call::{CallId, Code};
use world::*;

const TARGET: Option<&str> = Some("tcp://127.0.0.1:1");
const HEAP_BYTES: u32 = 1 << 20;

/// A server, and two applications of different users that call it.
fn scene(host: usize, target: Option<&str>) -> (World, App, [App; 2]) {
    let mut world = World::with_shards(trunkline_engine::Limits::default(), 1);
    let server = world.attach_sized(host, PROTO, None, true, HEAP_BYTES);
    let callers = ["uid:1", "uid:2"].map(|user| {
        let caller = world.attach_sized(0, PROTO, target, false, 16 << 20);
        let engine = &mut world.hosts[caller.host].engine;
        engine.identify(caller.key, user, "");
        caller
    });
    (world, server, callers)
}

/// Makes a unary call with a request of so many bytes.
fn ask(world: &mut World, caller: &mut App, bytes: usize) -> CallId {
    let payload = world.blob(caller, &vec![7; bytes]);
    let call = caller.call(0, Some(payload), true);
    world.submit(caller, Submission::Call(call)).unwrap();
    call.call
}

/// The calls that were delivered to the server, and the lengths of their blocks.
fn delivered(server: &mut App) -> Vec<Call> {
    let call = |completion| match completion {
        Completion::Call(call) => Some(call),
        Completion::Freed { .. } => None,
        other => panic!("{other:?}"),
    };
    server.take().into_iter().filter_map(call).collect()
}

fn len(call: &Call) -> u32 {
    call.payload.map_or(0, |payload| payload.block().len)
}

/// The server is through with a request, and answers.
fn answer(world: &mut World, server: &App, call: &Call) {
    world.submit(server, release(call.call, call.payload, Span::default(), 0)).unwrap();
    world.submit(server, Submission::Finish(finish(call.call, Code::Ok, None))).unwrap();
}

#[test]
fn requests_of_one_caller_leave_room_for_those_of_another() {
    let (mut world, mut server, [mut greedy, mut good]) = scene(0, None);
    for _ in 0..64 {
        ask(&mut world, &mut greedy, 60_000);
    }
    world.settle(&mut [&mut greedy, &mut good, &mut server]);
    let mut held = delivered(&mut server);
    let bytes = held.iter().map(len).sum::<u32>();
    assert!((HEAP_BYTES / 3 * 2..=HEAP_BYTES / 4 * 3).contains(&bytes), "{bytes} of {HEAP_BYTES}");

    // Another finds room, of the largest size, too; and when that is taken, it is the next to go on.
    let asked = [100, 300, 200_000, 200_000].map(|bytes| ask(&mut world, &mut good, bytes));
    world.settle(&mut [&mut greedy, &mut good, &mut server]);
    let found = delivered(&mut server);
    assert_eq!(found.iter().map(len).filter(|len| *len < 60_000).count(), 2);
    assert!(found.len() < asked.len() && found.iter().all(|call| !(60_000..61_000).contains(&len(call))));
    held.extend(found);

    let mut seen = held.len();
    while let Some(call) = (!held.is_empty()).then(|| held.remove(0)) {
        answer(&mut world, &server, &call);
        world.settle(&mut [&mut greedy, &mut good, &mut server]);
        let more = delivered(&mut server);
        seen += more.len();
        held.extend(more);
    }
    assert_eq!(seen, 64 + asked.len(), "everybody has been served");
}

#[test]
fn many_small_requests_are_no_more_room_than_few_large_ones() {
    let (mut world, mut server, [mut greedy, mut good]) = scene(0, None);
    for _ in 0..4000 {
        ask(&mut world, &mut greedy, 1000);
    }
    world.settle(&mut [&mut greedy, &mut good, &mut server]);
    let held = delivered(&mut server);
    let bytes = held.iter().map(len).sum::<u32>();
    assert!((HEAP_BYTES / 3 * 2..=HEAP_BYTES / 4 * 3).contains(&bytes), "{bytes} of {HEAP_BYTES}");
    ask(&mut world, &mut good, 100_000);
    world.settle(&mut [&mut greedy, &mut good, &mut server]);
    assert!(matches!(&delivered(&mut server)[..], [call] if len(call) >= 100_000));
}

/// A request that does not fit keeps others of its caller waiting, and nobody else's.
#[test]
fn a_large_request_that_waits_is_in_the_way_of_its_own_caller_only() {
    let (mut world, mut server, [mut greedy, mut good]) = scene(0, None);
    // One takes all it may, and then the other all that is left.
    (0..16).for_each(|_| _ = ask(&mut world, &mut greedy, 60_000));
    world.settle(&mut [&mut greedy, &mut good, &mut server]);
    let mut held = delivered(&mut server);
    (0..40).for_each(|_| _ = ask(&mut world, &mut good, 10_000));
    world.settle(&mut [&mut greedy, &mut good, &mut server]);
    let of_good = delivered(&mut server);
    assert!(of_good.len() < 40, "the rest waits");
    answer(&mut world, &server, &of_good[0]);
    world.settle(&mut [&mut greedy, &mut good, &mut server]);
    let next = delivered(&mut server);
    assert!(matches!(&next[..], [call] if (10_000..11_000).contains(&len(call))), "{next:?}");
    held.extend(of_good.into_iter().skip(1).chain(next));
    // One that holds next to nothing more goes on as soon as there is any room.
    for call in held {
        answer(&mut world, &server, &call);
        world.settle(&mut [&mut greedy, &mut good, &mut server]);
    }
}

/// Calls that come from another host are told apart from those of this one.
#[test]
fn requests_of_another_host_leave_room_for_those_of_this_one() {
    let (mut world, mut server, [mut greedy, _]) = scene(1, TARGET);
    let mut good = world.attach_sized(1, PROTO, None, false, 16 << 20);
    let engine = &mut world.hosts[good.host].engine;
    engine.identify(good.key, "uid:2", "");
    for _ in 0..300 {
        ask(&mut world, &mut greedy, 10_000);
    }
    world.settle(&mut [&mut greedy, &mut good, &mut server]);
    let held = delivered(&mut server);
    let bytes = held.iter().map(len).sum::<u32>();
    assert!((HEAP_BYTES / 3 * 2..=HEAP_BYTES / 4 * 3).contains(&bytes), "{bytes} of {HEAP_BYTES}");
    ask(&mut world, &mut good, 100_000);
    world.settle(&mut [&mut greedy, &mut good, &mut server]);
    assert!(matches!(&delivered(&mut server)[..], [call] if len(call) >= 100_000));
}
