//! The server: takes requests, each at most once, and sends replies.

use crate::Transmit;
use crate::config::Config;
use crate::extension::{AckPart, Part, Reason, RequestPart};
use crate::feedback::RouterAccounts;
use crate::headway::Headway;
use crate::incoming::{Incoming, Taken};
use crate::memory::Memory;
use crate::packet::Packet;
use crate::peer_bytes::PeerBytes;
use crate::served::{RequestKey, Served, Stage};
use crate::wire::{ACK, DROP, Flags, PacketType};
use core::net::SocketAddrV4;
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::{Deadline, Instant, KeyedMap, TimerTable};

/// Requests looked at, or forgotten, in one go. What is left is due at once, after others had their turn.
const PER_STEP_MAX: usize = 256;

/// The server's end of one UDP port.
#[derive(Debug)]
pub struct Server {
    pub(crate) config: Arc<Config>,
    pub(crate) requests: KeyedMap<RequestKey, Served>,
    /// Ended requests in the order of their end.
    pub(crate) memory: Memory,
    pub(crate) timers: TimerTable<RequestKey>,
    pub(crate) out: VecDeque<Transmit>,
    events: VecDeque<ServerEvent>,
    pub(crate) live: usize,
    /// For requests of which a part is here, and for replies of several packets.
    pub(crate) held: PeerBytes,
    pub(crate) accounts: RouterAccounts,
    pub(crate) counters: ServerCounters,
}

/// What a server is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A request, whole. It is answered by [`Server::reply`] or [`Server::refuse`], once.
    Request(Request),
    /// Nobody waits for the reply any more. It is to be answered all the same.
    Cancelled {
        /// Which.
        key: RequestKey,
    },
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub key: RequestKey,
    /// Its class.
    pub class: u8,
    /// When the client gives up.
    pub deadline: Deadline,
    /// What it says.
    pub body: Vec<u8>,
}

/// What came and was of no use, what was sent again, what was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Datagrams that are none of ours.
    pub malformed: u64,
    /// Datagrams of requests nobody knows.
    pub stray: u64,
    /// Requests and packets that had come before.
    pub duplicates: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests whose rest did not come.
    pub abandoned: u64,
}

impl Server {
    /// A server that starts now.
    pub fn new(config: Arc<Config>, now: Instant) -> Self {
        Self {
            memory: Memory::new(&config, now),
            accounts: RouterAccounts::new(&config, now),
            requests: KeyedMap::default(),
            timers: TimerTable::new(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            live: 0,
            held: PeerBytes::new(&config),
            counters: ServerCounters::default(),
            config,
        }
    }

    /// Takes a datagram. It was there at `came`, or later: what lay in a socket since then, while the host had no
    /// processor, is as much older than it says.
    pub fn handle_datagram(&mut self, now: Instant, came: Instant, from: SocketAddrV4, datagram: &[u8]) {
        let came = came.min(now);
        let Ok(packet) = Packet::parse(datagram, self.config.offers()) else {
            self.counters.malformed += 1;
            return;
        };
        let client = match packet.on_behalf_of() {
            None => from,
            Some(client) if self.config.routers.contains(&from) => client,
            // Nobody but a router speaks for others.
            Some(_) => {
                self.counters.stray += 1;
                return;
            }
        };
        self.forget(came);
        while let Some(key) = self.memory.poll_expired_compatible(came) {
            self.requests.remove(&key);
        }
        if packet.is_greeting() && self.config.routers.contains(&from) {
            return self.accounts.shown(now, from);
        }
        let identity = packet.extension.map(|extension| extension.identity);
        let key = RequestKey { client, id: packet.header.id, identity };
        match packet.header.kind {
            PacketType::Request if self.begins_anew(came, &key, &packet) => {
                self.replace(key);
                self.handle_new(now, came, from, key, &packet);
            }
            PacketType::Request if self.requests.contains_key(&key) => self.handle_known(now, key, &packet),
            PacketType::Request if packet.header.flags.has(Flags::FIRST) => {
                self.handle_new(now, came, from, key, &packet)
            }
            PacketType::Request => self.handle_unknown(key),
            PacketType::Ack => self.handle_ack(now, key, &packet),
            PacketType::Drop => self.handle_cancelled(now, key, &packet),
            PacketType::Reply | PacketType::Feedback => self.counters.stray += 1,
        }
        self.arm(key);
    }

    /// Does what the time demands.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.forget(now);
        while let Some(key) = self.memory.poll_late_compatible(now) {
            self.requests.remove(&key);
        }
        self.accounts.beat(now, &self.config, &mut self.out);
        for _ in 0..PER_STEP_MAX {
            let Some(key) = self.timers.due(now) else { break };
            let Some(request) = self.requests.get_mut(&key) else { continue };
            request.timer = None;
            if request.next_timeout(&self.config).is_some_and(|at| at <= now) {
                self.wake(now, key);
            }
            self.arm(key);
        }
    }

    /// Takes no more requests from routers; those here go on.
    pub fn leave(&mut self, now: Instant) {
        self.accounts.leave(now);
        self.accounts.beat(now, &self.config, &mut self.out);
    }

    /// The next thing to be told.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    /// When to call [`Server::handle_timeout`].
    pub fn next_timeout(&mut self) -> Option<Instant> {
        let timers = [self.timers.next_due(), self.accounts.next_beat(), self.memory.next_expiry()];
        timers.into_iter().flatten().min()
    }

    /// Requests received in part, in work, or whose reply is under way.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether nothing is in work.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Bytes held for clients: requests of which a part is here, and replies of several packets that have not arrived.
    pub fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Bytes held of requests that have ended, so that their repetitions are known: replies of one packet among them.
    pub fn remembered_bytes(&self) -> usize {
        self.memory.held_bytes()
    }

    /// Whether the owner has this request, and has not answered it.
    pub fn is_executing(&self, key: RequestKey) -> bool {
        self.requests.get(&key).is_some_and(|request| matches!(request.stage, Stage::Executing { .. }))
    }

    /// The requests its owner has and has not answered.
    pub fn executing(&self) -> Vec<RequestKey> {
        self.requests.keys().copied().filter(|key| self.is_executing(*key)).collect()
    }

    /// What was of no use.
    pub fn counters(&self) -> ServerCounters {
        self.counters
    }

    /// A request is done with: counted, and its router told.
    pub(crate) fn finish(&mut self, key: RequestKey) {
        let Some(request) = self.requests.get(&key) else { return };
        self.accounts.served(request.router);
        self.send_feedback(key);
    }

    /// Tells the router of a request how it stands, again if need be.
    fn send_feedback(&mut self, key: RequestKey) {
        let Some(request) = self.requests.get(&key) else { return };
        self.accounts.tell(&self.config, key, request.router, request.timing, &mut self.out);
    }

    fn handle_new(
        &mut self,
        now: Instant,
        came: Instant,
        from: SocketAddrV4,
        key: RequestKey,
        packet: &Packet<'_>,
    ) {
        let part = match packet.extension.map(|extension| extension.part) {
            Some(Part::Request(part)) => Some(part),
            _ => None,
        };
        let is_unsure = part.map_or_else(
            || self.memory.may_have_forgotten_compatible(now, came),
            |part| self.memory.may_have_forgotten(now, came, u64::from(part.age_us) * 1000),
        );
        if is_unsure {
            // A first copy will be repeated, and then told; what nobody repeats is told at once.
            return if part.is_none_or(|part| part.again) {
                self.drop_unknown(key, Reason::Forgotten);
            } else {
                self.counters.stray += 1;
            };
        }
        let router = packet.on_behalf_of().map(|_| from).or(part.and_then(|part| part.router));
        let router = router.filter(|router| self.config.routers.contains(router));
        self.accounts.taken(now, router);
        let (class, deadline) =
            part.map_or((0, Deadline::NONE), |part| (part.class, deadline_of(came, &part)));
        if let Some(reason) = self.reason_to_refuse(now, key, packet, deadline) {
            self.counters.refused += 1;
            let served = Served::new(Stage::Abandoned, packet.header.flags.has(Flags::OFFER), router);
            self.requests.insert(key, served);
            self.send_drop(key, reason);
            return self.conclude(now, key, Stage::Abandoned);
        }
        let offers = packet.header.flags.has(Flags::OFFER) && self.config.offers();
        self.live += 1;
        let mut incoming = Incoming::default();
        if incoming.handle(&packet.header, packet.payload, key.is_extended()).is_err() {
            unreachable!("a first packet contradicts nothing");
        }
        if incoming.is_complete() {
            let served = Served::new(Stage::Executing { cancelled: false }, offers, router);
            self.requests.insert(key, Served { deadline, ..served });
            let body = incoming.take();
            self.events.push_back(ServerEvent::Request(Request { key, class, deadline, body }));
            return;
        }
        self.held.change(*key.client.ip(), 0, incoming.held_bytes());
        let ack = incoming.ack(false);
        let served =
            Served::new(Stage::Receiving { incoming: Box::new(incoming), last: now }, offers, router);
        self.requests.insert(key, Served { class, deadline, headway: Headway::since(now), ..served });
        self.send_ack(key, ack);
    }

    fn reason_to_refuse(
        &self,
        now: Instant,
        key: RequestKey,
        packet: &Packet<'_>,
        deadline: Deadline,
    ) -> Option<Reason> {
        let bytes = (usize::from(packet.header.order) - 1) * (crate::PAYLOAD_BYTES_MAX - 8);
        if bytes > self.config.message_bytes_max {
            return Some(Reason::TooLong);
        }
        let several = packet.header.order > 1;
        if self.live >= self.config.calls_max
            || several && self.held.full(*key.client.ip(), packet.payload.len()).is_some()
        {
            return Some(Reason::Busy);
        }
        deadline.has_passed(now).then_some(Reason::Deadline)
    }

    /// Whether a compatible client has given up a request a part of which is here, and uses its name for another.
    /// Nobody repeats compatible datagrams: only one that comes while the network may hold the first can be the
    /// same once more.
    fn begins_anew(&self, came: Instant, key: &RequestKey, packet: &Packet<'_>) -> bool {
        if key.is_extended() || !packet.header.flags.has(Flags::FIRST) {
            return false;
        }
        let Some(Stage::Receiving { incoming, last }) = self.requests.get(key).map(|request| &request.stage)
        else {
            return false;
        };
        came.since_ns(*last) > self.config.lifetime_ns
            || !incoming.begins_with(&packet.header, packet.payload)
    }

    /// Makes room for another request of this name. Routers hear of the end of the one that was here.
    fn replace(&mut self, key: RequestKey) {
        self.finish(key);
        let Some(request) = self.requests.remove(&key) else { return };
        if let Some((timer, _)) = request.timer {
            self.timers.cancel(timer);
        }
        if let Stage::Receiving { incoming, .. } = request.stage {
            self.held.change(*key.client.ip(), incoming.held_bytes(), 0);
            self.live -= 1;
            self.counters.abandoned += 1;
        }
    }

    /// A packet of a request that is known: a further one of it, or one that came before.
    fn handle_known(&mut self, now: Instant, key: RequestKey, packet: &Packet<'_>) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        match &mut request.stage {
            Stage::Receiving { .. } => return self.receive(now, key, packet),
            Stage::Executing { .. } if key.is_extended() => self.send_ack(key, all_here()),
            Stage::Replying { .. } if key.is_extended() && !packet.header.flags.has(Flags::FIRST) => {
                self.send_ack(key, all_here());
            }
            Stage::Kept => {
                self.counters.retransmitted += 1;
                self.send_reply_packet(key, 0, 1);
                self.send_feedback(key);
            }
            Stage::Served if key.is_extended() => {
                self.send_drop(key, Reason::Served);
                self.send_feedback(key);
            }
            Stage::Abandoned if key.is_extended() => {
                self.send_drop(key, Reason::Partial);
                self.send_feedback(key);
            }
            Stage::Executing { .. } | Stage::Replying { .. } | Stage::Served | Stage::Abandoned => {}
        }
        self.counters.duplicates += 1;
    }

    /// A packet of a request of several.
    fn receive(&mut self, now: Instant, key: RequestKey, packet: &Packet<'_>) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        let (class, deadline) = (request.class, request.deadline);
        let Stage::Receiving { incoming, last } = &mut request.stage else { return };
        let before = incoming.held_bytes();
        match incoming.handle(&packet.header, packet.payload, key.is_extended()) {
            Ok(Taken::New) => *last = now,
            Ok(Taken::Duplicate) => self.counters.duplicates += 1,
            Ok(Taken::Beyond) => {}
            Err(_) => self.counters.malformed += 1,
        }
        let ack = if key.is_extended() { incoming.poll_ack(false) } else { None };
        let peer = *key.client.ip();
        if incoming.is_complete() {
            self.held.change(peer, before, 0);
            let body = incoming.take();
            request.stage = Stage::Executing { cancelled: false };
            self.events.push_back(ServerEvent::Request(Request { key, class, deadline, body }));
        } else {
            self.held.change(peer, before, incoming.held_bytes());
            if self.held.full(peer, 0).is_some() {
                self.counters.refused += 1;
                self.send_drop(key, Reason::Busy);
                return self.abandon(now, key);
            }
        }
        if let Some(ack) = ack {
            self.send_ack(key, ack);
        }
    }

    /// A later packet of a request nobody here has heard of: whoever had it is gone.
    fn handle_unknown(&mut self, key: RequestKey) {
        self.counters.stray += 1;
        if key.is_extended() {
            self.drop_unknown(key, Reason::Forgotten);
        }
    }

    /// What has arrived of a reply.
    fn handle_ack(&mut self, now: Instant, key: RequestKey, packet: &Packet<'_>) {
        let Some(Part::Ack(ack)) = packet.extension.map(|extension| extension.part) else {
            self.counters.stray += 1;
            return;
        };
        let Some(Served { stage: Stage::Replying { outgoing }, .. }) = self.requests.get_mut(&key) else {
            return;
        };
        if !ack.of_reply {
            self.counters.stray += 1;
        } else if outgoing.handle_ack(now, &ack) {
            self.live -= 1;
            self.conclude(now, key, Stage::Served);
        } else {
            self.pump(now, key);
        }
    }

    /// The client says that nobody waits.
    fn handle_cancelled(&mut self, now: Instant, key: RequestKey, packet: &Packet<'_>) {
        let cancels = matches!(
            packet.extension.map(|extension| extension.part),
            Some(Part::Drop { reason: Reason::Cancelled, .. })
        );
        let Some(request) = self.requests.get_mut(&key).filter(|_| cancels) else {
            self.counters.stray += 1;
            return;
        };
        match &mut request.stage {
            Stage::Receiving { .. } => self.abandon(now, key),
            Stage::Executing { cancelled } if !*cancelled => {
                *cancelled = true;
                self.events.push_back(ServerEvent::Cancelled { key });
            }
            Stage::Replying { .. } => {
                self.live -= 1;
                self.conclude(now, key, Stage::Served);
            }
            Stage::Executing { .. } | Stage::Kept | Stage::Served | Stage::Abandoned => {}
        }
    }

    fn wake(&mut self, now: Instant, key: RequestKey) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        let (is_late, stall_ns) = (request.deadline.has_passed(now), self.config.stall_ns);
        match &mut request.stage {
            Stage::Receiving { incoming, last } => {
                let is_silent = now.since_ns(*last) >= self.config.partial_ns_max;
                let is_stalled = request.headway.is_stalled(now, incoming.packets(), stall_ns);
                if is_late || is_silent || is_stalled {
                    self.send_drop(key, if is_late { Reason::Deadline } else { Reason::Partial });
                    self.abandon(now, key);
                }
            }
            Stage::Replying { .. } if is_late => {
                self.live -= 1;
                self.conclude(now, key, Stage::Served);
            }
            Stage::Replying { outgoing } => {
                if request.headway.is_stalled(now, outgoing.packets(), stall_ns) {
                    self.live -= 1;
                    self.send_drop(key, Reason::Served);
                    return self.conclude(now, key, Stage::Served);
                }
                if outgoing.is_overdue(now) {
                    let (unanswered, silent_ns) = outgoing.handle_timeout(now);
                    if self.config.is_gone(unanswered, silent_ns) {
                        self.live -= 1;
                        return self.conclude(now, key, Stage::Served);
                    }
                }
                self.pump(now, key);
            }
            Stage::Executing { .. } | Stage::Kept | Stage::Served | Stage::Abandoned => {}
        }
    }

    /// The rest does not come any more.
    fn abandon(&mut self, now: Instant, key: RequestKey) {
        if let Some(Served { stage: Stage::Receiving { incoming, .. }, .. }) = self.requests.get(&key) {
            self.held.change(*key.client.ip(), incoming.held_bytes(), 0);
            self.live -= 1;
            self.counters.abandoned += 1;
            self.conclude(now, key, Stage::Abandoned);
        }
    }

    /// Forgets what nobody can ask about any more: some of it, if it is very much.
    fn forget(&mut self, now: Instant) {
        for _ in 0..PER_STEP_MAX {
            let Some(key) = self.memory.poll_expired(now) else { break };
            self.requests.remove(&key);
        }
    }

    pub(crate) fn arm(&mut self, key: RequestKey) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        let Some(at) = request.next_timeout(&self.config) else {
            if let Some((timer, _)) = request.timer.take() {
                self.timers.cancel(timer);
            }
            return;
        };
        if let Some((timer, booked)) = request.timer {
            if booked <= at {
                return;
            }
            self.timers.cancel(timer);
        }
        request.timer = Some((self.timers.insert(at, key), at));
    }

    fn send_ack(&mut self, key: RequestKey, ack: AckPart) {
        self.send_aside(key, PacketType::Ack, Part::Ack(ack), ACK);
    }

    pub(crate) fn send_drop(&mut self, key: RequestKey, reason: Reason) {
        self.send_aside(key, PacketType::Drop, Part::Drop { reason, delay_us: 0, client: None }, DROP);
    }

    fn drop_unknown(&mut self, key: RequestKey, reason: Reason) {
        self.counters.refused += 1;
        self.send_drop(key, reason);
    }
}

/// All packets of the request are here: stop sending it.
fn all_here() -> AckPart {
    AckPart { of_reply: false, done: true, next: 0, beyond: 0 }
}

/// When the client of a request gives up that came then.
pub(crate) fn deadline_of(came: Instant, part: &RequestPart) -> Deadline {
    match part.budget_us {
        u32::MAX => Deadline::NONE,
        budget_us => Deadline::at(came.plus_ns(u64::from(budget_us) * 1000)),
    }
}
