//! The workers, by load.

use crate::bound::Bound;
use trunkline_call::Instant;

/// Classes a pool tells apart. A request of a higher class counts as class 0.
pub const CLASSES_MAX: usize = 32;

/// Workers of a group that are looked at for the one that ends soonest: as good as all, and a thousand cost no more.
const LOOKS: usize = 16;

/// A request's class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(u8);

/// Names a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkerKey {
    index: u32,
    generation: u32,
}

/// Workers that serve one class and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The class.
    pub class: Class,
    /// How many workers, as long as one is left for the others.
    pub workers: usize,
}

/// Every worker, and those of equal load together: the least loaded is found without a look at the others.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// One for shared workers, one for each reservation behind it.
    groups: Vec<Group>,
    reservations: Vec<Reservation>,
    len: usize,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    worker: Option<Worker>,
}

#[derive(Debug)]
struct Worker {
    /// What it works on at once.
    slots: u32,
    outstanding: u32,
    /// When the request it has in work was given out, or would have been to begin when it did: a travel later, word of
    /// its end could be here had it taken no time.
    began: Instant,
    group: usize,
    /// Where it lies in its group: load and place; `None` while it takes nothing.
    place: Option<(usize, usize)>,
}

#[derive(Debug, Default)]
struct Group {
    /// Workers by load: full rounds of their slots outstanding.
    levels: Vec<Vec<u32>>,
    /// Below this every level is empty.
    lowest: usize,
    members: usize,
}

/// The load from which on all count as equal: there is a list for each, and workers say themselves what they have.
const LEVEL_MAX: usize = Bound::FIXED_MAX as usize;

impl Class {
    /// The class of a number.
    pub fn new(number: u8) -> Self {
        Self(if usize::from(number) < CLASSES_MAX { number } else { 0 })
    }

    /// Its number.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

impl WorkerKey {
    /// Which of the places for workers is its own: below the largest number of workers there ever were at once.
    pub fn place(self) -> usize {
        self.index as usize
    }
}

impl Pool {
    pub fn new(reservations: Vec<Reservation>) -> Self {
        let groups = (0..=reservations.len()).map(|_| Group::default()).collect();
        Self { groups, reservations, ..Self::default() }
    }

    /// Workers are kept for these classes from now on.
    pub fn reserve(&mut self, reservations: Vec<Reservation>) {
        let has_place = |slot: &Slot| slot.worker.as_ref().is_some_and(|worker| worker.place.is_some());
        let placed: Vec<u32> =
            (0..).zip(&self.slots).filter(|(_, slot)| has_place(slot)).map(|(index, _)| index).collect();
        placed.iter().for_each(|index| self.displace(*index));
        self.groups = (0..=reservations.len()).map(|_| Group::default()).collect();
        self.reservations = reservations;
        self.slots.iter_mut().filter_map(|slot| slot.worker.as_mut()).for_each(|worker| worker.group = 0);
        placed.into_iter().for_each(|index| self.place(index));
        self.share_out();
    }

    pub fn insert(&mut self, slots: u32) -> WorkerKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.worker = Some(Worker {
            slots: slots.max(1),
            outstanding: 0,
            began: Instant::default(),
            group: 0,
            place: None,
        });
        let generation = slot.generation;
        self.len += 1;
        self.place(index);
        self.share_out();
        WorkerKey { index, generation }
    }

    pub fn remove(&mut self, key: WorkerKey) -> bool {
        if self.find(key).is_none() {
            return false;
        }
        self.displace(key.index);
        let slot = &mut self.slots[key.index as usize];
        slot.worker = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        self.len -= 1;
        self.share_out();
        true
    }

    /// A worker that rests gets nothing new.
    pub fn rest(&mut self, key: WorkerKey, rests: bool) {
        let Some(worker) = self.find(key) else { return };
        match (rests, worker.place.is_some()) {
            (true, true) => self.displace(key.index),
            (false, false) => self.place(key.index),
            _ => return,
        }
        self.share_out();
    }

    pub fn set_slots(&mut self, key: WorkerKey, slots: u32) {
        if self.find(key).is_some_and(|worker| worker.slots != slots.max(1)) {
            self.change(key.index, |worker| worker.slots = slots.max(1));
        }
    }

    pub fn take(&mut self, key: WorkerKey, now: Instant) {
        if self.find(key).is_some() {
            self.change(key.index, |worker| {
                worker.outstanding += 1;
                if worker.outstanding <= worker.slots {
                    worker.began = now;
                }
            });
        }
    }

    /// One of its requests has ended, and another begun if it had one in stock: see [`Worker::began`].
    pub fn begin(&mut self, key: WorkerKey, began: Instant) {
        if self.find(key).is_some() {
            self.change(key.index, |worker| worker.began = began);
        }
    }

    /// It has so many more, from before anybody here knew of it.
    pub fn adopt(&mut self, key: WorkerKey, count: u32) {
        if self.find(key).is_some() {
            self.change(key.index, |worker| {
                worker.outstanding = worker.outstanding.saturating_add(count);
                worker.began = Instant::default();
            });
        }
    }

    pub fn release(&mut self, key: WorkerKey, count: u32) {
        if self.find(key).is_some() {
            self.change(key.index, |worker| worker.outstanding = worker.outstanding.saturating_sub(count));
        }
    }

    pub fn outstanding(&self, key: WorkerKey) -> Option<u32> {
        self.find(key).map(|worker| worker.outstanding)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Workers that may get a request of the class.
    pub fn eligible(&self, class: Class) -> usize {
        self.groups_of(class).map(|group| self.groups[group].members).sum()
    }

    /// The load of the least loaded.
    pub fn least_load(&self, class: Class) -> Option<u32> {
        self.groups_of(class).filter_map(|group| self.groups[group].least()).min().map(|load| load as u32)
    }

    /// One of the least loaded; among equals those reserved for the class first.
    pub fn least_loaded(&self, class: Class, drawn: u64) -> Option<WorkerKey> {
        let least = self.least_load(class)? as usize;
        let group = self.groups_of(class).find(|group| self.groups[*group].least() == Some(least))?;
        let level = &self.groups[group].levels[least];
        Some(self.key(level[(drawn % level.len() as u64) as usize]))
    }

    /// Of workers with such a load, [`LOOKS`] of them from a place that was drawn, the one with the least of what
    /// `left_ns` says of the instant it began.
    pub fn soonest(
        &self,
        class: Class,
        load: u32,
        drawn: u64,
        left_ns: impl Fn(Instant) -> u64,
    ) -> Option<(u64, WorkerKey)> {
        let levels = self.groups_of(class).filter_map(|group| self.groups[group].levels.get(load as usize));
        let looks = levels.flat_map(|level| {
            let from = drawn as usize % level.len().max(1);
            (from..from + level.len().min(LOOKS)).map(|place| level[place % level.len()])
        });
        looks
            .filter_map(|index| {
                let worker = self.slots[index as usize].worker.as_ref()?;
                Some((left_ns(worker.began), self.key(index)))
            })
            .min_by_key(|(left_ns, _)| *left_ns)
    }

    /// The worker at a place among those eligible. The order changes as loads do; every place is some worker's.
    pub fn at(&self, class: Class, mut place: usize) -> Option<WorkerKey> {
        for group in self.groups_of(class) {
            for level in &self.groups[group].levels {
                match level.get(place) {
                    Some(index) => return Some(self.key(*index)),
                    None => place -= level.len(),
                }
            }
        }
        None
    }

    /// The next eligible worker behind `index` in the order they came.
    pub fn after(&self, class: Class, index: u32) -> Option<(WorkerKey, u32)> {
        let count = self.slots.len() as u32;
        (1..=count)
            .map(|step| (index + step) % count)
            .find(|index| self.serves(*index, class))
            .map(|index| (self.key(index), index))
    }

    /// The eligible worker with the highest score.
    pub fn highest(&self, class: Class, score: impl Fn(u32) -> u64) -> Option<WorkerKey> {
        let all = 0..self.slots.len() as u32;
        all.filter(|index| self.serves(*index, class))
            .max_by_key(|index| score(*index))
            .map(|index| self.key(index))
    }

    fn serves(&self, index: u32, class: Class) -> bool {
        let worker = self.slots.get(index as usize).and_then(|slot| slot.worker.as_ref());
        worker.is_some_and(|worker| {
            worker.place.is_some()
                && (worker.group == 0 || self.reservations[worker.group - 1].class == class)
        })
    }

    fn find(&self, key: WorkerKey) -> Option<&Worker> {
        let slot = self.slots.get(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        slot.worker.as_ref()
    }

    fn key(&self, index: u32) -> WorkerKey {
        WorkerKey { index, generation: self.slots[index as usize].generation }
    }

    /// Groups a class may use, its own first.
    fn groups_of(&self, class: Class) -> impl Iterator<Item = usize> {
        let own = self.reservations.iter().enumerate().filter(move |(_, one)| one.class == class);
        own.map(|(index, _)| index + 1).chain([0])
    }

    /// Moves workers between the groups until each reservation has its number, or only one shared worker is left.
    fn share_out(&mut self) {
        for index in 0..self.reservations.len() {
            let group = index + 1;
            // Those that rested while others took their places.
            while self.groups[group].members > self.reservations[index].workers {
                self.regroup(group, 0);
            }
        }
        for index in 0..self.reservations.len() {
            let group = index + 1;
            while self.groups[group].members < self.reservations[index].workers && self.groups[0].members > 1
            {
                self.regroup(0, group);
            }
        }
        let richest = (1..self.groups.len()).max_by_key(|group| self.groups[*group].members);
        if let Some(richest) = richest
            && self.groups[0].members == 0
            && self.groups[richest].members > 0
        {
            self.regroup(richest, 0);
        }
    }

    fn regroup(&mut self, from: usize, to: usize) {
        let member = self.groups[from].levels.iter().flatten().max().copied();
        let Some(index) = member else { return };
        self.displace(index);
        if let Some(worker) = &mut self.slots[index as usize].worker {
            worker.group = to;
        }
        self.place(index);
    }

    fn change(&mut self, index: u32, change: impl FnOnce(&mut Worker)) {
        let Some(worker) = &mut self.slots[index as usize].worker else { return };
        let before = worker.level();
        change(worker);
        if worker.place.is_some() && worker.level() != before {
            self.displace(index);
            self.place(index);
        }
    }

    fn place(&mut self, index: u32) {
        let Some(worker) = &mut self.slots[index as usize].worker else { return };
        let group = &mut self.groups[worker.group];
        let level = worker.level();
        if group.levels.len() <= level {
            group.levels.resize_with(level + 1, Vec::new);
        }
        worker.place = Some((level, group.levels[level].len()));
        group.levels[level].push(index);
        group.lowest = if group.members == 0 { level } else { group.lowest.min(level) };
        group.members += 1;
    }

    fn displace(&mut self, index: u32) {
        let Some(worker) = &mut self.slots[index as usize].worker else { return };
        let Some((level, place)) = worker.place.take() else { return };
        let group = &mut self.groups[worker.group];
        group.levels[level].swap_remove(place);
        group.members -= 1;
        let moved = group.levels[level].get(place).copied();
        while group.levels.get(group.lowest).is_some_and(Vec::is_empty) {
            group.lowest += 1;
        }
        if let Some(moved) = moved
            && let Some(worker) = &mut self.slots[moved as usize].worker
        {
            worker.place = Some((level, place));
        }
    }
}

impl Worker {
    fn level(&self) -> usize {
        ((self.outstanding / self.slots) as usize).min(LEVEL_MAX)
    }
}

impl Group {
    fn least(&self) -> Option<usize> {
        (self.members > 0).then_some(self.lowest)
    }
}
