//! Deadlines of waits that have nothing to do with the daemon: for space, for a session to come.

use super::handle::ReactorHandle;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use trunkline_call::{Execution, Instant, Status, TimerKey};

/// Ready at an instant. Dropping it takes the timer back.
#[derive(Debug)]
pub(crate) struct Sleep {
    reactor: Arc<ReactorHandle>,
    at: Instant,
    key: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn until(reactor: &Arc<ReactorHandle>, at: Instant) -> Self {
        Self { reactor: Arc::clone(reactor), at, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if crate::clock::now() >= self.at {
            return Poll::Ready(());
        }
        let old = self.key.take();
        let key = self.reactor.set_timer(self.at, cx.waker().clone(), old);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.reactor.cancel_timer(key);
        }
    }
}

/// The deadline passed before the call left this process.
pub(crate) fn too_late() -> Status {
    Status::deadline_exceeded("deadline passed before the call could be submitted")
        .with_execution(Execution::NotExecuted)
}
