//! Linear to protobuf: one walk over the blocks that checks what it reads and writes backwards.
//!
//! Written from the end, a nested message is complete, and its length known, when its tag and length are due: there is
//! no pass to compute sizes. `walk` is the loop and whatever nests, `value` and `array` are the other operations,
//! `extent_reader` is what is read, `output` the buffer that fills downwards. `table` is what is known of a message
//! type, `build` makes it from a schema.

mod array;
mod build;
mod extent_reader;
mod output;
mod table;
mod value;
mod walk;

pub(super) use build::EmitTables;
pub use output::HEADROOM_BYTES;
pub(super) use walk::{Outcome, emit};
