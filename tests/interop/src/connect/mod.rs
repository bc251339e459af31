//! The programs connectrpc's conformance runner talks to: a server and a client of
//! `connectrpc.conformance.v1.ConformanceService`.
//!
//! The runner tells each program on its standard input what is wanted and reads on its standard output what came of it.
//! `server.rs` answers as each request says; `client.rs` makes the calls the runner asks for, `calls.rs` one of each
//! pattern. `words.rs` turns metadata and statuses into the runner's words and back.

mod calls;
mod client;
mod server;
mod words;

pub use client::serve_calls;
pub use server::ConformanceServer;
pub use words::Words;
