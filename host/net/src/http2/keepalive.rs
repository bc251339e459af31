//! Keepalive and the age of a connection: our pings, the peer's pings, and when a connection ends.

use super::settings::{AgeSettings, KeepaliveSettings, PingSettings};
use trunkline_call::Instant;

/// Pings that come too early before a server ends the connection (gRFC A8).
const STRIKES_MAX: u32 = 2;

/// Our own pings.
#[derive(Debug)]
pub(super) struct Keepalive {
    settings: KeepaliveSettings,
    /// When the peer was last heard, or began to matter.
    heard: Instant,
    /// When the ping that waits for an answer left.
    asked: Option<Instant>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Send a ping.
    Ask,
    /// The peer did not answer.
    Dead,
}

/// Counts the peer's pings that come too early: gRFC A8's ping strikes (server role).
#[derive(Debug)]
pub(super) struct PingStrikes {
    settings: PingSettings,
    last: Option<Instant>,
    strikes: u32,
}

/// When a connection is to end (server role).
#[derive(Debug)]
pub(super) struct Lifetime {
    settings: AgeSettings,
    /// When it says GOAWAY for its age.
    old: Option<Instant>,
    /// Since when no call is in flight.
    idle_since: Option<Instant>,
    /// When GOAWAY was said.
    leaving_since: Option<Instant>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Nothing,
    /// Say GOAWAY, let calls end.
    Leave,
    /// End now.
    Close,
}

impl Keepalive {
    pub fn new(settings: KeepaliveSettings, now: Instant) -> Self {
        Self { settings, heard: now, asked: None }
    }

    /// Something came: whoever sends lives.
    pub fn handle_heard(&mut self, now: Instant) {
        self.heard = now;
        self.asked = None;
    }

    /// The first call after a pause: silence counts from here.
    pub fn handle_awake(&mut self, now: Instant) {
        if !self.settings.without_calls {
            self.heard = self.heard.max(now);
        }
    }

    pub fn handle_timeout(&mut self, now: Instant, has_calls: bool) -> Due {
        if self.next_timeout(has_calls).is_none_or(|at| at > now) {
            return Due::Nothing;
        }
        if self.asked.is_some() {
            return Due::Dead;
        }
        self.asked = Some(now);
        Due::Ask
    }

    pub fn next_timeout(&self, has_calls: bool) -> Option<Instant> {
        if let Some(asked) = self.asked {
            return Some(asked.plus_ns(self.settings.timeout_ns));
        }
        let after_ns = self.settings.after_ns.filter(|_| has_calls || self.settings.without_calls)?;
        Some(self.heard.plus_ns(after_ns))
    }
}

impl PingStrikes {
    pub fn new(settings: PingSettings) -> Self {
        Self { settings, last: None, strikes: 0 }
    }

    /// We sent headers or data: the peer may ask about them, and starts anew.
    pub fn handle_sent(&mut self) {
        self.strikes = 0;
        self.last = None;
    }

    /// A ping came. `false` if it was one too many.
    pub fn handle_ping(&mut self, now: Instant, has_calls: bool) -> bool {
        let interval_ns = if has_calls || self.settings.without_calls {
            self.settings.interval_ns_min
        } else {
            PingSettings::IDLE_INTERVAL_NS
        };
        if self.last.is_some_and(|last| now.since_ns(last) < interval_ns) {
            self.strikes += 1;
        }
        self.last = Some(now);
        self.strikes <= STRIKES_MAX
    }
}

impl Lifetime {
    /// `random` spreads the age by a tenth either way, so that connections of one start do not end at once.
    pub fn new(settings: AgeSettings, now: Instant, random: u64) -> Self {
        let old = settings.age_ns_max.map(|age_ns| now.plus_ns(jittered(age_ns, random)));
        Self { settings, old, idle_since: Some(now), leaving_since: None }
    }

    /// Calls are in flight, or are no more.
    pub fn handle_calls(&mut self, now: Instant, has_calls: bool) {
        if has_calls {
            self.idle_since = None;
        } else {
            self.idle_since.get_or_insert(now);
        }
    }

    /// GOAWAY has been said.
    pub fn handle_leaving(&mut self, now: Instant) {
        self.leaving_since.get_or_insert(now);
    }

    pub fn handle_timeout(&mut self, now: Instant) -> Ending {
        match (self.next_timeout().is_some_and(|at| at <= now), self.leaving_since) {
            (false, _) => Ending::Nothing,
            (true, None) => Ending::Leave,
            (true, Some(_)) => Ending::Close,
        }
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        match self.leaving_since {
            Some(since) => self.settings.grace_ns.map(|grace_ns| since.plus_ns(grace_ns)),
            None => {
                let idle_ns = self.settings.idle_ns_max;
                let idle = self.idle_since.zip(idle_ns).map(|(since, ns)| since.plus_ns(ns));
                self.old.into_iter().chain(idle).min()
            }
        }
    }
}

/// Nine to eleven tenths of `ns`.
fn jittered(ns: u64, random: u64) -> u64 {
    let spread = (u128::from(ns) * u128::from(random) / u128::from(u64::MAX) / 5) as u64;
    (ns - ns / 10).saturating_add(spread)
}

#[cfg(test)]
mod tests {
    //! Shows when is asked, who is dead, which pings are too many, and when a connection ends.
    use super::super::settings::{Http2Settings, SECOND_NS};
    use super::*;

    fn s(seconds: u64) -> Instant {
        Instant(seconds * SECOND_NS)
    }

    #[test]
    fn silence_is_asked_about_and_no_answer_is_death() {
        let mut keepalive = Keepalive::new(KeepaliveSettings::after(10 * SECOND_NS), s(0));
        assert_eq!(keepalive.next_timeout(false), None, "nobody waits");
        assert_eq!(keepalive.handle_timeout(s(9), true), Due::Nothing);
        assert_eq!(keepalive.handle_timeout(s(10), true), Due::Ask);
        assert_eq!(keepalive.handle_timeout(s(29), true), Due::Nothing);
        keepalive.handle_heard(s(29));
        assert_eq!(keepalive.handle_timeout(s(38), true), Due::Nothing);
        assert_eq!(keepalive.handle_timeout(s(39), true), Due::Ask);
        assert_eq!(keepalive.handle_timeout(s(59), false), Due::Dead, "even if the calls have ended");
    }

    #[test]
    fn a_pause_is_no_silence() {
        let mut keepalive = Keepalive::new(KeepaliveSettings::after(10 * SECOND_NS), s(0));
        keepalive.handle_awake(s(1000));
        assert_eq!(keepalive.handle_timeout(s(1009), true), Due::Nothing);
        assert_eq!(keepalive.handle_timeout(s(1010), true), Due::Ask);
    }

    #[test]
    fn the_third_early_ping_is_too_many() {
        let mut ping_strikes = PingStrikes::new(Http2Settings::server().pings);
        assert!(ping_strikes.handle_ping(s(0), true));
        for at in [1, 2] {
            assert!(ping_strikes.handle_ping(s(at), true));
        }
        assert!(!ping_strikes.handle_ping(s(3), true));
        ping_strikes.handle_sent();
        assert!((4..7).all(|at| ping_strikes.handle_ping(s(at), true)), "sending begins anew");
        let mut ping_strikes = PingStrikes::new(Http2Settings::server().pings);
        assert!((0..100).all(|n| ping_strikes.handle_ping(s(n * 300), true)), "every five minutes");
        let mut ping_strikes = PingStrikes::new(Http2Settings::server().pings);
        assert_eq!(
            (0..4).filter(|n| ping_strikes.handle_ping(s(n * 300), false)).count(),
            3,
            "and not without calls"
        );
    }

    #[test]
    fn age_idleness_and_grace_end_a_connection() {
        let settings = AgeSettings {
            age_ns_max: Some(100 * SECOND_NS),
            grace_ns: Some(5 * SECOND_NS),
            idle_ns_max: Some(50 * SECOND_NS),
        };
        let mut life = Lifetime::new(settings, s(0), 0);
        life.handle_calls(s(10), true);
        assert_eq!(life.next_timeout(), Some(s(90)), "a tenth early");
        life.handle_calls(s(20), false);
        assert_eq!(life.next_timeout(), Some(s(70)), "idle");
        life.handle_calls(s(60), true);
        assert_eq!(life.handle_timeout(s(90)), Ending::Leave);
        life.handle_leaving(s(90));
        assert_eq!(life.handle_timeout(s(94)), Ending::Nothing);
        assert_eq!(life.handle_timeout(s(95)), Ending::Close);
        assert_eq!(Lifetime::new(settings, s(0), u64::MAX).old, Some(s(110)), "a tenth late");
    }
}
