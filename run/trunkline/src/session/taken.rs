//! Ends of calls that were taken and whose blocks are held here.
//!
//! A call's end is told with the return of its last block: one entry for both. Whoever keeps a response would so keep
//! the call, too, in the daemon's books and among those a session may have. So an end that was taken a while ago is
//! told by itself, when this side next makes a call or takes an end.

use std::collections::VecDeque;
use trunkline_call::{CallId, Instant};

/// Until then most responses have been read and dropped.
const HELD_NS: u64 = 10_000_000;
/// More are not looked through when a block returns: then the first is told.
const ENDS_MAX: usize = 32;

/// Which calls' ends are untold, in the order in which they were taken, and when.
#[derive(Debug, Default)]
pub(super) struct TakenEnds {
    untold: VecDeque<(CallId, Instant)>,
}

impl TakenEnds {
    pub fn add(&mut self, call: CallId, a18: Instant) {
        self.untold.push_back((call, a18));
    }

    /// One that waits no longer.
    pub fn due(&mut self, now: Instant) -> Option<(CallId, Instant)> {
        let (_, a18) = *self.untold.front()?;
        let is_due = now.since_ns(a18) >= HELD_NS || self.untold.len() >= ENDS_MAX;
        if is_due { self.untold.pop_front() } else { None }
    }

    /// When the end of this call was taken, unless that was told.
    pub fn remove(&mut self, call: CallId) -> Option<Instant> {
        let place = self.untold.iter().rposition(|(untold, _)| *untold == call)?;
        self.untold.remove(place).map(|(_, a18)| a18)
    }
}
