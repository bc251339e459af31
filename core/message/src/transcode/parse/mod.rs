//! Protobuf to linear: one pass over the bytes, driven by tables.
//!
//! `walk` is the loop: tag, entry, operation; and whatever nests. The other operations are in `values`, `repeated` and
//! `packed`; `detour` is for what is out of the ordinary. `wire` and `reader` are where bytes come from, `arena`,
//! `array` and `kept` are where the message goes. `table` is what is known of a message type, `build` makes it from a
//! schema.

mod arena;
mod array;
mod build;
mod detour;
mod kept;
mod level;
mod packed;
mod reader;
mod repeated;
mod scalar;
mod table;
mod values;
mod walk;
mod wire;

pub(super) use build::ParseTables;
pub(super) use walk::{Outcome, parse};
