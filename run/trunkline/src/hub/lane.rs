//! A place for a session: attached when first needed, again when lost.

use super::Keeper;
use crate::clock;
use crate::kick::Kick;
use crate::session::Session;
use crate::wakers::{self, WakerPlace, Wakers};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use trunkline_call::{Instant, Status};

/// First pause after a failed attach.
const BACKOFF_NS_MIN: u64 = 10_000_000;

/// Longest pause: a daemon that comes back is found within a second.
const BACKOFF_NS_MAX: u64 = 1_000_000_000;

/// What to do while there is no daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Fail when an attempt to attach fails.
    FailFast,
    /// Wait until an attempt succeeds.
    UntilReady,
}

/// What a server asks of its sessions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Role {
    /// Serves only what nobody else serves.
    pub(crate) stands_by: bool,
    /// Is told who makes the calls delivered to it.
    pub(crate) tells_callers: bool,
}

/// A place for a session.
#[derive(Debug)]
pub(crate) struct Lane {
    name: Arc<str>,
    keeper: Arc<Keeper>,
    /// For a worker's lane: wakes the worker.
    worker: Option<Arc<Kick>>,
    role: Role,
    /// Threads that lease it.
    threads: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Who waits for this attempt, and who for one that succeeds.
    impatient: Wakers,
    patient: Wakers,
    /// The keeper has been told to try again.
    retry_set: bool,
    /// Attempts that failed, ever: tells a waiter whether the attempt it waited for is over.
    failures: u64,
    backoff_ns: u64,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Attaching,
    Attached(Arc<Session>),
    Failed { why: Status, retry_at: Instant },
}

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

    /// Waits for the session of `lane`, attaching if there is none.
    ///
    /// # Errors
    /// UNAVAILABLE, not executed: an attempt failed and patience is [`Patience::FailFast`], or none can be made.
    pub(crate) fn poll(
        &mut self,
        lane: &Arc<Lane>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Arc<Session>, Status>> {
        if self.lane.as_ref().is_some_and(|(waits_at, _)| !Arc::ptr_eq(waits_at, lane)) {
            self.leave();
        }
        let mut state = lane.state.lock();
        let begun = self.lane.get_or_insert_with(|| (Arc::clone(lane), state.failures)).1;
        match &state.stage {
            Stage::Attached(session) if session.is_open() => return Poll::Ready(Ok(Arc::clone(session))),
            Stage::Failed { why, .. } if self.patience == Patience::FailFast && state.failures > begun => {
                return Poll::Ready(Err(why.clone()));
            }
            Stage::Failed { why, retry_at } if *retry_at > clock::now() => {
                if self.patience == Patience::FailFast {
                    return Poll::Ready(Err(why.clone()));
                }
                let retry_at = *retry_at;
                if !std::mem::replace(&mut state.retry_set, true) {
                    lane.keeper.attach_at(lane, retry_at);
                }
            }
            Stage::Attaching => {}
            Stage::Idle | Stage::Attached(_) | Stage::Failed { .. } => {
                lane.keeper.attach(lane)?;
                state.stage = Stage::Attaching;
            }
        }
        state.waiting(self.patience).park(&mut self.place, cx.waker());
        Poll::Pending
    }

    fn leave(&mut self) {
        let Some((lane, _)) = self.lane.take() else { return };
        // In a forked child the lock may be held for ever, and nobody is woken there.
        if !lane.keeper.is_foreign() {
            lane.state.lock().waiting(self.patience).leave(&mut self.place);
        }
        self.place = WakerPlace::default();
    }
}

impl Drop for SessionWait {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Lane {
    /// A lane for calls.
    pub(super) fn of_calls(name: &Arc<str>, keeper: &Arc<Keeper>) -> Arc<Self> {
        Self::new(name, keeper, None, Role::default())
    }

    /// A lane for a server's worker.
    pub(super) fn of_worker(
        name: &Arc<str>,
        keeper: &Arc<Keeper>,
        worker: Arc<Kick>,
        role: Role,
    ) -> Arc<Self> {
        Self::new(name, keeper, Some(worker), role)
    }

    fn new(name: &Arc<str>, keeper: &Arc<Keeper>, worker: Option<Arc<Kick>>, role: Role) -> Arc<Self> {
        let state = State {
            stage: Stage::Idle,
            impatient: Wakers::default(),
            patient: Wakers::default(),
            retry_set: false,
            failures: 0,
            backoff_ns: BACKOFF_NS_MIN,
        };
        Arc::new(Self {
            name: Arc::clone(name),
            keeper: Arc::clone(keeper),
            worker,
            role,
            threads: AtomicUsize::new(0),
            state: Mutex::new(state),
        })
    }

    /// The session, if one is attached and takes calls.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        match &self.state.lock().stage {
            Stage::Attached(session) if session.is_open() => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// For the keeper: an attempt scheduled earlier is due. Tells whether it is still wanted.
    pub(super) fn begin_retry(&self) -> bool {
        let mut state = self.state.lock();
        state.retry_set = false;
        let wanted = matches!(state.stage, Stage::Failed { .. }) && !state.patient.is_empty();
        if wanted {
            state.stage = Stage::Attaching;
        }
        wanted
    }

    /// For the keeper: the attempt succeeded.
    pub(super) fn attached(&self, session: Arc<Session>) {
        let waiting = {
            let mut state = self.state.lock();
            state.stage = Stage::Attached(session);
            state.backoff_ns = BACKOFF_NS_MIN;
            state.impatient.take().chain(state.patient.take())
        };
        // Not under the lock: what a waker does is not ours to know.
        waiting.for_each(wakers::wake);
    }

    /// For the keeper: the attempt failed. Tells when to try again, if anybody is patient.
    pub(super) fn failed(&self, why: &Status) -> Option<Instant> {
        let mut state = self.state.lock();
        let retry_at = clock::now().plus_ns(state.backoff_ns);
        state.backoff_ns = (state.backoff_ns * 2).min(BACKOFF_NS_MAX);
        state.failures += 1;
        state.stage = Stage::Failed { why: why.clone(), retry_at };
        let impatient = state.impatient.take();
        state.retry_set = !state.patient.is_empty();
        let again = state.retry_set;
        drop(state);
        impatient.for_each(wakers::wake);
        again.then_some(retry_at)
    }

    /// For the keeper: the session is over; the next use attaches anew.
    pub(super) fn lost(&self, session: &Arc<Session>) {
        let mut state = self.state.lock();
        if matches!(&state.stage, Stage::Attached(attached) if Arc::ptr_eq(attached, session)) {
            state.stage = Stage::Idle;
        }
    }

    /// Ends the lane's session in peace: nobody will use the lane again.
    pub(crate) fn close(&self) {
        let session = self.session_in_any_phase();
        if let Some(session) = session {
            session.lose("closed by the application");
        }
    }

    fn session_in_any_phase(&self) -> Option<Arc<Session>> {
        match &self.state.lock().stage {
            Stage::Attached(session) => Some(Arc::clone(session)),
            _ => None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    pub(super) fn worker(&self) -> Option<Arc<Kick>> {
        self.worker.clone()
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl State {
    fn waiting(&mut self, patience: Patience) -> &mut Wakers {
        match patience {
            Patience::FailFast => &mut self.impatient,
            Patience::UntilReady => &mut self.patient,
        }
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
        let lane = hub.task_lane();
        let cx = &mut Context::from_waker(Waker::noop());
        let mut patient = SessionWait::new(Patience::UntilReady);
        assert!(patient.poll(lane, cx).is_pending());
        while !matches!(lane.state.lock().stage, Stage::Failed { .. }) {
            std::thread::yield_now(); // the first attempt is failing
        }
        let mut waits: Vec<_> = (0..1000).map(|_| SessionWait::new(Patience::UntilReady)).collect();
        for wait in &mut waits {
            assert!(wait.poll(lane, cx).is_pending());
            assert!(wait.poll(lane, cx).is_pending(), "asked twice, it has one place");
        }
        let waiting = |lane: &Lane| lane.state.lock().patient.len();
        assert_eq!(waiting(lane), 1001);
        assert!(hub.keeper().timers() <= 2, "one attempt for all of them");
        drop(waits);
        assert_eq!(waiting(lane), 1);
        drop(patient);
        assert_eq!(waiting(lane), 0);
    }
}
