//! One request, many responses.

use super::attempt::start;
use super::draft::Draft;
use super::made::OpenStream;
use crate::message::Body;
use crate::stream::Receiver;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use trunkline_call::Status;
use trunkline_message::Message;

/// A server-streaming call: await it for a [`Receiver`] of responses.
///
/// It is ready as soon as the request is submitted; what the server answers, refusals included, comes from the
/// receiver.
///
/// # Errors
/// What kept the request from being submitted; it was not executed.
///
/// # Cancel safety
/// Dropping it before it is ready makes no call, or cancels the call it made.
#[derive(Debug)]
#[must_use = "a call is made when it is awaited or waited for"]
pub struct ServerStreaming<Q, R> {
    draft: Draft<Body<Q>>,
    of: PhantomData<fn() -> R>,
}

impl<Q: Message, R: Message> ServerStreaming<Q, R> {
    pub(super) fn new(draft: Draft<Body<Q>>) -> Self {
        Self { draft, of: PhantomData }
    }
}

impl<Q: Message, R: Message> IntoFuture for ServerStreaming<Q, R> {
    type Output = Result<Receiver<R>, Status>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let made = start(self.draft).await?;
            Ok(Receiver::of_call(Arc::new(OpenStream::new(made))))
        })
    }
}
