//! Is the peer still there? A half-open connection (peer's host gone, no RST) is silent for ever unless asked.

use trunkline_call::Instant;

/// Asks after silence, and gives up after silence that follows the question. Any byte is an answer.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Keepalive {
    interval_ns: u64,
    timeout_ns: u64,
    heard_at: Instant,
    asked_at: Option<Instant>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Ask,
    GiveUp,
}

impl Keepalive {
    /// An `interval_ns` of zero never asks.
    pub fn new(interval_ns: u64, timeout_ns: u64, now: Instant) -> Self {
        Self { interval_ns, timeout_ns, heard_at: now, asked_at: None }
    }

    /// The times of another configuration hold from now on.
    pub fn set_times(&mut self, interval_ns: u64, timeout_ns: u64) {
        (self.interval_ns, self.timeout_ns) = (interval_ns, timeout_ns);
    }

    /// Bytes came.
    pub fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.asked_at = None;
    }

    /// What time has brought; after [`Due::Ask`] the question counts as asked.
    pub fn handle_timeout(&mut self, now: Instant) -> Due {
        if self.next_timeout().is_none_or(|at| at > now) {
            return Due::Nothing;
        }
        if self.asked_at.is_some() {
            return Due::GiveUp;
        }
        self.asked_at = Some(now);
        Due::Ask
    }

    /// When something is due next.
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.asked_at {
            Some(at) => Some(at.plus_ns(self.timeout_ns)),
            None => (self.interval_ns != 0).then(|| self.heard_at.plus_ns(self.interval_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows the three verdicts on a made-up clock.
    use super::*;

    #[test]
    fn asks_then_gives_up_unless_heard() {
        let mut keepalive = Keepalive::new(100, 50, Instant(0));
        assert_eq!(keepalive.handle_timeout(Instant(99)), Due::Nothing);
        assert_eq!(keepalive.handle_timeout(Instant(100)), Due::Ask);
        assert_eq!(keepalive.handle_timeout(Instant(149)), Due::Nothing);
        keepalive.heard(Instant(149));
        assert_eq!(keepalive.next_timeout(), Some(Instant(249)));
        assert_eq!(keepalive.handle_timeout(Instant(249)), Due::Ask);
        assert_eq!(keepalive.handle_timeout(Instant(299)), Due::GiveUp);
    }

    #[test]
    fn zero_interval_never_asks() {
        let mut keepalive = Keepalive::new(0, 50, Instant(0));
        assert_eq!(keepalive.next_timeout(), None);
        assert_eq!(keepalive.handle_timeout(Instant(u64::MAX)), Due::Nothing);
    }

    #[test]
    fn other_times_hold_for_what_is_due_next() {
        let mut keepalive = Keepalive::new(100, 50, Instant(0));
        keepalive.set_times(100, 500);
        assert_eq!(keepalive.handle_timeout(Instant(100)), Due::Ask);
        assert_eq!(keepalive.handle_timeout(Instant(150)), Due::Nothing);
        assert_eq!(keepalive.handle_timeout(Instant(600)), Due::GiveUp);
    }
}
