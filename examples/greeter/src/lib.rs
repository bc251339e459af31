//! Hello over all four calling patterns.
//!
//! The programs, in the order to read them: `bin/greeter-server.rs` and `bin/greeter-client.rs` are one call and its
//! answer, and no line more. `bin/greeter-client-async.rs` is the same call in an async function. [`MyGreeter`] answers
//! all four patterns, and `bin/greeter-patterns.rs` calls them; it serves itself, so it needs nobody else to run.
//!
//! ```text
//! trunkline daemon &
//! cargo run --bin greeter-server &
//! cargo run --bin greeter-client Ada
//! cargo run --bin greeter-patterns
//! ```
//!
//! All of them run against the host's daemon if there is one, and with an engine of their own if there is none. Two
//! programs only meet through a daemon.
#![forbid(unsafe_code)]

mod greeter;

/// Generated from `proto/greeter.proto`.
pub mod proto {
    trunkline::include_proto!("greeter.v1");
}

pub use greeter::MyGreeter;
