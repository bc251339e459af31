//! `trunkline daemon`: run it, watch over it, end it in peace.

mod file;
mod host;
mod logging;
mod notify;
mod upgrade;
mod verb;

pub use verb::daemon;
