//! Protobuf to linear: one pass over the bytes, driven by tables.
//!
//! `walk` is the loop: tag, entry, operation. The operations are in `scalar`, `repeated`, `packed` and `unknown`, and
//! `detour` for what is out of the ordinary. `wire` is where bytes come from, `arena` and `array` are where the message
//! goes. `table` is what is known of a message type, `build` makes it from a schema.

mod arena;
mod array;
mod build;
mod detour;
mod level;
mod packed;
mod repeated;
mod scalar;
mod table;
mod unknown;
mod walk;
mod wire;

pub(super) use build::ParseTables;
pub(super) use walk::{Outcome, parse};
