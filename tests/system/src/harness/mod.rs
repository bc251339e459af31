//! Processes that end with their handles, hosts made of a daemon and a socket, and waiting under a watchdog: what tests
//! of real processes are made of.
//!
//! The processes run the program of the test's own package, which cargo builds beside the test: `probe`, unless
//! [`use_program`] has named another that plays the same parts (`program.rs`).

mod host;
mod process;
mod program_file;
mod waiting;

pub use host::{Held, Host, Keys, shards};
pub use process::{Process, until};
pub use program_file::use_program;
pub use waiting::{channel, client, echo, until_served};
