//! Two hosts in one test: engines, heaps, applications and the wire between them, all driven by virtual time.

#![allow(dead_code, reason = "each test file uses its part of the world")]

pub mod bridge;
pub mod fleet;
pub mod ledger;
pub mod web;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use trunkline_call::entry::{Call, Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Encoding, Execution, Instant, Metadata, RouteIndex};
use trunkline_engine::{
    BindRequest, BoundSchema, Brought, Crossing, CrossingBatch, Dialled, Engine, Heaps, Limits, MovedSession,
    PeerIdentity, PeerKey, Piece, R2p2Port, R2p2Settings, SessionFault, SessionKey, ShardIndex, Turn,
    adopt_session, ask_to_redial, audit_crossings, export_state, go_on_elsewhere, handle_crossings,
    join_shards, next_crossings, release_session, share_limits, take_over,
};
use trunkline_message::{AlignedBuf, Extent};
use trunkline_schema::Schema;
use trunkline_share::HostLimits;
use trunkline_telemetry::{Ask, Side};

/// The service of every test: a blob in, a blob out, in all four patterns.
pub const PROTO: &str = r#"
syntax = "proto3";
package world;
message Blob { bytes data = 1; string note = 2; }
service Echo {
  rpc Once(Blob) returns (Blob);
  rpc Gather(stream Blob) returns (Blob);
  rpc Scatter(Blob) returns (stream Blob);
  rpc Chat(stream Blob) returns (stream Blob);
}
"#;

/// The same service as an older program has it: other types, bridged through protobuf.
pub const OLDER_PROTO: &str = r#"
syntax = "proto3";
package world;
message Blob { bytes data = 1; int32 since_removed = 9; }
service Echo {
  rpc Once(Blob) returns (Blob);
  rpc Gather(stream Blob) returns (Blob);
  rpc Scatter(Blob) returns (stream Blob);
  rpc Chat(stream Blob) returns (stream Blob);
}
"#;

pub const ONCE: &str = "/world.Echo/Once";
pub const GATHER: &str = "/world.Echo/Gather";
pub const SCATTER: &str = "/world.Echo/Scatter";
pub const CHAT: &str = "/world.Echo/Chat";

/// Heap sizes of a session, unless a test says otherwise.
const HEAP_BYTES: u32 = 64 << 20;

/// What is done with an engine that has taken over.
pub type AtTakeOver = Box<dyn Fn(&mut Engine)>;

/// Everything.
pub struct World {
    pub now: Instant,
    /// How far the clocks of the near host and the far one are ahead of that, in nanoseconds.
    pub ahead_ns: [u64; 2],
    pub hosts: Vec<Host>,
    pub links: Vec<Link>,
    /// gRPC clients and servers.
    pub webs: Vec<web::Web>,
    /// Most bytes delivered in one piece; small values cut every frame.
    pub piece_bytes: usize,
    /// Connections over which the hosts speak gRPC with each other.
    pub bridges: Vec<bridge::Bridge>,
    /// Endpoints are the other host, called by gRPC.
    pub bridged: bool,
    /// The hosts never speak gRPC with each other.
    pub is_native: bool,
    /// Who the near host and the far one prove to be to each other.
    pub identities: [PeerIdentity; 2],
    /// Trailers in which a handler says that it took [`WILD_CPU_NS`], changed on their way as a hostile peer would have
    /// them: every time is as large as can be.
    pub wild_trailers: usize,
    /// An engine that takes over finds services in the configuration as they were, and not none.
    pub keeps_services: bool,
    /// Dialling fails while this is set.
    pub unreachable: bool,
    /// Endpoints that cannot be dialled.
    pub down: BTreeSet<String>,
    /// Endpoints are gRPC servers: they close a connection that begins with a native hello.
    pub foreign: bool,
    /// These are, if not all.
    pub foreign_at: BTreeSet<String>,
    /// The shard of the far host that accepts connections, by its place among `hosts`.
    pub accepts: usize,
    /// Connections asked for so far, native or not.
    pub dials: usize,
    /// How long it takes until a connection that is dialled has its socket.
    pub dial_ns: u64,
    /// Datagrams between the hosts, as they were sent.
    pub datagrams: Vec<Vec<u8>>,
    /// Says which datagrams arrive, by their number.
    pub arrives: fn(usize) -> bool,
    /// The shards of the near host and of the far one, by their places among `hosts`.
    pub shards: [Vec<usize>; 2],
    /// What the shards of each host hold together.
    pub shared: [Arc<HostLimits>; 2],
    /// What is on its way between them, by where it comes from and where it goes.
    crossings: BTreeMap<(usize, usize), VecDeque<Crossing>>,
    /// Items a queue between two shards takes.
    pub crossings_max: usize,
    /// Sessions between two shards.
    away: usize,
    /// The next application of a host goes to this one of its shards.
    next_shard: usize,
    /// The next application goes to this shard, by its place among `hosts`.
    pub placed: Option<usize>,
    /// Engines are replaced: after every step of the world, and at every time a test says so.
    pub replaces: bool,
    /// How R2P2 is spoken on each host.
    pub r2p2: Vec<R2p2Settings>,
    /// What engines are made with from now on.
    pub limits: Limits,
    /// The name of applications that attach from now on, if they are not named by their host.
    pub label: Option<&'static str>,
    /// What a host does to an engine that has taken over, before it goes on.
    pub taken_over: Option<AtTakeOver>,
    /// Applications in line for their completions.
    in_line: Vec<(usize, SessionKey)>,
}

/// One host.
pub struct Host {
    pub engine: Engine,
    pub heaps: VecHeaps,
}

/// A session between two shards.
pub struct Leaving {
    to: usize,
    moved: MovedSession,
    slot: Slot,
}

impl Leaving {
    /// The place of the shard it goes to.
    pub fn to(&self) -> usize {
        self.to
    }
}

/// A connection between the near host and the far one.
pub struct Link {
    /// The shards it connects.
    pub hosts: [usize; 2],
    pub ends: [PeerKey; 2],
    pub pipes: [VecDeque<u8>; 2],
    /// Bytes sent over it so far, both ways.
    pub carried: usize,
    pub up: bool,
}

/// An application attached to a host.
pub struct App {
    pub host: usize,
    pub key: SessionKey,
    pub schema: Arc<BoundSchema>,
    pub routes: Vec<RouteIndex>,
    pub served: Vec<(String, RouteIndex)>,
    pub inbox: Vec<Completion>,
    /// Bound without types.
    pub is_opaque: bool,
    next_call: u64,
    next_offset: u32,
}

impl World {
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Self {
        // The tests of `sharded.rs` are those of other files.
        Self::with_shards(limits, if module_path!().starts_with("sharded") { 2 } else { 1 })
    }

    /// Both hosts have so many shards. Applications go to them in turn.
    pub fn with_shards(limits: Limits, count: usize) -> Self {
        let host = |name| Host { engine: Engine::new(limits.clone(), name, 1), heaps: VecHeaps::default() };
        let mut hosts: Vec<Host> = (0..count).flat_map(|_| [host("near"), host("far")]).collect();
        let shared = [0, 1].map(|_| Arc::new(HostLimits::new(count as u16)));
        for (place, host) in hosts.iter_mut().enumerate() {
            join_shards(&mut host.engine, ShardIndex(place as u16 / 2), count as u16);
            share_limits(&mut host.engine, &shared[place % 2]);
        }
        let shards = [0, 1].map(|host| (0..count).map(|shard| 2 * shard + host).collect());
        Self {
            shards,
            shared,
            crossings: BTreeMap::new(),
            crossings_max: usize::MAX,
            away: 0,
            next_shard: 0,
            placed: None,
            now: Instant(1_000_000),
            ahead_ns: [0; 2],
            hosts,
            links: Vec::new(),
            webs: Vec::new(),
            bridges: Vec::new(),
            bridged: false,
            is_native: false,
            datagrams: Vec::new(),
            arrives: |_| true,
            replaces: false,
            label: None,
            taken_over: None,
            r2p2: vec![R2p2Settings::default(); 2],
            limits,
            in_line: Vec::new(),
            piece_bytes: usize::MAX,
            identities: Default::default(),
            wild_trailers: 0,
            keeps_services: true,
            unreachable: false,
            down: BTreeSet::new(),
            foreign: false,
            foreign_at: BTreeSet::new(),
            accepts: 1,
            dials: 0,
            dial_ns: 0,
        }
    }

    /// Attaches an application that calls all methods at `target` and serves the service if asked to.
    pub fn attach(&mut self, host: usize, proto: &str, target: Option<&str>, serves: bool) -> App {
        self.attach_sized(host, proto, target, serves, HEAP_BYTES)
    }

    /// Attaches an application that serves the service while nobody else does, as the daemon's own do.
    pub fn attach_standing_by(&mut self, host: usize) -> App {
        let mut app = self.attach(host, PROTO, None, false);
        let engine = &mut self.hosts[app.host].engine;
        engine.stand_by(app.key);
        let request = BindRequest {
            schema: Some(&app.schema),
            serves: &["world.Echo".to_owned()],
            calls: &[],
            permitted: &[],
        };
        app.served = engine.bind(app.key, &request).unwrap().serves;
        while self.cross_shards(usize::MAX) {}
        app
    }

    pub fn attach_sized(
        &mut self,
        host: usize,
        proto: &str,
        target: Option<&str>,
        serves: bool,
        heap_bytes: u32,
    ) -> App {
        let schema = Arc::new(BoundSchema::new(Schema::from_proto_source("world.proto", proto).unwrap()));
        let label = self.label.map_or_else(|| format!("app{host}"), str::to_owned);
        let host = self.next_shard_of(host);
        let Host { engine, heaps } = &mut self.hosts[host];
        let key = engine.attach(label, heap_bytes.into());
        heaps.insert(key, heap_bytes);
        let calls: Vec<_> =
            [ONCE, GATHER, SCATTER, CHAT].map(|path| (path.to_owned(), target.map(str::to_owned))).into();
        let services = if serves { vec!["world.Echo".to_owned()] } else { Vec::new() };
        let request = BindRequest { schema: Some(&schema), serves: &services, calls: &calls, permitted: &[] };
        let binding = engine.bind(key, &request).unwrap();
        while self.cross_shards(usize::MAX) {}
        App {
            host,
            key,
            schema,
            routes: binding.calls,
            served: binding.serves,
            inbox: Vec::new(),
            is_opaque: false,
            next_call: 1,
            next_offset: 64,
        }
    }

    /// Attaches an application that binds the same methods, and the service if it serves it, without saying their
    /// types.
    pub fn attach_opaque(&mut self, host: usize, target: Option<&str>, serves: bool) -> App {
        let mut app = self.attach_sized(host, PROTO, None, false, HEAP_BYTES);
        let calls: Vec<_> =
            [ONCE, GATHER, SCATTER, CHAT].map(|path| (path.to_owned(), target.map(str::to_owned))).into();
        let services = if serves { vec!["world.Echo".to_owned()] } else { Vec::new() };
        let request = BindRequest { schema: None, serves: &services, calls: &calls, permitted: &[] };
        let binding = self.hosts[app.host].engine.bind(app.key, &request).unwrap();
        while self.cross_shards(usize::MAX) {}
        (app.routes, app.served, app.is_opaque) = (binding.calls, binding.serves, true);
        app
    }

    /// Binds other routes for an application, without saying types if it is opaque.
    pub fn bind(&mut self, app: &mut App, serves: &[String], calls: &[(String, Option<String>)]) {
        let schema = (!app.is_opaque).then_some(&app.schema);
        let request = BindRequest { schema, serves, calls, permitted: &[] };
        let binding = self.hosts[app.host].engine.bind(app.key, &request).unwrap();
        while self.cross_shards(usize::MAX) {}
        app.routes.extend(binding.calls);
        app.served.extend(binding.serves);
    }

    /// What the clock says at a place among `hosts`.
    pub fn clock(&self, place: usize) -> Instant {
        self.now.plus_ns(self.ahead_ns[place % 2])
    }

    pub fn submit(&mut self, app: &App, submission: Submission) -> Result<(), SessionFault> {
        self.submit_raw(app, &submission.encode())
    }

    /// All engines go on as others, of hosts that have so many shards. Those that are left over have nothing.
    pub fn set_shards(&mut self, count: usize) {
        while self.hosts.len() < 2 * count {
            let name = ["near", "far"][self.hosts.len() % 2];
            let engine = Engine::new(self.limits.clone(), name, 1);
            self.hosts.push(Host { engine, heaps: VecHeaps::default() });
        }
        let before = self.shards[0].len();
        self.shared = [0, 1].map(|_| Arc::new(HostLimits::new(count as u16)));
        self.shards = [0, 1].map(|host| (0..count).map(|shard| 2 * shard + host).collect());
        for place in 0..2 * count.min(before) {
            self.replace_engine(place);
        }
        for place in 2 * before..2 * count {
            let engine = &mut self.hosts[place].engine;
            join_shards(engine, ShardIndex(place as u16 / 2), count as u16);
            share_limits(engine, &self.shared[place % 2]);
        }
        self.crossings.retain(|(from, to), _| *from < 2 * count && *to < 2 * count);
    }

    /// Both engines go on as others, which know nothing but what the first wrote down.
    pub fn replace_engines(&mut self) {
        for host in 0..self.hosts.len() {
            self.replace_engine(host);
        }
    }

    /// One engine goes on as another.
    pub fn replace_engine(&mut self, host: usize) {
        self.replace_engine_without(host, &[]);
    }

    /// The same, without the memory of these sessions.
    pub fn replace_engine_without(&mut self, host: usize, left_behind: &[SessionKey]) {
        let old = &mut self.hosts[host].engine;
        let exported = export_state(old).unwrap();
        // Dialled, and neither carried nor refused yet: the host still has the order.
        while let Some(dial) = old.poll_dial() {
            drop(dial);
        }
        let name = if self.shards[0].contains(&host) { "near" } else { "far" };
        // With it goes its part of what the shards share.
        *old = Engine::new(self.limits.clone(), name, 1);
        let mut fresh = Engine::new(self.limits.clone(), name, 1);
        join_shards(&mut fresh, ShardIndex(host as u16 / 2), self.shards[0].len() as u16);
        share_limits(&mut fresh, &self.shared[host % 2]);
        fresh.configure_r2p2(self.clock(host), self.r2p2.get(host).cloned().unwrap_or_default());
        let mut engine = take_over(fresh, &exported.state, &exported.schemas).unwrap();
        engine.keep_services(|_| self.keeps_services);
        self.taken_over.iter().for_each(|does| does(&mut engine));
        let now = self.clock(host);
        let Host { engine: old, heaps } = &mut self.hosts[host];
        let ends = self.links.iter().flat_map(|link| link.hosts.into_iter().zip(link.ends));
        let carried: Vec<PeerKey> = ends.filter(|(at, _)| *at == host).map(|(_, end)| end).collect();
        let brought =
            Brought { socket: &|key| carried.contains(&key), memory: &|key| !left_behind.contains(&key) };
        go_on_elsewhere(&mut engine, &mut Turn { now, heaps }, &brought);
        *old = engine;
    }

    pub fn submit_raw(&mut self, app: &App, entry: &[u64; 8]) -> Result<(), SessionFault> {
        let now = self.clock(app.host);
        let Host { engine, heaps } = &mut self.hosts[app.host];
        let mut turn = Turn { now, heaps };
        let outcome = engine.handle_submission(&mut turn, app.key, entry);
        if outcome.is_err() {
            engine.detach(&mut turn, app.key);
        }
        if self.replaces {
            self.replace_engines();
        }
        outcome
    }

    /// An application's session goes to another shard of its host, by its place among `hosts`, with its memory. Whether
    /// it does: something may keep it for now.
    pub fn migrate(&mut self, app: &mut App, to: usize) -> bool {
        let leaving = self.release(app, to);
        leaving.map(|leaving| self.adopt(app, leaving)).is_some()
    }

    /// The first half of that: the session is nowhere.
    pub fn release(&mut self, app: &App, to: usize) -> Option<Leaving> {
        let now = self.clock(app.host);
        let Host { engine, heaps } = &mut self.hosts[app.host];
        let index = ShardIndex(to as u16 / 2);
        let moved = release_session(engine, &mut Turn { now, heaps }, app.key, index).ok()?;
        let slot = heaps.slots.remove(&app.key.to_bits()).unwrap();
        self.away += 1;
        Some(Leaving { to, moved, slot })
    }

    /// The second.
    pub fn adopt(&mut self, app: &mut App, Leaving { to, moved, slot }: Leaving) {
        let now = self.clock(to);
        let Host { engine, heaps } = &mut self.hosts[to];
        (app.key, app.host) = (adopt_session(engine, moved), to);
        self.away -= 1;
        heaps.slots.insert(app.key.to_bits(), slot);
        engine.serve_waiting(&mut Turn { now, heaps });
    }

    /// Memory of sessions that are gone goes, as the daemon has it.
    pub fn bury(&mut self) {
        for Host { engine, heaps } in &mut self.hosts {
            while let Some(key) = engine.poll_retired() {
                heaps.slots.remove(&key.to_bits());
            }
        }
    }

    pub fn detach(&mut self, app: &App) {
        let now = self.clock(app.host);
        let Host { engine, heaps } = &mut self.hosts[app.host];
        engine.detach(&mut Turn { now, heaps }, app.key);
    }

    /// Lets time pass.
    pub fn advance(&mut self, ns: u64) {
        self.now = self.now.plus_ns(ns);
        for place in 0..self.hosts.len() {
            let now = self.clock(place);
            let Host { engine, heaps } = &mut self.hosts[place];
            engine.handle_timeout(&mut Turn { now, heaps });
        }
        while self.fire() {}
    }

    /// Does what is due and was left for another time. Whether there was any.
    pub fn fire(&mut self) -> bool {
        let mut fired = false;
        for place in 0..self.hosts.len() {
            let now = self.clock(place);
            let Host { engine, heaps } = &mut self.hosts[place];
            if engine.next_timeout().is_some_and(|at| at <= now) {
                engine.handle_timeout(&mut Turn { now, heaps });
                fired = true;
            }
        }
        fired
    }

    /// Moves everything that can move, until nothing does. Completions land in the inboxes.
    pub fn settle(&mut self, apps: &mut [&mut App]) {
        for round in 0.. {
            assert!(round < 100_000, "the world does not come to rest");
            if self.replaces {
                self.replace_engines();
            }
            let dialled = self.dial();
            if !dialled
                & !self.close_unwanted()
                & !self.carry_datagrams()
                & !self.carry()
                & !self.hear()
                & !self.carry_bridges(usize::MAX)
                & !self.flush_webs()
                & !self.cross_shards(usize::MAX)
                & !self.complete(apps)
            {
                return self.audit();
            }
        }
    }

    /// Calls that a host has served, or refused to, and that did not end well: their methods and codes, sorted.
    pub fn refused(&mut self, host: usize) -> Vec<(String, u16)> {
        let ask = Ask { samples_max: 100, ..Ask::default() };
        let mut found = Vec::new();
        for place in self.shards[host].clone() {
            let samples = self.hosts[place].engine.telemetry().snapshot(self.now, &ask).samples;
            let refused =
                samples.into_iter().filter(|sample| sample.side == Side::Served && sample.code != 0);
            found.extend(refused.map(|sample| (sample.method, sample.code)));
        }
        found.sort();
        found
    }

    /// Entries in lines of calls, of all engines.
    pub fn entries_in_line(&self) -> usize {
        self.hosts.iter().map(|host| host.engine.entries_in_line()).sum()
    }

    /// Holds every count of the engines against what it counts, unless there is too much to count at every step.
    pub fn audit(&self) {
        if self.leftovers().0 > 1_000 {
            return;
        }
        for Host { engine, .. } in &self.hosts {
            engine.audit().unwrap();
        }
        // What follows a session that is nowhere waits in its engine.
        if self.away == 0 && self.crossings.values().all(VecDeque::is_empty) {
            for shards in &self.shards {
                let engines: Vec<&Engine> = shards.iter().map(|host| &self.hosts[*host].engine).collect();
                audit_crossings(&engines).unwrap();
            }
        }
    }

    /// Carries what shards of one host have for each other, at most so many of each. Whether there was any.
    pub fn cross_shards(&mut self, most: usize) -> bool {
        let mut moved = false;
        for shards in self.shards.clone() {
            let pairs = shards.iter().flat_map(|from| shards.iter().map(move |to| (*from, *to)));
            for (from, to) in pairs.filter(|(from, to)| from != to) {
                let now = self.clock(from);
                let queue = self.crossings.entry((from, to)).or_default();
                let Host { engine, heaps } = &mut self.hosts[from];
                let mut turn = Turn { now, heaps };
                while let room @ 1.. = self.crossings_max.saturating_sub(queue.len()) {
                    let there = ShardIndex(to as u16 / 2);
                    let Some(batch) = next_crossings(engine, &mut turn, there, room) else { break };
                    queue.extend(batch);
                    moved = true;
                }
                for _ in 0..most {
                    let Some(crossing) = self.crossings.get_mut(&(from, to)).and_then(VecDeque::pop_front)
                    else {
                        break;
                    };
                    let Host { engine, heaps } = &mut self.hosts[to];
                    let mut turn = Turn { now, heaps };
                    let from = ShardIndex(from as u16 / 2);
                    handle_crossings(engine, &mut turn, from, CrossingBatch::from(crossing), &mut || now);
                    moved = true;
                    if self.replaces {
                        self.replace_engines();
                    }
                }
            }
        }
        moved
    }

    fn next_shard_of(&mut self, host: usize) -> usize {
        if let Some(placed) = self.placed.take() {
            return placed;
        }
        let Some(shards) = self.shards.get(host).filter(|shards| shards.len() > 1) else { return host };
        self.next_shard += 1;
        shards[self.next_shard % shards.len()]
    }

    /// Moves one piece in every direction.
    pub fn step(&mut self, apps: &mut [&mut App]) {
        self.dial();
        self.close_unwanted();
        self.carry_datagrams();
        self.carry();
        self.hear();
        self.cross_shards(1);
        self.carry_bridges(1);
        self.complete(apps);
    }

    /// Cuts a connection; what is in its pipes is lost.
    pub fn cut(&mut self, link: usize) {
        self.links[link].up = false;
        let link = &self.links[link];
        for (host, end) in link.hosts.into_iter().zip(link.ends) {
            let now = self.now.plus_ns(self.ahead_ns[host % 2]);
            let Host { engine, heaps } = &mut self.hosts[host];
            engine.peer_lost(&mut Turn { now, heaps }, end, "cut");
        }
    }

    /// Closes connections over which nobody calls any more.
    fn close_unwanted(&mut self) -> bool {
        let mut closed = false;
        for host in 0..self.hosts.len() {
            while let Some(unwanted) = self.hosts[host].engine.native().poll_unwanted() {
                let end = unwanted.key;
                let of_link =
                    |link: &Link| link.up && link.hosts.iter().zip(link.ends).any(|one| one == (&host, end));
                if let Some(link) = self.links.iter().position(of_link) {
                    self.cut(link);
                    closed = true;
                }
            }
        }
        closed
    }

    /// Has every connection's acceptor ask for another one.
    pub fn ask_to_redial(&mut self) {
        for Link { hosts: [_, host], ends: [_, end], up, .. } in &self.links {
            if *up {
                ask_to_redial(&mut self.hosts[*host].engine, *end);
            }
        }
    }

    fn dial(&mut self) -> bool {
        self.shards[0].clone().into_iter().fold(false, |moved, host| moved | self.dial_from(host))
    }

    fn dial_from(&mut self, host: usize) -> bool {
        let mut moved = false;
        while let Some(dial) = self.hosts[host].engine.poll_dial() {
            moved = true;
            self.dials += 1;
            self.now = self.now.plus_ns(self.dial_ns);
            let (now, accepted) = (self.clock(host), self.clock(self.accepts));
            let Host { engine, heaps } = &mut self.hosts[host];
            let mut turn = Turn { now, heaps };
            let is_foreign = self.foreign || self.foreign_at.contains(&*dial.endpoint);
            match dial.connection {
                connection if self.unreachable || self.down.contains(&*dial.endpoint) => {
                    engine.handle_dial_failed(&mut turn, connection, "refused")
                }
                Dialled::Native(near) if is_foreign || self.bridged => {
                    engine.peer_lost(&mut turn, near, "closed")
                }
                Dialled::Native(near) => {
                    engine.native().connected(now, near);
                    engine.native().identified(near, self.identities[1].clone());
                    let acceptor = &mut self.hosts[self.accepts].engine;
                    let far = acceptor.native().accept(accepted, "near".into());
                    acceptor.native().identified(far, self.identities[0].clone());
                    self.links.push(Link {
                        hosts: [host, self.accepts],
                        ends: [near, far],
                        pipes: Default::default(),
                        carried: 0,
                        up: true,
                    });
                }
                Dialled::Grpc(key) if is_foreign => {
                    let endpoint = dial.endpoint.to_string();
                    self.webs.push(web::Web { endpoint, ..web::Web::new(host, key) });
                }
                // A daemon has one port for both: who was cut off before it had heard a word tries HTTP/2 next.
                // Bridges do not move with an engine: where that is replaced all the time there are none.
                Dialled::Grpc(key) if self.bridged || !self.replaces && !self.is_native => {
                    self.build_bridge(host, key)
                }
                Dialled::Grpc(_) => engine.handle_dial_failed(&mut turn, dial.connection, "no HTTP/2 here"),
            }
        }
        moved
    }

    /// Datagrams of both hosts, each at once.
    fn carry_datagrams(&mut self) -> bool {
        let mut moved = false;
        for host in 0..self.hosts.len() {
            while let Some((port, transmit)) = self.hosts[host].engine.datagrams().poll() {
                moved = true;
                let (from, bytes) = (udp_address(host, port), transmit.to_vec());
                self.datagrams.push(bytes.clone());
                if (self.arrives)(self.datagrams.len() - 1) {
                    self.deliver_datagram(from, transmit.to, &bytes);
                    if self.replaces {
                        self.replace_engines();
                    }
                }
            }
        }
        moved
    }

    /// A datagram arrives, from wherever it says.
    pub fn deliver_datagram(&mut self, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) {
        for host in 0..self.hosts.len() {
            for port in [R2p2Port::Client, R2p2Port::Server] {
                if udp_address(host, port) == to {
                    let now = self.clock(host);
                    let Host { engine, heaps } = &mut self.hosts[host];
                    let mut turn = Turn { now, heaps };
                    engine.handle_datagram(&mut turn, port, (now, now), from, bytes);
                }
            }
        }
    }

    fn carry(&mut self) -> bool {
        let mut moved = false;
        for index in 0..self.links.len() {
            for side in 0..2 {
                moved |= self.links[index].up && self.send(index, side);
                moved |= self.links[index].up && self.receive(index, side);
            }
        }
        moved
    }

    fn send(&mut self, link: usize, side: usize) -> bool {
        let host = self.links[link].hosts[side];
        let now = self.clock(host);
        while self.hosts[host].engine.native().poll_transmitting().is_some() {}
        let Host { engine, heaps } = &mut self.hosts[host];
        let peer = self.links[link].ends[side];
        let mut bytes = Vec::new();
        for piece in engine.native().poll_transmit(now, peer, 1 << 20) {
            match piece {
                Piece::Bytes(own) => bytes.extend_from_slice(own),
                Piece::Shared { session, span } => assert!(heaps.seal(session, span, &mut bytes)),
            }
        }
        engine.transmitted(&mut Turn { now, heaps }, peer, bytes.len());
        let pipe = &mut self.links[link].pipes[side];
        // What waits there has been looked at, but for a trailer that was not whole.
        let looked = pipe.len().saturating_sub(TRAILER_BYTES);
        pipe.extend(&bytes);
        self.wild_trailers += make_trailers_wild(&mut pipe.make_contiguous()[looked..]);
        self.links[link].carried += bytes.len();
        !bytes.is_empty()
    }

    fn receive(&mut self, link: usize, side: usize) -> bool {
        let host = self.links[link].hosts[side];
        let now = self.clock(host);
        let peer = self.links[link].ends[side];
        let pipe = &mut self.links[link].pipes[1 - side];
        if pipe.is_empty() {
            return false;
        }
        let Host { engine, heaps } = &mut self.hosts[host];
        if let Some(room) = engine.native().wanted(heaps, peer) {
            let count = room.len().min(pipe.len()).min(self.piece_bytes);
            for (byte, from) in room.iter_mut().zip(pipe.drain(..count)) {
                *byte = from;
            }
            engine.placed(&mut Turn { now, heaps }, peer, now, count);
            return true;
        }
        let mut buffer = vec![0; 256 << 10];
        let start = engine.native().resume(peer, &mut buffer);
        let count = pipe.len().min(self.piece_bytes).min(buffer.len() - start);
        for (byte, from) in buffer[start..].iter_mut().zip(pipe.drain(..count)) {
            *byte = from;
        }
        let handled = engine.handle_input(&mut Turn { now, heaps }, peer, now, &buffer[..start + count]);
        if let Err(fault) = handled {
            panic!("peer fault: {fault}");
        }
        true
    }

    /// As in the daemon, only applications in line are asked for completions.
    fn complete(&mut self, apps: &mut [&mut App]) -> bool {
        for (host, Host { engine, .. }) in self.hosts.iter_mut().enumerate() {
            self.in_line
                .extend(std::iter::from_fn(|| engine.outboxes().poll_session()).map(|key| (host, key)));
        }
        let mut moved = false;
        for app in apps {
            let place = self.in_line.iter().position(|place| *place == (app.host, app.key));
            let Some(place) = place else { continue };
            self.in_line.swap_remove(place);
            let engine = &mut self.hosts[app.host].engine;
            while let Some(completion) = engine.outboxes().poll(app.key) {
                app.inbox.push(completion);
                moved = true;
            }
        }
        moved
    }

    /// Calls in flight, receive blocks in use and send blocks not returned, over everything: zero when all is done.
    pub fn leftovers(&self) -> (usize, usize) {
        let calls = self.hosts.iter().map(|host| host.engine.snapshot().calls).sum();
        let blocks = self.hosts.iter().map(|host| host.heaps.blocks()).sum();
        (calls, blocks)
    }

    /// Writes a linear message into the application's send heap.
    pub fn blob(&mut self, app: &mut App, data: &[u8]) -> Payload {
        self.linear(app, &wire_of(data))
    }

    /// The same of a message that is given as protobuf.
    pub fn linear(&mut self, app: &mut App, wire: &[u8]) -> Payload {
        let index = app.schema.schema.message_named("world.Blob").unwrap();
        let mut extent = AlignedBuf::new();
        let limits = Default::default();
        let len = app.schema.transcoder.decode(index, wire, &mut extent, &limits).unwrap();
        self.put(app, &extent.bytes()[..len], Encoding::Linear)
    }

    /// Writes bytes into the application's send heap.
    pub fn put(&mut self, app: &mut App, bytes: &[u8], encoding: Encoding) -> Payload {
        let span = Span { offset: app.next_offset, len: bytes.len() as u32 };
        app.next_offset += (bytes.len() as u32).next_multiple_of(64).max(64);
        let heap = self.hosts[app.host].heaps.slots.get_mut(&app.key.to_bits()).unwrap();
        heap.send[span.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Payload::new(span, encoding)
    }

    /// Writes metadata into the application's send heap.
    pub fn put_metadata(&mut self, app: &mut App, metadata: &Metadata) -> Span {
        let mut bytes = Vec::new();
        metadata.encode(&mut bytes);
        self.put(app, &bytes, Encoding::Linear).span
    }

    /// Metadata in the application's receive heap.
    pub fn metadata(&self, app: &App, span: Span) -> Metadata {
        let heap = &self.hosts[app.host].heaps.slots[&app.key.to_bits()];
        Metadata::decode(&heap.receive[span.offset as usize..][..span.len as usize]).unwrap()
    }

    /// A message in the form the application's methods have.
    pub fn message(&mut self, app: &mut App, data: &[u8]) -> Payload {
        if app.is_opaque {
            return self.put(app, &wire_of(data), Encoding::Protobuf);
        }
        self.blob(app, data)
    }

    /// Bytes in the application's receive heap.
    pub fn received(&self, app: &App, span: Span) -> &[u8] {
        let heap = &self.hosts[app.host].heaps.slots[&app.key.to_bits()];
        &heap.receive[span.offset as usize..][..span.len as usize]
    }

    /// The data of a message in the application's receive heap.
    pub fn data(&self, app: &App, payload: Payload) -> Vec<u8> {
        let bytes = self.received(app, payload.span);
        if payload.encoding == Encoding::Protobuf {
            return data_of(bytes);
        }
        let index = app.schema.schema.message_named("world.Blob").unwrap();
        let mut wire = Vec::new();
        app.schema.transcoder.encode(index, bytes, &mut wire).unwrap();
        data_of(&wire)
    }
}

impl App {
    /// An opening entry for the method at `route` of the four.
    pub fn call(&mut self, route: usize, payload: Option<Payload>, end: bool) -> Call {
        self.next_call += 1;
        Call {
            route: self.routes[route],
            call: CallId(self.next_call),
            payload,
            metadata: Span::default(),
            end,
            wait_for_ready: false,
            deadline: Deadline::NONE,
            entered: Instant(1),
            published: Instant(2),
            parent: CallId(0),
        }
    }

    /// Takes the completions so far, without those that only return send blocks.
    pub fn take(&mut self) -> Vec<Completion> {
        let all = std::mem::take(&mut self.inbox);
        all.into_iter().filter(|completion| !matches!(completion, Completion::Freed { .. })).collect()
    }

    /// The one call delivered.
    #[track_caller]
    pub fn take_call(&mut self) -> Call {
        match self.take().as_slice() {
            [Completion::Call(call)] => *call,
            other => panic!("expected one call, found {other:?}"),
        }
    }

    /// The one outcome.
    #[track_caller]
    pub fn take_finish(&mut self) -> Finish {
        match self.take().as_slice() {
            [Completion::Finish(finish)] => *finish,
            other => panic!("expected one outcome, found {other:?}"),
        }
    }
}

/// The UDP ports of a host.
pub fn udp_address(host: usize, port: R2p2Port) -> SocketAddrV4 {
    let number = match port {
        R2p2Port::Client => 40_000,
        R2p2Port::Server => 8000,
    };
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host as u8 + 1), number)
}

/// By this a handler has its trailer changed on the way to the other host.
pub const WILD_CPU_NS: u64 = 0x5713_5713_5713_5713;

/// So many bytes the times of a server take.
const TRAILER_BYTES: usize = 64;

/// How many there were.
fn make_trailers_wild(bytes: &mut [u8]) -> usize {
    let cpu_ns = WILD_CPU_NS.to_le_bytes();
    let places: Vec<usize> = (40..bytes.len()).filter(|at| bytes[*at..].starts_with(&cpu_ns)).collect();
    for at in &places {
        if let Some(trailer) = bytes.get_mut(at - 40..at + 24) {
            trailer.fill(0xff);
        }
    }
    places.len()
}

/// A handler's end of a call.
pub fn finish(call: CallId, code: Code, payload: Option<Payload>) -> Finish {
    Finish {
        call,
        code,
        execution: Execution::Executed,
        payload,
        metadata: Span::default(),
        taken: Instant(3),
        published: Instant(4),
        cpu_ns: 0,
        subtree: 0,
    }
}

/// A release of everything a completion named; the last one of a call says when it was taken.
pub fn release(call: CallId, payload: Option<Payload>, metadata: Span, a18: u64) -> Submission {
    Submission::Release {
        call,
        block: payload.map_or(Span::default(), |p| p.block()),
        metadata,
        a18: Instant(a18),
    }
}

/// `Blob { data }` on the wire.
pub fn wire_of(data: &[u8]) -> Vec<u8> {
    let mut wire = vec![0x0a];
    let mut len = data.len();
    while len >= 0x80 {
        wire.push(len as u8 | 0x80);
        len >>= 7;
    }
    wire.push(len as u8);
    wire.extend_from_slice(data);
    wire
}

/// The reverse.
pub fn data_of(wire: &[u8]) -> Vec<u8> {
    let Some((0x0a, rest)) = wire.split_first().map(|(tag, rest)| (*tag, rest)) else { return Vec::new() };
    let (mut len, mut shift, mut at) = (0usize, 0, 0);
    loop {
        len |= usize::from(rest[at] & 0x7f) << shift;
        shift += 7;
        at += 1;
        if rest[at - 1] & 0x80 == 0 {
            break;
        }
    }
    rest[at..at + len].to_vec()
}

/// Heaps made of vectors.
#[derive(Default)]
pub struct VecHeaps {
    pub slots: BTreeMap<u64, Slot>,
}

/// One session's heaps.
pub struct Slot {
    pub send: Vec<u8>,
    pub receive: Vec<u8>,
    /// Receive blocks: offset to (length, published).
    pub blocks: BTreeMap<u32, (u32, bool)>,
    /// Bytes in blocks.
    used: u32,
}

impl VecHeaps {
    pub fn insert(&mut self, key: SessionKey, bytes: u32) {
        let (send, receive) = (vec![0; bytes as usize], vec![0; bytes as usize]);
        self.slots.insert(key.to_bits(), Slot { send, receive, blocks: BTreeMap::new(), used: 0 });
    }

    fn slot(&self, key: SessionKey) -> &Slot {
        &self.slots[&key.to_bits()]
    }

    fn slot_mut(&mut self, key: SessionKey) -> &mut Slot {
        self.slots.get_mut(&key.to_bits()).expect("the engine names sessions it was told of")
    }

    fn blocks(&self) -> usize {
        self.slots.values().map(|slot| slot.blocks.len()).sum()
    }
}

impl Heaps for VecHeaps {
    fn allocate(&mut self, session: SessionKey, bytes: u32) -> Option<u32> {
        let slot = self.slot_mut(session);
        let behind = |start: &u32, len: &u32| (start + len).next_multiple_of(64);
        // Behind the last block while there is room, so that very many blocks are not searched for each new one.
        let mut offset = slot.blocks.last_key_value().map_or(64, |(start, (len, _))| behind(start, len));
        if offset as usize + bytes as usize > slot.receive.len() {
            offset = 64;
            for (start, (len, _)) in &slot.blocks {
                if start - offset >= bytes {
                    break;
                }
                offset = behind(start, len);
            }
        }
        if offset as usize + bytes as usize > slot.receive.len() {
            return None;
        }
        slot.blocks.insert(offset, (bytes, false));
        slot.used += bytes.next_multiple_of(64);
        Some(offset)
    }

    fn receive_capacity(&self, session: SessionKey) -> u32 {
        self.slot(session).receive.len() as u32 - 64
    }

    fn receive_free(&self, session: SessionKey) -> u32 {
        self.receive_capacity(session).saturating_sub(self.slot(session).used)
    }

    fn discard(&mut self, session: SessionKey, offset: u32) {
        let slot = self.slot_mut(session);
        let block = slot.blocks.remove(&offset);
        slot.used -= block.map_or(0, |(len, _)| len.next_multiple_of(64));
        assert!(block.is_some_and(|(_, published)| !published), "only an unpublished block is discarded");
    }

    fn publish(&mut self, session: SessionKey, span: Span) {
        let block = self.slot_mut(session).blocks.get_mut(&span.offset).expect("a published block exists");
        assert!(!block.1, "a block is published once");
        block.1 = true;
    }

    fn release(&mut self, session: SessionKey, offset: u32) -> Option<u32> {
        let slot = self.slot_mut(session);
        slot.blocks.get(&offset).filter(|(_, published)| *published)?;
        let len = slot.blocks.remove(&offset).map(|(len, _)| len)?;
        slot.used -= len.next_multiple_of(64);
        Some(len)
    }

    fn receive_block(&mut self, session: SessionKey, span: Span) -> &mut [u8] {
        let slot = self.slot_mut(session);
        match slot.blocks.get(&span.offset) {
            Some((len, false)) if span.len <= *len => {
                &mut slot.receive[span.offset as usize..][..span.len as usize]
            }
            _ => &mut [],
        }
    }

    fn send_heap_contains(&self, session: SessionKey, span: Span) -> bool {
        u64::from(span.offset) + u64::from(span.len) <= self.slot(session).send.len() as u64
    }

    fn seal(&self, session: SessionKey, span: Span, out: &mut Vec<u8>) -> bool {
        if !self.send_heap_contains(session, span) {
            return false;
        }
        out.extend_from_slice(&self.slot(session).send[span.offset as usize..][..span.len as usize]);
        true
    }

    fn seal_into(&self, session: SessionKey, span: Span, out: &mut [u8]) -> bool {
        let mut bytes = Vec::new();
        let sealed = self.seal(session, span, &mut bytes) && bytes.len() == out.len();
        if sealed {
            out.copy_from_slice(&bytes);
        }
        sealed
    }

    fn copy_across(&mut self, from: SessionKey, span: Span, to: SessionKey, offset: u32) -> bool {
        let mut bytes = Vec::new();
        if !self.seal(from, span, &mut bytes) {
            return false;
        }
        let into = self.receive_block(to, Span { offset, len: span.len });
        if into.len() != bytes.len() {
            return false;
        }
        into.copy_from_slice(&bytes);
        true
    }
}
