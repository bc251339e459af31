//! Pages over HTTP/1.1 (RFC 9112): what Prometheus scrapes and browsers show, apart from the threads that carry calls.
//!
//! A [`PageServer`] listens at an address, reads one request from each connection, asks its owner for the page at that
//! path, writes it and closes. It does not know what pages say, and it serves nothing that changes anything: GET and
//! HEAD, no body, no cookies, no state.
//!
//! # The way of a request
//! `server.rs` accepts connections on one thread and gives each a thread of its own; `request.rs` reads the head, with
//! the httparse library; the owner's function makes the [`Page`]; `response.rs` writes it.
//!
//! # Invariants
//! * Whoever connects costs a place, and only for [`TIME_MAX`]: the time is that of the whole exchange, so a client
//!   that sends or takes a byte at a time gains nothing by it.
//! * The owner's function is called for well-formed requests only, and never while the place of another is waited for.
//! * Pages of other origins read nothing here: a reader that asks under a name that is not the server's hears 421
//!   (`hosts.rs`), no response lets another origin read or frame it.
//!
//! # Limits
//! [`PLACES_MAX`] connections at once, [`PLACES_OF_SOURCE_MAX`] of them from one address. For one more the oldest that
//! has not asked gives way, of its address or of the one with the most; where all have asked, it hears 503. A request
//! head of [`HEAD_BYTES_MAX`] bytes, longer ones hear 431. When the server is dropped, it listens no longer; exchanges
//! that have begun end by themselves.
#![forbid(unsafe_code)]

mod hosts;
mod places;
mod request;
mod response;
mod server;

pub use hosts::HostNames;
pub use places::{PLACES_MAX, PLACES_OF_SOURCE_MAX};
pub use request::{HEAD_BYTES_MAX, Request};
pub use response::Page;
pub use server::{PageServer, ReservedAddress, TIME_MAX};
