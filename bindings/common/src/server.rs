//! Serving calls on any thread.

use crate::cancel::Cancel;
use crate::client::{CallEvent, held_or};
use crate::tray::Tray;
use std::fmt;
use std::future::{poll_fn, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use trunkline::codegen::Handling;
use trunkline::opaque::{self, Delivered, Incoming, OpaqueBody, Outcome, Responder, Scope, Types};
use trunkline::{Metadata, Status};

/// A call that arrived. Dropped unanswered, its caller gets UNAVAILABLE.
#[derive(Clone, Debug)]
pub struct DeliveredCall(Arc<DeliveredParts>);

#[derive(Debug)]
struct DeliveredParts {
    path: Box<str>,
    metadata: Metadata,
    scope: Scope,
    deadline: Option<std::time::Instant>,
    incoming: Tray<Incoming>,
    responder: Tray<Responder>,
    cancel: Cancel,
}

/// A service whose calls all go to one receiver.
pub struct Adapter {
    name: Box<str>,
    types: Option<Types>,
    receive: Box<dyn Fn(DeliveredCall) + Send + Sync>,
}

impl Adapter {
    /// Calls of the service `name` go to `receive`, on the thread of the worker that got them.
    pub fn new(name: &str, receive: impl Fn(DeliveredCall) + Send + Sync + 'static) -> Self {
        Self { name: name.into(), types: None, receive: Box::new(receive) }
    }

    /// The service with these types: its messages are linear.
    pub fn with_types(self, types: Types) -> Self {
        Self { types: Some(types), ..self }
    }
}

impl opaque::Service for Adapter {
    fn name(&self) -> &str {
        &self.name
    }

    fn types(&self) -> Option<&Types> {
        self.types.as_ref()
    }

    fn call(&self, call: Delivered) -> Handling {
        (self.receive)(DeliveredCall::new(call));
        Box::pin(ready(()))
    }
}

impl DeliveredCall {
    fn new(call: Delivered) -> Self {
        let Delivered { path, metadata, incoming, responder } = call;
        let deadline = responder.time_left().and_then(|left| std::time::Instant::now().checked_add(left));
        Self(Arc::new(DeliveredParts {
            path,
            metadata,
            scope: responder.scope(),
            deadline,
            incoming: Tray::new(incoming),
            responder: Tray::new(responder),
            cancel: Cancel::default(),
        }))
    }

    /// `/package.Service/Method`.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Metadata of the request.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// The call as the one on whose behalf others are made.
    pub fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// How long there is to answer; `None` without a limit.
    pub fn time_left(&self) -> Option<Duration> {
        Some(self.0.deadline?.saturating_duration_since(std::time::Instant::now()))
    }

    /// The next request, [`CallEvent::RequestsEnd`] after the last, or the end if the call is no longer wanted.
    pub async fn receive(&self) -> CallEvent {
        let mut held = match held_or(self.0.incoming.take(), "receives") {
            Ok(held) => held,
            Err(status) => return CallEvent::End(status),
        };
        let Some(incoming) = held.get() else { return CallEvent::RequestsEnd };
        let next = poll_fn(|cx| incoming.poll_message(cx));
        match self.0.cancel.or(next).await {
            Some(Ok(Some(message))) => CallEvent::Message(message),
            Some(Ok(None)) => CallEvent::RequestsEnd,
            Some(Err(status)) => CallEvent::End(status),
            None => CallEvent::End(let_go()),
        }
    }

    /// Sends response headers: once, before all messages.
    ///
    /// # Errors
    /// Why the call is no longer wanted; FAILED_PRECONDITION after the answer and while another operation sends.
    pub async fn send_headers(&self, headers: &Metadata) -> Result<(), Status> {
        let mut held = held_or(self.0.responder.take(), "sends, or the call has been answered")?;
        let Some(responder) = held.get() else { return Ok(()) };
        self.0.cancel.or(responder.send_headers(headers)).await.ok_or_else(let_go)?
    }

    /// Sends a response.
    ///
    /// # Errors
    /// As [`DeliveredCall::send_headers`]; what is wrong with the message, which then has answered the call.
    pub async fn send(&self, message: OpaqueBody) -> Result<(), Status> {
        let mut held = held_or(self.0.responder.take(), "sends, or the call has been answered")?;
        let Some(responder) = held.get() else { return Ok(()) };
        self.0.cancel.or(responder.send(message)).await.ok_or_else(let_go)?
    }

    /// Ends the call, with a last response if there is one. The status's metadata are the trailers.
    ///
    /// # Errors
    /// Why the call is no longer wanted, so that nobody gets the answer; FAILED_PRECONDITION when it was answered or
    /// let go of already, and while another operation sends.
    pub async fn finish(&self, status: &Status, message: Option<OpaqueBody>) -> Result<(), Status> {
        let held = held_or(self.0.responder.take(), "sends, or the call has been answered")?;
        let Some(responder) = held.keep() else { return Ok(()) };
        let outcome = Outcome::from(status);
        let finished = responder.finish(&outcome, message);
        self.0.cancel.or(finished).await.ok_or_else(let_go)?
    }

    /// Ready when the call is over: answered, or no longer wanted. One waits at a time.
    pub async fn over(&self) {
        poll_fn(|cx| self.0.scope.poll_over(cx)).await;
    }

    /// The same to be polled: by whoever has not given the call to anybody yet.
    pub fn poll_over(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.scope.poll_over(cx)
    }

    /// Lets go of a call: without an answer, its caller gets UNAVAILABLE. Ends operations under way.
    pub fn let_go(&self) {
        self.0.cancel.set();
        drop((self.0.responder.close(), self.0.incoming.close()));
    }
}

fn let_go() -> Status {
    Status::cancelled("the server let go of the call")
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").field("name", &self.name).finish_non_exhaustive()
    }
}
