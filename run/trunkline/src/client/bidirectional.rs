//! Many requests, many responses.

use super::draft::Draft;
use super::opening::{Half, Opening, Start};
use crate::message::{Incoming, Outgoing, Received};
use crate::stream::{Receiver, Sender};
use std::sync::Arc;
use std::time::Duration;
use trunkline_call::{MetadataError, Status};
use trunkline_message::Message;

/// A bidirectional call: send and receive in any order, or [`split`](Bidirectional::split) it for two tasks.
///
/// The call is made when either half is first used. Dropping it cancels it unless the server has ended it.
///
/// ```no_run
/// # use trunkline::codegen::Message;
/// # async fn example<Ask: Message, Answer: Message>(call: trunkline::Bidirectional<Ask, Answer>, ask: Ask)
/// # -> Result<(), trunkline::Status> {
/// let (mut tx, mut rx) = call.split();
/// tx.send(ask).await?;
/// tx.close();
/// while let Some(answer) = rx.recv().await? {
///     drop(answer.into_inner());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a call is made when something is sent or received"]
pub struct Bidirectional<Q, R> {
    opening: Arc<Opening<Outgoing<Q>>>,
    /// Before the sender, since fields are dropped in this order: the other way round the server would be told that all
    /// has been said, and take a part for the whole before it is told that the call is given up.
    receiver: Receiver<R>,
    sender: Sender<Q>,
}

impl<Q: Message, R: Message> Bidirectional<Q, R> {
    pub(super) fn new(draft: Draft<Outgoing<Q>>) -> Self {
        let opening = Opening::new(draft);
        let receiver = Receiver::of_opening(Arc::clone(&opening) as Arc<dyn Start>);
        Self { sender: Sender::of_opening(Arc::clone(&opening)), receiver, opening }
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

    /// The two halves. The call lives as long as one of them: dropping the sender says that nothing follows, dropping
    /// the receiver cancels. Who gives the call up drops the receiver first, else its server may take what came for
    /// all there is.
    pub fn split(self) -> (Sender<Q>, Receiver<R>) {
        (self.sender, self.receiver)
    }

    /// As [`Sender::send`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn send(&mut self, message: impl Into<Outgoing<Q>>) -> Result<(), Status> {
        self.sender.send(message).await
    }

    /// As [`Receiver::recv`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn recv(&mut self) -> Result<Option<Received<R>>, Status> {
        self.receiver.recv().await
    }

    /// Says that nothing follows; receiving goes on.
    pub fn close(self) -> Receiver<R> {
        self.sender.close();
        self.receiver
    }
}
