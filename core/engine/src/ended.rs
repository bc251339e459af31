//! Calls that ended before their handlers did: when such a handler says what it took, it is known whose that was.

use crate::{CallKey, SessionKey};
use std::collections::VecDeque;
use trunkline_call::{Code, KeyedMap};
use trunkline_telemetry::{MethodIndex, PeerIndex, Side};

/// Handlers that are waited for, at most; those of older calls have their say in vain.
const HANDLERS_MAX: usize = 1024;

/// The series a call was counted in, and the session whose handler it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedCall {
    pub session: SessionKey,
    pub side: Side,
    pub method: MethodIndex,
    pub peer: PeerIndex,
    /// How it ended.
    pub code: Code,
}

/// The last calls that ended so.
#[derive(Debug, Default)]
pub(crate) struct EndedCalls {
    by_key: KeyedMap<CallKey, EndedCall>,
    /// Oldest first.
    order: VecDeque<CallKey>,
}

impl EndedCalls {
    pub fn insert(&mut self, key: CallKey, ended: EndedCall) {
        if self.order.len() >= HANDLERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
        if self.by_key.insert(key, ended).is_none() {
            self.order.push_back(key);
        }
    }

    /// Forgets calls of series that are not counted any more.
    pub fn retain(&mut self, is_counted: impl Fn(MethodIndex, PeerIndex) -> bool) {
        // Their places in the order go with their turns.
        self.by_key.retain(|_, ended| is_counted(ended.method, ended.peer));
    }

    /// The call whose handler a session speaks of, once.
    pub fn take(&mut self, key: CallKey, session: SessionKey) -> Option<EndedCall> {
        self.by_key.get(&key).filter(|ended| ended.session == session)?;
        // Its place in the order goes with its turn.
        self.by_key.remove(&key)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a handler speaks once, for its own session, and that the oldest is forgotten.
    use super::*;
    use crate::table::Key;

    fn ended(session: u64) -> EndedCall {
        let (method, peer) = (MethodIndex::OTHER, PeerIndex::OTHER);
        let (session, side, code) = (Key::from_bits(session), Side::Served, Code::Cancelled);
        EndedCall { session, side, method, peer, code }
    }

    #[test]
    fn each_speaks_once() {
        let mut calls = EndedCalls::default();
        calls.insert(Key::from_bits(7), ended(1));
        assert_eq!(calls.take(Key::from_bits(7), Key::from_bits(2)), None, "of another session");
        assert_eq!(calls.take(Key::from_bits(7), Key::from_bits(1)), Some(ended(1)));
        assert_eq!(calls.take(Key::from_bits(7), Key::from_bits(1)), None);
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let mut calls = EndedCalls::default();
        for key in 0..=HANDLERS_MAX as u64 {
            calls.insert(Key::from_bits(key), ended(1));
        }
        assert_eq!(calls.take(Key::from_bits(0), Key::from_bits(1)), None);
        assert_eq!((calls.by_key.len(), calls.order.len()), (HANDLERS_MAX, HANDLERS_MAX));
        assert!(calls.take(Key::from_bits(HANDLERS_MAX as u64), Key::from_bits(1)).is_some());
    }
}
