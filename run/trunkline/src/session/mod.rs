//! One attachment to the daemon: two rings, two heaps, two doorbells, and the books about them.
//!
//! Two locks, never held while anything blocks that another thread could be waiting for:
//!
//! * the *books* ([`books::Books`]): calls, submissions, who waits for what; held for some tens of nanoseconds;
//! * the *completions* ([`completions::Completions`]): the right to drain the completion ring; held by the thread that
//!   looks at the ring or sleeps on its doorbell. Whoever wants it asks with `try_lock` and otherwise waits as a
//!   follower.
//!
//! That of the completions is taken before the books', never the other way round.
//!
//! Every part has an owner that knows no other: the submission ring (`outbox.rs`), calls (`calls.rs`), those who wait
//! (`queues.rs`), a worker's work (`inbox.rs`), receive heaps (`heaps.rs`), the control socket (`link.rs`) and the
//! replies that come over it (`replies.rs`). `books.rs`, `dispatch.rs` and `sleep.rs` join those behind the books'
//! lock, `session.rs`, `waiting.rs` and `control.rs` those of the session. Owners answer with values, and with
//! [`Effects`]: what is to be done when no lock is held. Of the rest of the library a session knows a
//! [`SessionListener`] it can call, and `context.rs`, which says what this thread drains.

mod books;
mod calls;
mod completions;
mod control;
mod dispatch;
mod effects;
mod heaps;
mod ids;
mod inbox;
mod link;
mod listener;
mod order;
mod outbox;
mod queues;
mod received;
mod replies;
#[expect(clippy::module_inception, reason = "its file is that of the type")]
mod session;
mod sleep;
mod state;
mod stream_share;
mod taken;
#[cfg(test)]
mod tests;
mod turn;
mod waiting;

pub(crate) use books::{Books, Limits};
pub(crate) use control::Agreement;
pub(crate) use effects::Effects;
pub(crate) use ids::IdMap;
pub(crate) use inbox::Work;
pub(crate) use listener::{HubId, SessionId, SessionIdentity, SessionListener};
pub(crate) use order::{BindingId, Order, Refusal, Written, returned};
pub(crate) use queues::Resource;
pub(crate) use received::{Received, metadata, named};
pub(crate) use session::Session;
pub(crate) use state::{Asker, End, EndedBy};
pub(crate) use turn::{CreditWait, Turn, stop_receiving, wait_for};
