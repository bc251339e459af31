//! The receiving half of a stream.

use crate::client::{Arrival, OpenStream, Start, outcome};
use crate::message::{Received, Said, time_left};
use crate::server::Call;
use crate::session;
use futures_core::Stream;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use trunkline_call::{Caller, Deadline, Encoding, Metadata, Status};
use trunkline_message::Message;

/// Messages of a stream, as they come: a client's responses, a handler's requests.
///
/// Also a [`Stream`] of `Result<Received<M>, Status>`. Messages that are not taken hold the sender back once they fill
/// the stream's window. Dropping a client's receiver cancels the call; a handler's merely discards what follows.
pub struct Receiver<M> {
    source: Source,
    /// Of the request in a handler, of the response headers in a client.
    metadata: Metadata,
    /// In a handler that is told.
    caller: Option<Box<Caller>>,
    trailers: Metadata,
    of: PhantomData<fn() -> M>,
}

enum Source {
    /// A call that may not have been started.
    Opening(Arc<dyn Start>),
    /// A call we made.
    Made(Arc<OpenStream>),
    /// A call delivered to us.
    Delivered(Call),
    Over,
}

impl<M: Message> Receiver<M> {
    /// The next message; `None` after the last.
    ///
    /// # Errors
    /// In a client the status of the call, in a handler that of its cancellation. `None` follows it.
    ///
    /// # Cancel safety
    /// Safe: a message not returned is returned next time.
    pub async fn recv(&mut self) -> Result<Option<Received<M>>, Status> {
        let mut receiving = Receiving { receiver: self, waits: false };
        poll_fn(|cx| {
            let received = receiving.receiver.poll_recv(cx);
            receiving.waits = received.is_pending();
            received
        })
        .await
    }

    /// As [`Receiver::recv`], for hand-written futures.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Received<M>>, Status>> {
        loop {
            let received = match &mut self.source {
                Source::Opening(start) => {
                    let started = ready!(start.poll_start(cx));
                    self.source =
                        started.as_ref().map_or(Source::Over, |made| Source::Made(Arc::clone(made)));
                    started?;
                    continue;
                }
                Source::Made(made) => {
                    let made = Arc::clone(made);
                    match ready!(self.poll_made(&made, cx)) {
                        Ok(None) => continue,
                        received => received,
                    }
                }
                Source::Delivered(call) => ready!(call.poll_message(Encoding::Linear, cx)),
                Source::Over => return Poll::Ready(Ok(None)),
            };
            return Poll::Ready(self.take(received));
        }
    }

    /// In a handler: metadata of the request. In a client: the response headers, once the first message (or the end)
    /// has come.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// In a handler: who calls, as [`Incoming::caller`](crate::Incoming::caller).
    pub fn caller(&self) -> Option<&Caller> {
        self.caller.as_deref()
    }

    /// In a client: metadata sent at the end, once the end has come and was OK.
    pub fn trailers(&self) -> &Metadata {
        &self.trailers
    }

    /// In a handler: when the call must have ended.
    pub fn deadline(&self) -> Deadline {
        match &self.source {
            Source::Delivered(call) => call.deadline(),
            _ => Deadline::NONE,
        }
    }

    /// In a handler: time left until the deadline, if there is one.
    pub fn time_left(&self) -> Option<Duration> {
        time_left(self.deadline())
    }

    /// In a handler: whether the caller has gone, or the deadline has passed.
    pub fn is_cancelled(&self) -> bool {
        match &self.source {
            Source::Delivered(call) => call.is_cancelled(),
            _ => false,
        }
    }

    pub(crate) fn of_opening(start: Arc<dyn Start>) -> Self {
        Self::of(Source::Opening(start), Metadata::new())
    }

    pub(crate) fn of_call(made: Arc<OpenStream>) -> Self {
        Self::of(Source::Made(made), Metadata::new())
    }

    pub(crate) fn of_delivered(call: Call, said: Said) -> Self {
        let mut receiver = Self::of(Source::Delivered(call), said.metadata);
        receiver.caller = said.caller;
        receiver
    }

    fn of(source: Source, metadata: Metadata) -> Self {
        Self { source, metadata, caller: None, trailers: Metadata::new(), of: PhantomData }
    }

    /// `Ok(None)`: something else than a message came.
    fn poll_made(
        &mut self,
        made: &OpenStream,
        cx: &Context<'_>,
    ) -> Poll<Result<Option<session::Received>, Status>> {
        let (session, call) = (made.session(), made.call());
        Poll::Ready(match ready!(made.poll_arrival(cx)) {
            Some(Arrival::Message(payload)) => {
                session::Received::message(session, call, payload, Encoding::Linear).map(Some)
            }
            Some(Arrival::Headers(block)) => outcome::take_headers(session, call, block)
                .map(|headers| self.metadata = headers)
                .map(|()| None),
            Some(Arrival::End(end)) => {
                self.source = Source::Over;
                let ended = outcome::trailers(session, end).map(|trailers| self.trailers = trailers);
                ended.inspect_err(|status| made.note_end(status)).map(|()| None)
            }
            None => {
                self.source = Source::Over;
                Err(made.given_up())
            }
        })
    }

    fn take(
        &mut self,
        received: Result<Option<session::Received>, Status>,
    ) -> Result<Option<Received<M>>, Status> {
        match received {
            Ok(Some(block)) => Ok(Some(Received::new(block))),
            Ok(None) => Ok(None),
            Err(status) => {
                self.source = Source::Over;
                Err(status)
            }
        }
    }
}

impl<M: Message> Stream for Receiver<M> {
    type Item = Result<Received<M>, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_recv(cx).map(Result::transpose)
    }
}

/// Somebody asks for a message, until this is dropped.
struct Receiving<'a, M> {
    receiver: &'a mut Receiver<M>,
    /// There was none when it was last polled: nobody wakes a task that has gone, or drains the session for it.
    waits: bool,
}

impl<M> Drop for Receiving<'_, M> {
    fn drop(&mut self) {
        match &self.receiver.source {
            Source::Opening(start) => start.leave(),
            Source::Made(made) if self.waits => made.stop_receiving(),
            Source::Delivered(call) if self.waits => call.stop_receiving(),
            _ => {}
        }
    }
}

impl<M> Drop for Receiver<M> {
    fn drop(&mut self) {
        match &self.source {
            Source::Made(made) => made.abandon(),
            Source::Delivered(call) => call.discard(),
            Source::Opening(start) => start.abandon(),
            Source::Over => {}
        }
    }
}

impl<M> fmt::Debug for Receiver<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}
