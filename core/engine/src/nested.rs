//! Calls that handlers make for the calls they serve, and that end because those have.

use crate::CallKey;
use crate::call::{Call, Calls};
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

/// Notes that a call is another's child. Those of a call that are over go when the list is full, and it doubles where
/// half of them are not: a handler may have thousands at once, and each that ends is not to be looked for.
pub(crate) fn nest(calls: &mut Calls, parent: CallKey, child: CallKey) {
    let Some(call) = calls.find_mut(parent) else { return };
    if call.children.len() < call.children.capacity() {
        return call.children.push(child);
    }
    let mut children = std::mem::take(&mut call.children);
    children.retain(|child| calls.contains(*child));
    if children.len() >= children.capacity() / 2 {
        children.reserve_exact(children.capacity().max(4));
    }
    children.push(child);
    if let Some(call) = calls.find_mut(parent) {
        call.children = children;
    }
}

/// A delivered call and all calls below it, as far as those that serve them told.
pub(crate) fn subtree(calls: &Calls, call: &Call) -> u32 {
    let open = call.children.iter().filter_map(|child| calls.find(*child));
    let below =
        open.fold(call.subtree_below, |sum, child| sum.saturating_add(child.server_stamps.subtree.max(1)));
    below.saturating_add(1)
}

#[cfg(test)]
mod tests {
    //! Shows that a call knows its children for as long as they are there, and not much longer.
    use super::*;

    #[test]
    fn children_that_are_over_are_not_kept() {
        let mut calls = Calls::default();
        let parent = calls.renew().0;
        for _ in 0..1000 {
            let child = calls.renew().0;
            nest(&mut calls, parent, child);
            calls.put_by(child);
        }
        let of = |calls: &Calls| calls.find(parent).unwrap().children.clone();
        assert!(of(&calls).len() <= 4, "{}", of(&calls).len());
        let open: Vec<CallKey> = (0..1000).map(|_| calls.renew().0).collect();
        open.iter().for_each(|child| nest(&mut calls, parent, *child));
        assert!(open.iter().all(|child| of(&calls).contains(child)));
        open.iter().for_each(|child| calls.put_by(*child));
        (0..3000).for_each(|_| nest(&mut calls, parent, CallKey::NOTHING));
        assert!(of(&calls).len() <= 2000, "{}", of(&calls).len());
    }
}
