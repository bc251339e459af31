//! Shows, over random histories of two hosts whose applications know their types or do not, of gRPC clients and
//! servers, and of calls over R2P2, that a call ends once, that what its ends got is what they were sent, that OK means
//! all of it, that nothing is executed twice unless it may have several attempts, and that nothing is left and nothing
//! turns when all is done — whatever comes in parts, moves, waits, is replaced, cut, bounded or refused in between.

mod world;

use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use trunkline_call::entry::{Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Encoding, Execution, Instant, Metadata};
use trunkline_engine::{
    BoundSchema, GatewaySettings, Limits, R2p2Settings, SampleRule, ShardIndex, Turn, has_crossings,
};
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_grpc::{Command, Event, Reason, StreamTag};
use trunkline_message::Redaction;
use trunkline_policy::{Chain, Definition, Kind, Side};
use trunkline_schema::Schema;
use world::ledger::{Ledger, NUMBER_KEY, Record, message};
use world::web::framed;
use world::*;

const METHODS: [&str; 4] = ["Once", "Gather", "Scatter", "Chat"];
const FAR: &str = "tcp://127.0.0.1:1";
const WEB: &str = "tcp://10.1.1.1:50051";
const R2P2: &str = "r2p2://10.0.0.2:8000";
/// Where calls go to, and for which services. `Far` has endpoints, and a configuration of its calls.
const WAYS: [(Option<&str>, &str); 7] = [
    (None, "Echo"),
    (None, "Whole"),
    (None, "Far"),
    (Some(FAR), "Echo"),
    (Some(FAR), "Whole"),
    (Some(WEB), "Echo"),
    (Some(R2P2), "Whole"),
];
/// Messages of typed applications, with everything that is served.
const BLOB: &str = "syntax = \"proto3\"; package world; message Blob { bytes data = 1; string note = 2; }";
const OLDER_BLOB: &str =
    "syntax = \"proto3\"; package world; message Blob { bytes data = 1; int32 since_removed = 9; }";

/// One thing that happens. Numbers pick among what there is.
#[derive(Clone)]
struct Step {
    what: What,
    pick: u8,
    other: u8,
    bytes: u32,
    flag: bool,
    /// As many messages as the method has.
    exact: bool,
}

/// On one line, so that a history that fails is not cut short where it is told.
impl std::fmt::Debug for Step {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, pick, other, bytes, flag, exact } = self;
        write!(to, "step({what:?}, {pick}, {other}, {bytes}, {flag}, {exact})")
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// An application calls.
    Call,
    Message,
    HalfClose,
    Cancel,
    /// A handler says something.
    Headers,
    Answer,
    Finish,
    /// A gRPC client calls.
    Ask,
    /// It says something: all of it, or a part.
    Say,
    Reset,
    /// A gRPC server answers: a part of it.
    Respond,
    HangUp,
    /// An application reads, or does not.
    Rest,
    Move,
    /// A session is on its way to another shard.
    Leave,
    Arrive,
    Die,
    Drain,
    Replace,
    Cut,
    Redial,
    /// Endpoints can be dialled, or not.
    Reach,
    Policies,
    Pass,
    Settle,
    Nudge,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let what = prop_oneof![
        10 => Just(What::Call),
        6 => Just(What::Message),
        4 => Just(What::HalfClose),
        1 => Just(What::Cancel),
        1 => Just(What::Headers),
        5 => Just(What::Answer),
        6 => Just(What::Finish),
        3 => Just(What::Ask),
        4 => Just(What::Say),
        1 => Just(What::Reset),
        5 => Just(What::Respond),
        1 => Just(What::HangUp),
        3 => Just(What::Rest),
        6 => Just(What::Move),
        2 => Just(What::Leave),
        2 => Just(What::Arrive),
        1 => Just(What::Die),
        1 => Just(What::Drain),
        1 => Just(What::Replace),
        1 => Just(What::Cut),
        1 => Just(What::Redial),
        1 => Just(What::Reach),
        2 => Just(What::Policies),
        2 => Just(What::Pass),
        8 => Just(What::Settle),
        5 => Just(What::Nudge),
    ];
    let bytes = prop_oneof![4 => 0u32..200, 2 => 4_000u32..6_000, 1 => 15_000u32..200_000];
    let step = (what, any::<u8>(), any::<u8>(), bytes, any::<bool>(), prop::bool::weighted(0.9));
    let step = step.prop_map(|(what, pick, other, bytes, flag, exact)| Step {
        what,
        pick,
        other,
        bytes,
        flag,
        exact,
    });
    proptest::collection::vec(step, 1..120)
}

/// What a history is of.
#[derive(Clone, Copy, Debug)]
struct Setting {
    shards: usize,
    /// Engines are replaced after every step; HTTP/2 connections do not go along.
    replaces: bool,
    /// Limits are small, so that they are met.
    is_tight: bool,
    /// Some datagrams are lost.
    loses: bool,
    /// A service is served by applications with types and without.
    is_mixed: bool,
    /// What only the far host serves is served by an application without types.
    is_far_opaque: bool,
    /// What is said of calls to it: once, again, beside each other.
    attempts: u8,
    piece_bytes: usize,
    /// A session moves after every step.
    moves: bool,
    /// Calls are traced, and kept with their messages.
    watches: bool,
}

fn settings(replaces: bool) -> impl Strategy<Value = Setting> {
    let piece = prop_oneof![Just(usize::MAX), Just(700), Just(9_000)];
    let flags = (any::<bool>(), prop::bool::weighted(0.3), any::<bool>(), any::<bool>(), any::<bool>());
    (1usize..4, flags, 0u8..3, piece, any::<bool>()).prop_map(
        move |(shards, flags, attempts, piece_bytes, watches)| {
            let (is_tight, loses, is_mixed, is_far_opaque, moves) = flags;
            let shards = of_all(shards);
            Setting {
                shards,
                replaces,
                is_tight,
                loses,
                is_mixed,
                is_far_opaque,
                attempts,
                piece_bytes,
                moves,
                watches,
            }
        },
    )
}

/// `TRUNKLINE_TEST_SHARDS` says how many shards all hosts have.
fn of_all(shards: usize) -> usize {
    std::env::var("TRUNKLINE_TEST_SHARDS").ok().and_then(|count| count.parse().ok()).unwrap_or(shards)
}

/// One of the applications.
struct Role {
    host: usize,
    blob: Option<&'static str>,
    serves: Vec<String>,
    /// Only while nobody else does.
    stands_by: bool,
}

/// An end of a call at an application: which, and its name for the call.
type End = (usize, u64);
/// An end of a call at an HTTP/2 connection.
type Stream = (usize, u64);

/// What a gRPC client is at.
struct Asking {
    number: u64,
    /// What has been said and not sent.
    unsent: VecDeque<u8>,
    is_all: bool,
    is_over: bool,
    body: Vec<u8>,
}

/// What a gRPC server is at.
struct Responding {
    number: u64,
    place: usize,
    has_head: bool,
    is_over: bool,
    body: Vec<u8>,
}

struct History {
    world: World,
    setting: Setting,
    ledger: Ledger,
    roles: Vec<Role>,
    apps: Vec<App>,
    away: Vec<Option<Leaving>>,
    /// Those, in the order in which they left.
    left: Vec<usize>,
    /// What is read and not released, where somebody rests.
    unread: Vec<Option<Vec<Submission>>>,
    /// They do not serve any more.
    drains: Vec<bool>,
    /// Calls made, and calls delivered: their number and, of a handler, its place.
    made: BTreeMap<End, u64>,
    delivered: BTreeMap<End, (u64, usize)>,
    /// What messages took of the windows of streams.
    charged: BTreeMap<End, i64>,
    lent: BTreeMap<(usize, u32), ()>,
    clients: [usize; 2],
    /// Connections that are taken note of.
    greeted: usize,
    asking: BTreeMap<Stream, Asking>,
    responding: BTreeMap<Stream, Responding>,
    tags: u64,
}

impl History {
    fn new(setting: Setting) -> Self {
        let limits = if setting.is_tight {
            tight()
        } else {
            Limits { attempts_per_second: 1_000, ..Limits::default() }
        };
        let mut world = World::with_shards(limits, setting.shards);
        if !setting.replaces {
            world.foreign_at.insert(WEB.to_owned());
        }
        (world.piece_bytes, world.is_native) = (setting.piece_bytes, setting.replaces);
        speak_r2p2(&mut world, setting.loses);
        let roles = roles(setting);
        let ledger =
            Ledger { is_bounded: setting.is_tight, repeats: setting.attempts > 0, ..Ledger::default() };
        let count = roles.len();
        let mut history = Self {
            world,
            setting,
            ledger,
            roles,
            apps: Vec::new(),
            away: (0..count).map(|_| None).collect(),
            left: Vec::new(),
            unread: vec![None; count],
            drains: vec![false; count],
            made: BTreeMap::new(),
            delivered: BTreeMap::new(),
            charged: BTreeMap::new(),
            lent: BTreeMap::new(),
            clients: [0, 1],
            greeted: 0,
            asking: BTreeMap::new(),
            responding: BTreeMap::new(),
            tags: 0,
        };
        history.configure();
        if setting.watches {
            history.watch();
        }
        for role in 0..count {
            let app = history.attach(role);
            history.apps.push(app);
        }
        for client in 0..2 {
            history.connect(client);
        }
        history
    }

    fn configure(&mut self) {
        let schema = Arc::new(BoundSchema::new(schema(BLOB)));
        for place in self.world.shards[0].clone() {
            let Host { engine, heaps } = &mut self.world.hosts[place];
            let told = GatewaySettings { schemas: vec![Arc::clone(&schema)], ..GatewaySettings::default() };
            engine.configure_gateway(told);
            engine.configure_service("world.Far", &[FAR.to_owned()]).unwrap();
            let config = ["{}", RETRIES, HEDGES][usize::from(self.setting.attempts)];
            engine.configure_calls("world.Far", ServiceConfig::parse(config).unwrap());
            engine.serve_waiting(&mut Turn { now: self.world.now, heaps });
        }
    }

    /// Calls of every host are traced, and kept with their messages.
    fn watch(&mut self) {
        let rule = |service: &str| SampleRule {
            service: format!("world.{service}"),
            methods: Vec::new(),
            per_second: 1e9,
            message_bytes_max: 6_000,
            redaction: Arc::new(Redaction::new([])),
        };
        for Host { engine, .. } in &mut self.world.hosts {
            engine.trace_calls(1.0, 7);
            engine.sample_calls(["Echo", "Whole", "Far"].map(rule).into());
        }
    }

    fn attach(&mut self, role: usize) -> App {
        let Role { host, blob, serves, stands_by } = &self.roles[role];
        let bytes = if self.setting.is_tight { 8 << 20 } else { 24 << 20 };
        let mut app = self.world.attach_sized(*host, PROTO, None, false, bytes);
        app.routes.clear();
        app.is_opaque = blob.is_none();
        app.schema = Arc::new(BoundSchema::new(schema(blob.unwrap_or(BLOB))));
        let target = |way: Option<&str>| way.filter(|_| *host == 0).map(str::to_owned);
        let calls: Vec<_> = WAYS
            .iter()
            .flat_map(|(way, service)| {
                METHODS.map(|method| (format!("/world.{service}/{method}"), target(*way)))
            })
            .collect();
        let serves = serves.clone();
        if *stands_by {
            self.world.hosts[app.host].engine.stand_by(app.key);
        }
        self.world.bind(&mut app, &serves, &calls);
        if self.setting.is_tight {
            let heap = self.world.hosts[app.host].heaps.slots.get_mut(&app.key.to_bits()).unwrap();
            heap.receive.truncate(600 << 10);
        }
        app
    }

    /// A gRPC client comes: the first calls what is served there, the second is at the gateway.
    fn connect(&mut self, client: usize) {
        if self.setting.replaces {
            return;
        }
        let places = &self.world.shards[0];
        let place = places[client % places.len()];
        self.clients[client] = match client {
            0 => self.world.web(place),
            _ => self.world.web_at_gateway(place, &[]),
        };
    }

    fn is_here(&self, app: usize) -> bool {
        self.away[app].is_none()
    }

    fn put(&mut self, app: usize, data: &[u8]) -> Payload {
        let payload = self.world.message(&mut self.apps[app], data);
        self.lent.insert((app, payload.span.offset), ());
        payload
    }

    fn submit(&mut self, app: usize, submission: Submission) {
        self.world.submit(&self.apps[app], submission).unwrap();
    }

    fn take(&mut self, step: &Step) {
        match step.what {
            What::Call => self.call(step),
            What::Message => self.send_request(step),
            What::HalfClose => {
                if let Some(((app, id), number)) = self.nth_made(step.pick) {
                    self.half_close(app, id, number, step.exact);
                }
            }
            What::Cancel => {
                if let Some(((app, id), number)) = self.nth_made(step.pick) {
                    self.ledger.call(number).is_cancelled = true;
                    self.submit(app, Submission::Cancel { call: CallId(id) });
                }
            }
            What::Headers => {
                if let Some(((app, id), _)) = self.nth_delivered(step.pick) {
                    let metadata = self.metadata(app, &[("said", "early")]);
                    self.submit(app, Submission::Headers { call: CallId(id), metadata });
                }
            }
            What::Answer => self.answer(step),
            What::Finish => {
                if let Some(((app, id), _)) = self.nth_delivered(step.pick) {
                    self.finish(app, id, !step.other.is_multiple_of(4), step.bytes, step.flag, step.exact);
                }
            }
            What::Ask => self.ask(step),
            What::Say => self.say(step),
            What::Reset => self.reset(step),
            What::Respond => self.respond(step),
            What::HangUp => self.hang_up(step.pick),
            What::Rest => self.rest(usize::from(step.pick) % self.apps.len(), step.flag),
            What::Move => self.migrate(step.pick, step.other),
            What::Leave => self.leave(usize::from(step.pick) % self.apps.len(), step.other),
            What::Arrive => (0..self.apps.len()).for_each(|app| self.arrive(app)),
            What::Die => self.die(usize::from(step.pick) % self.apps.len()),
            What::Drain => self.drain(usize::from(step.pick) % self.apps.len()),
            What::Replace => self.replace(step.pick),
            What::Cut => self.cut(),
            What::Redial => self.world.ask_to_redial(),
            What::Reach => {
                self.ledger.losses += usize::from(step.flag);
                self.world.unreachable = step.flag;
            }
            What::Policies => self.change_policies(step.pick, step.other),
            What::Pass => self.world.advance(u64::from(step.pick) * u64::from(step.other) * 100),
            What::Settle => self.settle(),
            What::Nudge => self.nudge(step.pick % 20),
        }
    }

    fn nth_made(&self, pick: u8) -> Option<(End, u64)> {
        let open = |((app, _), number): &(&End, &u64)| {
            self.is_here(*app) && !self.ledger.calls[*number].is_cancelled
        };
        let all: Vec<_> = self.made.iter().filter(open).collect();
        all.get(usize::from(pick) % all.len().max(1)).map(|(end, number)| (**end, **number))
    }

    fn nth_delivered(&self, pick: u8) -> Option<(End, (u64, usize))> {
        let all: Vec<_> = self.delivered.iter().filter(|((app, _), _)| self.is_here(*app)).collect();
        all.get(usize::from(pick) % all.len().max(1)).map(|(end, call)| (**end, **call))
    }

    fn metadata(&mut self, app: usize, pairs: &[(&str, &str)]) -> Span {
        let mut metadata = Metadata::new();
        pairs.iter().for_each(|(key, value)| metadata.insert(key, value).unwrap());
        let span = self.world.put_metadata(&mut self.apps[app], &metadata);
        self.lent.insert((app, span.offset), ());
        span
    }

    fn call(&mut self, step: &Step) {
        let app = usize::from(step.pick) % self.apps.len();
        if !self.is_here(app) {
            return;
        }
        let route = usize::from(step.other) % (WAYS.len() * 4);
        let (way, method) = (route / 4, route % 4);
        let is_opaque = self.apps[app].is_opaque;
        // One that knows the method says all of a lone request with the call; one that does not may say it in parts.
        let is_lone = if is_opaque { step.flag } else { method % 2 == 0 };
        let has_message = is_lone || step.bytes.is_multiple_of(3);
        let chance = step.bytes % 16;
        let parent = self.nth_delivered(step.pick).filter(|((at, _), _)| *at == app && chance == 3);
        let is_learned = is_opaque && WAYS[way].1 == "Whole" && step.bytes.is_multiple_of(4);
        let (route, path) = match is_learned {
            true => self.learn(app, WAYS[way].0, step.pick % 5),
            false => (route, format!("/world.{}/{}", WAYS[way].1, METHODS[method])),
        };
        let mut record = Record {
            path,
            method,
            is_asked: is_lone,
            has_deadline: chance == 1,
            is_malformed: chance == 2 && is_lone && !is_opaque,
            is_orphan: parent.is_some(),
            is_single: self.roles[app].host == 0 && WAYS[way].0 == Some(R2P2),
            ..Record::default()
        };
        let number = self.ledger.calls.len() as u64 + 1;
        let payload = has_message.then(|| match record.is_malformed {
            true => {
                let payload = self.world.put(&mut self.apps[app], &[0xee; 300], Encoding::Linear);
                self.lent.insert((app, payload.span.offset), ());
                payload
            }
            false => {
                let data = message(number, false, 0, step.bytes as usize);
                let payload = self.put(app, &data);
                record.sent.push(data);
                payload
            }
        });
        assert_eq!(self.ledger.begin(record), number);
        let metadata = self.metadata(app, &[(NUMBER_KEY, &number.to_string())]);
        let mut call = self.apps[app].call(route, payload, is_lone);
        (call.metadata, call.wait_for_ready) = (metadata, step.bytes.is_multiple_of(5));
        if let Some(((_, id), _)) = parent {
            call.parent = CallId(id);
        }
        if chance == 1 {
            call.deadline = Deadline::at(self.world.now.plus_ns(u64::from(step.bytes) * 20));
        }
        self.made.insert((app, call.call.0), number);
        self.submit(app, Submission::Call(call));
    }

    /// A route of a method that nobody has said there is: its place, and its path.
    fn learn(&mut self, app: usize, way: Option<&str>, number: u8) -> (usize, String) {
        let path = format!("/world.Whole/Extra{number}");
        let way = way.filter(|_| self.roles[app].host == 0).map(str::to_owned);
        self.world.bind(&mut self.apps[app], &[], &[(path.clone(), way)]);
        (self.apps[app].routes.len() - 1, path)
    }

    fn has_window(&mut self, end: End) -> bool {
        let window = if self.setting.is_tight { TIGHT_WINDOW_BYTES } else { 1 << 20 };
        *self.charged.entry(end).or_default() < window
    }

    fn send(&mut self, end: End, data: &[u8], is_last: bool) {
        let payload = self.put(end.0, data);
        *self.charged.entry(end).or_default() += i64::from(payload.window_bytes());
        let call = CallId(end.1);
        self.submit(end.0, Submission::Message { call, payload, end: is_last, a1: Instant(1) });
    }

    fn send_request(&mut self, step: &Step) {
        let Some((end, number)) = self.nth_made(step.pick) else { return };
        let record = &self.ledger.calls[&number];
        let is_one = record.method.is_multiple_of(2) || record.is_single;
        let is_full = record.is_asked || step.exact && is_one && !record.sent.is_empty();
        if is_full || !self.has_window(end) {
            return;
        }
        let record = self.ledger.call(number);
        let data = message(number, false, record.sent.len(), step.bytes as usize);
        record.sent.push(data.clone());
        record.is_asked = step.flag;
        self.send(end, &data, step.flag);
    }

    fn half_close(&mut self, app: usize, id: u64, number: u64, exact: bool) {
        let record = &self.ledger.calls[&number];
        if record.is_asked {
            return;
        }
        let needs_one = (record.method.is_multiple_of(2) || record.is_single) && record.sent.is_empty();
        if needs_one && exact {
            let data = message(number, false, 0, 77);
            self.ledger.call(number).sent.push(data.clone());
            self.send((app, id), &data, false);
        }
        self.ledger.call(number).is_asked = true;
        self.submit(app, Submission::HalfClose { call: CallId(id) });
    }

    fn answer(&mut self, step: &Step) {
        let Some((end, (number, place))) = self.nth_delivered(step.pick) else { return };
        let record = &self.ledger.calls[&number];
        let sent = record.served[place].sent.len();
        let streams = record.method >= 2 && !record.is_single;
        let is_opaque = self.apps[end.0].is_opaque;
        let is_full = !streams && (!is_opaque || step.exact && sent > 0);
        if is_full || !self.has_window(end) {
            return;
        }
        let data = message(number, true, sent, step.bytes as usize);
        self.ledger.call(number).served[place].sent.push(data.clone());
        self.send(end, &data, false);
    }

    /// A handler ends a call. One that does not know the method may have said its one answer before, in part.
    fn finish(&mut self, app: usize, id: u64, ok: bool, bytes: u32, apart: bool, exact: bool) {
        let (number, place) = self.delivered[&(app, id)];
        let record = &self.ledger.calls[&number];
        let (is_one, is_opaque) = (record.method < 2 || record.is_single, self.apps[app].is_opaque);
        let sent = record.served[place].sent.len();
        let adds = ok && is_one && sent == 0 && (exact || !is_opaque);
        let mut payload = None;
        if adds {
            let data = message(number, true, 0, bytes as usize);
            self.ledger.call(number).served[place].sent.push(data.clone());
            // A typed handler of an answer that streams, which goes by R2P2, sends it as one of many.
            let streams = !is_opaque && self.ledger.calls[&number].method >= 2;
            if is_opaque && apart || streams {
                self.send((app, id), &data, false);
            } else {
                payload = Some(self.put(app, &data));
            }
        }
        self.delivered.remove(&(app, id));
        let code = if ok { Code::Ok } else { Code::Aborted };
        self.ledger.call(number).served[place].ended = Some(code);
        // Some servers are hostile.
        let cpu_ns = if id.is_multiple_of(3) { WILD_CPU_NS } else { 0 };
        let finish = Finish { cpu_ns, ..finish(CallId(id), code, payload) };
        self.submit(app, Submission::Finish(finish));
    }

    fn ask(&mut self, step: &Step) {
        if self.setting.replaces {
            return;
        }
        let client = usize::from(step.pick) % 2;
        let web = self.clients[client];
        let services = [["Echo", "Whole"], ["Far", "Echo"]][client];
        let method = usize::from(step.other) % 4;
        let service = services[usize::from(step.flag)];
        let path = match service == "Whole" && step.bytes.is_multiple_of(4) {
            true => format!("/world.Whole/Extra{}", step.pick % 5),
            false => format!("/world.{service}/{}", METHODS[method]),
        };
        let has_deadline = step.bytes % 16 == 1;
        let record = Record { path: path.clone(), method, has_deadline, ..Record::default() };
        let number = self.ledger.begin(record);
        self.tags += 1;
        let text = number.to_string();
        let timeout = format!("{}n", u64::from(step.bytes) * 20);
        let headers = [(NUMBER_KEY, text.as_str()), ("grpc-timeout", timeout.as_str())];
        let headers = if has_deadline { &headers[..] } else { &headers[..1] };
        let asking =
            Asking { number, unsent: VecDeque::new(), is_all: false, is_over: false, body: Vec::new() };
        self.asking.insert((web, self.tags), asking);
        self.world.request(web, StreamTag(self.tags), &path, headers, false);
    }

    /// A gRPC client says a part of its request, and thinks of another message when all of it has left.
    fn say(&mut self, step: &Step) {
        let open: Vec<Stream> =
            self.asking.iter().filter(|(_, one)| !one.is_over).map(|(at, _)| *at).collect();
        let Some(at) = open.get(usize::from(step.pick) % open.len().max(1)).copied() else { return };
        self.say_at(at, step.bytes as usize, usize::from(step.other) * 40 + 1, step.flag, step.exact);
    }

    fn say_at(&mut self, at: Stream, bytes: usize, piece: usize, ends: bool, exact: bool) {
        let Some(asking) = self.asking.get_mut(&at).filter(|one| !one.is_over) else { return };
        let record = self.ledger.call(asking.number);
        let is_one = record.method.is_multiple_of(2);
        if record.is_asked && asking.unsent.is_empty() {
            return;
        }
        let full = self.world.webs[at.0].streams.get(&at.1).is_some_and(|one| one.unreleased > 64 << 10);
        if full || !self.world.webs[at.0].up {
            return;
        }
        if asking.unsent.is_empty() && !(exact && is_one && !record.sent.is_empty()) {
            let data = message(asking.number, false, record.sent.len(), bytes);
            asking.unsent.extend(framed(&wire_of(&data)));
            record.sent.push(data);
        }
        let count = piece.min(asking.unsent.len());
        let part: Vec<u8> = asking.unsent.drain(..count).collect();
        let is_last = ends && asking.unsent.is_empty();
        record.is_asked |= is_last;
        asking.is_all |= is_last;
        self.world.body(at.0, StreamTag(at.1), &part, is_last);
    }

    fn reset(&mut self, step: &Step) {
        let of_clients =
            self.asking.iter().filter(|(_, one)| !one.is_over).map(|(at, one)| (*at, one.number));
        let of_servers =
            self.responding.iter().filter(|(_, one)| !one.is_over).map(|(at, one)| (*at, one.number));
        let all: Vec<(Stream, u64)> = of_clients.chain(of_servers).collect();
        let Some((at, number)) = all.get(usize::from(step.pick) % all.len().max(1)).copied() else { return };
        let record = self.ledger.call(number);
        match self.asking.get_mut(&at) {
            Some(asking) => (asking.is_over, record.is_cancelled) = (true, true),
            None => record.is_broken = true,
        }
        if let Some(responding) = self.responding.get_mut(&at) {
            responding.is_over = true;
        }
        let reason = if step.flag { Reason::CANCEL } else { Reason(2) };
        self.world.reset(at.0, StreamTag(at.1), reason);
    }

    /// A gRPC server says the next part of an answer.
    fn respond(&mut self, step: &Step) {
        let open: Vec<Stream> =
            self.responding.iter().filter(|(_, one)| !one.is_over).map(|(at, _)| *at).collect();
        let Some(at) = open.get(usize::from(step.pick) % open.len().max(1)).copied() else { return };
        self.respond_at(at, step.bytes as usize, step.other % 3, step.flag);
    }

    fn respond_at(&mut self, at: Stream, bytes: usize, part: u8, ok: bool) {
        let Some(one) = self.responding.get_mut(&at).filter(|one| !one.is_over) else { return };
        let tag = StreamTag(at.1);
        if !std::mem::replace(&mut one.has_head, true) {
            return self.world.answer(at.0, tag, 200, &[], false);
        }
        let record = self.ledger.call(one.number);
        let is_one = record.method < 2;
        let served = &mut record.served[one.place];
        let full = self.world.webs[at.0].streams.get(&at.1).is_some_and(|one| one.unreleased > 64 << 10);
        if (part > 0 || is_one && ok) && !full && (!is_one || served.sent.is_empty()) {
            let data = message(one.number, true, served.sent.len(), bytes);
            served.sent.push(data.clone());
            let framed = framed(&wire_of(&data));
            let (first, rest) = framed.split_at(framed.len() / 2);
            self.world.body(at.0, tag, first, false);
            return self.world.body(at.0, tag, rest, false);
        }
        if part == 0 || is_one {
            one.is_over = true;
            served.ended = Some(if ok { Code::Ok } else { Code::Aborted });
            self.world.trailers(at.0, tag, &[("grpc-status", if ok { "0" } else { "10" })]);
        }
    }

    fn hang_up(&mut self, pick: u8) {
        if self.world.webs.is_empty() {
            return;
        }
        let web = usize::from(pick) % self.world.webs.len();
        self.ledger.losses += 1;
        self.world.hang_up(web);
        for (_, one) in self.asking.iter_mut().filter(|((at, _), _)| *at == web) {
            one.is_over = true;
            self.ledger.call(one.number).is_orphan = true;
        }
        for (_, one) in self.responding.iter_mut().filter(|((at, _), _)| *at == web) {
            one.is_over = true;
        }
        if let Some(client) = self.clients.iter().position(|one| *one == web) {
            self.connect(client);
        }
    }

    fn rest(&mut self, app: usize, rests: bool) {
        if rests {
            self.unread[app].get_or_insert_default();
        } else if self.is_here(app) {
            let unread = self.unread[app].take();
            unread.into_iter().flatten().for_each(|read| self.submit(app, read));
        }
    }

    /// One application goes to another shard of its host, or all do.
    fn migrate(&mut self, pick: u8, other: u8) {
        let count = self.apps.len();
        let first = usize::from(pick) % (count + 1);
        for app in if first == count { 0..count } else { first..first + 1 } {
            self.leave(app, other);
            self.arrive(app);
        }
    }

    fn leave(&mut self, app: usize, other: u8) {
        let places = &self.world.shards[self.roles[app].host];
        let to = places[usize::from(other) % places.len()];
        if to != self.apps[app].host && self.is_here(app) && !self.drains[app] {
            self.away[app] = self.world.release(&self.apps[app], to);
            self.left.extend(self.away[app].is_some().then_some(app));
        }
    }

    /// Those that left before it for the same shard arrive before it: the daemon takes one session after the other.
    fn arrive(&mut self, app: usize) {
        let way = |of: &Self, app: usize| Some((of.apps[app].host, of.away[app].as_ref()?.to()));
        let Some(own) = way(self, app) else { return };
        let (arriving, left) = self.left.iter().partition(|other| way(self, **other) == Some(own));
        self.left = left;
        let arriving: Vec<usize> = arriving;
        let last = arriving.iter().position(|other| *other == app).unwrap_or_default();
        self.left.extend(&arriving[last + 1..]);
        for app in &arriving[..=last] {
            if let Some(leaving) = self.away[*app].take() {
                self.world.adopt(&mut self.apps[*app], leaving);
            }
        }
    }

    /// An application dies, and another like it comes.
    fn die(&mut self, app: usize) {
        self.arrive(app);
        self.world.detach(&self.apps[app]);
        for (_, number) in self.made.extract_if(.., |(of, _), _| *of == app) {
            self.ledger.call(number).is_orphan = true;
        }
        self.delivered.retain(|(of, _), _| *of != app);
        self.charged.retain(|(of, _), _| *of != app);
        self.lent.retain(|(of, _), ()| *of != app);
        self.ledger.losses += 1;
        self.ledger.deaths += 1;
        (self.unread[app], self.drains[app]) = (None, false);
        self.apps[app] = self.attach(app);
    }

    /// An application is to serve nothing more. When it has nothing to do it goes, and another comes.
    fn drain(&mut self, app: usize) {
        if self.is_here(app) && !self.drains[app] {
            self.ledger.deaths += 1;
            self.ledger.losses += 1;
            self.drains[app] = true;
            self.submit(app, Submission::Drain { answer: true });
        }
    }

    fn replace(&mut self, pick: u8) {
        let place = usize::from(pick) % self.world.hosts.len();
        // HTTP/2 connections are not handed over.
        let webs = self.world.webs.iter().all(|web| web.host != place || !web.up);
        if webs && self.world.bridges.iter().all(|bridge| !bridge.hosts.contains(&place) || !bridge.up) {
            self.world.replace_engine(place);
        }
    }

    fn cut(&mut self) {
        if let Some(link) = self.world.links.iter().rposition(|link| link.up) {
            self.world.cut(link);
            self.ledger.losses += 1;
        }
    }

    fn change_policies(&mut self, pick: u8, which: u8) {
        if which % 10 == READS && self.setting.is_mixed {
            return; // nobody can read what one of the servers is sent
        }
        // Only the near host dials, as those do that copy calls.
        let host = if which % 10 == 9 { 0 } else { usize::from(pick) % 2 };
        let (definitions, bounds, refuses) = policies(which, pick & 2 > 0);
        self.ledger.is_bounded |= bounds;
        self.ledger.refuses |= refuses;
        self.ledger.copies |= definitions.iter().any(|one| one.kind == Kind::Mirror);
        let chain = Chain::build(&definitions).unwrap();
        for place in self.world.shards[host].clone() {
            self.world.hosts[place].engine.apply_policies(chain.clone()).unwrap();
        }
    }

    fn nudge(&mut self, pieces: u8) {
        for _ in 0..pieces {
            let here = self.apps.iter_mut().zip(&self.away).filter(|(_, away)| away.is_none());
            let mut apps: Vec<&mut App> = here.map(|(app, _)| app).collect();
            self.world.step(&mut apps);
        }
        self.take_all();
    }

    /// Moves everything and takes what came.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            let here = self.apps.iter_mut().zip(&self.away).filter(|(_, away)| away.is_none());
            let mut apps: Vec<&mut App> = here.map(|(app, _)| app).collect();
            self.world.settle(&mut apps);
            if !self.take_all() {
                return;
            }
        }
        panic!("completions without end");
    }

    /// Takes what came for applications and gRPC's clients and servers. Whether there was any.
    fn take_all(&mut self) -> bool {
        let mut took = self.hear_webs();
        for app in 0..self.apps.len() {
            for completion in std::mem::take(&mut self.apps[app].inbox) {
                took = true;
                self.take_completion(app, completion);
            }
            if self.drains[app] && self.unread[app].is_none() && !self.has_calls(app) && self.is_here(app) {
                self.die(app);
            }
        }
        for host in &mut self.world.hosts {
            while host.engine.poll_access_record().is_some() {}
            while host.engine.take_sample().is_some() {}
        }
        took
    }

    fn has_calls(&self, app: usize) -> bool {
        let of = |end: &End| end.0 == app;
        let is_wanted = |(end, number): (&End, &u64)| of(end) && !self.ledger.calls[number].is_cancelled;
        self.delivered.keys().any(of) || self.made.iter().any(is_wanted)
    }

    fn take_completion(&mut self, app: usize, completion: Completion) {
        match completion {
            Completion::Call(call) => self.take_call(app, &call),
            Completion::Message { call, payload, end } => {
                let data = self.world.data(&self.apps[app], payload);
                match call.is_delivered() {
                    true => self.take_request(app, call, Some(data), end),
                    false => {
                        let number = self.made[&(app, call.0)];
                        self.ledger.take_answer(number, data);
                    }
                }
                self.release(app, call, Some(payload), Span::default(), 0);
            }
            Completion::HalfClose { call } => self.take_request(app, call, None, true),
            Completion::Headers { call, metadata } => self.release(app, call, None, metadata, 0),
            Completion::Finish(finish) => {
                let number = self.made.remove(&(app, finish.call.0)).expect("a call ends once");
                self.charged.remove(&(app, finish.call.0));
                if let Some(payload) = finish.payload {
                    let data = self.world.data(&self.apps[app], payload);
                    self.ledger.take_answer(number, data);
                }
                let why = match finish.metadata.len {
                    0 => String::new(),
                    _ => self
                        .world
                        .metadata(&self.apps[app], finish.metadata)
                        .text("grpc-message")
                        .unwrap_or("")
                        .to_owned(),
                };
                self.ledger.end(number, finish.code, finish.execution, &why);
                self.release(app, finish.call, finish.payload, finish.metadata, 9);
            }
            Completion::Cancelled { call, .. } => {
                if let Some((number, place)) = self.delivered.remove(&(app, call.0)) {
                    self.ledger.call(number).served[place].is_cancelled = true;
                }
            }
            Completion::Freed { offsets } => {
                for offset in offsets.into_iter().filter(|offset| *offset != 0) {
                    assert!(self.lent.remove(&(app, offset)).is_some(), "block {offset} came back twice");
                }
            }
            Completion::Credit { call, bytes } => {
                *self.charged.entry((app, call.0)).or_default() -= i64::from(bytes);
            }
            Completion::Drained => assert!(self.drains[app], "nobody has asked for it"),
            Completion::GoAway => {}
        }
    }

    fn take_call(&mut self, app: usize, call: &trunkline_call::entry::Call) {
        let (path, metadata) = self.head_of(app, call);
        let number = metadata.text(NUMBER_KEY).expect("calls have numbers").parse().unwrap();
        let place = self.ledger.deliver(number, &path);
        let twice = self.delivered.insert((app, call.call.0), (number, place));
        assert!(twice.is_none(), "a handler sees a call once");
        let data = call.payload.map(|payload| self.world.data(&self.apps[app], payload));
        self.take_request(app, call.call, data, call.end);
        self.release(app, call.call, call.payload, call.metadata, 0);
    }

    /// The path of a delivered call, and its metadata.
    fn head_of(&self, app: usize, call: &trunkline_call::entry::Call) -> (String, Metadata) {
        let app = &self.apps[app];
        let (path, _) = app.served.iter().find(|(_, route)| *route == call.route).expect("it is served");
        if !app.is_opaque {
            return (path.clone(), self.world.metadata(app, call.metadata));
        }
        let (len, rest) = self.world.received(app, call.metadata).split_first_chunk::<2>().unwrap();
        let (named, metadata) = rest.split_at(u16::from_le_bytes(*len).into());
        (String::from_utf8(named.to_vec()).unwrap(), Metadata::decode(metadata).unwrap())
    }

    fn take_request(&mut self, app: usize, call: CallId, data: Option<Vec<u8>>, end: bool) {
        // What is behind its end of the call has no reader.
        let Some((number, place)) = self.delivered.get(&(app, call.0)).copied() else { return };
        if let Some(data) = data {
            self.ledger.take_request(number, place, data);
        }
        if end {
            self.ledger.take_request_end(number, place);
        }
    }

    fn release(&mut self, app: usize, call: CallId, payload: Option<Payload>, metadata: Span, a18: u64) {
        let read = release(call, payload, metadata, a18);
        match &mut self.unread[app] {
            Some(unread) => unread.push(read),
            None => self.submit(app, read),
        }
    }

    /// What engines said to gRPC's clients and servers. Whether they said anything.
    fn hear_webs(&mut self) -> bool {
        let mut heard = false;
        for web in self.greeted..self.world.webs.len() {
            if !self.world.webs[web].endpoint.is_empty() {
                self.world.http(web, Event::Ready { streams_max: 100 });
                heard = true;
            }
        }
        self.greeted = self.world.webs.len();
        for web in 0..self.world.webs.len() {
            for command in std::mem::take(&mut self.world.webs[web].said) {
                heard = true;
                self.hear(web, command);
            }
        }
        heard
    }

    fn hear(&mut self, web: usize, command: Command) {
        match command {
            Command::Request { stream, head, end } => {
                let number = head.headers[NUMBER_KEY].to_str().unwrap().parse().unwrap();
                let place = self.ledger.deliver(number, head.uri.path());
                let one = Responding { number, place, has_head: false, is_over: false, body: Vec::new() };
                self.responding.insert((web, stream.0), one);
                self.hear_body(web, stream, &[], end);
            }
            Command::Data { stream, bytes, end } => self.hear_body(web, stream, &bytes, end),
            Command::Response { stream, head, end: true } => self.hear_end(web, stream, &head.headers),
            Command::Trailers { stream, trailers } | Command::CutOff { stream, trailers } => {
                self.hear_end(web, stream, &trailers);
            }
            Command::Reset { stream, .. } => {
                if let Some(one) = self.responding.get_mut(&(web, stream.0)) {
                    one.is_over = true;
                    self.ledger.call(one.number).served[one.place].is_cancelled = true;
                }
                if let Some(one) = self.asking.get_mut(&(web, stream.0)).filter(|one| !one.is_over) {
                    one.is_over = true;
                    self.ledger.end(one.number, Code::Cancelled, Execution::Unknown, "reset");
                }
            }
            Command::Response { .. } | Command::Release { .. } | Command::GoAway | Command::Close { .. } => {}
        }
    }

    fn hear_body(&mut self, web: usize, stream: StreamTag, bytes: &[u8], end: bool) {
        let at = (web, stream.0);
        if let Some(one) = self.responding.get_mut(&at) {
            one.body.extend_from_slice(bytes);
            while let Some(data) = next_message(&mut one.body) {
                self.ledger.take_request(one.number, one.place, data);
            }
            if end {
                assert!(one.body.is_empty(), "a part of a message is left");
                self.ledger.take_request_end(one.number, one.place);
            }
        } else if let Some(one) = self.asking.get_mut(&at).filter(|one| !one.is_over) {
            one.body.extend_from_slice(bytes);
            while let Some(data) = next_message(&mut one.body) {
                self.ledger.take_answer(one.number, data);
            }
        }
    }

    fn hear_end(&mut self, web: usize, stream: StreamTag, trailers: &http::HeaderMap) {
        let Some(one) = self.asking.get_mut(&(web, stream.0)).filter(|one| !one.is_over) else { return };
        one.is_over = true;
        let number = trailers["grpc-status"].to_str().unwrap().parse().unwrap();
        let said = trailers.get("trunkline-execution").map(|said| said.to_str().unwrap());
        let execution = match said {
            Some("not-executed") => Execution::NotExecuted,
            _ => Execution::Unknown,
        };
        let why = trailers.get("grpc-message").map_or("", |why| why.to_str().unwrap());
        self.ledger.end(one.number, Code::from_number(number), execution, why);
    }

    /// Everything that is open is said to its end, and answered; then nothing may be left.
    fn end(&mut self) {
        self.world.unreachable = false;
        self.world.arrives = |_| true;
        (0..self.apps.len()).for_each(|app| self.arrive(app));
        (0..self.apps.len()).for_each(|app| self.rest(app, false));
        self.settle();
        self.answer_all();
        let open: Vec<(End, u64)> = self.made.iter().map(|(end, number)| (*end, *number)).collect();
        for ((app, id), number) in open {
            let is_open = self.made.contains_key(&(app, id)) && !self.ledger.calls[&number].is_cancelled;
            if is_open {
                self.half_close(app, id, number, true);
            }
        }
        for at in self.asking.keys().copied().collect::<Vec<_>>() {
            for _ in 0..200 {
                self.say_at(at, 20, 10_000, true, true);
                self.settle();
            }
        }
        // Longer than connections wait to be dialled again, and requests over R2P2 for their answers.
        for _ in 0..40 {
            self.answer_all();
            self.world.advance(1_000_000_000);
        }
        self.answer_all();
        self.give_up_waiting();
        for _ in 0..5 {
            self.world.advance(1_000_000_000);
            self.answer_all();
        }
        self.is_nothing_left();
        self.ledger.is_complete();
    }

    /// Who waits for a service that nobody serves any more, and has said that it waits, would do so for ever.
    fn give_up_waiting(&mut self) {
        let services = self.world.hosts.iter().flat_map(|host| host.engine.snapshot().waiting);
        let waiting: usize = services.map(|(_, calls)| calls).sum();
        let made = self.made.iter().map(|(end, number)| (*end, *number));
        let open: Vec<(End, u64)> =
            made.filter(|(_, number)| !self.ledger.calls[number].is_cancelled).collect();
        if open.len() > waiting {
            return;
        }
        for ((app, id), number) in open {
            self.ledger.call(number).is_cancelled = true;
            self.submit(app, Submission::Cancel { call: CallId(id) });
        }
        self.settle();
    }

    /// Handlers answer whatever they have, until nothing more comes.
    fn answer_all(&mut self) {
        for _ in 0..500 {
            self.settle();
            let delivered = self.delivered.keys().next().copied();
            let responding = self.responding.iter().find(|(_, one)| !one.is_over).map(|(at, _)| *at);
            if let Some((app, id)) = delivered {
                self.finish(app, id, true, 50, id % 2 == 0, true);
            } else if let Some(at) = responding {
                self.respond_at(at, 50, 0, true);
            } else {
                return;
            }
        }
        panic!("calls without end");
    }

    fn is_nothing_left(&mut self) {
        for (at, one) in &self.asking {
            assert!(one.is_over || !self.world.webs[at.0].up, "{}", self.ledger.calls[&one.number].short());
        }
        let open = self.made.values().find(|number| !self.ledger.calls[*number].is_cancelled);
        assert!(open.is_none(), "not ended: {}", self.ledger.calls[open.unwrap()].short());
        self.world.bury();
        assert_eq!(self.world.leftovers(), (0, 0), "calls and receive blocks left");
        assert_eq!(self.world.unreleased(), 0, "body bytes that never came back to a window");
        for (place, host) in self.world.hosts.iter_mut().enumerate() {
            let state = host.engine.snapshot();
            for row in state.peers {
                assert_eq!((row.streams, row.queued_bytes), (0, 0), "{row:?}");
            }
            for row in state.sessions {
                let left = (row.calls_made, row.calls_delivered, row.completions_queued, row.parked);
                assert_eq!(left, (0, 0, 0, 0), "{row:?}");
            }
            let kept = |(name, bytes): &&(&str, u64)| {
                *bytes > 0 && !["telemetry", "requests over R2P2 that have ended"].contains(name)
            };
            assert_eq!(state.memory.iter().find(kept), None);
            assert!(state.balanced.iter().all(|row| row.outstanding == 0), "{:?}", state.balanced);
            assert_eq!(state.waiting, [], "calls wait for workers");
            let next = host.engine.next_timeout();
            assert!(next.is_none_or(|at| at > self.world.now), "host {place}: its time never comes");
            // A connection that is gone may have been in line.
            while host.engine.native().poll_transmitting().is_some() {}
            assert!(!host.engine.has_to_connect_or_transmit(), "host {place} turns");
            for shard in (0..self.setting.shards).filter(|shard| *shard != place / 2) {
                assert!(!has_crossings(&host.engine, ShardIndex(shard as u16)), "host {place} turns");
            }
        }
        for app in 0..self.apps.len() {
            let out = self.lent.keys().filter(|(owner, _)| *owner == app).count();
            // Fewer than a full entry of send blocks may still be waiting for company.
            assert!(out < 14, "{out} send blocks of application {app} never came back");
        }
    }
}

/// The data of the next message of a body, if it is there.
fn next_message(body: &mut Vec<u8>) -> Option<Vec<u8>> {
    let len = u32::from_be_bytes(body.get(1..5)?.try_into().unwrap()) as usize;
    let wire = body.get(5..5 + len)?;
    let data = data_of(wire);
    body.drain(..5 + len);
    Some(data)
}

const TIGHT_WINDOW_BYTES: i64 = 64 << 10;

fn tight() -> Limits {
    Limits {
        calls_made_per_session: 8,
        calls_delivered_per_session: 4,
        stream_window_bytes: TIGHT_WINDOW_BYTES as u32,
        methods_learned_per_service: 2,
        parked_bytes_per_session: 150 << 10,
        assembling_bytes_per_peer: 300 << 10,
        calls_waiting_per_endpoint: 3,
        bulk_body_bytes: 16 << 10,
        grpc_message_bytes: 250_000,
        grpc_connections_per_endpoint: 2,
        grpc_replay_bytes_per_call: 30_000,
        grpc_replay_bytes_per_peer: 60_000,
        attempts_bytes: 100_000,
        attempts_per_second: 1_000,
        connection_queue_bytes: 200 << 10,
        held_bytes_per_source: 1 << 20,
        held_bytes: 3 << 20,
        ..Limits::default()
    }
}

/// Near and far, with types and without.
fn roles(setting: Setting) -> Vec<Role> {
    let role = |host, blob, serves: &[&str]| {
        let serves = serves.iter().map(|name| format!("world.{name}")).collect();
        Role { host, blob, serves, stands_by: false }
    };
    let (mixed, far) = (setting.is_mixed, setting.is_far_opaque);
    vec![
        role(0, Some(BLOB), &["Echo"]),
        role(1, Some(BLOB), if far { &["Echo"] } else { &["Echo", "Far"] }),
        role(0, Some(OLDER_BLOB), &[]),
        role(0, None, if mixed { &["Whole", "Echo"] } else { &["Whole"] }),
        role(1, None, if far { &["Whole", "Far"] } else { &["Whole"] }),
        Role { stands_by: true, ..role(0, Some(BLOB), &["Whole"]) },
    ]
}

fn schema(blob: &str) -> Schema {
    let mut source = blob.to_owned();
    for service in ["Echo", "Whole", "Far"] {
        source.push_str(&format!(
            "\nservice {service} {{ rpc Once(Blob) returns (Blob); rpc Gather(stream Blob) returns (Blob); \
             rpc Scatter(Blob) returns (stream Blob); rpc Chat(stream Blob) returns (stream Blob); }}"
        ));
    }
    Schema::from_proto_source("world.proto", &source).unwrap()
}

/// Both hosts speak R2P2.
fn speak_r2p2(world: &mut World, loses: bool) {
    let now = std::mem::replace(&mut world.now, Instant(0));
    world.r2p2.clear();
    for (place, host) in world.hosts.iter_mut().enumerate() {
        let settings = R2p2Settings { serves: place == 1, ..R2p2Settings::default() };
        host.engine.configure_r2p2(world.now, settings.clone());
        world.r2p2.push(settings);
    }
    world.now = now.plus_ns(60_000_000_000);
    if loses {
        world.arrives = |number| number % 5 != 3;
    }
}

/// The chain that looks at messages.
const READS: u8 = 2;

/// A chain of policies; whether it bounds calls, and whether it refuses any.
fn policies(which: u8, serves: bool) -> (Vec<Definition>, bool, bool) {
    let side = if serves { Side::Server } else { Side::Client };
    let of =
        |kind| Definition { name: format!("{kind:?}").to_lowercase(), kind, side, ..Definition::default() };
    let class = Some(trunkline_policy::ClassName::Batch);
    match which % 10 {
        0 => (vec![], false, false),
        1 => (vec![of(Kind::AccessLog)], false, false),
        // Only servers know the types of all messages.
        READS => {
            let (deny, service) = (Some("size(request.data) > 100000".into()), Some("world.Echo".into()));
            (vec![Definition { deny, service, side: Side::Server, ..of(Kind::Access) }], false, true)
        }
        3 => (vec![Definition { deny: Some("method == 'Gather'".into()), ..of(Kind::Access) }], false, true),
        4 => (vec![Definition { calls_max: Some(2), ..of(Kind::ConcurrencyLimit) }], true, false),
        5 => (
            vec![Definition {
                calls_max: Some(2),
                waiting_max: Some(4),
                side: Side::Server,
                ..of(Kind::Queue)
            }],
            true,
            false,
        ),
        6 => (
            vec![Definition { class, bytes_per_second: Some(100_000_000), ..of(Kind::Priority) }],
            false,
            false,
        ),
        7 => (
            vec![Definition { calls_per_second: Some(1_000.0), burst: Some(3), ..of(Kind::RateLimit) }],
            true,
            false,
        ),
        8 => (vec![Definition { delay_ms: Some(1), percent: Some(50.0), ..of(Kind::Fault) }], false, false),
        _ => (
            vec![Definition { target: Some(FAR.into()), side: Side::Client, ..of(Kind::Mirror) }],
            false,
            false,
        ),
    }
}

const RETRIES: &str = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3,
    "initialBackoff": "0.001s", "maxBackoff": "0.01s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "ABORTED"]}}]}"#;
const HEDGES: &str = r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.001s",
    "nonFatalStatusCodes": ["UNAVAILABLE", "ABORTED"]}}]}"#;

/// `PROPTEST_CASES` says how many, if it is set.
fn cases(ordinary: u32) -> ProptestConfig {
    let all = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { all.cases } else { ordinary };
    ProptestConfig { cases, max_shrink_iters: 2_000, ..all }
}

fn play(setting: Setting, steps: &[Step]) {
    let mut history = History::new(setting);
    for (number, step) in steps.iter().enumerate() {
        history.take(step);
        if setting.moves {
            history.migrate(number as u8, step.other);
        }
        if setting.replaces {
            history.world.replace_engines();
        }
    }
    history.end();
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn what_is_said_in_parts_is_whole(steps in steps(), setting in settings(false)) {
        play(setting, &steps);
    }
}

proptest! {
    #![proptest_config(cases(10))]

    /// With engines that are replaced after every step.
    #[test]
    fn what_is_said_in_parts_is_whole_though_engines_are_replaced(steps in steps(), setting in settings(true)) {
        play(setting, &steps);
    }
}

/// The first attempt has a message at its handler when its connection is cut; a second begins, a message too long to be
/// kept commits the call to it, and the other host's policy refuses that: what the caller is told is of both.
#[test]
fn a_call_committed_to_an_attempt_says_what_all_of_them_may_have_done() {
    use What::*;
    let step = |what, pick, other, bytes, flag, exact| Step { what, pick, other, bytes, flag, exact };
    let steps = [
        step(Call, 0, 40, 0, false, false),
        step(Call, 1, 0, 0, false, false),
        step(Call, 0, 0, 0, false, false),
        step(Say, 0, 0, 0, false, false),
        step(Call, 114, 177, 2, false, false),
        step(Message, 0, 0, 0, false, false),
        step(Call, 0, 0, 0, false, false),
        step(Policies, 0, 0, 0, false, false),
        step(Call, 0, 0, 0, false, false),
        step(Message, 0, 0, 0, false, false),
        step(Message, 0, 0, 0, false, false),
        step(Settle, 0, 0, 0, false, false),
        step(Call, 0, 0, 0, false, false),
        step(Policies, 11, 183, 0, false, false),
        step(Call, 0, 0, 0, false, false),
        step(Call, 0, 0, 0, false, false),
        step(Call, 0, 0, 0, false, false),
        step(Cut, 0, 0, 0, false, false),
        step(Finish, 0, 0, 0, false, false),
        step(Finish, 0, 0, 0, false, false),
        step(Message, 0, 0, 0, false, false),
        step(Settle, 0, 0, 0, false, false),
        step(Message, 30, 0, 29697, false, false),
    ];
    play(
        Setting {
            shards: 1,
            replaces: false,
            is_tight: true,
            loses: false,
            is_mixed: false,
            is_far_opaque: false,
            attempts: 1,
            piece_bytes: usize::MAX,
            moves: false,
            watches: false,
        },
        &steps,
    );
}
