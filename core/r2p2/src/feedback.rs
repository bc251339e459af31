//! FEEDBACK: what a server tells the routers in front of it.

use crate::Transmit;
use crate::config::{Config, Mode};
use crate::extension::{Extension, FeedbackPart, Identity, NO_REQUEST, Part};
use crate::served::{RequestKey, Timing};
use crate::server::Server;
use crate::wire::{FeedbackFor, Flags, Header, Packet};
use bytes::Bytes;
use core::net::SocketAddrV4;
use serde::{Deserialize, Serialize};
use trunkline_call::Instant;

/// What was taken from each router, and how much of it is done.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Books {
    routers: Vec<(SocketAddrV4, Account)>,
    #[serde(skip)]
    leaving: bool,
    /// Tells this start from the last.
    epoch: u32,
    #[serde(skip)]
    next_beat: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Account {
    taken: u64,
    served: u64,
    /// When the router last showed that it understands the extended mode.
    #[serde(default)]
    shown: Option<Instant>,
}

/// A router that has not shown for so long what it understands may be another by now: ten greetings.
const SHOWN_NS: u64 = 10_000_000_000;

impl Books {
    /// Routers that are known to understand are told at once that this worker is there; others when they have shown it.
    pub fn new(config: &Config, now: Instant) -> Self {
        let routers = config.routers.iter().map(|router| (*router, Account::default())).collect();
        let beats = config.mode == Mode::Extended && !config.routers.is_empty();
        let epoch = crate::mix(now.0) as u32;
        Self { routers, leaving: false, epoch, next_beat: beats.then_some(now) }
    }

    /// Goes on with what another process has counted: to routers this is the same start. One that is not configured any
    /// more still hears of its requests.
    pub fn take_up(&mut self, moved: Self) {
        self.epoch = moved.epoch;
        for (router, account) in moved.routers {
            match self.routers.iter_mut().find(|(known, _)| *known == router) {
                Some((_, known)) => *known = account,
                None if account.taken != account.served => self.routers.push((router, account)),
                None => {}
            }
        }
        let shown = self.routers.iter().filter_map(|(_, account)| account.shown).max();
        self.next_beat = self.next_beat.or(shown);
    }

    /// A router shows that it understands the extended mode: from now on it is told that this worker is there.
    pub fn shown(&mut self, now: Instant, router: SocketAddrV4) {
        self.count(Some(router), |account| account.shown = Some(now));
        self.next_beat.get_or_insert(now);
    }

    /// A request of the extended mode was sent on by this router, which so shows that it understands it.
    pub fn taken(&mut self, now: Instant, router: Option<SocketAddrV4>) {
        if router.is_some() {
            self.next_beat.get_or_insert(now);
        }
        self.count(router, |account| {
            (account.taken, account.shown) = (account.taken.wrapping_add(1), Some(now));
        });
    }

    /// Whether a router takes beats for what they are.
    fn understands(&self, now: Instant, mode: Mode, router: SocketAddrV4) -> bool {
        let account = self.routers.iter().find(|(address, _)| *address == router).map(|(_, account)| account);
        let shown = account.and_then(|account| account.shown).is_some_and(|at| now.since_ns(at) < SHOWN_NS);
        mode == Mode::Extended || mode == Mode::Offer && shown
    }

    fn served(&mut self, router: Option<SocketAddrV4>) {
        self.count(router, |account| account.served = account.served.wrapping_add(1));
    }

    pub fn next_beat(&self) -> Option<Instant> {
        self.next_beat
    }

    fn count(&mut self, router: Option<SocketAddrV4>, count: impl Fn(&mut Account)) {
        let found = self.routers.iter_mut().find(|(address, _)| Some(*address) == router);
        if let Some((_, account)) = found {
            count(account);
        }
    }
}

impl Server {
    /// Takes no more requests from routers; those here go on.
    pub fn leave(&mut self, now: Instant) {
        self.books.leaving = true;
        self.books.next_beat = self.books.next_beat.map(|_| now);
        self.beat(now);
    }

    /// A request is done with: counted, and its router told.
    pub(crate) fn finish(&mut self, key: RequestKey) {
        let Some(request) = self.requests.get(&key) else { return };
        self.books.served(request.router);
        self.send_feedback(key);
    }

    /// Tells the router of a request how it stands, again if need be.
    pub(crate) fn send_feedback(&mut self, key: RequestKey) {
        let Some(request) = self.requests.get(&key) else { return };
        let (router, timing) = (request.router, request.timing);
        let about = FeedbackFor { id: key.id, port: key.client.port(), ip: (*key.client.ip()).into() };
        match (key.identity, router) {
            (Some(identity), Some(router)) => self.send_extended_feedback(router, identity, about, timing),
            // It came straight from its client.
            (Some(_), None) => {}
            // A compatible request does not say where it came from: every router is told, and those that did not
            // route it take no notice.
            (None, _) => {
                for index in 0..self.config.routers.len() {
                    let to = self.config.routers[index];
                    let head = Packet::head(&Header { id: key.id, ..Header::of_feedback() }, None);
                    self.out.push_back(Transmit { to, head, body: Bytes::copy_from_slice(&about.encode()) });
                }
            }
        }
    }

    /// Says to every router that takes it for that, that this worker is there, when it is time. To the authors' router
    /// it would be a credit.
    pub(crate) fn beat(&mut self, now: Instant) {
        let Some(at) = self.books.next_beat.filter(|at| *at <= now) else { return };
        self.books.next_beat = None;
        for index in 0..self.config.routers.len() {
            let router = self.config.routers[index];
            if !self.books.understands(now, self.config.mode, router) {
                continue;
            }
            self.books.next_beat = Some(at.max(now).plus_ns(self.config.heartbeat_ns));
            self.send_extended_feedback(router, Identity::default(), NO_REQUEST, Timing::default());
        }
    }

    fn send_extended_feedback(
        &mut self,
        to: SocketAddrV4,
        identity: Identity,
        about: FeedbackFor,
        timing: Timing,
    ) {
        let account = self.books.routers.iter().find(|(address, _)| *address == to);
        let account = account.map_or(Account::default(), |(_, account)| *account);
        let as_u32 = |ns: u64| ns.min(u32::MAX.into()) as u32;
        let part = FeedbackPart {
            slots: if self.books.leaving { 0 } else { self.config.slots },
            leaving: self.books.leaving,
            on_behalf: true,
            queue_ns: as_u32(timing.queue_ns),
            service_ns: as_u32(timing.service_ns),
            epoch: self.books.epoch,
            taken: account.taken,
            served: account.served,
        };
        let base = Header::of_feedback();
        let flags = Flags(base.flags.0 | Flags::OFFER | Flags::EXTENDED);
        let header = Header { id: about.id, flags, ..base };
        let head = Packet::head(&header, Some(&Extension { identity, part: Part::Feedback(part) }));
        self.out.push_back(Transmit { to, head, body: Bytes::copy_from_slice(&about.encode()) });
    }
}
