//! The workers of one service, and the calls that wait for them: places and a queue, as [`Workers`] asks for them.
//!
//! [`Workers`]: crate::workers::Workers

use crate::registry::{MethodKey, Servers};
use crate::shared_queue::SharedQueue;
use crate::shared_room::SharedRoom;
use crate::table::Key;
use crate::target::Target;
use crate::{CallKey, SessionKey};
use std::collections::{HashSet, VecDeque};
use trunkline_call::{Instant, KeyedMap};
use trunkline_dispatch::{Class, Dispatch, Dispatcher, Reservation, Settings, WaitingKey, WorkerKey};

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

/// The workers of one service, and the calls that wait for them.
#[derive(Debug)]
pub(crate) struct ServiceWorkers {
    pub name: Box<str>,
    pub dispatcher: Dispatcher<CallKey>,
    members: Vec<Member>,
    /// The registry's version the members are of.
    pub version: u64,
    /// Places of the queue.
    pub waiting: SharedRoom,
    /// Bytes of waiting calls that the daemon holds itself.
    pub queued_bytes: SharedRoom,
    waits: KeyedMap<MethodKey, Tendency>,
    /// Calls from the queue of a service that nobody of this host serves any more.
    left: VecDeque<CallKey>,
    /// Something may be given out.
    pub stirred: bool,
    /// What other shards have to do with it.
    pub shared: SharedQueue,
    /// A method of it, by which other shards know it.
    pub method: Option<MethodKey>,
    /// Some workers are kept for a class: calls of the others take places at the others, whatever their methods do.
    pub keeps_workers: bool,
    /// SourceLines of [`Workers`](crate::workers::Workers) in which it stands.
    pub listed: InLines,
}

/// Whether a service stands in the lines of those with something to be done for them, and whether its calls wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InLines {
    pub stirred: bool,
    pub grown: bool,
    pub waited: bool,
    pub counts: bool,
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
    pub service: Key<ServiceWorkers>,
    pub session: SessionKey,
    /// Nothing else was in hand there: its times are those of the way and of the work.
    pub alone: bool,
}

/// A call in the queue.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Queued {
    /// Whose queue, and what names it there; `None` if it was one of the engine before this one, until the call begins
    /// again.
    #[serde(skip)]
    pub at: Option<(Key<ServiceWorkers>, WaitingKey)>,
    pub(crate) target: Target,
    pub bytes: usize,
    /// Policies have let it go on before: it does not pass them again.
    #[serde(default)]
    pub is_judged: bool,
    /// It waits for a free worker, and not for who serves it to come: that is the server's receive queue.
    #[serde(default)]
    pub for_worker: bool,
}

impl Queued {
    /// In no queue: the call waits for services that are between two processes.
    pub fn for_none(target: Target, bytes: usize) -> Self {
        Self { at: None, target, bytes, is_judged: false, for_worker: false }
    }
}

impl ServiceWorkers {
    pub fn new(name: &str, queue_max: usize, seed: u64) -> Self {
        // Word is here within microseconds: not worth that a call stands behind one that takes longer than any before.
        let settings = Settings {
            queue_max: SharedRoom::whole(queue_max as u64) as usize,
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
            waiting: SharedRoom::default(),
            queued_bytes: SharedRoom::default(),
            waits: KeyedMap::default(),
            left: VecDeque::new(),
            stirred: false,
            shared: SharedQueue::default(),
            method: None,
            keeps_workers: false,
            listed: InLines::default(),
        }
    }

    /// Whether calls wait for one of its workers, here or on another shard.
    pub fn is_waited_for(&self) -> bool {
        self.dispatcher.queued() > 0 || self.shared.is_wanted()
    }

    /// A call is in the queue no more.
    pub fn leaves_queue(&mut self, call: CallKey, queued: &Queued) {
        self.waiting.give_back(call, 1);
        self.queued_bytes.give_back(call, queued.bytes as u64);
    }

    /// Workers are kept for these classes.
    pub fn reserve(&mut self, reservations: Vec<(u8, usize)>) {
        let of = |(class, workers)| Reservation { class: Class::new(class), workers };
        self.keeps_workers = !reservations.is_empty();
        self.dispatcher.reserve(reservations.into_iter().map(of).collect());
        self.stirred = true;
    }

    /// Where sticky calls go that take no place there.
    pub fn sticky_place(&self, service: Key<ServiceWorkers>, class: Class, caller: u64) -> Option<Place> {
        let worker = self.dispatcher.sticky_worker(class, caller)?;
        let member = self.members.iter().find(|member| member.worker == worker)?;
        Some(Place { service, session: member.session, alone: false })
    }

    /// Those that serve it now. Who has come, and who has gone.
    pub fn enroll(&mut self, servers: Servers<'_>) -> (Vec<SessionKey>, Vec<SessionKey>) {
        let serving: HashSet<SessionKey> = servers.iter().map(|server| server.session).collect();
        let mut known: HashSet<SessionKey> = self.members.iter().map(|member| member.session).collect();
        let gone: Vec<_> =
            self.members.iter().map(|member| member.session).filter(|one| !serving.contains(one)).collect();
        gone.iter().for_each(|session| self.remove(*session));
        let mut come = Vec::new();
        for server in servers.iter() {
            if known.insert(server.session) {
                let (session, worker) = (server.session, self.dispatcher.join(1));
                self.members.push(Member { session, worker, in_hand: Vec::new() });
                self.stirred = true;
                come.push(session);
            }
        }
        (come, gone)
    }

    /// A session does not serve it any more.
    pub fn remove(&mut self, session: SessionKey) {
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
    pub fn bounds(&mut self, method: MethodKey) -> bool {
        let Some(tendency) = self.waits.get_mut(&method).filter(|tendency| tendency.seen >= WAITS_AT) else {
            return true;
        };
        tendency.unbounded = tendency.unbounded.wrapping_add(1);
        tendency.unbounded.is_multiple_of(WAITS_PROBE)
    }

    /// A call has a place at a worker.
    pub fn occupy(
        &mut self,
        service: Key<ServiceWorkers>,
        worker: WorkerKey,
        call: CallKey,
    ) -> Option<Place> {
        let member = self.members.iter_mut().find(|member| member.worker == worker)?;
        member.in_hand.push(call);
        Some(Place { service, session: member.session, alone: member.in_hand.len() == 1 })
    }

    /// A call takes no place at this session's worker any more.
    pub fn give_back(&mut self, session: SessionKey, call: CallKey) {
        let Some(member) = self.members.iter_mut().find(|member| member.session == session) else { return };
        if let Some(at) = member.in_hand.iter().position(|one| *one == call) {
            member.in_hand.swap_remove(at);
            self.dispatcher.release(member.worker);
            self.stirred = true;
        }
    }

    /// What a call took at its worker.
    pub fn note(&mut self, place: &Place, method: MethodKey, taken: Option<(u64, u64)>) {
        if let Some((travel_ns, service_ns)) = taken.filter(|_| place.alone) {
            self.dispatcher.note(travel_ns.min(TRAVEL_NS_MAX), service_ns);
        }
        if let Some(tendency) = self.waits.get_mut(&method) {
            tendency.seen = tendency.seen.saturating_sub(1);
        }
    }

    /// The calls of workers whose threads rest take no places any more, and their methods are noted as ones that wait.
    pub fn free_resting(
        &mut self,
        mut rests: impl FnMut(SessionKey) -> bool,
        mut leaves: impl FnMut(CallKey) -> Option<MethodKey>,
    ) -> bool {
        let mut any = false;
        for member in &mut self.members {
            if member.in_hand.is_empty() || !rests(member.session) {
                continue;
            }
            any = true;
            self.stirred = true;
            for call in std::mem::take(&mut member.in_hand) {
                self.dispatcher.release(member.worker);
                let Some(method) = leaves(call) else { continue };
                let tendency = self.waits.entry(method).or_default();
                tendency.seen = (tendency.seen + 1).min(WAITS_MAX);
            }
        }
        any
    }

    /// What is known of methods that are forgotten is forgotten, too.
    pub fn forget(&mut self, knows: impl Fn(MethodKey) -> bool) {
        self.waits.retain(|method, _| knows(*method));
        self.method = self.method.filter(|method| knows(*method));
    }

    /// A call that waited and goes on, if there is one.
    pub fn poll(&mut self, now: Instant, key: Key<ServiceWorkers>) -> ServicePolled {
        if self.members.is_empty() {
            // Nobody of this host serves it any more: others may.
            let left = &mut self.left;
            self.dispatcher.retain(|call| {
                left.push_back(*call);
                false
            });
            if left.is_empty() {
                return ServicePolled::Over;
            }
        }
        if let Some(call) = self.left.pop_front() {
            return ServicePolled::Goes(call, None);
        }
        match self.dispatcher.poll(now) {
            Some(Dispatch::To { worker, item: call, .. }) => {
                ServicePolled::Goes(call, self.occupy(key, worker, call))
            }
            Some(Dispatch::Expired { item: call, .. }) => ServicePolled::Goes(call, None),
            None => {
                self.stirred = false;
                ServicePolled::Quiet
            }
        }
    }
}

/// What a service has for those that wait.
#[derive(Debug)]
pub(crate) enum ServicePolled {
    /// A call goes on, with a place or without.
    Goes(CallKey, Option<Place>),
    /// Nothing until something stirs.
    Quiet,
    /// Nobody serves it, and nothing waits.
    Over,
}
