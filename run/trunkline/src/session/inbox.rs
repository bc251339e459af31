//! What a worker has to do: calls delivered, calls dismissed, and the daemon's word that none will come.

use std::collections::VecDeque;
use trunkline_call::CallId;
use trunkline_call::entry::Call;

/// Delivered calls no worker has taken, and those whose handlers are to be dropped.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    work: Work,
    /// The daemon has said that no call is left here and none will come.
    drained: bool,
}

/// What a worker is to do.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Calls to handle.
    pub(crate) calls: VecDeque<Call>,
    /// Calls whose handlers are to be dropped.
    pub(crate) dismissed: Vec<CallId>,
}

impl Inbox {
    pub(super) fn deliver(&mut self, call: Call) {
        self.work.calls.push_back(call);
    }

    pub(super) fn dismiss(&mut self, call: CallId) {
        self.work.dismissed.push(call);
    }

    /// Gives what there is to do, for the empty `work` of the last turn.
    pub(super) fn take(&mut self, work: &mut Work) {
        std::mem::swap(&mut self.work, work);
    }

    pub(super) fn set_drained(&mut self) {
        self.drained = true;
    }

    /// The session is over: what nobody has begun is nobody's, and these handlers are to be dropped.
    pub(super) fn lose(&mut self, delivered: Vec<CallId>) {
        self.work.dismissed.extend(delivered);
        self.work.calls.clear();
    }

    pub(super) fn has_calls(&self) -> bool {
        !self.work.calls.is_empty()
    }

    pub(super) fn has_drained(&self) -> bool {
        self.drained
    }
}
