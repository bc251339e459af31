//! Making calls.

mod attempt;
mod bidirectional;
mod binding;
mod client_streaming;
mod draft;
mod made;
mod opening;
pub(crate) mod outcome;
mod server_streaming;
mod turn;
mod unary;

pub use bidirectional::Bidirectional;
pub use client_streaming::ClientStreaming;
pub use server_streaming::ServerStreaming;
pub use unary::Unary;

pub(crate) use binding::Binding;
pub(crate) use client_streaming::send_on;
pub(crate) use draft::{Draft, encoded, write_bytes, write_metadata};
pub(crate) use made::{Arrival, OpenStream};
pub(crate) use opening::{Half, Opening, Start};
pub(crate) use turn::{Turn, wait_for};

use crate::channel::Channel;
use crate::codegen::ServiceDescription;
use crate::message::IntoRequest;
use std::sync::Arc;
use trunkline_message::Message;

/// What a generated client holds: a channel and the service it calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientCore {
    target: Arc<Target>,
}

/// A service, or one method of it, through a channel.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) channel: Channel,
    pub(crate) binding: Binding,
}

impl ClientCore {
    /// A client of `service` through `channel`. Nothing is sent until the first call.
    pub fn new(channel: Channel, service: &'static ServiceDescription) -> Self {
        let binding = Binding::new(service, channel.target_arc());
        Self { target: Arc::new(Target { channel, binding }) }
    }

    /// One request, one response.
    pub fn unary<Q: Message, R: Message>(&self, method: usize, request: impl IntoRequest<Q>) -> Unary<Q, R> {
        Unary::new(Draft::of_request(&self.target, method, request.into_request()))
    }

    /// One request, many responses.
    pub fn server_streaming<Q: Message, R: Message>(
        &self,
        method: usize,
        request: impl IntoRequest<Q>,
    ) -> ServerStreaming<Q, R> {
        ServerStreaming::new(Draft::of_request(&self.target, method, request.into_request()))
    }

    /// Many requests, one response.
    pub fn client_streaming<Q: Message, R: Message>(&self, method: usize) -> ClientStreaming<Q, R> {
        ClientStreaming::new(Draft::of_stream(&self.target, method))
    }

    /// Many requests, many responses.
    pub fn bidirectional<Q: Message, R: Message>(&self, method: usize) -> Bidirectional<Q, R> {
        Bidirectional::new(Draft::of_stream(&self.target, method))
    }
}
