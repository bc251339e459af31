//! Several workers under one service: a call goes to one that is free, or waits here until one is.
//!
//! A worker is a session that serves the service: a thread of a server, or a process. What was put into its ring it
//! keeps, so a call given to a busy worker waits there although another may be free a moment later. Therefore each has
//! a bounded number of calls in hand, and the rest wait in one queue (JBSQ(n), `core/dispatch`), whose n is measured: 1
//! where calls take milliseconds, more where a call is over before word of it is here.
//!
//! That is right for handlers that work and wrong for those that wait: a thread that awaits something takes other
//! calls meanwhile. So a worker whose thread is seen to rest (its ring is empty, and armed) gives its places back
//! ([`Engine::worker_rests`]; the host looks while calls wait), and methods whose handlers were mostly seen to wait
//! are not bounded: their calls go to the workers in turn.
//!
//! A call may have a class, for which a policy keeps workers, or be sticky: then it goes to the worker that gets all
//! such calls of its caller, whoever else is free. Its metadata says so, or a policy.
//!
//! Not bounded either are services with one worker, methods that stream or of which only applications know the types,
//! and large requests of native peers, which have found their server before they are complete.

use crate::call::{Body, ClientEnd, Item};
use crate::engine::{Engine, Turn};
use crate::registry::{MethodKey, Server, service_of};
use crate::session::Target;
use crate::{CallKey, SessionKey};
use trunkline_balance::key_of;
use trunkline_call::{Fault, Instant, KeyedMap, Pattern, WorkerChoice};
use trunkline_dispatch::{Class, Dispatch, Dispatcher, Reservation, Settings, Verdict, WorkerKey};

/// Every service whose calls have been given out so.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    by_service: KeyedMap<Box<str>, usize>,
    services: Vec<Service>,
}

#[derive(Debug)]
struct Service {
    dispatcher: Dispatcher<CallKey>,
    members: Vec<Member>,
    /// The registry's version the members are of.
    version: u64,
    /// Bytes of waiting calls that the daemon holds itself.
    queued_bytes: usize,
    waits: KeyedMap<MethodKey, Tendency>,
    /// Something may be given out.
    stirred: bool,
    /// Some workers are kept for a class: calls of the others take places at the others, whatever their methods do.
    keeps_workers: bool,
}

#[derive(Debug)]
struct Member {
    session: SessionKey,
    worker: WorkerKey,
    /// Calls that take its places.
    in_hand: Vec<CallKey>,
}

/// Whether handlers of a method wait rather than work.
#[derive(Clone, Copy, Debug, Default)]
struct Tendency {
    /// Up with every call seen to wait, down with every one that was not.
    seen: u8,
    unbounded: u32,
}

/// A call's place at a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    service: usize,
    pub session: SessionKey,
    /// Nothing else was in hand there: its times are those of the way and of the work.
    alone: bool,
}

/// A call in the queue.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Queued {
    /// Whose queue; `None` if it was one of the engine before this one, until the call begins again.
    #[serde(skip)]
    service: Option<usize>,
    pub(crate) target: Target,
    bytes: usize,
}

/// Where a call goes.
enum Way {
    /// To the session it has a place at, or wherever there is no bound.
    On,
    Waits(Queued),
    Full(Fault),
}

/// No call waits so long; its deadline, if any, comes first.
const DELAY_NS_MAX: u64 = 24 * 3600 * 1_000_000_000;
/// Within one host word travels no longer than it takes to wake a core. What is measured beyond that is the machine
/// being busy with something else, and calls in stock at a worker would not make it faster.
const TRAVEL_NS_MAX: u64 = 50_000;
/// At this a method counts as one whose handlers wait.
const WAITS_AT: u8 = 8;
/// Where the counting ends, so that a change is noticed soon.
const WAITS_MAX: u8 = 16;
/// One in so many calls of such a method is bounded all the same, to see whether it still waits.
const WAITS_PROBE: u32 = 64;

impl Engine {
    // LIFE: 4 | served by workers of this host: one that is free, or the queue in front of them | the worker |
    /// Gives a call that begins a place at a worker, or a place in the queue; the opening comes back if it goes on now.
    pub(crate) fn find_place<'a>(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        target: Target,
        opening: Item<'a>,
    ) -> Option<Item<'a>> {
        match self.way_to_worker(turn.now, key, target, &opening) {
            Way::On => Some(opening),
            Way::Full(fault) => {
                self.drop_item(opening);
                self.fail(turn, key, fault);
                None
            }
            Way::Waits(queued) => {
                self.wait_for_worker(turn, key, queued, opening);
                None
            }
        }
    }

    /// The handler is through with a call: its place is free, and what it took is measured.
    pub(crate) fn leave_worker(&mut self, now: Instant, key: CallKey) {
        let Some(call) = self.calls.find(key) else { return };
        let Some(place) = call.place else { return };
        let stamps = call.server_stamps;
        let service_ns = stamps.a11.since_ns(stamps.a10);
        let travel_ns = now.since_ns(stamps.d9).saturating_sub(service_ns);
        let method = call.method;
        self.give_place_back(key);
        let service = &mut self.workers.services[place.service];
        if place.alone && stamps_are_there(stamps.a10, stamps.a11) {
            service.dispatcher.note(travel_ns.min(TRAVEL_NS_MAX), service_ns);
        }
        if let Some(tendency) = service.waits.get_mut(&method) {
            tendency.seen = tendency.seen.saturating_sub(1);
        }
    }

    /// A call takes no place at its worker any more, for whatever reason.
    pub(crate) fn give_place_back(&mut self, key: CallKey) {
        let Some(place) = self.calls.find_mut(key).and_then(|call| call.place.take()) else { return };
        let service = &mut self.workers.services[place.service];
        let Some(member) = service.members.iter_mut().find(|member| member.session == place.session) else {
            return;
        };
        if let Some(at) = member.in_hand.iter().position(|one| *one == key) {
            member.in_hand.swap_remove(at);
            service.dispatcher.release(member.worker);
            service.stirred = true;
        }
    }

    /// A call that waited for a worker is over.
    pub(crate) fn stop_waiting(&mut self, key: CallKey) {
        let Some(queued) = self.calls.find_mut(key).and_then(|call| call.queued.take()) else { return };
        if let Some(service) = self.workers.queue_of(&queued) {
            service.queued_bytes = service.queued_bytes.saturating_sub(queued.bytes);
            service.dispatcher.retain(|one| *one != key);
        }
    }

    /// A session serves nothing any more.
    pub(crate) fn dismiss_worker(&mut self, session: SessionKey) {
        for service in &mut self.workers.services {
            service.remove(session);
        }
    }

    /// Whether calls wait for a worker: the host looks then which of them rest.
    pub fn calls_wait_for_workers(&self) -> bool {
        self.workers.services.iter().any(|service| service.dispatcher.queued() > 0)
    }

    /// The workers with calls in hand for which others wait.
    pub fn workers_in_question(&self, out: &mut Vec<SessionKey>) {
        let waited_for = self.workers.services.iter().filter(|service| service.dispatcher.queued() > 0);
        let busy =
            waited_for.flat_map(|service| &service.members).filter(|member| !member.in_hand.is_empty());
        out.extend(busy.map(|member| member.session));
    }

    /// A worker's thread waits for entries and has taken all there were: the handlers of its calls wait, too, and do
    /// not keep it from taking others.
    pub fn worker_rests(&mut self, turn: &mut Turn<'_>, session: SessionKey) {
        for service in &mut self.workers.services {
            let Some(member) = service.members.iter_mut().find(|member| member.session == session) else {
                continue;
            };
            for key in std::mem::take(&mut member.in_hand) {
                service.dispatcher.release(member.worker);
                service.stirred = true;
                let Some(call) = self.calls.find_mut(key) else { continue };
                call.place = None;
                let tendency = service.waits.entry(call.method).or_default();
                tendency.seen = (tendency.seen + 1).min(WAITS_MAX);
            }
        }
        self.go_on(turn);
    }

    /// Calls that waited go to workers that are free.
    pub(crate) fn settle_workers(&mut self, turn: &mut Turn<'_>) {
        for index in 0..self.workers.services.len() {
            while std::mem::take(&mut self.workers.services[index].stirred) {
                self.give_out(turn, index);
            }
        }
    }

    fn give_out(&mut self, turn: &mut Turn<'_>, index: usize) {
        let service = &mut self.workers.services[index];
        if service.members.is_empty() {
            // Nobody of this host serves it any more: others may.
            let mut left = Vec::new();
            service.dispatcher.retain(|key| {
                left.push(*key);
                false
            });
            left.into_iter().for_each(|key| self.take_from_queue(turn, key));
            return;
        }
        while let Some(dispatch) = self.workers.services[index].dispatcher.poll(turn.now) {
            match dispatch {
                Dispatch::To { worker, item: key, .. } => {
                    if let Some(place) = self.workers.services[index].occupy(index, worker, key)
                        && let Some(call) = self.calls.find_mut(key)
                    {
                        call.place = Some(place);
                    }
                    self.take_from_queue(turn, key);
                }
                Dispatch::Expired { item: key, .. } => self.take_from_queue(turn, key),
            }
        }
    }

    /// A call goes on from the queue.
    fn take_from_queue(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let Some(call) = self.calls.find_mut(key) else { return };
        let Some(queued) = call.queued.take() else { return self.give_place_back(key) };
        let waited = call.request.waiting_since.take().map_or(0, |since| turn.now.since_ns(since));
        call.client_stamps.wait_ns += waited;
        let opening = call.request.backlog.pop_front();
        if let Some(service) = self.workers.queue_of(&queued) {
            service.queued_bytes = service.queued_bytes.saturating_sub(queued.bytes);
        }
        match opening {
            Some(opening) => self.start_with_rest(turn, key, opening, |engine, turn, opening| {
                engine.start_now(turn, key, queued.target, opening);
            }),
            None => self.give_place_back(key),
        }
    }

    fn wait_for_worker(&mut self, turn: &mut Turn<'_>, key: CallKey, queued: Queued, opening: Item<'_>) {
        let admitted = match &opening {
            // One that begins again was admitted when it began.
            Item::Open { metadata, body, .. } if self.calls.find(key).is_some_and(|call| !call.admitted) => {
                self.admit(turn, key, metadata, body.as_ref().map_or(0, Body::len))
            }
            _ => Ok(()),
        };
        if let Some(call) = self.calls.find_mut(key) {
            call.queued = Some(queued);
        }
        if let Some(service) = self.workers.queue_of(&queued) {
            service.queued_bytes += queued.bytes;
        }
        if let Err(fault) = admitted {
            self.stop_waiting(key);
            self.drop_item(opening);
            return self.fail(turn, key, fault);
        }
        match self.calls.find_mut(key) {
            Some(call) => {
                call.request.waiting_since.get_or_insert(turn.now);
                call.request.backlog.push_back(opening.into_owned());
            }
            None => self.drop_item(opening),
        }
    }

    fn way_to_worker(&mut self, now: Instant, key: CallKey, target: Target, opening: &Item<'_>) -> Way {
        let Some(call) = self.calls.find(key) else { return Way::On };
        let method = call.method;
        if self.awaited.is_active() && self.is_awaited(method, target) {
            let bytes = opening.body().map_or(0, Body::parked_bytes);
            let calls = &self.calls;
            let is_waiting = |key| calls.find(key).is_some_and(|call| call.queued.is_some());
            if self.awaited.admit(key, bytes, is_waiting) {
                return Way::Waits(Queued { service: None, target, bytes });
            }
        }
        let is_one = self.registry.in_line(method).len() < 2;
        if matches!(target, Target::Cluster(_)) || is_one || self.draining {
            return Way::On;
        }
        let choice = self.choice_of_worker(key, method, opening);
        let class = Class::new(choice.class.unwrap_or(0));
        let sticky = (choice.sticky == Some(true)).then(|| self.caller_of(key));
        let is_shared = self.is_shared(method);
        if !is_shared && sticky.is_none() {
            return Way::On;
        }
        let index = self.service_of_workers(method);
        let limits = &self.limits;
        let service = &mut self.workers.services[index];
        if let Some(caller) = sticky.filter(|_| !is_shared) {
            let place = service.sticky_place(index, class, caller);
            if let Some(call) = self.calls.find_mut(key) {
                call.place = place;
            }
            return Way::On;
        }
        if sticky.is_none() && !service.keeps_workers && !service.bounds(method) {
            return Way::On;
        }
        match service.dispatcher.submit(now, class, sticky, key) {
            Verdict::To(worker, key) => {
                let place = service.occupy(index, worker, key);
                if let Some(call) = self.calls.find_mut(key) {
                    call.place = place;
                }
                Way::On
            }
            Verdict::Waits => {
                let bytes = opening.body().map_or(0, Body::parked_bytes);
                // One alone may wait however large it is.
                if bytes > 0
                    && service.queued_bytes > 0
                    && service.queued_bytes + bytes > limits.parked_bytes_per_session
                {
                    service.dispatcher.retain(|one| *one != key);
                    let limit = limits.parked_bytes_per_session as u64;
                    return Way::Full(Fault::Limit {
                        name: "bytes of calls waiting for a worker (limits.parked_bytes_per_session)",
                        limit,
                    });
                }
                Way::Waits(Queued { service: Some(index), target, bytes })
            }
            Verdict::Refused(..) => {
                let limit = limits.calls_delivered_per_session as u64;
                Way::Full(Fault::Limit {
                    name: "calls waiting for a worker (limits.calls_delivered_per_session)",
                    limit,
                })
            }
        }
    }

    /// Which worker a call wants: what the operator of this host says of calls that are served here, else of those that
    /// are made here, else the call itself. What is wrong with its metadata is said at its admission.
    fn choice_of_worker(&self, key: CallKey, method: MethodKey, opening: &Item<'_>) -> WorkerChoice {
        let server = self.registry.in_line(method).first().and_then(|server| server.plan.as_ref());
        let served = server.map_or(WorkerChoice::default(), |plan| plan.choice());
        let Some(call) = self.calls.find(key) else { return served };
        let made = call.policies.as_ref().map_or(WorkerChoice::default(), |policies| policies.choice());
        let asked = match opening {
            Item::Open { metadata, .. } => WorkerChoice::read(metadata).unwrap_or_default(),
            _ => WorkerChoice::default(),
        };
        served.or(made).or(asked).or(call.choice)
    }

    /// What a caller's sticky calls have in common: an application's process, or a peer's address.
    fn caller_of(&self, key: CallKey) -> u64 {
        let label = match self.calls.find(key).map(|call| &call.client) {
            Some(ClientEnd::Session { session, .. }) => {
                self.sessions.find(*session).map(|session| session.label.as_str())
            }
            Some(ClientEnd::Peer { peer, .. }) => self.peers.find(*peer).map(|peer| peer.label.as_str()),
            Some(ClientEnd::Grpc { peer, .. }) => self.grpc_peers.find(*peer).map(|peer| peer.label.as_str()),
            Some(ClientEnd::R2p2 { request }) => {
                return key_of(Self::r2p2_label(request.client()).as_bytes());
            }
            Some(ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. }) | None => None,
        };
        key_of(label.unwrap_or_default().as_bytes())
    }

    /// Policies keep other workers for other classes from now on.
    pub(crate) fn reserve_workers(&mut self) {
        let Self { workers, admission, .. } = self;
        for (name, index) in &workers.by_service {
            workers.services[*index].reserve(admission.chain().reservations(name));
        }
    }

    /// Whether several workers serve a method that has one request and one response.
    fn is_shared(&self, method: MethodKey) -> bool {
        let servers = self.registry.in_line(method);
        let unary =
            |server: &Server| server.types.pattern == Pattern::Unary && !server.types.input.is_opaque();
        servers.len() > 1 && servers.iter().all(unary)
    }

    /// The workers of a method's service, as the registry has them now.
    fn service_of_workers(&mut self, method: MethodKey) -> usize {
        let name = service_of(self.registry.path(method));
        let index = match self.workers.by_service.get(name) {
            Some(index) => *index,
            None => {
                let index = self.workers.services.len();
                self.workers.by_service.insert(name.into(), index);
                let mut service = Service::new(self.limits.calls_delivered_per_session, index as u64);
                service.reserve(self.admission.chain().reservations(name));
                self.workers.services.push(service);
                index
            }
        };
        let service = &mut self.workers.services[index];
        if std::mem::replace(&mut service.version, self.registry.version()) != self.registry.version() {
            service.enroll(self.registry.in_line(method));
        }
        index
    }
}

impl Workers {
    fn queue_of(&mut self, queued: &Queued) -> Option<&mut Service> {
        queued.service.and_then(|index| self.services.get_mut(index))
    }
}

impl Service {
    fn new(queue_max: usize, seed: u64) -> Self {
        // Word is here within microseconds: not worth that a call stands behind one that takes longer than any before.
        let settings = Settings {
            queue_max,
            delay_ns_max: DELAY_NS_MAX,
            stocks_early: false,
            seed,
            ..Settings::default()
        };
        Self {
            dispatcher: Dispatcher::new(settings),
            members: Vec::new(),
            version: u64::MAX,
            queued_bytes: 0,
            waits: KeyedMap::default(),
            stirred: false,
            keeps_workers: false,
        }
    }

    fn reserve(&mut self, reservations: Vec<(u8, usize)>) {
        let of = |(class, workers)| Reservation { class: Class::new(class), workers };
        self.keeps_workers = !reservations.is_empty();
        self.dispatcher.reserve(reservations.into_iter().map(of).collect());
        self.stirred = true;
    }

    /// Where sticky calls go that take no place there.
    fn sticky_place(&self, service: usize, class: Class, caller: u64) -> Option<Place> {
        let worker = self.dispatcher.sticky_worker(class, caller)?;
        let member = self.members.iter().find(|member| member.worker == worker)?;
        Some(Place { service, session: member.session, alone: false })
    }

    fn enroll(&mut self, servers: &[Server]) {
        let serves = |session: SessionKey| servers.iter().any(|server| server.session == session);
        let gone: Vec<_> =
            self.members.iter().map(|member| member.session).filter(|one| !serves(*one)).collect();
        gone.into_iter().for_each(|session| self.remove(session));
        for server in servers {
            if !self.members.iter().any(|member| member.session == server.session) {
                let (session, worker) = (server.session, self.dispatcher.join(1));
                self.members.push(Member { session, worker, in_hand: Vec::new() });
                self.stirred = true;
            }
        }
    }

    fn remove(&mut self, session: SessionKey) {
        if let Some(at) = self.members.iter().position(|member| member.session == session) {
            self.dispatcher.remove(self.members.swap_remove(at).worker);
            self.stirred = true;
        }
    }

    /// Whether a call of this method takes a place.
    fn bounds(&mut self, method: MethodKey) -> bool {
        let Some(tendency) = self.waits.get_mut(&method).filter(|tendency| tendency.seen >= WAITS_AT) else {
            return true;
        };
        tendency.unbounded = tendency.unbounded.wrapping_add(1);
        tendency.unbounded.is_multiple_of(WAITS_PROBE)
    }

    fn occupy(&mut self, service: usize, worker: WorkerKey, call: CallKey) -> Option<Place> {
        let member = self.members.iter_mut().find(|member| member.worker == worker)?;
        member.in_hand.push(call);
        Some(Place { service, session: member.session, alone: member.in_hand.len() == 1 })
    }
}

/// An application need not say when it began and ended.
fn stamps_are_there(a10: Instant, a11: Instant) -> bool {
    a10 != Instant::default() && a11 >= a10
}
