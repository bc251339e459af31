//! One request, one response.

use super::draft::Draft;
use super::made::Arrival;
use super::outcome;
use super::starting::Starting;
use crate::message::{Body, Response};
use crate::refusals::unavailable;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use trunkline_call::{Encoding, Metadata, Status};
use trunkline_message::Message;

/// A unary call: a future of `Result<Response<R>, Status>`.
///
/// Nothing is sent before it is polled (or waited for). Dropping it cancels the call, whether or not the handler runs.
///
/// # Errors
/// The handler's status, or that of whatever went wrong on the way; [`Status::execution`] says whether the handler may
/// have run.
///
/// # Cancel safety
/// Not to be polled again in a `select!` loop by making it anew: each is a call of its own. Dropping it is sound at any
/// time and cancels.
#[must_use = "a call is made when it is awaited or waited for"]
pub struct Unary<Q, R> {
    stage: Starting<Body<Q>>,
    headers: Metadata,
    of: PhantomData<fn() -> R>,
}

impl<Q: Message, R: Message> Unary<Q, R> {
    pub(super) fn new(draft: Draft<Body<Q>>) -> Self {
        Self { stage: Starting::Fresh(draft), headers: Metadata::new(), of: PhantomData }
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<R>, Status>> {
        let made = ready!(self.stage.poll_made(cx))?;
        let (session, call) = (made.session(), made.call());
        loop {
            match ready!(made.poll_arrival(cx)) {
                Some(Arrival::Headers(block)) => self.headers = outcome::take_headers(session, call, block)?,
                Some(Arrival::Message(payload)) => {
                    // A unary response comes with the end. Taking it only returns its block.
                    crate::session::Received::message(session, call, payload, Encoding::Linear)?;
                }
                Some(Arrival::End(end)) => {
                    let headers = std::mem::take(&mut self.headers);
                    return Poll::Ready(outcome::response(session, headers, end));
                }
                None => {
                    return Poll::Ready(Err(unavailable("the session is another process's")));
                }
            }
        }
    }
}

impl<Q: Message, R: Message> Future for Unary<Q, R> {
    type Output = Result<Response<R>, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.poll_response(cx));
        self.stage = Starting::Over;
        Poll::Ready(response)
    }
}

// Nothing in it is pinned in place: what has to be is boxed.
impl<Q, R> Unpin for Unary<Q, R> {}

impl<Q, R> fmt::Debug for Unary<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unary").field("stage", &self.stage.name()).finish_non_exhaustive()
    }
}
