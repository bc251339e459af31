//! Shows trace context on its way: from a gRPC client to a handler, and on to the calls the handler makes, whichever
//! way those go.

use crate::world;

use trunkline_call::entry::{Completion, Submission};
use trunkline_call::{Code, Metadata, TraceParent};
use trunkline_grpc::{Event, StreamTag};
use trunkline_telemetry::{Ask, Side};
use world::web::blob;
use world::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const ONE: StreamTag = StreamTag(1);

/// What a child's request shows of the context, with and without words of the handler's own.
#[test]
fn calls_of_a_handler_carry_the_callers_context() {
    let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    for (said_by_handler, parent, state) in [
        (&[][..], PARENT, Some("a=1,b=2")),
        (&[("k", "v")], PARENT, Some("a=1,b=2")),
        (&[("traceparent", own)], own, None),
        (&[("traceparent", own), ("tracestate", "c=3")], own, Some("c=3")),
    ] {
        let mut world = World::new();
        world.foreign = true;
        let mut server = world.attach(0, PROTO, Some("tcp://10.1.1.1:50051"), true);
        let web = world.web(0);
        let headers = [("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")];
        world.request(web, ONE, ONCE, &headers, false);
        world.body(web, ONE, &blob(b"ask"), true);
        world.settle(&mut [&mut server]);
        let delivered = server.take_call();

        let payload = world.message(&mut server, b"on");
        let mut child = server.call(0, Some(payload), true);
        let mut metadata = Metadata::new();
        for (key, value) in said_by_handler {
            metadata.insert(key, value).unwrap();
        }
        if !metadata.is_empty() {
            child.metadata = world.put_metadata(&mut server, &metadata);
        }
        child.parent = delivered.call;
        world.submit(&server, Submission::Call(child)).unwrap();
        world.settle(&mut [&mut server]);
        world.http(1, Event::Ready { streams_max: 100 });
        world.settle(&mut [&mut server]);
        let tag = world.webs[1].newest();
        let head = world.webs[1].take(tag).head;
        let text = |name: &str| head.get(name).map(|value| value.to_str().unwrap());
        assert_eq!((text("traceparent"), text("tracestate")), (Some(parent), state), "{said_by_handler:?}");
        assert_eq!(head.get_all("traceparent").iter().count(), 1);
    }
}

/// From daemon to daemon it is the same.
#[test]
fn context_crosses_hosts() {
    let mut world = World::new();
    let target = Some("tcp://127.0.0.1:1");
    let mut near = world.attach(0, PROTO, target, true);
    let mut far = world.attach(1, PROTO, None, true);
    let web = world.web(0);
    world.request(web, ONE, ONCE, &[("traceparent", PARENT), ("tracestate", "a=1")], false);
    world.body(web, ONE, &blob(b"ask"), true);
    world.settle(&mut [&mut near, &mut far]);
    let delivered = near.take_call();
    let payload = world.message(&mut near, b"on");
    let mut child = near.call(0, Some(payload), true);
    child.parent = delivered.call;
    world.submit(&near, Submission::Call(child)).unwrap();
    world.settle(&mut [&mut near, &mut far]);
    let taken = far.take();
    let [Completion::Call(call)] = taken[..] else { panic!("{taken:?}") };
    let metadata = world.metadata(&far, call.metadata);
    assert_eq!((metadata.text("traceparent"), metadata.text("tracestate")), (Some(PARENT), Some("a=1")));
}

/// An application that samples all of its calls leaves the spans of another's theirs, at both ends.
#[test]
fn one_that_samples_everything_leaves_others_their_spans() {
    const ROUNDS: u128 = 80;
    const TIMES: u128 = 100;
    for (host, target) in [(0, None), (1, Some("tcp://127.0.0.1:1"))] {
        let mut world = World::new();
        world.hosts.iter_mut().for_each(|host| {
            host.engine.trace_calls(0.0, 3);
            host.engine.telemetry().keep_traced(true);
        });
        let mut server = world.attach(host, PROTO, None, true);
        let [mut much, mut little] = ["much 1", "little 2"].map(|label| {
            world.label = Some(label);
            world.attach(0, PROTO, target, false)
        });
        for round in 1..=ROUNDS {
            for number in 0..=TIMES {
                // The other calls another method.
                let is_other = number == TIMES;
                let app = if is_other { &mut little } else { &mut much };
                let parent = TraceParent { trace: round << 64 | number, span: 1, sampled: true };
                let mut metadata = Metadata::new();
                metadata.insert(TraceParent::KEY, parent.to_string()).unwrap();
                let payload = world.blob(app, b"x");
                let mut call = app.call(if is_other { 2 } else { 0 }, Some(payload), true);
                call.metadata = world.put_metadata(app, &metadata);
                world.submit(app, Submission::Call(call)).unwrap();
            }
            world.settle(&mut [&mut server, &mut much, &mut little]);
            for completion in server.take() {
                let Completion::Call(call) = completion else { panic!("{completion:?}") };
                world.submit(&server, Submission::Finish(finish(call.call, Code::Internal, None))).unwrap();
                world.submit(&server, release(call.call, call.payload, call.metadata, 0)).unwrap();
            }
            world.settle(&mut [&mut server, &mut much, &mut little]);
            for app in [&mut much, &mut little] {
                for completion in app.take() {
                    let Completion::Finish(end) = completion else { panic!("{completion:?}") };
                    world.submit(app, release(end.call, end.payload, end.metadata, 5)).unwrap();
                }
            }
            world.settle(&mut [&mut server, &mut much, &mut little]);
        }
        let now = world.now;
        let ask = Ask { traced_max: usize::MAX, ..Ask::default() };
        for (place, side) in [(0, Side::Made), (1, Side::Served)].into_iter().take(1 + host) {
            let snapshot = world.hosts[place].engine.telemetry().snapshot(now, &ask);
            let (little, much): (Vec<_>, Vec<_>) =
                snapshot.traced.iter().partition(|call| call.ids.trace as u64 == TIMES as u64);
            assert_eq!(little.len() as u128, ROUNDS, "{side:?}, host {host}");
            assert!(snapshot.traced.iter().all(|call| call.side == side) && much.len() > 1_000);
            assert_eq!(snapshot.traced_lost as usize + much.len(), (ROUNDS * TIMES) as usize);
        }
    }
}
