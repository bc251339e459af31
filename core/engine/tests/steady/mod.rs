//! Calls that go on as they went before: a world that takes no memory of its own once it is warm, so that whatever is
//! taken is the engine's. Every buffer here is kept, and heaps are blocks of one size with a list of the free ones.

use std::cell::Cell;
use std::sync::Arc;
use trunkline_call::entry::{Call, Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Encoding, Execution, Instant, RouteIndex};
use trunkline_engine::{
    BindRequest, BoundSchema, CrossingBatch, Dialled, Engine, Heaps, Limits, PeerKey, Piece, Plant,
    SampleRule, SessionKey, ShardIndex, Turn, handle_crossings, join_shards, next_crossings, share_limits,
};
use trunkline_message::{AlignedBuf, Extent, Redaction};
use trunkline_policy::{Chain, Definition, Kind, Side};
use trunkline_schema::Schema;
use trunkline_share::HostLimits;
use trunkline_telemetry::{TaxClocks, TaxSetup, begin_tax, begin_tax_round};

const PROTO: &str = r#"
syntax = "proto3";
package steady;
message Blob { bytes data = 1; string note = 2; }
service Echo { rpc Once(Blob) returns (Blob); }
service Other { rpc Once(Blob) returns (Blob); }
"#;
/// What is served as a rule, and on the second of two shards where nothing is to cross.
const SERVICES: [&str; 2] = ["steady.Echo", "steady.Other"];

/// 64 bytes of request on the wire, as in the measured small call.
const DATA_BYTES: u8 = 62;
/// Blocks of a heap, and how large each is: what 128 calls outstanding need, and as many again.
const BLOCKS: u32 = 512;
const BLOCK_BYTES: u32 = 256;
/// What crosses at once: as a daemon does it.
const CROSSINGS: usize = 256;
/// Virtual time between two looks at anything.
const STEP_NS: u64 = 1000;

thread_local! {
    static TICKS: Cell<u64> = const { Cell::new(0) };
}

/// A clock that costs next to nothing: what it is read for is counted, not what it says.
fn tick() -> u64 {
    TICKS.set(TICKS.get() + 100);
    TICKS.get()
}

/// Policies by name: `none`; `null`, one that lets everything pass; `content`, one that reads a field.
pub fn chain(name: &str) -> Chain {
    let rule = |deny: Option<&str>, allow: Option<&str>| Definition {
        name: "only".to_owned(),
        kind: Kind::Access,
        side: Side::Client,
        deny: deny.map(str::to_owned),
        allow: allow.map(str::to_owned),
        ..Definition::default()
    };
    let rules = match name {
        "none" => Vec::new(),
        "null" => vec![rule(None, Some("true"))],
        "content" => vec![rule(Some("request.note == 'mallory'"), None)],
        other => panic!("{other} is not none, null or content"),
    };
    Chain::build(&rules).expect("the policies are sound")
}

/// Where client and server are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Attached to one engine.
    One,
    /// Attached to two engines joined by a connection.
    Two,
    /// Attached to two shards of one host.
    #[allow(dead_code, reason = "the test of allocations leaves it out: what crosses is copied")]
    Shards,
}

/// A client, a server, and what is between them.
pub struct Steady {
    now: Instant,
    hosts: Vec<Host>,
    links: Vec<[PeerKey; 2]>,
    /// The other shard, if that is on another thread.
    neighbour: Option<Neighbour>,
    client: App,
    server: App,
    /// Bytes on their way, and as read with what was left of the last read before them.
    pipe: Vec<u8>,
    read: Vec<u8>,
    completed: Vec<Completion>,
    calls: u64,
}

/// Ends of the queues to and from a shard on another thread.
#[allow(dead_code, reason = "the test of allocations has one thread")]
pub struct Neighbour {
    pub index: ShardIndex,
    pub outgoing: rtrb::Producer<CrossingBatch>,
    pub incoming: rtrb::Consumer<CrossingBatch>,
}

struct Host {
    engine: Engine,
    heaps: BlockHeaps,
}

#[derive(Clone, Copy)]
struct App {
    host: usize,
    key: SessionKey,
    route: RouteIndex,
}

impl Steady {
    /// Attaches both; `chain` is the policies of every host.
    pub fn new(hosts: Hosts, chain: &Chain) -> Self {
        let count = if hosts == Hosts::One { 1 } else { 2 };
        let shared = Arc::new(HostLimits::new(if hosts == Hosts::Shards { 2 } else { 1 }));
        let target = (hosts == Hosts::Two).then_some("tcp://127.0.0.1:1");
        let hosts = (0..count).map(|index| host(ShardIndex(index), &shared, chain)).collect();
        Self::attached(hosts, SERVICES[0], target, None)
    }

    /// One of two shards of a host, with a client and a server of its own, of a service that the other has not, so that
    /// no call crosses; `neighbour` is the other, and `shared` what belongs to both.
    #[allow(dead_code, reason = "the test of allocations has one thread")]
    pub fn on_shard(index: ShardIndex, shared: &Arc<HostLimits>, neighbour: Neighbour) -> Self {
        let hosts = vec![host(index, shared, &chain("none"))];
        Self::attached(hosts, SERVICES[usize::from(index.0)], None, Some(neighbour))
    }

    fn attached(
        mut hosts: Vec<Host>,
        service: &str,
        target: Option<&str>,
        neighbour: Option<Neighbour>,
    ) -> Self {
        let last = hosts.len() - 1;
        let server = attach(&mut hosts, last, service, None, true);
        let client = attach(&mut hosts, 0, service, target, false);
        let mut steady = Self {
            now: Instant(1_000_000),
            hosts,
            links: Vec::new(),
            neighbour,
            client,
            server,
            pipe: Vec::new(),
            read: vec![0; 256 << 10],
            completed: Vec::new(),
            calls: 0,
        };
        // Shards tell each other what they serve.
        steady.carry();
        steady
    }

    /// What is seen of the calls beside what every daemon sees: `unrecorded`, nothing at all; `traced`, each begins a
    /// trace; `sampled`, each is kept with its messages, and taken; `stages`, every round says what its time went into.
    #[allow(dead_code, reason = "the test of allocations leaves it out: what is kept is copied")]
    pub fn watch(&mut self, how: &str) {
        for Host { engine, .. } in &mut self.hosts {
            match how {
                "unrecorded" => engine.plant(Plant { unrecorded: true, ..Plant::default() }),
                "traced" => engine.trace_calls(1.0, 7),
                "sampled" => engine.sample_calls(vec![SampleRule {
                    service: "steady.Echo".to_owned(),
                    methods: Vec::new(),
                    per_second: 1e9,
                    message_bytes_max: 1024,
                    redaction: Arc::new(Redaction::new([])),
                }]),
                "stages" => begin_tax(
                    TaxClocks { ticks: tick, wall_ns: tick, cpu_ns: tick },
                    TaxSetup { one_in: 1, spin: None, times: Arc::default() },
                ),
                other => panic!("{other} is not unrecorded, traced, sampled or stages"),
            }
        }
    }

    /// So many calls at once, from submission to release.
    pub fn calls(&mut self, outstanding: u32) {
        begin_tax_round();
        for block in 0..outstanding {
            self.calls += 1;
            let call = self.call(CallId(self.calls), block);
            self.submit(self.client, Submission::Call(call));
        }
        let mut answered = 0;
        for look in 0.. {
            assert!(look < 1000, "calls are under way that nobody moves");
            self.carry();
            self.serve();
            answered += self.take_answers();
            if answered == outstanding && self.hosts.iter().all(|host| host.engine.is_idle()) {
                break;
            }
        }
        for Host { engine, heaps } in &mut self.hosts {
            engine.handle_timeout(&mut Turn { now: self.now, heaps });
            while engine.take_sample().is_some() {}
        }
    }

    fn call(&self, call: CallId, block: u32) -> Call {
        Call {
            route: self.client.route,
            call,
            payload: Some(self.message(self.client, block)),
            metadata: Span::default(),
            end: true,
            wait_for_ready: false,
            deadline: Deadline::at(self.now.plus_ns(1_000_000_000)),
            entered: self.now,
            published: self.now,
            parent: CallId(0),
        }
    }

    /// The message that lies in every block of a send heap.
    fn message(&self, app: App, block: u32) -> Payload {
        let len = self.hosts[app.host].heaps.message_bytes;
        Payload::new(Span { offset: (block + 1) * BLOCK_BYTES, len }, Encoding::Linear)
    }

    fn submit(&mut self, app: App, submission: Submission) {
        self.now = self.now.plus_ns(STEP_NS);
        let Host { engine, heaps } = &mut self.hosts[app.host];
        let mut turn = Turn { now: self.now, heaps };
        engine.handle_submission(&mut turn, app.key, &submission.encode()).expect("entries are sound");
    }

    /// The server answers every call it was given.
    fn serve(&mut self) {
        self.take_completions(self.server);
        for index in 0..self.completed.len() {
            let Completion::Call(call) = self.completed[index] else { continue };
            self.release(self.server, call.call, (call.payload, call.metadata), 0);
            let reply = self.message(self.server, index as u32 % BLOCKS);
            let (taken, published) = (self.now, self.now.plus_ns(STEP_NS));
            let finish = Finish {
                call: call.call,
                code: Code::Ok,
                execution: Execution::Executed,
                payload: Some(reply),
                metadata: Span::default(),
                taken,
                published,
                cpu_ns: 0,
                subtree: 0,
            };
            self.submit(self.server, Submission::Finish(finish));
        }
    }

    /// The client takes what was answered.
    fn take_answers(&mut self) -> u32 {
        self.take_completions(self.client);
        let mut answered = 0;
        for index in 0..self.completed.len() {
            let Completion::Finish(finish) = self.completed[index] else { continue };
            assert_eq!(finish.code, Code::Ok);
            self.release(self.client, finish.call, (finish.payload, finish.metadata), self.now.0);
            answered += 1;
        }
        answered
    }

    fn release(&mut self, app: App, call: CallId, (payload, metadata): (Option<Payload>, Span), a18: u64) {
        let block = payload.map_or(Span::default(), |payload| payload.block());
        let release = Submission::Release { call, block, metadata, a18: Instant(a18) };
        self.submit(app, release);
    }

    fn take_completions(&mut self, app: App) {
        self.completed.clear();
        let engine = &mut self.hosts[app.host].engine;
        while engine.outboxes().poll_session().is_some() {}
        while let Some(completion) = engine.outboxes().poll(app.key) {
            self.completed.push(completion);
        }
    }

    /// Everything that is to be sent arrives, both ways.
    fn carry(&mut self) {
        while let Some(dial) = self.hosts[0].engine.poll_dial() {
            let Dialled::Native(near) = dial.connection else { panic!("only native here") };
            let far = self.hosts[1].engine.native().accept(self.now, "near".into());
            self.links.push([near, far]);
        }
        for link in 0..self.links.len() {
            for from in 0..2 {
                self.send(from, self.links[link][from]);
                self.receive(1 - from, self.links[link][1 - from]);
            }
        }
        if self.hosts.len() == 2 && self.links.is_empty() {
            [(0, 1), (1, 0)].into_iter().for_each(|(from, to)| self.cross(from, to));
        }
        if let Some(Neighbour { index, outgoing, incoming }) = &mut self.neighbour {
            let Host { engine, heaps } = &mut self.hosts[0];
            let mut turn = Turn { now: self.now, heaps };
            let now = self.now;
            while let Ok(said) = incoming.pop() {
                handle_crossings(engine, &mut turn, *index, said, &mut || now);
            }
            while !outgoing.is_full()
                && let Some(said) = next_crossings(engine, &mut turn, *index, CROSSINGS)
            {
                outgoing.push(said).expect("it has room");
            }
        }
    }

    /// What one shard has for the other gets there.
    fn cross(&mut self, from: usize, to: usize) {
        let now = self.now;
        let next = |Host { engine, heaps }: &mut Host| {
            next_crossings(engine, &mut Turn { now, heaps }, ShardIndex(to as u16), CROSSINGS)
        };
        while let Some(said) = next(&mut self.hosts[from]) {
            let Host { engine, heaps } = &mut self.hosts[to];
            handle_crossings(engine, &mut Turn { now, heaps }, ShardIndex(from as u16), said, &mut || now);
        }
    }

    fn send(&mut self, host: usize, peer: PeerKey) {
        self.now = self.now.plus_ns(STEP_NS);
        let Host { engine, heaps } = &mut self.hosts[host];
        while engine.native().poll_transmitting().is_some() {}
        for piece in engine.native().poll_transmit(self.now, peer, 1 << 20) {
            match piece {
                Piece::Bytes(own) => self.pipe.extend_from_slice(own),
                Piece::Shared { session, span } => assert!(heaps.seal(session, span, &mut self.pipe)),
            }
        }
        engine.transmitted(&mut Turn { now: self.now, heaps }, peer, self.pipe.len());
    }

    fn receive(&mut self, host: usize, peer: PeerKey) {
        if self.pipe.is_empty() {
            return;
        }
        let Host { engine, heaps } = &mut self.hosts[host];
        let start = engine.native().resume(peer, &mut self.read);
        let end = start + self.pipe.len();
        self.read[start..end].copy_from_slice(&self.pipe);
        self.pipe.clear();
        let mut turn = Turn { now: self.now, heaps };
        engine
            .handle_input(&mut turn, peer, self.now, &self.read[..end])
            .expect("engines speak the protocol");
    }
}

fn host(index: ShardIndex, shared: &Arc<HostLimits>, chain: &Chain) -> Host {
    let mut engine = Engine::new(Limits::default(), "steady", 1);
    join_shards(&mut engine, index, shared.shards());
    share_limits(&mut engine, shared);
    engine.apply_policies(chain.clone()).expect("the chain fits");
    Host { engine, heaps: BlockHeaps::default() }
}

fn attach(hosts: &mut [Host], host: usize, service: &str, target: Option<&str>, serves: bool) -> App {
    let schema = Arc::new(BoundSchema::new(Schema::from_proto_source("steady.proto", PROTO).unwrap()));
    let Host { engine, heaps } = &mut hosts[host];
    let key = engine.attach(format!("app{host}"), u64::from((BLOCKS + 1) * BLOCK_BYTES));
    heaps.insert(key, &linear(&schema));
    let calls = [(format!("/{service}/Once"), target.map(str::to_owned))];
    let services = if serves { vec![service.to_owned()] } else { Vec::new() };
    let request = BindRequest { schema: Some(&schema), serves: &services, calls: &calls, permitted: &[] };
    let route = engine.bind(key, &request).unwrap().calls[0];
    App { host, key, route }
}

/// A linear `Blob`.
fn linear(schema: &BoundSchema) -> Vec<u8> {
    let mut wire = vec![0x0a, DATA_BYTES];
    wire.resize(usize::from(DATA_BYTES) + 2, 7);
    let index = schema.schema.message_named("steady.Blob").unwrap();
    let mut extent = AlignedBuf::new();
    let len = schema.transcoder.decode(index, &wire, &mut extent, &Default::default()).unwrap();
    extent.bytes()[..len].to_vec()
}

/// Heaps of blocks of one size.
#[derive(Default)]
struct BlockHeaps {
    /// By session slot.
    slots: Vec<Slot>,
    message_bytes: u32,
}

struct Slot {
    send: Vec<u8>,
    receive: Vec<u8>,
    free: Vec<u32>,
}

impl BlockHeaps {
    fn insert(&mut self, key: SessionKey, message: &[u8]) {
        assert_eq!(key.index(), self.slots.len());
        let mut send = vec![0; ((BLOCKS + 1) * BLOCK_BYTES) as usize];
        for block in send.chunks_exact_mut(BLOCK_BYTES as usize) {
            block[..message.len()].copy_from_slice(message);
        }
        let free = (1..=BLOCKS).map(|block| block * BLOCK_BYTES).collect();
        self.slots.push(Slot { receive: vec![0; send.len()], send, free });
        self.message_bytes = message.len() as u32;
    }
}

fn within(span: Span) -> std::ops::Range<usize> {
    span.offset as usize..span.offset as usize + span.len as usize
}

impl Heaps for BlockHeaps {
    fn allocate(&mut self, session: SessionKey, bytes: u32) -> Option<u32> {
        assert!(bytes <= BLOCK_BYTES, "one block is one message here");
        self.slots[session.index()].free.pop()
    }

    fn receive_capacity(&self, _: SessionKey) -> u32 {
        BLOCK_BYTES
    }

    /// As in a heap of the usual size, of which little is taken.
    fn receive_usual(&self, _: SessionKey) -> u32 {
        64 << 20
    }

    fn discard(&mut self, session: SessionKey, offset: u32) {
        self.slots[session.index()].free.push(offset);
    }

    fn publish(&mut self, _: SessionKey, _: Span) {}

    fn release(&mut self, session: SessionKey, offset: u32) -> Option<u32> {
        self.slots[session.index()].free.push(offset);
        Some(BLOCK_BYTES)
    }

    fn receive_block(&mut self, session: SessionKey, span: Span) -> &mut [u8] {
        &mut self.slots[session.index()].receive[within(span)]
    }

    fn send_heap_contains(&self, session: SessionKey, span: Span) -> bool {
        within(span).end <= self.slots[session.index()].send.len()
    }

    fn seal(&self, session: SessionKey, span: Span, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&self.slots[session.index()].send[within(span)]);
        true
    }

    fn seal_into(&self, session: SessionKey, span: Span, out: &mut [u8]) -> bool {
        out.copy_from_slice(&self.slots[session.index()].send[within(span)]);
        true
    }

    fn copy_across(&mut self, from: SessionKey, span: Span, to: SessionKey, offset: u32) -> bool {
        let [from, to] = self.slots.get_disjoint_mut([from.index(), to.index()]).expect("two sessions");
        let into = Span { offset, len: span.len };
        to.receive[within(into)].copy_from_slice(&from.send[within(span)]);
        true
    }
}
