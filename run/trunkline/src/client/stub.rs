//! What generated clients are made of.

use super::bidirectional::Bidirectional;
use super::binding::Binding;
use super::client_streaming::ClientStreaming;
use super::draft::Draft;
use super::server_streaming::ServerStreaming;
use super::target::Target;
use super::unary::Unary;
use crate::channel::Channel;
use crate::description::ServiceDescription;
use crate::message::IntoRequest;
use std::sync::Arc;
use trunkline_message::Message;

/// What a generated client holds: a channel and the service it calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientCore {
    target: Arc<Target>,
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
