//! An engine that goes on in another process.
//!
//! The state of an engine is plain data, so a daemon replaces itself without its calls noticing: the old process
//! writes the state down at the end of a turn ([`export_state`]), the new one reads it into a fresh engine
//! ([`take_over`]) and, once it is the only one, goes on ([`go_on_elsewhere`]). Exporting changes
//! nothing: if the other does not come up, this engine goes on as if nothing had been.
//!
//! What is written is CBOR with the fields' names, under a version. Tables keep their slots and generations, so every
//! key, call id and token means the same on both sides; only what the program itself defines (limits, service
//! configs, compiled policies, transcoding tables) is made anew. Types are numbered: many calls share one.
//!
//! * `state.rs` is what is written and read; `types.rs` has the numbered types, `entries.rs` completions;
//! * `front.rs` reads the little that is needed before the rest;
//! * `sound.rs` holds what was read against what the rest of the room relies on: a state that contradicts itself is
//!   refused, and never panics later. What is only counted or told, by peers, too, is clipped instead;
//! * `left_out.rs` ends sessions and connections whose part does not hold together, or which use types that this
//!   program does not take: everybody else goes on;
//! * `awaited.rs` has the calls of the daemon's own services wait for their successors;
//! * `leaving.rs` is lent the owners that give their parts, `arriving.rs` those that take them up, `going_on.rs` those
//!   who say how what could not come along ends;
//! * `joint.rs` is what the host asks for: it lends the owners, does what they say in order, and gives everything else
//!   a push, or goes on where it was.
//!
//! # What does not come along
//! HTTP/2 exchanges (their connections live in a library of the old process; the host drains them first), and what
//! balancers have learned. What telemetry has counted the host hands over beside the state. A call whose other end
//! stayed behind ends as UNAVAILABLE, *unknown*, or is cancelled at its handler.

mod arriving;
pub(crate) mod awaited;
pub(crate) mod entries;
mod front;
mod going_on;
mod joint;
mod leaving;
pub(crate) mod left_out;
mod sound;
mod state;
mod types;

pub use going_on::Brought;
pub(crate) use joint::settle_awaited;
pub use joint::{
    export_state, go_on_elsewhere, hold_own_services, leave_grpc, left_out_connections, left_out_sessions,
    schemas_in_use, shards_needed, stay_with_grpc, take_over,
};
pub use left_out::{LeftOutReason, LeftOutSession};
pub use state::{Exported, HandoverError, STATE_VERSION};
