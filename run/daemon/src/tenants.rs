//! Whose turn it is: deficit round robin over the tenants whose applications are attached to a shard.
//!
//! A tenant is a user, unless the configuration puts an application elsewhere: by its control group or by what it
//! serves (`config/tenants.rs`). Every round each gets a credit in bytes by its weight, and the entries its
//! applications have published are paid with it: what they make a shard do, and the bytes it moves for them. Entries of
//! a server are paid by whoever made the call, and blocks are given back for nothing: they were paid when they came.
//!
//! Who has used its credit up waits for the next round, and that begins when nobody in credit wants anything. A round
//! is not a turn of the shard, in which a session has less than its tenant's credit: of messages of some KiB a turn
//! takes so few that with a round in each nobody would ever have used up anything, and all would have the same. Whoever
//! wants nothing keeps nothing for later, and nobody waits for a credit that nobody else wants.
//!
//! Who has gone has what is left of its credit, and what it owes, when it comes again: to detach and attach is no way
//! to a new credit. It is forgotten when as many rounds have passed as make it whole.

use crate::config::{Tenant as Table, TenantCandidate};
use std::collections::HashMap;
use trunkline_engine::SessionKey;

/// Credit of one round, for the user with the largest weight: as long as nobody else wants anything it makes no
/// difference, and beside others it is what one of them waits for the other, some tens of microseconds.
const ROUND_BYTES: i64 = 256 << 10;
/// What an entry costs beside its bytes: about as much of a shard's time as these bytes.
const ENTRY_BYTES: i64 = 4 << 10;

/// Tenants remembered that have gone with less than a whole credit: those who owe least are forgotten first.
const GONE_MAX: usize = 256;

/// The tenants of a shard. Bounded by the sessions that are attached, and [`GONE_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    /// As configured; who fits none is a user of weight 1.
    tables: Vec<Table>,
    weight_max: u32,
    /// What one unit of weight gets in a round.
    unit_bytes: i64,
    by_identity: HashMap<Box<str>, usize>,
    tenants: Vec<Tenant>,
    free: Vec<usize>,
    of_session: HashMap<SessionKey, usize>,
    /// Those that have gone with less than a whole credit.
    gone: HashMap<Box<str>, GoneTenant>,
    /// Sessions whose entries wait for credit in this turn.
    waiting: Vec<SessionKey>,
    /// Somebody in credit has had something done in this turn.
    has_paid: bool,
}

#[derive(Debug)]
struct Tenant {
    identity: Box<str>,
    sessions: u32,
    round_bytes: i64,
    credit_bytes: i64,
}

/// What a tenant that has gone would have.
#[derive(Clone, Copy, Debug)]
struct GoneTenant {
    round_bytes: i64,
    credit_bytes: i64,
}

impl Tenants {
    /// With these weights.
    pub fn new(tables: Vec<Table>) -> Self {
        let weight_max = tables.iter().map(|table| table.weight).max().unwrap_or(1).max(1);
        let unit_bytes = (ROUND_BYTES / i64::from(weight_max)).max(1);
        Self { tables, weight_max, unit_bytes, ..Self::default() }
    }

    /// A session is there, or another is known about it. Whose share it has part of, its weight, and the largest.
    pub fn enter(&mut self, session: SessionKey, applicant: &TenantCandidate<'_>) -> (Box<str>, u32, u32) {
        let tables = std::mem::take(&mut self.tables);
        let (name, weight) = Table::of(&tables, applicant);
        self.leave(session);
        let index = match self.by_identity.get(&*name) {
            Some(index) => *index,
            None => self.insert(&name, weight),
        };
        self.tenants[index].sessions += 1;
        self.of_session.insert(session, index);
        let share = (Box::from(&*name), weight, self.weight_max);
        self.tables = tables;
        share
    }

    /// Whether what an application serves may decide about its share.
    pub fn go_by_services(&self) -> bool {
        self.tables.iter().any(|table| table.service.is_some())
    }

    /// A session has gone, and with the last one its user.
    pub fn leave(&mut self, session: SessionKey) {
        let Some(index) = self.of_session.remove(&session) else { return };
        let tenant = &mut self.tenants[index];
        tenant.sessions -= 1;
        if tenant.sessions > 0 {
            return;
        }
        self.by_identity.remove(&tenant.identity);
        self.free.push(index);
        let Tenant { round_bytes, credit_bytes, .. } = *tenant;
        if credit_bytes < round_bytes {
            let identity = std::mem::take(&mut tenant.identity);
            self.remember(identity, GoneTenant { round_bytes, credit_bytes });
        }
    }

    /// Whether there are several, so that any of this matters.
    pub fn are_several(&self) -> bool {
        self.by_identity.len() > 1
    }

    /// A turn of the shard begins.
    pub fn begin_turn(&mut self) {
        self.waiting.clear();
        self.has_paid = false;
    }

    /// Whether a session's tenant is in credit.
    pub fn may_go(&self, session: SessionKey) -> bool {
        self.tenant(session).is_none_or(|tenant| tenant.credit_bytes > 0)
    }

    /// Whether two sessions have part of one share.
    pub fn are_one(&self, session: SessionKey, other: SessionKey) -> bool {
        session == other || self.of_session.get(&session) == self.of_session.get(&other)
    }

    /// A session has entries, and has to wait.
    pub fn wait(&mut self, session: SessionKey) {
        if self.waiting.last() != Some(&session) {
            self.waiting.push(session);
        }
    }

    /// An entry and `bytes` were dealt with for a session.
    pub fn charge(&mut self, session: SessionKey, bytes: u32) {
        let Some(index) = self.of_session.get(&session) else { return };
        let credit_bytes = &mut self.tenants[*index].credit_bytes;
        self.has_paid |= *credit_bytes > 0;
        *credit_bytes -= ENTRY_BYTES + i64::from(bytes);
    }

    /// If nobody in credit wanted anything in this turn: so many rounds at once that one who waits is in credit. Those
    /// that may go now. What is left of the last round lapses.
    pub fn relieve(&mut self) -> Vec<SessionKey> {
        let waiting = std::mem::take(&mut self.waiting);
        if self.has_paid {
            return Vec::new();
        }
        let rounds = |tenant: &Tenant| 1 - tenant.credit_bytes.min(0) / tenant.round_bytes;
        let least = waiting.iter().filter_map(|session| self.tenant(*session)).map(rounds).min();
        let Some(least) = least else { return Vec::new() };
        for tenant in &mut self.tenants {
            tenant.credit_bytes = (tenant.credit_bytes + least * tenant.round_bytes).min(tenant.round_bytes);
        }
        self.gone.retain(|_, gone| {
            gone.credit_bytes += least * gone.round_bytes;
            gone.credit_bytes < gone.round_bytes
        });
        waiting.into_iter().filter(|session| self.may_go(*session)).collect()
    }

    fn tenant(&self, session: SessionKey) -> Option<&Tenant> {
        self.of_session.get(&session).map(|index| &self.tenants[*index])
    }

    fn insert(&mut self, identity: &str, weight: u32) -> usize {
        let round_bytes = self.unit_bytes * i64::from(weight.max(1));
        let left_bytes = self.gone.remove(identity).map_or(round_bytes, |gone| gone.credit_bytes);
        let credit_bytes = left_bytes.min(round_bytes);
        let tenant = Tenant { identity: identity.into(), sessions: 0, round_bytes, credit_bytes };
        let index = match self.free.pop() {
            Some(index) => {
                self.tenants[index] = tenant;
                index
            }
            None => {
                self.tenants.push(tenant);
                self.tenants.len() - 1
            }
        };
        self.by_identity.insert(identity.into(), index);
        index
    }

    fn remember(&mut self, identity: Box<str>, gone: GoneTenant) {
        if self.gone.len() >= GONE_MAX {
            // In rounds: who owes least is whole soonest.
            let owed = |gone: &GoneTenant| (gone.round_bytes - gone.credit_bytes) / gone.round_bytes;
            let least = self.gone.iter().min_by_key(|(_, gone)| owed(gone));
            let Some((least, _)) = least.filter(|(_, least)| owed(least) <= owed(&gone)) else { return };
            let least = least.clone();
            self.gone.remove(&least);
        }
        self.gone.insert(identity, gone);
    }
}

#[cfg(test)]
mod tests {
    //! Shows that shares follow weights, in calls and in bytes, that who is alone has all, and that nothing is kept.
    use super::*;
    use crate::turn::{ENTRIES_PER_TURN, TURN_BYTES_BESIDE};

    fn session(number: u64) -> SessionKey {
        SessionKey::from_bits(number)
    }

    /// Lets sessions, each with entries of so many bytes without end, go for a while, as a shard does. The entries each
    /// had.
    fn turns(tenants: &mut Tenants, wants: &[(SessionKey, u32)], turns: usize) -> Vec<u64> {
        let mut had = vec![0; wants.len()];
        for turn in 0..turns {
            tenants.begin_turn();
            let before = had.clone();
            for index in (0..wants.len()).map(|index| (turn + index) % wants.len()) {
                had[index] += drain(tenants, wants[index]);
            }
            for session in tenants.relieve() {
                let index = wants.iter().position(|(one, _)| *one == session).unwrap();
                had[index] += drain(tenants, wants[index]);
            }
            assert_ne!(before, had, "a turn goes by unused");
        }
        had
    }

    /// What a session has done in one visit.
    fn drain(tenants: &mut Tenants, (session, bytes): (SessionKey, u32)) -> u64 {
        let mut left = TURN_BYTES_BESIDE as u32;
        for taken in 0..ENTRIES_PER_TURN {
            if left == 0 {
                return taken as u64;
            }
            if !tenants.may_go(session) {
                tenants.wait(session);
                return taken as u64;
            }
            tenants.charge(session, bytes);
            left = left.saturating_sub(bytes);
        }
        ENTRIES_PER_TURN as u64
    }

    fn user(identity: &str) -> TenantCandidate<'_> {
        TenantCandidate { identity, ..TenantCandidate::default() }
    }

    fn three_to_one() -> Tenants {
        let mut tenants = Tenants::new(vec![Table { uid: Some(1), weight: 3, ..Table::default() }]);
        tenants.enter(session(1), &user("uid:1"));
        tenants.enter(session(2), &user("uid:2"));
        tenants
    }

    #[test]
    fn control_groups_and_services_are_tenants_too() {
        let mut tenants = Tenants::new(vec![
            Table { service: Some("pay.v1.*".into()), weight: 6, ..Table::default() },
            Table { cgroup: Some("/system.slice/shop*".into()), weight: 3, ..Table::default() },
            Table { uid: Some(1), weight: 2, ..Table::default() },
        ]);
        let share = |tenants: &mut Tenants, cgroup: &str, services: &[&str]| {
            let services: Vec<Box<str>> = services.iter().map(|name| (*name).into()).collect();
            let applicant = TenantCandidate { identity: "uid:1", cgroup, services: &services };
            tenants.enter(session(1), &applicant)
        };
        assert_eq!(share(&mut tenants, "", &[]), ("uid:1".into(), 2, 6));
        assert_eq!(share(&mut tenants, "/user.slice", &["pay.v2.Pay"]), ("uid:1".into(), 2, 6));
        let shop = share(&mut tenants, "/system.slice/shop.service", &[]);
        assert_eq!(shop, ("cgroup:/system.slice/shop*".into(), 3, 6));
        let pay = share(&mut tenants, "/system.slice/shop.service", &["a.B", "pay.v1.Pay"]);
        assert_eq!(pay, ("service:pay.v1.*".into(), 6, 6), "the first table that fits");
        assert_eq!(tenants.by_identity.len(), 1, "it has left what it was before");
        tenants.enter(session(2), &user("uid:7"));
        let had = turns(&mut tenants, &[(session(1), 4096), (session(2), 4096)], 20_000);
        let ratio = had[0] as f64 / had[1] as f64;
        assert!((5.7..=6.3).contains(&ratio), "{had:?}");
    }

    #[test]
    fn weights_are_shares_of_calls_and_of_bytes() {
        for bytes in [0, 64, 4096, 100_000, 1 << 20, 64 << 20] {
            let had = turns(&mut three_to_one(), &[(session(1), bytes), (session(2), bytes)], 5_000);
            let ratio = had[0] as f64 / had[1] as f64;
            assert!((2.85..=3.15).contains(&ratio), "{bytes} bytes: {had:?}, {ratio}");
        }
        let had = turns(&mut three_to_one(), &[(session(1), 1 << 20), (session(2), 64)], 20_000);
        let cost = |entries: u64, bytes: i64| entries as f64 * (bytes + ENTRY_BYTES) as f64;
        let ratio = cost(had[0], 1 << 20) / cost(had[1], 64);
        assert!((2.7..=3.3).contains(&ratio), "large beside small: {had:?}, {ratio}");
    }

    /// A shard takes less of a session in a turn than a round is worth.
    #[test]
    fn a_round_is_not_a_turn() {
        for bytes in [1 << 10, 4 << 10, 16 << 10, 64 << 10, 200 << 10] {
            let had = turns(&mut three_to_one(), &[(session(1), bytes), (session(2), bytes)], 5_000);
            let ratio = had[0] as f64 / had[1] as f64;
            assert!((2.95..=3.05).contains(&ratio), "{bytes} bytes: {had:?}, {ratio}");
        }
    }

    /// A session of somebody else's, whose entries they pay, has no say in whose turn it is.
    #[test]
    fn what_is_done_on_behalf_of_others_is_theirs_to_pay() {
        let mut tenants = three_to_one();
        tenants.enter(session(3), &user("uid:3"));
        let mut had = [0_u64; 2];
        for _ in 0..5_000 {
            tenants.begin_turn();
            let mut calls = [drain(&mut tenants, (session(1), 64)), drain(&mut tenants, (session(2), 64))];
            for key in tenants.relieve() {
                calls[usize::from(key == session(2))] += drain(&mut tenants, (key, 64));
            }
            // The server answers at once, whoever is in debt.
            for (index, calls) in calls.into_iter().enumerate() {
                (0..calls).for_each(|_| tenants.charge(session(index as u64 + 1), 100_000));
                had[index] += calls;
            }
        }
        assert!(tenants.may_go(session(3)) && !tenants.are_one(session(1), session(3)));
        let ratio = had[0] as f64 / had[1] as f64;
        assert!((2.85..=3.15).contains(&ratio), "{had:?}, {ratio}");
    }

    #[test]
    fn many_sessions_of_a_user_have_what_one_has() {
        let mut tenants = three_to_one();
        let many: Vec<_> = (10..20).map(|number| (session(number), 64)).collect();
        many.iter().for_each(|(session, _)| drop(tenants.enter(*session, &user("uid:2"))));
        let wants = [&[(session(1), 64)][..], &many].concat();
        let had = turns(&mut tenants, &wants, 10_000);
        let ratio = had[0] as f64 / had[1..].iter().sum::<u64>() as f64;
        assert!((2.85..=3.15).contains(&ratio), "{had:?}");
    }

    /// Nor does a credit that is used up come back with a new session.
    #[test]
    fn who_comes_again_has_what_it_left() {
        let mut tenants = three_to_one();
        let mut had = [0_u64; 2];
        for turn in 0..20_000 {
            // The second comes anew whenever it has been served.
            let wants = [(session(1), 100_000), (session(2), 100_000)];
            tenants.begin_turn();
            for index in [turn % 2, 1 - turn % 2] {
                had[index] += drain(&mut tenants, wants[index]);
            }
            for key in tenants.relieve() {
                had[usize::from(key == session(2))] += drain(&mut tenants, (key, 100_000));
            }
            tenants.leave(session(2));
            tenants.enter(session(2), &user("uid:2"));
        }
        let ratio = had[0] as f64 / had[1] as f64;
        assert!((2.85..=3.15).contains(&ratio), "{had:?}, {ratio}");
        tenants.leave(session(2));
        tenants.enter(session(3), &user("uid:3"));
        turns(&mut tenants, &[(session(1), 1 << 20), (session(3), 1 << 20)], 1000);
        assert!(tenants.gone.is_empty(), "{:?}", tenants.gone);
    }

    #[test]
    fn few_of_those_who_have_gone_are_remembered_and_those_who_owe_most() {
        let mut tenants = Tenants::new(Vec::new());
        for number in 0..4 * GONE_MAX as u64 {
            let identity = format!("uid:{number}");
            tenants.enter(session(number), &user(&identity));
            tenants.charge(session(number), if number % 8 == 0 { 64 << 20 } else { 64 });
            tenants.leave(session(number));
        }
        assert_eq!(tenants.gone.len(), GONE_MAX);
        let heavy = tenants.gone.values().filter(|gone| gone.credit_bytes < 0).count();
        assert_eq!(heavy, 4 * GONE_MAX / 8);
    }

    #[test]
    fn who_is_alone_has_all() {
        let mut tenants = three_to_one();
        assert_eq!(turns(&mut tenants, &[(session(2), 1 << 30)], 100), [100], "one entry in each turn");
        assert!(tenants.are_several());
        // And what it had meanwhile is not held against it for longer than one entry is worth.
        let had = turns(&mut tenants, &[(session(1), 64), (session(2), 64)], 100_000);
        assert!(had[1] > 0, "{had:?}");
        tenants.leave(session(1));
        tenants.leave(session(1));
        assert!(!tenants.are_several() && tenants.tenants[tenants.free[0]].sessions == 0);
        tenants.enter(session(3), &user("uid:3"));
        assert_eq!((tenants.tenants.len(), tenants.free.len()), (2, 0), "a place is used again");
    }
}
