//! The time a router was awake to hear anything: what silence is judged by.

use trunkline_call::Instant;

/// A clock that runs while the router gets a processor.
///
/// A host that stops for half a second (a virtual machine that is moved, a debugger, a machine that swaps) has heard
/// nobody meanwhile, and nobody's silence means anything: the beats of that time come all at once, or were never sent,
/// for the workers may have stood still as well. So of the time between two calls of the host at most `step_ns` counts.
/// Whoever waits for something on this clock is woken as often as that ([`Attention::real`]), so that a host that does
/// run loses nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    step_ns: u64,
    /// The host's last call.
    seen: Instant,
    awake: Instant,
}

impl Attention {
    pub fn new(now: Instant, step_ns: u64) -> Self {
        Self { step_ns: step_ns.max(1), seen: now, awake: now }
    }

    /// The host calls. The time on this clock.
    pub fn attend(&mut self, now: Instant) -> Instant {
        self.awake = self.awake.plus_ns(now.since_ns(self.seen).min(self.step_ns));
        self.seen = self.seen.max(now);
        self.awake
    }

    /// The time on this clock at the host's last call.
    pub fn now(&self) -> Instant {
        self.awake
    }

    /// When the host must call at the latest, so that what is due on this clock is done in time.
    pub fn real(&self, due: Instant) -> Instant {
        self.seen.plus_ns(due.since_ns(self.awake).min(self.step_ns))
    }
}

#[cfg(test)]
mod tests {
    //! Shows that time counts as long as somebody looks, and no more than a step of it otherwise.
    use super::*;

    #[test]
    fn what_nobody_saw_counts_as_one_step() {
        let mut attention = Attention::new(Instant(1000), 100);
        let due = Instant(1450);
        let mut woken = Vec::new();
        while attention.now() < due {
            let next = attention.real(due);
            woken.push(next.0);
            // The third time the host is called a long time late.
            attention.attend(if woken.len() == 3 { next.plus_ns(5000) } else { next });
        }
        assert_eq!(woken, [1100, 1200, 1300, 6400, 6450]);
        attention.attend(Instant(3));
        assert_eq!((attention.now(), attention.real(due)), (due, Instant(6450)), "time never goes back");
    }
}
