//! Makes calls over R2P2 in memory and ends: what `cargo xtask counts` counts the instructions of.
//!
//! `routed_calls direct|compatible|extended TIMES`: 64 at once to one of 16 workers, past a router or through one. What
//! a router takes is the difference; extended calls also cost client and worker more.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use trunkline_call::{Deadline, Instant};
use trunkline_r2p2::*;

const AT_ONCE: usize = 64;
const WORKERS: u8 = 16;
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 33_000);
const DATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 8000);
const CONTROL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 8001);
/// One turn of everybody.
const TURN_NS: u64 = 50_000;
/// Everybody has heard of everybody by then.
const BEGIN_NS: u64 = 1_000_000_000;
const BODY: [u8; 64] = [7; 64];

struct World {
    now: Instant,
    client: Client,
    router: Option<Router>,
    servers: Vec<Server>,
    replied: u64,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [way, times] = words.as_slice() else { panic!("two words are expected") };
    let times: u64 = times.parse().expect("a number");
    let mut world = World::new(way);
    while world.now < Instant(BEGIN_NS) {
        world.turn();
    }
    let mut made = 0;
    while world.replied < times {
        while world.client.len() < AT_ONCE && made < times {
            world.call(made);
            made += 1;
        }
        world.turn();
    }
}

fn worker(index: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, index), 8000)
}

impl World {
    fn new(way: &str) -> Self {
        let mode = if way == "extended" { Mode::Extended } else { Mode::Compatible };
        let is_routed = way != "direct";
        let known = (0..WORKERS).map(|index| (worker(index), AT_ONCE as u16));
        let settings = RouterConfig {
            control: CONTROL,
            on_behalf: OnBehalf::Preferred,
            workers: if mode == Mode::Compatible { known.collect() } else { Vec::new() },
            join_from: vec![(Ipv4Addr::new(10, 0, 1, 0), 24)],
            ..RouterConfig::default()
        };
        let routers = if is_routed { vec![CONTROL] } else { Vec::new() };
        let slots = AT_ONCE as u16;
        let config = Arc::new(Config { mode, slots, routers, ..Config::default() });
        Self {
            now: Instant(0),
            client: Client::new(Arc::new(Config { mode, ..Config::default() }), 1),
            router: is_routed.then(|| Router::new(settings, Instant(0))),
            servers: (0..WORKERS).map(|_| Server::new(Arc::clone(&config), Instant(0))).collect(),
            replied: 0,
        }
    }

    fn call(&mut self, tag: u64) {
        let target = if self.router.is_some() { DATA } else { worker((tag % u64::from(WORKERS)) as u8) };
        let (sticky, body) = (false, BODY.as_slice().into());
        let deadline = Deadline::at(self.now.plus_ns(1_000_000_000));
        self.client.call(self.now, NewCall { tag, target, sticky, class: 0, deadline, body }).expect("room");
    }

    /// Everybody does what there is to do, and what they say arrives at once.
    fn turn(&mut self) {
        self.now = self.now.plus_ns(TURN_NS);
        self.client.handle_timeout(self.now);
        while let Some(transmit) = self.client.poll_transmit() {
            match &mut self.router {
                Some(router) => router.handle_request(self.now, self.now, CLIENT, &transmit.to_vec()),
                None => self.serve(CLIENT, transmit.to, &transmit.to_vec()),
            }
        }
        self.forward();
        for index in 0..WORKERS {
            self.servers[usize::from(index)].handle_timeout(self.now);
            self.hear(index);
        }
        if let Some(router) = &mut self.router {
            router.handle_timeout(self.now);
        }
        self.forward();
        while let Some(event) = self.client.poll_event() {
            assert!(matches!(event, ClientEvent::Replied { .. }), "{event:?}");
            self.replied += 1;
        }
    }

    fn forward(&mut self) {
        let Some(mut router) = self.router.take() else { return };
        while let Some(forward) = router.poll_forward() {
            let from = if forward.on_behalf { CONTROL } else { forward.client };
            self.serve(from, forward.to, &forward.datagram);
            router.take_back(std::iter::once(forward));
        }
        assert!(router.poll_transmit().is_none(), "nothing is refused");
        self.router = Some(router);
    }

    fn serve(&mut self, from: SocketAddrV4, to: SocketAddrV4, datagram: &[u8]) {
        let server = &mut self.servers[usize::from(to.ip().octets()[3])];
        server.handle_datagram(self.now, self.now, from, datagram);
        while let Some(event) = server.poll_event() {
            let ServerEvent::Request(request) = event else { panic!("{event:?}") };
            server.reply(self.now, request.key, request.body.into(), None, Timing::default());
        }
    }

    /// What a worker says, to whom.
    fn hear(&mut self, index: u8) {
        while let Some(transmit) = self.servers[usize::from(index)].poll_transmit() {
            let datagram = transmit.to_vec();
            match (&mut self.router, transmit.to) {
                (Some(router), CONTROL) => router.handle_feedback(self.now, worker(index), &datagram),
                (_, to) => {
                    assert_eq!(to, CLIENT);
                    self.client.handle_datagram(self.now, worker(index), &datagram);
                }
            }
        }
    }
}
