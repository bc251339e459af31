//! Sessions: the applications of this host, as the ends of calls.
//!
//! [`SessionEnds`] owns what is there of them and nobody else's: the sessions, who of them has completions for the host
//! to write, whose heaps nobody reads any more, and the receive blocks that nobody will fill. It is asked with values
//! and answers with values; `entries.rs` finds the calls of what sessions say. `end.rs` is a session as the end of a
//! call, `placing.rs` puts items into its heap, `room.rs` what has to wait before it may go there, `outboxes.rs`
//! what the host takes of it.

mod end;
mod ends;
mod entries;
mod outboxes;
mod placing;
mod room;

pub(crate) use ends::{PartedSession, SessionEnds};
pub(crate) use entries::{SessionEntries, payer_of};
pub use outboxes::Outboxes;
pub(crate) use room::LinesOf;
