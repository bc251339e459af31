//! Shows that the ends of calls keep one conduct, whatever is between two applications: items of every kind arrive in
//! order and whole, a sender stops when it has no credit and gets all of it back, what finds no room waits and goes on
//! when there is some, an end is told once that the call is over, and then nothing is left of it anywhere. What an end
//! does not do stands beside it, with the reason.

use crate::world;

use trunkline_call::entry::{Call, Completion, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Execution, Instant, Metadata};
use trunkline_engine::{Limits, R2p2Settings};
use trunkline_telemetry::CallsAsk;
use world::*;

/// What is between the two. Each has two ends: where the caller is, and where the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    OneShard,
    TwoShards,
    NativeConnection,
    GrpcConnection,
    Datagrams,
}

const ALL: [Between; 5] = [
    Between::OneShard,
    Between::TwoShards,
    Between::NativeConnection,
    Between::GrpcConnection,
    Between::Datagrams,
];

/// R2P2 carries one request and one reply.
const STREAMING: [Between; 4] =
    [Between::OneShard, Between::TwoShards, Between::NativeConnection, Between::GrpcConnection];

const ONCE_ROUTE: usize = 0;
const CHAT_ROUTE: usize = 3;
const WINDOW_BYTES: u32 = 128 << 10;
const MESSAGE_BYTES: usize = 20_000;
const HEAP_BYTES: u32 = 64 << 20;
const SECOND_NS: u64 = 1_000_000_000;

struct Scene {
    world: World,
    client: App,
    server: App,
    between: Between,
}

impl Scene {
    fn new(between: Between) -> Self {
        Self::with_heaps(between, [HEAP_BYTES, HEAP_BYTES])
    }

    /// Heaps of the client and of the server.
    fn with_heaps(between: Between, heap_bytes: [u32; 2]) -> Self {
        let limits = Limits { stream_window_bytes: WINDOW_BYTES, ..Limits::default() };
        let shards = if between == Between::TwoShards { 2 } else { 1 };
        let mut world = World::with_shards(limits, shards);
        world.bridged = between == Between::GrpcConnection;
        let target = match between {
            Between::OneShard | Between::TwoShards => None,
            Between::NativeConnection | Between::GrpcConnection => Some("tcp://10.0.0.2:7878"),
            Between::Datagrams => Some("r2p2://10.0.0.2:8000"),
        };
        if between == Between::Datagrams {
            for (host, serves) in [(0, false), (1, true)] {
                let settings = R2p2Settings { serves, ..R2p2Settings::default() };
                world.hosts[host].engine.configure_r2p2(Instant(0), settings);
            }
            // Long after both began: nothing sent before them is on its way.
            world.now = Instant(60 * SECOND_NS);
        }
        let [near, far] = match between {
            Between::OneShard => [0, 0],
            Between::TwoShards => [0, 2],
            Between::NativeConnection | Between::GrpcConnection | Between::Datagrams => [0, 1],
        };
        world.placed = Some(near);
        let client = world.attach_sized(0, PROTO, target, false, heap_bytes[0]);
        world.placed = Some(far);
        let server = world.attach_sized(far % 2, PROTO, None, true, heap_bytes[1]);
        Self { world, client, server, between }
    }

    fn settle(&mut self) {
        self.world.settle(&mut [&mut self.client, &mut self.server]);
    }

    fn client_says(&mut self, submission: Submission) {
        self.world.submit(&self.client, submission).unwrap();
        self.settle();
    }

    fn server_says(&mut self, submission: Submission) {
        self.world.submit(&self.server, submission).unwrap();
        self.settle();
    }

    /// Makes a call: with its only message, or, of a stream, without one.
    fn call(&mut self, route: usize, data: &[u8], deadline: Deadline) -> CallId {
        let is_unary = route == ONCE_ROUTE;
        let payload = is_unary.then(|| self.world.blob(&mut self.client, data));
        let mut call = self.client.call(route, payload, is_unary);
        call.metadata = self.words_of(true, "said", "by the client");
        call.deadline = deadline;
        self.client_says(Submission::Call(call));
        call.call
    }

    fn words_of(&mut self, client: bool, key: &str, value: &str) -> Span {
        let mut words = Metadata::new();
        words.insert(key, value).unwrap();
        let app = if client { &mut self.client } else { &mut self.server };
        self.world.put_metadata(app, &words)
    }

    /// The call that was delivered, released; and its message.
    #[track_caller]
    fn take_call(&mut self) -> (Call, Option<Vec<u8>>) {
        let call = self.server.take_call();
        let words = self.world.metadata(&self.server, call.metadata);
        assert_eq!(words.text("said"), Some("by the client"), "{:?}", self.between);
        let data = call.payload.map(|payload| self.world.data(&self.server, payload));
        self.server_says(release(call.call, call.payload, call.metadata, 0));
        (call, data)
    }

    fn message(&mut self, from_client: bool, call: CallId, data: &[u8], end: bool) -> Payload {
        let app = if from_client { &mut self.client } else { &mut self.server };
        let payload = self.world.blob(app, data);
        let submission = Submission::Message { call, payload, end, a1: Instant(1) };
        match from_client {
            true => self.client_says(submission),
            false => self.server_says(submission),
        }
        payload
    }

    /// The server's end of a call.
    fn finish(&mut self, call: CallId, code: Code, data: Option<&[u8]>) {
        let payload = data.map(|data| self.world.blob(&mut self.server, data));
        let mut finish = finish(call, code, payload);
        finish.metadata = self.words_of(false, "told", "by the server");
        self.server_says(Submission::Finish(finish));
    }

    /// The call's one outcome, released: its code, what is known of the execution, and its message.
    #[track_caller]
    fn conclude(&mut self, call: CallId) -> (Code, Execution, Vec<u8>) {
        let taken = self.client.take();
        let outcomes: Vec<_> = taken.iter().filter(|one| !matches!(one, Completion::Credit { .. })).collect();
        let [Completion::Finish(finish)] = outcomes[..] else {
            panic!("{:?}: expected one outcome, found {taken:?}", self.between)
        };
        assert_eq!(finish.call, call);
        let data = finish.payload.map_or_else(Vec::new, |payload| self.world.data(&self.client, payload));
        self.client_says(release(finish.call, finish.payload, finish.metadata, 9));
        (finish.code, finish.execution, data)
    }

    /// Nothing of any call is left at either end, and what both have counted is what there is.
    #[track_caller]
    fn nothing_left(&mut self) {
        self.settle();
        self.world.audit();
        assert_eq!(self.world.leftovers(), (0, 0), "{:?}: calls and receive blocks left", self.between);
        for row in self.world.hosts.iter().flat_map(|host| host.engine.snapshot().peers) {
            assert_eq!((row.streams, row.queued_bytes), (0, 0), "{:?}: {row:?}", self.between);
        }
    }

    fn echoes(&mut self) {
        let call = self.call(ONCE_ROUTE, b"again", Deadline::NONE);
        let (delivered, data) = self.take_call();
        self.finish(delivered.call, Code::Ok, data.as_deref());
        assert_eq!(self.conclude(call), (Code::Ok, Execution::Executed, b"again".to_vec()));
    }
}

#[test]
fn a_request_and_its_answer_arrive_whole() {
    for between in ALL {
        let mut scene = Scene::new(between);
        for size in [0, 1, MESSAGE_BYTES, 100_000] {
            let sent = vec![7; size];
            let call = scene.call(ONCE_ROUTE, &sent, Deadline::NONE);
            let (delivered, data) = scene.take_call();
            assert!(delivered.end && data.as_ref() == Some(&sent), "{between:?}: {size}");
            scene.finish(delivered.call, Code::Ok, Some(&sent));
            let (code, execution, answer) = scene.conclude(call);
            assert_eq!((code, execution), (Code::Ok, Execution::Executed), "{between:?}: {size}");
            assert!(answer == sent, "{between:?}: {size}");
        }
        scene.nothing_left();
    }
}

#[test]
fn a_refusal_of_the_server_arrives_with_its_words() {
    for between in ALL {
        let mut scene = Scene::new(between);
        let call = scene.call(ONCE_ROUTE, b"x", Deadline::NONE);
        let (delivered, _) = scene.take_call();
        scene.finish(delivered.call, Code::FailedPrecondition, None);
        let finish = scene.client.take_finish();
        assert_eq!((finish.call, finish.code), (call, Code::FailedPrecondition), "{between:?}");
        let words = scene.world.metadata(&scene.client, finish.metadata);
        assert_eq!(words.text("told"), Some("by the server"), "{between:?}");
        scene.client_says(release(call, finish.payload, finish.metadata, 9));
        scene.nothing_left();
    }
}

/// How long a stream takes is up to its ends: whoever records it knows it from a call, however little it carried.
#[test]
fn streams_are_told_from_calls() {
    for between in STREAMING {
        let mut scene = Scene::new(between);
        scene.echoes();
        let call = scene.call(CHAT_ROUTE, &[], Deadline::NONE);
        let (delivered, _) = scene.take_call();
        scene.message(true, call, b"only", true);
        for completion in scene.server.take() {
            if let Completion::Message { call, payload, .. } = completion {
                scene.server_says(release(call, Some(payload), Span::default(), 0));
            }
        }
        scene.finish(delivered.call, Code::Ok, None);
        assert_eq!(scene.conclude(call).0, Code::Ok, "{between:?}");
        scene.nothing_left();
        let ask = CallsAsk::all_from(0);
        let mut told = Vec::new();
        for host in &mut scene.world.hosts {
            let calls = host.engine.telemetry().calls(&ask);
            let name =
                |number: u32| calls.methods.iter().find(|(known, _)| *known == number).unwrap().1.clone();
            told.extend(calls.rows.iter().map(|call| (name(call.row.method.0), call.row.is_stream)));
        }
        let ends = if matches!(between, Between::NativeConnection | Between::GrpcConnection) { 2 } else { 1 };
        let streams = told.iter().filter(|(_, is_stream)| *is_stream).count();
        assert_eq!((told.len(), streams), (2 * ends, ends), "{between:?}: {told:?}");
        assert!(told.iter().all(|(name, is_stream)| name.ends_with("/Chat") == *is_stream), "{told:?}");
    }
}

#[test]
fn items_of_a_stream_arrive_in_order() {
    for between in STREAMING {
        let mut scene = Scene::new(between);
        let call = scene.call(CHAT_ROUTE, &[], Deadline::NONE);
        let (delivered, opening) = scene.take_call();
        assert_eq!((opening, delivered.end), (None, false), "{between:?}");
        let metadata = scene.words_of(false, "head", "first");
        scene.server_says(Submission::Headers { call: delivered.call, metadata });
        for number in 0..3u8 {
            scene.message(true, call, &[number], number == 2);
            scene.message(false, delivered.call, &[number], false);
        }
        let (mut heard, mut ended) = (Vec::new(), false);
        for completion in scene.server.take() {
            match completion {
                Completion::Message { call, payload, end } => {
                    heard.extend(scene.world.data(&scene.server, payload));
                    ended |= end;
                    scene.server_says(release(call, Some(payload), Span::default(), 0));
                }
                Completion::HalfClose { .. } => ended = true,
                Completion::Credit { .. } => {}
                other => panic!("{between:?}: {other:?}"),
            }
        }
        assert_eq!((heard, ended), (vec![0, 1, 2], true), "{between:?}");
        scene.finish(delivered.call, Code::Ok, None);
        let mut heard = Vec::new();
        for completion in std::mem::take(&mut scene.client.inbox) {
            match completion {
                Completion::Headers { call, metadata } => {
                    assert_eq!(
                        scene.world.metadata(&scene.client, metadata).text("head"),
                        Some("first"),
                        "{between:?}"
                    );
                    assert!(heard.is_empty(), "{between:?}: headers come first");
                    scene.client_says(release(call, None, metadata, 0));
                }
                Completion::Message { call, payload, .. } => {
                    heard.extend(scene.world.data(&scene.client, payload));
                    scene.client_says(release(call, Some(payload), Span::default(), 0));
                }
                finish @ Completion::Finish(_) => scene.client.inbox.push(finish),
                _ => {}
            }
        }
        assert_eq!(heard, [0, 1, 2], "{between:?}");
        assert_eq!(scene.conclude(call).0, Code::Ok, "{between:?}");
        scene.nothing_left();
    }
}

#[test]
fn a_sender_stops_without_credit_and_gets_all_of_it_back() {
    const MESSAGES: usize = 400;
    for between in STREAMING {
        let mut scene = Scene::new(between);
        let call = scene.call(CHAT_ROUTE, &[], Deadline::NONE);
        let (delivered, _) = scene.take_call();
        let (mut left, mut sent, mut stalls) = (i64::from(WINDOW_BYTES), 0, 0);
        let mut heard = Vec::new();
        while heard.len() < MESSAGES {
            let before = sent;
            while left > 0 && sent < MESSAGES {
                let data = vec![sent as u8; MESSAGE_BYTES];
                left -= i64::from(scene.message(true, call, &data, false).window_bytes());
                sent += 1;
                left += credit(&mut scene.client);
            }
            assert!(sent > before || sent == MESSAGES, "{between:?}: {sent} messages, and no credit comes");
            stalls += usize::from(sent < MESSAGES);
            // Nobody took anything meanwhile; now all of it is.
            for completion in scene.server.take() {
                let Completion::Message { payload, .. } = completion else { continue };
                heard.push(scene.world.data(&scene.server, payload)[0]);
                scene.server_says(release(delivered.call, Some(payload), Span::default(), 0));
            }
            left += credit(&mut scene.client);
        }
        // HTTP/2 of this world has no windows: what a daemon says over it leaves at once.
        assert!(stalls > 0 || between == Between::GrpcConnection, "{between:?}: it stopped {stalls} times");
        assert!(heard.iter().enumerate().all(|(at, first)| *first == at as u8), "{between:?}: in order");
        assert_eq!(left, i64::from(WINDOW_BYTES), "{between:?}: all of the credit is back");
        scene.client_says(Submission::HalfClose { call });
        scene.server.take();
        scene.finish(delivered.call, Code::Ok, None);
        assert_eq!(scene.conclude(call).0, Code::Ok, "{between:?}");
        scene.nothing_left();
    }
}

/// Credit given to an application since it was last asked.
fn credit(app: &mut App) -> i64 {
    let given = |one: &Completion| match one {
        Completion::Credit { bytes, .. } => i64::from(*bytes),
        _ => 0,
    };
    app.take().iter().map(given).sum()
}

#[test]
fn what_finds_no_room_waits_and_goes_on_in_order() {
    const CALLS: u8 = 12;
    for between in ALL {
        // Four requests fit into the server's heap.
        let mut scene = Scene::with_heaps(between, [HEAP_BYTES, 256 << 10]);
        let calls: Vec<CallId> =
            (0..CALLS).map(|number| scene.call(ONCE_ROUTE, &vec![number; 60_000], Deadline::NONE)).collect();
        let (mut heard, mut most) = (Vec::new(), 0);
        while heard.len() < calls.len() {
            let taken = scene.server.take();
            assert!(!taken.is_empty(), "{between:?}: after {} nothing comes", heard.len());
            most = most.max(taken.len());
            for completion in taken {
                let Completion::Call(call) = completion else { panic!("{between:?}: {completion:?}") };
                let data = scene.world.data(&scene.server, call.payload.unwrap());
                heard.push(data[0]);
                scene.server_says(release(call.call, call.payload, call.metadata, 0));
                scene.finish(call.call, Code::Ok, Some(&data[..1]));
            }
        }
        assert!(most < calls.len(), "{between:?}: {most} at once were too many for the heap");
        assert_eq!(heard, (0..CALLS).collect::<Vec<_>>(), "{between:?}");
        for completion in scene.client.take() {
            let Completion::Finish(finish) = completion else { continue };
            assert_eq!(finish.code, Code::Ok, "{between:?}");
            scene.client_says(release(finish.call, finish.payload, finish.metadata, 9));
        }
        scene.nothing_left();
    }
}

#[test]
fn a_call_that_is_cancelled_ends_at_the_server_once() {
    for between in ALL {
        let mut scene = Scene::new(between);
        let call = scene.call(ONCE_ROUTE, b"x", Deadline::NONE);
        let (delivered, _) = scene.take_call();
        scene.client_says(Submission::Cancel { call });
        scene.client_says(Submission::Cancel { call });
        assert!(
            matches!(scene.server.take()[..], [Completion::Cancelled { call, .. }] if call == delivered.call),
            "{between:?}"
        );
        scene.finish(delivered.call, Code::Ok, Some(b"late"));
        assert!(scene.client.take().is_empty(), "{between:?}: nobody waits for the answer");
        scene.echoes();
        scene.nothing_left();
    }
}

#[test]
fn a_deadline_ends_a_call_at_both_ends() {
    for between in ALL {
        let mut scene = Scene::new(between);
        let deadline = Deadline::at(scene.world.now.plus_ns(SECOND_NS));
        let call = scene.call(ONCE_ROUTE, b"x", deadline);
        let (delivered, _) = scene.take_call();
        assert!(delivered.deadline.instant().is_some(), "{between:?}: the server knows it");
        scene.world.advance(2 * SECOND_NS);
        scene.settle();
        let (code, execution, _) = scene.conclude(call);
        assert_eq!(code, Code::DeadlineExceeded, "{between:?}");
        assert_ne!(execution, Execution::NotExecuted, "{between:?}: the server has seen it");
        assert!(
            matches!(scene.server.take()[..], [Completion::Cancelled { call, .. }] if call == delivered.call),
            "{between:?}"
        );
        scene.echoes();
        scene.nothing_left();
    }
}

#[test]
fn a_server_that_goes_ends_its_calls_at_the_client() {
    for between in ALL {
        let mut scene = Scene::new(between);
        let call = scene.call(ONCE_ROUTE, b"x", Deadline::NONE);
        scene.take_call();
        scene.world.detach(&scene.server);
        scene.settle();
        let (code, execution, _) = scene.conclude(call);
        assert_eq!((code, execution), (Code::Unavailable, Execution::Unknown), "{between:?}");
        scene.server.inbox.clear();
        scene.nothing_left();
    }
}

#[test]
fn a_client_that_goes_ends_its_calls_at_the_server() {
    for between in ALL {
        let mut scene = Scene::new(between);
        scene.call(ONCE_ROUTE, b"x", Deadline::NONE);
        let (delivered, _) = scene.take_call();
        scene.world.detach(&scene.client);
        scene.settle();
        assert!(
            matches!(scene.server.take()[..], [Completion::Cancelled { call, .. }] if call == delivered.call),
            "{between:?}"
        );
        scene.client.inbox.clear();
        scene.nothing_left();
    }
}

/// An answer that waits for its caller's heap is thrown away with its call; the end of the call is told all the same.
#[test]
fn an_end_is_told_while_a_message_waits_for_room() {
    for between in ALL {
        for goes in [false, true] {
            let mut scene = Scene::with_heaps(between, [128 << 10, HEAP_BYTES]);
            let large = vec![7; 100_000];
            let kept = scene.call(ONCE_ROUTE, b"x", Deadline::NONE);
            let (delivered, _) = scene.take_call();
            scene.finish(delivered.call, Code::Ok, Some(&large));
            let kept_by = scene.client.take_finish();
            assert_eq!(kept_by.call, kept);

            let deadline = Deadline::at(scene.world.now.plus_ns(SECOND_NS));
            let call = scene.call(ONCE_ROUTE, b"y", deadline);
            let (delivered, _) = scene.take_call();
            scene.finish(delivered.call, Code::Ok, Some(&large));
            assert!(
                !scene.client.inbox.iter().any(|one| matches!(one, Completion::Finish(_))),
                "{between:?}"
            );
            if goes {
                scene.world.detach(&scene.server);
                scene.settle();
            }
            // Another shard is asked, and given time, whether its handler has seen the call.
            for _ in 0..2 {
                scene.world.advance(2 * SECOND_NS);
                scene.settle();
            }
            let ended = scene.client.take_finish();
            let codes = [Code::DeadlineExceeded, Code::Unavailable];
            assert!(ended.call == call && codes.contains(&ended.code), "{between:?}: {ended:?}");
            for finish in [kept_by, ended] {
                scene.client_says(release(finish.call, finish.payload, finish.metadata, 9));
            }
            scene.server.inbox.clear();
            scene.nothing_left();
        }
    }
}
