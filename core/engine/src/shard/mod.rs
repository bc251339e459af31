//! Other shards of this host, as ends of calls.
//!
//! A host has one engine per shard, and a call one end on each of two of them if nobody on its caller's shard serves
//! it. The caller's engine makes the call as it makes every other, with a shard as server end; the other engine has a
//! call of its own, with a shard as client end. Between them go values ([`Crossing`]), as many at once as there are
//! ([`CrossingBatch`]): the host carries them from the one engine to the other, in order, through a bounded queue for
//! each ordered pair of shards.
//!
//! ```text
//!   session ── call ── shard 1 │ Open, Message, HalfClose, Cancel ▶ │ shard 0 ── call ── session
//!                              │ ◀ Accepted, Headers, Reply, Finish │
//!                              │ ◀ Credit, Taken, Offers ▶          │
//! ```
//!
//! * `crossing.rs` has what goes across, `batch.rs` what goes at once, `links.rs` what one shard keeps of the others
//!   (`link.rs` of one), `accounts.rs` and `paying.rs` who pays for it, `spares.rs` its memory for the next,
//!   `elsewhere.rs` what others serve;
//! * `end.rs` hands items to another shard, with copies of their messages (`copies.rs`), and does what another says,
//!   `served.rs` of calls that are served here, `whole.rs` of those that go to a session as they came, `returned.rs` of
//!   those that come back, `places.rs` of free workers, `offers.rs` of what it serves; `chosen.rs` says which shard is
//!   to serve a call;
//! * `counts.rs` and `majority.rs` say whose calls cross most, so that whoever makes them may come to where they go;
//! * `migration.rs` moves a session from one shard to another, with its calls in flight.
//!
//! # Rules
//! * The caller's shard judges the policies of whoever calls, the other those of whoever serves: each once.
//! * The caller's shard keeps a call's deadline, record and attempts. When the deadline passes it asks the other with a
//!   cancellation of code DEADLINE_EXCEEDED, which alone is answered with the call's end: only there is it known if a
//!   handler has seen it.
//! * A call that has crossed never crosses again. A shard that serves the method no more returns the opening as it
//!   came, and what it serves by then was said before: the call goes to another, or waits for one if it is one that
//!   waits.
//! * Of a call that is not over with its opening nothing follows before the other shard has accepted it.
//! * A message is copied out of its sender's heap when it crosses, and its sender pays for the copy until it is used:
//!   more than [`crate::Limits::parked_bytes_per_session`] of one sender do not cross, and wait where they are.
//! * No more than `ITEMS_MAX` items wait for a queue; more wait in their calls. Ends, credit and what was used go on
//!   always: there are never more of them than calls and messages.

mod accounts;
mod audit;
mod batch;
mod by_slot;
mod chosen;
mod copies;
mod counts;
pub(crate) mod crossing;
mod deferred;
mod elsewhere;
pub(crate) mod end;
mod joint;
mod link;
mod links;
mod majority;
mod migration;
mod offers;
mod origin;
mod paying;
mod places;
mod returned;
mod served;
mod spares;
mod telling;
mod whole;

pub use audit::audit_crossings;
pub use batch::CrossingBatch;
pub(crate) use chosen::{find_keeping, find_shard, return_kept};
pub(crate) use counts::note_stays;
pub(crate) use crossing::{CrossedBody, Origin, ShardStage, application_of};
pub use crossing::{Crossing, ShardIndex};
pub(crate) use end::settle;
pub use end::{handle_crossings, has_crossings, next_crossings, park_crossing};
pub use joint::{ask_to_redial, join_shards, share_limits, take_crossing_peer, take_partner};
pub(crate) use links::{ShardLine, ShardLinks};
pub(crate) use majority::Majority;
pub use migration::{MovedSession, Stays, adopt_session, release_session};
pub(crate) use offers::{give_back, tell_bound};
pub(crate) use returned::go_elsewhere;
pub(crate) use whole::leave;
