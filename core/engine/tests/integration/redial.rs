//! Shows that calls leave a connection at the wish of whoever accepted it: another is dialled and takes its place, what
//! is under way goes on over the first to its end, and where nobody can be dialled everything stays as it is.

use crate::world;

use trunkline_call::entry::{Completion, Finish, Submission};
use trunkline_call::{CallId, Code, Instant};
use trunkline_engine::{Engine, Limits, PeerKey, Piece, Turn, take_crossing_peer};
use world::*;

/// The first shard of the far host, which has the connection, and the second, where the server sits.
const ACCEPTOR: usize = 1;
const SERVING: usize = 3;

struct Scene {
    world: World,
    client: App,
    server: App,
}

impl Scene {
    /// Two hosts of two shards; one call has crossed from the connection to the server.
    fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        let mut world = World::with_shards(limits, 2);
        world.placed = Some(SERVING);
        let server = world.attach(1, PROTO, None, true);
        world.placed = Some(0);
        let client = world.attach(0, PROTO, Some("tcp://10.0.0.2:7878"), false);
        let mut scene = Self { world, client, server };
        assert_eq!(scene.echo(b"one"), b"one");
        scene
    }

    fn settle(&mut self) {
        self.world.settle(&mut [&mut self.client, &mut self.server]);
    }

    fn open(&mut self, method: usize, data: &[u8], end: bool) -> CallId {
        let payload = self.world.blob(&mut self.client, data);
        let call = self.client.call(method, Some(payload), end);
        self.world.submit(&self.client, Submission::Call(call)).unwrap();
        self.settle();
        self.server.take_call().call
    }

    /// A unary call that is answered with what it said.
    fn echo(&mut self, data: &[u8]) -> Vec<u8> {
        let delivered = self.open(0, data, true);
        let answer = self.world.blob(&mut self.server, data);
        let end = finish(delivered, Code::Ok, Some(answer));
        self.world.submit(&self.server, Submission::Finish(end)).unwrap();
        self.settle();
        let end = self.take_finish();
        assert_eq!(end.code, Code::Ok);
        self.world.data(&self.client, end.payload.unwrap())
    }

    /// How a call of the client ended. What it may send more of others does not matter.
    fn take_finish(&mut self) -> Finish {
        self.client.inbox.retain(|completion| !matches!(completion, Completion::Credit { .. }));
        self.client.take_finish()
    }

    fn carried(&self) -> Vec<usize> {
        self.world.links.iter().map(|link| link.carried).collect()
    }

    fn ups(&self) -> Vec<bool> {
        self.world.links.iter().map(|link| link.up).collect()
    }
}

#[test]
fn new_calls_take_the_new_connection_and_what_is_under_way_stays() {
    let mut scene = Scene::new();
    let stream = scene.open(3, b"first", false);
    let end = scene.world.links[0].ends[1];
    let acceptor = &mut scene.world.hosts[ACCEPTOR].engine;
    assert_eq!(take_crossing_peer(acceptor), Some((end, 2)), "both calls have crossed");
    scene.world.accepts = SERVING;
    scene.world.ask_to_redial();
    scene.settle();
    assert_eq!((scene.world.dials, scene.ups()), (2, vec![true, true]));
    let before = scene.carried();
    assert_eq!(scene.echo(b"two"), b"two");
    let after = scene.carried();
    assert!(after[0] == before[0] && after[1] > before[1], "{before:?} {after:?}");
    assert_eq!(take_crossing_peer(&mut scene.world.hosts[ACCEPTOR].engine), None);

    let payload = scene.world.blob(&mut scene.server, b"still here");
    let message = Submission::Message { call: stream, payload, end: false, a1: Instant(1) };
    scene.world.submit(&scene.server, message).unwrap();
    scene.settle();
    let heard = scene.client.take().into_iter().find_map(|completion| match completion {
        Completion::Message { payload, .. } => Some(scene.world.data(&scene.client, payload)),
        _ => None,
    });
    assert_eq!(heard.as_deref(), Some(&b"still here"[..]));
    scene.world.submit(&scene.server, Submission::Finish(finish(stream, Code::Ok, None))).unwrap();
    scene.settle();
    assert_eq!(scene.take_finish().code, Code::Ok);
    assert_eq!(scene.ups(), [false, true], "its last call is over");
}

/// Its SYNs were lost, or the backlog was full: there is a socket after 15 s, and the other end has the time of a HELLO
/// from then on.
#[test]
fn a_connection_that_took_long_to_make_is_heard() {
    let mut world = World::new();
    world.dial_ns = 15 * 1_000_000_000;
    let mut server = world.attach(1, PROTO, None, true);
    let mut client = world.attach(0, PROTO, Some("tcp://10.0.0.2:7878"), false);
    let payload = world.blob(&mut client, b"patience");
    let call = client.call(0, Some(payload), true);
    world.submit(&client, Submission::Call(call)).unwrap();
    while world.dials == 0 {
        world.step(&mut [&mut client, &mut server]);
    }
    world.fire();
    world.settle(&mut [&mut client, &mut server]);
    let delivered = server.take_call().call;
    world.submit(&server, Submission::Finish(finish(delivered, Code::Ok, None))).unwrap();
    world.settle(&mut [&mut client, &mut server]);
    assert_eq!((client.take_finish().code, world.dials), (Code::Ok, 1));
}

#[test]
fn a_connection_without_calls_is_closed_at_once() {
    let mut scene = Scene::new();
    scene.world.ask_to_redial();
    scene.settle();
    assert_eq!(scene.ups(), [false, true]);
    assert_eq!(scene.echo(b"two"), b"two");
}

#[test]
fn where_nobody_can_be_dialled_everything_stays() {
    let mut scene = Scene::new();
    scene.world.unreachable = true;
    scene.world.ask_to_redial();
    scene.settle();
    assert_eq!((scene.world.dials, scene.ups()), (2, vec![true]));
    assert_eq!(scene.echo(b"two"), b"two");
}

/// PING with code 1, as a peer may write it at any time.
const WISH: [u8; 24] = [0x54, 0x52, 0x4b, 0x31, 10, 0, 1, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn a_peer_that_asks_again_and_again_is_dialled_once() {
    let mut scene = Scene::new();
    scene.world.unreachable = true;
    for _ in 0..50 {
        scene.world.links[0].pipes[1].extend(WISH);
        scene.settle();
        scene.world.advance(1_000_000_000);
    }
    assert_eq!((scene.world.dials, scene.ups()), (2, vec![true]));
    assert_eq!(scene.echo(b"two"), b"two");
}

#[test]
fn wishes_one_after_another_are_not_heard() {
    let mut scene = Scene::new();
    for _ in 0..5 {
        scene.world.ask_to_redial();
        scene.settle();
    }
    assert_eq!(scene.world.dials, 2);
}

/// Calls each of these routes once, and has the server answer what reaches it: how the calls ended.
fn call_each(world: &mut World, client: &mut App, server: &mut App, count: usize) -> Vec<Code> {
    let mut codes = Vec::new();
    let routes: Vec<usize> = (client.routes.len() - count..client.routes.len()).collect();
    for some in routes.chunks(50) {
        for route in some {
            let call = client.call(*route, None, true);
            world.submit(client, Submission::Call(call)).unwrap();
        }
        let mut ended = 0;
        while ended < some.len() {
            world.settle(&mut [client, server]);
            for completion in server.take() {
                let Completion::Call(call) = completion else { continue };
                world.submit(server, release(call.call, call.payload, call.metadata, 0)).unwrap();
                world.submit(server, Submission::Finish(finish(call.call, Code::Ok, None))).unwrap();
            }
            world.settle(&mut [client, server]);
            for completion in client.take() {
                let Completion::Finish(end) = completion else { continue };
                ended += 1;
                codes.push(end.code);
                world.submit(client, release(end.call, end.payload, end.metadata, 5)).unwrap();
            }
        }
    }
    codes
}

/// An application of a user that may call so many methods of a service at the far host.
fn caller_of(world: &mut World, user: &str, service: &str, methods: std::ops::Range<usize>) -> App {
    let target = "tcp://10.0.0.2:7878";
    let mut app = world.attach_opaque(0, Some(target), false);
    world.hosts[app.host].engine.identify(app.key, user, "");
    let calls: Vec<_> = methods.map(|at| (format!("/{service}/M{at}"), Some(target.to_owned()))).collect();
    world.bind(&mut app, &[], &calls);
    app
}

/// The numbers of methods of one connection are used up in the course of time; before they are, another takes its
/// place, which begins anew.
#[test]
fn a_connection_on_which_many_methods_were_called_is_made_anew() {
    let mut world = World::new();
    let mut server = world.attach_opaque(1, None, true);
    for first in [0, 2_500] {
        let mut client = caller_of(&mut world, "uid:1", "world.Echo", first..first + 2_500);
        let codes = call_each(&mut world, &mut client, &mut server, 2_500);
        assert_eq!(codes.iter().filter(|code| **code == Code::Ok).count(), 2_500);
    }
    let ups: Vec<bool> = world.links.iter().map(|link| link.up).collect();
    assert_eq!((world.dials, ups), (2, vec![false, true]));
}

/// Whoever calls what is not there does not use the numbers up for others.
#[test]
fn made_up_methods_leave_numbers_to_others() {
    let mut world = World::new();
    let mut server = world.attach_opaque(1, None, true);
    let mut codes = Vec::new();
    for first in [0, 2_500] {
        let mut stranger = caller_of(&mut world, "uid:66", "world.Nothing", first..first + 2_500);
        codes.extend(call_each(&mut world, &mut stranger, &mut server, 2_500));
    }
    let refused = codes.iter().filter(|code| **code == Code::ResourceExhausted).count();
    assert_eq!((codes.len(), refused), (5_000, 5_000 - 2_048), "half of the numbers");
    let mut client = caller_of(&mut world, "uid:1", "world.Echo", 0..500);
    assert_eq!(call_each(&mut world, &mut client, &mut server, 500), vec![Code::Ok; 500]);
    assert_eq!(world.dials, 1);
}

/// Those for whom it has no stream have sent nothing: they do not wait until it is closed, which is as late as its
/// last stream ends.
#[test]
fn who_waits_for_a_stream_goes_elsewhere_when_its_peer_says_that_it_leaves() {
    const STREAMS_MAX: usize = 4096;
    const WAITING: usize = 10;
    let limits =
        Limits { calls_made_per_session: 5_000, calls_delivered_per_session: 5_000, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    for _ in 0..STREAMS_MAX + WAITING {
        let payload = scene.world.blob(&mut scene.client, b"stays open");
        let call = scene.client.call(3, Some(payload), false);
        scene.world.submit(&scene.client, Submission::Call(call)).unwrap();
    }
    scene.settle();
    let mut delivered: Vec<CallId> = scene.server.take().into_iter().filter_map(called).collect();
    assert_eq!((delivered.len(), scene.world.dials), (STREAMS_MAX, 1));
    scene.world.accepts = SERVING;
    scene.world.hosts[ACCEPTOR].engine.drain(scene.world.now);
    scene.settle();
    let others: Vec<CallId> = scene.server.take().into_iter().filter_map(called).collect();
    assert_eq!((others.len(), scene.world.dials, scene.ups()), (WAITING, 2, vec![true, true]));
    delivered.extend(others);
    for call in delivered {
        scene.world.submit(&scene.server, Submission::Finish(finish(call, Code::Ok, None))).unwrap();
    }
    scene.settle();
    let ends = scene.client.take().into_iter().filter(|one| matches!(one, Completion::Finish(_))).count();
    assert_eq!(ends, STREAMS_MAX + WAITING);
}

fn called(completion: Completion) -> Option<CallId> {
    match completion {
        Completion::Call(call) => Some(call.call),
        _ => None,
    }
}

/// Its peer is silent, as a host that is frozen: the host is to tell it, and to close it.
#[test]
fn a_connection_whose_peer_is_silent_is_told_and_closed() {
    let mut scene = Scene::new();
    let _stream = scene.open(3, b"open", false);
    let near = scene.world.links[0].ends[0];
    for _ in 0..2 {
        assert_eq!(scene.world.hosts[0].engine.native().poll_unwanted(), None);
        scene.world.advance(31 * 1_000_000_000);
    }
    let engine = &mut scene.world.hosts[0].engine;
    let unwanted = engine.native().poll_unwanted().expect("its host hears of it");
    assert_eq!((unwanted.key, unwanted.is_told), (near, true));
    let queued = bytes_queued(engine, scene.world.now, near);
    let says = String::from_utf8_lossy(&queued).into_owned();
    assert!(says.contains(&*unwanted.why), "{says:?} has not {:?}", unwanted.why);
    scene.world.cut(0);
    scene.settle();
    assert_eq!(scene.take_finish().code, Code::Unavailable);
}

/// What it said is heard, and then its socket is of no use.
#[test]
fn a_connection_whose_peer_has_closed_it_is_closed_here() {
    let mut scene = Scene::new();
    let [near, far] = scene.world.links[0].ends;
    let World { hosts, now, .. } = &mut scene.world;
    for _ in 0..2 {
        *now = now.plus_ns(31 * 1_000_000_000);
        let Host { engine, heaps } = &mut hosts[ACCEPTOR];
        engine.handle_timeout(&mut Turn { now: *now, heaps });
    }
    let close = bytes_queued(&mut hosts[ACCEPTOR].engine, *now, far);
    let Host { engine, heaps } = &mut hosts[0];
    engine.handle_input(&mut Turn { now: *now, heaps }, near, *now, &close).unwrap();
    let unwanted = engine.native().poll_unwanted().expect("its host hears of it");
    assert_eq!((unwanted.key, unwanted.is_told), (near, false));
    assert!(unwanted.why.starts_with("peer closed: "), "{}", unwanted.why);
}

/// What an engine has for a connection to write.
fn bytes_queued(engine: &mut Engine, now: Instant, peer: PeerKey) -> Vec<u8> {
    let pieces = engine.native().poll_transmit(now, peer, 1 << 20);
    let own = pieces.filter_map(|piece| match piece {
        Piece::Bytes(bytes) => Some(bytes.to_vec()),
        Piece::Shared { .. } => None,
    });
    own.flatten().collect()
}
