//! Calls that end because the call they were made for has.

use crate::CallKey;
use std::collections::VecDeque;
use trunkline_call::Code;

/// Calls handlers have made, whose own call is over: they end one after another, however deep they are nested.
///
/// Ending them where their parent ends would take stack for each level, and applications choose how many levels there
/// are. Each call has one parent and is taken from it once, so there are never more entries than calls were made.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Nested {
    /// Call, and the code its parent ended with. The call may have ended since.
    waiting: VecDeque<(CallKey, Code)>,
}

impl Nested {
    /// Calls ended in one go. A call takes about a microsecond to end, so nobody waits for longer than a fraction of a
    /// millisecond behind them.
    pub const PER_STEP_MAX: usize = 256;

    /// Takes in the children of a call that ended with `code`.
    pub fn add(&mut self, children: Vec<CallKey>, code: Code) {
        self.waiting.extend(children.into_iter().map(|child| (child, code)));
    }

    /// The next call to end.
    pub fn next(&mut self) -> Option<(CallKey, Code)> {
        self.waiting.pop_front()
    }

    /// Whether no call is to be ended.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
