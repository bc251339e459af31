//! Copies of calls that policies of kind `mirror` want sent elsewhere: how many are under way, and what became of them.

use crate::policies::{Permits, Policies};
use crate::state::Slot;
use std::sync::Arc;
use trunkline_call::{Code, Instant};

/// A copy of a call that a policy wants to be sent elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub(crate) slot: Slot,
    pub(crate) calls_max: u32,
    /// An endpoint, or a name.
    pub target: Arc<str>,
    /// The longest it may take.
    pub timeout_ns: u64,
}

impl Policies {
    /// A copy is about to be sent. What it holds is to be given back by [`Policies::end_mirror`]; `None` if as many are
    /// under way as may be.
    pub fn begin_mirror(&mut self, mirror: &Mirror) -> Option<Permits> {
        let state = self.states.find(mirror.slot)?;
        if state.under_way >= mirror.calls_max {
            return None;
        }
        state.under_way += 1;
        state.figures.mirrored += 1;
        Some(Permits::of(mirror.slot))
    }

    /// A copy is not sent: there is no room for it.
    pub fn leave_out_mirror(&mut self, mirror: &Mirror) {
        if let Some(state) = self.states.find(mirror.slot) {
            state.figures.left_out += 1;
        }
    }

    /// A copy has ended with `code`.
    pub fn end_mirror(&mut self, now: Instant, permits: Permits, code: Code) {
        for slot in permits.places.iter().filter(|_| code != Code::Ok) {
            if let Some(state) = self.states.find(*slot) {
                state.figures.failed += 1;
            }
        }
        self.finish(now, permits, code);
    }
}
