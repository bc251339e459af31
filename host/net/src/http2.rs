//! HTTP/2 connections without a runtime.
//!
//! The h2 crate speaks the protocol; a runtime would poll it from tasks. Here the owner's turn does: it says that the
//! socket is readable, gives commands, calls [`Http2::turn`], and gets events. `connection.rs` is that face; inside,
//! `wire.rs` stands between h2 and the socket (one read and one write a turn), `marks.rs` are the wakers, `link.rs` is
//! h2 in either role, `stream.rs` and `table.rs` keep the open streams, `drive.rs` lets all of them work.
//!
//! What h2 answers without telling is counted by `meter.rs`, which reads along, and what it takes that is malformed is
//! found by `trailers.rs`; what it refuses that clients of Unix sockets say is mended by `unix_authority.rs`;
//! `unwritten.rs` knows which requests have reached the socket; `portions.rs` has it decode no more headers in a turn
//! than others can wait for; pings, age and idleness are in `keepalive.rs`; `opening.rs` tells what answers if it is
//! not HTTP/2; `settings.rs` names every limit.

mod connection;
mod drive;
mod keepalive;
mod link;
mod marks;
mod meter;
mod opening;
mod portions;
mod settings;
mod stream;
mod suspects;
mod table;
mod trailers;
mod unix_authority;
mod unwritten;
mod wire;

pub use connection::{Ended, Http2, State};
pub use settings::{AgeSettings, Http2Settings, KeepaliveSettings, PingSettings, Rate};
pub use wire::Buffers;
