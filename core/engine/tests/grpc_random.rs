//! Shows, over random histories of a host between gRPC clients and gRPC servers, and of a gateway between clients and
//! gRPC servers, another daemon, or one that is reached by R2P2 over a network that loses datagrams; with retries,
//! hedges and policies that look at messages or change their compression, that every call ends exactly once,
//! that nothing is said on a stream that is over (`world/web.rs` watches), that every byte of a window comes back, and
//! that nothing is left when all is done — whatever is reset, cut, malformed, late or out of place in between.

mod world;

use bytes::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trunkline_call::entry::{Completion, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Instant};
use trunkline_engine::{BoundSchema, GatewaySettings, GrpcSettings, Limits, R2p2Settings, Turn};
use trunkline_grpc::compress::{Encoding, compress};
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_grpc::{Event, Reason, StreamTag};
use trunkline_policy::{Chain, Definition, EncodingName, Kind, Side};
use trunkline_schema::Schema;
use world::web::{blob, framed};
use world::*;

/// One thing that happens. Numbers pick among what there is.
#[derive(Clone, Debug)]
enum Step {
    /// A gRPC client asks.
    Ask {
        web: u8,
        method: u8,
        end: bool,
        timeout: Option<u8>,
        /// Its messages may be compressed.
        packs: bool,
    },
    /// A peer sends body bytes.
    Body {
        pick: u8,
        body: Body,
        end: bool,
    },
    /// A peer ends a stream, with a status or not.
    Trailers {
        pick: u8,
        code: Option<u8>,
    },
    Reset {
        pick: u8,
        reason: u8,
    },
    /// A gRPC server answers.
    Answer {
        pick: u8,
        status: u8,
        end: bool,
    },
    /// The application calls a gRPC server.
    Call {
        method: u8,
        bytes: u32,
        end: bool,
        deadline_ns: Option<u16>,
    },
    Message {
        pick: u8,
        bytes: u32,
        end: bool,
    },
    Cancel {
        pick: u8,
    },
    Reply {
        pick: u8,
        bytes: u32,
    },
    Finish {
        pick: u8,
        ok: bool,
    },
    Ready {
        web: u8,
        streams_max: u8,
    },
    GoAway {
        web: u8,
    },
    Leave {
        pick: u8,
        bytes: u16,
    },
    Stray {
        web: u8,
        tag: u8,
        kind: u8,
    },
    HangUp {
        web: u8,
    },
    /// The connection to the other daemon breaks.
    Cut,
    /// The application reads what comes, or leaves it.
    Rest(bool),
    Pass {
        ns: u32,
    },
    Settle,
}

/// What a body may be.
#[derive(Clone, Debug)]
enum Body {
    Message(u32),
    Half,
    Empty(u8),
    Malformed,
    Junk(Vec<u8>),
    /// Flagged as compressed, whether or not it is.
    Packed(u32, bool),
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        6 => (0u32..3_000).prop_map(Body::Message),
        1 => (50_000u32..300_000).prop_map(Body::Message),
        1 => Just(Body::Half),
        1 => any::<u8>().prop_map(Body::Empty),
        1 => Just(Body::Malformed),
        1 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Body::Junk),
        3 => (0u32..300_000, prop::bool::weighted(0.8)).prop_map(|(bytes, sound)| Body::Packed(bytes, sound)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![4 => 0u32..200, 1 => 20_000u32..200_000];
    let step = prop_oneof![
        6 => (any::<u8>(), any::<u8>(), any::<bool>(), proptest::option::of(any::<u8>()), any::<bool>())
            .prop_map(|(web, method, end, timeout, packs)| Step::Ask { web, method, end, timeout, packs }),
        8 => (any::<u8>(), body(), any::<bool>()).prop_map(|(pick, body, end)| Step::Body { pick, body, end }),
        2 => (any::<u8>(), proptest::option::of(any::<u8>())).prop_map(|(pick, code)| Step::Trailers { pick, code }),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(pick, reason)| Step::Reset { pick, reason }),
        3 => (any::<u8>(), any::<u8>(), any::<bool>())
            .prop_map(|(pick, status, end)| Step::Answer { pick, status, end }),
        5 => (any::<u8>(), size.clone(), any::<bool>(), proptest::option::of(1u16..2_000))
            .prop_map(|(method, bytes, end, deadline_ns)| Step::Call { method, bytes, end, deadline_ns }),
        3 => (any::<u8>(), size.clone(), any::<bool>())
            .prop_map(|(pick, bytes, end)| Step::Message { pick, bytes, end }),
        1 => any::<u8>().prop_map(|pick| Step::Cancel { pick }),
        2 => (any::<u8>(), size).prop_map(|(pick, bytes)| Step::Reply { pick, bytes }),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(pick, ok)| Step::Finish { pick, ok }),
        3 => (any::<u8>(), 0u8..5).prop_map(|(web, streams_max)| Step::Ready { web, streams_max }),
        1 => any::<u8>().prop_map(|web| Step::GoAway { web }),
        2 => (any::<u8>(), any::<u16>()).prop_map(|(pick, bytes)| Step::Leave { pick, bytes }),
        1 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(web, tag, kind)| Step::Stray { web, tag, kind }),
        1 => any::<u8>().prop_map(|web| Step::HangUp { web }),
        1 => Just(Step::Cut),
        2 => any::<bool>().prop_map(Step::Rest),
        2 => (0u32..3_000_000).prop_map(|ns| Step::Pass { ns }),
        6 => Just(Step::Settle),
    ];
    proptest::collection::vec(step, 1..100)
}

const METHODS: [&str; 4] = [ONCE, GATHER, SCATTER, CHAT];
const TARGET: Option<&str> = Some("tcp://10.1.1.1:50051");
const WINDOW_BYTES: u32 = 1 << 17;

/// What the clients are at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// A daemon whose application serves them.
    Edge,
    /// A gateway to gRPC servers, which the application calls, too.
    Gateway,
    /// A gateway to another daemon, whose application serves them.
    Native,
    /// The same, reached by R2P2.
    R2p2,
}

impl Setting {
    /// Whether the application is on another host than the clients are at.
    fn is_far(self) -> bool {
        matches!(self, Self::Native | Self::R2p2)
    }
}

/// What is said of the gateway's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempts {
    One,
    Retries,
    Hedges,
}

/// What the gateway's policies do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chained {
    Nothing,
    /// Its calls are logged.
    Logs,
    /// Their messages are looked at.
    Reads,
    /// They are compressed in another way.
    Packs,
    /// Few are let through at once.
    Bounds,
}

struct History {
    world: World,
    setting: Setting,
    /// Serves gRPC clients and calls gRPC servers.
    app: App,
    /// Calls made and not ended, and whether they were cancelled.
    open: BTreeMap<u64, bool>,
    /// Calls delivered and neither finished nor cancelled: id to method.
    delivered: BTreeMap<u64, usize>,
    lent: BTreeSet<u32>,
    /// What messages took of their stream's window, by call: the application keeps to it.
    charged: BTreeMap<u64, i64>,
    tags: u64,
    /// How the last call ended.
    last: Option<Code>,
    /// What the application has not released, while it rests.
    unread: Option<Vec<Submission>>,
}

impl History {
    fn new(setting: Setting, reads: bool, attempts: Attempts, chained: Chained) -> Self {
        // Small limits, so that histories meet them.
        let limits = Limits {
            grpc_message_bytes: 250_000,
            assembling_bytes_per_peer: 600_000,
            connection_queue_bytes: 300_000,
            grpc_replay_bytes_per_call: 30_000,
            grpc_connections_per_endpoint: 2,
            stream_window_bytes: WINDOW_BYTES,
            attempts_per_second: 1_000,
            ..Limits::default()
        };
        let mut world = World::with_limits(limits);
        for Host { engine, .. } in &mut world.hosts {
            engine.configure_grpc(GrpcSettings {
                connection_window_bytes: WINDOW_BYTES,
                ..GrpcSettings::default()
            });
        }
        world.foreign = !setting.is_far();
        let host = usize::from(setting.is_far());
        if setting == Setting::R2p2 {
            speak_r2p2(&mut world);
        }
        let app = world.attach_sized(host, PROTO, TARGET, setting != Setting::Gateway, 16 << 20);
        if setting != Setting::Edge {
            let endpoints: &[&str] = match setting {
                Setting::R2p2 => &["r2p2://10.0.0.2:8000"],
                Setting::Native => &["tcp://10.1.1.2:50051"],
                _ => &["tcp://10.1.1.1:50051", "tcp://10.1.1.2:50051"],
            };
            let endpoints: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
            let Host { engine, heaps } = &mut world.hosts[0];
            engine.configure_gateway(told());
            engine.configure_service("world.Echo", &endpoints).unwrap();
            engine.configure_calls("world.Echo", attempts.config());
            engine.apply_policies(chained.chain()).unwrap();
            engine.serve_waiting(&mut Turn { now: world.now, heaps });
        }
        let (open, delivered) = Default::default();
        let mut history = Self {
            world,
            setting,
            app,
            open,
            delivered,
            lent: BTreeSet::new(),
            charged: BTreeMap::new(),
            tags: 0,
            last: None,
            unread: None,
        };
        for _ in 0..2 {
            let web = history.client();
            history.world.webs[web].reads = reads;
        }
        history
    }

    /// A client comes.
    fn client(&mut self) -> usize {
        match self.setting {
            Setting::Edge => self.world.web(0),
            Setting::Gateway | Setting::Native | Setting::R2p2 => self.world.web_at_gateway(0, &[]),
        }
    }

    fn blob(&mut self, bytes: u32) -> Payload {
        let payload = self.world.blob(&mut self.app, &vec![3; bytes as usize]);
        self.lent.insert(payload.span.offset);
        payload
    }

    fn submit(&mut self, submission: Submission) {
        self.world.submit(&self.app, submission).unwrap();
    }

    /// Sends on a stream if its window allows.
    fn message(&mut self, call: CallId, bytes: u32, end: bool) {
        let charged = self.charged.get(&call.0).copied().unwrap_or(0);
        if charged < i64::from(WINDOW_BYTES) {
            let payload = self.blob(bytes);
            self.charged.insert(call.0, charged + i64::from(payload.window_bytes()));
            self.submit(Submission::Message { call, payload, end, a1: Instant(1) });
        }
    }

    /// Streams of connections that are up.
    fn streams(&self) -> Vec<(usize, StreamTag)> {
        let up = self.world.webs.iter().enumerate().filter(|(_, web)| web.up);
        up.flat_map(|(index, web)| web.open().map(move |tag| (index, tag))).collect()
    }

    /// One of them.
    fn stream(&self, pick: u8) -> Option<(usize, StreamTag)> {
        let all = self.streams();
        all.get(usize::from(pick) % all.len().max(1)).copied()
    }

    fn web(&self, pick: u8) -> usize {
        usize::from(pick) % self.world.webs.len()
    }

    fn nth<V>(map: &BTreeMap<u64, V>, pick: u8) -> Option<u64> {
        map.keys().nth(usize::from(pick) % map.len().max(1)).copied()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Ask { web, method, end, timeout, packs } => {
                self.ask(usize::from(web) % 2, method, end, timeout, packs);
            }
            Step::Body { pick, body, end } => self.body(pick, body, end),
            Step::Trailers { pick, code } => {
                let Some((web, tag)) = self.stream(pick) else { return };
                let code = code.map(|code| (code % 20).to_string());
                let pairs: Vec<_> = code.iter().map(|code| ("grpc-status", code.as_str())).collect();
                self.world.trailers(web, tag, &pairs);
            }
            Step::Reset { pick, reason } => {
                let Some((web, tag)) = self.stream(pick) else { return };
                self.world.reset(web, tag, Reason(u32::from(reason % 14)));
            }
            Step::Answer { pick, status, end } => {
                let Some((web, tag)) = self.stream(pick) else { return };
                let packing = if status.is_multiple_of(2) { "gzip" } else { "identity" };
                let status = [200, 200, 200, 404, 503, 302][usize::from(status / 2) % 6];
                let headers =
                    [("grpc-encoding", packing), ("grpc-accept-encoding", packing), ("grpc-status", "0")];
                self.world.answer(web, tag, status, if end { &headers } else { &headers[..2] }, end);
            }
            Step::Call { method, bytes, end, deadline_ns } => self.call(method, bytes, end, deadline_ns),
            Step::Message { pick, bytes, end } => {
                let Some(id) = Self::nth(&self.open, pick) else { return };
                self.message(CallId(id), bytes, end);
            }
            Step::Cancel { pick } => {
                let Some(id) = Self::nth(&self.open, pick) else { return };
                self.open.insert(id, true);
                self.submit(Submission::Cancel { call: CallId(id) });
            }
            Step::Reply { pick, bytes } => {
                let Some(id) = Self::nth(&self.delivered, pick) else { return };
                if self.delivered[&id] >= 2 {
                    self.message(CallId(id), bytes, false);
                }
            }
            Step::Finish { pick, ok } => {
                let Some(id) = Self::nth(&self.delivered, pick) else { return };
                self.finish(id, ok);
            }
            Step::Ready { web, streams_max } => {
                let web = self.web(web);
                self.world.http(web, Event::Ready { streams_max: streams_max.into() });
            }
            Step::GoAway { web } => {
                let web = self.web(web);
                self.world.http(web, Event::GoAway { reason: Reason::NO_ERROR, debug: Bytes::new() });
            }
            Step::Leave { pick, bytes } => {
                let Some((web, tag)) = self.stream(pick) else { return };
                self.world.leave(web, tag, bytes.into());
            }
            Step::Stray { web, tag, kind } => self.stray(web, tag, kind),
            Step::HangUp { web } => {
                let web = self.web(web);
                self.world.hang_up(web);
                self.settle();
                if web < 2 {
                    // The client comes back.
                    let again = self.client();
                    self.world.webs.swap(web, again);
                }
            }
            Step::Cut => {
                if let Some(link) = self.world.links.iter().position(|link| link.up) {
                    self.world.cut(link);
                }
            }
            Step::Rest(rests) => self.rest(rests),
            Step::Pass { ns } => self.world.advance(ns.into()),
            Step::Settle => self.settle(),
        }
    }

    fn rest(&mut self, rests: bool) {
        if rests {
            self.unread.get_or_insert_default();
        } else if let Some(unread) = self.unread.take() {
            unread.into_iter().for_each(|read| self.submit(read));
        }
    }

    fn ask(&mut self, web: usize, method: u8, end: bool, timeout: Option<u8>, packs: bool) {
        let timeout = timeout.map(|timeout| format!("{timeout}u"));
        self.open_stream(
            web,
            METHODS[usize::from(method) % 4],
            timeout,
            end && method.is_multiple_of(7),
            packs,
        );
    }

    fn open_stream(&mut self, web: usize, path: &str, timeout: Option<String>, end: bool, packs: bool) {
        self.tags += 1;
        let mut headers: Vec<_> = timeout.iter().map(|timeout| ("grpc-timeout", timeout.as_str())).collect();
        if packs {
            headers.extend([("grpc-encoding", "gzip"), ("grpc-accept-encoding", "gzip")]);
        }
        self.world.request(web, StreamTag(self.tags), path, &headers, end);
    }

    fn body(&mut self, pick: u8, body: Body, end: bool) {
        let Some((web, tag)) = self.stream(pick) else { return };
        let bytes = match body {
            Body::Message(bytes) => blob(&vec![1; bytes as usize]),
            Body::Half => blob(b"half a message")[..9].to_vec(),
            Body::Empty(count) => framed(&[]).repeat(count.into()),
            Body::Malformed => framed(&[0x0a, 0xff, 0xff]),
            Body::Junk(bytes) => bytes,
            Body::Packed(bytes, sound) => {
                let mut packed = Vec::new();
                compress(Encoding::Gzip, &vec![2; bytes as usize], &mut packed).unwrap();
                let mut out = framed(if sound { &packed } else { &packed[..4] });
                out[0] = 1;
                out
            }
        };
        self.world.body(web, tag, &bytes, end);
    }

    fn call(&mut self, method: u8, bytes: u32, end: bool, deadline_ns: Option<u16>) {
        if self.setting.is_far() {
            return; // the world dials for host 0 only
        }
        let method = usize::from(method) % 4;
        let streams = method == 1 || method == 3;
        let payload = (!streams || bytes.is_multiple_of(2)).then(|| self.blob(bytes));
        let mut call = self.app.call(method, payload, end || !streams);
        call.deadline =
            deadline_ns.map_or(Deadline::NONE, |ns| Deadline::at(self.world.now.plus_ns(ns.into())));
        self.open.insert(call.call.0, false);
        self.submit(Submission::Call(call));
    }

    fn finish(&mut self, id: u64, ok: bool) {
        let method = self.delivered.remove(&id).unwrap();
        let payload = (ok && method < 2).then(|| self.blob(50));
        let code = if ok { Code::Ok } else { Code::Aborted };
        self.submit(Submission::Finish(finish(CallId(id), code, payload)));
    }

    /// Events for streams that are not, or not any more.
    fn stray(&mut self, web: u8, tag: u8, kind: u8) {
        let web = self.web(web);
        let stream = StreamTag(1 << 40 | u64::from(tag));
        match kind % 6 {
            0 => self.world.body(web, stream, b"stray", kind > 100),
            1 => self.world.trailers(web, stream, &[("grpc-status", "0")]),
            2 => self.world.reset(web, stream, Reason::CANCEL),
            3 => self.world.http(web, Event::Sent { stream, bytes: 1_000 }),
            4 => self.world.http(web, Event::Written { stream, at: self.world.now }),
            _ => self.world.answer(web, stream, 200, &[], false),
        }
    }

    /// Moves everything and takes what came, releasing it at once.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            self.world.settle(&mut [&mut self.app]);
            if self.app.inbox.is_empty() {
                return;
            }
            for completion in std::mem::take(&mut self.app.inbox) {
                self.take_completion(completion);
            }
        }
        panic!("completions without end");
    }

    fn take_completion(&mut self, completion: Completion) {
        match completion {
            Completion::Call(call) => {
                let method = self.app.served.iter().position(|(_, route)| *route == call.route).unwrap();
                assert!(self.delivered.insert(call.call.0, method).is_none(), "a handler sees a call once");
                self.release(call.call, call.payload, call.metadata, 0);
            }
            Completion::Message { call, payload, .. } => {
                self.release(call, Some(payload), Span::default(), 0)
            }
            Completion::Headers { call, metadata } => self.release(call, None, metadata, 0),
            Completion::Finish(finish) => {
                assert!(self.open.remove(&finish.call.0).is_some(), "call {:?} ended twice", finish.call);
                self.last = Some(finish.code);
                self.release(finish.call, finish.payload, finish.metadata, 9);
            }
            Completion::Cancelled { call, .. } => {
                self.delivered.remove(&call.0);
            }
            Completion::Freed { offsets } => {
                for offset in offsets.into_iter().filter(|offset| *offset != 0) {
                    assert!(self.lent.remove(&offset), "block {offset} came back twice");
                }
            }
            Completion::Credit { call, bytes } => {
                *self.charged.entry(call.0).or_default() -= i64::from(bytes);
            }
            Completion::HalfClose { .. } | Completion::GoAway | Completion::Drained => {}
        }
    }

    fn release(&mut self, call: CallId, payload: Option<Payload>, metadata: Span, a18: u64) {
        let read = release(call, payload, metadata, a18);
        match &mut self.unread {
            Some(unread) => unread.push(read),
            None => self.submit(read),
        }
    }

    /// Everything still open is ended; then nothing may be left.
    fn end(&mut self) {
        for web in &mut self.world.webs {
            web.reads = true;
        }
        self.world.arrives = |_| true;
        self.rest(false);
        self.finish_all();
        let open: Vec<_> =
            self.open.iter().filter(|(_, cancelled)| !**cancelled).map(|(id, _)| *id).collect();
        for id in open {
            self.submit(Submission::Cancel { call: CallId(id) });
        }
        self.settle();
        // Clients whose requests never became whole give up.
        while let Some((web, tag)) = self.stream(0) {
            self.world.reset(web, tag, Reason::CANCEL);
        }
        for web in 0..2 {
            // And those who said what only servers say.
            for tag in self.world.webs[web].unanswered() {
                self.world.reset(web, tag, Reason::CANCEL);
            }
        }
        self.settle();
        self.world.advance(1);
        self.settle();
        if self.setting == Setting::R2p2 {
            self.forget_r2p2();
        }
        assert_eq!(self.world.leftovers(), (0, 0), "calls and receive blocks left");
        assert_eq!(self.world.unreleased(), 0, "body bytes that never came back to a window");
        for row in self.world.hosts[0].engine.snapshot().peers {
            assert_eq!((row.streams, row.queued_bytes), (0, 0), "{row:?}");
        }
        assert!(self.lent.len() < 14, "{} send blocks never came back", self.lent.len());
        self.fresh_calls();
    }

    fn finish_all(&mut self) {
        for _ in 0..200 {
            self.settle();
            let Some(id) = Self::nth(&self.delivered, 0) else { break };
            self.finish(id, true);
        }
    }

    /// What was cancelled by a datagram that was lost, its server has to finish; and whoever asked gives up in time.
    fn forget_r2p2(&mut self) {
        for _ in 0..40 {
            self.finish_all();
            self.world.advance(1_000_000_000);
        }
        self.finish_all();
    }

    /// Whatever has been, whoever calls now is served, either way.
    fn fresh_calls(&mut self) {
        self.world.advance(10_000_000_000);
        self.settle();
        self.open.clear();
        self.open_stream(0, ONCE, None, false, false);
        let asked = StreamTag(self.tags);
        self.world.body(0, asked, &blob(b"fresh"), true);
        self.settle();
        match self.setting {
            Setting::Gateway => self.answer_fresh(),
            Setting::Edge | Setting::Native | Setting::R2p2 => {
                let id = Self::nth(&self.delivered, 0).expect("the call is delivered");
                self.finish(id, true);
                self.settle();
            }
        }
        assert_eq!(self.world.webs[0].take(asked).code(), 0);
        if !self.setting.is_far() {
            self.call(0, 100_000, true, None);
            self.settle();
            self.answer_fresh();
            assert_eq!((self.open.len(), self.last), (0, Some(Code::Ok)));
        }
        assert_eq!(self.world.leftovers(), (0, 0), "calls and receive blocks left");
    }

    /// A server answers the one call it has.
    fn answer_fresh(&mut self) {
        let ready: Vec<usize> = (2..self.world.webs.len()).filter(|web| self.world.webs[*web].up).collect();
        for web in ready {
            self.world.http(web, Event::Ready { streams_max: 4 });
        }
        self.settle();
        let own = |(_, tag): &(usize, StreamTag)| tag.0 & StreamTag::OWN != 0;
        let (web, tag) = self.streams().into_iter().find(own).expect("the call is on its way");
        assert!(self.world.webs[web].take(tag).ended, "all of it");
        self.world.answer(web, tag, 200, &[], false);
        self.world.body(web, tag, &blob(b"fresh"), false);
        self.world.trailers(web, tag, &[("grpc-status", "0")]);
        self.settle();
    }
}

/// Both hosts speak R2P2, and every fifth datagram is lost.
fn speak_r2p2(world: &mut World) {
    let now = std::mem::replace(&mut world.now, Instant(0));
    for (host, serves) in [(0, false), (1, true)] {
        let settings = R2p2Settings { serves, ..R2p2Settings::default() };
        world.hosts[host].engine.configure_r2p2(world.now, settings.clone());
        world.r2p2[host] = settings;
    }
    world.now = now.plus_ns(60_000_000_000);
    world.arrives = |number| number % 5 != 3;
}

/// The gateway knows the types of the service's messages.
fn told() -> GatewaySettings {
    let schema = Schema::from_proto_source("world.proto", PROTO).unwrap();
    GatewaySettings { schemas: vec![Arc::new(BoundSchema::new(schema))], ..GatewaySettings::default() }
}

impl Attempts {
    fn config(self) -> ServiceConfig {
        match self {
            Self::One => ServiceConfig::default(),
            Self::Retries => ServiceConfig::parse(RETRIES).unwrap(),
            Self::Hedges => ServiceConfig::parse(HEDGES).unwrap(),
        }
    }
}

impl Chained {
    fn chain(self) -> Chain {
        let of = |kind| Definition {
            name: "of-the-test".into(),
            kind,
            side: Side::Client,
            ..Definition::default()
        };
        let definition = match self {
            Self::Nothing => return Chain::default(),
            Self::Logs => of(Kind::AccessLog),
            Self::Reads => Definition { deny: Some("request.note == 'secret'".into()), ..of(Kind::Access) },
            Self::Packs => Definition { encoding: Some(EncodingName::Deflate), ..of(Kind::Compress) },
            Self::Bounds => Definition { calls_max: Some(2), ..of(Kind::ConcurrencyLimit) },
        };
        Chain::build(&[definition]).unwrap()
    }
}

const RETRIES: &str = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3,
    "initialBackoff": "0.001s", "maxBackoff": "0.01s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "INTERNAL", "UNKNOWN"]}}]}"#;
const HEDGES: &str = r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.001s",
    "nonFatalStatusCodes": ["UNAVAILABLE", "INTERNAL", "UNKNOWN"]}}]}"#;

/// `PROPTEST_CASES` says how many, if it is set.
fn cases(ordinary: u32) -> ProptestConfig {
    let all = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { all.cases } else { ordinary };
    ProptestConfig { cases, max_shrink_iters: 500, ..all }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn histories(steps in steps(), reads in any::<bool>()) {
        let mut history = History::new(Setting::Edge, reads, Attempts::One, Chained::Nothing);
        for step in steps {
            history.take(step);
        }
        history.end();
    }

    #[test]
    fn histories_of_a_gateway(
        steps in steps(),
        reads in any::<bool>(),
        setting in prop_oneof![Just(Setting::Gateway), Just(Setting::Native), Just(Setting::R2p2)],
        attempts in prop_oneof![Just(Attempts::One), Just(Attempts::Retries), Just(Attempts::Hedges)],
        chained in prop_oneof![
            2 => Just(Chained::Nothing),
            1 => Just(Chained::Logs),
            1 => Just(Chained::Reads),
            1 => Just(Chained::Packs),
            1 => Just(Chained::Bounds),
        ],
    ) {
        let mut history = History::new(setting, reads, attempts, chained);
        for step in steps {
            history.take(step);
        }
        history.end();
    }
}
