//! The requests of a call after its opening, read on by a task of their own: a caller may send without receiving.

use crate::messages::{Messages, Piece};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;
use trunkline::opaque::{Outcome, Requests};

/// A running pump. Dropping it stops it, which ends the caller's request stream.
#[derive(Debug)]
pub(crate) struct Pump(JoinHandle<Result<(), Outcome>>);

impl Pump {
    /// Starts a task that sends `first`, if there is one, and what follows.
    ///
    /// # Errors
    /// INTERNAL outside of a tokio runtime.
    pub(crate) fn start(
        messages: Messages<tonic::body::Body>,
        first: Option<Bytes>,
        requests: Requests,
    ) -> Result<Self, trunkline::Status> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            trunkline::Status::internal("a call with a request stream must be made in a tokio runtime")
        })?;
        Ok(Self(runtime.spawn(run(messages, first, requests))))
    }

    /// The outcome that the request stream itself ended the call with.
    pub(crate) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Option<Outcome> {
        match Pin::new(&mut self.0).poll(cx) {
            Poll::Ready(Ok(Err(outcome))) => Some(outcome),
            _ => None,
        }
    }

    /// Whether the task has ended, so that it is not to be asked again.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Ends early when the call has ended; the answers say how.
async fn run(
    mut messages: Messages<tonic::body::Body>,
    mut first: Option<Bytes>,
    mut requests: Requests,
) -> Result<(), Outcome> {
    loop {
        let message = match first.take() {
            Some(message) => message,
            None => match messages.next().await? {
                Piece::Message(message) => message,
                Piece::End(_) => return Ok(()),
            },
        };
        if requests.send(message).await.is_err() {
            return Ok(());
        }
    }
}
