//! A draft that waits for what stands in the way of its submission.

use super::draft::{Draft, NotStarted};
use super::made::Made;
use crate::hub::{Patience, SessionWait, Sleep, too_late};
use crate::leases::lane_of;
use crate::message::Sendable;
use crate::session::{Turn, wait_for};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use trunkline_call::Status;
use trunkline_shm::ForkGuard;

/// Submits a draft, waiting for whatever has to be waited for, until its deadline: a future of the call, or of what
/// kept it from being made; it was not executed then.
///
/// While it waits it may hold what others wait for, too (a place in a queue). One that is not polled for a while is
/// told to give that up ([`Attempt::rest`]); the draft stays.
pub(crate) struct Attempt<B> {
    draft: Draft<B>,
    turn: Option<Turn>,
    wait: Option<Wait>,
    /// The deadline.
    late: Option<Sleep>,
    guard: ForkGuard,
}

/// Waits for one thing. Gives the turn it came to, if that is the way of the thing.
type Wait = Pin<Box<dyn Future<Output = Result<Option<Turn>, Status>> + Send>>;

/// Submits a draft, waiting for whatever has to be waited for, until the deadline.
///
/// # Errors
/// What is wrong with the message; UNAVAILABLE; DEADLINE_EXCEEDED. In each case the call was not executed.
pub(crate) async fn start<B: Sendable>(mut draft: Draft<B>) -> Result<Made, Status> {
    match poll_fn(|cx| Poll::Ready(draft.try_start(cx.waker(), None))).await {
        Ok(made) => Ok(made),
        Err(NotStarted::Never(status)) => Err(status),
        Err(_) => Attempt::new(draft).await,
    }
}

impl<B: Sendable> Attempt<B> {
    pub(super) fn new(draft: Draft<B>) -> Self {
        Self { draft, turn: None, wait: None, late: None, guard: ForkGuard::new() }
    }

    /// Changes the draft.
    pub(super) fn draft_mut(&mut self) -> &mut Draft<B> {
        &mut self.draft
    }

    /// Gives up all that others may be waiting for. The next poll begins anew.
    pub(super) fn rest(&mut self) {
        (self.wait, self.turn, self.late) = (None, None, None);
    }

    fn poll_submitted(&mut self, cx: &mut Context<'_>) -> Poll<Result<Made, Status>> {
        loop {
            if let Some(wait) = &mut self.wait {
                let Poll::Ready(waited) = wait.as_mut().poll(cx) else { return Poll::Pending };
                self.wait = None;
                self.turn = waited?;
            }
            match self.draft.try_start(cx.waker(), self.turn.as_ref()) {
                Ok(made) => return Poll::Ready(Ok(made)),
                Err(NotStarted::Never(status)) => return Poll::Ready(Err(status)),
                Err(why) => self.wait = Some(self.wait_for(why)),
            }
        }
    }

    fn wait_for(&mut self, why: NotStarted) -> Wait {
        match why {
            NotStarted::NoSession => {
                let hub = self.draft.hub();
                let mut wait = SessionWait::new(self.draft.patience());
                Box::pin(poll_fn(move |cx| {
                    wait.poll(hub.reactor(), &lane_of(&hub, cx.waker()), cx).map_ok(|_session| None)
                }))
            }
            NotStarted::Unbound(session) => {
                let (binding, patience) = (self.draft.binding().clone(), self.draft.patience());
                Box::pin(async move {
                    match binding.make(&session).await {
                        // There will be another session.
                        Err(_) if patience == Patience::UntilReady && session.is_lost() => Ok(None),
                        made => made.map(|()| None),
                    }
                })
            }
            NotStarted::Full { session, resource, wanted_bytes } => {
                let turn = self.turn.take();
                Box::pin(async move { Ok(wait_for(turn, &session, resource, wanted_bytes, None).await) })
            }
            NotStarted::Never(status) => Box::pin(async move { Err(status) }),
        }
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.draft.deadline_here().instant() else { return Poll::Pending };
        let late = self.late.get_or_insert_with(|| Sleep::until(self.draft.hub().reactor(), at));
        Pin::new(late).poll(cx)
    }
}

impl<B: Sendable> Future for Attempt<B> {
    type Output = Result<Made, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.guard.is_foreign() {
            // What it waited for is the parent's.
            this.rest();
            this.guard = ForkGuard::new();
        }
        let submitted = this.poll_submitted(cx);
        if submitted.is_ready() {
            this.rest();
            return submitted;
        }
        this.poll_late(cx).map(|()| Err(too_late()))
    }
}

// Nothing in it is pinned in place: what has to be is boxed.
impl<B> Unpin for Attempt<B> {}
