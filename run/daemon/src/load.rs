//! What a thread of shards is busy with: measured over intervals, without a look at the clock that is not needed
//! anyhow.
//!
//! A thread that finds nothing to do looks at the clock before it waits and when it has found something; between the
//! two it was idle, and busy otherwise. When an interval is over and it was busy for much of it, its shards say so to
//! the control thread (`placement.rs`). One that rests measures nothing, says nothing and wakes nobody.

use crate::placement::{BUSY_PERMILLE, INTERVAL_NS, MARGIN_PERMILLE, permille};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use trunkline_call::Instant;

/// Turns of a thread that never waits between two looks at the clock.
const TURNS_PER_LOOK: u32 = 64;
/// How busy a thread must have been in an interval for its sessions to be measured in the next, which costs a look at
/// the clock for each of them and turn.
const MEASURED_PERMILLE: u64 = 300;

/// How long a shard's thread has been busy in all, and how busy it is. On a cache line of its own: one thread writes
/// it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct BusyTime {
    total_ns: AtomicU64,
    /// When the last interval ended, and how busy the thread was in it.
    interval_at_ns: AtomicU64,
    interval_permille: AtomicU64,
    /// Whether the shard has a thread of its own: set by whoever starts and stops it.
    has_thread: AtomicBool,
}

/// A thread's measure of its own work, in the first of its shards.
#[derive(Debug)]
pub(crate) struct LoadMeter {
    total: Arc<BusyTime>,
    /// Those of all shards that accept at its very sockets.
    accepting: Vec<Arc<BusyTime>>,
    /// When the interval began, and since when the thread has been busy.
    began: Instant,
    resumed: Instant,
    busy_ns: u64,
    turns: u32,
    /// Whether the time of each session's entries is wanted.
    by_session: bool,
}

impl BusyTime {
    /// In all.
    pub fn ns(&self) -> u64 {
        self.total_ns.load(Ordering::Relaxed)
    }

    /// In parts of a thousand of the last interval. A thread that has said nothing since rests.
    pub fn permille(&self, now_ns: u64) -> u64 {
        let age_ns = now_ns.saturating_sub(self.interval_at_ns.load(Ordering::Relaxed));
        if age_ns > 2 * INTERVAL_NS { 0 } else { self.interval_permille.load(Ordering::Relaxed) }
    }

    /// Whether the shard has a thread of its own.
    pub fn has_thread(&self) -> bool {
        self.has_thread.load(Ordering::Relaxed)
    }

    /// It has, or has not any more.
    pub fn set_thread(&self, has_thread: bool) {
        self.has_thread.store(has_thread, Ordering::Relaxed);
    }
}

impl LoadMeter {
    /// `accepting`: the shards that accept at its very sockets.
    pub fn new(total: Arc<BusyTime>, accepting: &[Arc<BusyTime>], now: Instant) -> Self {
        let accepting = accepting.to_vec();
        Self { total, accepting, began: now, resumed: now, busy_ns: 0, turns: 0, by_session: false }
    }

    /// Whether this shard is busy and another has time: who connects had better be accepted there.
    pub fn leaves_to_others(&self, now: Instant) -> bool {
        let own = self.total.permille(now.0);
        let has_time = |one: &Arc<BusyTime>| one.has_thread() && one.permille(now.0) + MARGIN_PERMILLE <= own;
        own >= BUSY_PERMILLE && self.accepting.iter().any(has_time)
    }

    /// Whether sessions are measured one by one.
    pub fn is_by_session(&self) -> bool {
        self.by_session
    }

    /// The thread was so busy in the last interval; `several`: there are other shards a session could move to.
    pub fn measure_sessions(&mut self, several: bool, permille: u64) {
        self.by_session = several && permille >= MEASURED_PERMILLE;
    }

    /// The thread has found something to do, and has been at it since then.
    pub fn resumes(&mut self, at: Instant) {
        self.resumed = at;
    }

    /// A turn found something. Whether it is time to look at the clock.
    pub fn turned(&mut self) -> bool {
        self.turns += 1;
        self.turns.is_multiple_of(TURNS_PER_LOOK)
    }

    /// The thread has been busy until now. The interval and what was busy of it, if it is over.
    pub fn note(&mut self, now: Instant) -> Option<(u64, u64)> {
        let busy_ns = now.since_ns(self.resumed);
        self.resumed = now;
        self.busy_ns += busy_ns;
        // One writer.
        self.total.total_ns.store(self.total.ns() + busy_ns, Ordering::Relaxed);
        let interval_ns = now.since_ns(self.began);
        if interval_ns < INTERVAL_NS {
            return None;
        }
        self.began = now;
        let busy_ns = std::mem::take(&mut self.busy_ns);
        self.total.interval_permille.store(permille(busy_ns, interval_ns), Ordering::Relaxed);
        self.total.interval_at_ns.store(now.0, Ordering::Relaxed);
        Some((interval_ns, busy_ns))
    }
}

#[cfg(test)]
mod tests {
    //! Shows that waiting is not work, and what is said of a thread that rests.
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_was_waited_is_not_busy() {
        let total = Arc::new(BusyTime::default());
        let at = |ms: u64| Instant(1_000 * MS + ms * MS);
        let mut meter = LoadMeter::new(Arc::clone(&total), &[], at(0));
        assert_eq!(meter.note(at(50)), None, "busy for 50 ms");
        meter.resumes(at(150));
        assert_eq!(meter.note(at(180)), None, "after a wait of 100");
        meter.resumes(at(190));
        assert_eq!(meter.note(at(200)), Some((200 * MS, 90 * MS)));
        assert_eq!((total.ns(), total.permille(at(200).0)), (90 * MS, 450));
        assert_eq!(total.permille(at(700).0), 0, "it rests");
        meter.resumes(at(700));
        assert_eq!(meter.note(at(710)), Some((510 * MS, 10 * MS)), "the interval was as long as that");
    }

    /// Two shards that were so busy in their last interval: whether the first leaves connections to the second.
    fn leaves(own_ms: u64, other_ms: u64, other_has_thread: bool, shares_sockets: bool) -> bool {
        let all = [Arc::new(BusyTime::default()), Arc::new(BusyTime::default())];
        all[1].set_thread(other_has_thread);
        let end = Instant(INTERVAL_NS);
        let accepting = if shares_sockets { &all[..] } else { &[] };
        let [own, _other] = [(0, own_ms), (1, other_ms)].map(|(index, busy_ms)| {
            let mut meter = LoadMeter::new(Arc::clone(&all[index]), accepting, Instant(0));
            meter.resumes(Instant(INTERVAL_NS - busy_ms * MS));
            meter.note(end);
            meter
        });
        own.leaves_to_others(end)
    }

    #[test]
    fn a_busy_shard_leaves_who_connects_to_one_that_has_time() {
        let table = [
            ("the other rests", leaves(180, 0, true, true), true),
            ("it has no thread of its own", leaves(180, 0, false, true), false),
            ("it is as busy", leaves(180, 150, true, true), false),
            ("this one has time", leaves(90, 0, true, true), false),
            ("it has sockets of its own", leaves(180, 0, true, false), false),
        ];
        for (why, left, expected) in table {
            assert_eq!(left, expected, "{why}");
        }
    }

    #[test]
    fn sessions_are_measured_where_that_may_matter() {
        let mut meter = LoadMeter::new(Arc::default(), &[], Instant(0));
        for (several, permille, measured) in [(true, 299, false), (true, 300, true), (false, 900, false)] {
            meter.measure_sessions(several, permille);
            assert_eq!(meter.is_by_session(), measured);
        }
    }
}
