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
    /// What has been let go is paid for by then.
    paid_until: Instant,
}

/// An item that has to wait for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paced {
    /// Its turn.
    pub until: Instant,
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
                let until = self.turn_of(now, bytes.into(), bytes_per_second)?;
                return Some(Paced { until, look_at: self.look_at(until) });
            }
            (Class::Batch { .. }, None) => {}
        }
        None
    }

    /// When to look again at what waits for its turn at `until`, if it still has to wait.
    pub fn look_again(&self, now: Instant, until: Instant) -> Option<Instant> {
        self.holds(now, until).then(|| self.look_at(until))
    }

    /// Somebody waits for a call that has just moved.
    fn note_latency(&mut self, now: Instant) {
        self.latency_seen = Some(now);
    }

    /// Whether what has its turn at `until` is to wait for it.
    fn holds(&self, now: Instant, until: Instant) -> bool {
        now < until && self.is_anybody_about(now)
    }

    fn is_anybody_about(&self, now: Instant) -> bool {
        self.latency_seen.is_some_and(|seen| now.since_ns(seen) <= ABOUT_NS)
    }

    /// When to look again after what has its turn at `until`.
    fn look_at(&self, until: Instant) -> Instant {
        self.latency_seen.map_or(until, |seen| until.min(seen.plus_ns(ABOUT_NS + 1)))
    }

    /// Lets an item of so many bytes go: now (`None`), or when it is its turn.
    fn turn_of(&mut self, now: Instant, bytes: u64, bytes_per_second: u64) -> Option<Instant> {
        if !self.is_anybody_about(now) {
            self.paid_until = now;
            return None;
        }
        let cost_ns = u128::from(bytes + ITEM_BYTES) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
        let at = self.paid_until.max(Instant(now.0.saturating_sub(AHEAD_NS)));
        self.paid_until = at.plus_ns(u64::try_from(cost_ns).unwrap_or(u64::MAX));
        (at > now).then_some(at)
    }
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
        assert!((0..1000).all(|ms| pacer.turn_of(Instant(ms * 1000), 100 * MIB, RATE).is_none()));
        pacer.note_latency(Instant(0));
        assert_eq!(pacer.turn_of(Instant(ABOUT_NS + 1), 100 * MIB, RATE), None, "it is gone");
    }

    #[test]
    fn beside_latency_calls_they_take_turns_at_their_rate() {
        let mut pacer = Pacer::default();
        let now = Instant(1_000_000_000);
        pacer.note_latency(now);
        let turns: Vec<u64> = (0..20)
            .map(|_| pacer.turn_of(now, MIB - ITEM_BYTES, RATE).map_or(0, |at| at.since_ns(now)))
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
        let much = pacer.turn_of(now, u64::MAX / 2, 1).unwrap();
        assert!(pacer.turn_of(now, 1, RATE).unwrap() > much, "no overflow");
    }
}
