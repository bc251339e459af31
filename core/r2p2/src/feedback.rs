//! FEEDBACK: what a server tells the routers in front of it.

use crate::Transmit;
use crate::config::{Config, Mode};
use crate::extension::{Extension, FeedbackPart, Identity, NO_REQUEST, Part};
use crate::packet::Packet;
use crate::served::{RequestKey, Timing};
use crate::wire::{FeedbackFor, Flags, Header};
use bytes::Bytes;
use core::net::SocketAddrV4;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use trunkline_call::Instant;

/// What was taken from each router, and how much of it is done.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RouterAccounts {
    routers: Vec<(SocketAddrV4, Account)>,
    #[serde(skip)]
    leaving: bool,
    /// Tells this start from the last.
    epoch: u32,
    #[serde(skip)]
    next_beat: Option<Instant>,
}

/// What a server sends.
type Out = VecDeque<Transmit>;

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

impl RouterAccounts {
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

    /// Routers are to send no more requests.
    pub fn leave(&mut self, now: Instant) {
        self.leaving = true;
        self.next_beat = self.next_beat.map(|_| now);
    }

    /// Tells the router of a request how it stands.
    pub fn tell(
        &self,
        config: &Config,
        key: RequestKey,
        router: Option<SocketAddrV4>,
        timing: Timing,
        out: &mut Out,
    ) {
        let about = FeedbackFor { id: key.id, port: key.client.port(), ip: (*key.client.ip()).into() };
        match (key.identity, router) {
            (Some(identity), Some(router)) => {
                out.push_back(self.extended_feedback(config, router, identity, about, timing));
            }
            // It came straight from its client.
            (Some(_), None) => {}
            // A compatible request does not say where it came from: every router is told, and those that did not
            // route it take no notice.
            (None, _) => out.extend(config.routers.iter().map(|&to| {
                let head = Packet::head(&Header { id: key.id, ..Header::of_feedback() }, None);
                Transmit { to, head, body: Bytes::copy_from_slice(&about.encode()) }
            })),
        }
    }

    /// Says to every router that takes it for that, that this worker is there, when it is time. To the authors' router
    /// it would be a credit.
    pub fn beat(&mut self, now: Instant, config: &Config, out: &mut Out) {
        let Some(at) = self.next_beat.filter(|at| *at <= now) else { return };
        self.next_beat = None;
        for &router in &config.routers {
            if !self.understands(now, config.mode, router) {
                continue;
            }
            self.next_beat = Some(at.max(now).plus_ns(config.heartbeat_ns));
            let (nobody, none) = (Identity::default(), Timing::default());
            out.push_back(self.extended_feedback(config, router, nobody, NO_REQUEST, none));
        }
    }

    /// Whether a router takes beats for what they are.
    fn understands(&self, now: Instant, mode: Mode, router: SocketAddrV4) -> bool {
        let account = self.routers.iter().find(|(address, _)| *address == router).map(|(_, account)| account);
        let shown = account.and_then(|account| account.shown).is_some_and(|at| now.since_ns(at) < SHOWN_NS);
        mode == Mode::Extended || mode == Mode::Offer && shown
    }

    /// A request is done with.
    pub fn served(&mut self, router: Option<SocketAddrV4>) {
        self.count(router, |account| account.served = account.served.wrapping_add(1));
    }

    pub fn next_beat(&self) -> Option<Instant> {
        self.next_beat
    }

    fn extended_feedback(
        &self,
        config: &Config,
        to: SocketAddrV4,
        identity: Identity,
        about: FeedbackFor,
        timing: Timing,
    ) -> Transmit {
        let account = self.routers.iter().find(|(address, _)| *address == to);
        let account = account.map_or(Account::default(), |(_, account)| *account);
        let as_u32 = |ns: u64| ns.min(u32::MAX.into()) as u32;
        let part = FeedbackPart {
            slots: if self.leaving { 0 } else { config.slots },
            leaving: self.leaving,
            on_behalf: true,
            queue_ns: as_u32(timing.queue_ns),
            service_ns: as_u32(timing.service_ns),
            epoch: self.epoch,
            taken: account.taken,
            served: account.served,
        };
        let base = Header::of_feedback();
        let flags = Flags(base.flags.0 | Flags::OFFER | Flags::EXTENDED);
        let header = Header { id: about.id, flags, ..base };
        let head = Packet::head(&header, Some(&Extension { identity, part: Part::Feedback(part) }));
        Transmit { to, head, body: Bytes::copy_from_slice(&about.encode()) }
    }

    fn count(&mut self, router: Option<SocketAddrV4>, count: impl Fn(&mut Account)) {
        let found = self.routers.iter_mut().find(|(address, _)| Some(*address) == router);
        if let Some((_, account)) = found {
            count(account);
        }
    }
}
