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
    /// Turns that came free are given again up to then.
    given_until: Instant,
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

    /// The turn of what waits for one at `until`, and pays so much for it, if it still has to wait.
    pub fn look_again(&mut self, now: Instant, until: Instant, cost_ns: u64) -> Option<Paced> {
        let end = Instant(self.paid_until.0.saturating_sub(cost_ns));
        let until = if until <= end { until } else { self.turn_come_free(now, cost_ns).min(end) };
        self.holds(now, until).then(|| Paced { until, cost_ns, look_at: self.look_at(until) })
    }

    /// What was to pay so much does not wait any more.
    pub fn give_back(&mut self, cost_ns: u64) {
        self.paid_until = Instant(self.paid_until.0.saturating_sub(cost_ns));
    }

    /// What policies say of batch calls has changed: nothing that waits is to wait for what they said before.
    pub fn begin_anew(&mut self) {
        (self.paid_until, self.given_until) = (Instant::default(), Instant::default());
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
            self.paid_until = now;
            return None;
        }
        let at = self.paid_until.max(Instant(now.0.saturating_sub(AHEAD_NS)));
        self.paid_until = at.plus_ns(cost_ns);
        (at > now).then_some(at)
    }

    /// A turn that somebody has given back, or now. Those who ask have them one after another.
    fn turn_come_free(&mut self, now: Instant, cost_ns: u64) -> Instant {
        let at = self.given_until.max(now);
        self.given_until = at.plus_ns(cost_ns);
        at
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
        let (mut pacer, now, cost) =
            (Pacer::default(), Instant(1_000_000_000), cost_ns(MIB - ITEM_BYTES, RATE));
        pacer.note_latency(now);
        let mut turn = || pacer.turn_of(now, cost).unwrap_or(now);
        let (gone, waiting): (Vec<_>, Vec<_>) =
            ((0..100).map(|_| turn()).collect(), (0..20).map(|_| turn()).collect());
        gone.iter().filter(|at| **at > now).for_each(|_| pacer.give_back(cost));
        // Those who come next wait for those who wait, and no longer.
        let next = pacer.turn_of(now, cost).unwrap();
        assert_eq!(next.since_ns(now), 21 * cost - AHEAD_NS);
        // Those who waited behind have the turns that came free, one after another.
        let turns: Vec<_> = waiting.iter().map(|until| pacer.look_again(now, *until, cost)).collect();
        assert_eq!(turns[0], None, "it goes now");
        let since = |paced: &Option<Paced>| paced.unwrap().until.since_ns(now);
        assert!((1..20).all(|at| since(&turns[at]) == at as u64 * cost), "{turns:?}");
        assert_eq!(pacer.look_again(now, next, cost).unwrap().until, next, "it has its turn");
        // What other policies have said holds nobody up.
        assert_eq!(pacer.turn_of(now, u64::MAX / 2), Some(next.plus_ns(cost)));
        pacer.begin_anew();
        assert_eq!(pacer.look_again(now, now.plus_ns(u64::MAX / 4), u64::MAX / 2), None);
        assert_eq!(pacer.turn_of(now, cost), None);
    }
}
