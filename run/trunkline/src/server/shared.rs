//! What the workers of a server share with each other and with the server's handle.

use super::routes::Offer;
use crate::clock;
use crate::kick::Kick;
use crate::wakers::{self, WakerPlace, Wakers};
use parking_lot::Mutex;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use trunkline_call::{Instant, Status};
use trunkline_shm::ForkGuard;

/// A server's state.
pub(super) struct Shared {
    pub(super) services: Vec<Offer>,
    /// How long calls in flight may take when one worker cannot serve.
    grace: Duration,
    /// Whether `State::stop` is set: workers ask every turn, and are not to fight for the lock.
    stopping: AtomicBool,
    /// A worker has found that it cannot serve.
    is_failing: AtomicBool,
    state: Mutex<State>,
    guard: ForkGuard,
}

struct State {
    stop: Option<Stop>,
    kicks: Vec<Arc<Kick>>,
    /// Workers that have not ended.
    running: usize,
    /// Workers whose services are bound.
    ready: usize,
    outcome: Result<(), Status>,
    /// Set by a worker that the daemon refuses a service, until one is ready.
    refused: Option<Status>,
    /// Services a worker has found refused and answered by the daemon.
    left_out: Vec<Box<str>>,
    waiting: Wakers,
}

/// The order to stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    /// When to stop waiting for calls in flight.
    until: Instant,
}

impl Stop {
    pub(super) fn is_overdue(self, now: Instant) -> bool {
        self.until <= now
    }
}

impl Shared {
    pub(super) fn new(services: Vec<Offer>, kicks: Vec<Arc<Kick>>, grace: Duration) -> Arc<Self> {
        let running = kicks.len();
        let state = State {
            stop: None,
            kicks,
            running,
            ready: 0,
            outcome: Ok(()),
            refused: None,
            left_out: Vec::new(),
            waiting: Wakers::default(),
        };
        Arc::new(Self {
            services,
            grace,
            stopping: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            state: Mutex::new(state),
            guard: ForkGuard::new(),
        })
    }

    /// Orders every worker to stop; an earlier order is only hastened.
    pub(super) fn order_stop(&self, until: Instant) {
        self.change(|state| {
            let until = state.stop.map_or(until, |stop| stop.until.min(until));
            state.stop = Some(Stop { until });
        });
    }

    /// The order to stop, if it was given.
    pub(super) fn stop(&self) -> Option<Stop> {
        // SYNC: pairs with the store in `change`, which is followed by a kick.
        if self.stopping.load(Ordering::Acquire) { self.state.lock().stop } else { None }
    }

    /// Waits for the order to stop.
    pub(super) async fn stopped(&self) -> Stop {
        match self.until(|state| state.stop).await {
            Ok(stop) => stop,
            Err(_) => pending().await, // no worker runs in a forked child
        }
    }

    /// Waits until every worker has ended.
    pub(super) async fn ended(&self) -> Result<(), Status> {
        self.until(|state| (state.running == 0).then(|| state.outcome.clone())).await?
    }

    /// Waits until every worker that runs has bound the services, or the daemon has refused one.
    pub(super) async fn ready(&self) -> Result<(), Status> {
        self.until(|state| {
            let ended = state.running == 0;
            if ended || state.ready >= state.running {
                return Some(state.outcome.clone());
            }
            state.refused.clone().map(Err)
        })
        .await?
    }

    pub(super) fn worker_is_ready(&self) {
        self.change(|state| {
            state.ready += 1;
            state.refused = None;
        });
    }

    /// The daemon refuses a service for now; it is asked again. Tells whether that is news.
    pub(super) fn refuse(&self, why: Status) -> bool {
        let mut is_news = false;
        self.change(|state| is_news = state.refused.replace(why).is_none());
        is_news
    }

    /// The daemon answers a service of this server itself. Tells whether that is news.
    pub(super) fn leave_out(&self, service: &str) -> bool {
        let mut is_news = false;
        self.change(|state| {
            is_news = !state.left_out.iter().any(|known| **known == *service);
            if is_news {
                state.left_out.push(service.into());
            }
        });
        is_news
    }

    pub(super) fn worker_is_not_ready(&self) {
        self.change(|state| state.ready -= 1);
    }

    /// A worker has ended.
    pub(super) fn worker_ended(&self) {
        self.change(|state| state.running -= 1);
    }

    /// A worker is about to say that it cannot serve. Whether it is the first.
    pub(super) fn begins_to_fail(&self) -> bool {
        !self.is_failing.swap(true, Ordering::Relaxed)
    }

    /// A worker cannot serve. The first error is the server's, and stops the other workers, gracefully: the calls they
    /// handle are no worse for it.
    pub(super) fn fail(&self, why: Status) {
        let until = after(self.grace);
        self.change(|state| {
            if state.outcome.is_ok() {
                state.outcome = Err(why);
                state.stop.get_or_insert(Stop { until });
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        if self.guard.is_foreign() {
            return; // a forked child has no workers, and nobody to wake
        }
        let (waiting, kicks) = {
            let mut state = self.state.lock();
            change(&mut state);
            self.stopping.store(state.stop.is_some(), Ordering::Release);
            (state.waiting.take(), state.kicks.clone())
        };
        waiting.for_each(wakers::wake);
        kicks.iter().for_each(|kick| kick.kick());
    }

    /// Waits for an answer; UNAVAILABLE in a forked child, which has no workers that would give one.
    async fn until<T>(&self, ask: impl Fn(&State) -> Option<T>) -> Result<T, Status> {
        let mut waits = Waits { shared: self, place: WakerPlace::default() };
        poll_fn(|cx| {
            if self.guard.is_foreign() {
                let why = "the server is the process's that this one was forked from";
                return Poll::Ready(Err(Status::unavailable(why)));
            }
            let mut state = self.state.lock();
            if let Some(answer) = ask(&state) {
                return Poll::Ready(Ok(answer));
            }
            state.waiting.park(&mut waits.place, cx.waker());
            Poll::Pending
        })
        .await
    }
}

/// When so much time has passed from now.
pub(super) fn after(time: Duration) -> Instant {
    clock::now().plus_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Somebody who waits for a change, until it is dropped.
struct Waits<'a> {
    shared: &'a Shared,
    place: WakerPlace,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if !self.shared.guard.is_foreign() {
            self.shared.state.lock().waiting.leave(&mut self.place);
        }
    }
}
