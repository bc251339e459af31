//! How long clients of the compatible mode wait for an answer, judged by what becomes of their requests.
//!
//! Such a client says neither its deadline nor that it has given up. A long request of one that has given up is the
//! worst: its worker asks for the rest, nobody sends it, and the place is taken until the lease ends. A router whose
//! queue is as old as its clients are patient then hands out nothing else, and never recovers. So what waited here is
//! watched: while most of what waited for more than half as long as it may comes to nothing, it may wait for half as
//! long; when that has held for a while, for twice as long again.

use trunkline_call::Instant;

/// What may wait for how long, and what that is judged by.
#[derive(Debug)]
pub(crate) struct Patience {
    /// The longest a request may ever wait, and a lease last.
    delay_ns_max: u64,
    lease_ns_max: u64,
    /// What a request may wait now.
    limit_ns: u64,
    /// When that was changed.
    changed: Instant,
    /// What became of requests that had waited for more than half of that, since then.
    answered: u32,
    lapsed: u32,
    /// About the longest a worker has had a request lately.
    longest_ns: u64,
}

/// Ends by which a limit is judged.
const JUDGED_BY: u32 = 8;
/// A limit that was not found too long for so long may be too short: a burst of patient clients is nothing to refuse.
const RAISED_AFTER_NS: u64 = 4_000_000_000;
/// No client gives up sooner, and no lease ends sooner.
const LIMIT_NS_MIN: u64 = 1_000_000;
const LEASE_NS_MIN: u64 = 20_000_000;
/// Of the longest time at a worker, each shorter one takes a 128th.
const FORGETS: u64 = 128;

impl Patience {
    pub fn new(delay_ns_max: u64, lease_ns_max: u64, now: Instant) -> Self {
        let (changed, limit_ns) = (now, delay_ns_max);
        Self { delay_ns_max, lease_ns_max, limit_ns, changed, answered: 0, lapsed: 0, longest_ns: 0 }
    }

    /// Whether a client that has waited here for so long is taken to wait still.
    pub fn lasts(&mut self, now: Instant, waited_ns: u64) -> bool {
        self.raise(now);
        waited_ns <= self.limit_ns
    }

    /// How long a request may occupy its worker without a word: longer than requests take, and not much longer than
    /// anybody waits for it.
    pub fn lease_ns(&mut self, now: Instant) -> u64 {
        self.raise(now);
        self.lease_ns_now()
    }

    fn lease_ns_now(&self) -> u64 {
        let wanted = self.limit_ns.max(self.longest_ns).max(LEASE_NS_MIN).saturating_mul(2);
        wanted.min(self.lease_ns_max)
    }

    /// A request that had waited here was answered by its worker after so long.
    pub fn answered(&mut self, waited_ns: u64, took_ns: u64) {
        self.longest_ns = (self.longest_ns - self.longest_ns / FORGETS).max(took_ns);
        self.answered += u32::from(self.tells(waited_ns));
        if self.answered + self.lapsed >= JUDGED_BY && self.answered >= self.lapsed {
            (self.answered, self.lapsed) = (0, 0);
        }
    }

    /// A request that had waited here came to nothing. Whether its worker may be at fault, and not the wait, or a lease
    /// that is shorter than it was to be: services may have become longer than any lately.
    pub fn lapsed(&mut self, now: Instant, waited_ns: u64) -> bool {
        if waited_ns > self.limit_ns {
            // From when it was thought to be more.
            return false;
        }
        let tells = self.tells(waited_ns);
        self.lapsed += u32::from(tells);
        let is_short = self.lease_ns_now() < self.lease_ns_max;
        let blames_worker = !is_short && (!tells || self.answered > self.lapsed);
        if self.answered + self.lapsed >= JUDGED_BY {
            match self.lapsed > self.answered {
                true => self.change(now, self.limit_ns / 2),
                false => (self.answered, self.lapsed) = (0, 0),
            }
        }
        blames_worker
    }

    fn raise(&mut self, now: Instant) {
        if self.limit_ns < self.delay_ns_max && now.since_ns(self.changed) >= RAISED_AFTER_NS {
            self.change(now, self.limit_ns.saturating_mul(2));
        }
    }

    /// What waited for less says nothing about those that wait for as long as they may.
    fn tells(&self, waited_ns: u64) -> bool {
        waited_ns > self.limit_ns / 2 && waited_ns <= self.limit_ns
    }

    fn change(&mut self, now: Instant, limit_ns: u64) {
        self.limit_ns = limit_ns.max(LIMIT_NS_MIN).min(self.delay_ns_max);
        (self.changed, self.answered, self.lapsed) = (now, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    //! Shows that what may wait follows clients who give up, is as much as ever when they do not, and that lost
    //! datagrams alone change nothing.
    use super::*;

    const MS: u64 = 1_000_000;

    /// Clients that give up after `patience_ms` and are handed out as late as they may be. The limit after each second.
    fn limits(patience: &mut Patience, from_s: u64, seconds: u64, patience_ms: u64) -> Vec<u64> {
        let after = |second: u64| {
            for ms in (0..1000).step_by(20) {
                let now = Instant((from_s + second) * 1000 * MS + ms * MS);
                patience.lasts(now, 0);
                match patience.limit_ns {
                    waited_ns if waited_ns <= patience_ms * MS => patience.answered(waited_ns, MS),
                    waited_ns => drop(patience.lapsed(now, waited_ns)),
                }
            }
            patience.limit_ns / MS
        };
        (0..seconds).map(after).collect()
    }

    #[test]
    fn what_may_wait_follows_those_who_give_up_and_grows_again() {
        let mut patience = Patience::new(1000 * MS, 1000 * MS, Instant(0));
        assert_eq!(patience.lease_ns(Instant(0)), 1000 * MS);
        let impatient = limits(&mut patience, 0, 20, 300);
        assert!(impatient.iter().all(|limit| (250..=500).contains(limit)), "{impatient:?}");
        let most = impatient.iter().filter(|limit| **limit == 250).count();
        assert!(most >= 15, "{impatient:?}");
        let patient = limits(&mut patience, 20, 20, 10_000);
        assert_eq!(patient.last(), Some(&1000), "{patient:?}");
    }

    #[test]
    fn a_lease_becomes_as_long_as_it_was_also_when_nothing_waits() {
        let mut patience = Patience::new(1000 * MS, 1000 * MS, Instant(0));
        limits(&mut patience, 0, 20, 30);
        let at = |second: u64| Instant(second * 1000 * MS);
        assert!((40 * MS..130 * MS).contains(&patience.lease_ns(at(20))));
        assert!(!patience.lapsed(at(20), 0), "services that are longer now are no fault of a worker");
        assert!((20..60).any(|second| patience.lease_ns(at(second)) == 1000 * MS));
        assert!(patience.lapsed(at(60), 0));
    }

    #[test]
    fn lost_datagrams_alone_change_nothing() {
        let mut patience = Patience::new(1000 * MS, 1000 * MS, Instant(0));
        for request in 0..10_000u64 {
            let (now, waited_ns) = (Instant(request * MS), request * 7919 % 1000 * MS);
            match request % 4 {
                0 => drop(patience.lapsed(now, waited_ns)),
                _ => patience.answered(waited_ns, MS),
            }
            assert!(patience.lasts(now, 1000 * MS), "{request}");
        }
    }
}
