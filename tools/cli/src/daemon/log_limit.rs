//! Lines of one kind, so many a second: what a stranger can make the daemon say as often as he likes must not fill a
//! disk, nor hide everything else. A kind is a place in the program that logs.

use super::log_queue::LogQueue;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Lines of one kind at once, before the rate holds, as seconds of it.
const BURST_S: u32 = 5;
/// How long lines are left out before it is told how many.
const REPORT_AFTER: Duration = Duration::from_secs(1);
/// Records of what was done, each wanted; and this file's own word.
const UNLIMITED: [&str; 3] = ["access", "audit", OWN_TARGET];
const OWN_TARGET: &str = "log";
/// Bytes of a message that names its kind.
const NAME_BYTES_MAX: usize = 80;

/// Decides which lines are left out. Its clones are the same.
#[derive(Clone, Debug)]
pub struct KindLimit {
    per_second: u32,
    began: Instant,
    /// As many as there are places in the program that log.
    kinds: Arc<Mutex<HashMap<Identifier, Kind>>>,
    queue: LogQueue,
}

/// Lines of one kind.
#[derive(Debug)]
struct Kind {
    /// Millionths of lines that may still come, as of `filled`.
    level: u64,
    filled: Duration,
    left_out: u64,
    /// What such a line says.
    name: String,
}

const LINE: u64 = 1_000_000;

impl KindLimit {
    /// So many lines of a kind a second (`log.lines_per_kind`), zero for any number; the queue's writer tells of the
    /// others.
    pub fn new(per_second: u32, queue: LogQueue) -> Self {
        Self { per_second, began: Instant::now(), kinds: Arc::default(), queue }
    }

    /// Tells how many lines were left out since the last time.
    pub fn report(&self) {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = kinds.values_mut().filter(|kind| kind.left_out > 0);
        let rows: Vec<_> =
            left_out.map(|kind| (std::mem::take(&mut kind.left_out), kind.name.clone())).collect();
        drop(kinds);
        for (count, name) in rows {
            tracing::warn!(target: OWN_TARGET, count, like = %name, "lines left out (log.lines_per_kind)");
        }
    }

    fn admits(&self, event: &Event<'_>) -> bool {
        let of = event.metadata();
        if self.per_second == 0 || UNLIMITED.contains(&of.target()) {
            return true;
        }
        let now = self.began.elapsed();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = kinds.entry(of.callsite()).or_insert_with(|| Kind::new(self.per_second, now));
        let is_admitted = kind.admits(now, self.per_second);
        if kind.left_out == 1 && !is_admitted {
            kind.name = format!("{}: {}", of.target(), Message::of(event));
            drop(kinds);
            self.queue.want_report(REPORT_AFTER);
        }
        is_admitted
    }
}

impl<S: Subscriber> Layer<S> for KindLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.admits(event)
    }
}

impl Kind {
    fn new(per_second: u32, now: Duration) -> Self {
        let level = u64::from(per_second) * u64::from(BURST_S) * LINE;
        Self { level, filled: now, left_out: 0, name: String::new() }
    }

    fn admits(&mut self, now: Duration, per_second: u32) -> bool {
        let (rate, most) = (u64::from(per_second), u64::from(per_second) * u64::from(BURST_S) * LINE);
        let since_us = u64::try_from(now.saturating_sub(self.filled).as_micros()).unwrap_or(u64::MAX);
        self.level = self.level.saturating_add(since_us.saturating_mul(rate)).min(most);
        self.filled = now;
        let level = self.level.checked_sub(LINE);
        self.left_out += u64::from(level.is_none());
        self.level = level.unwrap_or(self.level);
        level.is_some()
    }
}

/// The text of an event, cut to what names its kind.
struct Message(String);

impl Message {
    fn of(event: &Event<'_>) -> String {
        let mut message = Self(String::new());
        event.record(&mut message);
        message.0
    }
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}").chars().take(NAME_BYTES_MAX).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows what passes, that the rest is counted, and that time makes room again.
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn a_flood_is_a_burst_and_then_a_rate() {
        let mut kind = Kind::new(10, Duration::ZERO);
        let mut admitted = |at_ms: u64, count: usize| {
            (0..count).filter(|_| kind.admits(Duration::from_millis(at_ms), 10)).count()
        };
        assert_eq!(admitted(0, 1000), 50);
        assert_eq!(admitted(99, 10), 0);
        assert_eq!(admitted(100, 10), 1);
        assert_eq!(admitted(1100, 1000), 10);
        assert_eq!(admitted(1_000_000, 1000), 50, "no more than at first, however long it was silent");
        assert_eq!(kind.left_out, 950 + 10 + 9 + 990 + 950);
    }

    #[test]
    fn kinds_do_not_hide_each_other() {
        let (limit, seen) = (KindLimit::new(1, LogQueue::default()), Seen::default());
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(seen.clone());
        let subscriber = tracing_subscriber::registry().with(limit.clone()).with(lines);
        tracing::subscriber::with_default(subscriber, || {
            (0..100).for_each(|number| tracing::warn!(number, "somebody knocks"));
            (0..100).for_each(|number| tracing::info!(target: "access", number, "a record"));
            tracing::error!("the roof is on fire");
            limit.report();
            limit.report();
        });
        let seen = String::from_utf8(seen.0.lock().unwrap().clone()).unwrap();
        let count = |of: &str| seen.lines().filter(|line| line.contains(of)).count();
        // A second or two may have passed meanwhile.
        assert!((5..90).contains(&count("somebody knocks number=")), "{seen}");
        assert_eq!((count("a record"), count("on fire"), count("left out")), (100, 1, 1), "{seen}");
        let told = seen.lines().find(|line| line.contains("left out")).unwrap();
        assert!(told.contains("like=") && told.ends_with("somebody knocks"), "{told}");
    }

    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Seen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Seen {
        type Writer = Self;
        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }
}
