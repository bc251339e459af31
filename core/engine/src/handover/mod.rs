//! An engine that goes on in another process.
//!
//! The state of an engine is plain data, so a daemon replaces itself without its calls noticing: the old process
//! writes the state down at the end of a turn ([`Engine::export`]), the new one reads it into a fresh engine
//! ([`Engine::take_over`]) and, once it is the only one, goes on ([`Engine::go_on_elsewhere`]). Exporting changes
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
//! * `joint.rs` has the owners give and take up their parts, makes anew what follows from several of them, ends what
//!   could not come along, and gives everything else a push, or goes on where it was.
//!
//! # What does not come along
//! HTTP/2 exchanges (their connections live in a library of the old process; the host drains them first), and what
//! balancers have learned. What telemetry has counted the host hands over beside the state. A call whose other end
//! stayed behind ends as UNAVAILABLE, *unknown*, or is cancelled at its handler.
//!
//! [`Engine::export`]: crate::Engine::export
//! [`Engine::take_over`]: crate::Engine::take_over
//! [`Engine::go_on_elsewhere`]: crate::Engine::go_on_elsewhere

pub(crate) mod awaited;
pub(crate) mod entries;
mod front;
mod joint;
pub(crate) mod left_out;
mod sound;
mod state;
mod types;

pub use joint::Brought;
pub use left_out::{LeftOutReason, LeftOutSession};
pub use state::{Exported, HandoverError};
