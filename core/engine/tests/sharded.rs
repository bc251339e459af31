//! Shows that calls are the same on hosts with several shards, whose applications sit on different ones: the tests of
//! other files, in a world where each host has two shards and applications go to them in turn.

#[path = "integration/calls.rs"]
mod calls;
#[path = "integration/certainty.rs"]
mod certainty;
#[path = "integration/opaque.rs"]
mod opaque;
#[path = "random.rs"]
mod random;

use random::world;
