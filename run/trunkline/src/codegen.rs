//! What generated code uses. Nothing here is meant to be typed by hand; the names are kept short for generated text.
//!
//! A generated service consists of
//!
//! * one `static DESCRIPTION: ServiceDescription`,
//! * a client: `struct GreeterClient { core: ClientCore }` whose methods call [`ClientCore::unary`] and its siblings,
//! * a trait `Greeter` with one `fn … -> impl Future<…> + Send` per method,
//! * a server: `struct GreeterServer<T> { inner: Arc<T> }` with `impl Service`, whose `call` picks by method index and
//!   hands a closure to [`Delivered::unary`] and its siblings.
//!
//! ```text
//! impl<T: Greeter> Service for GreeterServer<T> {
//!     fn description(&self) -> &'static ServiceDescription { &DESCRIPTION }
//!     fn call(&self, method: usize, call: Delivered) -> Handling {
//!         let inner = Arc::clone(&self.inner);
//!         match method {
//!             0 => call.unary(move |request| async move { inner.say_hello(request).await }),
//!             1 => call.server_streaming(move |request, out| async move { inner.query(request, out).await }),
//!             2 => call.client_streaming(move |input| async move { inner.index(input).await }),
//!             3 => call.bidirectional(move |input, out| async move { inner.session(input, out).await }),
//!             _ => call.unimplemented(),
//!         }
//!     }
//! }
//!
//! impl GreeterClient {
//!     pub fn new(channel: Channel) -> Self { Self { core: ClientCore::new(channel, &DESCRIPTION) } }
//!     pub fn say_hello(&self, request: impl IntoRequest<HelloRequest>) -> Unary<HelloRequest, HelloReply> {
//!         self.core.unary(0, request)
//!     }
//!     pub fn query(&self, request: impl IntoRequest<Query>) -> ServerStreaming<Query, Hit> {
//!         self.core.server_streaming(1, request)
//!     }
//!     pub fn index(&self) -> ClientStreaming<Doc, Summary> { self.core.client_streaming(2) }
//!     pub fn session(&self) -> Bidirectional<Ask, Answer> { self.core.bidirectional(3) }
//! }
//!
//! pub trait Greeter: Send + Sync + 'static {
//!     fn say_hello(&self, request: Incoming<HelloRequest>)
//!         -> impl Future<Output = Result<Response<HelloReply>, Status>> + Send;
//!     fn query(&self, request: Incoming<Query>, out: Sender<Hit>) -> impl Future<Output = Result<(), Status>> + Send;
//!     fn index(&self, input: Receiver<Doc>) -> impl Future<Output = Result<Response<Summary>, Status>> + Send;
//!     fn session(&self, input: Receiver<Ask>, out: Sender<Answer>) -> impl Future<Output = Result<(), Status>> + Send;
//! }
//! ```

pub use crate::channel::Channel;
pub use crate::client::{Bidirectional, ClientCore, ClientStreaming, ServerStreaming, Unary};
pub use crate::description::{MethodDescription, ServiceDescription};
pub use crate::message::{Built, Incoming, IntoRequest, Outgoing, Received, Request, Response, SendExtent};
pub use crate::server::{Delivered, Handling, Service};
pub use crate::stream::{Receiver, Sender};
pub use crate::{rpc, wkt};
pub use std::sync::Arc;
pub use trunkline_call::{Code, Pattern, Status};
pub use trunkline_message::*;
