//! The client: makes requests, takes replies.

use crate::Transmit;
use crate::client_call::{Call, NewCall, Stage, drop_part};
use crate::config::{Config, Mode};
use crate::extension::{Extension, Identity, Part, Reason};
use crate::packet::Packet;
use crate::peer_bytes::{PeerBytes, PortFull};
use crate::wire::{ACK, DROP, Flags, Header, PacketType, Policy};
use bytes::Bytes;
use core::net::SocketAddrV4;
use std::collections::VecDeque;
use std::sync::Arc;
use thiserror::Error;
use trunkline_call::{Execution, Instant, KeyedMap, KeyedSet, SERVER_TRAILER_BYTES, TimerTable};

/// Calls looked at in one go. What is left is due at once, after others had their turn.
const PER_STEP_MAX: usize = 256;
/// Requests that wait to be sent for so long say how old they are by then: a tenth of a datagram's longest time on its
/// way, by which a server takes all to be older than they say.
const AGED_NS: u64 = 1_000_000;

/// The client's end of one UDP port.
#[derive(Debug)]
pub struct Client {
    config: Arc<Config>,
    pub(crate) epoch: u32,
    /// Requests made, begun at random: the lower half is the next request's id.
    pub(crate) next: u32,
    pub(crate) calls: KeyedMap<u16, Call>,
    /// Who has shown that it understands the extended mode.
    pub(crate) extended: KeyedSet<SocketAddrV4>,
    timers: TimerTable<(u16, u16)>,
    pub(crate) out: VecDeque<Transmit>,
    /// Ages in `out` are of then, or later.
    aged: Instant,
    events: VecDeque<ClientEvent>,
    /// For replies of which a part is here.
    pub(crate) held: PeerBytes,
    counters: ClientCounters,
}

/// Names a call of this client while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct CallName {
    id: u16,
    round: u16,
}

/// How a call ended: exactly one for every call taken, unless it was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// With a reply.
    Replied {
        /// The owner's name.
        tag: u64,
        /// Who replied.
        server: SocketAddrV4,
        /// The reply.
        body: Vec<u8>,
        /// The server's stamps, if it sent any.
        trailer: Option<[u8; SERVER_TRAILER_BYTES]>,
    },
    /// Without.
    Failed {
        /// The owner's name.
        tag: u64,
        /// Why.
        failure: CallFailure,
    },
}

/// Why a call ended without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CallFailure {
    /// Refused by server or router.
    #[error("refused: {}, after waiting for {delay_us} µs", .reason.name())]
    Dropped {
        /// Why.
        reason: Reason,
        /// How long it waited before.
        delay_us: u32,
    },
    /// Nobody has said anything for too long.
    #[error("no answer")]
    Silent,
    /// The deadline passed.
    #[error("deadline passed")]
    Deadline,
    /// The reply is too long.
    #[error("reply is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// Parts of replies fill what may be held for the server, or for all.
    #[error("no room for the reply: {0}")]
    Full(PortFull),
}

/// Why a call was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// Too many in flight.
    #[error("{limit} calls are in flight on this port")]
    Calls {
        /// The limit.
        limit: usize,
    },
    /// The message is too long. To a peer that has not shown the extended mode 254 packets are the most.
    #[error("message has {bytes} bytes, limit {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// What came and was of no use, and what was sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// Datagrams that are none of ours.
    pub malformed: u64,
    /// Datagrams of calls that are not, or not any more.
    pub stray: u64,
    /// Packets that had come before.
    pub duplicates: u64,
    /// Packets sent again.
    pub retransmitted: u64,
}

impl CallFailure {
    /// What is known of the execution.
    pub fn execution(&self) -> Execution {
        match self {
            Self::Dropped { reason: Reason::Forgotten, .. } | Self::Silent | Self::Deadline => {
                Execution::Unknown
            }
            Self::Dropped { reason: Reason::Served, .. } | Self::TooLong { .. } | Self::Full(_) => {
                Execution::Executed
            }
            Self::Dropped { .. } => Execution::NotExecuted,
        }
    }
}

impl Client {
    /// A client. `seed` must differ from one start to the next; ids and epoch follow from it.
    pub fn new(config: Arc<Config>, seed: u64) -> Self {
        let mixed = crate::mix(seed);
        Self {
            epoch: (mixed >> 32) as u32,
            next: mixed as u32,
            held: PeerBytes::new(&config),
            config,
            calls: KeyedMap::default(),
            extended: KeyedSet::default(),
            timers: TimerTable::new(),
            out: VecDeque::new(),
            aged: Instant::default(),
            events: VecDeque::new(),
            counters: ClientCounters::default(),
        }
    }

    /// Takes a datagram.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddrV4, datagram: &[u8]) {
        let Ok(packet) = Packet::parse(datagram, self.config.offers()) else {
            self.counters.malformed += 1;
            return;
        };
        let id = packet.header.id;
        if !self.calls.get(&id).is_some_and(|call| call.owns(from, &packet)) {
            return self.handle_stray(from, &packet);
        }
        match packet.header.kind {
            PacketType::Reply => self.handle_reply(now, from, &packet),
            PacketType::Ack => self.handle_ack(now, from, &packet),
            PacketType::Drop => self.handle_drop(&packet),
            PacketType::Request | PacketType::Feedback => self.counters.stray += 1,
        }
        self.arm(id);
    }

    /// Does what the time demands.
    pub fn handle_timeout(&mut self, now: Instant) {
        for _ in 0..PER_STEP_MAX {
            let Some((id, round)) = self.timers.due(now) else { break };
            let Some(call) = self.calls.get_mut(&id).filter(|call| call.identity.round == round) else {
                continue;
            };
            call.timer = None;
            if call.next_timeout() <= now {
                self.wake(now, id);
            }
            self.arm(id);
        }
    }

    /// Makes a call.
    ///
    /// # Errors
    /// [`Refused`] if it was not taken; nothing was sent.
    pub fn call(&mut self, now: Instant, new: NewCall) -> Result<CallName, Refused> {
        let limit = self.config.calls_max.min(1 << 15);
        if self.calls.len() >= limit {
            return Err(Refused::Calls { limit });
        }
        let extended = self.speaks_extended(new.target);
        let cut = crate::cut::Cut::request(extended);
        let (bytes, limit) = (new.body.len(), cut.bytes_max().min(self.config.message_bytes_max));
        if bytes > limit {
            return Err(Refused::TooLong { bytes, limit });
        }
        let (id, round) = self.next_id();
        let identity = Identity { epoch: self.epoch, round };
        let Some(call) = Call::new(now, &self.config, new, id, identity, extended) else {
            return Err(Refused::TooLong { bytes, limit });
        };
        let first = call.first(now, false);
        self.calls.insert(id, call);
        self.send_first(now, first);
        self.arm(id);
        Ok(CallName { id, round })
    }

    /// Gives a call up; nothing more is said of it. A server that shows the extended mode is told.
    pub fn cancel(&mut self, name: CallName) {
        if self.has(name) {
            self.tell_cancelled(name.id);
            self.end(name.id);
        }
    }

    /// Forgets what a target speaks: nobody calls it any more.
    pub fn forget_target(&mut self, target: SocketAddrV4) {
        self.extended.remove(&target);
    }

    /// Whether something waits to be sent.
    pub fn sends(&self) -> bool {
        !self.out.is_empty()
    }

    /// Requests that wait to be sent are as old as they are now: to be called just before they are sent, for a host
    /// that had no processor since they were made. By what a copy says too little a server takes it for younger than
    /// one that it may have forgotten.
    pub fn set_ages(&mut self, now: Instant) {
        if now.since_ns(self.aged) < AGED_NS {
            return;
        }
        self.aged = now;
        let Self { out, calls, .. } = self;
        out.retain_mut(|one| {
            let packet = Packet::parse(one.head.as_slice(), true).ok();
            let id = packet.as_ref().map(|packet| packet.header.id);
            let Some(Extension { identity, part: Part::Request(part) }) =
                packet.and_then(|packet| packet.extension)
            else {
                return true;
            };
            // Nobody waits for one whose call has ended.
            let call = id.and_then(|id| calls.get(&id)).filter(|call| call.identity == identity);
            call.map(|call| one.head = call.first(now, part.again).head).is_some()
        });
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    /// The next call that has ended.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// When to call [`Client::handle_timeout`].
    pub fn next_timeout(&mut self) -> Option<Instant> {
        self.timers.next_due()
    }

    /// Calls in flight.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Bytes held of replies of which a part is here.
    pub fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Calls in flight to one target. Looks at all of them: for operators.
    pub fn in_flight(&self, target: SocketAddrV4) -> usize {
        self.calls.values().filter(|call| call.target == target).count()
    }

    /// Whether this call is in flight.
    pub fn has(&self, name: CallName) -> bool {
        self.calls.get(&name.id).is_some_and(|call| call.identity.round == name.round)
    }

    /// Whether no call is in flight.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether calls to `target` speak the extended mode.
    pub fn speaks_extended(&self, target: SocketAddrV4) -> bool {
        match self.config.mode {
            Mode::Compatible => false,
            Mode::Offer => self.extended.contains(&target),
            Mode::Extended => true,
        }
    }

    /// What was of no use.
    pub fn counters(&self) -> ClientCounters {
        self.counters
    }

    fn handle_reply(&mut self, now: Instant, from: SocketAddrV4, packet: &Packet<'_>) {
        self.learn(packet);
        let Some(call) = self.calls.get_mut(&packet.header.id) else { return };
        let before = call.incoming.held_bytes();
        match call.incoming.handle(&packet.header, packet.payload, call.extended) {
            Ok(crate::incoming::Taken::New) => {}
            Ok(_) => self.counters.duplicates += 1,
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        }
        call.heard(now, from, &self.config);
        call.stage = Stage::Waiting;
        if let Some(Extension { part: Part::Reply(Some(trailer)), .. }) = packet.extension {
            call.trailer = Some(trailer);
        }
        let single = packet.header.flags.has(Flags::FIRST | Flags::LAST);
        if call.extended
            && !single
            && let Some(ack) = call.incoming.poll_ack(true)
        {
            self.out.push_back(call.aside(from, PacketType::Ack, Part::Ack(ack), ACK));
        }
        let limit = self.config.message_bytes_max;
        let is_too_long = call.incoming.bytes() > limit;
        let is_whole = call.incoming.is_complete() && !is_too_long;
        self.held.change(*from.ip(), before, if is_whole { 0 } else { call.incoming.held_bytes() });
        if is_too_long {
            self.give_up(packet.header.id, CallFailure::TooLong { limit });
        } else if is_whole {
            let (tag, body, trailer) = (call.tag, call.incoming.take(), call.trailer);
            self.events.push_back(ClientEvent::Replied { tag, server: from, body, trailer });
            self.end(packet.header.id);
        } else if let Some(full) = self.held.full(*from.ip(), 0) {
            self.give_up(packet.header.id, CallFailure::Full(full));
        }
    }

    fn handle_ack(&mut self, now: Instant, from: SocketAddrV4, packet: &Packet<'_>) {
        self.learn(packet);
        let id = packet.header.id;
        let Some(call) = self.calls.get_mut(&id) else { return };
        match packet.extension.map(|extension| extension.part) {
            None if packet.payload == ACK && call.stage == Stage::Asking && call.outgoing.count() > 1 => {
                call.heard(now, from, &self.config);
                call.stage = Stage::Waiting;
                for index in 1..call.outgoing.count() {
                    self.out.push_back(call.later(from, index));
                }
            }
            Some(Part::Ack(ack)) if !ack.of_reply => {
                call.heard(now, from, &self.config);
                if call.outgoing.handle_ack(now, &ack) {
                    call.stage = Stage::Waiting;
                } else if call.stage == Stage::Asking {
                    call.stage = Stage::Sending;
                }
                self.pump(now, id);
            }
            _ => self.counters.stray += 1,
        }
    }

    fn handle_drop(&mut self, packet: &Packet<'_>) {
        let failure = match packet.extension.map(|extension| extension.part) {
            Some(Part::Drop { reason, delay_us, .. }) => CallFailure::Dropped { reason, delay_us },
            _ => CallFailure::Dropped { reason: Reason::Unsaid, delay_us: 0 },
        };
        self.fail(packet.header.id, failure);
    }

    /// A datagram of no call. A server whose last ACK was lost sends its reply again: it is told to stop.
    fn handle_stray(&mut self, from: SocketAddrV4, packet: &Packet<'_>) {
        self.counters.stray += 1;
        let header = packet.header;
        let Some(extension) = packet.extension else { return };
        let single = header.flags.has(Flags::FIRST | Flags::LAST);
        // The id may be in use again, then under another round.
        let live = self.calls.get(&header.id).is_some_and(|call| call.identity == extension.identity);
        if header.kind != PacketType::Reply || single || live || extension.identity.epoch != self.epoch {
            return;
        }
        let done = crate::extension::AckPart { of_reply: true, done: true, next: 0, beyond: 0 };
        let flags = Flags(Flags::FIRST | Flags::LAST | Flags::OFFER | Flags::EXTENDED);
        let ack = Header { kind: PacketType::Ack, policy: Policy::Sticky, flags, id: header.id, order: 1 };
        let extension = Extension { identity: extension.identity, part: Part::Ack(done) };
        let head = Packet::head(&ack, Some(&extension));
        self.out.push_back(Transmit { to: from, head, body: Bytes::from_static(ACK) });
    }

    /// A peer that shows the bit understands the extended mode from the next call on.
    fn learn(&mut self, packet: &Packet<'_>) {
        if self.config.mode == Mode::Offer
            && packet.header.flags.has(Flags::OFFER)
            && let Some(call) = self.calls.get(&packet.header.id)
        {
            self.extended.insert(call.target);
        }
    }

    fn wake(&mut self, now: Instant, id: u16) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if call.deadline.has_passed(now) {
            return self.give_up(id, CallFailure::Deadline);
        }
        if call.stage == Stage::Sending {
            if call.outgoing.is_overdue(now) {
                let (unanswered, silent_ns) = call.outgoing.handle_timeout(now);
                if self.config.is_gone(unanswered, silent_ns) {
                    return self.lose(id);
                }
            }
            return self.pump(now, id);
        }
        if !call.asks(now, &self.config) {
            return;
        }
        let silent_ns = now.since_ns(call.silent_since);
        if self.config.is_gone(call.silent, silent_ns) || !call.extended {
            return self.lose(id);
        }
        if call.stage == Stage::Asking && self.config.is_suspect(call.silent, silent_ns) {
            self.extended.remove(&call.target);
        }
        call.silent += 1;
        self.counters.retransmitted += 1;
        let first = call.first(now, true);
        self.send_first(now, first);
    }

    fn send_first(&mut self, now: Instant, first: Transmit) {
        if self.out.is_empty() {
            self.aged = now;
        }
        self.out.push_back(first);
    }

    /// Sends what may be sent of a request.
    fn pump(&mut self, now: Instant, id: u16) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let (Stage::Sending, Some(server)) = (call.stage, call.server) else { return };
        while let Some(index) = call.outgoing.poll(now) {
            self.out.push_back(call.later(server, index));
        }
    }

    /// Ends a call whose server goes on with it unless it is told.
    fn give_up(&mut self, id: u16, failure: CallFailure) {
        self.tell_cancelled(id);
        self.fail(id, failure);
    }

    fn tell_cancelled(&mut self, id: u16) {
        if let Some(call) = self.calls.get(&id).filter(|call| call.extended) {
            // Before anybody has answered, whoever the request went to knows where it is.
            let to = call.server.unwrap_or(call.target);
            self.out.push_back(call.aside(to, PacketType::Drop, drop_part(Reason::Cancelled), DROP));
        }
    }

    /// Nobody answers: whoever that was may have been replaced by somebody who speaks less.
    fn lose(&mut self, id: u16) {
        if let Some(call) = self.calls.get(&id) {
            self.extended.remove(&call.target);
        }
        self.fail(id, CallFailure::Silent);
    }

    fn fail(&mut self, id: u16, failure: CallFailure) {
        if let Some(call) = self.calls.get(&id) {
            self.events.push_back(ClientEvent::Failed { tag: call.tag, failure });
        }
        self.end(id);
    }

    fn end(&mut self, id: u16) {
        let Some(call) = self.calls.remove(&id) else { return };
        self.held.change(call.peer(), call.incoming.held_bytes(), 0);
        if let Some((timer, _)) = call.timer {
            self.timers.cancel(timer);
        }
    }

    /// Books the call's next instant, if it is earlier than what is booked.
    pub(crate) fn arm(&mut self, id: u16) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let at = call.next_timeout();
        if let Some((timer, booked)) = call.timer {
            if booked <= at {
                return;
            }
            self.timers.cancel(timer);
        }
        call.timer = Some((self.timers.insert(at, (id, call.identity.round)), at));
    }

    /// The next id not in use, and how often ids have come round.
    fn next_id(&mut self) -> (u16, u16) {
        loop {
            let next = self.next;
            self.next = next.wrapping_add(1);
            if !self.calls.contains_key(&(next as u16)) {
                return (next as u16, (next >> 16) as u16);
            }
        }
    }
}
