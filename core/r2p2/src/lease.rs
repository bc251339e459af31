//! A lease for every request a router has sent on: it ends with FEEDBACK, or by itself.

use crate::extension::Reason;
use crate::history::History;
use crate::horizon::Horizon;
use crate::router_config::RouterConfig;
use crate::served::RequestKey;
use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use trunkline_call::{Instant, Keyed, KeyedMap, TimerKey, TimerTable};
use trunkline_dispatch::{WaitingKey, WorkerKey};

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits here.
    Queued,
    /// At a worker.
    Out,
    /// Over. Remembered, so that a repetition is not taken for a new request.
    Done,
    /// Over: no worker has had it, and its client was told so. Remembered, so that no repetition goes to one.
    Refused(Reason),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub state: State,
    /// Since when.
    pub since: Instant,
    /// The worker's address: repetitions go there even when it is done.
    pub worker: Option<SocketAddrV4>,
    pub key: Option<WorkerKey>,
    /// How long it had waited before it went out.
    pub waited_ns: u64,
    /// What a long compatible request begins with, as a hash: tells it from another of its name.
    print: u64,
    /// Which of all that ever went out it is, if it did; which of all that waited, if it waits.
    number: u64,
    /// It is out for less than the longest lease, and this ends it.
    timer: Option<TimerKey>,
    /// Where it waits, if it does.
    pub waiting: Option<WaitingKey>,
}

/// In the place of a worker's address: there was none, and why is said in the place of its port.
const NO_WORKER: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

/// A request that goes to a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub key: RequestKey,
    pub print: u64,
    pub worker: (WorkerKey, SocketAddrV4),
    /// How long it waited before.
    pub waited_ns: u64,
    /// Longest time it is there without a word.
    pub lease_ns: u64,
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
    /// Those out for the longest lease, in the order they went, which is that of their numbers and of their ends. The
    /// first is always out; behind it are some that have ended.
    out: VecDeque<Ending>,
    /// Those out for less, which may end before others that went first.
    shortened: TimerTable<RequestKey>,
    /// The number of the first.
    first: u64,
    /// Compatible ones that are over: their names may be used again as soon as no datagram is under way any more.
    over: VecDeque<(Instant, RequestKey)>,
    /// Extended ones that are over.
    history: History,
    /// How many have ever waited.
    waited: u64,
    lifetime_ns: u64,
    lease_ns_max: u64,
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
        Self {
            state,
            since,
            worker: None,
            key: None,
            waited_ns: 0,
            print: 0,
            number: 0,
            timer: None,
            waiting: None,
        }
    }
}

impl Leases {
    pub fn new(config: &RouterConfig, now: Instant) -> Self {
        let horizon = Horizon::new(config.lifetime_ns, config.remember_ns, now);
        let (remember_ns, rows_max, seed) = (config.remember_ns, config.remembered_rows_max, config.seed);
        Self {
            leases: KeyedMap::with_hasher(Keyed::new(seed)),
            out: VecDeque::new(),
            shortened: TimerTable::new(),
            first: 0,
            over: VecDeque::new(),
            history: History::new(horizon, remember_ns, rows_max, seed, now),
            waited: 0,
            lifetime_ns: config.lifetime_ns,
            lease_ns_max: config.lease_ns,
            count_max: config.leases_max,
            live: 0,
        }
    }

    pub fn find(&self, key: &RequestKey) -> Option<Lease> {
        self.leases.get(key).copied().or_else(|| {
            let worker = self.history.find(key)?;
            let over = |state| Lease::new(state, Instant::default());
            Some(match reason_at(worker) {
                Some(reason) => over(State::Refused(reason)),
                None => Lease { worker: Some(worker), ..over(State::Done) },
            })
        })
    }

    /// The number of the next request that waits.
    pub fn next_waiting(&self) -> u64 {
        self.waited
    }

    /// A request waits here, under that number, and there in the dispatcher's queue.
    pub fn queue(&mut self, now: Instant, key: RequestKey, print: u64, waiting: WaitingKey) {
        let (number, waiting) = (self.waited, Some(waiting));
        self.waited += 1;
        self.insert(key, Lease { print, number, waiting, ..Lease::new(State::Queued, now) });
    }

    /// Whether the request that waits under this name is the one of that number, and not one that came for it.
    pub fn waits(&self, key: &RequestKey, number: u64) -> bool {
        self.leases.get(key).is_some_and(|lease| lease.state == State::Queued && lease.number == number)
    }

    /// A request goes to a worker; `attended` is the time on the clock leases end by.
    pub fn send_out(&mut self, now: Instant, attended: Instant, sent: Sent) {
        let Sent { key, print, worker: (worker_key, address), waited_ns, lease_ns } = sent;
        let (number, at) = (self.first + self.out.len() as u64, attended.plus_ns(lease_ns));
        let (worker, worker_key) = (Some(address), Some(worker_key));
        let timer = (lease_ns < self.lease_ns_max).then(|| self.shortened.insert(at, key));
        let lease =
            Lease { number, timer, worker, key: worker_key, waited_ns, print, ..Lease::new(State::Out, now) };
        if timer.is_none() {
            self.out.push_back(Ending { at, key, over: false });
        }
        self.insert(key, lease);
    }

    /// Whether a first packet of a known compatible request is of another one: nobody repeats those, so only one as old
    /// as the network holds datagrams may be the same once more.
    pub fn is_another(&self, came: Instant, lease: &Lease, print: u64) -> bool {
        came.since_ns(lease.since) > self.lifetime_ns || lease.print != print
    }

    /// One that is not known, or was taken out, goes nowhere.
    pub fn refuse(&mut self, now: Instant, key: &RequestKey, reason: Reason) {
        self.history.remember(now, key, SocketAddrV4::new(NO_WORKER, reason as u16));
    }

    /// Takes out one that never went anywhere.
    pub fn remove(&mut self, key: &RequestKey) {
        if self.leases.remove(key).is_some() {
            self.live -= 1;
        }
    }

    /// Takes back one that was to go out and did not: its request is not known any more.
    pub fn withdraw(&mut self, key: &RequestKey) -> Option<Lease> {
        let lease = self.leases.get(key).copied().filter(|lease| lease.state == State::Out)?;
        self.remove(key);
        self.end_timer(&lease);
        Some(lease)
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
        self.end_timer(&lease);
        Ended::Now(lease)
    }

    /// A lease whose time is over.
    pub fn poll_expired(&mut self, now: Instant, attended: Instant) -> Option<(RequestKey, Lease)> {
        let longest = self.out.front().filter(|first| first.at <= attended).map(|first| first.key);
        let key = longest.or_else(|| self.next_shortened(attended))?;
        match self.end(now, key, None) {
            Ended::Now(lease) => Some((key, lease)),
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

    pub fn may_have_forgotten(&self, now: Instant, came: Instant, age_ns: u64) -> bool {
        self.history.may_have_forgotten(now, came, age_ns)
    }

    pub fn is_full(&self) -> bool {
        self.live >= self.count_max
    }

    /// Waiting or out.
    pub fn live(&self) -> usize {
        self.live
    }

    /// When the first lease ends by itself, on the clock leases end by.
    pub fn next_end(&mut self) -> Option<Instant> {
        self.out.front().map(|first| first.at).into_iter().chain(self.shortened.next_due()).min()
    }

    /// It ends by itself no more.
    fn end_timer(&mut self, lease: &Lease) {
        match lease.timer {
            Some(timer) => _ = self.shortened.cancel(timer),
            None => self.end_longest(lease.number),
        }
    }

    /// Ends the longest lease of that number.
    fn end_longest(&mut self, number: u64) {
        if let Some(ending) = self.out.get_mut((number - self.first) as usize) {
            ending.over = true;
        }
        while self.out.front().is_some_and(|first| first.over) {
            self.out.pop_front();
            self.first += 1;
        }
    }

    /// The shortened lease whose time is over, if there is one. It stays.
    fn next_shortened(&mut self, attended: Instant) -> Option<RequestKey> {
        self.shortened.first().filter(|(at, _)| *at <= attended).map(|(_, key)| *key)
    }

    fn insert(&mut self, key: RequestKey, lease: Lease) {
        if self.leases.insert(key, lease).is_none_or(|known| known.state == State::Done) {
            self.live += 1;
        }
    }
}

/// Why a request went to no worker, where its history says that instead of one.
fn reason_at(worker: SocketAddrV4) -> Option<Reason> {
    Reason::ALL.get(usize::from(worker.port())).copied().filter(|_| *worker.ip() == NO_WORKER)
}

#[cfg(test)]
mod tests {
    //! Shows that every lease ends at its time, whatever others went before it, and that what has ended takes no room.
    use super::*;

    const MS: u64 = 1_000_000;

    fn leases() -> Leases {
        Leases::new(&RouterConfig { lease_ns: 1000 * MS, ..RouterConfig::default() }, Instant(0))
    }

    fn key(port: u16) -> RequestKey {
        RequestKey { client: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), port), id: 1, identity: None }
    }

    fn send(leases: &mut Leases, at: Instant, port: u16, lease_ns: u64) {
        let mut workers = trunkline_dispatch::Dispatcher::<()>::new(trunkline_dispatch::Settings::default());
        let worker = (workers.join(1), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8000));
        leases.send_out(at, at, Sent { key: key(port), print: 0, worker, waited_ns: 0, lease_ns });
    }

    #[test]
    fn a_shortened_lease_ends_before_longer_ones_that_went_first() {
        let mut leases = leases();
        for (port, lease_ms) in [(1, 1000), (2, 40), (3, 1000), (4, 20), (5, 30)] {
            send(&mut leases, Instant(u64::from(port)), port, lease_ms * MS);
        }
        assert!(matches!(leases.end(Instant(9), key(5), None), Ended::Now(_)));
        let mut ended = Vec::new();
        while let Some(at) = leases.next_end() {
            let (over, _) = leases.poll_expired(at, at).expect("one is due");
            assert!(leases.poll_expired(at, at).is_none());
            ended.push((over.client.port(), at.0 / MS));
        }
        assert_eq!(ended, [(4, 20), (2, 40), (1, 1000), (3, 1000)]);
        assert_eq!(leases.live(), 0);
    }

    #[test]
    fn shortened_leases_that_have_ended_take_no_room() {
        let mut leases = leases();
        for round in 0..10_000u64 {
            let now = Instant(round * 20_000 * MS);
            send(&mut leases, now, 1, 500 * MS);
            assert!(matches!(leases.end(now, key(1), None), Ended::Now(_)));
            leases.forget(now.plus_ns(10_000 * MS));
        }
        assert_eq!((leases.live(), leases.shortened.len(), leases.next_end()), (0, 0, None));
    }
}
