//! A place for a session: attached when first needed, again when lost.

use crate::clock;
use crate::kick::Kick;
use crate::session::Session;
use crate::wakers::{self, WakerPlace, Wakers};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use trunkline_call::{Instant, Status};
use trunkline_shm::ForkGuard;

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
    /// For a worker's lane: wakes the worker.
    worker: Option<Arc<Kick>>,
    role: Role,
    /// Threads that lease it.
    threads: AtomicUsize,
    state: Mutex<LaneState>,
    guard: ForkGuard,
}

/// How far a lane has come, and who waits for it.
#[derive(Debug)]
pub(super) struct LaneState {
    stage: Stage,
    /// Who waits for this attempt, and who for one that succeeds.
    impatient: Wakers,
    patient: Wakers,
    /// The reactor has been told to try again.
    retry_set: bool,
    /// Attempts that failed, ever: tells a waiter whether the attempt it waited for is over.
    failures: u64,
    backoff_ns: u64,
    /// Nobody will use the lane again.
    is_closed: bool,
}

/// What the daemon is told of a session that ends so.
const CLOSED: &str = "closed by the application";

#[derive(Debug)]
enum Stage {
    Idle,
    Attaching,
    Attached(Arc<Session>),
    Failed { why: Status, retry_at: Instant },
}

/// What somebody who needs a lane's session finds.
#[derive(Debug)]
pub(super) enum LaneFound {
    Session(Arc<Session>),
    /// The attempt failed, and the asker does not wait for another.
    Refused(Status),
    /// An attempt is under way, or set for later.
    Wait,
    /// An attempt is to be set for then.
    RetryAt(Instant),
    /// An attempt is to be made.
    Attach,
}

impl Lane {
    /// A lane for calls.
    pub(crate) fn of_calls(name: &Arc<str>) -> Arc<Self> {
        Self::new(name, None, Role::default())
    }

    /// A lane for a server's worker.
    pub(super) fn of_worker(name: &Arc<str>, worker: Arc<Kick>, role: Role) -> Arc<Self> {
        Self::new(name, Some(worker), role)
    }

    fn new(name: &Arc<str>, worker: Option<Arc<Kick>>, role: Role) -> Arc<Self> {
        let state = LaneState {
            stage: Stage::Idle,
            impatient: Wakers::default(),
            patient: Wakers::default(),
            retry_set: false,
            failures: 0,
            backoff_ns: BACKOFF_NS_MIN,
            is_closed: false,
        };
        Arc::new(Self {
            name: Arc::clone(name),
            worker,
            role,
            threads: AtomicUsize::new(0),
            state: Mutex::new(state),
            guard: ForkGuard::new(),
        })
    }

    /// The session, if one is attached and takes calls.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        match &self.state.lock().stage {
            Stage::Attached(session) if session.is_open() => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// For the reactor: an attempt scheduled earlier is due. Tells whether it is still wanted.
    pub(super) fn begin_retry(&self) -> bool {
        let mut state = self.state.lock();
        state.retry_set = false;
        let wanted = matches!(state.stage, Stage::Failed { .. }) && !state.patient.is_empty();
        if wanted {
            state.stage = Stage::Attaching;
        }
        wanted
    }

    /// For the reactor: the attempt succeeded.
    pub(crate) fn attached(&self, session: Arc<Session>) {
        let (waiting, is_closed) = {
            let mut state = self.state.lock();
            state.stage = Stage::Attached(Arc::clone(&session));
            state.backoff_ns = BACKOFF_NS_MIN;
            (state.impatient.take().chain(state.patient.take()), state.is_closed)
        };
        if is_closed {
            session.lose(CLOSED);
        }
        // Not under the lock: what a waker does is not ours to know.
        waiting.for_each(wakers::wake);
    }

    /// For the reactor: the attempt failed. Tells when to try again, if anybody is patient.
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

    /// For the reactor: the session is over; the next use attaches anew.
    pub(super) fn lost(&self, session: &Arc<Session>) {
        let mut state = self.state.lock();
        if matches!(&state.stage, Stage::Attached(attached) if Arc::ptr_eq(attached, session)) {
            state.stage = Stage::Idle;
        }
    }

    /// Ends the lane's session in peace: nobody will use the lane again. One that is being attached ends when it is.
    pub(crate) fn close(&self) {
        let session = {
            let mut state = self.state.lock();
            state.is_closed = true;
            match &state.stage {
                Stage::Attached(session) => Some(Arc::clone(session)),
                _ => None,
            }
        };
        if let Some(session) = session {
            session.lose(CLOSED);
        }
    }

    /// For a waiter, which finds out how far the lane has come, and waits, in one step.
    pub(super) fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock()
    }

    /// Whether the lane is of the parent of this forked process.
    pub(super) fn is_foreign(&self) -> bool {
        self.guard.is_foreign()
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

impl LaneState {
    /// What somebody finds who began to wait when `begun` attempts had failed.
    pub(super) fn find(&self, patience: Patience, begun: u64) -> LaneFound {
        match &self.stage {
            Stage::Attached(session) if session.is_open() => LaneFound::Session(Arc::clone(session)),
            Stage::Failed { why, retry_at }
                if patience == Patience::FailFast && (self.failures > begun || *retry_at > clock::now()) =>
            {
                LaneFound::Refused(why.clone())
            }
            Stage::Failed { retry_at, .. } if *retry_at > clock::now() => {
                if self.retry_set {
                    LaneFound::Wait
                } else {
                    LaneFound::RetryAt(*retry_at)
                }
            }
            Stage::Attaching => LaneFound::Wait,
            Stage::Idle | Stage::Attached(_) | Stage::Failed { .. } => LaneFound::Attach,
        }
    }

    /// The attempt that was to be made is being made.
    pub(super) fn attaching(&mut self) {
        self.stage = Stage::Attaching;
    }

    /// The attempt that was to be set is set.
    pub(super) fn retry_set(&mut self) {
        self.retry_set = true;
    }

    /// Attempts that failed, ever.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    pub(super) fn park(&mut self, patience: Patience, place: &mut WakerPlace, waker: &Waker) {
        self.waiting(patience).park(place, waker);
    }

    pub(super) fn leave(&mut self, patience: Patience, place: &mut WakerPlace) {
        self.waiting(patience).leave(place);
    }

    #[cfg(test)]
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.stage, Stage::Failed { .. })
    }

    #[cfg(test)]
    pub(super) fn patient(&self) -> usize {
        self.patient.len()
    }

    fn waiting(&mut self, patience: Patience) -> &mut Wakers {
        match patience {
            Patience::FailFast => &mut self.impatient,
            Patience::UntilReady => &mut self.patient,
        }
    }
}
