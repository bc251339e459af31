//! The workers of a router: who is there.

use core::net::SocketAddrV4;
use trunkline_call::{Instant, Keyed, KeyedMap};
use trunkline_dispatch::WorkerKey;

/// Everyone who takes requests.
#[derive(Debug)]
pub(crate) struct Workers {
    /// By the places their keys name.
    pub places: Vec<Option<Worker>>,
    pub keys: KeyedMap<SocketAddrV4, WorkerKey>,
    /// How many have said that they are there.
    pub beating: usize,
    /// Nothing is to be done about any of them before that.
    pub look_at: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub address: SocketAddrV4,
    pub key: WorkerKey,
    pub slots: u32,
    /// Leases out there.
    pub out: u32,
    /// It takes what is sent on behalf of clients, by its last word, and this router sends such.
    pub takes_on_behalf: bool,
    /// When it last said that it is there; `None` for one that never does. This and `rests_until` are on the clock of
    /// [`crate::attention::Attention`].
    pub beat: Option<Instant>,
    /// Which start of it this is.
    pub epoch: u32,
    /// What it has served, as far as it has said.
    pub served: u64,
    /// Places freed by its count whose leases are still out: these lapse without freeing another.
    pub ahead: u32,
    /// Places freed by leases that ended by themselves, of whose requests its count has not told since: that it does
    /// frees no other.
    pub lapsed: u32,
    /// Requests it had when it was first heard of: from before this router began.
    pub adopted: u32,
    pub lapses: u32,
    pub rests_until: Option<Instant>,
    pub leaving: bool,
}

/// A worker, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerRow {
    /// Where it takes requests.
    pub address: SocketAddrV4,
    /// What it works on at once.
    pub slots: u32,
    /// What it has.
    pub outstanding: u32,
    /// Requests it has said it served.
    pub served: u64,
    /// Whether it is given nothing for now.
    pub rests: bool,
}

impl Workers {
    pub fn new(seed: u64) -> Self {
        let keys = KeyedMap::with_hasher(Keyed::new(seed));
        Self { places: Vec::new(), keys, beating: 0, look_at: None }
    }

    pub fn by_key(&mut self, key: WorkerKey) -> Option<&mut Worker> {
        self.places.get_mut(key.place())?.as_mut().filter(|worker| worker.key == key)
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether every worker understands the extended mode.
    pub fn are_all_extended(&self) -> bool {
        !self.is_empty() && self.beating == self.keys.len()
    }

    /// When to look at them, on the clock their beats are noted by; perhaps early, for they may have been heard since.
    pub fn next_look(&self) -> Option<Instant> {
        self.look_at
    }

    /// Whether what goes there may be sent on behalf of its client.
    pub fn takes_on_behalf(&self, address: SocketAddrV4) -> bool {
        let place = self.keys.get(&address).map(|key| key.place());
        let worker = place.and_then(|place| self.places[place].as_ref());
        worker.is_some_and(|worker| worker.takes_on_behalf)
    }

    pub fn key_of(&self, address: SocketAddrV4) -> Option<WorkerKey> {
        self.keys.get(&address).copied()
    }

    pub fn insert(&mut self, worker: Worker) {
        let place = worker.key.place();
        self.keys.insert(worker.address, worker.key);
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place] = Some(worker);
    }

    pub fn remove(&mut self, key: WorkerKey) -> Option<Worker> {
        let worker = self.places.get_mut(key.place())?.take_if(|worker| worker.key == key)?;
        self.keys.remove(&worker.address);
        self.beating -= usize::from(worker.beat.is_some());
        Some(worker)
    }

    /// Looks at them at that time at the latest.
    pub fn look_by(&mut self, at: Instant) {
        self.look_at = Some(self.look_at.map_or(at, |booked| booked.min(at)));
    }
}
