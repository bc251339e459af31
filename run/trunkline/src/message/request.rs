//! A request with what goes with it.

use super::within::Within;
use super::{Body, Built, Incoming, Received};
use crate::hub::Patience;
use std::time::Duration;
use trunkline_call::{Metadata, MetadataError, STICKY_KEY, WORKER_CLASS_KEY};
use trunkline_message::Message;

/// A request with its metadata, time limit and the call on whose behalf it is made.
///
/// ```
/// # use trunkline::codegen::Message;
/// # fn example<HelloRequest: Message>(hello: HelloRequest) -> Result<(), trunkline::MetadataError> {
/// use std::time::Duration;
/// use trunkline::Request;
///
/// let request = Request::new(hello)
///     .with_timeout(Duration::from_millis(50))
///     .with_metadata("tenant", "blue")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Request<M> {
    pub(crate) body: Body<M>,
    pub(crate) metadata: Metadata,
    pub(crate) timeout: Option<Duration>,
    pub(crate) patience: Patience,
    pub(crate) within: Option<Within>,
}

impl<M: Message> Request<M> {
    /// A request without metadata, with no time limit of its own.
    pub fn new(message: M) -> Self {
        Self::of(Body::owned(message))
    }

    /// The call must have ended when this time has passed, counted from the start of the call. A handler's calls never
    /// outlive the call it handles, whatever is said here.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Adds a pair to the request's metadata (gRPC: a header).
    ///
    /// # Errors
    /// [`MetadataError`] names the key at fault, or the limit.
    pub fn with_metadata(mut self, key: &str, value: impl AsRef<[u8]>) -> Result<Self, MetadataError> {
        self.metadata.insert(key, value)?;
        Ok(self)
    }

    /// Gives the call a class, 0 to 31: operators may keep workers for a class, at a router of R2P2 (`--reserve`) or in
    /// the daemon that serves it (a policy of kind `workers`). It is metadata, `trunkline-worker-class`; a policy of
    /// the operator's comes before it.
    ///
    /// # Errors
    /// [`MetadataError`]: there is no space for another pair. That there is no such class the call's status says.
    pub fn with_worker_class(self, class: u8) -> Result<Self, MetadataError> {
        self.with_only(WORKER_CLASS_KEY, &class.to_string())
    }

    /// Whether the call goes to the worker that gets all such calls of this application, as long as that worker is
    /// there. Through a router of R2P2 it is the one that gets those of this host. It is metadata, `trunkline-sticky`.
    ///
    /// # Errors
    /// [`MetadataError`]: there is no space for another pair.
    pub fn with_sticky(self, sticky: bool) -> Result<Self, MetadataError> {
        self.with_only(STICKY_KEY, if sticky { "true" } else { "false" })
    }

    /// Waits for a daemon, and for a connection to the target, instead of failing when there is none; until the time
    /// limit, if there is one. Where nothing says that there is a daemon on this host, the engine inside the program
    /// needs no waiting for: a program that is to wait for one that may be installed later says
    /// [`embedded(false)`](crate::ChannelBuilder::embedded) or `TRUNKLINE_EMBEDDED=0`.
    pub fn wait_for_ready(mut self) -> Self {
        self.patience = Patience::UntilReady;
        self
    }

    /// Makes the call on behalf of a call this application is handling: it ends when that one is cancelled or late, and
    /// carries its trace context. A handler's own calls do this without being told; use it where the handler hands work
    /// to another thread or executor.
    pub fn in_context<N>(mut self, incoming: &Incoming<N>) -> Self {
        self.within = incoming.within();
        self
    }

    /// The metadata, to read or change.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// Reads the message.
    pub fn view(&self) -> M::View<'_> {
        self.body.view()
    }

    fn with_only(mut self, key: &str, value: &str) -> Result<Self, MetadataError> {
        while self.metadata.remove(key).is_some() {}
        self.with_metadata(key, value)
    }

    fn of(body: Body<M>) -> Self {
        Self { body, metadata: Metadata::new(), timeout: None, patience: Patience::FailFast, within: None }
    }
}

/// What can be sent as a request: a message, a [`Request`], a message [built in place](Built), a message received.
pub trait IntoRequest<M: Message> {
    /// The request.
    fn into_request(self) -> Request<M>;
}

impl<M: Message> IntoRequest<M> for M {
    fn into_request(self) -> Request<M> {
        Request::new(self)
    }
}

impl<M: Message> IntoRequest<M> for Request<M> {
    fn into_request(self) -> Request<M> {
        self
    }
}

impl<M: Message> IntoRequest<M> for Built<M> {
    fn into_request(self) -> Request<M> {
        Request::of(Body::Built(self))
    }
}

impl<M: Message> IntoRequest<M> for Received<M> {
    fn into_request(self) -> Request<M> {
        Request::of(Body::Received(self))
    }
}

impl<M: Message> From<Built<M>> for Request<M> {
    fn from(built: Built<M>) -> Self {
        built.into_request()
    }
}
