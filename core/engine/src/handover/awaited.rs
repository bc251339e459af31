//! The daemon's own services while it changes processes, and the calls that wait for them.
//!
//! Health, reflection and the admin API are applications of the daemon's own process and end with it; the next process
//! brings its own, some milliseconds after it has gone on. A health check in between would hear that nobody serves it,
//! and whoever asks how the replacement goes would hear nothing. So calls of these services wait: in the old engine
//! from the moment on in which nothing new is begun, in the new one until their successors have bound the methods.
//! Meanwhile the names stay those of the daemon's user. A gRPC client cannot follow to the next process: until this one
//! ends, its calls are answered here.
//!
//! # Limits
//! [`CALLS_MAX`] calls with requests of [`CALL_BYTES_MAX`] bytes, for [`WAIT_NS`]; beyond that nobody serves them.

use crate::{CallKey, SessionKey};
use trunkline_call::Instant;

/// Calls that wait: more than probes and operators have under way.
const CALLS_MAX: usize = 1024;
/// Bytes of one such request that the daemon holds itself.
const CALL_BYTES_MAX: usize = 16 << 10;
/// How long successors are waited for. They are there after milliseconds; a machine may be busy.
pub(crate) const WAIT_NS: u64 = 10_000_000_000;

/// What is waited for, and who waits.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// Sessions that ended with the process before. The registry still has them, with the types of what they served.
    left: Vec<SessionKey>,
    /// Calls that wait; some may have ended meanwhile.
    calls: Vec<CallKey>,
    /// This engine begins nothing new, for a hand-over is near: the calls that were under way when that began.
    held: Option<Vec<CallKey>>,
    /// Until when successors are waited for. A timer alone does not say: it may be one of the engine before this one.
    until: Instant,
}

impl Awaited {
    /// From now on nothing new is begun; these calls are under way.
    pub fn hold(&mut self, begun: Vec<CallKey>) {
        self.held = Some(begun);
    }

    /// Whether nothing new is begun.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// The calls that were under way when it was held; some may have ended meanwhile.
    pub fn begun(&self) -> impl Iterator<Item = CallKey> {
        self.held.iter().flatten().copied()
    }

    /// The hand-over was in vain. Whether anything was held.
    pub fn release(&mut self) -> bool {
        self.held.take().is_some()
    }

    /// A session that ended with the process before, and whose successor is expected until then.
    pub fn leave(&mut self, session: SessionKey, until: Instant) {
        self.left.push(session);
        self.until = until;
    }

    /// Those whose successors are expected.
    pub fn those_who_left(&self) -> impl Iterator<Item = SessionKey> {
        self.left.iter().copied()
    }

    /// Whether successors that are not there are not waited for any longer.
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// Successors are there, or not expected any more.
    pub fn forget(&mut self, mut is_over: impl FnMut(SessionKey) -> bool) -> Vec<SessionKey> {
        let (over, left) = std::mem::take(&mut self.left).into_iter().partition(|session| is_over(*session));
        self.left = left;
        over
    }

    /// Whether calls may have to wait at all.
    pub fn is_active(&self) -> bool {
        self.held.is_some() || !self.left.is_empty()
    }

    /// Whether this session answers nobody now, or nobody who `follows` to the next process.
    pub fn is_away(&self, session: SessionKey, follows: bool) -> bool {
        self.held.is_some() && follows || self.left.contains(&session)
    }

    /// Takes a call in, if there is room for it. `is_waiting` knows which of those before it still wait.
    pub fn admit(&mut self, key: CallKey, bytes: usize, is_waiting: impl Fn(CallKey) -> bool) -> bool {
        if self.calls.len() >= CALLS_MAX {
            self.calls.retain(|key| is_waiting(*key));
        }
        let has_room = self.calls.len() < CALLS_MAX && bytes <= CALL_BYTES_MAX;
        if has_room {
            self.calls.push(key);
        }
        has_room
    }

    /// Calls that may begin again.
    pub fn take_calls(&mut self) -> Vec<CallKey> {
        std::mem::take(&mut self.calls)
    }
}
