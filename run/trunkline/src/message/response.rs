//! A response with what goes with it.

use super::{Body, Built, Received};
use trunkline_call::{Metadata, MetadataError};
use trunkline_message::Message;

/// A response: what a unary call gives its caller, and what a handler returns.
///
/// A received response lies in shared memory until it is dropped or [taken out](Response::into_inner).
#[derive(Debug)]
pub struct Response<M> {
    pub(crate) body: Body<M>,
    pub(crate) headers: Metadata,
    pub(crate) trailers: Metadata,
}

impl<M: Message> Response<M> {
    /// A handler's response.
    pub fn new(message: M) -> Self {
        Self::of(Body::owned(message))
    }

    /// Reads the message, in place if it was received.
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

    /// Metadata sent before the message (gRPC: response headers).
    pub fn headers(&self) -> &Metadata {
        &self.headers
    }

    /// Metadata sent after the message (gRPC: trailers).
    pub fn trailers(&self) -> &Metadata {
        &self.trailers
    }

    /// Adds a pair to what is sent before the message.
    ///
    /// # Errors
    /// [`MetadataError`] names the key at fault, or the limit.
    pub fn with_header(mut self, key: &str, value: impl AsRef<[u8]>) -> Result<Self, MetadataError> {
        self.headers.insert(key, value)?;
        Ok(self)
    }

    /// Adds a pair to what is sent after the message.
    ///
    /// # Errors
    /// As [`Response::with_header`].
    pub fn with_trailer(mut self, key: &str, value: impl AsRef<[u8]>) -> Result<Self, MetadataError> {
        self.trailers.insert(key, value)?;
        Ok(self)
    }

    pub(crate) fn of(body: Body<M>) -> Self {
        Self { body, headers: Metadata::new(), trailers: Metadata::new() }
    }
}

impl<M: Message> From<M> for Response<M> {
    fn from(message: M) -> Self {
        Self::new(message)
    }
}

impl<M: Message> From<Built<M>> for Response<M> {
    fn from(built: Built<M>) -> Self {
        Self::of(Body::Built(built))
    }
}

impl<M: Message> From<Received<M>> for Response<M> {
    fn from(received: Received<M>) -> Self {
        Self::of(Body::Received(received))
    }
}
