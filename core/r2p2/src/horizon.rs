//! From when on everything that has ended is known.

use trunkline_call::Instant;

/// Whoever remembers ended requests forgets them after `remember_ns`, when no repetition comes any more. What is
/// forgotten before its time moves the horizon: a repetition first sent before it is refused, never executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Horizon {
    lifetime_ns: u64,
    remember_ns: u64,
    at: Instant,
}

impl Horizon {
    /// Nothing is known from before `now`.
    pub fn new(lifetime_ns: u64, remember_ns: u64, now: Instant) -> Self {
        Self { lifetime_ns, remember_ns, at: now }
    }

    /// Whether a request nobody knows may be one that was forgotten. A datagram says that it was first sent so long
    /// before, and was there at `came`, or later: it has lain in a socket since.
    pub fn hides(&self, now: Instant, came: Instant, age_ns: u64) -> bool {
        let at = self.at.0.max(now.0.saturating_sub(self.remember_ns));
        came.min(now).0.saturating_sub(age_ns).saturating_sub(self.lifetime_ns) < at
    }

    /// Something that ended then has been forgotten.
    pub fn pass(&mut self, ended: Instant) {
        self.at = self.at.max(ended);
    }

    /// Nothing is known of what was first sent before.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Goes on with what another process knew.
    pub fn set(&mut self, at: Instant) {
        self.at = at;
    }
}
