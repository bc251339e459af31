//! Sessions: the applications of this host, as the ends of calls.
//!
//! [`SessionEnds`] owns what is there of them and nobody else's: the sessions, who of them has completions for the host
//! to write, whose heaps nobody reads any more, and the receive blocks that nobody will fill. It is asked with values
//! and answers with values; `submit.rs` and `session_end.rs` join it with calls, policies and methods.

mod ends;

pub(crate) use ends::{PartedSession, SessionEnds};
