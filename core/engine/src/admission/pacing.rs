//! Calls that have time make room for those somebody waits for.
//!
//! Small calls do not queue behind large ones anyway: they have lanes, segments and turns of their own. What they do
//! share with bulk traffic is the host: its cores, its caches, its memory's bandwidth. A call of class *latency* is
//! therefore noted when it moves, and for a moment afterwards ([`ABOUT_NS`]) all calls of class *batch* together move
//! no more than their policy's bytes per second. What has to wait waits in the call's own backlog, and since nothing
//! of it is acknowledged, its sender soon rests. When no latency call is about, nobody waits.
//!
//! The schedule is a virtual clock (GCRA, ITU-T I.371): a message is given the instant its predecessors have paid for,
//! so messages of all calls take turns in the order in which they came, each with one timer. That also looks whether
//! latency calls are still about: what was to wait for longer than they are goes on at once.
//!
//! A call that ends before its turn gives back what it would have paid, so the schedule is no longer than what waits.
//! What then has a turn behind its end is given one of those that came free, when it looks.
//!
//! Turns say when to look; whether an item goes then is decided by a second clock, of what has been let go. So however
//! turns are given and come free, by waves of cancelled calls, by a change of policies or in another process, nothing
//! goes faster than its rate: who finds that others have gone in its turn is given another one.

use trunkline_call::Instant;
use trunkline_policy::Class;

/// How long after its last item a latency call is about: longer than the pauses between the calls of one who waits for
/// every answer.
const ABOUT_NS: u64 = 100_000_000;
/// What batch calls may be ahead of their schedule. The host's timers are no finer than a millisecond.
const AHEAD_NS: u64 = 2_000_000;
/// An item costs this much besides its bytes.
const ITEM_BYTES: u64 = 256;

/// The schedule of batch calls.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When a latency call last moved.
    latency_seen: Option<Instant>,
    /// What has been let go, and what waits, is paid for by then.
    paid_until: Instant,
    /// What has been let go is paid for by then.
    gone_until: Instant,
    /// Turns that came free are given again up to then.
    given_until: Instant,
    /// The least rate of the policies at work; `None` if they know no batch calls.
    rate_min: Option<u64>,
}

/// An item that has to wait for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paced {
    /// Its turn.
    pub until: Instant,
    /// What it pays for it.
    pub cost_ns: u64,
    /// When to look whether anybody is in its way: no later than that.
    pub look_at: Instant,
}

impl Pacer {
    // LIFE: 8
    /// An item of a call of this class moves, with a message of so many bytes, if it has one: whether it has to wait.
    pub fn pace(&mut self, now: Instant, class: Class, message_bytes: Option<u32>) -> Option<Paced> {
        match (class, message_bytes) {
            (Class::Latency, _) => self.note_latency(now),
            (Class::Batch { bytes_per_second }, Some(bytes)) => {
                let cost_ns = cost_ns(bytes.into(), bytes_per_second);
                let until = self.turn_of(now, cost_ns)?;
                return Some(Paced { until, cost_ns, look_at: self.look_at(until) });
            }
            (Class::Batch { .. }, None) => {}
        }
        None
    }

    /// Whether what has its turn at `until` is to wait for it.
    pub fn holds(&self, now: Instant, until: Instant) -> bool {
        now < until && self.is_anybody_about(now)
    }

    /// The turn of a message of so many bytes that waits for one at `until` and pays so much for it, if it still has
    /// to wait. Otherwise it goes.
    pub fn look_again(
        &mut self,
        now: Instant,
        until: Instant,
        cost_ns: u64,
        message_bytes: u32,
    ) -> Option<Paced> {
        if !self.is_anybody_about(now) {
            return None;
        }
        // What a policy has said by mistake holds nobody up when it is gone.
        let most_ns = self.rate_min.map_or(0, |rate| self::cost_ns(message_bytes.into(), rate));
        let cost_ns = cost_ns.min(most_ns);
        let end = Instant(self.paid_until.0.saturating_sub(cost_ns));
        let free = self.given_until.max(self.gone_until).max(now);
        let is_behind = until > end && until > free;
        let is_taken = until <= now && self.gone_until > now;
        let until = if is_behind || is_taken {
            self.given_until = free.plus_ns(cost_ns);
            // What comes next has its turn behind those that were there.
            self.paid_until = self.paid_until.max(self.given_until);
            free
        } else {
            until
        };
        if until > now {
            return Some(Paced { until, cost_ns, look_at: self.look_at(until) });
        }
        self.note_gone(now, cost_ns);
        None
    }

    /// What was to pay so much does not wait any more.
    pub fn give_back(&mut self, cost_ns: u64) {
        self.paid_until = Instant(self.paid_until.0.saturating_sub(cost_ns));
        // Its turn may be one that was given again.
        self.given_until = Instant::default();
    }

    /// What policies say of batch calls has changed: nothing that waits is to wait for what they said before. The least
    /// of the rates that they say now.
    pub fn begin_anew(&mut self, rate_min: Option<u64>) {
        *self = Self { latency_seen: self.latency_seen, rate_min, ..Self::default() };
    }

    /// Somebody waits for a call that has just moved.
    fn note_latency(&mut self, now: Instant) {
        self.latency_seen = Some(now);
    }

    fn is_anybody_about(&self, now: Instant) -> bool {
        self.latency_seen.is_some_and(|seen| now.since_ns(seen) <= ABOUT_NS)
    }

    /// When to look again after what has its turn at `until`.
    fn look_at(&self, until: Instant) -> Instant {
        self.latency_seen.map_or(until, |seen| until.min(seen.plus_ns(ABOUT_NS + 1)))
    }

    /// Lets an item go that pays so much: now (`None`), or when it is its turn.
    fn turn_of(&mut self, now: Instant, cost_ns: u64) -> Option<Instant> {
        if !self.is_anybody_about(now) {
            (self.paid_until, self.gone_until) = (now, now);
            return None;
        }
        let at = self.paid_until.max(self.gone_until).max(Instant(now.0.saturating_sub(AHEAD_NS)));
        self.paid_until = at.plus_ns(cost_ns);
        if at > now {
            return Some(at);
        }
        self.note_gone(now, cost_ns);
        None
    }

    /// An item goes that pays so much.
    fn note_gone(&mut self, now: Instant, cost_ns: u64) {
        let at = self.gone_until.max(Instant(now.0.saturating_sub(AHEAD_NS)));
        self.gone_until = at.plus_ns(cost_ns);
    }
}

/// The time in which a class moves so many bytes.
fn cost_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    let cost_ns = u128::from(bytes + ITEM_BYTES) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    u64::try_from(cost_ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    //! Shows that batch calls are paced only while latency calls are about, in order, and at their rate.
    use super::*;

    const RATE: u64 = 100 << 20;
    const MIB: u64 = 1 << 20;

    #[test]
    fn alone_batch_calls_move_freely() {
        let mut pacer = Pacer::default();
        assert!((0..1000).all(|ms| pacer.turn_of(Instant(ms * 1000), cost_ns(100 * MIB, RATE)).is_none()));
        pacer.note_latency(Instant(0));
        assert_eq!(pacer.turn_of(Instant(ABOUT_NS + 1), cost_ns(100 * MIB, RATE)), None, "it is gone");
    }

    #[test]
    fn beside_latency_calls_they_take_turns_at_their_rate() {
        let mut pacer = Pacer::default();
        let now = Instant(1_000_000_000);
        pacer.note_latency(now);
        let turns: Vec<u64> = (0..20)
            .map(|_| pacer.turn_of(now, cost_ns(MIB - ITEM_BYTES, RATE)).map_or(0, |at| at.since_ns(now)))
            .collect();
        assert_eq!(turns[0], 0, "the first goes at once");
        assert_eq!(turns[1], 10_000_000 - AHEAD_NS);
        assert!(turns.windows(2).skip(1).all(|pair| pair[1] - pair[0] == 10_000_000), "{turns:?}");
        assert!(pacer.holds(now, now.plus_ns(1)) && !pacer.holds(now, now));
        let later = now.plus_ns(ABOUT_NS + 1);
        assert_eq!(
            pacer.look_at(now.plus_ns(10 * ABOUT_NS)),
            later,
            "whoever waits looks whether they are gone"
        );
        assert!(!pacer.holds(later, now.plus_ns(10 * ABOUT_NS)));
        let much = pacer.turn_of(now, cost_ns(u64::MAX / 2, 1)).unwrap();
        assert!(pacer.turn_of(now, cost_ns(1, RATE)).unwrap() > much, "no overflow");
    }

    #[test]
    fn what_does_not_wait_any_more_is_paid_for_by_nobody() {
        let (mut pacer, now, cost) = (paced(), Instant(1_000_000_000), cost_ns(MIB - ITEM_BYTES, RATE));
        pacer.note_latency(now);
        let mut turn = || pacer.turn_of(now, cost).unwrap_or(now);
        let (gone, waiting): (Vec<_>, Vec<_>) =
            ((0..100).map(|_| turn()).collect(), (0..20).map(|_| turn()).collect());
        gone.iter().filter(|at| **at > now).for_each(|_| pacer.give_back(cost));
        // Those who come next wait for those who wait, and no longer.
        let next = pacer.turn_of(now, cost).unwrap();
        assert_eq!(next.since_ns(now), 21 * cost - AHEAD_NS);
        // Those who waited behind have the turns that came free, one after another.
        let turns: Vec<_> = waiting.iter().map(|until| look(&mut pacer, now, *until, cost)).collect();
        let since = |paced: &Option<Paced>| paced.unwrap().until.since_ns(now);
        assert!((0..20).all(|at| since(&turns[at]) == (at as u64 + 1) * cost - AHEAD_NS), "{turns:?}");
        assert_eq!(look(&mut pacer, now, next, cost).unwrap().until, next, "it has its turn");
        // What other policies have said holds nobody up, and nobody goes faster for it.
        assert_eq!(pacer.turn_of(now, u64::MAX / 2), Some(next.plus_ns(cost)));
        pacer.begin_anew(Some(RATE));
        assert_eq!(look(&mut pacer, now, now.plus_ns(u64::MAX / 4), u64::MAX / 2), None);
        let following = pacer.turn_of(now, cost).unwrap();
        assert_eq!(following.since_ns(now), cost);
    }

    /// Items wait, look when they are told to, and are given up in waves, and other policies come meanwhile. Whatever
    /// becomes of turns, what goes is no more than the rate lets go, and nothing waits for what was given up.
    #[test]
    fn no_wave_lets_go_more_than_the_rate() {
        (1..40).for_each(|seed| {
            let mut line = Line::new(seed);
            for round in 0..4 {
                (0..200).for_each(|_| line.arrive());
                line.run_some(50);
                if round == 2 {
                    line.pacer.begin_anew(Some(RATE));
                }
                line.give_up(round * 3);
                line.run_some(20);
                line.give_up(5);
            }
            let left_ns: u64 = line.waiting.iter().map(|one| one.cost_ns).sum();
            let (from, last) = (line.gone.len(), line.now.plus_ns(left_ns + 2 * ABOUT_NS));
            line.run(Instant(u64::MAX));
            assert!(
                line.gone.len() >= from && line.now <= last,
                "seed {seed}: at {:?}, not {last:?}",
                line.now
            );
            line.check(seed);
        });
    }

    /// Items beside latency calls that never rest.
    struct Line {
        pacer: Pacer,
        now: Instant,
        waiting: Vec<Paced>,
        gone: Vec<(Instant, u64)>,
        random: Chance,
        item_ns: u64,
    }

    struct Chance(u64);

    impl Chance {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    impl Line {
        fn new(seed: u64) -> Self {
            let (now, item_ns) = (Instant(1_000_000_000), cost_ns(MIB - ITEM_BYTES, RATE));
            let (waiting, gone) = (Vec::new(), Vec::new());
            Self { pacer: paced(), now, waiting, gone, random: Chance(seed), item_ns }
        }

        fn arrive(&mut self) {
            self.pacer.note_latency(self.now);
            let cost_ns = 1 + self.random.below(self.item_ns);
            match self.pacer.turn_of(self.now, cost_ns) {
                None => self.gone.push((self.now, cost_ns)),
                Some(until) => {
                    self.waiting.push(Paced { until, cost_ns, look_at: self.pacer.look_at(until) });
                }
            }
        }

        /// So many of ten stay.
        fn give_up(&mut self, stays: u64) {
            let Self { pacer, waiting, random, .. } = self;
            waiting.retain(|one| {
                let kept = random.below(10) < stays;
                if !kept {
                    pacer.give_back(one.cost_ns);
                }
                kept
            });
        }

        fn run_some(&mut self, items_max: u64) {
            let for_ns = self.random.below(items_max) * self.item_ns;
            self.run(self.now.plus_ns(for_ns));
        }

        fn run(&mut self, end: Instant) {
            while let Some(next) = (0..self.waiting.len()).min_by_key(|at| self.waiting[*at].look_at)
                && self.waiting[next].look_at <= end
            {
                let one = self.waiting.swap_remove(next);
                self.now = self.now.max(one.look_at);
                self.pacer.note_latency(self.now);
                match look(&mut self.pacer, self.now, one.until, one.cost_ns) {
                    None => self.gone.push((self.now, one.cost_ns)),
                    Some(paced) => self.waiting.push(paced),
                }
            }
        }

        /// What goes before another is paid for by then, but for one item where policies changed.
        fn check(&self, seed: u64) {
            for (from, (began, _)) in self.gone.iter().enumerate() {
                let mut paid_ns = 0;
                for (to, (at, cost_ns)) in self.gone.iter().enumerate().skip(from) {
                    let may_ns = at.since_ns(*began) + AHEAD_NS + self.item_ns;
                    assert!(paid_ns <= may_ns, "seed {seed}, {from} to {to}: {paid_ns} of {may_ns}");
                    paid_ns += cost_ns;
                }
            }
        }
    }

    fn paced() -> Pacer {
        let mut pacer = Pacer::default();
        pacer.begin_anew(Some(RATE));
        pacer
    }

    fn look(pacer: &mut Pacer, now: Instant, until: Instant, cost_ns: u64) -> Option<Paced> {
        pacer.look_again(now, until, cost_ns, (MIB - ITEM_BYTES) as u32)
    }
}
