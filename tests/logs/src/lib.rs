//! Logs of tests are looked at.
//!
//! A daemon that says ERROR, or whose thread panics, has a fault, also when every call of a test came out well: the
//! fault may have hit nobody, or somebody the test did not ask. So a test fails by what its daemons log, unless it says
//! beforehand which line it expects, and why.
//!
//! * [`faults`] reads the log of a process: what the binary writes to standard error, as text or as JSON.
//! * [`watch`] listens in the test's own process, where daemons are embedded. Events do not say which test they belong
//!   to, so a fault ends the test program at once, after saying what it was.
//! * [`Expected`] is a line that a test foresees. It may come or not; whether it comes is for the test to assert.
//!
//! # Limits
//! WARN is not looked at: peers and applications that do wrong cause it, and that is what many tests are about. The
//! daemon says ERROR of itself and of its host only.
#![forbid(unsafe_code)]

mod lines;
mod live;

pub use lines::{Expected, faults};
pub use live::{expect, watch};
