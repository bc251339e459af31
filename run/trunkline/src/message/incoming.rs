//! A request as its handler gets it.

use super::within::Within;
use super::{Body, Built, Received, SendExtent};
use crate::clock;
use crate::context::Parent;
use crate::server::Call;
use std::fmt;
use std::time::Duration;
use trunkline_call::{Caller, Deadline, Metadata, Status};
use trunkline_message::Message;

/// A request with what came with it.
///
/// The message lies in shared memory until it is dropped or [taken out](Incoming::into_inner).
pub struct Incoming<M> {
    body: Body<M>,
    said: Said,
    call: Option<Call>,
}

/// What goes with a request beside its messages.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) metadata: Metadata,
    pub(crate) caller: Option<Box<Caller>>,
}

impl<M: Message> Incoming<M> {
    /// A request that came from nowhere: to call a handler directly, in a test.
    pub fn new(message: M) -> Self {
        Self { body: Body::owned(message), said: Said::default(), call: None }
    }

    /// Reads the message in place.
    pub fn view(&self) -> M::View<'_> {
        self.body.view()
    }

    /// As [`Received::was_compressed`](crate::Received::was_compressed).
    pub fn was_compressed(&self) -> bool {
        self.body.was_compressed()
    }

    /// The message as a struct.
    pub fn into_inner(self) -> M {
        self.body.into_inner()
    }

    /// Builds a response in place, in the memory it will be sent from: `Ok(request.build(|b| …)?.into())`.
    ///
    /// # Errors
    /// As [`Channel::build`](crate::Channel::build).
    pub fn build<R: Message>(
        &self,
        fill: impl FnOnce(&mut R::Builder<'_, SendExtent>),
    ) -> Result<Built<R>, Status> {
        let session = self.call.as_ref().map(Call::session);
        let heap = session.and_then(|session| SendExtent::of_session(session, R::BLOCK_BYTES as usize).ok());
        Built::build(heap.unwrap_or_else(SendExtent::local), fill)
    }

    pub(crate) fn delivered(received: Received<M>, said: Said, call: Call) -> Self {
        Self { body: Body::Received(received), said, call: Some(call) }
    }
}

impl<M> Incoming<M> {
    /// Metadata of the request (gRPC: headers).
    pub fn metadata(&self) -> &Metadata {
        &self.said.metadata
    }

    /// Who calls, by the word of the daemon that delivered the call; no caller can say it otherwise. `None` unless the
    /// server [asked to be told](crate::ServerBuilder::tell_callers), of a copy that a policy made, and where the
    /// request's metadata left no space.
    pub fn caller(&self) -> Option<&Caller> {
        self.said.caller.as_deref()
    }

    /// When the call must have ended. Calls the handler makes inherit it without being told.
    pub fn deadline(&self) -> Deadline {
        self.call.as_ref().map_or(Deadline::NONE, Call::deadline)
    }

    /// Time left until the deadline, if there is one.
    pub fn time_left(&self) -> Option<Duration> {
        time_left(self.deadline())
    }

    /// Whether the caller has gone, or the deadline has passed. A handler that waits is dropped then; one that computes
    /// may ask.
    pub fn is_cancelled(&self) -> bool {
        self.call.as_ref().is_some_and(Call::is_cancelled)
    }

    pub(crate) fn within(&self) -> Option<Within> {
        let call = self.call.as_ref()?;
        let parent = Parent { call: call.id(), deadline: call.deadline() };
        Some(Within { session: call.session().clone(), parent })
    }
}

/// Time left until a deadline.
pub(crate) fn time_left(deadline: Deadline) -> Option<Duration> {
    deadline.remaining_ns(clock::now()).map(Duration::from_nanos)
}

impl<M> fmt::Debug for Incoming<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("metadata", &self.said.metadata)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}
