//! A lease for every request a router has sent on: it ends with FEEDBACK, or by itself.

use crate::memory::Memory;
use crate::router_config::RouterConfig;
use crate::served::RequestKey;
use core::net::SocketAddrV4;
use std::collections::{HashMap, VecDeque};
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
}

/// Every lease, and those that are over for as long as somebody may repeat their request.
#[derive(Debug)]
pub(crate) struct Leases {
    leases: HashMap<RequestKey, Lease>,
    /// Those out, in the order they went: all end after the same time. The first is always out; behind it are some that
    /// have ended.
    out: VecDeque<(Instant, RequestKey)>,
    memory: Memory,
    lease_ns: u64,
    count_max: usize,
    live: usize,
}

impl Lease {
    pub fn queued(now: Instant) -> Self {
        Self { state: State::Queued, since: now, worker: None, key: None }
    }

    pub fn out(now: Instant, key: WorkerKey, worker: SocketAddrV4) -> Self {
        Self { state: State::Out, since: now, worker: Some(worker), key: Some(key) }
    }
}

impl Leases {
    pub fn new(config: &RouterConfig, now: Instant) -> Self {
        Self {
            leases: HashMap::new(),
            out: VecDeque::new(),
            memory: Memory::with(config.lifetime_ns, config.remember_ns, config.remembered_max, now),
            lease_ns: config.lease_ns,
            count_max: config.leases_max,
            live: 0,
        }
    }

    pub fn find(&self, key: &RequestKey) -> Option<&Lease> {
        self.leases.get(key)
    }

    pub fn insert(&mut self, key: RequestKey, lease: Lease) {
        if lease.state == State::Out {
            self.out.push_back((lease.since, key));
        }
        if self.leases.insert(key, lease).is_none() {
            self.live += 1;
        }
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
        lease.state = State::Done;
        self.live -= 1;
        self.memory.remember(now, key, 0);
        while self.out.front().is_some_and(|(since, key)| !self.is_out(key, *since)) {
            self.out.pop_front();
        }
        Some(was)
    }

    /// A lease whose time is over.
    pub fn poll_expired(&mut self, now: Instant) -> Option<(RequestKey, Lease)> {
        let (since, key) = self.out.front().copied()?;
        if now.since_ns(since) < self.lease_ns {
            return None;
        }
        self.end(now, key).map(|lease| (key, lease))
    }

    fn is_out(&self, key: &RequestKey, since: Instant) -> bool {
        self.leases.get(key).is_some_and(|lease| lease.state == State::Out && lease.since == since)
    }

    /// Forgets what nobody repeats any more.
    pub fn forget(&mut self, now: Instant) {
        while let Some(key) = self.memory.poll_expired(now) {
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
        self.memory.may_have_forgotten(now, age_ns)
    }

    pub fn is_full(&self) -> bool {
        self.live >= self.count_max
    }

    /// Waiting or out.
    pub fn live(&self) -> usize {
        self.live
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.out.front().map(|(since, _)| since.plus_ns(self.lease_ns))
    }
}
