//! Memory that connections and sessions leave goes back to the kernel.
//!
//! The allocator keeps what is freed below anything that is not, so what a flood took would stay the daemon's for good.
//! To give it back takes a moment in which shards that want memory wait. So the control thread does it when something
//! has ended: five times, at growing distances, because what has ended is not gone at once (a lingering close, calls
//! that are told), and not at all if the process is small. Where something else ends meanwhile, that begins anew, and
//! not more often than every few seconds.
//!
//! Whoever stays may have had the daemon hold much, too. So it is asked every few seconds how much the allocator has
//! free, and given back when that has become much more, or when the process has grown as much and what is free could be
//! the reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trunkline_shm::{free_bytes, give_memory_back};

/// The first look is so long after an end, the next one twice as long after that, and so on.
const BEHIND: Duration = Duration::from_secs(1);
const LOOKS: u32 = 5;
/// Looks for the sake of another end are so far from the last one at least.
const APART: Duration = Duration::from_secs(4);
/// The longest sleep while one is due.
pub(crate) const BEHIND_SLEEP: Duration = BEHIND;
/// Below this there is nothing to be given back that is worth it.
const SMALL_BYTES: u64 = 16 << 20;
/// How often it is asked what is free, and what is much.
const FREE_EVERY: Duration = Duration::from_secs(5);
const MUCH_BYTES: u64 = 16 << 20;

/// Gives memory back when it is time.
#[derive(Debug)]
pub(crate) struct FreedMemory {
    /// Set by whoever ends something.
    ended: Arc<AtomicBool>,
    ends: Ends,
    /// When to ask next what is free.
    asks_at: Option<Instant>,
    unused: Unused,
}

/// When to look, for the sake of what has ended.
#[derive(Debug)]
struct Ends {
    /// When next, and how often it was looked since something ended.
    due: Option<(Instant, u32)>,
    looked: Option<Instant>,
}

/// What the process had when memory was given back last.
#[derive(Clone, Copy, Debug)]
struct Unused {
    own_bytes: u64,
    /// The least that the allocator has had free since: much of it are pages that the kernel has.
    free_bytes: u64,
}

impl FreedMemory {
    /// With the flag that shards set. Looks soon: reading the state of another daemon has left much behind.
    pub fn new(ended: Arc<AtomicBool>) -> Self {
        let ends = Ends { due: Some((Instant::now() + BEHIND, 0)), looked: None };
        let unused = Unused { own_bytes: own_bytes(), free_bytes: free_bytes() };
        Self { ended, ends, asks_at: None, unused }
    }

    /// A session of this thread's has ended.
    pub fn something_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether to look again soon.
    pub fn is_due(&self) -> bool {
        self.ends.due.is_some() || self.ended.load(Ordering::Relaxed)
    }

    /// When to look, though nothing has ended.
    pub fn next_due(&self) -> Option<Instant> {
        self.asks_at
    }

    /// Gives back what there is, if it is time and worth it.
    pub fn look(&mut self) {
        let now = Instant::now();
        if self.ended.swap(false, Ordering::Relaxed) {
            self.ends.something_ended(now);
        }
        let (ends_due, asks) = (self.ends.is_time(now), self.asks_at.is_none_or(|at| at <= now));
        if !ends_due && !asks {
            return;
        }
        let own_bytes = own_bytes();
        let has_much = asks && {
            self.asks_at = Some(now + FREE_EVERY);
            self.unused.is_much(own_bytes, free_bytes())
        };
        if own_bytes > SMALL_BYTES && (ends_due || has_much) {
            self.give_back(own_bytes);
        }
    }

    fn give_back(&mut self, before_bytes: u64) {
        give_memory_back();
        self.unused = Unused { own_bytes: own_bytes(), free_bytes: free_bytes() };
        tracing::debug!(before_bytes, behind_bytes = self.unused.own_bytes, "memory given back");
    }
}

impl Ends {
    /// It is to be looked soon. What is due for something before, and nobody has looked for yet, is soon enough.
    fn something_ended(&mut self, now: Instant) {
        if !matches!(self.due, Some((_, 0))) {
            let soon = now + BEHIND;
            self.due = Some((self.looked.map_or(soon, |looked| soon.max(looked + APART)), 0));
        }
    }

    /// Whether it is to be looked now; then the next time is set.
    fn is_time(&mut self, now: Instant) -> bool {
        let Some((at, looks)) = self.due.filter(|(at, _)| *at <= now) else { return false };
        let looks = looks + 1;
        self.due = (looks < LOOKS).then(|| (at + BEHIND * (1 << looks), looks));
        self.looked = Some(now);
        true
    }
}

impl Unused {
    /// Whether there may be much to give back.
    fn is_much(&mut self, own_bytes: u64, free_bytes: u64) -> bool {
        self.free_bytes = self.free_bytes.min(free_bytes);
        let has_grown = own_bytes > self.own_bytes + MUCH_BYTES;
        free_bytes > self.free_bytes + MUCH_BYTES || has_grown && free_bytes > MUCH_BYTES
    }
}

/// What the process has of the host's memory and shares with nobody; zero where the kernel does not say.
fn own_bytes() -> u64 {
    let said = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Vec<u64> = said.split_whitespace().filter_map(|pages| pages.parse().ok()).collect();
    let [_, resident, shared, ..] = pages[..] else { return 0 };
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    //! Shows when it is looked, on a clock that is moved on, and what is much.
    use super::*;

    #[test]
    fn what_ends_while_looks_are_far_apart_is_looked_for_soon() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let mut ends = Ends { due: None, looked: None };
        ends.something_ended(began);
        let times = |ends: &mut Ends, from: u32, until: u32| -> Vec<u32> {
            (from..until).filter(|at| ends.is_time(began + second * *at)).collect()
        };
        assert_eq!(times(&mut ends, 0, 20), [1, 3, 7, 15]);
        // The next was to be at 31.
        ends.something_ended(began + second * 20);
        assert_eq!(times(&mut ends, 20, 60), [21, 23, 27, 35, 51]);
        // And where something ends all the time.
        let mut looks = Vec::new();
        for at in 60..80 {
            ends.something_ended(began + second * at);
            looks.extend(times(&mut ends, at, at + 1));
        }
        assert_eq!(looks, [61, 65, 69, 73, 77]);
    }

    #[test]
    fn what_was_held_and_is_free_is_much_however_it_came() {
        const MIB: u64 = 1 << 20;
        let mut unused = Unused { own_bytes: 20 * MIB, free_bytes: 50 * MIB };
        assert!(!unused.is_much(30 * MIB, 50 * MIB), "little has come");
        // It is held, of what was free, and given up.
        assert!(!unused.is_much(60 * MIB, 10 * MIB));
        assert!(unused.is_much(60 * MIB, 30 * MIB));
        // Both between two questions.
        let mut unused = Unused { own_bytes: 20 * MIB, free_bytes: 50 * MIB };
        assert!(unused.is_much(60 * MIB, 50 * MIB));
        assert!(!unused.is_much(36 * MIB, 50 * MIB));
    }
}
