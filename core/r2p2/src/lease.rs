//! A lease for every request a router has sent on: it ends with FEEDBACK, or by itself.

use crate::history::History;
use crate::horizon::Horizon;
use crate::router_config::RouterConfig;
use crate::served::RequestKey;
use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use trunkline_call::{Instant, Keyed, KeyedMap};
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
    /// Which of all that ever went out it is, if it did.
    number: u64,
}

/// What word of a request's end finds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    /// It was out.
    Now(Lease),
    /// It is known, and not out.
    Before,
    /// Nobody knows it.
    Unknown,
    /// The word is not its worker's.
    Foreign,
}

/// Every lease, and those that are over for as long as somebody may repeat their request.
#[derive(Debug)]
pub(crate) struct Leases {
    /// Those that wait or are out, and the compatible ones that have just ended.
    leases: KeyedMap<RequestKey, Lease>,
    /// Those out, in the order they went, which is that of their numbers. The first is always out; behind it are some
    /// that have ended.
    out: VecDeque<Ending>,
    /// The number of the first.
    first: u64,
    /// Compatible ones that are over: their names may be used again as soon as no datagram is under way any more.
    over: VecDeque<(Instant, RequestKey)>,
    /// Extended ones that are over.
    history: History,
    lease_ns: u64,
    lifetime_ns: u64,
    count_max: usize,
    live: usize,
}

/// How one that went out ends by itself.
#[derive(Clone, Copy, Debug)]
struct Ending {
    /// When, on the clock of [`crate::attention::Attention`].
    at: Instant,
    key: RequestKey,
    /// It has ended.
    over: bool,
}

impl Lease {
    fn new(state: State, since: Instant) -> Self {
        Self { state, since, worker: None, key: None, number: 0 }
    }
}

impl Leases {
    pub fn new(config: &RouterConfig, now: Instant) -> Self {
        let horizon = Horizon::new(config.lifetime_ns, config.remember_ns, now);
        let (remember_ns, rows_max, seed) = (config.remember_ns, config.remembered_rows_max, config.seed);
        Self {
            leases: KeyedMap::with_hasher(Keyed::new(seed)),
            out: VecDeque::new(),
            first: 0,
            over: VecDeque::new(),
            history: History::new(horizon, remember_ns, rows_max, seed, now),
            lease_ns: config.lease_ns,
            lifetime_ns: config.lifetime_ns,
            count_max: config.leases_max,
            live: 0,
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
        let number = self.first + self.out.len() as u64;
        let (worker_key, address) = worker;
        let lease =
            Lease { number, worker: Some(address), key: Some(worker_key), ..Lease::new(State::Out, now) };
        self.out.push_back(Ending { at: attended.plus_ns(self.lease_ns), key, over: false });
        self.insert(key, lease);
    }

    /// Takes out one that never went anywhere.
    pub fn remove(&mut self, key: &RequestKey) {
        if self.leases.remove(key).is_some() {
            self.live -= 1;
        }
    }

    /// Ends a lease that is out. With `by`, only if its worker is of that host.
    pub fn end(&mut self, now: Instant, key: RequestKey, by: Option<Ipv4Addr>) -> Ended {
        let is_foreign =
            |worker: Option<SocketAddrV4>| worker.zip(by).is_some_and(|(worker, by)| *worker.ip() != by);
        let Entry::Occupied(mut entry) = self.leases.entry(key) else {
            return match self.history.find(&key) {
                Some(worker) if is_foreign(Some(worker)) => Ended::Foreign,
                Some(_) => Ended::Before,
                None => Ended::Unknown,
            };
        };
        let lease = *entry.get();
        if is_foreign(lease.worker) {
            return Ended::Foreign;
        }
        if lease.state != State::Out {
            return Ended::Before;
        }
        if key.is_extended() {
            entry.remove();
            lease.worker.into_iter().for_each(|worker| self.history.remember(now, &key, worker));
        } else {
            entry.get_mut().state = State::Done;
            self.over.push_back((now, key));
        }
        self.live -= 1;
        if let Some(ending) = self.out.get_mut((lease.number - self.first) as usize) {
            ending.over = true;
        }
        while self.out.front().is_some_and(|first| first.over) {
            self.out.pop_front();
            self.first += 1;
        }
        Ended::Now(lease)
    }

    /// A lease whose time is over.
    pub fn poll_expired(&mut self, now: Instant, attended: Instant) -> Option<(RequestKey, Lease)> {
        let first = self.out.front().copied().filter(|first| first.at <= attended)?;
        match self.end(now, first.key, None) {
            Ended::Now(lease) => Some((first.key, lease)),
            Ended::Before | Ended::Unknown | Ended::Foreign => None,
        }
    }

    /// Forgets what nobody repeats any more.
    pub fn forget(&mut self, now: Instant) {
        while let Some((at, key)) = self.over.front().copied()
            && now.since_ns(at) >= self.lifetime_ns
        {
            self.over.pop_front();
            if let Entry::Occupied(entry) = self.leases.entry(key)
                && entry.get().state == State::Done
            {
                entry.remove();
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
}
