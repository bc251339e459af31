//! Applications whose daemon is on another host, or outside their container: the same rings and heaps, carried over a
//! TLS connection.
//!
//! The library of such an application creates a session for itself, and a thread stands in for the daemon
//! ([`attach`], `app.rs`). On the daemon's host a relay ([`Relay`], `relay.rs`) accepts the connection, asks its
//! certificate who is there, attaches a session to the daemon in that name, and stands in for the application
//! (`host.rs`). What one side takes out of its rings, the other puts into its own, after the bytes the entry names:
//! the heaps of both sides have the same size, and a block lies at the same offset. `docs/remote.md` is the page for
//! users and has the protocol.
//!
//! # The way of a request
//! The application publishes an entry and rings. Its thread takes the entry (`app.rs`), copies the bytes it names out
//! of the send heap and writes both as frames (`pump.rs`, `output.rs`). The relay's thread reads them (`input.rs`),
//! writes the bytes at their place into the send heap that the daemon has mapped, pushes the entry and rings the
//! daemon (`host.rs`). Answers come back the same way.
//!
//! # What this crate does not know
//! Calls, routes, messages: an entry is carried whole, but for its times, which `app.rs` puts on the other host's clock
//! (`offset.rs`). Who may do what: that is the daemon's, which knows the application by its certificate's name.
//!
//! # Invariants
//! * Entries keep their order, and none is carried twice: a connection that breaks ends both sessions, and what was
//!   under way ends as when an application or a daemon dies.
//! * Nothing that comes over the network is written where the application holds a block (`lent.rs`).
//! * A relay attaches in no name but the one the connection's certificate says.
//!
//! # Limits
//! One thread for each session, at either side; connections that have shown no certificate share the thread that
//! accepts (`door.rs`), and so do those that are told why they are refused (`refusals.rs`). Bytes that a session makes
//! the relay keep are counted by identity (`accounts.rs`). What waits for the connection is bounded
//! ([`OUTPUT_BYTES_MAX`]); what does not fit a ring waits in the connection. A side that hears nothing for
//! [`SILENCE_MAX`] while it listens ends. A relay's limits are [`RelaySettings`].
#![forbid(unsafe_code)]

mod accounts;
mod app;
mod door;
mod ends;
mod error;
mod host;
mod input;
mod lent;
mod offset;
mod output;
mod place;
mod pump;
mod refusals;
mod relay;

pub use app::attach;
pub use error::LinkError;
pub use output::OUTPUT_BYTES_MAX;
pub use place::{PlaceError, RemotePlace};
pub use pump::SILENCE_MAX;
pub use relay::{Relay, RelaySettings};
