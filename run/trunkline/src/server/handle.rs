//! A server in the background.

use super::shared::{Shared, after};
use crate::wait::Wait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use trunkline_call::Status;

/// A server running in the background. Dropping it tells the server to stop, and does not wait for it. A forked child
/// has no server: what waits for one there is UNAVAILABLE.
pub struct ServerHandle {
    shared: Arc<Shared>,
    grace: Duration,
    /// It runs until the process ends.
    detached: bool,
}

impl ServerHandle {
    /// Waits until every worker has announced the services to the daemon: from here on calls arrive.
    ///
    /// # Errors
    /// The server's error if it ended. PERMISSION_DENIED while the daemon refuses a service (its name is another's, or
    /// a rule forbids it), RESOURCE_EXHAUSTED while it has no room for it: the server goes on, and asks again each
    /// second.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn ready(&self) -> Result<(), Status> {
        self.shared.ready().await
    }

    /// Stops gracefully: no new calls, those in flight have until `limit` to finish. Then their callers get
    /// UNAVAILABLE.
    ///
    /// # Errors
    /// The server's error if it had ended with one.
    ///
    /// # Cancel safety
    /// Dropping it does not take the order back.
    pub async fn shutdown(&self, limit: Duration) -> Result<(), Status> {
        self.stop(limit);
        self.finished().await
    }

    /// Waits until the server has ended.
    ///
    /// # Errors
    /// FAILED_PRECONDITION when the daemon did not take a service as it is described.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn finished(&self) -> Result<(), Status> {
        self.shared.ended().await
    }

    /// [`ServerHandle::finished`] on this thread.
    ///
    /// # Errors
    /// As there.
    pub fn wait(&self) -> Result<(), Status> {
        self.finished().wait()
    }

    /// Lets the server run until the process ends.
    pub fn detach(self) {
        let mut handle = self;
        handle.detached = true;
    }

    pub(super) fn new(shared: Arc<Shared>, grace: Duration) -> Self {
        Self { shared, grace, detached: false }
    }

    fn stop(&self, limit: Duration) {
        order_stop(&self.shared, limit);
    }
}

/// Tells a server to stop and to give calls in flight until `limit`.
pub(super) fn order_stop(shared: &Shared, limit: Duration) {
    shared.order_stop(after(limit));
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        if !self.detached {
            self.stop(self.grace);
        }
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle").field("grace", &self.grace).finish_non_exhaustive()
    }
}
