//! Shows that calls are the same on hosts with several shards, whose applications sit on different ones: the tests of
//! other files, in a world where each host has two shards and applications go to them in turn.

#![expect(clippy::duplicate_mod, reason = "each of those files brings the world along")]

#[path = "calls.rs"]
mod calls;
#[path = "certainty.rs"]
mod certainty;
#[path = "opaque.rs"]
mod opaque;
#[path = "random.rs"]
mod random;
