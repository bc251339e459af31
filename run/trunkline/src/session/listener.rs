//! What a session asks of whoever listens for it, and by which names they know each other.

use std::fmt;
use trunkline_call::Instant;

/// Listens to doorbells on behalf of tasks whose threads do not, and keeps timers.
pub(crate) trait SessionListener: fmt::Debug + Send + Sync {
    /// Watches a session's doorbell, from now until no task needs it.
    fn watch(&self, session: SessionId);

    /// Has a session give its unused memory back at an instant.
    fn trim_at(&self, at: Instant, session: SessionId);
}

/// A session among those of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionId(pub(crate) u64);

/// The way to one daemon, in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HubId(pub(crate) u64);

/// Whose a session is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionIdentity {
    pub(crate) session: SessionId,
    pub(crate) hub: HubId,
    /// Its daemon is one inside this process because none was found on the host.
    pub(crate) alone: bool,
}
