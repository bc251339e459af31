//! The requests of a call after its opening, read on by a task of their own: a caller may send without receiving.
//! Unless they came to their end, the call is abandoned: a server must not take a part for the whole.

use crate::messages::{Messages, Piece};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;
use trunkline::Status;
use trunkline::opaque::{Outcome, Requests};

/// A running pump. Dropping it stops it, and with it the call, unless all was sent or the call has ended.
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
    ) -> Result<Self, Status> {
        let requests = Feeding(Some(requests));
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| Status::internal("a call with a request stream must be made in a tokio runtime"))?;
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

/// Requests that have not come to their end: dropped, they end the call.
struct Feeding(Option<Requests>);

impl Feeding {
    async fn send(&mut self, message: Bytes) -> Result<(), Status> {
        match &mut self.0 {
            Some(requests) => requests.send(message).await,
            None => Ok(()),
        }
    }

    /// All was sent.
    fn complete(&mut self) {
        self.0 = None;
    }

    fn abandon(&mut self, outcome: &Outcome) {
        if let Some(requests) = self.0.take() {
            requests.abandon(outcome);
        }
    }
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.abandon(&Outcome::from(&Status::cancelled("the request stream was dropped before its end")));
    }
}

/// Ends early when the call has ended; the answers say how.
async fn run(
    mut messages: Messages<tonic::body::Body>,
    mut first: Option<Bytes>,
    mut requests: Feeding,
) -> Result<(), Outcome> {
    loop {
        let piece = match first.take() {
            Some(message) => Ok(Piece::Message(message)),
            None => messages.next().await,
        };
        match piece {
            Ok(Piece::Message(message)) => {
                if requests.send(message).await.is_err() {
                    return Ok(());
                }
            }
            Ok(Piece::End(_)) => {
                requests.complete();
                return Ok(());
            }
            Err(outcome) => {
                requests.abandon(&outcome);
                return Err(outcome);
            }
        }
    }
}
