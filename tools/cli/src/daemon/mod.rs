//! `trunkline daemon`: run it, watch over it, end it in peace.

mod file;
mod host;
mod logging;
mod verb;

pub use verb::daemon;
