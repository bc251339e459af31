//! `trunkline demo`: two daemons, a service and its callers on this machine, and where their time went.
//!
//! Everything is started as a user would start it: the daemons by `trunkline daemon`, the service by the example's own
//! programs, on temporary sockets and a loopback port. `stage.rs` starts and ends the processes, also when the demo
//! fails, is interrupted or killed; `script.rs` is the play; `changes.rs` its act of changes under the callers of
//! `load.rs`; `picture.rs` draws.

mod changes;
mod child;
mod error;
mod load;
mod picture;
mod script;
mod stage;

pub use script::demo;
