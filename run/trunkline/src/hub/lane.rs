//! A place for a session: attached when first needed, again when lost.

use super::Keeper;
use crate::clock;
use crate::kick::Kick;
use crate::session::Session;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
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

/// A place for a session.
#[derive(Debug)]
pub(crate) struct Lane {
    name: Arc<str>,
    keeper: Arc<Keeper>,
    /// For a worker's lane: wakes the worker.
    worker: Option<Arc<Kick>>,
    /// Serves only what nobody else serves.
    stands_by: bool,
    /// Threads that lease it.
    threads: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    waiting: Vec<Waiting>,
    /// Attempts that failed, ever: tells a waiter whether the attempt it waited for is over.
    failures: u64,
    backoff_ns: u64,
}

#[derive(Debug)]
struct Waiting {
    waker: Waker,
    patience: Patience,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Attaching,
    Attached(Arc<Session>),
    Failed { why: Status, retry_at: Instant },
}

/// Remembers, for one waiter, how many attempts had failed when it began to wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Since(Option<u64>);

impl Lane {
    /// A lane for calls.
    pub(super) fn of_calls(name: &Arc<str>, keeper: &Arc<Keeper>) -> Arc<Self> {
        Self::new(name, keeper, None, false)
    }

    /// A lane for a server's worker.
    pub(super) fn of_worker(
        name: &Arc<str>,
        keeper: &Arc<Keeper>,
        worker: Arc<Kick>,
        stands_by: bool,
    ) -> Arc<Self> {
        Self::new(name, keeper, Some(worker), stands_by)
    }

    fn new(name: &Arc<str>, keeper: &Arc<Keeper>, worker: Option<Arc<Kick>>, stands_by: bool) -> Arc<Self> {
        let state =
            State { stage: Stage::Idle, waiting: Vec::new(), failures: 0, backoff_ns: BACKOFF_NS_MIN };
        Arc::new(Self {
            name: Arc::clone(name),
            keeper: Arc::clone(keeper),
            worker,
            stands_by,
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

    /// Waits for the session, attaching if there is none.
    ///
    /// # Errors
    /// UNAVAILABLE, not executed, when an attempt failed and `patience` is [`Patience::FailFast`].
    pub(crate) fn poll_session(
        self: &Arc<Self>,
        since: &mut Since,
        patience: Patience,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Arc<Session>, Status>> {
        let mut state = self.state.lock();
        let begun = *since.0.get_or_insert(state.failures);
        match &state.stage {
            Stage::Attached(session) if session.is_open() => return Poll::Ready(Ok(Arc::clone(session))),
            Stage::Failed { why, .. } if patience == Patience::FailFast && state.failures > begun => {
                return Poll::Ready(Err(why.clone()));
            }
            Stage::Failed { why, retry_at } if *retry_at > clock::now() => {
                if patience == Patience::FailFast {
                    return Poll::Ready(Err(why.clone()));
                }
                self.keeper.attach_at(self, *retry_at);
            }
            Stage::Attaching => {}
            Stage::Idle | Stage::Attached(_) | Stage::Failed { .. } => {
                state.stage = Stage::Attaching;
                self.keeper.attach(self);
            }
        }
        state.wait(cx.waker(), patience);
        Poll::Pending
    }

    /// For the keeper: an attempt scheduled earlier is due. Tells whether it is still wanted.
    pub(super) fn begin_retry(&self) -> bool {
        let mut state = self.state.lock();
        let wanted = matches!(state.stage, Stage::Failed { .. }) && !state.waiting.is_empty();
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
            std::mem::take(&mut state.waiting)
        };
        wake(waiting);
    }

    /// For the keeper: the attempt failed. Tells when to try again, if anybody is patient.
    pub(super) fn failed(&self, why: &Status) -> Option<Instant> {
        let mut state = self.state.lock();
        let retry_at = clock::now().plus_ns(state.backoff_ns);
        state.backoff_ns = (state.backoff_ns * 2).min(BACKOFF_NS_MAX);
        state.failures += 1;
        state.stage = Stage::Failed { why: why.clone(), retry_at };
        let (patient, impatient): (Vec<_>, Vec<_>) = std::mem::take(&mut state.waiting)
            .into_iter()
            .partition(|waiting| waiting.patience == Patience::UntilReady);
        state.waiting = patient;
        let again = !state.waiting.is_empty();
        drop(state);
        wake(impatient);
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

    pub(super) fn stands_by(&self) -> bool {
        self.stands_by
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
    fn wait(&mut self, waker: &Waker, patience: Patience) {
        if !self.waiting.iter().any(|waiting| waiting.waker.will_wake(waker)) {
            self.waiting.push(Waiting { waker: waker.clone(), patience });
        }
    }
}

/// Not under the lock: what a waker does is not ours to know.
fn wake(waiting: Vec<Waiting>) {
    waiting.into_iter().for_each(|waiting| waiting.waker.wake());
}
