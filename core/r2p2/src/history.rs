//! Requests of the extended mode that are over, for as long as somebody may repeat them: by the million, and small.
//!
//! A client numbers its requests one after the other. So eight in a row share a [`Row`] of 32 bytes: whose, which
//! eight, and where each one went. A busy client's request takes four bytes, and the line of the cache it is looked up
//! in is most often the one before's; a request all alone takes a row.
//!
//! Nothing is forgotten one by one. There are two tables: what ends goes into the *young* one, and after `remember_ns`
//! the *old* one is emptied (in no time: rows say which filling of the table they belong to) and they change places.
//! Whatever has ended is known for at least that long, and at most twice. A full table changes places early, and the
//! horizon tells what that loses.

use crate::horizon::Horizon;
use crate::served::RequestKey;
use core::hash::BuildHasher;
use core::net::SocketAddrV4;
use trunkline_call::{Instant, Keyed, KeyedMap};

/// Where requests that are over went.
#[derive(Debug)]
pub(crate) struct History {
    young: Table,
    old: Table,
    /// When the young table was empty.
    turned: Instant,
    remember_ns: u64,
    horizon: Horizon,
}

#[derive(Debug)]
struct Table {
    /// Open addressing: a power of two of them, a quarter of them free.
    rows: Vec<Row>,
    used: usize,
    used_max: usize,
    /// Which filling this is. Rows of another are free.
    filling: u16,
    keyed: Keyed,
    workers: Vec<SocketAddrV4>,
    /// Places in `workers`.
    places: KeyedMap<SocketAddrV4, u16>,
}

/// Eight requests of one client in a row: two rows fit a line of the cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
struct Row {
    name: Name,
    /// One more than the place of the worker each request went to; zero for none.
    went: [u16; ROW_REQUESTS],
}

/// Which eight: every bit of a request's name but the lowest three of its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Name {
    ip: u32,
    epoch: u32,
    port: u16,
    round: u16,
    ids: u16,
    /// To which filling of the table the row belongs.
    filling: u16,
}

const ROW_REQUESTS: usize = 8;
/// Rows a table begins with.
const ROWS_MIN: usize = 64;
/// Workers a table can name.
const WORKERS_MAX: usize = u16::MAX as usize - 1;

impl History {
    /// Tables of `rows_max` rows each.
    pub fn new(horizon: Horizon, remember_ns: u64, rows_max: usize, seed: u64, now: Instant) -> Self {
        let table = |seed| Table::new(rows_max, Keyed::new(seed));
        Self { young: table(seed), old: table(!seed), turned: now, remember_ns, horizon }
    }

    /// Where a request that is over went.
    pub fn find(&self, key: &RequestKey) -> Option<SocketAddrV4> {
        let (name, slot) = Name::of(key)?;
        self.young.find(name, slot).or_else(|| self.old.find(name, slot))
    }

    /// A request of the extended mode is over.
    pub fn remember(&mut self, now: Instant, key: &RequestKey, worker: SocketAddrV4) {
        let Some((name, slot)) = Name::of(key) else { return };
        if now.since_ns(self.turned) >= self.remember_ns || self.young.is_full() {
            self.turn(now);
        }
        self.young.insert(name, slot, worker);
    }

    /// Whether a request nobody knows may be one that was forgotten: [`Horizon::hides`].
    pub fn may_have_forgotten(&self, now: Instant, came: Instant, age_ns: u64) -> bool {
        self.horizon.hides(now, came, age_ns)
    }

    fn turn(&mut self, now: Instant) {
        if now.since_ns(self.turned) < self.remember_ns {
            // What is old ended before the tables last changed places.
            self.horizon.pass(self.turned);
        }
        std::mem::swap(&mut self.young, &mut self.old);
        self.young.empty();
        self.turned = now;
    }
}

impl Table {
    fn new(used_max: usize, keyed: Keyed) -> Self {
        Self {
            rows: vec![Row::default(); ROWS_MIN],
            used: 0,
            used_max: used_max.max(1),
            filling: 1,
            workers: Vec::new(),
            places: KeyedMap::with_hasher(keyed.clone()),
            keyed,
        }
    }

    fn is_full(&self) -> bool {
        self.used >= self.used_max || self.workers.len() >= WORKERS_MAX
    }

    fn find(&self, name: Name, slot: usize) -> Option<SocketAddrV4> {
        let row = &self.rows[self.place_of(name)];
        let place = usize::from(row.went[slot]).checked_sub(1)?;
        if self.is_used(row) { self.workers.get(place).copied() } else { None }
    }

    /// Only into a table that is not full.
    fn insert(&mut self, name: Name, slot: usize, worker: SocketAddrV4) {
        let went = self.place_of_worker(worker) + 1;
        let mut place = self.place_of(name);
        if !self.is_used(&self.rows[place]) {
            if (self.used + 1) * 4 > self.rows.len() * 3 {
                self.grow();
                place = self.place_of(name);
            }
            self.used += 1;
            let name = Name { filling: self.filling, ..name };
            self.rows[place] = Row { name, went: [0; ROW_REQUESTS] };
        }
        self.rows[place].went[slot] = went;
    }

    /// The place of a row, or the free one where it belongs.
    fn place_of(&self, name: Name) -> usize {
        let (name, mask) = (Name { filling: self.filling, ..name }, self.rows.len() - 1);
        let mut place = self.keyed.hash_one(name.words()) as usize & mask;
        while self.is_used(&self.rows[place]) && self.rows[place].name != name {
            place = (place + 1) & mask;
        }
        place
    }

    fn is_used(&self, row: &Row) -> bool {
        row.name.filling == self.filling
    }

    fn place_of_worker(&mut self, worker: SocketAddrV4) -> u16 {
        *self.places.entry(worker).or_insert_with(|| {
            self.workers.push(worker);
            self.workers.len() as u16 - 1
        })
    }

    fn grow(&mut self) {
        let doubled = vec![Row::default(); self.rows.len() * 2];
        let rows = std::mem::replace(&mut self.rows, doubled);
        for row in rows.into_iter().filter(|row| row.name.filling == self.filling) {
            let place = self.place_of(row.name);
            self.rows[place] = row;
        }
    }

    fn empty(&mut self) {
        self.filling = self.filling.wrapping_add(1);
        if self.filling == 0 {
            // Fillings have come round: rows of the one before last must not be taken for this one's.
            self.rows.fill(Row::default());
            self.filling = 1;
        }
        self.used = 0;
        self.workers.clear();
        self.places.clear();
    }
}

impl Name {
    /// The row of a request and its place there; `None` for a compatible one.
    fn of(key: &RequestKey) -> Option<(Self, usize)> {
        let identity = key.identity?;
        let (ip, port) = (u32::from(*key.client.ip()), key.client.port());
        let (ids, slot) = (key.id / ROW_REQUESTS as u16, usize::from(key.id) % ROW_REQUESTS);
        Some((Self { ip, port, epoch: identity.epoch, round: identity.round, ids, filling: 0 }, slot))
    }

    fn words(self) -> (u64, u64) {
        let (high, low) = (u64::from(self.ip) << 32, u64::from(self.epoch));
        (high | low, u64::from(self.port) << 32 | u64::from(self.round) << 16 | u64::from(self.ids))
    }
}

#[cfg(test)]
mod tests {
    //! Shows, beside a plain map of what has ended, that a history knows all of it for as long as it must, names the
    //! right worker, and says when it may not know; also when it is far too small, and when its fillings come round.
    use super::*;
    use crate::extension::Identity;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const REMEMBER_NS: u64 = 1000;

    fn key(client: u16, number: u32) -> RequestKey {
        let identity = Some(Identity { epoch: 7, round: (number >> 16) as u16 });
        RequestKey { client: address(client), id: number as u16, identity }
    }

    fn address(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new([10, 0, 0, 1].into(), port)
    }

    fn history(rows_max: usize) -> History {
        History::new(Horizon::new(0, REMEMBER_NS, Instant(0)), REMEMBER_NS, rows_max, 3, Instant(0))
    }

    #[test]
    fn a_row_is_half_a_line() {
        assert_eq!(size_of::<Row>(), 32);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_has_ended_is_known(
            rows_max in 1usize..200,
            ends in proptest::collection::vec((0u16..4, 0u32..400, 0u16..9, 0u64..40), 1..300),
        ) {
            let (mut history, mut now, mut ended) = (history(rows_max), Instant(0), HashMap::new());
            for (client, number, worker, pause_ns) in ends {
                now = now.plus_ns(pause_ns);
                let key = key(client, number << 13 | number);
                history.remember(now, &key, address(worker));
                ended.insert(key, (now, address(worker)));
                for (key, (at, worker)) in &ended {
                    let age_ns = now.since_ns(*at);
                    let found = history.find(key);
                    prop_assert!(found.is_none() || found == Some(*worker));
                    // Its first copy was sent before its end.
                    let is_known = found.is_some() || history.may_have_forgotten(now, now, age_ns + 1);
                    prop_assert!(is_known, "ended {age_ns} ns ago");
                    let early = age_ns < REMEMBER_NS && rows_max > 2 * ended.len();
                    prop_assert!(!early || found.is_some(), "there was room");
                }
            }
        }
    }

    #[test]
    fn fillings_that_come_round_bring_nothing_back() {
        let (mut history, first, other) = (history(1), key(1, 5), key(2, 5));
        history.remember(Instant(1), &first, address(1));
        let place = |key| history.young.place_of(Name::of(key).unwrap().0);
        assert_ne!(place(&first), place(&other), "the first one's row is left alone");
        for step in 0..2 * u32::from(u16::MAX) + 8 {
            history.remember(Instant(2), &other, address(2));
            assert_eq!(history.find(&first).is_some(), step == 0, "after {step}");
        }
    }

    #[test]
    fn a_million_requests_of_a_busy_client_take_four_bytes_each() {
        let mut history = history(1 << 18);
        (0..1 << 20).for_each(|number| history.remember(Instant(1), &key(1, number), address(1)));
        assert_eq!(history.young.used, 1 << 17);
        assert_eq!(history.find(&key(1, 0)), Some(address(1)));
        assert!(history.young.rows.len() * size_of::<Row>() <= 8 << 20);
    }
}
