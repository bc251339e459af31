//! What sessions are to hear, as the host takes it.

use super::SessionEnds;
use crate::SessionKey;
use trunkline_call::entry::Completion;

/// What sessions are to hear.
pub struct Outboxes<'e> {
    pub(crate) sessions: &'e mut SessionEnds,
}

impl Outboxes<'_> {
    /// A session whose outbox has something.
    #[inline]
    pub fn poll_session(self) -> Option<SessionKey> {
        self.sessions.poll_completing()
    }

    /// The session's next completion; the host takes as many as its ring has room for.
    #[inline]
    pub fn poll(self, session: SessionKey) -> Option<Completion> {
        self.sessions.poll_completion(session)
    }

    /// Puts the session back in line: its ring was full and its outbox is not empty.
    pub fn blocked(self, session: SessionKey, completion: Completion) {
        self.sessions.completion_blocked(session, completion);
    }

    /// Completions of this session that wait for room in its ring.
    #[inline]
    pub fn waiting(self, session: SessionKey) -> usize {
        self.sessions.completions_waiting(session)
    }
}
