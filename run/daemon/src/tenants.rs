//! Whose turn it is: deficit round robin over the users whose applications are attached to a shard.
//!
//! Every round each user gets a credit in bytes by its weight, and the entries its applications have published are
//! paid with it: what they make a shard do, and the bytes it moves for them. Entries of a server are paid by whoever
//! made the call. Who has used its credit up waits for the next rounds; whoever wants nothing keeps nothing for later.
//! If all that have something to do are in debt, rounds are given until one of them is not: nobody waits for a credit
//! that nobody else wants.

use std::collections::HashMap;
use trunkline_engine::SessionKey;

/// Credit of one round, for the user with the largest weight: as long as nobody else wants anything it makes no
/// difference, and beside others it is what one of them waits for the other, some tens of microseconds.
const ROUND_BYTES: i64 = 256 << 10;
/// What an entry costs beside its bytes: about as much of a shard's time as these bytes.
const ENTRY_BYTES: i64 = 4 << 10;

/// The users of a shard. Bounded by the sessions that are attached.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    /// As configured, by what the engine knows a user as; one who is not named has weight 1.
    weights: HashMap<Box<str>, u32>,
    /// What one unit of weight gets in a round.
    unit_bytes: i64,
    by_identity: HashMap<Box<str>, usize>,
    tenants: Vec<Tenant>,
    free: Vec<usize>,
    of_session: HashMap<SessionKey, usize>,
}

#[derive(Debug)]
struct Tenant {
    identity: Box<str>,
    sessions: u32,
    round_bytes: i64,
    credit_bytes: i64,
}

impl Tenants {
    /// With these weights, each of a user.
    pub fn new(weights: HashMap<Box<str>, u32>) -> Self {
        let largest = weights.values().copied().max().unwrap_or(1).max(1);
        let unit_bytes = (ROUND_BYTES / i64::from(largest)).max(1);
        Self { weights, unit_bytes, ..Self::default() }
    }

    /// A session of this user is there.
    pub fn enter(&mut self, session: SessionKey, identity: &str) {
        self.leave(session);
        let index = match self.by_identity.get(identity) {
            Some(index) => *index,
            None => self.insert(identity),
        };
        self.tenants[index].sessions += 1;
        self.of_session.insert(session, index);
    }

    /// A session has gone, and with the last one its user.
    pub fn leave(&mut self, session: SessionKey) {
        let Some(index) = self.of_session.remove(&session) else { return };
        let tenant = &mut self.tenants[index];
        tenant.sessions -= 1;
        if tenant.sessions == 0 {
            self.by_identity.remove(&tenant.identity);
            self.free.push(index);
        }
    }

    /// Whether there are several, so that any of this matters.
    pub fn are_several(&self) -> bool {
        self.by_identity.len() > 1
    }

    /// Everybody's credit of one round. What is left of the last one lapses.
    pub fn begin_round(&mut self) {
        for tenant in &mut self.tenants {
            tenant.credit_bytes = (tenant.credit_bytes + tenant.round_bytes).min(tenant.round_bytes);
        }
    }

    /// Whether a session's entries may be taken now.
    pub fn may_go(&self, session: SessionKey) -> bool {
        self.tenant(session).is_none_or(|tenant| tenant.credit_bytes > 0)
    }

    /// An entry and `bytes` were dealt with for a session.
    pub fn charge(&mut self, session: SessionKey, bytes: u32) {
        if let Some(index) = self.of_session.get(&session) {
            self.tenants[*index].credit_bytes -= ENTRY_BYTES + i64::from(bytes);
        }
    }

    /// All that have something to do are in debt: so many rounds at once that one of these sessions is not.
    pub fn relieve(&mut self, in_debt: &[SessionKey]) {
        let rounds = |tenant: &Tenant| 1 - tenant.credit_bytes.min(0) / tenant.round_bytes;
        let least = in_debt.iter().filter_map(|session| self.tenant(*session)).map(rounds).min();
        let Some(least) = least else { return };
        for tenant in &mut self.tenants {
            tenant.credit_bytes = (tenant.credit_bytes + least * tenant.round_bytes).min(tenant.round_bytes);
        }
    }

    fn tenant(&self, session: SessionKey) -> Option<&Tenant> {
        self.of_session.get(&session).map(|index| &self.tenants[*index])
    }

    fn insert(&mut self, identity: &str) -> usize {
        let weight = self.weights.get(identity).copied().unwrap_or(1);
        let round_bytes = self.unit_bytes * i64::from(weight.max(1));
        let tenant =
            Tenant { identity: identity.into(), sessions: 0, round_bytes, credit_bytes: round_bytes };
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
}

#[cfg(test)]
mod tests {
    //! Shows that shares follow weights, in calls and in bytes, that who is alone has all, and that nothing is kept.
    use super::*;

    fn session(number: u64) -> SessionKey {
        SessionKey::from_bits(number)
    }

    /// Lets sessions, each with entries of so many bytes, go for a while. The entries each had.
    fn turns(tenants: &mut Tenants, wants: &[(SessionKey, u32)], turns: usize) -> Vec<u64> {
        let mut had = vec![0; wants.len()];
        for _ in 0..turns {
            tenants.begin_round();
            loop {
                let mut in_debt = Vec::new();
                let mut worked = false;
                for (index, (session, bytes)) in wants.iter().enumerate() {
                    let mut left = 64;
                    while left > 0 && tenants.may_go(*session) {
                        tenants.charge(*session, *bytes);
                        (had[index], left, worked) = (had[index] + 1, left - 1, true);
                    }
                    if left > 0 {
                        in_debt.push(*session);
                    }
                }
                if worked {
                    break;
                }
                tenants.relieve(&in_debt);
            }
        }
        had
    }

    fn three_to_one() -> Tenants {
        let mut tenants = Tenants::new(HashMap::from([("uid:1".into(), 3)]));
        tenants.enter(session(1), "uid:1");
        tenants.enter(session(2), "uid:2");
        tenants
    }

    #[test]
    fn weights_are_shares_of_calls_and_of_bytes() {
        for bytes in [0, 64, 4096, 100_000, 1 << 20, 64 << 20] {
            let had = turns(&mut three_to_one(), &[(session(1), bytes), (session(2), bytes)], 20_000);
            let ratio = had[0] as f64 / had[1] as f64;
            assert!((2.85..=3.15).contains(&ratio), "{bytes} bytes: {had:?}, {ratio}");
        }
        let had = turns(&mut three_to_one(), &[(session(1), 1 << 20), (session(2), 64)], 20_000);
        let cost = |entries: u64, bytes: i64| entries as f64 * (bytes + ENTRY_BYTES) as f64;
        let ratio = cost(had[0], 1 << 20) / cost(had[1], 64);
        assert!((2.7..=3.3).contains(&ratio), "large beside small: {had:?}, {ratio}");
    }

    #[test]
    fn many_sessions_of_a_user_have_what_one_has() {
        let mut tenants = three_to_one();
        let many: Vec<_> = (10..20).map(|number| (session(number), 64)).collect();
        many.iter().for_each(|(session, _)| tenants.enter(*session, "uid:2"));
        let wants = [&[(session(1), 64)][..], &many].concat();
        let had = turns(&mut tenants, &wants, 10_000);
        let ratio = had[0] as f64 / had[1..].iter().sum::<u64>() as f64;
        assert!((2.85..=3.15).contains(&ratio), "{had:?}");
    }

    #[test]
    fn who_is_alone_has_all() {
        let mut tenants = three_to_one();
        assert_eq!(turns(&mut tenants, &[(session(2), 1 << 30)], 100), [100], "a turn never goes by unused");
        assert!(tenants.are_several());
        // And what it had meanwhile is not held against it for longer than one entry is worth.
        let had = turns(&mut tenants, &[(session(1), 64), (session(2), 64)], 100_000);
        assert!(had[1] > 0, "{had:?}");
        tenants.leave(session(1));
        tenants.leave(session(1));
        assert!(!tenants.are_several() && tenants.tenants[tenants.free[0]].sessions == 0);
        tenants.enter(session(3), "uid:3");
        assert_eq!((tenants.tenants.len(), tenants.free.len()), (2, 0), "a place is used again");
    }
}
