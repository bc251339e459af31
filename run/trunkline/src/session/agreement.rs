//! Agreeing with the daemon on numbers for the methods of a service that is called.
//!
//! Whoever needs it first asks the daemon. The keeper, who reads the answer, books it; so nobody who needs it depends
//! on somebody else's future being polled.

use super::control::{refused, unavailable};
use super::{BindingId, Session};
use crate::wakers::{self, WakerPlace, Wakers};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use trunkline_call::{RouteIndex, Status};
use trunkline_control::{Bound, CallMethod};

/// What is to be agreed on.
#[derive(Debug)]
pub(crate) struct Agreement {
    /// What is called, for people.
    pub(crate) name: Arc<str>,
    pub(crate) calls: Vec<CallMethod>,
    /// The descriptors, if the daemon is to know the types.
    pub(crate) set: Option<&'static [u8]>,
}

/// A question the daemon has not answered. Shared by all who wait for the answer.
#[derive(Debug)]
pub(super) struct Asked {
    binding: BindingId,
    name: Arc<str>,
    methods: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<(), Status>>,
    waiting: Wakers,
}

impl Asked {
    pub(super) fn binding(&self) -> BindingId {
        self.binding
    }

    /// The routes the daemon gave.
    pub(super) fn routes(&self, bound: Bound) -> Result<Arc<[RouteIndex]>, Status> {
        if !bound.error.is_empty() {
            return Err(refused(&self.name, &bound));
        }
        if bound.calls.len() != self.methods {
            let error = "the daemon numbered another count of methods".to_owned();
            return Err(refused(&self.name, &Bound { error, ..Bound::default() }));
        }
        Ok(bound.calls.into_iter().map(RouteIndex).collect())
    }

    /// Tells everybody.
    pub(super) fn settle(&self, outcome: Result<(), Status>) {
        let waiting = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            state.waiting.take()
        };
        waiting.for_each(wakers::wake);
    }

    fn poll(&self, place: &mut WakerPlace, cx: &Context<'_>) -> Poll<Result<(), Status>> {
        let mut state = self.state.lock();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        state.waiting.park(place, cx.waker());
        Poll::Pending
    }
}

/// Somebody who waits for the answer, until it is dropped.
struct Waits<'a> {
    session: &'a Session,
    asked: Arc<Asked>,
    place: WakerPlace,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        // In a forked child the lock may be held for ever, and nobody is woken there.
        if !self.session.guard.is_foreign() {
            self.asked.state.lock().waiting.leave(&mut self.place);
        }
    }
}

impl Session {
    /// Agrees on the methods of `binding`, unless that was done. `propose` says them, if nobody has asked.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, not executed, with the daemon's reason; UNAVAILABLE when the session ends first.
    pub(crate) async fn agree(
        self: &Arc<Self>,
        binding: BindingId,
        propose: impl FnOnce() -> Agreement,
    ) -> Result<(), Status> {
        let Some(asked) = self.ask(binding, propose)? else { return Ok(()) };
        let mut waits = Waits { session: self, asked, place: WakerPlace::default() };
        poll_fn(|cx| {
            if self.is_lost() {
                return Poll::Ready(Err(unavailable("the session ended while a service was being bound")));
            }
            waits.asked.poll(&mut waits.place, cx)
        })
        .await
    }

    /// Asks the daemon, or joins those who have. `None`: it was agreed on.
    fn ask(
        self: &Arc<Self>,
        binding: BindingId,
        propose: impl FnOnce() -> Agreement,
    ) -> Result<Option<Arc<Asked>>, Status> {
        if self.is_lost() {
            return Ok(None); // there may be another session by now
        }
        let (asked, agreement) = {
            let mut replies = self.replies.lock();
            // Under this lock: whoever books an answer does so before it forgets the question.
            if self.has_routes(binding) {
                return Ok(None);
            }
            if let Some(asked) = replies.asked(binding) {
                return Ok(Some(Arc::clone(asked)));
            }
            let agreement = propose();
            let (name, methods) = (Arc::clone(&agreement.name), agreement.calls.len());
            let asked = Arc::new(Asked { binding, name, methods, state: Mutex::default() });
            let tag = replies.expect_agreement(&asked)?;
            (asked, (tag, agreement))
        };
        let (tag, Agreement { calls, set, .. }) = agreement;
        if let Err(status) = self.send_bind(tag, Vec::new(), calls, set) {
            self.replies.lock().forget(tag);
            asked.settle(Err(status));
        }
        Ok(Some(asked))
    }

    fn has_routes(&self, binding: BindingId) -> bool {
        self.with(|books, _| books.has_routes(binding)).unwrap_or(false)
    }
}
