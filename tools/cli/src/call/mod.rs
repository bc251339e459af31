//! `trunkline call`: one call from a command line, with types known at run time.
//!
//! `types.rs` finds the types: in files (`descriptors.rs`), in this program, or at whoever is called (`reflect.rs`).
//! `json.rs` turns requests into protobuf, `exchange.rs` makes the call over a session of its own (`attachment.rs`;
//! `heaps.rs` has what the daemon writes for it), `response.rs` turns what comes back into text. `show.rs` lists and
//! describes. `way.rs` says whom to call, and how that one is reached where TLS is asked for. `verb.rs` joins them;
//! `input.rs` reads standard input for it.

mod attachment;
mod descriptors;
mod exchange;
mod heaps;
mod input;
mod json;
mod pool;
mod reflect;
mod response;
mod show;
mod types;
mod unique;
mod verb;
mod way;

pub use attachment::{AttachError, Attachment, is_remote, protobuf};
pub use descriptors::{Sources, method};
pub use exchange::status_of;
pub use json::{JsonError as RequestsError, Requests};
pub use types::of_method;
pub use verb::{CallError, CallOrder, How, Input, attach, call};
pub use way::Way;

#[cfg(test)]
pub use descriptors::tests::pool as test_pool;
