//! One call, as its client sees it.

use crate::Transmit;
use crate::config::{Config, Mode};
use crate::cut::Cut;
use crate::extension::{Extension, Identity, Part, Reason, RequestPart};
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::packet::Packet;
use crate::wire::{Flags, Header, PacketType, Policy};
use bytes::Bytes;
use core::net::{Ipv4Addr, SocketAddrV4};
use trunkline_call::{Deadline, Instant, SERVER_TRAILER_BYTES, TimerKey};

/// A call to make.
#[derive(Clone, Debug)]
pub struct NewCall {
    /// The owner's name for it; comes back with its end.
    pub tag: u64,
    /// Server, or router in front of many.
    pub target: SocketAddrV4,
    /// Through a router: always the same server for this client's address and port.
    pub sticky: bool,
    /// Class, for routers that reserve workers.
    pub class: u8,
    /// When it must have ended.
    pub deadline: Deadline,
    /// The request.
    pub body: Bytes,
}

/// ```text
///  Asking ──ACK──▶ Sending ──all acknowledged──▶ Waiting ──▶ (reply complete)
///     └───── one packet: ACK, or the reply at once ──▶┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Stage {
    /// The first packet is out and nobody has said anything.
    Asking,
    /// The server has said where to send the rest.
    Sending,
    /// The server has the request.
    Waiting,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Call {
    pub tag: u64,
    pub id: u16,
    pub identity: Identity,
    pub extended: bool,
    pub target: SocketAddrV4,
    /// Who has it, once known.
    pub server: Option<SocketAddrV4>,
    pub stage: Stage,
    pub deadline: Deadline,
    pub outgoing: Outgoing,
    pub incoming: Incoming,
    #[serde(with = "trunkline_call::octets::trailer")]
    pub trailer: Option<[u8; SERVER_TRAILER_BYTES]>,
    pub first_sent: Instant,
    /// Questions nobody has answered, and since when.
    pub silent: u32,
    pub silent_since: Instant,
    #[serde(skip)]
    pub timer: Option<(TimerKey, Instant)>,
    class: u8,
    policy: Policy,
    offers: bool,
    pause_ns: u64,
    next_question: Instant,
}

impl Call {
    /// `None` if the message is too long for its form.
    pub fn new(
        now: Instant,
        config: &Config,
        new: NewCall,
        id: u16,
        identity: Identity,
        extended: bool,
    ) -> Option<Self> {
        let cut = Cut::request(extended);
        let pause_ns = if extended { config.rto_ns } else { config.answer_ns_max };
        Some(Self {
            tag: new.tag,
            id,
            identity,
            extended,
            target: new.target,
            server: None,
            stage: Stage::Asking,
            deadline: new.deadline,
            outgoing: Outgoing::new(new.body, cut, 1, config.rto_ns)?,
            incoming: Incoming::default(),
            trailer: None,
            first_sent: now,
            silent: 0,
            silent_since: now,
            timer: None,
            class: new.class,
            policy: if new.sticky { Policy::Sticky } else { Policy::Unrestricted },
            offers: config.mode != Mode::Compatible,
            pause_ns,
            next_question: now.plus_ns(pause_ns),
        })
    }

    /// The first packet, to wherever it may help now.
    pub fn first(&self, now: Instant, again: bool) -> Transmit {
        let to = self.server.unwrap_or(self.target);
        let age_us = now.since_ns(self.first_sent).div_ceil(1000).min(u32::MAX.into()) as u32;
        let left_us = |at: Instant| (at.since_ns(now) / 1000).min(u64::from(u32::MAX) - 1) as u32;
        let budget_us = self.deadline.instant().map_or(u32::MAX, left_us);
        let part = RequestPart { again, class: self.class, router: None, client: None, age_us, budget_us };
        self.packet(to, 0, Part::Request(part))
    }

    /// A packet behind the first.
    pub fn later(&self, to: SocketAddrV4, index: u16) -> Transmit {
        self.packet(to, index, Part::Later)
    }

    /// A packet of this call that is no part of the request: ACK of the reply, DROP.
    pub fn aside(&self, to: SocketAddrV4, kind: PacketType, part: Part, payload: &'static [u8]) -> Transmit {
        let flags = Flags(Flags::FIRST | Flags::LAST | Flags::OFFER | Flags::EXTENDED);
        let header = Header { kind, policy: Policy::Sticky, flags, id: self.id, order: 1 };
        let extension = Extension { identity: self.identity, part };
        Transmit { to, head: Packet::head(&header, Some(&extension)), body: Bytes::from_static(payload) }
    }

    /// Goes on with a call another process made. `false` if it contradicts itself.
    pub fn take_up(&mut self) -> bool {
        self.silent = self.silent.min(u32::MAX / 2);
        self.pause_ns = self.pause_ns.min(u64::MAX / 2);
        // What has come came from somebody.
        let is_from_somebody = self.server.is_some() || self.incoming.held_bytes() == 0;
        is_from_somebody && self.incoming.take_up() && self.outgoing.take_up(Cut::request(self.extended))
    }

    /// Who answers it, as far as anybody knows.
    pub fn peer(&self) -> Ipv4Addr {
        *self.server.unwrap_or(self.target).ip()
    }

    /// Something came from the server: it is there, and the next question can wait.
    pub fn heard(&mut self, now: Instant, from: SocketAddrV4, config: &Config) {
        self.server = Some(from);
        (self.silent, self.silent_since) = (0, now);
        if self.extended {
            self.pause_ns = config.probe_ns;
            self.next_question = now.plus_ns(self.pause_ns);
        }
    }

    /// Whether it is time to ask again; books the next time, later than the last.
    pub fn asks(&mut self, now: Instant, config: &Config) -> bool {
        if self.next_question > now {
            return false;
        }
        let most = if self.stage == Stage::Asking { config.rto_ns_max } else { config.probe_ns_max };
        self.pause_ns = (self.pause_ns * 2).min(most);
        self.next_question = now.plus_ns(self.pause_ns);
        true
    }

    /// When to look at this call again.
    pub fn next_timeout(&self) -> Instant {
        let sending = (self.stage == Stage::Sending).then(|| self.outgoing.next_timeout()).flatten();
        let asking = (self.stage != Stage::Sending).then_some(self.next_question);
        let all = [sending, asking, self.deadline.instant()];
        all.into_iter().flatten().min().unwrap_or(self.next_question)
    }

    /// Whether a packet belongs to this use of the id, and to this call's server.
    pub fn owns(&self, from: SocketAddrV4, packet: &Packet<'_>) -> bool {
        let same =
            packet.extension.map(|extension| extension.identity) == self.extended.then_some(self.identity);
        same && self.server.is_none_or(|server| server == from)
    }

    fn packet(&self, to: SocketAddrV4, index: u16, part: Part) -> Transmit {
        let count = self.outgoing.count();
        let mut flags = if index == 0 { Flags::FIRST } else { 0 };
        if index + 1 == count {
            flags |= Flags::LAST;
        }
        if self.offers {
            flags |= Flags::OFFER;
        }
        let extension = self.extended.then_some(Extension { identity: self.identity, part });
        if extension.is_some() {
            flags |= Flags::EXTENDED;
        }
        let order = if index == 0 { count } else { index };
        let header = Header {
            kind: PacketType::Request,
            policy: self.policy,
            flags: Flags(flags),
            id: self.id,
            order,
        };
        Transmit { to, head: Packet::head(&header, extension.as_ref()), body: self.outgoing.payload(index) }
    }
}

/// A DROP of the extended mode, without the call.
pub(crate) fn drop_part(reason: Reason) -> Part {
    Part::Drop { reason, delay_us: 0, client: None }
}
