//! Shows that what a status says of the execution is true, over every way between two applications: who is told
//! *executed* is told of a call the server has seen, who is told *not executed* of one it has not and never will.
//! Servers write down what they see; deadlines, cancellations, ends in between, sizes and losses are random.

use crate::world;

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use trunkline_call::entry::{Completion, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Execution, Instant, Metadata};
use trunkline_engine::{Limits, R2p2Settings};
use trunkline_grpc::{Reason, StreamTag};
use world::web::{blob, framed};
use world::*;

/// How the two get to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    SameHost,
    Native,
    Grpc,
    R2p2,
}

/// One thing that happens. Numbers pick among what there is.
#[derive(Clone, Debug)]
enum Step {
    Call {
        method: u8,
        bytes: u32,
        deadline_ns: Option<u32>,
    },
    Message {
        pick: u8,
        bytes: u32,
        end: bool,
    },
    Cancel {
        pick: u8,
    },
    Finish {
        pick: u8,
        ok: bool,
        bytes: u32,
    },
    /// The server goes, and another comes.
    Die,
    Cut,
    Pass {
        ns: u32,
    },
    Nudge {
        pieces: u8,
    },
    Settle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || prop_oneof![4 => 0u32..300, 2 => 20_000u32..60_000, 1 => 150_000u32..300_000];
    let deadline = || proptest::option::of(1u32..3_000_000);
    let step = prop_oneof![
        8 => (any::<u8>(), bytes(), deadline())
            .prop_map(|(method, bytes, deadline_ns)| Step::Call { method, bytes, deadline_ns }),
        3 => (any::<u8>(), bytes(), any::<bool>()).prop_map(|(pick, bytes, end)| Step::Message { pick, bytes, end }),
        1 => any::<u8>().prop_map(|pick| Step::Cancel { pick }),
        5 => (any::<u8>(), any::<bool>(), bytes()).prop_map(|(pick, ok, bytes)| Step::Finish { pick, ok, bytes }),
        1 => Just(Step::Die),
        1 => Just(Step::Cut),
        3 => (0u32..2_000_000).prop_map(|ns| Step::Pass { ns }),
        8 => (1u8..12).prop_map(|pieces| Step::Nudge { pieces }),
        3 => Just(Step::Settle),
    ];
    proptest::collection::vec(step, 1..60)
}

/// What each side knows, by the number its call has in its metadata.
#[derive(Default)]
struct Journal {
    /// Calls a handler has seen.
    seen: BTreeSet<u64>,
    /// How calls ended for who made them.
    told: BTreeMap<u64, (Code, Execution)>,
    /// Calls that are with a handler: its id to the method.
    delivered: BTreeMap<u64, usize>,
    open: BTreeSet<u64>,
}

struct History {
    world: World,
    client: App,
    server: App,
    way: Way,
    journal: Journal,
}

impl History {
    fn new(way: Way, piece_bytes: usize) -> Self {
        let limits = Limits {
            grpc_message_bytes: 200_000,
            message_bytes: 250_000,
            assembling_bytes_per_peer: 600_000,
            connection_queue_bytes: 300_000,
            ..Limits::default()
        };
        let mut world = World::with_limits(limits);
        world.piece_bytes = piece_bytes;
        world.bridged = way == Way::Grpc;
        let target = match way {
            Way::SameHost => None,
            Way::Native | Way::Grpc => Some("tcp://10.0.0.2:7878"),
            Way::R2p2 => Some("r2p2://10.0.0.2:8000"),
        };
        if way == Way::R2p2 {
            for (host, serves) in [(0, false), (1, true)] {
                let settings = R2p2Settings { serves, ..R2p2Settings::default() };
                world.hosts[host].engine.configure_r2p2(world.now, settings);
            }
            world.arrives = |number| number % 9 != 4;
            world.now = Instant(60_000_000_000);
        }
        let client = world.attach_sized(0, PROTO, target, false, 16 << 20);
        let server = world.attach_sized(usize::from(way != Way::SameHost), PROTO, None, true, 16 << 20);
        Self { world, client, server, way, journal: Journal::default() }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Call { method, bytes, deadline_ns } => {
                self.call(usize::from(method) % 4, bytes, deadline_ns)
            }
            Step::Message { pick, bytes, end } => {
                let Some(id) = nth(self.journal.open.iter(), pick) else { return };
                let payload = self.world.blob(&mut self.client, &vec![1; bytes as usize]);
                let (call, a1) = (CallId(id), Instant(1));
                self.world.submit(&self.client, Submission::Message { call, payload, end, a1 }).unwrap();
            }
            Step::Cancel { pick } => {
                let Some(id) = nth(self.journal.open.iter(), pick) else { return };
                self.journal.open.remove(&id);
                self.world.submit(&self.client, Submission::Cancel { call: CallId(id) }).unwrap();
            }
            Step::Finish { pick, ok, bytes } => {
                let Some(id) = nth(self.journal.delivered.keys(), pick) else { return };
                self.finish(id, ok, bytes);
            }
            Step::Die => {
                self.settle();
                self.world.detach(&self.server);
                self.journal.delivered.clear();
                self.server = self.world.attach_sized(self.server.host, PROTO, None, true, 16 << 20);
            }
            Step::Cut => {
                if let Some(link) = self.world.links.iter().rposition(|link| link.up) {
                    self.world.cut(link);
                }
                if let Some(bridge) = self.world.bridges.iter().rposition(|bridge| bridge.up) {
                    self.world.cut_bridge(bridge);
                }
            }
            Step::Pass { ns } => self.world.advance(ns.into()),
            Step::Nudge { pieces } => {
                for _ in 0..pieces {
                    self.world.step(&mut [&mut self.client, &mut self.server]);
                }
                self.take_completions();
            }
            Step::Settle => self.settle(),
        }
    }

    fn call(&mut self, method: usize, bytes: u32, deadline_ns: Option<u32>) {
        let method = if self.way == Way::R2p2 { 0 } else { method };
        let streams = method % 2 == 1;
        let payload = (!streams || bytes.is_multiple_of(2))
            .then(|| self.world.blob(&mut self.client, &vec![7; bytes as usize]));
        let mut call = self.client.call(method, payload, !streams);
        let mut metadata = Metadata::new();
        metadata.insert("number", call.call.0.to_string()).unwrap();
        call.metadata = self.world.put_metadata(&mut self.client, &metadata);
        call.deadline =
            deadline_ns.map_or(Deadline::NONE, |ns| Deadline::at(self.world.now.plus_ns(ns.into())));
        self.journal.open.insert(call.call.0);
        self.world.submit(&self.client, Submission::Call(call)).unwrap();
    }

    fn finish(&mut self, id: u64, ok: bool, bytes: u32) {
        let method = self.journal.delivered.remove(&id).unwrap();
        let payload = (ok && method < 2).then(|| self.world.blob(&mut self.server, &vec![9; bytes as usize]));
        let code = if ok { Code::Ok } else { Code::from_number(1 + (bytes % 16) as u16) };
        self.world.submit(&self.server, Submission::Finish(finish(CallId(id), code, payload))).unwrap();
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            self.world.settle(&mut [&mut self.client, &mut self.server]);
            if self.client.inbox.is_empty() && self.server.inbox.is_empty() {
                return;
            }
            self.take_completions();
        }
        panic!("completions without end");
    }

    fn take_completions(&mut self) {
        for completion in self.server.take() {
            match completion {
                Completion::Call(call) => {
                    let number = self.world.metadata(&self.server, call.metadata);
                    let number = number.text("number").unwrap().parse().unwrap();
                    assert!(self.journal.seen.insert(number), "a handler sees call {number} once");
                    let method = self.server.served.iter().position(|(_, route)| *route == call.route);
                    self.journal.delivered.insert(call.call.0, method.unwrap());
                    self.release(false, call.call, call.payload, call.metadata, 0);
                }
                Completion::Message { call, payload, .. } => {
                    self.release(false, call, Some(payload), Span::default(), 0);
                }
                Completion::Cancelled { call, .. } => drop(self.journal.delivered.remove(&call.0)),
                _ => {}
            }
        }
        for completion in self.client.take() {
            match completion {
                Completion::Finish(finish) => {
                    self.journal.open.remove(&finish.call.0);
                    self.journal.told.insert(finish.call.0, (finish.code, finish.execution));
                    self.release(true, finish.call, finish.payload, finish.metadata, 9);
                }
                Completion::Message { call, payload, .. } => {
                    self.release(true, call, Some(payload), Span::default(), 0);
                }
                Completion::Headers { call, metadata } => self.release(true, call, None, metadata, 0),
                _ => {}
            }
        }
    }

    fn release(&mut self, client: bool, call: CallId, payload: Option<Payload>, metadata: Span, a18: u64) {
        let app = if client { &self.client } else { &self.server };
        let heaps = &self.world.hosts[app.host].heaps;
        assert!(heaps.slots.contains_key(&app.key.to_bits()));
        self.world.submit(app, release(call, payload, metadata, a18)).unwrap();
    }

    /// Lets everything end, and compares.
    fn compare(&mut self) {
        self.world.arrives = |_| true;
        for _ in 0..20 {
            self.settle();
            while let Some(id) = nth(self.journal.delivered.keys(), 0) {
                self.finish(id, true, 10);
            }
            self.world.advance(3_000_000_000);
        }
        self.settle();
        self.nothing_is_left();
        let journal = &self.journal;
        for (number, (code, execution)) in &journal.told {
            let seen = journal.seen.contains(number);
            match execution {
                Execution::Executed => assert!(seen, "call {number}: {code}, executed, and nobody saw it"),
                Execution::NotExecuted => assert!(!seen, "call {number}: {code}, not executed, and it was"),
                Execution::Unknown => {}
            }
            assert!(*code != Code::Ok || *execution == Execution::Executed);
        }
    }
}

impl History {
    /// However the calls ended, no count of anything is left, and whoever calls now is answered.
    fn nothing_is_left(&mut self) {
        assert_eq!(self.world.leftovers(), (0, 0), "{:?}: calls and receive blocks left", self.way);
        for row in self.world.hosts.iter().flat_map(|host| host.engine.snapshot().peers) {
            assert_eq!((row.streams, row.queued_bytes), (0, 0), "{row:?}");
        }
        self.call(0, 100, None);
        let number = *self.journal.open.last().unwrap();
        for _ in 0..20 {
            self.settle();
            if let Some(id) = nth(self.journal.delivered.keys(), 0) {
                self.finish(id, true, 100);
            }
            if self.journal.told.contains_key(&number) {
                break;
            }
            self.world.advance(100_000_000);
        }
        let told = self.journal.told.get(&number);
        assert_eq!(told, Some(&(Code::Ok, Execution::Executed)), "{:?}: a fresh call", self.way);
    }
}

fn nth<'a>(mut ids: impl ExactSizeIterator<Item = &'a u64>, pick: u8) -> Option<u64> {
    let index = usize::from(pick) % ids.len().max(1);
    ids.nth(index).copied()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_is_said_of_the_execution_is_true(
        steps in steps(),
        piece in prop_oneof![Just(usize::MAX), Just(9_000)],
    ) {
        for way in [Way::SameHost, Way::Native, Way::Grpc, Way::R2p2] {
            let mut history = History::new(way, piece);
            for step in steps.clone() {
                history.take(step);
            }
            history.compare();
        }
    }
}

/// A handler's own status, and what daemons say of calls nobody has seen, keep their certainty over gRPC as over the
/// native protocol.
#[test]
fn certainty_survives_the_way() {
    for way in [Way::SameHost, Way::Native, Way::Grpc] {
        for number in 1..17 {
            let mut history = History::new(way, usize::MAX);
            history.call(0, 10, None);
            history.settle();
            let id = nth(history.journal.delivered.keys(), 0).unwrap();
            history.finish(id, false, number - 1);
            history.settle();
            let told: Vec<_> = history.journal.told.values().copied().collect();
            assert_eq!(told, [(Code::from_number(number as u16), Execution::Executed)], "{way:?}");
            // Nobody serves it any more: the other daemon says so.
            history.world.detach(&history.server);
            history.server = history.world.attach_sized(history.server.host, PROTO, None, false, 1 << 20);
            history.call(0, 10, None);
            history.settle();
            let told = history.journal.told.values().next_back().copied();
            assert_eq!(told, Some((Code::Unavailable, Execution::NotExecuted)), "{way:?}");
        }
    }
}

/// A connection that is cut before either side was heard says nothing of what the other speaks; the next call goes by
/// HTTP/2, which a daemon answers at the same port.
#[test]
fn a_connection_cut_before_a_word_was_heard_costs_no_later_call() {
    let mut history = History::new(Way::Native, usize::MAX);
    for step in [
        Step::Call { method: 0, bytes: 0, deadline_ns: None },
        Step::Nudge { pieces: 1 },
        Step::Cancel { pick: 0 },
        Step::Cut,
    ] {
        history.take(step);
    }
    history.compare();
}

/// gRPC clients of other makes read it beside the status.
#[test]
fn grpc_clients_are_told() {
    let limits = Limits { grpc_message_bytes: 1000, ..Limits::default() };
    let mut world = World::with_limits(limits);
    let mut server = world.attach(0, PROTO, None, true);
    let web = world.web(0);
    let mut ask = |number: u64, path: &str, timeout: &str, body: &[u8], end: bool| {
        let tag = StreamTag(number);
        world.request(web, tag, path, &[("grpc-timeout", timeout)], false);
        world.body(web, tag, body, end);
        world.settle(&mut [&mut server]);
        let seen =
            server.take().iter().filter(|completion| matches!(completion, Completion::Call(_))).count();
        world.advance(2_000_000);
        world.settle(&mut [&mut server]);
        server.take();
        let said = world.webs[web].take(tag);
        let trailers = said.trailers.clone().expect("it has ended");
        if !said.ended {
            world.reset(web, tag, Reason::CANCEL);
        }
        let execution = trailers["trunkline-execution"].to_str().unwrap().to_owned();
        (said.code(), execution, seen)
    };
    let told = |code: Code, execution: &str, seen| (u32::from(code.number()), execution.to_owned(), seen);
    let half = &blob(b"half")[..7];
    let late = Code::DeadlineExceeded;
    assert_eq!(ask(1, ONCE, "1m", half, false), told(late, "not-executed", 0), "never whole");
    assert_eq!(ask(3, ONCE, "1m", &blob(b"x"), true), told(late, "unknown", 1));
    let long = framed(&[0; 2000]);
    assert_eq!(ask(5, ONCE, "1S", &long, true), told(Code::ResourceExhausted, "not-executed", 0));
    assert_eq!(ask(7, GATHER, "1S", &long, true), told(Code::ResourceExhausted, "unknown", 1));
    assert_eq!(ask(9, "/world.Echo/None", "1S", &[], true), told(Code::Unimplemented, "not-executed", 0));
}

/// What is said of one attempt is not said of those before it, which others have made. A daemon adds up itself.
#[test]
fn a_further_attempt_of_others_is_never_said_not_to_be_executed() {
    let agent = "grpc-trunkline/1.0";
    let mut world = World::new();
    let mut server = world.attach(0, PROTO, None, true);
    let web = world.web(0);
    let table: [(&[(&str, &str)], &str); 7] = [
        (&[], "not-executed"),
        (&[("grpc-previous-rpc-attempts", "1")], "unknown"),
        (&[("grpc-previous-rpc-attempts", "0")], "not-executed"),
        (&[("grpc-previous-rpc-attempts", "1"), ("user-agent", agent)], "not-executed"),
        (&[("x-envoy-attempt-count", "1")], "not-executed"),
        (&[("x-envoy-attempt-count", "2"), ("user-agent", agent)], "unknown"),
        (&[("grpc-previous-rpc-attempts", "many")], "not-executed"),
    ];
    // No path of a method, no such method, and one whose deadline passes before its message has come.
    for (paths, path) in ["/world.Echo", "/world.Echo/None", ONCE].into_iter().enumerate() {
        for (number, (headers, told)) in table.iter().enumerate() {
            let tag = StreamTag((paths * table.len() + number) as u64);
            let mut headers = headers.to_vec();
            headers.push(("grpc-timeout", "1S"));
            world.request(web, tag, path, &headers, false);
            world.settle(&mut [&mut server]);
            world.advance(2_000_000_000);
            world.settle(&mut [&mut server]);
            let trailers = world.webs[web].take(tag).trailers.expect("it has ended");
            assert_eq!(trailers["trunkline-execution"], *told, "{path} {headers:?}");
        }
    }
}

/// A status a daemon makes for a caller elsewhere says which host speaks; one for its own applications, or of a
/// handler, does not.
#[test]
fn statuses_say_which_host_speaks() {
    for way in [Way::SameHost, Way::Native, Way::Grpc, Way::R2p2] {
        let mut history = History::new(way, usize::MAX);
        history.world.arrives = |_| true;
        let words = |history: &mut History| {
            history.world.settle(&mut [&mut history.client, &mut history.server]);
            let finish = history.client.take_finish();
            let words = history.world.metadata(&history.client, finish.metadata);
            let message = words.text("grpc-message").unwrap_or_default().to_owned();
            history.release(true, finish.call, finish.payload, finish.metadata, 9);
            message
        };
        history.call(0, 10, None);
        history.world.settle(&mut [&mut history.client, &mut history.server]);
        history.world.detach(&history.server);
        let message = words(&mut history);
        assert_eq!(message.ends_with("(node far)"), way != Way::SameHost, "{way:?}: {message}");
        assert!(message.starts_with("the serving application went away"), "{message}");
        history.call(0, 10, None);
        let message = words(&mut history);
        assert_eq!(message.ends_with("(node far)"), way != Way::SameHost, "{way:?}: {message}");
        assert!(!message.contains("near"), "{message}");
    }
}

/// Who calls a daemon that only has endpoints for a service hears so, and that to try elsewhere is sound.
#[test]
fn calls_are_not_forwarded_and_are_told_so() {
    let mut world = World::new();
    let endpoints = ["tcp://10.9.9.9:1".to_owned()];
    world.hosts[0].engine.configure_service("world.Echo", &endpoints).unwrap();
    let web = world.web(0);
    for (number, path, code, why) in [
        (1, ONCE, Code::Unavailable, "world.Echo: its endpoints are for applications of this host"),
        (3, "/world.Other/Once", Code::Unimplemented, "/world.Other/Once is not implemented"),
    ] {
        world.request(web, StreamTag(number), path, &[], true);
        world.settle(&mut []);
        let said = world.webs[web].take(StreamTag(number));
        assert_eq!(said.code(), u32::from(code.number()), "{}", said.message());
        assert!(
            said.message().contains(why) && said.message().ends_with("(node near)"),
            "{}",
            said.message()
        );
        assert_eq!(said.trailers.unwrap()["trunkline-execution"], "not-executed");
    }
}
