//! Waiting for what a session has none of at the moment.

use super::queues::{QueuePlace, Resource};
use super::session::Session;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use trunkline_call::CallId;

/// A place in the queue for one resource, kept over several tries, given up when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    session: Arc<Session>,
    place: QueuePlace,
}

impl Turn {
    /// The session it is in the queue of.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn is_in(&self, session: &Arc<Session>) -> bool {
        Arc::ptr_eq(&self.session, session)
    }
}

/// Waits until it is worth trying again: in the place of `turn`, if that is in this queue, else at the end. `None` when
/// the session is another process's. What is wanted for an open `call` is not waited for longer than it is open.
pub(crate) async fn wait_for(
    turn: Option<Turn>,
    session: &Arc<Session>,
    resource: Resource,
    wanted_bytes: u32,
    call: Option<CallId>,
) -> Option<Turn> {
    let mut turn = match turn {
        Some(turn) if Arc::ptr_eq(&turn.session, session) && turn.place.resource == resource => turn,
        _ => {
            let ticket = session.with(|books, _| books.join(resource))?;
            Turn { session: Arc::clone(session), place: QueuePlace { resource, ticket, wanted_bytes } }
        }
    };
    turn.place.wanted_bytes = wanted_bytes;
    let mut first = true;
    let waits = call.map(|call| CreditWait::of(session, call));
    poll_fn(|cx| {
        let first = std::mem::take(&mut first);
        turn.session.poll_with(cx, |books, asker, effects| {
            if call.is_some_and(|call| !books.is_open(call)) {
                return Poll::Ready(());
            }
            let polled = books.poll_turn(turn.place, first, asker, effects);
            if let Some(call) = call.filter(|_| polled.is_pending()) {
                books.wait_for_credit(call, asker);
            }
            polled
        })
    })
    .await?;
    drop(waits);
    Some(turn)
}

/// Whoever waits for a call's credit, or for its end while it waits for a resource, until it is dropped: nobody wakes a
/// task that has gone, or drains the session for it.
pub(crate) struct CreditWait<'a> {
    session: &'a Session,
    call: CallId,
}

impl<'a> CreditWait<'a> {
    pub(crate) fn of(session: &'a Session, call: CallId) -> Self {
        Self { session, call }
    }
}

impl Drop for CreditWait<'_> {
    fn drop(&mut self) {
        let waker = self.session.with(|books, _| books.stop_waiting_for_credit(self.call));
        // Not under the lock: it may be the last of its task.
        drop(waker);
    }
}

/// Whoever waited for something to arrive for a call has gone.
pub(crate) fn stop_receiving(session: &Session, call: CallId) {
    let waker = session.with(|books, _| books.stop_waiting_to_receive(call));
    // Not under the lock: it may be the last of its task.
    drop(waker);
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.session.with(|books, effects| books.leave_queue(self.place, effects));
    }
}
