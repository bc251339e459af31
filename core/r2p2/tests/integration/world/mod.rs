//! A network of clients, servers, a router and a bad link under virtual time.
#![allow(dead_code, reason = "every test uses a part")]

use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use trunkline_call::{Deadline, Instant};
use trunkline_r2p2::*;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1000 * MS;
/// Servers started long before: nothing sent before it is on its way.
pub const START: Instant = Instant(100 * S);

pub fn address(host: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, host), port)
}

/// Deterministic numbers.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// What the network does to datagrams, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
}

impl Weather {
    pub const FINE: Self = Self { lost: 0, doubled: 0, late: 0 };
    pub const BAD: Self = Self { lost: 50, doubled: 50, late: 100 };
}

enum Arrival {
    /// It lies in a socket since `came`, if whoever reads it had no processor.
    Datagram {
        from: SocketAddrV4,
        to: SocketAddrV4,
        came: Option<Instant>,
        bytes: Vec<u8>,
    },
    Answer {
        server: SocketAddrV4,
        key: RequestKey,
        body: Vec<u8>,
    },
}

impl Arrival {
    fn lies_since(self, now: Instant) -> Self {
        match self {
            Self::Datagram { from, to, came, bytes } => {
                Self::Datagram { from, to, came: Some(came.unwrap_or(now)), bytes }
            }
            answer @ Self::Answer { .. } => answer,
        }
    }
}

/// What happened to one call.
#[derive(Default, Debug)]
pub struct Fate {
    pub executed: u32,
    pub replies: u32,
    pub failures: Vec<CallFailure>,
}

pub struct World {
    pub now: Instant,
    pub random: Random,
    pub weather: Weather,
    pub clients: BTreeMap<SocketAddrV4, Client>,
    pub servers: BTreeMap<SocketAddrV4, Server>,
    /// By the port clients send to; its control port is [`control_of`] that.
    pub routers: BTreeMap<SocketAddrV4, Router>,
    pub fates: HashMap<u64, Fate>,
    /// Who gets no processor, and until when. What is sent there waits in its socket.
    pub asleep: HashMap<SocketAddrV4, Instant>,
    /// Longest time a server works on a request.
    pub service_ns_max: u64,
    pub reply_bytes: fn(u64) -> usize,
    pub datagrams: u64,
    /// So often, in thousandths, an endpoint that has something to do goes on as another one first.
    pub replaced: u64,
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    arrivals: HashMap<u64, Arrival>,
    serial: u64,
    /// What endpoints were told last.
    config: Option<Arc<Config>>,
}

/// What another process reads.
pub fn handed_over<W: serde::Serialize, R: serde::de::DeserializeOwned>(written: &W) -> R {
    let mut bytes = Vec::new();
    ciborium::into_writer(written, &mut bytes).unwrap();
    ciborium::from_reader(bytes.as_slice()).unwrap()
}

impl World {
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self {
            now: START,
            random: Random(seed),
            weather,
            clients: BTreeMap::new(),
            servers: BTreeMap::new(),
            routers: BTreeMap::new(),
            fates: HashMap::new(),
            asleep: HashMap::new(),
            service_ns_max: 3 * MS,
            reply_bytes: |tag| (tag % 5000) as usize,
            datagrams: 0,
            replaced: 0,
            due: BinaryHeap::new(),
            arrivals: HashMap::new(),
            serial: 0,
            config: None,
        }
    }

    pub fn client(&mut self, at: SocketAddrV4, config: &Arc<Config>) {
        let seed = self.random.next();
        self.config = Some(Arc::clone(config));
        self.clients.insert(at, Client::new(Arc::clone(config), seed));
    }

    pub fn server(&mut self, at: SocketAddrV4, config: &Arc<Config>) {
        self.servers.insert(at, Server::new(Arc::clone(config), Instant(self.now.0 - S)));
    }

    /// Makes a call whose body says its tag and is checked at the server.
    pub fn call(&mut self, from: SocketAddrV4, to: SocketAddrV4, tag: u64, bytes: usize, timeout_ns: u64) {
        let new = NewCall {
            tag,
            target: to,
            sticky: false,
            class: 0,
            deadline: Deadline::at(self.now.plus_ns(timeout_ns)),
            body: Bytes::from(pattern(tag, bytes.max(8))),
        };
        self.fates.insert(tag, Fate::default());
        self.clients.get_mut(&from).unwrap().call(self.now, new).unwrap();
        self.settle();
    }

    /// Runs until nothing is left to happen, or `until`.
    pub fn run(&mut self, until: Instant) {
        loop {
            self.settle();
            let next = self.next();
            match next.filter(|at| *at <= until) {
                Some(at) => self.now = self.now.max(at),
                None => break,
            }
            self.step();
        }
        self.now = self.now.max(until);
    }

    pub fn ended(&self, tag: u64) -> bool {
        let fate = &self.fates[&tag];
        fate.replies as usize + fate.failures.len() > 0
    }

    fn next(&mut self) -> Option<Instant> {
        let arrival = self.due.peek().map(|Reverse((at, _))| *at);
        let awake = |at: &SocketAddrV4, due: Instant| due.max(wakes(&self.asleep, *at));
        let clients = self.clients.iter_mut();
        let clients = clients.filter_map(|(at, client)| Some(awake(at, client.next_timeout()?))).min();
        let servers = self.servers.iter_mut();
        let servers = servers.filter_map(|(at, server)| Some(awake(at, server.next_timeout()?))).min();
        let routers = self.routers.iter_mut();
        let routers = routers.filter_map(|(at, router)| Some(awake(at, router.next_timeout()?))).min();
        [arrival, clients, servers, routers].into_iter().flatten().min()
    }

    fn step(&mut self) {
        self.replace_endpoints();
        while let Some(Reverse((_, serial))) =
            self.due.peek().copied().filter(|Reverse((at, _))| *at <= self.now)
        {
            self.due.pop();
            let arrival = self.arrivals.remove(&serial).unwrap();
            let (Arrival::Datagram { to: at, .. } | Arrival::Answer { server: at, .. }) = &arrival;
            let wakes = wakes(&self.asleep, *at);
            if wakes > self.now {
                self.book(wakes, arrival.lies_since(self.now));
                continue;
            }
            match arrival {
                Arrival::Datagram { from, to, came, bytes } => {
                    self.deliver(from, to, came.unwrap_or(self.now), &bytes);
                }
                Arrival::Answer { server, key, body } => {
                    if let Some(server) = self.servers.get_mut(&server) {
                        server.reply(self.now, key, body.into(), Some([7; 64]), Timing::default());
                    }
                }
            }
        }
        let (asleep, now) = (&self.asleep, self.now);
        let clients = self.clients.iter_mut().filter(|(at, _)| wakes(asleep, **at) <= now);
        clients.for_each(|(_, client)| client.handle_timeout(now));
        let servers = self.servers.iter_mut().filter(|(at, _)| wakes(asleep, **at) <= now);
        servers.for_each(|(_, server)| server.handle_timeout(now));
        let routers = self.routers.iter_mut().filter(|(at, _)| wakes(asleep, **at) <= now);
        routers.for_each(|(_, router)| router.handle_timeout(now));
    }

    /// Some go on as others, which know nothing but what the first have written down.
    fn replace_endpoints(&mut self) {
        if self.replaced == 0 {
            return;
        }
        let Self { random, replaced, clients, servers, config, now, .. } = self;
        let Some(config) = config else { return };
        for client in clients.values_mut().filter(|_| random.chance(*replaced)) {
            let state = handed_over(client);
            *client = Client::new(Arc::clone(config), 1);
            client.take_up(state).unwrap();
        }
        for server in servers.values_mut().filter(|_| random.chance(*replaced)) {
            let state = handed_over(server);
            *server = Server::new(Arc::clone(config), *now);
            server.take_up(state).unwrap();
        }
    }

    fn deliver(&mut self, from: SocketAddrV4, to: SocketAddrV4, came: Instant, bytes: &[u8]) {
        if let Some(client) = self.clients.get_mut(&to) {
            client.handle_datagram(self.now, from, bytes);
        } else if let Some(server) = self.servers.get_mut(&to) {
            server.handle_datagram(self.now, came, from, bytes);
        } else if let Some(router) = self.routers.get_mut(&to) {
            router.handle_request(self.now, came, from, bytes);
        } else if let Some(router) = self.routers.get_mut(&SocketAddrV4::new(*to.ip(), 8000)) {
            router.handle_feedback(self.now, from, bytes);
        }
    }

    /// Takes what the endpoints say until they say nothing.
    fn settle(&mut self) {
        let mut sent = Vec::new();
        for (at, client) in &mut self.clients {
            while let Some(transmit) = client.poll_transmit() {
                sent.push((*at, transmit));
            }
            while let Some(event) = client.poll_event() {
                note(&mut self.fates, event, self.reply_bytes);
            }
        }
        let mut answers = Vec::new();
        for (at, server) in &mut self.servers {
            while let Some(event) = server.poll_event() {
                if let ServerEvent::Request(request) = event {
                    answers.push((*at, request));
                }
            }
            while let Some(transmit) = server.poll_transmit() {
                sent.push((*at, transmit));
            }
        }
        for (server, request) in answers {
            let tag = tag_of(&request.body);
            assert_eq!(request.body, pattern(tag, request.body.len()), "request {tag} arrived whole");
            self.fates.get_mut(&tag).unwrap().executed += 1;
            let body = pattern(tag, (self.reply_bytes)(tag).max(8));
            let at = self.now.plus_ns(self.random.next() % (self.service_ns_max + 1));
            self.book(at, Arrival::Answer { server, key: request.key, body });
        }
        for (at, router) in &mut self.routers {
            while let Some(transmit) = router.poll_transmit() {
                sent.push((*at, transmit));
            }
        }
        for (at, router) in &mut self.routers {
            while let Some(greeting) = router.poll_greeting() {
                sent.push((control_of(*at), greeting));
            }
        }
        for (from, transmit) in sent {
            self.send(from, transmit.to, transmit.to_vec());
        }
        let mut forwards = Vec::new();
        for (at, router) in &mut self.routers {
            forwards.extend(std::iter::from_fn(|| router.poll_forward()).map(|forward| (*at, forward)));
        }
        for (router, Forward { client, to, datagram, on_behalf, .. }) in forwards {
            let from = if on_behalf { control_of(router) } else { client };
            self.send(from, to, datagram);
        }
    }

    fn send(&mut self, from: SocketAddrV4, to: SocketAddrV4, bytes: Vec<u8>) {
        self.datagrams += 1;
        assert!(bytes.len() <= HEADER_BYTES + PAYLOAD_BYTES_MAX, "a datagram fits a frame");
        let copies = 1 + u64::from(self.random.chance(self.weather.doubled));
        for _ in 0..copies {
            if self.random.chance(self.weather.lost) {
                continue;
            }
            let mut delay = 20_000 + self.random.below(5_000);
            if self.random.chance(self.weather.late) {
                delay += self.random.below(5 * MS);
            }
            let bytes = bytes.clone();
            self.book(self.now.plus_ns(delay), Arrival::Datagram { from, to, came: None, bytes });
        }
    }

    fn book(&mut self, at: Instant, arrival: Arrival) {
        self.serial += 1;
        self.due.push(Reverse((at, self.serial)));
        self.arrivals.insert(self.serial, arrival);
    }
}

/// From when on somebody has a processor.
fn wakes(asleep: &HashMap<SocketAddrV4, Instant>, at: SocketAddrV4) -> Instant {
    asleep.get(&at).copied().unwrap_or_default()
}

fn note(fates: &mut HashMap<u64, Fate>, event: ClientEvent, reply_bytes: fn(u64) -> usize) {
    match event {
        ClientEvent::Replied { tag, body, .. } => {
            assert_eq!(body, pattern(tag, reply_bytes(tag).max(8)), "reply {tag} arrived whole");
            fates.get_mut(&tag).unwrap().replies += 1;
        }
        ClientEvent::Failed { tag, failure } => fates.get_mut(&tag).unwrap().failures.push(failure),
    }
}

/// Bytes that say their tag and differ at every place.
pub fn pattern(tag: u64, bytes: usize) -> Vec<u8> {
    let mut out: Vec<u8> = (0..bytes).map(|i| (i as u64 * 31 + tag * 7 + (i as u64 >> 8)) as u8).collect();
    out[..8].copy_from_slice(&tag.to_be_bytes());
    out
}

fn tag_of(body: &[u8]) -> u64 {
    u64::from_be_bytes(body[..8].try_into().unwrap())
}

/// Where a router that takes requests at `data` takes FEEDBACK.
pub fn control_of(data: SocketAddrV4) -> SocketAddrV4 {
    SocketAddrV4::new(*data.ip(), 9000)
}

pub fn extended() -> Config {
    Config { mode: Mode::Extended, ..Config::default() }
}
