//! The router: requests in, each to one worker, and the books that say which.

use crate::Transmit;
use crate::attention::Attention;
use crate::extension::{
    Extension, Identity, Part, Reason, RequestPart, write_client, write_lay, write_router,
};
use crate::greeting::Greetings;
use crate::lease::{Lease, Leases, Sent, State};
use crate::packet::Packet;
use crate::patience::Patience;
use crate::router_config::{OnBehalf, RouterConfig, RouterCounters};
use crate::served::RequestKey;
use crate::server::deadline_of;
use crate::wire::{DROP, Flags, Header, PacketType, Policy};
use crate::workers::Workers;
use bytes::Bytes;
use core::net::SocketAddrV4;
use std::collections::VecDeque;
use trunkline_call::{Deadline, Instant};
use trunkline_dispatch::{Class, Dispatch, Dispatcher, Refusal, Settings, Verdict, WorkerKey};

/// A router's whole state: soft, rebuilt from what workers say after a restart.
#[derive(Debug)]
pub struct Router {
    pub(crate) config: RouterConfig,
    pub(crate) dispatcher: Dispatcher<Held>,
    pub(crate) workers: Workers,
    pub(crate) leases: Leases,
    pub(crate) attention: Attention,
    pub(crate) patience: Patience,
    greetings: Greetings,
    forwards: VecDeque<Forward>,
    /// Datagrams that have gone, to be written into again.
    spare: Vec<Vec<u8>>,
    out: VecDeque<Transmit>,
    pub(crate) counters: RouterCounters,
}

/// A request to send on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Whose request it is.
    pub client: SocketAddrV4,
    /// The worker.
    pub to: SocketAddrV4,
    /// The datagram, with this router's address in its extension, or its client's.
    pub datagram: Vec<u8>,
    /// It says whose it is, and leaves from the control port. Else its source is to be the client's address, if the
    /// host may write that.
    pub on_behalf: bool,
    /// What it is to the request it is of.
    pub of: Sending,
}

/// What a datagram that is sent on is to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// No worker can have the request before this arrives: see [`Router::unsent`].
    Begins(RequestKey),
    /// A repetition of a request that went out at `since`, or later: its worker knows it by the address it came from
    /// then. See [`Router::moved`].
    Repeats {
        /// The request.
        key: RequestKey,
        /// When it can have gone out first.
        since: Instant,
    },
    /// The rest of it, or its end.
    Follows,
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Held {
    key: RequestKey,
    /// Its number among those that waited, if it waits; see [`Leases::waits`].
    number: u64,
    /// See [`Lease`].
    print: u64,
    deadline: Deadline,
    datagram: Vec<u8>,
}

/// Datagrams kept to be written into again: some turns' worth, as an allocator would keep them only for single ones.
const SPARE_MAX: usize = 256;
/// A worker is gone after as many looks of the router that found it silent.
const SILENT_STEPS: u64 = 5;

impl Router {
    /// A router that starts now and knows nothing yet but its configured workers.
    pub fn new(config: RouterConfig, now: Instant) -> Self {
        let settings = Settings {
            policy: config.policy,
            queue_max: config.queue_max,
            delay_ns_max: config.delay_ns_max,
            reservations: config.reservations.clone(),
            seed: config.seed,
            stocks_early: true,
        };
        let mut router = Self {
            dispatcher: Dispatcher::new(settings),
            workers: Workers::new(config.seed),
            leases: Leases::new(&config, now),
            attention: Attention::new(now, config.silent_ns_max / SILENT_STEPS),
            patience: Patience::new(config.delay_ns_max, config.lease_ns, now),
            greetings: Greetings::new(&config, now),
            forwards: VecDeque::new(),
            spare: Vec::new(),
            out: VecDeque::new(),
            counters: RouterCounters::default(),
            config,
        };
        for (address, slots) in router.config.workers.clone() {
            router.join(address, slots.into());
        }
        router
    }

    /// Takes a datagram of a client. It was there at `came`, or later: what lay in a socket since then, while the
    /// router had no processor, is as much older than it says.
    pub fn handle_request(&mut self, now: Instant, came: Instant, client: SocketAddrV4, datagram: &[u8]) {
        self.attention.attend(now);
        let came = came.min(now);
        let Ok(packet) = Packet::parse(datagram, self.config.extended) else {
            self.counters.malformed += 1;
            return;
        };
        let is_request = packet.header.kind == PacketType::Request && packet.header.flags.has(Flags::FIRST);
        // Clients speak for themselves, and from a port they can be answered at: none else can be sent on behalf.
        let is_client = client.port() != 0 && packet.on_behalf_of().is_none();
        if !is_client || !is_request && packet.header.kind != PacketType::Drop {
            self.counters.stray += 1;
            return;
        }
        let key = RequestKey {
            client,
            id: packet.header.id,
            identity: packet.extension.map(|extension| extension.identity),
        };
        if !is_request {
            return self.handle_cancelled(now, key, &packet, datagram);
        }
        let part = match packet.extension.map(|extension| extension.part) {
            Some(Part::Request(part)) => Some(part),
            _ => None,
        };
        let again = part.is_some_and(|part| part.again);
        // Ids come round: one that may be used again must not be taken for the request that had it before.
        self.leases.forget(came);
        let known = self.leases.find(&key);
        let another = known.filter(|known| !key.is_extended() && self.is_another(came, known, &packet));
        match (another.or(known).map(|lease| (lease.state, lease.worker)), another) {
            // Its client has given the other one up.
            (Some((State::Queued, _)), Some(_)) => self.admit(now, came, key, &packet, part, datagram),
            (Some((State::Out, _)), Some(lease)) => self.send_instead(now, key, lease, &packet, datagram),
            (Some((State::Out | State::Done, Some(worker))), _) if again => {
                self.counters.duplicates += 1;
                // Of what is over it is known no more when it went out: not before its client first sent it, and this
                // copy may have been on its way for as long as the network holds one.
                let out = known.filter(|lease| lease.state == State::Out).map(|lease| lease.since);
                let age_ns = part.map_or(0, |part| u64::from(part.age_us) * 1000) + self.config.lifetime_ns;
                let since = out.unwrap_or(Instant(came.0.saturating_sub(age_ns)));
                self.forward_again(
                    key,
                    worker,
                    datagram,
                    now.since_ns(came),
                    Sending::Repeats { key, since },
                );
            }
            (Some((State::Refused(reason), _)), _) if again => self.send_drop(key, reason, 0),
            (Some(_), _) => self.counters.duplicates += 1,
            (None, _) => self.admit(now, came, key, &packet, part, datagram),
        }
    }

    /// Does what the time demands.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.attention.attend(now);
        self.greetings.handle_timeout(now);
        self.expire_leases(now);
        self.look_at_workers(now);
        self.give_out(now);
    }

    /// For a host that sends on from addresses of its own, so that everything passes it: the worker a datagram of a
    /// client goes to that is no new request (the rest of one, ACK, DROP), as far as the request is known.
    pub fn worker_of(&self, client: SocketAddrV4, datagram: &[u8]) -> Option<SocketAddrV4> {
        let packet = Packet::parse(datagram, self.config.extended).ok()?;
        if packet.header.kind == PacketType::Request && packet.header.flags.has(Flags::FIRST) {
            return None;
        }
        let identity = packet.extension.map(|extension| extension.identity);
        self.leases.find(&RequestKey { client, id: packet.header.id, identity })?.worker
    }

    /// For the same host: whether a datagram that came to an address of a client's there is one to pass on to it: what
    /// workers say to clients, from where workers are.
    pub fn is_answer(&mut self, from: SocketAddrV4, datagram: &[u8]) -> bool {
        let kind = Packet::parse(datagram, self.config.extended).map(|packet| packet.header.kind);
        let is_said = matches!(kind, Ok(PacketType::Reply | PacketType::Ack | PacketType::Drop));
        let passes = is_said && self.is_at_worker(*from.ip());
        self.counters.stray += u64::from(!passes);
        passes
    }

    /// The next request to send on.
    pub fn poll_forward(&mut self) -> Option<Forward> {
        self.forwards.pop_front()
    }

    /// A request that [begins](Forward::begins) could not be sent on. Its place at the worker is free, and its client
    /// hears that the router is busy: nobody has it.
    pub fn unsent(&mut self, now: Instant, key: RequestKey) {
        let Some(lease) = self.leases.withdraw(&key) else { return };
        self.counters.unsent += 1;
        if let Some(worker) = lease.key.and_then(|key| self.workers.by_key(key)) {
            worker.out -= 1;
            self.dispatcher.release(worker.key);
        }
        self.refuse(now, key, Reason::Busy, 0);
    }

    /// A [repetition](Sending::Repeats) that would reach its worker from another address than the request did, whose
    /// worker would take it for a new one: it goes nowhere, and its client hears that the request may have been
    /// executed.
    pub fn moved(&mut self, key: RequestKey) {
        self.counters.moved += 1;
        self.send_drop(key, Reason::Forgotten, 0);
    }

    /// Takes back what has been sent on, so that the next request needs no memory of the allocator.
    pub fn take_back(&mut self, sent: impl Iterator<Item = Forward>) {
        let room = SPARE_MAX.saturating_sub(self.spare.len());
        self.spare.extend(sent.take(room).map(|forward| forward.datagram));
    }

    /// The next datagram to send in the router's own name.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_front()
    }

    /// The next datagram to send from the control port, to a worker.
    pub fn poll_greeting(&mut self) -> Option<Transmit> {
        self.greetings.poll()
    }

    /// When to call [`Router::handle_timeout`].
    pub fn next_timeout(&mut self) -> Option<Instant> {
        let attended = [self.leases.next_end(), self.workers.next_look()].into_iter().flatten().min();
        let attended = attended.map(|due| self.attention.real(due));
        let greeting = self.greetings.next_timeout();
        [self.dispatcher.next_timeout(), attended, greeting].into_iter().flatten().min()
    }

    /// A client nobody has answered yet gives up: told to the worker that has its request. One that waits goes to none.
    fn handle_cancelled(&mut self, now: Instant, key: RequestKey, packet: &Packet<'_>, datagram: &[u8]) {
        let part = packet.extension.map(|extension| extension.part);
        let is_given_up = matches!(part, Some(Part::Drop { reason: Reason::Cancelled, .. }));
        match self.leases.find(&key) {
            Some(Lease { worker: Some(to), .. }) => {
                let on_behalf = self.workers.takes_on_behalf(to);
                self.send_on(key, to, on_behalf, datagram.to_vec(), Sending::Follows);
            }
            Some(Lease { state: State::Queued, waiting: Some(waiting), .. }) if is_given_up => {
                self.dispatcher.withdraw(waiting);
                self.leases.remove(&key);
                self.leases.refuse(now, &key, Reason::Cancelled);
                self.counters.dropped[Reason::Cancelled as usize] += 1;
            }
            _ => self.counters.stray += 1,
        }
    }

    /// A request nobody knows here.
    fn admit(
        &mut self,
        now: Instant,
        came: Instant,
        key: RequestKey,
        packet: &Packet<'_>,
        part: Option<RequestPart>,
        datagram: &[u8],
    ) {
        let age_ns = part.map_or(0, |part| u64::from(part.age_us) * 1000);
        if self.leases.may_have_forgotten(now, came, age_ns) {
            // A first copy is repeated, and then its sender is told.
            return match part.filter(|part| part.again) {
                Some(_) => self.send_drop(key, Reason::Forgotten, 0),
                None => self.counters.unsure += 1,
            };
        }
        let extended = self.workers.are_all_extended();
        // Before the first worker has been heard of, a request waits for it.
        if key.is_extended() && !extended && !self.workers.is_empty() {
            return self.refuse(now, key, Reason::NoWorker, 0);
        }
        if self.leases.is_full() {
            return self.refuse(now, key, Reason::Busy, 0);
        }
        let deadline = part.map_or(Deadline::NONE, |part| deadline_of(came, &part));
        if deadline.has_passed(now) {
            return self.refuse(now, key, Reason::Deadline, 0);
        }
        let (number, print) = (self.leases.next_waiting(), print_of(packet));
        let datagram = self.stamped(datagram, key.is_extended(), extended);
        let held = Held { key, number, print, deadline, datagram };
        let class = Class::new(part.map_or(0, |part| part.class));
        let sticky = (packet.header.policy == Policy::Sticky).then(|| hash_of(key.client));
        self.counters.requests += 1;
        // By host: a port is easily had.
        let source = || u64::from(u32::from(*key.client.ip()));
        match self.dispatcher.submit_of(now, class, sticky, held, source) {
            Verdict::To(worker, held) => self.forward(now, worker, held, 0),
            Verdict::Waits(waiting) => self.leases.queue(now, key, print, waiting),
            Verdict::Refused(_, Refusal::QueueFull) => self.refuse(now, key, Reason::QueueFull, 0),
            Verdict::Refused(_, Refusal::NoWorker) => self.refuse(now, key, Reason::NoWorker, 0),
        }
    }

    /// What waits and may go, goes.
    pub(crate) fn give_out(&mut self, now: Instant) {
        while let Some(dispatch) = self.dispatcher.poll(now) {
            match dispatch {
                Dispatch::To { worker, item, .. } if !self.leases.waits(&item.key, item.number) => {
                    self.dispatcher.release(worker);
                }
                Dispatch::Expired { item, .. } if !self.leases.waits(&item.key, item.number) => {}
                Dispatch::To { worker, item, waited_ns } if item.deadline.has_passed(now) => {
                    self.dispatcher.release(worker);
                    self.forget_queued(now, item.key, Reason::Deadline, waited_ns);
                }
                Dispatch::To { worker, item, waited_ns }
                    if !item.key.is_extended() && !self.patience.lasts(now, waited_ns) =>
                {
                    self.dispatcher.release(worker);
                    self.forget_queued(now, item.key, Reason::QueueDelay, waited_ns);
                }
                Dispatch::To { worker, item, waited_ns } => {
                    self.counters.note_wait(waited_ns);
                    self.forward(now, worker, item, waited_ns);
                }
                Dispatch::Expired { item, waited_ns } => {
                    self.forget_queued(now, item.key, Reason::QueueDelay, waited_ns);
                }
            }
        }
    }

    fn forward(&mut self, now: Instant, worker: WorkerKey, held: Held, waited_ns: u64) {
        let Some(found) = self.workers.by_key(worker) else { return };
        let (to, takes_on_behalf) = (found.address, found.takes_on_behalf);
        if self.config.on_behalf == OnBehalf::Only && !(takes_on_behalf && held.key.is_extended()) {
            self.dispatcher.release(worker);
            return self.forget_queued(now, held.key, Reason::NoWorker, 0);
        }
        found.out += 1;
        self.counters.forwarded += 1;
        let (key, print, worker) = (held.key, held.print, (worker, to));
        let lease_ns = self.lease_ns(now, &key);
        self.leases.send_out(now, self.attention.now(), Sent { key, print, worker, waited_ns, lease_ns });
        self.send_on(key, to, takes_on_behalf, held.datagram, Sending::Begins(key));
    }

    /// Extended requests say their deadlines, and their FEEDBACK counts what it does not name.
    fn lease_ns(&mut self, now: Instant, key: &RequestKey) -> u64 {
        if key.is_extended() { self.config.lease_ns } else { self.patience.lease_ns(now) }
    }

    fn is_another(&self, came: Instant, known: &Lease, packet: &Packet<'_>) -> bool {
        self.leases.is_another(came, known, print_of(packet))
    }

    /// Another request has the name of one that is out. It takes that one's place at its worker, which alone can tell
    /// whether it works on the first: two workers with one name would answer the client twice.
    fn send_instead(
        &mut self,
        now: Instant,
        key: RequestKey,
        lease: Lease,
        packet: &Packet<'_>,
        datagram: &[u8],
    ) {
        let (Some(worker), Some(to)) = (lease.key, lease.worker) else { return };
        self.leases.end(now, key, None);
        let (print, lease_ns) = (print_of(packet), self.lease_ns(now, &key));
        let sent = Sent { key, print, worker: (worker, to), waited_ns: 0, lease_ns };
        self.leases.send_out(now, self.attention.now(), sent);
        self.forward_again(key, to, datagram, 0, Sending::Begins(key));
    }

    /// A repetition goes where the request went, and takes no further place there. It is older now than when it was
    /// sent: its worker may be another process since, which must not take it for a new one. (What goes to a worker for
    /// the first time says how old it was: nobody else has had it, however long it waited here.)
    fn forward_again(
        &mut self,
        key: RequestKey,
        to: SocketAddrV4,
        datagram: &[u8],
        lay_ns: u64,
        of: Sending,
    ) {
        let mut datagram = self.stamped(datagram, key.is_extended(), self.workers.are_all_extended());
        if key.is_extended() {
            write_lay(&mut datagram, lay_ns);
        }
        self.send_on(key, to, self.workers.takes_on_behalf(to), datagram, of);
    }

    /// In whose name: the worker sees the same client either way.
    fn send_on(
        &mut self,
        key: RequestKey,
        to: SocketAddrV4,
        worker_takes_on_behalf: bool,
        mut datagram: Vec<u8>,
        of: Sending,
    ) {
        let on_behalf = key.is_extended() && worker_takes_on_behalf;
        if on_behalf {
            write_client(&mut datagram, key.client);
            self.counters.on_behalf += 1;
        } else if self.config.on_behalf == OnBehalf::Only {
            // What the worker took so once and takes no more.
            return;
        }
        self.forwards.push_back(Forward { client: key.client, to, datagram, on_behalf, of });
    }

    /// The datagram as it goes on: an extended one says where FEEDBACK goes; a compatible one offers the extended mode
    /// only if every worker speaks it, so that no client comes to rely on it by meeting one that does.
    fn stamped(&mut self, bytes: &[u8], is_extended: bool, offer: bool) -> Vec<u8> {
        let mut datagram = self.spare.pop().unwrap_or_default();
        datagram.clear();
        datagram.extend_from_slice(bytes);
        if is_extended {
            write_router(&mut datagram, self.config.control);
        } else if !offer {
            datagram[Header::FLAGS_AT] &= !Flags::OFFER;
        }
        datagram
    }

    fn forget_queued(&mut self, now: Instant, key: RequestKey, reason: Reason, waited_ns: u64) {
        self.leases.remove(&key);
        self.refuse(now, key, reason, (waited_ns / 1000).min(u32::MAX.into()) as u32);
    }

    /// Tells the client that its request goes nowhere. A copy of it may lie in the socket, or be on its way until the
    /// client hears that; it must not go to a worker.
    fn refuse(&mut self, now: Instant, key: RequestKey, reason: Reason, delay_us: u32) {
        self.leases.refuse(now, &key, reason);
        self.send_drop(key, reason, delay_us);
    }

    fn send_drop(&mut self, key: RequestKey, reason: Reason, delay_us: u32) {
        self.counters.dropped[reason as usize] += 1;
        let mut flags = Flags::FIRST | Flags::LAST;
        let extension = key.identity.map(|identity: Identity| {
            flags |= Flags::OFFER | Flags::EXTENDED;
            Extension { identity, part: Part::Drop { reason, delay_us, client: None } }
        });
        let header = Header {
            kind: PacketType::Drop,
            policy: Policy::Sticky,
            flags: Flags(flags),
            id: key.id,
            order: 1,
        };
        let head = Packet::head(&header, extension.as_ref());
        self.out.push_back(Transmit { to: key.client, head, body: Bytes::from_static(DROP) });
    }
}

/// Tells a long compatible request from another of its name. Others are hashed by nobody: they are delivered whole.
fn print_of(packet: &Packet<'_>) -> u64 {
    if packet.extension.is_some() || packet.header.flags.has(Flags::LAST) {
        return 0;
    }
    let mixed = |hash: u64, byte: &u8| crate::mix(hash ^ u64::from(*byte));
    packet.payload.iter().take(crate::FIRST_BYTES).fold(packet.header.order.into(), mixed)
}

/// What sticky requests are told apart by.
fn hash_of(client: SocketAddrV4) -> u64 {
    crate::mix(u64::from(u32::from(*client.ip())) << 16 | u64::from(client.port()))
}
