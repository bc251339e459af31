//! `trunkline call`: one call from a command line, with types known at run time.
//!
//! `descriptors.rs` finds the method, `json.rs` turns requests into protobuf, `exchange.rs` makes the call over a
//! session of its own (`attachment.rs`), `response.rs` turns what comes back into text. `verb.rs` joins them.

mod attachment;
mod descriptors;
mod exchange;
mod json;
mod response;
mod verb;

pub use descriptors::Sources;
pub use verb::{CallOrder, call};
