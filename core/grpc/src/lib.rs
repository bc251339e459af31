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
//! # Invariants
//! * Nothing here knows a socket, a clock, a schema or a daemon. Time left is an argument, never an instant.
//! * Bytes from a peer end in a value, a status or a refusal, never in a panic; every size has a limit with a name.
//!
//! Source: the gRPC project's PROTOCOL-HTTP2, statuscodes, compression, and RFC 9113.
#![forbid(unsafe_code)]

mod surface;

pub use surface::{Command, Event, Reason, StreamTag};
