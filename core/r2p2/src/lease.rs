//! A lease for every request a router has sent on: it ends with FEEDBACK, or by itself.

use crate::history::History;
use crate::horizon::Horizon;
use crate::keyed::{Keyed, KeyedMap};
use crate::router_config::RouterConfig;
use crate::served::RequestKey;
use core::net::SocketAddrV4;
use std::collections::VecDeque;
use trunkline_call::Instant;
use trunkline_dispatch::WorkerKey;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits here.
    Queued,
    /// At a worker.
    Out,
    /// Over. Remembered, so that a repetition is not taken for a new request.
    Done,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub state: State,
    /// Since when.
    pub since: Instant,
    /// The worker's address: repetitions go there even when it is done.
    pub worker: Option<SocketAddrV4>,
    pub key: Option<WorkerKey>,
    /// Tells one that is out from an earlier one of the same name.
    serial: u64,
}

/// Every lease, and those that are over for as long as somebody may repeat their request.
#[derive(Debug)]
pub(crate) struct Leases {
    /// Those that wait or are out, and the compatible ones that have just ended.
    leases: KeyedMap<RequestKey, Lease>,
    /// Those out, in the order they went, each with when it ends by itself on the clock of
    /// [`crate::attention::Attention`]. The first is always out; behind it are some that have ended.
    out: VecDeque<Ending>,
    /// Compatible ones that are over: their names may be used again as soon as no datagram is under way any more.
    over: VecDeque<(Instant, RequestKey)>,
    /// Extended ones that are over.
    history: History,
    lease_ns: u64,
    lifetime_ns: u64,
    count_max: usize,
    live: usize,
    serial: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    at: Instant,
    key: RequestKey,
    serial: u64,
}

impl Lease {
    fn new(state: State, since: Instant) -> Self {
        Self { state, since, worker: None, key: None, serial: 0 }
    }
}

impl Leases {
    pub fn new(config: &RouterConfig, now: Instant) -> Self {
        let horizon = Horizon::new(config.lifetime_ns, config.remember_ns, now);
        let (remember_ns, rows_max, seed) = (config.remember_ns, config.remembered_rows_max, config.seed);
        Self {
            leases: KeyedMap::with_hasher(Keyed::new(seed)),
            out: VecDeque::new(),
            over: VecDeque::new(),
            history: History::new(horizon, remember_ns, rows_max, seed, now),
            lease_ns: config.lease_ns,
            lifetime_ns: config.lifetime_ns,
            count_max: config.leases_max,
            live: 0,
            serial: 0,
        }
    }

    pub fn find(&self, key: &RequestKey) -> Option<Lease> {
        self.leases.get(key).copied().or_else(|| {
            let worker = self.history.find(key)?;
            Some(Lease { worker: Some(worker), ..Lease::new(State::Done, Instant::default()) })
        })
    }

    /// A request waits here.
    pub fn queue(&mut self, now: Instant, key: RequestKey) {
        self.insert(key, Lease::new(State::Queued, now));
    }

    /// A request goes to a worker; `attended` is the time on the clock leases end by.
    pub fn send_out(
        &mut self,
        now: Instant,
        attended: Instant,
        key: RequestKey,
        worker: (WorkerKey, SocketAddrV4),
    ) {
        self.serial += 1;
        let serial = self.serial;
        let (worker_key, address) = worker;
        let lease =
            Lease { serial, worker: Some(address), key: Some(worker_key), ..Lease::new(State::Out, now) };
        self.out.push_back(Ending { at: attended.plus_ns(self.lease_ns), key, serial });
        self.insert(key, lease);
    }

    /// Takes out one that never went anywhere.
    pub fn remove(&mut self, key: &RequestKey) {
        if self.leases.remove(key).is_some() {
            self.live -= 1;
        }
    }

    /// Ends a lease that is out; what it was.
    pub fn end(&mut self, now: Instant, key: RequestKey) -> Option<Lease> {
        let lease = self.leases.get_mut(&key).filter(|lease| lease.state == State::Out)?;
        let was = *lease;
        if key.is_extended() {
            self.leases.remove(&key);
            was.worker.into_iter().for_each(|worker| self.history.remember(now, &key, worker));
        } else {
            lease.state = State::Done;
            self.over.push_back((now, key));
        }
        self.live -= 1;
        while self.out.front().is_some_and(|first| !self.is_out(first)) {
            self.out.pop_front();
        }
        Some(was)
    }

    /// A lease whose time is over.
    pub fn poll_expired(&mut self, now: Instant, attended: Instant) -> Option<(RequestKey, Lease)> {
        let first = self.out.front().copied().filter(|first| first.at <= attended)?;
        self.end(now, first.key).map(|lease| (first.key, lease))
    }

    /// Forgets what nobody repeats any more.
    pub fn forget(&mut self, now: Instant) {
        while let Some((at, key)) = self.over.front().copied()
            && now.since_ns(at) >= self.lifetime_ns
        {
            self.over.pop_front();
            if self.leases.get(&key).is_some_and(|lease| lease.state == State::Done) {
                self.leases.remove(&key);
            }
        }
    }

    /// Leases out at a worker.
    pub fn at(&self, worker: WorkerKey) -> Vec<RequestKey> {
        let there = |lease: &Lease| lease.state == State::Out && lease.key == Some(worker);
        self.leases.iter().filter(|(_, lease)| there(lease)).map(|(key, _)| *key).collect()
    }

    pub fn may_have_forgotten(&self, now: Instant, age_ns: u64) -> bool {
        self.history.may_have_forgotten(now, age_ns)
    }

    pub fn is_full(&self) -> bool {
        self.live >= self.count_max
    }

    /// Waiting or out.
    pub fn live(&self) -> usize {
        self.live
    }

    /// When the first lease ends by itself, on the clock leases end by.
    pub fn next_end(&self) -> Option<Instant> {
        self.out.front().map(|first| first.at)
    }

    fn insert(&mut self, key: RequestKey, lease: Lease) {
        if self.leases.insert(key, lease).is_none() {
            self.live += 1;
        }
    }

    fn is_out(&self, ending: &Ending) -> bool {
        self.leases
            .get(&ending.key)
            .is_some_and(|lease| lease.serial == ending.serial && lease.state == State::Out)
    }
}
