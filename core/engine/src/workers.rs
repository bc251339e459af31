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
use crate::table::{Key, Table};
use crate::target::Target;
use crate::{CallKey, SessionKey};
use std::collections::VecDeque;
use trunkline_call::{Instant, KeyedMap, ServerStamps};
use trunkline_dispatch::{Class, Dispatch, Dispatcher, Reservation, Settings, Verdict, WorkerKey};

/// Every service whose calls are given out so.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    by_service: KeyedMap<Box<str>, Key<ServiceWorkers>>,
    /// Each for as long as somebody of this host serves it, or its calls wait.
    services: Table<ServiceWorkers>,
}

/// The workers of one service, and the calls that wait for them.
#[derive(Debug)]
pub(crate) struct ServiceWorkers {
    name: Box<str>,
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
    service: Key<ServiceWorkers>,
    pub session: SessionKey,
    /// Nothing else was in hand there: its times are those of the way and of the work.
    alone: bool,
}

/// A call in the queue.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Queued {
    /// Whose queue; `None` if it was one of the engine before this one, until the call begins again.
    #[serde(skip)]
    service: Option<Key<ServiceWorkers>>,
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
    ) -> Key<ServiceWorkers> {
        let key = match self.by_service.get(name) {
            Some(key) => *key,
            None => {
                let mut service = ServiceWorkers::new(name, queue_max, self.services.len() as u64);
                service.reserve(reservations());
                let key = self.services.insert(service);
                self.by_service.insert(name.into(), key);
                key
            }
        };
        if let Some(service) = self.services.find_mut(key)
            && std::mem::replace(&mut service.version, version) != version
        {
            service.enroll(servers);
        }
        key
    }

    /// What is known of methods that are forgotten is forgotten, too.
    pub fn forget(&mut self, knows: impl Fn(MethodKey) -> bool) {
        for (_, service) in self.services.iter_mut() {
            service.waits.retain(|method, _| knows(*method));
            service.method = service.method.filter(|method| knows(*method));
        }
    }

    /// Gives a call that begins a place at a worker of this service, or a place in the queue.
    pub fn give(&mut self, now: Instant, key: Key<ServiceWorkers>, asking: Asking) -> Given {
        let Some(service) = self.services.find_mut(key) else { return Given::On(None) };
        if let Some(caller) = asking.sticky.filter(|_| !asking.is_shared) {
            return Given::On(service.sticky_place(key, asking.class, caller));
        }
        if asking.sticky.is_none() && !service.keeps_workers && !service.bounds(asking.method) {
            return Given::On(None);
        }
        match service.dispatcher.submit(now, asking.class, asking.sticky, asking.call) {
            Verdict::To(worker, call) => Given::On(service.occupy(key, worker, call)),
            Verdict::Waits => {
                let Asking { call, target, bytes, bytes_max, .. } = asking;
                // One alone may wait however large it is.
                if bytes > 0 && service.queued_bytes > 0 && service.queued_bytes + bytes > bytes_max {
                    service.dispatcher.retain(|one| *one != call);
                    return Given::BytesFull;
                }
                service.queued_bytes += bytes;
                (service.method, service.shared.grown) = (Some(asking.method), true);
                Given::Waits(Queued { service: Some(key), target, bytes })
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
        let Some(service) = self.services.find_mut(place.service) else { return };
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
        let Some(service) = self.services.find_mut(place.service) else { return };
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
    pub fn next_grown(&mut self) -> Option<(Key<ServiceWorkers>, MethodKey)> {
        let grown = |service: &mut ServiceWorkers| {
            std::mem::take(&mut service.shared.grown) && !service.keeps_workers
        };
        let (key, service) =
            self.services.iter_mut().find_map(|(key, service)| grown(service).then_some((key, service)))?;
        service.method.map(|method| (key, method))
    }

    /// What to ask a shard for, that serves this service, too.
    pub fn ask(&mut self, key: Key<ServiceWorkers>, shard: u16) -> Option<PlacesAsked> {
        let service = self.services.find_mut(key)?;
        let since = service.dispatcher.waits_since()?;
        service.shared.ask(shard, service.dispatcher.queued(), since)
    }

    /// A shard asks for places at the workers of a service.
    pub fn wish(&mut self, key: Key<ServiceWorkers>, method: MethodKey, shard: u16, wish: PlacesAsked) {
        let service = self.services.find_mut(key);
        if let Some(service) = service.filter(|service| !service.keeps_workers) {
            service.method = Some(method);
            service.shared.wish(shard, wish);
        }
    }

    /// A place that is kept for a shard from now on, and by which method it knows the service.
    pub fn poll_kept(&mut self, now: Instant) -> Option<(u16, MethodKey)> {
        self.services.iter_mut().filter(|(_, service)| service.shared.is_wanted()).find_map(|(_, service)| {
            let shard = service.shared.next(now, service.dispatcher.waits_since())?;
            let method = service.method?;
            let worker = service.dispatcher.keep(now)?;
            service.shared.keep(shard, worker);
            Some((shard, method))
        })
    }

    /// What a shard was asked for, it may not know any more: what it serves has changed.
    pub fn forget_asked(&mut self, shard: u16) {
        for (_, service) in self.services.iter_mut() {
            service.shared.forget_asked(shard);
            service.shared.grown = service.dispatcher.queued() > 0;
        }
    }

    /// A shard keeps a place: the call that goes there, if one waits that may. More may be asked for then.
    pub fn take_for(&mut self, name: &str, shard: u16, may: impl Fn(CallKey) -> bool) -> Option<CallKey> {
        let service = self.services.find_mut(*self.by_service.get(name)?)?;
        service.shared.granted(shard);
        let taken = service.dispatcher.take_waiting(CROSSING_LOOKED_MAX, |call| may(*call));
        service.shared.grown = service.dispatcher.queued() > 0;
        taken
    }

    /// A call has come for the place that is kept for its shard.
    pub fn take_kept(&mut self, name: &str, shard: u16, call: CallKey) -> Option<Place> {
        let key = *self.by_service.get(name)?;
        let service = self.services.find_mut(key)?;
        let worker = service.shared.take_kept(shard)?;
        service.occupy(key, worker, call)
    }

    /// A place that is kept for a shard is not wanted.
    pub fn free_kept(&mut self, name: &str, shard: u16) {
        let key = self.by_service.get(name).copied();
        let Some(service) = key.and_then(|key| self.services.find_mut(key)) else { return };
        if let Some(worker) = service.shared.take_kept(shard) {
            service.dispatcher.release(worker);
            service.stirred = true;
        }
    }

    /// A session serves nothing any more.
    pub fn dismiss(&mut self, session: SessionKey) {
        self.services.iter_mut().for_each(|(_, service)| service.remove(session));
    }

    /// Services with calls that wait, and how many, for operators.
    pub fn waiting(&self) -> Vec<(String, usize)> {
        let queued =
            self.services.iter().map(|(_, service)| (service.name.to_string(), service.dispatcher.queued()));
        queued.filter(|(_, calls)| *calls > 0).collect()
    }

    /// Bytes of waiting calls that the daemon holds.
    pub fn queued_bytes(&self) -> u64 {
        self.services.iter().map(|(_, service)| service.queued_bytes as u64).sum()
    }

    /// Whether calls wait for a worker, here or on another shard.
    pub fn is_waited_for(&self) -> bool {
        self.services.iter().any(|(_, service)| service.is_waited_for())
    }

    /// The workers with calls in hand for which others wait.
    pub fn in_question(&self) -> impl Iterator<Item = SessionKey> {
        let waited_for = self.services.iter().filter(|(_, service)| service.is_waited_for());
        let busy =
            waited_for.flat_map(|(_, service)| &service.members).filter(|member| !member.in_hand.is_empty());
        busy.map(|member| member.session)
    }

    /// A worker's handlers wait: its calls take no places any more, and their methods are noted. `leaves` tells the
    /// method of a call that had one.
    pub fn rests(&mut self, session: SessionKey, mut leaves: impl FnMut(CallKey) -> Option<MethodKey>) {
        for (_, service) in self.services.iter_mut() {
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
        for (_, service) in self.services.iter_mut() {
            service.reserve(reservations(&service.name));
        }
    }

    /// Whether the turn of a call that waits may have come, or a place been kept: there are workers.
    #[inline]
    pub fn may_be_stirred(&self) -> bool {
        !self.services.is_empty()
    }

    /// A call that waited and goes on, if there is one. Nobody's turn comes until something has stirred.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<GivenOut> {
        loop {
            let stirred = self.services.iter().find(|(_, service)| service.stirred);
            let key = stirred.map(|(key, _)| key)?;
            if let Some(given) = self.poll_service(now, key) {
                return Some(given);
            }
        }
    }

    fn poll_service(&mut self, now: Instant, key: Key<ServiceWorkers>) -> Option<GivenOut> {
        let service = self.services.find_mut(key)?;
        if service.members.is_empty() {
            // Nobody of this host serves it any more: others may.
            let left = &mut service.left;
            service.dispatcher.retain(|call| {
                left.push_back(*call);
                false
            });
            if left.is_empty() {
                self.forget_service(key);
                return None;
            }
        }
        if let Some(call) = service.left.pop_front() {
            return Some(GivenOut { call, place: None });
        }
        match service.dispatcher.poll(now) {
            Some(Dispatch::To { worker, item: call, .. }) => {
                Some(GivenOut { call, place: service.occupy(key, worker, call) })
            }
            Some(Dispatch::Expired { item: call, .. }) => Some(GivenOut { call, place: None }),
            None => {
                service.stirred = false;
                None
            }
        }
    }

    /// Nobody serves it, and nothing waits for it: what was measured leaves with those it was measured of.
    fn forget_service(&mut self, key: Key<ServiceWorkers>) {
        if let Some(service) = self.services.remove(key) {
            self.by_service.remove(&service.name);
        }
    }

    fn queue_of(&mut self, queued: &Queued) -> Option<&mut ServiceWorkers> {
        queued.service.and_then(|key| self.services.find_mut(key))
    }
}

impl Queued {
    /// In no queue: the call waits for services that are between two processes.
    pub fn for_none(target: Target, bytes: usize) -> Self {
        Self { service: None, target, bytes }
    }
}

impl ServiceWorkers {
    fn new(name: &str, queue_max: usize, seed: u64) -> Self {
        // Word is here within microseconds: not worth that a call stands behind one that takes longer than any before.
        let settings = Settings {
            queue_max,
            delay_ns_max: DELAY_NS_MAX,
            stocks_early: false,
            seed,
            ..Settings::default()
        };
        Self {
            name: name.into(),
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
    fn sticky_place(&self, service: Key<ServiceWorkers>, class: Class, caller: u64) -> Option<Place> {
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

    fn occupy(&mut self, service: Key<ServiceWorkers>, worker: WorkerKey, call: CallKey) -> Option<Place> {
        let member = self.members.iter_mut().find(|member| member.worker == worker)?;
        member.in_hand.push(call);
        Some(Place { service, session: member.session, alone: member.in_hand.len() == 1 })
    }
}

/// An application need not say when it began and ended.
fn stamps_are_there(a10: Instant, a11: Instant) -> bool {
    a10 != Instant::default() && a11 >= a10
}

#[cfg(test)]
mod tests {
    //! Shows that what is known of a service leaves with the last who serves it, and not before its calls have.
    use super::*;
    use crate::registry::MethodTypes;
    use std::sync::Arc;
    use trunkline_call::RouteIndex;

    const NOW: Instant = Instant(1_000);

    fn session(number: u64) -> SessionKey {
        SessionKey::from_bits(number)
    }

    fn servers(service: &str, sessions: [SessionKey; 2]) -> [Server; 2] {
        let types = Arc::new(MethodTypes::opaque(&format!("/{service}/M"), false));
        sessions.map(|session| Server {
            session,
            route: RouteIndex(0),
            types: Arc::clone(&types),
            stands_by: false,
            plan: None,
        })
    }

    /// A call of a method with one request and one response.
    fn asking(call: u64) -> Asking {
        let mut registry = crate::registry::Registry::default();
        let method = registry.intern(&"/a.B/M".into(), || trunkline_telemetry::MethodIndex(0));
        let (class, target) = (Class::new(0), Target::Anyone);
        let call = CallKey::from_bits(call);
        Asking { call, method, class, sticky: None, is_shared: true, target, bytes: 10, bytes_max: 1000 }
    }

    #[test]
    fn services_leave_with_the_last_who_serves_them() {
        let mut workers = Workers::default();
        for round in 0..100 {
            for number in 0..10 {
                let service = format!("a.S{number}");
                let own = [session(2 * number), session(2 * number + 1)];
                workers.service(&service, &servers(&service, own), round, 8, Vec::new);
            }
            assert_eq!((workers.services.len(), workers.by_service.len()), (10, 10));
            (0..20).for_each(|number| workers.dismiss(session(number)));
            assert!(workers.poll(NOW).is_none());
            assert_eq!((workers.services.len(), workers.by_service.len()), (0, 0));
        }
    }

    #[test]
    fn calls_that_wait_are_given_out_first() {
        let mut workers = Workers::default();
        let key = workers.service("a.B", &servers("a.B", [session(1), session(2)]), 0, 8, Vec::new);
        let mut waiting = Vec::new();
        let mut call = 0;
        while waiting.len() < 2 {
            call += 1;
            match workers.give(NOW, key, asking(call)) {
                Given::Waits(queued) => waiting.push(queued),
                Given::On(Some(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        [1, 2].into_iter().for_each(|number| workers.dismiss(session(number)));
        for queued in waiting {
            let given = workers.poll(NOW).expect("it goes on elsewhere");
            assert!(given.place.is_none());
            workers.taken_from_queue(&queued);
        }
        assert!(workers.poll(NOW).is_none() && workers.services.is_empty());
        // What comes of their places afterwards meets nobody.
        let place = Place { service: key, session: session(1), alone: true };
        workers.give_back(place, CallKey::from_bits(1));
        let next = workers.service("c.D", &servers("c.D", [session(1), session(2)]), 0, 8, Vec::new);
        assert_ne!(next, key);
    }
}
