//! Waiting for a lane's session.

use super::handle::ReactorHandle;
use super::lane::{Lane, LaneFound, Patience};
use crate::session::Session;
use crate::wakers::WakerPlace;
use std::sync::Arc;
use std::task::{Context, Poll};
use trunkline_call::Status;

/// Waiting for a lane's session. Dropping it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct SessionWait {
    patience: Patience,
    /// Where it waits, and how many attempts had failed there when it began to.
    lane: Option<(Arc<Lane>, u64)>,
    place: WakerPlace,
}

impl SessionWait {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, lane: None, place: WakerPlace::default() }
    }

    /// Waits for the session of `lane`, which `reactor` attaches if there is none.
    ///
    /// # Errors
    /// UNAVAILABLE, not executed: an attempt failed and patience is [`Patience::FailFast`], or none can be made.
    pub(crate) fn poll(
        &mut self,
        reactor: &Arc<ReactorHandle>,
        lane: &Arc<Lane>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Arc<Session>, Status>> {
        if self.lane.as_ref().is_some_and(|(waits_at, _)| !Arc::ptr_eq(waits_at, lane)) {
            self.leave();
        }
        let mut state = lane.lock();
        let begun = self.lane.get_or_insert_with(|| (Arc::clone(lane), state.failures())).1;
        match state.find(self.patience, begun) {
            LaneFound::Session(session) => return Poll::Ready(Ok(session)),
            LaneFound::Refused(why) => return Poll::Ready(Err(why)),
            LaneFound::Wait => {}
            LaneFound::RetryAt(retry_at) => {
                state.retry_set();
                reactor.attach_at(lane, retry_at);
            }
            LaneFound::Attach => {
                reactor.attach(lane)?;
                state.attaching();
            }
        }
        state.park(self.patience, &mut self.place, cx.waker());
        Poll::Pending
    }

    fn leave(&mut self) {
        let Some((lane, _)) = self.lane.take() else { return };
        // In a forked child the lock may be held for ever, and nobody is woken there.
        if !lane.is_foreign() {
            lane.lock().leave(self.patience, &mut self.place);
        }
        self.place = WakerPlace::default();
    }
}

impl Drop for SessionWait {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    //! Shows that whoever stops waiting for a session leaves nothing behind, however many they are.
    use super::*;
    use crate::hub::{Daemon, Hub};
    use std::task::Waker;
    use trunkline_shm::Places;

    #[test]
    fn calls_abandoned_while_there_is_no_daemon_leave_nothing_behind() {
        let hub = Hub::of(Daemon::Attached(Places::Named("/nonexistent/lane".into())), "test");
        let (reactor, lane) = (hub.reactor(), hub.tasks().first());
        let cx = &mut Context::from_waker(Waker::noop());
        let mut patient = SessionWait::new(Patience::UntilReady);
        assert!(patient.poll(reactor, lane, cx).is_pending());
        while !lane.lock().has_failed() {
            std::thread::yield_now(); // the first attempt is failing
        }
        let mut waits: Vec<_> = (0..1000).map(|_| SessionWait::new(Patience::UntilReady)).collect();
        for wait in &mut waits {
            assert!(wait.poll(reactor, lane, cx).is_pending());
            assert!(wait.poll(reactor, lane, cx).is_pending(), "asked twice, it has one place");
        }
        assert_eq!(lane.lock().patient(), 1001);
        assert!(reactor.timers() <= 2, "one attempt for all of them");
        drop(waits);
        assert_eq!(lane.lock().patient(), 1);
        drop(patient);
        assert_eq!(lane.lock().patient(), 0);
    }
}
