//! Which lanes of its hubs this thread calls through.

use crate::context;
use crate::hub::{Hub, Lane};
use crate::session::Session;
use std::cell::RefCell;
use std::sync::Arc;
use std::task::Waker;

thread_local! {
    /// One per hub that this thread has used.
    static LEASES: RefCell<Vec<Lease>> = const { RefCell::new(Vec::new()) };
}

struct Lease {
    hub: Arc<Hub>,
    lane: Arc<Lane>,
    session: Option<Arc<Session>>,
}

/// The lane for whoever waits with this waker: a thread's own, or that of the tasks.
pub(crate) fn lane_of(hub: &Arc<Hub>, waker: &Waker) -> Arc<Lane> {
    if !context::is_blocking_here(waker) {
        return Arc::clone(hub.task_lane());
    }
    with_lease(hub, |lease| Arc::clone(&lease.lane)).unwrap_or_else(|| Arc::clone(hub.task_lane()))
}

/// The session for whoever calls with this waker, if its lane has one.
pub(crate) fn session_of(hub: &Arc<Hub>, waker: &Waker) -> Option<Arc<Session>> {
    if context::is_blocking_here(waker) { own_session(hub) } else { hub.task_lane().session() }
}

/// The session a call made here and now would most likely use.
pub(crate) fn usual_session(hub: &Arc<Hub>) -> Option<Arc<Session>> {
    match context::parent() {
        Some((session, _)) if session.hub() == hub.id() => Some(session),
        _ if has_lease(hub) => own_session(hub),
        _ => hub.task_lane().session(),
    }
}

/// The session of this thread's own lane, if it has one. Leases a lane if the thread has none.
fn own_session(hub: &Arc<Hub>) -> Option<Arc<Session>> {
    with_lease(hub, |lease| {
        if lease.session.as_ref().is_none_or(|session| !session.is_open()) {
            lease.session = lease.lane.session();
        }
        lease.session.clone()
    })
    .flatten()
}

/// `None` when the thread ends and has destroyed its leases: destructors of other thread-local values may make calls
/// all the same.
fn with_lease<T>(hub: &Arc<Hub>, act: impl FnOnce(&mut Lease) -> T) -> Option<T> {
    LEASES
        .try_with(|leases| {
            let mut leases = leases.borrow_mut();
            if let Some(lease) = leases.iter_mut().find(|lease| Arc::ptr_eq(&lease.hub, hub)) {
                return act(lease);
            }
            // In a forked child those of the parent go here, when its own hub is first used.
            leases.retain(|lease| !lease.hub.is_foreign());
            let mut lease = Lease { hub: Arc::clone(hub), lane: hub.lease(), session: None };
            let out = act(&mut lease);
            leases.push(lease);
            out
        })
        .ok()
}

/// Whether this thread has made blocking calls through `hub`.
fn has_lease(hub: &Arc<Hub>) -> bool {
    LEASES
        .try_with(|leases| leases.borrow().iter().any(|lease| Arc::ptr_eq(&lease.hub, hub)))
        .unwrap_or(false)
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.lane.give_back();
    }
}
