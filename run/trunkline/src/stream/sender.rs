//! The sending half of a stream.

use super::push::{Push, push};
use crate::client::{Half, OpenStream, Opening, send_on};
use crate::message::{Built, Outgoing, SendExtent};
use crate::server::Call;
use crate::session::Session;
use std::fmt;
use std::sync::Arc;
use trunkline_call::{Metadata, Status};
use trunkline_message::Message;

/// Sends messages of a stream: a client's requests, a handler's responses.
///
/// Dropping a client's sender says that nothing follows; while a panic unwinds it cancels the call, so that its server
/// does not take a part for the whole. To give a call up, drop its receiver first. A handler's stream ends when the
/// handler returns.
pub struct Sender<M> {
    sink: Sink<M>,
}

enum Sink<M> {
    /// A call that may not have been started.
    Opening(Arc<Opening<Outgoing<M>>>),
    /// A call we made.
    Made(Arc<OpenStream>),
    /// A call delivered to us.
    Delivered(Call),
}

impl<M: Message> Sender<M> {
    /// Sends a message; waits while the receiver has as many bytes before it as it allows.
    ///
    /// # Errors
    /// In a client the status of the call if it has ended; in a handler that of its cancellation; what is wrong with
    /// the message.
    ///
    /// # Cancel safety
    /// A message whose `send` is dropped was not sent, except that the first of a client's call may yet be, with what
    /// is sent or received next.
    pub async fn send(&mut self, message: impl Into<Outgoing<M>>) -> Result<(), Status> {
        let mut body = Some(message.into());
        if let Sink::Opening(opening) = &self.sink {
            let made = opening.open(Half::Sender, &mut body, false).await?;
            self.sink = Sink::Made(made);
        }
        let Some(body) = body else { return Ok(()) };
        match &self.sink {
            Sink::Made(made) => send_on(made, body).await,
            Sink::Delivered(call) => {
                push(call.session(), call.id(), body).await.map_err(|failure| match failure {
                    Push::Ended => call.reason(),
                    Push::Never(status) => status,
                })
            }
            Sink::Opening(_) => Err(Status::internal("a stream was not started")),
        }
    }

    /// Builds a message in place, in the memory it will be sent from.
    ///
    /// # Errors
    /// As [`Channel::build`](crate::Channel::build).
    pub fn build(&self, fill: impl FnOnce(&mut M::Builder<'_, SendExtent>)) -> Result<Built<M>, Status> {
        let heap =
            self.session().and_then(|session| SendExtent::of_session(session, M::BLOCK_BYTES as usize).ok());
        Built::build(heap.unwrap_or_else(SendExtent::local), fill)
    }

    /// In a handler: sends response headers. At most once, before the first message; no effect in a client.
    ///
    /// # Errors
    /// The status of the call's cancellation.
    ///
    /// # Cancel safety
    /// Headers are sent in the last poll or not at all.
    pub async fn send_headers(&mut self, headers: &Metadata) -> Result<(), Status> {
        match &self.sink {
            Sink::Delivered(call) => call.send_headers(headers).await,
            Sink::Opening(_) | Sink::Made(_) => Ok(()),
        }
    }

    /// In a handler: what is to be sent with the end of the stream (gRPC: trailers), whether it ends well or not. The
    /// last call counts; no effect in a client.
    pub fn set_trailers(&mut self, trailers: Metadata) {
        if let Sink::Delivered(call) = &self.sink {
            call.set_trailers(trailers);
        }
    }

    /// In a client: says that nothing follows, as dropping does.
    pub fn close(self) {
        match &self.sink {
            Sink::Opening(opening) => opening.close(),
            Sink::Made(made) => made.half_close(),
            Sink::Delivered(_) => {}
        }
    }

    pub(crate) fn of_opening(opening: Arc<Opening<Outgoing<M>>>) -> Self {
        Self { sink: Sink::Opening(opening) }
    }

    pub(crate) fn of_delivered(call: Call) -> Self {
        Self { sink: Sink::Delivered(call) }
    }

    fn session(&self) -> Option<&Arc<Session>> {
        match &self.sink {
            Sink::Opening(_) => None,
            Sink::Made(made) => Some(made.session()),
            Sink::Delivered(call) => Some(call.session()),
        }
    }
}

impl<M> Drop for Sender<M> {
    fn drop(&mut self) {
        match &self.sink {
            Sink::Opening(opening) => opening.drop_sender(),
            Sink::Made(made) => made.drop_sender(),
            Sink::Delivered(_) => {}
        }
    }
}

impl<M> fmt::Debug for Sender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}
