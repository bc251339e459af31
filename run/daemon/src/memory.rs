//! Memory that connections and sessions leave goes back to the kernel.
//!
//! The allocator keeps what is freed below anything that is not, so what a flood took would stay the daemon's for good.
//! To give it back takes a moment in which shards that want memory wait. So the control thread does it when something
//! has ended: five times, at growing distances, because what has ended is not gone at once (a lingering close, calls
//! that are told), and not at all if the process is small.
//!
//! Whoever stays may have had the daemon hold much, too. So it is asked every few seconds how much the process has that
//! is not allocated, and given back when that is much.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trunkline_shm::{give_memory_back, unused_bytes};

/// The first look is so long after an end, the next one twice as long after that, and so on.
const BEHIND: Duration = Duration::from_secs(1);
const LOOKS: u32 = 5;
/// The longest sleep while one is due.
pub(crate) const BEHIND_SLEEP: Duration = BEHIND;
/// Below this there is nothing to be given back that is worth it.
const SMALL_BYTES: u64 = 16 << 20;
/// How often it is asked what is unused, and what is much.
const UNUSED_EVERY: Duration = Duration::from_secs(5);
const UNUSED_BYTES_MAX: u64 = 16 << 20;

/// Gives memory back when it is time.
#[derive(Debug, Default)]
pub(crate) struct FreedMemory {
    /// Set by whoever ends something.
    ended: Arc<AtomicBool>,
    /// When to look next, and how often it was looked since something ended.
    due: Option<(Instant, u32)>,
    /// When to ask next what is unused.
    asks_at: Option<Instant>,
    /// What was unused when the last had been given back: pages on which something lies.
    left_bytes: u64,
}

impl FreedMemory {
    /// With the flag that shards set. Looks soon: reading the state of another daemon has left much behind.
    pub fn new(ended: Arc<AtomicBool>) -> Self {
        Self { ended, due: Some((Instant::now() + BEHIND, 0)), ..Self::default() }
    }

    /// A session of this thread's has ended.
    pub fn something_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether to look again soon.
    pub fn is_due(&self) -> bool {
        self.due.is_some() || self.ended.load(Ordering::Relaxed)
    }

    /// When to look, though nothing has ended.
    pub fn next_due(&self) -> Option<Instant> {
        self.asks_at
    }

    /// Gives back what there is, if it is time and worth it.
    pub fn look(&mut self) {
        self.look_at_ends();
        self.look_at_unused();
    }

    fn look_at_unused(&mut self) {
        let now = Instant::now();
        if self.asks_at.is_some_and(|at| at > now) {
            return;
        }
        self.asks_at = Some(now + UNUSED_EVERY);
        let before_bytes = own_bytes();
        if before_bytes <= SMALL_BYTES {
            return;
        }
        if unused_bytes(before_bytes) > self.left_bytes + UNUSED_BYTES_MAX {
            self.give_back(before_bytes);
        }
    }

    fn give_back(&mut self, before_bytes: u64) {
        give_memory_back();
        let behind_bytes = own_bytes();
        self.left_bytes = unused_bytes(behind_bytes);
        tracing::debug!(before_bytes, behind_bytes, "memory given back");
    }

    fn look_at_ends(&mut self) {
        if self.due.is_none() && self.ended.swap(false, Ordering::Relaxed) {
            self.due = Some((Instant::now() + BEHIND, 0));
        }
        let Some((at, looks)) = self.due.filter(|(at, _)| *at <= Instant::now()) else { return };
        let looks = looks + 1;
        self.due = (looks < LOOKS).then(|| (at + BEHIND * (1 << looks), looks));
        let before_bytes = own_bytes();
        if before_bytes > SMALL_BYTES {
            self.give_back(before_bytes);
        }
    }
}

/// What the process has of the host's memory and shares with nobody; zero where the kernel does not say.
fn own_bytes() -> u64 {
    let said = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Vec<u64> = said.split_whitespace().filter_map(|pages| pages.parse().ok()).collect();
    let [_, resident, shared, ..] = pages[..] else { return 0 };
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}
