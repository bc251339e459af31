//! A call on its way from its draft to where it was made.

use super::attempt::Attempt;
use super::draft::{Draft, NotStarted};
use super::made::Made;
use crate::message::Sendable;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use trunkline_call::Status;

/// A call that is submitted when it is first polled, or when nothing stands in its way any more.
pub(crate) enum Starting<B> {
    /// Not submitted, and not tried.
    Fresh(Draft<B>),
    /// Waiting for something before it can be submitted.
    Waiting(Box<Attempt<B>>),
    /// Submitted.
    Made(Made),
    Over,
}

impl<B: Sendable> Starting<B> {
    /// Gets the call submitted.
    ///
    /// # Errors
    /// What kept it from being made; it was not executed.
    pub fn poll_made(&mut self, cx: &mut Context<'_>) -> Poll<Result<&Made, Status>> {
        loop {
            match self {
                Self::Fresh(draft) => match draft.try_start(cx.waker(), None) {
                    Ok(made) => *self = Self::Made(made),
                    Err(NotStarted::Never(status)) => return Poll::Ready(Err(status)),
                    Err(_) => self.wait(),
                },
                Self::Waiting(attempt) => *self = Self::Made(ready!(Pin::new(&mut **attempt).poll(cx))?),
                Self::Made(made) => return Poll::Ready(Ok(made)),
                Self::Over => return Poll::Ready(Err(Status::internal("a call was polled after its end"))),
            }
        }
    }

    fn wait(&mut self) {
        if let Self::Fresh(draft) = std::mem::replace(self, Self::Over) {
            *self = Self::Waiting(Box::new(Attempt::new(draft)));
        }
    }
}

impl<B> Starting<B> {
    /// Whether it was submitted: it may be executed.
    pub fn is_made(&self) -> bool {
        matches!(self, Self::Made(_))
    }

    /// How far it is, for those who debug.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fresh(_) => "fresh",
            Self::Waiting(_) => "starting",
            Self::Made(_) => "waiting",
            Self::Over => "over",
        }
    }
}
