//! Several workers under one service: a call goes to one that is free, or waits here until one is.
//!
//! A worker is a session that serves the service: a thread of a server, or a process. What was put into its ring it
//! keeps, so a call given to a busy worker waits there although another may be free a moment later. Therefore each has
//! a bounded number of calls in hand, and the rest wait in one queue (JBSQ(n), `core/dispatch`), whose n is measured: 1
//! where calls take milliseconds, more where a call is over before word of it is here.
//!
//! That is right for handlers that work and wrong for those that wait: a thread that awaits something takes other
//! calls meanwhile. So a worker whose thread is seen to rest (its ring is empty, and armed) gives its places back
//! ([`Workers::free_resting`]; the host looks while calls wait), and methods whose handlers were mostly seen to wait
//! are not bounded: their calls go to the workers in turn.
//!
//! A call may have a class, for which a policy keeps workers, or be sticky: then it goes to the worker that gets all
//! such calls of its caller, whoever else is free. Its metadata says so, or a policy.
//!
//! Not bounded either are services with one worker on the host, methods that stream or of which only applications know
//! the types, and large requests of native peers, which have found their server before they are complete.
//!
//! Calls that wait are given out by source in turn, as room in the queue is shared (`shared_room.rs`): who has many
//! there delays its own.
//!
//! Of a service that several shards serve, a call that waits here goes to a worker that is free there
//! (`shared_queue.rs`).
//!
//! [`Workers`] owns places and queues; `start_of_call.rs` asks it for a place, and `step.rs` goes on with calls it
//! gives out.

use crate::registry::{MethodKey, Servers};
use crate::service_workers::ServicePolled;
pub(crate) use crate::service_workers::{Place, Queued, ServiceWorkers};
use crate::shared_queue::PlacesAsked;
use crate::table::{Key, Table};
use crate::target::Target;
use crate::{CallKey, SessionKey};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_balance::key_of;
use trunkline_call::{Fault, Instant, KeyedMap, ServerStamps};
use trunkline_dispatch::{Class, Verdict};

/// Every service whose calls are given out so.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    by_service: KeyedMap<Box<str>, Key<ServiceWorkers>>,
    /// Each for as long as somebody of this host serves it, or its calls wait.
    services: Table<ServiceWorkers>,
    /// Those each session is a worker of.
    of_session: KeyedMap<SessionKey, Vec<Key<ServiceWorkers>>>,
    /// Services with something to be done, each once in a line ([`InLines`](crate::service_workers::InLines)), so that
    /// nobody walks all there are. Of those for whose workers calls wait some may wait no more.
    stirred: VecDeque<Key<ServiceWorkers>>,
    grown: VecDeque<Key<ServiceWorkers>>,
    waited: VecDeque<Key<ServiceWorkers>>,
    /// How many are waited for.
    waited_for: usize,
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
    /// How many calls may wait, and how many of those bytes ([`SharedRoom`](crate::shared_room::SharedRoom)).
    pub calls_max: usize,
    pub bytes_max: usize,
}

/// Where a call that begins goes.
#[derive(Debug)]
pub(crate) enum Given {
    /// To the session it has a place at, or wherever there is no bound.
    On(Option<Place>),
    /// It waits.
    Waits(Queued),
    /// So many calls or bytes wait already as may.
    Refused(Fault),
}

/// A call that waited goes on.
#[derive(Debug)]
pub(crate) struct GivenOut {
    pub call: CallKey,
    /// Its place; none if it has waited long enough, or nobody of this host serves it any more.
    pub place: Option<Place>,
}

/// Where others keep a place, so many of the calls that wait are looked at for one that may cross: those that have
/// crossed before may not.
const CROSSING_LOOKED_MAX: usize = 64;
/// Services with calls that wait looked at in one turn: for workers whose threads rest, and for places that other
/// shards want.
const RESTING_LOOKED_MAX: usize = 64;
const KEPT_LOOKED_MAX: usize = 16;
/// Services that are forgotten and may stand in a line still, beside as many as there are.
const FORGOTTEN_MAX: usize = 64;

impl Workers {
    /// The workers of a service, as the registry has them at this version.
    pub fn service(
        &mut self,
        name: &str,
        servers: Servers<'_>,
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
            let (come, gone) = service.enroll(servers);
            come.into_iter().for_each(|session| self.of_session.entry(session).or_default().push(key));
            gone.into_iter().for_each(|session| self.forget_member(session, key));
            self.list(key);
        }
        key
    }

    /// What is known of methods that are forgotten is forgotten, too.
    pub fn forget(&mut self, knows: impl Fn(MethodKey) -> bool) {
        self.services.iter_mut().for_each(|(_, service)| service.forget(&knows));
    }

    /// Gives a call that begins a place at a worker of this service, or a place in the queue, of which its source may
    /// have a part.
    pub fn give(
        &mut self,
        now: Instant,
        key: Key<ServiceWorkers>,
        asking: Asking,
        source: impl Fn() -> Arc<str>,
    ) -> Given {
        let Some(service) = self.services.find_mut(key) else { return Given::On(None) };
        if let Some(caller) = asking.sticky.filter(|_| !asking.is_shared) {
            return Given::On(service.sticky_place(key, asking.class, caller));
        }
        if asking.sticky.is_none() && !service.keeps_workers && !service.bounds(asking.method) {
            return Given::On(None);
        }
        let line = || key_of(source().as_bytes());
        let full = |limit| {
            let name = "calls waiting for a worker (limits.calls_delivered_per_session)";
            Fault::Limit { name, limit }
        };
        match service.dispatcher.submit_of(now, asking.class, asking.sticky, asking.call, line) {
            Verdict::To(worker, call) => Given::On(service.occupy(key, worker, call)),
            Verdict::Waits(ticket) => {
                let Asking { call, target, bytes, calls_max, bytes_max, .. } = asking;
                let (calls_max, bytes_max, more) = (calls_max as u64, bytes_max as u64, bytes as u64);
                // One alone may wait however large it is.
                let has_bytes = service.queued_bytes.used() == 0
                    || service.queued_bytes.has_room(more, bytes_max, &source);
                if bytes > 0 && !has_bytes {
                    service.dispatcher.withdraw(ticket);
                    let name = "bytes of calls waiting for a worker (limits.parked_bytes_per_session)";
                    return Given::Refused(Fault::Limit { name, limit: bytes_max });
                }
                if !service.waiting.has_room(1, calls_max, &source) {
                    service.dispatcher.withdraw(ticket);
                    return Given::Refused(full(calls_max));
                }
                service.waiting.take(call, 1, calls_max, &source);
                service.queued_bytes.take(call, more, bytes_max, &source);
                (service.method, service.shared.grown) = (Some(asking.method), true);
                self.list(key);
                let at = Some((key, ticket));
                Given::Waits(Queued { at, for_worker: true, ..Queued::for_none(target, bytes) })
            }
            Verdict::Refused(..) => Given::Refused(full(asking.calls_max as u64)),
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
        let taken = stamps_are_there(stamps.a10, stamps.a11).then_some((travel_ns, service_ns));
        service.note(&place, method, taken);
    }

    /// A call takes no place any more, for whatever reason.
    pub fn give_back(&mut self, place: Place, call: CallKey) {
        if let Some(service) = self.services.find_mut(place.service) {
            service.give_back(place.session, call);
            self.list(place.service);
        }
    }

    /// A call that waited is over.
    pub fn stop_waiting(&mut self, queued: &Queued, call: CallKey) {
        if let Some((key, ticket)) = queued.at
            && let Some(service) = self.services.find_mut(key)
        {
            service.leaves_queue(call, queued);
            service.dispatcher.withdraw(ticket);
            self.list(key);
        }
    }

    /// A call that waited goes on.
    pub fn taken_from_queue(&mut self, queued: &Queued, call: CallKey) {
        let service = queued.at.and_then(|(key, _)| self.services.find_mut(key));
        if let Some(service) = service {
            service.leaves_queue(call, queued);
        }
    }

    /// Whether others may be asked to serve calls that wait.
    pub fn has_grown(&self) -> bool {
        !self.grown.is_empty()
    }

    /// A service with more calls that wait than others were asked to serve, and a method of it; each is told once.
    pub fn next_grown(&mut self) -> Option<(Key<ServiceWorkers>, MethodKey)> {
        while let Some(key) = self.grown.pop_front() {
            let Some(service) = self.services.find_mut(key) else { continue };
            service.listed.grown = false;
            let has_grown = std::mem::take(&mut service.shared.grown) && !service.keeps_workers;
            if let Some(method) = service.method.filter(|_| has_grown) {
                return Some((key, method));
            }
        }
        None
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
            self.list(key);
        }
    }

    /// A place that is kept for a shard from now on, and by which method it knows the service.
    pub fn poll_kept(&mut self, now: Instant) -> Option<(u16, MethodKey)> {
        self.look_at_waited(KEPT_LOOKED_MAX, |service| {
            let shard = service.shared.next(now, service.dispatcher.waits_since())?;
            let method = service.method?;
            let worker = service.dispatcher.keep(now)?;
            service.shared.keep(shard, worker);
            Some((shard, method))
        })
    }

    /// What a shard was asked for, it may not know any more: what it serves has changed.
    pub fn forget_asked(&mut self, shard: u16) {
        let Self { services, grown, .. } = self;
        for (key, service) in services.iter_mut() {
            service.shared.forget_asked(shard);
            service.shared.grown = service.dispatcher.queued() > 0;
            if service.shared.grown && !std::mem::replace(&mut service.listed.grown, true) {
                grown.push_back(key);
            }
        }
    }

    /// A shard keeps a place: the call that goes there, if one waits that may. More may be asked for then.
    pub fn take_for(&mut self, name: &str, shard: u16, may: impl Fn(CallKey) -> bool) -> Option<CallKey> {
        let key = *self.by_service.get(name)?;
        let service = self.services.find_mut(key)?;
        service.shared.granted(shard);
        let taken = service.dispatcher.take_waiting(CROSSING_LOOKED_MAX, |call| may(*call));
        service.shared.grown = service.dispatcher.queued() > 0;
        self.list(key);
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
        let Some(key) = self.by_service.get(name).copied() else { return };
        let Some(service) = self.services.find_mut(key) else { return };
        if let Some(worker) = service.shared.take_kept(shard) {
            service.dispatcher.release(worker);
            service.stirred = true;
            self.list(key);
        }
    }

    /// A session serves nothing any more.
    pub fn dismiss(&mut self, session: SessionKey) {
        for key in self.of_session.remove(&session).unwrap_or_default() {
            if let Some(service) = self.services.find_mut(key) {
                service.remove(session);
                self.list(key);
            }
        }
    }

    /// Services with calls that wait, and how many, for operators.
    pub fn waiting(&self) -> Vec<(String, usize)> {
        let services = self.waited.iter().filter_map(|key| self.services.find(*key));
        let queued = services.map(|service| (&service.name, service.dispatcher.queued()));
        let waiting = queued.filter(|(_, calls)| *calls > 0);
        waiting.map(|(name, calls)| (name.to_string(), calls)).collect()
    }

    /// Bytes of waiting calls that the daemon holds.
    pub fn queued_bytes(&self) -> u64 {
        let services = self.waited.iter().filter_map(|key| self.services.find(*key));
        services.map(|service| service.queued_bytes.used()).sum()
    }

    /// Whether calls wait for a worker, here or on another shard.
    pub fn is_waited_for(&self) -> bool {
        self.waited_for > 0
    }

    /// Workers with calls in hand for which others wait: of those whose handlers wait, too, calls take no places any
    /// more, and their methods are noted. `leaves` tells the method of a call that had one. Whether there were any.
    /// Looks at some services, and at others the next time.
    pub fn free_resting(
        &mut self,
        mut rests: impl FnMut(SessionKey) -> bool,
        mut leaves: impl FnMut(CallKey) -> Option<MethodKey>,
    ) -> bool {
        let mut any = false;
        self.look_at_waited(RESTING_LOOKED_MAX, |service| {
            any |= service.free_resting(&mut rests, &mut leaves);
            None::<()>
        });
        any
    }

    /// Other workers are kept for other classes from now on.
    pub fn reserve(&mut self, reservations: impl Fn(&str) -> Vec<(u8, usize)>) {
        let keys: Vec<_> = self.services.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Some(service) = self.services.find_mut(key) {
                service.reserve(reservations(&service.name));
                self.list(key);
            }
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
        while let Some(key) = self.stirred.front().copied() {
            let polled =
                self.services.find_mut(key).map_or(ServicePolled::Quiet, |service| service.poll(now, key));
            if let ServicePolled::Goes(call, place) = polled {
                self.list(key);
                return Some(GivenOut { call, place });
            }
            self.stirred.pop_front();
            if matches!(polled, ServicePolled::Over) {
                self.forget_service(key);
            } else if let Some(service) = self.services.find_mut(key) {
                service.listed.stirred = false;
                self.list(key);
            }
        }
        None
    }

    /// Looks at the next so many services for whose workers calls wait, until there is something.
    fn look_at_waited<T>(
        &mut self,
        looks_max: usize,
        mut look: impl FnMut(&mut ServiceWorkers) -> Option<T>,
    ) -> Option<T> {
        for _ in 0..self.waited.len().min(looks_max) {
            let key = self.waited.pop_front()?;
            let Some(service) = self.services.find_mut(key) else { continue };
            if !service.is_waited_for() {
                service.listed.waited = false;
                continue;
            }
            self.waited.push_back(key);
            let found = look(service);
            self.list(key);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Has a service stand in the lines of those with something to be done for them. Follows every change of one.
    fn list(&mut self, key: Key<ServiceWorkers>) {
        let Some(service) = self.services.find_mut(key) else { return };
        let (is_waited_for, has_grown) = (service.is_waited_for(), service.shared.grown);
        let listed = &mut service.listed;
        if service.stirred && !std::mem::replace(&mut listed.stirred, true) {
            self.stirred.push_back(key);
        }
        if has_grown && !std::mem::replace(&mut listed.grown, true) {
            self.grown.push_back(key);
        }
        if is_waited_for && !std::mem::replace(&mut listed.waited, true) {
            self.waited.push_back(key);
        }
        match (std::mem::replace(&mut listed.counts, is_waited_for), is_waited_for) {
            (false, true) => self.waited_for += 1,
            (true, false) => self.waited_for -= 1,
            _ => {}
        }
    }

    /// A session does not serve a service any more.
    fn forget_member(&mut self, session: SessionKey, service: Key<ServiceWorkers>) {
        if let Some(services) = self.of_session.get_mut(&session) {
            services.retain(|one| *one != service);
            if services.is_empty() {
                self.of_session.remove(&session);
            }
        }
    }

    /// Nobody serves it, and nothing waits for it: what was measured leaves with those it was measured of.
    fn forget_service(&mut self, key: Key<ServiceWorkers>) {
        if let Some(service) = self.services.remove(key) {
            self.by_service.remove(&service.name);
            self.waited_for -= usize::from(service.listed.counts);
            self.drop_forgotten();
        }
    }

    /// Services that are forgotten leave lines that nobody walks, too, before most of a line is of them.
    fn drop_forgotten(&mut self) {
        let Self { services, grown, waited, .. } = self;
        for line in [grown, waited] {
            if line.len() > 2 * services.len() + FORGOTTEN_MAX {
                line.retain(|key| services.find(*key).is_some());
            }
        }
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
    use crate::registry::{MethodTypes, Server};
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

    fn named(own: &[Server]) -> Servers<'_> {
        Servers { own, whole: &[] }
    }

    /// A call of a method with one request and one response.
    fn asking(call: u64) -> Asking {
        let mut registry = crate::registry::Registry::default();
        let method = registry.intern(&"/a.B/M".into(), || trunkline_telemetry::MethodIndex(0));
        let (class, target) = (Class::new(0), Target::Anyone);
        let call = CallKey::from_bits(call);
        Asking {
            call,
            method,
            class,
            sticky: None,
            is_shared: true,
            target,
            bytes: 10,
            calls_max: 8,
            bytes_max: 1000,
        }
    }

    #[test]
    fn services_leave_with_the_last_who_serves_them() {
        let mut workers = Workers::default();
        for round in 0..100 {
            for number in 0..10 {
                let service = format!("a.S{number}");
                let own = [session(2 * number), session(2 * number + 1)];
                workers.service(&service, named(&servers(&service, own)), round, 8, Vec::new);
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
        let key = workers.service("a.B", named(&servers("a.B", [session(1), session(2)])), 0, 8, Vec::new);
        let mut waiting = Vec::new();
        let mut call = 0;
        while waiting.len() < 2 {
            call += 1;
            match workers.give(NOW, key, asking(call), || "one".into()) {
                Given::Waits(queued) => waiting.push((queued, CallKey::from_bits(call))),
                Given::On(Some(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        [1, 2].into_iter().for_each(|number| workers.dismiss(session(number)));
        for (queued, call) in waiting {
            let given = workers.poll(NOW).expect("it goes on elsewhere");
            assert!(given.place.is_none());
            workers.taken_from_queue(&queued, call);
        }
        assert!(workers.poll(NOW).is_none() && workers.services.is_empty());
        // What comes of their places afterwards meets nobody.
        let place = Place { service: key, session: session(1), alone: true };
        workers.give_back(place, CallKey::from_bits(1));
        let next = workers.service("c.D", named(&servers("c.D", [session(1), session(2)])), 0, 8, Vec::new);
        assert_ne!(next, key);
    }

    /// The queue is full for who has filled it, and for nobody else; so it is when it is full of bytes.
    #[test]
    fn a_queue_that_one_source_fills_has_room_for_another() {
        for (calls_max, bytes_max) in [(64, 1 << 20), (4096, 640)] {
            let mut workers = Workers::default();
            let own = servers("a.B", [session(1), session(2)]);
            let key = workers.service("a.B", named(&own), 0, calls_max, Vec::new);
            let (mut call, mut waiting) = (0, Vec::new());
            let mut fill = |workers: &mut Workers, source: &str, most: usize| {
                let before = waiting.len();
                while waiting.len() - before < most {
                    call += 1;
                    let asking = Asking { calls_max, bytes_max, ..asking(call) };
                    match workers.give(NOW, key, asking, || source.into()) {
                        Given::Waits(queued) => waiting.push((queued, CallKey::from_bits(call))),
                        Given::On(_) => {}
                        Given::Refused(_) => break,
                    }
                }
                waiting.len() - before
            };
            assert!((64..=72).contains(&fill(&mut workers, "greedy", usize::MAX)));
            assert_eq!(fill(&mut workers, "greedy", 1), 0);
            assert_eq!(fill(&mut workers, "good", 3), 3);
            waiting.iter().for_each(|(queued, call)| workers.stop_waiting(queued, *call));
            assert_eq!((workers.queued_bytes(), workers.waiting().len()), (0, 0));
        }
    }

    /// One source has thousands waiting: the first of another is given out second, whatever class the others ask for,
    /// at a worker of this shard or of another. Of a call that is given up nothing is left in the line.
    #[test]
    fn who_comes_next_is_served_second_however_many_another_has_waiting() {
        for class in [0, 5] {
            let mut workers = Workers::default();
            let own = servers("a.B", [session(1), session(2)]);
            let key = workers.service("a.B", named(&own), 0, 4096, Vec::new);
            let (mut call, mut places, mut waiting) = (0, Vec::new(), Vec::new());
            while waiting.len() < 4096 {
                call += 1;
                let greedy = Asking { calls_max: 4096, class: Class::new(class), bytes: 0, ..asking(call) };
                match workers.give(NOW, key, greedy, || "greedy".into()) {
                    Given::Waits(queued) => waiting.push((queued, CallKey::from_bits(call))),
                    Given::On(place) => places.extend(place.map(|place| (place, CallKey::from_bits(call)))),
                    other => panic!("{other:?}"),
                }
            }
            let given_up = waiting.remove(2000);
            workers.stop_waiting(&given_up.0, given_up.1);
            let [first, second, third] = [9001, 9002, 9003].map(|call| {
                let good = Asking { calls_max: 4096, ..asking(call) };
                assert!(matches!(workers.give(NOW, key, good, || "good".into()), Given::Waits(_)));
                CallKey::from_bits(call)
            });
            let mut next = |workers: &mut Workers| {
                let (place, call) = places.pop().expect("a worker is busy");
                workers.give_back(place, call);
                workers.poll(NOW).expect("it is given out").call
            };
            assert_eq!([next(&mut workers), next(&mut workers)], [waiting[0].1, first]);
            let crossing = [0; 4].map(|_| workers.take_for("a.B", 1, |_| true));
            assert_eq!(crossing, [waiting[1].1, second, waiting[2].1, third].map(Some));
            assert_eq!(workers.waiting(), [("a.B".to_owned(), 4095 - 3)]);
        }
    }

    /// Two workers a service, and calls for all of them until some wait.
    fn crowded(workers: &mut Workers, services: u64) {
        for number in 0..services {
            let name = format!("a.S{number}");
            let own = servers(&name, [session(2 * number), session(2 * number + 1)]);
            let key = workers.service(&name, named(&own), 0, 8, Vec::new);
            let mut call = number * 100;
            while !matches!(workers.give(NOW, key, asking(call), || "one".into()), Given::Waits(_)) {
                call += 1;
            }
        }
    }

    #[test]
    fn a_look_asks_the_workers_of_some_services_and_the_next_one_those_of_others() {
        const SERVICES: u64 = 1000;
        let mut workers = Workers::default();
        crowded(&mut workers, SERVICES);
        assert!(workers.is_waited_for());
        let (mut looks, mut asked) = (0, std::collections::HashSet::new());
        while asked.len() < SERVICES as usize {
            let before = asked.len();
            let noted = |one: SessionKey| {
                asked.insert(one.to_bits() / 2);
                false
            };
            assert!(!workers.free_resting(noted, |_| None));
            assert!(asked.len() - before <= RESTING_LOOKED_MAX);
            looks += 1;
        }
        assert_eq!(
            looks,
            (SERVICES as usize).div_ceil(RESTING_LOOKED_MAX),
            "nobody is asked twice before all others"
        );
    }

    /// Nobody looks at what waits, nor asks what has grown.
    #[test]
    fn services_that_come_and_go_leave_no_line_that_grows() {
        let mut workers = Workers::default();
        for _ in 0..1000 {
            crowded(&mut workers, 2);
            (0..4).for_each(|number| workers.dismiss(session(number)));
            while workers.poll(NOW).is_some() {}
        }
        assert!(workers.services.is_empty() && workers.stirred.is_empty());
        assert!(workers.grown.len() <= FORGOTTEN_MAX && workers.waited.len() <= FORGOTTEN_MAX);
    }

    #[test]
    fn nobody_stands_in_a_line_for_good() {
        let mut workers = Workers::default();
        crowded(&mut workers, 100);
        (0..200).for_each(|number| workers.dismiss(session(number)));
        while workers.poll(NOW).is_some() {}
        while workers.next_grown().is_some() {}
        assert!(workers.poll_kept(NOW).is_none() && !workers.is_waited_for());
        let looks = (0..100).filter(|_| workers.free_resting(|_| true, |_| None)).count();
        assert_eq!(looks, 0);
        assert!(workers.services.is_empty() && workers.of_session.is_empty());
        assert!(workers.stirred.is_empty() && workers.grown.is_empty() && workers.waited.is_empty());
    }
}
