//! Many requests, one response.

use super::draft::Draft;
use super::made::{Arrival, OpenStream};
use super::opening::{Half, Opening};
use super::outcome;
use crate::message::{Incoming, Outgoing, Response, Sendable};
use crate::stream::{Push, push};
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use trunkline_call::{Encoding, Metadata, MetadataError, Status};
use trunkline_message::Message;

/// A client-streaming call: send messages, then [`finish`](ClientStreaming::finish) for the response.
///
/// The call is made with the first message. Dropping it before `finish` is ready cancels it.
///
/// ```no_run
/// # use trunkline::codegen::Message;
/// # async fn example<Doc: Message, Summary: Message>(mut call: trunkline::ClientStreaming<Doc, Summary>, docs:
/// Vec<Doc>)
/// # -> Result<(), trunkline::Status> {
/// for doc in docs {
///     call.send(doc).await?;
/// }
/// let summary = call.finish().await?.into_inner();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a call is made when something is sent or it is finished"]
pub struct ClientStreaming<Q, R> {
    opening: Arc<Opening<Outgoing<Q>>>,
    of: PhantomData<fn() -> R>,
}

impl<Q: Message, R: Message> ClientStreaming<Q, R> {
    pub(super) fn new(draft: Draft<Outgoing<Q>>) -> Self {
        Self { opening: Opening::new(draft), of: PhantomData }
    }

    /// The call must have ended when this time has passed since the stub was entered. No effect once it has started.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        self.opening.adjust(|draft| draft.limit(timeout));
        self
    }

    /// Adds a pair to the call's metadata. No effect once it has started.
    ///
    /// # Errors
    /// [`MetadataError`] names the key at fault, or the limit.
    pub fn with_metadata(self, key: &str, value: impl AsRef<[u8]>) -> Result<Self, MetadataError> {
        let mut inserted = Ok(());
        self.opening.adjust(|draft| inserted = draft.metadata.insert(key, value));
        inserted.map(|()| self)
    }

    /// As [`Request::in_context`](crate::Request::in_context). No effect once it has started.
    pub fn in_context<N>(self, incoming: &Incoming<N>) -> Self {
        self.opening.adjust(|draft| draft.place_within(incoming.within()));
        self
    }

    /// Makes the call now, instead of with the first message: its metadata is sent ahead.
    ///
    /// # Errors
    /// What kept the call from being made; it was not executed.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing: the call is made with what is sent next.
    pub async fn start(&mut self) -> Result<(), Status> {
        self.opening.open(Half::Sender, &mut None, false).await.map(drop)
    }

    /// Sends a message; waits while the server has as many bytes before it as it allows.
    ///
    /// # Errors
    /// The call's status if it has ended; what is wrong with the message, which ends the call.
    ///
    /// # Cancel safety
    /// A message whose `send` is dropped was not sent, except that the first may yet be, with what is sent next.
    pub async fn send(&mut self, message: impl Into<Outgoing<Q>>) -> Result<(), Status> {
        let mut first = Some(message.into());
        let made = self.opening.open(Half::Sender, &mut first, false).await?;
        let Some(body) = first else { return Ok(()) };
        send_on(&made, body).await
    }

    /// Says that nothing follows, and waits for the response.
    ///
    /// # Errors
    /// The status of the call.
    ///
    /// # Cancel safety
    /// Dropping it cancels the call.
    pub async fn finish(self) -> Result<Response<R>, Status> {
        let made = self.opening.open(Half::Sender, &mut None, true).await?;
        made.half_close();
        let mut headers = Metadata::new();
        loop {
            let (session, call) = (made.session(), made.call());
            match poll_fn(|cx| made.poll_arrival(cx)).await {
                Some(Arrival::Headers(block)) => headers = outcome::take_headers(session, call, block)?,
                Some(Arrival::Message(payload)) => {
                    crate::session::Received::message(session, call, payload, Encoding::Linear)?;
                }
                Some(Arrival::End(end)) => return outcome::response(session, headers, end),
                None => return Err(made.given_up()),
            }
        }
    }
}

/// Sends on a call we made; if it has ended, says how. A message that can never be sent ends the call: without it, what
/// the server gets is not what the caller said.
pub(crate) async fn send_on<B: Sendable>(made: &OpenStream, body: B) -> Result<(), Status> {
    push(made.session(), made.call(), body).await.map_err(|failure| match failure {
        Push::Ended => outcome::reason(made),
        Push::Never(status) => {
            made.fail(&status);
            status
        }
    })
}
