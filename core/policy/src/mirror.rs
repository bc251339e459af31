//! Copies of calls that policies of kind `mirror` want sent elsewhere: how many are under way, and what became of them.

use crate::admission::{Mirror, Permits};
use crate::policies::Policies;
use trunkline_call::{Code, Instant};

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
