//! Remote procedure calls as a managed service of the host: the library an application links.
//!
//! The library is a thin stub. It builds messages in shared memory, tells the host's daemon about them through a ring,
//! and waits for what the daemon answers. Transport, policy, balancing, telemetry and the protocol of the peer are the
//! daemon's; where none runs, the same engine runs inside the process (cargo feature `embedded`, on by default).
//!
//! ```
//! use trunkline::{Channel, Server, Wait};
//! # use trunkline::codegen::{Delivered, Handling, Service, ServiceDescription};
//! # struct GreeterServer;
//! # impl Service for GreeterServer {
//! #     fn description(&self) -> &'static ServiceDescription { unimplemented!() }
//! #     fn call(&self, _: usize, call: Delivered) -> Handling { call.unimplemented() }
//! # }
//! # struct GreeterClient;
//! # impl GreeterClient { fn new(_: Channel) -> Self { Self } }
//! # fn main() {}
//! # fn example() -> Result<(), trunkline::Status> {
//! // In one program:
//! Server::builder().name("greeter").add_service(GreeterServer).workers(2).run()?;
//!
//! // In another (or the same): from async code `client.say_hello(hello).await?`, from plain code `.wait()?`.
//! let client = GreeterClient::new(Channel::local());
//! # Ok(())
//! # }
//! ```
//!
//! Clients, services and messages are generated from `.proto` files by `trunkline-build` ([`include_proto!`]).
//!
//! # The way of a call
//! 1. A generated method makes a [`Unary`] (or a stream): nothing but a draft until it is polled (`client/draft.rs`).
//! 2. Polled, it picks a *session*: one of the thread's own, for [waiting](Wait) or for tasks of other executors; the
//!    worker's in a handler (`leases.rs`, `context.rs`, `hub/`). It writes the message into a block of the
//!    session's send heap (`message/`), and one entry into its submission ring (`session/books.rs`).
//! 3. Whoever waits drains the completion ring, for itself and for the others (`session/waiting.rs`), and books what
//!    came (`session/dispatch.rs`). A thread that waits looks at the ring for some microseconds before it sleeps.
//! 4. The response is read where the daemon put it, and its block returned when it is dropped (`session/received.rs`).
//!
//! A server's worker does the same from the other side: its thread drains the ring of its session and polls each
//! handler where its call arrived (`server/worker.rs`, `server/delivered.rs`).
//!
//! Code that brings its own stubs and codecs calls and serves through [`opaque`], in bytes.
//!
//! What is to happen to every call goes into interceptors ([`Channel::with_interceptor`],
//! [`ServerBuilder::with_interceptor`], [`Intercept`]); who calls is [`Incoming::caller`].
//!
//! # What holds
//! * At most once: the library never sends a call twice. [`Status::execution`] tells whether the handler may have run;
//!   a call that was still in the ring when the session ended certainly did not.
//! * Dropping a call, a stream or a receiver cancels it. A handler whose call is cancelled is dropped.
//! * Calls a handler makes inherit its deadline, its cancellation and its trace context ([`Request::in_context`] where
//!   work changes threads).
//! * Full rings, full heaps and limits make callers wait, for rings and limits in order. Only what can never fit is
//!   refused, by name.
//! * A lost session fails its calls and nothing else: clients and servers attach anew by themselves, with back-off.
//! * A forked child may call at once: it attaches anew, and cannot disturb its parent. Servers do not survive a fork.
//! * A handler that panics ends its own call with INTERNAL.
//! * What is dropped, submitted or not, leaves nothing behind that others would wait for. Calls may be made while a
//!   thread ends, in destructors of thread-local values.
//! * The library reads one clock, holds no lock while it waits, and has no unsafe code.
//!
//! # Which daemon
//! What the builders say ([`ChannelBuilder::socket`], [`ChannelBuilder::embedded`]); else `TRUNKLINE_EMBEDDED` (`1` or
//! `0`) and `TRUNKLINE_SOCKET`; else whichever daemon answers in the default places; else one inside the process, which
//! reads its configuration from the file named by `TRUNKLINE_CONFIG`, if there is one. A server that ends up with the
//! last without having asked for it says so in a line, to `tracing` or on standard error: no other program can call it.
//! What standard error does not take at once is lost: nothing waits for its reader.
//!
//! # Waiting
//! A thread that waits looks for an answer before it sleeps, yielding its core between looks, for as long as six
//! wake-ups take here (it measures them; 2 ms at most). When calls take much longer than that it looks as long as one
//! takes, and when answers are rare not at all. Calls are fast by that, and it shows as processor time. Where such time
//! is rationed, as by a CPU quota, `TRUNKLINE_PATIENCE_US` bounds it; `0` sleeps at once. The daemon has
//! `waiting.patience_us_max` for its own threads.
//!
//! # Limits
//! * Threads that wait share as many sessions as there are cores, at most 8; more threads than that follow each other.
//! * Threads that poll tasks of other executors share as many sessions again, or as many as `TRUNKLINE_TASK_SESSIONS`
//!   says (1 to 64). A thread that polls few calls goes through another's session.
//! * Calls in flight and stream windows are the daemon's to set (docs/shared-memory.md).
//! * One message must fit the sender's heap, the receiver's, and the daemon's `limits.message_bytes`: 256 MiB and the
//!   fields around it, unless the daemon says otherwise. Heaps larger than 512 MiB are the daemon's to give
//!   (`sessions.heap_bytes`) or the process's to ask for (`TRUNKLINE_HEAP_BYTES`, such as `1 GiB`).
#![forbid(unsafe_code)]

mod channel;
mod client;
mod clock;
pub mod codegen;
mod compression;
mod context;
mod description;
mod hub;
mod intercept;
mod kick;
mod leases;
mod load;
mod message;
pub mod opaque;
mod refusals;
pub mod rpc;
mod server;
mod session;
mod settings;
mod shared;
mod standard_error;
mod stream;
mod wait;
mod wakers;
pub mod wkt;

pub use channel::{Channel, ChannelBuilder};
pub use client::{Bidirectional, ClientStreaming, ServerStreaming, Unary};
pub use compression::Compression;
#[doc(hidden)]
pub use hub::Connect;
pub use intercept::{ClientCall, ClientInterceptor, Intercept, Intercepted, ServerCall, ServerInterceptor};
pub use load::LoadReport;
pub use message::{Built, Incoming, IntoRequest, Outgoing, Received, Request, Response, SendExtent};
pub use server::{Server, ServerBuilder, ServerHandle};
pub use shared::StatusDetails;
#[doc(hidden)]
pub use standard_error::say_on_standard_error;
pub use stream::{Receiver, Sender};
pub use trunkline_call::{Caller, Code, Deadline, Execution, Metadata, MetadataError, Status};
pub use wait::{Wait, block_on};

/// Includes what `trunkline-build` generated for a package in `build.rs`.
///
/// ```text
/// mod greeter {
///     trunkline::include_proto!("greeter.v1");
/// }
/// ```
///
/// Packages it refers to come with it, in a module `packages`: of `shop.v1`, which imports `money.proto` of the package
/// `common`, `shop::packages::common::Money`. Where several packages of one crate refer to each other, or to the same
/// one, [`include_protos!`] has each of them once. Protobuf's own types are those of [`wkt`] everywhere.
#[macro_export]
macro_rules! include_proto {
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}

/// Includes all that `trunkline-build` generated, each package once and as the module its name says: what several
/// packages that refer to each other, or to the same one, need.
///
/// ```text
/// pub mod pb {
///     trunkline::include_protos!();
/// }
/// use pb::greeter::v1::HelloRequest;
/// ```
#[macro_export]
macro_rules! include_protos {
    () => {
        include!(concat!(env!("OUT_DIR"), "/trunkline_protos.rs"));
    };
}
