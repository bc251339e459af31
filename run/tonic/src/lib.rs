//! A channel and a server for code that tonic has generated.
//!
//! Programs written with tonic keep their `.proto`, their generated code, their handlers and their codec; what is under
//! them becomes the host's daemon. Two lines change:
//!
//! ```text
//! // client
//! - let client = GreeterClient::connect("http://10.0.0.7:50051").await?;
//! + let client = GreeterClient::new(trunkline_tonic::Channel::connect("tcp://10.0.0.7:7878").await?);
//!
//! // server
//! - tonic::transport::Server::builder().add_service(GreeterServer::new(greeter)).serve(address).await?;
//! + trunkline_tonic::Server::builder().add_service(GreeterServer::new(greeter)).serve().await?;
//! ```
//!
//! The ends need not move together: the other one may be tonic over its own transport (gRPC at the daemon's port, or
//! the address of a server), a generated client or server of this library, whose daemon converts, or any gRPC peer.
//!
//! # The way of a call
//! tonic's generated code speaks HTTP to a [`tower_service::Service`]: a head, a body of length-prefixed messages,
//! trailers. [`Channel`] (`channel.rs`) is such a service. It reads the head (`trunkline-grpc` knows what headers
//! mean), cuts the body into messages (`messages.rs`), and hands them to an [opaque call](trunkline::opaque): they
//! travel as the protobuf they are. A request that is whole when the call is made travels in one ring entry; one that
//! streams is read on by a task (`pump.rs`), as tonic's connection would. What the server answers becomes a head, a
//! body and trailers (`answer.rs`), its large messages lying where the daemon put them until tonic's decoder has read
//! them.
//!
//! [`Server`] (`server.rs`, `respond.rs`) does the same from the other side. Handlers run as tasks of the tokio runtime
//! the server was started in, as under tonic; a unary response travels in one entry, too. What the room does not know:
//! rings, types, protobuf, sockets.
//!
//! # What holds
//! * Metadata (also `-bin`), status with details, trailers, message size limits, interceptors and tower's layers work
//!   as tonic documents them.
//! * Deadlines: `Request::set_timeout` is the call's deadline, on every host it passes, to its end. (tonic's own
//!   transport looks at it until headers have come.) The caller gets DEADLINE_EXCEEDED; the handler is dropped.
//! * Cancellation: who drops a call, or its stream of answers, cancels it, and the handler is dropped. A server that
//!   answers before it has read everything ends the request stream; the client's stream is dropped.
//! * Calls a handler makes through this host's daemon inherit its deadline, its cancellation and its trace context, as
//!   long as they are made by the handler's own task.
//! * tonic-health and tonic-reflection are services like any other; the daemon's own stand back for them.
//! * No thread of the runtime blocks.
//!
//! # What differs
//! * Compression: an application and its daemon share memory, so nothing is gained there. A server is never told that
//!   its client reads compressed messages, and sends none. A client told to `send_compressed` compresses, and the
//!   message is decompressed again in the adapter: leave it off. Between hosts the daemon compresses towards gRPC
//!   peers, as `grpc.request_encoding` and `grpc.response_encoding` of its configuration say.
//! * A handler finds no address of its peer (`remote_addr` is `None`) and no certificates: they are the daemon's.
//! * Settings of tonic's transport (keepalive, windows, TLS, concurrency) are the daemon's configuration, and so are
//!   limits (`limits.message_bytes`, `limits.grpc_message_bytes`) beside tonic's own.
//! * The type of a client's field becomes `GreeterClient<trunkline_tonic::Channel>`.
//! * What nobody serves is UNAVAILABLE on this host, since it may yet be attached.
//! * A server of this library that is not tonic's sends its headers with its first message, so a client that waits for
//!   headers before it sends anything waits for ever there; the same is true of most gRPC servers.
//!
//! # Limits
//! What a call may hold is what [`trunkline::opaque`] gives it; handlers at once are at most the daemon's
//! `limits.calls_delivered_per_session`. A message that tonic compressed may be 256 MiB once decompressed, the daemon's
//! default for a message.
#![forbid(unsafe_code)]

mod answer;
mod channel;
mod framed;
mod messages;
mod pump;
mod respond;
mod server;
mod words;

pub use answer::ResponseBody;
pub use channel::Channel;
pub use server::Server;
pub use trunkline::{ServerHandle, Status};
