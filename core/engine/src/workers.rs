//! Several workers under one service: a call goes to one that is free, or waits here until one is.
//!
//! A worker is a session that serves the service: a thread of a server, or a process. What was put into its ring it
//! keeps, so a call given to a busy worker waits there although another may be free a moment later. Therefore each has
//! a bounded number of calls in hand, and the rest wait in one queue (JBSQ(n), `core/dispatch`), whose n is measured: 1
//! where calls take milliseconds, more where a call is over before word of it is here.
//!
//! That is right for handlers that work and wrong for those that wait: a thread that awaits something takes other
//! calls meanwhile. So a worker whose thread is seen to rest (its ring is empty, and armed) gives its places back
//! ([`Workers::rests`]; the host looks while calls wait), and methods whose handlers were mostly seen to wait
//! are not bounded: their calls go to the workers in turn.
//!
//! A call may have a class, for which a policy keeps workers, or be sticky: then it goes to the worker that gets all
//! such calls of its caller, whoever else is free. Its metadata says so, or a policy.
//!
//! Not bounded either are services with one worker on the host, methods that stream or of which only applications know
//! the types, and large requests of native peers, which have found their server before they are complete.
//!
//! Of a service that several shards serve, a call that waits here goes to a worker that is free there
//! (`shared_queue.rs`).
//!
//! [`Workers`] owns places and queues; `start.rs` asks it for a place, and goes on with calls it gives out.

use crate::registry::{MethodKey, Server};
use crate::shared_queue::{PlacesAsked, SharedQueue};
use crate::target::Target;
use crate::{CallKey, SessionKey};
use std::collections::VecDeque;
use trunkline_call::{Instant, KeyedMap, ServerStamps};
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
    /// Calls from the queue of a service that nobody of this host serves any more.
    left: VecDeque<CallKey>,
    /// Something may be given out.
    stirred: bool,
    /// What other shards have to do with it.
    shared: SharedQueue,
    /// A method of it, by which other shards know it.
    method: Option<MethodKey>,
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

/// A call that begins, and what it asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub call: CallKey,
    pub method: MethodKey,
    pub class: Class,
    /// It is sticky: what the calls of its caller have in common.
    pub sticky: Option<u64>,
    /// Whether its method has one request and one response, at every worker.
    pub is_shared: bool,
    pub target: Target,
    /// Bytes of its opening that the daemon holds itself, and how many of those may wait.
    pub bytes: usize,
    pub bytes_max: usize,
}

/// Where a call that begins goes.
#[derive(Debug)]
pub(crate) enum Given {
    /// To the session it has a place at, or wherever there is no bound.
    On(Option<Place>),
    /// It waits.
    Waits(Queued),
    /// So many bytes wait already as may.
    BytesFull,
    /// So many calls wait already as may.
    Full,
}

/// A call that waited goes on.
#[derive(Debug)]
pub(crate) struct GivenOut {
    pub call: CallKey,
    /// Its place; none if it has waited long enough, or nobody of this host serves it any more.
    pub place: Option<Place>,
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
/// Where others keep a place, so many of the calls that wait are looked at for one that may cross: those that have
/// crossed before may not.
const CROSSING_LOOKED_MAX: usize = 64;

impl Workers {
    /// The workers of a service, as the registry has them at this version.
    pub fn service(
        &mut self,
        name: &str,
        servers: &[Server],
        version: u64,
        queue_max: usize,
        reservations: impl FnOnce() -> Vec<(u8, usize)>,
    ) -> usize {
        let index = match self.by_service.get(name) {
            Some(index) => *index,
            None => {
                let index = self.services.len();
                self.by_service.insert(name.into(), index);
                let mut service = Service::new(queue_max, index as u64);
                service.reserve(reservations());
                self.services.push(service);
                index
            }
        };
        let service = &mut self.services[index];
        if std::mem::replace(&mut service.version, version) != version {
            service.enroll(servers);
        }
        index
    }

    /// What is known of methods that are forgotten is forgotten, too.
    pub fn forget(&mut self, knows: impl Fn(MethodKey) -> bool) {
        for service in &mut self.services {
            service.waits.retain(|method, _| knows(*method));
            service.method = service.method.filter(|method| knows(*method));
        }
    }

    /// Gives a call that begins a place at a worker of this service, or a place in the queue.
    pub fn give(&mut self, now: Instant, index: usize, asking: Asking) -> Given {
        let service = &mut self.services[index];
        if let Some(caller) = asking.sticky.filter(|_| !asking.is_shared) {
            return Given::On(service.sticky_place(index, asking.class, caller));
        }
        if asking.sticky.is_none() && !service.keeps_workers && !service.bounds(asking.method) {
            return Given::On(None);
        }
        match service.dispatcher.submit(now, asking.class, asking.sticky, asking.call) {
            Verdict::To(worker, call) => Given::On(service.occupy(index, worker, call)),
            Verdict::Waits => {
                let Asking { call, target, bytes, bytes_max, .. } = asking;
                // One alone may wait however large it is.
                if bytes > 0 && service.queued_bytes > 0 && service.queued_bytes + bytes > bytes_max {
                    service.dispatcher.retain(|one| *one != call);
                    return Given::BytesFull;
                }
                service.queued_bytes += bytes;
                (service.method, service.shared.grown) = (Some(asking.method), true);
                Given::Waits(Queued { service: Some(index), target, bytes })
            }
            Verdict::Refused(..) => Given::Full,
        }
    }

    /// The handler of a call is through with it: what it took is measured, without what it had waited for a worker.
    pub fn note(
        &mut self,
        now: Instant,
        place: Place,
        method: MethodKey,
        stamps: &ServerStamps,
        waited_ns: u64,
    ) {
        let service = &mut self.services[place.service];
        let service_ns = stamps.a11.since_ns(stamps.a10);
        let travel_ns = now.since_ns(stamps.d9).saturating_sub(service_ns).saturating_sub(waited_ns);
        if place.alone && stamps_are_there(stamps.a10, stamps.a11) {
            service.dispatcher.note(travel_ns.min(TRAVEL_NS_MAX), service_ns);
        }
        if let Some(tendency) = service.waits.get_mut(&method) {
            tendency.seen = tendency.seen.saturating_sub(1);
        }
    }

    /// A call takes no place any more, for whatever reason.
    pub fn give_back(&mut self, place: Place, call: CallKey) {
        let service = &mut self.services[place.service];
        let Some(member) = service.members.iter_mut().find(|member| member.session == place.session) else {
            return;
        };
        if let Some(at) = member.in_hand.iter().position(|one| *one == call) {
            member.in_hand.swap_remove(at);
            service.dispatcher.release(member.worker);
            service.stirred = true;
        }
    }

    /// A call that waited is over.
    pub fn stop_waiting(&mut self, queued: &Queued, call: CallKey) {
        self.taken_from_queue(queued);
        if let Some(service) = self.queue_of(queued) {
            service.dispatcher.retain(|one| *one != call);
        }
    }

    /// A call that waited goes on.
    pub fn taken_from_queue(&mut self, queued: &Queued) {
        if let Some(service) = self.queue_of(queued) {
            service.queued_bytes = service.queued_bytes.saturating_sub(queued.bytes);
        }
    }

    /// A service with more calls that wait than others were asked to serve, and a method of it; each is told once.
    pub fn next_grown(&mut self) -> Option<(usize, MethodKey)> {
        let grown =
            |service: &mut Service| std::mem::take(&mut service.shared.grown) && !service.keeps_workers;
        let index = self.services.iter_mut().position(grown)?;
        self.services[index].method.map(|method| (index, method))
    }

    /// What to ask a shard for, that serves this service, too.
    pub fn ask(&mut self, index: usize, shard: u16) -> Option<PlacesAsked> {
        let service = &mut self.services[index];
        let since = service.dispatcher.waits_since()?;
        service.shared.ask(shard, service.dispatcher.queued(), since)
    }

    /// A shard asks for places at the workers of a service.
    pub fn wish(&mut self, index: usize, method: MethodKey, shard: u16, wish: PlacesAsked) {
        let service = &mut self.services[index];
        if !service.keeps_workers {
            service.method = Some(method);
            service.shared.wish(shard, wish);
        }
    }

    /// A place that is kept for a shard from now on, and by which method it knows the service.
    pub fn poll_kept(&mut self, now: Instant) -> Option<(u16, MethodKey)> {
        self.services.iter_mut().filter(|service| service.shared.is_wanted()).find_map(|service| {
            let shard = service.shared.next(now, service.dispatcher.waits_since())?;
            let method = service.method?;
            let worker = service.dispatcher.keep(now)?;
            service.shared.keep(shard, worker);
            Some((shard, method))
        })
    }

    /// What a shard was asked for, it may not know any more: what it serves has changed.
    pub fn forget_asked(&mut self, shard: u16) {
        for service in &mut self.services {
            service.shared.forget_asked(shard);
            service.shared.grown = service.dispatcher.queued() > 0;
        }
    }

    /// A shard keeps a place: the call that goes there, if one waits that may. More may be asked for then.
    pub fn take_for(&mut self, name: &str, shard: u16, may: impl Fn(CallKey) -> bool) -> Option<CallKey> {
        let service = &mut self.services[*self.by_service.get(name)?];
        service.shared.granted(shard);
        let taken = service.dispatcher.take_waiting(CROSSING_LOOKED_MAX, |call| may(*call));
        service.shared.grown = service.dispatcher.queued() > 0;
        taken
    }

    /// A call has come for the place that is kept for its shard.
    pub fn take_kept(&mut self, name: &str, shard: u16, call: CallKey) -> Option<Place> {
        let index = *self.by_service.get(name)?;
        let service = &mut self.services[index];
        let worker = service.shared.take_kept(shard)?;
        service.occupy(index, worker, call)
    }

    /// A place that is kept for a shard is not wanted.
    pub fn free_kept(&mut self, name: &str, shard: u16) {
        let Some(index) = self.by_service.get(name) else { return };
        let service = &mut self.services[*index];
        if let Some(worker) = service.shared.take_kept(shard) {
            service.dispatcher.release(worker);
            service.stirred = true;
        }
    }

    /// A session serves nothing any more.
    pub fn dismiss(&mut self, session: SessionKey) {
        self.services.iter_mut().for_each(|service| service.remove(session));
    }

    /// Services with calls that wait, and how many, for operators.
    pub fn waiting(&self) -> Vec<(String, usize)> {
        let queued = self.by_service.iter().map(|(name, index)| {
            let calls = self.services[*index].dispatcher.queued();
            (name.to_string(), calls)
        });
        queued.filter(|(_, calls)| *calls > 0).collect()
    }

    /// Bytes of waiting calls that the daemon holds.
    pub fn queued_bytes(&self) -> u64 {
        self.services.iter().map(|service| service.queued_bytes as u64).sum()
    }

    /// Whether calls wait for a worker, here or on another shard.
    pub fn is_waited_for(&self) -> bool {
        self.services.iter().any(Service::is_waited_for)
    }

    /// The workers with calls in hand for which others wait.
    pub fn in_question(&self) -> impl Iterator<Item = SessionKey> {
        let waited_for = self.services.iter().filter(|service| service.is_waited_for());
        let busy =
            waited_for.flat_map(|service| &service.members).filter(|member| !member.in_hand.is_empty());
        busy.map(|member| member.session)
    }

    /// A worker's handlers wait: its calls take no places any more, and their methods are noted. `leaves` tells the
    /// method of a call that had one.
    pub fn rests(&mut self, session: SessionKey, mut leaves: impl FnMut(CallKey) -> Option<MethodKey>) {
        for service in &mut self.services {
            let Some(member) = service.members.iter_mut().find(|member| member.session == session) else {
                continue;
            };
            for call in std::mem::take(&mut member.in_hand) {
                service.dispatcher.release(member.worker);
                service.stirred = true;
                let Some(method) = leaves(call) else { continue };
                let tendency = service.waits.entry(method).or_default();
                tendency.seen = (tendency.seen + 1).min(WAITS_MAX);
            }
        }
    }

    /// Other workers are kept for other classes from now on.
    pub fn reserve(&mut self, reservations: impl Fn(&str) -> Vec<(u8, usize)>) {
        for (name, index) in &self.by_service {
            self.services[*index].reserve(reservations(name));
        }
    }

    /// A call that waited and goes on, if there is one. Nobody's turn comes until something has stirred.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<GivenOut> {
        for index in 0..self.services.len() {
            if self.services[index].stirred
                && let Some(given) = self.poll_service(now, index)
            {
                return Some(given);
            }
        }
        None
    }

    fn poll_service(&mut self, now: Instant, index: usize) -> Option<GivenOut> {
        let service = &mut self.services[index];
        if service.members.is_empty() {
            // Nobody of this host serves it any more: others may.
            let left = &mut service.left;
            service.dispatcher.retain(|call| {
                left.push_back(*call);
                false
            });
        }
        if let Some(call) = service.left.pop_front() {
            return Some(GivenOut { call, place: None });
        }
        match service.dispatcher.poll(now) {
            Some(Dispatch::To { worker, item: call, .. }) => {
                Some(GivenOut { call, place: service.occupy(index, worker, call) })
            }
            Some(Dispatch::Expired { item: call, .. }) => Some(GivenOut { call, place: None }),
            None => {
                service.stirred = false;
                None
            }
        }
    }

    fn queue_of(&mut self, queued: &Queued) -> Option<&mut Service> {
        queued.service.and_then(|index| self.services.get_mut(index))
    }
}

impl Queued {
    /// In no queue: the call waits for services that are between two processes.
    pub fn for_none(target: Target, bytes: usize) -> Self {
        Self { service: None, target, bytes }
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
            left: VecDeque::new(),
            stirred: false,
            shared: SharedQueue::default(),
            method: None,
            keeps_workers: false,
        }
    }

    fn is_waited_for(&self) -> bool {
        self.dispatcher.queued() > 0 || self.shared.is_wanted()
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
            let worker = self.members.swap_remove(at).worker;
            self.shared.forget(worker);
            if self.members.is_empty() {
                self.shared.forget_wishes();
            }
            self.dispatcher.remove(worker);
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
