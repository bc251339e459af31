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

use crate::call::{Call, Calls, ServerEnd};
use crate::registry::{MethodKey, Registry, Server};
use crate::target::Target;
use crate::{CallKey, SessionKey};
use std::collections::HashSet;
use trunkline_call::{Instant, Pattern};

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
    /// From now on nothing new is begun. How many of the calls that were under way when that began have no answer.
    pub fn hold(&mut self, calls: &Calls, registry: &Registry) -> usize {
        let begun = self.held.get_or_insert_with(|| own_calls_begun(calls, registry));
        begun.iter().filter(|key| calls.find(**key).is_some_and(|call| !call.response.ended)).count()
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

    /// Successors are there, or not expected any more.
    pub fn forget(&mut self, now: Instant, registry: &Registry) -> Vec<SessionKey> {
        let is_over = now >= self.until;
        // Sessions that are still the only ones to have served some method.
        let mut alone: HashSet<SessionKey> = HashSet::new();
        for row in registry.iter_from(0) {
            let mut sessions = row.servers.iter().map(|server| server.session);
            if sessions.clone().all(|session| self.is_away(session, true)) {
                alone.extend(sessions.by_ref());
            }
        }
        let has_gone = |session: &SessionKey| is_over || !alone.contains(session);
        let (over, left) = std::mem::take(&mut self.left).into_iter().partition(has_gone);
        self.left = left;
        over
    }

    /// Whether calls may have to wait at all.
    pub fn is_active(&self) -> bool {
        self.held.is_some() || !self.left.is_empty()
    }

    /// Whether a method is served by none but the daemon's own, and they are between two processes. For a call whose
    /// client does not follow to the next (`follows`), those of this process are there until it ends.
    pub fn has_all(&self, registry: &Registry, method: MethodKey, target: Target, follows: bool) -> bool {
        let servers = registry.servers(method);
        let is_away = |server: &Server| {
            self.is_away(server.session, follows) && registry.is_of_the_house(method, server)
        };
        !matches!(target, Target::Cluster(_)) && !servers.is_empty() && servers.iter().all(is_away)
    }

    /// Whether this session answers nobody now, or nobody who `follows` to the next process.
    fn is_away(&self, session: SessionKey, follows: bool) -> bool {
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

/// Calls of the daemon's own services that are under way.
fn own_calls_begun(calls: &Calls, registry: &Registry) -> Vec<CallKey> {
    let servers =
        registry.every_server().filter(|(method, server)| registry.is_of_the_house(*method, server));
    let sessions: HashSet<SessionKey> = servers.map(|(_, server)| server.session).collect();
    let is_own = |call: &Call| match &call.server {
        ServerEnd::Session { session, types } => {
            types.pattern == Pattern::Unary && call.request.ended && sessions.contains(session)
        }
        _ => false,
    };
    calls.iter().filter(|(_, call)| is_own(call)).map(|(key, _)| key).collect()
}
