//! Which lanes of its hubs this thread calls through: one for itself, when it waits, and one for the tasks of other
//! executors that it polls.
//!
//! A runtime of several threads so spreads over several sessions, each thread submitting to a ring of its own. A call
//! stays with the session it was made in, wherever its task is polled later. Which thread polls is all that counts: no
//! runtime is asked for anything.
//!
//! Nobody waits for a session of their own. A thread calls through any session the tasks have, until it has made
//! [`BORROWED_CALLS`] calls so; then its own is attached beside that. So a thread that polls now and then costs
//! nothing, and where the daemon has no session to give, calls go on through those there are.

use crate::context;
use crate::hub::{Hub, Lane, LanePool};
use crate::session::Session;
use std::cell::RefCell;
use std::sync::Arc;
use std::task::Waker;

/// Calls for tasks that a thread makes through another's session before it has one of its own.
const BORROWED_CALLS: u32 = 16;

thread_local! {
    /// One per hub that this thread has used.
    static LEASES: RefCell<Vec<Leases>> = const { RefCell::new(Vec::new()) };
}

/// The lanes of one thread in one hub.
struct Leases {
    hub: Arc<Hub>,
    /// For the thread itself.
    own: Option<Lease>,
    /// For tasks of other executors.
    tasks: Option<Lease>,
}

struct Lease {
    lane: Arc<Lane>,
    session: Option<Arc<Session>>,
    /// Calls made through another's session.
    borrowed: u32,
}

/// The lane to wait for, for whoever waits with this waker: a thread's own, or the first of the tasks.
pub(crate) fn lane_of(hub: &Arc<Hub>, waker: &Waker) -> Arc<Lane> {
    let own = context::is_blocking_here(waker).then(|| with_own(hub, |lease| Arc::clone(&lease.lane)));
    own.flatten().unwrap_or_else(|| Arc::clone(hub.tasks().first()))
}

/// The session for whoever calls with this waker, if there is one.
pub(crate) fn session_of(hub: &Arc<Hub>, waker: &Waker) -> Option<Arc<Session>> {
    if context::is_blocking_here(waker) { own_session(hub) } else { task_session(hub) }
}

/// The session a call made here and now would most likely use.
pub(crate) fn usual_session(hub: &Arc<Hub>) -> Option<Arc<Session>> {
    match context::parent() {
        Some((session, _)) if session.hub() == hub.id() => Some(session),
        _ if has_own(hub) => own_session(hub),
        _ => of_tasks_here(hub).or_else(|| hub.tasks().session()),
    }
}

/// The session of this thread's own lane, if it has one. Leases a lane if the thread has none.
fn own_session(hub: &Arc<Hub>) -> Option<Arc<Session>> {
    with_own(hub, Lease::session).flatten()
}

/// The session for tasks that this thread polls: its lane's, or any other.
fn task_session(hub: &Arc<Hub>) -> Option<Arc<Session>> {
    let found = with_leases(hub, |leases| {
        let lease = leases.tasks.get_or_insert_with(|| Lease::of(leases.hub.tasks()));
        lease.session().ok_or_else(|| lease.borrow())
    });
    match found {
        Some(Ok(session)) => Some(session),
        Some(Err(wanted)) => {
            let borrowed = hub.tasks().session()?;
            if let Some(lane) = wanted {
                hub.attach_in_background(&lane);
            }
            Some(borrowed)
        }
        None => hub.tasks().session(),
    }
}

fn with_own<T>(hub: &Arc<Hub>, act: impl FnOnce(&mut Lease) -> T) -> Option<T> {
    with_leases(hub, |leases| act(leases.own.get_or_insert_with(|| Lease::of(leases.hub.threads()))))
}

/// `None` when the thread ends and has destroyed its leases: destructors of other thread-local values may make calls
/// all the same.
fn with_leases<T>(hub: &Arc<Hub>, act: impl FnOnce(&mut Leases) -> T) -> Option<T> {
    LEASES
        .try_with(|all| {
            let mut all = all.borrow_mut();
            if let Some(leases) = all.iter_mut().find(|leases| Arc::ptr_eq(&leases.hub, hub)) {
                return act(leases);
            }
            // In a forked child those of the parent go here, when its own hub is first used.
            all.retain(|leases| !leases.hub.is_foreign());
            let mut leases = Leases { hub: Arc::clone(hub), own: None, tasks: None };
            let out = act(&mut leases);
            all.push(leases);
            out
        })
        .ok()
}

/// The session of this thread's lane for tasks, if it has both.
fn of_tasks_here(hub: &Arc<Hub>) -> Option<Arc<Session>> {
    let of_tasks = |leases: &mut Leases| leases.tasks.as_mut().and_then(Lease::session);
    let here = |all: &RefCell<Vec<Leases>>| {
        all.borrow_mut().iter_mut().find(|leases| Arc::ptr_eq(&leases.hub, hub)).and_then(of_tasks)
    };
    LEASES.try_with(here).ok().flatten()
}

/// Whether this thread has made blocking calls through `hub`.
fn has_own(hub: &Arc<Hub>) -> bool {
    let has = |leases: &Leases| leases.own.is_some() && Arc::ptr_eq(&leases.hub, hub);
    LEASES.try_with(|all| all.borrow().iter().any(has)).unwrap_or(false)
}

impl Lease {
    fn of(pool: &LanePool) -> Self {
        Self { lane: pool.lease(), session: None, borrowed: 0 }
    }

    fn session(&mut self) -> Option<Arc<Session>> {
        if self.session.as_ref().is_none_or(|session| !session.is_open()) {
            self.session = self.lane.session();
        }
        self.session.clone()
    }

    /// A call goes through another's session. The lane, if it is to have one of its own by now.
    fn borrow(&mut self) -> Option<Arc<Lane>> {
        self.borrowed = self.borrowed.saturating_add(1);
        (self.borrowed >= BORROWED_CALLS).then(|| Arc::clone(&self.lane))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.lane.give_back();
    }
}
