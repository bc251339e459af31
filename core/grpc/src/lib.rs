//! gRPC on HTTP/2, without I/O: what heads, bodies and trailers mean for a call.
//!
//! Two sides meet here. Below is an HTTP/2 connection (`host/net`), which knows streams, windows and settings and
//! nothing about calls; above is the engine, which knows calls and nothing about HTTP. The surface between them is
//! [`Event`] up and [`Command`] down, so that another implementation of HTTP/2 can take the first one's place.
//!
//! # The way of the data
//! A head becomes a call (path, deadline, metadata, encodings) or a well-formed refusal; body bytes become messages;
//! trailers become a status. The same in the other direction. Each step is a function from bytes to values.
//!
//! * [`request`]: heads of calls, read ([`request::parse`]) and written ([`request::head`]).
//! * [`response`]: heads and trailers of answers; what stands for them when they are missing or the stream is reset.
//! * [`framing`]: bodies cut into messages without copying what came in one piece.
//! * [`buffers`]: where long messages are put together.
//! * [`compress`]: gzip, deflate and zstd, bounded.
//! * [`retry`]: attempts that came before, and when the next is welcome.
//! * [`service_config`]: what a service's users say about its calls, as JSON.
//!
//! Metadata is one encoded buffer throughout, message and details of a status included, because that is what travels
//! on to applications and native peers. Which header is what: docs/grpc.md.
//!
//! # Invariants
//! * Nothing here knows a socket, a clock, a schema or a daemon. Time left is an argument, never an instant.
//! * Bytes from a peer end in a value, a status or a refusal, never in a panic; every size has a limit with a name.
//!
//! Source: the gRPC project's PROTOCOL-HTTP2, statuscodes, compression, and RFC 9113.
#![forbid(unsafe_code)]

pub mod buffers;
pub mod compress;
pub mod framing;
mod json;
mod limits;
mod load_balancing;
mod metadata;
mod names;
mod outcome;
pub mod request;
pub mod response;
pub mod retry;
pub mod service_config;
mod surface;
mod tags;
mod timeout;
mod trace;

pub use limits::Limits;
pub use outcome::Outcome;
pub use surface::{Command, Event, Reason, ResetBy, StreamTag};
pub use tags::{TagHasher, TagMap};
