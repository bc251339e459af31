//! R2P2 through a router: a client, two workers, and strangers at the ports of all of them.

use crate::r2p2::{START, address, call, seeds};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_r2p2::*;

const CLIENT: u8 = 1;
const WORKERS: [u8; 2] = [2, 3];
const ROUTER: u8 = 4;
const CONTROL: u8 = 5;

const LEASES_MAX: usize = 8;
const QUEUE_MAX: usize = 4;

/// Steps: each begins with what to do and how much of it, and a datagram follows if it brings one. The first byte says
/// how the router sends on.
pub(crate) fn events(bytes: &[u8]) {
    let Some((setting, mut rest)) = bytes.split_first() else { return };
    let mut road = Road::new(*setting);
    while let [what, amount, tail @ ..] = rest {
        let bytes = if *what % 8 < 4 { usize::from(*amount) } else { 0 };
        let (taken, tail) = tail.split_at(bytes.min(tail.len()));
        road.step(*what, *amount, taken);
        road.settle();
        rest = tail;
    }
    road.come_to_rest();
}

/// Who takes part.
struct Road {
    router_config: RouterConfig,
    router: Router,
    client: Client,
    workers: [Worker; 2],
    now: Instant,
    made: u64,
    ended: u64,
}

struct Worker {
    host: u8,
    server: Server,
    held: Vec<RequestKey>,
}

impl Road {
    fn new(setting: u8) -> Self {
        let on_behalf = [OnBehalf::Never, OnBehalf::Preferred, OnBehalf::Only][usize::from(setting) % 3];
        let router_config = RouterConfig {
            control: address(CONTROL),
            on_behalf,
            // The other one joins.
            workers: vec![(address(WORKERS[0]), 1)],
            join_from: vec![(Ipv4Addr::new(10, 0, 0, 2), 31)],
            workers_max: 2,
            leases_max: LEASES_MAX,
            queue_max: QUEUE_MAX,
            ..RouterConfig::default()
        };
        let mode = [Mode::Offer, Mode::Extended, Mode::Compatible][usize::from(setting) / 3 % 3];
        let mine = Arc::new(Config { mode, calls_max: 8, ..Config::default() });
        let routers = vec![address(CONTROL)];
        let theirs = Arc::new(Config { mode: Mode::Offer, remembered_max: 8, routers, ..Config::default() });
        let worker = |host| {
            let server = Server::new(Arc::clone(&theirs), Instant(0));
            Worker { host, server, held: Vec::new() }
        };
        let router = Router::new(router_config.clone(), Instant(0));
        let (client, workers) = (Client::new(mine, 1), WORKERS.map(worker));
        Self { router_config, router, client, workers, now: START, made: 0, ended: 0 }
    }

    fn step(&mut self, what: u8, amount: u8, taken: &[u8]) {
        let from = address(what / 8 % 8);
        let now = self.now;
        let [first, second] = &mut self.workers;
        let worker = if amount.is_multiple_of(2) { first } else { second };
        match what % 8 {
            0 => self.router.handle_request(now, now, from, taken),
            1 => self.router.handle_feedback(now, from, taken),
            2 => worker.server.handle_datagram(now, now, from, taken),
            3 => self.client.handle_datagram(now, from, taken),
            4 => self.now = now.plus_ns(u64::from(amount) * 10_000_000),
            5 => {
                let new = NewCall { target: address(ROUTER), ..call(now, amount) };
                self.made += u64::from(self.client.call(now, new).is_ok());
            }
            6 => {
                if let Some(key) = worker.held.pop() {
                    let body = vec![1; usize::from(amount) * 40].into();
                    worker.server.reply(now, key, body, None, Timing::default());
                }
            }
            // Its state is soft: the next one knows nothing.
            _ => self.router = Router::new(self.router_config.clone(), now),
        }
    }

    /// Everybody hears what the others say, until nobody says anything.
    fn settle(&mut self) {
        self.client.handle_timeout(self.now);
        self.router.handle_timeout(self.now);
        self.workers.iter_mut().for_each(|worker| worker.server.handle_timeout(self.now));
        while let Some((from, to, datagram)) = self.say() {
            self.hear(from, to, &datagram);
        }
        self.ended += std::iter::from_fn(|| self.client.poll_event()).count() as u64;
        for worker in &mut self.workers {
            while let Some(event) = worker.server.poll_event() {
                let ServerEvent::Request(request) = event else { continue };
                assert!(!worker.held.contains(&request.key), "handed out twice");
                worker.held.push(request.key);
            }
        }
        let router = &self.router;
        assert!(router.live() <= LEASES_MAX && router.queued() <= QUEUE_MAX && router.workers().len() <= 2);
    }

    /// What the next of them has to say.
    fn say(&mut self) -> Option<(SocketAddrV4, SocketAddrV4, Vec<u8>)> {
        if let Some(Forward { client, to, datagram, on_behalf, .. }) = self.router.poll_forward() {
            let setting = self.router_config.on_behalf;
            assert!(if on_behalf { setting != OnBehalf::Never } else { setting != OnBehalf::Only });
            return Some((if on_behalf { address(CONTROL) } else { client }, to, datagram));
        }
        let said = |at, transmit: Transmit| (at, transmit.to, transmit.to_vec());
        if let Some(transmit) = self.router.poll_transmit() {
            return Some(said(address(CONTROL), transmit));
        }
        if let Some(transmit) = self.client.poll_transmit() {
            return Some(said(address(CLIENT), transmit));
        }
        self.workers
            .iter_mut()
            .find_map(|worker| Some(said(address(worker.host), worker.server.poll_transmit()?)))
    }

    fn hear(&mut self, from: SocketAddrV4, to: SocketAddrV4, datagram: &[u8]) {
        assert!(datagram.len() <= HEADER_BYTES + PAYLOAD_BYTES_MAX);
        let at = |host| to == address(host);
        if at(CLIENT) {
            self.client.handle_datagram(self.now, from, datagram);
        } else if at(ROUTER) {
            self.router.handle_request(self.now, self.now, from, datagram);
        } else if at(CONTROL) {
            self.router.handle_feedback(self.now, from, datagram);
        } else if let Some(worker) = self.workers.iter_mut().find(|worker| at(worker.host)) {
            worker.server.handle_datagram(self.now, self.now, from, datagram);
        }
    }

    /// Every call ends once, and the router's books close.
    fn come_to_rest(&mut self) {
        for _ in 0..100 {
            self.now = self.now.plus_ns(100_000_000);
            for worker in &mut self.workers {
                worker.held.drain(..).for_each(|key| worker.server.refuse(self.now, key, Reason::Busy));
            }
            self.settle();
        }
        self.client.handle_timeout(self.now.plus_ns(100_000_000_000));
        self.ended += std::iter::from_fn(|| self.client.poll_event()).count() as u64;
        assert_eq!(self.ended, self.made, "every call ends once");
        assert_eq!((self.router.live(), self.router.queued()), (0, 0), "nothing is held for ever");
    }
}

/// Calls that are answered, that meet a new router, and what endpoints say, in front of whom it is not for.
pub(crate) fn event_seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for setting in 0..9 {
        out.push(vec![
            setting, 5, 1, 5, 90, 6, 0, 6, 1, 5, 2, 7, 0, 4, 9, 6, 0, 6, 1, 5, 3, 6, 0, 6, 1, 4, 200,
        ]);
        // More than there is room for.
        out.push([vec![setting], [5, 1].repeat(12), [6, 0, 6, 1, 4, 1].repeat(6)].concat());
        for seed in seeds() {
            let Ok(len) = u8::try_from(seed.len()) else { continue };
            let to = |what: u8, host: u8| [&[what + 8 * host, len][..], &seed].concat();
            let steps = [to(0, 6), to(1, WORKERS[0]), to(2, CONTROL), to(3, WORKERS[1]), vec![6, 0, 6, 1]];
            out.push([vec![setting], steps.concat()].concat());
        }
    }
    out
}
