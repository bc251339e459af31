//! Which session moves to which shard: decided on what shards and sessions were busy with over an interval.
//!
//! A shard that was busy for most of an interval says so, and for how long each of its sessions kept it busy; a shard
//! that is not says nothing, so a host at rest decides nothing. Three rules:
//!
//! * **Away from who takes much.** From a shard that is busy two intervals long, the session that takes the least goes
//!   to the shard that is least busy, if that stays less busy than the one it leaves by a margin. Who takes most stays:
//!   it would take as much elsewhere, and everybody else waits behind it.
//! * **Together.** A session most of whose calls cross to one shard goes there, if that shard has time for it: a call
//!   within a shard costs less than one across.
//! * **Anew.** A connection is where it was accepted. One whose calls cross from a busy shard to others is dialled anew
//!   by who made it, at the wish of this side (`docs/native-protocol.md`, PING), and accepted by a shard that has time.
//!
//! # Limits
//! A session that has moved stays for [`REST_NS`], and the host moves [`MOVES_PER_SECOND`] at most.

use crate::clients::AttachedSession;
use std::collections::VecDeque;
use trunkline_engine::{PeerKey, SessionKey};

/// How long a shard looks before it says what it was busy with.
pub(crate) const INTERVAL_NS: u64 = 200_000_000;
/// A shard is busy, in parts of a thousand of an interval, and would have time for another session.
pub(crate) const BUSY_PERMILLE: u64 = 500;
const HAS_TIME_PERMILLE: u64 = 700;
/// By so much a shard must be less busy than the one a session leaves, with the session.
pub(crate) const MARGIN_PERMILLE: u64 = 200;
/// Calls per second that cross to one shard from which on a session may follow them.
const CROSSING_PER_SECOND: u64 = 1_000;
/// And so many over one connection from which on that is made anew: it costs a round trip, once.
const REDIAL_PER_SECOND: u64 = 100;
/// From which on a shard that has nobody to give a session to wants another shard.
const FULL_PERMILLE: u64 = 600;
/// So much of it is for connections: another shard would accept some of them.
const CONNECTIONS_PERMILLE: u64 = 300;
/// What a connection does for a small message takes as long as so many bytes of a large one.
const MESSAGE_COST_BYTES: u64 = 4096;
/// A session that has moved stays for so long.
const REST_NS: u64 = 5_000_000_000;
const MOVES_PER_SECOND: usize = 8;
/// One that something has kept where it is is not tried again for so long; so many of them are remembered.
const KEPT_NS: u64 = 1_000_000_000;
const KEPT_MAX: usize = 256;
/// Sessions that rest, at most, where somebody moves them one after another.
const RESTING_MAX: usize = 4096;
const SECOND_NS: u64 = 1_000_000_000;

/// What a session has had done in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionWork {
    /// How long its entries have kept the shard busy.
    pub entries_ns: u64,
    /// The messages it sent and took, in bytes, each with [`MESSAGE_COST_BYTES`].
    pub carried_bytes: u64,
}

/// What a session did in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionLoad {
    pub key: SessionKey,
    /// How long its entries kept the shard busy, and its messages the connections.
    pub busy_ns: u64,
    /// The shard most of its calls crossed to, and by how many calls more than to all others.
    pub partner: Option<(usize, u64)>,
}

/// What a shard did in an interval.
#[derive(Clone, Debug)]
pub(crate) struct ShardLoad {
    pub interval_ns: u64,
    pub busy_ns: u64,
    /// How much of it was not for the entries of sessions: what connections take.
    pub connections_ns: u64,
    pub sessions: Vec<SessionLoad>,
    /// The connection that most of those calls came over that crossed to other shards, and by how many it is ahead.
    pub crossing_peer: Option<(PeerKey, u64)>,
}

/// A move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub session: AttachedSession,
    pub to: usize,
}

/// What is to be done about a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relief {
    Nothing,
    Move(Move),
    /// Calls wait on a busy shard for no other reason than that it accepted their connection.
    Redial(PeerKey),
    /// Nobody has time for what the shard has. Another shard would.
    AnotherShard,
}

/// What is remembered of loads and moves.
#[derive(Debug, Default)]
pub(crate) struct SessionPlacement {
    /// When each shard was looked at last, what it had been busy for until then, and how busy it was before that.
    shards: Vec<Looked>,
    /// The last moves, the oldest first. As many as fit in the time a session rests.
    moved: VecDeque<(u64, AttachedSession)>,
    /// Sessions that something has kept where they are, the oldest first.
    kept: VecDeque<(u64, AttachedSession)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    at_ns: u64,
    busy_ns: u64,
    /// Intervals one after another in which it was busy.
    pressed: u32,
}

impl SessionWork {
    /// An entry has brought a message of so many bytes, or given one back.
    pub fn carried(&mut self, bytes: u32) {
        self.carried_bytes += u64::from(bytes) + MESSAGE_COST_BYTES;
    }
}

impl ShardLoad {
    /// What sessions had done on a shard that was busy for so long. What was not for their entries was for connections,
    /// and is theirs in the measure of the bytes they sent and took: the work of a bulk transfer is there.
    pub fn shared_out(interval_ns: u64, busy_ns: u64, work: &[(SessionKey, SessionWork)]) -> Self {
        let entries_ns: u64 = work.iter().map(|(_, work)| work.entries_ns).sum();
        let carried_bytes: u64 = work.iter().map(|(_, work)| work.carried_bytes).sum();
        let connections_ns = busy_ns.saturating_sub(entries_ns);
        let share_of = |bytes: u64| {
            let share = u128::from(connections_ns) * u128::from(bytes) / u128::from(carried_bytes.max(1));
            u64::try_from(share).unwrap_or(connections_ns)
        };
        let of_session = |(key, work): &(SessionKey, SessionWork)| SessionLoad {
            key: *key,
            busy_ns: work.entries_ns + share_of(work.carried_bytes),
            partner: None,
        };
        let sessions = work.iter().map(of_session).collect();
        Self { interval_ns, busy_ns, connections_ns, sessions, crossing_peer: None }
    }

    /// Whether anybody might have to move.
    pub fn is_worth_telling(&self) -> bool {
        let calls_max =
            self.sessions.iter().filter_map(|session| session.partner).map(|(_, calls)| calls).max();
        permille(self.busy_ns, self.interval_ns) >= BUSY_PERMILLE
            || calls_max.is_some_and(|calls| self.per_second(calls) >= CROSSING_PER_SECOND)
    }

    fn per_second(&self, calls: u64) -> u64 {
        calls.saturating_mul(SECOND_NS) / self.interval_ns.max(1)
    }
}

impl SessionPlacement {
    /// What is to be done when a shard says what it did. `busy_ns` is how long every shard that takes sessions has been
    /// busy in all.
    pub fn decide(&mut self, now_ns: u64, from: usize, load: &ShardLoad, busy_ns: &[u64]) -> Relief {
        self.shards.resize(busy_ns.len(), Looked::default());
        while self.moved.front().is_some_and(|(at, _)| now_ns.saturating_sub(*at) > REST_NS) {
            self.moved.pop_front();
        }
        while self.kept.front().is_some_and(|(at, _)| now_ns.saturating_sub(*at) >= KEPT_NS) {
            self.kept.pop_front();
        }
        let shares: Vec<u64> =
            self.shards.iter().zip(busy_ns).map(|(looked, busy)| looked.share(now_ns, *busy)).collect();
        for (looked, busy) in self.shards.iter_mut().zip(busy_ns) {
            looked.note(now_ns, *busy);
        }
        let own = permille(load.busy_ns, load.interval_ns);
        let pressed = match self.shards.get_mut(from) {
            Some(looked) if own >= BUSY_PERMILLE => {
                looked.pressed += 1;
                looked.pressed
            }
            Some(looked) => {
                looked.pressed = 0;
                0
            }
            // One that is left over of another daemon: whoever is there may leave.
            None => 2,
        };
        let recent = self.moved.iter().filter(|(at, _)| now_ns.saturating_sub(*at) < SECOND_NS).count();
        if recent >= MOVES_PER_SECOND {
            return Relief::Nothing;
        }
        let together = self.together(from, load, &shares);
        let away = || (pressed >= 2).then(|| self.away(from, own, load, &shares)).flatten();
        if let Some(chosen) = together.or_else(away) {
            self.moved.push_back((now_ns, chosen.session));
            return Relief::Move(chosen);
        }
        if pressed >= 2
            && let Some(peer) = self.crosses_from(from, own, load, &shares)
        {
            return Relief::Redial(peer);
        }
        if pressed >= 2 && own >= FULL_PERMILLE && self.would_use_another(from, own, load) {
            return Relief::AnotherShard;
        }
        Relief::Nothing
    }

    /// Whether somebody would leave for a shard that has nothing to do.
    fn would_use_another(&self, from: usize, own: u64, load: &ShardLoad) -> bool {
        let measured = !load.sessions.is_empty();
        self.least_that_may_leave(from, own, load, 0).is_some()
            || measured && permille(load.connections_ns, load.interval_ns) >= CONNECTIONS_PERMILLE
    }

    /// A session has moved, and has another name now.
    pub fn moved(&mut self, before: AttachedSession, now: AttachedSession) {
        if let Some((_, session)) = self.moved.iter_mut().find(|(_, session)| *session == before) {
            *session = now;
        }
    }

    /// Somebody wanted it where it is now: it stays for as long as others that have moved.
    pub fn was_moved(&mut self, now_ns: u64, session: AttachedSession) {
        if self.moved.len() < RESTING_MAX {
            self.moved.push_back((now_ns, session));
        }
    }

    /// It did not: something keeps it for now. Others have their turn before it is tried again.
    pub fn stayed(&mut self, now_ns: u64, session: AttachedSession) {
        self.moved.retain(|(_, moved)| *moved != session);
        self.kept.retain(|(at, kept)| now_ns.saturating_sub(*at) < KEPT_NS && *kept != session);
        if self.kept.len() < KEPT_MAX {
            self.kept.push_back((now_ns, session));
        }
    }

    fn together(&self, from: usize, load: &ShardLoad, shares: &[u64]) -> Option<Move> {
        load.sessions.iter().find_map(|session| {
            let (to, calls) = session.partner?;
            let share = *shares.get(to)? + permille(session.busy_ns, load.interval_ns);
            let may =
                to != from && load.per_second(calls) >= CROSSING_PER_SECOND && share <= HAS_TIME_PERMILLE;
            let chosen = Move { session: AttachedSession { shard: from, key: session.key }, to };
            (may && !self.rests(chosen.session)).then_some(chosen)
        })
    }

    fn away(&self, from: usize, own: u64, load: &ShardLoad, shares: &[u64]) -> Option<Move> {
        let (to, share) = least_busy_but(from, shares)?;
        let least = self.least_that_may_leave(from, own, load, share)?;
        Some(Move { session: AttachedSession { shard: from, key: least.key }, to })
    }

    /// A connection whose calls another shard serves, where one has time to accept it.
    fn crosses_from(&self, from: usize, own: u64, load: &ShardLoad, shares: &[u64]) -> Option<PeerKey> {
        let (peer, calls) = load.crossing_peer?;
        let (_, share) = least_busy_but(from, shares)?;
        let may = load.per_second(calls) >= REDIAL_PER_SECOND && share + MARGIN_PERMILLE <= own;
        may.then_some(peer)
    }

    /// The session that takes the least, of those that may go to a shard that is so busy. The busiest stays.
    fn least_that_may_leave<'a>(
        &self,
        from: usize,
        own: u64,
        load: &'a ShardLoad,
        share: u64,
    ) -> Option<&'a SessionLoad> {
        let busiest = load.sessions.iter().max_by_key(|session| session.busy_ns)?;
        let others = load.sessions.iter().filter(|one| one.key != busiest.key && one.busy_ns > 0);
        let fits = |one: &&SessionLoad| {
            share + permille(one.busy_ns, load.interval_ns) + MARGIN_PERMILLE <= own
                && !self.rests(AttachedSession { shard: from, key: one.key })
        };
        others.filter(fits).min_by_key(|one| one.busy_ns)
    }

    fn rests(&self, session: AttachedSession) -> bool {
        self.moved.iter().chain(&self.kept).any(|(_, moved)| *moved == session)
    }
}

impl Looked {
    /// How busy it was since then. One that nobody looked at for long counts as it was over all that time.
    fn share(&self, now_ns: u64, busy_ns: u64) -> u64 {
        permille(busy_ns.saturating_sub(self.busy_ns), now_ns.saturating_sub(self.at_ns))
    }

    fn note(&mut self, now_ns: u64, busy_ns: u64) {
        // Two that say so at the same moment are looked at over what was before.
        if now_ns.saturating_sub(self.at_ns) >= INTERVAL_NS / 2 {
            (self.at_ns, self.busy_ns) = (now_ns, busy_ns);
        }
    }
}

fn least_busy_but(from: usize, shares: &[u64]) -> Option<(usize, u64)> {
    shares.iter().copied().enumerate().filter(|(shard, _)| *shard != from).min_by_key(|one| one.1)
}

/// Parts of a thousand.
pub(crate) fn permille(part_ns: u64, of_ns: u64) -> u64 {
    (part_ns.saturating_mul(1_000) / of_ns.max(1)).min(1_000)
}

#[cfg(test)]
mod tests {
    //! Shows who moves where, over virtual time, and that nobody moves back and forth.
    use super::*;

    const MS: u64 = 1_000_000;

    fn key(number: u64) -> SessionKey {
        SessionKey::from_bits(number)
    }

    fn session(number: u64, busy_ms: u64, partner: Option<(usize, u64)>) -> SessionLoad {
        SessionLoad { key: key(number), busy_ns: busy_ms * MS, partner }
    }

    fn load(sessions: Vec<SessionLoad>) -> ShardLoad {
        let busy_ns = sessions.iter().map(|session| session.busy_ns).sum();
        ShardLoad { interval_ns: INTERVAL_NS, busy_ns, connections_ns: 0, sessions, crossing_peer: None }
    }

    /// Bulk over a connection costs the ring nothing to speak of, and is known for what it is.
    #[test]
    fn what_connections_do_is_shared_out_by_bytes() {
        let work =
            |entries_ms: u64, carried_bytes| SessionWork { entries_ns: entries_ms * MS, carried_bytes };
        let table = [
            ("bulk beside small calls", [work(1, 990_000), work(1, 10_000)], [180, 3]),
            ("no connections", [work(120, 0), work(62, 0)], [120, 62]),
            ("more entries than the thread says it was busy", [work(150, 10), work(50, 10)], [150, 50]),
        ];
        for (why, [one, other], busy_ms) in table {
            let load = ShardLoad::shared_out(INTERVAL_NS, 182 * MS, &[(key(1), one), (key(2), other)]);
            let got: Vec<u64> = load.sessions.iter().map(|session| session.busy_ns.div_ceil(MS)).collect();
            assert_eq!(got, busy_ms, "{why}");
        }
    }

    /// A shard says the same, interval after interval, while others are busy for so long in each: what moves, and when.
    fn moves(load: &ShardLoad, others_ms: &[u64], intervals: u64) -> Vec<(u64, u64, usize)> {
        let (mut placement, mut moves) = (SessionPlacement::default(), Vec::new());
        for interval in 1..=intervals {
            let busy: Vec<u64> = std::iter::once(load.busy_ns)
                .chain(others_ms.iter().map(|ms| ms * MS))
                .map(|ns| ns * interval)
                .collect();
            let now = interval * INTERVAL_NS;
            if let Relief::Move(Move { session, to }) = placement.decide(now, 0, load, &busy) {
                moves.push((now / MS, session.key.to_bits(), to));
            }
        }
        moves
    }

    #[test]
    fn a_session_beside_one_that_floods_its_shard_has_moved_within_a_second() {
        let flooded =
            load(vec![session(1, 150, None), session(2, 40, None), session(3, 1, None), session(4, 2, None)]);
        let moves = moves(&flooded, &[100, 10], 5);
        assert_eq!(moves, [(400, 3, 2), (600, 4, 2), (800, 2, 2)], "the least first, to the least busy");
    }

    #[test]
    fn nobody_moves_where_it_would_not_help() {
        let flooded = || load(vec![session(1, 150, None), session(2, 40, None)]);
        #[rustfmt::skip]
        let table = [
            ("the others are as busy", flooded(), vec![180, 170]),
            ("it is alone", load(vec![session(1, 200, None)]), vec![0, 0]),
            ("its shard has time", load(vec![session(1, 50, None), session(2, 45, None)]), vec![0, 0]),
            ("the others do nothing", load(vec![session(1, 190, None), session(2, 0, None)]), vec![0, 0]),
            ("what it does would move along", load(vec![session(1, 100, None), session(2, 95, None)]), vec![80, 80]),
        ];
        for (why, load, others) in table {
            assert_eq!(moves(&load, &others, 10), [], "{why}");
        }
    }

    #[test]
    fn a_session_goes_where_its_calls_go_if_there_is_time() {
        let talks = |calls| load(vec![session(7, 20, Some((1, calls)))]);
        assert_eq!(moves(&talks(10_000), &[50], 2), [(200, 7, 1)]);
        assert_eq!(moves(&talks(10), &[50], 3), [], "seldom");
        assert_eq!(moves(&talks(10_000), &[150], 3), [], "no time there");
    }

    #[test]
    fn a_connection_is_made_anew_whose_calls_cross_from_a_busy_shard() {
        let peer = PeerKey::from_bits(5);
        let of = |busy_ms, calls| ShardLoad {
            crossing_peer: Some((peer, calls)),
            ..load(vec![session(1, busy_ms, None)])
        };
        #[rustfmt::skip]
        let table = [
            ("it waits behind others", of(150, 1_000), [0], Relief::Redial(peer)),
            ("seldom", of(150, 10), [0], Relief::Nothing),
            ("the other shard is as busy", of(150, 1_000), [140], Relief::Nothing),
            ("its shard has time", of(50, 1_000), [0], Relief::Nothing),
        ];
        for (why, load, others_ms, expected) in table {
            let mut placement = SessionPlacement::default();
            let mut decide = |interval: u64| {
                let busy = [load.busy_ns, others_ms[0] * MS].map(|ns| ns * interval);
                placement.decide(interval * INTERVAL_NS, 0, &load, &busy)
            };
            assert_eq!(decide(1), Relief::Nothing, "{why}: one interval says little");
            assert_eq!(decide(2), expected, "{why}");
        }
    }

    #[test]
    fn who_has_moved_stays_for_a_while() {
        let mut placement = SessionPlacement::default();
        let talks = load(vec![session(7, 20, Some((1, 10_000)))]);
        let Relief::Move(first) = placement.decide(INTERVAL_NS, 0, &talks, &[0, 0]) else {
            panic!("it follows its calls");
        };
        let there = AttachedSession { shard: 1, key: key(9) };
        placement.moved(first.session, there);
        let back = load(vec![session(9, 20, Some((0, 10_000)))]);
        assert_eq!(placement.decide(2 * INTERVAL_NS, 1, &back, &[0, 0]), Relief::Nothing);
        let later = REST_NS + 2 * INTERVAL_NS;
        assert_eq!(placement.decide(later, 1, &back, &[0, 0]), Relief::Move(Move { session: there, to: 0 }));
    }

    /// One that always waits for an endpoint cannot move, and bars nobody.
    #[test]
    fn one_that_something_keeps_lets_others_go_first() {
        let flooded = load(vec![session(1, 150, None), session(2, 40, None), session(3, 1, None)]);
        let mut placement = SessionPlacement::default();
        let mut tried = Vec::new();
        for interval in 1..=8 {
            let now = interval * INTERVAL_NS;
            let busy = [flooded.busy_ns * interval, 0];
            if let Relief::Move(Move { session, .. }) = placement.decide(now, 0, &flooded, &busy) {
                tried.push((now / MS, session.key.to_bits()));
                if session.key == key(3) {
                    placement.stayed(now, session);
                }
            }
        }
        assert_eq!(tried, [(400, 3), (600, 2), (1400, 3)]);
    }

    #[test]
    fn so_many_move_in_a_second() {
        let crowd =
            (0..100).map(|number| session(number, 1, None)).chain([session(1000, 80, None)]).collect();
        let crowd = load(crowd);
        let mut placement = SessionPlacement::default();
        let mut moved = 0;
        for step in 1..=100 {
            let relief = placement.decide(step * 10 * MS, 0, &crowd, &[0, 0]);
            moved += usize::from(matches!(relief, Relief::Move(_)));
        }
        assert_eq!(moved, MOVES_PER_SECOND);
    }

    #[test]
    fn another_shard_is_wanted_where_nobody_has_time_for_what_might_leave() {
        #[rustfmt::skip]
        let table = [
            ("one shard, and two that keep it busy", load(vec![session(1, 100, None), session(2, 90, None)]), 0, true),
            ("it is alone, and would take as much there", load(vec![session(1, 200, None)]), 0, false),
            ("it has some time", load(vec![session(1, 60, None), session(2, 55, None)]), 0, false),
            ("one that is small beside it", load(vec![session(1, 170, None), session(2, 2, None)]), 0, true),
            ("connections keep it busy", load(vec![session(1, 90, None)]), 80, true),
            ("a few connections", load(vec![session(1, 150, None)]), 20, false),
        ];
        for (why, mut load, connections_ms, wanted) in table {
            load.busy_ns += connections_ms * MS;
            load.connections_ns = connections_ms * MS;
            let mut placement = SessionPlacement::default();
            let decided = [1, 2].map(|interval| {
                placement.decide(interval * INTERVAL_NS, 0, &load, &[interval * load.busy_ns])
            });
            let then = if wanted { Relief::AnotherShard } else { Relief::Nothing };
            assert_eq!(decided, [Relief::Nothing, then], "{why}");
        }
    }
}
