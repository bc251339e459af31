//! What other threads ask of a hub's reactor, and how they wake it.

use super::dial::Daemon;
use super::lane::Lane;
use crate::kick::Kick;
use crate::session::{HubId, Session, SessionId, SessionListener};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use trunkline_call::{Instant, Status, TimerKey, TimerTable};
use trunkline_shm::ForkGuard;

/// Starts the thread behind a handle.
///
/// # Errors
/// UNAVAILABLE, not executed, when the system has no thread or descriptor to give.
pub(super) type Start = fn(&Arc<ReactorHandle>, &Daemon) -> Result<(), Status>;

/// The reactor of a hub, as other threads see it. Its thread starts with the first request.
#[derive(Debug)]
pub(crate) struct ReactorHandle {
    hub: HubId,
    daemon: Daemon,
    start: Start,
    kick: Arc<Kick>,
    requests: Mutex<ReactorRequests>,
    /// Every session that lives, for a forked child to close.
    sessions: Mutex<Vec<Weak<Session>>>,
    guard: ForkGuard,
}

/// What the reactor is asked for and has not done.
#[derive(Debug, Default)]
pub(super) struct ReactorRequests {
    running: bool,
    pub(super) attach: Vec<Arc<Lane>>,
    pub(super) watch: Vec<SessionId>,
    pub(super) timers: TimerTable<TimerAction>,
}

/// What is to be done at an instant.
#[derive(Debug)]
pub(super) enum TimerAction {
    Wake(Waker),
    Attach(Arc<Lane>),
    Trim(SessionId),
}

/// The last hub of this process. A forked child goes on counting.
static LAST_HUB: AtomicU64 = AtomicU64::new(0);

impl ReactorHandle {
    /// # Panics
    /// If the kernel has no descriptor left for the reactor's eventfd.
    pub(super) fn new(daemon: Daemon, start: Start) -> Arc<Self> {
        let kick = Kick::new().expect("an eventfd for the reactor");
        Arc::new(Self {
            hub: HubId(LAST_HUB.fetch_add(1, Ordering::Relaxed) + 1),
            daemon,
            start,
            kick,
            requests: Mutex::default(),
            sessions: Mutex::default(),
            guard: ForkGuard::new(),
        })
    }

    /// The hub this is the reactor of.
    pub(crate) fn hub(&self) -> HubId {
        self.hub
    }

    /// Attaches a lane now.
    ///
    /// # Errors
    /// UNAVAILABLE, not executed, when there is nobody to do it: the system has no thread or descriptor to give.
    /// FAILED_PRECONDITION, not executed, when the environment cannot be meant: to wait would not mend it.
    pub(super) fn attach(self: &Arc<Self>, lane: &Arc<Lane>) -> Result<(), Status> {
        crate::settings::check_environment()?;
        self.request(|requests| requests.attach.push(Arc::clone(lane))).1.inspect_err(|_| {
            self.requests.lock().attach.retain(|requested| !Arc::ptr_eq(requested, lane));
        })
    }

    /// Attaches a lane at an instant, if somebody still waits for it then.
    pub(super) fn attach_at(self: &Arc<Self>, lane: &Arc<Lane>, at: Instant) {
        let due = TimerAction::Attach(Arc::clone(lane));
        drop(self.request(|requests| requests.timers.insert(at, due)));
    }

    /// Wakes a task at an instant, instead of the timer `old`.
    pub(super) fn set_timer(self: &Arc<Self>, at: Instant, waker: Waker, old: Option<TimerKey>) -> TimerKey {
        let (_cancelled, key) = self
            .request(|requests| {
                let cancelled = old.and_then(|old| requests.timers.cancel(old));
                (cancelled, requests.timers.insert(at, TimerAction::Wake(waker)))
            })
            .0;
        key
    }

    /// Kicks a thread at an instant.
    pub(crate) fn kick_at(self: &Arc<Self>, at: Instant, kick: &Arc<Kick>) {
        self.set_timer(at, Waker::from(Arc::clone(kick)), None);
    }

    /// Forgets a timer; one that has fired is forgotten already.
    pub(super) fn cancel_timer(&self, key: TimerKey) {
        // In a forked child the lock may be held for ever, and no timer fires.
        if !self.is_foreign() {
            // Its waker may be the last that holds a task, which may hold another timer: so not under the lock.
            let cancelled = self.requests.lock().timers.cancel(key);
            drop(cancelled);
        }
    }

    /// Whether this is of the parent of this forked process: it has no thread here.
    pub(super) fn is_foreign(&self) -> bool {
        self.guard.is_foreign()
    }

    /// In a forked child: closes the copies of the parent's control sockets, as far as no lock stands in the way.
    pub(super) fn close_inherited(&self) {
        let Some(mut sessions) = self.sessions.try_lock() else { return };
        for session in sessions.drain(..).filter_map(|session| session.upgrade()) {
            session.close_inherited();
        }
    }

    /// For the reactor: a session that a forked child is to close.
    pub(super) fn remember(&self, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock();
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(session));
    }

    /// For the reactor: what is asked of it.
    pub(super) fn requests(&self) -> &Mutex<ReactorRequests> {
        &self.requests
    }

    /// For the reactor: what it sleeps on.
    pub(super) fn kick(&self) -> &Arc<Kick> {
        &self.kick
    }

    #[cfg(test)]
    pub(super) fn timers(&self) -> usize {
        self.requests.lock().timers.len()
    }

    /// Makes a request, and starts the thread if there is none. The error says why there is none after all.
    fn request<T>(self: &Arc<Self>, make: impl FnOnce(&mut ReactorRequests) -> T) -> (T, Result<(), Status>) {
        let mut requests = self.requests.lock();
        let out = make(&mut requests);
        let mut started = Ok(());
        if !requests.running {
            started = (self.start)(self, &self.daemon);
            requests.running = started.is_ok();
        }
        drop(requests);
        self.kick.kick();
        (out, started)
    }
}

impl SessionListener for ReactorHandle {
    /// A session comes from the reactor's thread, so there is one.
    fn watch(&self, session: SessionId) {
        {
            let mut requests = self.requests.lock();
            if !requests.watch.contains(&session) {
                requests.watch.push(session);
            }
        }
        self.kick.kick();
    }

    fn trim_at(&self, at: Instant, session: SessionId) {
        self.requests.lock().timers.insert(at, TimerAction::Trim(session));
        self.kick.kick();
    }
}
