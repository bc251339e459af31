//! Every parser of hostile bytes, as a function of bytes.
//!
//! A target takes any bytes and must return: no panic, no hang, no memory beyond what the bytes pay for. Where there is
//! more to say it says it, as that what passed the check can be read, or that what was decoded can be encoded again.
//! `TARGETS` is the table of them, each with the seeds that lead it into the deep; `targets.rs` has the functions.
//!
//! Two drivers run them: `tests/bounded.rs`, deterministic and over in seconds, is part of every `make test`;
//! `fuzz_targets/any.rs` hands them to libFuzzer (README.md).
//!
//! # Limits
//! * Only what is reached through bytes is reached here: what applications do to shared rings while they are read is
//!   tried in `run/daemon/tests`, orders of events in `core/engine/tests`.
#![forbid(unsafe_code)]

mod handover;
mod mutate;
mod r2p2;
mod routed;
mod samples;
mod service;
mod targets;
mod tls;

pub use mutate::Mutator;
pub use targets::{TARGETS, Target};
