//! `trunkline doctor`: what is wrong on this host, and what to do about it.
//!
//! Each file looks at one side of the host and turns what it sees into findings (`finding.rs`). What is looked at is
//! read in one place per file; what it means is said by pure functions, which the tests ask.

mod certificates;
mod daemon;
mod finding;
mod kernel;
mod limits;
mod verb;

pub use certificates::out_of_time;
pub use verb::doctor;
