//! A server that finds no daemon waits for one, as it should: nothing fails, and nobody can call it. So it says why,
//! once for each reason, and when that is over.

use trunkline_call::{Instant, Status};

/// How long attempts fail before anything is said: a daemon that starts again is back by then.
const SAID_AFTER_NS: u64 = 2_000_000_000;
/// Different reasons that are said before a server is attached again: more would be the same, with other numbers in
/// them.
const REASONS_MAX: usize = 8;

/// What servers of one hub have said of the daemon that they cannot attach to.
#[derive(Debug, Default)]
pub(super) struct Unattached {
    /// When the first attempt failed, since one succeeded.
    since: Option<Instant>,
    said: Vec<String>,
}

impl Unattached {
    /// An attempt of the server's has failed. What to say.
    pub(super) fn failed(&mut self, name: &str, why: &Status, now: Instant) -> Option<String> {
        let since = *self.since.get_or_insert(now);
        let why = why.message();
        let is_new = !self.said.iter().any(|said| said == why);
        if now.since_ns(since) < SAID_AFTER_NS || !is_new || self.said.len() >= REASONS_MAX {
            return None;
        }
        self.said.push(why.to_owned());
        Some(format!("{name} is not attached, and nobody can call it: {why}; it tries again every second"))
    }

    /// A server is attached. What to say.
    pub(super) fn attached(&mut self, name: &str) -> Option<String> {
        self.since = None;
        let said = std::mem::take(&mut self.said);
        (!said.is_empty()).then(|| format!("{name} is attached"))
    }
}

#[cfg(test)]
mod tests {
    //! Shows when a server without a daemon speaks, and how often.
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * SECOND_NS)
    }

    #[test]
    fn a_reason_is_said_once_and_its_end_too() {
        let mut unattached = Unattached::default();
        let denied = Status::unavailable("no daemon at /d.sock: connect: Permission denied");
        let says = "greeter is not attached, and nobody can call it: no daemon at /d.sock: connect: Permission denied; \
                    it tries again every second";
        assert_eq!(unattached.attached("greeter"), None);
        assert_eq!(unattached.failed("greeter", &denied, at(5)), None, "it may be one that starts again");
        assert_eq!(unattached.failed("greeter", &denied, at(7)).as_deref(), Some(says));
        assert_eq!(unattached.failed("greeter", &denied, at(8)), None);
        assert!(unattached.failed("greeter", &Status::unavailable("another"), at(9)).is_some());
        assert_eq!(unattached.failed("greeter", &denied, at(10)), None);
        assert_eq!(unattached.attached("greeter").as_deref(), Some("greeter is attached"));
        assert_eq!(unattached.failed("greeter", &denied, at(11)), None, "a daemon that went away");
        assert_eq!(unattached.attached("greeter"), None, "and came back");
    }

    #[test]
    fn reasons_without_end_are_not_said_without_end() {
        let mut unattached = Unattached::default();
        let say = |unattached: &mut Unattached, number: u64| {
            unattached.failed("greeter", &Status::unavailable(number.to_string()), at(number))
        };
        assert_eq!((0..1000).filter_map(|number| say(&mut unattached, number)).count(), REASONS_MAX);
    }
}
